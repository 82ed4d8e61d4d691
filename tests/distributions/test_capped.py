"""Capped gates: distribution, marginals, mode, draws and KLs, against enumeration, a plain recursion and simulation."""

import itertools
import math
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import scipy.stats
import torch
from torch import Tensor
from torch.distributions import Bernoulli, kl_divergence

from sparsevae.distributions.capped import Capped
from sparsevae.distributions.kl import closed_form, divergence, unit_divergence
from sparsevae.distributions.spike_slab import bernoulli_kl
from sparsevae.latent.model import Site, Trace
from sparsevae.latent.objective import free_bits, kl
from sparsevae.sampling.draw import Draw
from sparsevae.sampling.noise import Fresh, PerRow

INF = math.inf


def hard(seed: int = 0) -> Draw:
    return Draw(Fresh(torch.Generator().manual_seed(seed)), hard=True)


def uniforms(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).clamp_min(1e-12)


def codes(K: int, cap: int) -> Tensor:
    every = [b for b in itertools.product((0.0, 1.0), repeat=K) if sum(b) <= cap]
    return torch.tensor(every, dtype=torch.float64)


def normals(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def logits_of_every_kind(K: int) -> Iterator[tuple[str, Tensor]]:
    """(rows, K), in numbers that float32 holds: sparse and dense, equal and spread, and as far out as 50."""
    z, u = normals(5, K, seed=K), torch.rand((5, K), generator=torch.Generator().manual_seed(K), dtype=torch.float64)
    kinds = {
        "plain": z,
        "sparse": z - 4,
        "dense": z + 4,
        "wide": 10 * z,
        "equal": torch.zeros_like(z),
        "all at 50": torch.full_like(z, 50.0),
        "near 50": 50 + 0.1 * z,
        "all at -50": torch.full_like(z, -50.0),
        "from -50 to 50": 100 * u - 50,
        "50 or -50": torch.where(u < 0.3, 50.0, -50.0).double(),
        "some at 50": torch.where(u < 2 / K, 50.0, z),
        "steps": torch.tensor([50.0, 40.0, 30.0, 3.0], dtype=torch.float64)[(4 * u).long()],
    }
    for name, a in kinds.items():
        yield name, a.float().double()


SIZES = [(1, 1), (2, 1), (3, 2), (5, 4), (6, 2), (8, 3), (9, 8), (4, 4), (3, 7)]

# -- the distribution by enumeration ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("K", "cap"), SIZES)
def test_the_distribution_and_all_that_follows_from_it_are_those_of_enumeration(K: int, cap: int) -> None:
    b, a0 = codes(K, cap), normals(K, seed=1)
    for name, logits in logits_of_every_kind(K):
        for a in logits:
            score = b @ a
            log_z, log_q, log_p = torch.logsumexp(score, 0), torch.log_softmax(score, 0), torch.log_softmax(b @ a0, 0)
            w, q = log_q.exp(), Capped(a, cap)
            mean = w @ b
            close = {"rtol": 1e-10, "atol": 1e-12}
            assert float(q.log_normaliser) == pytest.approx(float(log_z), rel=1e-13, abs=1e-13), name
            assert torch.allclose(q.log_prob(b), log_q, **close), name
            assert float(q.log_prob(b).exp().sum()) == pytest.approx(1, abs=1e-11), name
            assert torch.allclose(q.mean, mean, rtol=1e-10, atol=1e-300), name
            assert torch.equal(q.mean, q.p_on)
            assert torch.allclose(q.variance, w @ (b - mean).square(), **close), name
            assert float(q.expected) == pytest.approx(float(w @ b.sum(-1)), rel=1e-10, abs=1e-300), name
            assert float(q.entropy()) == pytest.approx(float(-w @ log_q), rel=1e-9, abs=1e-11), name
            assert float(q.log_prob(q.mode)) == pytest.approx(float(log_q.max()), rel=1e-10, abs=1e-12), name
            assert float(divergence(q, Capped(a0, cap))) == pytest.approx(float(w @ (log_q - log_p)), rel=1e-9), name
            assert float(divergence(q, q)) == 0


def test_a_value_off_the_support_has_no_probability() -> None:
    q = Capped(normals(3), 2)
    bad = torch.tensor([[1, 1, 1], [-1, 0, 0], [0.5, 0.5, 0], [2, 0, 0], [math.nan, 0, 0], [2, -1, 0]])
    assert q.log_prob(bad.double()).tolist() == [-INF] * len(bad)
    assert float(q.log_prob(torch.tensor([1.0, 0.0, 1.0]))) > -INF


def test_it_is_independent_gates_given_that_few_are_on() -> None:
    a, cap = normals(6), 2
    b = codes(6, 2)
    gates = Bernoulli(logits=a).log_prob(b).sum(-1)
    given = torch.logsumexp(gates, 0)
    assert torch.allclose(Capped(a, cap).log_prob(b), gates - given, rtol=1e-12)


def test_a_limit_that_binds_nothing_leaves_independent_gates() -> None:
    """L0 >= K: the same numbers as Bernoulli gates, not just close to them; two such limits are one."""
    a, a0, b = 3 * normals(4, 5), normals(5, seed=1), codes(5, 5).unsqueeze(1)
    u, v = uniforms(4, 5), uniforms(4, 8)
    for cap in (5, 6, 100):
        q = Capped(a, cap)
        assert torch.equal(q.mean, torch.sigmoid(a))
        assert torch.equal(q.variance, torch.sigmoid(a) * torch.sigmoid(-a))
        assert torch.equal(q.through_gates(u, v), (u > torch.sigmoid(-a)).double())
        assert torch.equal(q.mode, (a > 0).double())
        assert torch.allclose(q.log_prob(b), Bernoulli(logits=a).log_prob(b).sum(-1), rtol=1e-12)
        assert torch.allclose(q.log_normaliser, torch.nn.functional.softplus(a).sum(-1), rtol=1e-12)
        assert torch.allclose(q.entropy(), Bernoulli(logits=a).entropy().sum(-1), rtol=1e-12)
        for other in (5, 8):
            assert torch.allclose(divergence(q, Capped(a0, other)), bernoulli_kl(a, a0).sum(-1), rtol=1e-12)
    nearly = Capped(a - 9, 4)  # one below K, where all five are hardly ever on together
    assert torch.allclose(nearly.mean, torch.sigmoid(a - 9), rtol=1e-7)


# -- the distribution by a plain recursion, and its precision --------------------------------------------------------


def recursion(a: Tensor, cap: int) -> Tensor:
    """log Z, (...), by f <- logaddexp(f, shift(f) + a_k) over k: another way, in doubles."""
    f = torch.full((*a.shape[:-1], cap + 1), -INF, dtype=torch.float64)
    f[..., 0] = 0
    for k in range(a.shape[-1]):
        f = torch.cat((f[..., :1], torch.logaddexp(f[..., 1:], f[..., :-1] + a[..., k : k + 1])), -1)
    return torch.logsumexp(f, -1)


@pytest.mark.parametrize(("K", "cap"), [(30, 1), (30, 7), (30, 29), (200, 40), (257, 3)])
def test_single_precision_is_enough_wherever_the_logits_are(K: int, cap: int) -> None:
    """Against doubles, and doubles against the recursion; S is never so small that anything could underflow."""
    a0 = normals(K, seed=1).float().double()
    for name, a in logits_of_every_kind(K):
        q, single = Capped(a, cap), Capped(a.float(), cap)
        b = hard()(q)
        assert float(single.log_share.min()) > -5, name
        log_z = recursion(a, cap)
        assert torch.allclose(q.log_normaliser, log_z, rtol=1e-12), name
        assert torch.allclose(single.log_normaliser.double(), log_z, rtol=4e-7, atol=1e-6), name
        assert torch.allclose(q.log_prob(b), (b * a).sum(-1) - log_z, rtol=1e-9, atol=1e-8), name
        assert torch.allclose(single.log_prob(b.float()).double(), q.log_prob(b), rtol=2e-6, atol=2e-5), name
        assert torch.allclose(single.mean.double(), q.mean, rtol=2e-5, atol=1e-36), name
        exact = divergence(q, Capped(a0, cap))
        got = divergence(single, Capped(a0.float(), cap)).double()
        assert torch.allclose(got, exact, rtol=2e-6, atol=5e-5), name


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1e4, 1e5, 1e8, 1e30])
def test_no_finite_logit_is_too_large(scale: float, dtype: torch.dtype) -> None:
    """Some are equal, so that codes are alike whose sums are anything but small."""
    a = normals(20, 8, seed=3)
    a[:, 1], a[:, 2], a[:10, 5] = a[:, 0], a[:, 0], a[:10, 4]
    a = (scale * a).to(dtype)
    for cap in (1, 3, 6):
        q, b = Capped(a, cap), codes(8, cap)
        log_weights = a.double() @ b.mT
        below = log_weights.max(-1, keepdim=True).values - log_weights
        weight = torch.where(below < 1e-12 * scale, 0.0, -below).softmax(-1)  # less than that is rounding of the sums
        assert torch.allclose(q.log_prob(b[:, None].to(dtype)).exp().double(), weight.mT, rtol=1e-5, atol=1e-12)
        assert torch.allclose(q.p_on.double(), weight @ b, rtol=1e-5, atol=1e-12)
        drawn = hard()(q.expand((50, 20)))
        assert torch.isfinite(q.log_prob(drawn)).all()
        assert torch.isfinite(divergence(q, Capped(torch.zeros_like(a), cap))).all()


