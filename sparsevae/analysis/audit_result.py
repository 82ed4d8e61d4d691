"""Audit: one number per unit, and a verdict."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from sparsevae.latent.codes import active
from sparsevae.tables.printed import aligned, json_value

ACTIVE_KL = 0.01  # nats
Array = np.ndarray[Any, Any]
_ADVICE = {
    "collapsed": "hardly a unit is used. Its size is not what is wrong: try a KL warm-up, more steps, a smaller weight "
    "of the KL or, with gates, a larger alpha.",
    "oversized": "many are left over. A smaller code may do; prune() removes units that the bound does not miss.",
    "well sized": "a few units are left over, so the code is as large as the data and the networks ask for.",
    "too small": "none is inactive. A larger code may use more.",
    "undecided": "the others are never likelier on than off, so that the code leaves out what draws say. Train for "
    "longer, or with a prior that has units on more often, before judging the size.",
}


@dataclass(frozen=True, eq=False)
class Audit:
    """What `audit` found: one number per unit, (J,), and a verdict. A table when printed.

    A unit is active when two of three definitions say so: `active_by_variance`, `active_by_kl`, `active_by_gain`. One
    alone misjudges: a gate that is shut for good has a KL and no use, and the luck of draws may give a dead unit a
    gain above its KL. `p_on` is no evidence: a spike-and-slab unit that idles at p_on = alpha is neither on nor dead.
    All this is about draws of q(z|x). The code that `transform` gives is its mode, where a unit is on if it is likelier
    on than off: `in_code` says which units any row's code shows, and the verdict is about both.
    Without noise (`mean_variance` 0 everywhere) a code has no scale, since a penalty shrinks it at no cost. There
    variance and KL, which is then that penalty, half the mean square, are measured beside the largest unit's; they say
    the same thing twice, so a unit is active when its variance and its gain say so, which must be .01 nats at least:
    nats have a scale.

    Attributes
    ----------
    rows, gain_rows : int
        Rows seen, and those of them that gains were measured on.
    mean : (J,)
        Mean over rows of the mean of q(z_j|x): what `prune` puts in the unit's place.
    var_mean, mean_variance : (J,)
        Variance over rows of the mean of q(z_j|x), and mean over rows of its variance.
    kl, gain : (J,)
        Nats per row.
    p_on, on : (J,)
        Mean probability of being on, and share of rows whose code (the mode) is not zero there. 1 without gates.
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
    hoyer: float
    aggregate_hoyer: float

    @property
    def variance_law(self) -> Array:
        """var_mean + mean_variance: near 1 for a trained code with a standard normal prior.

        Near p_on for a spike-and-slab whose prior has slabs N(0, 1). Other priors, such as MAT's, have no such law.
        """
        total: Array = self.var_mean + self.mean_variance
        return total

    @property
    def active_by_variance(self) -> Array:
        """The mean of q(z_j|x) varies by more than .01."""
        return active(torch.from_numpy(self.var_mean), noisy=self._noisy).numpy()

    @property
    def active_by_kl(self) -> Array:
        """The mean KL is above .01 nats."""
        return active(torch.from_numpy(self.kl), noisy=self._noisy, least=ACTIVE_KL).numpy()

    @property
    def active_by_gain(self) -> Array:
        """The unit brings more than it costs."""
        return np.asarray(self.gain > np.maximum(self.kl, -np.inf if self._noisy else ACTIVE_KL))

    @property
    def _noisy(self) -> bool:
        return bool(self.mean_variance.any())

    @property
    def _gates(self) -> bool:
        """Whether units can be off."""
        return bool((self.p_on < 1).any())

    @property
    def active(self) -> Array:
        """Two of the three definitions agree, or gain and variance where there is no noise; (J,) of bool."""
        votes = [self.active_by_variance, self.active_by_gain, *([self.active_by_kl] if self._noisy else [])]
        return np.asarray(np.sum(votes, 0) >= 2)

    @property
    def n_components(self) -> int:
        return len(self.kl)

    @property
    def n_active(self) -> int:
        return int(self.active.sum())

    @property
    def in_code(self) -> Array:
        """The active units that are on in the code (the mode) of some row, (J,) of bool; without gates all of these."""
        return np.asarray(self.active & (self.on > 0))

    @property
    def n_in_code(self) -> int:
        return int(self.in_code.sum())

    @property
    def inactive_share(self) -> float:
        """Share of units that are not active."""
        return 1 - self.n_active / self.n_components

    @property
    def verdict(self) -> str:
        """collapsed (under 5 % active), oversized (over 25 % inactive), well sized, or too small (none inactive).

        undecided where that cannot be said: draws use the active units, but the codes of all rows show under half of
        them.
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
        """The active units and an eighth more, to see that some stay unused; twice the size where none did.

        A collapsed code and an undecided one keep their size, which is not what is wrong with them.
        """
        if self.verdict == "oversized":
            return min(self.n_components, self.n_active + math.ceil(self.n_active / 8))
        return 2 * self.n_components if self.verdict == "too small" else self.n_components

    @property
    def words(self) -> str:
        """The verdict as a sentence, with its reason and, where the size is to be judged, the suggested one."""
        count = f"{self.n_active} of {self.n_components} units are active{' in draws' if self._gates else ''}"
        if loss := int((self.active & ~self.active_by_gain).sum()):  # by the other two definitions
            count += f", {loss} of them at a loss (gain not above KL)"
        if self._gates:
            count += f"; {self.n_in_code} of them show in the code of some row"
        words = f"{self.verdict}: {count}; {_ADVICE[self.verdict]}"
        return (
            words if self.verdict in ("collapsed", "undecided") else f"{words} Suggested size: {self.suggested_size}."
        )

    @property
    def legend(self) -> str:
        """What goes below the table: its letters, and the sparsity of the whole code."""
        voters = "two of" if self._noisy else "both v and g of"
        least = ".01" if self._noisy else ".01 of the largest"
        paid = "gain > KL" if self._noisy else "gain > KL and .01"
        letters = f"active: {voters} v (var(mu) > {least}), k (KL > {least}), g ({paid}); "
        letters += "mu, s2: mean, variance of q(z|x)"
        hoyer = f"Hoyer {self.hoyer:.3f} (mean over rows), {self.aggregate_hoyer:.3f} (of the mean row)"
        return f"{letters}\n{hoyer}"

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Header and lines of text, one line a unit, those with the largest KL first.

        `active` is the judgement, with a letter for each definition that says yes: v, k, g as in `legend`.
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
        """Plain numbers and lists, for JSON: NaN and infinity are None."""
        own = json_value(self)
        derived = ("variance_law", "active_by_variance", "active_by_kl", "active_by_gain", "active", "in_code")
        units = {k: v for k, v in own.items() if isinstance(v, list)} | {k: getattr(self, k).tolist() for k in derived}
        return {
            **{k: v for k, v in own.items() if k not in units},
            "n_components": self.n_components,
            "n_active": self.n_active,
            "n_in_code": self.n_in_code,
            "inactive_share": self.inactive_share,
            "verdict": self.verdict,
            "suggested_size": self.suggested_size,
            "units": units,
        }

    def __str__(self) -> str:
        return f"{aligned(*self.table())}\n\n{self.legend}\n{self.words}"
