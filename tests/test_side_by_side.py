"""Claim: a code of several independent parts is the product of their laws."""

from __future__ import annotations

import pytest
import torch

from sparsevae.capped import Capped
from sparsevae.counts import Counts
from sparsevae.distributions import divergence
from sparsevae.draw import Draw, Fresh
from sparsevae.families import CappedPosterior, CountsPosterior
from sparsevae.priors import FixedCapped, FixedCounts
from sparsevae.side_by_side import SideBySide, SideBySidePosterior, SideBySidePrior
from sparsevae.training_draws import TrainingDraw

RAW = torch.randn(5, 4 + 3, generator=torch.Generator().manual_seed(0))


def family() -> SideBySidePosterior:
    draw = TrainingDraw()
    return SideBySidePosterior([CountsPosterior(2, draw), CappedPosterior(2, draw)], [3, 3])


def test_density_divergence_and_moments_are_those_of_the_parts() -> None:
    q = family()(RAW)
    assert isinstance(q, SideBySide)
    first, second = Counts(RAW[:, 3:4], RAW[:, :3], 2), Capped(RAW[:, 4:], 2)
    z = torch.tensor([[1.0, 0.0, 1.0, 1.0, 0.0, 0.0]]).expand(5, 6)
    torch.testing.assert_close(q.log_prob(z), first.log_prob(z[:, :3]) + second.log_prob(z[:, 3:]))
    for name in ("mean", "variance", "mode", "p_on"):
        torch.testing.assert_close(getattr(q, name), torch.cat([getattr(first, name), getattr(second, name)], -1))
    priors = [FixedCounts(3, 2, 0.5), FixedCapped(3, 2, 0.3)]
    p = SideBySidePrior(priors).law(lambda x: q)
    kl = divergence(first, priors[0].law(lambda x: q)) + divergence(second, priors[1].law(lambda x: q))
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
    with pytest.raises(ValueError, match=r"these parts have 3 \+ 3 units, asked for 5"):
        family().width(5)
