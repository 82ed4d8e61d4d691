"""IDX files: whole ones come back as written, anything else is an error that says why."""

import gzip
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sparsevae.data import read_idx
from sparsevae.data.readers import idx

CODES = {np.dtype(name).newbyteorder("="): code for code, name in idx.TYPES.items()}


def pack(array: np.ndarray) -> bytes:
    header = struct.pack(f">HBB{array.ndim}I", 0, CODES[array.dtype], array.ndim, *array.shape)
    return header + array.astype(array.dtype.newbyteorder(">")).tobytes()


@given(
    array=st.sampled_from(sorted(CODES, key=str)).flatmap(
        lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=5))
    ),
    zipped=st.booleans(),
)
def test_what_was_written_is_read_in_every_type_and_shape(tmp_path_factory, array, zipped):
    path = tmp_path_factory.getbasetemp() / "array.idx"
    path.write_bytes(gzip.compress(pack(array)) if zipped else pack(array))
    read = read_idx(path)
    assert read.dtype == array.dtype
    np.testing.assert_array_equal(read, array)


@pytest.mark.parametrize("missing", [1, 5, 12, 13, 14, 15])
def test_a_file_that_ends_too_early_is_refused(tmp_path, missing):
    whole = pack(np.arange(6, dtype=np.uint8).reshape(2, 3))  # 4 + 8 + 6 bytes
    path = tmp_path / "short"
    path.write_bytes(whole[:-missing])
    with pytest.raises(ValueError, match=r"short: (truncated|not an IDX file)"):
        read_idx(path)


def test_a_file_that_goes_on_too_long_is_refused(tmp_path):
    path = tmp_path / "long"
    path.write_bytes(pack(np.zeros(3, dtype=np.uint8)) + b"!")
    with pytest.raises(ValueError, match=r"too long: shape \(3,\) needs 3 bytes of values, there are 4"):
        read_idx(path)


@pytest.mark.parametrize("raw", [b"", b"\0\0\x08", b"\0\1\x08\1\0\0\0\0", b"\0\0\x07\1\0\0\0\0", b"<html>404</html>"])
def test_a_wrong_magic_number_is_refused(tmp_path, raw):
    path = tmp_path / "page"
    path.write_bytes(raw)
    with pytest.raises(ValueError, match="not an IDX file: expected two zero bytes"):
        read_idx(path)


def test_a_header_that_promises_more_than_memory_is_refused_without_trying(tmp_path):
    path = tmp_path / "bomb"
    path.write_bytes(b"\0\0\x08\4" + b"\xff" * 16)
    with pytest.raises(ValueError, match="truncated"):
        read_idx(path)


@pytest.mark.parametrize("damage", [lambda z: z[:-9], lambda z: z[:30] + b"\0\0\0\0" + z[34:]])
def test_a_damaged_gzip_file_is_refused(tmp_path, damage):
    path = tmp_path / "array.gz"
    noise = np.random.default_rng(0).integers(0, 256, 500, dtype=np.uint8)
    path.write_bytes(damage(gzip.compress(pack(noise))))
    with pytest.raises(ValueError, match="damaged gzip file"):
        read_idx(path)
