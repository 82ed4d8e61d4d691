"""Claim: what a code says of labels is exact. Marginals and sets are those of enumeration, at any size of logits."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch.distributions import Normal
from torch.nn.functional import logsigmoid

from sparsevae.distributions.capped import Capped
from sparsevae.distributions.counts import Counts
from sparsevae.likelihoods.labels import LABEL_LIKELIHOODS, log_odds

K = 4
rng = torch.Generator().manual_seed(0)


def randn(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=rng, dtype=torch.float64)


DISTRIBUTIONS: dict[str, Any] = {
    "counts": lambda: Counts(randn(3, 1), 2 * randn(3, K), 3),
    "counts, one draw": lambda: Counts(randn(3, 1), randn(3, K), 1),
    "counts, one feature": lambda: Counts(randn(3, 1), randn(3, 1), 2),
    "capped": lambda: Capped(2 * randn(3, K), 2),
    "capped, free": lambda: Capped(2 * randn(3, K), K),
}


def codes(q: Any) -> torch.Tensor:
    """Every code that the distribution allows, (codes, K)."""
    most = q.cap if isinstance(q, Counts) else 1
    all_codes = torch.tensor([*itertools.product(range(most + 1), repeat=q.event_shape[0])], dtype=torch.float64)
    return all_codes[all_codes.sum(-1) <= q.cap]


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_the_odds_of_a_label_are_those_of_enumeration(name: str) -> None:
    q = DISTRIBUTIONS[name]()
    z = codes(q)
    p = q.log_prob(z[:, None]).exp()  # (codes, items)
    on = (p[..., None] * (z > 0)[:, None]).sum(0)
    torch.testing.assert_close(log_odds(q), on.log() - (1 - on).log(), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_the_probability_of_a_set_is_that_of_enumeration(name: str) -> None:
    q = DISTRIBUTIONS[name]()
    z, n = codes(q), q.event_shape[0]
    p = q.log_prob(z[:, None]).exp()
    total = torch.zeros(3, dtype=torch.float64)
    for y in itertools.product((0.0, 1.0), repeat=n):
        same = ((z > 0) == torch.tensor(y).bool()).all(-1)
        found = LABEL_LIKELIHOODS["set"](q, z).log_prob(torch.tensor(y, dtype=torch.float64).expand(3, n)).exp()
        torch.testing.assert_close(found, p[same].sum(0), rtol=1e-9, atol=1e-12)
        total += found
    torch.testing.assert_close(total, torch.ones(3, dtype=torch.float64))


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_marginals_are_a_cross_entropy_of_the_odds(name: str) -> None:
    q = DISTRIBUTIONS[name]()
    y = (randn(3, q.event_shape[0]) > 0).double()
    odds = log_odds(q)
    wanted = (y * logsigmoid(odds) + (1 - y) * logsigmoid(-odds)).sum(-1)
    torch.testing.assert_close(LABEL_LIKELIHOODS["marginals"](q, y).log_prob(y), wanted)


@pytest.mark.parametrize("size", [1.0, 30.0, 300.0])
@pytest.mark.parametrize("y", [0.0, 1.0])
def test_counts_of_any_certainty_have_finite_losses_and_gradients_in_single_precision(size: float, y: float) -> None:
    gate, features = (size * randn(50, n).float().requires_grad_() for n in (1, 6))
    gate.retain_grad()
    features.retain_grad()
    q = Counts(gate, features, 3)
    exact = log_odds(Counts(gate.double(), features.double(), 3))
    torch.testing.assert_close(log_odds(q).double(), exact, rtol=1e-5, atol=1e-4)
    loss = LABEL_LIKELIHOODS["marginals"](q, gate).log_prob(torch.full((50, 6), y)).sum()
    loss.backward()
    assert bool(torch.isfinite(loss))
    assert bool(torch.isfinite(gate.grad).all())  # type: ignore[arg-type]
    assert bool(torch.isfinite(features.grad).all())  # type: ignore[arg-type]


def test_a_code_that_is_surely_wrong_keeps_its_gradient() -> None:
    gate, features = torch.full((1, 1), 60.0, requires_grad=True), torch.tensor([[60.0, 0.0]], requires_grad=True)
    LABEL_LIKELIHOODS["marginals"](Counts(gate, features, 2), gate).log_prob(
        torch.tensor([[0.0, 0.0]])
    ).sum().backward()
    assert float(gate.grad) < -0.5  # type: ignore[arg-type]  # P(z_1 = 0) is e^-120, and still says which way to go


@pytest.mark.parametrize("size", [1.0, 20.0, 300.0])
def test_capped_gates_of_any_certainty_have_finite_losses_and_gradients(size: float) -> None:
    logits = (size * randn(50, 6)).float().requires_grad_()
    loss = LABEL_LIKELIHOODS["marginals"](Capped(logits, 2), logits).log_prob((randn(50, 6) > 0).float()).sum()
    loss.backward()
    assert bool(torch.isfinite(loss))
    assert bool(torch.isfinite(logits.grad).all())  # type: ignore[arg-type]


def test_a_rare_label_keeps_its_gradient_where_its_probability_underflows() -> None:
    features = torch.tensor([[0.0, -120.0]], requires_grad=True)
    odds = log_odds(Counts(torch.zeros(1, 1), features, 2))
    odds[0, 1].backward()
    assert float(odds[0, 1].detach()) == pytest.approx(-120.0, abs=0.01)  # L0 lambda pi = 2 * 1/2 * e^-120
    assert float(features.grad[0, 1]) == pytest.approx(1.0)  # type: ignore[index]


def test_a_relaxed_draw_is_a_probability_and_costs_a_finite_amount_at_its_ends() -> None:
    z = torch.tensor([[0.0, 0.3, 1.7]])
    dist = LABEL_LIKELIHOODS["relaxed"](Counts(torch.zeros(1, 1), torch.zeros(1, 3), 2), z)
    found = dist.log_prob(torch.tensor([[1.0, 1.0, 0.0]]))
    wanted = torch.tensor([[1e-6, 0.3, 1e-6]]).log().sum(-1)
    torch.testing.assert_close(found, wanted, rtol=1e-2, atol=0)


@pytest.mark.parametrize("name", ["marginals", "set"])
def test_codes_without_labels_are_refused_by_name(name: str) -> None:
    with pytest.raises(TypeError, match="a Counts or a Capped, got a Normal"):
        LABEL_LIKELIHOODS[name](Normal(torch.zeros(2, 3), torch.ones(2, 3)), torch.zeros(2, 3))
