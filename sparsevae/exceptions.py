"""Errors of the library, and warnings that point at the user's own line.

Warnings of a training wait until its work is done: `held_back` gathers them and gives them when it ends, or when the
`until_saved` around it does. So where warnings are errors, or cannot be shown, a model is fitted and saved all the
same. What is found before a training starts is said at once.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from difflib import get_close_matches

_BETWEEN = ("sparsevae", "sklearn", "joblib", "contextlib", "functools")
_Waiting = list[tuple[str, type[Warning]]]
_WAITING: ContextVar[_Waiting | None] = ContextVar("_WAITING", default=None)  # to be given later; None: at once
_SAVED: ContextVar[_Waiting | None] = ContextVar("_SAVED", default=None)  # where they wait until all is saved


def warn_caller(text: str, category: type[Warning] = UserWarning) -> None:
    """Warn where the library was called from, now or when what holds warnings back ends."""
    waiting = _WAITING.get()
    if waiting is None:
        _warn(text, category)
    else:
        waiting.append((text, category))


@contextmanager
def delay_warnings() -> Iterator[None]:
    """Hold warnings back until this ends, or what is around it that holds them back."""
    outer = _SAVED.get() if _WAITING.get() is None else _WAITING.get()
    with _gathering(_WAITING) if outer is None else _set(_WAITING, outer):
        yield


@contextmanager
def until_saved() -> Iterator[None]:
    """Let warnings that are held back within wait until this ends."""
    with _gathering(_SAVED):
        yield


@contextmanager
def at_once() -> Iterator[None]:
    """Give warnings at once again: a user's own function is called."""
    with _set(_WAITING, None):
        yield


@contextmanager
def _set(variable: ContextVar[_Waiting | None], value: _Waiting | None) -> Iterator[None]:
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


@contextmanager
def _gathering(variable: ContextVar[_Waiting | None]) -> Iterator[None]:
    """Gather warnings, and give them at the end: of several that are errors the first is raised."""
    waiting: _Waiting = []
    try:
        with _set(variable, waiting):
            yield
    except BaseException:
        _give(waiting)  # what ended the work is raised, no warning in its place
        raise
    if errors := _give(waiting):
        raise errors[0]


def _give(waiting: _Waiting) -> list[Warning]:
    """Give warnings, all of them, and return those that are errors."""
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
    except (OSError, ValueError):  # standard error is closed or full, and nobody hears
        pass


class DivergenceError(RuntimeError):
    """Training met non-finite numbers again and again, at ever smaller rates."""


class SparsityWarning(UserWarning):
    """Hardly any unit, or every unit, carries information."""


class StorageError(ValueError):
    """A file or folder is refused; the message says what was expected, what came and what would work."""


class DataFileError(ValueError):
    """A file of data that cannot be read: the message names it and says what is wrong with it."""


def unknown(kind: str, word: str, known: Iterable[str]) -> str:
    """The sentence for a name nobody knows, with the nearest known name first.

    >>> unknown("data set", "mnsit", ["digits", "mnist"])
    "unknown data set 'mnsit': did you mean 'mnist'? There are: digits, mnist"
    >>> unknown("option", "seed", [])
    "unknown option 'seed': there are none"
    """
    known = list(known)
    if not known:
        return f"unknown {kind} {word!r}: there are none"
    names = {name.lower(): name for name in known}
    close = get_close_matches(word.lower(), names, n=1)
    hint = f"did you mean {names[close[0]]!r}? There are" if close else "there are"
    return f"unknown {kind} {word!r}: {hint}: {', '.join(known)}"
