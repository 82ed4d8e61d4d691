"""The elements of a page, pictures and tables, and the sections that all pages have."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from sparsevae.estimator.coder import SparseCoder
from sparsevae.report import figures

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Picture(NamedTuple):
    """A figure as base64 PNG, with a heading and an explanation."""

    title: str
    caption: str
    png: str


class Table(NamedTuple):
    """A header and lines of text, with a heading and an explanation."""

    title: str
    caption: str
    header: Sequence[str]
    lines: Sequence[Sequence[str]]
    kind: str = "words"  # aligned to the left; "numbers": to the right


def settings(est: SparseCoder) -> list[tuple[str, str]]:
    """Names and values of the settings in force, the number of steps and the seed."""
    training = est.training_
    own = {k: v for k, v in est.in_force().items() if v is not None and k not in ("variance_floor", "variance")}
    own |= est.model_.likelihood.describe()
    own |= {k: type(getattr(est, k)).__name__ for k in ("encoder", "decoder") if getattr(est, k) is not None}
    own |= {"steps": f"{est.n_steps_:,}", "batch_size": training.batch_size, "learning_rate": training.learning_rate}
    if training.early_stopping:
        own |= {"held-out rows": f"{training.validation_fraction:.3g}", "patience": training.patience}
    own |= {"seed": training.seed}
    return [(k, str(v)) for k, v in own.items()]


def training(est: SparseCoder) -> Iterator[Picture]:
    """The training curves, if the estimator has a history."""
    if est.history_:
        yield picture(
            "Training",
            "Quantities by step. The training objective (relaxed, weighted) is neither a bound nor the score.",
            figures.training_curves(est),
        )


def picture(title: str, caption: str, figure: Figure) -> Picture:
    """A figure as an element of a page."""
    return Picture(title, caption, base64.b64encode(png(figure)).decode())


def png(figure: Figure, dpi: int = 130) -> bytes:
    """A figure as the bytes of a PNG file; equal figures have equal bytes."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi, metadata={"Software": None})
    return buffer.getvalue()