def test_many_large_logits_fill_the_cap() -> None:
    """200 gates, about half of them wanted, of which 40 may be on: no draw is empty, and each has a probability."""
    for scale in (1e3, 1e5, 1e7):
        q = Capped(scale * normals(50, 200).float(), 40)
        b = q.through_tree(torch.rand(50, q.width, generator=torch.Generator().manual_seed(0)))
        assert b.sum(-1).tolist() == [40.0] * 50
        assert torch.equal(b, q.mode)
        assert torch.isfinite(q.log_prob(b)).all()
        assert torch.isfinite(q.log_normaliser).all()
    tied = Capped(torch.full((1, 2000), 1e7), 40)  # no number near 1e7 lies as far above it as the shift has to
    assert torch.allclose(tied.p_on, torch.tensor(40 / 2000), rtol=1e-3)


@pytest.mark.parametrize(("K", "cap"), [(30, 7), (200, 40)])
def test_gradients_in_single_precision_are_those_in_double(K: int, cap: int) -> None:
    """The gradient of the KL in q's logits is Cov(b) (a - a0): finite, and right to four digits of its size."""
    a0 = normals(K, seed=1).float().double()
    for name, a in logits_of_every_kind(K):
        gradients = []
        for dtype in (torch.float64, torch.float32):
            x, x0 = a.to(dtype).requires_grad_(), a0.to(dtype).requires_grad_()
            value = divergence(Capped(x, cap), Capped(x0, cap)).sum()
            gradients.append([g.double() for g in torch.autograd.grad(value, (x, x0))])
        for exact, got in zip(*gradients, strict=True):
            assert bool(torch.isfinite(got).all()), name
            assert float((got - exact).abs().max()) <= 1e-4 * max(1.0, float(exact.abs().max())), name


