"""Claims: whatever a model folder or packed codes have become, they are refused by a clear error, or do their work; at
once, in little memory. Two of three mutated folders have checksums that were made anew, as a forger would.

A failure names the numbers of its mutations: `mutated(BASES[name](...), seed)` makes one again.
"""

from __future__ import annotations

import ast
import copy
import json
import math
import os
import random
import re
import resource
import runpy
import shutil
import signal
import socket
import struct
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

import sparsevae as sv
from sparsevae.exceptions import StorageError
from sparsevae.latent.packing import pack, unpack
from sparsevae.storage.record import _listing, canonical, sha256
from sparsevae.storage.state import load_state, save_state

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="needs fork, and memory as Linux counts it"),
    pytest.mark.filterwarnings("ignore"),
]
SECONDS, BYTES = 20, 2**30  # that one mutation may take

rng = np.random.default_rng(0)
X = (rng.normal(size=(40, 3)) @ rng.normal(size=(3, 6))).astype(np.float32)
SAVED = Path(__file__).parents[1] / "saved"
BUILD = runpy.run_path(str(SAVED / "make.py"))["build"]  # a tiny estimator of every class
Files = dict[str, bytes]  # the files of a folder by their names
Base = tuple[Files, tuple[Any, ...]]  # a model folder, and what `fit` was given


# ---- what is mutated -------------------------------------------------------------------------------------------


def _training(**changes: Any) -> Any:
    return sv.Training(**{"steps": 4, "report_every": 2, "verbose": 0, **changes})


def _fresh(name: str) -> Base:
    """An estimator of that name as it is saved today, and what it learned from, and can go on with."""
    est, X, y = BUILD(name)
    est.set_params(training__steps=20, training__report_every=10)
    data = (X,) if y is None else (X, y)
    est.fit(*data)
    with TemporaryDirectory() as folder:
        est.save(folder)
        return _files(Path(folder)), data


def _kept(folder: Path) -> Base:
    """A model of format 1, which is written no more."""
    data = tuple(np.load(folder / name) for name in ("X.npy", "y.npy") if (folder / name).exists())
    _use(sv.load(folder), data, again=True)  # as it is it works, and what is imported meanwhile is no mutation's
    return _files(folder), data


def _files(folder: Path) -> Files:
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.suffix != ".npy"}


BASES: dict[str, Callable[[], Base]] = {
    **{p.name: partial(_kept, p) for p in sorted(SAVED.glob("v1-*"))},
    **{p.name: partial(_fresh, p.name) for p in sorted(SAVED.glob("v2-*"))},
}


# ---- how --------------------------------------------------------------------------------------------------------

