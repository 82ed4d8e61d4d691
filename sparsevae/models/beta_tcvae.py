"""beta-TCVAE: a VAE with weight beta on the total correlation of the units (Chen et al., 2018)."""

from __future__ import annotations

from typing import Annotated

from torch import Generator

from sparsevae.checks import In, OneOf
from sparsevae.estimator.assemble import Build, DataSpec, assemble
from sparsevae.estimator.coder import SparseCoder
from sparsevae.estimator.fields import FromTexts, ObservedData, Units
from sparsevae.latent.objective import Objective, nll
from sparsevae.latent.posteriors import GaussianPosterior
from sparsevae.latent.priors import StandardNormal
from sparsevae.latent.terms import TC_ESTIMATORS, total_correlation
from sparsevae.parameters import parameters


@parameters
class BetaTCVAE(Units, ObservedData, FromTexts, SparseCoder):
    r"""VAE whose KL is split in three, with a weight on the total correlation of the units.

    .. math:: \mathcal L = -E_{q} \log p(x|z) + I(x; z) + \beta\, KL(q(z) \,\|\, \textstyle\prod_j q(z_j))
       + \sum_j KL(q(z_j) \,\|\, p(z_j))

    The terms `mi`, `tc` and `dim_kl` are estimated from the batch (the weighted estimator is biased); scores are those
    of a VAE, with unit weights.

    All pairs of a batch are compared in a few arrays (B, B, J) at a time: 50 MB each for 500 rows of 50 units.

    {parameters}

    {attributes}

    References
    ----------
    Chen, Li, Grosse, Duvenaud, "Isolating sources of disentanglement in variational autoencoders", 2018.

    Examples
    --------
    >>> import sparsevae as sv
    >>> X = sv.data.load("digits").X
    >>> est = sv.BetaTCVAE(8, beta=6.0, training=sv.Training(steps=30, verbose=0)).fit(X)
    >>> {"mi", "tc", "dim_kl"} <= set(est.history_.names())
    True
    """

    beta: Annotated[float, In(0), "Weight of the total correlation in training."] = 6.0
    estimator: Annotated[str, OneOf(*TC_ESTIMATORS), "How a batch estimates q(z)."] = "stratified"

    def rules(self) -> None:
        self.refuse_free_bits()
        if self.training_settings().n_samples != 1:
            raise ValueError("BetaTCVAE compares every row of a batch with every other: use training.n_samples=1.")
        if self.training_settings().batch_size == 1:
            raise ValueError(
                "BetaTCVAE compares the rows of a batch with each other: use training.batch_size=2 or more."
            )

    def build(self, data: DataSpec, weights: Generator | None) -> Build:
        model = assemble(self, data, GaussianPosterior(), StandardNormal(int(self.n_components)), weights)
        parts = total_correlation(data.n_rows, TC_ESTIMATORS[self.estimator])
        return Build(model, Objective(nll, parts, weights={"mi": 1.0, "tc": float(self.beta), "dim_kl": 1.0}))
