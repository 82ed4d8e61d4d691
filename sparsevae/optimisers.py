"""Optimisers whose state is plain tensors and whose rate is one: Adam with torch's fused kernel, and momentum."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from sparsevae.lanes import LANES, together

__all__ = ["OPTIMISERS", "Adam", "Momentum", "Optimiser"]

_SLICE = 16_384  # values that one block of GPU threads updates
_WHOLE = 2**22  # weights of so many values are 64 blocks or more without being cut
_PIECES = 30  # of weights that the kernel takes at once


class Optimiser:
    """Steps of weights that have gradients, at a rate that is a tensor on their device.

    Parameters
    ----------
    parameters : weights, each with its `.grad` at every `step` (one without a gradient is left alone).
    rate : Tensor ()
        The learning rate, on the weights' device; write into it to change it.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], rate: Tensor) -> None:
        self.parameters, self.rate = list(parameters), rate

    def step(self) -> None:
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

    The same numbers as `torch.optim.Adam(fused=True)`, at a fraction of its cost a step: there is one count of steps
    for all weights, nothing is regrouped, and on a GPU the kernel gets slices of the weights. It starts one block of
    threads for each 65,536 values it is handed in one piece, so a model of a million weights would occupy 20 of some
    130 processors. It takes some 30 pieces at once, so large weights stay whole; in a captured graph the calls run side
    by side.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], rate: Tensor) -> None:
        super().__init__(parameters, rate)
        self.first = [torch.zeros_like(p) for p in self.parameters]
        self.second = [torch.zeros_like(m) for m in self.first]
        self.count = torch.zeros((), device=rate.device)
        self.side: list[torch.cuda.Stream] = []

    @torch.no_grad()
    def step(self) -> None:
        weights: list[Tensor] = []
        gradients: list[Tensor] = []
        first: list[Tensor] = []
        second: list[Tensor] = []
        for p, m, v in zip(self.parameters, self.first, self.second, strict=True):
            if p.grad is not None:
                four = (p, p.grad, m, v)
                cut = p.is_cuda and p.numel() < _WHOLE and all(t.is_contiguous() for t in four)
                for parts, whole in zip((weights, gradients, first, second), four, strict=True):
                    parts.extend(whole.reshape(-1).split(_SLICE) if cut else (whole,))
        self.count.add_(1)
        pieces = list(zip(weights, gradients, first, second, strict=True))
        if not (self.rate.is_cuda and torch.cuda.is_current_stream_capturing()):
            return self._update(pieces)
        self.side = self.side or [torch.cuda.Stream(self.rate.device) for _ in range(LANES - 1)]
        calls = (partial(self._update, pieces[i : i + _PIECES]) for i in range(0, len(pieces), _PIECES))
        together(calls, self.side, self.rate.device)

    def _update(self, pieces: Sequence[tuple[Tensor, ...]]) -> None:
        """One call, of a kernel for every `_PIECES` of them."""
        weights, gradients, first, second = (list(part) for part in zip(*pieces, strict=True))
        torch._fused_adam_(
            weights,
            gradients,
            first,
            second,
            [],
            [self.count] * len(weights),
            lr=self.rate,
            beta1=0.9,
            beta2=0.999,
            weight_decay=0.0,
            eps=1e-8,
            amsgrad=False,
            maximize=False,
        )

    def state(self) -> Iterator[tuple[str, Tensor]]:
        yield "adam.count", self.count
        for i, (m, v) in enumerate(zip(self.first, self.second, strict=True)):
            yield f"adam.{i}.first", m
            yield f"adam.{i}.second", v


class Momentum(Optimiser):
    """v <- .9 v + g; w <- w - rate v: stochastic gradient descent as Jang et al. train."""

    def __init__(self, parameters: Sequence[nn.Parameter], rate: Tensor) -> None:
        super().__init__(parameters, rate)
        self.velocity = [torch.zeros_like(p) for p in self.parameters]

    @torch.no_grad()
    def step(self) -> None:
        moving = [(p, p.grad, v) for p, v in zip(self.parameters, self.velocity, strict=True) if p.grad is not None]
        weights, gradients, velocity = (list(part) for part in zip(*moving, strict=True))
        torch._foreach_mul_(velocity, 0.9)
        torch._foreach_add_(velocity, gradients)
        torch._foreach_sub_(weights, torch._foreach_mul(velocity, self.rate))

    def state(self) -> Iterator[tuple[str, Tensor]]:
        for i, v in enumerate(self.velocity):
            yield f"momentum.{i}", v


OPTIMISERS: dict[str, type[Optimiser]] = {"adam": Adam, "momentum": Momentum}
"""The optimisers that a training setting may name."""
