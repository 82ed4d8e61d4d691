"""The story a model tells: draw latent sites, observe data sites. Nothing else here knows which paper it is from.

Shapes: x is (*members, B, D) or shared (B, D); distributions have event_shape (J,) or (D,) and batch shape
(*members, B). Several draws per item are repeated rows.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from torch import Tensor, nn
from torch.distributions import Distribution

from sparsevae.draw import Draw
from sparsevae.families import Family, Likelihood, wide
from sparsevae.priors import Prior

__all__ = ["LatentModel", "Site", "Trace"]


class Site(NamedTuple):
    """One latent variable: posterior, prior, a draw of the posterior and, for terms that compare, one of the prior."""

    q: Distribution
    p: Distribution
    value: Tensor
    reference: Tensor | None = None


class Trace(NamedTuple):
    """One telling of the story. `hard` says that every draw follows its posterior exactly."""

    latents: dict[str, Site]
    observed: dict[str, tuple[Distribution, Tensor]]
    hard: bool


class LatentModel(nn.Module):
    """x -> encoder -> q(z|x) -> z -> decoder -> p(x|z), with a prior p(z)."""

    labelled: ClassVar[bool] = False  # whether labels say what the units are: their number is then no choice

    def __init__(
        self, encoder: nn.Module, posterior: Family, decoder: nn.Module, likelihood: Likelihood, prior: Prior
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.posterior = posterior
        self.decoder = decoder
        self.likelihood = likelihood
        self.prior = prior

    def encode(self, x: Tensor) -> Distribution:
        """q(z|x)."""
        q: Distribution = self.posterior(wide(self.encoder(x)))
        return q

    def decode(self, z: Tensor) -> Distribution:
        """p(x|z)."""
        return self.likelihood.given(self.decoder, z)

    def forward(self, x: Tensor, draw: Draw) -> Trace:
        q = self.encode(x)
        z = draw(q)
        return Trace({"z": Site(q, self.prior(x, self.encode), z)}, {"x": (self.decode(z), x)}, draw.hard)
