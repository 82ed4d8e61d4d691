"""Objectives: named terms of a trace, and the weights they are added with.

A term maps a Trace to {name: (*members, B)} in nats per item, unweighted. The loss averages each term over items
and adds them up with weights; it has shape (*members,), and its sum is what is differentiated.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from sparsevae.distributions import divergence, surcharge, unit_divergence
from sparsevae.model import Trace

__all__ = ["Objective", "Term", "free_bits", "kl", "nll"]

Term = Callable[[Trace], dict[str, Tensor]]


def nll(trace: Trace) -> dict[str, Tensor]:
    """-log p(x|z) of every observed site, as `nll_<site>`."""
    return {f"nll_{k}": -d.log_prob(v) for k, (d, v) in trace.observed.items()}


def kl(trace: Trace) -> dict[str, Tensor]:
    """KL(q(z|x) || p(z)) of every latent site, as `kl_<site>`."""
    return {f"kl_{k}": divergence(s.q, s.p, s.value) for k, s in trace.latents.items()}


def free_bits(floor: float) -> Term:
    """The KL with `floor` nats free for every unit: sum_j max(floor, mean over the batch of KL_j).

    Shape (*members, 1): the maximum is of the batch mean, so there is one number a batch. The name stays
    `kl_<site>`, since it takes the KL's place and its weight; a unit below the floor feels no pressure.
    """

    def term(trace: Trace) -> dict[str, Tensor]:
        terms = {}
        for k, s in trace.latents.items():
            units, choice = unit_divergence(s.q, s.p, s.value), surcharge(s.p)
            paid = choice.mean(-1, keepdim=True) if isinstance(choice, Tensor) else choice
            terms[f"kl_{k}"] = units.mean(-2, keepdim=True).clamp_min(floor).sum(-1) + paid
        return terms

    return term


class Objective(nn.Module):
    """loss = sum_k weight_k * mean_B(term_k). A term without a weight counts once.

    Weights are buffers of shape () or (*members,), under the term's own name, for schedules to drive.
    """

    def __init__(self, *terms: Term, weights: Mapping[str, float] | None = None) -> None:
        super().__init__()
        self.terms = terms
        self.parts = nn.ModuleList(term for term in terms if isinstance(term, nn.Module))  # may have knobs of their own
        self.knobs = tuple(weights or ())
        for name, weight in (weights or {}).items():
            self.register_buffer(name, torch.tensor(float(weight)), persistent=False)

    def measure(self, trace: Trace) -> dict[str, Tensor]:
        """Every term, averaged over items, (*members,); unweighted."""
        means: dict[str, Tensor] = {}
        for term in self.terms:
            named = term(trace)
            if twice := means.keys() & named.keys():
                raise ValueError(f"two terms are called {sorted(twice)}: kl and free_bits, say, exclude each other.")
            means |= {k: v.mean(-1) for k, v in named.items()}
        if unknown := set(self.knobs) - set(means):
            raise ValueError(f"weights for unknown terms {sorted(unknown)}; this model has {sorted(means)}.")
        return means

    def weigh(self, means: Mapping[str, Tensor]) -> Tensor:
        """The weighted sum of measured terms, (*members,)."""
        weighted = [getattr(self, k) * v if k in self.knobs else v for k, v in means.items()]
        return functools.reduce(torch.add, weighted)

    def forward(self, trace: Trace) -> tuple[Tensor, dict[str, Tensor]]:
        means = self.measure(trace)
        return self.weigh(means), means
