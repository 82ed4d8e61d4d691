"""Claims: CodeClassifier is a plain network with a code inside, trained by labels; for arrays and for texts alike its
code never sees y, and sentences of any width are read to their end and no further."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from conftest import Shifted, check_learner
from safetensors.torch import load_file
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

import sparsevae as sv
from sparsevae import cli
from sparsevae.estimator.supervised import FromLabels
from sparsevae.inputs.batch import Batch, Examples
from sparsevae.inputs.ragged import Ragged
from sparsevae.inputs.rows import Host, parts
from sparsevae.inputs.texts import Text
from sparsevae.latent.bounds import log_weights
from sparsevae.parameters import documented
from sparsevae.sampling.draw import Draw
from sparsevae.sampling.noise import PerRow, row_keys
from sparsevae.text.ids import EOS, PAD
from sparsevae.training.loop import split
from sparsevae.training.step import Run

D, L = 6, 3
rng = np.random.default_rng(0)
X = rng.normal(size=(300, D))
SCORES = X @ rng.normal(size=(D, L))
NAMES = np.array(["cold", "mild", "warm"])
CLASS = NAMES[SCORES.argmax(1)]  # one class a row
LABELS = (SCORES > 0.5).astype(int)  # any number of labels a row
TRAIN, TEST = slice(0, 200), slice(200, 300)

FARM = ("cow eats grass", "hen lays an egg", "farmer feeds the cow and the hen")
TOWN = ("tram stops at corner", "shop sells a lamp", "street is loud")
SEA = ("ship leaves the harbour", "wave breaks", "sailor sees a whale far out")


def corpus(n: int = 240, seed: int = 0) -> tuple[list[str], np.ndarray]:
    """Sentences of three topics, of 3 to 20 words, and their topics."""
    draw = np.random.default_rng(seed)
    y = draw.integers(0, 3, n)
    return ["the " + " and ".join(draw.choice((FARM, TOWN, SEA)[k], draw.integers(1, 4))) for k in y], y


TEXTS, TOPICS = corpus()
WORDS = np.array([["cow" in text, "tram" in text, "ship" in text, "and" in text] for text in TEXTS]).astype(int)


def make(*, training: Any = None, text: Any = None, **changes: Any) -> Any:
    settings = {"steps": 80, "batch_size": 32, "learning_rate": 2e-2, "verbose": 0} | (training or {})
    words = Text(**{"max_length": 24, "embedding": 8} | (text or {}))
    own = {"n_components": 4, "hidden": (16,), "text": words, "training": sv.Training(**settings)}
    return sv.CodeClassifier(**own | changes)


def rows_of(est: Any, y: Any, texts: Any = TEXTS) -> Batch:
    """x and y of texts at full width, as training takes them."""
    x = est.fitted_.rows(texts)
    return Batch(*(torch.tensor(values, dtype=torch.float32) for values in (x, y)))


def reported(est: Any, rows: Batch) -> Any:
    return est.model_(rows, Draw(PerRow(row_keys(rows.x), 0), hard=False))


@pytest.fixture(scope="module")
def reader() -> Any:
    """A classifier of texts that has learned its topics."""
    return make(training={"steps": 150}).fit(TEXTS, TOPICS)


# -- scikit-learn ----------------------------------------------------------------------------------------------------


@parametrize_with_checks([make(training={"steps": 60}, text={})])
def test_scikit_learn_s_own_checks(estimator: Any, check: Any) -> None:
    check_learner(estimator, check)


@pytest.mark.slow
@parametrize_with_checks([make(training={"steps": 60}, scale="unit-norm")])
def test_scikit_learn_s_own_checks_of_another_scale(estimator: Any, check: Any) -> None:
    check_learner(estimator, check)


def test_the_size_of_the_code_is_a_parameter_and_what_describes_x_is_none() -> None:
    names = [p.name for p in documented(sv.CodeClassifier)]
    assert names == ["n_components", "hidden", "network", "image_shape", "encoder", "scale", "training", "text"]
    assert sv.CodeClassifier(7).n_components == 7
    assert sv.CodeClassifier().n_components == 32
    assert issubclass(sv.CodeClassifier, FromLabels)
    assert clone(make(n_components=5)).get_params()["n_components"] == 5


def test_grid_search_tunes_model_and_training_for_accuracy() -> None:
    grid = {"n_components": [1, 4], "training__steps": [1, 80]}
    search = GridSearchCV(make(), grid, cv=2, error_score="raise").fit(X, CLASS)
    assert search.best_params_ == {"n_components": 4, "training__steps": 80}
    assert search.best_score_ > 0.85


def test_it_ends_a_pipeline_and_its_codes_begin_one() -> None:
    pipe = make_pipeline(StandardScaler(), make()).fit(X[TRAIN], CLASS[TRAIN])
    assert pipe.score(X[TEST], CLASS[TEST]) > 0.85
    codes = make_pipeline(make(), LogisticRegression()).fit(X[TRAIN], CLASS[TRAIN])
    assert codes.score(X[TEST], CLASS[TEST]) > 0.85
    assert codes[:-1].get_feature_names_out().tolist() == [f"codeclassifier{j}" for j in range(4)]


def test_nothing_is_predicted_before_a_fit() -> None:
    for name in ("predict", "predict_proba", "transform"):
        with pytest.raises(NotFittedError):
            getattr(sv.CodeClassifier(), name)(X)


def test_a_fit_without_y_is_refused() -> None:
    with pytest.raises(ValueError, match="requires y to be passed"):
        make().fit(X)


# -- learning --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("network", ["dense", "conv"])
def test_planted_classes_of_rows_are_learned(network: str) -> None:
    est = make(network=network, image_shape=(2, 3)).fit(X[TRAIN], CLASS[TRAIN])
    assert est.classes_.tolist() == est.label_names_ == NAMES.tolist()
    assert est.score(X[TEST], CLASS[TEST]) > 0.85
    np.testing.assert_allclose(est.predict_proba(X[TEST]).sum(1), 1, atol=1e-6)
    assert np.array_equal(est.predict(X[TEST]), est.classes_[est.predict_proba(X[TEST]).argmax(1)])


def test_planted_labels_of_rows_are_learned() -> None:
    est = make().fit(X[TRAIN], LABELS[TRAIN])
    P = est.predict_proba(X[TEST])
    assert np.array_equal(est.predict(X[TEST]), (P > 0.5).astype(int))
    assert (est.predict(X[TEST]) == LABELS[TEST]).mean() > 0.9
    assert est.classes_.tolist() == [0, 1, 2]


def test_topics_of_texts_are_learned(reader: Any) -> None:
    texts, y = corpus(100, seed=1)
    assert reader.score(texts, y) > 0.95
    assert reader.transform(texts).shape == (100, 4)
    assert np.array_equal(reader.predict(tuple(texts)), reader.predict(pd.Series(texts)))
    assert np.array_equal(reader.predict(t for t in texts), reader.predict(texts))


def test_several_labels_of_texts_are_learned() -> None:
    est = make(training={"steps": 200}).fit(TEXTS[:200], WORDS[:200])
    assert (est.predict(TEXTS[200:]) == WORDS[200:]).mean() > 0.9


def test_codes_are_dense_and_all_that_predictions_are_made_of(reader: Any) -> None:
    for est, x in ((make().fit(X, CLASS), X), (reader, TEXTS)):
        Z = est.transform(x)
        assert isinstance(Z, np.ndarray)
        assert Z.dtype == np.float32
        dist = est.model_.targets.linear
        logits = Z @ dist.weight.detach().numpy().T + dist.bias.detach().numpy()
        np.testing.assert_allclose(est.predict_proba(x), torch.tensor(logits).softmax(-1).numpy(), atol=1e-5)
        with pytest.raises(ValueError, match="CodeClassifier codes are dense"):
            est.transform(x, max_active=2)


def test_evaluate_says_how_good_classes_and_labels_are(reader: Any) -> None:
    for est, x, y in ((reader, TEXTS, TOPICS), (make().fit(X, LABELS), X, LABELS)):
        found = est.evaluate(x, y)
        assert found["accuracy"] == found["exact"] == pytest.approx(est.score(x, y))
        assert found["rows"] == len(y)
        assert found["labels_true"] == pytest.approx(1 if y.ndim == 1 else y.sum(1).mean())
        assert found["macro_f1_harmonic"] >= found["macro_f1_mean"]
    assert reader.evaluate((t for t in TEXTS), TOPICS) == reader.evaluate(TEXTS, TOPICS)
    with pytest.raises(ValueError, match=r"no p\(x\|z\).*pass y"):
        reader.evaluate(TEXTS)
    with pytest.raises(ValueError, match="caps are for codes with gates"):
        reader.evaluate(TEXTS, TOPICS, caps=(3,))


def test_it_has_no_word_on_x(reader: Any) -> None:
    about_x = ("score_samples", "score_meaning", "importance_bound", "relaxed_objective", "draw_codes")
    for name in (*about_x, "inverse_transform", "reconstruct", "generate", "sample", "sample_like"):
        assert callable(getattr(sv.VAE, name))
        assert not hasattr(reader, name)
    with pytest.raises(ValueError, match=r"no p\(x\|z\)"):
        reader.model_.decode(torch.zeros(1, 4))
    with pytest.raises(ValueError, match="a bound needs hard draws"):
        log_weights(reported(reader, rows_of(reader, np.eye(3)[TOPICS])))
    x = torch.tensor(X, dtype=torch.float32)
    with pytest.raises(ValueError, match=r"no p\(x\|z\)"):
        reported(make().fit(X, CLASS), Batch(x))


# -- what it is ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("y", [np.eye(L, dtype=int)[SCORES.argmax(1)], LABELS], ids=["classes", "labels"])
def test_it_is_a_plain_network_with_a_cross_entropy(y: np.ndarray) -> None:
    """The same weights in torch's own layers: the same loss and the same gradients."""
    single = bool((y.sum(1) == 1).all())
    est = make(scale="none").fit(X, y.argmax(1) if single else y)
    x, target = torch.tensor(X, dtype=torch.float32), torch.tensor(y, dtype=torch.float32)
    plain = nn.Sequential(nn.Linear(D, 16), nn.ReLU(), nn.Linear(16, 4), nn.Linear(4, L))
    model = est.model_.requires_grad_()
    ours = [*model.encoder.parameters(), *model.targets.parameters()]
    with torch.no_grad():
        for theirs, own in zip(plain.parameters(), ours, strict=True):
            theirs.copy_(own)
    assert len(list(model.parameters())) == len(ours)  # and there is nothing else to train
    if single:
        wanted = cross_entropy(plain(x), target.argmax(1))
    else:
        wanted = binary_cross_entropy_with_logits(plain(x), target, reduction="none").sum(-1).mean()
    loss, terms = est.fitted_.objective(reported(est, Batch(x, target)))
    assert list(terms) == ["nll_y"]
    torch.testing.assert_close(loss, wanted)
    gradients = zip(torch.autograd.grad(loss, ours), torch.autograd.grad(wanted, plain.parameters()), strict=True)
    for own, theirs in gradients:
        torch.testing.assert_close(own, theirs, atol=1e-6, rtol=1e-4)
        assert float(own.abs().max()) > 0


