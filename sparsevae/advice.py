"""Warnings that point at the user's own line, whatever of ours and of scikit-learn's lies between.

Warnings of a training wait until its work is done: `held_back` gathers them and gives them when it ends, or when the
`until_saved` around it does. So where warnings are errors, or cannot be shown, a model is fitted and saved all the
same. What is found before a training starts is said at once.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["advise", "at_once", "held_back", "until_saved"]

_BETWEEN = ("sparsevae", "sklearn", "joblib", "contextlib", "functools")

_Held = list[tuple[str, type[Warning]]]
_WAITING: ContextVar[_Held | None] = ContextVar("_WAITING", default=None)  # to be given later; None: at once
_SAVED: ContextVar[_Held | None] = ContextVar("_SAVED", default=None)  # where they wait until all is saved


def advise(text: str, category: type[Warning] = UserWarning) -> None:
    """Warn where the library was called from, now or when what holds warnings back ends."""
    waiting = _WAITING.get()
    if waiting is None:
        _warn(text, category)
    else:
        waiting.append((text, category))


@contextmanager
def held_back() -> Iterator[None]:
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
def _set(variable: ContextVar[_Held | None], value: _Held | None) -> Iterator[None]:
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


@contextmanager
def _gathering(variable: ContextVar[_Held | None]) -> Iterator[None]:
    """Gather warnings, and give them at the end: of several that are errors the first is raised."""
    held: _Held = []
    try:
        with _set(variable, held):
            yield
    except BaseException:
        _give(held)  # what ended the work is raised, no warning in its place
        raise
    if errors := _give(held):
        raise errors[0]


def _give(held: _Held) -> list[Warning]:
    """Give warnings, all of them, and return those that are errors."""
    errors = []
    for text, category in held:
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
