"""Claims: any form of the same data gives the same codes; codes are exact, deterministic and independent of
batching and order; scores are what they are called; samples stay where they should."""

from __future__ import annotations

import itertools
import json
import math
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import r2_score
from torch import Tensor, nn

import sparsevae as sv
from sparsevae.distributions.spike_slab import SpikeSlab
from sparsevae.estimator import scores
from sparsevae.inputs import rows, scaling

pytestmark = pytest.mark.filterwarnings("ignore::sparsevae.exceptions.SparsityWarning")
ROOT = Path(__file__).parents[2]


def make(cls: Any = sv.VSC, *, training: dict[str, Any] | None = None, **changes: Any) -> Any:
    settings = sv.Training(**{"steps": 150, "learning_rate": 1e-2, "verbose": 0} | (training or {}))
    more = {"alpha": 0.3} if cls is sv.VSC else {}
    return cls(**{"n_components": 8, "hidden": (16,), "training": settings} | more | changes)


def table(n: int = 1300, d: int = 12, seed: int = 0) -> np.ndarray:
    """A few sparse sources behind d columns of very different units."""
    rng = np.random.default_rng(seed)
    sources = rng.normal(size=(n, 4)) * (rng.random((n, 4)) < 0.5)
    X = sources @ rng.normal(size=(4, d)) + 0.1 * rng.normal(size=(n, d))
    return (X * np.linspace(1, 200, d) + np.linspace(-500, 500, d)).astype(np.float32)


def patterns(n: int = 400, d: int = 16, seed: int = 0) -> np.ndarray:
    """Binary rows, each the union of a few of five stripes."""
    rng = np.random.default_rng(seed)
    stripes = rng.random((5, d)) < 0.3
    on = rng.random((n, 5)) < 0.4
    return ((on @ stripes + (rng.random((n, d)) < 0.02)) > 0).astype(np.uint8)


@pytest.fixture(scope="module")
def fitted() -> dict[str, tuple[Any, np.ndarray]]:
    """Four small models and the data they were fitted on."""
    grey = (np.random.default_rng(1).random((400, 16)) * 255).astype(np.uint8)
    return {
        "vsc": (make(training={"kl_warmup": 0.9}).fit(table()), table()),
        "vae": (make(sv.VAE).fit(table()), table()),
        "binary": (make(training={"kl_warmup": 0.9}).fit(patterns()), patterns()),
        "unit-norm": (make(scale="unit-norm").fit(table()), table()),
        "grey": (make(likelihood="bernoulli").fit(grey), grey),
        "image": (make().fit(grey), grey),
    }


KINDS = ["vsc", "vae", "binary", "unit-norm", "grey", "image"]
each = pytest.mark.parametrize("kind", KINDS)


@cache
def short(kind: str) -> Any:
    """A few steps on 200 rows of the table or 150 patterns: what every form of them is compared with."""
    X = table()[:200] if kind == "table" else patterns(150).astype(np.float32)
    return make(training={"steps": 12}).fit(X)


def dense(Z: Any) -> np.ndarray:
    return Z.toarray() if sp.issparse(Z) else np.asarray(Z)


def same(A: Any, B: Any) -> bool:
    return np.array_equal(dense(A), dense(B))


def saved(how: Callable[[Path, np.ndarray], Any], ending: str) -> Callable[[np.ndarray, Path], str]:
    def form(X: np.ndarray, folder: Path) -> str:
        how(folder / f"X{ending}", X)
        return str(folder / f"X{ending}")

    return form


def memmap(X: np.ndarray, folder: Path) -> np.memmap:
    out = np.memmap(folder / "X.bin", dtype=X.dtype, mode="w+", shape=X.shape)
    out[:] = X
    return out


def names(X: np.ndarray) -> list[str]:
    return [f"c{i}" for i in range(X.shape[1])]


FORMS: dict[str, Callable[[np.ndarray, Path], Any]] = {
    "float32": lambda X, _: X.astype(np.float32),
    "float64": lambda X, _: X.astype(np.float64),
    "fortran": lambda X, _: np.asfortranarray(X),
    "strided": lambda X, _: np.repeat(np.repeat(X, 2, 0), 3, 1)[::2, ::3],
    "read-only": lambda X, _: np.frombuffer(X.tobytes(), X.dtype).reshape(X.shape),
    "list": lambda X, _: X.astype(np.float64).tolist(),
    "object": lambda X, _: X.astype(np.float64).astype(object),
    "DataFrame": lambda X, _: pd.DataFrame(X),
    "csr_matrix": lambda X, _: sp.csr_matrix(X),
    "csr_array": lambda X, _: sp.csr_array(X),
    "csr float64": lambda X, _: sp.csr_matrix(X.astype(np.float64)),
    "csc": lambda X, _: sp.csc_matrix(X),
    "coo": lambda X, _: sp.coo_matrix(X),
    "csr unsorted": lambda X, _: sp.csr_matrix(X)[:, ::-1][:, ::-1],
    "torch": lambda X, _: torch.tensor(X),
    "torch float64, with gradient": lambda X, _: torch.tensor(X, dtype=torch.float64, requires_grad=True),
    "memmap": memmap,
    ".npy": saved(np.save, ".npy"),
    ".npz": saved(lambda p, X: np.savez(p, X=X), ".npz"),
    ".npz sparse": saved(lambda p, X: sp.save_npz(p, sp.csr_matrix(X)), ".npz"),
    ".csv": saved(lambda p, X: pd.DataFrame(X, columns=names(X)).to_csv(p, index=False), ".csv"),
    ".parquet": saved(lambda p, X: pd.DataFrame(X, columns=names(X)).to_parquet(p), ".parquet"),
    "Path": lambda X, folder: Path(FORMS[".npy"](X, folder)),
}
INTEGER_FORMS: dict[str, Callable[[np.ndarray, Path], Any]] = {
    "bool": lambda X, _: X.astype(bool),
    "uint8": lambda X, _: X.astype(np.uint8),
    "int8": lambda X, _: X.astype(np.int8),
    "int64": lambda X, _: X.astype(np.int64),
    "DataFrame of bool": lambda X, _: pd.DataFrame(X.astype(bool)),
    "csr bool": lambda X, _: sp.csr_matrix(X.astype(bool)),
    "csr int": lambda X, _: sp.csr_matrix(X.astype(np.int32)),
    "torch bool": lambda X, _: torch.tensor(X.astype(bool)),
    "float16": lambda X, _: X.astype(np.float16),
    "bfloat16": lambda X, _: torch.tensor(X).to(torch.bfloat16),
}


