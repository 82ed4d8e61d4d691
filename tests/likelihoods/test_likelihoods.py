"""Families: raw numbers in, the distribution they promise out."""

import math
import re

import pytest
import scipy.stats
import torch

from sparsevae.distributions.family import Family
from sparsevae.distributions.gaussian import normal
from sparsevae.distributions.kl import divergence, unit_divergence
from sparsevae.distributions.mixtures import TwoNormals
from sparsevae.distributions.spike_slab import LogNormalSpikeSlab, SpikeSlab
from sparsevae.inputs.scaling import Affine, UnitNorm
from sparsevae.inputs.stats import Span
from sparsevae.latent.objective import Objective, kl, nll
from sparsevae.latent.posteriors import (
    GaussianPosterior,
    LogNormalPosterior,
    PointPosterior,
    SlabPosterior,
    SpikeSlabPosterior,
    WarmSpikeSlabPosterior,
)
from sparsevae.latent.priors import FixedLogNormal, FixedSpikeSlab, SparseNormals, StandardNormal
from sparsevae.likelihoods.base import REGISTRY, Likelihood
from sparsevae.likelihoods.bernoulli import BernoulliData
from sparsevae.likelihoods.choose import HELP, LIKELIHOODS, users_of
from sparsevae.likelihoods.counts import PoissonData
from sparsevae.likelihoods.gaussian import ColumnGaussianData, FixedGaussianData, GaussianData, LaplaceData
from sparsevae.likelihoods.spike_slab import SpikeSlabData
from sparsevae.sampling.choices import BITS
from sparsevae.sampling.draw import Draw
from sparsevae.sampling.gradients import ScaledSigmoid
from sparsevae.sampling.noise import Fresh
from sparsevae.training.knobs import knobs

FAMILIES = {
    "gaussian posterior": GaussianPosterior(),
    "spike and slab": SpikeSlabPosterior(ScaledSigmoid()),
    "log-normal spike and slab": LogNormalPosterior(ScaledSigmoid()),
    "warm spike and slab": WarmSpikeSlabPosterior(ScaledSigmoid()),
    "slab": SlabPosterior(),
    "point": PointPosterior(),
    "bernoulli": BernoulliData(),
    "poisson": PoissonData(),
    "gaussian": GaussianData(1e-2),
    "fixed gaussian": FixedGaussianData(0.3),
    "column gaussian": ColumnGaussianData(1e-2, 1),
    "laplace": LaplaceData(0.3),
    "spike and slab data": SpikeSlabData(1e-2),
}


def test_every_named_likelihood_is_among_the_families() -> None:
    assert {type(family) for family in FAMILIES.values()} >= {REGISTRY[name] for name in LIKELIHOODS[1:]}


@pytest.mark.parametrize("name", FAMILIES)
def test_what_is_drawn_has_a_density(name: str) -> None:
    """Of likelihoods and posteriors alike: `fit` draws codes, `sample(noise=True)` draws x."""
    d = FAMILIES[name](torch.zeros(3, FAMILIES[name].width(5)))
    value = Draw(Fresh(torch.Generator().manual_seed(0)), hard=True)(d)
    assert value.shape == (3, 5)
    assert torch.isfinite(d.log_prob(value)).all()


@pytest.mark.parametrize("name", FAMILIES)
def test_width_and_shapes(name: str) -> None:
    family = FAMILIES[name]
    for lead in ((4,), (3, 4), (2, 3, 4)):
        d = family(torch.randn(*lead, family.width(5), generator=torch.Generator().manual_seed(0)))
        assert d.batch_shape == lead
        assert d.event_shape == (5,)
        assert d.mean.shape == (*lead, 5)
        assert d.log_prob(torch.ones(*lead, 5)).shape == lead
        assert d.log_prob(torch.ones(4, 5)).shape == lead  # data shared by all members


@pytest.mark.parametrize("name", [name for name in FAMILIES if name != "point"])  # which has no density
def test_extreme_raw_numbers_stay_finite(name: str) -> None:
    """Networks say wild things early on: neither density nor gradient may be NaN within float32's honest range."""
    family = FAMILIES[name]
    for size in (0.0, 30.0, -30.0, 1e3, -1e3):
        raw = torch.full((2, family.width(3)), size, requires_grad=True)
        value = family(raw).log_prob(torch.ones(2, 3)).sum()
        (gradient,) = torch.autograd.grad(value, raw, allow_unused=True)
        assert torch.isfinite(value)
        assert torch.isfinite(gradient).all()


