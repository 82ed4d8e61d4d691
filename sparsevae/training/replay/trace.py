"""A step's loss and gradients as one list of tensor operations, written down once and then repeated.

Modules, distributions and autograd's own book-keeping take a good part of a small model's step on a CPU, and do the
same at every one. So a step is taken once with tensors that have shapes and no data, and every operation of its forward
and backward pass is noted: what a CUDA graph is to kernels, this is to operations. Repeated, they give the same bits.
A compiler that gets both passes in one piece fuses what it could not fuse in two.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from sparsevae.sampling.noise import Tape
from sparsevae.training.replay.guard import ALONE
from sparsevae.training.replay.shorten import shorten
from sparsevae.training.replay.unroll import unrolled
from sparsevae.training.torch_internals import all_hooked, compiled, hooked, record, storage_key

OPTIONS: dict[str, Any] = {"layout_optimization": False}
"""The compiler's: layouts stay as they are, since with its own torch 2.11 cannot compile images of one channel."""


@contextmanager
def _quietly() -> Iterator[None]:
    """One thread at a time, and without torch's own warnings, raised while it imports what traces and compiles."""
    with ALONE, warnings.catch_warnings():  # who traces changes what all modules of the process do when called
        warnings.simplefilter("ignore")
        yield


def repeatable(parts: Iterable[nn.Module]) -> bool:
    """Whether a trace of these parts calls all that a step calls, in not too many operations.

    Hooks are not called while a step is repeated. A recurrent net takes some twenty operations per position.
    """
    modules = [m for part in parts for m in part.modules()]
    return not all_hooked() and not any(isinstance(m, (nn.RNNBase, nn.RNNCellBase)) or hooked(m) for m in modules)


class _Whole(nn.Module):
    """A function of a batch and the modules that it calls, so that their tensors can be exchanged for others."""

    def __init__(self, function: Callable[..., tuple[Tensor, Tensor]], parts: Iterable[nn.Module]) -> None:
        super().__init__()
        self.function, self.parts = function, nn.ModuleList(parts)

    def forward(self, *batch: Tensor) -> tuple[Tensor, Tensor]:
        return self.function(*batch)


def _slots(whole: nn.Module) -> dict[str, Tensor]:
    """Every tensor of a module and its parts by name, each once for every module that has it."""
    return {
        f"{path}.{name}": tensor
        for path, m in whole.named_modules()
        for named in (m.named_parameters, m.named_buffers)
        for name, tensor in named(recurse=False, remove_duplicate=False)
    }


def _apart(
    gradients: Sequence[Tensor | None], weights: Sequence[Tensor], others: Sequence[Tensor]
) -> list[Tensor | None]:
    """Gradients with memory of their own, which lie there as their weights do: an optimiser goes through both alike."""
    taken, found = {storage_key(t) for t in others}, list[Tensor | None]()
    for g, w in zip(gradients, weights, strict=True):
        if g is not None:
            if g.stride() != w.stride() or storage_key(g) in taken:
                g = torch.empty_like(w).copy_(g)
            taken.add(storage_key(g))
        found.append(g)
    return found


class Graph:
    """terms, gradients = graph(*batch): one step's loss and gradients, from what its modules and its noise hold now.

    All that a step reads but its batch must be a tensor of `parts` or of `noise`, and be written to in place, if at
    all. One from elsewhere that meets one of these is an error. What Python makes of other things is never looked at
    again: whether it is the same at every step, `Acceleration` finds out.

    Parameters
    ----------
    function : the tensors of a batch -> (loss (*members,), terms), the latter without a gradient
    parts : every module that it calls
    weights : those of their parameters to differentiate by
    noise : the tape that it takes its noise from, recorded
    *batch : Tensor
        A batch; the tensors of later ones have the same shapes and types.
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
        known = {id(t): t for t in (*weights, *slots.values())}  # one that several modules have counts once
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

    def __call__(self, *batch: Tensor) -> tuple[Tensor, list[Tensor | None]]:
        return self._results(self._call, batch)

    def repeat(self, *batch: Tensor) -> tuple[Tensor, list[Tensor | None]]:
        """The same from the list of operations, even if they were compiled: to the bit what an eager step gives."""
        return self._results(self._list, batch)

    @staticmethod
    def _results(
        call: Callable[..., list[Tensor | None]], batch: Sequence[Tensor]
    ) -> tuple[Tensor, list[Tensor | None]]:
        with torch.no_grad():
            terms, *gradients = call(*batch)
        assert terms is not None
        return terms, gradients

    def compile(self, *batch: Tensor) -> None:
        """From now on run compiled code, whose sums may be rounded otherwise; of any batch."""
        with _quietly(), torch.no_grad():
            # shapes are not looked at again in every step: the tensors are the same
            code = compiled(self.module, [*self.static, *batch], OPTIONS | {"size_asserts": False})
            code(*self.static, *batch)
        self._call = lambda *batch: code(*self.static, *batch)
