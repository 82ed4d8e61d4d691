r"""Linear multi-label classifiers by three losses: baselines for deeper models.

Scores are z = W x + b, one for each of the L labels. With y in {0, 1}^L and q = y / |y|, the losses of a row are

.. math::
    \text{logistic: } & \sum_l \log(1 + e^{z_l}) - y_l z_l, &
    \text{softmax: } & \log \sum_l e^{z_l} - q \cdot z, \\
    \text{sparsemax: } & \tfrac12 \lVert q \rVert^2 - \tfrac12 \lVert p \rVert^2 + (p - q) \cdot z, &
    p &= \operatorname{sparsemax}(z) = \operatorname{argmin}_{p \in \Delta} \lVert p - z \rVert^2,

with gradients sigmoid(z) - y, softmax(z) - q and p - q; :mod:`reproductions.simplex` has the third.

References ---------- A. F. T. Martins, R. F. Astudillo, "From softmax to sparsemax", ICML 2016.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, Self

import numpy as np
import scipy.sparse
from scipy.optimize import minimize
from scipy.special import expit, log_softmax, softmax
from sklearn.base import BaseEstimator, ClassifierMixin, MultiOutputMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from reproductions.simplex import Loss, sparsemax, sparsemax_loss
from sparsevae.checks import POSITIVE, In, OneOf
from sparsevae.inputs.labels import check_form
from sparsevae.metrics.arrays import Floats
from sparsevae.metrics.multilabel import binary
from sparsevae.parameters import check_parameters, parameters
from sparsevae.tables.columns import encode, text_columns

__all__ = ["LinearMultiLabel"]


def logistic_loss(scores: Floats, targets: Floats) -> Loss:
    """Negative log-likelihood of independent labels."""
    return (np.logaddexp(0.0, scores) - targets * scores).sum(-1), expit(scores) - targets


softmax_rows = functools.partial(softmax, axis=-1)


def softmax_loss(scores: Floats, targets: Floats) -> Loss:
    """Cross-entropy of targets on the simplex."""
    return -(targets * log_softmax(scores, axis=-1)).sum(-1), softmax_rows(scores) - targets


class Rule(NamedTuple):
    """What belongs to a loss; where `shared`, the labels of a row share one unit of probability."""

    loss: Callable[[Floats, Floats], Loss]
    shared: bool
    probability: Callable[[Floats], Floats]
    labels: Callable[[Floats, float], Any]  # of scores and a threshold
    threshold: float  # where none is given


RULES = {
    "logistic": Rule(logistic_loss, False, expit, lambda z, t: expit(z) > t, 0.5),
    "softmax": Rule(softmax_loss, True, softmax_rows, lambda z, t: softmax_rows(z) > t / z.shape[1], 1.0),
    "sparsemax": Rule(sparsemax_loss, True, sparsemax, lambda z, t: sparsemax(t * z) > 0, 1.0),
}


@parameters
class LinearMultiLabel(MultiOutputMixin, ClassifierMixin, BaseEstimator):
    r"""Linear scores, one of three losses, and a rule that turns scores into sets of labels.

    Minimises, by L-BFGS with a memory of 10 from W = 0, b = 0,

    .. math:: \frac1n \sum_i \text{loss}(W x_i + b, y_i) + \frac{\text{regularisation}}{2} \lVert W \rVert^2.

    Standardise X before: one penalty serves all features, and b is free of it.

    ==========  ================================  ==================
    loss        label l is predicted where        threshold, if None
    ==========  ================================  ==================
    logistic    sigmoid(z)_l > threshold          0.5
    softmax     softmax(z)_l > threshold / L      1
    sparsemax   sparsemax(threshold z)_l > 0      1
    ==========  ================================  ==================

    A y of shape (n,) holds classes, one a row; then the class with the largest score is predicted.

    {parameters}

    Attributes
    ----------
    coef_ : (L, d)
    intercept_ : (L,)
    classes_ : (L,)
        The classes in y, or the numbers of its columns.
    n_iter_ : int

    Examples
    --------
    >>> X, Y = np.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]]), np.array([[1, 0], [0, 1], [1, 1]])
    >>> LinearMultiLabel(loss="sparsemax", regularisation=0.01, threshold=1.5).fit(X, Y).predict(X)
    array([[1, 0],
           [0, 1],
           [1, 1]])
    """

    loss: Annotated[str, OneOf(*RULES), "logistic: each label for itself; the others: labels share 1"] = "logistic"
    regularisation: Annotated[float, In(0, double=True), "strength of the penalty on the weights"] = 0.1
    threshold: Annotated[float | None, POSITIVE, "see the table; the higher, the fewer labels"] = None
    max_iter: Annotated[int, POSITIVE, "the most steps of L-BFGS"] = 100
    tolerance: Annotated[float, In(0, double=True), "L-BFGS ends where no entry of the gradient is larger"] = 1e-6

    def fit(self, X: Any, y: Any) -> Self:
        """Fit W and b to X (n, d), dense or CSR, and y (n, L), 0/1, dense or CSR; or y (n,), classes.

        Rows without a label have no effect on softmax and sparsemax, since no label is there to take the probability:
        they are left out, with a warning.
        """
        rule = self._rule()
        if y is not None and not scipy.sparse.issparse(y):
            y = check_form(y)
        try:
            X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64, multi_output=True)
        except ValueError as error:
            if words := text_columns(X):
                raise ValueError(f"X must hold numbers; {encode(words)}.") from error
            raise
        Y = self._targets(y)
        if rule.shared:
            some = Y.any(1)
            if not some.any():
                raise ValueError(f"{self.loss} learns from rows with a label, and none of {len(Y)} rows has one")
            if not some.all():
                warnings.warn(f"{self.loss} leaves out {(~some).sum()} of {len(Y)} rows: no label", stacklevel=2)
            X, Y = X[some], Y[some] / Y[some].sum(1, keepdims=True)
        n, d = X.shape
        L = Y.shape[1]

        def objective(flat: Any) -> tuple[float, Any]:
            W, b = flat[: d * L].reshape(d, L), flat[d * L :]
            losses, slope = rule.loss(X @ W + b, Y)
            value = losses.mean() + self.regularisation / 2 * np.sum(W**2)
            return float(value), np.append(X.T @ slope / n + self.regularisation * W, slope.mean(0))

        options: Any = {"maxiter": self.max_iter, "maxcor": 10, "gtol": self.tolerance, "ftol": 1e-14}
        found = minimize(objective, np.zeros((d + 1) * L), jac=True, method="L-BFGS-B", options=options)
        self.coef_ = found.x[: d * L].reshape(d, L).T
        self.intercept_ = found.x[d * L :]
        self.n_iter_ = int(found.nit)
        return self

    def _targets(self, y: Any) -> Floats:
        """One column of 0/1 for each label or class; notes what y was."""
        self.sparse_, self.single_ = scipy.sparse.issparse(y), y.ndim == 1
        if self.single_:
            check_classification_targets(y)
            self.classes_, which = np.unique(y, return_inverse=True)
            return np.eye(len(self.classes_))[which]
        Y: Any = binary(y, "y")
        self.classes_ = np.arange(Y.shape[1])
        return np.asarray(Y.toarray() if self.sparse_ else Y, dtype=np.float64)

    def _scores(self, X: Any) -> Floats:
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        return np.asarray(X @ self.coef_.T + self.intercept_)

    def decision_function(self, X: Any) -> Floats:
        """Scores z = W x + b, (n, L); of two classes the difference, (n,)."""
        z = self._scores(X)
        return z[:, 1] - z[:, 0] if self.single_ and z.shape[1] == 2 else z

    def predict_proba(self, X: Any) -> Floats:
        """Probabilities (n, L); a row sums to 1 for softmax, sparsemax, and classes."""
        p = self._rule().probability(self._scores(X))
        return p / p.sum(1, keepdims=True) if self.single_ else p

    def predict(self, X: Any) -> Any:
        """Labels (n, L), 0/1, CSR where y was; or classes (n,)."""
        z, rule = self._scores(X), self._rule()
        if self.single_:
            return self.classes_[z.argmax(1)]
        threshold = rule.threshold if self.threshold is None else self.threshold
        labels = rule.labels(z, threshold).astype(np.int64)
        return scipy.sparse.csr_array(labels) if self.sparse_ else labels

    def _rule(self) -> Rule:
        check_parameters(self)
        return RULES[self.loss]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_label = True
        return tags
