"""Posteriors q(z|x): families over units."""

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
from sparsevae.distributions.family import Family, Matched, Reading
from sparsevae.distributions.gaussian import Point, normal
from sparsevae.distributions.logit_beta import LogitBeta
from sparsevae.distributions.mixtures import spike_slab
from sparsevae.distributions.one_hot import OneHotCode
from sparsevae.distributions.spike_slab import LogNormalSpikeSlab, SpikeSlab
from sparsevae.distributions.strip_counts import StripCounts
from sparsevae.sampling.gradients import AlwaysOn, Estimator, per_member

_SCALE_FLOOR = 1e-4  # keeps log q finite if the variance of a posterior goes to 0
_LOG_VARIANCE_CAP = 20.0  # the same if it grows: a standard deviation of 22,026, the prior's being 1
_LARGEST = 1e6  # of a log-normal slab


def _deviation(log_variance: Tensor) -> Tensor:
    """The standard deviation of a posterior, bounded so that log q is finite also far from the training data."""
    return torch.exp(0.5 * hardtanh(log_variance, -math.inf, _LOG_VARIANCE_CAP)) + _SCALE_FLOOR


class GaussianPosterior(Family):
    """raw = (loc, log-variance) -> N(loc, scale^2)."""

    parts: ClassVar[int] = 2

    def forward(self, raw: Tensor) -> Distribution:
        loc, log_variance = raw.chunk(2, -1)
        return normal(loc, _deviation(log_variance))


class PointPosterior(Family):
    """raw = loc -> Point(loc): the code of an autoencoder."""

    density: ClassVar[bool] = False

    def forward(self, raw: Tensor) -> Distribution:
        return Point(raw)


class SpikeSlabPosterior(Family):
    """raw = (loc, log-variance, gate logits) -> SpikeSlab, relaxed through `gate`."""

    parts: ClassVar[int] = 3
    sparse: ClassVar[bool] = True
    startable: ClassVar[bool] = True

    def __init__(self, gate: Estimator) -> None:
        super().__init__()
        self.gate = gate

    def warmth(self) -> Tensor | None:
        """The share of the slab in a training draw, as in `SpikeSlab.draw`; None: 1."""
        return None

    def forward(self, raw: Tensor) -> Distribution:
        loc, log_variance, logits = raw.chunk(3, -1)
        logits, scale = self.gate.distribution_logits(logits), _deviation(log_variance)
        return SpikeSlab(logits, loc, scale, self.gate, validate_args=False, warmth=self.warmth())

    def matched(self, found: Matched) -> Reading:
        """Slabs begin with a variance of e^-2: small beside the prior's, since each unit sees its atom well."""
        zeros, narrow = torch.zeros_like(found.value), torch.full_like(found.size, -2.0)
        weight = torch.cat([found.value, zeros, found.gate])
        return Reading(weight, torch.cat([torch.zeros_like(found.size), narrow, -found.threshold]))


class LogNormalPosterior(SpikeSlabPosterior):
    """raw = (r, log-variance of log z, gate logits) -> LogNormalSpikeSlab with log-means log softplus(r).

    So slabs are near r where r is above 1, and a linear encoder begins as a matched filter here too. The variance of
    log z is at most e^2, so that means are finite.
    """

    signed: ClassVar[bool] = False

    def forward(self, raw: Tensor) -> Distribution:
        r, log_variance, logits = raw.chunk(3, -1)
        log_loc = torch.log(softplus(r.clamp_max(_LARGEST)) + _SCALE_FLOOR)
        scale = _deviation(log_variance.clamp_max(2.0))
        return LogNormalSpikeSlab(self.gate.distribution_logits(logits), log_loc, scale, self.gate, validate_args=False)


class WarmSpikeSlabPosterior(SpikeSlabPosterior):
    """SpikeSlabPosterior with the spike warm-up of VSC's UAI version: a share of the slab in training draws.

    The knob `slab_warmup` (the papers' lambda) goes from 0 to 1: at first slabs are noise and only gates carry
    information on x.
    """

    knobs: ClassVar[tuple[str, ...]] = ("slab_warmup",)
    slab_warmup: Tensor

    def __init__(self, gate: Estimator) -> None:
        super().__init__(gate)
        self.register_buffer("slab_warmup", torch.ones(()), persistent=False)

    def warmth(self) -> Tensor | None:
        return per_member(self.slab_warmup)


