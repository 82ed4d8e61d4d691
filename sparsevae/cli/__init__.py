"""The command line: fit, encode, evaluate, report, audit, second-stage, sample, data, demo.

The flags of `fit` are read from the constructors, so a new model in the registry has its own without a line here.
Results go to standard output (one JSON object with `--json`), everything else to standard error. Exit codes:

- 0: done. Messages that standard error cannot take (closed, full) are dropped, and so are results if there is no
  standard output.
- 1: an error of the user's, reported in one line; also if a file or standard output cannot be written, and if warnings
  are errors (PYTHONWARNINGS=error) and there is one. Warnings of a training and results are printed after the model is
  saved.
- 2: a wrong flag or command, reported in one line.
- 130 and 143: stopped by Ctrl-C or SIGTERM.

Heavy modules are imported by the command that needs them.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from typing import Any

import typer

from sparsevae.cli.app import app
from sparsevae.cli.groups import UsageError
from sparsevae.cli.messages import log_shown, note, show_warning
from sparsevae.exceptions import DivergenceError, until_saved
from sparsevae.messages import escaped

__all__ = ["main"]

_LONGEST = 2000  # most characters of an error


def main(args: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. Exceptions that are not the user's errors are raised."""
    words = list(sys.argv[1:] if args is None else args)
    debug = "--debug" in words
    command = typer.main.get_command(app)
    code = 0
    with warnings.catch_warnings(), log_shown(), escaped():
        warnings.showwarning = show_warning
        try:
            with until_saved():
                code = command([w for w in words if w != "--debug"], prog_name="sparsevae", standalone_mode=False)
        except SystemExit as stop:
            return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        except UsageError as error:
            note(f"error: {_short(_usage(error))}")
            return 2
        except Exception as error:
            if debug or not _is_mistake(error):
                raise
            note(f"error: {_short(_mistake(error))}")
            return code or 1  # not 0 if an interrupted run also gave a warning that is an error
    return code or 0


def _usage(error: Any) -> str:
    """A wrong flag or command in one line, with the command whose help lists the right ones."""
    text = " ".join(error.format_message().split()).rstrip(".")
    where = "sparsevae" if error.ctx is None else error.ctx.command_path
    return f"{text[:1].lower()}{text[1:]}; see '{where} -h'"


def _short(text: str) -> str:
    """The text, shortened in the middle to about `_LONGEST` characters."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 300]} ... {text[-300:]}"


def _mistake(error: Exception) -> str:
    """An error of the user's in one line."""
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror[:1].lower()}{error.strerror[1:]}"
    text = " ".join(str(error).split()) or type(error).__name__
    if _is_lack_of_memory(error):
        return f"not enough memory: use fewer units, layers, rows or samples ({text})"
    return text


def _is_lack_of_memory(error: Exception) -> bool:
    """True for MemoryError, which numpy's error is too, and for torch's RuntimeErrors of CPU and GPU memory."""
    from_torch = isinstance(error, RuntimeError) and ("allocate memory" in str(error) or "out of memory" in str(error))
    return isinstance(error, MemoryError) or from_torch


def _is_mistake(error: Exception) -> bool:
    """True for errors that a user can correct: they are reported without a traceback."""
    known = ValueError, TypeError, OSError, Warning, DivergenceError
    return isinstance(error, known) or _is_lack_of_memory(error)
