"""Inactive units of small VAEs: the tables and figures of "Sparsity in Variational Autoencoders" (Asperti, 2018).

    python -m reproductions.asperti --out results/ --workers 2

Dense 784-256-32-24-16 on MNIST and 784-512-256-64-32-16 on tiles, Gaussian likelihood of one fixed variance. The paper
does not state that variance, and the number of inactive units depends on it, so it is settled first, on seed 0, by the
KL alone: its tables imply 15.8 nats (MNIST) and 11.8 (tiles). Other seeds are then trained at it and counted.
Published: 8 of 16 units inactive on both sets, 3 (MNIST) and 4 (tiles) for the convolutional net; var(mean) + mean
variance of a unit near 1 (.997 in the mean over both tables). A unit is inactive when the variance over the data of its
mean is at most .01.
"""

from __future__ import annotations

import argparse
import json
import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

import sparsevae as sv
from reproductions import jobs

HIDDEN = {"mnist": (256, 32, 24), "tiles": (512, 256, 64, 32)}
TARGET_KL = {"mnist": 15.8, "tiles": 11.8}
PUBLISHED = {("mnist", "dense"): 8, ("tiles", "dense"): 8, ("mnist", "asperti"): 3, ("tiles", "asperti"): 4}
GRID = {"mnist": (0.01, 0.015, 0.022, 0.033, 0.05, 0.08), "tiles": (0.003, 0.006, 0.012, 0.024, 0.048, 0.08)}
BETAS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
INACTIVE = 0.01


def train(
    data: str,
    network: str,
    variance: float,
    seed: int,
    steps: int,
    beta: float = 1.0,
    noise: bool = True,
    device: str = "auto",
    samples: int = 0,
) -> dict[str, Any]:
    """One model and its units, measured on the training rows."""
    X = sv.data.load(data).X
    training = sv.Training(
        steps=steps, batch_size=128, learning_rate=1e-3, seed=seed, device=device, verbose=0, compile=False
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sv.SparsityWarning)
        est = sv.BetaVAE(
            16,
            beta=beta,
            noise=noise,
            hidden=HIDDEN[data] if network == "dense" else (),
            network=network,
            likelihood="fixed-gaussian",
            variance=variance,
            training=training,
        ).fit(X)
    found = units(est, X)
    top = float(X.max())
    found["mse"] = float(np.mean((est.inverse_transform(est.transform(X)) / top - X / top) ** 2))  # pixels in [0, 1]
    if samples:
        found["samples"] = np.round(255 * est.sample(samples) / top).astype(int).clip(0, 255).tolist()
    return found


def units(est: sv.SparseCoder, X: np.ndarray[Any, Any]) -> dict[str, Any]:
    """Per unit: variance of its mean, mean of its variance and KL over the rows; how many are inactive."""
    report = sv.audit(est, X)
    var_mean = np.asarray(report.var_mean)
    inactive = int((var_mean <= INACTIVE).sum())
    return {
        "inactive": inactive,
        "relative_inactive": int((var_mean <= INACTIVE * var_mean.max()).sum()),
        "kl": float(np.sum(report.kl)),
        "var_mean": var_mean.tolist(),
        "mean_variance": np.asarray(report.mean_variance).tolist(),
        "kl_units": np.asarray(report.kl).tolist(),
        "gain_units": np.asarray(report.gain).tolist(),
    }


def calibrate(results: list[dict[str, Any]], target: float) -> float:
    """The variance whose KL is `target`, by straight lines between log variance and KL; looks at nothing else."""
    points = sorted((r["kl"], math.log(r["variance"])) for r in results)
    kls, logs = zip(*points, strict=True)
    if not kls[0] <= target <= kls[-1]:
        raise ValueError(f"the grid's KLs span {kls[0]:.1f} to {kls[-1]:.1f} nats, which does not hold {target}")
    return round(math.exp(float(np.interp(target, kls, logs))), 5)


def law(results: list[dict[str, Any]]) -> dict[str, float]:
    """The variance law on active units: the largest distance of a sum from 1, and the mean of the sums."""
    sums = [a + b for r in results for a, b in zip(r["var_mean"], r["mean_variance"], strict=True) if a > INACTIVE]
    return {"worst": float(np.max(np.abs(np.array(sums) - 1))), "mean": float(np.mean(sums)), "units": len(sums)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--state", type=Path, default=None, help="where finished trainings are kept (out/state)")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--steps", type=int, default=60_000)
    parser.add_argument("--conv-steps", type=int, default=20_000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--parts", nargs="+", default=["dense", "twin", "betas", "conv", "conv-betas"])
    parser.add_argument("--data", nargs="+", default=["mnist", "tiles"])
    args = parser.parse_args()
    state, out = args.state or args.out / "state", args.out
    report: dict[str, Any] = {"torch": torch.__version__, "steps": args.steps, "conv_steps": args.conv_steps}

    def several(todo: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return jobs.run(train, todo, state, workers=args.workers, device=args.device)

    grid = several(
        [
            {"data": d, "network": "dense", "variance": v, "seed": 0, "steps": args.steps}
            for d in args.data
            for v in GRID[d]
        ]
    )
    scale = {d: calibrate([r for r in grid if r["data"] == d], TARGET_KL[d]) for d in args.data}
    report |= {"grid": grid, "variance": scale}
    todo: list[dict[str, Any]] = []
    for d in args.data:
        for network, steps in (("dense", args.steps), ("asperti", args.conv_steps)):
            base = {"data": d, "network": network, "variance": scale[d], "steps": steps}
            if ("dense" if network == "dense" else "conv") in args.parts:
                todo += [{**base, "seed": seed} for seed in args.seeds]
            if network == "dense" and "twin" in args.parts:
                todo.append({**base, "seed": 1, "noise": False})
            if ("betas" if network == "dense" else "conv-betas") in args.parts:
                todo += [{**base, "seed": 1, "beta": b, "samples": 16} for b in BETAS]
    done = several(todo)
    report["runs"] = done
    report["verdict"] = {}
    for d in args.data:
        for network in ("dense", "asperti"):
            plain = [r for r in done if r["data"] == d and r["network"] == network and not r.get("samples")]
            plain = [r for r in plain if r.get("noise", True)]
            if plain:
                report["verdict"][f"{d} {network}"] = {
                    "inactive": [r["inactive"] for r in plain],
                    "published": PUBLISHED[d, network],
                    "kl": [round(r["kl"], 2) for r in plain],
                    "law": law(plain),
                }
        for r in done:
            if r["data"] == d and not r.get("noise", True):
                kept = {k: r[k] for k in ("inactive", "relative_inactive", "var_mean")}
                report["verdict"][f"{d} without noise"] = kept
    out.mkdir(parents=True, exist_ok=True)
    (out / "asperti.json").write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(report["verdict"], indent=1))


if __name__ == "__main__":
    main()
