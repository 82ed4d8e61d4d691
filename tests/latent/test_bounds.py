"""Bounds against models whose log p(x) is exact, and the reductions that must hold between models."""

import functools
import itertools
import math
import warnings

import numpy as np
import pytest
import scipy.special
import scipy.stats
import torch
from torch import Tensor, nn
from torch.distributions import Distribution

import sparsevae as sv
from sparsevae.distributions.family import Family
from sparsevae.distributions.kl import divergence
from sparsevae.distributions.spike_slab import SpikeSlab, logit
from sparsevae.latent.bounds import SPREAD, Bounds, bounds, log_weights
from sparsevae.latent.model import LatentModel, Trace
from sparsevae.latent.objective import Objective, kl, nll
from sparsevae.latent.posteriors import GaussianPosterior, LogNormalPosterior, SlabPosterior, SpikeSlabPosterior
from sparsevae.latent.priors import FixedLogNormal, FixedSpikeSlab, StandardNormal
from sparsevae.likelihoods.gaussian import FixedGaussianData
from sparsevae.networks.dense import Linear, initialise, mlp
from sparsevae.sampling.draw import Draw
from sparsevae.sampling.gradients import ScaledSigmoid
from sparsevae.sampling.noise import Fresh, PerRow, row_keys

quiet = pytest.mark.filterwarnings("ignore:.*units.*:sparsevae.exceptions.SparsityWarning")

# -- a linear-Gaussian decoder with 6 units: log p(x) is a sum over 2^6 gate patterns --------------------------------

J, D, ALPHA, VARIANCE = 6, 5, 0.3, 1.0
PATTERNS = np.array(list(itertools.product([0, 1], repeat=J)))
_rng = np.random.default_rng(3)
W, SHIFT = _rng.normal(size=(D, J)) * 0.5, _rng.normal(size=D) * 0.3
ROWS = np.float32(
    (_rng.random((4, J)) < ALPHA) * _rng.normal(size=(4, J)) @ W.T + SHIFT + VARIANCE**0.5 * _rng.normal(size=(4, D))
)


def pattern_log_probs(x: np.ndarray) -> np.ndarray:
    """log P(g) + log p(x|g) for every pattern g, where x|g ~ N(shift, W_g W_g' + variance I); float64."""
    out = []
    for g in PATTERNS:
        prior = g.sum() * math.log(ALPHA) + (J - g.sum()) * math.log1p(-ALPHA)
        covariance = (W * g) @ (W * g).T + VARIANCE * np.eye(D)
        out.append(prior + scipy.stats.multivariate_normal(SHIFT, covariance).logpdf(np.float64(x)))
    return np.array(out)


EXACT = np.array([scipy.special.logsumexp(pattern_log_probs(x)) for x in ROWS])


def test_the_reference_itself() -> None:
    """The sum over patterns against plain Monte Carlo from the prior, so that the reference is not taken on trust."""
    rng = np.random.default_rng(0)
    z = (rng.random((400_000, J)) < ALPHA) * rng.normal(size=(400_000, J))
    for x, exact in zip(ROWS, EXACT, strict=True):
        w = np.exp(scipy.stats.norm.logpdf(x, z @ W.T + SHIFT, VARIANCE**0.5).sum(1))
        assert abs(w.mean() - math.exp(exact)) < 4 * w.std() / len(w) ** 0.5


