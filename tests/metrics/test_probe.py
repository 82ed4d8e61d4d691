"""The linear probe reads what is linear, from as few labels as it is given, whatever the units' scales."""

import numpy as np
import pytest
from scipy.sparse import csr_array, csr_matrix

from sparsevae.metrics import linear_probe
from sparsevae.metrics.probe import _stratified

RNG = np.random.default_rng(0)
Y = RNG.integers(0, 3, 600)
Z = np.eye(3)[Y] * RNG.normal(2, 0.5, size=(600, 1)) + RNG.normal(0, 0.3, size=(600, 3)) * (RNG.random((600, 3)) < 0.5)
TRAIN, TEST = (Z[:400], Y[:400]), (Z[400:], Y[400:])


def test_separated_classes_are_read_without_error():
    assert linear_probe([[1.0, 0], [2, 0], [0, 1], [0, 3]], ["a", "a", "b", "b"], [[1.0, 0], [0, 2]], ["a", "b"]) == 1


def test_the_accuracy_is_the_share_of_test_rows_that_are_right():
    codes, classes = [[1.0, 0], [2, 0], [0, 1], [0, 3]], [0, 0, 1, 1]
    assert linear_probe(codes, classes, [[1.0, 0], [2, 0], [0, 2], [0, 1]], [0, 0, 1, 0]) == 0.75


def test_random_codes_are_read_at_chance():
    rng = np.random.default_rng(1)
    got = linear_probe(
        rng.normal(size=(2000, 5)), np.tile([0, 1], 1000), rng.normal(size=(2000, 5)), np.tile([0, 1], 1000)
    )
    assert abs(got - 0.5) < 4 * np.sqrt(0.25 / 2000)


def test_units_may_have_any_scale_sign_and_order():
    scale = np.array([1e-4, -1.0, 1e5])
    want = linear_probe(*TRAIN, *TEST)
    assert want > 0.9
    assert linear_probe(Z[:400] * scale, Y[:400], Z[400:] * scale, Y[400:]) == want
    assert linear_probe(Z[:400, ::-1], Y[:400], Z[400:, ::-1], Y[400:]) == want


@pytest.mark.parametrize("sparse", [csr_array, csr_matrix])
def test_sparse_codes_are_read_as_dense_ones(sparse):
    for n_labels in (None, 30):
        want = linear_probe(*TRAIN, *TEST, n_labels=n_labels)
        assert linear_probe(sparse(Z[:400]), Y[:400], sparse(Z[400:]), Y[400:], n_labels=n_labels) == want


def test_a_dead_unit_is_no_trouble():
    dead = np.hstack([Z, np.zeros((600, 2))])
    assert linear_probe(dead[:400], Y[:400], dead[400:], Y[400:]) == linear_probe(*TRAIN, *TEST)


def test_all_labels_are_the_default():
    assert linear_probe(*TRAIN, *TEST, n_labels=400) == linear_probe(*TRAIN, *TEST)


def test_the_choice_of_labels_is_a_function_of_the_seed():
    rng = np.random.default_rng(2)
    noisy = Z + rng.normal(size=Z.shape)
    scores = [linear_probe(noisy[:400], Y[:400], noisy[400:], Y[400:], 6, seed) for seed in (0, 0, 1, 2, 3)]
    assert scores[0] == scores[1]
    assert len(set(scores)) > 1
    assert max(scores) < linear_probe(noisy[:400], Y[:400], noisy[400:], Y[400:])


def test_each_class_is_chosen_in_its_share_and_at_least_once():
    y = np.repeat(["a", "b", "c"], [60, 30, 1])
    chosen = _stratified(y, 10, seed=0)
    assert len(set(chosen.tolist())) == 10
    assert np.unique(y[chosen], return_counts=True)[1].tolist() == [6, 3, 1]
    assert sorted(y[_stratified(y, 3, seed=1)]) == ["a", "b", "c"]
    assert sorted(_stratified(y, 91, seed=0)) == list(range(91))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: linear_probe(*TRAIN, *TEST, n_labels=2), "number of classes, 3, and of training rows, 400; got 2"),
        (lambda: linear_probe(*TRAIN, *TEST, n_labels=401), "got 401"),
        (lambda: linear_probe(*TRAIN, *TEST, n_labels=10.5), "n_labels must be an integer between .*; got 10.5"),
        (lambda: linear_probe(*TRAIN, *TEST, n_labels="10"), "n_labels must be an integer between .*; got '10'"),
        (
            lambda: linear_probe(Z, [*Y[:-1], None], *TEST),
            "y_train must hold a label for every row; 1 of 600 are missing",
        ),
        (lambda: linear_probe(*TRAIN, Z, [*Y[:-1], None]), "y_test must hold a label for every row; 1 of 600"),
        (lambda: linear_probe(Z, Y[:5], *TEST), r"y_train must hold one label for each of the 600 rows"),
        (lambda: linear_probe(*TRAIN, Z, Y[:5]), r"y_test must hold one label"),
        (lambda: linear_probe(Z, np.zeros(600), *TEST), "at least two classes"),
        (lambda: linear_probe(*TRAIN, Z[:, :2], Y), "Z_train has 3 units but Z_test has 2"),
        (lambda: linear_probe(Z * np.nan, Y, *TEST), "Z_train contains NaN"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
