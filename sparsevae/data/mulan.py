"""Multi-label sets in Mulan's format: an ARFF table, and an XML file that says which of its columns are labels.

References
----------
G. Tsoumakas, E. Spyromitros-Xioufis, J. Vilcek, I. Vlahavas, "Mulan: a Java library for multi-label learning", JMLR 12,
2011.
"""

from __future__ import annotations

import os
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np

from sparsevae.numeric import check_seed
from sparsevae.opening import DataFileError, parsing, read_all

from .arff import Arff, read_arff, short
from .dataset import Dataset, Rows
from .fetch import Collection

ABOUT_EMOTIONS = (
    "593 pieces of music, 72 features of rhythm and timbre, 6 emotions of which a piece has one to three (Trohidis, "
    "Tsoumakas, Kalliris and Vlahavas, ISMIR 2008); distributed with Mulan, no licence stated."
)
ABOUT_BIRDS = (
    "645 recordings of ten seconds in a forest, 260 features, 19 species of birds; in 294 recordings none is heard "
    "(Briggs et al., MLSP 2013); distributed with Mulan, no licence stated."
)
ABOUT_CAL500 = (
    "502 popular songs, 68 features of the sound, 174 tags (emotion, instrument, genre, ...), 26 a song on average "
    "(Turnbull, Barrington, Torres and Lanckriet, IEEE TASLP 2008); distributed with Mulan, no licence stated."
)


def _collection(name: str, sha256: dict[str, str]) -> Collection:
    place = f"data/multi-label/{name}/"
    return Collection(
        name,
        sha256,
        (
            f"https://raw.githubusercontent.com/tsoumakas/mulan/master/{place}",
            f"https://github.com/tsoumakas/mulan/raw/43f6389/{place}",
        ),
    )


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
    return _own_split(EMOTIONS, ABOUT_EMOTIONS, drop_unlabelled)


def make_birds(*, drop_unlabelled: bool = False) -> Dataset:
    """Load Birds with the split of its files: X (322, 260), X_test (323, 260), y of 19 columns.

    Two features are nominal, with numbers as values: hasSegments, 0 or 1, and location, the number of one of twelve
    places. They are taken as numbers, as the published baselines take them.

    Parameters
    ----------
    drop_unlabelled : bool
        Leave out the rows without any label, in both parts: 179 of 322 and 172 of 323 rows stay.
    """
    return _own_split(BIRDS, ABOUT_BIRDS, drop_unlabelled)


def make_cal500(*, n_train: int = 400, seed: int | None = None, drop_unlabelled: bool = False) -> Dataset:
    """Load CAL500: 502 rows of 68 features, y of 174 columns. It is one file, without a split of its own.

    Parameters
    ----------
    n_train : int from 1 to 502
        Rows for training; the others are for testing (none are left with 502).
    seed : int or None
        Which rows are for training: None takes the first, a number draws them at random; the rows of either part
        stay in the order of the file.
    drop_unlabelled : bool
        Leave out the rows without any label, after the split. (Every song has a tag; the option is that of the
        other sets.)
    """
    if seed is not None:
        check_seed("seed", seed, least=0)
    files = CAL500.fetch()
    whole = read_mulan(files["cal500.arff"], files["cal500.xml"])
    n = whole.X.shape[0]
    if not 1 <= n_train <= n:
        raise ValueError(f"n_train must lie between 1 and the {n} rows of cal500, got {n_train}")
    order = np.arange(n) if seed is None else np.random.default_rng(seed).permutation(n)
    assert whole.y is not None
    split = (np.sort(order[:n_train]), np.sort(order[n_train:]))
    parts = [(whole.X[rows], whole.y[rows]) for rows in split if len(rows)]
    return _dataset("cal500", parts, whole.columns, whole.label_names, ABOUT_CAL500, drop_unlabelled)


def _own_split(files: Collection, about: str, drop_unlabelled: bool) -> Dataset:
    paths = files.fetch()
    train, test, labels = paths.values()
    return read_mulan(train, labels, test=test, drop_unlabelled=drop_unlabelled, name=files.name, about=about)


def read_mulan(
    table: str | os.PathLike[str],
    labels: str | os.PathLike[str],
    *,
    test: str | os.PathLike[str] | None = None,
    drop_unlabelled: bool = False,
    name: str | None = None,
    about: str | None = None,
) -> Dataset:
    """Read any multi-label set in Mulan's format.

    Parameters
    ----------
    table : path
        The ARFF file (:func:`read_arff`).
    labels : path
        The XML file with the names of the columns that are labels (:func:`read_labels`); they hold 0 and 1.
    test : path or None
        Another ARFF file of the same columns, for X_test and y_test.
    drop_unlabelled : bool
        Leave out the rows without any label.
    name, about : str or None
        For the Dataset; None takes them from the file's name.

    Returns
    -------
    Dataset with X float64 of shape (n, d), CSR where the file has sparse rows; y uint8 of shape (n, L), its columns
    in the order of the XML file, named by ``label_names``; ``columns`` names the features.
    """
    names = read_labels(labels)
    parts, columns = [], None
    for path in [table] if test is None else [table, test]:
        read = read_arff(path)
        if columns is not None and (read.columns, read.values) != columns:
            raise ValueError(f"{path}: expected the attributes of {table}, in the same order; they differ")
        columns = read.columns, read.values
        parts.append(_part(Path(path), read, names, Path(labels)))
    about = about or f"Rows of {os.fspath(table)}."
    return _dataset(name or Path(table).stem, parts, _features(read, names), names, about, drop_unlabelled)


