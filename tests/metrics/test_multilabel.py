"""F1 of sets of labels by hand, its two macro definitions, what 0/0 is, and how sure a test set makes it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.sparse import coo_array, csr_array, csr_matrix
from sklearn.metrics import f1_score, precision_recall_fscore_support

from sparsevae.metrics import bootstrap_interval, cardinality, label_table, macro_f1, micro_f1

LABELS = arrays(np.uint8, (6, 4), elements=st.integers(0, 1))
# label 0: 2 hits of 3 true and 2 predicted; label 1: 1 hit of 1 true and 3 predicted; label 2: never predicted
TRUE = np.array([[1, 0, 0], [1, 1, 0], [1, 0, 1], [0, 0, 0]])
PRED = np.array([[1, 1, 0], [1, 1, 0], [0, 0, 0], [0, 1, 0]])


def test_the_table_by_hand():
    table = label_table(TRUE, PRED)
    assert table.true.tolist() == [3, 1, 1]
    assert table.predicted.tolist() == [2, 3, 0]
    assert table.hits.tolist() == [2, 1, 0]
    np.testing.assert_allclose(table.precision, [1, 1 / 3, 0], atol=1e-15)
    np.testing.assert_allclose(table.recall, [2 / 3, 1, 0], atol=1e-15)
    np.testing.assert_allclose(table.f1, [4 / 5, 1 / 2, 0], atol=1e-15)


def test_micro_and_both_macro_f1_by_hand():
    assert micro_f1(TRUE, PRED) == pytest.approx(6 / 10, abs=1e-15)
    assert macro_f1(TRUE, PRED) == pytest.approx(1.3 / 3, abs=1e-15)
    P, R = (4 / 3) / 3, (5 / 3) / 3
    assert macro_f1(TRUE, PRED, definition="harmonic") == pytest.approx(2 * P * R / (P + R), abs=1e-15)


def test_an_unknown_definition_meets_the_list():
    with pytest.raises(ValueError, match="definition must be 'mean' or 'harmonic', got 'weighted'"):
        macro_f1(TRUE, PRED, definition="weighted")


@settings(deadline=None, max_examples=60)
@given(LABELS, LABELS, st.sampled_from([0.0, 1.0]))
def test_the_numbers_are_scikit_learn_s(Y, P, zero_division):
    table = label_table(Y, P, zero_division)
    theirs = precision_recall_fscore_support(Y, P, average=None, zero_division=zero_division)
    for ours, other in zip((table.precision, table.recall, table.f1, table.true), theirs, strict=True):
        np.testing.assert_allclose(ours, other, atol=1e-12)
    assert micro_f1(Y, P, zero_division) == pytest.approx(
        f1_score(Y, P, average="micro", zero_division=zero_division), abs=1e-12
    )
    assert macro_f1(Y, P, zero_division=zero_division) == pytest.approx(
        f1_score(Y, P, average="macro", zero_division=zero_division), abs=1e-12
    )


@settings(deadline=None, max_examples=60)
@given(LABELS, LABELS)
def test_the_harmonic_definition_is_never_the_smaller_one(Y, P):
    assert macro_f1(Y, P, definition="harmonic") >= macro_f1(Y, P) - 1e-12


def test_the_definitions_differ_where_labels_err_in_opposite_ways():
    # one label always predicted, one hardly ever: precisions 1/2 and 1, recalls 1 and 1/10
    Y = np.zeros((20, 2), int)
    Y[:10] = 1
    P = np.zeros((20, 2), int)
    P[:, 0], P[0, 1] = 1, 1
    assert macro_f1(Y, P) == pytest.approx((2 / 3 + 2 / 11) / 2, abs=1e-12)
    assert macro_f1(Y, P, definition="harmonic") == pytest.approx(2 * 0.75 * 0.55 / 1.3, abs=1e-12)


def test_zero_by_zero_is_zero_unless_told():
    empty = np.zeros((3, 2), int)
    for metric in (micro_f1, macro_f1):
        assert metric(empty, empty) == 0
        assert metric(empty, empty, zero_division=1.0) == 1
    assert macro_f1(empty, empty, definition="harmonic") == 0
    # a label that never occurs but is predicted: precision 0, recall undefined, F1 0 whatever 0/0 is
    table = label_table([[0], [0]], [[1], [0]], zero_division=1.0)
    assert (table.precision[0], table.recall[0], table.f1[0]) == (0, 1, 0)


@settings(deadline=None, max_examples=30)
@given(LABELS, LABELS)
def test_sparse_dense_boolean_and_listed_labels_have_the_same_scores(Y, P):
    for kind in (
        csr_array,
        csr_matrix,
        coo_array,
        lambda A: A.astype(bool),
        lambda A: A.astype(float),
        np.ndarray.tolist,
    ):
        for other in (kind(P), P):
            assert micro_f1(kind(Y), other) == micro_f1(Y, P)
            for one, two in zip(label_table(kind(Y), other), label_table(Y, P), strict=True):
                np.testing.assert_array_equal(one, two)
        assert cardinality(kind(Y)) == Y.sum() / 6


def test_many_rows_do_not_overflow_small_types():
    Y = csr_array(np.ones((300, 1), np.uint8))
    assert label_table(Y, Y).hits.tolist() == [300]
    assert label_table(Y.toarray(), Y.toarray()).hits.tolist() == [300]


def test_duplicate_entries_of_a_sparse_matrix_are_refused_and_left_alone():
    twice = csr_array((np.ones(2), np.array([0, 0]), np.array([0, 2])), shape=(1, 2))
    with pytest.raises(ValueError, match="Y_true must hold 0 and 1 alone"):
        micro_f1(twice, twice)
    assert twice.nnz == 2


@pytest.mark.parametrize(
    ("Y", "P", "message"),
    [
        ([[0.5, 1]], [[0, 1]], "Y_true must hold 0 and 1 alone.*probabilities need a threshold"),
        ([[0, 1]], [[0, 2]], "Y_pred must hold 0 and 1 alone"),
        ([[0, np.nan]], [[0, 1]], "Y_true must hold 0 and 1 alone"),
        ([["0", "1"]], [[0, 1]], "Y_true must hold 0 and 1 alone"),
        ([0, 1], [0, 1], r"Y_true must have two dimensions, \(rows, labels\).*got shape \(2,\)"),
        (np.zeros((0, 3)), np.zeros((0, 3)), "at least one of each"),
        ([[0, 1]], [[0, 1, 0]], r"the same rows and labels; got shapes \(1, 2\) and \(1, 3\)"),
        ([[0, 1]], [[0, 1], [0, 1]], r"got shapes \(1, 2\) and \(2, 2\)"),
    ],
)
def test_what_is_no_pair_of_label_matrices_is_refused(Y, P, message):
    with pytest.raises(ValueError, match=message):
        micro_f1(Y, P)


def sample(n, seed):
    """A truth of five labels, and a prediction that flips a fifth of it."""
    rng = np.random.default_rng(seed)
    Y = (rng.random((n, 5)) < 0.3).astype(int)
    return Y, np.where(rng.random((n, 5)) < 0.2, 1 - Y, Y)


def unchecked(Y, P):
    """`micro_f1` of arrays that are known to be fit for it."""
    return 2 * (Y & P).sum() / (Y.sum() + P.sum())


def test_the_interval_covers_the_true_value_as_often_as_it_says():
    assert unchecked(*sample(80, 0)) == micro_f1(*sample(80, 0))
    # Y on w.p. .3, flipped w.p. .2: hits .24, true .3, predicted .24 + .14
    truth = 2 * 0.24 / (0.3 + 0.38)
    inside = [
        low <= truth <= high
        for seed in range(200)
        for _, low, high in [bootstrap_interval(unchecked, *sample(80, seed), level=0.8, n_resamples=200, seed=seed)]
    ]
    assert np.mean(inside) == pytest.approx(0.8, abs=4 * np.sqrt(0.8 * 0.2 / 200))


def test_the_interval_narrows_with_rows_and_is_the_same_for_sparse_labels():
    Y, P = sample(800, 0)
    narrow, wide = (bootstrap_interval(micro_f1, Y[:n], P[:n], n_resamples=300) for n in (800, 50))
    assert narrow.low < narrow.value < narrow.high
    assert 2 < (wide.high - wide.low) / (narrow.high - narrow.low) < 8  # the square root of 16 is 4
    assert narrow.value == micro_f1(Y, P)
    assert bootstrap_interval(micro_f1, csr_array(Y), csr_array(P), n_resamples=300) == narrow
    assert bootstrap_interval(micro_f1, Y, P, n_resamples=300, seed=1) != narrow


@pytest.mark.parametrize(
    ("options", "message"),
    [({"level": 1.0}, "level must be a number in"), ({"n_resamples": 0}, "n_resamples must be an integer above 0")],
)
def test_an_impossible_interval_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        bootstrap_interval(micro_f1, TRUE, PRED, **options)
