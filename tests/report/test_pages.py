"""Claims of the pictures and the page: true numbers under true names, zeros that are not drawn, one file, no pyplot."""

from __future__ import annotations

import base64
import copy
import dataclasses
import hashlib
import html
import io
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from conftest import quiet
from torch import nn

import sparsevae as sv
from sparsevae.estimator.learning import signature
from sparsevae.report import demo, figures
from sparsevae.report import page as report
from sparsevae.report.elements import settings
from sparsevae.report.figures import sweep
from sparsevae.report.view import MAX_FEATURES, View, make_view

COLUMNS = ["price in $", "cost_$_a", "weight", "height", "size <m>"]
QUICK = sv.Training(steps=60, batch_size=32, learning_rate=1e-2, verbose=0)


@pytest.fixture(scope="module")
def vsc(digits: Any) -> Any:
    model = sv.VSC(
        8, alpha=0.2, hidden=(16,), likelihood="fixed-gaussian", variance=0.01, decoder=nn.Identity(), training=QUICK
    )
    return quiet(model, digits.X[:200])


@pytest.fixture(scope="module")
def view(vsc: Any, digits: Any) -> View:
    return make_view(vsc, digits.X_test[:60], image_shape=(8, 8), labels=digits.y_test[:60])


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(rng.normal(size=(80, 2)) @ rng.normal(size=(2, 5)) * [1, 10, 1, 0, 1], columns=COLUMNS)


@pytest.fixture(scope="module")
def page(vsc: Any, digits: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("page") / "new folder" / "page.html"
    rows, labels = digits.X_test[:60], digits.y_test[:60]
    assert report.report(vsc, rows, path, image_shape=(8, 8), labels=labels, title="Digits & <codes>") == path
    return path.read_text()


def cards(page: str) -> dict[str, tuple[str, str]]:
    """The numbers on a page: name -> (value, note)."""
    found = re.findall(r'"name">(.*?)</div><div class="value">(.*?)</div><div class="note">(.*?)</div>', page)
    return {name: (value, note) for name, value, note in found}


def drawn_heights(ax: Any) -> list[float]:
    return [bar.get_height() for bar in ax.patches]


def draw(figure: Any) -> None:
    figure.savefig(io.BytesIO(), format="png", dpi=40)


# -- the page ---------------------------------------------------------------------------------------------------


def test_the_page_needs_nothing_but_itself(page: str) -> None:
    assert set(re.findall(r'\b(?:src|href)\s*=\s*"(.{15})', page)) == {"data:image/png;"}
    text = re.sub(r"base64,[^\"]+", "", page).replace("http-equiv", "")
    for word in ("http", "//", "url(", "@import", "<script", "<link", "<iframe", str(Path.home())):
        assert word not in text, word
    assert page.count("<img") == 6


def test_the_page_s_policy_allows_its_own_style_and_pictures_and_nothing_else(page: str) -> None:
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="(.*?)"', page)
    (style,) = re.findall("<style>(.*?)</style>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    own = {"style-src": f"'sha256-{digest}'", "img-src": "data:"}
    assert dict(rule.split(" ") for rule in policy.split("; ")) == own | dict.fromkeys(
        ("default-src", "base-uri", "form-action"), "'none'"
    )
    assert page.index(policy) < page.index("<style>")
    assert not re.findall(r"\bstyle=", page)  # an attribute is no part of the policy


def test_the_page_shows_what_evaluate_returns(page: str, vsc: Any, digits: Any) -> None:
    shown = cards(page)
    caps = {int(cap): float(mse) for cap, mse in re.findall(r"<tr><td>(\d+)</td><td>([^<]+)</td>", page)}
    assert caps
    r = vsc.evaluate(digits.X_test[:60], caps=list(caps))
    score, error = (float(x) for x in shown["score"][0].split(" ± "))
    assert (score, error) == pytest.approx((r["score"], r["score_standard_error"]), abs=0.006)
    assert int(shown["rows"][0]) == r["rows"]
    assert int(shown["active units"][0]) == r["active_units"]
    assert float(shown["KL"][0]) == pytest.approx(r["kl"], abs=0.006)
    assert float(shown["squared error"][0]) == pytest.approx(r["mse"], rel=1e-3)
    assert caps == pytest.approx(r["caps"], rel=1e-3)
    value, note = shown["non-zeros per row"]
    drawn, expected = re.search(r"([\d.]+) in a draw, ([\d.]+) expected", note).groups()  # type: ignore[union-attr]
    counts = [r["nonzeros_mode"], r["nonzeros_drawn"], r["nonzeros_expected"]]
    assert [float(value), float(drawn), float(expected)] == pytest.approx(counts, abs=0.006)
    assert f"of {r['n_components']}" in note


def test_the_page_tells_no_error_of_the_score_of_one_row(
    vsc: Any, digits: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "_pictures", lambda est, view: [])
    rows = digits.X_test[:1]
    page = report.report(vsc, rows, tmp_path / "page.html", image_shape=(8, 8)).read_text()
    assert cards(page)["score"][0] == f"{vsc.evaluate(rows)['score']:.2f}"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"variance_floor": 0.07}, "a lower bound on log p(x)"),
        ({"likelihood": "bernoulli"}, "a cross-entropy of grey values, not a bound"),
        ({"scale": "unit-norm"}, "a density of the normalised row, not a bound"),
    ],
    ids=["gaussian", "bernoulli", "unit-norm"],
)
def test_the_page_names_what_the_score_is(
    settings: dict[str, Any], words: str, digits: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "_pictures", lambda est, view: [])
    est = quiet(sv.VSC(4, hidden=(8,), training=QUICK, **settings), digits.X[:64])
    shown = cards(report.report(est, digits.X[:64], tmp_path / "page.html").read_text())
    assert words in shown["score"][1]
    floor = shown.get("variance floor", ("no floor", ""))[0]
    assert floor == (f"{est.variance_floor:g}" if "likelihood" not in settings else "no floor")


