"""Objectives: weighted sums of named terms of a trace.

A term maps a Trace to {name: (*members, B)} in nats per item, unweighted. The loss is the weighted sum of the means of
the terms over items, (*members,); training differentiates its sum over members.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from sparsevae.distributions.kl import closed_form, divergence, selection_cost, unit_divergence
from sparsevae.latent.model import Trace
from sparsevae.sampling.choices import Choice
from sparsevae.sampling.gradients import Estimator

Term = Callable[[Trace], dict[str, Tensor]]


def nll(trace: Trace) -> dict[str, Tensor]:
    """-log p(x|z) of every observed site, as `nll_<site>`."""
    return {f"nll_{k}": -seen.log_prob() for k, seen in trace.observed.items()}


def kl(trace: Trace) -> dict[str, Tensor]:
    """KL(q(z|x) || p(z)) of every latent site that has a prior, as `kl_<site>`."""
    return {f"kl_{k}": divergence(s.q, s.p, s.value) for k, s in trace.latents.items() if s.p is not None}


def free_bits(floor: float) -> Term:
    """The KL with `floor` nats free per unit: sum_j max(floor, mean over the batch of KL_j).

    Shape (*members, 1): the maximum is of the batch mean, so there is one number per batch. It is named `kl_<site>`,
    since it replaces the KL and has its weight. A unit below the floor has no gradient.
    """

    def term(trace: Trace) -> dict[str, Tensor]:
        terms = {}
        for k, s in trace.latents.items():
            units, cost = unit_divergence(s.q, s.p, s.value), selection_cost(s.p)
            selection = 0.0 if cost is None else cost.mean(-1, keepdim=True)
            terms[f"kl_{k}"] = units.mean(-2, keepdim=True).clamp_min(floor).sum(-1) + selection
        return terms

    return term


class Objective(nn.Module):
    """loss = sum_k weight_k * mean_B(term_k). A term without a weight has weight 1.

    Weights are buffers of shape () or (*members,), named after their terms, which schedules may set. A term whose value
    for a row depends on the other rows has an attribute `compares_rows = True`.
    """

    def __init__(self, *terms: Term, weights: Mapping[str, float] | None = None) -> None:
        super().__init__()
        self.terms = terms
        self.parts = nn.ModuleList(term for term in terms if isinstance(term, nn.Module))  # they may have knobs
        self.compares_rows = any(getattr(term, "compares_rows", False) for term in terms)
        self.knobs = tuple(weights or ())
        for name, weight in (weights or {}).items():
            self.register_buffer(name, torch.tensor(float(weight)), persistent=False)

    def measure(self, trace: Trace) -> dict[str, Tensor]:
        """Every term, unweighted: (*members, B), or (*members, 1) for one of the whole batch."""
        found: dict[str, Tensor] = {}
        for term in self.terms:
            named = term(trace)
            if twice := found.keys() & named.keys():
                raise ValueError(f"two terms are named {sorted(twice)}: use only one of them, such as kl or free_bits.")
            found |= named
        if unknown := set(self.knobs) - set(found):
            raise ValueError(f"weights for unknown terms {sorted(unknown)}; this model has {sorted(found)}.")
        return found

    def weigh(self, terms: Mapping[str, Tensor]) -> Tensor:
        """The weighted sum of terms: of their means, (*members,), or per item, (*members, B)."""
        weighted = []
        for name, term in terms.items():
            weight = getattr(self, name) if name in self.knobs else None
            if weight is not None and weight.dim() and term.dim() > weight.dim():
                weight = weight.unsqueeze(-1)
            weighted.append(term if weight is None else weight * term)
        return functools.reduce(torch.add, weighted)

    def forward(self, trace: Trace) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss and the mean of each term, (*members,).

        For discrete draws with a score estimator the loss includes a surrogate with value 0, which has the gradient of
        the estimate.
        """
        terms = self.measure(trace)
        choices = _scored(trace)
        if not choices:
            means = {k: v.mean(-1) for k, v in terms.items()}
            return self.weigh(means), means
        estimator = next(iter(choices.values())).estimator
        means = {k: _of_draws(v, estimator).mean(-1) for k, v in terms.items()}
        loss = self.weigh(means)
        for site, choice in choices.items():
            cost = self.weigh(_dependent(terms, trace, site))
            surrogate = choice.estimator.surrogate(cost, choice)
            loss = loss + (surrogate - surrogate.detach()).mean(-1)  # value 0
        return loss, means


def _scored(trace: Trace) -> dict[str, Choice]:
    """The discrete draws of a training trace whose estimators need the cost of each row, by site."""
    if trace.hard:
        return {}
    choices = {k: getattr(s.q, "choice", None) for k, s in trace.latents.items()}
    return {k: c for k, c in choices.items() if c is not None and c.estimator.scored}


def _dependent(terms: Mapping[str, Tensor], trace: Trace, site: str) -> dict[str, Tensor]:
    """The terms that may depend on the draw at a site, by `trace.depends`.

    A KL in closed form depends on earlier draws only, and an exact distribution of labels on none: included in the cost
    they would add variance to the gradient and change nothing else. A term of the whole batch is an error, since it
    has no cost per row.
    """
    independent = {f"nll_{k}" for k in trace.observed if not trace.depends(k, site)}
    for k, s in trace.latents.items():
        if not (trace.depends(k, site) or (k == site and not closed_form(s.q, s.p))):
            independent.add(f"kl_{k}")
    dependent = {k: v for k, v in terms.items() if k not in independent}
    rows = max(v.shape[-1] for v in terms.values())
    if whole := sorted(k for k, v in dependent.items() if v.shape[-1] < rows):
        raise ValueError(
            f"the estimator of {site!r} learns from the cost of each row, and {whole} belong to the batch as a whole. "
            "Use an estimator that needs no cost: concrete, straight-through or straight-through-concrete."
        )
    return dependent


def _of_draws(term: Tensor, estimator: Estimator) -> Tensor:
    """The rows of a term that are draws of q: the first `draws` of the `points` blocks of an estimator."""
    if estimator.points == estimator.draws or term.shape[-1] == 1:
        return term
    return term[..., : term.shape[-1] * estimator.draws // estimator.points]
