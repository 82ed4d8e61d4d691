"""Handling of SIGINT and SIGTERM during a run."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def stop_signals() -> Iterator[list[int]]:
    """Yield a list that collects the first SIGINT or SIGTERM; after it the old handlers are back, so a second one acts.

    Only the main thread can set handlers. An ignored signal (as in a shell's background jobs) stays ignored; so does
    one whose handler was not set from Python (None), since that could not be restored.
    """
    caught: list[int] = []
    before: dict[int, Any] = {}

    def restore() -> None:
        while before:
            signal.signal(*before.popitem())

    def catch(number: int, frame: object) -> None:
        caught.append(number)
        restore()

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) not in (signal.SIG_IGN, None):
                before[number] = signal.signal(number, catch)
    try:
        yield caught
    finally:
        restore()
