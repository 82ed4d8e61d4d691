"""Models with labels: y is one more observed site."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from sparsevae.distributions.concatenated import Concatenated
from sparsevae.distributions.family import Family
from sparsevae.latent.model import LatentModel, Site, Trace
from sparsevae.latent.priors import Prior
from sparsevae.likelihoods.base import Likelihood
from sparsevae.sampling.draw import Draw
from sparsevae.sampling.noise import blocks

Targets = Callable[[Distribution, Tensor], Distribution]  # from q(z|x) and a draw of it to the law of y
_NO_X = "this model predicts y from x and has no p(x|z)."


class Discriminative(LatentModel):
    """q(z|x), and what it says of y. There is no p(x|z).

    Rows are (*members, B, D + L), the features and then the targets. Where `targets` is an `exact` law of y nothing
    has to be drawn: the mean stands in the place of the draw, and no bound can be made of the trace.

    `at` is the column where targets begin. It is D, unless rows come in several widths: then it is -L, and every row
    of the story has targets. An encoder that finds the end of x by itself, as a reader of sentences does, may still be
    given rows with targets or without.
    """

    labelled: ClassVar[bool] = True

    def __init__(
        self,
        encoder: nn.Module,
        posterior: Family,
        decoder: nn.Module,
        likelihood: Likelihood,
        prior: Prior,
        n_features: int,
        targets: Targets,
        exact: bool = False,
        at: int | None = None,
    ) -> None:
        super().__init__(encoder, posterior, decoder, likelihood, prior)
        self.n_features, self.targets, self.exact = n_features, targets, exact
        self.at = n_features if at is None else at

    def split(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """x and y of rows [x | y]."""
        return rows[..., : self.at], rows[..., self.at :]

    def read(self, rows: Tensor) -> Tensor:
        """What the encoder says of a story's rows; their targets are not looked at."""
        return super().read(self.split(rows)[0])

    def encode(self, x: Tensor) -> Distribution:
        """q(z|x); targets may stand beside x, or not."""
        return self.posterior_from(super().read(x[..., : self.n_features]))

    def decode(self, z: Tensor) -> Distribution:
        raise ValueError(_NO_X)

    def trace(self, rows: Tensor, raw: Tensor, draw: Draw, copies: int = 1) -> Trace:
        x, y = self.split(blocks(rows, copies))
        if not y.shape[-1]:
            raise ValueError(_NO_X)
        q = self.posterior_from(raw, copies)
        z = q.mean if self.exact else draw(q)
        hard = draw.hard and not self.exact
        return Trace({"z": Site(q, self.prior(x, self.encode), z)}, {"y": (self.targets(q, z), y)}, hard)


class Generative(Discriminative):
    """q(z|x), what it says of y, and p(x|z). A code of two parts says of y what its first part says.

    The parts are sites of their own, z and free, so that every estimator of gradients finds its draw. They are
    independent given x, and an exact law of y hears neither.
    """

    def decode(self, z: Tensor) -> Distribution:
        return LatentModel.decode(self, z)

    def trace(self, rows: Tensor, raw: Tensor, draw: Draw, copies: int = 1) -> Trace:
        x, y = self.split(blocks(rows, copies))
        q, p = self.posterior_from(raw, copies), self.prior(x, self.encode)
        sites = [Site(a, b, draw(a)) for a, b in zip(parts_of(q), parts_of(p), strict=True)]
        observed = {"y": (self.targets(sites[0].q, sites[0].value), y)} if y.shape[-1] else {}
        observed["x"] = self.decode(torch.cat([s.value for s in sites], -1)), x
        parents: dict[str, tuple[str, ...]] = {"free": (), "y": () if self.exact else ("z",)}
        return Trace(dict(zip(("z", "free"), sites, strict=False)), observed, draw.hard, parents)


def parts_of(dist: Distribution) -> tuple[Distribution, ...]:
    return dist.parts if isinstance(dist, Concatenated) else (dist,)
