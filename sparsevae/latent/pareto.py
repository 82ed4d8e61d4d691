r"""Pareto k: how heavy the tail of importance weights is, and so whether their mean has an error worth naming.

The largest of K weights, as far as they exceed a threshold, follow a generalized Pareto law, whose density falls like
:math:`w^{-1 - 1/k}`. From k = 1/2 on weights have no variance: a standard error is then made of whatever draws
happened to come. Above .7 that of a practicable number of draws says nothing (Vehtari et al., 2024).

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

HEAVY = 0.7  # the k above which the error of a mean of weights is not to be trusted
TOO_HEAVY = 0.05  # the share of rows with such tails from which on there is a warning
_FEWEST = 25  # weights that a tail is fitted to


def tail_size(n: int) -> int:
    """How many of n weights the tail is: the smaller of n/5 and 3 sqrt(n), rounded up; 0 where that is below 25."""
    size = math.ceil(min(n / 5, 3 * math.sqrt(n)))
    return size if size >= _FEWEST else 0


def heavy_tails(k: np.ndarray[Any, Any], effective_samples: np.ndarray[Any, Any], n_samples: int) -> float:
    """The share of rows (n,) whose weights have a tail so heavy that the error of their mean is not to be trusted.

    That is k > .7 where less than half of the samples are effective. Weights without a variance leave few of them;
    where there are more, all weights are nearly equal and the tail, of whatever form, is a small part of their sum. NaN
    if k is not known of any row.
    """
    return math.nan if np.isnan(k).all() else float(((k > HEAVY) & (effective_samples < n_samples / 2)).mean())


def remark(share: float) -> str:
    """What is added to a bound whose weights have heavy tails in that share of the rows."""
    return f"; heavy tails in {share:.0%} of the rows: its error is not known" if share > TOO_HEAVY else ""


class Largest:
    """The largest of numbers that come a few at a time, (..., K, B); memory does not grow with how many there are."""

    def __init__(self, n: int) -> None:
        self.n, self.kept, self.count = n, list[Tensor](), 0

    def add(self, values: Tensor) -> None:
        if self.n:
            self.kept.append(values)
            self.count += values.shape[-2]
            if self.count > 4 * self.n:
                self.kept, self.count = [self.found()], self.n

    def found(self) -> Tensor:
        """The n largest, falling, (..., n, B)."""
        return torch.cat(self.kept, -2).topk(self.n, dim=-2).values


def pareto_k(log_w: Tensor) -> Tensor:
    """k of a tail, from the log weights of it and of the next smaller one, the threshold: (..., n + 1, B) -> (..., B).

    They fall along n. NaN where fewer than 25 of them exceed the threshold, as with discrete codes of which one is
    nearly certain, or where weights are not numbers.
    """
    rows = log_w.movedim(-2, -1)
    rows, shape = rows.reshape(-1, rows.shape[-1]), rows.shape[:-1]  # each row is summed by itself, whatever the others
    over = rows[:, :-1] > rows[:, -1:]
    above = -torch.expm1(rows[:, -1:] - rows[:, :-1]) * torch.exp(rows[:, :-1] - rows[:, :1])  # the largest weight is 1
    above, counts = above.clamp_min(1e-300), over.sum(-1)
    k = torch.full_like(above[:, 0], torch.nan)
    for n in counts.unique().tolist():
        if n >= _FEWEST:
            k[counts == n] = _fit(above[counts == n, :n].contiguous())
    return k.reshape(shape)


def _fit(x: Tensor) -> Tensor:
    """k of excesses x > 0, falling, (rows, n) -> (rows,).

    With theta = -k / scale the likelihood has one free parameter, k being the mean of log(1 - theta x). Its mean under
    a vague prior, whose scale is a quartile of x, is taken over a grid. A prior on k, of the weight of ten excesses at
    1/2, steadies small tails.
    """
    n = x.shape[-1]
    m = 30 + math.isqrt(n)
    quartile = x[:, n - int(n / 4 + 0.5), None]  # the lowest
    steps = 1 - torch.sqrt(m / (torch.arange(1, m + 1, device=x.device, dtype=x.dtype) - 0.5))
    theta = 1 / x[:, :1] + steps / (3 * quartile)  # (rows, m)
    shapes = torch.stack([torch.log1p(-t[:, None] * x).mean(-1) for t in theta.unbind(-1)], -1)
    rate = torch.where(shapes == 0, 1 / x.mean(-1, keepdim=True), -theta / shapes)
    weights = torch.softmax(n * (rate.log() - shapes - 1), -1)
    k = torch.log1p(-(weights * theta).sum(-1, keepdim=True) * x).mean(-1)
    return (n * k + 10 * 0.5) / (n + 10)
