"""Yelp: reviews with one to five stars."""

from __future__ import annotations

import os

import numpy as np

from sparsevae.checks import check_number, check_seed
from sparsevae.data.dataset import Dataset
from sparsevae.data.fetch import ByHand
from sparsevae.exceptions import unknown
from sparsevae.files import read_lines

ABOUT = (
    "Reviews of restaurants, shops and other places with one to five stars, as their writers typed them. Yelp's terms "
    "allow academic, non-commercial use and forbid passing them on. A file of your own: the 100,000, 10,000 and "
    "10,000 reviews on which text models are compared, or others."
)
YELP = ByHand(
    "yelp",
    ("yelp",),
    ("reviews.tsv.xz",),
    "Yelp gives its reviews to those who accept its terms, and nobody may pass them on. Write those you have to "
    "reviews.tsv.xz: one review a line in UTF-8, its stars (1 to 5), a word for its source and its text between tabs.",
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
    """Load reviews.tsv.xz and split it at random; every number of stars keeps its share in each part.

    Parameters
    ----------
    held_out : {"test", "valid"}
        Which part is X_test; the other one is left out, so that it cannot be looked at by mistake.
    valid_fraction, test_fraction : float
        Shares of the reviews; the rest is for training.
    seed : int
        Decides the split.
    path : path or None
        The folder; None looks in ``$SPARSEVAE_DATA/yelp/``.

    Returns
    -------
    Dataset with X and X_test arrays of str of shape (n,), raw text; y from 0 (one star) to 4; ``truth["source"]``,
    (n,). Rows of a part stay in the order of the file.
    """
    if held_out not in PARTS:
        raise ValueError(unknown("part for held_out", str(held_out), PARTS))
    for name, fraction in (("valid_fraction", valid_fraction), ("test_fraction", test_fraction)):
        check_number(name, fraction, "a number in [0, 1)", lambda share: 0 <= share < 1)
    if valid_fraction + test_fraction >= 1:
        got = f"{valid_fraction} and {test_fraction}"
        raise ValueError(f"valid_fraction and test_fraction must leave some reviews for training, got {got}")
    check_seed("seed", seed, least=0)
    stars, source, texts = _read(path)
    rng = np.random.default_rng(seed)
    part = np.zeros(len(stars), dtype=np.int64)  # 0 train, 1 valid, 2 test
    for star in range(len(STARS)):
        members = rng.permutation(np.flatnonzero(stars == star))
        valid, test = round(len(members) * valid_fraction), round(len(members) * test_fraction)
        part[members[:valid]], part[members[valid : valid + test]] = 1, 2
    inside, outside = part == 0, part == (2 if held_out == "test" else 1)
    if not (inside.any() and outside.any()):
        few = f"{len(stars)} reviews are too few for training and a {held_out} part of such fractions"
        raise ValueError(f"{YELP.find(path)}: {few}")
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


def _read(path: str | os.PathLike[str] | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Stars from 0, sources and texts, each (n,)."""
    found = YELP.find(path)
    file = found / "reviews.tsv.xz" if found.is_dir() else found
    if not os.path.exists(file):
        raise YELP.missing(f"{file} is not there")
    rows = [line.split("\t") for line in read_lines(file)]
    for number, row in enumerate(rows, start=1):
        if len(row) != 3 or row[0] not in ("1", "2", "3", "4", "5"):
            got = "\t".join(row)[:40]
            raise ValueError(
                f"{file}, line {number}: expected stars (1 to 5), source and text between tabs, got {got!r}"
            )
    stars = np.array([int(row[0]) - 1 for row in rows], dtype=np.int64)
    return stars, np.array([row[1] for row in rows]), np.array([row[2] for row in rows], dtype=object)
