"""Results on standard output: one JSON object, or a table."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sparsevae.messages import show


def print_json(result: Mapping[str, Any]) -> None:
    show(json.dumps(_strict(result), allow_nan=False))


def _strict(value: Any) -> Any:
    """What JSON has no word for, infinity and NaN, is null."""
    if isinstance(value, Mapping):
        return {k: _strict(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_strict(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def print_table(rows: Iterable[Sequence[str]], *header: str, right: str = "") -> None:
    """A table on standard output; columns named in `right` are numbers, and stand to the right."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD if header else None, show_header=bool(header), show_edge=False, pad_edge=False)
    for name in header:
        table.add_column(name, justify="right" if name in right.split() else "left")
    for row in rows:
        table.add_row(*row)
    console = Console(highlight=False, markup=False)
    with console.capture() as text:
        console.print(table, end="")
    show(text.get().removesuffix("\n"))
