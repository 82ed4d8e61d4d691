"""HSVAE: KLs in closed form and by one sample, bounds against an exact likelihood, gammas shared as told, codes."""

from __future__ import annotations

import itertools
import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.integrate
import scipy.optimize
import scipy.special
import scipy.stats
import torch
from torch import Tensor, nn

import sparsevae as sv
from sparsevae import metrics
from sparsevae.distributions.kl import divergence, unit_divergence
from sparsevae.distributions.logit_beta import LogitBeta
from sparsevae.distributions.mixtures import TwoNormals, spike_slab
from sparsevae.distributions.spike_slab import SpikeSlab
from sparsevae.estimator.scores import bounds_of
from sparsevae.latent import codes
from sparsevae.latent.bounds import Bounds, bounds
from sparsevae.latent.model import LatentModel, Site, Trace
from sparsevae.latent.objective import Objective, free_bits, kl, nll
from sparsevae.latent.posteriors import HierarchicalPosterior
from sparsevae.latent.priors import BetaGates
from sparsevae.likelihoods.bernoulli import BernoulliData
from sparsevae.likelihoods.gaussian import FixedGaussianData
from sparsevae.models.hsvae import Hierarchical
from sparsevae.networks.dense import Linear, initialise, mlp
from sparsevae.sampling.draw import Draw
from sparsevae.sampling.gradients import GATES, Disarm, LeaveOneOut, StraightThroughConcrete, points
from sparsevae.sampling.noise import Fresh, PerRow, Tape, row_keys
from sparsevae.testing import check_model

pytestmark = pytest.mark.filterwarnings("ignore::sparsevae.exceptions.SparsityWarning")
DIGITS = sv.data.load("digits")
BITS = (DIGITS.X > 127).astype(np.float32)


def fresh(seed: int = 0, *, hard: bool = True) -> Draw:
    return Draw(Fresh(torch.Generator().manual_seed(seed)), hard=hard)


PLAIN = {"skip": False, "start": "random", "code": "mode"}  # networks and codes of the paper


def fitted(X: Any = BITS, steps: int = 60, n: int = 8, **own: Any) -> Any:
    training = sv.Training(steps=steps, verbose=0, learning_rate=5e-3)
    return sv.HSVAE(n, **{"hidden": (16,), "training": training} | PLAIN | own).fit(X)


@cache
def partly_on(spike: float) -> Any:
    """A model some of whose gates are open, for those who leave it as it is."""
    return fitted(steps=200, spike_scale=spike, kl_gamma=0.1)


def gaussian_kl(loc: Any, scale: Any) -> Any:
    """KL(N(loc, scale^2) || N(0, 1))."""
    return 0.5 * (loc**2 + scale**2 - 1) - np.log(scale)


# -- the KL of z given gamma -----------------------------------------------------------------------------------------


