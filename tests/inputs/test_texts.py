"""Claims: a list of texts is as good an X as an array. Any form of it gives the same codes, codes depend on a text and
on nothing beside it, scores are bounds, codes become texts again, and what cannot be read is refused in words."""

from __future__ import annotations

import copy
import json
import math
import pickle
import signal
import tracemalloc
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from safetensors.torch import load_file
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from torch import nn

import sparsevae as sv
from sparsevae import cli, metrics
from sparsevae.distributions.family import at_least_float32
from sparsevae.estimator.learning import signature, training_for
from sparsevae.inputs.arrays import Arrays
from sparsevae.inputs.kind import holds_texts
from sparsevae.inputs.ragged import Ragged
from sparsevae.inputs.texts import Text, Texts, _lengths
from sparsevae.latent.model import LatentModel
from sparsevae.latent.objective import kl, nll
from sparsevae.latent.posteriors import GaussianPosterior
from sparsevae.latent.priors import StandardNormal
from sparsevae.likelihoods.gaussian import GaussianData
from sparsevae.models import REGISTRY, known
from sparsevae.networks.recurrent import GRU, SharedEmbedding, Writer, generate
from sparsevae.parameters import documented, parameters
from sparsevae.sampling.draw import Draw
from sparsevae.sampling.gradients import StraightThroughConcrete
from sparsevae.sampling.noise import PerRow, row_keys
from sparsevae.testing import check_model
from sparsevae.text.ids import EOS, ends
from sparsevae.text.splitting import UNKNOWN
from sparsevae.text.vocabulary import Vocabulary
from sparsevae.training.step import Run

pytestmark = pytest.mark.filterwarnings("ignore::sparsevae.exceptions.SparsityWarning")
WITHOUT = sorted(name for name, cls in known().items() if "text" not in {p.name for p in documented(cls)})
TAKERS = {name: cls for name, cls in REGISTRY.items() if name not in WITHOUT}
FARM = ("cow eats green grass", "horse runs on grass", "hen lays an egg", "farmer feeds the cow and the hen")
TOWN = ("tram stops at corner", "shop sells a lamp", "clerk takes tram to office at nine", "street is loud")


def corpus(n: int = 240, seed: int = 0) -> tuple[list[str], np.ndarray]:
    """Sentences of two topics, of 4 to 14 words, and their topics."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    texts = []
    for topic in y:
        parts = rng.choice((FARM, TOWN)[topic], rng.integers(1, 3))
        texts.append("the " + " and ".join(parts))
    return texts, y


def make(
    cls: Any = sv.VAE, *, training: dict[str, Any] | None = None, text: dict[str, Any] | None = None, **changes: Any
) -> Any:
    settings = sv.Training(**{"steps": 4, "batch_size": 32, "learning_rate": 1e-2, "verbose": 0} | (training or {}))
    words = Text(**{"max_length": 20, "embedding": 6} | (text or {}))
    return cls(**{"n_components": 4, "hidden": (12,), "text": words, "training": settings} | changes)


X, Y = corpus()


@cache
def plain(cls: Any = sv.VSC) -> Any:
    """`make(cls)` of X, for those who leave it as it is."""
    return make(cls).fit(X)


@pytest.fixture(scope="module")
def fitted() -> dict[str, Any]:
    """A dense and a sparse model that have learned something."""
    long = {"steps": 250, "schedules": {"kl_z": sv.Constant(0.1)}}  # or so few sentences need no code
    fast = long | {"steps": 120, "learning_rate": 2e-2}
    return {
        "VAE": make(sv.VAE, n_components=6, hidden=(24,), training=fast).fit(X),
        "VSC": make(sv.VSC, alpha=0.4, n_components=8, hidden=(24,), training=long).fit(X),
    }


each = pytest.mark.parametrize("kind", ["VAE", "VSC"])


def dense(Z: Any) -> np.ndarray:
    return Z.toarray() if sp.issparse(Z) else np.asarray(Z)


def weights(est: Any) -> int:
    return sum(p.numel() for p in est.model_.parameters())


# -- what counts as texts --------------------------------------------------------------------------------------------


def saved(ending: str, how: Callable[[Path], Any]) -> Callable[[Path], str]:
    def form(folder: Path) -> str:
        how(folder / f"X{ending}")
        return str(folder / f"X{ending}")

    return form


frame = pd.DataFrame({"id": range(len(X)), "note": "a", "said": X})
FORMS: dict[str, Callable[[Path], Any]] = {
    "list": lambda _: X,
    "tuple": lambda _: tuple(X),
    "generator": lambda _: (text for text in X),
    "object array": lambda _: np.array(X, dtype=object),
    "array of str": lambda _: np.array(X),
    "a column": lambda _: np.array(X, dtype=object)[:, None],
    "bytes": lambda _: [text.encode() for text in X],
    "Series": lambda _: pd.Series(X, index=range(7, 7 + len(X))),
    "Series of strings": lambda _: pd.Series(X, dtype="string"),
    ".txt": saved(".txt", lambda path: path.write_text("\n".join(X))),
    "Path": lambda folder: Path(FORMS[".txt"](folder)),
    "DataFrame": lambda _: frame,
    ".csv": saved(".csv", lambda path: frame.to_csv(path, index=False)),
    ".parquet": saved(".parquet", lambda path: frame.to_parquet(path)),
}
TABLES = ("DataFrame", ".csv", ".parquet")


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_the_texts_gives_the_same_model_and_codes(form: str, tmp_path: Path) -> None:
    expected = plain()
    est = make(sv.VSC, text={"column": "said"} if form in TABLES else {}).fit(FORMS[form](tmp_path))
    assert est.input_.vocabulary == expected.input_.vocabulary
    assert est.fingerprint_ == expected.fingerprint_
    assert np.array_equal(dense(est.transform(FORMS[form](tmp_path))), dense(expected.transform(X)))
    scores = est.score_samples(FORMS[form](tmp_path), n_samples=2), expected.score_samples(X, n_samples=2)
    assert np.array_equal(*scores)
    assert np.array_equal(dense(est.transform(X)), dense(expected.transform(X)))  # a list does after a table too


NUMBERS: dict[str, Any] = {
    "array": np.zeros((3, 2)),
    "one column": np.zeros((3, 1)),
    "one dimension": np.zeros(3),
    "numbers as objects": np.zeros((3, 1), dtype=object),
    "list of lists": [[1.0, 2.0], [3.0, 4.0]],
    "list of numbers": [1, 2, 3],
    "nothing but None": [None, None],
    "strings in two columns": np.array([["a", "b"], ["c", "d"]]),
    "tensor": torch.zeros(3, 2),
    "CSR": sp.csr_matrix((3, 2)),
    "DOK": sp.dok_array((3, 2)),
    "DataFrame": frame,
    "Table": sv.data.Table(np.zeros((3, 2)), ("height", "weight")),
    "Table of one column": sv.data.Table(np.zeros((3, 1)), ("height",)),
    "Table of one CSR column": sv.data.Table(sp.csr_array((3, 1)), ("height",)),
    "None": None,
    "a number": 3.0,
    "nothing": [],
    "no objects": np.array([], dtype=object),
    "a dict without values": {},
    "a dict of arrays and words": {"data": np.zeros((3, 2)), "about": "numbers"},
    "a set of numbers": {1, 2},
    "a .csv": "X.csv",
    "a .npy": Path("X.npy"),
    "another file": "X.py",
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_stay_numbers(name: str) -> None:
    assert not holds_texts(NUMBERS[name], None)


@pytest.mark.parametrize(
    "given",
    [
        "X.txt",
        Path("a/b.TXT"),
        "one text. And more",
        "word",
        b"bytes",
        ["a", 3],
        [None, "a"],
        {"a", "b"},
        {1: "a"},
        [["a"]],
        sv.data.Table(np.array([["a"], ["b"]], dtype=object), ("said",)),
    ],
)
def test_texts_are_texts(given: Any) -> None:
    assert holds_texts(given, None)


def test_fit_transform_takes_a_generator_once() -> None:
    assert np.array_equal(make().fit_transform(text for text in X), make().fit(X).transform(X))


# -- networks --------------------------------------------------------------------------------------------------------


def test_auto_is_a_gru_for_texts_and_dense_for_numbers() -> None:
    est = plain(sv.VAE)
    assert isinstance(est.model_.decoder, Writer)
    assert weights(make(network="gru").fit(X)) == weights(est)
    table = np.random.default_rng(0).normal(size=(30, 5))
    assert isinstance(make().fit(table).input_, Arrays)
    assert weights(make().fit(table)) == weights(make(network="dense").fit(table))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"network": "dense"}, "for texts network must be 'auto' or 'gru', got 'dense'"),
        ({"network": "conv"}, "for texts network must be"),
        ({"likelihood": "bernoulli"}, "for texts likelihood must be 'auto', got 'bernoulli'"),
        ({"scale": "standard"}, "for texts scale must be 'auto' or 'none'"),
        ({"image_shape": (2, 4)}, "for texts image_shape must be None"),
        ({"encoder": nn.Linear(4, 4)}, "for texts encoder must be None"),
        ({"decoder": nn.Linear(4, 4)}, "for texts decoder must be None"),
        ({"skip": True}, "for texts skip must be None or False, got True"),
        ({"decoder_hidden": (4,)}, r"for texts decoder_hidden must be None, got \(4,\)"),
        ({"hidden": (8, 8)}, r"for texts hidden must be one size.*got \(8, 8\)"),
        ({"hidden": ()}, "for texts hidden must be one size"),
        ({"training": {"binarise": True}}, r"training\.binarise is for pixels"),
        ({"cls": sv.SDLGM, "shared_layers": 1}, "for texts shared_layers must be 0, got 1"),
    ],
)
def test_settings_that_texts_have_no_use_for_are_refused(settings: dict[str, Any], message: str) -> None:
    est = make(**settings)
    with pytest.raises(ValueError, match=message):
        est.fit(X)
    with pytest.raises(NotFittedError):
        est.transform(X)


def test_a_gru_for_numbers_is_refused() -> None:
    with pytest.raises(ValueError, match=r"network='gru' is for texts, and X is numbers"):
        make(network="gru").fit(np.zeros((5, 3)))


@pytest.mark.parametrize("name", WITHOUT)
def test_models_that_need_numbers_say_so(name: str) -> None:
    est = known()[name](hidden=(8,), training=sv.Training(steps=2, verbose=0))
    assert "text" not in est.get_params(deep=False)
    with pytest.raises(ValueError, match=f"{name} needs rows of numbers, and X holds texts"):
        est.fit(X, Y)


@pytest.mark.parametrize(("ids", "published"), [(20_002, 17_861_794), (19_999, 17_859_487)])
def test_hsvae_has_as_many_parameters_as_published(ids: int, published: int) -> None:
    """DBpedia and Yelp with 32 dimensions: one embedding for both networks, four heads, no other layer."""
    words = (*(f"w{i}" for i in range(ids - 3)), UNKNOWN)
    text = Text(embedding=256, vocabulary=Vocabulary(words))
    model = sv.HSVAE(32, hidden=(512,), text=text).prepare(["w1 w2", "w3"]).model_
    assert sum(p.numel() for p in model.parameters()) == published
    assert sum(v.numel() for v in model.state_dict().values()) == published  # and none is stored twice


def test_the_embedding_is_one_for_both_networks_wherever_the_model_goes(tmp_path: Path) -> None:
    est = plain(sv.VAE)
    est.save(tmp_path / "model")
    for twin in (est, copy.deepcopy(est), pickle.loads(pickle.dumps(est)), sv.load(tmp_path / "model").to("cpu")):
        model = twin.model_
        assert isinstance(model.decoder.words, SharedEmbedding)
        assert model.decoder.words.weight is model.encoder[0].words.weight
        assert sum(p is model.decoder.words.weight for p in model.parameters()) == 1
    (stored,) = (tmp_path / "model").glob("*.safetensors")
    shape = tuple(est.model_.decoder.words.weight.shape)
    assert [tuple(v.shape) for v in load_file(stored).values()].count(shape) == 1


def test_the_embedding_learns_from_reader_and_writer() -> None:
    est = make().fit(X)
    x = torch.tensor(est.fitted_.rows(X[:5]), dtype=torch.float32)
    est.model_.requires_grad_()
    words = est.model_.encoder[0].words.weight
    by_reader = torch.autograd.grad(est.model_.encode(x).mean.sum(), words)[0]
    by_writer = torch.autograd.grad(est.model_.decode(torch.zeros(5, 4)).log_prob(x).sum(), words)[0]
    assert bool(by_reader[EOS].any())
    assert bool(by_writer[EOS].any())


@each
def test_a_model_of_texts_keeps_the_conventions_of_every_model(kind: str, fitted: dict[str, Any]) -> None:
    est = copy.deepcopy(fitted[kind])
    few = [*list(dict.fromkeys(X))[:5], "hen " * 20]  # as long as there may be
    x = torch.tensor(est.fitted_.rows(few), dtype=torch.float32)
    check_model(est.model_.requires_grad_(), x)


def test_padding_changes_no_term() -> None:
    """Rows at a training width and at full width: the same story."""
    est = plain(sv.VAE)
    x = torch.tensor(est.fitted_.rows(X[:8]), dtype=torch.float32)
    narrow = x[:, : int((x != 0).sum(1).max())]
    assert narrow.shape[1] < x.shape[1]
    keys = row_keys(x)
    wide_, narrow_ = (est.model_(rows, Draw(PerRow(keys, 0), hard=False)) for rows in (x, narrow))
    for term in (nll, kl):
        for a, b in zip(term(wide_).values(), term(narrow_).values(), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


def test_training_sees_texts_at_few_widths() -> None:
    est = plain(sv.VAE)
    rows = est.input_.lay_out(est.fitted_.rows(X), torch.device("cpu"))
    assert isinstance(rows, Ragged)
    assert rows.shape == (len(X), 24)  # 20 words and EOS, in eights
    lengths = np.array([len(text.split()) + 1 for text in X])
    assert np.array_equal(rows.lengths.numpy(), lengths)
    assert 1 < len(rows.widths) <= 4
    assert rows.widths[-1] >= lengths.max()


class Halved(nn.Linear):
    """A layer whose output is bfloat16, as autocast gives it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x).bfloat16()


