"""Claims: bits are those of the packed codes, errors and probes those of what comes out of the bits, PCA gets no more
bits and spends them as well as it says, and the measured half has no say in anything that is fitted."""

from __future__ import annotations

import io
import json
import math
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from sklearn.decomposition import PCA

import sparsevae as sv
from sparsevae import metrics
from sparsevae.analysis.rates import MOST_VALUE_BITS, SPANS, RateDistortion, rate_distortion
from sparsevae.latent.packing import pack, read_header
from sparsevae.report import results

K = 12
DIRECTIONS = np.linalg.qr(np.random.default_rng(0).normal(size=(20, K)))[0].T  # (K, 20), orthonormal


class Planted:
    """The true code of rows Z DIRECTIONS, the largest values first; whole where the rows are counts."""

    n_components = K

    def __init__(self, whole: bool = True) -> None:
        self.whole = whole

    def transform(self, X: Any, *, max_active: int | None = None) -> Any:
        X = X.toarray() if sp.issparse(X) else np.asarray(X)
        Z = X @ DIRECTIONS.T
        Z = Z.round() if self.whole else np.where(np.abs(Z) > 1e-6, Z, 0.0)
        rank = np.argsort(np.argsort(-np.abs(Z), axis=1, kind="stable"), axis=1)
        return sp.csr_matrix(np.where(rank < max_active, Z, 0.0).astype(np.float32))

    def inverse_transform(self, Z: Any) -> Any:
        return Z.toarray() @ DIRECTIONS


def planted(most: int, n: int = 300, seed: int = 1) -> tuple[Any, Any, Any]:
    """Counts of up to `most` in at most three units, their rows, and as a label the unit that is always on."""
    rng = np.random.default_rng(seed)
    Z = np.zeros((n, K))
    y = rng.integers(0, 3, n)
    Z[np.arange(n), y] = most
    for _ in range(2):
        Z[np.arange(n), rng.integers(3, K, n)] = rng.integers(0, most + 1, n)
    return Z, Z @ DIRECTIONS, y