def test_of_texts_it_is_an_embedding_a_gru_and_two_linear_maps(reader: Any) -> None:
    """torch's own layers, sentence by sentence without padding."""
    state, dist = reader.model_.encoder.state_dict(), reader.model_.targets.linear
    words, gru = nn.Embedding.from_pretrained(state["0.words.weight"]), nn.GRU(8, 16, batch_first=True)
    gru.load_state_dict({k.removeprefix("0.gru."): v for k, v in state.items() if k.startswith("0.gru.")})
    losses = []
    for row, topic in zip(reader.fitted_.rows(TEXTS[:40]), TOPICS[:40], strict=True):
        sentence = torch.tensor(row[: int((row == EOS).argmax()) + 1]).long()
        with torch.no_grad():
            code = nn.functional.linear(gru(words(sentence[None]))[1][0], state["1.weight"], state["1.bias"])
            losses.append(cross_entropy(dist(code), torch.tensor([topic])))
        np.testing.assert_allclose(code[0].numpy(), reader.transform([TEXTS[len(losses) - 1]])[0], atol=1e-5)
    own = (
        -reported(reader, rows_of(reader, np.eye(3)[TOPICS[:40]], TEXTS[:40]))
        .observed["y"][0]
        .log_prob(torch.tensor(np.eye(3)[TOPICS[:40]], dtype=torch.float32))
    )
    torch.testing.assert_close(own.detach(), torch.stack(losses), atol=1e-5, rtol=1e-4)
    assert sum(p.numel() for p in reader.model_.parameters()) == sum(v.numel() for v in state.values()) + 4 * 3 + 3


