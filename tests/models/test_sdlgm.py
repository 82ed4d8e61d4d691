"""SDLGM and DiscreteVAE: a cap that holds, networks as printed, temperatures, three numbers for a discrete code."""

from __future__ import annotations

import copy
import itertools
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch

import sparsevae as sv
from sparsevae.distributions.discrete_draws import Temperature
from sparsevae.latent.capped_code import CappedCode
from sparsevae.latent.packing import pack, unpack
from sparsevae.parameters import documented
from sparsevae.sampling.draw import Draw
from sparsevae.sampling.gradients import ESTIMATORS
from sparsevae.sampling.noise import Fresh

pytestmark = pytest.mark.filterwarnings("ignore::sparsevae.exceptions.SparsityWarning")
DIGITS = sv.data.load("digits")
BITS = (DIGITS.X > 127).astype(np.float32)


REFERENCE_ROWS = BITS[:400]
QUICK: dict[str, Any] = {"learning_rate": 1e-2, "batch_size": 32, "kl_warmup": 0.5}  # codes in use after few steps


def fitted(
    cls: Any = sv.SDLGM, X: Any = BITS, steps: int = 300, training: dict[str, Any] | None = None, **own: Any
) -> Any:
    own = {"cap": 6} | own if cls is sv.SDLGM else own
    settings = {"steps": steps, "verbose": 0, "learning_rate": 3e-3} | (training or {})
    return cls(24, hidden=(64,), training=sv.Training(**settings), **own).fit(X)


@cache
def distinct() -> Any:
    """Distinct features, most of the cap in use."""
    return fitted(features="distinct", alpha=0.9, steps=200, training={"batch_size": 32, "kl_warmup": 0.9})


# -- the cap ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("features", ["counts", "distinct"])
def test_no_code_and_no_draw_exceeds_the_cap(features: str) -> None:
    """Codes, draws of the posterior and draws of the prior; 10^6 rows of draws are in test_counts and test_capped."""
    est = fitted(features=features, cap=3, alpha=0.9, steps=100, training=QUICK | {"kl_warmup": 0.9})
    codes = est.transform(BITS)
    assert scipy.sparse.issparse(codes)
    assert codes.sum(1).max() <= 3
    assert codes.count_nonzero(axis=1).max() > 1  # the claim is about codes that use their cap
    with torch.no_grad():
        q = est.model_.encode(est.scaling_(torch.tensor(BITS)))
        draw = Draw(Fresh(torch.Generator().manual_seed(0)), hard=True)
        prior = est.model_.prior.marginal(est.model_.encode).expand((1000,))
        for z in (draw(q), draw(prior)):
            assert float(z.sum(-1).max()) <= 3
            assert set(z.unique().tolist()) <= {0.0, 1.0, 2.0, 3.0}


@pytest.mark.parametrize("features", ["counts", "distinct"])
@pytest.mark.parametrize(("n", "cap"), [(10, 1), (6, 3), (200, 40), (10, 9), (5, 5), (5, 8)])
def test_alpha_is_the_prior_share_of_the_cap_in_use(features: str, n: int, cap: int) -> None:
    """Of counts draws that are on, of distinct features the units, of which there are no more than n."""
    for alpha in (1e-6, 0.1, 0.5, 0.9, 0.999):
        dist = CappedCode(n, cap, features, alpha).prior().marginal(None)
        used = dist.mean.sum() / (cap if features == "counts" else min(cap, n))
        assert float(used) == pytest.approx(alpha, rel=1e-5)


def test_a_stored_model_keeps_the_prior_that_it_was_trained_with(tmp_path: Path) -> None:
    """Also one that alpha would no longer give, such as those from before alpha was the exact share of the cap."""
    est = copy.deepcopy(distinct())
    with torch.no_grad():
        est.model_.prior.logits.sub_(0.3)
    est.save(tmp_path)
    again = sv.load(tmp_path)
    assert torch.equal(again.model_.prior.logits, est.model_.prior.logits)
    assert np.array_equal(again.score_samples(BITS[:20]), est.score_samples(BITS[:20]))
    assert not np.array_equal(again.score_samples(BITS[:20]), distinct().score_samples(BITS[:20]))


def test_distinct_features_are_zeros_and_ones_and_counts_may_be_more() -> None:
    assert set(distinct().transform(BITS).data.tolist()) == {1.0}
    training = sv.Training(steps=100, verbose=0, **QUICK)
    few = sv.SDLGM(3, cap=12, hidden=(64,), alpha=0.9, training=training)  # twelve draws of three features
    assert few.fit(REFERENCE_ROWS).transform(REFERENCE_ROWS).max() > 1
    binary = few.set_params(binary=True).fit(REFERENCE_ROWS)
    Z = binary.transform(REFERENCE_ROWS)
    assert set(Z.data.tolist()) == {1.0}
    assert np.array_equal(binary.inverse_transform(Z), binary.inverse_transform(3 * Z))  # the decoder sees presence


