r"""Likelihoods of labels: the distribution of a 0/1 vector y, given a discrete posterior q(z|x).

Label k is present if unit k is on, z_k >= 1. "marginals" and "set" are exact and need no draw of z:

========== ==================================================================================================
marginals  independent Bernoulli labels with the exact P(z_k >= 1)
set        all labels jointly: the exact P(these units are on, and no others)
relaxed    Bernoulli(min(1, z_k)) of a relaxed draw: one reading of SDLGM, whose paper gives no likelihood
========== ==================================================================================================
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from torch import Tensor
from torch.distributions import Bernoulli, Distribution, Independent

from sparsevae.distributions.capped import Capped
from sparsevae.distributions.counts import Counts

_LEAST = 1e-6  # bound on relaxed probabilities: at min(1, z) = 1 an absent label would have log-probability -inf


def log_odds(q: Distribution) -> Tensor:
    """log P(z_k >= 1) - log P(z_k = 0) of each unit, (*batch, K)."""
    return _checked(q).log_odds


def _checked(q: Distribution) -> Counts | Capped:
    if not isinstance(q, (Counts, Capped)):
        raise TypeError(
            f"a likelihood of labels needs a posterior that is a Counts or a Capped, got a {type(q).__name__}."
        )
    return q


class LabelSet(Distribution):
    """The exact distribution of the set of units that are on, as 0/1 vectors, (..., K).

    `log_prob` is -inf for more labels than q allows.
    """

    arg_constraints: ClassVar = {}

    def __init__(self, q: Distribution) -> None:
        self.q = _checked(q)
        super().__init__(q.batch_shape, q.event_shape, validate_args=False)

    def log_prob(self, value: Tensor) -> Tensor:
        return self.q.set_log_prob(value)


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
"""By name: (q(z|x), a draw of it (..., K)) -> the distribution of labels."""
