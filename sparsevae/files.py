"""Opening data files: regular files only, sizes checked before memory is allocated, and one class of errors.

A reader opens its file with `opened`, checks the size of its data with `check_size`, and calls parsers of other
libraries, which may raise any exception, within `parsing`.
"""

from __future__ import annotations

import io
import lzma
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sparsevae.checks import amount, free_memory
from sparsevae.exceptions import DataFileError

UNPACKED = 2**28  # most bytes of unpacked data, for a file of any size
RATIO = 200  # or this many times the size of the file, if that is more
FIRST = 2**12  # bytes of the first read, which are checked for zero bytes
_CHUNK = 2**22  # bytes of each further read


@contextmanager
def opened(path: str | os.PathLike[str]) -> Iterator[io.BufferedReader]:
    """A regular file, open for reading. Pipes, devices and folders are errors; a pipe does not block.

    Raises
    ------
    FileNotFoundError
        If there is no file at the path.
    DataFileError
        If it is no regular file, or cannot be opened.
    """
    try:
        _check_regular(path, os.stat(path).st_mode)  # before opening, which has side effects for some devices
        file = open(path, "rb", opener=_open)  # noqa: SIM115
    except (FileNotFoundError, NotADirectoryError) as error:
        raise FileNotFoundError(f"{path}: no such file (working directory: {Path.cwd()})") from error
    except DataFileError:
        raise
    except (OSError, ValueError) as error:  # no permission, a loop of links, a name too long or with a zero byte
        name = os.fspath(path)
        shown = name if len(name) <= 300 else f"{name[:60]}... ({len(name):,} characters)"
        raise DataFileError(f"{shown!r}: cannot be opened ({getattr(error, 'strerror', None) or error})") from error
    with file:
        _check_regular(path, os.fstat(file.fileno()).st_mode)
        yield file


def _open(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))  # in case a pipe replaced the file after the check


def _check_regular(path: str | os.PathLike[str], mode: int) -> None:
    if stat.S_ISREG(mode):
        return
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
    raise DataFileError(f"{path}: expected a regular file, found {kinds.get(stat.S_IFMT(mode), 'a device')}")


@contextmanager
def parsing(path: str | os.PathLike[str], fault: str, advice: str = "") -> Iterator[None]:
    """Turn any exception of a parser into a DataFileError that names the file.

    `fault` is the meaning of a failure ("not a whole .npy file"), `advice` what would work.
    """
    try:
        yield
    except DataFileError:
        raise
    except Exception as error:
        text = " ".join(str(error).split())
        reason = "it needs more memory than there is" if isinstance(error, MemoryError) else text
        reason = reason if len(reason) <= 300 else f"{reason[:297]}..."
        raise DataFileError(f"{path}: {fault} ({reason or type(error).__name__}){advice}") from error


def check_size(path: str | os.PathLike[str], needed: int, packed: int | None = None, advice: str = "") -> None:
    """Raise a DataFileError if `needed` bytes exceed the free memory, or are too many for `packed` bytes of a file."""
    if packed is not None and needed > max(UNPACKED, RATIO * packed):
        raise DataFileError(
            f"{path}: {amount(packed)} would become {amount(needed)} in memory; unpacked data may have "
            f"{amount(UNPACKED)}, or {RATIO} times the size of the file{advice}"
        )
    if needed > (free := free_memory()):
        raise DataFileError(f"{path}: would take {amount(needed)} of memory, and {amount(free)} are free{advice}")


def size_of(file: io.BufferedReader) -> int:
    """Size of an open file in bytes."""
    return os.fstat(file.fileno()).st_size


def read_all(path: str | os.PathLike[str]) -> bytes:
    """All bytes of a small file, such as a picture, of at most `UNPACKED` bytes."""
    with opened(path) as file:
        size = size_of(file)
        if size > UNPACKED:
            raise DataFileError(f"{path}: has {amount(size)}; such a file has {amount(UNPACKED)} at most")
        with parsing(path, "cannot be read"):
            return file.read(size)


def read_text(path: str | os.PathLike[str]) -> str:
    """The text of a file in UTF-8, unpacked if it is an .xz.

    Zero bytes at its beginning are an error: the file is binary, or in UTF-16.
    """
    packed = Path(path).suffix.lower() == ".xz"
    fault = "not a whole .xz file" if packed else "cannot be read"
    raw = bytearray()
    with opened(path) as file:
        size = size_of(file)
        stream = lzma.LZMAFile(file, format=lzma.FORMAT_XZ) if packed else file  # noqa: SIM115
        with parsing(path, fault):
            piece = stream.read(FIRST)
        check_text(path, piece)
        check_size(path, 3 * size)  # the bytes, the text and its lines
        while piece:
            raw += piece
            if packed:
                check_size(path, len(raw), size, "; unpack it")
            with parsing(path, fault):
                piece = stream.read(_CHUNK)
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise DataFileError(f"{path}, line {line}: not UTF-8 ({error}); convert the file") from error


def read_lines(path: str | os.PathLike[str]) -> list[str]:
    """The lines of a text file in UTF-8, unpacked if it is an .xz.

    Lines end at a line feed only: str.splitlines would also split at U+2028 and other rare characters.
    """
    lines = read_text(path).replace("\r\n", "\n").split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def check_text(path: str | os.PathLike[str], beginning: bytes) -> None:
    """Raise a DataFileError if the beginning of a file has zero bytes."""
    if b"\0" in beginning:
        raise DataFileError(f"{path}: not a text file in UTF-8 (it has zero bytes)")
