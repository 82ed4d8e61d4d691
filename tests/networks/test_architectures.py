"""Claims: published stacks have the published layers, images of any size come back in their size, and a convolutional
estimator keeps every promise of a dense one."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import sparsevae as sv
from sparsevae.networks.architectures import NETWORKS, Sizes, image_of
from sparsevae.networks.convolutions import BatchNorm, Convolution, TransposedConvolution
from sparsevae.networks.dense import Linear, initialise
from sparsevae.networks.recurrent import Embedding

pytestmark = [
    pytest.mark.filterwarnings("ignore::sparsevae.exceptions.SparsityWarning"),
    pytest.mark.usefixtures("small_blocks"),
]
rng = np.random.default_rng(0)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are encoded and scored in equal blocks, a last one filled up: here some rows have several."""
    monkeypatch.setattr("sparsevae.inputs.base.BLOCK", 16)


def sizes(height: int, width: int, channels: int = 1, *, parts: int = 1, **more: Any) -> Sizes:
    n = height * width * channels
    defaults = {"hidden": (12,), "image_shape": (height, width, channels), "words": Embedding(7, 3)}
    return Sizes(n, 10, 5, parts * n, **defaults | more)


def pair(name: str, s: Sizes) -> tuple[nn.Module, nn.Module]:
    """Both networks, initialised, as the estimator does it."""
    both = NETWORKS[name].encoder(s), NETWORKS[name].decoder(s)
    generator = torch.Generator().manual_seed(0)
    for network in both:
        initialise(network, generator)
    return both


def count(layer: nn.Module) -> int:
    return sum(v.numel() for v in layer.state_dict().values())


IMAGES = [("conv", (8, 8, 1)), ("conv", (28, 28, 1)), ("conv", (32, 32, 3)), ("conv", (13, 17, 1))]
IMAGES += [("conv", (1, 1, 1)), ("conv", (2, 5, 2)), ("conv", (3, 40, 1)), ("asperti", (28, 28, 1))]
IMAGES += [("mat", (32, 32, 1)), ("mat", (32, 32, 3)), ("dense", (3, 4, 2))]


@pytest.mark.parametrize("members", [(), (2,)])
@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize(("name", "shape"), IMAGES)
def test_rows_go_in_and_come_out(name: str, shape: tuple[int, int, int], parts: int, members: tuple[int, ...]) -> None:
    s = sizes(*shape, parts=parts, members=members)
    encoder, decoder = pair(name, s)
    assert encoder(torch.rand(3, s.features)).shape == (*members, 3, s.raw_z)
    assert decoder(torch.rand(3, s.units)).shape == (*members, 3, s.raw_x)


@pytest.mark.parametrize("name", NETWORKS)
def test_construction_touches_no_random_state(name: str) -> None:
    before = torch.get_rng_state()
    one, two = (pair(name, sizes(28 if name == "asperti" else 32, 28 if name == "asperti" else 32)) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), before)
    for a, b in zip(one, two, strict=True):
        assert all(torch.equal(v, b.state_dict()[k]) for k, v in a.state_dict().items())
        assert all(bool(torch.isfinite(v).all()) for v in a.state_dict().values())  # nothing was left undefined


# -- the published stacks ---------------------------------------------------------------------------------------

FIGURE_7 = [
    # layer, output (height, width, channels), parameters
    ("Convolution", (14, 14, 16), 160),
    ("BatchNorm", (14, 14, 16), 64),
    ("ReLU", (14, 14, 16), 0),
    ("Convolution", (14, 14, 32), 4640),
    ("Convolution", (7, 7, 32), 9248),
    ("BatchNorm", (7, 7, 32), 128),
    ("ReLU", (7, 7, 32), 0),
    ("Convolution", (4, 4, 32), 9248),
    ("Convolution", (4, 4, 32), 9248),
    ("BatchNorm", (4, 4, 32), 128),
    ("ReLU", (4, 4, 32), 0),
    ("Convolution", (2, 2, 32), 4128),
    ("Convolution", (2, 2, 32), 4128),
    ("BatchNorm", (2, 2, 32), 128),
    ("ReLU", (2, 2, 32), 0),
    ("Convolution", (1, 1, 32), 4128),
    ("Convolution", (1, 1, 32), 528 + 528),  # two heads of 16: mean and variance of 16 units
]


