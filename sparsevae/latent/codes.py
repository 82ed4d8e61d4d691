"""Functions of codes: their sites in a trace, units that are on, means, capping, active units."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution

from sparsevae.latent.model import Site, Trace

_CODES = ("z", "free")  # other latent variables, such as HSVAE's gamma, are no part of the code


def code_sites(trace: Trace) -> list[Site]:
    """The sites of a trace that make up the code."""
    return [site for name, site in trace.latents.items() if name in _CODES]


def on(site: Site) -> Tensor:
    """Which units are on in the draw, (B, J): `q.on` if units that are off are not zero, else the non-zeros."""
    chosen: Tensor | None = getattr(site.q, "on", None)
    return site.value != 0 if chosen is None else chosen


def gated(q: Distribution) -> bool:
    """Whether q has p_on and a `loc`, the mean of units that are on."""
    return hasattr(q, "p_on") and hasattr(q, "loc")


def means_of(qs: Sequence[Any]) -> dict[str, Tensor]:
    """Means of a code, (B, J) each: `slab` and `gated`, p_on times slab, if all parts are gated, else `mean`."""
    kinds = {"slab": "loc", "gated": "mean"} if all(map(gated, qs)) else {"mean": "mean"}
    return {name: torch.cat([getattr(q, kind) for q in qs], -1) for name, kind in kinds.items()}


def contributions(q: Any, gain: Tensor) -> Tensor:
    """The root of p_on z^2 gain of every unit in the mode of q, (..., J): what it brings to the output."""
    found: Tensor = (q.p_on * gain).sqrt() * q.mode.abs()
    return found


def capped(q: Any, cap: int, gain: Tensor | None = None) -> Tensor:
    """The mode of q with at most `cap` of its non-zeros, (..., J); the others are set to zero.

    Units are kept by largest contribution, or without `gain`, (J,), by largest `q.ranking`; then by largest |value|,
    then in order.
    """
    z: Tensor = q.mode
    on = z != 0
    ranking = q.ranking if gain is None else contributions(q, gain)
    by_size = _falling(torch.where(on, z.abs(), -1.0))  # units that are off come last
    ranked = torch.where(on, ranking, -torch.inf).gather(-1, by_size)
    kept = by_size.gather(-1, _falling(ranked))[..., :cap]
    return torch.where(torch.zeros_like(on).scatter(-1, kept, True), z, 0.0)


def _falling(values: Tensor) -> Tensor:
    """Indices that sort values along the last dimension, largest first; equal values stay in order."""
    return torch.sort(values, dim=-1, descending=True, stable=True).indices


ACTIVE_VARIANCE = 0.01  # a unit is active if the variance over rows of the mean of q(z|x) is above this


def active(spread: Tensor, *, noisy: bool, least: float = ACTIVE_VARIANCE) -> Tensor:
    """Which units are active, (..., J), from `spread`, the variance over rows of the mean of q(z|x): where it is > .01.

    This is the criterion of Burda et al. (2016), for a prior of variance 1. The scale of a code without noise is
    arbitrary, since a penalty can shrink it without changing p(x|z): its criterion is .01 of the largest variance.
    """
    return spread > least * (1.0 if noisy else spread.amax(-1, keepdim=True))