class TruePosterior(nn.Module):
    """One of ROWS -> the factorised posterior nearest the truth: each unit's P(on | x), its mean and variance if on."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rows", torch.tensor(ROWS))
        self.register_buffer("raw", torch.tensor(np.stack([self.solve(np.float64(x)) for x in ROWS])).float())

    @staticmethod
    def solve(x: np.ndarray) -> np.ndarray:
        weight = scipy.special.softmax(pattern_log_probs(x))[:, None] * PATTERNS
        means, squares = np.zeros((len(PATTERNS), J)), np.zeros((len(PATTERNS), J))
        for k, g in enumerate(PATTERNS):
            covariance = np.linalg.inv(np.eye(J) + (W * g).T @ (W * g) / VARIANCE)
            means[k] = covariance @ (W * g).T @ (x - SHIFT) / VARIANCE
            squares[k] = np.diag(covariance) + means[k] ** 2
        on = weight.sum(0)
        mean, square = (weight * means).sum(0) / on, (weight * squares).sum(0) / on
        return np.concatenate([mean, np.log(square - mean**2), scipy.special.logit(on)])

    def forward(self, x: Tensor) -> Tensor:
        which = (x[:, None] - self.rows).abs().sum(-1).argmin(-1)
        return self.raw[which]


class Fixed(nn.Module):
    """x -> the same raw numbers for every row: (loc, log-variance, gate logits)."""

    def __init__(self, loc: float, scale: float, p_on: float) -> None:
        super().__init__()
        self.register_buffer("raw", torch.tensor([loc, 2 * math.log(scale), logit(p_on)]).repeat_interleave(J))

    def forward(self, x: Tensor) -> Tensor:
        return self.raw.expand(*x.shape[:-1], -1)


class Widened(SpikeSlabPosterior):
    """The given posterior with slabs of at least a given width."""

    def __init__(self, least: float) -> None:
        super().__init__(ScaledSigmoid())
        self.least = least

    def forward(self, raw: Tensor) -> SpikeSlab:
        q = super().forward(raw)
        assert isinstance(q, SpikeSlab)
        return SpikeSlab(q.logits, q.loc, q.scale.clamp_min(self.least), q.gate, validate_args=False)


def linear_gaussian(encoder: nn.Module, posterior: Family) -> LatentModel:
    decoder = Linear(J, D)
    with torch.no_grad():
        decoder.weight.copy_(torch.tensor(W))
        decoder.bias.copy_(torch.tensor(SHIFT))
    return LatentModel(encoder, posterior, decoder, FixedGaussianData(VARIANCE), FixedSpikeSlab(J, ALPHA)).eval()


WIDE = {  # posteriors whose slabs are no narrower than the prior's: weights have finite variance
    "the prior": (Fixed(0.0, 1.0, ALPHA), Widened(1.0)),
    "wider than the prior": (Fixed(0.2, 1.3, 0.4), Widened(1.0)),
    "near the truth, widened": (TruePosterior(), Widened(1.0)),
}
NARROW = {
    "near the truth": (TruePosterior(), Widened(0.0)),
    "narrow": (Fixed(0.1, 0.4, 0.5), Widened(0.0)),
    "sure of itself": (Fixed(0.0, 0.8, 0.98), Widened(0.0)),
    "nearly off": (Fixed(0.0, 1.0, 0.02), Widened(0.0)),
}


EACH = [
    pytest.param(name, marks=pytest.mark.slow if name in ("narrow", "nearly off") else []) for name in WIDE | NARROW
]


@functools.cache
def repeated(name: str, n_samples: int, repeats: int) -> Bounds:
    """Those of a model by its name, once for all tests."""
    return run_repeatedly(linear_gaussian(*(WIDE | NARROW)[name]), n_samples, repeats)


def run_repeatedly(model: LatentModel, n_samples: int, repeats: int) -> Bounds:
    """Bounds under `repeats` different seeds, each (repeats, rows)."""
    x = torch.tensor(ROWS)
    runs = [bounds(model, x, n_samples, seed=seed) for seed in range(repeats)]
    return Bounds(*(torch.stack(v) for v in zip(*runs, strict=True)))


@pytest.mark.parametrize("name", EACH)
def test_bounds_lie_below_the_likelihood_in_the_mean(name: str) -> None:
    for n_samples, repeats in ((1, 300), (30, 200), (1000, 40)):
        b = repeated(name, n_samples, repeats)
        for estimates in (b.elbo, b.importance):
            mean, error = estimates.mean(0), estimates.std(0) / repeats**0.5
            assert bool((mean <= torch.tensor(EXACT) + 3 * error).all())
        assert bool((b.elbo <= b.importance + 1e-9).all())


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == "the prior" else pytest.mark.slow) for name in WIDE]
)
def test_importance_bound_is_tight_at_ten_thousand_samples(name: str) -> None:
    b = repeated(name, 10_000, 40)
    gap = torch.tensor(EXACT) - b.importance.mean(0)
    assert float(gap.abs().max()) < 0.01
    assert bool((b.elbo.mean(0) < torch.tensor(EXACT) - 0.1).all())  # so that the claim above is not empty


@pytest.mark.parametrize("name", EACH)
def test_importance_bound_climbs_with_samples(name: str) -> None:
    most = (10_000, 40 if name in WIDE else 8)
    runs = [repeated(name, k, r).importance for k, r in ((1, 300), (30, 200), (1000, 40), most)]
    means, errors = [v.mean(0) for v in runs], [v.std(0) / len(v) ** 0.5 for v in runs]
    for i, k in enumerate((30, 1000, 10_000)):
        slack = 3 * (errors[i].square() + errors[i + 1].square()).sqrt()
        assert bool((means[i] < means[i + 1] + slack).all()), k
    assert bool((means[0] < means[-1]).all())
    assert float(means[0].sum()) + 3 * float(errors[0].norm()) < float(means[-1].sum())
    assert bool((torch.tensor(EXACT) - means[-1] < (torch.tensor(EXACT) - means[0]) / 3).all())


@pytest.mark.parametrize("name", ["wider than the prior", "near the truth", "narrow"])
def test_elbo_is_the_exact_one(name: str) -> None:
    """A linear decoder's ELBO is closed: log N(x; W E z + b) - sum_dj W_dj^2 Var z_j / (2 variance) - KL."""
    model = linear_gaussian(*(WIDE | NARROW)[name])
    x = torch.tensor(ROWS)
    q = model.encode(x)
    residual = x - (q.mean @ torch.tensor(W.T, dtype=torch.float32) + torch.tensor(SHIFT, dtype=torch.float32))
    spread = (q.variance @ torch.tensor(W.T**2, dtype=torch.float32)).sum(-1)
    expected = -0.5 * (D * math.log(2 * math.pi * VARIANCE) + (residual.square().sum(-1) + spread) / VARIANCE)
    exact = expected - divergence(q, model.prior(x, model.encode))
    runs = repeated(name, 2000, 20).elbo
    assert bool(((runs.mean(0) - exact).abs() < 4 * runs.std(0) / 20**0.5).all())


