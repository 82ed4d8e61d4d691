"""Reader and writer: padding that does not leak, one step like many, and generation against brute force."""

import itertools
import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from sparsevae.distributions.tokens import Tokens
from sparsevae.networks.dense import initialise
from sparsevae.networks.recurrent import GRU, Embedding, Projection, Reader, Writer, generate, shifted
from sparsevae.sampling.noise import Fresh, Noise, PerRow
from sparsevae.text.ids import EOS, PAD, ends, spoken
from tests.distributions.test_tokens import check_sentences

SENTENCES = torch.tensor([[4, 2, 3, EOS, PAD], [EOS, PAD, PAD, PAD, PAD], [5, 5, 6, 2, EOS]])


def nets(seed: int = 0, V: int = 7, J: int = 3, H: int = 8) -> tuple[Embedding, Reader, Writer, Projection]:
    words = Embedding(V, 5)
    every = words, Reader(words, H), Writer(words, J, H), Projection(H, V)
    initialise(nn.ModuleList(every), torch.Generator().manual_seed(seed))
    return every


def codes(rows: int, J: int = 3, seed: int = 1) -> Tensor:
    return torch.randn(rows, J, generator=torch.Generator().manual_seed(seed))


# -- layers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("vocabulary", "published"), [(20_002, 17_861_794), (19_999, 17_859_487)])
def test_parameters_are_as_many_as_hsvae_s(vocabulary: int, published: int) -> None:
    """DBpedia and Yelp, with 32 dimensions: four heads (mu, sigma, a, b) and no other layer."""
    with torch.device("meta"):
        words = Embedding(vocabulary)
        heads = nn.ModuleList(Projection(512, 32) for _ in range(4))
        model = nn.ModuleList([words, Reader(words), heads, Writer(words, 32), Projection(512, vocabulary)])
    assert sum(p.numel() for p in model.parameters()) == published