def test_the_validation_loss_is_the_log_loss_of_predictions() -> None:
    est = make(training={"validation_fraction": 0.5, "steps": 40, "report_every": 40}).fit(X, CLASS)
    _, held_out = split(len(X), est.training_settings(), torch.device("cpu"))
    wanted = log_loss(CLASS[held_out], est.predict_proba(X[held_out]))
    assert est.history_.column("validation_loss")[-1] == pytest.approx(wanted, rel=1e-5)


def test_without_settings_training_stops_early() -> None:
    est = sv.CodeClassifier().set_params(training__steps=7)
    assert (est.training.steps, est.training.patience, est.training.validation_fraction) == (7, 5, 0.1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_components": 0}, "n_components must be an integer above 0"),
        ({"network": "gru"}, "network='gru' is for texts"),
        ({"training": {"free_bits": 1.0}}, "CodeClassifier has none"),
        ({"training": {"kl_warmup": 0.5}}, "kl_warmup is for the weight of a KL"),
        ({"training": {"n_samples": 2}}, "n_samples is for draws of a code"),
        ({"training": {"schedules": {"kl_z": sv.Constant(1.0)}}}, "unknown knobs"),
        ({"image_shape": (5, 5)}, "image_shape must be that of a row"),
    ],
)
def test_arguments_that_cannot_work_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(**changes).fit(X, CLASS)