# -- the numbers that come with a bound ------------------------------------------------------------------------------


def test_standard_error_is_the_spread_over_repeats() -> None:
    b = repeated("wider than the prior", 400, 300)
    ratio = b.standard_error.square().mean(0).sqrt() / b.importance.std(0)
    assert bool(((ratio > 0.85) & (ratio < 1.15)).all()), ratio


def test_bounds_by_hand() -> None:
    """All four numbers from the log-weights themselves, over several chunks of draws."""
    model = linear_gaussian(*WIDE["wider than the prior"])
    x, k = torch.tensor(ROWS), 5000
    assert k * len(x) > 2 * 8192
    sample = torch.arange(1, k + 1)[:, None]
    keys = (row_keys(x) + sample * SPREAD).flatten()
    with torch.no_grad():
        trace = model(x.repeat(k, 1), Draw(PerRow(keys, 9), hard=True))
    z = trace.latents["z"].value.double()
    observed = scipy.stats.norm.logpdf(np.tile(ROWS, (k, 1)), z.numpy() @ W.T + SHIFT, VARIANCE**0.5).sum(1)
    latent = 0.0
    for d, sign in ((trace.latents["z"].p, 1), (trace.latents["z"].q, -1)):
        on = d.p_on.double().numpy()
        density = scipy.stats.norm.logpdf(z.numpy(), d.loc.double().numpy(), d.scale.double().numpy())
        latent = latent + sign * np.where(z.numpy() == 0, np.log1p(-on), np.log(on) + density).sum(1)
    lw = (observed + latent).reshape(k, len(x))
    w = np.exp(lw)
    b = bounds(model, x, k, seed=9)
    assert b.elbo.numpy() == pytest.approx(lw.mean(0), abs=1e-4)
    assert b.importance.numpy() == pytest.approx(np.log(w.mean(0)), abs=1e-4)
    assert b.effective_samples.numpy() == pytest.approx(w.sum(0) ** 2 / (w**2).sum(0), rel=1e-3)
    assert b.standard_error.numpy() == pytest.approx(w.std(0) / w.mean(0) / k**0.5, rel=1e-3)


def test_equal_weights_have_no_error() -> None:
    """A posterior equal to the prior and a decoder deaf to z: every draw weighs the same, and the bound is exact."""
    model = linear_gaussian(*WIDE["the prior"])
    with torch.no_grad():
        model.decoder.weight.zero_()
    b = bounds(model, torch.tensor(ROWS), 50)
    exact = scipy.stats.norm.logpdf(ROWS, SHIFT, VARIANCE**0.5).sum(1)
    assert b.elbo.numpy() == pytest.approx(exact, abs=1e-4)
    assert b.importance.numpy() == pytest.approx(exact, abs=1e-4)
    assert b.effective_samples.numpy() == pytest.approx(np.full(4, 50.0), rel=1e-4)
    assert float(b.standard_error.max()) < 1e-2


