"""MAT on Fashion-MNIST: does the sparse prior with an MMD make codes sparser? (Mathieu et al., 2019, their figure 5)

    python -m reproductions.mat_fashion --out results/

Their setting: images resized to 32 x 32, DCGAN-like networks, 50 units, Laplace likelihood of scale .1, Adam with
AMSGrad, batch 500, 80 epochs, rate 5e-4. (off, MMD weight) = (.8, 100) beside (0, 0). The measure is the mean Hoyer
sparsity of posterior means after each unit is divided by its standard deviation over the test images; the authors
report a rise, in a figure.

Two things differ here: images are padded to 32 x 32 with two black pixels on every side, not resized, and Adam is
plain, without AMSGrad.
"""

from __future__ import annotations

import json
import warnings
from typing import Any

import numpy as np
import torch

import sparsevae as sv
from reproductions import jobs
from sparsevae import metrics

SETTINGS = ((0.0, 0.0), (0.8, 0.0), (0.8, 100.0))


def _images(X: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """28 x 28 -> 32 x 32, two black pixels on every side; rows of 1024."""
    return np.pad(X.reshape(-1, 28, 28), ((0, 0), (2, 2), (2, 2))).reshape(len(X), 1024)


def train(off: float, mmd: float, seed: int, epochs: int, network: str = "mat", device: str = "auto") -> dict[str, Any]:
    data = sv.data.load("fashion-mnist")
    assert data.X_test is not None
    training = sv.Training(
        epochs=epochs, batch_size=500, learning_rate=5e-4, seed=seed, device=device, verbose=0, decay="constant"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sv.SparsityWarning)
        est = sv.MAT(
            50,
            off=off,
            mmd_weight=mmd,
            network=network,
            likelihood="laplace",
            variance=0.02,
            training=training,
        ).fit(_images(data.X))
    Z = est.transform(_images(data.X_test))
    last = est.history_[-1]
    return {
        "hoyer": metrics.average_hoyer(Z),
        "aggregate_hoyer": metrics.aggregate_hoyer(Z),
        "active": int(metrics.active_units(Z).sum()),
        "terms": {k: last[k] for k in ("nll_x", "kl_z", "mmd")},
    }


def main() -> None:
    parser = jobs.options(__doc__)
    parser.add_argument("--epochs", type=int, default=80)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    args = parser.parse_args()
    todo = [
        {"off": off, "mmd": mmd, "seed": seed, "epochs": args.epochs} for off, mmd in SETTINGS for seed in args.seeds
    ]
    results = jobs.run(train, todo, args.state or args.out / "state", device=args.device)
    plain = np.mean([r["hoyer"] for r in results if (r["off"], r["mmd"]) == SETTINGS[0]])
    sparse = np.mean([r["hoyer"] for r in results if (r["off"], r["mmd"]) == SETTINGS[-1]])
    verdict = {"hoyer (0, 0)": float(plain), "hoyer (.8, 100)": float(sparse), "rises": bool(sparse > plain)}
    args.out.mkdir(parents=True, exist_ok=True)
    report = {"torch": torch.__version__, "runs": results, "verdict": verdict}
    (args.out / "mat_fashion.json").write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(verdict, indent=1))


if __name__ == "__main__":
    main()
