"""Sparse codes under a deep decoder: -ELBO on MNIST against the units that are on, beside dense VAEs of few units.

    python -m reproductions.deep_codes --out results/ [--only sparse] [--hidden 1024 1024 --steps 40000]

MNIST dynamically binarised; one stored binarisation of the test set (seed 0). Every model has the same networks. A
dense VAE of k units has k units on in every row: these are the curve. A sparse code is worth having if its bound lies
on the curve at its own mean number of units on, while the data set as a whole uses many more units. `before` is VSC
with random weights and without linear paths, as it was published.

The ELBO is that of all test rows, the importance bound of the first 1,000 with 100 draws per row. Units are used if
they are on in at least min(.5 %, a quarter of the mean share) and at most 90 % of the test rows.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np

import sparsevae as sv
from reproductions import jobs
from sparsevae.metrics.usage import code_usage

BEFORE = {**jobs.VSC_AS_PUBLISHED, "alpha": 0.05}
STEEP = {"gate": "sigmoid", "n_samples": 4}
DENSE = {f"VAE, {k} units": {"model": "VAE", "n_components": k, "n_samples": 4} for k in (4, 6, 8, 12, 16, 24)}
SPARSE: dict[str, dict[str, Any]] = {
    "VSC before": BEFORE,
    "VSC": {},
    "VSC, four draws": {"alpha": 0.03, **STEEP},
    "VSC, 64 patterns": {"alpha": 0.05, "patterns": 64, **STEEP},
    "VSC, 16 subspaces": {"alpha": 0.0625, "patterns": 16, "start": "subspaces", **STEEP},
    "PseudoVSC": {"model": "PseudoVSC", "alpha": 0.05},
    "HSVAE": {"model": "HSVAE"},
}
REPEATED = ("VSC before", "VSC", "VSC, four draws", "VSC, 16 subspaces", "PseudoVSC", "HSVAE")
"""Rows with all seeds; the others have the first."""


def train(
    name: str, seed: int, hidden: list[int], steps: int, settings: dict[str, Any], device: str = "auto"
) -> dict[str, Any]:
    """Train one row with one seed, and measure it on the stored test set."""
    data = sv.data.load("mnist")
    assert data.X_test is not None
    test = sv.data.binarise(data.X_test, seed=0)
    own = {"model": "VSC", "n_components": 200, "n_samples": 1} | settings
    n_samples = own.pop("n_samples")
    training = sv.Training(steps=steps, batch_size=128, n_samples=n_samples, binarise=True, seed=seed, device=device)
    model = getattr(sv, own.pop("model"))(hidden=tuple(hidden), likelihood="bernoulli", training=training, **own)
    began = time.perf_counter()
    model.fit(data.X)
    trained = time.perf_counter() - began
    report = model.evaluate(test)
    Z = model.transform(test)
    usage = code_usage(Z)
    return {
        "name": name,
        "seed": seed,
        "seconds": round(trained, 1),
        "elbo": -report["score"],
        "importance": -float(model.importance_bound(test[:1000], n_samples=100).bound.mean()),
        "on_in_code": report["nonzeros_mode"],
        "drawn": report["nonzeros_drawn"],
        "used": int(usage.used),
        "always_on": int(usage.always_on),
        "empty": usage.empty,
    }


def above_curve(results: list[dict[str, Any]], on: float) -> float:
    """-ELBO of a dense VAE with `on` units, between the measured sizes in a straight line."""
    dense = sorted((r["on_in_code"], r["elbo"]) for r in results if r["name"] in DENSE)
    sizes, bounds = zip(*dense, strict=True)
    return float(np.interp(on, sizes, bounds))


def table(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Means over seeds, with the distance from the dense curve at the row's own number of units on."""
    rows = []
    for name in dict.fromkeys(r["name"] for r in results):
        own = [r for r in results if r["name"] == name]
        mean = {k: float(np.mean([r[k] for r in own])) for k in own[0] if k not in ("name", "seed")}
        curve = above_curve(results, mean["on_in_code"]) if any(r["name"] in DENSE for r in results) else None
        least, most = min(r["elbo"] for r in own), max(r["elbo"] for r in own)
        gap = None if curve is None else mean["elbo"] - curve
        rows.append({"name": name, "seeds": len(own), **mean, "elbo_span": [least, most], "above_curve": gap})
    return rows


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """-ELBO against units on: the dense curve, and every sparse model by its code and by its draws."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    dense = sorted((r["on_in_code"], r["elbo"]) for r in rows if r["name"] in DENSE)
    axes.plot(*zip(*dense, strict=True), "o-", color="0.5", label="VAE of k units, all on")
    for i, r in enumerate(r for r in rows if r["name"] not in DENSE):
        color = f"C{i}"
        axes.plot(r["on_in_code"], r["elbo"], "o", color=color, label=f"{r['name']}: {r['used']:.0f} used")
        axes.plot([r["on_in_code"], r["drawn"]], [r["elbo"]] * 2, "-", color=color, lw=1)
        axes.plot(r["drawn"], r["elbo"], "|", color=color, ms=9)
    axes.set_xlabel("units on per row: in the code (dot), in a draw (bar)")
    axes.set_ylabel("-ELBO, nats per image")
    axes.set_xlim(left=0)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = jobs.options(__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--hidden", type=int, nargs="+", default=[256, 256])
    parser.add_argument("--steps", type=int, default=24_000)
    parser.add_argument("--only", choices=("dense", "sparse"), default=None)
    args = parser.parse_args()
    rows = {"dense": DENSE, "sparse": SPARSE}.get(args.only, {**DENSE, **SPARSE})
    todo = [
        {"name": name, "seed": seed, "hidden": args.hidden, "steps": args.steps, "settings": settings}
        for k, seed in enumerate(args.seeds)
        for name, settings in rows.items()
        if k == 0 or name in REPEATED
    ]
    results = jobs.run(train, todo, args.state or args.out / "state", device=args.device)
    found = table(results)
    for row in found:
        print(json.dumps(row))
    args.out.mkdir(parents=True, exist_ok=True)
    settings = {"hidden": args.hidden, "steps": args.steps, "device": args.device}
    text = json.dumps({"settings": settings, "results": results, "table": found}, indent=1)
    (args.out / "deep_codes.json").write_text(text + "\n")
    if args.only != "sparse":
        draw(found, args.out / "deep_codes.png")


if __name__ == "__main__":
    main()
