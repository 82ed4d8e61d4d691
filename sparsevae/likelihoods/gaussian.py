"""Real values: Gaussians with learned or known variance, and Laplace."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.distributions import Distribution, Independent, Laplace
from torch.nn.functional import softplus

from sparsevae.distributions.gaussian import normal_by_variance
from sparsevae.likelihoods.base import First, Likelihood


def _softplus_inverse(y: Tensor) -> Tensor:
    return y + torch.log(-torch.expm1(-y))


class GaussianData(Likelihood):
    """raw = (loc, s) -> N(loc, floor + softplus(s)): a mean and a learned variance per value.

    Without the floor the variance of a constant pixel falls to 0 and its density grows without limit. So scores depend
    on the floor, and it is stored and reported with them.
    """

    name = "gaussian"
    location: ClassVar[bool] = True
    startable: ClassVar[bool] = True
    note = "learned variance"
    settings = ("variance_floor",)
    parts: ClassVar[int] = 2
    variance_floor: float

    def __init__(self, variance_floor: float) -> None:
        super().__init__(variance_floor)
        self.least_variance = self.variance_floor

    def forward(self, raw: Tensor) -> Distribution:
        loc, s = raw.chunk(2, -1)
        return normal_by_variance(loc, self.variance_floor + softplus(s))

    def begin(self, x: Tensor) -> First:
        """The mean row; half of the columns' variance, which the code can explain."""
        spread = _softplus_inverse((0.5 * x.var(0, correction=0) - self.variance_floor).clamp_min(1e-3))
        return First(torch.cat([x.mean(0), spread]), torch.ones_like(spread))


class ColumnGaussianData(Likelihood):
    """raw = loc -> N(loc, floor + softplus(s)) with s learned, one per column and not by z: the noise of a table."""

    name = "column-gaussian"
    location: ClassVar[bool] = True
    startable: ClassVar[bool] = True
    note = "one learned variance per column"
    settings = ("variance_floor", "features")
    variance_floor: float

    def __init__(self, variance_floor: float, features: int) -> None:
        super().__init__(variance_floor, features)
        self.least_variance = self.variance_floor
        self.spread = nn.Parameter(torch.zeros(int(features)))

    def forward(self, raw: Tensor) -> Distribution:
        return normal_by_variance(raw, (self.variance_floor + softplus(self.spread)).expand_as(raw))

    def begin(self, x: Tensor) -> First:
        """The mean row; half of the columns' variance as noise."""
        with torch.no_grad():
            start = (0.5 * x.var(0, correction=0) - self.variance_floor).clamp_min(1e-3)
            self.spread.copy_(_softplus_inverse(start))
        return First(x.mean(0), torch.ones_like(x[0]))

    def describe(self) -> dict[str, float]:
        return {"variance_floor": self.variance_floor}


class FixedGaussianData(Likelihood):
    """raw = loc -> N(loc, variance): squared error with an explicit scale."""

    name = "fixed-gaussian"
    location: ClassVar[bool] = True
    startable: ClassVar[bool] = True
    settings = ("variance",)
    variance: float

    def forward(self, raw: Tensor) -> Distribution:
        return normal_by_variance(raw, torch.full_like(raw, self.variance))

    def begin(self, x: Tensor) -> First:
        return First(x.mean(0), torch.ones_like(x[0]))


class LaplaceData(Likelihood):
    """raw = loc -> Laplace(loc, b) with 2 b^2 = variance: absolute error with an explicit scale."""

    name = "laplace"
    location: ClassVar[bool] = True
    startable: ClassVar[bool] = True
    settings = ("variance",)
    variance: float

    def forward(self, raw: Tensor) -> Distribution:
        scale = torch.full_like(raw, (self.variance / 2) ** 0.5)
        return Independent(Laplace(raw, scale, validate_args=False), 1, validate_args=False)

    def begin(self, x: Tensor) -> First:
        return First(x.mean(0), torch.ones_like(x[0]))