# Forms of input.


@pytest.mark.filterwarnings("ignore:X (has feature names|does not have valid feature names)")
@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_table_gives_the_same_model_and_codes(form: str, tmp_path: Path, fitted: Any) -> None:
    est, X = fitted["vsc"]
    X = X[:200]
    given = FORMS[form](X, tmp_path)
    assert same(est.transform(given), est.transform(X))
    assert np.array_equal(est.score_samples(given), est.score_samples(X))
    assert same(make(training={"steps": 12}).fit(given).transform(X), short("table").transform(X))


@pytest.mark.filterwarnings("ignore:X (has feature names|does not have valid feature names)")
@pytest.mark.parametrize("form", [*FORMS, *INTEGER_FORMS])
def test_every_form_of_binary_data_gives_the_same_model_and_codes(form: str, tmp_path: Path) -> None:
    X = patterns(150).astype(np.float32)
    given = (FORMS | INTEGER_FORMS)[form](X, tmp_path)
    ours, reference = make(training={"steps": 12}).fit(given), short("patterns")
    assert ours.likelihood_ == "bernoulli"
    assert same(ours.transform(given), reference.transform(X))
    assert np.array_equal(ours.score_samples(X), reference.score_samples(given))
    assert ours.fingerprint_ == reference.fingerprint_


def _csv(path: Path, X: np.ndarray, names: Sequence[str]) -> Path:
    pd.DataFrame(X, columns=list(names)).to_csv(path, index=False)
    return path


@pytest.mark.parametrize("fitted_on", ["file", "DataFrame"])
def test_columns_of_a_file_have_names_as_those_of_a_data_frame(fitted_on: str, tmp_path: Path) -> None:
    X, known = table()[:60, :3], ["height", "weight", "age"]
    path = _csv(tmp_path / "people.csv", X, known)
    est = make(training={"steps": 12}).fit(path if fitted_on == "file" else pd.read_csv(path))
    assert list(est.feature_names_in_) == known
    assert same(est.transform(path), est.transform(pd.read_csv(path)))  # and nobody is warned
    with pytest.raises(ValueError, match=r"not those of fit, in that order \(the order differs\).*height, weight, age"):
        est.transform(_csv(tmp_path / "turned.csv", X[:, ::-1], known[::-1]))
    with pytest.raises(ValueError, match=r"\(new 'size'; missing 'height'\)"):
        est.score(_csv(tmp_path / "renamed.csv", X, ["size", *known[1:]]))
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        est.transform(X)
    with pytest.warns(UserWarning, match="X has feature names, but VSC was fitted without"):
        make(training={"steps": 12}).fit(X).transform(path)


def test_wide_rows_are_scored_few_draws_at_a_time(monkeypatch: pytest.MonkeyPatch, fitted: Any) -> None:
    (est, X), seen = fitted["vsc"], []
    wanted = est.score_samples(X[:20], n_samples=6)
    monkeypatch.setattr(scores, "_NUMBERS", 2 * 512 * X.shape[1])
    trace = type(est.model_).trace
    monkeypatch.setattr(
        type(est.model_),
        "trace",
        lambda self, x, raw, draw, copies=1: (seen.append(copies), trace(self, x, raw, draw, copies))[1],
    )
    np.testing.assert_allclose(est.score_samples(X[:20], n_samples=6), wanted, rtol=1e-6)
    assert seen == [2, 2, 2]


def test_what_a_caller_set_for_all_of_torch_changes_nothing_and_stays(tmp_path: Path) -> None:
    X = table()[:60]
    est = make(training={"steps": 12}).fit(X)
    est.save(tmp_path / "model")
    torch.set_default_dtype(torch.float64)
    try:
        again = make(training={"steps": 12}).fit(X)
        assert same(again.transform(X), est.transform(X))
        assert same(sv.load(tmp_path / "model").transform(X), est.transform(X))
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    with torch.inference_mode():
        assert same(make(training={"steps": 12}).fit(X).transform(X), est.transform(X))


def test_stored_duplicates_of_a_sparse_matrix_add_up(fitted: Any) -> None:
    est, _ = fitted["vsc"]
    data, indices, indptr = np.array([1.0, 2.0, 4.0, 5.0]), np.array([3, 3, 0, 1]), np.array([0, 2, 2, 4])
    X = sp.csr_matrix((data, indices, indptr), shape=(3, 12))
    assert same(est.transform(X), est.transform(X.toarray()))
    assert len(X.data) == 4  # and the user's matrix is left as it was


def test_the_users_data_are_never_changed(fitted: Any) -> None:
    for X in (table(50), patterns(50), table(50).astype(np.float64)):
        given = X.copy()
        est = make(training={"steps": 5}).fit(given)
        est.partial_fit(given), est.transform(given), est.score(given), est.evaluate(given)
        assert np.array_equal(given, X)


def test_a_wide_sparse_matrix_is_never_made_dense_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    n, d = 600, 40_000
    X = sp.csr_matrix((np.ones(5 * n), rng.integers(0, d, 5 * n), np.arange(0, 5 * n + 1, 5)), shape=(n, d))
    taken: list[int] = []
    pick = rows.Csr.pick

    def spy(self: rows.Csr, index: torch.Tensor) -> torch.Tensor:
        taken.append(len(index))
        return pick(self, index)

    def forbidden(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("made dense whole")

    monkeypatch.setattr(rows.Csr, "pick", spy)
    for cls in (sp.csr_matrix, sp.csr_array):
        monkeypatch.setattr(cls, "toarray", forbidden)
        monkeypatch.setattr(cls, "todense", forbidden)
    est = sv.VSC(2, hidden=(4,), training=sv.Training(steps=3, batch_size=8, verbose=0)).fit(X)
    assert taken.count(8) >= 3  # the steps' batches
    assert max(size * d for size in taken) <= 512 * d
    monkeypatch.undo()
    assert est.transform(X[:3]).shape == (3, 2)


@pytest.mark.slow
def test_memory_does_not_grow_with_the_rows_of_a_sparse_matrix() -> None:
    program = """
import resource, numpy as np, scipy.sparse as sp, sparsevae as sv, torch, warnings
warnings.simplefilter("ignore", sv.SparsityWarning)
rng, n, d = np.random.default_rng(0), 20_000, 50_000
X = sp.csr_matrix((np.ones(5 * n), rng.integers(0, d, 5 * n), np.arange(0, 5 * n + 1, 5)), shape=(n, d))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
est = sv.VSC(2, hidden=(4,), training=sv.Training(steps=20, batch_size=64, verbose=0)).fit(X)
est.transform(X)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**20)
"""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True)
    assert float(done.stdout) < 1.5  # GiB; the dense matrix takes 4 in float32


