"""VSC with log-normal slabs: codes without negative values, from the first step on and after a round trip."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sparsevae as sv
from sparsevae.distributions.spike_slab import LogNormalSpikeSlab

pytestmark = pytest.mark.filterwarnings("ignore::sparsevae.exceptions.SparsityWarning")
X = sv.data.load("digits").X


def model(steps: int = 100, **own: Any) -> Any:
    return sv.VSC(24, alpha=0.2, hidden=(32,), training=sv.Training(steps=steps, verbose=0), **own)


def test_codes_draws_and_samples_are_not_negative() -> None:
    """With N(0, 1) slabs draws and means are."""
    est = model(slab="log-normal").fit(X)
    plain = model().fit(X)
    values = {
        "codes": est.transform(X).data,
        "gated": est.transform(X, code="gated").data,
        "draws": est.draw_codes(X[:50]),
        "slab": est.posterior_means(X)["slab"],
    }
    assert {name: bool(z.min() >= 0 and z.max() > 0.5) for name, z in values.items()} == dict.fromkeys(values, True)
    assert plain.draw_codes(X[:50]).min() < 0
    assert plain.posterior_means(X)["slab"].min() < 0
    assert isinstance(est.model_.encode(est.scaling_(est.model_.encoder.linear.weight[:3])), LogNormalSpikeSlab)
    assert np.isfinite(est.score_samples(X[:20])).all()
    assert est.sample_like(X[:1], 3).shape == (3, X.shape[1])


def test_a_dictionary_of_log_normal_codes_begins_at_rows() -> None:
    """Before the first step: gates are open for the prior's share of the rows, and codes rebuild more than the mean."""
    est = model(slab="log-normal").prepare(X)
    Z = est.transform(X)
    assert (Z.toarray() > 0).mean() == pytest.approx(0.2, abs=0.01)
    error = ((est.inverse_transform(Z) - X) ** 2).sum()
    assert error < 0.75 * ((X - X.mean(0)) ** 2).sum()


def test_stored_codes_come_back(tmp_path: Path) -> None:
    est = model(20, slab="log-normal").fit(X)
    est.save(tmp_path / "m")
    again = sv.load(tmp_path / "m")
    assert again.slab == "log-normal"
    np.testing.assert_array_equal(again.transform(X).toarray(), est.transform(X).toarray())


@pytest.mark.parametrize("more", [{"alpha": 1.0}, {"patterns": 3}])
def test_what_log_normal_slabs_cannot_be_combined_with_is_refused(more: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"slab='log-normal' is for alpha below 1 and patterns=0; got"):
        model(slab="log-normal").set_params(**more).fit(X)
