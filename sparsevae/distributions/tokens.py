"""The distribution of a sentence, computed without all of its logits in memory."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints
from torch.nn.functional import linear, pad, softmax

from sparsevae.checks import In
from sparsevae.sampling.derivatives import first_only
from sparsevae.text.ids import EOS, spoken

CHUNK = 8192
"""Positions computed at once: 328 MB of logits in bfloat16 for 20,000 words, and as much for probabilities."""
KEEP = 3 * 2**29
"""Largest bytes of probabilities kept for the backward pass: 40,000 positions in bfloat16 for 20,000 words."""


def _up(n: int) -> int:
    """n rounded up to a multiple of 8, for which tensor cores are three times as fast."""
    return -(-n // 8) * 8


def _aligned(weight: Tensor, bias: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """W and b in `dtype`, with tokens of probability 0 added to make their number a multiple of 8."""
    extra = _up(len(bias)) - len(bias)
    return pad(weight.to(dtype), (0, 0, 0, extra)), pad(bias.to(dtype), (0, extra), value=-torch.inf)


def _sum_by_token(rows: Tensor, tokens: Tensor, n: int) -> Tensor:
    """The sum of rows per token, (N, H), (N,) -> (n, H): the gradient of an embedding; deterministic."""
    found: Tensor = torch.ops.aten.embedding_dense_backward(rows, tokens, n, -1, False)
    return found


def _product(a: Tensor, b: Tensor, wide: torch.dtype) -> Tensor:
    """a @ b with sums in `wide`: rounded, they would lose the small differences of nearly equal sums."""
    if a.dtype == wide:
        return a @ b
    return torch.mm(a, b, out_dtype=wide) if a.is_cuda else a.to(wide) @ b.to(wide)


class _TokenLogProb(torch.autograd.Function):
    r"""log softmax(W h + b)_t of N positions, `chunk` of them at once.

    With l = W h + b and p = softmax(l), l_t - max l + log max p is the logarithm of p_t, and cannot underflow. With g
    the gradient of the result and e_t the one-hot vector of the token, the gradients are

    .. math:: \partial h = g\,W^\top (e_t - p), \qquad
        (\partial W, \partial b) = \sum_n (e_t - p)_n\,(g_n h_n^\top, g_n)

    so the backward pass needs only p. p is kept if gradients are enabled (`learning`) and it takes at most `KEEP`
    bytes; else it is computed again. On a GPU each pass over (chunk, V) takes as long as a matrix product: there are l,
    p, their maxima and two products with p, in which g multiplies rows of H numbers, not of V. One of the products
    gives the gradients of both W and b. The terms of e_t are computed as the gradient of an embedding.

    Products are computed in `dtype`; sums over positions, in which e_t and p nearly cancel, in float32 or wider. No
    operation is in place: compilers get that wrong inside such a function.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor,
        tokens: Tensor,
        chunk: int,
        dtype: torch.dtype,
        learning: bool,
    ) -> Tensor:
        wide, found, kept = torch.promote_types(dtype, torch.float32), [], []
        with torch.autocast(hidden.device.type, enabled=False):  # autocast would compute probabilities in float32
            W, b = _aligned(weight, bias, dtype)
            keep = learning and len(tokens) * W.shape[0] * W.element_size() <= KEEP
            for h, t in zip(hidden.split(chunk), tokens.split(chunk), strict=True):
                logits = linear(h.to(dtype), W, b)  # (chunk, V)
                p = softmax(logits, -1)
                own = logits.gather(-1, t.unsqueeze(-1)).squeeze(-1)
                found.append(own.to(wide) - logits.amax(-1).to(wide) + p.amax(-1).to(wide).log())
                kept += [p] if keep else []
        ctx.save_for_backward(hidden, weight, bias, tokens, *kept)
        ctx.chunk, ctx.dtype = chunk, dtype
        return torch.cat(found)

    @staticmethod
    @first_only
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, tokens, *kept = ctx.saved_tensors
        (V, H), dtype = weight.shape, ctx.dtype
        with torch.autocast(hidden.device.type, enabled=False):  # rounds as the forward pass did
            W, b = _aligned(weight, bias, dtype)
            wide, shares = torch.promote_types(dtype, torch.float32), grad.unsqueeze(-1)
            rows = pad(torch.cat([shares * hidden, shares], -1), (0, _up(H + 1) - H - 1))  # (N, H + 1 and padding)
            total, by_hidden = _sum_by_token(rows.to(wide), tokens, _up(V)), []  # columns: of W, of b, padding
            chunks = zip(*(a.split(ctx.chunk) for a in (hidden, tokens, shares, rows)), strict=True)
            for i, (h, t, g, r) in enumerate(chunks):
                p = kept[i] if kept else softmax(linear(h.to(dtype), W, b), -1)  # (chunk, V)
                total = total - _product(p.mT, r.to(dtype), wide)
                by_hidden.append((g * torch.addmm(W[t], p, W, alpha=-1)).to(hidden.dtype))
            total = total.to(weight.dtype)
        return torch.cat(by_hidden), total[:V, :H].contiguous(), total[:V, H].contiguous(), None, None, None, None