# Codes.


@each
def test_codes_are_the_mode_of_the_posterior(kind: str, fitted: Any) -> None:
    est, X = fitted[kind]
    Z = est.transform(X)
    with torch.no_grad():
        u = est.scaling_(torch.tensor(X[:512], dtype=torch.float32))
        q = est.model_.encode(u)
    if kind == "vae":
        assert isinstance(Z, np.ndarray)
        mode = q.mean
        assert (Z != 0).all()
    else:
        assert isinstance(Z, sp.csr_matrix)
        assert isinstance(q, SpikeSlab)
        mode = torch.where(q.p_on > 0.5, q.loc, 0.0)
        assert (Z.data != 0).all()  # no stored zeros: what is not on is absent
        assert Z.has_canonical_format
    assert Z.dtype == np.float32
    assert Z.shape == (len(X), 8)
    near_half = torch.zeros_like(mode) if kind == "vae" else (q.logits.abs() < 1e-4)
    off = np.abs(dense(Z)[:512] - mode.numpy()) * (1 - near_half.float().numpy())
    assert off.max() < 1e-4


def test_sparse_codes_are_neither_empty_nor_full(fitted: Any) -> None:
    for kind in ("vsc", "binary"):
        est, X = fitted[kind]
        share = est.transform(X).nnz / (len(X) * 8)
        assert 0.02 < share < 0.9, kind


@each
def test_codes_and_scores_depend_on_the_row_alone(kind: str, fitted: Any) -> None:
    est, X = fitted[kind]
    Z, scores = dense(est.transform(X)), est.score_samples(X, n_samples=3)
    assert same(est.transform(X), Z)
    assert np.array_equal(est.score_samples(X, n_samples=3), scores)
    rng = np.random.default_rng(0)
    order = rng.permutation(len(X))
    assert same(est.transform(X[order]), Z[order])
    assert np.array_equal(est.score_samples(X[order], n_samples=3), scores[order])
    for size in (1, 7, 100, min(512, len(X)), min(513, len(X)), len(X) - 1):
        start = int(rng.integers(0, len(X) - size + 1))
        part = slice(start, start + size)
        assert same(est.transform(X[part]), Z[part]), size
        assert np.array_equal(est.score_samples(X[part], n_samples=3), scores[part]), size
    for i in rng.choice(len(X), 25):
        assert same(est.transform(X[i : i + 1]), Z[i : i + 1])
        assert np.array_equal(est.score_samples(X[i : i + 1], n_samples=3), scores[i : i + 1])


@pytest.mark.parametrize("columns", [5, 7, 30])
@pytest.mark.parametrize("hidden", [(50,), (9, 6)])
@pytest.mark.parametrize("model", ["VAE", "VSC", "HSVAE", "SDLGM"])
def test_so_do_those_of_small_networks(model: str, hidden: tuple[int, ...], columns: int) -> None:
    # matrix products with few outputs may round a row by its place among the others
    X = np.random.default_rng(0).random((600, columns)).astype(np.float32)
    X = (X > 0.5).astype(np.float32) if model == "SDLGM" else X
    est = getattr(sv, model)(3, hidden=hidden, training=sv.Training(steps=3, device="cpu", verbose=0)).fit(X)
    means, scores = est.posterior_means(X) if model != "SDLGM" else {}, est.score_samples(X, n_samples=2)
    back = est.inverse_transform(est.transform(X))
    for order in (np.arange(600)[::-1], np.array([599])):
        for kind, mean in means.items():
            assert np.array_equal(est.posterior_means(X[order])[kind], mean[order]), kind
        assert np.array_equal(est.score_samples(X[order], n_samples=2), scores[order])
        assert np.array_equal(est.inverse_transform(est.transform(X[order])), back[order])


@settings(max_examples=25, deadline=None)
@given(index=st.lists(st.integers(0, 1299), min_size=1, max_size=600))
def test_any_selection_of_rows_with_repeats_gives_their_codes(index: list[int]) -> None:
    est, X, Z, scores = _once()
    assert same(est.transform(X[index]), Z[index])
    assert np.array_equal(est.score_samples(X[index], n_samples=1), scores[index])


_CACHE: list[Any] = []


def _once() -> tuple[Any, np.ndarray, np.ndarray, np.ndarray]:
    if not _CACHE:
        est, X = make().fit(table()), table()
        _CACHE.append((est, X, dense(est.transform(X)), est.score_samples(X, n_samples=1)))
    return _CACHE[0]


def test_importance_bounds_depend_on_the_row_alone(fitted: Any) -> None:
    est, X = fitted["vsc"]
    whole = est.importance_bound(X[:600], n_samples=20)
    part = est.importance_bound(X[590:600], n_samples=20)
    for a, b in zip(whole, part, strict=True):
        assert np.array_equal(a[590:], b, equal_nan=True)  # 20 samples have no Pareto k


