"""Conversion of lists, arrays, tables and files of texts to a list of strings."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sparsevae.checks import a_type
from sparsevae.exceptions import DataFileError
from sparsevae.files import parsing, read_lines
from sparsevae.tables.arrow import is_text_type, read_table, values_of
from sparsevae.tables.columns import holds_text, is_missing, is_table, some

FILES = (".txt", ".csv", ".parquet")


def read_texts(X: Any, *, column: str | None = None) -> list[str]:
    r"""Convert X to a list of strings.

    ==================  ======================================================================================
    list, generator     of str; bytes are read as UTF-8
    numpy array         of strings, of shape (n,) or (n, 1)
    Series, DataFrame   of pandas; of a DataFrame the given column, or the only column of text
    path to .txt        one text per line, in UTF-8; an empty line is an empty text
    path to .csv        with a header; the given column, or the only column of text
    path to .parquet    the given column, or the only column of text
    ==================  ======================================================================================

    A str is a path if it has one of these endings and no line break. Half a surrogate pair, which cannot be written to
    a file, becomes U+FFFD.

    Raises
    ------
    TypeError
        For one bare string, numbers, missing values and lists of words; the message names the text and a remedy.
    ValueError, FileNotFoundError
        For a column or file that is missing, is not UTF-8 or has missing values; the message names the file.

    Examples
    --------
    >>> read_texts(word for word in ("one text", b"another"))
    ['one text', 'another']
    """
    file = None
    if isinstance(X, os.PathLike) or (isinstance(X, str) and X.lower().endswith(FILES) and "\n" not in X):
        file, X = Path(X), _read_file(Path(X), column)
    elif is_table(X):
        X = X.iloc[:, _text_column(list(X.columns), column, lambda j: holds_text(X.iloc[:, j]), "the table")]
    elif column is not None:
        raise ValueError(f"column={column!r} names a column of a table or a file; X is a {type(X).__name__}")
    if isinstance(X, (str, bytes)):
        start = X[:30]
        raise TypeError(
            f"expected a list of texts, got one {type(X).__name__} ({start!r}): pass a list, [text]; a path ends in "
            f"{', '.join(FILES)}, or for numbers .npy or .npz; sparsevae.data.load knows data sets by name"
        )
    if isinstance(X, (Mapping, set, frozenset)):
        raise TypeError(f"expected texts in an order, got a {type(X).__name__}: pass a list of its texts")
    shape = getattr(X, "shape", None)
    if isinstance(X, np.ndarray) and X.ndim == 2 and X.shape[1] == 1:
        X = X[:, 0]
    elif shape is not None and len(shape) != 1:
        raise TypeError(f"expected texts of shape (n,), got a {type(X).__name__} of shape {tuple(shape)}")
    try:
        items = iter(X)
    except TypeError as error:
        raise TypeError(f"expected a list of texts, got {a_type(X)}") from error
    try:
        return [_as_text(item, row) for row, item in enumerate(items)]
    except (TypeError, ValueError) as error:
        if file is None:
            raise
        raise DataFileError(f"{file}: {error}") from error


def _as_text(item: Any, row: int) -> str:
    if isinstance(item, bytes):
        try:
            return item.decode("utf-8")
        except UnicodeDecodeError as error:
            where = f"byte {error.start} of text {row}"
            raise ValueError(f"{where} is not UTF-8: decode it yourself, with data.decode(encoding)") from error
    if isinstance(item, str):
        try:
            item.encode("utf-8")
        except UnicodeEncodeError:
            return re.sub("[\ud800-\udfff]", "\ufffd", item)
        return str(item)
    if is_missing(item):
        raise TypeError(f"text {row} is missing ({item}): drop that row, or put '' there")
    if isinstance(item, (Sequence, np.ndarray, set, frozenset)):
        hint = "join its words, ' '.join(words), and use tokenizer='space'"
        raise TypeError(f"text {row} is a {type(item).__name__}, not a str: {hint}")
    raise TypeError(f"text {row} is {a_type(item)} ({str(item)[:30]}), not a str")


def _text_column(names: list[str], column: str | None, is_text: Callable[[int], bool], where: str) -> int:
    """The index of the given column, or of the only column of text."""
    every = some(names)
    if column is not None:
        found = [j for j, name in enumerate(names) if name == column]
        if not found:
            raise ValueError(f"{where} has no column {column!r}: it has {every}")
        if len(found) > 1:
            raise ValueError(f"{where} has several columns of the name {column!r}: rename all but one")
        return found[0]
    found = [j for j in range(len(names)) if is_text(j)]
    if len(found) != 1:
        which = f"{len(found)} columns of text, {some([names[j] for j in found])}" if found else "no column of text"
        raise ValueError(
            f"{where} has {which} (of {every}): name one with column= (before fit Text(column=...), on the command "
            "line --data-option column=...), or pass its texts as a list"
        )
    return found[0]


def _read_file(path: Path, column: str | None) -> Iterable[Any]:
    if path.suffix.lower() not in FILES:
        ending = f"{', '.join(FILES[:-1])} or {FILES[-1]}"
        raise ValueError(f"{path}: expected a file that ends in {ending}, or for numbers in .npy or .npz")
    if path.suffix.lower() == ".txt":
        if column is not None:
            raise ValueError(f"{path} is plain text and has no columns; column={column!r} is for .csv and .parquet")
        return read_lines(path)
    table, _ = read_table(path, texts=True, column=column)
    types = table.schema.types
    chosen = table.column(_text_column(table.column_names, column, lambda k: is_text_type(types[k]), str(path)))
    with parsing(path, "not a table whose texts are UTF-8"):
        return values_of(chosen)
