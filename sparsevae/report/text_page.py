"""Sections of the page about a model of texts: texts decoded from their codes, codes as bars, the words of units."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from sparsevae.analysis.unit_words import TopWords, top_texts, top_words
from sparsevae.estimator.coder import SparseCoder
from sparsevae.inputs.texts import Texts
from sparsevae.metrics import arrays
from sparsevae.report import figures
from sparsevae.report.elements import Picture, Table, picture
from sparsevae.report.figures import draw_code
from sparsevae.report.style import FAINT, Array, new_figure, row_label, spaced

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ITEMS = 8  # most texts with their reconstructions
UNITS = 24  # most lines of the table of words
WORDS = 8  # words per unit
SAMPLES = 5  # texts from the prior
LONGEST = 160  # most characters of a text in the table of words


def text_sections(est: SparseCoder, X: Any, labels: Any) -> tuple[Array, Iterator[Picture | Table]]:
    """Codes (n, J) of texts X, and the sections of the page; `labels` as in `report`."""
    source = cast(Texts, est.input_)
    rows = est.fitted_.rows(X)
    known = None if labels is None else arrays.labels(labels, len(rows), "labels")
    codes = est.transform(X)
    codes = np.asarray(codes.toarray() if hasattr(codes, "toarray") else codes)
    return codes, _sections(est, X, source.vocabulary.decode(rows), codes, known)


def _sections(
    est: SparseCoder, X: Any, read: Sequence[str], codes: Array, labels: Array | None
) -> Iterator[Picture | Table]:
    items = _items(len(read), labels)
    names = [str(number) for number in range(1, len(items) + 1)]
    columns = {"": names}
    if labels is not None:
        columns["label"] = [str(labels[i]) for i in items]
    columns |= {"text": [read[i] for i in items], "decoded": est.inverse_transform(codes[items])}
    yield Table(
        "Reconstructions",
        "Left a text as the model reads it (words outside the vocabulary are _UNK), right the text decoded from its "
        "code with the most probable word at each place.",
        list(columns),
        list(zip(*columns.values(), strict=True)),
    )
    zero = "A zero has no bar." if est.fitted_.sparse else "This code is dense: no unit is ever off."
    yield picture(
        "Codes",
        f"The codes of these texts, one bar per unit (blue positive, orange negative, with the unit's number). {zero}",
        _bars(codes[items], names),
    )
    words, texts = top_words(est, X, WORDS, poles=True), top_texts(est, X, 1, poles=True)
    yield Table(
        "Words of units",
        "The words associated with large values of a unit, + and - apart, best first, and the text in which it is "
        "largest. Coherence: 1 if the words occur only together, 0 if independently. The most used units come first.",
        ["unit", "on in" if est.fitted_.sparse else "spread", "coherence", "words", "for example"],
        _units(est, codes, words, texts),
    )
    yield Table(
        "Texts from the prior",
        "Texts decoded from codes drawn from the prior: with the most probable words, and with words drawn.",
        ["most probable", "drawn"],
        list(zip(est.sample(SAMPLES), est.sample(SAMPLES, noise=True), strict=True)),
    )
    yield picture(
        "How often units are on",
        "Left, each unit's share of texts, most used first; right, how many units the texts have on.",
        figures.code_usage(codes),
    )


def _items(n: int, labels: Array | None) -> list[int]:
    """Positions of at most `ITEMS` texts, evenly spaced; with labels, evenly over at most `ITEMS` of the labels."""
    if labels is None:
        return [int(i) for i in spaced(np.arange(n), ITEMS)]
    values = spaced(np.unique(labels), ITEMS)
    return [int(i) for value in values for i in np.flatnonzero(labels == value)[: ITEMS // len(values)]]


def _bars(codes: Array, names: Sequence[str]) -> Figure:
    """Codes (n, J) as bars, one line per code."""
    figure = new_figure(9.5, 0.6 * len(codes) + 0.4)
    axes = figure.subplots(len(codes), 1, squeeze=False)[:, 0]
    limit = 1.3 * np.abs(codes).max() or 1.0
    for ax, code, name in zip(axes, codes, names, strict=True):
        draw_code(ax, code, limit)
        row_label(ax, name)
    axes[-1].tick_params(labelbottom=True)
    axes[-1].set_xlabel("unit", fontsize=8, color=FAINT)
    return figure


def _units(est: SparseCoder, codes: Array, found: TopWords, texts: Sequence[Sequence[str]]) -> list[list[str]]:
    """Lines of the table of words: poles with some word, of the units most often on or with the largest deviation."""
    use = (codes != 0).mean(0) if est.fitted_.sparse else codes.std(0)
    order = [pole for unit in np.argsort(-use, kind="stable") for pole in (2 * unit, 2 * unit + 1) if found.words[pole]]
    lines = []
    for pole in order[:UNITS]:
        share = f"{use[pole // 2]:.0%}" if est.fitted_.sparse else f"{use[pole // 2]:.2f}"
        coherence = "" if np.isnan(found.coherence[pole]) else f"{found.coherence[pole]:.2f}"
        example = " ".join(texts[pole][0].split()) if texts[pole] else ""
        example = example if len(example) <= LONGEST else f"{example[:LONGEST]}..."
        lines.append([found.units[pole], share, coherence, " ".join(found.words[pole]), example])
    return lines
