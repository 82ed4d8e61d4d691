"""Recurrent nets for sentences: a reader, x -> state, and a writer, (z, words so far) -> states; and generation.

Both are single GRUs of torch's own form (two bias vectors), which has no member dimension. Sentences are rows of
`tokens`: words, EOS, then PAD. Sizes and their law are HSVAE's, as its published parameter counts force them
(erratum 21): one embedding for reader and writer, z beside every word, a writer that starts at zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, log_softmax, pad

from sparsevae.networks.dense import Layer, Linear
from sparsevae.sampling.choices import ONE_HOTS
from sparsevae.sampling.noise import Noise
from sparsevae.text.ids import EOS, PAD, ends

Choose = Callable[[Tensor], Tensor]
"""log-probabilities (B, V) -> tokens (B,)."""


def _lecun_(weight: Tensor, generator: torch.Generator) -> None:
    """LeCun's normal law, N(0, 1 / number of inputs), into (n_out, n_in)."""
    weight.normal_(0, 1 / math.sqrt(weight.shape[-1]), generator=generator)


class Embedding(Layer):
    """A vector for every token: (...,) whole numbers of any type -> (..., n_out)."""

    def __init__(self, vocabulary: int, n_out: int = 256) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocabulary, n_out))

    def reset(self, generator: torch.Generator) -> None:
        """Uniform on +-0.05, TensorFlow's default: HSVAE's code is written in it, and the paper does not say."""
        with torch.no_grad():
            self.weight.uniform_(-0.05, 0.05, generator=generator)

    def forward(self, tokens: Tensor) -> Tensor:
        return embedding(tokens.long(), self.weight)


class SharedEmbedding(nn.Module):
    """An embedding that another network owns: used here, but listed, stored and moved there alone."""

    def __init__(self, words: Embedding) -> None:
        super().__init__()
        self._words = [words]  # in a list, where torch does not look for modules

    @property
    def weight(self) -> Tensor:
        return self._words[0].weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self._words[0](tokens)  # type: ignore[no-any-return]


class Projection(Linear):
    """A linear map with LeCun-normal weights and no bias at first: a writer's logits, a reader's heads."""

    def reset(self, generator: torch.Generator) -> None:
        with torch.no_grad():
            _lecun_(self.weight, generator)
            self.bias.zero_()


