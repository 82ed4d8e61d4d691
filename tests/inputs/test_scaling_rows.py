"""Where data lies and how it is scaled: nothing lost, nothing copied whole, and densities in X's own units."""

import builtins
import math
import os
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import sparsevae as sv
from sparsevae.inputs.rows import Csr, Host, Resident, place
from sparsevae.inputs.scaling import SCALES, Affine, Scaling, UnitNorm, choose
from sparsevae.inputs.stats import Span, Stats, fingerprint, stats
from sparsevae.threads import cpu_count, threads

CPU = torch.device("cpu")
quiet = pytest.mark.filterwarnings("ignore:.*units.*:sparsevae.exceptions.SparsityWarning")


def measured(X: Any) -> Stats:
    return stats(place(X, CPU, resident=False), X.dtype)


def chosen(name: str, X: np.ndarray) -> Scaling:
    return choose(name, measured(X))


def normals(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


# -- densities in X's own units --------------------------------------------------------------------------------------


def deaf(est: sv.VAE, loc: float) -> None:
    """Posterior = prior and a decoder that ignores z: the ELBO is then log p(x) itself, N(loc, variance) scaled."""
    with torch.no_grad():
        for layer in (est.model_.encoder[-1], est.model_.decoder[-1]):
            layer.weight.zero_()
            layer.bias.zero_()
        est.model_.decoder[-1].bias[: est.n_features_in_] = loc


@quiet
@pytest.mark.parametrize("likelihood", ["gaussian", "fixed-gaussian"])
@pytest.mark.parametrize("scale", ["auto", "standard", "none"])
def test_a_score_is_a_density_in_one_dimension(scale: str, likelihood: str) -> None:
    """exp(score) integrates to 1 over x, whatever the scaling did: its log-determinant is part of the score."""
    X = 40 + 7 * normals(200, 1)
    training = sv.Training(steps=1, verbose=0)
    est = sv.VAE(2, hidden=(4,), scale=scale, likelihood=likelihood, training=training).fit(X)
    deaf(est, 0.3)
    centre = float(est.scaling_.inverse(torch.tensor([[0.3]])))
    grid = centre + np.linspace(-90, 90, 6001, dtype=np.float32)
    density = np.exp(est.score_samples(grid[:, None], n_samples=1))
    assert np.trapezoid(density, grid) == pytest.approx(1, abs=2e-3)


@quiet
def test_a_score_is_a_density_in_two_dimensions() -> None:
    X = normals(300, 2) * np.float32([0.01, 5.0]) + np.float32([3.0, -70.0])
    est = sv.VAE(
        2, hidden=(4,), likelihood="fixed-gaussian", variance=0.5, training=sv.Training(steps=1, verbose=0)
    ).fit(X)
    assert not np.allclose(est.scaling_.scale.numpy(), 1)
    deaf(est, -0.2)
    centre = est.scaling_.inverse(torch.full((1, 2), -0.2)).numpy()[0]
    axes = [c + 6 * s * np.linspace(-1, 1, 121) for c, s in zip(centre, est.scaling_.scale.numpy(), strict=True)]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), -1)
    density = np.exp(est.score_samples(grid.reshape(-1, 2), n_samples=1)).reshape(121, 121)
    assert np.trapezoid(np.trapezoid(density, axes[1]), axes[0]) == pytest.approx(1, abs=2e-3)


@quiet
def test_changing_units_moves_a_score_by_the_jacobian() -> None:
    """x -> 64 x: the networks see the same bits, and every density falls by D log 64."""
    X = 10 + 3 * normals(100, 4)
    fits = [sv.VSC(3, hidden=(8,), training=sv.Training(steps=10, verbose=0)).fit(unit * X) for unit in (1, 64)]
    scores = [est.score_samples(unit * X) for est, unit in zip(fits, (1, 64), strict=True)]
    np.testing.assert_allclose(scores[0] - scores[1], 4 * math.log(64), rtol=1e-5)
    images = (100 * np.abs(normals(50, 4))).clip(0, 255).astype(np.uint8)
    est = sv.VAE(2, hidden=(4,), training=sv.Training(steps=2, verbose=0)).fit(images)
    assert est.scaling_.log_det == pytest.approx(-4 * math.log(255))


