"""What a page is made of: numbers, pictures and tables, and those that pages share."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from sparsevae.estimator.coder import SparseCoder
from sparsevae.estimator.evaluation import with_error
from sparsevae.latent.pareto import remark
from sparsevae.report import figures

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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


def with_article(kind: str) -> str:
    """A model's name at the beginning of a sentence.

    >>> with_article("VSC"), with_article("HSVAE")
    ('A VSC', 'An HSVAE')
    """
    return f"{'An' if kind[:2] in ('HS', 'SD') else 'A'} {kind}"


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


def of_code(est: SparseCoder, r: Mapping[str, Any], used: int, item: str) -> list[Number]:
    """How many units a code has on, and how many of them do anything."""
    active = f"of {r['n_components']}: their mean varies over {item}s by more than 0.01"
    shown = [Number("active units", str(r["active_units"]), active)]
    if not est.fitted_.sparse:
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


def training(est: SparseCoder) -> Iterator[Picture]:
    """The course of the run, where it is known."""
    if est.history_:
        yield picture(
            "Training",
            "The course of the run. The training objective (relaxed, weighted) is neither a bound nor the score.",
            figures.training_curves(est),
        )


def picture(title: str, caption: str, figure: Figure) -> Picture:
    return Picture(title, caption, base64.b64encode(png(figure)).decode())


def png(figure: Figure, dpi: int = 130) -> bytes:
    """A figure as the bytes of a PNG file, the same ones for the same figure."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi, metadata={"Software": None})
    return buffer.getvalue()
