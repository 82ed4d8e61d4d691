"""Output paths: checked before any work, and files written completely or not at all."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any


def write_whole(path: Path, write: Callable[[Any], object]) -> None:
    """Write a file atomically: `write` fills a buffer in memory, which then replaces the file."""
    from sparsevae.storage.atomic import write_file

    buffer = io.BytesIO()
    write(buffer)
    write_file(path, buffer.getvalue())


def ending_of(path: Path, *known: str) -> str:
    """The ending of an output file, after a check that it is a known one and that the file can be written."""
    if path.suffix.lower() not in known:
        raise ValueError(
            f"--out {path}: expected a name that ends in {', '.join(known[:-1])}{' or ' * (len(known) > 1)}{known[-1]}."
        )
    if path.exists() and not path.is_file():
        came = "a folder" if path.is_dir() else "no regular file"
        raise ValueError(f"--out {path}: expected a file to write, found {came}; choose another name.")
    check_place(Path(os.path.realpath(path)).parent)
    return path.suffix.lower()


def check_other(path: Path, data: str) -> None:
    """Raise a ValueError if the output file is the file of --data."""
    if path.exists() and os.path.exists(data) and os.path.samefile(path, data):
        raise ValueError(f"--out {path} is the file of --data, which would be lost; choose another name.")


def check_place(folder: Path) -> None:
    """Raise a ValueError if the folder cannot be created or written to."""
    real = Path(os.path.realpath(folder))
    if real.is_symlink():
        raise ValueError(f"--out: {real} is a link without a target; choose another place.")
    there = next(p for p in (real, *real.parents) if p.exists())
    if not there.is_dir():
        raise ValueError(f"--out: {there} is no folder; choose another place.")
    if not os.access(there, os.W_OK):
        raise ValueError(f"--out: {there} is not writable; choose another place.")


@contextmanager
def nothing_left(path: Path) -> Iterator[None]:
    """If the block fails, remove the folders that it created, if they are empty."""
    real = Path(os.path.realpath(path))
    made = [p for p in (real, *real.parents) if not p.exists()]
    try:
        yield
    except BaseException:
        with suppress(OSError):  # it is not empty, or was not created
            for p in made:
                p.rmdir()
        raise
