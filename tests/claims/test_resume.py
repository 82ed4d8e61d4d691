"""Claim (Must-show 6): a run that is killed at any step and resumed ends with the same bytes as one that was not.

The runs are processes of their own. One process imports the library once and forks a child for every run (this
file, run as a script, is that process): a child trains, kills itself where it is told to, or saves its model; or it
runs the command line.
"""

from __future__ import annotations

import errno
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import sparsevae as sv
from sparsevae.latent.objective import Objective
from sparsevae.storage import checkpoint, lock
from sparsevae.storage import folder as storage
from sparsevae.storage.lock import locked
from sparsevae.storage.state import load_state, save_state
from sparsevae.training.step import Run

pytestmark = [
    pytest.mark.filterwarnings("ignore::sparsevae.exceptions.SparsityWarning"),
    pytest.mark.skipif(os.name == "nt", reason="needs fork and signals"),
]
ROOT = Path(__file__).parents[2]
STEPS, REPORT, CHECKPOINT = 40, 5, 10
NAN_AT = 17  # the step that breaks once, where a run is asked to: noticed at 20, rolled back to 15


def data(seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(120, 3)) @ rng.normal(size=(3, 9)) + 0.1 * rng.normal(size=(120, 9))).astype(np.float32)


def pictures() -> np.ndarray:
    return sv.data.load("tiles", n=20, n_test=0, seed=0).X


def estimator(folder: Path | str, **changes: Any) -> Any:
    """All the state there is: moments, schedules, best weights, patience, a restart, batch statistics."""
    own = torch.nn.Sequential(torch.nn.Identity(), torch.nn.BatchNorm1d(9))  # no random weights of its own
    chosen = {
        "steps": STEPS,
        "report_every": REPORT,
        "checkpoint_every": CHECKPOINT,
        "batch_size": 32,
        "learning_rate": 1e-2,
        "decay": "step",
        "decay_at": 0.6,
        "restart_optimizer": True,
        "clip_norm": 5.0,
        "kl_warmup": 0.5,
        "n_samples": 2,
        "validation_fraction": 0.2,
        "patience": 6,
        "folder": str(folder),
        "verbose": 0,
    }
    return sv.VSC(5, hidden=(8,), alpha=0.3, encoder=own, training=sv.Training(**chosen | changes))


# One run, in a process of its own.


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def sabotage(kill: dict[str, Any], nan: bool) -> None:
    """Arrange for this process to be killed: at a step, in one of several places, at the n-th time it gets there."""
    advance, measure, write, replace = Run.advance, Objective.measure, checkpoint.RunFolder.append, os.replace
    current: list[Run] = []
    where, number, left = kill.get("where"), kill.get("signal", signal.SIGKILL), [kill.get("time", 1)]

    def now(step: int) -> bool:
        if step == kill.get("step"):
            left[0] -= 1
            return left[0] == 0
        return False

    def spy(self: Run) -> None:
        current[:] = [self]
        if where == "before" and now(self.step):
            os.kill(os.getpid(), number)
        advance(self)

    def broken(self: Objective, trace: Any) -> dict[str, torch.Tensor]:
        terms = measure(self, trace)
        if current and not trace.hard:
            if where == "within" and now(current[0].step):
                os.kill(os.getpid(), number)
            if nan and current[0].step == NAN_AT and current[0].rate_factor == 1:
                terms["nll_x"] = terms["nll_x"] * float("nan")
        return terms

    def append(self: checkpoint.RunFolder, row: dict[str, Any]) -> None:
        if where == "history" and now(row["step"]):
            with self.history.open("ab") as file:  # half a line
                file.write(json.dumps(row).encode()[:25])
            die()
        write(self, row)

    def rename(source: Any, target: Any) -> None:
        checkpointing = str(target).endswith("checkpoint.safetensors") and current
        if where == "write" and checkpointing and now(current[0].step):
            assert Path(source).stat().st_size > 1000  # the new checkpoint is written, the old one still in place
            die()
        replace(source, target)
        if where == "written" and checkpointing and now(current[0].step):
            die()

    if where == "any instant":
        threading.Timer(kill["after"], die).start()
    Run.advance, Objective.measure = spy, broken  # type: ignore[method-assign]
    checkpoint.RunFolder.append = append  # type: ignore[method-assign]
    storage.os.replace = rename  # type: ignore[attr-defined]


