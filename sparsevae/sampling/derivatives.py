"""Derivatives written by hand: the first is there, and to ask for a second is an error instead of a zero."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

import torch

F = TypeVar("F", bound=Callable[..., Any])


def first_only(backward: F) -> F:
    """The backward pass of an `autograd.Function` whose derivative has none of its own.

    It computes from saved intermediate results, constants to autograd: differentiated again (`create_graph=True`, a
    Hessian, a gradient penalty) it would leave terms out without a word. torch's own guard, `once_differentiable`, sees
    that only where the incoming gradient itself is differentiated, which that of a plain sum is not.
    """

    @wraps(backward)
    def once(ctx: Any, *grads: Any) -> Any:
        # Compiled code takes no second derivative either, and says so; its debugging backend "eager" alone does not.
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            raise NotImplementedError(
                "sparsevae writes this derivative by hand and has the first one alone, but create_graph=True asks for "
                "a second. Leave create_graph out, or compute the density or the KL from torch.distributions there."
            )
        with torch.no_grad():
            return backward(ctx, *grads)

    return cast(F, once)
