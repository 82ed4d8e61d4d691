"""Digit canvases: the picture is what the truth says, and a constant guess has the error of the closed form."""

import os
from pathlib import Path

import numpy as np
import pooch
import pytest

from sparsevae.data import Dataset, info, load
from sparsevae.data.sets import digit_canvas as counting

REAL = Path(os.environ.get("SPARSEVAE_DATA", "nowhere")) / "mnist"


def small(n=200, n_test=100, **options):
    return load("digit-canvas", n=n, n_test=n_test, source="digits", **options)


def columns(X, count):
    """The pictures of every column, (n, count, 64)."""
    return X.reshape(len(X), 8, count, 8).transpose(0, 2, 1, 3).reshape(len(X), count, 64)


@pytest.mark.parametrize("count", [1, 3, 5])
def test_every_column_shows_its_digit_from_its_own_split_or_nothing(count):
    data, digits = small(columns=count), load("digits")
    assert data.image_shape == (8, 8 * count)
    for X, truth, images, labels in (
        (data.X, data.truth, digits.X, digits.y),
        (data.X_test, data.truth_test, digits.X_test, digits.y_test),
    ):
        known = {}
        for image, label in zip(images, labels, strict=True):
            known.setdefault(image.tobytes(), set()).add(int(label))
        for pictures, seen in zip(columns(X, count), truth["digits"], strict=True):
            for picture, digit in zip(pictures, seen, strict=True):
                assert digit in known[picture.tobytes()] if digit >= 0 else not picture.any()
        assert X.dtype == np.uint8


def test_counts_count_the_digits_that_are_seen():
    truth = small().truth
    for digit in range(10):
        np.testing.assert_array_equal(truth["counts"][:, digit], (truth["digits"] == digit).sum(1))
    np.testing.assert_array_equal(truth["counts"].sum(1), (truth["digits"] >= 0).sum(1))


@pytest.mark.parametrize(("blank", "expected"), [(1 / 11, 0.413), (0.5, 0.238)])
def test_the_error_of_the_constant_mean_is_that_of_the_binomial(blank, expected):
    p = (1 - blank) / 10
    assert 5 * p * (1 - p) == pytest.approx(expected, abs=6e-4)
    counts = small(n=20_000, n_test=0, blank=blank).truth["counts"]
    errors = ((counts - counts.mean(0)) ** 2).mean(1)
    assert errors.mean() == pytest.approx(5 * p * (1 - p), abs=4 * errors.std() / np.sqrt(len(errors)))


def test_all_digits_and_all_their_images_are_equally_likely():
    data = small(n=20_000, n_test=0, columns=1, blank=0.0)
    share = data.truth["counts"].mean(0)
    assert np.abs(share - 0.1).max() < 4 * np.sqrt(0.09 / 20_000)
    digits = load("digits")
    zeros = len(np.unique(digits.X[digits.y == 0], axis=0))
    shown, times = np.unique(data.X[data.truth["digits"][:, 0] == 0], axis=0, return_counts=True)
    assert len(shown) == zeros
    mean = times.sum() / zeros
    assert times.var() == pytest.approx(mean, rel=4 * np.sqrt(2 / zeros))  # as of a Poisson law


def test_blank_goes_from_never_to_always():
    assert (small(blank=0.0).truth["digits"] >= 0).all()
    assert not small(blank=1.0).X.any()


def test_the_seed_decides_and_the_first_rows_do_not_depend_on_n():
    one, more, other = small(n=20), small(n=200), small(n=20, seed=1)
    np.testing.assert_array_equal(one.X, more.X[:20])
    np.testing.assert_array_equal(one.X_test, more.X_test)
    assert one.X.tobytes() != other.X.tobytes()


def test_another_rate_of_blanks_covers_the_same_digits():
    few, many = small(blank=0.2).truth["digits"], small(blank=0.8).truth["digits"]
    both = (few >= 0) & (many >= 0)
    np.testing.assert_array_equal(few[both], many[both])
    assert ((many >= 0) <= (few >= 0)).all()


def test_without_test_canvases_there_are_none():
    data = small(n_test=0)
    assert data.X_test is None
    assert data.truth_test == {}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n": 0}, "n must be an integer above 0, got 0"),
        ({"n": 2.5}, "n must be an integer above 0, got 2.5"),
        ({"n_test": -1}, "n_test must be an integer, 0 or above, got -1"),
        ({"columns": 0}, "columns must be an integer above 0, got 0"),
        ({"blank": 1.1}, "blank must be a probability, from 0 to 1, got 1.1"),
        ({"blank": float("nan")}, "blank must be a probability"),
    ],
)
def test_impossible_canvases_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        small(**options)


def test_an_unknown_source_meets_the_list():
    with pytest.raises(ValueError, match="source must be one of mnist, digits; got 'letters'"):
        load("digit-canvas", source="letters")


def test_without_mnist_the_error_offers_the_embedded_digits(tmp_path, monkeypatch):
    def fail(*_, **__):
        raise OSError("offline")

    monkeypatch.delenv("SPARSEVAE_DATA", raising=False)
    monkeypatch.setenv("SPARSEVAE_CACHE", str(tmp_path))
    monkeypatch.setattr(pooch, "retrieve", fail)
    with pytest.raises(FileNotFoundError, match=r"mnist is not on this machine.*source='digits'"):
        load("digit-canvas")


@pytest.mark.parametrize("labels", [range(9), range(1, 10), range(11), []])
def test_images_that_are_not_of_all_digits_are_refused(labels, monkeypatch):
    """Other digits would stand for those that are not there."""
    X, y = np.zeros((len(labels), 64), np.uint8), np.array(labels, np.uint8)
    few = Dataset("few", X=X, y=y, X_test=X, y_test=y, image_shape=(8, 8))
    monkeypatch.setitem(counting.SOURCES, "mnist", lambda: few)
    with pytest.raises(ValueError, match=r"few: expected images of all digits from 0 to 9, got those of \["):
        load("digit-canvas", n=3, n_test=1)


@pytest.mark.skipif(not REAL.is_dir(), reason="needs $SPARSEVAE_DATA/mnist")
def test_canvases_of_mnist_have_the_paper_s_sizes():
    data, about = load("digit-canvas"), info("digit-canvas")
    assert (about.rows, about.rows_test, about.features) == (len(data.X), len(data.X_test), data.X.shape[1])
    assert (data.X.shape, data.X_test.shape, data.image_shape) == ((5000, 3920), (1000, 3920), (28, 140))
    halves = data.X.reshape(5000, 28, 5, 28).any(axis=(1, 3))
    np.testing.assert_array_equal(halves, data.truth["digits"] >= 0)
