"""Claims: what is saved comes back as it was, old folders stay readable, damage is named, and loading runs no code.

The folders in tests/saved were made by tests/saved/make.py and are kept: future versions must read them.
"""

from __future__ import annotations

import builtins
import functools
import json
import math
import pickle
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import sparsevae as sv
from sparsevae.exceptions import StorageError
from sparsevae.models import known
from sparsevae.parameters import parameters
from sparsevae.storage import folder as storage
from sparsevae.storage import record
from sparsevae.storage.codec import decode, encode
from sparsevae.storage.record import FORMAT_VERSION, canonical, sha256

pytestmark = pytest.mark.filterwarnings("ignore::sparsevae.exceptions.SparsityWarning")
SAVED = Path(__file__).parents[1] / "saved"
MAKE = runpy.run_path(str(SAVED / "make.py"))
ANSWERS = MAKE["ANSWERS"]
rng = np.random.default_rng(0)
X = (rng.normal(size=(80, 3)) @ rng.normal(size=(3, 7)) + 0.1 * rng.normal(size=(80, 7))).astype(np.float32)
BINARY = (X > 0).astype(np.uint8)


def make(cls: Any = sv.VSC, *, training: dict[str, Any] | None = None, **changes: Any) -> Any:
    chosen = sv.Training(**{"steps": 30, "learning_rate": 1e-2, "verbose": 0} | (training or {}))
    more = {"alpha": 0.3, "gate": "sigmoid"} if cls is sv.VSC else {}
    return cls(**{"n_components": 4, "hidden": (6,), "training": chosen} | more | changes)


def dense(Z: Any) -> np.ndarray:
    return Z.toarray() if hasattr(Z, "toarray") else np.asarray(Z)


def same(a: Any, b: Any, data: np.ndarray) -> None:
    """Two estimators are one: codes, scores, samples and reconstructions, to the last bit."""
    codes = dense(a.transform(data))
    assert np.array_equal(codes, dense(b.transform(data)))
    assert np.array_equal(a.score_samples(data), b.score_samples(data))
    assert np.array_equal(a.sample(3, seed=5, noise=True), b.sample(3, seed=5, noise=True))
    row = data[codes.any(1).argmax()]  # with a unit on
    assert np.array_equal(a.sample_like(row, 3), b.sample_like(row, 3))
    assert np.array_equal(a.inverse_transform(a.transform(data)), b.inverse_transform(b.transform(data)))
    assert a.score_meaning(data) == b.score_meaning(data)


# Kept folders.


KEPT = sorted(p for p in SAVED.iterdir() if (p / "model.json").exists())


@pytest.mark.parametrize("name", [p.name for p in KEPT])
def test_a_kept_folder_gives_the_answers_stored_beside_it(name: str) -> None:
    est = sv.load(SAVED / name)
    answers = {p.stem: np.load(p) for p in (SAVED / name).glob("*.npy")}
    X, y = answers.pop("X"), answers.pop("y", None)
    codes = dense(est.transform(X))
    assert codes.any()
    assert np.array_equal(codes != 0, answers["codes"] != 0)
    for answer, method in ANSWERS.items():
        assert hasattr(est, method) == (answer in answers)
    asked = {k: dense(getattr(est, ANSWERS[k])(X)) for k in answers if k in ANSWERS}
    if hasattr(est, "inverse_transform"):
        asked["reconstructions"] = np.asarray(est.inverse_transform(codes))
    assert asked.keys() == answers.keys()
    for answer, stored in answers.items():
        if stored.dtype.kind in "fc":
            np.testing.assert_allclose(asked[answer], stored, rtol=1e-4, atol=1e-3 if answer != "codes" else 1e-4)
        else:
            assert np.array_equal(asked[answer], stored), answer
    more = est.partial_fit(X) if y is None else est.partial_fit(X, y)
    assert np.isfinite(dense(more.transform(X))).all()


OF_FORMAT_1 = (  # the classes that there were when format 2 came: no later one has a folder of format 1
    *("HSVAE", "MAT", "SDLGM", "VAE", "VSC", "BetaTCVAE", "BetaVAE", "CapacityVAE", "CodeClassifier", "DiscreteVAE"),
    *("PseudoVSC", "SDLGMClassifier", "SDLGMCounter"),
)


@pytest.mark.parametrize("version", [1, 2])
def test_one_model_of_every_class_is_kept_in_either_format(version: int) -> None:
    kept = [folder for folder in KEPT if folder.name.startswith(f"v{version}-")]
    assert {json.loads((folder / "model.json").read_text())["format_version"] for folder in kept} == {version}
    wanted = OF_FORMAT_1 if version == 1 else known()
    assert {type(sv.load(folder)).__name__ for folder in kept} == set(wanted)


