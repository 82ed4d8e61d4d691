"""Save a fitted estimator to a folder and load it: class, constructor arguments, weights.

A checksum detects accidental changes, not those with a recomputed checksum. So stored values are checked before they
are used: types and ranges here, sizes of networks against the tensors in the file.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from sparsevae.checks import POSITIVE
from sparsevae.estimator.fitted import UNSET, Fitted
from sparsevae.estimator.learning import hidden_of, plain, training_for
from sparsevae.estimator.registry import known
from sparsevae.exceptions import StorageError
from sparsevae.inputs.arrays import Arrays
from sparsevae.inputs.texts import Text, Texts
from sparsevae.networks.ration import Ration
from sparsevae.parameters import check_value
from sparsevae.storage.codec import damaged, decode, line_of, reading
from sparsevae.storage.folder import load_folder, save_folder
from sparsevae.storage.format_1 import to_format_2
from sparsevae.storage.record import part_of
from sparsevae.threads import ordinary
from sparsevae.training.history import History
from sparsevae.training.knobs import passing
from sparsevae.training.settings import Training

if TYPE_CHECKING:
    from sparsevae.estimator.coder import SparseCoder

_SPARE = 2**24  # numbers that building a model may allocate beyond four copies of those stored
_SPARE_TENSORS = 500  # tensors that building may allocate beyond twice the number of those stored
_LEFT_OPEN = ("steps", "batch_size", "learning_rate", "early_stopping", "validation_fraction", "patience")
"""Training settings with data-dependent defaults."""
_INPUTS: dict[str, type[Arrays | Texts]] = {"numbers": Arrays, "texts": Texts}

E = TypeVar("E", bound="SparseCoder")


# -- save -----------------------------------------------------------------------------------------------------------


def save(est: SparseCoder, path: str | Path) -> None:
    """Write a fitted estimator as a model folder."""
    check_is_fitted(est)
    est.training_settings().validate()  # they may have been set since `fit`; what is saved must load
    save_folder(path, *stored(est))


def stored(est: SparseCoder) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors by name, and values that `codec.encode` accepts."""
    own = est.fitted_
    of_input, kind = own.input.stored()
    names = getattr(est, "feature_names_in_", None)
    labels = {name: getattr(est, name) for name in est.learned}
    gain = {} if own.gain is None else {"gain": own.gain}
    return {f"model.{k}": v for k, v in own.model.state_dict().items()} | of_input | gain, {
        "class": type(est).__name__,
        **{k: decode(v) for k, v in own.built.items()},
        "training": None if est.training is None else est.training.portable().get_params(),
        "chosen": {
            "hidden": own.hidden,
            "defaults": own.defaults,
            "training": {k: getattr(own.training, k) for k in _LEFT_OPEN},
        },
        "input": {
            "kind": own.input.kind,
            "feature_names": None if names is None else [str(name) for name in names],
            **kind,
        },
        "run": {
            "fingerprint": own.fingerprint,
            "n_steps": own.n_steps,
            "n_rows": own.n_rows,
            "history": own.history.columns(),
            "knobs": {name: float(value) for name, value in passing(own.model).items()},
        },
        **({"labels": labels} if labels else {}),
    }


# -- checks of stored values ------------------------------------------------------------------------------------


Check = tuple[str, Callable[[Any], bool]]  # the expected value in words, and a test of it


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _is_knobs(value: Any) -> bool:
    return isinstance(value, dict) and all(type(v) is float and 0 <= v < math.inf for v in value.values())


def _is_columns(value: Any) -> bool:
    """True for a table as `History.columns` returns it: lists [name, value, ...] of one length."""
    if not (isinstance(value, list) and all(isinstance(c, list) and c and isinstance(c[0], str) for c in value)):
        return False
    names = [name for name, *_ in value]
    for name, *values in value:
        missing = () if name in ("step", "epoch") else (type(None),)
        if not {type(v) for v in values} <= {int, float, *missing}:
            return False
    distinct = len(set(names)) == len(names) and len({len(c) for c in value}) <= 1
    return distinct and (not names or {"step", "epoch"} <= set(names))


def _or_null(check: Check) -> Check:
    expected, legal = check
    return f"{expected}, or null", lambda value: value is None or legal(value)


