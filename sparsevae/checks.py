"""Checks of numbers that a user gives, ranges of legal values, and checks of sizes against the memory."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Integral, Rational, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import torch

_TINY, _HUGE = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)
_SINGLE = _TINY, _HUGE, f"networks compute in float32, {_TINY:.1e} to {_HUGE:.1e}"
_DOUBLE = 0, sys.float_info.max, "no float is as large"
_WHOLE = 1, 2**63 - 1, "64 bits hold less"
_DIGITS = 4_000  # largest number of digits of a seed; Python converts at most 4,300 to a string


def is_number(value: Any, *, whole: bool = False) -> bool:
    """True for a finite number (an integer if `whole`), except True and False.

    >>> is_number(10**400), is_number(1e400), is_number(True), is_number(2.0, whole=True)
    (True, False, False, False)
    """
    if isinstance(value, bool) or not isinstance(value, Integral if whole else Real):
        return False
    return isinstance(value, Rational) or math.isfinite(value)  # math.isfinite overflows for large integers


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
    """Refuse what is not a finite number (an integer if `whole`) and `legal`; `expected` describes legal values.

    Training computes in float32, so a number must be in its range, or in that of float64 if `double`. `context`
    describes the origin of a number that is not the argument itself, such as a schedule.
    """
    if not (is_number(value, whole=whole) and legal(value)):
        raise ValueError(f"{name} must be {expected}, got {context}{shown(value)}.")
    least, most, reason = _WHOLE if whole else _DOUBLE if double else _SINGLE
    if value != 0 and not least <= abs(value) <= most:
        raise ValueError(f"{name} must be {expected}, got {context}{shown(value)}: {reason}.")


def check_seed(name: str, value: Any, expected: str = "an integer", *, least: float = -math.inf) -> None:
    """Refuse what is not a seed of random numbers: any integer of at most 4,000 digits, `least` or above."""
    expected += "" if least == -math.inf else f", {least} or above"
    if not is_number(value, whole=True) or value < least:
        raise ValueError(f"{name} must be {expected}, got {shown(value)}.")
    if abs(int(value)) >= 10**_DIGITS:
        raise ValueError(f"{name} must be {expected} of at most {_DIGITS:,} digits, got {shown(value)}.")


@dataclass(frozen=True)
class In:
    """An interval of numbers; a bound None is infinite. `ends` are its brackets, as in (0, 1].

    >>> 1 in In(0, 1, "(]"), 0 in In(0, 1, "(]")
    (True, False)
    >>> In(0, 1, "(]").spelled(), In(0).spelled(whole=True), In(0).spelled(whole=True, full=True)
    ('float in (0, 1]', 'int >= 0', 'an integer, 0 or above')
    """

    least: float | None = None
    most: float | None = None
    ends: str = "[]"
    double: bool = False  # the number is used in float64 only: it may exceed the range of float32

    def __contains__(self, value: Any) -> bool:
        above = self.least is None or value > self.least or (value == self.least and self.ends[0] == "[")
        return above and (self.most is None or value < self.most or (value == self.most and self.ends[1] == "]"))

    def __str__(self) -> str:
        if self.most is not None:
            low = "-inf" if self.least is None else f"{self.least:g}"
            return f"in {self.ends[0]}{low}, {self.most:g}{self.ends[1]}"
        return "" if self.least is None else f"{'>' if self.ends[0] == '(' else '>='} {self.least:g}"

    def spelled(self, *, whole: bool = False, full: bool = False) -> str:
        """Its description in a docstring, or the longer one of a message if `full`."""
        if not full:
            return f"{'int' if whole else 'float'} {self}".rstrip()
        noun = "an integer" if whole else "a number"
        if self.most is not None or self.least is None:
            return f"{noun} {self}".rstrip()
        return f"{noun} above {self.least:g}" if self.ends[0] == "(" else f"{noun}, {self.least:g} or above"

    def check(self, name: str, value: Any, expected: str = "", *, whole: bool = False, context: str = "") -> None:
        """Refuse what is not a number in the interval; `expected` describes legal values, by default the interval."""
        expected = expected or self.spelled(whole=whole, full=True)
        check_number(name, value, expected, self.__contains__, whole=whole, double=self.double, context=context)


class Position(In):
    """A position in a run: a step, or a share of the run."""

    def __contains__(self, value: Any) -> bool:
        return value in In(0) if isinstance(value, Integral) else value in In(0, 1)

    def __str__(self) -> str:
        return "step >= 0 or share in [0, 1]"

    def spelled(self, *, whole: bool = False, full: bool = False) -> str:
        step, share = In(0).spelled(whole=True, full=full), In(0, 1).spelled(full=full)
        return f"a step ({step}) or a share of the run ({share})"


class Seed(In):
    """Any integer, however large."""

    def check(self, name: str, value: Any, expected: str = "", *, whole: bool = False, context: str = "") -> None:
        check_seed(name, value, expected)


POSITIVE = In(0, None, "()")


class OneOf:
    """Choices: strings, or numbers outside of the range.

    >>> "cv" in OneOf("cv"), True in OneOf(0, 1)
    (True, False)
    """

    def __init__(self, *choices: str | float) -> None:
        self.choices = choices

    def __contains__(self, value: Any) -> bool:
        return (isinstance(value, str) or is_number(value)) and value in self.choices

    def __str__(self) -> str:
        return ", ".join(map(str, self.choices))


class Note(NamedTuple):
    """Text that a message adds to the type and the range: the meaning of a value, or a value that would work."""

    text: str


def a_type(value: Any) -> str:
    """The type of a value with its article; of a class its name.

    >>> a_type(3), a_type("x"), a_type(bool)
    ('an int', 'a str', 'the class bool')
    """
    if isinstance(value, type):
        return f"the class {value.__name__}"
    name = type(value).__name__
    return f"{'an' if name[0].lower() in 'aeio' else 'a'} {name}"


def shown(value: Any) -> str:
    """The repr of a value for a message; of a very long integer its number of digits.

    >>> shown(10**400), shown(-(10**30)), shown("x")
    ('an integer of about 400 digits', '-1000000000000000000000000000000', "'x'")
    """
    if isinstance(value, int) and abs(value) >= 10**40:
        return f"an integer of about {int(value.bit_length() * math.log10(2))} digits"
    try:
        return repr(value)
    except ValueError:  # Python converts no integer of more than 4,300 digits to a string, not even within a list
        return f"a {type(value).__name__} that holds a very long integer"


_UNITS = ("kB", "MB", "GB", "TB", "PB", "EB")
_MOST = 1e24  # bytes; of more only that they are more
_CGROUP = Path("/sys/fs/cgroup")


def memory(device: torch.device | None = None, cgroup: Path = _CGROUP) -> float:
    """Total memory of a device in bytes; of the machine at most the limit of its cgroup; infinite if it is unknown."""
    if device is not None and device.type == "cuda":
        import torch

        return float(torch.cuda.mem_get_info(device)[1])
    try:
        found = float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):  # not available on every system
        return math.inf
    return min(found, *(granted for granted, _ in _groups(cgroup)))


def free_memory(proc: Path = Path("/proc/meminfo"), cgroup: Path = _CGROUP) -> float:
    """Free memory in bytes, of the machine or within the limit of its cgroup; infinite if it is unknown."""
    left = [1024 * int(line.split()[1]) for line in _lines(proc) if line.startswith("MemAvailable:")]
    return min(math.inf, *left, *(max(0.0, granted - taken) for granted, taken in _groups(cgroup)))


def _groups(cgroup: Path) -> list[tuple[float, float]]:
    """(limit, used) in bytes of the cgroup, of version 2 and 1; (inf, 0) is always one of them."""
    v1 = cgroup / "memory"
    found = [(math.inf, 0.0)]
    for folder, limit, used in (
        (cgroup, "memory.max", "memory.current"),
        (v1, "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        most, now = ("".join(_lines(folder / name)) for name in (limit, used))
        if most.isdigit():
            files = sum(int(x.split()[1]) for x in _lines(folder / "memory.stat") if x.startswith("inactive_file "))
            taken = max(0, int(now) - files) if now.isdigit() else 0  # the kernel frees cached pages of files on demand
            found.append((float(most), float(taken)))
    return found


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


def check_room(numbers: float, sizes: Mapping[str, Any], what: str, device: torch.device | None = None) -> None:
    """Refuse what needs more than the total memory for `numbers` values of float32; the message names `sizes`.

    >>> check_room(4e18, {"n": 10**18}, "samples")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    ValueError: n=1000000000000000000 would take 16 EB of memory or more for samples; there are ...
    """
    there = memory(device)
    if 4 * numbers > there:
        named = ", ".join(f"{name}={shown(value)}" for name, value in sizes.items())
        raise ValueError(
            f"{named} would take {amount(4 * numbers)} of memory or more for {what}; there are {amount(there)}: "
            "ask for less."
        )


def amount(size: float) -> str:
    """A number of bytes with its unit.

    >>> amount(700), amount(5_300_000), amount(8e21), amount(10**400)
    ('700 bytes', '5.3 MB', '8,000 EB', 'over 1,000,000 EB')
    """
    if size > _MOST:
        return f"over {amount(_MOST)}"
    if size < 1000:
        return f"{size:.0f} bytes"
    unit = min(len(_UNITS), int(math.log10(size) // 3))
    number = size / 1000**unit
    return f"{number:.3g} {_UNITS[unit - 1]}" if number < 1000 else f"{number:,.0f} {_UNITS[unit - 1]}"
