"""What a model is built for, what building gives, and the networks in between."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from sparsevae.checks import check_room
from sparsevae.distributions.family import Family
from sparsevae.estimator.ration import Ration
from sparsevae.inputs.base import Input
from sparsevae.latent.model import LatentModel
from sparsevae.latent.objective import Objective
from sparsevae.latent.priors import Prior
from sparsevae.likelihoods.base import REGISTRY, Likelihood
from sparsevae.networks.architectures import NETWORKS, Sizes, chosen, image_of, with_head
from sparsevae.networks.dense import initialise
from sparsevae.networks.recurrent import Embedding
from sparsevae.parameters import documented
from sparsevae.schedules import Schedule

if TYPE_CHECKING:
    from sparsevae.estimator.coder import SparseCoder

_LARGE = 1000  # a size that may make a network large


class DataSpec(NamedTuple):
    """What a model is built for."""

    input: Input
    n_rows: int  # of training
    members: tuple[int, ...] = ()  # of a stack of models


def start_prior(model: LatentModel, x: Tensor) -> None:
    """Show a prior that learns some rows, (n, D), before the first step."""
    if model.prior is not None:
        model.prior.start(x)


class Build(NamedTuple):
    """A model as its paper has it: networks, what training minimises, and what changes on the way.

    `start(model, x)` is one look at some rows, (n, D) in the networks' units, before the first step.
    """

    model: LatentModel
    objective: Objective
    schedules: Mapping[str, Schedule] = {}
    start: Callable[[LatentModel, Tensor], None] = start_prior


def likelihood_for(est: SparseCoder) -> Likelihood:
    """The family of p(x|z)."""
    settings = {name: getattr(est, name, 1.0) for name in ("variance_floor", "variance", "hidden_")}
    return REGISTRY[est.likelihood_].of(settings | est.fitted_.input.sizes())


def sizes_of(est: SparseCoder, data: DataSpec, raw_z: int, units: int, raw_x: int = 0) -> Sizes:
    """What encoder and decoder must fit; refuses a shape of images that does not hold a row, whoever looks at it."""
    image, given = est.image_shape, data.input.sizes()
    words = Embedding(given["words"], given["embedding"]) if given else None  # a vector for every word
    sizes = Sizes(data.input.width, raw_z, units, raw_x, est.hidden_, image, data.members, words)
    if image is not None:
        image_of(sizes)
    return sizes


def encoder_of(est: SparseCoder, sizes: Sizes, weights: torch.Generator | None) -> nn.Module:
    return _network("encoder", est, est.encoder, sizes, (sizes.features, sizes.raw_z), weights)


def decoder_of(est: SparseCoder, sizes: Sizes, weights: torch.Generator | None) -> nn.Module:
    return _network("decoder", est, getattr(est, "decoder", None), sizes, (sizes.units, sizes.raw_x), weights)


def _network(
    name: str,
    est: SparseCoder,
    own: nn.Module | None,
    sizes: Sizes,
    widths: tuple[int, int],
    weights: torch.Generator | None,
) -> nn.Module:
    """One of ours by its name, or the user's own (with its weights) and a linear head."""
    if own is not None:
        return with_head(name, own, *widths, weights)
    network: nn.Module = getattr(NETWORKS[chosen(est.network, texts=sizes.words is not None)], name)(sizes)
    initialise(network, weights)
    return network


Network = Callable[["SparseCoder", Sizes, "torch.Generator | None"], nn.Module]


def assemble(
    est: SparseCoder,
    data: DataSpec,
    posterior: Family,
    prior: Prior,
    weights: torch.Generator | None,
    model_class: Callable[..., LatentModel] = LatentModel,
    *,
    encoder: Network | None = None,
    decoder: Network | None = None,
) -> LatentModel:
    """Likelihood, encoder, decoder and prior, their first weights drawn in this order, as one model.

    Where nothing is decoded there is no decoder, and no likelihood of x. `encoder` and `decoder` build other networks.
    """
    n = prior.n_components
    likelihood = likelihood_for(est) if est.decodes else Likelihood()
    initialise(likelihood, weights)
    raw_x = likelihood.width(data.input.width) if est.decodes else 0
    sizes = sizes_of(est, data, posterior.width(n), n, raw_x)
    reads = (encoder or encoder_of)(est, sizes, weights)
    writes = (decoder or decoder_of)(est, sizes, weights) if est.decodes else nn.Identity()
    initialise(prior, weights)
    return model_class(reads, posterior, writes, likelihood, prior)


class Room(Ration):
    """Refuses networks that take more than all memory, with their gradients and an optimiser's moments."""

    def __init__(self, est: SparseCoder, data: DataSpec, device: torch.device) -> None:
        super().__init__()
        self.est, self.data, self.device, self.numbers = est, data, device, 0

    def made(self, shape: tuple[int, ...]) -> None:
        self.numbers += 4 * math.prod(shape)
        if self.numbers > _LARGE**2:  # what all machines have need not be compared
            sizes = sizes_in_force(self.est, self.data.input)
            check_room(self.numbers, sizes, "networks and their training", self.device)


def sizes_in_force(est: SparseCoder, data: Input) -> dict[str, Any]:
    """The constructor's integers that say how large networks are, if any is large the large ones; X's own size."""
    kinds = {p.name: str(p.type) for p in documented(type(est))}
    found = {k: getattr(est, k) for k, kind in kinds.items() if "int" in kind and "float" not in kind}
    found |= {"hidden": est.hidden_}
    found |= {f"text.{k}": v for k, v in data.sizes().items() if k == "embedding"}
    large = {k: v for k, v in found.items() if np.max(v or 0, initial=0) >= _LARGE}
    return (large or found) | data.about()
