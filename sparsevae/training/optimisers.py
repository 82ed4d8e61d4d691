"""Optimisers whose state is plain tensors and whose rate is one: Adam with torch's fused kernel, and momentum."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from sparsevae.training import torch_internals

_SLICE = 16_384  # values that one block of GPU threads updates
_WHOLE = 2**22  # weights of so many values are 64 blocks or more without being cut
Gradients = Sequence[Tensor | None]
"""One for each weight; None where nothing depends on it."""


class Optimiser:
    """Steps of weights along their gradients, at a rate that is a tensor on their device.

    Parameters
    ----------
    parameters : the weights.
    rate : Tensor ()
        The learning rate, on the weights' device; write into it to change it.
    """

    lacks = ""  # the part of torch that would have been faster

    def __init__(self, parameters: Sequence[nn.Parameter], rate: Tensor) -> None:
        self.parameters, self.rate = list(parameters), rate

    def step(self, gradients: Gradients) -> None:
        """One step, from one gradient for each weight; a weight whose gradient is None is left alone."""
        raise NotImplementedError

    def state(self) -> Iterator[tuple[str, Tensor]]:
        """Everything that later steps depend on, by name."""
        raise NotImplementedError

    def forget(self) -> None:
        """Start anew, as if no step had been taken."""
        for _, value in self.state():
            value.zero_()


class Adam(Optimiser):
    """m <- b1 m + (1 - b1) g; v <- b2 v + (1 - b2) g^2; w <- w - rate m' / (sqrt(v') + eps), m' and v' unbiased.

    The same numbers as `torch.optim.Adam(fused=True)` for weights that have a gradient at every step, at a fraction of
    its cost a step: nothing is regrouped, and there is one count of steps for all weights. torch counts for each weight
    the steps at which it had a gradient. So one whose first gradient comes at step t moves by the rate there, and here
    by the rate times (1 - b1) / (1 - b1^t) sqrt((1 - b2^t) / (1 - b2)): .55 at t = 5, 3.2 at t = 10^4. Weights of the
    library's own networks have a gradient at every step or at none; those of a network of your own may differ.

    On a GPU the kernel gets slices of the weights. It starts one block of threads for each 65,536 values it is handed
    in one piece, so a model of a million weights would occupy 20 of some 130 processors. It takes some 30 pieces at
    once, so large weights stay whole.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], rate: Tensor) -> None:
        super().__init__(parameters, rate)
        self.first = [torch.zeros_like(p) for p in self.parameters]
        self.second = [torch.zeros_like(m) for m in self.first]
        self.count = torch.zeros((), device=rate.device)
        self._update = torch_internals.adam(rate.device)
        self.lacks = "" if self._update is torch_internals.fused_adam else "torch._fused_adam_"

    @torch.no_grad()
    def step(self, gradients: Gradients) -> None:
        fours = zip(self.parameters, gradients, self.first, self.second, strict=True)
        moving: list[tuple[Tensor, ...]] = [(p, g, m, v) for p, g, m, v in fours if g is not None]
        if self.rate.is_cuda:
            moving = [piece for four in moving for piece in _slices(four)]
        weights, gradients, first, second = zip(*moving, strict=True)
        self.count.add_(1)
        self._update(weights, gradients, first, second, self.count, self.rate)

    def state(self) -> Iterator[tuple[str, Tensor]]:
        yield "adam.count", self.count
        for i, (m, v) in enumerate(zip(self.first, self.second, strict=True)):
            yield f"adam.{i}.first", m
            yield f"adam.{i}.second", v


def _slices(four: Sequence[Tensor]) -> Iterator[tuple[Tensor, ...]]:
    """A weight, its gradient and moments in pieces of `_SLICE` values, where they lie in memory alike."""
    cut = four[0].numel() < _WHOLE and all(t.is_contiguous() for t in four)
    return zip(*(t.reshape(-1).split(_SLICE) if cut else (t,) for t in four), strict=True)


class Momentum(Optimiser):
    """v <- .9 v + g; w <- w - rate v: stochastic gradient descent as Jang et al. train."""

    def __init__(self, parameters: Sequence[nn.Parameter], rate: Tensor) -> None:
        super().__init__(parameters, rate)
        self.velocity = [torch.zeros_like(p) for p in self.parameters]

    @torch.no_grad()
    def step(self, gradients: Gradients) -> None:
        for p, g, v in zip(self.parameters, gradients, self.velocity, strict=True):
            if g is not None:
                p.sub_(v.mul_(0.9).add_(g) * self.rate)

    def state(self) -> Iterator[tuple[str, Tensor]]:
        for i, v in enumerate(self.velocity):
            yield f"momentum.{i}", v


OPTIMISERS: dict[str, type[Optimiser]] = {"adam": Adam, "momentum": Momentum}
"""The optimisers that a training setting may name."""


def clip_gradients(gradients: Gradients, largest: float, members: torch.Size) -> None:
    """Scale each member's whole gradient down to norm `largest` at most, in place; members are leading dimensions."""
    n = len(members)
    found = [g for g in gradients if g is not None]
    squares = torch.stack([g.square().reshape(*members, -1).sum(-1) for g in found]).sum(0)
    factor = (largest / (squares.sqrt() + 1e-12)).clamp(max=1.0)
    for g in found:
        g.mul_(factor.view(members + (1,) * (g.dim() - n)))