def test_posteriors_by_hand() -> None:
    """log-variance 2 log 3 is a scale of 3, plus the floor of 1e-4."""
    raw = torch.tensor([[0.5, 2 * math.log(3), 1.0]])
    q = SpikeSlabPosterior(ScaledSigmoid())(raw)
    assert isinstance(q, SpikeSlab)
    assert (float(q.loc), float(q.scale), float(q.logits)) == pytest.approx((0.5, 3.0001, 1.0))
    e = LogNormalPosterior(ScaledSigmoid())(raw)
    assert isinstance(e, LogNormalSpikeSlab)
    log_loc = math.log(math.log1p(math.exp(0.5)) + 1e-4)
    found = (float(e.log_loc), float(e.log_scale), float(e.logits))
    assert found == pytest.approx((log_loc, math.e + 1e-4, 1.0))  # a variance of log z of 9 is cut to e^2
    for family in (GaussianPosterior(), SlabPosterior()):
        d = family(raw[:, :2])
        assert float(d.mean) == 0.5
        assert float(d.stddev) == pytest.approx(3.0001)
    collapsed = GaussianPosterior()(torch.tensor([[0.0, -200.0]]))
    assert float(collapsed.stddev) == pytest.approx(1e-4)


def test_a_point_is_its_own_mode_mean_and_draw() -> None:
    """No density, no variance, no noise; the cost against N(m, s^2) is the quadratic part of a KL."""
    q = PointPosterior()(torch.tensor([[0.5, -2.0]]))
    assert not PointPosterior.density
    assert all(f.density for name, f in FAMILIES.items() if name != "point")
    assert torch.equal(q.mean, q.loc)
    assert torch.equal(q.mode, q.loc)
    assert torch.equal(q.variance, torch.zeros(1, 2))
    assert q.log_prob(q.loc).tolist() == [0.0]
    assert torch.equal(q.expand((3,)).mean, q.loc.expand(3, 2))
    p = normal(torch.tensor([0.0, 1.0]), torch.tensor([1.0, 3.0]))
    assert unit_divergence(q, p).tolist() == [pytest.approx([0.125, 0.5])]
    with pytest.raises(TypeError, match=r"Point posterior: Normal\."):
        divergence(q, FixedSpikeSlab(2, 0.5).marginal(lambda x: q))


def warm(warmth: float, raw: torch.Tensor) -> SpikeSlab:
    family = WarmSpikeSlabPosterior(ScaledSigmoid(30.0))
    family.slab_warmup.fill_(warmth)
    q = family(raw)
    assert isinstance(q, SpikeSlab)
    return q


def test_the_slab_warm_up_runs_from_noise_to_the_slab() -> None:
    """At 1 the draws are those without it; at 0 they are N(0, 1) noise times the gates; between, N(w loc, scale^2w)."""
    g = torch.Generator().manual_seed(0)
    raw, eps, u = torch.randn(6, 12, generator=g), torch.randn(6, 4, generator=g), torch.rand(6, 4, generator=g)
    plain = SpikeSlabPosterior(ScaledSigmoid(30.0))(raw)
    gates = ScaledSigmoid(30.0)(BITS, plain.logits, u)
    assert torch.equal(warm(1.0, raw).draw(eps, u, hard=False), plain.draw(eps, u, hard=False))
    assert torch.equal(warm(0.0, raw).draw(eps, u, hard=False), gates * eps)
    half = gates * (0.5 * plain.loc + plain.scale.sqrt() * eps)
    assert torch.allclose(warm(0.5, raw).draw(eps, u, hard=False), half, rtol=1e-5)
    assert torch.equal(warm(0.5, raw).expand((6,)).draw(eps, u, hard=False), warm(0.5, raw).draw(eps, u, hard=False))


def test_the_warm_up_is_of_relaxed_draws_alone() -> None:
    """Hard draws, densities, codes and divergences do not know of it: the KL uses the slab itself, as the authors'."""
    g = torch.Generator().manual_seed(0)
    raw, eps, u = torch.randn(6, 12, generator=g), torch.randn(6, 4, generator=g), torch.rand(6, 4, generator=g)
    plain, p = SpikeSlabPosterior(ScaledSigmoid(30.0))(raw), FixedSpikeSlab(4, 0.2).marginal(lambda x: None)
    for warmth in (0.0, 0.3, 1.0):
        q = warm(warmth, raw)
        z = q.draw(eps, u, hard=True)
        assert torch.equal(z, plain.draw(eps, u, hard=True))
        assert torch.equal(q.log_prob(z), plain.log_prob(z))
        assert torch.equal(q.mode, plain.mode)
        assert torch.equal(divergence(q, p), divergence(plain, p))


