"""Saved models and checkpoints: safetensors for the numbers, JSON for the rest, versioned and atomic.

Two shapes on disk: a **model folder** of ``model.json`` and ``model-<start of its SHA-256>.safetensors``, and
a **state** (a checkpoint), one safetensors file that carries the same JSON in its header.

*Loading runs no code* and needs no data: there are only tensors and plain JSON values. The checksums find
truncation, bit rot and careless edits; they are no signature, since who can write a file can recompute them. So a
file is refused before it costs time or memory: only regular files are read, and no more of them than they may hold
(`read_file`); JSON has a largest size, depth and number of lists; weights are no longer than their listing says. All
that goes wrong while stored values are made sense of is a StorageError (`reading`).

*One file* is written under a temporary name beside its target, fsynced, and renamed over the target. The
rename is atomic; without the fsync before it a power cut could leave the new name on an empty file, and
without the fsync of the folder after it the rename itself could be lost.

*A folder* has two files, and no rename covers two. So weights are named after their content and never replace
other weights; ``model.json`` tells which are its own, and its replacement is the one instant in which the old
model becomes the new one. The order: new weights, ``model.json``, then delete the weights nothing refers to.
Killed before the second step the old model is whole, after it the new one; the next save sweeps what lies
about. Savers lock the folder (the system frees a dead process's lock), so none sweeps the other's files; a
reader takes no lock and looks again if a save swept the weights away under it. A run holds another lock, on a
file of its own, so that its model can be saved into its folder at any time (`held`).

*Equal content gives equal bytes* under equal library versions: sorted keys, no dates, and one metadata entry
in a state's header, because safetensors writes several in random order.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import math
import os
import platform
import re
import reprlib
import secrets
import stat
from collections.abc import Collection, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from sparsevae.opening import DataFileError, opened

try:
    import fcntl
except ImportError:  # Windows: two processes that write into one folder at once are not kept apart
    fcntl = None  # type: ignore[assignment]

__all__ = ["FORMAT_VERSION", "StorageError", "check_folder", "damaged", "decode", "encode", "held", "line_of"]
__all__ += ["load_folder", "load_state", "parse", "read_file", "reading", "save_folder", "save_state"]
__all__ += ["weights_name", "write_file"]

FORMAT_VERSION = 1
PathLike = str | os.PathLike[str]

_RUN_FILES = {"checkpoint.safetensors", "history.jsonl"}  # what a run of ours leaves before its model
_LOCK = ".run.lock"  # there while a run lasts; a killed run leaves it, and then it locks nothing
_WEIGHTS = r"model-[0-9a-f]{12}\.safetensors"
_SWEPT = re.compile(rf"{_WEIGHTS}|\.({_WEIGHTS}|model\.json)\.[0-9a-f]{{8}}\.tmp")
_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{8}\.tmp")
_MAX_DEPTH = 50  # far below the recursion limit: what could be saved can be loaded
_MAX_HEADER = 2**26  # bytes of JSON; it takes ten times as much as values, and safetensors reads no more than 1e8
_MAX_LISTS = 2**20  # lists and dicts in it; an empty one takes 64 bytes and is written in 2
_DTYPES = ["float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool"]
_STRINGS = re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)  # of JSON; each character is looked at once
_FLOATS = {repr(value): value for value in (math.nan, math.inf, -math.inf)}
_DAMAGE = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RuntimeError, AssertionError)


class StorageError(ValueError):
    """A file or folder is refused; the message says what was expected, what came and what would work."""


@contextlib.contextmanager
def reading(source: PathLike, expected: str) -> Iterator[None]:
    """Any error that stored values cause here becomes a StorageError that names their file."""
    try:
        yield
    except StorageError:
        raise
    except (*_DAMAGE, SafetensorError) as error:
        raise damaged(source, expected, line_of(error)) from error


def line_of(error: Exception) -> str:
    """What an error says, in one line of bounded length."""
    text = " ".join(str(error)[:1000].split())
    return f"{text[:300]} ..." if len(text) > 300 else text or type(error).__name__


def write_file(path: PathLike, data: bytes) -> None:
    """Write a file so that any reader at any time, and any crash, finds the old or the new content, complete.

    After an error the old file is intact and no temporary file stays. (Only if the last step fails, the fsync
    of the folder, is the new file in place: complete, but a power cut may bring the old one back.) Missing
    folders are made, links followed, a killed writer's temporary file removed: one writer per path at a time. The new
    content has the permissions of the old; an OSError names the file.
    """
    target = Path(os.path.realpath(path))
    target.parent.mkdir(parents=True, exist_ok=True)
    with _descriptor(target.parent) as folder:
        _replace(target, data, folder)


def save_folder(path: PathLike, tensors: Mapping[str, Tensor], meta: Mapping[str, Any], *, kind: str = "model") -> None:
    """Save tensors and metadata as a model folder; a model that is there already is replaced as a whole.

    Parameters
    ----------
    path : the folder, made if missing. Other files in a folder of ours are left alone.
    tensors : name -> dense tensor, on any device, contiguous or not, sharing memory or not.
    meta : str, int, float, bool, None, list, dict with str keys, nested. Strict JSON has no nan and inf: they
        become ``{"$float": "nan"}``, and keys that start with ``$`` get one more. Any other type (also tuples
        and numpy scalars) is a TypeError that names its place.
    kind : what the folder holds; `load_folder` must ask for the same.

    Raises
    ------
    TypeError, StorageError : before anything is written.
    OSError : the disk's own troubles; the old model stays.
    """
    ready = _ready(tensors)
    blob = safetensors.torch.save(ready)
    record = _seal(kind, ready, meta, weights_sha256=_sha256(blob))
    text = json.dumps(record, sort_keys=True, indent=1).encode() + b"\n"
    _check_json(text.decode(), "meta")
    check_folder(path, kind=kind)
    target = Path(os.path.realpath(path))
    target.mkdir(parents=True, exist_ok=True)
    with _descriptor(target) as folder:
        if fcntl is not None and folder is not None:
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(folder, fcntl.LOCK_EX)
        weights, old = _weights_name(record, target), weights_name(target)
        keep = {old}
        try:
            _replace(target / weights, blob, folder, like=target / (old or weights))
            keep |= {weights}  # from here on the model may be the old one or the new one
            _replace(target / "model.json", text, folder)
            keep = {weights}
        finally:
            _sweep(target, _SWEPT, keep)


def load_folder(path: PathLike, *, kind: str = "model") -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Load what `save_folder` saved: the tensors, on the CPU and sorted by name, and the metadata."""
    source = Path(path)
    if not os.path.isdir(source):
        came = "a file" if os.path.exists(source) else "nothing"
        raise StorageError(f"expected a saved {kind} (a folder) at {source}, found {came}; check the path")
    if any((source / name).exists() for name in _RUN_FILES) and not os.path.lexists(source / "model.json"):
        raise StorageError(
            f"{source} holds an unfinished run and no saved {kind} yet: continue it with --resume and the command "
            "that began it, or in Python fit with training.resume=True, then save"
        )
    known: bytes | None = None
    for attempt in range(10):
        text = read_file(source / "model.json", _MAX_HEADER)
        if text != known:
            record, known = _verify(text, source / "model.json", kind), text
            weights, promised = source / _weights_name(record, source), _promised(record, source / "model.json")
        try:
            blob = read_file(weights, 8 + _MAX_HEADER + promised)  # read once: what is hashed is what is loaded
            break
        except StorageError:  # a save may have replaced the model between our two reads
            if attempt == 9:
                raise
    if _sha256(blob) != record["weights_sha256"]:
        raise damaged(weights, f"SHA-256 {record['weights_sha256']}", f"{_sha256(blob)}, {len(blob)} bytes")
    return _tensors(blob, record, weights), _meta(record, source / "model.json")


