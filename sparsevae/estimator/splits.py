r"""Splits of multi-label rows in which every label keeps its share: iterative stratification.

With random folds a rare label may be missing from some, where it cannot be evaluated. Here labels are processed one
by one, the one with the fewest unassigned rows first. Fold j with share r_j needs r_j t_l of the t_l rows of label l.
Each row is assigned to the fold that needs most further rows of the current label; of several such folds to the one
that needs most rows in all; then at random. Rows without labels are assigned last.

Sizes of folds are approximate, since a row with several labels counts for all of them.

References
----------
K. Sechidis, G. Tsoumakas, I. Vlahavas, "On the stratification of multi-label data", ECML PKDD 2011, algorithm 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from sparsevae.metrics.arrays import Codes, Integers
from sparsevae.metrics.multilabel import binary


def stratified_folds(Y: Codes, shares: Sequence[float], *, seed: int = 0) -> Integers:
    """The fold of every row, (n,), numbered from 0.

    Parameters
    ----------
    Y : (n, L), 0/1, dense or CSR
    shares : k positive numbers
        The relative sizes of the folds.
    seed : int
        The same seed gives the same folds.

    >>> Y = [[1, 0], [0, 1], [1, 0], [0, 1], [0, 0], [0, 0]]
    >>> fold = stratified_folds(Y, [1, 1])
    >>> sorted(fold[[0, 2]].tolist()), sorted(fold[[1, 3]].tolist()), sorted(fold[[4, 5]].tolist())
    ([0, 1], [0, 1], [0, 1])
    """
    known: Any = binary(Y, "Y")
    rows = np.asarray(known.toarray() if hasattr(known, "toarray") else known, dtype=bool)  # (n, L)
    share = np.asarray(shares, dtype=np.float64)
    if share.ndim != 1 or len(share) < 2 or not (np.isfinite(share) & (share > 0)).all():
        raise ValueError(f"shares must be at least two positive numbers, got {shares}")
    if len(share) > len(rows):
        raise ValueError(f"{len(rows)} rows cannot fill {len(share)} folds")
    share = share / share.sum()
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(rows))
    fold = np.full(len(rows), -1)
    unplaced = rows.sum(0)  # unassigned rows per label, (L,)
    room = share * len(rows)  # rows that each fold needs, (k,)
    wanted = share[:, None] * unplaced  # rows that each fold needs per label, (k, L)

    def place(row: int, choices: Integers) -> None:
        choices = choices[room[choices] == room[choices].max()]
        chosen = choices[rng.integers(len(choices))]
        fold[row] = chosen
        room[chosen] -= 1
        wanted[chosen, rows[row]] -= 1
        unplaced[rows[row]] -= 1

    while unplaced.any():
        rarest = np.flatnonzero(unplaced == unplaced[unplaced > 0].min())
        label = rarest[rng.integers(len(rarest))]
        for row in order[rows[order, label] & (fold[order] < 0)]:
            place(row, np.flatnonzero(wanted[:, label] == wanted[:, label].max()))
    for row in order[fold[order] < 0]:
        place(row, np.arange(len(share)))
    missing = np.setdiff1d(np.arange(len(share)), fold)
    if len(missing):
        raise ValueError(
            f"every fold needs a row, and folds {missing.tolist()} of {len(rows)} rows got none; use larger shares"
        )
    return fold


def stratified_split(Y: Codes, test: float = 0.2, *, seed: int = 0) -> tuple[Integers, Integers]:
    """Sorted indices of training and test rows; the test rows have about the share `test` of every label.

    >>> train, held_out = stratified_split(np.repeat(np.eye(2, dtype=int), 10, axis=0), 0.3)
    >>> len(train), int((held_out < 10).sum()), int((held_out >= 10).sum())
    (14, 3, 3)
    """
    if not 0 < test < 1:
        raise ValueError(f"test must be a share between 0 and 1, got {test}")
    fold = stratified_folds(Y, [1 - test, test], seed=seed)
    return np.flatnonzero(fold == 0), np.flatnonzero(fold == 1)


class MultiLabelKFold:
    """k folds for scikit-learn's ``cv=``, stratified over all labels.

    Parameters
    ----------
    n_splits : int
    seed : int

    >>> cv = MultiLabelKFold(2)
    >>> [(len(train), len(test)) for train, test in cv.split(np.zeros((6, 1)), np.ones((6, 1)))]
    [(3, 3), (3, 3)]
    """

    def __init__(self, n_splits: int = 5, *, seed: int = 0) -> None:
        self.n_splits = n_splits
        self.seed = seed

    def __repr__(self) -> str:
        return f"MultiLabelKFold({self.n_splits}, seed={self.seed})"

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """The number of folds."""
        return self.n_splits

    def split(self, X: Any, y: Codes, groups: Any = None) -> Iterator[tuple[Integers, Integers]]:
        """Indices of the training and test rows of every fold; y is (n, L)."""
        fold = stratified_folds(y, [1.0] * self.n_splits, seed=self.seed)
        for number in range(self.n_splits):
            yield np.flatnonzero(fold != number), np.flatnonzero(fold == number)
