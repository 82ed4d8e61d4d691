"""Targets y of a user: one class per row, any number of labels per row, or counts; dense or sparse."""

from __future__ import annotations

import reprlib
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array
from torch import Tensor

from sparsevae.checks import a_type
from sparsevae.exceptions import warn_caller
from sparsevae.inputs.rows import from_tensor
from sparsevae.metrics.arrays import filled, sound
from sparsevae.metrics.multilabel import binary
from sparsevae.tables.columns import is_table


class Labels(NamedTuple):
    """The form of y: the L classes or column numbers, True for one class per row, True for CSR, names of the labels."""

    classes: np.ndarray[Any, Any]
    single: bool
    sparse: bool
    names: list[str]


def plain(y: Any) -> tuple[Any, list[str] | None]:
    """y as an array or sparse matrix, (n,) or (n, L), and the names of a DataFrame's columns.

    Arrays of objects become arrays of numbers if all are numbers.
    """
    given = getattr(y, "column_names", getattr(y, "columns", None))  # pyarrow's tables, other frames
    columns = None if given is None else [str(name) for name in given]
    _check_distinct(columns or (), "the columns of y", ": rename them, or give y.to_numpy() and label_names")
    if scipy.sparse.issparse(y):
        return sound(y, "y"), columns
    found = check_array(check_form(y), ensure_2d=False, dtype=None, ensure_min_samples=0, input_name="y")
    return (_numbers(found) if found.dtype == object else found), columns


def check_form(y: Any) -> Any:
    """y as a column or table with values of any type: tensors as arrays, masked entries as missing ones.

    A str, a number, a dict, a set or a generator is refused.
    """
    y = filled(from_tensor(y, "y") if isinstance(y, Tensor) else y)
    if is_table(y) and not y.shape[1]:
        raise ValueError(
            f"y is a {type(y).__name__} without columns, of shape {y.shape}: give a column for each label."
        )
    if isinstance(y, (list, tuple)) and len({np.shape(row) for row in y if not isinstance(row, str)}) > 1:
        raise ValueError("y holds lists of different lengths: make them 0/1 with sklearn's MultiLabelBinarizer.")
    if not np.asarray(y).ndim:
        found = f"{a_type(y)}, {reprlib.repr(y)}{': pass list(y)' if isinstance(y, Iterator) else ''}"
        raise ValueError(f"y must be an array or list, (n,) or (n, L), with one row per row of X; got {found}.")
    return y


def _numbers(objects: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Objects as numbers, if all are numbers; other objects unchanged, if all are of one type."""
    values = objects.ravel().tolist()
    if sorts := {type(v).__name__ for v in values if isinstance(v, Collection) and not isinstance(v, (str, bytes))}:
        kinds = " and ".join(sorted(sorts))
        raise ValueError(f"y holds values of type {kinds}: make them 0/1 with sklearn's MultiLabelBinarizer.")
    if (found := np.array(objects.tolist())).dtype.kind in "biuf":
        return found
    if len(types := {type(v) for v in values}) > 1:
        kinds = ", ".join(sorted(t.__name__ for t in types))
        raise ValueError(f"y holds values of several types, {kinds}: give classes of one type, none missing.")
    if types == {type(None)}:
        raise ValueError("y holds None alone: give a class, or numbers, for every row.")
    return objects


def check_names(names: Any, n: int) -> list[str]:
    """Names of n labels as a list of str; by default their numbers."""
    found = [str(name) for name in (range(n) if names is None else names)]
    if len(found) != n:
        raise ValueError(f"label_names must name the {n} labels of y, got {len(found)} names.")
    _check_distinct(found, "label_names")
    return found


def _check_distinct(names: Sequence[str], what: str, advice: str = "") -> None:
    """Refuse names of which two are equal."""
    if len(set(names)) != len(names):
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise ValueError(f"{what} must be distinct; {twice!r} occurs twice{advice}.")


def read_labels(y: Any, known: Labels | None, names: Any = None, classes: Any = None) -> tuple[Labels, Any]:
    """The form of y, and its 0/1 matrix (n, L), dense uint8 or CSR; a y of another form than `known` is refused.

    A column of 0 and 1 is one label. A column of anything else is taken for classes, with scikit-learn's warning.

    >>> labels, Y = read_labels(["b", "a", "b"], None)
    >>> labels.classes.tolist(), Y.tolist()
    (['a', 'b'], [[0, 1], [1, 0], [0, 1]])
    """
    y, columns = plain(y)
    single = y.ndim == 1
    if not single and y.shape[1] == 1 and not (scipy.sparse.issparse(y) or np.isin(y, (0, 1)).all()):
        warn_caller("A column-vector y was passed when a 1d array was expected: pass y.ravel().", DataConversionWarning)
        y, single = y.ravel(), True
    if single:
        check_classification_targets(y)
    Y: Any = y if single else binary(y, "y")
    if known is None:
        found = np.unique(y if classes is None else classes) if single else np.arange(Y.shape[1])
        given = columns if names is None else names
        given = found if single and given is None else given
        known = Labels(found, single, bool(scipy.sparse.issparse(Y)), check_names(given, len(found)))
    if single != known.single or (not single and Y.shape[1] != len(known.classes)):
        wanted = "classes, (n,)" if known.single else f"labels, (n, {len(known.classes)})"
        raise ValueError(f"this model was fitted to {wanted}; got y of shape {y.shape}.")
    if single:
        if len(new := np.setdiff1d(y, known.classes)):
            raise ValueError(f"y holds classes {new.tolist()} beside those known, {known.classes.tolist()}.")
        Y = (y[:, None] == known.classes).astype(np.uint8)
    return known, Y


def read_counts(y: Any) -> tuple[Any, list[str] | None, bool]:
    """Counts as a matrix, (n, K), dense or CSR; the names of a DataFrame's columns; True if y is (n,)."""
    y, names = plain(y)
    if y.ndim not in (1, 2) or 0 in y.shape:
        raise ValueError(
            f"y must be (rows, things), the counts of each thing, or (rows,), of one; got shape {y.shape}."
        )
    sparse = scipy.sparse.issparse(y)
    Y: Any = y.tocsr() if sparse else y.reshape(len(y), -1)
    values = Y.data if sparse else Y
    if Y.dtype.kind not in "biuf" or (values < 0).any() or (values != np.floor(values)).any():
        raise ValueError("y must be counts: whole numbers, 0 or above.")
    return Y, names, y.ndim == 1
