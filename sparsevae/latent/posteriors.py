"""Posteriors: families over units, q(z|x)."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor
from torch.distributions import Distribution
from torch.nn.functional import hardtanh, softplus

from sparsevae.distributions.capped import Capped
from sparsevae.distributions.counts import Counts
from sparsevae.distributions.discrete_draws import TrainingDraw
from sparsevae.distributions.family import Family
from sparsevae.distributions.gaussian import Point, normal
from sparsevae.distributions.logit_beta import LogitBeta
from sparsevae.distributions.mixtures import spike_slab
from sparsevae.distributions.one_hot import OneHotCode
from sparsevae.distributions.spike_slab import SpikeSlab
from sparsevae.distributions.strip_counts import StripCounts
from sparsevae.sampling.gradients import AlwaysOn, Estimator, per_member

_SCALE_FLOOR = 1e-4  # keeps log q finite should a posterior's variance collapse
_LOG_VARIANCE_CAP = 20.0  # or explode: a deviation of 22,026 against the prior's 1


def _deviation(log_variance: Tensor) -> Tensor:
    """A posterior's standard deviation, within bounds that keep log q finite also far from the training data."""
    return torch.exp(0.5 * hardtanh(log_variance, -math.inf, _LOG_VARIANCE_CAP)) + _SCALE_FLOOR


class GaussianPosterior(Family):
    """raw = (loc, log-variance) -> N(loc, scale^2)."""

    parts: ClassVar[int] = 2

    def forward(self, raw: Tensor) -> Distribution:
        loc, log_variance = raw.chunk(2, -1)
        return normal(loc, _deviation(log_variance))


class PointPosterior(Family):
    """raw = loc -> the point itself: an autoencoder's code."""

    density: ClassVar[bool] = False

    def forward(self, raw: Tensor) -> Distribution:
        return Point(raw)


class SpikeSlabPosterior(Family):
    """raw = (loc, log-variance, gate logits) -> SpikeSlab, relaxed through `gate`."""

    parts: ClassVar[int] = 3
    sparse: ClassVar[bool] = True

    def __init__(self, gate: Estimator) -> None:
        super().__init__()
        self.gate = gate

    def warmth(self) -> Tensor | None:
        """How much of the slab a training draw sees; None: all of it."""
        return None

    def forward(self, raw: Tensor) -> Distribution:
        loc, log_variance, logits = raw.chunk(3, -1)
        logits, scale = self.gate.distribution_logits(logits), _deviation(log_variance)
        return SpikeSlab(logits, loc, scale, self.gate, validate_args=False, warmth=self.warmth())


class WarmSpikeSlabPosterior(SpikeSlabPosterior):
    """The same, whose training draws see only part of the slab: the spike warm-up of VSC's UAI version.

    The knob `slab_warmup` (the papers' lambda) runs from 0 to 1: gates learn first, on noise; values come later.
    """

    knobs: ClassVar[tuple[str, ...]] = ("slab_warmup",)
    slab_warmup: Tensor

    def __init__(self, gate: Estimator) -> None:
        super().__init__(gate)
        self.register_buffer("slab_warmup", torch.ones(()), persistent=False)

    def warmth(self) -> Tensor | None:
        return per_member(self.slab_warmup)


class SlabPosterior(Family):
    """raw = (loc, log-variance) -> SpikeSlab that is never off: the posterior that goes with alpha = 1."""

    parts: ClassVar[int] = 2
    sparse: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__()
        self.gate = AlwaysOn()

    def forward(self, raw: Tensor) -> Distribution:
        loc, log_variance = raw.chunk(2, -1)
        scale = _deviation(log_variance)
        return SpikeSlab(torch.full_like(loc, torch.inf), loc, scale, self.gate, validate_args=False)


class DiscretePosterior(Family):
    """A code of whole numbers: the `size` that its law has (a cap, or units in a group) and how training draws it."""

    discrete: ClassVar[bool] = True
    sparse: ClassVar[bool] = True

    def __init__(self, size: int, draw: TrainingDraw) -> None:
        super().__init__()
        self.size, self.draw = size, draw

    def largest(self, n: int) -> Tensor | None:
        return torch.ones(n)


