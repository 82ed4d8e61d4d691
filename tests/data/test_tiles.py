"""Tiles: the image is what the truth says, counts and places are uniform, tiles keep apart."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparsevae.data import load
from sparsevae.data.sets import tiles


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 2**32),
    tile=st.integers(1, 5),
    room=st.integers(4, 8),
    most=st.integers(1, 4),
    data=st.data(),
)
def test_drawn_tiles_never_overlap_and_lie_inside(seed, tile, room, most, data):
    size, least = room * tile, data.draw(st.integers(0, most))
    d = tiles.make(30, 5, seed=seed, tile=tile, size=size, min_tiles=least, max_tiles=most)
    for X, truth in ((d.X, d.truth), (d.X_test, d.truth_test)):
        count, positions = truth["count"], truth["positions"]
        assert ((count >= least) & (count <= most)).all()
        np.testing.assert_array_equal(X.sum(1), count * tile * tile)  # an overlap would lose white pixels
        present = positions[..., 0] >= 0
        np.testing.assert_array_equal(present, np.arange(most) < count[:, None])
        assert (positions[~present] == -1).all()
        assert ((positions[present] >= 0) & (positions[present] <= size - tile)).all()


def test_the_truth_is_in_reading_order_and_redraws_the_image():
    d = load("tiles", n=500, n_test=0)
    np.testing.assert_array_equal(tiles.draw(d.truth["positions"]), d.X)
    for count, positions in zip(d.truth["count"], d.truth["positions"].tolist(), strict=True):
        assert positions[:count] == sorted(positions[:count])
    image = d.X[0].reshape(28, 28)
    row, column = d.truth["positions"][0, 0]
    assert image[row : row + 4, column : column + 4].all()


@pytest.mark.parametrize("overlap", [False, True])
def test_every_count_is_equally_likely(overlap):
    n = 30_000
    count = load("tiles", n=n, n_test=0, overlap=overlap).truth["count"]
    share = np.bincount(count, minlength=4) / n
    assert share[0] == 0
    assert np.abs(share[1:] - 1 / 3).max() < 4 * np.sqrt(2 / 9 / n)


def test_every_placement_apart_is_equally_likely():
    # two 1-pixel tiles on 2 x 2: six unordered pairs
    n = 12_000
    d = tiles.make(n, 0, size=2, tile=1, min_tiles=2, max_tiles=2)
    _, share = np.unique(d.X, axis=0, return_counts=True)
    assert len(share) == 6
    assert np.abs(share / n - 1 / 6).max() < 4 * np.sqrt(5 / 36 / n)


def test_with_overlap_allowed_tiles_do_overlap_and_places_are_independent():
    # two 1-pixel tiles on 2 x 2 coincide a quarter of the time
    n = 12_000
    d = tiles.make(n, 0, size=2, tile=1, min_tiles=2, max_tiles=2, overlap=True)
    assert abs((d.X.sum(1) == 1).mean() - 1 / 4) < 4 * np.sqrt(3 / 16 / n)


def test_the_seed_decides_every_byte_and_the_first_rows_do_not_depend_on_n():
    one, same, other = (tiles.make(300, 50, seed=seed) for seed in (5, 5, 6))
    assert one.X.tobytes() == same.X.tobytes()
    assert one.X_test.tobytes() == same.X_test.tobytes()
    assert one.X.tobytes() != other.X.tobytes()
    np.testing.assert_array_equal(tiles.make(700, 0, seed=5).X[:300], one.X)


def test_train_and_test_are_different_streams():
    d = tiles.make(200, 200)
    assert (d.X_test == d.X).all(1).mean() < 0.05


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tile": 29}, "tile must be between 1 and the image's size 28, got 29"),
        ({"min_tiles": 3, "max_tiles": 2}, "got 3 and 2"),
        ({"size": 8, "max_tiles": 5}, "only 4 tiles of 4 x 4 fit side by side into 8 x 8, got max_tiles=5"),
        ({"n": 0}, "n must be an integer above 0, got 0"),
        ({"n": 2.5}, "n must be an integer above 0, got 2.5"),
        ({"n": 50, "size": 19, "tile": 3, "min_tiles": 30, "max_tiles": 30}, "too crowded"),
    ],
)
def test_what_cannot_be_drawn_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        load("tiles", **options)
