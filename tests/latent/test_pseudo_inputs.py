"""Pseudo-inputs: which ways of choosing learn, the bound against a likelihood that is exact, and what is stored."""

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.special
import scipy.stats
import torch
from torch import Tensor
from torch.distributions import Distribution

import sparsevae as sv
from sparsevae.distributions.gaussian import normal
from sparsevae.distributions.kl import divergence
from sparsevae.distributions.mixtures import Selected, SpikeSlabMixture
from sparsevae.distributions.spike_slab import SpikeSlab
from sparsevae.latent.bounds import bounds, log_weights
from sparsevae.latent.model import LatentModel
from sparsevae.latent.objective import kl, nll
from sparsevae.latent.posteriors import SpikeSlabPosterior
from sparsevae.latent.pseudo_inputs import SELECTIONS, PseudoInputs
from sparsevae.likelihoods.gaussian import FixedGaussianData
from sparsevae.networks.dense import Linear, initialise
from sparsevae.sampling.draw import Draw
from sparsevae.sampling.gradients import ScaledSigmoid
from sparsevae.sampling.noise import Fresh
from sparsevae.training.step import Run

pytestmark = pytest.mark.filterwarnings("ignore::sparsevae.exceptions.SparsityWarning")

# -- a linear-Gaussian decoder, three units and two pseudo-inputs: log p(x) is a sum over 2 x 2^3 patterns -----------

J, D, U, VARIANCE = 3, 4, 2, 1.0
RHO = (0.7, 0.3)


def tiny(selection: str) -> LatentModel:
    model = LatentModel(
        Linear(D, 3 * J),
        SpikeSlabPosterior(ScaledSigmoid()),
        Linear(J, D),
        FixedGaussianData(VARIANCE),
        PseudoInputs(J, D, U, SELECTIONS[selection](D, U)),
    ).eval()
    initialise(model, torch.Generator().manual_seed(1))
    g = torch.Generator().manual_seed(2)
    with torch.no_grad():
        model.encoder.weight.mul_(0.5)  # posteriors about as wide as the prior's slabs: weights with small variance
        model.prior.inputs.copy_(2 * torch.randn(U, D, generator=g))
        model.prior.rho.copy_(torch.tensor(RHO))
        model.prior.selection.layer.bias.copy_(torch.tensor([0.5, 0.2]))  # so that the paper's ReLU is not all zero
    return model


def no_encoder(x: Tensor) -> Distribution:
    raise AssertionError("pseudo-inputs begin without the encoder")


X = torch.randn(3, D, generator=torch.Generator().manual_seed(3))


def exact(model: LatentModel) -> np.ndarray:
    """log sum_u rho_u sum_g P_u(g) N(x; W (g m_u) + b, W diag(g s_u^2) W' + variance I), in float64."""
    dist = model.prior.marginal(model.encode)
    assert isinstance(dist, SpikeSlabMixture)
    w, b = (t.detach().double().numpy() for t in (model.decoder.weight, model.decoder.bias))
    on, loc, scale = (
        t.detach().double().numpy() for t in (dist.components.p_on, dist.components.loc, dist.components.scale)
    )
    out = []
    for x in X.double().numpy():
        terms = []
        for u, g in itertools.product(range(U), itertools.product((0, 1), repeat=J)):
            gates = np.array(g)
            prior = math.log(RHO[u]) + np.log(np.where(gates, on[u], 1 - on[u])).sum()
            covariance = (w * gates * scale[u] ** 2) @ (w * gates).T + VARIANCE * np.eye(D)
            mean = w @ (gates * loc[u]) + b
            terms.append(prior + scipy.stats.multivariate_normal(mean, covariance).logpdf(x))
        out.append(scipy.special.logsumexp(terms))
    return np.array(out)


@pytest.mark.parametrize("selection", SELECTIONS)
def test_bounds_lie_below_the_exact_likelihood_of_the_mixture(selection: str) -> None:
    model = tiny(selection)
    wanted = torch.tensor(exact(model))
    for n_samples, repeats in ((1, 300), (1000, 30)):
        runs = [bounds(model, X, n_samples, seed=s) for s in range(repeats)]
        for name in ("elbo", "importance"):
            each = torch.stack([getattr(b, name) for b in runs])
            assert bool((each.mean(0) <= wanted + 3 * each.std(0) / repeats**0.5).all()), name
    best = bounds(model, X, 20_000)
    assert bool(((best.importance - wanted).abs() < 5 * best.standard_error).all())
    assert float(best.standard_error.max()) < 0.05
    assert bool((best.elbo < wanted - 0.1).all())  # so that the claims are not empty


