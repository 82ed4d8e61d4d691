"""How every file of data is opened: regular files only, sizes known before memory is taken, one kind of error.

A reader opens its file with `opened`, as `storage` does, refuses with `check_size` what would not fit, and runs each
parser that is not ours, whose exceptions nobody can list, within `parsing`.
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

UNPACKED = 2**28  # bytes that packed data may become, whatever their size in the file
RATIO = 200  # or so many times the size of the file
FIRST, _CHUNK = 2**12, 2**22  # bytes that are read at a time, and first of all


@contextmanager
def opened(path: str | os.PathLike[str]) -> Iterator[io.BufferedReader]:
    """A regular file, open for reading. A pipe, a device or a folder is refused, and never waited for.

    Raises
    ------
    FileNotFoundError
        Where there is none.
    DataFileError
        Where it is no regular file, or cannot be opened.
    """
    try:
        _check_regular(path, os.stat(path).st_mode)  # before it is opened: some devices act when they are
        file = open(path, "rb", opener=_open)  # noqa: SIM115
    except (FileNotFoundError, NotADirectoryError) as error:
        raise FileNotFoundError(f"{path}: no such file (working directory: {Path.cwd()})") from error
    except DataFileError:
        raise
    except (OSError, ValueError) as error:  # no right to read it, links in a circle, a name that is too long or no name
        name = os.fspath(path)
        shown = name if len(name) <= 300 else f"{name[:60]}... ({len(name):,} characters)"
        raise DataFileError(f"{shown!r}: cannot be opened ({getattr(error, 'strerror', None) or error})") from error
    with file:
        _check_regular(path, os.fstat(file.fileno()).st_mode)
        yield file


def _open(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))  # should a pipe have been put there meanwhile


def _check_regular(path: str | os.PathLike[str], mode: int) -> None:
    if stat.S_ISREG(mode):
        return
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
    raise DataFileError(f"{path}: expected a regular file, found {kinds.get(stat.S_IFMT(mode), 'a device')}")


@contextmanager
def parsing(path: str | os.PathLike[str], fault: str, advice: str = "") -> Iterator[None]:
    """Around a parser that is not ours: whatever it raises becomes one error that names the file.

    `fault` says what it means that the parser gave up ("not a whole .npy file"), `advice` what would work.
    """
    try:
        yield
    except DataFileError:
        raise
    except Exception as error:
        text = " ".join(str(error).split())
        reason = "it asks for more memory than there is" if isinstance(error, MemoryError) else text
        reason = reason if len(reason) <= 300 else f"{reason[:297]}..."
        raise DataFileError(f"{path}: {fault} ({reason or type(error).__name__}){advice}") from error


def check_size(path: str | os.PathLike[str], needed: int, packed: int | None = None, advice: str = "") -> None:
    """Refuse data of `needed` bytes that memory does not hold, or that `packed` bytes of a file cannot honestly be."""
    if packed is not None and needed > max(UNPACKED, RATIO * packed):
        raise DataFileError(
            f"{path}: {amount(packed)} would become {amount(needed)} in memory; packed data may become "
            f"{amount(UNPACKED)}, or {RATIO} times their size{advice}"
        )
    if needed > (free := free_memory()):
        raise DataFileError(f"{path}: would take {amount(needed)} of memory, and {amount(free)} are free{advice}")


def size_of(file: io.BufferedReader) -> int:
    """Bytes in an open file."""
    return os.fstat(file.fileno()).st_size


def read_all(path: str | os.PathLike[str]) -> bytes:
    """All bytes of a file that is small by its nature, such as a picture."""
    with opened(path) as file:
        size = size_of(file)
        if size > UNPACKED:
            raise DataFileError(f"{path}: has {amount(size)}; such a file has {amount(UNPACKED)} at most")
        with parsing(path, "cannot be read"):
            return file.read(size)


def read_text(path: str | os.PathLike[str]) -> str:
    """A text in UTF-8; that of an .xz unpacked.

    A file that has zero bytes at its beginning is refused: it is binary, or in UTF-16.
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
        check_size(path, 3 * size)  # its bytes, the text, its lines
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
    """The lines of a text file in UTF-8, or of an .xz with one in it.

    They end at a line feed only: str.splitlines would also cut at U+2028 and other rare characters.
    """
    lines = read_text(path).replace("\r\n", "\n").split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def check_text(path: str | os.PathLike[str], beginning: bytes) -> None:
    """Refuse a beginning that is of no text in UTF-8."""
    if b"\0" in beginning:
        raise DataFileError(f"{path}: not a text file in UTF-8 (it holds zero bytes)")
