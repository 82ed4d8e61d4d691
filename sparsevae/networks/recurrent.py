"""Recurrent nets for sentences: a reader, x -> state, and a writer, (z, previous words) -> states; and generation.

Both are single GRUs of torch's form (two bias vectors), without member dimensions. Sentences are rows of `tokens`:
words, EOS, then PAD. The architecture is that of HSVAE, as its published parameter counts imply (erratum 21): one
embedding for reader and writer, z concatenated to each word, an initial state of zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, log_softmax, pad

from sparsevae.checks import In
from sparsevae.networks.dense import Layer, Linear
from sparsevae.sampling.choices import ONE_HOTS
from sparsevae.sampling.noise import Noise
from sparsevae.text.ids import EOS, PAD, ends

Choose = Callable[[Tensor], Tensor]
"""log-probabilities (B, V) -> tokens (B,)."""


def _lecun_(weight: Tensor, generator: torch.Generator) -> None:
    """LeCun-normal initialisation, N(0, 1 / number of inputs), of weights (n_out, n_in)."""
    weight.normal_(0, 1 / math.sqrt(weight.shape[-1]), generator=generator)


class Embedding(Layer):
    """A vector per token: (...,) whole numbers of any type -> (..., n_out)."""

    def __init__(self, vocabulary: int, n_out: int = 256) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocabulary, n_out))

    def reset(self, generator: torch.Generator) -> None:
        """Uniform on +-0.05, the default of TensorFlow, which HSVAE's code uses; the paper gives none."""
        with torch.no_grad():
            self.weight.uniform_(-0.05, 0.05, generator=generator)

    def forward(self, tokens: Tensor) -> Tensor:
        return embedding(tokens.long(), self.weight)


class SharedEmbedding(nn.Module):
    """A reference to the embedding of another network: it is registered, stored and moved there only."""

    def __init__(self, words: Embedding) -> None:
        super().__init__()
        self._words = [words]  # in a list, so that torch does not register it

    @property
    def weight(self) -> Tensor:
        return self._words[0].weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self._words[0](tokens)  # type: ignore[no-any-return]


class Projection(Linear):
    """A linear map with initial LeCun-normal weights and zero bias: the logits of a writer, the heads of a reader."""

    def reset(self, generator: torch.Generator) -> None:
        with torch.no_grad():
            _lecun_(self.weight, generator)
            self.bias.zero_()


