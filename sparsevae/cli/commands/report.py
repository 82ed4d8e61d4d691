"""`sparsevae report`: an HTML page about a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from sparsevae.cli.options import Data, DataOptions, Folder, Json, Part, Split, image_shape_option, out_option
from sparsevae.cli.places import ending_of
from sparsevae.cli.printing import print_result
from sparsevae.cli.sources import as_labelled, load_model, rows


def report(
    folder: Folder,
    data: Data,
    out: Annotated[Path, out_option("FILE", "The page to write.")] = Path("report.html"),
    title: Annotated[str | None, typer.Option(help="Heading of the page.")] = None,
    image_shape: Annotated[
        Any, image_shape_option("Size of an image; by default the model's or the data set's.")
    ] = None,
    split: Split = None,
    data_option: DataOptions = None,
    as_json: Json = False,
) -> None:
    """Write a page of numbers and pictures.

    For a model of texts it shows texts decoded from their codes, and the words of every unit.
    """
    from sparsevae.report.page import report

    ending_of(out, ".html")
    est = load_model(folder)
    if as_labelled(est):
        raise ValueError(f"a report shows codes of X, and {type(est).__name__} predicts labels: use evaluate.")
    X, part, found = rows(est, data, split, data_option)
    y = found.y if part is Part.TRAIN else found.y_test
    labels: Any = None if y is None or y.ndim != 1 else y
    if labels is not None and found.label_names is not None:
        labels = [found.label_names[int(c)] for c in labels]
    if not image_shape and est.image_shape is None and est.input_.kind != "texts":
        image_shape = found.image_shape
    page = report(est, X, out, image_shape=image_shape or None, labels=labels, title=title)
    about = {"model": type(est).__name__, "data": data, "split": part}
    print_result({**about, "out": str(page), "rows": X.shape[0], "bytes": page.stat().st_size}, page, as_json)
