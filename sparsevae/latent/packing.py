r"""Lossless packing of codes of counts into bytes, with a fixed number of bits per row.

A row of K counts whose sum is at most `cap` is written as `cap` symbols in ascending order: k + 1 as many times as the
count of unit k, and 0 for the rest,

.. math:: 0 \le s_1 \le s_2 \le \dots \le s_{cap} \le K, \qquad w = \lceil \log_2 (K + 1) \rceil
   \text{ bits per symbol.}

There are three layouts of a row, all of fixed width, so that any row can be read without the others:

- **symbols**: each s_i in w bits; `cap` w bits.
- **mask**, for codes of zeros and ones: bit k is 1 if unit k is on; K bits.
- **split** (Elias, 1974; Fano, 1971): the lowest l bits of each s_i, then the ascending numbers h_i = s_i >> l as a
  string of `cap` + (K >> l) bits in which bit h_i + i is 1; `cap` (l + 1) + (K >> l) bits, with the l that minimises
  this number.

`pack` uses the layout with the fewest bits. For K = 200 and cap = 40 these are 320 (symbols), 170 (split) and, if no
count exceeds one, 200 (mask); the minimum for a code of fixed width is log2 C(240, 40) = 152.1.

The bytes: a header (`Header`), little-endian, then the rows as consecutive bits without gaps, the most significant bit
of a number and of a byte first; zeros fill the last byte. There is no checksum: storage or transport provides one.
Symbols out of order or out of range are detected.

References
----------
P. Elias, "Efficient storage and retrieval by content and address of static files", Journal of the ACM 21, 1974.
R. Fano, "On the number of bits required to implement an associative memory", MIT Project MAC memorandum 61, 1971.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from sparsevae.checks import In
from sparsevae.metrics.arrays import Codes, plain

MAGIC, VERSION = b"svzc", 1
LAYOUTS = ("symbols", "mask", "split")
_HEADER = struct.Struct("<4sBBQII")  # magic, version, layout, rows, K, cap: 22 bytes
_MOST_UNITS, _MOST_COUNTS = (
    2**31 - 1,
    2**24,
)  # int32 columns of a CSR matrix; integers exact in float32
_CHUNK = 1 << 18  # bits unpacked at a time, each into a byte or more
Array = np.ndarray[Any, Any]


class Header(NamedTuple):
    """The header of packed bytes."""

    rows: int
    n_components: int
    cap: int
    layout: str

    @property
    def bits(self) -> int:
        """Bits of one row."""
        return _widths(self.n_components, self.cap)[self.layout]

    @property
    def size(self) -> int:
        """Bytes of header and rows."""
        return _HEADER.size + -(-self.rows * self.bits // 8)


def bits_per_row(n_components: int, cap: int, *, binary: bool = False) -> int:
    """Bits per row that `pack` uses for counts that sum to at most `cap` per row; `binary`: all counts are 0 or 1.

    At most cap * ceil(log2(n_components + 1)).

    >>> bits_per_row(200, 40), bits_per_row(200, 40, binary=True), bits_per_row(20, 40, binary=True)
    (170, 170, 20)
    """
    _check_size(n_components, cap)
    return _widths(n_components, cap)[_best(n_components, cap, binary)]


def pack(Z: Codes, cap: int, n_components: int | None = None, *, remedy: str = "Pass a larger cap.") -> bytes:
    """Codes of counts as bytes: a header of 22 bytes, then `bits_per_row` bits per row.

    Parameters
    ----------
    Z : (n, K) CSR matrix or array
        Whole numbers, 0 or above; the sum of each row is at most `cap`.
    cap : int
        The largest sum of a row: for a code of zeros and ones, the largest number of units on.
    n_components : int, optional
        K, to check the number of columns.
    remedy : str
        The end of the error message for a row that sums to more than `cap`.

    Examples
    --------
    >>> data = pack([[0, 2, 0, 1], [0, 0, 0, 0]], cap=3)  # symbols 2 2 4, and 0 0 0
    >>> len(data), bits_per_row(4, 3)
    (24, 7)
    >>> unpack(data).toarray()
    array([[0., 2., 0., 1.],
           [0., 0., 0., 0.]], dtype=float32)
    """
    codes = plain(Z, "Z")
    if len(codes.shape) != 2:
        raise ValueError(f"Z must have two dimensions, (rows, units); got shape {codes.shape}.")
    n, K = codes.shape
    _check_size(K, cap)
    if n_components is not None and n_components != K:
        raise ValueError(f"codes have {n_components} columns, one per unit; got {K}.")
    if codes.dtype.kind not in "biuf":
        raise ValueError(f"Z must hold counts, 0 or above; got values of type {codes.dtype}.")
    Z_csr: Any = scipy.sparse.csr_matrix(codes)
    if not Z_csr.has_canonical_format:  # sorts columns and merges duplicates
        Z_csr = Z_csr.copy()
        Z_csr.sum_duplicates()
    ends = Z_csr.indptr.astype(np.int64)
    counts = _counts(Z_csr.data, cap, ends, remedy)
    layout = _best(K, cap, bool(counts.max(initial=0) <= 1))
    header = Header(n, int(K), int(cap), layout)
    parts = [_HEADER.pack(MAGIC, VERSION, LAYOUTS.index(layout), n, K, cap)]
    step = 8 * max(1, _CHUNK // header.bits // 8)  # rows; a multiple of 8 rows ends with a whole byte
    for start in range(0, n, step):
        block = ends[start : start + step + 1]
        part = slice(block[0], block[-1])
        bits = _write(header, Z_csr.indices[part], counts[part], block - block[0])
        parts.append(np.packbits(bits).tobytes())
    return b"".join(parts)


def unpack(data: Any, rows: slice | None = None) -> Any:
    """The codes from which `pack` made the bytes: a CSR matrix, float32, as from `transform`.

    It takes 4 bytes per row and 8 per non-zero, and unpacking little more memory than that.

    Parameters
    ----------
    data : bytes, or anything with a buffer, such as a bytearray or a memory map
    rows : slice, optional
        The rows to unpack, by default all. Bytes before the first and after the last of them are not read.
    """
    if not (rows is None or isinstance(rows, slice)):
        raise TypeError(f"rows must be a slice, such as slice(0, 100), or None for all rows; got {rows!r}.")
    buffer = _buffer(data)
    header = read_header(buffer)
    wanted = range(header.rows)[rows or slice(None)]
    first, last = (min(wanted), max(wanted) + 1) if wanted else (0, 0)
    stream, step = np.frombuffer(buffer[_HEADER.size :], np.uint8), max(1, _CHUNK // header.bits)
    most = (last - first) * min(header.cap, header.n_components)
    index = np.dtype(np.int32 if most < 2**31 else np.int64)
    all_columns, all_counts, ends = bytearray(), bytearray(), bytearray(index.itemsize)  # these grow in place
    end = 0
    for start in range(first, last, step):
        n = min(step, last - start)
        begin = start * header.bits
        folded = stream[begin // 8 : -(-(begin + n * header.bits) // 8)]
        bits = np.unpackbits(folded)[begin % 8 :][: n * header.bits].reshape(n, header.bits)
        columns, counts, lengths = _read(header, bits, start)
        all_columns += columns.data
        all_counts += counts.data
        ends += (end + np.cumsum(lengths)).astype(index).data
        end += len(columns)
    found = (np.frombuffer(all_counts, np.float32), np.frombuffer(all_columns, np.int32), np.frombuffer(ends, index))
    Z: Any = scipy.sparse.csr_matrix(found, (last - first, header.n_components))
    return Z if wanted.step == 1 else Z[:: wanted.step]


def read_header(data: Any) -> Header:
    """Rows, units, cap and layout of packed bytes; a ValueError if they are not bytes from `pack`.

    >>> read_header(pack([[1, 0, 0]], cap=2))
    Header(rows=1, n_components=3, cap=2, layout='mask')
    """
    buffer = _buffer(data)
    if len(buffer) < _HEADER.size or buffer[:4] != MAGIC:
        came = f"{len(buffer)} bytes that begin with {bytes(buffer[:4])!r}"
        raise ValueError(
            f"expected bytes from pack(), a header of {_HEADER.size} bytes that begins with {MAGIC!r}; got {came}."
        )
    _, version, which, n, K, cap = _HEADER.unpack(buffer[: _HEADER.size])
    if version != VERSION:
        raise ValueError(f"these codes were packed with version {version} of the format; this package reads {VERSION}.")
    if which >= len(LAYOUTS) or not (0 < K <= _MOST_UNITS and 0 < cap <= _MOST_COUNTS):
        raise ValueError(f"the header is damaged: it has layout {which}, {K} units, cap {cap}.")
    header = Header(n, K, cap, LAYOUTS[which])
    if len(buffer) != header.size:
        problem = "cut short" if len(buffer) < header.size else "followed by other bytes"
        raise ValueError(f"{n} rows of {header.bits} bits take {header.size} bytes; got {len(buffer)}: {problem}.")
    spare = 8 * (header.size - _HEADER.size) - n * header.bits
    if spare and buffer[-1] & ((1 << spare) - 1):
        raise ValueError(f"the last {spare} bits must be zeros, which fill the last byte; the bytes are damaged.")
    return header


def _low_bits(K: int, cap: int) -> int:
    """l of the split layout: the number of low bits that minimises cap (l + 1) + (K >> l)."""
    return min(range(K.bit_length()), key=lambda low: cap * (low + 1) + (K >> low))


def _widths(K: int, cap: int) -> dict[str, int]:
    """Bits per row of each layout. K.bit_length() is ceil(log2(K + 1)), without rounding."""
    K, cap = int(K), int(cap)
    low = _low_bits(K, cap)
    return {"symbols": cap * K.bit_length(), "mask": K, "split": cap * (low + 1) + (K >> low)}


def _best(K: int, cap: int, binary: bool) -> str:
    """The layout with the fewest bits; of equals the first in LAYOUTS."""
    widths = _widths(K, cap)
    return min((layout for layout in LAYOUTS if binary or layout != "mask"), key=widths.__getitem__)


def _write(header: Header, columns: Array, counts: Array, ends: Array) -> Array:
    """Rows as bits, uint8 (n, header.bits), from the columns, counts and ends (n + 1,) of a CSR matrix."""
    n, (_, K, cap, layout) = len(ends) - 1, header
    if layout == "mask":
        bits = np.zeros((n, K), np.uint8)
        bits[np.repeat(np.arange(n), np.diff(ends)), columns] = counts
        return bits
    sums = np.diff(np.concatenate([[0], np.cumsum(counts)])[ends])  # (n,)
    symbols = np.zeros((n, cap), _number(K.bit_length()))
    symbols[np.arange(cap) >= cap - sums[:, None]] = np.repeat(columns.astype(symbols.dtype) + 1, counts)
    if layout == "symbols":
        return _to_bits(symbols, K.bit_length())
    low = _low_bits(K, cap)
    steps = np.zeros((n, cap + (K >> low)), np.uint8)
    np.put_along_axis(steps, (symbols >> low).astype(np.int64) + np.arange(cap), 1, axis=1)
    return np.concatenate([_to_bits(symbols & ((1 << low) - 1), low), steps], axis=1) if low else steps


def _read(header: Header, bits: Array, start: int) -> tuple[Array, Array, Array]:
    """The inverse of `_write`: columns and counts of the non-zeros, and the number of them per row, (n,)."""
    n, (_, K, cap, layout) = len(bits), header
    if layout == "mask":
        lengths = bits.sum(1, dtype=np.int64)
        _check_rows(lengths <= cap, start)
        at = np.flatnonzero(bits)
        return (at % K).astype(np.int32), np.ones(len(at), np.float32), lengths
    if layout == "symbols":
        symbols = _to_numbers(bits, K.bit_length())
    else:
        low = _low_bits(K, cap)
        steps = bits[:, cap * low :]
        _check_rows(steps.sum(1, dtype=np.int64) == cap, start)
        high = np.flatnonzero(steps).reshape(n, cap) % steps.shape[1] - np.arange(cap)
        symbols = high.astype(_number(K.bit_length())) << low
        if low:
            symbols |= _to_numbers(bits[:, : cap * low], low)
    _check_rows((symbols[:, -1] <= K) & (symbols[:, 1:] >= symbols[:, :-1]).all(1), start)
    on = symbols > 0
    row, unit = np.repeat(np.arange(n), on.sum(1)), symbols[on]
    first = np.ones(len(unit), bool)  # the first of a run of equal symbols, whose length is the count
    first[1:] = (unit[1:] != unit[:-1]) | (row[1:] != row[:-1])
    begins = np.flatnonzero(first)
    counts = np.diff(begins, append=len(unit)).astype(np.float32)
    return unit[begins].astype(np.int32) - 1, counts, np.bincount(row[begins], minlength=n)


def _number(width: int) -> np.dtype[Any]:
    """The smallest unsigned integer type with at least `width` bits."""
    return np.min_scalar_type((1 << width) - 1)


def _to_bits(numbers: Array, width: int) -> Array:
    """Each number as `width` bits, (n, c) -> (n, c width)."""
    n, c = numbers.shape
    folded = numbers.astype(_number(width).newbyteorder(">"))
    bits = np.unpackbits(folded.view(np.uint8).ravel()).reshape(n, c, 8 * folded.itemsize)
    return bits[..., -width:].reshape(n, c * width)


def _to_numbers(bits: Array, width: int) -> Array:
    """The inverse of `_to_bits`."""
    n, c = len(bits), bits.shape[1] // width
    dtype = _number(width)
    wide = np.zeros((n, c, 8 * dtype.itemsize), np.uint8)
    wide[..., -width:] = bits.reshape(n, c, width)
    return np.packbits(wide.ravel()).view(dtype.newbyteorder(">")).astype(dtype).reshape(n, c)


def _check_size(n_components: int, cap: int) -> None:
    In(1, _MOST_UNITS).check("n_components", n_components, f"an integer from 1 to {_MOST_UNITS}", whole=True)
    most = f"an integer from 1 to {_MOST_COUNTS}, the largest sum of a row"
    In(1, _MOST_COUNTS).check("cap", cap, most, whole=True)


def _counts(values: Array, cap: int, ends: Array, remedy: str) -> Array:
    """The stored values of a code as integers; a ValueError unless they are counts with at most `cap` per row."""

    def row(at: Any) -> int:
        return int(np.searchsorted(ends, at, side="right")) - 1

    wrong = ~(values >= 0) if values.dtype.kind != "f" else ~((values >= 0) & (values == np.floor(values)))
    if wrong.any():
        at = np.argmax(wrong)
        raise ValueError(
            f"pack takes counts, whole numbers of 0 or above; row {row(at)} has the value {values[at]}. Codes of real "
            "values, such as those of VSC, cannot be packed."
        )
    expected = f"a row may sum to at most cap={cap}"
    if len(values) and values.max() > cap:
        at = np.argmax(values)
        raise ValueError(f"{expected}; row {row(at)} has a count of {values[at]:g}. {remedy}")
    counts = values.astype(np.int64)
    sums = np.diff(np.concatenate([[0], np.cumsum(counts)])[ends])
    if sums.max(initial=0) > cap:
        at = np.argmax(sums)
        raise ValueError(f"{expected}; row {at} sums to {sums[at]}. {remedy}")
    return counts


def _check_rows(sound: Array, start: int) -> None:
    if not sound.all():
        raise ValueError(f"row {start + int(np.argmin(sound))} is no code that pack() writes: the bytes are damaged.")


def _buffer(data: Any) -> memoryview:
    try:
        return memoryview(data).cast("B")
    except TypeError:
        raise TypeError(f"expected bytes from pack(), or a buffer of them; got a {type(data).__name__}.") from None
