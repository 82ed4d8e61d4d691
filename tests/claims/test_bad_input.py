"""Claim (Must-show 9): whatever comes in, a good finite result or a clear error before training; never a NaN."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from sklearn.exceptions import NotFittedError
from sklearn.utils import Bunch

import sparsevae as sv
from reproductions.linear import LinearMultiLabel
from sparsevae.checks import In, Note, OneOf, Position, Seed, memory
from sparsevae.inputs.texts import Text
from sparsevae.models import REGISTRY, known
from sparsevae.parameters import Parameter, check_value, documented
from sparsevae.schedules import Schedule

pytestmark = pytest.mark.filterwarnings("ignore::sparsevae.exceptions.SparsityWarning")
MODELS = list(REGISTRY.values())
rng = np.random.default_rng(0)
X = rng.normal(size=(150, 3)) @ rng.normal(size=(3, 6)) + 0.1 * rng.normal(size=(150, 6))


@pytest.fixture
def no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on a step of training is a failure."""

    def never(*args: Any, **kwargs: Any) -> None:
        pytest.fail("training started")

    monkeypatch.setattr("sparsevae.training.step.Run.advance", never)


def make(cls: Any = sv.VSC, *, training: Any = None, **changes: Any) -> Any:
    if training is None or isinstance(training, dict):
        training = sv.Training(**{"steps": 20, "learning_rate": 1e-2, "verbose": 0} | (training or {}))
    return cls(**{"n_components": 4, "hidden": (16,), "training": training} | changes)


@cache
def fitted(cls: Any = sv.VSC, factor: float = 1.0, **training: Any) -> Any:
    """One fit of the factor times X for all tests that only ask it."""
    return make(cls, training=training).fit(factor * X)


def dense(Z: Any) -> np.ndarray:
    return Z.toarray() if sp.issparse(Z) else np.asarray(Z)


def all_finite(est: Any, X: Any) -> bool:
    Z = est.transform(X)
    numbers = [dense(Z), est.score_samples(X), est.inverse_transform(Z), est.sample(20), est.sample(20, noise=True)]
    numbers += [est.history_.column(k) for k in est.history_.names()]
    return all(np.isfinite(np.asarray(n, dtype=np.float64)).all() for n in numbers)


# Data that must work.

images = (rng.random((150, 6)) * 255).astype(np.uint8)
constant = np.column_stack([X, np.full(150, 7.0), np.zeros(150), np.full(150, -1e6)])
rare = np.column_stack([X, np.eye(150)[:, 3] * 1e4])
GOOD: dict[str, np.ndarray] = {
    "uint8 images": images,
    "images as float": images.astype(float),
    "times 100": 100 * X,
    "times 1e6 plus 1e6": 1e6 * X + 1e6,
    "times 1e30": 1e30 * X,
    "times 1e-30": 1e-30 * X,
    "times 1e37": 1e37 * X,
    "denormal": 1e-42 * X,
    "very different columns": X * 10.0 ** np.arange(-12, 12, 4),
    "int64": (1e15 * X).astype(np.int64),
    "float16": X.astype(np.float16),
    "constant columns": constant,
    "only constant columns": np.full((50, 4), 5.0),
    "huge constants": np.full((50, 4), 1e38),
    "zeros": np.zeros((50, 4)),
    "ones": np.ones((50, 4)),
    "a pixel lit once": rare,
    "two rows": X[:2],
    "two equal rows": X[[0, 0]],
    "one column": X[:, :1],
    "numbers as objects": X.astype(object),
    "bool": X > 0,
    "-1 and 1": np.sign(X),
}


HARDEST = ("times 1e30", "denormal", "constant columns", "zeros", "two rows", "-1 and 1")
"""Data that every model meets by default; VAE and VSC meet them all, and the slow tests have every pair."""


@pytest.mark.parametrize(
    ("name", "cls"),
    [
        pytest.param(name, cls, marks=[] if name in HARDEST or cls in (sv.VAE, sv.VSC) else pytest.mark.slow)
        for cls in MODELS
        for name in GOOD
    ],
)
def test_awkward_data_give_finite_results(name: str, cls: Any) -> None:
    steps = 60 if len(GOOD[name]) == 2 else 20  # the loss of two rows is noise for longer
    est = make(cls, training={"steps": steps}).fit(GOOD[name])
    assert all_finite(est, GOOD[name])
    if cls is not sv.MAT or len(GOOD[name]) > 2:  # an MMD of two rows is noise, and counts a hundred times
        assert est.history_[-1]["loss"] <= est.history_[0]["loss"] + 1  # and training went the right way


@pytest.mark.parametrize("factor", [1e-6, 100, 1e6, 1e20])
def test_a_good_result_in_any_units(factor: float) -> None:
    """Data times 100 are no harder: the same reconstruction, up to the units."""
    plain, scaled = fitted(sv.VAE, steps=400), fitted(sv.VAE, factor, steps=400)
    explained = []
    for est, data in ((plain, X), (scaled, factor * X)):
        R = est.inverse_transform(est.transform(data)).astype(np.float64)
        explained.append(1 - ((R - data) ** 2).sum() / ((data - data.mean(0)) ** 2).sum())
    assert explained[0] > 0.85
    assert explained[1] == pytest.approx(explained[0], abs=0.02)


