"""Rows [x | y]: features and targets of the same rows."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sparsevae.inputs.rows import Rows, parts


class Paired(Rows):
    """Rows [x | y]: two tables of the same rows, side by side.

    Where x has rows of several widths they are had so only if `narrow`: y then begins at another column in each.
    """

    def __init__(self, x: Rows, y: Rows, *, narrow: bool = False) -> None:
        self.x, self.y, self.narrow = x, y, narrow
        self.static, self.device = x.static and y.static, x.device

    @property
    def shape(self) -> tuple[int, int]:
        return self.x.shape[0], self.x.shape[1] + self.y.shape[1]

    def pick(self, index: Tensor) -> Tensor:
        return torch.cat([self.x.take(index), self.y.take(index)], -1)

    def parts(self, items: Tensor, least: int) -> list[tuple[Rows, Tensor]]:
        """Rows and positions in parts of one width each, as x has them."""
        if not self.narrow:
            return [(self, items)]
        return [(Paired(x, self.y), own) for x, own in parts(self.x, items, least)]


class ScaleFirst(nn.Module):
    """Scales the first n columns and leaves the others alone."""

    def __init__(self, scaling: nn.Module, n: int) -> None:
        super().__init__()
        self.scaling, self.n = scaling, n

    def forward(self, rows: Tensor) -> Tensor:
        return torch.cat([self.scaling(rows[..., : self.n]), rows[..., self.n :]], -1)