EFFECTS: dict[str, tuple[dict[str, Any], Any]] = {
    # parameter: what else must be set for it to matter, another value
    "n_components": ({}, 5),
    "hidden": ({}, (9,)),
    "network": ({"image_shape": (2, 3)}, "conv"),
    "image_shape": ({"network": "conv", "image_shape": (2, 3)}, (3, 2)),
    "scale": ({}, "none"),
    "encoder": ({}, Shifted(D)),
    "text": ({}, Text(embedding=5)),  # of texts
    "training": ({}, sv.Training(steps=9, verbose=0)),
}


@pytest.mark.parametrize("name", [p.name for p in documented(sv.CodeClassifier)])
def test_every_parameter_changes_the_result(name: str) -> None:
    base, value = EFFECTS[name]
    x, y = (TEXTS, TOPICS) if name == "text" else (X, CLASS)
    fits = []
    for changes in (base, base | {name: value}):
        own = {"n_components": 4, "hidden": (8,), "training": sv.Training(steps=5, verbose=0)} | changes
        fits.append(sv.CodeClassifier(**own).fit(x, y).predict_proba(x))
    assert not np.array_equal(*fits)


# -- y beside x ------------------------------------------------------------------------------------------------------


def test_the_code_of_a_row_does_not_depend_on_its_labels() -> None:
    est = make().fit(X, LABELS)
    x = torch.tensor(X, dtype=torch.float32)
    with torch.no_grad():
        codes = [est.model_.read(Batch(x, torch.full((300, L), v))) for v in (0.0, 1.0)]
        assert torch.equal(codes[0], codes[1])
        assert torch.equal(codes[0], est.model_.read(Batch(x)))


