"""Claim: a code of several independent parts is the product of their distributions."""

from __future__ import annotations

import pytest
import torch

from sparsevae.distributions.capped import Capped
from sparsevae.distributions.concatenated import Concatenated
from sparsevae.distributions.counts import Counts
from sparsevae.distributions.discrete_draws import TrainingDraw
from sparsevae.distributions.kl import divergence
from sparsevae.latent.concatenated import ConcatenatedPosterior, ConcatenatedPrior
from sparsevae.latent.posteriors import CappedPosterior, CountsPosterior
from sparsevae.latent.priors import FixedCapped, FixedCounts
from sparsevae.sampling.draw import Draw
from sparsevae.sampling.noise import Fresh

RAW = torch.randn(5, 4 + 3, generator=torch.Generator().manual_seed(0))


def family() -> ConcatenatedPosterior:
    draw = TrainingDraw()
    return ConcatenatedPosterior([CountsPosterior(2, draw), CappedPosterior(2, draw)], [3, 3])


def test_density_divergence_and_moments_are_those_of_the_parts() -> None:
    q = family()(RAW)
    assert isinstance(q, Concatenated)
    first, second = Counts(RAW[:, 3:4], RAW[:, :3], 2), Capped(RAW[:, 4:], 2)
    z = torch.tensor([[1.0, 0.0, 1.0, 1.0, 0.0, 0.0]]).expand(5, 6)
    torch.testing.assert_close(q.log_prob(z), first.log_prob(z[:, :3]) + second.log_prob(z[:, 3:]))
    for name in ("mean", "variance", "mode", "p_on"):
        torch.testing.assert_close(getattr(q, name), torch.cat([getattr(first, name), getattr(second, name)], -1))
    priors = [FixedCounts(3, 2, 0.5), FixedCapped(3, 2, 0.3)]
    p = ConcatenatedPrior(priors).marginal(lambda x: q)
    kl = divergence(first, priors[0].marginal(lambda x: q)) + divergence(second, priors[1].marginal(lambda x: q))
    torch.testing.assert_close(divergence(q, p), kl)
    torch.testing.assert_close(divergence(q, q), torch.zeros(5), atol=1e-6, rtol=0)


def test_hard_draws_keep_either_cap_and_have_the_mean() -> None:
    q = family()(RAW).expand((4000, 5))
    z = Draw(Fresh(torch.Generator().manual_seed(1)), hard=True)(q)
    assert z.shape == (4000, 5, 6)
    assert float(z[..., :3].sum(-1).max()) == float(z[..., 3:].sum(-1).max()) == 2
    error = (q.variance[0] / 4000).sqrt()
    assert bool(((z.mean(0) - q.mean[0]).abs() < 5 * error).all())


def test_a_wrong_number_of_units_is_refused() -> None:
    assert family().width(6) == 7
    with pytest.raises(ValueError, match=r"n must be 3 \+ 3, the units of the parts, got 5"):
        family().width(5)
