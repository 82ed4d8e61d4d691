"""Codes edited and decoded: single units changed, walks between two codes; and how often each class uses each unit.

A unit is *active* in a row if its value in the code, the mode of q(z|x), is not zero. In dense codes every unit is
active in every row. Nothing here is random. The decoded rows are means of p(x|z), in X's units.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from sparsevae.analysis.audit import check_coder, check_decoder
from sparsevae.checks import In, OneOf, check_room
from sparsevae.estimator.coder import SparseCoder
from sparsevae.metrics import arrays
from sparsevae.parameters import check_units, check_value

Array = np.ndarray[Any, Any]
# Two standard deviations of a prior or slab N(0, 1) to both sides; learned slabs (PseudoVSC) may lie elsewhere.
VALUES = np.linspace(-2.0, 2.0, 9, dtype=np.float32)
STRONG = 1.0  # a unit of a dense code counts as on above this absolute value, the standard deviation of N(0, 1)
MODES = "mixed", "continuous", "discrete"


class Traversal(NamedTuple):
    """One row decoded with unit u at value v and the rest of its code unchanged."""

    units: Array  # (U,)
    values: Array  # (V,)
    images: Array  # (U, V, D); of texts (U, V)


class Edits(NamedTuple):
    """The units in which two codes differ: each change is applied alone to the first code."""

    units: Array  # (E,), the largest change first
    changes: Array  # (E,), the second code minus the first
    codes: Array  # (E, J)
    images: Any  # (E, D); of texts a list of E


class Interpolation(NamedTuple):
    """A walk from one code to another; `labels` name the unit that is switched at each frame."""

    codes: Array  # (F, J)
    images: Any  # (F, D); of texts a list of F
    labels: tuple[str, ...]  # "start", "unit 3 on", "unit 7 off", or "" if no unit is switched


class ActivationMatrix(NamedTuple):
    """Share of the rows of each class in which each unit is on."""

    classes: Array  # (K,), sorted
    share: Array  # (K, J), in [0, 1]


def traverse(
    est: SparseCoder, x: Any, units: Sequence[int] | None = None, values: Sequence[float] | None = None
) -> Traversal:
    """Set single units of one item's code to each of several values, and decode (VSC, figure 4).

    Parameters
    ----------
    x : one row, (D,) or (1, D), in any form that `transform` takes, or one text.
    units : the units to change, (U,), or a mask, (J,). Default: the active units of x, the largest first.
    values : the values to set them to, (V,). Default: for real values -2 to 2 in steps of .5, two standard deviations
        of a prior or slab N(0, 1); for bits 0 and 1; for counts 0 to the largest count that all these units can have.
        In sparse codes 0 is off. The rest of the code is unchanged, so the result may exceed a cap or a group.

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
    """The units in which the codes of rows a and b differ, each change applied alone to a's code (VSC, figure 5).

    Between two similar rows few units of a sparse code differ, and the largest changes tend to have a meaning: the
    T-shirt gets sleeves, and nothing else changes.
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

    Shared units are active in both codes, the others in one only:

    - "continuous": shared units change linearly, over `steps` frames; the others keep their value in a.
    - "discrete": the others are switched (on to b's value, or off), one per frame, the largest value first; shared
      units keep their value in a. The number of frames is that of the switches plus one.
    - "mixed": both, with the switches spread evenly over the walk. It ends exactly at b's code, and has `steps` frames,
      or one more than there are switches if that is larger.

    In dense codes all units are shared: the "discrete" walk has one frame. Counts are rounded to whole numbers.
    """
    start, end = _code("interpolate", est, a), _code("interpolate", est, b)
    codes, labels = walk(start, end, steps, mode, whole=est.fitted_.largest is not None)
    return Interpolation(codes, _decode(est, codes), labels)


