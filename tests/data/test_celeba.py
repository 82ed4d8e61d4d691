"""CelebA: made-up pictures prove the crop, the lists and the split; the real ones, where they are, the numbers."""

import io
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sparsevae.data import info, load
from sparsevae.data.sets import celeba

REAL = Path(os.environ.get("SPARSEVAE_DATA", "")) / "celeba-10k"
NAMES = [f"{i:06d}.jpg" for i in range(1, 21)]
ATTRIBUTES = ["Bald", "Smiling", "Young"]


def jpeg(pixels):
    file = io.BytesIO()
    Image.fromarray(np.asarray(pixels, np.uint8)).save(file, "JPEG", quality=100, subsampling=0)
    return file.getvalue()


def flat(level, size=(89, 109)):
    """One level of grey everywhere: the picture's number can be read from any pixel."""
    return jpeg(np.full((size[1], size[0], 3), level))


def ramp(scale):
    """Brightness grows downwards and blue to the right, in units of the half-size picture."""
    rows, columns = (np.mgrid[: 109 * scale, : 89 * scale] + 0.5) / scale
    return np.stack([2 * rows, 255 - 2 * rows, 2 * columns], axis=-1)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Twenty pictures in $SPARSEVAE_DATA/celeba; picture i is grey of level 10 i."""
    monkeypatch.setenv("SPARSEVAE_DATA", str(tmp_path))
    (tmp_path / "celeba").mkdir()
    for i, name in enumerate(NAMES):
        (tmp_path / "celeba" / name).write_bytes(flat(10 * i))
    return tmp_path / "celeba"


def levels(X):
    return np.rint(X.mean(1) / 10).astype(int).tolist()


def write_list(path, values, sep, header):
    lines = [name + sep + sep.join(map(str, row)) for name, row in zip(NAMES, values, strict=True)]
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join([*header, *lines]) + "\n")


@pytest.mark.parametrize("scale", [1, 2])
def test_the_square_of_the_full_width_is_cut_out_at_both_sizes(tmp_path, scale):
    (tmp_path / "000001.jpg").write_bytes(jpeg(ramp(scale)))
    data = load("celeba", path=tmp_path, size=8)
    assert data.image_shape == (8, 8, 3)
    picture = data.X[0].reshape(data.image_shape).astype(float)
    side = (np.arange(1, 7) + 0.5) * 89 / 8  # middles of the inner cells: the filter's edge is lopsided
    down, right = 2 * (10 + side)[:, None] * np.ones(6), 2 * side[None, :] * np.ones((6, 1))
    expected = np.stack([down, 255 - down, right], axis=-1).clip(0, 255)
    assert np.abs(picture[1:-1, 1:-1] - expected).max() < 2


def test_pictures_become_rows_of_height_width_and_colour(folder):
    data = load("celeba", size=4)
    assert data.X.shape == (18, 48)
    assert data.X.dtype == np.uint8
    assert info("celeba").available
    assert info("celeba").source == str(folder)
    red = np.zeros((109, 89, 3))
    red[..., 0] = 200
    (folder / NAMES[0]).write_bytes(jpeg(red))
    assert np.abs(load("celeba", size=4).X[0].reshape(16, 3) - [200.0, 0, 0]).max() < 4


def test_without_the_list_of_parts_the_last_tenth_is_the_test_set(folder):
    data = load("celeba")
    assert levels(data.X) == list(range(18))
    assert levels(data.X_test) == [18, 19]
    assert (data.y, data.y_test, data.label_names) == (None, None, None)
    assert load("celeba", n=9).X_test is None
    assert levels(load("celeba", n=10).X_test) == [9]


@pytest.mark.parametrize("file", ["list_eval_partition.txt", "list_eval_partition.csv", "Eval/list_eval_partition.txt"])
def test_the_official_parts_are_used_where_they_are_known(folder, file):
    part = [0] * 12 + [1] * 5 + [2] * 3
    style = (",", ["image_id,partition"]) if file.endswith("csv") else (" ", [])
    write_list(folder / file, [[p] for p in part], *style)
    data = load("celeba")
    assert levels(data.X) == list(range(12))
    assert levels(data.X_test) == [17, 18, 19]
    assert levels(load("celeba", test="validation").X_test) == [12, 13, 14, 15, 16]
    write_list(folder / file, [[2]] * 20, *style)
    with pytest.raises(ValueError, match="none of the 20 pictures belongs to the training part"):
        load("celeba")


def test_the_validation_part_needs_the_list_of_parts(folder):
    with pytest.raises(FileNotFoundError, match=r"has no list_eval_partition\.txt"):
        load("celeba", test="validation")
    with pytest.raises(ValueError, match=r"unknown part 'valid': did you mean 'validation'\?"):
        load("celeba", test="valid")


@pytest.mark.parametrize(
    ("file", "style", "off"),
    [
        ("list_attr_celeba.txt", ("  ", ["20", " ".join(ATTRIBUTES) + " "]), -1),
        ("Anno/list_attr_celeba.txt", (" ", ["20", " ".join(ATTRIBUTES)]), -1),
        ("list_attr_celeba.csv", (",", [",".join(["image_id", *ATTRIBUTES])]), -1),
        ("attributes.csv", (",", [",".join(["image", *ATTRIBUTES])]), 0),
        ("../list_attr_celeba.txt", (" ", ["20", " ".join(ATTRIBUTES)]), -1),
    ],
)
def test_attributes_are_zeros_and_ones_beside_their_pictures(folder, file, style, off):
    on = np.random.default_rng(0).integers(0, 2, (20, 3))
    write_list(folder / file, np.where(on, 1, off).tolist(), *style)
    data = load("celeba")
    np.testing.assert_array_equal(data.y, on[:18])
    np.testing.assert_array_equal(data.y_test, on[18:])
    assert data.y.dtype == np.uint8
    assert data.label_names == tuple(ATTRIBUTES)


@pytest.mark.parametrize("inside", ["", "img_align_celeba/"])
def test_a_zip_is_read_as_the_folder_it_holds(folder, tmp_path, inside):
    archive = tmp_path / "zipped" / "img_align_celeba.zip"
    archive.parent.mkdir()
    with zipfile.ZipFile(archive, "w") as file:
        for name in reversed(NAMES):
            file.write(folder / name, inside + name)
            file.writestr(f"__MACOSX/{inside}._{name}", b"shadow")
    expected = load("celeba")
    for path in (archive, archive.parent, str(archive)):
        data = load("celeba", path=path)
        np.testing.assert_array_equal(data.X, expected.X)
        np.testing.assert_array_equal(data.X_test, expected.X_test)
    (archive.parent / "other.zip").write_bytes(b"")  # the official name wins
    np.testing.assert_array_equal(load("celeba", path=archive.parent).X, expected.X)


def test_pictures_in_folders_inside_are_found_and_two_of_one_name_are_refused(folder):
    inside = folder / "img_align_celeba" / "img_align_celeba"
    inside.mkdir(parents=True)
    expected = load("celeba").X
    for name in NAMES:
        (folder / name).rename(inside / name)
    np.testing.assert_array_equal(load("celeba").X, expected)
    (folder / NAMES[3]).write_bytes(flat(0))
    with pytest.raises(ValueError, match="two pictures of one name"):
        load("celeba")


def test_more_pictures_than_one_block_keep_their_order(tmp_path):
    n = celeba.BLOCK + 40
    for i in range(n):
        (tmp_path / f"{i:06d}.jpg").write_bytes(flat(i % 25 * 10))
    data = load("celeba", path=tmp_path, size=2)
    assert levels(np.vstack([data.X, data.X_test])) == [i % 25 for i in range(n)]


def test_what_is_no_aligned_picture_is_refused_by_name(folder):
    (folder / NAMES[4]).write_bytes(flat(0, (64, 64)))
    with pytest.raises(ValueError, match=r"000005\.jpg: expected an aligned picture of 178 x 218 .* got 64 x 64"):
        load("celeba")
    (folder / NAMES[4]).write_bytes(flat(0)[:-200])
    with pytest.raises(ValueError, match=r"000005\.jpg: not a whole JPEG"):
        load("celeba")
    (folder / NAMES[4]).write_bytes(b"text")
    with pytest.raises(ValueError, match=r"000005\.jpg: not a whole JPEG"):
        load("celeba")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("20\nBald Young\n000001.jpg 1 -1\n", "no line for 000002.jpg"),
        ("20\nBald Young\n000001.jpg 1 -1\n000002.jpg 1\n", "all of one length"),
        ("20\nBald\n000001.jpg yes\n", "expected whole numbers after 000001.jpg"),
        ("", "expected lines such as"),
    ],
)
def test_a_damaged_list_is_refused(folder, text, message):
    (folder / "list_attr_celeba.txt").write_text(text)
    with pytest.raises(ValueError, match=message):
        load("celeba")


@pytest.mark.parametrize("value", [0, -1, 2.5, "x", True])
def test_impossible_numbers_are_refused(folder, value):
    with pytest.raises(ValueError, match="size must be an integer above 0, got"):
        load("celeba", size=value)
    with pytest.raises(ValueError, match="n must be an integer above 0 or None, got"):
        load("celeba", n=value)


def test_where_there_is_none_the_error_says_where_to_get_it_and_where_to_put_it(tmp_path, monkeypatch):
    monkeypatch.setenv("SPARSEVAE_DATA", str(tmp_path))
    assert not info("celeba").available
    for path in (None, tmp_path / "nowhere", tmp_path):
        with pytest.raises(FileNotFoundError) as caught:
            load("celeba", path=path)
        for part in ("mmlab.ie.cuhk.edu.hk", str(tmp_path / "celeba"), str(tmp_path / "celeba-10k"), "path="):
            assert part in str(caught.value)
    with zipfile.ZipFile(tmp_path / "empty.zip", "w"):
        pass
    with pytest.raises(FileNotFoundError, match=r"no \.jpg file in"):
        load("celeba", path=tmp_path / "empty.zip")
    (tmp_path / "empty.zip").write_bytes(b"no zip")
    with pytest.raises(ValueError, match=r"expected a folder, or a zip of \.jpg files"):
        load("celeba", path=tmp_path / "empty.zip")


@pytest.mark.skipif(not REAL.is_dir(), reason="needs $SPARSEVAE_DATA/celeba-10k")
def test_the_real_faces_look_ahead_and_wear_the_hair_their_attributes_say():
    data = load("celeba", path=REAL, n=2000)
    assert (data.X.shape, data.X_test.shape) == ((1800, 3072), (200, 3072))
    assert data.y.shape == (1800, 40)
    assert (data.label_names[0], data.label_names[20], data.label_names[39]) == ("5_o_Clock_Shadow", "Male", "Young")
    # the attributes belong to the pictures: where the hair is, blond is brighter than black
    has = dict(zip(data.label_names, data.y.T.astype(bool), strict=True))
    hair = data.X.reshape(-1, 32, 32, 3)[:, 3:7, 10:22].mean((1, 2, 3))
    assert hair[has["Blond_Hair"]].mean() > hair[has["Black_Hair"]].mean() + hair.std()
    # faces are aligned on the eyes, so the mean face is its own mirror image, and skin is more red than blue
    mean = data.X.mean(0).reshape(32, 32, 3)
    assert np.corrcoef(mean.ravel(), mean[:, ::-1].ravel())[0, 1] > 0.99
    assert mean[16, 16, 0] > mean[16, 16, 1] > mean[16, 16, 2]