class CountsPosterior(DiscretePosterior):
    """raw = (feature logits, gate logit) -> Counts: `size` draws, each of them off or one of n features.

    The codes of a `binary` one say which features there are, not how often.
    """

    def __init__(self, size: int, draw: TrainingDraw, *, binary: bool = False) -> None:
        super().__init__(size, draw)
        self.binary = binary

    def code(self, mode: Tensor) -> Tensor:
        return mode.clamp_max(1) if self.binary else mode

    def width(self, n: int) -> int:
        return n + 1

    def largest(self, n: int) -> Tensor | None:
        return torch.full((n,), 1.0 if self.binary else float(self.size))

    def forward(self, raw: Tensor) -> Distribution:
        logits = self.draw.distribution_logits(raw)
        return Counts(logits[..., -1:], logits[..., :-1], self.size, self.draw)


class StripsPosterior(CountsPosterior):
    """raw = log p_ck, strip after strip -> StripCounts; `size` strips, one thing in each at most."""

    def width(self, n: int) -> int:
        return self.size * super().width(n)

    def forward(self, raw: Tensor) -> Distribution:
        return StripCounts(raw.unflatten(-1, (self.size, -1)), self.draw)


class CappedPosterior(DiscretePosterior):
    """raw = gate logits -> Capped: n gates of which at most `size` are on."""

    def forward(self, raw: Tensor) -> Distribution:
        return self.copies(raw, 1)

    def copies(self, raw: Tensor, n: int) -> Distribution:
        return Capped(self.draw.distribution_logits(raw), self.size, self.draw).copies(n)


class OneHotPosterior(DiscretePosterior):
    """raw = logits -> OneHotCode: groups of `size` units of which exactly one is on."""

    def forward(self, raw: Tensor) -> Distribution:
        return OneHotCode(self.draw.distribution_logits(raw), self.size, self.draw)


class HierarchicalPosterior(Family):
    r"""raw = (loc, s, a, b) -> the law of z given x, Beta gates averaged out; `gates` and `given` are its two steps.

    .. math:: \gamma_j \sim \mathrm{Beta}(a_j, b_j), \qquad
       z_j \mid \gamma_j \sim \gamma_j\,\delta_0 + (1 - \gamma_j)\,\mathcal N(\mu_j, \sigma_j^2)

    gamma is P(off), told by its logit. The law of z is linear in gamma, so averaging leaves E[gamma] in its place: a
    spike-and-slab with p_on = b / (a + b), exactly. With `spike` above 0 an off unit is N(0, spike^2) instead.
    Training takes `n_gamma` draws of gamma an item and `n_z` of z for each of them.
    """

    parts: ClassVar[int] = 4
    sparse: ClassVar[bool] = True

    def __init__(self, gate: Estimator, spike: float = 0.0, n_gamma: int = 1, n_z: int = 1) -> None:
        super().__init__()
        self.gate, self.spike = gate, spike
        self.repeats = n_gamma * n_z  # rows that an item takes, beside those that the gate asks for
        self.shared = n_z * gate.points  # rows with one gamma

    def gates(self, raw: Tensor) -> LogitBeta:
        """q(gamma|x): concentrations softplus + 1e-5, held within [.5, 100]; the gradient passes as if they were not.

        Below, draws would crowd at 0 and 1, above, nothing is left to learn.
        """
        free = softplus(raw[..., raw.shape[-1] // 2 :]) + 1e-5
        a, b = (free.detach().clamp(0.5, 100.0) + (free - free.detach())).chunk(2, -1)
        return LogitBeta(a, b, validate_args=False)

    def given(self, raw: Tensor, gamma: Tensor) -> Distribution:
        """q(z|gamma, x) for the logit of gamma, (..., J)."""
        loc, s = raw.chunk(4, -1)[:2]
        return spike_slab(-gamma, loc, softplus(s) + _SCALE_FLOOR, self.spike, self.gate)

    def forward(self, raw: Tensor) -> Distribution:
        return self.given(raw, self.gates(raw).mode)  # the mode of a logit is the logit of E[gamma]
