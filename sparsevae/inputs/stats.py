"""Statistics of the data: extremes, moments, levels, and a fingerprint."""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from sparsevae.checks import check_room
from sparsevae.inputs.rows import Rows, row_blocks

_COLUMN = 16  # float32 numbers that `stats` allocates per column


class Span(NamedTuple):
    """The smallest and the largest value, and True if all are whole numbers; compared with a likelihood's support."""

    low: float
    high: float
    whole: bool

    @classmethod
    def of(cls, values: Tensor) -> Span:
        return cls(float(values.min()), float(values.max()), is_whole(values))


class Stats(NamedTuple):
    """Statistics by which scaling and likelihood are chosen; tensors are (D,) float64."""

    low: float
    high: float
    whole: bool
    eight_bit: bool
    levels: frozenset[float]  # the distinct values if there are one or two; else empty
    mean: Tensor
    std: Tensor
    reach: Tensor  # largest distance from the mean

    @property
    def unit(self) -> float | None:
        """The largest value of images: 1 if values fill [0, 1], 255 if they are 8-bit; None for other data."""
        if self.low >= 0 and 0.5 <= self.high <= 1:
            return 1.0
        return 255.0 if self.eight_bit else None


def is_whole(values: Tensor) -> bool:
    """True if all values are whole numbers."""
    return bool((values == values.floor()).all())


class Moments:
    """Column means and sums of squared deviations of rows that are added block by block, (D,) float64 each."""

    def __init__(self, d: int, device: torch.device) -> None:
        self.n_rows = 0
        self.mean = torch.zeros(d, dtype=torch.float64, device=device)
        self.square = torch.zeros_like(self.mean)

    def add(self, x: Tensor) -> None:
        """Add rows x, (m, D) float64."""
        m, seen = len(x), self.n_rows
        centre = x.mean(0)
        delta = centre - self.mean
        self.square += (x - centre).square().sum(0) + delta.square() * seen * m / (seen + m)
        self.mean += delta * m / (seen + m)
        self.n_rows += m


def stats(rows: Rows, dtype: np.dtype[Any]) -> Stats:
    """One pass over the data in blocks: ranges, column means and population standard deviations.

    `dtype` is that of the data before any conversion to float32.
    """
    n, d = rows.shape
    check_room(_COLUMN * d, {"features": d}, "the statistics of columns", rows.device)
    moments = Moments(d, rows.device)
    low, high = (torch.full_like(moments.mean, end) for end in (torch.inf, -torch.inf))
    levels: set[float] = set()
    whole = True
    for block in row_blocks(rows):
        x = block.double()
        whole = whole and is_whole(x)
        if len(levels) <= 2:
            levels |= {float(x.min()), float(x.max())}
            if len(levels) == 2 and not bool(((x == min(levels)) | (x == max(levels))).all()):
                levels |= {-torch.inf, torch.inf}  # a third value: too many to be levels
        low, high = torch.minimum(low, x.amin(0)), torch.maximum(high, x.amax(0))
        moments.add(x)
    mean, std = moments.mean, (moments.square / n).sqrt()
    reach = torch.maximum(high - mean, mean - low)
    few = frozenset(levels if len(levels) <= 2 else ())
    ends = float(low.min()), float(high.max())
    return Stats(*ends, whole, dtype == np.uint8, few, mean.cpu(), std.cpu(), reach.cpu())


def fingerprint(*tables: Rows) -> str:
    """A short hash of shapes and of all values in float32, the same for dense, sparse and memory-mapped data."""
    digest = hashlib.sha256("".join(str(rows.shape) for rows in tables).encode())
    for rows in tables:
        for block in row_blocks(rows):
            digest.update(block.cpu().numpy().data)
    return digest.hexdigest()[:16]
