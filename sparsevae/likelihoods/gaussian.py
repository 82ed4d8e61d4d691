"""Real values: Gaussians with learned or known variance, and Laplace."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor
from torch.distributions import Distribution, Independent, Laplace
from torch.nn.functional import softplus

from sparsevae.distributions.gaussian import normal_by_variance
from sparsevae.likelihoods.base import FlooredData, KnownVarianceData


class GaussianData(FlooredData):
    """raw = (loc, s) -> N(loc, floor + softplus(s)): a mean and a learned variance for every value."""

    parts: ClassVar[int] = 2

    def forward(self, raw: Tensor) -> Distribution:
        loc, s = raw.chunk(2, -1)
        return normal_by_variance(loc, self.floor + softplus(s))


class FixedGaussianData(KnownVarianceData):
    """raw = loc -> N(loc, variance): squared error."""

    def forward(self, raw: Tensor) -> Distribution:
        return normal_by_variance(raw, torch.full_like(raw, self.variance))


class LaplaceData(KnownVarianceData):
    """raw = loc -> Laplace(loc, b) with 2 b^2 = variance: absolute error."""

    def forward(self, raw: Tensor) -> Distribution:
        scale = torch.full_like(raw, (self.variance / 2) ** 0.5)
        return Independent(Laplace(raw, scale, validate_args=False), 1, validate_args=False)
