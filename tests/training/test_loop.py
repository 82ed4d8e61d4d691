"""Claims about the one training loop: every setting does what it says and nothing else, numbers that are not finite
are undone, what is shown is what happened, and nothing outside the run is touched."""

from __future__ import annotations

import json
import math
import os
import random
import re
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import sparsevae as sv
from sparsevae.estimator.learning import signature
from sparsevae.inputs.rows import Host
from sparsevae.latent.model import LatentModel
from sparsevae.latent.objective import Objective, kl, nll
from sparsevae.latent.posteriors import SpikeSlabPosterior
from sparsevae.latent.priors import FixedSpikeSlab
from sparsevae.likelihoods.gaussian import GaussianData
from sparsevae.networks.dense import initialise, mlp
from sparsevae.sampling.draw import Draw
from sparsevae.sampling.gradients import ScaledSigmoid
from sparsevae.sampling.noise import Fresh, Tape, mix
from sparsevae.storage.checkpoint import RunFolder
from sparsevae.training import progress
from sparsevae.training.feeds import Order
from sparsevae.training.health import warn_about_sparsity
from sparsevae.training.history import History
from sparsevae.training.loop import fit, split
from sparsevae.training.optimisers import Adam
from sparsevae.training.remedies import remedies
from sparsevae.training.step import Run

quiet = pytest.mark.filterwarnings("ignore::sparsevae.exceptions.SparsityWarning")
pytestmark = quiet
rng = np.random.default_rng(0)
X = (rng.normal(size=(200, 4)) * (rng.random((200, 4)) < 0.6) @ rng.normal(size=(4, 10))).astype(np.float32)
BINARY = (X > 0.3).astype(np.float32)


def make(cls: Any = sv.VSC, *, training: dict[str, Any] | None = None, **changes: Any) -> Any:
    chosen = sv.Training(**{"steps": 40, "batch_size": 32, "learning_rate": 1e-2, "verbose": 0} | (training or {}))
    more = {"gate": "sigmoid"} if cls is sv.VSC else {}
    return cls(**{"n_components": 6, "hidden": (12,), "training": chosen} | more | changes)


def weights(est: Any) -> Tensor:
    return torch.cat([p.detach().flatten() for p in est.model_.parameters()])


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """For every step taken: its number, rate, knobs, rows, gradient norm and Adam's moments before it."""
    seen: list[dict[str, Any]] = []
    advance, adam_step, current = Run.advance, Adam.step, []

    def spy(self: Run) -> None:
        current[:] = [self]
        advance(self)
        current.clear()

    def step(self: Adam, gradients: list[Tensor]) -> None:
        if current:
            run = current[0]
            entry: dict[str, Any] = {name: float(value) for name, (value,) in run.knobs.items()}
            entry |= {"step": run.step, "rate": float(run.rate), "rate_factor": run.rate_factor}
            entry["rows"] = run.order(run.step).tolist()
            entry["norm"] = float(torch.stack([g.norm() for g in gradients]).norm())
            entry["moments"] = sum(float(v.abs().sum()) for k, v in run.optimiser.state())
            seen.append(entry)
        adam_step(self, gradients)

    monkeypatch.setattr(Run, "advance", spy)
    monkeypatch.setattr(Adam, "step", step)
    return seen


# Which rows, in which order.


