"""Scaling: from the user's units to the ones a network likes, and back.

Chosen in fit, stored with the model, undone by `inverse_transform`, and charged for in every density:
log p_X(x) = log p_U(u) - sum_j log scale_j for u = (x - shift)/scale.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from sparsevae.rows import Stats

__all__ = ["SCALES", "Affine", "Scaling", "UnitNorm", "choose"]

SCALES = ("auto", "standard", "unit-norm", "none")
"""The scalings a constructor may name; "auto" is settled by the data."""


class Scaling(nn.Module):
    """u = forward(x); x = inverse(u); `log_det` is log |du/dx|, None where the map has no density."""

    log_det: float | None

    def forward(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def inverse(self, u: Tensor) -> Tensor:
        raise NotImplementedError


class Affine(Scaling):
    """u = (x - shift) / scale, columnwise, (..., D)."""

    shift: Tensor
    scale: Tensor

    def __init__(self, shift: Tensor, scale: Tensor) -> None:
        super().__init__()
        self.register_buffer("shift", shift.float())
        self.register_buffer("scale", scale.float())

    @property
    def log_det(self) -> float:  # type: ignore[override]
        return -float(self.scale.double().log().sum())

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.shift) / self.scale

    def inverse(self, u: Tensor) -> Tensor:
        return u * self.scale + self.shift


class UnitNorm(Scaling):
    """u = x / |x|, row by row (zero rows stay zero): the VSC papers' choice.

    It forgets the row's length, so it cannot be undone, and a density of u is no density of x.
    """

    log_det = None

    def forward(self, x: Tensor) -> Tensor:
        # By its largest value first: the squares of 1e20 or 1e-20 leave float32.
        x = x / x.abs().amax(-1, keepdim=True).clamp_min(torch.finfo(x.dtype).tiny)
        unit: Tensor = x / torch.linalg.vector_norm(x, dim=-1, keepdim=True).clamp_min(1e-12)
        return unit

    def inverse(self, u: Tensor) -> Tensor:
        return self.forward(u)


def choose(name: str, data: Stats, dtype: np.dtype[np.generic]) -> Scaling:
    """The scaling of that name for these data.

    "auto" leaves values in [0, 1] alone, divides 8-bit images by 255, and standardises everything else.
    A standardised column has unit variance, or less where that keeps every training value within 10: a pixel that is
    lit once in 60,000 images is not blown up to 245. Constant columns are only centred.
    """
    identity = torch.zeros(len(data.mean)), torch.ones(len(data.mean))
    if name not in SCALES:
        raise ValueError(f"scale must be one of {', '.join(SCALES)}; got {name!r}.")
    if name == "unit-norm":
        return UnitNorm()
    if name == "none" or (name == "auto" and data.low >= 0 and data.high <= 1):
        return Affine(*identity)
    if name == "auto" and dtype == np.uint8:
        return Affine(identity[0], 255 * identity[1])
    scale = torch.maximum(data.std, data.reach / 10)
    tiny = scale <= 1e-7 * data.mean.abs().clamp_min(torch.finfo(torch.float32).tiny)
    return Affine(data.mean, torch.where(tiny, 1.0, scale))
