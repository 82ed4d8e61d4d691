"""Warnings at the end of a fit about how a code uses its units: each fires on a made case, none on a healthy one."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import sparsevae as sv
from sparsevae.estimator.learning import signature
from sparsevae.metrics.usage import Usage, usage_of
from sparsevae.training.health import judge, warn_about_sparsity
from sparsevae.training.history import History

LAST = {"step": 5000, "nonzeros": 6.0, "active_units": 40.0}


def usage(*shares: float, n: int = 64, empty: float = 0.0) -> Usage:
    """The usage of n units: these shares, and zeros."""
    return usage_of(np.array([*shares, *[0.0] * (n - len(shares))]), empty)


HEALTHY = usage(*[0.1] * 60)
DEAD = usage(*[0.3] * 12)
PRUNED = usage(*[1.0] * 6, *[0.2] * 3)
SOME_EMPTY = usage(*[0.1] * 60, empty=0.2)
FULL = usage(*[0.8] * 60)


def test_judgements() -> None:
    assert judge(HEALTHY, 64, 5000) is None
    assert judge(usage(*[0.1] * 32), 64, 5000) is None  # half of the units are used
    assert judge(usage(*[0.1] * 60, 1.0), 64, 5000) is None  # one unit that is always on prunes nothing
    assert judge(usage(*[0.1] * 60, empty=0.1), 64, 5000) is None
    dead = "12 of 64 units are used, 0 on in over 90 % of rows and 52 dead"
    assert judge(DEAD, 64, 5000) == ("dead", dead)
    pruned = "3 of 64 units are used, 6 on in over 90 % of rows and 55 dead: this is pruning, a VAE of 7 units would do"
    assert judge(PRUNED, 64, 5000) == ("always on", pruned)
    assert judge(SOME_EMPTY, 64, 5000) == ("empty", "the code of 20% of rows is empty")
    assert judge(DEAD._replace(empty=0.2), 64, 5000) == ("empty", f"the code of 20% of rows is empty; {dead}")
    assert judge(FULL, 64, 5000) == ("full", "rows have 48 of 64 units on: the code is not sparse")


def test_a_short_run_is_judged_by_its_fullness_alone() -> None:
    for found in (DEAD, PRUNED, SOME_EMPTY):
        assert judge(found, 64, 999) is None
        assert judge(found, 64, 1000)
    assert judge(FULL, 64, 10)


X = np.random.default_rng(0).normal(size=(60, 10)).astype(np.float32)


def built(cls: Any, X: Any = X, **settings: Any) -> Any:
    """An untrained model of 64 units."""
    return cls(**{"n_components": 64, "hidden": (12,)} | settings).prepare(X)


def message_of(est: Any, found: Usage | None, last: dict[str, float] | None = None) -> str:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_about_sparsity(History([last or LAST]), est.model_, signature(est), found)
    return str(caught[0].message) if caught else ""


THEN = "; if that does not help, "
SIGMOID = {"gate": "sigmoid", "alpha": 0.1}
OLD = SIGMOID | {"skip": False, "start": "random"}
STC = "gate='straight-through-concrete'"
REMEDIES: list[tuple[Any, dict[str, Any], Usage, list[str]]] = [
    (sv.VSC, OLD, DEAD, ["skip=True and start='rows'", f"{STC} and alpha=0.033", "kl_z=0.5", "n_components=14"]),
    (sv.VSC, SIGMOID, DEAD, [f"{STC} and alpha=0.033", "kl_z=0.5", "n_components=14"]),
    (
        sv.VSC,
        SIGMOID | {"start": "random"},
        DEAD,
        ["start='rows'", f"{STC} and alpha=0.033", "kl_z=0.5", "n_components=14"],
    ),
    (
        sv.VSC,
        {"target_active": 5.0} | SIGMOID,
        DEAD,
        [f"{STC} and alpha=0.033", "n_components=14"],
    ),  # weights are found
    (sv.VSC, {"gate": STC[6:-1], "alpha": 0.02}, DEAD, ["kl_z=0.5", "n_components=14"]),
    (sv.VSC, OLD, PRUNED, ["skip=True and start='rows'", f"{STC} and alpha=0.033"]),
    (sv.PseudoVSC, {}, PRUNED, ["skip=True and start='rows'", f"{STC} and alpha=0.033"]),
    (sv.VSC, OLD, SOME_EMPTY, ["skip=True and start='rows'", "training.kl_warmup=0.5", "alpha=0.3"]),
    (sv.HSVAE, {}, DEAD, ["kl_gamma=0.5", "n_components=14"]),  # its gates do not begin at the data
    (sv.VSC, {"alpha": 0.9}, FULL, ["alpha=0.3 and training.kl_warmup=0.5", "n_components=128"]),
]


@pytest.mark.parametrize(("cls", "settings", "found", "lots"), REMEDIES)
def test_remedies_are_of_the_case_and_of_the_settings_in_use(
    cls: Any, settings: dict[str, Any], found: Usage, lots: list[str]
) -> None:
    est = built(cls, **settings)
    judged = judge(found, 64, 5000)
    assert judged
    assert message_of(est, found) == f"{judged[1]}. Try {THEN.join(lots)}."
    assert message_of(est, HEALTHY) == ""


def test_codes_without_gates_and_labels_are_not_judged() -> None:
    for est in (built(sv.VAE), built(sv.VSC, alpha=1.0)):
        assert message_of(est, None) == ""
    y = np.arange(60) % 3
    labelled = sv.CodeClassifier(training=sv.Training(steps=1, verbose=0)).fit(X, y)
    assert message_of(labelled, DEAD) == ""


def test_texts_have_no_dictionary_to_begin() -> None:
    assert message_of(built(sv.VSC, ["a cow", "a hen and a cow", "grass"], hidden=None), DEAD).startswith(DEAD.words)
    assert "skip" not in message_of(built(sv.VSC, ["a cow", "a hen and a cow", "grass"], hidden=None), DEAD)


def planted(n: int, seed: int = 0) -> np.ndarray:
    """Rows with three or so of 12 sources each, in 16 columns."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(n, 12)) * (rng.random((n, 12)) < 0.3)
    return (values @ np.random.default_rng(1).normal(size=(12, 16)) + 0.05 * rng.normal(size=(n, 16))).astype(
        np.float32
    )


def test_a_fit_warns_by_what_evaluate_says_and_its_first_remedy_helps() -> None:
    rows = planted(1000)
    training = sv.Training(steps=1000, learning_rate=1e-2, verbose=0)
    est = sv.VSC(64, hidden=(32,), **OLD, training=training)
    with pytest.warns(sv.SparsityWarning) as caught:
        r = est.fit(rows).evaluate(rows)
    counts = f"{r['used']} of 64 units are used, {r['always_on']} on in over 90 % of rows and {r['dead']} dead"
    assert str(caught[0].message).startswith(f"the code of {r['empty']:.0%} of rows is empty; {counts}. Try skip=True ")
    assert est.history_[-1]["used"] == pytest.approx(r["used"], abs=3)  # of 512 rows
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sv.SparsityWarning)
        followed = est.set_params(skip=True, start="rows").fit(rows).evaluate(rows)
    assert followed["used"] > 2 * r["used"]
    assert followed["empty"] < r["empty"] / 4
