"""Models with labels: y is one more observed site."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from sparsevae.distributions.concatenated import Concatenated
from sparsevae.distributions.family import Family
from sparsevae.inputs.batch import Batch
from sparsevae.latent.model import LatentModel, Observed, Site, Trace
from sparsevae.latent.priors import Prior
from sparsevae.likelihoods.base import Likelihood
from sparsevae.sampling.draw import Draw

Targets = Callable[[Distribution, Tensor], Distribution]  # (q(z|x), a draw of it) -> the distribution of y
_NO_X = "this model predicts y from x and has no p(x|z)."


class Discriminative(LatentModel):
    """q(z|x) and a distribution of y that depends on it. There is no p(x|z).

    If `targets` returns an `exact` distribution of y, z is not drawn: the site has the mean of q(z|x) in place of a
    draw, and the trace is not hard, so that it has no bound.
    """

    labelled: ClassVar[bool] = True

    def __init__(
        self,
        encoder: nn.Module,
        posterior: Family,
        decoder: nn.Module,
        likelihood: Likelihood,
        prior: Prior | None,
        targets: Targets,
        exact: bool = False,
        n_components: int | None = None,
    ) -> None:
        super().__init__(encoder, posterior, decoder, likelihood, prior, n_components)
        self.targets, self.exact = targets, exact

    def decode(self, z: Tensor) -> Distribution:
        raise ValueError(_NO_X)

    def trace(self, batch: Batch, raw: Tensor, draw: Draw, copies: int = 1) -> Trace:
        x, y = batch.copies(copies)
        if y is None:
            raise ValueError(_NO_X)
        q = self.posterior_from(raw, copies)
        z = q.mean if self.exact else draw(q)
        hard = draw.hard and not self.exact
        p = None if self.prior is None else self.prior(x, self.encode)
        return Trace({"z": Site(q, p, z)}, {"y": Observed(self.targets(q, z), y)}, hard)


class Generative(Discriminative):
    """q(z|x), a distribution of y that depends on it, and p(x|z). With a code of two parts, y depends on the first.

    The parts are separate sites, z and free, so that each gradient estimator has its own draw. They are independent
    given x, and an exact distribution of y depends on the draw of neither.
    """

    def decode(self, z: Tensor) -> Distribution:
        return LatentModel.decode(self, z)

    def trace(self, batch: Batch, raw: Tensor, draw: Draw, copies: int = 1) -> Trace:
        x, y = batch.copies(copies)
        q, p = self.posterior_from(raw, copies), self.prior(x, self.encode)
        sites = [Site(a, b, draw(a)) for a, b in zip(parts_of(q), parts_of(p), strict=True)]
        observed = {} if y is None else {"y": Observed(self.targets(sites[0].q, sites[0].value), y)}
        observed["x"] = Observed(self.decode(torch.cat([s.value for s in sites], -1)), x)
        parents: dict[str, tuple[str, ...]] = {"free": (), "y": () if self.exact else ("z",)}
        return Trace(dict(zip(("z", "free"), sites, strict=False)), observed, draw.hard, parents)


def parts_of(dist: Distribution) -> tuple[Distribution, ...]:
    """The parts of a Concatenated; a tuple of one for any other distribution."""
    return dist.parts if isinstance(dist, Concatenated) else (dist,)