class GRU(nn.GRU, Layer):
    """torch's own GRU, (B, T, n_in) -> (B, T, n_out), with LeCun-normal kernels and recurrent kernels.

    Each of the three gates has its own n_out rows in both kernels, so all have the same initial distribution. Biases
    start at 0. Under autocast weights and inputs are cast to autocast's dtype here, since autocast itself casts cuDNN's
    recurrent nets to float16 for every dtype, in which small gradients underflow.
    """

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__(n_in, n_out, batch_first=True)

    def forward(self, x: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        device = x.device.type
        weights: list[Tensor] = list(self.parameters())
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weights[0].dtype
        if dtype != weights[0].dtype:  # in one block of memory, as cuDNN requires
            whole = torch.cat([w.flatten() for w in weights]).to(dtype)
            pieces = whole.split([w.numel() for w in weights])
            weights = [piece.view_as(w) for piece, w in zip(pieces, weights, strict=True)]
        before = x.new_zeros(1, len(x), self.hidden_size) if state is None else state
        with torch.autocast(device, enabled=False):
            states, last = torch.gru(
                x.to(dtype), before.to(dtype), weights, True, 1, 0.0, self.training, False, batch_first=True
            )
        return states, last

    def reset_parameters(self) -> None:
        """Do nothing: torch calls this on construction, which uses no random state here."""

    def reset(self, generator: torch.Generator) -> None:
        with torch.no_grad():
            for p in self.parameters():
                if p.dim() == 2:
                    _lecun_(p, generator)
                else:
                    p.zero_()


class Reader(nn.Module):
    """Sentences (B, T) -> the GRU's state at EOS, (B, n_hidden).

    A state depends on earlier positions only, so padding on the right has no effect and rows need not be packed.
    """

    def __init__(self, words: Embedding | SharedEmbedding, n_hidden: int = 512) -> None:
        super().__init__()
        self.words = words
        self.gru = GRU(words.weight.shape[-1], n_hidden)

    def forward(self, tokens: Tensor) -> Tensor:
        states, _ = self.gru(self.words(tokens))  # (B, T, n_hidden)
        last: Tensor = states.take_along_dim(ends(tokens)[:, None, None], 1)  # (B, 1, n_hidden)
        return last.squeeze(1)


def shifted(tokens: Tensor) -> Tensor:
    """The input of a writer at each position: EOS, then the sentence without its last column, (..., T) -> (..., T).

    >>> shifted(torch.tensor([[5, 7, 1, 0]]))
    tensor([[1, 5, 7, 1]])
    """
    return pad(tokens[..., :-1], (1, 0), value=EOS)


class Writer(nn.Module):
    """z (B, J) and previous words -> states (B, T, n_hidden); z is concatenated to each word; the first state is 0."""

    def __init__(self, words: Embedding | SharedEmbedding, n_latent: int, n_hidden: int = 512) -> None:
        super().__init__()
        self.words = words
        self.gru = GRU(words.weight.shape[-1] + n_latent, n_hidden)

    def forward(self, z: Tensor, tokens: Tensor) -> Tensor:
        """Teacher forcing: the state at position t is a function of z and tokens[:, :t], and predicts tokens[:, t]."""
        states: Tensor = self.gru(self._inputs(shifted(tokens), z))[0]
        return states

    def step(self, token: Tensor, z: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """One position: the last token (B,), z (B, J) and the state before it, (B, n_hidden) or None at the start.

        Returns the input of the projection and the next state; for a GRU they are the same tensor.
        """
        before = None if state is None else state.unsqueeze(0)
        hidden, after = self.gru(self._inputs(token.unsqueeze(-1), z), before)
        return hidden.squeeze(1), after.squeeze(0)

    def _inputs(self, tokens: Tensor, z: Tensor) -> Tensor:
        """(B, T), (B, J) -> (B, T, words + J)."""
        words = self.words(tokens)
        return torch.cat([words, z.to(words.dtype).unsqueeze(1).expand(-1, words.shape[1], -1)], -1)


@torch.no_grad()
def generate(
    writer: Writer,
    projection: Linear,
    z: Tensor,
    max_length: int,
    how: str = "greedy",
    *,
    temperature: float = 1.0,
    beams: int = 5,
    noise: Noise | None = None,
) -> Tensor:
    """Sentences for codes, (B, J) -> (B, max_length) int64: words, EOS, then PAD.

    PAD is never generated as a word, and a sentence without EOS before its last position ends there.

    Parameters
    ----------
    max_length : int
        Positions, EOS included.
    how : {"greedy", "sample", "beam"}
        The most probable token at each position; a draw of each token; or the most probable sentence found by a beam
        search, by log p(x|z), without a correction for length. One beam is greedy.
    temperature : float
        For "sample": tokens are drawn from softmax(logits / temperature).
    beams : int
        For "beam": the number of sentences, finished or not, kept at each position.
    noise : Noise
        For "sample": `Fresh(generator)`, or `PerRow` for draws that do not depend on other rows.
    """
    if how not in ("greedy", "sample", "beam"):
        raise ValueError(f"how must be one of greedy, sample, beam; got {how!r}.")
    In(1).check("max_length", max_length, "at least 1, the position of EOS", whole=True)
    if how == "beam":
        return _search(writer, projection, z, max_length, beams)
    choose = _sampler(temperature, noise) if how == "sample" else lambda log_p: log_p.argmax(-1)
    return _follow(writer, projection, z, max_length, choose)


def _sampler(temperature: float, noise: Noise | None) -> Choose:
    if noise is None:
        raise ValueError('how="sample" needs noise, got None: pass noise=Fresh(generator), or how="greedy" or "beam".')
    if not temperature > 0:
        raise ValueError(f'temperature must be above 0, got {temperature!r}; its limit at 0 is how="greedy".')
    return lambda log_p: ONE_HOTS.hard(log_p / temperature, noise.uniform(log_p)).argmax(-1)


def _next(writer: Writer, projection: Linear, token: Tensor, z: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
    """log-probabilities of the next token, (R, V), float32 or wider and -inf for PAD; and the next state."""
    hidden, state = writer.step(token, z, state)
    logits: Tensor = projection(hidden)
    log_p = log_softmax(logits.to(torch.promote_types(logits.dtype, torch.float32)), -1)
    return log_p.index_fill(-1, torch.tensor([PAD], device=log_p.device), -torch.inf), state


def _follow(writer: Writer, projection: Linear, z: Tensor, max_length: int, choose: Choose) -> Tensor:
    """Generate sentences token by token, (B, max_length); `choose` gives each from its log-probabilities."""
    token = torch.full((len(z),), EOS, device=z.device)
    ended, state, written = torch.zeros_like(token, dtype=torch.bool), None, []
    for _ in range(max_length - 1):
        log_p, state = _next(writer, projection, token, z, state)
        token = choose(log_p).masked_fill(ended, PAD)
        written.append(token)
        ended = ended | (token == EOS)
        if bool(ended.all()):
            break
    written.append(torch.full_like(token, EOS).masked_fill(ended, PAD))
    tokens = torch.stack(written, -1)
    return pad(tokens, (0, max_length - tokens.shape[-1]), value=PAD)


def _search(writer: Writer, projection: Linear, z: Tensor, max_length: int, beams: int) -> Tensor:
    """Beam search: of all extensions of `beams` prefixes by one token, the `beams` most probable are kept.

    A finished sentence is extended with PAD, with log-probability 0, so that it is compared with unfinished ones. At
    the last position the only token is EOS, with its own probability: the search is over sentences of at most
    max_length positions.
    """
    In(1).check("beams", beams, "at least 1", whole=True)
    B, V = len(z), projection.weight.shape[0]
    vocabulary = torch.arange(V, device=z.device)
    z = z.repeat_interleave(beams, 0)  # (B beams, J)
    token, state = torch.full((B * beams,), EOS, device=z.device), None
    ended, tokens = torch.zeros_like(token, dtype=torch.bool), token.new_empty(B * beams, 0)
    # All beams start equal: only the first has a finite score, or all would hold the same sentence.
    score = torch.full((B, beams), -torch.inf, device=z.device).index_fill(-1, token.new_zeros(1), 0.0)
    for t in range(max_length):
        log_p, state = _next(writer, projection, token, z, state)
        if t == max_length - 1:
            log_p = torch.where(vocabulary == EOS, log_p, -torch.inf)
        log_p = torch.where(ended.unsqueeze(-1), torch.where(vocabulary == PAD, 0.0, -torch.inf).to(log_p), log_p)
        score, best = (score.unsqueeze(-1) + log_p.view(B, beams, V)).flatten(1).topk(beams)  # (B, beams)
        parent = (best // V + beams * torch.arange(B, device=z.device).unsqueeze(-1)).flatten()
        token = (best % V).flatten()
        tokens = torch.cat([tokens[parent], token.unsqueeze(-1)], -1)
        ended, state = ended[parent] | (token == EOS), state[parent]
        if bool((ended.view(B, beams) | score.isinf()).all()):
            break
    first = tokens.view(B, beams, -1)[:, 0]  # topk sorts
    return pad(first, (0, max_length - first.shape[-1]), value=PAD)