def _dataset(
    name: str,
    parts: list[tuple[Rows, np.ndarray]],
    columns: tuple[str, ...] | None,
    label_names: tuple[str, ...] | None,
    about: str,
    drop_unlabelled: bool,
) -> Dataset:
    """One or two parts (X, Y), training and testing, as a Dataset."""
    if drop_unlabelled:
        parts = [(X[np.flatnonzero(Y.any(1))], Y[Y.any(1)]) for X, Y in parts]
    (X, Y), (X_test, Y_test) = parts[0], parts[1] if len(parts) > 1 else (None, None)
    return Dataset(name, X=X, X_test=X_test, y=Y, y_test=Y_test, columns=columns, label_names=label_names, about=about)


def _features(table: Arff, names: tuple[str, ...]) -> tuple[str, ...]:
    """The columns that are no labels."""
    labels = set(names)
    return tuple(column for column in table.columns if column not in labels)


def _part(path: Path, table: Arff, names: tuple[str, ...], labels: Path) -> tuple[Rows, np.ndarray]:
    """X (n, d) of the features and Y (n, L) of the labels, in the order of their names."""
    where = {column: index for index, column in enumerate(table.columns)}
    for name in names:
        if name not in where:
            close = get_close_matches(name, where, n=1)  # not the whole list: there may be thousands
            hint = f"; did you mean {short(close[0])}?" if close else ""
            raise ValueError(f"{labels} names a label {short(name)}, and {path} has no such attribute{hint}")
    inside = [where[name] for name in names]
    outside = [where[column] for column in _features(table, names)]
    if not outside:
        raise ValueError(f"{path}: by {labels} every attribute is a label, and no feature is left")
    chosen = table.X[:, inside]
    Y = np.asarray(chosen.toarray() if hasattr(chosen, "toarray") else chosen)
    for label, name in enumerate(names):
        declared = table.values[inside[label]] or ()
        if not np.isin(Y[:, label], (0, 1)).all() or not set(declared) <= {"0", "1"}:  # of {yes, no}, which is 1?
            held = declared or tuple(np.unique(Y[:, label])[:5].tolist())
            values = str(held)[:100]
            raise ValueError(f"{path}: the label {short(name)} must be 0 or 1 in every row; its values are {values}")
    return table.X[:, outside], Y.astype(np.uint8)


def read_labels(path: str | os.PathLike[str]) -> tuple[str, ...]:
    """The names of the labels in Mulan's XML, in the order of the file; of nested labels the outer comes first.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "music.xml"
    >>> _ = path.write_text('<labels><label name="rock"><label name="punk"/></label><label name="jazz"/></labels>')
    >>> read_labels(path)
    ('rock', 'punk', 'jazz')
    """
    from xml.parsers import expat

    path = Path(path)
    raw = read_all(path)
    names: dict[str, int] = {}  # name -> line
    depth = 0
    parser = expat.ParserCreate()

    def fault(text: str) -> DataFileError:
        return DataFileError(f"{path}, line {parser.CurrentLineNumber}: {text}")

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        wanted = "labels" if depth == 1 else "label"
        if tag.rpartition(":")[2] != wanted:
            raise fault(f"expected <{wanted}>, got <{tag[:60]}>")
        if depth == 1:
            return
        name = attributes.get("name", "")
        if not name:
            raise fault('expected <label name="...">, got a label without a name')
        if name in names:
            raise fault(f"the label {short(name)} stands in line {names[name]} already")
        names[name] = parser.CurrentLineNumber

    def end(tag: str) -> None:
        nonlocal depth
        depth -= 1

    def entity(name: str, *rest: Any) -> None:
        # a few entities could stand for gigabytes
        raise fault(f"the entity {short(name)} is declared; write out what it stands for")

    parser.StartElementHandler, parser.EndElementHandler, parser.EntityDeclHandler = start, end, entity
    with parsing(path, "not XML"):
        try:
            parser.Parse(raw, True)
        except expat.ExpatError as error:
            raise fault(f"not XML ({error})") from error
    if not names:
        raise ValueError(f"{path}: no label in it")
    return tuple(names)
