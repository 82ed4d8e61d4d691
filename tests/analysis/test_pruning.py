"""Claims of pruning: the surgery is exact, harmless and makes the model smaller and faster; it spares active units."""

from __future__ import annotations

import functools
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from sklearn.decomposition import PCA
from torch import Tensor, nn

import sparsevae as sv
from sparsevae.analysis.audit import audit
from sparsevae.analysis.pruning import prune

pytestmark = pytest.mark.filterwarnings("ignore::sparsevae.exceptions.SparsityWarning")
QUICK = sv.Training(steps=100, learning_rate=5e-3, verbose=0)
LEARNED = sv.Training(steps=300, learning_rate=5e-3, verbose=0)


@functools.cache
def rows() -> Any:
    return sv.data.load("digits").X[:300]


@pytest.fixture(scope="module")
def X() -> Any:  # noqa: N802
    return rows()


OWN = nn.Sequential(nn.Sequential(nn.Linear(14, 24, bias=False), nn.Tanh()), nn.Linear(24, 20), nn.ReLU())

MODELS: dict[str, Callable[[], Any]] = {
    "VAE": lambda: sv.VAE(14, hidden=(32,), training=LEARNED),
    "BetaVAE": lambda: sv.BetaVAE(14, beta=2.0, hidden=(24, 16), training=LEARNED),
    "VSC": lambda: sv.VSC(14, alpha=0.2, hidden=(32,), training=QUICK),
    "VSC, never off": lambda: sv.VSC(14, alpha=1.0, hidden=(32,), training=QUICK),
    "pseudo-inputs": lambda: sv.PseudoVSC(14, hidden=(32,), training=LEARNED),
    "MAT": lambda: sv.MAT(14, hidden=(32,), training=sv.Training(steps=60, verbose=0)),
    "own networks": lambda: sv.VAE(14, encoder=nn.Linear(64, 32), decoder=OWN, training=QUICK),
    "linear decoder": lambda: sv.VAE(14, hidden=(16,), decoder=nn.Identity(), training=QUICK),
    "bits": lambda: sv.DiscreteVAE(14, hidden=(32,), learned_prior=True, training=LEARNED),
    "convolutions": lambda: sv.VAE(14, hidden=(16,), network="conv", training=sv.Training(steps=30, verbose=0)),
}


