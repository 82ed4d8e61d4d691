"""A page about a fitted model: its numbers and its pictures in one HTML file that needs nothing else.

Its sections depend on the data: here those of rows of numbers, in `text_page` those of texts.
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
from sparsevae.inputs.texts import Texts
from sparsevae.report import figures
from sparsevae.report.elements import Picture, Table, picture, settings, training
from sparsevae.report.text_page import text_sections
from sparsevae.report.view import View, make_view
from sparsevae.storage.atomic import write_file

CAPS = (1, 2, 3, 5, 10, 20, 50, 100)
CAPPED = (
    "What a cap costs",
    "The error where a code may have at most so many non-zeros: the units most probably on are kept.",
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
    """Write one self-contained HTML page about a fitted model, as seen on the rows of X.

    Of a model of texts it shows texts told again from their codes, codes as bars, and the words of every unit.

    Parameters
    ----------
    est : SparseCoder
        A fitted model.
    X : whatever `est.transform` takes
        Rows to judge the model by, best ones that it was not trained on. Numbers come from all rows, pictures from
        at most 2,000.
    path : str or Path
        The file to write, whole or not at all.
    image_shape : (height, width) or (height, width, 3)
        Draws rows as images; the model's own where it has one. Without either they are columns of a heat map, with the
        feature names that `fit` saw, and a log message names the shape that images of so many values commonly have.
        Texts have none.
    labels : one per row, none missing, all of one kind
        Known classes, to name items and to say what a unit goes along with. The model never sees them.
    title : str
        Heading of the page.

    Returns
    -------
    Path
        Where the page is.
    """
    check_coder("report", est)
    if est.model_.labelled:
        raise TypeError(
            f"report shows codes and what is told from them, and {type(est).__name__} predicts labels: "
            "use its evaluate(X, y)."
        )
    X = as_list(X)
    if isinstance(est.input_, Texts):
        if image_shape is not None:
            raise ValueError(f"image_shape is for rows of numbers, and this {type(est).__name__} was fitted on texts.")
        codes, sections = text_sections(est, X, labels)
        beside = {}
    else:
        view = make_view(est, X, image_shape=image_shape, labels=labels)
        codes, sections = view.codes, _pictures(est, view)
        beside = {"mean_mse": float(view.rows.var(0).mean())}
    most = int((codes != 0).sum(1).max())
    caps = [cap for cap in CAPS if cap < most] if est.fitted_.sparse else []
    r = {**est.evaluate(X, caps=caps), "units_in_use": int((codes != 0).any(0).sum()), **beside}
    html = _template().render(
        title=title or f"{type(est).__name__} on {r['rows']:,} {'texts' if 'words' in r else 'rows'}",
        headline=_headline(est, r),
        settings=settings(est),
        numbers=numbers(r),
        sections=[*sections, *training(est), *([Table(*CAPPED, *cost_of_caps(r), kind="numbers")] if caps else [])],
        version=__version__,
    )
    write_file(path, html.encode(errors="backslashreplace"))  # a lone surrogate
    return Path(path)


def _template() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("sparsevae.report")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.filters["sha256"] = _sha256
    return environment.get_template("report.html")


def _sha256(text: str) -> str:
    """The hash by which the page's Content-Security-Policy knows its own style."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _headline(est: SparseCoder, r: Mapping[str, Any]) -> str:
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
    image, known = view.image_shape is not None, view.labels is not None
    typical = "Typical rows of each label" if known else "Rows, evenly from the best to the worst reconstructed"
    rows = "" if image else " Columns are rows of X, colours deviations from each feature's mean (blue above)."
    if not image and len(view.columns) < est.n_features_in_:
        rows += f" Of {est.n_features_in_:,} features these are the {len(view.columns)} that are reconstructed best."
    bars = (
        "A zero is no bar at all: look how few there are."
        if view.sparse
        else "This code is dense: no unit is ever off."
    )
    walk = "from off to the strong end of its usual values (end to end through off, where it goes both ways)"
    walk = walk if view.sparse else "from end to end of its usual values"
    walk = "off and at whole numbers up to its largest usual value" if view.whole else walk
    use = "how often it is on" if view.sparse else "how far its values spread"
    use += ", and how its rows split over the labels" if known and view.sparse else ""
    yield picture(
        "Reconstructions",
        f"{typical}; below each, what its code decodes to.{rows}",
        figures.reconstructions(view),
    )
    yield picture(
        "Codes",
        f"Left an item, in the middle its code with one bar per unit (blue positive, orange negative, the number names "
        f"the unit), right what it decodes to. {bars}",
        figures.codes(view),
    )
    yield picture(
        "What a unit does",
        f"Each line decodes a code in which one unit alone is not zero, {walk}. The most used units come first.",
        figures.traversal(view),
    )
    yield picture(
        "What a unit adds",
        f"Decoded with the unit minus decoded without it, averaged over the rows that use it (blue more, orange less); "
        f"the rows in which it is strongest; {use}.",
        figures.features(view),
    )
    yield picture(
        "How often units are on",
        "Left, each unit's share of rows, most used first; right, how many units the rows have on.",
        figures.usage(view),
    )
