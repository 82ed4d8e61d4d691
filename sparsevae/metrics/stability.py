r"""Stability over seeds: the units of two models are matched one to one by their similarity.

The similarity of unit i of one model and unit j of another is :math:`|\mathrm{corr}(z_i, z'_j)|` over the same rows;
with decoder directions (the vectors that the units add to the reconstruction, one per unit), it is the mean of that and
:math:`|\cos(d_i, d'_j)|`. The matching is the assignment with the largest total similarity. The result does not depend
on the order, signs and scales of the units, except for the threshold below which a unit is unused.

References
----------
H. W. Kuhn, "The Hungarian method for the assignment problem", Naval Research Logistics Quarterly 2, 1955.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from sparsevae.metrics.arrays import Codes, Floats, Integers, matrix
from sparsevae.metrics.correlation import correlation_matrix, used_units


class Matching(NamedTuple):
    """Pairs of units, (m,) each, with their similarity, and the mean that counts units without a partner as 0."""

    first: Integers
    second: Integers
    similarity: Floats
    mean: float


def match_units(
    A: Codes,
    B: Codes,
    directions_a: Codes | None = None,
    directions_b: Codes | None = None,
    threshold: float = 0.05,
) -> Matching:
    """Match the used units of two codes of the same rows.

    Parameters
    ----------
    A : (n, J) codes of one model
    B : (n, L) codes of another
    directions_a, directions_b : (J, D) and (L, D), or None
        Decoder directions, both or neither.
    threshold : float
        Units with a standard deviation at or below it are unused (:func:`used_units`) and are not matched.

    Returns
    -------
    Matching, with min(used in A, used in B) pairs. `mean` divides by the larger of the two numbers, so a feature that
    the other model does not have counts as 0; it is NaN if no model uses a unit.

    >>> A = [[1.0, 0.0], [0.0, 2.0], [0.0, 0.0]]
    >>> B = [[0.0, -3.0], [5.0, 0.0], [0.0, 0.0]]
    >>> match = match_units(A, B)
    >>> match.first, match.second, round(match.mean, 6)
    (array([0, 1]), array([1, 0]), 1.0)
    """
    from scipy.optimize import linear_sum_assignment

    A, B = matrix(A, "A"), matrix(B, "B")
    similarity = correlation_matrix(A, B)
    if (directions_a is None) != (directions_b is None):
        raise ValueError("directions must be given for both models or for neither")
    if directions_a is not None and directions_b is not None:
        similarity = (similarity + _cosines(directions_a, directions_b, similarity.shape)) / 2
    used_a, used_b = (np.flatnonzero(used_units(Z, threshold)) for Z in (A, B))
    similarity = similarity[np.ix_(used_a, used_b)]
    rows, columns = linear_sum_assignment(similarity, maximize=True)
    matched = similarity[rows, columns]
    larger = max(similarity.shape)
    mean = float(matched.sum() / larger) if larger else float("nan")
    return Matching(used_a[rows], used_b[columns], matched, mean)


def seed_stability(
    codes: Sequence[Codes], directions: Sequence[Codes] | None = None, threshold: float = 0.05
) -> Floats:
    """Mean matched similarity of every pair of models, as a symmetric (R, R) matrix with 1 on its diagonal.

    `codes` holds one code of the same rows per seed, `directions` the decoder directions in the same order; see
    :func:`match_units`. One number for R seeds is the mean over pairs, ``s[np.triu_indices(R, 1)].mean()``.

    >>> Z = np.array([[1.0, 0.0], [0.0, 2.0], [0.0, 0.0]])
    >>> seed_stability([Z, -3 * Z[:, ::-1], Z[:, [0, 0]]]).round(3)  # the third has one feature twice: (1 + 1/2) / 2
    array([[1.  , 1.  , 0.75],
           [1.  , 1.  , 0.75],
           [0.75, 0.75, 1.  ]])
    """
    if len(codes) < 2:
        raise ValueError(f"stability compares at least two models; got {len(codes)}")
    if directions is not None and len(directions) != len(codes):
        raise ValueError(f"there must be as many directions as codes; got {len(directions)} and {len(codes)}")
    table = np.eye(len(codes))
    for a, b in combinations(range(len(codes)), 2):
        d_a, d_b = (None, None) if directions is None else (directions[a], directions[b])
        table[a, b] = table[b, a] = match_units(codes[a], codes[b], d_a, d_b, threshold).mean
    return table


def _cosines(a: Codes, b: Codes, shape: tuple[int, ...]) -> Floats:
    """|cos| of every pair of directions, (J, D) and (L, D) -> (J, L); 0 for a zero direction."""
    a, b = matrix(a, "directions_a"), matrix(b, "directions_b")
    if (len(a), len(b)) != shape or a.shape[1] != b.shape[1]:
        raise ValueError(
            f"directions must have one row per unit, {shape[0]} and {shape[1]}, of equal length; "
            f"got shapes {a.shape} and {b.shape}"
        )
    a, b = (v / np.where((norm := np.linalg.norm(v, axis=1, keepdims=True)) > 0, norm, 1.0) for v in (a, b))
    return np.clip(np.abs(a @ b.T), 0.0, 1.0)
