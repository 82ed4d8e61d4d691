"""From a saved folder to a fitted estimator: which class, its constructor, then its weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from sparsevae import storage
from sparsevae.parameters import decode
from sparsevae.settings import Training
from sparsevae.texts import Text

if TYPE_CHECKING:
    from sparsevae.estimator import SparseCoder

__all__ = ["below", "load", "revive"]


def below(tensors: Mapping[str, Tensor], part: str) -> dict[str, Tensor]:
    """The tensors of one part of a stored model, by their names within it."""
    return {k.removeprefix(part): v for k, v in tensors.items() if k.startswith(part)}


def load(
    path: str | Path,
    *,
    encoder: nn.Module | None = None,
    decoder: nn.Module | None = None,
    cls: type[SparseCoder] | None = None,
) -> Any:
    """A fitted estimator from a folder written by `save`, on the CPU. Runs no stored code and needs no data.

    A model with your own `encoder` or `decoder` needs those modules again (their weights come from the file), one
    of your own classes needs `cls`.
    """
    tensors, meta = storage.load_folder(path)
    try:
        return revive(path, tensors, meta, {"encoder": encoder, "decoder": decoder}, cls)
    except (KeyError, TypeError) as error:
        raise storage.StorageError(
            f"{path} holds settings that this version of sparsevae does not know ({error}); upgrade to load it."
        ) from error


def revive(
    path: str | Path,
    tensors: Mapping[str, Tensor],
    meta: Mapping[str, Any],
    own: dict[str, Any],
    cls: type[SparseCoder] | None,
) -> SparseCoder:
    from sparsevae import models

    known = models.known() if cls is None else {cls.__name__: cls}
    if meta["class"] not in known:
        raise storage.StorageError(f"{path} holds a {meta['class']}; known classes: {', '.join(known)}. Pass cls=.")
    missing = [k for k in meta["own_networks"] if own[k] is None]
    if missing:
        raise storage.StorageError(f"{path} was fitted with your own {' and '.join(missing)}: pass them to load().")
    useless = [k for k, v in own.items() if v is not None and k not in meta["own_networks"]]
    if useless:
        raise storage.StorageError(f"{path} was not fitted with your own {' and '.join(useless)}: load it without.")
    training = None if meta["training"] is None else Training(**decode(meta["training"]))
    text = None if meta.get("text") is None else Text.from_plain(meta["text"])
    constructor = {k: decode(v) for k, v in meta["constructor"].items()}
    found = known[meta["class"]]
    own = own | {"text": text, "training": training}
    given = {k: v for k, v in own.items() if k in {f.name for f in fields(found)}}  # a counter has no decoder
    return found(**constructor, **given)._restore(tensors, meta)
