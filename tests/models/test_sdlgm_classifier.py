"""Claim: SDLGMClassifier learns sets of labels by exact likelihoods, and behaves at every edge as documented."""

from __future__ import annotations

import copy
import itertools
import os
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow
import pytest
import scipy.sparse as sp
import torch
from conftest import Shifted, check_learner
from sklearn.base import clone
from sklearn.exceptions import DataConversionWarning, NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

import sparsevae as sv
from sparsevae import cli
from sparsevae.estimator.splits import MultiLabelKFold
from sparsevae.inputs.batch import Batch
from sparsevae.inputs.labels import read_labels
from sparsevae.latent.bounds import log_weights
from sparsevae.latent.model import Trace
from sparsevae.latent.objective import kl, nll
from sparsevae.likelihoods.labels import LABEL_LIKELIHOODS
from sparsevae.metrics import micro_f1
from sparsevae.metrics.thresholds import CANDIDATES, best_threshold, cut
from sparsevae.models import REGISTRY, SUPERVISED, known
from sparsevae.parameters import documented
from sparsevae.sampling.draw import Draw
from sparsevae.sampling.gradients import Score
from sparsevae.sampling.noise import PerRow, row_keys
from sparsevae.testing import check_model

D, L = 6, 4
rng = np.random.default_rng(0)
X = rng.normal(size=(320, D))
SCORES = X @ rng.normal(size=(D, L))
few = (SCORES > 1).sum(1) <= 3
X, SCORES = X[few][:300], SCORES[few][:300]
Y = (SCORES > 1).astype(int)  # up to three labels a row, by linear rules
TRAIN, TEST = slice(0, 200), slice(200, 300)


def make(*, training: Any = None, **changes: Any) -> Any:
    settings = {"steps": 20, "batch_size": 64, "learning_rate": 2e-2, "verbose": 0} | (training or {})
    return sv.SDLGMClassifier(**{"hidden": (16,), "threshold": 0.4, "training": sv.Training(**settings)} | changes)


CASES: dict[str, dict[str, Any]] = {
    "dis": {},
    "dis, set": {"label_likelihood": "set"},
    "dis, counts": {"features": "counts", "cap": 6},
    "dis, counts, set": {"features": "counts", "cap": 6, "label_likelihood": "set"},
    "dis, relaxed": {"features": "counts", "cap": 6, "label_likelihood": "relaxed", "gradient": "paper"},
    "gen": {"variant": "gen"},
    "gen, counts": {"variant": "gen", "features": "counts", "cap": 6},
    "con": {"variant": "con", "free_features": 3, "free_cap": 2},
    "con, counts": {"variant": "con", "features": "counts", "cap": 6, "free_features": 3, "free_cap": 2},
}


@cache
def fitted(name: str = "dis") -> Any:
    """A case after its few steps on X and Y, for those who leave it as it is."""
    return make(**CASES[name]).fit(X, Y)


@cache
def learned(name: str) -> Any:
    """A case that has learned from the rows to train on, for those who leave it as it is."""
    return make(**CASES[name], training={"steps": 120}).fit(X[TRAIN], Y[TRAIN])


@cache
def tuned() -> Any:
    """One whose threshold is that of two folds, for those who leave it as it is."""
    return make(threshold="cv", folds=2).fit(X, Y)


# -- scikit-learn -------------------------------------------------------------------------------------------------


@parametrize_with_checks([make(variant="con", features="counts", free_features=3, free_cap=2, training={"steps": 40})])
def test_scikit_learn_s_own_checks(estimator: Any, check: Any) -> None:
    check_learner(estimator, check)


@pytest.mark.slow
@parametrize_with_checks(
    [
        make(threshold="cv", folds=2, training={"steps": 40}),
        make(features="counts", label_likelihood="set", training={"steps": 40}),
        make(variant="gen", gradient="straight-through", training={"steps": 40}),
    ]
)
def test_scikit_learn_s_own_checks_of_other_laws(estimator: Any, check: Any) -> None:
    """A threshold, a likelihood of labels and a variant whose way from X and y to predictions is the one above."""
    check_learner(estimator, check)


def test_grid_search_tunes_model_and_training_for_f1() -> None:
    grid = {"hidden": [(4,), (16,)], "training__steps": [1, 60]}
    search = GridSearchCV(make(), grid, scoring="f1_micro", cv=MultiLabelKFold(3), error_score="raise").fit(X, Y)
    assert search.best_params_["training__steps"] == 60
    assert search.best_score_ > 0.75


def test_nothing_is_predicted_before_a_fit() -> None:
    for name in ("predict", "predict_proba", "predict_count", "transform"):
        with pytest.raises(NotFittedError):
            getattr(sv.SDLGMClassifier(), name)(X)