def test_at_the_start_of_the_warm_up_only_gates_learn() -> None:
    g = torch.Generator().manual_seed(0)
    raw, eps, u = torch.randn(6, 12, generator=g), torch.randn(6, 4, generator=g), torch.rand(6, 4, generator=g)
    raw.requires_grad_()
    for warmth, learn in ((0.0, [False, False, True]), (0.5, [True, True, True])):
        (gradient,) = torch.autograd.grad(warm(warmth, raw).draw(eps, u, hard=False).square().sum(), raw)
        assert [bool((part != 0).any()) for part in gradient.chunk(3, -1)] == learn


def test_the_warm_up_is_a_knob_with_one_value_a_member() -> None:
    family = WarmSpikeSlabPosterior(ScaledSigmoid(30.0))
    assert set(knobs(family, Objective(nll, kl))) == {"slab_warmup", "sharpness"}
    assert family.state_dict() == {}
    g = torch.Generator().manual_seed(0)
    raw, eps, u = (
        torch.randn(2, 6, 12, generator=g),
        torch.randn(2, 6, 4, generator=g),
        torch.rand(2, 6, 4, generator=g),
    )
    family.slab_warmup = torch.tensor([0.0, 0.7])
    together = family(raw).draw(eps, u, hard=False)
    for m, warmth in enumerate((0.0, 0.7)):
        assert torch.allclose(together[m], warm(warmth, raw[m]).draw(eps[m], u[m], hard=False), rtol=1e-5)


def test_the_slab_posterior_is_never_off() -> None:
    q = SlabPosterior()(torch.zeros(2, 6))
    assert isinstance(q, SpikeSlab)
    assert bool((q.p_on == 1).all())
    assert torch.equal(q.draw(torch.ones(2, 3), torch.full((2, 3), 1e-6), hard=True), q.loc + q.scale)
    assert torch.equal(q.draw(torch.ones(2, 3), torch.full((2, 3), 1e-6), hard=False), q.loc + q.scale)


def test_likelihoods_by_hand() -> None:
    x = torch.tensor([[1.0, 0.0]])
    logits = torch.tensor([[2.0, -1.0]])
    assert float(BernoulliData()(logits).log_prob(x)) == pytest.approx(
        -math.log1p(math.exp(-2)) - math.log1p(math.exp(-1))
    )
    fixed = FixedGaussianData(0.25)(torch.tensor([[0.5, 0.5]]))
    assert float(fixed.log_prob(x)) == pytest.approx(scipy.stats.norm.logpdf([1, 0], 0.5, 0.5).sum())
    laplace = LaplaceData(0.02)(torch.tensor([[0.5, 0.25]]))  # b = .1, as in MAT's published recipe
    assert float(laplace.log_prob(x)) == pytest.approx(-2 * math.log(0.2) - 0.5 / 0.1 - 0.25 / 0.1, rel=1e-5)
    assert laplace.variance.tolist() == [pytest.approx([0.02, 0.02])]
    free = GaussianData(0.1)(torch.tensor([[0.5, 0.5, 0.0, 1.0]]))
    scale = [math.sqrt(0.1 + math.log(2)), math.sqrt(0.1 + math.log1p(math.e))]
    assert float(free.log_prob(x)) == pytest.approx(scipy.stats.norm.logpdf([1, 0], 0.5, scale).sum())


def test_a_spike_and_slab_value_is_a_zero_with_its_probability_or_has_a_density() -> None:
    logits = torch.tensor([0.7, -0.4])
    d = SpikeSlabData(0.1)(torch.cat([torch.tensor([0.5, -1.0, 0.0, 1.0]), logits])[None])
    p, scale = torch.sigmoid(logits), math.sqrt(0.1 + math.log(2))
    expected = math.log(p[0]) + scipy.stats.norm.logpdf(0.3, 0.5, scale) + math.log(1 - p[1])
    assert float(d.log_prob(torch.tensor([[0.3, 0.0]]))) == pytest.approx(expected)
    assert SpikeSlabData(0.1).describe() == {"variance_floor": 0.1}
    assert (SpikeSlabData.atom, SpikeSlabData.discrete, GaussianData.atom) == (True, False, False)


def test_the_floor_caps_the_density() -> None:
    """-log(2 pi 1e-6)/2 = +5.99 nats a pixel at a floor of 1e-6, +4,695 for 784."""
    d = GaussianData(1e-6)(torch.cat([torch.zeros(1, 784), torch.full((1, 784), -100.0)], 1))
    assert float(d.log_prob(torch.zeros(1, 784))) == pytest.approx(4695, abs=1)
    assert GaussianData(1e-6).describe() == {"variance_floor": 1e-6}
    assert FixedGaussianData(0.5).describe() == LaplaceData(0.5).describe() == {"variance": 0.5}


