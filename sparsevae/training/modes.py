"""The modes of a step: what matrix products are computed in, and evaluation without updates."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import nn


def precision(device: torch.device, *, bf16: bool) -> AbstractContextManager[object]:
    """What matrix products of a training step are computed in: bfloat16 on CUDA if asked, else as they come.

    Casts of the weights are not kept: a captured graph would hold on to those of the step it was made of.
    """
    if bf16 and device.type == "cuda":
        return torch.autocast("cuda", torch.bfloat16, cache_enabled=False)
    return nullcontext()


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Let a user's own BatchNorm or Dropout look without learning."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)
