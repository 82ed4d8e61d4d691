"""KL divergences, declared by pairs of distributions."""

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

    def evaluate(self, q: Distribution, p: Distribution, value: Tensor | None) -> Tensor:
        if not self.monte_carlo:
            return self.kl(q, p)
        if value is None:
            name = f"KL({type(q).__name__} || {type(p).__name__})"
            raise ValueError(f"{name} is estimated from a draw of q: pass value=draw.")
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
    """Declare KL(q || p): kl(q, p) per unit, or with `monte_carlo` kl(q, p, value), estimated from a draw of q.

    Estimates are for pairs with a common base measure and without a closed form. A pair that is not declared has no
    KL; there is no fallback. With per_unit=False the units are dependent, and kl returns one number per item, (..., B).
    Then units(q, p) returns the KL per unit for those distributions of the pair whose units are independent, else None.
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
            f"KL({type(q).__name__} || {type(p).__name__}) is not defined. Legal priors for a "
            f"{type(q).__name__} posterior: {partners}. All legal pairs: {every}."
        )
    return rule


def unit_divergence(q: Distribution, p: Distribution, value: Tensor | None = None) -> Tensor:
    """KL(q || p) of each unit, (..., B, J), in nats; a TypeError for a pair that is not declared.

    `value`, a draw of q, is needed for pairs whose divergence is a one-sample estimate.
    """
    q, p = _base(q), _base(p)
    rule = _rule(q, p)
    if rule.per_unit:
        return rule.evaluate(q, p, value)
    each = None if rule.units is None else rule.units(q, p)
    if each is None:
        raise TypeError(
            f"KL({type(q).__name__} || {type(p).__name__}) belongs to the whole code: its units are dependent, "
            "so there is no KL per unit. What needs one (free_bits, audit, prune, suggest_size) does not apply; "
            "divergence and the term kl give the KL per item."
        )
    return each


def closed_form(q: Distribution, p: Distribution) -> bool:
    """Whether the divergence of this pair is exact, rather than an estimate from a draw."""
    rule = _RULES.get((type(_base(q)), type(_base(p))))
    return rule is not None and not rule.monte_carlo


def divergence(q: Distribution, p: Distribution, value: Tensor | None = None) -> Tensor:
    """KL(q || p) per item, (..., B), in nats: the sum over units, plus `selection_cost` of the prior."""
    q, p = _base(q), _base(p)
    rule = _rule(q, p)
    kl = rule.evaluate(q, p, value)
    total = kl.sum(-1) if rule.per_unit else kl
    cost = selection_cost(p)
    return total if cost is None else total + cost


def selection_cost(p: Distribution) -> Tensor | None:
    """The KL of the choice of x among the components of a prior (`Selected`), (..., B); None for other priors."""
    cost: Tensor | None = getattr(p, "selection_cost", None)
    return cost