def test_with_one_gamma_on_both_sides_the_kl_of_z_is_the_slabs_share() -> None:
    """(1 - gamma) KL_N, value and gradient: no Bernoulli term is left, whatever gamma is."""
    gamma = torch.tensor([-30.0, -2.0, 0.0, 1.1, 30.0], dtype=torch.float64, requires_grad=True)
    loc, scale = torch.tensor([1.0, -0.5, 2.0, 0.0, 3.0]).double(), torch.tensor([0.3, 0.9, 0.1, 1.0, 2.0]).double()
    q, p = (spike_slab(-gamma, *slab, 0.0) for slab in ((loc, scale), (torch.zeros(5), torch.ones(5))))
    off, each = torch.sigmoid(gamma.detach()), torch.tensor(gaussian_kl(loc.numpy(), scale.numpy()))
    got = unit_divergence(q, p)
    assert torch.allclose(got, (1 - off) * each, rtol=1e-12, atol=1e-15)
    (slope,) = torch.autograd.grad(got.sum(), gamma)
    assert torch.allclose(slope, -off * (1 - off) * each, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize(("loc", "scale", "exact", "limit"), [(1.0, 0.3, 0.2845, 0.3122), (0.0, 0.05, 0.246, 0.624)])
def test_a_spike_of_some_width_costs_less_than_the_limit(loc: float, scale: float, exact: float, limit: float) -> None:
    """gamma = .75, spike .05: the KL by quadrature, the mean of one-sample estimates, and the limit of zero width."""
    logits, n = torch.full((200_000, 1), math.log(1 / 3), dtype=torch.float64), 200_000
    slab = [torch.full((n, 1), v, dtype=torch.float64) for v in (loc, scale)]
    q, p = spike_slab(logits, *slab, 0.05), spike_slab(logits, torch.zeros(1), torch.ones(1), 0.05)
    grid = torch.linspace(-8, 8, 400_001, dtype=torch.float64)[:, None]
    one = [TwoNormals(d.off[0], 0.05, 1, logits=d.logits[0], loc=d.loc[0], scale=d.scale[0]) for d in (q, p)]
    log_q, log_p = (d.log_prob(grid) for d in one)
    by_quadrature = float(torch.trapezoid(log_q.exp() * (log_q - log_p), grid[:, 0]))
    assert by_quadrature == pytest.approx(exact, abs=6e-4)
    assert 0.25 * gaussian_kl(loc, scale) == pytest.approx(limit, abs=6e-4)
    each = unit_divergence(q, p, fresh()(q))
    assert abs(float(each.mean()) - by_quadrature) < 4 * float(each.std()) / n**0.5
    if loc:
        assert float(each.std()) == pytest.approx(0.66, abs=0.01)  # for a mean of .28: why zeros are the default


def test_the_two_normals_of_a_posterior_are_scipy_s_and_draws_follow_them() -> None:
    logits, loc, scale = (torch.tensor([v], dtype=torch.float64) for v in (0.4, -0.8, 0.3))
    q = spike_slab(logits, loc, scale, 0.05)
    assert isinstance(q, TwoNormals)
    off = scipy.special.expit(-0.4)
    z = np.linspace(-3, 3, 11)
    pdf = off * scipy.stats.norm.pdf(z, 0, 0.05) + (1 - off) * scipy.stats.norm.pdf(z, -0.8, 0.3)
    np.testing.assert_allclose(q.log_prob(torch.tensor(z)[:, None]).exp().numpy(), pdf, rtol=1e-10)

    def cdf(z: Any) -> Any:
        return off * scipy.stats.norm.cdf(z, 0, 0.05) + (1 - off) * scipy.stats.norm.cdf(z, -0.8, 0.3)

    n = 100_000
    for drawn in (fresh()(q.expand((n,))), fresh(hard=False)(_gated(q, n))):  # straight-through: the same law
        values = drawn.detach()
        assert scipy.stats.kstest(values.numpy().ravel(), cdf).pvalue > 1e-3
        for moment, wanted in ((values, q.mean), ((values - q.mean).square(), q.variance)):
            assert bool(((moment.mean(0) - wanted).abs() < 5 * moment.std(0) / n**0.5).all())
    assert q.mode.tolist() == [-0.8]
    assert spike_slab(-logits, loc, scale, 0.05).mode.tolist() == [0.0]


def _gated(q: TwoNormals, n: int) -> TwoNormals:
    logits, loc, scale = (t.expand(n, 1) for t in (q.logits, q.loc, q.scale))
    dist = spike_slab(logits, loc, scale, q.spike, StraightThroughConcrete(0.5))
    assert isinstance(dist, TwoNormals)
    return dist


def test_a_relaxed_draw_with_a_spike_by_hand() -> None:
    """z = w (mu + sigma e) + (1 - w) s e', w hard in value and concrete in gradient."""

    class Given:
        normals = iter([torch.tensor([[2.0, 2.0]]), torch.tensor([[3.0, 3.0]])])

        def normal(self, like: Tensor) -> Tensor:
            return next(self.normals)

        def uniform(self, like: Tensor) -> Tensor:
            return torch.tensor([[0.9, 0.2]])

    logits = torch.zeros(1, 2, requires_grad=True)
    q = spike_slab(logits, torch.ones(1, 2), torch.full((1, 2), 0.5), 0.05, StraightThroughConcrete(0.5))
    z = Draw(Given(), hard=False)(q)
    assert z.tolist()[0] == pytest.approx([2.0, 0.15])  # on where u > 1/2: 1 + .5 * 2, else .05 * 3
    (slope,) = torch.autograd.grad(z.sum(), logits)
    w = scipy.special.expit(scipy.special.logit(np.array([0.9, 0.2])) / 0.5)
    np.testing.assert_allclose(slope[0].numpy(), (2.0 - 0.15) * w * (1 - w) / 0.5, rtol=1e-5)


# -- averaging over gamma --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spike", [0.0, 0.05])
def test_the_law_of_a_code_is_the_story_s_with_gamma_averaged_out(spike: float) -> None:
    """p_on = b / (a + b), exactly: hard draws of gamma, then of z, against `encode`; and of the prior's two steps."""
    raw = torch.tensor([0.8, -1.2, -0.5, 0.3, 0.1, 4.0, 2.0, 0.4])  # two units: loc, s, a, b
    family, n = HierarchicalPosterior(StraightThroughConcrete(), spike), 200_000
    many = raw.expand(n, 8)
    q, z = family(raw), fresh(1)(family.given(many, fresh()(family.gates(many))))
    a, b = (np.logaddexp(0, v) + 1e-5 for v in (np.array([0.1, 4.0]), np.array([2.0, 0.4])))
    np.testing.assert_allclose(q.p_on.numpy(), np.clip(b, 0.5, 100) / (np.clip(a, 0.5, 100) + np.clip(b, 0.5, 100)))
    prior = BetaGates(2, 3.0, 1.0, spike)
    p = prior.marginal(lambda x: q)
    assert p.p_on.tolist() == pytest.approx([0.25, 0.25])
    w = fresh(3)(prior.given(fresh(2)(prior.gates().expand((n,)))))
    for drawn, dist in ((z, q), (w, p)):
        for moment, wanted in ((drawn, dist.mean), ((drawn - dist.mean).square(), dist.variance)):
            assert bool(((moment.mean(0) - wanted).abs() < 5 * moment.std(0) / n**0.5).all())
        if not spike:
            for j in range(2):
                count = int((drawn[:, j] != 0).sum())
                assert scipy.stats.binomtest(count, n, float(dist.p_on[j])).pvalue > 1e-4


def test_a_score_with_both_latents_is_never_above_that_of_the_code_alone() -> None:
    """KL(q(z) || p(z)) <= KL(q(gamma) || p(gamma)) + E KL(q(z|gamma) || p(z|gamma)): gamma tells what z does not."""
    generator = torch.Generator().manual_seed(0)
    raw = 3 * torch.randn(500, 8, generator=generator, dtype=torch.float64)
    family, prior = HierarchicalPosterior(StraightThroughConcrete()), BetaGates(2, 3.0, 1.0).double()
    q_gamma, q = family.gates(raw), family(raw)
    assert isinstance(q, SpikeSlab)
    slabs = torch.tensor(gaussian_kl(q.loc.numpy(), q.scale.numpy()))
    both = unit_divergence(q_gamma, prior.gates()) + q.p_on * slabs
    alone = unit_divergence(q, prior.marginal(lambda x: q))
    assert bool((alone <= both + 1e-9).all())
    assert float((both - alone).median()) > 0.1


def test_concentrations_are_held_and_their_gradient_is_not() -> None:
    """softplus + 1e-5 within [.5, 100]; beyond, the slope is the softplus's own, not zero."""
    raw = torch.zeros(5, 4)
    raw[:, 2] = torch.tensor([-9.0, 0.0, 5.0, 99.0, 1e4])
    raw.requires_grad_()
    q = HierarchicalPosterior(StraightThroughConcrete()).gates(raw)
    wanted = np.clip(np.logaddexp(0, raw.detach()[:, 2].numpy()) + 1e-5, 0.5, 100)
    np.testing.assert_allclose(q.a.detach()[:, 0].numpy(), wanted, rtol=1e-6)
    (slope,) = torch.autograd.grad(q.a.sum(), raw)
    np.testing.assert_allclose(slope[:, 2].numpy(), scipy.special.expit(raw.detach()[:, 2].numpy()), rtol=1e-5)


# -- bounds on a model whose likelihood is a sum over gate patterns --------------------------------------------------

J, D, ALPHA, BETA, VARIANCE = 4, 5, 3.0, 1.5, 1.0
_rng = np.random.default_rng(3)
W, SHIFT = _rng.normal(size=(D, J)) * 0.6, _rng.normal(size=D) * 0.3
ROWS = np.float32(_rng.normal(size=(3, J)) @ W.T + SHIFT + _rng.normal(size=(3, D)))


def exact(spike: float) -> np.ndarray:
    """log p(x) with p_on = beta / (alpha + beta): given a pattern x is Gaussian, and off units add to its spread."""
    p_on = BETA / (ALPHA + BETA)
    parts = []
    for pattern in itertools.product([0, 1], repeat=J):
        g = np.array(pattern)
        covariance = (W * (g + (1 - g) * spike**2)) @ W.T + VARIANCE * np.eye(D)
        log_prior = g.sum() * math.log(p_on) + (J - g.sum()) * math.log1p(-p_on)
        parts.append(log_prior + scipy.stats.multivariate_normal(SHIFT, covariance).logpdf(np.float64(ROWS)))
    return scipy.special.logsumexp(parts, 0)


class Fixed(nn.Module):
    """x -> the same raw numbers for every row: (loc, s, a, b) by what softplus makes of them."""

    def __init__(self, loc: float, scale: float, a: float, b: float) -> None:
        super().__init__()
        inverse = [math.log(math.expm1(v - floor)) for v, floor in ((scale, 1e-4), (a, 1e-5), (b, 1e-5))]
        self.raw = nn.Parameter(torch.tensor([loc, *inverse]).repeat_interleave(J))

    def forward(self, x: Tensor) -> Tensor:
        return self.raw.expand(*x.shape[:-1], -1)


def tiny(encoder: nn.Module, spike: float = 0.0, gate: Any = None, **draws: int) -> Hierarchical:
    decoder = Linear(J, D)
    with torch.no_grad():
        decoder.weight.copy_(torch.tensor(W))
        decoder.bias.copy_(torch.tensor(SHIFT))
    posterior = HierarchicalPosterior(gate or StraightThroughConcrete(), spike, **draws)
    return Hierarchical(encoder, posterior, decoder, FixedGaussianData(VARIANCE), BetaGates(J, ALPHA, BETA, spike))


def repeated(model: LatentModel, n_samples: int, repeats: int) -> Bounds:
    runs = [bounds(model, torch.tensor(ROWS), n_samples, seed=seed) for seed in range(repeats)]
    return Bounds(*(torch.stack(v) for v in zip(*runs, strict=True)))


CASES = {  # slabs no narrower than the prior's, concentrations below its own: weights have finite variance
    "the prior": Fixed(0.0, 1.0, ALPHA, BETA),
    "looser gates": Fixed(0.0, 1.0, 1.5, 1.0),
    "wide slabs, more on": Fixed(0.2, 1.3, 1.5, 1.5),
}


@pytest.mark.parametrize(
    ("name", "spike"),
    [
        ("the prior", 0.0),
        pytest.param("looser gates", 0.3, marks=pytest.mark.slow),
        pytest.param("wide slabs, more on", 0.0, marks=pytest.mark.slow),
        ("wide slabs, more on", 0.3),
        pytest.param("the prior", 0.3, marks=pytest.mark.slow),
        pytest.param("looser gates", 0.0, marks=pytest.mark.slow),
    ],
)
def test_hard_bounds_lie_below_the_likelihood_and_climb_to_it(name: str, spike: float) -> None:
    model, truth = tiny(CASES[name], spike), torch.tensor(exact(spike))
    runs = {k: repeated(model, k, r) for k, r in ((1, 200), (30, 60), (10_000, 12))}
    for b in runs.values():
        for estimates in (b.elbo, b.importance):
            assert bool((estimates.mean(0) <= truth + 3 * estimates.std(0) / len(estimates) ** 0.5).all())
    tight = runs[10_000].importance
    error = tight.std(0) / len(tight) ** 0.5
    assert float(error.max()) < 0.02
    assert bool(((tight.mean(0) - truth).abs() < 4 * error).all())
    assert bool((runs[1].importance.mean(0) < truth - 0.15).all())  # so that there is something to climb


def closed_elbo(raw: Tensor, x: Tensor) -> Tensor:
    """E log p(x|z) - KL_gamma - E[1 - gamma] KL_N of a linear decoder and exact zeros, (B,), differentiable."""
    family, prior = HierarchicalPosterior(StraightThroughConcrete()), BetaGates(J, ALPHA, BETA).to(raw.dtype)
    q = family(raw)
    assert isinstance(q, SpikeSlab)
    w, shift = torch.tensor(W, dtype=raw.dtype), torch.tensor(SHIFT, dtype=raw.dtype)
    each = q.p_on * (0.5 * (q.loc.square() + q.scale.square() - 1) - q.scale.log())
    residual = (x - q.mean @ w.T - shift).square().sum(-1)
    spread = (q.variance @ w.square().T).sum(-1)
    fit = -0.5 * (D * math.log(2 * math.pi * VARIANCE) + (residual + spread) / VARIANCE)
    return fit - divergence(family.gates(raw), prior.gates()) - each.sum(-1)


@pytest.mark.parametrize("name", CASES)
def test_the_score_is_the_exact_elbo_of_both_latents(name: str) -> None:
    with torch.no_grad():
        wanted = closed_elbo(CASES[name](torch.tensor(ROWS)), torch.tensor(ROWS))
    runs = repeated(tiny(CASES[name]), 1000, 20).elbo
    assert bool(((runs.mean(0) - wanted).abs() < 4 * runs.std(0) / 20**0.5).all())


@pytest.mark.parametrize(
    ("gate", "draws"),
    [
        (LeaveOneOut(2), {}),
        (Disarm(), {}),
        pytest.param(LeaveOneOut(2), {"n_gamma": 2, "n_z": 3}, marks=pytest.mark.slow),
        pytest.param(Disarm(), {"n_gamma": 3, "n_z": 2}, marks=pytest.mark.slow),
    ],
)
def test_with_unbiased_gates_the_gradient_is_that_of_the_exact_elbo(gate: Any, draws: dict[str, int]) -> None:
    """Beta draws by their implicit gradient, gates by the score of their costs: heads of loc, s, a and b alike."""
    encoder = Fixed(0.4, 0.6, 1.5, 2.0)
    model, x, n = tiny(encoder, gate=gate, **draws), torch.tensor(ROWS[:1]), 2000
    objective = Objective(nll, kl, weights={"kl_z": 1.0, "kl_gamma": 1.0})
    each = []
    for seed in range(30):
        loss, _ = objective(model(x.repeat(n * points(model)[0], 1), fresh(seed, hard=False)))
        each.append(torch.autograd.grad(loss, encoder.raw)[0])
    found = torch.stack(each).double()
    (wanted,) = torch.autograd.grad(-closed_elbo(encoder(x).double(), x.double()).sum(), encoder.raw)
    assert bool(((found.mean(0) - wanted).abs() < 4.5 * found.std(0) / 30**0.5).all())
    assert float(wanted.abs().max()) > 10 * float(found.std(0).max()) / 30**0.5  # so that the claim is not empty


# -- several gammas, several z ---------------------------------------------------------------------------------------


def reported(model: LatentModel, items: int, rows: int) -> Trace:
    x = torch.arange(items * D, dtype=torch.float32).reshape(items, D) / 10
    return model(x.repeat(rows, 1), fresh(hard=False))


@pytest.mark.parametrize(("n_gamma", "n_z"), [(1, 1), (3, 1), (1, 4), (2, 3)])
def test_an_item_has_n_gammas_and_each_of_them_m_draws_of_z(n_gamma: int, n_z: int) -> None:
    model = tiny(Fixed(0.0, 1.0, 2.0, 2.0), 0.05, n_gamma=n_gamma, n_z=n_z)
    assert points(model) == (n_gamma * n_z, n_gamma * n_z)
    trace = reported(model, 5, n_gamma * n_z)
    gamma = trace.latents["gamma"].value.unflatten(0, (n_z, n_gamma, 5))
    assert bool((gamma == gamma[:1]).all())  # the same for all z of one gamma
    assert len(gamma[0].unique()) == n_gamma * 5 * J
    assert len(trace.latents["z"].value.detach().unique()) == n_gamma * n_z * 5 * J
    assert trace.latents["z"].q.logits.shape == (n_gamma * n_z * 5, J)


def test_rows_that_an_estimator_compares_have_one_gamma() -> None:
    model = tiny(Fixed(0.0, 1.0, 2.0, 2.0), gate=Disarm(), n_gamma=3, n_z=2)
    assert points(model) == (12, 12)
    logits = reported(model, 5, 12).latents["z"].q.logits
    one, two = logits.chunk(2)
    assert torch.equal(one, two)
    assert len(one.unique()) == 3 * 5 * J


def test_a_batch_that_was_not_repeated_is_refused_where_rows_share() -> None:
    model = tiny(Fixed(0.0, 1.0, 2.0, 2.0), n_z=2)
    with pytest.raises(ValueError, match=r"2 rows of each item share one gamma, got 5 rows.*x\.repeat\(2, 1\)"):
        reported(model, 5, 1)
    assert reported(tiny(Fixed(0.0, 1.0, 2.0, 2.0), n_gamma=2), 5, 1).observed["x"][1].shape == (5, D)


def test_hard_rows_share_nothing() -> None:
    """A bound has one gamma and one z a row, however training draws."""
    x = torch.tensor(ROWS)
    model, several = (tiny(Fixed(0.1, 1.0, 2.0, 2.0), n_gamma=n, n_z=n) for n in (1, 3))
    assert torch.equal(bounds(model, x, 50).elbo, bounds(several, x, 50).elbo)
    gamma = several(x.repeat(6, 1), fresh()).latents["gamma"].value
    assert len(gamma.unique()) == 18 * J


def test_more_draws_make_a_quieter_gradient() -> None:
    """Four gammas an item: about half the deviation, in the heads of a and b too."""
    encoder = Fixed(0.4, 0.6, 1.5, 2.0)
    spread = []
    for n in (1, 4):
        model = tiny(encoder, n_gamma=n)
        x = torch.tensor(ROWS).repeat(points(model)[0], 1)
        losses = [Objective(nll, kl)(model(x, fresh(seed, hard=False)))[0] for seed in range(200)]
        each = torch.stack([torch.autograd.grad(loss, encoder.raw)[0] for loss in losses])
        spread.append(each.std(0))
    ratio = spread[1] / spread[0]
    assert 0.4 < float(ratio.median()) < 0.6


# -- conventions -----------------------------------------------------------------------------------------------------


def network(members: tuple[int, ...] = (), spike: float = 0.0) -> Hierarchical:
    posterior = HierarchicalPosterior(StraightThroughConcrete(0.7), spike)
    encoder, decoder = mlp([D, 8, posterior.width(J)], members), mlp([J, 8, D], members)
    model = Hierarchical(encoder, posterior, decoder, BernoulliData(), BetaGates(J, 3.0, 1.0, spike))
    initialise(model, torch.Generator().manual_seed(0))
    return model


@pytest.mark.parametrize("members", [(), (3,), (2, 3)])
@pytest.mark.parametrize("spike", [0.0, 0.05])
def test_a_stack_of_models_keeps_the_conventions(members: tuple[int, ...], spike: float) -> None:
    x = (torch.rand(6, D, generator=torch.Generator().manual_seed(7)) > 0.5).float()
    check_model(network(members, spike), x, members=members)


def test_losses_and_gradients_are_each_member_s_own() -> None:
    model, x = network((3,)), (torch.rand(6, D, generator=torch.Generator().manual_seed(7)) > 0.5).float()
    tape = Tape(3, torch.device("cpu"))
    model(x, Draw(tape, hard=False))
    tape.refill(5)
    loss, _ = Objective(nll, kl)(model(x, Draw(tape, hard=False)))
    loss.sum().backward()
    for m in range(3):
        alone, noise = network(), Tape(3, torch.device("cpu"))
        alone.load_state_dict({k: v[m] for k, v in model.state_dict().items()})
        noise.normals, noise.uniforms = [t[m] for t in tape.normals], [t[m] for t in tape.uniforms]
        own, _ = Objective(nll, kl)(alone(x, Draw(noise, hard=False)))
        own.backward()
        assert torch.allclose(own, loss[m], rtol=1e-5)
        for (name, p), stacked in zip(alone.named_parameters(), model.parameters(), strict=True):
            assert torch.allclose(p.grad, stacked.grad[m], rtol=1e-3, atol=1e-5), name


def test_free_bits_are_free_for_each_unit_of_either_latent() -> None:
    trace = network()(torch.tensor(ROWS), fresh(hard=False))
    got = free_bits(0.3)(trace)
    for name, site in trace.latents.items():
        units = unit_divergence(site.q, site.p, site.value).mean(-2)
        assert float(got[f"kl_{name}"].detach()) == pytest.approx(float(units.clamp_min(0.3).sum().detach()), rel=1e-6)


# -- the estimator ---------------------------------------------------------------------------------------------------


def test_hand_set_weights_give_hand_computed_codes_and_gates() -> None:
    """Linear maps, two units: loc = (x0, -2), s = 0, a = softplus(x1, 9), b = softplus(2, 2)."""
    X = np.array([[1.5, 3.0], [-0.5, 0.0], [0.7, 1.0]], np.float32)
    est = fitted(X, 1, 2, hidden=(), scale="none", likelihood="fixed-gaussian", variance=0.5)
    head, tail = est.model_.encoder[-1], est.model_.decoder[-1]
    with torch.no_grad():
        head.weight.zero_()
        head.bias.copy_(torch.tensor([0.0, -2.0, 0.0, 0.0, 0.0, 9.0, 2.0, 2.0]))
        head.weight[0, 0] = head.weight[4, 1] = 1.0  # loc of unit 0, a of unit 0
        tail.weight.copy_(torch.tensor([[1.0, 2.0], [0.0, 1.0]]))
        tail.bias.copy_(torch.tensor([0.5, -0.5]))
    a, b = np.maximum(np.logaddexp(0, X[:, 1]) + 1e-5, 0.5), math.log1p(math.exp(2)) + 1e-5
    never = b / (math.log1p(math.exp(9)) + 1e-5 + b)
    np.testing.assert_allclose(est.gates(X), np.stack([b / (a + b), np.full(3, never)], -1), rtol=1e-5)
    codes = est.transform(X).toarray()
    np.testing.assert_array_equal(codes, np.float32([[0, 0], [-0.5, 0], [0.7, 0]]))  # on where a < b = softplus(2)
    np.testing.assert_allclose(est.inverse_transform(codes), codes[:, :1] * [1.0, 0.0] + [0.5, -0.5], rtol=1e-6)
    # The loss with unit weights, by hand: one row, its own draw of gamma and z.
    trace = est.model_(torch.tensor(X[:1]), fresh(hard=False))
    gamma, z = (trace.latents[k].value.detach().numpy()[0] for k in ("gamma", "z"))
    scale = math.log(2) + 1e-4
    slabs = gaussian_kl(np.array([1.5, -2.0]), np.array([scale, scale]))
    wanted = {
        "nll_x": -scipy.stats.norm.logpdf(X[0], np.array([[1, 2], [0, 1]]) @ z + [0.5, -0.5], math.sqrt(0.5)).sum(),
        "kl_z": (scipy.special.expit(-gamma) * slabs).sum(),
        "kl_gamma": _beta_kl(np.array([a[0], math.log1p(math.exp(9)) + 1e-5]), np.array([b, b]), 1.5, 0.5).sum(),
    }
    loss, got = est.fitted_.objective(trace)
    for name, value in wanted.items():
        assert float(got[name].detach()) == pytest.approx(value, rel=1e-4), name
    assert float(loss.detach()) == pytest.approx(sum(wanted.values()), rel=1e-4)


def _beta_kl(a: Any, b: Any, c: float, d: float) -> Any:
    """KL(Beta(a, b) || Beta(c, d)) by quadrature in gamma."""

    def one(a: float, b: float) -> float:
        q, p = scipy.stats.beta(a, b), scipy.stats.beta(c, d)
        return scipy.integrate.quad(lambda x: q.pdf(x) * (q.logpdf(x) - p.logpdf(x)), 0, 1, limit=200)[0]

    return np.array([one(*pair) for pair in zip(a, b, strict=True)])


def planted() -> tuple[np.ndarray, np.ndarray]:
    """Four sources in orthogonal directions, each on in a quarter of the rows, in sixteen columns with noise."""
    rng = np.random.default_rng(2)
    Z = (rng.random((600, 4)) < 0.25) * rng.choice([-1, 1], size=(600, 4)) * rng.uniform(0.7, 1.7, size=(600, 4))
    directions = 3 * np.linalg.qr(rng.normal(size=(16, 4)))[0].T
    return Z, (Z @ directions + 0.1 * rng.normal(size=(600, 16))).astype(np.float32)


def test_planted_codes_are_found_with_the_paper_s_prior_and_unit_weights() -> None:
    """Every source has a unit of its own that is on when the source is, and follows its value.

    Other starts may end with a source in two units.
    """
    Z, X = planted()
    own = PLAIN | {"training": sv.Training(steps=600, batch_size=100, learning_rate=5e-3, seed=2, verbose=0)}
    est = sv.HSVAE(6, alpha=30, beta=10, hidden=(32,), likelihood="fixed-gaussian", variance=0.02, **own)
    codes = est.fit(X).transform(X).toarray()
    with np.errstate(invalid="ignore"):  # a unit that is never on has no correlation
        match = np.nan_to_num(np.abs(np.corrcoef(Z.T, codes.T)[:4, 4:]))
    source, unit = scipy.optimize.linear_sum_assignment(-match)
    assert match[source, unit].min() > 0.95
    agreement = ((codes[:, unit] != 0) == (Z[:, source] != 0)).mean(0)
    assert agreement.min() > 0.95


def test_codes_are_means_of_open_gates_and_zero_elsewhere() -> None:
    for spike in (0.0, 0.05):
        est = partly_on(spike)
        codes, gates = est.transform(BITS), est.gates(BITS)
        assert codes.format == "csr"
        assert gates.shape == (len(BITS), 8)
        np.testing.assert_array_equal(codes.toarray() != 0, gates > 0.5)
        assert 0 < codes.nnz < gates.size  # some of both
        few = est.transform(BITS, max_active=1)
        assert few.count_nonzero(axis=1).max() == 1
        row = int(np.argmax(codes.count_nonzero(axis=1)))
        assert gates[row].argmax() == few[row].indices[0]


def test_the_paper_s_weights_count_in_training_and_never_in_scores() -> None:
    est = fitted(steps=30, alpha=30, beta=10, spike_scale=0.05, kl_z=0.01, kl_gamma=0.01)
    row = est.history_[-1]
    assert row["loss"] == pytest.approx(row["nll_x"] + 0.01 * row["kl_z"] + 0.01 * row["kl_gamma"], rel=1e-5)
    x = est.scaling_(torch.tensor(BITS))
    with torch.no_grad():
        trace = est.model_(x, Draw(PerRow(row_keys(x), 1), hard=True))
        assert set(trace.latents) == {"gamma", "z"}
        assert isinstance(trace.latents["gamma"].q, LogitBeta)
        whole = sum(float(v.mean()) for v in (*nll(trace).values(), *kl(trace).values()))
    assert est.score(BITS) == pytest.approx(-whole, rel=0.02)


def test_a_looser_prior_is_told_by_its_mean_and_its_concentration() -> None:
    """The same P(off) = .75: gates of (1.5, .5) follow the data, those of (30, 10) stay, and a warning tells it."""
    loose = fitted(steps=250)
    assert (set(loose.model_.prior.alpha.tolist()), set(loose.model_.prior.beta.tolist())) == ({1.5}, {0.5})
    with pytest.warns(sv.SparsityWarning, match="every code is zero.*alpha=1.5, beta=0.5,"):
        firm = fitted(steps=250, alpha=30, beta=10)
    assert loose.gates(BITS).std() > 3 * firm.gates(BITS).std()
    sparse, dense = (fitted(steps=120, alpha=a, beta=10).gates(BITS).mean() for a in (30, 10 / 3))
    assert sparse == pytest.approx(0.25, abs=0.05)
    assert dense == pytest.approx(0.75, abs=0.05)


def test_a_steeper_law_than_gamma_says_is_refused() -> None:
    """P(off) is gamma itself: with other logits its mean would not be the law of the code, nor its KL that of z."""
    with pytest.raises(ValueError, match=r"gate must be .*for 'slope-annealed' use VSC: .*, got 'slope-annealed'"):
        sv.HSVAE(4, gate="slope-annealed").fit(BITS)


@pytest.mark.parametrize("gate", [name for name in GATES if name != "slope-annealed"])
@pytest.mark.parametrize("spike", [0.0, 0.05])
def test_every_gate_trains(gate: str, spike: float) -> None:
    est = fitted(BITS[:500], 25, gate=gate, spike_scale=spike, n_gamma=2, n_z=2)
    assert est.history_[-1]["nll_x"] < est.history_[0]["nll_x"]
    assert np.isfinite(est.score(BITS[:100]))
    assert np.isfinite(est.relaxed_objective(BITS[:100])).all()


@pytest.mark.parametrize("network", ["dense", "conv"])
def test_images_by_either_network(network: str) -> None:
    est = fitted(DIGITS.X[:200], 30, network=network, image_shape=(8, 8))
    assert est.history_[-1]["nll_x"] < est.history_[0]["nll_x"]
    assert est.transform(DIGITS.X[:20]).shape == (20, 8)


def test_fewer_weights_than_a_gamma_fed_to_the_heads_would_take() -> None:
    """Four linear heads of J numbers each on the last hidden layer, and nothing else (erratum 21)."""
    est = fitted(steps=1, n=32, hidden=(512,))
    assert sum(p.numel() for p in est.model_.encoder[-1].parameters()) == 4 * 32 * (512 + 1)


@pytest.mark.parametrize("spike", [0.0, 0.05])
def test_a_fitted_model_is_looked_at_like_any_other(spike: float, tmp_path: Path) -> None:
    """Bounds, evaluation, audit, pruning, samples, traversals, a second stage and the disk."""
    est = partly_on(spike)
    X = BITS[:200]
    found = est.evaluate(X, caps=[1])
    assert found["score_meaning"] == "bound"
    assert found["score"] <= float(est.importance_bound(X, n_samples=50).bound.mean()) + 1e-6
    assert found["nonzeros_expected"] == pytest.approx(est.gates(X).sum() / 200, rel=1e-5)
    assert found["nonzeros_drawn"] == pytest.approx(found["nonzeros_expected"], abs=0.3)
    judged = sv.audit(est, X)
    np.testing.assert_allclose(judged.p_on, est.gates(X).mean(0), rtol=1e-4)
    smaller = sv.prune(est, X, units=[2], force=True)
    assert smaller.transform(X).shape == (200, 7)
    np.testing.assert_allclose(smaller.gates(X), np.delete(est.gates(X), 2, 1), rtol=1e-4)
    assert np.isfinite(smaller.partial_fit(X).score(X))
    on = int(np.argmax(est.transform(X).count_nonzero(axis=1)))
    assert sv.traverse(est, X[on], values=[-1, 0, 1]).images.shape[1:] == (3, 64)
    assert np.isfinite(est.sample_like(X[on : on + 1], 5)).all()
    assert est.sample(5, noise=True).shape == (5, 64)
    stage = sv.second_stage(est, X, n_components=2, hidden=(8,), training=sv.Training(steps=5, verbose=0))
    assert stage.likelihood_ == ("gaussian" if spike else "spike-slab")
    est.save(tmp_path / "model")
    again = sv.load(tmp_path / "model")
    np.testing.assert_array_equal(again.gates(X), est.gates(X))
    np.testing.assert_array_equal(again.score_samples(X), est.score_samples(X))
    np.testing.assert_array_equal(again.sample(4, second_stage=stage), est.sample(4, second_stage=stage))
    with pytest.raises(TypeError, match=r"needs the generative process of a plain VAE; HSVAE has its own: use VAE"):
        sv.noise_experiment(est, X)


@pytest.mark.parametrize("spike", [0.0, 0.05])
def test_drawn_are_the_gates_that_came_out_on(spike: float) -> None:
    """P(on) of a planted gate: 0, 1/4 and 1; an off unit of the paper's recipe is not zero, and off all the same."""
    x = torch.zeros(4000, 1)
    logits = torch.tensor([-40.0, math.log(1 / 3), 40.0]).expand(4000, 3)
    q = spike_slab(logits, torch.ones(4000, 3), torch.ones(4000, 3), spike)
    z = fresh()(q)
    on = codes.on(Site(q, q, z))
    assert on.shape == z.shape
    assert on[:, 0].sum() == 0
    assert on[:, 2].sum() == len(x)
    assert scipy.stats.binomtest(int(on[:, 1].sum()), len(x), 0.25).pvalue > 1e-4
    assert bool(((z != 0) == on).all()) == (spike == 0)


def test_gated_means_have_one_gamma_of_a_seed_or_its_mean() -> None:
    est, rows = fitted(steps=100, kl_gamma=0.1, alpha=2.0, beta=2.0), BITS[:50]
    plain = est.posterior_means(rows)
    np.testing.assert_allclose(plain["gated"], est.gates(rows) * plain["slab"], rtol=1e-5, atol=1e-7)
    drawn = np.stack([est.posterior_means(rows, seed=seed)["gated"] for seed in range(400)])
    np.testing.assert_array_equal(drawn[3], est.posterior_means(rows, seed=3)["gated"])
    np.testing.assert_array_equal(est.posterior_means(rows[7:8], seed=3)["gated"][0], drawn[3, 7])  # a row's own
    np.testing.assert_array_equal(est.posterior_means(rows, seed=3)["slab"], plain["slab"])
    spread = drawn.std(0)
    assert spread.max() > 0.05  # a gamma each
    error = np.abs(drawn.mean(0) - plain["gated"]) / (spread / 20 + 1e-6)
    assert error.max() < 5.5
    share = drawn / plain["slab"]
    assert 0 <= share.min() < share.max() <= 1
    y = np.arange(50) % 2
    found = sv.classes(est, rows, y, seed=3).sparsity["gated"]
    assert found.average == pytest.approx(metrics.average_hoyer(drawn[3]))
    with pytest.raises(ValueError, match="seed must be an integer or None"):
        est.posterior_means(rows, seed=0.5)


def test_samples_are_on_as_often_as_the_prior_says() -> None:
    est = fitted(steps=1, alpha=6.0, beta=2.0)
    dist = est.model_.prior.marginal(est.model_.encode)
    z = fresh()(dist.expand((20_000,)))
    assert scipy.stats.binomtest(int((z != 0).sum()), z.numel(), 0.25).pvalue > 1e-4


def test_what_cannot_work_is_refused() -> None:
    for own, message in (
        ({"alpha": 0}, "alpha must be a number above 0, got 0"),
        ({"beta": -1.0}, "beta must be a number above 0 or None, got -1.0"),
        ({"spike_scale": 1e-6}, r"spike_scale must be a number in \[0.001, 1\), or 0, got 1e-06"),
        ({"n_z": 1.5}, "n_z must be an integer above 0, got 1.5"),
    ):
        with pytest.raises(ValueError, match=message):
            fitted(steps=1, **own)
    with pytest.raises(ValueError, match="max_active must be an integer above 0"):
        fitted(steps=1).transform(BITS[:2], max_active=0)


@pytest.mark.parametrize("spike", [0.0, pytest.param(0.05, marks=pytest.mark.slow)])
def test_a_score_is_what_is_told_less_what_both_latents_cost(spike: float) -> None:
    rows = (sv.data.load("digits").X[:300] > 127).astype(np.float32)
    own = {"kl_z": 0.01, "kl_gamma": 0.01, "spike_scale": spike, "alpha": 30, "beta": 10}
    est = sv.HSVAE(6, hidden=(32,), **own, training=sv.Training(steps=300, verbose=0)).fit(rows)
    found, p = est.evaluate(rows, n_samples=200), []
    assert found["kl"] == pytest.approx(found["kl_gamma"] + found["kl_z"])
    assert found["kl_gamma"] > 1  # far from what the code's own law costs
    for seed in range(40):
        z = torch.from_numpy(est.draw_codes(rows, seed=seed)[0])
        p.append(-est.model_.decode(z).log_prob(torch.from_numpy(rows)).mean().item())
    assert found["score"] == pytest.approx(-(np.mean(p) + found["kl"]), abs=0.3)


def paid(est: Any, rows: Any, draws: int) -> tuple[float, float]:
    """What `evaluate` says that rows pay, and what their score less p(x|z) says."""
    found = est.evaluate(rows, n_samples=draws)
    return found["kl"], -found["score"] - float(bounds_of(est, est.fitted_.rows(rows), draws).nll.mean())


def test_a_kl_without_a_closed_form_is_that_of_the_score_s_draws() -> None:
    training = sv.Training(steps=20, verbose=0)
    kl, less = paid(sv.MAT(4, hidden=(16,), training=training).fit(BITS), BITS[:3], 7)
    assert kl == pytest.approx(less, rel=1e-5)
    kl, less = paid(fitted(spike_scale=0.05), BITS[:900], 100)  # of gamma there is a closed form
    assert kl == pytest.approx(less, rel=0.02)


def test_samples_like_a_row_redraw_its_units_from_slabs_also_where_off_is_narrow() -> None:
    rows = sv.data.load("digits").X
    training = sv.Training(steps=60, verbose=0)
    est = sv.HSVAE(6, hidden=(16,), spike_scale=0.05, alpha=1.0, beta=20.0, training=training).fit(rows)  # mostly on
    slabs = est.model_.prior.marginal(est.model_.encode).with_gates_open()
    assert slabs.mean.tolist() == [0.0] * 6
    assert slabs.stddev.tolist() == [1.0] * 6
    assert est.sample_like(rows[:1], 5).shape == (5, 64)


# -- defaults for numbers --------------------------------------------------------------------------------------------


def test_gates_begin_open_for_the_share_of_rows_that_the_prior_expects() -> None:
    """By the model before its first step: each gate for its own rows, P(on) at most b / (a + b) of the clamp."""
    est = sv.HSVAE(16, hidden=(16,), training=sv.Training(steps=1, verbose=0)).prepare(DIGITS.X)
    gates = est.gates(DIGITS.X)
    np.testing.assert_allclose((gates > 0.5).mean(0), 0.25, atol=0.01)
    assert 0.5 / 100.5 < gates.min() < 0.2
    assert 0.7 < gates.max() < 100 / 100.5


def test_thresholded_means_fill_the_codes_that_modes_leave_empty() -> None:
    """With nothing set but 600 steps on digits: under 1 % empty rows, and a linear probe near that of gated means."""
    X, y = DIGITS.X, DIGITS.y
    est = sv.HSVAE(training=sv.Training(steps=600, verbose=0)).fit(X)
    kinds = {kind: est.transform(X, code=kind) for kind in ("mode", "gated", "thresholded")}
    empty = {kind: float((codes.count_nonzero(axis=1) == 0).mean()) for kind, codes in kinds.items()}
    assert empty["mode"] > 0.2
    assert empty["thresholded"] < 0.01
    assert kinds["thresholded"].count_nonzero(axis=1).mean() < 45
    half = len(X) // 2
    probes = {k: metrics.linear_probe(kinds[k][:half], y[:half], kinds[k][half:], y[half:]) for k in kinds}
    assert probes["thresholded"] > probes["gated"] - 0.02
    assert probes["thresholded"] > probes["mode"] + 0.05
    assert (est.transform(X) != kinds["thresholded"]).nnz == 0
    assert est.evaluate(X[:100])["nonzeros_mode"] == kinds["thresholded"][:100].count_nonzero(axis=1).mean()


def test_a_model_stored_before_there_were_kinds_of_codes_returns_modes() -> None:
    est = sv.load(Path(__file__).parents[1] / "saved" / "v2-hsvae")
    rows = np.random.default_rng(0).normal(size=(50, est.n_features_in_)).astype(np.float32)
    assert est.code is None
    gates, slab = est.gates(rows), est.posterior_means(rows)["slab"]
    np.testing.assert_array_equal(est.transform(rows).toarray(), np.where(gates > 0.5, slab, 0))
    assert type(est.model_.encoder).__name__ != "Skip"
