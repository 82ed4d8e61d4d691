"""The spike-and-slab distribution on its mixed measure, and the KL of Bernoulli gates."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints, register_kl
from torch.distributions.utils import broadcast_all
from torch.nn.functional import logsigmoid, softplus

from sparsevae.distributions.gaussian import HALF_LOG_2PI, Shape
from sparsevae.distributions.kl import pair
from sparsevae.sampling.choices import BITS, Choice, switch
from sparsevae.sampling.derivatives import first_only
from sparsevae.sampling.draw import draw_from
from sparsevae.sampling.gradients import Estimator, ScaledSigmoid
from sparsevae.sampling.noise import Noise


def logit(p_on: float) -> float:
    """log(p/(1-p)); infinity for p = 1."""
    if not 0 < p_on <= 1:
        raise ValueError(f"p_on must be a probability in (0, 1], got {p_on!r}.")
    return math.inf if p_on == 1 else math.log(p_on) - math.log1p(-p_on)


class SpikeSlab(Distribution):
    r"""Each unit is exactly zero with probability 1 - p_on, else Gaussian: the distribution of a sparse code.

    .. math:: z_j \sim (1 - p_j)\,\delta_0 + p_j\,\mathcal N(\mu_j, \sigma_j^2), \qquad p_j = \mathrm{sigmoid}(a_j)

    Densities are with respect to the mixed measure, an atom at 0 plus the Lebesgue measure: log_prob is log(1-p) at
    exactly 0 and log p + log N(z) elsewhere. VSC's gamma is p_on; HSVAE's and MAT's gamma is 1 - p_on.

    Parameters
    ----------
    logits : Tensor (..., J)
        Gate logits a. `inf`: the unit is never off.
    loc, scale : Tensor (..., J)
        Mean and standard deviation of the slab.
    gate : Estimator, optional
        Passes a gradient through the gate in `rsample`; by default the paper's scaled sigmoid.
    warmth : Tensor, optional
        The share w of the slab in a relaxed draw, in [0, 1]; see `draw`. By default 1.
    finite : bool
        States that all logits are finite, so that a KL to this distribution need not check it.
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
    choice: Choice | None = None  # of the last training draw, for the objective

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

    def expand(self, batch_shape: Shape, _instance: Distribution | None = None) -> SpikeSlab:
        shape = torch.Size(batch_shape) + self.event_shape
        logits, loc, scale = (tensor.expand(shape) for tensor in (self.logits, self.loc, self.scale))
        return SpikeSlab(logits, loc, scale, self.gate, False, warmth=self.warmth, finite=self.finite)

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
        """The slab's `loc` where the gate is more likely on, p_on > 1/2, exact zero elsewhere."""
        return torch.where(self.logits > 0, self.loc, 0.0)

    @property
    def ranking(self) -> Tensor:
        """What `codes.capped` ranks units by, largest first, (..., J): the gate logits."""
        return self.logits

    def with_gates_open(self) -> SpikeSlab:
        """The distribution with all gates open: the slabs."""
        return SpikeSlab(torch.full_like(self.loc, torch.inf), self.loc, self.scale, self.gate, validate_args=False)

    def slab(self, eps: Tensor, hard: bool) -> Tensor:
        """A draw of the slabs as a function of eps ~ N(0, 1), both (..., J)."""
        loc, scale = self.loc, self.scale
        if not hard and self.warmth is not None:
            loc, scale = self.warmth * loc, scale**self.warmth
        return torch.addcmul(loc, scale, eps)

    def slab_log_prob(self, value: Tensor) -> Tensor:
        """Log-density of each slab, (..., J); any finite number where the value is 0."""
        eps = (value - self.loc) / self.scale
        return -0.5 * eps.square() - self.scale.log() - HALF_LOG_2PI

    def slab_entropy(self) -> Tensor:
        """Entropy of each slab, (..., J)."""
        return self.scale.log() + 0.5 + HALF_LOG_2PI

    def draw(self, eps: Tensor, u: Tensor, hard: bool) -> Tensor:
        """The draw as a function of its noise: eps ~ N(0,1) and u ~ U(0,1), both (..., J).

        With a `warmth` w a relaxed draw has the slab N(w loc, scale^(2w)): pure noise at w = 0, the slab at w = 1.
        """
        slab = self.slab(eps if hard or self.gate is None else self.gate.couple(eps), hard)
        if hard:
            slab = torch.where(slab == 0, torch.finfo(slab.dtype).tiny, slab)  # an exact 0 would count as the spike
            return torch.where(switch(self.logits, u), slab, 0.0)
        self.choice = (self.gate or ScaledSigmoid()).choose(BITS, self.logits, u)
        return self.choice.value * slab

    def _noise(self, sample_shape: Shape) -> tuple[Tensor, Tensor]:
        eps = torch.randn_like(self.loc.expand(self._extended_shape(torch.Size(sample_shape))))
        return eps, torch.rand_like(eps).clamp_min(torch.finfo(eps.dtype).tiny)

    def sample(self, sample_shape: Shape = ()) -> Tensor:
        """Draws with exact zeros, from torch's global generator; inside the library `Draw` supplies the noise."""
        with torch.no_grad():
            return self.draw(*self._noise(sample_shape), hard=True)

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        """Relaxed draws, differentiable in all three parameters through the gate."""
        return self.draw(*self._noise(sample_shape), hard=False)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        on = logsigmoid(self.logits) + self.slab_log_prob(value)
        return torch.where(value == 0, logsigmoid(-self.logits), on).sum(-1)

    def entropy(self) -> Tensor:
        """Entropy with respect to the mixed measure: H(gate) + p_on H(slab), summed over units."""
        return (-_plogp(self.logits) - _plogp(-self.logits) + self.p_on * self.slab_entropy()).sum(-1)