class SlabPosterior(Family):
    """raw = (loc, log-variance) -> SpikeSlab whose units are never off: the posterior for alpha = 1."""

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
    """A code of whole numbers, with the `size` of its distribution (cap, or units per group) and its training draw."""

    discrete: ClassVar[bool] = True
    sparse: ClassVar[bool] = True

    def __init__(self, size: int, draw: TrainingDraw) -> None:
        super().__init__()
        self.size, self.draw = size, draw

    def largest(self, n: int) -> Tensor | None:
        return torch.ones(n)


class CountsPosterior(DiscretePosterior):
    """raw = (feature logits, gate logit) -> Counts: `size` draws, each of them off or one of n features.

    With `binary`, codes are 1 where a count is 1 or more.
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
    """raw = log p_ck, strip by strip -> StripCounts with `size` strips, each showing at most one object."""

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
    r"""raw = (loc, s, a, b) -> q(z|x) with Beta gates integrated out; `gates` is q(gamma|x), `given` q(z|gamma, x).

    .. math:: \gamma_j \sim \mathrm{Beta}(a_j, b_j), \qquad
       z_j \mid \gamma_j \sim \gamma_j\,\delta_0 + (1 - \gamma_j)\,\mathcal N(\mu_j, \sigma_j^2)

    gamma is P(off), represented by its logit. The density of z is linear in gamma, so integrating over gamma replaces
    it by E[gamma]: q(z|x) is exactly a spike-and-slab with p_on = b / (a + b). With `spike` above 0 a unit that is off
    is N(0, spike^2) instead. Training takes `n_gamma` draws of gamma per item and `n_z` of z for each of them.
    """

    parts: ClassVar[int] = 4
    sparse: ClassVar[bool] = True
    startable: ClassVar[bool] = True

    def __init__(self, gate: Estimator, spike: float = 0.0, n_gamma: int = 1, n_z: int = 1) -> None:
        super().__init__()
        self.gate, self.spike = gate, spike
        self.repeats = n_gamma * n_z  # rows per item, times those of the gate's estimator
        self.shared = n_z * gate.points  # rows that share one gamma

    def gates(self, raw: Tensor) -> LogitBeta:
        """q(gamma|x): concentrations softplus + 1e-5, clamped to [.5, 100] with a straight-through gradient.

        Below .5 draws concentrate at 0 and 1; above 100 the distribution hardly changes.
        """
        unclamped = softplus(raw[..., raw.shape[-1] // 2 :]) + 1e-5
        a, b = (unclamped.detach().clamp(0.5, 100.0) + (unclamped - unclamped.detach())).chunk(2, -1)
        return LogitBeta(a, b, validate_args=False)

    def matched(self, found: Matched) -> Reading:
        """Slabs begin narrow, as in `SpikeSlabPosterior`; at the threshold of a gate a = b = 1.

        a falls and b rises with the gate logit l, by softplus(.54 -+ l / 2): P(on) follows l within the clamp.
        """
        zeros, narrow = torch.zeros_like(found.value), torch.full_like(found.size, math.log(math.expm1(math.exp(-1))))
        half, level = 0.5 * found.gate, 0.5 * found.threshold
        one = math.log(math.expm1(1.0))
        weight = torch.cat([found.value, zeros, -half, half])
        return Reading(weight, torch.cat([torch.zeros_like(narrow), narrow, one + level, one - level]))

    def given(self, raw: Tensor, gamma: Tensor) -> Distribution:
        """q(z|gamma, x) for the logit of gamma, (..., J)."""
        loc, s = raw.chunk(4, -1)[:2]
        return spike_slab(-gamma, loc, softplus(s) + _SCALE_FLOOR, self.spike, self.gate)

    def forward(self, raw: Tensor) -> Distribution:
        return self.given(raw, self.gates(raw).mode)  # the mode of a logit is the logit of E[gamma]