@pytest.mark.parametrize("name", ["uint8 images", "constant columns", "zeros", "two rows", "-1 and 1"])
@pytest.mark.parametrize("settings", [{"scale": "unit-norm"}, {"scale": "none"}, {"likelihood": "fixed-gaussian"}])
def test_other_settings_stay_finite_too(name: str, settings: dict[str, Any]) -> None:
    data = GOOD[name]
    if settings.get("scale") == "none" and name == "constant columns":
        data = data[:, :-1]  # a column of -1e6 is more than anyone can ask for without a scale
    est = make(**settings).fit(data)
    assert all_finite(est, data)


def test_unscaled_on_request_gives_numbers_or_says_why() -> None:
    for factor in (1e2, 1e4, 1e20):
        est = make(scale="none")
        try:
            est.fit(factor * X)
        except sv.DivergenceError as error:
            assert "scale='auto'" in str(error)  # noqa: PT017
            with pytest.raises(NotFittedError):
                est.transform(X)
        else:
            assert all_finite(est, factor * X)


@pytest.mark.parametrize("cls", MODELS)
def test_rows_far_from_the_training_data_get_a_low_score_not_a_nan(cls: Any) -> None:
    est = make(cls).fit(X)
    defaults = est.score(X)
    for factor in (1e2, 1e3, 1e6, 1e10):
        scores = est.score_samples(factor * X)
        assert np.isfinite(scores).all()
        assert scores.max() < defaults
        assert np.isfinite(dense(est.transform(factor * X))).all()
    scores = est.score_samples(1e30 * X)
    assert (scores < -1e9).all()  # minus infinity where float32 ends
    b = est.importance_bound(1e30 * X[:3], n_samples=3)
    assert not np.isnan([b.bound, b.standard_error, b.effective_samples]).any()
    assert np.isnan(b.pareto_k).all()  # three samples have no tail


@pytest.mark.parametrize("cls", [sv.VAE, sv.VSC])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix, sp.csr_array])
def test_rows_beyond_what_the_networks_can_hold_are_refused_by_column(cls: Any, form: Any) -> None:
    est, far = fitted(cls, 0.1), (0.1 * X).astype(np.float32)
    far[7, 3] = -3.4e38  # how some files mark what is missing
    for ask in (est.transform, est.score_samples, est.evaluate, est.posterior_means, est.draw_codes):
        with pytest.raises(ValueError, match=r"column 3 of X lies up to .* too far for the networks' float32"):
            ask(form(far))
    tiny = fitted(cls, 1e-30)
    with pytest.raises(ValueError, match="or other units"):
        tiny.transform(1e10 * X)
    assert np.isfinite(dense(tiny.transform(1e-30 * X))).all()


def test_columns_of_very_different_sizes_are_not_far_from_each_other() -> None:
    wide = X * np.array([1e-30, 1e-10, 1.0, 1e10, 1e30, 1e35])
    est = make(sv.VAE).fit(wide)
    for form in (np.asarray, sp.csr_matrix, sp.csr_array):
        assert np.isfinite(est.transform(form(wide))).all()


def test_eight_bit_values_that_are_divided_twice_or_never_are_told_at_the_users_line() -> None:
    by_hand, ours = make().fit(images / 255.0), make().fit(images)
    with pytest.warns(UserWarning, match="X has 8-bit ones up to 25") as reported:
        by_hand.transform(images)
    assert reported[0].filename == __file__
    with pytest.warns(UserWarning, match="divides by 255 itself") as reported:
        ours.score(images / 255.0)
    assert reported[0].filename == __file__
    make(scale="none", likelihood="gaussian").fit(images).transform(images)  # nobody is warned of what they asked for
    with pytest.warns(UserWarning, match="X has 8-bit ones"):
        make().fit(images > 127).transform(images)


def test_a_masked_array_is_read_without_its_mask_only_where_that_hides_nothing() -> None:
    masked = np.ma.array(X)
    assert np.array_equal(dense(make().fit(masked).transform(masked)), dense(make().fit(X).transform(X)))
    masked[3, 2] = np.ma.masked
    with pytest.raises(ValueError, match="contains NaN"):
        make().fit(masked)


def test_entries_of_a_sparse_matrix_are_checked_as_they_add_up_and_where_they_lie() -> None:
    est = make().fit(X)
    with pytest.raises(ValueError, match=r"contains 6e\+38"):
        est.transform(sp.csr_matrix(([3e38, 3e38], [0, 0], [0, 2]), (1, 6)))
    for place in (-1, 6):
        damaged = sp.csr_matrix(np.ones((1, 6)))
        damaged.indices[2] = place
        with pytest.raises(ValueError, match="damaged sparse matrix"):
            est.transform(damaged)
        entries = sp.coo_matrix(np.ones((1, 6)))  # on its way to CSR such an entry was written outside of the memory
        entries.row[2] = place
        with pytest.raises(ValueError, match="X is a damaged sparse matrix"):
            est.transform(entries)


# Data that must be refused, before training.

