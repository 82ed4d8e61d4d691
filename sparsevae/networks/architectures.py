"""Encoders and decoders by name: a dense pair, stacks of convolutions for images, recurrent nets for texts.

An image is a row of H W C numbers in that order, channels last. An encoder maps (*members, B, D) or shared (B, D) to
(*members, B, raw_z), a decoder (*members, B, J) to (*members, B, raw_x); the steps of a decoder are those of the
encoder, transposed and in reverse order. A text is a row of word numbers; its decoder also takes the previous words.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from sparsevae.networks.convolutions import BatchNorm, Convolution, ToImage, ToRows, TransposedConvolution, same
from sparsevae.networks.dense import Linear, initialise, mlp
from sparsevae.networks.recurrent import Embedding, Projection, Reader, SharedEmbedding, Writer


class Sizes(NamedTuple):
    """The sizes of inputs and outputs of two networks."""

    features: int  # D, the encoder's input
    raw_z: int  # raw values of the posterior
    units: int  # J, the decoder's input
    raw_x: int  # raw values of the likelihood
    hidden: tuple[int, ...] = ()
    image_shape: tuple[int, ...] | None = None
    members: tuple[int, ...] = ()
    words: Embedding | None = None  # for texts: the embedding, which both networks share
    decoder_hidden: tuple[int, ...] | None = None  # None: `hidden`, reversed

    @property
    def ascending(self) -> tuple[int, ...]:
        """Sizes of the decoder's hidden layers, from the code to x."""
        return self.hidden[::-1] if self.decoder_hidden is None else self.decoder_hidden


class Pair(NamedTuple):
    """Functions that build an encoder and its decoder."""

    encoder: Callable[[Sizes], nn.Module]
    decoder: Callable[[Sizes], nn.Module]


Image = tuple[int, int, int]  # height, width, channels


class Step(NamedTuple):
    """One convolution, the layers after it, and those before its transpose in the decoder."""

    channels: int
    kernel: int
    stride: int
    after: str = ""  # names for `_layers`
    mirrored: str = ""  # by default those of `after`
    bias: bool = True
    deviation: float | None = None  # standard deviation of the initial weights; None: torch's default


_IMAGES = {64: (8, 8), 784: (28, 28), 1024: (32, 32), 3072: (32, 32, 3)}  # of scikit-learn's digits, MNIST, CIFAR


def image_hint(n: int) -> str:
    """The end of a message that suggests an image_shape for rows of n values; empty if n is no common size.

    >>> image_hint(64), image_hint(65)
    ('; if they are images, pass image_shape=(8, 8) (--image-shape 8,8)', '')
    """
    if n not in _IMAGES:
        return ""
    return f"; if they are images, pass image_shape={_IMAGES[n]} (--image-shape {','.join(map(str, _IMAGES[n]))})"


def image_of(sizes: Sizes) -> Image:
    """(height, width, channels) of a row: image_shape, or by default square and grey if D is a square number."""
    given, n = sizes.image_shape, sizes.features
    side = math.isqrt(n)
    height, width, *more = (side, side) if given is None else (int(v) for v in given)
    channels = more[0] if more else 1
    if height * width * channels == n:
        return height, width, channels
    if given is None:
        raise ValueError(
            f"image_shape must be given, as (height, width) or (height, width, channels): the rows have {n} features, "
            f"which is no square image{image_hint(n)}."
        )
    values = height * width * channels
    raise ValueError(f"image_shape must be that of a row, which has {n} features; got {given!r}, which holds {values}.")


def _exactly(sizes: Sizes, side: int, grey: bool, name: str) -> Image:
    """The image, or a ValueError if a published stack is for another size."""
    image = image_of(sizes)
    if image[:2] != (side, side) or (grey and image[2] != 1):
        wanted = f"{side} x {side} x 1 (grey)" if grey else f"{side} x {side}"
        found = " x ".join(map(str, image))
        raise ValueError(f"network={name!r} takes images of {wanted}, got {found}. network='conv' takes any size.")
    return image


def _layers(names: str, channels: int, members: tuple[int, ...]) -> list[nn.Module]:
    """Layers of maps with so many channels, by names: "norm", "relu", "leaky"."""
    made: dict[str, Callable[[], nn.Module]] = {
        "norm": lambda: BatchNorm(channels, members),
        "relu": nn.ReLU,
        "leaky": lambda: nn.LeakyReLU(0.2),
    }
    return [made[name]() for name in names.split()]


