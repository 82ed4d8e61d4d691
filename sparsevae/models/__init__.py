"""The models, one paper a file. Importing this folder is the registry."""

from sparsevae.estimator import SparseCoder
from sparsevae.models.vae import VAE, BetaVAE
from sparsevae.models.vsc import VSC

__all__ = ["REGISTRY", "VAE", "VSC", "BetaVAE"]

REGISTRY: dict[str, type[SparseCoder]] = {c.__name__: c for c in (VAE, BetaVAE, VSC)}
"""Every model by name: what the command line offers and what a stored folder may name."""
