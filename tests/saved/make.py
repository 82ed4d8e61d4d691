"""Make a tiny saved model, to be kept: `python tests/saved/make.py v1-vsc`.

A folder that was released is never made again: future versions must read what old ones wrote. A new format gets a
new folder beside the old ones. Next to the model lie the rows it was shown and what it answered.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import numpy as np
import torch

import sparsevae as sv


def rows() -> np.ndarray:
    rng = np.random.default_rng(0)
    sources = rng.normal(size=(40, 3)) * (rng.random((40, 3)) < 0.6)
    return (20 + 10 * sources @ rng.normal(size=(3, 7)) + rng.normal(size=(40, 7))).astype(np.float32)


def make(name: str) -> None:
    folder = Path(__file__).parent / name
    if folder.exists():
        raise SystemExit(f"{folder} is there already, and kept on purpose; choose another name.")
    warnings.simplefilter("ignore", sv.SparsityWarning)
    torch.set_num_threads(1)
    training = sv.Training(
        steps=400,
        learning_rate=1e-2,
        kl_warmup=0.5,
        schedules={"sharpness": sv.Linear(50.0, 100.0, end=0.5)},
        seed=3,
        verbose=0,
        report_every=200,
    )
    X = rows()
    est = sv.VSC(5, hidden=(6,), alpha=0.25, variance_floor=0.02, training=training).fit(X)
    est.save(folder)
    answers = {"X": X, "codes": est.transform(X).toarray(), "scores": est.score_samples(X)}
    answers |= {"reconstructions": est.inverse_transform(est.transform(X))}
    for what, array in answers.items():
        np.save(folder / f"{what}.npy", array)


if __name__ == "__main__":
    make(sys.argv[1])
