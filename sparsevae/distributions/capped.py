"""Capped: K Bernoulli gates conditioned on at most L0 of them being on."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints
from torch.distributions.utils import lazy_property
from torch.nn.functional import logsigmoid, pad

from sparsevae.checks import In
from sparsevae.distributions.discrete_draws import DiscreteCode
from sparsevae.distributions.gaussian import times
from sparsevae.distributions.kl import pair
from sparsevae.distributions.polynomials import outside, products
from sparsevae.distributions.spike_slab import bernoulli_kl, logit
from sparsevae.inputs.batch import blocks
from sparsevae.sampling.choices import switch
from sparsevae.sampling.noise import Noise


class Capped(DiscreteCode):
    r"""The distribution of K gates of which at most `cap` are on.

    .. math:: q(b) = e^{b \cdot a} / Z(a), \qquad b \in \{0, 1\}^K,\ |b| \le L_0

    This is the distribution of independent gates with p_on = sigmoid(a), conditioned on at most L0 of them being on.
    With L0 >= K the condition always holds, and the gates are independent.

    All exact quantities follow from the distribution of the number of gates that are on. It is computed for shifted
    gates, :math:`\tilde p = \mathrm{sigmoid}(a - \theta)`, where the shift theta >= 0 reduces their expected number to
    about L0. For any shift

    .. math:: q(b) = \frac1S \prod_k \tilde p_k^{b_k} (1 - \tilde p_k)^{1 - b_k}\; e^{-\theta (L_0 - |b|)},
       \qquad S = \sum_{n \le L_0} \tilde P(N = n)\, e^{-\theta (L_0 - n)},

    so the result does not depend on theta, and theta is a constant to autograd. With the theta chosen here S is never
    far below 1 (about e^-3 for 200 gates), for all logits: probabilities can be added and multiplied without
    logarithms, and single precision is enough where exp(a) itself would overflow. P~(N = n) are the coefficients of a
    product of K linear polynomials. A tree computes it in log2(K) batched operations; a pass down the tree gives the
    marginals or an exact draw.

    Parameters
    ----------
    logits : Tensor (..., K)
        a. `-inf`: the gate is never on; `inf`, for at most L0 gates: it is never off.
    cap : int
        L0, at least 1.
    estimator : callable, optional
        (distribution, noise) -> (..., K): the training draw, with a gradient. If None, only hard draws are defined.
    batch_shape : torch.Size, optional
        Leading dimensions, if there are more than those of the logits: all share the same probabilities.
    """

    arg_constraints: ClassVar = {"logits": constraints.independent(constraints.real, 1)}
    support = constraints.independent(constraints.boolean, 1)

    def __init__(
        self,
        logits: Tensor,
        cap: int,
        estimator: Callable[[Capped, Noise], Tensor] | None = None,
        *,
        batch_shape: torch.Size | None = None,
    ) -> None:
        In(1).check("cap", cap, "an integer of at least 1, the largest number of gates that are on", whole=True)
        self.logits = logits
        self.estimator = estimator
        self.cap = min(cap, logits.shape[-1])
        shape = logits.shape[:-1] if batch_shape is None else batch_shape
        super().__init__(shape, logits.shape[-1:], validate_args=False)

    def expand(self, batch_shape: Any, _instance: Distribution | None = None) -> Capped:
        return Capped(self.logits, self.cap, self.estimator, batch_shape=torch.Size(batch_shape))

    def copies(self, n: int) -> Capped:
        """Distribution of n copies of each row, in blocks: (*members, B) -> (*members, n B). They share one tree."""
        if n == 1:
            return self
        twin = Capped(blocks(self.logits, n), self.cap, self.estimator)
        if not self.unconstrained:
            twin._place = blocks(self._place[0], n), blocks(self._place[1], n)
            # The tree's last axis is that of rows.
            twin._levels = [level.repeat(*(1,) * (level.dim() - 1), n) for level in self._levels]
        return twin

    @property
    def unconstrained(self) -> bool:
        """True if L0 >= K: the gates are then independent."""
        return self.cap == self.logits.shape[-1]

    # -- the tree ------------------------------------------------------------------------------------------------

    @lazy_property
    def _place(self) -> tuple[Tensor, Tensor]:
        """theta as the sum of two parts, (..., 1) each: a logit c near theta, and theta - c.

        theta is such that about L0 of the gates with logits a - theta are on on average, or 0 if fewer than L0 are on
        with logits a. With a_(1) >= a_(2) >= ... the root of sum_k sigmoid(a_k - theta) = L0 lies between
        a_(L0 + 1) - log L0 (where L0 + 1 gates have p_on >= L0/(L0 + 1)) and a_(L0) + log(K - L0) (where all but L0 - 1
        have p_on < 1/(K - L0 + 1)). Bisection stops when the error is small relative to 1/sqrt(K), or relative to the
        gap between the two logits.

        c is max(a_(L0 + 1), 0). For logits near c the difference a - c is exact, while a - theta would be rounded to
        the spacing of numbers as large as a. Within a gap of more than 1e4 any theta is as good as any other, so the
        interval is clamped to +-1e4 around c; this also makes it finite for infinite logits.
        """
        K, far = self.logits.shape[-1], 1e4
        with torch.no_grad():
            if self.unconstrained:
                return torch.zeros_like(self.logits[..., :1]), torch.zeros_like(self.logits[..., :1])
            top = self.logits.topk(self.cap + 1).values
            near = top[..., -1:].clamp_min(0)
            a = self.logits - near
            upper, lower = (top[..., -2:] - near).clamp(-far, far).chunk(2, -1)
            low = lower - math.log(self.cap)
            high = upper + math.log(K - self.cap)
            rest = (low + high) / 2
            step = (high - low) / 4
            for _ in range(2 + (K.bit_length() + 1) // 2):
                rest = rest + step * torch.sign(torch.sigmoid(a - rest).sum(-1, keepdim=True) - self.cap)
                step = step / 2
            return near, torch.maximum(rest, -near)

    @property
    def shift(self) -> Tensor:
        """theta, (..., 1)."""
        near, rest = self._place
        return near + rest

    @lazy_property
    def shifted(self) -> Tensor:
        """a - theta, (..., K)."""
        near, rest = self._place
        return self.logits - near - rest

    @lazy_property
    def _levels(self) -> list[Tensor]:
        """All levels of the tree, from single gates (2, P, ...) to P~(N = n), (L0 + 1, 1, ...); P - K gates are off."""
        x = pad(self.shifted, (0, self.width - self.logits.shape[-1]), value=-torch.inf).movedim(-1, 0)
        return products(torch.stack((torch.sigmoid(-x), torch.sigmoid(x))), self.cap)

    @lazy_property
    def _below(self) -> Tensor:
        """L0 - n for n = 0..L0, (L0 + 1, 1, ...)."""
        below = torch.arange(self.cap, -1, -1, device=self.logits.device, dtype=self.logits.dtype)
        return below.reshape(-1, *(1 for _ in self.logits.shape[:-1]))

    @lazy_property
    def _weights(self) -> Tensor:
        """e^{-theta (L0 - n)} for n = 0..L0, (L0 + 1, ...)."""
        return torch.exp(-self._below * self.shift.squeeze(-1))

    @lazy_property
    def _numbers(self) -> Tensor:
        """P~(N = n) e^{-theta (L0 - n)} for n = 0..L0, (L0 + 1, ...): proportional to P(|b| = n)."""
        return self._weights * self._levels[-1].squeeze(1)

    @lazy_property
    def _share(self) -> Tensor:
        """S, (...)."""
        return self._numbers.sum(0)

    @lazy_property
    def log_share(self) -> Tensor:
        """log S, (...); 0 for independent gates."""
        return torch.zeros_like(self.logits[..., 0]) if self.unconstrained else self._share.log()

    @lazy_property
    def _marginals(self) -> tuple[Tensor, Tensor]:
        """P(b_k = 1) and P(b_k = 0), each (..., K): the gate's own factor times the weight of all other gates.

        The two products add up to S for every gate. They are divided by their own computed sum, so that rounding cannot
        give a probability above 1.
        """
        on, off = torch.sigmoid(self.shifted), torch.sigmoid(-self.shifted)
        if self.unconstrained:
            return on, off
        if_off, if_on = self._others()
        on, off = on * if_on, off * if_off
        share = on + off
        return on / share, off / share

    def _others(self) -> Tensor:
        """The weight of all other gates if gate k is off, and if it is on, (2, ..., K)."""
        return outside(self._levels, self._weights)[:, : self.logits.shape[-1]].movedim(1, -1)

    @lazy_property
    def unused(self) -> Tensor:
        """E[L0 - |b|], (...): the expected number of units by which the code stays below the limit."""
        return self._marginals[1].sum(-1) if self.unconstrained else (self._below * self._numbers).sum(0) / self._share

    # -- the distribution ----------------------------------------------------------------------------------------------

    @property
    def log_normaliser(self) -> Tensor:
        """log Z(a), (*batch): sum_k softplus(a_k - theta) + theta L0 + log S."""
        log_z = self.cap * self.shift.squeeze(-1) + self.log_share - logsigmoid(-self.shifted).sum(-1)
        return log_z.expand(self.batch_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        """b.a - log Z, (..., B), computed from the shifted gates, whose terms are small; -inf outside the support."""
        on = value.sum(-1)
        inside = ((value == 0) | (value == 1)).all(-1) & (on <= self.cap)
        gates = torch.where(value == 1, logsigmoid(self.shifted), logsigmoid(-self.shifted)).sum(-1)
        log_q = gates - self.shift.squeeze(-1) * (self.cap - on) - self.log_share
        return torch.where(inside, log_q, -torch.inf)

    set_log_prob = log_prob

    @property
    def log_odds(self) -> Tensor:
        """log P(b_k = 1) - log P(b_k = 0), (*batch, K): the shifted logit plus the log-ratio of `_others`."""
        odds = self.logits
        if not self.unconstrained:
            others = self._others()
            off, on = others.clamp_min(torch.finfo(others.dtype).tiny).log()
            odds = self.shifted + on - off
        return odds.expand(self._extended_shape())

    @property
    def p_on(self) -> Tensor:
        """P(unit is on), (*batch, K): the gradient of log Z."""
        return self._marginals[0].expand(self._extended_shape())

    @property
    def mean(self) -> Tensor:
        return self.p_on

    @property
    def variance(self) -> Tensor:
        on, off = self._marginals
        return (on * off).expand(self._extended_shape())

    @property
    def ranking(self) -> Tensor:
        """What `codes.capped` ranks units by, largest first, (*batch, K): the logits."""
        return self.logits.expand(self._extended_shape())

    @property
    def mode(self) -> Tensor:
        """The most probable code: the units with a > 0, at most the L0 largest of them; of equals the first."""
        best = torch.sort(self.logits, dim=-1, descending=True, stable=True).indices[..., : self.cap]
        chosen = torch.zeros_like(self.logits).scatter(-1, best, 1.0)
        return torch.where(self.logits > 0, chosen, 0.0).expand(self._extended_shape())

    def entropy(self) -> Tensor:
        """-E log q(b), (*batch): theta E[L0 - |b|] + log S - sum_k E log p~(b_k)."""
        on, off = self._marginals
        gates = (times(on, logsigmoid(self.shifted)) + times(off, logsigmoid(-self.shifted))).sum(-1)
        return (self.shift.squeeze(-1) * self.unused + self.log_share - gates).expand(self.batch_shape)

    # -- draws ---------------------------------------------------------------------------------------------------

    @property
    def width(self) -> int:
        """P, the number of uniforms per draw through the tree: one for the number of gates on, and one per node."""
        return 1 << (self.logits.shape[-1] - 1).bit_length()

    def through_tree(self, u: Tensor) -> Tensor:
        """An exact draw from uniforms u (..., P): first the number of gates on, then how it splits at each node.

        At a node with n gates on, i of them are in its left half with probability proportional to left_i right_{n-i}.
        """
        shape = torch.broadcast_shapes(self.batch_shape, u.shape[:-1])
        one = (1,) * (len(shape) - self.logits.dim() + 1)  # items that share one set of logits
        with torch.no_grad():
            u = u.expand(*shape, -1).movedim(-1, 0)
            numbers = self._numbers.reshape(-1, 1, *one, *self.logits.shape[:-1])
            n, used = _choose(numbers, u[:1]), 1  # (1, ...)
            for level in reversed(self._levels[:-1]):
                left, right = level.reshape(*level.shape[:2], *one, *level.shape[2:]).chunk(2, 1)  # (d + 1, m, ...)
                most, m = len(left) - 1, left.shape[1]
                # right_{n-i}, or 0 where there is no such degree; index n - i + d counts from the start of the padding.
                around = pad(right.flatten(1), (0, 0, most, most)).reshape(-1, *right.shape[1:])
                index = n + torch.arange(most, -1, -1, device=n.device).reshape(-1, *(1 for _ in n.shape))
                first = _choose(left * around.expand(-1, -1, *shape).gather(0, index), u[used : used + m])
                first = torch.minimum(first, n)  # rounding cannot exceed the limit
                n, used = torch.cat((first, (n - first).clamp_max(most))), used + m
            return n[: self.logits.shape[-1]].movedim(0, -1).to(self.logits.dtype)

    def through_gates(self, u: Tensor, v: Tensor) -> Tensor:
        r"""An exact draw that equals a draw of the independent gates wherever that has at most L0 ones.

        u (..., K) and v (..., P). Draw b' from independent gates, by `switch(logits, u)`, and c from this distribution,
        by the tree; take b' if it has at most L0 ones, else c. For |b| <= L0, P(b' = b) = q(b) P(|b'| <= L0), since q
        is the distribution of b' given that event; and c is independent of b'. So the draw is b with probability

        .. math:: q(b)\, P(|b'| \le L_0) + P(|b'| > L_0)\, q(b) = q(b).

        A relaxed gate computed from the same u has the same zeros, wherever the limit does not bind.
        """
        gates = switch(self.logits.detach(), u).to(self.logits.dtype)
        if self.unconstrained:
            return gates
        return torch.where(gates.sum(-1, keepdim=True) <= self.cap, gates, self.through_tree(v))

    def hard_draw(self, noise: Noise) -> Tensor:
        u, v = (noise.uniform(self.logits.new_empty((*self.batch_shape, n))) for n in (*self.event_shape, self.width))
        gates = switch(self.logits.detach(), u).to(self.logits.dtype)
        if bool((gates.sum(-1) <= self.cap).all()):  # the tree is needed for no row
            return gates.expand(self._extended_shape())
        return self.through_gates(u, v).expand(self._extended_shape())

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Hard draws from torch's global generator; inside the library `Draw` supplies the noise."""
        shape, tiny = (*sample_shape, *self.batch_shape), torch.finfo(self.logits.dtype).tiny
        u, v = (torch.rand_like(self.logits.new_empty((*shape, n))) for n in (*self.event_shape, self.width))
        return self.through_gates(u.clamp_min(tiny), v.clamp_min(tiny))


def shared_logit(n: int, cap: int, share: float) -> float:
    """The common logit a of n gates, at most `cap` of them on, with E|b| = share min(cap, n); 0 < share < 1.

    P(|b| = k) is proportional to C(n, k) e^{ak}. The root lies above the logit of n independent gates with the same
    E|b|, since the cap lowers E|b|. It lies below the a at which each of these numbers is at least
    r = 1 + 1/(cap (1 - share)) times the one before: there E[cap - |b|] is at most 1/(r - 1). Bisection in double
    precision, until no number lies between the two ends.
    """
    if cap >= n:
        return logit(share)
    k = torch.arange(cap + 1, dtype=torch.float64)
    log_c = torch.cat([k[:1], torch.log((n + 1 - k[1:]) / k[1:]).cumsum(0)])
    low = logit(share * cap / n)
    high = math.log1p(1 / (cap * (1 - share))) + math.log(cap) - math.log(n + 1 - cap)
    while low < (middle := (low + high) / 2) < high:
        if float((torch.softmax(log_c + middle * k, 0) * (k - share * cap)).sum()) < 0:
            low = middle
        else:
            high = middle
    return middle


def _choose(weights: Tensor, u: Tensor) -> Tensor:
    """An index drawn with probability proportional to weights (c, ...), by inverting their cumulative sum at u (...).

    Sums are in double precision: a parallel sum in single precision may rise by a rounding error at a weight of 0.
    """
    sums = weights.cumsum(0, dtype=torch.float64)
    return (sums < u * sums[-1]).sum(0)


def _independent(q: Capped, p: Capped) -> Tensor | None:
    """KL per gate, (..., B, K), if both distributions are unconstrained; else None, since the gates are dependent."""
    if not (q.unconstrained and p.unconstrained):
        return None
    return bernoulli_kl(q.logits, p.logits).expand(torch.broadcast_shapes(q._extended_shape(), p._extended_shape()))


@pair(Capped, Capped, per_unit=False, units=_independent)
def _capped(q: Capped, p: Capped) -> Tensor:
    """E b.(a - a0) - log Z(a) + log Z(a0), (..., B), summed over gates in the shifted logits x and x0:

    sum_k [on (log s(x) - log s(x0)) + off (log s(-x) - log s(-x0))] - (theta - theta0) E[L0 - |b|] - log S + log S0.
    """
    if q.cap != p.cap:
        raise ValueError(
            f"KL(Capped || Capped) needs the same limit on both sides: q has cap={q.cap}, p has cap={p.cap} (over "
            f"{q.event_shape[0]} gates). Make both with the same `cap`."
        )
    on, off = q._marginals
    x, x0 = q.shifted, p.shifted
    gates = times(on, logsigmoid(x) - logsigmoid(x0)) + times(off, logsigmoid(-x) - logsigmoid(-x0))
    kl = gates.sum(-1) - (q.shift - p.shift).squeeze(-1) * q.unused - q.log_share + p.log_share
    return kl.expand(torch.broadcast_shapes(q.batch_shape, p.batch_shape))
