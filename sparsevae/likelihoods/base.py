"""Likelihoods: families over data, p(x|z)."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn
from torch.distributions import Distribution

from sparsevae.distributions.family import Family, at_least_float32
from sparsevae.sampling.draw import Draw


class Likelihood(Family):
    """A family over data. `discrete` ones have probabilities, the others densities (which change with units).

    One with an `atom` gives exact zeros a probability: scaling must leave the data alone.
    """

    atom: ClassVar[bool] = False

    def given(self, decoder: nn.Module, z: Tensor) -> Distribution:
        """p(x|z). Most are settled by what the decoder says of z; one may ask it again as x unfolds."""
        p: Distribution = self(at_least_float32(decoder(z)))
        return p

    def point(self, p: Distribution) -> Tensor:
        """The decoded x: the mean of p(x|z), (B, width)."""
        return p.mean

    def draw(self, p: Distribution, draw: Draw) -> Tensor:
        """A draw of p(x|z), (B, width)."""
        return draw(p)

    def check(self, low: float, high: float) -> str | None:
        """What is wrong with data whose values span [low, high], or None when they can be described."""
        return None

    def describe(self) -> dict[str, float]:
        """The settings a score depends on."""
        return {}


class FlooredData(Likelihood):
    """Likelihoods that learn a variance for every value, floor + softplus(s).

    Without the floor a constant pixel lets the variance fall to 0 and the density grow without limit, so the floor
    is a setting that every score depends on and that is stored and reported with it.
    """

    suits: ClassVar[str] = "1e-3 to 1e-2 suits scaled data"

    def __init__(self, floor: float) -> None:
        super().__init__()
        if not floor > 0:
            raise ValueError(f"variance_floor must be above 0, got {floor!r}; {self.suits}.")
        self.floor = float(floor)

    def describe(self) -> dict[str, float]:
        return {"variance_floor": self.floor}


class KnownVarianceData(Likelihood):
    """Likelihoods with one known variance everywhere: an error with an explicit scale."""

    def __init__(self, variance: float) -> None:
        super().__init__()
        if not variance > 0:
            raise ValueError(f"variance must be above 0, got {variance!r}.")
        self.variance = float(variance)

    def describe(self) -> dict[str, float]:
        return {"variance": self.variance}
