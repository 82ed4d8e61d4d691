"""The contents of a table's columns, and their names in messages; a table is a DataFrame or an array of objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def is_table(X: Any) -> bool:
    """True if X is a DataFrame, of any library."""
    return hasattr(X, "columns") and hasattr(X, "iloc")


def text_columns(table: Any) -> list[str] | list[int]:
    """The columns of text: names for a DataFrame, positions for an array or list of rows; [] for anything else."""
    if is_table(table):
        return [str(name) for name, values in table.items() if holds_text(values)]
    if getattr(getattr(table, "dtype", None), "kind", "O") not in "OSU":
        return []
    try:
        items = np.array(table, dtype=object)
    except ValueError:  # rows that differ in shape
        return []
    return [j for j, values in enumerate(items.T) if any(map(_is_word, values))] if items.ndim == 2 else []


def holds_text(values: Any) -> bool:
    """True if the first value that is not missing is a string."""
    return isinstance(next((v for v in values if not is_missing(v)), None), (str, bytes))


def is_missing(item: Any) -> bool:
    """True for None, NaN, and the missing values of pandas (NA, NaT)."""
    nan = isinstance(item, (float, np.floating)) and item != item
    return item is None or nan or type(item).__name__ in ("NAType", "NaTType")


def _is_word(item: Any) -> bool:
    return isinstance(item, (str, bytes)) and not is_number(item)


def is_number(word: str | bytes) -> bool:
    """True if `float` accepts the text."""
    try:
        float(word)
    except ValueError:
        return False
    return True


def encode(names: Sequence[str | int]) -> str:
    """What to do about columns of texts among numbers, given their names, or positions in an array.

    >>> encode(["sex", "city"])[:59]
    'there are texts in columns sex, city: encode them, for inst'
    """
    advice = (
        f"there are texts in {columns_named(names)}: encode them, for instance with scikit-learn's OneHotEncoder or "
        "OrdinalEncoder, or leave them out"
    )
    if len(names) > 1 or isinstance(names[0], int):
        return advice
    return f"{advice}; a model of those texts alone takes text=Text(column={names[0]!r}) (--text-column)"


def columns_named(names: Sequence[str | int]) -> str:
    """Columns by name, for a sentence.

    >>> columns_named(["a"]), columns_named(["a", "b"])
    ('column a', 'columns a, b')
    """
    return f"column{'s' * (len(names) > 1)} {some(names)}"


def some(names: Sequence[str | int], most: int = 10) -> str:
    """Names separated by commas, at most `most` of them, and the number of the others.

    >>> some(["a", "b", "c"]), some(["a", "b", "c"], 2)
    ('a, b, c', 'a, b and 1 more')
    """
    shown = ", ".join(map(str, names[:most]))
    return shown if len(names) <= most else f"{shown} and {len(names) - most:,} more"
