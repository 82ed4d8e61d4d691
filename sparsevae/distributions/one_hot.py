"""OneHotCode: n groups of C units, of which exactly one per group is on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints
from torch.nn.functional import log_softmax, one_hot

from sparsevae.distributions.discrete_draws import DiscreteCode
from sparsevae.distributions.gaussian import times
from sparsevae.distributions.kl import pair
from sparsevae.sampling.choices import ONE_HOTS
from sparsevae.sampling.noise import Noise


class OneHotCode(DiscreteCode):
    """n independent categorical variables with C values, as one vector of J = n C zeros and ones.

    Parameters
    ----------
    logits : Tensor (..., J)
        Group after group, each up to a constant. `-inf`: the unit is never on.
    categories : int
        C; divides J.
    estimator : callable, optional
        (distribution, noise) -> (..., J): the training draw, with a gradient. If None, only hard draws are defined.
    """

    arg_constraints: ClassVar = {"logits": constraints.independent(constraints.real, 1)}
    support = constraints.independent(constraints.boolean, 1)

    def __init__(
        self,
        logits: Tensor,
        categories: int,
        estimator: Callable[[OneHotCode, Noise], Tensor] | None = None,
        *,
        batch_shape: torch.Size | None = None,
    ) -> None:
        self.logits = logits
        self.categories = categories
        self.estimator = estimator
        super().__init__(batch_shape or logits.shape[:-1], logits.shape[-1:], validate_args=False)

    def expand(self, batch_shape: Any, _instance: Distribution | None = None) -> OneHotCode:
        return OneHotCode(self.logits, self.categories, self.estimator, batch_shape=torch.Size(batch_shape))

    @property
    def groups(self) -> Tensor:
        """log-probabilities, (..., n, C)."""
        return log_softmax(self.logits.unflatten(-1, (-1, self.categories)), -1)

    @property
    def p_on(self) -> Tensor:
        """P(unit is on), (*batch, J)."""
        return self.groups.exp().flatten(-2).expand(self._extended_shape())

    @property
    def mean(self) -> Tensor:
        return self.p_on

    @property
    def variance(self) -> Tensor:
        return self.p_on * (1 - self.p_on)

    @property
    def ranking(self) -> Tensor:
        """What `codes.capped` ranks units by, largest first, (*batch, J): the log-probabilities."""
        return self.groups.flatten(-2).expand(self._extended_shape())

    @property
    def mode(self) -> Tensor:
        """The most probable value of every group."""
        best = one_hot(self.groups.argmax(-1), self.categories).to(self.logits.dtype)
        return best.flatten(-2).expand(self._extended_shape())

    def log_prob(self, value: Tensor) -> Tensor:
        """log q(z), (*batch); -inf unless exactly one unit per group is on."""
        groups = value.unflatten(-1, (-1, self.categories))
        inside = ((groups == 0) | (groups == 1)).all(-1) & (groups.sum(-1) == 1)
        log_q = times(groups, self.groups).sum(-1)
        return torch.where(inside, log_q, -torch.inf).sum(-1)

    def entropy(self) -> Tensor:
        return -times(self.groups.exp(), self.groups).sum((-2, -1)).expand(self.batch_shape)

    def hard_draw(self, noise: Noise) -> Tensor:
        return ONE_HOTS.hard(*self.logits_and_noise(noise)).flatten(-2)

    def logits_and_noise(self, noise: Noise) -> tuple[Tensor, Tensor]:
        """Logits and uniform noise, both (*batch, n, C)."""
        groups = (self.event_shape[0] // self.categories, self.categories)
        logits = self.logits.expand(self._extended_shape())
        return logits.unflatten(-1, groups), noise.uniform(logits).unflatten(-1, groups)


@pair(OneHotCode, OneHotCode)
def _one_hots(q: OneHotCode, p: OneHotCode) -> Tensor:
    """q (log q - log p) per unit, (..., B, J): the sum over a group is its KL."""
    log_q, log_p = q.groups, p.groups
    return times(log_q.exp(), log_q - log_p).flatten(-2)