def test_the_training_objective_is_a_bound_too_where_the_choice_is_paid_for() -> None:
    """Ours: -(nll + kl_z) with hard draws lies below the mixture's ELBO in the mean, by the slack of erratum 32."""
    model = tiny("softmax")
    with torch.no_grad():
        trace = model(X.repeat(20_000, 1), Draw(Fresh(torch.Generator().manual_seed(0)), hard=True))
        gap = (log_weights(trace) + nll(trace)["nll_x"] + kl(trace)["kl_z"]).unflatten(0, (-1, len(X)))
    assert bool((gap.mean(0) > -3 * gap.std(0) / 20_000**0.5).all())
    assert float(gap.mean()) > 0.01


# -- choosing --------------------------------------------------------------------------------------------------------


def test_choices_by_hand() -> None:
    """Logits (1, 3, -2): softmax(logits / .5); sigmoid(60 (share - 1/2)), shares (1/4, 3/4, 0); sigmoids / sum."""
    x, logits = torch.ones(1, 1), torch.tensor([1.0, 3.0, -2.0])
    choices = {}
    for name, selection in SELECTIONS.items():
        made = selection(1, 3)
        with torch.no_grad():
            made.layer.weight.zero_()
            made.layer.bias.copy_(logits)
        choices[name] = made(x)[0].tolist()
    e = [math.exp(2), math.exp(6), math.exp(-4)]
    s = [1 / (1 + math.exp(-v)) for v in (1, 3, -2)]
    assert choices["softmax"] == pytest.approx([v / sum(e) for v in e], rel=1e-5)
    assert choices["paper"] == pytest.approx([1 / (1 + math.exp(15)), 1 / (1 + math.exp(-15)), 1 / (1 + math.exp(30))])
    assert choices["authors"] == pytest.approx([v / sum(s) for v in s], rel=1e-5)
    assert {name: c.charged for name, c in SELECTIONS.items()} == {"softmax": True, "paper": False, "authors": False}


def test_no_choice_is_nan_where_every_logit_is_negative() -> None:
    """The paper's ReLU and unit sum would divide 0 by 0."""
    for name, selection in SELECTIONS.items():
        made = selection(1, 3)
        with torch.no_grad():
            made.layer.weight.zero_()
            made.layer.bias.fill_(-5.0)
        w = made(torch.ones(2, 1))
        gradients = torch.autograd.grad(w.sum(), list(made.parameters()))
        assert all(bool(torch.isfinite(t).all()) for t in (w, *gradients)), name


def test_the_authors_sharpen_the_gates_of_their_inputs() -> None:
    """sigmoid(10 (p_on - 1/2)) lies in [.0067, .9933]: a prior gate is never surer."""
    logits = torch.tensor([-100.0, -1.0, 0.0, 100.0])
    sharp = torch.sigmoid(SELECTIONS["authors"](1, 1).sharpen(logits))
    by_hand = [1 / (1 + math.exp(-10 * (1 / (1 + math.exp(-a)) - 0.5))) for a in (-100, -1, 0, 100)]
    assert sharp.tolist() == pytest.approx(by_hand, rel=1e-5)
    assert float(sharp[0]) == pytest.approx(0.0067, abs=5e-5)
    assert float(sharp[3]) == pytest.approx(0.9933, abs=5e-5)
    for name in ("softmax", "paper"):
        assert torch.equal(SELECTIONS[name](1, 1).sharpen(logits), logits)


def even(selection: str, n: int = 20) -> tuple[LatentModel, dict[str, Tensor]]:
    """A choice between n inputs by nearly equal logits, as a fresh layer's after its ReLU; and its KL."""
    model = LatentModel(
        Linear(D, 3 * J),
        SpikeSlabPosterior(ScaledSigmoid()),
        Linear(J, D),
        FixedGaussianData(VARIANCE),
        PseudoInputs(J, D, n, SELECTIONS[selection](D, n)),
    )
    initialise(model, torch.Generator().manual_seed(1))
    g = torch.Generator().manual_seed(2)
    with torch.no_grad():
        model.prior.inputs.copy_(torch.randn(n, D, generator=g))
        model.prior.selection.layer.weight.mul_(1e-3)
        model.prior.selection.layer.bias.fill_(1.0)
    return model, kl(model(X, Draw(Fresh(torch.Generator().manual_seed(0)), hard=False)))