def activation_matrix(est: SparseCoder, X: Any, y: Any) -> ActivationMatrix:
    """Share of each class's rows in which each unit is on (UAI, figure 6).

    A unit of a sparse code is on if it is not zero. A unit of a dense code counts as on if |z| > 1, one standard
    deviation of a standard normal prior, so that an inactive unit has a share of 0. MAT's prior is narrower: its units
    exceed 1 less often.
    """
    check_coder("activation_matrix", est)
    Z = est.transform(X)
    return class_shares(Z if scipy.sparse.issparse(Z) else np.asarray(Z), y, sparse=est.fitted_.sparse)


def active(code: Array) -> Array:
    """The units that are not zero in a code (J,), those of the largest absolute value first."""
    units = np.flatnonzero(code)
    return units[np.argsort(-np.abs(code[units]), kind="stable")]


def set_units(code: Array, units: Array, values: Array) -> Array:
    """Copies of a code (J,), (U, V, J): copy (u, v) has unit u at value v."""
    codes = np.tile(code, (len(units), len(values), 1))
    codes[np.arange(len(units))[:, None], np.arange(len(values)), units[:, None]] = values
    return codes


def walk(start: Array, end: Array, steps: int, mode: str, *, whole: bool = False) -> tuple[Array, tuple[str, ...]]:
    """Codes on the way from one code (J,) to another, (F, J), and the label of each frame, as `interpolate` says.

    With `whole` all values are rounded to whole numbers.
    """
    In(1, None, "()").check("steps", steps, "an integer above 1: at least a start and an end", whole=True)
    check_value("mode", mode, str, [OneOf(*MODES)])
    check_room(steps * len(start), {"steps": steps}, "the codes on the way")
    shared = (start != 0) & (end != 0)
    units = active(np.where((start != 0) != (end != 0), start + end, 0.0))  # to be switched, in this order
    n_frames = len(units) + 1
    if mode == "discrete":
        shared = np.zeros_like(shared)
    elif mode == "continuous":
        n_frames, units = int(steps), units[:0]
    else:
        n_frames = max(int(steps), n_frames)
    t = np.linspace(0, 1, n_frames, dtype=start.dtype)[:, None]
    codes = np.where(shared, (1 - t) * start + t * end, start)  # exact at both ends
    codes = codes.round() if whole else codes
    labels = ["start"] + [""] * (len(codes) - 1)
    for k, unit in enumerate(units, 1):
        frame = -(-k * (len(codes) - 1) // len(units))  # one switch per frame, since there are more frames
        codes[frame:, unit] = end[unit]
        labels[frame] = f"unit {unit} {'on' if end[unit] else 'off'}"
    return codes, tuple(labels)


def class_shares(Z: Any, y: Any, *, sparse: bool) -> ActivationMatrix:
    """`activation_matrix` of codes (N, J), an array or a CSR matrix, and labels y (N,)."""
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
    """The mean of p(x|z) for every code, (N, J) -> (N, D), or a list of N texts; N may be 0."""
    return est.inverse_transform(codes) if len(codes) else est.input_.concatenate([])


def _units(units: Sequence[int] | None, code: Array) -> Array:
    """The units to traverse, (U,): the given ones, or the active ones of a code (J,)."""
    if units is None:
        if not (code != 0).any():
            raise ValueError("no unit is on in this row's code; choose the units to traverse, such as units=[0, 1].")
        return active(code)
    which = check_units(units, len(code))
    if not len(which):
        raise ValueError(f"units must be a list of integers from 0 to {len(code) - 1}, one at least; got none.")
    return which


def unit_values(est: SparseCoder, units: Array) -> Array:
    """Default values of a traversal, (V,): for codes of whole numbers all that every unit can have, else `VALUES`."""
    largest = est.fitted_.largest
    return VALUES.copy() if largest is None else np.arange(int(largest[units].min()) + 1, dtype=np.float32)


def _values(values: Sequence[float]) -> Array:
    """The user's values as float32, (V,), if they are finite numbers."""
    at = np.asarray(values)
    if at.ndim == 1 and len(at) and at.dtype.kind in "iuf":
        with np.errstate(over="ignore"):
            at = at.astype(np.float32)
        if np.isfinite(at).all():
            return at
    raise ValueError(f"values must be a list of finite numbers, such as [-1, 0, 1]; got {values!r}.")
