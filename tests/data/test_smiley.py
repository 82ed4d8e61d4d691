"""Smiley: sources with the stated law, a drawing that is a function of them, and the authors' images."""

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparsevae.data import load, smiley

FILE = Path(os.environ.get("SPARSEVAE_DATA", "")) / "vsc-smiley" / "smily_sparse_dataset_test_Alpha05.mat"
COLUMN = {name: i for i, name in enumerate(smiley.SOURCES)}


def sources(**values):
    """S and V of one face; an attribute is on when one of its sources is named, as hat_y=1.5."""
    S, V = np.zeros((1, 18), np.uint8), np.zeros((1, 18))
    for name, value in values.items():
        group, part = name.split("_", 1)
        S[:, smiley.GROUPS[group]] = 1
        V[0, COLUMN[f"{group}.{part}"]] = value
    return S, V


def face(**values):
    return smiley.draw(*sources(**values)).reshape(32, 32).astype(bool)


HEAD = face()


def corners(mask):
    """First and last row, first and last column, counted from 1 as the paper's code does."""
    rows, columns = np.flatnonzero(mask.any(1)) + 1, np.flatnonzero(mask.any(0)) + 1
    return rows[0], rows[-1], columns[0], columns[-1]


def test_the_head_is_a_disc_of_radius_ten_in_the_middle():
    rows, columns = np.mgrid[1:33, 1:33]
    np.testing.assert_array_equal(HEAD, (rows - 16.5) ** 2 + (columns - 16.5) ** 2 <= 100)


def test_the_eyes_are_two_black_discs_four_pixels_from_the_middle():
    rows, columns = np.mgrid[1:33, 1:33]
    black = HEAD & ~face(eyes_y=0)
    left = (rows - 14) ** 2 + (columns - 12.5) ** 2 <= 4
    np.testing.assert_array_equal(black, left | left[:, ::-1])


def test_the_mouth_is_a_black_box_and_two_corners_on_either_side():
    black = HEAD & ~face(mouth_curl=-1)
    box = np.zeros_like(black)
    box[20:23, 13:18] = True  # rows 21..23, columns 14..18
    box[20, [12, 18]] = True  # one column out: row 22 - 1
    box[20, [11, 19]] = True  # two columns out: row round(22 - 1.4)
    np.testing.assert_array_equal(black, box)


def test_the_hat_is_a_brim_and_a_crown_that_stands_on_it():
    white = face(hat_y=-1.5) & ~HEAD  # brim middle at row 4.5: clear of the head
    assert corners(white) == (2, 6, 9, 24)
    assert corners(white & (np.arange(1, 33)[:, None] < 4)) == (2, 3, 12, 22)


def test_the_bow_tie_is_symmetric_and_narrow_in_the_middle():
    white = face(bowtie_x=0, bowtie_height=2) & ~HEAD  # 12 x 9 at rows 25..33
    tie = white[26:, 10:22]
    np.testing.assert_array_equal(tie, tie[:, ::-1])
    assert tie[2].all()  # the knot's row
    assert (np.diff(tie[:, :6].sum(0)) <= 0).all()


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 2**32), shift=st.integers(-3, 3))
def test_moving_the_hat_by_whole_pixels_moves_its_pixels(seed, shift):
    V = 0.3 * np.random.default_rng(seed).standard_normal((1, 18))
    S, _ = sources(hat_x=0)
    moved = V.copy()
    moved[0, COLUMN["hat.x"]] += shift
    wide = {"size": 64, "head_radius": 0.0}  # a large empty canvas
    at_rest = smiley.draw(S, V, **wide).reshape(64, 64)
    np.testing.assert_array_equal(smiley.draw(S, moved, **wide).reshape(64, 64), np.roll(at_rest, shift, 1))


@given(seed=st.integers(0, 2**32))
@settings(deadline=None, max_examples=25)
def test_values_of_an_absent_attribute_leave_no_trace(seed):
    rng = np.random.default_rng(seed)
    S = np.repeat(rng.integers(0, 2, (8, 4)), [4, 6, 3, 5], axis=1)
    V = rng.standard_normal((8, 18))
    np.testing.assert_array_equal(smiley.draw(S, V), smiley.draw(S, S * V))


def test_a_larger_image_has_more_space_around_the_same_face():
    d = smiley.make(50, 0, seed=3)
    large = smiley.draw(d.truth["S"], d.truth["V"], size=44).reshape(-1, 44, 44)
    np.testing.assert_array_equal(large[:, 6:-6, 6:-6].reshape(50, -1), d.X)


