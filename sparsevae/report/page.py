"""A page about a fitted model: numbers and pictures in one self-contained HTML file.

The sections about rows of numbers are in this module, those about texts in `text_page`.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sparsevae import __version__
from sparsevae.analysis.audit import check_coder
from sparsevae.analysis.scores import cost_of_caps, numbers
from sparsevae.estimator.coder import SparseCoder
from sparsevae.inputs.kind import as_list
from sparsevae.report import figures
from sparsevae.report.elements import Picture, Table, picture, settings, training
from sparsevae.report.text_page import text_sections
from sparsevae.report.view import View, make_view
from sparsevae.storage.atomic import write_file

CAPS = (1, 2, 3, 5, 10, 20, 50, 100)
CAPPED = (
    "What a cap costs",
    "The error with at most so many non-zeros per code: the units with the largest P(on) are kept.",
)


def report(
    est: SparseCoder,
    X: Any,
    path: str | Path,
    *,
    image_shape: Sequence[int] | None = None,
    labels: Any = None,
    title: str | None = None,
) -> Path:
    """Write one self-contained HTML page about a fitted model, measured on the rows of X.

    For a model of texts it shows texts decoded from their codes, codes as bars, and the words of every unit.

    Parameters
    ----------
    est : SparseCoder
        A fitted model.
    X : whatever `est.transform` takes
        Rows to measure the model on, preferably not its training rows. Numbers are computed from all rows, pictures
        from at most 2,000.
    path : str or Path
        The file to write, in one atomic step.
    image_shape : (height, width) or (height, width, 3)
        The shape in which rows are drawn as images. Default: the model's own. Without either, rows are columns of a
        heat map with the feature names of `fit`, and a log message suggests a shape of images of so many values.
        Not allowed for texts.
    labels : one per row, none missing, all of one type
        Known classes, which name the rows and are counted per unit. They do not enter the model.
    title : str
        Heading of the page.

    Returns
    -------
    Path
        The path of the page.
    """
    check_coder("report", est)
    if est.model_.labelled:
        raise TypeError(
            f"report shows codes and rows decoded from them, and {type(est).__name__} predicts labels: "
            "use its evaluate(X, y)."
        )
    X = as_list(X)
    if est.input_.kind == "texts":
        if image_shape is not None:
            raise ValueError(f"image_shape is for rows of numbers, and this {type(est).__name__} was fitted on texts.")
        codes, sections = text_sections(est, X, labels)
    else:
        view = make_view(est, X, image_shape=image_shape, labels=labels)
        codes, sections = view.codes, _pictures(est, view)
    most = int((codes != 0).sum(1).max())
    caps = [cap for cap in CAPS if cap < most] if est.fitted_.sparse else []
    r = est.evaluate(X, caps=caps)
    html = _template().render(
        title=title or f"{type(est).__name__} on {r['rows']:,} {'texts' if 'words' in r else 'rows'}",
        headline=_headline(est, r),
        settings=settings(est),
        numbers=numbers(r),
        sections=[*sections, *training(est), *([Table(*CAPPED, *cost_of_caps(r), kind="numbers")] if caps else [])],
        version=__version__,
    )
    write_file(path, html.encode(errors="backslashreplace"))  # a lone surrogate is not in UTF-8
    return Path(path)


def _template() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    def sha256(text: str) -> str:
        """The hash of the page's own style for its Content-Security-Policy."""
        return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()

    loader = PackageLoader("sparsevae.report")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.filters["sha256"] = sha256
    return environment.get_template("report.html")


def _headline(est: SparseCoder, r: Mapping[str, Any]) -> str:
    """One sentence on the size and the sparsity of codes."""
    kind, j = type(est).__name__, r["n_components"]
    if "words" in r:
        item, size = "text", f", of {r['words'] - 1:.1f} words on average,"
    else:
        item, size = "row", f" of {est.n_features_in_:,} values"
    if not est.fitted_.sparse:
        return f"This {kind} describes each {item}{size} by {j} numbers, all of them in use in every {item}."
    if r["nonzeros_mode"] == 0:
        return f"The code of every {item} is zero: none of the {j} units of this {kind} distinguishes {item}s."
    return (
        f"This {kind} describes each {item}{size} by {r['nonzeros_mode']:.1f} numbers on average; the other units of "
        f"its {j}, different ones from {item} to {item}, are exactly zero."
    )


def _pictures(est: SparseCoder, view: View) -> Iterator[Picture]:
    """The sections of a page about rows of numbers."""
    image, known = view.image_shape is not None, view.labels is not None
    typical = "Typical rows of each label" if known else "Rows, evenly from the best to the worst reconstructed"
    rows = "" if image else " Columns are rows of X, colours deviations from each feature's mean (blue above)."
    if not image and len(view.columns) < est.n_features_in_:
        rows += f" Of {est.n_features_in_:,} features these are the {len(view.columns)} that are reconstructed best."
    bars = "A zero has no bar." if view.sparse else "This code is dense: no unit is ever off."
    walk = "from 0 to the 95 % quantile of its size (from its 5 % to its 95 % quantile, if it has both signs)"
    walk = "at whole numbers from 0 to the 95 % quantile of its values" if view.whole else walk
    use = "the share of rows in which it is on" if view.sparse else "the standard deviation of its values"
    use += ", and the commonest labels of these rows" if known and view.sparse else ""
    yield picture(
        "Reconstructions",
        f"{typical}; below each, its reconstruction from its code.{rows}",
        figures.reconstructions(view),
    )
    yield picture(
        "Codes",
        f"Left a row, in the middle its code with one bar per unit (blue positive, orange negative, with the number of "
        f"the unit), right its reconstruction. {bars}",
        figures.codes(view),
    )
    yield picture(
        "What a unit does",
        f"Each line decodes codes in which one unit alone is not zero, {walk}. The most used units come first.",
        figures.traversal(view),
    )
    yield picture(
        "What a unit adds",
        f"Decoded with the unit minus decoded without it, averaged over the rows that use it (blue more, orange less); "
        f"the rows in which its value is largest; {use}.",
        figures.features(view),
    )
    yield picture(
        "How often units are on",
        "Left, each unit's share of rows, most used first; right, how many units the rows have on.",
        figures.usage(view),
    )