def _product_dtype(hidden: Tensor, weight: Tensor) -> torch.dtype:
    """The dtype of W h: autocast's if enabled (except for float64), else the common dtype of W and h."""
    common, device = torch.promote_types(hidden.dtype, weight.dtype), hidden.device.type
    if common != torch.float64 and torch.is_autocast_enabled(device):
        return torch.get_autocast_dtype(device)
    return common


class Tokens(Distribution):
    """The distribution of a sentence given z, position by position: softmax(W h_t + b) over V tokens.

    `hidden` was computed from the sentence's own words before each position (teacher forcing), so `log_prob` is valid
    for that sentence only. Under autocast logits and probabilities are rounded to its dtype: accurate enough for
    training, but not for a bound; compute bounds without autocast.

    Parameters
    ----------
    hidden : Tensor (*batch, T, H)
        The states of a `Writer`.
    weight, bias : Tensor (V, H), (V,)
        The linear map from a state to logits.
    chunk : int
        Positions computed at once.
    """

    arg_constraints: ClassVar = {"hidden": constraints.independent(constraints.real, 2)}
    support = constraints.independent(constraints.nonnegative_integer, 1)

    def __init__(self, hidden: Tensor, weight: Tensor, bias: Tensor, chunk: int = CHUNK) -> None:
        In(1).check("chunk", chunk, "an integer of at least 1, a number of positions", whole=True)
        self.hidden, self.weight, self.bias, self.chunk = hidden, weight, bias, chunk
        super().__init__(hidden.shape[:-2], hidden.shape[-2:-1], validate_args=False)

    def token_log_prob(self, tokens: Tensor) -> Tensor:
        """log p(x_t | x_<t, z), (*batch, T) -> (*batch, T), float32 or wider; 0 after EOS.

        The perplexity of a corpus is exp(-sum / number of positions up to and including each EOS).
        """
        if tokens.shape != self._extended_shape():
            raise ValueError(
                f"tokens must have the shape of the states, {tuple(self._extended_shape())}; got {tuple(tokens.shape)}."
            )
        inputs = self.hidden.flatten(0, -2), self.weight, self.bias, tokens.long().flatten()
        dtype = _product_dtype(self.hidden, self.weight)
        each: Tensor = _TokenLogProb.apply(*inputs, self.chunk, dtype, torch.is_grad_enabled())  # type: ignore[no-untyped-call]
        return torch.where(spoken(tokens), each.view(tokens.shape), 0.0)

    def log_prob(self, value: Tensor) -> Tensor:
        """log p(x|z) of sentences with their EOS, (*batch, T) -> (*batch); -inf for a row without EOS.

        Tokens after the first EOS are ignored.
        """
        ended = (value == EOS).any(-1)
        return torch.where(ended, self.token_log_prob(value).sum(-1), -torch.inf)
