"""Text files whose lines are fields between tabs, and columns of classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from sparsevae.files import read_lines


def read_tsv(path: Path, n_fields: int) -> list[list[str]]:
    """The columns of a file, `n_fields` lists of strings; every line must have that many fields."""
    rows = [line.split("\t") for line in read_lines(path)]
    for number, row in enumerate(rows, start=1):
        if len(row) != n_fields:
            raise ValueError(f"{path}, line {number}: expected {n_fields} fields between tabs, got {len(row)}")
    return [[row[k] for row in rows] for k in range(n_fields)]


def class_numbers(values: Sequence[str], classes: Mapping[str, int], path: Path, expected: str) -> np.ndarray:
    """The number of the class on each line of `path`, (n,) int64; `expected` describes the legal values."""
    for number, value in enumerate(values, start=1):
        if value not in classes:
            raise ValueError(f"{path}, line {number}: expected {expected}, got {value[:40]!r}")
    return np.array([classes[value] for value in values], dtype=np.int64)


def texts_array(texts: Sequence[str]) -> np.ndarray:
    """(n,) array of str objects: a fixed-width array would be as wide as the longest text."""
    return np.array(texts, dtype=object)
