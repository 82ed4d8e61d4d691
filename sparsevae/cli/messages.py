"""Errors, warnings and what the library has to say, each as a line that names the program."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sparsevae import messages

_LOG = logging.getLogger("sparsevae")


def note(line: str) -> None:
    messages.note(f"sparsevae: {line}")


def show_warning(message: Warning | str, *where: Any, **more: Any) -> None:
    note(f"warning: {message}")


class _Shown(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        note(record.getMessage())


@contextmanager
def log_shown() -> Iterator[None]:
    """Show what the library has to say; --quiet silences it."""
    handler, level = _Shown(), _LOG.level
    _LOG.addHandler(handler)
    _LOG.setLevel(logging.INFO)
    try:
        yield
    finally:
        _LOG.removeHandler(handler)
        _LOG.setLevel(level)


def hush(quiet: bool) -> bool:
    if quiet:
        _LOG.setLevel(logging.ERROR)
    return quiet
