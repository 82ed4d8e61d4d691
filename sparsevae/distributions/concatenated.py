"""The joint distribution of independent parts, concatenated along the units."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.distributions import Distribution

from sparsevae.distributions.kl import divergence, pair
from sparsevae.sampling.draw import draw_from
from sparsevae.sampling.noise import Noise


class Concatenated(Distribution):
    """The joint distribution of independent parts: z = (z_1, z_2, ...), (*batch, J_1 + J_2 + ...)."""

    arg_constraints: ClassVar = {}

    def __init__(self, parts: Sequence[Distribution]) -> None:
        self.parts = tuple(parts)
        self.sizes = [part.event_shape[0] for part in parts]
        shape = torch.broadcast_shapes(*(part.batch_shape for part in parts))
        super().__init__(shape, torch.Size([sum(self.sizes)]), validate_args=False)

    def expand(self, batch_shape: Any, _instance: Distribution | None = None) -> Concatenated:
        return Concatenated([part.expand(torch.Size(batch_shape)) for part in self.parts])

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
        """What `codes.capped` ranks units by, largest first, (*batch, J): p_on."""
        return self.p_on

    def log_prob(self, value: Tensor) -> Tensor:
        return _sum(part.log_prob(v) for part, v in zip(self.parts, value.split(self.sizes, -1), strict=True))


def _sum(found: Iterable[Tensor]) -> Tensor:
    return torch.stack(torch.broadcast_tensors(*found)).sum(0)


@pair(Concatenated, Concatenated, per_unit=False)
def _parts(q: Concatenated, p: Concatenated) -> Tensor:
    """The sum of the divergences of the parts, (..., B)."""
    return _sum(divergence(a, b) for a, b in zip(q.parts, p.parts, strict=True))


@draw_from.register
def _(q: Concatenated, noise: Noise, hard: bool) -> Tensor:
    return torch.cat([draw_from(part, noise, hard) for part in q.parts], -1)
