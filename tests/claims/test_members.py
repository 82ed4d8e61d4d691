"""Leading dimensions mean members: many models as one give each model's own numbers and gradients."""

import copy
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from sparsevae.distributions.family import Family
from sparsevae.inputs.batch import Batch
from sparsevae.latent.bounds import bounds
from sparsevae.latent.model import LatentModel, Observed
from sparsevae.latent.objective import Objective, Term, free_bits, kl, nll
from sparsevae.latent.posteriors import (
    GaussianPosterior,
    PointPosterior,
    SlabPosterior,
    SpikeSlabPosterior,
    WarmSpikeSlabPosterior,
)
from sparsevae.latent.priors import FixedSpikeSlab, Prior, SparseNormals, StandardNormal
from sparsevae.latent.pseudo_inputs import SELECTIONS, PseudoInputs
from sparsevae.latent.terms import AggregateSparsity, Capacity, mmd, stratified, total_correlation
from sparsevae.likelihoods.base import Likelihood
from sparsevae.likelihoods.bernoulli import BernoulliData
from sparsevae.likelihoods.gaussian import FixedGaussianData, GaussianData, LaplaceData
from sparsevae.models.mat import WithPriorSample
from sparsevae.networks.dense import initialise, mlp
from sparsevae.sampling.draw import Draw
from sparsevae.sampling.gradients import ScaledSigmoid, StraightThroughConcrete
from sparsevae.sampling.noise import Tape
from sparsevae.testing import check_model
from sparsevae.training.optimisers import clip_gradients

B, D, J, H, U = 6, 5, 4, 8, 3
MEMBERS = [(3,), (2, 3)]

MODELS: dict[
    str, tuple[type[Family], tuple[type[nn.Module], float] | None, type[Likelihood], float | None, float | str | None]
] = {
    # name: posterior, gate with its knob, likelihood with its setting, and of the prior: its alpha, or how rows choose
    # between pseudo-inputs (None: normal)
    "vae": (GaussianPosterior, None, BernoulliData, None, None),
    "vsc": (SpikeSlabPosterior, (ScaledSigmoid, 20.0), GaussianData, 0.1, 0.3),
    "vsc, straight-through": (SpikeSlabPosterior, (StraightThroughConcrete, 0.7), FixedGaussianData, 0.5, 0.3),
    "vsc, warming up": (WarmSpikeSlabPosterior, (ScaledSigmoid, 20.0), LaplaceData, 0.5, 0.3),
    "autoencoder": (PointPosterior, None, BernoulliData, None, None),
    "vsc, never off": (SlabPosterior, None, FixedGaussianData, 0.5, 1.0),
    "learned prior": (WarmSpikeSlabPosterior, (ScaledSigmoid, 20.0), GaussianData, 0.1, "softmax"),
    "learned prior, the paper's": (SpikeSlabPosterior, (ScaledSigmoid, 20.0), BernoulliData, None, "paper"),
    "learned prior, the authors'": (SpikeSlabPosterior, (ScaledSigmoid, 20.0), BernoulliData, None, "authors"),
}


def build(name: str, members: tuple[int, ...] = ()) -> LatentModel:
    posterior_class, gate, likelihood_class, setting, alpha = MODELS[name]
    posterior = posterior_class(gate[0](gate[1])) if gate else posterior_class()
    likelihood = likelihood_class(setting) if setting else likelihood_class()
    prior: Prior
    if isinstance(alpha, str):
        prior = PseudoInputs(J, D, U, SELECTIONS[alpha](D, U, members), members)
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():  # every member has inputs and shares of its own
            prior.inputs.normal_(generator=generator)
            prior.rho.copy_(torch.softmax(torch.randn(prior.rho.shape, generator=generator), -1))
    else:
        prior = StandardNormal(J) if alpha is None else FixedSpikeSlab(J, alpha)
    encoder = mlp([D, H, posterior.width(J)], members)
    decoder = mlp([J, H, likelihood.width(D)], members)
    model = LatentModel(encoder, posterior, decoder, likelihood, prior)
    initialise(model, torch.Generator().manual_seed(0))
    return model


