"""Counts: distribution, marginals, mode, sets and KLs of the multinomial, by enumeration, fractions and simulation."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import scipy.stats
import torch
from torch import Tensor
from torch.distributions import Bernoulli, Categorical, kl_divergence

from sparsevae.distributions.counts import Counts
from sparsevae.distributions.gaussian import normal
from sparsevae.distributions.kl import closed_form, divergence, unit_divergence
from sparsevae.distributions.spike_slab import logit
from sparsevae.latent.bounds import log_weights
from sparsevae.latent.model import Observed, Site, Trace
from sparsevae.latent.objective import free_bits, kl
from sparsevae.sampling.draw import Draw
from sparsevae.sampling.noise import Fresh, PerRow

INF = math.inf


def hard(seed: int = 0) -> Draw:
    return Draw(Fresh(torch.Generator().manual_seed(seed)), hard=True)


def dist(seed: int, K: int, cap: int, spread: float = 1.5, **options: object) -> Counts:
    g = torch.Generator().manual_seed(seed)
    gate, features = (torch.randn(n, generator=g, dtype=torch.float64) for n in (1, K))
    return Counts(gate, spread * features, cap, **options)


def codes(K: int, cap: int) -> Tensor:
    """Every vector of K counts with a sum of at most `cap`."""
    every = [c for c in itertools.product(range(cap + 1), repeat=K) if sum(c) <= cap]
    return torch.tensor(every, dtype=torch.float64)


def subsets(K: int) -> Tensor:
    return torch.tensor(list(itertools.product((0, 1), repeat=K)))


SIZES = [(1, 1), (1, 6), (2, 3), (3, 5), (4, 4), (6, 2)]

# -- the distribution ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("K", "cap"), SIZES)
def test_probabilities_are_the_multinomial_s_and_sum_to_one(K: int, cap: int) -> None:
    q, z = dist(0, K, cap), codes(K, cap)
    log_q = q.log_prob(z)
    assert float(log_q.exp().sum()) == pytest.approx(1, abs=1e-12)
    full = np.concatenate([z.numpy(), cap - z.sum(-1, keepdim=True).numpy()], -1)
    p = q.categories().exp().numpy()
    np.testing.assert_allclose(log_q, scipy.stats.multinomial(cap, p / p.sum()).logpmf(full), rtol=1e-9, atol=1e-9)


def test_the_sum_of_gated_features_has_this_distribution() -> None:
    """Erratum 14: omega_l ~ Bernoulli(lambda), c_l ~ Cat(pi), z = sum_l omega_l e_{c_l}, by numpy alone."""
    K, cap, n = 3, 4, 200_000
    q, rng = dist(1, K, cap), np.random.default_rng(0)
    on = rng.random((n, cap)) < float(torch.sigmoid(q.gate))
    pi = torch.softmax(q.features, -1).numpy()
    z = ((rng.choice(K, (n, cap), p=pi / pi.sum())[..., None] == np.arange(K)) & on[..., None]).sum(1)
    every = codes(K, cap)
    place = {tuple(c): i for i, c in enumerate(every.int().tolist())}
    seen = np.bincount([place[tuple(row)] for row in z.tolist()], minlength=len(every))
    wanted = q.log_prob(every).exp().numpy()
    assert wanted.min() * n > 5
    assert scipy.stats.chisquare(seen, n * wanted / wanted.sum()).pvalue > 1e-3


def test_a_value_off_the_support_has_no_probability() -> None:
    q = dist(0, 3, 2)
    bad = torch.tensor([[1, 1, 1], [-1, 0, 0], [0.5, 0.5, 0], [3, 0, 0], [math.nan, 0, 0], [INF, 0, 0], [3, -1, 0]])
    assert q.log_prob(bad.double()).tolist() == [-INF] * len(bad)
    assert float(q.log_prob(torch.tensor([1.0, 0.0, 1.0]))) > -INF


@pytest.mark.parametrize(("K", "cap"), SIZES)
def test_marginals_are_those_of_enumeration(K: int, cap: int) -> None:
    q, z = dist(2, K, cap), codes(K, cap)
    w = q.log_prob(z).exp().unsqueeze(-1)
    mean = (w * z).sum(0)
    assert torch.allclose(q.mean, mean, rtol=1e-10)
    assert torch.allclose(q.variance, (w * (z - mean).square()).sum(0), rtol=1e-9)
    assert torch.allclose(q.p_on, (w * (z > 0)).sum(0), rtol=1e-10)
    assert float(q.expected) == pytest.approx(float((w.squeeze(-1) * (z > 0).sum(-1)).sum()), rel=1e-10)


def test_a_draw_of_a_distribution_that_is_not_finite_is_no_error() -> None:
    """A training that has lost its way finds so by its loss, and goes back."""
    q = Counts(torch.tensor([0.0, math.nan]), torch.tensor([[0.0, 1.0, 2.0], [math.nan] * 3]), 2)
    assert q.tally(torch.full((2, 2), 0.5)).shape == (2, 3)


def test_collisions_are_as_frequent_as_erratum_11_says() -> None:
    """K = 200, L0 = 40, lambda = .5, even pi: in the mean 20 draws are on, but 19.05 features; P(a repeat) = .62."""
    q, n = Counts(torch.zeros(1), torch.zeros(200), 40), 20_000
    assert float(q.mean.sum()) == pytest.approx(20, rel=1e-6)
    assert float(q.expected) == pytest.approx(200 * (1 - 0.9975**40), rel=1e-5)
    assert math.floor(100 * float(q.expected)) == 1905
    unlike = np.cumprod(1 - np.arange(40) / 200)  # k draws that are all different: k = 1, 2, ...
    repeat = 1 - scipy.stats.binom(40, 0.5).pmf(range(41)) @ np.concatenate([[1.0], unlike])
    assert repeat == pytest.approx(0.62, abs=0.005)
    seen = int((hard()(q.expand((n,))).max(-1).values > 1).sum())
    assert scipy.stats.binomtest(seen, n, repeat).pvalue > 1e-3


def test_small_probabilities_keep_their_digits_in_single_precision() -> None:
    """p = 1e-10: 1 - (1 - p)^L0 in float32 would be 0. At p = 1, P(z_k >= 1) is 1 and its gradient is finite."""
    q = Counts(torch.tensor([logit(1e-10)]), torch.zeros(1), 40)
    assert float(q.p_on) == pytest.approx(4e-9, rel=1e-5)
    gate, features = torch.tensor([40.0]).requires_grad_(), torch.tensor([60.0, 0.0]).requires_grad_()
    sure = Counts(gate, features, 3)
    assert sure.p_on[0] == 1
    sure.p_on.sum().backward()
    assert bool(torch.isfinite(gate.grad).all())
    assert bool(torch.isfinite(features.grad).all())


def test_log_probabilities_keep_five_digits_in_single_precision() -> None:
    q = dist(3, 200, 40, spread=3.0)
    z = hard()(q.expand((200,)))
    single = Counts(q.gate.float(), q.features.float(), 40)
    assert torch.allclose(single.log_prob(z.float()).double(), q.log_prob(z), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("shape", [(5,), (5, 1)])
def test_a_gate_may_come_with_or_without_its_last_axis(shape: tuple[int, ...]) -> None:
    gate = torch.linspace(-1, 1, 5)
    features = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    q = Counts(gate.reshape(shape), features, 4)
    assert q.batch_shape == (5,)
    assert torch.allclose(q.mean.sum(-1), 4 * torch.sigmoid(gate))
    assert torch.allclose(q.categories().logsumexp(-1), torch.zeros(5), atol=1e-6)
    one = Counts(torch.tensor(0.5), features, 4)
    assert torch.allclose(one.mean.sum(-1), 4 * torch.sigmoid(torch.tensor(0.5)).expand(5))


# -- the mode --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("K", "cap"), SIZES)
def test_no_code_is_likelier_than_the_mode(K: int, cap: int) -> None:
    g = torch.Generator().manual_seed(5)
    gate, features = 2 * torch.randn(200, 1, generator=g).double(), 2 * torch.randn(200, K, generator=g).double()
    q = Counts(gate, features, cap)
    best = q.log_prob(codes(K, cap).unsqueeze(1)).max(0).values
    assert q.mode.shape == (200, K)
    assert torch.allclose(q.log_prob(q.mode), best, rtol=0, atol=1e-11)


def test_of_equally_likely_codes_the_mode_takes_off_first_then_the_first_feature() -> None:
    """lambda = 1/2 and one feature: its two codes are equally likely. Four equal categories take turns."""
    assert Counts(torch.zeros(1), torch.zeros(1), 1).mode.tolist() == [0.0]
    even = torch.tensor([math.log(3.0)])  # lambda = 3/4: off and three features with 1/4 each
    for cap, wanted in ((1, [0, 0, 0]), (2, [1, 0, 0]), (3, [1, 1, 0]), (4, [1, 1, 1]), (6, [2, 1, 1])):
        q = Counts(even, torch.zeros(3), cap)
        # The categories' logarithms differ in the last place, which would decide; equal ones are put in their place.
        q._categories = torch.full((4,), -math.log(4.0))
        assert q.mode.tolist() == wanted, cap
        assert float(q.log_prob(q.mode)) == pytest.approx(float(q.log_prob(codes(3, cap).float()).max()), abs=1e-6)


def test_the_mode_is_no_threshold_of_marginals() -> None:
    """lambda .6 over 40 equal features of 200: no marginal reaches 1/2, and yet the mode has 14 features in it."""
    features = torch.full((200,), -INF)
    features[:40] = 0.0
    q = Counts(torch.tensor([logit(0.6)]), features, 40)
    assert float(q.p_on.max()) < 0.5
    assert float(q.mode.sum()) == 14  # "off" takes 26 of 40 draws: .4/26 > .6/40 > .4/27; no feature comes twice
    assert set(q.mode.tolist()) == {0.0, 1.0}


# -- sets ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("K", "cap"), SIZES)
def test_set_probabilities_are_those_of_enumeration_and_sum_to_one(K: int, cap: int) -> None:
    q, z = dist(3, K, cap), codes(K, cap)
    w, sets = q.log_prob(z).exp(), subsets(K)
    wanted = torch.stack([w[((z > 0) == (s > 0)).all(-1)].sum() for s in sets])
    assert torch.allclose(q.set_log_prob(sets).exp(), wanted, rtol=1e-10, atol=0)
    assert float(q.set_log_prob(sets).exp().sum()) == pytest.approx(1, abs=1e-12)


def inclusion_exclusion(off: Fraction, p: list[Fraction], cap: int) -> Fraction:
    """sum over T of (-1)^(|Y| - |T|) (1 - lambda + lambda pi(T))^L0, in exact arithmetic."""
    total = Fraction(0)
    for size in range(len(p) + 1):
        for T in itertools.combinations(p, size):
            total += (-1) ** (len(p) - size) * (off + sum(T)) ** cap
    return total


@pytest.mark.parametrize("cap", [7, 12, 40])
def test_set_probabilities_are_those_of_inclusion_and_exclusion_in_exact_fractions(cap: int) -> None:
    """Seven features of which some are rare: the sum is then far below the rounding error of its largest term."""
    p = [Fraction(1, 10**k) for k in (1, 2, 3, 4, 6, 8, 9)]
    rest = 1 - sum(p)
    off, other = rest / 3, rest * 2 / 3
    pi = torch.tensor([math.log(v) for v in (*p, other)], dtype=torch.float64)
    q = Counts(torch.tensor([math.log((1 - off) / off)], dtype=torch.float64), pi, cap)
    present = torch.tensor([1] * 7 + [0])
    exact = inclusion_exclusion(off, p, cap)
    assert 0 < exact < 1e-17
    got = float(q.set_log_prob(present))
    assert got == pytest.approx(math.log(exact.numerator) - math.log(exact.denominator), rel=1e-12)


@pytest.mark.parametrize(("m", "cap"), [(0, 60), (1, 60), (30, 60), (59, 60), (60, 60), (150, 200), (300, 300)])
def test_large_sets_are_exact(m: int, cap: int) -> None:
    """m equal features: sum_j (-1)^(m-j) C(m, j) (off + j p)^L0, in exact fractions; no set is too large for ours."""
    off, p = Fraction(1, 4), Fraction(1, 1000)
    exact = sum(((-1) ** (m - j) * math.comb(m, j) * (off + j * p) ** cap for j in range(m + 1)), Fraction(0))
    features = torch.full((m + 1,), math.log(p), dtype=torch.float64)
    features[-1] = math.log(1 - off - m * p)
    q = Counts(torch.tensor([math.log(3.0)], dtype=torch.float64), features, cap)
    present = torch.ones(m + 1)
    present[-1] = 0
    wanted = math.log(exact.numerator) - math.log(exact.denominator)
    assert float(q.set_log_prob(present)) == pytest.approx(wanted, rel=1e-11)


def test_sets_are_seen_as_often_as_they_should_be() -> None:
    K, cap, n = 4, 6, 100_000
    q, sets = dist(4, K, cap), subsets(K)
    seen = (hard(2)(q.expand((n,))) > 0).long() @ (2 ** torch.arange(K - 1, -1, -1))
    wanted = q.set_log_prob(sets).exp().numpy()
    assert wanted.min() * n > 5
    assert scipy.stats.chisquare(np.bincount(seen, minlength=2**K), n * wanted / wanted.sum()).pvalue > 1e-3


def test_impossible_sets_have_no_probability_and_no_gradient() -> None:
    gate, features = torch.tensor([INF]), torch.tensor([1.0, 0.0, -INF, 2.0]).requires_grad_()
    q = Counts(gate, features, 2)  # never off, and the third feature never drawn
    sets = torch.tensor([[0, 0, 0, 0], [1, 1, 0, 1], [1, 0, 1, 0], [1, 0, 0, 0], [1, 1, 0, 0]])
    got = q.set_log_prob(sets)
    pi = torch.softmax(features.detach(), -1)
    wanted = [-INF, -INF, -INF, float(2 * pi[0].log()), float((2 * pi[0] * pi[1]).log())]
    assert got.tolist() == pytest.approx(wanted, abs=1e-6)
    got[torch.isfinite(got)].sum().backward()
    assert bool(torch.isfinite(features.grad).all())


def test_the_gradient_of_set_probabilities_is_that_of_finite_differences() -> None:
    g = torch.Generator().manual_seed(0)
    gate, features = (torch.randn(3, n, generator=g, dtype=torch.float64).requires_grad_() for n in (1, 5))
    present = torch.tensor([[1, 0, 1, 1, 0], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1]])
    assert torch.autograd.gradcheck(lambda a, b: Counts(a, b, 5).set_log_prob(present), (gate, features))
    with pytest.raises(ValueError, match=r"a set of 5 features must have the shape \(\.\.\., 5\), got \(3, 4\)"):
        Counts(gate, features, 5).set_log_prob(present[:, :4])


# -- draws -----------------------------------------------------------------------------------------------------------


def test_hard_draws_follow_the_distribution() -> None:
    K, cap, n = 3, 3, 200_000
    q, every = dist(6, K, cap, spread=0.5), codes(K, cap)
    keys = torch.randint(-(2**62), 2**62, (n,), generator=torch.Generator().manual_seed(0))
    wanted = q.log_prob(every).exp().numpy()
    for draw in (hard(), Draw(PerRow(keys, 0), hard=True)):
        z = draw(q.expand((n,)))
        base = (cap + 1) ** torch.arange(K)
        place = {int(k): i for i, k in enumerate((every.long() @ base).tolist())}
        seen = np.bincount([place[int(k)] for k in (z.long() @ base).tolist()], minlength=len(every))
        assert wanted.min() * n > 5
        assert scipy.stats.chisquare(seen, n * wanted / wanted.sum()).pvalue > 1e-3


@pytest.mark.parametrize("gate", [-3.0, 0.0, 3.0, INF])
def test_a_million_draws_never_exceed_the_cap(gate: float) -> None:
    q, draw, most = Counts(torch.tensor([gate]), torch.linspace(-3, 3, 10), 4), hard(1), 0.0
    for _ in range(10):
        z = draw(q.expand((100_000,)))
        drawn = z.sum(-1)
        most = max(most, float(drawn.max()))
        assert float(z.min()) == 0
        assert bool((z == z.floor()).all())
        assert float((z > 0).sum(-1).max()) <= 4
        assert gate < INF or float(drawn.min()) == 4
    assert most == 4


def test_what_has_no_probability_is_never_drawn() -> None:
    """Noise at both ends of what a source can give, and a million draws more; first and last places included."""
    features = torch.tensor([-INF, 0.0, -INF, -INF, 3.0, -INF])
    q = Counts(torch.tensor([INF]), features, 3)
    ends = torch.tensor([[2.0**-25, 0.5, 1 - 2.0**-24], [1.0, 1.0, 1.0]])
    for z in (q.tally(ends), q.tally(ends.double()), hard()(q.expand((300_000,)))):
        assert float(z[:, [0, 2, 3, 5]].abs().max()) == 0
        assert bool((z.sum(-1) == 3).all())
        assert bool(torch.isfinite(q.log_prob(z.float())).all())
    never = Counts(torch.tensor([-INF]), torch.zeros(4), 3)
    assert float(hard()(never.expand((1000,))).abs().max()) == 0
    assert float(never.log_prob(torch.zeros(4))) == 0


def test_draws_have_the_moments_that_are_promised() -> None:
    q, n = dist(7, 30, 12), 100_000
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        z = q.sample(torch.Size([n]))
    for moment, wanted in ((z, q.mean), ((z - q.mean).square(), q.variance), ((z > 0).double(), q.p_on)):
        assert bool(((moment.mean(0) - wanted).abs() < 5 * moment.std(0) / n**0.5 + 1e-12).all())


def test_a_relaxed_draw_is_the_estimator_s() -> None:
    asked = []

    def estimator(q: Counts, noise: object) -> Tensor:
        asked.append(q)
        return q.mean

    q = dist(0, 3, 2, estimator=estimator)
    draw = Draw(Fresh(torch.Generator()), hard=False)
    assert torch.equal(draw(q), q.mean)
    assert asked == [q]
    assert torch.equal(draw(q.expand((4,))), q.mean.expand(4, 3))
    with pytest.raises(ValueError, match=r"Counts has no estimator.*hard=True"):
        draw(dist(0, 3, 2))


# -- divergences -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("K", "cap"), SIZES)
def test_the_tight_divergence_is_the_kl_of_the_counts(K: int, cap: int) -> None:
    q, p, z = dist(8, K, cap), dist(9, K, cap), codes(K, cap)
    log_q, log_p = q.log_prob(z), p.log_prob(z)
    assert float(divergence(q, p)) == pytest.approx(float((log_q.exp() * (log_q - log_p)).sum()), rel=1e-9, abs=1e-12)
    assert float(divergence(q, q)) == 0
    assert closed_form(q, p)


def test_the_paper_s_divergence_is_that_of_gates_and_features_together() -> None:
    """By enumeration of every (omega_1, c_1, ..., omega_L, c_L); z is a function of them, so its own KL is smaller."""
    K, cap = 3, 3
    q, p = dist(10, K, cap), dist(11, K, cap, kl="paper")

    def joint(d: Counts) -> Tensor:
        gates = torch.stack((torch.sigmoid(-d.gate), torch.sigmoid(d.gate))) * torch.softmax(d.features, -1)
        one = gates.flatten()
        return torch.stack([torch.stack(c).prod() for c in itertools.product(one, repeat=cap)])

    a, b = joint(q), joint(p)
    assert float(a.sum()) == pytest.approx(1)
    paper = float(divergence(q, p))
    assert paper == pytest.approx(float((a * (a / b).log()).sum()), rel=1e-10)
    assert paper > float(divergence(q, dist(11, K, cap))) + 0.1
    assert float(divergence(dist(11, K, cap), p)) == pytest.approx(0, abs=1e-12)


def test_divergences_by_hand() -> None:
    """L0 = 40, lambda = lambda0 = .5, pi even over 20 of 200: 40 log 10 = 92.1 nats by the paper, or half of that."""
    features = torch.full((200,), -INF, dtype=torch.float64)
    features[:20] = 0.0
    half, even = torch.zeros(1, dtype=torch.float64), torch.zeros(200, dtype=torch.float64)
    q = Counts(half, features, 40)
    assert float(divergence(q, Counts(half, even, 40))) == pytest.approx(20 * math.log(10), rel=1e-12)
    assert float(divergence(q, Counts(half, even, 40, kl="paper"))) == pytest.approx(40 * math.log(10), rel=1e-12)
    assert float(divergence(Counts(half, even, 40), q)) == INF  # q never takes what the other may


@pytest.mark.parametrize("seed", range(4))
def test_divergences_are_l0_times_torch_s(seed: int) -> None:
    q, p = dist(20 + seed, 7, 5), dist(30 + seed, 7, 5)
    gates = kl_divergence(Bernoulli(logits=q.gate), Bernoulli(logits=p.gate)).squeeze(-1)
    features = kl_divergence(Categorical(logits=q.features), Categorical(logits=p.features))
    tight, paper = (5 * (gates + w * features) for w in (torch.sigmoid(q.gate).squeeze(-1), 1.0))
    assert torch.allclose(divergence(q, p), tight, rtol=1e-10)
    assert torch.allclose(divergence(q, dist(30 + seed, 7, 5, kl="paper")), paper, rtol=1e-10)


def test_the_divergence_is_the_mean_log_ratio_of_draws() -> None:
    q, p, n = dist(12, 50, 8), dist(13, 50, 8), 100_000
    z = hard()(q.expand((n,)))
    ratio = q.log_prob(z) - p.log_prob(z)
    assert abs(float(ratio.mean() - divergence(q, p))) < 4 * float(ratio.std()) / n**0.5


def test_bounds_use_the_counts_own_distribution_whatever_the_divergence_charges() -> None:
    """log p(z) - log q(z) of a hard trace has the mean -KL (tight), also where training charges the paper's."""
    n = 50_000
    q, p = dist(14, 6, 4).expand((n,)), dist(15, 6, 4, kl="paper")
    z = hard()(q)
    x = torch.zeros(n, 1, dtype=torch.float64)
    trace = Trace({"z": Site(q, p, z)}, {"x": Observed(normal(x, x + 1), x)}, hard=True)
    lw = log_weights(trace) + 0.5 * math.log(2 * math.pi)
    tight, paper = (float(divergence(dist(14, 6, 4), d)) for d in (dist(15, 6, 4), p))
    assert torch.equal(kl(trace)["kl_z"], torch.full((n,), paper, dtype=torch.float64))
    assert float(lw.mean()) == pytest.approx(-tight, abs=4 * float(lw.std()) / n**0.5)
    assert paper > tight + 0.1


