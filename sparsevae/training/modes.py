"""Context managers: the precision of matrix products, and evaluation mode."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import nn


def precision(device: torch.device, *, bf16: bool) -> AbstractContextManager[object]:
    """Autocast matrix products to bfloat16 if `bf16` and on CUDA; else do nothing.

    Casts of the weights are not cached: a captured graph would reuse those of the step at its capture.
    """
    if bf16 and device.type == "cuda":
        return torch.autocast("cuda", torch.bfloat16, cache_enabled=False)
    return nullcontext()


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put the model in eval mode for the duration, so that BatchNorm and Dropout do not update."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)