def test_which_data_a_likelihood_describes() -> None:
    assert BernoulliData().refuses(Span(0.0, 1.0, False)) is None
    assert "from -0.5 to 1" in str(BernoulliData().refuses(Span(-0.5, 1.0, False)))
    assert "needs values in [0, 1]" in str(BernoulliData().refuses(Span(0.0, 255.0, True)))
    assert GaussianData(0.1).refuses(Span(-1e9, 1e9, False)) is None
    assert (BernoulliData.discrete, GaussianData.discrete, FixedGaussianData.discrete) == (True, False, False)


class Signs(Likelihood):
    """Whole numbers from -1 to 1, without a name: it is not registered."""

    support = (-1.0, 1.0)
    whole = True


def test_support_is_the_range_and_whole_numbers_where_they_are_asked_for() -> None:
    signs = Signs()
    assert signs.refuses(Span(-1, 1, True)) is None
    expected = 'likelihood="likelihood" needs whole numbers in [-1, 1], got values from '
    assert signs.refuses(Span(-2, 1, True)) == f"{expected}-2 to 1"
    assert signs.refuses(Span(0, 0.5, False)) == f"{expected}0 to 0.5, some of them fractions"


def test_what_a_score_means_and_which_units_it_has() -> None:
    """A density has the scaling's log-determinant, a probability none; grey pixels and normalised rows are named."""
    grey, bits = torch.tensor([[0.5, 1.0]]), torch.tensor([[0.0, 1.0]])
    doubled = Affine(torch.zeros(2), torch.full((2,), 2.0))
    gaussian, bernoulli = GaussianData(0.1), BernoulliData()
    assert gaussian.log_det(doubled) == pytest.approx(-2 * math.log(2))
    assert bernoulli.log_det(doubled) == 0
    assert [bernoulli.meaning(doubled, [bits, x]) for x in (bits, grey)] == ["bound", "cross-entropy"]
    assert gaussian.meaning(doubled, [grey]) == "bound"
    for likelihood in (gaussian, bernoulli):
        assert likelihood.meaning(UnitNorm(2), [grey]) == "normalised-row density"


def test_names() -> None:
    assert set(LIKELIHOODS) == {"auto", *REGISTRY} - {"tokens"}
    for name in LIKELIHOODS[1:]:
        assert REGISTRY[name].of({"variance_floor": 0.1, "variance": 0.2, "features": 1}).width(1) in (1, 2, 3)
    listed = re.sub(r" \([^)]*\)", "", HELP.removesuffix(" or auto."))
    assert set(listed.split(", ")) == {*LIKELIHOODS[1:]}
    assert users_of("variance") == "likelihood='fixed-gaussian' or 'laplace'"
    for bad in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="variance_floor must be above 0"):
            GaussianData(bad)
        with pytest.raises(ValueError, match="variance_floor must be above 0"):
            SpikeSlabData(bad)
        for family in (FixedGaussianData, LaplaceData):
            with pytest.raises(ValueError, match="variance must be above 0"):
                family(bad)
    with pytest.raises(NotImplementedError):
        Family()(torch.zeros(1, 1))


def test_priors() -> None:
    x = torch.zeros(2, 7)
    p = StandardNormal(3)(x, lambda x: None)
    assert float(p.log_prob(torch.ones(3))) == pytest.approx(scipy.stats.norm.logpdf([1, 1, 1]).sum())
    s = FixedSpikeSlab(3, 0.2)(x, lambda x: None)
    assert s.p_on.tolist() == pytest.approx([0.2] * 3)
    assert float(s.log_prob(torch.zeros(3))) == pytest.approx(3 * math.log(0.8))
    assert bool((FixedSpikeSlab(3, 1.0).logits == math.inf).all())
    e = FixedLogNormal(3, 0.2)(x, lambda x: None)
    assert e.p_on.tolist() == pytest.approx([0.2] * 3)
    assert (e.variance + e.mean.square()).tolist() == pytest.approx([0.2] * 3)  # E[z^2 | on] = 1
    assert FixedLogNormal(3, 0.2).state_dict() == {}
    each = FixedSpikeSlab(3, [0.1, 1.0])(x, lambda x: None)
    assert each.batch_shape == (2, 1)
    assert each.p_on[:, 0, 0].tolist() == pytest.approx([0.1, 1.0])
    for bad in (0.0, 1.5, [0.5, 0.0]):
        with pytest.raises(ValueError, match="probability"):
            FixedSpikeSlab(3, bad)
    assert StandardNormal(3).state_dict() == SparseNormals(3, 0.8, 0.05).state_dict() == {}  # fixed: nothing to store
    two = SparseNormals(3, 0.8, 0.05)(x, lambda x: None)
    assert isinstance(two, TwoNormals)
    assert (float(two.off), two.spike, two.event_shape) == (pytest.approx(0.8), 0.05, (3,))