def of_format_1(plain: Any) -> Any:
    """A stored argument of format 1."""
    if not isinstance(plain, dict):
        return plain
    ((kind, content),) = [(k, v) for k, v in plain.items() if k != "fields"]
    if kind == "schedule":
        return getattr(sv, content)(**plain["fields"])
    return tuple(content) if kind == "tuple" else {k: of_format_1(v) for k, v in content.items()}


@pytest.mark.parametrize("name", [p.name for p in KEPT if p.name.startswith("v1-")])
def test_a_model_of_format_1_is_the_same_in_format_2(name: str, tmp_path: Path) -> None:
    """To the last bit; what its file says is read again by another reader of JSON, and looked up by its old key."""
    est, rows = sv.load(SAVED / name), np.load(SAVED / name / "X.npy")
    est.save(tmp_path)
    old, meta = storage.load_folder(SAVED / name)
    new, stored = storage.load_folder(tmp_path)
    assert json.loads((tmp_path / "model.json").read_text())["format_version"] == 2
    assert old.keys() == new.keys()
    assert all(torch.equal(old[k], new[k]) and old[k].dtype == new[k].dtype for k in old)
    assert np.array_equal(dense(est.transform(rows)), dense(sv.load(tmp_path).transform(rows)))
    assert (stored["class"], stored["own_networks"]) == (meta["class"], meta["own_networks"])
    assert (stored["run"]["n_steps"], stored["run"]["n_rows"]) == (meta["n_steps"], meta.get("n_rows", 0))
    assert (stored["run"]["history"], stored["run"]["fingerprint"]) == (meta["history"], meta["data_fingerprint"])
    assert stored["input"].get("n_features") == meta["n_features_in"]
    assert stored["input"].get("likelihood", "tokens") == meta["likelihood"]
    assert stored["input"].get("scaling") == meta["scaling"]
    if "settled" in meta:
        expected = {"hidden": tuple(meta["settled"].pop("hidden")), "defaults": meta["settled"].pop("usual")}
        length = {k: stored["chosen"]["training"].pop(k) for k in ("early_stopping", "validation_fraction", "patience")}
        assert length["early_stopping"] == (length["patience"] is not None)
        assert stored["chosen"] == expected | {"training": meta["settled"]}
    for old_values, new_values in (
        (meta["constructor"], stored["constructor"]),
        (meta["training"]["dict"], stored["training"]),
    ):
        assert {k: new_values[k] for k in old_values} == {k: of_format_1(v) for k, v in old_values.items()}
    if "texts" in meta:
        words = sv.Vocabulary(**meta["texts"].pop("vocabulary"))
        assert stored["input"]["text"] == meta["texts"] | {"vocabulary": words}
        assert stored["text"] == meta["text"]
    labels = {k: v["values"] if isinstance(v, dict) else v for k, v in meta.get("labels", {}).items()}
    assert {k: v.tolist() if hasattr(v, "tolist") else v for k, v in stored.get("labels", {}).items()} == labels


@pytest.mark.parametrize(("name", "gate"), [("v1-vsc", "sigmoid"), ("v2-vsc", None)])
def test_the_kept_vsc_is_the_one_that_was_made(name: str, gate: str | None) -> None:
    est = sv.load(SAVED / name)
    assert isinstance(est, sv.VSC)
    assert est.get_params(deep=False) | {"training": None} == sv.VSC(
        5, hidden=(6,), alpha=0.25, gate=gate, variance_floor=0.02
    ).get_params(deep=False)
    assert est.training.schedules == {"sharpness": sv.Linear(50.0, 100.0, end=0.5)}
    assert (est.training.steps, est.training.seed, est.training.kl_warmup) == (400, 3, 0.5)
    assert est.history_.column("step") == [200, 400]
    assert est.n_steps_ == 400
    assert est.n_features_in_ == 7
    assert est.likelihood_ == "gaussian"
    assert sum(p.stat().st_size for p in (SAVED / name).iterdir()) < 40_000  # it lives in the repository


# Round trips.


READ = """
import sys
import numpy as np
import sparsevae as sv
for folder in sys.argv[1:]:
    codes = sv.load(folder).transform(np.load(f"{folder}/X.npy"))
    np.save(f"{folder}/read.npy", codes.toarray() if hasattr(codes, "toarray") else codes)
"""


