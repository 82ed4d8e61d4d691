"""Mixture priors: two Gaussians a unit, several spike-and-slabs a code, and the price of a choice (erratum 32)."""

import itertools
import math

import numpy as np
import pytest
import scipy.stats
import torch
from torch import Tensor

from sparsevae.distributions.gaussian import normal
from sparsevae.distributions.kl import divergence, unit_divergence
from sparsevae.distributions.mixtures import Selected, SpikeSlabMixture, TwoNormals
from sparsevae.distributions.spike_slab import SpikeSlab
from sparsevae.metrics.sparsity import hoyer
from sparsevae.sampling.draw import Draw
from sparsevae.sampling.noise import Fresh


def hard(seed: int = 0) -> Draw:
    return Draw(Fresh(torch.Generator().manual_seed(seed)), hard=True)


def double(*values: object) -> list[Tensor]:
    return [torch.tensor(v, dtype=torch.float64) for v in values]


def two_normals(off: float, spike: float = 0.05, n: int = 1) -> TwoNormals:
    return TwoNormals(torch.tensor(off, dtype=torch.float64), spike, n)


# -- two Gaussians a unit --------------------------------------------------------------------------------------------

CASES = [(0.0, 0.05), (0.8, 0.05), (0.5, 0.5), (0.999, 0.01)]


@pytest.mark.parametrize(("off", "spike"), CASES)
def test_two_normals_normalise_and_are_scipy_s(off: float, spike: float) -> None:
    near = np.linspace(-12 * spike, 12 * spike, 20_001)
    far = np.linspace(12 * spike, 12, 200_001)
    z = np.concatenate([-far[:0:-1], near, far[1:]])
    log_p = two_normals(off, spike).log_prob(torch.tensor(z)[:, None]).numpy()
    assert np.trapezoid(np.exp(log_p), z) == pytest.approx(1, abs=1e-7)
    theirs = off * scipy.stats.norm.pdf(z, 0, spike) + (1 - off) * scipy.stats.norm.pdf(z)
    np.testing.assert_allclose(np.exp(log_p), theirs, rtol=1e-10)


@pytest.mark.parametrize(("off", "spike"), CASES)
def test_draws_of_two_normals_have_their_moments_and_shares(off: float, spike: float) -> None:
    p, n = two_normals(off, spike, 3), 100_000
    z = hard()(p.expand((n,)))
    assert z.shape == (n, 3)
    assert z.dtype == torch.float64
    square = z.square()
    assert bool((z.mean(0).abs() < 5 * z.std(0) / n**0.5).all())
    assert bool(((square.mean(0) - p.variance).abs() < 5 * square.std(0) / n**0.5).all())
    inside = float(off * scipy.stats.chi2.cdf(9, 1) + (1 - off) * scipy.stats.chi2.cdf(9 * spike**2, 1))
    count = int((z.abs() < 3 * spike).sum())
    assert scipy.stats.binomtest(count, 3 * n, inside).pvalue > 1e-4


def test_a_unit_that_is_never_narrow_is_standard_normal() -> None:
    """off = 0: log 0 is formed, and neither the density nor its gradient is NaN."""
    z = torch.tensor([[0.0, 1e-3, -0.7, 5.0, 40.0]], dtype=torch.float64, requires_grad=True)
    p = two_normals(0.0, n=5)
    log_p = p.log_prob(z)
    wanted = normal(torch.zeros(5).double(), torch.ones(5).double()).log_prob(z)
    assert torch.allclose(log_p, wanted, rtol=1e-14, atol=0)
    (gradient,) = torch.autograd.grad(log_p.sum(), z)
    assert torch.equal(gradient, -z.detach())
    assert torch.equal(p.variance, torch.ones(5).double())


@pytest.mark.parametrize("z", [0.0, 1e-20, 0.05, 1.0, 1e3, -1e6])
def test_the_density_and_its_gradient_stay_finite_in_single_precision(z: float) -> None:
    value = torch.full((1, 2), z, requires_grad=True)
    log_p = TwoNormals(torch.tensor(0.8), 0.05, 2).log_prob(value)
    (gradient,) = torch.autograd.grad(log_p.sum(), value)
    assert bool(torch.isfinite(log_p).all())
    assert bool(torch.isfinite(gradient).all())


