"""Beta distributions in terms of the logit: draws from plain noise, their gradient against integrals."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import scipy.integrate
import scipy.special
import scipy.stats
import torch
from torch import Tensor

from sparsevae.distributions.kl import closed_form, divergence, unit_divergence
from sparsevae.distributions.logit_beta import _PROPOSALS, LogitBeta, _log_gamma
from sparsevae.latent.posteriors import HierarchicalPosterior
from sparsevae.sampling.draw import Draw
from sparsevae.sampling.gradients import StraightThroughConcrete
from sparsevae.sampling.noise import Fresh, PerRow, Tape
from sparsevae.testing import check_distribution

CONCENTRATIONS = [(0.5, 0.5), (0.5, 100.0), (100.0, 0.5), (0.7, 3.0), (1.0, 1.0), (10.0, 30.0), (100.0, 100.0)]


def dist(a: float, b: float, n: int, dtype: torch.dtype = torch.float32) -> LogitBeta:
    return LogitBeta(torch.full((n, 1), a, dtype=dtype), torch.full((n, 1), b, dtype=dtype))


def fresh(seed: int = 0) -> Draw:
    return Draw(Fresh(torch.Generator().manual_seed(seed)), hard=True)


def distribution(v: np.ndarray, a: float, b: float) -> np.ndarray:
    """P(logit gamma < v), by whichever end is nearer, so that neither tail is lost."""
    left, right = scipy.special.expit(v), scipy.special.expit(-v)
    return np.where(v < 0, scipy.special.betainc(a, b, left), 1 - scipy.special.betainc(b, a, right))


def quantile(share: float, a: float, b: float) -> float:
    """The v below which that share lies."""
    left = scipy.stats.beta.ppf(share, a, b)
    return float(
        scipy.special.logit(left) if left < 0.5 else -scipy.special.logit(scipy.stats.beta.ppf(1 - share, b, a))
    )


# -- draws -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("a", "b"), CONCENTRATIONS)
def test_draws_follow_the_beta_distribution(a: float, b: float) -> None:
    """Kolmogorov and Smirnov's test of 200,000 draws in single precision, ends included."""
    v = fresh(3)(dist(a, b, 200_000)).double().numpy().ravel()
    assert scipy.stats.kstest(v, lambda v: distribution(v, a, b)).pvalue > 1e-3
    for tail in (1e-4, 1 - 1e-4):  # where a distance of distribution functions sees little
        assert scipy.stats.binomtest(int((v < quantile(tail, a, b)).sum()), len(v), tail).pvalue > 1e-4


def test_the_distribution_agrees_with_itself() -> None:
    """Density, moments, entropy and KL, held against quadrature and draws."""
    a, b = torch.tensor([0.6, 3.0, 30.0, 90.0]), torch.tensor([2.0, 0.7, 10.0, 100.0])
    check_distribution(LogitBeta, (a, b), other=(torch.tensor([1.0, 30.0, 30.0, 30.0]), torch.tensor([4.0, 10, 10, 9])))


def test_the_density_and_the_divergence_are_those_of_torch_s_beta() -> None:
    """log f(v) = log Beta(gamma) + log gamma (1 - gamma), the density of another variable; the KL does not change."""
    a, b, c, d = (torch.tensor(t, dtype=torch.float64) for t in ([0.5, 30, 7], [2, 10, 0.9], [1, 30, 10], [4, 10, 30]))
    gamma = torch.tensor([0.01, 0.7, 0.999], dtype=torch.float64)
    q, p = torch.distributions.Beta(a, b), torch.distributions.Beta(c, d)
    ours = LogitBeta(a, b).log_prob(torch.logit(gamma))
    assert float(ours) == pytest.approx(float((q.log_prob(gamma) + (gamma * (1 - gamma)).log()).sum()), rel=1e-12)
    kl = unit_divergence(LogitBeta(a, b), LogitBeta(c, d))
    assert torch.allclose(kl, torch.distributions.kl_divergence(q, p), rtol=1e-9, atol=1e-11)
    assert torch.allclose(divergence(LogitBeta(a, b), LogitBeta(c, d)), kl.sum())
    assert closed_form(LogitBeta(a, b), LogitBeta(c, d))
    assert float(torch.sigmoid(LogitBeta(a, b).mode[1])) == pytest.approx(0.75)  # E[gamma], as a logit