def test_a_new_process_reads_a_model_and_gives_its_codes_to_the_last_bit(tmp_path: Path) -> None:
    codes = {}
    for name in ("vsc", "hsvae-texts", "pseudo-vsc", "sdlgm-classifier", "capacity-vae"):
        est, X, y = MAKE["build"](f"v2-{name}")
        est.set_params(training__steps=20)
        est.fit(X) if y is None else est.fit(X, y)
        est.save(folder := tmp_path / name)
        np.save(folder / "X.npy", X)
        codes[folder] = dense(est.transform(X))
    command = [sys.executable, "-c", READ, *map(str, codes)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=SAVED.parents[1])
    assert done.returncode == 0, done.stderr
    for folder, expected in codes.items():
        assert np.array_equal(np.load(folder / "read.npy"), expected)


@pytest.mark.parametrize("cls", [sv.VAE, sv.BetaVAE, sv.VSC])
@pytest.mark.parametrize(
    ("settings", "data"),
    [
        ({}, X),
        ({}, BINARY),
        ({}, BINARY * np.uint8(255)),
        ({"likelihood": "fixed-gaussian", "variance": 0.3}, X),
        ({"scale": "unit-norm"}, X),
        ({"scale": "none", "variance_floor": 0.5}, X),
        ({"hidden": ()}, X),
        ({"hidden": [5, 4]}, X),
    ],
    ids=["gaussian", "bernoulli", "0-255", "fixed", "unit-norm", "none", "no-hidden", "list"],
)
def test_a_saved_model_comes_back_as_it_was(cls: Any, settings: Any, data: np.ndarray, tmp_path: Path) -> None:
    est = make(cls, **settings).fit(data)
    est.save(tmp_path / "a")
    again = sv.load(tmp_path / "a")
    assert type(again) is cls
    same(est, again, data)
    assert again.history_ == est.history_
    mine, theirs = est.get_params(), again.get_params()
    for gone in ("training", "training__verbose"):
        del mine[gone], theirs[gone]
    assert mine == theirs
    assert type(again.hidden) is type(est.hidden)
    again.training.verbose = est.training.verbose
    again.save(tmp_path / "b")
    files = [{p.name: p.read_bytes() for p in (tmp_path / f).iterdir()} for f in "ab"]
    assert files[0] == files[1]  # saving what was loaded changes no byte
    assert np.isfinite(again.partial_fit(data).score(data))


def test_gates_are_as_sharp_as_training_left_them(tmp_path: Path) -> None:
    """What takes relaxed draws of a loaded model is then the same: a better code, and the relaxed objective."""
    est = sv.VSC(5, gate="sigmoid", sharpness=(3.0, 90.0), training=sv.Training(steps=40, verbose=0)).fit(X)
    est.save(tmp_path)
    again = sv.load(tmp_path)
    assert float(again.model_.posterior.gate.sharpness) == float(est.model_.posterior.gate.sharpness) > 80
    assert np.array_equal(again.relaxed_objective(X), est.relaxed_objective(X))
    assert np.array_equal(dense(again.transform(X, refine=3)), dense(est.transform(X, refine=3)))


def test_training_none_and_names_come_back(tmp_path: Path) -> None:
    est = make().fit(pd.DataFrame(X, columns=list("abcdefg")))
    est.training = None
    est.save(tmp_path)
    again = sv.load(tmp_path)
    assert again.training is None
    assert list(again.feature_names_in_) == list("abcdefg")
    assert list(again.get_feature_names_out()) == ["vsc0", "vsc1", "vsc2", "vsc3"]
    with pytest.raises(ValueError, match="feature names should match"):
        again.transform(pd.DataFrame(X, columns=list("gfedcba")))


SCHEDULES = {
    "kl_z": sv.Cyclical(0.0, 1.0, cycles=3, ramp=0.25),
    "sharpness": sv.Cosine(10.0, 90.0, begin=5, end=0.5),
}


def test_a_stored_run_stays_what_it_was_where_it_stopped_early(tmp_path: Path) -> None:
    """What "auto" came to is stored; settings that are older than the field stopped early if they had a patience."""
    est = sv.VAE(2, hidden=(6,), training=sv.Training(patience=1, verbose=0)).fit(X)
    est.save(tmp_path / "own")
    again = sv.load(tmp_path / "own")
    assert again.training_.get_params() == est.training_.portable().get_params()
    assert (again.training_.early_stopping, again.training_.held_out(80), again.n_rows_) == (True, 12, 68)
    assert again.partial_fit(X).n_rows_ == 80  # one more pass is over all rows
    older = [sv.load(path) for path in KEPT]
    assert {est.training.early_stopping for est in older if est.training} <= {True, False}
    assert all(est.training_.early_stopping == (est.training_.patience is not None) for est in older)


