"""What a command reads: the model in DIR; the rows and labels that --data, --split and --data-option name."""

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


SECOND_STAGE = "second-stage"  # within a model's folder: the folder of a model of its codes
CODES_OF = "codes-of.txt"  # within that: the name of the weights whose codes they are


def load_model(folder: Path) -> SparseCoder:
    from sparsevae.models import load

    est: SparseCoder = load(folder)
    return est


def load_second_stage(folder: Path) -> SparseCoder:
    """The model of a saved model's codes; refused where that has been trained since."""
    from sparsevae.storage.atomic import read_file
    from sparsevae.storage.folder import weights_name

    place = folder / SECOND_STAGE
    if not place.exists():
        raise ValueError("this model has no second stage; fit one first: `sparsevae second-stage DIR --data D`.")
    if (place / CODES_OF).exists() and read_file(place / CODES_OF, 100).decode() != weights_name(folder):
        raise ValueError(
            f"{place} is of other weights than {folder} holds now; fit it anew: `sparsevae second-stage DIR --data D`."
        )
    return load_model(place)


def dataset(
    data: str, split: Part | None, options: Iterable[str] | None, column: str | None = None, *, texts: bool = False
) -> tuple[Dataset, Part]:
    """The data set that --data names, and the part that --split means.

    `column` holds the texts of a table; `texts` says that there must be some, since the model was fitted on them.
    """
    from sparsevae.data import load, names
    from sparsevae.inputs.kind import is_text_file

    text_file = is_text_file(data, column, expected=texts)
    if text_file:
        found = _texts(data, _column(data, options or (), fitted=texts) or column)
    else:
        found = load(data, **_chosen(data, options or ()))
    if data in names():
        found = dataclasses.replace(found, columns=None)  # always the same; those of files may differ
    if not found.X.shape[0]:
        raise ValueError(f"{data} is empty: expected rows of numbers, or a text a line.")
    if split is Part.TEST and found.X_test is None:
        raise ValueError(f"{data} has no test part; leave --split out.")
    return found, Part.TRAIN if split is Part.TRAIN or found.X_test is None else Part.TEST


def _chosen(data: str, options: Iterable[str]) -> dict[str, Any]:
    """What --data-option says, as values of the types that the data set wants.

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
        with suppress(ValueError, SyntaxError):  # a word stays a word
            value = ast.literal_eval(text)
            chosen[name] = value if fits(value, known.get(name, object)) or not fits(text, known[name]) else text
    return chosen


def _column(data: str, options: Iterable[str], *, fitted: bool) -> str | None:
    """The one option of texts: the column of a table, where that is not the fitted model's own."""
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


def _texts(data: str, column: str | None) -> Dataset:
    """The texts of a file."""
    import numpy as np

    from sparsevae.data import Dataset
    from sparsevae.inputs.texts import texts_of

    return Dataset(data, X=np.array(texts_of(Path(data), column), dtype=object))


def rows(est: SparseCoder, data: str, split: Part | None, options: Iterable[str] | None) -> tuple[Any, Part, Dataset]:
    """The rows that --data and --split name, as a fitted model reads them; which part they are, and of what."""
    from sparsevae.inputs.texts import Texts

    found, part = dataset(data, split, options, est.input_.column, texts=isinstance(est.input_, Texts))
    return part_of(found, part), part, found


def part_of(found: Dataset, part: Part) -> Any:
    """One part of a data set, with the names of its columns where they count."""
    from sparsevae.data import Table

    X: Any = found.X if part is Part.TRAIN else found.X_test
    return X if found.columns is None else Table(X, found.columns)


def as_labelled(est: SparseCoder) -> FromLabels | None:
    """The model, where it learns from labels."""
    from sparsevae.estimator.supervised import FromLabels

    return est if isinstance(est, FromLabels) else None


def labels(est: FromLabels, data: str, found: Dataset, part: Part) -> tuple[Any, list[str] | None]:
    """What a model learns from beside the rows, and the names of its labels where they have any."""
    import numpy as np

    y, truth = (found.y, found.truth) if part is Part.TRAIN else (found.y_test, found.truth_test)
    y = y if est.target == "y" else truth.get(est.target)
    if y is None:
        raise ValueError(f"{type(est).__name__} learns from {est.target}, and {data} ({part.value}) has none.")
    names = found.label_names if est.target == "y" else None
    if names is None or y.ndim == 2:
        return y, None if names is None else list(names)
    return y, [names[int(c)] for c in np.unique(y)]
