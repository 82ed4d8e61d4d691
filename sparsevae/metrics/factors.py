"""Known factors, their bins, and the mutual information between units and factors.

A factor is **discrete** (its values are categories) or **continuous** (its values are quantities). By default an array
of integers or booleans is discrete and an array of floats continuous; `discrete` overrides this, for all factors or for
each. Sources S * V, which are zero when they are off, are continuous.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from sparsevae.checks import In
from sparsevae.metrics.arrays import Codes, Floats, Integers, Mask, matrix, near_one, same_rows

Discrete: TypeAlias = "bool | Sequence[bool] | None"


def mutual_information(Z: Codes, factors: npt.ArrayLike, *, n_bins: int = 20, discrete: Discrete = None) -> Floats:
    """I(z_j; v_k) in nats between every unit and every factor, (J, K).

    The plug-in estimate after binning every unit and every continuous factor into `n_bins` bins of equal width. Units
    with at most `n_bins` values, or at most as many as a discrete factor has levels, are not binned. The estimate is
    biased upwards by about (bins of z - 1)(bins of v - 1) / 2n nats: use many rows.

    >>> mutual_information([[0.0, 5.0], [0.0, 5.0], [1.0, 5.0], [1.0, 5.0]], [[0], [0], [1], [1]]).round(6)  # log 2, 0
    array([[0.693147],
           [0.      ]])
    """
    return np.hstack([information(*pair) for pair in cut(*checked_factors(Z, factors, discrete), n_bins)])


def checked_factors(Z: Codes, factors: npt.ArrayLike, discrete: Discrete) -> tuple[Floats, Floats, Mask]:
    """Codes (n, J), factors (n, K), and a mask of the discrete factors (K,), after a check."""
    Z, truth = matrix(Z, "Z"), matrix(factors, "factors")
    same_rows(Z=Z, factors=truth)
    constant = np.flatnonzero(truth.min(0) == truth.max(0))
    if constant.size:
        raise ValueError(f"a factor must vary over the rows; constant columns: {constant.tolist()}. Leave them out")
    if discrete is None:
        discrete = np.asarray(factors).dtype.kind in "bui"
    named = np.asarray(discrete)
    if named.dtype != np.bool_ or named.shape not in ((), (truth.shape[1],)):
        raise ValueError(
            f"discrete must be True, False, None or {truth.shape[1]} booleans, one per factor; got {discrete}"
        )
    return Z, truth, np.broadcast_to(named, truth.shape[1:])


def entropy(p: Floats) -> float:
    """Entropy of probabilities, in nats."""
    p = p[p > 0]
    return float(-(p * np.log(p)).sum())


def information(cells: Integers, levels: Integers) -> Floats:
    """I = sum p(z, v) log p(z, v) / (p(z) p(v)) of every pair of columns; (n, J) and (n, K) -> (J, K)."""
    n, table = len(cells), np.zeros((cells.shape[1], levels.shape[1]))
    for k, v in enumerate(levels.T):
        n_levels = int(v.max()) + 1
        for j, z in enumerate(cells.T):
            joint = np.bincount(z * n_levels + v, minlength=(int(z.max()) + 1) * n_levels).reshape(-1, n_levels) / n
            independent = joint.sum(1, keepdims=True) * joint.sum(0)
            some = joint > 0
            table[j, k] = (joint[some] * np.log(joint[some] / independent[some])).sum()
    # Rounding leaves an independent pair at 1e-17 of either sign, and modularity depends on ratios only.
    return np.where(table < 1e-12, 0.0, table)


def cut(Z: Floats, truth: Floats, named: Mask, n_bins: int) -> Iterator[tuple[Integers, Integers]]:
    """Per factor the units and the factor as integers from 0, (n, J) and (n, 1): the index of a value, or of its bin.

    A discrete factor is not binned, and neither are units with at most `n_bins` values, or at most as many as the
    factor has levels, which fewer bins could not separate.
    """
    bins, levels = binned(Z, n_bins), binned(truth, n_bins)
    own = [np.unique(unit, return_inverse=True) for unit in Z.T]
    counts, numbers = np.array([len(values) for values, _ in own]), np.stack([number for _, number in own], 1)
    for k, discrete in enumerate(named):
        if discrete:
            levels[:, k] = np.unique(truth[:, k], return_inverse=True)[1]
        few = max(n_bins, int(levels[:, k].max()) + 1)
        yield np.where(counts <= few, numbers, bins), levels[:, [k]]


def binned(columns: Floats, n_bins: int) -> Integers:
    """Index of the bin per value, of `n_bins` of equal width between the least and the largest value of a column.

    Constant columns have index 0; (n, J) -> (n, J).
    """
    In(2).check("n_bins", n_bins, whole=True)
    columns, _ = near_one(columns)
    low, high = columns.min(0), columns.max(0)
    position = (columns - low) / np.where(high > low, high - low, 1.0)
    cells: Integers = np.minimum(position * n_bins, n_bins - 1).astype(np.intp)
    return cells