def test_every_kind_of_setting_comes_back(tmp_path: Path) -> None:
    settings = {
        "schedules": SCHEDULES,
        "decay": "step",
        "decay_at": 7,
        "kl_warmup": 0.5,
        "clip_norm": None,
        "folder": str(tmp_path / "run"),
        "device": "cpu",
    }
    est = make(sharpness=(20.0, 30.0), training=settings).fit(X)
    est.save(tmp_path / "m")
    again = sv.load(tmp_path / "m")
    assert again.sharpness == (20.0, 30.0)
    assert again.training.schedules == SCHEDULES
    assert type(again.training.decay_at) is int  # a step, not a share
    assert again.training.folder is None  # a copy runs anywhere
    same(est, again, X)
    refitted = again.set_params(training__verbose=0).fit(X)
    same(est, refitted, X)  # the constructor is the whole recipe


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        3,
        0.5,
        "word",
        (1, 2.5, (3,)),
        [1, (2,), []],
        {"a": (1,), "b": {"c": [None]}},
        {"tuple": (1, 2)},
        {"$tuple": (1, 2)},
        {"$": 1, "$$float": {"$float": "nan"}},
        {"$Constant": {"value": (math.inf, -math.inf)}},
        sv.Vocabulary(("cat", "_UNK")),
        {"text": {"vocabulary": sv.Vocabulary(("a", "_UNK"), "space")}},
        sv.Constant(1.0),
        sv.Linear(0.0, 1.0, begin=3, end=0.5),
        sv.Cosine(1.0),
        sv.Step(1.0, 0.1, at=7),
        sv.Cyclical(0.0, 1.0),
    ],
)
def test_plain_forms_are_exact(value: Any) -> None:
    plain = encode(value, "value")
    assert decode(json.loads(json.dumps(plain, allow_nan=False))) == value
    assert type(decode(plain)) is type(value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [(np.float32(0.5), 0.5), (np.int64(3), 3), (np.bool_(True), True), (np.array(2.5), 2.5), (Path("a") / "b", "a/b")],
    ids=repr,
)
def test_scalars_of_numpy_and_paths_become_plain_values(value: Any, expected: Any) -> None:
    assert encode({"x": [value]}, "value") == {"x": [expected]}
    assert type(encode(value, "value")) is type(expected)


@pytest.mark.parametrize(
    "values",
    [
        np.array([3, -1, 2**62]),
        np.array([0.1, np.nan, np.inf, -0.0], np.float32),
        np.array([True, False]),
        np.array(["a", "long word"]),
        np.array(["a", 1, None, 2.5], object),
        np.array([], np.int8),
        np.array([255], np.uint8),
    ],
    ids=repr,
)
def test_arrays_come_back_with_their_type(values: np.ndarray) -> None:
    again = decode(json.loads(json.dumps(encode({"x": values}, "value"), allow_nan=False)))["x"]
    assert again.dtype == values.dtype
    np.testing.assert_array_equal(again, values)
    if values.dtype.kind == "f":
        assert np.array_equal(np.signbit(again), np.signbit(values))


def test_what_has_no_plain_form_is_named() -> None:
    dates, table = np.array(["2020-01-01"], "datetime64[D]"), np.ones((0, 3))
    pairs = np.empty(2, object)
    pairs[:] = [(1, 2), (3, 4)]
    for value in (lambda step, total: 1.0, object(), {1, 2}, nn.ReLU(), np.array([1j]), dates, table, pairs):
        with pytest.raises(TypeError, match=r"training\.x\[0\] holds a \w+, which cannot be stored"):
            encode({"x": [value]}, "training")


@pytest.mark.parametrize(
    "plain",
    [
        {"$Sawtooth": {}},
        {"$": 1},
        {"$float": "1.5"},
        {"$float": []},
        {"$tuple": None},
        {"$Linear": {"start": 0.0}},
        {"$Linear": [0.0, 1.0]},
        {"$Vocabulary": {"words": ["cat"]}},
        {"$array": {"dtype": "<i8"}},
        {"$array": {"dtype": "<i8", "values": [10**400]}},
        {"$array": {"dtype": "<i8", "values": [[1], [2]]}},
        {"$array": {"dtype": "<i8", "values": "ab"}},
        {"$array": {"dtype": "<U99999999", "values": ["a", "b", "c"]}},
        {"$array": {"dtype": "U", "values": ["a" * 1000] * 1000}},  # a type without a size: numpy would choose one
        {"$array": {"dtype": "M8[D]", "values": [1]}},
        {"$array": {"dtype": "i4,i4", "values": [1]}},
    ],
    ids=lambda plain: str(plain)[:60],
)
def test_forms_that_nothing_has_are_refused(plain: Any, tmp_path: Path) -> None:
    storage.save_folder(tmp_path, {}, {"x": "here"})
    forge_json(tmp_path, lambda stored: stored["meta"].update(x=plain))
    with pytest.raises(StorageError, match=r"model\.json is incomplete or was changed: expected values that sparsevae"):
        storage.load_folder(tmp_path)