def test_construction_and_initialisation_touch_no_random_state_but_their_own() -> None:
    before = torch.get_rng_state()
    a, b, c = (torch.cat([p.flatten() for p in nn.ModuleList(nets(s)).parameters()]) for s in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(a, b)
    assert not torch.equal(a, c)


def test_kernels_follow_lecun_s_distribution() -> None:
    gru, projection, words = GRU(200, 300), Projection(300, 500), Embedding(500, 200)
    initialise(nn.ModuleList([gru, projection, words]), torch.Generator().manual_seed(0))
    for weight, fan in ((gru.weight_ih_l0, 200), (gru.weight_hh_l0, 300), (projection.weight, 300)):
        value = weight.detach() * math.sqrt(fan)
        error = 1 / math.sqrt(value.numel())
        assert abs(float(value.mean())) < 4 * error
        assert abs(float(value.square().mean()) - 1) < 4 * math.sqrt(2) * error
        assert float(value.pow(4).mean()) == pytest.approx(3, abs=0.1)  # normal, not uniform
    for bias in (gru.bias_ih_l0, gru.bias_hh_l0, projection.bias):
        assert not bias.any()
    assert 0.0499 < float(words.weight.detach().abs().max()) <= 0.05


def test_a_gru_is_torch_s_own() -> None:
    ours, theirs = GRU(4, 3), nn.GRU(4, 3, batch_first=True)
    initialise(ours, torch.Generator().manual_seed(0))
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(2, 6, 4, generator=torch.Generator().manual_seed(1))
    assert torch.equal(ours(x)[0], theirs(x)[0])


def test_one_embedding_serves_both_and_learns_from_both() -> None:
    words, reader, writer, _ = nets()
    both = nn.ModuleList([reader, writer])
    assert sum(p is words.weight for p in both.parameters()) == 1
    gradients = []
    for out in (reader(SENTENCES), writer(codes(3), SENTENCES)):
        words.weight.grad = None
        out.sum().backward()
        gradients.append(words.weight.grad)
    assert all(bool(g[EOS].any()) for g in gradients)


# -- reading ---------------------------------------------------------------------------------------------------------


def test_a_state_by_hand() -> None:
    """One unit, one word and EOS: a GRU's equations, the reset gate inside the new value, in plain arithmetic."""
    words = Embedding(3, 1)
    reader = Reader(words, 1)
    initialise(reader, torch.Generator().manual_seed(0))
    with torch.no_grad():
        for p, values in (
            (words.weight, [[9.0], [-0.5], [2.0]]),
            (reader.gru.weight_ih_l0, [[0.3], [-0.2], [0.7]]),  # reset, update, new
            (reader.gru.weight_hh_l0, [[0.5], [0.1], [-0.4]]),
            (reader.gru.bias_ih_l0, [0.1, 0.2, 0.3]),
            (reader.gru.bias_hh_l0, [-0.1, 0.4, 0.6]),
        ):
            p.copy_(torch.tensor(values))

    def sigmoid(v: float) -> float:
        return 1 / (1 + math.exp(-v))

    h = 0.0
    for e in (2.0, -0.5):  # the word, then EOS
        r, u = sigmoid(0.3 * e + 0.1 + 0.5 * h - 0.1), sigmoid(-0.2 * e + 0.2 + 0.1 * h + 0.4)
        new = math.tanh(0.7 * e + 0.3 + r * (-0.4 * h + 0.6))
        h = (1 - u) * new + u * h
    assert reader(torch.tensor([[2, EOS, PAD]])).item() == pytest.approx(h, abs=1e-6)


def test_the_state_is_the_one_at_the_end_of_the_sentence() -> None:
    words, reader, _, _ = nets()
    states = reader(SENTENCES)
    for row, state in zip(SENTENCES, states, strict=True):
        alone = reader.gru(words(row[: int(ends(row)) + 1]).unsqueeze(0))[0][0, -1]
        torch.testing.assert_close(state, alone, rtol=0, atol=1e-6)


@pytest.mark.parametrize("more", [1, 7, 40])
def test_a_wider_padding_changes_no_state(more: int) -> None:
    _, reader, _, _ = nets()
    torch.testing.assert_close(reader(pad(SENTENCES, (0, more))), reader(SENTENCES), rtol=0, atol=1e-6)


def test_padding_gets_no_gradient_while_reading_or_writing() -> None:
    words, reader, writer, projection = nets()
    dist = Tokens(writer(codes(3), SENTENCES), projection.weight, projection.bias)
    (reader(SENTENCES).sum() + dist.log_prob(SENTENCES).sum()).backward()
    assert not words.weight.grad[PAD].any()
    assert bool((words.weight.grad[EOS:] != 0).any(-1).all())


def test_no_position_after_the_end_is_heard() -> None:
    words, reader, _, _ = nets()
    vectors = words(SENTENCES).detach().requires_grad_()
    states, _ = reader.gru(vectors)
    states[torch.arange(3), ends(SENTENCES)].sum().backward()
    assert not vectors.grad[~spoken(SENTENCES)].any()
    assert bool(vectors.grad[spoken(SENTENCES)].any(-1).all())


def test_batches_of_floats_are_read_and_written_as_whole_numbers() -> None:
    _, reader, writer, _ = nets()
    assert torch.equal(reader(SENTENCES.float()), reader(SENTENCES))
    assert torch.equal(writer(codes(3), SENTENCES.float()), writer(codes(3), SENTENCES))


# -- writing ---------------------------------------------------------------------------------------------------------


def test_a_writer_hears_the_end_and_then_the_words_before() -> None:
    assert shifted(SENTENCES).tolist() == [[EOS, 4, 2, 3, EOS], [EOS, EOS, 0, 0, 0], [EOS, 5, 5, 6, 2]]


def test_a_state_does_not_know_the_word_it_foretells() -> None:
    _, _, writer, _ = nets()
    z, other = codes(3), SENTENCES.clone()
    other[:, 2] = 6
    other[2, 2] = 3
    before, after = writer(z, SENTENCES), writer(z, other)
    assert torch.equal(before[:, :3], after[:, :3])
    assert bool((before[:, 3] != after[:, 3]).any(-1).all())


def test_a_code_is_heard_at_every_position() -> None:
    words, _, writer, _ = nets()
    z = codes(3)
    received = writer._inputs(SENTENCES, z)
    assert torch.equal(received[..., :5], words(SENTENCES))
    assert torch.equal(received[..., 5:], z.unsqueeze(1).expand(-1, 5, -1))


def test_step_by_step_is_the_teacher_forced_pass() -> None:
    _, _, writer, _ = nets()
    z, state = codes(3), None
    for t, token in enumerate(shifted(SENTENCES).unbind(-1)):
        hidden, state = writer.step(token, z, state)
        torch.testing.assert_close(hidden, writer(z, SENTENCES)[:, t], rtol=0, atol=1e-6)


# -- generation ------------------------------------------------------------------------------------------------------


def decided(seed: int, J: int = 3) -> tuple[Writer, Projection]:
    """A writer of two words with opinions, which listens to what it said: PAD (almost impossible), EOS, 2 and 3."""
    words, _, writer, projection = nets(seed, V=4, J=J)
    with torch.no_grad():
        words.weight.mul_(40)
        projection.weight.mul_(6)
        projection.bias[PAD] = -60
    return writer, projection


def all_sentences(max_length: int) -> Tensor:
    """Every sentence of words 2 and 3 with at most `max_length` positions."""
    rows = [
        [*s, EOS, *[PAD] * (max_length - n - 1)] for n in range(max_length) for s in itertools.product((2, 3), repeat=n)
    ]
    return torch.tensor(rows)


def scores(writer: Writer, projection: Projection, z: Tensor, tokens: Tensor) -> Tensor:
    """log p of every sentence (S, T) under every code (B, J), (B, S)."""
    B, S = len(z), len(tokens)
    rows = tokens.repeat(B, 1)
    dist = Tokens(writer(z.repeat_interleave(S, 0), rows), projection.weight, projection.bias)
    return dist.log_prob(rows).detach().view(B, S)


@pytest.mark.parametrize("max_length", [1, 2, 5])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_beam_of_full_width_finds_the_likeliest_sentence(seed: int, max_length: int) -> None:
    writer, projection = decided(seed)
    z, every = codes(40), all_sentences(max_length)
    found = generate(writer, projection, z, max_length, "beam", beams=len(every))
    assert torch.equal(found, every[scores(writer, projection, z, every).argmax(-1)])


def test_greedy_misses_what_the_beam_finds() -> None:
    """Otherwise the test above would show nothing."""
    writer, projection = decided(0)
    z, every = codes(40), all_sentences(5)
    log_p = scores(writer, projection, z, every)

    def reached(how: str, **options: int) -> Tensor:
        rows = generate(writer, projection, z, 5, how, **options)
        return log_p.masked_fill((rows.unsqueeze(1) != every).any(-1), -torch.inf).amax(-1)

    greedy, beam = reached("greedy"), reached("beam", beams=32)
    assert bool((beam >= greedy).all())
    assert float((beam > greedy + 0.1).float().mean()) > 0.1


def test_greedy_takes_the_likeliest_word_every_time() -> None:
    writer, projection = decided(1)
    z = codes(20)
    rows = generate(writer, projection, z, 6)
    logits = projection(writer(z, rows))
    free = spoken(rows) & (torch.arange(6) < 5)  # the last position may have been cut
    assert torch.equal(logits.argmax(-1)[free], rows[free])
    assert len(set(ends(rows).tolist())) > 1


def test_one_beam_is_greedy() -> None:
    writer, projection = decided(2)
    z = codes(40)
    assert torch.equal(generate(writer, projection, z, 6, "beam", beams=1), generate(writer, projection, z, 6))


@pytest.mark.parametrize("how", ["greedy", "sample", "beam"])
@pytest.mark.parametrize("max_length", [1, 2, 7])
def test_what_is_generated_is_sentences(how: str, max_length: int) -> None:
    """Though PAD would be the likeliest token of all, were it allowed."""
    writer, projection = decided(0)
    with torch.no_grad():
        projection.bias[PAD] = 30
    rows = generate(writer, projection, codes(30), max_length, how, noise=Fresh(torch.Generator().manual_seed(0)))
    assert rows.shape == (30, max_length)
    assert rows.dtype == torch.int64
    check_sentences(rows, 4)


@pytest.mark.parametrize("how", ["greedy", "sample"])
def test_a_sentence_that_finds_no_end_is_cut(how: str) -> None:
    writer, projection = decided(0)
    with torch.no_grad():
        projection.bias[EOS] = -100
    rows = generate(writer, projection, codes(30), 7, how, noise=Fresh(torch.Generator().manual_seed(0)))
    check_sentences(rows, 4)
    assert ends(rows).tolist() == [6] * 30


def drawn(writer: Writer, projection: Projection, z: Tensor, noise: Noise, **options: float) -> Tensor:
    return generate(writer, projection, z, 3, "sample", noise=noise, **options)


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_samples_follow_the_model_s_distribution(temperature: float) -> None:
    """Sentences of at most 3 positions; a cut one has the probability of its beginning. Logits over the temperature."""
    n, every = 20_000, all_sentences(3)
    writer, projection = decided(3)
    z = codes(1)
    rows = drawn(writer, projection, z.expand(n, -1), Fresh(torch.Generator().manual_seed(0)), temperature=temperature)
    dist = Tokens(
        writer(z.expand(len(every), -1), every), projection.weight / temperature, projection.bias / temperature
    )
    p = dist.token_log_prob(every)[:, :-1].sum(-1).exp().detach()  # without the last position, which is certain
    share = (rows.unsqueeze(1) == every).all(-1).float().mean(0)
    assert float(p.sum()) == pytest.approx(1, abs=1e-5)
    assert float(p.max()) < 0.9
    assert bool(((share - p).abs() < 4 * (p * (1 - p) / n).sqrt() + 1e-6).all())


def test_samples_are_a_function_of_their_noise() -> None:
    writer, projection = decided(0)
    z, before = codes(50), torch.get_rng_state()
    a, b, c = (drawn(writer, projection, z, Fresh(torch.Generator().manual_seed(s)), temperature=2) for s in (0, 0, 1))
    assert torch.equal(a, b)
    assert not torch.equal(a, c)
    assert torch.equal(torch.get_rng_state(), before)


def test_with_noise_per_row_no_neighbour_matters() -> None:
    writer, projection = decided(0)
    z, keys = codes(50), torch.arange(50) * 7919
    whole = drawn(writer, projection, z, PerRow(keys, 3), temperature=2)
    some = torch.tensor([40, 3, 17])
    assert torch.equal(drawn(writer, projection, z[some], PerRow(keys[some], 3), temperature=2), whole[some])


def test_a_cold_sample_is_greedy() -> None:
    writer, projection = decided(1)
    z, noise = codes(40), Fresh(torch.Generator().manual_seed(0))
    rows = generate(writer, projection, z, 6, "sample", temperature=1e-6, noise=noise)
    assert torch.equal(rows, generate(writer, projection, z, 6))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"how": "best"}, "greedy, sample, beam; got 'best'"),
        ({"max_length": 0}, "at least 1, the position of EOS, got 0"),
        ({"how": "sample"}, "needs noise"),
        ({"how": "sample", "temperature": 0.0, "noise": Fresh(torch.Generator())}, 'its limit at 0 is how="greedy"'),
        ({"how": "beam", "beams": 0}, "beams must be at least 1, got 0"),
    ],
)
def test_what_cannot_be_generated_says_why(options: dict[str, object], message: str) -> None:
    writer, projection = decided(0)
    with pytest.raises(ValueError, match=message):
        generate(writer, projection, codes(2), **{"max_length": 4, **options})


