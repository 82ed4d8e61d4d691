"""What the units of a model of texts are about: the words and the texts that go with each.

A unit's weight in a text is the size of its posterior mean, P(on) mu where it has a gate: the code itself, the mode,
would say nothing of a unit that is never likelier on than off. A value and its negative count as one, unless poles are
asked for: a unit whose two signs mean two things has words for each, and none for both together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sparsevae import metrics
from sparsevae.analysis.audit import check_coder
from sparsevae.checks import check_number
from sparsevae.estimator.coder import SparseCoder
from sparsevae.estimator.samples import means as means_of
from sparsevae.inputs.kind import as_list
from sparsevae.inputs.texts import Texts, texts_of
from sparsevae.tables.printed import aligned, json_value

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class TopWords:
    """What `top_words` found. A table when printed.

    Attributes
    ----------
    units : list of str
        "0", "1", ..., or "0+", "0-", "1+", ... for poles.
    words : list of lists of str
        Best first, a list for each of `units`; one that goes with no word has none.
    coherence : array
        Mean NPMI of a unit's words: 1 they stand together only, 0 by chance; NaN with less than two. Measured on the
        texts that chose them, so chance alone is somewhat above 0.
    diversity : float
        Share of different words among those of all units; NaN when there are none.
    """

    units: list[str]
    words: list[list[str]]
    coherence: Array
    diversity: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON: NaN is None."""
        return dict(json_value(self))

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Header and lines of text, one line a unit."""
        coherence = ["-" if np.isnan(v) else f"{v:.2f}" for v in self.coherence]
        words = map(" ".join, self.words)
        return ["unit", "coherence", "words"], [list(line) for line in zip(self.units, coherence, words, strict=True)]

    @property
    def legend(self) -> str:
        """How different the units' words are, and how well each unit's go together."""
        if np.isnan(self.diversity):
            return "no unit goes with any word"
        known = self.coherence[~np.isnan(self.coherence)]
        mean = f"; mean coherence {known.mean():.2f}" if len(known) else ""
        return f"{self.diversity:.0%} of these words are different{mean}"

    def __str__(self) -> str:
        return f"{aligned(*self.table())}\n\n{self.legend}"


def top_words(est: SparseCoder, X: Any, n: int = 10, *, poles: bool = False) -> TopWords:
    """The n words that go with each unit, by `metrics.top_words`: those of the texts X where the unit is large.

    With `poles` the words of positive and of negative values stand apart. Take texts that the model was not fitted on
    where you can.
    """
    weights, source, rows = _weights("top_words", est, X, n, poles)
    counts = metrics.word_counts(rows, len(source.vocabulary))
    found = metrics.top_words(weights, counts, n)
    words = [[source.vocabulary.words[k] for k in unit if k >= 0] for unit in found]
    units = [f"{k // 2}{'+-'[k % 2]}" if poles else str(k) for k in range(len(words))]
    return TopWords(units, words, metrics.coherence(found, counts), metrics.diversity(found))


def top_texts(est: SparseCoder, X: Any, n: int = 3, *, poles: bool = False) -> list[list[str]]:
    """The n texts of X in which each unit is largest, best first: J lists, or 2J of poles, + before -.

    Texts are returned as they came; a unit that is 0 in every text has none.
    """
    weights, source, _ = _weights("top_texts", est, X := as_list(X), n, poles)
    texts = texts_of(X, source.column)
    return [[texts[i] for i in unit if i >= 0] for unit in metrics.top_rows(weights, n)]


def _weights(caller: str, est: SparseCoder, X: Any, n: int, poles: bool) -> tuple[Array, Texts, Array]:
    """Posterior means (rows, J), or (rows, 2J) of both signs; what the model knows of texts; and X as it was read."""
    check_coder(caller, est)
    check_number("n", n, "an integer above 0", lambda k: k > 0, whole=True)
    if not isinstance(est.input_, Texts):
        raise ValueError(
            f"{caller} is for models of texts, and this {type(est).__name__} was fitted on numbers: plots.features "
            "shows what its units do."
        )
    rows = est.fitted_.rows(X)
    means = means_of(est, rows)
    mean = means["gated"] if "gated" in means else means["mean"]
    if poles:
        mean = np.stack([mean, -mean], -1).clip(min=0).reshape(len(mean), -1)
    return mean, est.input_, rows
