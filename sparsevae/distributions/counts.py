"""Counts, the code of SDLGM: of L0 draws, each "off" or one of K features, how many gave each feature."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints
from torch.distributions.utils import lazy_property
from torch.nn.functional import log_softmax, logsigmoid, pad

from sparsevae.checks import In
from sparsevae.distributions.discrete_draws import DiscreteCode
from sparsevae.distributions.kl import pair
from sparsevae.distributions.polynomials import products
from sparsevae.sampling.noise import Noise

_TINY = 1e-300  # a lower bound for doubles, so that their logarithm is finite
_NO_MASS = -1e30  # the log of a probability left out of a sum; the gradient of -inf would be NaN


class Counts(DiscreteCode):
    r"""The distribution of K counts: the sum over L0 draws of a gate times a one-hot feature.

    With gates :math:`\omega_l \sim \mathrm{Bernoulli}(\lambda)` and features :math:`c_l \sim \mathrm{Cat}(\pi)`,
    the code :math:`z = \sum_{l \le L_0} \omega_l e_{c_l}` is exactly multinomial (erratum 14): its probabilities are
    :math:`\lambda\pi_1, \dots, \lambda\pi_K`, and :math:`1 - \lambda` for "off",

    .. math:: q(z) = \frac{L_0!}{z_1! \cdots z_K!\, (L_0 - |z|)!}\,
       (1 - \lambda)^{L_0 - |z|} \prod_k (\lambda \pi_k)^{z_k}, \qquad |z| \le L_0.

    |z| counts draws, not features: a feature may be drawn twice, so at most L0 units are non-zero and often fewer
    (erratum 11). SDLGM's lambda is P(on) of one gate; `p_on` is that of a unit, P(z_k >= 1).

    Parameters
    ----------
    gate : Tensor (..., 1) or (...)
        logit(lambda), shared by all gates. With fewer dimensions than `features` a last dimension of 1 is added.
    features : Tensor (..., K)
        Logits of pi, up to a constant.
    cap : int
        L0, at least 1.
    estimator : callable, optional
        (distribution, noise) -> (..., K): the training draw, with a gradient. If None, only hard draws are defined.
    kl : {"tight", "paper"}
        The divergence to this distribution as a prior: the KL of the counts, or that of the paper, which is larger.
    batch_shape : torch.Size, optional
        Leading dimensions, if there are more than those of the logits: all share the same probabilities.
    """

    support = constraints.independent(constraints.nonnegative_integer, 1)

    def __init__(
        self,
        gate: Tensor,
        features: Tensor,
        cap: int,
        estimator: Callable[[Counts, Noise], Tensor] | None = None,
        *,
        kl: Literal["tight", "paper"] = "tight",
        batch_shape: torch.Size | None = None,
    ) -> None:
        In(1).check("cap", cap, "an integer of at least 1, the number of draws", whole=True)
        if kl not in ("tight", "paper"):
            raise ValueError(f"kl must be 'tight' (the KL of the counts) or 'paper' (the larger one), got {kl!r}.")
        gate = gate.unsqueeze(-1) if gate.dim() < features.dim() else gate
        if gate.shape[-1] != 1:
            raise ValueError(
                f"gate is one logit for all draws of an item: with features of shape {tuple(features.shape)} it "
                f"must be (..., 1), got {tuple(gate.shape)}."
            )
        self.gate, self.features = gate, features
        self.cap, self.kl = cap, kl
        self.estimator = estimator
        shape = torch.broadcast_shapes(gate.shape[:-1], features.shape[:-1]) if batch_shape is None else batch_shape
        super().__init__(shape, features.shape[-1:], validate_args=False)

    def expand(self, batch_shape: Any, _instance: Distribution | None = None) -> Counts:
        shape = torch.Size(batch_shape)
        return Counts(self.gate, self.features, self.cap, self.estimator, kl=self.kl, batch_shape=shape)

    @lazy_property
    def _categories(self) -> Tensor:
        off, on = torch.broadcast_tensors(logsigmoid(-self.gate), log_softmax(self.features, -1))
        return torch.cat((logsigmoid(self.gate) + on, off[..., :1]), -1)

    def categories(self) -> Tensor:
        """log-probabilities of one draw, (..., K + 1): log(lambda pi_k), and last log(1 - lambda)."""
        return self._categories

    @property
    def _log_on(self) -> Tensor:
        return self._categories[..., :-1]

    @property
    def mean(self) -> Tensor:
        """L0 lambda pi_k."""
        return (self.cap * self._log_on.exp()).expand(self._extended_shape())

    @property
    def variance(self) -> Tensor:
        """L0 p (1 - p) for p = lambda pi_k."""
        return self.mean * -torch.expm1(self._log_on)

    @property
    def p_on(self) -> Tensor:
        """P(z_k >= 1) = 1 - (1 - lambda pi_k)^L0, (*batch, K)."""
        p = self._log_on.exp()
        never = torch.log1p(-p.clamp_max(1 - torch.finfo(p.dtype).eps))  # the gradient at p = 1 would be infinite
        return -torch.expm1(self.cap * never).expand(self._extended_shape())

    @property
    def ranking(self) -> Tensor:
        """What `codes.capped` ranks units by, largest first, (*batch, K): log(lambda pi_k)."""
        return self._log_on.expand(self._extended_shape())

    @property
    def log_odds(self) -> Tensor:
        """log P(z_k >= 1) - log P(z_k = 0), (*batch, K); P(z_k = 0) = (1 - lambda pi_k)^L0, in logs throughout.

        At most one feature has lambda pi > 1/2, and that may be rounded to 1. Its 1 - lambda pi is the probability of
        "off" and of all other features, computed as their sum.
        """
        pi, gate = log_softmax(self.features, -1), logsigmoid(self.gate)
        on = gate + pi
        likely = on > -math.log(2)
        others = torch.logsumexp(pi.masked_fill(likely, _NO_MASS), -1, keepdim=True)
        left = torch.logaddexp(logsigmoid(-self.gate), gate + others)
        never = self.cap * torch.where(likely, left, torch.log1p(-on.masked_fill(likely, -1.0).exp()))
        # log P(z_k >= 1) = log(1 - e^never); where that underflows the probability is L0 lambda pi_k.
        rare = never > -1e-20
        ever = torch.where(rare, math.log(self.cap) + on, torch.log(-torch.expm1(never.masked_fill(rare, -1.0))))
        return (ever - never).expand(self._extended_shape())

    @property
    def mode(self) -> Tensor:
        """The most probable counts: each draw in turn goes to the category with the largest probability / (count + 1).

        One more draw of category k multiplies the probability by p_k / (count + 1) (and by a factor that is the same
        for all k), and this ratio falls with the count: the L0 largest ratios give the mode. Of equal ratios "off"
        comes first, then the first feature.
        """
        log_p = self._categories.roll(1, -1)
        counts, one = torch.zeros_like(log_p), torch.ones_like(log_p[..., :1])
        for _ in range(self.cap):
            best = (log_p - torch.log1p(counts)).argmax(-1, keepdim=True)
            counts = counts.scatter_add(-1, best, one)
        return counts[..., 1:].expand(self._extended_shape())

    def log_prob(self, value: Tensor) -> Tensor:
        """The multinomial log-probability, (..., B); -inf for values not whole or negative, or with a sum above L0."""
        rest = self.cap - value.sum(-1, keepdim=True)
        counts = torch.cat((value, rest), -1)
        inside = ((counts >= 0) & (counts == counts.floor())).all(-1)
        counts = torch.where(inside.unsqueeze(-1), counts, 0.0)
        each = counts * torch.where(counts == 0, 0.0, self._categories) - torch.lgamma(counts + 1)
        return torch.where(inside, math.lgamma(self.cap + 1) + each.sum(-1), -torch.inf)

    def set_log_prob(self, present: Tensor) -> Tensor:
        r"""log P(exactly these features are drawn), (..., B); present is (..., K), non-zero for those in the set.

        Inclusion and exclusion, :math:`\sum_{T \subseteq Y} (-1)^{|Y|-|T|} (1 - \lambda + \lambda\pi(T))^{L_0}`, has
        2^|Y| terms that nearly cancel. The same number is a coefficient of a product of power series. With
        p = lambda pi, m = L0 - |Y| and any scale r,

        .. math:: P(Y) = L_0! \prod_{k \in Y} p_k \; r^{-m} [t^m]\; e^{(1 - \lambda) r t} \prod_{k \in Y}
           \frac{e^{p_k r t} - 1}{p_k r t},

        where every term is positive: nothing cancels, for sets of any size. With r = m / (1 - lambda + p(Y)) the
        coefficient of degree m is near the largest, and each factor divided by its e^{p r} has coefficients with a sum
        of at most 1. In double precision.
        """
        K = self.features.shape[-1]
        if present.shape[-1] != K:
            raise ValueError(f"a set of {K} features must have the shape (..., {K}), got {tuple(present.shape)}.")
        log_p, there = torch.broadcast_tensors(self._log_on.double(), present != 0)
        size, off = there.sum(-1), self._categories[..., -1].double().exp()
        spare = (self.cap - size).clamp_min(0)

        # Only sets of up to L0 features have a probability above 0: their features are moved to the front. With "off"
        # they are the leaves of the tree.
        places = min(self.cap, K)
        order = torch.sort(there.to(torch.int8), dim=-1, descending=True, stable=True).indices[..., :places]
        there, log_p = there.gather(-1, order), log_p.gather(-1, order)
        rate = torch.where(there, log_p.exp(), 0.0)
        total = off + rate.sum(-1)
        scale = (spare.clamp_min(1) / total.clamp_min(_TINY)).detach()
        x = pad(rate, (0, (1 << places.bit_length()) - 1 - places)) * scale.unsqueeze(-1)
        leaves = (_series(x.movedim(-1, 0), self.cap, 1), _series((off * scale).unsqueeze(0), self.cap, 0))
        coefficient = products(torch.cat(leaves, 1), self.cap)[-1].squeeze(1).gather(0, spare.unsqueeze(0)).squeeze(0)

        inside = (size <= self.cap) & (coefficient > 0)
        log_c = torch.where(inside, coefficient, 1.0).log() + scale * total - spare * scale.log()
        log_set = math.lgamma(self.cap + 1) + torch.where(there, log_p, 0.0).sum(-1) + log_c
        return torch.where(inside, log_set, -torch.inf).to(self.features.dtype)

    def hard_draw(self, noise: Noise) -> Tensor:
        return self.tally(noise.uniform(self.features.new_empty((*self.batch_shape, self.cap))))

    def tally(self, u: Tensor) -> Tensor:
        """Counts of L0 draws from uniforms u (..., L0), by inverting the cumulative probabilities of the categories.

        Sums are in double precision, and u is scaled to the last sum: a category of probability 0 is never drawn.
        """
        shape = torch.broadcast_shapes(self.batch_shape, u.shape[:-1])
        sums = self._categories.detach().double().exp().cumsum(-1).expand(*shape, -1).contiguous()
        drawn = torch.searchsorted(sums, (u * sums[..., -1:]).contiguous())
        drawn = drawn.clamp_max(sums.shape[-1] - 1)  # where sums are NaN; training detects the NaN loss
        ones = torch.ones_like(drawn, dtype=self.features.dtype)
        return torch.zeros_like(sums, dtype=ones.dtype).scatter_add(-1, drawn, ones)[..., :-1]

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Hard draws from torch's global generator; inside the library `Draw` supplies the noise."""
        u = torch.rand_like(self.features.new_empty((*sample_shape, *self.batch_shape, self.cap)))
        return self.tally(u.clamp_min(torch.finfo(u.dtype).tiny))