def member(model: LatentModel, name: str, m: tuple[int, ...]) -> LatentModel:
    """One member of a stack, as a model of its own."""
    alone = build(name)
    alone.load_state_dict({k: v[m] for k, v in model.state_dict().items()})
    return alone


class Slices:
    """Noise recorded for a stack, and its slices for one member."""

    def __init__(self, tape: Tape, m: tuple[int, ...] = ()) -> None:
        self.normals: Iterator[Tensor] = iter([t[m] for t in tape.normals])
        self.uniforms: Iterator[Tensor] = iter([t[m] for t in tape.uniforms])

    def normal(self, like: Tensor) -> Tensor:
        return next(self.normals)

    def uniform(self, like: Tensor) -> Tensor:
        return next(self.uniforms)


def data(*lead: int) -> Tensor:
    return (torch.rand(*lead, B, D, generator=torch.Generator().manual_seed(7)) > 0.5).float()


def recorded(model: LatentModel, x: Tensor) -> Tape:
    tape = Tape(3, torch.device("cpu"))
    with torch.no_grad():
        model(x, Draw(tape, hard=False))
    tape.refill(5)
    return tape


@pytest.mark.parametrize("name", MODELS)
def test_one_model_keeps_the_conventions(name: str) -> None:
    check_model(build(name), data())


@pytest.mark.parametrize("members", MEMBERS)
@pytest.mark.parametrize("name", MODELS)
def test_a_stack_keeps_the_conventions(name: str, members: tuple[int, ...]) -> None:
    check_model(build(name, members), data(), members=members)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("hard", [True, False])
@pytest.mark.parametrize("members", MEMBERS)
@pytest.mark.parametrize("name", MODELS)
def test_losses_and_gradients_are_each_member_s_own(
    name: str, members: tuple[int, ...], hard: bool, shared: bool
) -> None:
    """Terms of a stack equal those of its members alone; the sum's gradient falls apart into theirs."""
    model = build(name, members)
    x = data() if shared else data(*members)
    tape = recorded(model, x)
    for terms in ((nll, kl), (nll, free_bits(0.2))):
        objective = Objective(*terms, weights={"kl_z": 0.7})
        loss, measured = objective(model(x, Draw(Slices(tape), hard=hard)))
        assert loss.shape == members
        assert all(v.shape == members for v in measured.values())
        model.zero_grad()
        loss.sum().backward()
        for m in np.ndindex(*members):
            alone = member(model, name, m)
            own, own_terms = objective(alone(x if shared else x[m], Draw(Slices(tape, m), hard=hard)))
            own.backward()
            assert torch.allclose(own, loss[m], rtol=1e-5)
            for k, v in own_terms.items():
                assert torch.allclose(v, measured[k][m], rtol=1e-4, atol=1e-6)
            for (k, p), q in zip(alone.named_parameters(), model.parameters(), strict=True):
                assert torch.allclose(p.grad, q.grad[m], rtol=1e-3, atol=1e-5), k


TERMS: dict[str, tuple[Prior, tuple[Term, ...]]] = {
    "capacity": (StandardNormal(J), (nll, Capacity(1.0))),
    "total correlation": (StandardNormal(J), (nll, total_correlation(50, stratified))),
    "mmd": (SparseNormals(J, 0.8, 0.05), (nll, kl, mmd)),
}


@pytest.mark.parametrize("members", MEMBERS)
@pytest.mark.parametrize("name", TERMS)
def test_terms_of_a_whole_batch_are_each_member_s_own(name: str, members: tuple[int, ...]) -> None:
    """Terms that compare rows with each other, or with a draw of the prior, never compare members."""
    prior, parts = TERMS[name]

    def reported(vae: LatentModel) -> LatentModel:
        return WithPriorSample(vae.encoder, vae.posterior, vae.decoder, vae.likelihood, prior)

    stack, x, objective = build("vae", members), data(), Objective(*parts)
    tape = recorded(reported(stack), x)
    loss, measured = objective(reported(stack)(x, Draw(Slices(tape), hard=False)))
    assert loss.shape == members
    loss.sum().backward()
    for m in np.ndindex(*members):
        alone = member(stack, "vae", m)
        own, own_terms = objective(reported(alone)(x, Draw(Slices(tape, m), hard=False)))
        own.backward()
        assert torch.allclose(own, loss[m], rtol=1e-5)
        for k, v in own_terms.items():
            assert torch.allclose(v, measured[k][m], rtol=1e-4, atol=1e-5)
        for (k, p), q in zip(alone.named_parameters(), stack.parameters(), strict=True):
            assert torch.allclose(p.grad, q.grad[m], rtol=1e-3, atol=1e-5), k


