"""Likelihoods by name."""

from __future__ import annotations

from collections.abc import Callable

from sparsevae.likelihoods.base import Likelihood
from sparsevae.likelihoods.bernoulli import BernoulliData
from sparsevae.likelihoods.gaussian import FixedGaussianData, GaussianData, LaplaceData
from sparsevae.likelihoods.spike_slab import SpikeSlabData

LIKELIHOODS: tuple[str, ...] = ("auto", "bernoulli", "gaussian", "fixed-gaussian", "laplace", "spike-slab")
"""The likelihoods a constructor may name; "auto" is settled by the data."""


def choose(name: str, *, variance_floor: float, variance: float) -> Likelihood:
    """The likelihood of that name."""
    builders: dict[str, Callable[[], Likelihood]] = {
        "bernoulli": BernoulliData,
        "gaussian": lambda: GaussianData(variance_floor),
        "fixed-gaussian": lambda: FixedGaussianData(variance),
        "laplace": lambda: LaplaceData(variance),
        "spike-slab": lambda: SpikeSlabData(variance_floor),
    }
    if name not in builders:
        raise ValueError(f"likelihood must be one of {', '.join(LIKELIHOODS)}; got {name!r}.")
    return builders[name]()
