"""Claims of the audit: every number is its formula, idle units are told from used ones, anybody's VAE gets the verdict
ours gets with the same weights; noise kills a unit where its gain falls below its KL, and it comes back."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from sklearn.decomposition import PCA
from torch import Tensor, nn
from torch.distributions import Bernoulli, Beta, Independent, Laplace, LogNormal, Normal, kl_divergence

import sparsevae as sv
from sparsevae import metrics
from sparsevae.analysis.audit import audit
from sparsevae.analysis.audit_result import Audit
from sparsevae.analysis.noise_experiment import noise_experiment
from sparsevae.analysis.sizing import suggest_size

pytestmark = pytest.mark.filterwarnings("ignore::sparsevae.exceptions.SparsityWarning")


@pytest.fixture(scope="module")
def planted_rows() -> Any:
    """Three sources of deviation 3, 2 and 1 in twelve columns, and a little noise."""
    rng = np.random.default_rng(0)
    directions = np.linalg.qr(rng.normal(size=(12, 3)))[0].T
    sources = rng.normal(size=(512, 3)) * [3.0, 2.0, 1.0]
    return (sources @ directions + 0.2 * rng.normal(size=(512, 12))).astype(np.float32)


PLANTED: dict[str, Any] = {
    "hidden": (32,),
    "likelihood": "fixed-gaussian",
    "variance": 0.1,
    "scale": "none",
    "training": sv.Training(steps=1500, batch_size=64, learning_rate=1e-2, verbose=0),
}


@pytest.fixture(scope="module")
def planted(planted_rows: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sv.SparsityWarning)
        return sv.VAE(6, **PLANTED).fit(planted_rows)


# -- every number is its formula --------------------------------------------------------------------------------

W = torch.tensor([[1.0, 0.5], [0.0, 2.0], [-1.0, 0.0]])  # of a decoder z -> W z
DEVIATION = torch.tensor([0.3, 0.6])


def linear_encode(x: Tensor) -> tuple[Tensor, Tensor]:
    return x[:, :2] * 0.8, DEVIATION.square().expand(len(x), 2)


@pytest.mark.parametrize("variance", [1.0, 0.25])
def test_the_numbers_of_a_linear_vae_are_those_worked_out_by_hand(variance: float) -> None:
    # gain_j = E [|x - W z + w_j z_j|^2 - |x - W z|^2] / 2v = E [2 (x - W mu).w_j mu_j + |w_j|^2 (mu_j^2 - s_j^2)] / 2v
    x = torch.randn(30_000, 3, generator=torch.Generator().manual_seed(0))
    found = audit(encode=linear_encode, decode=lambda z: z @ W.T, X=x, variance=variance, gain_rows=None)
    mu = (x[:, :2] * 0.8).double()
    rest, w = x.double() - mu @ W.double().T, W.double()
    each = (2 * (rest @ w) * mu + w.square().sum(0) * (mu.square() - DEVIATION.double().square())) / (2 * variance)
    spread = 3.0 * w.square().sum(0).max() / variance  # of one row's gain over draws, generously
    assert np.allclose(found.gain, each.mean(0), atol=4 * float(spread) / math.sqrt(len(x)))
    assert np.allclose(found.mean, mu.mean(0), atol=1e-6)
    assert np.allclose(found.var_mean, mu.var(0, correction=0), rtol=1e-6)
    assert np.allclose(found.mean_variance, DEVIATION.square(), rtol=1e-6)
    assert np.allclose(found.variance_law, found.var_mean + found.mean_variance)
    kl = 0.5 * (mu.square() + DEVIATION.square() - 1).mean(0) - DEVIATION.log()
    assert np.allclose(found.kl, kl, rtol=1e-5)
    assert (found.rows, found.gain_rows) == (30_000, 30_000)
    assert found.hoyer == pytest.approx(metrics.average_hoyer(mu.numpy()), abs=1e-6)
    assert found.aggregate_hoyer == pytest.approx(metrics.aggregate_hoyer(mu.numpy()), abs=1e-6)


def test_gains_use_rows_spread_over_all_of_them() -> None:
    x = torch.arange(40.0).repeat_interleave(25)[:, None] / 40  # sorted: the first rows alone would mislead
    tight = {"encode": lambda x: (x, torch.full_like(x, 1e-12)), "decode": lambda z: z, "X": x}
    every, some = audit(**tight, gain_rows=None), audit(**tight, gain_rows=40)
    assert (every.gain_rows, some.gain_rows) == (1000, 40)
    assert some.gain == pytest.approx(every.gain, rel=1e-4)
    assert every.gain == pytest.approx(float(x.square().mean()) / 2, rel=1e-4)


def test_a_unit_that_nothing_reads_or_moves_has_exact_zeros() -> None:
    x = torch.randn(700, 3, generator=torch.Generator().manual_seed(1))

    def encode(x: Tensor) -> Normal:
        return Normal(torch.stack([x[:, 0], 0 * x[:, 0]], 1), torch.tensor([0.1, 1.0]).expand(len(x), 2))

    found = audit(encode=encode, decode=lambda z: z[:, :1] * torch.tensor([1.0, 0.0, 0.0]), X=x)
    assert (found.kl[1], found.gain[1], found.var_mean[1], found.variance_law[1]) == (0, 0, 0, 1)
    assert found.active.tolist() == [True, False]
    assert (found.p_on.tolist(), found.on.tolist()) == ([1, 1], [1, 1])


def test_the_variance_law_holds_for_a_trained_code(planted: Any, planted_rows: Any) -> None:
    dist = audit(planted, planted_rows).variance_law
    assert abs(dist.mean() - 1) < 0.03
    assert (abs(dist - 1) < 0.1).all()


# -- spike and slab: neither p_on nor the KL alone tells -----------------------------------------------------------

ALPHA = 0.2


def gated(x: Tensor) -> sv.SpikeSlab:
    """Unit 0 idles at p_on = alpha; 1 is shut for good; 2 tells two kinds of rows apart, though never likely on."""
    kind = x[:, 0] > 0
    p = torch.stack([torch.full_like(x[:, 0], ALPHA), torch.full_like(x[:, 0], 1e-6), torch.where(kind, 0.45, 0.02)], 1)
    loc = torch.tensor([0.0, 0.0, 2.0]).expand(len(x), 3)
    return sv.SpikeSlab(torch.logit(p), loc, torch.tensor([1.0, 1.0, 0.1]).expand(len(x), 3))


def test_an_idle_unit_is_neither_on_nor_dead_and_a_rare_one_counts() -> None:
    x = torch.randn(3000, 1, generator=torch.Generator().manual_seed(2)).sign() * 2.0
    prior = sv.SpikeSlab(torch.logit(torch.full((3,), ALPHA)), torch.zeros(3), torch.ones(3))
    found = audit(encode=gated, decode=lambda z: -2 + 2 * z[:, 2:], X=x, prior=prior, variance=0.1)
    assert found.p_on == pytest.approx([ALPHA, 1e-6, 0.235], abs=0.01)
    assert found.on.tolist() == [0, 0, 0]  # the mode of every gate is off
    assert found.kl[0] == pytest.approx(0, abs=1e-6)
    assert found.kl[1] == pytest.approx(-math.log(1 - ALPHA), rel=1e-3)  # it pays for being shut, and brings nothing
    assert found.active_by_kl.tolist() == [False, True, True]
    assert found.active.tolist() == [False, False, True]
    assert found.gain[2] > found.kl[2]


def test_every_model_of_ours_can_be_audited(planted_rows: Any) -> None:
    for cls in (sv.VSC, sv.BetaVAE, sv.MAT, sv.PseudoVSC):
        est = cls(5, **PLANTED | {"training": sv.Training(steps=20, verbose=0)}).fit(planted_rows)
        found = audit(est, planted_rows)
        assert found.n_components == 5, cls
        assert np.isfinite(np.stack([found.kl, found.gain, found.variance_law])).all(), cls


@pytest.mark.filterwarnings("ignore:the importance weights of .* heavy tails:RuntimeWarning")
def test_bits_are_audited_as_gates(planted_rows: Any) -> None:
    """Their KLs are those of Bernoullis, and add up to that of the code; a gain is what switching a unit off costs."""
    training = sv.Training(steps=300, learning_rate=1e-2, verbose=0)
    est = sv.DiscreteVAE(5, **PLANTED | {"training": training}).fit(planted_rows)
    found = audit(est, planted_rows, gain_rows=None)
    with torch.no_grad():
        q = est.model_.encode(torch.tensor(planted_rows))
    p = q.logits.double().sigmoid()
    kl = kl_divergence(Bernoulli(p), Bernoulli(torch.full_like(p, 0.5))).mean(0)
    assert found.kl == pytest.approx(kl.numpy(), rel=1e-4)
    assert found.kl.sum() == pytest.approx(est.evaluate(planted_rows)["kl"], rel=1e-4)
    assert found.p_on == pytest.approx(p.mean(0).numpy(), rel=1e-5)
    assert found.active_by_gain.any()
    assert str(found).splitlines()[0].split()[-3:] == ["p_on", "on", "active"]


@pytest.mark.parametrize(
    "model", [sv.SDLGM(6, cap=2), sv.SDLGM(6, cap=2, features="distinct"), sv.SDLGM(6, cap=5, features="distinct")]
)
def test_units_that_depend_on_one_another_are_not_judged_one_by_one(model: Any, planted_rows: Any) -> None:
    model.set_params(hidden=(8,), training=sv.Training(steps=2, verbose=0)).fit(planted_rows)
    with pytest.raises(
        TypeError, match="audit measures units one by one, and units with a cap or counts depend on each other"
    ):
        audit(model, planted_rows)


def test_a_model_without_a_decoder_has_no_gains_to_audit(planted_rows: Any) -> None:
    est = sv.CodeClassifier(3, hidden=(8,), training=sv.Training(steps=2, verbose=0))
    est.fit(planted_rows, planted_rows[:, 0] > 0)
    with pytest.raises(TypeError, match=r"audit needs a model with p\(x\|z\), and CodeClassifier has none"):
        audit(est, planted_rows)


def test_the_form_and_order_of_the_rows_do_not_matter(planted: Any, planted_rows: Any) -> None:
    one, every = audit(planted, planted_rows[:300]), {"gain_rows": None}
    for other in (planted_rows[:300][::-1].copy(), scipy.sparse.csr_matrix(planted_rows[:300])):
        two = audit(planted, other, **every)
        assert np.allclose(two.kl, one.kl, atol=1e-6)
        assert np.allclose(two.gain, one.gain, atol=1e-4)


# -- the verdict ---------------------------------------------------------------------------------------------------


def made(active: int, n: int) -> Audit:
    on = np.arange(n) < active
    zero = np.zeros(n)
    return Audit(
        rows=1,
        gain_rows=1,
        mean=zero,
        var_mean=np.where(on, 1.0, 0.0),
        mean_variance=zero + 0.5,
        kl=np.where(on, 1.0, 0.0),
        gain=np.where(on, 2.0, 0.0),
        p_on=zero + 1,
        on=zero + 1,
        empty=0.0,
        hoyer=0.0,
        aggregate_hoyer=0.0,
    )


@pytest.mark.parametrize(
    ("active", "n", "verdict", "size"),
    [
        (0, 8, "collapsed", 8),
        (4, 100, "collapsed", 100),
        (5, 100, "oversized", 6),
        (74, 100, "oversized", 84),
        (75, 100, "well sized", 100),
        (99, 100, "well sized", 100),
        (100, 100, "too small", 200),
        (1, 1, "too small", 2),
    ],
)
def test_the_verdict_follows_from_the_share_of_active_units(active: int, n: int, verdict: str, size: int) -> None:
    found = made(active, n)
    assert (found.verdict, found.suggested_size) == (verdict, size)
    assert found.inactive_share == pytest.approx(1 - active / n)
    assert found.words.startswith(f"{verdict}: {active} of {n} units are active")
    assert found.words.endswith(f"Suggested size: {size}.") == (verdict != "collapsed")


@pytest.mark.parametrize(
    ("var_mean", "kl", "gain", "active"),
    [
        (0.0101, 0.0101, 0.0, True),
        (0.01, 0.01, 0.0101, False),  # the luck of draws
        (0.0, 0.2, 0.1, False),  # a shut gate
        (0.005, 0.05, 0.06, True),
        (0.011, 0.009, 0.008, False),
    ],
)
def test_two_of_three_definitions_make_a_unit_active(var_mean: float, kl: float, gain: float, active: bool) -> None:
    one = {"var_mean": np.array([var_mean]), "kl": np.array([kl]), "gain": np.array([gain])}
    found = Audit(**{**vars(made(1, 1)), **one})
    assert found.active_by_variance.tolist() == [var_mean > 0.01]
    assert found.active_by_kl.tolist() == [kl > 0.01]
    assert found.active_by_gain.tolist() == [gain > kl]
    assert found.active.tolist() == [active]


def test_without_noise_a_code_is_judged_beside_its_largest_unit(planted_rows: Any) -> None:
    # The penalty shrinks a code without noise as far as it likes: what counts is how units compare.
    one = {"mean_variance": np.zeros(3), "var_mean": np.array([1e-5, 2e-7, 0.9e-7]), "kl": np.array([5e-6, 1e-7, 1e-8])}
    found = Audit(**{**vars(made(3, 3)), **one})
    assert found.active_by_variance.tolist() == [True, True, False]
    assert found.active_by_kl.tolist() == [True, True, False]
    assert found.active.tolist() == [True, True, False]
    assert ".01 of the largest" in found.legend
    useless = Audit(**{**vars(found), "gain": np.full(3, 0.009)})  # above its penalty, and next to nothing
    assert useless.verdict == "collapsed"
    settings = sv.Training(steps=1000, learning_rate=1e-2, verbose=0)
    own = {"likelihood": "fixed-gaussian", "variance": 0.5, "hidden": (32,), "training": settings}
    est = sv.VAE(8, noise=False, **own).fit(planted_rows)
    units = audit(est, planted_rows)
    assert (units.var_mean < 0.01).any()
    assert units.n_active == est.evaluate(planted_rows)["active_units"] == est.history_[-1]["active_units"] == 8


@pytest.mark.parametrize(("shown", "verdict"), [(0, "undecided"), (30, "undecided"), (31, "well sized")])
def test_a_code_that_shows_under_half_of_its_active_units_has_no_right_size(shown: int, verdict: str) -> None:
    on = np.where(np.arange(64) < shown, 0.01, 0.0)
    found = Audit(**{**vars(made(62, 64)), "p_on": np.full(64, 0.3), "on": on})
    assert (found.verdict, found.n_in_code, found.to_dict()["n_in_code"]) == (verdict, shown, shown)
    message = f"{verdict}: 62 of 64 units are active in draws; {shown} of them are used by the code; "
    assert found.words.startswith(message)
    assert found.suggested_size == 64


def test_the_code_is_judged_beside_the_draws() -> None:
    """Of 64 units that are active in draws a code may use a few, or have the same ones on in every row."""
    on = np.array([1.0] * 6 + [0.1] * 3 + [0.0] * 55)
    found = Audit(**{**vars(made(64, 64)), "p_on": np.full(64, 0.3), "on": on, "empty": 0.25})
    assert (found.n_in_code, found.verdict) == (9, "undecided")
    assert (found.used.sum(), found.always_on.sum(), found.usage.dead) == (3, 6, 55)
    line = "code: 3 of 64 units are used, 6 on in over 90 % of rows and 55 dead: this is pruning, a VAE of 6 units"
    assert f"\n{line} would do; 6.3 non-zeros per row, 25.0% of rows empty" in str(found)
    shown = found.to_dict()
    assert shown["usage"] | {"usage_entropy": 0} == {
        "used": 3,
        "always_on": 6,
        "dead": 55,
        "nonzeros": pytest.approx(6.3),
        "empty": 0.25,
        "usage_entropy": 0,
    }
    assert sum(shown["units"]["always_on"]) == 6
    assert "code:" not in str(made(3, 4))  # a code without gates


def test_a_model_whose_every_code_is_zero_is_never_called_well_sized(planted_rows: Any) -> None:
    """Gates of one half at most: draws carry all there is to know, modes nothing."""
    training = sv.Training(steps=300, batch_size=64, learning_rate=1e-2, verbose=0)
    est = sv.VSC(4, **PLANTED | {"alpha": 0.9, "skip": False, "training": training}).fit(planted_rows)
    before = audit(est, planted_rows, gain_rows=200)
    assert before.verdict in ("oversized", "well sized", "too small")
    with torch.no_grad():  # the last layer's third part are the gates
        head = est.model_.encoder[-1]
        head.weight[8:] = 0.0
        head.bias[8:] = -1e-3
    assert est.transform(planted_rows).nnz == 0
    found = audit(est, planted_rows, gain_rows=200)
    assert found.n_active >= 3
    assert (found.verdict, found.n_in_code, found.on.max()) == ("undecided", 0, 0)


def test_units_far_from_zero_vary_as_they_would_near_it(planted_rows: Any) -> None:
    x = torch.tensor(planted_rows, dtype=torch.float32)[:, :2]

    def found(offset: float) -> np.ndarray[Any, Any]:
        moved = audit(
            encode=lambda x: (x + offset, torch.full_like(x, 0.1)), decode=lambda z: z - offset, X=x, gain_rows=10
        )
        return moved.var_mean

    np.testing.assert_allclose(found(1e4), found(0.0), rtol=1e-2)


def test_the_words_promise_no_more_than_the_numbers_say() -> None:
    assert "prune() removes units that the bound does not miss" in made(5, 10).words
    assert "loss" not in made(3, 3).words
    costly = Audit(**{**vars(made(3, 3)), "gain": np.array([2.0, 0.5, 2.0])})  # varies, has a KL above its gain
    assert costly.active.all()
    assert costly.words.startswith("too small: 3 of 3 units are active, 1 of them at a loss (gain not above KL); ")
    assert "every unit is used" not in costly.words


def test_an_audit_prints_every_unit_and_becomes_json(planted: Any, planted_rows: Any) -> None:
    found = audit(planted, planted_rows)
    lines = str(found).splitlines()
    assert lines[0].split() == ["unit", "var(mu)", "mean(s2)", "sum", "KL", "gain", "active"]
    assert [int(line.split()[0]) for line in lines[1:7]] == np.argsort(-found.kl).tolist()
    assert lines[-1] == found.words
    plain = json.loads(json.dumps(found.to_dict()))
    assert plain["units"]["gain"] == found.gain.tolist()
    assert plain["units"]["active"] == found.active.tolist()
    assert (plain["verdict"], plain["n_active"], plain["n_components"]) == ("oversized", 3, 6)


# -- other people's models -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def binary() -> Any:
    return (sv.data.load("digits").X[:600] > 7).astype(np.float32)


@pytest.fixture(scope="module")
def ours(binary: Any) -> Any:
    """Of pythae's default shapes, with so strong a KL that some units die."""
    training = sv.Training(steps=600, learning_rate=3e-3, verbose=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sv.SparsityWarning)
        return sv.BetaVAE(10, beta=3.0, hidden=(512,), likelihood="bernoulli", training=training).fit(binary)