def test_a_code_of_counts_has_no_divergence_per_unit() -> None:
    q = dist(0, 3, 2)
    message = r"KL\(Counts \|\| Counts\) belongs to the whole code.*free_bits, audit, prune.*divergence and the term kl"
    with pytest.raises(TypeError, match=message):
        unit_divergence(q, q)
    trace = Trace({"z": Site(q, q, q.mean)}, {}, hard=True)
    with pytest.raises(TypeError, match=message):
        free_bits(0.1)(trace)
    assert kl(trace)["kl_z"].shape == ()


def test_certain_gates_and_features_have_finite_divergences_and_gradients() -> None:
    for gate, logits in (
        (INF, [0.0, 1.0, -INF]),
        (-INF, [0.0, 1.0, 2.0]),
        (60.0, [90.0, 0.0, 0.0]),
        (-60.0, [0.0] * 3),
    ):
        a, f = torch.tensor([gate]).requires_grad_(), torch.tensor(logits).requires_grad_()
        for charge in ("tight", "paper"):
            value = divergence(Counts(a, f, 4), Counts(torch.zeros(1), torch.zeros(3), 4, kl=charge))
            gradients = torch.autograd.grad(value, (a, f))
            assert bool(torch.isfinite(value))
            assert float(value.detach()) >= 0
            assert all(bool(torch.isfinite(g).all()) for g in gradients), (gate, logits, charge)


