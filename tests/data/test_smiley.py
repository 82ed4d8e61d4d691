"""Smiley: sources with the stated law, a drawing that is a function of them, and the authors' images."""

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparsevae.data import load
from sparsevae.data.sets import smiley

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
        ({"value_std": -1}, "value_std must be a number, 0 or above, got -1"),
        ({"value_std": float("nan")}, "value_std must be a number, 0 or above, got nan"),
        ({"value_std": float("inf")}, "value_std must be a number, 0 or above, got inf"),
        ({"n": 0}, "n must be an integer above 0, got 0"),
        ({"n": 2.5}, "n must be an integer above 0, got 2.5"),
        ({"size": 0}, "size must be at least 1"),
    ],
)
def test_what_cannot_be_drawn_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        load("smiley", **{"n": 2, "n_test": 0, **options})


@pytest.mark.parametrize("shape", [(18,), (3, 17)])
def test_sources_of_the_wrong_shape_are_refused(shape):
    with pytest.raises(ValueError, match=r"S and V must have equal shapes \(n, 18\)"):
        smiley.draw(np.zeros(shape), np.zeros(shape))


def test_one_attribute_in_five_leaves_two_faces_in_five_bare():
    n = 40_000
    d = load("smiley", n=n, n_test=0, p_attribute=0.2)
    gates = d.truth["S"][:, [columns.start for columns in smiley.GROUPS.values()]]
    assert np.abs(gates.mean(0) - 0.2).max() < 4 * np.sqrt(0.16 / n)
    share = np.bincount(gates.sum(1), minlength=5) / n
    binomial = np.array([1, 4, 6, 4, 1]) * 0.2 ** np.arange(5) * 0.8 ** np.arange(4, -1, -1)
    assert (np.abs(share - binomial) < 4 * np.sqrt(binomial * (1 - binomial) / n)).all()
    none, bare = gates.sum(1) == 0, (HEAD.ravel() == d.X).all(1)
    assert bare[none].all()
    assert bare[~none].mean() < 0.001  # eyes so small that they miss every pixel
    assert d.truth["V"].std() == pytest.approx(0.5, abs=4 * 0.5 / np.sqrt(2 * 18 * n))


def write_mat(path, **arrays):
    from scipy.io import savemat

    savemat(path, arrays)


def test_a_file_like_the_authors_is_turned_row_by_row(tmp_path, monkeypatch):
    monkeypatch.setenv("SPARSEVAE_DATA", str(tmp_path))
    d = smiley.make(5, 0)
    columns_first = d.X.reshape(5, 32, 32).transpose(0, 2, 1).reshape(5, 1024)
    (tmp_path / "smiley-authors").mkdir()
    path = tmp_path / "smiley-authors" / smiley.FILE
    write_mat(path, X=columns_first, **d.truth)
    for where in (None, path, path.parent):
        read = load("smiley-authors", path=where)
        np.testing.assert_array_equal(read.X, d.X)
        np.testing.assert_array_equal(read.truth["S"], d.truth["S"])
        np.testing.assert_array_equal(read.truth["V"], d.truth["V"])


def test_another_file_than_the_authors_is_refused(tmp_path):
    path = tmp_path / "other.mat"
    with pytest.raises(FileNotFoundError, match="https://github"):
        load("smiley-authors", path=tmp_path)
    write_mat(path, X=np.zeros((5, 1024)), S=np.zeros((4, 18)))
    with pytest.raises(ValueError, match=r"expected X \(n, 1024\), S and V \(n, 18\); got .*'V': None"):
        load("smiley-authors", path=path)
    path.write_bytes(b"not from MATLAB at all" * 20)
    with pytest.raises(ValueError, match=r"other\.mat: not a whole MATLAB file"):
        load("smiley-authors", path=path)


@pytest.fixture(scope="module")
def theirs():
    if not FILE.is_file():
        pytest.skip("needs $SPARSEVAE_DATA/vsc-smiley")
    return load("smiley-authors", path=FILE)


def tie_boxes(S, V):
    """Where the tie of each image may lie: ceil(size) pixels from round(middle - size / 2), counted from 1."""
    pixel = np.arange(1, 33)

    def inside(middle, length):
        first = np.floor(middle - length / 2 + 0.5)[:, None]
        return (pixel >= first) & (pixel < first + np.ceil(length)[:, None])

    rows = inside(29 + V[:, 1], 5 + 2 * V[:, 3])
    columns = inside(16.5 + 0.5 * V[:, 0], 12 + 3 * V[:, 2])
    return (rows[:, :, None] & columns[:, None, :] & (S[:, 0, None, None] == 1)).reshape(len(S), 1024)


def test_from_the_authors_sources_we_draw_the_authors_images(theirs):
    S, V = theirs.truth["S"], theirs.truth["V"]
    wrong = smiley.draw(S, V) != theirs.X
    box = tie_boxes(S, V)
    assert not wrong[~box].any()  # head, eyes, mouth and hat: all of 19.8 million pixels
    # our tie is two triangles, theirs a picture made small: 98.62 % of the pixels in its box agree
    assert 1 - wrong[box].mean() > 0.986
    assert 1 - wrong.mean() > 0.9995
    tie = S[:, 0] == 1
    assert (~wrong[tie].any(1)).mean() > 0.8  # ties that agree in every pixel


def test_the_authors_sources_have_the_law_that_we_draw_from(theirs):
    S, V = theirs.truth["S"], theirs.truth["V"]
    n = len(S)
    for columns in smiley.GROUPS.values():
        assert (S[:, columns] == S[:, [columns.start]]).all()
    assert np.abs(S.mean(0) - 0.5).max() < 4 * 0.5 / np.sqrt(n)
    assert np.abs(V.mean(0)).max() < 4 * 0.5 / np.sqrt(n)
    assert np.abs(V.std(0) - 0.5).max() < 4 * 0.5 / np.sqrt(2 * n)


def test_our_images_have_the_statistics_of_the_authors(theirs):
    ours = smiley.make(20_000, 0)
    assert theirs.X.mean() == pytest.approx(0.336, abs=0.001)
    assert abs(ours.X.mean() - theirs.X.mean()) < 0.002
    assert np.corrcoef(ours.X.mean(0), theirs.X.mean(0))[0, 1] > 0.9999  # of the mean images
    assert abs(ours.truth["S"].mean() - theirs.truth["S"].mean()) < 0.01
    assert abs(ours.truth["V"].std() - theirs.truth["V"].std()) < 0.005


def test_with_rarer_attributes_our_images_are_the_authors_images_weighted(theirs):
    # each of the 16 combinations of attributes has P = 0.2^k 0.8^(4 - k); the authors' have all 1/16
    gates = theirs.truth["S"][:, [columns.start for columns in smiley.GROUPS.values()]].astype(int)
    combination = gates @ [1, 2, 4, 8]
    p = np.prod(np.where(gates, 0.2, 0.8), axis=1)
    weight = p / np.bincount(combination)[combination]
    assert weight.sum() == pytest.approx(1)
    ours = smiley.make(20_000, 0, p_attribute=0.2).X
    assert abs(ours.mean() - weight @ theirs.X.mean(1)) < 0.002
    assert np.corrcoef(ours.mean(0), weight @ theirs.X)[0, 1] > 0.9999
