"""Starts of a dictionary: gates open for their share of the rows, codes of the prior's size, atoms that reconstruct."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import sparsevae as sv
from sparsevae.latent.start import ATOMS, STARTS, Directions, filters

RNG = np.random.default_rng(0)
ATOMS_OF_X = np.linalg.qr(RNG.normal(size=(20, 6)))[0].T  # (6, 20), orthonormal
ON = RNG.random((800, 6)) < 0.2
X = ((ON * (2 + np.abs(RNG.normal(size=ON.shape)))) @ ATOMS_OF_X + 0.1 * RNG.normal(size=(800, 20)) + 1).astype(
    np.float32
)


def prepared(start: str | None, **more: object) -> sv.VSC:
    settings = {"alpha": 0.2, "likelihood": "fixed-gaussian", "scale": "none", "start": start, "hidden": (8,)}
    settings |= {"training": sv.Training(steps=600, verbose=0)}
    return sv.VSC(12, **settings | more).prepare(X)


def test_filters_by_hand() -> None:
    """Two rows of four open the gate; z is the projection over their root mean square."""
    x = torch.tensor([[4.0, 0.0], [2.0, 5.0], [0.0, 1.0], [-6.0, 0.0]])
    e = torch.tensor([[1.0, 0.0]])
    found = filters(Directions(e, e), x, 0.5)
    size = np.sqrt((4**2 + 2**2) / 2)
    assert float(found.size) == pytest.approx(size)
    np.testing.assert_allclose(found.code[:, 0], [4 / size, 2 / size, 0, 0], rtol=1e-6)
    logits = x @ found.gate.T - found.threshold
    assert (logits[:, 0] >= 0).tolist() == [True, True, False, False]


@pytest.mark.parametrize("start", STARTS[1:])
def test_every_gate_is_open_for_the_share_of_rows_that_the_prior_expects(start: str) -> None:
    Z = prepared(start).transform(X).toarray()
    share = (Z != 0).mean(0)
    assert np.all((share > 0.1) & (share < 0.3)), share
    assert 0.7 < np.sqrt((Z[Z != 0] ** 2).mean()) < 1.4


@pytest.mark.parametrize("start", ATOMS)
def test_codes_reconstruct_before_the_first_step(start: str) -> None:
    est = prepared(start)
    mse = ((est.reconstruct(X) - X) ** 2).mean()
    assert mse < 0.85 * X.var(0).mean()
    nothing = est.inverse_transform(np.zeros((1, 12), np.float32))
    np.testing.assert_allclose(nothing[0], X.mean(0), atol=1e-4)


def test_random_weights_stay_as_they_are_drawn() -> None:
    one, other = prepared("random"), prepared("random", alpha=0.4)
    for a, b in zip(one.model_.encoder.parameters(), other.model_.encoder.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_start_fills_the_dictionary() -> None:
    """Planted atoms, twice as many units: nearly all stay in use, and with random weights most die."""
    used = {}
    for start in ("random", "rows"):
        est = prepared(start, skip=start != "random").fit(X)
        share = (est.transform(X) != 0).mean(0)
        used[start] = int((np.asarray(share) > 0.01).sum())
    assert used["rows"] >= 6
    assert used["rows"] > used["random"]


@pytest.mark.parametrize("more", [{"skip": False}, {"alpha": 1.0}, {"likelihood": "spike-slab"}])
def test_what_cannot_start_is_refused(more: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="start='rows' needs gates"):
        prepared("rows", **more)
    prepared(None, **more)  # the default falls back to random weights


@pytest.mark.filterwarnings("ignore::sparsevae.exceptions.SparsityWarning")
def test_rows_that_are_all_equal_can_start() -> None:
    for start in ("rows", "kmeans", "subspaces", "transpose"):
        est = sv.VSC(6, start=start, training=sv.Training(steps=2, verbose=0)).fit(np.zeros((40, 4)))
        assert np.isfinite(est.score_samples(np.zeros((2, 4)))).all()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"decoder": nn.Identity(), "decoder_hidden": (3,)}, "decoder_hidden is for the library's decoder"),
    ],
)
def test_settings_that_own_networks_have_no_use_for_are_refused(more: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sv.VSC(12, **more).prepare(X)
