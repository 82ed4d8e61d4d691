"""Capacity, total correlation, MMD and aggregate sparsity: against enumeration, quadrature and numbers by hand."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from torch import Tensor

from sparsevae.distributions.gaussian import normal
from sparsevae.distributions.kl import divergence
from sparsevae.distributions.mixtures import Selected, TwoNormals
from sparsevae.distributions.spike_slab import SpikeSlab, logit
from sparsevae.latent.model import Site, Trace
from sparsevae.latent.objective import Objective, kl
from sparsevae.latent.terms import (
    TC_ESTIMATORS,
    AggregateSparsity,
    Capacity,
    mmd,
    stratified,
    total_correlation,
    weighted,
)
from sparsevae.sampling.draw import Draw
from sparsevae.sampling.noise import Fresh
from sparsevae.training.knobs import knobs


def trace_of(loc: Tensor, scale: Tensor, z: Tensor, reference: Tensor | None = None) -> Trace:
    """Gaussian posteriors (..., M, J), their draws, and the standard normal prior."""
    standard = normal(loc.new_zeros(loc.shape[-1]), loc.new_ones(loc.shape[-1]))
    return Trace({"z": Site(normal(loc, scale), standard, z, reference)}, {}, False)


# -- total correlation: N = 8 rows, batches of M = 4, two units ------------------------------------------------------

N, M, D = 8, 4, 2
LOC = torch.tensor(
    [
        [0.35, 0.29],
        [-0.53, -1.68],
        [0.02, 0.52],
        [1.04, 0.58],
        [2.23, 2.93],
        [-0.23, -0.28],
        [0.96, 0.67],
        [0.22, 0.85],
    ],
    dtype=torch.float64,
)
SCALE = torch.tensor(
    [[0.61, 0.36], [0.37, 0.36], [0.42, 0.43], [0.38, 0.54], [0.43, 0.43], [0.24, 0.28], [0.34, 0.47], [0.33, 0.68]],
    dtype=torch.float64,
)
_nodes, _node_weights = np.polynomial.hermite_e.hermegauss(30)
EPS = torch.tensor(list(itertools.product(_nodes, _nodes)))  # (900, 2): quadrature over the noise of both units
WEIGHTS = torch.tensor(np.outer(_node_weights, _node_weights).ravel() / _node_weights.sum() ** 2)


def truth() -> dict[str, float]:
    """MI, TC and the units' KLs of the mixture over all N rows, by Gauss-Hermite quadrature in numpy alone."""
    z = (LOC[:, None] + SCALE[:, None] * EPS).numpy()  # (N, 900, 2)
    loc, scale = LOC.numpy(), SCALE.numpy()
    pairs = -0.5 * ((z[:, :, None] - loc) / scale) ** 2 - np.log(scale) - 0.5 * math.log(2 * math.pi)
    own = np.stack([pairs[n, :, n].sum(-1) for n in range(N)])
    joint = logsumexp(pairs.sum(-1), -1) - math.log(N)
    product = (logsumexp(pairs, -2) - math.log(N)).sum(-1)
    prior = (-0.5 * z**2 - 0.5 * math.log(2 * math.pi)).sum(-1)
    w = WEIGHTS.numpy() / N
    return {
        "mi": float(((own - joint) * w).sum()),
        "tc": float(((joint - product) * w).sum()),
        "dim_kl": float(((product - prior) * w).sum()),
    }


def expected(estimator: str) -> dict[str, float]:
    """The estimator's mean over all batches of M rows and over the noise: batches and noise are members."""
    batches = torch.tensor(list(itertools.combinations(range(N), M)))
    loc, scale = LOC[batches][:, None], SCALE[batches][:, None]  # (70, 1, M, D)
    shape = (len(batches), len(EPS), M, D)
    z = loc + scale * EPS[:, None]
    terms = total_correlation(N, TC_ESTIMATORS[estimator])(trace_of(loc.expand(shape), scale.expand(shape), z))
    assert all(v.shape == shape[:-1] for v in terms.values())
    return {k: float((v.mean((0, -1)) * WEIGHTS).sum()) for k, v in terms.items()}


def test_the_weighted_estimator_is_biased_as_published() -> None:
    """With N = 8, M = 4, D = 2 the true (MI, TC) is (1.24, .49), and it reads (3.01, 2.50)."""
    right, read = truth(), expected("weighted")
    assert (right["mi"], right["tc"]) == pytest.approx((1.24, 0.49), abs=5e-3)
    assert (read["mi"], read["tc"]) == pytest.approx((3.01, 2.50), abs=5e-3)
    assert math.log(M) < read["mi"] - right["mi"] < math.log(N)


