"""SDLGM's code: L0 draws, each of them off or one of K features; how often each feature came up."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints
from torch.distributions.utils import lazy_property
from torch.nn.functional import log_softmax, logsigmoid, pad

from sparsevae.distributions.kl import pair
from sparsevae.distributions.polynomials import products
from sparsevae.sampling.choices import Choice
from sparsevae.sampling.draw import draw_from
from sparsevae.sampling.noise import Noise

_SCALAR = torch.Size()
_TINY = 1e-300  # of doubles


class Counts(Distribution):
    r"""L0 gates times L0 one-hot features: the law of the sum, a vector of K counts.

    With gates :math:`\omega_l \sim \mathrm{Bernoulli}(\lambda)` and features :math:`c_l \sim \mathrm{Cat}(\pi)`,
    the code :math:`z = \sum_{l \le L_0} \omega_l e_{c_l}` is exactly multinomial (erratum 14): its probabilities are
    :math:`\lambda\pi_1, \dots, \lambda\pi_K`, and :math:`1 - \lambda` for a draw that is off,

    .. math:: q(z) = \frac{L_0!}{z_1! \cdots z_K!\, (L_0 - |z|)!}\,
       (1 - \lambda)^{L_0 - |z|} \prod_k (\lambda \pi_k)^{z_k}, \qquad |z| \le L_0.

    |z| counts draws, not features: a feature may be drawn twice, so at most L0 units are non-zero and often fewer
    (erratum 11). SDLGM's lambda is P(on) of one gate; `p_on` is that of a unit, P(z_k >= 1).

    Parameters
    ----------
    gate : Tensor (..., 1) or (...)
        logit(lambda), one for all gates; it counts as (..., 1) where it has as many dimensions as `features`.
    features : Tensor (..., K)
        Logits of pi, up to a constant.
    cap : int
        L0, at least 1.
    estimator : callable, optional
        (law, noise) -> (..., K): the draw that training takes, with a gradient. Without it only hard draws are defined.
    kl : {"tight", "paper"}
        What a divergence to this law, as a prior, charges: the KL of the counts, or the paper's, which is larger.
    batch_shape : torch.Size, optional
        The leading dimensions, where they are more than those of the logits. One law serves them all.
    """

    arg_constraints: ClassVar = {}
    support = constraints.independent(constraints.nonnegative_integer, 1)
    choice: Choice | None = None  # what the last relaxed draw chose, for the objective

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
        if cap < 1:
            raise ValueError(f"a code is made of `cap` draws: a whole number of at least 1 is needed, got {cap!r}.")
        if kl not in ("tight", "paper"):
            raise ValueError(f"kl must be 'tight' (the KL of the counts) or 'paper' (the larger one), got {kl!r}.")
        gate = gate.unsqueeze(-1) if gate.dim() < features.dim() else gate
        if gate.shape[-1] != 1:
            raise ValueError(
                f"one gate logit serves all draws of an item: with features of shape {tuple(features.shape)} it must "
                f"be (..., 1), got {tuple(gate.shape)}."
            )
        self.gate, self.features, self.cap, self.estimator, self.kl = gate, features, cap, estimator, kl
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
        """log-probabilities of one draw, (..., K + 1): log(lambda pi_k), and log(1 - lambda) in the last place."""
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
        never = torch.log1p(-p.clamp_max(1 - torch.finfo(p.dtype).eps))  # its gradient at p = 1 would be infinite
        return -torch.expm1(self.cap * never).expand(self._extended_shape())

    @property
    def ranking(self) -> Tensor:
        """Which units `codes.capped` keeps first, (*batch, K): the likeliest."""
        return self._log_on.expand(self._extended_shape())

    @property
    def expected(self) -> Tensor:
        """The expected number of units that are on, (*batch): the sum of p_on."""
        return self.p_on.sum(-1)

    @property
    def mode(self) -> Tensor:
        """The likeliest counts: draw after draw goes to the category with the largest probability / (count + 1).

        A draw more in category k multiplies the probability by p_k / (count + 1) (and by a factor that is the same
        for all), and these gains fall with the count: the L0 largest make up the mode. Of equal gains "off" comes
        first, then the first feature.
        """
        log_p = self._categories.roll(1, -1)
        counts, one = torch.zeros_like(log_p), torch.ones_like(log_p[..., :1])
        for _ in range(self.cap):
            best = (log_p - torch.log1p(counts)).argmax(-1, keepdim=True)
            counts = counts.scatter_add(-1, best, one)
        return counts[..., 1:].expand(self._extended_shape())

    def log_prob(self, value: Tensor) -> Tensor:
        """The multinomial's, (..., B); -inf where a value is not whole, negative, or above L0 in all."""
        rest = self.cap - value.sum(-1, keepdim=True)
        counts = torch.cat((value, rest), -1)
        inside = ((counts >= 0) & (counts == counts.floor())).all(-1)
        counts = torch.where(inside.unsqueeze(-1), counts, 0.0)
        each = counts * torch.where(counts == 0, 0.0, self._categories) - torch.lgamma(counts + 1)
        return torch.where(inside, math.lgamma(self.cap + 1) + each.sum(-1), -torch.inf)

    def set_log_prob(self, present: Tensor) -> Tensor:
        r"""log P(these features and no others came up), (..., B); present is (..., K), non-zero for those that did.

        Inclusion and exclusion, :math:`\sum_{T \subseteq Y} (-1)^{|Y|-|T|} (1 - \lambda + \lambda\pi(T))^{L_0}`, has
        2^|Y| terms of which nearly everything cancels. The same number is a coefficient of a product. With p = lambda
        pi, m = L0 - |Y| draws to spare and any scale r,

        .. math:: P(Y) = L_0! \prod_{k \in Y} p_k \; r^{-m} [t^m]\; e^{(1 - \lambda) r t} \prod_{k \in Y}
           \frac{e^{p_k r t} - 1}{p_k r t},

        where every term is positive: nothing cancels, and no set is too large. With r = m / (1 - lambda + p(Y)) the
        degree m is a likely one, and factors divided by their e^{p r} have sums of at most 1. In double precision.
        """
        K = self.features.shape[-1]
        if present.shape[-1] != K:
            raise ValueError(f"a set of {K} features is (..., {K}), got {tuple(present.shape)}.")
        log_p, there = torch.broadcast_tensors(self._log_on.double(), present != 0)
        size, off = there.sum(-1), self._categories[..., -1].double().exp()
        spare = (self.cap - size).clamp_min(0)

        # Only sets of up to L0 are possible: they go to the front, and with "off" they are the leaves of the tree.
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

    def draw(self, noise: Noise, hard: bool) -> Tensor:
        """The draw as a function of its noise, (*batch, K): hard ones count L0 categories, others ask the estimator."""
        if not hard:
            if self.estimator is None:
                raise ValueError(
                    "this Counts has no estimator, so it has no relaxed draw: give it one, or draw with hard=True."
                )
            return self.estimator(self, noise)
        return self.tally(noise.uniform(self.features.new_empty((*self.batch_shape, self.cap))))

    def tally(self, u: Tensor) -> Tensor:
        """Counts of L0 draws from uniforms u (..., L0), by inverting the sums of the categories' probabilities.

        Sums are in double precision, and u is scaled to the last one: a category of probability 0 is never drawn.
        """
        shape = torch.broadcast_shapes(self.batch_shape, u.shape[:-1])
        sums = self._categories.detach().double().exp().cumsum(-1).expand(*shape, -1).contiguous()
        drawn = torch.searchsorted(sums, (u * sums[..., -1:]).contiguous())
        drawn = drawn.clamp_max(sums.shape[-1] - 1)  # of sums that are NaN: training finds the loss so, and goes back
        ones = torch.ones_like(drawn, dtype=self.features.dtype)
        return torch.zeros_like(sums, dtype=ones.dtype).scatter_add(-1, drawn, ones)[..., :-1]

    def sample(self, sample_shape: Any = _SCALAR) -> Tensor:
        """Hard draws. Uses torch's global generator; inside the library `Draw` supplies the noise."""
        u = torch.rand_like(self.features.new_empty((*sample_shape, *self.batch_shape, self.cap)))
        return self.tally(u.clamp_min(torch.finfo(u.dtype).tiny))


