"""Checks and conversions of the arrays that metrics take; errors name the argument."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from sparsevae.checks import In

if TYPE_CHECKING:
    from scipy.sparse import csr_array, csr_matrix

Codes: TypeAlias = "npt.ArrayLike | csr_array | csr_matrix"
Floats: TypeAlias = npt.NDArray[np.float64]
Integers: TypeAlias = npt.NDArray[np.intp]
Mask: TypeAlias = npt.NDArray[np.bool_]
LIMIT = In(0, double=True)  # legal thresholds


def plain(values: Any, name: str) -> Any:
    """Convert to a numpy array, or a sparse matrix to CSR. Tensors must be on the CPU and without gradient."""
    if hasattr(values, "toarray"):
        array = sound(values, name)
    else:
        try:
            array = np.asarray(filled(values))
        except (RuntimeError, TypeError, ValueError) as error:
            hint = "; convert it with .detach().cpu().numpy()" if hasattr(values, "detach") else ""
            hint = " on the meta device, which holds no values" if getattr(values, "is_meta", False) else hint
            raise ValueError(f"{name} must be an array of numbers or a CSR matrix; got {type(values)}{hint}") from error
    if array.dtype.kind == "c":
        raise ValueError(f"{name} must hold real numbers; got {array.dtype}: take a real part or a modulus first")
    return array


def filled(values: Any) -> Any:
    """A masked array with its masked entries as NaN (None, if they are not numbers); any other value unchanged."""
    if not isinstance(values, np.ma.MaskedArray):
        return values
    missing = np.ma.getmaskarray(values)
    if not missing.any():
        return values.data
    numbers = values.dtype.kind in "biuf"
    found = values.data.astype(np.float64 if numbers else object)
    found[missing] = np.nan if numbers else None
    return found


def sound(values: Any, name: str) -> Any:
    """Convert a sparse matrix to CSR after a check of its indices: scipy writes out of bounds if they are."""
    try:
        _check_indices(values)
        found = values.tocsr()
        if found is not values:
            _check_indices(found)
    except (ValueError, IndexError) as error:
        raise ValueError(
            f"{name} is a damaged sparse matrix: {error}. Build it again, for instance from its COO form."
        ) from error
    return found


def _check_indices(matrix: Any) -> None:
    """Refuse indices out of range before they are used; scipy checks the formats without indices."""
    if matrix.format in ("csr", "csc", "bsr"):
        if (np.diff(matrix.indptr) < 0).any():  # first: check_format trusts the last entry of indptr
            raise ValueError("indptr must be a non-decreasing sequence")
        matrix.check_format(full_check=True)
    elif matrix.format == "coo":
        for at, size in zip(matrix.coords, matrix.shape, strict=True):
            if len(at) != len(matrix.data):
                raise ValueError("indices and data should have the same size")
            if len(at) and not 0 <= at.min() <= at.max() < size:
                raise ValueError(f"indices must lie in 0..{size - 1}, got {at.min()} to {at.max()}")


def floats(values: Codes, name: str) -> Floats:
    """A dense float64 array of any shape, every entry finite."""
    array = plain(values, name)
    if array.dtype.kind in "mMSU":  # dates and strings, which numpy would convert to numbers
        raise ValueError(f"{name} must hold numbers; got values of type {array.dtype}: convert them")
    try:
        array = np.asarray(array.toarray() if hasattr(array, "toarray") else array, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be an array of real numbers or a CSR matrix; got {type(values)}") from error
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must hold finite numbers; {int((~np.isfinite(array)).sum())} are NaN or infinite")
    return array


def matrix(values: Codes, name: str) -> Floats:
    """A dense float64 array of shape (n, d), n and d at least 1, every entry finite.

    >>> matrix([[0, 2]], "Z")
    array([[0., 2.]])
    """
    array = floats(values, name)
    if array.ndim != 2 or 0 in array.shape:
        raise ValueError(
            f"{name} must have two dimensions, (rows, columns), and at least one of each; got shape {array.shape}"
        )
    return array


def labels(y: npt.ArrayLike, n: int, name: str) -> npt.NDArray[Any]:
    """One label per row, (n,), none of them missing, all of types that can be sorted together."""
    array: npt.NDArray[Any] = plain(y, name)
    if array.shape != (n,):
        came = f"shape {array.shape}" if array.ndim else "None" if y is None else type(y).__name__
        raise ValueError(f"{name} must hold one label for each of the {n} rows; got {came}")
    if missing := _missing(array):
        raise ValueError(f"{name} must hold a label for every row; {missing} of {n} are missing (None or NaN)")
    if array.dtype.kind == "f" and np.isinf(array).any():
        raise ValueError(f"{name} must hold finite labels; {int(np.isinf(array).sum())} are infinite")
    if array.dtype.kind == "O":
        try:
            np.unique(array)
        except TypeError:
            kinds = ", ".join(sorted({type(label).__name__ for label in array.tolist()}))
            raise ValueError(f"{name} must hold labels of one kind, which can be sorted; got {kinds}") from None
    return array


def _missing(y: npt.NDArray[Any]) -> int:
    """Number of labels that are None, NaN, NaT or pandas.NA."""
    if y.dtype.kind == "O":
        return sum(_is_missing(label) for label in y.tolist())
    return int((y != y).sum())  # NaN and NaT


def _is_missing(label: Any) -> bool:
    """True for None, for what differs from itself (NaN, NaT) and for pandas.NA, which cannot be compared."""
    try:
        return label is None or bool(label != label)
    except TypeError:
        return True


def same_rows(**arrays: npt.NDArray[Any]) -> None:
    """Refuse arrays with different numbers of rows."""
    if len({len(array) for array in arrays.values()}) > 1:
        counts = ", ".join(f"{name} has {len(array)}" for name, array in arrays.items())
        raise ValueError(f"all arguments must have the same rows, in the same order; {counts}")


def spread(columns: Floats) -> Floats:
    """Standard deviation of each column (ddof 0), exactly zero where the column is constant; (n, J) -> (J,).

    The rounding of a mean leaves a constant column such as .1, .1, .1 with a standard deviation of 1e-17, and a
    division by that would give a dead unit the largest values.
    """
    constant = columns.min(0) == columns.max(0)
    near, power = near_one(columns)
    return np.where(constant, 0.0, np.ldexp(near.std(0), power))


def over_spread(columns: Floats) -> Floats:
    """Each column divided by its standard deviation; zero for constant columns; (n, J) -> (n, J)."""
    scale = spread(columns)
    return np.divide(columns, scale, out=np.zeros_like(columns), where=scale > 0)


def shares(weights: Floats) -> Floats:
    """Each row divided by its sum; a row of zeros stays zero; (n, m) -> (n, m)."""
    total = weights.sum(1, keepdims=True)
    return weights / np.where(total > 0, total, 1.0)


def near_one(columns: Floats) -> tuple[Floats, npt.NDArray[Any]]:
    """Columns divided by a power of two, which is exact, so that their largest magnitude is in [.5, 1); and that power.

    Squares then neither underflow, as those of 1e-200 would, nor overflow.
    """
    power = np.frexp(np.abs(columns).max(0))[1]
    return np.ldexp(columns, -power), power
