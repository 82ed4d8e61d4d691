"""Claims: what is saved comes back, equal content gives equal bytes, no crash or damage goes unnoticed."""

from __future__ import annotations

import base64
import contextlib
import copy
import errno
import hashlib
import json
import math
import os
import pickle
import re
import struct
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sparsevae.exceptions import StorageError
from sparsevae.storage import atomic, codec, record
from sparsevae.storage import folder as storage
from sparsevae.storage.atomic import read_file, write_file
from sparsevae.storage.checkpoint import RunFolder
from sparsevae.storage.folder import check_folder, load_folder, save_folder
from sparsevae.storage.record import _DTYPES, canonical, sha256
from sparsevae.storage.state import load_state, save_state

POSIX = pytest.mark.skipif(os.name == "nt", reason="needs fork and signals")
SHAPES = pytest.mark.parametrize(("save", "load"), [(save_folder, load_folder), (save_state, load_state)])


def version(v: int, size: int = 64) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """A model of which every part says which version it belongs to."""
    return {"a": torch.full((size,), float(v)), "b": torch.tensor(v)}, {"v": v, "history": [float(v)] * 5}


def version_of(loaded: tuple[dict[str, torch.Tensor], dict[str, Any]]) -> int:
    tensors, meta = loaded
    v = meta["v"]
    want, _ = version(v, len(tensors["a"]))
    assert meta["history"] == [float(v)] * 5
    assert all(torch.equal(tensors[k], want[k]) for k in want)
    return int(v)