def test_a_row_s_bound_does_not_depend_on_its_neighbours() -> None:
    model = linear_gaussian(*NARROW["near the truth"])
    x = torch.tensor(ROWS)
    together = bounds(model, x, 3000, seed=2)
    backwards = bounds(model, x.flip(0), 3000, seed=2)
    for i in range(len(x)):
        alone = bounds(model, x[i : i + 1], 3000, seed=2)
        for a, b, c in zip(together, backwards, alone, strict=True):
            assert float(a[i]) == pytest.approx(float(b[len(x) - 1 - i]), rel=1e-4)
            assert float(a[i]) == pytest.approx(float(c), rel=1e-4)
    assert not torch.allclose(together.elbo, bounds(model, x, 3000, seed=3).elbo, atol=1e-4)


STORIES = {
    "vsc": sv.VSC(4, alpha=0.3),
    "pseudo-inputs": sv.PseudoVSC(4, pseudo_inputs=3),
    "hierarchical": sv.HSVAE(4),
    "compared": sv.MAT(4),
    "counts": sv.SDLGM(6, cap=2, features="counts"),
    "distinct": sv.SDLGM(6, cap=2, features="distinct"),
}


@pytest.mark.filterwarnings("ignore::sparsevae.exceptions.SparsityWarning")
@pytest.mark.parametrize("name", STORIES)
def test_a_bound_reads_each_row_once_and_is_the_story_of_repeated_rows(name: str) -> None:
    """However many draws are taken, and at once: the numbers are those of one trace per copy of a row."""
    est = STORIES[name].set_params(hidden=(8,), training=sv.Training(steps=20, batch_size=20, verbose=0))
    model = est.fit(small_data()).model_
    x = est.scaling_(torch.tensor(small_data()[:7]))
    keys = (row_keys(x) + torch.arange(1, 31)[:, None] * SPREAD).flatten()
    with torch.no_grad():
        lw = log_weights(model(x.repeat(30, 1), Draw(PerRow(keys, 5), hard=True))).unflatten(-1, (30, 7)).double()
    seen: list[int] = []
    hook = model.encoder.register_forward_pre_hook(lambda _, rows: seen.append(len(rows[0])))
    for at_once in (1, 21, 8192):  # one draw of every row at a time, three, all
        seen.clear()
        b = bounds(model, x, 30, seed=5, at_once=at_once)
        assert seen.count(7) == 1
        assert max(seen) == 7  # pseudo-inputs, three rows, are read by the same encoder
        torch.testing.assert_close(b.elbo, lw.mean(0), rtol=1e-6, atol=1e-5)
        torch.testing.assert_close(b.importance, torch.logsumexp(lw, 0) - math.log(30), rtol=1e-6, atol=1e-5)
    hook.remove()


def test_a_story_in_forward_is_refused() -> None:
    """Bounds would pass it by."""
    with pytest.raises(TypeError, match=r"Other overrides `forward`.*trace\(batch, raw, draw, copies=1\)"):

        class Other(LatentModel):
            def forward(self, x: Tensor, draw: Draw) -> Trace:
                return super().forward(x, draw)


def test_given_noise_is_used() -> None:
    model = linear_gaussian(*WIDE["the prior"])
    x = torch.tensor(ROWS)
    a, b, c = (bounds(model, x, 5000, noise=Fresh(torch.Generator().manual_seed(s))) for s in (1, 1, 2))
    assert torch.equal(a.elbo, b.elbo)
    assert not torch.equal(a.elbo, c.elbo)
    assert bool(((a.importance - torch.tensor(EXACT)).abs() < 5 * a.standard_error).all())


def test_bounds_refuse_relaxed_draws() -> None:
    model = linear_gaussian(*WIDE["the prior"])
    x = torch.tensor(ROWS)
    trace = model(x, Draw(PerRow(row_keys(x), 0), hard=False))
    with pytest.raises(ValueError, match="needs hard draws"):
        log_weights(trace)


def test_bounds_leave_no_graph_and_no_trace_in_the_random_state() -> None:
    model = linear_gaussian(*WIDE["the prior"])
    before = torch.get_rng_state()
    b = bounds(model, torch.tensor(ROWS), 3)
    assert not any(v.requires_grad for v in b)
    assert all(v.dtype == torch.float64 for v in b)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_narrow_slab_may_exceed_the_likelihood_once_but_says_so() -> None:
    """Weights of a slab much narrower than the prior's have no variance: estimates scatter, and few samples count."""
    b = run_repeatedly(linear_gaussian(Fixed(0.0, 0.1, 0.5), Widened(0.0)), 1000, 20)
    assert float(b.effective_samples.median()) < 50
    assert bool((b.importance.mean(0) <= torch.tensor(EXACT) + 3 * b.importance.std(0) / 20**0.5).all())


