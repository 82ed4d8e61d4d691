"""Convolutions: their geometry, the distribution of their weights, batch statistics, and members as channels."""

import copy
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from sparsevae.networks.convolutions import BatchNorm, Convolution, ToImage, ToRows, TransposedConvolution, same
from sparsevae.networks.dense import initialise


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


GEOMETRIES = [(28, 3, 2), (14, 3, 1), (7, 3, 2), (4, 2, 2), (2, 2, 1), (2, 2, 2), (1, 1, 1), (32, 4, 2), (4, 4, 4)]
GEOMETRIES += [(13, 4, 2), (17, 4, 2), (1, 4, 2), (2, 4, 2), (5, 3, 3)]


# -- geometry ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "kernel", "stride"), GEOMETRIES)
def test_zeros_are_just_enough_and_an_odd_one_goes_to_the_end(n: int, kernel: int, stride: int) -> None:
    out, before, after = same(n, kernel, stride)
    assert out == math.ceil(n / stride)
    assert after - before in (0, 1)
    assert (n + before + after - kernel) // stride + 1 == out
    assert before + after == 0 or (n + before + after - 1 - kernel) // stride + 1 < out  # one less would not do


@pytest.mark.parametrize(("n", "kernel", "stride"), GEOMETRIES)
def test_a_convolution_is_torch_s_own_on_the_padded_image(n: int, kernel: int, stride: int) -> None:
    layer, theirs = Convolution((n, n + 1), 2, 3, kernel, stride), nn.Conv2d(2, 3, kernel, stride)
    initialise(layer, generator())
    theirs.load_state_dict(layer.state_dict())
    x = torch.randn(4, 2, n, n + 1, generator=generator(1))
    (_, top, bottom), (_, left, right) = same(n, kernel, stride), same(n + 1, kernel, stride)
    out = layer(x)
    assert out.shape == (4, 3, math.ceil(n / stride), math.ceil((n + 1) / stride))
    assert torch.allclose(out, theirs(nn.functional.pad(x, (left, right, top, bottom))), atol=1e-6)


@pytest.mark.parametrize(("n", "kernel", "stride"), GEOMETRIES)
def test_a_transposed_convolution_is_the_adjoint(n: int, kernel: int, stride: int) -> None:
    """<A x, y> = <x, A' y> with the same kernels, whatever the size: the mirror brings every odd size back."""
    size = (n, n + 3)
    down = Convolution(size, 2, 3, kernel, stride, bias=False).double()
    up = TransposedConvolution(size, 3, 2, kernel, stride, bias=False).double()
    initialise(down, generator())
    up.load_state_dict(down.state_dict())
    x = torch.randn(4, 2, *size, dtype=torch.float64, generator=generator(1))
    y = torch.randn(down(x).shape, dtype=torch.float64, generator=generator(2))
    assert up(y).shape == x.shape
    torch.testing.assert_close((down(x) * y).sum(), (x * up(y)).sum())


def test_hand_set_kernels() -> None:
    """A 2 x 2 kernel of stride 1 sees a zero beyond the last row and column, none before the first."""
    layer = Convolution((2, 2), 1, 1, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[[[1.0, 10.0], [100.0, 1000.0]]]]))
        layer.bias.fill_(0.5)
    out = layer(torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]]))
    assert out.flatten().tolist() == [4321.5, 402.5, 43.5, 4.5]


# -- rows and images --------------------------------------------------------------------------------------------


def test_a_row_lists_height_then_width_then_channels() -> None:
    rows = torch.arange(2 * 24.0).reshape(2, 24)
    image = ToImage(2, 4, 3)(rows)
    assert torch.equal(image, torch.from_numpy(rows.numpy().reshape(2, 2, 4, 3).transpose(0, 3, 1, 2)))
    assert image.is_contiguous()
    assert torch.equal(ToRows()(image), rows)


def test_a_grey_image_is_not_copied() -> None:
    rows = torch.arange(24.0).reshape(2, 12)
    image = ToImage(3, 4, 1)(rows)
    assert image.shape == (2, 1, 3, 4)
    assert image.data_ptr() == rows.data_ptr() == ToRows()(image).data_ptr()


def test_the_first_parameters_of_all_values_come_before_the_second() -> None:
    """Two channels and two parameters each, (mean of c 0, mean of c 1, second of c 0, second of c 1)."""
    means, second = torch.rand(3, 2, 4, 5, generator=generator()), torch.rand(3, 2, 4, 5, generator=generator(1))
    loc, other = ToRows(parts=2)(torch.cat([means, second], 1)).chunk(2, -1)
    assert torch.equal(loc, means.permute(0, 2, 3, 1).flatten(1))
    assert torch.equal(other, second.permute(0, 2, 3, 1).flatten(1))


@pytest.mark.parametrize("members", [(), (3,), (2, 3)])
@pytest.mark.parametrize("shape", [(3, 4, 1), (3, 4, 2)])
def test_there_and_back_is_the_identity(members: tuple[int, ...], shape: tuple[int, int, int]) -> None:
    for n in (5, 1, 0):
        rows = torch.rand(*members, n, math.prod(shape), generator=generator())
        image = ToImage(*shape, members)(rows)
        assert image.shape == (n, math.prod(members) * shape[2], *shape[:2])
        assert torch.equal(ToRows(members)(image), rows)
        shared = rows[(0,) * len(members)]
        assert torch.equal(ToRows(members)(ToImage(*shape, members)(shared)), shared.expand_as(rows))