@pytest.mark.parametrize("members", MEMBERS)
def test_pseudo_inputs_are_kept_sparse_by_each_member_s_own_alpha(members: tuple[int, ...]) -> None:
    """One alpha a member in the term, and one weight a member on it."""
    n = int(np.prod(members))
    alphas, weights = torch.linspace(0.05, 0.9, n).reshape(members), torch.linspace(0.5, 4, n).reshape(members)
    stack, x = build("learned prior", members), data()
    tape = recorded(stack, x)
    objective = Objective(nll, kl, AggregateSparsity(alphas), weights={"sparsity": 1.0})
    objective.sparsity = weights
    loss, measured = objective(stack(x, Draw(Slices(tape), hard=False)))
    assert loss.shape == measured["sparsity"].shape == members
    loss.sum().backward()
    for m in np.ndindex(*members):
        alone = member(stack, "learned prior", m)
        term = AggregateSparsity(float(alphas[m]))
        own, own_terms = Objective(nll, kl, term, weights={"sparsity": float(weights[m])})(
            alone(x, Draw(Slices(tape, m), hard=False))
        )
        own.backward()
        assert torch.allclose(own, loss[m], rtol=1e-5)
        assert torch.allclose(own_terms["sparsity"], measured["sparsity"][m], rtol=1e-5)
        for (k, p), q in zip(alone.named_parameters(), stack.parameters(), strict=True):
            assert torch.allclose(p.grad, q.grad[m], rtol=1e-3, atol=1e-5), k


@pytest.mark.parametrize("members", MEMBERS)
@pytest.mark.parametrize("name", MODELS)
def test_bounds_are_each_member_s_own(name: str, members: tuple[int, ...]) -> None:
    model = build(name, members)
    x = data()
    together = bounds(model, x, 20, seed=4)
    for m in np.ndindex(*members):
        alone = bounds(member(model, name, m), x, 20, seed=4)
        for a, b in zip(together, alone, strict=True):
            assert a.shape == (*members, B)
            assert torch.allclose(a[m], b, rtol=1e-4, atol=1e-4, equal_nan=True)  # 20 draws have no Pareto k


@pytest.mark.parametrize("members", MEMBERS)
def test_weights_knobs_and_alphas_per_member(members: tuple[int, ...]) -> None:
    """A sweep over alpha, sharpness and the KL's weight: every member sees its own value of each."""
    n = int(np.prod(members))
    alphas = np.linspace(0.1, 0.9, n).tolist()
    model = build("vsc", members)
    model.prior = FixedSpikeSlab(J, alphas)
    model.prior.logits = model.prior.logits.reshape(*members, 1, J)
    sharpness, beta = torch.linspace(5, 100, n).reshape(members), torch.linspace(0.5, 4, n).reshape(members)
    model.posterior.gate.sharpness = sharpness
    objective = Objective(nll, kl, weights={"kl_z": 1.0})
    objective.kl_z = beta
    x = data()
    tape = recorded(model, x)
    loss, _ = objective(model(x, Draw(Slices(tape), hard=False)))
    assert loss.shape == members
    scores = bounds(model, x, 10)
    for i, m in enumerate(np.ndindex(*members)):
        alone = member(model, "vsc", m)
        alone.prior = FixedSpikeSlab(J, alphas[i])
        alone.posterior.gate.sharpness.fill_(float(sharpness[m]))
        own, _ = Objective(nll, kl, weights={"kl_z": float(beta[m])})(alone(x, Draw(Slices(tape, m), hard=False)))
        assert torch.allclose(own, loss[m], rtol=1e-5)
        assert torch.allclose(bounds(alone, x, 10).elbo, scores.elbo[m], rtol=1e-5)


