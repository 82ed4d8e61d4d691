"""Discrete choices, a bit or one of several: their logits, noise and draws, before any question of gradients.

`Bits` has logits a (..., n) and values (..., n); `OneHots` has logits (..., n, C) and one-hot values (..., n, C). Both
take uniform noise shaped like the logits. Every estimator in `gradients` is written once, in these terms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn.functional import log_softmax, one_hot, softplus

if TYPE_CHECKING:
    from sparsevae.sampling.gradients import Estimator

_CERTAIN = 1e4  # a logit whose bit is always on, yet may be multiplied by 0


def switch(logits: Tensor, u: Tensor) -> Tensor:
    """The hard gate: True with probability p_on. `u` is uniform on the open interval (0, 1)."""
    return u > torch.sigmoid(-logits)


class Kind(Protocol):
    """What an estimator needs to know of a discrete variable."""

    name: ClassVar[str]
    event: ClassVar[int]  # dimensions of one choice: 0 for a bit, 1 for a one-hot vector

    def mean(self, logits: Tensor) -> Tensor:
        """E b, shaped like b."""

    def hard(self, logits: Tensor, u: Tensor) -> Tensor:
        """A draw, exactly of the law, without a gradient."""

    def soft(self, logits: Tensor, u: Tensor, temperature: Tensor) -> Tensor:
        """The concrete relaxation of the same draw: the two agree as the temperature falls."""

    def log_prob(self, logits: Tensor, b: Tensor) -> Tensor:
        """log q(b) of each choice, (..., n)."""

    def inner(self, a: Tensor, b: Tensor) -> Tensor:
        """The product that belongs to one choice, (..., n)."""

    def bits(self, logits: Tensor) -> Tensor:
        """Logits of independent bits that make the choice, (..., n[, C])."""

    def from_bits(self, bits: Tensor) -> Tensor:
        """The choice that those bits make."""


class Bits:
    """b ~ Bernoulli(sigmoid(a)), elementwise."""

    name: ClassVar[str] = "bits"
    event: ClassVar[int] = 0

    def mean(self, logits: Tensor) -> Tensor:
        return torch.sigmoid(logits)

    def hard(self, logits: Tensor, u: Tensor) -> Tensor:
        return switch(logits, u).to(logits.dtype)

    def soft(self, logits: Tensor, u: Tensor, temperature: Tensor) -> Tensor:
        return torch.sigmoid((logits + torch.logit(u)) / temperature)

    def log_prob(self, logits: Tensor, b: Tensor) -> Tensor:
        return b * logits - softplus(logits)

    def inner(self, a: Tensor, b: Tensor) -> Tensor:
        return a * b

    def bits(self, logits: Tensor) -> Tensor:
        return logits

    def from_bits(self, bits: Tensor) -> Tensor:
        return bits


class OneHots:
    """b ~ one-hot with P(b_c = 1) = softmax(a)_c, over the last dimension; the noise makes Gumbel variables."""

    name: ClassVar[str] = "one-hots"
    event: ClassVar[int] = 1

    def mean(self, logits: Tensor) -> Tensor:
        return torch.softmax(logits, -1)

    def _race(self, logits: Tensor, u: Tensor) -> Tensor:
        """log pi + Gumbel noise: the largest wins, with probability pi."""
        return log_softmax(logits, -1) - torch.log(-torch.log(u))

    def hard(self, logits: Tensor, u: Tensor) -> Tensor:
        winner = self._race(logits.detach(), u).argmax(-1)
        return one_hot(winner, logits.shape[-1]).to(logits.dtype)

    def soft(self, logits: Tensor, u: Tensor, temperature: Tensor) -> Tensor:
        return torch.softmax(self._race(logits, u) / temperature, -1)

    def log_prob(self, logits: Tensor, b: Tensor) -> Tensor:
        return (b * log_softmax(logits, -1)).sum(-1)

    def inner(self, a: Tensor, b: Tensor) -> Tensor:
        return (a * b).sum(-1)

    def bits(self, logits: Tensor) -> Tensor:
        """Stick breaking: bit c says "c, if none before it", with odds pi_c : pi_(c+1) + ... + pi_C; the last is on."""
        later = torch.logcumsumexp(logits.flip(-1), -1).flip(-1)[..., 1:]
        return torch.cat([logits[..., :-1] - later, torch.full_like(logits[..., :1], _CERTAIN)], -1)

    def from_bits(self, bits: Tensor) -> Tensor:
        """The first bit that is on."""
        before = torch.cumsum(bits, -1) - bits
        return bits * (before == 0)


BITS, ONE_HOTS = Bits(), OneHots()


class Choice(NamedTuple):
    """What a training draw chose: left by the draw on its posterior, found by the objective.

    `logits` (..., R, n[, C]) belong to R rows; `value`, of the same shape, is what the model went on with (a leaf where
    the estimator asks for the cost's slope); `bits` what an antithetic pair is made of; `roots` the law's own tensors,
    made anew in every step, of which the logits are made.
    """

    estimator: Estimator
    kind: Kind
    logits: Tensor
    value: Tensor
    bits: tuple[Tensor, ...] = ()
    roots: tuple[Tensor, ...] = ()
