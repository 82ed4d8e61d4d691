"""The variational autoencoder and beta-VAE: the dense baselines of all five papers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from torch import Generator

from sparsevae.checks import In, OneOf
from sparsevae.estimator.assemble import Build, DataSpec, assemble
from sparsevae.estimator.coder import SparseCoder
from sparsevae.estimator.fields import FromTexts, ObservedData, Units
from sparsevae.latent.objective import Objective, nll
from sparsevae.latent.posteriors import GaussianPosterior, PointPosterior
from sparsevae.latent.priors import StandardNormal
from sparsevae.parameters import parameters


@parameters
class Noise:
    """Field of models with a Gaussian code."""

    noise: Annotated[bool, OneOf(0, 1), "True: codes are drawn; False: an autoencoder with penalty z^2/2."] = True


@parameters
class VAE(Noise, Units, ObservedData, FromTexts, SparseCoder):
    r"""Variational autoencoder: a dense Gaussian code.

    .. math:: \mathcal L = -E_{q(z|x)} \log p(x|z) + KL(q(z|x) \,\|\, \mathcal N(0, 1))

    With noise=False the code is the mean and the KL is replaced by its quadratic part, z^2/2 (Asperti, figure 3B):
    without noise no unit is pruned. Scores are then not bounds.

    {parameters}

    {attributes}

    References
    ----------
    Kingma and Welling, "Auto-encoding variational Bayes", 2014.

    Examples
    --------
    >>> import sparsevae as sv
    >>> X = sv.data.load("digits").X
    >>> est = sv.VAE(8, training=sv.Training(steps=30, verbose=0)).fit(X)
    >>> est.transform(X).shape
    (1438, 8)
    """

    def build(self, data: DataSpec, weights: Generator | None) -> Build:
        posterior = GaussianPosterior() if self.noise else PointPosterior()
        model = assemble(self, data, posterior, StandardNormal(int(self.n_components)), weights)
        return Build(model, Objective(nll, self.kl_term(), weights={"kl_z": 1.0}))


@parameters
class BetaVAE(Noise, Units, ObservedData, FromTexts, SparseCoder):
    r"""VAE with weight beta on the KL. Scores have unit weights.

    .. math:: \mathcal L = -E_{q(z|x)} \log p(x|z) + \beta\, KL(q(z|x) \,\|\, \mathcal N(0, 1))

    {parameters}

    {attributes}

    References
    ----------
    Higgins et al., "beta-VAE: learning basic visual concepts with a constrained variational framework", 2017.

    Examples
    --------
    >>> import sparsevae as sv
    >>> X = sv.data.load("digits").X
    >>> est = sv.BetaVAE(8, beta=2.0, training=sv.Training(steps=30, verbose=0)).fit(X)
    >>> est.history_.column("kl_z")[-1] > 0
    True
    """

    defaults_by_kind: ClassVar[Mapping[str, Mapping[str, Any]]] = {"numbers": {"beta": 4.0}, "texts": {"beta": 0.1}}

    beta: Annotated[float | None, In(0), "Weight of the KL in training; None: 4, for texts .1."] = None

    def build(self, data: DataSpec, weights: Generator | None) -> Build:
        posterior = GaussianPosterior() if self.noise else PointPosterior()
        model = assemble(self, data, posterior, StandardNormal(int(self.n_components)), weights)
        return Build(model, Objective(nll, self.kl_term(), weights={"kl_z": float(self.value("beta"))}))
