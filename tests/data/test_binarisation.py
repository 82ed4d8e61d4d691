"""Binarisation: right in law, the same for the same seed, idempotent."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sparsevae.data import binarise

grey = hnp.arrays(np.uint8, hnp.array_shapes(min_dims=0, max_dims=3, max_side=6))
unit = hnp.arrays(np.float32, hnp.array_shapes(max_side=6), elements=st.floats(0, 1, width=32))


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64])
def test_the_mean_of_the_draws_is_the_intensity(dtype):
    levels = np.array([0, 1, 13, 128, 200, 254, 255])
    n = 20_000
    X = np.tile(levels.astype(np.uint8) if dtype == np.uint8 else (levels / 255).astype(dtype), (n, 1))
    p = levels / 255
    white = 255 if dtype == np.uint8 else 1
    error = binarise(X, seed=3).mean(0) / white - p
    assert (np.abs(error) <= 4 * np.sqrt(p * (1 - p) / n)).all()  # exact at 0 and 255


def test_pixels_are_drawn_independently():
    drawn = binarise(np.full((20_000, 4), 0.5), seed=0)
    assert np.abs(np.corrcoef(drawn.T) - np.eye(4)).max() < 4 / np.sqrt(20_000)


@given(X=grey | unit, seed=st.integers(0, 2**32))
def test_black_and_white_in_the_units_of_the_image_and_a_second_time_changes_nothing(X, seed):
    out = binarise(X, seed=seed)
    assert out.shape == X.shape
    assert out.dtype == np.uint8
    assert set(np.unique(out)) <= {0, 255 if X.size and X.max() > 1 else 1}
    np.testing.assert_array_equal(binarise(out, seed=seed + 1), out)
    np.testing.assert_array_equal(binarise(X, seed=seed), out)


def test_the_first_rows_do_not_depend_on_the_rows_that_follow():
    X = np.random.default_rng(0).random((9000, 3))
    np.testing.assert_array_equal(binarise(X)[:5000], binarise(X[:5000]))


def test_a_threshold_cuts_and_needs_no_seed():
    X = np.array([0, 127, 128, 255], dtype=np.uint8)
    for seed in (0, 1):
        np.testing.assert_array_equal(binarise(X, threshold=0.5, seed=seed), [0, 0, 255, 255])
    np.testing.assert_array_equal(binarise(X / 255, threshold=0.5), [0, 0, 1, 1])
    np.testing.assert_array_equal(binarise(np.array([True, False]), threshold=0.5), [1, 0])


def test_the_input_is_left_alone_and_so_is_the_global_state():
    X = np.full((3, 3), 100, dtype=np.uint8)
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    binarise(X)[:] = 7
    assert (X == 100).all()
    assert (np.random.get_state()[1] == before).all()  # noqa: NPY002


@pytest.mark.parametrize(
    "X", [np.array([0.0, 1.1]), np.array([-0.1]), np.array([np.nan, 0.5]), np.array([0, 255]), np.array(["a"])]
)
def test_what_is_no_intensity_is_refused(X):
    with pytest.raises((ValueError, TypeError), match="expected intensities"):
        binarise(X)


def test_dynamic_binarisation_is_pointed_to_the_training_loop():
    with pytest.raises(ValueError, match=r"Training\(binarise=True\)"):
        binarise(np.zeros(3), method="dynamic")


@pytest.mark.parametrize("threshold", [-0.1, 1.0, float("nan")])
def test_an_impossible_threshold_is_refused(threshold):
    with pytest.raises(ValueError, match="threshold must be None or lie in"):
        binarise(np.zeros(3), threshold=threshold)