def test_a_smaller_cap_at_encoding_keeps_the_likeliest_features() -> None:
    est = distinct()
    whole, few = est.transform(BITS), est.transform(BITS, max_active=2)
    assert few.count_nonzero(axis=1).max() == 2 < whole.count_nonzero(axis=1).max()
    assert ((whole - few) < 0).nnz == 0
    with torch.no_grad():
        p_on = est.model_.encode(est.scaling_(torch.tensor(BITS))).p_on.numpy()
    row = int(np.argmax(whole.count_nonzero(axis=1)))
    kept, left = few[row].indices, np.setdiff1d(whole[row].indices, few[row].indices)
    assert p_on[row, kept].min() >= p_on[row, left].max()


def test_packed_codes_come_back_and_foreign_bytes_are_refused() -> None:
    est = fitted(features="counts", alpha=0.9, steps=100, training=QUICK | {"kl_warmup": 0.9})
    Z = est.transform(BITS)
    assert Z.max() > 1
    assert len(np.unique(Z.toarray(), axis=0)) > 20
    data = est.pack(Z)
    assert (est.unpack(data) != Z).nnz == 0
    bits = 6 * int(np.ceil(np.log2(25)))
    assert 8 * len(data) <= bits * Z.shape[0] + 8 * 22 + 7  # a header of 22 bytes, and the last byte's rest
    with pytest.raises(ValueError, match=r"hold codes of 24 features with cap 6; this model has 24 with cap 4"):
        fitted(cap=4, steps=2).unpack(data)


@pytest.mark.parametrize("Z", [np.ones((2, 24)), 7 * np.eye(24)[:2]])
def test_codes_too_full_for_the_model_are_refused_with_what_would_work(Z: Any) -> None:
    """A model's cap is no argument of its pack: the advice is for who calls it."""
    with pytest.raises(
        ValueError, match=r"at most cap=6; row 0 .*transform never do.*sparsevae\.latent\.packing\.pack\(Z"
    ):
        fitted(steps=2).pack(Z)
    with pytest.raises(ValueError, match=r"Pass a larger cap\.$"):
        pack(Z, 6)
    assert (unpack(pack(Z, 24)).toarray() == Z).all()


# -- networks --------------------------------------------------------------------------------------------------------