def test_a_model_is_replaced_as_a_whole_and_foreign_folders_are_left_alone(tmp_path: Path) -> None:
    one, two = make().fit(X), make(training={"seed": 1}).fit(X)
    one.save(tmp_path / "m")
    two.save(tmp_path / "m")
    same(sv.load(tmp_path / "m"), two, X)
    assert len(list((tmp_path / "m").iterdir())) == 2
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.png").write_bytes(b"meow")
    with pytest.raises(StorageError, match="not from sparsevae and not empty"):
        one.save(tmp_path / "photos")


def test_a_model_may_be_saved_into_its_run_folder(tmp_path: Path) -> None:
    est = make(training={"folder": str(tmp_path)}).fit(X)
    est.save(tmp_path)
    same(sv.load(tmp_path), est, X)


def test_a_model_for_another_device_loads_on_this_one(tmp_path: Path) -> None:
    est = make().fit(X)
    est.training.device = "cuda:7"
    est.save(tmp_path)
    again = sv.load(tmp_path)
    again.training.device = est.training.device = "cpu"
    same(est, again, X)


def test_training_settings_that_cannot_work_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    """By `save`, so that what is saved can be loaded; `load` refuses them too."""
    est = make().fit(X)
    est.save(tmp_path / "m")
    est.set_params(training__steps=-3)
    with pytest.raises(ValueError, match=r"training\.steps must be an integer above 0 or None, got -3"):
        est.save(tmp_path / "n")
    assert not (tmp_path / "n").exists()
    tensors, meta = storage.load_folder(tmp_path / "m")
    meta["training"]["steps"] = -3
    storage.save_folder(tmp_path / "m", tensors, meta)
    with pytest.raises(StorageError, match=r"training\.steps must be an integer above 0 or None, got -3"):
        sv.load(tmp_path / "m")


# The user's own parts.


def body(n_in: int, n_out: int = 6) -> nn.Module:
    return nn.Sequential(nn.Linear(n_in, n_out), nn.BatchNorm1d(n_out), nn.ReLU())


def test_networks_that_a_model_has_no_place_for_are_refused(tmp_path: Path) -> None:
    make().fit(X).save(tmp_path)
    with pytest.raises(StorageError, match="was not fitted with your own encoder: load it without"):
        sv.load(tmp_path, encoder=nn.Identity())


def test_own_networks_are_asked_for_and_filled(tmp_path: Path) -> None:
    with torch.random.fork_rng():
        est = make(encoder=body(7), decoder=body(4)).fit(X)
        est.save(tmp_path)
        with pytest.raises(StorageError, match=r"your own encoder and decoder: pass them to load\(\)"):
            sv.load(tmp_path)
        with pytest.raises(StorageError, match=r"your own decoder: pass them"):
            sv.load(tmp_path, encoder=body(7))
        again = sv.load(tmp_path, encoder=body(7), decoder=body(4))  # other weights: those of the file count
        same(est, again, X)
        with pytest.raises(StorageError, match="stored weights do not fit"):
            sv.load(tmp_path, encoder=body(7, 5), decoder=body(4))


@parameters
class Mine(sv.VSC):
    """A model of the user's own."""

    colour: Annotated[str, "Of no consequence."] = "red"


def test_an_own_class_is_asked_for(tmp_path: Path) -> None:
    est = make(Mine, colour="blue").fit(X)
    est.save(tmp_path)
    with pytest.raises(StorageError, match=r"holds a Mine; known classes: .*VAE, BetaVAE, VSC.*Pass cls="):
        sv.load(tmp_path)
    again = sv.load(tmp_path, cls=Mine)
    assert again.colour == "blue"
    same(est, again, X)


# Damage, and files from elsewhere.


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    target = tmp_path / "copy"
    shutil.copytree(SAVED / "v2-vsc", target)
    return target


