"""DataSpec and Build, the argument and the result of `build`, and the networks of a model."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from sparsevae.checks import check_room
from sparsevae.distributions.family import Family
from sparsevae.inputs.base import Input
from sparsevae.latent.model import LatentModel
from sparsevae.latent.objective import Objective
from sparsevae.latent.priors import Prior
from sparsevae.latent.start import start_dictionary
from sparsevae.likelihoods.base import REGISTRY, Likelihood
from sparsevae.networks.architectures import NETWORKS, Sizes, chosen, image_of, with_head
from sparsevae.networks.dense import Skip, initialise, linear_path
from sparsevae.networks.ration import Ration
from sparsevae.networks.recurrent import Embedding
from sparsevae.parameters import documented
from sparsevae.schedules import Schedule

if TYPE_CHECKING:
    from sparsevae.estimator.coder import SparseCoder

_LARGE = 1000  # sizes from which on networks may be large


class DataSpec(NamedTuple):
    """The data of a model: kind, number of training rows, and the shape of a stack of models."""

    input: Input
    n_rows: int
    members: tuple[int, ...] = ()


def start_model(model: LatentModel, x: Tensor, how: str, weights: torch.Generator) -> None:
    """Begin the dictionary (`latent.start`) and a learned prior at some rows x, (n, D)."""
    start_dictionary(model, x, how, weights)
    if model.prior is not None:
        model.prior.start(x, model.encode)


class Build(NamedTuple):
    """A model, its training objective and its schedules by the name of the knob.

    `start(model, x, how, generator)` is called once before the first step, with some prepared rows x, (n, D), and the
    value of the constructor's `start`.
    """

    model: LatentModel
    objective: Objective
    schedules: Mapping[str, Schedule] = {}
    start: Callable[[LatentModel, Tensor, str, torch.Generator], None] = start_model


def likelihood_for(est: SparseCoder) -> Likelihood:
    """p(x|z) as a family over raw decoder outputs."""
    settings = {name: getattr(est, name, 1.0) for name in ("variance_floor", "variance", "hidden_")}
    return REGISTRY[est.likelihood_].of(settings | {"features": est.input_.width} | est.input_.sizes())


def sizes_of(est: SparseCoder, data: DataSpec, raw_z: int, units: int, raw_x: int = 0) -> Sizes:
    """The sizes of encoder and decoder. An image_shape that does not fit the rows is refused for every network."""
    image, given = est.image_shape, data.input.sizes()
    words = Embedding(given["words"], given["embedding"]) if given else None
    ascending = None if est.decoder_hidden is None else tuple(int(h) for h in est.decoder_hidden)
    sizes = Sizes(data.input.width, raw_z, units, raw_x, est.hidden_, image, data.members, words, ascending)
    if image is not None:
        image_of(sizes)
    return sizes


Network = Callable[["SparseCoder", Sizes, "torch.Generator | None"], nn.Module]


def _network(
    name: Literal["encoder", "decoder"], est: SparseCoder, sizes: Sizes, weights: torch.Generator | None
) -> nn.Module:
    """The user's own module, with its weights, and a linear head; or the one that `network` names, weights drawn."""
    own: nn.Module | None = getattr(est, name)
    widths = (sizes.features, sizes.raw_z) if name == "encoder" else (sizes.units, sizes.raw_x)
    if own is not None:
        return with_head(name, own, *widths, weights)
    network: nn.Module = getattr(NETWORKS[chosen(est.network, texts=sizes.words is not None)], name)(sizes)
    if est.value("skip") and linear_path(network) is None:
        network = Skip(network, *widths, sizes.members)
    initialise(network, weights)
    return network


encoder_of: Network = partial(_network, "encoder")
decoder_of: Network = partial(_network, "decoder")


def assemble(
    est: SparseCoder,
    data: DataSpec,
    posterior: Family,
    prior: Prior,
    weights: torch.Generator | None,
    model_class: Callable[..., LatentModel] = LatentModel,
    *,
    encoder: Network = encoder_of,
    decoder: Network = decoder_of,
) -> LatentModel:
    """Likelihood, encoder, decoder and prior as one model; first weights are drawn in this order.

    A model that does not decode has neither a decoder nor a likelihood of x.
    """
    n = prior.n_components
    likelihood = likelihood_for(est) if est.decodes else Likelihood()
    initialise(likelihood, weights)
    raw_x = likelihood.width(data.input.width) if est.decodes else 0
    sizes = sizes_of(est, data, posterior.width(n), n, raw_x)
    encoding = encoder(est, sizes, weights)
    decoding = decoder(est, sizes, weights) if est.decodes else nn.Identity()
    initialise(prior, weights)
    model = model_class(encoding, posterior, decoding, likelihood, prior)
    model.code_kind = est.value("code")
    return model


class Room(Ration):
    """Refuse networks that need more than all memory, gradients and the optimiser's moments included."""

    def __init__(self, est: SparseCoder, data: DataSpec, device: torch.device) -> None:
        super().__init__()
        self.est, self.data, self.device, self.numbers = est, data, device, 0

    def made(self, shape: tuple[int, ...]) -> None:
        self.numbers += 4 * math.prod(shape)
        if self.numbers > _LARGE**2:  # every machine has room for fewer
            check_room(self.numbers, self._sizes(), "networks and their training", self.device)

    def _sizes(self) -> dict[str, Any]:
        """For the message: the integers of the constructor that set the networks' sizes, the large ones if any are."""
        kinds = {p.name: str(p.type) for p in documented(type(self.est))}
        found = {k: getattr(self.est, k) for k, kind in kinds.items() if "int" in kind and "float" not in kind}
        found |= {"hidden": self.est.hidden_}
        found |= {f"text.{k}": v for k, v in self.data.input.sizes().items() if k == "embedding"}
        large = {k: v for k, v in found.items() if np.max(v or 0, initial=0) >= _LARGE}
        return (large or found) | self.data.input.about()
