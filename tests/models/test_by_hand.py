"""Models of real-valued codes with weights set by hand: codes, reconstructions, KLs and losses by plain arithmetic."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from by_hand import (
    GAUSSIAN,
    LINEAR,
    Noise,
    Pass,
    X,
    close,
    fitted,
    inverse_softplus,
    kl_bit,
    kl_normal,
    log_normal,
    log_normals,
    log_variance,
    logistic,
    logit,
    mean,
    set_linear,
)

import sparsevae as sv

# -- dense codes ----------------------------------------------------------------------------------------------------


def test_vae_is_two_networks_and_the_kl_to_a_standard_normal() -> None:
    """Encoder relu(x1 + x2 + x3, x1 - x2 + 2 x3), then mu = (h1/2 - 1/2, h2/3), sigma = (1/2, 1)."""
    rows = [[1.0, 2.0, -1.0], [0.0, 1.0, 2.0]]
    est = sv.VAE(2, **{**GAUSSIAN, "hidden": (2,), "variance": 0.5})
    est = fitted(est, rows)
    set_linear(est.model_.encoder[0], [[1, 1, 1], [1, -1, 2]], [0, 0])
    spread = [log_variance(0.5), log_variance(1.0)]
    set_linear(est.model_.encoder[2], [[1 / 2, 0], [0, 1 / 3], [0, 0], [0, 0]], [-1 / 2, 0, *spread])
    set_linear(est.model_.decoder[0], [[1, 0], [0, -1]], [0, 0])  # g = relu(z1, -z2)
    set_linear(est.model_.decoder[2], [[1, 0], [0, 1], [2, 0]], [0, 0, 1])  # the mean is (g1, g2, 2 g1 + 1)

    # The first row: h = relu(2, -3) = (2, 0). The second: h = (3, 3).
    codes = [[0.5, 0.0], [1.0, 1.0]]
    assert est.transform(rows).tolist() == [close(code) for code in codes]
    assert est.reconstruct(rows).tolist() == [close([0.5, 0.0, 2.0]), close([1.0, 0.0, 3.0])]

    # z = mu + sigma (1, -1): (1, -1) and (1.5, 0), decoded to (1, 1, 3) and (1.5, 0, 4).
    found = Pass(est, rows, Noise(normals=[[1.0, -1.0]]))
    assert found.draws["z"] == [close([1.0, -1.0]), close([1.5, 0.0])]
    constant = 3 / 2 * math.log(2 * math.pi * 0.5)
    nll = [(0 + 1 + 16) / (2 * 0.5) + constant, (2.25 + 1 + 4) / (2 * 0.5) + constant]
    kl = [
        math.log(2) + (0.25 + 0.25) / 2 - 1 / 2,  # of the first unit; the second's is 0
        math.log(2) + (0.25 + 1) / 2 - 1 / 2 + 1 / 2,
    ]
    assert found.terms == {"nll_x": close(nll), "kl_z": close(kl)}
    assert found.loss == close(mean(nll) + mean(kl))


def test_vae_without_noise_pays_half_the_square_of_its_code() -> None:
    est = fitted(sv.VAE(2, noise=False, **GAUSSIAN), X)
    set_linear(est.model_.encoder[0], [[1, 1], [0, 2]], [0, 1])
    set_linear(est.model_.decoder[0], [[1, 0], [0, 1]], [0, 0])
    assert est.transform([[1.0, -1.0]]).tolist() == [close([0.0, -1.0])]
    assert Pass(est, [[1.0, -1.0], [1.0, 0.0]]).terms["kl_z"] == close([1 / 2, (1 + 1) / 2])


@pytest.mark.parametrize(
    "est",
    [
        sv.VAE(2, **GAUSSIAN),
        sv.BetaVAE(2, beta=3.0, **GAUSSIAN),
        sv.BetaTCVAE(2, beta=3.0, **GAUSSIAN),
        sv.CapacityVAE(2, gamma=7.0, **GAUSSIAN),
    ],
    ids=lambda est: type(est).__name__,
)
def test_scores_are_log_p_of_x_where_the_code_is_the_exact_posterior(est: Any) -> None:
    """x = 2 z + b + N(0, 1) has p(x) = N(b, 5) and q(z|x) = N(2/5 (x - b), 1/5): no draw and no weight matters."""
    est, b = fitted(est, X), [0.5, -0.5]
    spread = log_variance(math.sqrt(1 / 5))
    set_linear(est.model_.encoder[0], [[0.4, 0], [0, 0.4], [0, 0], [0, 0]], [-0.2, 0.2, spread, spread])
    set_linear(est.model_.decoder[0], [[2, 0], [0, 2]], b)
    by_hand = [log_normals(x, b, math.sqrt(5)) for x in X]
    assert est.score_samples(X, n_samples=2).tolist() == close(by_hand)
    assert est.importance_bound(X, n_samples=3).bound.tolist() == close(by_hand)


def test_beta_vae_weighs_the_kl_by_beta() -> None:
    """mu = x, sigma = 1/2; pixels are on with logits (2 z1, z1 - z2)."""
    rows = [[1.0, 0.0], [1.0, 1.0]]
    est = fitted(sv.BetaVAE(2, beta=3.0, likelihood="bernoulli", **LINEAR), rows)
    set_linear(est.model_.encoder[0], [[1, 0], [0, 1], [0, 0], [0, 0]], [0, 0, *[log_variance(0.5)] * 2])
    set_linear(est.model_.decoder[0], [[2, 0], [1, -1]], [0, 0])
    assert est.transform(rows).tolist() == rows
    assert est.reconstruct(rows).tolist() == [close([logistic(2), logistic(1)]), close([logistic(2), logistic(0)])]

    # z = x - 1/2: (1/2, -1/2) and (1/2, 1/2), so that the logits are (1, 1) and (1, 0).
    found = Pass(est, rows, Noise(normals=[-1.0]))
    nll = [-math.log(logistic(1)) - math.log(1 - logistic(1)), -math.log(logistic(1)) - math.log(1 / 2)]
    zero, one = math.log(2) + 0.25 / 2 - 1 / 2, math.log(2) + (0.25 + 1) / 2 - 1 / 2  # of a mean of 0, of 1
    assert found.terms == {"nll_x": close(nll), "kl_z": close([one + zero, one + one])}
    assert found.loss == close(mean(nll) + 3 * mean([one + zero, one + one]))


@pytest.mark.parametrize(
    ("estimator", "weights"),
    [
        ("stratified", [1 / 5, (5 - 2) / (5 * 2), 1 / 2]),  # the row itself, the next, the other one
        ("weighted", [1 / 15, 1 / 15, 1 / 15]),
    ],
)
def test_beta_tcvae_splits_the_kl_in_three_and_weighs_one_by_beta(estimator: str, weights: list[float]) -> None:
    """mu = x, sigma = (1/2, 2); batches of M = 3 of N = 5 rows."""
    est = fitted(sv.BetaTCVAE(2, beta=4.0, estimator=estimator, **GAUSSIAN), X)
    scales, rows = [0.5, 2.0], X[:3]
    spread = [log_variance(s) for s in scales]
    set_linear(est.model_.encoder[0], [[1, 0], [0, 1], [0, 0], [0, 0]], [0, 0, *spread])
    set_linear(est.model_.decoder[0], [[1, 0], [0, 1]], [0, 0])

    halves = []  # the terms' sums, one noise at a time
    for noise in (1.0, -1.0):
        found = Pass(est, rows, Noise(normals=[noise]))
        mi, tc, dim_kl = [], [], []
        for i, x in enumerate(rows):
            z = [m + s * noise for m, s in zip(x, scales, strict=True)]
            # q(z_j | x_k) of every other row k, the first of which is the row itself
            each = [[log_normal(z[j], rows[(i + k) % 3][j], scales[j]) for j in range(2)] for k in range(3)]
            q = math.log(sum(w * math.exp(a + b) for w, (a, b) in zip(weights, each, strict=True)))
            q_units = [math.log(sum(w * math.exp(e[j]) for w, e in zip(weights, each, strict=True))) for j in range(2)]
            mi.append(sum(each[0]) - q)
            tc.append(q - sum(q_units))
            dim_kl.append(sum(q_units) - log_normals(z, [0, 0], 1))
        assert {k: found.terms[k] for k in ("mi", "tc", "dim_kl")} == {
            "mi": close(mi),
            "tc": close(tc),
            "dim_kl": close(dim_kl),
        }
        nll = [log_normals([s * noise for s in scales], [0, 0], 1)] * 3  # what is left of x is the noise alone
        assert found.loss == close(-mean(nll) + mean(mi) + 4 * mean(tc) + mean(dim_kl))
        halves.append([sum(terms) for terms in zip(*(found.terms[k] for k in ("mi", "tc", "dim_kl")), strict=True)])

    # A log density is a square of the noise, so that the mean over +1 and -1 is the KL itself.
    kl = [kl_normal(x[0], 0.5) + kl_normal(x[1], 2.0) for x in rows]
    assert [mean(both) for both in zip(*halves, strict=True)] == close(kl)
    assert est.transform(rows).tolist() == rows


@pytest.mark.parametrize("capacity", [0.5, 6.0])
def test_capacity_vae_pays_for_the_distance_of_the_batch_mean_kl(capacity: float) -> None:
    """mu = (x1 + x2, x2), sigma = 1/2; p(x|z) has means z and variances 1/2 + softplus(0), 1/2 + softplus(z1)."""
    settings = {"likelihood": "gaussian", "variance_floor": 0.5, **LINEAR}
    est = fitted(sv.CapacityVAE(2, capacity=capacity, gamma=7.0, **settings), X)
    set_linear(est.model_.encoder[0], [[1, 1], [0, 1], [0, 0], [0, 0]], [0, 0, *[log_variance(0.5)] * 2])
    set_linear(est.model_.decoder[0], [[1, 0], [0, 1], [0, 0], [1, 0]], [0, 0, 0, 0])
    rows = [[1.0, 1.0], [0.0, -1.0]]
    assert est.transform(rows).tolist() == [[2.0, 1.0], [-1.0, -1.0]]
    assert est.reconstruct(rows).tolist() == [[2.0, 1.0], [-1.0, -1.0]]

    found = Pass(est, rows, Noise(normals=[0.0]))
    nll = []
    for x, z in zip(rows, [[2.0, 1.0], [-1.0, -1.0]], strict=True):
        scales = [math.sqrt(0.5 + math.log(2)), math.sqrt(0.5 + math.log(1 + math.exp(z[0])))]
        nll.append(-log_normal(x[0], z[0], scales[0]) - log_normal(x[1], z[1], scales[1]))
    spread = math.log(2) + 0.25 / 2 - 1 / 2  # a unit's KL less mu^2/2
    kl = [2 * spread + (4 + 1) / 2, 2 * spread + (1 + 1) / 2]
    gap = abs(mean(kl) - capacity)
    assert found.terms == {"nll_x": close(nll), "kl_z": close(kl), "capacity_gap": close([gap])}
    assert found.loss == close(mean(nll) + 7 * gap)


def test_mat_has_a_prior_of_two_gaussians_and_an_mmd_to_its_draws() -> None:
    """p(z) = .8 N(0, .05^2) + .2 N(0, 1), p(x|z) Laplace of scale .1; mu = x, sigma = 1/2."""
    settings = {"likelihood": "laplace", "variance": 0.02, **LINEAR}
    est = fitted(sv.MAT(2, off=0.8, spike=0.05, kl_weight=0.5, mmd_weight=10.0, **settings), X)
    set_linear(est.model_.encoder[0], [[1, 0], [0, 1], [0, 0], [0, 0]], [0, 0, *[log_variance(0.5)] * 2])
    set_linear(est.model_.decoder[0], [[1, 0], [0, -1]], [0, 0])
    rows = [[1.0, 0.0], [-1.0, 0.5]]
    assert est.transform(rows).tolist() == rows
    assert est.reconstruct(rows).tolist() == [[1.0, 0.0], [-1.0, -0.5]]

    # z = mu + (1/2, -1/2). A unit of the prior's draw is wide where its uniform number is above .8.
    uniforms, normals = [[0.9, 0.1], [0.5, 0.85]], [[1.0, 2.0], [-1.0, 0.5]]
    found = Pass(est, rows, Noise(normals=[[1.0, -1.0], normals], uniforms=[uniforms]))
    codes, reference = [[1.5, -0.5], [-0.5, 0.0]], [[1.0, 0.05 * 2], [0.05 * -1, 0.5]]
    assert found.draws["z"] == [close(z) for z in codes]
    assert found.references["z"].tolist() == [close(r) for r in reference]

    def log_prior(z: float) -> float:
        return math.log(0.8 * math.exp(log_normal(z, 0, 0.05)) + 0.2 * math.exp(log_normal(z, 0, 1)))

    means = [[z1, -z2] for z1, z2 in codes]
    nll = []
    for x, m in zip(rows, means, strict=True):
        nll.append((abs(x[0] - m[0]) + abs(x[1] - m[1])) / 0.1 + 2 * math.log(2 * 0.1))
    log_q = [log_normals(z, x, 0.5) for x, z in zip(rows, codes, strict=True)]
    kl = [q - log_prior(z[0]) - log_prior(z[1]) for q, z in zip(log_q, codes, strict=True)]

    def kernel(a: float, b: float) -> float:
        return sum(2 * s / (2 * s + (a - b) ** 2) for s in (0.1, 0.2, 0.5, 1, 2, 5))

    mmd = 0.0
    for z, r in zip(zip(*codes, strict=True), zip(*reference, strict=True), strict=True):  # unit by unit, n = 2
        mmd += 2 * kernel(z[0], z[1]) / (2 * 1) + 2 * kernel(r[0], r[1]) / (2 * 1)
        mmd -= 2 / 2**2 * sum(kernel(a, b) for a in z for b in r)
    assert found.terms == {"nll_x": close(nll), "kl_z": close(kl), "mmd": close([mmd])}
    assert found.loss == close(mean(nll) + 0.5 * mean(kl) + 10 * mmd)


# -- sparse codes ---------------------------------------------------------------------------------------------------

GATES = [[0, 0], [0, 0], [math.log(3), 0], [0, math.log(4)]]  # gate logits log 3 x1 and log 4 x2; the rest is constant
P = {1.0: (3 / 4, 4 / 5), -1.0: (1 / 4, 1 / 5)}  # P(on) of the two units where x is 1 and -1


def test_vsc_codes_are_exactly_zero_where_gates_are_closed() -> None:
    """mu = (2 x1, x2 - 1/2), sigma = (1/2, 1); P(on) = 3/4 and 4/5 where x is 1, 1/4 and 1/5 where it is -1."""
    est = fitted(sv.VSC(2, alpha=0.25, kl_z=0.5, **GAUSSIAN), X)
    spread = [log_variance(0.5), log_variance(1.0)]
    set_linear(est.model_.encoder[0], [[2, 0], [0, 1], *GATES], [0, -1 / 2, *spread, 0, 0])
    set_linear(est.model_.decoder[0], [[1, 0], [1, 2]], [0, 1])  # x is z1, z1 + 2 z2 + 1
    rows = [[1.0, 1.0], [1.0, -1.0], [-1.0, -1.0]]
    Z = est.transform(rows)
    assert Z.nnz == 3
    assert Z.toarray().tolist() == [close([2.0, 0.5]), [close(2.0), 0.0], [0.0, 0.0]]
    # P(on) z^2 |w|^2: 3/4 4 2 = 6 of the first unit, 4/5 1/4 4 = .8 of the second, whose gate is likelier.
    assert est.transform(rows, max_active=1).toarray().tolist()[0] == [close(2.0), 0.0]
    assert est.inverse_transform(Z).tolist() == [close([2.0, 4.0]), close([2.0, 3.0]), close([0.0, 1.0])]
    gated = est.posterior_means(rows)["gated"].tolist()
    assert gated[:2] == [close([3 / 4 * 2, 4 / 5 * 0.5]), close([3 / 4 * 2, 1 / 5 * -1.5])]

    # A unit comes out on where its uniform number, here 1/2, is above 1 - P(on).
    found = Pass(est, rows, Noise(normals=[1.0], uniforms=[0.5]))
    codes = [[2.5, 1.5], [2.5, 0.0], [0.0, 0.0]]
    assert found.draws["z"] == [close(z) for z in codes]
    nll, kl, weights = [], [], []
    for x, z in zip(rows, codes, strict=True):
        p1, p2 = P[x[0]][0], P[x[1]][1]
        first, second = (2 * x[0], 0.5), (x[1] - 0.5, 1.0)  # mu and sigma
        nll.append(-log_normals(x, [z[0], z[0] + 2 * z[1] + 1], 1))
        kl.append(p1 * kl_normal(*first) + kl_bit(p1, 0.25) + p2 * kl_normal(*second) + kl_bit(p2, 0.25))
        weight = -nll[-1]
        for value, p, slab in ((z[0], p1, first), (z[1], p2, second)):
            if value == 0:
                weight += math.log(1 - 0.25) - math.log(1 - p)
            else:
                weight += math.log(0.25) + log_normal(value, 0, 1) - math.log(p) - log_normal(value, *slab)
        weights.append(weight)
    assert found.terms == {"nll_x": close(nll), "kl_z": close(kl)}
    assert found.loss == close(mean(nll) + 0.5 * mean(kl))
    assert found.log_weights == close(weights)


@pytest.mark.parametrize("selection", ["softmax", "paper", "authors"])
def test_pseudo_vsc_measures_codes_against_those_of_the_inputs_it_selects(selection: str) -> None:
    """mu = x, sigma = (1/2, 1), gates as above; the two pseudo-inputs are (1, 1) and (1, -1)."""
    settings = {**GAUSSIAN, "pseudo_inputs": 2, "selection": selection}
    est = fitted(sv.PseudoVSC(2, alpha=0.2, kl_z=0.5, sparsity=3.0, **settings), X)
    prior, scales, rho = est.model_.prior, [0.5, 1.0], [0.7, 0.3]
    set_linear(est.model_.encoder[0], [[1, 0], [0, 1], *GATES], [0, 0, *[log_variance(s) for s in scales], 0, 0])
    set_linear(est.model_.decoder[0], [[1, 0], [0, 1]], [0, 0])
    set_linear(prior.selection.layer, [[1, 0], [0, 1]], [1, 2])
    inputs = [[1.0, 1.0], [1.0, -1.0]]
    with torch.no_grad():
        prior.inputs.copy_(torch.tensor(inputs))
        prior.rho.copy_(torch.tensor(rho))
    x = [1.0, -1.0]
    assert est.transform([x]).toarray().tolist() == [[1.0, 0.0]]
    assert est.reconstruct([x]).tolist() == [[1.0, 0.0]]

    # The layer gives (1 + 1, -1 + 2) = (2, 1).
    a, b = logistic(2), logistic(1)
    choice = {
        "softmax": [logistic((2 - 1) / 0.5), logistic((1 - 2) / 0.5)],
        "paper": [logistic(60 * (2 / 3 - 1 / 2)), logistic(60 * (1 / 3 - 1 / 2))],
        "authors": [a / (a + b), b / (a + b)],
    }[selection]
    gates = [(P[u[0]][0], P[u[1]][1]) for u in inputs]
    if selection == "authors":
        gates = [(logistic(10 * (p1 - 1 / 2)), logistic(10 * (p2 - 1 / 2))) for p1, p2 in gates]

    est.model_.train()  # outside training every choice is normalised and charged
    found = Pass(est, [x], Noise(normals=[1.0], uniforms=[0.5]))
    p = [3 / 4, 1 / 5]
    kl = 0.0
    for w, u, own in zip(choice, inputs, gates, strict=True):
        kl += w * (kl_bit(p[0], own[0]) + p[0] * kl_normal(x[0], 0.5, u[0], 0.5))
        kl += w * (kl_bit(p[1], own[1]) + p[1] * kl_normal(x[1], 1.0, u[1], 1.0))
    if selection == "softmax":  # the choice itself is paid for
        kl += choice[0] * math.log(choice[0] / rho[0]) + choice[1] * math.log(choice[1] / rho[1])
    on = sum(w * mean(own) for w, own in zip(choice, gates, strict=True)) / sum(choice)
    sparsity = 2 * kl_bit(on, 0.2)
    nll = -log_normals(x, [1.5, 0.0], 1)  # z = (1 + 1/2, 0)
    assert found.terms == {"nll_x": close([nll]), "kl_z": close([kl]), "sparsity": close([sparsity])}
    assert found.loss == close(nll + 0.5 * kl + 3 * sparsity)

    # Bounds use the mixture of both inputs' codes, of rho: z1 = 1.5 is on and z2 off.
    each = [own[0] * math.exp(log_normal(1.5, u[0], 0.5)) * (1 - own[1]) for u, own in zip(inputs, gates, strict=True)]
    log_p = math.log(rho[0] * each[0] + rho[1] * each[1])
    log_q = math.log(p[0]) + log_normal(1.5, 1.0, 0.5) + math.log(1 - p[1])
    assert found.log_weights == close([-nll + log_p - log_q])


def test_hsvae_gates_are_betas_that_pay_a_kl_of_their_own() -> None:
    """q(gamma) is Beta(2, 4) where x is 0 and Beta(4, 2) where it is 1, gamma = P(off); mu = (2, -1), sigma = 1/2."""
    settings = {**GAUSSIAN, "alpha": 3.0, "beta": 1.0}
    est = fitted(sv.HSVAE(2, kl_z=0.5, kl_gamma=0.25, **settings), X)
    two, four = inverse_softplus(2 - 1e-5), inverse_softplus(4 - 1e-5)
    steep, scale = four - two, inverse_softplus(0.5 - 1e-4)
    constant = [[0, 0]] * 4
    switch = [[steep, 0], [0, steep], [-steep, 0], [0, -steep]]
    set_linear(est.model_.encoder[0], [*constant, *switch], [2, -1, scale, scale, two, two, four, four])
    set_linear(est.model_.decoder[0], [[1, 0], [0, 2]], [0, 1])
    rows = [[0.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
    assert est.gates(rows).tolist() == [close([4 / 6, 4 / 6]), close([4 / 6, 2 / 6]), close([2 / 6, 2 / 6])]
    Z = est.transform(rows)
    assert Z.toarray().tolist() == [[2.0, -1.0], [2.0, 0.0], [0.0, 0.0]]
    assert est.inverse_transform(Z).tolist() == [[2.0, -1.0], [2.0, 1.0], [0.0, 1.0]]

    # A Gamma(c) drawn with normal numbers 0 and uniform ones 1/2 is (c + 2/3) 2^(-1/c), and gamma/(1 - gamma) their
    # ratio: (8/3)/(14/3) 2^(1/4 - 1/2) for Beta(2, 4). Unit 1 - gamma is then above 1/2, and on.
    odds = 4 / 7 * 2 ** (-1 / 4)
    found = Pass(est, rows, Noise(normals=[0.0, 0.0], uniforms=[0.5, 0.5]))
    open_, shut = math.log(odds), -math.log(odds)
    assert found.draws["gamma"] == [close([open_, open_]), close([open_, shut]), close([shut, shut])]
    assert found.draws["z"] == [close([2.0, -1.0]), [close(2.0), 0.0], [0.0, 0.0]]

    # With psi(n) = 1 + 1/2 + ... + 1/(n - 1) - .577 the KL of Beta(a, b) to Beta(3, 1) is
    # log B(3, 1)/B(a, b) + (a - 3) psi(a) + (b - 1) psi(b) + (4 - a - b) psi(a + b), B(3, 1) = 1/3, B(2, 4) = 1/20.
    psi = {2: 1, 4: 1 + 1 / 2 + 1 / 3, 6: 1 + 1 / 2 + 1 / 3 + 1 / 4 + 1 / 5}
    kl_open = math.log(20 / 3) + (2 - 3) * psi[2] + (4 - 1) * psi[4] + (4 - 6) * psi[6]
    kl_shut = math.log(20 / 3) + (4 - 3) * psi[4] + (2 - 1) * psi[2] + (4 - 6) * psi[6]
    kl_gamma = [2 * kl_open, kl_open + kl_shut, 2 * kl_shut]
    on, off = 1 / (1 + odds), odds / (1 + odds)  # 1 - gamma where Beta(2, 4) and where Beta(4, 2)
    first, second = math.log(2) + (0.25 + 4) / 2 - 1 / 2, math.log(2) + (0.25 + 1) / 2 - 1 / 2
    kl_z = [on * (first + second), on * first + off * second, off * (first + second)]
    nll = [-log_normals(x, m, 1) for x, m in zip(rows, [[2, -1], [2, 1], [0, 1]], strict=True)]
    assert found.terms == {"nll_x": close(nll), "kl_gamma": close(kl_gamma), "kl_z": close(kl_z)}
    assert found.loss == close(mean(nll) + 0.5 * mean(kl_z) + 0.25 * mean(kl_gamma))

    # A bound has both draws: the gates of z cancel, and gamma's logit has density gamma^a (1 - gamma)^b / B(a, b).
    sizes = log_normal(2, 0, 1) - log_normal(2, 2, 0.5) + log_normal(-1, 0, 1) - log_normal(-1, -1, 0.5)
    gamma = off  # of both units of the first row
    logits = math.log(3 * gamma**3 * (1 - gamma)) - math.log(20 * gamma**2 * (1 - gamma) ** 4)
    assert found.log_weights[0] == close(-nll[0] + sizes + 2 * logits)
    assert logit(gamma) == close(found.draws["gamma"][0][0])
