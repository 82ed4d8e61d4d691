r"""Sparsity of a code by Hoyer's measure, and the active units.

.. math:: \mathrm{Hoyer}(v) = \frac{\sqrt d - \lVert v\rVert_1 / \lVert v\rVert_2}{\sqrt d - 1} \in [0, 1],

0 if all d entries have one magnitude, 1 if a single entry is not zero. Higher is sparser; it does not depend on scale
or signs.

References
----------
P. O. Hoyer, "Non-negative matrix factorization with sparseness constraints", JMLR 5, 2004.
E. Mathieu, T. Rainforth, N. Siddharth, Y. W. Teh, "Disentangling disentanglement in variational autoencoders",
ICML 2019: the average over a normalised code.
V. Prokhorov, Y. Li, E. Shareghi, N. Collier, "Hierarchical sparse variational autoencoder for text encoding", 2020:
the aggregate, and both per class.
Y. Burda, R. Grosse, R. Salakhutdinov, "Importance weighted autoencoders", ICLR 2016: active units.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sparsevae.checks import In
from sparsevae.metrics.arrays import LIMIT, Codes, Floats, Mask, floats, labels, matrix, over_spread, spread


def hoyer(v: Codes) -> Floats:
    """Hoyer of every row, (..., d) -> (...).

    The formula does not define two cases. A row of zeros has Hoyer 1 here, since nothing is sparser than a code with
    no active unit. For d = 1 a value that is not zero has Hoyer 0, so that the mean over rows is the share of rows in
    which the one unit is off.

    >>> hoyer([[1.0, 0.0, 0.0, 0.0], [1.0, -1.0, 1.0, -1.0], [0.0, 0.0, 0.0, 0.0]])
    array([1., 0., 1.])
    >>> round(float(hoyer([3.0, 4.0])), 6)  # (sqrt 2 - 7/5) / (sqrt 2 - 1)
    0.034315
    """
    size = np.abs(floats(v, "v"))
    if size.ndim == 0 or size.shape[-1] == 0:
        raise ValueError(f"v must have at least one entry along its last axis; got shape {size.shape}")
    d = size.shape[-1]
    peak = size.max(-1, keepdims=True)
    zero = peak[..., 0] == 0
    if d == 1:
        return np.where(zero, 1.0, 0.0)
    size = size / np.where(peak == 0, 1.0, peak)  # the largest entry is one: squares neither overflow nor vanish
    ratio = size.sum(-1) / np.where(zero, 1.0, np.sqrt((size**2).sum(-1)))  # between 1 and sqrt d
    return np.where(zero, 1.0, np.clip((math.sqrt(d) - ratio) / (math.sqrt(d) - 1), 0.0, 1.0))


def average_hoyer(Z: Codes, normalise: bool = True) -> float:
    """Av.Hoyer: the mean over rows of Hoyer(z / std(z)), Z of shape (n, d).

    Each unit is first divided by its standard deviation over the rows, with ddof 0 as in Prokhorov et al. (Mathieu
    et al. use ddof 1). The two differ by one factor per row, on which Hoyer does not depend. A dead unit, constant
    over the rows, becomes zero and counts in d. `normalise=False` leaves the code as it is.

    >>> average_hoyer([[1.0, 0.0], [0.0, 100.0]])
    1.0
    >>> round(average_hoyer([[1.0, 1.0], [-1.0, 3.0]], normalise=False), 6)  # rows: 0 and (sqrt 2 - 4/sqrt 10)/.414
    0.180224
    """
    Z = matrix(Z, "Z")
    return float(hoyer(over_spread(Z) if normalise else Z).mean())


def aggregate_hoyer(Z: Codes, normalise: bool = True, absolute: bool = True) -> float:
    r"""Agg.Hoyer: Hoyer of the average code, :math:`m_j = \frac1n \sum_i |\bar z_{ij}|`, Z of shape (n, d).

    If it is far below :func:`average_hoyer`, the rows are sparse in different units; if the two are about equal, the
    same units are on in every row. `absolute=False` averages the signed code, as the paper does (its appendix D.4):
    values of both signs then cancel, and a unit that is on in every row but symmetric counts as if it were off.

    >>> round(aggregate_hoyer([[1.0, 0.0], [0.0, 1.0]]), 6)
    0.0
    >>> aggregate_hoyer([[1.0, 0.0], [3.0, 0.0]])
    1.0
    """
    Z = matrix(Z, "Z")
    return _aggregate(over_spread(Z) if normalise else Z, absolute)


class CodeHoyer(NamedTuple):
    """Av.Hoyer; Agg.Hoyer of mean magnitudes; and Agg.Hoyer of signed means, as printed in HSVAE's paper."""

    average: float
    aggregate: float
    printed: float