@quiet
def test_probabilities_pay_no_jacobian() -> None:
    """0/255 pixels under a Bernoulli are probabilities: the same score as the 0/1 pixels they stand for."""
    bits = (normals(80, 6) > 0).astype(np.uint8)
    settings_ = {"hidden": (8,), "training": sv.Training(steps=5, verbose=0)}
    one, many = sv.VAE(2, **settings_).fit(bits), sv.VAE(2, **settings_).fit(255 * bits)
    assert (one.likelihood_, many.likelihood_) == ("bernoulli", "bernoulli")
    np.testing.assert_array_equal(one.score_samples(bits), many.score_samples(255 * bits))
    assert (one.score_samples(bits) < 0).all()


# -- scaling ---------------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    hnp.arrays(np.float32, st.tuples(st.integers(2, 12), st.integers(1, 4)), elements=st.floats(-1e6, 1e6, width=32))
)
def test_scaling_can_be_undone(X: np.ndarray) -> None:
    for name in ("auto", "standard", "none"):
        scaling = chosen(name, X)
        u = scaling(torch.tensor(X))
        assert torch.isfinite(u).all()
        # two float32 roundings, of numbers as large as the column's largest
        slack = 1e-5 * (np.abs(X).max(0) + 1e-30)
        assert (np.abs(scaling.inverse(u).numpy() - X) <= slack).all()
        assert math.isfinite(scaling.log_det)
        if name == "standard":
            assert float(u.abs().max()) <= 10 * (1 + 1e-3)


def test_standard_is_zero_mean_and_unit_variance() -> None:
    X = normals(5000, 3) * np.float32([1e-3, 1, 1e4]) + np.float32([1, 0, -1e4])
    u = chosen("standard", X)(torch.tensor(X)).double()
    assert u.mean(0).tolist() == pytest.approx([0.0] * 3, abs=1e-3)
    assert u.std(0, correction=0).tolist() == pytest.approx([1.0] * 3, abs=1e-3)
    assert chosen("standard", X).log_det == pytest.approx(-np.log(X.std(0, dtype=np.float64)).sum(), rel=1e-4)


def test_a_rarely_lit_pixel_is_not_blown_up() -> None:
    X = np.zeros((60_000, 2), np.float32)
    X[17, 0] = 200.0
    X[:, 1] = normals(60_000)
    scaling = chosen("standard", X)
    u = scaling(torch.tensor(X))
    assert float(u[17, 0]) == pytest.approx(10, rel=1e-4)  # 245 standard deviations
    assert float(u.abs().max()) <= 10.001
    assert float(scaling.inverse(u)[17, 0]) == pytest.approx(200, rel=1e-6)


@pytest.mark.parametrize("value", [0.0, 1.0, 0.1, -3.3e8, 1e30, 1e-30, 255.0])
def test_constant_columns_are_only_centred(value: float) -> None:
    X = np.full((50, 2), value, np.float32)
    X[:, 1] = np.arange(50)
    scaling = chosen("standard", X)
    assert float(scaling.scale[0]) == 1
    u = scaling(torch.tensor(X))
    assert u[:, 0].tolist() == pytest.approx([0.0] * 50, abs=1e-6 * abs(value))
    assert torch.isfinite(u).all()
    assert scaling.log_det == pytest.approx(-math.log(np.arange(50).std()), rel=1e-5)


def test_what_auto_chooses() -> None:
    unit = np.random.default_rng(0).random((20, 3))
    for X in (unit, unit.astype(np.float32), (unit > 0.5).astype(np.uint8), (unit > 0.5)):
        scaling = chosen("auto", X)
        assert scaling.log_det == 0
        assert torch.equal(scaling(torch.ones(1, 3)), torch.ones(1, 3))
    images = (255 * unit).astype(np.uint8)
    scaling = chosen("auto", images)
    assert scaling.scale.tolist() == [255.0] * 3
    assert scaling.log_det == pytest.approx(-3 * math.log(255))
    assert float(scaling(torch.tensor(images).float()).max()) <= 1
    assert not torch.equal(chosen("auto", images.astype(np.int64)).scale, scaling.scale)  # a table, so standardised
    assert isinstance(chosen("unit-norm", images), UnitNorm)
    assert chosen("none", images).log_det == 0
    with pytest.raises(ValueError, match=r"auto, standard, unit-norm, none; got 'minmax'"):
        chosen("minmax", images)
    assert set(SCALES) == {"auto", "standard", "unit-norm", "none"}


