"""SIGINT and SIGTERM while a run lasts."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def stop_signals() -> Iterator[list[int]]:
    """Collect SIGINT and SIGTERM instead of dying of them; only the main thread can. A second one is not held back.

    One that is ignored, as in a shell's background jobs, stays so; so does one whose handler is not Python's (None) and
    could not be put back.
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
