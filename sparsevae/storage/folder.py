"""Saved models and checkpoints: safetensors for the numbers, JSON for the rest, versioned and atomic.

Two shapes on disk: a **model folder** of ``model.json`` and ``model-<start of its SHA-256>.safetensors``, and
a **state** (a checkpoint), one safetensors file that carries the same JSON in its header. Both have format 2, whose
values `codec` writes; a model folder of format 1 is read too (`format_1`).

*Loading runs no code* and needs no data: the files contain tensors and plain JSON values only. The checksums detect
truncation, bit rot and accidental edits; they are no signature, since anybody who can write a file can recompute them.
So untrusted files are bounded in time and memory: only regular files are read, up to a largest size (`read_file`);
JSON has a largest size, depth and number of lists; weights are not longer than their listing. Any error while stored
values are decoded is a StorageError (`reading`).

*One file* is written under a temporary name beside its target, fsynced, and renamed over the target. The
rename is atomic; without the fsync before it a power cut could leave the new name on an empty file, and
without the fsync of the folder after it the rename itself could be lost.

*A folder* has two files, and a rename is atomic for one. So weights are named after their content and never replace
other weights; ``model.json`` names its weights, and its replacement is the instant in which the new model replaces the
old one. The order: new weights, ``model.json``, then delete the weights that ``model.json`` does not name. A process
that is killed before the second step leaves the old model complete, after it the new one; the next save deletes the
other files. Savers lock the folder (the system releases the lock of a dead process), so that none deletes the other's
files; a reader takes no lock and reads again if a save deleted the weights meanwhile. A run has another lock, on a
separate file, so that its model can be saved into its folder at any time (`locked`).

*Equal content gives equal bytes* under equal library versions: sorted keys, no dates, and one metadata entry
in a state's header, because safetensors writes several in random order.
"""

from __future__ import annotations

import json
import os
import re
import reprlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor

from sparsevae.exceptions import StorageError
from sparsevae.storage.atomic import open_folder, read_file, replace, sweep
from sparsevae.storage.codec import MAX_HEADER, PathLike, check_json, damaged, reading
from sparsevae.storage.lock import LOCK, exclusive
from sparsevae.storage.record import contiguous, meta_of, parse_record, promised_bytes, seal, sha256, tensors_of, verify

_RUN_FILES = {"checkpoint.safetensors", "history.jsonl"}  # files of a run whose model is not saved yet
_WEIGHTS = r"model-[0-9a-f]{12}\.safetensors"
_SWEPT = re.compile(rf"{_WEIGHTS}|\.({_WEIGHTS}|model\.json)\.[0-9a-f]{{8}}\.tmp")
_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{8}\.tmp")


def save_folder(path: PathLike, tensors: Mapping[str, Tensor], meta: Mapping[str, Any], *, kind: str = "model") -> None:
    """Save tensors and metadata as a model folder; an old model in it is replaced atomically.

    Parameters
    ----------
    path : the folder, created if missing. Other files in a folder of this format are not changed.
    tensors : name -> dense tensor, on any device, contiguous or not, sharing memory or not.
    meta : numbers, strings, None, lists, tuples, dicts with str keys, 1-d arrays, schedules and vocabularies, nested
        (see `codec.encode`). Any other type is a TypeError that names its place.
    kind : the kind of content; `load_folder` must be called with the same.

    Raises
    ------
    TypeError, StorageError : before anything is written.
    OSError : an error of the disk; the old model is unchanged.
    """
    ready = contiguous(tensors)
    blob = safetensors.torch.save(ready)
    record = seal(kind, ready, meta, weights_sha256=sha256(blob))
    text = json.dumps(record, sort_keys=True, indent=1).encode() + b"\n"
    check_json(text.decode(), "meta")
    check_folder(path, kind=kind)
    target = Path(os.path.realpath(path))
    target.mkdir(parents=True, exist_ok=True)
    with open_folder(target) as folder:
        exclusive(folder)
        weights, old = _weights_name(record, target), weights_name(target)
        keep = {old}
        try:
            replace(target / weights, blob, folder, like=target / (old or weights))
            keep |= {weights}  # until the next replacement ends, model.json may name the old or the new weights
            replace(target / "model.json", text, folder)
            keep = {weights}
        finally:
            sweep(target, _SWEPT, keep)