NUMBERS = [0, 1, -1, 2, 3, 7, 1000, 10**6, 10**9, 10**12, 2**31, 2**63, 10**18, 10**400, 0.5, -0.5, 1e-300, 1e300]
OTHERS = [None, True, False, "", "x", "\0", "nan", "../../etc/passwd", "\ud800", "a" * 10_000, [], {}, [[]], {"": 0}]
TAGGED = [{"$float": v} for v in ("nan", "inf", "x", None, [], {})]
TAGGED += [{tag: v} for tag in ("$tuple", "tuple") for v in (None, [1], {}, "ab")]
TAGGED += [{"$Linear": v} for v in (None, {}, {"start": 0.0, "stop": [1]}, {"start": 10**400, "stop": 1.0})]
TAGGED += [{"$Constant": {"value": -1}}, {"$Cyclical": {"start": 0, "stop": 1, "cycles": 10**12}}, {"$Sawtooth": {}}]
TAGGED += [{"$array": {"dtype": kind, "values": v}} for kind in ("<i8", "<U9", "O") for v in ([1, 2, 3], ["a"], [[1]])]
TAGGED += [{"$array": v} for v in (None, [], {"dtype": "<U99999999", "values": ["a"] * 9}, {"values": [1]})]
TAGGED += [{"$Vocabulary": v} for v in (None, {"words": ["_UNK"]}, {"words": "_UNK"}, {"words": [1], "tokenizer": 3})]
TAGGED += [{"dict": None}, {"dict": {"a": 1}}, {"schedule": "Linear"}, {"schedule": "Linear", "fields": {"x": 1}}]
TAGGED += [{"schedule": "Constant", "fields": {"value": -1}}, {"schedule": None, "fields": []}, {"$": 1}, {"values": 1}]
DTYPES = ["float64", "float32", "float16", "bfloat16", "int64", "uint8", "bool", "complex64", "float8_e4m3fn"]


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every (list or dict, its index or key) within a JSON value."""
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from _places(value[key])


def _nested(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


def _edit(record: Any, rand: random.Random) -> None:
    """Change one value, name or number of values, anywhere in a JSON value."""
    places = [(at, key) for at, key in _places(record) if key not in ("sha256", "format", "format_version", "kind")]
    at, key = rand.choice(places)
    old = at[key]
    match rand.randrange(10):
        case 0:
            at[key] = rand.choice(NUMBERS)
        case 1:
            at[key] = rand.choice(OTHERS)
        case 2:
            at[key] = rand.choice(TAGGED)
        case 3 if type(old) in (int, float):
            at[key] = rand.choice([old + 1, old - 1, -old, old * 2, old * 1000, float(old), round(old), str(old)])
        case 3 if isinstance(old, str):
            at[key] = rand.choice([old + "x", old[1:], old.upper(), [old], rand.choice(DTYPES)])
        case 3 if isinstance(old, list):
            at[key] = rand.choice([old * 2, old[1:], old * 1000, old[::-1], {"tuple": old}, dict.fromkeys("ab", old)])
        case 4 | 3:
            other, name = rand.choice(places)
            at[key] = json.loads(json.dumps(other[name]))  # what belongs elsewhere
        case 5:
            del at[key]
        case 6 if isinstance(at, dict):
            at[rand.choice([key + "x", "$" + key, "", "__class__", "encoder", "training"])] = at.pop(key)
        case 7 if isinstance(at, dict):
            at[rand.choice(["x", "$float", "$tuple", "$Linear", "tuple", "dict", "values", "folder", "stage"])] = old
        case 6 | 7:
            at.insert(key, rand.choice([*NUMBERS, *OTHERS, old]))
        case 8:
            at[key] = _nested(rand.choice([1, 3, 40, 60, 200]))
        case 9:
            forms: list[Any] = [{"tuple": [old]}, {"dict": {"x": old}}, {"$tuple": [old]}, {"$array": old}]
            at[key] = rand.choice([[old] * 3, *forms, [old], rand.choice(NUMBERS)])


def _bytes(data: bytes, rand: random.Random) -> bytes:
    """Flipped bits, a cut, something put in or twice."""
    out, at = bytearray(data), rand.randrange(len(data))
    match rand.randrange(5):
        case 0 | 1:
            for _ in range(rand.choice([1, 1, 2, 20])):
                out[rand.randrange(len(out))] ^= 1 << rand.randrange(8)
        case 2:
            del out[at:]
        case 3:
            out[at:at] = rand.choice([b"\0", b"[" * 1000, b"\xff" * 9, data[: rand.randrange(99)], b'"'])
        case 4:
            del out[at : at + rand.choice([1, 8, 100])]
    return bytes(out)


def _tensors(tensors: dict[str, torch.Tensor], rand: random.Random) -> None:
    """Another name, shape, type or value of a tensor; one less, or one more."""
    name = rand.choice(list(tensors))
    old = tensors[name]
    match rand.randrange(8):
        case 0:
            tensors[rand.choice([name + "x", name.upper(), "", "model.", "scaling.shift"])] = tensors.pop(name)
        case 1:
            tensors[name] = old.reshape(rand.choice([(-1,), (1, *old.shape), (*old.shape, 1)]))
        case 2:
            tensors[name] = old.mT.contiguous() if old.ndim > 1 else old.reshape(-1)[:-1]
        case 3:
            tensors[name] = old.to(getattr(torch, rand.choice(DTYPES[:7])))
        case 4:
            tensors[name] = torch.full_like(old, rand.choice([0, 1, 100]))
        case 5:
            tensors[name] = old * rand.choice([0.0, -1.0, 1e30, math.nan, math.inf, 1e-30])
        case 6:
            del tensors[name]
        case 7:
            tensors[rand.choice(["x", "model.x", "stage.model.x", "scaling.x"])] = torch.zeros(rand.choice([0, 3]))


def _sealed(record: dict[str, Any], blob: bytes, *, listed: bool) -> Files:
    """A folder whose checksums are right; `listed`: also the list of its tensors."""
    record["weights_sha256"] = sha256(blob)
    if listed:
        record["tensors"] = _listing(safetensors.torch.load(blob))
    record.pop("sha256", None)
    record["sha256"] = sha256(canonical(record).encode())
    return {"model.json": json.dumps(record).encode(), f"model-{record['weights_sha256'][:12]}.safetensors": blob}


def mutated(files: Files, seed: int) -> tuple[Files, str]:
    """The files of a model folder after a mutation, and what kind that was; the same for the same seed."""
    rand = random.Random(seed)
    names = sorted(files)
    blob = next(files[name] for name in names if name.endswith("safetensors"))
    if seed % 3 == 0:  # the checksums stay as they were
        name = rand.choice(names)
        if rand.random() < 0.3:
            record = json.loads(files["model.json"])
            _edit(record, rand)
            return files | {"model.json": json.dumps(record).encode()}, "edited"
        return files | {name: _bytes(files[name], rand)}, "bytes"
    record = json.loads(files["model.json"])
    kind = rand.choice(["json"] * 6 + ["tensors"] * 2 + ["weights"])
    if kind == "json":
        while True:
            changed = copy.deepcopy(record)
            for _ in range(rand.choice([1, 1, 1, 2, 4])):
                _edit(changed, rand)
            with suppress(ValueError, RecursionError):  # of what cannot be sealed
                return _sealed(changed, blob, listed=rand.random() < 0.1), "sealed json"
    if kind == "tensors":
        tensors = safetensors.torch.load(blob)
        for _ in range(rand.choice([1, 1, 2])):
            if tensors:
                _tensors(tensors, rand)
        return _sealed(record, safetensors.torch.save(tensors), listed=True), "sealed tensors"
    header = int.from_bytes(blob[:8], "little")
    if rand.random() < 0.5:  # its header says something else
        about = json.loads(blob[8 : 8 + header])
        _edit(about, rand)
        text = json.dumps(about).encode()
        return _sealed(
            record, len(text).to_bytes(8, "little") + text + blob[8 + header :], listed=False
        ), "sealed header"
    return _sealed(record, _bytes(blob, rand), listed=False), "sealed weights"


# ---- what comes of it -------------------------------------------------------------------------------------------


class Late(BaseException):
    """An alarm: nothing that is tested catches it."""


@contextmanager
def alarm(seconds: float) -> Iterator[None]:
    def ring(*args: Any) -> None:
        raise Late(f"over {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def outcome(work: Callable[[], str], *clear: type[Exception], place: Path | None = None) -> str:
    """How a piece of work ended: what it says, "refused" by one of the clear errors, or "BAD" and why.

    An error is clear when it is of such a class, of bounded length, and names the file or its folder, `place`.
    """
    start = time.perf_counter()
    try:
        with alarm(SECONDS), np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return work()
    except clear as error:
        named = place is None or str(place) in str(error)
        return "refused" if named and len(str(error)) < 3000 else f"BAD words of {type(error).__name__}: {error!s:.200}"
    except BaseException as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(last.filename).name}:{last.lineno}"
        return f"BAD {type(error).__name__} after {time.perf_counter() - start:.1f} s at {where}: {str(error)[:200]}"


def _peak() -> int:
    """The most memory that this process has held, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@contextmanager
