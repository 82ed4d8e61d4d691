"""Gradients through discrete draws against enumeration: no bias where theory says none, the known one where it does.

Hard draws are functions of finitely many cells of noise. Summing an estimate over all cells, each with its
probability, gives the expected gradient to rounding: what is claimed below is exact, not a matter of luck.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.integrate
import torch
from torch import Tensor, nn

import sparsevae as sv
from reproductions import estimators as table
from reproductions.estimators import loss, problem, target, values
from sparsevae.distributions.gaussian import normal
from sparsevae.distributions.kl import divergence
from sparsevae.distributions.spike_slab import SpikeSlab
from sparsevae.inputs.batch import Batch
from sparsevae.latent.model import LatentModel, Observed, Site, Trace
from sparsevae.latent.objective import Objective, free_bits, kl, nll
from sparsevae.latent.posteriors import SpikeSlabPosterior
from sparsevae.latent.priors import FixedSpikeSlab
from sparsevae.latent.terms import Capacity
from sparsevae.likelihoods.gaussian import FixedGaussianData
from sparsevae.networks.dense import initialise, mlp
from sparsevae.sampling.choices import BITS, ONE_HOTS, Kind
from sparsevae.sampling.draw import Draw
from sparsevae.sampling.gradients import (
    ESTIMATORS,
    GATES,
    AlwaysOn,
    Concrete,
    Darn,
    Disarm,
    Estimator,
    LeaveOneOut,
    MuProp,
    ScaledSigmoid,
    Score,
    SlopeAnnealed,
    StraightThrough,
    StraightThroughConcrete,
    points,
)
from sparsevae.sampling.noise import Fresh
from sparsevae.training.step import Run

pytestmark = pytest.mark.filterwarnings("ignore::sparsevae.exceptions.SparsityWarning")

Cost = Callable[[Tensor], Tensor]
KINDS: dict[str, Kind] = {"bits": BITS, "one-hots": ONE_HOTS}
UNBIASED: dict[str, Callable[[], Estimator]] = {
    "score": Score,
    "rloo": lambda: LeaveOneOut(2),
    "disarm": Disarm,
    "muprop": MuProp,
}


def close(got: Tensor, wanted: Tensor | float) -> bool:
    """Equal up to the rounding of sums in double precision."""
    return torch.allclose(got, torch.as_tensor(wanted, dtype=torch.float64), rtol=1e-9, atol=1e-11)


# -- the distributions -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_means_and_probabilities_are_those_of_torch(kind: Kind) -> None:
    logits, _ = problem(kind)
    b = values(kind, logits.shape)
    dist = (
        torch.distributions.OneHotCategorical(logits=logits)
        if kind.event
        else torch.distributions.Bernoulli(logits=logits)
    )
    assert close(kind.log_prob(logits.expand_as(b), b), dist.log_prob(b))
    assert close(kind.mean(logits), dist.mean)
    assert len(b) == (9 if kind.event else 8)
    assert close(dist.log_prob(b).sum(-1).exp().sum(), 1.0)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_hard_draws_follow_the_distribution_and_soft_ones_follow_them(kind: Kind) -> None:
    """All outcomes together, by 200,000 draws and a chi-squared of 4 deviations; both rows of DisARM's pair as well."""
    logits, _ = problem(kind)
    n = 200_000
    u = torch.rand(n, *logits.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    a, outcomes = logits.expand_as(u), values(kind, logits.shape)
    p = kind.log_prob(logits.expand_as(outcomes), outcomes).sum(-1).exp()
    both = Disarm().choose(kind, a.repeat(2, *(1,) * logits.dim()), u.repeat(2, *(1,) * logits.dim())).value
    for b in (kind.hard(a, u), *both.chunk(2)):
        counts = torch.stack([(b == o).flatten(1).all(1).sum() for o in outcomes]).double()
        assert counts.sum() == n  # every draw is a legal outcome
        freedom = len(outcomes) - 1
        assert float(((counts - n * p) ** 2 / (n * p)).sum()) < freedom + 4 * math.sqrt(2 * freedom)
    cold = kind.soft(a[:1000], u[:1000], torch.tensor(1e-4, dtype=torch.float64))
    assert float((cold - kind.hard(a[:1000], u[:1000])).abs().mean()) < 1e-3
    assert close(kind.soft(a, u, torch.tensor(0.7, dtype=torch.float64)).sum(-1), 1.0) == (kind is ONE_HOTS)


def test_the_bits_of_a_one_hot_choice_make_its_distribution() -> None:
    """Stick breaking: the product of "not yet" and "now" is the category's probability, the last bit being certain."""
    logits, _ = problem(ONE_HOTS)
    on = torch.sigmoid(ONE_HOTS.bits(logits))
    assert close(on[:, -1], 1.0)
    before = torch.cat([torch.ones(2, 1, dtype=torch.float64), (1 - on).cumprod(-1)[:, :-1]], -1)
    assert close(on * before, torch.softmax(logits, -1))
    bits = torch.tensor([[0.0, 1.0, 1.0], [1.0, 1.0, 1.0], [0.0, 0.0, 1.0]])
    assert ONE_HOTS.from_bits(bits).tolist() == [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]


# -- expected gradients, by cells of noise ---------------------------------------------------------------------------


def every(n: int, times: int) -> Tensor:
    """All rows of `times` indices below n, (n^times, times)."""
    return torch.cartesian_prod(*[torch.arange(n)] * times).reshape(-1, times)


def cells(estimator: Estimator, kind: Kind, logits: Tensor) -> tuple[Tensor, Tensor]:
    """Noise that stands for all noise with the same outcome, (cells, n[, C]), and the probability of it, (cells,).

    The logits are the distribution's own.
    """
    if isinstance(estimator, Disarm):  # bits change where u passes P(off), and where 1 - u does
        off = torch.sigmoid(-kind.bits(logits)).flatten()
        edges = torch.stack([torch.zeros_like(off), off.minimum(1 - off), off.maximum(1 - off), torch.ones_like(off)])
        which = every(3, off.numel())
        p = edges.diff(dim=0).gather(0, which).prod(1)
        u = ((edges[1:] + edges[:-1]) / 2).gather(0, which)
        return u[p > 0].unflatten(-1, logits.shape), p[p > 0]
    b = values(kind, logits.shape)
    off = torch.sigmoid(-logits)
    u = torch.where(b == 1, 1 - 1e-9, 1e-9) if kind.event else torch.where(b == 1, (1 + off) / 2, off / 2)
    return u.double(), kind.log_prob(logits.expand_as(b), b).sum(-1).exp()


def moments(estimator: Estimator, kind: Kind, logits: Tensor, f: Cost, items: int = 1) -> tuple[Tensor, Tensor]:
    """Mean and variance of the gradient that the loss of so many items has, exactly, each (n[, C])."""
    u, p = cells(estimator, kind, estimator.distribution_logits(logits))
    free = items * (1 if estimator.coupled else estimator.points)  # rows whose noise is their own
    which = every(len(p), free)
    noise, weight = u[which], p[which].prod(1)
    if estimator.coupled:  # nothing may depend on the noise of the other rows
        noise = torch.cat([noise, torch.full_like(noise, 0.123)], 1)
    a = logits.detach().expand(len(which), *logits.shape).clone().requires_grad_()
    total = loss(estimator, kind, a.unsqueeze(1).expand_as(noise), noise, f)
    (gradient,) = torch.autograd.grad(total.sum(), a)
    weight = weight.reshape(-1, *(1,) * logits.dim())
    mean = (weight * gradient).sum(0)
    return mean, (weight * (gradient - mean) ** 2).sum(0)


def expected(estimator: Estimator, kind: Kind, logits: Tensor, f: Cost, items: int = 1) -> Tensor:
    return moments(estimator, kind, logits, f, items)[0]


@pytest.mark.parametrize("items", [1, 2])
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("name", UNBIASED)
def test_unbiased_estimators_have_no_bias(name: str, kind: Kind, items: int) -> None:
    """With two items the baselines of other rows are at work: they do not bias either."""
    logits, f = problem(kind)
    assert close(expected(UNBIASED[name](), kind, logits, f, items), target(kind, logits, f))


def test_the_enumeration_would_see_a_bias() -> None:
    """A baseline that keeps a row's own cost in is off by a factor of (rows - 1)/rows, and is found out."""

    class Careless(Score):
        def centred(self, signal: Tensor) -> Tensor:
            return signal - signal.mean(-1, keepdim=True)

    logits, f = problem(BITS)
    wrong = expected(Careless(), BITS, logits, f, items=2)
    assert close(wrong, 0.5 * target(BITS, logits, f))


def test_baselines_and_pairs_lower_the_variance() -> None:
    """At two rows each, on bits: no baseline, that of the other row, an antithetic pair."""
    logits, f = problem(BITS)
    alone = moments(Score(), BITS, logits, f)[1].sum() / 2
    pair, other = (moments(e, BITS, logits, f)[1].sum() for e in (Disarm(), LeaveOneOut(2)))
    assert pair < other < alone
    by_items = moments(Score(), BITS, logits, f, items=2)[1].sum()
    assert close(by_items, other)  # items that are all alike are draws of one


def polynomial(*c: float) -> tuple[Cost, Callable[[float], float]]:
    """f(b) = c_1 b + c_2 b^2 + ... of one bit, (..., 1) -> (...), and its slope."""

    def f(b: Tensor) -> Tensor:
        return torch.stack([k * b[..., 0] ** (i + 1) for i, k in enumerate(c)]).sum(0)

    def slope(b: float) -> float:
        return sum(k * (i + 1) * b**i for i, k in enumerate(c))

    return f, slope


def one_bit(p: float) -> Tensor:
    return torch.tensor([math.log(p / (1 - p))], dtype=torch.float64)


def test_known_biases_on_one_bit() -> None:
    """In p = .2 the target is f(1) - f(0): straight-through has .2 for 2 (3b^2 - b), DARN 2.48 for 3 (4b^3 - b)."""
    a, p = one_bit(0.2), 0.2
    quadratic, cubic = polynomial(-1.0, 3.0)[0], polynomial(-1.0, 0.0, 4.0)[0]
    by_p = p * (1 - p)  # dp/da
    assert close(target(BITS, a, quadratic) / by_p, 2.0)
    assert close(target(BITS, a, cubic) / by_p, 3.0)
    assert close(expected(StraightThrough(), BITS, a, quadratic) / by_p, 0.2)
    assert close(expected(Darn(), BITS, a, cubic) / by_p, 2.48)
    assert close(expected(Darn(), BITS, a, quadratic) / by_p, 2.0)
    assert close(expected(MuProp(), BITS, a, cubic) / by_p, 3.0)


@pytest.mark.parametrize("p", [0.03, 0.5, 0.8])
def test_the_bias_of_straight_through_is_that_of_its_mean_slope(p: float) -> None:
    """E f'(b) dp; with a slope s both draw and mean belong to the logit s a (Chung et al., 2016)."""
    a, (f, slope) = one_bit(p), polynomial(0.3, -2.0, 1.5, 1.0)
    for estimator, s in ((StraightThrough(), 1.0), (SlopeAnnealed(1.0), 1.0), (SlopeAnnealed(2.5), 2.5)):
        steep = torch.sigmoid(s * a)
        mean_slope = (1 - steep) * slope(0.0) + steep * slope(1.0)
        assert close(expected(estimator, BITS, a, f), s * steep * (1 - steep) * mean_slope)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_slope_annealing_is_straight_through_in_a_steeper_distribution(kind: Kind) -> None:
    """In the logits s a the gradient is plain straight-through's, and the target is that of q_(s a)."""
    logits, f = problem(kind)
    steep = expected(SlopeAnnealed(3.0), kind, logits, f)
    assert close(steep, 3 * expected(StraightThrough(), kind, 3 * logits, f))
    assert close(target(kind, logits, f, SlopeAnnealed(3.0)), 3 * target(kind, 3 * logits, f))


@pytest.mark.parametrize("p", [0.03, 0.5, 0.8])
def test_the_bias_of_darn_is_that_of_the_midpoint_rule(p: float) -> None:
    """(1 - p) f'((1 + p)/2) + p f'(p/2) for f(1) - f(0), in p."""
    a, (f, slope) = one_bit(p), polynomial(0.3, -2.0, 1.5, 1.0)
    rule = (1 - p) * slope((1 + p) / 2) + p * slope(p / 2)
    assert close(expected(Darn(), BITS, a, f), p * (1 - p) * rule)


def quadratic_form(logits: Tensor) -> tuple[Cost, Cost]:
    rng = torch.Generator().manual_seed(3)
    n = logits.numel()
    A, c = torch.randn(n, n, generator=rng, dtype=torch.float64), torch.randn(n, generator=rng, dtype=torch.float64)

    def f(b: Tensor) -> Tensor:
        b = b.flatten(b.dim() - logits.dim())
        return torch.einsum("...i,ij,...j->...", b, A, b) + b @ c

    def slope(b: Tensor) -> Tensor:
        return (b.flatten() @ (A + A.T) + c).reshape(logits.shape)

    return f, slope


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_darn_is_exact_for_quadratic_costs_of_several_choices(kind: Kind) -> None:
    logits, tanh = problem(kind)
    f, _ = quadratic_form(logits)
    assert close(expected(Darn(), kind, logits, f), target(kind, logits, f))
    assert not torch.allclose(expected(Darn(), kind, logits, tanh), target(kind, logits, tanh), rtol=0.05)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_straight_through_sees_the_slope_at_the_mean_where_that_is_linear(kind: Kind) -> None:
    """E f'(b) = f'(E b) for quadratic costs, times the Jacobian of the mean: p(1 - p), or diag(pi) - pi pi^T."""
    logits, _ = problem(kind)
    f, slope = quadratic_form(logits)
    mean = kind.mean(logits)
    by_mean = slope(mean)
    wanted = mean * (by_mean - kind.inner(mean, by_mean).unsqueeze(-1)) if kind.event else mean * (1 - mean) * by_mean
    assert close(expected(StraightThrough(), kind, logits, f), wanted)
    assert not torch.allclose(wanted, target(kind, logits, f), rtol=0.05)


# -- relaxed values --------------------------------------------------------------------------------------------------

GRID = ((torch.arange(200_000, dtype=torch.float64) + 0.5) / 200_000)[:, None]


def on_the_grid(estimator: Estimator, a: Tensor, f: Cost) -> float:
    """The expected gradient for one bit, by the midpoint rule over u."""
    leaf = a.clone().requires_grad_()
    return float(torch.autograd.grad(loss(estimator, BITS, leaf.expand_as(GRID), GRID, f), leaf)[0])


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x > 0 else math.exp(x) / (1 + math.exp(x))


def integral(of: Callable[[float], float], low: float, high: float, at: float) -> float:
    return sum(scipy.integrate.quad(of, *ends, epsabs=1e-12, limit=400)[0] for ends in ((low, at), (at, high)))


def by_logistic_noise(a: float, tau: float, slope: Callable[[float], float], hard: bool) -> float:
    """E f'(v) w (1 - w) / tau over logistic noise x, w = sigmoid((a + x) / tau), v = w or its rounding."""

    def density(x: float) -> float:
        w = sigmoid((a + x) / tau)
        v = float(a + x > 0) if hard else w
        return slope(v) * w * (1 - w) / tau * sigmoid(x) * sigmoid(-x)

    return integral(density, -60.0, 60.0, -a)


@pytest.mark.parametrize("tau", [0.25, 0.5, 2.0])
def test_concrete_gates_have_the_gradient_of_their_own_expectation(tau: float) -> None:
    a, (f, slope) = one_bit(0.2), polynomial(-1.0, 0.0, 4.0)
    for estimator, hard in ((Concrete(tau), False), (StraightThroughConcrete(tau), True)):
        assert on_the_grid(estimator, a, f) == pytest.approx(by_logistic_noise(float(a), tau, slope, hard), abs=1e-5)


def test_cold_concrete_loses_its_bias_and_straight_through_concrete_keeps_one() -> None:
    """Concrete tends to the target; its straight-through form to the mean of f'(0) and f'(1): exact for quadratics.

    On the way there the latter is off by tau log 2 (2p - 1)(f'(1) - f'(0)), and by a second order in tau.
    """
    a, by_p, tau = one_bit(0.2), 0.2 * 0.8, 0.01
    biases = [abs(on_the_grid(Concrete(t), a, polynomial(-1.0, 0.0, 4.0)[0]) / by_p - 3.0) for t in (0.5, 0.1, 0.02)]
    assert biases[0] > 3 * biases[1] > 9 * biases[2]
    assert biases[0] > 1
    for c, limit, bend in (((-1.0, 3.0), 2.0, 6.0), ((-1.0, 0.0, 4.0), 5.0, 12.0)):
        found = on_the_grid(StraightThroughConcrete(tau), a, polynomial(*c)[0]) / by_p
        assert found == pytest.approx(limit - 0.6 * tau * math.log(2) * bend, abs=30 * tau**2)


def test_the_sigmoid_gate_has_the_gradient_of_its_own_expectation() -> None:
    """The integral over u of f'(w) w (1 - w) c p (1 - p), w = sigmoid(c (u - 1 + p)): biased at both ends."""
    (f, slope), c = polynomial(-1.0, 0.0, 4.0), 20.0
    for p in (0.02, 0.2, 0.9):

        def density(u: float, p: float = p) -> float:
            w = sigmoid(c * (u - 1 + p))
            return slope(w) * w * (1 - w) * c * p * (1 - p)

        wanted = integral(density, 0.0, 1.0, 1 - p)
        assert on_the_grid(ScaledSigmoid(c), one_bit(p), f) == pytest.approx(wanted, abs=1e-8)
        assert (abs(wanted / (p * (1 - p)) - 3.0) > 0.3) == (p == 0.02)


def test_gumbel_softmax_of_two_categories_is_the_concrete_bit() -> None:
    """The difference of two Gumbel variables is logistic: same expected gradient, with opposite signs."""
    grid = (torch.arange(600, dtype=torch.float64) + 0.5) / 600
    u = torch.cartesian_prod(grid, grid)[:, None, :]
    a, (f, slope) = torch.tensor([[0.3, -0.9]], dtype=torch.float64, requires_grad=True), polynomial(-1.0, 0.0, 4.0)
    for estimator, hard in ((Concrete(0.75), False), (StraightThroughConcrete(0.75), True)):
        total = loss(estimator, ONE_HOTS, a.expand_as(u), u, lambda b: f(b[..., 0, :1]))
        (gradient,) = torch.autograd.grad(total, a)
        wanted = by_logistic_noise(1.2, 0.75, slope, hard)
        assert gradient.flatten().tolist() == pytest.approx([wanted, -wanted], abs=2e-3 * abs(wanted))


def test_gumbel_softmax_draw_by_draw() -> None:
    """dw_i/da_k = w_i (1[i = k] - w_k) / tau for w = softmax((a + Gumbel) / tau); its rounding has the same."""
    logits, f = problem(ONE_HOTS)
    u = torch.rand(50, 2, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    w = torch.softmax((logits - torch.log(-torch.log(u))) / 0.5, -1)
    rounded = torch.nn.functional.one_hot(w.argmax(-1), 3).double()
    for estimator, v in ((Concrete(0.5), w), (StraightThroughConcrete(0.5), rounded)):
        a = logits.expand_as(u).clone().requires_grad_()
        choice = estimator.choose(ONE_HOTS, a, u)
        assert close(choice.value, v)
        v = v.detach().requires_grad_()
        (slope,) = torch.autograd.grad(f(v).sum(), v)
        (gradient,) = torch.autograd.grad(f(choice.value).sum(), a)
        assert close(gradient, w * (slope - (w * slope).sum(-1, keepdim=True)) / 0.5)


# -- size ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("form", [Score, LeaveOneOut, MuProp, Darn])
def test_a_gradient_is_as_large_as_its_cost_so_that_exact_terms_keep_their_weight_beside_it(
    form: Any, kind: Kind
) -> None:
    def gradient(scale: float) -> Tensor:
        logits, f = problem(kind)
        a = logits.expand(8, *logits.shape).clone().requires_grad_()
        u = torch.rand(a.shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
        return torch.autograd.grad(loss(form(), kind, a, u, lambda b: scale * f(b)), a)[0]

    assert close(gradient(100.0), 100 * gradient(1.0))


# -- the table -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_the_table_sees_what_is_biased(kind: Kind) -> None:
    """By draws: a bias is beyond 4 standard errors; where none is seen, these are below 5 % of the gradient."""
    for name, make in table.CASES.items():
        if kind.name not in make().kinds:
            continue
        row = table.row(name, kind, 20_000)
        none_seen = row["bias"] < 4 * row["noise"]
        assert none_seen == (name in table.UNBIASED), row
        assert 4 * row["noise"] < 0.05 or not none_seen, row
        assert row["rows"] == make().points


def test_the_table_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["estimators", "--out", str(tmp_path), "--repeats", "50"])
    table.main()
    written = (tmp_path / "estimators.json").read_text()
    assert all(name in written for name in table.CASES)
    assert {type(make()) for make in table.CASES.values()} == set(GATES.values())


# -- through the objective, a model and its slabs --------------------------------------------------------------------

D, ALPHA, KL_WEIGHT = 2, 0.3, 0.75
X = torch.tensor([[0.5, -1.0], [1.5, 0.3]], dtype=torch.float64)


class Given:
    """Noise by hand, site by site."""

    def __init__(self, normals: list[Tensor], uniforms: list[Tensor]) -> None:
        self.normals, self.uniforms = iter(normals), iter(uniforms)

    def normal(self, like: Tensor) -> Tensor:
        return next(self.normals)

    def uniform(self, like: Tensor) -> Tensor:
        return next(self.uniforms)


def vsc(gate: Estimator, J: int, members: tuple[int, ...] = ()) -> LatentModel:
    """Random weights, a decoder that is not linear, double precision."""
    encoder, decoder = mlp([D, 3 * J], members), mlp([J, 5, D], members)
    decoder[1] = nn.Tanh()
    model = LatentModel(encoder, SpikeSlabPosterior(gate), decoder, FixedGaussianData(0.5), FixedSpikeSlab(J, ALPHA))
    initialise(model, torch.Generator().manual_seed(2))
    with torch.no_grad():
        decoder[0].weight.mul_(3)
        decoder[2].weight.mul_(3)
    return model.double()


def signs(J: int) -> Tensor:
    """Slab noise that takes two values, +-1, so that it can be enumerated too: (2^J, J)."""
    return 2.0 * every(2, J).double() - 1


def objective() -> Objective:
    return Objective(nll, kl, weights={"kl_z": KL_WEIGHT}).double()


def gradients_of(total: Tensor, model: nn.Module) -> dict[str, Tensor]:
    names, parameters = zip(*model.named_parameters(), strict=True)
    return dict(zip(names, torch.autograd.grad(total, parameters), strict=True))


def outcomes(gate: Estimator, model: LatentModel, n_samples: int) -> tuple[Tensor, Tensor, Tensor]:
    """Every joint outcome of gates and slab noise: eps and u, (outcomes, rows, J), and probabilities."""
    q = model.encode(X)
    assert isinstance(q, SpikeSlab)
    J = q.logits.shape[-1]
    free = n_samples * len(X) * (1 if gate.coupled else gate.points)
    tables = [cells(gate, BITS, a) for a in q.logits.detach()]
    which = every(len(tables[0][1]) * 2**J, free)
    cell, sign = which // 2**J, which % 2**J
    u = torch.stack([tables[r % len(X)][0][cell[:, r]] for r in range(free)], 1)
    p = torch.stack([tables[r % len(X)][1][cell[:, r]] for r in range(free)], 1).prod(1) / 2 ** (J * free)
    eps = signs(J)[sign]
    if gate.coupled:  # what stands in the other rows is not looked at
        u, eps = (torch.cat([t, torch.full_like(t, 0.321)], 1) for t in (u, eps))
    return eps, u, p


def expected_of(gate: Estimator, J: int, n_samples: int) -> dict[str, Tensor]:
    """The expected gradient of the training loss, for every parameter."""
    model = vsc(gate, J)
    eps, u, p = outcomes(gate, model, n_samples)
    assert close(p.sum(), 1.0)
    rows = X.repeat(n_samples * gate.points, 1)
    assert n_samples * gate.points == n_samples * points(model)[0]
    total, _ = objective()(model(rows.expand(len(p), -1, -1), Draw(Given([eps], [u]), hard=False)))
    return gradients_of((p * total).sum(), model)


def by_gates(model: LatentModel, J: int) -> tuple[SpikeSlab, Tensor, Tensor, Cost]:
    """q, every row of gates b (G, 1, 1, J), log q(b_j) (G, 1, B, J), and the cost as a function of gates.

    Gates (..., 2^J, B, J) meet the slab noise in the dimension before the items; the cost (..., B) is the mean over it.
    """
    q = model.encode(X)
    assert isinstance(q, SpikeSlab)
    b = values(BITS, q.logits.shape[1:])[:, None, None]
    eps = signs(J)[:, None]

    def cost(gates: Tensor) -> Tensor:
        return -model.decode(gates * (q.loc + q.scale * eps)).log_prob(X).mean(-2)

    return q, b, BITS.log_prob(q.logits, b), cost


def divergence_of(model: LatentModel) -> Tensor:
    return KL_WEIGHT * divergence(model.encode(X), model.prior(X, model.encode)).mean()


def exact_of(J: int, gate: Estimator | None = None) -> dict[str, Tensor]:
    """The gradient of the true objective, summed over gates and slab noise, in the distribution that the gate makes."""
    model = vsc(gate or AlwaysOn(), J)
    _, b, log_q, cost = by_gates(model, J)
    reconstruction = (log_q.sum(-1).exp().squeeze(1) * cost(b)).sum(0).mean()
    return gradients_of(reconstruction + divergence_of(model), model)


@pytest.mark.parametrize(("J", "n_samples"), [(1, 1), (1, 2), (2, 1)])
@pytest.mark.parametrize("name", UNBIASED)
def test_a_model_learns_by_the_gradient_of_its_true_bound(name: str, J: int, n_samples: int) -> None:
    """Gates, slabs and decoder; items that differ, several draws of each, several rows a draw."""
    got, wanted = expected_of(UNBIASED[name](), J, n_samples), exact_of(J)
    for k in wanted:
        assert close(got[k], wanted[k]), k


@pytest.mark.parametrize("gate", [StraightThrough(), SlopeAnnealed(2.0), Darn()])
def test_a_biased_gate_with_hard_draws_biases_nothing_but_the_gates(gate: Estimator) -> None:
    """Slabs and decoder see true draws. The encoder's rows are loc, log-variance and gate logits, two each."""
    got, wanted = expected_of(gate, 2, 1), exact_of(2, gate)
    for k in wanted:
        true = slice(4) if k.startswith("encoder") else slice(None)
        assert close(got[k][true], wanted[k][true]), k
    for k in ("encoder.0.weight", "encoder.0.bias"):
        assert not torch.allclose(got[k][4:], wanted[k][4:], rtol=0.05), k


def test_darn_s_gates_learn_by_the_slope_between_draw_and_mean() -> None:
    """f'((b + p)/2)(b - p) dlog q, summed over gates and slab noise, and the KL."""
    model = vsc(AlwaysOn(), 2)
    q, b, log_q, cost = by_gates(model, 2)
    between = ((b + q.p_on) / 2).expand(4, 4, -1, -1).detach().requires_grad_()
    (slope,) = torch.autograd.grad(cost(between).sum(), between)  # of a mean over slab noise: each has its share
    chance = log_q.sum(-1, keepdim=True).exp().detach()
    surrogate = (chance * slope.sum(1, keepdim=True) * (b - q.p_on).detach() * log_q).sum((0, 1, 3)).mean()
    wanted = torch.autograd.grad(surrogate + divergence_of(model), model.encoder[0].bias)[0]
    assert close(expected_of(Darn(), 2, 1)["encoder.0.bias"][4:], wanted[4:])


@pytest.mark.parametrize(
    "gate", [ScaledSigmoid(20.0), Concrete(0.5), StraightThroughConcrete(0.5), StraightThrough(), SlopeAnnealed(2.0)]
)
def test_values_that_carry_their_gradient_pass_it_to_the_gates(gate: Estimator) -> None:
    """f'(v) dv/da over a grid of noise and both slab noises, v and its derivative by hand, and the KL."""
    u = ((torch.arange(500, dtype=torch.float64) + 0.5) / 500)[:, None, None, None]
    model = vsc(gate, 1)
    q, _, _, cost = by_gates(model, 1)
    a, p = q.logits.detach(), q.p_on.detach()
    hard = (u > 1 - p).double()
    leaking, relaxed = torch.sigmoid(20 * (u - 1 + p)), torch.sigmoid(2 * (a + torch.log(u / (1 - u))))
    v, slope_of_v = {
        ScaledSigmoid: (leaking, leaking * (1 - leaking) * 20 * p * (1 - p)),
        Concrete: (relaxed, relaxed * (1 - relaxed) * 2),
        StraightThroughConcrete: (hard, relaxed * (1 - relaxed) * 2),
        StraightThrough: (hard, (p * (1 - p)).expand_as(hard)),
        SlopeAnnealed: (hard, (p * (1 - p)).expand_as(hard)),  # in the distribution's logits, which are 2 a
    }[type(gate)]
    v = v.expand(-1, 2, -1, -1).clone().requires_grad_()
    (slope,) = torch.autograd.grad(cost(v).sum(), v)
    surrogate = ((slope * slope_of_v).sum(1).mean(0) * q.logits).sum(-1).mean()
    wanted = torch.autograd.grad(surrogate + divergence_of(model), model.encoder[0].bias)[0]

    shape = (500, 2, len(X), 1)
    eps = signs(1)[:, None].expand(shape).flatten(0, 1)
    trace = model(X.expand(1000, -1, -1), Draw(Given([eps], [u.expand(shape).flatten(0, 1)]), hard=False))
    got = gradients_of(objective()(trace)[0].mean(), model)["encoder.0.bias"]
    assert close(got[2:], wanted[2:])


def trained(name: str, n_samples: int = 3) -> tuple[LatentModel, Estimator, Trace]:
    """A training trace of a model with three units: items, draws and points in one batch."""
    gate = GATES[name]()
    model = vsc(gate, 3)
    noise = Fresh(torch.Generator().manual_seed(4))
    return model, gate, model(X.repeat(n_samples * gate.points, 1), Draw(noise, hard=False))


@pytest.mark.parametrize("name", GATES)
def test_surrogates_have_no_value_and_terms_are_those_of_true_draws(name: str) -> None:
    """Loss, reported terms and the decoder's gradient are those of the first blocks of rows, the draws, alone."""
    model, gate, trace = trained(name)
    total, terms = objective()(trace)
    draws = 3 * gate.draws * len(X)
    assert len(trace.latents["z"].value) == 3 * gate.points * len(X)
    true = -model.decode(trace.latents["z"].value[:draws]).log_prob(X.repeat(3 * gate.draws, 1))
    assert close(terms["nll_x"], true.mean())
    q = model.encode(X)
    assert close(terms["kl_z"], divergence(q, model.prior(X, model.encode)).mean())
    assert torch.equal(total, terms["nll_x"] + KL_WEIGHT * terms["kl_z"])
    decoder = list(model.decoder.parameters())
    wanted = torch.autograd.grad(true.mean(), decoder, retain_graph=True)
    for got, own in zip(torch.autograd.grad(total, decoder), wanted, strict=True):
        assert close(got, own)
    if name not in ("sigmoid", "concrete"):  # hard forwards: exact zeros in the code
        assert set(trace.latents["z"].q.choice.value[:draws].detach().unique().tolist()) == {0.0, 1.0}
        assert bool((trace.latents["z"].value[:draws] == 0).any())


@pytest.mark.parametrize("name", GATES)
def test_a_hard_trace_knows_nothing_of_estimators(name: str) -> None:
    """Neither more rows nor a surrogate: any number of rows, and no gradient through the gates but the KL's."""
    model = vsc(GATES[name](), 3)
    trace = model(X[:1], Draw(Fresh(torch.Generator().manual_seed(0)), hard=True))
    total, _ = objective()(trace)
    q = trace.latents["z"].q
    assert q.choice is None
    by_logits = torch.autograd.grad(total, q.logits, retain_graph=True)[0]
    own = torch.autograd.grad(KL_WEIGHT * divergence(q, trace.latents["z"].p).mean(), q.logits)[0]
    assert close(by_logits, own)


@pytest.mark.parametrize("members", [(2,), (2, 2)])
@pytest.mark.parametrize("name", GATES)
def test_a_stack_learns_as_its_members_do(name: str, members: tuple[int, ...]) -> None:
    """Costs, baselines, deviations and knobs are each member's own; so is the weight of its KL."""
    gate, n = GATES[name](), int(np.prod(members))
    stack = vsc(gate, 3, members)
    knob = (0.5 + torch.arange(n).double()).reshape(members)
    for k in gate.knobs:
        setattr(gate, k, knob)
    weights = ((1 + torch.arange(n).double()) / 4).reshape(members)
    weigh = objective()
    weigh.kl_z = weights
    rng = torch.Generator().manual_seed(6)
    rows = X.repeat(2 * gate.points, 1)
    eps = torch.randn(*members, len(rows), 3, generator=rng, dtype=torch.float64)
    u = torch.rand(*members, len(rows), 3, generator=rng, dtype=torch.float64)
    total, terms = weigh(stack(rows, Draw(Given([eps], [u]), hard=False)))
    assert total.shape == members
    together = gradients_of(total.sum(), stack)
    for m in np.ndindex(*members):
        own_gate = GATES[name]()
        for k in gate.knobs:
            setattr(own_gate, k, knob[m])
        alone = vsc(own_gate, 3)
        alone.load_state_dict({k: v[m] for k, v in stack.state_dict().items()})
        own_weigh = Objective(nll, kl, weights={"kl_z": float(weights[m])}).double()
        own, own_terms = own_weigh(alone(rows, Draw(Given([eps[m]], [u[m]]), hard=False)))
        assert close(own, total[m])
        assert all(close(v, terms[k][m]) for k, v in own_terms.items())
        for k, v in gradients_of(own, alone).items():
            assert torch.allclose(v, together[k][m], rtol=1e-7, atol=1e-10), k


# -- two sites -------------------------------------------------------------------------------------------------------


class Chain(nn.Module):
    """z spike-and-slab, then y ~ N(w z, 1) against N(0, 1), then x ~ N(tanh y, 1): the KL of y depends on z."""

    def __init__(self, gate: Estimator) -> None:
        super().__init__()
        self.gate = gate
        self.a = nn.Parameter(torch.tensor([0.4], dtype=torch.float64))
        self.w = nn.Parameter(torch.tensor([1.3], dtype=torch.float64))

    def slab(self, rows: tuple[int, ...]) -> SpikeSlab:
        one = torch.ones(1, dtype=torch.float64)
        return SpikeSlab(self.a.expand(*rows, 1), one, one, self.gate)

    def sites(self, q: SpikeSlab, z: Tensor, eps: Tensor, x: Tensor, hard: bool) -> Trace:
        zero, one = torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
        y = normal(self.w * z, one.expand_as(z))
        drawn = self.w * z + eps
        prior = SpikeSlab(torch.full_like(q.logits, -1.0), zero, one)
        latents = {"z": Site(q, prior, z), "y": Site(y, normal(zero, one), drawn)}
        return Trace(latents, {"x": Observed(normal(torch.tanh(drawn), one.expand_as(z)), x)}, hard)


@pytest.mark.parametrize("name", UNBIASED)
def test_a_later_site_s_exact_kl_is_part_of_an_earlier_draw_s_cost(name: str) -> None:
    gate = UNBIASED[name]()
    model, x = Chain(gate), torch.tensor([[1.2]], dtype=torch.float64)
    free = 1 if gate.coupled else gate.points
    u_table, p_table = cells(gate, BITS, model.a.detach())
    which = every(len(p_table) * 2, free)  # gates and slab noise of every free row, then the noise of y in all rows
    cell, sign = which // 2, which % 2
    first = [u_table[cell], 2.0 * sign.double().unsqueeze(-1) - 1]
    if gate.coupled:
        first = [torch.cat([t, torch.full_like(t, 0.3)], 1) for t in first]
    own = signs(gate.points).unsqueeze(-1)
    u, eps = (t.repeat_interleave(len(own), 0) for t in first)
    noise = own.repeat(len(which), 1, 1)
    p = (p_table[cell].prod(1) / 2**free).repeat_interleave(len(own)) / len(own)
    assert close(p.sum(), 1.0)
    q = model.slab(u.shape[:-1])
    total, _ = Objective(nll, kl)(model.sites(q, q.draw(eps, u, hard=False), noise, x.expand_as(u), False))
    got = gradients_of((p * total).sum(), model)

    on = torch.tensor([0.0, 1.0], dtype=torch.float64)[:, None, None, None]
    dist = model.slab((2, 2, 2))
    trace = model.sites(dist, on * (1 + signs(1)[:, None]), signs(1), x, True)
    cost = sum(nll(trace).values()) + kl(trace)["kl_y"]
    chance = torch.cat([torch.sigmoid(-model.a), torch.sigmoid(model.a)])[:, None, None]
    wanted = gradients_of((chance * cost).sum() / 4 + kl(trace)["kl_z"].mean(), model)
    for k in wanted:
        assert close(got[k], wanted[k]), k


@pytest.mark.parametrize("name", ["score", "rloo", "muprop"])
def test_bits_whose_distribution_depends_on_other_bits_have_no_bias(name: str) -> None:
    """b ~ Bernoulli(a), c ~ Bernoulli(v + w b), each with an estimator: MuProp expands at each row's own mean."""
    estimator = UNBIASED[name]()
    theta = torch.tensor([0.4, -0.7, 1.8], dtype=torch.float64, requires_grad=True)  # a, v, w

    def f(b: Tensor, c: Tensor) -> Tensor:
        return (torch.tanh(2 * b - c) + (b * c - 0.3) ** 3 + c.square()).squeeze(-1)

    def later(theta: Tensor, b: Tensor) -> Tensor:
        return theta[1] + theta[2] * b

    free = 1 if estimator.coupled else estimator.points
    drawn = every(2, 2 * free).double()[..., None]
    b, c = drawn[:, :free], drawn[:, free:]
    off = [torch.sigmoid(-a).detach().expand_as(b) for a in (theta[0], later(theta, b))]
    noise = [torch.where(t == 1, (1 + o) / 2, o / 2) for t, o in zip((b, c), off, strict=True)]
    chance = torch.stack([torch.where(t == 1, 1 - o, o) for t, o in zip((b, c), off, strict=True)]).prod(0).prod(1)
    if estimator.coupled:
        noise = [torch.cat([t, torch.full_like(t, 0.9)], 1) for t in noise]
    first = estimator.choose(BITS, theta[0].expand_as(noise[0]), noise[0])
    second = estimator.choose(BITS, later(theta, first.value), noise[1])
    sites: dict[str, Any] = {
        k: Site(SimpleNamespace(choice=t), None, t.value) for k, t in (("b", first), ("c", second))
    }
    reported = Objective(lambda t: {"cost": f(t.latents["b"].value, t.latents["c"].value)})
    total, _ = reported(Trace(sites, {}, hard=False))
    (got,) = torch.autograd.grad((chance[:, 0] * total).sum(), theta)

    b, c = values(BITS, torch.Size([2])).split(1, -1)
    log_q = BITS.log_prob(theta[0].expand_as(b), b) + BITS.log_prob(later(theta, b), c)
    (wanted,) = torch.autograd.grad((log_q.exp().squeeze(-1) * f(b, c)).sum(), theta)
    assert close(got, wanted)


def test_rows_of_one_model_are_agreed_on() -> None:
    """Values that carry their own gradient go with anything; so does one row with several draws, not with points."""

    def ask(*estimators: Estimator) -> tuple[int, int]:
        return points(nn.ModuleList(estimators))

    assert ask() == ask(Concrete(), StraightThrough(), AlwaysOn()) == ask(Score()) == (1, 1)
    assert ask(LeaveOneOut(3), Concrete()) == ask(LeaveOneOut(3), Score()) == (3, 3)
    assert ask(Disarm(), Disarm()) == ask(Disarm(), LeaveOneOut(2)) == (2, 2)
    assert ask(MuProp(), Darn(), Concrete()) == (2, 1)
    for estimators in ((MuProp(), Score()), (Darn(), Disarm()), (LeaveOneOut(2), LeaveOneOut(3))):
        with pytest.raises(ValueError, match=r"must need the same rows, got \(points, draws\) \[\("):
            ask(*estimators)


# -- the estimator ---------------------------------------------------------------------------------------------------


def data() -> np.ndarray:
    rng = np.random.default_rng(0)
    codes = rng.normal(size=(200, 4)) * (rng.random((200, 4)) < 0.4)
    return (2 * codes @ rng.normal(size=(4, 8)) + 0.1 * rng.normal(size=(200, 8))).astype(np.float32)


def make(name: str, **changes: Any) -> sv.VSC:
    settings = {"steps": 250, "batch_size": 40, "learning_rate": 1e-2, "report_every": 20, "verbose": 0} | changes
    return sv.VSC(4, hidden=(16,), alpha=0.3, gate=name, training=sv.Training(**settings))


def weights(est: sv.VSC) -> Tensor:
    return torch.cat([p.flatten() for p in est.model_.parameters()])


@pytest.mark.parametrize("name", GATES)
def test_vsc_trains_with_every_gate_and_repeats_itself(name: str) -> None:
    """The loss falls, the true bound rises above that of an untrained model, and a second run has the same bits."""
    est = make(name, n_samples=2, steps=150, learning_rate=2e-2).fit(data())
    losses = est.history_.column("loss")
    assert losses[-1] < losses[0] - 0.5
    assert est.score(data()) > make(name, steps=1).fit(data()).score(data()) + 1
    assert torch.equal(*(weights(make(name, n_samples=2, steps=20).fit(data())) for _ in range(2)))
    assert torch.isfinite(torch.as_tensor(est.importance_bound(data()[:5], n_samples=10).bound)).all()


@pytest.mark.parametrize("name", GATES)
def test_the_loop_repeats_a_batch_as_often_as_draws_and_points_ask_for(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    forward, seen = LatentModel.forward, []

    def watch(self: LatentModel, batch: Batch, draw: Draw) -> Trace:
        if not draw.hard:
            seen.append(batch.x)
        return forward(self, batch, draw)

    monkeypatch.setattr(LatentModel, "forward", watch)
    make(name, n_samples=3, steps=2).fit(data())
    for x in seen:
        blocks = x.unflatten(0, (3 * GATES[name]().points, 40))  # and 40 items, the same in each
        assert bool((blocks == blocks[0]).all())
        assert len(x[:40].unique(dim=0)) == 40
    assert len(seen) == 3  # one for the tape


def test_a_run_with_points_that_are_no_draws_resumes_to_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = {"steps": 40, "checkpoint_every": 10, "folder": str(tmp_path / "run")}
    whole = make("muprop", steps=40).fit(data())
    advance = Run.advance

    def stop(self: Run) -> None:
        if self.step == 25:
            raise RuntimeError("stopped here")
        advance(self)

    monkeypatch.setattr(Run, "advance", stop)
    with pytest.raises(RuntimeError, match="stopped here"):
        make("muprop", **chosen).fit(data())
    seen: list[int] = []

    def watch(self: Run) -> None:
        seen.append(self.step)
        advance(self)

    monkeypatch.setattr(Run, "advance", watch)
    resumed = make("muprop", resume=True, **chosen).fit(data())
    assert seen == list(range(20, 40))
    assert torch.equal(weights(resumed), weights(whole))


# -- errors ----------------------------------------------------------------------------------------------------------


class Strange:
    """A kind that nothing knows."""

    name, event = "strange", 0


def test_an_estimator_refuses_kinds_that_it_is_not_defined_for() -> None:
    a, u = torch.zeros(2, 2, 3), torch.full((2, 2, 3), 0.5)
    with pytest.raises(ValueError, match=r"ScaledSigmoid is not defined for one-hots; it is for bits\."):
        ScaledSigmoid().choose(ONE_HOTS, a, u)
    for form in ESTIMATORS.values():
        with pytest.raises(ValueError, match=f"{form.__name__} is not defined for strange; it is for bits"):
            form().choose(Strange(), a, u)  # type: ignore[arg-type]
    capped = {name for name, form in ESTIMATORS.items() if "capped" in form.kinds}
    mean = {"straight-through-concrete", "straight-through", "slope-annealed"}
    assert capped == {*mean, "score", "normalised-score", "rloo"}


def first_gradient(cls: type[sv.SparseCoder], X: np.ndarray, rate: float = 0.5, **own: Any) -> dict[str, Tensor]:
    """By which the first step moves each weight: from two rates, since w_r = w_0 - r g."""

    def weights(rate: float) -> dict[str, Tensor]:
        training = sv.Training(steps=1, batch_size=100, learning_rate=rate, optimizer="momentum", seed=0, verbose=0)
        return dict(cls(6, hidden=(), training=training, **own).fit(X).model_.named_parameters())

    near, far = weights(rate), weights(2 * rate)
    return {k: ((near[k] - far[k]) / rate).detach() for k in near}


# Without so sharp a likelihood MuProp leaves less than a nat over, and nothing is divided.
SHARP = {"likelihood": "fixed-gaussian", "variance": 0.01, "rate": 1e-4}


@pytest.mark.parametrize(
    ("cls", "own", "name"),
    [
        (sv.DiscreteVAE, {"learned_prior": True}, "score"),
        (sv.DiscreteVAE, {"learned_prior": True, **SHARP}, "muprop"),
        (sv.DiscreteVAE, {"learned_prior": True}, "darn"),
        (sv.DiscreteVAE, {"categories": 3, "learned_prior": True}, "score"),
        (sv.DiscreteVAE, {"categories": 3, "learned_prior": True, **SHARP}, "muprop"),
        (sv.DiscreteVAE, {"categories": 3, "learned_prior": True}, "darn"),
        (sv.SDLGM, {"cap": 2, "features": "counts"}, "score"),
        (sv.SDLGM, {"cap": 2, "features": "distinct"}, "score"),
    ],
)
def test_variance_normalisation_slows_the_encoder_alone_and_its_kl_with_it(
    cls: Any, own: dict[str, Any], name: str
) -> None:
    """One number divides every gradient of the encoder, that of the exact KL too; decoder and prior keep theirs."""
    X = sv.data.load("digits").X
    plain, slowed = (first_gradient(cls, X, gradient=g, **own) for g in (name, f"normalised-{name}"))
    ratios = {k: plain[k].norm() / slowed[k].norm() for k in plain if plain[k].norm() > 1e-3}
    encoder = {k for k in ratios if k.startswith("encoder")}
    deviation = torch.stack([ratios[k] for k in encoder]).mean()
    assert deviation > 2  # of what a digit's likelihood makes of a draw, in nats
    assert 0 < len(encoder) < len(ratios)
    for k in ratios:
        wanted = plain[k] / deviation if k in encoder else plain[k]
        assert torch.allclose(slowed[k], wanted, rtol=1e-3, atol=2e-4), k


def test_variance_normalisation_leaves_the_slabs_of_vsc_alone() -> None:
    """Only the gates' rows of the last layer learn more slowly: means and widths have a gradient of their own."""
    X = sv.data.load("digits").X
    own: dict[str, Any] = {"alpha": 0.3, "start": "random"}
    plain, slowed = (first_gradient(sv.VSC, X, gate=g, **own) for g in ("score", "normalised-score"))
    (name,) = (k for k in plain if k.startswith("encoder") and k.endswith("bias") and len(plain[k].flatten()) == 18)
    ratio = (plain[name] / slowed[name]).flatten()
    even = (ratio - 1).abs() < 1e-2
    assert int(even.sum()) == 12
    assert float(ratio[~even].min()) > 2
    assert torch.allclose(ratio[~even], ratio[~even].mean(), rtol=1e-2)


@pytest.mark.parametrize("name", ["disarm", "muprop", "darn"])
def test_rows_that_do_not_come_in_pairs_are_refused(name: str) -> None:
    a, u = torch.zeros(3, 2), torch.full((3, 2), 0.5)
    with pytest.raises(ValueError, match=r"compares 2 rows of each item, got 3 rows in all: .* x\.repeat\(2, 1\)"):
        GATES[name]().choose(BITS, a, u)
    with pytest.raises(ValueError, match="compares 2 rows"):
        GATES[name]().couple(u)


def test_leave_one_out_needs_two_draws_and_its_rows() -> None:
    for samples in (1, 0):
        with pytest.raises(ValueError, match=f"at least 2 draws of an item, got {samples}"):
            LeaveOneOut(samples)
    with pytest.raises(ValueError, match="LeaveOneOut compares 4 rows of each item, got 6 rows"):
        loss(LeaveOneOut(), BITS, torch.zeros(6, 2), torch.full((6, 2), 0.5), lambda b: b.sum(-1))


def test_a_term_of_the_whole_batch_is_no_cost_of_a_row() -> None:
    """A KL with free bits belongs to the batch too, but no draw changes it."""
    _, _, trace = trained("rloo")
    with pytest.raises(
        ValueError, match=r"learns from the cost of each row, and \['capacity_gap'\] belong to the batch"
    ):
        Objective(nll, Capacity(1.0))(trace)
    total, terms = Objective(nll, free_bits(0.1))(trace)
    assert close(total, terms["nll_x"] + terms["kl_z"])
    _, _, relaxed = trained("concrete")
    assert bool(torch.isfinite(Objective(nll, Capacity(1.0))(relaxed)[0]))


def test_the_plain_estimator_is_none() -> None:
    with pytest.raises(NotImplementedError):
        Estimator()(BITS, torch.zeros(1), torch.zeros(1))
    with pytest.raises(NotImplementedError):
        Estimator().surrogate(torch.zeros(1), None)  # type: ignore[arg-type]
