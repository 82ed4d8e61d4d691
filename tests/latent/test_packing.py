"""Claims: what is unpacked is what was packed, in exactly the bits that are documented, never more than the bound; any
rows can be read alone; what is no code, or no packed code, is refused by name."""

from __future__ import annotations

import math
import mmap
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sparsevae.latent.packing import Header, bits_per_row, pack, read_header, unpack

HEADER = 22


def same(a: Any, b: Any) -> bool:
    return a.shape == b.shape and (a != b).nnz == 0


def counts(n: int, K: int, cap: int, seed: int, *, binary: bool = False) -> Any:
    """Random counts, the first row all off and the second as full as it can be."""
    rng = np.random.default_rng(seed)
    Z = np.zeros((n, K), np.float32)
    for row, total in zip(Z, [0, cap, *rng.integers(0, cap + 1, n)], strict=False):
        np.add.at(row, rng.integers(0, K, total), 1)
    return sp.csr_matrix(np.minimum(Z, 1) if binary else Z)


# -- there and back ---------------------------------------------------------------------------------------------


@given(
    n=st.integers(0, 40), K=st.integers(1, 600), cap=st.integers(1, 50), binary=st.booleans(), seed=st.integers(0, 99)
)
@settings(max_examples=200, deadline=None)
def test_what_is_unpacked_is_what_was_packed(n: int, K: int, cap: int, binary: bool, seed: int) -> None:
    Z = counts(n, K, cap, seed, binary=binary)
    data = pack(Z, cap, K)
    found = unpack(data)
    assert same(found, Z)
    assert (found.format, found.dtype) == ("csr", np.float32)
    assert found.has_canonical_format
    assert pack(found, cap, K) == data


@pytest.mark.parametrize(
    ("K", "cap", "binary", "layout"),
    [
        (1, 1, False, "symbols"),
        (1, 5, False, "symbols"),
        (1, 5, True, "mask"),
        (255, 1, False, "symbols"),
        (256, 1, False, "symbols"),
        (65_535, 2, False, "symbols"),
        (65_536, 2, False, "symbols"),
        (100_000, 7, False, "split"),
        (200, 40, False, "split"),
        (5, 300, False, "split"),
        (60, 60, True, "mask"),
    ],
)
def test_every_layout_holds_empty_full_and_random_rows(K: int, cap: int, binary: bool, layout: str) -> None:
    Z = counts(37, K, cap, 1, binary=binary)
    Z = sp.vstack([Z, sp.csr_matrix(([1.0 if binary else cap], ([0], [K - 1])), (1, K))], format="csr")
    data = pack(Z, cap)
    assert read_header(data) == Header(38, K, cap, layout)
    assert same(unpack(data), Z)