def test_the_constant_inside_the_weighted_total_correlation() -> None:
    """TC holds (D - 1) log(N M), MI holds log(N M): the rest does not know N."""

    def bare(n_rows: int, batch: int, like: Tensor) -> Tensor:
        return like.new_zeros((batch, batch))

    t = trace_of(LOC[:M], SCALE[:M], LOC[:M] + SCALE[:M] * EPS[::250][:M])
    ours, plain = total_correlation(N, weighted)(t), total_correlation(N, bare)(t)
    assert torch.allclose(ours["mi"] - plain["mi"], torch.tensor(math.log(N * M)).double())
    assert torch.allclose(ours["tc"] - plain["tc"], torch.tensor((D - 1) * math.log(N * M)).double())
    assert torch.allclose(ours["dim_kl"] - plain["dim_kl"], torch.tensor(-D * math.log(N * M)).double())


@pytest.mark.parametrize(("apart", "bias"), [(0.0, math.log(N)), (1e3, math.log(M))])
def test_the_weighted_bias_of_mi_at_both_ends(apart: float, bias: float) -> None:
    """Rows that share one posterior: log N too much; rows that never meet: log M."""
    loc = apart * torch.arange(N, dtype=torch.float64)[:M, None].expand(M, D)
    z = loc + EPS[::250][:M]
    read = total_correlation(N, weighted)(trace_of(loc, torch.ones_like(loc), z))["mi"]
    assert torch.allclose(read - (math.log(N) if apart else 0.0), torch.tensor(bias, dtype=torch.float64))


def test_the_stratified_estimate_of_q_is_unbiased_by_enumeration() -> None:
    """For z of row n and all orders of M - 1 other rows, the mean of the estimate (not of its log) is q(z)."""
    for n in range(N):
        others = torch.tensor(list(itertools.permutations([k for k in range(N) if k != n], M - 1)))
        batches = torch.cat([torch.full((len(others), 1), n), others], 1)  # (210, M), row n first
        loc, scale = LOC[batches], SCALE[batches]
        z = loc + scale * torch.tensor([0.7, -1.1], dtype=torch.float64)
        t = trace_of(loc, scale, z)
        estimates = {}
        for name, log_weights in TC_ESTIMATORS.items():
            terms = total_correlation(N, log_weights)(t)
            estimates[name] = (t.latents["z"].q.log_prob(z) - terms["mi"])[:, 0].exp().mean()
        exact = normal(LOC, SCALE).log_prob(z[0, 0]).exp().mean()
        assert float(estimates["stratified"]) == pytest.approx(float(exact), rel=1e-12)
        assert float(estimates["weighted"]) < 0.5 * float(exact)


def test_the_stratified_estimator_errs_by_jensen_alone() -> None:
    """log of an unbiased estimate lies below: MI is read too high, by much less than the weighted one's bias."""
    right, read, biased = truth(), expected("stratified"), expected("weighted")
    assert right["mi"] < read["mi"] < right["mi"] + 0.5 * (biased["mi"] - right["mi"])
    assert abs(read["tc"] - right["tc"]) < 0.25 * abs(biased["tc"] - right["tc"])


@pytest.mark.parametrize("batch", [1, 2, 4, 8])
def test_stratified_weights_by_hand(batch: int) -> None:
    """1/N for the own row, (N - M')/(N M') for one other, 1/M' for the rest, M' = M - 1; they sum to 1."""
    w = stratified(N, batch, LOC).exp()
    assert w.shape == (batch, batch)
    if batch == 1:
        assert float(w) == pytest.approx(1 / N)
        return
    others = batch - 1
    assert w.sum(-1).tolist() == pytest.approx([1.0] * batch)
    assert w.diagonal().tolist() == pytest.approx([1 / N] * batch)
    assert w[0].tolist() == pytest.approx([1 / N, (N - others) / (N * others), *[1 / others] * (batch - 2)])


