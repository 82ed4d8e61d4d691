"""What a page is made of: pictures and tables, and those that pages share."""

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
    """A figure with its heading and the sentence that says how to read it."""

    title: str
    caption: str
    png: str


class Table(NamedTuple):
    """Lines of words or numbers with their heading and the sentence that says how to read them."""

    title: str
    caption: str
    header: Sequence[str]
    lines: Sequence[Sequence[str]]
    kind: str = "words"  # to the left, or "numbers", to the right


def settings(est: SparseCoder) -> list[tuple[str, str]]:
    """What was trained: the constructor as it came out for these data, the length of the run and the seed."""
    training = est.training_
    own = {k: v for k, v in est.in_force().items() if v is not None and k not in ("variance_floor", "variance")}
    own |= est.model_.likelihood.describe()
    own |= {k: type(getattr(est, k)).__name__ for k in ("encoder", "decoder") if getattr(est, k) is not None}
    own |= {"steps": f"{est.n_steps_:,}", "batch_size": training.batch_size, "learning_rate": training.learning_rate}
    own |= {"seed": training.seed}
    return [(k, str(v)) for k, v in own.items()]


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
