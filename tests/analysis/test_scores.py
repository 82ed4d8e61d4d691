"""Claims: every number of `evaluate` has one name and one note, whoever prints it."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import quiet

import sparsevae as sv
from sparsevae import cli
from sparsevae.analysis.scores import cost_of_caps, numbers
from sparsevae.report import page

TEXTS = ["the hen sings", "a cat sleeps in town", "the clerk writes", "a pilot flies to town"] * 10
QUICK = sv.Training(steps=10, batch_size=16, verbose=0)
WORDED = {
    "score_standard_error": "beside the score",
    "score_meaning": "note of the score",
    "n_components": "notes of counts",
    "nonzeros_drawn": "note of non-zeros",
    "nonzeros_expected": "note of non-zeros",
    "importance_rows": "note of the importance bound",
    "heavy_tails": "note of the importance bound",
    "hoyer": "a number for each kind of code",
    "unknown": "note of words",
    "nll_code": "note of the reconstruction",
    "perplexity_reconstruction": "note of the perplexity",
    "caps": "a table of its own",
}
"""Keys without a number of their own, and where they are instead; a KL by name is part of `kl`."""


@pytest.fixture(scope="module")
def bits(digits: Any) -> Any:
    return (digits.X[:60] > 127).astype(float)


@pytest.fixture(scope="module")
def evaluated(digits: Any, bits: Any) -> dict[str, dict[str, Any]]:
    """What models of every kind of result return."""
    X, y = digits.X[:60], digits.y[:60]
    small: dict[str, Any] = {"hidden": (8,), "training": QUICK}
    return {
        "vsc": quiet(sv.VSC(4, **small), X).evaluate(X),
        "vae": quiet(sv.VAE(4, **small), X).evaluate(X),
        "hsvae": quiet(sv.HSVAE(4, **small), X).evaluate(X),
        "fixed": quiet(sv.VSC(4, likelihood="fixed-gaussian", **small), X).evaluate(X),
        "sdlgm": quiet(sv.SDLGM(4, **small), bits).evaluate(bits),
        "texts": quiet(sv.HSVAE(4, text=sv.Text(embedding=4), **small), TEXTS).evaluate(TEXTS),
        "labels": sv.CodeClassifier(**small).fit(X, y).evaluate(X, y),
        "several labels": sv.SDLGMClassifier(**small).fit(bits, bits[:, 18:21]).evaluate(bits, bits[:, 18:21]),
        "counts": sv.SDLGMCounter(**small).fit(bits, bits[:, 18:21]).evaluate(bits, bits[:, 18:21]),
    }


def test_no_number_of_evaluate_is_left_out(evaluated: dict[str, dict[str, Any]]) -> None:
    for kind, r in evaluated.items():
        missing = set(r) - {n.key for n in numbers(r)} - set(WORDED)
        usage = {"nonzeros_mode", "used", "always_on", "dead", "empty", "usage_entropy"}
        dense = usage if kind == "vae" else set()
        assert {k for k in missing if not k.startswith("kl_")} == dense, kind
    assert set(WORDED) <= {key for r in evaluated.values() for key in r}


def test_values_are_those_of_evaluate(evaluated: dict[str, dict[str, Any]]) -> None:
    for r in evaluated.values():
        for n in numbers(r):
            value = r["hoyer"][n.key[6:]]["average"] if n.key.startswith("hoyer_") else r[n.key]
            assert float(n.value.split(" ± ")[0].replace(",", "")) == pytest.approx(value, rel=1e-3, abs=0.006), n


def test_rows_and_texts_have_their_own_words(evaluated: dict[str, dict[str, Any]]) -> None:
    rows, texts = ({n.key: n for n in numbers(evaluated[kind])} for kind in ("vsc", "texts"))
    assert (rows["rows"].label, texts["rows"].label) == ("rows", "texts")
    assert rows["score"].note == "nats per row: a lower bound on log p(x): hard draws, unit weights"
    assert texts["nonzeros_mode"].label == "non-zeros per text"
    assert all("row" not in n.label + n.note for n in texts.values())


def test_a_score_of_one_row_has_no_error(evaluated: dict[str, dict[str, Any]]) -> None:
    r = {**evaluated["vsc"], "score_standard_error": math.nan}
    (score,) = (n for n in numbers(r) if n.key == "score")
    assert score.value == f"{r['score']:.2f}"


def test_an_importance_bound_says_where_its_error_is_not_known(evaluated: dict[str, dict[str, Any]]) -> None:
    known = {"samples": 50, "bound": -4.0, "standard_error": 0.5, "effective_samples": 12.0, "heavy_tails": 0.0}
    for share, more in ((0.0, ""), (0.5, "; heavy tails in 50% of the rows: its error is not known")):
        (bound,) = (
            n
            for n in numbers({**evaluated["vsc"], "importance": {**known, "heavy_tails": share}})
            if n.key == "importance"
        )
        assert bound.value == "-4.00 ± 0.50"
        assert bound.note == f"nats per row: 50 hard samples, 12 effective{more}"


def test_costs_of_caps_are_beside_the_error_without_one() -> None:
    header, lines = cost_of_caps({"mse": 2.0, "caps": {1: 3.0, 4: 2.0}})
    assert header == ["at most", "squared error", "cost"]
    assert lines == [["1", "3", "+50.0%"], ["4", "2", "+0.0%"], ["no cap", "2", ""]]
    assert cost_of_caps({"nll_code": 0.0, "caps": {1: 1.0}})[1] == [["1", "1", ""], ["no cap", "0", ""]]


def test_the_page_and_the_command_line_print_the_same(
    digits: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    X = digits.X_test[:60]
    np.save(tmp_path / "X.npy", X)
    est = quiet(sv.VSC(4, hidden=(8,), training=QUICK), digits.X[:60])
    est.save(tmp_path / "model")
    monkeypatch.setattr(page, "_pictures", lambda est, view: [])
    html = page.report(est, X, tmp_path / "page.html").read_text()
    cards = re.findall(r'"name">(.*?)</div><div class="value">(.*?)</div><div class="note">(.*?)</div>', html)
    assert cli.main(["evaluate", str(tmp_path / "model"), "-d", str(tmp_path / "X.npy")]) == 0
    printed = [tuple(re.split("  +", line)) for line in capsys.readouterr().out.splitlines()[2:]]
    assert printed == cards
    assert {name for name, _, _ in cards} >= {"used units", "always on", "dead units", "empty codes", "usage entropy"}
    assert {name for name, _, _ in cards} >= {"R2", "error of the mean row"}