# -- learning -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_every_variant_learns_planted_labels(name: str) -> None:
    est = learned(name)
    P = est.predict(X[TEST])
    assert micro_f1(Y[TEST], np.ones_like(P)) < 0.5  # what needs no learning
    assert micro_f1(Y[TEST], P) > (0.7 if "relaxed" in name else 0.8)
    assert abs(est.predict_count(X[TEST]).mean() - Y[TEST].sum(1).mean()) < 0.4
    assert np.isfinite([v for row in est.history_ for v in row.values()]).all()


def test_without_a_cap_and_a_kl_it_is_a_network_with_a_cross_entropy_a_label() -> None:
    est = make(cap=L, kl_weight=0.0).fit(X, Y)
    x, y = torch.tensor(X, dtype=torch.float32), torch.tensor(Y, dtype=torch.float32)
    raw = est.model_.encoder(est.scaling_(x))
    trace = est.model_(Batch(est.scaling_(x), y), Draw(PerRow(row_keys(x), 0), hard=False))
    wanted = binary_cross_entropy_with_logits(raw, y, reduction="none").sum(-1)
    torch.testing.assert_close(nll(trace)["nll_y"], wanted)
    loss, terms = est.fitted_.objective(trace)
    torch.testing.assert_close(loss, terms["nll_y"])
    np.testing.assert_allclose(est.predict_proba(X), torch.sigmoid(raw).detach().numpy(), atol=1e-6)


@pytest.mark.parametrize("features", ["distinct", "counts"])
def test_sets_of_at_most_so_many_labels_have_all_the_probability(features: str) -> None:
    est = make(features=features, cap=2, label_likelihood="set").fit(X, np.where(Y.sum(1, keepdims=True) > 2, 0, Y))
    x = est.scaling_(torch.tensor(X[:20], dtype=torch.float32))
    q, total = est.model_.encode(x), torch.zeros(20)
    for labels in itertools.product((0.0, 1.0), repeat=L):
        y = torch.tensor(labels).expand(20, L)
        p = LABEL_LIKELIHOODS["set"](q, y).log_prob(y).exp()
        assert bool((p == 0).all()) == (sum(labels) > 2)
        total += p.detach()
    torch.testing.assert_close(total, torch.ones(20), atol=1e-5, rtol=0)


def test_free_features_explain_what_labels_do_not() -> None:
    noise = np.random.default_rng(1)
    cause = noise.random((300, 1)) > 0.5  # of five more features, and of no label
    both = np.hstack([X, 4 * cause + noise.normal(scale=0.3, size=(300, 5))])
    errors = []
    for variant in ("gen", "con"):
        est = make(variant=variant, gradient="straight-through", training={"steps": 150}).fit(both, Y)
        errors.append(np.mean((est.inverse_transform(est.transform(both)) - both)[:, D:] ** 2))
    assert errors[1] < 0.3 * errors[0]


def test_codes_are_labels_and_then_free_features() -> None:
    est = make(variant="con", free_features=3, free_cap=2, training={"steps": 60}).fit(X, Y)
    Z = est.transform(X)
    assert sp.issparse(Z)
    assert Z.shape == (300, L + 3)
    assert Z[:, L:].sum(1).max() <= 2
    assert Z[:, :L].sum(1).max() <= est.cap_
    assert (Z[:, :L].toarray() == Y).mean() > 0.8
    assert est.inverse_transform(Z).shape == X.shape
    assert est.sample(4).shape == (4, D)


@pytest.mark.parametrize("name", [name for name in CASES if not name.startswith("dis")])
def test_models_of_x_keep_the_conventions_of_models(name: str) -> None:
    est = copy.deepcopy(fitted(name))
    x = torch.tensor(X[:8], dtype=torch.float32)
    check_model(est.model_.requires_grad_(), est.scaling_(x))


def test_scores_of_x_are_below_the_exact_log_likelihood() -> None:
    est = make(variant="gen", features="counts", cap=2, x_weight=1.0, kl_weight=1.0).fit(X, Y)
    z = torch.tensor([c for c in itertools.product(range(3), repeat=L) if sum(c) <= 2], dtype=torch.float32)
    x = est.scaling_(torch.tensor(X[:30], dtype=torch.float32))
    with torch.no_grad():
        p = est.model_.decode(z[:, None].expand(-1, 30, -1))
        joint = p.log_prob(x) + est.model_.prior.marginal(est.model_.encode).log_prob(z)[:, None]
    exact = torch.logsumexp(joint, 0).numpy() + est.scaling_.log_det
    assert (est.score_samples(X[:30], n_samples=2000) <= exact + 0.02).all()
    assert np.abs(est.importance_bound(X[:30], n_samples=4000).bound - exact).max() < 0.2