with_nan, with_inf = X.copy(), X.copy()
with_nan[3, 2], with_inf[4, 1] = np.nan, -np.inf
REFUSED: dict[str, tuple[Any, str]] = {
    "NaN": (with_nan, "contains NaN"),
    "inf": (with_inf, "contains infinity"),
    "NaN in float32": (with_nan.astype(np.float32), "contains NaN"),
    "NaN in a sparse matrix": (sp.csr_matrix(with_nan), "contains NaN"),
    "inf in a sparse matrix": (sp.csr_matrix(with_inf), "contains infinity"),
    "NaN in a tensor": (torch.tensor(with_nan), "contains NaN"),
    "NaN in a DataFrame": (pd.DataFrame(with_nan), "contains NaN"),
    "None among objects": (np.array([[1.0, None], [2.0, 3.0]], dtype=object), "NaN"),
    "beyond float32": (X * 1e200, r"contains \d\.\d+e\+200; values must lie within 3\.4e\+38 \(float32\)\. Rescale"),
    "beyond float32, sparse": (sp.csr_matrix(X * 1e200), r"within 3\.4e\+38 \(float32\)"),
    "no rows": (X[:0], "0 sample"),
    "no columns": (X[:, :0], "0 feature"),
    "one row": (X[:1], "1 sample.*minimum of 2"),
    "one dimension": (X[:, 0], "Expected 2D array, got 1D array"),
    "three dimensions": (rng.random((9, 4, 4)), "dim 3"),
    "a number": (3.0, "Expected 2D array, got scalar"),
    "None": (None, "Expected 2D array"),
    "complex": (X + 1j, "Complex data not supported"),
    "strings": (np.array([["a", "b"], ["c", "d"]]), r"there are texts in columns 0, 1: encode them"),
    "words among objects": (np.array([["a", 1.0], ["b", 2.0]], dtype=object), r"texts in column 0: encode .*out\.$"),
    "a word in a list": ([[1.0, 2.0], [3.0, "?"]], r"there are texts in column 1: encode them"),
    "an empty list": ([], "X is empty: 0 samples"),
    "an empty array": (np.array([]), "X is empty: 0 samples"),
    "an empty array of objects": (np.array([], dtype=object), "X is empty: 0 samples"),
    "an empty Series": (pd.Series([], dtype=float), "X is empty: 0 samples"),
    "a dict of arrays": ({"X": X}, r"X is a dict, which has no rows\. Pass rows of numbers"),
    "a Bunch": (Bunch(data=X, DESCR="numbers"), "X is a Bunch, which has no rows"),
    "a set of numbers": ({1.0, 2.0}, "X is a set, which has no rows"),
    "texts among the columns": (pd.DataFrame({0: X[:, 0], 1: "a cow"}), r"there are texts in column 1: encode them"),
    "no columns of a table": (pd.DataFrame(index=range(5)), r"X is a DataFrame without columns, of shape \(5, 0\)"),
    "no values": (
        torch.empty(5, 3, device="meta"),
        r"of shape \(5, 3\) on the meta device, which holds no values: pass",
    ),
    "rows of several lengths": ([[1.0, 2.0], [3.0]], "X must hold numbers, and its rows differ in length"),
    "rows of several shapes": ([np.ones((2, 2)), np.ones((2, 3))], "X must hold numbers, and its rows differ in shape"),
    "a list among objects": (
        np.array([[[1], 2.0], [[3, 4], 2.0]], dtype=object),
        "row 0, column 0 .* type list",
    ),
    "dates among the columns": (
        pd.DataFrame({0: X[:, 0], 1: pd.Timestamp("2020-01-01")}),
        r"X must hold numbers; convert or leave out column 1 \(datetime64\[\w+\]\)",
    ),
    "dates": (np.array([["2020-01-01"], ["2020-01-03"]], dtype="datetime64[D]"), r"must hold numbers.*datetime64"),
    "a missing file": ("nowhere/X.npy", "no such file"),
    "an unknown file": (__file__, "unknown file ending '.py'"),
}


@pytest.mark.parametrize("at", [None, 0])
def test_a_dict_among_objects_is_pointed_to_columns_of_its_entries(at: int | None) -> None:
    records = np.array([{"size": 1.0}, {"size": 2.0}], dtype=object)
    data = records if at is None else np.stack([records, np.ones(2)], axis=1)
    where = "row 0" if at is None else "row 0, column 0"
    with pytest.raises(TypeError, match=rf"{where} holds a value of type dict: .*DictVectorizer .*not 'dict'"):
        make().fit(data)


def test_a_sparse_tensor_is_pointed_to_a_dense_one() -> None:
    with pytest.raises(TypeError, match=r"X is a tensor of layout torch\.sparse_coo: pass X\.to_dense\(\)"):
        make().fit(torch.eye(4).to_sparse())


@pytest.mark.usefixtures("no_training")
@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("cls", MODELS)
def test_unusable_data_are_refused_before_training(name: str, cls: Any) -> None:
    data, message = REFUSED[name]
    for method in ("fit", "partial_fit", "fit_transform"):
        est = make(cls)
        with pytest.raises((ValueError, FileNotFoundError), match=message):
            getattr(est, method)(data)
        with pytest.raises(NotFittedError):
            est.transform(X)


@pytest.mark.parametrize("name", [n for n in REFUSED if n not in ("one row", "None among objects")])
def test_unusable_data_are_refused_after_training(name: str) -> None:
    data, message = REFUSED[name]
    message += "|features, but VSC|must hold numbers|0 feature"  # sample_like takes one dimension for one row
    est = make(training={"steps": 2}).fit(X)
    for method in ("transform", "score", "score_samples", "importance_bound", "evaluate", "partial_fit", "sample_like"):
        with pytest.raises((ValueError, FileNotFoundError), match=message):
            getattr(est, method)(data)
    assert torch.is_grad_enabled()
    assert est.n_features_in_ == 6
    assert np.isfinite(est.score(X))  # nothing of it stuck