def test_laws_are_computed_in_float32_whatever_the_networks_say() -> None:
    model = LatentModel(Halved(5, 6), GaussianPosterior(), Halved(3, 10), GaussianData(0.1), StandardNormal(3))
    q, p = model.encode(torch.zeros(2, 5)), model.decode(torch.zeros(2, 3))
    assert q.mean.dtype == p.mean.dtype == torch.float32
    assert at_least_float32(torch.zeros(1, dtype=torch.float64)).dtype == torch.float64


# -- codes and scores ------------------------------------------------------------------------------------------------


@each
def test_a_text_has_its_code_and_score_whatever_stands_beside_it(kind: str, fitted: dict[str, Any]) -> None:
    est = fitted[kind]
    texts = [*X[:40], "", "hen", *(" ".join(["grass"] * n) for n in range(1, 21))]  # of every width
    Z, scores = dense(est.transform(texts)), est.score_samples(texts)
    order = np.random.default_rng(0).permutation(len(texts))
    assert np.array_equal(dense(est.transform([texts[i] for i in order])), Z[order])
    assert np.array_equal(est.score_samples([texts[i] for i in order]), scores[order])
    for i in (0, 40, 41, len(texts) - 1):
        assert np.array_equal(dense(est.transform([texts[i]]))[0], Z[i])
        assert est.score_samples([texts[i]])[0] == scores[i]
    assert est.transform(texts).shape == (len(texts), est.n_components)


@each
def test_codes_are_the_mode_of_the_posterior(kind: str, fitted: dict[str, Any]) -> None:
    est = fitted[kind]
    x = torch.tensor(est.fitted_.rows(X), dtype=torch.float32)
    with torch.no_grad():
        expected = est.model_.encode(x).mode.numpy()
    np.testing.assert_allclose(dense(est.transform(X)), expected, rtol=1e-4, atol=1e-5)
    assert sp.issparse(est.transform(X)) == (kind == "VSC")
    if kind == "VSC":
        assert 0 < est.transform(X).nnz < expected.size
        assert est.transform(X, max_active=1).getnnz(1).max() == 1


@pytest.mark.filterwarnings("ignore:the importance weights of .* heavy tails:RuntimeWarning")
def test_scores_are_below_the_exact_log_probability_and_climb_to_it() -> None:
    """One unit: log p(x) = log of the integral of p(x|z) N(z; 0, 1) over z, by quadrature."""
    est = make(sv.BetaVAE, beta=0.5, n_components=1, training={"steps": 150}).fit(X)  # less: q too narrow
    texts = sorted(set(X))[:12]
    x = torch.tensor(est.fitted_.rows(texts), dtype=torch.float32)
    z = torch.linspace(-8, 8, 401)[:, None]
    log_prior = -0.5 * z[:, 0].double() ** 2 - 0.5 * math.log(2 * math.pi) + math.log(16 / 400)
    with torch.no_grad():
        each = [est.model_.decode(z).log_prob(row.expand(401, -1)).double() + log_prior for row in x]
    exact = torch.stack(each).logsumexp(-1).numpy()
    bound = est.importance_bound(texts, n_samples=300)
    assert (est.score_samples(texts, n_samples=300) < exact).all()
    assert (np.abs(bound.bound - exact) < 5 * bound.standard_error + 1e-3).all()
    assert est.score_meaning(texts) == "bound"