def n_weights(module: torch.nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def dense(*sizes: int) -> int:
    return sum((a + 1) * b for a, b in itertools.pairwise(sizes))


def test_the_paper_s_networks_have_the_weights_that_its_sizes_say() -> None:
    """784-512-384-256-200 and 784-256-64-1 beside it (the paper's two logits are one free number), mirrored."""
    X = np.zeros((4, 784), np.float32)
    X[0] = 1
    own: dict[str, Any] = {"hidden": (512, 384, 256), "gate_hidden": (256, 64), "cap": 40}
    training = sv.Training(steps=1, verbose=0)
    apart = sv.SDLGM(200, **own, training=training).fit(X)
    assert n_weights(apart.model_.encoder) == dense(784, 512, 384, 256, 200) + dense(784, 256, 64, 1)
    assert n_weights(apart.model_.decoder) == dense(200, 256, 384, 512, 784)
    shared = sv.SDLGM(200, **own, shared_layers=2, training=training).fit(X)
    assert n_weights(shared.model_.encoder) == dense(784, 512, 384, 256, 200) + dense(384, 256, 64, 1)


def test_the_gate_net_starts_where_it_is_told() -> None:
    """With all hidden layers shared the gate is a function of the last one; with none, of the input alone."""
    est = fitted(steps=3, shared_layers=1)
    encoder = est.model_.encoder
    x = est.scaling_(torch.tensor(BITS[:5]))
    with torch.no_grad():
        hidden = encoder.trunk(x)
        assert hidden.shape == (5, 64)
        raw = encoder(x)
        assert torch.equal(raw[..., -1:], encoder.branch(hidden))
        assert torch.equal(raw[..., :-1], encoder.net(hidden))
    with pytest.raises(ValueError, match=r"shared_layers must be an integer in \[0, 1\] .*, got 2"):
        fitted(shared_layers=2)
    with pytest.raises(ValueError, match=r"shared_layers is for network='dense'"):
        fitted(shared_layers=1, network="conv", image_shape=(8, 8))


@pytest.mark.parametrize("features", ["counts", "distinct"])
def test_every_likelihood_and_convolutions_serve(features: str) -> None:
    for likelihood in ("bernoulli", "gaussian", "fixed-gaussian", "laplace"):
        est = fitted(features=features, likelihood=likelihood, steps=20, training=QUICK)
        assert np.isfinite(est.score(REFERENCE_ROWS)), likelihood
    image = fitted(features=features, network="conv", image_shape=(8, 8), steps=5)
    assert image.transform(REFERENCE_ROWS).shape == (len(REFERENCE_ROWS), 24)


@pytest.mark.filterwarnings("ignore:the importance weights of .* heavy tails:RuntimeWarning")  # after so few steps
def test_a_real_valued_table_gets_discrete_codes() -> None:
    rng = np.random.default_rng(0)
    on = rng.random((300, 6)) < 0.3
    X = (on @ rng.normal(size=(6, 20)) + 0.1 * rng.normal(size=(300, 20))).astype(np.float32)
    training = sv.Training(steps=120, verbose=0, **QUICK)
    est = sv.SDLGM(16, hidden=(64,), cap=6, features="distinct", likelihood="fixed-gaussian", training=training).fit(X)
    report = est.evaluate(X)
    assert report["mse"] < 0.5 * X.var()
    assert report["nonzeros_mode"] <= 6


# -- temperatures ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_learned_temperatures_stay_within_their_bounds_and_run_away_without_them() -> None:
    learned: dict[str, Any] = {"gradient": "paper", "tau": "learned", "tau_z": "learned", "steps": 800}
    kept_rows = fitted(**learned, tau_bounds=(0.5, 1.5))
    free = fitted(**learned, tau_bounds=None)
    assert all(0.5 < t < 1.5 for t in kept_rows.temperatures_.values())
    assert free.temperatures_["tau"] > 1.5
    # What that does: the free one looks better in training and is worse as a code.
    assert free.relaxed_objective(BITS).mean() > kept_rows.relaxed_objective(BITS).mean()
    assert free.score(BITS) < kept_rows.score(BITS)


def test_a_learned_temperature_starts_at_one_and_is_stored() -> None:
    est = fitted(gradient="paper", tau="learned", tau_z=0.7, steps=1)
    assert est.temperatures_["tau"] == pytest.approx(1.0, abs=1e-2)
    assert est.temperatures_["tau_z"] == pytest.approx(0.7)


@pytest.mark.parametrize("bounds", [(1e-200, 1e200), (5e-324, 1e308), (5e-324, 1 + 2e-16), (1 - 1e-16, 1e308)])
def test_a_learned_temperature_starts_at_one_however_far_its_bounds_are(bounds: tuple[float, float]) -> None:
    assert Temperature("tau", None, bounds)().item() == pytest.approx(1.0, abs=1e-4)
    assert np.isfinite(fitted(gradient="paper", tau="learned", tau_bounds=bounds, steps=2).score(BITS))


def test_a_schedule_drives_a_temperature_and_is_saved_with_the_model(tmp_path: Any) -> None:
    plan = sv.Linear(1.0, 0.2)
    est = fitted(gradient="paper", tau=plan, tau_z=sv.Exponential(1.0, 0.01, floor=0.3), steps=200)
    assert est.temperatures_["tau"] == pytest.approx(plan(199, 200))
    assert est.temperatures_["tau_z"] == pytest.approx(0.3)
    est.save(tmp_path / "model")
    twin = sv.load(tmp_path / "model")
    assert twin.tau == plan
    assert (twin.transform(BITS) != est.transform(BITS)).nnz == 0
    assert np.array_equal(twin.score_samples(BITS), est.score_samples(BITS))


@pytest.mark.parametrize("gradient", ["concrete", "disarm", "muprop", "darn", "paper"])
def test_gradients_that_cannot_keep_the_cap_are_refused_for_distinct_features(gradient: str) -> None:
    with pytest.raises(ValueError, match=r"cannot keep the cap of features='distinct'; use auto,"):
        fitted(features="distinct", gradient=gradient)


@pytest.mark.parametrize(
    ("cls", "own"),
    [
        (sv.DiscreteVAE, {"gradient": "concrete", "temperature": sv.Constant(-1.0)}),
        (sv.DiscreteVAE, {"gradient": "slope-annealed", "slope": sv.Linear(-5.0, -1.0)}),
        (sv.SDLGM, {"gradient": "paper", "tau": sv.Linear(1.0, -1.0)}),
        (sv.SDLGM, {"gradient": "paper", "tau_z": sv.Cosine(1.0)}),
        (sv.SDLGM, {"gradient": "slope-annealed", "slope": sv.Step(1.0, 0.0)}),
    ],
)
def test_a_schedule_meets_the_check_of_a_number(cls: Any, own: dict[str, Any]) -> None:
    name = list(own)[-1]
    with pytest.raises(ValueError, match=rf"{name} must be a number above 0 all along, got .* which comes to"):
        fitted(cls, steps=5, **own)


@pytest.mark.parametrize(
    ("name", "value"), [("kl", "paper"), ("tau_z", 2.0), ("gate_hidden", (5,)), ("shared_layers", 1)]
)
def test_what_is_for_counts_says_so_and_leaves_distinct_features_alone(name: str, value: Any) -> None:
    """One grid may hold both laws: what applies to one alone is no error for the other."""
    shown = {p.name: p.help for p in documented(sv.SDLGM)}[name]
    assert shown.startswith("For features='counts', ")
    concrete: dict[str, Any] = {"gradient": "straight-through-concrete", "steps": 5}
    for features, same in (("distinct", True), ("counts", False)):
        plain, other = (fitted(features=features, **concrete, **own) for own in ({}, {name: value}))
        assert np.array_equal(plain.score_samples(BITS), other.score_samples(BITS)) == same


# -- three numbers ---------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:the importance weights of .* heavy tails:RuntimeWarning")
@pytest.mark.parametrize(
    "own",
    [
        {"cls": sv.SDLGM, "gradient": "paper", "steps": 300, "training": QUICK},
        {"cls": sv.SDLGM, "features": "distinct", "steps": 100, "training": QUICK},
        {"cls": sv.DiscreteVAE, "categories": 4, "gradient": "muprop"},
        pytest.param(
            {"cls": sv.DiscreteVAE, "gradient": "concrete", "temperature": 1.0, "steps": 1000}, marks=pytest.mark.slow
        ),
    ],
    ids=["sdlgm, paper", "sdlgm, distinct", "one-hots", "bits"],
)
def test_evaluate_gives_three_numbers_for_a_discrete_code(own: dict[str, Any]) -> None:
    est = fitted(**own)
    report = est.evaluate(BITS[:200])
    assert report["importance_rows"] == 200
    assert report["score"] < report["importance_bound"]
    hard = own.get("gradient") not in ("paper", "concrete")
    gap = report["relaxed_objective"] - report["score"]
    assert abs(gap) < 0.5 if hard else gap > 0.5  # a hard draw is its own objective; a relaxed one flatters
    assert "relaxed_objective" not in fitted(sv.VAE, steps=5).evaluate(BITS[:50])


def test_grey_pixels_have_no_importance_bound() -> None:
    report = fitted(X=DIGITS.X / 255.0, likelihood="bernoulli", steps=5).evaluate(DIGITS.X[:20] / 255.0)
    assert report["score_meaning"] == "cross-entropy"
    assert "importance_bound" not in report


# -- discrete VAE ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("categories", [None, 4])
@pytest.mark.parametrize("gradient", ESTIMATORS)
def test_every_gradient_trains_bits_and_one_hots(gradient: str, categories: int | None) -> None:
    own: dict[str, Any] = {"X": REFERENCE_ROWS, "training": QUICK, "gradient": gradient, "categories": categories}
    est, start = (fitted(sv.DiscreteVAE, steps=steps, **own) for steps in (80, 1))
    assert est.score(REFERENCE_ROWS) > start.score(REFERENCE_ROWS) + 5
    Z = est.transform(REFERENCE_ROWS)
    assert set(Z.data.tolist()) <= {1.0}
    if categories:
        assert np.array_equal(np.asarray(Z.sum(1)).ravel(), np.full(len(REFERENCE_ROWS), 6.0))


def test_a_learned_prior_fits_the_codes() -> None:
    fixed, learned = (fitted(sv.DiscreteVAE, learned_prior=own, steps=600, alpha=0.5) for own in (False, True))
    assert learned.score(BITS) > fixed.score(BITS)
    assert learned.model_.prior.logits.std() > 0.03
    assert fixed.model_.prior.logits.std() == 0


@pytest.mark.parametrize("features", ["counts", pytest.param("distinct", marks=pytest.mark.slow)])
def test_a_learned_prior_of_capped_codes_fits_them_too(features: str, tmp_path: Path) -> None:
    own: dict[str, Any] = {"X": REFERENCE_ROWS, "features": features, "steps": 200, "training": QUICK}
    fixed, learned = (fitted(learned_prior=learn, **own) for learn in (False, True))
    assert learned.score(REFERENCE_ROWS) > fixed.score(REFERENCE_ROWS)
    learned.save(tmp_path / "model")
    assert sv.load(tmp_path / "model").score(REFERENCE_ROWS) == learned.score(REFERENCE_ROWS)


def test_groups_must_fill_the_code() -> None:
    with pytest.raises(ValueError, match=r"n_components must be a multiple of categories=5, got 24"):
        fitted(sv.DiscreteVAE, categories=5)


def test_the_audit_says_why_it_has_nothing_to_say_about_counts() -> None:
    with pytest.raises(TypeError, match="there is no KL per unit"):
        sv.audit(fitted(steps=2), BITS)