def test_gradients_are_those_of_finite_differences() -> None:
    g = torch.Generator().manual_seed(0)
    a, b, a0, b0 = (torch.randn(2, n, generator=g, dtype=torch.float64).requires_grad_() for n in (1, 4, 1, 4))
    z = torch.tensor([[1.0, 0.0, 2.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
    for f in (
        lambda a, b: Counts(a, b, 3).log_prob(z.double()),
        lambda a, b: Counts(a, b, 3).mean,
        lambda a, b: Counts(a, b, 3).variance,
        lambda a, b: Counts(a, b, 3).p_on,
    ):
        assert torch.autograd.gradcheck(f, (a, b))
    for charge in ("tight", "paper"):

        def both(a: Tensor, b: Tensor, a0: Tensor, b0: Tensor, charge: str = charge) -> Tensor:
            return divergence(Counts(a, b, 3), Counts(a0, b0, 3, kl=charge))

        assert torch.autograd.gradcheck(both, (a, b, a0, b0))


# -- shapes and refusals ---------------------------------------------------------------------------------------------


def test_members_are_kept_apart() -> None:
    """Two leading dimensions; priors shared by all, or one for each member; noise shared by the members of a row."""
    g = torch.Generator().manual_seed(3)
    gate, features = (torch.randn(2, 5, n, generator=g, dtype=torch.float64) for n in (1, 4))
    gate0, features0 = (torch.randn(2, 1, n, generator=g, dtype=torch.float64) for n in (1, 4))
    q = Counts(gate, features, 3)
    u = torch.rand(5, 3, generator=g, dtype=torch.float64).clamp_min(1e-9)
    z, present = q.tally(u), torch.randint(0, 2, (2, 5, 4), generator=g)
    assert z.shape == (2, 5, 4)
    assert Draw(PerRow(torch.arange(5), 0), hard=True)(q).shape == (2, 5, 4)
    for prior in (Counts(gate0, features0, 3), Counts(gate0[0, 0], features0[0, 0], 3)):
        together = divergence(q, prior)
        assert together.shape == (2, 5)
        for m, b in itertools.product(range(2), range(5)):
            one = Counts(gate[m, b], features[m, b], 3)
            at = (m, 0) if prior.features.dim() > 1 else ()
            p = Counts(prior.gate[at], prior.features[at], 3)
            assert float(together[m, b]) == pytest.approx(float(divergence(one, p)), rel=1e-12)
            assert float(prior.log_prob(z)[m, b]) == pytest.approx(float(p.log_prob(z[m, b])), rel=1e-12)
            assert torch.equal(one.tally(u[b]), z[m, b])
            assert torch.equal(one.mode, q.mode[m, b])
            for name in ("mean", "variance", "p_on", "expected"):
                assert torch.allclose(getattr(one, name), getattr(q, name)[m, b], rtol=1e-12), name
            assert torch.allclose(one.set_log_prob(present[m, b]), q.set_log_prob(present)[m, b], rtol=1e-12)


def test_an_expanded_distribution_is_the_same_distribution_for_more_rows() -> None:
    q = dist(0, 4, 3)
    wide = q.expand((2, 5))
    assert (wide.batch_shape, wide.event_shape) == ((2, 5), (4,))
    for name in ("mean", "variance", "p_on", "mode"):
        assert torch.equal(getattr(wide, name), getattr(q, name).expand(2, 5, 4)), name
    z = hard()(wide)
    assert z.shape == (2, 5, 4)
    assert z.dtype == torch.float64
    assert torch.equal(wide.log_prob(z), q.log_prob(z))
    assert torch.equal(divergence(wide, dist(1, 4, 3)), divergence(q, dist(1, 4, 3)).expand(2, 5))


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match=r"cap must be an integer of at least 1, .*, got 0"):
        Counts(torch.zeros(1), torch.zeros(3), 0)
    with pytest.raises(ValueError, match=r"'tight' .* or 'paper' .*, got 'loose'"):
        Counts(torch.zeros(1), torch.zeros(3), 2, kl="loose")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"must be \(\.\.\., 1\), got \(4, 3\)"):
        Counts(torch.zeros(4, 3), torch.zeros(4, 3), 2)
    with pytest.raises(ValueError, match="q has cap=2, p has cap=3"):
        divergence(dist(0, 3, 2), dist(0, 3, 3))
