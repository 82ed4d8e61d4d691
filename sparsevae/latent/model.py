"""LatentModel: encoder, posterior, prior, decoder and likelihood, and the trace of one forward pass.

Shapes: x is (*members, B, D) or shared (B, D); distributions have event_shape (J,) or (D,) and batch shape
(*members, B). Several draws per item are repeated rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.distributions import Distribution, Independent

from sparsevae.distributions.family import Family, at_least_float32
from sparsevae.inputs.batch import Batch
from sparsevae.latent.priors import Prior
from sparsevae.likelihoods.base import Likelihood
from sparsevae.networks.dense import linear_path
from sparsevae.sampling.draw import Draw


class Site(NamedTuple):
    """One latent variable: its posterior, its prior, a draw of the posterior and, for the MMD, a draw of the prior.

    `p` is None for a model without a prior, such as an autoencoder: it has no KL and no bound.
    """

    q: Distribution
    p: Any
    value: Tensor
    reference: Tensor | None = None


class Observed(NamedTuple):
    """One observed variable: its distribution, its value, and a mask of the observed entries (None: all)."""

    dist: Distribution
    value: Tensor
    mask: Tensor | None = None

    def log_prob(self) -> Tensor:
        """log p of the observed entries, (*members, B)."""
        if self.mask is None:
            found: Tensor = self.dist.log_prob(self.value)
            return found
        if not isinstance(self.dist, Independent):
            raise TypeError(f"a mask needs entries that are independent given z, got the distribution {self.dist}.")
        each = self.dist.base_dist.log_prob(torch.where(self.mask, self.value, 0.0))
        return torch.where(self.mask, each, 0.0).sum(-1)


class Trace(NamedTuple):
    """The latent and observed variables of one forward pass. `hard`: every draw is an exact draw of its posterior.

    `parents` names, per site, the latent variables whose draws its distributions depend on. A site that is not in it is
    assumed to depend on all latent variables before it.
    """

    latents: dict[str, Site]
    observed: dict[str, Observed]
    hard: bool
    parents: Mapping[str, tuple[str, ...]] | None = None

    def depends(self, site: str, on: str) -> bool:
        """Whether the distributions of a site depend on the draw at another, directly or through other draws."""
        before = tuple(self.latents)
        if site in self.latents:
            before = before[: before.index(site)]
        found = (self.parents or {}).get(site, before)
        return any(k == on or self.depends(k, on) for k in found)


class LatentModel(nn.Module):
    """x -> encoder -> q(z|x) -> z -> decoder -> p(x|z), with a prior p(z), or None for an autoencoder.

    `forward` is `read` (the encoder) followed by `trace` (draws and distributions), so that a bound with many draws
    runs the encoder once per row. A model with another generative process overrides `trace`; one whose encoder takes
    only part of x overrides `read`.
    """

    labelled: ClassVar[bool] = False  # True if units correspond to labels, so that n_components is fixed by y

    code_kind: str = "mode"  # the kind of code that `codes.code_of` returns
    prior: Any  # a Prior, or None
    cap: int | None = None  # the most units of a code, which training prepares the decoder for: `shown`

    def __init__(
        self,
        encoder: nn.Module,
        posterior: Family,
        decoder: nn.Module,
        likelihood: Likelihood,
        prior: Prior | None,
        n_components: int | None = None,
    ) -> None:
        super().__init__()
        if prior is None and n_components is None:
            raise ValueError("a model without a prior needs n_components, the number of units of its code; got None.")
        self.n_units: Any = n_components
        self.encoder = encoder
        self.posterior = posterior
        self.decoder = decoder
        self.likelihood = likelihood
        self.prior = prior

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        if cls.forward is not LatentModel.forward:
            raise TypeError(
                f"{cls.__name__} overrides `forward`, which bounds do not call: override "
                "trace(batch, raw, draw, copies=1) instead, where raw is the output of `read` for the batch."
            )
        if cls.encode is not LatentModel.encode and cls.trace is LatentModel.trace:
            raise TypeError(
                f"{cls.__name__} overrides `encode`, which `trace` does not call: override "
                "posterior_from(raw, copies=1) instead, where raw is the output of `read` for the batch."
            )

    @property
    def n_components(self) -> int:
        """J, the number of units of a code."""
        return int(self.n_units if self.prior is None else self.prior.n_components)

    def read(self, batch: Batch) -> Tensor:
        """The encoder's output for x, (*members, B, width): the raw values of a posterior. It does not depend on y."""
        return at_least_float32(self.encoder(batch.x))

    def encode(self, x: Tensor) -> Distribution:
        """q(z|x)."""
        return self.posterior_from(self.read(Batch(x)))

    def posterior_from(self, raw: Tensor, copies: int = 1) -> Distribution:
        """q(z|x) from the output of `read`, for `copies` copies of each row."""
        return self.posterior.copies(raw, copies)

    def decode(self, z: Tensor) -> Distribution:
        """p(x|z)."""
        return self.likelihood.given(self.decoder, z)

    def shown(self, z: Tensor, draw: Draw) -> Tensor:
        """What the decoder sees of draws z, (*members, B, J).

        In training with a `cap` a code of real values is cut to that many units in every fourth row, those with the
        largest terms in the output: cutting a code then costs less. Scores are of whole draws.
        """
        whole_numbers = self.posterior.discrete
        if self.cap is None or self.cap >= z.shape[-1] or whole_numbers or draw.hard or not self.training:
            return z
        path = linear_path(self.decoder)
        with torch.no_grad():
            size = z.abs()
            if path is not None:
                atoms = path.weight[..., : path.weight.shape[-2] // self.likelihood.parts, :]
                size = size * torch.linalg.vector_norm(atoms, dim=-2, keepdim=True)
            least = size.topk(self.cap, -1).values[..., -1:]
            whole = (torch.arange(z.shape[-2], device=z.device) % 4 != 0).unsqueeze(-1)
        return torch.where(whole | (size >= least), z, 0.0)

    def forward(self, rows: Batch | Tensor, draw: Draw) -> Trace:
        """The trace of a batch; a tensor x is a batch without targets."""
        batch = Batch.of(rows)
        return self.trace(batch, self.read(batch), draw)

    def trace(self, batch: Batch, raw: Tensor, draw: Draw, copies: int = 1) -> Trace:
        """The trace of `copies` copies of each row, in blocks (copies, B), from the output of `read` for the batch."""
        x, q = batch.copies(copies).x, self.posterior_from(raw, copies)
        z = draw(q)
        p = None if self.prior is None else self.prior(x, self.encode)
        return Trace({"z": Site(q, p, z)}, {"x": Observed(self.decode(self.shown(z, draw)), x)}, draw.hard)
