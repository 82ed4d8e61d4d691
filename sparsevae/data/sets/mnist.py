"""MNIST and Fashion-MNIST in their original files."""

from __future__ import annotations

import numpy as np

from sparsevae.data.dataset import Dataset
from sparsevae.data.fetch import Collection
from sparsevae.data.readers.idx import read_idx

FILES = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)
MNIST = Collection(
    "mnist",
    {
        FILES[0]: "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        FILES[1]: "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        FILES[2]: "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        FILES[3]: "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    },
    ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
)
FASHION = Collection(
    "fashion-mnist",
    {
        FILES[0]: "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
        FILES[1]: "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
        FILES[2]: "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
        FILES[3]: "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
    },
    (
        "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    ),
)
ABOUT_MNIST = (
    "70,000 handwritten digits of 28 x 28 grey pixels in 10 classes (LeCun, Cortes and Burges); "
    "commonly stated licence: CC BY-SA 3.0."
)
ABOUT_FASHION = (
    "70,000 pictures of clothes, 28 x 28 grey pixels in 10 classes (Xiao, Rasul and Vollgraf, Zalando); MIT."
)


def make() -> Dataset:
    """Load MNIST: X of shape (60000, 784) and X_test of shape (10000, 784), uint8."""
    return _read(MNIST, ABOUT_MNIST)


def make_fashion() -> Dataset:
    """Load Fashion-MNIST, in the shapes of MNIST."""
    return _read(FASHION, ABOUT_FASHION)


def _read(collection: Collection, about: str) -> Dataset:
    paths = collection.fetch()
    arrays: list[np.ndarray] = []
    for images_file, labels_file in (FILES[:2], FILES[2:]):
        images, labels = read_idx(paths[images_file]), read_idx(paths[labels_file])
        if images.dtype != np.uint8 or images.shape != (len(images), 28, 28):
            got = f"{images.dtype} of shape {images.shape}"
            raise ValueError(f"{paths[images_file]}: expected uint8 images of shape (n, 28, 28), got {got}")
        if labels.dtype != np.uint8 or labels.shape != images.shape[:1]:
            got = f"{labels.dtype} of shape {labels.shape}"
            raise ValueError(f"{paths[labels_file]}: expected {len(images)} uint8 labels, one per image, got {got}")
        arrays += [images.reshape(-1, 784), labels]
    X, y, X_test, y_test = arrays
    return Dataset(collection.name, X=X, X_test=X_test, y=y, y_test=y_test, image_shape=(28, 28), about=about)