def _maps(image: Image, steps: Sequence[Step]) -> list[Image]:
    """The shapes of the image and of the output of each step."""
    maps = [image]
    for step in steps:
        height, width = (same(n, step.kernel, step.stride)[0] for n in maps[-1][:2])
        maps.append((height, width, step.channels))
    return maps


def _down(image: Image, steps: Sequence[Step], members: tuple[int, ...]) -> nn.Sequential:
    """Rows of images -> rows of the last step's maps."""
    layers: list[nn.Module] = [ToImage(*image, members)]
    for (*size, n_in), step in zip(_maps(image, steps)[:-1], steps, strict=True):
        layers.append(Convolution(size, n_in, *step[:3], members, bias=step.bias, deviation=step.deviation))
        layers += _layers(step.after, step.channels, members)
    return nn.Sequential(*layers, ToRows(members))


def _up(image: Image, steps: Sequence[Step], members: tuple[int, ...], raw_x: int) -> nn.Sequential:
    """Rows of the last step's maps -> rows of `raw_x` numbers, the same number of them for each pixel."""
    parts, rest = divmod(raw_x, math.prod(image))
    if rest:
        raise ValueError(
            f"a convolutional decoder gives every value of an image the same number of parameters; this likelihood "
            f"needs {raw_x} for {math.prod(image)} values. Use network='dense'."
        )
    maps = _maps(image, steps)
    layers: list[nn.Module] = [ToImage(*maps[-1], members)]
    for i, step in reversed(list(enumerate(steps))):
        *size, n_out = maps[i]
        sizes = size, step.channels, n_out if i else parts * n_out, step.kernel, step.stride
        layers += _layers(step.mirrored or step.after, step.channels, members)
        layers.append(TransposedConvolution(*sizes, members, bias=step.bias, deviation=step.deviation))
    return nn.Sequential(*layers, ToRows(members, parts))


def _dense_encoder(s: Sizes) -> nn.Module:
    return mlp([s.features, *s.hidden, s.raw_z], s.members)


def _dense_decoder(s: Sizes) -> nn.Module:
    return mlp([s.units, *s.ascending, s.raw_x], s.members)


def _conv_steps(image: Image) -> list[Step]:
    """4 x 4 kernels of stride 2 with 32, 64, 128, 128, ... channels; at least one."""
    steps = [Step(32, 4, 2, "relu")]
    while max(_maps(image, steps)[-1][:2]) > 4:
        steps.append(Step(min(128, 2 * steps[-1].channels), 4, 2, "relu"))
    return steps


def _conv_encoder(s: Sizes) -> nn.Module:
    image = image_of(s)
    steps = _conv_steps(image)
    flat = math.prod(_maps(image, steps)[-1])
    return nn.Sequential(*_down(image, steps, s.members), *mlp([flat, *s.hidden, s.raw_z], s.members))


def _conv_decoder(s: Sizes) -> nn.Module:
    image = image_of(s)
    steps = _conv_steps(image)
    flat = math.prod(_maps(image, steps)[-1])
    return nn.Sequential(*mlp([s.units, *s.ascending, flat], s.members), *_up(image, steps, s.members, s.raw_x))


def _asperti_steps(head: int) -> list[Step]:
    """28 - 14 - 14 - 7 - 4 - 4 - 2 - 2 - 1, then the heads (here one of twice their width).

    According to the paper's table all kernels but those of the heads are 3 x 3; its parameter counts are those of 2 x 2
    for the last three (4,128 = 2 * 2 * 32 * 32 + 32). There is no layer between two successive convolutions.
    """
    return [
        Step(16, 3, 2, "norm relu"),
        Step(32, 3, 1),
        Step(32, 3, 2, "norm relu"),
        Step(32, 3, 2),
        Step(32, 3, 1, "norm relu"),
        Step(32, 2, 2),
        Step(32, 2, 1, "norm relu"),
        Step(32, 2, 2),
        Step(head, 1, 1),
    ]


def _asperti_encoder(s: Sizes) -> nn.Module:
    return _down(_exactly(s, 28, True, "asperti"), _asperti_steps(s.raw_z), s.members)


def _asperti_decoder(s: Sizes) -> nn.Module:
    return _up(_exactly(s, 28, True, "asperti"), _asperti_steps(s.units), s.members, s.raw_x)


def _mat_steps(head: int, head_bias: bool) -> list[Step]:
    """32 - 16 - 8 - 4 - 1, weights from N(0, .02^2), leaky ReLU in the encoder; only the encoder's head has biases.

    The decoder normalises all three of its maps over the batch, the encoder all but the first.
    """
    return [
        Step(32, 4, 2, "leaky", "norm relu", bias=False, deviation=0.02),
        Step(64, 4, 2, "norm leaky", "norm relu", bias=False, deviation=0.02),
        Step(128, 4, 2, "norm leaky", "norm relu", bias=False, deviation=0.02),
        Step(head, 4, 4, bias=head_bias, deviation=0.02),
    ]


