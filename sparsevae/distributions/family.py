"""Family: from a network's raw output to a distribution."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from sparsevae.inputs.batch import blocks


class Matched(NamedTuple):
    """Matched filters of n units, for centred rows (`latent.start`): z = value x, gate logits = gate x - threshold."""

    size: Tensor  # (J,): the length of an atom with which codes have a root mean square of 1
    value: Tensor  # (J, D)
    gate: Tensor  # (J, D)
    threshold: Tensor  # (J,)
    code: Tensor  # (n, J): the codes of the rows


class Reading(NamedTuple):
    """Weights (width, D) and biases (width,) of a linear encoder of centred rows."""

    weight: Tensor
    bias: Tensor


class Family(nn.Module):
    """raw (..., width(n)) -> Distribution with event_shape (n,)."""

    parts: ClassVar[int] = 1
    density: ClassVar[bool] = True  # whether the distribution has a density: without one there is no bound
    discrete: ClassVar[bool] = False  # whether values are whole numbers: training then relaxes them or uses scores
    sparse: ClassVar[bool] = False  # whether codes have exact zeros: they are then CSR matrices

    signed: ClassVar[bool] = True  # whether codes may have negative values
    startable: ClassVar[bool] = False  # whether it has `matched`: a linear encoder can begin as matched filters

    def width(self, n: int) -> int:
        """The number of raw values for n units."""
        return self.parts * n

    def largest(self, n: int) -> Tensor | None:
        """The largest value of each of n units, (n,), if values are whole numbers from 0; None for real values."""
        return None

    def code(self, mode: Tensor) -> Tensor:
        """The code that `transform` returns for the mode, (..., n)."""
        return mode

    def matched(self, found: Matched) -> Reading:
        """The linear encoder that begins as these matched filters, if `startable`."""
        raise NotImplementedError

    def forward(self, raw: Tensor) -> Distribution:
        raise NotImplementedError

    def copies(self, raw: Tensor, n: int) -> Distribution:
        """The distribution of n copies of each row, in blocks (n, B); the copies share what is costly to compute."""
        dist: Distribution = self(blocks(raw, n))
        return dist


def at_least_float32(raw: Tensor) -> Tensor:
    """A network's output in float32 or wider: distributions are not computed in autocast's half precision."""
    return raw.to(torch.promote_types(raw.dtype, torch.float32))
