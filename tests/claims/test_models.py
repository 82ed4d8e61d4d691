"""The models: reductions between them as equalities, an autoencoder without noise, and no parameter without effect."""

from __future__ import annotations

import math
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import scipy.stats
import torch
from conftest import Shifted

import sparsevae as sv
from sparsevae.estimator.coder import SparseCoder
from sparsevae.inputs.texts import Text
from sparsevae.latent.model import LatentModel, Trace
from sparsevae.likelihoods.gaussian import LaplaceData
from sparsevae.models import REGISTRY
from sparsevae.parameters import documented
from sparsevae.sampling.draw import Draw
from sparsevae.sampling.noise import Fresh

pytestmark = [
    pytest.mark.filterwarnings(f"ignore::sparsevae.exceptions.{name}")
    for name in ("SparsityWarning", "OverfittingWarning")
]
N, D = 40, 16
_rng = np.random.default_rng(0)
X = (_rng.normal(size=(N, 3)) @ _rng.normal(size=(3, D)) + 0.3 * _rng.normal(size=(N, D))).astype(np.float32)
GREY = _rng.random((N, D)).astype(np.float32)
TEXTS = ["a red cat", "the blue dog sees a red cat", "the cat sleeps", "a dog"] * 4


def make(cls: type[SparseCoder], *, training: dict[str, Any] | None = None, **changes: Any) -> Any:
    settings = {"steps": 8, "batch_size": 16, "learning_rate": 1e-2, "verbose": 0} | (training or {})
    return cls(**{"n_components": 4, "hidden": (8,), "training": sv.Training(**settings)} | changes)


def reported(est: Any, x: Any = X, *, seed: int = 0, hard: bool = False, repeats: int = 1) -> Trace:
    """The fitted model's story of rows in X's units."""
    rows = est.scaling_(torch.tensor(x)).repeat(repeats, 1)
    return est.model_(rows, Draw(Fresh(torch.Generator().manual_seed(seed)), hard=hard))


def terms(est: Any, trace: Trace) -> dict[str, float]:
    loss, measured = est.fitted_.objective(trace)
    return {"loss": float(loss.detach())} | {k: float(v.detach()) for k, v in measured.items()}


# -- reductions ------------------------------------------------------------------------------------------------------


def test_at_capacity_zero_the_capacity_vae_is_the_beta_vae() -> None:
    """The same losses and gradients, so the same weights after training; not so with room to use."""
    beta = make(sv.BetaVAE, beta=3.0, training={"steps": 30}).fit(X)
    kept_rows = make(sv.CapacityVAE, capacity=0.0, gamma=3.0, training={"steps": 30}).fit(X)
    for term in ("loss", "nll_x", "kl_z"):
        assert kept_rows.history_.column(term) == pytest.approx(beta.history_.column(term), rel=1e-4)
    assert kept_rows.history_.column("capacity_gap") == pytest.approx(kept_rows.history_.column("kl_z"), rel=1e-6)
    weights = kept_rows.model_.state_dict()
    for name, value in beta.model_.state_dict().items():
        assert torch.allclose(value, weights[name], atol=1e-4), name
    free = make(sv.CapacityVAE, capacity=5.0, gamma=3.0, training={"steps": 30}).fit(X)
    assert free.history_[-1]["kl_z"] > 2 * kept_rows.history_[-1]["kl_z"]


def test_the_capacity_ramp_ends_at_its_capacity() -> None:
    est = make(sv.CapacityVAE, capacity=6.0, ramp=4, training={"report_every": 1}).fit(X)
    ramp = est.build(est.fitted_.data, None).schedules["capacity"]
    assert [ramp(step, 8) for step in (0, 2, 4, 7)] == [0.0, 3.0, 6.0, 6.0]
    fixed = make(sv.CapacityVAE, ramp=0).prepare(X)
    assert fixed.build(fixed.fitted_.data, None).schedules == {}
    kl_z, distance = (np.array(est.history_.column(k)) for k in ("kl_z", "capacity_gap"))
    wanted = np.abs(kl_z - np.array([ramp(step, 8) for step in range(8)]))
    np.testing.assert_allclose(distance, wanted, rtol=1e-4)