@settings(max_examples=60, deadline=None)
@given(n=st.integers(1, 70), size=st.integers(1, 80), seed=st.integers(-(2**40), 2**40))
def test_every_row_comes_once_an_epoch(n: int, size: int, seed: int) -> None:
    items = torch.arange(n) * 3
    order = Order(items, size, seed)
    size = min(size, n)
    served = torch.cat([order(step) for step in range(-(-3 * n // size))])
    for epoch in range(3):
        assert sorted(served[epoch * n : (epoch + 1) * n].tolist()) == items.tolist()
    jump = Order(items, size, seed)  # a resumed run starts in the middle
    assert torch.equal(jump(5), order(5))


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    items = torch.arange(50)
    epochs = [tuple(Order(items, 50, seed)(step).tolist()) for seed in range(3) for step in range(4)]
    assert len(set(epochs)) == 12


@settings(max_examples=60, deadline=None)
@given(n=st.integers(2, 60), fraction=st.floats(0.0, 0.999), seed=st.integers(0, 10**9))
def test_the_validation_split_is_disjoint_and_complete(n: int, fraction: float, seed: int) -> None:
    kept, kept_rows = split(n, sv.Training(validation_fraction=fraction, seed=seed), torch.device("cpu"))
    assert sorted([*kept.tolist(), *kept_rows.tolist()]) == list(range(n))
    assert len(kept) > 0
    assert bool(len(kept_rows)) == (fraction > 0)
    if fraction and 1 <= round(fraction * n) < n:
        assert len(kept_rows) == round(fraction * n)


def test_held_out_rows_are_never_trained_on(steps: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    watched: list[Tensor] = []
    validate = Run.validate
    monkeypatch.setattr(Run, "validate", lambda self, items: (watched.append(items), validate(self, items))[1])
    make(training={"validation_fraction": 0.25}).fit(X)
    assert len(watched[0]) == 50
    trained = {i for entry in steps for i in entry["rows"]}
    assert trained.isdisjoint(watched[0].tolist())
    assert len(trained) == 150


@pytest.mark.parametrize(
    ("given", "expected"),
    [({"steps": 17}, 17), ({"epochs": 2, "steps": None}, 13), ({"epochs": 0.5, "steps": None, "batch_size": 999}, 1)],
)
def test_the_length_of_a_run_is_in_steps_or_epochs(given: dict[str, Any], expected: int, steps: list[Any]) -> None:
    est = make(training=given).fit(X)
    assert len(steps) == est.n_steps_ == est.history_[-1]["step"] == expected


# Rates and knobs.


@pytest.mark.parametrize(
    ("settings", "rate"),
    [
        ({"decay": "constant"}, lambda t: 1e-2),
        ({"decay": "cosine"}, lambda t: 1e-2 * 0.5 * (1 + math.cos(math.pi * t / 40))),
        ({"decay": "step"}, lambda t: 1e-2 if t < 20 else 1e-3),
        ({"decay": "step", "decay_at": 7, "decay_factor": 0.5}, lambda t: 1e-2 if t < 7 else 5e-3),
        ({"decay": "step", "decay_at": 0.33}, lambda t: 1e-2 if t < 14 else 1e-3),
    ],
)
def test_the_rate_follows_its_course(settings: Any, rate: Callable[[int], float], steps: list[Any]) -> None:
    make(training=settings).fit(X)
    assert [s["step"] for s in steps] == list(range(40))
    assert [s["rate"] for s in steps] == pytest.approx([rate(t) for t in range(40)], rel=1e-6)


@pytest.mark.parametrize("rate", [1, 2**63])
def test_a_rate_that_is_an_integer_falls_as_any_other(rate: int, steps: list[Any]) -> None:
    with pytest.warns(sv.SparsityWarning) if rate == 1 else pytest.raises(sv.DivergenceError):
        make(training={"learning_rate": rate}, skip=False).fit(X)
    expected = [rate * 0.5 * (1 + math.cos(math.pi * s["step"] / 40)) for s in steps[:10]]
    assert [s["rate"] for s in steps[:10]] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(("at", "drop"), [(0.5, 20), (0.33, 14), (13, 13)])
def test_a_restart_forgets_adam_s_moments_exactly_once(at: float, drop: int, steps: list[Any]) -> None:
    settings = {"decay": "step", "decay_at": at}
    make(training=settings | {"restart_optimizer": True}).fit(X)
    assert [s["step"] for s in steps if s["moments"] == 0] == [0, drop]
    steps.clear()
    make(training=settings).fit(X)
    assert [s["step"] for s in steps if s["moments"] == 0] == [0]


def test_warm_ups_and_schedules_reach_their_buffers_at_their_steps(steps: list[Any]) -> None:
    make(training={"kl_warmup": 0.25}).fit(X)
    assert [s["kl_z"] for s in steps] == pytest.approx([min(t / 10, 1) for t in range(40)])
    assert [s["sharpness"] for s in steps] == pytest.approx([50 + 150 * t / 40 for t in range(40)])
    steps.clear()
    make(sv.BetaVAE, beta=6.0, training={"kl_warmup": 5}).fit(X)
    assert [s["kl_z"] for s in steps[:7]] == pytest.approx([0, 1.2, 2.4, 3.6, 4.8, 6, 6])
    steps.clear()
    plan = {"kl_z": sv.Cyclical(0, 1, cycles=2, ramp=0.5), "sharpness": sv.Step(10, 20, at=30)}
    make(training={"schedules": plan, "kl_warmup": 5}).fit(X)  # what the user names wins
    assert [s["kl_z"] for s in steps] == pytest.approx([min((t % 20) / 10, 1) for t in range(40)])
    assert [s["sharpness"] for s in steps] == [10] * 30 + [20] * 10
    steps.clear()
    plan = {"temperature": sv.Linear(1, 0.1)}
    make(gate="straight-through-concrete", training={"schedules": plan}).fit(X)
    assert steps[20]["temperature"] == pytest.approx(0.55)


def test_partial_fit_finds_every_schedule_at_its_end(steps: list[Any]) -> None:
    plan = {"kl_z": sv.Cyclical(0, 0.5, cycles=2)}
    est = make(training={"schedules": plan, "kl_warmup": 20, "decay": "cosine"}).fit(X)
    steps.clear()
    est.partial_fit(X)
    assert len(steps) == 7  # one pass
    assert {s["kl_z"] for s in steps} == {0.5}
    assert {s["sharpness"] for s in steps} == {200.0}
    assert [s["rate"] for s in steps] == pytest.approx([1e-2] * 7)
    assert steps[0]["moments"] > 0  # Adam remembers


def test_steps_and_epochs_go_on_with_partial_fit() -> None:
    est = make(training={"steps": 60, "report_every": 30}).fit(X).partial_fit(X).partial_fit(X[:100])
    assert est.history_.column("step") == [30, 60, 67, 71]
    assert est.history_.column("epoch") == pytest.approx([4.8, 9.6, 9.6 + 1.12, 9.6 + 1.12 + 1.28])
    assert est.n_steps_ == 71


def test_gradients_are_clipped_to_the_norm(steps: list[Any]) -> None:
    make(training={"clip_norm": 0.5}).fit(X)
    clipped = [s["norm"] for s in steps]
    steps.clear()
    make().fit(X)
    free = [s["norm"] for s in steps]
    assert max(clipped) <= 0.5 + 1e-5
    assert max(free) > 0.5
    assert clipped[0] == pytest.approx(min(free[0], 0.5))


# What the terms do.


def test_more_draws_lower_the_variance_and_leave_the_mean() -> None:
    """At a rate of nothing the weights stand still, and every step is one estimate of the same loss."""
    reference_tape = {"learning_rate": 1e-30, "batch_size": 200, "steps": 400, "report_every": 1, "decay": "constant"}
    losses = {}
    for k in (1, 8):
        est = make(sharpness=(50.0, 50.0), training=reference_tape | {"n_samples": k}).fit(X)
        losses[k] = np.array(est.history_.column("loss"))
    error = math.sqrt(losses[1].var() / 400 + losses[8].var() / 400)
    assert abs(losses[1].mean() - losses[8].mean()) < 4 * error
    assert losses[1].var() / losses[8].var() == pytest.approx(8, rel=0.35)


def test_free_bits_keep_units_from_collapsing() -> None:
    settings = {"steps": 150, "batch_size": 200}
    plain = make(sv.BetaVAE, beta=30.0, training=settings).fit(X)
    free = make(sv.BetaVAE, beta=30.0, training=settings | {"free_bits": 0.2}).fit(X)
    assert plain.evaluate(X)["kl"] < 0.3
    assert free.evaluate(X)["kl"] > 0.6
    assert min(free.history_.column("kl_z")) >= 6 * 0.2 - 1e-4  # the term that is charged starts at the floor


def test_dynamic_binarisation_draws_every_pixel_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    grey = rng.random((50, 8)).astype(np.float32)
    seen: list[Tensor] = []
    forward = LatentModel.forward
    monkeypatch.setattr(
        LatentModel,
        "forward",
        lambda self, batch, draw: (None if draw.hard else seen.append(batch.x.clone()), forward(self, batch, draw))[1],
    )
    est = make(training={"binarise": True, "batch_size": 50, "steps": 300, "n_samples": 2}).fit(grey)
    assert est.likelihood_ == "bernoulli"
    batches = torch.stack(seen[1:])
    assert set(batches.unique().tolist()) == {0.0, 1.0}
    assert batches.shape == (300, 100, 8)
    assert torch.equal(batches[:, :50], batches[:, 50:])  # two draws of z for one binarisation
    assert np.allclose(batches.mean((0, 1)), grey.mean(0), atol=0.02)
    assert len({b.sum().item() for b in batches}) > 20
    assert est.score_meaning(grey) == "cross-entropy"


def stack(alphas: list[float]) -> tuple[LatentModel, list[LatentModel]]:
    """A stack of models that differ in alpha and initial weights, and each of them alone."""

    def build(members: tuple[int, ...], alpha: Any) -> LatentModel:
        encoder, decoder = mlp([10, 12, 18], members), mlp([6, 12, 20], members)
        posterior = SpikeSlabPosterior(ScaledSigmoid(50.0))
        return LatentModel(encoder, posterior, decoder, GaussianData(0.05), FixedSpikeSlab(6, alpha))

    together, alone = build((len(alphas),), alphas), [build((), a) for a in alphas]
    for i, model in enumerate(alone):
        initialise(model, torch.Generator().manual_seed(i))
    with torch.no_grad():
        for name, parameter in together.named_parameters():
            parameter.copy_(torch.stack([m.get_parameter(name) for m in alone]))
    return together, alone


@pytest.mark.parametrize("more", [{}, {"clip_norm": 1.0}, {"n_samples": 3, "kl_warmup": 0.5}])
def test_two_models_trained_as_one_equal_each_trained_alone(more: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refill(self: Tape, step: int) -> None:
        """The same noise for every member, and for the solo run."""
        self.generator.manual_seed(mix(self.seed, step))
        for buffer in self.normals:
            buffer.copy_(torch.randn(buffer.shape[-2:], generator=self.generator))
        for buffer in self.uniforms:
            buffer.copy_(torch.rand(buffer.shape[-2:], generator=self.generator).clamp(1e-6, 1 - 1e-6))
        self.rewind()

    monkeypatch.setattr(Tape, "refill", refill)
    together, alone = stack([0.1, 0.5])
    chosen = sv.Training(steps=60, batch_size=32, learning_rate=1e-2, verbose=0, **more)
    histories = []
    for model in (together, *alone):
        plan = {"sharpness": sv.Linear(50, 100)}
        history, _ = fit(
            model, Objective(nll, kl, weights={"kl_z": 1.0}), Host(X, torch.device("cpu")), chosen, schedules=plan
        )
        histories.append(history)
    for name, parameter in together.named_parameters():
        for i, model in enumerate(alone):
            assert torch.allclose(parameter[i], model.get_parameter(name), atol=2e-4), (name, i)
    for both, one, two in zip(*histories, strict=True):
        assert both["loss"] == pytest.approx((one["loss"] + two["loss"]) / 2, rel=1e-4)


def test_alpha_one_trains_like_the_vae() -> None:
    """The spike without mass is the VAE: the same weights, noise and losses."""
    vae, vsc = make(sv.VAE).fit(X), make(sv.VSC, alpha=1.0, skip=False).fit(X)
    assert torch.allclose(weights(vae), weights(vsc), atol=1e-5)
    assert vae.history_.column("loss") == pytest.approx(vsc.history_.column("loss"), rel=1e-5)
    assert np.allclose(vae.transform(X), vsc.transform(X).toarray(), atol=1e-5)
    beta = make(sv.BetaVAE, beta=1.0).fit(X)
    assert torch.equal(weights(vae), weights(beta))


# Validation and early stopping.


def test_early_stopping_keeps_the_best_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    losses = iter([5.0, 4.0, 3.0, 3.5, 3.0, 3.2, 0.0])  # an equal one is no better
    at_report: list[Tensor] = []

    def scripted(self: Run, items: Tensor) -> float:
        at_report.append(torch.cat([p.detach().flatten().clone() for p in self.model.parameters()]))
        return next(losses)

    monkeypatch.setattr(Run, "validate", scripted)
    est = make(training={"steps": 1000, "report_every": 5, "validation_fraction": 0.2, "patience": 3}).fit(X)
    assert est.history_.column("validation_loss") == [5.0, 4.0, 3.0, 3.5, 3.0, 3.2]
    assert est.n_steps_ == 30
    assert torch.equal(weights(est), at_report[2])
    assert not torch.equal(weights(est), at_report[-1])


def test_a_run_that_is_not_stopped_ends_with_its_best_weights_too(monkeypatch: pytest.MonkeyPatch) -> None:
    losses = iter([2.0, 1.0, 3.0, 4.0])
    kept: list[Tensor] = []

    def scripted(self: Run, items: Tensor) -> float:
        kept.append(torch.cat([p.detach().flatten().clone() for p in self.model.parameters()]))
        return next(losses)

    monkeypatch.setattr(Run, "validate", scripted)
    est = make(training={"steps": 20, "report_every": 5, "validation_fraction": 0.2, "patience": 9}).fit(X)
    assert torch.equal(weights(est), kept[1])


def test_one_more_pass_after_the_best_weights_starts_with_fresh_moments(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The moments of the last step are none of the best weights'; so the model and its saved copy learn alike."""
    losses = iter([1.0, 3.0, 4.0])
    monkeypatch.setattr(Run, "validate", lambda self, items: next(losses))
    est = make(training={"report_every": 5, "validation_fraction": 0.2, "patience": 2}).fit(X)
    est.save(tmp_path)
    assert torch.equal(weights(sv.load(tmp_path).partial_fit(X)), weights(est.partial_fit(X)))
    assert est.fitted_.moments["adam.count"] > 0  # which it goes on with, pass after pass


def test_early_stopping_stops_real_over_fitting() -> None:
    few = X[:40]
    settings = {"steps": 2000, "report_every": 50, "validation_fraction": 0.3, "patience": 4, "decay": "constant"}
    est = make(sv.VAE, hidden=(64,), training=settings).fit(few)
    losses = est.history_.column("validation_loss")
    assert est.n_steps_ < 2000
    assert np.argmin(losses) == len(losses) - 5
    kept_rows = split(40, sv.Training(validation_fraction=0.3), torch.device("cpu"))[1].numpy()
    with pytest.warns(sv.OverfittingWarning, match=r"per column apart.*training\.early_stopping=True"):
        full = make(sv.VAE, hidden=(64,), training=settings | {"patience": None}).fit(few)
    assert est.score(few[kept_rows]) > full.score(few[kept_rows])


def test_a_run_stops_early_where_its_length_is_open_and_rows_can_be_spared() -> None:
    def of(n_rows: int, **settings: Any) -> tuple[Any, ...]:
        found = sv.Training(**settings).stopping(n_rows)
        assert found.stopping(n_rows).get_params() == found.get_params()
        return found.early_stopping, found.held_out(n_rows), found.patience

    assert of(200) == (True, 30, 40)
    assert of(60_000) == (True, 2000, 40)
    assert of(49) == of(200, steps=9) == of(200, epochs=9) == of(200, early_stopping=False) == (False, 0, None)
    assert of(49, early_stopping=True) == (True, 7, 40)
    assert of(200, steps=9, patience=3) == (True, 30, 3)
    assert of(200, steps=9, early_stopping=True, validation_fraction=0.5) == (True, 100, 40)
    assert of(200, steps=9, validation_fraction=0.5) == (False, 100, None)


def test_the_length_of_a_run_follows_the_rows() -> None:
    """128 passes, 2,000 steps at least and 10,000 at most; a length that is given stays."""
    lengths = {n: sv.Training().resolved(n).total_steps(n) for n in (5, 500, 3000, 10_000, 10**6)}
    assert lengths == {5: 2000, 500: 2000, 3000: 3000, 10_000: 10_000, 10**6: 10_000}
    assert sv.Training(batch_size=64).resolved(2000).total_steps(2000) == 4000
    assert sv.Training(steps=7).resolved(500).total_steps(500) == 7
    assert sv.Training(epochs=2).resolved(1280).total_steps(1280) == 20


def test_a_default_run_keeps_its_best_weights_and_tells_what_it_held_out() -> None:
    rows = np.random.default_rng(0).normal(size=(120, 3))
    est = sv.VAE(2, hidden=(32,), training=sv.Training(verbose=0)).fit(rows)
    settings, losses = est.training_, est.history_.column("validation_loss")
    assert (settings.early_stopping, settings.steps, settings.patience) == (True, 2000, 40)
    assert settings.held_out(120) == 18
    assert est.n_rows_ == 102
    assert est.n_steps_ == est.history_[-1]["step"] == 20 * (1 + int(np.argmin(losses)) + 40) < 2000
    own = split(120, settings, torch.device("cpu"))[1].numpy()
    scores = -est.score_samples(rows[own], n_samples=200).mean() + est.scaling_.log_det
    assert scores == pytest.approx(min(losses), abs=0.3)


def test_under_a_controller_the_best_is_judged_by_the_weights_in_force(monkeypatch: pytest.MonkeyPatch) -> None:
    """A weight that falls during the run: by its first value the report of the emptiest code would be the best."""
    falling = sv.KeepMean("loss", 1e-3, first=4.0, lowest=0.01, proportional=0.0, integral=-2.0)
    reports = iter([(10.0, 1.0), (8.0, 3.0), (9.0, 2.0)])  # nll and KL: 14, 20, 17 at a weight of 4

    def scripted(self: Run, items: Tensor) -> dict[str, Tensor]:
        return {k: torch.tensor(v) for k, v in zip(("nll_x", "kl_z"), next(reports, (9.0, 2.0)), strict=True)}

    monkeypatch.setattr(Run, "means", scripted)
    monkeypatch.setattr(sv.KeepMean, "update", lambda self, state, measured, step, total: (0.1, state))
    kept: list[float] = []
    improves = Run.improves

    def spy(self: Run, loss: float) -> bool:
        kept.append(improves(self, loss))
        return bool(kept[-1])

    monkeypatch.setattr(Run, "improves", spy)
    plan = {"kl_z": falling}
    est = make(training={"steps": 15, "report_every": 5, "early_stopping": True, "schedules": plan}).fit(X)
    assert est.history_.column("validation_loss") == [14.0, 20.0, 17.0]  # by the first value: reports compare
    assert kept == [True, True, False]


FAR = int(split(200, sv.Training(validation_fraction=0.2), torch.device("cpu"))[1][0])  # a held-out row


def far(value: float = 1e30) -> Any:
    data = X.copy()
    data[FAR] = value
    return data


def test_the_validation_loss_of_compared_rows_does_not_depend_on_how_many_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every held-out row meets as many others: in a last block of few rows, and where there is one row alone."""
    found: dict[str, Any] = {}

    def validate(self: Run, items: Tensor, validate: Any = Run.validate) -> float:
        found.update({str(n): validate(self, items[:n]) for n in (512, 513, 5)})
        found["each"] = [validate(self, item[None]) for item in items[:5]]
        return 0.0

    monkeypatch.setattr(Run, "validate", validate)
    rows = np.tile(X, (6, 1)) + np.float32(0.1) * rng.normal(size=(1200, 10)).astype(np.float32)
    make(sv.BetaTCVAE, training={"validation_fraction": 0.5, "report_every": 40}).fit(rows)
    assert found["513"] == pytest.approx(found["512"], abs=0.03)
    assert found["5"] == pytest.approx(found["512"], rel=0.5)
    assert np.mean(found["each"]) == pytest.approx(found["5"], abs=0.05)


def test_a_validation_loss_that_is_not_finite_is_told_once_and_ends_no_run(tmp_path: Path) -> None:
    settings = {"report_every": 5, "validation_fraction": 0.2, "patience": 2, "folder": str(tmp_path / "run")}
    message = rf"not finite at step 5: 'nll_x' is inf or nan on 1 of 40 held-out rows \(row {FAR} of X.*scale='auto'"
    with pytest.warns(RuntimeWarning, match=message) as caught:
        est = make(scale="none", likelihood="gaussian", training=settings).fit(far())
    assert len([w for w in caught if w.category is RuntimeWarning]) == 1
    assert caught[0].filename == __file__
    assert est.n_steps_ == 40
    assert est.history_.column("validation_loss") == [math.inf] * 8


def test_reports_that_are_not_finite_count_neither_for_nor_against_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    losses = iter([3.0, math.inf, 4.0, math.nan, -math.inf, 5.0, 0.0])
    monkeypatch.setattr(Run, "validate", lambda self, items: next(losses))
    with pytest.warns(RuntimeWarning, match="the validation loss is not finite at step 10"):
        est = make(training={"report_every": 5, "validation_fraction": 0.2, "patience": 2}).fit(X)
    assert est.n_steps_ == 30


def test_the_history_file_is_strict_json_and_reads_back_what_is_not_finite(tmp_path: Path) -> None:
    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not JSON")

    settings = {"validation_fraction": 0.2, "folder": str(tmp_path), "steps": 20}
    with pytest.warns(RuntimeWarning, match="validation loss"):
        make(scale="none", likelihood="gaussian", training=settings).fit(far())
    for line in (tmp_path / "history.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=refuse)
    again = make(scale="none", likelihood="gaussian", training=settings | {"resume": True}).fit(far())
    assert again.history_.column("validation_loss") == [math.inf] * 2


def test_the_validation_loss_uses_final_weights_hard_draws_and_fixed_noise() -> None:
    settings = {"validation_fraction": 0.3, "report_every": 1, "steps": 6, "learning_rate": 1e-30, "kl_warmup": 1.0}
    est = make(training=settings).fit(X)
    assert len(set(est.history_.column("validation_loss"))) == 1  # nothing moves, so neither does the number
    kept_rows = split(200, sv.Training(validation_fraction=0.3), torch.device("cpu"))[1].numpy()
    in_x_units = -est.score_samples(X[kept_rows], n_samples=200).mean() + est.scaling_.log_det
    assert est.history_[-1]["validation_loss"] == pytest.approx(in_x_units, rel=0.1)  # -ELBO, with the whole KL


# Numbers that are not finite.


def inject(monkeypatch: pytest.MonkeyPatch, bad: Callable[[Run], bool], term: str = "kl_z") -> None:
    """Make a term of the objective NaN wherever `bad(run)`."""
    advance, measure, current = Run.advance, Objective.measure, []

    def spy(self: Run) -> None:
        current[:] = [self]
        advance(self)

    def broken(self: Objective, trace: Any) -> dict[str, Tensor]:
        terms = measure(self, trace)
        if current and not trace.hard and bad(current[0]):
            terms[term] = terms[term] * float("nan")
        return terms

    monkeypatch.setattr(Run, "advance", spy)
    monkeypatch.setattr(Objective, "measure", broken)


def test_a_nan_is_rolled_back_and_retried_at_half_the_rate(monkeypatch: pytest.MonkeyPatch, steps: list[Any]) -> None:
    settings = {"steps": 40, "report_every": 10, "verbose": 1}
    inject(monkeypatch, lambda run: run.step == 17 and run.rate_factor == 1)
    est = make(training=settings).fit(X)
    taken = [(s["step"], s["rate_factor"]) for s in steps]
    assert taken == [(t, 1.0) for t in range(20)] + [(t, 0.5) for t in range(10, 40)]
    assert est.history_.column("step") == [10, 20, 30, 40]
    assert np.isfinite(est.history_.column("loss")).all()
    monkeypatch.undo()

    # To the last bit this is the run whose rate was halved at step 10.
    advance = Run.advance

    def halved(self: Run) -> None:
        self.rate_factor = 1.0 if self.step < 10 else 0.5
        advance(self)

    monkeypatch.setattr(Run, "advance", halved)
    assert torch.equal(weights(make(training=settings).fit(X)), weights(est))


def test_a_roll_back_is_said_once(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    inject(monkeypatch, lambda run: run.step == 17 and run.rate_factor == 1, "nll_x")
    make(training={"report_every": 10, "verbose": 1}).fit(X)
    reported = [line for line in capfd.readouterr().err.splitlines() if "not finite" in line]
    assert len(reported) == 1
    assert "nll_x" in reported[0]
    assert "back to step 10 at half the rate" in reported[0]


@pytest.mark.parametrize("term", ["kl_z", "nll_x"])
@pytest.mark.parametrize("first", [0, 23])
def test_a_nan_that_returns_is_named(term: str, first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    inject(monkeypatch, lambda run: run.step >= first, term)
    est = make(training={"report_every": 10})
    message = rf"term '{term}' was not finite at step {first}\b.*5 retries.*last 0\.00\d+.*range from -\d.*smaller"
    with pytest.raises(sv.DivergenceError, match=message):
        est.fit(X)
    if first:  # two good reports: the last good state is there, and finite
        assert est.history_.column("step") == [10, 20]
        assert torch.isfinite(weights(est)).all()
        assert np.isfinite(est.score(X))
    else:
        assert not hasattr(est, "model_")


class Fragile(nn.Module):
    """A user's decoder that fails on some of its calls."""

    def __init__(self, fails: Callable[[int], bool]) -> None:
        super().__init__()
        self.layer, self.calls, self.fails = nn.Linear(6, 12), 0, fails

    def forward(self, z: Tensor) -> Tensor:
        self.calls += self.training
        h = torch.relu(self.layer(z))
        return h * float("nan") if self.training and self.fails(self.calls) else h


def test_a_decoder_with_a_hiccup_recovers_and_one_that_breaks_is_named() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        once, broken = Fragile(lambda call: call == 15), Fragile(lambda call: call > 25)
    est = make(decoder=once, training={"report_every": 10}).fit(X)
    assert est.history_.column("step") == [10, 20, 30, 40]
    assert np.isfinite(est.score(X))
    est = make(decoder=broken, training={"report_every": 10})
    with pytest.raises(sv.DivergenceError, match="'nll_x' was not finite"):
        est.fit(X)
    assert torch.isfinite(weights(est)).all()


def spoil(monkeypatch: pytest.MonkeyPatch, bad: Callable[[Run], bool]) -> None:
    """Make the decoder's last weights a thousand times as large after every step where `bad(run)`."""
    advance = Run.advance

    def spy(self: Run) -> None:
        advance(self)
        if bad(self):
            with torch.no_grad():
                list(self.model.decoder.parameters())[-2].mul_(1000)

    monkeypatch.setattr(Run, "advance", spy)


def test_a_finite_explosion_is_rolled_back(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    spoil(monkeypatch, lambda run: run.step == 17 and run.rate_factor == 1)
    est = make(likelihood="fixed-gaussian", training={"report_every": 10, "verbose": 1}).fit(X)
    assert "-log p(x|z) had grown to" in capfd.readouterr().err
    assert est.history_.column("step") == [10, 20, 30, 40]
    assert max(est.history_.column("loss")) < 10 * est.history_.column("loss")[0]


def test_an_explosion_that_returns_ends_the_run_at_its_last_good_state(monkeypatch: pytest.MonkeyPatch) -> None:
    spoil(monkeypatch, lambda run: run.step == 27)
    est = make(likelihood="fixed-gaussian", training={"report_every": 10})
    with pytest.raises(
        sv.DivergenceError, match=r"by step 30 -log p\(x\|z\) had grown to .*5 retries.*learning_rate"
    ) as diverged:
        est.fit(X)
    reported = re.search(
        r"Those rows' inputs, as the network sees them, range from (\S+) to (\S+)\. What", str(diverged.value)
    )
    scaled = est.scaling_(torch.tensor(X))
    assert reported is not None
    assert float(scaled.min()) <= float(reported[1]) + 1e-3 < float(reported[2]) <= float(scaled.max()) + 1e-3
    assert est.history_.column("step") == [10, 20]
    assert (
        float(
            nll(est.model_(torch.tensor(X[:9]).float(), Draw(Fresh(torch.Generator()), hard=True)))["nll_x"]
            .detach()
            .max()
        )
        < 1e3
    )


def test_a_collapse_and_a_large_weight_are_no_ruin(capfd: pytest.CaptureFixture[str]) -> None:
    jump = {"kl_z": sv.Linear(0.0, 1e5, begin=0.5, end=0.51)}
    with pytest.warns(sv.SparsityWarning):
        est = make(sv.VAE, training={"report_every": 10, "verbose": 1, "schedules": jump, "steps": 200}).fit(X)
    assert max(est.history_.column("loss")) > 1000 * abs(est.history_.column("loss")[0])  # by its weight alone
    assert "back to step" not in capfd.readouterr().err


def test_weights_that_break_behind_a_finite_loss_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    advance, hits = Run.advance, []

    def spoil(self: Run) -> None:
        advance(self)
        if self.step == 40 and self.rate_factor == 1:  # the very last step: no loss will tell
            hits.append(self.step)
            with torch.no_grad():
                self.parameters[0].view(-1)[0] = math.inf

    monkeypatch.setattr(Run, "advance", spoil)
    est = make(training={"report_every": 10}).fit(X)
    assert hits == [40]
    assert torch.isfinite(weights(est)).all()


# Is anything learned?


def test_warnings_come_with_a_remedy() -> None:
    """One at a time, in values: what is out of the ordinary first."""
    short = "training.steps=1000 and training.kl_warmup=0.5; if that does not help"
    with pytest.warns(sv.SparsityWarning, match=rf"none of 6 units .* Try beta=4.0, {short}, beta=1.0\.$"):
        make(sv.BetaVAE, beta=1e4, training={"steps": 200}).fit(X)
    with pytest.warns(
        sv.SparsityWarning, match=r"all 6 units are active.* Try n_components=12 and training.steps=1000\.$"
    ):
        make(sv.VAE, training={"steps": 200}).fit(X)
    with pytest.warns(
        sv.SparsityWarning, match=rf"every code is zero.* Try start='rows'.*, alpha=0.1, {short}, alpha=0.3\.$"
    ):
        make(alpha=1e-4, start="random", training={"steps": 200}).fit(X)


FOLLOWED: list[Any] = [
    (sv.VSC, {"alpha": 0.9}),
    *(
        pytest.param(*case, marks=pytest.mark.slow)
        for case in (
            (sv.VSC, {"alpha": 1e-4}),
            (sv.VSC, {"kl_z": 10.0}),
            (sv.HSVAE, {"alpha": 30.0, "beta": 10.0, "skip": False, "start": "random", "code": "mode"}),
            (sv.HSVAE, {"alpha": 0.5, "beta": 1.5}),
            (sv.BetaVAE, {"beta": 1e4}),
            (sv.VAE, {"n_components": 6}),
            (sv.CapacityVAE, {"capacity": 0.0}),
            (sv.SDLGM, {"alpha": 1e-3, "cap": 4}),
        )
    ),
]


@pytest.mark.parametrize(("cls", "settings"), FOLLOWED)
def test_a_warning_ends_where_its_first_remedy_is_followed(cls: Any, settings: dict[str, Any]) -> None:
    """And does not turn into its opposite."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(400, 3)) @ rng.normal(size=(3, 8)) + 0.1 * rng.normal(size=(400, 8))
    run = {"steps": 400, "batch_size": 64, "verbose": 0}
    with pytest.warns(sv.SparsityWarning) as caught:
        est = cls(**({"n_components": 16, "hidden": (32,), "training": sv.Training(**run)} | settings)).fit(rows)
    empty = "units are active" not in str(caught[0].message)
    first = remedies(signature(est), 400, case="empty" if empty else "full")[0]
    of_training = {f"training__{k}": first.pop(k) for k in ("steps", "kl_warmup") if k in first}
    est.set_params(**first, **of_training).fit(rows)  # warnings are errors here
    assert est.history_[-1]["nonzeros"] > 0


def test_advice_that_is_followed_already_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    spoil(monkeypatch, lambda run: run.step == 7)
    for scale in ("auto", "none"):
        with pytest.raises(sv.DivergenceError) as diverged:
            make(scale=scale, likelihood="fixed-gaussian").fit(X)
        assert ("scale='auto'" in str(diverged.value)) == (scale == "none")
    monkeypatch.undo()
    for scale in ("auto", "none"):
        with pytest.warns(sv.SparsityWarning, match="collapsed") as caught:
            make(sv.BetaVAE, beta=1e4, scale=scale, training={"steps": 200}).fit(X)
        assert ("scale='auto'" in str(caught[0].message)) == (scale == "none")


def test_one_row_is_not_judged(recwarn: pytest.WarningsRecorder) -> None:
    """It differs from no other, whatever the code."""
    for cls in (sv.VSC, sv.VAE):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", sv.SparsityWarning)
            est = make(cls).fit(X)
        est.partial_fit(X[:1])
        make(cls, training={"validation_fraction": 0.5}).fit(X[:2])  # one to train on, one to watch
    assert not [w for w in recwarn if issubclass(w.category, sv.SparsityWarning)]
    with pytest.warns(sv.SparsityWarning, match="none of 6 units differs between rows: the code has collapsed"):
        make(sv.BetaVAE, beta=1e4, training={"steps": 200}).fit(X[:2])


EMPTY, COLLAPSED = {"nonzeros": 0.0, "active_units": 0.0}, {"nonzeros": 6.0, "active_units": 0.0}
OF_TEXTS: list[tuple[Any, dict[str, float], str]] = [
    (sv.VSC, EMPTY, "Try kl_z=0.013."),  # gates that read texts shut when a KL is back
    (sv.HSVAE, EMPTY, "Try kl_gamma=0.003."),
    (sv.BetaVAE, COLLAPSED, "Try training.kl_warmup=0.5; if that does not help, beta=0.025."),
    (sv.VAE, COLLAPSED, "=0.5; if that does not help, training.schedules={'kl_z': sv.Constant(0.25)}."),
]


@pytest.mark.filterwarnings("ignore::sparsevae.exceptions.SparsityWarning")
@pytest.mark.parametrize(("cls", "row", "advice"), OF_TEXTS)
def test_a_collapse_on_texts_has_the_remedies_of_texts_and_no_scale(cls: Any, row: Any, advice: str) -> None:
    est = make(cls, training={"steps": 1}).fit(["a cow", "a hen and a cow", "grass"])
    with pytest.warns(sv.SparsityWarning) as caught:
        warn_about_sparsity(History([row]), est.model_, signature(est))
    assert str(caught[0].message).endswith(advice)


def test_that_all_units_are_in_use_is_well_where_a_row_has_few_of_them_on() -> None:
    model = make(training={"steps": 1}).fit(X).model_
    row = {"step": 1, "active_units": 6.0}
    warn_about_sparsity(History([row | {"nonzeros": 2.5}]), model, {})  # warnings are errors here
    with pytest.warns(sv.SparsityWarning, match="all 6 units are active"):
        warn_about_sparsity(History([row | {"nonzeros": 5.5}]), model, {})


def test_a_warning_points_at_the_users_line() -> None:
    with pytest.warns(sv.SparsityWarning) as caught:
        make(sv.VAE, training={"steps": 200}).fit(X)
    assert caught[0].filename == __file__


def test_a_code_that_is_sparse_gives_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        est = make(sv.VAE, n_components=30, training={"steps": 800}).fit(X)
    assert 1 < est.history_[-1]["active_units"] < 30


def test_training_improves_every_model() -> None:
    for cls in (sv.VAE, sv.BetaVAE, sv.VSC):
        for data in (X, BINARY):
            short, long = (make(cls, training={"steps": s, "kl_warmup": 0.5}).fit(data) for s in (1, 200))
            assert long.score(data) > short.score(data) + 0.5, cls


# What is told.


def test_the_history_is_a_table_and_a_file(tmp_path: Path) -> None:
    settings = {"steps": 50, "report_every": 20, "validation_fraction": 0.2, "folder": str(tmp_path / "run")}
    est = make(training=settings).fit(X)
    terms = ["loss", "nll_x", "kl_z"]
    assert list(est.history_[0]) == ["step", "epoch", *terms, "active_units", "nonzeros", "used", "validation_loss"]
    assert est.history_.column("step") == [20, 40, 50]
    assert est.history_.column("epoch") == pytest.approx([4, 8, 10])  # 160 rows, 32 a step
    for row in est.history_:
        assert row["loss"] == pytest.approx(row["nll_x"] + row["kl_z"], rel=1e-4)
        assert 0 <= row["active_units"] <= 6
        assert 0 <= row["nonzeros"] <= 6
        assert 0 <= row["used"] <= 6
    lines = (tmp_path / "run" / "history.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == est.history_
    printed = str(est.history_).splitlines()
    assert len(printed) == 4
    assert printed[0].split() == list(est.history_[0])
    assert printed[3].split()[0] == "50"
    assert len({len(line) for line in printed}) == 1
    assert est.history_.column("nothing") == [None] * 3
    assert History.from_columns(est.history_.columns()) == est.history_
    assert str(History()) == ""


def test_reports_are_means_since_the_last_report() -> None:
    fine = make(training={"report_every": 1}).fit(X)
    coarse = make(training={"report_every": 15}).fit(X)
    for term in ("loss", "nll_x", "kl_z"):
        each = fine.history_.column(term)
        blocks = [each[:15], each[15:30], each[30:]]
        assert coarse.history_.column(term) == pytest.approx([np.mean(b) for b in blocks], rel=1e-5)
    assert torch.equal(weights(fine), weights(coarse))  # looking changes nothing


def test_nonzeros_and_active_units_are_those_of_the_code() -> None:
    est = make(training={"steps": 300, "kl_warmup": 0.9}).fit(X)
    assert est.history_[-1]["nonzeros"] == pytest.approx(est.transform(X).nnz / 200)
    for name in ("active_units", "used"):
        assert est.history_[-1][name] == est.evaluate(X)[name]


def test_live_numbers_of_sorted_rows_are_those_of_all() -> None:
    data = np.concatenate([np.zeros((600, 10), np.float32), X, X, X])  # the first 512 rows tell nothing of the rest
    est = make(training={"steps": 300, "kl_warmup": 0.9}).fit(data)
    last, reported = est.history_[-1], est.evaluate(data)
    assert est.evaluate(data[:512])["active_units"] == 0
    assert last["active_units"] == reported["active_units"] > 0
    assert last["nonzeros"] == pytest.approx(est.transform(data).nnz / 1200, abs=0.2)


def test_a_model_that_fails_on_late_rows_is_ruined_too(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[Run] = []
    advance = Run.advance
    monkeypatch.setattr(Run, "advance", lambda self: (runs.append(self), advance(self))[1])
    make(training={"steps": 1}).fit(X)
    assert len(runs[0].reference_rows) == 128
    assert runs[0].reference_rows.max() > 190
    make(training={"steps": 1}).fit(X)
    assert torch.equal(runs[0].reference_rows, runs[1].reference_rows)
    assert torch.equal(runs[0].watched, runs[1].watched)


def test_silence_is_silent(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    est = make(training={"verbose": 0, "folder": str(tmp_path), "validation_fraction": 0.2, "patience": 1}).fit(X)
    est.partial_fit(X).transform(X)
    est.save(tmp_path / "m")
    assert capfd.readouterr() == ("", "")


def test_a_line_now_and_then_where_there_is_no_terminal(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    make(training={"verbose": 1}).fit(X)
    assert capfd.readouterr() == ("", "")  # a run shorter than the patience says nothing
    monkeypatch.setattr(progress, "_INTERVAL", -1.0)
    make(training={"verbose": 1, "steps": 30, "report_every": 10}).fit(X)
    out, err = capfd.readouterr()
    lines = err.splitlines()
    assert out == ""
    assert len(lines) == 3
    assert lines[0].startswith("VSC: step 10/30  loss ")
    assert all(word in lines[0] for word in ("nll_x", "kl_z", "active_units", "nonzeros"))


def test_why_training_stopped_is_said(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    losses = iter([1.0, 2.0, 3.0])
    monkeypatch.setattr(Run, "validate", lambda self, items: next(losses))
    make(training={"verbose": 1, "report_every": 5, "validation_fraction": 0.2, "patience": 2}).fit(X)
    assert "stopped at step 15: no better validation loss for 2 reports" in capfd.readouterr().err


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal:
        encoding = "utf-8"

        def __init__(self) -> None:
            self.text = ""

        def write(self, text: str) -> int:
            self.text += text
            return len(text)

        def flush(self) -> None: ...

        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    make(training={"verbose": 1, "report_every": 10}).fit(X)
    assert "40/40" in terminal.text
    assert "VSC" in terminal.text
    threads = {t.name for t in threading.enumerate()}
    assert not [name for name in threads if "rich" in name.lower()]


# Nothing outside the run is touched.


def test_global_random_states_are_left_alone(tmp_path: Path) -> None:
    def states() -> tuple[Any, ...]:
        name, keys, *rest = np.random.get_state()  # noqa: NPY002
        return torch.get_rng_state().tolist(), name, keys.tolist(), rest, random.getstate()

    before = states()
    settings = {"validation_fraction": 0.2, "patience": 5, "binarise": True, "folder": str(tmp_path / "run")}
    for cls, data, chosen in ((sv.VSC, X, {}), (sv.VAE, X, {}), (sv.VSC, BINARY, settings)):
        est = make(cls, training=chosen, **{"alpha": 0.9} if cls is sv.VSC else {}).fit(data)  # most units are on
        est.partial_fit(data), est.transform(data), est.score(data), est.evaluate(data)
        est.importance_bound(data[:3], n_samples=5), est.sample(3, noise=True), est.sample_like(data[:1], 3)
        est.save(tmp_path / cls.__name__)
        sv.load(tmp_path / cls.__name__).transform(data)
    assert states() == before


class Noisy(nn.Module):
    """A user's encoder with noise of its own, in training or always."""

    def __init__(self, always: bool) -> None:
        super().__init__()
        self.layer, self.always = nn.Linear(10, 12), always

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(self.layer(x), training=self.training or self.always)


@pytest.mark.parametrize(
    "own", [lambda: Noisy(False), lambda: Noisy(True), lambda: nn.RReLU()], ids=["in training", "always", "RReLU"]
)
def test_noise_from_the_global_random_state_is_refused_and_that_state_put_back(own: Any) -> None:
    with torch.random.fork_rng():
        encoder = own()
    before = torch.get_rng_state()
    est = make(encoder=encoder)
    with pytest.raises(ValueError, match=r"^encoder (uses|holds) .* global random state: .* neither repeated"):
        est.fit(X)
    assert torch.equal(torch.get_rng_state(), before)
    assert not hasattr(est, "model_")


def test_to_look_for_such_noise_leaves_no_trace_in_batch_statistics(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Tensor] = []
    advance = Run.advance
    own = nn.BatchNorm1d(10)
    monkeypatch.setattr(
        Run,
        "advance",
        lambda self: (found.append(self.model.state_dict()["encoder.0.running_mean"].clone()), advance(self))[1],
    )
    make(encoder=own, training={"steps": 2}).fit(X)
    assert torch.equal(found[0], torch.zeros(10))
    assert not torch.equal(found[1], torch.zeros(10))


def test_results_do_not_depend_on_global_random_states() -> None:
    first = make().fit(X)
    with torch.random.fork_rng():
        torch.manual_seed(99)
        np.random.seed(99)  # noqa: NPY002
        second = make().fit(X)
    assert torch.equal(weights(first), weights(second))
    assert np.array_equal(first.score_samples(X), second.score_samples(X))


def test_process_wide_settings_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(2)
    monkeypatch.setattr("sparsevae.threads.cpu_count", lambda: 1)
    inside: list[int] = []
    advance = Run.advance
    monkeypatch.setattr(Run, "advance", lambda self: (inside.append(torch.get_num_threads()), advance(self))[1])
    handlers = [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)]
    precision = torch.get_float32_matmul_precision()
    est = make(training={"steps": 3}).fit(X)
    assert set(inside) == {1}  # the quota
    est.transform(X), est.score(X), est.inverse_transform(est.transform(X)), est.sample(2), est.sample_like(X[:1])
    inject(monkeypatch, lambda run: True)
    with pytest.raises(sv.DivergenceError):
        make().fit(X)
    assert torch.get_num_threads() == 2
    assert [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)] == handlers
    assert torch.get_float32_matmul_precision() == precision
    assert torch.is_grad_enabled()


def test_fit_needs_gradients_even_where_the_caller_has_none() -> None:
    reference = make().fit(X)
    with torch.no_grad():
        est = make().fit(X)
        assert not torch.is_grad_enabled()
    assert torch.equal(weights(est), weights(reference))


def test_two_fits_in_threads_equal_two_in_sequence() -> None:
    def run(seed: int) -> Any:
        return make(training={"seed": seed, "steps": 60}).fit(X)

    one_by_one = [weights(run(seed)) for seed in (0, 1)]
    at_once: dict[int, Tensor] = {}
    threads = [threading.Thread(target=lambda s=seed: at_once.update({s: weights(run(s))})) for seed in (0, 1)]
    precision = torch.get_float32_matmul_precision()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert torch.equal(at_once[0], one_by_one[0])
    assert torch.equal(at_once[1], one_by_one[1])
    assert torch.get_float32_matmul_precision() == precision


# Interrupted by the user.


def interrupt_at(monkeypatch: pytest.MonkeyPatch, step: int, number: int, times: int = 1) -> None:
    advance = Run.advance

    def signalled(self: Run) -> None:
        advance(self)
        if self.step == step:
            for _ in range(times):
                os.kill(os.getpid(), number)

    monkeypatch.setattr(Run, "advance", signalled)


@pytest.mark.parametrize("times", [1, 2])
def test_after_ctrl_c_the_estimator_is_usable(times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt_at(monkeypatch, 23, signal.SIGINT, times)
    est = make(training={"report_every": 10})
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        est.fit(X)
    monkeypatch.undo()
    assert signal.getsignal(signal.SIGINT) is handler
    assert est.history_.column("step") == [10, 20]
    assert est.n_steps_ == 23
    assert not est.model_.training
    assert np.isfinite(est.score(X))
    before = est.score(X)
    for _ in range(10):
        est.partial_fit(X)
    assert est.score(X) > before
    assert est.history_.column("step")[2:] == [23 + 7 * k for k in range(1, 11)]
    assert est.history_[2]["epoch"] == pytest.approx((23 + 7) * 32 / 200)


def test_ctrl_c_before_the_first_report_leaves_a_usable_estimator(monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt_at(monkeypatch, 3, signal.SIGINT)
    est = make(training={"report_every": 10})
    with pytest.raises(KeyboardInterrupt):
        est.fit(X)
    assert np.isfinite(est.score(X))


def test_sigterm_leaves_with_its_exit_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    interrupt_at(monkeypatch, 23, signal.SIGTERM)
    with pytest.raises(SystemExit) as caught:
        make(training={"report_every": 10, "folder": str(tmp_path)}).fit(X)
    assert caught.value.code == 143
    assert (tmp_path / "checkpoint.safetensors").exists()


def test_an_ignored_signal_stays_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the background jobs of a shell."""
    interrupt_at(monkeypatch, 23, signal.SIGINT)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        est = make().fit(X)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    assert est.n_steps_ == 40


def test_a_handler_that_is_not_python_s_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    getsignal, set_to = signal.getsignal, signal.signal
    touched: list[int] = []
    monkeypatch.setattr(signal, "getsignal", lambda n: None if n == signal.SIGTERM else getsignal(n))
    monkeypatch.setattr(signal, "signal", lambda n, handler: (touched.append(n), set_to(n, handler))[1])
    make(training={"steps": 2}).fit(X)
    assert touched == [signal.SIGINT, signal.SIGINT]


# Every accepted parameter does something.


def test_checkpoints_are_at_least_so_many_steps_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved: list[int] = []
    save = RunFolder.save
    monkeypatch.setattr(
        RunFolder, "save", lambda self, state, good: (saved.append(state.meta["step"]), save(self, state, good))[1]
    )
    settings = {"steps": 100, "report_every": 10, "checkpoint_every": 15, "folder": str(tmp_path)}
    make(training=settings).fit(X)
    assert saved == [20, 40, 60, 80, 100]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_compiled_run_stays_close_to_an_eager_one(capfd: pytest.CaptureFixture[str]) -> None:
    settings = {"steps": 30, "clip_norm": 1.0, "kl_warmup": 0.5, "n_samples": 2, "verbose": 1}
    for cls in (sv.VAE, sv.VSC):
        eager, compiled = (make(cls, training=settings | {"compile": c}).fit(X) for c in (False, True))
        assert "failed" not in capfd.readouterr().err
        assert torch.allclose(weights(eager), weights(compiled), atol=1e-3)
        assert eager.history_.column("loss") == pytest.approx(compiled.history_.column("loss"), rel=1e-3)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_second_compiled_model_is_not_the_first() -> None:
    """Two fits that differ in a constant alone: compiled code must not be shared between them."""
    for variance in (0.1, 0.5):
        eager, compiled = (
            make(sv.VAE, likelihood="fixed-gaussian", variance=variance, training={"steps": 20, "compile": c}).fit(X)
            for c in (False, True)
        )
        assert compiled.history_.column("loss") == pytest.approx(eager.history_.column("loss"), rel=1e-3)


class Own(torch.nn.Identity):
    """A layer that is not torch's: torch.compile watches what its Python does."""


@pytest.mark.parametrize("own", [{}, {"encoder": Own()}], ids=["our layers", "a user's"])
def test_a_compiler_that_fails_is_said_and_done_without(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], own: dict[str, Any]
) -> None:
    def no_compiler(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("no C compiler\nin this tent")

    eager = make(**own).fit(X)
    monkeypatch.setattr("torch._inductor.compile", no_compiler)
    monkeypatch.setattr("torch.compile", no_compiler)
    est = make(training={"compile": True, "verbose": 1}, **own).fit(X)
    assert "compiling the step failed (RuntimeError: no C compiler); going on without." in capfd.readouterr().err
    assert torch.equal(weights(est), weights(eager))


def test_the_loop_works_without_an_estimator() -> None:
    """`fit` is the only training loop: it takes any model, objective and rows."""
    _, (model, _) = stack([0.2, 0.2])
    before = [p.detach().clone() for p in model.parameters()]
    objective = Objective(nll, kl, weights={"kl_z": 1.0})
    history, moments = fit(model, objective, Host(X, torch.device("cpu")), sv.Training(steps=30, verbose=0))
    assert [row["step"] for row in history] == [10, 20, 30]
    assert all(not torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert moments["adam.count"].item() == 30
    plan = {"beta": sv.Constant(1.0)}
    with pytest.raises(ValueError, match="unknown knobs"):
        fit(model, objective, Host(X, torch.device("cpu")), sv.Training(steps=1, verbose=0), schedules=plan)