def test_divergences_and_densities_keep_their_digits_in_single_precision() -> None:
    """log-gammas of 857 and digammas of 5: formed in single precision the KL would be wrong by 1e-4 a unit."""
    a, b = (torch.linspace(low, high, 500) for low, high in ((100.0, 60.0), (70.0, 100.0)))
    q, p = LogitBeta(a, b), LogitBeta(torch.full((500,), 99.5), torch.full((500,), 69.5))
    exact = [LogitBeta(d.a.double(), d.b.double()) for d in (q, p)]
    kl = unit_divergence(q, p)
    assert kl.dtype == torch.float32
    assert torch.allclose(kl.double(), unit_divergence(*exact), rtol=1e-6, atol=1e-9)
    v = torch.full((500, 1), 0.3)
    single, double = (LogitBeta(d.a[:, None], d.b[:, None]).log_prob(v.to(d.a.dtype)) for d in (q, exact[0]))
    assert torch.allclose(single.double(), double, rtol=0, atol=2e-5)  # what terms of a hundred leave


def test_densities_and_entropies_are_exact_from_concentrations_of_one_half_to_a_million() -> None:
    """Against 50 digits, with their gradients: terms of a million leave a few nats."""
    mpmath = pytest.importorskip("mpmath")
    exact = {"entropy": [], "density": [], "entropy's": [], "density's": []}
    ends = (0.5, 3.0, 100.0, 1e4, 1e6)
    a, b = (torch.tensor(t, requires_grad=True) for t in zip(*itertools.product(ends, repeat=2), strict=True))
    v = (a / b).log().detach() + 0.01
    with mpmath.workdps(50):
        for pair in zip(a.tolist(), b.tolist(), v.tolist(), strict=True):
            a_, b_, v_ = (mpmath.mpf(x) for x in pair)
            psi, log_beta = mpmath.psi, mpmath.log(mpmath.beta(a_, b_))
            both, on = psi(0, a_ + b_), -mpmath.log1p(mpmath.exp(-v_))
            exact["entropy"].append(log_beta - a_ * (psi(0, a_) - both) - b_ * (psi(0, b_) - both))
            exact["density"].append(a_ * on + b_ * (on - v_) - log_beta)
            exact["entropy's"].append((a_ + b_) * psi(1, a_ + b_) - a_ * psi(1, a_))
            exact["density's"].append(on - psi(0, a_) + both)
    each = LogitBeta(a[:, None], b[:, None])
    found = {"entropy": each.entropy(), "density": each.log_prob(v[:, None])}
    found |= {f"{k}'s": torch.autograd.grad(value.sum(), a)[0] for k, value in found.items()}
    for name, values in found.items():
        wanted = np.array(exact[name], dtype=np.float64)
        np.testing.assert_allclose(values.detach(), wanted, rtol=2e-6, atol=1e-9, err_msg=name)
    assert float(LogitBeta(torch.tensor([1e4]), torch.tensor([1e6])).entropy()) == pytest.approx(-3.1813, abs=1e-4)


def test_a_million_draws_at_extreme_network_outputs_are_finite_with_finite_gradients() -> None:
    """Whatever a network puts out: concentrations stay within [.5, 100], draws and gradients are numbers."""
    ends = torch.tensor([-1e30, -1e4, -3.0, 0.0, 3.0, 1e4, 1e30])
    pairs = torch.tensor(list(itertools.product(ends.tolist(), repeat=2)))  # (49, 2): a and b
    raw = torch.cat([torch.zeros(49, 2), pairs], -1).repeat(21_000, 1).requires_grad_()
    q = HierarchicalPosterior(StraightThroughConcrete()).gates(raw)
    a, b = q.a.detach(), q.b.detach()
    assert a.shape == b.shape == (49 * 21_000, 1)
    assert float(a.min()) == float(b.min()) == 0.5
    assert float(a.max()) == float(b.max()) == 100
    v = fresh()(q)
    assert bool(v.isfinite().all())
    assert float(v.detach().abs().max()) < 60
    p = LogitBeta(torch.tensor([30.0]), torch.tensor([10.0]))
    (gradient,) = torch.autograd.grad((v.sum() + divergence(q, p).sum()), raw)
    assert bool(gradient.isfinite().all())


class Constant:
    """The same noise everywhere."""

    def __init__(self, eps: float, u: float) -> None:
        self.eps, self.u = eps, u

    def normal(self, like: Tensor) -> Tensor:
        return torch.full_like(like, self.eps)

    def uniform(self, like: Tensor) -> Tensor:
        return torch.full_like(like, self.u)


@pytest.mark.parametrize("eps", [-8.0, 0.0, 8.0])
@pytest.mark.parametrize("u", [2.0**-25, 0.5, 1 - 2.0**-24])
def test_the_ends_of_the_noise_are_no_trouble(eps: float, u: float) -> None:
    grid = torch.tensor([0.5, 1.0, 10.0, 100.0]).requires_grad_()
    q = LogitBeta(grid[:, None].expand(4, 4), grid.expand(4, 4))
    v = Draw(Constant(eps, u), hard=True)(q)
    (gradient,) = torch.autograd.grad(v.sum(), grid)
    assert bool(v.isfinite().all())
    assert bool(gradient.isfinite().all())