def train(task: dict[str, Any]) -> None:
    warnings.simplefilter("ignore", sv.SparsityWarning)
    torch.set_num_threads(task.get("threads", 1))
    folder = Path(task["folder"])
    sabotage(task.get("kill", {}), task.get("nan", False))
    est = estimator(folder / "run", resume=task.get("resume", False), **task.get("changes", {}))
    est.set_params(**task.get("model", {}))
    est.fit(data() if est.network == "auto" else pictures())
    est.save(folder / "model")
    (folder / "facts.json").write_text(json.dumps({"steps": est.n_steps_, "history": list(est.history_)}))


def command(task: dict[str, Any]) -> None:
    """The command line as a shell calls it; its standard error goes to a file."""
    from sparsevae import cli

    with open(os.devnull, "w") as out, open(task["told"], "w") as reported:
        os.dup2(out.fileno(), 1)
        os.dup2(reported.fileno(), 2)
        sys.exit(cli.main(task["command"]))


def forked(task: dict[str, Any]) -> int:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            (command if "command" in task else train)(task)
            code = 0
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else 1
        except KeyboardInterrupt:
            code = 130
        except BaseException:
            traceback.print_exc()
        sys.stderr.flush()
        os._exit(code)
    return child


def serve() -> None:
    """Read tasks, a JSON list of them a line; fork a child for each, all at once; answer with their exit statuses."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", sv.SparsityWarning)
        estimator(folder, steps=1).fit(data())  # imports what every child would import again
    for line in sys.stdin:
        children = [forked(task) for task in json.loads(line)]
        print(*(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children), flush=True)


if __name__ == "__main__":
    serve()
    sys.exit()


# The tests.


@pytest.fixture(scope="module")
def at_once() -> Iterator[Any]:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)

    def run(*tasks: dict[str, Any]) -> list[int]:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(tasks) + "\n")
        process.stdin.flush()
        return [int(status) for status in process.stdout.readline().split()]

    yield run
    process.communicate(timeout=60)


@pytest.fixture(scope="module")
def server(at_once: Any) -> Any:
    def run(folder: Path, **task: Any) -> int:
        folder.mkdir(parents=True, exist_ok=True)
        (status,) = at_once({"folder": str(folder)} | task)
        return status

    return run


def result(folder: Path) -> dict[str, bytes]:
    """All that a run leaves: the saved model, its history, the last checkpoint."""
    files = [*(folder / "model").iterdir(), folder / "run" / "history.jsonl", folder / "facts.json"]
    files += [folder / "run" / "checkpoint.safetensors"]
    return {f.name: f.read_bytes() for f in files}


@pytest.fixture(scope="module")
def uninterrupted(server: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[bool, dict[str, bytes]]:
    """By whether a NaN is put in its way."""
    found = {}
    for nan in (False, True):
        folder = tmp_path_factory.mktemp("uninterrupted")
        assert server(folder, nan=nan) == 0
        found[nan] = result(folder)
        assert not list(folder.rglob("*.tmp"))
    model = [name for name in found[False] if name.startswith("model-")]
    assert len(model) == 1
    assert model[0] not in found[True]  # the roll-back left its mark
    return found


def killed_and_resumed(server: Any, folder: Path, *kills: dict[str, Any], nan: bool = False) -> dict[str, bytes]:
    for i, kill in enumerate(kills):
        assert server(folder, kill=kill, nan=nan, resume=i > 0) == -signal.SIGKILL, kill
        assert not (folder / "model").exists()
    assert server(folder, resume=True, nan=nan) == 0
    assert not list(folder.rglob("*.tmp"))  # what a kill left behind is swept up
    return result(folder)


CASES: dict[str, tuple[bool, list[dict[str, Any]]]] = {
    "before the first checkpoint": (False, [{"where": "before", "step": 4}]),
    "between two steps": (False, [{"where": "before", "step": 23}]),
    "within a step": (False, [{"where": "within", "step": 27}]),
    "in the last step": (False, [{"where": "within", "step": STEPS - 1}]),
    "while a checkpoint is written": (False, [{"where": "write", "step": 20}]),
    "while the first checkpoint is written": (False, [{"where": "write", "step": 10}]),
    "while the last checkpoint is written": (False, [{"where": "write", "step": STEPS}]),
    "just after a checkpoint": (False, [{"where": "written", "step": 20}]),
    "while the history is written": (False, [{"where": "history", "step": 25}]),
    "where the optimiser restarts": (False, [{"where": "before", "step": 24}]),
    "after a roll-back, before the next checkpoint": (True, [{"where": "before", "step": 18, "time": 2}]),
    "after a roll-back and a checkpoint": (True, [{"where": "within", "step": 34}]),
    "between a NaN and its discovery": (True, [{"where": "before", "step": 19}]),
    "while the checkpoint after a roll-back is written": (True, [{"where": "write", "step": 20}]),
    "again and again": (
        True,
        [
            {"where": "within", "step": 7},
            {"where": "write", "step": 10},
            {"where": "before", "step": 19},
            {"where": "history", "step": 25},
            {"where": "within", "step": 38},
        ],
    ),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == "again and again" else pytest.mark.slow) for name in CASES]
)
def test_killed_and_resumed_is_the_same_to_the_last_byte(
    name: str, server: Any, uninterrupted: Any, tmp_path: Path
) -> None:
    nan, kills = CASES[name]
    assert killed_and_resumed(server, tmp_path, *kills, nan=nan) == uninterrupted[nan]


@pytest.mark.slow
def test_ten_random_steps(server: Any, uninterrupted: Any, tmp_path: Path) -> None:
    """Other steps on every run; the assertion says which."""
    rng = random.Random()
    for i in range(10):
        nan = i % 2 == 1
        kill = {"where": rng.choice(["before", "within"]), "step": rng.randrange(STEPS)}
        if i == 0:
            kill = {"where": "write", "step": CHECKPOINT * rng.randint(1, STEPS // CHECKPOINT)}
        if i == 1:
            kill = {"where": "within", "step": rng.randint(20, STEPS - 1)}  # after the roll-back
        assert killed_and_resumed(server, tmp_path / str(i), kill, nan=nan) == uninterrupted[nan], kill


@pytest.mark.slow
def test_any_instant(server: Any, uninterrupted: Any, tmp_path: Path) -> None:
    """Killed by the clock, wherever the run may be, until it gets to its end."""
    began = time.monotonic()
    assert server(tmp_path / "whole") == 0
    defaults, rng, i = time.monotonic() - began, random.Random(), 0
    while (
        status := server(tmp_path, kill={"where": "any instant", "after": rng.random() * defaults}, resume=True)
    ) != 0:
        assert status == -signal.SIGKILL
        i += 1
        assert i < 100
    assert result(tmp_path) == uninterrupted[False]


@pytest.mark.slow
@pytest.mark.parametrize("nan", [False, True])
def test_convolutions_with_batch_statistics_resume_too(nan: bool, server: Any, tmp_path: Path) -> None:
    """Also where a step put NaN into the running statistics, which the roll-back takes out again."""
    changes = {"steps": 25, "n_samples": 1, "batch_size": 4}
    chosen = {"model": {"network": "asperti", "encoder": None}, "changes": changes, "nan": nan}
    assert server(tmp_path / "whole", **chosen) == 0
    kill = {"where": "within", "step": 23}
    assert server(tmp_path / "parts", kill=kill, **chosen) == -signal.SIGKILL
    assert server(tmp_path / "parts", resume=True, **chosen) == 0
    assert result(tmp_path / "parts") == result(tmp_path / "whole")


@pytest.mark.slow
def test_a_resumed_run_has_the_threads_of_the_first(server: Any, tmp_path: Path) -> None:
    wide = {"n_samples": 64, "steps": 30}  # enough work for torch to share out
    assert server(tmp_path / "whole", threads=2, changes=wide) == 0
    kill = {"where": "within", "step": 17}
    assert server(tmp_path / "parts", threads=2, changes=wide, kill=kill) == -signal.SIGKILL
    assert server(tmp_path / "parts", threads=1, changes=wide, resume=True) == 0
    assert result(tmp_path / "parts") == result(tmp_path / "whole")
    assert server(tmp_path / "one", threads=1, changes=wide) == 0
    assert result(tmp_path / "one") != result(tmp_path / "whole")  # threads do matter


SIGNALS = [
    (signal.SIGTERM, 143, 23, False),
    (signal.SIGINT, 130, 23, False),
    (signal.SIGTERM, 143, 3, False),  # before the first checkpoint: a checkpoint all the same
    (signal.SIGTERM, 143, STEPS - 1, False),
    (signal.SIGTERM, 143, 18, True),  # the batch before has broken, and nobody has noticed
    (signal.SIGTERM, 143, 16, True),  # it will break after the resumption, and roll back to before the signal
]


@pytest.mark.parametrize(
    ("number", "code", "step", "nan"),
    [SIGNALS[0], *(pytest.param(*case, marks=pytest.mark.slow) for case in SIGNALS[1:])],
)
def test_a_signal_saves_and_leaves(
    number: int, code: int, step: int, nan: bool, server: Any, uninterrupted: Any, tmp_path: Path
) -> None:
    kill = {"where": "before", "step": step, "signal": int(number)}
    assert server(tmp_path, kill=kill, nan=nan) == code
    assert (tmp_path / "run" / "checkpoint.safetensors").exists()
    assert not (tmp_path / "model").exists()
    _, meta = load_state(tmp_path / "run" / "checkpoint.safetensors")
    assert meta["now"]["step"] == (15 if step == 18 else step + 1)
    assert server(tmp_path, resume=True, nan=nan) == 0
    assert result(tmp_path) == uninterrupted[nan]


@pytest.mark.slow
def test_a_finished_run_can_be_resumed_and_changes_nothing(server: Any, uninterrupted: Any, tmp_path: Path) -> None:
    assert server(tmp_path) == 0
    assert server(tmp_path, resume=True) == 0
    assert result(tmp_path) == uninterrupted[False]


@pytest.mark.slow
def test_resume_where_there_is_nothing_is_a_first_run(server: Any, uninterrupted: Any, tmp_path: Path) -> None:
    assert server(tmp_path, resume=True) == 0
    assert result(tmp_path) == uninterrupted[False]


# Within this process.


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, advance = tmp_path_factory.mktemp("stopped") / "run", Run.advance

    def stop(self: Run) -> None:
        advance(self)
        if self.step == 30:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Run, "advance", stop)
        with pytest.raises(SystemExit):
            estimator(folder).fit(data())
    return folder


@pytest.fixture
def half_run(stopped: Path, tmp_path: Path) -> Path:
    """A run folder whose run was stopped at step 30."""
    return Path(shutil.copytree(stopped, tmp_path / "run"))


def listing(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir()}


def test_a_folder_that_holds_a_run_is_not_overwritten(half_run: Path) -> None:
    before = listing(half_run)
    est = estimator(half_run)
    with pytest.raises(FileExistsError, match=r"already holds a run.*resume=True.*or choose another folder"):
        est.fit(data())
    assert listing(half_run) == before
    assert not hasattr(est, "model_")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"training": {"steps": 41}}, "steps: 40 then, 41 now"),
        ({"training": {"seed": 1}}, "seed: 0 then, 1 now"),
        ({"training": {"learning_rate": 0.5}}, r"learning_rate: 0\.01 then, 0\.5 now"),
        ({"training": {"schedules": {"kl_z": sv.Constant(1.0)}}}, "schedules: None then"),
        ({"alpha": 0.2}, r"alpha: 0\.3 then, 0\.2 now"),
        ({"hidden": (9,)}, "hidden: "),
        ({"network": "conv"}, "network: 'auto' then, 'conv' now"),
        ({"image_shape": (3, 3)}, "image_shape: None then"),
        ({"n_components": 6}, "n_components: 5 then, 6 now"),
        ({"encoder": None}, r"encoder: 'Sequential\([^']*' then, 'None' now"),
        ({"data": data(1)}, "data: '[0-9a-f]+' then, '[0-9a-f]+' now"),
        ({"data": data()[:-1]}, "data: "),
        ({"class": sv.VAE}, "model: 'VSC' then, 'VAE' now"),
    ],
)
def test_another_run_is_not_resumed(changes: dict[str, Any], message: str, half_run: Path) -> None:
    before = listing(half_run)
    est = estimator(half_run, resume=True, **changes.pop("training", {}))
    X, cls = changes.pop("data", data()), changes.pop("class", sv.VSC)
    if cls is not sv.VSC:
        kept = {k: v for k, v in est.get_params(deep=False).items() if k in cls().get_params(deep=False)}
        est = cls(**kept)
    est.set_params(**changes)
    with pytest.raises(ValueError, match=f"(?s)holds a different run.*{message}.*same settings and data"):
        est.fit(X)
    assert listing(half_run) == before
    assert not hasattr(est, "model_")


@pytest.mark.parametrize(
    ("frozen", "message"), [(0, "encoder.0.0.weight: '.8, 9.' then, '.8, 9. frozen'"), (1, "0.1.")]
)
def test_a_run_with_other_frozen_weights_is_another_run(frozen: int, message: str, tmp_path: Path) -> None:
    """Else the moments of one weight would be those of another."""
    with torch.random.fork_rng():
        own = torch.nn.Sequential(torch.nn.Linear(9, 8), torch.nn.Linear(8, 8))
    estimator(tmp_path / "run", steps=10).set_params(encoder=own).fit(data())
    own[frozen].requires_grad_(False)
    before = listing(tmp_path / "run")
    with pytest.raises(ValueError, match=rf"(?s)holds a different run.*weights .*{message}.*same settings and data"):
        estimator(tmp_path / "run", steps=10, resume=True).set_params(encoder=own).fit(data())
    assert listing(tmp_path / "run") == before


def test_operational_settings_may_change_on_resume(half_run: Path, tmp_path: Path) -> None:
    moved = half_run.rename(tmp_path / "moved")  # the folder too
    est = estimator(moved, resume=True, checkpoint_every=7, verbose=1).fit(data())
    assert est.n_steps_ == STEPS
    assert est.history_.column("step") == list(range(5, STEPS + 1, 5))
    (tmp_path / "whole").mkdir()
    whole = estimator(tmp_path / "whole").fit(data())
    assert whole.history_ == est.history_
    assert all(torch.equal(a, b) for a, b in zip(est.model_.parameters(), whole.model_.parameters(), strict=True))


@pytest.mark.parametrize("damage", ["cut", "flip", "empty"])
def test_a_damaged_checkpoint_is_named(damage: str, half_run: Path) -> None:
    path = half_run / "checkpoint.safetensors"
    content = bytearray(path.read_bytes())
    if damage == "flip":
        content[-5] ^= 1
    path.write_bytes({"cut": content[:-100], "flip": content, "empty": b""}[damage])
    with pytest.raises(sv.StorageError, match=r"checkpoint\.safetensors"):
        estimator(half_run, resume=True).fit(data())


def test_after_an_interruption_the_history_goes_on_in_one_piece(half_run: Path) -> None:
    lines = (half_run / "history.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [5, 10, 15, 20, 25, 30]
    with (half_run / "history.jsonl").open("a") as file:
        file.write('{"step": 35, "loss": 0.0}\n{"step": 40, "lo')  # written after the checkpoint, then killed
    est = estimator(half_run, resume=True).fit(data())
    lines = (half_run / "history.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == est.history_
    assert est.history_.column("step") == list(range(5, STEPS + 1, 5))
    assert est.history_[6]["loss"] != 0.0


@pytest.mark.parametrize(
    "line",
    ["{}", "3", "null", '{"step": "x"}', '{"step": 30}', '{"$float": "x"}', '{"step": 30, "epoch": {}}', "[" * 9999],
)
def test_a_line_that_is_no_report_counts_as_cut_short(line: str, half_run: Path) -> None:
    with (half_run / "history.jsonl").open("a") as file:
        file.write(line + "\n")
    est = estimator(half_run, resume=True).fit(data())
    assert est.history_.column("step") == list(range(5, STEPS + 1, 5))


@pytest.mark.parametrize("left", [b"", b"\0" * 40, b'{"step": 25, "ep', b"\xff\xfe\n"])
def test_reports_that_a_power_cut_took_are_told_and_the_steps_are_those_of_the_run(left: bytes, half_run: Path) -> None:
    history = half_run / "history.jsonl"
    history.write_bytes(b"".join(history.read_bytes().splitlines(keepends=True)[:4]) + left)
    with pytest.warns(UserWarning, match="lacks the reports from after step 20 to step 30"):
        est = estimator(half_run, resume=True).fit(data())
    assert est.history_.column("step") == [5, 10, 15, 20, *range(35, STEPS + 1, 5)]
    assert est.n_steps_ == STEPS


def change_digit(lines: list[bytes]) -> None:
    loss = b'"loss": '
    at = lines[2].index(loss) + len(loss) + 3
    lines[2] = lines[2][:at] + (b"1" if lines[2][at:][:1] != b"1" else b"2") + lines[2][at + 1 :]


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (change_digit, 3),
        (lambda lines: lines.insert(1, lines[1]), 3),
        (lambda lines: lines.pop(3), 4),
        (lambda lines: lines.reverse(), 1),
        (lambda lines: lines.insert(0, b'{"step": 1, "epoch": 0.1}\n'), 1),
    ],
    ids=["digit", "twice", "gone", "reversed", "invented"],
)
def test_a_changed_history_is_an_error_that_says_what_works(change: Any, line: int, half_run: Path) -> None:
    history = half_run / "history.jsonl"
    lines = history.read_bytes().splitlines(keepends=True)
    change(lines)
    history.write_bytes(b"".join(lines))
    before = {p.name: p.read_bytes() for p in half_run.iterdir()}
    words = rf"line {line} of .*history\.jsonl was changed.* Restore the file from a copy, or delete it"
    with pytest.raises(sv.StorageError, match=words):
        estimator(half_run, resume=True).fit(data())
    assert {p.name: p.read_bytes() for p in half_run.iterdir() if not p.name.startswith(".")} == before
    history.unlink()
    with pytest.warns(UserWarning, match="lacks the reports from after step 0 to step 30"):
        assert estimator(half_run, resume=True).fit(data()).n_steps_ == STEPS


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t, m: m["now"].update(step=-5), "step=-5"),
        (lambda t, m: m["now"].update(step="x"), "step='x'"),
        (lambda t, m: m["now"].update(threads=10**9), "threads=1000000000"),
        (lambda t, m: m["now"].pop("retries"), "retries=None"),
        (lambda t, m: m.update(now=3), "the state of a run"),
        (lambda t, m: m.pop("signature"), "the state of a run"),
        (lambda t, m: t.pop(next(k for k in t if k.startswith("now."))), "the state of this run"),
        (lambda t, m: t.update(history=torch.zeros(3, dtype=torch.bfloat16)), "the state of a run"),
        (lambda t, m: t.pop("history"), "the state of a run"),
    ],
)
def test_a_forged_checkpoint_is_refused(change: Any, message: str, half_run: Path) -> None:
    """With checksums that were made anew."""
    tensors, meta = load_state(half_run / "checkpoint.safetensors")
    change(tensors, meta)
    save_state(half_run / "checkpoint.safetensors", tensors, meta)
    with pytest.raises(sv.StorageError, match=rf"checkpoint\.safetensors.*{message}"):
        estimator(half_run, resume=True).fit(data())


def test_the_history_is_on_the_disk_before_the_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    fsync, replace = os.fsync, os.replace

    def synced(descriptor: int) -> None:
        order.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        fsync(descriptor)

    if not Path("/proc/self/fd").exists():
        pytest.skip("files are told apart by /proc")
    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", lambda a, b: (order.append(Path(b).name), replace(a, b))[1])
    estimator(tmp_path / "run", steps=20).fit(data())
    places = [i for i, name in enumerate(order) if name == "checkpoint.safetensors"]
    assert len(places) == 2
    for first, last in zip([0, *places], places, strict=False):
        assert "history.jsonl" in order[first:last]


def test_early_stopping_survives_an_interruption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The best weights and the patience spent are part of the checkpoint."""
    losses = {5: 4.0, 10: 1.0, 15: 2.0, 20: 3.0, 25: 3.0, 30: 2.5, 35: 0.5}
    monkeypatch.setattr(Run, "validate", lambda self, items: losses[self.step])
    whole = estimator(tmp_path / "whole", patience=4).fit(data())
    assert whole.n_steps_ == 30
    advance = Run.advance

    def stop(self: Run) -> None:
        advance(self)
        if self.step == 23:
            os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patched:
        patched.setattr(Run, "advance", stop)
        with pytest.raises(KeyboardInterrupt):
            estimator(tmp_path / "parts", patience=4).fit(data())
    est = estimator(tmp_path / "parts", patience=4, resume=True).fit(data())
    assert est.history_ == whole.history_
    assert all(torch.equal(a, b) for a, b in zip(est.model_.parameters(), whole.model_.parameters(), strict=True))


