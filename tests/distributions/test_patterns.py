"""Patterns of gates: densities that sum to 1, a KL that is an upper bound and exact where it must be, draws."""

import itertools
import math

import pytest
import torch
from torch import Tensor

import sparsevae as sv
from sparsevae.distributions.kl import divergence
from sparsevae.distributions.patterns import PatternSpikeSlab
from sparsevae.distributions.spike_slab import SpikeSlab
from sparsevae.sampling.draw import Draw
from sparsevae.sampling.noise import Fresh

J, C = 4, 3
_generator = torch.Generator().manual_seed(0)
LOGITS = 2 * torch.randn(C, J, generator=_generator, dtype=torch.float64)
WEIGHTS = torch.randn(C, generator=_generator, dtype=torch.float64)
P = PatternSpikeSlab(LOGITS, WEIGHTS)
SUPPORTS = torch.tensor(list(itertools.product([0.0, 1.0], repeat=J)), dtype=torch.float64)


def log_p_support(p: PatternSpikeSlab, on: Tensor) -> Tensor:
    """log P(these units are on), by the definition: a sum over patterns of products over units."""
    rho, pi = torch.softmax(p.weights, 0), torch.sigmoid(p.logits)
    each = torch.where(on.unsqueeze(-2) > 0, pi, 1 - pi).prod(-1)
    return (rho * each).sum(-1).log()


def exact_kl(q: SpikeSlab, p: PatternSpikeSlab) -> Tensor:
    """KL of one row by enumeration of supports; the slabs are independent of the pattern."""
    on = q.p_on
    q_on = torch.where(SUPPORTS > 0, on, 1 - on).prod(-1)
    gates = (q_on * (q_on.log() - log_p_support(p, SUPPORTS))).sum()
    slabs = 0.5 * (q.scale.square() + q.loc.square() - 1) - q.scale.log()
    return gates + (on * slabs).sum()


def posterior(seed: int) -> SpikeSlab:
    raw = torch.randn(3, J, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return SpikeSlab(2 * raw[0], raw[1], raw[2].exp(), validate_args=False)


def test_supports_have_probabilities_that_sum_to_one() -> None:
    assert float(log_p_support(P, SUPPORTS).exp().sum()) == pytest.approx(1, abs=1e-12)
    z = torch.tensor([0.3, 0.0, -1.2, 0.0], dtype=torch.float64)
    slabs = sum(-0.5 * v * v - 0.5 * math.log(2 * math.pi) for v in (0.3, -1.2))
    expected = float(log_p_support(P, (z != 0).double())) + slabs
    assert float(P.log_prob(z)) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_the_kl_is_an_upper_bound_and_close_where_one_pattern_fits(seed: int) -> None:
    q = posterior(seed)
    bound, exact = float(divergence(q, P)), float(exact_kl(q, P))
    assert bound >= exact - 1e-9
    far_apart = PatternSpikeSlab(torch.tensor([[9.0] * J, [-9.0] * J]).double(), torch.zeros(2).double())
    one = SpikeSlab(torch.full((J,), 9.0).double(), q.loc, q.scale, validate_args=False)
    assert float(divergence(one, far_apart)) == pytest.approx(float(exact_kl(one, far_apart)), abs=1e-3)


@pytest.mark.parametrize("seed", range(3))
def test_one_pattern_is_a_fixed_prior(seed: int) -> None:
    q, gates = posterior(seed), LOGITS[0]
    one = SpikeSlab(gates, torch.zeros(J).double(), torch.ones(J).double(), validate_args=False)
    single = PatternSpikeSlab(LOGITS[:1], WEIGHTS[:1])
    assert float(divergence(q, single)) == pytest.approx(float(divergence(q, one)), abs=1e-9)
    z = Draw(Fresh(torch.Generator().manual_seed(seed)), hard=True)(q)
    assert float(single.log_prob(z)) == pytest.approx(float(one.log_prob(z)), abs=1e-9)


def test_the_kl_passes_gradients_to_posterior_and_patterns() -> None:
    def of(logits: Tensor, loc: Tensor, scale: Tensor, patterns: Tensor, weights: Tensor) -> Tensor:
        q = SpikeSlab(logits, loc, scale.exp(), validate_args=False)
        return divergence(q, PatternSpikeSlab(patterns, weights))

    q = posterior(7)
    inputs = (q.logits[None], q.loc[None], q.scale.log()[None], LOGITS, WEIGHTS)
    assert torch.autograd.gradcheck(of, [t.detach().clone().requires_grad_() for t in inputs])


def test_draws_have_the_supports_of_the_mixture() -> None:
    n = 20_000
    z = Draw(Fresh(torch.Generator().manual_seed(1)), hard=True)(
        PatternSpikeSlab(LOGITS.float(), WEIGHTS.float()).expand((n,))
    )
    index = ((z != 0).double() @ torch.tensor([8.0, 4.0, 2.0, 1.0]).double()).long()
    seen = torch.bincount(index, minlength=16) / n
    expected = log_p_support(P, SUPPORTS).exp()
    assert torch.allclose(seen.double(), expected, atol=4 * math.sqrt(0.25 / n))
    assert float(z[z != 0].var()) == pytest.approx(1, abs=0.05)


def test_a_model_with_patterns_learns_which_units_go_together() -> None:
    """Rows of two kinds, each with its own two directions: the bound rises by what choosing the pattern saves."""
    rng = torch.Generator().manual_seed(0)
    kind = torch.randint(2, (600, 1), generator=rng).float()
    one, other = (
        torch.randn(600, 4, generator=rng) @ torch.eye(4, 8),
        torch.randn(600, 4, generator=rng) @ torch.eye(8)[4:],
    )
    X = (kind * one + (1 - kind) * other + 0.1 * torch.randn(600, 8, generator=rng)).numpy()
    settings = {
        "hidden": (64,),
        "alpha": 0.5,
        "likelihood": "fixed-gaussian",
        "variance": 0.05,
        "scale": "none",
        "training": sv.Training(steps=1500, verbose=0),
    }
    independent, patterns = (sv.VSC(8, start="subspaces", patterns=n, **settings).fit(X) for n in (0, 2))
    assert patterns.score(X) > independent.score(X) + 1
