"""Layers: the distribution of their weights, their members, and no random state but the one they are given."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from sparsevae.networks.dense import Linear, initialise, mlp


def test_a_linear_layer_is_torch_s_own() -> None:
    ours, theirs = Linear(5, 3), nn.Linear(5, 3)
    initialise(ours, torch.Generator().manual_seed(0))
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(7, 5, generator=torch.Generator().manual_seed(1))
    assert torch.equal(ours(x), theirs(x))


def test_hand_set_weights() -> None:
    """mlp 1 -> 2 -> 1: relu(2x - 1), relu(-x + 3) added with weights 1 and -2, plus 1/2."""
    net = mlp([1, 2, 1])
    with torch.no_grad():
        net[0].weight.copy_(torch.tensor([[2.0], [-1.0]]))
        net[0].bias.copy_(torch.tensor([-1.0, 3.0]))
        net[2].weight.copy_(torch.tensor([[1.0, -2.0]]))
        net[2].bias.copy_(torch.tensor([0.5]))
    assert net(torch.tensor([[0.0], [1.0], [4.0]])).flatten().tolist() == [-5.5, -2.5, 7.5]


def test_where_an_mlp_activates() -> None:
    kinds = [type(layer).__name__ for layer in mlp([4, 3, 2])]
    assert kinds == ["Linear", "ReLU", "Linear"]
    assert [type(layer).__name__ for layer in mlp([4, 3], activate_last=True)] == ["Linear", "ReLU"]


@pytest.mark.parametrize("members", [(3,), (2, 3)])
def test_members_give_what_each_gives_alone(members: tuple[int, ...]) -> None:
    net = mlp([5, 4, 2], members)
    initialise(net, torch.Generator().manual_seed(0))
    own = torch.randn(*members, 7, 5, generator=torch.Generator().manual_seed(1))
    for x in (own, own[(0,) * len(members)]):  # a batch each, or one shared by all
        out = net(x)
        assert out.shape == (*members, 7, 2)
        for m in np.ndindex(*members):
            alone = mlp([5, 4, 2])
            alone.load_state_dict({k: v[m] for k, v in net.state_dict().items()})
            assert torch.allclose(alone(x[m] if x.dim() > 2 else x), out[m], atol=1e-6)


def test_weights_follow_torch_s_default_distribution() -> None:
    layer = Linear(400, 300)
    initialise(layer, torch.Generator().manual_seed(0))
    bound = 1 / math.sqrt(400)
    for p in (layer.weight.detach(), layer.bias.detach()):
        assert float(p.abs().max()) <= bound
    assert float(layer.weight.detach().std()) == pytest.approx(bound / math.sqrt(3), rel=0.01)
    assert abs(float(layer.weight.detach().mean())) < 5 * bound / math.sqrt(3 * 120_000)


def test_initialise_is_a_function_of_its_generator() -> None:
    before = torch.get_rng_state()
    nets = [mlp([5, 4, 2]) for _ in range(3)]
    for net, seed in zip(nets, (0, 0, 1), strict=True):
        initialise(net, torch.Generator().manual_seed(seed))
    a, b, c = (torch.cat([p.flatten() for p in net.parameters()]) for net in nets)
    assert torch.equal(a, b)
    assert not torch.equal(a, c)
    assert torch.equal(torch.get_rng_state(), before)


def test_initialise_leaves_a_user_s_layers_alone() -> None:
    own = nn.Linear(4, 3)
    weight = own.weight.detach().clone()
    net = nn.Sequential(own, Linear(3, 2))
    initialise(net, torch.Generator().manual_seed(0))
    assert torch.equal(own.weight.detach(), weight)
    assert bool(torch.isfinite(net[1].weight).all())