def _plogp(a: Tensor) -> Tensor:
    """p log p for p = sigmoid(a); 0 where p is 0."""
    p = torch.sigmoid(a)
    return torch.where(p == 0, 0.0, p * logsigmoid(torch.where(p == 0, 0.0, a)))


class _SpikeSlabKL(torch.autograd.Function):
    """p_q KL(slab_q || slab_p) + KL_B(p_q; p_p) per unit, in one pass and with a hand-written gradient.

    With softplus f the value is p_q (slab + a - b) + f(b) - f(a), where slab is the KL of the Gaussians. Logits are
    clamped to +-1024, beyond which gates are certain in every precision, so that inf - inf does not occur. A prior gate
    that is certain where q's is not gives +inf (not checked if `finite`). A slab that is never drawn adds 0, since its
    KL is clamped to the largest finite number. Gradients: p_q (1 - p_q) (slab + a - b) for a, p_q times that of the
    Gaussians for the slab, sigmoid(b) - p_q for b. No operation is in place: torch 2.11 compiles such a function to a
    wrong gradient.
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

    `finite` states that no prior logit is infinite.
    """
    kl: Tensor = _SpikeSlabKL.apply(logits_q, loc_q, scale_q, logits_p, loc_p, scale_p, finite)  # type: ignore[no-untyped-call]
    return kl


def bernoulli_kl(a: Tensor, b: Tensor) -> Tensor:
    """KL(Bernoulli(sigmoid a) || Bernoulli(sigmoid b)) from logits, elementwise: two gates with the same slab."""
    zero, one = a.new_zeros(()), a.new_ones(())
    return spike_slab_kl(a, zero, one, b, zero, one)


@pair(SpikeSlab, SpikeSlab)
def _spike_slab(q: SpikeSlab, p: SpikeSlab) -> Tensor:
    return spike_slab_kl(q.logits, q.loc, q.scale, p.logits, p.loc, p.scale, finite=p.finite)


@register_kl(SpikeSlab, SpikeSlab)
def _torch_spike_slab(q: SpikeSlab, p: SpikeSlab) -> Tensor:
    return _spike_slab(q, p).sum(-1)


