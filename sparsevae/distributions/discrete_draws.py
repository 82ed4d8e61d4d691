"""Draws of discrete codes: hard ones, and training draws by an estimator of `gradients` or by SDLGM's relaxation.

A training draw is (distribution, noise) -> value (..., R, K). It stores a `Choice` on the distribution, which the
objective reads.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn
from torch.distributions import Distribution
from torch.nn.functional import log_softmax

from sparsevae.sampling.choices import BITS, ONE_HOTS, Bits, Choice
from sparsevae.sampling.draw import draw_from
from sparsevae.sampling.gradients import Estimator, per_member
from sparsevae.sampling.noise import Noise

if TYPE_CHECKING:
    from sparsevae.distributions.capped import Capped
    from sparsevae.distributions.counts import Counts
    from sparsevae.distributions.one_hot import OneHotCode


class DiscreteCode(Distribution):
    """A distribution of whole numbers whose draws are functions of noise."""

    arg_constraints: ClassVar = {}
    choice: Choice | None = None  # of the last training draw, for the objective
    p_on: Any  # P(unit is on), (*batch, units)
    estimator: Any  # (self, noise) -> the training draw; None: there is none

    @property
    def expected(self) -> Tensor:
        """The expected number of units that are on, (*batch): the sum of p_on."""
        on: Tensor = self.p_on.sum(-1)
        return on

    def draw(self, noise: Noise, hard: bool) -> Tensor:
        """The draw as a function of its noise, (*batch, units): exact if `hard`, else by the estimator."""
        if hard:
            return self.hard_draw(noise)
        if self.estimator is None:
            raise ValueError(
                f"this {type(self).__name__} has no estimator, so it has no training draw: pass estimator=..., or "
                "draw with hard=True."
            )
        value: Tensor = self.estimator(self, noise)
        return value

    def hard_draw(self, noise: Noise) -> Tensor:
        """An exact draw, without a gradient."""
        raise NotImplementedError


@draw_from.register
def _(q: DiscreteCode, noise: Noise, hard: bool) -> Tensor:
    return q.draw(noise, hard)


class TrainingDraw(nn.Module):
    """(distribution, noise) -> value, by an estimator of `gradients` if there is one."""

    def __init__(self, estimator: Estimator | None = None) -> None:
        super().__init__()
        self.estimator = estimator or Estimator()

    def distribution_logits(self, logits: Tensor) -> Tensor:
        """The logits of the distribution, (*members, ...), from those of the encoder: by default the same."""
        return self.estimator.distribution_logits(logits)


class CountsDraw(TrainingDraw):
    """The sum of L0 one-hot choices among K features and "off", by any estimator for one-hots."""

    def forward(self, q: Counts, noise: Noise) -> Tensor:
        shape = (*q.batch_shape, q.cap, q.event_shape[0] + 1)
        logits = q.categories().unsqueeze(-2).expand(shape)
        u = noise.uniform(logits.new_empty((*q.batch_shape, shape[-2] * shape[-1]))).unflatten(-1, shape[-2:])
        q.choice = self.estimator.choose(ONE_HOTS, logits, u, (q.gate, q.features))
        return q.choice.value.sum(-2)[..., :-1]


class OneHotDraw(TrainingDraw):
    """One one-hot choice per group, by any estimator for one-hots."""

    def forward(self, q: OneHotCode, noise: Noise) -> Tensor:
        q.choice = self.estimator.choose(ONE_HOTS, *q.logits_and_noise(noise), (q.logits,))
        return q.choice.value.flatten(-2)


class _CappedGates(Bits):
    """The gates of a Capped as a kind of choice, with one joint distribution."""

    name: ClassVar[str] = "capped"

    def __init__(self, q: Capped, logits: Tensor) -> None:
        self.q, self.logits = q, logits

    def _with(self, logits: Tensor) -> Capped:
        """Capped with these logits: q itself, whose tree is already computed, if they are its own."""
        return self.q if logits is self.logits else type(self.q)(logits, self.q.cap)

    def mean(self, logits: Tensor) -> Tensor:
        return self._with(logits).mean

    def hard(self, logits: Tensor, u: Tensor) -> Tensor:
        n = logits.shape[-1]
        return self.q.through_gates(u[..., :n], u[..., n:])

    def soft(self, logits: Tensor, u: Tensor, temperature: Tensor) -> Tensor:
        """The relaxation of independent gates: where the limit does not bind, that of the hard draw."""
        return super().soft(logits, u[..., : logits.shape[-1]], temperature)

    def log_prob(self, logits: Tensor, b: Tensor) -> Tensor:
        return self._with(logits).log_prob(b).unsqueeze(-1)


class CappedDraw(TrainingDraw):
    """Gates of which at most L0 are on, by any estimator for "capped": hard values, never above the limit."""

    def forward(self, q: Capped, noise: Noise) -> Tensor:
        logits = q.logits.expand(*q.batch_shape, -1)
        if q.unconstrained:
            q.choice = self.estimator.choose(BITS, logits, noise.uniform(logits), (q.logits,))
        else:
            u = noise.uniform(logits.new_empty((*q.batch_shape, logits.shape[-1] + q.width)))
            q.choice = self.estimator.choose(_CappedGates(q, logits), logits, u, (q.logits,))
        return q.choice.value


class Temperature(nn.Module):
    """A temperature: a number that a schedule may set, or a parameter, with or without bounds.

    A parameter r gives the temperature low (high/low)^sigmoid(r), or e^r without bounds. It starts at temperature 1:
    e^r = -log(low) / log(high), or r = 0.
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
        initial = 0.0
        if bounds is not None:
            initial = math.log(-math.log(bounds[0]) / math.log(bounds[1]))  # high/low itself may overflow
        self.raw = nn.Parameter(torch.tensor(initial))

    def forward(self) -> Tensor:
        if self.raw is None:
            fixed: Tensor = getattr(self, self.name)
            return fixed
        if self.bounds is None:
            return self.raw.exp()
        low, high = (math.log(b) for b in self.bounds)
        return torch.exp(low + (high - low) * torch.sigmoid(self.raw))


class GatedConcrete(TrainingDraw):
    r"""The relaxation of SDLGM (equations 8 to 12): relaxed gates times relaxed features, summed over L0 draws.

    .. math:: z = \sum_{l \le L_0} \omega_l c_l, \quad \omega_l = \sigma((\mathrm{logit} \lambda + \xi_l) / \tau),
       \quad c_l = \mathrm{softmax}((\log \pi + g_l) / \tau_z)

    With unbounded learned temperatures the optimiser raises them until z is a nearly noiseless continuous code that
    the KL does not penalise: the relaxed objective is then no bound.
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