def outline(network: nn.Module, x: torch.Tensor) -> list[tuple[str, tuple[int, ...], int]]:
    """Every layer but those that reshape: its name, its output as (height, width, channels), its parameters."""
    found = []
    for layer in network:
        x = layer(x)
        if x.dim() == 4 and not type(layer).__name__.startswith("To"):
            found.append((type(layer).__name__, (*x.shape[2:], x.shape[1]), count(layer)))
    return found


def test_asperti_s_encoder_is_figure_7_to_the_last_parameter() -> None:
    encoder, _ = pair("asperti", Sizes(784, 32, 16, 784))
    assert outline(encoder, torch.rand(2, 784)) == FIGURE_7
    assert count(encoder) == sum(n for _, _, n in FIGURE_7) == 46_432


def test_asperti_s_decoder_is_the_transposed_mirror() -> None:
    """Where the encoder maps a to b, the decoder maps b to a, with batch statistics at the same maps."""
    _, decoder = pair("asperti", Sizes(784, 32, 16, 784))
    found = outline(decoder, torch.rand(2, 16))
    maps = [(28, 28, 1), *(shape for name, shape, _ in FIGURE_7 if name == "Convolution")]
    assert [shape for name, shape, _ in found if name == "TransposedConvolution"] == maps[-2::-1]
    normed = [shape for name, shape, _ in FIGURE_7 if name == "BatchNorm"]
    assert [shape for name, shape, _ in found if name == "BatchNorm"] == normed[::-1]
    kernels = [layer.weight.shape[-1] for layer in decoder if isinstance(layer, TransposedConvolution)]
    assert kernels == [1, 2, 2, 2, 3, 3, 3, 3, 3]