def identical(a: Any, b: Any) -> bool:
    """Equal in value and exact type; floats bit by bit, save for a nan's payload."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return (math.isnan(a) and math.isnan(b)) or struct.pack("d", a) == struct.pack("d", b)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(identical, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(identical(a[k], b[k]) for k in a)
    return bool(a == b)


def same_tensor(a: torch.Tensor, b: torch.Tensor) -> bool:
    def raw(t: torch.Tensor) -> bytes:
        return t.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()

    return a.dtype == b.dtype and a.shape == b.shape and raw(a) == raw(b)


def files(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir()}


def is_clean(folder: Path) -> bool:
    """One model and nothing else."""
    names = sorted(files(folder))
    return len(names) == 2 and names[0].startswith("model-") and names[1] == "model.json"


# ---- what was saved comes back ---------------------------------------------------------------------------

KEYS = st.text(max_size=6) | st.sampled_from(["$float", "$", "$$a", "meta", "\ud800"])
SCALARS = st.none() | st.booleans() | st.integers(-(2**130), 2**130) | st.floats() | st.text(max_size=8)
METAS = st.dictionaries(
    KEYS,
    st.recursive(
        SCALARS,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
        max_leaves=8,
    ),
    max_size=4,
)


@st.composite
def tensor(draw: st.DrawFn) -> torch.Tensor:
    dtype = getattr(torch, draw(st.sampled_from(_DTYPES)))
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    size = math.prod(shape) * dtype.itemsize
    if dtype is torch.bool:
        raw = bytes(draw(st.lists(st.integers(0, 1), min_size=size, max_size=size)))
    else:  # any bits: nan payloads and denormals come back too
        raw = draw(st.binary(min_size=size, max_size=size))
    flat = torch.frombuffer(bytearray(raw), dtype=dtype) if raw else torch.empty(0, dtype=dtype)
    value = flat.reshape(shape)
    return value.mT if value.ndim >= 2 and draw(st.booleans()) else value


NAMES = st.text(st.characters(codec="utf-8"), max_size=8).filter(str.isprintable)
TENSORS = st.dictionaries(NAMES, tensor(), max_size=4)


@SHAPES
@settings(max_examples=40, deadline=None)
@given(tensors=TENSORS, meta=METAS)
def test_round_trip_is_exact(save: Any, load: Any, tensors: Any, meta: Any) -> None:
    with tempfile.TemporaryDirectory() as root:
        save(Path(root) / "x", tensors, meta)
        came, meta_came = load(Path(root) / "x")
    assert list(came) == sorted(tensors)
    assert all(same_tensor(came[k], tensors[k]) for k in tensors)
    assert identical(meta_came, meta)


@SHAPES
def test_views_shared_and_trainable_tensors_are_saved_by_value(tmp_path: Path, save: Any, load: Any) -> None:
    base = torch.arange(12.0).reshape(3, 4)
    weight = torch.nn.Parameter(base.clone())
    tensors = {
        "base": base,
        "again": base,
        "transposed": base.T,
        "row": base[1],
        "every other": base[:, ::2],
        "expanded": torch.ones(1).expand(5),
        "parameter": weight,
        "tied": weight,
        "image": torch.rand(2, 3, 4, 4).to(memory_format=torch.channels_last),
    }
    save(tmp_path / "x", tensors, {})
    came, _ = load(tmp_path / "x")
    assert all(torch.equal(came[k], tensors[k]) for k in tensors)
    assert all(t.device.type == "cpu" and not t.requires_grad for t in came.values())
    came["base"].zero_()  # what comes back is writable and shares nothing
    assert came["again"].sum() == base.sum()


def test_a_folder_of_the_first_format_is_still_read(tmp_path: Path) -> None:
    data = {k: zlib.decompress(base64.b85decode("".join(v.split()))) for k, v in GOLDEN.items()}
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "model-bc361a50cf86.safetensors").write_bytes(data["weights"])
    (tmp_path / "m" / "model.json").write_bytes(data["json"])
    tensors, meta = load_folder(tmp_path / "m")
    assert meta == {"model": "VSC", "params": {"alpha": 0.01, "limit": math.inf}}
    assert tensors["decoder.weight"].tolist() == [[1.5, -2.0]]
    assert tensors["steps"].item() == 7
    assert load_folder(tmp_path / "m", upgrade=lambda old: {"was": old})[1] == {"was": meta}
    save_folder(tmp_path / "m", tensors, meta)  # in the second format now, and replaced as a whole
    assert load_folder(tmp_path / "m", upgrade=lambda old: {"was": old})[1] == meta
    assert is_clean(tmp_path / "m")


def test_an_unfinished_run_of_the_first_format_is_refused_in_one_line(tmp_path: Path) -> None:
    data = zlib.decompress(base64.b85decode("".join(GOLDEN["state"].split())))
    (tmp_path / "checkpoint.safetensors").write_bytes(data)
    words = r"checkpoint\.safetensors is an unfinished run of an earlier sparsevae, .*; .*start it again"
    with pytest.raises(StorageError, match=words) as refused, RunFolder(tmp_path, {}).open(resume=True):
        pass
    assert "\n" not in str(refused.value)
    assert (tmp_path / "checkpoint.safetensors").read_bytes() == data


@SHAPES
def test_equal_content_gives_equal_bytes(tmp_path: Path, save: Any, load: Any) -> None:
    tensors, meta = version(3)
    tensors |= {f"layer{i}": torch.full((2, 3), float(i)) for i in range(8)}
    meta |= {"params": {"alpha": 0.1, "beta": math.nan}, "unit": None}
    seen = set()
    for i in range(12):
        order = reversed if i % 2 else iter
        given = {k: tensors[k] for k in order(list(tensors))}
        if i % 3:  # the same values in another memory layout
            given = {k: t.mT.contiguous().mT if t.ndim == 2 else t for k, t in given.items()}
        save(tmp_path / f"{i}", given, {k: copy.deepcopy(meta[k]) for k in order(list(meta))})
        path = tmp_path / f"{i}"
        seen.add(str(sorted(files(path).items())) if path.is_dir() else path.read_bytes())
    assert len(seen) == 1


def test_saving_again_what_was_loaded_changes_no_byte(tmp_path: Path) -> None:
    save_folder(tmp_path / "m", *version(1))
    before = files(tmp_path / "m")
    save_folder(tmp_path / "m", *load_folder(tmp_path / "m"))
    assert files(tmp_path / "m") == before


def test_the_json_is_strict_and_says_what_the_folder_holds(tmp_path: Path) -> None:
    save_folder(tmp_path, {"w": torch.zeros(2, 3)}, {"x": [math.nan, math.inf, -math.inf]}, kind="sweep")

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    record = json.loads((tmp_path / "model.json").read_bytes(), parse_constant=refuse)
    weights = (tmp_path / f"model-{record['weights_sha256'][:12]}.safetensors").read_bytes()
    assert record["weights_sha256"] == hashlib.sha256(weights).hexdigest()
    assert (record["format"], record["format_version"], record["kind"]) == ("sparsevae", 2, "sweep")
    assert set(record["versions"]) == {"sparsevae", "torch", "numpy", "python"}
    assert record["tensors"]["w"]["shape"] == [2, 3]
    assert record["meta"] == {"x": [{"$float": "nan"}, {"$float": "inf"}, {"$float": "-inf"}]}


# ---- what cannot be saved is refused before anything is written ------------------------------------------

LOOP: list[Any] = []
LOOP.append(LOOP)


@SHAPES
@pytest.mark.parametrize(
    ("meta", "place"),
    [
        ({"training": {"steps": [1, (2, {3})]}}, r"meta\.training\.steps\[1\]\[1\] holds a set"),
        ({"alpha": np.complex64(0.1)}, r"meta\.alpha.*complex"),
        ({"n": np.ones((2, 3))}, r"meta\.n.*ndarray"),
        ({"x": torch.ones(2)}, r"meta\.x.*Tensor"),
        ({"f": len}, r"meta\.f.*builtin"),
        ({"s": {1}}, r"meta\.s.*set"),
        ({"b": b"bytes"}, r"meta\.b.*bytes"),
        ({"d": {1: 2}}, r"meta\.d.*str keys, got 1"),
        ({1: 2}, r"meta: expected str keys"),
        ({"loop": LOOP}, r"meta\.loop.*within itself"),
    ],
)
def test_other_types_in_meta_are_named(tmp_path: Path, save: Any, load: Any, meta: Any, place: str) -> None:
    with pytest.raises(TypeError, match=place):
        save(tmp_path / "new", {"w": torch.ones(2)}, meta)
    assert not files(tmp_path)


@SHAPES
@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("w", np.ones(2), "expected a torch.Tensor, got ndarray"),
        ("w", torch.eye(2).to_sparse(), "sparse_coo"),
        ("w", torch.ones(2, device="meta"), "on meta"),
        ("w", torch.ones(2, dtype=torch.complex128), "complex128"),
        ("__metadata__", torch.ones(2), "__metadata__"),
        ("a\ud800", torch.ones(2), "printable"),
        (3, torch.ones(2), "tensor name 3"),
    ],
)
def test_other_tensors_are_named(tmp_path: Path, save: Any, load: Any, name: Any, value: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        save(tmp_path / "new", {name: value}, {})
    assert not files(tmp_path)


def test_a_state_too_long_to_be_read_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "MAX_HEADER", 2_000)
    with pytest.raises(StorageError, match="as tensors"):
        save_state(tmp_path / "s", {}, {"order": list(range(2_000))})
    assert not files(tmp_path)


# ---- whose folder it is ----------------------------------------------------------------------------------


def test_a_folder_of_others_is_refused_and_untouched(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("important")
    for refused in (lambda: save_folder(tmp_path, *version(1)), lambda: check_folder(tmp_path)):
        with pytest.raises(StorageError, match=r"not from sparsevae.*thesis\.tex.*empty folder"):
            refused()
    assert files(tmp_path) == {"thesis.tex": b"important"}
    with pytest.raises(StorageError, match="found a file"):
        save_folder(tmp_path / "thesis.tex", *version(1))


@pytest.mark.parametrize("text", ['{"format": "other"}', "[1]", "{", "\xff", "[" * 100_000])
def test_a_foreign_model_json_is_refused_and_untouched(tmp_path: Path, text: str) -> None:
    (tmp_path / "model.json").write_text(text, encoding="latin-1")
    for refused in (lambda: save_folder(tmp_path, *version(1)), lambda: load_folder(tmp_path)):
        with pytest.raises(StorageError, match=r"model\.json"):
            refused()
    assert files(tmp_path) == {"model.json": text.encode("latin-1")}


def test_another_kind_is_neither_replaced_nor_loaded(tmp_path: Path) -> None:
    save_folder(tmp_path, *version(1), kind="sweep")
    with pytest.raises(StorageError, match="'sweep'"):
        save_folder(tmp_path, *version(2))
    with pytest.raises(StorageError, match=r"'sweep'.*'model'"):
        load_folder(tmp_path)
    assert version_of(load_folder(tmp_path, kind="sweep")) == 1


def test_other_files_in_a_folder_of_ours_are_left_alone(tmp_path: Path) -> None:
    write_file(tmp_path / "history.jsonl", b"{}\n")  # a run that has no model yet
    save_state(tmp_path / "checkpoint.safetensors", *version(1))
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "model-00001-of-00002.safetensors").write_text("of another library")
    others = files(tmp_path)
    check_folder(tmp_path)
    save_folder(tmp_path, *version(1))
    save_folder(tmp_path, *version(2))
    assert version_of(load_folder(tmp_path)) == 2
    assert others.items() <= files(tmp_path).items()
    assert len(files(tmp_path)) == len(others) + 2  # the weights of version 1 are gone


def test_what_a_killed_first_save_left_is_ours(tmp_path: Path) -> None:
    (tmp_path / "model-0123456789ab.safetensors").write_text("half a")
    (tmp_path / ".model.json.01234567.tmp").write_text("half a")
    save_folder(tmp_path, *version(1))
    assert is_clean(tmp_path)


def test_folders_are_made_and_links_followed(tmp_path: Path) -> None:
    save_folder(str(tmp_path / "a" / "b"), *version(1))
    save_state(str(tmp_path / "c" / "s"), *version(1))
    (tmp_path / "link").symlink_to(tmp_path / "c" / "s")
    (tmp_path / "folder").symlink_to(tmp_path / "a" / "b")
    save_state(tmp_path / "link", *version(2))
    save_folder(tmp_path / "folder", *version(2))
    assert (tmp_path / "link").is_symlink()
    assert version_of(load_state(tmp_path / "c" / "s")) == version_of(load_folder(tmp_path / "a" / "b")) == 2


# ---- damage is found -------------------------------------------------------------------------------------


def reseal(path: Path, change: Any) -> None:
    """Edit model.json and put its checksum right, as a forger would."""
    record = json.loads(path.read_bytes())
    change(record)
    record.pop("sha256")
    path.write_text(json.dumps(record | {"sha256": sha256(canonical(record).encode())}))


def test_missing_things_are_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"folder\) at .*nowhere, found nothing; check the path"):
        load_folder(tmp_path / "nowhere")
    with pytest.raises(StorageError, match=r"model\.json: no such file"):
        load_folder(tmp_path)
    with pytest.raises(StorageError, match="no such file"):
        load_state(tmp_path / "nowhere")
    with pytest.raises(StorageError, match="expected a regular file, found a folder"):
        load_state(tmp_path)
    save_folder(tmp_path / "m", *version(1))
    with pytest.raises(StorageError, match="found a file"):
        load_folder(tmp_path / "m" / "model.json")
    next((tmp_path / "m").glob("*.safetensors")).unlink()
    with pytest.raises(StorageError, match=r"model-[0-9a-f]{12}\.safetensors: no such file"):
        load_folder(tmp_path / "m")


def test_a_newer_format_asks_for_an_upgrade(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "FORMAT_VERSION", 3)
    save_folder(tmp_path / "m", *version(1))
    save_state(tmp_path / "s", *version(1))
    monkeypatch.setattr(record, "FORMAT_VERSION", 2)
    for refused in (lambda: load_folder(tmp_path / "m"), lambda: load_state(tmp_path / "s")):
        with pytest.raises(StorageError, match=r"newer sparsevae \(format 3, .* up to 2\); upgrade"):
            refused()


def test_an_edited_json_is_found(tmp_path: Path) -> None:
    save_folder(tmp_path, *version(1))
    path = tmp_path / "model.json"
    path.write_text(path.read_text().replace('"v": 1', '"v": 2'))
    with pytest.raises(StorageError, match=r"model\.json is incomplete or was changed: expected JSON with checksum"):
        load_folder(tmp_path)
    path.write_text(path.read_text().replace('"v": 2', '"v": NaN'))
    with pytest.raises(StorageError, match="strict JSON"):
        load_folder(tmp_path)


def test_changed_weights_are_found(tmp_path: Path) -> None:
    save_folder(tmp_path, *version(1))
    weights = next(tmp_path.glob("*.safetensors"))
    good = weights.read_bytes()
    renamed = good.replace(b'"a"', b'"c"')
    for data in (good[:-1], good[:-1] + b"x", renamed, b""):
        weights.write_bytes(data)
        with pytest.raises(StorageError, match=r"expected SHA-256 \w{64}, got \w{64}, \d+ bytes; restore"):
            load_folder(tmp_path)


def test_a_reformatted_json_is_still_the_same(tmp_path: Path) -> None:
    save_folder(tmp_path, *version(1))
    path = tmp_path / "model.json"
    path.write_text(json.dumps(json.loads(path.read_text()), indent=7))
    assert version_of(load_folder(tmp_path)) == 1


def test_forged_records_end_in_a_storage_error(tmp_path: Path) -> None:
    def forge(change: Any, message: str) -> None:
        save_folder(tmp_path / "m", *version(1))
        reseal(tmp_path / "m" / "model.json", change)
        with pytest.raises(StorageError, match=message):
            load_folder(tmp_path / "m")

    for unknown in (0, True, None, "2", 2.0):
        forge(lambda r, unknown=unknown: r.update(format_version=unknown), "expected format 1 or 2, got")
    forge(lambda r: r["tensors"].update(extra=r["tensors"]["a"]), "'extra'.*got no such tensor")
    forge(lambda r: r["tensors"].pop("a"), "'a' as no such tensor")
    forge(lambda r: r["tensors"]["a"].update(shape=[8, 8]), "tensor 'a'")
    forge(lambda r: r.pop("tensors"), '"meta" and "tensors"')
    forge(lambda r: r.update(meta=3), '"meta" and "tensors"')
    reseal(tmp_path / "m" / "model.json", lambda r: r.update(weights_sha256="../../etc/passwd", meta={}))
    with pytest.raises(StorageError, match="64 hexadecimal digits"):
        load_folder(tmp_path / "m")


@pytest.mark.parametrize("shape", ["folder", "state"])
def test_no_cut_and_no_flipped_bit_goes_unnoticed(tmp_path: Path, shape: str) -> None:
    """Every truncation and a changed bit in every byte: refused, or (in white space) without effect."""
    if shape == "folder":
        save_folder(tmp_path / "x", *version(1, 2))
        targets = list((tmp_path / "x").iterdir())
    else:
        save_state(tmp_path / "x", *version(1, 2))
        targets = [tmp_path / "x"]
    load = load_folder if shape == "folder" else load_state
    for path in targets:
        good = path.read_bytes()
        broken = [good[:n] for n in range(0, len(good) - 1, 7)] + [good + b"x"]
        broken += [good[:i] + bytes([good[i] ^ (1 << i % 8)]) + good[i + 1 :] for i in range(len(good))]
        harmless, messages = 0, set()
        for data in broken:
            path.write_bytes(data)
            try:
                assert version_of(load(tmp_path / "x")) == 1
                harmless += 1
            except StorageError as error:
                messages.add(str(error).partition(" ")[0])
        assert messages == {str(path)}  # each refusal begins with the file it is about
        assert harmless < len(broken) / 10
        path.write_bytes(good)


def test_loading_a_pickle_runs_nothing(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[Any, tuple[str]]:
            return os.mkdir, (str(tmp_path / "sprung"),)

    (tmp_path / "s").write_bytes(pickle.dumps(Trap()))
    torch.save(torch.ones(2), tmp_path / "t")
    for name in ("s", "t"):
        with pytest.raises(StorageError):
            load_state(tmp_path / name)
    assert not (tmp_path / "sprung").exists()


def test_a_plain_safetensors_file_is_not_a_state(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    save_file({"w": torch.ones(2)}, tmp_path / "s")
    with pytest.raises(StorageError, match="not a state saved by sparsevae"):
        load_state(tmp_path / "s")


# ---- errors and crashes ----------------------------------------------------------------------------------


class FailAt:
    """Let the n-th file-system call raise; `calls` tells how many there were."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, n: int, error: BaseException) -> None:
        self.calls, self.n, self.error = 0, n, error
        for owner, name in [(os, "replace"), (os, "fsync"), (atomic, "open")]:
            real = open if owner is atomic else getattr(owner, name)
            monkeypatch.setattr(owner, name, self.wrap(real), raising=False)

    def wrap(self, real: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            if self.calls == self.n:
                raise self.error
            return real(*args, **kwargs)

        return call


ERRORS = [OSError(errno.ENOSPC, "No space left on device"), PermissionError("denied"), KeyboardInterrupt()]


@pytest.mark.parametrize("error", ERRORS, ids=lambda e: type(e).__name__)
def test_a_folder_survives_an_error_at_every_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    save_folder(tmp_path, *version(0))
    outcomes = []
    for n in range(1, 20):
        with monkeypatch.context() as patch:
            fail, saved = FailAt(patch, n, error), False
            with contextlib.suppress(type(error)):
                save_folder(tmp_path, *version(n))
                saved = True
        if saved:
            break
        outcomes.append(version_of(load_folder(tmp_path)) == n)
        assert not list(tmp_path.glob(".*"))  # no temporary file stays
        assert len(files(tmp_path)) <= 3  # and at most one set of weights too many
    # open, fsync, replace and the folder's fsync, twice; the model changes at the last replace
    assert fail.calls == 8
    assert outcomes == [False] * 7 + [True]
    assert version_of(load_folder(tmp_path)) == 9
    assert is_clean(tmp_path)


def test_a_first_save_that_fails_leaves_no_half_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(1, 8):
        with monkeypatch.context() as patch:
            FailAt(patch, n, OSError("disk"))
            with pytest.raises(OSError, match="disk"):
                save_folder(tmp_path / "m", *version(n))
        with pytest.raises(StorageError, match="no such file"):
            load_folder(tmp_path / "m")
    save_folder(tmp_path / "m", *version(1))
    assert is_clean(tmp_path / "m")


@pytest.mark.parametrize("error", ERRORS, ids=lambda e: type(e).__name__)
def test_a_file_survives_an_error_at_every_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    save_state(tmp_path / "s", *version(0))
    for n in range(1, 5):
        with monkeypatch.context() as patch:
            FailAt(patch, n, error)
            with pytest.raises(type(error)):
                save_state(tmp_path / "s", *version(n))
        assert version_of(load_state(tmp_path / "s")) == (n if n == 4 else 0)
        assert list(files(tmp_path)) == ["s"]


def test_a_file_system_that_cannot_sync_folders_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FailAt(monkeypatch, 4, OSError(errno.EINVAL, "Invalid argument"))
    write_file(tmp_path / "f", b"new")
    assert files(tmp_path) == {"f": b"new"}


@POSIX
@SHAPES
def test_a_full_disk_leaves_the_old_version(tmp_path: Path, save: Any, load: Any) -> None:
    """A real error in the middle of a write: the system lets no file grow past 4 kB."""
    import resource

    save(tmp_path / "x", *version(1))
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limit[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            save(tmp_path / "x", *version(2, 100_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert version_of(load(tmp_path / "x")) == 1
    assert not list(tmp_path.rglob(".*.tmp"))


@POSIX
@pytest.mark.skipif(os.name != "nt" and os.geteuid() == 0, reason="root may write anywhere")
@SHAPES
def test_a_read_only_folder_leaves_the_old_version(tmp_path: Path, save: Any, load: Any) -> None:
    save(tmp_path / "x", *version(1))
    folders = [tmp_path, *(p for p in tmp_path.iterdir() if p.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    try:
        with pytest.raises(PermissionError):
            save(tmp_path / "x", *version(2))
        assert version_of(load(tmp_path / "x")) == 1
    finally:
        for folder in folders:
            folder.chmod(0o755)


def test_write_file_replaces_and_removes_a_dead_writers_file(tmp_path: Path) -> None:
    (tmp_path / ".f.01234567.tmp").write_text("half")
    (tmp_path / ".other.01234567.tmp").write_text("of another target")
    write_file(tmp_path / "f", b"one")
    write_file(tmp_path / "f", b"two")
    assert files(tmp_path) == {"f": b"two", ".other.01234567.tmp": b"of another target"}
    umask = os.umask(0)
    os.umask(umask)
    assert (tmp_path / "f").stat().st_mode & 0o777 == 0o666 & ~umask  # as any new file, not private


@POSIX
@SHAPES
def test_new_content_has_the_permissions_of_the_old(tmp_path: Path, save: Any, load: Any) -> None:
    save(tmp_path / "x", *version(1))
    for path in (tmp_path / "x", *tmp_path.glob("x/*")):
        if path.is_file():
            path.chmod(0o640)
    save(tmp_path / "x", *version(2))  # a folder's weights have another name now
    assert version_of(load(tmp_path / "x")) == 2
    assert {p.stat().st_mode & 0o777 for p in tmp_path.rglob("*") if p.is_file()} == {0o640}


@SHAPES
def test_an_error_of_the_disk_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, save: Any, load: Any
) -> None:
    FailAt(monkeypatch, 2, OSError(errno.ENOSPC, "No space left on device"))  # of fsync: it tells no name itself
    with pytest.raises(OSError, match="No space left on device") as caught:
        save(tmp_path / "x", *version(1))
    assert re.fullmatch(r"x(/model-[0-9a-f]{12}\.safetensors)?", str(Path(caught.value.filename).relative_to(tmp_path)))


def test_a_reader_beside_a_saver_sees_whole_versions(tmp_path: Path) -> None:
    save_folder(tmp_path / "m", *version(0))
    save_state(tmp_path / "s", *version(0))
    stop = threading.Event()

    def write() -> None:
        v = 0
        while not stop.is_set():
            v += 1
            save_folder(tmp_path / "m", *version(v))
            save_state(tmp_path / "s", *version(v))

    thread = threading.Thread(target=write)
    thread.start()
    seen, end = [(0, 0)], time.monotonic() + 20
    try:
        while len(set(seen)) < 10 and time.monotonic() < end:
            seen.append((version_of(load_folder(tmp_path / "m")), version_of(load_state(tmp_path / "s"))))
    finally:
        stop.set()
        thread.join()
    assert seen == sorted(seen)  # never back in time
    assert len(set(seen)) > 1


def test_a_reader_overtaken_by_a_save_loads_the_new_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worst moment: model.json is read, and before its weights are, they are replaced and swept away."""
    save_folder(tmp_path, *version(1))
    real, overtaken = read_file, []

    def read(path: Path, most: int) -> bytes:
        if path.suffix == ".safetensors" and not overtaken:
            overtaken.append(path)
            save_folder(tmp_path, *version(2))
            assert not path.exists()
        return real(path, most)

    monkeypatch.setattr(storage, "read_file", read)
    assert version_of(load_folder(tmp_path)) == 2
    assert overtaken


def test_two_savers_take_turns(tmp_path: Path) -> None:
    errors: list[BaseException] = []

    def write(first: int) -> None:
        try:
            for v in range(first, first + 15):
                save_folder(tmp_path, *version(v % 7))  # both save the same contents now and then
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(first,)) for first in (0, 3, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert 0 <= version_of(load_folder(tmp_path)) < 7
    assert is_clean(tmp_path)


# One process imports torch and forks the victims: two seconds instead of sixty.
KILLS = """
import io, json, os, random, signal, sys, time
from pathlib import Path
sys.path[:0] = [sys.argv[1], sys.argv[2]]
import torch
torch.set_num_threads(1)
from sparsevae.storage.record import _DTYPES, canonical, sha256
from sparsevae.storage.state import load_state, save_state
from sparsevae.storage.atomic import read_file
from sparsevae.storage import folder as storage
from test_storage import is_clean, version, version_of

root, report = Path(sys.argv[3]), {}
die = lambda: os.kill(os.getpid(), signal.SIGKILL)

def victim(work):
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(0)
    return pid

def killed_at(n, save, path):
    # SIGKILL before the n-th file-system call; a write dies after half of its bytes
    calls = 0
    def wrap(real):
        def call(*args, **kwargs):
            nonlocal calls
            calls += 1
            if calls == n:
                die()
            return real(*args, **kwargs)
        return call
    class Half(io.FileIO):
        def write(self, data):
            nonlocal calls
            calls += 1
            if calls == n:
                super().write(data[: len(data) // 2])
                die()
            return super().write(data)
    for name in ("open", "replace", "fsync", "unlink", "close", "listdir"):
        setattr(os, name, wrap(getattr(os, name)))
    storage.open = wrap(Half)
    save(path, *version(1))

for save, load, name in [
    (storage.save_folder, storage.load_folder, "folder"), (save_state, load_state, "state"),
]:
    every = []
    for n in range(1, 60):
        path = root / f"{name}{n}" / "x"
        save(path, *version(0))
        pid = victim(lambda: killed_at(n, save, path))
        status = os.waitpid(pid, 0)[1]
        every.append(version_of(load(path)))
        save(path, *version(2))
        assert version_of(load(path)) == 2
        assert is_clean(path) if path.is_dir() else os.listdir(path.parent) == ["x"]
        if not os.WIFSIGNALED(status):
            break
    report[name + "_every"] = every

    path, rng, last, seen = root / f"{name}_random" / "x", random.Random(0), 0, []
    save(path, *version(0, 50_000))
    start = time.perf_counter()
    save(path, *version(0, 50_000))
    pause = 10 * (time.perf_counter() - start)  # several saves, on a fast disk as on a slow one
    for _ in range(15):
        saved, tell = os.pipe()
        def forever():
            v = last
            while True:
                v += 1
                save(path, *version(v, 50_000))
                os.write(tell, b"!")
        pid = victim(forever)
        os.read(saved, 1)  # one save at least, which sweeps what the last one left, however busy the machine
        time.sleep(rng.uniform(0.0, pause))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(saved)
        os.close(tell)
        now = version_of(load(path))
        assert now > last, (now, last)
        last = now
        seen.append(now)
        assert len(os.listdir(path if path.is_dir() else path.parent)) <= 5
    save(path, *version(last))
    assert is_clean(path) if path.is_dir() else os.listdir(path.parent) == ["x"]
    report[name + "_random"] = seen
print(json.dumps(report))
"""


@pytest.mark.slow
@POSIX
def test_sigkill_at_any_instant_leaves_one_whole_version(tmp_path: Path) -> None:
    """SIGKILL before every file-system call, within every write, and 15 times at random: loads every time."""
    here = Path(__file__).resolve().parent
    command = [sys.executable, "-c", KILLS, str(here.parent), str(here), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    for name, calls in (("folder", 14), ("state", 8)):
        every = report[f"{name}_every"]
        assert every == sorted(every)  # the old version up to one instant, from then on the new one
        assert set(every) == {0, 1}
        assert len(every) >= calls
        assert report[f"{name}_random"][-1] > 0


# A model and a state written by format 1: every later version must read the model, and refuse the state.
GOLDEN = {  # zlib, base 85
    "weights": """
        c-m`VfPiYH;*!*YVkN6;rIeD&f>b3dB~LRGB^{;Wj6@JGI#x$1C9xziK0ht3IJE?*Fxo)JBDNMNnwp%Sl3Ju!o|>7SQG#rMo3Rm+
        0fst8m}Xe$7@Eb_)+#8lGr+(Bdk_HtM<go#
    """,
    "json": """
        c-m!>-HO{V5QXpa6h`!}#Yh_c_O_2u=uKIcku++|#y{B3E@8>LSF)2$>0VeC=ZKk4NArGYSRUsdSN6SO%Y^enuSo3MhyMIZ^U{q&
        @kLc%x*^rG{g~*qo$G1EqP!oPyISmDKYvuSVWlMY%gt{Xo~C0x&0Ai}73I|R-Fo*M_9dUjou(TytJ?Ljeb?G+Iil32x-kj#Ry(P*
        Fj6|y$x5Dbj6!f@94JC`JR>CXIXOVXgVRY_f#ruA`bxtx&UZSNC>H*?eWUKr@q>w_^)gZIxuJn%JNSb|Y8e286V}HlmG>@#vD^zt
        S|;$^>6ncU1rLjdT0+i*L4^vM=}~a&^LtBTkEfA!eX0>`aV{%O%V)A~SdIF`g-Fil$TJ6$UV9{!EHC%xF@hJ`3m3iSq3p835KQzk
        3Iz~qMxg%Zdiv)jZe#J0-Ei)w%N9nfT625*%X-`<he0buYj^cAWyLrTFT?mY?9MvQ@wnFz(DJWwI<s55{YjSR$K^r<BT)00ohf^+
        T{2c`OW?CN#I3Pt$+_qv6fKr<u-<3VKp{u3*x`Ek3j@-~j{
    """,
    "state": """
        c-m!B%Zl4D6dmZI+kQe3-PIVqAK7$KD0E%uW;_HvYcuf!TbUt*{98Y*vg9zC^e&97b9C;xk53;Sa-6|_-}|VYj(WcbyE9lOJum)6
        d$0rN2840$b!@<{c|#gdU4i|JpO<bN5&@;l=WcL?8+9zaRXtrLseW|+kkQ}2zGo~6>V7GxK1}UOgf(214qe~Hf_w>wakJ13p#hi6
        B@vcZW5)As@B#&BytN2AK`0R+1jCi0!3t_EwOplN9GGNGNW-`j4yU8y98t@%m*|IOoHsMh+hlgGUw!wd-E6pcntaK(`XM+!yRm^8
        HiRIFgt8V>rDPynK!u27*bxOKvw<@MUC;^B43iMNHq>w~N$^*_oaGT!_$k*J{j}UW=!VGYeSWRIRKdakiN}g5?Wq$GX$h?*3NeMG
        RScSR3S1k*t-=;jLQLW?Lf_|q%3a>ZyBQdc{d6j|*0knjhNsx(`8R;n2-Tv<yzNQ?j>GdXz7D0&<80ea1CbhjwbOB(DY#Un)^!PU
        rD*|watf;AX|+^=yr*Lbi;s!;2rHSIbT_VBfgc3l2&_H*PeWFSr(!?n`1o**zu(r+KcjK;6a
    """,
}
