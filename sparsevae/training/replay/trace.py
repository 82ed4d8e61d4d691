"""The loss and gradients of one step as a list of tensor operations, recorded once and then repeated.

In a small model on a CPU, the Python of modules and distributions and the bookkeeping of autograd take a large part of
each step, and are the same at every step. So a step is run once with fake tensors (shapes without data), and all
operations of its forward and backward pass are recorded, as a CUDA graph records kernels. Repeating them gives the same
bits. A compiler that gets both passes together can fuse operations across them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call

from sparsevae.sampling.noise import Tape
from sparsevae.training.replay.guard import ALONE
from sparsevae.training.replay.shorten import shorten
from sparsevae.training.replay.unroll import unrolled
from sparsevae.training.torch_internals import all_hooked, compiled, hooked, record, storage_key

OPTIONS: dict[str, Any] = {"layout_optimization": False}
"""Options of the compiler: no layout changes, since torch 2.11 cannot compile images of one channel with them."""


@contextmanager
def _quietly() -> Iterator[None]:
    """Run the block in one thread at a time, without the warnings that torch raises when it imports its compiler."""
    with ALONE, warnings.catch_warnings():  # tracing patches the call of all modules of the process
        warnings.simplefilter("ignore")
        yield


def repeatable(parts: Iterable[nn.Module]) -> bool:
    """True if a trace of these modules is complete and short: no hooks, which it would not call, and no recurrent nets.

    A recurrent net takes some twenty operations per position.
    """
    modules = [m for part in parts for m in part.modules()]
    return not all_hooked() and not any(isinstance(m, (nn.RNNBase, nn.RNNCellBase)) or hooked(m) for m in modules)


class _Whole(nn.Module):
    """A function and the modules that it calls as one module, so that `functional_call` can replace their tensors."""

    def __init__(self, function: Callable[..., tuple[Tensor, Tensor]], parts: Iterable[nn.Module]) -> None:
        super().__init__()
        self.function, self.parts = function, nn.ModuleList(parts)

    def forward(self, *batch: Tensor) -> tuple[Tensor, Tensor]:
        return self.function(*batch)


def _slots(whole: nn.Module) -> dict[str, Tensor]:
    """All parameters and buffers by name; one that several modules share has a name per module."""
    return {
        f"{path}.{name}": tensor
        for path, m in whole.named_modules()
        for named in (m.named_parameters, m.named_buffers)
        for name, tensor in named(recurse=False, remove_duplicate=False)
    }


def _apart(
    gradients: Sequence[Tensor | None], weights: Sequence[Tensor], others: Sequence[Tensor]
) -> list[Tensor | None]:
    """Gradients that share no memory with other tensors and have the strides of their weights, as optimisers need."""
    taken = {storage_key(t) for t in others}
    found: list[Tensor | None] = []
    for g, w in zip(gradients, weights, strict=True):
        if g is not None:
            if g.stride() != w.stride() or storage_key(g) in taken:
                g = torch.empty_like(w).copy_(g)
            taken.add(storage_key(g))
        found.append(g)
    return found


class Graph:
    """terms, gradients = graph(*batch): the terms and gradients of one step at the current weights and noise.

    Besides the batch, a step may read only tensors of `parts` and `noise`, which may change only in place; an operation
    on one of these and any other tensor is an error. Python values are constants of the trace: `Acceleration` checks
    that they are the same at every step.

    Parameters
    ----------
    function : callable
        The tensors of a batch -> (loss (*members,), terms); terms without a gradient.
    parts : iterable of nn.Module
        All modules that `function` calls.
    weights : list of nn.Parameter
        The parameters to differentiate by.
    noise : Tape
        The recorded tape that `function` reads its noise from.
    *batch : Tensor
        The tensors of a batch; those of later batches have the same shapes and types.
    """

    def __init__(
        self,
        function: Callable[..., tuple[Tensor, Tensor]],
        parts: Iterable[nn.Module],
        weights: list[nn.Parameter],
        noise: Tape,
        *batch: Tensor,
    ) -> None:
        whole = _Whole(function, parts)
        slots = _slots(whole)
        known = {id(t): t for t in (*weights, *slots.values())}  # a shared tensor is one input
        place = {key: i for i, key in enumerate(known)}
        places = {name: place[id(t)] for name, t in slots.items()}
        if not set(range(len(weights))) <= set(places.values()):
            raise ValueError("weights must be parameters of the parts.")
        n, m, end = len(weights), len(known), len(known) + len(noise.normals)
        fixed = end + len(noise.uniforms)

        def step(*inputs: Tensor) -> list[Tensor | None]:
            static, own_batch = inputs[:fixed], inputs[fixed:]
            with torch.enable_grad():
                by = [p.detach().requires_grad_() for p in static[:n]]
                tensors = [*by, *static[n:m]]
                with noise.substituted(static[m:end], static[end:]):
                    own = {name: tensors[i] for name, i in places.items()}
                    loss, terms = functional_call(whole, own, own_batch, tie_weights=False)
                ones = torch.ones(loss.shape, dtype=loss.dtype, device=loss.device)  # a constant, unlike ones_like
                gradients = torch.autograd.grad(loss, by, ones, allow_unused=True)
            return [terms, *_apart(gradients, by, inputs)]

        self.static = [*(t.detach() for t in known.values()), *noise.normals, *noise.uniforms]
        with _quietly():
            self.module = record(step, *self.static, *batch)
        shorten(self.module.graph)
        self.module.recompile()
        self._call = self._list = unrolled(self.module.graph, self.static)

    @torch.no_grad()
    def __call__(self, *batch: Tensor) -> tuple[Tensor, list[Tensor | None]]:
        terms, *gradients = self._call(*batch)
        return cast(Tensor, terms), gradients

    @torch.no_grad()
    def repeat(self, *batch: Tensor) -> tuple[Tensor, list[Tensor | None]]:
        """The same without compiled code: bit for bit what an eager step gives."""
        terms, *gradients = self._list(*batch)
        return cast(Tensor, terms), gradients

    def compile(self, *batch: Tensor) -> None:
        """Run compiled code from now on, for any batch; it may round sums in another way."""
        with _quietly(), torch.no_grad():
            # no checks of shapes at each step: they never change
            code = compiled(self.module, [*self.static, *batch], OPTIONS | {"size_asserts": False})
            code(*self.static, *batch)
        self._call = lambda *batch: code(*self.static, *batch)
