"""Yelp: reviews with one to five stars."""

from __future__ import annotations

import os

import numpy as np

from sparsevae.checks import check_seed
from sparsevae.data.dataset import FRACTION, Dataset, stratified
from sparsevae.data.fetch import ByHand
from sparsevae.data.readers.tsv import class_numbers, read_tsv, texts_array
from sparsevae.exceptions import unknown

ABOUT = (
    "Reviews of restaurants, shops and other places with one to five stars, as their writers typed them. Yelp's terms "
    "allow academic, non-commercial use and forbid passing them on. A file of your own: the 100,000, 10,000 and "
    "10,000 reviews on which text models are compared, or others."
)
YELP = ByHand(
    "yelp",
    ("yelp",),
    ("reviews.tsv.xz",),
    "Yelp's terms forbid passing the reviews on; accept them and download the reviews. Write them to reviews.tsv.xz: "
    "one review per line in UTF-8, with its stars (1 to 5), the name of its source and its text between tabs.",
)
STARS = ("1 star", "2 stars", "3 stars", "4 stars", "5 stars")
PARTS = ("test", "valid")


def make(
    *,
    held_out: str = "test",
    valid_fraction: float = 0.1,
    test_fraction: float = 0.1,
    seed: int = 0,
    path: str | os.PathLike[str] | None = None,
) -> Dataset:
    """Load reviews.tsv.xz and split it at random, in equal proportions of the five numbers of stars.

    Parameters
    ----------
    held_out : {"test", "valid"}
        Which part is X_test; the other one is left out, so that it is not used by mistake.
    valid_fraction, test_fraction : float
        Fractions of the reviews; the rest is for training.
    seed : int
        The same seed gives the same split.
    path : path or None
        The folder; None means ``$SPARSEVAE_DATA/yelp/``.

    Returns
    -------
    Dataset with X and X_test arrays of str of shape (n,), raw text; y from 0 (one star) to 4; ``truth["source"]``,
    (n,). Rows of a part stay in the order of the file.
    """
    if held_out not in PARTS:
        raise ValueError(unknown("part for held_out", str(held_out), PARTS))
    for name, fraction in (("valid_fraction", valid_fraction), ("test_fraction", test_fraction)):
        FRACTION.check(name, fraction)
    if valid_fraction + test_fraction >= 1:
        got = f"{valid_fraction} and {test_fraction}"
        raise ValueError(f"valid_fraction and test_fraction must leave some reviews for training, got {got}")
    check_seed("seed", seed, least=0)
    file = YELP.find(path, "reviews.tsv.xz")
    values, sources, lines = read_tsv(file, 3)
    stars = class_numbers(values, {name[0]: k for k, name in enumerate(STARS)}, file, "stars (1 to 5)")
    source, texts = np.array(sources), texts_array(lines)
    part = stratified(stars, [valid_fraction, test_fraction], seed)
    inside, outside = part == 0, part == (2 if held_out == "test" else 1)
    if not (inside.any() and outside.any()):
        few = f"{len(stars)} reviews are too few for training and a {held_out} part of such fractions"
        raise ValueError(f"{file}: {few}")
    return Dataset(
        "yelp",
        X=texts[inside],
        X_test=texts[outside],
        y=stars[inside],
        y_test=stars[outside],
        truth={"source": source[inside]},
        truth_test={"source": source[outside]},
        label_names=STARS,
        about=ABOUT,
    )