def check_folder(path: PathLike, *, kind: str = "model") -> None:
    """Raise StorageError if `save_folder` would refuse this folder: to ask before a training, not after."""
    folder, advice = Path(path), "choose a new or empty folder"
    if folder.exists() and not folder.is_dir():
        raise StorageError(f"expected a folder at {folder}, found a file; {advice}")
    names = os.listdir(folder) if folder.exists() else []  # once: another may be saving here
    if "model.json" in names:
        came = _parse(read_file(folder / "model.json", _MAX_HEADER), folder / "model.json").get("kind")
        if came != kind:
            raise StorageError(f"{folder} holds a saved {came!r}, which a {kind!r} may not replace; {advice}")
    elif _RUN_FILES.isdisjoint(names):
        others = sorted(n for n in names if not (n == _LOCK or _SWEPT.fullmatch(n) or _TEMPORARY.fullmatch(n)))
        if others:
            raise StorageError(f"{folder} is not from sparsevae and not empty ({others[0]!r}, ...); {advice}")


@contextlib.contextmanager
def held(folder: PathLike) -> Iterator[None]:
    """Have a folder for a run alone; a BlockingIOError where another run has it, of any process or thread.

    The lock is the system's, on a small file in the folder, so a process that dies lets it go, be it by SIGKILL (and
    the children that it forked, if any, have ended too).
    Where the system or the file system has no such locks, the run goes on without.
    """
    path = Path(folder) / _LOCK
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