def test_marginals_are_the_gradient_of_the_normaliser_and_have_gradients_of_their_own() -> None:
    a = normals(3, 7).requires_grad_()
    (wanted,) = torch.autograd.grad(Capped(a, 3).log_normaliser.sum(), a)
    assert torch.allclose(Capped(a, 3).mean, wanted, rtol=1e-12)
    b, (row,) = codes(7, 3), a.detach()[:1]
    w = torch.softmax(b @ row, 0)
    covariance = (b - w @ b).T @ (w[:, None] * (b - w @ b))
    assert torch.allclose(
        torch.autograd.functional.jacobian(lambda x: Capped(x, 3).mean, row), covariance, rtol=1e-9, atol=1e-14
    )


@pytest.mark.parametrize(("K", "cap"), [(2, 1), (5, 2), (4, 4)])
def test_gradients_are_those_of_finite_differences(K: int, cap: int) -> None:
    a, a0 = normals(2, K).requires_grad_(), normals(K, seed=1).requires_grad_()
    b = hard()(Capped(a.detach(), cap))
    claims: list[Callable[[Tensor], Tensor]] = [
        lambda x: Capped(x, cap).log_prob(b),
        lambda x: Capped(x, cap).mean,
        lambda x: Capped(x, cap).variance,
        lambda x: Capped(x, cap).entropy(),
        lambda x: Capped(x, cap).expected,
        lambda x: Capped(x, cap).log_normaliser,
        lambda x: Capped(x + 3, cap).mean,  # where the shift is at work
    ]
    for claim in claims:
        assert torch.autograd.gradcheck(claim, a)
    assert torch.autograd.gradcheck(lambda x, y: divergence(Capped(x, cap), Capped(y, cap)), (a, a0))


