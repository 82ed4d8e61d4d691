"""Two seeds that found the same features are equal in any order, sign and scale; a missing feature costs."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from sparsevae.metrics import match_units, seed_stability

RNG = np.random.default_rng(0)
Z = RNG.normal(size=(300, 6)) * (RNG.random((300, 6)) < 0.5)
ORDER = RNG.permutation(6)


def test_a_shuffled_flipped_and_scaled_code_is_the_same_code():
    match = match_units(Z, (Z * [1, -1, 2, -3, 0.5, 10])[:, ORDER])
    np.testing.assert_array_equal(match.first, range(6))
    np.testing.assert_array_equal(match.second, np.argsort(ORDER))
    np.testing.assert_allclose(match.similarity, 1)
    assert match.mean == pytest.approx(1)


def test_the_mean_does_not_depend_on_the_order_of_units_or_of_models():
    other = Z + RNG.normal(size=Z.shape)
    mean = match_units(Z, other).mean
    assert 0.3 < mean < 0.9
    assert match_units(Z[:, ORDER], other[:, ::-1]).mean == pytest.approx(mean)
    assert match_units(other, Z).mean == pytest.approx(mean)


def test_the_matching_is_the_best_one_and_not_the_greedy_one():
    # Similarities ((1, .8), (.8, .28)): the greedy pair (0, 0) leaves 1.28 in all, the best assignment gives 1.6.
    a, b = np.array([1.0, 1, -1, -1]), np.array([1.0, -1, 1, -1])  # orthogonal, unit deviation
    A = np.stack([a, 0.8 * a + 0.6 * b], 1)
    B = np.stack([a, 0.8 * a - 0.6 * b], 1)  # corr of the second units: .64 - .36 = .28
    match = match_units(A, B)
    np.testing.assert_allclose(match.similarity, [0.8, 0.8])
    np.testing.assert_array_equal(match.second, [1, 0])


def test_dead_units_take_no_part():
    padded = np.hstack([np.full((300, 3), 0.1), Z])
    match = match_units(Z, padded)
    assert match.mean == pytest.approx(1)
    np.testing.assert_array_equal(match.second, range(3, 9))


def test_a_feature_without_a_partner_counts_as_zero():
    match = match_units(Z, Z[:, :4])
    np.testing.assert_array_equal(match.first, range(4))
    assert match.mean == pytest.approx(4 / 6)
    assert match_units(Z, np.zeros((300, 2))).mean == 0


def test_two_dead_codes_have_nothing_to_compare():
    assert np.isnan(match_units(np.zeros((5, 2)), np.ones((5, 3))).mean)


def test_independent_codes_are_hardly_alike():
    rng = np.random.default_rng(1)
    assert match_units(rng.normal(size=(5000, 5)), rng.normal(size=(5000, 5))).mean < 0.05


def test_directions_share_in_the_similarity_and_can_decide_it():
    same = np.repeat(Z[:, :1], 2, axis=1)  # the codes cannot tell the two units apart
    match = match_units(same, same, [[1.0, 0.0], [0.0, 2.0]], [[0.0, 1.0], [-3.0, 0.0]])
    np.testing.assert_array_equal(match.second, [1, 0])
    assert match.mean == pytest.approx(1)
    crossed = match_units(Z[:, :1], Z[:, :1], [[1.0, 0.0]], [[0.0, 1.0]])
    assert crossed.mean == pytest.approx((1 + 0) / 2)
    assert match_units(Z[:, :1], Z[:, :1], [[0.0, 0.0]], [[0.0, 1.0]]).mean == pytest.approx(1 / 2)


def test_stability_is_the_table_of_all_pairs():
    codes = [Z, -Z[:, ORDER], Z[:, :3]]
    table = seed_stability(codes)
    np.testing.assert_allclose(table, [[1, 1, 0.5], [1, 1, 0.5], [0.5, 0.5, 1]])
    eye = np.eye(6)
    np.testing.assert_allclose(seed_stability(codes[:2], [eye, eye[ORDER]]), np.ones((2, 2)))


def test_sparse_codes_match_as_dense_ones():
    other = Z + 0.1 * np.roll(Z, 1, axis=1)
    assert match_units(csr_array(Z), csr_array(other)).mean == match_units(Z, other).mean


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: match_units(Z, Z[1:]), "same rows"),
        (lambda: match_units(Z, Z * np.nan), "B must hold finite"),
        (lambda: match_units(Z, Z, np.eye(6)), "both models or for neither"),
        (lambda: match_units(Z, Z, np.eye(6), np.eye(5)), "one row per unit, 6 and 6"),
        (lambda: match_units(Z, Z, np.eye(6), np.ones((6, 2))), "of equal length"),
        (lambda: seed_stability([Z]), "at least two models; got 1"),
        (lambda: seed_stability([Z, Z], [np.eye(6)]), "got 1 and 2"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
