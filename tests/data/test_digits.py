"""The embedded digits."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

from sparsevae.data import load


def test_train_and_test_together_are_scikit_learns_digits_on_a_scale_of_255():
    data = load("digits")
    levels, labels = load_digits(return_X_y=True)
    ours = np.column_stack([np.vstack([data.X, data.X_test]), np.hstack([data.y, data.y_test])])
    theirs = np.column_stack([np.rint(levels * 255 / 16), labels])
    assert ours.shape == theirs.shape
    np.testing.assert_array_equal(np.unique(ours, axis=0), np.unique(theirs, axis=0))
    assert data.X.dtype == np.uint8
    assert (data.X.min(), data.X.max()) == (0, 255)


@pytest.mark.parametrize("fraction", [0.1, 0.2, 0.5])
def test_every_class_gives_the_same_part_to_the_test_set(fraction):
    data = load("digits", test_fraction=fraction)
    total = np.bincount(data.y) + np.bincount(data.y_test)
    assert np.abs(np.bincount(data.y_test) - fraction * total).max() <= 0.5


def test_the_seed_decides_the_split():
    one, same, other = (load("digits", seed=seed) for seed in (1, 1, 2))
    assert one.X.tobytes() == same.X.tobytes()
    assert one.X.tobytes() != other.X.tobytes()


def test_without_a_test_set_there_is_none():
    data = load("digits", test_fraction=0)
    assert data.X.shape == (1797, 64)
    assert data.X_test is None
    assert data.y_test is None


@pytest.mark.parametrize("fraction", [-0.1, 1.0, float("nan")])
def test_an_impossible_fraction_is_refused(fraction):
    with pytest.raises(ValueError, match=r"test_fraction must be a number in \[0, 1\)"):
        load("digits", test_fraction=fraction)
