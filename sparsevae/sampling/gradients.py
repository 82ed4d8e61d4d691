r"""Gradients through discrete draws: estimators for the logits of bits or one-hot vectors.

They estimate d/da E_{b ~ q_a} f(b). f is the cost of an item: the weighted sum of the terms of the objective that
depend on the draw. An estimator defines the `value` that the model uses in training, and a `surrogate` to add to the
loss, whose gradient completes the estimate. Hard draws, bounds and codes do not depend on the estimator, except for
"slope-annealed", which changes the distribution: a is s times the encoder's logits, in all uses of the distribution
(`distribution_logits`), and s is saved with the model.

============================= ======================================== ============================================
name                          value                                    gradient
============================= ======================================== ============================================
sigmoid (VSC's own, bits)     sigmoid(c (u - 1 + p))                   of that value; biased
concrete                      softmax((log pi + Gumbel)/tau)           of that value; biased (Gumbel-Softmax)
straight-through-concrete     hard                                     of the concrete; biased
straight-through              hard                                     of the mean p: f'(b) dp; biased
slope-annealed                hard, of q_(s a) with growing s          straight-through: f'(b) dp(s a); biased
score                         hard                                     (f - baseline) dlog q; unbiased
rloo                          hard, K draws                            baseline: the other draws; unbiased
disarm                        hard, an antithetic pair                 unbiased
muprop                        hard                                     score with f's expansion at p; unbiased
darn                          hard                                     f'((b+p)/2)(b-p) dlog q; exact for quadratics
normalised-score, -muprop,    hard                                     the same, divided by the standard deviation
-darn                                                                  of what multiplies dlog q
============================= ======================================== ============================================

Dividing f by its standard deviation in the batch, as is often done, would be wrong here: KLs in closed form are not
part of f and would not be divided, so that division by 35 nats would act as a weight of 35 on the KL, and the
posterior would collapse.
The "normalised" estimators divide the whole gradient of the logits instead, that of the KL included.

Some estimators need the cost at several points per item: these are rows, as several draws are, in blocks (points, B),
and the first `draws` blocks are draws of q. The cost of a row is assumed to depend on the draws of that row only: with
batch statistics in a decoder every estimate is approximate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn

from sparsevae.checks import In
from sparsevae.sampling.choices import Choice, Kind
from sparsevae.schedules import Linear, Schedule


def per_member(knob: Tensor, dims: int = 2) -> Tensor:
    """A knob of shape () unchanged; one of shape (*members,) with `dims` more dimensions, as for (*members, B, J)."""
    return knob if knob.dim() == 0 else knob.reshape(*knob.shape, *(1,) * dims)


class Estimator(nn.Module):
    """An estimator of gradients through a discrete draw; `knobs` are buffers that a schedule may set."""

    knobs: ClassVar[tuple[str, ...]] = ()
    sizes: ClassVar[tuple[str, ...]] = ()  # settings without schedules
    kinds: ClassVar[frozenset[str]] = frozenset({"bits", "one-hots", "capped"})  # for which it is defined
    scored: ClassVar[bool] = False  # whether it needs the cost of each row; else the gradient passes through the value
    points: int = 1  # rows per item
    draws: int = 1  # the number of them that are draws of q
    coupled: bool = False  # whether the rows of one item share all other noise

    def distribution_logits(self, logits: Tensor) -> Tensor:
        """The logits of the distribution, (*members, ...), from those of the encoder; by default the same.

        A posterior calls it once, when it makes its distribution, so that draws, KLs, bounds and codes agree.
        """
        return logits

    def forward(self, kind: Kind, logits: Tensor, u: Tensor) -> Tensor:
        """The value that the model uses in training, (..., R, n[, C]), of the shape of the logits."""
        raise NotImplementedError

    def surrogate(self, cost: Tensor, choice: Choice) -> Tensor:
        """The addition to the loss from the cost per row, (*members, R) -> (*members, any): its mean is added."""
        raise NotImplementedError

    def choose(self, kind: Kind, logits: Tensor, u: Tensor, roots: tuple[Tensor, ...] = ()) -> Choice:
        """One training draw, from logits (..., R, n[, C]) and the uniform noise that the kind takes.

        `roots` are the tensors of the distribution from which logits and KL are computed; by default the logits.
        """
        if kind.name not in self.kinds:
            raise ValueError(
                f"{type(self).__name__} is not defined for {kind.name}; it is for {', '.join(sorted(self.kinds))}."
            )
        return Choice(self, kind, logits, self(kind, logits, u), roots=roots or (logits,))

    def split(self, rows: Tensor, after: int = 0) -> tuple[Tensor, ...]:
        """(..., R, *after) -> `points` tensors (..., R / points, *after), the same items in each."""
        at = rows.dim() - 1 - after
        if rows.shape[at] % self.points:
            raise ValueError(
                f"{type(self).__name__} compares {self.points} rows of each item, got {rows.shape[at]} rows in all: "
                f"repeat the batch, x.repeat({self.points}, 1), as the training loop does."
            )
        return rows.chunk(self.points, at)

    def couple(self, noise: Tensor) -> Tensor:
        """Other noise, (..., R, n), made equal for all rows of an item if the estimator is `coupled`."""
        return torch.cat([self.split(noise, 1)[0]] * self.points, -2) if self.coupled else noise


def points(model: nn.Module) -> tuple[int, int]:
    """The rows per item in training, and the number of them that are draws, for the estimators of a model.

    An estimator with one row per item can be combined with one that takes several draws, but not with one whose points
    are not all draws: it would learn from those too. A part of the model with `repeats` multiplies both numbers.
    """
    needed = {(m.points, m.draws) for m in model.modules() if isinstance(m, Estimator) and m.scored}
    several = needed - {(1, 1)}
    if len(several) > 1 or (len(needed) > 1 and any(draws < rows for rows, draws in several)):
        raise ValueError(f"estimators of one model must need the same rows, got (points, draws) {sorted(needed)}.")
    rows, draws = several.pop() if several else (1, 1)
    repeats = math.prod(getattr(m, "repeats", 1) for m in model.modules())
    return repeats * rows, repeats * draws


class _Knob(Estimator):
    """An estimator with one number that a schedule may set, a buffer with the name of the knob."""

    lasting: ClassVar[bool] = False  # whether the number is part of the model, saved with its weights

    def __init__(self, value: float) -> None:
        super().__init__()
        self.register_buffer(self.knobs[0], torch.tensor(float(value)), persistent=self.lasting)

    def knob(self, like: Tensor) -> Tensor:
        buffer: Tensor = getattr(self, self.knobs[0])
        return per_member(buffer, like.dim() - buffer.dim())


class ScaledSigmoid(_Knob):
    """The gate of Variational Sparse Coding, w = sigmoid(c (u - 1 + p_on)), with sharpness c.

    P(w > 1/2) = p_on for every c, but w leaks: at p_on = 0 its mean is log(2)/c (errata 4 and 5).
    """

    knobs: ClassVar[tuple[str, ...]] = ("sharpness",)
    kinds: ClassVar[frozenset[str]] = frozenset({"bits"})

    def __init__(self, sharpness: float = 50.0) -> None:
        super().__init__(sharpness)

    def forward(self, kind: Kind, logits: Tensor, u: Tensor) -> Tensor:
        return torch.sigmoid(self.knob(logits) * (torch.sigmoid(logits) + u - 1))


class Concrete(_Knob):
    """Relaxed in the forward and the backward pass: binary concrete, or Gumbel-Softmax."""

    knobs: ClassVar[tuple[str, ...]] = ("temperature",)
    kinds: ClassVar[frozenset[str]] = frozenset({"bits", "one-hots"})  # a relaxed code may exceed a cap

    def __init__(self, temperature: float = 0.5) -> None:
        super().__init__(temperature)

    def forward(self, kind: Kind, logits: Tensor, u: Tensor) -> Tensor:
        return kind.soft(logits, u, self.knob(logits))


class StraightThroughConcrete(Concrete):
    """Hard in the forward pass, the gradient of the concrete relaxation, from the same noise, in the backward pass."""

    kinds: ClassVar[frozenset[str]] = Estimator.kinds

    def forward(self, kind: Kind, logits: Tensor, u: Tensor) -> Tensor:
        return _through(kind.hard(logits, u), super().forward(kind, logits, u))


class StraightThrough(Estimator):
    """Hard in the forward pass, the gradient of the mean in the backward pass: f'(b) dp."""

    def forward(self, kind: Kind, logits: Tensor, u: Tensor) -> Tensor:
        return _through(kind.hard(logits, u), kind.mean(logits))


