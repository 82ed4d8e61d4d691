"""Real values: Gaussians with learned or known variance, and Laplace."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor
from torch.distributions import Distribution, Independent, Laplace
from torch.nn.functional import softplus

from sparsevae.distributions.gaussian import normal_by_variance
from sparsevae.likelihoods.base import Likelihood


class GaussianData(Likelihood):
    """raw = (loc, s) -> N(loc, floor + softplus(s)): a mean and a learned variance per value.

    Without the floor the variance of a constant pixel falls to 0 and its density grows without limit. So scores depend
    on the floor, and it is stored and reported with them.
    """

    name = "gaussian"
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


class FixedGaussianData(Likelihood):
    """raw = loc -> N(loc, variance): squared error with an explicit scale."""

    name = "fixed-gaussian"
    settings = ("variance",)
    variance: float

    def forward(self, raw: Tensor) -> Distribution:
        return normal_by_variance(raw, torch.full_like(raw, self.variance))


class LaplaceData(Likelihood):
    """raw = loc -> Laplace(loc, b) with 2 b^2 = variance: absolute error with an explicit scale."""

    name = "laplace"
    settings = ("variance",)
    variance: float

    def forward(self, raw: Tensor) -> Distribution:
        scale = torch.full_like(raw, (self.variance / 2) ** 0.5)
        return Independent(Laplace(raw, scale, validate_args=False), 1, validate_args=False)
