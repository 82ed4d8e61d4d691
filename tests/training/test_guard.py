"""Guards of a traced step: changed attributes are named and restored, and a step that differs is taken eagerly."""

from __future__ import annotations

import itertools
import math
import random
import re
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import sparsevae as sv
from sparsevae.inputs.rows import Host
from sparsevae.latent.objective import Objective, kl, nll
from sparsevae.training import accelerate
from sparsevae.training.loop import Watch, fit
from sparsevae.training.replay.guard import Guard

pytestmark = pytest.mark.filterwarnings("ignore::sparsevae.SparsityWarning")

X = np.random.default_rng(0).random((60, 6)).astype(np.float32)
COUNT, SWITCH = 0, [False]


def outside() -> int:
    """A count that no method of a module names."""
    global COUNT
    COUNT += 1
    return COUNT


def switched() -> bool:
    return SWITCH[0]


class Own(nn.Module):
    """A user's own encoder, twice as large where its Python says so."""

    COUNT = 0

    def __init__(self, after: int = 5) -> None:
        super().__init__()
        self.body, self.after = nn.Linear(6, 5), after
        self.body.weight.data.copy_(torch.arange(30.0).view(5, 6) / 30)
        self.body.bias.data.zero_()

    def late(self) -> bool:
        return False

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = self.body(x)
        return 2 * hidden if self.late() else hidden


class Counting(Own):
    calls = 0

    def late(self) -> bool:
        self.calls += 1
        return self.calls > self.after


class Listing(Own):
    def __init__(self, after: int = 5) -> None:
        super().__init__(after)
        self.inputs = {"seen": list[int]()}

    def late(self) -> bool:
        self.inputs["seen"].append(1)
        return len(self.inputs["seen"]) > self.after


class Averaging(Own):
    mean = 0.0

    def late(self) -> bool:
        self.mean = 0.9 * self.mean + 0.1
        return self.mean > 0.5


class OfItsClass(Own):
    def late(self) -> bool:
        OfItsClass.COUNT += 1
        return self.after < OfItsClass.COUNT


class OfItsFile(Own):
    def late(self) -> bool:
        global COUNT
        COUNT += 1
        return self.after < COUNT


class OfAnotherFunction(Own):
    def late(self) -> bool:
        return outside() > self.after


class Switched(Own):
    """A variable of another function's, which a user's own code may change at a report."""

    def late(self) -> bool:
        return switched()


class Rebinding(Own):
    """A buffer that is another tensor after each call."""

    calls: Tensor

    def __init__(self, after: int = 5) -> None:
        super().__init__(after)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls = self.calls + 1
        return super().forward(x) * (1 + self.calls / 1000)


CHANGING: dict[str, tuple[type[Own], str]] = {
    "a counter": (Counting, r"model\.encoder\.0\.calls \(from \d+ to \d+\)"),
    "a list that grows": (Listing, r"model\.encoder\.0\.inputs \(from {'seen': \["),
    "a float": (Averaging, r"model\.encoder\.0\.mean \(from 0\.\d+ to 0\.\d+\)"),
    "a global": (OfItsFile, r"a method of a module assigns \S*test_guard\.COUNT, and"),
    "a buffer that is made anew": (Rebinding, r"model\.encoder\.0\.calls \(from tensor\(\d\.\) to tensor\(\d\.\)\)"),
}


@pytest.fixture(autouse=True)
def anew() -> None:
    """Every run may be traced, and counts start at 0."""
    global COUNT
    COUNT = OfItsClass.COUNT = 0
    SWITCH[0] = False


def trained(own: nn.Module, *, watch: Watch | None = None, **settings: Any) -> Any:
    run = {"steps": 40, "batch_size": 20, "report_every": 4, "verbose": 0, "device": "cpu"} | settings
    return sv.VSC(3, hidden=(5,), encoder=own, training=sv.Training(**run)).fit(X, watch=watch)


def same(a: Any, b: Any) -> bool:
    ours, theirs = a.model_.state_dict(), b.model_.state_dict()
    return list(a.history_) == list(b.history_) and all(torch.equal(ours[k], theirs[k]) for k in ours | theirs)


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accelerate, "LONG", 1)


