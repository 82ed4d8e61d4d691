"""Claim: the linear baselines minimise what they say, predict by their rules, and are scikit-learn classifiers."""

from __future__ import annotations

import doctest
import pickle
from typing import Any

import numpy as np
import pytest
from scipy.optimize import approx_fprime
from scipy.sparse import csr_array, csr_matrix, issparse
from scipy.special import expit, softmax
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from reproductions import linear, simplex
from reproductions.linear import RULES, LinearMultiLabel
from reproductions.simplex import sparsemax

LOSSES = list(RULES)
COLUMN = {"check_supervised_y_2d": "it puts classes into a column; here a column is a label, and holds 0 and 1"}
SHARE = {"check_classifier_multioutput": "it predicts a label where its score is positive; shared scores have no zero"}
ZEROS = {"check_classifiers_multilabel_output_format_predict_proba": "it wants no probability 0; sparsemax has some"}
EXPECTED = {"logistic": COLUMN, "softmax": COLUMN | SHARE, "sparsemax": COLUMN | SHARE | ZEROS}


def data(n: int = 120, seed: int = 0) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Five features, four labels by noisy linear rules, at least one in every row."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 5))
    scores = X @ rng.normal(size=(5, 4)) + rng.normal(scale=0.5, size=(n, 4))
    return X, ((scores > 0.5) | (scores == scores.max(1, keepdims=True))).astype(int)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*leaves out:UserWarning")
@parametrize_with_checks(
    [LinearMultiLabel(loss=loss) for loss in LOSSES], expected_failed_checks=lambda est: EXPECTED[est.loss]
)
def test_scikit_learn_s_own_checks(estimator: Any, check: Any) -> None:
    check(estimator)


def objective(est: LinearMultiLabel, X: np.ndarray[Any, Any], Y: np.ndarray[Any, Any], flat: Any) -> float:
    """The mean loss and the penalty, written out from the docstring; flat holds W (L, d) and b (L,)."""
    L, d = Y.shape[1], X.shape[1]
    W, b = flat[: L * d].reshape(L, d), flat[L * d :]
    z = X @ W.T + b
    q = Y / Y.sum(1, keepdims=True)
    if est.loss == "logistic":
        losses = -np.log(np.where(Y == 1, expit(z), 1 - expit(z))).sum(1)
    elif est.loss == "softmax":
        losses = -(q * np.log(softmax(z, axis=1))).sum(1)
    else:
        losses = (((q - z) ** 2).sum(1) - ((sparsemax(z) - z) ** 2).sum(1)) / 2
    return float(losses.mean() + est.regularisation / 2 * np.sum(W**2))


@pytest.mark.parametrize("loss", LOSSES)
def test_the_fit_is_the_minimum_of_the_objective_with_a_free_bias(loss: str) -> None:
    X, Y = data()
    est = LinearMultiLabel(loss=loss, regularisation=0.1, tolerance=1e-9).fit(X, Y)
    flat = np.append(est.coef_, est.intercept_)
    assert np.abs(approx_fprime(flat, lambda f: objective(est, X, Y, f), 1e-6)).max() < 1e-5
    best = objective(est, X, Y, flat)
    for seed in range(20):
        other = flat + 0.1 * np.random.default_rng(seed).normal(size=flat.shape)
        assert objective(est, X, Y, other) > best


def test_one_label_by_the_logistic_loss_is_logistic_regression() -> None:
    X, Y = data()
    ours = LinearMultiLabel(regularisation=0.05, tolerance=1e-9).fit(X, Y)
    for label in range(4):
        theirs = LogisticRegression(C=1 / (0.05 * len(X)), tol=1e-9).fit(X, Y[:, label])
        np.testing.assert_allclose(ours.coef_[label], theirs.coef_[0], atol=1e-5)
        np.testing.assert_allclose(ours.intercept_[label], theirs.intercept_[0], atol=1e-5)


def test_classes_by_the_softmax_loss_are_multinomial_regression() -> None:
    X, Y = data()
    y = np.array(["a", "b", "c", "d"])[Y.argmax(1)]
    ours = LinearMultiLabel(loss="softmax", regularisation=0.05, tolerance=1e-9).fit(X, y)
    theirs = LogisticRegression(C=1 / (0.05 * len(X)), tol=1e-9).fit(X, y)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-5)
    assert (ours.predict(X) == theirs.predict(X)).all()
    assert list(ours.classes_) == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("loss", "rule"),
    [
        ("logistic", lambda z, t: expit(z) > t),
        ("softmax", lambda z, t: softmax(z, axis=1) > t / 4),
        ("sparsemax", lambda z, t: sparsemax(t * z) > 0),
    ],
)
def test_a_threshold_is_a_probability_a_part_of_an_equal_share_or_a_sharpness(loss: str, rule: Any) -> None:
    X, Y = data()
    est = LinearMultiLabel(loss=loss).fit(X, Y)
    z = est.decision_function(X)
    np.testing.assert_allclose(z, X @ est.coef_.T + est.intercept_, atol=1e-12)
    np.testing.assert_array_equal(est.predict(X), rule(z, 0.5 if loss == "logistic" else 1.0))
    counts = []
    for t in (0.1, 0.5, 0.9) if loss == "logistic" else (0.5, 1.5, 3.0):
        predicted = est.set_params(threshold=t).predict(X)
        np.testing.assert_array_equal(predicted, rule(z, t))
        counts.append(predicted.sum())
    assert counts[0] > counts[1] > counts[2]