# -- reductions ------------------------------------------------------------------------------------------------------


def small_data() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(60, 5)).astype(np.float32) * np.float32([1, 2, 3, 4, 5]) + 1


@quiet
@pytest.mark.parametrize("likelihood", ["gaussian", "fixed-gaussian", "bernoulli"])
def test_vsc_at_alpha_one_is_the_vae(likelihood: str) -> None:
    """The same weights and noise give the same bounds; and the same training gives the same weights."""
    X = (small_data() > 0).astype(np.float32) if likelihood == "bernoulli" else small_data()
    settings = {"hidden": (16,), "likelihood": likelihood, "training": sv.Training(steps=25, batch_size=20, verbose=0)}
    vae, vsc = sv.VAE(4, **settings).fit(X), sv.VSC(4, alpha=1, skip=False, **settings).fit(X)
    trained = vsc.model_.state_dict()
    for name, value in vae.model_.state_dict().items():
        assert torch.allclose(value, trained[name], atol=1e-5), name
    for term in ("loss", "nll_x", "kl_z"):
        assert vsc.history_.column(term) == pytest.approx(vae.history_.column(term), rel=1e-5)

    vsc.model_.load_state_dict(vae.model_.state_dict())
    np.testing.assert_allclose(vsc.score_samples(X), vae.score_samples(X), rtol=1e-5)
    ours, theirs = vsc.importance_bound(X, n_samples=50), vae.importance_bound(X, n_samples=50)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)
    np.testing.assert_array_equal(vsc.transform(X).toarray(), vae.transform(X))
    np.testing.assert_array_equal(vsc.sample(5), vae.sample(5))


def gated_twin(vae: LatentModel, p_on: float) -> LatentModel:
    """The VAE's networks with a gate head of constant p_on, and the prior that goes with it."""
    n = vae.prior.loc.shape[-1]
    head = vae.encoder[-1]
    wide = Linear(head.weight.shape[1], 3 * n)
    with torch.no_grad():
        wide.weight.copy_(torch.cat([head.weight, torch.zeros(n, head.weight.shape[1])]))
        wide.bias.copy_(torch.cat([head.bias, torch.full((n,), logit(p_on))]))
    encoder = nn.Sequential(*vae.encoder[:-1], wide)
    posterior = SpikeSlabPosterior(ScaledSigmoid(200.0))
    return LatentModel(encoder, posterior, vae.decoder, vae.likelihood, FixedSpikeSlab(n, p_on))


def test_alpha_and_p_on_to_one_converge_to_the_vae() -> None:
    n = 4
    vae = LatentModel(
        mlp([5, 8, 2 * n]), GaussianPosterior(), mlp([n, 8, 5]), FixedGaussianData(0.5), StandardNormal(n)
    )
    initialise(vae, torch.Generator().manual_seed(0))
    x = torch.tensor(small_data()[:10])
    wanted = bounds(vae, x, 200, seed=1)
    gaps = [
        float((bounds(gated_twin(vae, 1 - 10.0**-k), x, 200, seed=1).elbo - wanted.elbo).abs().mean())
        for k in (1, 2, 3, 6)
    ]
    assert gaps[0] > 1e-2
    assert all(b < a / 4 for a, b in itertools.pairwise(gaps))
    assert gaps[-1] < 1e-4
    never_off = LatentModel(vae.encoder, SlabPosterior(), vae.decoder, vae.likelihood, FixedSpikeSlab(n, 1.0))
    got = bounds(never_off, x, 200, seed=1)
    assert torch.allclose(got.elbo, wanted.elbo, rtol=1e-5)
    assert torch.allclose(got.importance, wanted.importance, rtol=1e-5)


def test_training_at_alpha_one_meets_no_nan() -> None:
    """The relaxed objective of a never-off model, under anomaly detection."""
    n = 4
    model = LatentModel(
        mlp([5, 8, 2 * n]), SlabPosterior(), mlp([n, 8, 5]), FixedGaussianData(0.5), FixedSpikeSlab(n, 1.0)
    )
    initialise(model, torch.Generator().manual_seed(0))
    x = torch.tensor(small_data())
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Anomaly Detection has been enabled")
        anomaly = torch.autograd.detect_anomaly(check_nan=True)
    for hard in (False, True):
        with anomaly:
            loss, terms = Objective(nll, kl)(model(x, Draw(PerRow(row_keys(x), 0), hard=hard)))
            loss.backward()
        assert all(math.isfinite(float(v.detach())) for v in terms.values())
    assert all(bool(torch.isfinite(p.grad).all()) for p in model.parameters())


