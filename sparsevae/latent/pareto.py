r"""Pareto k: how heavy the tail of importance weights is, and so whether the standard error of their mean is reliable.

The excesses of the largest of K weights over a threshold approximately follow a generalized Pareto distribution, whose
density falls like :math:`w^{-1 - 1/k}`. For k >= 1/2 weights have no variance, and their standard error does not
converge. Above .7 it is unreliable for any practicable number of draws (Vehtari et al., 2024).

References
----------
A. Vehtari, D. Simpson, A. Gelman, Y. Yao, J. Gabry, "Pareto smoothed importance sampling", JMLR 2024.
J. Zhang, M. A. Stephens, "A new and efficient estimation method for the generalized Pareto distribution",
Technometrics 2009: the estimator, whose k is minus this one.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

HEAVY = 0.7  # the k above which the standard error of a mean of weights is unreliable
TOO_HEAVY = 0.05  # the share of rows with such tails above which there is a warning
_FEWEST = 25  # the smallest number of weights to which a tail is fitted


def tail_size(n: int) -> int:
    """The number of the n weights in the tail: the smaller of n/5 and 3 sqrt(n), rounded up; 0 if that is below 25."""
    size = math.ceil(min(n / 5, 3 * math.sqrt(n)))
    return size if size >= _FEWEST else 0


def heavy_tails(k: np.ndarray[Any, Any], effective_samples: np.ndarray[Any, Any], n_samples: int) -> float:
    """The share of rows (n,) whose weights have a tail so heavy that the standard error of their mean is unreliable.

    These are rows with k > .7 and fewer than half of the samples effective. With more effective samples all weights are
    nearly equal, and the tail is a small part of their sum. NaN if k is NaN for all rows.
    """
    return math.nan if np.isnan(k).all() else float(((k > HEAVY) & (effective_samples < n_samples / 2)).mean())


def remark(share: float) -> str:
    """The remark printed after a bound whose weights have heavy tails in that share of the rows; else empty."""
    return f"; heavy tails in {share:.0%} of the rows: its error is not known" if share > TOO_HEAVY else ""


class Largest:
    """The n largest of values added in blocks (..., K, B), per (..., B); memory does not grow with their number."""

    def __init__(self, n: int) -> None:
        self.n, self.kept, self.count = n, list[Tensor](), 0

    def add(self, values: Tensor) -> None:
        if self.n:
            self.kept.append(values)
            self.count += values.shape[-2]
            if self.count > 4 * self.n:
                self.kept, self.count = [self.found()], self.n

    def found(self) -> Tensor:
        """The n largest, in descending order, (..., n, B)."""
        return torch.cat(self.kept, -2).topk(self.n, dim=-2).values


def pareto_k(log_w: Tensor) -> Tensor:
    """k of a tail, from its log weights in descending order, the threshold last: (..., n + 1, B) -> (..., B).

    NaN if fewer than 25 of them exceed the threshold, as for a discrete posterior with one nearly certain value, or if
    weights are NaN.
    """
    rows = log_w.movedim(-2, -1)
    rows, shape = rows.reshape(-1, rows.shape[-1]), rows.shape[:-1]  # each row is summed on its own
    over = rows[:, :-1] > rows[:, -1:]
    above = -torch.expm1(rows[:, -1:] - rows[:, :-1]) * torch.exp(rows[:, :-1] - rows[:, :1])  # the largest weight is 1
    above, counts = above.clamp_min(1e-300), over.sum(-1)
    k = torch.full_like(above[:, 0], torch.nan)
    for n in counts.unique().tolist():
        if n >= _FEWEST:
            k[counts == n] = _fit(above[counts == n, :n].contiguous())
    return k.reshape(shape)


def _fit(x: Tensor) -> Tensor:
    """k of excesses x > 0 in descending order, (rows, n) -> (rows,).

    With theta = -k / scale, k is the mean of log(1 - theta x), so the profile likelihood has the one parameter theta.
    Its posterior mean under a weak prior, whose scale is a quartile of x, is computed on a grid. A prior on k, with the
    weight of ten excesses at 1/2, reduces the variance for small tails.
    """
    n = x.shape[-1]
    m = 30 + math.isqrt(n)
    quartile = x[:, n - int(n / 4 + 0.5), None]  # the lower one
    steps = 1 - torch.sqrt(m / (torch.arange(1, m + 1, device=x.device, dtype=x.dtype) - 0.5))
    theta = 1 / x[:, :1] + steps / (3 * quartile)  # (rows, m)
    shapes = torch.stack([torch.log1p(-t[:, None] * x).mean(-1) for t in theta.unbind(-1)], -1)
    rate = torch.where(shapes == 0, 1 / x.mean(-1, keepdim=True), -theta / shapes)
    weights = torch.softmax(n * (rate.log() - shapes - 1), -1)
    k = torch.log1p(-(weights * theta).sum(-1, keepdim=True) * x).mean(-1)
    return (n * k + 10 * 0.5) / (n + 10)
