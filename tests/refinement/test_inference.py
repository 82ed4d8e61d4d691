"""Claims: steps of inference never lower the measured bound of a row, raise its mean, and know no other rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import sparsevae as sv
from sparsevae.inputs.batch import Batch
from sparsevae.refinement.inference import infer, measured_bound

pytestmark = pytest.mark.filterwarnings("ignore::sparsevae.exceptions.SparsityWarning")
rng = np.random.default_rng(0)
X = (rng.normal(size=(90, 4)) @ rng.normal(size=(4, 20))).astype(np.float32)
BITS = (X > 0).astype(np.uint8)
MODELS: dict[str, tuple[Any, dict[str, Any]]] = {
    "VSC": (sv.VSC, {"alpha": 0.3}),
    "VSC, linear, of bits": (sv.VSC, {"alpha": 0.3, "decoder_hidden": (), "likelihood": "bernoulli"}),
    "PseudoVSC": (sv.PseudoVSC, {"pseudo_inputs": 3}),
    "HSVAE": (sv.HSVAE, {"alpha": 0.5, "beta": 0.5}),
    "VAE": (sv.VAE, {}),
    "SDLGM": (sv.SDLGM, {"cap": 4}),
    "SDLGM, distinct": (sv.SDLGM, {"cap": 4, "features": "distinct"}),
    "DiscreteVAE": (sv.DiscreteVAE, {"gradient": "rloo"}),
}


def fitted(name: str) -> tuple[Any, Any]:
    cls, more = MODELS[name]
    rows = BITS if more.get("likelihood") == "bernoulli" else X
    training = sv.Training(steps=120, learning_rate=1e-2, verbose=0)
    return cls(16, hidden=(24,), training=training, **more).fit(rows), rows


def dense(Z: Any) -> Any:
    return Z.toarray() if hasattr(Z, "toarray") else Z


@pytest.mark.parametrize("name", MODELS)
def test_no_row_s_bound_falls_and_the_mean_rises(name: str) -> None:
    est, rows = fitted(name)
    model, x = est.model_, est.scaling_(torch.tensor(rows, dtype=torch.float32))
    with torch.no_grad():
        start = model.read(Batch(x))
        found = infer(model, x, 8, seed=3)
        before, after = (measured_bound(model, x, raw, 3) for raw in (start, found))
        assert (after >= before).all()
        assert after.mean() > before.mean()
        changed = (found != start).any(1)
        assert changed.any()
        fresh = [measured_bound(model, x, raw, 4).mean() for raw in (start, found)]  # noise that chose nothing
        assert fresh[1] > fresh[0]
    assert all(p.grad is None for p in model.parameters())
    plain, fine = dense(est.transform(rows)), dense(est.transform(rows, refine=8))
    assert fine.shape == plain.shape
    assert not np.array_equal(fine, plain)
    assert np.array_equal(fine, dense(est.transform(rows, refine=8)))


@pytest.mark.parametrize("name", ["VSC", "VAE", "DiscreteVAE"])
def test_codes_do_not_depend_on_order_or_on_other_rows(name: str) -> None:
    est, rows = fitted(name)
    whole, order = dense(est.transform(rows, refine=6)), rng.permutation(len(rows))
    assert np.array_equal(dense(est.transform(rows[order], refine=6)), whole[order])
    assert np.array_equal(dense(est.transform(rows[5:6], refine=6)), whole[5:6])


@pytest.mark.parametrize("units", [3, 16])
def test_narrow_decoders_refine_a_row_by_itself_too(units: int) -> None:
    training = sv.Training(steps=60, verbose=0)
    est = sv.VAE(units, hidden=(24,), decoder_hidden=(5,), skip=True, training=training).fit(X[:, :7])
    whole, order = est.transform(X[:, :7], refine=True), rng.permutation(len(X))
    assert np.array_equal(est.transform(X[order, :7], refine=True), whole[order])
    assert np.array_equal(est.transform(X[13:14, :7], refine=True), whole[13:14])


def test_a_cap_holds_for_refined_codes_of_a_deep_decoder() -> None:
    est, rows = fitted("VSC")
    whole, two = (dense(est.transform(rows, refine=True, max_active=k)) for k in (None, 2))
    assert np.array_equal((two != 0).sum(1), np.minimum((whole != 0).sum(1), 2))
    assert np.array_equal(two[two != 0], whole[two != 0])


@pytest.mark.parametrize("wrong", [-1, 2.5, "yes", None])
def test_what_is_no_number_of_steps_is_refused(wrong: Any) -> None:
    est = sv.VAE(3, training=sv.Training(steps=2, verbose=0)).fit(X)
    with pytest.raises(ValueError, match="refine must be True, False or a number of steps"):
        est.transform(X, refine=wrong)


def test_models_without_a_bound_have_nothing_to_refine() -> None:
    est = sv.CodeClassifier(3, training=sv.Training(steps=2, verbose=0)).fit(X, rng.integers(0, 2, 90))
    with pytest.raises(ValueError, match=r"refine needs p\(x\|z\) and p\(z\), and CodeClassifier has none"):
        est.transform(X, refine=True)
