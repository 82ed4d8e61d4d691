"""Claim: iterative stratification uses every row once and keeps every label's share, better than chance does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.sparse import csr_array
from sklearn.model_selection import GridSearchCV, cross_val_score

from reproductions.linear import LinearMultiLabel
from sparsevae.estimator.splits import MultiLabelKFold, stratified_folds, stratified_split


def skewed(n: int = 400, labels: int = 12, seed: int = 0) -> np.ndarray[Any, Any]:
    """Labels from frequent to rare, and rows without any."""
    return (np.random.default_rng(seed).random((n, labels)) < 0.4 * 0.7 ** np.arange(labels)).astype(np.uint8)


def unevenness(Y: np.ndarray[Any, Any], fold: np.ndarray[Any, Any], k: int) -> float:
    """How far a label's rows in a fold are from its share, as a part of it, on average."""
    counts = np.stack([Y[fold == j].sum(0) for j in range(k)])
    return float(np.abs(counts * k / Y.sum(0) - 1).mean())


def test_labels_keep_their_shares_better_than_at_random() -> None:
    Y = skewed()
    ours = [unevenness(Y, stratified_folds(Y, [1] * 5, seed=seed), 5) for seed in range(5)]
    rng = np.random.default_rng(0)
    chance = [unevenness(Y, rng.permutation(len(Y)) % 5, 5) for _ in range(50)]
    assert max(ours) < min(chance)
    assert np.mean(ours) < np.mean(chance) / 3


def test_a_label_of_five_rows_is_in_every_fold() -> None:
    Y = np.zeros((100, 2), int)
    Y[:50, 0] = 1
    Y[48:53, 1] = 1
    for seed in range(20):
        fold = stratified_folds(Y, [1] * 5, seed=seed)
        assert sorted(fold[48:53]) == [0, 1, 2, 3, 4]


def test_a_label_of_one_row_and_rows_without_labels_find_their_places() -> None:
    Y = np.zeros((40, 3), int)
    Y[0, 0] = Y[1, 1] = 1
    Y[2:12, 2] = 1
    for seed in range(10):
        fold = stratified_folds(Y, [1] * 4, seed=seed)
        assert np.bincount(fold).tolist() == [10] * 4  # the rows without labels fill up
        assert set(np.bincount(fold[2:12], minlength=4)) <= {2, 3}


def test_without_any_label_the_folds_have_their_sizes() -> None:
    fold = stratified_folds(np.zeros((20, 2)), [3, 1, 1])
    assert np.bincount(fold).tolist() == [12, 4, 4]


@settings(deadline=None, max_examples=40)
@given(arrays(np.uint8, (15, 3), elements=st.integers(0, 1)), st.integers(2, 5), st.integers(0, 9))
def test_every_row_is_tested_once_and_only_once(Y: np.ndarray[Any, Any], k: int, seed: int) -> None:
    parts = list(MultiLabelKFold(k, seed=seed).split(None, Y))
    assert len(parts) == k
    assert sorted(np.concatenate([test for _, test in parts])) == list(range(15))
    for train, test in parts:
        assert sorted([*train, *test]) == list(range(15))
        assert len(test)


def test_the_seed_decides_and_sparse_labels_are_split_alike() -> None:
    Y = skewed()
    one, same, other = (stratified_folds(Y, [1] * 5, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert (one != other).mean() > 0.5
    np.testing.assert_array_equal(stratified_folds(csr_array(Y), [1] * 5, seed=1), one)


@pytest.mark.parametrize("share", [0.1, 0.25, 0.5])
def test_a_split_takes_its_share_of_every_label(share: float) -> None:
    Y = skewed(n=600)
    train, test = stratified_split(Y, share)
    assert sorted([*train, *test]) == list(range(600))
    assert len(test) == pytest.approx(600 * share, abs=12)
    assert np.abs(Y[test].sum(0) - share * Y.sum(0)).max() <= 2.5


def test_shares_need_not_sum_to_one() -> None:
    Y = skewed(n=100)
    np.testing.assert_array_equal(stratified_folds(Y, [3, 1]), stratified_folds(Y, [0.75, 0.25]))


def test_scikit_learn_takes_the_folds() -> None:
    Y = skewed(n=120, labels=3)
    X = Y + np.random.default_rng(0).normal(scale=0.3, size=Y.shape)
    scores = cross_val_score(LinearMultiLabel(), X, Y, cv=MultiLabelKFold(3))
    assert len(scores) == 3
    search = GridSearchCV(LinearMultiLabel(), {"regularisation": [1e-3, 10.0]}, cv=MultiLabelKFold(3)).fit(X, Y)
    assert search.best_params_ == {"regularisation": 1e-3}
    assert repr(MultiLabelKFold(3)) == "MultiLabelKFold(3, seed=0)"


@pytest.mark.parametrize(
    ("shares", "message"),
    [
        ([1.0], "at least two positive numbers"),
        ([1, 0], "at least two positive numbers"),
        ([1, float("nan")], "at least two positive numbers"),
        ([1] * 5, "4 rows cannot fill 5 folds"),
        ([1, 1e-9], r"every fold needs a row, and folds \[1\] of 4 rows got none"),
    ],
)
def test_impossible_shares_are_refused(shares: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        stratified_folds(np.eye(4), shares)


def test_what_is_no_label_matrix_is_refused() -> None:
    with pytest.raises(ValueError, match="Y must hold 0 and 1 alone"):
        stratified_folds([[0, 2], [1, 0]], [1, 1])
    for share in (0.0, 1.0):
        with pytest.raises(ValueError, match="test must be a share between 0 and 1"):
            stratified_split(np.eye(4), share)
