"""Scores that are one for a one-to-one code, lower for a rotated one, and by hand where a hand can do it."""

import itertools
import math

import numpy as np
import pytest
from scipy.sparse import csr_array

from sparsevae.metrics import dci, dci_completeness, dci_disentanglement, mig, modularity, mutual_information, sap

GRID = np.array(list(itertools.product(range(4), range(4), range(4))))  # three factors, exactly independent
RNG = np.random.default_rng(0)
AMOUNTS = RNG.uniform(-1, 1, size=(600, 2))
TURN = np.array([[1.0, -1.0], [1.0, 1.0]]) / math.sqrt(2)
SCORES = {"mig": mig, "modularity": modularity, "sap": lambda Z, v: sap(Z, v, adjusted=True)}


@pytest.mark.parametrize("score", SCORES.values(), ids=SCORES)
def test_the_factors_themselves_score_one_in_any_order_sign_and_scale(score):
    Z = (GRID * [1.0, -2.0, 0.01] + 5)[:, [2, 0, 1]]
    assert score(Z, GRID) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("score", SCORES.values(), ids=SCORES)
def test_a_rotated_code_scores_lower_than_the_factors(score):
    straight, turned = score(AMOUNTS, AMOUNTS), score(AMOUNTS @ TURN, AMOUNTS)
    assert straight > 0.85
    assert turned < straight - 0.3


@pytest.mark.parametrize("score", [mig, lambda Z, v: sap(Z, v, adjusted=True), sap])
def test_a_random_code_scores_near_zero(score):
    rng = np.random.default_rng(3)
    assert score(rng.normal(size=(20_000, 5)), rng.integers(0, 3, size=(20_000, 2))) < 0.01


@pytest.mark.parametrize("score", SCORES.values(), ids=SCORES)
def test_scores_do_not_depend_on_the_order_of_units_or_factors(score):
    Z, v = AMOUNTS @ TURN + AMOUNTS, AMOUNTS
    assert score(Z[:, ::-1], v) == pytest.approx(score(Z, v), abs=1e-12)
    assert score(Z, v[:, ::-1]) == pytest.approx(score(Z, v), abs=1e-12)
    assert score(Z * [2.0, 64.0], v) == pytest.approx(score(Z, v), abs=1e-12)


@pytest.mark.parametrize("score", SCORES.values(), ids=SCORES)
def test_a_dead_unit_changes_nothing_and_only_dead_units_score_zero(score):
    Z = np.hstack([GRID, np.full((64, 2), 0.1)])
    assert score(Z, GRID) == pytest.approx(1, abs=1e-12)
    assert score(np.full((64, 2), 0.1), GRID) == 0


@pytest.mark.parametrize("score", SCORES.values(), ids=SCORES)
def test_sparse_codes_score_as_dense_ones(score):
    Z = GRID * (GRID > 1.0)
    assert score(csr_array(Z.astype(float)), GRID) == score(Z, GRID)


def test_mutual_information_by_hand():
    # joint of (z, v): (0,0) 1/2, (0,1) 1/4, (1,1) 1/4; H(v) = log 2, H(v|z) = 3/4 h(1/3)
    h = -(1 / 3) * math.log(1 / 3) - (2 / 3) * math.log(2 / 3)
    got = mutual_information([[0.0], [0.0], [0.0], [1.0]], [[0], [0], [1], [1]])
    assert got[0, 0] == pytest.approx(math.log(2) - 0.75 * h, abs=1e-12)


def test_mutual_information_of_a_continuous_factor_with_itself_is_the_entropy_of_its_bins():
    v = np.arange(8.0)[:, None]  # bins of width 7/4 hold 0 1 | 2 3 | 4 5 | 6 7
    assert mutual_information(v, v, n_bins=4)[0, 0] == pytest.approx(math.log(4))
    assert mutual_information(v, v, n_bins=4, discrete=True)[0, 0] == pytest.approx(math.log(8))  # theirs
    assert mutual_information(v, v, n_bins=20)[0, 0] == pytest.approx(math.log(8))


def test_names_are_told_apart_however_close_their_numbers_are():
    which = np.arange(9)[:, None] % 3
    names = np.array([0, 1, 1000])[which]  # bins of equal width would merge the first two
    assert mutual_information(which, names)[0, 0] == pytest.approx(math.log(3))
    assert mutual_information(which, names, discrete=False)[0, 0] < math.log(2)


@pytest.mark.parametrize("score", [mig, modularity])
@pytest.mark.parametrize("levels", [20, 21, 40])
def test_discrete_factors_of_any_number_of_levels_score_one_themselves(score, levels):
    """Bins would merge the levels of the units, not of the factors."""
    v = np.array(list(itertools.product(range(levels), range(3))))
    assert score(v * [0.1, -3.0] + 7, v) == pytest.approx(1, abs=1e-12)