@pytest.mark.slow
def test_sixty_thousand_images_bit_equal_in_any_batching_and_order() -> None:
    """Must-show 8, on MNIST where SPARSEVAE_DATA has it, else on noise; with as many threads as the quota gives."""
    torch.set_num_threads(2)
    try:
        X = sv.data.load("mnist").X if os.environ.get("SPARSEVAE_DATA") else None
        if X is None:
            X = (np.random.default_rng(0).random((60_000, 784)) ** 4 * 255).astype(np.uint8)
        est = sv.VSC(200, training=sv.Training(steps=300, verbose=0)).fit(X)
        Z, scores = est.transform(X), est.score_samples(X[:10_000], n_samples=2)
        rng = np.random.default_rng(1)
        order = rng.permutation(len(X))
        assert (est.transform(X) != Z).nnz == 0
        assert (est.transform(X[order]) != Z[order]).nnz == 0
        for size in (1000, 3333):
            parts = [est.transform(X[i : i + size]) for i in range(0, len(X), size)]
            assert (sp.vstack(parts) != Z).nnz == 0
        for i in range(1000):
            assert (est.transform(X[i : i + 1]) != Z[i : i + 1]).nnz == 0
        some = rng.permutation(10_000)
        assert np.array_equal(est.score_samples(X[some], n_samples=2), scores[some])
        for i in range(1000):
            assert est.score_samples(X[i : i + 1], n_samples=2)[0] == scores[i]
    finally:
        torch.set_num_threads(1)


@pytest.mark.parametrize("cap", [1, 2, 3, 7, 8, 100, np.int64(2)])
def test_max_active_keeps_the_units_that_bring_most(cap: int, fitted: Any) -> None:
    for kind in ("vsc", "binary", "unit-norm"):
        est, X = fitted[kind]
        full, capped = dense(est.transform(X)), dense(est.transform(X, max_active=cap))
        count = (capped != 0).sum(1)
        assert count.max() <= cap
        assert np.array_equal(count, np.minimum((full != 0).sum(1), cap))  # and no row gives up more than it must
        assert np.array_equal(capped[capped != 0], full[capped != 0])  # values are left alone
        with torch.no_grad():
            p = est.model_.encode(est.scaling_(torch.tensor(X, dtype=torch.float32))).p_on.numpy()
        brings = p * full**2 * est.fitted_.gain.numpy()
        kept = np.where(capped != 0, brings, np.inf).min(1)
        dropped = np.where((full != 0) & (capped == 0), brings, -np.inf).max(1)
        assert (kept >= dropped * (1 - 1e-5)).all()


def test_max_active_of_a_dense_code_is_refused(fitted: Any) -> None:
    est, X = fitted["vae"]
    with pytest.raises(ValueError, match=r"VAE codes are dense\. Use VSC"):
        est.transform(X, max_active=3)


def test_alpha_one_never_switches_off() -> None:
    est = make(alpha=1.0, training={"steps": 30}).fit(table(300))
    assert (est.transform(table(300)).toarray() != 0).all()
    assert np.isfinite(est.score_samples(table(300))).all()


# Back to the data's units.


def test_inverse_transform_returns_to_the_units_of_a_table(fitted: Any) -> None:
    for kind in ("vsc", "vae"):
        est, X = fitted[kind]
        R = est.inverse_transform(est.transform(X))
        assert R.shape == X.shape
        assert np.abs(R.mean(0) - X.mean(0)).max() < 0.2 * X.std(0).max()
        explained = 1 - ((R - X) ** 2).sum(0) / ((X - X.mean(0)) ** 2).sum(0)
        assert explained.mean() > 0.5, kind


def test_inverse_transform_of_images_is_in_grey_levels(fitted: Any) -> None:
    for kind in ("grey", "image"):
        est, X = fitted[kind]
        R = est.inverse_transform(est.transform(X))
        assert 20 < R.mean() < 235
        assert abs(R.mean() - X.mean()) < 20
    assert R.max() > 1.5
    est, X = fitted["binary"]
    R = est.inverse_transform(est.transform(X))
    assert R.min() >= 0
    assert R.max() <= 1


def test_unit_norm_gives_unit_norm_back(fitted: Any) -> None:
    est, X = fitted["unit-norm"]
    R = est.inverse_transform(est.transform(X))
    assert np.allclose(np.linalg.norm(R, axis=1), 1, atol=1e-5)
    assert same(est.transform(X * 8), est.transform(X))
    assert np.allclose(np.linalg.norm(est.sample(20, noise=True), axis=1), 1, atol=1e-5)


def test_inverse_transform_takes_dense_and_sparse_codes_in_any_batching(fitted: Any) -> None:
    est, X = fitted["vsc"]
    Z = est.transform(X)
    R = est.inverse_transform(Z)
    assert np.array_equal(est.inverse_transform(Z.toarray()), R)
    assert np.array_equal(est.inverse_transform(pd.DataFrame(Z.toarray())), R)
    assert np.array_equal(est.inverse_transform(Z[700:705]), R[700:705])
    with pytest.raises(ValueError, match="codes have 8 columns, one per unit; got 7"):
        est.inverse_transform(Z[:, :7])


# Which scaling, which likelihood.


@pytest.mark.parametrize(
    ("X", "likelihood", "log_det"),
    [
        (patterns(), "bernoulli", 0.0),
        (patterns() * np.uint8(255), "bernoulli", -16 * math.log(255)),
        (patterns().astype(float), "bernoulli", 0.0),
        (np.random.default_rng(0).random((50, 16)), "gaussian", 0.0),
        ((np.random.default_rng(0).random((50, 16)) * 255).astype(np.uint8), "gaussian", -16 * math.log(255)),
        (table(), "gaussian", None),
        (patterns() * 2.0 + 3, "gaussian", None),
        (np.full((50, 4), 5.0), "gaussian", 0.0),
        (np.zeros((50, 4)), "bernoulli", 0.0),
    ],
    ids=["binary", "0/255", "float01", "unit-interval", "uint8", "table", "3/5", "constant", "zero"],
)
def test_auto_settles_likelihood_and_scale_by_the_data(X: np.ndarray, likelihood: str, log_det: float | None) -> None:
    est = make(training={"steps": 3}).fit(X)
    assert est.likelihood_ == likelihood
    assert isinstance(est.scaling_, scaling.Affine)
    if log_det is None:
        wide = X.astype(np.float64)
        log_det = -np.log(np.maximum(wide.std(0), np.abs(wide - wide.mean(0)).max(0) / 10)).sum()
    assert est.scaling_.log_det == pytest.approx(log_det, rel=1e-5)
    u = est.scaling_(torch.tensor(X, dtype=torch.float32))
    assert u.abs().max() <= 10.001
    back = est.scaling_.inverse(u).numpy()
    assert np.allclose(back, X, rtol=1e-5, atol=1e-4)


