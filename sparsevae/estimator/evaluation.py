"""The entries of `SparseCoder.evaluate`: score, KL, sparsity of codes, reconstruction errors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from sparsevae.estimator.scores import bounds_of, importance_of, meaning_of, relaxed_of
from sparsevae.inputs.base import Array
from sparsevae.inputs.batch import Batch
from sparsevae.inputs.texts import Texts
from sparsevae.latent.codes import active, code_sites, gated, means_of, on
from sparsevae.latent.model import Site, Trace
from sparsevae.latent.objective import kl
from sparsevae.latent.pareto import heavy_tails
from sparsevae.sampling.draw import Draw
from sparsevae.sampling.noise import PerRow, mix, row_keys

if TYPE_CHECKING:
    from sparsevae.estimator.coder import SparseCoder


def evaluate(est: SparseCoder, X: Any, caps: Sequence[int], n_samples: int) -> dict[str, Any]:
    """The entries of `SparseCoder.evaluate` for checked rows X."""
    own, n_rows = est.fitted_, X.shape[0]
    model, width, seed = own.model, own.n_units, mix(est.training_settings().seed, 5)
    mode = drawn = expected = 0.0
    means, costs, seen = [], [], list[dict[str, Tensor]]()
    for x, n, _ in own.blocks(X):
        batch = Batch(x)
        raw = model.read(batch)
        q: Any = model.posterior_from(raw)
        trace = model.trace(batch, raw, Draw(PerRow(row_keys(x), seed), hard=True))
        sites = code_sites(trace)
        kept = [own.code(q, most) for most in (None, *caps)]
        mode += float((kept[0] != 0)[:n].sum())
        drawn += sum(float(on(site)[:n].sum()) for site in sites)
        expected += float(q.p_on[:n].sum()) if own.sparse else float(n * width)
        means.append(q.mean[:n])
        if _has_hoyer(est, sites):
            codes = {"draws": torch.cat([s.value for s in sites], -1), **means_of([s.q for s in sites])}
            seen.append({kind: code[:n].cpu() for kind, code in codes.items()})
        costs.append(own.input.errors(x, map(model.decode, kept))[:, :n].sum(1).cpu().numpy())
    bound, nats = _bound(est, X, n_samples) if est.has_bound else ({}, {})
    score, nll = bound.get("score", math.nan), bound.pop("nll", math.nan)
    return {
        "rows": n_rows,
        **bound,
        **model.likelihood.describe(),
        "nonzeros_mode": mode / n_rows,
        "nonzeros_drawn": drawn / n_rows,
        "nonzeros_expected": expected / n_rows,
        "active_units": int(active(torch.cat(means).var(0, correction=0), noisy=model.posterior.density).sum()),
        "n_components": width,
        **nats,
        **({"hoyer": _hoyer(seen)} if seen and n_rows > 1 else {}),
        **own.input.summarise(np.sum(costs, axis=0), n_rows, score, nll, caps),
        **(_relaxed_and_importance(est, X, bound["score_meaning"]) if bound and model.posterior.discrete else {}),
    }


def _bound(est: SparseCoder, X: Any, n_samples: int) -> tuple[dict[str, Any], dict[str, float]]:
    """Score, standard error, meaning and mean of -log p(x|z); the KL in nats per row, and by name if several."""
    nats = dict[str, float]()

    def add_kl(trace: Trace, size: int, n: int) -> None:
        for name, term in kl(trace).items():  # (draws * size,)
            total = float(term.double().unflatten(-1, (-1, size))[:, :n].sum())
            nats[name] = nats.get(name, 0.0) + total / (n_samples * X.shape[0])

    found = bounds_of(est, X, n_samples, add_kl)
    score = found.elbo.numpy()
    return {
        "score": float(score.mean()),
        "score_standard_error": standard_error(score),
        "score_meaning": meaning_of(est, X),
        "nll": float(found.nll.mean()),
    }, {"kl": sum(nats.values()), **(nats if len(nats) > 1 else {})}


def standard_error(values: Array) -> float:
    """Standard error of the mean of n values, (n,): NaN for n = 1, inf if any value is not finite.

    >>> standard_error(np.array([1.0, 3.0]))  # deviations from the mean of 1 and 1: sqrt(2 / (n - 1) / n)
    1.0
    """
    if len(values) < 2:
        return math.nan
    return float(values.std(ddof=1)) / math.sqrt(len(values)) if np.isfinite(values).all() else math.inf


def with_error(mean: float, error: float) -> str:
    """A mean to two decimals, with its standard error unless that is NaN.

    >>> with_error(-12.3, 0.456), with_error(-12.3, math.nan)
    ('-12.30 ± 0.46', '-12.30')
    """
    return f"{mean:.2f}" if math.isnan(error) else f"{mean:.2f} ± {error:.2f}"


def _has_hoyer(est: SparseCoder, sites: Sequence[Site]) -> bool:
    """True if `hoyer` is reported: for codes with gates, and for all models of texts."""
    return isinstance(est.input_, Texts) or all(gated(site.q) for site in sites)


def _hoyer(seen: Sequence[Mapping[str, Tensor]]) -> dict[str, dict[str, float]]:
    """Hoyer's sparsity of every kind of code, from blocks of rows."""
    from sparsevae.metrics import code_hoyer

    return {kind: code_hoyer(torch.cat([each[kind] for each in seen]).numpy())._asdict() for kind in seen[0]}


def _relaxed_and_importance(est: SparseCoder, X: Any, meaning: str) -> dict[str, Any]:
    """Two more scores of a discrete code, in nats per row as the hard ELBO.

    `relaxed_objective` is the training objective with unit weights: if draws are relaxed it is no bound, and may
    exceed log p(x). `importance_bound` is the hard bound of 1,000 samples, on the first 1,000 rows; for a share
    `heavy_tails` of these the standard error is not reliable.
    """
    found: dict[str, Any] = {"relaxed_objective": float(relaxed_of(est, X).mean())}
    if meaning == "bound":
        b = importance_of(est, X[:1000], 1000)
        found |= {"importance_bound": float(b.bound.mean()), "importance_rows": len(b.bound)}
        found["heavy_tails"] = heavy_tails(b.pareto_k, b.effective_samples, 1000)
    return found
