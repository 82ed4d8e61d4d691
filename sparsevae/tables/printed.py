"""How results are printed: cells of text in aligned columns, and values of strict JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from sparsevae.tables.columns import is_number


def aligned(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Lines of cells as text, columns two spaces apart, aligned to the right if every cell ends in a number.

    "-" and an empty cell count as missing numbers. An empty header is left out.

    >>> print(aligned(["name", "value", ""], [["b", "12", "of 16"], ["kl", "-", "nats"]]))
    name  value
    b        12  of 16
    kl        -  nats
    """
    columns = []
    for cells in zip(*([header] if header else []), *lines, strict=True):
        width = max(map(len, cells))
        right = all(map(_ends_in_number, cells[bool(header) :]))
        columns.append([cell.rjust(width) if right else cell.ljust(width) for cell in cells])
    return "\n".join("  ".join(line).rstrip() for line in zip(*columns, strict=True))


def _ends_in_number(cell: str) -> bool:
    """True if the cell is empty or "-", or if its last word is a number, such as 1,797 or 5%."""
    last = cell.rpartition(" ")[2].rstrip("%").replace(",", "")
    return last in ("", "-") or is_number(last)


def json_value(value: Any) -> Any:
    """Dataclasses and named tuples as dicts, arrays as lists, at any depth; NaN and infinity, not in JSON, as None.

    >>> json_value({"mean": np.array([0.5, np.nan]), "caps": (1, 2)})
    {'mean': [0.5, None], 'caps': [1, 2]}
    """
    if is_dataclass(value):
        value = {f.name: getattr(value, f.name) for f in fields(value)}
    elif isinstance(value, tuple) and hasattr(value, "_asdict"):
        value = value._asdict()
    elif isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {k: json_value(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_value(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class Result:
    """A result of an analysis: a dataclass that prints as a table and converts to JSON."""

    @property
    def legend(self) -> str:
        """The text below the table."""
        raise NotImplementedError

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Header and lines of text."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain numbers and lists, for JSON: NaN and infinity become None."""
        return dict(json_value(self))

    def __str__(self) -> str:
        return f"{aligned(*self.table())}\n\n{self.legend}"