def test_units_of_many_values_are_cut_into_bins_whatever_the_levels_of_the_factors():
    which = np.arange(4000)[:, None] % 40
    z = which + np.linspace(0, 0.9, 4000)[:, None]  # 4,000 values: 20 bins hold two levels each
    assert mutual_information(z, which)[0, 0] == pytest.approx(math.log(20), rel=1e-2)
    assert mutual_information(np.floor(z), which)[0, 0] == pytest.approx(math.log(40))  # 40 values


def test_the_levels_of_one_factor_leave_the_information_on_another_as_it_is():
    rng = np.random.default_rng(0)
    z, which = rng.normal(size=(300, 2)), rng.integers(0, 2, size=300)
    both = mutual_information(z, np.column_stack([np.arange(300), which]))  # beside a name for each row
    assert both[:, 1].tolist() == mutual_information(z, which[:, None])[:, 0].tolist()


def test_a_unit_that_is_independent_of_every_factor_has_no_information_and_no_say():
    grid = np.array(list(itertools.product(range(6), range(6), range(6))))  # sixths do not add up exactly
    assert mutual_information(grid, grid[:, :2])[2].tolist() == [0, 0]
    assert modularity(grid, grid[:, :2]) == pytest.approx(1, abs=1e-12)


def test_the_gap_by_hand():
    v = np.array([0, 0, 1, 1])[:, None]
    Z = np.array([[0.0, 0], [0, 0], [1, 0], [1, 1]])  # I = log 2 and log 2 - 3/4 h(1/3)
    h = -(1 / 3) * math.log(1 / 3) - (2 / 3) * math.log(2 / 3)
    assert mig(Z, v) == pytest.approx(0.75 * h / math.log(2), abs=1e-12)
    assert mig(Z[:, :1], v) == 1  # nobody is second
    assert mig(Z[:, [0, 0]], v) == 0  # both are first


def test_a_code_that_says_everything_twice_is_modular_and_has_no_gap():
    Z = np.hstack([GRID, GRID])
    assert mig(Z, GRID) == pytest.approx(0, abs=1e-12)
    assert sap(Z, GRID) == pytest.approx(0, abs=1e-12)
    assert modularity(Z, GRID) == pytest.approx(1, abs=1e-12)


def test_modularity_by_hand():
    # One unit numbers the pairs of a factor of 2 values and one of 4: I = log 2 and 2 log 2, ratio 1/2.
    v = np.array(list(itertools.product(range(2), range(4))))
    Z = (4 * v[:, :1] + v[:, 1:]).astype(float)
    assert modularity(Z, v) == pytest.approx(1 - 1 / 4, abs=1e-12)


def test_sap_of_amounts_is_the_gap_of_squared_correlations():
    v = np.array([-1.0, -1, 1, 1])[:, None]
    side = np.array([-1.0, 1, -1, 1])[:, None]
    Z = np.hstack([0.8 * v + 0.6 * side, 0.6 * v - 0.8 * side])  # correlations .8 and .6
    assert sap(Z, v) == pytest.approx(0.64 - 0.36, abs=1e-12)


def test_sap_of_names_is_the_gap_of_balanced_accuracies():
    v = np.array([0, 0, 0, 1])[:, None]
    Z = np.array([[0.0, 0], [1, 0], [2, 1], [3, 1]])  # the second is right in 2/3 of class 0 and in all of class 1
    assert sap(Z, v) == pytest.approx(1 - (2 / 3 + 1) / 2, abs=1e-12)
    assert sap(Z, v, adjusted=True) == pytest.approx(2 * (1 - (2 / 3 + 1) / 2), abs=1e-12)
    assert sap(Z[:, :1], v) == 0.5  # nobody is second: chance
    assert sap(GRID, GRID) == pytest.approx(1 - 1 / 4)


def test_sap_needs_no_order_of_names():
    renamed = np.array([30, 10, 40, 20])[GRID]
    assert sap(GRID, renamed, adjusted=True) == pytest.approx(1)


def test_factors_are_discrete_when_they_are_integers_or_when_said_so():
    Z = AMOUNTS
    names = (AMOUNTS > 0).astype(int)
    assert sap(Z, names) == sap(Z, names > 0) == sap(Z, names.astype(float), discrete=True)
    assert sap(Z, names) != sap(Z, names, discrete=False)
    mixed = np.stack([AMOUNTS[:, 0], names[:, 1]], 1)
    both = [sap(Z, mixed[:, [k]], discrete=[k == 1]) for k in range(2)]
    assert sap(Z, mixed, discrete=[False, True]) == pytest.approx(np.mean(both))


def test_d_and_c_of_importances_by_hand():
    R = np.array([[3.0, 1.0], [0.0, 2.0], [0.0, 0.0]])
    h = (-(3 / 4) * math.log(3 / 4) - (1 / 4) * math.log(1 / 4)) / math.log(2)  # of the first unit, base 2
    assert dci_disentanglement(R) == pytest.approx((4 / 6) * (1 - h) + (2 / 6) * 1, abs=1e-12)
    third = (-(1 / 3) * math.log(1 / 3) - (2 / 3) * math.log(2 / 3)) / math.log(3)  # of the second factor, base 3
    assert dci_completeness(R) == pytest.approx((1 + 1 - third) / 2, abs=1e-12)


