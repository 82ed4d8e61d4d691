"""The one check of numbers that a user gives: any int, however large, and any float."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from numbers import Integral, Rational, Real
from typing import Any

import numpy as np

__all__ = ["check_number", "check_seed", "is_number"]

_TINY, _HUGE = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)
_SINGLE = _TINY, _HUGE, f"networks compute in float32, {_TINY:.1e} to {_HUGE:.1e}"
_DOUBLE = 0, sys.float_info.max, "no float is as large"
_WHOLE = 1, 2**63 - 1, "64 bits hold less"
_DIGITS = 4_000  # of a seed; Python itself writes no integer of more than 4,300


def is_number(value: Any, *, whole: bool = False) -> bool:
    """Whether it is a finite number (an integer where `whole`); True and False are none.

    >>> is_number(10**400), is_number(1e400), is_number(True), is_number(2.0, whole=True)
    (True, False, False, False)
    """
    if isinstance(value, bool) or not isinstance(value, Integral if whole else Real):
        return False
    return isinstance(value, Rational) or math.isfinite(value)  # of integers and fractions a float may be too small


def check_number(
    name: str,
    value: Any,
    expected: str,
    legal: Callable[[Any], bool],
    *,
    whole: bool = False,
    double: bool = False,
    context: str = "",
) -> None:
    """Refuse what is not a finite number (an integer where `whole`) and `legal`; `expected` says it in words.

    Training computes in float32, so numbers must be among its own; where only doubles are at work say `double`. Where
    the number came from something larger, a schedule, `context` says from what.
    """
    if not (is_number(value, whole=whole) and legal(value)):
        raise ValueError(f"{name} must be {expected}, got {context}{shown(value)}.")
    least, most, held = _WHOLE if whole else _DOUBLE if double else _SINGLE
    if value != 0 and not least <= abs(value) <= most:
        raise ValueError(f"{name} must be {expected}, got {context}{shown(value)}: {held}.")


def check_seed(name: str, value: Any, expected: str = "an integer", *, least: float = -math.inf) -> None:
    """Refuse what fixes no stream of random numbers: any integer does, from `least` on where that is given."""
    expected += "" if least == -math.inf else f", {least} or above"
    if not is_number(value, whole=True) or value < least:
        raise ValueError(f"{name} must be {expected}, got {shown(value)}.")
    if abs(int(value)) >= 10**_DIGITS:
        raise ValueError(f"{name} must be {expected} of at most {_DIGITS:,} digits, got {shown(value)}.")


def a_type(value: Any) -> str:
    """The type of a value with its article.

    >>> a_type(3), a_type("x")
    ('an int', 'a str')
    """
    name = type(value).__name__
    return f"{'an' if name[0].lower() in 'aeio' else 'a'} {name}"


def shown(value: Any) -> str:
    """A value as a message shows it: an integer that fills lines by its size.

    >>> shown(10**400), shown(-(10**30)), shown("x")
    ('an integer of about 400 digits', '-1000000000000000000000000000000', "'x'")
    """
    if isinstance(value, int) and abs(value) >= 10**40:
        return f"an integer of about {int(value.bit_length() * math.log10(2))} digits"
    try:
        return repr(value)
    except ValueError:  # Python writes no integer of more than 4,300 digits, wherever it stands
        return f"a {type(value).__name__} that holds a very long integer"
