"""What `Training()` should mean: VSC() on ten sets of data, with its defaults and beside them what else they might be.

Each set is split in three quarters to learn from and one to judge. Where there are three classes or more, the last is
left out of training, and judges how well low scores find what is new. A set that is not at hand is skipped.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn import datasets
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split

import sparsevae as sv
from benchmarks.report import write_table

Array = np.ndarray[Any, Any]
EMBEDDINGS = Path("runs/embeddings.npz")
"""Embeddings of 5,000 sentences: E (n, D), and the topic of each, lab (n,)."""


class Labelled(NamedTuple):
    """Rows and one class per row; None: there are none."""

    X: Array
    y: Array | None


def _table(name: str) -> Callable[[], Labelled]:
    def load() -> Labelled:
        X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
        return Labelled(X, None if name == "diabetes" else y)

    return load


def _labels(name: str) -> Callable[[], Labelled]:
    def load() -> Labelled:
        """A set in Mulan's format, with the label that is nearest to one row in two as the class."""
        data = sv.data.load(name)
        y = np.asarray(data.y)
        return Labelled(np.asarray(data.X), y[:, np.abs(y.mean(0) - 0.5).argmin()].astype(int))

    return load


def _images(name: str) -> Callable[[], Labelled]:
    def load() -> Labelled:
        """5,000 training images at half their size, 14 x 14."""
        data = sv.data.load(name)
        some = np.random.default_rng(0).permutation(len(data.X))[:5000]
        small = np.asarray(data.X)[some].reshape(-1, 14, 2, 14, 2).mean((2, 4)).reshape(-1, 196)
        return Labelled((small / small.max()).astype(np.float32), np.asarray(data.y)[some])

    return load


def _embeddings() -> Labelled:
    with np.load(EMBEDDINGS) as found:
        return Labelled(found["E"], found["lab"])


SETS: dict[str, Callable[[], Labelled]] = {
    **{name: _table(name) for name in ("iris", "wine", "diabetes", "breast_cancer", "digits")},
    **{name: _labels(name) for name in ("emotions", "birds")},
    **{name: _images(name) for name in ("mnist", "fashion-mnist")},
    "embeddings": _embeddings,
}
OLD, NEW, COLUMNS = "10,000 steps", "defaults", "defaults, column-gaussian"
PLAYERS: dict[str, dict[str, Any]] = {
    OLD: {"training": {"steps": 10_000}},
    NEW: {},
    COLUMNS: {"likelihood": "column-gaussian"},
}
SMOKE_STEPS = 20


def _coder(device: torch.device, quick: bool, player: dict[str, Any]) -> sv.VSC:
    training = {"device": str(device), "verbose": 0, **player.get("training", {})}
    training |= {"steps": SMOKE_STEPS} if quick else {}
    return sv.VSC(**player | {"training": sv.Training(**training)})


def judge(est: sv.VSC, train: Labelled, test: Labelled, new: Array) -> dict[str, Any]:
    """Fit on the rows of `train`; numbers on those of `test`, and how well scores tell them from the rows `new`."""
    start = time.perf_counter()
    est.fit(train.X)
    seconds = time.perf_counter() - start
    scores = est.score_samples(test.X)
    Z, scaling = est.transform(test.X), est.scaling_
    pair = (torch.as_tensor(np.asarray(x, np.float32)) for x in (test.X, est.inverse_transform(Z)))
    target, made = (scaling(x).numpy() for x in pair)
    found = {
        "seconds": seconds,
        "steps": est.n_steps_,
        "columns": train.X.shape[1],
        "rows": len(train.X),
        "likelihood": est.likelihood_,
        "scaling": scaling.name,
        "bound": float(scores.mean()),
        "bound_train": est.score(train.X),
        "r2": float(1 - np.square(made - target).sum() / np.square(target - target.mean(0)).sum()),
        "nonzeros": Z.nnz / Z.shape[0],
        "empty": float((Z.getnnz(1) == 0).mean()),
        "active_units": est.history_[-1]["active_units"],
    }
    if train.y is not None and test.y is not None and len(np.unique(train.y)) > 1:
        found["probe"] = sv.metrics.linear_probe(est.transform(train.X), train.y, Z, test.y)
    if len(new):
        both = np.r_[scores, est.score_samples(new)]
        found["auroc"] = float(roc_auc_score(np.r_[np.zeros(len(scores)), np.ones(len(new))], -both))
    return found


def compare(data: Labelled, coder: Callable[[], sv.VSC]) -> dict[str, Any]:
    """The numbers of one player on one set."""
    rows = np.arange(len(data.X))
    few = None if data.y is None or np.unique(data.y, return_counts=True)[1].min() < 2 else data.y
    train, test = train_test_split(rows, test_size=0.25, random_state=0, stratify=few)

    def of(own: Array) -> Labelled:
        return Labelled(data.X[own], None if data.y is None else data.y[own])

    if data.y is None or len(np.unique(data.y)) < 3:
        return judge(coder(), of(train), of(test), data.X[:0])
    odd = data.y == np.unique(data.y)[-1]
    return judge(coder(), of(train[~odd[train]]), of(test[~odd[test]]), data.X[test[odd[test]]])


def run(device: torch.device, *, quick: bool) -> dict[str, Any]:
    """All players on all sets that are at hand; returns the numbers for the JSON file."""
    found: dict[str, Any] = {}
    for name, load in SETS.items():
        try:
            data = load()
        except (FileNotFoundError, ImportError) as error:
            print(f"{name} is skipped: {str(error).splitlines()[0]}")
            continue
        for player, settings in PLAYERS.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                one = compare(data, lambda settings=settings: _coder(device, quick, settings))
            found.setdefault(name, {})[player] = one
            print(f"{name}, {player}: {one['bound']:.2f} nats, {one['steps']} steps, {one['seconds']:.1f} s")
    head = ["data", "rows", "columns", "settings", "steps", "s", "bound", "on train", "R2", "on", "probe", "AUROC"]
    table = []
    for name, players in found.items():
        for player, r in players.items():
            cells = [f"{r[k]:.3f}" if k in r else "" for k in ("probe", "auroc")]
            numbers = [f"{r['seconds']:.0f}", *(f"{r[k]:.1f}" for k in ("bound", "bound_train")), f"{r['r2']:.3f}"]
            table.append([name, *map(str, (r["rows"], r["columns"])), player, str(r["steps"]), *numbers])
            table[-1] += [f"{r['nonzeros']:.1f}", *cells]
    write_table("VSC() on rows that it did not see", head, table)
    return found
