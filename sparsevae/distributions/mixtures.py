"""Mixtures: of two Gaussians per unit (MAT, HSVAE), or of several spike-and-slabs for the whole code (VSC, UAI)."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.distributions import Distribution, Normal, constraints
from torch.nn.functional import logsigmoid

from sparsevae.distributions.gaussian import HALF_LOG_2PI, normal
from sparsevae.distributions.kl import pair
from sparsevae.distributions.spike_slab import SpikeSlab, spike_slab_kl
from sparsevae.sampling.choices import BITS, Choice
from sparsevae.sampling.draw import draw_from
from sparsevae.sampling.gradients import Estimator
from sparsevae.sampling.noise import Noise


class TwoNormals(Distribution):
    r"""A narrow Gaussian with probability `off`, else a wide one, per unit: sparse without a point mass (MAT, HSVAE).

    .. math:: p(z_j) = \gamma_j\,\mathcal N(0, s^2) + (1 - \gamma_j)\,\mathcal N(\mu_j, \sigma_j^2)

    The papers' gamma is P(off) = 1 - p_on. With mu = 0 and sigma = 1 it is the prior of both papers; in general it is
    HSVAE's posterior.

    Parameters
    ----------
    off : Tensor (..., J) or ()
        Probability of the narrow component, in [0, 1).
    spike : float
        Its standard deviation s.
    n_components : int
        Number of units J.
    logits : Tensor (..., J), optional
        Logits of p_on = 1 - off, by default computed from `off`; pass them if `off` may be rounded to 1.
    loc, scale : Tensor (..., J), optional
        mu and sigma of the wide component; by default 0 and 1.
    gate : Estimator, optional
        Passes a gradient through the choice of a component in training. If None, no gradient passes.
    """

    arg_constraints: ClassVar = {"off": constraints.unit_interval}
    support = constraints.real_vector
    choice: Choice | None = None  # of the last training draw, for the objective
    on: Tensor | None = None  # which units were on in the last hard draw, (..., J): values do not determine it

    def __init__(
        self,
        off: Tensor,
        spike: float,
        n_components: int,
        *,
        logits: Tensor | None = None,
        loc: Tensor | None = None,
        scale: Tensor | None = None,
        gate: Estimator | None = None,
        batch_shape: torch.Size | None = None,
    ) -> None:
        self.off, self.spike, self.gate = off, spike, gate
        self.logits = torch.log1p(-off) - off.log() if logits is None else logits
        self.loc = off.new_zeros(()) if loc is None else loc
        self.scale = off.new_ones(()) if scale is None else scale
        super().__init__(batch_shape or torch.Size(), torch.Size([n_components]), validate_args=False)

    def expand(self, batch_shape: Any, _instance: Distribution | None = None) -> TwoNormals:
        own = {k: getattr(self, k) for k in ("off", "spike", "logits", "loc", "scale", "gate")}
        return TwoNormals(**own, n_components=self.event_shape[0], batch_shape=torch.Size(batch_shape))

    @property
    def p_on(self) -> Tensor:
        """P(unit is on), (..., J)."""
        return torch.sigmoid(self.logits).expand(self._extended_shape())

    @property
    def mean(self) -> Tensor:
        return self.p_on * self.loc

    @property
    def variance(self) -> Tensor:
        return self.p_on * (self.scale.square() + self.off * self.loc.square()) + self.off * self.spike**2

    @property
    def mode(self) -> Tensor:
        """The mode of the more probable component: loc where p_on > 1/2, exact zero elsewhere."""
        return torch.where(self.logits > 0, self.loc, 0.0).expand(self._extended_shape())

    @property
    def ranking(self) -> Tensor:
        """What `codes.capped` ranks units by, largest first, (..., J): the logits."""
        return self.logits.expand(self._extended_shape())

    def with_gates_open(self) -> Distribution:
        """The distribution with all units on: the wide components."""
        shape = self._extended_shape()
        return normal(self.loc.expand(shape), self.scale.expand(shape))

    def unit_log_prob(self, value: Tensor) -> Tensor:
        """log p(z_j) of each unit, (..., J); with off = 0 the narrow component has no mass."""
        narrow = -0.5 * value.square() / self.spike**2 - math.log(self.spike) + logsigmoid(-self.logits)
        wide = -0.5 * ((value - self.loc) / self.scale).square() - self.scale.log() + logsigmoid(self.logits)
        return torch.logaddexp(narrow, wide) - HALF_LOG_2PI

    def log_prob(self, value: Tensor) -> Tensor:
        return self.unit_log_prob(value).sum(-1)


@pair(Normal, TwoNormals, monte_carlo=True)
def _normal_two_normals(q: Normal, p: TwoNormals, value: Tensor) -> Tensor:
    """One-sample estimate, per unit: there is no closed form."""
    estimate: Tensor = q.log_prob(value) - p.unit_log_prob(value)
    return estimate


@pair(TwoNormals, TwoNormals, monte_carlo=True)
def _two_normals(q: TwoNormals, p: TwoNormals, value: Tensor) -> Tensor:
    """One-sample estimate, per unit."""
    return q.unit_log_prob(value) - p.unit_log_prob(value)


@draw_from.register
def _(p: TwoNormals, noise: Noise, hard: bool) -> Tensor:
    """A draw of one of the two components; a relaxed one with a `gate` w is w (loc + scale e) + (1 - w) s e'.

    A relaxed draw takes two normal variables, e and e'; a hard one takes one.
    """
    like = p.mean
    u, eps = noise.uniform(like), noise.normal(like)
    if hard or p.gate is None:
        p.on = u >= p.off
        return torch.where(p.on, p.loc + p.scale * eps, p.spike * eps)
    eps, other = p.gate.couple(eps), p.gate.couple(noise.normal(like))
    p.choice = p.gate.choose(BITS, p.logits, u)
    w = p.choice.value
    return w * (p.loc + p.scale * eps) + (1 - w) * p.spike * other


def spike_slab(
    logits: Tensor, loc: Tensor, scale: Tensor, spike: float, gate: Estimator | None = None
) -> SpikeSlab | TwoNormals:
    """Gates and slabs, all (..., J); a unit that is off is exactly zero, or N(0, spike^2) if `spike` is above 0."""
    if spike:
        logits, loc, scale = torch.broadcast_tensors(logits, loc, scale)
        slab: dict[str, Any] = {"logits": logits, "loc": loc, "scale": scale, "gate": gate}
        return TwoNormals(torch.sigmoid(-logits), spike, loc.shape[-1], **slab, batch_shape=loc.shape[:-1])
    return SpikeSlab(logits, loc, scale, gate, validate_args=False, finite=True)


class SpikeSlabMixture(Distribution):
    r"""sum_u rho_u prod_j SpikeSlab_uj(z_j): one component is drawn for the whole code, not one per unit.

    Parameters
    ----------
    components : SpikeSlab (..., U, J)
        The spike-and-slabs.
    weights : Tensor (U,) or (*members, U)
        rho, non-negative with sum 1.
    """

    arg_constraints: ClassVar = {}
    support = constraints.real_vector

    def __init__(self, components: SpikeSlab, weights: Tensor, *, batch_shape: torch.Size | None = None) -> None:
        self.components, self.weights = components, weights
        shape = components.batch_shape[:-1] if batch_shape is None else batch_shape
        super().__init__(shape, components.event_shape, validate_args=False)

    def expand(self, batch_shape: Any, _instance: Distribution | None = None) -> SpikeSlabMixture:
        return SpikeSlabMixture(self.components, self.weights, batch_shape=torch.Size(batch_shape))

    def _average(self, values: Tensor) -> Tensor:
        """The weighted mean over components, (..., U, J) -> (*batch, J)."""
        mean = (self.weights.unsqueeze(-1) * values).sum(-2)
        if len(self.batch_shape) >= mean.dim() > 1:
            mean = mean.unsqueeze(-2)
        return mean.expand(self._extended_shape())

    @property
    def _log_weights(self) -> Tensor:
        """log rho, (U,) or (*members, 1, U), which broadcasts against rows."""
        log_rho = self.weights.log()
        return log_rho.unsqueeze(-2) if log_rho.dim() > 1 else log_rho

    @property
    def mean(self) -> Tensor:
        return self._average(self.components.mean)

    @property
    def variance(self) -> Tensor:
        return self._average(self.components.variance + self.components.mean.square()) - self.mean.square()

    def log_prob(self, value: Tensor) -> Tensor:
        """log sum_u rho_u prod_j p_u(z_j), (..., B); the sum over u is outside the product over units (erratum 32)."""
        c = self.components
        if len(c.batch_shape) > 1:  # members: (..., 1, U, J) against (..., B, 1, J)
            c = SpikeSlab(c.logits.unsqueeze(-3), c.loc.unsqueeze(-3), c.scale.unsqueeze(-3), validate_args=False)
        return torch.logsumexp(self._log_weights + c.log_prob(value.unsqueeze(-2)), -1)

    def with_gates_open(self) -> SpikeSlabMixture:
        """The mixture with all gates open."""
        return SpikeSlabMixture(self.components.with_gates_open(), self.weights, batch_shape=self.batch_shape)


@draw_from.register
def _(p: SpikeSlabMixture, noise: Noise, hard: bool) -> Tensor:
    if len(p.components.batch_shape) > 1:
        raise NotImplementedError("a mixture with member dimensions has no draw; take one member.")
    u = noise.uniform(p.weights.new_empty((*p.batch_shape, 1)))
    index = torch.searchsorted(p.weights.cumsum(0), u).clamp_max(len(p.weights) - 1).squeeze(-1)
    c = p.components
    return draw_from(SpikeSlab(c.logits[index], c.loc[index], c.scale[index], validate_args=False), noise, hard)


class Selected(SpikeSlabMixture):
    r"""The mixture with weights w(x) over its components, which the divergence uses in place of rho.

    .. math:: KL(q \,\|\, \textstyle\sum_u \rho_u p_u) \le \sum_u w_u KL(q \,\|\, p_u) + KL(w \,\|\, \rho)

    for any w (erratum 32): `divergence` is the right side. `log_prob` is that of the mixture with weights rho, so that
    bounds hold.

    Parameters
    ----------
    choice : Tensor (..., B, U)
        w(x). In the paper it is not normalised.
    charged : bool
        Whether the divergence includes KL(w || rho); the published objectives omit it.
    """

    def __init__(self, components: SpikeSlab, weights: Tensor, choice: Tensor, *, charged: bool) -> None:
        super().__init__(components, weights, batch_shape=choice.shape[:-1])
        self.choice, self.charged = choice, charged

    @property
    def selection_cost(self) -> Tensor | None:
        """KL(w || rho), which `divergence` adds to the sum over units, (..., B); None if it is not charged."""
        if not self.charged:
            return None
        w = self.choice
        log_w = w.clamp_min(torch.finfo(w.dtype).tiny).log()  # log 0 would make the gradient NaN
        return (w * (log_w - self._log_weights)).sum(-1)


@pair(SpikeSlab, Selected)
def _spike_slab_selected(q: SpikeSlab, p: Selected) -> Tensor:
    """sum_u w_u KL(q_j || p_uj), (..., B, J); in memory (..., B, U, J)."""
    c = p.components
    rows = [t.unsqueeze(-2) for t in (q.logits, q.loc, q.scale)]
    each = spike_slab_kl(*rows, *(t.unsqueeze(-3) for t in (c.logits, c.loc, c.scale)), finite=c.finite)
    return torch.einsum("...bu,...buj->...bj", p.choice, each)
