"""Controllers: knobs that follow what reports measure, with a state that a checkpoint holds."""

from __future__ import annotations

import math
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import sparsevae as sv
from sparsevae.exceptions import StorageError
from sparsevae.inputs.batch import Batch
from sparsevae.schedules import Controller, KeepMean
from sparsevae.training import accelerate
from sparsevae.training.step import Run

pytestmark = pytest.mark.filterwarnings("ignore::sparsevae.SparsityWarning")


def rows(n: int = 400) -> Any:
    rng = np.random.default_rng(0)
    codes = (rng.random((n, 6)) < 0.3) * rng.normal(size=(n, 6))
    return (codes @ rng.normal(size=(6, 12)) + 0.1 * rng.normal(size=(n, 12))).astype(np.float32)


X, state = rows(), Run.state


def make(knob: Any, **chosen: Any) -> sv.VSC:
    run = {"steps": 60, "batch_size": 50, "report_every": 10, "verbose": 0, "device": "cpu"} | chosen
    plan = {} if knob is None else {"kl_z": knob}
    return sv.VSC(8, hidden=(16,), alpha=0.2, training=sv.Training(**run, schedules=plan))


def mean_p_on(est: sv.VSC) -> float:
    with torch.no_grad():
        x = est.input_.prepare(torch.from_numpy(X))
        return float(est.model_.eval().encode(Batch(x).x).p_on.mean())


def test_the_mean_of_p_on_comes_to_its_target() -> None:
    found = {}
    for target in (None, 0.32, 0.4):
        est = make(target and KeepMean("p_on", target), steps=2000, batch_size=100, report_every=20).fit(X)
        found[target] = mean_p_on(est)
        if target:
            assert est.history_[-1]["p_on"] == pytest.approx(found[target], abs=1e-5)  # all rows are watched
    assert found[0.32] == pytest.approx(0.32, abs=0.02)
    assert found[0.4] == pytest.approx(0.4, abs=0.02)
    assert all(abs(found[None] - target) > 0.04 for target in (0.32, 0.4))


def test_the_knob_has_each_value_from_its_report_on() -> None:
    keep = KeepMean("p_on", 0.3, first=2.0)
    est = make(keep, steps=40).fit(X)
    value, state = 2.0, 0.0
    for row in est.history_:
        assert row["knob_kl_z"] == value
        value, state = keep.update(state, row, row["step"], 40)
    losses = [row["nll_x"] + row["knob_kl_z"] * row["kl_z"] for row in est.history_]
    assert est.history_.column("loss") == pytest.approx(losses, rel=1e-5)
    assert "p_on" not in make(None).fit(X).history_.names()


@pytest.mark.parametrize("long", [1, 10**9], ids=["traced", "eager"])
def test_a_killed_run_resumes_bit_by_bit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, long: int) -> None:
    monkeypatch.setattr(accelerate, "LONG", long)
    keep = KeepMean("p_on", 0.3)
    whole = make(keep).fit(X)

    def stop(row: Any) -> None:
        if row["step"] == 40:
            raise RuntimeError("the power is gone")

    run = {"folder": str(tmp_path / "run"), "checkpoint_every": 20}
    with pytest.raises(RuntimeError, match="the power is gone"):
        make(keep, **run).fit(X, watch=stop)
    rest = make(keep, **run, resume=True).fit(X)
    assert list(rest.history_) == list(whole.history_)
    assert len(set(whole.history_.column("knob_kl_z"))) == 6
    assert all(torch.equal(a, b) for a, b in zip(whole.model_.parameters(), rest.model_.parameters(), strict=True))
    with pytest.raises(ValueError, match=r"holds a different run \(training.schedules|schedules"):
        make(KeepMean("p_on", 0.31), **run, resume=True).fit(X)


numbers = st.floats(-10, 10) | st.sampled_from([math.nan, math.inf, -math.inf])


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.lists(numbers, min_size=1), st.floats(-2, 2), st.floats(-2, 2), st.floats(0.01, 3))
def test_the_knob_stays_within_its_range(
    reports: list[float], proportional: float, integral: float, target: float
) -> None:
    keep = KeepMean("m", target, lowest=0.5, highest=3.0, proportional=proportional, integral=integral)
    state = keep.start()
    for step, mean in enumerate(reports):
        value, state = keep.update(state, {"m": mean}, step, 100)
        assert 0.5 - 1e-12 <= value <= 3.0 + 1e-12
    value, _ = KeepMean("m", 1.0).update(0.0, {"m": math.nan}, 0, 1)
    assert value == 1.0