# -- together --------------------------------------------------------------------------------------------------------


def test_a_few_sentences_can_be_learned_by_heart() -> None:
    """Reader, code and writer, without noise: the likeliest sentence of each code becomes the one that was read."""
    _, reader, writer, projection = nets(V=7, J=4, H=24)
    head = Projection(24, 4)
    initialise(head, torch.Generator().manual_seed(5))
    model = nn.ModuleList([reader, head, writer, projection])
    optimiser = torch.optim.Adam(model.parameters(), 0.02)
    for _ in range(150):
        dist = Tokens(writer(head(reader(SENTENCES)), SENTENCES), projection.weight, projection.bias, chunk=4)
        loss = -dist.log_prob(SENTENCES).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert loss.item() < 0.1
    with torch.no_grad():
        assert torch.equal(generate(writer, projection, head(reader(SENTENCES)), 5, "beam"), SENTENCES)


def test_a_gru_under_autocast_runs_in_the_type_that_was_asked_for() -> None:
    gru = GRU(3, 4)
    initialise(gru, torch.Generator().manual_seed(0))
    x = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(1))
    plain = gru(x)[0]
    with torch.autocast("cpu", torch.bfloat16):
        states, last = gru(x)
    assert states.dtype == last.dtype == torch.bfloat16
    assert 0 < float((states.float() - plain).detach().abs().max()) < 0.01
    by_plain, by_rounded = (
        torch.autograd.grad(s.float().square().sum(), list(gru.parameters())) for s in (plain, states)
    )
    for exact, rounded in zip(by_plain, by_rounded, strict=True):  # the weights' own type, one gradient for each
        assert rounded.dtype == torch.float32
        assert float((exact - rounded).norm() / exact.norm()) < 0.02
