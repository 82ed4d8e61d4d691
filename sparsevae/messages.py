"""The one place that writes to a user: messages to standard error, results to standard output.

A message is never worth the work that it is about: where standard error is missing (``2>&-``, pythonw), closed or
full, messages are lost and nothing else is. A result that cannot be written is an OSError. Characters that a stream's
encoding lacks are escaped. Warnings are in `advice`.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any, cast


def note(line: str) -> None:
    """Write one line to standard error; never raises, and never writes anywhere else."""
    standard_error().write(f"{line}\n")


def show(result: object = "") -> None:
    """Write a result and a line end to standard output, where there is one; an OSError names it where that fails."""
    if sys.stdout is None:
        return
    try:
        _write(sys.stdout, f"{result}\n")
    except (OSError, ValueError) as error:  # ValueError: it was closed
        number = getattr(error, "errno", None) or errno.EBADF
        raise OSError(number, os.strerror(number), "standard output") from error


def standard_error() -> IO[str]:
    """Standard error of this moment as a file that never fails: what it does not take is lost."""
    return cast(IO[str], _NeverFails(sys.stderr))


class _NeverFails:
    """As much of a text file as print and rich's Console use."""

    def __init__(self, stream: Any) -> None:
        self._stream = getattr(stream, "rich_proxied_file", stream)  # while a bar stands, rich has its own there

    @property
    def encoding(self) -> str:
        return getattr(self._stream, "encoding", None) or "utf-8"

    def write(self, text: str) -> int:
        with suppress(Exception):
            _write(self._stream, text)
        return len(text)

    def flush(self) -> None:
        """Every write is flushed already."""

    def isatty(self) -> bool:
        with suppress(Exception):
            return bool(self._stream.isatty())
        return False


def _write(stream: Any, text: str) -> None:
    try:
        stream.write(text)
    except UnicodeError:
        encoding = stream.encoding
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
    stream.flush()


@contextmanager
def escaped() -> Iterator[None]:
    """Have characters that standard output's encoding lacks escaped, also in what others write to it."""
    stream: Any = sys.stdout
    before = getattr(stream, "errors", None)
    if not hasattr(stream, "reconfigure"):
        yield
        return
    stream.reconfigure(errors="backslashreplace")
    try:
        yield
    finally:
        with suppress(OSError, ValueError):  # it was closed, or has failed
            stream.reconfigure(errors=before)


def occupy_descriptors() -> None:
    """Open the null device as each of the descriptors 0, 1 and 2 that is closed.

    Otherwise the next files to be opened would get them, and what C libraries print would land in a model.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest one that is free


def finished(code: int) -> int:
    """The exit code of this process, which is about to end: a 0 becomes a 1 where standard output has failed.

    A stream that fails is closed; Python would flush it once more, fail, and exit with 120.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            with suppress(OSError, ValueError):
                stream.close()
            if stream is sys.stdout:
                code = code or 1
    return code
