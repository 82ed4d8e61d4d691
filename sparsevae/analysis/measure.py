"""Gain, KL, mean and variance of every unit, measured block by block for any model."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution, Independent

from sparsevae.analysis.audit_result import Array, Audit
from sparsevae.distributions.gaussian import normal
from sparsevae.distributions.kl import unit_divergence
from sparsevae.estimator.coder import SparseCoder
from sparsevae.likelihoods.tokens import SentenceDistribution
from sparsevae.metrics import aggregate_hoyer, average_hoyer
from sparsevae.sampling.draw import Draw
from sparsevae.sampling.noise import PerRow, mix, row_keys
from sparsevae.threads import inference

Blocks = Callable[[Any], Iterable[tuple[Tensor, int]]]  # rows -> (block, n): the first n rows of the block count
Encode = Callable[[Tensor], Distribution | tuple[Tensor, Tensor]]
Decode = Callable[[Tensor], Distribution | Tensor]
Noise = Callable[[Distribution, Tensor], Tensor]  # (q, x) -> a draw of z


def per_row(seed: int) -> Noise:
    """A function (q, x) -> hard draws of z, whose noise is a function of (seed, row)."""
    return lambda q, x: Draw(PerRow(row_keys(x.flatten(1)), mix(seed, 7)), hard=True)(q)


def finite(callable_: str, what: str, values: Tensor) -> None:
    """Raise a ValueError if some value is not finite."""
    if not bool(values.isfinite().all()):
        came = "NaN" if bool(values.isnan().any()) else "infinite values"
        raise ValueError(f"{callable_} must return {what}, got {came}.")


def posterior_of(found: Distribution | tuple[Tensor, Tensor], x: Tensor) -> Distribution:
    """The result of encode for x as a distribution of shape (B, J), after a check of its means and variances."""
    n = len(x)
    expected = f"encode must return a torch Distribution or a pair (mean, variance) of shape (B, J), here ({n}, J)"
    if isinstance(found, Distribution):
        name = f"a {type(found).__name__} of shape"
        shapes = [tuple(found.batch_shape + found.event_shape)]
        try:
            mean, variance = found.mean, found.variance
        except NotImplementedError:
            raise TypeError(f"{expected}; a {type(found).__name__} has no mean and variance.") from None
    elif isinstance(found, (tuple, list)) and [isinstance(t, Tensor) for t in found] == [True, True]:
        name = "tensors of shapes"
        shapes = [tuple(t.shape) for t in found]
        mean, variance = found
    else:
        parts = f" of {', '.join(type(t).__name__ for t in found)}" if isinstance(found, (tuple, list)) else ""
        raise TypeError(f"{expected}; got a {type(found).__name__}{parts}.")
    if len(set(shapes)) > 1 or len(shapes[0]) != 2 or shapes[0][0] != n or not shapes[0][1]:
        raise TypeError(f"{expected}; got {name} {' and '.join(map(str, shapes))}.")
    finite("encode", "finite means", mean)
    finite("encode", "finite variances", variance)
    if isinstance(found, Distribution):
        return found
    if bool((variance <= 0).any()):
        raise ValueError(
            f"encode must return variances above 0, got {float(variance.min()):.3g} to {float(variance.max()):.3g}: "
            "did you return log-variances? Use log_variance.exp()."
        )
    return normal(mean, variance.sqrt())


def _error(found: Distribution | Tensor, x: Tensor, variance: float) -> Tensor:
    """-log p(x|z) per row, (B,), up to a constant, in nats."""
    if isinstance(found, SentenceDistribution):  # its shape may have more padding than the texts x
        return -found.log_prob(x)
    flat = x.flatten(1)
    like = " or flat, ".join(str(s) for s in dict.fromkeys((tuple(x.shape), tuple(flat.shape))))
    expected = f"decode must return a torch Distribution or a tensor with the shape of x, {like}"
    if not isinstance(found, (Distribution, Tensor)):
        raise TypeError(f"{expected}; got a {type(found).__name__}.")
    shape = found.shape if isinstance(found, Tensor) else found.batch_shape + found.event_shape
    if shape not in (x.shape, flat.shape):  # others might broadcast, or have the same values in another order
        raise TypeError(f"{expected}; got a {type(found).__name__} of shape {tuple(shape)}.")
    if isinstance(found, Tensor):
        finite("decode", "finite reconstructions", found)
        error = (x - found.reshape(x.shape)).square().flatten(1).sum(-1) / (2 * variance)
    else:
        try:
            error = -found.log_prob(x.reshape(shape)).reshape(len(x), -1).sum(-1)
        except ValueError as outside:
            base = found.base_dist if isinstance(found, Independent) else found
            raise ValueError(
                f"decode gives a {type(base).__name__}, and values of X lie outside its support: "
                f"a block has values from {float(x.min()):.3g} to {float(x.max()):.3g}. Rescale or binarise X; a "
                "Bernoulli made with validate_args=False takes grey values: its error is their cross-entropy."
            ) from outside
    finite("decode", "p(x|z) with a finite log-density at x", error)
    return error


def measure_fitted(est: SparseCoder, X: Any, **options: Any) -> Audit:
    """`measure` of a fitted estimator on rows X, with the given `options`."""
    model = est.model_
    with inference(est.fitted_.device):
        return measure(
            lambda rows: est.fitted_.blocks(rows).pairs(),
            est.fitted_.rows(X),
            model.encode,
            model.decode,
            lambda x, q: model.prior(x, model.encode),
            **options,
        )


def measure(
    blocks: Blocks,
    X: Any,
    encode: Encode,
    decode: Decode,
    prior: Callable[[Tensor, Distribution], Distribution],
    *,
    draw: Noise,
    variance: float = 1.0,
    gain_rows: int | None = None,
    units: Iterable[int] | None = None,
) -> Audit:
    """The audit of any model, computed block by block with sums in double precision.

    The gain is measured for the given `units` (None: for all) and is 0 for the others.
    """
    if X.shape[0] < 2:
        raise ValueError(
            f"audit measures how codes vary between rows, so it needs two rows at least; got {X.shape[0]}."
        )
    n, sums = 0, [torch.zeros(())] * 6
    codes: list[Tensor] = []
    for x, count in blocks(X):
        q = posterior_of(encode(x), x)
        if codes and codes[0].shape[1] != q.mean.shape[1]:
            raise ValueError(
                "encode must return the same number of units for every block of rows; got "
                f"{codes[0].shape[1]}, then {q.mean.shape[1]}."
            )
        cost = unit_divergence(q, prior(x, q), draw(q, x))
        finite("encode", "q(z|x) with a finite KL to the prior", cost)
        always = torch.ones_like(q.mean)
        gates = (q.p_on, q.mode != 0) if hasattr(q, "p_on") else (always, always)
        means = q.mean.cpu().double()  # mean(x^2) - mean(x)^2 in float32 is inexact for means far from 0
        rows = (means, means.square(), q.variance, cost, *gates)
        sums = [a + b[:count].cpu().double().sum(0) for a, b in zip(sums, rows, strict=True)]
        codes.append(q.mode[:count].cpu())
        n += count
    mean, square, inner, kl, p_on, on = ((s / n).numpy() for s in sums)
    n_chosen = min(n, gain_rows or n)
    chosen = np.arange(n_chosen) * n // n_chosen
    code = torch.cat(codes).numpy()
    return Audit(
        rows=n,
        gain_rows=n_chosen,
        mean=mean,
        var_mean=np.maximum(square - mean**2, 0),
        mean_variance=inner,
        kl=kl,
        gain=_gains(blocks(X[chosen]), encode, decode, draw, variance, range(len(kl)) if units is None else units),
        p_on=p_on,
        on=on,
        empty=float((code == 0).all(1).mean()),
        hoyer=average_hoyer(code),
        aggregate_hoyer=aggregate_hoyer(code),
    )


def _gains(
    blocks: Iterable[tuple[Tensor, int]],
    encode: Encode,
    decode: Decode,
    draw: Noise,
    variance: float,
    units: Iterable[int],
) -> Array:
    """Mean over rows of the error with z_j = 0 minus the error with z_j as drawn, (J,)."""
    gains, n, units = torch.zeros(()), 0, list(units)
    for x, count in blocks:
        z = draw(posterior_of(encode(x), x), x)
        error = _error(decode(z), x, variance)
        block = torch.zeros(z.shape[1], dtype=torch.float64)
        for j in units:
            if not z[:, j].any():
                continue  # off in every row, so the gain is 0
            without = z.clone()
            without[:, j] = 0.0
            block[j] = float((_error(decode(without), x, variance) - error)[:count].double().sum())
        gains, n = gains + block, n + count
    return (gains / n).numpy()
