"""MAT: a Gaussian code with a sparse prior and an MMD (Mathieu, Rainforth, Siddharth and Teh, 2019)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from torch import Generator, Tensor

from sparsevae.checks import In
from sparsevae.estimator.assemble import Build, DataSpec, assemble
from sparsevae.estimator.coder import SparseCoder
from sparsevae.estimator.fields import FromTexts, ObservedData, Units
from sparsevae.inputs.batch import Batch
from sparsevae.latent.model import LatentModel, Trace
from sparsevae.latent.objective import Objective, nll
from sparsevae.latent.posteriors import GaussianPosterior
from sparsevae.latent.priors import SparseNormals
from sparsevae.latent.terms import mmd
from sparsevae.parameters import parameters
from sparsevae.sampling.draw import Draw


class WithPriorSample(LatentModel):
    """A LatentModel whose trace has a draw of the prior too, as large as the batch: `Site.reference`."""

    def trace(self, batch: Batch, raw: Tensor, draw: Draw, copies: int = 1) -> Trace:
        trace = super().trace(batch, raw, draw, copies)
        site = trace.latents["z"]
        reference = draw(self.prior.marginal(self.encode).expand(site.value.shape[:-1]))
        return trace._replace(latents={"z": site._replace(reference=reference)})


@parameters
class MAT(Units, ObservedData, FromTexts, SparseCoder):
    r"""VAE with a prior of two Gaussians per unit, and an MMD between aggregate posterior and prior.

    .. math:: \mathcal L = -E_{q} \log p(x|z) + \psi\, KL(q(z|x) \,\|\, p(z)) + \lambda\, MMD(q(z), p(z)), \qquad
       p(z_j) = \gamma\, \mathcal N(0, s^2) + (1 - \gamma)\, \mathcal N(0, 1)

    The papers' gamma is `off`, P(unit off). The KL is a one-sample estimate. Codes are dense: a unit that is off is
    small, not zero; use VSC for zeros. The published recipe has likelihood="laplace" with scale .1 (variance=.02).

    The MMD compares all pairs of a batch in about ten arrays (B, B, J): 50 MB each for 500 rows of 50 units.

    {parameters}

    {attributes}

    References
    ----------
    Mathieu, Rainforth, Siddharth, Teh, "Disentangling disentanglement in variational autoencoders", 2019.

    Examples
    --------
    >>> import sparsevae as sv
    >>> X = sv.data.load("digits").X
    >>> training = sv.Training(steps=100, batch_size=64, learning_rate=1e-2, verbose=0)
    >>> est = sv.MAT(8, mmd_weight=1.0, training=training).fit(X)
    >>> est.transform(X).shape
    (1438, 8)
    """

    defaults_by_kind: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "numbers": {"kl_weight": 1.0},
        "texts": {"kl_weight": 0.1},
    }

    off: Annotated[float, In(0, 1, "[)"), "Prior probability that a unit is off."] = 0.8
    # Below 1e-3 training diverges.
    spike: Annotated[float, In(1e-3, 1, "[)"), "Standard deviation of a unit that is off."] = 0.05
    kl_weight: Annotated[float | None, In(0), "Weight of the KL (psi); None: 1, for texts .1."] = None
    mmd_weight: Annotated[float, In(0), "Weight of the MMD (lambda)."] = 100.0

    def rules(self) -> None:
        if self.training_settings().n_samples != 1:
            raise ValueError("MAT compares the rows of a batch with draws of the prior: use training.n_samples=1.")
        if self.training_settings().batch_size == 1:
            raise ValueError("MAT compares the rows of a batch with each other: use training.batch_size=2 or more.")

    def build(self, data: DataSpec, weights: Generator | None) -> Build:
        prior = SparseNormals(int(self.n_components), float(self.off), float(self.spike))
        model = assemble(self, data, GaussianPosterior(), prior, weights, WithPriorSample)
        own = {"kl_z": float(self.value("kl_weight")), "mmd": float(self.mmd_weight)}
        return Build(model, Objective(nll, self.kl_term(), mmd, weights=own))
