"""What training takes of torch that is not its public interface, all in one place.

It was tried with torch 2.11 to 2.13. A name that another version lacks is an error when a run is traced or compiled:
one line says so, and the run takes eager steps. What another version does otherwise shows when a traced step is
compared with an eager one; `adam` compares Adam's kernel with its formula.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import GraphModule

OLDEST, NEWEST = (2, 11), (2, 13)
"""Versions of torch between which all of this was tried."""
REGISTERED = ("_parameters", "_buffers", "_modules")
"""Attributes of a module that have its tensors and modules by name."""
BETAS, EPSILON = (0.9, 0.999), 1e-8
"""Adam's."""
Tensors = tuple[Tensor, ...]
_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")


def untried() -> str:
    """Which torch this is, if it is none of those; else an empty string."""
    version = tuple(map(int, torch.__version__.split("+")[0].split(".")[:2]))
    span = " to ".join(".".join(map(str, v)) for v in (OLDEST, NEWEST))
    return "" if OLDEST <= version <= NEWEST else f"torch {torch.__version__}, tried with {span}"


def record(function: Callable[..., Any], *inputs: Tensor) -> GraphModule:
    """Every tensor operation of a function, as a graph, recorded with tensors that have shapes and no data."""
    from torch.fx.experimental.proxy_tensor import make_fx

    return make_fx(function, tracing_mode="fake")(*inputs)


def compiled(module: GraphModule, inputs: list[Any], options: dict[str, Any]) -> Callable[..., Any]:
    """Such a graph as compiled code."""
    from torch._inductor import compile as inductor

    code: Callable[..., Any] = inductor(module, inputs, options)
    return code


def schema(target: Any) -> Any:
    """What an operation declares of its arguments and results; None of `getitem`, and of inputs, which have a name."""
    return None if target is operator.getitem or isinstance(target, str) else target._schema


def entry(target: Any) -> Any:
    """An operation without the Python that torch puts around it."""
    return getattr(target, "_op", target)


def storage_key(tensor: Tensor) -> int:
    """A number that tensors share if they share memory, which those without data have too."""
    return int(tensor.untyped_storage()._cdata)


def hooked(module: nn.Module) -> bool:
    """Whether something is called besides `forward`, in a module of its own (not in those it consists of)."""
    weights = module.parameters(recurse=False)
    return any(getattr(module, hooks) for hooks in _HOOKS) or any(
        p._backward_hooks or p._post_accumulate_grad_hooks for p in weights
    )


def all_hooked() -> bool:
    """Whether something is called besides `forward` in every module of the process."""
    return bool(nn.modules.module._has_any_global_hook())


def fused_adam(
    weights: Tensors, gradients: Tensors, first: Tensors, second: Tensors, count: Tensor, rate: Tensor
) -> None:
    """One step of Adam in one call, the `count`-th."""
    counts, (b1, b2) = [count] * len(weights), BETAS
    settings: dict[str, Any] = {"weight_decay": 0.0, "amsgrad": False, "maximize": False, "eps": EPSILON}
    torch._fused_adam_(weights, gradients, first, second, [], counts, lr=rate, beta1=b1, beta2=b2, **settings)


def plain_adam(
    weights: Tensors, gradients: Tensors, first: Tensors, second: Tensors, count: Tensor, rate: Tensor
) -> None:
    """What `fused_adam` does, by public operations."""
    (b1, b2), (unbiased1, unbiased2) = BETAS, [1 - beta**count for beta in BETAS]
    for w, g, m, v in zip(weights, gradients, first, second, strict=True):
        m.lerp_(g, 1 - b1)
        v.lerp_(g.square(), 1 - b2)
        w.sub_(rate * (m / unbiased1) / ((v / unbiased2).sqrt() + EPSILON))


@functools.cache
def adam(device: torch.device) -> Callable[..., None]:
    """`fused_adam`, if this torch has it and it takes the step that it should; else `plain_adam`."""
    found = []
    for update in (plain_adam, fused_adam):
        w, g, m, v = (torch.full((1,), value, device=device) for value in (1.0, 0.5, 0.25, 0.125))
        count, rate = (torch.tensor(value, device=device) for value in (3.0, 0.01))
        with suppress(Exception):  # whatever another version of torch raises
            update((w,), (g,), (m,), (v,), count, rate)
            found.append(torch.cat([w, m, v]))
    return fused_adam if len(found) == 2 and torch.allclose(found[0], found[1]) else plain_adam
