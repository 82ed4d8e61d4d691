"""Choice of the widths of batches of sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sparsevae.checks import POSITIVE

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


def choose_widths(lengths: ArrayLike, n_widths: int = 4, *, multiple: int = 8) -> tuple[int, ...]:
    """Choose at most ``n_widths`` widths of least total padding, the last one for the longest row.

    With F(w) the number of rows of length <= w, widths w_1 < ... < w_k cost sum_j w_j (F(w_j) - F(w_{j-1})) positions.
    The minimum over all choices of multiples of ``multiple`` is computed by dynamic programming.

    Examples
    --------
    >>> choose_widths([3, 5, 7, 30, 31, 61], n_widths=2)
    (8, 64)
    """
    lengths = np.asarray(lengths, dtype=np.int64)
    if lengths.ndim != 1 or not len(lengths) or lengths.min() < 1:
        raise ValueError(f"expected lengths of shape (n,), each at least 1; got shape {lengths.shape}")
    POSITIVE.check("n_widths", n_widths, whole=True)
    POSITIVE.check("multiple", multiple, whole=True)
    widths, counts = np.unique(-(-lengths // multiple) * multiple, return_counts=True)  # (m,), only widths of some row
    upto = np.concatenate([[0], counts.cumsum()])  # (m + 1,): F, from 0
    cost = widths * upto[1:]  # least cost of the rows of length up to widths[i] with one width
    came = []
    for _ in range(min(n_widths, len(widths)) - 1):
        best, arg = np.empty_like(cost), np.zeros(len(widths), dtype=np.int64)
        best[0] = cost[0]
        for i in range(1, len(widths)):  # widths[i] is the width of all rows longer than widths[j]
            through = cost[:i] + widths[i] * (upto[i + 1] - upto[1 : i + 1])
            arg[i] = through.argmin()
            best[i] = through[arg[i]]
        cost = best
        came.append(arg)
    chosen, i = [int(widths[-1])], len(widths) - 1
    for arg in reversed(came):
        if i == 0:
            break
        i = int(arg[i])
        chosen.append(int(widths[i]))
    return tuple(reversed(chosen))
