"""The story a model tells: draw latent sites, observe data sites. Nothing else here knows which paper it is from.

Shapes: x is (*members, B, D) or shared (B, D); distributions have event_shape (J,) or (D,) and batch shape
(*members, B). Several draws per item are repeated rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

from torch import Tensor, nn
from torch.distributions import Distribution

from sparsevae.distributions.family import Family, at_least_float32
from sparsevae.latent.priors import Prior
from sparsevae.likelihoods.base import Likelihood
from sparsevae.sampling.draw import Draw
from sparsevae.sampling.noise import blocks


class Site(NamedTuple):
    """One latent variable: posterior, prior, a draw of the posterior and, for terms that compare, one of the prior."""

    q: Distribution
    p: Distribution
    value: Tensor
    reference: Tensor | None = None


class Trace(NamedTuple):
    """The latent and observed variables of one forward pass. `hard` says that every draw follows its posterior exactly.

    `parents` names, per site, the latents whose draws its distributions depend on. A site that it leaves out is taken
    to depend on all that were drawn before it.
    """

    latents: dict[str, Site]
    observed: dict[str, tuple[Distribution, Tensor]]
    hard: bool
    parents: Mapping[str, tuple[str, ...]] | None = None

    def depends(self, site: str, on: str) -> bool:
        """Whether the laws of a site may change with the draw at another, directly or by way of other draws."""
        before = tuple(self.latents)
        if site in self.latents:
            before = before[: before.index(site)]
        found = (self.parents or {}).get(site, before)
        return any(k == on or self.depends(k, on) for k in found)


class LatentModel(nn.Module):
    """x -> encoder -> q(z|x) -> z -> decoder -> p(x|z), with a prior p(z).

    `forward` reads x and tells the story. The two are apart, so that a bound of many draws reads every row once: a
    model with another generative process overrides `trace`, one whose encoder sees less than x overrides `read`.
    """

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

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        if cls.forward is not LatentModel.forward:
            raise TypeError(
                f"{cls.__name__} overrides `forward`, which bounds do not call: put it into "
                "trace(x, raw, draw, copies=1), where raw is what `read` made of x."
            )
        if cls.encode is not LatentModel.encode and cls.trace is LatentModel.trace:
            raise TypeError(
                f"{cls.__name__} overrides `encode`, which `trace` does not call: make q(z|x) in "
                "posterior_from(raw, copies=1), where raw is what `read` made of x."
            )

    def read(self, x: Tensor) -> Tensor:
        """What the encoder says of x, (*members, B, width): the raw numbers of a posterior."""
        return at_least_float32(self.encoder(x))

    def encode(self, x: Tensor) -> Distribution:
        """q(z|x)."""
        return self.posterior_from(self.read(x))

    def posterior_from(self, raw: Tensor, copies: int = 1) -> Distribution:
        """q(z|x) from what was read, of `copies` copies of every row."""
        return self.posterior.copies(raw, copies)

    def decode(self, z: Tensor) -> Distribution:
        """p(x|z)."""
        return self.likelihood.given(self.decoder, z)

    def forward(self, x: Tensor, draw: Draw) -> Trace:
        return self.trace(x, self.read(x), draw)

    def trace(self, x: Tensor, raw: Tensor, draw: Draw, copies: int = 1) -> Trace:
        """The story of `copies` copies of every row, in blocks (copies, B), from what `read` made of x."""
        x, q = blocks(x, copies), self.posterior_from(raw, copies)
        z = draw(q)
        return Trace({"z": Site(q, self.prior(x, self.encode), z)}, {"x": (self.decode(z), x)}, draw.hard)