# One run at a time.


LOCK = ".run.lock"
IN_USE = (
    r"expected a folder that no run is using, but .*run is in use by a run of process \d+ on .*resume=True.*or choose"
)


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize("thread", [False, True])
def test_a_folder_is_refused_while_a_run_lasts(resume: bool, thread: bool, tmp_path: Path) -> None:
    """Also to a fit of the same process, and nothing of the run that lasts is touched."""
    found: list[BaseException] = []

    def second() -> None:
        est = estimator(tmp_path / "run", resume=resume, seed=1)
        before = listing(tmp_path / "run")
        try:
            est.fit(data())
        except BlockingIOError as error:
            found.append(error)
        assert not hasattr(est, "model_")
        assert listing(tmp_path / "run") == before

    def watch(row: Any) -> None:
        assert (tmp_path / "run" / LOCK).exists()
        if row["step"] in (5, 20):  # before the first checkpoint, and after it
            if thread:
                other = threading.Thread(target=second)
                other.start()
                other.join()
            else:
                second()

    est = estimator(tmp_path / "run", steps=25).fit(data(), watch=watch)
    assert [re.search(IN_USE, str(error)) is not None for error in found] == [True, True]
    assert str(os.getpid()) in str(found[0])
    assert not (tmp_path / "run" / LOCK).exists()
    again = estimator(tmp_path / "run", steps=25, resume=True).fit(data())  # it has ended: whoever comes may have it
    assert again.history_ == est.history_


