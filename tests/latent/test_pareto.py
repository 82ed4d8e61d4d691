"""Pareto k of importance weights: distributions of known tail, a plain form of the estimator, an exact log p(x)."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch
from torch import Tensor

import sparsevae as sv
from sparsevae.latent.bounds import bounds
from sparsevae.latent.model import LatentModel
from sparsevae.latent.pareto import HEAVY, Largest, heavy_tails, pareto_k, remark, tail_size
from sparsevae.latent.posteriors import GaussianPosterior
from sparsevae.latent.priors import StandardNormal
from sparsevae.likelihoods.gaussian import FixedGaussianData
from sparsevae.networks.dense import Linear

quiet = pytest.mark.filterwarnings("ignore::sparsevae.exceptions.SparsityWarning")


def k_of(log_w: Any, at_once: int = 16) -> Tensor:
    """k of log weights (K, B) that come a few at a time."""
    log_w = torch.as_tensor(log_w)
    largest = Largest(tail_size(len(log_w)) + 1)
    for few in log_w.split(at_once):
        largest.add(few)
        assert largest.count <= 4 * largest.n + at_once
    return pareto_k(largest.found())


def plainly(log_w: Any) -> float:
    """The same of one row, (K,), as Zhang and Stephens (2009) and Vehtari et al. (2024) write it down."""
    w = np.sort(np.exp(log_w - log_w.max()))
    n = math.ceil(min(0.2 * len(w), 3 * math.sqrt(len(w))))
    x = w[-n:] - w[-n - 1]
    m = 30 + int(math.sqrt(n))
    b = 1 / x[-1] + (1 - np.sqrt(m / (np.arange(1, m + 1) - 0.5))) / 3 / x[int(n / 4 + 0.5) - 1]
    k = np.log1p(-b[:, None] * x).mean(1)
    profile = n * (np.log(-b / k) - k - 1)
    mean = (b / np.exp(profile - profile[:, None]).sum(1)).sum()
    return float(n * np.log1p(-mean * x).mean() + 5) / (n + 10)


RNG = np.random.default_rng(0)


@pytest.mark.parametrize("k", [-0.5, 0.1, 0.3, 0.5, 0.7, 0.9])
def test_of_pareto_weights_k_is_near_the_truth(k: float) -> None:
    found = k_of(np.log(1 + scipy.stats.genpareto.ppf(RNG.random((4000, 100)), k)))
    assert float(found.mean()) == pytest.approx(k, abs=0.06)
    assert float(found.std()) < 0.15


def test_of_log_normal_weights_it_grows_with_their_spread() -> None:
    """Light tails all, but those of spread 3 are as heavy as 1,000 draws can tell."""
    light, heavy = (k_of(spread * RNG.normal(size=(1000, 100))) for spread in (0.3, 3))
    assert float((light > HEAVY).double().mean()) == 0
    assert float((heavy > HEAVY).double().mean()) > 0.9


def test_it_is_the_estimator_of_the_paper_whatever_comes_together() -> None:
    log_w = 2 * RNG.normal(size=(1000, 20)) - 700
    found = k_of(log_w)
    assert found.numpy() == pytest.approx([plainly(row) for row in log_w.T], abs=1e-9)
    order = RNG.permutation(20)[:7]
    assert torch.equal(k_of(log_w[:, order], at_once=1000), found[order])  # every row by itself


def test_it_is_not_known_of_a_tail_of_fewer_than_25_weights() -> None:
    assert (tail_size(120), tail_size(121), tail_size(1000)) == (0, 25, 95)
    equal, few = np.zeros(1000), np.where(np.arange(1000) < 24, RNG.random(1000), 0.0)
    lost = np.full(1000, -np.inf)
    assert bool(k_of(np.stack([equal, few, lost, np.full(1000, np.nan)], 1)).isnan().all())
    assert math.isnan(heavy_tails(np.full(3, np.nan), np.ones(3), 1000))
    assert remark(math.nan) == remark(0.01) == ""
    assert float(k_of(5000 * RNG.normal(size=(1000, 1)))) > 5  # weights that no double holds side by side


def test_weights_that_are_nearly_equal_are_not_called_heavy_for_the_form_of_their_tail() -> None:
    """Errors of nearly equal weights can be trusted; heavy tails leave less than half of the samples effective."""
    w = 1 + scipy.stats.genpareto.ppf(RNG.random((1000, 100)), 0.9)
    for share, heavy in ((1.0, True), (1e-5, False)):
        mixed = 1 - share + share * w
        k, effective = k_of(np.log(mixed)).numpy(), mixed.sum(0) ** 2 / (mixed**2).sum(0)
        assert (k > HEAVY).mean() > 0.7
        assert (heavy_tails(k, effective, 1000) > 0.7) is heavy
        assert heavy or heavy_tails(k, effective, 1000) == 0


def test_members_have_tails_of_their_own() -> None:
    log_w = torch.randn(2, 3, 1000, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    largest = Largest(tail_size(1000) + 1)
    for few in log_w.split(300, -2):
        largest.add(few)
    found = pareto_k(largest.found())
    assert torch.equal(found, torch.stack([torch.stack([k_of(each) for each in group]) for group in log_w]))


def deaf(scale: float) -> LatentModel:
    """A decoder that does not listen: the posterior is the prior N(0, 1) of two units, and q(z|x) is N(0, scale^2)."""
    encoder, decoder = Linear(3, 4), Linear(2, 3)
    with torch.no_grad():
        for each in (encoder, decoder):
            each.weight.zero_()
            each.bias.zero_()
        encoder.bias[2:] = 2 * math.log(scale)
    return LatentModel(encoder, GaussianPosterior(), decoder, FixedGaussianData(1.0), StandardNormal(2)).eval()


def test_a_posterior_too_narrow_by_far_is_told_by_k_where_the_error_tells_nothing() -> None:
    """Weights exp(|z|^2 (1/s^2 - 1) / 2), with |z|^2 exponential, are Pareto's with k = 1 - s^2; log p(x) is exact."""
    x = torch.linspace(-1, 1, 120).reshape(40, 3)
    exact = torch.distributions.Normal(0, 1).log_prob(x.double()).sum(-1)
    for scale in (0.25, 1.3):
        b = bounds(deaf(scale), x, 4000)
        z = (b.importance - exact) / b.standard_error
        if scale < 1:
            assert float(b.pareto_k.mean()) == pytest.approx(1 - scale**2, abs=0.1)
            assert float(z.min()) < -5
        else:
            assert float(b.pareto_k.max()) < 0.5
            assert float(z.abs().max()) < 4


@quiet
def test_a_bound_with_heavy_tails_warns_once_of_its_errors() -> None:
    X = RNG.normal(size=(60, 3)).astype(np.float32)
    training = sv.Training(steps=1, verbose=0)
    est = sv.VAE(2, hidden=(4,), likelihood="fixed-gaussian", training=training).fit(X)
    est.fitted_.model = deaf(0.25)
    with pytest.warns(
        RuntimeWarning, match=r"of \d\d% of 60 rows have heavy tails \(Pareto k above 0.7\).*n_samples"
    ) as seen:
        b = est.importance_bound(X)
    assert len(seen) == 1
    assert seen[0].filename == __file__
    assert b.pareto_k.shape == (60,)
    assert (b.pareto_k > HEAVY).mean() > 0.8
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isnan(est.importance_bound(X, n_samples=100).pareto_k).all()  # too few draws to know
        est.fitted_.model = deaf(1.3)
        assert est.importance_bound(X).pareto_k.max() < HEAVY
