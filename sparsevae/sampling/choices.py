"""Discrete choices, bits or one-hot vectors: their logits, noise and draws, without gradients.

`Bits` has logits a (..., n) and values (..., n); `OneHots` has logits (..., n, C) and one-hot values (..., n, C). Both
take uniform noise of the shape of the logits. The estimators in `gradients` are written in terms of these classes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn.functional import log_softmax, one_hot, softplus

if TYPE_CHECKING:
    from sparsevae.sampling.gradients import Estimator

_CERTAIN = 1e4  # the logit of a bit that is always on; finite, so that 0 times it is 0


def switch(logits: Tensor, u: Tensor) -> Tensor:
    """The hard gate: True with probability p_on. `u` is uniform on the open interval (0, 1)."""
    return u > torch.sigmoid(-logits)


class Kind(Protocol):
    """The interface of a kind of discrete variable, as estimators use it."""

    name: ClassVar[str]
    event: ClassVar[int]  # dimensions of one choice: 0 for a bit, 1 for a one-hot vector

    def mean(self, logits: Tensor) -> Tensor:
        """E b, shaped like b."""

    def hard(self, logits: Tensor, u: Tensor) -> Tensor:
        """An exact draw, without a gradient."""

    def soft(self, logits: Tensor, u: Tensor, temperature: Tensor) -> Tensor:
        """The concrete relaxation of the same draw: its limit at temperature 0."""

    def log_prob(self, logits: Tensor, b: Tensor) -> Tensor:
        """log q(b) of each choice, (..., n)."""

    def inner(self, a: Tensor, b: Tensor) -> Tensor:
        """The inner product per choice, (..., n)."""

    def bits(self, logits: Tensor) -> Tensor:
        """Logits of independent bits that determine the choice, (..., n[, C])."""

    def from_bits(self, bits: Tensor) -> Tensor:
        """The choice determined by the bits."""


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
    """b ~ one-hot with P(b_c = 1) = softmax(a)_c, over the last dimension, drawn by the Gumbel-max trick."""

    name: ClassVar[str] = "one-hots"
    event: ClassVar[int] = 1

    def mean(self, logits: Tensor) -> Tensor:
        return torch.softmax(logits, -1)

    def _perturbed(self, logits: Tensor, u: Tensor) -> Tensor:
        """log pi + Gumbel noise: entry c is the largest with probability pi_c."""
        return log_softmax(logits, -1) - torch.log(-torch.log(u))

    def hard(self, logits: Tensor, u: Tensor) -> Tensor:
        chosen = self._perturbed(logits.detach(), u).argmax(-1)
        return one_hot(chosen, logits.shape[-1]).to(logits.dtype)

    def soft(self, logits: Tensor, u: Tensor, temperature: Tensor) -> Tensor:
        return torch.softmax(self._perturbed(logits, u) / temperature, -1)

    def log_prob(self, logits: Tensor, b: Tensor) -> Tensor:
        return (b * log_softmax(logits, -1)).sum(-1)

    def inner(self, a: Tensor, b: Tensor) -> Tensor:
        return (a * b).sum(-1)

    def bits(self, logits: Tensor) -> Tensor:
        """Stick breaking: bit c means "c, if no earlier one", with odds pi_c : pi_(c+1) + ... + pi_C; bit C is on."""
        later = torch.logcumsumexp(logits.flip(-1), -1).flip(-1)[..., 1:]
        return torch.cat([logits[..., :-1] - later, torch.full_like(logits[..., :1], _CERTAIN)], -1)

    def from_bits(self, bits: Tensor) -> Tensor:
        """The first bit that is on."""
        before = torch.cumsum(bits, -1) - bits
        return bits * (before == 0)


BITS, ONE_HOTS = Bits(), OneHots()


class Choice(NamedTuple):
    """The result of a training draw, which the draw stores on its distribution for the objective.

    `logits` (..., R, n[, C]) are those of R rows; `value`, of the same shape, is the value the model uses (a leaf if
    the estimator needs the gradient of the cost at it); `bits` are those of an antithetic pair; `roots` are the tensors
    of the distribution from which the logits are computed, new in each step.
    """

    estimator: Estimator
    kind: Kind
    logits: Tensor
    value: Tensor
    bits: tuple[Tensor, ...] = ()
    roots: tuple[Tensor, ...] = ()