def _series(x: Tensor, degree: int, more: int) -> Tensor:
    """e^-x x^c / (c + more)! for c = 0..degree; x (m, ...) -> (degree + 1, m, ...); 1, 0, 0, ... where x is 0."""
    c = torch.arange(degree + 1, device=x.device, dtype=x.dtype).reshape(-1, *(1 for _ in x.shape))
    terms = torch.exp(c * x.clamp_min(_TINY).log() - x - torch.lgamma(c + 1 + more))
    return torch.where(x > 0, terms, (c == 0).to(x.dtype))


def _categorical_kl(log_q: Tensor, log_p: Tensor) -> Tensor:
    """sum_k q_k (log q_k - log p_k), (..., c) twice -> (...); a term with q_k = 0 is 0."""
    q = log_q.exp()
    return (q * torch.where(q == 0, 0.0, log_q - log_p)).sum(-1)


@pair(Counts, Counts, per_unit=False)
def _counts(q: Counts, p: Counts) -> Tensor:
    """L0 [KL_B(lambda; lambda0) + lambda KL(pi || alpha)], (..., B): L0 times the KL of one draw's K + 1 categories.

    The KL of the SDLGM paper (equations 13 and 14; a prior with kl="paper") is L0 [KL_B + KL(pi || alpha)]: it includes
    the KL of a feature even where its gate is off (erratum 13). It is the KL of gates and features jointly. Since z is
    a function of them it is never smaller, and since p(x|z) depends on z alone it gives a bound on the same log p(x),
    a looser one.
    """
    if q.cap != p.cap:
        raise ValueError(
            f"KL(Counts || Counts) needs the same number of draws on both sides: q has cap={q.cap}, p has cap={p.cap}."
        )
    kl = _categorical_kl(q.categories(), p.categories())
    if p.kl == "paper":
        features = _categorical_kl(log_softmax(q.features, -1), log_softmax(p.features, -1))
        kl = kl + torch.sigmoid(-q.gate).squeeze(-1) * features
    return (q.cap * kl).expand(torch.broadcast_shapes(q.batch_shape, p.batch_shape))
