r"""How a code uses its units: which are used, always on or dead, and how many rows have an empty code.

With :math:`s_j` the share of rows in which unit j is on (not zero) and :math:`\bar s` its mean over the J units, a
unit is

- always on if :math:`s_j > .9`: it is a coordinate of a dense code;
- used if :math:`.9 \ge s_j \ge \min(.005, \bar s / 4)` and :math:`s_j > 0`;
- dead otherwise.

Give 4,000 rows or more if there are so many: of fewer, a share of half a percent is a handful of rows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sparsevae.metrics.arrays import Codes, Floats, Mask, floats, matrix

ALWAYS, RARELY = 0.9, 0.005
"""Shares of rows: above the first a unit is always on; units on in at least the second are not dead."""


class Usage(NamedTuple):
    r"""The usage of a code: numbers of units, means and shares over rows.

    `used`, `always_on` and `dead` units add up to J. `nonzeros` is their mean number per row, `empty` the share of rows
    without any. `usage_entropy` is the entropy of the units' shares of all non-zeros, divided by log J: 1 if all units
    are on equally often, 0 if a single one is ever on, or none is.
    """

    used: float
    always_on: float
    dead: float
    nonzeros: float
    empty: float
    usage_entropy: float

    @property
    def pruned(self) -> bool:
        """True if units that are always on make up more than half of the non-zeros: a small dense code."""
        return self.always_on > self.nonzeros / 2

    @property
    def words(self) -> str:
        """Numbers of units, as a clause.

        >>> usage_of([0.5, 0.95, 0.001, 0.0], 0.1).words
        '1 of 4 units is used, 1 on in over 90 % of rows and 2 dead: this is pruning, a VAE of 1 unit would do'
        """
        n = self.used + self.always_on + self.dead
        pruning = f": this is pruning, a VAE of {_units(round(self.nonzeros))} would do" if self.pruned else ""
        kinds = f"{self.used:g} of {_units(n)} {'is' if self.used == 1 else 'are'} used"
        return f"{kinds}, {self.always_on:g} on in over 90 % of rows and {self.dead:g} dead{pruning}"


def code_usage(Z: Codes) -> Usage:
    """The usage of codes, (n, J), an array or CSR.

    >>> code_usage([[1.0, 0.5, 0.0, 0.0], [-2.0, 0.0, 3.0, 0.0]])
    Usage(used=2, always_on=1, dead=1, nonzeros=2.0, empty=0.0, usage_entropy=0.75)
    """
    on = matrix(Z, "Z") != 0
    return usage_of(on.mean(0), float((~on.any(1)).mean()))


def usage_of(on: Codes, empty: float) -> Usage:
    """The usage of a code whose units are on in the shares `on` of the rows, (J,), and whose rows are empty in a share.

    >>> usage_of([0.5, 0.95, 0.001, 0.0], 0.1).dead
    2
    """
    shares = floats(on, "on")
    used, always = kinds_of_units(shares)
    dead = len(shares) - int(used.sum()) - int(always.sum())
    return Usage(int(used.sum()), int(always.sum()), dead, float(shares.sum()), empty, _evenness(shares))


def kinds_of_units(on: Floats) -> tuple[Mask, Mask]:
    """Which units are used and which are always on, (J,) each, by the shares of rows in which they are on, (J,)."""
    always = on > ALWAYS
    return (on > 0) & (on >= min(RARELY, on.mean() / 4)) & ~always, always


def _units(n: float) -> str:
    return f"{n:g} unit{'s' * (n != 1)}"


def _evenness(on: Floats) -> float:
    """Entropy of the shares on / sum(on), (J,), as a part of log J."""
    if not on.any():
        return 0.0
    p = on[on > 0] / on.sum()
    return float(-(p * np.log(p)).sum() / np.log(len(on))) if len(on) > 1 else 1.0