def test_a_distribution_first_seen_without_gradients_has_them_later() -> None:
    a = normals(2, 5).requires_grad_()
    q = Capped(a, 2)
    with torch.no_grad():
        hard()(q)
    assert bool((torch.autograd.grad(q.mean[:, 0].sum(), a)[0] != 0).all())


def test_certain_gates() -> None:
    """-inf is never on, inf is never off; what is left shares the rest of the limit."""
    a = torch.tensor([INF, -INF, 0.5, -1.0, 2.0], dtype=torch.float64)
    q, rest = Capped(a, 2), Capped(a[2:], 1)
    assert q.mean[:2].tolist() == [1.0, 0.0]
    assert torch.allclose(q.mean[2:], rest.mean, rtol=1e-12)
    assert float(q.entropy()) == pytest.approx(float(rest.entropy()), rel=1e-12)
    assert float(q.log_prob(torch.tensor([1.0, 0, 0, 0, 1]))) == pytest.approx(
        float(rest.log_prob(torch.tensor([0.0, 0, 1])))
    )
    impossible = torch.tensor([[0.0, 0, 0, 0, 0], [1, 1, 0, 0, 0]])
    assert q.log_prob(impossible).tolist() == [-INF, -INF]
    z = hard()(q.expand((2000,)))
    assert bool((z[:, 0] == 1).all())
    assert bool((z[:, 1] == 0).all())
    full = Capped(a, 1)  # the certain gate takes the only place
    assert full.mean.tolist() == [1.0, 0.0, 0.0, 0.0, 0.0]
    assert float(full.entropy()) == 0
    assert full.mode.tolist() == [1.0, 0.0, 0.0, 0.0, 0.0]


def test_divergences_to_and_from_certain_gates() -> None:
    never = torch.tensor([-INF, 1.0, -0.5, 0.3], dtype=torch.float64)
    free = torch.tensor([0.2, 0.0, 1.0, -1.0], dtype=torch.float64)
    q = Capped(never, 2)
    w = torch.softmax(codes(3, 2) @ never[1:], 0)
    b = torch.cat((torch.zeros(len(w), 1), codes(3, 2)), 1).double()
    wanted = w @ (w.log() - Capped(free, 2).log_prob(b))
    x = never.clone().requires_grad_()
    value = divergence(Capped(x, 2), Capped(free, 2))
    assert float(value.detach()) == pytest.approx(float(wanted), rel=1e-12)
    assert bool(torch.isfinite(torch.autograd.grad(value, x)[0]).all())
    assert float(divergence(Capped(free, 2), q)) == INF  # the prior never has what q may have
    assert float(divergence(q, Capped(never + torch.tensor([0.0, 1.0, 0.0, 0.0]), 2))) > 0  # both never: no NaN
    assert float(divergence(q, q)) == 0


# -- the mode --------------------------------------------------------------------------------------------------------


def test_of_equally_likely_codes_the_mode_has_the_first_gates() -> None:
    assert Capped(torch.ones(4), 2).mode.tolist() == [1.0, 1.0, 0.0, 0.0]
    assert Capped(torch.zeros(4), 2).mode.tolist() == [0.0] * 4  # off at p_on = 1/2 exactly
    assert Capped(torch.tensor([1.0, 3.0, -1.0, 3.0, 2.0]), 3).mode.tolist() == [0.0, 1.0, 0.0, 1.0, 1.0]
    assert Capped(torch.tensor([1.0, 3.0, -1.0]), 3).mode.tolist() == [1.0, 1.0, 0.0]


# -- draws -----------------------------------------------------------------------------------------------------------


def chi_square(b: Tensor, q: Capped) -> float:
    """The p-value of draws (n, K) under the distribution's own table of codes."""
    K, n = b.shape[-1], len(b)
    every = codes(K, q.cap)
    base = 2 ** torch.arange(K)
    seen = torch.bincount(b.long() @ base, minlength=2**K)
    place = every.long() @ base
    assert int(seen.sum() - seen[place].sum()) == 0, "a draw with too many gates on"
    wanted = n * torch.softmax(every @ q.logits.double(), 0).numpy()
    assert wanted.min() > 5
    return float(scipy.stats.chisquare(seen[place].numpy(), wanted * n / wanted.sum()).pvalue)


