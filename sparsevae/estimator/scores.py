"""Scores of a fitted estimator: bounds on log p(x) from hard draws, what they mean, and the training objective."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from sparsevae.checks import POSITIVE, check_room
from sparsevae.estimator.blocks import fitted
from sparsevae.exceptions import warn_caller
from sparsevae.inputs.base import Array
from sparsevae.inputs.stats import Span
from sparsevae.latent.bounds import SPREAD, Bounds, bounds
from sparsevae.latent.objective import kl, nll
from sparsevae.latent.pareto import HEAVY, TOO_HEAVY, heavy_tails
from sparsevae.sampling.draw import Draw
from sparsevae.sampling.gradients import points
from sparsevae.sampling.noise import PerRow, mix, row_keys

if TYPE_CHECKING:
    from sparsevae.estimator.coder import SparseCoder

_LOST = (-math.inf, -math.inf, math.inf, 1.0, math.inf, math.nan)  # `Bounds` of a row that overflows
_FOR_A_BOUND = {  # by the meaning of a score
    "cross-entropy": "binarise the grey pixels, or fit with likelihood='gaussian'",
    "normalised-row density": "fit with scale='auto'",
    "joint density at the code": "fit with noise=True",
}
_NUMBERS = 2**25  # values of x, over all draws that are scored at once


class ImportanceBound(NamedTuple):
    """Per item: the K-sample bound in nats, its standard error, the effective number of samples, and Pareto k.

    `pareto_k` measures the tail of the importance weights. Above .7 error and number of samples are not reliable,
    unless more than half of the samples are effective: then all weights are nearly equal. It is NaN if the tail has
    fewer than 25 weights: below 121 samples, or for discrete codes that are nearly deterministic.
    """

    bound: Array
    standard_error: Array
    effective_samples: Array
    pareto_k: Array


@fitted
def bounds_of(est: SparseCoder, rows: Any, n_samples: int, watch: Callable[..., None] | None = None) -> Bounds:
    """Bounds of checked rows, in nats of X's own units where the likelihood is a density.

    `watch(trace, size, n)` is called with the draws of every block of `size` rows, of which the first n are of X.
    """
    POSITIVE.check("n_samples", n_samples, whole=True)
    check_room(2 * n_samples, {"n_samples": n_samples}, "the numbers of the draws")  # int64
    own = est.fitted_
    model, seed = own.model, mix(est.training_settings().seed, 4)
    at_once = 16 * own.input.block_size(own.device, draws=16)
    parts, places = [], []
    for x, n, at in own.blocks(rows, int(n_samples)):
        problem = model.likelihood.refuses(Span.of(x))
        if problem:
            raise ValueError(f"{problem}; this model was fitted with likelihood={est.likelihood_!r}.")
        few = max(len(x), _NUMBERS // x.shape[-1])  # for very wide rows, one draw at a time
        shown = None if watch is None else functools.partial(watch, size=len(x), n=n)
        found = bounds(model, x, int(n_samples), seed=seed, at_once=min(at_once, few), watch=shown)
        parts.append([v[:n].cpu() for v in found])
        places.append(at)
    order = np.concatenate(places).argsort()
    out = Bounds(*(torch.cat(v)[order] for v in zip(*parts, strict=True)))
    # Rows that overflow in float32: minus infinity is a bound, NaN is not.
    out = Bounds(*(v.nan_to_num(nan, torch.inf, -torch.inf) for v, nan in zip(out, _LOST, strict=True)))
    log_det = model.likelihood.log_det(own.input.prepare)
    return out._replace(elbo=out.elbo + log_det, importance=out.importance + log_det)


@fitted
def meaning_of(est: SparseCoder, rows: Any) -> str:
    own = est.fitted_
    if not own.model.posterior.density:
        return "joint density at the code"
    return own.model.likelihood.meaning(own.input.prepare, (block.x for block in own.blocks(rows)))


def importance_of(est: SparseCoder, X: Any, n_samples: int) -> ImportanceBound:
    if (meaning := meaning_of(est, X)) != "bound":
        raise ValueError(
            f"scores of this model on these data are a {meaning}, not a bound on log p(x): {_FOR_A_BOUND[meaning]}. "
            "score_samples computes them."
        )
    b = bounds_of(est, X, n_samples)
    if (share := heavy_tails(b.pareto_k.numpy(), b.effective_samples.numpy(), n_samples)) > TOO_HEAVY:
        warn_caller(
            f"the importance weights of {share:.0%} of {len(b.pareto_k):,} rows have heavy tails (Pareto k above "
            f"{HEAVY}): their bounds lie below log p(x) in expectation, but their standard errors and effective "
            "samples are not reliable. Use a larger n_samples, which narrows the gap slowly, or score_samples, a "
            "looser bound with a reliable error.",
            RuntimeWarning,
        )
    return ImportanceBound(*(v.numpy() for v in (b.importance, b.standard_error, b.effective_samples, b.pareto_k)))


@fitted
def relaxed_of(est: SparseCoder, rows: Any) -> Array:
    own = est.fitted_
    (each, draws), seed = points(own.model), mix(est.training_settings().seed, 8)

    def relaxed(x: Tensor) -> Tensor:
        keys = row_keys(x) + torch.arange(1, each + 1, device=x.device)[:, None] * SPREAD
        trace = own.model(x.repeat(each, 1), Draw(PerRow(keys.flatten(), seed), hard=False))
        loss: Tensor = torch.stack([*nll(trace).values(), *kl(trace).values()]).sum(0)
        mean: Tensor = loss.unflatten(-1, (each, -1))[:draws].mean(0)
        return -mean

    values: Array = own.blocks(rows).map(relaxed) + own.model.likelihood.log_det(own.input.prepare)
    return values
