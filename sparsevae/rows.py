"""Rows: where the data lies, and how a batch of it becomes a dense float32 tensor on the device.

Three places: an array in host memory (memory maps included: only the rows asked for are read), a tensor resident on
an accelerator, and a CSR matrix, whose batches alone are made dense. Rows that end in padding are `Ragged`: the short
ones among them can be had without most of it.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from sparsevae.memory import check_room

__all__ = [
    "Csr",
    "Host",
    "Ragged",
    "Resident",
    "Rows",
    "Stats",
    "canonical",
    "fingerprint",
    "floats",
    "from_tensor",
    "parts",
    "place",
    "stats",
    "to_csr",
]

_COLUMN = 16  # float32s that `stats` takes for a column, whatever the number of rows
_EXACT = 2**24  # whole numbers below it are their own float32


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


class Ragged(Rows):
    """Rows of whole numbers that end in padding: sentences, say. Batches of short rows need few columns.

    `pick` gives all columns, as every Rows does. `parts` gives the same rows by width.

    Parameters
    ----------
    X : integer array (n, W)
        Values from 0 to 2**24 - 1, which float32 holds exactly.
    lengths : (n,)
        Columns of each row that say something, 1 to W; what stands after is padding.
    widths : sequence of int
        Rising; no row is longer than the last.
    device : torch.device
        On CUDA the rows are resident, as int16 where that holds them and else int32, when half of what is free does.
    """

    def __init__(self, X: Any, lengths: Any, widths: Sequence[int], device: torch.device) -> None:
        X, lengths, widths = np.asarray(X), np.asarray(lengths), tuple(int(w) for w in widths)
        if X.ndim != 2 or X.dtype.kind not in "iu" or not X.size:
            raise ValueError(f"X must be integers of shape (n, W), got shape {X.shape} of {X.dtype}.")
        low, high = int(X.min()), int(X.max())
        if low < 0 or high >= _EXACT:
            raise ValueError(f"X must lie in 0..{_EXACT - 1}, which float32 holds exactly; got {low} to {high}.")
        if lengths.shape != X.shape[:1] or lengths.dtype.kind not in "iu":
            raise ValueError(f"lengths must be {len(X)} integers, one a row; got {lengths.shape} of {lengths.dtype}.")
        if lengths.min() < 1 or lengths.max() > X.shape[1]:
            raise ValueError(f"lengths must lie in 1..{X.shape[1]}; got {lengths.min()} to {lengths.max()}.")
        if not widths or any(a >= b for a, b in zip((0, *widths), widths, strict=False)) or widths[-1] < lengths.max():
            raise ValueError(f"widths must rise to {lengths.max()} or more, the longest row; got {widths}.")
        compact = np.int16 if high < 2**15 else np.int32
        self.static = device.type == "cuda" and _fits(X.size * np.dtype(compact).itemsize, device)
        self.data: Tensor | np.ndarray[Any, Any] = torch.tensor(X.astype(compact), device=device) if self.static else X
        self.lengths = torch.tensor(lengths.astype(np.int64), device=device)
        self.widths, self.device = widths, device

    @property
    def shape(self) -> tuple[int, int]:
        return self.data.shape[0], self.data.shape[1]

    def pick(self, index: Tensor) -> Tensor:
        if isinstance(self.data, Tensor):
            return self.data.index_select(0, index)
        rows = self.data[index.cpu().numpy()].astype(np.float32)  # not np.take, which would copy all of a view first
        return torch.from_numpy(rows).to(self.device, non_blocking=True)

    def parts(self, items: Tensor, least: int) -> list[tuple[Rows, Tensor]]:
        """`items`, (m,) positions, by the narrowest width that holds them, each part with rows of that width.

        A part takes positions of the whole, and is a view of its columns. So that each can fill a batch, a group of
        fewer than `least` items moves on to the next width; where the widest stays too small, the longest items of the
        one before join it, or all of them if too few would be left. Only a part that is alone may be smaller.
        """
        widths, lengths = torch.tensor(self.widths, device=self.device), self.lengths[items]
        group, last = torch.searchsorted(widths, lengths), len(self.widths) - 1
        for k in range(last):
            if int((group == k).sum()) < least:
                group[group == k] = k + 1
        missing = least - int((group == last).sum())
        below = group[group < last]
        if 0 < missing < least and len(below):
            next_to = (group == below.max()).nonzero().squeeze(-1)
            longest = lengths[next_to].argsort(descending=True, stable=True)
            enough = len(next_to) - missing >= least
            group[next_to[longest[:missing]] if enough else next_to] = last
        found: list[tuple[Rows, Tensor]] = []
        for k in group.unique().tolist():
            mine = group == k
            width = self.widths[int(torch.searchsorted(widths, lengths[mine].max()))]
            found.append((self._narrow(width), items[mine]))
        return found

    def _narrow(self, width: int) -> Ragged:
        part = copy.copy(self)
        part.data, part.widths = self.data[:, :width], (width,)
        return part


def parts(rows: Rows, items: Tensor, least: int) -> list[tuple[Rows, Tensor]]:
    """Rows and positions in parts of one width each; all but ragged ones (with `parts` of their own) are one part."""
    own = getattr(rows, "parts", None)
    return [(rows, items)] if own is None else own(items, least)


def _fits(size: int, device: torch.device) -> bool:
    """Whether half of the device's free memory holds `size` bytes."""
    return size < int(torch.cuda.mem_get_info(device)[0]) // 2


def place(X: Any, device: torch.device, *, resident: bool) -> Rows:
    """Put data where batches are cheapest: on an accelerator when asked and when half of what is free holds it."""
    if scipy.sparse.issparse(X):
        return Csr(X, device)
    if resident and device.type == "cuda":
        itemsize = X.dtype.itemsize if X.dtype in (np.uint8, np.float32) else 4
        if _fits(X.size * itemsize, device):
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
    check_room(_COLUMN * d, {"features": d}, "what is known of each column", rows.device)
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
