"""Distributions the field needs and torch lacks, their divergences, and the list of pairs that mean something.

Distributions at a latent site have event_shape (J,): `log_prob` and `divergence` give one number per item,
(..., B); `unit_divergence` keeps the units apart, (..., B, J), where they factorise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.distributions import Distribution, Independent, Laplace, Normal, constraints, kl_divergence, register_kl
from torch.distributions.utils import broadcast_all
from torch.nn.functional import logsigmoid, softplus

from sparsevae.choices import BITS, Choice, switch
from sparsevae.derivatives import first_only
from sparsevae.gradients import Estimator, ScaledSigmoid

__all__ = [
    "Point",
    "SpikeSlab",
    "bernoulli_kl",
    "closed_form",
    "divergence",
    "logit",
    "normal",
    "normal_by_variance",
    "normal_kl",
    "pair",
    "spike_slab_kl",
    "surcharge",
    "times",
    "unit_divergence",
]

_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
_Shape = torch.Size | list[int] | tuple[int, ...]
_SCALAR = torch.Size()


class _GaussianLogProb(torch.autograd.Function):
    """log N(value; loc, variance) summed over the last axis, with its gradient by hand.

    With r = value - loc and w = r / variance the gradients are w for loc, -w for value, and (w^2 - 1/variance) / 2 for
    variance: a third of the passes over a (B, D) likelihood that autograd would make.
    """

    @staticmethod
    def forward(ctx: Any, value: Tensor, loc: Tensor, variance: Tensor) -> Tensor:
        rest = value - loc
        weighed = rest / variance
        ctx.save_for_backward(weighed, variance)
        ctx.shapes = value.shape, loc.shape
        both = torch.addcmul(variance.log(), rest, weighed).sum(-1)
        return torch.rsub(both, -weighed.shape[-1] * _HALF_LOG_2PI, alpha=0.5)

    @staticmethod
    @first_only
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        weighed, variance = ctx.saved_tensors
        by_loc = grad.unsqueeze(-1) * weighed
        value = -by_loc.sum_to_size(ctx.shapes[0]) if ctx.needs_input_grad[0] else None
        loc = by_loc.sum_to_size(ctx.shapes[1]) if ctx.needs_input_grad[1] else None
        spread = torch.addcmul((-0.5 * grad).unsqueeze(-1) / variance, by_loc, weighed, value=0.5)
        return value, loc, spread.sum_to_size(variance.shape) if ctx.needs_input_grad[2] else None


class _Gaussian(Independent):  # type: ignore[type-arg]
    def __init__(self, loc: Tensor, scale: Tensor) -> None:
        super().__init__(Normal(loc, scale, validate_args=False), 1, validate_args=False)

    def expand(self, batch_shape: _Shape, _instance: Distribution | None = None) -> Distribution:
        shape = torch.Size(batch_shape) + self.event_shape
        return _Gaussian(self.base_dist.loc.expand(shape), self.base_dist.scale.expand(shape))

    def log_prob(self, value: Tensor) -> Tensor:
        density: Tensor = _GaussianLogProb.apply(value, self.mean, self.variance)  # type: ignore[no-untyped-call]
        return density


class _GaussianByVariance(_Gaussian):
    """A Gaussian whose root is taken when someone asks for it."""

    def __init__(self, loc: Tensor, variance: Tensor) -> None:
        self._loc, self._variance = broadcast_all(loc, variance)
        self.reinterpreted_batch_ndims = 1
        Distribution.__init__(self, self._loc.shape[:-1], self._loc.shape[-1:], validate_args=False)

    @property
    def base_dist(self) -> Normal:
        return Normal(self._loc, self._variance.sqrt(), validate_args=False)

    @property
    def mean(self) -> Tensor:
        return self._loc

    @property
    def variance(self) -> Tensor:
        return self._variance

    def expand(self, batch_shape: _Shape, _instance: Distribution | None = None) -> Distribution:
        shape = torch.Size(batch_shape) + self.event_shape
        return _GaussianByVariance(self._loc.expand(shape), self._variance.expand(shape))


def normal(loc: Tensor, scale: Tensor) -> Distribution:
    """A Gaussian with independent units, event_shape (J,)."""
    return _Gaussian(loc, scale)


def normal_by_variance(loc: Tensor, variance: Tensor) -> Distribution:
    """The same, from a variance: its density and gradient never take a root."""
    return _GaussianByVariance(loc, variance)


def times(p: Tensor, log: Tensor) -> Tensor:
    """p log, elementwise; 0 where p is 0, even against an infinite logarithm, and so are its gradients there."""
    return p * torch.where(p == 0, 0.0, log)


def logit(p_on: float) -> float:
    """log(p/(1-p)); plus infinity for p = 1 exactly, without forming log(1-p)."""
    if not 0 < p_on <= 1:
        raise ValueError(f"a probability in (0, 1] is needed here, got {p_on!r}.")
    return math.inf if p_on == 1 else math.log(p_on) - math.log1p(-p_on)


class SpikeSlab(Distribution):
    r"""Each unit is exactly zero with probability 1 - p_on, else Gaussian: the law of a sparse code.

    .. math:: z_j \sim (1 - p_j)\,\delta_0 + p_j\,\mathcal N(\mu_j, \sigma_j^2), \qquad p_j = \mathrm{sigmoid}(a_j)

    Densities are taken against the mixed measure, an atom at 0 plus Lebesgue: log_prob is log(1-p) at exactly 0
    and log p + log N(z) elsewhere. VSC's gamma is p_on; HSVAE's and MAT's gamma is 1 - p_on.

    Parameters
    ----------
    logits : Tensor (..., J)
        Gate logits a. `inf` is legal and means "never off".
    loc, scale : Tensor (..., J)
        Mean and standard deviation of the slab.
    gate : Estimator, optional
        How a gradient passes the gate in `rsample`; the paper's scaled sigmoid when not given.
    warmth : Tensor, optional
        How much of the slab a relaxed draw sees, in [0, 1]; all of it when not given.
    finite : bool
        A promise that every logit is finite, which spares a KL to this distribution the question.
    """

    arg_constraints: ClassVar = {
        "logits": constraints.independent(constraints.real, 1),
        "loc": constraints.independent(constraints.real, 1),
        "scale": constraints.independent(constraints.positive, 1),
    }
    support = constraints.real_vector
    has_rsample = True
    logits: Tensor
    loc: Tensor
    scale: Tensor
    choice: Choice | None = None  # what the last relaxed draw chose, for the objective

    def __init__(
        self,
        logits: Tensor,
        loc: Tensor,
        scale: Tensor,
        gate: Estimator | None = None,
        validate_args: bool | None = None,
        *,
        warmth: Tensor | None = None,
        finite: bool = False,
    ) -> None:
        self.logits, self.loc, self.scale = broadcast_all(logits, loc, scale)
        self.gate, self.warmth, self.finite = gate, warmth, finite
        shape = self.loc.shape
        super().__init__(shape[:-1], shape[-1:], validate_args=validate_args)

    def expand(self, batch_shape: _Shape, _instance: Distribution | None = None) -> SpikeSlab:
        shape = torch.Size(batch_shape) + self.event_shape
        return SpikeSlab(
            self.logits.expand(shape),
            self.loc.expand(shape),
            self.scale.expand(shape),
            self.gate,
            validate_args=False,
            warmth=self.warmth,
            finite=self.finite,
        )

    @property
    def p_on(self) -> Tensor:
        """P(unit is on), (..., J)."""
        return torch.sigmoid(self.logits)

    @property
    def mean(self) -> Tensor:
        return self.p_on * self.loc

    @property
    def variance(self) -> Tensor:
        p = self.p_on
        return p * (self.scale.square() + torch.sigmoid(-self.logits) * self.loc.square())

    @property
    def mode(self) -> Tensor:
        """The likelier state of each gate, then the slab's mode: loc where p_on > 1/2, exact zero elsewhere."""
        return torch.where(self.logits > 0, self.loc, 0.0)

    @property
    def ranking(self) -> Tensor:
        """Which units `codes.capped` keeps first, (..., J): those with the likeliest gates."""
        return self.logits

    def opened(self) -> SpikeSlab:
        """The same slabs with every gate open."""
        return SpikeSlab(torch.full_like(self.loc, torch.inf), self.loc, self.scale, self.gate, validate_args=False)

    def draw(self, eps: Tensor, u: Tensor, hard: bool) -> Tensor:
        """The draw as a function of its noise: eps ~ N(0,1) and u ~ U(0,1), both (..., J).

        With a `warmth` w a relaxed draw has the slab N(w loc, scale^(2w)): pure noise at w = 0, the slab at w = 1.
        """
        loc, scale = self.loc, self.scale
        if not hard:
            eps = eps if self.gate is None else self.gate.couple(eps)
            if self.warmth is not None:
                loc, scale = self.warmth * loc, scale**self.warmth
        slab = torch.addcmul(loc, scale, eps)
        if hard:
            slab = torch.where(slab == 0, torch.finfo(slab.dtype).tiny, slab)  # an exact 0 would read as the spike
            return torch.where(switch(self.logits, u), slab, 0.0)
        self.choice = (self.gate or ScaledSigmoid()).choose(BITS, self.logits, u)
        return self.choice.value * slab

    def _noise(self, sample_shape: _Shape) -> tuple[Tensor, Tensor]:
        eps = torch.randn_like(self.loc.expand(self._extended_shape(torch.Size(sample_shape))))
        return eps, torch.rand_like(eps).clamp_min(torch.finfo(eps.dtype).tiny)

    def sample(self, sample_shape: _Shape = _SCALAR) -> Tensor:
        """Draws with exact zeros. Uses torch's global generator; inside the library `Draw` supplies the noise."""
        with torch.no_grad():
            return self.draw(*self._noise(sample_shape), hard=True)

    def rsample(self, sample_shape: _Shape = _SCALAR) -> Tensor:
        """Relaxed draws, differentiable in all three parameters through the gate."""
        return self.draw(*self._noise(sample_shape), hard=False)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        eps = (value - self.loc) / self.scale
        slab = -0.5 * eps.square() - self.scale.log() - _HALF_LOG_2PI
        return torch.where(value == 0, logsigmoid(-self.logits), logsigmoid(self.logits) + slab).sum(-1)

    def entropy(self) -> Tensor:
        """Entropy against the mixed measure: H(gate) + p_on H(slab), summed over units."""
        slab = self.p_on * (self.scale.log() + 0.5 + _HALF_LOG_2PI)
        return (-_plogp(self.logits) - _plogp(-self.logits) + slab).sum(-1)


