"""One-hot groups: values that are never taken cost nothing and break nothing."""

from __future__ import annotations

import torch

from sparsevae.distributions.kl import divergence, unit_divergence
from sparsevae.distributions.one_hot import OneHotCode

NEVER = -torch.inf


def test_a_value_that_is_never_taken_is_as_if_it_were_not_there() -> None:
    """Groups of three with one value shut are groups of two: density, entropy and KL alike, and their gradients."""
    two = [torch.tensor([0.3, -1.0, 2.0, 0.5], requires_grad=True), torch.tensor([0.0, 0.4, -0.2, 0.1])]
    at = torch.tensor([0, 1, 3, 4])  # the places of values that are taken, among those of two groups of three
    three = [torch.full((6,), NEVER).index_copy(0, at, logits) for logits in two]
    value = torch.tensor([1.0, 0.0, 0.0, 1.0])
    numbers = []
    for logits, categories, code in ((two, 2, value), (three, 3, torch.zeros(6).index_copy(0, at, value))):
        q, p = (OneHotCode(each, categories) for each in logits)
        found = torch.stack([q.log_prob(code), q.entropy(), divergence(q, p)])
        slopes = torch.stack([torch.autograd.grad(x, two[0], retain_graph=True)[0] for x in found])
        assert slopes.abs().min() > 0
        numbers.append(torch.cat([found[:, None], slopes], 1))
    torch.testing.assert_close(*numbers, rtol=1e-5, atol=1e-6)


def test_to_take_a_value_that_the_other_never_takes_costs_infinitely_much() -> None:
    q, p = (OneHotCode(torch.tensor(logits), 2) for logits in ([0.0, 0.0], [0.0, NEVER]))
    assert unit_divergence(q, p)[1] == divergence(q, p) == torch.inf
    assert divergence(p, q).isfinite()
    assert p.log_prob(torch.tensor([0.0, 1.0])) == -torch.inf
