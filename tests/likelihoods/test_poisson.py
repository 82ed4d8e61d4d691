"""Claim: likelihood="poisson" gives true bounds on log p(x) of counts, takes whole numbers alone, and draws them."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.stats
import torch

import sparsevae as sv
from sparsevae import cli
from sparsevae.likelihoods.counts import PoissonData
from sparsevae.sampling.draw import Draw
from sparsevae.sampling.noise import Fresh

pytestmark = pytest.mark.filterwarnings("ignore::sparsevae.exceptions.SparsityWarning")

rng = np.random.default_rng(0)
TOPIC = rng.integers(0, 2, (300, 2))
X = rng.poisson(0.3 + TOPIC @ np.array([[4.0, 0.0, 1.0], [0.0, 2.0, 3.0]])).astype(float)


def fitted(cls: Any = sv.DiscreteVAE, n: int = 2, **own: Any) -> Any:
    training = sv.Training(steps=300, learning_rate=1e-2, verbose=0)
    return cls(n, hidden=(8,), likelihood="poisson", training=training, **own).fit(X)


def exact(est: Any, rows: np.ndarray) -> np.ndarray:
    """log p(x) as the sum over the four codes of two bits, by scipy's Poisson, (n,)."""
    codes = np.array(list(itertools.product([0.0, 1.0], repeat=2)), np.float32)
    rates = est.inverse_transform(codes).astype(float)
    with torch.no_grad():
        log_p = est.model_.prior.marginal(est.model_.encode).log_prob(torch.tensor(codes)).double().numpy()
    assert np.exp(log_p).sum() == pytest.approx(1)
    each = scipy.stats.poisson.logpmf(rows[:, None], rates).sum(-1) + log_p
    found: np.ndarray = np.logaddexp.reduce(each, axis=1)
    return found


def test_bounds_lie_below_the_exact_log_likelihood_and_climb_to_it() -> None:
    est = fitted()
    wanted = exact(est, X)
    assert est.score_meaning(X) == "bound"
    scores = est.score_samples(X, n_samples=200)
    found = est.importance_bound(X, n_samples=2000)
    assert scores.mean() < wanted.mean()
    assert (found.bound < wanted + 5 * found.standard_error + 1e-4).all()
    np.testing.assert_allclose(found.bound, wanted, atol=0.05)
    assert wanted.mean() - scores.mean() < 0.5  # and the bound says something
    assert wanted.mean() > scipy.stats.poisson.logpmf(X, X.mean(0)).sum(1).mean() + 0.5  # more than rates alone


def test_probabilities_of_counts_sum_to_one() -> None:
    est = fitted()
    every = np.array(list(itertools.product(range(25), repeat=3)), float)
    assert np.exp(exact(est, every)).sum() == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize(
    "form", [np.asarray, sp.csr_matrix, lambda X: X.astype(np.uint8)], ids=["array", "CSR", "8-bit"]
)
def test_counts_are_left_as_they_are(form: Any) -> None:
    training = sv.Training(steps=2, verbose=0)
    est = sv.VAE(2, hidden=(4,), likelihood="poisson", training=training).fit(form(X))
    assert est.in_force()["scale"] == "none"
    assert est.scaling_.log_det == 0
    assert (est.score_samples(form(X)) < 0).all()


@pytest.mark.parametrize(
    ("data", "own", "message"),
    [
        (
            X + 0.5,
            {},
            r'"poisson" needs whole numbers, 0 or above, got values from 0.5 to \d+.5, some of them fractions',
        ),
        (X - 1, {}, r'"poisson" needs whole numbers, 0 or above, got values from -1 to \d+\. Use likelihood='),
        (X, {"scale": "standard"}, "with likelihood='poisson' scale must be 'auto' or 'none'; got 'standard'"),
        (X, {"training": sv.Training(binarise=True)}, "training.binarise needs likelihood='bernoulli'"),
    ],
)
def test_what_are_no_counts_is_refused_before_training(data: Any, own: dict[str, Any], message: str) -> None:
    est = sv.VSC(2, **{"likelihood": "poisson", **own})
    with pytest.raises(ValueError, match=message):
        est.fit(data)
    assert not hasattr(est, "model_")


def test_a_fitted_model_refuses_to_score_fractions() -> None:
    est = fitted()
    for method in (est.score, est.evaluate, est.partial_fit):
        with pytest.raises(ValueError, match="whole numbers, 0 or above"):
            method(X + 0.5)


def test_samples_are_whole_numbers_with_the_model_s_means() -> None:
    est = fitted()
    drawn, means = est.sample(4000, noise=True), est.sample(4000)
    assert np.array_equal(drawn, drawn.round())
    assert drawn.min() >= 0
    np.testing.assert_allclose(drawn.mean(0), means.mean(0), atol=5 * drawn.std(0).max() / math.sqrt(4000))


@pytest.mark.parametrize("rate", [1e-9, 0.2, 1.0, 7.5, 300.0, 1e6])
def test_draws_follow_the_distribution(rate: float) -> None:
    """Against scipy's quantiles of the same uniforms: a draw is the inverse of the distribution function."""
    q = PoissonData()(torch.full((2000, 1), math.log(rate)))
    found = Draw(Fresh(torch.Generator().manual_seed(0)), hard=True)(q)
    u = Fresh(torch.Generator().manual_seed(0)).uniform(q.mean).double().numpy()
    assert np.array_equal(found.numpy(), scipy.stats.poisson.ppf(u, q.mean.double().numpy()).astype(np.float32))


def test_the_command_line_fits_and_evaluates_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "counts.npy", X)
    data, model = str(tmp_path / "counts.npy"), str(tmp_path / "model")
    fit = ["fit", "vsc", "-d", data, "-o", model, "--likelihood", "poisson", "--steps", "20", "--quiet", "--json"]
    assert cli.main(fit) == 0
    assert json.loads(capsys.readouterr().out)["likelihood"] == "poisson"
    assert cli.main(["evaluate", model, "-d", data, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["score_meaning"] == "bound"
    assert found["score"] < 0


@pytest.mark.parametrize("rate", [0.3, 10.0, 1e4, 1e6, 1e7])
def test_densities_of_large_counts_are_exact(rate: float) -> None:
    """Computed in float32 the three terms of log p, each about rate log rate, would lose up to 100 nats per row."""
    counts = np.random.default_rng(1).poisson(rate, (200, 50)).astype(np.float32)
    p = PoissonData()(torch.full((200, 50), math.log(rate)))
    own_rate = p.mean.double().numpy()  # log(rate) was rounded to float32
    expected = scipy.stats.poisson.logpmf(counts.astype(float), own_rate).sum(1)
    np.testing.assert_allclose(p.log_prob(torch.from_numpy(counts)).double().numpy(), expected, rtol=2e-6)
