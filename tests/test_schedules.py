"""Schedules: ends are exact, positions are steps or shares, nothing leaves its range."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparsevae.checks import POSITIVE, OneOf
from sparsevae.parameters import check_value
from sparsevae.schedules import Constant, Cosine, Cyclical, Exponential, Linear, Schedule, Step
from sparsevae.training.settings import _DECAYS, Training

VALUES = st.floats(-1e3, 1e3)
TOTALS = st.integers(1, 10_000)
quick = settings(max_examples=100, deadline=None, derandomize=True)


@quick
@given(VALUES, VALUES, TOTALS, st.integers(0, 20_000))
def test_the_last_value_is_reached_exactly_and_kept(start: float, stop: float, total: int, late: int) -> None:
    for schedule in (Linear(start, stop), Cosine(start, stop), Step(start, stop), Cyclical(start, stop)):
        assert schedule(total, total) == stop
        assert schedule(total + late, total) == stop
    for end in (total // 2, 0.3):
        position = end if isinstance(end, int) else math.ceil(end * total)
        assert Linear(start, stop, end=end)(position + late, total) == stop
        assert Cosine(start, stop, end=end)(position + late, total) == stop


@quick
@given(VALUES, VALUES, TOTALS, st.integers(0, 20_000), st.floats(0, 1), st.floats(0, 1))
def test_no_schedule_leaves_its_range(start: float, stop: float, total: int, step: int, a: float, b: float) -> None:
    low, high = min(start, stop), max(start, stop)
    a, b = min(a, b), max(a, b)
    slack = 1e-12 * max(1.0, abs(low), abs(high))
    for schedule in (
        Linear(start, stop, a, b),
        Cosine(start, stop, a, b),
        Linear(start, stop, int(a * total), int(b * total)),
        Step(start, stop, a),
        Cyclical(start, stop, 3, a),
        Constant(start),
    ):
        assert low - slack <= schedule(step, total) <= high + slack


@quick
@given(st.integers(1, 1000), st.integers(1, 100))
def test_shares_and_steps_name_the_same_place(quarter: int, step: int) -> None:
    total = 4 * quarter
    for share, at in ((0.25, quarter), (0.5, 2 * quarter), (1.0, total)):
        for s in (step, at - 1, at, at + 1):
            assert Linear(2.0, 7.0, end=share)(s, total) == Linear(2.0, 7.0, end=at)(s, total)
            assert Step(2.0, 7.0, share)(s, total) == Step(2.0, 7.0, at)(s, total)


def test_an_int_is_a_step_and_a_float_a_share() -> None:
    assert Linear(0.0, 1.0, end=1)(1, 100) == 1.0  # after one step
    assert Linear(0.0, 1.0, end=1.0)(1, 100) == 0.01  # after the whole run
    assert Linear(0.0, 1.0, end=np.int64(10))(5, 100) == 0.5
    for bad in (2000.0, -0.5, math.nan):  # "2000.0" would silently mean 2,000 runs
        with pytest.raises(ValueError, match="share of the run"):
            Linear(0.0, 1.0, end=bad)(0, 100)


def test_linear_by_hand() -> None:
    ramp = Linear(1.0, 3.0, begin=10, end=20)
    assert [ramp(s, 100) for s in (0, 10, 15, 20, 99)] == [1.0, 1.0, 2.0, 3.0, 3.0]


def test_a_ramp_of_no_length_is_a_step() -> None:
    for schedule in (Linear(0.0, 1.0, 50, 50), Cosine(0.0, 1.0, 50, 50), Linear(0.0, 1.0, 80, 0.5)):
        assert [schedule(s, 100) for s in (0, 49, 50, 51)] == [0.0, 0.0, 1.0, 1.0]
    assert Linear(0.0, 1.0, end=0)(0, 100) == 1.0


@pytest.mark.parametrize("ramp", [Linear, Cosine])
@pytest.mark.parametrize(("begin", "end"), [(8, 3), (0.8, 0.3), (np.int64(8), 3)])
def test_a_ramp_that_ends_before_it_begins_is_refused(ramp: type, begin: float, end: float) -> None:
    with pytest.raises(ValueError, match=r"end must not come before begin; got begin=.*8.* and end=.*3"):
        ramp(0.0, 1.0, begin=begin, end=end)


@pytest.mark.parametrize("cycles", [0, -1, 1.5, True, "2"])
def test_cycles_are_counted(cycles: object) -> None:
    with pytest.raises(ValueError, match="cycles must be an integer above 0, got"):
        Cyclical(0.0, 1.0, cycles=cycles)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="every must be an integer above 0, got"):
        Exponential(1.0, 0.1, every=cycles)  # type: ignore[arg-type]


@pytest.mark.parametrize("ramp", [2, -1, math.nan, "half"])
def test_the_ramp_of_a_cycle_is_a_share(ramp: object) -> None:
    with pytest.raises(ValueError, match=r"ramp must be a number in \[0, 1\], got"):
        Cyclical(0.0, 1.0, ramp=ramp)  # type: ignore[arg-type]


def test_a_function_is_refused_before_anything_starts() -> None:
    with pytest.raises(ValueError, match=r"\['kl_z'\] must be a schedule \(Constant, .*functions.*\), got <function"):
        Training(schedules={"kl_z": lambda step, total: 1.0}).validate()


def test_cosine_by_hand() -> None:
    course = Cosine(2.0, 0.0)
    assert [course(s, 100) for s in (0, 50, 100)] == pytest.approx([2.0, 1.0, 0.0])
    assert course(25, 100) == pytest.approx(1 + math.cos(math.pi / 4))
    values = [course(s, 100) for s in range(101)]
    assert values == sorted(values, reverse=True)


def test_step_by_hand() -> None:
    assert [Step(1.0, 0.1, at=30)(s, 100) for s in (0, 29, 30, 99)] == [1.0, 1.0, 0.1, 0.1]
    assert [Step(1.0, 0.1)(s, 100) for s in (49, 50)] == [1.0, 0.1]


def test_cyclical_by_hand() -> None:
    """Two cycles of 50 steps: up for 25, flat for 25, then down to the start at once."""
    course = Cyclical(0.0, 1.0, cycles=2, ramp=0.5)
    steps = (0, 10, 25, 49, 50, 60, 75, 99, 100)
    assert [course(s, 100) for s in steps] == pytest.approx([0.0, 0.4, 1.0, 1.0, 0.0, 0.4, 1.0, 1.0, 1.0])
    assert [Cyclical(0.0, 1.0, 2, ramp=0.0)(s, 100) for s in (0, 50)] == [1.0, 1.0]
    assert Cyclical(0.0, 1.0, 2, ramp=1.0)(49, 100) == pytest.approx(0.98)


@quick
@given(st.integers(1, 7), st.integers(1, 500), st.integers(0, 499))
def test_cycles_repeat(cycles: int, length: int, step: int) -> None:
    course = Cyclical(0.0, 1.0, cycles, 0.4)
    total = cycles * length
    values = {round(course(step % length + c * length, total), 9) for c in range(cycles)}
    assert len(values) == 1


@pytest.mark.parametrize("decay", _DECAYS)
def test_learning_rates_begin_where_they_should(decay: str) -> None:
    training = Training(learning_rate=3e-4, decay=decay, decay_at=0.25, decay_factor=0.5)
    rate: Schedule = training.rates()
    assert rate(0, 1000) == pytest.approx(3e-4, rel=1e-12)
    assert rate(1000, 1000) == {"constant": 3e-4, "cosine": 0.0, "step": 1.5e-4}[decay]


# -- what a schedule comes to ----------------------------------------------------------------------------------------


@quick
@given(VALUES, VALUES, st.floats(-0.01, 1.0), TOTALS, st.integers(0, 10_000), st.floats(0, 1))
def test_all_values_lie_between_the_ends(a: float, b: float, rate: float, total: int, step: int, at: float) -> None:
    for schedule in (
        Constant(a),
        Linear(a, b, at),
        Cosine(a, b, at),
        Exponential(a, rate, floor=b),
        Step(a, b, at),
        Cyclical(a, b, 3, at),
    ):
        ends = schedule.ends()
        slack = 1e-12 * max(1.0, abs(a), abs(b))
        assert min(ends) - slack <= schedule(step, total) <= max(ends) + slack


@quick
@given(VALUES, VALUES)
def test_the_ends_are_values_that_a_schedule_takes(a: float, b: float) -> None:
    """Wider ones would refuse schedules that never leave what is legal."""
    for schedule in (Constant(a), Linear(a, b), Cosine(a, b), Step(a, b), Cyclical(a, b), Exponential(a, 1e-3, b)):
        first, last, ends = schedule(0, 100), schedule(10**9, 100), schedule.ends()
        assert (ends[0], ends[-1]) == pytest.approx((first, last), rel=1e-9, abs=1e-9)


def test_the_end_of_an_exponential_is_its_floor_and_one_that_grows_has_none() -> None:
    assert Exponential(1.0, 1e-3, floor=0.5).ends() == (1.0, 0.5)
    assert Exponential(1.0, 0.0).ends() == (1.0, 1.0)
    assert Exponential(1.0, -1e-3).ends() == (1.0, math.inf)


@pytest.mark.parametrize(
    "course",
    [
        Constant(-1.0),
        Constant(math.nan),
        Linear(-5.0, -1.0),
        Linear(1.0, 0.0),
        Linear("a", 1.0),  # type: ignore[arg-type]
        Cosine(1.0),
        Exponential(1.0, 1e-3),
        Exponential(1.0, -1e-3, floor=0.5),
        Step(1.0, -1.0),
        Cyclical(0.0, 1.0),
        Linear,
        lambda step, total: 1.0,
        0.0,
        None,
    ],
)
def test_a_course_that_leaves_what_is_legal_is_refused_like_a_number(course: object) -> None:
    with pytest.raises(ValueError, match=r"knob must be a number above 0.* got "):
        check_value("knob", course, float | Schedule, [POSITIVE])


@pytest.mark.parametrize(
    "course", [2, np.float32(0.5), Constant(0.1), Linear(1, 2), Exponential(1.0, 1e-3, floor=0.5), Cosine(1.0, 0.1)]
)
def test_a_course_of_legal_numbers_is_taken(course: object) -> None:
    check_value("knob", course, float | Schedule, [POSITIVE])


def test_the_error_says_where_a_schedule_leads_and_what_else_is_taken() -> None:
    with pytest.raises(ValueError, match=r"^tau must be a number above 0 all along, got Cosine.*, which comes to 0\.0"):
        check_value("tau", Cosine(1.0), float | Schedule | str, [POSITIVE, OneOf("learned")])
    with pytest.raises(ValueError, match=r"a number above 0, a schedule of such numbers or 'learned', got -1\.$"):
        check_value("tau", -1, float | Schedule | str, [POSITIVE, OneOf("learned")])


def test_schedules_are_values() -> None:
    """Equal schedules are equal, and none can be changed behind a run's back."""
    assert Linear(0.0, 1.0) == Linear(0.0, 1.0)
    with pytest.raises(AttributeError):
        Linear(0.0, 1.0).start = 2.0  # type: ignore[misc]


@pytest.mark.parametrize("position", [1.5, -0.1, math.nan, "x", None, True, [1], {}])
@pytest.mark.parametrize(
    "make", [lambda p: Linear(0.0, 1.0, end=p), lambda p: Cosine(1.0, begin=p), lambda p: Step(1.0, 0.1, at=p)]
)
def test_what_is_no_position_is_refused_when_a_schedule_is_made(make: Any, position: Any) -> None:
    with pytest.raises(ValueError, match=r"a position is a step \(int\) or a share of the run .*; got "):
        make(position)