def test_the_discriminative_variant_has_no_word_on_x() -> None:
    est = fitted()
    about_x = ("score_samples", "inverse_transform", "importance_bound", "relaxed_objective", "sample", "sample_like")
    generates = fitted("gen")
    for name in about_x:
        assert not hasattr(est, name)
        assert callable(getattr(generates, name))
    with pytest.raises(ValueError, match=r"no p\(x\|z\)"):
        est.evaluate(X)
    x, y = torch.tensor(X, dtype=torch.float32), torch.tensor(Y, dtype=torch.float32)
    with pytest.raises(ValueError, match="a bound needs hard draws"):  # nothing is drawn for an exact law of y
        log_weights(est.model_(Batch(x, y), Draw(PerRow(row_keys(x), 0), hard=True)))


@pytest.mark.parametrize("gradient", ["auto", "paper", "concrete"])
def test_a_relaxed_label_law_passes_a_gradient_from_every_row_s_labels(gradient: str) -> None:
    est = make(features="counts", cap=6, label_likelihood="relaxed", gradient=gradient, training={"steps": 1})
    est.fit(X, Y)
    x, y = torch.tensor(X, dtype=torch.float32), torch.tensor(Y, dtype=torch.float32)
    dist = est.model_(Batch(x, y), Draw(PerRow(row_keys(x), 0), hard=False)).observed["y"].dist
    weights = [p for p in est.model_.encoder.parameters() if p.dim() == 2]
    assert all(float(g.abs().max()) > 0 for g in torch.autograd.grad(dist.log_prob(y).mean(), weights))


@pytest.mark.parametrize(
    "settings",
    [{"features": "distinct"}, *({"features": "counts", "gradient": g} for g in ("straight-through", "rloo", "score"))],
)
def test_a_relaxed_label_law_of_hard_draws_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="learns from draws between 0 and 1"):
        make(label_likelihood="relaxed", **settings).fit(X, Y)


# -- what a draw answers for -----------------------------------------------------------------------------------------


class Reported:
    """Uniform noise that makes gates what they are to be, site by site: near 1 where one is on, near 0 elsewhere."""

    def __init__(self, *sites: Tensor) -> None:
        self.sites = iter(sites)

    def uniform(self, like: Tensor) -> Tensor:
        return next(self.sites).clamp(1e-6, 1 - 1e-6).to(like.dtype)


