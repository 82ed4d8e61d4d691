r"""Four scores of disentanglement against known factors; 1 for a one-to-one code (but see :func:`sap`).

Z (n, J) are codes, `factors` (n, K) the true factors. A factor is **discrete** (its values are categories) or
**continuous** (its values are quantities). By default an array of integers or booleans is discrete and an array of
floats continuous; `discrete` overrides this, for all factors or for each. MIG and modularity use
:func:`mutual_information`, with units and continuous factors binned into `n_bins` bins (except units of few values);
SAP and DCI use predictors.

References
----------
R. T. Q. Chen, X. Li, R. Grosse, D. Duvenaud, "Isolating sources of disentanglement in variational autoencoders",
NeurIPS 2018: MIG.
C. Eastwood, C. K. I. Williams, "A framework for the quantitative evaluation of disentangled representations", ICLR
2018: DCI.
A. Kumar, P. Sattigeri, A. Balakrishnan, "Variational inference of disentangled latent concepts from unlabeled
observations", ICLR 2018: SAP.
K. Ridgeway, M. C. Mozer, "Learning deep disentangled embeddings with the F-statistic loss", NeurIPS 2018: modularity.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sparsevae.checks import In, OneOf
from sparsevae.metrics.arrays import Codes, Floats, matrix, shares
from sparsevae.metrics.correlation import correlation_matrix
from sparsevae.metrics.factors import Discrete, checked_factors, cut, entropy, information, mutual_information
from sparsevae.metrics.predictors import PREDICTORS
from sparsevae.parameters import check_value


def mig(Z: Codes, factors: npt.ArrayLike, *, n_bins: int = 20, discrete: Discrete = None) -> float:
    r"""Mutual information gap: information of the best unit on a factor less that of the second best unit.

    .. math:: \frac1K \sum_k \frac{I(z_{(1)}; v_k) - I(z_{(2)}; v_k)}{H(v_k)}

    0 if two units have equal information on each factor, or none has any; with J = 1 the second best is 0.

    >>> v = np.array([[a, b] for a in range(3) for b in range(3)])
    >>> round(mig(v, v), 6), round(mig(v @ [[1.0, 1.0], [1.0, -1.0]], v), 6)  # the factors themselves; rotated
    (1.0, 0.0)
    """
    gaps = [
        _gap(information(cells, levels))[0] / entropy(np.bincount(levels[:, 0]) / len(levels))
        for cells, levels in cut(*checked_factors(Z, factors, discrete), n_bins)
    ]
    return float(np.mean(gaps))


def modularity(Z: Codes, factors: npt.ArrayLike, *, n_bins: int = 20, discrete: Discrete = None) -> float:
    r"""Does each unit have information on one factor only? The mean over units of

    .. math:: 1 - \frac{\sum_{k \ne k^*} m_k^2}{(K - 1)\, m_{k^*}^2}, \qquad m_k = I(z; v_k), \; k^* = \arg\max_k m_k .

    Several units may have information on the same factor. Units without information on any factor are left out; if
    that is all of them, the score is 0. It depends on ratios only: units of pure noise have small, similar m and any
    score between 0 and 1, so report it beside :func:`mig`.

    >>> v = np.array([[a, b] for a in range(3) for b in range(3)])
    >>> round(modularity(v[:, [0, 1, 1]], v), 6), round(modularity(v @ [[1.0, 1.0], [1.0, -1.0]], v), 6)
    (1.0, 0.0)
    """
    squares = mutual_information(Z, factors, n_bins=n_bins, discrete=discrete) ** 2
    n_factors = squares.shape[1]
    if n_factors < 2:
        raise ValueError("modularity needs at least two factors; got one")
    best = squares.max(1)
    squares, best = squares[best > 0], best[best > 0]
    if not len(best):
        return 0.0
    return float((1 - (squares.sum(1) - best) / ((n_factors - 1) * best)).mean())


def sap(Z: Codes, factors: npt.ArrayLike, *, discrete: Discrete = None, adjusted: bool = False) -> float:
    """Separated attribute predictability: the mean over factors of the gap between the two best single units.

    A unit predicts a continuous factor by linear regression; its score is R^2, the squared correlation. It predicts a
    discrete factor of C classes by C - 1 thresholds (a decision tree of C leaves, classes weighted equally); its score
    is balanced accuracy on the same rows. Chance is 1/C, so the published score of a one-to-one code is
    1 - 1/C for such factors; `adjusted=True` uses (accuracy - 1/C) / (1 - 1/C), and the score is 1. With J = 1 the
    second best is 0, or chance.

    >>> v = np.array([[a, b] for a in range(2) for b in range(2)])
    >>> sap(v, v.astype(float)), sap(v, v), sap(v, v, adjusted=True)
    (1.0, 0.5, 1.0)
    """
    Z, truth, named = checked_factors(Z, factors, discrete)
    gaps = []
    for v, is_discrete in zip(truth.T, named, strict=True):
        if not is_discrete:
            gaps.append(_gap(correlation_matrix(Z, v[:, None]) ** 2)[0])
            continue
        chance = 1 / len(np.unique(v))
        score = np.array([[_threshold_accuracy(z, v)] for z in Z.T])
        gaps.append(_gap(score, chance)[0] / (1 - chance if adjusted else 1))
    return float(np.mean(gaps))


class DCI(NamedTuple):
    """The three scores of Eastwood and Williams, higher is better, and the importances R (J, K) behind them."""

    disentanglement: float
    completeness: float
    informativeness: float
    importance: Floats


def dci(
    Z: Codes,
    factors: npt.ArrayLike,
    *,
    predictor: str = "forest",
    discrete: Discrete = None,
    test_share: float = 0.25,
    seed: int = 0,
) -> DCI:
    """Disentanglement, completeness and informativeness of a code, from predictors of each factor.

    Each factor is predicted from the whole code; the predictor's importances, scaled to sum to one per factor, are a
    column of R (J, K), from which :func:`dci_disentanglement` and :func:`dci_completeness` are computed.
    Informativeness is the mean over factors of 1 - error / (error of the best constant) on held-out rows, at least 0,
    with squared error for continuous factors (R^2) and misclassification for discrete ones. (The paper reports the
    error itself: its NRMSE is sqrt(1 - R^2).)

    Parameters
    ----------
    predictor : "forest", "boosting" or "lasso"
        Random forests and gradient boosting of scikit-learn, with impurity importances: their time is proportional to
        rows x units x factors, so pass some thousands of rows. Or linear predictors with an L1 penalty on standardised
        units, with absolute coefficients: fast, but without nonlinear relations, such as a class in the middle of a
        unit's range (for discrete factors, support vector machines of one class against the rest).
    test_share : float
        Share of the rows that are used for informativeness only.
    seed : int
        Seed of the split and of the predictors.

    >>> v = np.random.default_rng(0).uniform(size=(400, 2))
    >>> one_to_one = dci(v[:, ::-1], v, predictor="lasso")
    >>> [round(float(score), 2) for score in one_to_one[:3]]
    [1.0, 1.0, 1.0]
    """
    check_value("predictor", predictor, str, [OneOf(*PREDICTORS)])
    Z, truth, named = checked_factors(Z, factors, discrete)
    In(0, 1, "()").check("test_share", test_share)
    n_test = round(test_share * len(Z))
    if not 2 <= n_test <= len(Z) - 2:
        raise ValueError(
            f"test_share={test_share} of {len(Z)} rows must leave at least two rows for testing and two for training"
        )
    order = np.random.default_rng(seed).permutation(len(Z))
    test, train = order[:n_test], order[n_test:]
    columns, gains = [], []
    for k, (v, is_discrete) in enumerate(zip(truth.T, named, strict=True)):
        if len(np.unique(v[train])) < 2 or len(np.unique(v[test])) < 2:
            raise ValueError(f"factor {k} has one value only in the training or in the test rows: use more rows")
        model, importance = PREDICTORS[predictor](bool(is_discrete), seed)
        model.fit(Z[train], v[train])
        weight = importance(model)
        columns.append(weight / (weight.sum() or 1.0))
        gains.append(_gain(v[test], model.predict(Z[test]), bool(is_discrete)))
    R = np.stack(columns, 1)
    return DCI(dci_disentanglement(R), dci_completeness(R), float(np.mean(gains)), R)


def dci_disentanglement(R: Codes) -> float:
    r"""D of importances R (J, K): is a unit important for one factor only?

    .. math:: D = \sum_j \rho_j \bigl(1 - H_K(P_{j\cdot})\bigr), \quad P_{jk} = R_{jk} / \textstyle\sum_k R_{jk},
       \quad \rho_j = \textstyle\sum_k R_{jk} / \sum_{jk} R_{jk},

    with the entropy in base K: units are weighted by their importance. 0 if R is zero.

    >>> dci_disentanglement([[1.0, 0.0], [0.5, 0.5]])  # units of equal importance: 1 and 0
    0.5
    """
    R = _importances(R)
    weight = R.sum(1)
    return float((weight * _concentration(R)).sum() / weight.sum()) if weight.any() else 0.0


def dci_completeness(R: Codes) -> float:
    r"""C of importances R (J, K): does a factor need one unit only? The mean over factors of
    :math:`1 - H_J(R_{jk} / \sum_j R_{jk})`, entropy in base J; 0 for a factor without an important unit.

    >>> dci_completeness([[1.0, 0.5], [0.0, 0.5]])
    0.5
    """
    return float(_concentration(_importances(R).T).mean())


def _concentration(rows: Floats) -> Floats:
    """1 - entropy of each row as a distribution, in base of its length; 0 for a row of zeros, else 1 for length 1."""
    entropies = np.array([entropy(p) for p in shares(rows)])
    base = np.log(rows.shape[1]) if rows.shape[1] > 1 else 1.0
    return np.where(rows.sum(1) > 0, 1 - entropies / base, 0.0)


def _importances(R: Codes) -> Floats:
    R = matrix(R, "R")
    if R.min() < 0:
        raise ValueError(f"R must be importances, none below 0; got {R.min():.3g}")
    return R


def _gap(scores: Floats, floor: float = 0.0) -> Floats:
    """Best less second best of each column, (J, K) -> (K,); with one unit, the second best is `floor`."""
    ranked = np.sort(np.vstack([scores, np.full_like(scores[:1], floor)]) if len(scores) == 1 else scores, axis=0)
    return np.asarray(ranked[-1] - ranked[-2])


def _threshold_accuracy(z: Floats, v: Floats) -> float:
    """Balanced accuracy of C - 1 thresholds on one unit for C classes."""
    from sklearn.tree import DecisionTreeClassifier

    names = np.unique(v)
    tree = DecisionTreeClassifier(max_leaf_nodes=len(names), class_weight="balanced", random_state=0)
    guess = tree.fit(z[:, None], v).predict(z[:, None])
    return float(np.mean([(guess[v == c] == c).mean() for c in names]))


def _gain(v: Floats, guess: Floats, discrete: bool) -> float:
    """1 - error / error of the best constant, at least 0."""
    if discrete:
        error, constant = (guess != v).mean(), 1 - np.unique(v, return_counts=True)[1].max() / len(v)
    else:
        error, constant = ((guess - v) ** 2).mean(), v.var()
    return max(0.0, float(1 - error / constant))
