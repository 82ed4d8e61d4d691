"""Optimisers whose state and learning rate are tensors: Adam with torch's fused kernel, and momentum."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from sparsevae.training.torch_internals import adam

_SLICE = 16_384  # values per slice, updated by one block of GPU threads
_WHOLE = 2**22  # a weight with this many values fills 64 blocks or more without slicing
Gradients = Sequence[Tensor | None]
"""One gradient per weight; None if the loss does not depend on the weight."""


class Optimiser:
    """Updates weights in place from their gradients.

    Parameters
    ----------
    parameters : sequence of nn.Parameter
        The weights.
    rate : Tensor ()
        The learning rate, on the weights' device; write into it to change it.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], rate: Tensor) -> None:
        self.parameters, self.rate = list(parameters), rate

    def step(self, gradients: Gradients) -> None:
        """Take one step; a weight whose gradient is None does not change."""
        raise NotImplementedError

    def state(self) -> Iterator[tuple[str, Tensor]]:
        """Yield (name, tensor) for everything that later steps depend on."""
        raise NotImplementedError

    def forget(self) -> None:
        """Reset the state to zeros, as before the first step."""
        for _, value in self.state():
            value.zero_()


class Adam(Optimiser):
    """m <- b1 m + (1 - b1) g; v <- b2 v + (1 - b2) g^2; w <- w - rate m' / (sqrt(v') + eps), m' and v' unbiased.

    The same numbers as `torch.optim.Adam(fused=True)` for weights that have a gradient at every step, at a fraction of
    its cost per step: tensors are not regrouped, and all weights share one step count. torch counts per weight the
    steps with a gradient. So a weight whose first gradient comes at step t moves by the rate in torch, and here by the
    rate times (1 - b1) / (1 - b1^t) sqrt((1 - b2^t) / (1 - b2)): .55 at t = 5, 3.2 at t = 10^4. Weights of the
    library's own networks have a gradient at every step or at none; weights of your own network may differ.

    On a GPU the kernel gets slices of the weights. It starts one block of threads per 65,536 values of a tensor, so a
    model of a million weights would occupy 20 of some 130 multiprocessors. It takes some 30 tensors per launch, so
    large weights are not sliced.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], rate: Tensor) -> None:
        super().__init__(parameters, rate)
        self.first = [torch.zeros_like(p) for p in self.parameters]
        self.second = [torch.zeros_like(m) for m in self.first]
        self.count = torch.zeros((), device=rate.device)

    @torch.no_grad()
    def step(self, gradients: Gradients) -> None:
        fours = zip(self.parameters, gradients, self.first, self.second, strict=True)
        moving: list[tuple[Tensor, ...]] = [(p, g, m, v) for p, g, m, v in fours if g is not None]
        if self.rate.is_cuda:
            moving = [piece for four in moving for piece in _slices(four)]
        weights, gradients, first, second = zip(*moving, strict=True)
        self.count.add_(1)
        adam(weights, gradients, first, second, self.count, self.rate)

    def state(self) -> Iterator[tuple[str, Tensor]]:
        yield "adam.count", self.count
        for i, (m, v) in enumerate(zip(self.first, self.second, strict=True)):
            yield f"adam.{i}.first", m
            yield f"adam.{i}.second", v


def _slices(four: Sequence[Tensor]) -> Iterator[tuple[Tensor, ...]]:
    """A weight, its gradient and its moments in slices of `_SLICE` values; uncut if one of them is not contiguous."""
    cut = four[0].numel() < _WHOLE and all(t.is_contiguous() for t in four)
    return zip(*(t.reshape(-1).split(_SLICE) if cut else (t,) for t in four), strict=True)


class Momentum(Optimiser):
    """v <- .9 v + g; w <- w - rate v: stochastic gradient descent with momentum, as in Jang et al."""

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
"""Optimisers by the name that `Training(optimizer=...)` takes."""


def clip_gradients(gradients: Gradients, largest: float, members: torch.Size) -> None:
    """Scale the gradient of each member in place so that its norm is at most `largest`; members lead the shape."""
    found = [g for g in gradients if g is not None]
    squares = torch.stack([g.square().reshape(*members, -1).sum(-1) for g in found]).sum(0)
    factor = (largest / (squares.sqrt() + 1e-12)).clamp(max=1.0)
    for g in found:
        g.mul_(factor.view(members + (1,) * (g.dim() - len(members))))
