"""Claims: the gain of a unit is its column's squared length, or the measured change of the output when it is off."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import sparsevae as sv
from sparsevae.exceptions import StorageError
from sparsevae.refinement.contributions import linear_gain, linear_map, measured_gain
from sparsevae.sampling.draw import Draw
from sparsevae.sampling.noise import Fresh

pytestmark = pytest.mark.filterwarnings("ignore::sparsevae.exceptions.SparsityWarning")
close = pytest.approx
X = np.random.default_rng(0).normal(size=(80, 6)).astype(np.float32)


def make(**changes: Any) -> Any:
    return sv.VSC(**{"n_components": 5, "hidden": (7,), "training": sv.Training(steps=3, verbose=0)} | changes)


def test_gains_by_hand() -> None:
    """x = (z1, z1 + 2 z2 + 1): |w|^2 is 2 and 4, and so is the measured gain of a linear decoder."""
    est = make(n_components=2, hidden=(), likelihood="fixed-gaussian", scale="none").fit([[1.0, -1.0], [-1.0, 1.0]])
    means, variances, gates = [[2.0, 0], [0, 1]], [[0.0, 0], [0, 0]], [[1.0, 0], [0, 1]]
    with torch.no_grad():
        est.model_.encoder[0].weight.copy_(torch.tensor([*means, *variances, *gates]))
        est.model_.encoder[0].bias.zero_()
        est.model_.decoder[0].weight.copy_(torch.tensor([[1.0, 0], [1, 2]]))
        est.model_.decoder[0].bias.copy_(torch.tensor([0.0, 1]))
    assert linear_gain(est.model_).tolist() == close([2, 4])
    with torch.no_grad():
        assert measured_gain(est.model_, torch.tensor([[1.0, 2.0], [3.0, -1.0]])).tolist() == close([2, 4])
        # the second unit is on in no row: it has the other's gain
        assert measured_gain(est.model_, torch.tensor([[1.0, -2.0], [3.0, -1.0]])).tolist() == close([2, 2])


def test_the_location_of_a_decoder_with_variances_is_its_first_half() -> None:
    est = make(decoder_hidden=(), likelihood="gaussian").fit(X)
    weight, bias = linear_map(est.model_)
    assert weight.shape == (6, 5)
    assert bias.shape == (6,)
    assert linear_gain(est.model_).tolist() == close((weight**2).sum(0).tolist())
    assert est.fitted_.gain is None  # exact, from the weights


def test_a_measured_gain_is_the_mean_change_by_the_mean_square_of_the_code() -> None:
    est = make(alpha=0.6).fit(X)
    x = est.scaling_(torch.tensor(X))
    with torch.no_grad():
        z = est.model_.encode(x).mode
        found = measured_gain(est.model_, x)
        for j in range(5):
            off = z.clone()
            off[:, j] = 0
            change = (est.model_.decode(z).mean - est.model_.decode(off).mean).square().sum()
            assert float(found[j]) == pytest.approx(float(change / z[:, j].square().sum()), rel=1e-4)
    assert torch.allclose(est.fitted_.gain, found, rtol=1e-4)  # of all 80 rows, in another order


def test_gains_are_saved_and_a_folder_without_them_ranks_by_gates(tmp_path: Path) -> None:
    est = make(alpha=0.6).fit(X)
    est.save(tmp_path / "new")
    again = sv.load(tmp_path / "new")
    assert torch.equal(again.fitted_.gain, est.fitted_.gain)
    assert (again.transform(X, max_active=2) != est.transform(X, max_active=2)).nnz == 0
    est.fitted_.gain = None
    est.save(tmp_path / "old")
    old = sv.load(tmp_path / "old")
    with torch.no_grad():
        logits = old.model_.encode(old.scaling_(torch.tensor(X))).logits.numpy()
    one = old.transform(X, max_active=1).toarray()
    on = logits.max(1) > 0
    assert np.array_equal((one != 0)[on].argmax(1), logits[on].argmax(1))


@pytest.mark.parametrize("gain", [torch.ones(4), torch.tensor([1.0, 2.0, -1.0, 1.0, 1.0])])
def test_damaged_gains_are_refused(tmp_path: Path, gain: torch.Tensor) -> None:
    est = make().fit(X)
    est.fitted_.gain = gain
    est.save(tmp_path)
    with pytest.raises(StorageError, match="gain to be 5 numbers, 0 or above"):
        sv.load(tmp_path)


def test_models_without_a_use_for_gains_measure_none() -> None:
    training = sv.Training(steps=2, verbose=0)
    for est in (sv.VAE(3, training=training), sv.DiscreteVAE(3, training=training)):
        assert est.fit(X).fitted_.gain is None
    texts = ["a b c", "b c d e", "a a", "e d c"] * 5
    assert sv.VSC(3, training=training).fit(texts).fitted_.gain is None


def test_in_training_the_decoder_sees_the_cap_s_largest_terms_of_every_fourth_row() -> None:
    """Terms |z_j| |w_j| with |w| = (1, 3, 2): of z = (3, 2, 1) they are 3, 6 and 2."""
    est = make(n_components=3, max_active=1, decoder_hidden=(), skip=False, likelihood="gaussian").fit(X)
    model, z = est.model_, torch.tensor([[3.0, 2.0, 1.0]]).repeat(6, 1)
    assert model.cap == 1
    with torch.no_grad():
        path = model.decoder[0]
        path.weight.copy_(torch.ones_like(path.weight) * torch.tensor([9.0, 1.0, 9.0]))  # of the variances too
        path.weight[:6] = torch.tensor([1.0, 3.0, 2.0]) / 6**0.5
    soft, hard = (Draw(Fresh(torch.Generator()), hard=h) for h in (False, True))
    assert model.shown(z, soft) is z  # after training
    model.train()
    assert model.shown(z, hard) is z
    cut = [0.0, 2.0, 0.0]
    whole = [3.0, 2.0, 1.0]
    assert model.shown(z, soft).tolist() == [cut, whole, whole, whole, cut, whole]
    model.cap = 3
    assert model.shown(z, soft) is z
    model.eval()


@pytest.mark.parametrize("cls", [sv.VSC, sv.PseudoVSC, sv.HSVAE])
def test_a_cap_of_the_constructor_changes_training_of_real_codes(cls: Any) -> None:
    training = sv.Training(steps=8, learning_rate=1e-2, verbose=0)
    models = [cls(5, hidden=(7,), training=training, max_active=k).fit(X).model_ for k in (None, 5, 1)]
    weights = [torch.cat([p.detach().flatten() for p in model.parameters()]) for model in models]
    assert torch.equal(weights[0], weights[1])  # a cap of all units is none
    assert not torch.equal(weights[0], weights[2])


def test_training_reports_the_code_that_the_cap_leaves() -> None:
    est = sv.VSC(10, code="gated", max_active=3, training=sv.Training(steps=20, verbose=0)).fit(X)
    assert est.history_[-1]["nonzeros"] == 3 == est.evaluate(X)["nonzeros_mode"]
    bits = sv.DiscreteVAE(10, alpha=0.6, max_active=2, training=sv.Training(steps=5, verbose=0)).fit(X)
    assert bits.history_[-1]["nonzeros"] <= 2


def test_the_kind_of_code_may_be_set_after_the_fit() -> None:
    more = {"decoder_hidden": (), "skip": False, "training": sv.Training(steps=20, verbose=0)}
    est = sv.VSC(5, likelihood="fixed-gaussian", **more).fit(X)
    for refine in (False, True, 2):
        expected = est.transform(X, code="thresholded", refine=refine)
        est.set_params(code="thresholded")
        found = est.transform(X, refine=refine)
        est.set_params(code=None)
        assert (found != expected).nnz == 0
        assert (found != est.transform(X, refine=refine)).nnz > 0
