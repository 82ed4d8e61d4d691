"""CappedCode: the posterior, prior and schedules of SDLGM's code, n features of which at most `cap` are active."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from sparsevae.distributions.discrete_draws import CappedDraw, CountsDraw, GatedConcrete
from sparsevae.latent.posteriors import CappedPosterior, CountsPosterior, DiscretePosterior
from sparsevae.latent.priors import FixedCapped, FixedCounts, Prior
from sparsevae.sampling.gradients import ESTIMATORS, SLOPE, build_estimator, scheduled
from sparsevae.schedules import Schedule

FEATURES = {"counts": "straight-through-concrete", "distinct": "rloo"}
"""The two kinds of features, and the gradient estimator that "auto" selects for each."""


@dataclass(frozen=True)
class CappedCode:
    """The settings of a code; the parameters of `SDLGM` document them."""

    n: int
    cap: int
    features: str = "counts"
    alpha: float = 0.5
    kl: str = "tight"
    gradient: str = "auto"
    tau: float | str | Schedule = 0.5
    tau_z: float | str | Schedule = 0.5
    tau_bounds: tuple[float, float] | None = None
    slope: float | Schedule = SLOPE
    samples: int = 4
    learned_prior: bool = False
    binary: bool = False

    @property
    def estimator(self) -> str:
        """The name of the gradient estimator, with "auto" resolved."""
        return FEATURES[self.features] if self.gradient == "auto" else self.gradient

    @property
    def _settings(self) -> dict[str, Any]:
        temperature = self.tau if self.features == "distinct" else self.tau_z
        return {"temperature": temperature, "slope": self.slope, "samples": self.samples}

    def posterior(self) -> DiscretePosterior:
        if self.estimator == "paper":
            bounds = None if self.tau_bounds is None else (float(self.tau_bounds[0]), float(self.tau_bounds[1]))
            draw = GatedConcrete(_first(self.tau), _first(self.tau_z), bounds)
            return CountsPosterior(self.cap, draw, binary=self.binary)
        estimator = build_estimator(ESTIMATORS[self.estimator], self._settings)
        if self.features == "distinct":
            return CappedPosterior(self.cap, CappedDraw(estimator))
        return CountsPosterior(self.cap, CountsDraw(estimator), binary=self.binary)

    def prior(self) -> Prior:
        alpha, learned = float(self.alpha), bool(self.learned_prior)
        if self.features == "distinct":
            return FixedCapped(self.n, self.cap, alpha, learned=learned)
        kl: Literal["tight", "paper"] = "paper" if self.kl == "paper" else "tight"
        return FixedCounts(self.n, self.cap, alpha, kl, learned=learned)

    def schedules(self) -> dict[str, Schedule]:
        if self.estimator == "paper":
            return {k: v for k, v in (("tau", self.tau), ("tau_z", self.tau_z)) if callable(v)}
        return scheduled(ESTIMATORS[self.estimator], self._settings)


def _first(value: float | str | Schedule) -> float | None:
    """The initial value of a temperature; None if it is learned."""
    if isinstance(value, str):
        return None
    return float(value(0, 1) if callable(value) else value)