def code_hoyer(Z: Codes) -> CodeHoyer:
    """:func:`average_hoyer` and :func:`aggregate_hoyer`, in both forms, of one code, (n, d).

    >>> code_hoyer([[2.0, 0.0], [0.0, 0.0]])
    CodeHoyer(average=1.0, aggregate=1.0, printed=1.0)
    """
    Z = over_spread(matrix(Z, "Z"))
    return CodeHoyer(float(hoyer(Z).mean()), _aggregate(Z, True), _aggregate(Z, False))


class ClassHoyer(NamedTuple):
    """Per class: its label, Av.Hoyer and Agg.Hoyer, each (n_classes,)."""

    classes: npt.NDArray[Any]
    average: Floats
    aggregate: Floats


def class_hoyer(
    Z: Codes,
    y: npt.ArrayLike,
    normalise: bool = True,
    absolute: bool = True,
    rare: float | None = None,
    threshold: float = 0.01,
) -> ClassHoyer:
    """Av.Hoyer and Agg.Hoyer of the rows of each class; if they are about equal, each class has its own active units.

    Parameters
    ----------
    Z : (n, d) codes
    y : (n,) labels
    normalise : bool
        Divide each unit by its standard deviation over all rows (not over the rows of a class).
    absolute : bool
        As in :func:`aggregate_hoyer`.
    rare : float in [0, 1), or None
        In figure 3(b) of the paper the units that are on least often are zero in each average code: with b_j the
        share of all rows in which |z_j| > `threshold`, and t the entry number ceil(rare d), counted from zero, of b
        in rising order, it keeps the units with b_j > t. Its value is .05; None keeps every unit.
    threshold : float
        For `rare`, a unit is on if |z_j| exceeds it.

    >>> class_hoyer([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0], [0.0, 3.0]], ["a", "a", "b", "b"])
    ClassHoyer(classes=array(['a', 'b'], dtype='<U1'), average=array([1., 1.]), aggregate=array([1., 1.]))
    """
    Z = matrix(Z, "Z")
    y = labels(y, len(Z), "y")
    if normalise:
        Z = over_spread(Z)
    keep = np.ones(Z.shape[1], bool) if rare is None else _common(Z, rare, threshold)
    classes = np.unique(y)
    return ClassHoyer(
        classes,
        np.array([hoyer(Z[y == c]).mean() for c in classes]),
        np.array([_aggregate(Z[y == c] * keep, absolute) for c in classes]),
    )


def active_units(means: Codes, threshold: float = 0.01) -> Mask:
    r"""True for units of varying posterior mean: :math:`\mathrm{Var}_x(E_{q(z|x)} z_j) >` `threshold`; (n, J) -> (J,).

    Burda et al. (2016), ddof 0. Its sum is the number of units that a model uses over a data set, not the number of
    units that are on in one row.

    >>> active_units([[1.0, 0.01], [-1.0, -0.01]])
    array([ True, False])
    """
    LIMIT.check("threshold", threshold)
    return spread(matrix(means, "means")) ** 2 > threshold


def _aggregate(Z: Floats, absolute: bool) -> float:
    return float(hoyer((np.abs(Z) if absolute else Z).mean(0)))


def _common(Z: Floats, rare: float, threshold: float) -> Mask:
    """True for the units that are on more often than the rarest; see `rare` in :func:`class_hoyer`."""
    In(0, 1, "[)").check("rare", rare, "a share in [0, 1), or None")
    LIMIT.check("threshold", threshold)
    on = (np.abs(Z) > threshold).mean(0)
    keep: Mask = on > np.sort(on)[min(math.ceil(rare * len(on)), len(on) - 1)]
    if not keep.any():
        raise ValueError(
            f"rare={rare} keeps no unit: a unit must be on in more than {on.max():.3g} of the rows, and none is (as "
            "with dense codes); use rare=None, or a higher threshold"
        )
    return keep
