"""The IDX format of MNIST: a magic number, the dimensions, then the values, all big-endian."""

from __future__ import annotations

import gzip
import math
import os
from typing import Any

import numpy as np

from sparsevae.exceptions import DataFileError
from sparsevae.files import check_size, opened, parsing, size_of

# third byte of the magic number -> type of the values
TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_MOST_DIMENSIONS = 64  # of a numpy array
_CHUNK = 2**22


def read_idx(path: str | os.PathLike[str]) -> np.ndarray:
    """Read one IDX file, plain or gzipped, after a check that its length is the one in its header.

    The layout is two zero bytes, one byte for the type (8 is uint8), one byte for the number of dimensions
    k, then k sizes of four bytes, then the values in C order. So images of MNIST start with 2051 = 0x00000803 and
    labels with 2049 = 0x00000801.

    Returns
    -------
    ndarray of the shape and type in the header, in the byte order of the machine.

    Raises
    ------
    ValueError
        If the file is not IDX, has fewer or more values than its header states, or would not fit into memory; a
        gzipped one also if it unpacks to over 256 MB and over 200 times its size.
    """
    with opened(path) as file:
        packed = file.read(2) == b"\x1f\x8b"
        size = size_of(file)
        file.seek(0)
        stream: Any = gzip.GzipFile(fileobj=file) if packed else file

        def read(into: memoryview) -> int:
            """Fill a buffer, and return the number of bytes read: fewer only at the end of the file."""
            done = 0
            with parsing(path, "damaged gzip file", "; fetch it again"):
                while done < len(into) and (more := stream.readinto(into[done : done + _CHUNK])):
                    done += more
            return done

        head = bytearray(4)
        got = read(memoryview(head))
        if got < 4 or head[:2] != b"\0\0" or head[2] not in TYPES:
            raise DataFileError(
                f"{path}: not an IDX file: expected two zero bytes and a type among "
                f"{', '.join(f'0x{code:02x}' for code in TYPES)}, got 0x{head[:got].hex() or '(empty)'}"
            )
        dtype, k = np.dtype(TYPES[head[2]]), head[3]
        if k > _MOST_DIMENSIONS:
            raise DataFileError(f"{path}: not an IDX file: expected {_MOST_DIMENSIONS} dimensions at most, got {k}")
        sizes = np.empty(k, ">u4")
        if (got := read(sizes.view("u1").data)) < 4 * k:
            raise DataFileError(f"{path}: truncated: the header needs {4 + 4 * k} bytes, there are {4 + got}")
        shape = tuple(map(int, sizes))
        want = math.prod(shape) * dtype.itemsize
        if not packed:
            _check_length(path, shape, want, size - 4 - 4 * k)
        check_size(path, want, size if packed else None, "; unpack it")
        values = np.empty(math.prod(shape), dtype)
        _check_length(path, shape, want, read(values.view("u1").data))
        if packed and read(memoryview(bytearray(1))):  # reading to the end of a gzip file checks its checksum
            raise DataFileError(f"{path}: too long: shape {shape} needs {want} bytes of values, there are more")
    with parsing(path, "not an IDX file of a shape that numpy supports"):
        return values.reshape(shape).astype(dtype.newbyteorder("="), copy=False)


def _check_length(path: str | os.PathLike[str], shape: tuple[int, ...], want: int, have: int) -> None:
    if have != want:
        fault = "truncated" if have < want else "too long"
        raise DataFileError(f"{path}: {fault}: shape {shape} needs {want} bytes of values, there are {have}")