_COUNT: Check = ("an integer, 0 or above", _is_count)
_ABOVE_0: Check = ("an integer above 0", lambda v: _is_count(v) and v > 0)
_SIZE: Check = ("an integer from 1 to 2 ** 31", lambda v: _is_count(v) and 0 < v <= 2**31)
_FLAG: Check = ("true or false", lambda v: isinstance(v, bool))
_NAMES: Check = ("a list of names", _is_names)
_SETTINGS: Check = ("settings by name", lambda v: isinstance(v, dict))
_COLUMNS: Check = ("columns of one length, each a name and numbers, step and epoch among them", _is_columns)
_EXPECTED: dict[str, Check] = {
    "class": ("the name of a class", lambda v: isinstance(v, str)),
    "own_networks": ("encoder, decoder or none", lambda v: _is_names(v) and set(v) <= {"encoder", "decoder"}),
    **dict.fromkeys(("constructor", "chosen", "chosen.training", "input", "labels", "run"), _SETTINGS),
    **dict.fromkeys(("training", "text", "chosen.defaults"), _or_null(_SETTINGS)),
    "input.kind": ("numbers or texts", lambda v: isinstance(v, str) and v in _INPUTS),
    "input.n_features": _ABOVE_0,
    "input.feature_names": _or_null(_NAMES),
    "run.fingerprint": ("a string", lambda v: isinstance(v, str)),
    **dict.fromkeys(("run.n_steps", "run.n_rows"), _COUNT),
    "run.history": _COLUMNS,
    "run.knobs": ("numbers above 0, or 0, by name", _is_knobs),
    **dict.fromkeys(("labels.n_labels_", "labels.cap_", "labels.max_labels_"), _SIZE),
    **dict.fromkeys(("labels.single_", "labels.sparse_"), _FLAG),
    "labels.label_names_": _NAMES,
    "labels.classes_": ("an array", lambda v: isinstance(v, np.ndarray)),
    "labels.mean_": ("an array of numbers", lambda v: isinstance(v, np.ndarray) and v.dtype.kind == "f"),
    "labels.threshold_": ("a number in [0, 1)", lambda v: isinstance(v, (int, float)) and 0 <= v < 1),
}
"""Checks of the values in a model folder, by key. A missing key raises KeyError where it is used."""

_COUNTED = {
    "input.n_features": ("input.feature_names",),
    "labels.n_labels_": ("labels.label_names_", "labels.classes_", "labels.mean_"),
}
"""Keys of counts, and keys of the lists of that length."""


def _check(path: str | Path, meta: Mapping[str, Any]) -> None:
    """Refuse values of types, ranges or lengths that `save` never writes."""
    found: dict[str, Any] = {}
    for name, (expected, legal) in _EXPECTED.items():
        part, _, key = name.rpartition(".")
        values = meta.get(part, {}) if part else meta
        if key in values:
            found[name] = values[key]
            if not legal(values[key]):
                raise damaged(path, f"{name} to be {expected}", reprlib.repr(values[key]))
    for count, lists in _COUNTED.items():
        for name in lists:
            if found.get(name) is not None and len(found[name]) != found.get(count):
                expected = f"{name} to be {found.get(count)} values"
                raise damaged(path, expected, f"{len(found[name])}: {reprlib.repr(found[name])}")


def _check_settings(est: SparseCoder, chosen: Mapping[str, Any]) -> None:
    """Refuse settings that `fit` would refuse, given or chosen by the data."""
    hidden = est.hidden or [] if chosen["hidden"] is None else chosen["hidden"]
    check_value("hidden", hidden, tuple[int, ...], [POSITIVE])
    if est.hidden is not None and list(est.hidden) != list(hidden):
        raise ValueError(f"hidden={reprlib.repr(est.hidden)} with networks of {reprlib.repr(hidden)}")
    defaults = {k: v for k, v in (chosen["defaults"] or {}).items() if getattr(est, k) is None}
    type(est)(**est.get_params(deep=False) | {"training": None} | defaults).check()
    if est.training is not None:
        est.training.validate()


class _Stored(Ration):
    """Refuse, before memory is allocated, settings that make far more tensors or numbers than are stored."""

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


