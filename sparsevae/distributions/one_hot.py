"""A code of several one-hot choices side by side: n groups of C units, exactly one of each group on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints
from torch.nn.functional import log_softmax, one_hot

from sparsevae.distributions.gaussian import times
from sparsevae.distributions.kl import pair
from sparsevae.sampling.choices import ONE_HOTS, Choice
from sparsevae.sampling.draw import draw_from
from sparsevae.sampling.noise import Noise


class OneHotCode(Distribution):
    """n independent categorical variables with C values, as one vector of J = n C zeros and ones.

    Parameters
    ----------
    logits : Tensor (..., J)
        Group after group, up to a constant within each. `-inf` is a unit that is never on.
    categories : int
        C; divides J.
    draw : callable, optional
        (law, noise) -> (..., J): the draw that training takes. Without it only hard draws are defined.
    """

    arg_constraints: ClassVar = {"logits": constraints.independent(constraints.real, 1)}
    support = constraints.independent(constraints.boolean, 1)
    choice: Choice | None = None  # what the last training draw chose, for the objective

    def __init__(
        self,
        logits: Tensor,
        categories: int,
        draw: Callable[[OneHotCode, Noise], Tensor] | None = None,
        *,
        batch_shape: torch.Size | None = None,
    ) -> None:
        if logits.shape[-1] % categories:
            raise ValueError(f"{logits.shape[-1]} units are no groups of {categories}.")
        self.logits, self.categories, self.estimator = logits, categories, draw
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
        """Which units `codes.capped` keeps first, (*batch, J): those of the surest groups."""
        return self.groups.flatten(-2).expand(self._extended_shape())

    @property
    def mode(self) -> Tensor:
        """The likeliest value of every group."""
        best = one_hot(self.groups.argmax(-1), self.categories).to(self.logits.dtype)
        return best.flatten(-2).expand(self._extended_shape())

    def log_prob(self, value: Tensor) -> Tensor:
        """-inf where a group has not exactly one unit on."""
        groups = value.unflatten(-1, (-1, self.categories))
        inside = ((groups == 0) | (groups == 1)).all(-1) & (groups.sum(-1) == 1)
        log_q = times(groups, self.groups).sum(-1)
        return torch.where(inside, log_q, -torch.inf).sum(-1)

    def entropy(self) -> Tensor:
        return -times(self.groups.exp(), self.groups).sum((-2, -1)).expand(self.batch_shape)

    def draw(self, noise: Noise, hard: bool) -> Tensor:
        """The draw as a function of its noise, (*batch, J)."""
        if not hard:
            if self.estimator is None:
                raise ValueError("this OneHotCode has no training draw: give it one, or draw with hard=True.")
            return self.estimator(self, noise)
        logits, u = self._asked(noise)
        return ONE_HOTS.hard(logits, u).flatten(-2)

    def _asked(self, noise: Noise) -> tuple[Tensor, Tensor]:
        """Logits and uniform noise, both (*batch, n, C)."""
        groups = (self.event_shape[0] // self.categories, self.categories)
        logits = self.logits.expand(self._extended_shape())
        return logits.unflatten(-1, groups), noise.uniform(logits).unflatten(-1, groups)


@pair(OneHotCode, OneHotCode)
def _one_hots(q: OneHotCode, p: OneHotCode) -> Tensor:
    """sum over values of q (log q - log p), shared out to the units, (..., B, J): a group's sum is its KL."""
    log_q, log_p = q.groups, p.groups
    return times(log_q.exp(), log_q - log_p).flatten(-2)


@draw_from.register
def _(q: OneHotCode, noise: Noise, hard: bool) -> Tensor:
    return q.draw(noise, hard)
