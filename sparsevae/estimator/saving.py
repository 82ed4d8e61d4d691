"""From a saved folder to a fitted estimator: which class, its constructor, then its weights.

A checksum finds careless edits, not those of who computes it anew. So what a file says is looked at before it is
believed: its own numbers and names here, the sizes in its settings against the tensors that it holds.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from sparsevae.checks import POSITIVE
from sparsevae.estimator.ration import Ration
from sparsevae.estimator.registry import known
from sparsevae.exceptions import StorageError, warn_caller
from sparsevae.inputs.texts import Text
from sparsevae.parameters import check_value, decode
from sparsevae.storage.codec import damaged, line_of, reading
from sparsevae.storage.folder import load_folder
from sparsevae.training.settings import Training

if TYPE_CHECKING:
    from sparsevae.estimator.coder import SparseCoder

_SPARE = 2**24  # numbers: what networks may take for themselves beside those that are stored, and copies of these
_SPARE_TENSORS = 500  # that many more than are stored may be made, and twice as many as are: layers are few


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _is_columns(value: Any) -> bool:
    """Whether it is a table as `History.columns` gives it: lists of one length, each headed by its name."""
    if not (isinstance(value, list) and all(isinstance(c, list) and c and isinstance(c[0], str) for c in value)):
        return False
    names, lengths = [c[0] for c in value], {len(c) for c in value}
    always = all(_are_numbers(c[1:], None if c[0] not in ("step", "epoch") else 0) for c in value)
    return always and len(lengths) <= 1 and len({*names}) == len(names) and (not names or {"step", "epoch"} <= {*names})


def _are_numbers(values: list[Any], gap: Any) -> bool:
    """Whether they are numbers, or `gap`."""
    return all(type(v) in (int, float) or v is gap for v in values)


_PLAIN: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "class": ("the name of a class", lambda v: isinstance(v, str)),
    "constructor": ("settings by name", lambda v: isinstance(v, dict)),
    "own_networks": ("encoder, decoder or none", lambda v: _is_names(v) and set(v) <= {"encoder", "decoder"}),
    "training": ("settings by name, or null", lambda v: isinstance(v, (dict, type(None)))),
    "text": ("settings by name, or null", lambda v: isinstance(v, (dict, type(None)))),
    "n_features_in": ("an integer above 0, or null for texts", lambda v: v is None or (_is_count(v) and v > 0)),
    "feature_names_in": ("a list of names, or null", lambda v: v is None or _is_names(v)),
    "settled": ("settings by name", lambda v: isinstance(v, dict)),
    "data_fingerprint": ("a string", lambda v: isinstance(v, str)),
    "n_steps": ("an integer, 0 or above", _is_count),
    "n_rows": ("an integer, 0 or above", _is_count),
    "history": ("columns of one length, each headed by its name, of numbers, step and epoch among them", _is_columns),
}
"""What a model folder says beside its tensors: in words, and whether a value is such a thing."""


class _Stored(Ration):
    """Refuses far more tensors than are stored, and of far more numbers, in all, before they take memory or time."""

    def __init__(self, path: str | Path, tensors: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.path, self.stored, self.n = path, sum(t.numel() for t in tensors.values()), len(tensors)
        self.left, self.tensors_left = 4 * self.stored + _SPARE, 2 * self.n + _SPARE_TENSORS

    def made(self, shape: tuple[int, ...]) -> None:
        self.left -= math.prod(shape)
        self.tensors_left -= 1
        if self.left < 0:
            expected = f"settings that fit its {self.stored:,} stored numbers"
            raise damaged(self.path, expected, f"some that make a tensor of shape {list(shape)}")
        if self.tensors_left < 0:
            expected = f"settings that fit its {self.n:,} stored tensors"
            raise damaged(self.path, expected, f"some that make over {2 * self.n + _SPARE_TENSORS:,}")


def below(tensors: Mapping[str, Tensor], part: str) -> dict[str, Tensor]:
    """The tensors of one part of a stored model, by their names within it."""
    return {k.removeprefix(part): v for k, v in tensors.items() if k.startswith(part)}


def fill(module: nn.Module, tensors: Mapping[str, Tensor], path: str | Path) -> None:
    """Give a module its stored weights; where they do not fit, the first that does not is named, with their folder."""
    try:
        module.load_state_dict(tensors)
    except RuntimeError as error:
        shapes = [{k: list(v.shape) for k, v in each.items()} for each in (module.state_dict(), tensors)]
        wrong = [k for k in sorted({*shapes[0], *shapes[1]}) if shapes[0].get(k) != shapes[1].get(k)]
        own, stored = (each.get(wrong[0], "missing") if wrong else "" for each in shapes)
        found = f"{wrong[0]!r} is {own} in the model and {stored} in the file" if wrong else line_of(error)
        advice = "restore the folder from a copy, or pass the networks it was fitted with"
        raise StorageError(f"{path}: the stored weights do not fit this model: {found}; {advice}") from None


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
    tensors, meta = load_folder(path)
    if "second_stage" in meta:
        warn_caller(f"{path} holds a second stage as earlier versions saved it, which is left out: fit it anew.")
    own = {"encoder": encoder, "decoder": decoder}
    if cls is not None or any(given is not None for given in own.values()):
        return _revive(path, tensors, meta, own, cls)  # what was passed may be at fault
    with reading(path, "settings that make a model"):
        try:
            return _revive(path, tensors, meta, own, None)
        except (KeyError, TypeError) as error:
            problem = f"{path} holds settings that this version of sparsevae does not know ({line_of(error)})"
            raise StorageError(f"{problem}; upgrade to load it.") from error


def _revive(
    path: str | Path,
    tensors: Mapping[str, Tensor],
    meta: Mapping[str, Any],
    own: dict[str, Any],
    cls: type[SparseCoder] | None,
) -> SparseCoder:
    _check(path, meta)
    classes = known() if cls is None else {cls.__name__: cls}
    if meta["class"] not in classes:
        raise StorageError(f"{path} holds a {meta['class']}; known classes: {', '.join(classes)}. Pass cls=.")
    missing = [k for k in meta["own_networks"] if own[k] is None]
    if missing:
        raise StorageError(f"{path} was fitted with your own {' and '.join(missing)}: pass them to load().")
    useless = [k for k, v in own.items() if v is not None and k not in meta["own_networks"]]
    if useless:
        raise StorageError(f"{path} was not fitted with your own {' and '.join(useless)}: load it without.")
    training = None if meta["training"] is None else Training(**decode(meta["training"])).portable()
    text = None if meta.get("text") is None else Text.from_plain(meta["text"])
    constructor = {k: decode(v) for k, v in meta["constructor"].items()}
    found = classes[meta["class"]]
    own = own | {"text": text, "training": training}
    given = {k: v for k, v in own.items() if k in {f.name for f in fields(found)}}  # a counter has no decoder
    est = found(**constructor, **given)
    _check_settings(est, meta.get("settled", {}))
    with _Stored(path, tensors):
        return est._restore(path, tensors, meta)


def _check_settings(est: SparseCoder, chosen: Mapping[str, Any]) -> None:
    """Refuse settings that `fit` would refuse, whether the user gave them or the data settled them."""
    check_value("hidden", hidden := chosen.get("hidden", est.hidden or []), tuple[int, ...], [POSITIVE])
    if est.hidden is not None and list(est.hidden) != list(hidden):
        raise ValueError(f"hidden={reprlib.repr(est.hidden)} with networks of {reprlib.repr(hidden)}")
    defaults = {k: v for k, v in chosen.get("usual", {}).items() if getattr(est, k) is None}
    type(est)(**est.get_params(deep=False) | {"training": None} | defaults).check()
    if est.training is not None:
        est.training.validate()


def _check(path: str | Path, meta: Mapping[str, Any]) -> None:
    """Refuse what `save` never wrote, as far as its form tells; what is missing shows when it is asked for."""
    for name, (expected, legal) in _PLAIN.items():
        if name in meta and not legal(meta[name]):
            raise damaged(path, f"{name} to be {expected}", reprlib.repr(meta[name]))
    names, n = meta.get("feature_names_in"), meta.get("n_features_in")
    if names is not None and len(names) != n:
        raise damaged(path, f"names of {n} columns", f"{len(names)}: {reprlib.repr(names)}")