def test_two_normals_by_hand() -> None:
    """off = .8, spike .5, z = 1: .8 N(1; 0, .25) + .2 N(1; 0, 1)."""
    wanted = math.log((0.8 * 2 * math.exp(-2) + 0.2 * math.exp(-0.5)) / math.sqrt(2 * math.pi))
    assert float(two_normals(0.8, 0.5).log_prob(torch.ones(1).double())) == pytest.approx(wanted, rel=1e-12)
    assert float(two_normals(0.8, 0.5).variance) == pytest.approx(0.8 * 0.25 + 0.2)


def test_the_divergence_is_the_quadrature_s_in_the_mean() -> None:
    """KL(N(.3, .2^2) || TwoNormals) by quadrature, and the one-sample estimate's mean over draws; per unit."""
    loc, scale, n = 0.3, 0.2, 40_000
    grid = np.linspace(loc - 10 * scale, loc + 10 * scale, 100_001)
    log_q = scipy.stats.norm.logpdf(grid, loc, scale)
    exact = np.trapezoid(np.exp(log_q) * (log_q - two_normals(0.8).log_prob(torch.tensor(grid)[:, None]).numpy()), grid)
    q = normal(torch.full((n, 2), loc).double(), torch.full((n, 2), scale).double())
    each = unit_divergence(q, two_normals(0.8, n=2), hard()(q))
    assert each.shape == (n, 2)
    assert bool(((each.mean(0) - exact).abs() < 4 * each.std(0) / n**0.5).all())
    with pytest.raises(ValueError, match=r"KL\(Normal \|\| TwoNormals\) is estimated from a draw of q: pass value="):
        divergence(q, two_normals(0.8, n=2))


def test_the_hoyer_sparsity_of_the_prior_itself() -> None:
    """(sqrt(d) - |z|_1/|z|_2)/(sqrt(d) - 1) in the mean, for 32 and 50 units with and without narrow ones."""
    for d, off, wanted in ((32, 0.8, 0.664), (50, 0.8, 0.651), (32, 0.0, 0.238), (50, 0.0, 0.231)):
        each = hoyer(hard()(two_normals(off, n=d).expand((40_000,))).numpy())
        assert each.mean() == pytest.approx(wanted, abs=5e-4 + 4 * each.std() / 200)


# -- several spike-and-slabs for the whole code ----------------------------------------------------------------------


def mixture() -> SpikeSlabMixture:
    """Three components over two units; the first has both units on nearly always, the second nearly never."""
    logits = [[4.0, 4.0], [-4.0, -4.0], [0.5, -1.0]]
    locs, scales = [[1.0, -2.0], [0.0, 0.0], [3.0, 0.5]], [[0.5, 1.0], [1.0, 1.0], [0.2, 2.0]]
    components = SpikeSlab(*double(logits, locs, scales))
    return SpikeSlabMixture(components, torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64))


def slices(p: SpikeSlabMixture, grid: Tensor) -> dict[tuple[int, int], float]:
    """P(gates) for the four patterns of two units, by quadrature of exp(log_prob) over the units that are on."""
    zero = torch.zeros(1, dtype=torch.float64)
    mass = {}
    for gates in itertools.product((0, 1), repeat=2):
        axes = torch.meshgrid(*(grid if g else zero for g in gates), indexing="ij")
        density = p.log_prob(torch.stack(axes, -1)).exp()
        for axis in (1, 0):
            density = torch.trapezoid(density, grid, dim=axis) if gates[axis] else density.squeeze(axis)
        mass[gates] = float(density)
    return mass


def test_the_mixture_normalises_and_is_joint_over_units() -> None:
    """Gate patterns have probability sum_u rho_u P_u(pattern), not the product of each unit's share."""
    p = mixture()
    found = slices(p, torch.linspace(-14, 14, 600, dtype=torch.float64))  # an even number: no point at zero
    assert sum(found.values()) == pytest.approx(1, abs=1e-9)
    on, rho = p.components.p_on.numpy(), p.weights.numpy()
    for gates, mass in found.items():
        joint = float((rho * np.prod(np.where(gates, on, 1 - on), -1)).sum())
        per_unit = float(np.prod(np.where(gates, rho @ on, 1 - rho @ on)))
        assert mass == pytest.approx(joint, abs=1e-9)
        assert abs(joint - per_unit) > 0.05  # so that the two readings differ here