@pytest.mark.parametrize("method", ["transform", "score", "partial_fit", "evaluate"])
def test_another_width_is_refused(method: str) -> None:
    est = make(training={"steps": 2}).fit(X)
    for other in (X[:, :5], np.column_stack([X, X]), sp.csr_matrix(X[:, :5])):
        with pytest.raises(ValueError, match=r"has \d+ features, but VSC is expecting 6 features"):
            getattr(est, method)(other)


@pytest.mark.usefixtures("no_training")
@pytest.mark.parametrize(
    ("settings", "data", "message"),
    [
        ({"likelihood": "bernoulli"}, X, r"needs values in \[0, 1\], got values from -.*likelihood='gaussian'"),
        ({"likelihood": "bernoulli"}, images.astype(float), r"needs values in \[0, 1\]"),
        ({"likelihood": "bernoulli", "scale": "none"}, images, r"needs values in \[0, 1\], got values from 0 to 25\d"),
        ({"likelihood": "bernoulli", "scale": "standard"}, X > 0, r"after scale='standard'"),
        (
            {"likelihood": "bernoulli", "scale": "unit-norm"},
            X,
            r"got values from -\d[.\d]* to \d[.\d]* after scale='unit-norm'",
        ),
        ({"training": {"binarise": True}}, X, r"values in \[0, 1\]"),
        ({"training": {"binarise": True}, "likelihood": "gaussian"}, X > 0, "binarise needs likelihood='bernoulli'"),
    ],
)
def test_a_likelihood_that_does_not_fit_is_an_error_before_training(settings: Any, data: Any, message: str) -> None:
    est = make(**settings)
    with pytest.raises(ValueError, match=message):
        est.fit(data)
    with pytest.raises(NotFittedError):
        est.transform(data)


def test_scoring_data_outside_the_likelihood_is_refused() -> None:
    est = make(training={"steps": 2}).fit(X > 0)
    for method in (est.score, est.score_samples, est.evaluate):
        with pytest.raises(ValueError, match=r"fitted with likelihood='bernoulli'"):
            method(X)
    assert torch.is_grad_enabled()
    assert torch.get_num_threads() == 1


def test_a_refused_second_fit_leaves_no_mixture_behind() -> None:
    """Old weights with a new scaling would give wrong codes in silence."""
    est = make(training={"steps": 2}, likelihood="bernoulli").fit(X > 0)
    with pytest.raises(ValueError, match="bernoulli"):
        est.fit(X)
    with pytest.raises(NotFittedError):
        est.transform(X > 0)
    est = make(training={"steps": 2}).fit(X)
    with pytest.raises(ValueError, match="n_components"):
        est.set_params(n_components=0).fit(X)
    assert np.isfinite(est.score(X))  # a constructor that was refused changed nothing yet


NO_TARGETS: dict[str, tuple[Callable[[], Any], str]] = {
    "a str": (lambda: "labels", "got a str, 'labels'"),
    "bytes": (lambda: b"ab", "got a bytes"),
    "a number": (lambda: 3, "got an int, 3"),
    "a number of numpy": (lambda: np.array(2.5), "got a ndarray"),
    "a generator": (lambda: (i % 2 for i in range(150)), r"got a generator.*: pass list\(y\)"),
    "a map": (lambda: map(int, [0, 1] * 75), r"got a map.*: pass list\(y\)"),
    "a dict": (lambda: {"a": [0, 1] * 75}, "got a dict"),
    "values of a dict": (lambda: {"a": 1}.values(), "got a dict_values"),
    "a set": (lambda: {0, 1}, "got a set"),
    "a function": (lambda: len, "got a builtin_function"),
    "lists of different lengths": (lambda: [[0], [0, 1]] * 75, "lists of different lengths"),
    "a tensor without values": (lambda: torch.ones(150, device="meta"), "y is a tensor .* which holds no values"),
    "a table without columns": (lambda: pd.DataFrame(index=range(150)), "y is a DataFrame without columns"),
}


@pytest.mark.usefixtures("no_training")
@pytest.mark.parametrize("name", NO_TARGETS)
@pytest.mark.parametrize("cls", [sv.CodeClassifier, LinearMultiLabel, sv.SDLGMClassifier, sv.SDLGMCounter])
def test_a_y_that_is_no_column_or_table_is_refused_by_what_it_is(name: str, cls: Any) -> None:
    y, message = NO_TARGETS[name]
    with pytest.raises(ValueError, match=message):
        cls().fit(X, y())


# Constructor arguments: every one, with values of other types and just outside of its range.

TABLES: list[Any] = [*known().values(), sv.Training, sv.Text]
EVERY = [(cls, p) for cls in TABLES for p in documented(cls)]
IDS = [f"{cls.__name__}-{p.name}" for cls, p in EVERY]
HUGE_NUMBERS = [10**400, -(10**400)]
NO_FLOAT32 = [1e300, 1e-320]


def kinds_of(p: Parameter) -> tuple[Any, ...]:
    union = get_origin(p.type) in (Union, UnionType)
    return get_args(p.type) if union else (p.type,)


def ranges_of(p: Parameter) -> list[In]:
    return [rule for rule in p.rules if isinstance(rule, In)]


