"""Scaling: from the user's units to the ones a network likes, and back.

Chosen in fit, stored with the model, undone by `inverse_transform`, and charged for in every density:
log p_X(x) = log p_U(u) - sum_j log scale_j for u = (x - shift)/scale.
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from sparsevae.inputs.stats import Stats

SCALES = ("auto", "standard", "unit-norm", "none")
"""The scalings a constructor may name; "auto" is settled by the data."""


class Scaling(nn.Module):
    """u = forward(x); x = inverse(u); `log_det` is log |du/dx|.

    A scaling that is not `reversible` forgets something of x: its log_det, and so every score, is that of what is left.
    """

    reversible: ClassVar[bool] = True

    @property
    def name(self) -> str:
        """What it does, in words: what "auto" came to."""
        raise NotImplementedError

    @property
    def log_det(self) -> float:
        raise NotImplementedError

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
    def name(self) -> str:
        units = self.scale.unique().tolist()
        if len(units) > 1 or self.shift.any():
            return "standard"
        return "none" if units == [1.0] else f"divided by {units[0]:g}"

    @property
    def log_det(self) -> float:
        return -float(self.scale.double().log().sum())

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.shift) / self.scale

    def inverse(self, u: Tensor) -> Tensor:
        return u * self.scale + self.shift


class UnitNorm(Scaling):
    """u = sqrt(D) x / |x|, row by row (zero rows stay zero): the VSC papers' choice, at a size that networks like.

    `inverse` returns rows of norm 1, and log_det is that of u against such a row r = x / |x|. The row's length is
    forgotten, so a density of r is no density of x.
    """

    reversible: ClassVar[bool] = False

    def __init__(self, n_features: int) -> None:
        super().__init__()
        self.size = math.sqrt(n_features)

    @property
    def name(self) -> str:
        return "unit-norm"

    @property
    def log_det(self) -> float:
        return self.size**2 * math.log(self.size)

    def forward(self, x: Tensor) -> Tensor:
        return self.size * self.inverse(x)

    def inverse(self, u: Tensor) -> Tensor:
        # By its largest value first: the squares of 1e20 or 1e-20 leave float32.
        u = u / u.abs().amax(-1, keepdim=True).clamp_min(torch.finfo(u.dtype).tiny)
        unit: Tensor = u / torch.linalg.vector_norm(u, dim=-1, keepdim=True).clamp_min(1e-12)
        return unit


def choose(name: str, data: Stats, dtype: np.dtype[np.generic], least: float = 0.0) -> Scaling:
    """The scaling of that name for these data.

    "auto" leaves values that fill [0, 1] alone, divides 8-bit images by 255, and standardises everything else, also
    where these would leave no column with a variance of `least` (term frequencies, 8-bit numbers far below 255).
    A standardised column has unit variance, or less where that keeps every training value within 10: a pixel that is
    lit once in 60,000 images is not blown up to 245. Constant columns are only centred, those of 8-bit images in their
    unit.
    """
    identity = torch.zeros(len(data.mean)), torch.ones(len(data.mean))
    if name not in SCALES:
        raise ValueError(f"scale must be one of {', '.join(SCALES)}; got {name!r}.")
    if name == "unit-norm":
        return UnitNorm(len(data.mean))
    if name == "none":
        return Affine(*identity)
    unit = _unit(data, dtype) if name == "auto" else None
    if unit is not None:
        spread = float(data.std.max()) / unit
        if spread == 0 or spread**2 >= least:  # rows that are all the same tell nothing of those to come
            return Affine(identity[0], unit * identity[1])
    scale = torch.maximum(data.std, data.reach / 10)
    tiny = scale <= 1e-7 * data.mean.abs().clamp_min(torch.finfo(torch.float32).tiny)
    return Affine(data.mean, torch.where(tiny, unit or 1.0, scale))


def _unit(data: Stats, dtype: np.dtype[np.generic]) -> float | None:
    """What 1 is called in data that look like images: 1 where values fill [0, 1], 255 where they are 8-bit."""
    if data.low >= 0 and 0.5 <= data.high <= 1:
        return 1.0
    return 255.0 if dtype == np.uint8 else None
