r"""True bounds on log p(x): hard draws, unit weights, the model's real latent law.

With importance weights :math:`w = p(x, z) / q(z|x)` and K hard draws,

.. math:: \mathrm{ELBO} = \frac1K \sum_k \log w_k \;\le\; \log \frac1K \sum_k w_k \;\le\; \log p(x)
   \quad\text{in the mean.}

An importance bound is a bound in expectation: a single estimate may exceed log p(x), so it comes with its standard
error, its effective sample size, and how heavy the tail of the weights is (`pareto`): where it is, a few weights that
no draw has met make up most of p(x), the estimate lies below it by far more than its error, and the error cannot tell.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from sparsevae.inputs.batch import Batch
from sparsevae.latent.model import LatentModel, Trace
from sparsevae.latent.pareto import Largest, pareto_k, tail_size
from sparsevae.sampling.draw import Draw
from sparsevae.sampling.noise import Noise, PerRow, row_keys

SPREAD = -7046029254386353131  # takes the number of a sample to all bits of a row's key


class Bounds(NamedTuple):
    """Per item, in nats, each (*members, B)."""

    elbo: Tensor
    importance: Tensor
    standard_error: Tensor  # of `importance`, by the delta method; unknown, infinite, for one sample
    effective_samples: Tensor  # (sum w)^2 / sum w^2, between 1 and K
    nll: Tensor  # -log p(x|z), the mean over the draws
    pareto_k: Tensor  # of the weights' tail; NaN, not known, where fewer than 25 of the draws are a tail


def log_weights(trace: Trace) -> Tensor:
    """log p(x|z) + log p(z) - log q(z|x), (*members, B); refuses a trace with relaxed draws."""
    return _weighed(trace)[0]


def _weighed(trace: Trace) -> tuple[Tensor, Tensor]:
    """`log_weights`, and their part log p(x|z), from one pass of the decoder."""
    if not trace.hard:
        raise ValueError("a bound needs hard draws: this trace was drawn with hard=False and bounds nothing.")
    if missing := [name for name, site in trace.latents.items() if site.p is None]:
        raise ValueError(f"a bound on log p(x) needs priors: {', '.join(missing)} has none.")
    observed = [seen.log_prob() for seen in trace.observed.values()]
    latent = [s.p.log_prob(s.value) - s.q.log_prob(s.value) for s in trace.latents.values()]
    each = torch.stack(torch.broadcast_tensors(*observed, *latent))
    return each.sum(0), each[: len(observed)].sum(0)


def bounds(
    model: LatentModel,
    rows: Batch | Tensor,
    n_samples: int,
    *,
    seed: int = 0,
    noise: Noise | None = None,
    at_once: int = 8192,
    watch: Callable[[Trace], None] | None = None,
) -> Bounds:
    """ELBO and importance bound of every row (of x (B, D), or of a batch) from the same `n_samples` hard draws.

    Noise is a function of (seed, row, sample, unit) unless given, so a row's score does not depend on its
    neighbours. The encoder reads x once; draws are taken a few at a time, `at_once` rows, so that memory does not
    grow with `n_samples`. `watch` is shown the traces, of some draws of all rows each, (*members, draws * B).
    """
    batch = Batch.of(rows)
    keys = row_keys(batch.columns())
    n, device = keys.shape[-1], keys.device
    chunk = max(1, min(n_samples, at_once // max(1, n)))
    logs, firsts, seconds, log_likelihoods = [], [], [], []
    tail = tail_size(n_samples)
    largest = Largest(tail + 1 if tail else 0)
    with torch.no_grad():
        raw = model.read(batch)
        for sample in torch.arange(1, n_samples + 1, device=device).split(chunk):
            repeated = (keys + sample[:, None] * SPREAD).flatten()
            draw = Draw(noise or PerRow(repeated, seed), hard=True)
            trace = model.trace(batch, raw, draw, copies=len(sample))
            lw, log_p = (v.double().unflatten(-1, (len(sample), n)) for v in _weighed(trace))
            if watch is not None:
                watch(trace)
            largest.add(lw)
            logs.append(lw.sum(-2))
            log_likelihoods.append(log_p.sum(-2))
            firsts.append(torch.logsumexp(lw, -2))
            seconds.append(torch.logsumexp(2 * lw, -2))
    total, squares = torch.logsumexp(torch.stack(firsts), 0), torch.logsumexp(torch.stack(seconds), 0)
    effective = torch.exp(2 * total - squares)
    spread = (1 / effective - 1 / n_samples).clamp_min(0)  # of the mean weight, relative; biased by (K - 1)/K
    error = (spread * n_samples / (n_samples - 1)).sqrt() if n_samples > 1 else torch.full_like(spread, torch.inf)
    elbo, nll = torch.stack(logs).sum(0) / n_samples, -torch.stack(log_likelihoods).sum(0) / n_samples
    k = pareto_k(largest.found()) if tail else torch.full_like(elbo, torch.nan)
    return Bounds(elbo, total - math.log(n_samples), error, effective, nll, k)
