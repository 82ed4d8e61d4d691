"""Claim: what codes say about classes is found where it was planted, and nowhere else; so are the words of units."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import sparsevae as sv
from reproductions import hsvae_patterns as patterns
from sparsevae import metrics
from sparsevae.analysis.classes import _halves, classes, separation
from sparsevae.analysis.unit_words import top_texts, top_words
from sparsevae.report import style as plots
from sparsevae.report.results import class_gates

pytestmark = pytest.mark.filterwarnings("ignore::sparsevae.exceptions.SparsityWarning")
SHORT = sv.Training(steps=2, batch_size=16, verbose=0)
N, J = 400, 8
SHUT, OPEN = -20.0, 20.0  # gate logits
TINY = -12.0  # log-variance


def coder(X: Any, kind: Any = sv.VSC, **own: Any) -> Any:
    """A model whose rows are what its encoder says: (loc, log-variance, gate logits) of VSC, and so on."""
    est = kind(J, hidden=(8,), likelihood="fixed-gaussian", scale="none", training=SHORT, **own).fit(X)
    est.model_.encoder = nn.Identity()
    return est


def planted(own: bool, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows for `coder`, and four classes: one pair of eight units is on, that of its class where `own`, else any.

    The first unit of a pair is positive, the second has both signs.
    """
    rng = np.random.default_rng(seed)
    y = np.arange(N) % 4
    pair = y if own else rng.permutation(y)
    on = np.repeat(np.eye(4), 2, axis=1)[pair]
    loc = rng.uniform(1, 2, (N, J))
    loc[:, 1::2] *= rng.choice([-1.0, 1.0], (N, J // 2))
    logits = np.where(on == 1, OPEN, SHUT)
    return np.hstack([loc, np.full((N, J), TINY), logits]).astype(np.float32), y


@pytest.fixture(scope="module")
def own() -> Any:
    X, y = planted(own=True)
    return coder(X), X, y


@pytest.fixture(scope="module")
def common() -> Any:
    X, y = planted(own=False)
    return coder(X), X, y


# -- gates -----------------------------------------------------------------------------------------------------------


def test_gates_of_classes_are_their_share_of_off(own: Any) -> None:
    found = classes(*own)
    np.testing.assert_allclose(found.gates, 1 - np.repeat(np.eye(4), 2, axis=1), atol=1e-6)
    assert [[j for j, _ in found.own_units(c)] for c in range(4)] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert [more for _, more in found.own_units(0)] == pytest.approx([1, 1], abs=1e-6)


def test_gates_of_an_hsvae_are_the_mean_of_gamma() -> None:
    """raw = (loc, s, a, b): E[gamma] = a / (a + b), with concentrations softplus + 1e-5 of at least .5."""
    rng = np.random.default_rng(0)
    X, y = rng.uniform(1, 4, (40, 4 * J)).astype(np.float32), np.arange(40) % 2
    a, b = (np.log1p(np.exp(X[:, k * J : (k + 1) * J].astype(float))) + 1e-5 for k in (2, 3))
    wanted = [(a / (a + b))[y == c].mean(0) for c in (0, 1)]
    np.testing.assert_allclose(classes(coder(X, sv.HSVAE), X, y).gates, wanted, atol=1e-6)


def test_patterns_of_their_own_are_told_from_common_ones(own: Any, common: Any) -> None:
    apart, alike = (classes(*each).separation for each in (own, common))
    assert apart is not None
    assert alike is not None
    assert apart.distance == pytest.approx(np.sqrt(4 / J), abs=1e-6)  # four of eight units differ, by 1
    assert apart.relative > 1e3
    assert alike.distance < 0.05
    assert alike.relative < 0.1


def test_few_rows_do_not_drive_classes_apart() -> None:
    """Means 0 and 1, spread .5, four and six rows: the squared distance is 1 on average, that of the means 1.1."""
    rng, y = np.random.default_rng(0), np.repeat([0, 1], [4, 6])
    got, plain = [], []
    for _ in range(2000):
        v = rng.normal(scale=0.5, size=(10, 3)) + y[:, None]
        got.append(separation(v, y).distance ** 2)
        plain.append(np.square(v[y == 0].mean(0) - v[y == 1].mean(0)).mean())
    assert np.mean(got) == pytest.approx(1, abs=0.03)
    assert np.mean(plain) == pytest.approx(1 + 0.25 * (1 / 4 + 1 / 6), abs=0.03)


@pytest.mark.parametrize("d", [0.0, 1.0])
def test_separation_of_many_rows_is_that_of_their_laws(d: float) -> None:
    """Means 0 and d in every unit, spread 2: distance d, and d / sqrt 8 as a share."""
    y = np.repeat([0, 1], 20_000)
    found = separation(np.random.default_rng(0).normal(scale=2, size=(40_000, 3)) + d * y[:, None], y)
    assert found.distance == pytest.approx(d, abs=0.03)
    assert found.relative == pytest.approx(d / np.sqrt(8), abs=0.015)


def test_separation_of_rows_without_spread() -> None:
    y = np.repeat([0, 1], [3, 4])
    assert separation(np.full((7, 2), 0.3), y) == (0.0, 0.0)
    assert separation(np.repeat([[0.0], [1.0]], [3, 4], axis=0), y) == (1.0, np.inf)


def test_a_model_without_a_law_of_codes_is_refused() -> None:
    X, y = planted(own=True)
    est = sv.CodeClassifier(2, hidden=(4,), training=SHORT).fit(X, y)
    with pytest.raises(TypeError, match="classes compares draws of a code, and CodeClassifier has none"):
        classes(est, X, y)


# -- sparsity --------------------------------------------------------------------------------------------------------


def test_where_classes_have_patterns_the_aggregate_of_a_class_is_as_sparse_as_its_rows(own: Any, common: Any) -> None:
    mine, theirs = (classes(*each).sparsity["draws"] for each in (own, common))
    np.testing.assert_allclose(mine.class_aggregate, mine.class_average, atol=0.02)
    assert mine.aggregate < 0.01
    assert (theirs.class_average - theirs.class_aggregate > 0.5).all()


def test_sparsity_is_that_of_the_metrics_for_every_kind_of_code(own: Any) -> None:
    est, X, y = own
    found = classes(est, X, y, draws=3, seed=4)
    codes = {"draws": est.draw_codes(X, 3, seed=4), **{k: v[None] for k, v in est.posterior_means(X).items()}}
    assert list(found.sparsity) == ["draws", "slab", "gated"] == list(codes)
    for kind, Z in codes.items():
        got = found.sparsity[kind]
        assert got.average == pytest.approx(np.mean([metrics.average_hoyer(z) for z in Z]))
        assert got.aggregate == pytest.approx(np.mean([metrics.aggregate_hoyer(z) for z in Z]))
        assert got.printed == pytest.approx(np.mean([metrics.aggregate_hoyer(z, absolute=False) for z in Z]))
        by_class = [metrics.class_hoyer(z, y) for z in Z]
        np.testing.assert_allclose(got.class_average, np.mean([c.average for c in by_class], 0))
        np.testing.assert_allclose(got.class_aggregate, np.mean([c.aggregate for c in by_class], 0))
    assert found.sparsity["slab"].average < 0.4 < 0.6 < found.sparsity["gated"].average
    assert found.sparsity["draws"].printed > found.sparsity["draws"].aggregate + 0.1  # signs cancel


def test_the_printed_form_has_one_mask_for_all_classes() -> None:
    """Units 0 and 1 are on least often; no average code shows them, that of the class that has them neither."""
    X, y = planted(own=True)
    X[y == 0, 2 * J : 2 * J + 2] = SHUT
    X[:40:4, 2 * J : 2 * J + 2] = OPEN  # ten rows of class 0
    X[y == 0, 2 * J + 2 : 2 * J + 4] = OPEN
    est = coder(X)
    found = classes(est, X, y, draws=1).sparsity["draws"]
    wanted = metrics.class_hoyer(est.draw_codes(X)[0], y, absolute=False, rare=0.05)
    assert found.class_printed is not None
    np.testing.assert_allclose(found.class_printed, wanted.aggregate)
    unmasked = metrics.class_hoyer(est.draw_codes(X)[0], y, absolute=False)
    assert abs(wanted.aggregate[0] - unmasked.aggregate[0]) > 0.02


def test_dense_codes_have_no_gates_and_no_printed_form() -> None:
    X, y = planted(own=True)
    X[:, :J] = np.random.default_rng(1).uniform(1, 2, (N, J)) + y[:, None]  # never near zero: on in every row
    est = coder(X[:, : 2 * J], sv.VAE)
    found = classes(est, X[:, : 2 * J], y)
    assert found.gates is None
    assert found.separation is None
    assert list(found.sparsity) == ["draws", "mean"]
    assert "\nmeans: Av.Hoyer" in found.legend
    assert found.sparsity["draws"].class_printed is None
    assert [line[-1] for line in found.table()[1][1:]] == ["-"] * 4
    with pytest.raises(ValueError, match="nothing to draw"):
        class_gates(found)


# -- the probe -------------------------------------------------------------------------------------------------------


def test_the_probe_reads_classes_that_are_there_and_no_others(own: Any, common: Any) -> None:
    mine, theirs = classes(*own), classes(*common)
    assert mine.majority == theirs.majority == 0.25
    assert mine.accuracy > 0.95
    assert theirs.accuracy < 0.4


def test_the_mean_of_draws_tells_more_than_one_draw() -> None:
    X, y = planted(own=True)
    X[:, :J] = 1e-3 * X[:, :J] + np.repeat(np.eye(4), 2, axis=1)[y]  # equal rows would have equal draws
    X[:, J : 2 * J] = 2.0
    X[:, 2 * J :] = OPEN
    found = classes(coder(X), X, y, draws=20)
    assert found.accuracy > found.accuracy_one_draw + 0.2


def test_with_test_rows_everything_is_measured_on_them(own: Any) -> None:
    est, X, y = own
    X_test, y_test = planted(own=False, seed=3)
    found, alone = classes(est, X, y, X_test=X_test[:80], y_test=y_test[:80]), classes(est, X_test[:80], y_test[:80])
    assert found.rows == 80
    np.testing.assert_array_equal(found.gates, alone.gates)
    assert found.sparsity["draws"].to_dict() == alone.sparsity["draws"].to_dict()
    pair = X_test[:80, 2 * J :: 2].argmax(1)  # what rows of X with such gates are
    assert found.accuracy == (pair == y_test[:80]).mean()


def test_halves_share_every_class_and_no_row() -> None:
    y = np.repeat(["a", "b", "c"], [2, 5, 30])
    learn, test = _halves(y, 0)
    assert sorted([*learn, *test]) == list(range(37))
    assert [sum(y[learn] == c) for c in "abc"] == [1, 3, 15]
    assert not np.array_equal(learn, _halves(y, 1)[0])


# -- words -----------------------------------------------------------------------------------------------------------

FARM, OFFICE, BOTH = ("cow", "hen", "barn"), ("clerk", "desk", "memo"), ("the", "and", "sees")


def sentences() -> tuple[list[str], np.ndarray]:
    rng, y = np.random.default_rng(0), np.array(["farm", "office"] * 40)
    own = {"farm": FARM, "office": OFFICE}
    return [" ".join(["The", *rng.permutation([*own[c][:2], *BOTH]), own[c][2].upper()]) for c in y], y


class Reads(nn.Module):
    """Unit 0 is on where a farm's word stands, unit 1 where an office's; unit 2 never is, unit 3 in every text."""

    def __init__(self, vocabulary: sv.Vocabulary) -> None:
        super().__init__()
        self.ids = [torch.tensor([vocabulary.words.index(w) + 2 for w in own]) for own in (FARM, OFFICE)]

    def forward(self, x: Tensor) -> Tensor:
        size = [torch.isin(x, ids).sum(-1).float() for ids in self.ids]
        loc = torch.stack([*size, torch.ones_like(size[0]), torch.ones_like(size[0])], -1)
        on = torch.stack([size[0] > 0, size[1] > 0, size[0] < 0, size[0] >= 0], -1)
        return torch.cat([loc, torch.full_like(loc, TINY), torch.where(on, 2 * OPEN, 10 * SHUT)], -1)


@pytest.fixture(scope="module")
def reader() -> Any:
    X, y = sentences()
    est = sv.VSC(4, hidden=(8,), text=sv.Text(max_length=10, embedding=4), training=SHORT).fit(X)
    est.model_.encoder = Reads(est.input_.vocabulary)
    return est, X, y


def test_units_have_the_words_they_go_with_and_no_others(reader: Any) -> None:
    est, X, _ = reader
    found = top_words(est, X, 3)
    assert [set(unit) for unit in found.words] == [set(FARM), set(OFFICE), set(), set()]
    assert found.coherence[:2] == pytest.approx([1, 1])  # never apart
    assert np.isnan(found.coherence[2:]).all()
    assert found.diversity == 1
    assert json.loads(json.dumps(found.to_dict()))["coherence"] == [pytest.approx(1), pytest.approx(1), None, None]
    assert "cow" in str(found)


def test_a_unit_with_two_meanings_shows_them_by_its_poles(reader: Any) -> None:
    """One unit that is positive for farms and negative for offices: by its size alone it goes with no word."""
    est, X, _ = reader

    class Signed(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raw: Tensor = reads(x)
            raw[:, 0] -= raw[:, 1]
            raw[:, 8] = 2 * OPEN
            return raw

    reads, est.model_.encoder = est.model_.encoder, Signed()
    try:
        size, poles, texts = top_words(est, X, 3), top_words(est, X, 3, poles=True), top_texts(est, X, 1, poles=True)
    finally:
        est.model_.encoder = reads
    assert size.words[0] == []
    assert poles.units[:3] == ["0+", "0-", "1+"]
    assert [set(unit) for unit in poles.words[:2]] == [set(FARM), set(OFFICE)]
    assert "BARN" in texts[0][0]
    assert "MEMO" in texts[1][0]


def test_top_texts_are_returned_as_they_came(reader: Any, tmp_path: Path) -> None:
    est, X, y = reader
    found = top_texts(est, X, 2)
    assert [len(unit) for unit in found] == [2, 2, 0, 2]
    for unit, topic in ((0, "farm"), (1, "office")):
        assert all(text in [x for x, c in zip(X, y, strict=True) if c == topic] for text in found[unit])
    assert top_texts(est, iter(X), 2) == found
    file = tmp_path / "texts.txt"
    file.write_text("\n".join(X) + "\n")
    assert top_texts(est, file, 2) == found


def test_classes_of_texts_have_a_divergence_of_words_by_hand(reader: Any) -> None:
    """40 texts a class: four words 80 or 40 times in both, three of each class 40 times; 7 x 40 words, 10 known."""
    est, X, y = reader
    found = classes(est, X, y)
    assert found.words is not None
    assert found.words.tolist() == [280, 280]
    n, vocabulary = 280, len(est.input_.vocabulary.words)
    p, q = 41 / (n + vocabulary), 1 / (n + vocabulary)
    np.testing.assert_allclose(found.word_kl, (3 * (p - q) * np.log(p / q)) * (1 - np.eye(2)), atol=1e-12)
    assert found.gates is not None
    np.testing.assert_allclose(found.gates, [[0, 1, 1, 0], [1, 0, 1, 0]], atol=1e-6)
    for words in ("farm", "office", "nats", "probe: 1.000"):
        assert words in str(found)


# -- saying it -------------------------------------------------------------------------------------------------------


def test_a_result_is_plain_json_and_prints_a_line_a_class(own: Any) -> None:
    found = classes(*own)
    again = json.loads(json.dumps(found.to_dict()))
    assert again["gates"] == found.gates.tolist()  # type: ignore[union-attr]
    assert again["sparsity"]["gated"]["average"] == found.sparsity["gated"].average
    assert again["word_kl"] is None
    assert again["separation"]["relative"] > 1e3
    header, lines = found.table("gated")
    assert [line[0] for line in lines] == ["all", "0", "1", "2", "3"]
    assert lines[1][header.index("on more than elsewhere")] == "0 +1.00, 1 +1.00"
    with pytest.raises(ValueError, match="draws, slab, gated; got 'mode'"):
        found.table("mode")


def test_the_picture_is_dark_where_a_unit_is_on(reader: Any) -> None:
    figure = class_gates(classes(*reader))
    figure.canvas.draw()
    gates, words = (ax for ax in figure.axes if ax.get_images())
    assert [t.get_text() for t in gates.get_yticklabels()] == ["farm", "office"]
    assert [t.get_text() for t in words.get_xticklabels()] == ["farm", "office"]
    shade = {
        ax: np.asarray(ax.get_images()[0].to_rgba(np.array([0.0, ax.get_images()[0].get_clim()[1]])))
        for ax in (gates, words)
    }
    assert shade[gates][0].sum() < shade[gates][1].sum()  # low is dark
    assert shade[words][0].sum() > shade[words][1].sum()


def test_a_heat_map_keeps_to_the_limits_it_is_given() -> None:
    ax = plots.new_figure(2, 2).subplots()
    plots.heat_map(ax, [[0.2, 0.4]], ["a"], label="P", limits=(0.0, 1.0))
    assert ax.get_images()[0].get_clim() == (0.0, 1.0)
    assert [t.get_text() for t in ax.get_xticklabels()] == ["0", "1"]


def test_what_cannot_be_compared_is_refused(own: Any, reader: Any) -> None:
    est, X, y = own
    with pytest.raises(ValueError, match="two classes at least, of two rows each at least; all are 1"):
        classes(est, X[:4], [1] * 4)
    with pytest.raises(ValueError, match="class b has 1"):
        classes(est, X[:4], ["a", "a", "a", "b"])
    with pytest.raises(ValueError, match="y"):
        classes(est, X, y[:-1])
    with pytest.raises(TypeError, match="go together"):
        classes(est, X, y, X_test=X)
    with pytest.raises(ValueError, match="draws must be an integer above 0"):
        classes(est, X, y, draws=0)
    with pytest.raises(TypeError, match="fitted estimator"):
        classes("VSC", X, y)  # type: ignore[arg-type]
    for function in (top_words, top_texts):
        with pytest.raises(ValueError, match="fitted on numbers"):
            function(est, X)
        with pytest.raises(ValueError, match="n must be an integer above 0"):
            function(reader[0], reader[1], 0)


# -- the reproduction of figure 4 ------------------------------------------------------------------------------------


def test_figure_4_runs_from_texts_to_a_verdict_and_writes_no_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = sentences()
    number = (y == "office").astype(int)

    def texts(data_set: str, rows: int | None) -> tuple[object, ...]:
        own = np.array([f"{data_set} {text}" for text in X], object)
        return own, number, own[:40], number[:40], ("farm", "office")

    monkeypatch.setattr(patterns, "_texts", texts)
    monkeypatch.setattr(patterns, "_reading", lambda data_set, size: sv.Text(max_length=10, embedding=size))
    argv = ["hsvae_patterns", "--steps", "3", "--units", "4", "--hidden", "8", "--embedding", "4", "--device", "cpu"]
    monkeypatch.setattr("sys.argv", [*argv, "--out", str(tmp_path)])
    patterns.main()
    report = json.loads((tmp_path / "hsvae_patterns.json").read_text())
    assert [(r["data"], r["prior"]) for r in report["table"]] == [
        (data_set, prior) for data_set in ("dbpedia", "yelp") for prior in ("30,10", "10,30")
    ]
    assert np.shape(report["runs"][0]["gates"]) == (2, 4)
    assert None not in report["verdict"].values()
    assert (tmp_path / "hsvae_patterns.png").stat().st_size > 10_000
    shown = [r["said"] for r in report["runs"] if r["data"] == "dbpedia"]
    assert all(len(s["items"]) == len(s["prior"]) == 5 and len(s["words"]["units"]) == 8 for s in shown)
    assert all(item["text"].startswith("dbpedia") for s in shown for item in s["items"])
    written = "".join(p.read_text() for p in tmp_path.rglob("*.json")).lower()
    assert not any(f"yelp {text}".lower() in written for text in X)


def test_the_verdict_follows_the_limits() -> None:
    assert patterns.pattern(0.06, 0.6) == "distinct"
    assert patterns.pattern(0.06, 0.2) == "uniform"
    assert patterns.pattern(0.01, 3.0) == "uniform"
    assert patterns.pattern(0.03, 0.6) == "between"

    def line(data: str, prior: str, name: str, value: float) -> dict[str, Any]:
        numbers = dict.fromkeys(("distance", "relative", "equal_word_kl"), value)
        return {"data": data, "prior": prior, "pattern": name, "accuracy": 0.7, "majority": 0.4, **numbers}

    def claims(lines: list[dict[str, Any]]) -> list[Any]:
        found = patterns.verdict(lines)
        named = found.pop("accuracy, and that of one class for all")
        assert named == {f"{x['data']} ({x['prior']})": [0.7, 0.4] for x in lines}
        return list(found.values())

    lines = [line("dbpedia", "30,10", "distinct", 2.0), line("yelp", "30,10", "uniform", 1.0)]
    dense = [line(data, "10,30", "uniform", 0.0) for data in ("dbpedia", "yelp")]
    assert claims(lines + dense) == [True] * 5
    between = [line("dbpedia", "30,10", "between", 1.0), line("yelp", "30,10", "between", 2.0)]
    assert claims(between) == [False, False, None, False, False]
    assert claims(lines[:1]) == [True, None, None, None, None]


def test_words_are_compared_at_equal_numbers() -> None:
    X, y = sentences()
    vocabulary = sv.Vocabulary.fit(X)
    kl, words = patterns.equal_words(vocabulary, X, y, budget=70)
    assert words.tolist() == [70, 70]  # ten texts of seven words
    _, all_of_them = patterns.equal_words(vocabulary, X, y)
    assert all_of_them.tolist() == [280, 280]
    assert kl[0, 1] < patterns.equal_words(vocabulary, X, y)[0][0, 1]  # fewer words, more smoothing
