"""Claims: flags are the constructors', results go to stdout and the rest to stderr, mistakes are told in one line."""

from __future__ import annotations

import decimal
import errno
import json
import os
import shlex
import signal
import subprocess
import sys
import time
import types
import typing
import warnings
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from torch import nn

import sparsevae as sv
from sparsevae import cli, models
from sparsevae.analysis.audit import audit
from sparsevae.cli.values import members_of
from sparsevae.inputs.texts import Text
from sparsevae.parameters import Parameter, documented, parameters
from sparsevae.report import view as plots
from sparsevae.schedules import Schedule
from sparsevae.storage.checkpoint import RunFolder

pytestmark = pytest.mark.filterwarnings("ignore::sparsevae.exceptions.SparsityWarning")

SMALL = ["--data", "digits", "--hidden", "16", "--n-components", "9", "--device", "cpu"]
COVERED = {"folder": "--out", "verbose": "--quiet"}


class Output(typing.NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one JSON object on stdout."""
        assert self.code == 0, self.err
        assert self.out.count("\n") == 1
        return json.loads(self.out)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    """Call the command line as its entry point does: (exit code, stdout, stderr)."""

    def call(*args: object) -> Output:
        capsys.readouterr()
        code = cli.main([str(a) for a in args])
        return Output(code, *capsys.readouterr())

    return call


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A sparse and a dense model, fitted by the command line."""
    root = tmp_path_factory.mktemp("models")
    for model in ("VSC", "VAE"):
        assert cli.main(["fit", model, *SMALL, "--out", str(root / model), "--steps", "40", "--quiet"]) == 0
    return {model: root / model for model in ("VSC", "VAE")}


def test_columns_of_a_file_must_be_those_of_fit(run: Any, tmp_path: Path) -> None:
    rows, names = np.random.default_rng(0).normal(size=(40, 3)), ["height", "weight", "age"]

    def write(name: str, columns: list[str]) -> Path:
        text = "\n".join(",".join(f"{v:.3f}" for v in row) for row in rows[:, [names.index(c) for c in columns]])
        (tmp_path / name).write_text(f"{','.join(columns)}\n{text}\n")
        return tmp_path / name

    own, model = write("own.csv", names), tmp_path / "model"
    assert run("fit", "VAE", "-d", own, "-o", model, "--n-components", 2, "--hidden", 8, "--steps", 5, "-q").code == 0
    assert run("evaluate", model, "-d", own).err == ""
    for command in (["evaluate", model], ["encode", model, "-o", tmp_path / "codes.npz"], ["audit", model]):
        reported = run(*command, "-d", write("turned.csv", names[::-1]))
        assert reported.code == 1
        assert "not those of fit, in that order (the order differs): VAE expects height, weight, age" in reported.err


VALUES = np.random.default_rng(0).normal(size=60)
COLUMN: dict[str, tuple[str, Any]] = {
    "csv": (".csv", VALUES),
    "float": (".parquet", VALUES),
    "bool": (".parquet", VALUES > 0),
    "decimal": (".parquet", [decimal.Decimal(f"{v:.3f}") for v in VALUES]),
    "nullable": (".parquet", pd.array((9 * VALUES).astype(int), dtype="Int64")),
}


@pytest.mark.parametrize("kind", COLUMN)
def test_a_file_with_one_column_of_numbers_holds_numbers(kind: str, run: Any, tmp_path: Path) -> None:
    (ending, values), model = COLUMN[kind], tmp_path / "model"
    own, codes, frame = tmp_path / f"one{ending}", tmp_path / "codes.npz", pd.DataFrame({"height": values})
    frame.to_csv(own, index=False) if ending == ".csv" else frame.to_parquet(own, index=False)
    reported = run("fit", "VAE", "-d", own, "-o", model, "--n-components", 2, "--hidden", 8, "--steps", 5, "-q")
    assert (reported.code, reported.err) == (0, "")
    assert run("encode", model, "-d", own, "-o", codes).code == 0
    assert run("evaluate", model, "-d", own, "--json").json["rows"] == 60
    settings = sv.Training(steps=5, verbose=0)
    for given in (str(own), sv.data.read_array(own)):  # in Python alike
        est = sv.VAE(2, hidden=(8,), training=settings).fit(given)
        assert list(est.feature_names_in_) == ["height"]
        assert np.array_equal(np.load(codes)["codes"], est.transform(given))


# -- flags ------------------------------------------------------------------------------------------------------


def writable(p: Parameter) -> bool:
    """Whether a parameter can be written as text: neither a module nor the nested settings."""
    kinds = (p.type, *typing.get_args(p.type))
    return not any(isinstance(k, type) and issubclass(k, (nn.Module, sv.Training, Text)) for k in kinds)


def flag(p: Parameter) -> str:
    return "--schedule" if p.name == "schedules" else "--" + p.name.replace("_", "-")


EXAMPLES: list[tuple[Any, str, Any]] = [
    (int, "7", 7),
    (float, "0.375", 0.375),
    (str, "word", "word"),
    (tuple[int, ...], "7,5", (7, 5)),
    (tuple[int, int], "7,5", (7, 5)),
    (tuple[float, float], "1.5,2", (1.5, 2.0)),
    (dict[str, Schedule], "kl_z=cyclical:0:1:3", {"kl_z": sv.Cyclical(0.0, 1.0, 3)}),
]


def another(p: Parameter) -> tuple[list[str], Any]:
    """A value that is not the default, as a user writes it and as the constructor should get it."""
    union = typing.get_origin(p.type) in (typing.Union, types.UnionType)
    kinds = typing.get_args(p.type) if union else (p.type,)
    if bool in kinds:
        return ([f"--no-{flag(p)[2:]}"], False) if p.default else ([flag(p)], True)
    text, value = next((text, value) for kind, text, value in EXAMPLES if kind in kinds)
    return [flag(p), text], value


def default_text(p: Parameter) -> str:
    if p.default is None:
        return ""
    if isinstance(p.default, bool):
        return f"[default:{'' if p.default else 'no-'}{flag(p)[2:]}]"
    if isinstance(p.default, sv.Linear):
        return f"[default:linear:{p.default.start}:{p.default.stop}:{p.default.begin}:{p.default.end}]"
    return f"[default:{','.join(map(str, p.default)) if isinstance(p.default, tuple) else p.default}]"


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The estimators that `fit` would have fitted."""
    found: list[Any] = []
    monkeypatch.setattr("sparsevae.cli.commands.fit._fit", lambda est, *rest: found.append(est))
    return found


@pytest.mark.parametrize("name", models.known())
def test_every_parameter_has_a_flag_that_reaches_the_constructor(name: str, run: Any, built: list[Any]) -> None:
    own = {p.name: another(p) for p in documented(models.known()[name]) if writable(p)}
    settings = {p.name: another(p) for p in documented(sv.Training) if p.name not in COVERED}
    words = [w for text, _ in (own | settings).values() for w in text]
    assert run("fit", name, "--data", "digits", "--out", "here", "-q", *words).code == 0
    (est,) = built
    assert {k: getattr(est, k) for k in own} == {k: v for k, (_, v) in own.items()}
    assert {k: getattr(est.training, k) for k in settings} == {k: v for k, (_, v) in settings.items()}
    assert (est.training.folder, est.training.verbose) == ("here", 0)
    assert all(type(getattr(est, k)) is type(v) for k, (_, v) in own.items())


@pytest.mark.parametrize("name", models.known())
def test_without_flags_the_constructor_has_its_own_defaults(name: str, run: Any, built: list[Any]) -> None:
    assert run("fit", name.swapcase(), "--data", "digits", "--out", "here").code == 0
    cls = models.known()[name]
    plain = cls(training=cls.default_training().set_params(folder="here"))
    assert built[0].get_params() | {"training": None} == plain.get_params() | {"training": None}


@pytest.mark.parametrize("name", models.known())
def test_help_shows_every_flag_with_its_text_and_default(name: str, run: Any) -> None:
    out = run("fit", name, "--help").out
    shown = "".join(out.split())
    cls = models.known()[name]
    defaults = [p._replace(default=getattr(cls.default_training(), p.name)) for p in documented(sv.Training)]
    for p in (*documented(cls), *defaults):
        if not writable(p):
            assert flag(p) not in out.split()
        elif p.name in COVERED:
            assert COVERED[p.name] in shown
        else:
            assert flag(p) in shown
            switch = bool in members_of(p.type)
            limits = f" ({p.limits})" if p.limits and not switch else ""
            default = "" if switch and not isinstance(p.default, bool) else default_text(p)  # such as "auto"
            assert "".join((p.help + limits).split()) + default in shown


def test_a_schedule_is_written_as_its_name_and_its_numbers(run: Any, built: list[Any]) -> None:
    words = ("--slope", "linear:1:3:0:0.5", "--tau", "exponential:1:1e-3:0.5", "--tau-z", "learned")
    assert run("fit", "SDLGM", "-d", "digits", "-o", "here", *words).code == 0
    (est,) = built
    assert (est.slope, est.tau, est.tau_z) == (sv.Linear(1.0, 3.0, 0, 0.5), sv.Exponential(1.0, 1e-3, 0.5), "learned")
    assert (
        "expected FLOAT|NAME:VALUE:..., got 'fast'"
        in run("fit", "SDLGM", "-d", "digits", "-o", "x", "--slope", "fast").err
    )


@parameters
class Newcomer(models.VAE):
    """A model that nobody has told the command line of."""

    pull: Annotated[float | None, "How hard."] = 0.5
    places: Annotated[tuple[str, ...], "Where."] = ("here",)
    width: Annotated[int | str, "A number or a word."] = "wide"


def test_a_new_model_has_flags_by_being_registered(run: Any, built: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(models.REGISTRY, "Newcomer", Newcomer)
    assert "Newcomer" in run("fit", "--help").out
    text = run("fit", "newcomer", "--help").out
    assert "How hard.  [default: 0.5]" in text
    assert "Where.  [default: here]" in text
    run("fit", "newcomer", "-d", "digits", "-o", "x", "--pull", "none", "--places", "here, there", "--width", "3")
    assert (built[0].pull, built[0].places, built[0].width) == (None, ("here", "there"), 3)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--alpha", "much"], "'--alpha': expected FLOAT, got 'much'"),
        (["--steps", "1.5"], "'--steps': expected INT, got '1.5'"),
        (["--sharpness", "1,2,3"], "'--sharpness': expected FLOAT,FLOAT, got '1,2,3'"),
        (["--schedule", "kl_z=lineal:0:1"], "did you mean 'linear'?"),
        (["--schedule", "kl_z=linear:0"], "linear takes start:stop:begin:end"),
        (["--aplha", "0.1"], "--aplha"),
    ],
)
def test_a_wrong_flag_is_a_usage_error(words: list[str], message: str, run: Any, built: list[Any]) -> None:
    code, out, err = run("fit", "VSC", "-d", "digits", "-o", "x", *words)
    assert (code, out, built) == (2, "", [])
    assert message in err


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("ft", "unknown command 'ft': did you mean 'fit'? There are: fit, encode, {}; see 'sparsevae -h'"),
        ("data lst", "unknown command 'lst': did you mean 'list'? There are: list, info; see 'sparsevae data -h'"),
        ("--colour", "no such option: --colour; see 'sparsevae -h'"),
        ("fit vsc", "missing option '--data' / '-d'; see 'sparsevae fit vsc -h'"),
        ("fit vsc --data", "option '--data' requires an argument; see 'sparsevae fit vsc -h'"),
        (
            "fit vsc -d digits -o x --split all",
            "invalid value for '--split': expected train or test, got 'all'; see 'sparsevae fit vsc -h'",
        ),
        (
            "fit vsc -d tiles -o x --data-option n",
            "invalid value for '--data-option': expected NAME=VALUE, got 'n'; see 'sparsevae fit vsc -h'",
        ),
        ("sample", "missing argument 'DIR'; see 'sparsevae sample -h'"),
        (
            "sample x -n 0",
            "invalid value for '-n': expected an integer, 1 or above, got '0'; see 'sparsevae sample -h'",
        ),
        ("sample x --seed x", "invalid value for '--seed': expected INT, got 'x'; see 'sparsevae sample -h'"),
        (
            "evaluate x -d digits --caps 5,10,",
            "invalid value for '--caps': expected INT,..., got '5,10,'; see 'sparsevae evaluate -h'",
        ),
    ],
)
def test_a_usage_error_is_one_line_that_says_where_help_is(words: str, line: str, run: Any) -> None:
    code, out, err = run(*words.split())
    assert (code, out, err.count("\n")) == (2, "", 1)
    start, _, end = f"sparsevae: error: {line}\n".partition("{}")
    assert err.startswith(start)
    assert err.endswith(end)


@pytest.mark.parametrize("words", ["", "fit", "data"])
def test_a_group_alone_shows_its_help(words: str, run: Any) -> None:
    code, out, err = run(*words.split())
    assert (code, out, err.splitlines()[0]) == (2, "", run(*words.split(), "-h").out.splitlines()[0])


# -- the round trip ---------------------------------------------------------------------------------------------


def test_fit_leaves_a_model_that_python_loads(folders: dict[str, Path]) -> None:
    assert {"model.json", "checkpoint.safetensors", "history.jsonl"} < set(os.listdir(folders["VSC"]))
    est = sv.load(folders["VSC"])
    assert (est.n_components, est.hidden, est.training.steps, est.n_steps_) == (9, (16,), 40, 40)
    assert (est.training.folder, est.training.resume) == (None, False)


def test_sparse_codes_are_those_of_transform(folders: dict[str, Path], tmp_path: Path, run: Any) -> None:
    from pyarrow import parquet

    X = sv.data.load("digits").X_test
    est = sv.load(folders["VSC"])
    refined = tmp_path / "refined.npz"
    run("encode", folders["VSC"], "--data", "digits", "--out", refined, "--max-active", 2, "--refine")
    assert (scipy.sparse.load_npz(refined) != est.transform(X, max_active=2, refine=True)).nnz == 0
    expected = est.transform(X, max_active=2)
    for ending in ("npz", "parquet"):
        out = tmp_path / f"codes.{ending}"
        found = run("encode", folders["VSC"], "--data", "digits", "--out", out, "--max-active", 2, "--json").json
        assert found == {
            "out": str(out),
            "sparse": True,
            "split": "test",
            "rows": 359,
            "units": 9,
            "nonzeros": expected.count_nonzero() / 359,
        }
    codes = scipy.sparse.load_npz(tmp_path / "codes.npz")
    assert codes.format == "csr"
    assert (codes != expected).nnz == 0
    assert np.array_equal(sv.data.read_array(tmp_path / "codes.npz").X.toarray(), expected.toarray())
    table = parquet.read_table(tmp_path / "codes.parquet").to_pydict()
    assert table["row"] == list(range(359))
    assert table["indices"] == [list(r.indices) for r in expected]
    assert table["values"] == [list(r.data) for r in expected]
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".tmp")]


@pytest.mark.parametrize("model", ["VSC", "VAE"])
def test_codes_as_csv_are_a_table_that_reads_back_to_the_same_codes(
    model: str, folders: dict[str, Path], tmp_path: Path, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every unit has its column under its own name, zeros are there, and every float32 comes back as it was."""
    monkeypatch.setattr("sparsevae.cli.commands.encode._ROWS", 100)
    est, out = sv.load(folders[model]), tmp_path / "codes.csv"
    expected = est.transform(sv.data.load("digits").X_test)
    expected = expected.toarray() if model == "VSC" else expected
    assert run("encode", folders[model], "-d", "digits", "-o", out).code == 0
    assert out.read_text().splitlines()[0] == ",".join(est.get_feature_names_out())
    for found, names in (sv.data.read_array(out)[:2], (frame := pd.read_csv(out), tuple(frame.columns))):
        assert np.array_equal(np.asarray(found, dtype=np.float32), expected)
        assert list(names) == list(est.get_feature_names_out())


def test_dense_codes_are_an_array_or_columns(folders: dict[str, Path], tmp_path: Path, run: Any) -> None:
    expected = sv.load(folders["VAE"]).transform(sv.data.load("digits").X)
    for ending in ("npz", "parquet"):
        out = tmp_path / f"codes.{ending}"
        assert (
            "1,438 rows (train) x 9" in run("encode", folders["VAE"], "-d", "digits", "--split", "train", "-o", out).out
        )
    assert np.array_equal(np.load(tmp_path / "codes.npz")["codes"], expected)
    table = sv.data.read_array(tmp_path / "codes.parquet")
    assert table.columns == tuple(f"vae{j}" for j in range(9))
    assert np.array_equal(table.X, expected)


def test_evaluate_says_what_the_estimator_says(folders: dict[str, Path], run: Any) -> None:
    est, X = sv.load(folders["VSC"]), sv.data.load("digits").X_test
    found = run("evaluate", folders["VSC"], "-d", "digits", "--caps", "1,3", "--importance", 5, "--json").json
    expected = est.evaluate(X, caps=(1, 3))
    bound = est.importance_bound(X, n_samples=5)
    assert found.pop("importance")["bound"] == pytest.approx(bound.bound.mean())
    assert {k: found.pop(k) for k in ("model", "data", "split")} == {"model": "VSC", "data": "digits", "split": "test"}
    assert found == expected | {"caps": {str(k): v for k, v in expected["caps"].items()}}


def test_evaluate_names_the_score_and_what_it_depends_on(folders: dict[str, Path], run: Any) -> None:
    shown = run("evaluate", folders["VSC"], "--data", "digits", "--caps", "1,3").out
    assert "a lower bound on log p(x)" in shown
    floor = sv.load(folders["VSC"]).variance_floor
    assert [line.split()[:3] for line in shown.splitlines() if line.startswith("variance floor")] == [
        ["variance", "floor", f"{floor:g}"]
    ]
    assert [line.split()[0] for line in shown.splitlines()[-3:]] == ["1", "3", "no"]


def test_of_one_row_the_standard_errors_are_not_known(folders: dict[str, Path], tmp_path: Path, run: Any) -> None:
    np.save(tmp_path / "one.npy", sv.data.load("digits").X[:1])
    np.save(tmp_path / "two.npy", sv.data.load("digits").X[:2])
    command = ["evaluate", folders["VSC"], "--importance", 5, "--data"]
    assert run(*command, tmp_path / "two.npy").out.count(" ± ") == 2
    shown = run(*command, tmp_path / "one.npy")
    assert (shown.code, shown.err) == (0, "")
    assert "±" not in shown.out
    found = run(*command, tmp_path / "one.npy", "--json").json
    assert found["score_standard_error"] is found["importance"]["standard_error"] is None
    lines = {line.split("  ")[0]: line for line in shown.out.splitlines()}
    assert f"{found['score']:.2f}" in lines["score"]
    assert f"{found['importance']['bound']:.2f}" in lines["importance bound"]


def test_evaluate_prints_three_numbers_of_a_discrete_code(tmp_path: Path, run: Any) -> None:
    X = (sv.data.load("digits").X[:60] > 127).astype(float)
    np.save(tmp_path / "X.npy", X)
    est = sv.SDLGM(6, cap=2, hidden=(8,), gradient="paper", training=sv.Training(steps=5, verbose=0)).fit(X)
    est.save(tmp_path / "model")
    found = est.evaluate(X)
    shown = {
        line[:18].strip(): line[18:]
        for line in run("evaluate", tmp_path / "model", "-d", tmp_path / "X.npy").out.splitlines()
    }
    for name, key in (
        ("score", "score"),
        ("relaxed objective", "relaxed_objective"),
        ("importance bound", "importance_bound"),
    ):
        assert f"{found[key]:.2f}" in shown[name]
    assert "not a bound" in shown["relaxed objective"]


@pytest.mark.slow
def test_report_writes_the_page_of_a_saved_model(folders: dict[str, Path], tmp_path: Path, run: Any) -> None:
    page = tmp_path / "page.html"
    out = run("report", folders["VSC"], "--data", "digits", "--out", page, "--title", "My <digits>")
    assert out == (0, f"{page}\n", "")
    text = page.read_text()
    assert "My &lt;digits&gt;" in text
    assert "Typical rows of each label" in text  # the data set's own labels
    assert "colours deviations" not in text  # and its shape
    out = run("report", folders["VSC"], "--data", "digits", "--out", tmp_path / "page.txt")
    assert (out.code, "ends in .html" in out.err) == (1, True)


def test_digits_from_a_table_are_hinted_at_and_drawn_by_their_flag(
    folders: dict[str, Path], tmp_path: Path, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """64 columns are a heat map until somebody says that they are an image; nothing is guessed."""
    seen: list[Any] = []
    monkeypatch.setattr("sparsevae.report.page._pictures", lambda est, view: seen.append(view.image_shape) or [])
    np.save(tmp_path / "x.npy", sv.data.load("digits").X_test[:40])
    reported = run("report", folders["VSC"], "--data", tmp_path / "x.npy", "--out", tmp_path / "page.html")
    assert reported.code == 0
    assert "; if they are images, pass image_shape=(8, 8) (--image-shape 8,8)" in reported.err
    words = ["--data", tmp_path / "x.npy", "--out", tmp_path / "page.html", "--image-shape", "8,8"]
    assert run("report", folders["VSC"], *words).err == ""
    assert seen == [None, (8, 8)]
    wrong = run("report", folders["VSC"], *words[:-1], "8,9")
    assert (wrong.code, "image_shape must be (height, width)" in wrong.err) == (1, True)


def test_what_was_written_is_told_as_json(
    folders: dict[str, Path], tmp_path: Path, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "s.png"
    reported = run("sample", folders["VSC"], "-n", 5, "--seed", 3, "--out", out, "--json").json
    assert reported == {"model": "VSC", "out": str(out), "shape": [5, 64], "seed": 3}
    page = tmp_path / "page.html"
    monkeypatch.setattr("sparsevae.report.page._pictures", lambda est, view: [])
    reported = run("report", folders["VSC"], "-d", "digits", "--out", page, "--json").json
    about = {"model": "VSC", "data": "digits", "split": "test"}
    assert reported == {**about, "out": str(page), "rows": 359, "bytes": page.stat().st_size}


def test_audit_says_what_python_says_and_gives_a_verdict(folders: dict[str, Path], run: Any) -> None:
    expected = audit(sv.load(folders["VSC"]), sv.data.load("digits").X_test, gain_rows=100)
    found = run("audit", folders["VSC"], "-d", "digits", "--gain-rows", 100, "--json").json
    assert {k: found.pop(k) for k in ("model", "data", "split")} == {"model": "VSC", "data": "digits", "split": "test"}
    assert found == expected.to_dict()
    shown = run("audit", folders["VSC"], "-d", "digits", "--gain-rows", 100)
    assert shown.code == 0
    lines = shown.out.splitlines()
    assert lines[2].split()[:3] == ["unit", "var(mu)", "mean(s2)"]
    assert [int(line.split()[0]) for line in lines[3:12]] == np.argsort(-expected.kl, kind="stable").tolist()
    assert lines[-1] == expected.words
    assert max(map(len, lines[2:12])) <= 80  # as wide as a narrow terminal: no line is broken


def test_samples_are_the_estimators_and_a_picture(folders: dict[str, Path], tmp_path: Path, run: Any) -> None:
    from matplotlib.image import imread

    assert run("sample", folders["VSC"], "-n", 5, "--seed", 3, "--out", tmp_path / "s.npy").code == 0
    assert np.array_equal(np.load(tmp_path / "s.npy"), sv.load(folders["VSC"]).sample(5, seed=3))
    assert run("sample", folders["VSC"], "-n", 5, "--out", tmp_path / "s.png").code == 0
    assert imread(tmp_path / "s.png").shape[:2] == (2 * 66, 3 * 66)
    assert run("sample", folders["VSC"], "-n", 5, "--out", tmp_path / "w.png", "--image-shape", "4,16").code == 0
    assert imread(tmp_path / "w.png").shape[:2] == (2 * (16 + 2), 3 * (64 + 2))


def test_a_colour_model_s_samples_are_colour_pictures(tmp_path: Path, run: Any) -> None:
    """image_shape is the model's own or the flag's: four pixels a value, in its place and colour."""
    from matplotlib.image import imread

    rows = np.random.default_rng(0).random((30, 16 * 8 * 3)).astype(np.float32)
    quick = sv.Training(steps=20, learning_rate=1e-2, verbose=0)
    for shape, words in (((16, 8, 3), []), (None, ["--image-shape", "16,8,3"])):
        est = sv.VAE(2, hidden=(8,), image_shape=shape, training=quick).fit(rows)
        assert plots.make_view(est, rows).image_shape == shape
        est.save(tmp_path / "model")
        assert run("sample", tmp_path / "model", "-n", 1, "-o", tmp_path / "c.png", *words).code == 0
        picture = imread(tmp_path / "c.png")[..., :3]
        assert picture.shape == (66, 34, 3)
        drawn = est.sample(1)
        low, high = np.percentile(drawn, (1, 99))
        expected = ((drawn - low) / (high - low)).clip(0, 1).reshape(16, 8, 3)
        for part in np.split(picture[1:-1, 1:-1].reshape(16, 4, 8, 4, 3), 4, axis=1):
            np.testing.assert_allclose(part[:, 0].mean(2), expected, atol=1 / 255)
    refused = run("sample", tmp_path / "model", "-o", tmp_path / "d.png")
    assert (refused.code, "rows of 384 values cannot be drawn" in refused.err) == (1, True)
    assert run("sample", tmp_path / "model", "-o", tmp_path / "d.png", "--image-shape", "16,x").code == 2


def test_which_shapes_have_a_picture() -> None:
    """Grey and colour; one channel is grey, other numbers of channels have none unless a shape is given."""
    rows = np.random.default_rng(0).random((10, 64)).astype(np.float32)
    quick = sv.Training(steps=2, verbose=0)
    for own, drawn in (((8, 8), (8, 8)), ((8, 8, 1), (8, 8)), ((4, 8, 2), None), (None, None)):
        est = sv.VAE(2, hidden=(4,), image_shape=own, training=quick).fit(rows)
        assert plots.picture_shape(est) == drawn
        assert plots.picture_shape(est, (4, 16)) == (4, 16)
    for wrong in ((8, 9), (4, 8, 2), (64,)):
        with pytest.raises(ValueError, match=r"image_shape must be \(height, width\)"):
            plots.picture_shape(est, wrong)


def test_a_second_stage_is_fitted_and_sampled_from_the_command_line(
    folders: dict[str, Path], tmp_path: Path, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that Python fits with its own defaults, saved with an unchanged model."""
    before, X = sv.load(folders["VSC"]), sv.data.load("digits").X
    before.save(tmp_path / "model")
    assert "second-stage DIR --data D" in run("sample", tmp_path / "model", "--second-stage").err
    with monkeypatch.context() as patch:
        patch.setattr(sv.Training, "total_steps", lambda self, rows: 30)
        found = run("second-stage", tmp_path / "model", "-d", "digits", "-q", "--json").json
        expected = sv.second_stage(sv.load(folders["VSC"]).set_params(training__verbose=0), X)
    assert (found["model"], found["rows"], found["units"], found["steps"]) == ("VSC", 1438, 9, 30)
    after, stage = sv.load(tmp_path / "model"), sv.load(tmp_path / "model" / "second-stage")
    assert found["out"] == str(tmp_path / "model" / "second-stage")
    assert stage.get_params(deep=False).keys() == expected.get_params(deep=False).keys()
    ignored = {"training": None, "training__verbose": None}
    assert stage.get_params() | ignored == expected.get_params() | ignored
    assert np.array_equal(stage.sample(5), expected.sample(5))
    assert np.array_equal(after.score_samples(X[:20]), before.score_samples(X[:20]))
    assert run("sample", tmp_path / "model", "--second-stage", "-n", 4, "-o", tmp_path / "s.npy").code == 0
    assert np.array_equal(np.load(tmp_path / "s.npy"), after.sample(4, second_stage=stage))
    words = ["--steps", 20, "--seed", 5, "--n-components", 3, "--split", "test", "-q"]
    shown = run("second-stage", tmp_path / "model", "-d", "digits", *words)
    assert "second stage of VSC on 359 codes (spike-slab), 20 steps" in shown.out
    stage = sv.load(tmp_path / "model" / "second-stage")
    assert (stage.training.steps, stage.training.seed, stage.n_components) == (20, 5, 3)
    after.set_params(training__steps=2).partial_fit(X).save(tmp_path / "model")
    refused = run("sample", tmp_path / "model", "--second-stage", "-o", tmp_path / "s.npy")
    assert (refused.code, "belongs to other weights than" in refused.err) == (1, True)


def test_an_interrupted_second_stage_leaves_the_model_alone(
    folders: dict[str, Path], tmp_path: Path, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sparsevae.training.step import Run

    sv.load(folders["VSC"]).save(tmp_path / "model")
    advance = Run.advance
    monkeypatch.setattr(Run, "advance", lambda self: (advance(self), signal.raise_signal(signal.SIGINT)))
    code, out, err = run("second-stage", tmp_path / "model", "-d", "digits", "--quiet")
    assert (code, out) == (130, "")
    assert f"interrupted; {tmp_path / 'model'} is unchanged" in err
    assert not (tmp_path / "model" / "second-stage").exists()


def test_a_score_that_is_no_bound_says_so(tmp_path: Path, run: Any) -> None:
    fit = ["fit", "VAE", *SMALL, "--out", tmp_path / "model", "--steps", 5, "--quiet", "--no-noise"]
    assert run(*fit).code == 0
    assert (
        "log p(x, z) at the code of an autoencoder without noise, not a bound"
        in run("evaluate", tmp_path / "model", "-d", "digits").out
    )


def test_data_can_be_files_and_have_options(tmp_path: Path, run: Any) -> None:
    tiles = ["--data", "tiles", "--data-option", "n=40", "--data-option", "n_test=0"]
    found = run("fit", "vsc", *tiles, "--out", tmp_path / "a", "--steps", 2, "--hidden", 4, "--json").json
    assert (found["rows"], found["features"], found["likelihood"]) == (40, 784, "bernoulli")
    np.save(tmp_path / "X.npy", sv.data.load("tiles", n=40, n_test=0).X)
    found = run("evaluate", tmp_path / "a", "--data", tmp_path / "X.npy", "--json").json
    assert (found["rows"], found["split"], found["score_meaning"]) == (40, "train", "bound")


def test_the_closing_hint_is_a_command_that_works(tmp_path: Path, run: Any) -> None:
    X = np.random.default_rng(0).random((30, 5))
    np.savez(tmp_path / "two arrays.npz", x=X[:20], **{"1": X})
    words = ["-d", tmp_path / "two arrays.npz", "--data-option", "key=1", "--steps", 2, "--hidden", 4, "-q"]
    shown = run("fit", "VAE", *words, "-o", tmp_path / "a model").out
    sparsevae, *hint = shlex.split(shown.splitlines()[-1].partition("next: ")[2])
    assert (sparsevae, run(*hint, "--json").json["rows"]) == ("sparsevae", 30)


def test_data_list_and_info(run: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert [d["name"] for d in run("data", "list", "--json").json["data"]] == sv.data.names()
    assert run("data", "info", "digits", "--json").json["rows"] == 1438
    assert "digits" in run("data", "list").out
    assert "test_fraction=0.2" in run("data", "info", "digits").out
    rows = {line.split()[0]: line for line in run("data", "list").out.splitlines()[1:]}
    assert "up to 162,770" in rows["celeba"]  # of which a user's copy may hold a part
    assert "up to" not in rows["mnist"]
    assert "up to 162,770 train" in " ".join(run("data", "info", "celeba").out.split())
    monkeypatch.delenv("SPARSEVAE_DATA", raising=False)
    monkeypatch.setenv("SPARSEVAE_CACHE", str(tmp_path))
    where = {line.split()[0]: line for line in run("data", "list").out.splitlines()[1:]}
    for name, place in (("celeba", "by hand"), ("digits", "here"), ("mnist", "to fetch"), ("yelp", "by hand")):
        assert where[name].rstrip().endswith(f"  {place}")


def test_a_download_is_told_and_under_quiet_nothing_but_the_error(
    run: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import pooch

    def fail(url: str, **rest: Any) -> None:
        pooch.get_logger().info("Downloading data from %s", url)
        raise OSError("no route to host")

    monkeypatch.delenv("SPARSEVAE_DATA", raising=False)
    monkeypatch.setenv("SPARSEVAE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(pooch, "retrieve", fail)
    for flags, before in ((["-q"], 0), ([], 2)):
        code, out, err = run("fit", "VSC", "-d", "mnist", "-o", tmp_path / "m", *flags)
        *reported, error = err.splitlines()
        assert (code, out, len(reported)) == (1, "", before)
        assert all(line.startswith("sparsevae: downloading https://") for line in reported)
        assert error.startswith("sparsevae: error: mnist is not on this machine and was not downloaded: put its files")
        assert len(error) < 1000


def test_fit_prints_one_json_object_and_progress_elsewhere(tmp_path: Path, run: Any) -> None:
    out = run("fit", "VSC", *SMALL, "--out", tmp_path / "a", "--steps", 20, "--json")
    assert out.json["final"].keys() >= {"loss", "nll_x", "kl_z", "active_units", "nonzeros"}
    assert (out.json["model"], out.json["steps"], out.json["rows"]) == ("VSC", 20, 1438)
    again = run("fit", "VSC", *SMALL, "--out", tmp_path / "a", "--steps", 20, "--json", "--resume")
    assert again.json == out.json


def test_demo_prints_the_path_of_its_page(run: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def left(out: Path, seed: int) -> Any:
        page = out / f"page-{seed}.html"
        return types.SimpleNamespace(page=page, picture=out / "p.png", model=out / "m", numbers={"score": 1.5})

    monkeypatch.setitem(sys.modules, "sparsevae.report.demo", types.SimpleNamespace(run=left))  # type: ignore[arg-type]
    assert run("demo", "--out", tmp_path, "--seed", 3).out == f"{tmp_path / 'page-3.html'}\n"
    assert run("demo", "--out", tmp_path, "--seed", 3, "--json").json == {
        "out": str(tmp_path / "page-3.html"),
        "picture": str(tmp_path / "p.png"),
        "model": str(tmp_path / "m"),
        "score": 1.5,
    }


# -- mistakes ---------------------------------------------------------------------------------------------------


MISTAKES = [
    ("fit VCS -d digits -o {new}", "unknown model 'VCS': did you mean 'VSC'?"),
    ("fit VSC -d digit -o {new}", "did you mean 'digits'?"),
    ("fit VSC -d no.csv -o {new}", "no.csv: no such file"),
    ("fit VSC -d {nan} -o {new}", "NaN"),
    ("fit VSC -d digits -o {new} --alpha 2", "(0, 1]"),
    ("fit VSC -d digits -o {new} --steps 0", "steps must be"),
    ("fit VSC -d digits -o {new} --schedule kl=constant:1", "this model has"),
    ("fit VSC {small} -o {vsc}", "holds a finished run and its model: choose another folder"),
    ("fit VSC {small} -o {vsc} --resume --steps 41", "steps: 40 then, 41 now"),
    ("fit VSC {small} -o {model} --resume", "holds a model without a run"),
    ("fit VSC -d digits -o {other}", "is not from sparsevae"),
    ("fit VSC -d digits -o {nan}/model", "nan.csv is no folder"),
    ("fit VSC -d digits -o {new}/deep --schedule kl=constant:1", "this model has"),
    ("fit VSC -d digits -o {new} --data-option seed=x", "seed must be an integer, 0 or above, got 'x'"),
    ("fit VSC -d {header} -o {new}", "there are no rows"),
    ("fit VSC -d {two} -o {new}", "contains 2 arrays (x, y): name one, in Python with key='x', on the command line"),
    ("encode {none} -d digits -o {folder}", "expected a file to write, found a folder"),
    ("encode {none} -d digits -o {device}", "expected a file to write, found no regular file"),
    ("report {none} -d digits -o {nan}/page.html", "nan.csv is no folder"),
    ("demo -o {nan}", "found a file"),
    ("demo -o {other}", "is not from sparsevae"),
    ("encode {vsc} -d {narrow} -o {codes}", "X has 5 features, but VSC"),
    ("encode {other} -d digits -o {codes}", "model.json"),
    *(
        (f"{words} {{run}} -d digits", "run holds an unfinished run and no saved model yet: continue it with --resume")
        for words in ("evaluate", "encode -o {codes}", "report -o {new}.html", "audit", "second-stage")
    ),
    ("sample {run} -o {new}.npy", "unfinished run and no saved model yet: continue it with --resume"),
    ("encode {vsc} -d digits -o {new}.txt", "ends in .npz, .parquet or .csv"),
    ("encode {vae} -d digits -o {codes} --max-active 3", "VAE codes are dense"),
    ("encode {vsc} -d digits -o {codes} --max-active 0", "max_active must be"),
    ("encode {vsc} -d {narrow} -o {codes} --split test", "no test part"),
    (
        "sample {vsc} -o {new}.png --image-shape 9,9",
        "image_shape must be (height, width) or (height, width, 3) of 64 values; got (9, 9)",
    ),
    ("second-stage {vsc} -d digits --steps 0", "steps must be"),
    ("second-stage {vsc} -d digits --steps 2 --n-components 0", "n_components must be"),
    ("second-stage {other} -d digits", "model.json"),
    ("data info mnits", "did you mean 'mnist'?"),
]


@pytest.mark.parametrize(("words", "message"), MISTAKES)
def test_a_mistake_is_one_line_and_exit_code_1(
    words: str, message: str, folders: dict[str, Path], run: Any, tmp_path: Path
) -> None:
    places = {name: tmp_path / name for name in ("new", "model", "other", "none", "run")}
    places |= {name: tmp_path / f"{name}.npz" for name in ("two", "folder", "device")}
    places["header"] = tmp_path / "header.csv"
    places["header"].write_text("a,b\n")
    np.savez(places["two"], x=np.ones((3, 5)), y=np.ones(3))
    places["folder"].mkdir()
    places["device"].symlink_to(os.devnull)
    places |= {"nan": tmp_path / "nan.csv", "narrow": tmp_path / "narrow.npy", "codes": tmp_path / "codes.npz"}
    places["nan"].write_text("a,b\n1,2\n,3\n4,5\n")
    np.save(places["narrow"], np.ones((3, 5), dtype=np.float32))
    places["other"].mkdir()
    places["run"].mkdir()
    (places["run"] / "history.jsonl").touch()  # as a run that is stopped early leaves it
    (places["other"] / "letter.txt").write_text("mine")
    sv.load(folders["VSC"]).save(places["model"])
    before = set(tmp_path.rglob("*"))
    line = words.format(**places, vsc=folders["VSC"], vae=folders["VAE"], small=" ".join(SMALL))
    code, out, err = run(*line.split())
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert err.startswith("sparsevae: error: ")
    assert message in err
    assert set(tmp_path.rglob("*")) == before


def test_out_may_be_a_link_to_a_folder_that_is_not_there_yet(run: Any, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("runs/new")
    (tmp_path / "circle").symlink_to("circle")
    words = ["fit", "VSC", *SMALL, "--steps", 2, "-q", "--out"]
    assert run(*words, tmp_path / "link").code == 0
    assert sv.load(tmp_path / "runs" / "new").n_steps_ == 2
    refused = run(*words, tmp_path / "circle")
    assert (refused.code, "circle is a link without a target" in refused.err) == (1, True)


@pytest.mark.parametrize(
    ("n", "name", "begun"),
    [(1, "history.jsonl", False), (5, "checkpoint.safetensors", True), (7, "model-", True)],
)
def test_a_full_disk_is_told_with_the_file_and_what_continues_the_run(
    n: int, name: str, begun: bool, run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the n-th of ten fsyncs: history, checkpoint and their folder, twice; weights, model.json, the folder each."""
    fsync, calls = os.fsync, []

    def full(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) == n:
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    out = tmp_path / "m"
    words = ["fit", "VSC", *SMALL, "--steps", 20, "--checkpoint-every", 10, "-q", "--out", out]
    code, _, err = run(*words)
    assert (code, err.count("\n")) == (1, 1)
    assert err.startswith(f"sparsevae: error: {out / name}")
    assert ": no space left on device" in err
    assert (f"{out} holds the run as of its last checkpoint: continue it with resume=True (--resume)" in err) == begun
    if begun:
        assert run(*words, "--resume").code == 0
        assert sv.load(out).n_steps_ == 20


def test_debug_shows_the_traceback_and_bugs_always_do(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="unknown data set"):
        run("data", "info", "nothing", "--debug")

    def broken(*args: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("sparsevae.cli.commands.fit._fit", broken)
    with pytest.raises(ZeroDivisionError):
        run("fit", "VSC", "-d", "digits", "-o", "x")


@pytest.mark.filterwarnings("default:careful")
def test_a_warning_is_one_line(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "sparsevae.cli.commands.fit._fit", lambda *args: warnings.warn("careful", UserWarning, stacklevel=1)
    )
    assert run("fit", "VSC", "-d", "digits", "-o", "x") == (0, "", "sparsevae: warning: careful\n")


# -- processes --------------------------------------------------------------------------------------------------


def process(*words: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "sparsevae", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        cwd=Path(__file__).parents[2],
    )


def reports(folder: Path) -> int:
    history = folder / "history.jsonl"
    return history.stat().st_size if history.exists() else 0


def test_start_up_is_light() -> None:
    code = "import sys; from sparsevae.cli import main; print(main(['--help']), *sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    loaded = set(out.splitlines()[-1].split())
    assert "0" in loaded
    assert not loaded & {"torch", "sklearn", "scipy", "pandas", "pyarrow", "matplotlib", "numpy"}


INTERRUPTED = "sparsevae: interrupted.\n"
KILLED_AT = """
import importlib.abc, os, sys
number, module = int(sys.argv[1]), sys.argv[2]

class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, *rest):
        if name == module:
            try:
                os.kill(os.getpid(), number)
            except BaseException:  # as the code of some C modules does
                pass

sys.meta_path.insert(0, Finder())
sys.argv = ["sparsevae", "evaluate", "nowhere", "-d", "digits"]
from sparsevae.__main__ import main
sys.exit(main())
"""


@pytest.mark.slow
@pytest.mark.parametrize(("number", "module"), [(signal.SIGINT, "typer"), (signal.SIGTERM, "numpy")])
def test_a_signal_during_an_import_ends_with_one_line(number: int, module: str) -> None:
    words = [sys.executable, "-c", KILLED_AT, str(int(number)), module]
    done = subprocess.run(words, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert (done.returncode, done.stdout, done.stderr) == (128 + number, "", INTERRUPTED)


@pytest.mark.parametrize("lost_in", ["weakref.ref(item, stop)", "setattr(item, 'last', stop)"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_where_exceptions_are_dropped_comes_again(number: int, lost_in: str) -> None:
    code = f"""
import signal, time, weakref
from sparsevae import __main__ as command

class Item:
    def __del__(self):
        getattr(self, "last", lambda item: None)(self)

def stop(item):
    signal.raise_signal({int(number)})

if {lost_in!r}.startswith("weakref"):  # as those of weakref's own dictionaries
    stop.__code__ = stop.__code__.replace(co_filename=weakref.__file__)
signal.signal({int(number)}, command._stop)
item = Item()
kept = {lost_in}
del item
try:
    time.sleep(5)
except BaseException as error:
    print(type(error).__name__, error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parents[2])
    expected = "KeyboardInterrupt \n" if number == signal.SIGINT else "SystemExit 143\n"
    assert (done.stdout, done.stderr) == (expected, "")


@pytest.mark.parametrize("stop", [KeyboardInterrupt(), SystemExit(143)])
def test_a_signal_that_no_command_answers_is_told(stop: BaseException, run: Any, monkeypatch: Any) -> None:
    def interrupted(*args: object) -> None:
        raise stop

    monkeypatch.setattr("sparsevae.cli.commands.evaluate.load_model", interrupted)
    expected = 130 if isinstance(stop, KeyboardInterrupt) else 143
    assert run("evaluate", "x", "-d", "digits") == (expected, "", INTERRUPTED)


@pytest.mark.slow
@pytest.mark.parametrize("delay", np.linspace(0.4, 4, 13))
def test_a_signal_ends_with_one_line_whenever_it_comes(delay: float, folders: dict[str, Path], tmp_path: Path) -> None:
    """Before that, while Python itself starts, it is Python that answers; a command that has ended has its own word."""
    for number in (signal.SIGINT, signal.SIGTERM):
        job = process("report", folders["VSC"], "-d", "digits", "-o", tmp_path / "page.html")
        time.sleep(delay)
        job.send_signal(number)
        out, err = job.communicate(timeout=60)
        if job.returncode and not out:
            assert (job.returncode % 128, err) in ((number, INTERRUPTED), (-number % 128, INTERRUPTED))
            assert not os.listdir(tmp_path)
        else:
            assert (out, err) == (f"{tmp_path / 'page.html'}\n", "")
            (tmp_path / "page.html").unlink()


@pytest.mark.slow
def test_a_stopped_run_resumes_to_the_same_bytes(tmp_path: Path, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    long = ["fit", "VSC", *SMALL, "--steps", 200, "--report-every", 5, "--checkpoint-every", 50]
    stopped, whole = tmp_path / "stopped", tmp_path / "whole"

    # SIGTERM to another process, as a scheduler sends it.
    job = process(*long, "--out", stopped)
    while job.poll() is None and not reports(stopped):
        time.sleep(0.002)
    job.terminate()
    out, err = job.communicate(timeout=60)
    assert (job.returncode, out) == (143, ""), err
    assert_reported(err, stopped)
    refused = run(*long, "--out", stopped)
    assert refused.code == 1
    assert "holds an unfinished run: continue it with --resume" in refused.err

    append = RunFolder.append  # Ctrl-C after the next report
    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "append", lambda self, row: (append(self, row), signal.raise_signal(signal.SIGINT)))
        code, out, err = run(*long, "--out", stopped, "--resume", "--quiet")
    assert (code, out) == (130, "")
    assert_reported(err, stopped)
    assert not (stopped / "model.json").exists()

    assert run(*long, "--out", stopped, "--resume").code == 0
    assert run(*long, "--out", whole).code == 0
    names = sorted(os.listdir(whole))
    assert sorted(os.listdir(stopped)) == names
    for name in names:
        assert (stopped / name).read_bytes() == (whole / name).read_bytes(), name


def assert_reported(err: str, folder: Path) -> None:
    """One line, warnings apart, says that the run is saved and how to continue it."""
    (line,) = [line for line in err.splitlines() if not line.startswith("sparsevae: warning: ")]
    assert f"aved in {folder}" in line
    assert "--resume" in line


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dates.parquet", "texts.csv"])
def test_a_refused_table_ends_the_process_with_exit_code_1(name: str, tmp_path: Path) -> None:
    """Arrow's threads live as long as the process: with a Python file object in their hands they aborted most runs."""
    table = pd.DataFrame({"when": pd.date_range("2020", periods=40), "b": range(40)})
    if name == "texts.csv":
        table = pd.DataFrame({"a": [f"word {k}" for k in range(60_000)], "b": range(60_000)})
        table.to_csv(tmp_path / name, index=False)
    else:
        table.to_parquet(tmp_path / name)
    command = [sys.executable, "-m", "sparsevae", "fit", "VSC", "-d", name, "-o", "out", "--steps", "5", "-q"]
    for _ in range(6):
        ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert (ended.returncode, len(ended.stderr.splitlines())) == (1, 1), ended.stderr
