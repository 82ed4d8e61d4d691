"""Likelihoods: families over data, p(x|z)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, NamedTuple, Self

from torch import Tensor, nn
from torch.distributions import Distribution

from sparsevae.distributions.family import Family, at_least_float32
from sparsevae.inputs.scaling import SCALES, Scaling
from sparsevae.inputs.stats import Span
from sparsevae.sampling.draw import Draw

REGISTRY: dict[str, type[Likelihood]] = {}
"""Likelihoods by name: every subclass that defines `name`."""


class First(NamedTuple):
    """Raw output (width,) at which p(x|z) has the mean row, and the slope of its first D values in x there, (D,)."""

    raw: Tensor
    slope: Tensor


class Likelihood(Family):
    """A family over data. A subclass that defines `name` is registered under it.

    `discrete` likelihoods have probabilities, the others densities (which depend on the units of the data).

    Attributes
    ----------
    name : str
        Its name in the constructor's `likelihood`.
    note : str
        A remark on it in the help text of `likelihood`.
    kind : str
        The kind of data it is for, as `Input.kind`.
    settings : tuple of str
        The constructor parameters that it takes, in order: numbers above 0, on which its scores depend.
    scalings : tuple of str
        Legal values of `scale`; scale="auto" means the first.
    support : tuple (float, float)
        The smallest and the largest value with a density or probability above 0.
    whole : bool
        Whether only whole numbers have a probability above 0.
    location : bool
        Whether the first D raw values are the mean: with a linear decoder it is then linear in the code.
    atom : bool
        Whether exact zeros have a probability of their own: scaling must not move zeros.
    least_variance : float
        A lower bound on the variance of the distribution; the data are scaled so that some column has more. 0: none.
    """

    name: ClassVar[str] = "likelihood"
    note: ClassVar[str] = ""
    kind: ClassVar[str] = "numbers"
    settings: ClassVar[tuple[str, ...]] = ()
    scalings: ClassVar[tuple[str, ...]] = SCALES
    support: tuple[float, float] = (-math.inf, math.inf)
    whole: ClassVar[bool] = False
    location: ClassVar[bool] = False
    atom: ClassVar[bool] = False
    least_variance: float = 0.0

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        if "name" in vars(cls):
            REGISTRY[cls.name] = cls

    def __init__(self, *values: float) -> None:
        super().__init__()
        for name, value in zip(self.settings, values, strict=True):
            if not value > 0:
                raise ValueError(f"{name} must be above 0, got {value!r}.")
            setattr(self, name, float(value))

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Self:
        """The likelihood, constructed from its own entries of `settings`."""
        return cls(*(settings[name] for name in cls.settings))

    def describe(self) -> dict[str, float]:
        """The settings that scores depend on."""
        return {name: getattr(self, name) for name in self.settings}

    def refuses(self, data: Span) -> str | None:
        """Why data with that range of values cannot be used; None if they can."""
        low, high = self.support
        if not (data.low < low or data.high > high or (self.whole and not data.whole)):
            return None
        kind = "whole numbers" if self.whole else "values"
        extent = f", {low:g} or above" if high == math.inf else f" in [{low:g}, {high:g}]"
        fractions = ", some of them fractions" if self.whole and not data.whole else ""
        found = f"values from {data.low:g} to {data.high:g}{fractions}"
        return f'likelihood="{self.name}" needs {kind}{extent}, got {found}'

    def begin(self, x: Tensor) -> First:
        """Where the decoder's output begins for rows x, (n, D), if `startable`."""
        raise NotImplementedError

    def given(self, decoder: nn.Module, z: Tensor) -> Distribution:
        """p(x|z), by default from one call of the decoder; a subclass may call it again, once per position of x."""
        p: Distribution = self(at_least_float32(decoder(z)))
        return p

    def point(self, p: Distribution) -> Tensor:
        """The decoded x: the mean of p(x|z), (B, width)."""
        return p.mean

    def draw(self, p: Distribution, draw: Draw) -> Tensor:
        """A draw of p(x|z), (B, width)."""
        return draw(p)

    def log_det(self, scaling: Scaling) -> float:
        """Log-determinant that converts a score of scaled values to X's own units; probabilities need none."""
        return 0.0 if self.discrete else scaling.log_det

    def meaning(self, scaling: Scaling, blocks: Iterable[Tensor]) -> str:
        """The meaning of a score of these scaled rows, as `SparseCoder.score_meaning` returns it."""
        return "bound" if scaling.reversible else "normalised-row density"
