"""Batch: some rows as a model sees them. Examples: all rows that training takes its batches from."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from sparsevae.inputs.rows import Rows, floats, parts


def blocks(rows: Tensor, n: int) -> Tensor:
    """Rows for n draws of each, block after block: (..., B, D) -> (..., n B, D)."""
    return rows if n == 1 else rows.repeat(*(1,) * (rows.dim() - 2), n, 1)


class Batch(NamedTuple):
    """Some rows: x (*members, B, D) or shared (B, D), and the targets y (..., B, L) where there are any."""

    x: Tensor
    y: Tensor | None = None

    @classmethod
    def of(cls, rows: Tensor | Batch) -> Batch:
        """A batch as it is; a tensor is x without targets."""
        return rows if isinstance(rows, Batch) else cls(rows)

    def map(self, function: Callable[[Tensor], Tensor]) -> Batch:
        """The function of every tensor that is there."""
        return Batch(**{name: function(t) for name, t in self.present().items()})

    def copies(self, n: int) -> Batch:
        """n copies of every row, block after block."""
        return self.map(lambda t: blocks(t, n))

    def present(self) -> dict[str, Tensor]:
        """The tensors that are there, by field."""
        return {name: t for name, t in self._asdict().items() if t is not None}

    def columns(self) -> Tensor:
        """[x | y]: all that is known of a row, side by side."""
        return torch.cat([*self.present().values()], -1) if self.y is not None else self.x


class Examples:
    """Rows of x and, where there are targets, of y, (n, D) and (n, L)."""

    def __init__(self, x: Rows, y: Rows | None = None) -> None:
        self.x, self.y = x, y
        self.static, self.device = x.static and (y is None or y.static), x.device

    def __len__(self) -> int:
        return self.x.shape[0]

    def pick(self, index: Tensor) -> Batch:
        """(B,) integer positions on the device -> those rows, each in a type that float32 holds."""
        return Batch(self.x.pick(index), None if self.y is None else self.y.pick(index))

    def take(self, index: Tensor) -> Batch:
        """The same in float32."""
        return self.pick(index).map(floats)

    def parts(self, items: Tensor, least: int) -> list[tuple[Examples, Tensor]]:
        """Rows and positions in parts of one width each, as x has them."""
        return [(Examples(x, self.y), own) for x, own in parts(self.x, items, least)]
