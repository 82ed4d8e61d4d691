"""Tokens: the distribution of a sentence, its gradient by hand, and how little of the logits is ever in memory."""

import itertools
import math
import weakref
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.utils._python_dispatch import TorchDispatchMode

from sparsevae.distributions import tokens as sentences
from sparsevae.distributions.tokens import Tokens
from sparsevae.inputs.stats import Span
from sparsevae.latent.model import Observed, Trace
from sparsevae.latent.objective import nll
from sparsevae.likelihoods.tokens import TokenData
from sparsevae.networks.dense import initialise
from sparsevae.networks.recurrent import Embedding, Projection, Writer
from sparsevae.text.ids import EOS, PAD, ends, spoken


def normals(seed: int, *shapes: tuple[int, ...], dtype: torch.dtype = torch.float64) -> list[Tensor]:
    g = torch.Generator().manual_seed(seed)
    return [torch.randn(s, generator=g, dtype=dtype) for s in shapes]


SENTENCES = torch.tensor([[4, 2, 3, EOS, PAD], [EOS, PAD, PAD, PAD, PAD], [5, 5, 6, 2, EOS]])


def pieces(seed: int = 0, V: int = 7, H: int = 4, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """States of the sentences above, weight and bias."""
    return [t.requires_grad_() for t in normals(seed, (*SENTENCES.shape, H), (V, H), (V,), dtype=dtype)]


def plain(hidden: Tensor, weight: Tensor, bias: Tensor, tokens: Tensor) -> Tensor:
    """The same by torch's cross-entropy, with all logits at once, (B,)."""
    logits = hidden @ weight.mT + bias
    each = -cross_entropy(logits.flatten(0, -2), tokens.flatten(), reduction="none", ignore_index=PAD)
    return each.view(tokens.shape).sum(-1)


def check_sentences(tokens: Tensor, vocabulary: int) -> None:
    """Raise unless every row of (..., T) is words, one EOS, then PAD alone, all below `vocabulary`."""
    ids = tokens.long()
    if not torch.equal(ids.to(tokens.dtype), tokens):
        raise ValueError("tokens must be whole numbers, got some with a fraction: give word numbers, not vectors.")
    if ids.numel() and not 0 <= int(ids.min()) <= int(ids.max()) < vocabulary:
        raise ValueError(f"tokens must lie in 0..{vocabulary - 1}, got {int(ids.min())} to {int(ids.max())}.")
    inside = spoken(ids)
    bad = ~(ids == EOS).any(-1) | ((ids == PAD) & inside).any(-1) | ((ids != PAD) & ~inside).any(-1)
    if bool(bad.any()):
        first = ids[bad][0].tolist()
        raise ValueError(
            f"a sentence is its words, then EOS ({EOS}), then PAD ({PAD}) to the row's end; {int(bad.sum())} of "
            f"{bad.numel()} rows are not, the first being {first}. Cut long sentences before EOS is added."
        )


# -- which positions count -------------------------------------------------------------------------------------------


def test_a_sentence_is_what_stands_before_its_end_and_the_end() -> None:
    assert spoken(SENTENCES).int().tolist() == [[1, 1, 1, 1, 0], [1, 0, 0, 0, 0], [1, 1, 1, 1, 1]]
    assert ends(SENTENCES).tolist() == [3, 0, 4]
    assert ends(torch.tensor([[2, 3, 4]])).tolist() == [2]  # never ends


def test_a_second_end_says_nothing() -> None:
    assert spoken(torch.tensor([2, EOS, 3, EOS, 4])).tolist() == [True, True, False, False, False]


def test_good_sentences_pass_the_check() -> None:
    check_sentences(SENTENCES, 7)
    check_sentences(SENTENCES.float(), 7)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ([2.0, 1.5, 1.0, 0.0], "whole numbers"),
        ([2, 7, EOS, PAD], r"0\.\.6, got 0 to 7"),
        ([2, -1, EOS, PAD], r"0\.\.6, got -1 to 3"),
        ([2, 3, 4, 5], "1 of 2 rows"),  # no end
        ([2, 3, PAD, PAD], "1 of 2 rows"),
        ([2, PAD, 3, EOS], "1 of 2 rows"),  # padding inside
        ([2, EOS, 3, PAD], "1 of 2 rows"),  # words after the end
        ([2, EOS, EOS, PAD], "1 of 2 rows"),
    ],
)
def test_rows_that_are_no_sentences_are_refused(row: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_sentences(torch.tensor([[2, 3, EOS, PAD], row]), 7)


# -- the distribution ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunk", [1, 4, 15, 100])
def test_it_is_the_plain_cross_entropy_with_its_gradients(chunk: int) -> None:
    ours, theirs = pieces(), pieces()
    weigh = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    found, expected = Tokens(*ours, chunk).log_prob(SENTENCES), plain(*theirs, SENTENCES)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    (found @ weigh).backward()
    (expected @ weigh).backward()
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-12, atol=1e-12)


