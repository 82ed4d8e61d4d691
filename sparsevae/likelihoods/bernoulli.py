"""Bernoulli pixels."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import torch
from torch import Tensor
from torch.distributions import Bernoulli, Distribution, Independent

from sparsevae.inputs.scaling import Scaling
from sparsevae.likelihoods.base import First, Likelihood


class BernoulliData(Likelihood):
    """raw = logits -> Bernoulli pixels. For grey values in [0, 1] log_prob is minus a cross-entropy (erratum 33)."""

    name = "bernoulli"
    startable: ClassVar[bool] = True
    discrete: ClassVar[bool] = True
    support = (0.0, 1.0)

    def forward(self, raw: Tensor) -> Distribution:
        return Independent(Bernoulli(logits=raw, validate_args=False), 1, validate_args=False)

    def begin(self, x: Tensor) -> First:
        """Logits of the mean row; between 0 and 1 a logit rises by 4 per unit of x, and more near the ends."""
        return First(torch.logit(x.mean(0).clamp(0.01, 0.99)), torch.full_like(x[0], 4.0))

    def meaning(self, scaling: Scaling, blocks: Iterable[Tensor]) -> str:
        found = super().meaning(scaling, blocks)
        binary = found != "bound" or all(bool(((x == 0) | (x == 1)).all()) for x in blocks)
        return found if binary else "cross-entropy"