@pytest.mark.parametrize("estimator", TC_ESTIMATORS)
def test_the_three_parts_are_a_one_sample_kl_and_their_mean_is_the_kl(estimator: str) -> None:
    """Weights (1, 1, 1): log q(z|x) - log p(z) exactly, so that the mean over noise, and its gradient, are the KL's."""
    loc, scale = (t[:M].clone().requires_grad_() for t in (LOC, SCALE))
    shape = (len(EPS), M, D)
    z = loc + scale * EPS[:, None]
    t = trace_of(loc.expand(shape), scale.expand(shape), z)
    objective = Objective(total_correlation(N, TC_ESTIMATORS[estimator]), weights={"mi": 1.0, "tc": 1.0, "dim_kl": 1.0})
    loss, parts = objective(t)
    one_sample = (t.latents["z"].q.log_prob(z) - t.latents["z"].p.log_prob(z)).mean(-1)
    assert torch.allclose(loss, one_sample, rtol=1e-12)
    assert {k: v.shape for k, v in parts.items()} == dict.fromkeys(("mi", "tc", "dim_kl"), (len(EPS),))
    mean = (loss * WEIGHTS).sum()
    closed = divergence(normal(loc, scale), t.latents["z"].p).mean()
    assert float(mean.detach()) == pytest.approx(float(closed.detach()), rel=1e-10)
    for a, b in zip(torch.autograd.grad(mean, (loc, scale)), torch.autograd.grad(closed, (loc, scale)), strict=True):
        assert torch.allclose(a, b, rtol=1e-9)


def test_one_unit_has_no_total_correlation() -> None:
    t = trace_of(LOC[:, :1], SCALE[:, :1], LOC[:, :1] + 0.3)
    for log_weights in TC_ESTIMATORS.values():
        assert torch.equal(total_correlation(N, log_weights)(t)["tc"], torch.zeros(N).double())


def test_members_have_total_correlations_of_their_own() -> None:
    loc, scale = torch.stack([LOC[:M], LOC[M:]]), torch.stack([SCALE[:M], SCALE[M:]])
    z = loc + 0.5 * scale
    together = total_correlation(N, stratified)(trace_of(loc, scale, z))
    for m in range(2):
        alone = total_correlation(N, stratified)(trace_of(loc[m], scale[m], z[m]))
        assert all(torch.allclose(together[k][m], v) for k, v in alone.items())


def spike_slab_trace() -> Trace:
    q = SpikeSlab(torch.zeros(2, 3), torch.zeros(2, 3), torch.ones(2, 3))
    return Trace({"z": Site(q, SpikeSlab(torch.zeros(3), torch.zeros(3), torch.ones(3)), torch.ones(2, 3))}, {}, False)


def test_terms_refuse_what_they_do_not_measure() -> None:
    with pytest.raises(TypeError, match="estimated for Gaussian posteriors, got SpikeSlab"):
        total_correlation(N, weighted)(spike_slab_trace())
    with pytest.raises(TypeError, match="aggregate sparsity needs a prior of pseudo-inputs, got a SpikeSlab"):
        AggregateSparsity(0.1)(spike_slab_trace())
    with pytest.raises(ValueError, match="compares with a draw of the prior"):
        mmd(spike_slab_trace())


# -- capacity --------------------------------------------------------------------------------------------------------


def means_of(*kls: float) -> Tensor:
    """One unit of scale 1, whose KL is loc^2/2: the locations that give these KLs."""
    return torch.tensor([[math.sqrt(2 * k)] for k in kls], dtype=torch.float64)


@pytest.mark.parametrize(("nats", "wanted"), [(0.0, 2.0), (2.0, 0.0), (5.0, 3.0), (1.5, 0.5)])
def test_capacity_is_of_the_batch_mean(nats: float, wanted: float) -> None:
    """KLs of 1 and 3 nats have mean 2: |2 - C|, never the mean of |1 - C| and |3 - C|, which is 1 at C = 2."""
    loc = means_of(1.0, 3.0)
    terms = Capacity(nats)(trace_of(loc, torch.ones_like(loc), loc))
    assert terms["kl_z"].tolist() == pytest.approx([1.0, 3.0])
    assert terms["capacity_gap"].tolist() == pytest.approx([wanted])


def test_at_capacity_zero_the_term_and_its_gradient_are_the_kl_s() -> None:
    loc = means_of(1.0, 3.0).requires_grad_()
    t = trace_of(loc, 0.7 * torch.ones_like(loc), loc)
    ours, _ = Objective(Capacity(0.0), weights={"kl_z": 0.0, "capacity_gap": 4.0})(t)
    theirs, _ = Objective(kl, weights={"kl_z": 4.0})(t)
    assert float(ours.detach()) == pytest.approx(float(theirs.detach()), rel=1e-12)
    a, b = torch.autograd.grad(ours, loc), torch.autograd.grad(theirs, loc)
    assert torch.allclose(a[0], b[0], rtol=1e-12)


