"""The models, one paper a file. Importing this folder is the registry."""

from sparsevae.estimator import SparseCoder
from sparsevae.models.beta_tcvae import BetaTCVAE
from sparsevae.models.capacity_vae import CapacityVAE
from sparsevae.models.code_classifier import CodeClassifier
from sparsevae.models.discrete_vae import DiscreteVAE
from sparsevae.models.hsvae import HSVAE
from sparsevae.models.mat import MAT
from sparsevae.models.pseudo_vsc import PseudoVSC
from sparsevae.models.sdlgm import SDLGM
from sparsevae.models.sdlgm_classifier import SDLGMClassifier
from sparsevae.models.sdlgm_counter import SDLGMCounter
from sparsevae.models.vae import VAE, BetaVAE
from sparsevae.models.vsc import VSC
from sparsevae.supervised import LabelledCoder

__all__ = [
    "HSVAE",
    "MAT",
    "REGISTRY",
    "SDLGM",
    "SUPERVISED",
    "VAE",
    "VSC",
    "BetaTCVAE",
    "BetaVAE",
    "CapacityVAE",
    "CodeClassifier",
    "DiscreteVAE",
    "PseudoVSC",
    "SDLGMClassifier",
    "SDLGMCounter",
    "known",
]

_CLASSES = {name: c for name, c in list(globals().items()) if isinstance(c, type) and issubclass(c, SparseCoder)}

REGISTRY: dict[str, type[SparseCoder]] = {
    name: c for name, c in _CLASSES.items() if c is not SparseCoder and not issubclass(c, LabelledCoder)
}
"""Every model that learns from X alone, by name."""

SUPERVISED: dict[str, type[LabelledCoder]] = {
    name: c for name, c in _CLASSES.items() if c is not LabelledCoder and issubclass(c, LabelledCoder)
}
"""Every model that learns from X and y."""


def known() -> dict[str, type[SparseCoder]]:
    """Both: what the command line offers, what `sparsevae.Name` finds, what a stored folder may name."""
    return {**REGISTRY, **SUPERVISED}
