"""Families: raw numbers in, the distribution they promise out."""

import math

import pytest
import scipy.stats
import torch

from sparsevae.distributions import SpikeSlab
from sparsevae.families import (
    LIKELIHOODS,
    BernoulliData,
    Family,
    FixedGaussianData,
    GaussianData,
    GaussianPosterior,
    SlabPosterior,
    SpikeSlabPosterior,
    likelihood,
)
from sparsevae.gradients import ScaledSigmoid
from sparsevae.priors import FixedSpikeSlab, StandardNormal

FAMILIES = {
    "gaussian posterior": GaussianPosterior(),
    "spike and slab": SpikeSlabPosterior(ScaledSigmoid()),
    "slab": SlabPosterior(),
    "bernoulli": BernoulliData(),
    "gaussian": GaussianData(1e-2),
    "fixed gaussian": FixedGaussianData(0.3),
}


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


@pytest.mark.parametrize("name", FAMILIES)
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
    for family in (GaussianPosterior(), SlabPosterior()):
        d = family(raw[:, :2])
        assert float(d.mean) == 0.5
        assert float(d.stddev) == pytest.approx(3.0001)
    collapsed = GaussianPosterior()(torch.tensor([[0.0, -200.0]]))
    assert float(collapsed.stddev) == pytest.approx(1e-4)


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
    free = GaussianData(0.1)(torch.tensor([[0.5, 0.5, 0.0, 1.0]]))
    scale = [math.sqrt(0.1 + math.log(2)), math.sqrt(0.1 + math.log1p(math.e))]
    assert float(free.log_prob(x)) == pytest.approx(scipy.stats.norm.logpdf([1, 0], 0.5, scale).sum())


def test_the_floor_caps_the_density() -> None:
    """FACTS section 10, item 5: a floor of 1e-6 allows +5.99 nats a pixel, +4,695 for 784."""
    d = GaussianData(1e-6)(torch.cat([torch.zeros(1, 784), torch.full((1, 784), -100.0)], 1))
    assert float(d.log_prob(torch.zeros(1, 784))) == pytest.approx(4695, abs=1)
    assert GaussianData(1e-6).describe() == {"variance_floor": 1e-6}
    assert FixedGaussianData(0.5).describe() == {"variance": 0.5}


def test_which_data_a_likelihood_describes() -> None:
    assert BernoulliData().check(0.0, 1.0) is None
    assert "from -0.5 to 1" in str(BernoulliData().check(-0.5, 1.0))
    assert "needs values in [0, 1]" in str(BernoulliData().check(0.0, 255.0))
    assert GaussianData(0.1).check(-1e9, 1e9) is None
    assert (BernoulliData.discrete, GaussianData.discrete, FixedGaussianData.discrete) == (True, False, False)


def test_names() -> None:
    for name in LIKELIHOODS[1:]:
        assert likelihood(name, variance_floor=0.1, variance=0.2).width(1) in (1, 2)
    with pytest.raises(ValueError, match=r"bernoulli, gaussian, fixed-gaussian; got 'poisson'"):
        likelihood("poisson", variance_floor=0.1, variance=0.2)
    for bad in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="variance_floor must be above 0"):
            GaussianData(bad)
        with pytest.raises(ValueError, match="variance must be above 0"):
            FixedGaussianData(bad)
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
    each = FixedSpikeSlab(3, [0.1, 1.0])(x, lambda x: None)
    assert each.batch_shape == (2, 1)
    assert each.p_on[:, 0, 0].tolist() == pytest.approx([0.1, 1.0])
    for bad in (0.0, 1.5, [0.5, 0.0]):
        with pytest.raises(ValueError, match="probability"):
            FixedSpikeSlab(3, bad)
    assert StandardNormal(3).state_dict() == {}  # fixed: nothing to store