@quiet
def test_beta_weighs_training_and_never_a_bound() -> None:
    X = small_data()
    settings = {"hidden": (8,), "training": sv.Training(steps=20, batch_size=20, verbose=0)}
    beta, vae = sv.BetaVAE(3, beta=7.0, **settings).fit(X), sv.VAE(3, **settings).fit(X)
    row = beta.history_[-1]
    assert row["loss"] == pytest.approx(row["nll_x"] + 7 * row["kl_z"], rel=1e-5)
    assert not np.allclose(beta.score_samples(X), vae.score_samples(X))
    vae.model_.load_state_dict(beta.model_.state_dict())
    np.testing.assert_array_equal(beta.score_samples(X), vae.score_samples(X))
    np.testing.assert_array_equal(
        beta.importance_bound(X, n_samples=5).bound, vae.importance_bound(X, n_samples=5).bound
    )


def test_a_posterior_in_encode_alone_is_refused() -> None:
    """The trace, and so training and bounds, would have another posterior than the codes."""
    with pytest.raises(TypeError, match=r"Other overrides `encode`.*posterior_from\(raw, copies=1\)"):

        class Other(LatentModel):
            def encode(self, x: Tensor) -> Distribution:
                return super().encode(x)


# -- log-normal slabs: two units, log p(x) by quadrature -----------------------------------------------------------


class FixedCode(nn.Module):
    """x -> the raw numbers of (mean, log-variance of log z, gate logit) for two units, the same for every row."""

    def __init__(self, mean: float, log_variance: float, p_on: float) -> None:
        super().__init__()
        r = math.log(math.expm1(mean))
        self.register_buffer("raw", torch.tensor([r, log_variance, logit(p_on)]).repeat_interleave(2))

    def forward(self, x: Tensor) -> Tensor:
        return self.raw.expand(*x.shape[:-1], -1)


def log_normal_likelihood(x: np.ndarray) -> float:
    """log p(x) with the first two columns of W: each pattern of gates by quadrature over log z ~ N(-1, 1)."""
    y, h = np.linspace(-9.0, 7.0, 321, retstep=True)
    grid = np.stack(np.meshgrid(y, y, indexing="ij"), -1).reshape(-1, 2)
    weight = np.exp(scipy.stats.norm.logpdf(grid, -1.0, 1.0).sum(1)) * h**2
    found = []
    for g in itertools.product([0, 1], repeat=2):
        prior = sum(g) * math.log(ALPHA) + (2 - sum(g)) * math.log1p(-ALPHA)
        error = x - (np.exp(grid) * g) @ W[:, :2].T - SHIFT
        density = scipy.stats.norm.logpdf(error, 0.0, VARIANCE**0.5).sum(1)
        found.append(prior + scipy.special.logsumexp(density, b=weight))
    return float(scipy.special.logsumexp(found))


@pytest.mark.parametrize(
    ("mean", "log_variance", "p_on"), [(math.exp(-1), 0.0, ALPHA), (0.6, 0.2, 0.5), (0.8, -2.0, 0.6)]
)
def test_bounds_with_log_normal_slabs_lie_below_the_likelihood(mean: float, log_variance: float, p_on: float) -> None:
    """In the mean, and with the prior as posterior the importance bound is tight."""
    decoder = Linear(2, D)
    with torch.no_grad():
        decoder.weight.copy_(torch.tensor(W[:, :2]))
        decoder.bias.copy_(torch.tensor(SHIFT))
    encoder, posterior = FixedCode(mean, log_variance, p_on), LogNormalPosterior(ScaledSigmoid())
    model = LatentModel(encoder, posterior, decoder, FixedGaussianData(VARIANCE), FixedLogNormal(2, ALPHA)).eval()
    exact = torch.tensor([log_normal_likelihood(np.float64(x)) for x in ROWS])
    b = run_repeatedly(model, 100, 100)
    for estimates in (b.elbo, b.importance):
        assert bool((estimates.mean(0) <= exact + 3 * estimates.std(0) / 10).all())
    if p_on == ALPHA:
        assert float((run_repeatedly(model, 10_000, 5).importance.mean(0) - exact).abs().max()) < 0.01