@pytest.mark.slow
def test_two_processes_do_not_fill_one_folder(at_once: Any, tmp_path: Path) -> None:
    """Of the command line, at once: one is refused, whichever it is, and the model is the other's."""
    np.save(tmp_path / "x.npy", data())
    command = ["fit", "VSC", "--data", str(tmp_path / "x.npy"), "--quiet", "--out", str(tmp_path / "run")]
    command += ["--steps", "500", "--hidden", "8", "--n-components", "5"]
    seeds = [["--seed", "0"], ["--seed", "1", "--resume"]]
    files = [tmp_path / f"told-{i}" for i in range(2)]
    codes = at_once(*({"command": command + m, "told": str(f)} for m, f in zip(seeds, files, strict=True)))
    reported = [file.read_text() for file in files]
    assert sorted(codes) == [0, 1], reported
    lost = codes.index(1)
    (line,) = reported[lost].splitlines()
    assert re.search(
        "in use by a run of process|already holds a run|holds .* run: continue|holds a different run", line
    )
    assert sv.load(tmp_path / "run").training.seed == 1 - lost
    steps = [json.loads(line)["step"] for line in (tmp_path / "run" / "history.jsonl").read_text().splitlines()]
    assert steps == list(range(10, 501, 10))
    assert not (tmp_path / "run" / LOCK).exists()


