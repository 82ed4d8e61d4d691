"""Claim: an annealed slope belongs to the distribution. Draws, KLs, bounds, codes and files all use the same one."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from torch import Tensor, nn

import sparsevae as sv
from sparsevae.distributions.discrete_draws import CappedDraw, CountsDraw, OneHotDraw
from sparsevae.distributions.family import Family
from sparsevae.distributions.kl import divergence
from sparsevae.latent.posteriors import CappedPosterior, CountsPosterior, OneHotPosterior, SpikeSlabPosterior
from sparsevae.sampling.draw import Draw
from sparsevae.sampling.gradients import Estimator, SlopeAnnealed, StraightThrough
from sparsevae.sampling.noise import Fresh
from sparsevae.training.knobs import lasting
from sparsevae.training.step import Run

pytestmark = pytest.mark.filterwarnings("ignore::sparsevae.exceptions.SparsityWarning")

DIGITS = sv.data.load("digits")
BITS = np.where(DIGITS.X[:200] > 127, 1.0, 0.0)
LABELS = np.eye(10, dtype=np.int64)[DIGITS.y[:200].astype(int)]
N, S = 6, 2.5  # units, and a slope

POSTERIORS: dict[str, tuple[Callable[[Estimator], Family], slice]] = {
    # a family made with an estimator, and which of its raw numbers are logits
    "spike-and-slab": (SpikeSlabPosterior, slice(2 * N, 3 * N)),
    "bits": (lambda e: CappedPosterior(N, CappedDraw(e)), slice(N)),
    "capped": (lambda e: CappedPosterior(2, CappedDraw(e)), slice(N)),
    "one-hots": (lambda e: OneHotPosterior(3, OneHotDraw(e)), slice(N)),
    "counts": (lambda e: CountsPosterior(3, CountsDraw(e)), slice(N + 1)),
}


def raw_of(family: Family, *lead: int) -> Tensor:
    return torch.randn(*lead, 5, family.width(N), generator=torch.Generator().manual_seed(1))


def steeper(raw: Tensor, logits: slice, slope: Tensor | float) -> Tensor:
    out = raw.clone()
    out[..., logits] = slope * raw[..., logits]
    return out


@pytest.mark.parametrize("name", POSTERIORS)
def test_all_that_is_asked_of_a_posterior_is_of_the_steeper_distribution(name: str) -> None:
    """That of plain straight-through with s times the logits: draws in training, hard draws, KL, code."""
    make, logits = POSTERIORS[name]
    annealed, plain = make(SlopeAnnealed(S)), make(StraightThrough())
    raw = raw_of(annealed)
    for got, wanted in (
        (annealed(raw), plain(steeper(raw, logits, S))),
        (annealed.copies(raw, 3), plain.copies(steeper(raw, logits, S), 3)),
    ):
        for hard in (False, True):
            z, own = (Draw(Fresh(torch.Generator().manual_seed(0)), hard=hard)(q) for q in (got, wanted))
            torch.testing.assert_close(z, own)
        torch.testing.assert_close(got.log_prob(z), wanted.log_prob(z))
        torch.testing.assert_close(
            divergence(got, plain(raw_of(plain)[:1])), divergence(wanted, plain(raw_of(plain)[:1]))
        )
        for field in ("mean", "p_on", "mode"):
            torch.testing.assert_close(getattr(got, field), getattr(wanted, field))
    assert not torch.allclose(annealed(raw).p_on, plain(raw).p_on)


@pytest.mark.parametrize("members", [(3,), (2, 3)])
@pytest.mark.parametrize("name", POSTERIORS)
def test_members_have_distributions_of_their_own_slopes(name: str, members: tuple[int, ...]) -> None:
    make, logits = POSTERIORS[name]
    gate, plain = SlopeAnnealed(), make(StraightThrough())
    family = make(gate)
    gate.slope = 1 + torch.arange(math.prod(members)).float().reshape(members)
    raw = raw_of(family, *members)
    together = family(raw).p_on
    for m in np.ndindex(*members):
        torch.testing.assert_close(together[m], plain(steeper(raw[m], logits, float(gate.slope[m]))).p_on)


# -- fitted models ---------------------------------------------------------------------------------------------------

CODERS: dict[str, Callable[[sv.Training], Any]] = {
    "VSC": lambda t: sv.VSC(N, hidden=(8,), gate="slope-annealed", training=t),
    "PseudoVSC": lambda t: sv.PseudoVSC(N, hidden=(8,), pseudo_inputs=3, gate="slope-annealed", training=t),
    "DiscreteVAE": lambda t: sv.DiscreteVAE(N, hidden=(8,), gradient="slope-annealed", training=t),
    "groups": lambda t: sv.DiscreteVAE(N, hidden=(8,), categories=3, gradient="slope-annealed", training=t),
    "counts": lambda t: sv.SDLGM(N, cap=2, hidden=(8,), gradient="slope-annealed", training=t),
    "distinct": lambda t: sv.SDLGM(N, cap=2, hidden=(8,), features="distinct", gradient="slope-annealed", training=t),
}


def settings(**changes: Any) -> sv.Training:
    chosen = {"steps": 20, "batch_size": 20, "learning_rate": 1e-2, "report_every": 5, "verbose": 0}
    return sv.Training(**chosen | changes)


def slopes(model: nn.Module) -> list[float]:
    return [float(m.slope) for m in model.modules() if isinstance(m, SlopeAnnealed)]


def dense(Z: Any) -> np.ndarray:
    return Z.toarray() if scipy.sparse.issparse(Z) else Z


def same(a: Any, b: Any) -> bool:
    """Slopes, weights, codes and bounds, bit by bit."""
    weights = [e.model_.state_dict() for e in (a, b)]
    return (
        weights[0].keys() == weights[1].keys()
        and all(torch.equal(v, weights[1][k]) for k, v in weights[0].items())
        and np.array_equal(dense(a.transform(BITS)), dense(b.transform(BITS)))
        and np.array_equal(a.score_samples(BITS), b.score_samples(BITS))
        and a.importance_bound(BITS[:20], n_samples=20).bound.tolist()
        == b.importance_bound(BITS[:20], n_samples=20).bound.tolist()
    )


@pytest.mark.parametrize("name", CODERS)
def test_a_fitted_distribution_keeps_its_slope_on_the_disk(name: str, tmp_path: Path) -> None:
    """From 1 to 5 in twenty steps, the last of which had 4.8; a file without it would hold another distribution."""
    est = CODERS[name](settings()).fit(BITS)
    assert slopes(est.model_) == pytest.approx([4.8])
    assert lasting(est.model_) == {"slope"}
    est.save(tmp_path / "model")
    again = sv.load(tmp_path / "model")
    assert same(est, again)
    for m in again.model_.modules():
        if isinstance(m, SlopeAnnealed):
            m.slope.fill_(1.0)
    assert not np.array_equal(again.score_samples(BITS), est.score_samples(BITS))


@pytest.mark.parametrize("name", ["VSC", "groups", "distinct"])
def test_a_resumed_run_has_the_slopes_and_weights_of_a_whole_one(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    advance = Run.advance
    whole = CODERS[name](settings()).fit(BITS)

    def stop(self: Run) -> None:
        if self.step == 13:
            raise RuntimeError("stopped here")
        advance(self)

    chosen = {"folder": str(tmp_path / "run"), "checkpoint_every": 5}
    monkeypatch.setattr(Run, "advance", stop)
    with pytest.raises(RuntimeError, match="stopped here"):
        CODERS[name](settings(**chosen)).fit(BITS)
    monkeypatch.setattr(Run, "advance", advance)
    assert same(CODERS[name](settings(**chosen, resume=True)).fit(BITS), whole)


def test_the_best_weights_come_back_with_the_slope_they_were_judged_by(monkeypatch: pytest.MonkeyPatch) -> None:
    """Schedules are at their ends in validation, except the slope's: a best model of step 5 has the slope 1.8."""
    validate, judged = Run.validate, []

    def spy(self: Run, items: Tensor) -> float:
        loss = validate(self, items)
        judged.append(slopes(self.model)[0])
        return loss if self.step == 5 else 1e9

    monkeypatch.setattr(Run, "validate", spy)
    est = CODERS["DiscreteVAE"](settings(validation_fraction=0.2, patience=2)).fit(BITS)
    assert judged == pytest.approx([1.8, 2.8, 3.8])
    assert slopes(est.model_) == pytest.approx([1.8])


