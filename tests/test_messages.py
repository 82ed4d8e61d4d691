"""Claims: messages never fail nor land in results; work is saved before it is judged; exit codes say what happened."""

from __future__ import annotations

import errno
import io
import os
import re
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sparsevae as sv
from sparsevae import cli, messages
from sparsevae import exceptions as advice
from sparsevae.storage.checkpoint import RunFolder
from sparsevae.training import progress
from sparsevae.training.step import Run

ROOT = Path(__file__).parents[1]
X = np.random.default_rng(0).normal(size=(60, 5)).astype(np.float32)


class Failing(io.StringIO):
    """A stream of a full disk, from its n-th write on."""

    def __init__(self, n: int = 0, terminal: bool = False, number: int = errno.ENOSPC) -> None:
        super().__init__()
        self.left, self.terminal, self.number = n, terminal, number

    def write(self, text: str) -> int:
        self.left -= 1
        if self.left < 0:
            raise OSError(self.number, os.strerror(self.number))
        return super().write(text)

    def isatty(self) -> bool:
        return self.terminal


class NotFlushed(io.StringIO):
    """A stream of a full disk with a buffer."""

    def flush(self) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")


def closed() -> io.StringIO:
    stream = io.StringIO()
    stream.close()
    return stream


def ascii_only() -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="strict", write_through=True)


STREAMS = {
    "none": lambda: None,
    "closed": closed,
    "full": Failing,
    "full when flushed": NotFlushed,
    "bad descriptor": lambda: Failing(number=errno.EBADF),
    "broken pipe": lambda: Failing(number=errno.EPIPE),
    "ascii": ascii_only,
    "no stream at all": object,
}


def estimator(**training: Any) -> sv.VAE:
    """All its units are active, which is worth a warning."""
    chosen = {"steps": 60, "report_every": 20, "verbose": 0, "device": "cpu"}
    return sv.VAE(2, hidden=(8,), training=sv.Training(**chosen | training))


