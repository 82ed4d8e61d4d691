"""All that training uses of torch beyond its public interface.

Tested with torch 2.11 to 2.13. If another version lacks a name, tracing or compiling fails, one line reports it, and
the run takes eager steps. If another version computes something else, the comparison of a traced step with an eager
one shows it. `adam` works without the fused kernel.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import GraphModule

OLDEST, NEWEST = (2, 11), (2, 13)
"""The oldest and the newest version of torch that this module was tested with."""
REGISTERED = ("_parameters", "_buffers", "_modules")
"""Attributes of a module: dicts of its parameters, buffers and submodules by name."""
BETAS, EPSILON = (0.9, 0.999), 1e-8
"""Adam's decay rates and its epsilon."""
FUSED_ADAM = "_fused_adam_"
"""Name of the kernel in torch."""
Tensors = tuple[Tensor, ...]
_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")


def untried() -> str:
    """A note on the version of torch if it is outside the tested range, else an empty string."""
    version = tuple(map(int, torch.__version__.split("+")[0].split(".")[:2]))
    span = " to ".join(".".join(map(str, v)) for v in (OLDEST, NEWEST))
    return "" if OLDEST <= version <= NEWEST else f"torch {torch.__version__}, tried with {span}"


def record(function: Callable[..., Any], *inputs: Tensor) -> GraphModule:
    """The tensor operations of a function as a graph, recorded with fake tensors (shapes without data)."""
    from torch.fx.experimental.proxy_tensor import make_fx

    return make_fx(function, tracing_mode="fake")(*inputs)


def compiled(module: GraphModule, inputs: list[Any], options: dict[str, Any]) -> Callable[..., Any]:
    """A recorded graph, compiled by inductor."""
    from torch._inductor import compile as inductor

    code: Callable[..., Any] = inductor(module, inputs, options)
    return code


def schema(target: Any) -> Any:
    """The schema of an operation (its arguments and results); None for `getitem` and for inputs."""
    return None if target is operator.getitem or isinstance(target, str) else target._schema


def entry(target: Any) -> Any:
    """The entry point of an operation, without the Python wrapper around it."""
    return getattr(target, "_op", target)


def storage_key(tensor: Tensor) -> int:
    """A number that is equal for tensors that share memory; fake tensors have one too."""
    return int(tensor.untyped_storage()._cdata)


def hooked(module: nn.Module) -> bool:
    """True if the module itself (not its submodules) or one of its parameters has a hook."""
    weights = module.parameters(recurse=False)
    return any(getattr(module, hooks) for hooks in _HOOKS) or any(
        p._backward_hooks or p._post_accumulate_grad_hooks for p in weights
    )


def all_hooked() -> bool:
    """True if a hook is registered for all modules of the process."""
    return bool(nn.modules.module._has_any_global_hook())


def adam(weights: Tensors, gradients: Tensors, first: Tensors, second: Tensors, count: Tensor, rate: Tensor) -> None:
    """The `count`-th step of Adam, in place: by torch's fused kernel, or without it by public operations."""
    b1, b2 = BETAS
    if hasattr(torch, FUSED_ADAM):
        settings: dict[str, Any] = {"weight_decay": 0.0, "amsgrad": False, "maximize": False, "eps": EPSILON}
        counts = [count] * len(weights)
        torch._fused_adam_(weights, gradients, first, second, [], counts, lr=rate, beta1=b1, beta2=b2, **settings)
        return
    unbiased1, unbiased2 = 1 - b1**count, 1 - b2**count
    for w, g, m, v in zip(weights, gradients, first, second, strict=True):
        m.lerp_(g, 1 - b1)
        v.lerp_(g.square(), 1 - b2)
        w.sub_(rate * (m / unbiased1) / ((v / unbiased2).sqrt() + EPSILON))