def test_a_draw_answers_only_for_what_hears_it() -> None:
    """Every outcome of four gates in two rows, 256 of them: with labels and the other part's KL left out of a draw's
    cost, the expected gradient is still that of the true objective, and its variance is a small part of what it was.
    """
    est = make(
        variant="con", cap=2, free_features=2, free_cap=2, gradient="score", label_likelihood="set", kl_weight=0.5
    )
    est.fit(X[TRAIN], Y[TRAIN, :2])
    x, y = X[:2], np.abs(Y[:2, :2] - [[0, 0], [1, 1]])  # the second row's labels are wrong, and so cost much
    model, objective = est.model_.double(), est.fitted_.objective.double()
    for module in model.modules():
        if isinstance(module, Score):
            module.normalise = False  # the division of a batch by its deviation is a bias of its own
    rows = Batch(est.scaling_(torch.tensor(x, dtype=torch.float32)).double(), torch.tensor(y))
    codes = torch.tensor(list(itertools.product([0.0, 1.0], repeat=8)), dtype=torch.float64).reshape(-1, 2, 4)
    own = list(model.encoder.parameters())

    every = rows.map(lambda t: t.expand(len(codes), -1, -1))
    trace = model(every, Draw(Reported(codes[..., :2], codes[..., 2:]), hard=False))
    assert torch.equal(torch.cat([site.value for site in trace.latents.values()], -1), codes)
    p = torch.stack([s.q.log_prob(s.value) for s in trace.latents.values()]).sum((0, -1)).exp()
    cost = objective.weigh({k: v.mean(-1) for k, v in objective.measure(trace).items()})
    assert float(p.detach().sum()) == pytest.approx(1.0)
    exact = flat(torch.autograd.grad((p * cost).sum(), own, retain_graph=True))

    def estimate(trace: Trace) -> tuple[Tensor, float]:
        losses, _ = objective(trace)
        each = torch.stack([flat(torch.autograd.grad(loss, own, retain_graph=True)) for loss in losses])
        mean = (p.detach()[:, None] * each).sum(0)
        return mean, float((p.detach() * (each - mean).square().sum(1)).sum())

    mean, variance = estimate(trace)
    before, noisier = estimate(trace._replace(parents=None))  # as if every site heard every draw before it
    torch.testing.assert_close(mean, exact, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(before, exact, rtol=1e-9, atol=1e-12)
    assert variance < 0.2 * noisier


def flat(tensors: tuple[Tensor, ...]) -> Tensor:
    return torch.cat([t.flatten() for t in tensors]).detach()


# -- labels and their names ------------------------------------------------------------------------------------------


def test_codes_are_named_after_their_labels() -> None:
    names = ["sad", "calm", "loud", "slow"][:L] + [f"more{j}" for j in range(L - 4)]
    est = make(variant="con", free_features=3).fit(X, Y, label_names=names)
    assert list(est.get_feature_names_out()) == [*names, "free0", "free1", "free2"]
    assert list(est.set_output(transform="pandas").transform(X).columns) == [*names, "free0", "free1", "free2"]


@pytest.mark.parametrize(
    ("y", "names", "words"),
    [
        (np.array(["a", None] * 50, dtype=object), None, "several types"),
        (np.eye(4, dtype=int)[np.arange(100) % 4], list("aabc"), "occurs twice"),
    ],
)
def test_labels_that_cannot_be_read_are_refused_in_words(y: Any, names: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make().fit(X[:100], y, label_names=names)


def test_the_encoder_does_not_see_the_labels() -> None:
    est = fitted("con")
    x, y = torch.tensor(X, dtype=torch.float32), torch.tensor(Y, dtype=torch.float32)
    with torch.no_grad():
        read = [est.model_.read(batch) for batch in (Batch(x), Batch(x, y), Batch(x, 1 - y))]
    assert torch.equal(read[0], read[1])
    assert torch.equal(read[0], read[2])


def test_terms_and_weights_are_those_of_the_variant() -> None:
    x, y = torch.tensor(X, dtype=torch.float32), torch.tensor(Y, dtype=torch.float32)
    wanted = {"dis": {"nll_y", "kl_z"}, "gen": {"nll_y", "nll_x", "kl_z"}, "con": {"nll_y", "nll_x", "kl_z", "kl_free"}}
    for variant, names in wanted.items():
        est = make(variant=variant, x_weight=0.5, kl_weight=0.25).fit(X, Y)
        trace = est.model_(Batch(x, y), Draw(PerRow(row_keys(x), 0), hard=variant != "dis"))
        assert {*nll(trace), *kl(trace)} == names
        assert set(est.fitted_.weights) == names - {"nll_y"}
        assert all(w == (0.5 if k == "nll_x" else 0.25) for k, w in est.fitted_.weights.items())


# -- predictions ----------------------------------------------------------------------------------------------------


def test_the_tuned_threshold_is_the_best_of_rows_that_no_fold_has_seen() -> None:
    est = make(threshold="cv", folds=3).fit(X, Y)
    P = np.zeros(Y.shape)
    for a, b in MultiLabelKFold(3, seed=0).split(X, Y):
        P[b] = make(cap=est.cap_).fit(X[a], Y[a]).predict_proba(X[b])
    scores = [micro_f1(Y, cut(P, t, est.max_labels_)) for t in CANDIDATES]
    assert est.threshold_ == best_threshold(Y, P, est.max_labels_)
    assert scores[CANDIDATES.index(est.threshold_)] == max(scores)
    assert np.array_equal(est.predict(X), cut(est.predict_proba(X), est.threshold_, est.max_labels_))


def test_a_given_threshold_is_taken_as_it_is() -> None:
    counts = [make(threshold=t).fit(X, Y).predict(X).sum() for t in (0.05, 0.4, 0.9)]
    assert counts[0] > counts[1] > counts[2]


@pytest.mark.parametrize("features", ["distinct", "counts"])
def test_no_prediction_has_more_than_max_labels_and_it_keeps_the_likeliest(features: str) -> None:
    est = make(features=features, cap=4, max_labels=2, threshold=0.01).fit(X, Y)
    P, labels = est.predict_proba(X), est.predict(X)
    assert labels.sum(1).max() == 2
    full = labels.sum(1) == 2
    kept = np.where(labels == 1, P, np.inf).min(1)
    dropped = np.where(labels == 0, P, -np.inf).max(1)
    assert (kept >= dropped)[full].all()


def test_ties_go_to_the_first_label() -> None:
    assert cut(np.full((1, 4), 0.6), 0.5, 2).tolist() == [[1, 1, 0, 0]]
    assert cut(np.full((1, 4), 0.5), 0.5, 2).tolist() == [[0, 0, 0, 0]]


def test_one_class_a_row_is_predicted_by_its_name() -> None:
    y = np.array(["cold", "mild", "warm"])[np.digitize(X[:, 0], [-0.5, 0.5])]
    est = make(training={"steps": 150}).fit(X[TRAIN], y[TRAIN])
    P = est.predict_proba(X[TEST])
    assert est.classes_.tolist() == est.label_names_ == ["cold", "mild", "warm"]
    np.testing.assert_allclose(P.sum(1), 1, atol=1e-5)
    assert np.array_equal(est.predict(X[TEST]), est.classes_[P.argmax(1)])
    assert est.score(X[TEST], y[TEST]) > 0.85
    assert est.cap_ == 1


def test_evaluate_says_how_good_labels_and_classes_are() -> None:
    est = fitted()
    found = est.evaluate(X, Y)
    assert found["micro_f1"] == micro_f1(Y, est.predict(X))
    assert found["macro_f1_harmonic"] >= found["macro_f1_mean"]
    assert found["exact"] == pytest.approx(est.score(X, Y))
    assert found["labels_true"] == pytest.approx(Y.sum(1).mean())
    y = (X[:, 0] > 0).astype(int)
    single = make().fit(X, y)
    assert single.evaluate(X, y)["exact"] == pytest.approx(single.score(X, y))
    assert "mse" in fitted("gen").evaluate(X)


# -- edges ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", ["dis", "dis, counts", "con"])
def test_a_label_never_seen_stays_and_is_not_predicted(case: str) -> None:
    unseen = np.hstack([Y, np.zeros((300, 1), int)])
    est = make(**CASES[case], training={"steps": 150}).fit(X, unseen)
    assert est.predict(X).shape == (300, L + 1)
    assert est.predict(X)[:, -1].sum() == 0
    assert est.predict_proba(X)[:, -1].max() < 0.3
    hasty = make(**CASES[case], threshold=0.1, training={"steps": 1}).fit(X, unseen)
    assert hasty.predict(X)[:, -1].sum() > 0  # no law but learning keeps it out


@pytest.mark.parametrize("case", ["dis", "dis, counts"])
def test_rows_without_labels_are_learned_as_such(case: str) -> None:
    empty = np.where(X[:, :1] > 0, Y, 0)
    est = make(**CASES[case], training={"steps": 150}).fit(X, empty)
    far = X[:, 0] < -1
    assert est.predict(X)[far].sum() == 0
    assert est.predict_count(X)[far].mean() < 0.3


@pytest.mark.parametrize("case", ["dis", "dis, set", "dis, counts"])
def test_all_labels_on_is_learned_as_such(case: str) -> None:
    own = CASES[case] | ({"cap": 12} if "counts" in case else {})  # draws with replacement: four labels take many
    est = make(**own, training={"steps": 150}).fit(X, np.ones((300, L), int))
    assert est.max_labels_ == L
    assert est.predict(X).all()


def test_no_label_at_all_is_learned_as_such() -> None:
    est = make(threshold="cv", folds=2).fit(X, np.zeros((300, L), int))
    assert est.threshold_ == 0.5
    assert est.predict(X).sum() == 0


def test_one_class_alone_is_always_predicted() -> None:
    est = make().fit(X, np.array(["only"] * 300))
    assert set(est.predict(X)) == {"only"}
    assert (est.predict_proba(X) == 1).all()
    one = make().fit(X, np.ones((300, 1), int))
    assert one.predict(X).shape == (300, 1)
    assert one.predict(X).all()


def test_more_labels_than_the_cap_are_learned_by_marginals_and_refused_as_sets() -> None:
    assert Y.sum(1).max() == 3
    est = make(features="counts", cap=2).fit(X, Y)  # SDLGM's choice on Emotions
    assert est.cap_ == 2
    assert micro_f1(Y, est.predict(X)) > 0.7
    refused = int((Y.sum(1) > 2).sum())
    with pytest.raises(ValueError, match=f"cap=2 gives sets of more labels no probability, and {refused} rows have"):
        est.set_params(label_likelihood="set").fit(X, Y)
    with pytest.raises(NotFittedError):
        est.predict(X)  # no old model goes with half-new settings


def test_the_cap_binds_the_law_and_its_codes_and_max_labels_the_prediction() -> None:
    """Marginals of a law of one label at most add up to 1, and several may still be above a threshold."""
    est = make(cap=1, threshold=0.1).fit(X, Y)
    assert (est.cap_, est.max_labels_) == (1, 3)
    assert est.predict_proba(X).sum(1).max() < 1 + 1e-6
    assert est.transform(X).sum(1).max() == 1
    assert 1 < est.predict(X).sum(1).max() <= 3


def test_few_rows_keep_the_threshold_of_one_half() -> None:
    assert make(threshold="cv").fit(X[:5], Y[:5]).threshold_ == 0.5


BAD: dict[str, tuple[Any, str]] = {
    "none": (None, "requires y to be passed"),
    "too few": (Y[:10], "inconsistent numbers of samples"),
    "numbers": (SCORES, "must hold 0 and 1 alone"),
    "real numbers": (SCORES[:, 0], "Unknown label type"),
    "lists": ([[0, 1], [2]] * 150, "lists of different lengths: .*MultiLabelBinarizer"),
    "sets": ([{0, 1}, {2}] * 150, "values of type set: .*MultiLabelBinarizer"),
    "sets of two kinds": ([{0}, frozenset({2})] * 150, "values of type frozenset and set: .*MultiLabelBinarizer"),
    "a column of lists": (pd.Series([[0, 1], [2, 3]] * 150), "values of type list: .*MultiLabelBinarizer"),
    "classes of two types": (np.array([0, "a"] * 150, dtype=object), "several types, int, str: give classes of one"),
    "one name for two": (pd.DataFrame(Y, columns=list("abca")), "columns of y must be distinct; 'a' occurs twice: re"),
    "missing": (np.where(Y == 1, np.nan, Y), "Input y contains NaN"),
    "a cube": (np.zeros((300, 2, 2)), "dim 3"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_y_that_holds_no_labels_is_refused_with_a_reason(name: str) -> None:
    y, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        make().fit(X, y)


def test_a_column_of_classes_is_taken_for_classes_with_a_warning() -> None:
    y = np.digitize(X[:, 0], [-0.5, 0.5])
    with pytest.warns(DataConversionWarning, match="column-vector"):
        est = make().fit(X, y[:, None])
    assert np.array_equal(est.predict(X), make().fit(X, y).predict(X))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"variant": "both"}, "variant must be 'dis', 'gen' or 'con', got 'both'"),
        ({"label_likelihood": "bce"}, "label_likelihood must be 'marginals', 'set' or 'relaxed', got"),
        ({"features": "many"}, "features must be 'distinct' or 'counts', got"),
        ({"cap": 0}, "cap must be an integer above 0"),
        ({"max_labels": 1.5}, "max_labels must be an integer above 0"),
        ({"free_features": None}, "free_features must be"),
        ({"threshold": 1.0}, "threshold must be"),
        ({"threshold": "best"}, "threshold must be"),
        ({"folds": 1}, "folds must be"),
        ({"kl_weight": -1.0}, "kl_weight must be"),
        ({"x_weight": np.nan}, "x_weight must be"),
        ({"tau": "learned"}, "tau must be a number above 0 or a schedule of such numbers, got 'learned'"),
        ({"gradient": "paper"}, "cannot keep the cap of features='distinct'"),
        ({"training": {"free_bits": 1.0}}, "SDLGMClassifier has none"),
        ({"image_shape": (5, 5)}, "image_shape must be that of a row"),
    ],
)
def test_arguments_that_cannot_work_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(**changes).fit(X, Y)