@each
def test_evaluation_says_what_is_left_of_a_text(kind: str, fitted: dict[str, Any]) -> None:
    est = fitted[kind]
    texts = [*X[:60], "a zebra eats grass"]
    found = est.evaluate(texts, caps=(1, 2) if kind == "VSC" else ())
    words = np.array([len(text.split()) + 1 for text in texts])
    scores = est.score_samples(texts)
    assert "mse" not in found
    assert found["words"] == words.mean()
    assert found["unknown"] == pytest.approx(1 / words.sum())  # the zebra
    assert found["score"] == scores.mean()
    assert found["perplexity"] == pytest.approx(np.exp(-scores.sum() / words.sum()))
    assert found["perplexity_reconstruction"] == pytest.approx(np.exp(found["nll"] * len(texts) / words.sum()))
    assert 1 < found["perplexity_reconstruction"] < found["perplexity"] < len(est.input_.vocabulary)
    # the bound's two parts: of KL in closed form there is less noise than in the score
    assert found["score"] == pytest.approx(-found["nll"] - found["kl"], rel=0.05)
    x = torch.tensor(est.fitted_.rows(texts), dtype=torch.float32)
    code = torch.tensor(dense(est.transform(texts)))
    with torch.no_grad():
        assert found["nll_code"] == pytest.approx(-float(est.model_.decode(code).log_prob(x).mean()), rel=1e-4)
    if kind == "VSC":
        assert found["caps"][1] > found["caps"][2] > found["nll_code"]


@pytest.fixture(scope="module")
def reported() -> Any:
    """Four units that each say something of a text."""
    return make(sv.BetaVAE, beta=0.1, training={"steps": 80, "learning_rate": 2e-2}).fit(X)


def test_a_unit_can_be_audited(reported: Any) -> None:
    found = sv.audit(reported, X[:100])
    assert found.gain.max() > found.kl.min() > 0


def test_a_unit_can_be_taken_out_of_reader_and_writer(reported: Any, tmp_path: Path) -> None:
    """What is told of a code is what the whole model tells with the units held at their means, word by word."""
    est = reported
    smaller = sv.prune(est, X, units=[0, 2], force=True)
    means, codes = sv.audit(est, X).mean, dense(est.transform(X))
    assert np.abs(means[[0, 2]]).min() > 1e-3  # or the bias would have nothing to hold
    np.testing.assert_allclose(dense(smaller.transform(X)), codes[:, [1, 3]], atol=1e-5)
    kept_rows = codes.copy()
    kept_rows[:, [0, 2]] = means[[0, 2]]
    x = torch.tensor(est.fitted_.rows(X), dtype=torch.float32)
    with torch.no_grad():
        found = [
            e.model_.decode(torch.tensor(z)).log_prob(x) for e, z in ((est, kept_rows), (smaller, codes[:, [1, 3]]))
        ]
        as_before = est.model_.decode(torch.tensor(codes)).log_prob(x)
    torch.testing.assert_close(*found, rtol=1e-5, atol=1e-4)
    assert float((found[0] - as_before).abs().max()) > 0.1  # they had a part in it
    assert weights(smaller) == weights(make(sv.BetaVAE, n_components=2).fit(X))
    smaller.save(tmp_path / "model")
    assert sv.load(tmp_path / "model").reconstruct(X[:3]) == smaller.reconstruct(X[:3])
    assert np.isfinite(smaller.partial_fit(X).score(X[:60]))


def test_units_that_tell_nothing_of_a_text_are_pruned(reported: Any) -> None:
    est = copy.deepcopy(reported)
    with torch.no_grad():
        est.model_.encoder[-1].weight[[1, 5]] = 0.0  # unit 1: N(0, 1) whatever is read
        est.model_.encoder[-1].bias[[1, 5]] = 0.0
        est.model_.decoder.gru.weight_ih_l0[:, -3] = 0.0
    smaller = sv.prune(est, X)
    assert smaller.n_components == 3
    assert np.array_equal(smaller.transform(X), est.transform(X)[:, [0, 2, 3]])


