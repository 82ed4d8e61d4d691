"""`Dataset`, which every loader returns, and two steps that several loaders share."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from sparsevae.checks import POSITIVE, In, check_room, check_seed

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Rows: TypeAlias = "np.ndarray | csr_array"
FRACTION = In(0, 1, "[)")


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Rows, labels and, if it is known, the ground truth.

    Attributes
    ----------
    name : str
    X : array of shape (n, d); texts are an array of str objects of shape (n,)
        Training rows. Grey and colour images are uint8 from 0 to 255, binary images uint8 0/1, generated
        values float32. Rows of a file keep the type of the file (a ``.npy`` stays a memory map, a sparse ``.npz``
        stays CSR).
    X_test : array of shape (m, d), or None
    y, y_test : array of shape (n,) and (m,), or None
        Class labels; or (n, L) and (m, L), 0/1, if a row may have several of L labels.
    image_shape : (height, width), or (height, width, 3) in colour, or None
        ``X[i].reshape(image_shape)`` is a picture, row by row from the top left.
    truth, truth_test : dict of arrays with n and m rows
        The sources that generated each row; empty if they are unknown.
    columns : tuple of d names, or None
    label_names : tuple, or None
        The name of class 0, 1, ...; or of each of the L columns of y.
    about : str
        Content, origin and licence.
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
            raise ValueError(f"image_shape {self.image_shape} does not have {d} features")
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
        if len(rows.shape) == 1 and rows.dtype == object:  # texts: one per row
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


def check_generated(n: int, n_test: int, seed: int, width: int, **sizes: int) -> None:
    """Refuse a number of rows or a seed that cannot be drawn.

    A row takes `width` bytes; `sizes` are the arguments that determine the width, for the message.
    """
    POSITIVE.check("n", n, whole=True)
    In(0).check("n_test", n_test, whole=True)
    check_seed("seed", seed, least=0)
    check_room((n + n_test) * width / 4, {"n": n, "n_test": n_test, **sizes}, "the rows")


Draw: TypeAlias = Callable[[np.random.SeedSequence, int], tuple[np.ndarray, dict[str, np.ndarray]]]


def generate(name: str, n: int, n_test: int, seed: int, train: Draw, test: Draw, **fields: Any) -> Dataset:
    """Draw training and test rows from two independent streams.

    `train` and `test` are functions of (stream, number of rows) that return X and its truth; `fields` are further
    fields of the Dataset. With n_test = 0 there is no X_test.
    """
    streams = np.random.SeedSequence(seed).spawn(2)
    X, truth = train(streams[0], n)
    X_test, truth_test = test(streams[1], n_test) if n_test else (None, {})
    return Dataset(name, X=X, X_test=X_test, truth=truth, truth_test=truth_test, **fields)


def stratified(labels: np.ndarray, fractions: Sequence[float], seed: int) -> np.ndarray:
    """Split rows at random, class by class: the number of each row's part, (n,).

    Part 1, 2, ... gets the given fraction of each class, rounded; part 0 gets the rest.

    >>> stratified(np.array([0, 0, 1, 1, 1, 1]), [0.5], seed=0).tolist()
    [1, 0, 1, 0, 1, 0]
    """
    rng = np.random.default_rng(seed)
    part = np.zeros(len(labels), dtype=np.int64)
    for label in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == label))
        ends = np.cumsum([round(len(members) * fraction) for fraction in fractions])
        for number, rows in enumerate(np.split(members, ends)[:-1], start=1):
            part[rows] = number
    return part