def test_auto_standardises_what_would_vary_less_than_the_floor() -> None:
    """Values in [0, 1] that hardly vary, and 8-bit numbers far below 255: a model with that floor would see nothing."""
    unit = np.random.default_rng(0).random((200, 3))
    narrow, counts, images = 0.5 + 0.1 * unit, (16 * unit).astype(np.uint8), (255 * unit).astype(np.uint8)
    for X in (narrow, counts):
        data = measured(X)
        assert torch.equal(choose("auto", data, least=0.03).scale, choose("standard", data).scale)
        assert len(set(choose("auto", data).scale.tolist())) == 1  # no floor: as it is, or by 255
    for X in (unit, images, np.full((5, 3), 0.7), np.full((5, 3), 9, np.uint8)):  # rows that vary, and that never do
        data = measured(X)
        assert torch.equal(choose("auto", data, least=0.03).scale, choose("auto", data).scale)


def scale_of(X: np.ndarray, **own: Any) -> set[float]:
    est = sv.VSC(4, hidden=(8,), training=sv.Training(steps=1, verbose=0), **own).fit(X)
    return {round(v, 4) for v in est.scaling_.scale.tolist()}


@quiet
@pytest.mark.filterwarnings("ignore::sparsevae.exceptions.SparsityWarning")
def test_only_a_variance_that_is_learned_has_a_floor() -> None:
    """Zeros and ones that are rare stay what they are, and so do grey values that are told by zeros and ones."""
    rng = np.random.default_rng(0)
    rare = (rng.random((400, 3)) < 0.01).astype(np.float32)
    narrow = (0.5 + 0.1 * rng.random((400, 3))).astype(np.float32)
    assert scale_of(rare) == {1.0}
    assert scale_of(narrow, likelihood="bernoulli") == {1.0}
    assert scale_of(narrow, likelihood="fixed-gaussian") == {1.0}
    assert scale_of(narrow, variance_floor=1e-4) == {1.0}
    assert max(scale_of(narrow)) < 0.05


@quiet
def test_a_dark_pixel_of_faint_8_bit_images_keeps_their_unit() -> None:
    faint = np.random.default_rng(0).integers(0, 40, (200, 3)).astype(np.uint8)
    faint[:, 1] = 0
    data = measured(faint)
    scale = choose("auto", data, least=0.03).scale.tolist()
    assert scale[1] == 255
    assert max(scale[0], scale[2]) < 20
    assert choose("standard", data).scale.tolist()[1] == 1


def test_unit_norm() -> None:
    scaling = UnitNorm(2)
    assert not scaling.reversible
    assert scaling.log_det == pytest.approx(math.log(2))  # both values of a row grow by sqrt(2)
    x = torch.tensor([[3.0, 4.0], [0.0, 0.0], [-1e-3, 0.0], [3e20, -4e20], [3e-20, 4e-20]])
    u = scaling(x)
    wanted = torch.tensor([[0.6, 0.8], [0.0, 0.0], [-1.0, 0.0], [0.6, -0.8], [0.6, 0.8]])
    assert torch.allclose(u, math.sqrt(2) * wanted, atol=1e-6)
    assert torch.allclose(scaling.inverse(7 * u), wanted, atol=1e-6)
    assert scaling(x[None].expand(2, 5, 2)).shape == (2, 5, 2)


def test_scaling_is_part_of_the_state() -> None:
    affine = chosen("standard", normals(20, 3))
    other = Affine(torch.zeros(3), torch.ones(3))
    other.load_state_dict(affine.state_dict())
    assert other.log_det == affine.log_det
    assert torch.equal(other(torch.ones(1, 3)), affine(torch.ones(1, 3)))


# -- rows ------------------------------------------------------------------------------------------------------------


