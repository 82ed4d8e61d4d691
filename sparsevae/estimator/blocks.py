"""Prepared rows in blocks of equal shape, and functions of blocks in the order of X."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from sparsevae.inputs.base import Array
from sparsevae.inputs.rows import Rows
from sparsevae.threads import inference

F = TypeVar("F", bound=Callable[..., Any])


def fitted(method: F) -> F:
    """Run a method of a fitted estimator without gradients, within the CPU quota, with the same bits every time."""

    @functools.wraps(method)
    def method_in_inference(self: Any, *args: Any, **kwargs: Any) -> Any:
        with inference(self.fitted_.device):
            return method(self, *args, **kwargs)

    return cast(F, method_in_inference)


class Block(NamedTuple):
    """Prepared rows x (B, D); only the first n are rows of X, at the positions `at`, (n,)."""

    x: Tensor
    n: int
    at: Array


class Blocks:
    """Rows in blocks of one size, the last one padded: matrix products of other shapes round differently.

    Parameters
    ----------
    groups : sequence of Rows
        Each of one width.
    order : (N,) or None
        Position in the concatenated groups of every row of X; None: the same.
    size : int
        Rows per block.
    prepare : nn.Module
        From rows to the networks' input.
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
        """(x, n) of every block."""
        return ((x, n) for x, n, _ in self)

    def each(self, function: Callable[[Tensor], Tensor]) -> Iterator[Array]:
        """A function of x, (B, ...), evaluated block by block: its first n rows, in the order of blocks."""
        for x, n, _ in self:
            yield function(x)[:n].cpu().numpy()

    def map(self, function: Callable[[Tensor], Any]) -> Any:
        """A function of x, (B, ...) -> (B, ...), for all rows in the order of X; it may return a tuple or dict."""
        found: dict[Any, Array] = {}
        result: Any = None
        for x, n, at in self:
            result = function(x)
            for key, values in _items(result):
                own = values[:n].cpu().numpy()
                if key not in found:
                    found[key] = np.empty((self.n_rows, *own.shape[1:]), own.dtype)
                found[key][at] = own
        if isinstance(result, dict):
            return found
        return type(result)(*found.values()) if isinstance(result, tuple) else found[None]

    def in_order(self, rows: Any) -> Any:
        """Rows in the order of blocks, array or CSR, put in the order of X."""
        return rows if self.order is None else rows[self.order]


def _items(found: Any) -> Iterator[tuple[Any, Tensor]]:
    if isinstance(found, dict):
        yield from found.items()
    elif isinstance(found, tuple):
        yield from enumerate(found)
    else:
        yield None, found
