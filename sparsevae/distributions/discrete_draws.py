"""How discrete codes are drawn in training: each law with an estimator of `gradients`, or SDLGM's own relaxation.

A training draw is (law, noise) -> value (..., R, K). It leaves what it chose on the law, where the objective finds it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import log_softmax

from sparsevae.sampling.choices import BITS, ONE_HOTS
from sparsevae.sampling.gradients import Estimator, per_member
from sparsevae.sampling.noise import Noise

if TYPE_CHECKING:
    from sparsevae.distributions.capped import Capped
    from sparsevae.distributions.counts import Counts
    from sparsevae.distributions.one_hot import OneHotCode


class TrainingDraw(nn.Module):
    """(law, noise) -> value. One that makes the law itself another than the encoder says changes its logits."""

    def distribution_logits(self, logits: Tensor) -> Tensor:
        """The logits of the law, (*members, ...), from those that an encoder gives."""
        return logits


class _Estimated(TrainingDraw):
    """By an estimator of `gradients`."""

    def __init__(self, estimator: Estimator) -> None:
        super().__init__()
        self.estimator = estimator

    def distribution_logits(self, logits: Tensor) -> Tensor:
        return self.estimator.distribution_logits(logits)


class CountsDraw(_Estimated):
    """L0 one-hot choices among K features and "off", by any estimator for one-hots; their sum is the code."""

    def forward(self, q: Counts, noise: Noise) -> Tensor:
        shape = (*q.batch_shape, q.cap, q.event_shape[0] + 1)
        logits = q.categories().unsqueeze(-2).expand(shape)
        u = noise.uniform(logits.new_empty((*q.batch_shape, shape[-2] * shape[-1]))).unflatten(-1, shape[-2:])
        q.choice = self.estimator.choose(ONE_HOTS, logits, u, (q.gate, q.features))
        return q.choice.value.sum(-2)[..., :-1]


class OneHotDraw(_Estimated):
    """Several one-hot choices side by side, by any estimator for one-hots."""

    def forward(self, q: OneHotCode, noise: Noise) -> Tensor:
        q.choice = self.estimator.choose(ONE_HOTS, *q._asked(noise), (q.logits,))
        return q.choice.value.flatten(-2)


class _CappedGates:
    """Gates under a limit, as a kind of choice: one law for all of them together."""

    name: ClassVar[str] = "capped"
    event: ClassVar[int] = 0

    def __init__(self, q: Capped, logits: Tensor) -> None:
        self.q, self.logits = q, logits

    def _with(self, logits: Tensor) -> Capped:
        """The law with these logits: the one at hand, whose tree is built, where they are its own."""
        return self.q if logits is self.logits else type(self.q)(logits, self.q.cap)

    def mean(self, logits: Tensor) -> Tensor:
        return self._with(logits).mean

    def hard(self, logits: Tensor, u: Tensor) -> Tensor:
        n = logits.shape[-1]
        return self.q.through_gates(u[..., :n], u[..., n:])

    def soft(self, logits: Tensor, u: Tensor, temperature: Tensor) -> Tensor:
        """The free gates' relaxation: where the limit does not bind it is the draw's own."""
        return BITS.soft(logits, u[..., : logits.shape[-1]], temperature)

    def log_prob(self, logits: Tensor, b: Tensor) -> Tensor:
        return self._with(logits).log_prob(b).unsqueeze(-1)

    def inner(self, a: Tensor, b: Tensor) -> Tensor:
        return a * b

    def bits(self, logits: Tensor) -> Tensor:
        raise NotImplementedError("gates under a limit are not independent bits.")

    from_bits = bits


class CappedDraw(_Estimated):
    """Gates of which at most L0 are on, by any estimator that takes them: hard values, never above the limit."""

    def forward(self, q: Capped, noise: Noise) -> Tensor:
        logits = q.logits.expand(*q.batch_shape, -1)
        if q.unconstrained:
            q.choice = self.estimator.choose(BITS, logits, noise.uniform(logits), (q.logits,))
        else:
            u = noise.uniform(logits.new_empty((*q.batch_shape, logits.shape[-1] + q.width)))
            q.choice = self.estimator.choose(_CappedGates(q, logits), logits, u, (q.logits,))
        return q.choice.value


class Temperature(nn.Module):
    """A temperature: a number that a schedule may drive, or one learned by gradient, within bounds or without.

    A learned one starts at 1 and is low (high/low)^sigmoid(r), or e^r without bounds. So r starts where e^r is
    -log(low) / log(high), or at 0.
    """

    def __init__(self, name: str, start: float | None, bounds: tuple[float, float] | None) -> None:
        super().__init__()
        self.name, self.bounds = name, bounds
        self.raw: nn.Parameter | None = None
        self.knobs: tuple[str, ...] = ()
        if start is not None:
            self.register_buffer(name, torch.tensor(float(start)), persistent=False)
            self.knobs = (name,)
            return
        place = 0.0  # of temperature 1
        if bounds is not None:
            place = math.log(-math.log(bounds[0]) / math.log(bounds[1]))  # high/low itself may be beyond all floats
        self.raw = nn.Parameter(torch.tensor(place))

    def forward(self) -> Tensor:
        if self.raw is None:
            fixed: Tensor = getattr(self, self.name)
            return fixed
        if self.bounds is None:
            return self.raw.exp()
        low, high = (math.log(b) for b in self.bounds)
        return torch.exp(low + (high - low) * torch.sigmoid(self.raw))


class GatedConcrete(TrainingDraw):
    r"""SDLGM's own relaxation (equations 8 to 12): relaxed gates times relaxed features, summed over L0 draws.

    .. math:: z = \sum_{l \le L_0} \omega_l c_l, \quad \omega_l = \sigma((\mathrm{logit} \lambda + \xi_l) / \tau),
       \quad c_l = \mathrm{softmax}((\log \pi + g_l) / \tau_z)

    With unbounded learned temperatures the optimiser raises them until z is a nearly noiseless continuous code that
    the KL does not charge: the relaxed objective then bounds nothing.
    """

    def __init__(self, tau: float | None, tau_z: float | None, bounds: tuple[float, float] | None) -> None:
        super().__init__()
        self.gates, self.features = Temperature("tau", tau, bounds), Temperature("tau_z", tau_z, bounds)

    def forward(self, q: Counts, noise: Noise) -> Tensor:
        shape = (*q.batch_shape, q.cap, q.event_shape[0])
        u = noise.uniform(q.features.new_empty((*q.batch_shape, q.cap)))
        v = noise.uniform(q.features.new_empty((*q.batch_shape, shape[-2] * shape[-1]))).unflatten(-1, shape[-2:])
        on = torch.sigmoid((q.gate + torch.logit(u)) / per_member(self.gates()))
        race = log_softmax(q.features, -1).unsqueeze(-2) - torch.log(-torch.log(v))
        features = torch.softmax(race / per_member(self.features(), 3), -1)
        return torch.einsum("...l,...lk->...k", on, features)
