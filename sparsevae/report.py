"""A page about a fitted model: its numbers and its pictures in one HTML file that needs nothing else.

What is on it depends on the data: here rows of numbers; `text_report` has texts.
"""

from __future__ import annotations

import base64
import hashlib
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sparsevae import __version__, plots
from sparsevae.auditing import check_coder
from sparsevae.estimator import SparseCoder
from sparsevae.evaluation import with_error
from sparsevae.pareto import remark
from sparsevae.storage import write_file
from sparsevae.texts import Texts

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["report"]

CAPS = (1, 2, 3, 5, 10, 20, 50, 100)
SCORES = {
    "bound": "a lower bound on log p(x): hard draws, unit weights",
    "cross-entropy": "a cross-entropy of grey values, not a bound on log p(x)",
    "normalised-row density": "a density of the normalised row, not a bound on log p(x)",
    "joint density at the code": "log p(x, z) at the code of an autoencoder without noise, not a bound on log p(x)",
}


class Number(NamedTuple):
    """A number as the page shows it."""

    name: str
    value: str
    note: str


class Picture(NamedTuple):
    """A figure with its heading and the sentence that says how to read it."""

    title: str
    caption: str
    png: str


class Table(NamedTuple):
    """Lines of words with their heading and the sentence that says how to read them."""

    title: str
    caption: str
    header: Sequence[str]
    lines: Sequence[Sequence[str]]


class Page(NamedTuple):
    """What stands on a page, from its head to its foot; `caps` are the losses of codes with at most so many units."""

    title: str
    headline: str
    settings: Sequence[tuple[str, str]]
    numbers: Sequence[Number]
    loss: str
    free: float
    caps: Mapping[int, float]
    sections: Sequence[Picture | Table]


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
        from sparsevae.text_report import text_page

        if image_shape is not None:
            raise ValueError(f"image_shape is for rows of numbers, and this {type(est).__name__} was fitted on texts.")
        page = text_page(est, X, labels)
    else:
        page = _page(est, X, plots.view(est, X, image_shape=image_shape, labels=labels))
    write_file(path, _rendered(page, title).encode(errors="backslashreplace"))  # a lone surrogate
    return Path(path)


def _page(est: SparseCoder, X: Any, view: plots.View) -> Page:
    most = int((view.codes != 0).sum(1).max())
    caps = [cap for cap in CAPS if cap < most] if est._sparse() else []
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

    loader = PackageLoader("sparsevae")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.filters["sha256"] = _sha256
    return environment.get_template("report.html")


