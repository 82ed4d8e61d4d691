"""The discrete baselines of SDLGM's Table I: many Bernoulli units, or groups of one-hot ones (Jang et al., 2017)."""

from __future__ import annotations

from typing import Annotated

from torch import Generator

from sparsevae.checks import POSITIVE, In, OneOf
from sparsevae.distributions.discrete_draws import CappedDraw, OneHotDraw
from sparsevae.distributions.family import Family
from sparsevae.estimator.assemble import Build, DataSpec, assemble
from sparsevae.estimator.coder import SparseCoder
from sparsevae.estimator.fields import Choices, FromTexts, ObservedData, SparseCodes, Units
from sparsevae.latent.objective import Objective, kl, nll
from sparsevae.latent.posteriors import CappedPosterior, OneHotPosterior
from sparsevae.latent.priors import FixedCapped, FixedOneHots, Prior
from sparsevae.parameters import parameters
from sparsevae.sampling.gradients import ESTIMATORS, build_estimator, scheduled
from sparsevae.schedules import Schedule


@parameters
class DiscreteVAE(Choices, SparseCodes, Units, ObservedData, FromTexts, SparseCoder):
    r"""A code of zeros and ones: independent bits, or groups of which exactly one is on.

    .. math:: \mathcal L = -E_q \log p(x|z) + \sum_j KL(q(z_j|x) \,\|\, p(z_j))

    with q Bernoulli, or categorical over `categories` values. `gradient` names the gradient estimator of the draws;
    scores always use hard draws.

    {parameters}

    {attributes}

    References
    ----------
    Jang, Gu, Poole, "Categorical reparameterization with Gumbel-softmax", 2017.

    Examples
    --------
    >>> import sparsevae as sv
    >>> X = sv.data.load("digits").X
    >>> est = sv.DiscreteVAE(30, categories=5, training=sv.Training(steps=300, kl_warmup=0.9, verbose=0)).fit(X)
    >>> Z = est.transform(X)
    >>> Z.format, set(Z.data.tolist()), bool((Z.sum(1) == 6).all())
    ('csr', {1.0}, True)
    """

    categories: Annotated[int | None, In(2), "Units of a group, of which one is on; None: independent bits."] = None
    gradient: Annotated[str, OneOf(*ESTIMATORS), "Gradient estimator of the draws."] = "straight-through-concrete"
    temperature: Annotated[float | Schedule, POSITIVE, "Temperature of the concrete gradients."] = 0.5
    alpha: Annotated[float, In(0, 1, "()"), "Prior probability that a bit is on."] = 0.5
    learned_prior: Annotated[bool, OneOf(0, 1), "Learn the prior's probabilities, unit by unit."] = False

    def rules(self) -> None:
        if self.categories is not None and int(self.n_components) % int(self.categories):
            need = f"a multiple of categories={self.categories}"
            raise ValueError(f"n_components must be {need}, got {self.n_components}.")
        self.refuse_free_bits()

    def build(self, data: DataSpec, weights: Generator | None) -> Build:
        n, learned, kind = int(self.n_components), bool(self.learned_prior), ESTIMATORS[self.gradient]
        settings = {"temperature": self.temperature, "slope": self.slope, "samples": self.samples}
        estimator = build_estimator(kind, settings)
        posterior: Family
        prior: Prior
        if self.categories is not None:
            posterior = OneHotPosterior(int(self.categories), OneHotDraw(estimator))
            prior = FixedOneHots(n, int(self.categories), learned=learned)
        else:
            posterior = CappedPosterior(n, CappedDraw(estimator))
            prior = FixedCapped(n, n, float(self.alpha), learned=learned)
        model = assemble(self, data, posterior, prior, weights)
        return Build(model, Objective(nll, kl, weights={"kl_z": 1.0}), scheduled(kind, settings))
