"""Draw: all random draws of the library, as functions of explicit noise.

torch's distributions take no generator, so this library uses them for densities, moments and divergences, and draws
here. `Draw(noise, hard)` is called on a distribution and returns a value. There are three sources of noise:

- `Fresh`: a generator; for ancestral samples.
- `Tape`: static buffers. The first pass records the shapes of the noise that the model takes; the training loop then
  refills the buffers before each step. So a step is a pure function of (weights, batch, noise), and eager, compiled
  and captured runs have the same noise.
- `PerRow`: a hash of (seed, row, sample, unit), so that scores depend neither on order nor on batching.
"""

from __future__ import annotations

from functools import singledispatch
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution, Independent, Normal

from sparsevae.sampling.noise import Noise


class Draw:
    """draw(q) -> value. `hard` draws are exact draws of q; relaxed ones pass gradients through discrete parts."""

    def __init__(self, noise: Noise, *, hard: bool) -> None:
        self.noise = noise
        self.hard = hard

    def __call__(self, q: Distribution) -> Tensor:
        return draw_from(q, self.noise, self.hard)


@singledispatch
def draw_from(q: Distribution, noise: Noise, hard: bool) -> Tensor:
    """A draw of q as a function of noise, by the type of q; register further types with `@draw_from.register`."""
    known = ", ".join(sorted(t.__name__ for t in draw_from.registry if t is not object))
    raise TypeError(f"no draw is defined for a {type(q).__name__}; use one of: {known}.")


@draw_from.register(Independent)
def _(q: Any, noise: Noise, hard: bool) -> Tensor:
    return draw_from(q.base_dist, noise, hard)


@draw_from.register
def _(q: Normal, noise: Noise, hard: bool) -> Tensor:
    return q.loc + q.scale * noise.normal(q.loc)


@draw_from.register
def _(q: torch.distributions.Laplace, noise: Noise, hard: bool) -> Tensor:
    u = noise.uniform(q.loc) - 0.5  # the inverse of the distribution function
    return q.loc - q.scale * u.sign() * torch.log1p(-2 * u.abs())


@draw_from.register
def _(q: torch.distributions.Bernoulli, noise: Noise, hard: bool) -> Tensor:
    """For observations: no gradient passes."""
    return (noise.uniform(q.logits) > torch.sigmoid(-q.logits)).to(q.logits.dtype)
