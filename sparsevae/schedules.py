"""Schedules: step -> value, for any named knob (the weight of a term, the sharpness of a gate, the learning rate).

A `Controller` is a schedule whose value also depends on the numbers of each report; its state is part of checkpoints.

Positions in a run are steps (int) or a share of the run (float in [0, 1]): `end=10_000`, `end=0.5`. A schedule reaches
its last value exactly and keeps it. For runs of any length, all values lie between the smallest and the largest of
`ends()`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any

from sparsevae.checks import POSITIVE, In, check_number, is_number, shown

Schedule = Callable[[int, int], float]
"""(step, total steps) -> value."""


def steps_at(position: int | float, total: int) -> float:
    """A position in a run of `total` steps, in steps."""
    return int(position) if isinstance(position, Integral) else position * total


def _check_position(position: int | float) -> None:
    if not (is_number(position) and (isinstance(position, Integral) or 0 <= position <= 1)):
        raise ValueError(f"a position is a step (int) or a share of the run (float in [0, 1]); got {shown(position)}.")


def _check_span(begin: int | float, end: int | float) -> None:
    """Raise ValueError unless both are positions with begin <= end; a step and a share cannot be compared here."""
    _check_position(begin)
    _check_position(end)
    if isinstance(begin, Integral) == isinstance(end, Integral) and begin > end:
        raise ValueError(f"end must not come before begin; got begin={begin!r} and end={end!r}.")


def _progress(step: int, total: int, begin: int | float, end: int | float) -> float:
    """How far `step` is between begin and end, in [0, 1]."""
    first, last = steps_at(begin, total), steps_at(end, total)
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
class _Ramp:
    """From start at position begin to stop at position end."""

    start: float
    stop: float
    begin: int | float = 0
    end: int | float = 1.0

    def __post_init__(self) -> None:
        _check_span(self.begin, self.end)

    def ends(self) -> tuple[float, ...]:
        return self.start, self.stop


class Linear(_Ramp):
    """From start to stop in a straight line between begin and end: a warm-up or an annealing.

    >>> ramp = Linear(0.0, 1.0, end=100)
    >>> [ramp(step, 1000) for step in (0, 50, 100, 999)]
    [0.0, 0.5, 1.0, 1.0]
    """

    def __call__(self, step: int, total: int) -> float:
        t = _progress(step, total, self.begin, self.end)
        return self.stop if t == 1 else self.start + t * (self.stop - self.start)


@dataclass(frozen=True)
class Cosine(_Ramp):
    """From start to stop along half a cosine between begin and end."""

    stop: float = 0.0

    def __call__(self, step: int, total: int) -> float:
        t = _progress(step, total, self.begin, self.end)
        return self.stop if t == 1 else self.stop + (self.start - self.stop) * 0.5 * (1 + math.cos(math.pi * t))


@dataclass(frozen=True)
class Exponential:
    """start e^(-rate step), at least `floor`, updated every `every` steps: the annealing of temperatures in Jang et al.

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
        """The first value, and the limit for an infinite run; infinite for a negative rate."""
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
        return self.after if step >= steps_at(self.at, total) else self.before

    def ends(self) -> tuple[float, ...]:
        return self.before, self.after


@dataclass(frozen=True)
class Cyclical:
    """`cycles` equal cycles: a straight line from start to stop over the share `ramp`, then constant at stop."""

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
    """A schedule whose value is computed at every report from a number that the report measures.

    `measure` is the name of that number: a term, active_units, nonzeros, used, validation_loss or p_on (the mean over
    units and some training rows). A state consists of numbers, lists and dicts, and is never changed in place.
    """

    measure: str

    def __call__(self, step: int, total: int) -> float:
        """The value before the first report."""
        raise NotImplementedError

    def start(self) -> Any:
        """The state before the first report."""
        raise NotImplementedError

    def update(self, state: Any, measured: Mapping[str, float], step: int, total: int) -> tuple[float, Any]:
        """Return the value from this report on, and the next state."""
        raise NotImplementedError


@dataclass(frozen=True)
class KeepMean(Controller):
    r"""Keep a measured mean m at a target m* by a knob v > 0; m must fall as v rises (with gains below 0: rise).

    Proportional-integral control of log v: with e = (m - m*) / abs(m*) at each report, s is the sum of integral e, and
    v = first exp(s + proportional e). Both first exp(s) and v are clipped to [lowest, highest]. A mean that is not
    finite is treated as equal to the target.

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
            raise ValueError(f"measure must be the name of a reported number, such as 'p_on', got {self.measure!r}.")
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
"""All classes of schedules by name."""