def ragged() -> scipy.sparse.csr_matrix:
    """A sparse matrix with empty rows at both ends and between, and an explicit zero."""
    dense = np.zeros((7, 5))
    dense[1, [0, 4]], dense[2, 2], dense[4] = [1.5, -2.0], 3.0, np.arange(1, 6)
    X = scipy.sparse.csr_matrix(dense)
    X.data[0] = 0.0
    return X


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "csr_array"])
def test_csr_rows_are_the_dense_ones(kind: str) -> None:
    X = scipy.sparse.csr_array(ragged()) if kind == "csr_array" else ragged().asformat(kind)
    rows = place(X, CPU, resident=True)
    assert isinstance(rows, Csr)
    assert rows.shape == (7, 5)
    for index in ([0], [6, 0, 3], [4, 4, 1, 4], list(range(7)), [5], []):
        got = rows.take(torch.tensor(index, dtype=torch.int64))
        assert got.dtype == torch.float32
        np.testing.assert_array_equal(got.numpy(), X.toarray()[index].reshape(-1, 5).astype(np.float32))


def test_duplicate_entries_add_up_and_the_caller_s_matrix_stays() -> None:
    data, indices, indptr = np.array([1.0, 2.0, 4.0, 8.0]), np.array([3, 1, 3, 0]), np.array([0, 3, 3, 4])
    X = scipy.sparse.csr_matrix((data, indices, indptr), shape=(3, 4))
    rows = Csr(X, CPU)
    np.testing.assert_array_equal(rows.take(torch.arange(3)).numpy(), [[0, 2, 0, 5], [0, 0, 0, 0], [8, 0, 0, 0]])
    assert X.nnz == 4
    np.testing.assert_array_equal(X.indices, indices)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.integers(1, 30), st.integers(1, 8), st.floats(0, 1), st.integers(0, 100))
def test_csr_equals_dense_at_random(n: int, d: int, density: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    X = scipy.sparse.random(n, d, density, format="csr", rng=rng)
    index = torch.tensor(rng.integers(0, n, 11))
    dense = place(X.toarray(), CPU, resident=False)
    assert torch.equal(Csr(X, CPU).take(index), dense.take(index))
    assert fingerprint(Csr(X, CPU)) == fingerprint(dense)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.uint8, np.int64, np.bool_, ">f4"])
def test_every_dtype_becomes_float32(dtype: object) -> None:
    X = (np.random.default_rng(0).random((9, 4)) * 3).astype(dtype)
    for rows in (Host(X, CPU), Resident(X, CPU)):
        got = rows.take(torch.tensor([8, 0, 8]))
        assert got.dtype == torch.float32
        np.testing.assert_array_equal(got.numpy(), X[[8, 0, 8]].astype(np.float32))
        got += 1  # a batch is a copy: writing to it does not reach the data
        np.testing.assert_array_equal(rows.take(torch.tensor([8])).numpy(), X[[8]].astype(np.float32))
    X.setflags(write=False)
    Host(X, CPU).take(torch.tensor([1]))  # read-only arrays neither warn nor fail


def test_a_memory_map_is_read_row_by_row(tmp_path: Path) -> None:
    """400 MB on (sparse) disk; a batch of ten rows may allocate a few kilobytes."""
    path = tmp_path / "big.f4"
    with path.open("wb") as file:
        file.truncate(100_000 * 1000 * 4)
    X = np.memmap(path, np.float32, "r+", shape=(100_000, 1000))
    X[99_999, 7] = 5.0
    rows = place(X, CPU, resident=True)
    assert isinstance(rows, Host)
    assert rows.X is X
    tracemalloc.start()
    got = rows.take(torch.tensor([99_999] + [0] * 9))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10 * 1000 * 4 * 3
    assert float(got[0, 7]) == 5.0
    assert float(got.sum()) == 5.0