@functools.cache
def model(name: str) -> Any:
    """Fitted once, and changed by no test."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sv.SparsityWarning)
        return MODELS[name]().fit(rows())


@pytest.fixture(scope="module", params=MODELS)
def fitted(request: Any) -> Any:
    return model(request.param)


def dense(Z: Any) -> Any:
    return Z.toarray() if scipy.sparse.issparse(Z) else Z


def count(est: Any) -> int:
    return sum(p.numel() for p in est.model_.parameters())


def test_the_surgery_is_exact(fitted: Any, X: Any) -> None:
    before = {k: v.clone() for k, v in fitted.model_.state_dict().items()}
    cut, keep = [0, 3, 7, 12], [1, 2, 4, 5, 6, 8, 9, 10, 11, 13]
    smaller = prune(fitted, X, units=cut, force=True)
    codes, means = dense(fitted.transform(X)), audit(fitted, X).mean
    assert np.abs(means[cut]).max() > 1e-4  # or the bias would have nothing to hold
    assert np.allclose(dense(smaller.transform(X)), codes[:, keep], atol=1e-5)
    kept_rows = codes.copy()
    kept_rows[:, cut] = means[cut]
    both = smaller.inverse_transform(codes[:, keep]), fitted.inverse_transform(kept_rows)
    assert np.allclose(*both, atol=1e-5 * 255, rtol=0)  # 1e-5 in the network's units, where a pixel of 255 is 1
    assert all(torch.equal(v, before[k]) for k, v in fitted.model_.state_dict().items())
    assert fitted.n_components == 14


def test_what_comes_back_is_an_ordinary_smaller_estimator(fitted: Any, X: Any, tmp_path: Path) -> None:
    smaller = prune(fitted, X, units=np.array([0, 3, 7, 12]), force=True)
    assert type(smaller) is type(fitted)
    own = ("n_components", "decoder", "encoder")
    settings = {k: v for k, v in fitted.get_params(deep=False).items() if k not in (*own, "training")}
    assert {k: v for k, v in smaller.get_params(deep=False).items() if k in settings} == settings
    assert (smaller.n_components, len(smaller.get_feature_names_out())) == (10, 10)
    assert (smaller.likelihood_, smaller.history_) == (fitted.likelihood_, fitted.history_)
    assert count(smaller) < count(fitted)
    smaller.save(tmp_path)
    again = sv.load(tmp_path, encoder=smaller.encoder, decoder=smaller.decoder)
    assert np.array_equal(dense(again.transform(X)), dense(smaller.transform(X)))
    assert np.array_equal(again.sample(3), smaller.sample(3))
    steps, codes = smaller.n_steps_, dense(smaller.transform(X))
    smaller.partial_fit(X)
    assert smaller.n_steps_ > steps
    assert not np.allclose(dense(smaller.transform(X)), codes)


@pytest.fixture(scope="module")
def planted() -> Any:
    """Three sources, each present in half of the rows, in twelve columns."""
    rng = np.random.default_rng(0)
    directions = np.linalg.qr(rng.normal(size=(12, 3)))[0].T
    sources = rng.normal(size=(512, 3)) * [3.0, 2.0, 1.0] * (rng.random((512, 3)) < 0.5)
    return (sources @ directions + 0.2 * rng.normal(size=(512, 12))).astype(np.float32)


FAST = sv.Training(steps=1000, batch_size=64, learning_rate=1e-2, verbose=0)
LONG = sv.Training(steps=2000, batch_size=64, learning_rate=5e-3, verbose=0)
GAUSSIAN: dict[str, Any] = {"likelihood": "fixed-gaussian", "scale": "none", "hidden": (32,)}


@pytest.mark.parametrize(
    "est",
    [
        sv.VAE(12, **GAUSSIAN, training=FAST),
        pytest.param(sv.BetaVAE(12, beta=2.0, **GAUSSIAN, training=FAST), marks=pytest.mark.slow),
        sv.VSC(12, **GAUSSIAN, training=LONG),
    ],
)
def test_pruning_is_harmless(est: Any, planted: Any) -> None:
    found = audit(est.fit(planted), planted)
    smaller = prune(est, planted)
    assert 3 <= smaller.n_components == found.n_active < 9
    bounds = [e.score_samples(planted, n_samples=400).mean() for e in (est, smaller)]
    assert bounds[1] > bounds[0] - 0.05


@pytest.fixture(scope="module")
def whisperers() -> Any:
    """Unit 9 tells column 1; units 0 to 8 each whisper of column 0, too low to count, and the decoder adds them up."""
    X = np.random.default_rng(1).normal(size=(2000, 2)).astype(np.float32)
    quick = sv.Training(steps=1, verbose=0)
    est = sv.VAE(10, likelihood="fixed-gaussian", scale="none", variance=0.4, hidden=(), training=quick).fit(X)
    state = est.model_.state_dict()
    for tensor in state.values():
        tensor.zero_()
    state["encoder.0.weight"][:9, 0], state["encoder.0.weight"][9, 1] = 0.09, 1.0
    state["encoder.0.bias"][19] = -4.0  # log-variance
    state["decoder.0.weight"][0, :9], state["decoder.0.weight"][1, 9] = 0.084, 1.0
    return est, X


def test_units_that_are_missed_together_do_not_all_go(whisperers: Any) -> None:
    # Alone each is worth (E log-likelihood - KL) .006 nats; all nine (1 - (1 - .81 w)^2 - 9 w^2) / .8 - 9 * .004 = .05
    est, X = whisperers
    found = audit(est, X)
    assert found.active.tolist() == [False] * 9 + [True]
    assert prune(est, X, tolerance=1.0).n_components == 1
    smaller = prune(est, X)
    assert 2 < smaller.n_components < 10
    fall = est.score_samples(X, n_samples=100).mean() - smaller.score_samples(X, n_samples=100).mean()
    assert 0 < fall < 0.05
    with pytest.raises(
        ValueError, match=r"without these units the bound falls by 0\.0\d+ nats\. force=True removes them anyway"
    ):
        prune(est, X, units=range(9))
    assert prune(est, X, units=range(9), force=True).n_components == 1


def test_encoding_takes_less_time_and_fewer_parameters(X: Any) -> None:
    large = sv.VAE(800, hidden=(16,), training=sv.Training(steps=2, verbose=0)).fit(X)
    small = prune(large, X[:50], units=range(16, 800), force=True)
    assert count(small) < count(large) / 10

    def fastest(est: Any) -> float:
        times = []
        for _ in range(5):
            start = time.perf_counter()
            est.transform(X)
            times.append(time.perf_counter() - start)
        return min(times)

    assert fastest(small) < fastest(large)


def test_an_active_unit_is_spared_unless_forced(X: Any) -> None:
    est = model("VAE")
    best = int(audit(est, X).kl.argmax())
    with pytest.raises(ValueError, match=rf"these units are active: {best} \(KL .* force=True"):
        prune(est, X, units=[best])
    assert prune(est, X, units=[best], force=True).n_components == 13
    with pytest.raises(ValueError, match="no unit would be left: all"):
        prune(est, X, units=range(14), force=True)
    with pytest.raises(ValueError, match="force must be True, False, 0 or 1, got 'no'"):
        prune(est, X, units=[best], force="no")


@pytest.fixture(scope="module")
def quick(X: Any) -> Any:
    return sv.VAE(6, hidden=(8,), training=sv.Training(steps=5, verbose=0)).fit(X[:80])


@pytest.mark.parametrize(
    "units", [[6], [-1], [1.0], [1.5], [[1], [2]], [[1], [2, 3]], 3, "3", "", [True, False], [None], ["1"], object()]
)
def test_units_that_are_no_list_of_units_are_refused(units: Any, quick: Any, X: Any) -> None:
    with pytest.raises(ValueError, match="units must be a list of integers from 0 to 5, or a mask of 6 booleans; got"):
        prune(quick, X, units=units, force=True)


@pytest.mark.parametrize("form", [list, np.array, torch.tensor])
def test_a_mask_of_booleans_chooses_the_units_where_it_is_true(form: Any, quick: Any, X: Any) -> None:
    mask = [True, False, False, False, True, False]
    smaller = prune(quick, X, units=form(mask), force=True)
    assert np.allclose(smaller.transform(X), quick.transform(X)[:, [1, 2, 3, 5]], atol=1e-5)
    assert prune(quick, X, units=form([False] * 6)).n_components == 6


@pytest.mark.parametrize("form", [list, tuple, set, iter, np.array, torch.tensor])
def test_units_may_come_in_any_sequence(form: Any, quick: Any, X: Any) -> None:
    smaller = prune(quick, X, units=form([5, 1]), force=True)
    assert np.allclose(smaller.transform(X), quick.transform(X)[:, [0, 2, 3, 4]], atol=1e-5)


def test_few_rows_are_no_ground_to_judge_units_by(quick: Any, X: Any) -> None:
    for units in (None, [1]):
        with pytest.raises(
            ValueError, match=r"49 rows are too few .* prune needs 50 at least.* force=True prunes anyway"
        ):
            prune(quick, X[:49], units=units)
    assert prune(quick, X[:49], units=[1], force=True).n_components == 5
    with pytest.raises(ValueError, match="two rows at least; got 1"):
        prune(quick, X[:1], units=[1], force=True)


def test_a_model_of_few_rows_is_judged_by_all_of_them(X: Any) -> None:
    est = sv.VAE(3, hidden=(8,), training=sv.Training(steps=5, verbose=0)).fit(X[:20])
    assert prune(est, X[:20], units=[]).n_components == 3
    with pytest.raises(ValueError, match=r"19 rows are too few .* needs 20"):
        prune(est, X[:19], units=[])


def test_only_our_own_estimators_can_be_pruned(X: Any) -> None:
    with pytest.raises(TypeError, match=r"prune needs a fitted estimator of sparsevae, .* got a PCA"):
        prune(PCA().fit(X), X)


def test_without_inactive_units_a_copy_comes_back(X: Any) -> None:
    est = sv.VAE(2, hidden=(32,), training=LEARNED).fit(X)
    same = prune(est, X)
    assert same is not est
    assert same.n_components == 2
    assert np.array_equal(same.transform(X), est.transform(X))


# -- what decoders may look like --------------------------------------------------------------------------------------


def test_the_published_stack_of_convolutions_can_be_pruned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparsevae.inputs.base.BLOCK", 64)
    tiles = sv.data.load("tiles", n=60, n_test=0).X
    est = sv.VAE(6, network="asperti", training=sv.Training(steps=3, batch_size=20, verbose=0)).fit(tiles)
    smaller = prune(est, tiles, units=[1, 4], force=True)
    codes = est.transform(tiles)
    kept_rows = codes.copy()
    kept_rows[:, [1, 4]] = audit(est, tiles).mean[[1, 4]]
    assert np.allclose(smaller.transform(tiles), codes[:, [0, 2, 3, 5]], atol=1e-5)
    assert np.allclose(smaller.inverse_transform(codes[:, [0, 2, 3, 5]]), est.inverse_transform(kept_rows), atol=1e-5)
    smaller.save(tmp_path)
    assert np.array_equal(sv.load(tmp_path).transform(tiles), smaller.transform(tiles))


class Both(nn.Sequential):
    """A linear layer first, and z once more at the end."""

    def forward(self, z: Tensor) -> Tensor:
        return super().forward(z) + z.sum(-1, keepdim=True)


class Custom(nn.Module):
    def forward(self, z: Tensor) -> Tensor:
        return z.square()


@pytest.mark.parametrize(
    ("decoder", "message"),
    [
        (Custom(), r"starts with a linear map of 6 inputs; this one starts with Custom\(\)"),
        (Both(nn.Linear(6, 8)), "uses its input elsewhere"),
    ],
)
def test_a_decoder_that_cannot_be_cut_is_refused(decoder: nn.Module, message: str, X: Any) -> None:
    est = sv.VAE(6, hidden=(8,), decoder=decoder, training=sv.Training(steps=20, verbose=0)).fit(X)
    with pytest.raises(TypeError, match=message):
        prune(est, X, units=[0], force=True)


def test_a_kernel_that_spreads_a_unit_over_places_is_refused_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = np.random.default_rng(0).random((40, 1024), np.float32)
    est = sv.VAE(6, network="mat", training=sv.Training(steps=2, batch_size=20, verbose=0)).fit(x)
    monkeypatch.setattr("sparsevae.analysis.pruning.audit", lambda *_, **__: pytest.fail("it measured"))
    with pytest.raises(TypeError, match="kernel larger than 1 x 1, such as that of network='mat', spreads a unit"):
        prune(est, x)


# -- discrete codes ---------------------------------------------------------------------------------------------------


def test_pruned_bits_keep_the_prior_of_those_that_stay(X: Any) -> None:
    est = model("bits")
    smaller = prune(est, X, units=[0, 3], force=True)
    own = est.model_.prior.logits
    assert own.std() > 0.01  # it learned, or nothing would be shown
    assert torch.equal(smaller.model_.prior.logits, own[[1, 2, *range(4, 14)]])
    assert smaller.model_.posterior.size == 12


def test_units_of_a_group_with_one_on_cannot_be_taken_out_alone(X: Any) -> None:
    est = sv.DiscreteVAE(12, categories=4, hidden=(8,), training=sv.Training(steps=5, verbose=0)).fit(X)
    with pytest.raises(TypeError, match=r"units of DiscreteVAE come in groups of 4 .* none can be removed alone"):
        prune(est, X)


def test_labels_are_no_units_to_prune(X: Any) -> None:
    quick = sv.Training(steps=5, verbose=0)
    est = sv.SDLGMClassifier(variant="gen", features="distinct", cap=3, hidden=(8,), threshold=0.5, training=quick)
    est.fit(X, X[:, 18:21] > 7)
    with pytest.raises(TypeError, match="the units of SDLGMClassifier are the labels of y"):
        prune(est, X)
