"""The lock of a run's folder.

filelock is not used: its `FileLock` leaves its file in the folder, refuses a folder whose file a run that ended has
just taken away, raises where a file system has no locks (ENOLCK, ENOTSUP) or falls back to a file that a killed run
leaves locked (ENOSYS), and knows neither who has the lock nor how to lock an open folder (`exclusive`). With guards
against each there would be more code here than the lock itself takes, and a second kind of lock beside it.
"""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Iterator
from pathlib import Path

from sparsevae.exceptions import StorageError
from sparsevae.storage.codec import PathLike

try:
    import fcntl
except ImportError:  # Windows: two processes that write into one folder at once are not kept apart
    fcntl = None  # type: ignore[assignment]


LOCK = ".run.lock"  # there while a run lasts; a killed run leaves it, and then it locks nothing


def exclusive(descriptor: int | None) -> None:
    """Wait for the lock of an open file or folder, which closing it lets go; without locks, go on."""
    if fcntl is not None and descriptor is not None:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)


@contextlib.contextmanager
def locked(folder: PathLike) -> Iterator[None]:
    """Have a folder for a run alone; a BlockingIOError where another run has it, of any process or thread.

    The lock is the system's, on a small file in the folder, so a process that dies lets it go, be it by SIGKILL (and
    the children that it forked, if any, have ended too).
    Where the system or the file system has no such locks, the run goes on without.
    """
    path = Path(folder) / LOCK
    descriptor = _locked(path)
    try:
        yield
    finally:
        if fcntl is not None and descriptor is not None:
            with contextlib.suppress(OSError):
                if _is_at(path, descriptor):
                    os.unlink(path)  # while it is ours: who has it open already will find that it is gone
                fcntl.flock(descriptor, fcntl.LOCK_UN)  # for forked children too, which closing does not
            os.close(descriptor)


def _locked(path: Path) -> int | None:
    """The open file, locked as far as that can be done; None where there is none."""
    while fcntl is not None:
        try:  # not through a link: what it leads to is not ours to write into
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
        except OSError:  # a folder that may not be written to: the first write there will raise
            if path.is_symlink():
                raise StorageError(f"expected no link at {path}, which locks a run's folder; remove it") from None
            break
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            who = os.pread(descriptor, 200, 0).decode(errors="replace") or "another"
            os.close(descriptor)
            raise BlockingIOError(
                f"expected a folder that no run is using, but {path.parent} is in use by a run of {who}. Wait until it "
                "ends and continue it with resume=True (--resume), or choose another folder."
            ) from None
        except OSError:  # a file system without locks
            pass
        if _is_at(path, descriptor):
            with contextlib.suppress(OSError):  # a full disk; the content only names this process
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, f"process {os.getpid()} on {platform.node()}".encode(), 0)
            return descriptor
        os.close(descriptor)  # the run that had it ended while we opened it, and took the file away
    return None


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except OSError:
        return False