def test_a_mean_above_its_target_raises_the_knob_and_a_negative_gain_lowers_it() -> None:
    for gain, above in ((1.0, True), (-1.0, False)):
        keep = KeepMean("m", -2.0, proportional=gain, integral=0.0)  # a target below 0 has a size too
        assert (keep.update(keep.start(), {"m": -1.0}, 0, 1)[0] > 1) == above
        assert (keep.update(keep.start(), {"m": -3.0}, 0, 1)[0] < 1) == above


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"measure": 3}, "measure must be the name of a reported number, such as 'p_on', got 3"),
        ({"target": 0}, "target must be a number other than 0, got 0"),
        ({"target": "0.1"}, "target must be a number other than 0, got '0.1'"),
        ({"target": math.nan}, "target must be a number other than 0, got nan"),
        ({"lowest": 0}, "lowest must be a number above 0, got 0"),
        ({"highest": 0.001}, "highest must be a number, lowest or above, got 0.001"),
        ({"first": 1000.0}, "first must be from lowest to highest, got 1000.0"),
        ({"integral": None}, "integral must be a number, got None"),
    ],
)
def test_settings_that_cannot_work_are_refused_when_it_is_made(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        KeepMean(**{"measure": "p_on", "target": 0.1} | fields)


def test_a_measure_that_reports_lack_is_refused_before_training() -> None:
    with pytest.raises(ValueError, match=r"cannot drive 'kl_z' by KeepMean\(measure='p_onn'.*did you mean 'p_on'\?"):
        make(KeepMean("p_onn", 0.1)).fit(X)
    training = sv.Training(steps=5, verbose=0, schedules={"kl_z": KeepMean("p_on", 0.1)})
    with pytest.raises(ValueError, match=r"unknown measure 'p_on'.* loss, nll_x, kl_z, active_units, nonzeros"):
        sv.VAE(4, hidden=(8,), training=training).fit(X)  # no gates
    with pytest.raises(ValueError, match="unknown measure 'validation_loss'"):
        make(KeepMean("validation_loss", 1.0)).fit(X)
    make(KeepMean("validation_loss", 1.0), validation_fraction=0.2).fit(X)
    with pytest.raises(ValueError, match="schedules drive unknown knobs"):
        sv.VAE(4, training=sv.Training(steps=5, verbose=0, schedules={"kl": KeepMean("loss", 1.0)})).fit(X)


def test_values_out_of_a_knob_s_range_are_refused() -> None:
    plan = {"slab_warmup": KeepMean("p_on", 0.1)}
    with pytest.raises(ValueError, match=r"'slab_warmup'\] must be a number in \[0, 1\] all along"):
        sv.PseudoVSC(4, training=sv.Training(steps=5, verbose=0, schedules=plan)).fit(X)


def test_it_is_stored_like_a_schedule(tmp_path: Path) -> None:
    keep = KeepMean("p_on", 0.3, highest=5.0)
    est = make(keep).fit(X)
    est.save(tmp_path / "model")
    again = sv.load(tmp_path / "model")
    assert again.training.schedules == {"kl_z": keep}
    assert again.history_.column("knob_kl_z") == est.history_.column("knob_kl_z")


@pytest.mark.parametrize("control", [[1.0], ["1", 0.0], {"kl_z": 1.0}, 3])
def test_a_damaged_state_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, control: Any) -> None:
    run = {"folder": str(tmp_path / "run"), "checkpoint_every": 20, "steps": 40}
    with monkeypatch.context() as patch:
        patch.setattr(Run, "state", lambda self: (s := state(self), s.meta.update(controls={"kl_z": control}), s)[2])
        with pytest.raises(StopIteration):
            make(KeepMean("p_on", 0.3), **run).fit(X, watch=lambda row: next(iter([1] * (row["step"] < 40))))
    with pytest.raises(StorageError, match="controls="):
        make(KeepMean("p_on", 0.3), **run, resume=True).fit(X)


def test_the_base_class_says_what_is_to_be_written() -> None:
    base = Controller()
    for call in (lambda: base(0, 1), base.start, lambda: base.update(0, {}, 0, 1)):
        with pytest.raises(NotImplementedError):
            call()


def test_validation_losses_of_a_controlled_run_do_not_move_with_the_knob() -> None:
    """The weights hardly move here, but the knob does: patience must see equal losses."""
    rows = np.random.default_rng(0).normal(size=(200, 6))
    training = sv.Training(
        steps=60,
        report_every=10,
        learning_rate=1e-12,
        verbose=0,
        validation_fraction=0.2,
        schedules={"kl_z": sv.KeepMean("p_on", 0.9, lowest=0.001)},
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        history = sv.VSC(4, hidden=(8,), training=training).fit(rows).history_
    knobs, losses = history.column("knob_kl_z"), history.column("validation_loss")
    assert max(knobs) > 2 * min(knobs)
    assert losses == pytest.approx([losses[0]] * len(losses), abs=1e-5)


def test_one_more_pass_keeps_the_last_value_of_a_controlled_knob() -> None:
    rows = np.random.default_rng(0).normal(size=(200, 6))
    training = sv.Training(
        steps=60, report_every=10, verbose=0, schedules={"kl_z": sv.KeepMean("p_on", 0.01, highest=50.0)}
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        est = sv.VSC(4, hidden=(8,), training=training).fit(rows)
        used = est.history_.column("knob_kl_z")[-1]
        assert used > 2
        seen: list[float] = []
        build = type(est).build

        def watched(self: Any, data: Any, weights: Any) -> Any:
            made = build(self, data, weights)
            seen.append(made.objective.kl_z)
            return made

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(type(est), "build", watched)
            est.partial_fit(rows)
    assert float(seen[-1]) == pytest.approx(used)
