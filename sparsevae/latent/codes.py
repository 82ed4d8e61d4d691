"""What is said of codes: their latent variables, which units came out on, their means, and what a cap keeps of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution

from sparsevae.latent.model import Site, Trace

_CODES = ("z", "free")  # other latent variables, such as HSVAE's gamma, govern these


def code_sites(trace: Trace) -> list[Site]:
    """The latent variables that a code is made of."""
    return [site for name, site in trace.latents.items() if name in _CODES]


def on(site: Site) -> Tensor:
    """Which units came out on, (B, J): as the draw chose where off units have a size of their own, else not zero."""
    chosen: Tensor | None = getattr(site.q, "on", None)
    return site.value != 0 if chosen is None else chosen


def gated(q: Distribution) -> bool:
    """Whether units have a probability to be on, and a value for when they are."""
    return hasattr(q, "p_on") and hasattr(q, "loc")


def means_of(qs: Sequence[Any]) -> dict[str, Tensor]:
    """Of the laws that make a code, (B, J) each: with gates `slab` means and P(on) times them, else the one `mean`."""
    kinds = {"slab": "loc", "gated": "mean"} if all(map(gated, qs)) else {"mean": "mean"}
    return {name: torch.cat([getattr(q, kind) for q in qs], -1) for name, kind in kinds.items()}


def capped(q: Any, cap: int) -> Tensor:
    """The mode of q with at most `cap` of its non-zeros, (..., J): a cap turns units off, never on.

    The likeliest gates stay, by `q.ranking`; of equal gates the largest |values|, and of these the first units. Where
    no gate is ever off, as with alpha = 1, the values alone decide.
    """
    z: Tensor = q.mode
    on = z != 0
    by_size = _falling(torch.where(on, z.abs(), -1.0))  # units that are off come last
    gates = torch.where(on, q.ranking, -torch.inf).gather(-1, by_size)
    kept = by_size.gather(-1, _falling(gates))[..., :cap]
    return torch.where(torch.zeros_like(on).scatter(-1, kept, True), z, 0.0)


def _falling(values: Tensor) -> Tensor:
    """The order in which values fall along the last dimension, the first of equals first."""
    return torch.sort(values, dim=-1, descending=True, stable=True).indices


ACTIVE_VARIANCE = 0.01  # a unit is active when the mean of q(z|x) varies by more than this over the rows


def active(spread: Tensor, *, noisy: bool, least: float = ACTIVE_VARIANCE) -> Tensor:
    """Which units are active, from the variance over rows of the mean of q(z|x), (..., J): where it is above .01.

    So Burda et al. (2016) have it, beside a prior of variance 1. Without noise a code has no scale, since a penalty
    shrinks it at no cost to p(x|z): there it is .01 of the largest unit's variance.
    """
    return spread > least * (1.0 if noisy else spread.amax(-1, keepdim=True))