# -- distributions ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (Convolution((8, 8), 40, 50, 3), nn.Conv2d(40, 50, 3)),
        (TransposedConvolution((8, 8), 40, 50, 3), nn.ConvTranspose2d(40, 50, 3)),
    ],
    ids=["conv", "transposed"],
)
def test_weights_follow_torch_s_default_distribution(ours: nn.Module, theirs: nn.Module) -> None:
    initialise(ours, generator())
    for name, p in ours.named_parameters():
        like = dict(theirs.named_parameters())[name].detach()
        bound = 1 / math.sqrt(theirs.weight.shape[1] * 9)  # theirs is uniform on +-bound: its largest is nearly it
        assert p.shape == like.shape
        assert float(like.abs().max()) == pytest.approx(bound, rel=0.2 if name == "bias" else 1e-3)
        assert float(p.detach().abs().max()) <= bound
        assert float(p.detach().std()) == pytest.approx(bound / math.sqrt(3), rel=0.2 if name == "bias" else 0.02)


def test_a_stated_deviation_makes_weights_normal_and_biases_zero() -> None:
    layer = TransposedConvolution((8, 8), 40, 50, 4, 2, deviation=0.02)
    initialise(layer, generator())
    weight = layer.weight.detach()
    assert float(weight.std()) == pytest.approx(0.02, rel=0.02)
    assert float((weight.abs() > 0.04).float().mean()) == pytest.approx(0.0455, rel=0.1)  # beyond two deviations
    assert not layer.bias.any()


def test_construction_touches_no_random_state_and_initialise_only_its_own() -> None:
    before = torch.get_rng_state()
    for make in (lambda: Convolution((8, 8), 2, 3, 3), lambda: TransposedConvolution((8, 8), 2, 3, 3)):
        one, two, other = make(), make(), make()
        for layer, seed in ((one, 0), (two, 0), (other, 1)):
            initialise(layer, generator(seed))
        assert torch.equal(one.weight, two.weight)
        assert not torch.equal(one.weight, other.weight)
    assert torch.equal(torch.get_rng_state(), before)


# -- batch statistics -------------------------------------------------------------------------------------------


def test_batch_norm_is_torch_s_own() -> None:
    ours, theirs = BatchNorm(3), nn.BatchNorm2d(3)
    initialise(ours, generator())
    assert {k: v.tolist() for k, v in ours.state_dict().items()} == {
        "weight": [1, 1, 1],
        "bias": [0, 0, 0],
        "running_mean": [0, 0, 0],
        "running_var": [1, 1, 1],
    }
    for seed in range(3):
        x = 2 + 3 * torch.randn(6, 3, 4, 5, generator=generator(seed))
        assert torch.equal(ours(x), theirs(x))
    assert torch.equal(ours.running_var, theirs.running_var)
    ours.eval(), theirs.eval()
    before = copy.deepcopy(ours.state_dict())
    assert torch.equal(ours(x), theirs(x))
    assert all(torch.equal(v, before[k]) for k, v in ours.state_dict().items())


# -- members ----------------------------------------------------------------------------------------------------

LAYERS: dict[str, Callable[[tuple[int, ...]], nn.Module]] = {
    "conv": lambda members: Convolution((5, 6), 2, 3, 3, 2, members),
    "conv, no bias": lambda members: Convolution((5, 6), 2, 3, 2, 1, members, bias=False),
    "transposed": lambda members: TransposedConvolution((9, 12), 2, 3, 4, 2, members),
    "batch norm": lambda members: BatchNorm(2, members),
}


@pytest.mark.parametrize("members", [(2,), (2, 3)])
@pytest.mark.parametrize("name", LAYERS)
def test_members_give_what_each_gives_alone(name: str, members: tuple[int, ...]) -> None:
    """Outputs, gradients and running statistics; for a batch each, and for one that all share."""
    own = torch.randn(*members, 7, 60, generator=generator(1))
    for rows in (own, own[(0,) * len(members)]):
        stack = LAYERS[name](members)
        initialise(stack, generator())
        nn.init.normal_(stack.weight, generator=generator(2))
        start = copy.deepcopy(stack.state_dict())

        def through(layer: nn.Module, x: Tensor, lead: tuple[int, ...]) -> Tensor:
            return ToRows(lead)(layer(ToImage(5, 6, 2, lead)(x)))

        out = through(stack, rows, members)
        out.square().sum().backward()
        for m in np.ndindex(*members):
            alone = LAYERS[name](())
            alone.load_state_dict({k: v[m] for k, v in start.items()})
            mine = through(alone, rows[m] if rows.dim() > 2 else rows, ())
            mine.square().sum().backward()
            torch.testing.assert_close(out[m], mine)
            for key, p in stack.named_parameters():
                torch.testing.assert_close(p.grad[m], dict(alone.named_parameters())[key].grad, rtol=1e-4, atol=1e-4)
            for key, b in stack.named_buffers():
                torch.testing.assert_close(b[m], dict(alone.named_buffers())[key])
