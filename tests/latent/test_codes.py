"""Codes as users meet them: what a cap keeps of one, which are taken, and what values a unit can have."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch import nn

import sparsevae as sv
from sparsevae.distributions.one_hot import OneHotCode
from sparsevae.distributions.spike_slab import SpikeSlab
from sparsevae.inputs.labels import read_labels
from sparsevae.latent.codes import capped, code_of, contributions
from sparsevae.latent.model import LatentModel
from sparsevae.latent.packing import pack
from sparsevae.latent.posteriors import SpikeSlabPosterior
from sparsevae.latent.priors import FixedSpikeSlab
from sparsevae.likelihoods.base import Likelihood
from sparsevae.models import SUPERVISED
from sparsevae.models import known as every_model
from sparsevae.report import figures
from sparsevae.report.figures import sweep
from sparsevae.report.view import make_view
from sparsevae.sampling.gradients import ScaledSigmoid

pytestmark = pytest.mark.filterwarnings("ignore::sparsevae.exceptions.SparsityWarning")
_rng = np.random.default_rng(0)
X = (_rng.normal(size=(40, 3)) @ _rng.normal(size=(3, 16))).astype(np.float32)
Y = (_rng.random((40, 6)) < 0.3).astype(int)

_CON = {"threshold": 0.5, "variant": "con", "free_features": 4}
GATED: dict[str, tuple[str, dict[str, Any]]] = {
    "VSC": ("VSC", {}),
    "VSC, never off": ("VSC", {"alpha": 1.0}),
    "PseudoVSC": ("PseudoVSC", {"pseudo_inputs": 3}),
    "HSVAE": ("HSVAE", {"alpha": 0.5, "beta": 0.5}),
    "HSVAE, off units of a size": ("HSVAE", {"alpha": 0.5, "beta": 0.5, "spike_scale": 0.05}),
    "SDLGM, counts": ("SDLGM", {"cap": 6}),
    "SDLGM, counts seen as bits": ("SDLGM", {"cap": 6, "binary": True}),
    "SDLGM, distinct": ("SDLGM", {"cap": 6, "features": "distinct"}),
    "DiscreteVAE, bits": ("DiscreteVAE", {}),
    "DiscreteVAE, groups": ("DiscreteVAE", {"categories": 3}),
    "SDLGMClassifier": ("SDLGMClassifier", {"threshold": 0.5}),
    "SDLGMClassifier, counts": ("SDLGMClassifier", {"threshold": 0.5, "features": "counts", "cap": 6}),
    "SDLGMClassifier, two parts": ("SDLGMClassifier", _CON),
    "SDLGMClassifier, two parts of counts": (
        "SDLGMClassifier",
        {**_CON, "features": "counts", "cap": 4, "free_cap": 3},
    ),
    "SDLGMCounter": ("SDLGMCounter", {"cap": 6}),
    "SDLGMCounter, strips": ("SDLGMCounter", {"columns": 8, "image_shape": (2, 8)}),
}
_FITTED: dict[str, Any] = {}


def fitted(name: str) -> Any:
    """A model of one step, whose encoder then says much louder what it says of a row."""
    if name not in _FITTED:
        cls, more = GATED[name]
        units = {} if cls in SUPERVISED else {"n_components": 12}
        training = sv.Training(steps=1, verbose=0)
        est = every_model()[cls](**units, hidden=(8,), training=training, **more)
        _FITTED[name] = est.fit(X, Y) if cls in SUPERVISED else est.fit(X)
        with torch.no_grad():
            for weights in est.model_.encoder.parameters():
                weights.mul_(3.0)
    return _FITTED[name]


def dense(Z: Any) -> Any:
    return Z.toarray() if sp.issparse(Z) else Z


# -- caps ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", GATED)
def test_a_cap_keeps_so_many_of_a_code_s_own_non_zeros_and_their_values(name: str) -> None:
    est = fitted(name)
    whole = dense(est.transform(X))
    assert (whole != 0).sum(1).max() > 1
    for cap in (1, 2, 5):
        few = dense(est.transform(X, max_active=cap))
        assert np.array_equal((few != 0).sum(1), np.minimum((whole != 0).sum(1), cap))
        assert np.array_equal(few[few != 0], whole[few != 0])


@pytest.mark.parametrize("name", GATED)
def test_no_non_zero_that_a_cap_drops_brings_more_than_one_that_it_keeps(name: str) -> None:
    """P(on) z^2 times the unit's gain; of whole numbers P(on), whatever the value."""
    est = fitted(name)
    whole = dense(est.transform(X))
    ((block, n, _),) = est.fitted_.blocks(est.fitted_.rows(X))
    with torch.no_grad():
        brings = est.model_.encode(block).p_on[:n].numpy()
    if est.fitted_.largest is None:
        brings = brings * whole**2 * est.fitted_.gain.numpy()
    else:
        assert est.fitted_.gain is None
    for cap in (1, 2, 5):
        kept = dense(est.transform(X, max_active=cap)) != 0
        dropped = (whole != 0) & ~kept
        most = np.where(dropped, brings, 0.0).max(1)
        assert (most <= np.where(kept, brings, np.inf).min(1) * (1 + 1e-5) + 1e-9).all()