@pytest.mark.parametrize("value", [0.0, 1.0, "random"])
def test_the_code_of_a_text_does_not_depend_on_what_stands_behind_it(reader: Any, value: Any) -> None:
    """A reader stops at EOS. What stands behind it, 1 (which is EOS's own number) included, changes no bit."""
    x = torch.tensor(reader.fitted_.rows(TEXTS), dtype=torch.float32)
    noise = torch.randint(0, 9, x.shape, generator=torch.Generator().manual_seed(0)).float()
    behind = ((x == EOS).cumsum(-1) - (x == EOS).float()) > 0
    assert bool((x[behind] == PAD).all())
    changed = torch.where(behind, noise if value == "random" else torch.full_like(x, value), x)
    encode = reader.model_.encode
    with torch.no_grad():
        assert torch.equal(encode(changed).mean, encode(x).mean)


def test_in_training_the_reader_is_given_x_alone(reader: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, seen = rows_of(reader, np.eye(3)[TOPICS]), []
    plain = type(reader.model_.encoder[0]).forward
    monkeypatch.setattr(type(reader.model_.encoder[0]), "forward", lambda s, x: seen.append(x) or plain(s, x))
    for width in (24, 32):
        short = (rows.x == EOS).int().argmax(1) < width
        narrow = Batch(rows.x[short, :width], rows.y[short])
        observed = reported(reader, narrow).observed["y"]
        assert torch.equal(seen[-1], narrow.x)
        assert torch.equal(observed.value, narrow.y)
        assert observed.dist.batch_shape == (int(short.sum()),)


def test_rows_of_x_and_y_come_in_the_widths_of_x() -> None:
    lengths = np.arange(40) % 16 + 1
    x = np.where(np.arange(16) < lengths[:, None] - 1, 5, PAD)
    x[np.arange(40), lengths - 1] = EOS
    cpu, y = torch.device("cpu"), np.arange(80.0).reshape(40, 2)
    ragged = Ragged(x, lengths, (4, 8, 16), cpu)
    rows, items = Examples(ragged, Host(y, cpu)), torch.arange(0, 40, 2)
    found, alone = rows.parts(items, 4), parts(ragged, items, 4)
    assert [part.x.shape[1] for part, _ in found] == [part.shape[1] for part, _ in alone] == [4, 8, 16]
    assert torch.equal(torch.cat([own for _, own in found]).sort().values, items)
    for part, own in found:
        taken, whole = part.take(own), rows.take(own)
        assert torch.equal(taken.y, torch.tensor(y, dtype=torch.float32)[own])
        assert torch.equal(taken.x, whole.x[:, : taken.x.shape[1]])
        assert bool((whole.x[:, taken.x.shape[1] :] == PAD).all())  # what is left out


def test_texts_are_trained_in_several_widths(monkeypatch: pytest.MonkeyPatch) -> None:
    widths: set[int] = set()
    plain = Run._measure
    monkeypatch.setattr(Run, "_measure", lambda run, batch: widths.add(batch.x.shape[-1]) or plain(run, batch))
    make(training={"steps": 20, "batch_size": 16}).fit(TEXTS, TOPICS)
    assert len(widths) > 1
    assert max(widths) <= 32


def test_narrow_rows_teach_what_whole_rows_teach(reader: Any) -> None:
    """Loss and gradients of short sentences, with their padding and without most of it."""
    rows = rows_of(reader, np.eye(3)[TOPICS])
    short = (rows.x == EOS).int().argmax(1) < 8
    assert int(short.sum()) > 20
    model, found = reader.model_.requires_grad_(), []
    for x in (rows.x[short], rows.x[short, :8]):
        loss, _ = reader.fitted_.objective(reported(reader, Batch(x, rows.y[short])))
        found.append((loss, *torch.autograd.grad(loss, list(model.parameters()))))
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-4)


