"""Spike-and-slabs whose gates follow a mixture of patterns: which units are on together."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints
from torch.nn.functional import log_softmax, softplus

from sparsevae.distributions.gaussian import HALF_LOG_2PI
from sparsevae.distributions.kl import pair
from sparsevae.distributions.spike_slab import SpikeSlab, bernoulli_kl, spike_slab_kl
from sparsevae.sampling.choices import switch
from sparsevae.sampling.draw import draw_from
from sparsevae.sampling.noise import Noise


class PatternSpikeSlab(Distribution):
    r"""Gates of a mixture of C Bernoulli vectors, slabs N(0, 1):

    .. math:: p(z) = \sum_c \rho_c \prod_j \left[ (1 - \pi_{cj})\,\delta_0 + \pi_{cj}\,\mathcal N(0, 1) \right]

    Parameters
    ----------
    logits : Tensor (C, J)
        Logits of pi.
    weights : Tensor (C,)
        Logits of rho.
    """

    arg_constraints: ClassVar = {}
    support = constraints.real_vector

    def __init__(self, logits: Tensor, weights: Tensor, *, batch_shape: torch.Size | None = None) -> None:
        self.logits, self.weights = logits, weights
        super().__init__(batch_shape or torch.Size(), logits.shape[-1:], validate_args=False)

    def expand(self, batch_shape: Any, _instance: Distribution | None = None) -> PatternSpikeSlab:
        return PatternSpikeSlab(self.logits, self.weights, batch_shape=torch.Size(batch_shape))

    @property
    def p_on(self) -> Tensor:
        """P(unit is on) in the mixture, (..., J)."""
        found = torch.softmax(self.weights, -1) @ torch.sigmoid(self.logits)
        return found.expand(self._extended_shape())

    @property
    def mean(self) -> Tensor:
        return torch.zeros_like(self.p_on)

    @property
    def variance(self) -> Tensor:
        return self.p_on

    def scores(self, on: Tensor) -> Tensor:
        """log rho_c + sum_j log Bernoulli(on_j; pi_cj), linear in `on`, (..., J) -> (..., C)."""
        return on @ self.logits.T - softplus(self.logits).sum(-1) + log_softmax(self.weights, -1)

    def log_prob(self, value: Tensor) -> Tensor:
        on = value != 0
        slab = torch.where(on, -0.5 * value.square() - HALF_LOG_2PI, 0.0).sum(-1)
        return slab + torch.logsumexp(self.scores(on.to(value.dtype)), -1)

    def with_gates_open(self) -> SpikeSlab:
        """The distribution with all gates open: the slabs."""
        one = torch.ones(self._extended_shape()).to(self.logits)
        return SpikeSlab(torch.full_like(one, torch.inf), torch.zeros_like(one), one, validate_args=False)


@pair(SpikeSlab, PatternSpikeSlab, per_unit=False)
def _spike_slab_patterns(q: SpikeSlab, p: PatternSpikeSlab) -> Tensor:
    r"""An upper bound on the KL, (..., B): -log sum_c rho_c exp(-KL(q || p_c)).

    It is the least value, over weights w, of sum_c w_c KL(q || p_c) + KL(w || rho). The slabs' part is that of all
    components; that of the gates is a matrix product, since log Bernoulli is linear in the gates.
    """
    zero = torch.zeros_like(q.loc)
    one = torch.ones_like(q.loc)
    slabs = spike_slab_kl(q.logits, q.loc, q.scale, zero, zero, one, finite=True)  # includes KL_B(p_on; 1/2)
    gates = bernoulli_kl(q.logits, zero)
    p_on = q.p_on
    entropy = gates - 0.6931471805599453  # -H(p_on)
    return (slabs - gates + entropy).sum(-1) - torch.logsumexp(p.scores(p_on), -1)


@draw_from.register
def _(p: PatternSpikeSlab, noise: Noise, hard: bool) -> Tensor:
    u = noise.uniform(p.weights.new_empty((*p.batch_shape, 1)))
    rho = torch.softmax(p.weights, -1)
    index = torch.searchsorted(rho.cumsum(0), u).clamp_max(len(rho) - 1).squeeze(-1)
    logits = p.logits[index]
    return torch.where(switch(logits, noise.uniform(logits)), noise.normal(logits), 0.0)
