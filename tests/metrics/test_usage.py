"""Usage of codes: hand-made codes with known counts, at the edges of the definition."""

import math

import numpy as np
import pytest
from scipy.sparse import csr_array

from sparsevae.metrics import code_usage
from sparsevae.metrics.usage import kinds_of_units, usage_of


def code(rows: int, *on: int) -> np.ndarray:
    """A code, (rows, units), whose unit j is on in the first on[j] rows."""
    return np.where(np.arange(rows)[:, None] < np.array(on), -1.5, 0.0)


def test_counts_of_a_hand_made_code():
    Z = code(4000, 4000, 3601, 3600, 400, 20, 19, 0)
    found = code_usage(Z)
    assert found[:3] == (3, 2, 2)  # 90 % and .5 % of the rows count as used, one row more or fewer does not
    assert found.nonzeros == pytest.approx(11640 / 4000)
    assert found.empty == 0
    used, always = kinds_of_units((Z != 0).mean(0))
    assert used.tolist() == [False, False, True, True, True, False, False]
    assert always.tolist() == [True, True, False, False, False, False, False]


def test_of_a_wide_code_units_are_used_that_are_on_a_quarter_as_often_as_the_mean():
    # 1,000 units, mean share .002: the limit is .0005, not .005
    on = [8] * 998 + [2, 1]
    assert code_usage(code(4000, *on))[:3] == (999, 0, 1)


def test_signs_and_sizes_make_no_difference_and_csr_is_the_same():
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(50, 8)) * (rng.random((50, 8)) < 0.2)
    stored = csr_array(Z)
    stored.data[:5] = 0.0  # explicit zeros are off
    assert code_usage(stored) == code_usage(stored.toarray()) != code_usage(Z)
    assert code_usage(1e-30 * Z) == code_usage(Z)


def test_shares_of_rows_and_of_units_are_enough():
    Z = code(40, 30, 10, 0)
    assert code_usage(Z) == usage_of([0.75, 0.25, 0.0], 0.25)


def test_entropy_is_one_for_equal_use_and_zero_for_one_unit():
    assert code_usage(np.eye(6)).usage_entropy == pytest.approx(1)
    assert code_usage(code(10, 5, 0, 0)).usage_entropy == 0
    p = np.array([3, 1]) / 4
    assert code_usage(code(12, 9, 3, 0)).usage_entropy == pytest.approx(-(p * np.log(p)).sum() / math.log(3))


def test_empty_and_full_codes():
    assert code_usage(np.zeros((5, 3))) == (0, 0, 3, 0.0, 1.0, 0.0)
    assert code_usage(np.ones((5, 3))) == (0, 3, 0, 3.0, 0.0, pytest.approx(1))
    assert code_usage(np.ones((5, 1))).usage_entropy == 1
    assert code_usage(code(10, 4, 2)).empty == 0.6


def test_a_code_is_pruned_where_most_of_its_non_zeros_are_in_every_row():
    assert code_usage(code(100, 100, 100, 99, 0, 0)).pruned
    assert code_usage(code(100, 100, 40, 30, 0)).pruned  # 1 of 1.7
    assert not code_usage(code(100, 100, 50, 50, 50)).pruned
    assert not code_usage(np.zeros((5, 3))).pruned
    assert code_usage(code(100, 100, 100, 20, 0)).words.endswith("this is pruning, a VAE of 2 units would do")
    assert code_usage(code(100, 50, 20, 0)).words == "2 of 3 units are used, 0 on in over 90 % of rows and 1 dead"


@pytest.mark.parametrize("Z", [np.zeros((0, 3)), [1.0, 2.0], [[np.nan, 0.0]]])
def test_what_is_no_code_is_refused(Z):
    with pytest.raises(ValueError, match="Z must"):
        code_usage(Z)