def test_evaluation_decodes_a_text_once_for_every_draw_and_code(
    fitted: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[int] = []
    forward = Writer.forward
    monkeypatch.setattr(Writer, "forward", lambda self, z, x: (decoded.append(len(z)), forward(self, z, x))[1])
    est, text = fitted["VSC"], "the cow eats green grass"
    est.evaluate([text] * 64, caps=(1, 2))
    assert sum(decoded) == 64 * (10 + 1 + 2)
    decoded.clear()
    est.evaluate([text])
    assert sum(decoded) <= 40 + 32  # 64 for each of 12 passes when blocks had one size for all that is done with them
    decoded.clear()
    est.score([text])
    assert sum(decoded) <= 40


@pytest.mark.parametrize("n_samples", [1, 3, 10, 40])
def test_a_score_of_any_number_of_draws_is_a_texts_own(n_samples: int, fitted: dict[str, Any]) -> None:
    est, texts = fitted["VSC"], sorted(set(X))[:37]
    scores = est.score_samples(texts, n_samples=n_samples)
    assert np.array_equal(est.score_samples(texts[::-1], n_samples=n_samples), scores[::-1])
    assert est.score_samples(texts[5:6], n_samples=n_samples)[0] == scores[5]


def test_the_draws_of_a_text_are_its_own(fitted: dict[str, Any]) -> None:
    est, texts = fitted["VSC"], sorted(set(X))[:37]
    draws = est.draw_codes(texts, 3, seed=1)
    assert np.array_equal(est.draw_codes(texts[::-1], 3, seed=1), draws[:, ::-1])
    assert np.array_equal(est.draw_codes(texts[5:6], 3, seed=1)[:, 0], draws[:, 5])
    assert len(np.unique(draws.reshape(3 * 37, -1), axis=0)) > 37  # not one draw three times


def test_the_longest_text_sets_the_widths_and_not_the_most_that_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten words need 16 positions also where 300 are allowed: in training, validation, codes, scores and the audit."""
    seen: list[int] = []
    forward = GRU.forward
    monkeypatch.setattr(GRU, "forward", lambda self, x, *more: (seen.append(x.shape[1]), forward(self, x, *more))[1])
    texts = [" ".join(text.split()[:10]) for text in X]
    training = {"validation_fraction": 0.2, "report_every": 2}
    est = make(sv.VSC, text={"max_length": 300}, training=training).fit(texts)
    est.transform(texts)
    est.evaluate(texts)
    est.draw_codes(texts)
    sv.audit(est, texts)
    sv.top_words(est, texts)
    assert max(seen) == 16
    assert max(seen[: len(seen) // 2]) == 16  # in training as well
    long = " ".join(["grass"] * 40)
    codes = [est.transform([*texts, long]).toarray()[:-1], est.transform(texts).toarray()]
    assert np.array_equal(*codes)
    assert max(seen) == 48


def test_a_sentence_ends_at_one_place_for_all() -> None:
    rows = np.array([[2, 3, EOS, 0], [EOS, 0, 0, 0], [2, EOS, 3, EOS], [2, 3, 4, 5]], np.int32)
    lengths = (ends(torch.from_numpy(rows)) + 1).tolist()
    assert lengths == [3, 1, 2, 4]
    assert _lengths(rows).tolist() == lengths
    assert metrics.word_counts(rows, 6).sum(1).tolist() == [2, 0, 1, 4]  # without EOS


@pytest.mark.parametrize("kind", [sv.VSC, sv.HSVAE, sv.VAE])
def test_evaluation_of_texts_says_how_sparse_their_codes_are(kind: Any) -> None:
    est = make(kind, n_components=6, training={"steps": 8}).fit(X)
    found = est.evaluate(X)["hoyer"]
    assert list(found) == ["draws", *(("mean",) if kind is sv.VAE else ("slab", "gated"))]
    for name, Z in est.posterior_means(X).items():
        if kind is sv.HSVAE and name == "gated":
            continue  # with one draw of gamma: below
        assert found[name] == pytest.approx(metrics.code_hoyer(Z)._asdict(), abs=1e-5)
    draws = [metrics.average_hoyer(est.draw_codes(X, seed=seed)[0]) for seed in range(20)]
    assert found["draws"]["average"] == pytest.approx(np.mean(draws), abs=5 * np.std(draws))
    if kind is sv.HSVAE:
        drawn = [metrics.average_hoyer(est.posterior_means(X, seed=seed)["gated"]) for seed in range(20)]
        assert found["gated"]["average"] == pytest.approx(np.mean(drawn), abs=5 * np.std(drawn))
    assert "hoyer" not in est.evaluate(X[:1])  # one row has no spread


@pytest.mark.parametrize("ask", [lambda est: sv.classes(est, X, Y), lambda est: sv.top_words(est, X)])
def test_texts_are_read_once(ask: Any, fitted: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[int] = []
    read = Texts.read
    monkeypatch.setattr(Texts, "read", lambda self, est, X, **how: (reads.append(len(X)), read(self, est, X, **how))[1])
    ask(fitted["VSC"])
    assert reads == [len(X)]


# -- codes to texts --------------------------------------------------------------------------------------------------


def test_a_code_can_hold_a_text() -> None:
    """Eight sentences, a code that costs little: read, and told again word by word."""
    texts = [*FARM, *TOWN]
    settings = {"steps": 120, "batch_size": 8, "learning_rate": 3e-2}
    est = make(sv.BetaVAE, beta=0.01, n_components=8, hidden=(32,), training=settings).fit(texts)
    assert sum(a == b for a, b in zip(est.reconstruct(texts), texts, strict=True)) >= 7
    assert est.inverse_transform(est.transform(texts)) == est.reconstruct(texts)
    walk = sv.interpolate(est, texts[0], texts[4], steps=5).images
    assert (walk[0], walk[-1]) == (texts[0], texts[4])


@each
def test_texts_are_written_from_codes(kind: str, fitted: dict[str, Any]) -> None:
    est = fitted[kind]
    Z = est.transform(X[:50])
    reported = est.inverse_transform(Z)
    assert isinstance(reported, list)
    assert len(reported) == 50
    assert all(isinstance(text, str) and len(text.split()) <= 20 for text in reported)
    assert reported == est.generate(Z) == est.generate(dense(Z))
    assert reported[7] == est.inverse_transform(Z[7:8])[0]  # whatever stands beside it
    words = set(est.input_.vocabulary.words)
    for how in ("greedy", "sample", "beam"):
        texts = est.generate(Z, how, seed=3, beams=3)
        assert set(" ".join(texts).split()) <= words
        assert texts == est.generate(Z, how, seed=3, beams=3)
    assert est.generate(Z, "sample", seed=3) != est.generate(Z, "sample", seed=4)
    assert est.generate(Z, "sample", temperature=1e-4) == reported
    assert est.generate(Z, "beam", beams=1) == reported
    assert est.reconstruct(X[:50], how="sample", seed=3) == est.generate(Z, "sample", seed=3)


@each
def test_a_beam_finds_what_is_likelier(kind: str, fitted: dict[str, Any]) -> None:
    est, n = fitted[kind], 40
    z = torch.tensor(dense(est.transform(X[:n])))
    model = est.model_
    with torch.no_grad():
        found = [generate(model.decoder, model.likelihood.projection, z, 21, how) for how in ("greedy", "beam")]
        greedy, beam = (model.decode(z).log_prob(tokens.float()).sum() for tokens in found)
    assert beam >= greedy


@each
def test_samples_are_texts(kind: str, fitted: dict[str, Any]) -> None:
    est = fitted[kind]
    assert est.sample(0) == []
    likely, drawn = est.sample(40, seed=1), est.sample(40, seed=1, noise=True)
    assert len(likely) == len(drawn) == 40
    assert likely != drawn
    assert len(set(drawn)) > 5
    assert est.sample(40, seed=1, noise=True) == drawn
    assert len(est.sample_like(X[:1], 3)) == 3


def test_a_second_stage_knows_codes_of_texts(fitted: dict[str, Any]) -> None:
    est = copy.deepcopy(fitted["VSC"])
    stage = sv.second_stage(est, X, n_components=2, hidden=(8,), training=sv.Training(steps=5, verbose=0))
    assert stage.likelihood_ == "spike-slab"
    assert all(isinstance(text, str) for text in est.sample(4, second_stage=stage))


@each
def test_walks_and_changes_of_a_code_are_told_in_words(kind: str, fitted: dict[str, Any]) -> None:
    est = fitted[kind]
    walk = sv.interpolate(est, X[0], X[1], steps=4)
    assert isinstance(walk.images, list)
    assert walk.images == est.inverse_transform(walk.codes)
    changed = sv.traverse(est, X[0], units=[2, 0], values=[-3.0, 0.0, 3.0])
    assert changed.images.shape == (2, 3)
    assert all(isinstance(text, str) for text in changed.images.ravel())
    assert sv.edits(est, X[0], X[0]).images == []
    assert len(sv.edits(est, X[0], X[1]).images) == len(sv.edits(est, X[0], X[1]).units)


def pointing_nowhere() -> Any:
    """Codes of 6 units with an index of a seventh."""
    Z = sp.csr_matrix(np.ones((2, 6), np.float32))
    Z.indices[1] = 6
    return Z


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda e: e.generate(e.transform(X[:2]), "loud"), "how must be one of greedy, sample, beam; got 'loud'"),
        (lambda e: e.generate(e.transform(X[:2]), "sample", temperature=0), "temperature must be a number above 0"),
        (lambda e: e.generate(e.transform(X[:2]), "beam", beams=0), "beams must be an integer above 0"),
        (lambda e: e.generate(e.transform(X[:2]), "sample", seed="x"), "seed must be an integer"),
        (lambda e: e.generate(np.zeros((2, 3))), "codes have 6 columns, one per unit; got 3"),
        (lambda e: e.generate(np.full((2, 6), np.nan)), "NaN"),
        (lambda e: e.generate(pointing_nowhere()), "damaged sparse matrix: indices must be < 6"),
        (lambda e: e.sample_like(X[:2]), "sample_like needs one row, got 2"),
    ],
)
def test_bad_arguments_of_methods_are_named(call: Any, message: str, fitted: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=message):
        call(fitted["VAE"])


def test_numbers_have_no_words() -> None:
    est = make().fit(np.random.default_rng(0).normal(size=(40, 3)))
    with pytest.raises(ValueError, match=r"generate is for models of texts, and this VAE was fitted on numbers"):
        est.generate(np.zeros((1, 4)))
    assert np.array_equal(est.reconstruct(np.ones((2, 3))), est.inverse_transform(est.transform(np.ones((2, 3)))))


# -- every model -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TAKERS)
def test_every_model_learns_from_texts_and_survives_the_disk(name: str, tmp_path: Path) -> None:
    steps = 40 if name == "CapacityVAE" else 4  # its KL climbs to the capacity before its score does
    est = make(TAKERS[name], training={"steps": steps}).fit(X)
    assert np.isfinite([v for row in est.history_ for v in row.values()]).all()
    bound = est.importance_bound(X[:20], n_samples=20)
    assert np.isfinite(np.stack([bound.bound, bound.standard_error, bound.effective_samples])).all()
    assert (est.score_samples(X[:20], n_samples=20) <= bound.bound + 1e-6).all()
    assert est.evaluate(X[:4])["nll"] > 0
    est.save(tmp_path / "model")
    again = sv.load(tmp_path / "model")
    assert type(again) is TAKERS[name]
    assert np.array_equal(dense(again.transform(X)), dense(est.transform(X)))
    assert np.array_equal(again.score_samples(X[:9]), est.score_samples(X[:9]))
    assert again.sample(3, noise=True) == est.sample(3, noise=True)
    before = est.score(X[:60])
    for _ in range(3):
        est.partial_fit(X)
    assert est.score(X[:60]) > before


def test_the_relaxed_objective_is_in_the_order_of_the_texts() -> None:
    est = make(sv.SDLGM, cap=2).fit(X)
    found = est.relaxed_objective(X[:30])
    assert np.array_equal(est.relaxed_objective(X[:30][::-1]), found[::-1])
    assert est.evaluate(X[:6])["relaxed_objective"] == pytest.approx(float(est.relaxed_objective(X[:6]).mean()))


# -- vocabulary and settings -----------------------------------------------------------------------------------------


def test_more_texts_leave_the_vocabulary_alone() -> None:
    est = make().partial_fit(X)
    words, before = est.input_.vocabulary, est.n_steps_
    est.partial_fit(["a zebra and a lion", "the zebra", "the cow eats a zebra"])
    assert est.input_.vocabulary is words
    assert est.n_steps_ > before
    assert "zebra" in make().fit(["a zebra", "the zebra"]).input_.vocabulary.words
    assert "zebra" in est.fit(["a zebra", "the zebra"]).input_.vocabulary.words  # a new fit starts anew


def test_a_vocabulary_of_one_s_own_is_used_as_it_is(tmp_path: Path) -> None:
    words = Vocabulary(("grass", "the", UNKNOWN, "Tram"), "space")
    est = make(text={"vocabulary": words, "size": 2}).fit(X)
    assert est.input_.vocabulary == words
    assert est.fitted_.rows(["the Tram on grass"])[0, :5].tolist() == [3, 5, 4, 2, EOS]
    assert clone(est).text.vocabulary == words
    est.save(tmp_path / "model")
    again = sv.load(tmp_path / "model")
    assert again.text.vocabulary == words
    assert np.array_equal(again.transform(X), est.transform(X))


def test_what_is_stored_is_plain_and_whole(tmp_path: Path) -> None:
    est = make(text={"size": 9, "min_count": 2, "max_length": 30, "tokenizer": "space"}).fit(X)
    est.save(tmp_path / "model")
    stored = json.loads((tmp_path / "model/model.json").read_text())["meta"]
    vocabulary = stored["input"]["text"]["vocabulary"]
    assert vocabulary == {"$Vocabulary": {"tokenizer": "space", "words": {"$tuple": [*est.input_.vocabulary.words]}}}
    again = sv.load(tmp_path / "model")
    assert again.get_params()["text__size"] == 9
    assert again.text.get_params() == est.text.get_params()
    assert again.input_.width == est.input_.width
    assert sv.load(tmp_path / "model").partial_fit(X).n_steps_ > est.n_steps_
    plain = sv.VAE(3, hidden=(8,), training=sv.Training(steps=2, verbose=0)).fit(X)
    plain.save(tmp_path / "plain")
    assert sv.load(tmp_path / "plain").text is None


def test_settings_after_a_fit_change_nothing_until_the_next() -> None:
    est = make().fit(X)
    Z = est.transform(X)
    est.set_params(text__max_length=2, text__tokenizer="paper", text__embedding=3)
    assert np.array_equal(est.transform(X), Z)
    with pytest.warns(UserWarning, match="240 of 240 texts"):
        assert est.fit(X).input_.width == 8


def test_text_settings_are_nested_parameters() -> None:
    est = sv.VAE().set_params(text__size=50)
    assert est.get_params()["text__size"] == est.text.size == 50
    assert est.text.get_params() == Text(size=50).get_params()
    assert sv.VAE().set_params(text=None, text__size=3).text.size == 3
    with pytest.raises(ValueError, match="Invalid parameter 'siz'"):
        sv.VAE().set_params(text__siz=1)
    with pytest.raises(ValueError, match="Invalid parameter 'text'"):
        sv.PseudoVSC().set_params(text__size=3)


BAD_TEXT: dict[str, list[Any]] = {
    "tokenizer": ["spacy", None, 3],
    "size": [1, 0, 2.5, "x", True],
    "min_count": [0, -1, 1.5, None],
    "max_length": [0, -1, 2.5, None, "x"],
    "column": [3, ["a"], b"a"],
    "embedding": [0, 2.5, None],
    "vocabulary": [["a", "b"], "x", 3],
}


def test_the_table_holds_every_text_setting() -> None:
    assert set(BAD_TEXT) == {p.name for p in documented(Text)}


@pytest.mark.parametrize(("name", "value"), [(k, v) for k, values in BAD_TEXT.items() for v in values])
def test_a_bad_text_setting_is_named_before_training(name: str, value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Run, "advance", lambda self: pytest.fail("training started"))
    est = make(text={name: value})
    with pytest.raises((ValueError, TypeError), match=rf"text\.{name} must be .*got "):
        est.fit(X)


@pytest.mark.parametrize(
    ("setting", "value"), [("size", 5), ("min_count", 40), ("max_length", 3), ("embedding", 3), ("tokenizer", "space")]
)
@pytest.mark.filterwarnings("ignore:.*were cut after them")
def test_every_text_setting_changes_the_result(setting: str, value: Any) -> None:
    texts = [text.capitalize() for text in X]
    defaults, changed = make().fit(texts), make(text={setting: value}).fit(texts)
    assert not np.array_equal(*(est.score_samples(texts, n_samples=1) for est in (defaults, changed)))


# -- texts of every kind ---------------------------------------------------------------------------------------------

STRANGE = {
    "empty": "",
    "white space": " \t\n ",
    "unknown": "zebra lion",
    "a sign": "!",
    "emoji": "👩‍👩‍👧 🇺🇳 ☂️ grass 😀",
    "right to left": "البقرة تأكل العشب — הפרה אוכלת עשב",
    "Han and Thai": "牛吃草 วัวกินหญ้า",
    "combining marks": "cow eats gra\u0308\u0301ss",
    "half a pair": "cow \ud83d grass",
    "control": "cow\x00eats\x07\x1b[31m grass\ufeff",
    "no white space": "x" * 5000,
}


@each
def test_any_text_has_a_code_and_a_score(kind: str, fitted: dict[str, Any]) -> None:
    est, texts = fitted[kind], list(STRANGE.values())
    Z, scores = dense(est.transform(texts)), est.score_samples(texts)
    assert np.isfinite(Z).all()
    assert np.isfinite(scores).all()
    assert np.array_equal(Z[0], Z[1])  # nothing is nothing
    assert scores[0] == scores[1]


@pytest.mark.parametrize("tokenizer", ["words", "space", "paper"])
def test_a_corpus_may_hold_strange_texts(tokenizer: str) -> None:
    texts = [*STRANGE.values(), *X[:50]]
    est = make(text={"tokenizer": tokenizer}).fit(texts)
    assert np.isfinite(est.score_samples(texts)).all()
    assert np.isfinite(est.history_.column("loss")).all()


def test_a_longer_text_is_cut_and_the_share_is_told() -> None:
    with pytest.warns(UserWarning, match=r"of 240 texts \(0\.\d+\) have more than 6 words and were cut after them"):
        est = make(text={"max_length": 6}).fit(X)
    long = "the cow eats green grass and then the hen"
    Z = est.transform([long])  # told once per fit: warnings are errors here
    assert np.array_equal(Z, est.transform([" ".join(long.split()[:6])]))
    short = make(text={"max_length": 6}).fit(["a cow", "a hen"])  # nothing to tell yet
    with pytest.warns(UserWarning, match=r"1 of 1 texts \(1\) have more than 6 words"):
        short.transform([long])
    short.transform([long])


def test_a_model_whose_pickle_does_not_say_whether_texts_were_cut_reads_longer_ones(fitted: dict[str, Any]) -> None:
    est = pickle.loads(pickle.dumps(next(iter(fitted.values()))))
    vars(est.input_).pop("cut_told", None)
    with pytest.warns(UserWarning, match="were cut after them"):
        est.transform(["grass " * 1000])


@pytest.mark.parametrize("line", ["grass " * 1_700_000, "x" * 10_000_000], ids=["words", "one piece"])
@pytest.mark.filterwarnings("ignore:.*were cut after them")
def test_a_line_of_ten_megabytes_is_a_text(line: str, fitted: dict[str, Any]) -> None:
    assert np.isfinite(fitted["VAE"].transform([line])).all()


def gibberish(n: int) -> list[bytes]:
    rng = np.random.default_rng(0)
    return [rng.bytes(k) for k in rng.integers(0, 60, n)]


@pytest.mark.parametrize("n", [3000, pytest.param(100_000, marks=pytest.mark.slow)])
@pytest.mark.filterwarnings("ignore:.*were cut after them")
def test_random_bytes_are_texts_or_refused_by_their_place(n: int, fitted: dict[str, Any]) -> None:
    est, data = fitted["VSC"], gibberish(n)
    texts = [line.decode("utf-8", "replace") for line in data]
    Z = est.transform(texts)
    assert Z.shape[0] == n
    assert np.isfinite(Z.data).all()
    assert np.isfinite(est.score_samples(texts[:1000], n_samples=1)).all()
    with pytest.raises(ValueError, match=r"byte \d+ of text \d+ is not UTF-8"):
        est.transform(data)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "X is empty: 0 samples"),
        (np.array([], dtype=object), "X is empty: 0 samples.*or a list of texts"),
        (np.array([], dtype=str), "X is empty: 0 samples.*or a list of texts"),
        (pd.Series([], dtype=str), "X is empty: 0 samples.*or a list of texts"),
        ({"a cow", "a hen"}, "expected texts in an order, got a set: pass a list of its texts"),
        (frozenset({"a cow", "a hen"}), "expected texts in an order, got a frozenset"),
        ({1: "a cow", 2: "a hen"}, "expected texts in an order, got a dict: pass a list of its texts"),
        ({"texts": ["a cow", "a hen"]}, "X is a dict, which has no rows.*or a list of texts"),
        ({1: "a cow"}.values(), "X is a dict_values, which has no rows.*or a list of texts"),
        (["", " "], "no word in 2 texts"),
        (["one text"], "Found 1 texts, while a minimum of 2 is required by VAE"),
        (["a cow", 3, "a hen"], r"text 1 is an int \(3\), not a str"),
        (["a cow", 2.5], r"text 1 is a float \(2.5\), not a str"),
        (["a cow", None], r"text 1 is missing \(None\)"),
        (["a cow", float("nan")], r"text 1 is missing \(nan\)"),
        (["a cow", ["a", "hen"]], r"text 1 is a list, not a str: join its words"),
        (["a cow", b"\xff\xfe"], "byte 0 of text 1 is not UTF-8"),
        ("the cow eats grass", r"expected a list of texts, got one str \('the cow"),
        (b"the cow", "expected a list of texts, got one bytes"),
        ("nowhere/X.txt", "no such file"),
        (np.array([["a", "b"], ["c", "d"]]), "X must hold numbers; there are texts in columns 0, 1: encode them"),
    ],
)
def test_what_is_no_list_of_texts_is_refused_in_words(given: Any, message: str) -> None:
    est = make()
    for method in (est.fit, est.partial_fit, est.fit_transform):
        with pytest.raises((ValueError, TypeError, FileNotFoundError), match=message):
            method(given)
    with pytest.raises(NotFittedError):
        est.transform(X)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (np.zeros((3, 4)), r"expected texts of shape \(n,\), got a ndarray of shape \(3, 4\)"),
        (np.zeros(3), r"text 0 is a float64? \(0.0\), not a str"),
        ([1, 2], r"text 0 is an int \(1\), not a str"),
        (None, "expected a list of texts, got a NoneType"),
        ([], "Found 0 texts, while a minimum of 1 is required"),
        (3.0, "expected a list of texts, got a float"),
    ],
)
def test_a_model_of_texts_takes_no_numbers(given: Any, message: str, fitted: dict[str, Any]) -> None:
    est = fitted["VAE"]
    for method in (est.transform, est.score, est.evaluate, copy.deepcopy(est).partial_fit):
        with pytest.raises((ValueError, TypeError), match=message):
            method(given)


def test_a_model_of_numbers_takes_no_texts() -> None:
    est = make().fit(np.random.default_rng(0).normal(size=(40, 3)))
    for method in (est.transform, est.score, est.evaluate, est.partial_fit):
        with pytest.raises(ValueError, match=r"X must hold numbers, as it did when this VAE was fitted; got texts"):
            method(X)


def test_a_new_fit_may_be_of_another_kind() -> None:
    table = pd.DataFrame(np.random.default_rng(0).normal(size=(40, 3)), columns=list("abc"))
    est = make().fit(table)
    assert est.n_features_in_ == 3
    assert np.array_equal(est.fit(X).transform(X), make().fit(X).transform(X))
    assert not hasattr(est, "n_features_in_")  # nor have scikit-learn's own text vectorisers
    assert not hasattr(est, "feature_names_in_")
    assert np.array_equal(est.fit(table).transform(table), make().fit(table).transform(table))


@parameters
class Classifier(sv.SDLGMClassifier):
    """A classifier of texts."""

    text: Annotated[Text | None, "How texts are read."] = None


@pytest.mark.parametrize("variant", ["dis", "gen"])
def test_a_model_with_labels_can_read_too(variant: str, tmp_path: Path) -> None:
    """Rows [x | y] of word numbers and labels go the way of all rows, for models that tune nothing on them."""
    like = make(training={"steps": 40, "learning_rate": 2e-2})
    est = Classifier(variant=variant, threshold=0.5, hidden=(12,), text=like.text, training=like.training).fit(X, Y)
    texts, y = corpus(60, seed=1)
    assert (est.predict(texts) == y).mean() > 0.9
    est.save(tmp_path / "model")
    assert np.array_equal(sv.load(tmp_path / "model", cls=Classifier).predict_proba(X), est.predict_proba(X))
    if variant == "gen":
        assert np.isfinite(est.score_samples(texts)).all()
        assert all(isinstance(text, str) for text in est.reconstruct(texts))


def test_what_draws_values_refuses_texts(fitted: dict[str, Any]) -> None:
    with pytest.raises(AttributeError, match="texts have no scaling"):
        _ = fitted["VAE"].scaling_
    assert not hasattr(fitted["VAE"], "scaling_")


# -- in company ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cls", "more"),
    [(sv.BetaVAE, {"beta": 0.1}), (sv.HSVAE, {"alpha": 1.5, "beta": 0.5, "kl_z": 0.01, "kl_gamma": 0.01})],
)
def test_in_a_pipeline_with_a_classifier(cls: Any, more: dict[str, Any]) -> None:
    pipe = make_pipeline(make(cls, n_components=8, hidden=(24,), training={"steps": 200}, **more), LogisticRegression())
    texts, y = corpus(120, seed=1)
    assert pipe.fit(X, Y).score(texts, y) > 0.9  # chance is 0.5
    assert list(pipe[:-1].get_feature_names_out()) == [f"{cls.__name__.lower()}{j}" for j in range(8)]


@pytest.mark.parametrize(("cls", "alphas"), [(sv.VSC, [0.1, 0.5]), (sv.HSVAE, [0.5, 3.0])])
def test_grid_search_over_alpha_and_the_vocabulary(cls: Any, alphas: list[float]) -> None:
    grid = {"alpha": alphas, "text__size": [5, 50]}
    search = GridSearchCV(make(cls), grid, cv=2, error_score="raise").fit(X[:80])
    scores = search.cv_results_["mean_test_score"]
    assert len(np.unique(scores)) == 4
    assert search.best_estimator_.transform(X).shape == (len(X), 4)


def test_a_fit_is_repeated_bit_by_bit_and_clones_do_the_same() -> None:
    est = make(sv.VSC)
    first = dense(est.fit(X).transform(X))
    assert np.array_equal(dense(est.fit(X).transform(X)), first)
    assert np.array_equal(dense(clone(est).fit(X).transform(X)), first)
    twin = clone(est).set_params(text__size=9)
    assert est.text.size != twin.text.size


@pytest.mark.parametrize("copier", [lambda e: pickle.loads(pickle.dumps(e)), copy.deepcopy], ids=["pickle", "deepcopy"])
def test_copies_go_on_like_the_original(copier: Any) -> None:
    est = make().fit(X)
    twin = copier(est)
    assert np.array_equal(twin.transform(X), est.transform(X))
    assert twin.inverse_transform(np.ones((2, 4))) == est.inverse_transform(np.ones((2, 4)))
    for e in (est, twin):
        e.partial_fit(X)
    assert np.array_equal(twin.transform(X), est.transform(X))


def test_frames_and_names() -> None:
    est = make().fit(X)
    series = pd.Series(X[:5], index=list("abcde"))
    out = est.set_output(transform="pandas").transform(series)
    assert list(out.index) == list("abcde")
    assert list(out.columns) == list(est.get_feature_names_out()) == ["vae0", "vae1", "vae2", "vae3"]


def test_nothing_works_before_a_fit() -> None:
    for name in ("transform", "score", "score_samples", "evaluate", "importance_bound", "reconstruct", "score_meaning"):
        with pytest.raises(NotFittedError):
            getattr(sv.VAE(), name)(X)
    with pytest.raises(NotFittedError):
        sv.VAE().generate(np.zeros((1, 64)))


# -- runs ------------------------------------------------------------------------------------------------------------


def test_a_stopped_run_on_texts_resumes_to_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"steps": 12, "report_every": 3, "checkpoint_every": 3}
    whole = make(sv.VSC, training=settings | {"folder": str(tmp_path / "whole")}).fit(X)
    advance = Run.advance

    def stopped(self: Run) -> None:
        advance(self)
        if self.step == 8:
            signal.raise_signal(signal.SIGINT)

    part = make(sv.VSC, training=settings | {"folder": str(tmp_path / "part")})
    with monkeypatch.context() as patch:
        patch.setattr(Run, "advance", stopped)
        with pytest.raises(KeyboardInterrupt):
            part.fit(X)
    part.set_params(training__resume=True).fit(X)
    assert part.history_ == whole.history_
    for name, value in whole.model_.state_dict().items():
        assert torch.equal(part.model_.state_dict()[name], value), name
    other = [text.replace("cow", "kow") for text in X]  # the same numbers, other words
    with pytest.raises(ValueError, match=r"holds a different run \(vocabulary"):
        part.fit(other)


def test_the_command_line_takes_a_file_of_texts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    few = X[:50]
    (tmp_path / "X.txt").write_text("\n".join(few))
    frame[:50].to_csv(tmp_path / "X.csv", index=False)
    wanted = make(sv.VSC).fit(few).evaluate(few)
    small = ["--hidden", "12", "--n-components", "4", "--text-max-length", "20", "--text-embedding", "6"]
    small += ["--learning-rate", "0.01", "--batch-size", "32", "--steps", "4", "-q", "--device", "cpu"]
    for ending, more in ((".txt", []), (".csv", ["--text-column", "said"])):
        model = tmp_path / f"model{ending}"
        data = ["--data", str(tmp_path / f"X{ending}")]
        assert cli.main(["fit", "VSC", *data, "--out", str(model), *small, *more]) == 0
        assert f"VSC of 50 rows x {len(sv.load(model).input_.vocabulary.words)} words (tokens), 4 steps" in (
            capsys.readouterr().out
        )
        assert cli.main(["evaluate", str(model), *data, "--caps", "1", "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["nll"] == pytest.approx(wanted["nll"], rel=1e-5)
        assert cli.main(["evaluate", str(model), *data, "--caps", "1"]) == 0
        assert "perplexity" in capsys.readouterr().out
        assert cli.main(["encode", str(model), *data, "--out", str(tmp_path / "codes.npz")]) == 0
        assert sp.load_npz(tmp_path / "codes.npz").shape == (50, 4)
        assert cli.main(["sample", str(model), "-n", "3", "--out", str(tmp_path / "s.txt")]) == 0
        assert (tmp_path / "s.txt").read_text().split("\n") == [*sv.load(model).sample(3), ""]
        assert cli.main(["sample", str(model), "--out", str(tmp_path / "s.npy")]) == 1
        assert cli.main(["audit", str(model), *data]) == 0
        assert cli.main(["report", str(model), *data, "--out", str(tmp_path / "page.html")]) == 0
        assert "Words of units" in (tmp_path / "page.html").read_text()


def test_a_table_of_texts_is_taken_for_numbers_until_its_column_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In Python and on the command line alike; a model of texts knows better, and takes the one column of text."""
    one, many = str(tmp_path / "one.csv"), str(tmp_path / "many.csv")
    pd.DataFrame({"said": X}).to_csv(one, index=False)
    frame.to_csv(many, index=False)
    with pytest.raises(ValueError, match=r"no numeric column.*text=Text\(column='said'\) \(--text-column\)"):
        make().fit(one)
    for table in (pd.DataFrame({"said": X}), pd.DataFrame({"said": X}, dtype="category")):
        with pytest.raises(ValueError, match=r"texts in column said: .*text=Text\(column='said'\) \(--text-column\)"):
            make().fit(table)
    with pytest.raises(ValueError, match=r"texts in columns note, said: encode them"):
        make().fit(frame)
    assert cli.main(["fit", "VAE", "--data", one, "--out", str(tmp_path / "no")]) == 1
    assert "text=Text(column='said') (--text-column)" in capsys.readouterr().err
    with pytest.raises(ValueError, match=r"texts in columns note, said: encode them"):
        make().fit(many)
    est = make().fit(X)
    est.save(tmp_path / "model")
    wanted = est.transform(X)
    assert np.array_equal(est.transform(one), wanted)
    assert cli.main(["encode", str(tmp_path / "model"), "--data", one, "--out", str(tmp_path / "c.npz")]) == 0
    assert np.array_equal(np.load(tmp_path / "c.npz")["codes"], wanted)
    assert cli.main(["encode", str(tmp_path / "model"), "--data", many, "--out", str(tmp_path / "c.npz")]) == 1
    assert "has 2 columns of text, note, said" in (reported := capsys.readouterr().err)
    assert "--data-option column=..." in reported
    encode = ["encode", str(tmp_path / "model"), "--data", many, "--out", str(tmp_path / "d.npz"), "--data-option"]
    assert cli.main([*encode, "column=said"]) == 0
    assert np.array_equal(np.load(tmp_path / "d.npz")["codes"], wanted)
    capsys.readouterr()
    plain = ["evaluate", str(tmp_path / "model"), "--data", str(tmp_path / "x.txt"), "--data-option"]
    assert cli.main([*plain, "column=a"]) == 2
    assert "a .txt has none, got 'column=a'" in capsys.readouterr().err
    fit = ["fit", "VAE", "--data", many, "--out", str(tmp_path / "no"), "--text-column", "said", "--data-option"]
    assert cli.main([*fit, "column=note"]) == 2
    assert "--text-column names the column of texts, got 'column=note'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "given", [[["the", "cow"], ["a"]], [["a", "cow"], ["a", "hen"]], pd.Series([["a"], ["b"]]), [np.array(["a"])] * 3]
)
def test_lists_of_words_are_told_how_to_become_texts(given: Any) -> None:
    with pytest.raises(TypeError, match=r"^text 0 is a \w+, not a str: join its words, .*tokenizer='space'"):
        make(sv.HSVAE).fit(given)