# -- forms of y, and the disk ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [sp.csr_matrix, sp.csr_array])
def test_sparse_labels_are_dense_labels(form: Any) -> None:
    for x, y in ((X, LABELS), (TEXTS, WORDS)):
        dense, sparse = (make(training={"steps": 20}).fit(x, v) for v in (y, form(y)))
        assert np.array_equal(dense.predict_proba(x), sparse.predict_proba(x))
        assert sp.issparse(sparse.predict(x))
        assert np.array_equal(sparse.predict(x).toarray(), dense.predict(x))
        assert sparse.evaluate(x, form(y)) == dense.evaluate(x, y)


def test_a_single_class_is_learned_as_such() -> None:
    est = make(training={"steps": 5}).fit(TEXTS, ["only"] * len(TEXTS))
    assert set(est.predict(TEXTS)) == {"only"}
    assert est.history_.column("nll_y")[-1] == 0


def test_names_of_labels_are_kept(tmp_path: Path) -> None:
    est = make(training={"steps": 5}).fit(X, pd.DataFrame(LABELS, columns=list("abc")))
    assert est.label_names_ == list("abc")
    named = make(training={"steps": 5}).fit(TEXTS, TOPICS, label_names=["farm", "town", "sea"])
    named.save(tmp_path / "model")
    assert sv.load(tmp_path / "model").label_names_ == ["farm", "town", "sea"]
    assert sv.load(tmp_path / "model").classes_.tolist() == [0, 1, 2]


@pytest.mark.parametrize(("x", "y"), [(X, CLASS), (X, LABELS), (TEXTS, TOPICS), (TEXTS, sp.csr_matrix(WORDS))])
def test_a_model_survives_the_disk_and_a_pickle(x: Any, y: Any, tmp_path: Path) -> None:
    est = make(training={"steps": 10}).fit(x, y)
    est.save(tmp_path / "model")
    for again in (sv.load(tmp_path / "model"), pickle.loads(pickle.dumps(est))):
        assert type(again) is sv.CodeClassifier
        assert again.n_components == 4
        assert np.array_equal(again.predict_proba(x), est.predict_proba(x))
        assert np.array_equal(again.transform(x), est.transform(x))
        assert again.evaluate(x, y) == est.evaluate(x, y)
        assert again.classes_.dtype == est.classes_.dtype
        again.partial_fit(x, y)
        assert not np.array_equal(again.transform(x), est.transform(x))


def test_weights_for_words_that_nothing_trains_are_not_stored(reader: Any, tmp_path: Path) -> None:
    reader.save(tmp_path / "model")
    stored = {k for file in (tmp_path / "model").glob("*.safetensors") for k in load_file(file)}
    assert {k.split(".")[1] for k in stored} == {"encoder", "targets"}


def test_partial_fit_goes_on_learning_and_knows_its_classes() -> None:
    est = make().partial_fit(TEXTS, TOPICS, classes=[0, 1, 2])
    for _ in range(10):
        est.partial_fit(TEXTS, TOPICS)
    texts, y = corpus(60, seed=2)
    assert est.score(texts, y) > 0.9
    with pytest.raises(ValueError, match=r"y holds classes \[7\] beside those known"):
        est.partial_fit(TEXTS, np.where(TOPICS == 2, 7, TOPICS))


class KilledError(RuntimeError):
    """Stands for a signal that nothing catches."""


