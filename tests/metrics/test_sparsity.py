"""Hoyer's measure by hand, its corners, and what the average and the aggregate say of a code."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.sparse import csr_array, csr_matrix

from sparsevae.metrics import active_units, aggregate_hoyer, average_hoyer, class_hoyer, hoyer

ROWS = arrays(np.float64, (4, 3), elements=st.floats(-100, 100).map(lambda x: round(x, 2)))


def test_hoyer_is_one_for_one_hot_and_zero_for_equal_magnitudes():
    np.testing.assert_allclose(hoyer(np.vstack([np.eye(5), -2 * np.ones((1, 5))])), [1, 1, 1, 1, 1, 0], atol=1e-12)


def test_hoyer_by_hand():
    # |v|_1 = 7, |v|_2 = 5, d = 4: (2 - 7/5) / (2 - 1)
    assert hoyer([3.0, 0.0, -4.0, 0.0]) == pytest.approx(0.6, abs=1e-12)


def test_half_the_units_on_alike_has_its_closed_form():
    # k equal entries among d: (sqrt d - sqrt k) / (sqrt d - 1)
    assert hoyer([1.0] * 4 + [0.0] * 12) == pytest.approx(2 / 3, abs=1e-12)


def test_a_row_of_zeros_is_the_sparsest_of_all():
    np.testing.assert_array_equal(hoyer(np.zeros((2, 6))), [1, 1])


def test_with_one_unit_the_mean_is_the_share_of_rows_in_which_it_is_off():
    assert average_hoyer([[0.0], [3.0], [0.0], [-1.0]], normalise=False) == 0.5


def test_hoyer_takes_any_leading_dimensions():
    v = np.random.default_rng(0).normal(size=(2, 3, 5))
    np.testing.assert_array_equal(hoyer(v), np.stack([hoyer(v[0]), hoyer(v[1])]))


@pytest.mark.parametrize("scale", [1e-300, 1e300])
def test_very_small_and_very_large_codes_neither_vanish_nor_overflow(scale):
    Z = np.random.default_rng(0).normal(size=(50, 4)) * [1, 0, 2, 3]
    assert average_hoyer(Z * scale) == pytest.approx(average_hoyer(Z), abs=1e-12)
    assert hoyer(np.array([3.0, 0.0, -4.0, 0.0]) * scale) == pytest.approx(0.6, abs=1e-12)


@settings(deadline=None)
@given(ROWS, st.permutations(range(3)), st.lists(st.sampled_from([-1, 1]), min_size=3, max_size=3))
def test_hoyer_sees_neither_order_nor_sign_nor_scale_and_stays_in_its_range(v, order, signs):
    h = hoyer(v)
    assert ((h >= 0) & (h <= 1)).all()
    np.testing.assert_allclose(hoyer(2.5 * (v * signs)[:, order]), h, atol=1e-9)


@settings(deadline=None)
@given(ROWS)
def test_average_hoyer_sees_no_scale_of_single_units(Z):
    assert average_hoyer(Z * [1.0, 8.0, -0.25]) == pytest.approx(average_hoyer(Z), abs=1e-9)


def test_average_hoyer_is_the_mean_over_rows_of_the_code_in_units_of_its_deviation():
    Z = np.array([[1.0, 0.0], [-1.0, 4.0]])  # deviations, ddof 0: 1 and 2; rows become (1, 0) and (-1, 2)
    second = (math.sqrt(2) - 3 / math.sqrt(5)) / (math.sqrt(2) - 1)
    assert average_hoyer(Z) == pytest.approx((1 + second) / 2, abs=1e-12)


def test_another_ddof_would_give_the_same_average():
    Z = np.random.default_rng(1).normal(size=(7, 4))
    assert average_hoyer(Z) == pytest.approx(hoyer(Z / Z.std(0, ddof=1)).mean(), abs=1e-12)


def test_the_average_of_a_standard_normal_code_is_the_known_reference():
    Z = np.random.default_rng(0).normal(size=(20_000, 32))
    assert average_hoyer(Z) == pytest.approx(0.238, abs=0.001)


def test_the_average_of_the_sparse_prior_is_the_known_reference():
    rng = np.random.default_rng(0)
    off = rng.random((20_000, 32)) < 0.8
    assert average_hoyer(rng.normal(size=off.shape) * np.where(off, 0.05, 1.0)) == pytest.approx(0.664, abs=0.002)


@pytest.mark.parametrize("dead", [0.0, 0.1, 1e6])
def test_a_dead_unit_becomes_zero_and_counts_in_d(dead):
    Z = np.hstack([[[1.0, 1.0], [-1.0, 1.0], [1.0, -1.0]], np.full((3, 2), dead)])
    live = average_hoyer(Z[:, :2] * 1.0)
    padded = np.hstack([Z[:, :2] / Z[:, :2].std(0), np.zeros((3, 2))])
    assert average_hoyer(Z) == pytest.approx(hoyer(padded).mean(), abs=1e-12)
    assert average_hoyer(Z) > live + 0.5  # two of four units are off, instead of none of two


def test_rows_with_different_units_are_sparse_each_and_dense_together():
    assert average_hoyer(np.eye(6)) == pytest.approx(1, abs=1e-12)
    assert aggregate_hoyer(np.eye(6)) == pytest.approx(0, abs=1e-12)


def test_rows_with_the_same_unit_are_as_sparse_together_as_each():
    Z = np.zeros((4, 5))
    Z[:, 2] = [1, -1, 2, -2]
    assert aggregate_hoyer(Z) == average_hoyer(Z) == 1


def test_aggregate_hoyer_by_hand_and_signed():
    Z = [[1.0, 1.0], [-1.0, 7.0]]
    # mean |z| = (1, 4); signed mean = (0, 4)
    by_hand = (math.sqrt(2) - 5 / math.sqrt(17)) / (math.sqrt(2) - 1)
    assert aggregate_hoyer(Z, normalise=False) == pytest.approx(by_hand, abs=1e-12)
    assert aggregate_hoyer(Z, normalise=False, absolute=False) == 1


def test_class_hoyer_of_one_class_is_the_hoyer_of_all():
    Z = np.random.default_rng(0).normal(size=(30, 5))
    got = class_hoyer(Z, np.zeros(30, int))
    assert got.average == pytest.approx([average_hoyer(Z)])
    assert got.aggregate == pytest.approx([aggregate_hoyer(Z)])


def test_class_hoyer_uses_the_deviation_over_all_classes():
    Z, y = np.array([[1.0, 0.0], [1.0, 4.0], [-1.0, 0.0], [-1.0, 4.0]]), ["b", "b", "a", "a"]
    got = class_hoyer(Z, y)  # deviations 1 and 2; both classes have |z| = (1, 0) and (1, 2), mean (1, 1)
    row = (math.sqrt(2) - 3 / math.sqrt(5)) / (math.sqrt(2) - 1)
    assert got.classes.tolist() == ["a", "b"]
    np.testing.assert_allclose(got.average, [(1 + row) / 2] * 2)
    np.testing.assert_allclose(got.aggregate, [0, 0], atol=1e-12)


def test_rare_units_are_left_out_of_the_average_code_for_all_classes():
    # Shares on: 1/4, 2/4, 3/4, 1. ceil(.25 * 4) = 1: the limit is 2/4, units 2 and 3 stay.
    Z = np.array([[9.0, 1, 1, 1], [0, 1, 1, 1], [0, 0, 1, 1], [0, 0, 0, 1]])
    got = class_hoyer(Z, [0, 0, 1, 1], normalise=False, rare=0.25)
    one_half = (2 - 1.5 / math.sqrt(1.25)) / 1  # of (0, 0, 1/2, 1)
    two = (2 - math.sqrt(2)) / 1  # of (0, 0, 1, 1)
    np.testing.assert_allclose(got.aggregate, [two, one_half])
    np.testing.assert_allclose(got.average, class_hoyer(Z, [0, 0, 1, 1], normalise=False).average)


def test_a_limit_that_keeps_no_unit_is_refused():
    with pytest.raises(ValueError, match="keeps no unit"):
        class_hoyer(np.ones((4, 3)) + np.eye(4, 3), [0, 0, 1, 1], normalise=False, rare=0.05)


def test_active_units_compares_the_variance_of_the_means():
    means = np.array([[0.11, 0.09, 3.0], [-0.11, -0.09, 3.0]])  # variances .0121, .0081, 0
    assert active_units(means).tolist() == [True, False, False]
    assert active_units(means, threshold=0).tolist() == [True, True, False]


def test_a_constant_unit_is_never_active_whatever_the_rounding():
    assert not active_units(np.full((1000, 1), 0.1), threshold=0).any()


@pytest.mark.parametrize("sparse", [csr_array, csr_matrix])
def test_sparse_codes_give_what_dense_ones_give(sparse):
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(40, 6)) * (rng.random((40, 6)) < 0.3)
    y = rng.integers(0, 3, 40)
    S = sparse(Z.astype(np.float64))
    np.testing.assert_array_equal(hoyer(S), hoyer(Z))
    np.testing.assert_array_equal(active_units(S), active_units(Z))
    assert average_hoyer(S) == average_hoyer(Z)
    assert aggregate_hoyer(S) == aggregate_hoyer(Z)
    np.testing.assert_array_equal(class_hoyer(S, y).aggregate, class_hoyer(Z, y).aggregate)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: hoyer([1.0, np.nan]), "v must hold finite numbers; 1 are NaN"),
        (lambda: hoyer(3.0), "at least one entry"),
        (lambda: hoyer(np.zeros((2, 0))), "at least one entry"),
        (lambda: hoyer(["a", "b"]), "must hold numbers; got values of type <U1"),
        (lambda: average_hoyer([1.0, 2.0]), r"two dimensions.*got shape \(2,\)"),
        (lambda: aggregate_hoyer(np.zeros((0, 3))), r"got shape \(0, 3\)"),
        (lambda: class_hoyer(np.eye(3), [0, 1]), r"each of the 3 rows; got shape \(2,\)"),
        (lambda: class_hoyer(np.eye(3), [0, 1, np.nan]), "y must hold a label for every row; 1 of 3 are missing"),
        (lambda: class_hoyer(np.eye(3), [0, 1, np.inf]), "finite labels; 1 are infinite"),
        (lambda: class_hoyer(np.eye(3), [None, "a", None]), "y must hold a label for every row; 2 of 3 are missing"),
        (lambda: class_hoyer(np.eye(3), None), "each of the 3 rows; got None"),
        (lambda: class_hoyer(np.eye(3), np.array(["a", 1, 1], object)), "labels of one kind.*; got int, str"),
        (lambda: class_hoyer(np.eye(3), [0, 1, 1], rare=0.5, threshold=np.nan), "threshold must be a number"),
        (lambda: class_hoyer(np.eye(3), [0, 1, 1], rare=1.0), r"share in \[0, 1\)"),
        (lambda: active_units(np.eye(3), threshold=-1), "threshold must be a number, 0 or above, got -1"),
        (lambda: active_units(np.eye(3), threshold=np.nan), "threshold must be a number, 0 or above, got nan"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