@pytest.mark.parametrize("rows", [[["red", 1.5], ["blue", 2.0]], [["1.0", "2e3"], ["3", "nan"]]])
def test_rows_of_a_table_are_not_taken_for_lists_of_words(rows: Any) -> None:
    assert not holds_texts(rows, None)


def test_a_long_text_does_not_widen_the_groups_of_short_ones(fitted: dict[str, Any]) -> None:
    rows = np.zeros((5000, 2000), np.int32)
    rows[:, 0], rows[0, :1999], rows[0, 1999] = EOS, 2, EOS
    wide = Texts(Text(max_length=1999))
    tracemalloc.start()
    try:
        groups, _ = wide.group_by_width(rows)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [group.shape for group in groups] == [(4999, 8), (1, 2000)]
    assert peak < rows.nbytes / 10


@pytest.mark.parametrize("sizes", [(3, 7, 30), (6, 6, 24)], ids=["odd", "even"])
def test_a_text_has_one_score_alone_and_among_others_for_any_number_of_draws(sizes: tuple[int, int, int]) -> None:
    units, embedding, states = sizes
    est = make(sv.VSC, n_components=units, hidden=(states,), text={"embedding": embedding}).fit(X)
    some = [*list(dict.fromkeys(X))[:12], "cow"]
    for draws in (1, 2, 3, 5, 7, 10, 12, 13, 16, 20, 31, 33):
        alone = [est.score_samples([text], n_samples=draws)[0] for text in some]
        assert est.score_samples(some, n_samples=draws).tolist() == alone, draws


