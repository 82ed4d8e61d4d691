"""Claims: the second stage learns which units go together, samples through it do too, and both models stay ordinary."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.base import clone
from sklearn.decomposition import PCA

import sparsevae as sv
from sparsevae.analysis.second_stage import second_stage
from sparsevae.distributions.spike_slab import SpikeSlab
from sparsevae.sampling.noise import mix
from sparsevae.storage import folder as storage
from sparsevae.storage import record

pytestmark = pytest.mark.filterwarnings("ignore::sparsevae.exceptions.SparsityWarning")
QUICK = sv.Training(steps=20, batch_size=32, learning_rate=1e-2, verbose=0)
rng = np.random.default_rng(0)
X = (rng.normal(size=(90, 3)) @ rng.normal(size=(3, 7)) + 0.1 * rng.normal(size=(90, 7))).astype(np.float32)


def fitted(cls: Any = sv.VSC, **changes: Any) -> Any:
    more = {"alpha": 0.5} if cls is sv.VSC else {}
    return cls(**{"n_components": 4, "hidden": (6,), "training": QUICK} | more | changes).fit(X)


def small(est: Any, **changes: Any) -> Any:
    return second_stage(est, X, **{"n_components": 2, "hidden": (8,), "training": QUICK} | changes)


@pytest.fixture(scope="module")
def est() -> Any:
    return fitted()


@pytest.fixture(scope="module")
def stage(est: Any) -> Any:
    return small(est)


def planted(n: int, seed: int) -> np.ndarray:
    """Codes of six units in two groups of three: one group is on, never both; its sizes share a sign."""
    noise = np.random.default_rng(seed)
    group, sign = noise.integers(0, 2, n), noise.choice([-1.0, 1.0], n)
    Z = np.zeros((n, 6), np.float32)
    for k in (0, 1):
        rows = np.flatnonzero(group == k)
        Z[rows, 3 * k : 3 * k + 3] = sign[rows, None] * (1.5 + 0.1 * noise.normal(size=(len(rows), 3)))
    return Z


def consistent(Z: np.ndarray) -> float:
    """Share of codes with exactly one whole group on, all of it of one sign."""
    on = Z != 0
    groups = on[:, :3].all(1) & ~on[:, 3:].any(1) | on[:, 3:].all(1) & ~on[:, :3].any(1)
    return float((groups & (np.abs(np.sign(Z).sum(1)) == 3)).mean())


# -- the law of codes as a likelihood ---------------------------------------------------------------------------


def test_a_vae_of_codes_learns_which_units_go_together_and_how() -> None:
    Z = planted(2000, 0)
    training = sv.Training(steps=600, batch_size=128, learning_rate=5e-3, verbose=0)
    stage = sv.VAE(4, hidden=(64, 64), likelihood="spike-slab", scale="none", variance_floor=1e-3, training=training)
    stage.fit(Z)
    drawn = stage.sample(1000, noise=True)
    assert consistent(Z) == 1
    assert consistent(drawn) > 0.8
    independent = np.stack([np.random.default_rng(j).permutation(Z[:, j]) for j in range(6)], 1)
    assert consistent(independent) < 0.05  # what a prior of independent units would give
    # two groups of two signs are log 4 nats, and each of three sizes has the entropy of N(0, .1^2)
    exact = -(math.log(4) + 3 * (0.5 + math.log(0.1 * math.sqrt(2 * math.pi))))
    assert exact - 1.5 < stage.score(planted(500, 1)) < exact
    assert isinstance(stage.model_.decode(torch.zeros(1, 4)), SpikeSlab)


def test_codes_may_be_dense_or_csr() -> None:
    Z = planted(64, 0)
    one, two = (sv.VAE(2, hidden=(4,), likelihood="spike-slab", scale="none", training=QUICK) for _ in range(2))
    assert np.array_equal(one.fit(Z).sample(5, noise=True), two.fit(sp.csr_matrix(Z)).sample(5, noise=True))


@pytest.mark.parametrize("scale", ["auto", "standard", "unit-norm"])
def test_a_scaling_that_moves_zeros_is_refused(scale: str) -> None:
    model = sv.VAE(2, likelihood="spike-slab", scale=scale, training=QUICK)
    with pytest.raises(ValueError, match=r"about exact zeros, which scale=.* does not keep .* Use scale='none'"):
        model.fit(planted(64, 0))
    assert not hasattr(model, "model_")


# -- the codes --------------------------------------------------------------------------------------------------


def test_codes_are_hard_draws_that_follow_the_posterior() -> None:
    est = fitted()
    Z = est.draw_codes(X, 400)
    with torch.no_grad():
        q = est.model_.encode(est.scaling_(torch.tensor(X)))
    p = q.p_on.numpy()
    assert np.abs((Z != 0).mean(0) - p).max() < 5 * 0.5 / math.sqrt(400)
    error = q.variance.sqrt().numpy() / math.sqrt(400)
    assert (np.abs(Z.mean(0) - q.mean.numpy()) < 5 * error).all()


def test_the_second_stage_learns_from_every_draw_of_the_whole_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw after draw, (n_draws N, J), of the model's own seed; a code of two parts is one code."""
    seen: list[np.ndarray] = []
    fit = sv.VAE.fit
    monkeypatch.setattr(sv.VAE, "fit", lambda self, codes: (seen.append(codes), fit(self, codes))[1])
    est = fitted(training=sv.Training(steps=5, seed=3, verbose=0))
    small(est, n_draws=2)
    assert np.array_equal(seen[0], est.draw_codes(X, 2, seed=3).reshape(180, 4))
    assert not np.array_equal(seen[0][:90], seen[0][90:])
    both = sv.SDLGMClassifier(variant="con", hidden=(6,), free_features=4, threshold=0.5, training=QUICK)
    stage = small(both.fit(X, X[:, :3] > 0))
    assert seen[1].shape == (90, 3 + 4)
    assert both.sample(5, second_stage=stage).shape == (5, 7)


