"""ARFF, the text format of Weka and Mulan: names and types of the columns, then rows, dense or sparse."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sparsevae.data.dataset import Rows
from sparsevae.files import check_size, read_text

_QUOTED = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
_DECLARATION = re.compile(rf"@attribute\s+({_QUOTED}|[^\s{{}}'\",%][^\s{{]*)\s*(.*)", re.IGNORECASE)
_CELL = re.compile(rf"\s*({_QUOTED}|[^,'\"]*)\s*(,|$)")
_ENTRY = re.compile(rf"\s*(\d+)\s+({_QUOTED}|[^\s,'\"]+)\s*(,|$)")
_NUMERIC = ("numeric", "real", "integer")


class Arff(NamedTuple):
    """X (n, d), the names of the columns, and per column the legal values if it is nominal, else None."""

    X: Rows
    columns: tuple[str, ...]
    values: tuple[tuple[str, ...] | None, ...]


def read_arff(path: str | os.PathLike[str]) -> Arff:
    """Read an ARFF file of numeric and nominal columns.

    A nominal column whose values are all numbers, such as {2, 10, 1}, keeps them; in any other, a value becomes its
    index in the declaration, 0, 1, ... A missing value, ``?``, becomes NaN. Keywords are case-insensitive; names
    and values may be in single or double quotes, with a backslash before a quote inside; lines that begin with %
    are comments.

    Returns
    -------
    Arff ``(X, columns, values)``; X is float64. If the rows are sparse, ``{index value, ...}`` with indices from 0,
    X is CSR: an index that a row leaves out is 0, and in a nominal column the first of its values.

    Raises
    ------
    ValueError
        With the file and the line, if the file is not of this form or has columns of text or dates.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "songs.arff"
    >>> _ = path.write_text("@attribute tempo real\\n@attribute key {minor, major}\\n@data\\n96.5, major\\n")
    >>> read_arff(path)
    Arff(X=array([[96.5,  1. ]]), columns=('tempo', 'key'), values=(None, ('minor', 'major')))
    """
    path = Path(path)
    text = read_text(path)
    lines = text.split("\n")
    columns: dict[str, tuple[str, ...] | None] = {}
    read: list[Callable[[str], float]] = []
    rows: list[Any] = []  # lists of numbers, or dictionaries from index to number
    begun = None  # the line of @data
    for number, line in enumerate(lines, 1):
        line = line.strip()
        if not line or line.startswith("%"):
            continue
        try:
            keyword = line.split(None, 1)[0].lower()
            if begun is not None:
                row = _sparse(line, read) if line.startswith("{") else _dense(line, read)
                if rows and type(row) is not type(rows[0]):
                    raise ValueError("dense and sparse rows are mixed; all must be like the first one")
                rows.append(row)
            elif keyword == "@attribute":
                name, values = _declaration(line)
                if name in columns:
                    raise ValueError(f"the attribute {short(name)} is declared twice")
                columns[name] = values
                read.append(_reader(name, values))
            elif keyword == "@data":
                begun = number
            elif keyword != "@relation":
                raise ValueError(f"expected @relation, @attribute or @data, got {short(line)}")
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: {error}") from error
    if begun is None:
        raise ValueError(f"{path}: expected a line @data before the rows, and there is none in {len(lines)} lines")
    if not rows:
        raise ValueError(f"{path}: no row follows @data in line {begun}")
    return Arff(_matrix(path, len(text), rows, list(columns.values())), tuple(columns), tuple(columns.values()))


def _declaration(line: str) -> tuple[str, tuple[str, ...] | None]:
    """``@attribute name type``: the name, and the values of a nominal type or None for a numeric one."""
    match = _DECLARATION.fullmatch(line)
    if match is None:
        raise ValueError(f"expected @attribute, a name (in quotes if it has blanks) and a type, got {short(line)}")
    name, kind = _plain(match[1]), match[2]
    if kind.lower() in _NUMERIC:
        return name, None
    if not (kind.startswith("{") and kind.endswith("}")):
        raise ValueError(
            f"the attribute {short(name)} is of type {short(kind)}; expected {', '.join(_NUMERIC)}, or the values of a "
            "nominal one as {a, b}: text and dates are no numbers, take the column out"
        )
    values = tuple(_cells(kind[1:-1]))
    if "" in values or len(set(values)) != len(values):
        raise ValueError(f"the values of {short(name)} must be different and not empty, got {short(kind)}")
    return name, values


def _numbers(values: tuple[str, ...]) -> list[float]:
    """The values of a nominal column as numbers: the values if all are finite numbers, else 0, 1, ..."""
    try:
        numbers = [float(value) for value in values]
    except ValueError:
        return [float(place) for place in range(len(values))]
    return numbers if all(map(math.isfinite, numbers)) else [float(place) for place in range(len(values))]


def _reader(name: str, values: tuple[str, ...] | None) -> Callable[[str], float]:
    """A function from the text of a cell to its number."""
    known = None if values is None else dict(zip(values, _numbers(values), strict=True))

    def read(cell: str) -> float:
        if cell == "?":
            return math.nan
        if known is not None:
            if cell not in known:
                raise ValueError(
                    f"{short(name)} has no value {short(cell)}; it was declared with {short(', '.join(known))}"
                )
            return known[cell]
        try:
            number = float(cell)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise ValueError(f"expected a finite number for {short(name)}, or ? for a missing value; got {short(cell)}")
        return number

    return read


def _dense(line: str, read: list[Callable[[str], float]]) -> list[float]:
    cells = _cells(line)
    if len(cells) != len(read):
        raise ValueError(f"expected {len(read)} values between commas, one per attribute, got {len(cells)}")
    return [number(cell) for number, cell in zip(read, cells, strict=True)]


def _sparse(line: str, read: list[Callable[[str], float]]) -> dict[int, float]:
    """The numbers of a row ``{index value, ...}``, by index."""
    if not line.endswith("}"):
        raise ValueError(f"a sparse row must end with }}, got {short(line)}")
    inside = line[1:-1].strip()
    row: dict[int, float] = {}
    for match in _each(_ENTRY, inside) if inside else []:
        index = int(match[1])
        if index >= len(read):
            raise ValueError(f"a sparse row names index {index}, but the attributes are 0 to {len(read) - 1}")
        if index in row:
            raise ValueError(f"a sparse row names index {index} twice")
        row[index] = read[index](_plain(match[2]))
    return row


def _cells(text: str) -> list[str]:
    """The values between commas; a comma in quotes does not separate."""
    if "'" not in text and '"' not in text:
        return [cell.strip() for cell in text.split(",")]
    return [_plain(match[1]) for match in _each(_CELL, text)]


def _each(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """Consecutive matches that cover the text; each ends with a comma, the last at the end of the text."""
    place = 0
    while True:
        match = pattern.match(text, place)
        if match is None:
            what = "index and value" if pattern is _ENTRY else "a value, its quotes closed"
            raise ValueError(f"expected {what}, then a comma or the end; got {short(text[place:])}")
        yield match
        if not match[match.re.groups]:
            return
        place = match.end()


def _plain(text: str) -> str:
    """The text without the quotes around it and the backslashes in it."""
    text = text.strip()
    return re.sub(r"\\(.)", r"\1", text[1:-1]) if text[:1] in ("'", '"') else text


def short(text: str) -> str:
    """The text in quotes, cut to 60 characters."""
    return repr(text if len(text) <= 60 else text[:57] + "...")


def _matrix(path: Path, size: int, rows: list[Any], values: list[tuple[str, ...] | None]) -> Rows:
    """Dense rows as an array, sparse ones as CSR, (n, d)."""
    if not isinstance(rows[0], dict):
        return np.array(rows, dtype=np.float64)
    from scipy.sparse import csr_array

    # the values other than zero of what a row leaves out
    implied = {index: first for index, v in enumerate(values) if v is not None and (first := _numbers(v)[0])}
    check_size(path, 100 * len(implied) * len(rows), size)  # a short row may imply many numbers
    full = [implied | row for row in rows]
    X = csr_array(
        (
            np.array([row[index] for row in full for index in sorted(row)], dtype=np.float64),
            np.array([index for row in full for index in sorted(row)], dtype=np.int64),
            np.cumsum([0, *map(len, full)]),
        ),
        shape=(len(rows), len(values)),
    )
    X.eliminate_zeros()
    return X
