r"""What a discrete code says of labels: the law of a 0/1 vector y, given q(z|x).

A label is there where its unit is on, z_k >= 1. With one of the exact laws nothing has to be drawn for it:

========== ==================================================================================================
marginals  every label for itself, by the exact P(z_k >= 1): Bernoulli
set        all labels together, by the exact P(these units are on, and no others)
relaxed    Bernoulli(min(1, z_k)) of a relaxed draw: a possible reading of SDLGM, which prints no likelihood
========== ==================================================================================================
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.distributions import Bernoulli, Distribution, Independent
from torch.nn.functional import log_softmax, logsigmoid

from sparsevae.distributions.capped import Capped
from sparsevae.distributions.counts import Counts
from sparsevae.distributions.polynomials import outside

_LEAST = 1e-6  # of a relaxed draw's probabilities: where min(1, z) is 1, an absent label would cost infinitely much
_NOTHING = -1e30  # log of a probability that counts for nothing; -inf would spoil gradients


def log_odds(q: Distribution) -> Tensor:
    """log P(z_k >= 1) - log P(z_k = 0) of every unit, (*batch, K)."""
    if isinstance(q, Counts):
        return _counts_odds(q)
    if isinstance(q, Capped):
        return _capped_odds(q)
    raise TypeError(f"labels are read off a Counts or a Capped, not off a {type(q).__name__}.")


def _counts_odds(q: Counts) -> Tensor:
    """P(z_k = 0) = (1 - lambda pi_k)^L0, in logs throughout.

    One feature at most has lambda pi > 1/2, and that may round to 1. Its 1 - lambda pi is what is left for "off" and
    for all other features, a sum of its own.
    """
    pi, gate = log_softmax(q.features, -1), logsigmoid(q.gate)
    on = gate + pi
    likely = on > -math.log(2)
    others = torch.logsumexp(pi.masked_fill(likely, _NOTHING), -1, keepdim=True)
    left = torch.logaddexp(logsigmoid(-q.gate), gate + others)
    never = q.cap * torch.where(likely, left, torch.log1p(-on.masked_fill(likely, -1.0).exp()))
    # log P(z_k >= 1) = log(1 - e^never); where that underflows the probability is L0 lambda pi_k.
    rare = never > -1e-20
    ever = torch.where(rare, math.log(q.cap) + on, torch.log(-torch.expm1(never.masked_fill(rare, -1.0))))
    return (ever - never).expand(*q.batch_shape, -1)


def _capped_odds(q: Capped) -> Tensor:
    """The gate's own shifted logit, and what all others say: log of their weight if it is on, less if it is off."""
    if q.unconstrained:
        return q.logits.expand(*q.batch_shape, -1)
    others = outside(q._levels, q._weights)[:, : q.logits.shape[-1]].movedim(1, -1)
    off, on = others.clamp_min(torch.finfo(others.dtype).tiny).log()
    odds: Tensor = q.shifted + on - off
    return odds.expand(*q.batch_shape, -1)


class LabelSet(Distribution):
    """The exact law of which units are on: log_prob of a 0/1 vector, (..., K) -> (...); -inf for too many labels."""

    arg_constraints: ClassVar = {}

    def __init__(self, q: Distribution) -> None:
        if not isinstance(q, (Counts, Capped)):
            raise TypeError(f"sets of labels are read off a Counts or a Capped, not off a {type(q).__name__}.")
        self.q: Any = q
        super().__init__(q.batch_shape, q.event_shape, validate_args=False)

    def log_prob(self, value: Tensor) -> Tensor:
        found: Tensor = self.q.set_log_prob(value) if isinstance(self.q, Counts) else self.q.log_prob(value)
        return found


def _independent(**given: Tensor) -> Distribution:
    return Independent(Bernoulli(**given, validate_args=False), 1, validate_args=False)


def _marginals(q: Distribution, z: Tensor) -> Distribution:
    return _independent(logits=log_odds(q))


def _set(q: Distribution, z: Tensor) -> Distribution:
    return LabelSet(q)


def _relaxed(q: Distribution, z: Tensor) -> Distribution:
    return _independent(probs=z.clamp(_LEAST, 1 - _LEAST))


LABEL_LIKELIHOODS: dict[str, Callable[[Distribution, Tensor], Distribution]] = {
    "marginals": _marginals,
    "set": _set,
    "relaxed": _relaxed,
}
"""By name: from q(z|x) and a draw of it, (..., K), to the law of labels."""
