"""Posterior, prior and encoder of a code of independent parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from sparsevae.distributions.concatenated import Concatenated
from sparsevae.distributions.family import Family
from sparsevae.latent.priors import Encode, Prior


class ConcatenatedPosterior(Family):
    """raw = the raw values of all parts, concatenated -> Concatenated; part i has sizes[i] units."""

    discrete: ClassVar[bool] = True
    sparse: ClassVar[bool] = True

    def __init__(self, parts: Sequence[Family], sizes: Sequence[int]) -> None:
        super().__init__()
        self.families, self.sizes = nn.ModuleList(parts), tuple(sizes)
        self.widths = [part.width(n) for part, n in zip(parts, sizes, strict=True)]

    def width(self, n: int) -> int:
        if n != sum(self.sizes):
            raise ValueError(f"n must be {' + '.join(map(str, self.sizes))}, the units of the parts, got {n}.")
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
        return Concatenated([part.copies(r, n) for part, r in zip(parts, raw.split(self.widths, -1), strict=True)])


class ConcatenatedPrior(Prior):
    """The product of the priors of the parts."""

    def __init__(self, parts: Sequence[Prior]) -> None:
        super().__init__(sum(part.n_components for part in parts))
        self.parts = nn.ModuleList(parts)

    def marginal(self, encode: Encode) -> Distribution:
        return Concatenated([part.marginal(encode) for part in self.parts])  # type: ignore[operator]


class ConcatenatedNetworks(nn.Module):
    """Several networks of one input, with concatenated outputs."""

    def __init__(self, parts: Sequence[nn.Module]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([part(x) for part in self.parts], -1)