def theirs(head: int, latents: int) -> tuple[nn.Module, nn.Module]:
    """MAT's networks in torch's own layers."""
    down = [nn.Conv2d(1, 32, 4, 2, 1, bias=False), nn.LeakyReLU(0.2)]
    for n in (32, 64):
        down += [nn.Conv2d(n, 2 * n, 4, 2, 1, bias=False), nn.BatchNorm2d(2 * n), nn.LeakyReLU(0.2)]
    up: list[nn.Module] = [nn.ConvTranspose2d(latents, 128, 4, bias=False), nn.BatchNorm2d(128), nn.ReLU()]
    for n in (128, 64):
        up += [nn.ConvTranspose2d(n, n // 2, 4, 2, 1, bias=False), nn.BatchNorm2d(n // 2), nn.ReLU()]
    return nn.Sequential(*down, nn.Conv2d(128, head, 4)), nn.Sequential(
        *up, nn.ConvTranspose2d(32, 1, 4, 2, 1, bias=False)
    )


def test_mat_s_networks_are_torch_s_layers_of_the_same_table() -> None:
    encoder, decoder = pair("mat", Sizes(1024, 100, 50, 1024))
    generator = torch.Generator().manual_seed(1)
    x, z = torch.rand(6, 1024, generator=generator), torch.randn(6, 50, generator=generator)
    for ours, other, rows, image in zip(
        (encoder, decoder), theirs(100, 50), (x, z), (x.view(6, 1, 32, 32), z.view(6, 50, 1, 1)), strict=True
    ):
        mine = ours.state_dict().values()
        state = {k: v for k, v in other.state_dict().items() if not k.endswith("num_batches_tracked")}
        other.load_state_dict(dict(zip(state, mine, strict=True)), strict=False)
        torch.testing.assert_close(ours(rows), other(image).flatten(1))
        for layer in ours:
            if isinstance(layer, (Convolution, TransposedConvolution)):
                assert float(layer.weight.detach().std()) == pytest.approx(0.02, rel=0.1)
                assert layer.bias is None or not layer.bias.any()


def test_conv_halves_an_image_until_it_is_small_and_goes_on_with_hidden() -> None:
    def outline(shape: tuple[int, int, int], hidden: tuple[int, ...]) -> tuple[list[Any], ...]:
        both = pair("conv", sizes(*shape, hidden=hidden))
        return tuple(
            [tuple(layer.weight.shape) for layer in net if not isinstance(layer, nn.ReLU) and hasattr(layer, "weight")]
            for net in both
        )

    encoder, decoder = outline((28, 28, 1), (12, 7))
    assert encoder == [(32, 1, 4, 4), (64, 32, 4, 4), (128, 64, 4, 4), (12, 2048), (7, 12), (10, 7)]
    assert decoder == [(7, 5), (12, 7), (2048, 12), (128, 64, 4, 4), (64, 32, 4, 4), (32, 1, 4, 4)]
    assert outline((8, 8, 1), ())[0] == [(32, 1, 4, 4), (10, 512)]
    assert [w[0] for w in outline((128, 9, 3), ())[0]] == [32, 64, 128, 128, 128, 10]


# -- members ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("members", [(2,), (2, 1)])
@pytest.mark.parametrize(("name", "shape"), [("conv", (7, 6, 2)), ("asperti", (28, 28, 1)), ("mat", (32, 32, 1))])
def test_a_stack_of_members_is_each_of_them(name: str, shape: tuple[int, int, int], members: tuple[int, ...]) -> None:
    """While training (batch statistics) and after (running ones), for rows of their own and for shared rows."""
    s = sizes(*shape, parts=2)
    for stack, alone, n_in in zip(
        pair(name, s._replace(members=members)), pair(name, s), (s.features, s.units), strict=True
    ):
        own = torch.rand(*members, 4, n_in, generator=torch.Generator().manual_seed(3))
        for training in (True, False):
            for rows in (own, own[(0,) * len(members)]):
                start = {k: v.clone() for k, v in stack.state_dict().items()}
                out = stack.train(training)(rows)
                for m in np.ndindex(*members):
                    alone.load_state_dict({k: v[m] for k, v in start.items()})
                    mine = alone.train(training)(rows[m] if rows.dim() > 2 else rows)
                    torch.testing.assert_close(out[m], mine, rtol=1e-4, atol=1e-5)
                    for key, value in alone.state_dict().items():
                        torch.testing.assert_close(stack.state_dict()[key][m], value)


# -- what is refused --------------------------------------------------------------------------------------------


def test_the_shape_of_a_row() -> None:
    assert image_of(Sizes(784, 1, 1, 784)) == (28, 28, 1)
    assert image_of(Sizes(12, 1, 1, 12, image_shape=(3, 4))) == (3, 4, 1)
    assert image_of(Sizes(12, 1, 1, 12, image_shape=[2, 2, 3])) == (2, 2, 3)


@pytest.mark.parametrize(
    ("settings", "n", "message"),
    [
        ({"network": "conv"}, 12, r"image_shape must be given, as \(height, width\).*have 12 features.*no square"),
        ({"network": "conv"}, 3072, r"no square image; if they are images, pass image_shape=\(32, 32, 3\)"),
        (
            {"network": "conv", "image_shape": (3, 5)},
            12,
            r"image_shape must be that of a row, which has 12 features; got \(3, 5\), which holds 15",
        ),
        ({"image_shape": (3, 5)}, 12, "which has 12 features; got"),  # also where no network looks at it
        (
            {"network": "asperti"},
            64,
            r"'asperti' takes images of 28 x 28 x 1 \(grey\), got 8 x 8 x 1.*'conv' takes any",
        ),
        ({"network": "asperti", "image_shape": (28, 28, 3)}, 2352, "got 28 x 28 x 3"),
        ({"network": "mat"}, 784, r"'mat' takes images of 32 x 32, got 28 x 28 x 1\. network='conv'"),
    ],
)
def test_an_image_of_the_wrong_shape_is_refused_before_training(
    settings: Any, n: int, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparsevae.estimator.learning.fit", lambda *a, **k: pytest.fail("training began"))
    est = sv.VAE(3, **settings)
    with pytest.raises(ValueError, match=f"(?s){message}"):
        est.fit(rng.random((20, n)))
    assert not hasattr(est, "model_")


def test_a_likelihood_that_treats_pixels_unequally_is_refused() -> None:
    with pytest.raises(ValueError, match=r"same number of parameters.*needs 17 for 16 values.*network='dense'"):
        NETWORKS["conv"].decoder(Sizes(16, 2, 1, 17))


# -- estimators -------------------------------------------------------------------------------------------------


def make(cls: Any = sv.VAE, *, training: dict[str, Any] | None = None, **changes: Any) -> Any:
    chosen = sv.Training(**{"steps": 6, "batch_size": 16, "verbose": 0} | (training or {}))
    return cls(**{"n_components": 4, "hidden": (8,), "training": chosen} | changes)


TILES = sv.data.load("tiles", n=40, n_test=0).X
COLOURS = rng.random((40, 6 * 5 * 3)).astype(np.float32)
CASES: dict[str, tuple[dict[str, Any], np.ndarray]] = {
    "conv": ({"network": "conv", "image_shape": (6, 5, 3)}, COLOURS),
    "asperti": ({"network": "asperti"}, TILES),
    "mat": ({"network": "mat", "likelihood": "gaussian"}, rng.random((40, 1024)).astype(np.float32)),
}


def dense(Z: Any) -> np.ndarray:
    return Z if isinstance(Z, np.ndarray) else Z.toarray()


@pytest.mark.parametrize("cls", [sv.VAE, sv.VSC])
@pytest.mark.parametrize("name", CASES)
def test_codes_scores_and_files_are_as_sound_as_a_dense_model_s(name: str, cls: Any, tmp_path: Path) -> None:
    settings, X = CASES[name]
    est = make(cls, **settings).fit(X)
    Z, scores = dense(est.transform(X)), est.score_samples(X, n_samples=2)
    assert np.isfinite(scores).all()
    assert est.inverse_transform(Z).shape == X.shape
    assert [est.sample(n).shape for n in (0, 1, 3)] == [(n, X.shape[1]) for n in (0, 1, 3)]
    order = rng.permutation(len(X))
    assert np.array_equal(dense(est.transform(X[order])), Z[order])
    assert np.array_equal(dense(est.transform(X[3:4])), Z[3:4])
    assert np.array_equal(est.score_samples(X[order[:7]], n_samples=2), scores[order[:7]])
    again = make(cls, **settings).fit(X)
    assert np.array_equal(dense(again.transform(X)), Z)  # a run is a function of its settings
    est.save(tmp_path / "model")
    loaded = sv.load(tmp_path / "model")
    assert (loaded.network, loaded.image_shape) == (est.network, est.image_shape)
    assert np.array_equal(dense(loaded.transform(X)), Z)
    assert np.array_equal(loaded.score_samples(X, n_samples=2), scores)
    assert np.isfinite(dense(loaded.partial_fit(X[:1]).transform(X))).all()  # after a batch of one row


@pytest.mark.parametrize("name", ["asperti", "mat"])
def test_a_batch_of_one_row_and_several_draws_train(name: str) -> None:
    """Batch statistics are over the map too, which never is a single pixel."""
    settings, X = CASES[name]
    est = make(training={"batch_size": 1, "n_samples": 3, "steps": 3}, **settings).fit(X)
    assert np.isfinite(est.history_.column("loss")).all()


def test_batch_statistics_are_learned_in_training_and_only_there() -> None:
    est = make(network="asperti").fit(TILES)
    norms = [m for m in est.model_.modules() if isinstance(m, BatchNorm)]
    assert len(norms) == 8
    for norm in norms:
        assert not torch.equal(norm.running_mean, torch.zeros_like(norm.running_mean))
    before = {k: v.clone() for k, v in est.model_.state_dict().items()}
    est.transform(TILES), est.score_samples(TILES, n_samples=1), est.sample(3)
    assert all(torch.equal(v, before[k]) for k, v in est.model_.state_dict().items())


def test_asperti_s_network_learns_tiles() -> None:
    """30 steps: finite, and already well below a model that knows no pixel."""
    X = sv.data.load("tiles", n=200, n_test=0).X
    est = make(network="asperti", n_components=16, training={"steps": 30, "batch_size": 16, "report_every": 10}).fit(X)
    losses = est.history_.column("loss")
    assert np.isfinite(losses).all()
    assert losses[-1] < losses[0] < 784 * math.log(2)


def test_conv_tells_a_picture_from_its_transpose() -> None:
    """The first axis of image_shape is the height: a 2 x 8 stack sees rows of 8."""
    X = rng.random((40, 16)).astype(np.float32)
    one, two, flat = (make(network="conv", image_shape=s).fit(X) for s in ((2, 8), (8, 2), (1, 16)))
    assert len({est.score(X) for est in (one, two, flat)}) == 3
    first = next(m for m in one.model_.modules() if isinstance(m, Convolution))
    assert first.size == (2, 8)


def test_a_user_s_own_networks_come_first_and_get_rows() -> None:
    """An own encoder beside a named decoder; with both of their own, the named network is never built."""
    encoder = nn.Sequential(nn.Linear(784, 6), nn.Tanh())
    est = make(network="asperti", encoder=encoder).fit(TILES)
    assert [type(m) for m in est.model_.encoder] == [nn.Sequential, Linear]
    assert any(isinstance(m, TransposedConvolution) for m in est.model_.decoder)
    assert est.inverse_transform(est.transform(TILES)).shape == TILES.shape
    X = rng.random((30, 7))
    both = make(network="asperti", encoder=nn.Identity(), decoder=nn.Identity()).fit(X)
    assert both.transform(X).shape == (30, 4)