@pytest.mark.parametrize("name", CHANGING)
def test_what_a_step_changes_is_named_and_the_run_is_an_eager_one(traced: None, name: str) -> None:
    global COUNT
    kind, message = CHANGING[name]
    eager = trained(kind(), compile=False)
    count, COUNT = COUNT, 0
    with pytest.warns(RuntimeWarning) as found:
        other = trained(kind())
    assert len(found) == 1
    assert found[0].filename == __file__
    text = str(found[0].message)
    assert text.startswith("the step cannot be traced: a ")
    assert "The run goes on with eager steps. Training(compile=False)" in text
    assert re.search(message, text)
    assert same(eager, other)
    assert count == COUNT
    mine, theirs = vars(eager.model_.encoder[0]), vars(other.model_.encoder[0])
    assert {k: v for k, v in mine.items() if k[0] != "_"} == {k: v for k, v in theirs.items() if k[0] != "_"}


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Counting, OfItsFile])
def test_a_count_that_matters_from_call_5001_on_is_noticed_before_the_first_step(kind: type[Own]) -> None:
    global COUNT
    eager = trained(kind(5_000), steps=5_040, report_every=None, compile=False)
    COUNT = 0
    with pytest.warns(RuntimeWarning, match=r"cannot be traced: .*(calls \(from \d+ to \d+\)|assigns .*COUNT)"):
        other = trained(kind(5_000), steps=5_040, report_every=None)
    assert same(eager, other)


def test_a_step_that_differs_at_a_report_is_taken_again_eagerly_from_the_report_before(traced: None) -> None:
    """A user's own function switches at a report what no guard looks at: the weights are those of an eager run."""

    def switch(row: Any) -> None:
        SWITCH[0] = row["step"] >= 12

    eager = trained(Switched(), watch=switch, compile=False)
    plain = trained(Switched(), compile=False)
    assert not same(eager, plain)
    SWITCH[0] = False
    with pytest.warns(RuntimeWarning) as found:
        other = trained(Switched(), watch=switch)
    assert len(found) == 1
    assert re.match(
        r"by step 16 the traced step differs: the term 'loss' is \S+ eagerly and \S+ traced. The run goes back to its "
        r"last report, and on with eager steps. Training\(compile=False\)",
        str(found[0].message),
    )
    assert same(eager, other)


@pytest.mark.parametrize("kind", [OfItsClass, OfAnotherFunction])
def test_a_count_that_no_attribute_has_is_warned_of_once_it_changes_numbers(traced: None, kind: type[Own]) -> None:
    """Eager calls at reports count too."""
    with pytest.warns(RuntimeWarning, match="the traced step differs: the term 'loss'") as found:
        trained(kind(20))
    assert len(found) == 1


def test_a_gradient_that_differs_is_named(traced: None, monkeypatch: pytest.MonkeyPatch) -> None:
    repeat = accelerate.Graph.repeat

    def other(self: Any, *batch: Tensor) -> Any:
        terms, gradients = repeat(self, *batch)
        return terms, [*gradients[:-1], gradients[-1] + 1]

    monkeypatch.setattr(accelerate.Graph, "repeat", other)
    with pytest.warns(
        RuntimeWarning, match=r"traced: when traced it differs: the gradient of decoder\.linear\.bias\. "
    ):
        trained(Own())


def test_numbers_that_are_not_finite_are_compared_too() -> None:
    nan, inf = torch.tensor([1.0, math.nan]), torch.tensor([1.0, math.inf])
    assert accelerate._equal(nan, nan.clone())
    assert accelerate._equal(inf, inf.clone())
    assert not accelerate._equal(nan, inf)
    assert not accelerate._equal(inf, -inf)
    assert not accelerate._equal(nan, nan[:1])
    assert accelerate._equal(None, None)
    assert not accelerate._equal(None, nan)


def test_a_term_that_counts_is_found(traced: None) -> None:
    class Term:
        calls = 0

        def __call__(self, trace: Any) -> dict[str, Tensor]:
            self.calls += 1
            return {"own": trace.latents["z"].value.square().sum(-1)}

    model, settings = trained(Own(), compile=False).model_, sv.Training(steps=8, batch_size=20, verbose=0)
    with pytest.warns(RuntimeWarning, match=r"a step changes \S*objective\.terms \(from"):
        fit(model, Objective(nll, kl, Term()), Host(X, torch.device("cpu")), settings)


# -- the guard alone ----------------------------------------------------------------------------------------------


class Stats:
    """Plain attributes."""

    def __init__(self) -> None:
        self.n, self.names = 0, ["a"]


class Holder(nn.Module):
    """One value, and what a call does to it."""

    def __init__(self, value: Any, action: Callable[[Any], object]) -> None:
        super().__init__()
        self.value, self.action = value, action
        self.register_buffer("buffer", torch.zeros(2), persistent=False)
        self.lock = threading.Lock()

    def forward(self) -> None:
        self.action(self)


