"""Handwritten digits of 8 x 8 pixels, which scikit-learn contains: a data set that needs no network."""

from __future__ import annotations

import random

import numpy as np

from sparsevae.checks import check_seed
from sparsevae.data.dataset import FRACTION, Dataset, stratified

ABOUT = (
    "1,797 handwritten digits of 8 x 8 grey pixels in 10 classes: the test part of UCI's Optical Recognition "
    "of Handwritten Digits (Alpaydin and Kaynak), as shipped inside scikit-learn."
)


def make(*, test_fraction: float = 0.2, seed: int = 0) -> Dataset:
    """Load the digits, split at random but in equal proportions of the ten classes.

    Parameters
    ----------
    test_fraction : float in [0, 1)
        Fraction of each class, rounded to whole rows, that goes to the test set.
    seed : int
        The same seed gives the same split.

    Returns
    -------
    Dataset with X of shape (n, 64), uint8: scikit-learn's 17 grey levels v become round(255 v / 16).
    """
    FRACTION.check("test_fraction", test_fraction)
    check_seed("seed", seed, least=0)
    state = random.getstate()
    from sklearn.datasets import load_digits  # imports rich, which draws from `random`

    random.setstate(state)
    levels, labels = load_digits(return_X_y=True)
    pixels = np.rint(levels * (255 / 16)).astype(np.uint8)
    test = stratified(labels, [test_fraction], seed) == 1
    return Dataset(
        "digits",
        X=pixels[~test],
        X_test=pixels[test] if test.any() else None,
        y=labels[~test],
        y_test=labels[test] if test.any() else None,
        image_shape=(8, 8),
        about=ABOUT,
    )