def copied(ours: Any, into: dict[str, nn.Linear]) -> None:
    """Our weights in nn.Linear modules: encoder, mean, log_variance, decoder, logits."""
    state = ours.model_.state_dict()
    heads = [state[f"encoder.2.{k}"].chunk(2) for k in ("weight", "bias")]
    weights = {
        "encoder": (state["encoder.0.weight"], state["encoder.0.bias"]),
        "mean": (heads[0][0], heads[1][0]),
        "log_variance": (heads[0][1], heads[1][1]),
        "decoder": (state["decoder.0.weight"], state["decoder.0.bias"]),
        "logits": (state["decoder.2.weight"], state["decoder.2.bias"]),
    }
    for name, layer in into.items():
        layer.load_state_dict(dict(zip(("weight", "bias"), weights[name], strict=True)))


def plain_torch(ours: Any) -> dict[str, Callable[..., Any]]:
    sizes = {"encoder": (64, 512), "mean": (512, 10), "log_variance": (512, 10), "decoder": (10, 512)}
    layers = {k: nn.Linear(*v) for k, v in (sizes | {"logits": (512, 64)}).items()}
    copied(ours, layers)

    def encode(x: Tensor) -> Independent:
        h = layers["encoder"](x).relu()
        return Independent(Normal(layers["mean"](h), (0.5 * layers["log_variance"](h)).exp()), 1)

    return {
        "encode": encode,
        "decode": lambda z: Bernoulli(logits=layers["logits"](layers["decoder"](z).relu())),
    }