def test_the_sources_have_the_stated_law():
    n = 60_000
    d = load("smiley", n=n, n_test=0)
    S, V = d.truth["S"], d.truth["V"]
    for columns in smiley.GROUPS.values():
        assert (S[:, columns] == S[:, [columns.start]]).all()
    gates = S[:, [columns.start for columns in smiley.GROUPS.values()]]
    assert np.abs(gates.mean(0) - 0.5).max() < 4 * 0.5 / np.sqrt(n)
    independent = np.corrcoef(np.hstack([gates, V]).T) - np.eye(22)
    assert np.abs(independent).max() < 4.5 / np.sqrt(n)
    assert np.abs(V.mean(0)).max() < 4.5 * 0.5 / np.sqrt(n)
    assert np.abs(V.std(0) - 0.5).max() < 4.5 * 0.5 / np.sqrt(2 * n)


def test_probabilities_and_deviations_are_arguments():
    d = load("smiley", n=4000, n_test=0, p_attribute={"hat": 0.1, "eyes": 1}, value_std=2.0)
    share = {name: d.truth["S"][:, columns].mean() for name, columns in smiley.GROUPS.items()}
    assert share["eyes"] == 1
    assert share == pytest.approx({"bowtie": 0.5, "hat": 0.1, "eyes": 1, "mouth": 0.5}, abs=0.04)
    assert d.truth["V"].std() == pytest.approx(2, rel=0.02)
    assert not load("smiley", n=100, n_test=0, p_attribute=0).truth["S"].any()
    moved = load("smiley", n=100, n_test=0, geometry={"hat.y": (-8, 0)}, head_radius=9)
    assert (moved.X != load("smiley", n=100, n_test=0).X).any()


def test_the_seed_decides_every_byte_and_the_first_rows_do_not_depend_on_n():
    one, same, other = (smiley.make(100, 50, seed=seed) for seed in (5, 5, 6))
    for key in ("S", "V"):
        assert one.truth[key].tobytes() == same.truth[key].tobytes()
    assert one.X.tobytes() == same.X.tobytes()
    assert one.X_test.tobytes() == same.X_test.tobytes()
    assert one.X.tobytes() != other.X.tobytes()
    more = smiley.make(3000, 0, seed=5)  # more than one block
    np.testing.assert_array_equal(more.X[:100], one.X)
    np.testing.assert_array_equal(more.truth["V"][:100], one.truth["V"])


def test_train_and_test_are_different_streams():
    d = smiley.make(100, 100)
    assert not (d.truth["V"] == d.truth_test["V"]).any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"p_attribute": 1.5}, r"p_attribute must lie in \[0, 1\], got 1.5"),
        ({"p_attribute": {"hats": 0.5}}, r"unknown attribute 'hats': did you mean 'hat'\?"),
        ({"geometry": {"hat.z": (0, 1)}}, "unknown source 'hat.z': did you mean 'hat"),
        ({"value_std": -1}, "value_std must not be negative"),
        ({"n": 0}, "n must be at least 1"),
        ({"size": 0}, "size must be at least 1"),
    ],
)
def test_what_cannot_be_drawn_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        load("smiley", **{"n": 2, "n_test": 0, **options})


@pytest.mark.parametrize("shape", [(18,), (3, 17)])
def test_sources_of_the_wrong_shape_are_refused(shape):
    with pytest.raises(ValueError, match=r"S must have shape \(n, 18\)"):
        smiley.draw(np.zeros(shape), np.zeros(shape))


@pytest.mark.skipif(not FILE.is_file(), reason="needs $SPARSEVAE_DATA/vsc-smiley")
def test_from_the_authors_sources_we_draw_the_authors_images():
    from scipy.io import loadmat

    theirs = loadmat(FILE)
    X = theirs["X"].reshape(-1, 32, 32).transpose(0, 2, 1).reshape(-1, 1024)  # stored column by column
    wrong = (smiley.draw(theirs["S"], theirs["V"]) != X).sum(1)
    tie = theirs["S"][:, 0] == 1
    assert not wrong[~tie].any()  # head, eyes, mouth and hat: every pixel of every image
    assert wrong[tie].mean() < 1  # our tie is two triangles, theirs a picture made small: some 1 of 40 pixels
    assert (wrong[tie] == 0).mean() > 0.8
    ours = smiley.make(20_000, 0).X
    assert abs(ours.mean() - X.mean()) < 0.002