def halves(n: int, seed: int = 0) -> tuple[Any, Any]:
    order = np.random.default_rng(seed).permutation(n)
    return np.sort(order[: n // 2]), np.sort(order[n // 2 :])


@pytest.fixture(scope="module")
def vsc(digits: Any) -> Any:
    training = sv.Training(steps=300, kl_warmup=0.5, verbose=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sv.SparsityWarning)
        return sv.VSC(24, hidden=(32,), alpha=0.2, training=training).fit(digits.X[:900])


# -- codes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [1, 4])
def test_the_bits_of_counts_are_those_that_pack_takes(most: int) -> None:
    _, X, _ = planted(most)
    est = Planted()
    found = rate_distortion(est, X, caps=(1, 2, 3, 8))
    assert found.value_bits is None
    for cap, bits in zip(found.caps, found.bits, strict=True):
        codes = est.transform(X, max_active=int(cap))
        sums = int(codes.sum(1).max())  # counts above one: three units may hold up to twelve
        assert bits == read_header(pack(codes, max(int(cap), sums), K)).bits
    if most == 1:
        assert found.bits.tolist() == [4, 8, 12, 12]  # symbols of four bits; then the mask of twelve


def coder(cls: Any, X: Any, **own: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sv.SparsityWarning)
        return cls(hidden=(8,), training=sv.Training(steps=2, verbose=0), **own).fit(X)


@pytest.mark.parametrize(
    ("cls", "own", "most"),
    [
        (sv.SDLGM, {"n_components": 20, "cap": 5}, 5),
        (sv.SDLGM, {"n_components": 20, "cap": 5, "features": "distinct"}, 5),
        (sv.SDLGM, {"n_components": 4, "cap": 9}, 4),
        (sv.DiscreteVAE, {"n_components": 12, "categories": 4}, 3),
        (sv.DiscreteVAE, {"n_components": 12}, 12),
        (sv.VSC, {"n_components": 6}, 6),
    ],
)
def test_a_cap_that_no_code_can_reach_is_refused(cls: Any, own: dict[str, Any], most: int) -> None:
    """It would leave the codes as they are, charge more bits for them, and give PCA those bits."""
    _, X, _ = planted(1)
    est = coder(cls, X, **own)
    words = rf"at most {most}, .* {cls.__name__} can have on; got {most + 1}, 50\. Use caps up to {most}"
    with pytest.raises(ValueError, match=words):
        rate_distortion(est, X, caps=(1, most + 1, 50))
    found = rate_distortion(est, X, caps=np.array([most, 1]))
    assert found.caps.tolist() == [1, most]
    assert rate_distortion(est, X).caps.tolist() == [c for c in (1, 2, 5, 10, 20) if c <= most]


def test_at_its_own_cap_a_model_is_charged_what_it_packs() -> None:
    _, X, _ = planted(1)
    est = coder(sv.SDLGM, X, n_components=20, cap=5)
    bits = read_header(est.pack(est.transform(X))).bits
    assert rate_distortion(est, X, caps=(5,)).bits.tolist() == [bits] == [20]


def test_a_code_of_two_parts_has_the_caps_of_both() -> None:
    _, X, y = planted(1)
    own = {"variant": "con", "cap": 2, "free_features": 6, "free_cap": 3, "threshold": 0.5}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sv.SparsityWarning)
        est = sv.SDLGMClassifier(hidden=(8,), training=sv.Training(steps=2, verbose=0), **own).fit(X, np.eye(3)[y])
    assert rate_distortion(est, X, caps=(5,)).n_components == 9
    with pytest.raises(ValueError, match="caps must be at most 5"):
        rate_distortion(est, X, caps=(6,))


def test_the_error_of_counts_is_what_the_units_left_out_weigh() -> None:
    Z, X, _ = planted(4)
    found = rate_distortion(Planted(), X, caps=(1, 2, 3))
    _, test = halves(len(X))
    left = np.sort(Z[test], axis=1)[:, ::-1]
    want = [float(np.square(left[:, cap:]).sum(1).mean()) / X.shape[1] for cap in (1, 2, 3)]
    assert found.mse == pytest.approx(want, abs=1e-12)
    assert found.mse[2] == pytest.approx(0, abs=1e-12)
    assert found.mse[0] > found.mse[1] > 0.01
    assert found.nonzeros == pytest.approx([(left[:, :cap] > 0).sum(1).mean() for cap in (1, 2, 3)])
    assert found.rows == len(test)


def test_the_probe_reads_the_codes_of_one_half_after_the_other() -> None:
    _, X, y = planted(4)
    y = np.where(np.random.default_rng(2).random(len(y)) < 0.2, 0, y)  # some labels are not to be read
    found = rate_distortion(Planted(), X, y, caps=(1, 3))
    train, test = halves(len(X))
    codes = Planted().transform(X, max_active=3).toarray()
    assert found.probe is not None
    assert found.probe[1] == metrics.linear_probe(codes[train], y[train], codes[test], y[test])
    assert 0.7 < found.probe[1] < 1
    assert found.majority == pytest.approx((y[test] == 0).mean())
    assert rate_distortion(Planted(), X, caps=(1, 3)).probe is None


def test_real_values_cost_an_index_and_their_own_bits() -> None:
    _, X, _ = planted(4)
    for value_bits in (1, 8, 16):
        found = rate_distortion(Planted(whole=False), 0.3 * X, caps=(1, 2, 5), value_bits=value_bits)
        assert found.value_bits == value_bits
        assert found.bits.tolist() == [cap * (math.ceil(math.log2(K + 1)) + value_bits) for cap in (1, 2, 5)]


def test_more_bits_of_a_value_lose_less_of_it() -> None:
    rng = np.random.default_rng(3)
    Z = np.where(rng.random((4000, K)) < 0.3, rng.uniform(-1, 1, (4000, K)), 0.0)
    X = Z @ DIRECTIONS
    for value_bits in (1, 2, 4, 8):
        found = rate_distortion(Planted(whole=False), X, caps=(K,), value_bits=value_bits)
        # a value is uniform within its cell: its error is the cell's width squared, over 12
        want = (2 / 2**value_bits) ** 2 / 12 * found.nonzeros[0] / X.shape[1]
        assert found.mse[0] == pytest.approx(want, rel=0.05)


def test_a_unit_of_one_value_and_one_that_training_rows_never_use_are_no_trouble() -> None:
    X = np.zeros((40, 20))
    train, test = halves(40)
    X[train] = np.outer(np.full(20, 1.5), DIRECTIONS[0]) + np.outer(np.linspace(-1, 2, 20), DIRECTIONS[1])
    X[test] = 1.5 * DIRECTIONS[0] + 0.25 * DIRECTIONS[2]
    found = rate_distortion(Planted(whole=False), X, caps=(3,), value_bits=16)
    assert found.mse[0] == pytest.approx(0, abs=1e-8)


def test_a_sparse_coder_loses_what_its_cap_and_its_bits_take(vsc: Any, digits: Any) -> None:
    X, y = digits.X[900:], digits.y[900:]
    found = rate_distortion(vsc, X, y, caps=(1, 3, 24), value_bits=16)
    train, test = halves(len(X))
    for cap, mse in zip(found.caps, found.mse, strict=True):
        known, new = (vsc.transform(X[half], max_active=int(cap)).toarray() for half in (train, test))
        used = (known != 0).any(0)
        low = np.where(used, np.where(known == 0, np.inf, known).min(0), known.min())
        high = np.where(used, np.where(known == 0, -np.inf, known).max(0), known.max())
        clipped = np.where(new == 0, 0, new.clip(low, high))
        assert mse == pytest.approx(np.square(vsc.inverse_transform(clipped) - X[test]).mean(), rel=1e-5)
    assert found.mse[0] > found.mse[1] > found.mse[2]
    assert found.bits.tolist() == [21, 63, 504]
    assert (found.name, found.n_components, found.n_features) == ("VSC", 24, 64)
    coarse = rate_distortion(vsc, X, caps=(24,), value_bits=1)
    assert coarse.mse[0] > found.mse[2]


# -- PCA --------------------------------------------------------------------------------------------------------


def test_pca_spends_no_more_bits_and_the_best_way_of_its_grid(digits: Any) -> None:
    _, X, _ = planted(4)
    X = X + np.random.default_rng(4).normal(size=X.shape) * np.linspace(0.1, 1, 20)
    found = rate_distortion(Planted(), X, caps=(1, 2, 3, 12))
    assert (found.pca_bits <= found.bits).all()
    train, test = halves(len(X))
    axes = PCA(20).fit(X[train])
    scores = axes.transform(X)
    deviation = scores[train].std(0)
    for i, budget in enumerate(found.bits):
        best: tuple[float, Any] = (math.inf, None)
        for b in range(1, MOST_VALUE_BITS + 1):
            if not (m := min(budget // b, 20)):
                continue
            kept = np.zeros_like(scores)
            for j in range(m):
                options = []
                for span in SPANS:
                    edges = np.linspace(-span * deviation[j], span * deviation[j], 2**b + 1)
                    middles = (edges[1:] + edges[:-1]) / 2
                    options.append(middles[np.searchsorted(edges[1:-1], scores[:, j], side="right")])
                kept[:, j] = min(options, key=lambda o, j=j: np.square(o - scores[:, j])[train].mean())
            error = np.square(axes.inverse_transform(kept) - X).mean(1)
            best = min(best, (error[train].mean(), (m, b, error[test].mean())), key=lambda t: t[0])
        m, b, error_test = best[1]
        assert (found.pca_components[i], found.pca_value_bits[i]) == (m, b)
        assert found.pca_mse[i] == pytest.approx(error_test, rel=1e-9)


def test_one_bit_of_a_gaussian_leaves_the_error_that_is_known() -> None:
    class Sign:
        def transform(self, X: Any, *, max_active: int) -> Any:
            return sp.csr_matrix(X > 0, dtype=np.float32)

        def inverse_transform(self, Z: Any) -> Any:
            return (2 * Z.toarray() - 1) * math.sqrt(2 / math.pi)

    X = np.random.default_rng(5).normal(size=(200_000, 1))
    found = rate_distortion(Sign(), X, caps=(1,))
    assert (found.bits.tolist(), found.pca_bits.tolist()) == ([1], [1])
    assert found.mse[0] == pytest.approx(1 - 2 / math.pi, rel=0.02)  # the best that one bit can do
    level = 0.75  # the middle of a cell that ends at 1.5 deviations
    assert found.pca_mse[0] == pytest.approx(1 - 2 * level * math.sqrt(2 / math.pi) + level**2, rel=0.02)
    assert found.mean_mse == pytest.approx(1, rel=0.02)


def test_pca_has_a_probe_of_its_own(digits: Any, vsc: Any) -> None:
    found = rate_distortion(vsc, digits.X[900:], digits.y[900:], caps=(1, 8))
    assert found.pca_probe is not None
    assert found.majority is not None
    assert found.majority < found.pca_probe[0] < found.pca_probe[1] < 1


# -- halves -----------------------------------------------------------------------------------------------------


def test_the_measured_half_has_no_say_in_what_is_fitted() -> None:
    _, X, _ = planted(4)
    X = 0.3 * X
    _, test = halves(len(X))
    nonfinite_rows = X.copy()
    nonfinite_rows[test] *= 50
    one, two = (rate_distortion(Planted(whole=False), rows, caps=(1, 3)) for rows in (X, nonfinite_rows))
    assert one.pca_components.tolist() == two.pca_components.tolist()
    assert one.pca_value_bits.tolist() == two.pca_value_bits.tolist()
    # values beyond the training range take its end: the error is nearly all that is there
    assert two.mse[1] > 0.9 * np.square(nonfinite_rows[test]).mean()
    assert one.mse[1] < 1e-4


def test_the_seed_fixes_the_halves() -> None:
    _, X, y = planted(4)
    one, again, other = (rate_distortion(Planted(), X, y, caps=(1, 2), seed=seed) for seed in (0, 0, 1))
    assert one.to_dict() == again.to_dict()
    assert one.mse[0] != other.mse[0]


def test_the_form_of_the_rows_does_not_matter(vsc: Any, digits: Any) -> None:
    X = digits.X[900:1200]
    want = rate_distortion(vsc, X, caps=(2, 4))
    for form in (sp.csr_matrix(X), sp.coo_array(X), torch.from_numpy(X), pd.DataFrame(X)):
        found = rate_distortion(vsc, form, caps=(4, 2, 4))
        assert found.mse == pytest.approx(want.mse, rel=1e-6)
        assert found.pca_mse == pytest.approx(want.pca_mse, rel=1e-6)


def test_a_model_of_named_columns_sees_their_names() -> None:
    frame = pd.DataFrame(planted(4)[1], columns=[f"c{j}" for j in range(20)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sv.SparsityWarning)
        est = sv.VSC(4, hidden=(8,), training=sv.Training(steps=2, verbose=0)).fit(frame)
    assert rate_distortion(est, frame, caps=(4,)).rows == 150  # without them scikit-learn would warn


# -- looking at it ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def curve() -> RateDistortion:
    _, X, y = planted(4)
    return rate_distortion(Planted(), X, y, caps=(1, 2, 3))


def test_a_curve_prints_as_a_table(curve: RateDistortion) -> None:
    header, lines = curve.table()
    assert header == ["cap", "bits", "on", "mse", "PCA", "PCA bits", "PCA mse", "probe", "PCA probe"]
    assert [line[:2] for line in lines] == [[str(c), str(b)] for c, b in zip(curve.caps, curve.bits, strict=True)]
    text = str(curve)
    assert "Planted: codes of 12 units (counts, packed)" in text
    assert "150 rows of 20 values, 640 bits each as float32" in text
    assert f"majority class: {curve.majority:.3f}" in text
    real = rate_distortion(Planted(whole=False), 0.3 * planted(4)[1], caps=(1,), value_bits=5)
    assert "the value in 5 bits" in str(real)
    assert "label" not in str(real)
    assert json.loads(json.dumps(curve.to_dict()))["mse"] == curve.mse.tolist()
    assert RateDistortion.from_dict(json.loads(json.dumps(curve.to_dict()))).to_dict() == curve.to_dict()


def test_a_curve_draws_error_and_probe_of_both(curve: RateDistortion) -> None:
    figure = results.rate_distortion(curve)
    figure.savefig(io.BytesIO(), format="png", dpi=40)
    for ax, (own, pca) in zip(figure.axes, ((curve.mse, curve.pca_mse), (curve.probe, curve.pca_probe)), strict=True):
        drawn = {line.get_label(): line.get_xydata() for line in ax.get_lines()}
        assert np.array_equal(drawn["quantised PCA"], np.column_stack([curve.pca_bits, pca]))
        assert np.array_equal(drawn["Planted (numbers: its cap)"], np.column_stack([curve.bits, own]))
    plain = results.rate_distortion(rate_distortion(Planted(), planted(4)[1], caps=(1,)))
    assert len(plain.axes) == 1


# -- what is refused --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"caps": ()}, "caps must hold at least one"),
        ({"caps": (0,)}, "a cap must be an integer above 0, got 0"),
        ({"caps": (1.5,)}, "a cap must be an integer above 0, got 1.5"),
        ({"caps": 3}, r"caps must be a sequence of integers, such as \(1, 2, 5, 10\), or \(5,\); got 3"),
        ({"caps": np.array(3)}, r"caps must be a sequence of integers.*got array\(3\)"),
        ({"caps": iter((1, 2))}, "caps must be a sequence of integers.*got <tuple_iterator"),
        ({"value_bits": 0}, "value_bits must be an integer from 1 to 16, got 0"),
        ({"value_bits": 17}, "value_bits must be an integer from 1 to 16, got 17"),
        ({"seed": -1}, "seed must be an integer, 0 or above"),
        ({"X": np.zeros(20)}, r"rows of numbers, \(n, D\), four at least; got shape \(20,\)"),
        ({"X": np.zeros((3, 20))}, r"four at least; got shape \(3, 20\)"),
        ({"y": np.zeros(7)}, "y must hold one label for each of the 300 rows"),
    ],
)
def test_what_cannot_be_measured_is_refused(arguments: dict[str, Any], words: str) -> None:
    _, X, _ = planted(4)
    with pytest.raises(ValueError, match=words):
        rate_distortion(Planted(), **({"X": X, "caps": (1,)} | arguments))


def test_only_a_fitted_model_with_a_way_back_has_a_curve(digits: Any) -> None:
    X = digits.X[:50]
    with pytest.raises(TypeError, match="transform and inverse_transform; got the class VSC"):
        rate_distortion(sv.VSC, X)
    with pytest.raises(TypeError, match="transform and inverse_transform; got a str"):
        rate_distortion("vsc", X)
    quick: dict[str, Any] = {"hidden": (4,), "training": sv.Training(steps=2, verbose=0)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sv.SparsityWarning)
        dense, unit = sv.VAE(2, **quick).fit(X), sv.VSC(2, scale="unit-norm", **quick).fit(X)
    with pytest.raises(ValueError, match="max_active needs a code with gates"):
        rate_distortion(dense, X, caps=(1,))
    with pytest.raises(ValueError, match="scale='unit-norm'"):
        rate_distortion(unit, X, caps=(1,))


def test_a_transform_that_ignores_its_cap_is_found_out() -> None:
    class Deaf(Planted):
        def transform(self, X: Any, *, max_active: int | None = None) -> Any:
            return super().transform(X, max_active=K)

    with pytest.raises(ValueError, match=r"max_active=1\) must leave at most 1 units on; a row has 3"):
        rate_distortion(Deaf(), planted(4)[1], caps=(1,))
