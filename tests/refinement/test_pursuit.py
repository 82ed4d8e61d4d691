"""Claims: a pursuit is scikit-learn's on the same dictionary, least squares are numpy's, and rows do not depend on
others."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import orthogonal_mp_gram

import sparsevae as sv
from sparsevae.distributions.spike_slab import SpikeSlab
from sparsevae.refinement import pursuit
from sparsevae.refinement.pursuit import Dictionary, pursue, pursue_from

pytestmark = pytest.mark.filterwarnings("ignore::sparsevae.exceptions.SparsityWarning")
rng = np.random.default_rng(0)
D, J = 20, 30
WEIGHT = torch.tensor(rng.normal(size=(D, J)) * rng.uniform(0.2, 3, J), dtype=torch.float32)
BIAS = torch.tensor(rng.normal(size=D), dtype=torch.float32)
ROWS = torch.tensor(rng.normal(size=(200, D)), dtype=torch.float32)


def counts(k: int, rows: int = 200) -> torch.Tensor:
    return torch.full((rows,), k)


@pytest.mark.parametrize("k", [1, 2, 5, 12])
def test_it_is_scikit_learn_s_orthogonal_matching_pursuit(k: int) -> None:
    found = Dictionary.of(WEIGHT, BIAS)
    atoms = found.atoms.double().numpy()
    products = atoms @ (ROWS - BIAS).double().numpy().T
    expected = orthogonal_mp_gram(atoms @ atoms.T, products, n_nonzero_coefs=k).T / found.lengths.numpy()
    codes = pursue(found, found.products(ROWS), counts(k)).code.numpy()
    assert ((codes != 0).sum(1) == k).all()
    np.testing.assert_allclose(codes, expected, rtol=1e-3, atol=2e-4)


def test_it_by_hand() -> None:
    """Atoms (2, 0), (1, 1) and (0, 1) of r = (3, 2): the second has the largest product by length, 5/sqrt 2.

    Then r - 5/2 (1, 1) = (1/2, -1/2) is left, on which the first and the third have equal products by length: 1/2.
    With both of the others r is met exactly, and the third unit adds nothing.
    """
    found = Dictionary.of(torch.tensor([[2.0, 1.0, 0.0], [0.0, 1.0, 1.0]]), torch.tensor([1.0, -1.0]))
    x = torch.tensor([[4.0, 1.0]])
    assert pursue(found, found.products(x), counts(1, 1)).code.tolist()[0] == pytest.approx([0, 2.5, 0])
    two = pursue(found, found.products(x), counts(2, 1)).code[0]
    assert two.tolist() == pytest.approx([0.5, 2, 0]) or two.tolist() == pytest.approx([0, 3, -1])
    first = torch.tensor([[1.0, 0.0, 2.0]])  # the third unit, then the first
    assert pursue(found, found.products(x), counts(1, 1), first).code.tolist()[0] == pytest.approx([0, 0, 2])
    assert pursue(found, found.products(x), counts(3, 1), first).code.tolist()[0] == pytest.approx([1.5, 0, 2])


def test_coefficients_are_those_of_least_squares_for_any_first_units() -> None:
    first = torch.tensor(rng.random((200, J)) * (rng.random((200, J)) < 0.3), dtype=torch.float32)
    found = Dictionary.of(WEIGHT, BIAS)
    z = pursue(found, found.products(ROWS), counts(6), first).code
    for row, code, given in zip(ROWS, z, first, strict=True):
        on = code != 0
        assert int(on.sum()) == 6
        begun = given.argsort(descending=True)[: min(6, int((given > 0).sum()))]
        assert bool(on[begun].all())
        best = np.linalg.lstsq(WEIGHT[:, on].double().numpy(), (row - BIAS).double().numpy(), rcond=None)[0]
        np.testing.assert_allclose(code[on], best, rtol=1e-3, atol=1e-4)


def test_atoms_of_length_0_and_atoms_in_the_span_of_others_are_left_out() -> None:
    weight = torch.cat([torch.zeros(D, 1), WEIGHT[:, :1], 2 * WEIGHT[:, :1], WEIGHT[:, 1:2]], 1)
    found = Dictionary.of(weight, BIAS)
    z = pursue(found, found.products(ROWS), counts(4)).code
    assert z.isfinite().all()
    assert (z[:, 0] == 0).all()
    assert ((z[:, 1] != 0).int() + (z[:, 2] != 0).int() <= 1).all()


def test_the_error_that_a_pursuit_explains() -> None:
    found = Dictionary.of(WEIGHT, BIAS)
    code, explained = pursue(found, found.products(ROWS), counts(5))
    left = (ROWS - BIAS - code @ WEIGHT.T).square().sum(-1)
    np.testing.assert_allclose(explained, (ROWS - BIAS).square().sum(-1) - left, rtol=1e-4, atol=1e-4)


def test_of_nothing_and_the_better_half_of_the_encoder_s_units_each_row_takes_the_better_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = Dictionary.of(WEIGHT, BIAS)
    gates = torch.tensor(rng.normal(size=(200, J)) - 1.0, dtype=torch.float32)
    q: Any = SpikeSlab(gates, torch.tensor(rng.normal(size=(200, J)), dtype=torch.float32), torch.ones(200, J))
    own, brings = (q.mode != 0).sum(1), q.p_on * q.mode.square() * WEIGHT.square().sum(0)

    def errors(z: torch.Tensor) -> torch.Tensor:
        return (ROWS - BIAS - z @ WEIGHT.T).square().sum(-1)

    for most in (None, 4):
        count = own if most is None else counts(most)
        half = torch.minimum(own, count) // 2
        rank = brings.argsort(dim=-1, descending=True, stable=True).argsort(-1)
        first = torch.where(rank < half[:, None], brings, 0.0)
        starts = [errors(pursue(found, found.products(ROWS), count, f).code) for f in (None, first)]
        z = pursue_from(found, ROWS, q, most)
        assert torch.equal((z != 0).sum(1), count.clamp_max(D))  # also where the encoder has fewer
        np.testing.assert_allclose(errors(z), torch.minimum(*starts), rtol=1e-4, atol=1e-4)
        assert (starts[0] < starts[1] - 1e-3).any()
        assert (starts[1] < starts[0] - 1e-3).any()
        for numbers in (1, 700, 5000):  # rows at a time: 1, a few, and more
            with monkeypatch.context() as patch:
                patch.setattr(pursuit, "_NUMBERS", numbers)
                assert torch.equal(pursue_from(found, ROWS, q, most), z)


# -- models ----------------------------------------------------------------------------------------------------------


def planted(n: int, seed: int) -> np.ndarray:
    dictionary = np.random.default_rng(0).normal(size=(24, 18))
    own = np.random.default_rng(seed)
    z = own.normal(size=(n, 24)) * (own.random((n, 24)) < 0.12)
    return (5 + 3 * (z @ dictionary) + 0.3 * own.normal(size=(n, 18))).astype(np.float32)


@pytest.fixture(scope="module", params=["fixed-gaussian", "gaussian", "column-gaussian", "laplace"])
def linear(request: Any) -> Any:
    training = sv.Training(steps=250, learning_rate=1e-2, verbose=0)
    more = {"alpha": 0.12, "hidden": (32,), "decoder_hidden": (), "likelihood": request.param}
    est = sv.VSC(24, start="rows", training=training, **more)
    return est.set_params(skip=True).fit(planted(600, 1))


def error(est: Any, X: Any, Z: Any) -> Any:
    with torch.no_grad():
        return np.square(est.scaling_(torch.tensor(est.inverse_transform(Z) - X)).numpy() + 0.0).sum(1)


def test_a_refined_code_errs_less_with_as_many_non_zeros(linear: Any) -> None:
    X = planted(300, 2)
    for cap in (None, 3):
        plain, fine = (linear.transform(X, max_active=cap, refine=r) for r in (False, True))
        assert fine.format == "csr"
        assert fine.dtype == np.float32
        if cap is None:
            assert np.array_equal(fine.getnnz(1), np.minimum(plain.getnnz(1), 18))
        else:
            assert (fine.getnnz(1) == 3).all()
        mse = [np.square(linear.inverse_transform(Z) - X).mean() for Z in (plain, fine)]
        assert mse[1] < 0.9 * mse[0]


def test_a_refined_code_does_not_depend_on_order_or_on_other_rows(linear: Any) -> None:
    X, order = planted(700, 3), rng.permutation(700)
    for cap in (None, 4):
        whole = linear.transform(X, max_active=cap, refine=True)
        assert (linear.transform(X[order], max_active=cap, refine=True) != whole[order]).nnz == 0
        assert (linear.transform(X[13:14], max_active=cap, refine=True) != whole[13:14]).nnz == 0


def test_components_are_the_decoder_in_the_units_of_x(linear: Any) -> None:
    Z = linear.transform(planted(50, 4))
    assert linear.components_.shape == (24, 18)
    nothing = linear.inverse_transform(np.zeros((1, 24)))
    np.testing.assert_allclose(linear.inverse_transform(Z), Z @ linear.components_ + nothing, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    "changes",
    [
        {"decoder_hidden": (8,)},
        {"decoder_hidden": None, "hidden": (8,)},
        {"decoder_hidden": (), "likelihood": "spike-slab", "scale": "none"},
        {"decoder_hidden": (), "scale": "unit-norm"},
    ],
)
def test_components_that_do_not_exist_are_an_attribute_error_with_advice(changes: dict[str, Any]) -> None:
    est = sv.VSC(8, training=sv.Training(steps=2, verbose=0), **changes).fit(planted(60, 5))
    assert not hasattr(est, "components_")
    with pytest.raises(AttributeError, match=r"decoder_hidden=\(\)"):
        est.components_  # noqa: B018
    assert not hasattr(sv.VSC(8), "components_")
    assert math.isfinite(est.transform(planted(4, 6), refine=2).sum())


LINEAR: dict[str, Any] = {"decoder_hidden": (), "skip": False, "likelihood": "fixed-gaussian"}


@pytest.mark.parametrize("kind", [None, "mode", "thresholded"])
def test_a_refined_code_has_as_many_non_zeros_as_the_kind_of_code_that_is_asked_for(kind: str | None) -> None:
    """A unit of a product of length 0 aside: HSVAE's own kind has more non-zeros than its mode."""
    X = planted(200, 6)
    est = sv.HSVAE(16, training=sv.Training(steps=60, verbose=0), code="thresholded", **LINEAR).fit(X)
    plain, fine = (est.transform(X, code=kind, refine=r) for r in (False, True))
    assert np.array_equal(fine.getnnz(1), plain.getnnz(1))
    assert plain.nnz


def test_refined_codes_of_log_normal_slabs_have_no_negative_values() -> None:
    X = planted(200, 7)
    est = sv.VSC(16, alpha=0.5, slab="log-normal", training=sv.Training(steps=60, verbose=0), **LINEAR).fit(X)
    for most in (None, 3):
        found = est.transform(X, max_active=most, refine=True)
        assert found.nnz
        assert (found.data > 0).all()
