"""The discrete baselines of SDLGM's Table I: many Bernoulli units, or groups of one-hot ones (Jang et al., 2017)."""

from __future__ import annotations

from typing import Annotated, Any

from sparsevae.checks import POSITIVE, In, OneOf
from sparsevae.distributions.discrete_draws import CappedDraw, OneHotDraw
from sparsevae.distributions.family import Family
from sparsevae.estimator.coder import SparseCoder
from sparsevae.latent.objective import Objective, kl, nll
from sparsevae.latent.posteriors import CappedPosterior, OneHotPosterior
from sparsevae.latent.priors import FixedCapped, FixedOneHots, Prior
from sparsevae.parameters import parameters
from sparsevae.sampling.gradients import ESTIMATORS, SLOPE, Estimator, build_estimator, scheduled
from sparsevae.schedules import Schedule


@parameters
class DiscreteCoder(SparseCoder):
    """What models with discrete codes share: the settings of the estimators that pass gradients through their draws."""

    slope: Annotated[float | Schedule, POSITIVE, "Factor of the logits, for gradient='slope-annealed'."] = SLOPE
    samples: Annotated[int, In(2), "Draws of an item that gradient='rloo' compares."] = 4

    def check(self) -> None:
        super().check()
        self.refuse_free_bits()

    def _gradient(self) -> str:
        """The name of the estimator."""
        raise NotImplementedError

    def _temperature(self) -> Any:
        """That of the concrete estimators."""
        raise NotImplementedError

    def _settings(self) -> dict[str, Any]:
        return {"temperature": self._temperature(), "slope": self.slope, "samples": self.samples}

    def _estimator(self) -> Estimator:
        return build_estimator(ESTIMATORS[self._gradient()], self._settings())

    def objective(self) -> Objective:
        return Objective(nll, kl, weights=self.weights())

    def schedules(self) -> dict[str, Schedule]:
        return scheduled(ESTIMATORS[self._gradient()], self._settings())


@parameters
class DiscreteVAE(DiscreteCoder):
    r"""A code of zeros and ones: independent bits, or groups of which exactly one is on.

    .. math:: \mathcal L = -E_q \log p(x|z) + \sum_j KL(q(z_j|x) \,\|\, p(z_j))

    with q Bernoulli, or categorical over `categories` values. How gradients pass the draws is a choice of `gradient`;
    scores are always of hard draws.

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
    gradient: Annotated[str, OneOf(*ESTIMATORS), "How gradients pass the draws."] = "straight-through-concrete"
    temperature: Annotated[float | Schedule, POSITIVE, "Temperature of the concrete gradients."] = 0.5
    alpha: Annotated[float, In(0, 1, "()"), "Prior probability that a bit is on."] = 0.5
    learned_prior: Annotated[bool, OneOf(0, 1), "Learn the prior's probabilities, unit by unit."] = False

    def check(self) -> None:
        super().check()
        if self.categories is not None and int(self.n_components) % int(self.categories):
            raise ValueError(
                f"n_components={self.n_components} units are no groups of categories={self.categories}: it must "
                "divide n_components."
            )

    def _gradient(self) -> str:
        return self.gradient

    def _temperature(self) -> float | Schedule:
        return self.temperature

    def posterior(self) -> Family:
        if self.categories is not None:
            return OneHotPosterior(int(self.categories), OneHotDraw(self._estimator()))
        return CappedPosterior(int(self.n_components), CappedDraw(self._estimator()))

    def prior(self) -> Prior:
        n = int(self.n_components)
        if self.categories is not None:
            return FixedOneHots(n, int(self.categories), learned=bool(self.learned_prior))
        return FixedCapped(n, n, float(self.alpha), learned=bool(self.learned_prior))
