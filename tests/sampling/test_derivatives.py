"""Derivatives written by hand give the first derivative, and say so when a second is asked for."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from sparsevae.distributions.gaussian import normal, normal_by_variance
from sparsevae.distributions.logit_beta import LogitBeta
from sparsevae.distributions.spike_slab import spike_slab_kl
from sparsevae.distributions.tokens import Tokens
from sparsevae.latent.terms import _KernelSum

ONE, X = torch.ones(3), torch.arange(3.0)


def _sentence(x: Tensor) -> Tensor:
    return Tokens(x.expand(1, 2, 3), torch.eye(3), torch.zeros(3)).log_prob(torch.tensor([[2, 1]]))


BY_HAND: dict[str, Callable[[Tensor], Tensor]] = {
    "normal": lambda x: normal(x, ONE).log_prob(X),
    "normal by variance": lambda x: normal_by_variance(X, x.exp()).log_prob(2 * X),
    "spike and slab": lambda x: spike_slab_kl(x, X, ONE, torch.zeros(3), -X, 2 * ONE, finite=True),
    "Beta": lambda x: LogitBeta(x.exp(), x.exp()).rsample(),
    "sentence": _sentence,
    "kernels": lambda x: _KernelSum.apply(x.expand(2, 3), torch.zeros(2, 3)),  # type: ignore[no-untyped-call]
}


@pytest.mark.parametrize("f", BY_HAND.values(), ids=BY_HAND)
def test_a_second_derivative_is_refused_not_zero(f: Callable[[Tensor], Tensor]) -> None:
    x = torch.full((3,), 0.3, requires_grad=True)
    with pytest.raises(NotImplementedError, match="first one alone"):
        torch.autograd.grad(f(x).sum(), x, create_graph=True)
    (first,) = torch.autograd.grad(f(x).sum(), x)
    assert first.abs().max() > 0


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the compiler's own
def test_the_refusal_leaves_compiled_gradients_alone() -> None:
    x = torch.full((3,), 0.3, requires_grad=True)
    compiled = torch.compile(BY_HAND["spike and slab"], backend="aot_eager", fullgraph=True)
    (one,), (other,) = (torch.autograd.grad(f(x).sum(), x) for f in (compiled, BY_HAND["spike and slab"]))
    torch.testing.assert_close(one, other)