def test_tokens_of_hardly_any_probability_are_told_exactly() -> None:
    """With logits 0 and -200 a token's probability, 1e-87, is no number in float32; its logarithm is -200."""
    hidden = torch.full((1, 2, 1), 200.0, requires_grad=True)
    dist = Tokens(hidden, torch.tensor([[0.0], [-1.0], [-1.0]]), torch.zeros(3))
    each = dist.token_log_prob(torch.tensor([[2, EOS]]))
    assert each.tolist() == [[-200.0, -200.0]]
    (slope,) = torch.autograd.grad(each.sum(), hidden)
    assert slope.flatten().tolist() == [-1.0, -1.0]


@pytest.mark.parametrize("chunk", [2, 100])
def test_the_gradient_by_hand_is_the_gradient(chunk: int) -> None:
    assert torch.autograd.gradcheck(lambda *p: Tokens(*p, chunk).log_prob(SENTENCES), pieces())
    assert torch.autograd.gradcheck(lambda *p: Tokens(*p, chunk).token_log_prob(SENTENCES), pieces())


def test_hand_set_weights() -> None:
    """One unit, logits (0, h, -h): at h = log 2 the three tokens have probabilities 2/7, 4/7, 1/7."""
    hidden = torch.full((1, 3, 1), math.log(2))
    dist = Tokens(hidden, torch.tensor([[0.0], [1.0], [-1.0]]), torch.zeros(3))
    each = dist.token_log_prob(torch.tensor([[2, EOS, PAD]]))
    torch.testing.assert_close(each, torch.tensor([[math.log(1 / 7), math.log(4 / 7), 0.0]]))
    torch.testing.assert_close(dist.log_prob(torch.tensor([[2, EOS, PAD]])), torch.tensor([math.log(4 / 49)]))


def test_sentences_of_up_to_t_positions_and_unfinished_ones_have_all_the_probability() -> None:
    """Every token but EOS may stand before the end: with V = 4 and T = 4 there are 40 sentences and 81 beginnings."""
    T, V, J = 4, 4, 3
    words = Embedding(V, 5)
    net = torch.nn.ModuleList([Writer(words, J, 6), Projection(6, V)])
    initialise(net, torch.Generator().manual_seed(0))
    net.double()
    writer, projection = net
    before = [PAD, 2, 3]
    ended = [
        (*s, EOS, *[PAD] * (T - n - 1)) for n in range(T) for s in itertools.product(before, repeat=n)
    ]  # n words and EOS
    unfinished = list(itertools.product(before, repeat=T))
    z = normals(1, (1, J))[0] * 3

    def dist(rows: Tensor) -> Tokens:
        return Tokens(writer(z.expand(len(rows), -1), rows), projection.weight, projection.bias)

    whole, begun = torch.tensor(ended), torch.tensor(unfinished)
    total = dist(whole).log_prob(whole).exp().sum() + dist(begun).token_log_prob(begun).sum(-1).exp().sum()
    assert (len(whole), len(begun)) == (40, 81)
    assert total.item() == pytest.approx(1, abs=1e-12)
    assert dist(whole).log_prob(whole).exp().sum().item() < 1 - 1e-3


def test_a_row_that_never_ends_is_no_sentence() -> None:
    hidden, weight, bias = pieces()
    tokens = SENTENCES.clone()
    tokens[0, 3] = 2  # its end is gone
    log_p = Tokens(hidden, weight, bias).log_prob(tokens)
    assert log_p[0] == -torch.inf
    assert torch.equal(log_p[1:], Tokens(hidden, weight, bias).log_prob(SENTENCES)[1:])


