"""What a metric takes: arrays that were checked once, with errors that name the argument."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from sparsevae.checks import check_number

if TYPE_CHECKING:
    from scipy.sparse import csr_array, csr_matrix

Codes: TypeAlias = "npt.ArrayLike | csr_array | csr_matrix"
Floats: TypeAlias = npt.NDArray[np.float64]
Integers: TypeAlias = npt.NDArray[np.intp]
Mask: TypeAlias = npt.NDArray[np.bool_]


def plain(values: Any, name: str) -> Any:
    """A numpy array of what is like one, or a CSR matrix. Tensors must be on the CPU, without gradient."""
    if hasattr(values, "toarray"):
        return _real(sound(values, name), name)
    try:
        array = np.asarray(filled(values))
    except (RuntimeError, TypeError, ValueError) as error:
        hint = "; convert it with .detach().cpu().numpy()" if hasattr(values, "detach") else ""
        hint = " on the meta device, which holds no values" if getattr(values, "is_meta", False) else hint
        raise ValueError(f"{name} must be an array of numbers or a CSR matrix; got {type(values)}{hint}") from error
    return _real(array, name)


def _real(array: Any, name: str) -> Any:
    if array.dtype.kind == "c":
        raise ValueError(f"{name} must hold real numbers; got {array.dtype}: take a real part or a modulus first")
    return array


def filled(values: Any) -> Any:
    """A masked array with NaN in place of what is masked (None among what are not numbers); all else as it is."""
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
    """A sparse matrix in CSR form, after a look at its indices: scipy itself writes out of bounds where they lie so."""
    try:
        _check_indices(values)
        found = values.tocsr()
        if found is not values:
            _check_indices(found)
    except (ValueError, IndexError) as error:
        raise ValueError(
            f"{name} is a damaged sparse matrix: {error}. Build it anew, for instance from its COO form."
        ) from error
    return found


def _check_indices(matrix: Any) -> None:
    """Refuse indices out of range, before anything follows them; formats that have none are left to scipy."""
    if matrix.format in ("csr", "csc", "bsr"):
        if (np.diff(matrix.indptr) < 0).any():  # asked first: check_format believes the last one
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
    if array.dtype.kind in "mMSU":  # dates and words, which numpy would make numbers of
        raise ValueError(f"{name} must hold numbers; got values of type {array.dtype}: convert them")
    try:
        array = np.asarray(array.toarray() if hasattr(array, "toarray") else array, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be an array of real numbers or a CSR matrix; got {type(values)}") from error
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must hold finite numbers; {int((~np.isfinite(array)).sum())} are NaN or infinite")
    return array


def matrix(values: Codes, name: str) -> Floats:
    """Rows and columns, at least one of each; dense float64, every entry finite.

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
    """One label per row, (n,), none of them missing, all of one kind."""
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
    """How many labels are None, NaN or a table's mark of a missing value."""
    if y.dtype.kind == "O":
        return sum(_is_missing(label) for label in y.tolist())
    return int((y != y).sum())  # NaN and NaT


def _is_missing(label: Any) -> bool:
    """None, or what is not equal to itself, or will not say."""
    try:
        return label is None or bool(label != label)
    except TypeError:
        return True


def amount(value: float, name: str) -> None:
    """Refuse a limit that nothing could be compared with."""
    check_number(name, value, "a finite number, 0 or above", lambda v: v >= 0, double=True)


def same_rows(**arrays: npt.NDArray[Any]) -> None:
    """All arrays speak of the same rows."""
    if len({len(array) for array in arrays.values()}) > 1:
        counts = ", ".join(f"{name} has {len(array)}" for name, array in arrays.items())
        raise ValueError(f"all arguments must have the same rows, in the same order; {counts}")


def spread(columns: Floats) -> Floats:
    """Standard deviation of each column (ddof 0), exactly zero where the column is constant; (n, J) -> (J,).

    The rounding of a mean leaves a constant column such as .1, .1, .1 with a standard deviation of 1e-17, and a
    division by that would turn a dead unit into the loudest one.
    """
    constant = columns.min(0) == columns.max(0)
    near, power = near_one(columns)
    return np.where(constant, 0.0, np.ldexp(near.std(0), power))


def near_one(columns: Floats) -> tuple[Floats, npt.NDArray[Any]]:
    """Columns divided by a power of two, which rounds nothing, and that power: their largest magnitude lies in [.5, 1).

    Squares then neither vanish, as those of 1e-200 would, nor overflow.
    """
    power = np.frexp(np.abs(columns).max(0))[1]
    return np.ldexp(columns, -power), power