DISTRIBUTIONS = {
    "sparse": [-1.0, -2.0, 0.3, -0.5, -1.5, -0.2],  # the limit is seldom reached
    "dense": [1.0, 2.0, 0.3, 1.5, 0.5, 2.5],  # and here it nearly always is
    "equal": [0.5] * 6,
    "far": [40.0, 41.0, 42.0, 40.5, 41.5, 40.2],
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("cap", [1, 2, 5])
@pytest.mark.parametrize("name", ["sparse", "dense", "equal"])
def test_draws_through_the_tree_and_through_the_gates_follow_the_distribution(
    name: str, cap: int, dtype: torch.dtype
) -> None:
    n = 200_000
    q = Capped(torch.tensor(DISTRIBUTIONS[name], dtype=dtype), cap)
    u, v = uniforms(n, 6).to(dtype), uniforms(n, 8, seed=1).to(dtype)
    tree, gates = q.through_tree(v), q.through_gates(u, v)
    assert tree.dtype == gates.dtype == dtype
    assert chi_square(tree, q) > 1e-3
    assert chi_square(gates, q) > 1e-3
    own = (u > torch.sigmoid(-q.logits)).to(dtype)
    few = own.sum(-1) <= cap
    assert 0 < int(few.sum()) < n
    assert torch.equal(gates[few], own[few])  # the shortcut, wherever it can be
    assert torch.equal(gates[~few], tree[~few])


def test_draws_follow_the_distribution_where_independent_gates_never_would() -> None:
    """Logits of 40 and more: independent gates are all on, so every draw comes through the tree; at cap 2 of 6."""
    n = 200_000
    q, b = Capped(torch.tensor(DISTRIBUTIONS["far"]), 2), []
    for draw in (hard(), Draw(PerRow(torch.arange(n) * 7919, 0), hard=True)):
        b = draw(q.expand((n,)))
        assert bool((b.sum(-1) == 2).all())
        pairs = codes(6, 2)
        pairs = pairs[pairs.sum(-1) == 2]
        base = 2 ** torch.arange(6)
        seen = torch.bincount(b.long() @ base, minlength=64)[pairs.long() @ base].numpy()
        wanted = n * torch.softmax(pairs @ q.logits.double(), 0).numpy()
        assert scipy.stats.chisquare(seen, wanted * n / wanted.sum()).pvalue > 1e-3


def test_a_million_draws_never_exceed_the_cap() -> None:
    """Through the tree and the gates, for distributions that seldom, often, nearly always and always reach it."""
    q, most = Capped(torch.linspace(-2, 2, 12) + torch.tensor([[-2.0], [0.0], [3.0], [40.0]]), 3), np.zeros(2)
    generator = torch.Generator().manual_seed(0)
    for _ in range(10):
        u, v = (torch.rand(25_000, 4, n, generator=generator).clamp_min(2.0**-25) for n in (12, 16))
        for i, b in enumerate((q.through_tree(v), q.through_gates(u, v))):
            most[i] = max(most[i], float(b.sum(-1).max()))
            assert bool(((b == 0) | (b == 1)).all())
            assert b.shape == (25_000, 4, 12)
    assert most.tolist() == [3.0, 3.0]


def test_draws_of_many_gates_have_the_moments_that_are_promised() -> None:
    """K = 200, L0 = 40: means, numbers on, and the covariance of two gates, from 20,000 draws in single precision."""
    n = 20_000
    q = Capped(1.5 * normals(200).float(), 40)
    b = hard()(q.expand((n,))).double()
    on = b.sum(-1)
    assert float(on.max()) == 40
    assert abs(float(on.mean()) - float(q.expected)) < 5 * float(on.std()) / n**0.5
    assert bool(((b.mean(0) - q.mean).abs() < 5 * b.std(0) / n**0.5 + 1e-6).all())
    c = torch.autograd.functional.jacobian(lambda x: Capped(x, 40).mean[:5], q.logits)[:, :5]
    top = b[:, :5] - q.mean[:5]
    products = top[:, :, None] * top[:, None, :]
    assert bool(((products.mean(0) - c).abs() < 5 * products.std(0) / n**0.5).all())


@pytest.mark.parametrize("u", [2.0**-25, 0.5, 1 - 2.0**-24, 1.0])
def test_noise_at_its_ends_gives_codes_of_the_support(u: float) -> None:
    for cap in (1, 3, 6):
        for _, a in logits_of_every_kind(7):
            q = Capped(a.float(), cap)
            b = q.through_tree(torch.full((5, 8), u))
            assert bool(torch.isfinite(q.log_prob(b)).all())


def test_sample_uses_the_global_state_and_draw_does_not() -> None:
    q = Capped(normals(3, 5), 2)
    before = torch.get_rng_state()
    assert hard()(q).shape == (3, 5)
    assert torch.equal(torch.get_rng_state(), before)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        b = q.sample(torch.Size([20_000]))
    assert b.shape == (20_000, 3, 5)
    assert bool(((b.mean(0) - q.mean).abs() < 5 * b.std(0) / 20_000**0.5).all())


def test_a_relaxed_draw_is_the_estimator_s() -> None:
    draw = Draw(Fresh(torch.Generator()), hard=False)
    q = Capped(normals(5), 2, lambda dist, noise: dist.mean)
    assert torch.equal(draw(q), q.mean)
    assert torch.equal(draw(q.expand((4,))), q.mean.expand(4, 5))
    with pytest.raises(ValueError, match=r"Capped has no estimator.*hard=True"):
        draw(Capped(normals(5), 2))


# -- divergences -----------------------------------------------------------------------------------------------------


def test_the_divergence_is_the_mean_log_ratio_of_draws() -> None:
    """Sixty gates with a limit of eight: too many codes to enumerate."""
    q, p, n = Capped(normals(60), 8), Capped(normals(60, seed=1) - 2, 8), 50_000
    b = hard()(q.expand((n,)))
    ratio = q.log_prob(b) - p.log_prob(b)
    assert abs(float(ratio.mean() - divergence(q, p))) < 4 * float(ratio.std()) / n**0.5
    assert closed_form(q, p)


def test_the_limit_makes_two_distributions_more_alike() -> None:
    """Equal shifts of all logits change the number on and nothing else, which a binding limit hides."""
    a, K = normals(30), 30
    for cap, most in ((29, 20.0), (3, 0.05)):
        assert 0 < float(divergence(Capped(a + 3, cap), Capped(a + 5, cap))) < most
    free = kl_divergence(Bernoulli(logits=a + 3), Bernoulli(logits=a + 5)).sum()
    assert float(divergence(Capped(a + 3, K), Capped(a + 5, K))) == pytest.approx(float(free), rel=1e-9)


def test_gates_that_nothing_limits_have_the_divergences_of_bits() -> None:
    a, b = normals(2, 5, 3), normals(3, seed=1)
    each = unit_divergence(Capped(a, 3), Capped(b, 3))
    assert torch.allclose(each, kl_divergence(Bernoulli(logits=a), Bernoulli(logits=b.expand(2, 5, 3))))
    assert torch.allclose(each.sum(-1), divergence(Capped(a, 3), Capped(b, 3)), rtol=1e-9)
    assert unit_divergence(Capped(b, 3).expand((4,)), Capped(b, 3)).tolist() == [[0.0] * 3] * 4
    with pytest.raises(TypeError, match="belongs to the whole code"):
        unit_divergence(Capped(a, 3), Capped(b, 2))


def test_a_capped_code_has_no_divergence_per_unit() -> None:
    q = Capped(normals(2, 3), 2)
    message = r"KL\(Capped \|\| Capped\) belongs to the whole code.*free_bits, audit, prune.*divergence and the term kl"
    with pytest.raises(TypeError, match=message):
        unit_divergence(q, q)
    trace = Trace({"z": Site(q, q, q.mean)}, {}, hard=True)
    with pytest.raises(TypeError, match=message):
        free_bits(0.1)(trace)
    assert kl(trace)["kl_z"].shape == (2,)


# -- shapes and refusals ---------------------------------------------------------------------------------------------


def test_members_are_kept_apart() -> None:
    """Two leading dimensions; priors shared by all, or one for each member; noise shared by the members of a row."""
    a, a0, u, v = 2 * normals(2, 4, 6), normals(2, 1, 6, seed=1), uniforms(4, 6), uniforms(4, 8, seed=1)
    q = Capped(a, 2)
    b, tree = q.through_gates(u, v), q.through_tree(v)
    assert b.shape == tree.shape == (2, 4, 6)
    assert Draw(PerRow(torch.arange(4), 0), hard=True)(q).shape == (2, 4, 6)
    for prior in (Capped(a0, 2), Capped(a0[0, 0], 2)):
        together = divergence(q, prior)
        assert together.shape == (2, 4)
        for m, r in itertools.product(range(2), range(4)):
            one, p = Capped(a[m, r], 2), Capped(prior.logits[m, 0] if prior.logits.dim() > 1 else prior.logits, 2)
            assert float(together[m, r]) == pytest.approx(float(divergence(one, p)), rel=1e-11)
            assert float(prior.log_prob(b)[m, r]) == pytest.approx(float(p.log_prob(b[m, r])), rel=1e-11)
            assert torch.equal(one.through_gates(u[r], v[r]), b[m, r])
            assert torch.equal(one.through_tree(v[r]), tree[m, r])
            assert torch.equal(one.mode, q.mode[m, r])
            for name in ("mean", "variance", "p_on", "expected", "log_normaliser"):
                assert torch.allclose(getattr(one, name), getattr(q, name)[m, r], rtol=1e-11), name
            assert torch.allclose(one.entropy(), q.entropy()[m, r], rtol=1e-11)


def test_an_expanded_distribution_is_the_same_distribution_for_more_rows() -> None:
    q, p = Capped(normals(5), 2), Capped(normals(5, seed=1), 2)
    wide = q.expand((2, 7))
    assert (wide.batch_shape, wide.event_shape) == ((2, 7), (5,))
    for name in ("mean", "variance", "p_on", "mode", "expected", "log_normaliser"):
        value = getattr(q, name)
        assert torch.equal(getattr(wide, name), value.expand(2, 7, *value.shape)), name
    b = hard()(wide)
    assert b.shape == (2, 7, 5)
    assert b.dtype == torch.float64
    assert torch.equal(wide.log_prob(b), q.log_prob(b))
    assert torch.equal(wide.entropy(), q.entropy().expand(2, 7))
    assert torch.equal(divergence(wide, p), divergence(q, p).expand(2, 7))


@pytest.mark.parametrize("cap", [3, 9])  # gates under a limit, and free ones
@pytest.mark.parametrize("shape", [(4,), (2, 4)])
def test_copies_are_the_distribution_of_repeated_rows_without_its_work(
    shape: tuple[int, ...], cap: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = 2 * normals(*shape, 9)
    one, many = Capped(a, cap), Capped(a.repeat(*(1,) * (len(shape) - 1), 5, 1), cap)
    u, v = uniforms(*many.batch_shape, 9), uniforms(*many.batch_shape, many.width, seed=1)
    z = many.through_gates(u, v)
    wanted = many.log_prob(z), many.p_on, many.entropy()
    assert one.log_share.shape == shape  # the tree is built
    monkeypatch.setattr("sparsevae.distributions.capped.products", None)
    copied = one.copies(5)
    assert torch.equal(copied.through_gates(u, v), z)
    for got, known in zip((copied.log_prob(z), copied.p_on, copied.entropy()), wanted, strict=True):
        assert torch.equal(got, known)
    assert one.copies(1) is one


def test_a_prior_shared_by_all_rows_is_measured_once() -> None:
    """One vector of logits makes one tree, whatever the number of rows."""
    p, q = Capped(normals(5), 2), Capped(normals(100, 5), 2)
    divergence(q, p)
    p.log_prob(hard()(q))
    hard()(p.expand((100,)))
    assert p._levels[-1].shape == (3, 1)
    assert q._levels[-1].shape == (3, 1, 100)


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match=r"cap must be an integer of at least 1, .*, got 0"):
        Capped(torch.zeros(3), 0)
    with pytest.raises(ValueError, match=r"q has cap=2, p has cap=3 \(over 4 gates\)\. Make both with the same `cap`"):
        divergence(Capped(torch.zeros(4), 2), Capped(torch.zeros(4), 3))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_tree_survives_the_compiler() -> None:
    """One graph without a break, and the same draw, divergence and gradient."""

    def step(a: Tensor, u: Tensor, v: Tensor) -> Tensor:
        q = Capped(a, 4)
        return divergence(q, Capped(torch.full((20,), -1.0), 4)).mean() + (q.through_gates(u, v) * q.mean).sum()

    a, u, v = normals(7, 20).float(), uniforms(7, 20).float(), uniforms(7, 32, seed=1).float()
    found = []
    for f in (step, torch.compile(step, fullgraph=True)):
        x = a.clone().requires_grad_()
        value = f(x, u, v)
        found.append((value.detach(), torch.autograd.grad(value, x)[0]))
    for eager, compiled in zip(*found, strict=True):
        assert torch.allclose(eager, compiled, rtol=1e-5, atol=1e-6)
