"""Sparse codes against sparse codes: VSC with its defaults beside dictionary learning with OMP, on Fashion-MNIST.

Both learn from the same training images, have as many units as atoms, and encode the same test images with the same
mean number of non-zeros. OMP takes a whole number of them, so its error and time are read at the numbers below and
above ours and interpolated. Errors are mean squared errors per pixel, pixels in [0, 1]. PCA with as many components,
all of them in use, is the yardstick.
"""

from __future__ import annotations

import math
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from joblib import cpu_count
from sklearn.decomposition import PCA, MiniBatchDictionaryLearning
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

import sparsevae as sv
from benchmarks.report import verdict, write_table

Array = np.ndarray[Any, Any]
SMOKE_STEPS = 1000


def _data(quick: bool) -> sv.data.Dataset:
    """Fashion-MNIST where it is at hand, else the digits inside scikit-learn: a smoke run, announced as such."""
    if quick:
        return sv.data.load("digits")
    try:
        return sv.data.load("fashion-mnist")
    except (FileNotFoundError, ImportError) as error:
        print(f"No Fashion-MNIST here ({str(error).splitlines()[0]}).")
        print("Set SPARSEVAE_DATA to a folder that holds fashion-mnist/. What follows is a smoke run on digits only.")
        return sv.data.load("digits")


