"""Divergences, declared by pairs of distributions."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor
from torch.distributions import Distribution, Independent


class _Rule(NamedTuple):
    kl: Callable[..., Tensor]
    monte_carlo: bool
    per_unit: bool
    units: Callable[..., Tensor | None] | None

    def measure(self, q: Distribution, p: Distribution, value: Tensor | None) -> Tensor:
        if not self.monte_carlo:
            return self.kl(q, p)
        if value is None:
            name = f"KL({type(q).__name__} || {type(p).__name__})"
            raise ValueError(f"{name} is estimated from a draw of q: pass value=.")
        return self.kl(q, p, value)


_RULES: dict[tuple[type[Distribution], type[Distribution]], _Rule] = {}


def pair(
    q: type[Distribution],
    p: type[Distribution],
    *,
    monte_carlo: bool = False,
    per_unit: bool = True,
    units: Callable[..., Tensor | None] | None = None,
) -> Callable[[Callable[..., Tensor]], Callable[..., Tensor]]:
    """Declare that `q || p` means something: kl(q, p) per unit, or kl(q, p, value) estimated from a draw of q.

    Estimates are for pairs with one base measure that lack a closed form; nothing falls back to them unasked. With
    per_unit=False the units depend on one another, and the function gives one number per item, (..., B); where some
    laws of the pair have independent units all the same, units(q, p) is their KL per unit, and None of the others.
    """

    def register(kl: Callable[..., Tensor]) -> Callable[..., Tensor]:
        _RULES[q, p] = _Rule(kl, monte_carlo, per_unit, units)
        return kl

    return register


def _base(d: Distribution) -> Distribution:
    return d.base_dist if isinstance(d, Independent) else d


def _rule(q: Distribution, p: Distribution) -> _Rule:
    rule = _RULES.get((type(q), type(p)))
    if rule is None:
        legal = sorted(b.__name__ for a, b in _RULES if a is type(q))
        partners = ", ".join(legal) if legal else "none"
        every = ", ".join(f"{a.__name__} || {b.__name__}" for a, b in _RULES)
        raise TypeError(
            f"KL({type(q).__name__} || {type(p).__name__}) is not defined here. Legal priors for a "
            f"{type(q).__name__} posterior: {partners}. All legal pairs: {every}."
        )
    return rule


def unit_divergence(q: Distribution, p: Distribution, value: Tensor | None = None) -> Tensor:
    """KL(q || p) of each unit, (..., B, J), in nats; a TypeError for a pair without a declared meaning.

    `value`, a draw of q, is needed by the few pairs whose divergence is a one-sample estimate.
    """
    q, p = _base(q), _base(p)
    rule = _rule(q, p)
    if rule.per_unit:
        return rule.measure(q, p, value)
    each = None if rule.units is None else rule.units(q, p)
    if each is None:
        raise TypeError(
            f"KL({type(q).__name__} || {type(p).__name__}) belongs to the whole code: its units depend on one another, "
            "and none has a KL of its own. What needs one (free_bits, audit, prune, suggest_size) does not apply to "
            "it; divergence and the term kl give the KL per item."
        )
    return each


def closed_form(q: Distribution, p: Distribution) -> bool:
    """Whether the divergence of this pair is exact, not an estimate from a draw."""
    rule = _RULES.get((type(_base(q)), type(_base(p))))
    return rule is not None and not rule.monte_carlo


def divergence(q: Distribution, p: Distribution, value: Tensor | None = None) -> Tensor:
    """KL(q || p) per item, (..., B), in nats: the sum over units, and what a prior chosen by x adds for its choice."""
    q, p = _base(q), _base(p)
    rule = _rule(q, p)
    kl = rule.measure(q, p, value)
    total, choice = kl.sum(-1) if rule.per_unit else kl, selection_cost(p)
    return total if choice is None else total + choice


def selection_cost(p: Distribution) -> Tensor | None:
    """What a prior chosen by x costs beside the sum over units, (..., B); None for every other."""
    cost: Tensor | None = getattr(p, "selection_cost", None)
    return cost