@pytest.mark.parametrize("kills", [(3,), (12, 20)])
def test_a_killed_run_on_texts_resumes_bit_by_bit(
    kills: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"steps": 30, "batch_size": 16, "report_every": 5, "checkpoint_every": 5, "validation_fraction": 0.2}
    folder = {"folder": str(tmp_path / "run")}
    whole = make(training=settings).fit(TEXTS, TOPICS)
    plain = Run.advance
    for at in kills:

        def dies(run: Run, at: int = at) -> None:
            if run.step == at:
                raise KilledError
            plain(run)

        monkeypatch.setattr(Run, "advance", dies)
        with pytest.raises(KilledError):
            make(training=settings | folder | {"resume": True}).fit(TEXTS, TOPICS)
    monkeypatch.setattr(Run, "advance", plain)
    resumed = make(training=settings | folder | {"resume": True}).fit(TEXTS, TOPICS)
    for name, value in whole.model_.state_dict().items():
        assert torch.equal(value, resumed.model_.state_dict()[name]), name
    assert resumed.history_ == whole.history_
    with pytest.raises(ValueError, match="data"):  # other labels are other data
        make(training=settings | folder | {"resume": True}).fit(TEXTS, 2 - TOPICS)


# -- the command line and real texts ---------------------------------------------------------------------------------


def test_the_command_line_fits_and_judges_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, words = tmp_path / "model", "--data digits --n-components 8 --hidden 32 --steps 150 --learning-rate 0.01"
    more = "--patience none --validation-fraction 0 --device cpu -q"
    assert cli.main(["fit", "code-classifier", *words.split(), *more.split(), "--out", str(out)]) == 0
    assert "(10 labels), 150 steps" in capsys.readouterr().out
    assert cli.main(["evaluate", str(out), "--data", "digits", "--json"]) == 0
    assert '"accuracy": 0.9' in capsys.readouterr().out


DBPEDIA = Path(os.environ.get("SPARSEVAE_DATA", "nowhere")) / "dbpedia"


@pytest.mark.slow
@pytest.mark.skipif(not DBPEDIA.is_dir(), reason="needs $SPARSEVAE_DATA/dbpedia")
def test_a_small_one_learns_the_classes_of_dbpedia_within_seconds() -> None:
    """Published, at full size: .98. Chance is .07."""
    data, order = sv.data.load("dbpedia"), np.random.default_rng(0)
    train, test = order.permutation(len(data.X))[:5000], order.permutation(len(data.X_test))[:500]
    settings = sv.Training(steps=200, batch_size=64, learning_rate=1e-2, verbose=0)
    text = Text(tokenizer="space", size=4000, max_length=16, embedding=32)
    est = sv.CodeClassifier(16, hidden=(32,), text=text, training=settings)
    with pytest.warns(UserWarning, match="were cut"):
        est.fit([data.X[i] for i in train], data.y[train])
    assert est.score([data.X_test[i] for i in test], data.y_test[test]) > 0.75  # of cut texts a fit tells once


@pytest.mark.parametrize("cls", [sv.CodeClassifier, sv.SDLGMCounter])
def test_images_are_divided_by_255_where_no_variance_is_learned(cls: Any) -> None:
    """There is no p(x|z) and no floor of its variance, so nothing asks for columns that vary more."""
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 200, (60, 9)).astype(np.uint8), rng.integers(0, 2, 60)
    est = cls(hidden=(8,), training=sv.Training(steps=2, verbose=0)).fit(X, y)
    assert set(est.scaling_.scale.tolist()) == {255.0}
    assert cls().get_params().get("variance_floor") is None


def test_a_classifier_does_not_go_on_as_another() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 9)), rng.integers(0, 2, 60)
    est = sv.CodeClassifier(4, hidden=(8,), training=sv.Training(steps=2, verbose=0)).fit(X, y)
    with pytest.raises(ValueError, match="was fitted with n_components=4, and is now set to n_components=5"):
        est.set_params(n_components=5).partial_fit(X, y)