class LogNormalSpikeSlab(SpikeSlab):
    r"""Each unit is exactly zero with probability 1 - p_on, else log-normal: a sparse code without negative values.

    .. math:: z_j \sim (1 - p_j)\,\delta_0 + p_j\,e^{y_j}, \qquad y_j \sim \mathcal N(m_j, s_j^2)

    `loc` and `scale` are mean and standard deviation of the slab, e^(m + s^2/2) and loc sqrt(e^(s^2) - 1). The
    exponential is one-to-one, so the KL of two slabs is that of the Gaussians of their logarithms.

    Parameters
    ----------
    logits : Tensor (..., J)
        Gate logits.
    log_loc, log_scale : Tensor (..., J)
        Mean m and standard deviation s of the logarithm of the slab.
    gate : Estimator, optional
        Passes a gradient through the gate in `rsample`, as in `SpikeSlab`.
    finite : bool
        States that all logits are finite, so that a KL to this distribution need not check it.
    """

    arg_constraints: ClassVar = {
        "logits": constraints.independent(constraints.real, 1),
        "log_loc": constraints.independent(constraints.real, 1),
        "log_scale": constraints.independent(constraints.positive, 1),
    }
    support = constraints.independent(constraints.nonnegative, 1)

    def __init__(
        self,
        logits: Tensor,
        log_loc: Tensor,
        log_scale: Tensor,
        gate: Estimator | None = None,
        validate_args: bool | None = None,
        *,
        finite: bool = False,
    ) -> None:
        logits, self.log_loc, self.log_scale = broadcast_all(logits, log_loc, log_scale)
        variance = self.log_scale.square()
        loc = torch.exp(self.log_loc + 0.5 * variance)
        super().__init__(logits, loc, loc * torch.expm1(variance).sqrt(), gate, validate_args, finite=finite)

    def expand(self, batch_shape: Shape, _instance: Distribution | None = None) -> LogNormalSpikeSlab:
        shape = torch.Size(batch_shape) + self.event_shape
        logits, m, s = (tensor.expand(shape) for tensor in (self.logits, self.log_loc, self.log_scale))
        return LogNormalSpikeSlab(logits, m, s, self.gate, False, finite=self.finite)

    def with_gates_open(self) -> LogNormalSpikeSlab:
        """The distribution with all gates open: the slabs."""
        return LogNormalSpikeSlab(torch.full_like(self.loc, torch.inf), self.log_loc, self.log_scale, self.gate, False)

    def slab(self, eps: Tensor, hard: bool) -> Tensor:
        return torch.addcmul(self.log_loc, self.log_scale, eps).exp()

    def slab_log_prob(self, value: Tensor) -> Tensor:
        """That of log z minus log z, the logarithm of the derivative; -inf for values below 0."""
        log_z = torch.where(value > 0, value, 1.0).log()
        eps = (log_z - self.log_loc) / self.log_scale
        found = -0.5 * eps.square() - self.log_scale.log() - HALF_LOG_2PI - log_z
        return torch.where(value < 0, -torch.inf, found)

    def slab_entropy(self) -> Tensor:
        return self.log_loc + self.log_scale.log() + 0.5 + HALF_LOG_2PI


@pair(LogNormalSpikeSlab, LogNormalSpikeSlab)
def _log_normal(q: LogNormalSpikeSlab, p: LogNormalSpikeSlab) -> Tensor:
    """The KL of spike-and-slabs whose slabs are the Gaussians of the logarithms."""
    return spike_slab_kl(q.logits, q.log_loc, q.log_scale, p.logits, p.log_loc, p.log_scale, finite=p.finite)


@register_kl(LogNormalSpikeSlab, LogNormalSpikeSlab)
def _torch_log_normal(q: LogNormalSpikeSlab, p: LogNormalSpikeSlab) -> Tensor:
    return _log_normal(q, p).sum(-1)


@draw_from.register
def _(q: SpikeSlab, noise: Noise, hard: bool) -> Tensor:
    return q.draw(noise.normal(q.loc), noise.uniform(q.loc), hard)
