r"""Codes of texts and their words: how the words of classes differ, and which words are associated with a unit.

Words are counts of shape (n, V), CSR or dense, a row per text and a column per word; :func:`word_counts` computes them
from token rows. Codes Z are (n, d). Classes are in the order of ``np.unique(y)``.

References
----------
V. Prokhorov, Y. Li, E. Shareghi, N. Collier, "Hierarchical sparse variational autoencoder for text encoding", 2020:
figure 4 (gates and words of classes), section 4.3 (accuracy at equal reconstruction).
T. Dunning, "Accurate methods for the statistics of surprise and coincidence", Computational Linguistics 19, 1993.
G. Bouma, "Normalized (pointwise) mutual information in collocation extraction", GSCL 2009.
J. H. Lau, D. Newman, T. Baldwin, "Machine reading tea leaves", EACL 2014: coherence by NPMI.
A. B. Dieng, F. J. R. Ruiz, D. M. Blei, "Topic modeling in embedding spaces", TACL 8, 2020: diversity.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sparsevae.checks import POSITIVE, In
from sparsevae.metrics.arrays import Codes, Floats, Integers, floats, labels, matrix, plain, shares
from sparsevae.text.ids import EOS, PAD, spoken

if TYPE_CHECKING:
    from scipy.sparse import csr_array

NONE = -1  # the index if a unit has no further word or row


def word_counts(tokens: npt.ArrayLike, vocabulary: int) -> csr_array[Any, tuple[int, int]]:
    """Count the words of each row: (n, W) ids -> CSR (n, V), int64, without PAD and EOS.

    `vocabulary` is the number of ids, PAD and EOS included, ``len(Vocabulary)``, so V = vocabulary - 2; column j is
    the word ``Vocabulary.words[j]``, of id j + 2. Ids after the first EOS of a row are ignored.

    >>> word_counts([[2, 4, 2, 1], [3, 1, 0, 0], [1, 0, 0, 0]], 5).toarray()
    array([[2, 0, 1],
           [0, 1, 0],
           [0, 0, 0]])
    """
    from scipy.sparse import csr_array

    ids, first = _numbers(tokens, "tokens", "(rows, width)"), max(PAD, EOS) + 1
    low, high = ids.min(initial=0), ids.max(initial=first)
    if not 0 <= low <= high < vocabulary:
        got = f"got tokens from {low} to {high}, vocabulary={vocabulary}: use len(Vocabulary)"
        raise ValueError(f"tokens must lie from 0 to vocabulary - 1, and a vocabulary has at least one word; {got}")
    rows, at = np.nonzero(spoken(ids) & (ids != EOS) & (ids != PAD))
    ones = np.ones(len(rows), np.int64)
    return csr_array((ones, (rows, ids[rows, at] - first)), shape=(len(ids), vocabulary - first))


def class_words(counts: Codes, y: npt.ArrayLike, smoothing: float = 1.0) -> Floats:
    r"""Word distribution of each class, (C, V).

    .. math:: p_c(w) = \frac{n_{cw} + s}{\sum_v n_{cv} + s V}, \qquad n_{cw} = \sum_{i: y_i = c} n_{iw}, \quad s > 0

    The paper uses s = 1. A class whose texts have no words has the uniform distribution.

    >>> class_words([[2, 0], [1, 1], [0, 1]], ["a", "a", "b"])  # counts (3, 1) and (0, 1), one more of each
    array([[0.66666667, 0.33333333],
           [0.33333333, 0.66666667]])
    """
    from scipy.sparse import csr_array

    In(0, None, "()", double=True).check("smoothing", smoothing)
    words = _checked(counts)
    classes, which = np.unique(labels(y, words.shape[0], "y"), return_inverse=True)
    member = csr_array((np.ones(len(which)), (which, np.arange(len(which)))), shape=(len(classes), len(which)))
    return shares((member @ words).toarray() + smoothing)


def class_word_divergence(counts: Codes, y: npt.ArrayLike, smoothing: float = 1.0) -> Floats:
    r"""Figure 4(b): :math:`\mathrm{KL}(p_a \Vert p_b)`, row a and column b, of all pairs of classes, (C, C), in nats.

    p as in :func:`class_words`. Smoothing moves all classes towards the uniform distribution, the more so the fewer
    words they have: compare corpora at equal numbers of words.

    >>> class_word_divergence([[2, 0], [1, 1], [0, 1]], ["a", "a", "b"]).round(4)  # (2/3 - 1/3) log 2
    array([[0.    , 0.231],
           [0.231, 0.   ]])
    """
    from scipy.special import kl_div  # p log(p/q) - p + q: no term is negative, and the sums of the last two cancel

    p = class_words(counts, y, smoothing)
    return np.array([kl_div(one, p).sum(-1) for one in p])


def class_gates(gates: Codes, y: npt.ArrayLike) -> Floats:
    """Figure 4(a), appendix E: mean gate of each class, (n, d) -> (C, d).

    `gates` are probabilities. The paper's gamma_class is the mean of E[gamma] = P(off); for gates P(on) it is 1 minus
    the result.

    >>> class_gates([[0.25, 1.0], [0.75, 1.0], [0.0, 0.5]], ["b", "b", "a"])
    array([[0. , 0.5],
           [0.5, 1. ]])
    """
    share = matrix(gates, "gates")
    if not 0 <= share.min() <= share.max() <= 1:
        raise ValueError(f"gates must be probabilities, of a unit being on or off; got {share.min()} to {share.max()}")
    y = labels(y, len(share), "y")
    return np.array([share[y == c].mean(0) for c in np.unique(y)])


def top_words(Z: Codes, counts: Codes, n: int = 10) -> Integers:
    r"""The words associated with each unit, best first: (d, n) columns of `counts`, -1 if there are no more.

    With :math:`b_{iw} = 1` if row i contains word w, the word distributions of unit j and of all rows are

    .. math::
        p_{jw} \propto \sum_i |z_{ij}|\, b_{iw}, \qquad q_w \propto \sum_i b_{iw}, \qquad
        \mathrm{score}_{jw} = p_{jw} \log \frac{p_{jw}}{q_w} - p_{jw} + q_w \quad \text{where } p_{jw} > q_w.

    The score is the word's term of :math:`\mathrm{KL}(p_j \Vert q)`, and half the Poisson deviance (Dunning's
    likelihood ratio) of its weight from the one expected if unit and word were independent. It penalises rare words
    without a constant to tune: for a lift :math:`p / q = 1 + \delta` the score is about :math:`q \delta^2 / 2`; for a
    word of k rows chance makes :math:`\delta^2` of order 1/k, and q is proportional to k. So the score of a chance
    association is about the same for rare and frequent words (lower for those in most rows), and that of a true lift
    is proportional to k. A unit that is associated with no word gets the words of largest chance association, mostly
    rare ones, as most words are rare; :func:`coherence` shows this.

    A unit that is off, or of one magnitude, in every row has no words; its scale does not matter. Both signs count
    alike: for the words of each sign pass ``np.maximum(Z, 0)`` and ``np.maximum(-Z, 0)``.

    >>> counts = [[1, 0, 1], [1, 0, 1], [0, 1, 1], [0, 2, 1]]
    >>> top_words([[2.0, 0.0], [2.0, 0.0], [0.0, -1.0], [0.0, 1.0]], counts, n=2)  # word 2 is in every row
    array([[ 0, -1],
           [ 1, -1]])
    """
    from scipy.special import kl_div

    size, present = np.abs(matrix(Z, "Z")), (_checked(counts) > 0).astype(np.float64)
    if len(size) != present.shape[0]:
        raise ValueError(f"Z and counts must have the same rows; Z has {len(size)}, counts has {present.shape[0]}")
    peak = size.max(0)  # magnitudes up to one: sums do not overflow, and those of a constant unit are exact
    p = shares((size / np.where(peak > 0, peak, 1.0)).T @ present)
    q = shares(present.sum(0)[None])
    return _largest(np.where(p > q, kl_div(p, q), 0.0), n)


def top_rows(Z: Codes, n: int = 10) -> Integers:
    """The rows of largest |z_j| per unit, best first: (d, n); -1 if the unit is off in all other rows.

    >>> top_rows([[0.0, 1.0], [-3.0, 0.0], [2.0, 0.0]], n=2)
    array([[ 1,  2],
           [ 0, -1]])
    """
    return _largest(np.abs(matrix(Z, "Z")).T, n)


def coherence(words: npt.ArrayLike, counts: Codes) -> Floats:
    r"""Mean NPMI of the pairs of words of each unit, such as those of :func:`top_words`; (d, n) -> (d,).

    .. math:: \mathrm{NPMI}(v, w) = \frac{\log P(v, w) - \log P(v) P(w)}{-\log P(v, w)} \in [-1, 1],

    P being shares of rows: -1 if the two words never occur together, 0 at chance (and for two words of every row), 1 if
    they only occur together. A word of no row is left out; a unit with fewer than two other words has NaN. Two rare
    words that occur together once have 1, so use words of :func:`top_words`, chosen on other rows if possible.

    >>> coherence([[0, 1], [0, 2], [0, -1]], [[1, 1, 0], [2, 1, 0], [0, 0, 1], [0, 0, 0]])
    array([ 1., -1., nan])
    """
    units, present = _numbers(words, "words", "(units, n)"), (_checked(counts) > 0).astype(np.float64).tocsc()
    if units.size and not NONE <= units.min() <= units.max() < present.shape[1]:
        raise ValueError(f"words must be columns of counts, from 0 to {present.shape[1] - 1}, or {NONE} for none")
    means = np.full(len(units), np.nan)
    for j, unit in enumerate(units):
        part = present[:, np.unique(unit[unit != NONE])]
        joint = (part.T @ part).toarray() / present.shape[0]  # (k, k): P(v, w), and P(w) on the diagonal
        v, w = np.nonzero(np.triu(np.outer(alone := joint.diagonal(), alone) > 0, 1))
        surprise = -np.log(np.where(joint > 0, joint, 1.0))[v, w]
        lift = -surprise - np.log(alone[v] * alone[w])
        npmi = np.divide(lift, surprise, out=np.where(joint[v, w] > 0, 0.0, -1.0), where=surprise > 0)
        means[j] = np.clip(npmi, -1.0, 1.0).mean() if len(npmi) else np.nan
    return means


def diversity(words: npt.ArrayLike) -> float:
    """Number of different words divided by the number of top words of all units, (d, n); NaN if there are none.

    >>> diversity([[0, 1, 2], [0, 3, -1]])  # 4 words in 5 places
    0.8
    """
    found = _numbers(words, "words", "(units, n)")
    found = found[found != NONE]
    return len(np.unique(found)) / len(found) if len(found) else float("nan")


def at_equal(R: npt.ArrayLike, accuracy: npt.ArrayLike, r: npt.ArrayLike) -> Floats:
    """Accuracy at reconstruction `r`, interpolated linearly between the runs: (k,), (k,), (...) -> (...).

    Accuracy depends on R, so codes are compared at equal R (section 4.3). Runs of equal R are averaged; outside the
    range of the runs the result is NaN. The VAE of table 1 (DBpedia, 32 units) at the R of two HSVAEs of accuracy .61
    and .72:

    >>> at_equal([115.7, 110.7, 107.7, 105.7], [0.07, 0.44, 0.62, 0.66], [107.0, 104.7])
    array([0.634,   nan])
    """
    known, value = floats(R, "R"), floats(accuracy, "accuracy")
    if known.ndim != 1 or known.shape != value.shape or not len(known):
        raise ValueError(f"R and accuracy must be one number per run, (k,); got shapes {known.shape}, {value.shape}")
    at, which = np.unique(known, return_inverse=True)
    mean = np.bincount(which, value) / np.bincount(which)
    return np.asarray(np.interp(floats(r, "r"), at, mean, left=np.nan, right=np.nan))


def _checked(counts: Codes) -> Any:
    """A copy of (n, V) counts as CSR, at least one row and one word."""
    from scipy.sparse import csr_array

    array: Any = plain(counts, "counts")
    if array.ndim == 2 and 0 not in array.shape and array.dtype.kind in "biuf":
        words = csr_array(array, dtype=np.float64, copy=True)  # a copy: comparisons sort its indices in place
        if (np.isfinite(words.data) & (words.data >= 0)).all():
            return words
    raise ValueError(
        f"counts must be finite numbers, none below 0, of shape (rows, words), at least one of each; got {array.dtype} "
        f"of shape {array.shape}: word_counts computes them from token rows"
    )


def _numbers(values: npt.ArrayLike, name: str, shape: str) -> Integers:
    array: Any = plain(values, name)
    if array.ndim != 2 or array.dtype.kind not in "iu":
        raise ValueError(f"{name} must be whole numbers of shape {shape}; got {array.dtype} of shape {array.shape}")
    return np.asarray(array, np.intp)


def _largest(score: Floats, n: int) -> Integers:
    """Columns of the n largest entries above 0 per row, (d, m) -> (d, n), best first, ties in order; NONE if fewer."""
    POSITIVE.check("n", n, whole=True)
    order = np.argsort(-score, axis=1, kind="stable")[:, :n]
    found = np.where(np.take_along_axis(score, order, 1) > 0, order, NONE)
    return np.pad(found, ((0, 0), (0, n - found.shape[1])), constant_values=NONE)
