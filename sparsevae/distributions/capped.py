"""Gates of which at most so many are on at once: K Bernoulli gates given that no more than L0 of them are on."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints
from torch.distributions.utils import lazy_property
from torch.nn.functional import logsigmoid, pad

from sparsevae.distributions.gaussian import times
from sparsevae.distributions.kl import pair
from sparsevae.distributions.polynomials import outside, products
from sparsevae.distributions.spike_slab import bernoulli_kl, logit
from sparsevae.inputs.batch import blocks
from sparsevae.sampling.choices import Choice, switch
from sparsevae.sampling.draw import draw_from
from sparsevae.sampling.noise import Noise

_SCALAR = torch.Size()


class Capped(Distribution):
    r"""K gates of which at most `cap` are on: the law of a code with a hard limit on its active units.

    .. math:: q(b) = e^{b \cdot a} / Z(a), \qquad b \in \{0, 1\}^K,\ |b| \le L_0

    which is that of independent gates with p_on = sigmoid(a), given that no more than L0 of them are on. With
    L0 >= K nothing is given, and the gates are independent.

    Everything exact follows from the law of the number of gates that are on. It is computed for shifted gates,
    :math:`\tilde p = \mathrm{sigmoid}(a - \theta)`, where the shift theta >= 0 brings their expected number down to
    about L0. For any shift

    .. math:: q(b) = \frac1S \prod_k \tilde p_k^{b_k} (1 - \tilde p_k)^{1 - b_k}\; e^{-\theta (L_0 - |b|)},
       \qquad S = \sum_{n \le L_0} \tilde P(N = n)\, e^{-\theta (L_0 - n)},

    so that theta is a constant of no consequence, which gradients do not see. But with this one S is never far below 1
    (about e^-3 for 200 gates), whatever the logits: probabilities can be added and multiplied as they are, and single
    precision is enough where exp(a) itself would overflow. P~(N = n) is a product of K linear polynomials, built in
    log2(K) batched operations by a tree that also gives the marginals, downwards, and exact draws.

    Parameters
    ----------
    logits : Tensor (..., K)
        a. `-inf` is a gate that is never on; `inf`, for at most L0 gates, one that is never off.
    cap : int
        L0, at least 1.
    estimator : callable, optional
        (law, noise) -> (..., K): the draw that training takes, with a gradient. Without it only hard draws are defined.
    batch_shape : torch.Size, optional
        The leading dimensions, where they are more than those of the logits. One law serves them all.
    """

    arg_constraints: ClassVar = {"logits": constraints.independent(constraints.real, 1)}
    support = constraints.independent(constraints.boolean, 1)
    choice: Choice | None = None  # what the last relaxed draw chose, for the objective

    def __init__(
        self,
        logits: Tensor,
        cap: int,
        estimator: Callable[[Capped, Noise], Tensor] | None = None,
        *,
        batch_shape: torch.Size | None = None,
    ) -> None:
        if cap < 1:
            raise ValueError(f"at most `cap` gates are on: a whole number of at least 1 is needed, got {cap!r}.")
        self.logits, self.estimator = logits, estimator
        self.cap = min(cap, logits.shape[-1])
        shape = logits.shape[:-1] if batch_shape is None else batch_shape
        super().__init__(shape, logits.shape[-1:], validate_args=False)

    def expand(self, batch_shape: Any, _instance: Distribution | None = None) -> Capped:
        return Capped(self.logits, self.cap, self.estimator, batch_shape=torch.Size(batch_shape))

    def copies(self, n: int) -> Capped:
        """The laws of n copies of every row, in blocks: (*members, B) -> (*members, n B). One tree serves all."""
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
        """Whether the limit binds nothing, L0 >= K: the gates are then independent."""
        return self.cap == self.logits.shape[-1]

    # -- the tree ------------------------------------------------------------------------------------------------

    @lazy_property
    def _place(self) -> tuple[Tensor, Tensor]:
        """theta in two parts, (..., 1) each: the logit c that it lies near, and what is left.

        About L0 of the gates with logits a - theta are on in the mean, or theta is 0 if fewer are with a. With a_(1) >=
        a_(2) >= ... the root of sum_k sigmoid(a_k - theta) = L0 lies between a_(L0 + 1) - log L0 (where L0 + 1 gates
        have p_on >= L0/(L0 + 1)) and a_(L0) + log(K - L0) (where all but L0 - 1 have p_on < 1/(K - L0 + 1)). That is
        halved until the error is small beside 1/sqrt(K), or beside the gap between the two logits.

        c is a_(L0 + 1), or 0 if that is below. Logits near it are told apart by a - c, which is exact, while a - theta
        would round to the spacing of numbers as large as a. In a gap of more than 1e4 every place is as good, so that
        no more of it is looked at and infinite logits have a place too.
        """
        K, far = self.logits.shape[-1], 1e4
        with torch.no_grad():
            if self.unconstrained:
                return torch.zeros_like(self.logits[..., :1]), torch.zeros_like(self.logits[..., :1])
            top = self.logits.topk(self.cap + 1).values
            near = top[..., -1:].clamp_min(0)
            a, top = self.logits - near, (top[..., -2:] - near).clamp(-far, far)
            low, high = top[..., 1:] - math.log(self.cap), top[..., :1] + math.log(K - self.cap)
            rest, step = (low + high) / 2, (high - low) / 4
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
        """The tree, from single gates (2, P, ...) to the number that is on (L0 + 1, 1, ...); gates past K are off."""
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
        """P~(N = n) e^{-theta (L0 - n)} for n = 0..L0, (L0 + 1, ...): in proportion to the law of |b|."""
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
        """P(b_k = 1) and P(b_k = 0), each (..., K): what the gate says times what all others say.

        The sum of the two is S for every gate. Each gate is divided by its own, so that no rounding passes 1.
        """
        on, off = torch.sigmoid(self.shifted), torch.sigmoid(-self.shifted)
        if self.unconstrained:
            return on, off
        others = outside(self._levels, self._weights)[:, : on.shape[-1]].movedim(1, -1)
        on, off = on * others[1], off * others[0]
        share = on + off
        return on / share, off / share

    @lazy_property
    def unused(self) -> Tensor:
        """E[L0 - |b|], (...): how far below the limit the code stays in the mean."""
        return self._marginals[1].sum(-1) if self.unconstrained else (self._below * self._numbers).sum(0) / self._share

    # -- the law -------------------------------------------------------------------------------------------------

    @property
    def log_normaliser(self) -> Tensor:
        """log Z(a), (*batch): sum_k softplus(a_k - theta) + theta L0 + log S."""
        log_z = self.cap * self.shift.squeeze(-1) + self.log_share - logsigmoid(-self.shifted).sum(-1)
        return log_z.expand(self.batch_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        """b.a - log Z by way of the shifted gates, whose terms are small; -inf off the support."""
        on = value.sum(-1)
        inside = ((value == 0) | (value == 1)).all(-1) & (on <= self.cap)
        gates = torch.where(value == 1, logsigmoid(self.shifted), logsigmoid(-self.shifted)).sum(-1)
        log_q = gates - self.shift.squeeze(-1) * (self.cap - on) - self.log_share
        return torch.where(inside, log_q, -torch.inf)

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
        """Which units `codes.capped` keeps first, (*batch, K): the likeliest."""
        return self.logits.expand(self._extended_shape())

    @property
    def expected(self) -> Tensor:
        """E |b|, the expected number of units that are on, (*batch); its own sum, since L0 less `unused` may cancel."""
        on = (
            self._marginals[0].sum(-1)
            if self.unconstrained
            else (self._below.flip(0) * self._numbers).sum(0) / self._share
        )
        return on.expand(self.batch_shape)

    @property
    def mode(self) -> Tensor:
        """The likeliest code: on where a > 0, and of these the L0 largest; the first of equals."""
        best = torch.sort(self.logits, dim=-1, descending=True, stable=True).indices[..., : self.cap]
        chosen = torch.zeros_like(self.logits).scatter(-1, best, 1.0)
        return torch.where(self.logits > 0, chosen, 0.0).expand(self._extended_shape())

    def entropy(self) -> Tensor:
        """-E log q(b), (*batch): that of the shifted gates at the true marginals, and what the limit adds."""
        on, off = self._marginals
        gates = (times(on, logsigmoid(self.shifted)) + times(off, logsigmoid(-self.shifted))).sum(-1)
        return (self.shift.squeeze(-1) * self.unused + self.log_share - gates).expand(self.batch_shape)

    # -- draws ---------------------------------------------------------------------------------------------------

    @property
    def width(self) -> int:
        """How many uniforms a draw through the tree takes: P, one for the number that is on and one for each node."""
        return 1 << (self.logits.shape[-1] - 1).bit_length()

    def through_tree(self, u: Tensor) -> Tensor:
        """An exact draw from uniforms u (..., P): the number that is on, then its halves, down to single gates.

        At a node with n gates on, i of them are on its left with probability proportional to left_i right_{n-i}.
        """
        shape = torch.broadcast_shapes(self.batch_shape, u.shape[:-1])
        one = (1,) * (len(shape) - self.logits.dim() + 1)  # where one law serves several items
        with torch.no_grad():
            u = u.expand(*shape, -1).movedim(-1, 0)
            numbers = self._numbers.reshape(-1, 1, *one, *self.logits.shape[:-1])
            n, used = _choose(numbers, u[:1]), 1  # (1, ...)
            for level in reversed(self._levels[:-1]):
                left, right = level.reshape(*level.shape[:2], *one, *level.shape[2:]).chunk(2, 1)  # (d + 1, m, ...)
                most, m = len(left) - 1, left.shape[1]
                # right_{n-i}, zero where there is no such degree: n - i + d counts from the start of the padding.
                around = pad(right.flatten(1), (0, 0, most, most)).reshape(-1, *right.shape[1:])
                index = n + torch.arange(most, -1, -1, device=n.device).reshape(-1, *(1 for _ in n.shape))
                first = _choose(left * around.expand(-1, -1, *shape).gather(0, index), u[used : used + m])
                first = torch.minimum(first, n)  # so that no rounding could ever pass the limit
                n, used = torch.cat((first, (n - first).clamp_max(most))), used + m
            return n[: self.logits.shape[-1]].movedim(0, -1).to(self.logits.dtype)

    def through_gates(self, u: Tensor, v: Tensor) -> Tensor:
        r"""An exact draw that is the independent gates' own wherever it can be; u (..., K), v (..., P).

        Draw b' from independent gates, by `switch(logits, u)`, and c from this law, by the tree, and take b' if it
        has at most L0 ones, else c. For |b| <= L0 it is P(b' = b) = q(b) P(|b'| <= L0), since q is the law of b' given
        that event; and c is independent of b'. So the draw is b with probability

        .. math:: q(b)\, P(|b'| \le L_0) + P(|b'| > L_0)\, q(b) = q(b).

        A relaxed gate that sees the same u has the same zeros, wherever the limit does not bind.
        """
        gates = switch(self.logits.detach(), u).to(self.logits.dtype)
        if self.unconstrained:
            return gates
        return torch.where(gates.sum(-1, keepdim=True) <= self.cap, gates, self.through_tree(v))

    def draw(self, noise: Noise, hard: bool) -> Tensor:
        """The draw as a function of its noise, (*batch, K): hard ones through the gates, others by the estimator."""
        if not hard:
            if self.estimator is None:
                raise ValueError(
                    "this Capped has no estimator, so it has no relaxed draw: give it one, or draw with hard=True."
                )
            return self.estimator(self, noise)
        u, v = (noise.uniform(self.logits.new_empty((*self.batch_shape, n))) for n in (*self.event_shape, self.width))
        gates = switch(self.logits.detach(), u).to(self.logits.dtype)
        if bool((gates.sum(-1) <= self.cap).all()):  # outside training the tree is climbed only where it is needed
            return gates.expand(self._extended_shape())
        return self.through_gates(u, v).expand(self._extended_shape())

    def sample(self, sample_shape: Any = _SCALAR) -> Tensor:
        """Hard draws. Uses torch's global generator; inside the library `Draw` supplies the noise."""
        shape, tiny = (*sample_shape, *self.batch_shape), torch.finfo(self.logits.dtype).tiny
        u, v = (torch.rand_like(self.logits.new_empty((*shape, n))) for n in (*self.event_shape, self.width))
        return self.through_gates(u.clamp_min(tiny), v.clamp_min(tiny))