def _plogp(a: Tensor) -> Tensor:
    """p log p for p = sigmoid(a); 0 where p is 0."""
    p = torch.sigmoid(a)
    return torch.where(p == 0, 0.0, p * logsigmoid(torch.where(p == 0, 0.0, a)))


def normal_kl(loc_q: Tensor, scale_q: Tensor, loc_p: Tensor, scale_p: Tensor) -> Tensor:
    """KL of two Gaussians, elementwise: log(s_p/s_q) + (s_q^2 + (m_q - m_p)^2) / (2 s_p^2) - 1/2."""
    ratio, shift = scale_q / scale_p, (loc_q - loc_p) / scale_p
    return 0.5 * (ratio.square() + shift.square() - 1) - ratio.log()


class _SpikeSlabKL(torch.autograd.Function):
    """p_q KL(slab_q || slab_p) + KL_B(p_q; p_p) per unit, in one pass and with its gradient by hand.

    With softplus f the value is p_q (slab + a - b) + f(b) - f(a), slab the KL of the Gaussians. Logits are held
    within +-1024, beyond which gates are certain in every precision, so that inf - inf is never formed; a prior that is
    certain where q is not gives +inf (unless it promised to be `finite`), and a slab that is never drawn costs nothing,
    since its KL is held below the largest number there is. Gradients: p_q (1 - p_q) (slab +
    a - b) for a, p_q times the Gaussians' for the slab, sigmoid(b) - p_q for b. Nothing is done in place: torch 2.11
    compiles such a function to a wrong gradient.
    """

    @staticmethod
    def forward(
        ctx: Any, a: Tensor, loc: Tensor, scale: Tensor, b: Tensor, loc_p: Tensor, scale_p: Tensor, finite: bool
    ) -> Tensor:
        ratio, shift, on, off = scale / scale_p, (loc - loc_p) / scale_p, torch.sigmoid(a), torch.sigmoid(-a)
        near, prior = a.clamp(-1024.0, 1024.0), b if finite else b.clamp(-1024.0, 1024.0)
        square = torch.addcmul(ratio * ratio, shift, shift).clamp_max(torch.finfo(loc.dtype).max)
        slope = torch.add(near - prior - ratio.log(), square - 1, alpha=0.5)
        ctx.save_for_backward(on, off, slope, ratio, shift, square, b, scale_p)
        ctx.shapes = a.shape, loc.shape, scale.shape, b.shape, loc_p.shape, scale_p.shape
        kl = torch.addcmul(softplus(prior) - softplus(near), on, slope)
        if finite:
            return kl
        return kl.masked_fill((torch.where(b > 0, off, on) > 0) & b.isinf(), torch.inf)

    @staticmethod
    @first_only
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        on, off, slope, ratio, shift, square, b, scale_p = ctx.saved_tensors
        need, shapes = ctx.needs_input_grad, ctx.shapes
        by_on = grad * on
        by_unit = by_on / scale_p
        by_loc = by_unit * shift
        return (
            (by_on * off * slope).sum_to_size(shapes[0]) if need[0] else None,
            by_loc.sum_to_size(shapes[1]) if need[1] else None,
            torch.addcdiv(by_unit * ratio, by_unit, ratio, value=-1).sum_to_size(shapes[2]) if need[2] else None,
            (grad * (torch.sigmoid(b) - on)).sum_to_size(shapes[3]) if need[3] else None,
            -by_loc.sum_to_size(shapes[4]) if need[4] else None,
            (by_unit * (1 - square)).sum_to_size(shapes[5]) if need[5] else None,
            None,
        )


