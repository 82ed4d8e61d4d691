"""The result of `audit`: measurements per unit and a verdict on the size of the code."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from sparsevae.latent.codes import active
from sparsevae.metrics.usage import Usage, kinds_of_units, usage_of
from sparsevae.tables.printed import Result, json_value

ACTIVE_KL = 0.01  # nats
Array = np.ndarray[Any, Any]
_ADVICE = {
    "collapsed": "hardly any unit is used. Keep the size, and try a KL warm-up, more steps, a smaller weight of the KL "
    "or, with gates, a larger alpha.",
    "oversized": "many are inactive. A smaller code may do; prune() removes units that the bound does not miss.",
    "well sized": "a few units are inactive, so the code is as large as the data and the networks need.",
    "too small": "none is inactive. A larger code may use more.",
    "undecided": "the p_on of the others is always below 1/2, so the codes show fewer units than draws use. Train for "
    "longer, or with a prior that has units on more often, before changing the size.",
}


@dataclass(frozen=True, eq=False)
class Audit(Result):
    """The result of `audit`: measurements per unit, (J,), and a verdict. It prints as a table.

    A unit is active if at least two of `active_by_variance`, `active_by_kl` and `active_by_gain` hold. One alone is
    not enough: a gate that is always off has a KL and no effect, and by chance the draws may give an inactive unit a
    gain above its KL. `p_on` is no criterion: an unused spike-and-slab unit may have p_on = alpha in every row.
    These three are measured on draws of q(z|x). The codes of `transform` are modes, where a unit is on if p_on > 1/2:
    `usage` counts the units that they use, and the verdict depends on both.
    Without noise (`mean_variance` is 0 for all units) a code has no scale: a penalty can shrink it at no cost. Then the
    KL is that penalty, half the mean square, and variance and KL are compared with those of the largest unit. Both
    measure the same, so a unit is active if `active_by_variance` and `active_by_gain` hold, with a gain of at least
    .01 nats.

    Attributes
    ----------
    rows, gain_rows : int
        Number of rows, and number of rows on which gains were measured.
    mean : (J,)
        Mean over rows of the mean of q(z_j|x): the constant by which `prune` replaces a unit.
    var_mean, mean_variance : (J,)
        Variance over rows of the mean of q(z_j|x), and mean over rows of its variance.
    kl, gain : (J,)
        Nats per row.
    p_on, on : (J,)
        Mean probability of being on, and share of rows whose code (the mode) is not zero there; 1 without gates.
    empty : float
        Share of rows whose code has no unit on.
    hoyer, aggregate_hoyer : float
        Hoyer's sparsity of the codes, 0 for dense to 1 for one-hot: mean over rows, and of the mean row. See
        `sparsevae.metrics.average_hoyer` and `aggregate_hoyer`.
    """

    rows: int
    gain_rows: int
    mean: Array
    var_mean: Array
    mean_variance: Array
    kl: Array
    gain: Array
    p_on: Array
    on: Array
    empty: float
    hoyer: float
    aggregate_hoyer: float

    @property
    def variance_law(self) -> Array:
        """var_mean + mean_variance, (J,): near 1 for a trained code with a standard normal prior.

        Near p_on for a spike-and-slab whose prior has slabs N(0, 1). For other priors, such as MAT's, no value is
        expected.
        """
        total: Array = self.var_mean + self.mean_variance
        return total

    @property
    def active_by_variance(self) -> Array:
        """True for units whose var_mean is above .01, (J,)."""
        return active(torch.from_numpy(self.var_mean), noisy=self._noisy).numpy()

    @property
    def active_by_kl(self) -> Array:
        """True for units whose mean KL is above .01 nats, (J,)."""
        return active(torch.from_numpy(self.kl), noisy=self._noisy, least=ACTIVE_KL).numpy()

    @property
    def active_by_gain(self) -> Array:
        """True for units whose gain is above their KL, (J,)."""
        return np.asarray(self.gain > np.maximum(self.kl, -np.inf if self._noisy else ACTIVE_KL))

    @property
    def _noisy(self) -> bool:
        return bool(self.mean_variance.any())

    @property
    def _gates(self) -> bool:
        """True if some unit can be off."""
        return bool((self.p_on < 1).any())

    @property
    def active(self) -> Array:
        """True for units that fulfil two of the three definitions; without noise variance and gain, (J,)."""
        votes = [self.active_by_variance, self.active_by_gain, *([self.active_by_kl] if self._noisy else [])]
        return np.asarray(np.sum(votes, 0) >= 2)

    @property
    def n_components(self) -> int:
        return len(self.kl)

    @property
    def n_active(self) -> int:
        return int(self.active.sum())

    @property
    def used(self) -> Array:
        """True for units that the code uses for a part of the rows, (J,); see `metrics.code_usage`."""
        return kinds_of_units(self.on)[0]

    @property
    def always_on(self) -> Array:
        """True for units that are on in the code of more than 90 % of the rows, (J,)."""
        return kinds_of_units(self.on)[1]

    @property
    def usage(self) -> Usage:
        """The usage of the code (the modes): numbers of used, always-on and dead units, non-zeros, empty rows."""
        return usage_of(self.on, self.empty)

    @property
    def in_code(self) -> Array:
        """True for active units that are not dead in the code (the mode), (J,); without gates all of them."""
        return np.asarray(self.active & (self.used | self.always_on))

    @property
    def n_in_code(self) -> int:
        return int(self.in_code.sum())

    @property
    def inactive_share(self) -> float:
        """Share of units that are not active."""
        return 1 - self.n_active / self.n_components

    @property
    def verdict(self) -> str:
        """collapsed (under 5 % active), oversized (over 25 % inactive), too small (none inactive), or well sized.

        undecided if fewer than half of the active units are used by the code.
        """
        if self.n_active < 0.05 * self.n_components:
            return "collapsed"
        if self.n_in_code < self.n_active / 2:
            return "undecided"
        if self.inactive_share > 0.25:
            return "oversized"
        return "well sized" if self.inactive_share else "too small"

    @property
    def suggested_size(self) -> int:
        """If oversized, 9/8 of the number of active units; twice the size if too small; otherwise the size as it is."""
        if self.verdict == "oversized":
            return min(self.n_components, self.n_active + math.ceil(self.n_active / 8))
        return 2 * self.n_components if self.verdict == "too small" else self.n_components

    @property
    def words(self) -> str:
        """The verdict as a sentence with its reason and, unless collapsed or undecided, the suggested size."""
        count = f"{self.n_active} of {self.n_components} units are active{' in draws' if self._gates else ''}"
        if loss := int((self.active & ~self.active_by_gain).sum()):  # active by variance and KL
            count += f", {loss} of them at a loss (gain not above KL)"
        if self._gates and self.n_active:
            count += f"; {self.n_in_code} of them are used by the code"
        words = f"{self.verdict}: {count}; {_ADVICE[self.verdict]}"
        if self.verdict not in ("collapsed", "undecided"):
            words += f" Suggested size: {self.suggested_size}."
        return words

    @property
    def legend(self) -> str:
        """The text below the table: the meaning of its letters, and the sparsity and the usage of the codes."""
        if self._noisy:
            letters = "active: two of v (var(mu) > .01), k (KL > .01), g (gain > KL)"
        else:
            least = ".01 of the largest"
            letters = f"active: both v and g of v (var(mu) > {least}), k (KL > {least}), g (gain > KL and .01)"
        hoyer = f"Hoyer {self.hoyer:.3f} (mean over rows), {self.aggregate_hoyer:.3f} (of the mean row)"
        own = self.usage
        code = f"\ncode: {own.words}; {own.nonzeros:.3g} non-zeros per row, {own.empty:.1%} of rows empty"
        return f"{letters}; mu, s2: mean, variance of q(z|x)\n{hoyer}{code * self._gates}"

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Header and lines of text, one line per unit in order of falling KL.

        The column `active` has yes or no, and a letter for each definition that holds: v, k, g as in `legend`.
        """
        columns = {
            "unit": [str(j) for j in range(self.n_components)],
            "var(mu)": [f"{v:.3g}" for v in self.var_mean],
            "mean(s2)": [f"{v:.3g}" for v in self.mean_variance],
            "sum": [f"{v:.3f}" for v in self.variance_law],
            "KL": [f"{v:.4f}" for v in self.kl],
            "gain": [f"{v:.3f}" for v in self.gain],
        }
        if self._gates:
            columns |= {"p_on": [f"{v:.3f}" for v in self.p_on], "on": [f"{v:.3f}" for v in self.on]}
        votes = {"v": self.active_by_variance, "k": self.active_by_kl, "g": self.active_by_gain}
        shown = ["".join(k for k, v in votes.items() if v[j]) for j in range(self.n_components)]
        columns["active"] = [f"{'yes' if a else 'no '} {by}".rstrip() for a, by in zip(self.active, shown, strict=True)]
        order = np.argsort(-self.kl, kind="stable")
        return list(columns), [[c[j] for c in columns.values()] for j in order]

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and lists, for JSON: NaN and infinity become None."""
        own = json_value(self)
        votes = ("active_by_variance", "active_by_kl", "active_by_gain", "active")
        per_unit = ("variance_law", *votes, "in_code", "used", "always_on")
        units = {k: v for k, v in own.items() if isinstance(v, list)} | {k: getattr(self, k).tolist() for k in per_unit}
        whole = ("n_components", "n_active", "n_in_code", "inactive_share", "verdict", "suggested_size")
        rest = {k: v for k, v in own.items() if k not in units} | {k: getattr(self, k) for k in whole}
        return {**rest, "usage": self.usage._asdict(), "units": units}

    def __str__(self) -> str:
        return f"{super().__str__()}\n{self.words}"
