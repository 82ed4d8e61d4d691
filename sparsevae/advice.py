"""Warnings that point at the user's own line, whatever of ours and of scikit-learn's lies between."""

from __future__ import annotations

import sys
import warnings

__all__ = ["advise"]

_BETWEEN = ("sparsevae", "sklearn", "joblib", "contextlib", "functools")


def advise(text: str, category: type[Warning] = UserWarning) -> None:
    """Warn where the library was called from."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _BETWEEN:
        frame, level = frame.f_back, level + 1
    warnings.warn(text, category, stacklevel=level)