# -- messages ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", STREAMS)
def test_a_message_never_fails_and_never_goes_to_stdout(
    kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stream: Any = STREAMS[kind]()
    monkeypatch.setattr(sys, "stderr", stream)
    messages.note("ℵ line")
    bar = progress.Progress("VAE", 10, verbose=1)
    bar.note("an é")
    bar.close()
    assert not messages.standard_error().isatty()
    assert cli.main(["fit", "VCS", "-d", "x", "-o", "y"]) == 1  # its error line
    assert cli.main([]) == 2  # its help
    assert capsys.readouterr().out == ""
    if kind == "ascii":
        text = stream.buffer.getvalue().decode()
        assert text.startswith("\\u2135 line\nVAE: an \\xe9\nsparsevae: error: unknown model 'VCS'")


@pytest.mark.parametrize("writes", [0, 1])
def test_a_terminal_that_goes_away_ends_no_training(writes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Failing(writes, terminal=True, number=errno.EIO)
    losses = iter([1.0, 2.0, 3.0])
    monkeypatch.setattr(Run, "validate", lambda self, items: next(losses))
    monkeypatch.setattr(sys, "stderr", stream)
    chosen = {"validation_fraction": 0.2, "patience": 2, "report_every": 5, "verbose": 1}
    est = estimator(**chosen)
    with pytest.warns(sv.SparsityWarning):
        assert est.fit(X).n_steps_ == 15
    assert stream.left < 0
    assert sys.stderr is stream  # rich had put its own there
    assert not [t for t in threading.enumerate() if "rich" in t.name.lower()]


def test_one_module_writes_and_one_warns() -> None:
    """Lines of doctests apart."""
    rules = {
        r"^\s*print\(|sys\.(__)?std(out|err)": "messages.py",
        r"\bwarnings\.warn\(": "exceptions.py",
        r"stderr=True|\becho\(": "messages.py",  # of rich and typer
    }
    for path in (ROOT / "sparsevae").rglob("*.py"):
        for rule, place in rules.items():
            if path != ROOT / "sparsevae" / place:
                assert not re.search(rule, path.read_text(), re.MULTILINE), (path, rule)


# -- warnings ---------------------------------------------------------------------------------------------------


def test_where_warnings_are_errors_the_model_is_fitted_and_the_run_saved(tmp_path: Path) -> None:
    est = estimator(folder=str(tmp_path / "run"))
    with pytest.raises(sv.SparsityWarning, match="all 2 units are active"):  # warnings are errors here
        est.fit(X)
    assert est.n_steps_ == est.history_[-1]["step"] == 60
    assert not est.model_.training
    quiet = estimator(folder=str(tmp_path / "run"), resume=True)
    with pytest.warns(sv.SparsityWarning):
        quiet.fit(X)  # a finished run
    assert np.array_equal(est.transform(X), quiet.transform(X))
    with pytest.raises(sv.SparsityWarning):
        est.partial_fit(X)
    assert est.n_steps_ == 61


def test_a_warning_in_the_middle_of_a_run_waits_for_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    nonfinite_rows = X.copy()
    nonfinite_rows[:12] *= 1e30
    seen: list[int] = []
    est = estimator(validation_fraction=0.5, folder=str(tmp_path)).set_params(scale="none", likelihood="gaussian")
    monkeypatch.setattr(Run, "validate", lambda self, items: float("inf"))
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        with pytest.raises(RuntimeWarning, match="the validation loss is not finite at step 20"):
            est.fit(X, watch=lambda row: seen.append(row["step"]))
    assert seen == est.history_.column("step") == [20, 40, 60]
    assert RunFolder(tmp_path, {}).checkpoint.exists()
    assert [w.category for w in recwarn] == [sv.SparsityWarning]  # the other one is not lost
    assert recwarn[0].filename == __file__


def test_a_user_s_own_function_hears_its_warnings_at_once() -> None:
    received: list[int] = []

    def watch(row: Any) -> None:
        with pytest.warns(UserWarning, match="mine"):
            advice.warn_caller("mine")
        received.append(row["step"])

    with pytest.warns(sv.SparsityWarning):
        estimator().fit(X, watch=watch)
    assert received == [20, 40, 60]


def test_what_is_held_back_is_told_by_the_outermost_and_by_its_own_thread() -> None:
    def reported(caught: Any) -> list[str]:
        return [str(w.message) for w in caught]

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with advice.until_saved():
            advice.warn_caller("found before the work")
            assert reported(caught) == ["found before the work"]
            with advice.delay_warnings(), advice.delay_warnings():
                advice.warn_caller("first")
                other = threading.Thread(target=advice.warn_caller, args=["of another thread"])
                other.start()
                other.join()
            with advice.delay_warnings():
                advice.warn_caller("second")
            assert reported(caught)[1:] == ["of another thread"]
        assert reported(caught)[2:] == ["first", "second"]


@advice.delay_warnings()
def fails() -> None:
    advice.warn_caller("an error")  # warnings are errors here
    raise ZeroDivisionError


def test_no_warning_takes_the_place_of_what_ended_the_work() -> None:
    with pytest.raises(ZeroDivisionError):
        fails()


@pytest.mark.parametrize("kind", ["closed", "full"])
def test_a_warning_that_cannot_be_shown_is_no_error(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = STREAMS[kind]()
    monkeypatch.setattr(warnings, "showwarning", lambda message, *where, **more: stream.write(str(message)))
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        advice.warn_caller("unheard")


# -- the command line -------------------------------------------------------------------------------------------

FIT = "fit VAE -d {data} --n-components 2 --hidden 8 --steps 60 --report-every 20 --device cpu -o {out}"


def words(folder: Path, out: str = "model") -> list[str]:
    np.save(folder / "X.npy", X)
    return FIT.format(data=folder / "X.npy", out=folder / out).split()


def is_saved(folder: Path) -> bool:
    return bool(np.isfinite(sv.load(folder).transform(X)).all())


@pytest.mark.parametrize("kind", ["none", "closed", "full when flushed"])
def test_without_standard_error_a_finished_model_is_saved(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stderr", STREAMS[kind]())
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        assert cli.main(words(tmp_path)) == 0
    assert "saved in" in capsys.readouterr().out
    assert is_saved(tmp_path / "model")


@pytest.mark.parametrize(("kind", "code"), [("none", 0), ("closed", 1), ("full when flushed", 1)])
def test_without_standard_output_a_finished_model_is_saved(
    kind: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exit code tells of results that were to be read and could not be written."""
    monkeypatch.setattr(sys, "stdout", STREAMS[kind]())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert cli.main(words(tmp_path)) == code
    assert is_saved(tmp_path / "model")
    assert ("sparsevae: error: standard output: " in capsys.readouterr().err) == bool(code)


@pytest.mark.parametrize(("out", "err", "code"), [(True, False, 1), (False, True, 0), (True, True, 1)])
def test_a_process_ends_with_1_where_standard_output_fails_at_its_last_flush(
    out: bool, err: bool, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams = [NotFlushed() if fails else io.StringIO() for fails in (out, err)]
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", streams[0])
        patched.setattr(sys, "stderr", streams[1])
        found = [messages.finished(0), messages.finished(130)]
    assert found[0] == code
    assert found[1] == 130
    assert [stream.closed for stream in streams] == [out, err]  # Python flushes what is open once more


def test_where_warnings_are_errors_the_saved_model_is_told_and_then_the_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(words(tmp_path)) == 1  # warnings are errors here
    out, err = capsys.readouterr()
    assert f"saved in {tmp_path / 'model'}" in out
    assert err.splitlines()[-1].startswith("sparsevae: error: all 2 units are active")
    assert is_saved(tmp_path / "model")


@pytest.mark.filterwarnings("ignore::sparsevae.SparsityWarning")
def test_characters_that_standard_output_lacks_are_escaped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = ascii_only()
    monkeypatch.setattr(sys, "stdout", stream)
    assert cli.main(words(tmp_path, "modèle")) == 0
    assert cli.main(["fit", "VSC", "--help"]) == 0  # which the parser prints
    assert f"saved in {tmp_path}/mod\\xe8le; next" in stream.buffer.getvalue().decode()
    assert stream.errors == "strict"
    assert is_saved(tmp_path / "modèle")


PROCESSES = {
    "stderr full": ("{} 2>/dev/full", {}, 0),
    "stderr full, stdout ASCII": ("{} 2>/dev/full", {"PYTHONIOENCODING": "ascii"}, 0),
    "C locale": ("{}", {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}, 0),
    "stderr closed": ("{} 2>&-", {}, 0),
    "stdout closed": ("{} >&-", {}, 0),
    "all closed": ("{} <&- >&- 2>&-", {}, 0),
    "stdout full": ("{} >/dev/full", {}, 1),
    "both full": ("{} >/dev/full 2>/dev/full", {}, 1),
    "nobody reads": ("mkfifo p; : <p & {} >p", {}, 1),
    "warnings are errors": ("{}", {"PYTHONWARNINGS": "error"}, 1),
    "errors that nobody hears": ("{} 2>&-", {"PYTHONWARNINGS": "error"}, 1),
}


def process(line: str, folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A shell's line in which {} is the command."""
    command = [sys.executable, "-m", "sparsevae", *words]
    own = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"} | environment
    shell = ["sh", "-c", line.format('"$@"'), "sh", *command]
    return subprocess.run(shell, capture_output=True, text=True, env=own, cwd=folder)


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a full device")
def test_a_process_whose_output_fails_ends_with_its_own_exit_code(tmp_path: Path) -> None:
    """Python's own would be 120."""
    assert process("{} 2>/dev/full", tmp_path, "ft").returncode == 2
    done = process("{} >/dev/full", tmp_path, "--help")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.startswith("sparsevae: error: ")


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a full device")
@pytest.mark.parametrize("name", PROCESSES)
def test_whatever_becomes_of_its_output_a_process_leaves_a_model(name: str, tmp_path: Path) -> None:
    line, environment, code = PROCESSES[name]
    done = process(line, tmp_path, *words(tmp_path, "modèle"), **environment)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert is_saved(tmp_path / "modèle")
    assert not list((tmp_path / "modèle").glob(".*"))