def _sha256(text: str) -> str:
    """The hash by which the page's Content-Security-Policy knows its own style."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def with_article(kind: str) -> str:
    """A model's name at the beginning of a sentence.

    >>> with_article("VSC"), with_article("HSVAE")
    ('A VSC', 'An HSVAE')
    """
    return f"{'An' if kind[:2] in ('HS', 'SD') else 'A'} {kind}"


def _headline(est: SparseCoder, numbers: Mapping[str, Any]) -> str:
    kind, d, j = type(est).__name__, est.n_features_in_, numbers["n_components"]
    if not est._sparse():
        return (
            f"{with_article(kind)} describes each row of {d:,} values by {j} numbers, all of them in use in every row."
        )
    if numbers["nonzeros_mode"] == 0:
        return f"The code of every row is zero: this {kind} tells rows of {d:,} values apart by none of its {j} units."
    return (
        f"{with_article(kind)} describes each row of {d:,} values by {numbers['nonzeros_mode']:.1f} numbers on "
        f"average; the other units of its {j}, different ones from row to row, are exactly zero."
    )


def settings(est: SparseCoder) -> list[tuple[str, str]]:
    """What was trained: the constructor as it came out for these data, the length of the run and the seed."""
    training = est.training_
    own = {k: v for k, v in est.in_force().items() if v is not None and k not in ("variance_floor", "variance")}
    own |= est.model_.likelihood.describe()
    own |= {k: type(getattr(est, k)).__name__ for k in ("encoder", "decoder") if getattr(est, k) is not None}
    own |= {"steps": f"{est.n_steps_:,}", "batch_size": training.batch_size, "learning_rate": training.learning_rate}
    own |= {"seed": training.seed}
    return [(k, str(v)) for k, v in own.items()]


def _beside_the_score(r: Mapping[str, Any]) -> list[Number]:
    """What is said of discrete codes beside their hard score."""
    shown = []
    if "relaxed_objective" in r:
        note = "nats per row: with the draws that training takes; no bound"
        shown.append(Number("relaxed objective", f"{r['relaxed_objective']:.2f}", note))
    if "importance_bound" in r:
        note = f"nats per row: the bound of 1,000 hard samples, on {r['importance_rows']:,} rows"
        note += remark(r["heavy_tails"])
        shown.append(Number("importance bound", f"{r['importance_bound']:.2f}", note))
    return shown


def _numbers(est: SparseCoder, r: Mapping[str, Any], view: plots.View) -> list[Number]:
    used, spread = int((view.usage > 0).sum()), float(view.rows.var(0).mean())
    units = "of normalised rows" if r["score_meaning"] == "normalised-row density" else "in the units of the data"
    return [
        Number("rows", f"{r['rows']:,}", "that the numbers on this page are computed from"),
        *of_code(est, r, used, "row"),
        Number("squared error", f"{r['mse']:.4g}", f"per value, {units}, whose variance is {spread:.4g}"),
        *of_score(r, "row"),
    ]


def of_code(est: SparseCoder, r: Mapping[str, Any], used: int, item: str) -> list[Number]:
    """How many units a code has on, and how many of them do anything."""
    active = f"of {r['n_components']}: their mean varies over {item}s by more than 0.01"
    shown = [Number("active units", str(r["active_units"]), active)]
    if not est._sparse():
        return shown
    note = f"of {r['n_components']}, in the code (the mode); {r['nonzeros_drawn']:.2f} in a random draw, "
    note += f"{r['nonzeros_expected']:.2f} expected (sum of P(on))"
    return [
        Number(f"non-zeros per {item}", f"{r['nonzeros_mode']:.2f}", note),
        Number("units in use", str(used), f"of {r['n_components']}: on in the code of at least one {item}"),
        *shown,
    ]


def of_score(r: Mapping[str, Any], item: str) -> list[Number]:
    """The score, what it is, and what it pays for the code."""
    score = f"nats per {item}: {SCORES.get(r['score_meaning'], r['score_meaning'])}"
    known = {"variance_floor": "variance floor", "variance": "variance"}
    score += "".join(f"; {text} {r[k]:g}" for k, text in known.items() if k in r)
    return [
        Number("score", with_error(r["score"], r["score_standard_error"]), score),
        *_beside_the_score(r),
        Number("KL", f"{r['kl']:.2f}", f"nats per {item}: what the code tells about a {item}, beyond the prior"),
    ]


def _more(mse: float, free: float) -> str:
    return f"{mse / free - 1:+.1%}" if free else ""


def _pictures(est: SparseCoder, view: plots.View) -> Iterator[Picture]:
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
    told = "how often it is on" if view.sparse else "how far its values spread"
    told += ", and how its rows split over the labels" if known and view.sparse else ""
    yield picture(
        "Reconstructions",
        f"{typical}; below each, what its code decodes to.{rows}",
        plots.reconstructions(view),
    )
    yield picture(
        "Codes",
        f"Left an item, in the middle its code with one bar per unit (blue positive, orange negative, the number names "
        f"the unit), right what it decodes to. {bars}",
        plots.codes(view),
    )
    yield picture(
        "What a unit does",
        f"Each line decodes a code in which one unit alone is not zero, {walk}. The most used units come first.",
        plots.traversal(view),
    )
    yield picture(
        "What a unit adds",
        f"Decoded with the unit minus decoded without it, averaged over the rows that use it (blue more, orange less); "
        f"the rows in which it is strongest; {told}.",
        plots.features(view),
    )
    yield picture(
        "How often units are on",
        "Left, each unit's share of rows, most used first; right, how many units the rows have on.",
        plots.usage(view),
    )
    yield from training(est)


def training(est: SparseCoder) -> Iterator[Picture]:
    """The course of the run, where it is known."""
    if est.history_:
        yield picture(
            "Training",
            "The course of the run. The training objective (relaxed, weighted) is neither a bound nor the score.",
            plots.training_curves(est),
        )


def picture(title: str, caption: str, figure: Figure) -> Picture:
    return Picture(title, caption, base64.b64encode(png(figure)).decode())


def png(figure: Figure, dpi: int = 130) -> bytes:
    """A figure as the bytes of a PNG file, the same ones for the same figure."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi, metadata={"Software": None})
    return buffer.getvalue()
