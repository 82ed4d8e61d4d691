"""Save and load a state, a checkpoint in one safetensors file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor

from sparsevae.exceptions import StorageError
from sparsevae.storage.atomic import open_stored, write_file
from sparsevae.storage.codec import DAMAGE, MAX_HEADER, PathLike, check_json, damaged, loads
from sparsevae.storage.record import canonical, contiguous, meta_of, promised_bytes, seal, tensors_of, verify


def save_state(path: PathLike, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
    """Save tensors and metadata (see `save_folder`) atomically as one safetensors file."""
    ready = contiguous(tensors)
    text = canonical(seal("state", ready, meta))
    blob = safetensors.torch.save(ready, {"sparsevae": text})
    check_json(text, "meta", int.from_bytes(blob[:8], "little"))
    write_file(path, blob)


def load_state(path: PathLike) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Load what `save_state` saved: the tensors, on the CPU and sorted by name, and the metadata."""
    source = Path(path)
    with open_stored(source) as (file, size):
        head = file.read(8)
        length = int.from_bytes(head, "little")
        if size < 8 + length or length > MAX_HEADER:
            raise damaged(source, f"a safetensors header of {length} bytes", f"a file of {size} bytes")
        header = file.read(length)
        try:
            text = loads(header, source)["__metadata__"]["sparsevae"].encode()
        except (*DAMAGE, StorageError) as error:
            raise StorageError(f"{source} is not a state saved by sparsevae, or its header is damaged") from error
        record = verify(text, source, "state")
        if size != 8 + length + (promised := promised_bytes(record, source)):
            raise damaged(source, f"{8 + length + promised} bytes", f"{size}")
        blob = head + header + file.read(promised)
    return tensors_of(blob, record, source), meta_of(record, source)