def test_below_capacity_the_pull_is_upwards() -> None:
    loc = means_of(1.0, 3.0).requires_grad_()
    term = Capacity(5.0)(trace_of(loc, torch.ones_like(loc), loc))["capacity_gap"].sum()
    (gradient,) = torch.autograd.grad(term, loc)
    assert torch.allclose(gradient, -loc.detach() / 2)  # minus that of the mean KL


def test_capacity_is_a_knob_and_may_differ_between_members() -> None:
    term = Capacity(5.0)
    objective = Objective(term, weights={"kl_z": 0.0, "capacity_gap": 1.0})
    knob = knobs(torch.nn.Identity(), objective)
    assert set(knob) == {"kl_z", "capacity_gap", "capacity"}
    loc = means_of(1.0, 3.0)
    (capacity,) = knob["capacity"]
    capacity.fill_(3.5)
    assert float(objective(trace_of(loc, torch.ones_like(loc), loc))[0]) == pytest.approx(1.5)
    assert objective.state_dict() == {}
    term.capacity = torch.tensor([0.0, 7.0], dtype=torch.float64)
    both = torch.stack([loc, 2 * loc])  # mean KLs 2 and 8
    loss, _ = objective(trace_of(both, torch.ones_like(both), both))
    assert loss.tolist() == pytest.approx([2.0, 1.0])


# -- maximum mean discrepancy ----------------------------------------------------------------------------------------

S = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


def kernels(square: float) -> float:
    return sum(2 * s / (2 * s + square) for s in S)


def compared(z: Tensor, reference: Tensor) -> Tensor:
    return mmd(trace_of(torch.zeros_like(z), torch.ones_like(z), z, reference))["mmd"]


def test_mmd_by_hand() -> None:
    """z = (0, 1) and r = (0, 2): k(1) + k(4) - (k(0) + k(4) + 2 k(1))/2, with k(0) = 6; a second unit adds its own."""
    z, r = torch.tensor([[0.0], [1.0]]), torch.tensor([[0.0], [2.0]])
    wanted = kernels(1) + kernels(4) - (6 + kernels(4) + 2 * kernels(1)) / 2
    assert compared(z, r).tolist() == pytest.approx([wanted], rel=1e-6)
    other, other_r = torch.tensor([[3.0], [3.0]]), torch.tensor([[3.0], [4.0]])
    more = 6 + kernels(1) - (2 * 6 + 2 * kernels(1)) / 2
    both = compared(torch.cat([z, other], 1), torch.cat([r, other_r], 1))
    assert both.tolist() == pytest.approx([wanted + more], rel=1e-6)


