"""Scaling: from X's units to those of the networks, and back.

Chosen in `fit`, stored with the model, inverted by `inverse_transform`, and part of every density:
log p_X(x) = log p_U(u) - sum_j log scale_j for u = (x - shift)/scale.
"""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor, nn

from sparsevae.inputs.stats import Span, Stats

SCALES = ("auto", "standard", "unit-norm", "none")
"""The legal values of `scale`; "auto" is chosen by the data."""


class Scaling(nn.Module):
    """u = forward(x); x = inverse(u); `log_det` is log |du/dx|. This one is the identity; the others are subclasses.

    A scaling that is not `reversible` loses a part of x: its log_det, and so every score, is that of the rest.
    """

    reversible: ClassVar[bool] = True

    @property
    def name(self) -> str:
        """A name, to report the scaling that "auto" stands for; "none" if u = x."""
        return "none"

    @property
    def log_det(self) -> float:
        return 0.0

    def forward(self, x: Tensor) -> Tensor:
        return x

    def inverse(self, u: Tensor) -> Tensor:
        return u

    def span(self, data: Stats) -> Span:
        """Bounds on the scaled values, and True if they are whole numbers."""
        return Span(data.low, data.high, data.whole)


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

    def span(self, data: Stats) -> Span:
        ends = self(torch.tensor([[data.low], [data.high]], device=self.shift.device))
        return Span(float(ends.min()), float(ends.max()), data.whole and self.name == "none")


class UnitNorm(Scaling):
    """u = sqrt(D) x / |x|, row by row (zero rows stay zero): the VSC papers' choice, with values of order 1.

    `inverse` returns rows of norm 1, and log_det is log |du/dr| for such a row r = x / |x|. The length of x is lost, so
    a density of r is no density of x.
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
        # Divide by the largest value first: the squares of 1e20 or 1e-20 overflow or underflow in float32.
        u = u / u.abs().amax(-1, keepdim=True).clamp_min(torch.finfo(u.dtype).tiny)
        unit: Tensor = u / torch.linalg.vector_norm(u, dim=-1, keepdim=True).clamp_min(1e-12)
        return unit

    def span(self, data: Stats) -> Span:
        return Span(-self.size if data.low < 0 else 0.0, self.size, False)


def divisor(name: str, data: Stats) -> float | None:
    """The number by which this scaling divides all values; None if it does anything else."""
    return {"none": 1.0, "auto": data.unit}.get(name)


def choose(name: str, data: Stats, least: float = 0.0) -> Scaling:
    """The scaling of that name for these data.

    "auto" leaves values that fill [0, 1] alone, divides 8-bit images by 255, and standardises everything else, also
    where these would leave no column with a variance of `least` (term frequencies, 8-bit numbers far below 255).
    A standardised column has unit variance, or less so that every training value lies within 10: a pixel that is on
    in one of 60,000 images does not become 245. Constant columns are only centred, and those of 8-bit images divided
    by 255.
    """
    if name not in SCALES:
        raise ValueError(f"scale must be one of {', '.join(SCALES)}; got {name!r}.")
    if name == "unit-norm":
        return UnitNorm(len(data.mean))
    unit = divisor(name, data)
    if unit is not None:
        spread = float(data.std.max()) / unit
        if name == "none" or spread == 0 or spread**2 >= least:  # later rows may differ although these are equal
            return Affine(torch.zeros(len(data.mean)), torch.full((len(data.mean),), unit))
    scale = torch.maximum(data.std, data.reach / 10)
    tiny = scale <= 1e-7 * data.mean.abs().clamp_min(torch.finfo(torch.float32).tiny)
    return Affine(data.mean, torch.where(tiny, unit or 1.0, scale))