class SlopeAnnealed(_Knob, StraightThrough):
    """Straight-through with a slope s that grows: b ~ q_(s a) (Chung et al., 2016).

    Straight-through treats the draw as its mean, an approximation that improves with the slope. The slope is part of
    the distribution, so it is saved with the weights and keeps its last value after training.
    """

    knobs: ClassVar[tuple[str, ...]] = ("slope",)
    lasting: ClassVar[bool] = True

    def __init__(self, slope: float = 1.0) -> None:
        super().__init__(slope)

    def distribution_logits(self, logits: Tensor) -> Tensor:
        return self.knob(logits) * logits


def _through(hard: Tensor, soft: Tensor) -> Tensor:
    """The value of `hard` with the gradient of `soft`."""
    return hard + (soft - soft.detach())


class Score(Estimator):
    """(f - mean of the other rows) dlog q. The baseline of a row does not depend on that row, so it adds no bias."""

    scored: ClassVar[bool] = True

    def forward(self, kind: Kind, logits: Tensor, u: Tensor) -> Tensor:
        return kind.hard(logits, u)

    def centred(self, signal: Tensor) -> Tensor:
        """The signal (*members, R) less the mean of the other rows."""
        rows = signal.shape[-1]
        return (signal - signal.mean(-1, keepdim=True)) * (rows / (rows - 1)) if rows > 1 else signal

    def rescaled(self, signal: Tensor, choice: Choice) -> Tensor:
        """The factor of dlog q, (*members, R), before it is centred; unchanged unless the estimator normalises."""
        return signal

    def surrogate(self, cost: Tensor, choice: Choice) -> Tensor:
        signal = self.centred(self.rescaled(cost.detach(), choice))
        return signal * choice.kind.log_prob(choice.logits, choice.value).sum(-1)