def test_errors_in_numbers_are_not_asked_of_texts(fitted: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"fitted on texts: evaluate\(X, caps="):
        sv.rate_distortion(fitted["VSC"], X)


def test_the_papers_vocabulary_has_twenty_thousand_words_however_few_the_texts() -> None:
    texts = [" ".join(f"w{10 * i + j}" for j in range(10)) for i in range(150)]
    sizes = {
        name: len(make(text={"tokenizer": name}).fit(texts).input_.vocabulary.words) for name in ("words", "paper")
    }
    assert sizes == {"words": 1000, "paper": 1501}


def test_room_that_no_text_needs_is_not_taken_and_changes_nothing() -> None:
    """Codes and scores are those of a model that is as wide as its texts, and of a text alone."""
    narrow, wide = (make(sv.VSC, text={"max_length": n}).fit(X) for n in (20, 10**6))
    assert wide.fitted_.rows(X).shape[1] == narrow.fitted_.rows(X).shape[1] == 24
    assert (wide.transform(X) != narrow.transform(X)).nnz == 0
    scores = wide.score_samples(X, n_samples=2)
    assert np.array_equal(scores, narrow.score_samples(X, n_samples=2))
    some = [*X[:5], " ".join(["cow"] * 30)]
    assert np.array_equal(wide.score_samples(some, n_samples=2)[:5], scores[:5])


