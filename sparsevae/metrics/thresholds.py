"""Convert probabilities of labels to sets of labels, by a threshold and a largest number of labels."""

from __future__ import annotations

import numpy as np

from sparsevae.metrics.arrays import Floats, Integers
from sparsevae.metrics.multilabel import micro_f1

CANDIDATES = tuple(k / 50 for k in range(1, 50))
"""The thresholds that `best_threshold` compares."""


def cut(P: Floats, threshold: float, most: int) -> Integers:
    """Labels whose probability exceeds the threshold, at most the `most` likeliest; (n, L) -> (n, L), 0/1.

    >>> cut(np.array([[0.9, 0.4, 0.6], [0.1, 0.2, 0.1]]), 0.3, 2)
    array([[1, 0, 1],
           [0, 0, 0]])
    """
    on = np.greater(P, threshold)
    if most < P.shape[1]:
        first = np.argsort(-P, axis=1, kind="stable")[:, :most]
        kept = np.zeros_like(on)
        np.put_along_axis(kept, first, True, axis=1)
        on &= kept
    return on.astype(np.int64)


def best_threshold(Y: Integers, P: Floats, most: int) -> float:
    """The candidate with the best micro-F1 on Y (n, L), the middle one of several; 1/2 if Y has no label.

    P should be predictions of models that were not trained on these rows.

    >>> best_threshold(np.array([[1, 0], [1, 1]]), np.array([[0.7, 0.1], [0.6, 0.5]]), 2)
    0.3
    """
    if not Y.any():
        return 0.5
    scores = np.array([micro_f1(Y, cut(P, t, most)) for t in CANDIDATES])
    best = np.flatnonzero(scores == scores.max())
    return CANDIDATES[int(best[len(best) // 2])]
