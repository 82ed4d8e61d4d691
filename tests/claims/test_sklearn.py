"""Claim: every estimator is a scikit-learn estimator. Its own checks pass, with none expected to fail."""

from __future__ import annotations

import copy
import inspect
import pickle
import typing
from operator import attrgetter
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import sklearn
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

import sparsevae as sv
from sparsevae.models import REGISTRY, known
from sparsevae.parameters import documented, spelled

pytestmark = pytest.mark.filterwarnings("ignore::sparsevae.exceptions.SparsityWarning")
MODELS = list(REGISTRY.values())
EVERY = list(known().values())  # with those that learn from labels, whose checks are in their own files
SPARSE = (sv.VSC, sv.PseudoVSC, sv.HSVAE, sv.SDLGM, sv.DiscreteVAE)  # whose codes are CSR matrices


def small(cls: type[sv.SparseCoder], **changes: Any) -> Any:
    training = sv.Training(**{"steps": 3, "verbose": 0} | changes.pop("training", {}))
    return cls(**{"n_components": 4, "hidden": (8,), "training": training} | changes)


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, np.ndarray]:
    X, y = load_digits(return_X_y=True)
    return (X[:600] > 7).astype(np.float64), y[:600]


# scikit-learn's own checks.


@parametrize_with_checks([small(cls) for cls in MODELS])
def test_scikit_learn_s_own_checks(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(
    [
        small(sv.VAE, likelihood="laplace"),
        small(sv.VAE, noise=False),
        small(sv.VSC, alpha=1.0),
        small(sv.VSC, gate="straight-through-concrete", scale="none"),
        small(sv.PseudoVSC, selection="paper", pseudo_inputs=3),
        small(sv.PseudoVSC, selection="authors", pseudo_inputs=1),
        small(sv.HSVAE, spike_scale=0.05, n_gamma=2, n_z=2),
        small(sv.BetaTCVAE, estimator="weighted"),
        small(sv.CapacityVAE, ramp=3),
    ]
)
def test_scikit_learn_s_own_checks_of_other_terms(estimator: Any, check: Any) -> None:
    """Settings that change a term of the loss, a density or a draw, and leave the way from X to codes as above."""
    check(estimator)


@pytest.mark.parametrize("cls", EVERY)
def test_the_tags_hide_nothing(cls: Any) -> None:
    tags = cls().__sklearn_tags__()
    assert not tags.non_deterministic
    assert not tags._skip_test
    assert not tags.no_validation
    assert tags.input_tags.sparse
    assert tags.input_tags.two_d_array


# The constructor.


@pytest.mark.parametrize("cls", [*EVERY, sv.Training])
def test_the_constructor_stores_its_arguments_verbatim(cls: Any) -> None:
    arguments = {name: object() for name in inspect.signature(cls).parameters}
    est = cls(**arguments)
    assert {k: getattr(est, k) for k in arguments} == arguments
    assert est.get_params(deep=False) == arguments


@pytest.mark.parametrize("cls", MODELS)
def test_only_n_components_is_positional(cls: Any) -> None:
    assert cls(7).n_components == 7
    with pytest.raises(TypeError):
        cls(7, (8,))


@pytest.mark.parametrize("cls", [*EVERY, sv.Training])
def test_defaults_survive_clone_repr_and_params(cls: Any) -> None:
    est = cls()
    assert repr(est) == f"{cls.__name__}()"
    assert clone(est).get_params() == est.get_params()
    assert cls(**est.get_params(deep=False)).get_params() == est.get_params()
    assert est._repr_html_()
    with pytest.raises(ValueError, match="Invalid parameter 'nonsense'"):
        est.set_params(nonsense=1)


def test_the_docstring_documents_every_parameter() -> None:
    for cls in [*EVERY, sv.Training, sv.Text]:
        rules = {p.name: p.rules for p in documented(cls)}
        for name, parameter in inspect.signature(cls).parameters.items():
            kind = spelled(parameter.annotation, rules[name])
            assert f"    {name} : {kind}, default={parameter.default!r}\n        " in cls.__doc__


def test_the_docstring_says_type_and_range_then_the_default() -> None:
    assert "\n    alpha : float in (0, 1] or None, default=None\n        Prior probability" in sv.VSC.__doc__
    assert "\n    n_components : int > 0 or None, default=None\n" in sv.VSC.__doc__
    assert "\n    sharpness : tuple (float > 0, float > 0), default=(50.0, 200.0)\n" in sv.VSC.__doc__
    assert "\n    tau : float > 0, Schedule or 'learned', default=0.5\n" in sv.SDLGM.__doc__
    assert "\n    decay_at : a step (int >= 0) or a share of the run (float in [0, 1]), default" in sv.Training.__doc__


@pytest.mark.parametrize("cls", EVERY)
def test_the_docstring_lists_what_a_fitted_model_has(cls: Any, digits: Any) -> None:
    X, y = digits
    est = cls(hidden=(8,), training=sv.Training(steps=2, verbose=0)).fit(X[:60], y[:60])
    section = inspect.getdoc(cls).split("Attributes\n----------\n")[1].split("\n\n")[0]
    for line in section.splitlines():
        names, _, about = line.partition(" : ")
        assert ", " in about
        for name in names.split(", "):
            attrgetter(name)(est)
    assert section.splitlines()[0].startswith("model_ : LatentModel, ")
    assert "As in `" not in cls.__doc__


def test_a_signature_has_types_and_defaults_and_no_sentence() -> None:
    """What an editor shows of a constructor: one argument per line and the docstring are a few screens."""
    assert str(inspect.signature(sv.VSC)).endswith(
        "alpha: float | None = None, patterns: int = 0, slab: str = 'normal') -> None"
    )
    for cls in [*EVERY, sv.Training, sv.Text]:
        signature, types = inspect.signature(cls), {p.name: p.type for p in documented(cls)}
        assert {name: p.annotation for name, p in signature.parameters.items()} == types
        assert typing.get_type_hints(cls.__init__) == types | {"return": type(None)}
        assert "Annotated" not in str(signature)
        most = 120 if cls is sv.VSC else 130  # those with thirty arguments and more
        assert len(signature.parameters) + 2 + len(inspect.getdoc(cls).splitlines()) < most


def test_what_scikit_learn_says_of_routing_takes_one_line() -> None:
    with sklearn.config_context(enable_metadata_routing=True):
        est = sv.VSC().set_fit_request(watch=True)
        assert est.get_metadata_routing().fit.requests == {"watch": True}
        assert "\n" not in est.set_fit_request.__doc__


def test_training_parameters_can_be_set_where_training_is_none() -> None:
    est = sv.VSC()
    assert est.set_params(training__learning_rate=0.5) is est
    assert est.training.learning_rate == 0.5
    assert est.training.get_params() == sv.Training(learning_rate=0.5).get_params()
    assert sv.VSC().set_params(training=None, training__steps=3).training.steps == 3
    assert sv.VSC().set_params(training=sv.Training(seed=4), training__steps=3).training.seed == 4
    with pytest.raises(ValueError, match="Invalid parameter 'learning_rat'"):
        sv.VSC().set_params(training__learning_rat=1)


def test_clones_share_no_training_object() -> None:
    est = small(sv.VSC)
    twin = clone(est).set_params(training__steps=9)
    assert (est.training.steps, twin.training.steps) == (3, 9)


# In company.


@pytest.mark.parametrize(
    "cls", [pytest.param(cls, marks=[] if cls is sv.VAE or cls in SPARSE else pytest.mark.slow) for cls in MODELS]
)
def test_in_a_pipeline_with_a_classifier(cls: Any, digits: Any) -> None:
    X, y = digits
    rows = 32 if cls in (sv.MAT, sv.BetaTCVAE) else 128  # these compare every row with every other
    settings: dict[str, Any] = {"steps": 400, "batch_size": rows, "learning_rate": 1e-2}
    if cls in (sv.PseudoVSC, sv.HSVAE, sv.BetaTCVAE):  # whose steps are long and whose codes are soon of use
        settings |= {"steps": 160, "batch_size": min(rows, 64), "learning_rate": 2e-2}
    training = sv.Training(**settings, kl_warmup=0.9, verbose=0)
    own = {sv.MAT: {"mmd_weight": 1.0}, sv.HSVAE: {"alpha": 0.5}}
    more = {"alpha": 0.3} if issubclass(cls, sv.VSC) else own.get(cls, {})
    pipe = make_pipeline(cls(24, hidden=(64,), training=training, **more), LogisticRegression(max_iter=2000))
    assert pipe.fit(X[:300], y[:300]).score(X[300:], y[300:]) > 0.5  # chance is 0.1
    assert pipe[:-1].get_feature_names_out()[0] == f"{cls.__name__.lower()}0"


@pytest.mark.parametrize(
    ("cls", "grid"),
    [
        (sv.VSC, {"alpha": [0.05, 0.5], "training__learning_rate": [1e-8, 5e-3]}),
        (sv.BetaVAE, {"beta": [1.0, 4.0], "training__learning_rate": np.array([1e-8, 5e-3])}),
        (sv.VAE, {"n_components": np.array([2, 4]), "training__batch_size": np.array([16, 32])}),
    ],
)
@pytest.mark.parametrize("given", [True, False], ids=["Training", "None"])
def test_grid_search_over_model_and_training(cls: Any, grid: Any, given: bool, digits: Any) -> None:
    X, _ = digits
    if given:
        est = small(cls, training={"steps": 20})
    else:  # every setting through the grid: training=None must do
        est = cls(4, hidden=(8,))
        grid = grid | {"training__steps": [20], "training__verbose": [0]}
    search = GridSearchCV(est, grid, cv=2, error_score="raise").fit(X[:100])
    scores = search.cv_results_["mean_test_score"]
    assert np.isfinite(scores).all()
    assert len(np.unique(scores)) == len(scores)  # every parameter made a difference
    if "training__learning_rate" in grid:
        assert search.best_params_["training__learning_rate"] == 5e-3  # 1e-8 learns nothing
    assert search.best_estimator_.transform(X).shape[0] == len(X)
    assert (est.training is None) == (not given)


def test_cross_validation_uses_the_bound_as_score(digits: Any) -> None:
    X, _ = digits
    scores = cross_val_score(small(sv.VSC), X[:90], cv=3)
    est = small(sv.VSC).fit(X[30:90])
    assert scores[0] == pytest.approx(est.score(X[:30]), abs=1e-9)


@pytest.mark.parametrize("cls", MODELS)
def test_fit_transform_is_fit_then_transform(cls: Any, digits: Any) -> None:
    X, _ = digits
    first, second = small(cls).fit_transform(X), small(cls).fit(X).transform(X)
    assert scipy.sparse.issparse(first) == issubclass(cls, SPARSE)
    assert abs(first - second).max() == 0


@pytest.mark.parametrize("cls", MODELS)
@pytest.mark.parametrize("copier", [lambda e: pickle.loads(pickle.dumps(e)), copy.deepcopy], ids=["pickle", "deepcopy"])
def test_copies_go_on_like_the_original(cls: Any, copier: Any, digits: Any) -> None:
    X, _ = digits
    est = small(cls).fit(X)
    twin = copier(est)
    assert abs(est.transform(X) - twin.transform(X)).max() == 0
    assert est.history_ == twin.history_
    before = est.score_samples(X)
    twin.partial_fit(X)
    assert np.array_equal(est.score_samples(X), before)  # nothing is shared
    est.partial_fit(X)
    assert abs(est.transform(X) - twin.transform(X)).max() == 0  # Adam's moments travelled too


# Names and frames.


@pytest.mark.parametrize("cls", MODELS)
def test_set_output_gives_a_dense_frame_of_the_same_codes(cls: Any, digits: Any) -> None:
    X, _ = digits
    est = small(cls).fit(X)
    codes = est.transform(X)
    dense = codes.toarray() if scipy.sparse.issparse(codes) else codes
    index = [f"row{i}" for i in range(len(X))]
    frame = est.set_output(transform="pandas").transform(pd.DataFrame(X, index=index).to_numpy())
    assert list(frame.columns) == list(est.get_feature_names_out()) == [f"{cls.__name__.lower()}{i}" for i in range(4)]
    assert np.array_equal(frame.to_numpy(), dense)
    assert frame.to_numpy().dtype == np.float32
    assert scipy.sparse.issparse(est.set_output(transform="default").transform(X)) == issubclass(cls, SPARSE)
    with sklearn.config_context(transform_output="pandas"):  # the library's own switch, without set_output
        assert np.array_equal(small(cls).fit(X).transform(X).to_numpy(), dense)
        assert np.array_equal(small(cls).fit_transform(X).to_numpy(), dense)


def test_max_active_holds_in_a_frame_too(digits: Any) -> None:
    X, _ = digits
    est = sv.VSC(12, hidden=(16,), training=sv.Training(steps=100, verbose=0)).fit(X)
    sparse = est.transform(X, max_active=2)
    assert np.array_equal(est.set_output(transform="pandas").transform(X, max_active=2).to_numpy(), sparse.toarray())


def test_feature_names_are_kept_and_compared(digits: Any) -> None:
    X = pd.DataFrame(digits[0][:, 20:26], columns=list("abcdef"), index=range(7, 607))
    est = small(sv.VSC).fit(X)
    assert list(est.feature_names_in_) == list("abcdef")
    assert est.n_features_in_ == 6
    frame = est.set_output(transform="pandas").transform(X)
    assert frame.index.equals(X.index)
    for call in (est.transform, est.score, est.score_samples, est.partial_fit, est.sample_like):
        with pytest.raises(ValueError, match="feature names should match"):
            call(X.rename(columns={"b": "z"})[:1])
        with pytest.raises(ValueError, match="feature names should match"):
            call(X[list("fedcba")][:1])
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        est.transform(X.to_numpy())


def test_names_and_methods_need_a_fit(digits: Any) -> None:
    X, _ = digits
    for name in ("transform", "score", "score_samples", "score_meaning", "importance_bound", "evaluate", "sample_like"):
        with pytest.raises(NotFittedError):
            getattr(sv.VSC(), name)(X[:1])
    for name in ("get_feature_names_out", "sample"):
        with pytest.raises(NotFittedError):
            getattr(sv.VSC(), name)()
    with pytest.raises(NotFittedError):
        sv.VSC().save("nowhere")


def test_a_fitted_width_does_not_follow_the_constructor(digits: Any) -> None:
    X, _ = digits
    est = small(sv.VSC).fit(X).set_params(n_components=9)
    assert len(est.get_feature_names_out()) == est.transform(X).shape[1] == 4
    assert est.inverse_transform(est.transform(X)).shape == X.shape
