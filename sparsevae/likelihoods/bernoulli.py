"""Bernoulli pixels."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor
from torch.distributions import Bernoulli, Distribution, Independent

from sparsevae.likelihoods.base import Likelihood


class BernoulliData(Likelihood):
    """raw = logits -> Bernoulli pixels. On grey values in [0, 1] log_prob is a cross-entropy (erratum 33)."""

    discrete: ClassVar[bool] = True

    def forward(self, raw: Tensor) -> Distribution:
        return Independent(Bernoulli(logits=raw, validate_args=False), 1, validate_args=False)

    def check(self, low: float, high: float) -> str | None:
        if low < 0 or high > 1:
            return f'likelihood="bernoulli" needs values in [0, 1], got values from {low:g} to {high:g}'
        return None
