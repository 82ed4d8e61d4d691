"""Make tiny saved models, one of every class, to be kept: `python tests/saved/make.py v2-vsc v2-hsvae ...`.

A folder that was released is never made again: future versions must read what old ones wrote. A new format gets new
folders beside the old ones. Next to each model lie the rows it was shown and what it answered.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

import sparsevae as sv

TEXTS = np.array(["a red cat", "the blue dog sees a red cat", "the cat sleeps", "where is the dog now"] * 8)
ANSWERS = {
    "codes": "transform",
    "scores": "score_samples",
    "predictions": "predict",
    "probabilities": "predict_proba",
}
"""Files beside a model, and the methods that gave them; `reconstructions` are of the codes."""


def rows() -> np.ndarray:
    rng = np.random.default_rng(0)
    sources = rng.normal(size=(40, 3)) * (rng.random((40, 3)) < 0.6)
    return (20 + 10 * sources @ rng.normal(size=(3, 7)) + rng.normal(size=(40, 7))).astype(np.float32)


def training(**more: Any) -> sv.Training:
    return sv.Training(**{"steps": 60, "learning_rate": 1e-2, "seed": 3, "verbose": 0, "report_every": 20} | more)


def build(name: str) -> tuple[Any, Any, Any]:
    """The estimator of that name, v<format>-<model>, its X, and its y or None."""
    X = rows()
    bits, labels = (X > 20).astype(np.uint8), (X[:, :3] > 20).astype(int)
    counts = (X[:, :3] // 20).clip(0, 2).astype(int)
    plan = {"sharpness": sv.Linear(50.0, 100.0, end=0.5)}
    vsc = training(steps=400, kl_warmup=0.5, schedules=plan, report_every=200)
    short: dict[str, Any] = {"hidden": (6,), "training": training()}
    longer: dict[str, Any] = {"hidden": (6,), "training": training(steps=500, learning_rate=3e-2, report_every=250)}
    texts: dict[str, Any] = short | {"text": sv.Text(embedding=4)}
    made: dict[str, tuple[Any, Any, Any]] = {
        "vsc": (sv.VSC(5, hidden=(6,), alpha=0.25, gate="sigmoid", variance_floor=0.02, training=vsc), X, None),
        "vae": (sv.VAE(4, **short), X, None),
        "beta-vae": (sv.BetaVAE(4, beta=2.0, likelihood="laplace", **short), X, None),
        "beta-tcvae": (sv.BetaTCVAE(4, **short), X, None),
        "capacity-vae": (sv.CapacityVAE(4, capacity=3.0, ramp=20, scale="unit-norm", **short), X, None),
        "mat": (sv.MAT(4, **short), X, None),
        "pseudo-vsc": (sv.PseudoVSC(5, pseudo_inputs=3, kl_z=0.1, **longer), X, None),
        "hsvae": (sv.HSVAE(5, alpha=1.0, beta=2.0, **short), X, None),
        "hsvae-texts": (sv.HSVAE(5, **texts), TEXTS, None),
        "sdlgm": (sv.SDLGM(6, cap=3, **longer), X, None),
        "sdlgm-distinct": (sv.SDLGM(6, cap=3, features="distinct", learned_prior=True, **longer), X, None),
        "sdlgm-paper": (sv.SDLGM(6, cap=3, gradient="paper", tau="learned", **longer), X, None),
        "discrete-vae": (sv.DiscreteVAE(6, categories=3, **short), bits, None),
        "sdlgm-classifier": (sv.SDLGMClassifier(threshold=0.5, **short), X, labels),
        "sdlgm-classifier-con": (
            sv.SDLGMClassifier(variant="con", free_features=4, threshold=0.5, **short),
            X,
            labels,
        ),
        "sdlgm-counter": (sv.SDLGMCounter(cap=6, **short), X, counts),
        "code-classifier": (sv.CodeClassifier(4, **texts), TEXTS, np.arange(len(TEXTS)) % 4),
    }
    return made[name.partition("-")[2]]


def dense(answer: Any) -> np.ndarray:
    return np.asarray(answer.toarray() if hasattr(answer, "toarray") else answer)


def make(name: str) -> None:
    folder = Path(__file__).parent / name
    if folder.exists():
        raise SystemExit(f"{folder} is there already, and kept on purpose; choose another name.")
    warnings.simplefilter("ignore", sv.SparsityWarning)
    torch.set_num_threads(1)
    est, X, y = build(name)
    est.fit(X) if y is None else est.fit(X, y)
    est.save(folder)
    answers = {"X": X} | {k: dense(getattr(est, how)(X)) for k, how in ANSWERS.items() if hasattr(est, how)}
    if hasattr(est, "inverse_transform"):
        answers["reconstructions"] = dense(est.inverse_transform(est.transform(X)))
    if y is not None:
        answers["y"] = y
    for what, array in answers.items():
        np.save(folder / f"{what}.npy", array)


if __name__ == "__main__":
    for wanted in sys.argv[1:]:
        make(wanted)
