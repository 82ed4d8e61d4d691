"""Rows: data in memory or on a device, from which batches are taken as dense float32 tensors.

Three classes: `Host`, an array in host memory or a memory map (only the requested rows are read); `Resident`, a tensor
on an accelerator; `Csr`, a sparse matrix, of which only batches become dense. `Ragged` is for rows that end in padding.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

BLOCK = 512  # rows per pass outside of training, constant: matrix products of other shapes round differently
EXACT = 2**24  # whole numbers below it are exact in float32


def some_rows(most: int, width: int) -> int:
    """The number of rows to look at, at most `most`: fewer where dense rows of this width would take much memory."""
    return min(most, max(BLOCK, 2**24 // width))


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
    """Picked rows as float32; whole numbers below 2**24 are exact."""
    return picked if picked.is_floating_point() else picked.to(torch.float32)


class Rows(Protocol):
    """n rows of D features. `static` rows are read by device operations alone, so a CUDA graph can include them."""

    static: bool
    device: torch.device
    shape: tuple[int, int]

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
        self.shape = X.shape[0], X.shape[1]

    def pick(self, index: Tensor) -> Tensor:
        rows = np.take(self.X, index.cpu().numpy(), axis=0)
        compact = rows if rows.dtype == np.uint8 else rows.astype(np.float32, copy=False)
        return torch.from_numpy(compact).to(self.device, non_blocking=True)


class Resident(Rows):
    """A tensor on the device, uint8 or float32; a batch is one gather."""

    static = True

    def __init__(self, X: np.ndarray[Any, Any], device: torch.device) -> None:
        compact = X if X.dtype in (np.uint8, np.float32) else X.astype(np.float32)
        self.data = torch.tensor(compact, device=device)
        self.device = device
        self.shape = X.shape[0], X.shape[1]

    def pick(self, index: Tensor) -> Tensor:
        return self.data.index_select(0, index)


def canonical(X: Any) -> Any:
    """A CSR matrix without duplicate entries, a copy if X has some."""
    if not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    return X


class Csr(Rows):
    """A sparse matrix as (indptr, indices, values) on the device; only batches are dense."""

    static = False

    def __init__(self, X: Any, device: torch.device) -> None:
        X = canonical(X.tocsr())
        self.indptr = torch.tensor(X.indptr, dtype=torch.int64, device=device)
        self.indices = torch.tensor(X.indices, dtype=torch.int64, device=device)
        self.values = torch.tensor(X.data, dtype=torch.float32, device=device)
        self.device = device
        self.shape = X.shape[0], X.shape[1]

    def pick(self, index: Tensor) -> Tensor:
        start = self.indptr[index]
        count = self.indptr[index + 1] - start
        row = torch.repeat_interleave(torch.arange(len(index), device=self.device), count)
        within = torch.arange(len(row), device=self.device) - (count.cumsum(0) - count)[row]
        at = start[row] + within
        out = torch.zeros(len(index), self.shape[1], device=self.device)
        out[row, self.indices[at]] = self.values[at]
        return out


def parts(rows: Rows, items: Tensor, least: int) -> list[tuple[Rows, Tensor]]:
    """(rows, positions) in parts of one width each: those of `Ragged.parts`; all other rows are one part."""
    own = getattr(rows, "parts", None)
    return [(rows, items)] if own is None else own(items, least)


def fits_exactly(size: int, device: torch.device) -> bool:
    """True if `size` bytes are less than half of the device's free memory."""
    return size < int(torch.cuda.mem_get_info(device)[0]) // 2


def place(X: Any, device: torch.device, *, resident: bool) -> Rows:
    """X as Rows: on an accelerator if `resident` and if it fits in half of the free memory, else on the host."""
    if scipy.sparse.issparse(X):
        return Csr(X, device)
    if resident and device.type == "cuda":
        itemsize = X.dtype.itemsize if X.dtype in (np.uint8, np.float32) else 4
        if fits_exactly(X.size * itemsize, device):
            return Resident(X, device)
    return Host(X, device)


def row_blocks(rows: Rows) -> Iterator[Tensor]:
    """Float32 blocks of all rows, in order, of at most 4096 rows and 2**24 numbers (or one row)."""
    n, d = rows.shape
    size = max(1, min(4096, 2**24 // max(1, d)))
    for start in range(0, n, size):
        yield rows.take(torch.arange(start, min(start + size, n), device=rows.device))


def to_csr(blocks: Iterable[np.ndarray[Any, Any]]) -> Any:
    """Dense blocks of rows as one CSR matrix; several times faster than scipy's conversion block by block."""
    counts, columns, values, width = [np.zeros(1, np.int64)], [], [], 0
    for block in blocks:
        width = block.shape[1]
        at = np.flatnonzero(block != 0)  # several times faster on bools than on numbers
        rows, within = np.divmod(at, width)
        counts.append(np.bincount(rows, minlength=len(block)))
        columns.append(within.astype(np.int32))
        values.append(block.ravel()[at])
    ends = np.cumsum(np.concatenate(counts))
    return scipy.sparse.csr_matrix((np.concatenate(values), np.concatenate(columns), ends), (len(ends) - 1, width))