def test_what_stands_after_the_end_has_no_say_and_gets_no_gradient() -> None:
    hidden, weight, bias = pieces()
    log_p = Tokens(hidden, weight, bias, 4).log_prob(SENTENCES)
    other = torch.where(spoken(SENTENCES), SENTENCES, 6)
    assert torch.equal(Tokens(hidden, weight, bias, 4).log_prob(other), log_p)
    log_p.sum().backward()
    assert bool((hidden.grad[~spoken(SENTENCES)] == 0).all())
    assert bool((hidden.grad[spoken(SENTENCES)] != 0).all())


def test_positions_add_up_to_the_sentence() -> None:
    dist = Tokens(*pieces())
    assert torch.equal(dist.token_log_prob(SENTENCES).sum(-1), dist.log_prob(SENTENCES))


def test_more_leading_dimensions_are_more_rows() -> None:
    hidden, weight, bias = (t.detach() for t in pieces())
    stacked = torch.stack([hidden, 2 * hidden])
    dist = Tokens(stacked, weight, bias, 4)
    assert (dist.batch_shape, dist.event_shape) == ((2, 3), (5,))
    expected = torch.stack([plain(h, weight, bias, SENTENCES) for h in stacked])
    torch.testing.assert_close(dist.log_prob(SENTENCES.expand(2, -1, -1)), expected, rtol=1e-12, atol=1e-12)


def test_logits_of_any_size_stay_finite() -> None:
    hidden, weight, bias = pieces(dtype=torch.float32)
    log_p = Tokens(1e4 * hidden, weight, bias).log_prob(SENTENCES)
    log_p.sum().backward()
    assert bool(torch.isfinite(log_p).all())
    assert bool((log_p <= 0).all())
    assert all(bool(torch.isfinite(t.grad).all()) for t in (hidden, weight, bias))


def test_tokens_of_another_shape_and_empty_chunks_are_refused() -> None:
    hidden, weight, bias = pieces()
    with pytest.raises(ValueError, match=r"shape of the states, \(3, 5\); got \(3, 4\)"):
        Tokens(hidden, weight, bias).log_prob(SENTENCES[:, :4])
    with pytest.raises(ValueError, match="at least 1, a number of positions, got 0"):
        Tokens(hidden, weight, bias, 0)


# -- memory ----------------------------------------------------------------------------------------------------------


class Largest(TorchDispatchMode):
    """The most numbers that any operation gave out."""

    def __init__(self) -> None:
        super().__init__()
        self.numel = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for t in torch.utils._pytree.tree_leaves(out):
            if isinstance(t, Tensor):
                self.numel = max(self.numel, t.numel())
        return out


def test_without_room_to_keep_them_at_most_a_chunk_of_logits_exists_forward_and_backward(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sentences, "KEEP", 0)
    B, T, V, H, chunk = 8, 16, 304, 4, 10  # a chunk of logits is larger than any state or weight, all are 13 times that
    hidden, weight, bias = (t.requires_grad_() for t in normals(0, (B, T, H), (V, H), (V,)))
    tokens = torch.full((B, T), 7)
    tokens[:, -1] = EOS
    passes = {}
    for name, log_prob in {
        "chunks": lambda: Tokens(hidden, weight, bias, chunk).log_prob(tokens),
        "plain": lambda: plain(hidden, weight, bias, tokens),
    }.items():
        with Largest() as forward:
            log_p = log_prob().sum()
        with Largest() as backward:
            log_p.backward()
        passes[name] = forward.numel, backward.numel
    assert passes == {"chunks": (chunk * V, chunk * V), "plain": (B * T * V, B * T * V)}