def test_a_schedule_named_capacity_drives_c() -> None:
    """The name of the constructor's C; the distance from it is another."""
    plan = {"capacity": sv.Linear(0.0, 5.0)}
    est = make(sv.CapacityVAE, capacity=1.0, training={"report_every": 1, "schedules": plan}).fit(X)
    kl_z, gap = (np.array(est.history_.column(k)) for k in ("kl_z", "capacity_gap"))
    np.testing.assert_allclose(gap, np.abs(kl_z - np.arange(8) * 5 / 8), rtol=1e-4)


def test_a_ramp_longer_than_the_run_is_refused() -> None:
    with pytest.raises(ValueError, match=r"ramp must be within the run's 8 steps.*got 9"):
        make(sv.CapacityVAE, ramp=9).fit(X)
    with pytest.raises(ValueError, match=r"the run's 2000 steps"):
        sv.CapacityVAE(ramp=20_000).fit(X)
    half = sv.Training(epochs=2, batch_size=len(X) // 4, validation_fraction=0.5, verbose=0)  # 4 steps, not 8
    with pytest.raises(ValueError, match=r"the run's 4 steps.*got 6"):
        sv.CapacityVAE(ramp=6, training=half).fit(X)
    with pytest.raises(ValueError, match=r"the run's 1000 steps"):
        sv.CapacityVAE(ramp=5000).fit(["a text", "another one"])
    make(sv.CapacityVAE, ramp=8).fit(X)


@pytest.mark.parametrize("cls", [sv.BetaTCVAE, sv.MAT])
def test_models_that_compare_rows_need_two_in_a_batch(cls: Any) -> None:
    with pytest.raises(ValueError, match=r"training\.batch_size=2 or more"):
        make(cls, training={"batch_size": 1}).fit(X)
    make(cls, training={"batch_size": 2}).check()


def test_alpha_says_what_it_is_in_each_model() -> None:
    shown = {cls: {p.name: p.help for p in documented(cls)}["alpha"] for cls in (sv.VSC, sv.PseudoVSC)}
    assert "Prior probability" in shown[sv.VSC]
    assert "aggregate-sparsity" in shown[sv.PseudoVSC]


def warned(est: Any) -> str:
    with pytest.warns(sv.SparsityWarning) as caught:
        est.fit(X)
    return str(caught[0].message)


def test_remedies_are_what_the_model_has() -> None:
    """alpha where there are gates, capacity where there is one, the likelihood's own variance; free bits nowhere."""
    few = {"training": {"steps": 100}}
    defaults, then = "training.steps=1000 and training.kl_warmup=0.5", "if that does not help"
    full = [
        (sv.VSC, {"alpha": 0.9}, f"Try alpha=0.3, {defaults}; {then}, n_components=2."),
        (sv.CapacityVAE, {}, f"Try capacity=2.5, {defaults}; {then}, n_components=2."),
        (sv.MAT, {"mmd_weight": 0.0, "kl_weight": 0.0}, f"Try kl_weight=1.0, {defaults}; {then}, n_components=2."),
    ]
    for cls, settings, shown in full:
        assert shown in warned(make(cls, n_components=1, **settings, **few))
    empty = [
        (
            sv.VSC,
            {"alpha": 1e-4, "start": "random"},
            f"Try start='rows'; {then}, alpha=0.1, {defaults}; {then}, alpha=0.3.",
        ),
        (
            sv.CapacityVAE,
            {"capacity": 0.0, "gamma": 1e4},
            f"Try capacity=1.0, {defaults}; {then}, variance_floor=0.003.",
        ),
        (sv.BetaVAE, {"beta": 1e4, "likelihood": "laplace"}, f"Try beta=4.0, {defaults}; {then}, beta=1.0."),
        (
            sv.VAE,
            {"likelihood": "fixed-gaussian", "variance": 1e4},
            f"Try variance=0.1, {defaults}; {then}, training.sch",
        ),
    ]
    for cls, settings, shown in empty:
        assert shown in (message := warned(make(cls, **settings, **few)))
        assert "free_bits" not in message


def test_a_full_code_without_noise_is_no_surprise() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        est = make(sv.VAE, noise=False, training={"steps": 100}).fit(X)
    assert est.history_[-1]["active_units"] == 4


def errata(text: str) -> set[str]:
    """The numbers in "erratum 3", "errata 4 and 5", "errata 1, 2"."""
    found = re.findall(r"errat(?:um|a) \d+(?:(?:, | and )\d+)*", text, re.IGNORECASE)
    return set(re.findall(r"\d+", " ".join(found)))


def test_every_erratum_that_a_file_names_is_on_the_page_of_models() -> None:
    root = Path(__file__).parents[2]
    files = [p for folder in ("sparsevae", "tests", "reproductions") for p in (root / folder).rglob("*.py")]
    named = errata(" ".join(p.read_text(encoding="utf-8") for p in files))
    assert {"1", "28", "32"} <= named <= errata((root / "docs/models.md").read_text(encoding="utf-8"))


@pytest.mark.parametrize("estimator", ["weighted", "stratified"])
def test_with_unit_weights_the_tcvae_has_the_vae_s_loss_in_the_mean(estimator: str) -> None:
    """mi + tc + dim_kl is a one-sample KL: the same networks have the same loss, draws averaged out."""
    vae = make(sv.VAE).fit(X)
    tc = make(sv.BetaTCVAE, beta=1.0, estimator=estimator).fit(X)
    tc.model_.load_state_dict(vae.model_.state_dict())
    gaps = []
    for seed in range(300):
        ours, theirs = terms(tc, reported(tc, seed=seed)), terms(vae, reported(vae, seed=seed))
        assert ours["nll_x"] == theirs["nll_x"]
        gaps.append(ours["loss"] - theirs["loss"])
    assert abs(np.mean(gaps)) < 4 * np.std(gaps) / 300**0.5
    assert np.std(gaps) < 1  # so that the claim is not empty


def test_mat_without_narrow_units_and_mmd_has_the_vae_s_kl_in_the_mean() -> None:
    vae, mat = make(sv.VAE).fit(X), make(sv.MAT, off=0.0, mmd_weight=0.0).fit(X)
    mat.model_.load_state_dict(vae.model_.state_dict())
    gaps = []
    for seed in range(300):
        ours, theirs = terms(mat, reported(mat, seed=seed)), terms(vae, reported(vae, seed=seed))
        assert ours["nll_x"] == theirs["nll_x"]  # the draw of the prior comes after that of the code
        assert ours["loss"] == pytest.approx(ours["nll_x"] + ours["kl_z"], rel=1e-5)
        gaps.append(ours["kl_z"] - theirs["kl_z"])
    assert abs(np.mean(gaps)) < 4 * np.std(gaps) / 300**0.5
    np.testing.assert_allclose(mat.score_samples(X), vae.score_samples(X), rtol=1e-4)  # and bounds agree draw by draw


def test_a_draw_of_the_prior_stands_beside_the_codes_of_mat() -> None:
    est = make(sv.MAT, off=0.5, spike=0.1, n_components=6).fit(X)
    site = reported(est, repeats=500).latents["z"]
    assert site.reference is not None
    assert site.reference.shape == site.value.shape
    assert not site.reference.requires_grad
    assert float(site.reference.var()) == pytest.approx(0.5 * 0.01 + 0.5, rel=0.02)


def test_whole_slabs_from_the_start_are_vsc_s() -> None:
    """slab_warmup = (0, 0), one pseudo-input: relaxed draws are those of a plain spike-and-slab, bit by bit."""
    est = make(sv.PseudoVSC, pseudo_inputs=1, slab_warmup=(0.0, 0.0)).fit(X)
    q = reported(est).latents["z"].q
    assert float(est.model_.posterior.slab_warmup) == 1
    plain = type(q)(q.logits, q.loc, q.scale, q.gate)
    noise = Fresh(torch.Generator().manual_seed(0))
    assert torch.equal(reported(est).latents["z"].value, Draw(noise, hard=False)(plain))


def test_the_published_laplace_has_a_scale_of_a_tenth() -> None:
    est = make(sv.VAE, likelihood="laplace", variance=0.02, scale="none").fit(X)
    assert isinstance(est.model_.likelihood, LaplaceData)
    p = est.model_.decode(torch.zeros(1, 4))
    assert torch.allclose(p.base_dist.scale, torch.tensor(0.1))
    assert est.evaluate(X)["variance"] == 0.02
    noisy, clean = est.sample(4000, noise=True), est.sample(4000)
    assert scipy.stats.kstest((noisy - clean).ravel(), scipy.stats.laplace(0, 0.1).cdf).pvalue > 1e-3
    # The bound is a density in X's own units: twice the units, D log 2 nats less.
    half = make(sv.VAE, likelihood="laplace", variance=0.02).fit(X)
    double = make(sv.VAE, likelihood="laplace", variance=0.02).fit(2 * X)
    assert half.score(X) - double.score(2 * X) == pytest.approx(D * math.log(2), rel=1e-3)


# -- without noise ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("cls", "beta"), [(sv.VAE, 1.0), (sv.BetaVAE, 4.0)])
def test_without_noise_the_objective_is_reconstruction_and_half_the_square(cls: Any, beta: float) -> None:
    est = make(cls, noise=False, likelihood="fixed-gaussian", variance=0.5).fit(X)
    trace = reported(est)
    z = est.model_.encode(est.scaling_(torch.tensor(X))).loc.detach().double().numpy()
    assert torch.equal(trace.latents["z"].value, trace.latents["z"].q.loc)
    x, mean = trace.observed["x"][1].double().numpy(), trace.observed["x"][0].mean.detach().double().numpy()
    nll = -scipy.stats.norm.logpdf(x, mean, 0.5**0.5).sum(1).mean()
    penalty = 0.5 * (z**2).sum(1).mean()
    got = terms(est, trace)
    assert got["nll_x"] == pytest.approx(nll, rel=1e-5)
    assert got["kl_z"] == pytest.approx(penalty, rel=1e-5)
    assert got["loss"] == pytest.approx(nll + beta * penalty, rel=1e-5)
    # The score is log p(x, z) at the code, in X's units.
    joint = scipy.stats.norm.logpdf(x, mean, 0.5**0.5).sum(1) + scipy.stats.norm.logpdf(z).sum(1)
    np.testing.assert_allclose(est.score_samples(X), joint + est.scaling_.log_det, rtol=1e-4)


def test_without_noise_nothing_is_random_and_no_bound_is_claimed() -> None:
    est = make(sv.VAE, noise=False).fit(X)
    with torch.no_grad():  # as codes are made; narrow layers round differently while they learn
        a, b = reported(est, seed=0), reported(est, seed=1)
    assert torch.equal(a.latents["z"].value, b.latents["z"].value)
    np.testing.assert_array_equal(est.transform(X), a.latents["z"].value.numpy())
    np.testing.assert_allclose(est.score_samples(X, n_samples=1), est.score_samples(X, n_samples=7), rtol=1e-6)
    assert est.score_meaning(X) == "joint density at the code"
    assert est.evaluate(X)["score_meaning"] == "joint density at the code"
    with pytest.raises(ValueError, match=r"are a joint density at the code, not a bound on log p\(x\)"):
        est.importance_bound(X)
    noisy = make(sv.VAE).fit(X)
    assert noisy.score_meaning(X) == "bound"
    assert est.sample(3).shape == (3, D)


def test_without_noise_a_run_survives_the_disk(tmp_path: Path) -> None:
    est = make(sv.VAE, noise=False).fit(X)
    est.save(tmp_path / "model")
    again = sv.load(tmp_path / "model")
    assert again.noise is False
    np.testing.assert_array_equal(again.transform(X), est.transform(X))


# -- every model -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", REGISTRY.values(), ids=REGISTRY.keys())
def test_every_model_trains_scores_samples_and_survives_the_disk(cls: Any, tmp_path: Path) -> None:
    est = make(cls, training={"steps": 60}).fit(X)
    first, last = est.history_[0], est.history_[-1]
    assert last["nll_x"] < first["nll_x"]
    assert np.isfinite([v for row in est.history_ for v in row.values()]).all()
    b = est.importance_bound(X, n_samples=50)
    assert np.isfinite(np.stack([b.bound, b.standard_error, b.effective_samples])).all()
    assert (est.score_samples(X, n_samples=50) <= b.bound + 1e-6).all()
    est.save(tmp_path / "model")
    again = sv.load(tmp_path / "model")
    assert type(again) is cls
    assert again.get_params(deep=False).keys() == est.get_params(deep=False).keys()
    np.testing.assert_array_equal(again.score_samples(X), est.score_samples(X))
    np.testing.assert_array_equal(again.sample(5, noise=True), est.sample(5, noise=True))
    assert again.history_ == est.history_
    est.partial_fit(X)
    assert np.isfinite(est.score(X))


@pytest.mark.parametrize("cls", REGISTRY.values(), ids=REGISTRY.keys())
def test_weights_name_the_terms_that_the_objective_measures(cls: Any) -> None:
    est = make(cls).fit(X)
    measured = terms(est, reported(est))
    assert set(est.fitted_.weights) == set(measured) - {"loss", "nll_x"}
    loss = measured["nll_x"] + sum(weight * measured[k] for k, weight in est.fitted_.weights.items())
    assert measured["loss"] == pytest.approx(loss, rel=1e-5)


# -- no parameter without effect -------------------------------------------------------------------------------------


EFFECTS: dict[str, tuple[dict[str, Any], Any]] = {
    # parameter: what else must be set for it to matter, another value than its default (or than the one set)
    "n_components": ({}, 5),
    "max_active": ({}, 1),
    "hidden": ({}, (9,)),
    "decoder_hidden": ({}, (9,)),
    "skip": ({"skip": False}, True),
    "start": ({"skip": True, "start": "random"}, "rows"),
    "patterns": ({}, 3),
    "target_active": ({"training": {"report_every": 2}}, 1.0),
    "network": ({}, "conv"),
    "image_shape": ({"network": "conv"}, (2, 8)),
    "likelihood": ({}, "laplace"),
    "variance_floor": ({"likelihood": "gaussian"}, 0.3),
    "variance": ({"likelihood": "fixed-gaussian"}, 0.5),
    "scale": ({}, "none"),
    "encoder": ({}, Shifted(D)),
    "decoder": ({}, Shifted(4)),
    "text": ({}, Text(embedding=5)),  # of texts
    "training": ({}, sv.Training(steps=9, batch_size=16, learning_rate=1e-2, verbose=0)),
    "noise": ({}, False),
    "beta": ({}, 2.5),
    "capacity": ({}, 3.0),
    "ramp": ({}, 6),
    "gamma": ({}, 2.0),
    "estimator": ({}, "weighted"),
    "off": ({}, 0.3),
    "spike": ({}, 0.2),
    "kl_weight": ({}, 0.3),
    "mmd_weight": ({}, 3.0),
    "alpha": ({}, 0.4),
    "gate": ({}, "straight-through"),
    "code": ({}, "gated"),
    "slab": ({}, "log-normal"),
    "sharpness": ({"gate": "sigmoid"}, (20.0, 30.0)),
    "temperature": ({"gate": "straight-through-concrete"}, 2.0),
    "spike_scale": ({}, 0.05),
    "kl_z": ({}, 0.3),
    "kl_gamma": ({}, 0.3),
    "n_gamma": ({}, 2),
    "n_z": ({}, 2),
    "pseudo_inputs": ({}, 3),
    "selection": ({}, "authors"),
    "sparsity": ({}, 0.1),
    "slab_warmup": ({}, (0.5, 0.9)),
    "cap": ({}, 2),
    "features": ({}, "distinct"),
    "kl": ({}, "paper"),
    "gradient": ({}, "straight-through"),
    "tau": ({"gradient": "paper"}, 1.5),
    "tau_z": ({"gradient": "paper"}, 1.5),
    "tau_bounds": ({"gradient": "paper", "tau": "learned"}, (0.5, 1.5)),
    "samples": ({"gradient": "rloo"}, 3),
    "gate_hidden": ({}, (5,)),
    "shared_layers": ({}, 1),
    "binary": ({"alpha": 0.9}, True),
    "categories": ({}, 2),
    "slope": ({"gradient": "slope-annealed"}, 3.0),
    "learned_prior": ({}, True),
}

TRAINING_EFFECTS: dict[str, tuple[dict[str, Any], Any]] = {
    # setting: what else must be set for it to matter, another value
    "steps": ({}, 9),
    "epochs": ({"steps": None, "epochs": 2}, 4),
    "batch_size": ({}, 20),
    "optimizer": ({}, "momentum"),
    "learning_rate": ({}, 2e-2),
    "decay": ({}, "constant"),
    "decay_at": ({"decay": "step"}, 0.8),
    "decay_factor": ({"decay": "step"}, 0.5),
    "restart_optimizer": ({"decay": "step"}, True),
    "n_samples": ({}, 2),
    "clip_norm": ({}, 0.01),
    "kl_warmup": ({}, 6),
    "free_bits": ({}, 5.0),
    "schedules": ({}, ...),  # drives the first weight of the model's own
    "binarise": ({}, True),  # on grey pixels
    "validation_fraction": ({}, 0.25),
    "early_stopping": ({}, True),
    "patience": ({"validation_fraction": 0.25, "report_every": 1, "learning_rate": 0.3, "steps": 12}, 1),
    "seed": ({}, 1),
}
WITHOUT_EFFECT: dict[str, tuple[Any, str]] = {
    # setting: a value, and why the result is the same by design
    "device": ("cpu", "where the run is made; here the only place"),
    "compile": (True, "a faster way to the same step"),
    "tf32": (False, "CUDA's matrix products alone"),
    "bf16": (True, "the same"),
    "report_every": (3, "how often the run looks up: the history has other rows, the model is the same"),
    "folder": ("run", "files beside the run"),
    "checkpoint_every": (2, "how often such a file is written"),
    "resume": (True, "nothing to resume is a first run"),
    "verbose": (1, "what is printed"),
}
REFUSED = {("BetaTCVAE", "n_samples"), ("MAT", "n_samples")}
REFUSED |= {(model, "free_bits") for model in ("BetaTCVAE", "CapacityVAE", "SDLGM", "DiscreteVAE")}


def outcome(est: Any, x: Any = X) -> list[np.ndarray]:
    """All that a fit leaves: history, weights, codes, scores."""
    codes = est.transform(x)
    weights = [v.detach().numpy() for v in est.model_.state_dict().values()]
    losses = np.array(est.history_.column("loss"))
    return [losses, *weights, codes.toarray() if scipy.sparse.issparse(codes) else codes, est.score_samples(x)]


def same(a: list[np.ndarray], b: list[np.ndarray]) -> bool:
    return len(a) == len(b) and all(np.array_equal(p, q) for p, q in zip(a, b, strict=True))


_fitted: dict[str, list[np.ndarray]] = {}


def fitted(cls: Any, x: Any = X, **changes: Any) -> list[np.ndarray]:
    """The outcome of a fit; the same base is fitted once."""
    key = f"{cls.__name__} {changes} {x is X}"
    if key not in _fitted:
        _fitted[key] = outcome(make(cls, **changes).fit(x), x)
    return _fitted[key]


OWN = [(name, p.name) for name, cls in REGISTRY.items() for p in documented(cls)]


@pytest.mark.parametrize(("model", "name"), OWN)
def test_every_parameter_of_every_model_changes_the_result(model: str, name: str) -> None:
    assert name in EFFECTS, f"no entry for the parameter {name!r} of {model}: add one to EFFECTS that shows its effect"
    cls = REGISTRY[model]
    base, value = EFFECTS[name]
    base = {k: v for k, v in base.items() if k in {p.name for p in documented(cls)}}
    if name == "training":
        assert not same(outcome(make(cls).set_params(training=value).fit(X)), fitted(cls))
        return
    if name == "text":
        assert not same(fitted(cls, TEXTS, text=value), fitted(cls, TEXTS))
        return
    assert not same(fitted(cls, **base | {name: value}), fitted(cls, **base))


def test_the_tables_hold_no_parameter_that_is_gone() -> None:
    assert set(EFFECTS) == {name for _, name in OWN}
    assert TRAINING_EFFECTS.keys() | WITHOUT_EFFECT.keys() == {p.name for p in documented(sv.Training)}
    assert not TRAINING_EFFECTS.keys() & WITHOUT_EFFECT.keys()


@pytest.mark.parametrize("model", REGISTRY)
def test_a_fit_is_repeated_bit_by_bit(model: str) -> None:
    """Without which nothing above would show an effect."""
    assert same(outcome(make(REGISTRY[model]).fit(X)), fitted(REGISTRY[model]))


@pytest.mark.parametrize("name", TRAINING_EFFECTS)
@pytest.mark.parametrize("model", REGISTRY)
def test_every_training_setting_changes_the_result(model: str, name: str) -> None:
    base, value = TRAINING_EFFECTS[name]
    cls, x, more = REGISTRY[model], X, {}
    if name == "schedules":
        value = {next(iter(make(cls).prepare(X).fitted_.weights)): sv.Constant(0.3)}
    if name == "binarise":
        x, more = GREY, {"likelihood": "bernoulli", "scale": "none"}
    if (model, name) in REFUSED:
        with pytest.raises(ValueError, match=f"training.{name}"):
            make(cls, training={name: value}).fit(X)
        return
    assert not same(fitted(cls, x, training=base | {name: value}, **more), fitted(cls, x, training=base, **more))


@pytest.mark.parametrize("name", [n for n in WITHOUT_EFFECT if n != "compile"])  # which test_training.py shows
@pytest.mark.parametrize("model", ["VAE", "PseudoVSC", "MAT"])
def test_settings_of_the_machine_change_nothing(model: str, name: str, tmp_path: Path) -> None:
    value, _ = WITHOUT_EFFECT[name]
    settings: dict[str, Any] = {name: value}
    if name in ("folder", "checkpoint_every", "resume"):
        settings["folder"] = str(tmp_path / "run")
    est = make(REGISTRY[model], training=settings).fit(X)
    assert same(outcome(est)[1:], fitted(REGISTRY[model])[1:])


def test_the_registry_is_all_there_is() -> None:
    """Every model file's estimators are in it, and found under sparsevae."""
    assert {"VAE", "BetaVAE", "CapacityVAE", "BetaTCVAE", "VSC", "PseudoVSC", "MAT"} <= set(REGISTRY)
    for name, cls in REGISTRY.items():
        assert getattr(sv, name) is cls
        assert isinstance(make(cls).prepare(X).model_, LatentModel)
        assert "References\n" in cls.__doc__
        assert ">>> " in cls.__doc__