def test_the_head_names_the_values_in_force_and_not_the_arguments_that_left_them_open(vsc: Any, reader: Any) -> None:
    """What the run itself is told apart by; the same of a saved model, and whatever the constructor says by now."""
    reported = dict(settings(vsc))
    assert reported.items() >= {"alpha": "0.2", "kl_z": "1.0", "scale": "divided by 255"}.items()
    assert reported["gate"] == "straight-through-concrete"
    assert reported.items() >= {"network": "dense", "likelihood": "fixed-gaussian", "variance": "0.01"}.items()
    assert reported.items() >= {"hidden": "(16,)", "steps": "60", "decoder": "Identity"}.items()
    run = {k: str(v) for k, v in signature(vsc).items() if k not in ("hidden", "scale", "network", "decoder")}
    assert {k: v for k, v in reported.items() if k in run} == {k: v for k, v in run.items() if k in reported}
    words = dict(settings(reader))
    assert words.items() >= {"kl_z": "0.01", "beta": "1.2", "network": "gru", "embedding": "6"}.items()
    assert words["vocabulary"] == f"{len(reader.input_.vocabulary.words):,} words"
    for est, own in ((vsc, reported), (reader, words)):
        assert "None" not in own.values()
        assert "auto" not in own.values()
        changed = copy.copy(est).set_params(n_components=3)
        assert dict(settings(changed)) == own


def test_titles_are_text_not_markup(page: str) -> None:
    assert "Digits &amp; &lt;codes&gt;" in page
    assert "<codes>" not in page


@pytest.mark.slow
def test_a_table_gets_a_page_with_its_feature_names(table: pd.DataFrame, tmp_path: Path) -> None:
    est = quiet(sv.VSC(3, hidden=(8,), training=QUICK), table)
    labels = pd.Series(["$a$", "b_$"] * 40)
    text = report.report(est, table, tmp_path / "page.html", labels=labels).read_text()
    assert text.count("<img") == 6
    figure = figures.reconstructions(make_view(est, table, labels=labels))
    assert [tick.get_text() for tick in figure.axes[0].get_yticklabels()] == COLUMNS


