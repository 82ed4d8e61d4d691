"""Images of a few digits side by side, some columns blank; the ground truth is how often each digit occurs."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from sparsevae.checks import POSITIVE, In
from sparsevae.data.dataset import Dataset, check_generated, generate
from sparsevae.data.sets import digits, mnist

ABOUT = (
    "Canvases of five columns, each blank or a random handwritten digit (of MNIST, or scikit-learn's of 8 x 8); the "
    "truth is how often each of the ten digits occurs. After the counting experiment of SDLGM; generated here."
)
SOURCES = {"mnist": mnist.make, "digits": digits.make}


def make(
    n: int = 5000,
    n_test: int = 1000,
    *,
    columns: int = 5,
    blank: float = 0.5,
    source: str = "mnist",
    seed: int = 0,
) -> Dataset:
    r"""Draw canvases; training canvases show training digits, test canvases test digits.

    Each column is blank with probability `blank`; else one of the ten digits, all equally likely, in one of its
    images, all equally likely. The count of a digit is then binomial, and a constant prediction, its mean, has the
    mean squared error

    .. math:: \text{columns} \cdot \tfrac{1 - \text{blank}}{10} \left(1 - \tfrac{1 - \text{blank}}{10}\right),

    .413 for five columns and a blank as likely as any digit (1/11), .238 for blank .5. The paper does not state how
    often a column is blank; its printed examples have two or three digits of five. State `blank` beside a result.

    Parameters
    ----------
    n, n_test : int
        Training and test canvases, from independent streams.
    columns : int
    blank : float from 0 to 1
    source : "mnist" or "digits"
        Images of 28 x 28 from MNIST's own split, or of 8 x 8 from scikit-learn, which need no download.
    seed : int
        The same seed gives the same bytes; the first rows do not depend on n.

    Returns
    -------
    Dataset with X of shape (n, height * columns * width), uint8, the columns side by side (``image_shape`` is
    (28, 140) for five columns of MNIST), and in ``truth``:

    - ``counts``, (n, 10): how often each digit occurs,
    - ``digits``, (n, columns): the digit in each column, from the left; -1 where it is blank.

    Examples
    --------
    >>> d = make(2, 0, columns=3, source="digits")
    >>> d.X.shape, d.truth["digits"].tolist()
    ((2, 192), [[3, 9, -1], [2, 2, 6]])
    >>> d.truth["counts"][1].tolist()
    [0, 0, 2, 0, 0, 0, 1, 0, 0, 0]
    """
    POSITIVE.check("columns", columns, whole=True)
    check_generated(n, n_test, seed, 64 * columns, columns=columns)
    In(0, 1).check("blank", blank, "a probability, from 0 to 1")
    if source not in SOURCES:
        raise ValueError(f"source must be one of {', '.join(SOURCES)}; got {source!r}")
    try:
        known = SOURCES[source]()
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{error}; or draw canvases of 8 x 8 digits: source='digits'") from error
    assert known.image_shape is not None
    height, width = known.image_shape

    def split(images: Any, labels: Any, stream: np.random.SeedSequence, n: int) -> tuple[Any, dict[str, Any]]:
        if not np.array_equal(found := np.unique(labels), np.arange(10)):
            raise ValueError(f"{known.name}: expected images of all digits from 0 to 9, got those of {found.tolist()}")
        seen, which = _draw(stream, n, columns, blank, labels)
        pictures = np.where((seen >= 0)[..., None], images[which], np.uint8(0))  # (n, columns, height * width)
        canvas = pictures.reshape(n, columns, height, width).transpose(0, 2, 1, 3)  # row by row across the columns
        counts = (seen[..., None] == np.arange(10)).sum(1)
        return canvas.reshape(n, height * columns * width), {"counts": counts, "digits": seen}

    train, test = partial(split, known.X, known.y), partial(split, known.X_test, known.y_test)
    shape = (height, columns * width)
    return generate("digit-canvas", n, n_test, seed, train, test, image_shape=shape, about=ABOUT)


def _draw(
    stream: np.random.SeedSequence, n: int, columns: int, blank: float, labels: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Digits (n, columns), -1 where blank, and the index of an image of each (any image where blank).

    There are three streams, so that another `blank` changes neither the digits nor the images of the other columns.
    """
    covered, digit, image = (np.random.default_rng(child).random((n, columns)) for child in stream.spawn(3))
    seen = (10 * digit).astype(int)
    order = np.argsort(labels, kind="stable")  # images of 0 first, then of 1, ...
    size = np.bincount(labels, minlength=10)
    which = order[(np.cumsum(size) - size)[seen] + (image * size[seen]).astype(int)]
    return np.where(covered < blank, -1, seen), which