def beyond(legal: In, *, whole: bool) -> list[Any]:
    """Numbers next to the bounds of a range and outside of it, and what is no number at all."""
    found = [np.nan, np.inf, -np.inf, "x", b"x", [], (1,), {}, np.array([1, 2])]
    if isinstance(legal, Seed):
        return [*found, 1.5, 10**5000]
    if isinstance(legal, Position):
        return [*found, -1, -0.1, 1.5, *HUGE_NUMBERS]
    if legal.least is not None:
        closed = legal.ends[0] == "["
        found += [legal.least - 1, legal.least - 1e-9 if closed else legal.least]
    if legal.most is not None:
        closed = legal.ends[1] == "]"
        found += [legal.most + 1, legal.most + 1e-9 if closed else legal.most]
    return found + HUGE_NUMBERS + ([2.5, 2**64] if whole else [] if legal.double else NO_FLOAT32)


def bad_values(p: Parameter) -> list[Any]:
    """Values that its type and range, as they are written, do not allow."""
    kinds, ranges = kinds_of(p), ranges_of(p)
    chosen = [choice for rule in p.rules if isinstance(rule, OneOf) for choice in rule.choices]
    found: list[Any] = [object()]
    if int in kinds or float in kinds:
        found += beyond(ranges[0], whole=float not in kinds)
    if bool in kinds:
        found += ["x", [], np.array([1, 2])] + [2] * (int not in kinds) + [0, 1] * (not chosen and int not in kinds)
    elif int in kinds or float in kinds:
        found += [True, np.True_]
    if str in kinds:
        found += [b"x", [], *([] if float in kinds else [3])]
        found += ["nonsense", "", str(chosen[0]).upper(), [chosen[0]]] if chosen else []
    if Schedule in kinds:
        steep = [sv.Constant(number) for number in beyond(ranges[0], whole=False) if isinstance(number, (float, str))]
        found += [*steep, sv.Constant(-1.0), sv.Linear(1.0, -1.0), sv.Cosine(-1.0, 1.0), sv.Step(1.0, -1.0), sv.Linear]
        found += [sv.Exponential(1.0, -0.1), sv.Cyclical(-1.0, 1.0), lambda step, total: 1.0]
    for kind in kinds:
        if get_origin(kind) is tuple:
            parts = get_args(kind)
            found += [5, "ab", np.array([8]), (1,) * 1001, {1: 1}]
            found += [(1.0,) * (len(parts) + 2)] if ... not in parts else []
            good = [inside(legal)[0] for legal in ranges] * len(parts)
            for i, legal in enumerate(ranges):
                entries = beyond(legal, whole=int in parts)
                found += [(*good[:i], entry, *good[i + 1 : len(parts)]) for entry in entries]
        elif get_origin(kind) is None and isinstance(kind, type) and kind not in (int, float, str, bool, NoneType):
            found += ["x", 3, [], kind]
    if dict in map(get_origin, kinds):
        found += ["x", [1], {"kl_z": 3}, {"kl_z": "x"}]
    found += [] if NoneType in kinds else [None]
    return found


def inside(legal: In) -> list[Any]:
    """Numbers on the bounds of a range, or next to them, that belong to it."""
    if isinstance(legal, Seed):
        return [0, -1, 2**70, 10**400]
    if isinstance(legal, Position):
        return [0, 7, 0.0, 0.5, 1.0]
    low = 0 if legal.least is None else legal.least
    found = [low] if legal.ends[0] == "[" else []
    if legal.most is None:
        return [*found, low + 1, low + 10]
    return [*found, (low + legal.most) / 2, *([legal.most] if legal.ends[1] == "]" else [])]


