"""Progress: a rich bar on a terminal, else a line every ten seconds; nothing if verbose=0."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from sparsevae.messages import note, standard_error

_INTERVAL = 10.0  # least seconds between two lines without a terminal


class Progress:
    """Prints the position of a run and its latest numbers to standard error."""

    def __init__(self, label: str, total: int, verbose: int) -> None:
        self.label, self.total, self.verbose = label, total, verbose
        self._last_line = self._began = time.monotonic()
        self._bar: Any = None
        if verbose and (screen := standard_error()).isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar
            from rich.table import Column

            self._bar = Bar(
                TextColumn("{task.description}"),
                BarColumn(bar_width=16),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
                TextColumn("{task.fields[numbers]}", table_column=Column(no_wrap=False)),  # the column that may wrap
                console=Console(file=screen),
            )
            self._task = self._bar.add_task(label, total=total, numbers="")
            self._bar.start()

    def update(self, step: int, numbers: Mapping[str, float]) -> None:
        text = "  ".join(f"{k} {v:.4g}" for k, v in numbers.items())
        if self._bar is not None:
            self._bar.update(self._task, completed=step, numbers=text)
        elif self.verbose and time.monotonic() - self._last_line > _INTERVAL:
            self._last_line = time.monotonic()
            self.note(f"step {step}/{self.total}  {text}")

    def note(self, line: str) -> None:
        """Print one line, above the bar if there is one."""
        if self._bar is not None:
            self._bar.console.print(f"{self.label}: {line}", highlight=False, markup=False)
        elif self.verbose:
            note(f"{self.label}: {line}")

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
