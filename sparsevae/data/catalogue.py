"""Data sets by name."""

import inspect
import os
import typing
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from sparsevae.checks import OneOf
from sparsevae.data.dataset import Dataset
from sparsevae.data.fetch import ByHand, Collection
from sparsevae.data.files import READERS, read_array
from sparsevae.data.sets import celeba, dbpedia, digit_canvas, digits, har, mnist, multilabel, smiley, tiles, yelp
from sparsevae.exceptions import unknown
from sparsevae.parameters import check_value


class Entry(NamedTuple):
    """One data set of the catalogue; its options are the keyword arguments of ``make``."""

    make: Callable[..., Dataset]
    about: str
    rows: int
    rows_test: int
    features: int
    source: Collection | ByHand | str  # a str describes the origin of a set that is not read from files
    at_most: bool = False  # rows are those of the whole set; a user's copy may have fewer


CATALOGUE: dict[str, Entry] = {
    "birds": Entry(multilabel.make_birds, multilabel.ABOUT_BIRDS, 322, 323, 260, multilabel.BIRDS),
    "cal500": Entry(multilabel.make_cal500, multilabel.ABOUT_CAL500, 400, 102, 68, multilabel.CAL500),
    "celeba": Entry(celeba.make, celeba.ABOUT, 162_770, 19_962, 3072, celeba.CELEBA, at_most=True),
    "dbpedia": Entry(dbpedia.make, dbpedia.ABOUT, 140_000, 14_000, 1, dbpedia.DBPEDIA, at_most=True),
    "digit-canvas": Entry(digit_canvas.make, digit_canvas.ABOUT, 5000, 1000, 3920, mnist.MNIST),
    "digits": Entry(digits.make, digits.ABOUT, 1438, 359, 64, "inside scikit-learn"),
    "emotions": Entry(multilabel.make_emotions, multilabel.ABOUT_EMOTIONS, 391, 202, 72, multilabel.EMOTIONS),
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
    """Description of a data set that is not loaded."""

    name: str
    about: str
    rows: int
    rows_test: int
    features: int
    options: dict[str, Any]  # name -> default
    source: str  # the files or the URL that it is read from
    available: bool  # True if load needs no network
    by_hand: bool  # never downloaded by this package: the user must do so once
    at_most: bool  # rows are those of the whole set; a user's copy may have fewer


def names() -> list[str]:
    """Names of the data sets, for :func:`load` and :func:`info`."""
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
        options={p.name: p.default for p in inspect.signature(entry.make).parameters.values()},
        source=files.where() if files else str(entry.source),
        available=files.present() if files else True,
        by_hand=isinstance(files, ByHand),
        at_most=entry.at_most,
    )


def load(name: str | os.PathLike[str], **options: Any) -> Dataset:
    """Load a data set by name, or a table from a file.

    Files of a named set are searched in ``$SPARSEVAE_DATA/<name>/``, then in the cache (``$SPARSEVAE_CACHE``, or the
    system's folder for caches), then downloaded into the cache and checked. The files of "celeba", "dbpedia",
    "smiley-authors", "uci-har" and "yelp" are never downloaded: put them into ``$SPARSEVAE_DATA/<name>/``, or pass
    their folder as ``path``. The error for missing files explains where to get them.

    Parameters
    ----------
    name : str or path
        One of :func:`names`; or a path that ends in .npy, .npz, .csv or .parquet (see :func:`read_array`). Your own
        files in Mulan's format are read by :func:`read_mulan`.
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
    known, what = kinds(name), "a file" if _is_path(name) else repr(name)
    for option in options:
        if option not in known:
            raise TypeError(unknown("option", option, known, of=what))
    try:
        return _load_file(Path(name), **options) if _is_path(name) else _entry(str(name)).make(**options)
    except TypeError as error:
        for option, value in options.items():
            try:
                _check_option(option, value, known[option])
            except ValueError as fault:
                raise fault from error
        raise


def kinds(name: str | os.PathLike[str]) -> dict[str, Any]:
    """The types of the options that :func:`load` takes for a data set, or for a file."""
    if _is_path(name):
        return {"key": str | None}
    return {k: kind for k, kind in typing.get_type_hints(_entry(str(name)).make).items() if k != "return"}


def fits(value: Any, kind: Any) -> bool:
    """True if an option of this type may have the value.

    >>> fits(3, float), fits("x", int | None), fits(None, int | None), fits(1, bool)
    (True, False, True, True)
    """
    try:
        _check_option("option", value, kind)
    except ValueError:
        return False
    return True


def _check_option(name: str, value: Any, kind: Any) -> None:
    """Refuse a value of another type; an option that is True or False may be 1 or 0."""
    check_value(name, value, kind, [OneOf(0, 1)] if kind is bool else ())


def _entry(name: str) -> Entry:
    if name not in CATALOGUE:
        files = f"; or the path of a file that ends in {', '.join(READERS)}"
        raise ValueError(unknown("data set", str(name), names()) + files)
    return CATALOGUE[name]


def _is_path(name: str | os.PathLike[str]) -> bool:
    if not isinstance(name, str):
        return True
    return name not in CATALOGUE and (Path(name).suffix != "" or os.sep in name)


def _load_file(path: Path, **options: Any) -> Dataset:
    return Dataset(path.stem, **read_array(path, **options)._asdict(), about=f"Rows of {path}.")
