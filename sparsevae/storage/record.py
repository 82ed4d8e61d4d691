"""The record of a stored model or state: format, checksums, metadata and the list of its tensors."""

from __future__ import annotations

import hashlib
import json
import math
import platform
import reprlib
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from torch import Tensor

from sparsevae.exceptions import StorageError
from sparsevae.storage.codec import damaged, decode, encode, loads, reading

FORMAT_VERSION = 2
"""Models of format 1 have other metadata, which `load_folder` converts; states of format 1 are refused."""

_DTYPES = ["float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool"]


def seal(kind: str, tensors: Mapping[str, Tensor], meta: Mapping[str, Any], **more: str) -> dict[str, Any]:
    """The record of tensors and metadata, with its checksum; `more` are further entries."""
    versions = {"torch": str(torch.__version__), "numpy": np.__version__, "python": platform.python_version()}
    try:
        versions["sparsevae"] = metadata.version("sparsevae")
    except metadata.PackageNotFoundError:  # a source tree that is not installed
        versions["sparsevae"] = "unknown"
    record = {"format": "sparsevae", "format_version": FORMAT_VERSION, "kind": kind, "versions": versions}
    record |= {"meta": encode(dict(meta), "meta"), "tensors": _listing(tensors)} | more
    return record | {"sha256": sha256(canonical(record).encode())}


def parse_record(text: bytes, source: Path) -> dict[str, Any]:
    """The record in a file's JSON; its checksum is not compared."""
    record = loads(text, source)
    if not isinstance(record, dict) or record.get("format") != "sparsevae":
        raise StorageError(f'{source} was not written by sparsevae: expected "format": "sparsevae" in it')
    return record


def verify(text: bytes, source: Path, kind: str) -> dict[str, Any]:
    """The record in a file's JSON, after a check of its format version, checksum and kind."""
    record = parse_record(text, source)
    version = record.get("format_version")
    if type(version) is not int or version < 1:
        raise damaged(source, f"format 1 or {FORMAT_VERSION}", reprlib.repr(version))
    if version > FORMAT_VERSION:  # before the checksum, which may be computed in another way
        reads = f"(format {version}, this one reads up to {FORMAT_VERSION})"
        raise StorageError(f"{source} was written by a newer sparsevae {reads}; upgrade sparsevae to load it")
    with reading(source, "strict JSON"):  # no NaN and Infinity: they are never written
        came = sha256(canonical({k: v for k, v in record.items() if k != "sha256"}).encode())
    if came != record.get("sha256"):
        raise damaged(source, f"JSON with checksum {record.get('sha256')}", came)
    if not all(isinstance(record.get(key), dict) for key in ("meta", "tensors")):
        raise damaged(source, '"meta" and "tensors"', f"{sorted(record)}")
    if record.get("kind") != kind:
        raise StorageError(f"{source} holds a saved {record.get('kind')!r}, expected a {kind!r}; check the path")
    if kind == "state" and version < FORMAT_VERSION:
        raise StorageError(
            f"{source} is an unfinished run of an earlier sparsevae, which cannot be continued; finish it with that "
            "version, or start it again in another folder"
        )
    return record


def promised_bytes(record: Mapping[str, Any], source: Path) -> int:
    """Size of the listed tensors in bytes."""
    total = 0
    for name, entry in record["tensors"].items():
        dtype, shape = ((entry if isinstance(entry, dict) else {}).get(k, ()) for k in ("dtype", "shape"))
        sizes = isinstance(shape, list) and len(shape) <= 64 and all(type(n) is int and 0 <= n < 2**63 for n in shape)
        if dtype not in _DTYPES or not sizes:
            raise damaged(source, f"the type and shape of tensor {name!r}", reprlib.repr(entry))
        total += math.prod(shape) * getattr(torch, dtype).itemsize
    return total


def meta_of(record: Mapping[str, Any], source: Path) -> dict[str, Any]:
    """The metadata of a record."""
    with reading(source, "values that sparsevae stores"):
        return dict(decode(record["meta"]))


def part_of(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose names begin with `prefix`, by the rest of their names."""
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


def canonical(record: Mapping[str, Any]) -> str:
    return json.dumps(record, sort_keys=True, separators=(",", ":"), allow_nan=False)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def contiguous(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Contiguous copies on the CPU, sorted by name (safetensors refuses views and shared memory)."""
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


def tensors_of(blob: bytes, record: Mapping[str, Any], source: Path) -> dict[str, Tensor]:
    """The tensors in the bytes of a safetensors file, sorted by name, after a comparison with the record's list."""
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
        data: Any = tensor.reshape(-1).view(torch.uint8).numpy()  # a buffer, but not by its type
        listing[name] = {"dtype": _dtype(tensor), "shape": list(tensor.shape), "sha256": sha256(data)}
    return listing


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