@pytest.mark.filterwarnings("ignore:the importance weights:RuntimeWarning")
@pytest.mark.parametrize("name", GATED)
def test_a_cap_of_the_constructor_is_one_of_transform_which_overrides_it(name: str) -> None:
    est, cls = fitted(name), GATED[name][0]
    if cls in SUPERVISED:
        assert not hasattr(est, "max_active") or est.max_active is None
        return
    bound = est.score_samples(X)
    whole, one, two = (dense(est.transform(X, max_active=k)) for k in (None, 1, 2))
    try:
        est.set_params(max_active=1)
        assert np.array_equal(dense(est.transform(X)), one)
        assert np.array_equal(dense(est.transform(X, max_active=2)), two)
        assert np.array_equal(dense(est.transform(X, max_active=12)), whole)
        assert est.evaluate(X)["nonzeros_mode"] == pytest.approx((one != 0).sum(1).mean())
        assert np.array_equal(est.score_samples(X), bound)
    finally:
        est.set_params(max_active=None)


def test_every_model_whose_gates_can_be_ranked_has_its_caps_tested() -> None:
    ranked = {name for name, cls in every_model().items() if hasattr(cls, "gate") or "SDLGM" in name}
    assert ranked | {"DiscreteVAE"} == {cls for cls, _ in GATED.values()}


def test_of_equal_gates_a_cap_keeps_the_largest_values_and_of_equal_ones_the_first_units() -> None:
    loc = torch.tensor([[0.5, -3.0, 0.25, 2.0, 2.0], [0.0, 1.0, -1.0, 1.0, 0.5]])
    always = SpikeSlab(torch.full_like(loc, torch.inf), loc, torch.ones_like(loc))
    assert capped(always, 2).tolist() == [[0.0, -3.0, 0.0, 2.0, 0.0], [0.0, 1.0, -1.0, 0.0, 0.0]]
    gates = torch.tensor([[5.0, 1.0, 5.0, 1.0, -1.0], [9.0, 1.0, 1.0, 2.0, -9.0]])  # the value 0 is never kept
    assert capped(SpikeSlab(gates, loc, torch.ones_like(loc)), 3).tolist() == [
        [0.5, -3.0, 0.25, 0.0, 0.0],
        [0.0, 1.0, -1.0, 1.0, 0.0],
    ]
    assert capped(SpikeSlab(gates, loc, torch.ones_like(loc)), 1).tolist() == [[0.5, 0, 0, 0, 0], [0, 0, 0, 1.0, 0]]


def test_a_group_s_second_choice_takes_no_place_under_a_cap() -> None:
    probabilities = torch.tensor([[0.45, 0.5, 0.05, 0.4, 0.3, 0.3, 0.1, 0.8, 0.1]])  # .45 is likelier than .4, but off
    code = OneHotCode(probabilities.log(), 3)
    assert capped(code, 3).tolist() == code.mode.tolist() == [[0, 1, 0, 1, 0, 0, 0, 1, 0]]
    assert [int(k) for cap in (1, 2) for k in capped(code, cap)[0].nonzero()] == [7, 1, 7]


