"""All output of the library: messages go to standard error, results to standard output.

A message that cannot be written, since standard error is missing (``2>&-``, pythonw), closed or full, is dropped
without an error. A result that cannot be written is an OSError. Characters outside of a stream's encoding are escaped.
Warnings are in `exceptions`.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any, cast


def note(line: str) -> None:
    """Write one line to standard error; never raises."""
    standard_error().write(f"{line}\n")


def show(result: object = "") -> None:
    """Write a result and a line end to standard output, if there is one; raise an OSError if that fails."""
    if sys.stdout is None:
        return
    try:
        _write(sys.stdout, f"{result}\n")
    except (OSError, ValueError) as error:  # ValueError: the stream is closed
        number = getattr(error, "errno", None) or errno.EBADF
        raise OSError(number, os.strerror(number), "standard output") from error


def standard_error() -> IO[str]:
    """The current standard error as a file that never raises: text that cannot be written is dropped."""
    return cast(IO[str], _NeverFails(sys.stderr))


class _NeverFails:
    """The methods of a text file that print and rich's Console use."""

    def __init__(self, stream: Any) -> None:
        self._stream = getattr(stream, "rich_proxied_file", stream)  # rich replaces the stream while a bar is shown

    @property
    def encoding(self) -> str:
        return getattr(self._stream, "encoding", None) or "utf-8"

    def write(self, text: str) -> int:
        with suppress(Exception):
            _write(self._stream, text)
        return len(text)

    def flush(self) -> None:
        """Do nothing: every write is flushed."""

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
    """Within the block, characters outside of standard output's encoding are escaped, also in output of others."""
    stream: Any = sys.stdout
    before = getattr(stream, "errors", None)
    if not hasattr(stream, "reconfigure"):
        yield
        return
    stream.reconfigure(errors="backslashreplace")
    try:
        yield
    finally:
        with suppress(OSError, ValueError):  # the stream is closed, or has failed
            stream.reconfigure(errors=before)


def occupy_descriptors() -> None:
    """Open the null device as each of the descriptors 0, 1 and 2 that is closed.

    Otherwise the next opened files would get these descriptors, and C libraries could print into a model's file.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free descriptor


def finished(code: int) -> int:
    """The exit code at the end of the process: 1 instead of 0 if standard output cannot be flushed.

    A stream that fails is closed; otherwise Python would flush it again, fail, and exit with 120.
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
