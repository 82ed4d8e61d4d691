"""Claims: one form of table, numbers to the right and words to the left, in plain text; and values that JSON has."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

from sparsevae.tables.printed import aligned, json_value


@pytest.mark.parametrize(
    ("cells", "right"),
    [
        (["7", "1,797"], True),
        (["-12.30 ± 0.46", "nan"], True),
        (["+3.2%", "", "-"], True),
        (["up to 162,770", "5 x 2", "1e-05"], True),
        (["7", "all"], False),
        (["0+", "1-"], False),
        (["yes vkg", "no"], False),
        (["of 16", "nats"], False),
    ],
)
def test_a_column_of_numbers_goes_to_the_right_and_one_of_words_to_the_left(cells: list[str], right: bool) -> None:
    width = max(map(len, cells))
    expected = [f"|  {cell.rjust(width) if right else cell.ljust(width)}  |" for cell in cells]
    assert aligned((), [("|", cell, "|") for cell in cells]).splitlines() == expected


def test_a_header_is_as_wide_as_its_column_and_no_line_ends_in_spaces() -> None:
    text = aligned(["unit", "share", "words"], [["0", "0.5", "a b"], ["10", "0.25", ""]])
    assert text.splitlines() == ["unit  share  words", "   0    0.5  a b", "  10   0.25"]
    assert aligned(["unit", "share"], []) == "unit  share"
    assert aligned((), []) == ""


def test_lines_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="zip"):
        aligned(["a", "b"], [["1"]])


class Pair(NamedTuple):
    first: float
    second: Any


@dataclass
class Found:
    values: Any
    pair: Pair | None


def test_json_has_a_value_for_all_that_results_hold() -> None:
    found = Found({"a": np.arange(2), "b": (np.float32(0.5), "x")}, Pair(math.inf, np.array([[1.0, math.nan]])))
    plain = json_value(found)
    assert plain == {
        "values": {"a": [0, 1], "b": [0.5, "x"]},
        "pair": {"first": None, "second": [[1.0, None]]},
    }
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert json_value(Found(True, None)) == {"values": True, "pair": None}
