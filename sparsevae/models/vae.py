"""The variational autoencoder and its weighted twin: the dense baselines of all five papers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from sparsevae.checks import In, OneOf
from sparsevae.distributions.family import Family
from sparsevae.estimator.coder import SparseCoder
from sparsevae.latent.posteriors import GaussianPosterior, PointPosterior
from sparsevae.latent.priors import Prior, StandardNormal
from sparsevae.parameters import parameters


class GaussianCoder(SparseCoder):
    """q(z|x) is Gaussian, p(z) is N(0, 1): what the dense models share."""

    def posterior(self) -> Family:
        return GaussianPosterior()

    def prior(self) -> Prior:
        return StandardNormal(int(self.n_components))


@parameters
class VAE(GaussianCoder):
    r"""Variational autoencoder: a dense Gaussian code.

    .. math:: \mathcal L = -E_{q(z|x)} \log p(x|z) + KL(q(z|x) \,\|\, \mathcal N(0, 1))

    With noise=False the code is the mean itself and the KL keeps only its quadratic part, z^2/2 (Asperti, figure 3B):
    without noise no unit is pruned. Scores are then no bounds.

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

    noise: Annotated[bool, OneOf(0, 1), "Whether codes are drawn; False: an autoencoder with z^2/2 for KL."] = True

    def posterior(self) -> Family:
        return super().posterior() if self.noise else PointPosterior()


@parameters
class BetaVAE(VAE):
    r"""VAE whose KL counts beta times: fewer, better separated units, or for texts more. Scores keep unit weights.

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

    def weights(self) -> dict[str, float]:
        return {"kl_z": float(self._value("beta"))}
