"""Terms that papers add to the KL or use in its place: capacity, total correlation, MMD, aggregate sparsity.

Each maps a Trace to named values in nats per item; a term of the whole batch has shape (*members, 1). `objective` has
the NLL and the KL.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.distributions import Independent, Normal

from sparsevae.distributions.mixtures import Selected
from sparsevae.latent.model import Trace
from sparsevae.latent.objective import Term, kl
from sparsevae.latent.pseudo_inputs import normalised
from sparsevae.sampling.derivatives import first_only


class Capacity(nn.Module):
    """|mean over the batch of KL - C|, as `capacity_gap` (Burgess et al., 2018), and the KL for the record, as `kl_z`.

    The absolute value is of the batch mean, not the mean of absolute values. C is the knob `capacity`.
    """

    knobs: ClassVar[tuple[str, ...]] = ("capacity",)
    capacity: Tensor

    def __init__(self, nats: float) -> None:
        super().__init__()
        self.register_buffer("capacity", torch.tensor(float(nats)), persistent=False)

    def forward(self, trace: Trace) -> dict[str, Tensor]:
        terms = kl(trace)
        total = torch.stack([v.mean(-1) for v in terms.values()]).sum(0)
        return terms | {"capacity_gap": (total - self.capacity).abs().unsqueeze(-1)}


def weighted(n_rows: int, batch: int, like: Tensor) -> Tensor:
    """Minibatch-weighted sampling: log weights log(1/(N M)) for all pairs of the batch, (M, M).

    Biased (with N = 8, M = 4 and two units it gives MI 3.01 and TC 2.50, the true values being 1.24 and .49): MI is too
    large by log M, if posteriors do not overlap, up to log N, if they are all equal. Use its gradients, not its values.
    """
    return like.new_full((batch, batch), -math.log(n_rows * batch))


def stratified(n_rows: int, batch: int, like: Tensor) -> Tensor:
    """Minibatch-stratified sampling: log weights for which the estimate of q(z) is unbiased, (M, M).

    1/N for the row that z came from, (N - M')/(N M') for one other, 1/M' for the rest, M' = M - 1.
    """
    others = max(batch - 1, 1)
    row = torch.arange(batch, device=like.device)
    ahead = (row - row[:, None]) % batch  # no writes by index: a CUDA graph cannot read the index from the host
    one = math.log(max(n_rows - others, 1e-12) / (n_rows * others))
    rest = like.new_full((batch, batch), -math.log(others))
    return torch.where(ahead == 0, -math.log(n_rows), torch.where(ahead == 1, one, rest))


TC_ESTIMATORS: dict[str, Callable[[int, int, Tensor], Tensor]] = {"weighted": weighted, "stratified": stratified}
"""Log weights for estimating q(z) over N rows from a batch of M, by name."""


def total_correlation(n_rows: int, log_weights: Callable[[int, int, Tensor], Tensor]) -> Term:
    r"""The KL in three parts (Chen et al., 2018), as `mi`, `tc` and `dim_kl`; they add up to a one-sample KL.

    .. math:: E_x KL(q(z|x) \,\|\, p) = I(x; z) + KL(q(z) \,\|\, \textstyle\prod_j q(z_j))
       + \sum_j KL(q(z_j) \,\|\, p(z_j))

    With L_ik = log q(z_i | x_k) of every pair of the batch and log weights w_ik, log q(z_i) is
    logsumexp_k(w_ik + sum_j L_ikj) and log q(z_ij) is logsumexp_k(w_ik + L_ikj). The estimates depend on M, most
    strongly if it is small.
    """

    def term(trace: Trace) -> dict[str, Tensor]:
        site = trace.latents["z"]
        q = site.q.base_dist if isinstance(site.q, Independent) else site.q
        if not isinstance(q, Normal):
            raise TypeError(f"the total correlation is estimated for Gaussian posteriors, got {type(q).__name__}.")
        z = site.value.unsqueeze(-2)  # (..., M, 1, J) against rows (..., 1, M, J)
        pairs = Normal(q.loc.unsqueeze(-3), q.scale.unsqueeze(-3), validate_args=False).log_prob(z)
        log_w = log_weights(n_rows, q.loc.shape[-2], q.loc)
        joint = torch.logsumexp(log_w + pairs.sum(-1), -1)
        product = torch.logsumexp(log_w.unsqueeze(-1) + pairs, -2).sum(-1)
        conditional, prior = site.q.log_prob(site.value), site.p.log_prob(site.value)
        return {"mi": conditional - joint, "tc": joint - product, "dim_kl": product - prior}

    term.compares_rows = True  # type: ignore[attr-defined]
    return term


_KERNELS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


class _KernelSum(torch.autograd.Function):
    """Sum over kernels, pairs and units of k(a_i, b_k) = C / (C + d^2), (..., n, J) -> (...); hand-written gradient.

    dk/da = -2 C d / (C + d^2)^2 for d = a - b. The forward pass sums it over pairs, so that no n x n tensor is kept.
    """

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        apart = a.unsqueeze(-2) - b.unsqueeze(-3)
        square = apart.square()
        weights = [2 * s / (2 * s + square) for s in _KERNELS]
        if any(ctx.needs_input_grad):
            slope = sum(w * w / s for w, s in zip(weights, _KERNELS, strict=True)) * apart
            ctx.save_for_backward(-slope.sum(-2), slope.sum(-3))
        return torch.stack([w.sum((-3, -2, -1)) for w in weights]).sum(0)

    @staticmethod
    @first_only
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        by_a, by_b = ctx.saved_tensors
        return grad[..., None, None] * by_a, grad[..., None, None] * by_b


def mmd(trace: Trace) -> dict[str, Tensor]:
    r"""Squared maximum mean discrepancy between the batch of codes and a draw of the prior, as `mmd` (MAT).

    Per unit, kernels k(a, b) = C / (C + (a - b)^2) with C = 2s; sums over pairs i != k divided by n(n - 1), the cross
    sum times 2/n^2; summed over six s and over units. Its expectation is 0 if the distributions are equal.
    """
    site = trace.latents["z"]
    if site.reference is None:
        raise ValueError("the MMD compares with a draw of the prior, and site 'z' of this trace has none.")
    z, r, n = site.value, site.reference, site.value.shape[-2]
    if n < 2:  # undefined for one row
        return {"mmd": 0.0 * z.sum((-2, -1)).unsqueeze(-1)}

    def kernel(a: Tensor, b: Tensor) -> Tensor:
        total: Tensor = _KernelSum.apply(a, b)  # type: ignore[no-untyped-call]
        return total

    diagonal = len(_KERNELS) * n * z.shape[-1]  # k(a, a) = 1
    within = (kernel(z, z) + kernel(r, r) - 2 * diagonal) / max(n * (n - 1), 1)
    return {"mmd": (within - 2 * kernel(z, r) / n**2).unsqueeze(-1)}


class AggregateSparsity(nn.Module):
    """J KL_B(mean gate of the selected pseudo-inputs; alpha), as `sparsity`: keeps the learned prior sparse (VSC, UAI).

    The mean is over units, and over pseudo-inputs with the normalised weights of x. It is no part of the bound. `alpha`
    is a number, or for a stack of models one per member, (*members,).
    """

    knobs: ClassVar[tuple[str, ...]] = ("alpha",)
    alpha: Tensor

    def __init__(self, alpha: float | Tensor) -> None:
        super().__init__()
        value = alpha.unsqueeze(-1) if isinstance(alpha, Tensor) else torch.tensor(float(alpha))
        self.register_buffer("alpha", value, persistent=False)  # members: against (*members, B)

    def forward(self, trace: Trace) -> dict[str, Tensor]:
        p = trace.latents["z"].p
        if not isinstance(p, Selected):
            raise TypeError(f"aggregate sparsity needs a prior of pseudo-inputs, got a {type(p).__name__}.")
        choice = normalised(p.choice)
        gates = p.components.p_on.mean(-1)  # (U,), or (*members, U)
        on = (choice * (gates.unsqueeze(-2) if gates.dim() > 1 else gates)).sum(-1)
        off, tiny = 1 - on, torch.finfo(on.dtype).tiny  # log 0 would make the gradient NaN
        cost = on * (on.clamp_min(tiny) / self.alpha).log() + off * (off.clamp_min(tiny) / (1 - self.alpha)).log()
        return {"sparsity": p.event_shape[0] * cost}
