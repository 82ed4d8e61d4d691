"""Atomic replacement of files, and reading of stored files with a bound on their size."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import stat
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from sparsevae.exceptions import DataFileError, StorageError
from sparsevae.files import opened
from sparsevae.storage.codec import PathLike, damaged


def write_file(path: PathLike, data: bytes) -> None:
    """Write a file atomically: a reader at any time, and after a crash, finds the complete old or new content.

    After an error the old file is unchanged and no temporary file is left. (If only the last step fails, the fsync
    of the folder, the new file is in place and complete, but a power failure may restore the old one.) Missing
    folders are created, links followed, temporary files of killed writers removed: one writer per path at a time. The
    new file has the permissions of the old one; an OSError names the file.
    """
    target = Path(os.path.realpath(path))
    target.parent.mkdir(parents=True, exist_ok=True)
    with open_folder(target.parent) as folder:
        replace(target, data, folder)


def read_file(path: Path, most: int) -> bytes:
    """Read a regular file of at most `most` bytes."""
    with open_stored(path) as (file, size):
        if size > most:
            raise damaged(path, f"at most {most} bytes", f"a file of {size}")
        return file.read(size)


@contextlib.contextmanager
def open_stored(path: Path) -> Iterator[tuple[BinaryIO, int]]:
    """Open a regular file: the file and its size. Links are followed; others (pipes, devices) are refused."""
    try:
        with opened(path) as file:
            yield file, os.fstat(file.fileno()).st_size
    except DataFileError as error:
        raise StorageError(f"{error}; check the path, or restore it from a copy") from error
    except OSError as error:
        came = "no such file" if isinstance(error, FileNotFoundError) else str(error)
        raise StorageError(
            f"expected a file saved by sparsevae at {path}: {came}; check the path, or restore it from a copy"
        ) from error


@contextlib.contextmanager
def open_folder(folder: Path) -> Iterator[int | None]:
    """Open a folder, to lock and to fsync it; None on Windows, which supports neither."""
    if os.name == "nt":
        yield None
    else:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            yield descriptor
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def naming(path: PathLike) -> Iterator[None]:
    """Set the file name of an OSError to `path`: write errors have no name, or that of a temporary file."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def replace(path: Path, data: bytes, folder: int | None, *, like: Path | None = None) -> None:
    """Replace `path` by a file of the given content, with the permissions of `like` (by default those of `path`)."""
    with naming(path):
        sweep(path.parent, re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{8}}\.tmp"))  # of a killed writer
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
        try:
            with open(temporary, "xb") as file:
                if (mode := _mode(like or path)) not in (None, _mode(temporary)):
                    os.chmod(temporary, mode)
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        if folder is not None:
            try:
                os.fsync(folder)
            except OSError as error:
                if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # a file system that cannot sync folders
                    raise


def _mode(path: Path) -> Any:
    return stat.S_IMODE(path.stat().st_mode) if path.exists() else None


def sweep(folder: Path, pattern: re.Pattern[str], keep: Collection[str | None] = ()) -> None:
    """Delete the files of a folder whose names match `pattern` and are not in `keep`."""
    for name in os.listdir(folder):
        if name not in keep and pattern.fullmatch(name):
            with contextlib.suppress(OSError):  # a file that is left is harmless; the next save tries again
                os.unlink(folder / name)
