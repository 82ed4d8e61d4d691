"""What the data are like: extremes, moments, levels, and a fingerprint."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import torch
from torch import Tensor

from sparsevae.checks import check_room
from sparsevae.inputs.rows import Rows, row_blocks

_COLUMN = 16  # float32s that `stats` takes for a column, whatever the number of rows


class Stats(NamedTuple):
    """What scaling and likelihood are chosen by; columns are (D,) float64."""

    low: float
    high: float
    levels: frozenset[float]  # every value, where there are only one or two; else empty
    mean: Tensor
    std: Tensor
    reach: Tensor  # largest distance from the mean


def stats(rows: Rows) -> Stats:
    """One pass over the data in blocks: ranges, column means and population standard deviations."""
    n, d = rows.shape
    check_room(_COLUMN * d, {"features": d}, "what is known of each column", rows.device)
    mean = torch.zeros(d, dtype=torch.float64, device=rows.device)
    square, low, high = torch.zeros_like(mean), torch.full_like(mean, torch.inf), torch.full_like(mean, -torch.inf)
    levels: set[float] = set()
    seen = 0
    for block in row_blocks(rows):
        x = block.double()
        if len(levels) <= 2:
            levels |= {float(x.min()), float(x.max())}
            if len(levels) == 2 and not bool(((x == min(levels)) | (x == max(levels))).all()):
                levels |= {-torch.inf, torch.inf}  # a third value: too many to be levels
        low, high = torch.minimum(low, x.amin(0)), torch.maximum(high, x.amax(0))
        m = len(x)
        centre = x.mean(0)
        delta = centre - mean
        square += (x - centre).square().sum(0) + delta.square() * seen * m / (seen + m)
        mean += delta * m / (seen + m)
        seen += m
    reach = torch.maximum(high - mean, mean - low)
    few = frozenset(levels if len(levels) <= 2 else ())
    return Stats(float(low.min()), float(high.max()), few, mean.cpu(), (square / n).sqrt().cpu(), reach.cpu())


def fingerprint(*tables: Rows) -> str:
    """A short hash of shapes and every value in float32, whatever form they came in: it tells data sets apart."""
    digest = hashlib.sha256("".join(str(rows.shape) for rows in tables).encode())
    for rows in tables:
        for block in row_blocks(rows):
            digest.update(block.cpu().numpy().data)
    return digest.hexdigest()[:16]
