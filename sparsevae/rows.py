"""Rows: where the data lies, and how a batch of it becomes a dense float32 tensor on the device.

Three places: an array in host memory (memory maps included: only the rows asked for are read), a tensor resident on
an accelerator, and a CSR matrix, whose batches alone are made dense.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

__all__ = ["Csr", "Host", "Resident", "Rows", "Stats", "fingerprint", "place", "stats"]


class Rows(Protocol):
    """n rows of D features. `static` rows are read by device operations alone, so a CUDA graph can hold them."""

    static: bool
    device: torch.device

    @property
    def shape(self) -> tuple[int, int]: ...

    def take(self, index: Tensor) -> Tensor:
        """(B,) integer positions on the device -> (B, D) float32 on the device."""
        ...


class Host:
    """An array in host memory or on disk; rows are copied batch by batch."""

    static = False

    def __init__(self, X: np.ndarray[Any, Any], device: torch.device) -> None:
        self.X, self.device = X, device

    @property
    def shape(self) -> tuple[int, int]:
        return self.X.shape[0], self.X.shape[1]

    def take(self, index: Tensor) -> Tensor:
        rows = np.take(self.X, index.cpu().numpy(), axis=0)
        compact = rows if rows.dtype == np.uint8 else rows.astype(np.float32, copy=False)
        return torch.from_numpy(compact).to(self.device, non_blocking=True).to(torch.float32)


class Resident:
    """A tensor on the device in its own compact dtype; a batch is one gather."""

    static = True

    def __init__(self, X: np.ndarray[Any, Any], device: torch.device) -> None:
        compact = X if X.dtype in (np.uint8, np.float32) else X.astype(np.float32)
        self.data = torch.tensor(compact, device=device)
        self.device = device

    @property
    def shape(self) -> tuple[int, int]:
        return self.data.shape[0], self.data.shape[1]

    def take(self, index: Tensor) -> Tensor:
        return self.data.index_select(0, index).to(torch.float32)


class Csr:
    """A sparse matrix as (indptr, indices, values) on the device; only a batch is ever dense."""

    static = False

    def __init__(self, X: Any, device: torch.device) -> None:
        X = X.tocsr()
        if not X.has_canonical_format:
            X = X.copy()
            X.sum_duplicates()
        self.n_features = X.shape[1]
        self.indptr = torch.tensor(X.indptr, dtype=torch.int64, device=device)
        self.indices = torch.tensor(X.indices, dtype=torch.int64, device=device)
        self.values = torch.tensor(X.data, dtype=torch.float32, device=device)
        self.device = device

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.indptr) - 1, self.n_features

    def take(self, index: Tensor) -> Tensor:
        start = self.indptr[index]
        count = self.indptr[index + 1] - start
        row = torch.repeat_interleave(torch.arange(len(index), device=self.device), count)
        within = torch.arange(len(row), device=self.device) - (count.cumsum(0) - count)[row]
        at = start[row] + within
        out = torch.zeros(len(index), self.n_features, device=self.device)
        out[row, self.indices[at]] = self.values[at]
        return out


def place(X: Any, device: torch.device, *, resident: bool) -> Rows:
    """Put data where batches are cheapest: on an accelerator when asked and when half of what is free holds it."""
    if scipy.sparse.issparse(X):
        return Csr(X, device)
    if resident and device.type == "cuda":
        itemsize = X.dtype.itemsize if X.dtype in (np.uint8, np.float32) else 4
        if X.size * itemsize < torch.cuda.mem_get_info(device)[0] // 2:
            return Resident(X, device)
    return Host(X, device)


def _blocks(rows: Rows) -> Iterator[Tensor]:
    n, d = rows.shape
    size = max(1, min(4096, 2**24 // max(1, d)))
    for start in range(0, n, size):
        yield rows.take(torch.arange(start, min(start + size, n), device=rows.device))


class Stats(NamedTuple):
    """What scaling and likelihood are chosen by; columns are (D,) float64."""

    low: float
    high: float
    levels: frozenset[float]  # every value, where there are only one or two; else empty
    mean: Tensor
    std: Tensor
    reach: Tensor  # largest distance from the mean


def stats(rows: Rows) -> Stats:
    """One pass over the data in blocks: ranges, column means and population standard deviations."""
    n, d = rows.shape
    mean = torch.zeros(d, dtype=torch.float64, device=rows.device)
    square, low, high = torch.zeros_like(mean), torch.full_like(mean, torch.inf), torch.full_like(mean, -torch.inf)
    levels: set[float] = set()
    seen = 0
    for block in _blocks(rows):
        x = block.double()
        if len(levels) <= 2:
            levels |= {float(x.min()), float(x.max())}
            if len(levels) == 2 and not bool(((x == min(levels)) | (x == max(levels))).all()):
                levels |= {-torch.inf, torch.inf}  # a third value: too many to be levels
        low, high = torch.minimum(low, x.amin(0)), torch.maximum(high, x.amax(0))
        m = len(x)
        centre = x.mean(0)
        delta = centre - mean
        square += (x - centre).square().sum(0) + delta.square() * seen * m / (seen + m)
        mean += delta * m / (seen + m)
        seen += m
    reach = torch.maximum(high - mean, mean - low)
    few = frozenset(levels if len(levels) <= 2 else ())
    return Stats(float(low.min()), float(high.max()), few, mean.cpu(), (square / n).sqrt().cpu(), reach.cpu())


def fingerprint(rows: Rows) -> str:
    """A short hash of shape and every value in float32, whatever form they came in: it tells data sets apart."""
    digest = hashlib.sha256(f"{rows.shape}".encode())
    for block in _blocks(rows):
        digest.update(block.cpu().numpy().data)
    return digest.hexdigest()[:16]
