"""The lock of a run's folder.

filelock is not used. Its `FileLock` leaves its file in the folder, refuses a folder whose lock file a run that ended
has just removed, raises on a file system without locks (ENOLCK, ENOTSUP) or falls back to a file that a killed run
leaves locked (ENOSYS), and supports neither the name of the owner nor a lock of an open folder (`exclusive`). The
workarounds would be longer than the lock itself.
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
except ImportError:  # Windows: two processes can write into one folder at the same time
    fcntl = None  # type: ignore[assignment]


LOCK = ".run.lock"  # exists during a run; a killed run leaves it, without a lock


def exclusive(descriptor: int | None) -> None:
    """Wait for the lock of an open file or folder, which closing it releases; do nothing without locks."""
    if fcntl is not None and descriptor is not None:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)


@contextlib.contextmanager
def locked(folder: PathLike) -> Iterator[None]:
    """Lock a folder for one run; a BlockingIOError if another run of any process or thread has locked it.

    The lock is an flock of a small file in the folder, so the system releases it when the process dies, even by
    SIGKILL (and when the children that it forked, if any, have ended too).
    If the system or the file system has no such locks, the run continues without one.
    """
    path = Path(folder) / LOCK
    descriptor = _locked(path)
    try:
        yield
    finally:
        if fcntl is not None and descriptor is not None:
            with contextlib.suppress(OSError):
                if _is_at(path, descriptor):
                    os.unlink(path)  # before the release: another process that has it open finds it deleted
                fcntl.flock(descriptor, fcntl.LOCK_UN)  # for forked children too, which closing does not
            os.close(descriptor)


def _locked(path: Path) -> int | None:
    """Open and lock the file: its descriptor, unlocked if there are no locks; None if it cannot be opened."""
    while fcntl is not None:
        try:  # no link is followed: its target belongs to others
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
            with contextlib.suppress(OSError):  # a full disk; the content is only for messages
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, f"process {os.getpid()} on {platform.node()}".encode(), 0)
            return descriptor
        os.close(descriptor)  # the run that had the lock ended meanwhile and deleted the file
    return None


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except OSError:
        return False