def test_labels_that_share_a_row_have_probabilities_that_sum_to_one() -> None:
    X, Y = data()
    for loss in ("softmax", "sparsemax"):
        p = LinearMultiLabel(loss=loss).fit(X, Y).predict_proba(X)
        np.testing.assert_allclose(p.sum(1), 1, atol=1e-12)
        assert (p == 0).any() == (loss == "sparsemax")
    p = LinearMultiLabel().fit(X, Y).predict_proba(X)
    assert np.ptp(p.sum(1)) > 0.5  # each label for itself


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("kind", [csr_array, csr_matrix])
def test_sparse_and_dense_input_give_the_same_labels(loss: str, kind: Any) -> None:
    X, Y = data()
    X[np.abs(X) < 0.5] = 0
    dense = LinearMultiLabel(loss=loss, tolerance=1e-9).fit(X, Y)
    sparse = LinearMultiLabel(loss=loss, tolerance=1e-9).fit(kind(X), kind(Y))
    np.testing.assert_allclose(sparse.coef_, dense.coef_, atol=1e-6)
    predicted = sparse.predict(kind(X))
    assert issparse(predicted)  # as y was
    assert not issparse(dense.predict(X))
    np.testing.assert_array_equal(predicted.toarray(), dense.predict(X))


@pytest.mark.parametrize("loss", ["softmax", "sparsemax"])
def test_rows_without_a_label_teach_shared_losses_nothing(loss: str) -> None:
    X, Y = data()
    Y[:7] = 0
    with pytest.warns(UserWarning, match=f"{loss} leaves out 7 of 120 rows: no label"):
        est = LinearMultiLabel(loss=loss).fit(X, Y)
    np.testing.assert_array_equal(est.coef_, LinearMultiLabel(loss=loss).fit(X[7:], Y[7:]).coef_)
    with pytest.raises(ValueError, match=f"{loss} learns from rows with a label, and none of 120 rows has one"):
        LinearMultiLabel(loss=loss).fit(X, np.zeros_like(Y))


def test_rows_without_a_label_do_teach_the_logistic_loss() -> None:
    X, Y = data()
    Y[:7] = 0
    assert not np.allclose(LinearMultiLabel().fit(X, Y).coef_, LinearMultiLabel().fit(X[7:], Y[7:]).coef_)


@pytest.mark.parametrize("loss", LOSSES)
def test_copies_and_pipelines_predict_alike(loss: str) -> None:
    X, Y = data()
    threshold = 3.0 if loss == "sparsemax" else None
    model = LinearMultiLabel(loss=loss, regularisation=0.01, threshold=threshold)
    est = make_pipeline(StandardScaler(), model).fit(X, Y)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(est)).predict(X), est.predict(X))
    np.testing.assert_array_equal(clone(est).fit(X, Y).predict(X), est.predict(X))
    assert clone(est)[-1].get_params() == est[-1].get_params()
    assert (est.predict(X) == Y).mean() > 0.8


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"loss": "hinge"}, "loss must be 'logistic', 'softmax' or 'sparsemax', got 'hinge'"),
        ({"regularisation": -1}, "regularisation must be a number, 0 or above, got -1"),
        ({"max_iter": 0}, "max_iter must be an integer above 0, got 0"),
        ({"max_iter": 1.5}, "max_iter must be an integer"),
        ({"tolerance": -1e-3}, "tolerance must be a number, 0 or above"),
        ({"threshold": 0.0}, "threshold must be a number above 0 or None, got 0.0"),
    ],
)
def test_impossible_parameters_are_refused(parameters: dict[str, Any], message: str) -> None:
    X, Y = data()
    with pytest.raises(ValueError, match=message):
        LinearMultiLabel(**parameters).fit(X, Y).predict(X)


def test_what_is_no_label_matrix_is_refused() -> None:
    X, Y = data()
    with pytest.raises(ValueError, match="y must hold 0 and 1 alone, one column per label"):
        LinearMultiLabel().fit(X, Y * 2)
    with pytest.raises(NotFittedError):
        LinearMultiLabel().predict(X)


def test_texts_among_the_columns_are_pointed_to_encoding() -> None:
    with pytest.raises(ValueError, match=r"^X must hold numbers; there are texts in column 1: encode them, .*OneHot"):
        LinearMultiLabel().fit([[1.0, "Rome"], [2.0, "Oslo"]], [[0], [1]])


def test_the_most_steps_are_kept() -> None:
    X, Y = data()
    assert LinearMultiLabel(max_iter=3, regularisation=1e-6).fit(X, Y).n_iter_ == 3


def test_the_examples_of_the_docstrings_run() -> None:
    for module in (linear, simplex):
        found = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE)
        assert (found.failed, found.attempted > 0) == (0, True)