ACTIONS: dict[str, tuple[Callable[[], Any], Callable[[Any], object], bool]] = {
    "a number": (lambda: 1, lambda m: setattr(m, "value", m.value + 1), True),
    "NaN stays NaN": (lambda: math.nan, lambda m: setattr(m, "value", float("nan")), False),
    "a list": (lambda: [1], lambda m: m.value.append(2), True),
    "a dict of lists": (lambda: {"a": [1]}, lambda m: m.value["a"].append(2), True),
    "a set": (lambda: {1}, lambda m: m.value.add(2), True),
    "a deque": (lambda: deque([1], 3), lambda m: m.value.append(2), True),
    "an iterator": (lambda: itertools.count(3), lambda m: next(m.value), True),
    "an object": (Stats, lambda m: m.value.names.append("b"), True),
    "an array": (lambda: np.zeros(2), lambda m: m.value.__setitem__(0, 1.0), True),
    "Python's own random numbers": (lambda: random.Random(0), lambda m: m.value.random(), True),
    "a module that is nobody's part": (lambda: [Counting()], lambda m: m.value[0](torch.zeros(1, 6)), True),
    "a new attribute": (lambda: 1, lambda m: setattr(m, "other", 2), True),
    "an attribute that goes": (lambda: 1, lambda m: delattr(m, "value"), True),
    "another lock": (lambda: 1, lambda m: setattr(m, "lock", threading.Lock()), True),
    "another buffer": (lambda: 1, lambda m: setattr(m, "buffer", torch.zeros(2)), True),
    "one more buffer": (lambda: 1, lambda m: m.register_buffer("more", torch.zeros(2)), True),
    "a tensor in its place": (lambda: torch.zeros(2), lambda m: setattr(m, "value", torch.ones(3)), False),
    "numbers of a tensor": (lambda: [torch.zeros(2)], lambda m: m.value[0].add_(1), False),
    "numbers of a buffer": (lambda: 1, lambda m: m.buffer.add_(1), False),
    "a generator": (torch.Generator, lambda m: torch.rand(2, generator=m.value), False),
    "nothing": (lambda: 1, lambda m: None, False),
}


def in_words(value: Any) -> str:
    match value:
        case torch.Generator():
            return str(value.get_state().tolist())
        case random.Random():
            return str(value.getstate())
        case Stats():
            return str(vars(value))
        case [Counting() as inner]:
            return str(inner.calls)
    return repr(value)


def state(m: Any) -> Any:
    """All that a holder has: values in words, tensors of its own by identity too."""
    return {k: in_words(v) for k, v in vars(m).items()}, {k: id(v) for k, v in m._buffers.items()}


@pytest.mark.parametrize("name", ACTIONS)
def test_what_is_changed_is_found_and_undone(name: str) -> None:
    make, action, found = ACTIONS[name]
    module = Holder(make(), action)
    guard, before = Guard({"part": module}), state(module)
    random_state = torch.get_rng_state()
    for _ in range(2):
        with guard.watch() as changed:
            module()
            torch.rand(1)
        assert bool(changed) == found
        assert all(text.startswith("part.") for text in changed)
        assert state(module) == before
    assert torch.equal(torch.get_rng_state(), random_state)


def test_what_is_written_to_tensors_is_shown_and_undone() -> None:
    module = Holder(torch.zeros(2), lambda m: (m.value.add_(1), m.buffer.add_(2)))
    guard = Guard({"part": module})
    with guard.watch():
        pass
    with guard.preserve_tensors() as written:
        module()
    assert {name: t.tolist() for name, t in written.items()} == {"part.value": [1, 1], "part.buffer": [2, 2]}
    assert module.value.tolist() == module.buffer.tolist() == [0, 0]


def test_a_change_is_described_by_both_values() -> None:
    def both(m: Any) -> None:
        m.value.append(2)
        m.other = "y" * 100
        del m.lock

    module = Holder([1], both)
    with Guard({"part": module}).watch() as changed:
        module()
    lock, other, value = sorted(changed)
    assert re.fullmatch(r"part\.lock \(from <.*lock.*> to nothing\)", lock)
    assert re.fullmatch(r"part\.other \(from nothing to 'y{10,20}\.\.\.y{10,20}'\)", other)
    assert value == "part.value (from [1] to [1, 2])"


def test_an_object_of_two_modules_stays_one_when_it_is_restored() -> None:
    shared = [1]
    first, second = (Holder(shared, lambda m: m.value.append(2)) for _ in range(2))
    with Guard({"a": first, "b": second}).watch() as changed:
        first()
    assert len(changed) == 2
    assert first.value == [1]
    assert first.value is second.value


def test_an_error_leaves_things_as_they_were() -> None:
    module = Holder([1], lambda m: (m.value.append(2), m.buffer.add_(1), 1 / 0))
    guard, before = Guard({"part": module}), state(module)
    with pytest.raises(ZeroDivisionError), guard.watch():
        module()
    assert state(module) == before
