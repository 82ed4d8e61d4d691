"""The words and texts associated with each unit of a model of texts.

A unit's weight in a text is the absolute value of its posterior mean, P(on) mu for a unit with a gate: its mode is 0 in
every text if p_on is always below 1/2. Positive and negative values count alike, unless poles are asked for: a unit
whose two signs have different meanings has words for each pole, and may have none for both together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sparsevae import metrics
from sparsevae.analysis.audit import check_coder
from sparsevae.checks import POSITIVE
from sparsevae.estimator.coder import SparseCoder
from sparsevae.estimator.samples import means as means_of
from sparsevae.inputs.kind import as_list
from sparsevae.inputs.texts import Texts, texts_of
from sparsevae.tables.printed import Result

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class TopWords(Result):
    """The result of `top_words`. It prints as a table.

    Attributes
    ----------
    units : list of str
        "0", "1", ..., or "0+", "0-", "1+", ... for poles.
    words : list of lists of str
        Best first, one list per entry of `units`; empty for a unit without an associated word.
    coherence : array
        Mean NPMI of a unit's words: 1 if they occur only together, 0 if independently; NaN for fewer than two words.
        Measured on the texts that the words were chosen on, so for independent words somewhat above 0.
    diversity : float
        Share of different words among those of all units; NaN if there are none.
    """

    units: list[str]
    words: list[list[str]]
    coherence: Array
    diversity: float

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Header and lines of text, one line per unit or pole."""
        coherence = ["-" if np.isnan(v) else f"{v:.2f}" for v in self.coherence]
        words = map(" ".join, self.words)
        return ["unit", "coherence", "words"], [list(line) for line in zip(self.units, coherence, words, strict=True)]

    @property
    def legend(self) -> str:
        """The text below the table: diversity and mean coherence."""
        if np.isnan(self.diversity):
            return "no unit is associated with any word"
        known = self.coherence[~np.isnan(self.coherence)]
        mean = f"; mean coherence {known.mean():.2f}" if len(known) else ""
        return f"{self.diversity:.0%} of these words are different{mean}"


def top_words(est: SparseCoder, X: Any, n: int = 10, *, poles: bool = False) -> TopWords:
    """The n words associated with each unit, by `metrics.top_words`: frequent in texts of X where the unit is large.

    With `poles` positive and negative values of a unit have separate words. Use texts that the model was not fitted on
    if possible.
    """
    weights, source, rows = _weights("top_words", est, X, n, poles)
    counts = metrics.word_counts(rows, len(source.vocabulary))
    found = metrics.top_words(weights, counts, n)
    words = [[source.vocabulary.words[k] for k in unit if k >= 0] for unit in found]
    units = [f"{k // 2}{'+-'[k % 2]}" if poles else str(k) for k in range(len(words))]
    return TopWords(units, words, metrics.coherence(found, counts), metrics.diversity(found))


def top_texts(est: SparseCoder, X: Any, n: int = 3, *, poles: bool = False) -> list[list[str]]:
    """The n texts of X in which each unit is largest, best first: J lists, or with `poles` 2J, + before -.

    Texts are returned unchanged; the list of a unit that is 0 in every text is empty.
    """
    weights, source, _ = _weights("top_texts", est, X := as_list(X), n, poles)
    texts = texts_of(X, source.column)
    return [[texts[i] for i in unit if i >= 0] for unit in metrics.top_rows(weights, n)]


def _weights(caller: str, est: SparseCoder, X: Any, n: int, poles: bool) -> tuple[Array, Texts, Array]:
    """Posterior means (rows, J), or of both poles (rows, 2J); the model's `Texts`; and checked rows of X."""
    check_coder(caller, est)
    POSITIVE.check("n", n, whole=True)
    if not isinstance(est.input_, Texts):
        raise ValueError(
            f"{caller} is for models of texts, and this {type(est).__name__} was fitted on numbers: "
            "sparsevae.report.figures.features shows what its units add."
        )
    rows = est.fitted_.rows(X)
    means = means_of(est, rows)
    mean = means["gated"] if "gated" in means else means["mean"]
    if poles:
        mean = np.stack([mean, -mean], -1).clip(min=0).reshape(len(mean), -1)
    return mean, est.input_, rows
