"""Linear probe: accuracy of a linear classifier on codes, trained with all labels or a few.

References
----------
G. Alain, Y. Bengio, "Understanding intermediate layers using linear classifier probes", ICLR workshop 2017.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from sparsevae.checks import is_number
from sparsevae.metrics.arrays import Codes, Integers, labels, plain


def linear_probe(
    Z_train: Codes,
    y_train: npt.ArrayLike,
    Z_test: Codes,
    y_test: npt.ArrayLike,
    n_labels: int | None = None,
    seed: int = 0,
    *,
    C: float = 1.0,
) -> float:
    """Test accuracy of a logistic regression on the codes.

    Units are divided by their standard deviation over all training codes (which needs no labels) and not centred, so
    that sparse codes stay sparse. A dead unit is not changed.

    Parameters
    ----------
    Z_train, Z_test : (n, J) and (m, J) codes
    y_train, y_test : (n,) and (m,) labels
    n_labels : int, or None for all
        Number of training rows to use: each class in its proportion, at least one row of each.
    seed : int
        Seed of the choice of rows.
    C : float
        Inverse strength of the L2 penalty.

    >>> linear_probe([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0], [0.0, 3.0]], [0, 0, 1, 1], [[1.5, 0.0], [0.0, 2.0]], [0, 1])
    1.0
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler
    from sklearn.utils import check_array

    train: Any = check_array(plain(Z_train, "Z_train"), accept_sparse="csr", dtype=np.float64, input_name="Z_train")
    test: Any = check_array(plain(Z_test, "Z_test"), accept_sparse="csr", dtype=np.float64, input_name="Z_test")
    if train.shape[1] != test.shape[1]:
        raise ValueError(f"Z_train has {train.shape[1]} units but Z_test has {test.shape[1]}")
    y_train, y_test = labels(y_train, train.shape[0], "y_train"), labels(y_test, test.shape[0], "y_test")
    if len(np.unique(y_train)) < 2:
        raise ValueError("y_train must have at least two classes; got one")
    rows = np.arange(len(y_train)) if n_labels is None else _stratified(y_train, n_labels, seed)
    scaler = StandardScaler(with_mean=False).fit(train)
    classifier = LogisticRegression(C=C, max_iter=5000).fit(scaler.transform(train[rows]), y_train[rows])
    return float(classifier.score(scaler.transform(test), y_test))


def _stratified(y: npt.NDArray[Any], n_labels: int, seed: int) -> Integers:
    """`n_labels` random rows: one of each class first, then each class in its proportion."""
    _, which, counts = np.unique(y, return_inverse=True, return_counts=True)
    if not is_number(n_labels, whole=True) or not len(counts) <= n_labels <= len(y):
        raise ValueError(
            f"n_labels must be an integer between the number of classes, {len(counts)}, and of training rows, "
            f"{len(y)}; got {n_labels!r}"
        )
    order = np.random.default_rng(seed).permutation(len(y))
    rank = np.empty(len(y))
    for c, count in enumerate(counts):
        # Row k of a class of N has rank (k + 1/2) / N: a threshold on ranks takes the same share of every class.
        rank[order[which[order] == c]] = np.r_[0.0, (np.arange(1, count) + 0.5) / count]
    return order[np.argsort(rank[order], kind="stable")[:n_labels]]