def of_pythae(ours: Any) -> dict[str, Callable[..., Any]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        models = pytest.importorskip("pythae.models")
        vae = models.VAE(models.VAEConfig(input_dim=(64,), latent_dim=10, reconstruction_loss="bce")).eval()
    e, d = vae.encoder, vae.decoder
    names = {"encoder": e.layers[0][0], "mean": e.embedding, "log_variance": e.log_var}
    copied(ours, names | {"decoder": d.layers[0][0], "logits": d.layers[1][0]})

    def encode(x: Tensor) -> tuple[Tensor, Tensor]:
        out = vae.encoder(x)
        return out.embedding, out.log_covariance.exp()

    return {
        "encode": encode,
        "decode": lambda z: Bernoulli(probs=vae.decoder(z).reconstruction, validate_args=False),
    }


@pytest.mark.parametrize("other", [plain_torch, of_pythae])
def test_another_vae_with_our_weights_has_our_verdict(other: Any, ours: Any, binary: Any) -> None:
    expected = audit(ours, binary)
    found = audit(**other(ours), X=binary)
    assert 0 < expected.n_active < 10
    assert found.verdict == expected.verdict
    assert found.suggested_size == expected.suggested_size
    assert found.active.tolist() == expected.active.tolist()
    for name in ("var_mean", "mean_variance", "kl", "gain"):  # our deviations have 1e-4 added
        assert np.allclose(getattr(found, name), getattr(expected, name), rtol=5e-3, atol=5e-3), name


def test_a_reconstruction_is_gaussian_with_the_variance_that_is_stated(planted: Any, planted_rows: Any) -> None:
    model = planted.model_

    def encode(x: Tensor) -> tuple[Tensor, Tensor]:
        q = model.encode(x)
        return q.mean, q.variance

    expected = audit(planted, planted_rows)
    found = audit(encode=encode, decode=lambda z: model.decode(z).mean, X=planted_rows, variance=0.1)
    assert np.allclose(found.gain, expected.gain, rtol=1e-3, atol=1e-4)
    assert (found.verdict, found.suggested_size) == (expected.verdict, expected.suggested_size)


def test_images_keep_their_shape_on_the_way_to_the_callables() -> None:
    x = torch.rand(20, 1, 4, 4, generator=torch.Generator().manual_seed(3))
    seen = []

    def encode(x: Tensor) -> tuple[Tensor, Tensor]:
        seen.append(tuple(x.shape[1:]))
        return x.flatten(1)[:, :2], torch.ones(len(x), 2)

    found = audit(encode=encode, decode=lambda z: z.new_zeros(len(z), 1, 4, 4), X=x)
    assert set(seen) == {(1, 4, 4)}
    assert found.gain.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "needs rows"),
        ({"X": np.ones((3, 3))}, "both callables"),
        ({"X": np.ones((3, 3)), "encode": linear_encode}, "both callables"),
        ({"X": np.ones((3, 3)), "encode": lambda x: x, "decode": lambda z: z}, "pair \\(mean, variance\\)"),
        ({"X": np.ones((3, 3)), "encode": lambda x: (x, x[:, :1]), "decode": lambda z: z}, r"\(3, 3\) and \(3, 1\)"),
        ({"X": np.ones((3, 3)), "encode": linear_encode, "decode": lambda z: z}, r"\(3, 3\); got a Tensor .* \(3, 2\)"),
        ({"X": np.ones((3, 3)), "encode": 3, "decode": lambda z: z}, "both callables"),
    ],
)
def test_wrong_callables_are_told_what_is_expected(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        audit(**arguments)


def test_settings_that_cannot_work_are_refused(planted: Any, planted_rows: Any) -> None:
    with pytest.raises(TypeError, match="not both"):
        audit(planted, planted_rows, encode=linear_encode)
    with pytest.raises(ValueError, match="variance must be a number above 0"):
        audit(encode=linear_encode, decode=lambda z: z, X=planted_rows, variance=0)
    with pytest.raises(ValueError, match="gain_rows must be an integer above 0"):
        audit(planted, planted_rows, gain_rows=0)
    for seed in ("a", 1.5, True):
        with pytest.raises(ValueError, match="seed must be an integer"):
            audit(planted, planted_rows, seed=seed)
    for given in ({"decode": linear_encode}, {"variance": 1.0}, {"prior": Normal(0.0, 1.0)}):
        with pytest.raises(TypeError, match=f"not both: {next(iter(given))} came beside an estimator"):
            audit(planted, planted_rows, **given)


@pytest.mark.parametrize("n", [0, 1])
def test_fewer_than_two_rows_are_refused(n: int, planted: Any, planted_rows: Any) -> None:
    with pytest.raises(ValueError, match=f"two rows at least; got {n}"):
        audit(encode=linear_encode, decode=lambda z: z @ W.T, X=np.ones((n, 3)))
    with pytest.raises(ValueError, match="two rows at least; got 1" if n else "0 sample"):
        audit(planted, planted_rows[:n])


@pytest.mark.parametrize("est", [PCA(), sv.VAE, np.ones((5, 3))])
def test_what_is_no_estimator_of_ours_is_refused(est: Any, planted_rows: Any) -> None:
    for function in (audit, noise_experiment):
        with pytest.raises(TypeError, match=r"needs a fitted estimator of sparsevae, such as VAE\(\)\.fit\(X\); got"):
            function(est, planted_rows)
    with pytest.raises(TypeError, match=r"got a PCA\. For other models: audit\(encode="):
        audit(PCA(), planted_rows)
    with pytest.raises(ValueError, match="not fitted"):
        audit(sv.VAE(), planted_rows)


# -- what other people's callables may give ------------------------------------------------------------------------

ROWS = torch.randn(700, 3, generator=torch.Generator().manual_seed(4))  # two blocks


def foreign(**changes: Any) -> Audit:
    return audit(**{"encode": linear_encode, "decode": lambda z: z @ W.T, "X": ROWS} | changes)


def spoilt(values: Tensor, by: float) -> Tensor:
    """One value of a later block is not what it should be."""
    return torch.where(torch.arange(len(values))[:, None] == 100, by, values) if len(values) < 512 else values


@pytest.mark.parametrize(
    ("encode", "error", "message"),
    [
        (lambda x: (x[:, :2], torch.full((len(x), 2), -3.0)), ValueError, r"got -3 to -3: did you return log-var.*exp"),
        (lambda x: (x[:, :2], torch.zeros(len(x), 2)), ValueError, "encode must return variances above 0, got 0 to 0"),
        (lambda x: (spoilt(x[:, :2], math.nan), torch.ones(len(x), 2)), ValueError, "encode .* finite means, got NaN"),
        (
            lambda x: (x[:, :2], spoilt(torch.ones(len(x), 2), math.inf)),
            ValueError,
            "encode .* variances, got infinite",
        ),
        (lambda x: Normal(spoilt(x[:, :2], 1e30), 1.0), ValueError, "encode .* finite KL to the prior, got infinite"),
        (lambda x: (x[:5, :2], torch.ones(5, 2)), TypeError, r"here \(512, J\); got tensors of shapes \(5, 2\) and"),
        (lambda x: (x[:, :2, None], torch.ones(len(x), 2, 1)), TypeError, r"shapes \(512, 2, 1\) and \(512, 2, 1\)"),
        (lambda x: Normal(x[:, :2, None], 1.0), TypeError, r"got a Normal of shape \(512, 2, 1\)"),
        (lambda x: Normal(x[0, :2], 1.0), TypeError, r"got a Normal of shape \(2,\)"),
        (lambda x: (x, x, x), TypeError, "got a tuple of Tensor, Tensor, Tensor"),
        (lambda x: (x.numpy(), x.numpy()), TypeError, "got a tuple of ndarray, ndarray"),
    ],
)
def test_a_posterior_that_cannot_be_is_refused_by_name(encode: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        foreign(encode=encode)


@pytest.mark.parametrize(
    ("decode", "error", "message"),
    [
        (lambda z: spoilt(z @ W.T, math.nan), ValueError, "decode must return finite reconstructions, got NaN"),
        (lambda z: Normal(spoilt(z @ W.T, 1e30), 1.0), ValueError, "decode .* finite log-density at x, got infinite"),
        (lambda z: Normal((z @ W.T)[:, :1], 1.0), TypeError, r"\(512, 3\); got a Normal of shape \(512, 1\)"),
        (lambda z: (z @ W.T)[:5], TypeError, r"\(512, 3\); got a Tensor of shape \(5, 3\)"),
        (lambda z: (z @ W.T).numpy(), TypeError, r"\(512, 3\); got a ndarray"),
        (
            lambda z: Bernoulli(logits=z @ W.T),
            ValueError,
            "a Bernoulli, and values of X lie outside its support: .* binarise",
        ),
        (
            lambda z: Independent(Bernoulli(logits=z @ W.T), 1),
            ValueError,
            "a Bernoulli, and values of X lie outside its support",
        ),
    ],
)
def test_a_decoder_that_cannot_be_is_refused_by_name(decode: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        foreign(decode=decode)


def test_grey_values_have_a_cross_entropy_when_a_bernoulli_is_told_to_take_them() -> None:
    grey = {"X": ROWS.sigmoid(), "decode": lambda z: Bernoulli(logits=z @ W.T, validate_args=False)}
    assert np.isfinite(foreign(**grey).gain).all()


@pytest.mark.parametrize("shape", [(3,), (1,), (512, 2), (2, 1)])
def test_a_prior_of_another_width_is_refused(shape: tuple[int, ...]) -> None:
    prior = Normal(torch.zeros(shape), 1.0)
    with pytest.raises(ValueError, match=r"encode gives 2 units, so the prior must have shape \(2,\), or \(\)"):
        foreign(prior=prior)
    with pytest.raises(TypeError, match="prior must be a torch Distribution, got a function"):
        foreign(prior=lambda x: prior)


@pytest.mark.parametrize("prior", [Normal(0.0, 1.0), Normal(torch.zeros(2), 1.0), Normal(torch.zeros(1, 2), 1.0)])
def test_a_prior_may_be_one_law_for_all_units_or_one_for_each(prior: Any) -> None:
    assert np.array_equal(foreign(prior=prior).kl, foreign().kl)


DISTRIBUTIONS = {
    "Laplace": (lambda x: Laplace(x[:, :2], 0.5), Laplace(torch.zeros(2), 2.0)),
    "Bernoulli": (lambda x: Bernoulli(logits=x[:, :2]), Bernoulli(torch.tensor([0.3, 0.3]))),
    "SpikeSlab": (
        lambda x: sv.SpikeSlab(x[:, :2], x[:, 1:], torch.ones(len(x), 2)),
        sv.SpikeSlab(torch.zeros(2), torch.zeros(2), torch.ones(2)),
    ),
}


@pytest.mark.parametrize("name", ["Laplace", "Bernoulli"])
@pytest.mark.parametrize("wrapped", [False, True])
def test_a_law_of_torch_is_judged_beside_a_prior_of_its_kind(name: str, wrapped: bool) -> None:
    encode, prior = DISTRIBUTIONS[name]
    dist = (lambda x: Independent(encode(x), 1)) if wrapped else encode
    found = foreign(encode=dist, prior=Independent(prior, 1) if wrapped else prior, gain_rows=None)
    q = encode(ROWS)
    assert found.kl == pytest.approx(kl_divergence(q, prior.expand((700, 2))).mean(0).numpy(), rel=1e-5)
    assert found.mean == pytest.approx(q.mean.mean(0).numpy(), rel=1e-5)
    assert found.mean_variance == pytest.approx(q.variance.mean(0).numpy(), rel=1e-5)
    # gain_j = E [|x - W z + w_j z_j|^2 - |x - W z|^2] / 2 = E [2 (x - W z).w_j z_j + |w_j|^2 z_j^2] / 2
    mean, square, w = q.mean, q.variance + q.mean.square(), W.square().sum(0)
    others = mean @ (W.T @ W).fill_diagonal_(0)
    gain = ((ROWS @ W - others) * mean - 0.5 * w * square).mean(0)
    assert found.gain == pytest.approx(gain.numpy(), abs=0.6)  # four standard errors, at the most


def test_bits_of_torch_have_gates() -> None:
    """Also a bit at 1/2, to which torch gives no mode."""
    found = foreign(encode=lambda x: Bernoulli(logits=0 * x[:, :2]), prior=Bernoulli(0.5))
    assert (found.p_on.tolist(), found.on.tolist(), found.kl.tolist()) == ([0.5, 0.5], [0, 0], [0, 0])


@pytest.mark.parametrize("dist", [Beta(torch.ones(700, 2), 1.0), LogNormal(torch.zeros(700, 2), 1.0)])
def test_a_law_that_is_not_known_is_refused_with_those_that_are(dist: Any) -> None:
    message = "a torch Normal, Laplace or Bernoulli, or a sparsevae.SpikeSlab; got a " + type(dist).__name__
    for given in (dist, Independent(dist, 1)):
        with pytest.raises(TypeError, match=message):
            foreign(encode=lambda x, dist=given: dist)


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_a_prior_of_another_kind_is_refused_and_only_gaussians_have_one_unasked(name: str) -> None:
    encode, _ = DISTRIBUTIONS[name]
    with pytest.raises(
        TypeError, match=rf"encode gives a {name}, which has no default prior: pass prior=, .* of \(2,\)"
    ):
        foreign(encode=encode)
    with pytest.raises(TypeError, match=f"encode gives a {name}, so the prior must be one too; got a Normal"):
        foreign(encode=encode, prior=Normal(0.0, 1.0))


def test_blocks_of_different_widths_are_refused() -> None:
    def encode(x: Tensor) -> tuple[Tensor, Tensor]:
        units = 2 if len(x) == 512 else 1
        return x[:, :units], torch.ones(len(x), units)

    with pytest.raises(ValueError, match=r"same number of units for every block of rows; got 2, then 1"):
        foreign(encode=encode)


def test_images_come_back_in_their_own_shape_or_flat_and_in_no_other_order() -> None:
    x = torch.rand(20, 2, 4, 5, generator=torch.Generator().manual_seed(3))
    whole = torch.randn(2, 40, generator=torch.Generator().manual_seed(5))

    def gains(decode: Any) -> Any:
        return audit(encode=lambda x: (x.flatten(1)[:, :2], torch.ones(len(x), 2)), decode=decode, X=x).gain

    flat = gains(lambda z: z @ whole)
    assert flat.all()
    assert np.array_equal(gains(lambda z: (z @ whole).reshape(-1, 2, 4, 5)), flat)
    assert np.allclose(gains(lambda z: Normal((z @ whole).reshape(-1, 2, 4, 5), 1.0)), flat, atol=1e-4)
    for shape in ((4, 5, 2), (2, 20), (1, 40)):
        for dist in (lambda m: m, lambda m: Normal(m, 1.0)):
            with pytest.raises(TypeError) as refused:
                gains(lambda z, shape=shape, dist=dist: dist((z @ whole).reshape(-1, *shape)))
            assert "(20, 2, 4, 5) or flat, (20, 40); got" in str(refused.value)
            assert str((20, *shape)) in str(refused.value)


@pytest.mark.parametrize(
    "form",
    [
        lambda x: pd.DataFrame(x),
        lambda x: scipy.sparse.csr_matrix(x),
        lambda x: scipy.sparse.coo_array(x),
        lambda x: x.tolist(),
        lambda x: x[::-1][::-1],
        lambda x: torch.from_numpy(x),
    ],
)
def test_rows_for_callables_come_in_many_forms(form: Any) -> None:
    plain, found = foreign(X=ROWS), foreign(X=form(ROWS.numpy()))
    assert np.array_equal(found.kl, plain.kl)
    assert np.array_equal(found.gain, plain.gain)


@pytest.mark.parametrize(
    ("X", "error", "message"),
    [
        (np.array([["a", "b"]] * 3), TypeError, "got a ndarray with values of type <U1"),
        (np.array([[1.0, None]] * 3), TypeError, "got a ndarray with values of type object"),
        (pd.DataFrame({"a": [1, 2], "b": ["x", "y"]}), TypeError, "got a DataFrame with values of type object"),
        ([[1.0, 2.0], [3.0]], TypeError, "got a list"),
        ("rows.npy", TypeError, "got the path 'rows.npy'. Read the file first"),
        (Path("rows.npy"), TypeError, "Read the file first"),
        (5, ValueError, r"got shape \(\)"),
        (np.ones(5), ValueError, r"got shape \(5,\)"),
        (np.ones((5, 0)), ValueError, r"got shape \(5, 0\)"),
        (np.array([[1.0, math.nan, 0.0]] * 3), ValueError, "X contains NaN"),
        (np.array([[1.0, 1e300, 0.0]] * 3), ValueError, "beyond float32"),
        (scipy.sparse.csr_matrix(np.array([[1.0, math.nan, 0.0]] * 3)), ValueError, "X contains NaN"),
        (torch.ones(5, 3).to_sparse(), TypeError, "sparse_coo tensor"),
        (torch.ones(5, 3, dtype=torch.complex64), TypeError, "Make it real"),
    ],
)
def test_rows_that_are_none_are_refused_in_one_sentence(X: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        foreign(X=X)


# -- figure 14, and the right size -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def course(planted: Any, planted_rows: Any) -> Any:
    before = {k: v.clone() for k, v in planted.model_.state_dict().items()}
    table = noise_experiment(planted, planted_rows, epochs=15, factor=2.0)
    assert all(
        torch.equal(v, before[k]) for k, v in planted.model_.state_dict().items()
    )  # the user's model is untouched
    return table


def test_a_unit_collapses_where_noise_pushes_its_gain_below_its_kl(course: Any) -> None:
    degrade = [row for row in course if row["phase"] == "degrade"]
    assert all(row["gain"] > row["kl"] for row in [course[0], *degrade[:-1]])
    assert degrade[-1]["gain"] < degrade[-1]["kl"]
    assert course[0]["var_mean"] > 0.5
    dead = [row for row in course if row["noise"]][-1]
    assert dead["var_mean"] < 0.01
    assert dead["mean_variance"] == pytest.approx(1, abs=0.05)
    assert max(row["var_mean"] for row in degrade) > course[0]["var_mean"]  # first it tries to shout above the noise


def test_a_collapsed_unit_revives_without_the_noise(course: Any) -> None:
    assert (course[-1]["phase"], course[-1]["noise"]) == ("revive", 0.0)
    assert course[-1]["var_mean"] > 0.5
    assert course[-1]["gain"] > course[-1]["kl"] > 0.1
    assert str(course).splitlines()[0].split() == ["phase", "noise", "gain", "kl", "var_mean", "mean_variance"]


def test_the_experiment_refuses_what_it_cannot_show(planted: Any, planted_rows: Any) -> None:
    dead = int(np.flatnonzero(~audit(planted, planted_rows).active)[0])
    with pytest.raises(ValueError, match=f"unit {dead} is inactive already"):
        noise_experiment(planted, planted_rows, dead)
    for unit in (6, -1, 1.5, True, [1], "1"):
        with pytest.raises(ValueError, match="unit must be an integer, a unit from 0 to 5"):
            noise_experiment(planted, planted_rows, unit)
    with pytest.raises(ValueError, match="gain_rows must be an integer above 0"):
        noise_experiment(planted, planted_rows, gain_rows=0)
    with pytest.raises(ValueError, match="factor must be a number above 1"):
        noise_experiment(planted, planted_rows, factor=1.0)
    sparse = sv.VSC(3, **PLANTED | {"training": sv.Training(steps=200, verbose=0)}).fit(planted_rows)
    bits = sv.DiscreteVAE(3, **PLANTED | {"training": sv.Training(steps=2, verbose=0)}).fit(planted_rows)
    for est in (sparse, bits):
        with pytest.raises(TypeError, match=f"needs a Gaussian code, such as a VAE's; {type(est).__name__} has anoth"):
            noise_experiment(est, planted_rows)


def test_a_code_without_an_active_unit_has_none_to_degrade(planted_rows: Any) -> None:
    training = sv.Training(steps=300, learning_rate=1e-2, verbose=0)
    est = sv.BetaVAE(2, beta=1000.0, **PLANTED | {"training": training}).fit(planted_rows)
    for unit in (None, 0):
        with pytest.raises(ValueError, match=r"no active unit to degrade\. collapsed: 0 of 2 units are active"):
            noise_experiment(est, planted_rows, unit)


def test_the_size_grows_until_units_stay_unused(planted_rows: Any) -> None:
    training = sv.Training(steps=700, batch_size=64, learning_rate=1e-2, verbose=0)
    found = suggest_size(sv.VAE(**PLANTED | {"training": training}), planted_rows, start=2)
    assert [row["n_components"] for row in found.table] == [2, 4]
    assert found.table.column("verdict") == ["too small", "well sized"]
    assert found.table.column("n_active") == [2, 3]  # as many as there are sources
    assert found.size == found.audit.suggested_size == 4


def test_the_search_for_a_size_ends_at_the_largest(planted_rows: Any) -> None:
    est = sv.VAE(**PLANTED | {"training": sv.Training(steps=200, batch_size=64, learning_rate=5e-3, verbose=0)})
    found = suggest_size(est, planted_rows, start=1, most=2, factor=10.0)
    assert [row["n_components"] for row in found.table] == [1, 2]
    assert (found.size, found.audit.verdict) == (2, "too small")
    with pytest.raises(ValueError, match="start must not exceed most"):
        suggest_size(sv.VAE, planted_rows, start=8, most=4)


def test_the_search_for_a_size_refuses_what_cannot_work_before_it_trains(
    planted_rows: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sv.SparseCoder, "fit", lambda *_: pytest.fail("it trained"))
    with pytest.raises(ValueError, match="gain_rows must be an integer above 0 or None, got 0"):
        suggest_size(sv.VAE, planted_rows, gain_rows=0)
    with pytest.raises(ValueError, match="cap must be an integer above 0, got 0"):
        suggest_size(sv.SDLGM(cap=0), planted_rows)
    for est in (sv.SDLGM, sv.SDLGM(cap=10, features="distinct")):  # ten of the first eight units may be on
        with pytest.raises(TypeError, match="suggest_size of up to 1024 units measures units one by one"):
            suggest_size(est, planted_rows)
    for est, came in ((PCA(), "a PCA"), (PCA, "the class PCA"), (None, "a NoneType")):
        with pytest.raises(TypeError, match=f"needs an estimator of sparsevae or its class, such as VAE; got {came}"):
            suggest_size(est, planted_rows)


def test_every_size_has_a_run_folder_of_its_own(planted_rows: Any, tmp_path: Path) -> None:
    training = sv.Training(steps=20, folder=str(tmp_path), verbose=0)
    est = sv.VAE(**PLANTED | {"training": training})
    suggest_size(est, planted_rows, start=1, most=1)
    suggest_size(est.set_params(training__resume=True), planted_rows, start=1, most=1)  # goes on where it ended
    assert [p.name for p in tmp_path.iterdir()] == ["units-1"]
    assert (tmp_path / "units-1" / "checkpoint.safetensors").exists()
    assert est.training.folder == str(tmp_path)
