"""Gradients through discrete draws: how a random on/off gate lets a gradient pass.

A gate turns logits a (p_on = sigmoid(a)) and uniform noise u into a weight w in [0, 1], elementwise on
(..., B, J). Every gate here agrees with the same hard switch, `w > 1/2` exactly when `u > 1 - p_on`, so relaxed
training and hard evaluation see the same pattern of zeros for the same noise.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

__all__ = ["GATES", "AlwaysOn", "Gate", "ScaledSigmoid", "StraightThrough", "per_member", "switch"]


def switch(logits: Tensor, u: Tensor) -> Tensor:
    """The hard gate: True with probability p_on. `u` is uniform on the open interval (0, 1)."""
    return u > torch.sigmoid(-logits)


def per_member(knob: Tensor) -> Tensor:
    """A knob of shape () as it is, one of shape (*members,) ready to meet (*members, B, J)."""
    return knob if knob.dim() == 0 else knob[..., None, None]


class Gate(nn.Module):
    """(logits, u) -> weight in [0, 1], differentiable in the logits; `knobs` are buffers a schedule may drive."""

    knobs: ClassVar[tuple[str, ...]] = ()


class ScaledSigmoid(Gate):
    """The gate of Variational Sparse Coding, w = sigmoid(c (u - 1 + p_on)), with sharpness c.

    P(w > 1/2) = p_on for every c, but w leaks: at p_on = 0 its mean is log(2)/c (errata 4 and 5). It is a training
    device only; a score always uses `switch`.
    """

    knobs: ClassVar[tuple[str, ...]] = ("sharpness",)
    sharpness: Tensor

    def __init__(self, sharpness: float = 50.0) -> None:
        super().__init__()
        self.register_buffer("sharpness", torch.tensor(float(sharpness)), persistent=False)

    def forward(self, logits: Tensor, u: Tensor) -> Tensor:
        return torch.sigmoid(per_member(self.sharpness) * (u - torch.sigmoid(-logits)))


class StraightThrough(Gate):
    """Binary concrete with a hard forward value: w is 0 or 1, its gradient that of sigmoid((a + logit u)/tau)."""

    knobs: ClassVar[tuple[str, ...]] = ("temperature",)
    temperature: Tensor

    def __init__(self, temperature: float = 0.5) -> None:
        super().__init__()
        self.register_buffer("temperature", torch.tensor(float(temperature)), persistent=False)

    def forward(self, logits: Tensor, u: Tensor) -> Tensor:
        soft = torch.sigmoid((logits + torch.logit(u)) / per_member(self.temperature))
        return switch(logits, u).to(soft.dtype) + (soft - soft.detach())


class AlwaysOn(Gate):
    """The gate of a unit that is never off: a spike-and-slab whose spike has no mass."""

    def forward(self, logits: Tensor, u: Tensor) -> Tensor:
        return torch.ones_like(u)


GATES: dict[str, type[Gate]] = {"sigmoid": ScaledSigmoid, "straight-through": StraightThrough}
"""The gates a constructor may name."""
