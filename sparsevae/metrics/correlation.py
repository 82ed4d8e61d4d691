"""Correlations of units with known sources, and scores computed from them.

C is always (J, K), units by sources, with entries in [0, 1]. The figures of Tonolini et al. correlate magnitudes: for
sources S * V, which are exactly zero when they are off, pass ``np.abs(Z)`` and ``np.abs(S * V)``. The paper publishes
no score; the scores here are ours, with their formulas.

References
----------
F. Tonolini, B. S. Jensen, R. Murray-Smith, "Variational sparse coding", UAI 2019, figures 3 and 9.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from sparsevae.metrics.arrays import LIMIT, Codes, Floats, Integers, Mask, matrix, near_one, same_rows, spread

Groups: TypeAlias = Mapping[str, slice | Sequence[int]]


def correlation_matrix(Z: Codes, S: Codes) -> Floats:
    """Absolute Pearson correlation of every unit with every source; Z (n, J) and S (n, K) give (J, K).

    A column that is constant over the rows has correlation 0 with everything.

    >>> correlation_matrix([[1.0, 5.0], [2.0, 5.0], [3.0, 5.0]], [[-2.0], [-4.0], [-6.0]])
    array([[1.],
           [0.]])
    """
    Z, S = matrix(Z, "Z"), matrix(S, "S")
    same_rows(Z=Z, S=S)
    return np.clip(np.abs(_standard(Z).T @ _standard(S)) / len(Z), 0.0, 1.0)


def used_units(Z: Codes, threshold: float = 0.05) -> Mask:
    """True for units whose code has a standard deviation over the rows (ddof 0) above `threshold`; (n, J) -> (J,).

    >>> used_units([[1.0, 0.0], [-1.0, 0.0]])
    array([ True, False])
    """
    LIMIT.check("threshold", threshold)
    return spread(matrix(Z, "Z")) > threshold


def units_per_group(C: Codes, groups: Groups, used: npt.ArrayLike | None = None, floor: float = 0.0) -> dict[str, int]:
    """Number of units per group: a unit belongs to the source that it correlates with most.

    Parameters
    ----------
    C : (J, K) from :func:`correlation_matrix`
    groups : dict of name -> columns of C, such as ``sparsevae.data.sets.smiley.GROUPS``
    used : (J,) mask, such as :func:`used_units`, or None for the units that correlate with anything
    floor : float
        A unit without a correlation above it belongs to no group; the figures of the paper use .07.

    >>> C = [[0.9, 0.1, 0.0], [0.2, 0.6, 0.3], [0.5, 0.0, 0.0]]
    >>> units_per_group(C, {"hat": [0], "eyes": [1, 2]})
    {'hat': 2, 'eyes': 1}
    """
    LIMIT.check("floor", floor)
    C = _correlations(C)
    block = _blocks(C, groups)[_used(C, used)]
    owner = np.where(block.max(1) > floor, block.argmax(1), -1)
    return {name: int((owner == g).sum()) for g, name in enumerate(groups)}


def block_purity(C: Codes, groups: Groups, used: npt.ArrayLike | None = None) -> float:
    r"""Mean over used units of :math:`\max_g C_g / \sum_g C_g`: does each unit correlate with one group only?

    :math:`C_g` is the unit's largest correlation in group g. 1 if every unit correlates with one group only, 1 /
    (number of groups) if all correlate equally with all; NaN if no unit is used. Parameters as in
    :func:`units_per_group`; a unit that correlates with nothing has no purity and is left out.

    >>> C = [[0.9, 0.1, 0.0], [0.2, 0.6, 0.3], [0.0, 0.0, 0.0]]
    >>> round(block_purity(C, {"hat": [0], "eyes": [1, 2]}), 6)  # the mean of .9/1 and .6/.8
    0.825
    """
    C = _correlations(C)
    block = _blocks(C, groups)[_used(C, used)]
    block = block[block.sum(1) > 0]
    return _mean(block.max(1) / block.sum(1))


def contrast(C: Codes, used: npt.ArrayLike | None = None) -> float:
    """Mean over used units of a unit's largest correlation less the mean of its others; NaN if no unit is used.

    >>> contrast([[0.9, 0.1, 0.3], [0.0, 0.0, 0.0]])  # .9 - .2
    0.7
    """
    C = _correlations(C)
    if C.shape[1] < 2:
        raise ValueError("contrast needs at least two sources to compare; C has one column")
    rows = C[_used(C, used)]
    best = rows.max(1)
    return _mean(best - (rows.sum(1) - best) / (rows.shape[1] - 1))


class BestMatch(NamedTuple):
    """Per source: the unit of largest correlation with it (-1 if all are 0) and that correlation, each (K,)."""

    unit: Integers
    correlation: Floats


def best_match(C: Codes) -> BestMatch:
    """For every source the unit of largest correlation; ``best_match(C).correlation.mean()`` is a single score.

    >>> best_match([[0.9, 0.1, 0.0], [0.2, 0.6, 0.0]])
    BestMatch(unit=array([ 0,  1, -1]), correlation=array([0.9, 0.6, 0. ]))
    """
    C = _correlations(C)
    best = C.max(0)
    return BestMatch(np.where(best > 0, C.argmax(0), -1), best)


class Presence(NamedTuple):
    """Per group: the unit chosen on one half of the rows and its balanced accuracy on the other, each (G,)."""

    unit: Integers
    accuracy: Floats


def presence_accuracy(
    Z: Codes, present: npt.ArrayLike, groups: Groups | None = None, *, threshold: float = 0.0, seed: int = 0
) -> Presence:
    """Balanced accuracy of "unit is on" (z != 0) as a detector of "group is present", per group.

    For each group the rows are halved at random, present and absent rows separately. The unit with the highest balanced
    accuracy (P(on | present) + P(off | absent)) / 2 on the first half is scored on the second, so that selecting the
    best of many units does not bias the score. 1 is a perfect detector, .5 is chance and the score of a code that is
    never zero. A unit that is off if the group is present scores below .5.

    Parameters
    ----------
    Z : (n, J) codes
    present : (n, G) zeros and ones, or (n, K) per source when `groups` is given
    groups : dict of name -> columns of `present`, or None
        A group is present in a row if any of its sources is.
    threshold : float
        A unit is on if |z| > threshold: above 0, codes without exact zeros can be compared.
    seed : int
        Seed of the random halves.

    >>> import numpy as np
    >>> present = np.array([[1], [1], [1], [0], [0], [0]])
    >>> presence_accuracy(np.hstack([np.ones((6, 1)), 2.5 * present]), present)
    Presence(unit=array([1]), accuracy=array([1.]))
    """
    LIMIT.check("threshold", threshold)
    on = np.abs(matrix(Z, "Z")) > threshold
    flags = matrix(present, "present")
    same_rows(Z=on, present=flags)
    if not np.isin(flags, (0.0, 1.0)).all():
        raise ValueError("present must be zeros and ones (or False and True); for sources S * V pass S")
    if groups is not None:
        flags = np.stack([flags[:, _columns(c)].max(1) for c in _checked(groups, flags.shape[1]).values()], 1)
    order = np.random.default_rng(seed).permutation(len(on))
    found = [_switch(on[order], flag[order] == 1, g) for g, flag in enumerate(flags.T)]
    return Presence(np.array([unit for unit, _ in found]), np.array([accuracy for _, accuracy in found]))


def _switch(on: Mask, present: Mask, group: int) -> tuple[int, float]:
    """The best unit on the first half of the rows and its score on the second; `on` (n, J), `present` (n,)."""
    rows = {flag: np.flatnonzero(present == flag) for flag in (True, False)}
    for flag, some in rows.items():
        if len(some) < 2:
            raise ValueError(
                f"group {group} needs at least two rows where it is present and two where it is absent, one per "
                f"half; it is {'present' if flag else 'absent'} in {len(some)}"
            )

    def balanced(half: int) -> Floats:
        hit, false = on[rows[True][half::2]].mean(0), on[rows[False][half::2]].mean(0)
        return np.asarray((hit + 1 - false) / 2)

    unit = int(balanced(0).argmax())
    return unit, float(balanced(1)[unit])


def _standard(columns: Floats) -> Floats:
    """Columns minus their mean, divided by their standard deviation; constant columns become zero."""
    columns = near_one(columns)[0]
    scale = spread(columns)
    centred = columns - columns.mean(0)
    standard: Floats = np.divide(centred, scale, out=np.zeros_like(centred), where=scale > 0)
    return standard


def _correlations(C: Codes) -> Floats:
    C = matrix(C, "C")
    if C.min() < 0 or C.max() > 1:
        raise ValueError(
            "C must be absolute correlations in [0, 1], as correlation_matrix(Z, S) returns them; "
            f"got values from {C.min():.3g} to {C.max():.3g}"
        )
    return C


def _used(C: Floats, used: npt.ArrayLike | None) -> Mask:
    """A mask over the units, (J,); by default true for those with a correlation above 0."""
    mask = C.max(1) > 0 if used is None else np.asarray(used)
    if mask.dtype != np.bool_ or mask.shape != (len(C),):
        raise ValueError(
            f"used must be a mask of {len(C)} booleans, one per unit, as used_units(Z) returns it; "
            f"got shape {mask.shape} of {mask.dtype}"
        )
    return mask


def _columns(which: slice | Sequence[int]) -> slice | Integers:
    return which if isinstance(which, slice) else np.asarray(which, dtype=np.intp)


def _checked(groups: Groups, n_sources: int) -> Groups:
    """The groups, after a check: at least one, none empty, no column out of range or in two groups."""
    if not isinstance(groups, Mapping):
        raise TypeError(f"groups must be a dict of name -> columns, such as {{'hat': [0, 1]}}; got {groups!r}.")
    taken: list[int] = []
    for name, which in groups.items():
        if not isinstance(which, slice) and np.asarray(which).dtype.kind not in "iu" and np.size(which):
            raise TypeError(f"group {name!r} must be a slice or a list of column numbers; got {which!r}.")
        try:
            found = np.arange(n_sources)[_columns(which)]
        except IndexError as error:
            raise ValueError(f"group {name!r} has columns {which}, but there are {n_sources} sources") from error
        if found.size == 0:
            raise ValueError(f"group {name!r} is empty: {which} selects none of the {n_sources} sources")
        taken.extend(found.tolist())
    if not taken or len(set(taken)) < len(taken):
        raise ValueError("groups must be at least one group, and no source may be in two")
    return groups


def _blocks(C: Floats, groups: Groups) -> Floats:
    """C_g, the largest correlation of each unit in each group; (J, K) -> (J, G)."""
    return np.stack([C[:, _columns(which)].max(1) for which in _checked(groups, C.shape[1]).values()], 1)


def _mean(values: Floats) -> float:
    return float(values.mean()) if values.size else float("nan")
