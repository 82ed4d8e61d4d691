"""Where a data set's files lie: $SPARSEVAE_DATA, then the cache, then the network."""

import hashlib
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Collection:
    """Files that belong together: their folder's name, their sha256, the mirrors that serve them."""

    name: str
    sha256: Mapping[str, str]
    mirrors: tuple[str, ...]  # each followed by a file's name is an address

    def fetch(self) -> dict[str, Path]:
        """Find or download every file; file name -> path.

        A file in ``$SPARSEVAE_DATA/<name>/`` is the user's own and taken as it is (its reader checks its
        structure). A file in the cache, ``<cache>/<name>/``, must have the known sha256 and is downloaded
        again when it has not. Nothing is left half-written.

        Raises
        ------
        FileNotFoundError
            If a file is in neither folder and no mirror delivers it.
        """
        found: dict[str, Path] = {}
        for file in self.sha256:
            try:
                found[file] = self._own(file) or self._cached(file) or self._download(file)
            except _UnreachableError as error:
                missing = [name for name in self.sha256 if not (self._own(name) or self._cached(name))]
                raise FileNotFoundError(self._help(missing, str(error))) from error.__cause__
        return found

    def present(self) -> bool:
        """Whether every file lies on this machine (a look at names only: no download, no checksum)."""
        return all(any((folder / file).is_file() for folder in self.folders()) for file in self.sha256)

    def where(self) -> str:
        """In words: the folders that hold the files now, or the address they would come from."""
        if not self.present():
            return f"{self.mirrors[0]}, downloaded into {cache() / self.name}"
        return ", ".join(str(f) for f in self.folders() if any((f / file).is_file() for file in self.sha256))

    def folders(self) -> list[Path]:
        """Folders searched, in order."""
        roots = [own_root(), cache()]
        return [root / self.name for root in roots if root is not None]

    def _own(self, file: str) -> Path | None:
        root = own_root()
        path = root / self.name / file if root else None
        return path if path and path.is_file() else None

    def _cached(self, file: str) -> Path | None:
        path = cache() / self.name / file
        return path if path.is_file() and _sha256(path) == self.sha256[file] else None

    def _download(self, file: str) -> Path:
        folder, faults = cache() / self.name, []
        if (folder / file).is_file():
            faults.append(f"{folder / file} (its sha256 is {_sha256(folder / file)}, not {self.sha256[file]})")
        cause: Exception | None = None
        for mirror in self.mirrors:
            # a warning, as pooch does: seen where nobody set logging up
            _LOG.warning("downloading %s into %s", mirror + file, folder)
            try:
                return _retrieve(mirror, file, self.sha256[file], folder)
            except (OSError, ValueError) as error:  # no network, an HTTP error, a wrong checksum
                faults.append(f"{mirror + file} ({_reason(error)})")
                cause = error
        raise _UnreachableError("; ".join(faults)) from cause

    def _help(self, missing: list[str], faults: str) -> str:
        return "; ".join(
            [
                f"{self.name} is not on this machine and was not downloaded: put its files into {self.folders()[0]}, "
                f"or set SPARSEVAE_DATA to the folder that holds {self.name}/, or call this once with a network",
                "data.load('digits') needs neither",
                f"wanted: {', '.join(missing)}",
                f"looked in: {', '.join(map(str, self.folders()))}{_unset()}",
                f"tried: {faults}",
            ]
        )


@dataclass(frozen=True)
class ByHand:
    """A set that the user fetches once: its terms forbid passing it on, or no checksum of it is known to us."""

    name: str
    folders: tuple[str, ...]  # names under $SPARSEVAE_DATA; the first that holds the set wins
    holds: tuple[str, ...]  # patterns: a folder with a match for any of them holds the set
    how: str  # where to get it and what to put into the folder

    def find(self, path: str | os.PathLike[str] | None = None) -> Path:
        """The file or folder at ``path``; without one, the folder in ``$SPARSEVAE_DATA``.

        Raises
        ------
        FileNotFoundError
            If there is none; the message says where to get the set and where to put it.
        """
        if path is not None:
            chosen = Path(path).expanduser()
            if not os.path.exists(chosen):
                raise self.missing(f"{chosen} does not exist")
            return chosen
        found = self._found()
        if found is None:
            raise self.missing("not on this machine, and not downloaded automatically")
        return found

    def present(self) -> bool:
        """Whether a folder in ``$SPARSEVAE_DATA`` holds the set (a look at names only)."""
        return self._found() is not None

    def where(self) -> str:
        """In words: the folder that holds the set now, or how to get it."""
        return str(self._found() or f"fetched by hand: {self.how}")

    def missing(self, fault: str) -> FileNotFoundError:
        """The error for a set, or a part of it, that is not there."""
        root = own_root()
        places = [str((root or Path("$SPARSEVAE_DATA")) / folder) for folder in self.folders]
        return FileNotFoundError(
            f"{self.name}: {fault}; put it into {places[0]}, or say where it lies with path= "
            f"(--data-option path=...); where it comes from: {self.how.removesuffix('.')}; "
            f"data.load('digits') needs nothing; looked in: {', '.join(places)}{_unset()}"
        )

    def _found(self) -> Path | None:
        root = own_root()
        for folder in [root / name for name in self.folders] if root else []:
            if any(next(folder.glob(pattern), None) for pattern in self.holds):
                return folder
        return None


class _UnreachableError(Exception):
    """No mirror delivered a file."""


def _retrieve(mirror: str, file: str, sha256: str, folder: Path) -> Path:
    """Download with pooch, whose log is ours to speak for."""
    import pooch

    log = pooch.get_logger()
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        return Path(pooch.retrieve(mirror + file, known_hash=f"sha256:{sha256}", fname=file, path=folder))
    except OSError as error:
        if (answer := getattr(error, "response", None)) is not None:
            answer.close()  # pooch leaves the connection open when a server answers with an error
        raise
    finally:
        log.setLevel(level)


def _reason(error: Exception) -> str:
    """Why a download failed, in a few words.

    >>> _reason(OSError(28, "No space left on device"))
    'No space left on device'
    """
    from requests import exceptions as web

    reasons: dict[type[Exception], str] = {
        web.ProxyError: "proxy not reachable",
        web.SSLError: "no secure connection",
        web.Timeout: "no answer in time",
        web.ConnectionError: "host not reachable",
        web.RequestException: "failed",
        ValueError: "other bytes than those of the known hash",
    }
    response = getattr(error, "response", None)
    if response is not None:
        return f"HTTP status {response.status_code}"
    known = next((words for kind, words in reasons.items() if isinstance(error, kind)), None)
    return known or getattr(error, "strerror", None) or str(error)


def _unset() -> str:
    return "" if own_root() else " (SPARSEVAE_DATA is not set)"


def own_root() -> Path | None:
    """The user's own folder of data sets: ``$SPARSEVAE_DATA``, if set."""
    chosen = os.environ.get("SPARSEVAE_DATA")
    return Path(chosen).expanduser() if chosen else None


def cache() -> Path:
    """The folder that keeps downloads: ``$SPARSEVAE_CACHE``, or the system's own place for caches."""
    chosen = os.environ.get("SPARSEVAE_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    import pooch

    return Path(pooch.os_cache("sparsevae"))


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