def _timed(action: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    return action(), time.perf_counter() - start


def _error(reconstruction: Array, X: Array) -> float:
    return float(np.mean((reconstruction.astype(np.float64) - X) ** 2))


def _dictionary(X: Array, atoms: int, epochs: int) -> MiniBatchDictionaryLearning:
    """alpha=1, the least angle solver and raw pixels did best of what we tried (alpha .3 to 3, centred rows)."""
    return MiniBatchDictionaryLearning(
        atoms,
        alpha=1.0,
        batch_size=256,
        max_iter=epochs,
        tol=0.0,
        max_no_improvement=None,
        transform_algorithm="omp",
        random_state=0,
    ).fit(X)


def _encode(dictionary: MiniBatchDictionaryLearning, X: Array, nonzeros: int) -> Array:
    codes: Array = dictionary.set_params(transform_n_nonzero_coefs=nonzeros).transform(X)
    return codes


def _omp(dictionary: MiniBatchDictionaryLearning, X: Array, nonzeros: int) -> tuple[float, float]:
    """Error and mean non-zeros of OMP with that many non-zeros."""
    codes = _encode(dictionary, X, nonzeros)
    return _error(codes @ dictionary.components_, X), float((codes != 0).sum(1).mean())


def _rates(
    est: sv.VSC, rows: Array, dictionary: MiniBatchDictionaryLearning, X: Array, low: int, share: float, repeats: int
) -> list[tuple[float, float]]:
    """Rows a second of both, in interleaved repeats of about the same length, so that a busy moment meets both alike.

    OMP's time is interpolated as its error is.
    """

    def omp() -> float:
        below, above = (_timed(lambda k=k: _encode(dictionary, X, k))[1] for k in (low, low + 1))
        return below + share * (above - below)

    def vsc(passes: int) -> float:
        return _timed(lambda: [est.transform(rows) for _ in range(passes)])[1] / passes

    vsc(1)  # the first one warms up
    passes = max(1, round(2 * omp() / vsc(1)))
    rates = []
    for _ in range(repeats):
        seconds = vsc(passes)
        rates.append((len(rows) / seconds, len(X) / omp()))
    return rates


def run(device: torch.device, *, quick: bool) -> dict[str, Any]:
    """Fit, encode, decode, compare; returns all of it for the JSON file."""
    data = _data(quick)
    smoke = data.name != "fashion-mnist"
    rows, held_out = np.asarray(data.X), np.asarray(data.X_test)
    training = sv.Training(device=str(device), **({"steps": SMOKE_STEPS, "verbose": 0} if smoke else {}))
    with threadpool_limits(cpu_count()), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", sv.SparsityWarning)
        return _compare(data.name, rows, held_out, sv.VSC(training=training), smoke)


def _compare(name: str, rows: Array, held_out: Array, est: sv.VSC, smoke: bool) -> dict[str, Any]:
    top = float(rows.max())
    X, X_test = (rows / top).astype(np.float32), (held_out / top).astype(np.float32)
    print(f"Coding: VSC() with its defaults on {name}, {len(X)} images to learn from, {len(X_test)} to encode")
    _, seconds = _timed(lambda: est.fit(rows))
    units = est.model_.n_components
    codes = est.transform(held_out)
    mean = codes.nnz / codes.shape[0]
    ours = _error(est.inverse_transform(codes) / top, X_test)

    dictionary, dictionary_seconds = _timed(lambda: _dictionary(X, units, 1 if smoke else 3))
    low = min(max(1, math.floor(mean)), units - 1)
    (below, n_below), (above, n_above) = (_omp(dictionary, X_test, k) for k in (low, low + 1))
    share = (mean - n_below) / (n_above - n_below)
    theirs = below + share * (above - below)
    pca, pca_seconds = _timed(lambda: PCA(units, random_state=0).fit(X))
    yardstick = _error(pca.inverse_transform(pca.transform(X_test)), X_test)

    rates = _rates(est, held_out, dictionary, X_test[:2000], low, share, 9)
    fast, slow = (statistics.median(r) for r in zip(*rates, strict=True))
    times = statistics.median(a / b for a, b in rates)

    def line(
        what: str, nonzeros: float, mse: float, fit_s: float | None = None, rate: float | None = None
    ) -> list[str]:
        cells = [what, f"{nonzeros:.2f}", f"{100 * nonzeros / units:.1f} %", f"{mse:.5f}"]
        return cells + ["" if v is None else f"{v:.0f}" for v in (fit_s, rate)]

    table = [
        line("VSC, defaults", mean, ours, seconds, fast),
        line("dictionary, OMP, interpolated", mean, theirs, dictionary_seconds, slow),
        line(f"dictionary, OMP, k = {low}", n_below, below),
        line(f"dictionary, OMP, k = {low + 1}", n_above, above),
        line(f"PCA, {units} components", units, yardstick, pca_seconds),
    ]
    head = ["code", "non-zeros per row", f"of {units} units", "error per pixel", "fit, s", "encoded rows/s"]
    where = "" if est.training.device == "cpu" else f", VSC on {est.training.device}"
    write_table(f"{name}, test images, {cpu_count()} CPU threads{where}", head, table)
    lower = "VSC" if ours < theirs else "the dictionary with OMP"
    print(f"At equal mean non-zeros {lower} has the lower error: VSC {ours:.5f}, dictionary {theirs:.5f}.")
    result = {
        "data": name,
        "smoke": smoke,
        "units": units,
        "vsc": {"nonzeros": mean, "share": mean / units, "mse": ours, "fit_s": seconds, "rows_per_s": fast},
        "omp": {
            "mse": theirs,
            "fit_s": dictionary_seconds,
            "rows_per_s": slow,
            "brackets": [{"nonzeros": n_below, "mse": below}, {"nonzeros": n_above, "mse": above}],
        },
        "pca": {"mse": yardstick, "fit_s": pca_seconds},
        "rates_per_repeat": rates,
    }
    if smoke:
        print("  A smoke run: no target applies.")
        return result
    result["verdicts"] = [
        verdict("training time of VSC", 180.0, seconds, at_most=True, unit=" s"),
        verdict("units non-zero a row", 25.0, 100 * mean / units, at_most=True, unit=" %"),
        verdict("error of VSC as a share of OMP's (the goal is to be lower)", 1.0, ours / theirs, at_most=True),
        verdict("encoding speed, times OMP", 20.0, times),
    ]
    return result
