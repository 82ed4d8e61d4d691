"""Sparse codes with linear decoders at equal mean non-zeros, three players: `python -m benchmarks --only codes`.

- omp: scikit-learn's MiniBatchDictionaryLearning, rows encoded by orthogonal matching pursuit.
- topk: a TopK autoencoder with a linear encoder, and an auxiliary loss for dead units (Gao et al., 2024).
- vsc: VSC with a linear decoder, its mean non-zeros kept at the target; its codes of one pass, and
  refined, with as many non-zeros per row.

All train on the same centred rows and are measured on the same held-out rows, in the units they train on:

- R2: one minus the squared error of decoded rows, relative to that of the mean training row; and R2 with the
  coefficients of the same units refitted by least squares.
- used: units on in at least min(.5 %, a quarter of the mean share) and at most 90 % of held-out rows.
- recall@10, for embeddings: the share of the ten nearest held-out rows (by cosine) that are also nearest by decoded
  rows, and by codes.

Each training is a process of one thread. Finished ones are kept in the folder of `--out`, so that a killed run
continues.

References
----------
L. Gao et al., "Scaling and evaluating sparse autoencoders", 2024.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from joblib import Parallel, cpu_count, delayed
from sklearn.decomposition import MiniBatchDictionaryLearning
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits
from torch import Tensor
from torch.nn import functional as F

import sparsevae as sv
from benchmarks import embeddings
from benchmarks.report import write_table
from reproductions import jobs
from sparsevae.threads import threads

Array = np.ndarray[Any, Any]
HELD_OUT = 4000  # images
PENALTY = 0.07  # of absolute coefficients in dictionary learning, relative to the norm of a row
RATE = 1e-3  # of Adam at the first step; it falls to 0 along a cosine, for both autoencoders
NEIGHBOURS = 10
BATCH = 128


class Data(NamedTuple):
    """Centred rows to train on and held-out ones, (n, D) each, the held-out rows as they were, and what is asked."""

    X: Array
    T: Array
    shift: Array
    scale: Array
    units: int
    targets: tuple[int, ...]
    steps: int

    def original(self, rows: Array) -> Array:
        """Rows in the units of the data set."""
        return rows * self.scale + self.shift


class Code(NamedTuple):
    """Codes of the held-out rows, (n, J), the dictionary (J, D) and output of an empty code (D,) that decode them."""

    name: str
    target: int
    Z: Array
    atoms: Array
    offset: Array
    train_s: float
    rows_per_s: float


# -- data --------------------------------------------------------------------------------------------------------------


def _images(side: int) -> tuple[Array, Array]:
    found = sv.data.load("fashion-mnist")
    X, T = (np.asarray(rows).reshape(-1, 28, 28) for rows in (found.X, found.X_test[:HELD_OUT]))
    step = 28 // side
    small = [rows.reshape(-1, side, step, side, step).mean((2, 4)).reshape(len(rows), -1) for rows in (X, T)]
    return small[0].astype(np.float32), small[1].astype(np.float32)


def _sentences() -> tuple[Array, Array]:
    E = embeddings.dbpedia()[1]
    return E[:4000], E[4000:]


def _digits() -> tuple[Array, Array]:
    X = sv.data.load("digits").X.astype(np.float32)
    return X[:1000], X[1000:1400]


class Source(NamedTuple):
    """Rows of a data set; `columns`: each is divided by its own deviation, else all by one."""

    title: str
    rows: Callable[[], tuple[Array, Array]]
    columns: bool
    units: int
    targets: tuple[int, ...]
    steps: int


SOURCES = {
    "fashion-14": Source("Fashion-MNIST, 14 x 14", lambda: _images(14), True, 256, (4, 8, 16), 10_000),
    "fashion-28": Source("Fashion-MNIST, 28 x 28", lambda: _images(28), False, 256, (4, 8, 16), 10_000),
    "embeddings": Source("sentence embeddings", _sentences, False, 1024, (16, 32), 3_000),
    "digits": Source("digits, a smoke run", _digits, False, 32, (4,), 300),
}


def load(name: str) -> Data:
    """The rows of a source, centred and divided by their deviations."""
    source = SOURCES[name]
    X, T = source.rows()
    shift = X.mean(0)
    scale = X.std(0) if source.columns else np.full(X.shape[1], (X - shift).std(), np.float32)
    scale = np.where(scale > 1e-6, scale, 1).astype(np.float32)
    return Data((X - shift) / scale, (T - shift) / scale, shift, scale, source.units, source.targets, source.steps)


# -- players -----------------------------------------------------------------------------------------------------------


def _timed(action: Callable[[], Any]) -> tuple[Any, float]:
    begin = time.perf_counter()
    return action(), time.perf_counter() - begin


def omp(data: Data, targets: Sequence[int]) -> Iterator[Code]:
    """Dictionary learning by least angles, then orthogonal matching pursuit with each number of non-zeros.

    It sees four rows per step of the other players, since a few rows take it as long as a batch takes them.
    """
    seen = 4 * data.steps
    learner = MiniBatchDictionaryLearning(
        data.units,
        alpha=PENALTY * data.X.shape[1] ** 0.5,
        batch_size=BATCH,
        max_iter=max(1, seen // len(data.X)),
        tol=0.0,
        max_no_improvement=None,
        transform_algorithm="omp",
        random_state=0,
    )
    rows = data.X[np.random.default_rng(0).permutation(len(data.X))[:seen]]
    _, seconds = _timed(lambda: learner.fit(rows))
    for k in targets:
        learner.set_params(transform_n_nonzero_coefs=k)
        Z, encoding = _timed(lambda: learner.transform(data.T))
        yield Code("omp", k, Z, learner.components_, np.zeros_like(data.shift), seconds, len(Z) / encoding)


def topk(data: Data, targets: Sequence[int]) -> Iterator[Code]:
    """A TopK autoencoder: the k largest of max(0, U (x - b) + c) are kept and decoded to W^T z + b.

    Atoms, the rows of W, keep norm 1 and begin as U: random, or rows of the data if there are few of these. Units that
    were off in the last 100 batches reconstruct what the others leave, with a weight of 1/32.
    """
    (k,) = targets
    generator = torch.Generator().manual_seed(0)
    X = torch.from_numpy(data.X)
    few = len(X) < 10 * data.units
    first = X[torch.randperm(len(X), generator=generator)[: data.units]] if few else None
    W = F.normalize(torch.randn(data.units, X.shape[1], generator=generator) if first is None else first)
    U, W = W.clone().requires_grad_(), W.requires_grad_()
    b, c = torch.zeros(X.shape[1], requires_grad=True), torch.zeros(data.units, requires_grad=True)
    optimiser, rate = torch.optim.Adam([U, W, b, c]), sv.Cosine(RATE)
    silent = torch.zeros(data.units)

    def kept(activity: Tensor, n: int) -> Tensor:
        top = activity.relu().topk(n)
        return torch.zeros_like(activity).scatter(-1, top.indices, top.values)

    def train() -> None:
        for step in range(data.steps):
            optimiser.param_groups[0]["lr"] = rate(step, data.steps)
            x = X[torch.randint(len(X), (BATCH,), generator=generator)]
            activity = (x - b) @ U.T + c
            z = kept(activity, k)
            left = x - z @ W - b
            loss = left.square().mean()
            silent.add_(1).masked_fill_((z > 0).any(0), 0)
            dead = silent > 100
            if n := min(int(dead.sum()), X.shape[1] // 2):
                revived = kept(torch.where(dead, activity, 0.0), n) @ W
                loss = loss + (left.detach() - revived).square().mean() / 32
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            with torch.no_grad():
                W.copy_(F.normalize(W))

    _, seconds = _timed(train)
    with torch.no_grad():
        rows = torch.from_numpy(data.T)
        Z, encoding = _timed(lambda: kept((rows - b) @ U.T + c, k))
        yield Code("topk", k, Z.numpy(), W.numpy(), b.numpy(), seconds, len(Z) / encoding)


def vsc(data: Data, targets: Sequence[int]) -> Iterator[Code]:
    """VSC, its KL weight moved until the mean code has k non-zeros; the variance only sets the scale of that weight."""
    (k,) = targets
    settings = sv.Training(
        steps=data.steps,
        batch_size=BATCH,
        learning_rate=RATE,
        device="cpu",
        verbose=0,
        schedules={"kl_z": sv.KeepMean("nonzeros", k, proportional=0.5, integral=0.1)},
    )
    est = sv.VSC(
        data.units,
        alpha=1.3 * k / data.units,
        gate="straight-through-concrete",
        decoder_hidden=(),
        likelihood="fixed-gaussian",
        variance=0.1,
        scale="none",
        training=settings,
    )
    _, seconds = _timed(lambda: est.fit(data.X))
    offset = est.inverse_transform(np.zeros((1, data.units), np.float32))[0]
    for name, refine in {"vsc": False, "vsc, refined": True}.items():
        Z, encoding = _timed(lambda refine=refine: est.transform(data.T, refine=refine))
        yield Code(name, k, Z.toarray(), est.components_, offset, seconds, Z.shape[0] / encoding)


PLAYERS = {"omp": omp, "topk": topk, "vsc": vsc}
ORDER = ["omp", "topk", "vsc", "vsc, refined"]


# -- measures ----------------------------------------------------------------------------------------------------------


def refitted(Z: Array, atoms: Array, rows: Array, block: int = 200) -> Array:
    """Codes with the same units on, (n, J), whose coefficients are those of least squares for `rows`, (n, D)."""
    gram, found = atoms @ atoms.T, np.zeros_like(Z)
    ridge = 1e-6 * float(np.trace(gram)) / len(gram)
    for begin in range(0, len(Z), block):
        on = Z[begin : begin + block] != 0
        n = max(1, int(on.sum(1).max()))
        units = np.argsort(~on, axis=1, kind="stable")[:, :n]  # (B, n): units that are on come first
        kept = np.take_along_axis(on, units, 1)
        normal = gram[units[:, :, None], units[:, None, :]] * (kept[:, :, None] & kept[:, None, :])
        normal += np.eye(n) * np.where(kept, ridge, 1.0)[:, None, :]
        wanted = np.take_along_axis(rows[begin : begin + block] @ atoms.T, units, 1) * kept
        np.put_along_axis(found[begin : begin + block], units, np.linalg.solve(normal, wanted[..., None])[..., 0], 1)
    return found


def nearest(rows: Array, k: int = NEIGHBOURS) -> Array:
    """The k nearest other rows of each, (n, k), by cosine; zero rows are near to none."""
    unit = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    similar = unit @ unit.T
    np.fill_diagonal(similar, -np.inf)
    found: Array = np.argsort(-similar, axis=1, kind="stable")[:, :k]
    return found


def recall(found: Array, wanted: Array) -> float:
    """The mean share of the wanted neighbours that were found; both (n, k)."""
    return float((found[:, :, None] == wanted[:, None, :]).any(2).mean())


def used(Z: Array) -> int:
    """Units on in at least min(.5 %, a quarter of the mean share) and at most 90 % of the rows."""
    share = (Z != 0).mean(0)
    return int(((share >= min(0.005, share.mean() / 4)) & (share <= 0.9)).sum())


def measure(code: Code, data: Data, *, neighbours: bool) -> dict[str, Any]:
    """One row of a table."""
    total = float(np.square(data.T).sum())

    def r2(Z: Array) -> float:
        return 1 - float(np.square(data.T - Z @ code.atoms - code.offset).sum()) / total

    found: dict[str, Any] = {
        "code": code.name,
        "target": code.target,
        "nonzeros": float((code.Z != 0).sum(1).mean()),
        "r2": r2(code.Z),
        "r2_refitted": r2(refitted(code.Z, code.atoms, data.T - code.offset)),
        "used": used(code.Z),
        "train_s": code.train_s,
        "rows_per_s": code.rows_per_s,
    }
    if neighbours:
        wanted = nearest(data.original(data.T))
        decoded = data.original(code.Z @ code.atoms + code.offset)
        found |= {"recall_decoded": recall(nearest(decoded), wanted), "recall_code": recall(nearest(code.Z), wanted)}
    return found


# -- the run -----------------------------------------------------------------------------------------------------------


def train(source: str, player: str, targets: list[int], device: str) -> dict[str, Any]:
    """One training, and a row of the table for each kind of code that it gives."""
    data = load(source)
    with threads(1), threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", sv.SparsityWarning)
        found = list(PLAYERS[player](data, targets))
        return {"rows": [measure(code, data, neighbours=source == "embeddings") for code in found]}


def _one(job: dict[str, Any], folder: Path) -> dict[str, Any]:
    return jobs.run(train, [job], folder, device="cpu")[0]


def run(folder: Path, *, quick: bool) -> dict[str, Any]:
    """Train all players on all data that are here, and print a table for each; returns them for the JSON file."""
    found: dict[str, Any] = {"missing": {}}
    for name, source in SOURCES.items():
        if (name == "digits") != quick:
            continue
        try:
            source.rows()
        except FileNotFoundError as error:
            found["missing"][name] = str(error)
            print(f"{source.title}: left out, {error}")
            continue
        plans = [("omp", list(source.targets)), *((p, [k]) for k in source.targets for p in ("vsc", "topk"))]
        todo = [{"source": name, "player": player, "targets": targets} for player, targets in plans]
        done = Parallel(n_jobs=cpu_count())(delayed(_one)(job, folder) for job in todo)
        rows = sorted((row for job in done for row in job["rows"]), key=lambda r: (r["target"], ORDER.index(r["code"])))
        found[name] = {"title": source.title, "units": source.units, "steps": source.steps, "rows": rows}
        _print(found[name])
    return found


def _print(found: dict[str, Any]) -> None:
    head = {"code": "", "nonzeros": ".2f", "r2": ".3f", "r2_refitted": ".3f", "used": "d"}
    head |= {k: ".3f" for k in ("recall_decoded", "recall_code") if k in found["rows"][0]}
    head |= {"train_s": ".0f", "rows_per_s": ".0f"}
    rows = [[format(row[key], form) for key, form in head.items()] for row in found["rows"]]
    write_table(f"{found['title']}, {found['units']} units", [key.replace("_", " ") for key in head], rows)
