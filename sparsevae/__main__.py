"""The command line as a process, `sparsevae` and `python -m sparsevae`: it answers Ctrl-C from its first import on."""

import contextlib
import os
import signal
import sys
import threading
import weakref
from types import FrameType


def main() -> int:
    """Run the command line. Imports are part of it: they take longer than many a command."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as in background jobs of a shell
            signal.signal(number, _stop)
    try:
        from sparsevae import cli, messages

        messages.occupy_descriptors()
        return messages.finished(cli.main())
    except (KeyboardInterrupt, SystemExit) as stop:
        _note_interruption()
        return 130 if isinstance(stop, KeyboardInterrupt) else 143
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # once more while Python shuts down: it ends at once


def _note_interruption() -> None:
    """Not by a stream: one may be missing, or half way through a write of its own."""
    with contextlib.suppress(OSError):
        os.write(2, b"sparsevae: interrupted.\n")


def _stop(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt or SystemExit, where they are not lost.

    An import may swallow or change them: end at once. Finalisers and weak references' callbacks print and drop them:
    the signal comes once more, a moment later.
    """
    while frame is not None:
        code = frame.f_code
        if code.co_filename.startswith("<frozen importlib"):
            _note_interruption()
            os._exit(128 + number)
        if code.co_filename == weakref.__file__ or code.co_name == "__del__":
            threading.Timer(0.01, os.kill, [os.getpid(), number]).start()
            return
        frame = frame.f_back
    raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