# -- forms of y, and the disk ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [sp.csr_matrix, sp.csr_array, sp.coo_matrix])
def test_sparse_labels_are_dense_labels(form: Any) -> None:
    dense, sparse = tuned(), make(threshold="cv", folds=2).fit(X, form(Y))
    assert np.array_equal(dense.predict_proba(X), sparse.predict_proba(X))
    assert dense.threshold_ == sparse.threshold_
    assert sp.issparse(sparse.predict(X))
    assert np.array_equal(sparse.predict(X).toarray(), dense.predict(X))
    assert sparse.evaluate(X, form(Y)) == sparse.evaluate(X, Y) == dense.evaluate(X, Y)


@pytest.mark.parametrize("form", [lambda v: v.tolist(), pd.DataFrame, torch.tensor, lambda v: v > 0, np.float64])
def test_labels_may_come_as_lists_frames_tensors_booleans_and_floats(form: Any) -> None:
    assert np.array_equal(make().fit(X, form(Y)).predict(X), fitted().predict(X))


@pytest.mark.parametrize("kind", [int, float, bool])
def test_objects_that_are_numbers_are_numbers(kind: Any) -> None:
    for y in (Y, Y[:, 0]):
        numbers = y.astype(kind)
        one, other = make().fit(X, numbers), make().fit(X, numbers.astype(object))
        assert np.array_equal(one.predict(X), other.predict(X))
        assert one.classes_.dtype == other.classes_.dtype


