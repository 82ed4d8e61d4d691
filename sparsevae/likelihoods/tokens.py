r"""Sentences as data: rows of word numbers that end in EOS, and their distribution p(x|z) from a recurrent net.

A sentence of n words is n + 1 whole numbers, its words and EOS, padded on the right with PAD. EOS is part of it: with
h_t computed from z and the words before position t,

.. math:: \log p(x|z) = \sum_{t \le \text{EOS}} \log \mathrm{softmax}(W h_t + b)_{x_t}

is a log-probability. The probabilities of all sentences of any length sum to at most one: the softmax also gives a
probability to PAD, which occurs in no sentence. It is small after training, and a score stays a lower bound.

Logits of shape (batch, time, vocabulary) would be by far the largest tensor of a sentence model: 2.5 GB for 512
sentences of 61 positions and 20,000 words, and as much for each tensor computed from them. They are computed for a
chunk of positions at a time; probabilities are kept for the backward pass only if all of them are small enough.
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
    """p(x|z), the distribution of sentences given z. `log_prob` runs the writer on the sentence (teacher forcing).

    Rows may have fewer positions than `event_shape`: the log-probability does not depend on the padding.

    Parameters
    ----------
    writer : nn.Module
        (z, tokens (B, T)) -> states (B, T, H); the state at t is a function of z and tokens[:, :t].
    projection : Linear
        From states to logits.
    z : Tensor (B, J)
    positions : int
        The largest number of positions of a sentence, EOS included: `event_shape`.
    chunk : int
        As in `Tokens`.
    """

    arg_constraints: ClassVar = {}
    support = Tokens.support

    def __init__(self, writer: nn.Module, projection: Linear, z: Tensor, positions: int, chunk: int = CHUNK) -> None:
        self.writer, self.projection, self.z, self.chunk = writer, projection, z, chunk
        super().__init__(z.shape[:-1], torch.Size([positions]), validate_args=False)

    def log_prob(self, value: Tensor) -> Tensor:
        """log p(x|z) of sentences with their EOS, (B, T) -> (B,); -inf for a row without EOS."""
        states = self.writer(self.z, value)
        return Tokens(states, self.projection.weight, self.projection.bias, self.chunk).log_prob(value)


class TokenData(Likelihood):
    """raw = the states of a writer (..., T, H) -> Tokens; `given` a writer and z: SentenceDistribution.

    The projection to logits belongs to the likelihood, since logits and log-probabilities are computed together.
    `positions` is the number of columns of a row, `longest` that of the longest sentence, EOS included.
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
        """Greedy sentences: the most probable word at each position, (B, longest)."""
        return self.write(p)

    def draw(self, p: Distribution, draw: Draw) -> Tensor:
        return self.write(p, "sample", noise=draw.noise)

    def write(self, p: Distribution, how: str = "greedy", **settings: Any) -> Tensor:
        """One sentence per code of p, (B, longest), by `networks.recurrent.generate`, in blocks of equal size."""
        p = cast(SentenceDistribution, p)
        z, size = p.z, texts_at_once(p.z.device)
        sentences = [z.new_zeros((0, self.longest), dtype=torch.int64)]
        for codes in z.split(size) if len(z) else ():
            filled = codes[torch.arange(size, device=z.device).clamp_max(len(codes) - 1)]
            tokens = generate(cast(Writer, p.writer), p.projection, filled, self.longest, how, **settings)
            sentences.append(tokens[: len(codes)])
        return torch.cat(sentences)

    def width(self, n: int) -> int:
        """The number of values of the states of n positions."""
        return n * self.projection.weight.shape[-1]

    def forward(self, raw: Tensor) -> Distribution:
        return Tokens(raw, self.projection.weight, self.projection.bias, self.chunk)