def test_validation_is_of_the_distribution_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Judged with the slope of the end, a model would be another one than the one that is kept."""
    validate, seen = Run.validate, []

    def spy(self: Run, items: Tensor) -> float:
        forward = self.model.forward

        def watch(x: Tensor, draw: Draw) -> Any:
            seen.append((slopes(self.model)[0], float(self.objective.kl_z)))
            return forward(x, draw)

        with monkeypatch.context() as m:
            m.setattr(self.model, "forward", watch)
            return validate(self, items)

    monkeypatch.setattr(Run, "validate", spy)
    ramp = {"kl_z": sv.Linear(0.0, 1.0)}
    sv.VSC(N, hidden=(8,), gate="slope-annealed", training=settings(validation_fraction=0.2, schedules=ramp)).fit(BITS)
    assert [s for s, _ in seen] == pytest.approx([1.8, 2.8, 3.8, 4.8])
    assert {weight for _, weight in seen} == {1.0}


def test_a_state_that_is_loaded_brings_its_slope_and_the_next_step_writes_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After a roll-back across a jump the schedule's value is what was written last, and yet not in the buffer."""
    advance, seen = Run.advance, []

    def back(self: Run) -> None:
        if self.step == 5 and not seen:
            state = self.state()
            assert slopes(self.model) == [1.0]
            advance(self)
            assert slopes(self.model) == [4.0]
            self.load(state)
            assert slopes(self.model) == [1.0]
            seen.append("loaded")
        advance(self)
        if self.step > 5:
            assert slopes(self.model) == [4.0]

    monkeypatch.setattr(Run, "advance", back)
    sv.DiscreteVAE(N, hidden=(8,), gradient="slope-annealed", slope=sv.Step(1.0, 4.0, 5), training=settings()).fit(BITS)
    assert seen == ["loaded"]


