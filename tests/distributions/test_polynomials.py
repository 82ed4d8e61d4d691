"""Products of polynomials by a tree: numpy's products, and derivatives of every order."""

import numpy as np
import pytest
import torch
from torch import Tensor

from sparsevae.distributions.polynomials import outside, overlap, product, products


def rand(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize(("d", "degree"), [(0, 0), (1, 1), (1, 2), (4, 4), (4, 6), (4, 8)])
def test_a_product_is_numpy_s_up_to_the_degree(d: int, degree: int) -> None:
    left, right = rand(d + 1, 3, 2), rand(d + 1, 3, 2, seed=1)
    got = product(left, right, degree)
    assert got.shape == (degree + 1, 3, 2)
    for m, b in np.ndindex(3, 2):
        wanted = np.convolve(left[:, m, b].numpy(), right[:, m, b].numpy())[: degree + 1]
        np.testing.assert_allclose(got[:, m, b], wanted, rtol=1e-14)


@pytest.mark.parametrize(("d", "D"), [(0, 0), (2, 2), (4, 6), (4, 8)])
def test_an_overlap_is_numpy_s_correlation(d: int, D: int) -> None:
    whole, part = rand(D + 1, 3), rand(d + 1, 3, seed=1)
    got = overlap(whole, part)
    for m in range(3):
        padded = np.concatenate([whole[:, m].numpy(), np.zeros(2 * d - D)])
        np.testing.assert_allclose(got[:, m], np.correlate(padded, part[:, m].numpy(), "valid"), rtol=1e-14)


@pytest.mark.parametrize(("d", "degree"), [(1, 1), (1, 2), (3, 5)])
def test_first_and_second_derivatives_are_those_of_finite_differences(d: int, degree: int) -> None:
    left, right, whole = (t.requires_grad_() for t in (rand(d + 1, 2), rand(d + 1, 2, seed=1), rand(degree + 1, 2)))
    for f, arguments in ((lambda a, b: product(a, b, degree), (left, right)), (overlap, (whole, right))):
        assert torch.autograd.gradcheck(f, arguments)
        assert torch.autograd.gradgradcheck(f, arguments)


@pytest.mark.parametrize("cap", [1, 3, 5, 8, 20])
def test_the_tree_ends_in_the_product_of_all_leaves(cap: int) -> None:
    leaves = rand(2, 8, 3)
    levels = products(leaves, cap)
    assert [t.shape[1] for t in levels] == [8, 4, 2, 1]
    for b in range(3):
        whole = np.ones(1)
        for k in range(8):
            whole = np.convolve(whole, leaves[:, k, b].numpy())
        np.testing.assert_allclose(levels[-1][:, 0, b], whole[: cap + 1], rtol=1e-13)


@pytest.mark.parametrize("cap", [1, 3, 8])
def test_what_a_leaf_hears_is_the_derivative_in_its_coefficients(cap: int) -> None:
    leaves, weights = rand(2, 8, 3).requires_grad_(), rand(cap + 1, 3, seed=2)
    levels = products(leaves, cap)
    (wanted,) = torch.autograd.grad((weights * levels[-1].squeeze(1)).sum(), leaves)
    assert torch.allclose(outside(levels, weights), wanted, rtol=1e-13)


def test_one_leaf_is_its_own_product() -> None:
    leaf, weights = rand(2, 1, 4), rand(2, 4, seed=1)
    (only,) = products(leaf, 1)
    assert only is leaf
    assert torch.equal(outside([leaf], weights), weights.unsqueeze(1))
