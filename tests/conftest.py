"""What every test file shares."""

from __future__ import annotations

import signal
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from sklearn.base import clone
from torch import Tensor, nn

import sparsevae as sv

collect_ignore = ["claims/faults"]  # what runs there is a process of its own, under a shim

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in background jobs of a shell; tests press Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)


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


@pytest.fixture(scope="module")
def digits() -> Any:
    """The data set within scikit-learn."""
    return sv.data.load("digits")


def quiet(est: Any, X: Any) -> Any:
    """A fit that is too short to be sparse, and says nothing of it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sv.SparsityWarning)
        return est.fit(X)


def check_learner(estimator: Any, check: Any) -> None:
    """One of scikit-learn's checks, with a few steps unless it asks how well the training data are learned."""
    if check.func.__name__ not in ("check_classifiers_train", "check_regressors_train"):
        estimator = clone(estimator).set_params(training__steps=5)
    check(estimator)


class Shifted(nn.Module):
    """A user's own network without random weights."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.linspace(-1, 1, width))

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x + self.shift)
