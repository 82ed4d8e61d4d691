"""The models, one paper a file. Importing this folder is the registry."""

from sparsevae.estimator import SparseCoder
from sparsevae.models.beta_tcvae import BetaTCVAE
from sparsevae.models.capacity_vae import CapacityVAE
from sparsevae.models.discrete_vae import DiscreteVAE
from sparsevae.models.mat import MAT
from sparsevae.models.pseudo_vsc import PseudoVSC
from sparsevae.models.sdlgm import SDLGM
from sparsevae.models.vae import VAE, BetaVAE
from sparsevae.models.vsc import VSC

__all__ = ["MAT", "REGISTRY", "SDLGM", "VAE", "VSC", "BetaTCVAE", "BetaVAE", "CapacityVAE", "DiscreteVAE", "PseudoVSC"]

REGISTRY: dict[str, type[SparseCoder]] = {
    name: c
    for name, c in list(globals().items())
    if isinstance(c, type) and issubclass(c, SparseCoder) and c is not SparseCoder
}
"""Every model by name: what the command line offers, what `sparsevae.Name` finds, what a stored folder may name."""