@pytest.mark.slow
def test_a_killed_run_locks_nothing(server: Any, uninterrupted: Any, tmp_path: Path) -> None:
    """Its lock file stays, and is in nobody's way: neither of a resumption nor of a first run."""
    assert server(tmp_path, kill={"where": "before", "step": 3}) == -signal.SIGKILL  # before the first report
    assert os.listdir(tmp_path / "run") == [LOCK]
    storage.check_folder(tmp_path / "run")
    assert server(tmp_path) == 0
    assert sorted(os.listdir(tmp_path / "run")) == ["checkpoint.safetensors", "history.jsonl"]
    assert result(tmp_path) == uninterrupted[False]
    (tmp_path / "others").mkdir()
    (tmp_path / "others" / LOCK).touch()
    (tmp_path / "others" / "thesis.tex").touch()
    with pytest.raises(sv.StorageError, match=r"not empty \('thesis.tex'"):
        storage.check_folder(tmp_path / "others")


def test_a_model_may_be_saved_into_the_folder_while_the_run_lasts(tmp_path: Path) -> None:
    """The lock of a save is another than that of a run, and neither waits for the other."""
    est = estimator(tmp_path / "run", steps=25).set_params(encoder=None)
    est.fit(data(), watch=lambda row: est.save(tmp_path / "run"))
    (weights,) = (tmp_path / "run").glob("model-*")
    kept = ["checkpoint.safetensors", "history.jsonl", weights.name, "model.json"]
    assert sorted(os.listdir(tmp_path / "run")) == kept
    assert sv.load(tmp_path / "run").n_components == 5