def test_draws_follow_the_mixture() -> None:
    p, n = mixture(), 200_000
    z = hard()(p.expand((n,)))
    assert z.shape == (n, 2)
    for moment, wanted in ((z, p.mean), ((z - p.mean).square(), p.variance)):
        assert bool(((moment.mean(0) - wanted).abs() < 5 * moment.std(0) / n**0.5).all())
    for gates, mass in slices(p, torch.linspace(-14, 14, 600, dtype=torch.float64)).items():
        count = int(((z != 0) == torch.tensor(gates)).all(-1).sum())
        assert scipy.stats.binomtest(count, n, mass).pvalue > 1e-4, gates


def test_components_are_drawn_as_often_as_their_weights_say() -> None:
    """Slabs that cannot be mistaken: unit values tell which component they came from; a weight of 0 is never drawn."""
    locs = torch.tensor([[10.0], [20.0], [30.0], [40.0]], dtype=torch.float64)
    components = SpikeSlab(torch.full_like(locs, math.inf), locs, torch.ones_like(locs))
    rho, n = [0.5, 0.0, 0.3, 0.2], 50_000
    z = hard()(SpikeSlabMixture(components, torch.tensor(rho, dtype=torch.float64)).expand((n,)))
    counts = torch.bincount((z[:, 0] / 10).round().long() - 1, minlength=4)
    assert int(counts[1]) == 0
    kept = [0, 2, 3]
    assert scipy.stats.chisquare(counts[kept].numpy(), np.array(rho)[kept] * n).pvalue > 1e-4


def test_opened_mixtures_have_no_zeros_and_the_same_slabs() -> None:
    p = mixture()
    z = hard()(p.with_gates_open().expand((20_000,)))
    assert bool((z != 0).all())
    wanted = (p.weights[:, None] * p.components.loc).sum(0)
    assert bool(((z.mean(0) - wanted).abs() < 5 * z.std(0) / 20_000**0.5).all())


def test_a_mixture_of_one_is_its_component() -> None:
    c = mixture().components
    one = SpikeSlab(c.logits[2:], c.loc[2:], c.scale[2:])
    p, z = SpikeSlabMixture(one, torch.ones(1).double()), hard()(one.expand((50, 1))).squeeze(-2)
    assert torch.equal(p.log_prob(z), one.log_prob(z))
    assert torch.equal(p.mean, one.mean[0])
    assert torch.allclose(p.variance, one.variance[0], rtol=1e-12)


