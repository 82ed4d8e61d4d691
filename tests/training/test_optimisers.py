"""Our Adam is torch's Adam."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import sparsevae as sv
from sparsevae.models import SUPERVISED, known
from sparsevae.training.optimisers import Adam, Momentum


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


@pytest.mark.parametrize("t", [1, 5, 100])
def test_a_weight_whose_first_gradient_comes_late_moves_by_what_the_docstring_says(t: int) -> None:
    """One count of steps for all weights; torch counts a weight's own, and moves it by the rate."""
    late, theirs = nn.Parameter(torch.zeros(3)), nn.Parameter(torch.zeros(3))
    always, gradient = nn.Parameter(torch.zeros(2)), torch.tensor([0.5, -2.0, 30.0])
    adam, peer = Adam([always, late], torch.tensor(0.1)), torch.optim.Adam([theirs], lr=0.1, fused=True)
    for step in range(1, t + 1):
        first = gradient if step == t else None
        adam.step([torch.ones(2), first])
        theirs.grad = first
        peer.step()
    share = (1 - 0.9) / (1 - 0.9**t) * math.sqrt((1 - 0.999**t) / (1 - 0.999))
    torch.testing.assert_close(late.detach(), share * theirs.detach(), rtol=1e-5, atol=0)
    if t == 5:
        assert share == pytest.approx(0.545, abs=1e-3)


@pytest.mark.filterwarnings("ignore::sparsevae.exceptions.SparsityWarning")
@pytest.mark.parametrize("name", sorted(known()))
def test_weights_of_the_library_s_networks_have_a_gradient_at_every_step_or_at_none(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that for these the one count of steps is each weight's own."""
    seen = list[tuple[bool, ...]]()

    def step(self: Adam, gradients: Any, step: Any = Adam.step) -> None:
        gradients = list(gradients)
        seen.append(tuple(g is not None for g in gradients))
        step(self, gradients)

    monkeypatch.setattr(Adam, "step", step)
    rng = np.random.default_rng(0)
    X, Y = rng.random((40, 6)).astype(np.float32), (rng.random((40, 4)) < 0.4).astype(int)
    own: dict[str, Any] = {"PseudoVSC": {"pseudo_inputs": 3}, "SDLGMClassifier": {"threshold": 0.5, "variant": "con"}}
    units = {} if name in SUPERVISED and name != "CodeClassifier" else {"n_components": 4}
    warm = {} if name == "CodeClassifier" else {"kl_warmup": 0.5}
    training = sv.Training(steps=12, batch_size=8, verbose=0, **warm)
    est = known()[name](hidden=(5,), training=training, **units, **own.get(name, {}))
    est.fit(X, Y[:, 0] if name == "CodeClassifier" else Y) if name in SUPERVISED else est.fit(X)
    assert len(seen) >= 12
    assert len(set(seen)) == 1


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
