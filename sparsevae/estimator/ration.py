"""A look at the shape of every tensor before there is one."""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_SIZED = (torch.empty, torch.zeros, torch.ones, torch.full, torch.rand, torch.randn)


class Ration(TorchFunctionMode):
    """Shows `made` the shape of every tensor that torch is asked for, before memory is: it may refuse."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _SIZED:
            sized = {k: v for k, v in kwargs.items() if k != "generator"} | {"device": "meta"}
            try:
                shape = tuple(func(*args, **sized).shape)
            except (RuntimeError, TypeError) as error:  # TypeError: one of the sizes alone is too large
                if "overflow" not in str(error).lower():
                    raise
                shape = (2**63 - 1,)  # more numbers than 64 bits count
            self.made(shape)
        return func(*args, **kwargs)

    def made(self, shape: tuple[int, ...]) -> None:
        raise NotImplementedError
