"""A second stage against implausible samples: VSC on Fashion-MNIST (ICLR, figure 12).

    python -m reproductions.second_stage --out results/

The paper shows ancestral samples of a VSC with alpha = .1 that mix features no garment has together, and prints no
number. Here a classifier of the real images judges: a sample is called implausible when its largest class probability
is below that of 95 % of the real test images. Three sets are judged by the same threshold: reconstructions of test
images from drawn codes (what the decoder can do at best), ancestral samples, and samples through the second stage.
Two figures show whether a stage only avoids rare images: the effective number of classes, and the number of units on.

The claim: with the second stage the share of implausible samples is lower, for every seed, by more than three standard
errors. Also reported: which part of the excess over reconstructions disappears.
Both grids of samples are written as pictures, since the confidence of a classifier does not show all faults.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier

import sparsevae as sv
from reproductions import jobs
from sparsevae.analysis.second_stage import second_stage

SETTINGS: dict[str, Any] = {
    "n_components": 200,
    "alpha": 0.1,
    "hidden": (512, 512),
    "likelihood": "bernoulli",
}
QUANTILE = 0.05  # of the real test images that the judge itself would call implausible
BAR = 3.0  # standard errors of the difference


def judge(X: np.ndarray, y: np.ndarray, epochs: int) -> MLPClassifier:
    """A small classifier of real images."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the number of passes is chosen, not a limit
        return MLPClassifier((256,), max_iter=epochs, batch_size=128, random_state=0).fit(X / 255.0, y)


def confidence(model: MLPClassifier, X: np.ndarray) -> np.ndarray:
    """The largest class probability of every row."""
    largest: np.ndarray = model.predict_proba(X / 255.0).max(1)
    return largest


def spread(model: MLPClassifier, X: np.ndarray) -> float:
    """Effective number of classes among the rows, exp of the entropy: a stage that lost some would show here."""
    share = np.bincount(model.predict(X / 255.0), minlength=10) / len(X)
    return float(np.exp(-np.sum(share[share > 0] * np.log(share[share > 0]))))


def run(seed: int, args: argparse.Namespace, data: Any, model: MLPClassifier) -> dict[str, Any]:
    """Train both stages with one seed, and judge their samples."""
    X, test = data.X[: args.rows], data.X_test[: args.samples]
    common: dict[str, Any] = {"seed": seed, "device": args.device, "verbose": 1}
    settings = (
        SETTINGS
        | jobs.VSC_AS_PUBLISHED
        | {"n_components": args.units, "hidden": tuple(args.hidden), "alpha": args.alpha}
    )
    began = time.perf_counter()
    est = sv.VSC(**settings, training=sv.Training(steps=args.steps, kl_warmup=1 / 6, learning_rate=1e-3, **common))
    est.fit(X)
    middle = time.perf_counter()
    training = sv.Training(steps=args.second_steps, learning_rate=1e-3, kl_warmup=0.2, **common)
    stage = second_stage(est, X, training=training)
    ended = time.perf_counter()
    codes = est.draw_codes(test, seed=seed)[0]
    threshold = float(np.quantile(confidence(model, data.X_test), QUANTILE))
    sets = {
        "reconstructions": est.inverse_transform(codes),
        "ancestral": est.sample(args.samples, seed=seed),
        "second_stage": est.sample(args.samples, seed=seed, second_stage=stage),
    }
    for name, rows in sets.items():
        picture(rows[:100], args.out / f"second_stage_{name}_{seed}.png")
    implausible = {name: float((confidence(model, rows) < threshold).mean()) for name, rows in sets.items()}
    return {
        "seed": seed,
        "device": str(torch.cuda.get_device_name() if est._device().type == "cuda" else "cpu"),
        "torch": torch.__version__,
        "settings": {k: list(v) if isinstance(v, tuple) else v for k, v in settings.items()},
        "steps": [args.steps, args.second_steps],
        "training_rows": len(X),
        "training_seconds": [round(middle - began, 1), round(ended - middle, 1)],
        "judge_accuracy": float(model.score(data.X_test / 255.0, data.y_test)),
        "threshold": threshold,
        "samples": args.samples,
        "implausible": implausible,
        "standard_error": {k: float(np.sqrt(p * (1 - p) / args.samples)) for k, p in implausible.items()},
        "median_confidence": {name: float(np.median(confidence(model, rows))) for name, rows in sets.items()},
        "effective_classes": {name: spread(model, rows) for name, rows in sets.items()},
        "units_on": {
            "posterior": float((codes != 0).sum(1).mean()),
            "prior": args.alpha * args.units,
            "second_stage": float((stage.sample(args.samples, seed=seed, noise=True) != 0).sum(1).mean()),
        },
        "second_stage_score": stage.score(codes),
        "errors_down": _errors_down(implausible, args.samples),
        "excess_left": (implausible["second_stage"] - implausible["reconstructions"])
        / max(implausible["ancestral"] - implausible["reconstructions"], 1 / args.samples),
    }


def _errors_down(implausible: dict[str, float], samples: int) -> float:
    """How far the share falls, in standard errors of the difference of two independent shares."""
    before, after = implausible["ancestral"], implausible["second_stage"]
    variance = (before * (1 - before) + after * (1 - after)) / samples
    return float((before - after) / np.sqrt(max(variance, 1e-12)))


def picture(rows: np.ndarray, path: Path) -> None:
    """A hundred images in a square, ink on paper."""
    from matplotlib.image import imsave

    grid = rows.reshape(-1, 10, 28, 28).transpose(0, 2, 1, 3).reshape(-1, 280)
    path.parent.mkdir(parents=True, exist_ok=True)
    imsave(path, 255 - grid, cmap="gray", vmin=0, vmax=255)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=20_000, help="steps of the VSC")
    parser.add_argument("--second-steps", type=int, default=20_000, help="steps of the second stage")
    parser.add_argument("--rows", type=int, default=60_000, help="training rows")
    parser.add_argument("--samples", type=int, default=10_000, help="samples to judge")
    parser.add_argument("--units", type=int, default=SETTINGS["n_components"])
    parser.add_argument("--hidden", type=int, nargs="*", default=list(SETTINGS["hidden"]))
    parser.add_argument("--alpha", type=float, default=SETTINGS["alpha"])
    parser.add_argument("--judge-epochs", type=int, default=20)
    parser.add_argument("--device", default="auto")
    args = parser.parse_args()
    data = sv.data.load("fashion-mnist")
    model = judge(data.X[: args.rows], data.y[: args.rows], args.judge_epochs)
    results = []
    for seed in args.seeds:
        results.append(run(seed, args, data, model))
        print(json.dumps(results[-1]), flush=True)
    least = min(r["errors_down"] for r in results)
    report = {
        "results": results,
        "verdict": {"standard errors down": {"bar": BAR, "least": least, "met": least >= BAR}},
    }
    (args.out / "second_stage.json").write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(report["verdict"], indent=1))


if __name__ == "__main__":
    main()