def test_the_paper_s_kl_is_switched_off_at_the_start_and_ours_is_not() -> None:
    """The supplement's sharpened weights: equal shares of 20 inputs weigh sigmoid(60 (.05 - .5)) = 1.9e-12 each."""
    size = {}
    for name in SELECTIONS:
        model, terms = even(name)
        choice = model.prior.selection(X).detach()
        (gradient,) = torch.autograd.grad(terms["kl_z"].sum(), model.prior.selection.layer.bias)
        size[name] = float(choice.max()), float(terms["kl_z"].detach().mean()), float(gradient.norm())
    weight, cost, gradient = size["paper"]
    assert weight == pytest.approx(1.9e-12, rel=0.1)
    assert cost < 1e-9
    assert gradient < 1e-9
    for name in ("softmax", "authors"):
        weight, cost, gradient = size[name]
        assert weight == pytest.approx(1 / 20, rel=0.01)
        assert cost > 0.1
        assert gradient > 1e-3


def test_pseudo_inputs_need_a_spike_and_slab() -> None:
    prior = PseudoInputs(J, D, U, SELECTIONS["softmax"](D, U))
    with pytest.raises(TypeError, match="need a posterior that is a SpikeSlab, got _Gaussian"):
        prior.marginal(lambda x: normal(torch.zeros(len(x), J), torch.ones(len(x), J)))


@pytest.mark.parametrize("selection", ["softmax", "authors"])
def test_one_pseudo_input_is_a_fixed_prior_and_its_choice_costs_nothing(selection: str) -> None:
    model = tiny(selection)
    model.prior = PseudoInputs(J, D, 1, SELECTIONS[selection](D, 1))
    initialise(model.prior, torch.Generator().manual_seed(0))
    model.prior.start(X, model.encode)
    q, p = model.encode(X), model.prior(X, model.encode)
    assert isinstance(p, Selected)
    assert p.choice.tolist() == [[1.0]] * 3
    fixed = model.encode(X[:1])
    fixed = SpikeSlab(model.prior.selection.sharpen(fixed.logits), fixed.loc, fixed.scale)
    assert torch.allclose(divergence(q, p), divergence(q, fixed), rtol=1e-6)
    if selection == "softmax":
        assert torch.equal(p.selection_cost, torch.zeros(3))
    z = Draw(Fresh(torch.Generator().manual_seed(1)), hard=True)(q)
    assert torch.allclose(p.log_prob(z), fixed.log_prob(z), rtol=1e-6)
    model.prior.after_training(X)
    assert model.prior.rho.tolist() == [1.0]


def test_inputs_begin_at_rows_again_from_the_first() -> None:
    prior = PseudoInputs(J, D, 5, SELECTIONS["softmax"](D, 5))
    prior.start(X, no_encoder)
    assert torch.equal(prior.inputs.detach(), X[[0, 1, 2, 0, 1]])


@pytest.mark.parametrize("selection", SELECTIONS)
def test_rho_is_the_mean_choice_however_the_rows_come_in_blocks(selection: str) -> None:
    model = tiny(selection)
    rows = 3 * torch.randn(70, D, generator=torch.Generator().manual_seed(5))
    with torch.no_grad():
        w = model.prior.selection(rows).double()
        wanted = (w / w.sum(-1, keepdim=True)).mean(0)
        for sizes in ([70], [30, 30, 10], [1] * 70):
            model.prior.rows.zero_()
            for block in rows.split(sizes):
                model.prior.after_training(block)
            assert model.prior.rho.tolist() == pytest.approx(wanted.tolist(), abs=2e-5)
            assert float(model.prior.rho.sum()) == pytest.approx(1, abs=1e-6)


def test_an_input_that_no_row_chose_stays_possible() -> None:
    """rho above 0, so that no bound is minus infinity by rounding."""
    model = tiny("softmax")
    with torch.no_grad():
        model.prior.selection.layer.weight.zero_()
        model.prior.selection.layer.bias.copy_(torch.tensor([100.0, -100.0]))
        model.prior.after_training(X)
    assert float(model.prior.rho[1]) == pytest.approx(1e-6, rel=1e-3)
    assert bool(torch.isfinite(bounds(model, X, 5).elbo).all())


# -- members ---------------------------------------------------------------------------------------------------------


