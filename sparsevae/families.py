"""Families: from a network's raw output to a distribution.

A family knows how many raw numbers it needs for `n` dimensions (`width(n)`) and turns (..., width) into a
Distribution with event_shape (n,). Posteriors are families over units; likelihoods are families over data, and also
know which data they can describe (`check`). A new kind of data (counts, categories, mixed columns) is one more
class here and one more line in `LIKELIHOODS`, which names it, and in `likelihood`, which builds it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.distributions import Bernoulli, Distribution, Independent, Laplace
from torch.nn.functional import hardtanh, softplus

from sparsevae.beta import LogitBeta
from sparsevae.capped import Capped
from sparsevae.counts import Counts
from sparsevae.distributions import Point, SpikeSlab, normal, normal_by_variance
from sparsevae.draw import blocks
from sparsevae.gradients import AlwaysOn, Estimator, per_member
from sparsevae.mixtures import spike_slab
from sparsevae.one_hot import OneHotCode
from sparsevae.training_draws import TrainingDraw

__all__ = [
    "LIKELIHOODS",
    "SPARSE",
    "BernoulliData",
    "CappedPosterior",
    "CountsPosterior",
    "DiscretePosterior",
    "Family",
    "FixedGaussianData",
    "GaussianData",
    "GaussianPosterior",
    "HierarchicalPosterior",
    "LaplaceData",
    "Likelihood",
    "OneHotPosterior",
    "PointPosterior",
    "SlabPosterior",
    "SpikeSlabData",
    "SpikeSlabPosterior",
    "WarmSpikeSlabPosterior",
    "wide",
]

_SCALE_FLOOR = 1e-4  # keeps log q finite should a posterior's variance collapse
_LOG_VARIANCE_CAP = 20.0  # or explode: a deviation of 22,026 against the prior's 1


def _deviation(log_variance: Tensor) -> Tensor:
    """A posterior's standard deviation, within bounds that keep log q finite also far from the training data."""
    return torch.exp(0.5 * hardtanh(log_variance, -math.inf, _LOG_VARIANCE_CAP)) + _SCALE_FLOOR


class Family(nn.Module):
    """raw (..., width(n)) -> Distribution with event_shape (n,)."""

    parts: ClassVar[int] = 1
    density: ClassVar[bool] = True  # whether what it gives has one: without it there is no bound
    discrete: ClassVar[bool] = False  # whether its values are whole numbers: training then relaxes or scores them

    def width(self, n: int) -> int:
        return self.parts * n

    def largest(self, n: int) -> Tensor | None:
        """The largest value of each of n units, (n,), where values are whole numbers from 0; None for real values."""
        return None

    def forward(self, raw: Tensor) -> Distribution:
        raise NotImplementedError

    def copies(self, raw: Tensor, n: int) -> Distribution:
        """The laws of n copies of every row, in blocks (n, B); what is costly to build they share."""
        law: Distribution = self(blocks(raw, n))
        return law


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

    def __init__(self, gate: Estimator) -> None:
        super().__init__()
        self.gate = gate

    def warmth(self) -> Tensor | None:
        """How much of the slab a training draw sees; None: all of it."""
        return None

    def forward(self, raw: Tensor) -> Distribution:
        loc, log_variance, logits = raw.chunk(3, -1)
        logits, scale = self.gate.law_logits(logits), _deviation(log_variance)
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

    def __init__(self, size: int, draw: TrainingDraw) -> None:
        super().__init__()
        self.size, self.draw = size, draw

    def largest(self, n: int) -> Tensor | None:
        return torch.ones(n)


class CountsPosterior(DiscretePosterior):
    """raw = (feature logits, gate logit) -> Counts: `size` draws, each of them off or one of n features."""

    def width(self, n: int) -> int:
        return n + 1

    def largest(self, n: int) -> Tensor | None:
        return torch.full((n,), float(self.size))

    def forward(self, raw: Tensor) -> Distribution:
        logits = self.draw.law_logits(raw)
        return Counts(logits[..., -1:], logits[..., :-1], self.size, self.draw)


class CappedPosterior(DiscretePosterior):
    """raw = gate logits -> Capped: n gates of which at most `size` are on."""

    def forward(self, raw: Tensor) -> Distribution:
        return self.copies(raw, 1)

    def copies(self, raw: Tensor, n: int) -> Distribution:
        return Capped(self.draw.law_logits(raw), self.size, self.draw).copies(n)


class OneHotPosterior(DiscretePosterior):
    """raw = logits -> OneHotCode: groups of `size` units of which exactly one is on."""

    def forward(self, raw: Tensor) -> Distribution:
        return OneHotCode(self.draw.law_logits(raw), self.size, self.draw)


class HierarchicalPosterior(Family):
    r"""raw = (loc, s, a, b) -> the law of z given x, Beta gates averaged out; `gates` and `given` are its two steps.

    .. math:: \gamma_j \sim \mathrm{Beta}(a_j, b_j), \qquad
       z_j \mid \gamma_j \sim \gamma_j\,\delta_0 + (1 - \gamma_j)\,\mathcal N(\mu_j, \sigma_j^2)

    gamma is P(off), told by its logit. The law of z is linear in gamma, so averaging leaves E[gamma] in its place: a
    spike-and-slab with p_on = b / (a + b), exactly. With `spike` above 0 an off unit is N(0, spike^2) instead.
    Training takes `n_gamma` draws of gamma an item and `n_z` of z for each of them.
    """

    parts: ClassVar[int] = 4

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


