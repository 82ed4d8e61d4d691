"""Rows as the networks see them, in blocks of one shape, and what a function of each block gives in the order of X."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from sparsevae.inputs.base import Array
from sparsevae.inputs.rows import Rows
from sparsevae.threads import inference

F = TypeVar("F", bound=Callable[..., Any])


def fitted(method: F) -> F:
    """Run a method of a fitted estimator without gradients, within the CPU quota, with the same bits every time."""

    @functools.wraps(method)
    def quietly(self: Any, *args: Any, **kwargs: Any) -> Any:
        check_is_fitted(self)
        with inference(self.fitted_.device):
            return method(self, *args, **kwargs)

    return cast(F, quietly)


class Block(NamedTuple):
    """Rows x (B, D) in the networks' units, of which the first n count, and the positions of these in X, (n,)."""

    x: Tensor
    n: int
    at: Array


class Blocks:
    """Rows in blocks of one size, the last one filled up: matrix products round differently for other shapes.

    Parameters
    ----------
    groups : Rows
        Rows of one width each.
    order : (N,) or None
        Where rows of X stand among those of all groups; None: in the same places.
    size : int
        Rows of a block.
    prepare : nn.Module
        From rows to what the networks see.
    """

    def __init__(self, groups: Sequence[Rows], order: Array | None, size: int, prepare: nn.Module) -> None:
        self.groups, self.order, self.size, self.prepare = groups, order, size, prepare
        self.n_rows = sum(rows.shape[0] for rows in groups)

    def __iter__(self) -> Iterator[Block]:
        at, done = np.arange(self.n_rows) if self.order is None else self.order.argsort(), 0
        for rows in self.groups:
            last = rows.shape[0] - 1
            for start in range(0, last + 1, self.size):
                index = torch.arange(start, start + self.size, device=rows.device)
                n = min(self.size, last + 1 - start)
                yield Block(self.prepare(rows.take(index.clamp_max(last))), n, at[done : done + n])
                done += n

    def pairs(self) -> Iterator[tuple[Tensor, int]]:
        """Every block's x, and how many of its rows count."""
        return ((x, n) for x, n, _ in self)

    def each(self, function: Callable[[Tensor], Tensor]) -> Iterator[Array]:
        """The function of every block's x, (n, ...), in the order of blocks."""
        for x, n, _ in self:
            yield function(x)[:n].cpu().numpy()

    def map(self, function: Callable[[Tensor], Any]) -> Any:
        """The function of x, (B, ...) -> (B, ...), of all rows, in the order of X; also of tuples or dicts of such."""
        found: dict[Any, Array] = {}
        kind: Any = None
        for x, n, at in self:
            kind = function(x)
            for key, values in _items(kind):
                own = values[:n].cpu().numpy()
                if key not in found:
                    found[key] = np.empty((self.n_rows, *own.shape[1:]), own.dtype)
                found[key][at] = own
        if isinstance(kind, dict):
            return found
        return type(kind)(*found.values()) if isinstance(kind, tuple) else found[None]

    def in_order(self, rows: Any) -> Any:
        """Rows, array or CSR, that were made in the order of blocks, in the order of X."""
        return rows if self.order is None else rows[self.order]


def _items(found: Any) -> Iterator[tuple[Any, Tensor]]:
    if isinstance(found, dict):
        yield from found.items()
    elif isinstance(found, tuple):
        yield from enumerate(found)
    else:
        yield None, found
