"""Find the files of a data set: in $SPARSEVAE_DATA, then in the cache, then on the network."""

import hashlib
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Collection:
    """The files of one data set: the name of their folder, their SHA-256 and the mirrors to download them from."""

    name: str
    sha256: Mapping[str, str]
    mirrors: tuple[str, ...]  # a mirror followed by the name of a file is a URL

    def fetch(self) -> dict[str, Path]:
        """Find or download every file; file name -> path.

        A file in ``$SPARSEVAE_DATA/<name>/`` belongs to the user and is read as it is (its reader checks its
        structure). A file in the cache, ``<cache>/<name>/``, must have the known SHA-256 and is downloaded
        again if it has another. A download that fails leaves no partial file.

        Raises
        ------
        FileNotFoundError
            If a file is in neither folder and no mirror delivers it.
        """
        return {file: self._local(file) or self._download(file) for file in self.sha256}

    def present(self) -> bool:
        """True if every file is on this machine; only names are checked, no checksums."""
        return all(any((folder / file).is_file() for folder in self.folders()) for file in self.sha256)

    def where(self) -> str:
        """The folders that contain the files now, or the URL they would be downloaded from, in words."""
        if not self.present():
            return f"{self.mirrors[0]}, downloaded into {cache() / self.name}"
        return ", ".join(str(f) for f in self.folders() if any((f / file).is_file() for file in self.sha256))

    def folders(self) -> list[Path]:
        """The folders that are searched, in order."""
        return [root / self.name for root in (own_root(), cache()) if root is not None]

    def _local(self, file: str) -> Path | None:
        """The user's own file, or the one in the cache if its SHA-256 is right."""
        *own, cached = (folder / file for folder in self.folders())
        if found := next((path for path in own if path.is_file()), None):
            return found
        return cached if cached.is_file() and _sha256(cached) == self.sha256[file] else None

    def _download(self, file: str) -> Path:
        folder, faults = cache() / self.name, []
        if (folder / file).is_file():
            faults.append(f"{folder / file} (its sha256 is {_sha256(folder / file)}, not {self.sha256[file]})")
        cause: Exception | None = None
        for mirror in self.mirrors:
            # a warning, as pooch does: it is shown even if logging is not configured
            _LOG.warning("downloading %s into %s", mirror + file, folder)
            try:
                return _retrieve(mirror, file, self.sha256[file], folder)
            except (OSError, ValueError) as error:  # no network, an HTTP error, a wrong checksum
                faults.append(f"{mirror + file} ({_reason(error)})")
                cause = error
        missing = [name for name in self.sha256 if self._local(name) is None]
        raise FileNotFoundError(
            f"{self.name} is not on this machine and was not downloaded: put its files into {self.folders()[0]}, "
            f"or set SPARSEVAE_DATA to the folder that contains {self.name}/, or call this once with a network; "
            f"data.load('digits') needs neither; wanted: {', '.join(missing)}; "
            f"looked in: {', '.join(map(str, self.folders()))}{_unset()}; tried: {'; '.join(faults)}"
        ) from cause


@dataclass(frozen=True)
class ByHand:
    """A data set that the user downloads: its terms forbid redistribution, or its checksum is unknown."""

    name: str
    folders: tuple[str, ...]  # names under $SPARSEVAE_DATA; the first that contains the set is used
    holds: tuple[str, ...]  # patterns: a folder with a match for any of them contains the set
    how: str  # where to get it and what to put into the folder

    def find(self, path: str | os.PathLike[str] | None = None, file: str = "") -> Path:
        """The file or folder at ``path``, by default the folder in ``$SPARSEVAE_DATA``; of a folder the ``file`` in it.

        Raises
        ------
        FileNotFoundError
            If it does not exist; the message says where to get the set and where to put it.
        """
        found = self._found() if path is None else self.existing(Path(path).expanduser())
        if found is None:
            raise self.missing("not on this machine, and not downloaded automatically")
        return self.existing(found / file) if file and found.is_dir() else found

    def existing(self, file: Path) -> Path:
        """``file``, if it exists; else the error of `missing`."""
        if not os.path.exists(file):
            raise self.missing(f"{file} does not exist")
        return file

    def present(self) -> bool:
        """True if a folder in ``$SPARSEVAE_DATA`` contains the set; only names are checked."""
        return self._found() is not None

    def where(self) -> str:
        """The folder that contains the set now, or how to get it, in words."""
        return str(self._found() or f"fetched by hand: {self.how}")

    def missing(self, fault: str) -> FileNotFoundError:
        """The error for a data set, or a part of it, that does not exist."""
        root = own_root()
        places = [str((root or Path("$SPARSEVAE_DATA")) / folder) for folder in self.folders]
        return FileNotFoundError(
            f"{self.name}: {fault}; put it into {places[0]}, or pass its path with path= "
            f"(--data-option path=...); where it comes from: {self.how.removesuffix('.')}; "
            f"data.load('digits') needs nothing; looked in: {', '.join(places)}{_unset()}"
        )

    def _found(self) -> Path | None:
        root = own_root()
        for folder in [root / name for name in self.folders] if root else []:
            if any(next(folder.glob(pattern), None) for pattern in self.holds):
                return folder
        return None


def _retrieve(mirror: str, file: str, sha256: str, folder: Path) -> Path:
    """Download with pooch; its log is silent, since `_download` logs."""
    import pooch

    log = pooch.get_logger()
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        return Path(pooch.retrieve(mirror + file, known_hash=f"sha256:{sha256}", fname=file, path=folder))
    except OSError as error:
        if (answer := getattr(error, "response", None)) is not None:
            answer.close()  # pooch leaves the connection open if a server answers with an error
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
    """The folder for downloads: ``$SPARSEVAE_CACHE``, or the system's folder for caches."""
    chosen = os.environ.get("SPARSEVAE_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    import pooch

    return Path(pooch.os_cache("sparsevae"))


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