class GRU(nn.GRU, Layer):
    """torch's own GRU, (B, T, n_in) -> (B, T, n_out), with LeCun-normal kernels and recurrent kernels.

    Each of the three gates has its own n_out rows in both kernels, so one law serves all. Biases start at 0. Under
    autocast it runs in autocast's type, by casts of our own: autocast itself takes cuDNN's recurrent nets to float16,
    whatever type it was asked for, and small gradients would be lost there.
    """

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__(n_in, n_out, batch_first=True)

    def forward(self, x: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        device = x.device.type
        weights: list[Tensor] = list(self.parameters())
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weights[0].dtype
        if dtype != weights[0].dtype:  # one piece of memory, as cuDNN wants them
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
        """Nothing: torch calls this on construction, which here touches no random state."""

    def reset(self, generator: torch.Generator) -> None:
        with torch.no_grad():
            for p in self.parameters():
                if p.dim() == 2:
                    _lecun_(p, generator)
                else:
                    p.zero_()


class Reader(nn.Module):
    """Sentences (B, T) -> the GRU's state at EOS, (B, n_hidden).

    A state knows only what came before, so padding on the right cannot reach it and no row has to be packed.
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
    """What a writer hears at each position: EOS, then the sentence without its last column, (..., T) -> (..., T).

    >>> shifted(torch.tensor([[5, 7, 1, 0]]))
    tensor([[1, 5, 7, 1]])
    """
    return pad(tokens[..., :-1], (1, 0), value=EOS)


class Writer(nn.Module):
    """z (B, J) and the words so far -> states (B, T, n_hidden); z stands beside every word, the first state is zero."""

    def __init__(self, words: Embedding | SharedEmbedding, n_latent: int, n_hidden: int = 512) -> None:
        super().__init__()
        self.words = words
        self.gru = GRU(words.weight.shape[-1] + n_latent, n_hidden)

    def forward(self, z: Tensor, tokens: Tensor) -> Tensor:
        """Teacher forcing: the state at position t has heard z and tokens[:, :t], and foretells tokens[:, t]."""
        states: Tensor = self.gru(self._inputs(shifted(tokens), z))[0]
        return states

    def step(self, token: Tensor, z: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """One position: the last token (B,), z (B, J) and the state before it, (B, n_hidden) or None at the start.

        Returns what the projection reads and the state to go on from; a GRU's are the same tensor.
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

    PAD is never said, and a sentence that has not ended by its last position ends there.

    Parameters
    ----------
    max_length : int
        Positions, EOS included.
    how : {"greedy", "sample", "beam"}
        The likeliest token every time; a draw of each token; or the likeliest sentence that a beam search finds, by
        log p(x|z) itself, with no correction for length. One beam is greedy.
    temperature : float
        Of "sample": draws follow softmax(logits / temperature).
    beams : int
        Of "beam": how many unfinished or finished sentences are kept at each position.
    noise : Noise
        Of "sample", which is a function of it: `Fresh(generator)`, or `PerRow` for draws that no neighbour changes.
    """
    ways: dict[str, Callable[[], Tensor]] = {
        "greedy": lambda: _follow(writer, projection, z, max_length, lambda log_p: log_p.argmax(-1)),
        "sample": lambda: _follow(writer, projection, z, max_length, _sampler(temperature, noise)),
        "beam": lambda: _search(writer, projection, z, max_length, beams),
    }
    if how not in ways:
        raise ValueError(f"how must be one of {', '.join(ways)}; got {how!r}.")
    if max_length < 1:
        raise ValueError(f"max_length must be at least 1, the position of EOS; got {max_length!r}.")
    return ways[how]()


def _sampler(temperature: float, noise: Noise | None) -> Choose:
    if noise is None:
        raise ValueError('how="sample" needs noise: give noise=Fresh(generator), or choose "greedy" or "beam".')
    if not temperature > 0:
        raise ValueError(f'temperature must be above 0, got {temperature!r}; its limit at 0 is how="greedy".')
    return lambda log_p: ONE_HOTS.hard(log_p / temperature, noise.uniform(log_p)).argmax(-1)


def _next(writer: Writer, projection: Linear, token: Tensor, z: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
    """log-probabilities of the next token, (R, V), float32 or wider and -inf for PAD; and the state after this one."""
    hidden, state = writer.step(token, z, state)
    logits: Tensor = projection(hidden)
    log_p = log_softmax(logits.to(torch.promote_types(logits.dtype, torch.float32)), -1)
    return log_p.index_fill(-1, torch.tensor([PAD], device=log_p.device), -torch.inf), state


def _follow(writer: Writer, projection: Linear, z: Tensor, max_length: int, choose: Choose) -> Tensor:
    """One token after the other, each chosen once and for all."""
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
    """Beam search: of all ways to go on from `beams` beginnings, the `beams` likeliest are kept.

    A finished sentence goes on with PAD at no cost, so that it competes with those that are still growing. At the last
    position EOS is all that can be said, at its own probability: what is found is the likeliest of the sentences that
    fit, as far as the beams reach.
    """
    if beams < 1:
        raise ValueError(f"beams must be at least 1, got {beams!r}.")
    B, V = len(z), projection.weight.shape[0]
    vocabulary = torch.arange(V, device=z.device)
    z = z.repeat_interleave(beams, 0)  # (B beams, J)
    token, state = torch.full((B * beams,), EOS, device=z.device), None
    ended, tokens = torch.zeros_like(token, dtype=torch.bool), token.new_empty(B * beams, 0)
    # All beams begin alike: the first alone counts, or the same sentence would fill them all.
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
