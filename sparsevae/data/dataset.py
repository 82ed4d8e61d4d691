"""What every loader returns."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from sparsevae.checks import check_number, check_room

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Rows: TypeAlias = "np.ndarray | csr_array"


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Rows, labels and, where it is known, the truth behind them.

    Attributes
    ----------
    name : str
    X : array of shape (n, d); texts are an array of str objects of shape (n,)
        Training rows. Grey and colour images are uint8 from 0 to 255, binary images uint8 0/1, generated
        values float32; a file keeps the type it was stored with (a ``.npy`` stays a memory map, a sparse ``.npz``
        stays CSR).
    X_test : array of shape (m, d), or None
    y, y_test : array of shape (n,) and (m,), or None
        Class labels; or (n, L) and (m, L), 0/1, where a row may have several of L labels.
    image_shape : (height, width), or (height, width, 3) in colour, or None
        ``X[i].reshape(image_shape)`` is a picture, row by row from the top left.
    truth, truth_test : dict of arrays with n and m rows
        The sources that generated each row; empty where nobody knows them.
    columns : tuple of d names, or None
    label_names : tuple, or None
        The name of class 0, 1, ...; or of each of the L columns of y.
    about : str
        What it is, where it comes from, under which licence.
    """

    name: str
    X: Rows
    X_test: Rows | None = None
    y: np.ndarray | None = None
    y_test: np.ndarray | None = None
    image_shape: tuple[int, ...] | None = None
    truth: dict[str, np.ndarray] = field(default_factory=dict)
    truth_test: dict[str, np.ndarray] = field(default_factory=dict)
    columns: tuple[str, ...] | None = None
    label_names: tuple[str, ...] | None = None
    about: str = ""

    def __post_init__(self) -> None:
        d = self._features(self.X, "X")
        if self.X_test is not None and self._features(self.X_test, "X_test") != d:
            raise ValueError(f"X has {d} features but X_test has {self.X_test.shape[1]}")
        if self.image_shape is not None and math.prod(self.image_shape) != d:
            raise ValueError(f"image_shape {self.image_shape} does not hold {d} features")
        if self.columns is not None and len(self.columns) != d:
            raise ValueError(f"{len(self.columns)} column names for {d} features")
        for split, rows, labels, truth in (
            ("", self.X, self.y, self.truth),
            ("_test", self.X_test, self.y_test, self.truth_test),
        ):
            n = 0 if rows is None else rows.shape[0]
            beside = {f"truth{split}[{key!r}]": value for key, value in truth.items()}
            if labels is not None:
                beside[f"y{split}"] = labels
            for what, value in beside.items():
                if len(value) != n:
                    raise ValueError(f"X{split} has {n} rows but {what} has {len(value)}")
            if self.label_names is not None and labels is not None and n:
                named = len(self.label_names)
                labelled = labels.shape[1] if labels.ndim == 2 else int(labels.max()) + 1
                if labelled > named or (labels.ndim == 2 and labelled < named):
                    raise ValueError(f"{named} label names for the {labelled} labels of y{split}")

    @staticmethod
    def _features(rows: Rows, what: str) -> int:
        if len(rows.shape) == 1 and rows.dtype == object:  # texts: one a row
            return 1
        if len(rows.shape) != 2:
            raise ValueError(f"{what} must have two dimensions, (rows, features); got shape {rows.shape}")
        return int(rows.shape[1])

    def __repr__(self) -> str:
        parts = [repr(self.name), f"X={self.X.shape} {self.X.dtype}"]
        if self.X_test is not None:
            parts.append(f"X_test={self.X_test.shape} {self.X_test.dtype}")
        if self.y is not None:
            parts.append("y")
        if self.image_shape is not None:
            parts.append(f"image_shape={self.image_shape}")
        if self.truth:
            parts.append(f"truth={sorted(self.truth)}")
        return f"Dataset({', '.join(parts)})"


def check_rows(n: int, n_test: int, width: int, **sizes: int) -> None:
    """Refuse numbers of rows that cannot be drawn, of so many bytes each, for which `sizes` are to blame."""
    check_number("n", n, "an integer above 0", lambda k: k > 0, whole=True)
    check_number("n_test", n_test, "an integer, 0 or above", lambda k: k >= 0, whole=True)
    check_room((n + n_test) * width / 4, {"n": n, "n_test": n_test, **sizes}, "the rows")
