"""A code made of several independent parts, one after the other: law, posterior, prior and encoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from sparsevae.distributions import divergence, pair
from sparsevae.draw import Noise, draw_from
from sparsevae.families import Family
from sparsevae.priors import Encode, Prior

__all__ = ["SideBySide", "SideBySideNetworks", "SideBySidePosterior", "SideBySidePrior"]


class SideBySide(Distribution):
    """The joint law of independent parts: z = (z_1, z_2, ...), (*batch, J_1 + J_2 + ...)."""

    arg_constraints: ClassVar = {}

    def __init__(self, parts: Sequence[Distribution]) -> None:
        self.parts = tuple(parts)
        self.sizes = [part.event_shape[0] for part in parts]
        shape = torch.broadcast_shapes(*(part.batch_shape for part in parts))
        super().__init__(shape, torch.Size([sum(self.sizes)]), validate_args=False)

    def expand(self, batch_shape: Any, _instance: Distribution | None = None) -> SideBySide:
        return SideBySide([part.expand(torch.Size(batch_shape)) for part in self.parts])

    def _joined(self, name: str) -> Tensor:
        return torch.cat([getattr(part, name).expand(*self.batch_shape, -1) for part in self.parts], -1)

    @property
    def mean(self) -> Tensor:
        return self._joined("mean")

    @property
    def variance(self) -> Tensor:
        return self._joined("variance")

    @property
    def mode(self) -> Tensor:
        return self._joined("mode")

    @property
    def p_on(self) -> Tensor:
        """P(unit is on), (*batch, J)."""
        return self._joined("p_on")

    @property
    def ranking(self) -> Tensor:
        """Which units `codes.capped` keeps first, (*batch, J): the likeliest of all parts."""
        return self.p_on

    def log_prob(self, value: Tensor) -> Tensor:
        found = [part.log_prob(v) for part, v in zip(self.parts, value.split(self.sizes, -1), strict=True)]
        return torch.stack(torch.broadcast_tensors(*found)).sum(0)


@pair(SideBySide, SideBySide, per_unit=False)
def _parts(q: SideBySide, p: SideBySide) -> Tensor:
    """The sum of the parts' own divergences, (..., B)."""
    found = [divergence(a, b) for a, b in zip(q.parts, p.parts, strict=True)]
    return torch.stack(torch.broadcast_tensors(*found)).sum(0)


@draw_from.register
def _(q: SideBySide, noise: Noise, hard: bool) -> Tensor:
    return torch.cat([draw_from(part, noise, hard) for part in q.parts], -1)


class SideBySidePosterior(Family):
    """raw = the parts' own, one after the other -> SideBySide; part i has sizes[i] units."""

    discrete: ClassVar[bool] = True

    def __init__(self, parts: Sequence[Family], sizes: Sequence[int]) -> None:
        super().__init__()
        self.families, self.sizes = nn.ModuleList(parts), tuple(sizes)
        self.widths = [part.width(n) for part, n in zip(parts, sizes, strict=True)]

    def width(self, n: int) -> int:
        if n != sum(self.sizes):
            raise ValueError(f"these parts have {' + '.join(map(str, self.sizes))} units, asked for {n}.")
        return sum(self.widths)

    def largest(self, n: int) -> Tensor | None:
        parts: list[Family] = list(self.families)  # type: ignore[arg-type]
        found = [part.largest(size) for part, size in zip(parts, self.sizes, strict=True)]
        whole = [each for each in found if each is not None]
        return torch.cat(whole) if len(whole) == len(found) else None

    def forward(self, raw: Tensor) -> Distribution:
        return self.copies(raw, 1)

    def copies(self, raw: Tensor, n: int) -> Distribution:
        parts: list[Family] = list(self.families)  # type: ignore[arg-type]
        return SideBySide([part.copies(r, n) for part, r in zip(parts, raw.split(self.widths, -1), strict=True)])


class SideBySidePrior(Prior):
    """Each part has its own prior."""

    def __init__(self, parts: Sequence[Prior]) -> None:
        super().__init__(sum(part.n_components for part in parts))
        self.parts = nn.ModuleList(parts)

    def law(self, encode: Encode) -> Distribution:
        return SideBySide([part.law(encode) for part in self.parts])  # type: ignore[operator]


class SideBySideNetworks(nn.Module):
    """Several networks of one input, their outputs one after the other."""

    def __init__(self, parts: Sequence[nn.Module]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([part(x) for part in self.parts], -1)
