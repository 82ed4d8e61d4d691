"""Data sets by name."""

import inspect
import os
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import Any, NamedTuple

from sparsevae.checks import is_number
from sparsevae.data.dataset import Dataset
from sparsevae.data.fetch import ByHand, Collection
from sparsevae.data.files import READERS, read_array
from sparsevae.data.sets import (
    celeba,
    dbpedia,
    digits,
    har,
    mnist,
    smiley,
    tiles,
    yelp,
)
from sparsevae.data.sets import (
    digit_canvas as counting,
)
from sparsevae.data.sets import (
    multilabel as mulan,
)
from sparsevae.exceptions import unknown


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
    by_hand: bool  # never downloaded: the user fetches it once
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
        by_hand=isinstance(files, ByHand),
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
    known, what = kinds(name), "a file" if _is_path(name) else repr(name)
    for option in options:
        if option not in known:
            raise TypeError(unknown(f"option of {what}", option, known))
    try:
        return _load_file(Path(name), **options) if _is_path(name) else _entry(str(name)).make(**options)
    except TypeError as error:
        for option, value in options.items():
            if not fits(value, known[option]):
                words = " or ".join(_WORDS[k][0] for k in _members(known[option]))
                raise ValueError(f"{option} must be {words}, got {value!r}.") from error
        raise


def kinds(name: str | os.PathLike[str]) -> dict[str, Any]:
    """The types of the options that :func:`load` takes for a data set, or for a file."""
    if _is_path(name):
        return {"key": str | None}
    return {k: kind for k, kind in typing.get_type_hints(_entry(str(name)).make).items() if k != "return"}


def fits(value: Any, kind: Any) -> bool:
    """Whether a value may be of this type, as far as we have words for it.

    >>> fits(3, float), fits("x", int | None), fits(None, int | None), fits("x", dict)
    (True, False, True, True)
    """
    return any(k not in _WORDS or _WORDS[k][1](value) for k in _members(kind))


def _members(kind: Any) -> list[Any]:
    parts = typing.get_args(kind) if typing.get_origin(kind) in (typing.Union, types.UnionType) else (kind,)
    return [typing.get_origin(k) or k for k in parts]


_WORDS: dict[Any, tuple[str, Callable[[Any], bool]]] = {
    int: ("an integer", lambda v: is_number(v, whole=True)),
    float: ("a number", is_number),
    bool: ("True or False", lambda v: isinstance(v, (bool, Integral)) and v in (0, 1)),
    str: ("a word", lambda v: isinstance(v, str)),
    Mapping: ("a table", lambda v: isinstance(v, Mapping)),
    tuple: ("a list", lambda v: isinstance(v, (tuple, list))),
    os.PathLike: ("a path", lambda v: isinstance(v, os.PathLike)),
    types.NoneType: ("None", lambda v: v is None),
}


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
    table = read_array(path, **options)
    return Dataset(
        path.stem,
        X=table.X,
        columns=table.columns,
        image_shape=table.image_shape,
        about=f"Rows of {path}.",
    )
