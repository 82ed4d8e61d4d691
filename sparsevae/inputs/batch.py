"""Batch: the rows x and targets y of one step. Examples: all rows and targets of a training run."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from sparsevae.inputs.rows import Rows, floats, parts


def blocks(rows: Tensor, n: int) -> Tensor:
    """n copies of the rows, one block after the other: (..., B, D) -> (..., n B, D)."""
    return rows if n == 1 else rows.repeat(*(1,) * (rows.dim() - 2), n, 1)


class Batch(NamedTuple):
    """Rows x, (*members, B, D) or shared (B, D), and targets y, (..., B, L), or None."""

    x: Tensor
    y: Tensor | None = None

    @classmethod
    def of(cls, rows: Tensor | Batch) -> Batch:
        """A batch unchanged; a tensor as a batch without targets."""
        return rows if isinstance(rows, Batch) else cls(rows)

    def map(self, function: Callable[[Tensor], Tensor]) -> Batch:
        """A function of every tensor that is not None."""
        return Batch(**{name: function(t) for name, t in self.present().items()})

    def copies(self, n: int) -> Batch:
        """n copies of the rows, one block after the other."""
        return self.map(lambda t: blocks(t, n))

    def present(self) -> dict[str, Tensor]:
        """The tensors that are not None, by field."""
        return {name: t for name, t in self._asdict().items() if t is not None}

    def columns(self) -> Tensor:
        """x and y concatenated along the last dimension, (..., B, D + L); x alone without targets."""
        return torch.cat([*self.present().values()], -1) if self.y is not None else self.x


class Examples:
    """Rows x, (n, D), and targets y, (n, L), or None."""

    def __init__(self, x: Rows, y: Rows | None = None) -> None:
        self.x, self.y = x, y
        self.static, self.device = x.static and (y is None or y.static), x.device

    def __len__(self) -> int:
        return self.x.shape[0]

    def pick(self, index: Tensor) -> Batch:
        """(B,) integer positions on the device -> those rows, in a type that converts to float32 exactly."""
        return Batch(self.x.pick(index), None if self.y is None else self.y.pick(index))

    def take(self, index: Tensor) -> Batch:
        """The same in float32."""
        return self.pick(index).map(floats)

    def parts(self, items: Tensor, least: int) -> list[tuple[Examples, Tensor]]:
        """(examples, positions) in parts of one width of x each; see `rows.parts`."""
        return [(Examples(x, self.y), own) for x, own in parts(self.x, items, least)]