# Scores.


def test_a_density_changes_with_the_units_by_the_log_determinant() -> None:
    """A power of two scales every float exactly, so the whole run is the same to the last bit."""
    X = table(300)
    one, eight = (make(scale="standard", training={"steps": 50}).fit(f * X) for f in (1, 8))
    assert same(one.transform(X), eight.transform(8 * X))
    assert np.allclose(eight.score_samples(8 * X), one.score_samples(X) - 12 * math.log(8), atol=1e-9)
    a, b = one.importance_bound(X[:20], n_samples=50), eight.importance_bound(8 * X[:20], n_samples=50)
    assert np.allclose(b.bound, a.bound - 12 * math.log(8), atol=1e-9)
    assert np.array_equal(a.standard_error, b.standard_error)


@pytest.mark.filterwarnings("ignore:the importance weights of .* heavy tails:RuntimeWarning")  # of values far out
@pytest.mark.parametrize("cls", [sv.VSC, sv.VAE])
@pytest.mark.parametrize("likelihood", ["gaussian", "fixed-gaussian"])
def test_a_gaussian_score_is_a_density_that_integrates_to_one(cls: Any, likelihood: str) -> None:
    rng = np.random.default_rng(0)
    X = 40 + 15 * np.where(rng.random(400) < 0.5, -2.0, 2.0)[:, None] + 6 * rng.normal(size=(400, 1))
    est = make(cls, n_components=1, likelihood=likelihood).fit(X)
    grid = np.linspace(-260, 340, 1201)[:, None]
    mass = np.exp(est.importance_bound(grid, n_samples=400).bound).sum() * (grid[1, 0] - grid[0, 0])
    assert mass == pytest.approx(1, abs=0.04)
    below = np.exp(est.score_samples(grid, n_samples=50)).sum() * (grid[1, 0] - grid[0, 0])
    assert below < 1.005


@pytest.mark.filterwarnings("ignore:the importance weights of .* heavy tails:RuntimeWarning")
@pytest.mark.parametrize("cls", [sv.VSC, sv.VAE])
def test_binary_scores_are_probabilities_that_sum_to_one(cls: Any) -> None:
    X = patterns(300, 5)
    est = make(cls, n_components=3).fit(X)
    every = np.array(list(itertools.product([0, 1], repeat=5)))
    b = est.importance_bound(every, n_samples=4000)
    assert np.exp(b.bound).sum() == pytest.approx(1, abs=0.02)
    assert np.exp(est.score_samples(every, n_samples=200)).sum() < 1.0
    seen = np.array([(row == X).all(1).mean() for row in every])
    assert abs(np.exp(b.bound) - seen).max() < 0.15


@pytest.mark.filterwarnings("ignore:the importance weights of .* heavy tails:RuntimeWarning")  # after so few steps
@pytest.mark.parametrize("kind", ["vsc", "vae", "binary"])
def test_the_importance_bound_lies_above_the_elbo_and_rises(kind: str, fitted: Any) -> None:
    est, X = fitted[kind]
    X = X[:100]
    elbo = est.score_samples(X, n_samples=100).mean()
    few, many = (est.importance_bound(X, n_samples=k) for k in (5, 500))
    assert elbo <= few.bound.mean() + 0.05
    assert few.bound.mean() <= many.bound.mean() + 0.05
    assert (many.standard_error >= 0).all()
    assert ((many.effective_samples >= 1 - 1e-9) & (many.effective_samples <= 500 + 1e-6)).all()
    one = est.importance_bound(X, n_samples=1)
    assert np.allclose(one.bound, est.score_samples(X, n_samples=1))  # K = 1 is the ELBO


def test_score_is_the_mean_and_more_draws_only_make_it_steadier(fitted: Any) -> None:
    est, X = fitted["vsc"]
    X = X[:200]
    assert est.score(X) == pytest.approx(est.score_samples(X).mean(), abs=1e-9)
    few, many = (est.score_samples(X, n_samples=k) for k in (20, 400))
    assert abs((few - many).mean()) < 4 * (few - many).std() / math.sqrt(len(X))
    reference = est.score_samples(X, n_samples=2000)
    assert np.abs(many - reference).mean() < np.abs(few - reference).mean()


def test_scores_say_what_they_are(fitted: Any) -> None:
    expected = {"vsc": "bound", "vae": "bound", "binary": "bound", "image": "bound"}
    expected |= {"unit-norm": "normalised-row density", "grey": "cross-entropy"}
    for kind, (est, X) in fitted.items():
        assert est.score_meaning(X) == expected[kind]
        assert est.evaluate(X[:50])["score_meaning"] == expected[kind]
        if expected[kind] == "bound":
            est.importance_bound(X[:2], n_samples=2)
        else:
            with pytest.raises(ValueError, match=f"a {expected[kind]}, not a bound"):
                est.importance_bound(X)
    est, X = fitted["grey"]
    assert est.score_meaning((X > 127) * np.uint8(255)) == "bound"  # the same model on binary data


def test_training_weights_do_not_enter_the_score() -> None:
    """beta, free bits, sharpness and warm-up belong to training: two models with equal weights score alike."""
    X = table(200)
    few = {"steps": 20}
    a = make(sv.BetaVAE, beta=1.0, training=few).fit(X)
    b = make(sv.BetaVAE, beta=9.0, training=few | {"free_bits": 2.0}).fit(X)
    b.model_.load_state_dict(a.model_.state_dict())
    assert np.array_equal(a.score_samples(X), b.score_samples(X))
    c, d = (make(training=few, gate="sigmoid", sharpness=s).fit(X) for s in ((50.0, 200.0), (1.0, 2.0)))
    d.model_.load_state_dict(c.model_.state_dict())
    assert np.array_equal(c.score_samples(X), d.score_samples(X))


