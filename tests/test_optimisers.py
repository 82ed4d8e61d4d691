"""Our Adam is torch's Adam."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from sparsevae.optimisers import Adam, Momentum


def _weights(device: str) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    shapes = [(300, 70), (1,), (17,), (3, 5, 2)]
    return [nn.Parameter(torch.randn(s, generator=generator).to(device)) for s in shapes]


def _gradients(step: int, weights: list[nn.Parameter]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(step)
    return [torch.randn(p.shape, generator=generator).to(p.device) * 10.0 ** (step % 5 - 2) for p in weights]


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_the_numbers_are_those_of_torch_s_fused_adam(device: str) -> None:
    ours, theirs = _weights(device), _weights(device)
    rate = torch.tensor(3e-3, device=device)
    adam, peer = Adam(ours, rate), torch.optim.Adam(theirs, lr=3e-3, fused=True)
    for step in range(50):
        for p, g in zip(theirs, _gradients(step, theirs), strict=True):
            p.grad = g
        adam.step(_gradients(step, ours))
        peer.step()
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7)


def test_a_weight_without_a_gradient_stays() -> None:
    weights = _weights("cpu")
    before = weights[1].detach().clone()
    ones = [torch.ones_like(p) for p in weights]
    Adam(weights, torch.tensor(0.1)).step([ones[0], None, *ones[2:]])
    assert torch.equal(weights[1], before)
    assert not torch.equal(weights[0], _weights("cpu")[0])


def test_forgetting_starts_anew() -> None:
    weights, fresh = _weights("cpu"), _weights("cpu")
    adam = Adam(weights, torch.tensor(0.1))
    for step in range(3):
        adam.step(_gradients(step, weights))
    adam.forget()
    with torch.no_grad():
        for p, q in zip(weights, fresh, strict=True):
            p.copy_(q)
    for group, optimiser in ((weights, adam), (fresh, Adam(fresh, torch.tensor(0.1)))):
        optimiser.step(_gradients(9, group))
    assert all(torch.equal(p, q) for p, q in zip(weights, fresh, strict=True))


def test_weights_in_another_memory_order_move_alike() -> None:
    weight = torch.randn(40, 30, 5, 5, generator=torch.Generator().manual_seed(0))
    plain, last = nn.Parameter(weight.clone()), nn.Parameter(weight.clone().to(memory_format=torch.channels_last))
    for p in (plain, last):
        adam = Adam([p], torch.tensor(0.1))
        for step in range(3):
            adam.step([torch.empty_like(p).copy_(_gradients(step, [p])[0])])  # in its own order, as autograd gives it
    torch.testing.assert_close(plain.detach(), last.detach(), rtol=1e-5, atol=1e-6)


def test_momentum_is_torch_s_and_leaves_weights_without_a_gradient_alone() -> None:
    generator = torch.Generator().manual_seed(0)
    ours = [torch.nn.Parameter(torch.randn(shape, generator=generator)) for shape in ((5, 3), (7,), (2,))]
    theirs = [torch.nn.Parameter(p.detach().clone()) for p in ours]
    rate = torch.tensor(0.05)
    optimiser, peer = Momentum(ours, rate), torch.optim.SGD(theirs[:2], lr=0.05, momentum=0.9)
    for _ in range(20):
        for p in theirs[:2]:
            p.grad = torch.randn(p.shape, generator=generator)
        optimiser.step([*(p.grad for p in theirs[:2]), None])
        peer.step()
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-6)
    optimiser.forget()
    assert all(bool((v == 0).all()) for _, v in optimiser.state())
