"""A step's loss and gradients as one list of tensor operations, written down once and then repeated.

Modules, distributions and autograd's own book-keeping take a good part of a small model's step on a CPU, and do the
same at every one. So a step is taken once with tensors that have shapes and no data, and every operation of its forward
and backward pass is noted: what a CUDA graph is to kernels, this is to operations. Repeated, they give the same bits.
A compiler that gets both passes in one piece fuses what it could not fuse in two.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn
from torch.func import functional_call

from sparsevae.draw import Tape

__all__ = ["Graph", "repeatable"]

_OWN = ("sparsevae.", "torch.nn.")


def repeatable(*parts: nn.Module) -> bool:
    """Whether the Python of these and of their modules does the same at every step, in not too many operations.

    Ours and torch's do; what a user's own do, nobody knows. A recurrent net takes some twenty operations a position.
    """
    modules = [m for part in parts for m in part.modules()]
    return all(type(m).__module__.startswith(_OWN) and not isinstance(m, nn.RNNBase) for m in modules)


class _Whole(nn.Module):
    """A function of x and the modules that it calls, so that their tensors can be exchanged for others."""

    def __init__(self, function: Callable[[Tensor], tuple[Tensor, Tensor]], parts: Iterable[nn.Module]) -> None:
        super().__init__()
        self.function, self.parts = function, nn.ModuleList(parts)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.function(x)


def _apart(gradients: Iterable[Tensor | None], others: Iterable[Tensor]) -> list[Tensor | None]:
    """Gradients with memory of their own, without gaps or overlaps, as an optimiser may write into them."""
    taken, found = {t.untyped_storage()._cdata for t in others}, list[Tensor | None]()
    for g in gradients:
        if g is not None:
            if not g.is_contiguous() or g.untyped_storage()._cdata in taken:
                g = g.clone(memory_format=torch.contiguous_format)
            taken.add(g.untyped_storage()._cdata)
        found.append(g)
    return found


class Graph:
    """terms, gradients = graph(x): one step's loss and gradients, from what its modules and its noise hold now.

    All that a step reads but x must be a tensor of `parts` or of `noise`, and be written to in place. One that it finds
    elsewhere is an error.

    Parameters
    ----------
    function : x -> (loss (*members,), terms), the latter without a gradient
    parts : every module that it calls
    weights : those of their parameters to differentiate by
    noise : the tape that it takes its noise from, recorded
    x : Tensor
        A batch; later ones have its shape and type.
    """

    def __init__(
        self,
        function: Callable[[Tensor], tuple[Tensor, Tensor]],
        parts: Iterable[nn.Module],
        weights: list[nn.Parameter],
        noise: Tape,
        x: Tensor,
    ) -> None:
        whole, learned = _Whole(function, parts), {id(p) for p in weights}
        named = dict(whole.named_parameters()) | dict(whole.named_buffers())
        names = sorted(named, key=lambda k: id(named[k]) not in learned)  # weights first
        if [id(named[k]) for k in names[: len(weights)]] != [id(p) for p in weights]:
            raise ValueError("weights must be parameters of the parts, in their order.")
        n, end = len(weights), len(names) + len(noise.normals)

        def step(*inputs: Tensor) -> list[Tensor | None]:
            *static, batch = inputs
            with torch.enable_grad():
                by = [p.detach().requires_grad_() for p in static[:n]]
                with noise.lent(static[len(names) : end], static[end:]):
                    tensors = dict(zip(names, [*by, *static[n : len(names)]], strict=True))
                    loss, terms = functional_call(whole, tensors, (batch,))
                gradients = torch.autograd.grad(loss, by, torch.ones_like(loss), allow_unused=True)
            return [terms, *_apart(gradients, inputs)]

        self.static = [*(named[k].detach() for k in names), *noise.normals, *noise.uniforms]
        with warnings.catch_warnings():  # torch's own, raised while it imports what traces and compiles
            warnings.simplefilter("ignore")
            from torch.fx.experimental.proxy_tensor import make_fx

            self.module = make_fx(step, tracing_mode="fake")(*self.static, x)
        _tidy(self.module)
        self._call: Callable[..., list[Tensor | None]] = self.module.forward
        self._x = x

    def __call__(self, x: Tensor) -> tuple[Tensor, list[Tensor | None]]:
        with torch.no_grad():
            terms, *gradients = self._call(*self.static, x)
        assert terms is not None
        return terms, gradients

    def compile(self) -> None:
        """From now on run compiled code, whose sums may be rounded otherwise."""
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            from torch._inductor import compile as inductor

            # Layouts stay as they are: with its own, torch 2.11 cannot compile images of one channel. Shapes are not
            # looked at again in every step: the tensors are the same.
            options = {"layout_optimization": False, "size_asserts": False}
            self._call = inductor(self.module, [*self.static, self._x], options)
            self._call(*self.static, self._x)


def _tidy(module: torch.fx.GraphModule) -> None:
    """Leave out what is there for autograd alone: detached aliases, and transposes of transposes."""
    detach, transpose = torch.ops.aten.detach.default, torch.ops.aten.t.default
    for node in list(module.graph.nodes):
        if node.target == detach:
            node.replace_all_uses_with(node.args[0])
        elif node.target == transpose and node.args[0].target == transpose:
            node.replace_all_uses_with(node.args[0].args[0])
    module.graph.eliminate_dead_code()
    module.recompile()
