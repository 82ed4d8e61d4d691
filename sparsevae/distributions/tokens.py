"""The distribution of a sentence, without its logits in memory."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints
from torch.nn.functional import linear, pad, softmax

from sparsevae.sampling.derivatives import first_only
from sparsevae.text.ids import EOS, spoken

CHUNK = 8192
"""Positions that are worked on at once: 328 MB of logits in bfloat16 for 20,000 words, and as much of probabilities."""
KEEP = 3 * 2**29
"""Bytes of probabilities that may wait for the backward pass: of 40,000 positions in bfloat16 for 20,000 words."""


def _up(n: int) -> int:
    """n to the next multiple of 8: what tensor cores read without a detour, threefold faster."""
    return -(-n // 8) * 8


def _aligned(weight: Tensor, bias: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """W and b in `dtype`, with tokens of probability 0 added to make their number a multiple of 8."""
    extra = _up(len(bias)) - len(bias)
    return pad(weight.to(dtype), (0, 0, 0, extra)), pad(bias.to(dtype), (0, extra), value=-torch.inf)


def _added_up(rows: Tensor, tokens: Tensor, n: int) -> Tensor:
    """Rows of the same token, added up, (N, H), (N,) -> (n, H): an embedding's gradient, the same bits every time."""
    found: Tensor = torch.ops.aten.embedding_dense_backward(rows, tokens, n, -1, False)
    return found


def _product(a: Tensor, b: Tensor, wide: torch.dtype) -> Tensor:
    """a @ b, whose sums stay `wide`: rounded, they would drown what is left when like is taken from like."""
    if a.dtype == wide:
        return a @ b
    return torch.mm(a, b, out_dtype=wide) if a.is_cuda else a.to(wide) @ b.to(wide)


class _TokenLogProb(torch.autograd.Function):
    r"""log softmax(W h + b)_t of N positions, of which `chunk` are worked on at once.

    With l = W h + b and p = softmax(l), l_t - max l + log max p is the logarithm of p_t, and cannot underflow. With g
    the gradient of the result and e_t the token that was said, the gradients are

    .. math:: \partial h = g\,W^\top (e_t - p), \qquad
        (\partial W, \partial b) = \sum_n (e_t - p)_n\,(g_n h_n^\top, g_n)

    so that p is all that the backward pass needs: where it takes at most `KEEP` bytes it is kept, if there will be one
    (`learning`), else it is made once more. On a GPU every pass over (chunk, V) costs as much as a matrix product:
    there are l, p, their largest entries and the two products with p, in which g multiplies rows of H numbers, not of
    V, and one serves W and b. What comes of e_t is looked up, and added up as an embedding's gradient.

    Products are taken in `dtype`; sums over positions, in which e_t and p nearly cancel, are float32 or wider. Nothing
    is changed in place: compilers get that wrong inside such a function.
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
        with torch.autocast(hidden.device.type, enabled=False):  # it would take probabilities to float32
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
        with torch.autocast(hidden.device.type, enabled=False):  # what the forward pass rounded, and nothing else
            W, b = _aligned(weight, bias, dtype)
            wide, shares = torch.promote_types(dtype, torch.float32), grad.unsqueeze(-1)
            rows = pad(torch.cat([shares * hidden, shares], -1), (0, _up(H + 1) - H - 1))  # (N, H + 1 and padding)
            total, by_hidden = _added_up(rows.to(wide), tokens, _up(V)), []  # of W, then of b, then nothing
            chunks = zip(*(a.split(ctx.chunk) for a in (hidden, tokens, shares, rows)), strict=True)
            for i, (h, t, g, r) in enumerate(chunks):
                p = kept[i] if kept else softmax(linear(h.to(dtype), W, b), -1)  # (chunk, V)
                total = total - _product(p.mT, r.to(dtype), wide)
                by_hidden.append((g * torch.addmm(W[t], p, W, alpha=-1)).to(hidden.dtype))
            total = total.to(weight.dtype)
        return torch.cat(by_hidden), total[:V, :H].contiguous(), total[:V, H].contiguous(), None, None, None, None


def _product_dtype(hidden: Tensor, weight: Tensor) -> torch.dtype:
    """In what W h is computed: autocast's choice where that is on (it leaves float64 alone), else their common one."""
    common, device = torch.promote_types(hidden.dtype, weight.dtype), hidden.device.type
    if common != torch.float64 and torch.is_autocast_enabled(device):
        return torch.get_autocast_dtype(device)
    return common


class Tokens(Distribution):
    """The law of a sentence given z, position by position: softmax(W h_t + b) over V tokens.

    `hidden` was made with the sentence's own words before each position (teacher forcing), so this is the law of that
    one sentence: score what the net was given. Under autocast logits and probabilities are rounded to its type,
    which training stands and a bound should not: take bounds outside it.

    Parameters
    ----------
    hidden : Tensor (*batch, T, H)
        A `Writer`'s states.
    weight, bias : Tensor (V, H), (V,)
        From a state to logits.
    chunk : int
        Positions that are worked on at once.
    """

    arg_constraints: ClassVar = {"hidden": constraints.independent(constraints.real, 2)}
    support = constraints.independent(constraints.nonnegative_integer, 1)

    def __init__(self, hidden: Tensor, weight: Tensor, bias: Tensor, chunk: int = CHUNK) -> None:
        if chunk < 1:
            raise ValueError(f"chunk must be at least 1 position, got {chunk!r}.")
        self.hidden, self.weight, self.bias, self.chunk = hidden, weight, bias, chunk
        super().__init__(hidden.shape[:-2], hidden.shape[-2:-1], validate_args=False)

    def token_log_prob(self, tokens: Tensor) -> Tensor:
        """log p(x_t | x_<t, z), (*batch, T) -> (*batch, T), float32 or wider; 0 after the end.

        Over a corpus, exp(-sum of all / number of positions up to each EOS) is the perplexity.
        """
        if tokens.shape != self._extended_shape():
            raise ValueError(
                f"tokens must have the shape of the states, {tuple(self._extended_shape())}; got {tuple(tokens.shape)}."
            )
        each: Tensor = _TokenLogProb.apply(  # type: ignore[no-untyped-call]
            self.hidden.flatten(0, -2),
            self.weight,
            self.bias,
            tokens.long().flatten(),
            self.chunk,
            _product_dtype(self.hidden, self.weight),
            torch.is_grad_enabled(),
        )
        return torch.where(spoken(tokens), each.view(tokens.shape), 0.0)

    def log_prob(self, value: Tensor) -> Tensor:
        """log p(x|z) of whole sentences, EOS counted, (*batch, T) -> (*batch); -inf for a row that never ends.

        What stands after the first EOS is not read.
        """
        ended = (value == EOS).any(-1)
        return torch.where(ended, self.token_log_prob(value).sum(-1), -torch.inf)
