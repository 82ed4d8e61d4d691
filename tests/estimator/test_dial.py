"""The dial: the asked number of non-zeros, found in one run."""

from typing import Any

import numpy as np
import pytest

import sparsevae as sv

X = sv.data.load("digits").X[:800]
TEST = sv.data.load("digits").X_test


@pytest.mark.parametrize("target", [3.0, 8.0])
def test_codes_have_the_asked_number_of_non_zeros(target: float) -> None:
    est = sv.VSC(40, target_active=target, hidden=(100,), training=sv.Training(steps=1200, verbose=0)).fit(X)
    found = float(np.mean((est.transform(TEST) != 0).sum(1)))
    assert found == pytest.approx(target, rel=0.1)


def test_a_target_that_is_not_reached_is_told() -> None:
    with pytest.warns(sv.SparsityWarning, match=r"target_active=30: codes have .* non-zeros in the mean\. Try more"):
        sv.VSC(40, target_active=30, hidden=(8,), training=sv.Training(steps=20, verbose=0)).fit(X)


@pytest.mark.parametrize(
    ("cls", "more", "message"),
    [
        (sv.VSC, {"target_active": 10}, r"target_active must be below n_components, 10; got 10"),
        (sv.VSC, {"target_active": 0}, r"target_active must be a number above 0 or None, got 0"),
        (sv.SDLGM, {"cap": 4, "target_active": 4}, r"target_active must be below cap=4, got 4"),
        (sv.DiscreteVAE, {"categories": 5, "target_active": 2}, r"target_active is for independent bits"),
        (sv.VSC, {"max_active": 3, "target_active": 3}, r"target_active must be below max_active=3, got 3"),
        (sv.VSC, {"alpha": 1, "target_active": 2}, r"alpha=1 leaves all units on"),
        (sv.VSC, {"target_active": 2, "training": sv.Training(kl_warmup=0.5)}, r"finds the KL weights itself"),
    ],
)
def test_targets_that_cannot_be(cls: Any, more: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cls(10, **more).fit(X)
