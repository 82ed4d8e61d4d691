"""Rows: where the data lies, and how a batch of it becomes a dense float32 tensor on the device.

Three places: an array in host memory (memory maps included: only the rows asked for are read), a tensor resident on
an accelerator, and a CSR matrix, whose batches alone are made dense. Rows that end in padding are `Ragged`: the short
ones among them can be had without most of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

BLOCK = 512  # rows per pass outside the training step, always: matrix products round differently for other shapes
EXACT = 2**24  # whole numbers below it are their own float32


def from_tensor(values: Tensor, name: str) -> np.ndarray[Any, Any]:
    """A user's tensor as an array."""
    if values.is_meta:
        raise ValueError(
            f"{name} is a tensor of shape {tuple(values.shape)} on the meta device, which holds no values: "
            "pass an array, or a tensor on the CPU or an accelerator."
        )
    if values.layout != torch.strided:
        raise TypeError(
            f"{name} is a tensor of layout {values.layout}: pass {name}.to_dense(), or a matrix of scipy's."
        )
    values = values.detach().cpu()
    found: np.ndarray[Any, Any] = (values.float() if values.dtype == torch.bfloat16 else values).numpy()
    return found


def floats(picked: Tensor) -> Tensor:
    """What was picked as float32: whole numbers below 2**24 are their own."""
    return picked if picked.is_floating_point() else picked.to(torch.float32)


class Rows(Protocol):
    """n rows of D features. `static` rows are read by device operations alone, so a CUDA graph can hold them."""

    static: bool
    device: torch.device

    @property
    def shape(self) -> tuple[int, int]: ...

    def pick(self, index: Tensor) -> Tensor:
        """(B,) integer positions on the device -> (B, D) on the device, in a type that float32 holds."""
        ...

    def take(self, index: Tensor) -> Tensor:
        """(B,) integer positions on the device -> (B, D) float32 on the device."""
        return floats(self.pick(index))


class Host(Rows):
    """An array in host memory or on disk; rows are copied batch by batch."""

    static = False

    def __init__(self, X: np.ndarray[Any, Any], device: torch.device) -> None:
        self.X, self.device = X, device

    @property
    def shape(self) -> tuple[int, int]:
        return self.X.shape[0], self.X.shape[1]

    def pick(self, index: Tensor) -> Tensor:
        rows = np.take(self.X, index.cpu().numpy(), axis=0)
        compact = rows if rows.dtype == np.uint8 else rows.astype(np.float32, copy=False)
        return torch.from_numpy(compact).to(self.device, non_blocking=True)


class Resident(Rows):
    """A tensor on the device in its own compact dtype; a batch is one gather."""

    static = True

    def __init__(self, X: np.ndarray[Any, Any], device: torch.device) -> None:
        compact = X if X.dtype in (np.uint8, np.float32) else X.astype(np.float32)
        self.data = torch.tensor(compact, device=device)
        self.device = device

    @property
    def shape(self) -> tuple[int, int]:
        return self.data.shape[0], self.data.shape[1]

    def pick(self, index: Tensor) -> Tensor:
        return self.data.index_select(0, index)


def canonical(X: Any) -> Any:
    """A CSR matrix without an entry that is there twice; the user's own is left as it is."""
    if not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    return X


class Csr(Rows):
    """A sparse matrix as (indptr, indices, values) on the device; only a batch is ever dense."""

    static = False

    def __init__(self, X: Any, device: torch.device) -> None:
        X = canonical(X.tocsr())
        self.n_features = X.shape[1]
        self.indptr = torch.tensor(X.indptr, dtype=torch.int64, device=device)
        self.indices = torch.tensor(X.indices, dtype=torch.int64, device=device)
        self.values = torch.tensor(X.data, dtype=torch.float32, device=device)
        self.device = device

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.indptr) - 1, self.n_features

    def pick(self, index: Tensor) -> Tensor:
        start = self.indptr[index]
        count = self.indptr[index + 1] - start
        row = torch.repeat_interleave(torch.arange(len(index), device=self.device), count)
        within = torch.arange(len(row), device=self.device) - (count.cumsum(0) - count)[row]
        at = start[row] + within
        out = torch.zeros(len(index), self.n_features, device=self.device)
        out[row, self.indices[at]] = self.values[at]
        return out


def parts(rows: Rows, items: Tensor, least: int) -> list[tuple[Rows, Tensor]]:
    """Rows and positions in parts of one width each; all but ragged ones (with `parts` of their own) are one part."""
    own = getattr(rows, "parts", None)
    return [(rows, items)] if own is None else own(items, least)


def fits_exactly(size: int, device: torch.device) -> bool:
    """Whether half of the device's free memory holds `size` bytes."""
    return size < int(torch.cuda.mem_get_info(device)[0]) // 2


def place(X: Any, device: torch.device, *, resident: bool) -> Rows:
    """Put data where batches are cheapest: on an accelerator when asked and when half of what is free holds it."""
    if scipy.sparse.issparse(X):
        return Csr(X, device)
    if resident and device.type == "cuda":
        itemsize = X.dtype.itemsize if X.dtype in (np.uint8, np.float32) else 4
        if fits_exactly(X.size * itemsize, device):
            return Resident(X, device)
    return Host(X, device)


def row_blocks(rows: Rows) -> Iterator[Tensor]:
    n, d = rows.shape
    size = max(1, min(4096, 2**24 // max(1, d)))
    for start in range(0, n, size):
        yield rows.take(torch.arange(start, min(start + size, n), device=rows.device))


def to_csr(blocks: Iterable[np.ndarray[Any, Any]]) -> Any:
    """Dense blocks of rows -> one CSR matrix, in a fraction of the time of scipy's conversion block by block."""
    counts, columns, values, width = [np.zeros(1, np.int64)], [], [], 0
    for block in blocks:
        width = block.shape[1]
        at = np.flatnonzero(block != 0)  # truth values are searched several times faster than numbers
        rows, within = np.divmod(at, width)
        counts.append(np.bincount(rows, minlength=len(block)))
        columns.append(within.astype(np.int32))
        values.append(block.ravel()[at])
    ends = np.cumsum(np.concatenate(counts))
    return scipy.sparse.csr_matrix((np.concatenate(values), np.concatenate(columns), ends), (len(ends) - 1, width))
