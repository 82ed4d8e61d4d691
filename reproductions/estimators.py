"""Bias and variance of every gradient estimator, on two small problems whose gradient is known by enumeration.

    python -m reproductions.estimators --out results/

The problems: a tanh network f of three bits, and of two one-hots of three categories; the target is d/da E f(b). All
estimators may spend eight rows on one estimate, so one that needs several rows per item averages over fewer items. It
is repeated 200,000 times. `bias` is |mean estimate - target| / |target|; `noise` is its mean if there were no bias;
`cosine` is that of the angle between mean and target; `variance` is the sum over logits of the variance of one
estimate, over |target|^2. All items are alike here, which suits `score`: its baseline is what other items cost.
Slope-annealed draws are of the steeper distribution q_(s a), so their target is d/da E f(b) under that distribution.

The claim: no bias is seen in score, rloo, disarm and muprop (bias below 3 times the noise, noise below 1 %), and every
other estimator has one (DARN's is none on quadratics, which f is not).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from sparsevae.latent.model import Site, Trace
from sparsevae.latent.objective import Objective
from sparsevae.sampling import gradients as g
from sparsevae.sampling.choices import BITS, ONE_HOTS, Kind

__all__ = ["CASES", "UNBIASED", "estimates", "loss", "problem", "row", "target", "values"]

Cost = Callable[[Tensor], Tensor]
ROWS = 8
CASES: dict[str, Callable[[], g.Estimator]] = {
    "sigmoid, c = 20": lambda: g.ScaledSigmoid(20.0),
    "concrete, tau = .5": lambda: g.Concrete(0.5),
    "straight-through-concrete, tau = .5": lambda: g.StraightThroughConcrete(0.5),
    "straight-through": g.StraightThrough,
    "slope-annealed, s = 2": lambda: g.SlopeAnnealed(2.0),
    "score": g.Score,
    "normalised-score": g.NormalisedScore,
    "rloo, K = 2": lambda: g.LeaveOneOut(2),
    "rloo, K = 4": lambda: g.LeaveOneOut(4),
    "disarm": g.Disarm,
    "muprop": g.MuProp,
    "normalised-muprop": g.NormalisedMuProp,
    "darn": g.Darn,
    "normalised-darn": g.NormalisedDarn,
}
UNBIASED = ("score", "rloo, K = 2", "rloo, K = 4", "disarm", "muprop")


def problem(kind: Kind) -> tuple[Tensor, Cost]:
    """Logits, (3,) or (2, 3), and a cost f: (..., 3) or (..., 2, 3) -> (...)."""
    rng = torch.Generator().manual_seed(1)
    shape = (3,) if kind is BITS else (2, 3)
    logits = torch.randn(shape, generator=rng, dtype=torch.float64)
    inner = 1.5 * torch.randn(5, logits.numel(), generator=rng, dtype=torch.float64)
    outer, shift = 2 * torch.randn(2, 5, generator=rng, dtype=torch.float64)

    def f(b: Tensor) -> Tensor:
        cost: Tensor = torch.tanh(b.flatten(b.dim() - len(shape)) @ inner.T + 0.5 * shift) @ outer
        return cost

    return logits, f


def values(kind: Kind, shape: torch.Size) -> Tensor:
    """Every value that a row of choices can take, (outcomes, *shape)."""
    n, C = shape[0], shape[-1] if kind.event else 2
    which = torch.cartesian_prod(*[torch.arange(C)] * n).reshape(-1, n)
    return (one_hot(which, C) if kind.event else which).double()


def target(kind: Kind, logits: Tensor, f: Cost, estimator: g.Estimator | None = None) -> Tensor:
    """d/da sum_b q_a(b) f(b), over all b; q is the distribution that the estimator draws from."""
    a, b = logits.detach().requires_grad_(), values(kind, logits.shape)
    of_law = a if estimator is None else estimator.distribution_logits(a)
    expected = (kind.log_prob(of_law.expand_as(b), b).sum(-1).exp() * f(b)).sum()
    return torch.autograd.grad(expected, a)[0]


def loss(estimator: g.Estimator, kind: Kind, logits: Tensor, u: Tensor, f: Cost) -> Tensor:
    """The training loss of rows with those logits and that noise, (*members, R, n[, C]) twice -> (*members,)."""
    choice = estimator.choose(kind, estimator.distribution_logits(logits), u)
    site: Any = Site(SimpleNamespace(choice=choice), None, choice.value)  # type: ignore[arg-type]
    objective = Objective(lambda trace: {"cost": f(trace.latents["b"].value)})
    total: Tensor = objective(Trace({"b": site}, {}, hard=False))[0]
    return total


def estimates(estimator: g.Estimator, kind: Kind, repeats: int, seed: int) -> Tensor:
    """Independent estimates of the gradient, each from eight rows, (repeats, n[, C]): members of one stack."""
    logits, f = problem(kind)
    noise = torch.Generator().manual_seed(seed)
    a = logits.expand(repeats, *logits.shape).clone().requires_grad_()
    rows = a.unsqueeze(1).expand(-1, ROWS, *logits.shape)
    u = torch.rand(rows.shape, generator=noise, dtype=torch.float64).clamp_min(1e-300)
    return torch.autograd.grad(loss(estimator, kind, rows, u, f).sum(), a)[0]


def row(name: str, kind: Kind, repeats: int, seed: int = 0) -> dict[str, Any]:
    """One line of the table."""
    estimator, (logits, f) = CASES[name](), problem(kind)
    parts = [estimates(estimator, kind, min(20_000, repeats), seed + i) for i in range(max(1, repeats // 20_000))]
    found, wanted = torch.cat(parts), target(kind, logits, f, estimator)
    variance = float(found.var(0).sum() / wanted.square().sum())
    return {
        "estimator": name,
        "kind": kind.name,
        "rows": estimator.points,
        "bias": float((found.mean(0) - wanted).norm() / wanted.norm()),
        "noise": (variance / len(found)) ** 0.5,
        "cosine": float(torch.cosine_similarity(found.mean(0).flatten(), wanted.flatten(), 0)),
        "variance": variance,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--repeats", type=int, default=200_000)
    args = parser.parse_args()
    kinds: tuple[Kind, ...] = (BITS, ONE_HOTS)
    table = [row(name, kind, args.repeats) for kind in kinds for name in CASES if kind.name in CASES[name]().kinds]
    print(f"{'estimator':37}{'kind':10}{'rows':4}{'bias':>8}{'noise':>8}{'cosine':>8}{'variance':>10}")
    for r in table:
        start = f"{r['estimator']:37}{r['kind']:10}{r['rows']:4}"
        print(f"{start}{r['bias']:8.4f}{r['noise']:8.4f}{r['cosine']:8.4f}{r['variance']:10.4f}")
    unbiased = {f"{r['estimator']}, {r['kind']}": r["bias"] < 3 * r["noise"] and r["noise"] < 0.01 for r in table}
    claim = {k: seen == (k.rsplit(", ", 1)[0] in UNBIASED) for k, seen in unbiased.items()}
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "estimators.json").write_text(json.dumps({"results": table, "verdict": claim}, indent=1) + "\n")
    print(json.dumps({k: v for k, v in claim.items() if not v} or "every claim holds"))


if __name__ == "__main__":
    main()