class _Normalised(Score):
    r"""Variance normalisation (Mnih and Gregor, 2014), for plain gradient descent, with one rate for all weights.

    .. math:: \frac1{\max(1, s)} \left((l - \bar l)\, d\log q + d KL\right), \quad s^2 = \mathrm{Var}\, l

    over the rows of the batch, where l is the factor of dlog q: the cost f, or that of MuProp or DARN. The whole
    gradient of the logits is divided, so only the encoder learns more slowly. In large batches its direction does not
    change; in small ones s depends on the costs of the rows, which changes it slightly. The gradients of the decoder,
    the prior and the mean and scale of a slab do not change.
    """

    def rescaled(self, signal: Tensor, choice: Choice) -> Tensor:
        deviation = signal.std(-1, correction=0).clamp(min=1.0)  # (*members,)
        for root in choice.roots:
            if root.requires_grad:
                root.register_hook(lambda g: g / per_member(deviation, g.dim() - deviation.dim()))
        return signal


class NormalisedScore(_Normalised):
    """Score with variance normalisation."""


class LeaveOneOut(Score):
    """K draws per item; the baseline of each is the mean cost of the others (RLOO). Unbiased."""

    sizes: ClassVar[tuple[str, ...]] = ("samples",)

    def __init__(self, samples: int = 4) -> None:
        In(2).check("samples", samples, "at least 2 draws of an item")
        super().__init__()
        self.points = self.draws = int(samples)

    def centred(self, signal: Tensor) -> Tensor:
        each = torch.stack(self.split(signal), -2)
        return ((each - each.mean(-2, keepdim=True)) * (self.points / (self.points - 1))).flatten(-2)


