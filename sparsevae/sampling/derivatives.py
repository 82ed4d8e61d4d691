"""Hand-written first derivatives: a second derivative raises an error."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

import torch

F = TypeVar("F", bound=Callable[..., Any])


def first_only(backward: F) -> F:
    """Decorate the backward pass of an `autograd.Function` that cannot be differentiated again.

    It uses saved intermediate results, which are constants to autograd: differentiated again (`create_graph=True`, a
    Hessian, a gradient penalty) it would silently omit terms. torch's own `once_differentiable` detects this only if
    the incoming gradient requires a gradient, which that of a plain sum does not.
    """

    @wraps(backward)
    def once(ctx: Any, *grads: Any) -> Any:
        # Compiled code raises its own error for a second derivative; only its debugging backend "eager" does not.
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            raise NotImplementedError(
                "sparsevae writes this derivative by hand and has the first one alone, but create_graph=True asks for "
                "a second. Omit create_graph, or compute the density or the KL with torch.distributions."
            )
        with torch.no_grad():
            return backward(ctx, *grads)

    return cast(F, once)
