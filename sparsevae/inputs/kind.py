"""What X is, texts or numbers: looked at once, in `fit`, and compared with that in every later call."""

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
    """The kind of data that X is; `text` are the settings of texts, None the default ones."""
    if holds_texts(X, None if text is None else text.column):
        return Texts(Text() if text is None else text)
    return Arrays()


def check_kind(X: Any, fitted: Input, model: str) -> None:
    """Refuse texts where the model was fitted on numbers; other differences show when X is read."""
    if fitted.kind == Arrays.kind and holds_texts(X, None):
        raise ValueError(f"X must hold numbers, as it did when this {model} was fitted; got texts.")


def as_list(X: Any) -> Any:
    """The items of a generator as a list, which can be read twice; anything else as it is."""
    return list(X) if isinstance(X, Iterator) else X


def holds_texts(X: Any, column: str | None) -> bool:
    """Whether X is texts rather than numbers: its name says so, or `column`, or a str or bytes among its items.

    A DataFrame, .csv or .parquet holds texts when `column` says where, a .txt always. A str that names no file is
    taken for one text, a set or dict of texts and a list of lists of words for several, so that `read_texts` can say
    what to do.
    """
    if isinstance(X, (str, os.PathLike)):
        ending = Path(X).suffix.lower()
        return is_text_file(X, column) or ending.split() != [ending]
    if is_table(X):
        return column is not None
    return any(isinstance(item, (str, bytes)) or _is_words(item) for item in _items(X))


def _items(X: Any) -> Iterable[Any]:
    """What of X could be texts: the items of a collection, the values of one column. Of rows of numbers, nothing."""
    from sparsevae.data import Table

    match X:
        case Table(values):  # a tuple, but its items are not what it holds
            return _items(values)
        case bytes():
            return (X,)
        case list() | tuple() | set() | frozenset():
            return X
        case Mapping():  # of texts alone: scikit-learn's Bunch has a description beside its numbers
            return X.values() if all(isinstance(item, (str, bytes)) for item in X.values()) else ()
        case _:
            return np.asarray(X, dtype=object).ravel() if _is_column(X) else ()


def _is_column(X: Any) -> bool:
    """Whether it is an array or Series of shape (n,) or (n, 1) whose type leaves open, or says, that it holds texts."""
    shape, kind = getattr(X, "shape", None) or (), getattr(getattr(X, "dtype", None), "kind", "O")
    return kind in "OSUT" and not isinstance(X, Tensor) and (len(shape) == 1 or tuple(shape[1:]) == (1,))


def _is_words(item: Any) -> bool:
    """Whether it is a text that was split into words, and not a row of a table with some words or numbers in quotes."""
    if not (isinstance(item, (list, tuple)) or (isinstance(item, np.ndarray) and item.ndim == 1)) or not len(item):
        return False
    return all(isinstance(word, str) for word in item) and not all(map(is_number, item))


def is_text_file(path: str | os.PathLike[str], column: str | None, *, expected: bool = False) -> bool:
    """Whether a file of this name holds texts: a .txt always, a table with a `column` or where some are expected."""
    ending = Path(path).suffix.lower()
    return ending == ".txt" or ((expected or column is not None) and ending in FILES)