def _fill(module: nn.Module, tensors: Mapping[str, Tensor], path: str | Path) -> None:
    """Load stored weights into a module; the error names the first that does not fit, and the folder."""
    try:
        module.load_state_dict(tensors)
    except RuntimeError as error:
        shapes = [{k: list(v.shape) for k, v in each.items()} for each in (module.state_dict(), tensors)]
        wrong = [k for k in sorted({*shapes[0], *shapes[1]}) if shapes[0].get(k) != shapes[1].get(k)]
        own, stored = (each.get(wrong[0], "missing") if wrong else "" for each in shapes)
        found = f"{wrong[0]!r} is {own} in the model and {stored} in the file" if wrong else line_of(error)
        advice = "restore the folder from a copy, or pass the networks it was fitted with"
        raise StorageError(f"{path}: the stored weights do not fit this model: {found}; {advice}") from None


# -- load -----------------------------------------------------------------------------------------------------------


def load(
    path: str | Path,
    *,
    encoder: nn.Module | None = None,
    decoder: nn.Module | None = None,
    cls: type[SparseCoder] | None = None,
) -> Any:
    """Load a fitted estimator from a folder written by `save`, on the CPU. No stored code is run.

    For a model with your own `encoder` or `decoder` pass these modules (their weights are loaded), for one of your own
    classes pass `cls`.
    """
    tensors, meta = load_folder(path, upgrade=partial(to_format_2, path=path))
    own = {"encoder": encoder, "decoder": decoder}
    if cls is not None or any(given is not None for given in own.values()):
        return _revive(path, tensors, meta, own, cls)  # an error may be caused by an argument
    with reading(path, "settings that make a model"):
        try:
            return _revive(path, tensors, meta, own, None)
        except (KeyError, TypeError) as error:
            problem = f"{path} holds settings that this version of sparsevae does not know ({line_of(error)})"
            raise StorageError(f"{problem}; upgrade to load it.") from error


def _training(stored: Mapping[str, Any]) -> Training:
    """Stored settings; where they do not know `early_stopping`, a run stopped early if it had a patience."""
    return Training(**{"early_stopping": stored.get("patience") is not None} | dict(stored))


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
    found = classes[meta["class"]]
    text = None if meta["text"] is None else Text(**meta["text"])
    training = None if meta["training"] is None else _training(meta["training"]).portable()
    given = own | {"text": text, "training": training}
    names = {f.name for f in fields(found)}  # a counter has no decoder
    est = found(**meta["constructor"], **{k: v for k, v in given.items() if k in names})
    _check_settings(est, meta["chosen"])
    with _Stored(path, tensors):
        return restored(est, tensors, meta, path)


@ordinary()
def restored(est: E, tensors: Mapping[str, Tensor], meta: Mapping[str, Any], path: str | Path) -> E:
    """Give an unfitted estimator the state that `stored` returned as `tensors` and `meta`."""
    kind, chosen, run = meta["input"], meta["chosen"], meta["run"]
    for name in est.learned:
        setattr(est, name, meta["labels"][name])
    if "n_features" in kind:
        est.n_features_in_ = kind["n_features"]
    if kind["feature_names"] is not None:
        est.feature_names_in_ = np.array(kind["feature_names"], dtype=object)
    data = _INPUTS[kind["kind"]].restored(kind)
    hidden = hidden_of(est, data) if chosen["hidden"] is None else tuple(chosen["hidden"])
    defaults = chosen["defaults"]
    if defaults is None:  # format 1, which has none of the arguments in UNSET
        defaults = {**est.defaults_for(data.kind, run["n_rows"]), **UNSET}
    filled = {k: chosen["training"][k] for k in _LEFT_OPEN if k in chosen["training"]}
    known = est.training_settings().get_params(deep=False)
    training = training_for(data, Training(**known | filled), run["n_rows"])
    history = History.from_columns(run["history"])
    est.fitted_ = own = Fitted(
        est, data, training, hidden, dict(defaults), run["fingerprint"], run["n_steps"], run["n_rows"], history
    )
    own.model, own.built = est.build(own.data, None).model.eval(), plain(est)
    for part, module in (("model.", own.model), ("scaling.", data.prepare)):
        _fill(module, part_of(tensors, part), path)
    data.check_restored()
    own_knobs = passing(own.model)
    for name, value in run.get("knobs", {}).items():  # older models have none
        if name in own_knobs:
            own_knobs[name].fill_(value)
    own.gain = tensors.get("gain")  # older models have none
    if own.gain is not None and not (own.gain.shape == (own.n_units,) and bool((own.gain >= 0).all())):
        raise damaged(path, f"gain to be {own.n_units} numbers, 0 or above", reprlib.repr(own.gain.tolist()))
    return est
