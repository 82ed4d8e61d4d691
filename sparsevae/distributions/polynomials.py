r"""Products of many small polynomials, truncated at a degree, by a tree.

The generating polynomial of a sum of independent counts is the product of theirs: its coefficient of degree n is
P(sum = n). Pairs are multiplied, then pairs of pairs, so that K factors take log2(K) batched operations instead of K
steps, and each node has the distribution of the sum of the leaves below it. Coefficients are non-negative and are only
multiplied and added: nothing cancels, and each keeps its relative precision unless it underflows.

Shapes are (d + 1, m, ...): degrees from 0 to d, then the m nodes of a level, then items. With degrees first the
sums run over long contiguous blocks of memory, three times as fast as with degrees last. Node j of a level has the
children j and j + m of the level below.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.autograd import Function
from torch.nn.functional import pad


def _windows(t: Tensor, size: int, before: int, after: int) -> Tensor:
    """(n, X) with zeros before and after it -> (rows, size, X), where row i holds degrees i, ..., i + size - 1."""
    return pad(t, (0, 0, before, after)).unfold(0, size, 1).movedim(-1, 1)


class _Product(Function):
    """c_n = sum_i l_i r_{n-i}. The gradient of a factor is the overlap of the gradient with the other factor."""

    @staticmethod
    def forward(ctx: Any, left: Tensor, right: Tensor, degree: int) -> Tensor:
        ctx.save_for_backward(left, right)
        size = len(left)
        windows = _windows(right.flatten(1), size, size - 1, degree + 1 - size)  # row n holds r_{n-d}, ..., r_n
        return (windows * left.flatten(1).flip(0)).sum(1).reshape(-1, *left.shape[1:])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        left, right = ctx.saved_tensors
        return (
            overlap(grad, right) if ctx.needs_input_grad[0] else None,
            overlap(grad, left) if ctx.needs_input_grad[1] else None,
            None,
        )


class _Overlap(Function):
    """h_i = sum_j w_{i+j} p_j. The gradient of w is a product, that of p an overlap."""

    @staticmethod
    def forward(ctx: Any, whole: Tensor, part: Tensor) -> Tensor:
        ctx.save_for_backward(whole, part)
        size = len(part)
        windows = _windows(whole.flatten(1), size, 0, 2 * size - 1 - len(whole))  # row i holds w_i, ..., w_{i+d}
        return (windows * part.flatten(1)).sum(1).reshape(part.shape)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        whole, part = ctx.saved_tensors
        return (
            product(grad, part, len(whole) - 1) if ctx.needs_input_grad[0] else None,
            overlap(whole, grad) if ctx.needs_input_grad[1] else None,
        )


def product(left: Tensor, right: Tensor, degree: int) -> Tensor:
    """left * right up to `degree`; (d + 1, m, ...) twice -> (degree + 1, m, ...), with d <= degree <= 2d."""
    out: Tensor = _Product.apply(left, right, degree)  # type: ignore[no-untyped-call]
    return out


def overlap(whole: Tensor, part: Tensor) -> Tensor:
    """sum_j whole_{i+j} part_j for i = 0..d; (D + 1, m, ...) and (d + 1, m, ...) -> (d + 1, m, ...), d <= D <= 2d."""
    out: Tensor = _Overlap.apply(whole, part)  # type: ignore[no-untyped-call]
    return out


def products(leaves: Tensor, cap: int) -> list[Tensor]:
    """All levels of the tree, from the leaves (d + 1, P, ...) to the product of them all, (D + 1, 1, ...).

    P is a power of two; pad with the polynomial 1, (1, 0, ...). Degrees above `cap` >= d are dropped.
    """
    levels = [leaves]
    while levels[-1].shape[1] > 1:
        left, right = levels[-1].chunk(2, 1)
        levels.append(product(left, right, min(2 * (len(left) - 1), cap)))
    return levels


def outside(levels: list[Tensor], weights: Tensor) -> Tensor:
    """The weight of all other leaves for each leaf and degree, (d + 1, P, ...), given weights (D + 1, ...) per degree.

    For leaf k and degree i it is the derivative of sum_n weights_n c_n, with c the product of all leaves, with respect
    to the i-th coefficient of leaf k. Going down the tree, that of a child is the overlap of its parent's with its
    sibling.
    """
    gradient = weights.unsqueeze(1)
    for level in reversed(levels[:-1]):
        siblings = level.unflatten(1, (2, -1)).flip(1)
        gradient = overlap(gradient.unsqueeze(1).expand(-1, *siblings.shape[1:]), siblings).flatten(1, 2)
    return gradient
