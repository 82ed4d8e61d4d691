"""The IDX format of MNIST: a magic number, the dimensions, then the values, all big-endian."""

import gzip
import math
import os
import zlib
from pathlib import Path

import numpy as np

# third byte of the magic number -> type of the values
TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def read_idx(path: str | os.PathLike[str]) -> np.ndarray:
    """Read one IDX file, plain or gzipped, and prove that it is whole.

    The layout is two zero bytes, one byte for the type (8 is uint8), one byte for the number of dimensions
    k, then k sizes of four bytes, then the values with the last index running fastest. So images of MNIST
    start with 2051 = 0x00000803 and labels with 2049 = 0x00000801.

    Returns
    -------
    ndarray of the shape and type in the header, in the machine's byte order.

    Raises
    ------
    ValueError
        If the file is not IDX, or holds fewer or more values than its header promises.
    """
    path = Path(path)
    raw = _bytes(path)
    if len(raw) < 4 or raw[:2] != b"\0\0" or raw[2] not in TYPES:
        raise ValueError(
            f"{path}: not an IDX file: expected two zero bytes and a type among "
            f"{', '.join(f'0x{code:02x}' for code in TYPES)}, got 0x{raw[:4].hex() or '(empty)'}"
        )
    dtype, k = np.dtype(TYPES[raw[2]]), raw[3]
    start = 4 + 4 * k
    if len(raw) < start:
        raise ValueError(f"{path}: truncated: the header needs {start} bytes, there are {len(raw)}")
    shape = tuple(int(size) for size in np.frombuffer(raw, ">u4", count=k, offset=4))
    want, have = math.prod(shape) * dtype.itemsize, len(raw) - start
    if have != want:
        fault = "truncated" if have < want else "too long"
        raise ValueError(f"{path}: {fault}: shape {shape} needs {want} bytes of values, there are {have}")
    return np.frombuffer(raw, dtype, offset=start).reshape(shape).astype(dtype.newbyteorder("="))


def _bytes(path: Path) -> bytes:
    raw = path.read_bytes()
    if raw[:2] != b"\x1f\x8b":
        return raw
    try:
        return gzip.decompress(raw)
    except (EOFError, OSError, zlib.error) as error:
        raise ValueError(f"{path}: damaged gzip file ({error}); fetch it again") from error
