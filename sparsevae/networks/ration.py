"""Ration: limits on the memory of tensors, checked before they are allocated."""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_SIZED = (torch.empty, torch.zeros, torch.ones, torch.full, torch.rand, torch.randn)


class Ration(TorchFunctionMode):
    """A context that calls `made(shape)` before torch allocates a tensor; `made` raises if it is too large."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _SIZED:
            sized = {k: v for k, v in kwargs.items() if k != "generator"} | {"device": "meta"}
            try:
                shape = tuple(func(*args, **sized).shape)
            except (RuntimeError, TypeError) as error:  # TypeError: a single size overflows
                if "overflow" not in str(error).lower():
                    raise
                shape = (2**63 - 1,)  # the number of elements overflows 64 bits
            self.made(shape)
        return func(*args, **kwargs)

    def made(self, shape: tuple[int, ...]) -> None:
        raise NotImplementedError
