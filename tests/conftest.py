"""What every test file shares."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Tiny matrices on shared cores: a second thread only waits."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def one_thread_again(one_thread: None) -> Iterator[None]:
    """A test that sets more threads leaves none of them behind."""
    yield
    torch.set_num_threads(1)


class Shifted(nn.Module):
    """A user's own network without random weights."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.linspace(-1, 1, width))

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x + self.shift)