def stack(selection: str, members: tuple[int, ...]) -> LatentModel:
    """As many inputs as rows and, for one dimension of members, as members: a wrong axis would meet another."""
    model = LatentModel(
        Linear(D, 3 * J, members),
        SpikeSlabPosterior(ScaledSigmoid()),
        Linear(J, D, members),
        FixedGaussianData(VARIANCE),
        PseudoInputs(J, D, 3, SELECTIONS[selection](D, 3, members), members),
    )
    initialise(model, torch.Generator().manual_seed(1))
    g = torch.Generator().manual_seed(2)
    with torch.no_grad():
        model.prior.inputs.copy_(torch.randn(model.prior.inputs.shape, generator=g))
        model.prior.rho.copy_(torch.softmax(torch.randn(model.prior.rho.shape, generator=g), -1))
    return model


def member(model: LatentModel, selection: str, m: tuple[int, ...]) -> LatentModel:
    alone = stack(selection, ())
    alone.load_state_dict({k: v[m] for k, v in model.state_dict().items()})
    return alone.train(model.training)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("members", [(3,), (2, 3)])
@pytest.mark.parametrize("selection", SELECTIONS)
def test_a_stack_chooses_and_pays_as_its_members_would_alone(
    selection: str, members: tuple[int, ...], training: bool
) -> None:
    """Choice, price, divergence, density and moments; in training by the recipe, else normalised and paid for."""
    together = stack(selection, members).train(training)
    q, p = together.encode(X), together.prior(X, together.encode)
    assert isinstance(p, Selected)
    assert p.batch_shape == (*members, len(X))
    z = Draw(Fresh(torch.Generator().manual_seed(4)), hard=True)(q)
    dist = together.prior.marginal(together.encode)
    for m in np.ndindex(*members):
        alone = member(together, selection, m)
        own_q, own = alone.encode(X), alone.prior(X, alone.encode)
        assert isinstance(own, Selected)
        assert own.charged == p.charged
        for name in ("choice", "mean", "variance"):
            torch.testing.assert_close(getattr(p, name)[m], getattr(own, name), rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(divergence(q, p)[m], divergence(own_q, own), rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(p.log_prob(z)[m], own.log_prob(z[m]), rtol=1e-5, atol=1e-5)
        if p.charged:
            torch.testing.assert_close(p.selection_cost[m], own.selection_cost, rtol=1e-5, atol=1e-6)
        own_prior = alone.prior.marginal(alone.encode)
        torch.testing.assert_close(dist.mean[m], own_prior.mean, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(dist.variance[m], own_prior.variance, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(dist.log_prob(z)[m], own_prior.log_prob(z[m]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("members", [(3,), (2, 3)])
def test_a_stack_begins_at_shared_rows_or_at_each_member_s_own(members: tuple[int, ...]) -> None:
    prior = PseudoInputs(J, D, 5, SELECTIONS["softmax"](D, 5, members), members)
    own = torch.randn(*members, 3, D, generator=torch.Generator().manual_seed(0))
    index = [0, 1, 2, 0, 1]
    prior.start(X, no_encoder)
    assert torch.equal(prior.inputs.detach(), X[index].expand(*members, 5, D))
    prior.start(own, no_encoder)
    assert torch.equal(prior.inputs.detach(), own[..., index, :])


@pytest.mark.parametrize("members", [(3,), (2, 3)])
@pytest.mark.parametrize("selection", SELECTIONS)
def test_every_member_of_a_stack_settles_its_own_rho(selection: str, members: tuple[int, ...]) -> None:
    together = stack(selection, members)
    rows = 3 * torch.randn(50, D, generator=torch.Generator().manual_seed(5))
    with torch.no_grad():
        for block in rows.split([20, 20, 10]):
            together.prior.after_training(block)
        assert torch.equal(together.prior.rows, torch.full(members, 50.0))
        for m in np.ndindex(*members):
            w = member(together, selection, m).prior.selection(rows).double()
            wanted = (w / w.sum(-1, keepdim=True)).mean(0)
            assert together.prior.rho[m].tolist() == pytest.approx(wanted.tolist(), abs=2e-5)
            assert float(together.prior.rho[m].sum()) == pytest.approx(1, abs=1e-6)


# -- the estimator ---------------------------------------------------------------------------------------------------


def data() -> np.ndarray:
    rng = np.random.default_rng(0)
    return (rng.normal(size=(90, 3)) @ rng.normal(size=(3, 7)) + 0.1 * rng.normal(size=(90, 7))).astype(np.float32)


def make(folder: Path | None = None, resume: bool = False, **changes: object) -> sv.PseudoVSC:
    training = sv.Training(
        steps=40,
        batch_size=32,
        learning_rate=1e-2,
        report_every=5,
        checkpoint_every=10,
        folder=None if folder is None else str(folder),
        resume=resume,
        verbose=0,
    )
    return sv.PseudoVSC(5, **{"hidden": (8,), "pseudo_inputs": 4, "alpha": 0.3, "training": training} | changes)


def saved(est: sv.PseudoVSC, folder: Path) -> dict[str, bytes]:
    est.save(folder)
    return {f.name: f.read_bytes() for f in folder.iterdir()}


def test_pseudo_inputs_start_at_training_rows_and_learn() -> None:
    X = data()
    start = make(training=sv.Training(steps=1, learning_rate=1e-30, verbose=0)).fit(X)
    rows = start.scaling_(torch.tensor(X))
    distance = (start.model_.prior.inputs.detach()[:, None] - rows).abs().sum(-1)
    assert float(distance.min(-1).values.max()) == 0
    assert len(distance.argmin(-1).unique()) == 4
    learned = make().fit(X).model_.prior.inputs.detach()
    assert float((learned - start.model_.prior.inputs.detach()).abs().max()) > 0.01


def test_rho_is_settled_by_the_training_rows_and_survives_the_disk(tmp_path: Path) -> None:
    X = data()
    est = make().fit(X)
    rho = est.model_.prior.rho
    with torch.no_grad():
        choice = est.model_.prior.selection(est.scaling_(torch.tensor(X)))
    assert rho.tolist() == pytest.approx(choice.mean(0).tolist(), abs=1e-5)
    assert float(rho.sum()) == pytest.approx(1, abs=1e-6)
    assert float((rho - 0.25).abs().max()) > 0.01  # it moved
    est.save(tmp_path / "model")
    again = sv.load(tmp_path / "model")
    assert torch.equal(again.model_.prior.rho, rho)
    assert torch.equal(again.model_.prior.inputs, est.model_.prior.inputs)
    np.testing.assert_array_equal(again.score_samples(X), est.score_samples(X))
    np.testing.assert_array_equal(again.sample(9), est.sample(9))
    np.testing.assert_array_equal(again.transform(X).toarray(), est.transform(X).toarray())


def test_samples_come_from_the_mixture(monkeypatch: pytest.MonkeyPatch) -> None:
    est, n = make().fit(data()), 20_000
    seen: list[Tensor] = []
    decode = LatentModel.decode

    def spy(self: LatentModel, z: Tensor) -> object:
        seen.append(z)
        return decode(self, z)

    monkeypatch.setattr(LatentModel, "decode", spy)
    est.sample(n)
    (z,) = seen
    with torch.no_grad():
        dist = est.model_.prior.marginal(est.model_.encode)
        on = (dist.weights[:, None] * dist.components.p_on).sum(0)
    assert bool(((z.mean(0) - dist.mean).abs() < 5 * dist.variance.sqrt() / n**0.5 + 1e-6).all())
    rate = (z != 0).float().mean(0)
    assert bool(((rate - on).abs() < 5 * (on * (1 - on) / n).sqrt() + 1e-6).all())


def test_samples_like_a_row_keep_its_zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    X = data()
    training = sv.Training(steps=200, learning_rate=1e-2, kl_warmup=0.9, verbose=0)
    est = make(training=training).fit(X)
    code = est.transform(X).toarray()
    row = int(np.argmax((code != 0).sum(1) % 5))  # some units on, some off
    seen: list[Tensor] = []
    decode = LatentModel.decode
    monkeypatch.setattr(LatentModel, "decode", lambda self, z: seen.append(z) or decode(self, z))
    est.sample_like(X[row : row + 1], 50)
    assert torch.equal(seen[0] != 0, torch.tensor(code[row] != 0).expand(50, 5))
    assert 0 < (code[row] != 0).sum() < 5


@pytest.mark.parametrize("step", [4, 23, 39])
def test_an_interrupted_run_resumes_to_the_same_bytes(
    step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inputs, choice, moments and schedules all come back; rho is settled at the end, once."""
    X = data()
    whole = saved(make(tmp_path / "run").fit(X), tmp_path / "whole")
    advance = Run.advance

    def stumble(self: Run) -> None:
        if self.step == step:
            raise RuntimeError("stumbled")
        advance(self)

    with monkeypatch.context() as patch:
        patch.setattr(Run, "advance", stumble)
        with pytest.raises(RuntimeError, match="stumbled"):
            make(tmp_path / "again").fit(X)
    assert saved(make(tmp_path / "again", resume=True).fit(X), tmp_path / "parts") == whole
    assert saved(make(tmp_path / "run", resume=True).fit(X), tmp_path / "finished") == whole  # nothing left to do


def test_a_run_is_a_function_of_its_seed(tmp_path: Path) -> None:
    X = data()
    first, second = (saved(make().fit(X), tmp_path / name) for name in ("a", "b"))
    assert first == second


def test_partial_fit_goes_on_with_whole_slabs_and_new_shares() -> None:
    X = data()
    est = make().fit(X)
    before, rho = est.model_.prior.inputs.detach().clone(), est.model_.prior.rho.clone()
    est.partial_fit(X[:40])
    assert float(est.model_.posterior.slab_warmup) == 1
    assert not torch.equal(est.model_.prior.inputs.detach(), before)
    assert not torch.equal(est.model_.prior.rho, rho)
    assert float(est.model_.prior.rho.sum()) == pytest.approx(1, abs=1e-6)


def test_the_warm_up_follows_its_shares_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """40 steps, (.25, .75): noise until step 10, half at 20, whole from 30."""
    seen: list[float] = []
    advance = Run.advance

    def spy(self: Run) -> None:
        advance(self)
        seen.append(float(self.knobs["slab_warmup"][0]))

    monkeypatch.setattr(Run, "advance", spy)
    make(slab_warmup=(0.25, 0.75)).fit(data())
    assert seen[:11] == [0.0] * 11
    assert seen[20] == pytest.approx(0.5)
    assert seen[30:] == [1.0] * 10
    assert all(b > a for a, b in itertools.pairwise(seen[10:31]))


def test_the_sparsity_term_is_no_part_of_a_score() -> None:
    X = data()
    est = make().fit(X)
    before = est.score_samples(X)
    np.testing.assert_array_equal(est.set_params(sparsity=100.0).score_samples(X), before)
    np.testing.assert_array_equal(est.set_params(alpha=0.9).score_samples(X), before)


# -- traps -----------------------------------------------------------------------------------------------------------


def test_a_reported_kl_is_a_bound_on_the_one_to_the_mixture_whatever_the_selection() -> None:
    """The paper's weights of 1e-12 would report next to no KL at all."""
    for selection in SELECTIONS:
        model = tiny(selection).eval()
        model.prior.start(X, model.encode)
        with torch.no_grad():
            q, p = model.encode(X), model.prior(X, model.encode)
            z = Draw(Fresh(torch.Generator().manual_seed(0)), hard=True)(q.expand((4000, *q.batch_shape)))
            ratio = q.log_prob(z) - p.log_prob(z)
        error = ratio.std(0) / 4000**0.5
        assert bool((divergence(q, p) >= ratio.mean(0) - 4 * error).all()), selection


def test_more_rows_join_rho_and_do_not_replace_it() -> None:
    model = tiny("softmax")
    a, b = (s * torch.randn(50, D, generator=torch.Generator().manual_seed(i)) for i, s in ((1, 1.0), (2, 4.0)))
    with torch.no_grad():
        model.prior.after_training(a)
        model.prior.after_training(b)
        both = model.prior.selection(torch.cat([a, b])).mean(0)
    assert model.prior.rho.tolist() == pytest.approx(both.tolist(), abs=1e-5)


def test_the_authors_sigmoids_never_divide_nothing_by_nothing() -> None:
    chosen = SELECTIONS["authors"](D, 3)
    with torch.no_grad():
        chosen.layer.weight.zero_()
        chosen.layer.bias.fill_(-120.0)
        assert chosen(X).tolist() == [pytest.approx([1 / 3] * 3)] * len(X)


@pytest.mark.parametrize("own", [{"network": "asperti"}, {"encoder": torch.nn.BatchNorm1d(784)}])
def test_an_encoder_that_normalises_over_batches_is_refused(own: dict[str, Any]) -> None:
    rows = np.random.default_rng(0).random((20, 784)).astype(np.float32)
    with pytest.raises(ValueError, match="must not normalise over a batch"):
        sv.PseudoVSC(4, training=sv.Training(steps=1, verbose=0), **own).fit(rows)