@pytest.mark.parametrize("reason", ["system", "file system", "folder"])
def test_without_locks_a_run_goes_on(reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*args: Any) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    if reason == "system":
        monkeypatch.setattr(lock, "fcntl", None)
    elif reason == "file system":
        monkeypatch.setattr(lock.fcntl, "flock", none)
    else:
        (tmp_path / "run" / LOCK).mkdir(parents=True)  # no file can be opened there
    assert estimator(tmp_path / "run", steps=10).fit(data()).n_steps_ == 10
    assert (tmp_path / "run" / LOCK).exists() == (reason == "folder")


def test_a_lock_that_is_taken_away_while_it_is_opened_is_looked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else two runs could hold two files of one name."""
    flock, left = lock.fcntl.flock, [2]

    def late(descriptor: int, operation: int) -> None:
        flock(descriptor, operation)
        if operation & lock.fcntl.LOCK_EX and left[0]:
            left[0] -= 1
            (tmp_path / LOCK).unlink()  # by a run that ended just now

    monkeypatch.setattr(lock.fcntl, "flock", late)
    with locked(tmp_path):
        assert left == [0]
        with pytest.raises(BlockingIOError, match="is in use"), locked(tmp_path):
            pass
        assert (tmp_path / LOCK).exists()  # who is refused takes nothing away
    assert not (tmp_path / LOCK).exists()
