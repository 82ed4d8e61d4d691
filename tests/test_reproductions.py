"""What the reproductions stand on: results that are kept, and models trained side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import sparsevae as sv
from reproductions import asperti, jobs, pseudo_vsc, smiley
from reproductions.stack import fit_together

pytestmark = pytest.mark.filterwarnings("ignore::sparsevae.training.SparsityWarning")
X = np.random.default_rng(0).normal(size=(150, 16)).astype(np.float32)
CALLS: list[int] = []


def _square(number: int, device: str) -> dict[str, Any]:
    CALLS.append(number)
    return {"square": number**2}


def test_a_finished_job_is_not_run_again(tmp_path: Path) -> None:
    CALLS.clear()
    first = jobs.run(_square, [{"number": 2}, {"number": 3}], tmp_path)
    again = jobs.run(_square, [{"number": 3}, {"number": 4}], tmp_path, device="elsewhere")
    assert CALLS == [2, 3, 4]
    assert [r["square"] for r in first + again] == [4, 9, 9, 16]


def _settings(seed: int, **more: Any) -> sv.Training:
    return sv.Training(steps=40, batch_size=50, seed=seed, verbose=0, device="cpu", **more)


@pytest.mark.parametrize("network", ["dense", "conv"])
def test_the_first_of_a_stack_is_its_solo_run_without_noise(network: str) -> None:
    def make(seed: int) -> sv.VAE:
        return sv.VAE(3, noise=False, hidden=(8,), network=network, training=_settings(seed, kl_warmup=0.5))

    together = [make(0), make(1)]
    fit_together(together, X)
    alone = make(0).fit(X)
    for a, b in zip(together[0].model_.parameters(), alone.model_.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    assert not np.allclose(together[0].transform(X), together[1].transform(X))


def test_members_keep_their_own_weights_and_variances() -> None:
    group = [
        sv.BetaVAE(
            3, beta=beta, hidden=(8,), likelihood="fixed-gaussian", variance=v, training=_settings(0, kl_warmup=0.2)
        )
        for beta, v in ((1.0, 0.1), (50.0, 0.1), (1.0, 10.0))
    ]
    fit_together(group, X)
    kls = [est.evaluate(X)["kl"] for est in group]
    assert kls[0] > 2 * kls[1]
    assert kls[0] > 2 * kls[2]


def test_members_keep_their_own_alphas() -> None:
    group = [sv.VSC(4, alpha=a, hidden=(8,), training=_settings(0)) for a in (0.05, 0.9)]
    fit_together(group, X)
    counts = [est.evaluate(X)["nonzeros_drawn"] for est in group]
    assert counts[0] < counts[1]
    assert [float(est.model_.prior.logits[0]) for est in group] == pytest.approx([-2.944, 2.197], abs=1e-3)


def test_a_prior_that_cannot_be_stacked_says_so() -> None:
    with pytest.raises(TypeError, match="PseudoInputs cannot be stacked"):
        fit_together([sv.PseudoVSC(3, hidden=(8,), training=_settings(0))], X)


def test_the_variance_is_found_by_the_kl_alone() -> None:
    grid = [{"kl": kl, "variance": v} for kl, v in ((30.0, 0.01), (20.0, 0.04), (10.0, 0.16))]
    assert asperti.calibrate(grid, 15.0) == pytest.approx(0.08, rel=1e-3)
    with pytest.raises(ValueError, match="does not hold 40"):
        asperti.calibrate(grid, 40.0)


def test_the_law_looks_at_active_units_alone() -> None:
    found = asperti.law([{"var_mean": [0.9, 0.001], "mean_variance": [0.08, 0.5]}])
    assert found == {"worst": pytest.approx(0.02), "mean": pytest.approx(0.98), "units": 1}


def test_alpha_is_tuned_between_its_neighbours() -> None:
    runs = [{"nonzeros_drawn": n, "alpha": a} for n, a in ((1.0, 0.01), (4.0, 0.04))]
    assert pseudo_vsc.tuned(runs, 2.0) == pytest.approx(0.02)


def test_true_sources_have_the_best_scores() -> None:
    data = sv.data.load("smiley", n=1, n_test=2000)
    S, V = np.asarray(data.truth_test["S"]), np.asarray(data.truth_test["V"])
    found = smiley.scores(S * V, S, V)
    assert found["used"] == 18
    assert found["used_by_group"] == {"bowtie": 4, "hat": 6, "eyes": 3, "mouth": 5}
    assert found["best_match"] == pytest.approx(1)
    assert found["presence"] == pytest.approx(1)
