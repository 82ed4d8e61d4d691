"""Schedules: step -> value, for any named knob (a term's weight, a gate's sharpness, the learning rate).

Positions in a run are given in steps (int) or as a share of the run (float in [0, 1]): `end=10_000`, `end=0.5`.
A schedule reaches its last value exactly and keeps it. All its values lie between the least and the greatest of its
`ends()`, however long the run.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral

from sparsevae.checks import POSITIVE, In, is_number, shown

__all__ = ["Constant", "Cosine", "Cyclical", "Exponential", "Linear", "Schedule", "Step"]

Schedule = Callable[[int, int], float]
"""(step, total steps) -> value."""


def _steps(position: int | float, total: int) -> float:
    return int(position) if isinstance(position, Integral) else position * total


def _check_position(position: int | float) -> None:
    if not (is_number(position) and (isinstance(position, Integral) or 0 <= position <= 1)):
        raise ValueError(f"a position is a step (int) or a share of the run (float in [0, 1]); got {shown(position)}.")


def _check_span(begin: int | float, end: int | float) -> None:
    """Refuse what is no position, and a ramp that ends before it begins: of a step and a share only a run can tell."""
    _check_position(begin)
    _check_position(end)
    alike = all(isinstance(p, Integral) for p in (begin, end)) or all(isinstance(p, float) for p in (begin, end))
    if alike and begin > end:
        raise ValueError(f"end must not come before begin; got begin={begin!r} and end={end!r}.")


def _progress(step: int, total: int, begin: int | float, end: int | float) -> float:
    """How far `step` is between begin and end, in [0, 1]."""
    first, last = _steps(begin, total), _steps(end, total)
    if step >= last:
        return 1.0
    return 0.0 if step <= first else (step - first) / (last - first)


@dataclass(frozen=True)
class Constant:
    """The same value throughout."""

    value: float

    def __call__(self, step: int, total: int) -> float:
        return self.value

    def ends(self) -> tuple[float, ...]:
        return (self.value,)


@dataclass(frozen=True)
class Linear:
    """From start to stop in a straight line between begin and end: a warm-up or an annealing.

    >>> ramp = Linear(0.0, 1.0, end=100)
    >>> [ramp(step, 1000) for step in (0, 50, 100, 999)]
    [0.0, 0.5, 1.0, 1.0]
    """

    start: float
    stop: float
    begin: int | float = 0
    end: int | float = 1.0

    def __post_init__(self) -> None:
        _check_span(self.begin, self.end)

    def __call__(self, step: int, total: int) -> float:
        t = _progress(step, total, self.begin, self.end)
        return self.stop if t == 1 else self.start + t * (self.stop - self.start)

    def ends(self) -> tuple[float, ...]:
        return self.start, self.stop


@dataclass(frozen=True)
class Cosine:
    """From start to stop along half a cosine."""

    start: float
    stop: float = 0.0
    begin: int | float = 0
    end: int | float = 1.0

    def __post_init__(self) -> None:
        _check_span(self.begin, self.end)

    def __call__(self, step: int, total: int) -> float:
        t = _progress(step, total, self.begin, self.end)
        return self.stop if t == 1 else self.stop + (self.start - self.stop) * 0.5 * (1 + math.cos(math.pi * t))

    def ends(self) -> tuple[float, ...]:
        return self.start, self.stop


@dataclass(frozen=True)
class Exponential:
    """start e^(-rate step), never below `floor`, held for `every` steps: how temperatures fall in Jang et al.

    >>> cooling = Exponential(1.0, 1e-3, floor=0.5)
    >>> [round(cooling(step, 10_000), 3) for step in (0, 100, 5000)]
    [1.0, 0.905, 0.5]
    """

    start: float
    rate: float
    floor: float = 0.0
    every: int = 1

    def __post_init__(self) -> None:
        POSITIVE.check("every", self.every, whole=True)

    def __call__(self, step: int, total: int) -> float:
        start = step - step % self.every
        return max(self.floor, self.start * math.exp(-self.rate * start))

    def ends(self) -> tuple[float, ...]:
        """The first value, and the one that a run without end comes to; a negative rate leads beyond all bounds."""
        far = self.start * math.exp(-math.inf * self.rate) if self.rate else self.start
        return max(self.floor, self.start), max(self.floor, far)


@dataclass(frozen=True)
class Step:
    """`before` until position `at`, `after` from there on."""

    before: float
    after: float
    at: int | float = 0.5

    def __post_init__(self) -> None:
        _check_position(self.at)

    def __call__(self, step: int, total: int) -> float:
        return self.after if step >= _steps(self.at, total) else self.before

    def ends(self) -> tuple[float, ...]:
        return self.before, self.after


@dataclass(frozen=True)
class Cyclical:
    """`cycles` equal cycles, each a straight ramp over its first `ramp` share and then flat at stop."""

    start: float
    stop: float
    cycles: int = 4
    ramp: float = 0.5

    def __post_init__(self) -> None:
        POSITIVE.check("cycles", self.cycles, whole=True)
        In(0, 1, double=True).check("ramp", self.ramp)

    def __call__(self, step: int, total: int) -> float:
        if step >= total:
            return self.stop
        t = (step * self.cycles / total) % 1
        return self.stop if t >= self.ramp else self.start + t / self.ramp * (self.stop - self.start)

    def ends(self) -> tuple[float, ...]:
        return self.start, self.stop


SCHEDULES: dict[str, type] = {c.__name__: c for c in (Constant, Cosine, Cyclical, Exponential, Linear, Step)}
"""All kinds of schedules by name."""