# -- second_stage -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cls", "changes", "likelihood"),
    [(sv.VSC, {}, "spike-slab"), (sv.VSC, {"alpha": 1.0}, "gaussian"), (sv.VAE, {}, "gaussian")],
)
def test_the_codes_choose_the_likelihood(cls: Any, changes: dict[str, Any], likelihood: str) -> None:
    est = fitted(cls, **changes)
    stage = small(est)
    assert stage.likelihood_ == likelihood
    assert (stage.n_components, stage.n_features_in_) == (2, 4)
    rows = est.sample(5, second_stage=stage)
    assert rows.shape == (5, 7)
    assert np.isfinite(rows).all()


@pytest.mark.parametrize(
    ("codes", "answer"), [([[0.0, 1, 1, 1], [1, 1, 0, 1]], "bernoulli"), ([[0.0, 2, 1, 0]], "counts")]
)
def test_other_codes(codes: Any, answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    est = fitted()
    monkeypatch.setattr(sv.VSC, "draw_codes", lambda *_, **__: np.array([codes], np.float32))
    if answer == "counts":
        with pytest.raises(ValueError, match="these codes are counts"):
            small(est)
    else:
        assert small(est).likelihood_ == answer


@pytest.mark.parametrize(
    ("model", "rule"),
    [
        (sv.DiscreteVAE(6, categories=3), "exactly one unit on in each group of 3"),
        (sv.SDLGM(6, cap=2, features="distinct"), "at most 2 of 6 units on"),
        (sv.SDLGM(6, cap=2), "are counts"),
    ],
)
def test_codes_that_independent_units_do_not_keep_are_refused_before_anything_is_drawn_or_trained(
    model: Any, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = clone(model).set_params(hidden=(6,), training=QUICK).fit(X)
    monkeypatch.setattr(type(model), "draw_codes", lambda *_, **__: pytest.fail("it drew codes"))
    with pytest.raises(ValueError, match=f"{rule}, which no second stage describes: given u, its units are indep"):
        small(model)


@pytest.mark.parametrize("model", [sv.DiscreteVAE(4), sv.SDLGM(4, cap=4, features="distinct")])
def test_free_bits_have_a_second_stage_of_bits(model: Any) -> None:
    model = clone(model).set_params(hidden=(6,), training=QUICK).fit(X)
    stage = small(model)
    assert stage.likelihood_ == "bernoulli"
    codes = stage.sample(20, noise=True)
    assert set(np.unique(codes)) == {0.0, 1.0}


def test_samples_are_decoded_codes_of_the_second_stage(est: Any, stage: Any) -> None:
    rows = est.sample(6, seed=3, second_stage=stage)
    codes = stage.sample(6, seed=mix(3, 9), noise=True)
    assert rows == pytest.approx(est.inverse_transform(codes), abs=1e-5)
    assert np.array_equal(rows, est.sample(6, seed=3, second_stage=stage))
    assert not np.array_equal(rows, est.sample(6, seed=4, second_stage=stage))
    assert not np.array_equal(rows, est.sample(6, seed=3))
    assert not np.array_equal(rows, est.sample(6, seed=3, second_stage=stage, noise=True))
    assert est.sample(0, second_stage=stage).shape == (0, 7)


def test_the_model_does_not_change(est: Any, stage: Any) -> None:
    other = fitted()
    assert np.array_equal(est.sample(5, seed=2), other.sample(5, seed=2))
    assert vars(est).keys() == vars(other).keys()


def test_the_second_stage_brings_samples_back_to_the_data() -> None:
    """Rows at the four points of a compass: a Gaussian prior also fills what lies between, where no code is."""
    noise = np.random.default_rng(0)
    points = np.array([[2, 0], [-2, 0], [0, 2], [0, -2]])
    rows = (points[noise.integers(0, 4, 2000)] + 0.1 * noise.normal(size=(2000, 2))).astype(np.float32)
    training = sv.Training(steps=600, batch_size=128, learning_rate=5e-3, verbose=0)
    settings: dict[str, Any] = {"likelihood": "fixed-gaussian", "variance": 0.01, "training": training}
    est = sv.VAE(2, hidden=(32,), **settings).fit(rows)
    stage = second_stage(est, rows, hidden=(64, 64), training=training)

    def off(x: np.ndarray) -> float:
        """Share of samples far from every point."""
        return float((np.abs(x[:, None] - points).max(2).min(1) > 0.8).mean())

    assert off(rows) == 0
    assert off(est.sample(2000, second_stage=stage)) < 0.5 * off(est.sample(2000))


def test_what_is_no_model_of_the_codes_is_refused(est: Any, stage: Any) -> None:
    """An answer to whether, a model of the rows, a stage that is not fitted, or one of other codes."""
    for wrong in (True, est, clone(stage), small(fitted(n_components=3))):
        with pytest.raises(ValueError, match=r"a fitted model of codes of 4 units, as sparsevae.second_stage returns"):
            est.sample(3, second_stage=wrong)


def test_bad_arguments_are_refused() -> None:
    est = fitted()
    with pytest.raises(ValueError, match="n_draws must be an integer above 0"):
        small(est, n_draws=0)
    with pytest.raises(ValueError, match="n_components must be an integer above 0"):
        small(est, n_components=0)
    with pytest.raises(ValueError, match="expecting 7 features"):
        second_stage(est, X[:, :3])
    with pytest.raises(Exception, match="not fitted"):
        second_stage(sv.VSC(4), X)
    with pytest.raises(TypeError, match=r"second_stage needs a fitted estimator of sparsevae, .* got a PCA"):
        second_stage(PCA(3).fit(X), X)
    with pytest.raises(TypeError, match=r"second_stage needs a model with p\(x\|z\), and CodeClassifier has none"):
        second_stage(sv.CodeClassifier(2, training=QUICK).fit(X, X[:, 0] > 0), X)


def test_the_inner_model_warns_of_nothing() -> None:
    """A code of one unit always has a warning: no unit is in use, or all are."""
    est = fitted()
    with warnings.catch_warnings():
        warnings.simplefilter("error", sv.SparsityWarning)
        with pytest.raises(sv.SparsityWarning):
            sv.VAE(1, hidden=(8,), training=QUICK).fit(est.draw_codes(X)[0])  # which is what the second stage does
        small(est, n_components=1)


def test_the_model_lends_its_seed_device_and_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    est = fitted(training=sv.Training(steps=5, seed=7, device="cpu", verbose=0))
    kept: list[Any] = []
    monkeypatch.setattr(sv.VAE, "fit", lambda self, codes: kept.append(self) or self)
    second_stage(est, X)
    chosen = kept[0].training
    assert (chosen.seed, chosen.device, chosen.verbose, chosen.kl_warmup) == (7, "cpu", 0, 0.2)
    assert kept[0].n_components == 4  # as many as the model has


# -- saved and loaded -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", [sv.VSC, sv.VAE])
def test_both_stages_are_saved_and_loaded_each_by_itself(cls: Any, tmp_path: Path) -> None:
    est = fitted(cls)
    stage = small(est)
    est.save(tmp_path / "model")
    stage.save(tmp_path / "model" / "second-stage")  # a model may lie within another's folder
    est.save(tmp_path / "model")
    back, below = sv.load(tmp_path / "model"), sv.load(tmp_path / "model" / "second-stage")
    for noise in (False, True):
        expected = est.sample(4, second_stage=stage, noise=noise)
        assert np.array_equal(back.sample(4, second_stage=below, noise=noise), expected)
    assert np.array_equal(back.sample(4), est.sample(4))


def test_a_folder_of_an_earlier_version_loads_without_its_second_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There the second stage lay within the model's own files."""
    kept = Path(__file__).parents[1] / "saved" / "v1-vsc"
    tensors, meta = storage.load_folder(kept)
    nested = {f"second_stage.{name}": value for name, value in tensors.items()}
    with monkeypatch.context() as patched:
        patched.setattr(record, "FORMAT_VERSION", 1)
        storage.save_folder(tmp_path / "old", tensors | nested, meta | {"second_stage": meta})
    with pytest.warns(UserWarning, match="old holds a second stage in an earlier format, .*: fit it again"):
        back = sv.load(tmp_path / "old")
    assert np.array_equal(back.sample(4), sv.load(kept).sample(4))
    back.save(tmp_path / "new")
    rows = np.load(kept / "X.npy")
    assert np.array_equal(sv.load(tmp_path / "new").score_samples(rows), back.score_samples(rows))  # warns of nothing
