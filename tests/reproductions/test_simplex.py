"""Claim: sparsemax is the projection onto the simplex, and its loss has exactly the gradient it says."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import approx_fprime, minimize

from reproductions.simplex import sparsemax, sparsemax_loss

SCORES = arrays(np.float64, 4, elements=st.floats(-3, 3).map(lambda x: round(x, 3)))
TARGETS = arrays(np.float64, 4, elements=st.integers(0, 3).map(float)).filter(lambda y: y.sum() > 0)


def by_supports(z: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The nearest of all points that are the projection onto some face of the simplex."""
    faces = [list(s) for k in range(1, len(z) + 1) for s in combinations(range(len(z)), k)]
    points = []
    for face in faces:
        p = np.zeros_like(z)
        p[face] = z[face] - (z[face].sum() - 1) / len(face)
        if (p >= 0).all():
            points.append(p)
    return min(points, key=lambda p: np.sum((p - z) ** 2))


@settings(deadline=None, max_examples=200)
@given(SCORES)
def test_no_face_of_the_simplex_holds_a_nearer_point(z: np.ndarray[Any, Any]) -> None:
    np.testing.assert_allclose(sparsemax(z), by_supports(z), atol=1e-12)


@pytest.mark.slow
@settings(deadline=None, max_examples=200)
@given(SCORES)
def test_the_conditions_of_karush_kuhn_and_tucker_hold(z: np.ndarray[Any, Any]) -> None:
    # p - z + tau = mu with mu >= 0, p >= 0, mu p = 0 and sum p = 1
    p = sparsemax(z)
    assert p.sum() == pytest.approx(1, abs=1e-12)
    assert (p >= 0).all()
    tau = (z - p)[p > 0]
    assert np.ptp(tau) < 1e-12
    assert (z[p == 0] <= tau[0] + 1e-12).all()


def test_a_solver_of_quadratic_programs_finds_the_same_point() -> None:
    for z in np.random.default_rng(0).normal(size=(10, 6)):
        found = minimize(
            lambda p, z=z: np.sum((p - z) ** 2),
            np.full(6, 1 / 6),
            method="SLSQP",
            bounds=[(0, 1)] * 6,
            constraints={"type": "eq", "fun": lambda p: p.sum() - 1},
            options={"ftol": 1e-14},
        )
        np.testing.assert_allclose(sparsemax(z), found.x, atol=1e-6)


def test_by_hand() -> None:
    np.testing.assert_allclose(
        sparsemax(np.array([[1.0, 0.5, -3.0], [5.0, 0.0, 0.0], [2.0, 2.0, 2.0], [0.2, 0.3, 0.5]])),
        [[0.75, 0.25, 0], [1, 0, 0], [1 / 3, 1 / 3, 1 / 3], [0.2, 0.3, 0.5]],
        atol=1e-15,
    )


@pytest.mark.parametrize("shift", [1e8, -1e8, 1e300])
def test_large_scores_lose_nothing(shift: float) -> None:
    z = np.array([1.0, 0.5, -3.0])
    expected = [0.75, 0.25, 0.0] if abs(shift) < 1e9 else [1 / 3] * 3  # 1e300 + 1 is 1e300
    np.testing.assert_allclose(sparsemax(z + shift), expected, atol=1e-7)


def test_leading_dimensions_are_rows() -> None:
    z = np.random.default_rng(0).normal(size=(2, 3, 4))
    np.testing.assert_array_equal(sparsemax(z), np.stack([sparsemax(z[0]), sparsemax(z[1])]))


@settings(deadline=None, max_examples=100)
@given(SCORES, TARGETS)
def test_the_gradient_is_that_of_the_loss(z: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> None:
    q = (y / y.sum())[None]
    step = 1e-6  # the loss is quadratic between kinks of its gradient, which is continuous: the error is of this order
    numeric = approx_fprime(z, lambda v: sparsemax_loss(v[None], q)[0][0], step)
    np.testing.assert_allclose(sparsemax_loss(z[None], q)[1][0], numeric, atol=2 * step)


@settings(deadline=None, max_examples=100)
@given(SCORES, TARGETS)
def test_the_loss_is_the_difference_of_two_distances_and_zero_only_on_target(
    z: np.ndarray[Any, Any], y: np.ndarray[Any, Any]
) -> None:
    q = y / y.sum()
    p = sparsemax(z)
    loss = sparsemax_loss(z[None], q[None])[0][0]
    assert loss == pytest.approx(np.sum((q - z) ** 2) / 2 - np.sum((p - z) ** 2) / 2, abs=1e-9)
    assert loss >= np.sum((p - q) ** 2) / 2 - 1e-12  # strong convexity: never below half the squared distance
    assert sparsemax_loss(q[None], q[None])[0][0] == pytest.approx(0, abs=1e-12)


def test_for_one_class_the_loss_is_zero_from_a_margin_of_one() -> None:
    loss, slope = sparsemax_loss(np.array([[2.0, 1.0, 0.0], [2.0, 1.1, 0.0]]), np.array([[1.0, 0.0, 0.0]] * 2))
    assert loss[0] == 0
    assert not slope[0].any()
    assert loss[1] > 0