@pytest.mark.parametrize("n", [100_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_a_million_rows_come_back(n: int) -> None:
    K = 200
    rng = np.random.default_rng(2)
    Z: Any = sp.csr_matrix(
        (rng.integers(0, 6, 8 * n).astype(np.float32), rng.integers(0, K, 8 * n, dtype=np.int32), np.arange(n + 1) * 8),
        (n, K),
    )
    Z.sum_duplicates()
    data = pack(Z, cap=40)
    assert len(data) == HEADER + n * 170 // 8
    assert same(unpack(data), Z)
    some = slice(n - 24_568, n - 24_558)
    assert same(unpack(data, some), Z[some])


@pytest.mark.parametrize("K", [1, 200])
def test_no_rows_take_no_bytes_beyond_the_header(K: int) -> None:
    data = pack(np.zeros((0, K)), cap=3)
    assert len(data) == HEADER
    assert unpack(data).shape == (0, K)


def test_the_form_of_the_codes_does_not_matter() -> None:
    Z = counts(50, 13, 6, 3)
    want = pack(Z, 6)
    row, column = Z.nonzero()
    value = Z.data
    ones = np.repeat(np.arange(Z.nnz), value.astype(int))  # each count as that many entries of one
    order = np.random.default_rng(0).permutation(Z.nnz)
    ends = np.cumsum(np.r_[0, np.diff(Z.indptr)[::-1]])
    falling = sp.csr_matrix((value[::-1].copy(), Z.indices[::-1].copy(), ends), Z.shape)  # rows and columns backwards
    dense = Z.toarray()
    forms = [
        dense,
        dense.astype(np.int8).tolist(),
        dense.astype(np.uint64),
        torch.from_numpy(dense),
        pd.DataFrame(dense),
        Z.tocsc(),
        sp.csr_array(Z),
        sp.coo_matrix((value[order], (row[order], column[order])), Z.shape),
        sp.coo_matrix((np.ones(len(ones)), (row[ones], column[ones])), Z.shape).tocsr(),
    ]
    assert [pack(form, 6) == want for form in forms] == [True] * len(forms)
    before = falling.indices.copy()
    assert pack(falling, 6) == pack(dense[::-1], 6)
    assert (falling.indices == before).all()  # the caller's matrix is left alone
    assert pack(dense > 0, 6) == pack(np.minimum(dense, 1), 6)


def test_an_entry_that_is_stored_and_zero_is_no_entry() -> None:
    Z = sp.csr_matrix((np.array([0.0, 1.0, 0.0]), np.array([0, 2, 1]), np.array([0, 2, 3])), (2, 9))
    for cap in (1, 9):  # symbols; mask
        assert pack(Z, cap) == pack(Z.toarray(), cap)


# -- bits -------------------------------------------------------------------------------------------------------


def test_a_row_takes_the_documented_bits_and_never_more_than_the_bound() -> None:
    for K in range(1, 70):
        for cap in range(1, 60):
            width = math.ceil(math.log2(K + 1))
            split = min(cap * (low + 1) + K // 2**low for low in range(width + 2))
            plain, binary = bits_per_row(K, cap), bits_per_row(K, cap, binary=True)
            assert plain == min(cap * width, split)
            assert binary == min(cap * width, split, K)
            assert binary <= plain <= cap * width
            assert plain >= math.log2(math.comb(K + cap, cap))  # as many codes there are
            assert binary >= math.log2(sum(math.comb(K, on) for on in range(min(K, cap) + 1)))


@pytest.mark.parametrize(("K", "cap", "bits"), [(200, 1, 8), (255, 1, 8), (256, 1, 9), (1, 1, 1), (1023, 1, 10)])
def test_the_bound_is_met_where_symbols_are_best(K: int, cap: int, bits: int) -> None:
    assert bits_per_row(K, cap) == cap * math.ceil(math.log2(K + 1)) == bits
    assert len(pack(counts(800, K, cap, 4), cap)) == HEADER + 100 * bits


def test_the_papers_setting_takes_170_bits_where_the_bound_is_320() -> None:
    assert (bits_per_row(200, 40), 40 * math.ceil(math.log2(201))) == (170, 320)


@pytest.mark.parametrize("n", [1, 7, 8, 9])
def test_rows_follow_each_other_without_gaps(n: int) -> None:
    data = pack(counts(n, 200, 3, 5), 3)
    assert len(data) == HEADER + math.ceil(n * bits_per_row(200, 3) / 8) == read_header(data).size


@pytest.mark.parametrize(
    ("Z", "cap", "layout", "bits"),
    [
        # one symbol of four bits a row: 7 for unit 6, and 0
        ([[0, 0, 0, 0, 0, 0, 1, 0, 0], [0] * 9], 1, 0, "0111 0000"),
        ([[1, 0, 1], [0, 1, 1]], 2, 1, "101 011"),
        # symbols 0 2 2 3, K = 3: no low bits, ones at 0 + 0, 2 + 1, 2 + 2 and 3 + 3 of 4 + 3
        ([[0, 2, 1]], 4, 2, "1001101"),
        # symbols 0 12 40, K = 40: low bits 000 100 000; high parts 0 1 5, ones at 0 + 0, 1 + 1 and 5 + 2 of 3 + 5
        ([[0] * 11 + [1] + [0] * 27 + [1]], 3, 2, "000 100 000 10100001"),
    ],
)
def test_the_bytes_are_those_worked_out_by_hand(Z: Any, cap: int, layout: int, bits: str) -> None:
    string = bits.replace(" ", "")
    payload = int(string.ljust(-(-len(string) // 8) * 8, "0"), 2).to_bytes(-(-len(string) // 8), "big")
    head = b"svzc" + bytes([1, layout]) + struct.pack("<QII", len(Z), len(Z[0]), cap)
    assert pack(Z, cap) == head + payload


# -- some rows alone --------------------------------------------------------------------------------------------


@given(
    rows=st.slices(45),
    size=st.sampled_from([(200, 3, False), (200, 40, False), (30, 30, True)]),
)
@settings(max_examples=150, deadline=None)
def test_a_slice_of_rows_is_that_slice_of_the_codes(rows: slice, size: tuple[int, int, bool]) -> None:
    K, cap, binary = size
    Z = counts(45, K, cap, 6, binary=binary)
    assert same(unpack(pack(Z, cap), rows), sp.csr_matrix(Z.toarray()[rows]))


def test_rows_outside_the_slice_are_not_looked_at() -> None:
    Z = counts(100, 200, 1, 7)  # a byte a row
    data = bytearray(pack(Z, 1))
    data[HEADER + 49] = data[HEADER + 60] = 255  # no unit 254
    assert same(unpack(data, slice(50, 60)), Z[50:60])
    with pytest.raises(ValueError, match="row 49 is no code"):
        unpack(data)


def test_rows_are_read_from_a_memory_map(tmp_path: Path) -> None:
    Z = counts(100, 50, 5, 8)
    (tmp_path / "codes").write_bytes(pack(Z, 5))
    with open(tmp_path / "codes", "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as kept_rows:
        found = unpack(kept_rows, slice(10, 20))
    assert same(found, Z[10:20])
    assert same(unpack(np.memmap(tmp_path / "codes", np.uint8, "r")), Z)


# -- what is refused --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("Z", "words"),
    [
        ([[0, 1], [0, -1]], "whole numbers of 0 or above; row 1 has the value -1"),
        ([[0, 0.5], [0, 1]], "whole numbers of 0 or above; row 0 has the value 0.5. Codes of real values"),
        ([[0, np.nan]], "row 0 has the value nan"),
        ([[0, 0], [2, 2]], "at most cap=3; row 1 sums to 4"),
        ([[0, 0], [0, 0], [0, 4]], "at most cap=3; row 2 has a count of 4"),
        ([[0, np.inf]], "at most cap=3; row 0 has a count of inf"),
        ([[0, 1e30]], "at most cap=3; row 0 has a count of 1e\\+30"),
        ([0, 1], r"two dimensions, \(rows, units\); got shape \(2,\)"),
        (np.zeros((3, 0)), "n_components must be an integer from 1"),
        ([["a", "b"]], "must hold counts, 0 or above; got values of type"),
        ([[1j]], "real numbers"),
    ],
)
def test_what_is_no_code_of_counts_is_refused(Z: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        pack(Z, 3)


@pytest.mark.parametrize("cap", [0, -1, 1.5, True, "3", 2**24 + 1])
def test_a_cap_is_a_number_of_units(cap: Any) -> None:
    with pytest.raises(ValueError, match="cap must be an integer from 1 to 16777216"):
        pack([[0, 1]], cap)
    with pytest.raises(ValueError, match="cap must be an integer from 1 to 16777216"):
        bits_per_row(2, cap)


def test_a_code_of_another_width_is_refused() -> None:
    with pytest.raises(ValueError, match="codes have 3 columns, one per unit; got 2"):
        pack([[0, 1]], 1, 3)


GOOD = pack([[0, 1, 0], [2, 0, 0]], 2)  # symbols 0 2 and 1 1, two bits each


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "begins with b'svzc'; got 0 bytes"),
        (b"PK\3\4" + bytes(40), "begins with b'svzc'; got 44 bytes that begin with b'PK"),
        (GOOD[:10], "got 10 bytes"),
        (GOOD[:-1], "2 rows of 4 bits take 23 bytes; got 22: cut short"),
        (GOOD + b"\0", "2 rows of 4 bits take 23 bytes; got 24: followed by other bytes"),
        (GOOD[:4] + b"\2" + GOOD[5:], "version 2 of the format; this package reads 1"),
        (GOOD[:5] + b"\3" + GOOD[6:], "header is damaged: it has layout 3"),
        (GOOD[:14] + bytes(4) + GOOD[18:], "header is damaged: it has layout 0, 0 units"),
        (GOOD[:18] + bytes(4) + GOOD[22:], "header is damaged: it has layout 0, 3 units, cap 0"),
        (GOOD[:6] + struct.pack("<Q", 2**63) + GOOD[14:], "cut short"),
        (GOOD[:22] + bytes([0b0010_1101]), "row 1 is no code"),  # 3 1 does not rise
        (pack([[0] * 5 + [1]], 1)[:-1] + bytes([0b1110_0000]), "row 0 is no code"),  # 7 of 6 units
        (pack([[0] * 5 + [1]], 1)[:-1] + bytes([0b1100_0001]), "last 5 bits must be zeros"),
        (pack([[1, 0, 1]], 2)[:-1] + bytes([0b1110_0000]), "row 0 is no code"),  # three on, cap 2
        (pack([[0, 2, 1]], 4)[:-1] + bytes([0b1111_1000]), "row 0 is no code"),  # five steps for four symbols
        (pack([[0, 2, 1]], 4)[:-1] + bytes([0b1000_0010]), "row 0 is no code"),  # two steps
    ],
)
def test_what_was_not_packed_is_refused(data: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        unpack(data)


def test_what_has_no_bytes_is_refused() -> None:
    with pytest.raises(TypeError, match=r"expected bytes from pack\(\), or a buffer of them; got a str"):
        unpack("svzc")
    with pytest.raises(TypeError, match=r"rows must be a slice, such as slice\(0, 100\)"):
        unpack(GOOD, [0, 1])  # type: ignore[arg-type]
