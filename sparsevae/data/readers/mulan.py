"""Mulan's format: an ARFF table, and an XML file that lists which of its columns are labels."""

from __future__ import annotations

import os
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np

from sparsevae.data.dataset import Dataset, Rows
from sparsevae.data.readers.arff import Arff, read_arff, short
from sparsevae.exceptions import DataFileError
from sparsevae.files import parsing, read_all


def read_mulan(
    table: str | os.PathLike[str],
    labels: str | os.PathLike[str],
    *,
    test: str | os.PathLike[str] | None = None,
    drop_unlabelled: bool = False,
    name: str | None = None,
    about: str | None = None,
) -> Dataset:
    """Read a multi-label data set in Mulan's format.

    Parameters
    ----------
    table : path
        The ARFF file (:func:`read_arff`).
    labels : path
        The XML file with the names of the columns that are labels (:func:`read_labels`), whose values are 0 and 1.
    test : path or None
        Another ARFF file of the same columns, for X_test and y_test.
    drop_unlabelled : bool
        Leave out the rows without any label.
    name, about : str or None
        For the Dataset; None means the name of the file.

    Returns
    -------
    Dataset with X float64 of shape (n, d), CSR if the file has sparse rows; y uint8 of shape (n, L), its columns
    in the order of the XML file, named by ``label_names``; ``columns`` are the names of the features.
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
    return as_dataset(name or Path(table).stem, parts, _features(read, names), names, about, drop_unlabelled)


def as_dataset(
    name: str,
    parts: list[tuple[Rows, np.ndarray]],
    columns: tuple[str, ...] | None,
    label_names: tuple[str, ...] | None,
    about: str,
    drop_unlabelled: bool,
) -> Dataset:
    """A Dataset of one or two parts (X, Y): training, and testing if there is a second part."""
    if drop_unlabelled:
        parts = [(X[np.flatnonzero(Y.any(1))], Y[Y.any(1)]) for X, Y in parts]
    (X, Y), (X_test, Y_test) = parts[0], parts[1] if len(parts) > 1 else (None, None)
    return Dataset(name, X=X, X_test=X_test, y=Y, y_test=Y_test, columns=columns, label_names=label_names, about=about)


def _features(table: Arff, names: tuple[str, ...]) -> tuple[str, ...]:
    """The columns that are not labels."""
    labels = set(names)
    return tuple(column for column in table.columns if column not in labels)


def _part(path: Path, table: Arff, names: tuple[str, ...], labels: Path) -> tuple[Rows, np.ndarray]:
    """X (n, d), the features, and Y (n, L), the labels in the order of their names."""
    where = {column: index for index, column in enumerate(table.columns)}
    for name in names:
        if name not in where:
            close = get_close_matches(name, where, n=1)  # not all names: there may be thousands
            hint = f"; did you mean {short(close[0])}?" if close else ""
            raise ValueError(f"{labels} names a label {short(name)}, and {path} has no such attribute{hint}")
    inside = [where[name] for name in names]
    outside = [where[column] for column in _features(table, names)]
    if not outside:
        raise ValueError(f"{path}: every attribute is a label in {labels}, and no feature is left")
    chosen = table.X[:, inside]
    Y = np.asarray(chosen.toarray() if hasattr(chosen, "toarray") else chosen)
    for label, name in enumerate(names):
        declared = table.values[inside[label]] or ()
        if not np.isin(Y[:, label], (0, 1)).all() or not set(declared) <= {"0", "1"}:  # of {yes, no}, which is 1?
            found = declared or tuple(np.unique(Y[:, label])[:5].tolist())
            values = str(found)[:100]
            raise ValueError(f"{path}: the label {short(name)} must be 0 or 1 in every row; its values are {values}")
    return table.X[:, outside], Y.astype(np.uint8)


def read_labels(path: str | os.PathLike[str]) -> tuple[str, ...]:
    """Read the names of the labels from Mulan's XML, in the order of the file; an outer label precedes its inner ones.

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
            raise fault(f"the label {short(name)} is in line {names[name]} too")
        names[name] = parser.CurrentLineNumber

    def end(tag: str) -> None:
        nonlocal depth
        depth -= 1

    def entity(name: str, *rest: Any) -> None:
        # a few entities can expand to gigabytes
        raise fault(f"the entity {short(name)} is declared; replace it by its value")

    parser.StartElementHandler, parser.EndElementHandler, parser.EntityDeclHandler = start, end, entity
    with parsing(path, "not XML"):
        try:
            parser.Parse(raw, True)
        except expat.ExpatError as error:
            raise fault(f"not XML ({error})") from error
    if not names:
        raise ValueError(f"{path}: no label in it")
    return tuple(names)