def test_a_cap_by_gain_keeps_the_largest_p_on_z2_gain() -> None:
    """3/4, 1/2 + and 3/4 times z^2 = 4, 9, 1 times a gain of 1, 1/4, 8: 3, 9/8 and 6; the last unit is off."""
    gates = torch.tensor([[math.log(3), 1e-6, math.log(3), -1.0]])
    q = SpikeSlab(gates, torch.tensor([[2.0, -3.0, 1.0, 9.0]]), torch.ones(1, 4))
    gain = torch.tensor([1.0, 0.25, 8.0, 9.0])
    assert contributions(q, gain, q.mode).square().tolist()[0] == pytest.approx([3, 9 / 8, 6, 0], rel=1e-5)
    assert [capped(q, k, gain).tolist()[0] for k in (1, 2)] == [[0, 0, 1, 0], [2, 0, 1, 0]]
    assert capped(q, 2).tolist()[0] == [2, 0, 1, 0]  # by gates, and of equal ones the largest value first
    assert capped(q, 1).tolist()[0] == [2, 0, 0, 0]
    tiny = SpikeSlab(gates, torch.tensor([[1e-30, 1e30, 1.0, 9.0]]), torch.ones(1, 4))  # squares leave float32
    assert capped(tiny, 1, torch.ones(4)).tolist()[0] == [0, pytest.approx(1e30), 0, 0]


def test_where_no_unit_is_ever_off_a_cap_keeps_the_units_that_bring_most(digits: Any) -> None:
    training = sv.Training(steps=120, kl_warmup=0.9, verbose=0)
    est = sv.VSC(8, alpha=1.0, hidden=(32,), training=training).fit(digits.X[:500])
    X = digits.X[500:800]
    whole = est.transform(X).toarray()
    brings = whole**2 * est.fitted_.gain.numpy()
    ranks = np.argsort(np.argsort(-brings, axis=1), axis=1)
    largest, first = np.where(ranks < 2, whole, 0.0), np.where(np.arange(8) < 2, whole, 0.0)
    assert np.array_equal(est.transform(X, max_active=2).toarray(), largest)
    errors = [float(np.square(est.inverse_transform(Z) - X).mean()) for Z in (largest, first)]
    assert est.evaluate(X, caps=(2,))["caps"][2] == pytest.approx(errors[0], rel=1e-4)
    assert errors[0] < errors[1]


# -- codes that a user brings ----------------------------------------------------------------------------------------


def some(form: str = "csr") -> Any:
    """Codes of 3 rows and 12 units in one of scipy's formats."""
    kept = _rng.random((3, 12)) < 0.6
    kept[:, :2] = True
    return getattr(sp, f"{form}_matrix")(np.where(kept, 1.0, 0.0).astype(np.float32))


def damaged(form: str, part: str, value: int) -> Any:
    """The same with one index that points nowhere: such were read out of bounds, or written there by scipy."""
    Z = some(form)
    getattr(Z, part)[1] = value
    return Z


def masked() -> Any:
    Z = np.ma.array(np.ones((3, 12)))
    Z[1, 2] = np.ma.masked
    return Z


BAD_CODES: dict[str, tuple[Any, str]] = {
    "an index below 0": (damaged("csr", "indices", -1), "damaged sparse matrix: indices must be >= 0"),
    "an index too large": (damaged("csr", "indices", 99), "damaged sparse matrix: indices must be < 12"),
    "a row that ends before it begins": (damaged("csr", "indptr", 10_000), "damaged sparse matrix: indptr"),
    "columns, an index too large": (damaged("csc", "indices", 99), "damaged sparse matrix"),
    "blocks, an index below 0": (damaged("bsr", "indices", -7), "damaged sparse matrix"),
    "entries, a row below 0": (damaged("coo", "row", -1), "damaged sparse matrix"),
    "entries, a unit too large": (damaged("coo", "col", 12), "damaged sparse matrix"),
    "a masked entry": (masked(), "NaN|nan"),
    "NaN": (np.full((3, 12), np.nan), "NaN|nan"),
}


@pytest.mark.parametrize("name", BAD_CODES)
def test_whoever_takes_codes_refuses_those_that_are_damaged_or_not_numbers(name: str) -> None:
    Z, message = BAD_CODES[name]
    takers = {
        "inverse_transform": fitted("VSC").inverse_transform,
        "pack": lambda Z: pack(Z, 12),
        "SDLGM.pack": fitted("SDLGM, counts").pack,
        "metrics": sv.metrics.average_hoyer,
    }
    for taker, take in takers.items():
        with pytest.raises(ValueError, match=message):
            pytest.fail(f"{taker} took {take(Z)}")


