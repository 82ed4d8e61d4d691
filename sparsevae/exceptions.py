"""Errors of the library, and warnings with the line of the user's call.

Warnings during a training are delayed: `delay_warnings` collects them and issues them at its end, or at the end of the
`until_saved` around it. So a model is fitted and saved even if warnings are errors or cannot be shown. Warnings before
a training starts are issued at once.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from difflib import get_close_matches

_BETWEEN = ("sparsevae", "sklearn", "joblib", "contextlib", "functools")
_Waiting = list[tuple[str, type[Warning]]]
_WAITING: ContextVar[_Waiting | None] = ContextVar("_WAITING", default=None)  # delayed warnings; None: issue at once
_SAVED: ContextVar[_Waiting | None] = ContextVar("_SAVED", default=None)  # those delayed until the model is saved


def warn_caller(text: str, category: type[Warning] = UserWarning) -> None:
    """Issue a warning at the line that called the library: at once, or at the end of `delay_warnings` around it."""
    waiting = _WAITING.get()
    if waiting is None:
        _warn(text, category)
    else:
        waiting.append((text, category))


@contextmanager
def delay_warnings() -> Iterator[None]:
    """Delay warnings until the end of the outermost `delay_warnings`, or of `until_saved` around it."""
    outer = _SAVED.get() if _WAITING.get() is None else _WAITING.get()
    with _gathering(_WAITING) if outer is None else _set(_WAITING, outer):
        yield


def until_saved() -> AbstractContextManager[None]:
    """Delay the warnings of any `delay_warnings` within the block until its end."""
    return _gathering(_SAVED)


def at_once() -> AbstractContextManager[None]:
    """Issue warnings within the block at once: for calls of a user's function."""
    return _set(_WAITING, None)


@contextmanager
def _set(variable: ContextVar[_Waiting | None], value: _Waiting | None) -> Iterator[None]:
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


@contextmanager
def _gathering(variable: ContextVar[_Waiting | None]) -> Iterator[None]:
    """Collect warnings and issue them at the end; if warnings are errors, raise the first."""
    waiting: _Waiting = []
    try:
        with _set(variable, waiting):
            yield
    except BaseException:
        _give(waiting)  # a warning must not replace the exception
        raise
    if errors := _give(waiting):
        raise errors[0]


def _give(waiting: _Waiting) -> list[Warning]:
    """Issue all warnings, and return those that were raised as errors."""
    errors = []
    for text, category in waiting:
        try:
            _warn(text, category)
        except Warning as error:
            errors.append(error)
    return errors


def _warn(text: str, category: type[Warning]) -> None:
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _BETWEEN:
        frame, level = frame.f_back, level + 1
    try:
        warnings.warn(text, category, stacklevel=level)
    except Warning:
        raise
    except (OSError, ValueError):  # standard error is closed or full
        pass


class DivergenceError(RuntimeError):
    """Training had non-finite numbers again after repeated reductions of the learning rate."""


class SparsityWarning(UserWarning):
    """Hardly any unit, or every unit, is active."""


class OverfittingWarning(UserWarning):
    """The objective is much worse on held-out rows than on training rows."""


class StorageError(ValueError):
    """A file or folder cannot be read or written; the message names what was expected, found and would work."""


class DataFileError(ValueError):
    """A data file cannot be read; the message has its name and the reason."""


def unknown(kind: str, word: str, known: Iterable[str], *, of: str = "") -> str:
    """The message for an unknown name, with the most similar known name first.

    >>> unknown("data set", "mnsit", ["digits", "mnist"])
    "unknown data set 'mnsit': did you mean 'mnist'? There are: digits, mnist"
    >>> unknown("option", "seed", [])
    "unknown option 'seed': there are none"
    >>> unknown("option", "seed", ["n"], of="'tiles'")
    "unknown option 'seed' of 'tiles': there are: n"
    """
    known = list(known)
    whose = f"{word!r} of {of}" if of else repr(word)
    if not known:
        return f"unknown {kind} {whose}: there are none"
    names = {name.lower(): name for name in known}
    close = get_close_matches(word.lower(), names, n=1)
    hint = f"did you mean {names[close[0]]!r}? There are" if close else "there are"
    return f"unknown {kind} {whose}: {hint}: {', '.join(known)}"