def load_folder(
    path: PathLike, *, kind: str = "model", upgrade: Callable[[dict[str, Any]], dict[str, Any]] | None = None
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Load what `save_folder` saved: the tensors, on the CPU and sorted by name, and the metadata.

    `upgrade` converts the metadata of format 1 to format 2; without it they are returned unchanged.
    """
    source = Path(path)
    if not os.path.isdir(source):
        came = "a file" if os.path.exists(source) else "nothing"
        raise StorageError(f"expected a saved {kind} (a folder) at {source}, found {came}; check the path")
    if any((source / name).exists() for name in _RUN_FILES) and not os.path.lexists(source / "model.json"):
        raise StorageError(
            f"{source} holds an unfinished run and no saved {kind} yet: continue it with --resume and the command "
            "that started it, or in Python fit with training.resume=True, then save"
        )
    known: bytes | None = None
    for attempt in range(10):
        text = read_file(source / "model.json", MAX_HEADER)
        if text != known:
            record, known = verify(text, source / "model.json", kind), text
            weights, promised = source / _weights_name(record, source), promised_bytes(record, source / "model.json")
        try:
            blob = read_file(weights, 8 + MAX_HEADER + promised)  # read once: the bytes that are hashed are loaded
            break
        except StorageError:  # a save may have replaced the model between the two reads
            if attempt == 9:
                raise
    if sha256(blob) != record["weights_sha256"]:
        raise damaged(weights, f"SHA-256 {record['weights_sha256']}", f"{sha256(blob)}, {len(blob)} bytes")
    tensors, meta = tensors_of(blob, record, weights), meta_of(record, source / "model.json")
    if upgrade and record["format_version"] == 1:
        with reading(source / "model.json", "the settings of a model in format 1"):
            meta = upgrade(meta)
    return tensors, meta


def check_folder(path: PathLike, *, kind: str = "model") -> None:
    """Raise a StorageError if `save_folder` would refuse this folder; call it before a training."""
    folder, advice = Path(path), "choose a new or empty folder"
    if folder.exists() and not folder.is_dir():
        raise StorageError(f"expected a folder at {folder}, found a file; {advice}")
    names = os.listdir(folder) if folder.exists() else []  # once: another process may be saving into it
    if "model.json" in names:
        came = parse_record(read_file(folder / "model.json", MAX_HEADER), folder / "model.json").get("kind")
        if came != kind:
            raise StorageError(f"{folder} holds a saved {came!r}, which a {kind!r} may not replace; {advice}")
    elif _RUN_FILES.isdisjoint(names):
        others = sorted(n for n in names if not (n == LOCK or _SWEPT.fullmatch(n) or _TEMPORARY.fullmatch(n)))
        if others:
            raise StorageError(f"{folder} is not from sparsevae and not empty ({others[0]!r}, ...); {advice}")


def _weights_name(record: Mapping[str, Any], folder: Path) -> str:
    digest = str(record.get("weights_sha256"))
    if not re.fullmatch("[0-9a-f]{64}", digest):  # it becomes part of a path
        raise damaged(folder / "model.json", "64 hexadecimal digits as weights_sha256", reprlib.repr(digest))
    return f"model-{digest[:12]}.safetensors"


def weights_name(folder: Path) -> str | None:
    """The file name of the weights that the folder's model.json names; None without a model.json."""
    source = folder / "model.json"
    return _weights_name(parse_record(read_file(source, MAX_HEADER), source), folder) if source.exists() else None