def good_values(p: Parameter) -> list[Any]:
    """Values that its type and range allow, as they are and as numpy has them."""
    kinds, found = kinds_of(p), [choice for rule in p.rules if isinstance(rule, OneOf) for choice in rule.choices]
    found += [None] if NoneType in kinds else []
    numbers = [number for legal in ranges_of(p)[:1] for number in inside(legal)]
    if int in kinds or float in kinds:
        found += numbers + [np.array([number])[0] for number in numbers if abs(number) < 2**63]
        found += [Fraction(1, 2)] * (float in kinds and 0.5 in ranges_of(p)[0])
    if bool in kinds:
        found += [True, False, np.True_, np.False_]
    if Schedule in kinds:
        found += [sv.Constant(number) for number in numbers]
    for kind in kinds:
        if get_origin(kind) is tuple:
            entries = [inside(legal)[-1] for legal in ranges_of(p)]
            full = entries * (len(get_args(kind)) // len(entries))
            found += [tuple(full), list(full), tuple(np.array(full))]
    return found


def named(cls: Any, p: Parameter) -> str:
    return {sv.Training: "training.", sv.Text: "text."}.get(cls, "") + p.name


@pytest.mark.parametrize(("cls", "p"), EVERY, ids=IDS)
def test_every_field_has_a_range_or_choices_or_says_what_it_takes(cls: Any, p: Parameter) -> None:
    kinds = kinds_of(p)
    parts = [part for kind in kinds if get_origin(kind) is tuple for part in get_args(kind)]
    numbers = any(kind in (int, float) for kind in (*kinds, *parts))
    assert numbers == bool(ranges_of(p))
    if str in kinds:
        assert any(isinstance(rule, OneOf if numbers else (OneOf, Note)) for rule in p.rules)


@pytest.mark.usefixtures("no_training")
@pytest.mark.parametrize(("cls", "p"), EVERY, ids=IDS)
def test_a_bad_argument_is_named_before_training(cls: Any, p: Parameter) -> None:
    """By the check of the class, and by every way that leads to training; nothing is fitted then."""
    values = bad_values(p)
    assert len(values) > 3
    for value in values:
        with pytest.raises(ValueError, match=rf"(?s)^{re.escape(named(cls, p))}(\[.+\])? must .*got "):
            getattr(cls(**{p.name: value}), "check" if issubclass(cls, sv.SparseCoder) else "validate")()
    if cls is sv.Training:
        est = make(training={p.name: values[0]})
    else:
        est = make(text=sv.Text(**{p.name: values[0]})) if cls is sv.Text else build(cls, **{p.name: values[0]})
    for method in (est.fit, est.partial_fit):
        with pytest.raises(ValueError, match=re.escape(named(cls, p))):
            method(X, X > 0)
    with pytest.raises(NotFittedError):
        est.transform(X)


@pytest.mark.parametrize(("cls", "p"), EVERY, ids=IDS)
def test_what_its_range_holds_is_taken(cls: Any, p: Parameter) -> None:
    for value in [p.default, *good_values(p)]:
        check_value(p.name, value, p.type, p.rules)


def build(cls: Any, **changes: Any) -> Any:
    """A small model of any class: those with labels have no n_components."""
    own = {"n_components": 4, "hidden": (16,), "training": sv.Training(steps=20, verbose=0)} | changes
    return cls(**{name: value for name, value in own.items() if name in {p.name for p in documented(cls)}})


# What several fields, or the data, must agree on.

ACROSS: list[tuple[Any, dict[str, Any], str]] = [
    *((cls, {"image_shape": (3, 3)}, r"image_shape must be that of a row, .*got \(3, 3\)") for cls in MODELS),
    (sv.CapacityVAE, {"ramp": 10**9}, "ramp must be within the run's 20 steps.*got 1000000000"),
    (sv.PseudoVSC, {"slab_warmup": (0.3, 0.2)}, r"slab_warmup must begin before it ends; got \(0\.3, 0\.2\)"),
    (sv.DiscreteVAE, {"categories": 3}, "n_components must be a multiple of categories=3, got 4"),
    *((sv.SDLGM, {name: "learned"}, f"{name} must be .* with gradient='paper'; got") for name in ("tau", "tau_z")),
    (sv.SDLGM, {"shared_layers": 5}, r"shared_layers must be an integer in \[0, 1\] .*, got 5"),
    (sv.SDLGM, {"features": "distinct", "gradient": "concrete"}, "cannot keep the cap of features='distinct'"),
    (sv.SDLGMClassifier, {"label_likelihood": "relaxed"}, "label_likelihood='relaxed' learns from draws"),
    (sv.VSC, {"training": {"device": "foo"}}, "training.device must be auto, cpu, cuda or cuda:N, got 'foo'"),
    (sv.VSC, {"training": {"device": "meta"}}, "training.device must be auto, cpu, cuda or cuda:N, got 'meta'"),
    (sv.VSC, {"training": {"schedules": {"kl_z": sv.Constant(np.nan)}}}, r"schedules\['kl_z'\] must be .*got"),
    (sv.VSC, {"training": {"schedules": {"kl_z": sv.Linear(0.0, -1.0)}}}, r"schedules\['kl_z'\] must be .*comes to"),
    (sv.VSC, {"training": {"schedules": {"sharpness": sv.Constant(0.0)}}}, r"\['sharpness'\] must be .* above 0"),
    (sv.PseudoVSC, {"training": {"schedules": {"slab_warmup": sv.Constant(2.0)}}}, r"must be a number in \[0, 1\]"),
]


@pytest.mark.usefixtures("no_training")
@pytest.mark.parametrize(("cls", "settings", "message"), ACROSS)
def test_fields_that_do_not_agree_are_named_before_training(cls: Any, settings: Any, message: str) -> None:
    training = sv.Training(**{"steps": 20, "verbose": 0} | settings.get("training", {}))
    est = build(cls, **settings | {"training": training})
    for method in (est.fit, est.partial_fit):
        with pytest.raises(ValueError, match=message):
            method(X, X > 0)
    with pytest.raises(NotFittedError):
        est.transform(X)


@pytest.mark.usefixtures("no_training")
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"steps": 5, "epochs": 2}, "training.steps or training.epochs, not both"),
        ({"patience": 3, "early_stopping": False}, "leave early_stopping at 'auto', or set it True"),
        ({"early_stopping": "never"}, "early_stopping must be True, False or 'auto', got 'never'"),
        ({"restart_optimizer": True}, "restart_optimizer needs decay='step', got 'cosine'"),
        ({"resume": True}, "resume needs training.folder"),
        (
            {"schedules": {"foo": sv.Constant(1.0)}},
            r"unknown knobs \['foo'\]; this model has \['kl_z', 'temperature'\]",
        ),
        (
            {"schedules": {"kl_z": lambda s, t: 1.0}},
            "must be a schedule .Constant, Cosine, Cyclical, Exponential, Linear or Step; .*got <function",
        ),
        ({"decay": "linear"}, "must be 'constant', 'cosine' or 'step', got 'linear'"),
        ({"device": "cuda:99"}, "device='cuda:99' is not usable here"),
    ],
)
def test_settings_that_contradict_each_other_say_what_would_work(settings: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        make(training=settings).fit(X)


@pytest.mark.usefixtures("no_training")
@pytest.mark.parametrize(
    ("cls", "settings", "message"),
    [
        (
            sv.BetaTCVAE,
            {"training": {"n_samples": 2}},
            "every row of a batch with every other: use training.n_samples=1",
        ),
        (sv.BetaTCVAE, {"training": {"free_bits": 0.1}}, "free_bits is for a KL per unit; BetaTCVAE has none"),
        (sv.CapacityVAE, {"training": {"free_bits": 0.1}}, "free_bits is for a KL per unit; CapacityVAE has none"),
        (sv.PseudoVSC, {"alpha": 1.0}, r"alpha must be a number in \(0, 1\) \(with alpha = 1 use VAE\), got 1.0"),
        (sv.MAT, {"off": 1.0}, r"off must be a number in \[0, 1\), got 1.0"),
    ],
)
def test_a_model_that_cannot_work_says_what_would(cls: Any, settings: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(cls, **settings).fit(X)


HUGE = 10**12
TOO_LARGE: list[tuple[Any, dict[str, Any], str]] = [
    *((cls, {"n_components": HUGE}, "n_components=1000000000000, features=6") for cls in MODELS),
    *((cls, {"hidden": (16, HUGE)}, r"hidden=\(16, 1000000000000\), features=6") for cls in MODELS),
    (sv.VAE, {"n_components": 2**62, "hidden": (2**62,)}, "n_components=4611686018427387904, hidden="),
    *((sv.VAE, {"n_components": kind(2**62)}, "n_components=.*4611686018427387904") for kind in (int, np.int64)),
    (sv.PseudoVSC, {"pseudo_inputs": HUGE}, "pseudo_inputs=1000000000000, features=6"),
    (sv.SDLGM, {"gate_hidden": (HUGE,)}, r"gate_hidden=\(1000000000000,\), features=6"),
    (sv.HSVAE, {"n_gamma": HUGE}, "training.batch_size=128, .*n_gamma=1000000000000"),
    (sv.SDLGM, {"cap": HUGE}, "training.batch_size=128, .*cap=1000000000000"),
    (sv.HSVAE, {"n_z": HUGE}, "training.batch_size=128, .*n_z=1000000000000"),
    (sv.VSC, {"training": {"n_samples": HUGE}}, "training.batch_size=128, training.n_samples=1000000000000"),
]


@pytest.mark.usefixtures("no_training")
@pytest.mark.parametrize(("cls", "settings", "message"), TOO_LARGE)
def test_sizes_beyond_memory_are_named_before_memory_is_asked_for(cls: Any, settings: Any, message: str) -> None:
    with pytest.raises(
        ValueError, match=rf"^{message}.* would take [\d.,]+ [TPE]B of memory or more for .*; there are \d"
    ):
        make(cls, **settings).fit(X)


def test_columns_beyond_memory_are_named_though_few_have_values() -> None:
    wide = sp.csr_array(([1.0, 2.0], [0, 3], [0, 1, 2]), (2, 2**40))
    with pytest.raises(ValueError, match=r"^features=1099511627776 would take [\d.]+ TB of memory or more"):
        make(sv.VSC).fit(wide)


def test_sizes_of_texts_and_of_what_is_asked_of_a_model_are_named() -> None:
    texts = ["a cow", "a hen and a cow"] * 5
    with pytest.raises(ValueError, match=r"^text\.embedding=1000000000000, words=5 would take"):
        make(sv.VAE, hidden=(8,), text=Text(embedding=HUGE)).fit(texts)
    est = fitted(sv.VAE, steps=2)
    with pytest.raises(ValueError, match=rf"^n=1000000000, rows of X={len(X)} would take [\d.,]+ TB"):
        est.draw_codes(X, 10**9)  # those of one row might fit
    with pytest.raises(ValueError, match=r"^n_samples=1000000000000 would take"):
        est.score_samples(X, n_samples=HUGE)
    for call in (est.sample, lambda n: est.sample_like(X[0], n)):
        with pytest.raises(ValueError, match=r"^n=1000000000000 would take [\d.,]+ TB"):
            call(HUGE)
    with pytest.raises(ValueError, match=r"^steps=1000000000000 would take"):
        sv.interpolate(est, X[0], X[1], steps=HUGE)
    for name in ("smiley", "tiles", "digit-canvas"):
        with pytest.raises(
            ValueError, match=r"^n=1000000000000, n_test=\d+, (size|columns)=\d+ would take [\d.,]+ [TP]B"
        ):
            sv.data.load(name, n=HUGE)


def test_memory_is_the_machines_or_what_its_group_grants(tmp_path: Path) -> None:
    machine = memory(cgroup=tmp_path)
    assert machine > 2**28
    (tmp_path / "memory.max").write_text("max\n")
    assert memory(cgroup=tmp_path) == machine
    (tmp_path / "memory.max").write_text("1000000\n")
    assert memory(cgroup=tmp_path) == 1e6


@pytest.mark.parametrize("seed", [10**400, -(10**400), np.int8(-3)], ids=["huge", "low", "int8"])
def test_every_integer_is_a_seed(seed: Any) -> None:
    runs = [make(training={"steps": 1, "seed": s}).fit(X).transform(X).toarray() for s in (seed, int(seed), 5)]
    assert np.array_equal(runs[0], runs[1])
    assert not np.array_equal(runs[0], runs[2])
    with pytest.raises(ValueError, match="at most 4,000 digits, got an integer of about 5000 digits"):
        make(training={"seed": 10**5000}).fit(X)


def test_a_number_too_small_or_large_for_float32_is_told_so() -> None:
    for cls, settings in ((sv.SDLGM, {"tau_z": 1e-320}), (sv.HSVAE, {"alpha": 1e300}), (sv.MAT, {"kl_weight": 1e39})):
        with pytest.raises(ValueError, match=r"networks compute in float32, 1\.2e-38 to 3\.4e\+38"):
            make(cls, **settings).fit(X)
    for settings in ({"learning_rate": 1e300}, {"free_bits": 1e300}, {"schedules": {"kl_z": sv.Linear(0.0, 1e300)}}):
        with pytest.raises(ValueError, match=r"networks compute in float32, 1\.2e-38 to 3\.4e\+38"):
            make(training=settings).fit(X)
    for course in (sv.Exponential(10**400, 0.1), sv.Exponential("a", 0.1), sv.Linear(10**5000, 1)):
        with pytest.raises(ValueError, match=r"schedules\['kl_z'\] must be a number, 0 or above all along, got"):
            make(training={"schedules": {"kl_z": course}}).fit(X)


def test_numbers_of_numpy_are_numbers() -> None:
    """A grid of numpy scalars is what GridSearchCV hands out; none may be refused or break a later save."""
    settings = {
        "steps": np.int64(20),
        "batch_size": np.int32(16),
        "learning_rate": np.float32(2**-7),
        "clip_norm": np.float32(1),
        "free_bits": np.float32(2**-7),
        "kl_warmup": np.float64(0.5),
        "decay": np.str_("step"),
        "decay_at": np.int64(10),
        "restart_optimizer": np.True_,
        "n_samples": np.int8(2),
        "validation_fraction": np.float32(0.2),
        "patience": np.int64(3),
        "seed": np.int64(7),
        "report_every": np.int64(5),
        "checkpoint_every": np.int64(5),
        "schedules": {"temperature": sv.Linear(np.float32(10), np.int64(20), end=np.int64(5))},
    }
    ours = make(n_components=np.int64(4), hidden=(np.int64(16),), alpha=np.float32(0.25), training=settings).fit(X)
    plain = {k: v.item() for k, v in settings.items() if k != "schedules"}
    plain |= {"schedules": {"temperature": sv.Linear(10.0, 20, end=5)}}
    theirs = make(n_components=4, hidden=(16,), alpha=0.25, training=plain).fit(X)
    assert np.array_equal(ours.transform(X).toarray(), theirs.transform(X).toarray())
    assert ours.history_ == theirs.history_


def test_numbers_of_numpy_can_be_saved(tmp_path: Path) -> None:
    settings = {"batch_size": np.int64(16), "schedules": {"kl_z": sv.Linear(np.float64(0), np.float32(1))}}
    settings |= {"folder": tmp_path / "run", "steps": np.int64(20), "checkpoint_every": np.int64(10)}
    est = make(n_components=np.int64(4), alpha=np.float64(0.25), training=settings).fit(X)
    est.save(tmp_path / "model")
    again = sv.load(tmp_path / "model")
    assert np.array_equal(again.transform(X).toarray(), est.transform(X).toarray())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda e: e.transform(X, max_active=0), "max_active must be an integer above 0, got 0"),
        (lambda e: e.transform(X, max_active=2.5), "max_active must be an integer above 0, got 2.5"),
        (lambda e: e.transform(X, max_active="x"), "max_active must be an integer above 0, got 'x'"),
        (lambda e: e.score_samples(X, n_samples=0), "n_samples must be an integer above 0, got 0"),
        (lambda e: e.importance_bound(X, n_samples=1.5), "n_samples must be an integer above 0, got 1.5"),
        (lambda e: e.sample(-1), "n must be an integer, 0 or above, got -1"),
        (lambda e: e.sample("x"), "n must be an integer, 0 or above, got 'x'"),
        (lambda e: e.sample(2, seed="x"), "seed must be an integer, got 'x'"),
        (lambda e: e.sample_like(X[:1], 1.5), "n must be an integer, 0 or above, got 1.5"),
        (lambda e: e.inverse_transform(np.full((2, 4), np.nan)), "Z contains NaN"),
        (lambda e: e.inverse_transform(np.zeros((2, 3))), "codes have 4 columns, one per unit; got 3"),
        (lambda e: e.inverse_transform(np.zeros((0, 4))), "0 sample"),
        (lambda e: e.inverse_transform("codes"), "Expected 2D array|could not convert"),
    ],
)
def test_bad_arguments_of_methods_are_named(call: Any, message: str) -> None:
    est = fitted(steps=2)
    with pytest.raises(ValueError, match=message):
        call(est)


def test_every_row_has_the_same_treatment_whatever_its_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error in the middle of the blocks leaves gradients and threads as they were."""
    monkeypatch.setattr("sparsevae.inputs.base.BLOCK", 16)
    est = make(training={"steps": 2}).fit(X > 0)
    bad = (X > 0).astype(float)
    bad[100, 2] = 3.0
    for call in (est.score_samples, est.evaluate):
        try:
            call(bad)
        except ValueError as error:
            kept = error  # while the traceback is alive, so are its frames  # noqa: F841
            assert torch.is_grad_enabled()
            assert torch.get_num_threads() == 1
        else:
            pytest.fail("3.0 is no pixel")


def test_columns_that_float32_cannot_resolve_are_refused() -> None:
    seconds = 1.7e9 + np.random.default_rng(0).random((50, 1)) * 100
    table = np.hstack([np.random.default_rng(1).random((50, 3)), seconds])
    with pytest.raises(ValueError, match=r"column 3 of X runs from 17000000.*StandardScaler"):
        sv.VSC(4, training=sv.Training(steps=5, verbose=0)).fit(table)