def bounded(seconds: float, size: int) -> Iterator[None]:
    """Fails where this takes more time, or so many bytes more than there were before."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # Linux: what was the most before is forgotten
    before = _peak()
    with alarm(seconds):
        yield
    assert _peak() - before < size


def outcomes(work: Callable[[int], str], seeds: range, folder: Path, processes: int = 1) -> dict[int, str]:
    """What comes of every seed, worked on in children whose memory is counted and who die where they hang."""
    pids, files = [], [folder / f"outcomes{i}" for i in range(processes)]
    for i, file in enumerate(files):
        if pid := os.fork():
            pids.append(pid)
            continue
        try:
            torch.set_num_threads(1)
            signal.signal(signal.SIGPROF, signal.SIG_DFL)
            before = _peak()
            with file.open("w") as out:
                for seed in seeds[i::processes]:
                    signal.setitimer(signal.ITIMER_PROF, 3 * SECONDS)  # where even the alarm is not heard
                    found, peak = work(seed), _peak()
                    if peak > before + BYTES:
                        found, before = f"BAD {(peak - before) >> 20:,} MB ({found})", peak
                    out.write(f"{seed} {found!r}\n")
                    out.flush()
                out.write(f"-1 '{(_peak() - before) >> 20}'\n")
        finally:
            os._exit(0)
    for pid in pids:
        os.waitpid(pid, 0)
    lines = [line.split(" ", 1) for file in files for line in file.read_text().splitlines()]
    memory = max((int(found[1:-1]) for seed, found in lines if seed == "-1"), default=-1)
    found = {int(seed): ast.literal_eval(text) for seed, text in lines if seed != "-1"}
    return {-1: f"{memory} MB"} | {seed: found.get(seed, "BAD: the process died") for seed in seeds}


def judge(found: dict[int, str]) -> Counter[str]:
    """How many there were of each outcome, and of each kind of mutation; fails where one is bad."""
    memory = found.pop(-1)
    bad = {seed: text for seed, text in found.items() if text.startswith("BAD")}
    counts = Counter(part for text in found.values() for part in text.split(": ")[:2])
    print(f"\n{len(found):,} mutations, {dict(counts.most_common())}, {memory} above the imports")
    assert not bad, f"{len(bad)} of {len(found)}: {dict(list(bad.items())[:20])}"
    return counts


def _use(est: Any, data: tuple[Any, ...], *, again: bool) -> str:
    assert repr(est)
    assert len(str(est.history_)) < 10**6
    est.predict(data[0][:5]) if hasattr(est, "predict") else est.transform(data[0][:5])
    if again:
        est.set_params(training__verbose=0)
        est.partial_fit(*data)
        with TemporaryDirectory() as folder:
            est.save(folder)
            sv.load(folder)
    return "loaded and used"


def _load(base: Callable[[], Base], folder: Path) -> Callable[[int], str]:
    """Load the mutation of that number, and code a few rows; of each 25th that loads learn on, save and load again."""
    files, data = base()

    def work(seed: int) -> str:
        path = folder / f"mutated{os.getpid()}"
        path.mkdir(exist_ok=True)
        changed, kind = mutated(files, seed)
        for name, content in changed.items():
            (path / name).write_bytes(content)
        try:
            loaded: list[Any] = []
            first = outcome(lambda: loaded.append(sv.load(path)) or "loaded", StorageError, place=path)
            if loaded:  # settings of a model, and any weights
                first = outcome(lambda: _use(loaded[0], data, again=seed % 25 == 0), ValueError, sv.DivergenceError)
            return f"{first}: {kind}"
        finally:
            for name in changed:
                (path / name).unlink()

    return work


def _resume(folder: Path) -> Callable[[int], str]:
    """Go on with a run whose checkpoint or history is the mutation of that number."""
    whole = folder / "whole"
    _run(whole, steps=4, checkpoint_every=1).fit(X)
    files = {p.name: p.read_bytes() for p in whole.iterdir()}
    tensors, meta = load_state(whole / "checkpoint.safetensors")

    def work(seed: int) -> str:
        rand, path, kind = random.Random(seed), folder / f"mutated{os.getpid()}", "sealed"
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir()
        for name, data in files.items():
            (path / name).write_bytes(data)
        if seed % 3:
            own, about = dict(tensors), copy.deepcopy(meta)
            about["signature"]["steps"], about["now"]["step"] = 6, 2  # on the way still
            if rand.random() < 0.5:
                _tensors(own, rand)
            else:
                _edit(about, rand)
            try:
                save_state(path / "checkpoint.safetensors", own, about)
            except (TypeError, ValueError):  # what cannot be sealed
                return "refused: unsaved"
        else:
            name = kind = rand.choice(sorted(files))
            (path / name).write_bytes(_bytes(files[name], rand))
        steps = 6 if seed % 3 else 4

        def resume() -> str:
            try:
                _run(path, steps=steps, checkpoint_every=1, resume=True).fit(X)
            except sv.DivergenceError:  # from weights that are none
                return "diverged"
            return "resumed"

        return f"{outcome(resume, ValueError, place=path)}: {kind}"

    return work


def _pack(seed: int) -> str:
    """Unpack mutated bytes."""
    rand = random.Random(seed)
    Z = np.zeros((rand.choice([0, 1, 7, 40]), rand.choice([1, 3, 40, 300, 70_000])), np.float32)
    cap = rand.choice([1, 2, 5, 40])
    for row in Z:
        row[[rand.randrange(Z.shape[1]) for _ in range(rand.randrange(cap + 1))]] = 1
    data = pack(Z, cap)
    head = list(struct.unpack("<4sBBQII", data[:22]))
    for _ in range(rand.choice([1, 1, 2, 3])):
        match rand.randrange(3):
            case 0:
                data = _bytes(data, rand) or data
            case 1:
                head[rand.randrange(1, 3)] = rand.randrange(4)
            case 2:
                bits = rand.choice([8, 16, 31, 32])
                head[rand.randrange(3, 6)] = rand.choice([0, 1, 2, 2**bits - 1, rand.randrange(2**bits), 1000])
    if rand.random() < 0.7:
        data = struct.pack("<4sBBQII", *head) + data[22:]
    return outcome(lambda: f"unpacked {type(unpack(data)).__name__}", ValueError)


# ---- the claims -------------------------------------------------------------------------------------------------


def test_what_takes_long_or_much_or_dies_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "SECONDS", 0.2)
    monkeypatch.setitem(globals(), "BYTES", 2**26)

    def refuse(words: object) -> str:
        raise ValueError(words)

    works: list[Callable[[], str]] = [lambda: "fine", lambda: refuse(tmp_path), lambda: refuse("no name")]
    works += [lambda: f"{1 / 0}", lambda: f"{time.sleep(9)}", lambda: f"{len(b'x' * 2**27)}", lambda: os._exit(1)]
    found = outcomes(lambda seed: outcome(works[seed], ValueError, place=tmp_path), range(len(works)), tmp_path)
    expected = ["fine", "refused", "BAD words of", "BAD ZeroDivisionError", "BAD Late", r"BAD \d+ MB", "BAD: the proc"]
    assert all(re.match(text, found[seed]) for seed, text in enumerate(expected)), found
    with pytest.raises(AssertionError, match="5 of 7"):
        judge(found)


@pytest.mark.parametrize("name", ["v1-vsc", "v2-vsc", "v2-sdlgm-classifier"])
def test_a_mutated_model_folder_is_refused_clearly_or_works(name: str, tmp_path: Path) -> None:
    counts = judge(outcomes(_load(BASES[name], tmp_path), range(30), tmp_path))
    assert counts["refused"] > 15


@pytest.mark.slow
@pytest.mark.parametrize("name", BASES)
def test_twenty_thousand_mutated_model_folders_are_refused_clearly_or_work(name: str, tmp_path: Path) -> None:
    n = 20_000 // len(BASES) + 1
    counts = judge(outcomes(_load(BASES[name], tmp_path), range(n), tmp_path, processes=os.cpu_count() or 1))
    assert counts["refused"] > n / 2
    assert counts["loaded and used"] > n / 20
    assert sum(number for kind, number in counts.items() if kind.startswith("sealed")) >= 2 * n // 3


@pytest.mark.parametrize("n", [10, pytest.param(1_000, marks=pytest.mark.slow)])
def test_a_mutated_run_folder_is_refused_clearly_or_resumed(n: int, tmp_path: Path) -> None:
    counts = judge(outcomes(_resume(tmp_path), range(n), tmp_path, processes=1 if n < 100 else os.cpu_count() or 1))
    assert counts["refused"] > n / 3


@pytest.mark.parametrize("n", [100, pytest.param(3_000, marks=pytest.mark.slow)])
def test_mutated_codes_are_refused_clearly_or_unpacked(n: int, tmp_path: Path) -> None:
    counts = judge(outcomes(_pack, range(n), tmp_path))
    assert counts["refused"] > n / 3


# ---- files that are none, or promise too much ------------------------------------------------------------------


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        here = os.getcwd()
        os.chdir(path.parent)  # the name of a socket is short
        try:
            server.bind(path.name)
        finally:
            os.chdir(here)


def _endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _terminal(path: Path) -> None:
    path.symlink_to("/dev/tty")


def _folder(path: Path) -> None:
    path.mkdir()


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(20 * 2**30)


def _loop(path: Path) -> None:
    path.symlink_to(path.name)


def _dangling(path: Path) -> None:
    path.symlink_to("nowhere")


def _pipe_by_link(path: Path) -> None:
    os.mkfifo(path.with_name("pipe"))
    path.symlink_to("pipe")


def _unreadable(path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read anything")
    path.write_bytes(b"{}")
    path.chmod(0)


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _deep(path: Path) -> None:
    path.write_bytes(b"[" * 10**6 + b"]" * 10**6)


def _deep_values(path: Path) -> None:
    path.write_bytes(b'{"format": "sparsevae", "meta": ' + b'{"a":' * 30_000 + b"0" + b"}" * 30_000 + b"}")


def _lists(path: Path) -> None:
    path.write_bytes(b"[" + b"[]," * 2 * 10**6 + b"[]]")


def _quotes(path: Path) -> None:
    path.write_bytes(b'{"a' + rb"\"" * 10**6)


def _digits(path: Path) -> None:
    path.write_bytes(b'{"format": "sparsevae", "format_version": ' + b"9" * 10**6 + b"}")


def _long_header(path: Path) -> None:
    path.write_bytes((2**63 - 1).to_bytes(8, "little") + b"{}")


HOSTILE = [_pipe, _socket, _endless, _terminal, _folder, _sparse, _loop, _dangling, _pipe_by_link, _unreadable, _empty]
HOSTILE += [_deep, _deep_values, _lists, _quotes, _digits, _long_header]


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run and its model."""
    folder = tmp_path_factory.mktemp("hostile") / "run"
    _run(folder).fit(X).save(folder)
    return folder