REFUSED_CODES: dict[str, tuple[Any, str]] = {
    "another width": (np.ones((2, 11)), "codes have 12 columns, one per unit; got 11"),
    "one dimension": (np.ones(12), "Expected 2D array"),
    "no rows": (np.ones((0, 12)), r"0 sample\(s\)"),
    "infinity": (np.full((2, 12), np.inf), "contains infinity"),
    "beyond float32": (np.full((2, 12), 1e300), "contains infinity"),
    "beyond any float": ([[10**400] + [0] * 11], "Z must hold codes, finite numbers of shape"),
    "beyond what the decoder's float32 bears": (np.full((2, 12), -1e38), "values up to 1.0e\\+38: beyond"),
    "words": ([["1"] * 12], "must hold numbers, got values of type <U1"),
    "words among objects": (np.array([["a"] * 12], dtype=object), "could not convert string"),
    "None": ([[None] * 12], "NaN"),
    "complex": (np.ones((2, 12)) * 1j, "Complex data not supported"),
    "entries that add up to infinity": (sp.csr_matrix(([3e38, 3e38], [0, 0], [0, 2]), (1, 12)), "contains infinity"),
    "dates": (np.full((2, 12), "2020", "M8[Y]"), r"must hold numbers, got values of type datetime64\[Y\]"),
    "spans of time": (np.ones((2, 12), "m8[s]"), r"must hold numbers, got values of type timedelta64\[s\]"),
    "a sparse tensor": (torch.eye(12).to_sparse(), "Z must hold codes"),
    "a tensor without data": (torch.ones(2, 12, device="meta"), "Z is a tensor .* which holds no values"),
}


@pytest.mark.parametrize("name", REFUSED_CODES)
def test_codes_are_refused_as_rows_of_x_are(name: str) -> None:
    Z, message = REFUSED_CODES[name]
    with pytest.raises(ValueError, match=message):
        fitted("VSC").inverse_transform(Z)


def test_codes_are_one_and_the_same_in_every_form() -> None:
    est, Z = fitted("VSC"), some()
    expected = est.inverse_transform(Z)
    backwards = sp.csr_matrix(Z.toarray()[:, ::-1])
    backwards.indices = (11 - backwards.indices).astype(np.int32)  # each row from its last unit to its first
    backwards.has_sorted_indices = backwards.has_canonical_format = False
    halves = sp.coo_matrix(
        (np.r_[Z.data, Z.data] / 2, (np.r_[Z.tocoo().row, Z.tocoo().row], np.r_[Z.indices, Z.indices]))
    )
    tensor = torch.tensor(Z.toarray(), requires_grad=True)
    forms = [Z.asformat(form) for form in ("coo", "csc", "bsr", "lil", "dok", "dia")]
    arrays = [Z.toarray(), Z.toarray().astype(np.int8), np.ma.array(Z.toarray()), tensor, tensor.bfloat16()]
    for same in (backwards, halves, sp.csr_array(Z), Z.toarray().tolist(), *forms, *arrays):
        assert np.array_equal(est.inverse_transform(same), expected)
    assert np.array_equal(Z.toarray(), backwards.toarray())  # and none of them was changed


def test_labels_are_looked_at_in_the_same_way() -> None:
    bits = sp.csr_matrix(np.ones((3, 4), int))
    bits.indices[1] = -1
    with pytest.raises(ValueError, match="y is a damaged sparse matrix"):
        read_labels(bits, None)
    classes = np.ma.array(["a", "b", "a"], mask=[False, True, False])
    with pytest.raises(ValueError, match="y"):
        read_labels(classes, None)
    with pytest.raises(ValueError, match="NaN"):
        read_labels(np.ma.array([[0, 1], [1, 0]], mask=[[0, 0], [0, 1]]), None)


# -- values that a unit can have -------------------------------------------------------------------------------------

WHOLE = {  # the largest value of every unit
    "SDLGM, counts": [6.0] * 12,
    "SDLGM, counts seen as bits": [1.0] * 12,
    "SDLGM, distinct": [1.0] * 12,
    "DiscreteVAE, bits": [1.0] * 12,
    "DiscreteVAE, groups": [1.0] * 12,
    "SDLGMClassifier, two parts": [1.0] * 10,
    "SDLGMClassifier, two parts of counts": [4.0] * 6 + [3.0] * 4,
}


