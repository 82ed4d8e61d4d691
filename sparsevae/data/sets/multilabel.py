"""Multi-label sets: emotions, birds and CAL500."""

from __future__ import annotations

import numpy as np

from sparsevae.checks import In, check_seed
from sparsevae.data.dataset import Dataset
from sparsevae.data.fetch import Collection
from sparsevae.data.readers.mulan import as_dataset, read_mulan

ABOUT_EMOTIONS = (
    "593 pieces of music, 72 features of rhythm and timbre, 6 emotions of which a piece has one to three (Trohidis, "
    "Tsoumakas, Kalliris and Vlahavas, ISMIR 2008); distributed with Mulan, no licence stated."
)
ABOUT_BIRDS = (
    "645 recordings of ten seconds in a forest, 260 features, 19 species of birds; in 294 recordings none is heard "
    "(Briggs et al., MLSP 2013); distributed with Mulan, no licence stated."
)
ABOUT_CAL500 = (
    "502 popular songs, 68 features of the sound, 174 tags (emotion, instrument, genre, ...), 26 per song on average "
    "(Turnbull, Barrington, Torres and Lanckriet, IEEE TASLP 2008); distributed with Mulan, no licence stated."
)


def _collection(name: str, sha256: dict[str, str]) -> Collection:
    place = f"data/multi-label/{name}/"
    mirrors = (
        "https://raw.githubusercontent.com/tsoumakas/mulan/master/",
        "https://github.com/tsoumakas/mulan/raw/43f6389/",
    )
    return Collection(name, sha256, tuple(mirror + place for mirror in mirrors))


EMOTIONS = _collection(
    "emotions",
    {
        "emotions-train.arff": "bbe704106c79bb8fb99c1d1d2e9bde081d6a2daeb01f100862f11fd91a3c1f98",
        "emotions-test.arff": "f13d4b746b7b5c8eb484bd751d6ac463d4560dff998a93516a5c1fe35daf6c8f",
        "emotions.xml": "dbce8e6ccbbb2fcbfd9e9edbb230d7ed12692c6e13f59fdbc0161fa9b6cf2dc0",
    },
)
BIRDS = _collection(
    "birds",
    {
        "birds-train.arff": "8f215db6ee163149901e753977f631ba8bea0e0e8e1abc42b234414822f8ae36",
        "birds-test.arff": "51ba6326d65ccdd7c755b6461280eb6d2769c7f59d8e12fd4250f91e6ca28326",
        "birds.xml": "0f4ea547b2b3d538c8402662daf689e0d4520cc8b4f5ba113c2e7c01700f010f",
    },
)
CAL500 = _collection(
    "cal500",
    {
        "cal500.arff": "cfe6097ba5fd6e8584e54911ab9783dcab34e898446b7c9370c71d477eae56d3",
        "cal500.xml": "877e128531268d7661faa3e44f7bb43cbcda829c0895e49879168775b192728c",
    },
)


def make_emotions(*, drop_unlabelled: bool = False) -> Dataset:
    """Load Emotions with the split of its files: X (391, 72), X_test (202, 72), y of 6 columns; every row has a label.

    Parameters
    ----------
    drop_unlabelled : bool
        Leave out the rows without any label, in both parts.
    """
    return _published_split(EMOTIONS, ABOUT_EMOTIONS, drop_unlabelled)


def make_birds(*, drop_unlabelled: bool = False) -> Dataset:
    """Load Birds with the split of its files: X (322, 260), X_test (323, 260), y of 19 columns.

    Two features are nominal, with numbers as values: hasSegments, 0 or 1, and location, the number of one of twelve
    places. They are read as numbers, as in the published baselines.

    Parameters
    ----------
    drop_unlabelled : bool
        Leave out the rows without any label, in both parts: 179 of 322 and 172 of 323 rows stay.
    """
    return _published_split(BIRDS, ABOUT_BIRDS, drop_unlabelled)


def make_cal500(*, n_train: int = 400, seed: int | None = None, drop_unlabelled: bool = False) -> Dataset:
    """Load CAL500: 502 rows of 68 features, y of 174 columns. It is one file, without a published split.

    Parameters
    ----------
    n_train : int from 1 to 502
        Rows for training; the others are for testing (502 leaves none).
    seed : int or None
        Which rows are for training: None means the first, an integer draws them at random; the rows of either part
        stay in the order of the file.
    drop_unlabelled : bool
        Leave out the rows without any label, after the split. (Every song has a tag; the option exists because the
        other sets have it.)
    """
    if seed is not None:
        check_seed("seed", seed, least=0)
    files = CAL500.fetch()
    whole = read_mulan(files["cal500.arff"], files["cal500.xml"])
    n = whole.X.shape[0]
    In(1, n).check("n_train", n_train, f"an integer from 1 to {n}, the number of rows", whole=True)
    order = np.arange(n) if seed is None else np.random.default_rng(seed).permutation(n)
    assert whole.y is not None
    parts = [(whole.X[rows], whole.y[rows]) for rows in map(np.sort, np.split(order, [n_train])) if len(rows)]
    return as_dataset("cal500", parts, whole.columns, whole.label_names, ABOUT_CAL500, drop_unlabelled)


def _published_split(files: Collection, about: str, drop_unlabelled: bool) -> Dataset:
    train, test, labels = files.fetch().values()
    return read_mulan(train, labels, test=test, drop_unlabelled=drop_unlabelled, name=files.name, about=about)
