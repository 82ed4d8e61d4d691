r"""F1 of predicted sets of labels: over all labels together (micro), and label by label (macro).

Truth and prediction are 0/1 arrays of shape (n, L), dense or CSR. Label l has :math:`t_l` true rows, :math:`p_l`
predicted rows and :math:`h_l` rows that are both (hits). Then

.. math::
    \text{precision}_l = h_l / p_l, \qquad \text{recall}_l = h_l / t_l, \qquad
    \text{F1}_l = \frac{2 h_l}{t_l + p_l}, \qquad
    \text{micro-F1} = \frac{2 \sum_l h_l}{\sum_l t_l + \sum_l p_l}.

Macro-F1 has two definitions in the literature. With P and R the means over labels of precision and recall,

.. math::
    \text{mean: } \frac1L \sum_l \text{F1}_l, \qquad \text{harmonic: } \frac{2 P R}{P + R}.

The second is never the smaller one, since the harmonic mean is concave; it can be several points higher. It reproduces
the baselines of SDLGM's table II (those of the sparsemax paper); the first does not. The paper does not state which it
uses (erratum 18). Report which one you use.

If a denominator is zero, the quotient is `zero_division`, by default 0: the precision of a label that is never
predicted, the recall of one that never occurs, the F1 of one that does neither. (scikit-learn's default is the same 0,
with a warning.) A harmonic mean of two zeros is zero.

Labels are not counted by scikit-learn's `multilabel_confusion_matrix`, which returns the same numbers in 2 to 20 times
the time (500 rows of 20 labels: .9 ms against .08) and reads a single column of labels as two classes.

References
----------
A. F. T. Martins, R. F. Astudillo, "From softmax to sparsemax", ICML 2016: the baselines, macro-F1 as harmonic mean.
J. Opitz, S. Burst, "Macro F1 and macro F1", 2019: the two definitions compared.
B. Efron, "Bootstrap methods: another look at the jackknife", Annals of Statistics 7, 1979.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from sparsevae.checks import POSITIVE, In, OneOf
from sparsevae.metrics.arrays import Codes, Floats, Integers, plain
from sparsevae.parameters import check_value

DEFINITIONS = ("mean", "harmonic")


class LabelTable(NamedTuple):
    """Per label, (L,) each: number of true rows, predicted rows and hits; precision, recall and F1."""

    true: Integers
    predicted: Integers
    hits: Integers
    precision: Floats
    recall: Floats
    f1: Floats


class Interval(NamedTuple):
    """A value, and the interval of its resampled values."""

    value: float
    low: float
    high: float


def binary(Y: Codes, name: str) -> Any:
    """The array (n, L) as dense uint8 or CSR int64, after a check: zeros and ones, at least one row and one label."""
    array: Any = plain(Y, name)
    if array.ndim != 2 or 0 in array.shape:
        raise ValueError(
            f"{name} must have two dimensions, (rows, labels), and at least one of each; got shape {array.shape}"
        )
    sparse = hasattr(array, "tocsr")
    if sparse:
        array = array.tocsr(copy=True)  # a copy: changed in place below
        array.sum_duplicates()
    entries = array.data if sparse else array
    if array.dtype.kind not in "biuf" or not np.isin(entries, (0, 1)).all():
        raise ValueError(
            f"{name} must hold 0 and 1 alone, one column per label; probabilities need a threshold first, and "
            "one class per row needs one column per class"
        )
    return array.astype(np.int64 if sparse else np.uint8)  # sums of sparse products have the type of the entries


def label_table(Y_true: Codes, Y_pred: Codes, zero_division: float = 0.0) -> LabelTable:
    """Counts, precision, recall and F1 of every label.

    >>> table = label_table([[1, 0], [1, 1], [0, 0]], [[1, 0], [0, 1], [0, 1]])
    >>> table.hits, table.precision, table.recall
    (array([1, 1]), array([1. , 0.5]), array([0.5, 1. ]))
    """
    true, predicted, hits = _counts(Y_true, Y_pred)
    return LabelTable(
        true,
        predicted,
        hits,
        _quotient(hits, predicted, zero_division),
        _quotient(hits, true, zero_division),
        _quotient(2 * hits, true + predicted, zero_division),
    )


def micro_f1(Y_true: Codes, Y_pred: Codes, zero_division: float = 0.0) -> float:
    """F1 over all entries of the matrix; a frequent label has more weight than a rare one.

    >>> micro_f1([[1, 0], [1, 1], [0, 0]], [[1, 0], [0, 1], [0, 1]])  # 2 hits, 3 true, 3 predicted
    0.6666666666666666
    """
    true, predicted, hits = (int(count.sum()) for count in _counts(Y_true, Y_pred))
    return float(_quotient(np.array(2 * hits), np.array(true + predicted), zero_division))


def macro_f1(Y_true: Codes, Y_pred: Codes, definition: str = "mean", zero_division: float = 0.0) -> float:
    """F1 in which every label has the same weight.

    Parameters
    ----------
    Y_true, Y_pred : (n, L), 0/1
    definition : "mean" or "harmonic"
        The mean of the labels' F1; or the harmonic mean of the mean precision and the mean recall, which the
        published baselines report.
    zero_division : float
        The value of 0/0, for a label that never occurs or is never predicted.

    >>> Y, P = [[1, 0], [1, 1], [0, 0]], [[1, 0], [0, 1], [0, 1]]
    >>> macro_f1(Y, P), macro_f1(Y, P, definition="harmonic")  # the labels' precisions are 1, 1/2, their recalls 1/2, 1
    (0.6666666666666666, 0.75)
    """
    check_value("definition", definition, str, [OneOf(*DEFINITIONS)])
    table = label_table(Y_true, Y_pred, zero_division)
    if definition == "mean":
        return float(table.f1.mean())
    precision, recall = table.precision.mean(), table.recall.mean()
    return float(_quotient(2 * precision * recall, precision + recall, 0.0))


def cardinality(Y: Codes) -> float:
    """Mean number of labels per row.

    >>> cardinality([[1, 0, 1], [0, 0, 0]])
    1.0
    """
    rows = binary(Y, "Y")
    return float(rows.sum() / rows.shape[0])


def bootstrap_interval(
    metric: Callable[[Any, Any], float],
    Y_true: Codes,
    Y_pred: Codes,
    *,
    level: float = 0.95,
    n_resamples: int = 1000,
    seed: int = 0,
) -> Interval:
    """Percentile bootstrap interval of a metric over the rows.

    It measures variation over test rows of the same source, not over training rows or seeds of the training.

    Parameters
    ----------
    metric : function of (Y_true, Y_pred), such as :func:`micro_f1`
    Y_true, Y_pred : (n, L), 0/1
    level : float between 0 and 1
        The share of the resampled values in the interval; equal shares are below and above.
    n_resamples : int
    seed : int

    >>> Y, P = np.eye(4, dtype=int), np.ones((4, 4), dtype=int)
    >>> bootstrap_interval(micro_f1, Y, P)  # every row has one hit among four: all resampled values are equal
    Interval(value=0.4, low=0.4, high=0.4)
    """
    In(0, 1, "()").check("level", level)
    POSITIVE.check("n_resamples", n_resamples, whole=True)
    Y, P = _pair(Y_true, Y_pred)
    draws = np.random.default_rng(seed).integers(0, Y.shape[0], size=(n_resamples, Y.shape[0]))
    values = [metric(Y[rows], P[rows]) for rows in draws]
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(metric(Y, P)), float(low), float(high))


def _pair(Y_true: Codes, Y_pred: Codes) -> tuple[Any, Any]:
    """Both matrices after a check, of equal shapes and both dense or both CSR."""
    Y, P = binary(Y_true, "Y_true"), binary(Y_pred, "Y_pred")
    if Y.shape != P.shape:
        raise ValueError(f"Y_true and Y_pred must have the same rows and labels; got shapes {Y.shape} and {P.shape}")
    if hasattr(Y, "toarray") != hasattr(P, "toarray"):
        Y, P = (np.asarray(A.toarray(), dtype=np.uint8) if hasattr(A, "toarray") else A for A in (Y, P))
    return Y, P


def _counts(Y_true: Codes, Y_pred: Codes) -> tuple[Integers, Integers, Integers]:
    """Number of true rows, predicted rows and hits per label, (L,) each."""
    Y, P = _pair(Y_true, Y_pred)
    both = Y.multiply(P) if hasattr(Y, "toarray") else Y & P
    true, predicted, hits = (np.asarray(A.sum(0), dtype=np.intp).reshape(-1) for A in (Y, P, both))
    return true, predicted, hits


def _quotient(above: Any, below: Any, zero_division: float) -> Floats:
    """above / below, or `zero_division` for 0/0."""
    below = np.asarray(below, dtype=np.float64)
    out = np.full(below.shape, float(zero_division))
    np.divide(above, below, out=out, where=below > 0)
    return out