def forge_json(folder: Path, change: Any) -> None:
    """Change a folder's model.json, whatever its format, and put its checksum right."""
    stored = json.loads((folder / "model.json").read_text())
    change(stored)
    del stored["sha256"]
    (folder / "model.json").write_text(json.dumps(stored | {"sha256": sha256(canonical(stored).encode())}))


@pytest.mark.parametrize("part", ["model.json", "safetensors"])
@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "gone"])
def test_damage_is_named(part: str, damage: str, copy: Path) -> None:
    (path,) = [p for p in copy.iterdir() if p.name.endswith(part)]
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes({"cut": path.read_bytes()[:-7], "flip": content, "empty": b""}[damage])
    with pytest.raises(StorageError, match=path.name):
        sv.load(copy)


def test_an_edited_setting_is_found(copy: Path) -> None:
    text = (copy / "model.json").read_text()
    assert '"alpha": 0.25' in text
    (copy / "model.json").write_text(text.replace('"alpha": 0.25', '"alpha": 0.75'))
    with pytest.raises(StorageError, match="incomplete or was changed"):
        sv.load(copy)


def test_a_newer_format_asks_for_an_upgrade(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(record, "FORMAT_VERSION", FORMAT_VERSION + 1)
        make().fit(X).save(tmp_path)
    with pytest.raises(StorageError, match=r"newer sparsevae.*upgrade"):
        sv.load(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"constructor": {"n_components": 5, "future": 1}},
        {"training": {"steps": 3, "momentum": 0.9}},
        {"text": {"language": "en"}},
        {"class": None},
    ],
)
def test_settings_of_a_later_version_ask_for_an_upgrade(change: dict[str, Any], copy: Path, tmp_path: Path) -> None:
    tensors, meta = storage.load_folder(copy)
    meta |= change
    if change.get("class", "") is None:
        del meta["class"]
    storage.save_folder(tmp_path / "later", tensors, meta)
    with pytest.raises(StorageError, match="does not know"):
        sv.load(tmp_path / "later")


@pytest.mark.parametrize("name", ["os.system", "Training", "SparseCoder", "../VSC", ""])
def test_a_class_name_is_only_looked_up_in_the_registry(name: str, copy: Path, tmp_path: Path) -> None:
    tensors, meta = storage.load_folder(copy)
    storage.save_folder(tmp_path / "forged", tensors, meta | {"class": name})
    with pytest.raises(StorageError, match=r"known classes: .*VAE, BetaVAE, VSC"):
        sv.load(tmp_path / "forged")


def test_weights_of_another_shape_are_refused(copy: Path, tmp_path: Path) -> None:
    tensors, meta = storage.load_folder(copy)
    for change in ({k: v for k, v in tensors.items() if "encoder" not in k}, tensors | {"model.more": torch.ones(2)}):
        storage.save_folder(tmp_path / "forged", change, meta)
        with pytest.raises(StorageError, match="do not fit"):
            sv.load(tmp_path / "forged")


def test_a_schedule_of_a_later_version_is_named(copy: Path) -> None:
    forge_json(copy, lambda stored: stored["meta"]["training"].update(schedules={"kl_z": {"$Sawtooth": {}}}))
    with pytest.raises(StorageError, match=r"a 'Sawtooth', which this version cannot read; a later one may"):
        sv.load(copy)


@pytest.mark.parametrize(("name", "value"), [("scale", 0.0), ("scale", -1.0), ("scale", math.nan), ("shift", math.inf)])
def test_a_scaling_that_no_data_have_is_refused(name: str, value: float, copy: Path, tmp_path: Path) -> None:
    tensors, meta = storage.load_folder(copy)
    change = {f"scaling.{name}": torch.full_like(tensors[f"scaling.{name}"], value)}
    storage.save_folder(tmp_path / "forged", tensors | change, meta)
    with pytest.raises(StorageError, match="a scaling's numbers must be finite, its scales above 0"):
        sv.load(tmp_path / "forged")