@pytest.mark.slow
def test_a_dense_model_gets_a_page_that_does_not_speak_of_zeros(digits: Any, tmp_path: Path) -> None:
    est = quiet(sv.VAE(2, hidden=(8,), training=QUICK), digits.X[:64])
    text = report.report(est, digits.X[:64], tmp_path / "page.html", image_shape=(8, 8)).read_text()
    assert "no unit is ever off" in text
    assert "exactly zero" not in text
    assert "What a cap costs" not in text
    assert "non-zeros per row" not in cards(text)


def test_pyplot_is_not_needed(view: View, vsc: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)  # an import would now fail
    for picture in (figures.reconstructions, figures.codes, figures.usage):
        draw(picture(view))
    draw(figures.training_curves(vsc))


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["nonsense", "svg"])
def test_pictures_need_no_backend_that_works_and_leave_the_one_that_does(backend: str) -> None:
    code = (
        "import os, io; from sparsevae.report import style; style.prepare(); import matplotlib.figure; "
        "matplotlib.figure.Figure().savefig(io.BytesIO(), format='png'); told = os.environ['MPLBACKEND']; "
        "assert told == 'nonsense' or matplotlib.rcParams['backend'] == told; print(told)"
    )
    environment = os.environ | {"MPLBACKEND": backend, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.stdout.strip() == backend, done.stderr


@pytest.mark.slow
def test_the_page_needs_no_backend_that_works(digits: Any, tmp_path: Path) -> None:
    quiet(sv.VSC(4, hidden=(4,), training=sv.Training(steps=2, verbose=0)), digits.X).save(tmp_path / "model")
    command = [sys.executable, "-m", "sparsevae"]
    environment = os.environ | {"MPLBACKEND": "nonsense", "PYTHONPATH": str(Path(__file__).parents[2])}
    for words in (["report", "model", "-d", "digits"], ["sample", "model", "-o", "s.png", "--image-shape", "8,8"]):
        done = subprocess.run([*command, *words], capture_output=True, text=True, env=environment, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "report.html").exists()


# -- the pictures -----------------------------------------------------------------------------------------------


def test_zeros_are_not_drawn(view: View) -> None:
    items = view.items(6)
    assert 0 < (view.codes[items] != 0).sum() < view.codes[items].size
    bars = figures.codes(view, 6).axes[1::3]
    for ax, item in zip(bars, items, strict=True):
        code = view.codes[item]
        assert drawn_heights(ax) == pytest.approx(code[code != 0].tolist())


def test_usage_counts_rows_and_units(view: View) -> None:
    left, right = figures.usage(view).axes
    on = view.codes != 0
    assert drawn_heights(left) == pytest.approx(sorted((100 * on.mean(0)[on.any(0)]).tolist(), reverse=True))
    assert sum(drawn_heights(right)) == pytest.approx(100)


def test_what_a_unit_adds_is_decoded_with_it_minus_without_it(view: View) -> None:
    # The decoder is linear here, so a unit adds its own atom times its mean value.
    unit = view.units(1)[0]
    added, strongest = view.change(unit)
    values = view.codes[strongest, unit]
    one = np.zeros((2, 8), dtype=np.float32)
    one[0, unit] = 1
    atom = np.subtract(*view.est.inverse_transform(one))
    assert np.ptp(np.sign(values)) == 0
    assert (np.diff(np.abs(values)) <= 0).all()
    np.testing.assert_allclose(added, values.mean() * atom, atol=0.05)


def test_a_traversal_starts_at_off_or_passes_through_it() -> None:
    strong = np.array([0, 0, 1.0, 2.0, 3.0, 4.0])
    np.testing.assert_allclose(sweep(strong, 3), [0, 3.85 / 2, 3.85])
    np.testing.assert_allclose(sweep(-strong, 3), [0, -3.85 / 2, -3.85])
    both = sweep(np.concatenate([strong, -2 * strong]), 7)
    assert len(both) == 7
    assert both[3] == 0
    assert (np.diff(both) > 0).all()
    assert -8 < both[0] < 0 < both[-1] < 4


def test_items_are_typical_and_cover_the_labels(view: View) -> None:
    assert view.labels is not None
    assert view.labels[view.items(10)].tolist() == list(range(10))
    error = np.square(view.rows - view.decoded).mean(1)
    unlabelled = dataclasses.replace(view, labels=None)
    assert (np.diff(error[unlabelled.items(5)]) >= 0).all()
    halves = dataclasses.replace(view, labels=np.arange(60) // 30)
    assert (np.array(halves.items(7)) // 30).tolist() == [0, 0, 0, 1, 1, 1]


@pytest.mark.slow
def test_an_empty_code_has_a_headline_of_its_own(digits: Any, tmp_path: Path) -> None:
    with pytest.warns(sv.SparsityWarning, match="every code is zero"):
        est = sv.VSC(4, hidden=(8,), alpha=1e-4, start="random", training=QUICK).fit(digits.X[:64])
    page = report.report(est, digits.X_test[:60], tmp_path / "empty.html", image_shape=(8, 8)).read_text(
        encoding="utf-8"
    )
    assert "The code of every row is zero: none of the 4 units of this VSC distinguishes rows." in page


def test_a_collapsed_code_is_said_not_drawn(view: View) -> None:
    nothing = dataclasses.replace(view, codes=np.zeros_like(view.codes))
    for picture in (figures.codes, figures.traversal, figures.features, figures.usage):
        draw(picture(nothing))
    assert nothing.units(8) == []
    assert "no unit is on" in figures.traversal(nothing).texts[0].get_text()


def test_colour_images_and_wide_tables_are_drawn(vsc: Any, digits: Any, view: View) -> None:
    rows = np.repeat(view.rows, 3, axis=1)
    draw(figures.reconstructions(dataclasses.replace(view, rows=rows, decoded=rows, image_shape=(8, 8, 3)), 3))
    wide = make_view(vsc, digits.X_test[:60])
    assert len(wide.columns) == MAX_FEATURES
    assert (wide.rows.std(0) == 0).any()
    assert (wide.rows[:, wide.columns].std(0) > 0).all()  # constant features say nothing
    draw(figures.features(wide, 1, 2))


def test_training_curves_go_on_after_partial_fit(digits: Any) -> None:
    est = quiet(sv.VSC(4, hidden=(8,), training=QUICK), digits.X[:64])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sv.SparsityWarning)
        est.partial_fit(digits.X[64:128])
    steps = figures.training_curves(est).axes[0].lines[0].get_xdata()
    assert (np.diff(np.asarray(steps, dtype=float)) > 0).all()
    assert steps[-1] == est.n_steps_


@pytest.mark.parametrize("finite", [True, False])
def test_training_curves_leave_out_what_is_not_finite(finite: bool, vsc: Any) -> None:
    est = copy.deepcopy(vsc)
    for k, row in enumerate(est.history_):
        row["validation_loss"] = 3.0 if finite and k else float("inf")
    draw(figures.training_curves(est))


WRONG_LABELS: list[tuple[Any, str]] = [
    ([1, 2], r"labels must hold one label for each of the 60 rows; got shape \(2,\)"),
    (np.ones((2, 2)), r"got shape \(2, 2\)"),
    ({0: "a"}, "got dict"),
    ("a" * 60, "got str"),
    (5, "got int"),
]


@pytest.mark.parametrize("missing", [None, float("nan"), pd.NaT])
def test_labels_may_not_be_missing(missing: Any, vsc: Any, reader: Any, digits: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="labels must hold a label for every row; 1 of 60 are missing"):
        make_view(vsc, digits.X_test[:60], labels=[1.0] * 59 + [missing])
    with pytest.raises(ValueError, match="labels must hold a label for every row; 1 of 80 are missing"):
        report.report(reader, SHOWN, tmp_path / "page.html", labels=[missing] + [1.0] * 79)


def test_a_lone_surrogate_in_names_and_labels_is_escaped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Python reads file names and cells that are no UTF-8; neither fonts nor UTF-8 have such a character."""
    rows = sv.data.Table(np.random.default_rng(0).normal(size=(40, 3)), ("a\udc80", "b", "c"))
    est = quiet(sv.VAE(2, hidden=(4,), training=sv.Training(steps=2, verbose=0)), rows)
    labels = ["x\udc81", "y"] * 20
    view = make_view(est, rows, labels=labels)
    draw(figures.reconstructions(view))
    assert view.names[0] == "a\\udc80"
    assert set(view.labels) == {"x\\udc81", "y"}  # type: ignore[arg-type]
    monkeypatch.setattr(report, "_pictures", lambda est, view: [])
    page = report.report(est, rows, tmp_path / "\udc82.html", labels=labels, title="\udc83").read_text()
    assert "<h1>\\udc83</h1>" in page


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"image_shape": (8, 9)}, "of 64 values; got"),
        ({"image_shape": (64,)}, r"\(height, width\)"),
        ({"image_shape": (-8, -8)}, "of 64 values, got -8"),
        ({"image_shape": 64}, r"\(height, width\)"),
        ({"image_shape": ("8", "8")}, "got '8'"),
        *(({"labels": labels}, message) for labels, message in WRONG_LABELS),
    ],
)
def test_a_wrong_shape_is_told(vsc: Any, digits: Any, wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_view(vsc, digits.X_test[:60], **wrong)


# -- texts ------------------------------------------------------------------------------------------------------

SHOWN = ["the <cow> eats grass", "the clerk drinks tea", "a hen & a cow", "a clerk sings"] * 20


@pytest.fixture(scope="module")
def reader() -> Any:
    text, training = sv.Text(embedding=6), sv.Training(steps=150, batch_size=20, learning_rate=2e-2, verbose=0)
    return quiet(sv.HSVAE(6, hidden=(16,), kl_z=0.01, kl_gamma=0.01, text=text, training=training), SHOWN)


def lines(page: str, title: str) -> list[list[str]]:
    """The table of a section, its header left out."""
    section = page.split(f"<h2>{title}</h2>")[1].split("</section>")[0]
    found = [re.findall(r"<td>(.*?)</td>", line) for line in section.splitlines()]
    return [[html.unescape(word) for word in line] for line in found if line]


def test_a_model_of_texts_has_a_page_of_texts_words_and_codes(reader: Any, tmp_path: Path) -> None:
    labels = ["animal", "person"] * 40
    text = report.report(reader, (shown for shown in SHOWN), tmp_path / "page.html", labels=labels).read_text()
    reported = lines(text, "Reconstructions")
    assert {line[1] for line in reported} == {"animal", "person"}
    for _, label, read, again in reported:
        assert again == reader.reconstruct([read])[0]
        assert ("cow" in read) == (label == "animal")
    units = lines(text, "Words of units")
    words = sv.top_words(reader, SHOWN, 8, poles=True)
    by_pole = {name: " ".join(found) for name, found in zip(words.units, words.words, strict=True)}
    assert units
    assert all(line[3] == by_pole[line[0]] and line[4] in SHOWN for line in units)
    assert [line[0] for line in lines(text, "Texts from the prior")] == reader.sample(5)
    assert text.count("<img") == 3
    assert "<cow>" not in text
    r, shown = reader.evaluate(SHOWN), cards(text)
    assert float(shown["perplexity"][0]) == pytest.approx(r["perplexity"], rel=0.01)
    assert float(shown["reconstruction"][0]) == pytest.approx(r["nll"], abs=0.006)
    assert float(shown["Hoyer of draws"][0]) == pytest.approx(r["hoyer"]["draws"]["average"], abs=0.006)
    assert shown["texts"][0] == "80"


def test_a_dense_model_of_texts_has_a_page_too(tmp_path: Path) -> None:
    text, training = sv.Text(embedding=4), sv.Training(steps=5, batch_size=20, verbose=0)
    est = quiet(sv.VAE(3, hidden=(8,), text=text, training=training), SHOWN)
    page = report.report(est, SHOWN[:1], tmp_path / "page.html").read_text()
    assert "no unit is ever off" in page
    assert len(lines(page, "Reconstructions")) == 1


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        *(({"labels": labels}, message.replace("60", "80")) for labels, message in WRONG_LABELS),
        ({"image_shape": (2, 2)}, "was fitted on texts"),
    ],
)
def test_what_texts_have_no_use_for_is_told(reader: Any, wrong: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        report.report(reader, SHOWN, tmp_path / "page.html", **wrong)
    with pytest.raises(ValueError, match=r"rows of numbers can be drawn.*report\.page\.report writes a page"):
        make_view(reader, SHOWN)


# -- the demonstration ------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sparsevae.SparsityWarning")
def test_the_demo_leaves_a_page_a_picture_and_a_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], digits: Any
) -> None:
    short = demo.model(3).set_params(n_components=5, training__steps=100, training__kl_warmup=200)
    monkeypatch.setattr(demo, "model", lambda seed: short)
    left = demo.run(tmp_path / "demo", seed=3)
    page = left.page
    assert page == tmp_path / "demo" / "index.html"
    assert page.stat().st_size > 50_000
    assert (tmp_path / "demo" / "demo.png").read_bytes().startswith(b"\x89PNG")
    reported = capsys.readouterr()
    numbers = short.evaluate(digits.X_test)
    assert reported.out == ""
    assert f"{numbers['nonzeros_mode']:.1f} of 5 units" in reported.err
    assert f"{numbers['score']:.1f} nats" in reported.err
    assert left == (page, tmp_path / "demo" / "demo.png", tmp_path / "demo" / "model", numbers)
    loaded = sv.load(left.model)
    assert (loaded.transform(digits.X_test) != short.transform(digits.X_test)).nnz == 0


@pytest.mark.filterwarnings("ignore::sparsevae.SparsityWarning")
def test_a_demo_takes_a_new_folder_or_an_earlier_demo_s_before_it_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class TrainedError(Exception):
        pass

    def train(seed: int) -> Any:
        raise TrainedError

    monkeypatch.setattr(demo, "model", train)
    file, foreign, fitted, earlier = (tmp_path / name for name in ("file", "foreign", "fitted", "earlier"))
    file.write_text("mine")
    (foreign / "model").mkdir(parents=True)  # a model alone may be the user's own
    quick = sv.Training(steps=2, verbose=0)
    est = sv.VAE(2, hidden=(4,), training=quick).fit(np.random.default_rng(0).random((9, 4)))
    for folder in (fitted, earlier / "model", foreign / "model"):
        est.save(folder)
    for name in ("index.html", "demo.png"):
        (earlier / name).touch()
    for refused, message in ((file, "found a file"), (foreign, "not empty"), (fitted, "holds a saved 'model'")):
        with pytest.raises(ValueError, match=message):
            demo.run(refused)
    for taken in (tmp_path / "new", earlier):
        with pytest.raises(TrainedError):
            demo.run(taken)


@pytest.mark.slow
def test_the_demo_is_sparse_good_and_the_same_twice(tmp_path: Path, digits: Any) -> None:
    first, second = (demo.run(tmp_path / name).page.read_bytes() for name in "ab")
    assert first == second
    numbers = sv.load(tmp_path / "a" / "model").evaluate(digits.X_test)
    assert numbers["nonzeros_mode"] < 5
    assert numbers["mse"] < 0.25 * digits.X_test.var(0).mean()


def test_models_that_predict_labels_are_refused_by_name(tmp_path: Path) -> None:
    texts, y = ["a cow", "a clerk"] * 8, [0, 1] * 8
    text, training = sv.Text(max_length=4, embedding=4), sv.Training(steps=2, verbose=0)
    est = sv.CodeClassifier(2, hidden=(4,), text=text, training=training).fit(texts, y)
    with pytest.raises(TypeError, match=r"CodeClassifier predicts labels: use its evaluate\(X, y\)"):
        report.report(est, texts, tmp_path / "page.html")


def test_values_in_force_are_those_that_labels_settled() -> None:
    Y = np.array([[1, 1, 0], [0, 1, 0]] * 10)
    est = sv.SDLGMClassifier(hidden=(4,), threshold=0.3, training=sv.Training(steps=2, verbose=0))
    reported = est.fit(np.random.default_rng(0).random((20, 4)), Y).in_force()
    assert (reported["cap"], reported["max_labels"], reported["threshold"], reported["gradient"]) == (
        2,
        2,
        0.3,
        "straight-through",
    )