def test_a_draw_by_hand() -> None:
    """eps = 0, u = 1/2: w = 1 is accepted, log g = log(a + 2/3) + log(1/2)/a."""
    q = LogitBeta(torch.tensor([[3.0]]), torch.tensor([[0.5]]))
    wanted = math.log(3 + 2 / 3) + math.log(0.5) / 3 - math.log(0.5 + 2 / 3) - math.log(0.5) / 0.5
    assert float(Draw(Constant(0.0, 0.5), hard=True)(q)) == pytest.approx(wanted, rel=1e-6)
    # eps = 1.5 and u = 1/2 at shape 1: d = 5/3, w = (1 + 1.5/sqrt(15))^3, and log(1/2) < 1.125 + d (1 - w + log w)
    g = _log_gamma(torch.tensor([1.0]), torch.full((_PROPOSALS, 1), 1.5), torch.full((_PROPOSALS + 1, 1), 0.5))
    assert float(g) == pytest.approx(math.log(5 / 3) + 3 * math.log(1 + 1.5 / math.sqrt(15)) + math.log(0.5), rel=1e-6)


def test_the_first_accepted_proposal_wins_and_the_middle_stands_in_for_none() -> None:
    """eps = -9 gives w < 0 at shape .5: rejected. One good proposal among them is taken, wherever it is."""
    shape, u = torch.tensor([0.5]), torch.full((_PROPOSALS + 1, 1), 0.5)
    refused = torch.full((_PROPOSALS, 1), -9.0)
    rest = math.log(0.5 + 2 / 3) + math.log(0.5) / 0.5
    assert float(_log_gamma(shape, refused, u)) == pytest.approx(rest, rel=1e-6)
    for k in range(_PROPOSALS):
        eps = refused.clone()
        eps[k:] = 0.5
        eps[k + 1 :] = 1.0  # would be accepted too
        wanted = rest + 3 * math.log(1 + 0.5 / math.sqrt(9 * (0.5 + 2 / 3)))
        assert float(_log_gamma(shape, eps, u)) == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize(("shape", "share"), [(0.5, 2.7e-2), (1.0, 1.8e-2), (10.0, 2.7e-3)])
def test_proposals_fail_as_rarely_as_is_said(shape: float, share: float) -> None:
    """One proposal only: the stand-in is seen where it fails. All four fail with the fourth power of that."""
    n, generator = 400_000, torch.Generator().manual_seed(0)
    eps, u = torch.randn(n, 1, 1, generator=generator), torch.rand(n, 2, 1, generator=generator).clamp_min(2.0**-25)
    wide = torch.full((n, 1), shape)
    failed = _log_gamma(wide, eps, u) == (wide + 2 / 3).log() + u[:, 1].log() / wide
    assert float(failed.double().mean()) == pytest.approx(share, rel=0.05)
    assert share**_PROPOSALS < 6e-7


# -- gradients -------------------------------------------------------------------------------------------------------


def implicit(v: float, a: float, b: float) -> float:
    """dv/da at a fixed quantile: -(1/f(v)) int_{-inf}^v f(s) (log sigmoid(s) - E) ds, by the shorter side."""

    def log_f(s: float) -> float:
        return -a * np.logaddexp(0, -s) - b * np.logaddexp(0, s)

    mean = scipy.special.digamma(a) - scipy.special.digamma(a + b)
    side = -1.0 if v < math.log(a / b) else 1.0
    reach = 60 / (a if side < 0 else b) + 12 * math.sqrt((a + b) / (a * b))

    def integrand(t: float) -> float:
        return math.exp(log_f(v + side * t) - log_f(v)) * (-np.logaddexp(0, -(v + side * t)) - mean)

    parts = [0.0, *(p for p in np.geomspace(1e-3, 20, 12) if p < reach), reach]
    return side * sum(scipy.integrate.quad(integrand, *ends, epsabs=1e-13)[0] for ends in itertools.pairwise(parts))


@pytest.mark.parametrize(("a", "b"), CONCENTRATIONS)
def test_a_draw_moves_with_its_concentrations_as_the_distribution_function_says(a: float, b: float) -> None:
    """Implicit reparametrisation: F(v(a, b); a, b) stays. Both gradients, from the 1 % to the 99 % quantile.

    The kernel is an approximation in places, within .2 %.
    """
    v = [quantile(share, a, b) for share in (0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99)]
    grid = torch.tensor([[a, b]] * len(v), dtype=torch.float64, requires_grad=True)
    moved = drawn_at(grid, torch.tensor(v, dtype=torch.float64))
    (got,) = torch.autograd.grad(moved.sum(), grid)
    wanted = np.array([[implicit(x, a, b), -implicit(-x, b, a)] for x in v])
    np.testing.assert_allclose(got.numpy(), wanted, rtol=2e-3)


