"""Claims: an edit changes one unit and nothing else; walks start and end where they say; shares are shares."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from conftest import quiet
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.decomposition import PCA

import sparsevae as sv
from sparsevae.analysis.traversals import VALUES, activation_matrix, class_shares, edits, interpolate, traverse, walk
from sparsevae.report import figures
from sparsevae.report.view import View, make_view

QUICK = sv.Training(steps=60, batch_size=32, learning_rate=1e-2, verbose=0)


@pytest.fixture(scope="module")
def vsc(digits: Any) -> Any:
    """A model whose encoder is set by hand, so that each row has about half of its twelve units on."""
    est = quiet(sv.VSC(12, hidden=(), training=sv.Training(steps=2, verbose=0)), digits.X[:300])
    maps = torch.randn(2, 12, 64, generator=torch.Generator().manual_seed(0)) / 2
    centre = torch.tensor(digits.X[:300] / 255.0, dtype=torch.float32).mean(0)
    with torch.no_grad():
        for part, weight in ((slice(12), maps[0]), (slice(24, 36), maps[1])):  # of loc, log-variance and logits
            est.model_.encoder[0].weight[part] = weight
            est.model_.encoder[0].bias[part] = -weight @ centre
    return est


@pytest.fixture(scope="module")
def vae(digits: Any) -> Any:
    return quiet(sv.VAE(5, hidden=(16,), training=QUICK), digits.X[:300])


@pytest.fixture(scope="module")
def pair(vsc: Any, digits: Any) -> tuple[Any, Any]:
    """Two rows whose codes share a unit and differ in at least one each way."""
    on = vsc.transform(digits.X[:100]).toarray() != 0
    found = [
        (i, j)
        for i in range(100)
        for j in range(100)
        if (on[i] & on[j]).any() and (on[i] & ~on[j]).any() and (on[j] & ~on[i]).any()
    ]
    assert found
    return digits.X[found[0][0]], digits.X[found[0][1]]


def code(est: Any, x: Any) -> np.ndarray:
    Z = est.transform(x[None])
    return np.asarray(Z.toarray() if sp.issparse(Z) else Z)[0]


def draw(figure: Any) -> None:
    figure.savefig(io.BytesIO(), format="png", dpi=40)


# -- traverse ---------------------------------------------------------------------------------------------------


def test_a_traversal_decodes_the_code_with_one_unit_changed(vsc: Any, pair: Any) -> None:
    t = traverse(vsc, pair[0], units=[7, 2], values=[-1.5, 0, 3])
    assert t.units.tolist() == [7, 2]
    assert t.values.tolist() == [-1.5, 0, 3]
    assert t.images.shape == (2, 3, 64)
    for u, unit in enumerate((7, 2)):
        for v, value in enumerate((-1.5, 0, 3)):
            edited = code(vsc, pair[0])
            edited[unit] = value
            assert np.array_equal(t.images[u, v], vsc.inverse_transform(edited[None])[0])


def test_by_default_the_active_units_go_from_minus_two_to_two_largest_first(vsc: Any, pair: Any) -> None:
    z, t = code(vsc, pair[0]), traverse(vsc, pair[0])
    assert set(t.units) == set(np.flatnonzero(z))
    assert (np.diff(np.abs(z[t.units])) <= 0).all()
    assert t.values.tolist() == [-2, -1.5, -1, -0.5, 0, 0.5, 1, 1.5, 2]
    assert t.values is not VALUES


def test_setting_a_unit_to_its_own_value_changes_nothing(vsc: Any, pair: Any) -> None:
    z = code(vsc, pair[0])
    unit = int(np.argmax(np.abs(z)))
    t = traverse(vsc, pair[0], [unit], [float(z[unit])])
    assert np.array_equal(t.images[0], vsc.inverse_transform(z[None]))


def test_a_row_may_come_in_any_form(vsc: Any, pair: Any) -> None:
    expected = traverse(vsc, pair[0]).images
    for form in (pair[0][None], torch.tensor(pair[0]), torch.tensor(pair[0])[None], sp.csr_matrix(pair[0][None])):
        assert np.array_equal(traverse(vsc, form).images, expected)


def test_a_model_of_named_columns_takes_one_row_of_its_table() -> None:
    table = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 4)), columns=list("abcd"))
    est = quiet(sv.VAE(2, hidden=(4,), training=QUICK), table)
    est.set_output(transform="pandas")
    assert traverse(est, table[:1], [0]).images.shape == (1, 9, 4)


@pytest.mark.parametrize("units", [[], [12], [-1], [0.5], 3, [[1]], [True], [False] * 12, "1"])
def test_units_that_are_not_there_are_refused(vsc: Any, pair: Any, units: Any) -> None:
    with pytest.raises(ValueError, match="units must be a list of integers from 0 to 11"):
        traverse(vsc, pair[0], units)


def test_a_mask_chooses_units_too(vsc: Any, pair: Any) -> None:
    mask = np.isin(np.arange(12), [2, 7])
    assert np.array_equal(traverse(vsc, pair[0], mask).images, traverse(vsc, pair[0], [2, 7]).images)


def test_only_our_own_estimators_have_codes_to_look_into(digits: Any) -> None:
    pca, x = PCA(3).fit(digits.X), digits.X[0]
    calls = {traverse: (x,), edits: (x, x), interpolate: (x, x), activation_matrix: (digits.X, digits.y)}
    for function, arguments in calls.items():
        with pytest.raises(TypeError, match=rf"{function.__name__} needs a fitted estimator of sparsevae, .* a PCA"):
            function(pca, *arguments)


@pytest.mark.parametrize("values", [[], [np.nan], [np.inf], 1.0, ["a"], [[1.0]]])
def test_values_that_are_none_are_refused(vsc: Any, pair: Any, values: Any) -> None:
    with pytest.raises(ValueError, match="values must be a list of finite numbers"):
        traverse(vsc, pair[0], [0], values)


def test_a_model_without_a_decoder_has_no_codes_to_change(digits: Any) -> None:
    est = sv.CodeClassifier(3, hidden=(4,), training=QUICK).fit(digits.X[:60], digits.y[:60])
    for call in (lambda: traverse(est, digits.X[0]), lambda: interpolate(est, digits.X[0], digits.X[1])):
        with pytest.raises(TypeError, match=r"needs a model with p\(x\|z\), and CodeClassifier has none: use VAE, VSC"):
            call()


def test_several_rows_are_refused(vsc: Any, digits: Any) -> None:
    with pytest.raises(ValueError, match=r"one row is needed here, got 2; pass X\[0\]"):
        traverse(vsc, digits.X[:2])


def test_a_code_without_active_units_needs_names(vsc: Any, digits: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vsc, "transform", lambda x: sp.csr_matrix((1, 12), dtype=np.float32))
    with pytest.raises(ValueError, match="no unit is on in this row's code; choose the units to traverse"):
        traverse(vsc, digits.X[0])
    assert traverse(vsc, digits.X[0], [3]).images.shape == (1, 9, 64)
    same = edits(vsc, digits.X[0], digits.X[1])
    assert same.images.shape == (0, 64)
    assert same.codes.shape == (0, 12)


# -- edits ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["vsc", "vae"])
def test_edits_are_the_difference_of_two_codes_one_element_each(
    name: str, pair: Any, request: pytest.FixtureRequest
) -> None:
    est = request.getfixturevalue(name)
    a, b = (code(est, x) for x in pair)
    e = edits(est, *pair)
    assert set(e.units) == set(np.flatnonzero(a != b))
    assert (np.diff(np.abs(e.changes)) <= 0).all()
    assert np.array_equal(e.changes, (b - a)[e.units])
    for unit, edited in zip(e.units, e.codes, strict=True):
        assert np.flatnonzero(edited != a).tolist() == [unit]
        assert edited[unit] == b[unit]
    assert np.array_equal(e.images, est.inverse_transform(e.codes))


def test_all_edits_together_give_the_other_code(vsc: Any, pair: Any) -> None:
    e = edits(vsc, *pair)
    z = code(vsc, pair[0])
    z[e.units] = e.codes[np.arange(len(e.units)), e.units]
    assert np.array_equal(z, code(vsc, pair[1]))


# -- interpolate ------------------------------------------------------------------------------------------------


START = np.array([1.0, 0.0, -3.0, 0.5, 0.0, 0.0], dtype=np.float32)
END = np.array([2.0, 4.0, 0.0, -0.5, 0.0, 0.25], dtype=np.float32)


def test_the_continuous_walk_by_hand() -> None:
    codes, labels = walk(START, END, 3, "continuous")
    assert codes.tolist() == [[1, 0, -3, 0.5, 0, 0], [1.5, 0, -3, 0, 0, 0], [2, 0, -3, -0.5, 0, 0]]
    assert labels == ("start", "", "")


def test_the_discrete_walk_by_hand() -> None:
    codes, labels = walk(START, END, 3, "discrete")
    assert codes.tolist() == [
        [1, 0, -3, 0.5, 0, 0],
        [1, 4, -3, 0.5, 0, 0],
        [1, 4, 0, 0.5, 0, 0],
        [1, 4, 0, 0.5, 0, 0.25],
    ]
    assert labels == ("start", "unit 1 on", "unit 2 off", "unit 5 on")


def test_the_mixed_walk_by_hand() -> None:
    codes, labels = walk(START, END, 7, "mixed")
    assert labels == ("start", "", "unit 1 on", "", "unit 2 off", "", "unit 5 on")
    assert codes[:, 0].tolist() == pytest.approx(np.linspace(1, 2, 7).tolist())
    assert codes[:, 1].tolist() == [0, 0, 4, 4, 4, 4, 4]
    assert codes[:, 2].tolist() == [-3, -3, -3, -3, 0, 0, 0]
    assert codes[:, 5].tolist() == [0, 0, 0, 0, 0, 0, 0.25]
    assert len(walk(START, END, 2, "mixed")[0]) == 4  # three switches need three steps


value = st.one_of(st.just(0.0), st.floats(-5, 5, width=32))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(value, value), min_size=1, max_size=9), st.integers(2, 12))
def test_a_mixed_walk_goes_from_code_to_code_and_switches_one_unit_at_a_time(
    pairs: list[tuple[float, float]], steps: int
) -> None:
    start, end = np.array(pairs, dtype=np.float32).T
    codes, labels = walk(start, end, steps, "mixed")
    assert np.array_equal(codes[0], start)
    assert np.array_equal(codes[-1], end)
    assert len(codes) == len(labels) >= steps
    shared = (start != 0) & (end != 0)
    switched = (np.diff(codes[:, ~shared], axis=0) != 0).sum(1)
    assert switched.max(initial=0) <= 1
    assert switched.tolist() == [int(label != "") for label in labels[1:]]
    order = [int(label.split()[1]) for label in labels[1:] if label]
    assert (np.diff(np.abs(start + end)[order]) <= 0).all()


@pytest.mark.parametrize("mode", ["mixed", "continuous", "discrete"])
def test_interpolation_decodes_the_walk_between_two_rows(vsc: Any, pair: Any, mode: str) -> None:
    a, b = (code(vsc, x) for x in pair)
    i = interpolate(vsc, *pair, steps=5, mode=mode)
    codes, labels = walk(a, b, 5, mode)
    assert np.array_equal(i.codes, codes)
    assert i.labels == labels
    assert np.array_equal(i.images, vsc.inverse_transform(codes))
    assert np.array_equal(i.codes[0], a)
    shared = (a != 0) & (b != 0)
    ends = {"mixed": b, "continuous": np.where(shared, b, a), "discrete": np.where(shared, a, b)}
    assert np.array_equal(i.codes[-1], ends[mode])


def test_dense_codes_move_and_never_switch(vae: Any, pair: Any) -> None:
    for mode in ("mixed", "continuous"):
        i = interpolate(vae, *pair, steps=4, mode=mode)
        assert i.labels == ("start", "", "", "")
        assert np.array_equal(i.codes[-1], code(vae, pair[1]))
    assert np.array_equal(interpolate(vae, *pair, mode="discrete").codes, code(vae, pair[0])[None])


def test_walks_that_cannot_be_are_refused(vsc: Any, pair: Any) -> None:
    with pytest.raises(ValueError, match="mode must be 'mixed', 'continuous' or 'discrete', got 'linear'"):
        interpolate(vsc, *pair, mode="linear")
    with pytest.raises(ValueError, match="steps must be an integer above 1"):
        interpolate(vsc, *pair, steps=1)


# -- activation matrices ----------------------------------------------------------------------------------------


def test_shares_by_hand() -> None:
    Z = np.array([[1.0, 0, 0.5], [0, 0, -2], [0, 0, 3], [2, 0, 0]])
    y = ["b", "a", "b", "b"]
    for form in (Z, sp.csr_matrix(Z)):
        m = class_shares(form, y, sparse=True)
        assert m.classes.tolist() == ["a", "b"]
        assert m.share == pytest.approx(np.array([[0, 0, 1], [2 / 3, 0, 2 / 3]]))
    assert class_shares(Z, y, sparse=False).share == pytest.approx(np.array([[0, 0, 1], [1 / 3, 0, 1 / 3]]))


def test_an_activation_matrix_counts_the_codes_of_each_class(vsc: Any, vae: Any, digits: Any) -> None:
    X, y = digits.X[:700], digits.y[:700]
    m = activation_matrix(vsc, X, y)
    on = vsc.transform(X).toarray() != 0
    assert m.share.shape == (10, 12)
    for k, c in enumerate(m.classes):
        assert m.share[k] == pytest.approx(on[y == c].mean(0))
    dense = activation_matrix(vae, X, y)
    assert dense.share == pytest.approx(class_shares(vae.transform(X), y, sparse=False).share)
    assert 0 < dense.share.max() <= 1


def test_labels_must_fit_the_rows(vsc: Any, digits: Any) -> None:
    with pytest.raises(ValueError, match=r"y must hold one label for each of the 5 rows; got shape \(4,\)"):
        activation_matrix(vsc, digits.X[:5], digits.y[:4])
    with pytest.raises(ValueError, match="y must hold one label for each of the 5 rows; got None"):
        activation_matrix(vsc, digits.X[:5], None)


@pytest.mark.parametrize(
    "y",
    [
        ["a", None, "b", "b"],
        [0.0, np.nan, 1.0, 2.0],
        np.array(["a", np.nan, "b", "b"], dtype=object),
        pd.array([1, None, 2, 2], dtype="Int64"),
        np.array(["2020", "NaT", "2021", "2021"], dtype="datetime64[Y]"),
        np.array(["2020", "NaT", "2021", "2021"], dtype="datetime64[ns]"),
    ],
)
def test_missing_labels_are_counted_and_refused(vsc: Any, digits: Any, y: Any) -> None:
    with pytest.raises(ValueError, match="a label for every row; 1 of 4 are missing"):
        activation_matrix(vsc, digits.X[:4], y)


def test_labels_of_two_kinds_are_refused(vsc: Any, digits: Any) -> None:
    with pytest.raises(ValueError, match="labels of one kind, which can be sorted; got int, str"):
        activation_matrix(vsc, digits.X[:2], np.array(["a", 1], dtype=object))


# -- pictures ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["vsc", "vae"])
def view(request: pytest.FixtureRequest, digits: Any) -> View:
    est = request.getfixturevalue(request.param)
    return make_view(est, digits.X_test[:80], image_shape=(8, 8), labels=digits.y_test[:80])


def test_the_grid_shows_the_item_and_its_active_units(view: View) -> None:
    item = int(np.argmax((view.codes != 0).sum(1)))
    figure = figures.traversal_grid(view, item, n_units=3, values=[-1, 0, 1])
    draw(figure)
    z = view.codes[item]
    units = np.argsort(-np.abs(z), kind="stable")[: min(3, np.count_nonzero(z))]
    lines = np.reshape(figure.axes, (len(units), 4))
    for line, unit in zip(lines, units, strict=True):
        assert line[0].get_ylabel() == f"unit {unit}"
        assert [ax.get_xlabel() for ax in line[1:]] == ["-1.0", "off" if view.sparse else "0.0", "1.0"]
        assert np.array_equal(line[0].images[0].get_array(), view.decoded[item].reshape(8, 8))
        edited = z.copy()
        edited[unit] = 1
        expected = view.est.inverse_transform(edited[None]).reshape(8, 8)
        assert np.asarray(line[3].images[0].get_array()) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("mode", ["mixed", "continuous", "discrete"])
def test_the_strip_shows_every_frame_with_its_label(view: View, mode: str) -> None:
    figure = figures.interpolation_strip(view, 3, 8, steps=4, mode=mode)
    draw(figure)
    codes, labels = walk(view.codes[3], view.codes[8], 4, mode)
    tops = figure.axes[: len(codes)]
    assert [ax.get_title() for ax in tops] == list(labels)
    assert np.array_equal(tops[0].images[0].get_array(), view.est.inverse_transform(codes)[0].reshape(8, 8))


def test_the_matrix_shows_the_share_of_each_class(view: View) -> None:
    figure = figures.activation_matrix(view)
    draw(figure)
    shown = np.asarray(figure.axes[0].images[0].get_array())
    units = [int(text.get_text()) for text in figure.axes[0].get_xticklabels()]
    share = class_shares(view.codes, view.labels, sparse=view.sparse).share
    assert set(units) == set(np.flatnonzero(share.max(0)))
    assert shown == pytest.approx(100 * share[:, units])
    assert (np.diff(shown.argmax(0)) >= 0).all()


def test_pictures_of_nothing_say_so(digits: Any, vsc: Any) -> None:
    view = make_view(vsc, digits.X_test[:5], labels=digits.y_test[:5])
    view.codes[:] = 0
    for figure in (figures.traversal_grid(view), figures.activation_matrix(view)):
        draw(figure)
        assert "no unit is on" in figure.texts[0].get_text()
    draw(figures.interpolation_strip(view, 0, 1))
    with pytest.raises(ValueError, match="needs classes: make the view with labels=y"):
        figures.activation_matrix(make_view(vsc, digits.X_test[:5]))
