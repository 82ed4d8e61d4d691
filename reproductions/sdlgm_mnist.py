"""SDLGM on MNIST: the published objective, bounds of the same models with hard codes, and our best bounds.

    python -m reproductions.sdlgm_mnist --out results/

The paper's networks (784-512-384-256-200, gate net 784-256-64, mirrored), K = 200, L0 = 40, batch 100, Adam 1e-3.

1. Paper mode: relaxed draws, learned temperatures without bounds, the printed KL, 10,000 iterations, ten seeds. The
   paper names no binarisation, so both are run, of the training and of the test set: one stored stochastic draw (seed
   0), and pixels above one half. Published: 99.58 for the training objective averaged over the last 200 iterations
   (`train_relaxed`, the mean of the ten) and 99.05 on test data. Beside them the objective on 10,000 training images
   after the last iteration (`relaxed_train`) and what the paper does not print: the hard one-sample bound and the hard
   1,000-sample bound of the same models. Weights and time per step with 0, 1 and 2 shared layers, and of a
   Gumbel-softmax VAE with 200 units and the same networks. Published: .013 s per step against .009 s, total costs that
   "would be comparable" since it takes a tenth of the steps, and a "largely" reduced number of parameters.
2. Hard codes: hard draws in every number, dynamic binarisation, the same networks. Targets: one-sample -ELBO at most
   130 for counts, 118 for distinct features. Goals beyond: 112 and a 1,000-sample bound of 105; 101.5; 99.05. What else
   was tried has a line in TRIES.
"""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np

import sparsevae as sv
from reproductions import jobs
from reproductions.stack import fit_together

NETWORKS: dict[str, Any] = {"hidden": (512, 384, 256), "gate_hidden": (256, 64), "cap": 40}
PUBLISHED = {"train": 99.58, "test": 99.05}
PUBLISHED_SECONDS = (0.013, 0.009)  # a step of SDLGM, and of Gumbel-softmax
PAPER: dict[str, Any] = {"gradient": "paper", "tau": "learned", "tau_z": "learned", "tau_bounds": None, "kl": "paper"}
HONEST: dict[str, dict[str, Any]] = {
    "counts": {"features": "counts", "gradient": "rloo", "samples": 4, "alpha": 0.5},
    "distinct": {"features": "distinct", "gradient": "rloo", "samples": 4, "alpha": 0.5},
}
BARS = {"counts": 130.0, "distinct": 118.0}
TRIES: list[dict[str, Any]] = [  # on top of HONEST
    {"name": "distinct", "learned_prior": True},
    {"name": "distinct", "samples": 8, "learned_prior": True},
]

BINARISE: dict[str, Any] = {
    "stochastic": lambda X: sv.data.binarise(X, seed=0),
    "threshold": lambda X: (X > 127).astype(np.uint8),
}


def _test(rows: int, binarisation: str = "stochastic") -> Any:
    data = sv.data.load("mnist")
    assert data.X_test is not None
    return BINARISE[binarisation](data.X_test)[:rows]


def three(est: Any, test: Any, whole: bool) -> dict[str, Any]:
    """The relaxed objective and both hard bounds, as -nats; counts of units; temperatures.

    The 1,000-sample bound is of the first 1,000 rows, or of all of them.
    """
    report = est.evaluate(test)
    if whole:
        report |= {"importance_bound": float(np.mean(est.importance_bound(test, n_samples=1000).bound))}
    found = {
        "relaxed": -report["relaxed_objective"],
        "hard_1": -report["score"],
        "hard_1000": -report["importance_bound"],
        "importance_rows": len(test) if whole else report["importance_rows"],
        "drawn": report["nonzeros_drawn"],
        "mode": report["nonzeros_mode"],
        "kl": report["kl"],
        "most_on": float(est.transform(test).sum(1).max()),
    }
    return found | (est.temperatures_ if isinstance(est, sv.SDLGM) else {})


def paper(
    seeds: list[int], steps: int, rows: int, binarisation: str = "stochastic", device: str = "auto"
) -> dict[str, Any]:
    """Paper mode: several seeds as one."""
    X = BINARISE[binarisation](sv.data.load("mnist").X)
    group = []
    for seed in seeds:
        training = sv.Training(
            steps=steps,
            batch_size=100,
            learning_rate=1e-3,
            decay="constant",
            report_every=200,
            seed=seed,
            device=device,
            verbose=0,
            compile=False,
        )
        group.append(sv.SDLGM(200, **NETWORKS, **PAPER, training=training))
    fit_together(group, X)
    test = _test(rows, binarisation)
    train = group[0].history_[-1]["loss"]  # the mean over seeds and over the last 200 iterations
    return {
        "train_relaxed": train,
        "runs": [
            {"seed": s, "relaxed_train": -float(m.relaxed_objective(X[:rows]).mean()), **three(m, test, whole=False)}
            for s, m in zip(seeds, group, strict=True)
        ],
    }


