r"""Sentences as data: rows of word numbers that end in EOS, and the law p(x|z) that a recurrent net gives them.

A sentence of n words is n + 1 whole numbers, its words and EOS, padded on the right with PAD. EOS is part of it: with
h_t made from z and the words before position t,

.. math:: \log p(x|z) = \sum_{t \le \text{EOS}} \log \mathrm{softmax}(W h_t + b)_{x_t}

is a log-probability. Those of all sentences of any length sum to one, less what the softmax gives to PAD, which no
sentence holds: little after training, and lost to the score, which stays a bound.

(batch x time x vocabulary) logits would be the largest tensor of a sentence model by far: 2.5 GB for 512 sentences of
61 positions and 20,000 words, and as much again for everything made of them. They are made a chunk of positions at a
time, and of each chunk the probabilities wait for the backward pass where all of them are small enough.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self, cast

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from sparsevae.distributions.tokens import CHUNK, Tokens
from sparsevae.inputs.texts import texts_at_once
from sparsevae.likelihoods.base import Likelihood
from sparsevae.networks.dense import Linear
from sparsevae.networks.recurrent import Projection, Writer, generate
from sparsevae.sampling.draw import Draw


class SentenceDistribution(Distribution):
    """p(x|z), the law of any sentence given z: a writer is asked what it foretells before each of the sentence's words.

    So nobody but this law has to know of teacher forcing. Rows may have fewer positions than `event_shape` says: a
    sentence is the same with less padding.

    Parameters
    ----------
    writer : nn.Module
        (z, tokens (B, T)) -> states (B, T, H); the state at t has heard z and what stands before t.
    projection : Linear
        From states to logits.
    z : Tensor (B, J)
    positions : int
        Most positions of a sentence, EOS included: what `event_shape` says.
    chunk : int
        As in `Tokens`.
    """

    arg_constraints: ClassVar = {}
    support = Tokens.support

    def __init__(self, writer: nn.Module, projection: Linear, z: Tensor, positions: int, chunk: int = CHUNK) -> None:
        self.writer, self.projection, self.z, self.chunk = writer, projection, z, chunk
        super().__init__(z.shape[:-1], torch.Size([positions]), validate_args=False)

    def given_words(self, tokens: Tensor) -> Tokens:
        """The law along one sentence, position by position, (B, T)."""
        return Tokens(self.writer(self.z, tokens), self.projection.weight, self.projection.bias, self.chunk)

    def log_prob(self, value: Tensor) -> Tensor:
        """log p(x|z) of whole sentences, EOS counted, (B, T) -> (B,); -inf for a row that never ends."""
        return self.given_words(value).log_prob(value)


class TokenData(Likelihood):
    """raw = a writer's states (..., T, H) -> Tokens; a writer and z -> SentenceDistribution.

    Holds the projection, which is one with the cross-entropy. `positions` are the most that a row has, `longest` those
    of the longest sentence, EOS included.
    """

    name = "tokens"
    kind = "texts"
    discrete: ClassVar[bool] = True
    whole = True

    def __init__(self, projection: Linear, chunk: int = CHUNK, positions: int = 0, longest: int | None = None) -> None:
        super().__init__()
        self.projection, self.chunk, self.positions = projection, chunk, positions
        self.longest = positions if longest is None else longest
        self.support = (0.0, len(projection.weight) - 1.0)

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Self:
        projection = Projection(settings["hidden_"][0], settings["words"])
        return cls(projection, positions=settings["positions"], longest=settings["longest"])

    def given(self, decoder: nn.Module, z: Tensor) -> Distribution:
        return SentenceDistribution(decoder, self.projection, z, self.positions, self.chunk)

    def point(self, p: Distribution) -> Tensor:
        """The likeliest word every time, (B, longest)."""
        return self.write(p)

    def draw(self, p: Distribution, draw: Draw) -> Tensor:
        return self.write(p, "sample", noise=draw.noise)

    def write(self, p: Distribution, how: str = "greedy", **settings: Any) -> Tensor:
        """A sentence per code of p, (B, longest), by `networks.recurrent.generate`, in blocks of one size."""
        p = cast(SentenceDistribution, p)
        z, size = p.z, texts_at_once(p.z.device)
        sentences = [z.new_zeros((0, self.longest), dtype=torch.int64)]
        for codes in z.split(size) if len(z) else ():
            filled = codes[torch.arange(size, device=z.device).clamp_max(len(codes) - 1)]
            tokens = generate(cast(Writer, p.writer), p.projection, filled, self.longest, how, **settings)
            sentences.append(tokens[: len(codes)])
        return torch.cat(sentences)

    def width(self, n: int) -> int:
        """The states of n positions."""
        return n * self.projection.weight.shape[-1]

    def forward(self, raw: Tensor) -> Distribution:
        return Tokens(raw, self.projection.weight, self.projection.bias, self.chunk)
