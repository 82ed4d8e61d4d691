"""Family: from a network's raw output to a distribution."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from sparsevae.inputs.batch import blocks


class Family(nn.Module):
    """raw (..., width(n)) -> Distribution with event_shape (n,)."""

    parts: ClassVar[int] = 1
    density: ClassVar[bool] = True  # whether what it gives has one: without it there is no bound
    discrete: ClassVar[bool] = False  # whether its values are whole numbers: training then relaxes or scores them
    sparse: ClassVar[bool] = False  # whether its codes have exact zeros: they are then CSR matrices

    def width(self, n: int) -> int:
        return self.parts * n

    def largest(self, n: int) -> Tensor | None:
        """The largest value of each of n units, (n,), where values are whole numbers from 0; None for real values."""
        return None

    def code(self, mode: Tensor) -> Tensor:
        """What `transform` gives of a mode, (..., n)."""
        return mode

    def forward(self, raw: Tensor) -> Distribution:
        raise NotImplementedError

    def copies(self, raw: Tensor, n: int) -> Distribution:
        """The laws of n copies of every row, in blocks (n, B); what is costly to build they share."""
        dist: Distribution = self(blocks(raw, n))
        return dist


def at_least_float32(raw: Tensor) -> Tensor:
    """What a network says, in float32 at least: laws are not computed in the half precision that autocast gives."""
    return raw.to(torch.promote_types(raw.dtype, torch.float32))
