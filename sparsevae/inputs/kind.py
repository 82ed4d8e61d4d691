"""The kind of X, texts or numbers: found once, in `fit`, and checked in every later call."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from sparsevae.inputs.arrays import Arrays
from sparsevae.inputs.base import Input
from sparsevae.inputs.texts import Text, Texts
from sparsevae.tables.columns import is_number, is_table
from sparsevae.text.reading import FILES


def kind_of(X: Any, text: Text | None) -> Input:
    """The Input for X; `text` are the settings of texts, None for the defaults."""
    if holds_texts(X, None if text is None else text.column):
        return Texts(Text() if text is None else text)
    return Arrays()


def check_kind(X: Any, fitted: Input, model: str) -> None:
    """Refuse texts if the model was fitted on numbers; other differences are found when X is read."""
    if fitted.kind == Arrays.kind and holds_texts(X, None):
        raise ValueError(f"X must hold numbers, as it did when this {model} was fitted; got texts.")


def as_list(X: Any) -> Any:
    """The items of a generator as a list, which can be read twice; anything else unchanged."""
    return list(X) if isinstance(X, Iterator) else X


def holds_texts(X: Any, column: str | None) -> bool:
    """True if X is texts: by its file name, by `column`, or because an item is a str or bytes.

    A DataFrame, .csv or .parquet is texts if `column` is given, a .txt always. A str that is no file name counts as
    one text, a set or dict of texts and a list of lists of words as several, so that `read_texts` raises the error.
    """
    if isinstance(X, (str, os.PathLike)):
        ending = Path(X).suffix.lower()
        return is_text_file(X, column) or ending.split() != [ending]
    if is_table(X):
        return column is not None
    return any(isinstance(item, (str, bytes)) or _is_words(item) for item in _items(X))


def _items(X: Any) -> Iterable[Any]:
    """The items of X that could be texts: those of a collection, the values of one column; of rows of numbers none."""
    from sparsevae.data import Table

    match X:
        case Table(values):  # a NamedTuple: its fields are no items
            return _items(values)
        case bytes():
            return (X,)
        case list() | tuple() | set() | frozenset():
            return X
        case Mapping():  # of texts alone: scikit-learn's Bunch has numbers and a description
            return X.values() if all(isinstance(item, (str, bytes)) for item in X.values()) else ()
        case _:
            return np.asarray(X, dtype=object).ravel() if _is_column(X) else ()


def _is_column(X: Any) -> bool:
    """True for an array or Series, (n,) or (n, 1), of objects or texts."""
    shape, kind = getattr(X, "shape", None) or (), getattr(getattr(X, "dtype", None), "kind", "O")
    return kind in "OSUT" and not isinstance(X, Tensor) and (len(shape) == 1 or tuple(shape[1:]) == (1,))


def _is_words(item: Any) -> bool:
    """True for a text that was split into words; False for a row of a table, with numbers, also quoted ones."""
    if not (isinstance(item, (list, tuple)) or (isinstance(item, np.ndarray) and item.ndim == 1)) or not len(item):
        return False
    return all(isinstance(word, str) for word in item) and not all(map(is_number, item))


def is_text_file(path: str | os.PathLike[str], column: str | None, *, expected: bool = False) -> bool:
    """True if a file of this name has texts: a .txt always, a table with `column` or if texts are `expected`."""
    ending = Path(path).suffix.lower()
    return ending == ".txt" or ((expected or column is not None) and ending in FILES)