def test_a_stack_of_alphas_may_hold_one() -> None:
    """alpha = 1 beside another: that member costs +inf where its gates may be off, and no NaN anywhere."""
    model = build("vsc", (2,))
    model.prior = FixedSpikeSlab(J, [0.3, 1.0])
    x = data()
    terms = kl(model(x, Draw(recorded(model, x), hard=True)))["kl_z"]
    assert bool(torch.isfinite(terms[0]).all())
    assert bool(torch.isposinf(terms[1]).all())


# -- clipping --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("members", [(), (3,), (2, 3)])
def test_each_member_is_clipped_by_its_own_norm(members: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(0)
    sizes = torch.logspace(-2, 3, int(np.prod(members))).reshape(members)
    gradients = []
    for shape in ((4, 3), (4,), (2, 2, 2)):
        size = sizes.view(*members, *(1,) * len(shape))
        gradients.append(torch.randn((*members, *shape), generator=generator) * size)
    before = [g.clone() for g in gradients]
    clip_gradients(gradients, 1.5, torch.Size(members))
    for m in np.ndindex(*members):
        solo = [nn.Parameter(torch.zeros_like(g[m])) for g in before]
        for p, g in zip(solo, before, strict=True):
            p.grad = g[m].clone()
        nn.utils.clip_grad_norm_(solo, 1.5)
        norm = torch.cat([g[m].flatten() for g in gradients]).norm()
        assert float(norm) <= 1.5 + 1e-4
        for g, p in zip(gradients, solo, strict=True):
            assert torch.allclose(g[m], p.grad, rtol=1e-4)
    if members:  # the smallest member was within the norm and is untouched
        first = (0,) * len(members)
        assert all(torch.equal(g[first], b[first]) for g, b in zip(gradients, before, strict=True))


def test_clipping_takes_scalars_and_missing_gradients() -> None:
    """A user's network may hold a lone number, or a parameter nothing depends on."""
    scalar = torch.tensor(-8.0)
    clip_gradients([scalar, None], 2.0, torch.Size([]))
    assert float(scalar) == pytest.approx(-2.0)


# -- what check_model notices ----------------------------------------------------------------------------------------


class Faulty(LatentModel):
    fault = ""

    def trace(self, batch: Batch, raw: Tensor, draw: Draw, copies: int = 1) -> object:
        if self.fault == "one number per item":
            return super().trace(batch, raw, draw, copies), 0
        if self.fault == "has trace.hard=True":
            return super().trace(batch, raw, draw, copies)._replace(hard=True)
        if self.fault == "global random state":
            torch.rand(1)
        trace = super().trace(batch, raw, draw, copies)
        site, x = trace.latents["z"], trace.observed["x"][1]
        if self.fault == "exactly 0":  # a relaxed draw that passes for a hard one
            return trace._replace(latents={"z": site._replace(value=site.value + 1e-3)})
        if self.fault == "no gradient":
            dead = self.decode(site.value.detach())
            frozen = type(site.q)(site.q.logits.detach(), site.q.loc.detach(), site.q.scale.detach())
            return trace._replace(latents={"z": site._replace(q=frozen)}, observed={"x": Observed(dead, x)})
        if self.fault == "alone and among others":
            observed = Observed(self.decode(site.value - site.value.mean(-2, keepdim=True)), x)
            return trace._replace(observed={"x": observed})
        return trace


@pytest.mark.parametrize(
    "fault",
    [
        "",
        "has trace.hard=True",
        "global random state",
        "exactly 0",
        "no gradient",
        "alone and among others",
        "one number per item",
    ],
)
def test_check_model_notices_a_fault(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sound = build("vsc")
    model = Faulty(sound.encoder, sound.posterior, sound.decoder, sound.likelihood, sound.prior)
    monkeypatch.setattr(Faulty, "fault", fault)
    if not fault:
        check_model(model, data())
        return
    message = "must return a Trace" if fault == "one number per item" else fault
    with torch.random.fork_rng(devices=[]), pytest.raises(AssertionError, match=message):
        check_model(model, data())


def test_check_model_leaves_the_model_as_it_was() -> None:
    model = build("vsc")
    before = copy.deepcopy(model.state_dict())
    check_model(model, data())
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