def test_one_more_pass_leaves_the_slope_where_the_run_ended() -> None:
    """A new model starts at the schedule's end, as with every other schedule."""
    est = CODERS["counts"](settings()).fit(BITS)
    assert slopes(est.partial_fit(BITS).model_) == pytest.approx([4.8])
    fresh = CODERS["counts"](settings()).partial_fit(BITS)
    assert slopes(fresh.model_) == [5.0]
    assert slopes(fresh.partial_fit(BITS).model_) == [5.0]


@pytest.mark.parametrize("variant", ["gen", "con"])
def test_one_schedule_drives_all_parts_of_a_code(variant: str, tmp_path: Path) -> None:
    """Labels and free features have an estimator each."""
    est = sv.SDLGMClassifier(
        hidden=(8,), variant=variant, threshold=0.5, gradient="slope-annealed", training=settings()
    ).fit(BITS, LABELS)
    assert slopes(est.model_) == pytest.approx([4.8] * (1 if variant == "gen" else 2))
    est.save(tmp_path / "model")
    again = sv.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_proba(BITS), est.predict_proba(BITS))
    assert same(est, again)


def test_temperatures_of_both_parts_follow_their_schedule_too() -> None:
    est = sv.SDLGMClassifier(
        hidden=(8,), variant="con", features="counts", threshold=0.5, tau_z=sv.Linear(2.0, 1.0), training=settings()
    ).fit(BITS, LABELS)
    found = [float(m.temperature) for m in est.model_.modules() if hasattr(m, "temperature")]
    assert found == pytest.approx([1.05, 1.05])


def test_a_slope_of_one_is_straight_through_and_a_growing_one_is_not() -> None:
    for make in (
        lambda **own: sv.DiscreteVAE(N, hidden=(8,), training=settings(), **own),
        lambda **own: sv.SDLGM(N, cap=2, hidden=(8,), training=settings(), **own),
        lambda **own: sv.SDLGM(N, cap=2, hidden=(8,), features="distinct", training=settings(), **own),
    ):
        plain = make(gradient="straight-through").fit(BITS).score_samples(BITS)
        flat = make(gradient="slope-annealed", slope=1.0).fit(BITS)
        np.testing.assert_array_equal(flat.score_samples(BITS), plain)
        assert not np.array_equal(make(gradient="slope-annealed").fit(BITS).score_samples(BITS), plain)