def test_single_values_rows_and_members_have_their_shapes() -> None:
    p, z = mixture(), torch.randn(7, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert p.log_prob(z[0]).shape == ()
    assert p.log_prob(z).shape == (7,)
    assert p.expand((7,)).batch_shape == (7,)
    c = p.components
    shift = torch.tensor([0.0, 1.0, -1.0], dtype=torch.float64)[:, None, None]
    stack = SpikeSlabMixture(SpikeSlab(c.logits + shift, c.loc + shift, c.scale.expand(3, 3, 2)), p.weights)
    assert stack.batch_shape == (3,)
    rows = torch.stack([z, z + 1, z.abs()])
    each = [
        SpikeSlabMixture(SpikeSlab(c.logits + s, c.loc + s, c.scale), p.weights).log_prob(r)
        for s, r in zip(shift, rows, strict=True)
    ]
    assert torch.allclose(stack.log_prob(rows), torch.stack(each), rtol=1e-12)
    with pytest.raises(NotImplementedError, match="take one member"):
        hard()(stack)


# -- the price of a choice: erratum 32 -------------------------------------------------------------------------------


def case(seed: int, u: int = 4, j: int = 3) -> tuple[SpikeSlab, SpikeSlab, Tensor, Tensor]:
    """A posterior (1, J), components (U, J), rho (U,) and a choice w (1, U), at random."""
    g = torch.Generator().manual_seed(seed)

    def spike_slab(n: int, spread: float) -> SpikeSlab:
        raw = [torch.randn(n, j, generator=g, dtype=torch.float64) for _ in range(3)]
        return SpikeSlab(2 * raw[0], spread * raw[1], (0.3 * raw[2]).exp())

    q, components = spike_slab(1, 1.0), spike_slab(u, 1.5)
    rho, w = (torch.softmax(2 * torch.randn(n, generator=g, dtype=torch.float64), -1) for n in ((u,), (1, u)))
    return q, components, rho, w


def mixture_kl(q: SpikeSlab, components: SpikeSlab, rho: Tensor, n: int = 60_000) -> tuple[float, float]:
    """KL(q || sum_u rho_u p_u) by Monte Carlo with hard draws, and its standard error."""
    z = hard(1)(q.expand((n, 1))).squeeze(1)
    ratio = q.log_prob(z) - SpikeSlabMixture(components, rho).log_prob(z)
    return float(ratio.mean()), float(ratio.std()) / n**0.5


@pytest.mark.parametrize("seed", range(12))
def test_choosing_and_paying_is_an_upper_bound_on_the_mixture_s_divergence(seed: int) -> None:
    """KL(q || sum_u rho_u p_u) <= sum_u w_u KL(q || p_u) + KL(w || rho), for a random w and for the best one.

    The best is w proportional to rho_u exp(-KL_u), where the right side is -log sum_u rho_u exp(-KL_u).
    """
    q, components, rho, w = case(seed)
    exact, error = mixture_kl(q, components, rho)
    each = torch.stack([divergence(q, SpikeSlab(*(t[u : u + 1] for t in parts(components))))[0] for u in range(4)])
    best = torch.softmax(rho.log() - each, -1)[None]
    paid = {name: float(divergence(q, Selected(components, rho, c, charged=True))) for name, c in
            (("random", w), ("best", best), ("rho", rho[None]), ("one", torch.eye(4).double()[:1]))}  # fmt: skip
    assert paid["random"] == pytest.approx(
        float((w * each).sum() + (w * (w / rho).log()).sum()), rel=1e-10
    )  # the formula
    assert paid["best"] == pytest.approx(-float(torch.logsumexp(rho.log() - each, 0)), rel=1e-10)
    assert paid["one"] == pytest.approx(float(each[0] - rho[0].log()), rel=1e-10)  # w log w is 0 at w = 0
    assert paid["rho"] == pytest.approx(float((rho * each).sum()), rel=1e-10)
    for name, value in paid.items():
        assert exact < value + 4 * error, name
        assert paid["best"] <= value + 1e-12


def parts(d: SpikeSlab) -> tuple[Tensor, Tensor, Tensor]:
    return d.logits, d.loc, d.scale


def test_without_its_price_the_choice_bounds_nothing() -> None:
    """The published objectives leave KL(w || rho) out: q equal to a rare component then costs nothing at all."""
    _, components, _, _ = case(0)
    q = SpikeSlab(*(t[:1] for t in parts(components)))
    rho, w = torch.tensor([0.01, 0.33, 0.33, 0.33], dtype=torch.float64), torch.eye(4).double()[:1]
    free, paid = (float(divergence(q, Selected(components, rho, w, charged=c))) for c in (False, True))
    exact, error = mixture_kl(q, components, rho)
    assert free == pytest.approx(0, abs=1e-12)
    assert exact - 4 * error > free + 1
    assert paid == pytest.approx(-math.log(0.01), rel=1e-9)
    assert exact < paid + 4 * error


def test_equal_components_cost_only_the_choice() -> None:
    q, components, rho, w = case(3)
    same = SpikeSlab(*(t[:1].expand(4, -1) for t in parts(components)))
    alone = float(divergence(q, SpikeSlab(*(t[:1] for t in parts(components)))))
    price = float((w * (w / rho).log()).sum())
    assert price > 0.1
    assert float(divergence(q, Selected(same, rho, w, charged=True))) == pytest.approx(alone + price, rel=1e-10)
    assert float(divergence(q, Selected(same, rho, rho[None], charged=True))) == pytest.approx(alone, rel=1e-10)


def test_the_units_parts_add_up_and_members_are_kept_apart() -> None:
    q, components, rho, _ = case(5)
    rows = SpikeSlab(*(t.expand(6, -1) for t in parts(q)))
    choice = torch.softmax(torch.randn(6, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64), -1)
    p = Selected(components, rho, choice, charged=True)
    assert p.batch_shape == (6,)
    each = unit_divergence(rows, p)
    assert each.shape == (6, 3)
    assert torch.allclose(each.sum(-1) + p.selection_cost, divergence(rows, p))
    shift = torch.tensor([0.0, 1.0], dtype=torch.float64)[:, None, None]
    stack = SpikeSlab(components.logits + shift, components.loc - shift, components.scale.expand(2, -1, -1))
    together = divergence(
        SpikeSlab(*(t.expand(2, 6, 3) for t in parts(q))), Selected(stack, rho, choice.expand(2, 6, 4), charged=True)
    )
    assert together.shape == (2, 6)
    for m, s in enumerate(shift):
        own = SpikeSlab(components.logits + s, components.loc - s, components.scale)
        assert torch.allclose(together[m], divergence(rows, Selected(own, rho, choice, charged=True)), rtol=1e-10)


def test_the_density_is_the_mixture_s_whatever_the_choice() -> None:
    q, components, rho, w = case(6)
    z = hard()(q.expand((20, 1))).squeeze(1)
    plain = SpikeSlabMixture(components, rho).log_prob(z)
    for charged in (True, False):
        assert torch.equal(Selected(components, rho, w.expand(20, -1), charged=charged).log_prob(z), plain)


def test_the_gradient_of_the_choice_is_the_cost_of_each_component() -> None:
    """d/dw_u of sum_u w_u KL_u + KL(w || rho) is KL_u + log(w_u/rho_u) + 1."""
    q, components, rho, w = case(7)
    w.requires_grad_()
    (got,) = torch.autograd.grad(divergence(q, Selected(components, rho, w, charged=True)).sum(), w)
    each = torch.stack([divergence(q, SpikeSlab(*(t[u : u + 1] for t in parts(components))))[0] for u in range(4)])
    assert torch.allclose(got[0], each + (w.detach()[0] / rho).log() + 1, rtol=1e-10)


def test_a_choice_that_is_certain_in_single_precision_has_a_finite_gradient() -> None:
    """Logits 300 apart: weights underflow to 0, where w log w has no finite slope; the softmax's own slope is 0."""
    q, components, rho, _ = case(8)
    logits = torch.tensor([[0.0, -300.0, 300.0, -1.0]], requires_grad=True)
    w = torch.softmax(logits, -1)
    assert int((w == 0).sum()) == 3
    single = [SpikeSlab(*(t.float() for t in parts(d))) for d in (q, components)]
    value = divergence(single[0], Selected(single[1], rho.float(), w, charged=True))
    (gradient,) = torch.autograd.grad(value.sum(), logits)
    assert torch.equal(gradient, torch.zeros(1, 4))
    alone = divergence(q, SpikeSlab(*(t[2:3] for t in parts(components)))) - rho[2].log()
    assert float(value.detach()) == pytest.approx(float(alone), rel=1e-5)


def test_neither_mixture_is_a_legal_partner_of_a_gaussian() -> None:
    _, components, rho, w = case(1)
    for p in (SpikeSlabMixture(components, rho), Selected(components, rho, w, charged=True)):
        with pytest.raises(TypeError, match=r"Normal posterior: Normal, TwoNormals\."):
            divergence(normal(torch.zeros(1, 3), torch.ones(1, 3)), p)
    with pytest.raises(TypeError, match="SpikeSlabMixture"):  # only with a choice is there a bound on its divergence
        divergence(case(1)[0], SpikeSlabMixture(components, rho))
    with pytest.raises(TypeError, match="TwoNormals"):
        divergence(case(1)[0], two_normals(0.8, n=3), torch.zeros(1, 3))


def test_moments_of_a_stack_are_those_of_its_members() -> None:
    """As many members as rows: a wrong axis would broadcast without a word."""
    generator = torch.Generator().manual_seed(0)
    logits, loc, scale = (torch.randn(3, 2, 4, generator=generator) for _ in range(3))
    weights = torch.tensor([0.3, 0.7])
    stack = SpikeSlabMixture(SpikeSlab(logits, loc, scale.exp()), weights, batch_shape=torch.Size([3, 3]))
    for i in range(3):
        alone = SpikeSlabMixture(SpikeSlab(logits[i], loc[i], scale[i].exp()), weights)
        assert torch.allclose(stack.mean[i], alone.mean.expand(3, 4))
        assert torch.allclose(stack.variance[i], alone.variance.expand(3, 4))
