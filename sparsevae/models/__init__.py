"""The models, one paper per file. Importing this folder fills the registry."""

from sparsevae.estimator.coder import SparseCoder
from sparsevae.estimator.registry import REGISTRY, SUPERVISED, known
from sparsevae.estimator.saving import load
from sparsevae.estimator.supervised import FromLabels
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
    "load",
]

for _name, _class in list(globals().items()):
    if isinstance(_class, type) and issubclass(_class, SparseCoder) and _class is not SparseCoder:
        (SUPERVISED if issubclass(_class, FromLabels) else REGISTRY)[_name] = _class
