"""Rows of several widths."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sparsevae.inputs.rows import EXACT, Rows, fits_exactly


class Ragged(Rows):
    """Rows of whole numbers that end in padding, such as sentences. Batches of short rows need few columns.

    `pick` returns all columns, as for all Rows. `parts` splits rows by width.

    Parameters
    ----------
    X : integer array (n, W)
        Values from 0 to 2**24 - 1, which float32 holds exactly.
    lengths : (n,)
        Columns of each row before its padding, 1 to W.
    widths : sequence of int
        Increasing; no row is longer than the last.
    device : torch.device
        On CUDA the rows are resident if they fit in half of the free memory, as int16 or int32.
    """

    def __init__(self, X: Any, lengths: Any, widths: Sequence[int], device: torch.device) -> None:
        X, lengths, widths = np.asarray(X), np.asarray(lengths), tuple(int(w) for w in widths)
        if X.ndim != 2 or X.dtype.kind not in "iu" or not X.size:
            raise ValueError(f"X must be integers of shape (n, W), got shape {X.shape} of {X.dtype}.")
        low, high = int(X.min()), int(X.max())
        if low < 0 or high >= EXACT:
            raise ValueError(f"X must lie in 0..{EXACT - 1}, which float32 holds exactly; got {low} to {high}.")
        if lengths.shape != X.shape[:1] or lengths.dtype.kind not in "iu":
            raise ValueError(f"lengths must be {len(X)} integers, one per row; got {lengths.shape} of {lengths.dtype}.")
        if lengths.min() < 1 or lengths.max() > X.shape[1]:
            raise ValueError(f"lengths must lie in 1..{X.shape[1]}; got {lengths.min()} to {lengths.max()}.")
        if not widths or any(a >= b for a, b in zip((0, *widths), widths, strict=False)) or widths[-1] < lengths.max():
            raise ValueError(f"widths must rise to {lengths.max()} or more, the longest row; got {widths}.")
        compact = np.int16 if high < 2**15 else np.int32
        self.static = device.type == "cuda" and fits_exactly(X.size * np.dtype(compact).itemsize, device)
        self.data: Tensor | np.ndarray[Any, Any] = torch.tensor(X.astype(compact), device=device) if self.static else X
        self.lengths = torch.tensor(lengths.astype(np.int64), device=device)
        self.widths, self.device = widths, device
        self.shape = X.shape

    def pick(self, index: Tensor) -> Tensor:
        if isinstance(self.data, Tensor):
            return self.data.index_select(0, index)
        rows = self.data[index.cpu().numpy()].astype(np.float32)  # not np.take, which would copy all of a view first
        return torch.from_numpy(rows).to(self.device, non_blocking=True)

    def parts(self, items: Tensor, least: int) -> list[tuple[Rows, Tensor]]:
        """Positions `items`, (m,), grouped by the narrowest of `widths` that fits; each with a view of those columns.

        So that each group can fill a batch, one of fewer than `least` items is merged with that of the next width. If
        the widest is too small, the longest items of the one before join it, or all of them if fewer than `least`
        would be left. Only a single group may be smaller.
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
        part.data, part.widths, part.shape = self.data[:, :width], (width,), (self.shape[0], width)
        return part
