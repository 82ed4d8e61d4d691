"""Data sets by name."""

import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from . import celeba, counting, dbpedia, digits, har, mnist, mulan, smiley, tiles, yelp
from .dataset import Dataset
from .fetch import ByHand, Collection
from .files import READERS, read_array
from .suggest import unknown


class Entry(NamedTuple):
    """One line of the catalogue; the options are the keyword arguments of ``make``."""

    make: Callable[..., Dataset]
    about: str
    rows: int
    rows_test: int
    features: int
    source: Collection | ByHand | str  # in words where nothing is read from files
    at_most: bool = False  # rows are those of the whole set, of which a user's own copy may hold fewer


CATALOGUE: dict[str, Entry] = {
    "birds": Entry(mulan.make_birds, mulan.ABOUT_BIRDS, 322, 323, 260, mulan.BIRDS),
    "cal500": Entry(mulan.make_cal500, mulan.ABOUT_CAL500, 400, 102, 68, mulan.CAL500),
    "celeba": Entry(celeba.make, celeba.ABOUT, 162_770, 19_962, 3072, celeba.CELEBA, at_most=True),
    "dbpedia": Entry(dbpedia.make, dbpedia.ABOUT, 140_000, 14_000, 1, dbpedia.DBPEDIA, at_most=True),
    "digit-canvas": Entry(counting.make, counting.ABOUT, 5000, 1000, 3920, mnist.MNIST),
    "digits": Entry(digits.make, digits.ABOUT, 1438, 359, 64, "inside scikit-learn"),
    "emotions": Entry(mulan.make_emotions, mulan.ABOUT_EMOTIONS, 391, 202, 72, mulan.EMOTIONS),
    "fashion-mnist": Entry(mnist.make_fashion, mnist.ABOUT_FASHION, 60_000, 10_000, 784, mnist.FASHION),
    "mnist": Entry(mnist.make, mnist.ABOUT_MNIST, 60_000, 10_000, 784, mnist.MNIST),
    "smiley": Entry(smiley.make, smiley.ABOUT, 60_000, 20_000, 1024, "generated"),
    "smiley-authors": Entry(smiley.make_authors, smiley.ABOUT_AUTHORS, 20_000, 0, 1024, smiley.AUTHORS),
    "tiles": Entry(tiles.make, tiles.ABOUT, 60_000, 10_000, 784, "generated"),
    "uci-har": Entry(har.make, har.ABOUT, 7352, 2947, 1152, har.HAR),
    "yelp": Entry(yelp.make, yelp.ABOUT, 100_000, 10_000, 1, yelp.YELP, at_most=True),
}


@dataclass(frozen=True)
class Info:
    """What is known of a data set before loading it."""

    name: str
    about: str
    rows: int
    rows_test: int
    features: int
    options: dict[str, Any]  # name -> default
    source: str  # where it would be read from
    available: bool  # whether load works without a network
    at_most: bool  # rows are those of the whole set; a copy of a part of it has fewer


def names() -> list[str]:
    """Names that :func:`load` and :func:`info` know."""
    return sorted(CATALOGUE)


def info(name: str) -> Info:
    """Describe a data set with its default options; nothing is loaded or downloaded.

    Examples
    --------
    >>> about = info("digits")
    >>> about.rows, about.features, about.options, about.available
    (1438, 64, {'test_fraction': 0.2, 'seed': 0}, True)
    """
    entry = _entry(name)
    files = None if isinstance(entry.source, str) else entry.source
    return Info(
        name=name,
        about=entry.about,
        rows=entry.rows,
        rows_test=entry.rows_test,
        features=entry.features,
        options=_options(entry),
        source=files.where() if files else str(entry.source),
        available=files.present() if files else True,
        at_most=entry.at_most,
    )


def load(name: str | os.PathLike[str], **options: Any) -> Dataset:
    """Load a data set by name, or a table from a file.

    Files of a named set are looked for in ``$SPARSEVAE_DATA/<name>/``, then in the cache
    (``$SPARSEVAE_CACHE``, or the system's own place), then downloaded into the cache and checked. The files of
    "celeba", "dbpedia", "smiley-authors", "uci-har" and "yelp" are never downloaded: put them into
    ``$SPARSEVAE_DATA/<name>/``, or say where they lie with ``path``; the error for missing files says where to
    get them.

    Parameters
    ----------
    name : str or path
        One of :func:`names`; or a path that ends in .npy, .npz, .csv or .parquet (see :func:`read_array`). Sets in
        Mulan's format of your own are read by :func:`read_mulan`.
    **options
        Keyword arguments of the loader, listed by ``info(name).options``; for a .npz file of several arrays
        ``key``.

    Returns
    -------
    Dataset

    Examples
    --------
    >>> load("tiles", n=100, n_test=0, max_tiles=2)
    Dataset('tiles', X=(100, 784) uint8, image_shape=(28, 28), truth=['count', 'positions'])
    """
    if _is_path(name):
        return _load_file(Path(name), **options)
    name = str(name)
    entry = _entry(name)
    known = _options(entry)
    for option in options:
        if option not in known:
            raise TypeError(unknown(f"option of {name!r}", option, known))
    return entry.make(**options)


def _entry(name: str) -> Entry:
    if name not in CATALOGUE:
        files = f"; or the path of a file that ends in {', '.join(READERS)}"
        raise ValueError(unknown("data set", str(name), names()) + files)
    return CATALOGUE[name]


def _options(entry: Entry) -> dict[str, Any]:
    return {p.name: p.default for p in inspect.signature(entry.make).parameters.values()}


def _is_path(name: str | os.PathLike[str]) -> bool:
    if not isinstance(name, str):
        return True
    return name not in CATALOGUE and (Path(name).suffix != "" or os.sep in name)


def _load_file(path: Path, **options: Any) -> Dataset:
    for option in options:
        if option != "key":
            raise TypeError(unknown("option of a file", option, ["key"]))
    table = read_array(path, **options)
    return Dataset(
        path.stem,
        X=table.X,
        columns=table.columns,
        image_shape=table.image_shape,
        about=f"Rows of {path}.",
    )