def drawn_at(concentrations: Tensor, v: Tensor) -> Tensor:
    """Draws that come out at v, by noise that leads there.

    With one accepted proposal at eps = 0 for both Gammas only the last uniforms matter: log u_a / a - log u_b / b.
    """
    a, b = concentrations.detach().unbind(-1)
    rest = v - (a + 2 / 3).log() + (b + 2 / 3).log()
    u = torch.full((len(v), 2, _PROPOSALS + 1, 1), 0.5, dtype=torch.float64)
    u[:, 0, -1, 0], u[:, 1, -1, 0] = torch.exp(a * rest.clamp_max(0)), torch.exp(-b * rest.clamp_min(0))

    class Chosen:
        def normal(self, like: Tensor) -> Tensor:
            return torch.zeros_like(like)

        def uniform(self, like: Tensor) -> Tensor:
            return u.flatten(1)

    drawn = Draw(Chosen(), hard=True)(LogitBeta(*concentrations.chunk(2, -1)))[:, 0]
    assert torch.allclose(drawn, v, rtol=1e-9, atol=1e-9)
    return drawn


FUNCTIONS = {
    "gamma": (torch.sigmoid, scipy.special.expit),
    "sin 5 gamma": (lambda v: torch.sin(5 * torch.sigmoid(v)), lambda v: np.sin(5 * scipy.special.expit(v))),
    "log gamma": (torch.nn.functional.logsigmoid, lambda v: -np.logaddexp(0, -v)),
    "v squared": (torch.square, np.square),
}


@pytest.mark.parametrize(("a", "b"), CONCENTRATIONS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_gradient_of_an_expectation_is_that_of_the_integral(name: str, a: float, b: float) -> None:
    """d/da and d/db of E f(v) by differences of quadratures, and the mean over 100,000 draws in single precision."""
    ours, theirs = FUNCTIONS[name]
    centre, reach = scipy.special.digamma(a) - scipy.special.digamma(b), 60 / min(a, b, 4)
    grid = centre + np.linspace(-reach, reach, 20_001)

    def expectation(a: float, b: float) -> float:
        log_f = -a * np.logaddexp(0, -grid) - b * np.logaddexp(0, grid) - scipy.special.betaln(a, b)
        return float(np.trapezoid(np.exp(log_f) * theirs(grid), grid))

    values = ours(fresh(1)(dist(a, b, 50_000))).double()
    assert abs(float(values.mean()) - expectation(a, b)) < 4.5 * float(values.std()) / 50_000**0.5
    step_a, step_b = 1e-4 * a, 1e-4 * b
    wanted = [
        (expectation(a + step_a, b) - expectation(a - step_a, b)) / (2 * step_a),
        (expectation(a, b + step_b) - expectation(a, b - step_b)) / (2 * step_b),
    ]
    n = 100_000
    concentrations = torch.tensor([[a, b]]).expand(n, 2).clone().requires_grad_()
    (each,) = torch.autograd.grad(ours(fresh(2)(LogitBeta(*concentrations.chunk(2, -1)))).sum(), concentrations)
    mean, error = each.double().mean(0).numpy(), each.double().std(0).numpy() / n**0.5
    assert (np.abs(mean - wanted) < 4.5 * error + 1e-6 * np.abs(wanted)).all(), (mean, wanted, error)


# -- noise -----------------------------------------------------------------------------------------------------------


def test_draws_are_functions_of_their_noise_and_ask_for_it_once() -> None:
    """Two tensors of static shape a draw; rows of a score have their own noise whoever stands beside them."""
    q = LogitBeta(torch.rand(3, 4, generator=torch.Generator().manual_seed(0)) + 0.5, torch.ones(3, 4))
    tape = Tape(0, torch.device("cpu"))
    draw = Draw(tape, hard=False)
    draw(q)
    assert [tuple(t.shape) for t in (*tape.normals, *tape.uniforms)] == [(3, 8 * 4), (3, 10 * 4)]
    tape.refill(1)
    first = draw(q)
    tape.refill(1)
    assert torch.equal(draw(q), first)
    keys = torch.tensor([5, 6, 7])
    together = Draw(PerRow(keys, 0), hard=True)(q)
    alone = Draw(PerRow(keys[1:2], 0), hard=True)(LogitBeta(q.a[1:2], q.b[1:2]))
    assert torch.equal(together[1:2], alone)


def test_members_have_draws_of_their_own() -> None:
    a = torch.rand(2, 3, 5, generator=torch.Generator().manual_seed(0)) + 0.5
    q = LogitBeta(a, torch.ones(5))
    assert (q.batch_shape, q.event_shape) == ((2, 3), (5,))
    assert fresh()(q).shape == (2, 3, 5)
    assert unit_divergence(q, LogitBeta(torch.full((5,), 30.0), torch.full((5,), 10.0))).shape == (2, 3, 5)
