"""Convolutions and batch normalisation of several members at once.

Between these layers the M members are blocks of channels, (B, M C, H, W), so that one grouped convolution computes
all of them: `ToImage` converts rows to this form, `ToRows` back.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from sparsevae.networks.dense import Layer


class ToImage(nn.Module):
    """Rows (*members, B, H W C), or shared (B, H W C), -> (B, M C, H, W); a row lists H, then W, then C."""

    def __init__(self, height: int, width: int, channels: int, members: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.shape, self.members = (height, width, channels), members

    def forward(self, x: Tensor) -> Tensor:
        (height, width, channels), count = self.shape, math.prod(self.members)
        if count == 1 and 1 in (channels, height * width):  # no copy, and strides that compilers expect
            return x.reshape(-1, channels, height, width)
        x = x.expand(*self.members, *x.shape[-2:]).reshape(count, -1, height, width, channels)
        return x.permute(1, 0, 4, 2, 3).reshape(-1, count * channels, height, width).contiguous()


class ToRows(nn.Module):
    """(B, M P C, H, W) -> (*members, B, P H W C): first all first parameters of a likelihood, then all second ones."""

    def __init__(self, members: tuple[int, ...] = (), parts: int = 1) -> None:
        super().__init__()
        self.members, self.parts = members, parts

    def forward(self, x: Tensor) -> Tensor:
        count, (_, channels, height, width) = math.prod(self.members), x.shape
        each = channels // (count * self.parts)
        if count == 1 and 1 in (each, height * width):  # no copy, and strides that compilers expect
            rows = x.flatten(1).unsqueeze(0)
        else:
            rows = x.reshape(-1, count, self.parts, each, height, width).permute(1, 0, 2, 4, 5, 3).flatten(2)
        return rows.reshape(*self.members, *rows.shape[1:])


def same(n: int, kernel: int, stride: int) -> tuple[int, int, int]:
    """The number of outputs of a convolution over n values, ceil(n / stride), and the zeros to add before and after.

    >>> same(28, 3, 2), same(7, 3, 2), same(32, 4, 2)
    ((14, 0, 1), (4, 1, 1), (16, 1, 1))
    """
    out = -(-n // stride)
    zeros = max((out - 1) * stride + kernel - n, 0)
    return out, zeros // 2, zeros - zeros // 2


class _Kernels(Layer):
    """Square kernels between images of one size, (H, W), and maps of ceil(H / stride) x ceil(W / stride).

    Initial weights are torch's default, uniform on +-1/sqrt(fan), or N(0, deviation^2) with biases of 0.
    """

    transposed: ClassVar[bool]

    def __init__(
        self,
        size: Sequence[int],
        n_in: int,
        n_out: int,
        kernel: int,
        stride: int = 1,
        members: tuple[int, ...] = (),
        *,
        bias: bool = True,
        deviation: float | None = None,
    ) -> None:
        super().__init__()
        self.size, self.stride = tuple(size), stride
        self.groups, self.deviation = math.prod(members), deviation
        channels = (n_in, n_out) if self.transposed else (n_out, n_in)
        self.weight = nn.Parameter(torch.empty(*members, *channels, kernel, kernel))
        self.bias = nn.Parameter(torch.empty(*members, n_out)) if bias else None
        (_, top, bottom), (_, left, right) = (same(n, kernel, stride) for n in size)
        self.before, self.more = (
            (top, left),
            (0, right - left, 0, bottom - top),
        )  # zeros on both sides, and those after the end

    def reset(self, generator: torch.Generator) -> None:
        bound = 1 / math.sqrt(self.weight.shape[-3:].numel())
        with torch.no_grad():
            for p in self.parameters():
                if self.deviation is None:
                    p.uniform_(-bound, bound, generator=generator)
                elif p is self.weight:
                    p.normal_(0, self.deviation, generator=generator)
                else:
                    p.zero_()

    def _folded(self) -> tuple[Tensor, Tensor | None]:
        """Weights and biases of all members, concatenated along the output channels."""
        return self.weight.flatten(0, -4), None if self.bias is None else self.bias.flatten()


class Convolution(_Kernels):
    """(B, M C_in, H, W) -> (B, M C_out, ceil(H / stride), ceil(W / stride)), zero-padded by `same`."""

    transposed: ClassVar[bool] = False

    def forward(self, x: Tensor) -> Tensor:
        weight, bias = self._folded()
        if any(self.more):
            x = functional.pad(x, self.more)
        return functional.conv2d(x, weight, bias, self.stride, self.before, groups=self.groups)


class TransposedConvolution(_Kernels):
    """(B, M C_in, ceil(H / stride), ceil(W / stride)) -> (B, M C_out, H, W): the adjoint of a `Convolution`."""

    transposed: ClassVar[bool] = True

    def forward(self, x: Tensor) -> Tensor:
        weight, bias = self._folded()
        y = functional.conv_transpose2d(x, weight, bias, self.stride, self.before, groups=self.groups)
        return y[..., : self.size[0], : self.size[1]]


class BatchNorm(Layer):
    """Normalise each channel to mean 0 and variance 1 over the batch, then apply a learned scale and shift.

    In eval mode the running means of the batch statistics are used instead. No number of batches is stored: all state
    has the dimensions of members, with four numbers per channel.
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, channels: int, members: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.weight, self.bias = (nn.Parameter(torch.empty(*members, channels)) for _ in range(2))
        self.register_buffer("running_mean", torch.empty(*members, channels))
        self.register_buffer("running_var", torch.empty(*members, channels))

    def reset(self, generator: torch.Generator) -> None:
        with torch.no_grad():
            for tensor, value in ((self.weight, 1), (self.bias, 0), (self.running_mean, 0), (self.running_var, 1)):
                tensor.fill_(value)

    def forward(self, x: Tensor) -> Tensor:
        mean, var, weight, bias = (t.view(-1) for t in (self.running_mean, self.running_var, self.weight, self.bias))
        return functional.batch_norm(x, mean, var, weight, bias, self.training)
