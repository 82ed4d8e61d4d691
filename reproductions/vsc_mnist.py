"""VSC on dynamically binarised MNIST: the true bound at J = 200, alpha = .1.

    python -m reproductions.vsc_mnist --out results/

Settings: hidden 512-512 each side, Bernoulli likelihood, batch 200, 60,000 steps, cosine rate from 1e-3, KL weight
ramped over 10,000 steps, sharpness 50 to 200, three seeds; one stored binarisation of the test set (seed 0, its
checksum is printed). The targets come from our own prototype (one seed: true -ELBO 105.0, 50-sample bound 100.0, 24.4
units drawn): -ELBO at most 105.5 in the mean and 106.5 for each seed, 1,000-sample bound at most 100, at most 26 units
drawn. The papers print no number that could be compared: their likelihood is Gaussian on unit-norm images and their
objective is relaxed. A third party's relaxed figures for alpha .2 and .5 are 119.2 and 111.8.
"""

from __future__ import annotations

import hashlib
import json
import time
from typing import Any

import torch

import sparsevae as sv
from reproductions import jobs

SETTINGS: dict[str, Any] = {
    "steps": 60_000,
    "batch_size": 200,
    "learning_rate": 1e-3,
    "decay": "cosine",
    "kl_warmup": 10_000,
    "binarise": True,
}
BARS = {"elbo_mean": 105.5, "elbo_worst": 106.5, "importance_mean": 100.0, "drawn_mean": 26.0}


def train(
    seed: int, alpha: float, importance: int, rows: int, steps: int, kl_warmup: int, device: str = "auto"
) -> dict[str, Any]:
    """Train one seed and measure it on the stored test set."""
    data = sv.data.load("mnist")
    assert data.X_test is not None
    test = sv.data.binarise(data.X_test, seed=0)[:rows]
    settings = SETTINGS | {"steps": steps, "kl_warmup": kl_warmup}
    training = sv.Training(**settings, seed=seed, device=device, verbose=1)
    est = sv.VSC(200, alpha=alpha, hidden=(512, 512), training=training, **jobs.VSC_AS_PUBLISHED)
    began = time.perf_counter()
    est.fit(data.X)
    trained = time.perf_counter() - began
    report = est.evaluate(test)
    bound = est.importance_bound(test, n_samples=importance)
    return {
        "test_sha256": hashlib.sha256(test.tobytes()).hexdigest()[:16],
        "test_rows": len(test),
        "training_seconds": round(trained, 1),
        "elbo": -report["score"],
        "elbo_standard_error": report["score_standard_error"],
        "importance": -float(bound.bound.mean()),
        "effective_samples_median": float(torch.tensor(bound.effective_samples).median()),
        "nonzeros_drawn": report["nonzeros_drawn"],
        "nonzeros_mode": report["nonzeros_mode"],
        "nonzeros_expected": report["nonzeros_expected"],
        "active_units": report["active_units"],
        "kl": report["kl"],
    }


def verdict(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Measured against the bars; True where met."""
    n = len(results)
    measured = {
        "elbo_mean": sum(r["elbo"] for r in results) / n,
        "elbo_worst": max(r["elbo"] for r in results),
        "importance_mean": sum(r["importance"] for r in results) / n,
        "drawn_mean": sum(r["nonzeros_drawn"] for r in results) / n,
    }
    return {k: {"bar": bar, "measured": measured[k], "met": measured[k] <= bar} for k, bar in BARS.items()}


def main() -> None:
    parser = jobs.options(__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--alpha", type=float, default=0.1)
    parser.add_argument("--importance", type=int, default=1000, help="samples of the importance bound")
    parser.add_argument("--rows", type=int, default=10_000, help="test rows to measure on")
    parser.add_argument("--steps", type=int, default=SETTINGS["steps"])
    args = parser.parse_args()
    warmup = min(SETTINGS["kl_warmup"], args.steps // 6)
    own = {"alpha": args.alpha, "importance": args.importance, "rows": args.rows}
    todo = [{"seed": seed, **own, "steps": args.steps, "kl_warmup": warmup} for seed in args.seeds]
    results = jobs.run(train, todo, args.state or args.out / "state", device=args.device)
    for r in results:
        print(json.dumps(r))
    report = {"results": results, "verdict": verdict(results)}
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "vsc_mnist.json").write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(report["verdict"], indent=1))


if __name__ == "__main__":
    main()
