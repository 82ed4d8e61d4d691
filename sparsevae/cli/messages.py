"""Errors, warnings and log messages of the library, each as one line that starts with the program's name."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sparsevae import messages

_LOG = logging.getLogger("sparsevae")


def note(line: str) -> None:
    """Write one line to standard error."""
    messages.note(f"sparsevae: {line}")


def show_warning(message: Warning | str, *where: Any, **more: Any) -> None:
    """Write a warning; the replacement of `warnings.showwarning`."""
    note(f"warning: {message}")


class _Shown(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        note(record.getMessage())


@contextmanager
def log_shown() -> Iterator[None]:
    """Show log messages of the library; --quiet limits them to errors."""
    handler, level = _Shown(), _LOG.level
    _LOG.addHandler(handler)
    _LOG.setLevel(logging.INFO)
    try:
        yield
    finally:
        _LOG.removeHandler(handler)
        _LOG.setLevel(level)


def hush(quiet: bool) -> bool:
    """The callback of --quiet."""
    if quiet:
        _LOG.setLevel(logging.ERROR)
    return quiet