def save_state(path: PathLike, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
    """Save tensors and metadata (see `save_folder`) atomically as one safetensors file: for checkpoints."""
    ready = _ready(tensors)
    text = _canonical(_seal("state", ready, meta))
    blob = safetensors.torch.save(ready, {"sparsevae": text})
    _check_json(text, "meta", int.from_bytes(blob[:8], "little"))
    write_file(path, blob)


def load_state(path: PathLike) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Load what `save_state` saved: the tensors, on the CPU and sorted by name, and the metadata."""
    source = Path(path)
    with _opened(source) as (file, size):
        head = file.read(8)
        length = int.from_bytes(head, "little")
        if size < 8 + length or length > _MAX_HEADER:
            raise damaged(source, f"a safetensors header of {length} bytes", f"a file of {size} bytes")
        header = file.read(length)
        try:
            text = _loads(header, source)["__metadata__"]["sparsevae"].encode()
        except (*_DAMAGE, StorageError) as error:
            raise StorageError(f"{source} is not a state saved by sparsevae, or its header is damaged") from error
        record = _verify(text, source, "state")
        if size != 8 + length + (promised := _promised(record, source)):
            raise damaged(source, f"{8 + length + promised} bytes", f"{size}")
        blob = head + header + file.read(promised)
    return _tensors(blob, record, source), _meta(record, source)


# The record: what the JSON says.


def _seal(kind: str, tensors: Mapping[str, Tensor], meta: Mapping[str, Any], **more: str) -> dict[str, Any]:
    versions = {"torch": str(torch.__version__), "numpy": np.__version__, "python": platform.python_version()}
    try:
        versions["sparsevae"] = metadata.version("sparsevae")
    except metadata.PackageNotFoundError:  # a source tree that is not installed
        versions["sparsevae"] = "unknown"
    record = {"format": "sparsevae", "format_version": FORMAT_VERSION, "kind": kind, "versions": versions}
    record |= {"meta": encode(dict(meta), "meta"), "tensors": _listing(tensors)} | more
    return record | {"sha256": _sha256(_canonical(record).encode())}


def parse(text: bytes, source: PathLike) -> Any:
    """The values that `encode` was given, from their JSON in a file; a StorageError where it holds none."""
    with reading(source, "JSON"):
        return decode(_loads(text, source))


def _loads(text: bytes, source: PathLike) -> Any:
    """JSON that was looked at before it is made into values."""
    with reading(source, "JSON"):
        _check_json(plain := text.decode(), source)
        return json.loads(plain)


def _check_json(text: str, source: PathLike, size: int | None = None) -> None:
    """Refuse what would take much memory, or is nested so deep that a reader would run out of stack."""
    marks = np.frombuffer(_STRINGS.sub("", text).encode("ascii", "replace"), np.uint8)
    opens = (marks == ord("[")) | (marks == ord("{"))
    closes = (marks == ord("]")) | (marks == ord("}"))
    depth = int(np.cumsum(opens.astype(np.int32) - closes).max(initial=0))
    for most, came, what in (
        (_MAX_HEADER, len(text) if size is None else size, "bytes"),
        (_MAX_LISTS, int(opens.sum()), "lists and dicts"),
        (_MAX_DEPTH + 5, depth, "levels of nesting"),
    ):
        if came > most:
            advice = "store long lists as tensors" if source == "meta" else "restore it from a copy, or save it again"
            raise StorageError(f"{source} takes over {most:,} {what} as JSON; {advice}")


def _parse(text: bytes, source: Path) -> dict[str, Any]:
    record = _loads(text, source)
    if not isinstance(record, dict) or record.get("format") != "sparsevae":
        raise StorageError(f'{source} was not written by sparsevae: expected "format": "sparsevae" in it')
    return record


def _verify(text: bytes, source: Path, kind: str) -> dict[str, Any]:
    record = _parse(text, source)
    version = record.get("format_version")
    if isinstance(version, int) and version > FORMAT_VERSION:  # first: its checksum may be another
        reads = f"(format {version}, this one reads up to {FORMAT_VERSION})"
        raise StorageError(f"{source} was written by a newer sparsevae {reads}; upgrade sparsevae to load it")
    with reading(source, "strict JSON"):  # NaN and Infinity are not, and we never write them
        came = _sha256(_canonical({k: v for k, v in record.items() if k != "sha256"}).encode())
    if came != record.get("sha256"):
        raise damaged(source, f"JSON with checksum {record.get('sha256')}", came)
    if not all(isinstance(record.get(key), dict) for key in ("meta", "tensors")):
        raise damaged(source, '"meta" and "tensors"', f"{sorted(record)}")
    if record.get("kind") != kind:
        holds = f"{source} holds a saved {record.get('kind')!r}"
        raise StorageError(f"{holds}, expected a {kind!r}; check the path")
    return record


def _promised(record: Mapping[str, Any], source: Path) -> int:
    """Bytes that the listed tensors take."""
    total = 0
    for name, entry in record["tensors"].items():
        dtype, shape = ((entry if isinstance(entry, dict) else {}).get(k, ()) for k in ("dtype", "shape"))
        sizes = isinstance(shape, list) and len(shape) <= 64 and all(type(n) is int and 0 <= n < 2**63 for n in shape)
        if dtype not in _DTYPES or not sizes:
            raise damaged(source, f"the type and shape of tensor {name!r}", reprlib.repr(entry))
        total += math.prod(shape) * getattr(torch, dtype).itemsize
    return total


def _meta(record: Mapping[str, Any], source: Path) -> dict[str, Any]:
    with reading(source, "values that sparsevae stores"):
        return dict(decode(record["meta"]))


def damaged(source: PathLike, expected: str, came: str) -> StorageError:
    """The error for what nobody saved like this."""
    advice = "restore it from a copy, or save it again"
    return StorageError(f"{source} is incomplete or was changed: expected {expected}, got {came}; {advice}")


def _canonical(record: Mapping[str, Any]) -> str:
    return json.dumps(record, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def encode(value: Any, where: str, depth: int = 0) -> Any:
    """Plain values to strict JSON. Only the exact types: a subclass would not come back as what it was."""
    kind = type(value)
    if depth > _MAX_DEPTH:
        raise TypeError(f"{where}: nested more than {_MAX_DEPTH} deep, or within itself; flatten it")
    if kind is float and not math.isfinite(value):
        return {"$float": repr(value)}
    if value is None or kind in (str, int, float, bool):
        return value
    if kind is list:
        return [encode(item, f"{where}[{i}]", depth + 1) for i, item in enumerate(value)]
    if kind is dict:
        if wrong := [key for key in value if type(key) is not str]:
            raise TypeError(f"{where}: expected str keys, got {wrong[0]!r}; convert it with str()")
        escaped = {key: "$" + key if key.startswith("$") else key for key in value}
        return {escaped[key]: encode(item, f"{where}.{key}", depth + 1) for key, item in value.items()}
    came, advice = f"{kind.__module__}.{kind.__qualname__}", "list() for tuples, .item() for numpy scalars"
    raise TypeError(f"{where}: expected str, int, float, bool, None, list or dict, got {came}; use {advice}")


def decode(value: Any) -> Any:
    """What `encode` was given, from its JSON."""
    if isinstance(value, list):
        return [decode(item) for item in value]
    if isinstance(value, dict) and value.keys() == {"$float"}:
        return _FLOATS[value["$float"]]
    if isinstance(value, dict):
        return {key.removeprefix("$"): decode(item) for key, item in value.items()}
    return value


def _ready(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Contiguous CPU copies, sorted by name (safetensors refuses views and shared memory)."""
    for name, tensor in tensors.items():
        if type(name) is not str or name == "__metadata__" or not name.isprintable():
            raise TypeError(f"tensor name {name!r}: expected a printable str other than '__metadata__'")
        if not isinstance(tensor, Tensor):
            raise TypeError(f"tensors[{name!r}]: expected a torch.Tensor, got {type(tensor).__name__}")
        if tensor.layout is not torch.strided or tensor.is_meta or _dtype(tensor) not in _DTYPES:
            legal, came = " or ".join(_DTYPES), f"{_dtype(tensor)}, {tensor.layout} on {tensor.device}"
            raise TypeError(f"tensors[{name!r}]: expected a dense {legal}; got {came}; convert it")
    copy: dict[str, Any] = {"copy": True, "memory_format": torch.contiguous_format}
    return {name: tensors[name].detach().to("cpu", **copy) for name in sorted(tensors)}


def _tensors(blob: bytes, record: Mapping[str, Any], source: Path) -> dict[str, Tensor]:
    with reading(source, "a safetensors file"):
        tensors = safetensors.torch.load(blob)
        came, listed = _listing(tensors), record["tensors"]
    for name in sorted(came.keys() | listed.keys()):
        if came.get(name) != listed.get(name):
            expected, found = (str(d.get(name, "no such tensor")) for d in (listed, came))
            raise damaged(source, f"tensor {name!r} as {expected}", found)
    return {name: tensors[name] for name in sorted(tensors)}


def _listing(tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    listing = {}
    for name, tensor in tensors.items():
        data: Any = tensor.reshape(-1).view(torch.uint8).numpy()  # a buffer, though not typed as one
        listing[name] = {"dtype": _dtype(tensor), "shape": list(tensor.shape), "sha256": _sha256(data)}
    return listing


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


# Files.


def _weights_name(record: Mapping[str, Any], folder: Path) -> str:
    digest = str(record.get("weights_sha256"))
    if not re.fullmatch("[0-9a-f]{64}", digest):  # it becomes part of a path
        raise damaged(folder / "model.json", "64 hexadecimal digits as weights_sha256", reprlib.repr(digest))
    return f"model-{digest[:12]}.safetensors"


def weights_name(folder: Path) -> str | None:
    """The weights that the folder's model.json refers to; None without a model.json."""
    source = folder / "model.json"
    return _weights_name(_parse(read_file(source, _MAX_HEADER), source), folder) if source.exists() else None


def read_file(path: Path, most: int) -> bytes:
    """All of a regular file, of at most so many bytes."""
    with _opened(path) as (file, size):
        if size > most:
            raise damaged(path, f"at most {most} bytes", f"a file of {size}")
        return file.read(size)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[tuple[BinaryIO, int]]:
    """An open file and its size. Links are followed; what is no regular file may never end, and is refused."""
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


def _locked(path: Path) -> int | None:
    """The open file, locked as far as that can be done; None where there is none."""
    while fcntl is not None:
        try:  # not through a link: what it leads to is not ours to write into
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
        except OSError:  # a folder that may not be written to: whoever writes will hear of it
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
            with contextlib.suppress(OSError):  # a full disk; it only says who we are
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


@contextlib.contextmanager
def _descriptor(folder: Path) -> Iterator[int | None]:
    """The open folder, to lock and to fsync; Windows can do neither."""
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
    """Let an OSError say which file it is about: those of writing do not, those of a temporary file name that."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def _replace(path: Path, data: bytes, folder: int | None, *, like: Path | None = None) -> None:
    """`path` gets new content, and the permissions of the file that it replaces (`like`)."""
    with naming(path):
        _move_in(path, data, folder, like or path)


def _mode(path: Path) -> Any:
    return stat.S_IMODE(path.stat().st_mode) if path.exists() else None


def _move_in(path: Path, data: bytes, folder: int | None, like: Path) -> None:
    _sweep(path.parent, re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{8}}\.tmp"))  # of a killed writer
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with open(temporary, "xb") as file:
            if (mode := _mode(like)) not in (None, _mode(temporary)):
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


def _sweep(folder: Path, pattern: re.Pattern[str], keep: Collection[str | None] = ()) -> None:
    for name in os.listdir(folder):
        if name not in keep and pattern.fullmatch(name):
            with contextlib.suppress(OSError):  # a file that stays does no harm; the next save tries again
                os.unlink(folder / name)