def shared_logit(n: int, cap: int, share: float) -> float:
    """The logit a of n gates alike, at most `cap` of them on, with E|b| = share min(cap, n); 0 < share < 1.

    P(|b| = k) is in proportion to C(n, k) e^{ak}. The root lies above the logit of gates that know of no cap, which
    takes from them, and below the a where each of these numbers is r = 1 + 1/(cap (1 - share)) times the one before or
    more: then E[cap - |b|] is at most 1/(r - 1). It is halved in double precision until nothing is left between.
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
    """An index drawn in proportion to weights (c, ...), by inverting their sums at u (...).

    Sums are in double precision: a parallel sum of singles may rise by a rounding error where the weight is 0.
    """
    sums = weights.cumsum(0, dtype=torch.float64)
    return (sums < u * sums[-1]).sum(0)


def _independent(q: Capped, p: Capped) -> Tensor | None:
    """KL of every gate, (..., B, K), where the limit binds neither law; None where it ties the gates together."""
    if not (q.unconstrained and p.unconstrained):
        return None
    return bernoulli_kl(q.logits, p.logits).expand(torch.broadcast_shapes(q._extended_shape(), p._extended_shape()))


@pair(Capped, Capped, per_unit=False, units=_independent)
def _capped(q: Capped, p: Capped) -> Tensor:
    """E b.(a - a0) - log Z(a) + log Z(a0), (..., B), gate by gate in the shifted logits x and x0:

    sum_k [on (log s(x) - log s(x0)) + off (log s(-x) - log s(-x0))] - (theta - theta0) E[L0 - |b|] - log S + log S0.
    """
    if q.cap != p.cap:
        raise ValueError(
            f"KL(Capped || Capped) needs one limit on both sides: q has cap={q.cap}, p has cap={p.cap} (over "
            f"{q.event_shape[0]} gates). Make both with the same `cap`."
        )
    on, off = q._marginals
    x, x0 = q.shifted, p.shifted
    gates = times(on, logsigmoid(x) - logsigmoid(x0)) + times(off, logsigmoid(-x) - logsigmoid(-x0))
    kl = gates.sum(-1) - (q.shift - p.shift).squeeze(-1) * q.unused - q.log_share + p.log_share
    return kl.expand(torch.broadcast_shapes(q.batch_shape, p.batch_shape))


@draw_from.register
def _(q: Capped, noise: Noise, hard: bool) -> Tensor:
    return q.draw(noise, hard)