@pytest.mark.parametrize("name", WHOLE)
def test_a_unit_of_a_discrete_code_is_traversed_through_the_values_it_can_have(name: str) -> None:
    est, largest = fitted(name), WHOLE[name]
    for unit in (0, len(largest) - 1):
        assert sv.traverse(est, X[0], [unit]).values.tolist() == list(range(int(largest[unit]) + 1))
    assert sv.traverse(est, X[0], [0, len(largest) - 1]).values.tolist() == list(range(int(min(largest)) + 1))
    assert sv.traverse(est, X[0], [0], [0.5]).values.tolist() == [0.5]  # whoever says so gets others
    assert est.transform(X).toarray().max(0).tolist() <= largest
    walk = sv.interpolate(est, X[0], X[1], steps=5)
    assert np.array_equal(walk.codes, walk.codes.round())


def test_pictures_show_values_that_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = np.repeat(np.arange(21), 5).astype(np.float32)
    assert sweep(counts, 7, whole=True).tolist() == [0, 3, 6, 10, 13, 16, 19]
    assert sweep(np.ones(5, np.float32), 7, whole=True).tolist() == [0, 1]
    est, decoded = fitted("SDLGM, counts"), []
    view = make_view(est, X)
    decode = est.inverse_transform
    monkeypatch.setattr(est, "inverse_transform", lambda Z: (decoded.append(Z), decode(Z))[1])
    a, b = np.argsort(-(view.codes != 0).sum(1))[:2]
    for figure in (
        figures.traversal(view, 3),
        figures.traversal_grid(view, a, 3),
        figures.interpolation_strip(view, a, b),
    ):
        assert figure.get_axes()
    assert len(decoded) == 3 + 3 + 1
    assert all(np.array_equal(Z, Z.round()) and Z.min() >= 0 for Z in decoded)


@pytest.mark.parametrize("name", WHOLE)
def test_a_code_without_values_to_redraw_has_no_likes_but_other_codes_of_the_item(name: str) -> None:
    est = fitted(name)
    with pytest.raises(ValueError, match=r"are whole numbers.*inverse_transform\(draw_codes\(X, n\)\[:, 0\]\).*sample"):
        est.sample_like(X[:1], 5)
    assert est.inverse_transform(est.draw_codes(X[:1], 5)[:, 0]).shape == (5, 16)


def test_kinds_of_codes_by_hand() -> None:
    """P(on) of 1/5, 2/5 and 4/5; a mean of .09 is not above .1."""
    p_on, loc = torch.tensor([[0.2, 0.4, 0.8]]), torch.tensor([[0.45, -2.0, 3.0]])
    q = SpikeSlab(torch.logit(p_on), loc, torch.ones(1, 3))
    wanted = {
        "mode": [0.0, 0.0, 3.0],
        "gated": [0.09, -0.8, 2.4],
        "thresholded": [0.0, -0.8, 2.4],
    }
    posterior = SpikeSlabPosterior(ScaledSigmoid())
    model = LatentModel(nn.Identity(), posterior, nn.Identity(), Likelihood(), FixedSpikeSlab(3, 0.3))
    for kind, code in wanted.items():
        assert code_of(model, q, kind=kind)[0].tolist() == pytest.approx(code)
    assert code_of(model, q)[0].tolist() == wanted["mode"]
    model.code_kind = "thresholded"
    assert code_of(model, q)[0].tolist() == pytest.approx(wanted["thresholded"])
    assert code_of(model, q, 1)[0].tolist() == pytest.approx([0.0, 0.0, 2.4])


def test_kinds_of_codes_are_refused_where_there_is_one() -> None:
    x = np.random.default_rng(0).normal(size=(40, 5)).astype(np.float32)
    settings = {"hidden": (4,), "training": sv.Training(steps=2, verbose=0)}
    for est, name in ((sv.VAE(3, **settings), "VAE"), (sv.SDLGM(3, cap=2, **settings), "SDLGM")):
        est.fit(x).transform(x, code="mode")
        with pytest.raises(ValueError, match=f"code='gated' needs a code with gates and slabs; of {name}"):
            est.transform(x, code="gated")
        with pytest.raises(ValueError, match="code must be 'mode', 'gated' or 'thresholded', got 'best'"):
            est.transform(x, code="best")