def test_a_frame_may_have_numbers_and_booleans_side_by_side() -> None:
    frame = pd.DataFrame(Y).astype({0: bool, 2: float})
    assert np.array_equal(make().fit(X, frame).predict(X), fitted().predict(X))


@pytest.mark.parametrize("form", [sp.csr_matrix, lambda v: v.astype(np.float32)])
def test_rows_may_be_sparse_or_single_precision(form: Any) -> None:
    rows = np.where(np.abs(X) > 1, X, 0)
    a, b = (make(scale="none").fit(v, Y).predict_proba(v) for v in (rows, form(rows)))
    np.testing.assert_allclose(a, b, atol=1e-4)


def test_a_memory_map_gives_the_same_model(tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    assert np.array_equal(make().fit(mapped, Y).predict_proba(mapped), fitted().predict_proba(X))


def test_names_of_labels_are_kept_from_frames_and_arguments(tmp_path: Path) -> None:
    names = ["calm", "sad", "angry", "glad"]
    framed = make().fit(X, pd.DataFrame(Y, columns=names))
    assert make().fit(X, pyarrow.Table.from_pandas(pd.DataFrame(Y, columns=names))).label_names_ == names
    assert framed.label_names_ == names
    named = make().fit(X, Y, label_names=names)
    assert named.label_names_ == names
    named.save(tmp_path / "model")
    assert sv.load(tmp_path / "model").label_names_ == names
    assert fitted().label_names_ == ["0", "1", "2", "3"]
    with pytest.raises(ValueError, match="must name the 4 labels of y, got 2"):
        make().fit(X, Y, label_names=["a", "b"])


@pytest.mark.parametrize("name", CASES)
def test_a_model_survives_the_disk(name: str, tmp_path: Path) -> None:
    est = learned(name)
    assert len(np.unique(est.predict(X), axis=0)) > 4
    est.save(tmp_path / "model")
    again = sv.load(tmp_path / "model")
    assert type(again) is sv.SDLGMClassifier
    assert np.array_equal(again.predict_proba(X), est.predict_proba(X))
    assert np.array_equal(again.predict(X), est.predict(X))
    assert (again.threshold_, again.cap_, again.max_labels_) == (est.threshold_, est.cap_, est.max_labels_)
    assert again.evaluate(X, Y) == est.evaluate(X, Y)
    again.partial_fit(X, Y)


@pytest.mark.parametrize("classes", [[3, 5, 9], ["a", "bb", "ccc"], [-1.0, 0.0, 2.0], [False, True]])
def test_classes_survive_the_disk_with_their_type(classes: list[Any], tmp_path: Path) -> None:
    y = np.array(classes)[np.arange(300) % len(classes)]
    est = make().fit(X, y)
    est.save(tmp_path / "model")
    again = sv.load(tmp_path / "model")
    assert again.classes_.dtype == est.classes_.dtype == y.dtype
    assert np.array_equal(again.predict(X), est.predict(X))


def test_a_run_with_other_labels_is_not_resumed(tmp_path: Path) -> None:
    settings = {"folder": str(tmp_path / "run")}
    first = make(training=settings).fit(X, Y)
    again = make(training=settings | {"resume": True}).fit(X, Y)
    assert np.array_equal(first.predict_proba(X), again.predict_proba(X))
    with pytest.raises(ValueError, match="data"):
        make(training=settings | {"resume": True}).fit(X, 1 - Y)


def test_partial_fit_goes_on_learning_and_knows_its_labels() -> None:
    est = make()
    for _ in range(12):
        est.partial_fit(X, Y)
    assert micro_f1(Y, est.predict(X)) > 0.7
    with pytest.raises(ValueError, match=r"fitted to labels, \(n, 4\); got y of shape \(300, 3\)"):
        est.partial_fit(X, Y[:, :3])
    with pytest.raises(ValueError, match=r"fitted to labels"):
        est.partial_fit(X, Y[:, 0])
    y = np.digitize(X[:, 0], [-0.5, 0.5])
    single = make().partial_fit(X[y < 2], y[y < 2], classes=[0, 1, 2])
    assert single.predict_proba(X).shape == (300, 3)
    single.partial_fit(X, y)
    with pytest.raises(ValueError, match=r"y holds classes \[7\] beside those known"):
        single.partial_fit(X, np.where(y == 2, 7, y))


def test_reading_labels_keeps_what_they_are_like() -> None:
    labels, Z = read_labels(sp.csr_matrix(Y), None, names=list("abcd"))
    assert (labels.single, labels.sparse, labels.names) == (False, True, list("abcd"))
    assert np.array_equal(Z.toarray(), Y)


# -- every parameter ------------------------------------------------------------------------------------------------


CON: dict[str, Any] = {"variant": "con", "free_features": 3, "free_cap": 2}
COUNTS: dict[str, Any] = {"features": "counts", "cap": 5}
EFFECTS: dict[str, tuple[dict[str, Any], Any]] = {
    # parameter: what else must be set for it to matter, another value
    "hidden": ({}, (9,)),
    "decoder_hidden": (CON, (9,)),
    "skip": (CON | {"skip": False}, True),
    "network": ({"image_shape": (2, 3)}, "conv"),
    "image_shape": ({"network": "conv", "image_shape": (2, 3)}, (3, 2)),
    "likelihood": (CON, "laplace"),
    "variance_floor": (CON | {"likelihood": "gaussian"}, 0.3),
    "variance": (CON | {"likelihood": "laplace"}, 0.5),
    "scale": ({}, "none"),
    "encoder": ({}, Shifted(D)),
    "decoder": (CON, Shifted(L + 3)),
    "training": ({}, sv.Training(steps=9, verbose=0)),
    "variant": ({}, "gen"),
    "cap": ({}, 2),
    "features": ({}, "counts"),
    "label_likelihood": ({}, "set"),
    "kl_weight": ({}, 0.5),
    "x_weight": (CON, 1.0),
    "free_features": (CON, 4),
    "free_cap": (CON, 1),
    "max_labels": ({"threshold": 0.1}, 1),
    "threshold": ({}, 0.2),
    "alpha": ({}, 0.3),
    "kl": (COUNTS | {"kl_weight": 0.5}, "paper"),
    "gradient": (CON, "straight-through"),
    "tau": (CON | COUNTS | {"gradient": "paper"}, 2.0),
    "tau_z": (CON | COUNTS, 2.0),
    "gate_hidden": (COUNTS, (5,)),
    "shared_layers": (COUNTS, 1),
}


def outcome(changes: dict[str, Any]) -> list[np.ndarray[Any, Any]]:
    changes = dict(changes)
    training = changes.pop("training", sv.Training(steps=5, batch_size=64, learning_rate=1e-2, verbose=0))
    est = sv.SDLGMClassifier(**{"hidden": (8,), "threshold": 0.4} | changes, training=training)
    est.fit(X[:80], Y[:80])
    weights = [v.detach().numpy() for v in est.model_.state_dict().values()]
    return [est.predict_proba(X), est.predict(X), np.array([est.threshold_]), *weights]


@pytest.mark.parametrize("name", [p.name for p in documented(sv.SDLGMClassifier) if p.name != "folds"])
def test_every_parameter_changes_the_result(name: str) -> None:
    base, value = EFFECTS[name]
    a, b = outcome(base), outcome(base | {name: value})
    assert len(a) != len(b) or any(u.shape != v.shape or not np.array_equal(u, v) for u, v in zip(a, b, strict=True))


def test_there_are_as_many_more_fits_as_folds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose best thresholds may well be the same, so the table above cannot show it."""
    asked: list[int] = []
    plain = sv.SDLGMClassifier.predict_proba
    monkeypatch.setattr(
        sv.SDLGMClassifier, "predict_proba", lambda self, rows: asked.append(len(rows)) or plain(self, rows)
    )
    for folds in (2, 3):
        asked.clear()
        make(threshold="cv", folds=folds, training={"steps": 2}).fit(X, Y)
        assert len(asked) == folds
        assert sum(asked) == len(X)


def test_a_clone_has_the_same_parameters_and_units_are_no_parameter() -> None:
    est = make(**CASES["con"])
    assert clone(est).get_params()["free_features"] == 3
    assert "n_components" not in est.get_params()
    with pytest.raises(TypeError):
        sv.SDLGMClassifier(n_components=3)  # type: ignore[call-arg]


def test_without_settings_training_stops_early() -> None:
    assert sv.SDLGMClassifier().training_settings().patience == 5
    est = sv.SDLGMClassifier().set_params(training__steps=7)
    assert (est.training.steps, est.training.patience) == (7, 5)
    assert sv.VAE().training_settings().patience is None


# -- the registry and the command line ------------------------------------------------------------------------------


def test_models_of_labels_have_a_registry_of_their_own() -> None:
    assert set(SUPERVISED) == {"CodeClassifier", "SDLGMClassifier", "SDLGMCounter"}
    assert not set(SUPERVISED) & set(REGISTRY)
    assert set(known()) == set(SUPERVISED) | set(REGISTRY)
    for name, cls in SUPERVISED.items():
        assert getattr(sv, name) is cls
        assert "References\n" in cls.__doc__
        assert ">>> " in cls.__doc__


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    capsys.readouterr()
    code = cli.main([str(w) for w in words])
    return code, *capsys.readouterr()


def test_the_command_line_fits_and_judges_a_classifier(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "model"
    words = ("--data", "digits", "--hidden", 32, "--steps", 150, "--learning-rate", 0.01)
    words = (*words, "--patience", "none", "--device", "cpu", "-q")
    code, shown, wrong = run(capsys, "fit", "sdlgm-classifier", *words, "--out", out)
    assert (code, wrong) == (0, "")
    assert "(10 labels), 150 steps" in shown
    est = sv.load(out)
    assert est.label_names_ == [str(d) for d in range(10)]
    code, shown, _ = run(capsys, "evaluate", out, "--data", "digits", "--json")
    assert code == 0
    assert '"micro_f1": 0.9' in shown
    assert "micro F1" in run(capsys, "evaluate", out, "--data", "digits")[1]
    assert run(capsys, "evaluate", out, "--data", "digits", "--caps", "3")[0] == 1


def test_the_command_line_names_data_without_labels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--data", "tiles", "--data-option", "n=50", "--data-option", "n_test=0")
    code, _, wrong = run(capsys, "fit", "sdlgm-classifier", *words, "--out", tmp_path / "m")
    assert code == 1
    assert "learns from y, and tiles (train) has none" in wrong


EMOTIONS = Path(os.environ.get("SPARSEVAE_DATA", "nowhere")) / "emotions"


@pytest.mark.slow
@pytest.mark.skipif(not EMOTIONS.is_dir(), reason="needs $SPARSEVAE_DATA/emotions")
def test_emotions_are_learned_as_well_as_the_linear_baselines_are(tmp_path: Path) -> None:
    """Published micro-F1: 66.75 (logistic), 70.99 (SDLGM-Dis)."""
    words = "fit sdlgm-classifier --data emotions --hidden 64 --steps 100 --learning-rate 4e-3 --folds 2 -q"
    words += " --patience none --validation-fraction 0"
    assert cli.main([*words.split(), "--out", str(tmp_path / "m")]) == 0
    est, data = sv.load(tmp_path / "m"), sv.data.load("emotions")
    assert est.label_names_ == list(data.label_names or ())
    assert est.evaluate(data.X_test, data.y_test)["micro_f1"] > 0.67
