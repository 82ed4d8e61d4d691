"""matplotlib without a backend: pictures are files, drawn without pyplot."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

__all__ = ["prepare"]


def prepare() -> None:
    """Import matplotlib whatever MPLBACKEND says, which would end the import where it names no backend.

    One that matplotlib knows stays in force for the user's own pictures.
    """
    if "matplotlib" in sys.modules:
        return
    backend = os.environ.pop("MPLBACKEND", None)
    try:
        import matplotlib
    finally:
        if backend is not None:
            os.environ["MPLBACKEND"] = backend
    if backend:
        with suppress(ValueError):
            matplotlib.rcParams["backend"] = backend