def test_evaluate_agrees_with_the_methods(fitted: Any) -> None:
    for kind in ("vsc", "vae", "binary", "image"):
        est, X = fitted[kind]
        numbers = est.evaluate(X, caps=() if kind == "vae" else (1, 3))
        Z = dense(est.transform(X))
        R = est.inverse_transform(est.transform(X))
        assert numbers["rows"] == len(X)
        assert numbers["score"] == pytest.approx(est.score(X))
        assert numbers["nonzeros_mode"] == pytest.approx((Z != 0).sum(1).mean())
        share = (Z != 0).mean(0)
        used = (share > 0) & (share >= min(0.005, share.mean() / 4)) & (share <= 0.9)
        found = [numbers[k] for k in ("used", "always_on", "dead")]
        assert found == [used.sum(), (share > 0.9).sum(), 8 - used.sum() - (share > 0.9).sum()]
        assert numbers["empty"] == pytest.approx((Z == 0).all(1).mean())
        assert numbers["mean_mse"] == pytest.approx(X.astype(np.float64).var(0).mean(), rel=1e-5)
        assert numbers["r2"] == pytest.approx(r2_score(X, R, multioutput="variance_weighted"), abs=1e-4)
        assert numbers["mse"] == pytest.approx(((R - X.astype(np.float64)) ** 2).mean(), rel=1e-4)
        for cap, mse in numbers["caps"].items():
            capped = est.inverse_transform(est.transform(X, max_active=cap))
            assert mse == pytest.approx(((capped - X.astype(np.float64)) ** 2).mean(), rel=1e-4)
        assert abs(numbers["nonzeros_drawn"] - numbers["nonzeros_expected"]) < 0.15
        assert 0 <= numbers["active_units"] <= 8
        json.dumps(numbers)
    assert numbers["variance_floor"] == est.variance_floor


def test_the_error_of_a_score_is_that_of_a_mean_over_rows_and_not_known_of_one(fitted: Any) -> None:
    est, X = fitted["vsc"]
    for some in (X, X[:2]):  # by n - 1, not n
        wanted = est.score_samples(some).std(ddof=1) / math.sqrt(len(some))
        assert est.evaluate(some)["score_standard_error"] == pytest.approx(wanted)
    assert math.isnan(est.evaluate(X[:1])["score_standard_error"])


# Samples.


def watched(est: Any, monkeypatch: pytest.MonkeyPatch) -> list[torch.Tensor]:
    """Every code that is decoded from now on."""
    seen: list[torch.Tensor] = []
    decode = est.model_.decode
    monkeypatch.setattr(est.model_, "decode", lambda z: (seen.append(z), decode(z))[1])
    return seen