def honest(name: str, seed: int, steps: int, rows: int, device: str = "auto", **changes: Any) -> dict[str, Any]:
    """One honest model, hard draws throughout."""
    training = sv.Training(
        steps=steps,
        batch_size=100,
        learning_rate=1e-3,
        kl_warmup=0.1,
        binarise=True,
        seed=seed,
        device=device,
        verbose=0,
    )
    est = sv.SDLGM(200, **NETWORKS, **(HONEST[name] | changes), training=training)
    began = time.perf_counter()
    est.fit(sv.data.load("mnist").X)
    return {"training_seconds": round(time.perf_counter() - began, 1), **three(est, _test(rows), whole=True)}


def speed(steps: int = 2000, device: str = "auto") -> dict[str, Any]:
    """Weights and time a step with and without shared layers, and of a Gumbel-softmax VAE with the same networks."""
    X = sv.data.binarise(sv.data.load("mnist").X[:20_000], seed=0)

    def measure(est: Any) -> dict[str, float]:
        est.set_params(training=sv.Training(steps=20, batch_size=100, device=device, verbose=0, compile=False)).fit(X)
        times = []
        for n in (steps // 2, steps):
            est.set_params(training__steps=n)
            began = time.perf_counter()
            est.fit(X)
            times.append(time.perf_counter() - began)
        weights = sum(p.numel() for p in est.model_.parameters() if p.requires_grad)
        return {"weights": weights, "milliseconds": 1000 * (times[1] - times[0]) / (steps - steps // 2)}

    found = {f"{k} shared": measure(sv.SDLGM(200, **NETWORKS, **PAPER, shared_layers=k)) for k in (0, 1, 2)}
    own = {"hidden": NETWORKS["hidden"], "gradient": "concrete"}
    found["gumbel-softmax, 200 bits"] = measure(sv.DiscreteVAE(200, **own))
    found["gumbel-softmax, 20 x 10"] = measure(sv.DiscreteVAE(200, categories=10, **own))
    return found


def cost(found: dict[str, Any]) -> dict[str, Any]:
    """Time per step and weights of SDLGM over those of Gumbel-softmax, beside the published ratio of times."""
    measured: dict[str, Any] = {}
    for name in (k for k in found if k.endswith("shared")):
        measured[name] = {
            other: {key: found[name][key] / found[other][key] for key in ("milliseconds", "weights")}
            for other in found
            if other.startswith("gumbel")
        }
    slower, faster = PUBLISHED_SECONDS
    plain = list(measured["0 shared"].values())
    return {
        "times Gumbel-softmax": measured,
        "published time": slower / faster,
        "no slower than published": all(r["milliseconds"] <= slower / faster for r in plain),
        "fewer weights, as published": all(r["weights"] < 1 for r in plain),
    }


def main() -> None:
    parser = jobs.options(__doc__)
    parser.add_argument("--only", nargs="+", default=["paper", "speed", *HONEST, "tries"])
    parser.add_argument("--seeds", type=int, default=10, help="of paper mode")
    parser.add_argument("--steps", type=int, default=10_000, help="of paper mode")
    parser.add_argument("--honest-steps", type=int, default=60_000)
    parser.add_argument("--rows", type=int, default=10_000, help="test rows")
    args = parser.parse_args()
    state = args.state or args.out / "state"
    report: dict[str, Any] = {"published": PUBLISHED}
    for binarisation in BINARISE if "paper" in args.only else ():
        own = {} if binarisation == "stochastic" else {"binarisation": binarisation}
        job = {"seeds": list(range(args.seeds)), "steps": args.steps, "rows": args.rows, **own}
        found = jobs.run(paper, [job], state, device=args.device)[0]
        numbers = {
            k: [r[k] for r in found["runs"]]
            for k in ("relaxed_train", "relaxed", "hard_1", "hard_1000", "mode", "tau", "tau_z")
        }
        summary = {k: [float(np.mean(v)), float(np.std(v, ddof=1))] for k, v in numbers.items()}
        report[f"paper, {binarisation}"] = {
            **{k: found[k] for k in ("steps", "rows", "train_relaxed", "device", "torch")},
            "mean and deviation": summary,
            "runs": found["runs"],
        }
    if "speed" in args.only:
        found = jobs.run(speed, [{"steps": 2000}], state, device=args.device)[0]
        report["speed"] = found | {"verdict": cost(found)}
    settings = {"seed": 0, "steps": args.honest_steps, "rows": args.rows}
    for name in (n for n in HONEST if n in args.only):
        found = jobs.run(honest, [{"name": name, **settings}], state, device=args.device)[0]
        report[name] = found | {"bar": BARS[name], "met": found["hard_1"] <= BARS[name] and found["most_on"] <= 40}
    if "tries" in args.only:
        report["tries"] = jobs.run(honest, [{**settings, **own} for own in TRIES], state, device=args.device)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "sdlgm_mnist.json").write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps({k: v for k, v in report.items() if k != "runs"}, indent=1))


if __name__ == "__main__":
    main()