def _run(folder: Path, **changes: Any) -> Any:
    return sv.VSC(3, hidden=(5,), alpha=0.3, training=_training(folder=str(folder), **changes))


@pytest.mark.parametrize("make", HOSTILE, ids=lambda f: f.__name__[1:])
@pytest.mark.parametrize("name", ["model.json", "model-*", "checkpoint.safetensors", "history.jsonl"])
def test_what_is_no_file_of_ours_is_refused_at_once(make: Any, name: str, run_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(run_folder, folder)
    (path,) = folder.glob(name)
    path.unlink()
    make(path)

    def use() -> str:
        if name.startswith("model"):
            return f"loaded {sv.load(folder)}"
        _run(folder, resume=True).fit(X)
        return "resumed"

    with bounded(2, BYTES // 4):
        found = outcome(use, StorageError)
    lost = make in (_dangling, _empty) or path.is_file()  # a history that holds no report is lost, and that is told
    begun = name.startswith("checkpoint") and make in (_dangling, _loop)  # no checkpoint: a new run
    assert found == "refused" or (found == "resumed" and ((name == "history.jsonl" and lost) or begun))


def test_a_lock_that_is_a_link_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("important")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".run.lock").symlink_to(tmp_path / "mine")
    with pytest.raises(StorageError, match="expected no link at"):
        _run(tmp_path / "run").fit(X)
    assert (tmp_path / "mine").read_text() == "important"


def _forged(folder: Path, target: Path, change: Callable[[dict[str, Any]], Any]) -> Path:
    """A model folder where a part of its record was changed, with checksums made anew."""
    record = json.loads((folder / "model.json").read_bytes())
    change(record)
    target.mkdir()
    (weights,) = folder.glob("model-*")
    for name, data in _sealed(record, weights.read_bytes(), listed=False).items():
        (target / name).write_bytes(data)
    return target


def _layers(part: str, key: str, n: int) -> Callable[[dict[str, Any]], Any]:
    return lambda record: record["meta"][part].update({key: [1] * n})


@pytest.mark.parametrize(
    "change",
    [
        *(_layers(part, "hidden", n) for n in (900, 10_000, 100_000) for part in ("constructor", "chosen")),
        lambda r: r["meta"]["constructor"].update(hidden={"$tuple": [1] * 100_000}),
        lambda r: r["tensors"]["model.encoder.deep.0.bias"].update(shape=[2**62]),
        lambda r: r["tensors"]["model.encoder.deep.0.bias"].update(shape=[2] * 10**5),
        lambda r: r["tensors"]["model.encoder.deep.0.bias"].update(dtype="layout"),
        lambda r: r["meta"]["input"].update(n_features=10**12),
        lambda r: r["meta"]["constructor"].update(n_components=10**400),
        lambda r: r["meta"]["constructor"].update(n_components={"$float": None}),
        lambda r: r["meta"]["constructor"].update(n_components={"$float": "x"}),
        lambda r: r["meta"]["run"].update(history=_nested(60)),
        lambda r: r["meta"]["constructor"].update(alpha=_nested(45)),
        lambda r: r["meta"]["constructor"].update(alpha={"$array": {"dtype": "<U9999", "values": ["a"] * 10**5}}),
        lambda r: r["meta"]["constructor"].update(alpha={"$array": {"dtype": "U", "values": ["a" * 10**6] * 10}}),
        lambda r: r["meta"]["training"].update(schedules={"kl_z": {"$Exponential": {"start": 1, "rate": 10**400}}}),
    ],
    ids=range(19),
)
def test_a_forged_record_is_refused_before_it_takes_time_or_memory(
    change: Any, run_folder: Path, tmp_path: Path
) -> None:
    path = _forged(run_folder, tmp_path / "forged", change)
    with bounded(2, BYTES // 4), pytest.raises(StorageError) as refused:
        sv.load(path)
    assert len(str(refused.value)) < 1000


@pytest.mark.parametrize(
    "change",
    [
        *(_layers(part, "hidden", n) for n in (900, 100_000) for part in ("constructor", "settled")),
        lambda r: r["meta"]["constructor"].update(hidden={"tuple": [1] * 100_000}),
        lambda r: r["meta"].update(n_features_in=10**12),
        lambda r: r["meta"]["constructor"].update(n_components=10**400),
        lambda r: r["meta"]["constructor"].update(n_components={"tuple": {"tuple": None}}),
        lambda r: r["meta"].update(history=_nested(60)),
        lambda r: r["meta"]["labels"].update(classes_={"dtype": "<U9999", "values": ["a"] * 10**5}),
        lambda r: r["meta"]["labels"].update(classes_={"dtype": "U", "values": ["a" * 10**6] * 10}),
    ],
    ids=range(11),
)
def test_a_forged_record_of_format_1_is_refused_before_it_takes_time_or_memory(change: Any, tmp_path: Path) -> None:
    path = _forged(SAVED / "v1-sdlgm-classifier", tmp_path / "forged", change)
    with bounded(2, BYTES // 4), pytest.raises(StorageError) as refused:
        sv.load(path)
    assert len(str(refused.value)) < 1000


@pytest.mark.parametrize("version", [1, 2])
def test_a_model_does_not_say_where_later_runs_write(version: int, run_folder: Path, tmp_path: Path) -> None:
    """Nor whether they go on with what is there, nor how loudly; its checksums are right."""
    evil = {"folder": str(tmp_path / "evil"), "resume": True, "verbose": 10**6}

    def change(record: dict[str, Any]) -> None:
        meta = record["meta"]
        assert record["format_version"] == version
        for place in (
            (meta["training"]["dict"], meta["settled"])
            if version == 1
            else (meta["training"], meta["chosen"], meta["chosen"]["training"], meta["run"])
        ):
            place.update(evil)

    base = SAVED / "v1-vae" if version == 1 else run_folder
    X = np.load(base / "X.npy") if version == 1 else globals()["X"]
    est = sv.load(_forged(base, tmp_path / "forged", change))
    assert (est.training.folder, est.training.resume, est.training.verbose) == (None, False, 1)
    assert (est.training_.folder, est.training_.resume) == (None, False)
    est.set_params(training__verbose=0).fit(X)
    est.partial_fit(X)
    assert not (tmp_path / "evil").exists()


def test_unpacking_takes_the_memory_of_its_codes(tmp_path: Path) -> None:
    """4 bytes per row and 8 per non-zero, were there a row in every bit and a unit on in each; in a process alone."""
    size = 2**19
    data = struct.pack("<4sBBQII", b"svzc", 1, 0, 8 * size, 1, 1) + b"\xff" * size

    def work(seed: int) -> str:
        Z = unpack(data)
        return f"{Z.shape} {Z.nnz} {Z.indptr.nbytes + Z.indices.nbytes + Z.data.nbytes}"

    found = outcomes(work, range(1), tmp_path)
    assert found[0] == f"({8 * size}, 1) {8 * size} {12 * 8 * size + 4}"
    assert int(found[-1].removesuffix(" MB")) < 12 * 8 // 2 + 60


@pytest.mark.parametrize("rows", [2**64 - 1, 2**62, 10**9, 17])
def test_a_header_that_promises_more_than_came_is_refused_at_once(rows: int) -> None:
    with alarm(2), pytest.raises(ValueError, match="cut short"):
        unpack(struct.pack("<4sBBQII", b"svzc", 1, 0, rows, 200, 40) + bytes(10))
