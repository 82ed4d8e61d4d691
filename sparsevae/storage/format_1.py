"""Conversion of the metadata of format 1 to format 2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparsevae.exceptions import warn_caller
from sparsevae.schedules import SCHEDULES
from sparsevae.storage.codec import PathLike, array_of
from sparsevae.text.vocabulary import Vocabulary

_LEFT_OPEN = ("steps", "batch_size", "learning_rate")  # of the training settings


def to_format_2(meta: Mapping[str, Any], path: PathLike) -> dict[str, Any]:
    """The metadata of a model in format 2, from that of format 1 in the folder `path`.

    The oldest folders have no entries "settled", "n_rows" and "text".
    """
    if "second_stage" in meta:
        warn_caller(f"{path} holds a second stage in an earlier format, which is left out: fit it again.")
    chosen, texts = meta.get("settled", {}), meta.get("texts")
    kind = {"kind": "texts", "text": _text(texts)}
    if texts is None:
        kind = {"kind": "numbers", "n_features": meta["n_features_in"]}
        kind |= {"likelihood": meta["likelihood"], "scaling": meta["scaling"]}
    labels = {k: array_of(**v) if isinstance(v, dict) else v for k, v in meta.get("labels", {}).items()}
    return {
        "class": meta["class"],
        "constructor": {k: _value(v) for k, v in meta["constructor"].items()},
        "own_networks": meta["own_networks"],
        "training": _value(meta["training"]),
        "text": _text(meta.get("text")),
        "chosen": {
            "hidden": tuple(chosen["hidden"]) if "hidden" in chosen else None,
            "defaults": chosen.get("usual"),
            "training": {k: chosen[k] for k in _LEFT_OPEN if k in chosen},
        },
        "input": {"feature_names": meta["feature_names_in"], **kind},
        "run": {
            "fingerprint": meta["data_fingerprint"],
            "n_steps": meta["n_steps"],
            "n_rows": meta.get("n_rows", 0),
            "history": meta["history"],
        },
        **({"labels": labels} if "labels" in meta else {}),
    }


def _value(plain: Any) -> Any:
    """An argument whose tuples, dicts and schedules are in the form of format 1."""
    if isinstance(plain, list):
        return [_value(v) for v in plain]
    if not isinstance(plain, dict):
        return plain
    if "tuple" in plain:
        return tuple(_value(v) for v in plain["tuple"])
    if "dict" in plain:
        return {k: _value(v) for k, v in plain["dict"].items()}
    return SCHEDULES[plain["schedule"]](**plain["fields"])


def _text(settings: Any) -> Any:
    """The settings of texts, whose vocabulary is a dict in format 1."""
    words = settings and settings["vocabulary"]
    return settings and {**settings, "vocabulary": words and Vocabulary.from_dict(words)}