SPARSE = (SpikeSlabPosterior, SlabPosterior, DiscretePosterior, HierarchicalPosterior)
"""Posteriors whose codes have exact zeros."""


def wide(raw: Tensor) -> Tensor:
    """What a network says, in float32 at least: laws are not computed in the half precision that autocast gives."""
    return raw.to(torch.promote_types(raw.dtype, torch.float32))


class Likelihood(Family):
    """A family over data. `discrete` ones have probabilities, the others densities (which change with units).

    One with an `atom` gives exact zeros a probability: scaling must leave the data alone.
    """

    atom: ClassVar[bool] = False

    def given(self, decoder: nn.Module, z: Tensor) -> Distribution:
        """p(x|z). Most are settled by what the decoder says of z; one may ask it again as x unfolds."""
        p: Distribution = self(wide(decoder(z)))
        return p

    def check(self, low: float, high: float) -> str | None:
        """What is wrong with data whose values span [low, high], or None when they can be described."""
        return None

    def describe(self) -> dict[str, float]:
        """The settings a score depends on."""
        return {}


class BernoulliData(Likelihood):
    """raw = logits -> Bernoulli pixels. On grey values in [0, 1] log_prob is a cross-entropy (erratum 33)."""

    discrete: ClassVar[bool] = True

    def forward(self, raw: Tensor) -> Distribution:
        return Independent(Bernoulli(logits=raw, validate_args=False), 1, validate_args=False)

    def check(self, low: float, high: float) -> str | None:
        if low < 0 or high > 1:
            return f'likelihood="bernoulli" needs values in [0, 1], got values from {low:g} to {high:g}'
        return None


class FlooredData(Likelihood):
    """Likelihoods that learn a variance for every value, floor + softplus(s).

    Without the floor a constant pixel lets the variance fall to 0 and the density grow without limit, so the floor
    is a setting that every score depends on and that is stored and reported with it.
    """

    suits: ClassVar[str] = "1e-3 to 1e-2 suits scaled data"

    def __init__(self, floor: float) -> None:
        super().__init__()
        if not floor > 0:
            raise ValueError(f"variance_floor must be above 0, got {floor!r}; {self.suits}.")
        self.floor = float(floor)

    def describe(self) -> dict[str, float]:
        return {"variance_floor": self.floor}


class GaussianData(FlooredData):
    """raw = (loc, s) -> N(loc, floor + softplus(s)): a mean and a learned variance for every value."""

    parts: ClassVar[int] = 2

    def forward(self, raw: Tensor) -> Distribution:
        loc, s = raw.chunk(2, -1)
        return normal_by_variance(loc, self.floor + softplus(s))


class KnownVarianceData(Likelihood):
    """Likelihoods with one known variance everywhere: an error with an explicit scale."""

    def __init__(self, variance: float) -> None:
        super().__init__()
        if not variance > 0:
            raise ValueError(f"variance must be above 0, got {variance!r}.")
        self.variance = float(variance)

    def describe(self) -> dict[str, float]:
        return {"variance": self.variance}


class FixedGaussianData(KnownVarianceData):
    """raw = loc -> N(loc, variance): squared error."""

    def forward(self, raw: Tensor) -> Distribution:
        return normal_by_variance(raw, torch.full_like(raw, self.variance))


class LaplaceData(KnownVarianceData):
    """raw = loc -> Laplace(loc, b) with 2 b^2 = variance: absolute error."""

    def forward(self, raw: Tensor) -> Distribution:
        scale = torch.full_like(raw, (self.variance / 2) ** 0.5)
        return Independent(Laplace(raw, scale, validate_args=False), 1, validate_args=False)


class SpikeSlabData(FlooredData):
    """raw = (loc, s, logits) -> SpikeSlab: each value is exactly 0, or N(loc, floor + softplus(s)).

    The law of sparse codes as data: log(1 - p_on) for a zero, log p_on + log N for any other value. Sizes are learned
    only where a unit is on.
    """

    parts: ClassVar[int] = 3
    atom: ClassVar[bool] = True
    suits: ClassVar[str] = "1e-4 to 1e-2 suits codes"

    def forward(self, raw: Tensor) -> Distribution:
        loc, s, logits = raw.chunk(3, -1)
        return SpikeSlab(logits, loc, (self.floor + softplus(s)).sqrt(), validate_args=False)


LIKELIHOODS: tuple[str, ...] = ("auto", "bernoulli", "gaussian", "fixed-gaussian", "laplace", "spike-slab")
"""The likelihoods a constructor may name; "auto" is settled by the data."""


def likelihood(name: str, *, variance_floor: float, variance: float) -> Likelihood:
    """The likelihood of that name."""
    builders: dict[str, Callable[[], Likelihood]] = {
        "bernoulli": BernoulliData,
        "gaussian": lambda: GaussianData(variance_floor),
        "fixed-gaussian": lambda: FixedGaussianData(variance),
        "laplace": lambda: LaplaceData(variance),
        "spike-slab": lambda: SpikeSlabData(variance_floor),
    }
    if name not in builders:
        raise ValueError(f"likelihood must be one of {', '.join(LIKELIHOODS)}; got {name!r}.")
    return builders[name]()
