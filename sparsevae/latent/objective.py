"""Objectives: named terms of a trace, and the weights they are added with.

A term maps a Trace to {name: (*members, B)} in nats per item, unweighted. The loss averages each term over items
and adds them up with weights; it has shape (*members,), and its sum is what is differentiated.
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
    """The KL with `floor` nats free for every unit: sum_j max(floor, mean over the batch of KL_j).

    Shape (*members, 1): the maximum is of the batch mean, so there is one number a batch. The name stays
    `kl_<site>`, since it takes the KL's place and its weight; a unit below the floor feels no pressure.
    """

    def term(trace: Trace) -> dict[str, Tensor]:
        terms = {}
        for k, s in trace.latents.items():
            units, choice = unit_divergence(s.q, s.p, s.value), selection_cost(s.p)
            paid = 0.0 if choice is None else choice.mean(-1, keepdim=True)
            terms[f"kl_{k}"] = units.mean(-2, keepdim=True).clamp_min(floor).sum(-1) + paid
        return terms

    return term


class Objective(nn.Module):
    """loss = sum_k weight_k * mean_B(term_k). A term without a weight counts once.

    Weights are buffers of shape () or (*members,), under the term's own name, for schedules to drive. A term whose
    value of a row depends on the other rows says so by an attribute `compares_rows`.
    """

    def __init__(self, *terms: Term, weights: Mapping[str, float] | None = None) -> None:
        super().__init__()
        self.terms = terms
        self.parts = nn.ModuleList(term for term in terms if isinstance(term, nn.Module))  # may have knobs of their own
        self.compares_rows = any(getattr(term, "compares_rows", False) for term in terms)
        self.knobs = tuple(weights or ())
        for name, weight in (weights or {}).items():
            self.register_buffer(name, torch.tensor(float(weight)), persistent=False)

    def measure(self, trace: Trace) -> dict[str, Tensor]:
        """Every term, (*members, B) or, where it belongs to the batch, (*members, 1); unweighted."""
        found: dict[str, Tensor] = {}
        for term in self.terms:
            named = term(trace)
            if twice := found.keys() & named.keys():
                raise ValueError(f"two terms are called {sorted(twice)}: kl and free_bits, say, exclude each other.")
            found |= named
        if unknown := set(self.knobs) - set(found):
            raise ValueError(f"weights for unknown terms {sorted(unknown)}; this model has {sorted(found)}.")
        return found

    def weigh(self, terms: Mapping[str, Tensor]) -> Tensor:
        """The weighted sum of terms, averaged (*members,) or item by item (*members, B)."""
        weighted = []
        for name, term in terms.items():
            weight = getattr(self, name) if name in self.knobs else None
            if weight is not None and weight.dim() and term.dim() > weight.dim():
                weight = weight.unsqueeze(-1)
            weighted.append(term if weight is None else weight * term)
        return functools.reduce(torch.add, weighted)

    def forward(self, trace: Trace) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss and the mean of every term, (*members,).

        Discrete draws add what their estimator needs: a surrogate made of what each row cost.
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
            cost = self.weigh(_at_stake(terms, trace, site))
            surrogate = choice.estimator.surrogate(cost, choice)
            loss = loss + (surrogate - surrogate.detach()).mean(-1)  # it has a gradient and no value
        return loss, means


def _scored(trace: Trace) -> dict[str, Choice]:
    """The discrete draws of a training trace whose estimators ask for the cost of each row, by site."""
    if trace.hard:
        return {}
    choices = {k: getattr(s.q, "choice", None) for k, s in trace.latents.items()}
    return {k: c for k, c in choices.items() if c is not None and c.estimator.scored}


def _at_stake(terms: Mapping[str, Tensor], trace: Trace, site: str) -> dict[str, Tensor]:
    """Terms that the draw at a site may change: all but the KLs and likelihoods that the trace says do not hear it.

    A KL in closed form depends on earlier draws alone, an exact law of labels on none: left in, they would add variance
    and nothing else. A term of the whole batch is refused, since what it owes to one row cannot be told.
    """
    independent = {f"nll_{k}" for k in trace.observed if not trace.depends(k, site)}
    for k, s in trace.latents.items():
        if not (trace.depends(k, site) or (k == site and not closed_form(s.q, s.p))):
            independent.add(f"kl_{k}")
    stake = {k: v for k, v in terms.items() if k not in independent}
    rows = max(v.shape[-1] for v in terms.values())
    if whole := sorted(k for k, v in stake.items() if v.shape[-1] < rows):
        raise ValueError(
            f"the estimator of {site!r} learns from the cost of each row, and {whole} belong to the batch as a whole. "
            "Take one that needs no cost: concrete, straight-through or straight-through-concrete."
        )
    return stake


def _of_draws(term: Tensor, estimator: Estimator) -> Tensor:
    """The rows that are draws, where an estimator also looks elsewhere: the first blocks of (points, B)."""
    if estimator.points == estimator.draws or term.shape[-1] == 1:
        return term
    return term[..., : term.shape[-1] * estimator.draws // estimator.points]