def _series(x: Tensor, degree: int, more: int) -> Tensor:
    """e^-x x^c / (c + more)! for c = 0..degree; x (m, ...) -> (degree + 1, m, ...); 1, 0, 0, ... where x is 0."""
    c = torch.arange(degree + 1, device=x.device, dtype=x.dtype).reshape(-1, *(1 for _ in x.shape))
    terms = torch.exp(c * x.clamp_min(_TINY).log() - x - torch.lgamma(c + 1 + more))
    return torch.where(x > 0, terms, (c == 0).to(x.dtype))


def _categorical_kl(log_q: Tensor, log_p: Tensor) -> Tensor:
    """sum_k q_k (log q_k - log p_k), (..., c) twice -> (...); a category that q never takes costs nothing."""
    q = log_q.exp()
    return (q * torch.where(q == 0, 0.0, log_q - log_p)).sum(-1)


@pair(Counts, Counts, per_unit=False)
def _counts(q: Counts, p: Counts) -> Tensor:
    """L0 [KL_B(lambda; lambda0) + lambda KL(pi || alpha)], (..., B): L0 times the KL of one draw's K + 1 categories.

    SDLGM's own (equations 13 and 14; a prior with kl="paper") is L0 [KL_B + KL(pi || alpha)]: it charges a feature even
    where its gate is off (erratum 13). It is the KL of gates and features together, of which z is a function, so it is
    never smaller, and since p(x | .) sees z alone it gives a bound on the same log p(x): a looser one.
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


@draw_from.register
def _(q: Counts, noise: Noise, hard: bool) -> Tensor:
    return q.draw(noise, hard)
