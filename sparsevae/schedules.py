"""Schedules: step -> value, for any named knob (a term's weight, a gate's sharpness, the learning rate).

A `Controller` is a schedule that also looks at what every report measures, with a state that checkpoints hold.

Positions in a run are given in steps (int) or as a share of the run (float in [0, 1]): `end=10_000`, `end=0.5`.
A schedule reaches its last value exactly and keeps it. All its values lie between the least and the greatest of its
`ends()`, however long the run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any

from sparsevae.checks import POSITIVE, In, check_number, is_number, shown

__all__ = [
    "Constant",
    "Controller",
    "Cosine",
    "Cyclical",
    "Exponential",
    "KeepMean",
    "Linear",
    "Schedule",
    "Step",
]

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


class Controller:
    """A knob's value as a function of what a run measures, anew at every report.

    `measure` names a number of the reports: a term, active_units, nonzeros, validation_loss or p_on (the mean over
    units and some training rows). A state is made of plain numbers, lists and dicts, and is never changed in place.
    """

    measure: str

    def __call__(self, step: int, total: int) -> float:
        """The value before the first report."""
        raise NotImplementedError

    def start(self) -> Any:
        """The state before the first report."""
        raise NotImplementedError

    def update(self, state: Any, measured: Mapping[str, float], step: int, total: int) -> tuple[float, Any]:
        """The value from this report on, and the next state."""
        raise NotImplementedError


@dataclass(frozen=True)
class KeepMean(Controller):
    r"""Keep a measured mean m at a target m*, by a knob v > 0 whose rise makes m fall (gains below 0: rise).

    Proportional-integral control of log v: with e = (m - m*) / abs(m*) at each report, s is the sum of integral e, and
    v = first exp(s + proportional e). Both first exp(s) and v stay within `lowest` and `highest`. A mean that is not
    finite counts as the target.

    >>> keep = KeepMean("p_on", 0.1, proportional=0.0, integral=0.5)
    >>> value, state = keep.update(keep.start(), {"p_on": 0.3}, 100, 1000)
    >>> round(value, 3), round(keep.update(state, {"p_on": 0.1}, 200, 1000)[0], 3)
    (2.718, 2.718)
    """

    measure: str
    target: float
    first: float = 1.0
    lowest: float = 0.01
    highest: float = 100.0
    proportional: float = 1.0
    integral: float = 0.2

    def __post_init__(self) -> None:
        if not isinstance(self.measure, str):
            raise ValueError(f"measure must name a number of the reports, such as 'p_on', got {self.measure!r}.")
        check_number("target", self.target, "a number other than 0", lambda m: m != 0)
        POSITIVE.check("lowest", self.lowest)
        In(self.lowest).check("highest", self.highest, "a number, lowest or above")
        In(self.lowest, self.highest).check("first", self.first, "from lowest to highest")
        for gain in ("proportional", "integral"):
            In(double=True).check(gain, getattr(self, gain))

    def __call__(self, step: int, total: int) -> float:
        return self.first

    def ends(self) -> tuple[float, ...]:
        return self.lowest, self.highest

    def start(self) -> float:
        return 0.0

    def update(self, state: float, measured: Mapping[str, float], step: int, total: int) -> tuple[float, float]:
        error = (measured[self.measure] - self.target) / abs(self.target)
        error = error if math.isfinite(error) else 0.0
        low, high = math.log(self.lowest / self.first), math.log(self.highest / self.first)
        state = min(max(state + self.integral * error, low), high)
        return self.first * math.exp(min(max(state + self.proportional * error, low), high)), state


SCHEDULES: dict[str, type] = {c.__name__: c for c in (Constant, Cosine, Cyclical, Exponential, KeepMean, Linear, Step)}
"""All kinds of schedules by name."""