def spike_slab_kl(
    logits_q: Tensor,
    loc_q: Tensor,
    scale_q: Tensor,
    logits_p: Tensor,
    loc_p: Tensor,
    scale_p: Tensor,
    *,
    finite: bool = False,
) -> Tensor:
    """KL of two spike-and-slabs, elementwise: ICLR equations 9 and 23 with erratum 2; UAI equation 9, erratum 1.

    `finite` promises that no prior logit is infinite.
    """
    kl: Tensor = _SpikeSlabKL.apply(logits_q, loc_q, scale_q, logits_p, loc_p, scale_p, finite)  # type: ignore[no-untyped-call]
    return kl


def bernoulli_kl(a: Tensor, b: Tensor) -> Tensor:
    """KL(Bernoulli(sigmoid a) || Bernoulli(sigmoid b)) from logits, elementwise: two gates with the same slab."""
    zero, one = a.new_zeros(()), a.new_ones(())
    return spike_slab_kl(a, zero, one, b, zero, one)


class _Rule(NamedTuple):
    kl: Callable[..., Tensor]
    monte_carlo: bool
    per_unit: bool
    units: Callable[..., Tensor | None] | None

    def measure(self, q: Distribution, p: Distribution, value: Tensor | None) -> Tensor:
        if not self.monte_carlo:
            return self.kl(q, p)
        if value is None:
            name = f"KL({type(q).__name__} || {type(p).__name__})"
            raise ValueError(f"{name} is estimated from a draw of q: pass value=.")
        return self.kl(q, p, value)


