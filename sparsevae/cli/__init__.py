"""The command line: fit, encode, evaluate, report, audit, second-stage, sample, data, demo.

The flags of `fit` are read from the constructors, so a new model in the registry has its own without a line here.
Results go to standard output (one JSON object with `--json`), everything else to standard error. Exit codes:

- 0: done. What could not be told on standard error (closed, full) is lost and changes nothing, and without any
  standard output there is nobody to tell results to.
- 1: a mistake of the user's, told in one line; also where a file or standard output cannot be written, and where
  warnings are errors (PYTHONWARNINGS=error) and there is one. Work comes first: warnings of a training are told, and
  results printed, when the model is saved.
- 2: a wrong flag or command, told in one line.
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
from sparsevae.exceptions import until_saved
from sparsevae.messages import escaped

__all__ = ["main"]

_LONGEST = 2000  # characters of an error


def main(args: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. Exceptions that are no mistake of the user's pass through."""
    words = list(sys.argv[1:] if args is None else args)
    debug = "--debug" in words
    command, code = typer.main.get_command(app), 0
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
            return code or 1  # a run that was interrupted, of which there is a warning
    return code or 0


def _usage(error: Any) -> str:
    """A wrong flag or command in one line, with the command whose help tells the right ones."""
    text = " ".join(error.format_message().split()).rstrip(".")
    where = "sparsevae" if error.ctx is None else error.ctx.command_path
    return f"{text[:1].lower()}{text[1:]}; see '{where} -h'"


def _short(text: str) -> str:
    """What was given is told, but not a whole page of it."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 300]} ... {text[-300:]}"


def _mistake(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror[:1].lower()}{error.strerror[1:]}"
    text = " ".join(str(error).split()) or type(error).__name__
    if _is_lack_of_memory(error):
        return f"there is not enough memory for this, ask for less: fewer units, layers, rows or samples ({text})"
    return text


def _is_lack_of_memory(error: Exception) -> bool:
    """Python's own error, numpy's, and those of torch, which has none for the memory of a CPU."""
    torch_s = isinstance(error, RuntimeError) and ("allocate memory" in str(error) or "out of memory" in str(error))
    return isinstance(error, MemoryError) or torch_s


def _is_mistake(error: Exception) -> bool:
    if _is_lack_of_memory(error):
        return True
    if isinstance(error, (ValueError, TypeError, OSError, Warning)):
        return True
    from sparsevae.exceptions import DivergenceError

    return isinstance(error, DivergenceError)
