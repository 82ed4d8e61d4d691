"""Log-normal spike-and-slabs: against scipy, quadrature and draws; values never below zero."""

from __future__ import annotations

import math

import pytest
import scipy.stats
import torch
from torch import Tensor

from sparsevae.distributions.kl import divergence, unit_divergence
from sparsevae.distributions.spike_slab import LogNormalSpikeSlab, SpikeSlab
from sparsevae.sampling.draw import Draw
from sparsevae.sampling.gradients import ScaledSigmoid, StraightThroughConcrete
from sparsevae.sampling.noise import Fresh
from sparsevae.testing import check_distribution

INF = math.inf
CASES = {
    # name: (logits, log_loc, log_scale), (the same of a prior)
    "plain": (
        ([-1.0, 0.0, 2.0], [0.5, 0.0, -2.0], [0.4, 0.3, 0.2]),
        ([-2.2, 0.0, 1.0], [-1.0, -1.0, -1.0], [1.0, 1.0, 1.0]),
    ),
    "never off": (([INF, INF], [0.3, -1.0], [0.3, 0.1]), ([INF, INF], [0.0, 0.0], [1.0, 2.0])),
    "never on": (([-INF, -INF], [0.3, -1.0], [0.3, 0.1]), ([1.0, -2.0], [0.0, 0.0], [1.0, 2.0])),
    "narrow and far": (([0.0, -1.0], [5.0, -5.0], [1e-3, 0.1]), ([0.0, 0.0], [4.0, -4.0], [1.0, 0.5])),
}


def tensors(*values: list[float]) -> tuple[Tensor, ...]:
    return tuple(torch.tensor(v, dtype=torch.float64) for v in values)


def unchecked(*parameters: Tensor) -> LogNormalSpikeSlab:
    """The quadrature of `check_distribution` goes below 0 too, where the density is 0."""
    return LogNormalSpikeSlab(*parameters, ScaledSigmoid(20.0), validate_args=False)


@pytest.mark.parametrize("name", CASES)
def test_a_log_normal_spike_and_slab_agrees_with_itself(name: str) -> None:
    q, p = CASES[name]
    slabs = unchecked(*tensors(*q))
    check_distribution(unchecked, tensors(*q), other=tensors(*p), atoms=(0.0,), reach=(slabs.loc, slabs.scale))


def test_density_and_moments_are_scipy_s() -> None:
    q = LogNormalSpikeSlab(*tensors([0.4], [-0.7], [0.6]))
    p_on, slab = 1 / (1 + math.exp(-0.4)), scipy.stats.lognorm(0.6, scale=math.exp(-0.7))
    assert float(q.log_prob(torch.tensor([0.9]))) == pytest.approx(math.log(p_on) + slab.logpdf(0.9))
    assert float(q.log_prob(torch.zeros(1))) == pytest.approx(math.log(1 - p_on))
    assert (float(q.loc), float(q.scale)) == pytest.approx((slab.mean(), slab.std()))
    assert float(q.mean) == pytest.approx(p_on * slab.mean())
    assert float(q.mode) == pytest.approx(slab.mean())
    assert LogNormalSpikeSlab(*tensors([-0.4], [-0.7], [0.6])).mode.tolist() == [0.0]
    with pytest.raises(ValueError, match="support"):
        q.log_prob(torch.tensor([-0.9]))
    assert float(unchecked(*tensors([0.4], [-0.7], [0.6])).log_prob(torch.tensor([-0.9]))) == -INF


def test_the_kl_is_that_of_the_logarithms() -> None:
    q, p = (tensors(*side) for side in CASES["plain"])
    wanted = unit_divergence(SpikeSlab(*q), SpikeSlab(*p))
    assert torch.equal(unit_divergence(LogNormalSpikeSlab(*q), LogNormalSpikeSlab(*p)), wanted)
    with pytest.raises(TypeError, match=r"LogNormalSpikeSlab posterior: LogNormalSpikeSlab\."):
        divergence(LogNormalSpikeSlab(*q), SpikeSlab(*p))


@pytest.mark.parametrize("gate", [ScaledSigmoid(50.0), StraightThroughConcrete(0.5)])
def test_draws_are_above_zero_or_exactly_zero(gate: torch.nn.Module) -> None:
    """Also where the exponential underflows: an exact 0 would count as off."""
    logits, m, s = (torch.tensor(v).expand(500, 3) for v in ([0.0, 1.0, INF], [0.3, -1.0, -200.0], [0.5, 2.0, 1.0]))
    q = LogNormalSpikeSlab(logits, m, s, gate, validate_args=False)
    for hard in (True, False):
        z = Draw(Fresh(torch.Generator().manual_seed(0)), hard=hard)(q)
        assert bool((z >= 0).all())
    z = Draw(Fresh(torch.Generator().manual_seed(0)), hard=True)(q)
    assert bool((z[:, 2] > 0).all())
    assert 0.4 < float((z[:, 0] > 0).float().mean()) < 0.6
