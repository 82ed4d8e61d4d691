"""Claims: a model may leave out p(x|z) and p(z); what needs them is then not there, everything else is."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from by_hand import Noise, fitted, set_linear
from torch import Generator, Tensor
from torch.distributions import Distribution

import sparsevae as sv
from sparsevae.analysis.audit import audit
from sparsevae.estimator.assemble import Build, DataSpec, decoder_of, encoder_of, sizes_of
from sparsevae.estimator.fields import Units
from sparsevae.latent.bounds import bounds
from sparsevae.latent.model import LatentModel
from sparsevae.latent.objective import Objective, kl, nll
from sparsevae.latent.posteriors import PointPosterior
from sparsevae.likelihoods.base import Likelihood
from sparsevae.parameters import parameters
from sparsevae.sampling.draw import Draw
from sparsevae.testing import check_model


class SquaredError(Distribution):
    """An error with the face of a distribution: log_prob is -|x - mean|^2, and no density."""

    arg_constraints: ClassVar = {}

    def __init__(self, mean: Tensor) -> None:
        self.own_mean = mean
        super().__init__(mean.shape[:-1], mean.shape[-1:], validate_args=False)

    @property
    def mean(self) -> Tensor:
        return self.own_mean

    def log_prob(self, value: Tensor) -> Tensor:
        return -(value - self.own_mean).square().sum(-1)


class Decoded(Likelihood):
    """raw = the decoded x itself."""

    def forward(self, raw: Tensor) -> Distribution:
        return SquaredError(raw)


@parameters
class Autoencoder(Units, sv.SparseCoder):
    """x -> z -> x by two networks, |x - decode(encode(x))|^2."""

    decodes: ClassVar[bool] = True
    has_bound: ClassVar[bool] = False

    def build(self, data: DataSpec, weights: Generator | None) -> Build:
        n = int(self.n_components)
        sizes = sizes_of(self, data, n, n, data.input.width)
        encoder, decoder = (network(self, sizes, weights) for network in (encoder_of, decoder_of))
        return Build(LatentModel(encoder, PointPosterior(), decoder, Decoded(), None, n), Objective(nll, kl))


X = np.random.default_rng(0).normal(size=(300, 2)) @ np.random.default_rng(1).normal(size=(2, 6))
TRAINING = sv.Training(steps=800, learning_rate=1e-2, verbose=0)


def test_its_linear_code_keeps_as_much_as_principal_components() -> None:
    est = fitted(Autoencoder(2, hidden=(), scale="none", training=TRAINING), X)
    assert np.square(est.reconstruct(X) - X).mean() < 1e-3 * X.var()
    assert est.history_.names() == ["step", "epoch", "loss", "nll_x", "active_units", "nonzeros"]
    found = est.evaluate(X)
    assert found["mse"] == pytest.approx(np.square(est.reconstruct(X) - X).mean(), rel=1e-5)
    assert "score" not in found


def test_by_hand() -> None:
    """z = x_1 - x_2 + 1, decoded as (z, -2 z)."""
    rows = [[1.0, -1.0], [-1.0, 1.0], [0.5, 2.0]]
    training = sv.Training(steps=1, verbose=0, device="cpu")
    est = fitted(Autoencoder(1, hidden=(), scale="none", training=training), rows)
    set_linear(est.model_.encoder[0], [[1.0, -1.0]], [1.0])
    set_linear(est.model_.decoder[0], [[1.0], [-2.0]], [0.0, 0.0])
    assert est.transform(rows).tolist() == [[3.0], [-1.0], [-0.5]]
    assert est.inverse_transform([[3.0]]).tolist() == [[3.0, -6.0]]
    loss, terms = est.fitted_.objective(est.model_(torch.tensor(rows), Draw(Noise(), hard=False)))
    assert terms["nll_x"].item() == pytest.approx(((2**2 + 5**2) + (0 + 1) + (1 + 1)) / 3)
    assert loss.item() == terms["nll_x"].item()


@pytest.mark.parametrize(
    "name", ["score_samples", "score", "score_meaning", "importance_bound", "sample", "draw_codes"]
)
def test_what_needs_a_likelihood_and_a_prior_is_not_there(name: str) -> None:
    assert not hasattr(Autoencoder(2), name)


def test_it_bounds_nothing_and_is_not_audited() -> None:
    est: Any = fitted(Autoencoder(2, training=sv.Training(steps=2, verbose=0)), X)
    with pytest.raises(ValueError, match=r"needs a prior for each latent variable: z has none"):
        bounds(est.model_, torch.zeros(3, 6), 2)
    with pytest.raises(AssertionError, match="check_model needs a prior for each latent variable: z has none"):
        check_model(est.model_, torch.eye(6)[:3])
    with pytest.raises(TypeError, match="Autoencoder has none"):
        audit(est, X)


def test_it_is_saved_and_loaded_as_every_model(tmp_path: Path) -> None:
    est = fitted(Autoencoder(2, training=sv.Training(steps=5, verbose=0)), X)
    est.save(tmp_path / "model")
    again = sv.load(tmp_path / "model", cls=Autoencoder)
    assert np.array_equal(again.transform(X), est.transform(X))
    assert np.array_equal(again.reconstruct(X), est.reconstruct(X))