def test_samples_follow_the_prior(fitted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    est, _ = fitted["vsc"]
    seen = watched(est, monkeypatch)
    assert est.sample(5000).shape == (5000, 12)
    z = seen[0].numpy()
    assert (z != 0).mean() == pytest.approx(0.3, abs=0.01)
    assert z[z != 0].mean() == pytest.approx(0, abs=0.05)
    assert z[z != 0].std() == pytest.approx(1, abs=0.05)


@each
def test_samples_have_seeds_and_noise(kind: str, fitted: Any) -> None:
    est, X = fitted[kind]
    assert np.array_equal(est.sample(6), est.sample(6, seed=0))
    assert not np.array_equal(est.sample(6), est.sample(6, seed=1))
    assert np.array_equal(est.sample(6, seed=np.int64(3)), est.sample(6, seed=3))
    assert np.isfinite(est.sample(200, noise=True)).all()
    assert not np.array_equal(est.sample(6, noise=True), est.sample(6))
    assert est.sample(0).shape == (0, X.shape[1])
    if kind == "binary":
        assert set(np.unique(est.sample(50, noise=True))) == {0.0, 1.0}
    if kind == "grey":
        assert set(np.unique(est.sample(50, noise=True))) == {0.0, 255.0}


def test_sample_like_moves_only_within_the_active_sub_space(fitted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in ("vsc", "binary"):
        est, X = fitted[kind]
        codes = est.transform(X).toarray()
        row = int(np.argmax(((codes != 0).sum(1) > 0) & ((codes != 0).sum(1) < 8)))
        seen = watched(est, monkeypatch)
        out = est.sample_like(X[row : row + 1], 300, seed=2)
        monkeypatch.undo()
        z, on = seen[0].numpy(), codes[row] != 0
        assert z.shape == (300, 8)
        assert (z[:, ~on] == 0).all()
        assert (z[:, on] != 0).all()
        assert np.abs(z[:, on].std(0) - 1).max() < 0.25
        assert np.array_equal(out, est.sample_like(X[row : row + 1], 300, seed=2))
        assert not np.array_equal(out, est.sample_like(X[row : row + 1], 300, seed=3))
        assert not np.array_equal(out, est.sample_like(X[row : row + 1], 300, seed=2, noise=True))
        assert np.array_equal(out, est.sample_like(X[row], 300, seed=2))
        with pytest.raises(ValueError, match=r"needs one row, got 2; pass X\[0\] or X\[:1\]"):
            est.sample_like(X[:2])


def test_a_row_whose_code_is_empty_has_no_likes() -> None:
    X = np.random.default_rng(0).normal(size=(60, 5)).astype(np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sv.SparsityWarning)
        est = sv.VSC(4, alpha=0.01, skip=False, hidden=(4,), training=sv.Training(steps=1, verbose=0)).fit(X)
    est.model_.encoder[-1].bias.data[8:] = -30.0  # every gate is shut
    assert est.transform(X[:1]).nnz == 0
    with pytest.raises(ValueError, match="no unit is on in this row's code, so there is nothing to redraw"):
        est.sample_like(X[0], 5)


# The user's own networks.


class Reshaped(nn.Module):
    """A convolution behind a reshape, as an image user would write it."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x.view(-1, 1, 4, 4))


def body(n_in: int, n_out: int = 16) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(n_in, n_out), nn.BatchNorm1d(n_out), nn.ReLU())


@pytest.mark.parametrize("cls", [sv.VSC, sv.VAE])
def test_own_networks_train_without_being_touched(cls: Any) -> None:
    X = patterns(300)
    with torch.random.fork_rng():
        encoder, decoder = Reshaped(), body(8)
    before = [{k: v.clone() for k, v in m.state_dict().items()} for m in (encoder, decoder)]
    training = {"steps": 120, "validation_fraction": 0.2, "report_every": 10}
    est = make(cls, encoder=encoder, decoder=decoder, training=training).fit(X)
    for module, state in zip((encoder, decoder), before, strict=True):
        assert all(torch.equal(v, state[k]) for k, v in module.state_dict().items())
        assert module.training
    assert est.history_[-1]["loss"] < est.history_[0]["loss"] - 0.5
    # Batch statistics are those of training batches: one update a step, none from looking at held-out rows.
    assert int(est.model_.encoder[0].net[1].num_batches_tracked) == 120
    assert not est.model_.training
    Z = est.transform(X)
    assert same(est.transform(X[17:18]), Z[17:18])  # running statistics, not those of the batch
    again = make(cls, encoder=encoder, decoder=decoder, training=training).fit(X)
    assert same(again.transform(X), Z)
    with pytest.raises(ValueError, match=r"encoder must be a Module or None \(of torch\.nn\), got 'conv'"):
        make(cls, encoder="conv").fit(X)


def test_frozen_parameters_of_an_own_network_stay() -> None:
    with torch.random.fork_rng():
        encoder = body(16)
    encoder[0].requires_grad_(False)
    est = make(encoder=encoder, training={"steps": 20}).fit(patterns())
    assert torch.equal(est.model_.encoder[0][0].weight, encoder[0].weight)
    assert not torch.equal(est.model_.encoder[0][1].weight, encoder[1].weight)


class Widening(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.double()


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (nn.Linear(7, 3), r"encoder cannot take a float tensor of shape \(B, 16\)"),
        (nn.Identity(), None),
        (
            nn.Unflatten(1, (4, 4)),
            r"must map \(B, 16\) to \(B, width\) in .*; for B = 2 it gave \(2, 4, 4\)",
        ),
        (nn.GRU(16, 3), r"it gave tuple"),
        (nn.Linear(16, 3).double(), r"cannot take a float tensor.*weights are torch.float64: pass encoder\.float\(\)"),
        (Widening(), r"in torch.float32; for B = 2 it gave \(2, 16\) in torch.float64"),
    ],
)
def test_own_networks_that_do_not_fit_are_named_before_training(module: nn.Module, message: str | None) -> None:
    est = make(encoder=module, training={"steps": 2})
    if message is None:
        assert est.fit(patterns()).transform(patterns()).shape == (400, 8)
    else:
        with pytest.raises(ValueError, match=message):
            est.fit(patterns())


# Growing with new data.


def test_partial_fit_goes_on_and_improves_on_new_data() -> None:
    X = table(1200)
    est = make(training={"steps": 100}).fit(X[:600])
    steps, reports, shift = est.n_steps_, len(est.history_), est.scaling_.shift.clone()
    before = est.score(X[600:])
    for _ in range(30):
        est.partial_fit(X[600:])
    assert est.score(X[600:]) > before + 1
    assert est.n_steps_ == steps + 30 * math.ceil(600 / 128)
    assert len(est.history_) == reports + 30
    assert torch.equal(est.scaling_.shift, shift)  # units do not move under the codes
    with pytest.raises(ValueError, match="12 features"):
        est.partial_fit(X[:, :5])


CHANGES: dict[str, dict[str, Any]] = {
    "another size": {"n_components": 20},
    "no gates": {"alpha": 1.0},
    "another prior": {"alpha": 0.7},
    "another floor": {"variance_floor": 0.5},
    "other layers": {"hidden": (8, 8)},
    "another network": {"encoder": nn.Linear(12, 3)},
    "other texts": {"text": sv.Text(embedding=4)},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_fitted_model_is_saved_as_it_was_fitted_whatever_is_set_since(change: Any, tmp_path: Path) -> None:
    X = table(300)
    est = make(training={"steps": 20}).fit(X)
    score = est.score(X)
    saved = est.get_params(deep=False)
    est.set_params(**change).save(tmp_path / "model")
    back = sv.load(tmp_path / "model")
    assert back.score(X) == est.score(X) == score
    assert {k: getattr(back, k) for k in change} == {k: saved[k] for k in change}


def test_a_network_of_one_s_own_is_asked_for_whatever_is_set_since(tmp_path: Path) -> None:
    X, own = table(300), nn.Sequential(nn.Linear(12, 8), nn.ReLU())
    est = make(encoder=own, training={"steps": 20}).fit(X)
    est.set_params(encoder=None).save(tmp_path / "model")
    assert sv.load(tmp_path / "model", encoder=own).score(X) == est.score(X)
    with pytest.raises(ValueError, match=r"encoder cannot take a float tensor of shape \(B, 12\)"):
        sv.load(tmp_path / "model", encoder=nn.Linear(11, 8))


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_model_does_not_go_on_as_another(change: Any) -> None:
    X = table(300)
    est = make(training={"steps": 20}).fit(X)
    (name,) = change
    before = {name: getattr(est, name)}
    for extend_with in (est.partial_fit, lambda X: sv.prune(est, X)):
        est.set_params(**change)
        with pytest.raises(ValueError, match=f"was fitted with {name}=.*, and is now set to {name}=.*call fit"):
            extend_with(X)
        est.set_params(**before)
    est.partial_fit(X)  # and a rate may always be set
    est.set_params(training__learning_rate=1e-4).partial_fit(X)


def test_partial_fit_may_come_first() -> None:
    X = table(600)
    est = make()
    assert est.partial_fit(X) is est
    first = est.score(X)
    for _ in range(30):
        est.partial_fit(X)
    assert est.score(X) > first + 1
    with pytest.raises(ValueError, match=r"needs values in \[0, 1\]"):
        make().partial_fit(patterns()).partial_fit(table(20, 16))


def test_partial_fit_on_one_row_is_allowed_once_fitted() -> None:
    est = make(training={"steps": 5}).fit(table(100))
    assert np.isfinite(est.partial_fit(table(100)[:1]).score(table(100)))


def test_a_second_fit_starts_anew() -> None:
    X = table(200)
    est = make(training={"steps": 20}).fit(X[:100]).partial_fit(X)
    est.fit(X)
    fresh = make(training={"steps": 20}).fit(X)
    assert same(est.transform(X), fresh.transform(X))
    assert est.history_ == fresh.history_
    assert est.n_steps_ == 20


def test_an_error_in_transform_leaves_autograd_on(fitted: Any) -> None:
    est, X = fitted["vae"]
    with pytest.raises(ValueError, match="codes are dense") as kept:
        est.transform(X, max_active=2)
    assert torch.is_grad_enabled()
    del kept


def test_scaled_rows_given_to_a_model_of_8_bit_images_are_noticed(fitted: Any) -> None:
    est, X = fitted["image"]
    with pytest.warns(UserWarning, match="divides by 255 itself"):
        est.transform(X / 255)
    grey = sv.VSC(4, hidden=(8,), training=sv.Training(steps=20, binarise=True, verbose=0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sv.SparsityWarning)
        grey.fit(X)
    assert grey.score_meaning(sv.data.binarise(X)) == "bound"


def test_unit_norm_rows_train_at_the_defaults_of_the_library() -> None:
    X = sv.data.load("digits").X[:400]
    training = sv.Training(steps=300, kl_warmup=0.5, verbose=0)
    est = sv.VSC(16, hidden=(64,), scale="unit-norm", training=training).fit(X)
    assert est.transform(X).nnz > len(X)


def test_dropout_is_refused_since_its_noise_is_not_ours() -> None:
    with pytest.raises(ValueError, match="encoder holds a Dropout layer"):
        sv.VSC(4, encoder=nn.Sequential(nn.Linear(12, 8), nn.Dropout())).fit(table())


def test_the_weights_of_a_users_network_are_kept() -> None:
    few = {"steps": 20}
    first = make(hidden=(8,), skip=False, training=few).fit(table())
    body = first.model_.encoder[:-1]
    for p in body.parameters():
        p.requires_grad_(False)
    second = make(encoder=body, training=few).fit(table())
    assert torch.equal(second.model_.encoder[0][0].weight, body[0].weight)


# -- draws and means of the posterior, and a look on the way ---------------------------------------------------------


@pytest.mark.parametrize("cls", [sv.VSC, sv.HSVAE, sv.VAE, sv.SDLGM])
def test_draws_of_a_row_depend_on_seed_and_row_alone_and_average_to_the_mean(cls: Any) -> None:
    rows = sv.data.load("digits").X[:40]
    est = cls(5, hidden=(16,), training=sv.Training(steps=30, verbose=0)).fit(rows)
    draws = est.draw_codes(rows, 400)
    assert (draws.shape, draws.dtype) == ((400, 40, 5), np.float32)
    assert np.array_equal(est.draw_codes(rows[::-1], 3), draws[:3, ::-1])
    assert np.array_equal(est.draw_codes(rows[7:8], 400)[:, 0], draws[:, 7])
    assert not np.array_equal(est.draw_codes(rows, 1, seed=1), draws[:1])
    means = est.posterior_means(rows)
    mean, error = means["gated" if "gated" in means else "mean"], draws.std(0) / 20
    assert (np.abs(draws.mean(0) - mean) <= 5 * error + 1e-6).all()
    assert set(means) == ({"slab", "gated"} if cls in (sv.VSC, sv.HSVAE) else {"mean"})


@pytest.mark.parametrize("cls", [sv.VSC, sv.HSVAE, sv.VAE])
def test_evaluation_reads_a_row_once_for_the_code_and_once_for_the_score(
    cls: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    est, reads = make(cls, training={"steps": 5}).fit(table(300)), []
    read = est.model_.read
    monkeypatch.setattr(est.model_, "read", lambda batch: (reads.append(len(batch.x)), read(batch))[1])
    est.evaluate(table(300), caps=[1] if cls is sv.VSC else [])
    assert reads == [512, 512]


@pytest.mark.parametrize(
    ("caps", "message"), [(3, "a sequence of integers"), ([0], "a cap must be an integer above 0")]
)
def test_caps_that_are_none_are_refused(caps: Any, message: str, fitted: Any) -> None:
    with pytest.raises(ValueError, match=message):
        fitted["vsc"][0].evaluate(table(5), caps=caps)


def test_a_fit_can_be_watched_and_watching_changes_nothing() -> None:
    rows = sv.data.load("digits").X
    seen: list[tuple[int, float]] = []
    est, plain = (sv.VSC(5, training=sv.Training(steps=40, report_every=10, verbose=0)) for _ in range(2))
    est.fit(rows, watch=lambda row: seen.append((row["step"], est.score(rows[:50]))))
    assert [step for step, _ in seen] == [10, 20, 30, 40]
    assert seen[-1][1] == est.score(rows[:50]) > seen[0][1]
    for a, b in zip(est.model_.parameters(), plain.fit(rows).model_.parameters(), strict=True):
        assert torch.equal(a, b)


# -- what a refusal leaves -------------------------------------------------------------------------------------------


def test_a_fit_refused_before_its_first_step_leaves_no_model() -> None:
    est = sv.VSC(4, hidden=(8,), training=sv.Training(steps=5, n_samples=10**9, verbose=0))
    with pytest.raises(ValueError, match="n_samples"):
        est.fit(np.ones((20, 6)) * np.arange(20)[:, None])
    assert not hasattr(est, "model_")


@pytest.mark.filterwarnings("ignore::sparsevae.exceptions.SparsityWarning")
def test_a_refused_pass_leaves_the_model_s_record_as_it_was() -> None:
    rows = np.random.default_rng(0).normal(size=(60, 6))
    est = sv.VSC(4, hidden=(8,), training=sv.Training(steps=5, verbose=0)).fit(rows)
    before = est.n_rows_, est.n_steps_, est.transform(rows).toarray()
    est.set_params(training__n_samples=10**9)
    with pytest.raises(ValueError, match="n_samples"):
        est.partial_fit(np.vstack([rows, rows]))
    assert (est.n_rows_, est.n_steps_) == before[:2]
    assert np.array_equal(est.transform(rows).toarray(), before[2])


def test_a_model_without_build_is_told_what_to_define() -> None:
    class Mine(sv.SparseCoder):
        """Defines nothing."""

    with pytest.raises(NotImplementedError, match=r"Mine must define build\(data, weights\)"):
        Mine().fit(np.ones((20, 6)) * np.arange(20)[:, None])
