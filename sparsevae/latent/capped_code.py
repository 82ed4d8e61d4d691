"""CappedCode: SDLGM's code of n features of which at most `cap` are active."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from sparsevae.distributions.discrete_draws import CappedDraw, CountsDraw, GatedConcrete
from sparsevae.latent.posteriors import CappedPosterior, CountsPosterior, DiscretePosterior
from sparsevae.latent.priors import FixedCapped, FixedCounts, Prior
from sparsevae.sampling.gradients import ESTIMATORS, SLOPE, build_estimator, scheduled
from sparsevae.schedules import Schedule

FEATURES = {"counts": "straight-through-concrete", "distinct": "rloo"}
"""The two kinds of features, and the gradient estimator that "auto" means for each."""


@dataclass(frozen=True)
class CappedCode:
    """Posterior, prior and schedules of a code with at most `cap` of n features; `SDLGM` documents the settings."""

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
    def relaxed(self) -> bool:
        """True if training draws lie between 0 and 1, and so pass gradients themselves."""
        return self.estimator in ("paper", "concrete")

    @property
    def _settings(self) -> dict[str, Any]:
        temperature = self.tau if self.features == "distinct" else self.tau_z
        return {"temperature": temperature, "slope": self.slope, "samples": self.samples}

    def posterior(self) -> DiscretePosterior:
        """q(z|x) as a family over raw encoder outputs, with the training draw of the estimator."""
        if self.estimator == "paper":
            bounds = None if self.tau_bounds is None else (float(self.tau_bounds[0]), float(self.tau_bounds[1]))
            draw = GatedConcrete(_first(self.tau), _first(self.tau_z), bounds)
            return CountsPosterior(self.cap, draw, binary=self.binary)
        estimator = build_estimator(ESTIMATORS[self.estimator], self._settings)
        if self.features == "distinct":
            return CappedPosterior(self.cap, CappedDraw(estimator))
        return CountsPosterior(self.cap, CountsDraw(estimator), binary=self.binary)

    def prior(self) -> Prior:
        """p(z), with a learned or fixed probability per feature."""
        alpha, learned = float(self.alpha), bool(self.learned_prior)
        if self.features == "distinct":
            return FixedCapped(self.n, self.cap, alpha, learned=learned)
        kl: Literal["tight", "paper"] = "paper" if self.kl == "paper" else "tight"
        return FixedCounts(self.n, self.cap, alpha, kl, learned=learned)

    def schedules(self) -> dict[str, Schedule]:
        """Schedules of temperatures and slope, by the name of the knob."""
        if self.estimator == "paper":
            return {k: v for k, v in (("tau", self.tau), ("tau_z", self.tau_z)) if callable(v)}
        return scheduled(ESTIMATORS[self.estimator], self._settings)


def _first(value: float | str | Schedule) -> float | None:
    """The value of a temperature at the first step; None for a learned one."""
    if isinstance(value, str):
        return None
    return float(value(0, 1) if callable(value) else value)