def test_one_to_one_importances_are_perfect_and_flat_ones_are_worthless():
    for score in (dci_disentanglement, dci_completeness):
        assert score(np.eye(3)[[2, 0, 1]]) == 1
        assert score(np.full((4, 3), 0.2)) == pytest.approx(0, abs=1e-12)
        assert score(np.zeros((4, 3))) == 0


def test_two_units_for_a_factor_are_disentangled_and_not_complete():
    R = [[0.5, 0.0], [0.5, 0.0], [0.0, 1.0]]
    assert dci_disentanglement(R) == 1
    assert dci_completeness(R) == pytest.approx((1 - math.log(2) / math.log(3) + 1) / 2)


def test_two_factors_in_a_unit_are_complete_and_not_disentangled():
    R = [[1.0, 1.0], [0.0, 0.0]]
    assert dci_disentanglement(R) == pytest.approx(0, abs=1e-12)
    assert dci_completeness(R) == 1


@pytest.mark.parametrize("predictor", ["forest", "boosting", "lasso"])
def test_dci_of_amounts_is_near_one_for_the_factors_and_lower_when_rotated(predictor):
    straight = dci(AMOUNTS[:, ::-1] * [-3, 1], AMOUNTS, predictor=predictor)
    assert min(straight[:3]) > 0.97
    assert straight.importance.argmax(0).tolist() == [1, 0]
    turned = dci(AMOUNTS @ TURN, AMOUNTS, predictor=predictor)
    assert turned.disentanglement < 0.2
    assert turned.completeness < 0.2
    assert turned.informativeness > 0.8  # everything is there, but not in one place


@pytest.mark.parametrize("predictor", ["forest", "boosting", "lasso"])
def test_dci_of_names_is_near_one_for_the_factors(predictor):
    names = (AMOUNTS > 0).astype(int)
    assert min(dci(names * 1.0, names, predictor=predictor)[:3]) > 0.99


def test_importances_that_boosting_rounds_below_zero_are_no_trouble():
    rng = np.random.default_rng(0)
    v = rng.uniform(size=(270, 1))
    got = dci(np.hstack([v, rng.normal(size=(270, 10))]), (4 * v).astype(int), predictor="boosting")
    assert got.importance.min() == 0
    assert got.completeness > 0.99


def test_dci_of_a_random_code_is_near_zero():
    got = dci(np.random.default_rng(1).normal(size=(600, 4)), AMOUNTS)
    assert max(got[:3]) < 0.05


def test_dci_is_made_of_its_importances_and_of_its_seed():
    Z = AMOUNTS @ TURN
    got, again, other = (dci(Z, AMOUNTS, seed=seed) for seed in (0, 0, 1))
    assert got[:3] == again[:3] != other[:3]
    for predictor in ("forest", "lasso"):
        np.testing.assert_allclose(dci(Z, AMOUNTS * [1, 9], predictor=predictor).importance.sum(0), [1, 1])
    assert got.disentanglement == dci_disentanglement(got.importance)
    assert got.completeness == dci_completeness(got.importance)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mig(GRID, GRID[1:]), "Z has 64, factors has 63"),
        (lambda: mig(GRID, np.hstack([GRID, np.ones((64, 1))])), r"constant columns: \[3\]"),
        (lambda: mig(GRID, GRID, n_bins=1), "n_bins must be an integer, 2 or above, got 1"),
        (lambda: mig(GRID, GRID, n_bins=2.5), "n_bins must be an integer, 2 or above, got 2.5"),
        (lambda: mig(GRID * np.nan, GRID), "Z must hold finite"),
        (lambda: mig(GRID, GRID[:, 0]), r"factors must have two dimensions.*\(64,\)"),
        (lambda: mig(GRID, GRID, discrete=[True]), "3 booleans, one per factor"),
        (lambda: modularity(GRID, GRID[:, :1]), "at least two factors"),
        (lambda: dci(GRID, GRID, predictor="tree"), "predictor must be 'forest', 'boosting' or 'lasso', got 'tree'"),
        (lambda: dci(GRID, GRID, test_share=1 - 1e-6), "at least two rows for testing"),
        (lambda: dci(GRID, GRID, test_share="a"), "test_share must be a number in \\(0, 1\\), got 'a'"),
        (lambda: dci(GRID, np.eye(64, dtype=int)[:, :2]), "factor 0 has one value only"),
        (lambda: dci_completeness([[1.0, -1.0]]), "none below 0"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_numbers_near_the_largest_are_cut_into_bins_like_others():
    assert mig(GRID * 2.0**1020, GRID) == mig(GRID, GRID)
    assert mig((GRID - GRID.mean(0)) * 1e307, GRID) == pytest.approx(mig(GRID, GRID))
