"""Counts: Poisson."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor
from torch.distributions import Distribution, Independent, Poisson

from sparsevae.likelihoods.base import Likelihood
from sparsevae.sampling.draw import draw_from
from sparsevae.sampling.noise import Noise

_LOG_RATE_LIMIT = 30.0  # a sum of rates of e^30 over a row is far from float32's limit of e^88


class ExactPoisson(Poisson):
    """A Poisson distribution whose log_prob is computed in doubles: its three terms cancel where counts are large."""

    def log_prob(self, value: Tensor) -> Tensor:
        x, rate = value.double(), self.rate.double()
        found: Tensor = x.xlogy(rate) - rate - (x + 1).lgamma()
        return found.to(value.dtype)


class PoissonData(Likelihood):
    """raw = log rate, clamped to [-30, 30] -> Poisson counts."""

    name = "poisson"
    discrete: ClassVar[bool] = True
    whole = True
    support = (0.0, math.inf)
    scalings = ("none",)

    def forward(self, raw: Tensor) -> Distribution:
        rate = raw.clamp(-_LOG_RATE_LIMIT, _LOG_RATE_LIMIT).exp()
        return Independent(ExactPoisson(rate, validate_args=False), 1, validate_args=False)


@draw_from.register
def _(q: Poisson, noise: Noise, hard: bool) -> Tensor:
    """The smallest k with P(x <= k) >= u for a uniform u, by bisection. For observations: no gradient passes."""
    u, rate = noise.uniform(q.rate).double(), q.rate.double()
    below, k = torch.full_like(rate, -1.0), (rate + 8 * rate.sqrt() + 30).ceil()
    while bool((k - below > 1).any()):
        middle = ((below + k) / 2).floor()
        enough = torch.special.gammaincc(middle + 1, rate) >= u  # P(x <= middle)
        below, k = torch.where(enough, below, middle), torch.where(enough, middle, k)
    return k.to(q.rate.dtype)
