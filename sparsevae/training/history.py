"""The history of a run: the numbers of all reports."""

from __future__ import annotations

from typing import Any

from sparsevae.tables.printed import aligned


class History(list[dict[str, Any]]):
    """One row per report: step, epoch, loss, every term, active and used units, non-zeros. A table when printed."""

    steps: int = 0  # steps taken, including those after the last report

    def column(self, name: str) -> list[Any]:
        """The values of one column; None for rows without it."""
        return [row.get(name) for row in self]

    def names(self) -> list[str]:
        """Names of all columns, in the order of first appearance."""
        return list(dict.fromkeys(k for row in self for k in row))

    def columns(self) -> list[list[Any]]:
        """The table as a list of columns, each [name, *values]: the form in which it is stored."""
        return [[name, *self.column(name)] for name in self.names()]

    def extend_with(self, run: History, steps: int) -> None:
        """Append the reports of a later run, whose steps and epochs continue after the first `steps` steps."""
        epochs = self[-1]["epoch"] * (steps / self[-1]["step"]) if self else 0.0
        self.extend({**row, "step": row["step"] + steps, "epoch": row["epoch"] + epochs} for row in run)
        self.steps = steps + run.steps

    @classmethod
    def from_columns(cls, columns: list[list[Any]]) -> History:
        """A history from its `columns`."""
        names = [c[0] for c in columns]
        rows = zip(*(c[1:] for c in columns), strict=True)
        return cls({k: v for k, v in zip(names, row, strict=True) if v is not None} for row in rows)

    def __str__(self) -> str:
        names = self.names()
        return aligned(names, [[_cell(row.get(k)) for k in names] for row in self])


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.4f}" if isinstance(value, float) else str(value)
