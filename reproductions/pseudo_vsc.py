"""A learned prior against a fixed one: PseudoVSC and VSC on dynamically binarised Fashion-MNIST, alpha .01.

    python -m reproductions.pseudo_vsc --out results/

First the paper's selection function: the share of the KL that it lets through at the start, beside ours (the published
form, sigmoid(60 (w - 1/2)) of weights that sum to 1, switches the prior off for 20 pseudo-inputs). Then the true bound
of PseudoVSC, whose prior is the mixture over its pseudo-inputs, beside that of VSC with alpha tuned until both draw the
same number of units within 5 %, three seeds, on one stored binarisation of the test set. Equal draws are not equal
codes: VSC draws many units that its codes do not have, so `units in a code` is reported too, and `tuning` has VSC at
other alphas. The printed selection, the authors' selection and a longer slab warm-up have one run each (`variants`).
"""

from __future__ import annotations

import json
import math
import warnings
from typing import Any

import numpy as np
import torch

import sparsevae as sv
from reproductions import jobs
from reproductions.stack import fit_together
from sparsevae.distributions.kl import divergence

ALPHA = 0.01
SLAB_WARMUP = [0.0, 0.02]
TUNE = (0.005, 0.01, 0.02, 0.04, 0.08, 0.16)


def _data(rows: int) -> tuple[Any, Any]:
    data = sv.data.load("fashion-mnist")
    assert data.X_test is not None
    return data.X, sv.data.binarise(data.X_test, seed=0)[:rows]


def train(
    model: str, steps: int, members: list[dict[str, Any]], rows: int = 10_000, device: str = "auto"
) -> dict[str, Any]:
    """Models {alpha, seed, selection, slab_warmup} trained as one (with one selection and warm-up); bounds, counts."""
    X, test = _data(rows)

    def estimator(seed: int, **own: Any) -> sv.VSC:
        training = sv.Training(
            steps=steps,
            batch_size=200,
            learning_rate=1e-3,
            kl_warmup=1 / 6,
            binarise=True,
            seed=seed,
            device=device,
            verbose=0,
            compile=False,
        )
        own |= jobs.VSC_AS_PUBLISHED if model == "VSC" else {}
        est: sv.VSC = getattr(sv, model)(60, hidden=(512, 512), training=training, **own)
        return est

    group = [estimator(**m) for m in members]
    fit_together(group, X)
    return {"runs": [{**m, **look(est, test)} for m, est in zip(members, group, strict=True)]}


def look(est: sv.VSC, test: Any) -> dict[str, Any]:
    """The true bound and the counts on the stored binarisation."""
    report = est.evaluate(test)
    bound = est.importance_bound(test[:1000], n_samples=100).bound
    kept = (
        "score",
        "score_standard_error",
        "nonzeros_drawn",
        "nonzeros_mode",
        "nonzeros_expected",
        "active_units",
        "kl",
    )
    found = {k: report[k] for k in kept} | {"importance_100_on_1000": float(np.mean(bound))}
    if isinstance(est, sv.PseudoVSC):
        rho = est.model_.prior.rho
        found["inputs_in_use"] = float(torch.exp(-(rho * rho.log()).sum()))
    return found


def selection_at_start(selection: str, rows: int = 500) -> dict[str, float]:
    """Before the first step: the sum of the selection weights, and the gradient of the KL that reaches the encoder."""
    X, _ = _data(1)
    est = sv.PseudoVSC(
        60,
        alpha=ALPHA,
        hidden=(512, 512),
        selection=selection,
        training=sv.Training(steps=1, learning_rate=1e-12, verbose=0),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sv.SparsityWarning)
        est.set_params(training__binarise=True, training__device="cpu").fit(X[:2000])
    x = est.scaling_(torch.tensor(X[:rows], dtype=torch.float32))
    model = est.model_.train()  # outside training the choice is normalised, whatever the recipe
    p = model.prior(x, model.encode)
    term = divergence(model.encode(x), p).mean()
    gradients = torch.autograd.grad(term, list(model.encoder.parameters()))
    return {
        "weights_sum": float(p.choice.detach().sum(-1).mean()),
        "kl": float(term.detach()),
        "gradient": float(torch.stack([g.norm() for g in gradients]).norm()),
    }


def tuned(results: list[dict[str, Any]], drawn: float) -> float:
    """VSC's alpha for that number of drawn units, by straight lines in logarithms."""
    points = sorted((r["nonzeros_drawn"], r["alpha"]) for r in results)
    counts, alphas = zip(*points, strict=True)
    return float(np.exp(np.interp(math.log(drawn), np.log(counts), np.log(alphas))))


def verdict(
    alpha: float, learned: list[dict[str, Any]], fixed: list[dict[str, Any]], variants: list[dict[str, Any]]
) -> dict[str, Any]:
    """Means over seeds of both models; of each variant its own bound, and that of the same seed without the change."""

    def mean(key: str) -> dict[str, float]:
        return {k: float(np.mean([r[key] for r in v])) for k, v in (("learned", learned), ("fixed", fixed))}

    def name(run: dict[str, Any]) -> str:
        return f"selection={run['selection']}" if "selection" in run else f"slab_warmup={run['slab_warmup']}"

    own = {r["seed"]: r["score"] for r in learned}
    return {
        "alpha of VSC": alpha,
        "drawn": mean("nonzeros_drawn"),
        "units in a code": mean("nonzeros_mode"),
        "bound": mean("score"),
        "bound of a variant, and of the same seed without it": {
            name(r): [r["score"], own[r["seed"]]] for r in variants
        },
    }


def main() -> None:
    parser = jobs.options(__doc__)
    parser.add_argument("--steps", type=int, default=30_000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    args = parser.parse_args()
    state = args.state or args.out / "state"

    def several(model: str, members: list[dict[str, Any]]) -> list[dict[str, Any]]:
        job = {"model": model, "steps": args.steps, "members": members}
        return jobs.run_stack(train, job, state, device=args.device)

    start = {name: selection_at_start(name) for name in ("paper", "authors", "softmax")}
    print(json.dumps(start, indent=1))
    learned = several("PseudoVSC", [{"alpha": ALPHA, "seed": s, "slab_warmup": SLAB_WARMUP} for s in args.seeds])
    others = []
    for change in ({"selection": "paper"}, {"selection": "authors"}, {"slab_warmup": [0.2, 0.3]}):
        others += several("PseudoVSC", [{"alpha": ALPHA, "seed": 0, "slab_warmup": SLAB_WARMUP, **change}])
    tuning = several("VSC", [{"alpha": a, "seed": 0} for a in TUNE])
    drawn = float(np.mean([r["nonzeros_drawn"] for r in learned]))
    alpha = round(tuned(tuning, drawn), 4)
    fixed = several("VSC", [{"alpha": alpha, "seed": s} for s in args.seeds])
    report = {
        "selection_at_start": start,
        "learned": learned,
        "variants": others,
        "tuning": tuning,
        "fixed": fixed,
        "verdict": verdict(alpha, learned, fixed, others),
    }
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "pseudo_vsc.json").write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(report["verdict"], indent=1))


if __name__ == "__main__":
    main()
