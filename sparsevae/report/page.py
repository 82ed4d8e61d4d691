"""A page about a fitted model: its numbers and its pictures in one HTML file that needs nothing else.

What is on it depends on the data: here rows of numbers; `text_report` has texts.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sparsevae import __version__
from sparsevae.analysis.audit import check_coder
from sparsevae.estimator.coder import SparseCoder
from sparsevae.inputs.texts import Texts
from sparsevae.report import figures
from sparsevae.report.elements import (
    CAPS,
    Number,
    Page,
    Picture,
    of_code,
    of_score,
    picture,
    settings,
    training,
    with_article,
)
from sparsevae.report.text_page import text_page
from sparsevae.report.view import View, make_view
from sparsevae.storage.atomic import write_file


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
    if isinstance(est.input_, Texts):
        if image_shape is not None:
            raise ValueError(f"image_shape is for rows of numbers, and this {type(est).__name__} was fitted on texts.")
        page = text_page(est, X, labels)
    else:
        page = _page(est, X, make_view(est, X, image_shape=image_shape, labels=labels))
    write_file(path, _rendered(page, title).encode(errors="backslashreplace"))  # a lone surrogate
    return Path(path)


def _page(est: SparseCoder, X: Any, view: View) -> Page:
    most = int((view.codes != 0).sum(1).max())
    caps = [cap for cap in CAPS if cap < most] if est.fitted_.sparse else []
    numbers = est.evaluate(X, caps=caps)
    return Page(
        f"{type(est).__name__} on {numbers['rows']:,} rows",
        _headline(est, numbers),
        settings(est),
        _numbers(est, numbers, view),
        "Mean squared error",
        numbers["mse"],
        numbers["caps"],
        list(_pictures(est, view)),
    )


def _rendered(page: Page, title: str | None) -> str:
    caps = [(cap, f"{loss:.4g}", _more(loss, page.free)) for cap, loss in page.caps.items()]
    own = page._asdict() | {"title": title or page.title, "caps": caps, "free": f"{page.free:.4g}"}
    html: str = _template().render(**own, version=__version__)
    return html


def _template() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("sparsevae.report")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.filters["sha256"] = _sha256
    return environment.get_template("report.html")


def _sha256(text: str) -> str:
    """The hash by which the page's Content-Security-Policy knows its own style."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _headline(est: SparseCoder, numbers: Mapping[str, Any]) -> str:
    kind, d, j = type(est).__name__, est.n_features_in_, numbers["n_components"]
    if not est.fitted_.sparse:
        return (
            f"{with_article(kind)} describes each row of {d:,} values by {j} numbers, all of them in use in every row."
        )
    if numbers["nonzeros_mode"] == 0:
        return f"The code of every row is zero: this {kind} tells rows of {d:,} values apart by none of its {j} units."
    return (
        f"{with_article(kind)} describes each row of {d:,} values by {numbers['nonzeros_mode']:.1f} numbers on "
        f"average; the other units of its {j}, different ones from row to row, are exactly zero."
    )


def _numbers(est: SparseCoder, r: Mapping[str, Any], view: View) -> list[Number]:
    used, spread = int((view.usage > 0).sum()), float(view.rows.var(0).mean())
    units = "of normalised rows" if r["score_meaning"] == "normalised-row density" else "in the units of the data"
    return [
        Number("rows", f"{r['rows']:,}", "that the numbers on this page are computed from"),
        *of_code(est, r, used, "row"),
        Number("squared error", f"{r['mse']:.4g}", f"per value, {units}, whose variance is {spread:.4g}"),
        *of_score(r, "row"),
    ]


def _more(mse: float, free: float) -> str:
    return f"{mse / free - 1:+.1%}" if free else ""


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
    yield from training(est)