def normals(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_equal_distributions_have_no_mmd_in_the_mean() -> None:
    each = compared(normals(200, 60, 5, seed=0), normals(200, 60, 5, seed=1)).squeeze(-1)
    assert each.shape == (200,)
    assert abs(float(each.mean())) < 4 * float(each.std()) / 200**0.5
    assert float(each.min()) < 0  # unbiased, so that it may fall below zero


def test_a_narrow_distribution_has_a_large_mmd() -> None:
    """N(0, 1) against N(0, .2^2) in five dimensions: 4.709 by quadrature, and in the mean over draws.

    A single batch of 500 has a deviation of .12 around that.
    """
    d = np.linspace(-12, 12, 100_001)
    w = np.exp(-0.5 * d**2) / np.exp(-0.5 * d**2).sum()

    def mean_kernel(variance: float) -> float:
        return float(sum((w * 2 * s / (2 * s + variance * d**2)).sum() for s in S))

    exact = 5 * (mean_kernel(2.0) + mean_kernel(0.08) - 2 * mean_kernel(1.04))
    assert exact == pytest.approx(4.709, abs=5e-4)
    each = compared(normals(60, 150, 5, seed=2), 0.2 * normals(60, 150, 5, seed=3)).squeeze(-1)
    assert abs(float(each.mean()) - exact) < 4 * float(each.std()) / 60**0.5


def test_the_gradient_of_the_mmd_passes_to_the_codes_alone() -> None:
    z = normals(20, 2, seed=4).requires_grad_()
    p = TwoNormals(torch.tensor(0.8, dtype=torch.float64), 0.05, 2)
    reference = Draw(Fresh(torch.Generator().manual_seed(5)), hard=False)(p.expand((20,)))
    assert not reference.requires_grad
    term = compared(z, reference)
    (gradient,) = torch.autograd.grad(term.sum(), z)
    assert bool((gradient != 0).all())
    assert torch.autograd.gradcheck(lambda v: compared(v, reference), z)
    closer = compared((z - 0.5 * gradient).detach(), reference)
    assert float(closer) < float(term.detach())


def test_the_mmd_is_one_number_a_batch_and_a_member() -> None:
    z, r = normals(3, 10, 4, seed=6), normals(3, 10, 4, seed=7)
    together = compared(z, r)
    assert together.shape == (3, 1)
    assert torch.allclose(together, torch.stack([compared(z[m], r[m]) for m in range(3)]))


# -- aggregate sparsity ----------------------------------------------------------------------------------------------


def selected(choice: list[list[float]], p_on: list[list[float]]) -> Trace:
    c = torch.tensor(choice, dtype=torch.float64)
    logits = torch.tensor([[logit(p) for p in row] for row in p_on], dtype=torch.float64).requires_grad_()
    units, inputs = logits.shape[-1], len(p_on)
    components = SpikeSlab(logits, torch.zeros(inputs, units).double(), torch.ones(inputs, units).double())
    p = Selected(components, torch.full((inputs,), 1 / inputs).double(), c, charged=True)
    q = SpikeSlab(*(torch.zeros(len(choice), units).double() for _ in range(2)), torch.ones(1).double())
    return Trace({"z": Site(q, p, q.mean)}, {}, False)


def bernoulli(g: float, a: float) -> float:
    return g * math.log(g / a) + (1 - g) * math.log((1 - g) / (1 - a))


def test_aggregate_sparsity_by_hand() -> None:
    """Inputs on .3 and .1 of the time: a row that takes one sees .3, half and half sees .2; J = 2 times KL_B."""
    t = selected([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]], [[0.5, 0.1], [0.05, 0.15]])
    got = AggregateSparsity(0.1)(t)["sparsity"]
    assert got.tolist() == pytest.approx([2 * bernoulli(0.3, 0.1), 2 * bernoulli(0.2, 0.1), 0.0], abs=1e-12)
    # weights that are not normalised, as the paper's, count by their shares
    tiny = selected([[2e-12, 2e-12]], [[0.5, 0.1], [0.05, 0.15]])
    assert AggregateSparsity(0.1)(tiny)["sparsity"].tolist() == pytest.approx([2 * bernoulli(0.2, 0.1)])


def test_aggregate_sparsity_pulls_gates_to_alpha() -> None:
    for p_on, sign in ((0.3, 1), (0.02, -1)):
        t = selected([[1.0]], [[p_on, p_on]])
        components = t.latents["z"].p.components
        (gradient,) = torch.autograd.grad(AggregateSparsity(0.1)(t)["sparsity"].sum(), components.logits)
        assert bool((gradient.sign() == sign).all())


@pytest.mark.parametrize("size", [-200.0, 200.0])
def test_gates_that_are_certain_have_a_finite_aggregate_gradient(size: float) -> None:
    logits = torch.full((1, 3), size, requires_grad=True)
    components = SpikeSlab(logits, torch.zeros(1, 3), torch.ones(1, 3))
    p = Selected(components, torch.ones(1), torch.ones(2, 1), charged=True)
    q = SpikeSlab(torch.zeros(2, 3), torch.zeros(2, 3), torch.ones(2, 3))
    cost = AggregateSparsity(0.1)(Trace({"z": Site(q, p, q.mean)}, {}, False))["sparsity"]
    (gradient,) = torch.autograd.grad(cost.sum(), logits)
    assert torch.equal(gradient, torch.zeros(1, 3))
    assert cost.tolist() == pytest.approx([-3 * math.log(0.1 if size > 0 else 0.9)] * 2, rel=1e-5)


def test_the_unreachable_alpha_of_the_authors() -> None:
    """Their gates end at sigmoid(-5) = .0067; at alpha = .003, J = 60, .10 nat remain."""
    least = 1 / (1 + math.exp(5))
    t = selected([[1.0]], [[least] * 60])
    assert float(AggregateSparsity(0.003)(t)["sparsity"].detach()) == pytest.approx(0.10, abs=5e-3)
