"""MNIST and Fashion-MNIST: tiny stand-ins prove the reading, the real files (where they are) the numbers."""

import gzip
import os
from pathlib import Path

import numpy as np
import pytest

from sparsevae.data import load
from sparsevae.data.fetch import _sha256
from sparsevae.data.sets import mnist

REAL = os.environ.get("SPARSEVAE_DATA", "")
needs = {
    name: pytest.mark.skipif(not REAL or not (Path(REAL) / name).is_dir(), reason=f"needs $SPARSEVAE_DATA/{name}")
    for name in ("mnist", "fashion-mnist")
}


def write(path, array):
    header = bytes([0, 0, 8, array.ndim]) + b"".join(size.to_bytes(4, "big") for size in array.shape)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(header + array.tobytes()))


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """Five training and two test images under both names; the arrays."""
    monkeypatch.setenv("SPARSEVAE_DATA", str(tmp_path))
    rng = np.random.default_rng(0)
    arrays = {
        file: rng.integers(0, 256 if "images" in file else 10, size=(n, 28, 28) if "images" in file else n)
        for file, n in zip(mnist.FILES, (5, 5, 2, 2), strict=True)
    }
    arrays = {file: array.astype(np.uint8) for file, array in arrays.items()}
    for name in ("mnist", "fashion-mnist"):
        for file, array in arrays.items():
            write(tmp_path / name / file, array)
    return arrays


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_images_become_rows_and_labels_stay_beside_them(tiny, name):
    data = load(name)
    np.testing.assert_array_equal(data.X.reshape(-1, 28, 28), tiny[mnist.FILES[0]])
    np.testing.assert_array_equal(data.y, tiny[mnist.FILES[1]])
    np.testing.assert_array_equal(data.X_test.reshape(-1, 28, 28), tiny[mnist.FILES[2]])
    np.testing.assert_array_equal(data.y_test, tiny[mnist.FILES[3]])
    assert (data.name, data.image_shape, data.truth) == (name, (28, 28), {})


@pytest.mark.parametrize(
    ("file", "array", "message"),
    [
        (mnist.FILES[0], np.zeros((5, 27, 28), np.uint8), "expected uint8 images of shape"),
        (mnist.FILES[1], np.zeros(4, np.uint8), "expected 5 uint8 labels, one per image"),
        (mnist.FILES[2], np.zeros(2, np.uint8), "expected uint8 images"),
    ],
)
def test_files_that_do_not_belong_together_are_refused(tiny, tmp_path, file, array, message):
    write(tmp_path / "mnist" / file, array)
    with pytest.raises(ValueError, match=message):
        load("mnist")


def test_a_truncated_file_of_the_users_own_is_refused(tiny, tmp_path):
    path = tmp_path / "mnist" / mnist.FILES[0]
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ValueError, match=r"train-images-idx3-ubyte.gz: damaged"):
        load("mnist")


@pytest.mark.parametrize(
    ("name", "mean"),
    [
        pytest.param("mnist", 0.1307, marks=needs["mnist"]),
        pytest.param("fashion-mnist", 0.2860, marks=needs["fashion-mnist"]),
    ],
)
def test_the_real_files_have_the_known_sizes_and_mean(name, mean):
    data = load(name)
    assert data.X.shape == (60_000, 784)
    assert data.X_test.shape == (10_000, 784)
    assert set(np.unique(data.y)) == set(np.unique(data.y_test)) == set(range(10))
    assert data.X.mean() / 255 == pytest.approx(mean, abs=5e-5)


@pytest.mark.parametrize(
    "collection",
    [
        pytest.param(mnist.MNIST, marks=needs["mnist"]),
        pytest.param(mnist.FASHION, marks=needs["fashion-mnist"]),
    ],
    ids=lambda collection: collection.name,
)
def test_the_real_files_have_the_checksums_we_ask_the_mirrors_for(collection):
    for file, path in collection.fetch().items():
        assert _sha256(path) == collection.sha256[file]