_RULES: dict[tuple[type[Distribution], type[Distribution]], _Rule] = {}


def pair(
    q: type[Distribution],
    p: type[Distribution],
    *,
    monte_carlo: bool = False,
    per_unit: bool = True,
    units: Callable[..., Tensor | None] | None = None,
) -> Callable[[Callable[..., Tensor]], Callable[..., Tensor]]:
    """Declare that `q || p` means something: kl(q, p) per unit, or kl(q, p, value) estimated from a draw of q.

    Estimates are for pairs with one base measure that lack a closed form; nothing falls back to them unasked. With
    per_unit=False the units depend on one another, and the function gives one number per item, (..., B); where some
    laws of the pair have independent units all the same, units(q, p) is their KL per unit, and None of the others.
    """

    def register(kl: Callable[..., Tensor]) -> Callable[..., Tensor]:
        _RULES[q, p] = _Rule(kl, monte_carlo, per_unit, units)
        return kl

    return register


@pair(Normal, Normal)
def _normal_normal(q: Normal, p: Normal) -> Tensor:
    return normal_kl(q.loc, q.scale, p.loc, p.scale)


@pair(Laplace, Laplace)
def _laplace(q: Laplace, p: Laplace) -> Tensor:
    return kl_divergence(q, p)


class Point(Distribution):
    """A code without noise, z = loc: not a density, so no bound can be made of it."""

    arg_constraints: ClassVar = {"loc": constraints.independent(constraints.real, 1)}
    support = constraints.real_vector

    def __init__(self, loc: Tensor) -> None:
        self.loc = loc
        super().__init__(loc.shape[:-1], loc.shape[-1:], validate_args=False)

    def expand(self, batch_shape: _Shape, _instance: Distribution | None = None) -> Point:
        return Point(self.loc.expand(torch.Size(batch_shape) + self.event_shape))

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return torch.zeros_like(self.loc)

    def log_prob(self, value: Tensor) -> Tensor:
        """Nothing is known but the place: 0 there. A score made with it is log p(x, z) at the code."""
        return torch.zeros_like((value - self.loc)[..., 0])