@pytest.mark.parametrize("kind", ["array", "csr"])
def test_statistics_are_numpy_s(kind: str) -> None:
    """Over several blocks of rows (of unequal length), with a column far from zero."""
    X = normals(9001, 3) * np.float32([1, 1e-2, 5]) + np.float32([0, 1e3, 0])
    if kind == "csr":
        X[np.random.default_rng(1).random(X.shape) < 0.7] = 0
    got = measured(scipy.sparse.csr_matrix(X) if kind == "csr" else X)
    exact = X.astype(np.float64)
    np.testing.assert_allclose(got.mean, exact.mean(0), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(got.std, exact.std(0), rtol=1e-10)
    np.testing.assert_allclose(got.reach, np.abs(exact - exact.mean(0)).max(0), rtol=1e-12)
    assert (got.low, got.high) == (X.min(), X.max())
    assert got.levels == frozenset()
    assert not got.whole


def test_whole_numbers_stay_whole_only_where_they_are_not_scaled() -> None:
    X = np.repeat(np.arange(9001.0)[:, None], 3, 1)
    assert chosen("none", X).span(measured(X)) == Span(0, 9000, True)
    assert not chosen("standard", X).span(measured(X)).whole
    assert chosen("unit-norm", X).span(measured(X)) == Span(0, math.sqrt(3), False)
    X[-1, -1] += 0.5  # one half, in the last block
    assert not measured(X).whole
    bits = (X > 1).astype(np.uint8)
    assert chosen("auto", bits).span(measured(bits)) == Span(0, 1, True)
    assert chosen("auto", 255 * bits).span(measured(255 * bits)) == Span(0, 1, False)


def test_levels_are_found_only_where_there_are_two() -> None:
    bits = (normals(9000, 2) > 0).astype(np.float32)

    def levels(X: np.ndarray) -> set[float]:
        return set(measured(X).levels)

    assert levels(bits) == {0.0, 1.0}
    assert levels(255 * bits) == {0.0, 255.0}
    assert levels(np.zeros((5, 2))) == {0.0}
    late = bits.copy()
    late[8999, 1] = 0.5  # one grey value, inside the range, in the last block
    assert levels(late) == set()
    late[:] = 0
    late[8999, 1] = 1.0  # the second level, in the last block
    assert levels(late) == {0.0, 1.0}
    late[8998, 1] = 0.5
    assert levels(late) == set()
    assert levels(np.repeat(np.float32([[0.0], [1.0], [2.0]]), 4096, 0)) == set()  # a level a block


def test_fingerprints_tell_data_apart() -> None:
    X = normals(50, 4)
    base = fingerprint(place(X, CPU, resident=False))
    assert base == fingerprint(place(X.copy(), CPU, resident=False)) == fingerprint(Resident(X, CPU))
    changed = X.copy()
    changed[49, 3] += 1e-3
    for other in (changed, X[:49], X[:, :3], X[::-1].copy(), X.reshape(25, 8)):
        assert fingerprint(place(other, CPU, resident=False)) != base


# -- threads ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "cpus"),
    [
        ({}, 64),
        ({"cpu.max": "max 100000"}, 64),
        ({"cpu.max": "200000 100000"}, 2),
        ({"cpu.max": "150000 100000"}, 2),  # a core and a half: two threads
        ({"cpu.max": "5000 100000"}, 1),
        ({"cpu.max": "9900000 100000"}, 64),  # never more than the machine has
        ({"cpu.max": ""}, 64),
        ({"cpu/cpu.cfs_quota_us": "300000", "cpu/cpu.cfs_period_us": "100000"}, 3),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 64),
        ({"cpu/cpu.cfs_quota_us": "300000"}, 64),
        ({"cpu.max": "100000 100000", "cpu/cpu.cfs_quota_us": "300000", "cpu/cpu.cfs_period_us": "100000"}, 1),
    ],
)
def test_the_quota_of_a_container_counts(
    files: dict[str, str], cpus: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """joblib's, on a machine of 64 CPUs whose cgroup has these files (v2, then v1)."""
    of_cgroup(files, tmp_path, monkeypatch)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(64)), raising=False)
    assert cpu_count() == cpus


def of_cgroup(files: dict[str, str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text + "\n")

    def there(path: Any) -> Any:
        return str(path).replace("/sys/fs/cgroup", str(folder)) if isinstance(path, (str, Path)) else path

    exists, opened = os.path.exists, open
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os.path, "exists", lambda path: exists(there(path)))
    monkeypatch.setattr(builtins, "open", lambda path, *more, **options: opened(there(path), *more, **options))
    monkeypatch.delenv("LOKY_MAX_CPU_COUNT", raising=False)


def test_affinity_counts_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of_cgroup({"cpu.max": "800000 100000"}, tmp_path, monkeypatch)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3, 5}, raising=False)
    assert cpu_count() == 2


def test_threads_come_back() -> None:
    before = torch.get_num_threads()
    with threads(before + 1) as count:
        assert count == torch.get_num_threads() == before + 1
    assert torch.get_num_threads() == before

    def fail() -> None:
        with threads(before + 1):
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert torch.get_num_threads() == before
    with threads() as count:
        assert count <= min(before, cpu_count())
