"""The inputs of a command: the model in DIR; rows and labels by --data, --split and --data-option."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from sparsevae.cli.options import Part

if TYPE_CHECKING:
    from sparsevae.data import Dataset
    from sparsevae.estimator.coder import SparseCoder
    from sparsevae.estimator.supervised import FromLabels


SECOND_STAGE = "second-stage"  # the folder of a second stage, within the model's folder
CODES_OF = "codes-of.txt"  # a file in that folder: the name of the weights that the codes were computed with


def load_model(folder: Path) -> SparseCoder:
    from sparsevae.models import load

    est: SparseCoder = load(folder)
    return est


def load_second_stage(folder: Path) -> SparseCoder:
    """The second stage of a saved model; an error if the model was trained after it."""
    from sparsevae.storage.atomic import read_file
    from sparsevae.storage.folder import weights_name

    place = folder / SECOND_STAGE
    if not place.exists():
        raise ValueError("this model has no second stage; fit one first: `sparsevae second-stage DIR --data D`.")
    if (place / CODES_OF).exists() and read_file(place / CODES_OF, 100).decode() != weights_name(folder):
        raise ValueError(
            f"{place} belongs to other weights than those of {folder}; fit it again: "
            "`sparsevae second-stage DIR --data D`."
        )
    return load_model(place)


def dataset(
    data: str, split: Part | None, options: Iterable[str] | None, column: str | None = None, *, texts: bool = False
) -> tuple[Dataset, Part]:
    """The data set of --data, and the part of --split.

    `column` is the column of texts of a table; `texts` is true if the model was fitted on texts.
    """
    import numpy as np

    from sparsevae.data import Dataset, load, names
    from sparsevae.inputs.kind import is_text_file
    from sparsevae.inputs.texts import texts_of

    text_file = is_text_file(data, column, expected=texts)
    if text_file:
        values = texts_of(Path(data), _column(data, options or (), fitted=texts) or column)
        found = Dataset(data, X=np.array(values, dtype=object))
    else:
        found = load(data, **_chosen(data, options or ()))
    if data in names():
        found = dataclasses.replace(found, columns=None)  # named data sets always have the same columns
    if not found.X.shape[0]:
        raise ValueError(f"{data} is empty: expected rows of numbers, or one text per line.")
    if split is Part.TEST and found.X_test is None:
        raise ValueError(f"{data} has no test part; leave --split out.")
    return found, Part.TRAIN if split is Part.TRAIN or found.X_test is None else Part.TEST


def _chosen(data: str, options: Iterable[str]) -> dict[str, Any]:
    """The values of --data-option by name, converted to the types that the data set expects.

    >>> _chosen("tiles", ["n=40", "overlap=True"]), _chosen("two.npz", ["key=1"])
    ({'n': 40, 'overlap': True}, {'key': '1'})
    """
    from sparsevae.data.catalogue import fits, kinds

    known, chosen = kinds(data), {}
    for option in options:
        name, equals, text = option.partition("=")
        if not equals:
            raise typer.BadParameter(f"expected NAME=VALUE, got {option!r}", param_hint="'--data-option'")
        chosen[name] = text
        with suppress(ValueError, SyntaxError):  # no Python literal: it stays a str
            value = ast.literal_eval(text)
            chosen[name] = value if fits(value, known.get(name, object)) or not fits(text, known[name]) else text
    return chosen


def _column(data: str, options: Iterable[str], *, fitted: bool) -> str | None:
    """The column of texts by --data-option column=NAME, the only option of texts; None if not given."""
    column = None
    for option in options:
        name, _, column = option.partition("=")
        if Path(data).suffix.lower() == ".txt":
            problem = "a .txt has none"
        elif not fitted:
            problem = "--text-column names the column of texts"
        elif name != "column" or not column:
            problem = "a table of texts takes column=NAME"
        else:
            continue
        raise typer.BadParameter(f"{problem}, got {option!r}", param_hint="'--data-option'")
    return column


def rows(est: SparseCoder, data: str, split: Part | None, options: Iterable[str] | None) -> tuple[Any, Part, Dataset]:
    """The rows of --data and --split for a fitted model, their part, and the whole data set."""
    found, part = dataset(data, split, options, est.input_.column, texts=est.input_.kind == "texts")
    return part_of(found, part), part, found


def part_of(found: Dataset, part: Part) -> Any:
    """The rows of one part of a data set; a table with names of columns, if the data set has them."""
    from sparsevae.data import Table

    X: Any = found.X if part is Part.TRAIN else found.X_test
    return X if found.columns is None else Table(X, found.columns)


def as_labelled(est: SparseCoder) -> FromLabels | None:
    """The model if it is supervised, else None."""
    from sparsevae.estimator.supervised import FromLabels

    return est if isinstance(est, FromLabels) else None


def labels(est: FromLabels, data: str, found: Dataset, part: Part) -> tuple[Any, list[str] | None]:
    """The targets of a supervised model for one part of a data set, and the names of its labels, if known."""
    import numpy as np

    y, truth = (found.y, found.truth) if part is Part.TRAIN else (found.y_test, found.truth_test)
    y = y if est.target == "y" else truth.get(est.target)
    if y is None:
        raise ValueError(f"{type(est).__name__} learns from {est.target}, and {data} ({part.value}) has none.")
    names = found.label_names if est.target == "y" else None
    if names is None or y.ndim == 2:
        return y, None if names is None else list(names)
    return y, [names[int(c)] for c in np.unique(y)]