def _mat_encoder(s: Sizes) -> nn.Module:
    return _down(_exactly(s, 32, False, "mat"), _mat_steps(s.raw_z, True), s.members)


def _mat_decoder(s: Sizes) -> nn.Module:
    return _up(_exactly(s, 32, False, "mat"), _mat_steps(s.units, False), s.members, s.raw_x)


def _sentences(s: Sizes) -> tuple[Embedding, int]:
    """The embedding, which both networks share, and the size of their states."""
    if s.words is None or len(s.hidden) != 1 or s.members:
        raise ValueError(
            "network='gru' needs texts, one size of hidden, that of its states, and no members; got "
            f"{'numbers' if s.words is None else 'texts'}, hidden={s.hidden} and members={s.members}."
        )
    return s.words, s.hidden[0]


def _gru_encoder(s: Sizes) -> nn.Module:
    words, n_hidden = _sentences(s)
    return nn.Sequential(Reader(words, n_hidden), Projection(n_hidden, s.raw_z))


def _gru_decoder(s: Sizes) -> nn.Module:
    words, n_hidden = _sentences(s)
    return Writer(SharedEmbedding(words), s.units, n_hidden)


NETWORKS: dict[str, Pair] = {
    "dense": Pair(_dense_encoder, _dense_decoder),
    "conv": Pair(_conv_encoder, _conv_decoder),
    "asperti": Pair(_asperti_encoder, _asperti_decoder),
    "mat": Pair(_mat_encoder, _mat_decoder),
    "gru": Pair(_gru_encoder, _gru_decoder),
}
"""The networks a constructor may name. A new one is two functions and one line here."""


def chosen(network: str, *, texts: bool) -> str:
    """The network of that name; "auto" is gru for texts and dense for rows of numbers."""
    if network != "auto":
        return network
    return "gru" if texts else "dense"


_GLOBAL_NOISE = (
    "whose noise comes from torch's global random state: a run could be neither repeated nor resumed. Remove it; "
    "the noise of z regularises already."
)


def _check_noise(name: str, own: nn.Module, n_in: int) -> None:
    """Refuse a network whose outputs in training differ between two calls: its noise has no seed of ours.

    Outputs are compared, rather than torch's random state, since that also changes when other threads draw.
    """
    before = torch.get_rng_state()
    x, outputs = torch.randn(16, n_in, generator=torch.Generator().manual_seed(0)), list[Tensor]()
    for _ in range(2):
        try:
            with torch.no_grad():
                outputs.append(copy.deepcopy(own).cpu().train()(x))
        except Exception:  # `with_head` reports inputs that it cannot take
            return
    first, second = outputs
    if isinstance(first, Tensor) and not torch.equal(first.nan_to_num(), second.nan_to_num()):
        torch.set_rng_state(before)
        raise ValueError(f"{name} uses noise such as that of RReLU or F.dropout, {_GLOBAL_NOISE}")


def with_head(name: str, own: nn.Module, n_in: int, n_out: int, weights: torch.Generator | None) -> nn.Module:
    """A user's own network, (B, n_in) -> (B, any width), with its own weights, and a linear head to n_out."""
    if any(isinstance(m, nn.modules.dropout._DropoutNd) for m in own.modules()):
        raise ValueError(f"{name} holds a Dropout layer, {_GLOBAL_NOISE}")
    _check_noise(name, own, n_in)
    body = copy.deepcopy(own).cpu().eval()
    with torch.no_grad():
        try:
            out = body(torch.zeros(2, n_in))
        except Exception as error:
            kinds = {w.dtype for w in own.parameters() if w.is_floating_point()} - {torch.float32}
            hint = f" Its weights are {', '.join(map(str, kinds))}: pass {name}.float()." if kinds else ""
            raise ValueError(f"{name} cannot take a float tensor of shape (B, {n_in}): {error}.{hint}") from error
    if not isinstance(out, Tensor) or out.dim() != 2 or len(out) != 2 or out.dtype != torch.float32:
        came = f"{tuple(out.shape)} in {out.dtype}" if isinstance(out, Tensor) else type(out).__name__
        raise ValueError(f"{name} must map (B, {n_in}) to (B, width) in torch.float32; for B = 2 it gave {came}.")
    head = Linear(out.shape[1], n_out)
    initialise(head, weights)
    return nn.Sequential(body, head)