def forged(change: dict[str, Any], copy: Path) -> Path:
    """A kept folder where some settings were changed, with new checksums; "input.kind" is a key within "input"."""
    tensors, meta = storage.load_folder(copy)
    for name, value in change.items():
        *parts, key = name.split(".")
        functools.reduce(dict.__getitem__, parts, meta)[key] = value
    storage.save_folder(copy.with_name("forged"), tensors, meta)
    return copy.with_name("forged")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"input.n_features": -1}, "input.n_features to be an integer above 0, got -1"),
        ({"input.n_features": "x"}, "input.n_features to be .* got 'x'"),
        ({"input.n_features": 10**12}, "its 301 stored numbers, got some that make a tensor of shape .1000000000000."),
        ({"input.kind": "songs"}, "input.kind to be numbers or texts, got 'songs'"),
        ({"input.kind": ["texts"]}, "input.kind to be numbers or texts"),
        ({"input": None}, "input to be settings by name, got None"),
        (
            {"input.n_features": 8},
            r"do not fit this model: 'decoder.2.bias' is \[16\] in the model and \[14\] in the file",
        ),
        ({"constructor.n_components": 10**9}, "its 301 stored numbers, got some that make a tensor of shape"),
        ({"constructor.n_components": 10**18}, "its 301 stored numbers, got some that make a tensor"),
        (
            {"constructor.n_components": -3},
            "settings that make a model, got n_components must be an integer above 0 or None, got -3",
        ),
        (
            {"constructor.hidden": (10**9,), "chosen.hidden": (10**9,)},
            "stored numbers, got some that make a tensor of shape",
        ),
        ({"constructor.hidden": (10**9,)}, r"got hidden=\(1000000000,\) with networks of \(6,\)"),
        ({"constructor": []}, r"constructor to be settings by name, got \[\]"),
        ({"training": []}, r"training to be settings by name, or null, got \[\]"),
        ({"training": {"schedules": 3}}, "expected settings that make a model"),
        ({"chosen": 3}, "chosen to be settings by name, got 3"),
        ({"chosen.defaults": [1]}, r"chosen.defaults to be settings by name, or null, got \[1\]"),
        ({"chosen.training": (1,)}, "chosen.training to be settings by name"),
        ({"run": None}, "run to be settings by name, got None"),
        ({"run.n_steps": "x"}, "run.n_steps to be an integer, 0 or above, got 'x'"),
        ({"run.n_steps": -1}, "run.n_steps to be an integer, 0 or above, got -1"),
        ({"run.n_rows": 0.5}, "run.n_rows to be an integer, 0 or above"),
        ({"run.fingerprint": 3}, "run.fingerprint to be a string, got 3"),
        ({"input.feature_names": ["a", "b"]}, r"input.feature_names to be 7 values, got 2: \['a', 'b'\]"),
        ({"input.feature_names": list(range(7))}, "input.feature_names to be a list of names, or null"),
        ({"run.history": [["step", 1, 2], ["loss", 3.0]]}, "run.history to be columns of one length"),
        ({"run.history": [["step"], []]}, "run.history to be columns of one length"),
        (
            {"run.history": [["step", 1], ["epoch", "x"]]},
            "run.history to be columns of one length, each a name and numbers",
        ),
        (
            {"constructor.hidden": (1,) * 900, "chosen.hidden": (1,) * 900},
            r"stored tensors, got some that make over \d",
        ),
        ({"own_networks": "encoder"}, "own_networks to be encoder, decoder or none"),
        ({"class": ["VSC"]}, "class to be the name of a class"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_a_forged_setting_is_refused_in_one_line(change: dict[str, Any], message: str, copy: Path) -> None:
    """And before it costs memory: nothing here may ask for more than the few numbers that are stored."""
    path = forged(change, copy)
    with pytest.raises(StorageError, match=message) as refused:
        sv.load(path)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("cap_", 0, r"labels.cap_ to be an integer from 1 to 2 \*\* 31"),
        ("n_labels_", 10**10, r"labels.n_labels_ to be an integer from 1 to 2 \*\* 31"),
        ("single_", 1, "labels.single_ to be true or false"),
        ("threshold_", "x", r"labels.threshold_ to be a number in \[0, 1\)"),
        ("label_names_", ["a", 1, "c"], "labels.label_names_ to be a list of names"),
        ("label_names_", ["a", "c"], "labels.label_names_ to be 3 values"),
        ("classes_", np.array([0, 1]), "labels.classes_ to be 3 values"),
        ("classes_", [0, 1, 2], "labels.classes_ to be an array"),
        ("mean_", np.array([0, 1, 2]), "labels.mean_ to be an array of numbers"),
    ],
    ids=str,
)
def test_labels_that_no_model_learns_are_refused(name: str, value: Any, problem: str, tmp_path: Path) -> None:
    tensors, meta = storage.load_folder(SAVED / "v2-sdlgm-classifier")
    storage.save_folder(tmp_path / "forged", tensors, meta | {"labels": meta["labels"] | {name: value}})
    with pytest.raises(StorageError, match=f"is incomplete or was changed: expected {problem}, got "):
        sv.load(tmp_path / "forged")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"size": {}}, "got text.size must be an integer, 2 or above, or None"),
        ({"max_length": -3}, "got text.max_length must be an integer above 0, got -3"),
        ({"vocabulary": None}, "NoneType"),
    ],
    ids=["size", "max_length", "vocabulary"],
)
def test_forged_settings_of_texts_are_refused(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    tensors, meta = storage.load_folder(SAVED / "v2-hsvae-texts")
    meta["input"]["text"] |= change
    storage.save_folder(tmp_path / "forged", tensors, meta)
    with pytest.raises(StorageError, match=f"{re.escape(str(tmp_path / 'forged'))} .*{message}"):
        sv.load(tmp_path / "forged")


@pytest.mark.parametrize(
    ("name", "path", "value", "message"),
    [
        ("vsc", "n_features_in", -1, "input.n_features to be an integer above 0, got -1"),
        ("vsc", "n_features_in", None, "input.n_features to be an integer above 0, got None"),
        ("vsc", "n_features_in", 10**12, "its 301 stored numbers, got some that make a tensor of shape"),
        ("vsc", "constructor.n_components", 10**9, "its 301 stored numbers, got some that make a tensor of shape"),
        ("vsc", "constructor.hidden.tuple", [10**9], "stored numbers, got some that make a tensor of shape"),
        ("vsc", "constructor", [], "expected the settings of a model in format 1"),
        ("vsc", "constructor.future", 1, "does not know"),
        ("vsc", "training.dict", [], "expected the settings of a model in format 1"),
        ("vsc", "training.dict.schedules", {"schedule": "Sawtooth", "fields": {}}, "settings of a model in format 1"),
        ("vsc", "training.dict.steps", -3, "training.steps must be an integer above 0 or None, got -3"),
        ("vsc", "settled", 3, "expected the settings of a model in format 1"),
        ("vsc", "n_steps", "x", "run.n_steps to be an integer, 0 or above, got 'x'"),
        ("vsc", "history", [["step"], []], "run.history to be columns of one length"),
        ("vsc", "class", "os.system", "known classes"),
        ("hsvae-texts", "texts", None, "input.n_features to be an integer above 0, got None"),
        ("hsvae-texts", "texts", 3, "expected the settings of a model in format 1"),
        ("hsvae-texts", "texts.max_length", -3, "text.max_length must be an integer above 0, got -3"),
        ("sdlgm-classifier", "settled.hidden", 3, "expected the settings of a model in format 1"),
        ("sdlgm-classifier", "labels.cap_", 0, "labels.cap_ to be an integer from 1 to 2 .. 31, got 0"),
        ("sdlgm-classifier", "labels.classes_.dtype", "<U99999999", "expected the settings of a model in format 1"),
        ("sdlgm-classifier", "labels.classes_.values", [0, 1], "labels.classes_ to be 3 values, got 2"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_forged_setting_of_format_1_is_refused_too(
    name: str, path: str, value: Any, message: str, tmp_path: Path
) -> None:
    target = tmp_path / "forged"
    shutil.copytree(SAVED / f"v1-{name}", target)
    *parts, key = path.split(".")
    forge_json(target, lambda stored: functools.reduce(dict.__getitem__, parts, stored["meta"]).update({key: value}))
    with pytest.raises(StorageError, match=rf"forged.*{message}"):
        sv.load(target)


def test_other_things_are_not_models(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="found nothing"):
        sv.load(tmp_path / "nowhere")
    (tmp_path / "file").write_text("hello")
    with pytest.raises(StorageError, match="found a file"):
        sv.load(tmp_path / "file")
    with pytest.raises(StorageError, match=r"model\.json"):
        sv.load(tmp_path)


def test_loading_unpickles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("a pickle was opened, or code was run")

    sv.load(SAVED / "v1-vsc")
    monkeypatch.setattr(torch, "load", never)
    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, never)
    for name in ("eval", "exec", "compile"):
        monkeypatch.setattr(builtins, name, never)
    sv.load(SAVED / "v1-vsc")


def test_loading_draws_no_random_number(copy: Path) -> None:
    before = torch.get_rng_state()
    sv.load(copy)
    assert torch.equal(torch.get_rng_state(), before)


def test_one_loaded_model_is_independent_of_another(copy: Path) -> None:
    one, two = sv.load(copy), sv.load(copy)
    data = np.load(copy / "X.npy")
    before = two.score_samples(data)
    one.partial_fit(data)
    assert np.array_equal(two.score_samples(data), before)
    shutil.rmtree(copy)  # and of its files
    assert np.array_equal(two.score_samples(data), before)
