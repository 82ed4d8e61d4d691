r"""Bounds on log p(x), from hard draws of q(z|x), with unit weights and the model's own prior.

With importance weights :math:`w = p(x, z) / q(z|x)` and K hard draws,

.. math:: \mathrm{ELBO} = \frac1K \sum_k \log w_k \;\le\; \log \frac1K \sum_k w_k \;\le\; \log p(x)
   \quad\text{in expectation.}

An importance bound is a bound in expectation: a single estimate may exceed log p(x). So it comes with its standard
error, its effective sample size and the Pareto k of its weights (`pareto`). With a heavy tail, most of p(x) may come
from rare large weights that are not among the draws: the estimate is then below log p(x) by far more than its standard
error, and the standard error does not show it.
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

SPREAD = -7046029254386353131  # an odd factor that spreads the index of a sample over all bits of a row's key


class Bounds(NamedTuple):
    """Per item, in nats, each (*members, B)."""

    elbo: Tensor
    importance: Tensor
    standard_error: Tensor  # of `importance`, by the delta method; infinite for one sample
    effective_samples: Tensor  # (sum w)^2 / sum w^2, between 1 and K
    nll: Tensor  # -log p(x|z), the mean over the draws
    pareto_k: Tensor  # of the tail of the weights; NaN if it has fewer than 25 draws


def log_weights(trace: Trace) -> Tensor:
    """log p(x|z) + log p(z) - log q(z|x), (*members, B); a ValueError for a trace with relaxed draws."""
    return _weighed(trace)[0]


def _weighed(trace: Trace) -> tuple[Tensor, Tensor]:
    """log p(x|z) + log p(z) - log q(z|x), and its term log p(x|z), each (*members, B)."""
    if not trace.hard:
        raise ValueError("a bound needs hard draws, got a trace drawn with hard=False: pass Draw(noise, hard=True).")
    if missing := [name for name, site in trace.latents.items() if site.p is None]:
        raise ValueError(f"a bound on log p(x) needs a prior for each latent variable: {', '.join(missing)} has none.")
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
    """ELBO and importance bound of each row (of x (B, D), or of a batch) from the same `n_samples` hard draws.

    Noise is a function of (seed, row, sample, unit) unless given, so the score of a row does not depend on the other
    rows. The encoder runs once; the decoder runs on at most `at_once` draws at a time (but at least one per row), so
    that memory does not grow with `n_samples`. `watch` is called with each trace, (*members, draws * B).
    """
    batch = Batch.of(rows)
    keys = row_keys(batch.columns())
    n, device = keys.shape[-1], keys.device
    chunk = max(1, min(n_samples, at_once // max(1, n)))
    sums = []
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
            sums.append((lw.sum(-2), log_p.sum(-2), torch.logsumexp(lw, -2), torch.logsumexp(2 * lw, -2)))
    logs, log_likelihoods, firsts, seconds = (torch.stack(each) for each in zip(*sums, strict=True))
    total, squares = torch.logsumexp(firsts, 0), torch.logsumexp(seconds, 0)
    effective = torch.exp(2 * total - squares)
    spread = (1 / effective - 1 / n_samples).clamp_min(0)  # relative variance of the mean weight; biased by (K - 1)/K
    error = (spread * n_samples / (n_samples - 1)).sqrt() if n_samples > 1 else torch.full_like(spread, torch.inf)
    elbo, nll = logs.sum(0) / n_samples, -log_likelihoods.sum(0) / n_samples
    k = pareto_k(largest.found()) if tail else torch.full_like(elbo, torch.nan)
    return Bounds(elbo, total - math.log(n_samples), error, effective, nll, k)
