"""What a metric does not take is refused by name, with what would work."""

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from sparsevae import metrics

Z = np.eye(4)


@pytest.mark.parametrize("wrong", [1j * Z, csr_array(1j * Z), torch.tensor(Z) * 1j, 1j * Z.astype(np.complex64)])
def test_complex_codes_are_refused_and_not_cut_to_their_real_part(wrong):
    with pytest.raises(ValueError, match="Z must hold real numbers; got complex"):
        metrics.average_hoyer(wrong)
    with pytest.raises(ValueError, match="Z_train must hold real numbers; got complex"):
        metrics.linear_probe(wrong, [0, 1, 0, 1], Z, [0, 1, 0, 1])


def test_a_tensor_without_values_is_refused_as_such():
    with pytest.raises(ValueError, match=r"Z must be an array .* meta device, which holds no values"):
        metrics.average_hoyer(torch.ones(2, 2, device="meta"))


def test_a_tensor_with_a_gradient_is_refused_with_the_call_that_helps():
    wrong = torch.tensor(Z, requires_grad=True)
    with pytest.raises(ValueError, match=r"Z must be an array .*Tensor.*\.detach\(\)\.cpu\(\)\.numpy\(\)"):
        metrics.average_hoyer(wrong)
    with pytest.raises(ValueError, match=r"Z_test must be an array .*\.detach\(\)"):
        metrics.linear_probe(Z, [0, 1, 0, 1], wrong, [0, 1, 0, 1])
    with pytest.raises(ValueError, match=r"y_test must be an array .*\.detach\(\)"):
        metrics.linear_probe(Z, [0, 1, 0, 1], Z, torch.zeros(4, requires_grad=True))


def test_a_plain_tensor_is_as_good_as_an_array():
    assert metrics.average_hoyer(torch.tensor(Z)) == metrics.average_hoyer(Z)


@pytest.mark.parametrize(
    "wrong", [[[1.0, 2.0], [3.0]], [["a", "b"]], [["1", "2"]], np.ones((2, 2), "M8[Y]"), None, object(), [[1 + 2j]]]
)
def test_what_is_no_table_of_numbers_is_refused(wrong):
    with pytest.raises(ValueError, match="Z must "):
        metrics.average_hoyer(wrong)
