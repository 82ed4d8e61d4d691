"""Sources of noise."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import torch
from torch import Tensor

_TINY = 2.0**-25  # below the smallest positive value of a 24-bit uniform: keeps u inside the open interval


class Noise(Protocol):
    """A source of standard noise shaped like a given tensor."""

    def normal(self, like: Tensor) -> Tensor: ...

    def uniform(self, like: Tensor) -> Tensor: ...


def mix(*words: int) -> int:
    """A 63-bit seed from several integers (the splitmix64 finaliser, folded)."""
    h = 0
    for w in words:
        h = (h ^ (int(w) & 0xFFFFFFFFFFFFFFFF)) + 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF
        h = (h ^ h >> 30) * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF
        h = (h ^ h >> 27) * 0x94D049BB133111EB & 0xFFFFFFFFFFFFFFFF
        h ^= h >> 31
    return h >> 1


class Fresh:
    """Noise drawn from a generator on each call."""

    def __init__(self, generator: torch.Generator) -> None:
        self.generator = generator

    def normal(self, like: Tensor) -> Tensor:
        return torch.empty_like(like, requires_grad=False).normal_(generator=self.generator)

    def uniform(self, like: Tensor) -> Tensor:
        return _uniform_(torch.empty_like(like, requires_grad=False), self.generator)


def _uniform_(out: Tensor, generator: torch.Generator) -> Tensor:
    return out.uniform_(_TINY, 1, generator=generator)


class Tape:
    """Static noise buffers: recorded on the first pass, refilled before each later one.

    The noise of step t is a pure function of (seed, t), so that resuming a run needs no saved state.
    """

    def __init__(self, seed: int, device: torch.device) -> None:
        self.seed = seed
        self.generator = torch.Generator(device)
        self.normals: list[Tensor] = []
        self.uniforms: list[Tensor] = []
        self.rewind()

    def rewind(self) -> None:
        self._normal = self._uniform = 0

    def refill(self, step: int) -> None:
        """Write the noise of one step into the recorded buffers and rewind to the first."""
        self.generator.manual_seed(mix(self.seed, step))
        for buffer in self.normals:
            buffer.normal_(generator=self.generator)
        for buffer in self.uniforms:
            _uniform_(buffer, self.generator)
        self.rewind()

    @contextmanager
    def substituted(self, normals: Sequence[Tensor], uniforms: Sequence[Tensor]) -> Iterator[None]:
        """Temporarily replace the recorded buffers by the given tensors (same shapes), and rewind."""
        own = self.normals, self.uniforms
        self.normals, self.uniforms = list(normals), list(uniforms)
        self.rewind()
        try:
            yield
        finally:
            self.normals, self.uniforms = own

    def normal(self, like: Tensor) -> Tensor:
        self._normal += 1
        return _recorded(self.normals, self._normal - 1, like, 0.0)

    def uniform(self, like: Tensor) -> Tensor:
        self._uniform += 1
        return _recorded(self.uniforms, self._uniform - 1, like, 0.5)


def _recorded(buffers: list[Tensor], at: int, like: Tensor, fill: float) -> Tensor:
    """The buffer at a position, recorded with the value `fill` if there is none yet."""
    if at == len(buffers):
        buffers.append(torch.full_like(like, fill, requires_grad=False))
    if buffers[at].shape != like.shape:
        recorded = tuple(buffers[at].shape)
        raise ValueError(f"expected noise of the recorded shape {recorded}, got {tuple(like.shape)}: make a new Tape.")
    return buffers[at]


_MULTIPLIERS = (-49064778989728563, -4265267296055464877, -7723592293110705685)  # odd 64-bit mixing constants


def _shift(h: Tensor, bits: int) -> Tensor:
    """Logical right shift of int64 (torch's >> keeps the sign)."""
    return (h >> bits) & ((1 << (64 - bits)) - 1)


def _scramble(h: Tensor) -> Tensor:
    """A 64-bit finaliser on int64 tensors; products wrap around."""
    h = (h ^ _shift(h, 32)) * _MULTIPLIERS[0]
    h = (h ^ _shift(h, 29)) * _MULTIPLIERS[1]
    return h ^ _shift(h, 32)


def row_keys(x: Tensor) -> Tensor:
    """A 64-bit key per row of a dense batch, (..., B, D) -> (..., B), a hash of its bits in float32."""
    bits = (x.float() + 0.0).view(torch.int32).to(torch.int64)  # adding zero turns -0.0 into 0.0
    column = _scramble(torch.arange(1, x.shape[-1] + 1, device=x.device) * _MULTIPLIERS[2])
    return _scramble(_scramble(bits ^ column).sum(-1))


class PerRow:
    """Noise as a function of (seed, row key, sample, site, unit): independent of the position of a row.

    Parameters
    ----------
    keys : Tensor (R,) int64
        One key per row of the model's batch (including rows repeated for several samples).
    """

    def __init__(self, keys: Tensor, seed: int) -> None:
        self.keys = keys
        self.seed = seed
        self.calls = 0

    def _double(self, like: Tensor) -> Tensor:
        self.calls += 1
        unit = torch.arange(1, like.shape[-1] + 1, device=like.device) * _MULTIPLIERS[2]
        stream = _scramble(unit + (mix(self.seed, self.calls) - (1 << 62)))
        bits = _scramble(_scramble(self.keys[:, None] ^ stream))
        return (_shift(bits, 12).to(torch.float64) + 0.5) * 2.0**-52

    def uniform(self, like: Tensor) -> Tensor:
        return self._double(like).to(like.dtype).clamp_(_TINY, 1 - 2.0**-24)

    def normal(self, like: Tensor) -> Tensor:
        """Normal noise by the Box-Muller transform: exact in distribution and deterministic."""
        radius = (-2 * self._double(like).log()).sqrt()
        return (radius * (2 * math.pi * self._double(like)).cos()).to(like.dtype)
