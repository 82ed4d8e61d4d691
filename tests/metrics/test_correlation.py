"""Correlations by hand, the scores of a block structure, and switches that do or do not switch."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from sparsevae.data.sets import smiley
from sparsevae.metrics import (
    best_match,
    block_purity,
    contrast,
    correlation_matrix,
    presence_accuracy,
    units_per_group,
    used_units,
)

GROUPS = {"hat": slice(0, 2), "eyes": [2]}
C = np.array(
    [
        [0.8, 0.6, 0.2],  # hat: .8 / (.8 + .2)
        [0.1, 0.3, 0.9],  # eyes: .9 / (.9 + .3)
        [0.0, 0.0, 0.0],  # unused
    ]
)


def test_correlations_agree_with_numpy_and_lose_their_sign():
    rng = np.random.default_rng(0)
    Z, S = rng.normal(size=(50, 4)), rng.normal(size=(50, 3))
    np.testing.assert_allclose(correlation_matrix(Z, S), np.abs(np.corrcoef(Z.T, S.T)[:4, 4:]), atol=1e-12)


def test_correlation_by_hand():
    # centred: (-1, 0, 1) and (-1, 1, 0): 1 / 2
    np.testing.assert_allclose(correlation_matrix([[1.0], [2], [3]], [[0.0], [2], [1]]), [[0.5]])


@pytest.mark.parametrize("value", [0.0, 0.1, -7.3])
def test_a_constant_column_correlates_with_nothing(value):
    rng = np.random.default_rng(0)
    Z, S = rng.normal(size=(1000, 2)), rng.normal(size=(1000, 2))
    Z[:, 1], S[:, 0] = value, value
    got = correlation_matrix(Z, S)
    assert got[1].tolist() == [0, 0]
    assert got[:, 0].tolist() == [0, 0]
    assert got[0, 1] > 0


def test_correlations_see_no_sign_scale_or_shift():
    rng = np.random.default_rng(0)
    Z, S = rng.normal(size=(50, 3)), rng.normal(size=(50, 2))
    np.testing.assert_allclose(correlation_matrix(Z * [-1, 5, 0.1] + 3, -2 * S), correlation_matrix(Z, S), atol=1e-12)


@pytest.mark.parametrize("scale", [1e-300, 1e-200, 1e200, 1e307])
def test_columns_of_any_size_have_their_correlations(scale):
    rng = np.random.default_rng(0)
    Z, S = rng.uniform(-1, 1, size=(50, 3)), rng.uniform(-1, 1, size=(50, 2))
    expected = correlation_matrix(Z, S)
    np.testing.assert_allclose(correlation_matrix(Z * scale, S), expected, rtol=1e-9)
    np.testing.assert_allclose(correlation_matrix(Z * [1, scale, 1], S * scale), expected, rtol=1e-9)


def test_sparse_codes_correlate_as_dense_ones():
    rng = np.random.default_rng(0)
    Z, S = rng.normal(size=(50, 3)) * (rng.random((50, 3)) < 0.4), rng.normal(size=(50, 2))
    np.testing.assert_array_equal(correlation_matrix(csr_array(Z), S), correlation_matrix(Z, S))
    np.testing.assert_array_equal(used_units(csr_array(Z)), used_units(Z))


def test_a_unit_is_used_when_its_deviation_passes_the_threshold():
    Z = np.array([[0.06, 0.04, 9.0], [-0.06, -0.04, 9.0]])
    assert used_units(Z).tolist() == [True, False, False]
    assert used_units(Z, threshold=0).tolist() == [True, True, False]


def test_purity_by_hand():
    assert block_purity(C, GROUPS) == pytest.approx((0.8 + 0.75) / 2)


def test_purity_counts_the_units_it_is_told_to_count():
    assert block_purity(C, GROUPS, used=np.array([False, True, False])) == pytest.approx(0.75)
    assert block_purity(C, GROUPS, used=np.array([True, True, True])) == block_purity(C, GROUPS)


def test_a_block_diagonal_code_is_pure_and_a_flat_one_is_not():
    assert block_purity(np.eye(3), GROUPS) == 1
    assert block_purity(np.full((5, 3), 0.4), GROUPS) == pytest.approx(1 / 2)


def test_contrast_by_hand():
    assert contrast(C) == pytest.approx(((0.8 - 0.4) + (0.9 - 0.2)) / 2)
    assert contrast(C, used=np.array([True, True, True])) == pytest.approx(((0.8 - 0.4) + (0.9 - 0.2)) / 3)
    assert contrast(np.eye(4)) == 1


def test_nothing_used_has_no_purity_and_no_contrast():
    assert np.isnan(block_purity(np.zeros((3, 3)), GROUPS))
    assert np.isnan(contrast(np.zeros((3, 3))))


def test_the_best_match_of_a_source_is_its_strongest_unit_or_none():
    got = best_match(np.hstack([C, np.zeros((3, 1))]))
    assert got.unit.tolist() == [0, 0, 1, -1]
    assert got.correlation.tolist() == [0.8, 0.6, 0.9, 0.0]


def test_units_are_counted_where_they_correlate_most_and_above_the_floor():
    assert units_per_group(C, GROUPS) == {"hat": 1, "eyes": 1}
    assert units_per_group(C, GROUPS, floor=0.85) == {"hat": 0, "eyes": 1}
    assert units_per_group(C, GROUPS, used=np.array([True, False, False])) == {"hat": 1, "eyes": 0}


def test_the_order_of_units_changes_no_score():
    order = [2, 0, 1]
    assert block_purity(C[order], GROUPS) == pytest.approx(block_purity(C, GROUPS))
    assert contrast(C[order]) == pytest.approx(contrast(C))
    assert best_match(C[order]).correlation.tolist() == best_match(C).correlation.tolist()
    assert units_per_group(C[order], GROUPS) == units_per_group(C, GROUPS)


def test_the_true_sources_of_the_smileys_are_a_perfect_code():
    rng = np.random.default_rng(0)
    gates = rng.random((4000, 4)) < 0.5
    S = np.repeat(gates, [4, 6, 3, 5], axis=1)
    truth = S * rng.normal(size=S.shape)
    order = rng.permutation(18)
    Z = np.hstack([-3 * truth[:, order], np.zeros((4000, 2))])  # shuffled, scaled, flipped, two units too many
    M = correlation_matrix(np.abs(Z), np.abs(truth))
    used = used_units(Z)
    assert used.sum() == 18
    assert units_per_group(M, smiley.GROUPS, used) == {"bowtie": 4, "hat": 6, "eyes": 3, "mouth": 5}
    match = best_match(M)
    np.testing.assert_array_equal(match.unit, np.argsort(order))
    np.testing.assert_allclose(match.correlation, 1)
    presence = presence_accuracy(Z, S, smiley.GROUPS)
    np.testing.assert_array_equal(presence.accuracy, np.ones(4))
    owner = np.repeat(range(4), [4, 6, 3, 5])
    np.testing.assert_array_equal(owner[order[presence.unit]], range(4))


def test_a_unit_that_is_on_in_part_of_the_present_rows_has_the_mean_of_two_rates():
    present = np.repeat([1, 0], 400)[:, None]
    z = np.zeros(800)
    z[:400:2] = 1.0  # on in half of the present rows
    z[400::4] = -1.0  # and in a quarter of the absent ones
    got = presence_accuracy(z[:, None], present)
    assert got.unit.tolist() == [0]
    # The rates of one random half lie around 1/2 and 1/4: five standard errors.
    assert got.accuracy[0] == pytest.approx((1 / 2 + 3 / 4) / 2, abs=5 * np.sqrt((1 / 4 + 3 / 16) / 200 / 4))


def test_a_dense_code_is_no_switch_and_neither_is_a_unit_that_says_the_opposite():
    present = np.tile([1, 0], 50)[:, None]
    rng = np.random.default_rng(0)
    assert presence_accuracy(rng.normal(size=(100, 9)), present).accuracy.tolist() == [0.5]
    assert presence_accuracy(1 - present, present).accuracy.tolist() == [0.0]


def test_a_threshold_makes_a_switch_of_a_noisy_unit():
    present = np.tile([1, 0], 50)[:, None]
    noisy = present + 0.01
    assert presence_accuracy(noisy, present).accuracy.tolist() == [0.5]
    assert presence_accuracy(noisy, present, threshold=0.1).accuracy.tolist() == [1.0]


def test_the_best_of_many_random_units_is_not_flattered():
    rng = np.random.default_rng(0)
    Z = (rng.random((400, 500)) < 0.5).astype(float)
    present = rng.random((400, 8)) < 0.5
    rows = [present[:, g] for g in range(8)]
    same_rows = np.mean([((Z[p].mean(0) + 1 - Z[~p].mean(0)) / 2).max() for p in rows])
    assert same_rows > 0.55
    # 8 groups, 200 rows each, balanced accuracy of a coin: standard error sqrt(.25 / 200) / sqrt(8) = .0125
    assert abs(presence_accuracy(Z, present).accuracy.mean() - 0.5) < 3 * 0.0125


def test_the_halves_are_a_function_of_the_seed():
    rng = np.random.default_rng(0)
    Z, present = (rng.random((60, 4)) < 0.5).astype(float), rng.random((60, 1)) < 0.5
    scores = [presence_accuracy(Z, present, seed=seed).accuracy[0] for seed in (0, 0, 1, 2, 3)]
    assert scores[0] == scores[1]
    assert len(set(scores)) > 1


def test_a_group_is_present_where_any_of_its_sources_is():
    S = np.tile([[1, 0, 1], [0, 1, 0], [0, 0, 1], [0, 0, 0]], (5, 1))
    got = presence_accuracy(S[:, :1] | S[:, 1:2], S, {"pair": slice(0, 2), "single": [2]})
    assert got.accuracy.tolist() == [1.0, 0.5]


def test_presence_accepts_sparse_codes():
    present = np.tile([1, 0], 10)[:, None]
    assert presence_accuracy(csr_array(present * 2.0), present).accuracy.tolist() == [1.0]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: correlation_matrix(np.eye(3), np.eye(4)), "Z has 3, S has 4"),
        (lambda: correlation_matrix(np.eye(3), [[np.nan]] * 3), "S must hold finite numbers; 3"),
        (lambda: block_purity(-C, GROUPS), "absolute correlations"),
        (lambda: block_purity(C, {"hat": [3]}), r"group 'hat' has columns \[3\], but there are 3"),
        (lambda: block_purity(C, {"hat": slice(3, 5)}), "group 'hat' is empty"),
        (lambda: block_purity(C, {"hat": [0, 1], "eyes": [1, 2]}), "no source may be in two"),
        (lambda: block_purity(C, {}), "at least one group"),
        (lambda: block_purity(C, GROUPS, used=[1, 2, 0]), "mask of 3 booleans"),
        (lambda: contrast(C, used=np.array([True])), "mask of 3 booleans"),
        (lambda: contrast([[0.5]]), "at least two sources"),
        (lambda: used_units(C, None), "threshold must be a number, 0 or above, got None"),
        (lambda: used_units(C, -1), "threshold must be a number, 0 or above, got -1"),
        (lambda: used_units(C, np.nan), "threshold must be a number, 0 or above, got nan"),
        (lambda: units_per_group(C, GROUPS, floor=np.nan), "floor must be a number, 0 or above, got nan"),
        (lambda: presence_accuracy(C, C), "zeros and ones"),
        (lambda: presence_accuracy(C, [[1], [1], [0]]), "it is absent in 1"),
        (lambda: presence_accuracy(C, [[1], [0]]), "Z has 3, present has 2"),
        (lambda: presence_accuracy(C, [[1], [0], [0]], threshold=-1), "threshold must be a number"),
        (lambda: presence_accuracy(C, [[1], [0], [0]], threshold=np.nan), "threshold must be a number"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(("groups", "message"), [([0, 1], "groups must be a dict"), ({"hat": [0.5]}, "column numbers")])
def test_groups_are_named_columns(groups, message):
    with pytest.raises(TypeError, match=message):
        block_purity(C, groups)