@pair(Point, Normal)
def _point_normal(q: Point, p: Normal) -> Tensor:
    """The quadratic penalty alone, (loc - m)^2 / (2 s^2): a KL without its variance terms."""
    return 0.5 * ((q.loc - p.loc) / p.scale).square()


@pair(SpikeSlab, SpikeSlab)
def _spike_slab(q: SpikeSlab, p: SpikeSlab) -> Tensor:
    return spike_slab_kl(q.logits, q.loc, q.scale, p.logits, p.loc, p.scale, finite=p.finite)


@register_kl(SpikeSlab, SpikeSlab)
def _torch_spike_slab(q: SpikeSlab, p: SpikeSlab) -> Tensor:
    return _spike_slab(q, p).sum(-1)


def _base(d: Distribution) -> Distribution:
    return d.base_dist if isinstance(d, Independent) else d


def _rule(q: Distribution, p: Distribution) -> _Rule:
    rule = _RULES.get((type(q), type(p)))
    if rule is None:
        legal = sorted(b.__name__ for a, b in _RULES if a is type(q))
        partners = ", ".join(legal) if legal else "none"
        every = ", ".join(f"{a.__name__} || {b.__name__}" for a, b in _RULES)
        raise TypeError(
            f"KL({type(q).__name__} || {type(p).__name__}) is not defined here. Legal priors for a "
            f"{type(q).__name__} posterior: {partners}. All legal pairs: {every}."
        )
    return rule


def unit_divergence(q: Distribution, p: Distribution, value: Tensor | None = None) -> Tensor:
    """KL(q || p) of each unit, (..., B, J), in nats; a TypeError for a pair without a declared meaning.

    `value`, a draw of q, is needed by the few pairs whose divergence is a one-sample estimate.
    """
    q, p = _base(q), _base(p)
    rule = _rule(q, p)
    if rule.per_unit:
        return rule.measure(q, p, value)
    each = None if rule.units is None else rule.units(q, p)
    if each is None:
        raise TypeError(
            f"KL({type(q).__name__} || {type(p).__name__}) belongs to the whole code: its units depend on one another, "
            "and none has a KL of its own. What needs one (free_bits, audit, prune, suggest_size) does not apply to "
            "it; divergence and the term kl give the KL per item."
        )
    return each


def closed_form(q: Distribution, p: Distribution) -> bool:
    """Whether the divergence of this pair is exact, not an estimate from a draw."""
    rule = _RULES.get((type(_base(q)), type(_base(p))))
    return rule is not None and not rule.monte_carlo


def divergence(q: Distribution, p: Distribution, value: Tensor | None = None) -> Tensor:
    """KL(q || p) per item, (..., B), in nats: the sum over units, and what a prior chosen by x adds for its choice."""
    q, p = _base(q), _base(p)
    rule = _rule(q, p)
    kl = rule.measure(q, p, value)
    total, extra = kl.sum(-1) if rule.per_unit else kl, surcharge(p)
    return total if extra is None else total + extra


def surcharge(p: Distribution) -> Tensor | None:
    """What a prior chosen by x costs beside the sum over units, (..., B); None for every other."""
    extra: Tensor | None = getattr(p, "extra", None)
    return extra