class Disarm(Estimator):
    r"""An antithetic pair from u and 1 - u: half the difference of the costs, for the bits that differ (DisARM).

    .. math:: \tfrac12 (f(b) - f(\tilde b))\,(-1)^{\tilde b_j}\, 1[b_j \ne \tilde b_j]\,\sigma(|a_j|)

    A one-hot choice is a row of bits, "this category, if no earlier one" (stick breaking); the last bit is always on.
    The pair must have the same logits: they may not depend on another draw that differs between the two rows.
    """

    scored: ClassVar[bool] = True
    kinds: ClassVar[frozenset[str]] = frozenset({"bits", "one-hots"})
    points = draws = 2
    coupled = True

    def forward(self, kind: Kind, logits: Tensor, u: Tensor) -> Tensor:
        one, two = self._pair(kind, logits, u)
        return torch.cat([kind.from_bits(one), kind.from_bits(two)], -2 - kind.event)

    def _pair(self, kind: Kind, logits: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
        """The two antithetic bits of each item."""
        after = 1 + kind.event
        off = torch.sigmoid(-self.split(kind.bits(logits.detach()), after)[0])
        u = self.split(u, after)[0]
        return (u > off).to(logits.dtype), (1 - u > off).to(logits.dtype)

    def choose(self, kind: Kind, logits: Tensor, u: Tensor, roots: tuple[Tensor, ...] = ()) -> Choice:
        choice = super().choose(kind, logits, u, roots)
        return choice._replace(bits=self._pair(kind, logits, u))

    def surrogate(self, cost: Tensor, choice: Choice) -> Tensor:
        kind, (one, two) = choice.kind, choice.bits
        first, second = self.split(cost.detach())
        a = self.split(kind.bits(choice.logits), 1 + kind.event)[0]
        slope = (one - two) * torch.sigmoid(a.detach().abs())  # (-1)^two on the bits that differ: 1, -1 or 0
        return 0.5 * (first - second) * (slope * a).flatten(-1 - kind.event).sum(-1)


class _Expanded(Score):
    """Score estimators that also use the gradient of the cost at a second point, which is no draw."""

    kinds: ClassVar[frozenset[str]] = frozenset({"bits", "one-hots"})
    points = 2
    coupled = True

    def place(self, b: Tensor, mean: Tensor) -> Tensor:
        """The second point."""
        raise NotImplementedError

    def forward(self, kind: Kind, logits: Tensor, u: Tensor) -> Tensor:
        after, axis = 1 + kind.event, -2 - kind.event
        first, second = self.split(logits.detach(), after)
        b = kind.hard(first, self.split(u, after)[0])
        value = torch.cat([b, self.place(b, kind.mean(second))], axis)
        return value.requires_grad_() if torch.is_grad_enabled() else value

    def parts(self, cost: Tensor, choice: Choice) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The draw, its logits, its mean and the gradient at the second point, each (..., B, n[, C])."""
        after = 1 + choice.kind.event
        if cost.requires_grad:
            (slope,) = torch.autograd.grad(self.split(cost)[1].sum(), choice.value, retain_graph=True)
        else:
            slope = torch.zeros_like(choice.value)
        logits = self.split(choice.logits, after)[0]
        b = self.split(choice.value.detach(), after)[0]
        return b, logits, choice.kind.mean(logits), self.split(slope, after)[1]


class MuProp(_Expanded):
    r"""The score estimator of the remainder of the first-order expansion at the mean, plus the expansion's gradient.

    .. math:: (f(b) - f(p) - f'(p)(b - p))\,d\log q(b) + f'(p)\,dp
    """

    def place(self, b: Tensor, mean: Tensor) -> Tensor:
        return mean

    def surrogate(self, cost: Tensor, choice: Choice) -> Tensor:
        kind = choice.kind
        b, logits, mean, slope = self.parts(cost, choice)
        first, second = self.split(cost.detach())
        rest = first - second - kind.inner(slope, b - mean.detach()).sum(-1)
        signal = self.centred(self.rescaled(rest, choice))
        return signal * kind.log_prob(logits, b).sum(-1) + kind.inner(slope, mean).sum(-1)


class Darn(_Expanded):
    r"""f'((b + p)/2)(b - p) in place of f(b) - f(p): exact for quadratic f, biased otherwise.

    .. math:: \sum_j f'_j(\tfrac{b + p}2)\,(b_j - p_j)\,d\log q(b_j)
    """

    def place(self, b: Tensor, mean: Tensor) -> Tensor:
        return 0.5 * (b + mean)

    def surrogate(self, cost: Tensor, choice: Choice) -> Tensor:
        kind = choice.kind
        b, logits, mean, slope = self.parts(cost, choice)
        each = kind.inner(slope, b - mean.detach())
        self.rescaled(each.sum(-1), choice)
        return (each * kind.log_prob(logits, b)).sum(-1)


class NormalisedMuProp(_Normalised, MuProp):
    """MuProp with variance normalisation, by the standard deviation of the remainder of the expansion."""


class NormalisedDarn(_Normalised, Darn):
    """DARN with variance normalisation, by the standard deviation of the sum over choices of f'((b + p)/2)(b - p)."""


class AlwaysOn(Estimator):
    """The gate of a unit that is never off: a spike-and-slab whose spike has no mass."""

    def forward(self, kind: Kind, logits: Tensor, u: Tensor) -> Tensor:
        return torch.ones_like(u)


ESTIMATORS: dict[str, type[Estimator]] = {
    "concrete": Concrete,
    "straight-through-concrete": StraightThroughConcrete,
    "straight-through": StraightThrough,
    "slope-annealed": SlopeAnnealed,
    "score": Score,
    "normalised-score": NormalisedScore,
    "rloo": LeaveOneOut,
    "disarm": Disarm,
    "muprop": MuProp,
    "normalised-muprop": NormalisedMuProp,
    "darn": Darn,
    "normalised-darn": NormalisedDarn,
}
"""The estimators a constructor may name."""
GATES: dict[str, type[Estimator]] = {"sigmoid": ScaledSigmoid, **ESTIMATORS}
"""The estimators for the gates of a spike-and-slab: VSC's own is added."""
SLOPE = Linear(1.0, 5.0)
"""The default schedule of a slope."""


def build_estimator(kind: type[Estimator], settings: Mapping[str, float | Schedule]) -> Estimator:
    """The estimator with its own of the settings; a setting with a schedule starts at its first value."""
    own = {k: settings[k] for k in (*kind.knobs, *kind.sizes) if k in settings}
    return kind(**{k: v(0, 1) if callable(v) else v for k, v in own.items()})


def scheduled(kind: type[Estimator], settings: Mapping[str, float | Schedule]) -> dict[str, Schedule]:
    """The schedules among the settings, for the knobs of the estimator."""
    return {k: v for k, v in settings.items() if k in kind.knobs and callable(v)}
