"""Looking into codes: change one unit and decode, walk from one code to another, count which class uses which unit.

A sparse code is a short list of units, so it can be edited by hand. A unit is *active* where the code, the mode of
q(z|x), is not zero. Dense codes work too: every unit is then active in every row. Nothing here is random, and what
is decoded is the mean of p(x|z), in X's own units.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from sparsevae.analysis.audit import check_coder, check_decoder
from sparsevae.checks import OneOf, check_number, check_room
from sparsevae.estimator.coder import SparseCoder
from sparsevae.metrics import arrays
from sparsevae.parameters import check_units, check_value

Array = np.ndarray[Any, Any]
# Two deviations either way of a prior or slab N(0, 1); a learned slab (PseudoVSC's) may lie elsewhere. 0 is off.
VALUES = np.linspace(-2.0, 2.0, 9, dtype=np.float32)
STRONG = 1.0  # a dense unit is never off: beyond this, the deviation of N(0, 1), it counts as on


class Traversal(NamedTuple):
    """What single units do to one item: unit u at value v, the rest of its code as it was."""

    units: Array  # (U,)
    values: Array  # (V,)
    images: Array  # (U, V, D); of texts (U, V)


class Edits(NamedTuple):
    """The difference of two codes, element by element: each alone is applied to the first code."""

    units: Array  # (E,), the largest change first
    changes: Array  # (E,), what is added to the unit
    codes: Array  # (E, J)
    images: Any  # (E, D); of texts a list of E


class Interpolation(NamedTuple):
    """A walk from one code to another; `labels` name the unit that was switched on the way to each frame."""

    codes: Array  # (F, J)
    images: Any  # (F, D); of texts a list of F
    labels: tuple[str, ...]  # "start", "unit 3 on", "unit 7 off", or "" where values moved alone


class ActivationMatrix(NamedTuple):
    """How often the rows of each class use each unit."""

    classes: Array  # (K,), sorted
    share: Array  # (K, J), in [0, 1]


def traverse(
    est: SparseCoder, x: Any, units: Sequence[int] | None = None, values: Sequence[float] | None = None
) -> Traversal:
    """Set single units of one item's code to each of several values, and decode (VSC, figure 4).

    Parameters
    ----------
    x : one row, (D,) or (1, D), in any form that `transform` takes, or one text.
    units : those to change, (U,), or a mask, (J,); the item's active ones, largest first, when not given.
    values : what to set them to, (V,). When not given, for real values -2 to 2 in steps of a half, two standard
        deviations of a prior or slab N(0, 1); for bits 0 and 1; for counts 0 to the largest that these units can have.
        0 is off where codes are sparse. Since the rest of the code stays, a full cap or a group may be overstepped.

    Examples
    --------
    >>> import sparsevae as sv
    >>> from sparsevae.analysis.traversals import traverse
    >>> X = sv.data.load("digits").X
    >>> est = sv.VAE(4, training=sv.Training(steps=30, verbose=0)).fit(X)
    >>> traverse(est, X[0], units=[3, 1], values=[-1, 0, 1]).images.shape
    (2, 3, 64)
    """
    code = _code("traverse", est, x)
    which = _units(units, code)
    at = unit_values(est, which) if values is None else _values(values)
    decoded = _decode(est, set_units(code, which, at).reshape(-1, len(code)))
    images = np.array(decoded, dtype=object if isinstance(decoded, list) else None)  # a list of texts
    return Traversal(which, at, images.reshape(len(which), len(at), *images.shape[1:]))


def edits(est: SparseCoder, a: Any, b: Any) -> Edits:
    """The elements in which the codes of two items differ, each applied alone to a's code (VSC, figure 5).

    Between two similar items a sparse difference is short, and its largest elements tend to mean something: sleeves
    put on a T-shirt, and nothing else changed.
    """
    start, end = _code("edits", est, a), _code("edits", est, b)
    change = end - start
    units = np.flatnonzero(start != end)
    units = units[np.argsort(-np.abs(change[units]), kind="stable")]
    codes = np.repeat(start[None], len(units), axis=0)
    codes[np.arange(len(units)), units] = end[units]
    return Edits(units, change[units], codes, _decode(est, codes))


def interpolate(est: SparseCoder, a: Any, b: Any, *, steps: int = 8, mode: str = "mixed") -> Interpolation:
    """Walk from a's code to b's, and decode every frame (UAI, figure 7).

    Units that are active in both codes can move, units that are active in one only can be switched:

    - "continuous": the former move linearly, over `steps` frames; the latter stay as they are in a.
    - "discrete": the latter are switched (on to b's value, or off) one a frame, the largest value first; the former
      stay as they are in a. One frame more than there are switches.
    - "mixed": both at once, the switches spread evenly over the walk. It ends exactly at b's code, and has `steps`
      frames, or more where there are more switches than that.

    Dense codes only move: their "discrete" walk stays where it starts. Counts move in whole numbers.
    """
    start, end = _code("interpolate", est, a), _code("interpolate", est, b)
    codes, labels = walk(start, end, steps, mode, whole=est.fitted_.largest is not None)
    return Interpolation(codes, _decode(est, codes), labels)


def activation_matrix(est: SparseCoder, X: Any, y: Any) -> ActivationMatrix:
    """Share of each class's rows in which each unit is on (UAI, figure 6).

    A unit is on where the code is not zero. A unit of a dense code never is off: it counts as on where |z| > 1, so that
    a unit that says nothing has a share of 0. That is one standard deviation of a standard normal prior; MAT's prior
    is narrower, and its units pass 1 more rarely.
    """
    check_coder("activation_matrix", est)
    Z = est.transform(X)
    return class_shares(Z if scipy.sparse.issparse(Z) else np.asarray(Z), y, sparse=est.fitted_.sparse)


def active(code: Array) -> Array:
    """The units that are not zero in a code (J,), largest first."""
    units = np.flatnonzero(code)
    return units[np.argsort(-np.abs(code[units]), kind="stable")]


def set_units(code: Array, units: Array, values: Array) -> Array:
    """Copies of a code (J,) with one unit at one value each, (U, V, J)."""
    codes = np.tile(code, (len(units), len(values), 1))
    codes[np.arange(len(units))[:, None], np.arange(len(values)), units[:, None]] = values
    return codes


def _moving(start: Array, end: Array, steps: int) -> Array:
    """Shared units on their straight line, the rest as in `start`, (F, J); exact at both ends."""
    t = np.linspace(0, 1, steps, dtype=start.dtype)[:, None]
    return np.where((start != 0) & (end != 0), (1 - t) * start + t * end, start)


def _switches(start: Array, end: Array) -> Array:
    """Units that are active in one code only, largest first."""
    return active(np.where((start != 0) != (end != 0), start + end, 0.0))


def _continuous(start: Array, end: Array, steps: int) -> tuple[Array, Array]:
    return _moving(start, end, steps), _switches(start, end)[:0]


def _discrete(start: Array, end: Array, steps: int) -> tuple[Array, Array]:
    units = _switches(start, end)
    return np.repeat(start[None], len(units) + 1, axis=0), units


def _mixed(start: Array, end: Array, steps: int) -> tuple[Array, Array]:
    units = _switches(start, end)
    return _moving(start, end, max(steps, len(units) + 1)), units


# Each gives the frames before any switch, (F, J), and the units to switch in them, in order.
MODES: dict[str, Callable[[Array, Array, int], tuple[Array, Array]]] = {
    "mixed": _mixed,
    "continuous": _continuous,
    "discrete": _discrete,
}


def walk(start: Array, end: Array, steps: int, mode: str, *, whole: bool = False) -> tuple[Array, tuple[str, ...]]:
    """Codes on the way from one code (J,) to another, (F, J), and what was switched to reach each.

    With `whole` all values stay whole numbers.
    """
    check_number("steps", steps, "an integer above 1: a start and an end at least", lambda n: n > 1, whole=True)
    check_value("mode", mode, str, [OneOf(*MODES)])
    check_room(steps * len(start), {"steps": steps}, "the codes on the way")
    codes, units = MODES[mode](start, end, int(steps))
    codes = codes.round() if whole else codes
    labels = ["start"] + [""] * (len(codes) - 1)
    for k, unit in enumerate(units, 1):
        # There are at least as many steps as switches, so that no frame takes two.
        frame = -(-k * (len(codes) - 1) // len(units))
        codes[frame:, unit] = end[unit]
        labels[frame] = f"unit {unit} {'on' if end[unit] else 'off'}"
    return codes, tuple(labels)


def class_shares(Z: Any, y: Any, *, sparse: bool) -> ActivationMatrix:
    """`activation_matrix` of codes, an array or CSR matrix (N, J)."""
    y = arrays.labels(y, Z.shape[0], "y")
    classes, which = np.unique(y, return_inverse=True)
    members = scipy.sparse.csr_matrix((np.ones(len(y)), (which, np.arange(len(y)))), (len(classes), len(y)))
    on = scipy.sparse.csr_matrix(Z != 0 if sparse else np.abs(Z) > STRONG, dtype=np.float64)
    counts: Array = (members @ on).toarray()
    return ActivationMatrix(classes, counts / np.bincount(which)[:, None])


def _code(caller: str, est: SparseCoder, x: Any) -> Array:
    """The code of one row, (J,)."""
    check_coder(caller, est)
    check_decoder(caller, est)
    Z: Any = est.transform(est.input_.as_rows(x))
    if Z.shape[0] != 1:
        raise ValueError(f"one row is needed here, got {Z.shape[0]}; pass X[0] or X[:1].")
    code: Array = np.asarray(Z.toarray() if hasattr(Z, "toarray") else Z)[0]
    return code


def _decode(est: SparseCoder, codes: Array) -> Any:
    """The mean of p(x|z) for every code, (N, J) -> (N, D), or a list of N texts; none for none."""
    return est.inverse_transform(codes) if len(codes) else est.input_.concatenate([])


def _units(units: Sequence[int] | None, code: Array) -> Array:
    if units is None:
        if not (code != 0).any():
            raise ValueError("no unit is on in this row's code; say which units to traverse, such as units=[0, 1].")
        return active(code)
    which = check_units(units, len(code))
    if not len(which):
        raise ValueError(f"units must be a list of integers from 0 to {len(code) - 1}, one at least; got none.")
    return which


def unit_values(est: SparseCoder, units: Array) -> Array:
    """What to set units to when nobody says, (V,): all that each can be, of whole numbers, else `VALUES`."""
    largest = est.fitted_.largest
    return VALUES.copy() if largest is None else np.arange(int(largest[units].min()) + 1, dtype=np.float32)


def _values(values: Sequence[float]) -> Array:
    at = np.asarray(values)
    if at.ndim == 1 and len(at) and at.dtype.kind in "iuf":
        with np.errstate(over="ignore"):
            at = at.astype(np.float32)
        if np.isfinite(at).all():
            return at
    raise ValueError(f"values must be a list of finite numbers, such as [-1, 0, 1]; got {values!r}.")
