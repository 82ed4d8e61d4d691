"""Dense layers; those for images are in `convolutions`.

A layer may have leading member dimensions, so that several models of one shape are trained together: inputs are
(*members, B, D_in) or shared (B, D_in), outputs (*members, B, D_out).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Layer(nn.Module):
    """A layer whose weights are undefined until `initialise`: its constructor uses no random state."""

    def reset(self, generator: torch.Generator) -> None:
        """Draw the weights from an explicit generator."""
        raise NotImplementedError


_FEW = 16
"""The smallest number of outputs. With fewer than 12, and a D_in not divisible by 4, the rounding of a row by MKL
depends on its position in the batch."""


def rowwise(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x W^T + b, of which without gradients a row depends on that row of x only (see `_FEW`)."""
    missing = _FEW - len(weight)
    if missing > 0 and x.device.type == "cpu" and not torch.is_grad_enabled():
        bias = None if bias is None else F.pad(bias, (0, missing))
        return F.linear(x, F.pad(weight, (0, 0, 0, missing)), bias)[..., :-missing]
    return F.linear(x, weight, bias)


def _rowwise_both(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x W^T + b, of which a row, and a row of its gradient with respect to x, depend on that row of x only."""
    n_out, n_in = weight.shape
    more_in, more_out = max(0, _FEW - n_in), max(0, _FEW - n_out)
    if not (more_in or more_out):
        return F.linear(x, weight, bias)
    return F.linear(F.pad(x, (0, more_in)), F.pad(weight, (0, more_in, 0, more_out)), F.pad(bias, (0, more_out)))[
        ..., :n_out
    ]


class Linear(Layer):
    """y = x W^T + b with W (*members, D_out, D_in); without members, torch's own linear map.

    Without gradients, the output for a row on a CPU depends on that row only: if there are few outputs, more are
    computed and dropped; in eval mode so does its gradient. (Training does not need this: its batches are random.)
    """

    def __init__(self, n_in: int, n_out: int, members: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(*members, n_out, n_in))
        self.bias = nn.Parameter(torch.empty(*members, n_out))

    def reset(self, generator: torch.Generator) -> None:
        """Uniform on +-1/sqrt(D_in), torch's default."""
        bound = 1 / math.sqrt(self.weight.shape[-1])
        with torch.no_grad():
            self.weight.uniform_(-bound, bound, generator=generator)
            self.bias.uniform_(-bound, bound, generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        if self.weight.dim() == 2:
            if torch.is_grad_enabled() and not self.training and x.device.type == "cpu":
                return _rowwise_both(x, self.weight, self.bias)
            return rowwise(x, self.weight, self.bias)
        if self.weight.dim() == 3 and x.dim() == 3:
            return torch.baddbmm(self.bias.unsqueeze(-2), x, self.weight.mT)
        return x @ self.weight.mT + self.bias.unsqueeze(-2)


def mlp(sizes: Sequence[int], members: tuple[int, ...] = (), *, activate_last: bool = False) -> nn.Sequential:
    """Linear layers of the given sizes with ReLU between them; `activate_last` ends in a ReLU too."""
    layers: list[nn.Module] = []
    for n_in, n_out in pairwise(sizes):
        layers += [Linear(n_in, n_out, members), nn.ReLU()]
    return nn.Sequential(*(layers if activate_last else layers[:-1]))


class Branched(nn.Module):
    """A dense net with n_out outputs, and a branch with one more, (..., D) -> (..., n_out + 1).

    The branch starts at the input, or at the hidden layer number `shared` of the net.
    """

    def __init__(
        self,
        n_in: int,
        hidden: Sequence[int],
        n_out: int,
        branch: Sequence[int],
        shared: int = 0,
        members: tuple[int, ...] = (),
    ) -> None:
        super().__init__()
        sizes = (n_in, *hidden)
        self.trunk = mlp(sizes[: shared + 1], members, activate_last=True)
        self.net = mlp((*sizes[shared:], n_out), members)
        self.branch = mlp((sizes[shared], *branch, 1), members)

    def forward(self, x: Tensor) -> Tensor:
        h = self.trunk(x)
        return torch.cat([self.net(h), self.branch(h)], -1)


class Skip(nn.Module):
    """deep(x) + W x + b: a linear path beside a deep network."""

    def __init__(self, deep: nn.Module, n_in: int, n_out: int, members: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.deep = deep
        self.linear = Linear(n_in, n_out, members)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.deep(x) + self.linear(x)
        return found


def linear_path(network: nn.Module) -> Linear | None:
    """The linear map of a network that is linear, or that has one beside it (`Skip`); None for others."""
    if isinstance(network, Skip):
        return network.linear
    layers = [m for m in network.modules() if not isinstance(m, (nn.Sequential, nn.Identity))]
    return layers[0] if len(layers) == 1 and isinstance(layers[0], Linear) else None


def initialise(module: nn.Module, generator: torch.Generator | None) -> None:
    """Draw the weights of each `Layer`, in order; a user's own layers keep their weights.

    With generator=None nothing is drawn: for a model whose weights are loaded afterwards.
    """
    for layer in module.modules():
        if generator is not None and isinstance(layer, Layer):
            layer.reset(generator)