@pytest.mark.parametrize("chunk", [4, 100])
def test_probabilities_wait_for_the_backward_pass_as_far_as_they_fit_and_gradients_are_the_same(
    chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden, weight, bias = pieces()
    logits = SENTENCES.numel() * -(-len(weight) // 8) * 8
    gradients = []
    for room, waits in ((logits * weight.element_size(), True), (logits * weight.element_size() - 1, False)):
        monkeypatch.setattr(sentences, "KEEP", room)
        kept: list[int] = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t, kept=kept: kept.append(t.numel()) or t, lambda t: t):
            log_p = Tokens(hidden, weight, bias, chunk).log_prob(SENTENCES)
        assert (sum(kept) - hidden.numel() - weight.numel() - bias.numel() >= logits) == waits
        gradients.append(torch.autograd.grad(log_p.sum(), (hidden, weight, bias)))
    for one, other in zip(*gradients, strict=True):
        assert torch.equal(one, other)


def test_without_gradients_nothing_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden, weight, bias = pieces()
    softmax, made = sentences.softmax, list[weakref.ref[Tensor]]()

    def watched(logits: Tensor, dim: int) -> Tensor:
        found = softmax(logits, dim)
        waiting.append(sum(ref() is not None for ref in made))
        made.append(weakref.ref(found))
        return found

    monkeypatch.setattr(sentences, "softmax", watched)
    for learning, most in ((True, 4), (False, 1)):  # 15 positions, 3 at once; the last one made may still be looked at
        waiting: list[int] = []
        made.clear()
        with torch.set_grad_enabled(learning):
            Tokens(hidden, weight, bias, 3).log_prob(SENTENCES)
        assert max(waiting) == most


# -- rounding --------------------------------------------------------------------------------------------------------


def bfloat16_works() -> bool:
    try:
        one = torch.ones(2, 2, dtype=torch.bfloat16)
        return bool(torch.amp.is_autocast_available("cpu")) and float((one @ one).sum()) == 8
    except RuntimeError:
        return False


needs_bfloat16 = pytest.mark.skipif(not bfloat16_works(), reason="no bfloat16 on this processor")


@needs_bfloat16
def test_under_autocast_logits_and_the_largest_probability_are_rounded_and_sums_are_not() -> None:
    """The result is that of bfloat16 logits with the rest in float32, but for max p, which is off by up to 2^-8 of it.

    All tokens of a position share that one error: their differences are those of the logits.
    """
    hidden, weight, bias = pieces(dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = Tokens(hidden, weight, bias, 4).token_log_prob(SENTENCES)
    low = [t.detach().bfloat16() for t in (hidden, weight, bias)]
    logits = torch.nn.functional.linear(*low).float()
    expected = torch.log_softmax(logits, -1).gather(-1, SENTENCES.unsqueeze(-1)).squeeze(-1)
    expected = torch.where(spoken(SENTENCES), expected, 0.0)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.detach(), expected, rtol=0, atol=1.01 * 2**-8)
    other = torch.where((SENTENCES == EOS) | ~spoken(SENTENCES), SENTENCES, 2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        apart = found - Tokens(hidden, weight, bias, 4).token_log_prob(other)
    differences = (logits.gather(-1, t.unsqueeze(-1)).squeeze(-1) for t in (SENTENCES, other))
    torch.testing.assert_close(apart.detach(), next(differences) - next(differences), rtol=1e-6, atol=1e-6)
    exact = Tokens(hidden, weight, bias, 4).token_log_prob(SENTENCES)
    assert not torch.equal(found, exact)
    found.sum().backward()  # outside autocast, as it should be
    ours = [t.grad.clone() for t in (hidden, weight, bias)]
    for t in (hidden, weight, bias):
        t.grad = None
    exact.sum().backward()
    for a, t in zip(ours, (hidden, weight, bias), strict=True):
        assert a.dtype == torch.float32
        assert float((a - t.grad).norm() / t.grad.norm()) < 2**-6


@pytest.mark.parametrize(
    "device",
    [
        pytest.param("cpu", marks=needs_bfloat16),
        pytest.param("cuda", marks=pytest.mark.gpu),
    ],
)
def test_what_frequent_tokens_add_up_to_is_not_drowned_by_rounding(device: str) -> None:
    """Where p is right its gradients are small differences of large sums, which must not be rounded to bfloat16."""
    N, V, H = 4096, 500, 16
    hidden, weight = (t.bfloat16().to(device) for t in normals(0, (1, N, H), (V, H)))
    bias = -torch.arange(1.0, V + 1, device=device).log().bfloat16()
    p = torch.nn.functional.linear(hidden, weight / 8, bias).double().softmax(-1)
    tokens = torch.multinomial(p[0].cpu(), 1, generator=torch.Generator().manual_seed(0)).view(1, N).to(device)
    expected = (torch.nn.functional.one_hot(tokens, V) - p).sum((0, 1))
    free = bias.float().requires_grad_()
    with torch.autocast(device, dtype=torch.bfloat16):
        each: Tensor = sentences._TokenLogProb.apply(
            hidden[0], (weight / 8).float(), free, tokens[0], 1000, torch.bfloat16, True
        )
    (found,) = torch.autograd.grad(each.sum(), free)
    assert float((found - expected).norm() / expected.norm()) < 0.005


def test_half_precision_weights_add_up_in_full_precision() -> None:
    """4,096 times the same token: in bfloat16 a sum of ones would stop at 256."""
    hidden = torch.zeros(1, 4096, 2, dtype=torch.bfloat16)
    weight, bias = torch.zeros(8, 2, dtype=torch.bfloat16), torch.zeros(8, dtype=torch.bfloat16, requires_grad=True)
    dist = Tokens(hidden, weight, bias)
    (slope,) = torch.autograd.grad(dist.token_log_prob(torch.full((1, 4096), 5)).sum(), bias)
    assert float(slope[5]) == pytest.approx(4096 * 7 / 8, rel=2**-8)


@needs_bfloat16
def test_states_that_autocast_rounded_meet_full_weights_outside_it() -> None:
    hidden, weight, bias = pieces(dtype=torch.float32)
    low = hidden.detach().bfloat16().requires_grad_()
    log_p = Tokens(low, weight, bias).log_prob(SENTENCES)
    torch.testing.assert_close(log_p, plain(low.float(), weight, bias, SENTENCES), rtol=1e-6, atol=1e-6)
    log_p.sum().backward()
    assert low.grad.dtype == torch.bfloat16
    assert weight.grad.dtype == torch.float32


def test_wide_states_meet_narrow_weights_at_full_width() -> None:
    hidden, weight, bias = pieces()
    narrow = [t.detach().float().requires_grad_() for t in (weight, bias)]
    wide = [t.detach().double().requires_grad_() for t in narrow]
    found = torch.autograd.grad(Tokens(hidden, *narrow, 4).log_prob(SENTENCES).sum(), (hidden, *narrow))
    expected = torch.autograd.grad(plain(hidden, *wide, SENTENCES).sum(), (hidden, *wide))
    torch.testing.assert_close(found[0], expected[0], rtol=1e-12, atol=1e-12)
    for a, b in zip(found[1:], expected[1:], strict=True):
        assert torch.equal(a, b.float())


@needs_bfloat16
def test_an_exact_forward_pass_has_an_exact_backward_pass_wherever_it_is_run() -> None:
    outside, inside = pieces(dtype=torch.float32), pieces(dtype=torch.float32)
    Tokens(*outside).log_prob(SENTENCES).sum().backward()
    log_p = Tokens(*inside).log_prob(SENTENCES).sum()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        log_p.backward()
    assert all(torch.equal(a.grad, b.grad) for a, b in zip(outside, inside, strict=True))


@needs_bfloat16
def test_float64_is_left_alone_by_autocast() -> None:
    hidden, weight, bias = pieces()
    outside = Tokens(hidden, weight, bias).log_prob(SENTENCES)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(Tokens(hidden, weight, bias).log_prob(SENTENCES), outside)


# -- the likelihood --------------------------------------------------------------------------------------------------


def test_the_likelihood_gives_the_distribution_and_its_term() -> None:
    projection = Projection(4, 7)
    initialise(projection, torch.Generator().manual_seed(0))
    data, hidden = TokenData(projection, chunk=4), pieces(dtype=torch.float32)[0]
    dist = data(hidden)
    assert (dist.batch_shape, dist.event_shape, data.discrete, data.width(5)) == ((3,), (5,), True, 20)
    tokens = SENTENCES.float()  # as batches come
    term = nll(Trace({}, {"x": Observed(dist, tokens)}, hard=True))["nll_x"]
    torch.testing.assert_close(-term, plain(hidden, projection.weight, projection.bias, SENTENCES))


def test_the_likelihood_knows_which_numbers_are_words() -> None:
    data = TokenData(Projection(4, 7))
    expected = 'likelihood="tokens" needs whole numbers in [0, 6], got values from'
    assert data.refuses(Span(0, 6, True)) is None
    assert data.refuses(Span(0, 7, True)) == f"{expected} 0 to 7"
    assert data.refuses(Span(-1, 6, True)) == f"{expected} -1 to 6"