@pytest.mark.parametrize("ending", [".txt", ".csv"])
def test_the_command_line_refuses_an_empty_file_by_its_name(
    ending: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = tmp_path / f"empty{ending}"
    empty.write_text("said\n" if ending == ".csv" else "")
    make(text={"column": "said"}).fit(X).save(tmp_path / "model")
    fit = ["fit", "HSVAE", "--text-column", "said", "--out", str(tmp_path / "new")]
    for words in (fit, ["evaluate", str(tmp_path / "model")]):
        assert cli.main([*words, "--data", str(empty)]) == 1
        assert f"{empty} is empty: expected rows of numbers, or one text per line." in capsys.readouterr().err


def test_terms_of_whole_batches_see_texts_of_all_lengths() -> None:
    """|mean KL - C| within batches of one length would be another objective: it would hold C at every length."""
    texts = ["a b", "b a c d e f g h a b c d e f"] * 40
    settings = {"steps": 3, "batch_size": 16, "verbose": 0}
    widths: dict[str, int] = {}
    for name, est in {"vae": sv.VAE(3), "capacity": sv.CapacityVAE(3, capacity=2.0), "mat": sv.MAT(3)}.items():
        small = {"hidden": (8,), "text": sv.Text(embedding=4), "training": sv.Training(**settings)}
        runs: list[Run] = []
        with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
            warnings.simplefilter("ignore", sv.SparsityWarning)
            state = Run.state
            patch.setattr(Run, "state", lambda self, own=runs, real=state: (own.append(self), real(self))[1])
            est.set_params(**small).fit(texts)
        widths[name] = len(runs[0].feeds)
    assert widths == {"vae": 2, "capacity": 1, "mat": 1}


# -- what is left open -----------------------------------------------------------------------------------------------


def test_what_is_left_open_is_settled_by_the_kind_of_data() -> None:
    numbers = np.random.default_rng(0).normal(size=(300, 5))
    resolved = {}
    for name, data in (("texts", X), ("numbers", numbers)):
        est = sv.HSVAE(training=sv.Training(steps=2, seed=3, verbose=0)).fit(data)
        assert (est.hidden, est.beta, est.kl_z, est.training.batch_size, est.training.learning_rate) == (None,) * 5
        assert (est.training_.seed, est.training_.steps) == (3, 2)  # what was said is as it was
        prior, training = est.model_.prior, est.training_
        gates = float(prior.alpha.unique()), float(prior.beta.unique())
        resolved[name] = est.hidden_, training.batch_size, training.learning_rate, *gates, *est.fitted_.weights.values()
        assert clone(est).get_params(deep=False) | {"training": None} == sv.HSVAE().get_params(deep=False)
    assert resolved["texts"] == ((128,), 32, 1e-2, 1.5, pytest.approx(1.2), pytest.approx(0.03), pytest.approx(0.05))
    assert resolved["numbers"] == ((400,), 128, 2e-3, 1.5, 0.5, 1.0, 1.0)


@pytest.mark.parametrize(
    ("name", "argument", "weight", "of_numbers"),
    [
        ("BetaVAE", "beta", 0.1, 4.0),
        ("VSC", "kl_z", 0.05, 1.0),
        ("HSVAE", "kl_z", 0.05, 1.0),
        ("MAT", "kl_weight", 0.1, 1.0),
    ],
)
def test_of_texts_a_code_is_cheap_unless_told_otherwise(
    name: str, argument: str, weight: float, of_numbers: float
) -> None:
    assert make(known()[name]).fit(X).fitted_.weights["kl_z"] == pytest.approx(weight)
    assert make(known()[name], **{argument: 0.7}).fit(X).fitted_.weights["kl_z"] == pytest.approx(0.7)
    assert known()[name]().prepare(np.eye(9)).fitted_.weights["kl_z"] == of_numbers


def test_a_given_value_is_taken_for_texts_too() -> None:
    training = sv.Training(steps=1, batch_size=128, learning_rate=2e-3, early_stopping=False, verbose=0)
    text = Text(size=9, embedding=4)
    est = sv.HSVAE(2, hidden=(400,), alpha=1.5, beta=0.5, kl_z=1, kl_gamma=1, text=text, training=training).fit(X[:40])
    assert est.hidden_ == (400,)
    assert est.training_.get_params() == training.get_params()
    assert est.fitted_.weights == {"kl_gamma": 1.0, "kl_z": 1.0}
    assert float(est.model_.prior.alpha[0]) == 1.5
    assert len(est.input_.vocabulary.words) == 9


def test_a_run_on_texts_is_six_passes_and_a_thousand_steps_at_least() -> None:
    kind = Texts(Text())
    assert training_for(kind, sv.Training(), 100).total_steps(100) == 1000
    assert training_for(kind, sv.Training(), 32_000).total_steps(32_000) == 6000
    assert training_for(kind, sv.Training(batch_size=64), 32_000).total_steps(32_000) == 3000
    assert training_for(kind, sv.Training(epochs=2), 320).total_steps(320) == 20
    assert training_for(kind, sv.Training(steps=7), 320).total_steps(320) == 7
    assert training_for(kind, sv.Training(), 32_000).held_out(32_000) == 0
    assert training_for(Arrays(), sv.Training(), 32_000).total_steps(30_000) == 10_000


def test_a_vocabulary_leaves_five_per_cent_of_the_words_unknown_within_limits() -> None:
    def read(texts: list[str], **settings: Any) -> tuple[int, float]:
        kind = Texts(Text(max_length=10, **settings))
        rows = kind.read(make(text={"max_length": 10}), texts, reset=True)
        return len(kind.vocabulary.words), float((rows == kind.vocabulary.unknown).sum() / (rows > 1).sum())

    def texts(often: int, once: int) -> list[str]:
        """`often` words twice and `once` words once."""
        return [f"w{i} w{i + 1} w{i}" for i in range(often)] + [f"v{i}" for i in range(once)]

    assert read(texts(10, 0))[1] == 0  # few words are all kept, also those seen once
    assert read(texts(100, 100)) == (202, 0.0)
    words, unknown = read(texts(5000, 700))  # words seen once are no more than 5 per cent
    assert 4500 < words < 5002
    assert 0.04 < unknown <= 0.05
    words, unknown = read(texts(3000, 5000))  # and where they are more, none of them is learned
    assert words == 3001
    assert unknown > 0.2
    assert read(texts(22_000, 0))[0] == 20_000  # the unknown word counts
    assert read(texts(3000, 0), tokenizer="paper")[0] == 3002  # the paper's 20,000, if there are so many


def test_a_stored_model_knows_what_was_settled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that other defaults, of a later version, do not change it."""
    est = sv.VAE(2, text=Text(embedding=4), training=sv.Training(steps=2, verbose=0)).fit(X)
    est.save(tmp_path / "model")
    monkeypatch.setattr(Texts, "hidden", (3,))
    monkeypatch.setattr("sparsevae.inputs.texts._RATE", 0.5)
    again = sv.load(tmp_path / "model")
    assert (again.hidden, again.hidden_, again.training_.learning_rate) == (None, (128,), 1e-2)
    assert np.array_equal(again.transform(X), est.transform(X))


@pytest.mark.slow
@pytest.mark.parametrize("model", ["HSVAE", "VSC"])
def test_sentences_get_a_sparse_and_useful_code_by_defaults_alone(model: str) -> None:
    """Two topics in many wordings; the code of a sentence has some units on, not all, and tells its topic."""
    texts, topics = corpus(2000, seed=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        est = getattr(sv, model)(training=sv.Training(verbose=0)).fit(texts[:1500])
    Z = est.transform(texts)
    assert 1 <= Z.count_nonzero(axis=1).mean() <= 40
    assert LogisticRegression(max_iter=500).fit(Z[:1500], topics[:1500]).score(Z[1500:], topics[1500:]) > 0.95


# -- what was left open ----------------------------------------------------------------------------------------------


def test_a_saved_model_keeps_what_none_meant_when_it_was_fitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sv.SparsityWarning)
        est = make(sv.HSVAE).fit(X)
    est.save(tmp_path / "model")
    later = {"texts": {"beta": 9.0, "kl_z": 0.5, "kl_gamma": 0.5}, "numbers": {"beta": 1, "kl_z": 1, "kl_gamma": 1}}
    monkeypatch.setattr(sv.HSVAE, "defaults_by_kind", later)
    found = sv.load(tmp_path / "model")
    assert found.fitted_.weights == est.fitted_.weights == pytest.approx({"kl_gamma": 0.03, "kl_z": 0.05})
    assert np.array_equal(found.score_samples(X[:9]), est.score_samples(X[:9]))


def test_a_run_is_the_same_whether_an_argument_was_left_open_or_has_that_value() -> None:
    runs = []
    for own in ({}, {"kl_z": 0.05, "kl_gamma": 0.03, "beta": sv.HSVAE.defaults_by_kind["texts"]["beta"]}):
        est = make(sv.HSVAE, **own)
        est.prepare(X)
        runs.append(signature(est))
    assert runs[0] == runs[1]


def test_gates_of_vsc_are_chosen_for_texts_and_for_numbers() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sv.SparsityWarning)
        texts, numbers = make(sv.VSC).fit(X), sv.VSC(3, training=sv.Training(steps=2, verbose=0)).fit(np.eye(9))
    assert (texts.alpha, numbers.alpha, texts.gate, numbers.gate) == (None, None, None, None)
    for est, alpha, gate in ((texts, 0.4, StraightThroughConcrete), (numbers, 0.5, StraightThroughConcrete)):
        dist: Any = est.model_.prior.marginal(est.model_.posterior)
        assert dist.p_on.mean().item() == pytest.approx(alpha)
        assert type(est.model_.posterior.gate) is gate
    assert texts.fit(np.eye(9)).fitted_.weights == numbers.fitted_.weights  # what None means is asked anew


def test_six_passes_are_counted_over_the_texts_that_train() -> None:
    some = [f"{text} {k}" for k, text in enumerate(X * 30)]
    est = sv.VAE(2, hidden=(4,), training=sv.Training(validation_fraction=0.5, verbose=0))
    est.prepare(some)
    assert est.training_.steps == max(1000, math.ceil(6 * len(some) / 2 / 32))
