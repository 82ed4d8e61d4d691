"""Models of discrete codes, and of labels, with weights set by hand: laws, KLs, predictions by plain arithmetic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest
from by_hand import (
    GAUSSIAN,
    LINEAR,
    Noise,
    Pass,
    X,
    close,
    fitted,
    kl_bit,
    kl_choice,
    log_normals,
    logistic,
    mean,
    set_linear,
)

import sparsevae as sv

# -- codes of whole numbers -----------------------------------------------------------------------------------------


def test_discrete_vae_codes_are_bits_that_are_on_where_that_is_likelier() -> None:
    """P(on) is 3/4 and 4/5 where x is 1, 1/4 and 1/5 where it is -1."""
    est = fitted(sv.DiscreteVAE(2, alpha=0.25, **GAUSSIAN), X)
    set_linear(est.model_.encoder[0], [[math.log(3), 0], [0, math.log(4)]], [0, 0])
    set_linear(est.model_.decoder[0], [[1, 0], [1, 2]], [0, 1])  # x is z1, z1 + 2 z2 + 1
    rows = [[1.0, 1.0], [1.0, -1.0], [-1.0, -1.0]]
    codes = [[1.0, 1.0], [1.0, 0.0], [0.0, 0.0]]
    Z = est.transform(rows)
    assert Z.nnz == 3
    assert Z.toarray().tolist() == codes
    assert est.inverse_transform(Z).tolist() == [[1.0, 4.0], [1.0, 2.0], [0.0, 1.0]]

    found = Pass(est, rows, Noise(uniforms=[0.5, 0.5]))  # the likelier values again
    assert found.draws["z"] == codes
    p = [[3 / 4, 4 / 5], [3 / 4, 1 / 5], [1 / 4, 1 / 5]]
    kl = [kl_bit(p1, 0.25) + kl_bit(p2, 0.25) for p1, p2 in p]
    nll = [-log_normals(x, [z1, z1 + 2 * z2 + 1], 1) for x, (z1, z2) in zip(rows, codes, strict=True)]
    assert found.terms == {"nll_x": close(nll), "kl_z": close(kl)}
    assert found.loss == close(mean(nll) + mean(kl))
    prior = [2 * math.log(0.25), math.log(0.25 * 0.75), 2 * math.log(0.75)]
    log_q = [math.log(3 / 4 * 4 / 5)] * 3  # of the first row; in the others a bit that is off is as likely
    assert found.log_weights == close([a - b - c for a, b, c in zip(prior, nll, log_q, strict=True)])

    # Bits that are certain are no draw: the score is log p(x|z) + log p(z).
    set_linear(est.model_.encoder[0], [[100, 0], [0, 100]], [0, 0])
    assert est.score_samples(rows, n_samples=2).tolist() == close([a - b for a, b in zip(prior, nll, strict=True)])


def test_discrete_vae_codes_are_groups_with_one_unit_on() -> None:
    """Two groups of two: logits (log 3 x1, 0) and (0, log 4 x2); the prior's are all alike."""
    est = fitted(sv.DiscreteVAE(4, categories=2, **GAUSSIAN), X)
    set_linear(est.model_.encoder[0], [[math.log(3), 0], [0, 0], [0, 0], [0, math.log(4)]], [0, 0, 0, 0])
    set_linear(est.model_.decoder[0], [[1, 0, 0, 2], [0, 1, 3, 0]], [0, 0])
    rows = [[1.0, 1.0], [-1.0, -1.0]]
    codes = [[1.0, 0.0, 0.0, 1.0], [0.0, 1.0, 1.0, 0.0]]
    assert est.transform(rows).toarray().tolist() == codes
    assert est.reconstruct(rows).tolist() == [[3.0, 0.0], [0.0, 4.0]]
    found = Pass(est, rows, Noise(uniforms=[0.5]))
    assert found.draws["z"] == codes
    kl = kl_choice([3 / 4, 1 / 4], [1 / 2, 1 / 2]) + kl_choice([4 / 5, 1 / 5], [1 / 2, 1 / 2])  # of both rows
    nll = [-log_normals(x, m, 1) for x, m in zip(rows, [[3, 0], [0, 4]], strict=True)]
    assert found.terms == {"nll_x": close(nll), "kl_z": close([kl, kl])}
    assert found.loss == close(mean(nll) + kl)
    assert found.log_weights == close([-each + math.log(1 / 4) - math.log(3 / 4 * 4 / 5) for each in nll])


def multinomial(z: Sequence[int], draws: int, p: Sequence[float]) -> float:
    """P(z) of so many draws, each of them one of the features with probabilities p, or off."""
    ways, chance, rest = math.factorial(draws), 1.0, draws - sum(z)
    for count, each in ((rest, 1 - sum(p)), *zip(z, p, strict=True)):
        ways, chance = ways // math.factorial(count), chance * each**count
    return ways * chance


def counts_up_to(draws: int, n: int) -> list[tuple[int, ...]]:
    return [z for z in product(range(draws + 1), repeat=n) if sum(z) <= draws]


def set_counts(est: Any) -> None:
    """Gates on with probability 4/5 where x1 is 1, 1/5 where it is -1; features 3/5, 2/5 where x2 is 1."""
    set_linear(est.model_.encoder.branch[0], [[math.log(4), 0]], [0])
    set_linear(est.model_.encoder.net[0], [[0, math.log(3 / 2)], [0, 0]], [0, 0])


DIST = {  # of one draw, lambda pi, by x
    (1.0, 1.0): [4 / 5 * 3 / 5, 4 / 5 * 2 / 5],
    (1.0, -1.0): [4 / 5 * 2 / 5, 4 / 5 * 3 / 5],
    (-1.0, 1.0): [1 / 5 * 3 / 5, 1 / 5 * 2 / 5],
}
ROWS = [list(x) for x in DIST]


@pytest.mark.parametrize("kl", ["tight", "paper"])
def test_sdlgm_counts_what_at_most_cap_draws_show(kl: str) -> None:
    est = fitted(sv.SDLGM(2, cap=3, alpha=0.5, kl=kl, gate_hidden=(), **GAUSSIAN), X)
    set_counts(est)
    set_linear(est.model_.decoder[0], [[1, 0], [1, 2]], [0, 1])
    likeliest = [max(counts_up_to(3, 2), key=lambda z: multinomial(z, 3, p)) for p in DIST.values()]
    assert likeliest == [(2, 1), (1, 2), (0, 0)]
    Z = est.transform(ROWS)
    assert Z.toarray().tolist() == [list(z) for z in likeliest]
    assert est.inverse_transform(Z).tolist() == [[z1, z1 + 2 * z2 + 1] for z1, z2 in likeliest]
    assert est.posterior_means(ROWS)["mean"].tolist() == [close([3 * p1, 3 * p2]) for p1, p2 in DIST.values()]

    # Draws take feature 1, 2 or none where their uniform numbers lie; of the first row below .48, below .8, above.
    found = Pass(est, ROWS, Noise(uniforms=[[0.4, 0.7, 0.9]]))
    codes = [(1, 1), (0, 2), (0, 0)]
    assert found.draws["z"] == [list(z) for z in codes]
    nll = [-log_normals(x, [z1, z1 + 2 * z2 + 1], 1) for x, (z1, z2) in zip(ROWS, codes, strict=True)]
    features = kl_choice([3 / 5, 2 / 5], [1 / 2, 1 / 2])  # of all rows
    gate = kl_bit(4 / 5, 1 / 2)  # and that of 1/5 is the same
    paid = [4 / 5, 4 / 5, 1 / 5] if kl == "tight" else [1, 1, 1]
    costs = [3 * (gate + share * features) for share in paid]
    assert found.terms == {"nll_x": close(nll), "kl_z": close(costs)}
    assert found.loss == close(mean(nll) + mean(costs))
    weights = []
    for z, p, cost in zip(codes, DIST.values(), nll, strict=True):
        weights.append(-cost + math.log(multinomial(z, 3, [1 / 4, 1 / 4])) - math.log(multinomial(z, 3, p)))
    assert found.log_weights == close(weights)


def capped_sets(logits: Sequence[float], cap: int) -> dict[tuple[int, ...], float]:
    """P(b) in proportion to e^(a b) for all sets b of at most `cap` gates."""
    weights = {}
    for b in product((0, 1), repeat=len(logits)):
        if sum(b) <= cap:
            weights[b] = math.exp(sum(a for a, on in zip(logits, b, strict=True) if on))
    return {b: w / sum(weights.values()) for b, w in weights.items()}


def test_sdlgm_distinct_is_the_law_of_gates_given_that_at_most_cap_are_on() -> None:
    """Logits (x1, x2, 1/2) and cap 2. The prior has one on in the mean, 3 e^a + 6 e^2a = 1 + 3 e^a + 3 e^2a."""
    est = fitted(sv.SDLGM(3, cap=2, alpha=0.5, features="distinct", **GAUSSIAN), X)
    set_linear(est.model_.encoder[0], [[1, 0], [0, 1], [0, 0]], [0, 0, 1 / 2])
    set_linear(est.model_.decoder[0], [[1, 0, 1], [0, 2, 1]], [0, 0])
    rows = [[1.0, 2.0], [1.0, -1.0], [-1.0, -2.0]]
    Z = est.transform(rows)
    assert Z.toarray().tolist() == [[1.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 0.0, 1.0]]  # of three open gates, two
    assert est.inverse_transform(Z).tolist() == [[1.0, 2.0], [2.0, 1.0], [1.0, 1.0]]

    q, p = [capped_sets([*x, 1 / 2], 2) for x in rows], capped_sets([-math.log(3) / 2] * 3, 2)
    assert sum(sum(b) * chance for b, chance in p.items()) == pytest.approx(1)
    p_on = [[sum(chance for b, chance in dist.items() if b[k]) for k in range(3)] for dist in q]
    assert est.posterior_means(rows)["mean"].tolist() == [close(each) for each in p_on]

    found = Pass(est, rows, Noise(uniforms=[[0.9, 0.1, 0.1], 0.5]))  # on where the number is above 1 - P(gate on)
    codes = [(1, 0, 0), (1, 0, 0), (1, 0, 0)]
    assert found.draws["z"] == [list(b) for b in codes]
    kl = [sum(chance * math.log(chance / p[b]) for b, chance in dist.items()) for dist in q]
    nll = [-log_normals(x, [1, 0], 1) for x in rows]
    assert found.terms == {"nll_x": close(nll), "kl_z": close(kl)}
    assert found.loss == close(mean(nll) + mean(kl))
    weights = [-cost + math.log(p[b] / dist[b]) for cost, b, dist in zip(nll, codes, q, strict=True)]
    assert found.log_weights == close(weights)


# -- codes that are learned from y ----------------------------------------------------------------------------------

Y = [[1, 0], [0, 1], [1, 1], [0, 0], [1, 0]]


def cross_entropy(y: Sequence[float], p: Sequence[float]) -> float:
    return -sum(math.log(each if label else 1 - each) for label, each in zip(y, p, strict=True))


def test_sdlgm_classifier_predicts_labels_that_come_up_in_any_draw() -> None:
    """P(label k) = 1 - (1 - lambda pi_k)^3; the code, which is the labels, explains x too."""
    settings = {**GAUSSIAN, "cap": 3, "features": "counts", "gate_hidden": (), "threshold": 0.5}
    est = sv.SDLGMClassifier(variant="gen", kl_weight=0.25, x_weight=0.5, alpha=0.5, **settings)
    est = fitted(est, X, Y)
    set_counts(est)
    set_linear(est.model_.decoder[0], [[1, 0], [1, 2]], [0, 1])
    P = [[1 - (1 - p1) ** 3, 1 - (1 - p2) ** 3] for p1, p2 in DIST.values()]
    assert est.predict_proba(ROWS).tolist() == [close(p) for p in P]
    assert est.predict_count(ROWS).tolist() == close([p1 + p2 for p1, p2 in P])
    assert est.predict(ROWS).tolist() == [[int(p1 > 1 / 2), int(p2 > 1 / 2)] for p1, p2 in P]
    likeliest = [max(counts_up_to(3, 2), key=lambda z: multinomial(z, 3, p)) for p in DIST.values()]
    assert est.transform(ROWS).toarray().tolist() == [list(z) for z in likeliest]
    assert est.reconstruct(ROWS).tolist() == [[z1, z1 + 2 * z2 + 1] for z1, z2 in likeliest]

    labels = [[1, 0], [1, 1], [0, 0]]
    found = Pass(est, ROWS, Noise(uniforms=[[0.4, 0.7, 0.9]]), targets=labels)
    nll_y = [cross_entropy(y, p) for y, p in zip(labels, P, strict=True)]
    nll_x = [-log_normals(x, m, 1) for x, m in zip(ROWS, [[1, 4], [0, 5], [0, 1]], strict=True)]  # z as for SDLGM
    features = kl_choice([3 / 5, 2 / 5], [1 / 2, 1 / 2])
    kl = [3 * (kl_bit(4 / 5, 1 / 2) + share * features) for share in (4 / 5, 4 / 5, 1 / 5)]
    assert found.terms == {"nll_y": close(nll_y), "nll_x": close(nll_x), "kl_z": close(kl)}
    assert found.loss == close(mean(nll_y) + 0.5 * mean(nll_x) + 0.25 * mean(kl))


@pytest.mark.parametrize("features", ["counts", "distinct"])
def test_sdlgm_classifier_gives_whole_sets_of_labels_their_probability(features: str) -> None:
    """Under "set" the loss is -log P(these labels are on and no others), by adding up all codes that show them."""
    settings = {**LINEAR, "cap": 2, "features": features, "gate_hidden": (), "threshold": 0.5}
    est = fitted(sv.SDLGMClassifier(label_likelihood="set", kl_weight=0.0, **settings), X, Y)
    if features == "counts":
        set_counts(est)
        dists = [{z: multinomial(z, 2, p) for z in counts_up_to(2, 2)} for p in DIST.values()]
    else:
        set_linear(est.model_.encoder[0], [[1, 0], [0, 2]], [0, 0])
        dists = [capped_sets([x1, 2 * x2], 2) for x1, x2 in ROWS]
    P = [[sum(chance for z, chance in dist.items() if z[k]) for k in range(2)] for dist in dists]
    assert est.predict_proba(ROWS).tolist() == [close(p) for p in P]
    for labels in ([1, 0], [1, 1], [0, 0]):
        shown = [sum(c for z, c in dist.items() if [int(k > 0) for k in z] == labels) for dist in dists]
        assert Pass(est, ROWS, targets=[labels] * len(ROWS)).loss == close(mean([-math.log(p) for p in shown]))


def test_sdlgm_classifier_gives_labels_under_a_cap_their_marginals() -> None:
    """Three labels of which two at most are on: P(label) adds up the sets that hold it."""
    labels = [[1, 0, 1], [0, 1, 0], [1, 1, 0], [0, 0, 0], [1, 0, 0]]
    est = fitted(sv.SDLGMClassifier(cap=2, kl_weight=0.5, alpha=0.5, threshold=0.5, **LINEAR), X, labels)
    set_linear(est.model_.encoder[0], [[1, 0], [0, 1], [0, 0]], [0, 0, 1 / 2])
    dists, prior = [capped_sets([*x, 1 / 2], 2) for x in X], capped_sets([-math.log(3) / 2] * 3, 2)
    P = [[sum(chance for b, chance in dist.items() if b[k]) for k in range(3)] for dist in dists]
    assert est.predict_proba(X).tolist() == [close(p) for p in P]
    found = Pass(est, X, targets=labels)
    nll = [cross_entropy(y, p) for y, p in zip(labels, P, strict=True)]
    kl = [sum(chance * math.log(chance / prior[b]) for b, chance in dist.items()) for dist in dists]
    assert found.terms == {"nll_y": close(nll), "kl_z": close(kl)}
    assert found.loss == close(mean(nll) + 0.5 * mean(kl))


def test_sdlgm_counter_predicts_the_mean_of_a_multinomial() -> None:
    """Expected counts are L0 lambda pi, whole ones the likeliest; y costs -log of its multinomial probability."""
    est = fitted(sv.SDLGMCounter(cap=3, kl_weight=0.5, alpha=0.5, gate_hidden=(), **LINEAR), X, Y)
    set_counts(est)
    assert est.predict(ROWS).tolist() == [close([3 * p1, 3 * p2]) for p1, p2 in DIST.values()]
    likeliest = [max(counts_up_to(3, 2), key=lambda z: multinomial(z, 3, p)) for p in DIST.values()]
    assert est.predict_counts(ROWS).tolist() == [list(z) for z in likeliest]
    assert est.transform(ROWS).toarray().tolist() == [list(z) for z in likeliest]

    counts = [(2, 1), (0, 1), (0, 0)]
    found = Pass(est, ROWS, targets=counts)
    nll = [-math.log(multinomial(y, 3, p)) for y, p in zip(counts, DIST.values(), strict=True)]
    features = kl_choice([3 / 5, 2 / 5], [1 / 2, 1 / 2])
    kl = [3 * (kl_bit(4 / 5, 1 / 2) + share * features) for share in (4 / 5, 4 / 5, 1 / 5)]
    assert found.terms == {"nll_y": close(nll), "kl_z": close(kl)}
    assert found.loss == close(mean(nll) + 0.5 * mean(kl))


def test_sdlgm_counter_adds_up_what_strips_show() -> None:
    """Two strips of one pixel v each: something with logit log 4 v, thing 1 with logit log 3 v against thing 2."""
    settings = {**LINEAR, "columns": 2, "image_shape": (1, 2), "gate_hidden": ()}
    est = fitted(sv.SDLGMCounter(kl_weight=0.0, **settings), X, Y)
    set_linear(est.model_.encoder.net.branch[0], [[math.log(4)]], [0])
    set_linear(est.model_.encoder.net.net[0], [[math.log(3)], [0]], [0, 0])
    light, dark = [4 / 5 * 3 / 4, 4 / 5 * 1 / 4], [1 / 5 * 1 / 4, 1 / 5 * 3 / 4]  # what v = 1 and v = -1 show
    rows = [[1.0, 1.0], [1.0, -1.0], [-1.0, -1.0]]
    strips = [[light, light], [light, dark], [dark, dark]]
    expected = [[a[0] + b[0], a[1] + b[1]] for a, b in strips]
    assert est.predict(rows).tolist() == [close(each) for each in expected]
    assert est.predict_counts(rows).tolist() == [[2, 0], [1, 0], [0, 0]]  # light most likely shows thing 1, dark none
    found = Pass(est, rows, targets=[[1.0, 1.0]] * len(rows))
    nll = [-math.log(2 * (a / 2) * (b / 2)) for a, b in expected]  # of two draws from the average strip
    assert found.terms["nll_y"] == close(nll)
    assert found.loss == close(mean(nll))


def test_code_classifier_is_a_linear_softmax_of_the_code() -> None:
    est = fitted(sv.CodeClassifier(2, **LINEAR), X, ["a", "b", "c", "a", "b"])
    set_linear(est.model_.encoder[0], [[1, 1], [0, 2]], [0, 1])
    set_linear(est.model_.targets.linear, [[1, 0], [0, 1], [1, 1]], [0, 0, -1])
    rows = [[1.0, 0.0], [1.0, -1.0]]
    assert est.transform(rows).tolist() == [[1.0, 1.0], [0.0, -1.0]]
    P = []
    for logits in ([1, 1, 1], [0, -1, -2]):
        total = sum(math.exp(a) for a in logits)
        P.append([math.exp(a) / total for a in logits])
    assert est.predict_proba(rows).tolist() == [close(p) for p in P]
    assert est.predict(rows[1:]).tolist() == ["a"]
    found = Pass(est, rows, targets=[[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    nll = [-math.log(1 / 3), -math.log(P[1][2])]
    assert found.terms == {"nll_y": close(nll)}
    assert found.loss == close(mean(nll))


def test_code_classifier_gives_every_label_a_logit_of_its_own() -> None:
    est = fitted(sv.CodeClassifier(2, **LINEAR), X, Y)
    set_linear(est.model_.encoder[0], [[1, 1], [0, 2]], [0, 1])
    set_linear(est.model_.targets.linear, [[1, 0], [2, 1]], [0, -2])
    x = [1.0, 0.0]  # its code is (1, 1), its logits are (1, 1)
    assert est.predict_proba([x]).tolist() == [close([logistic(1), logistic(1)])]
    assert est.predict([x]).tolist() == [[1, 1]]
    assert Pass(est, [x], targets=[[1.0, 0.0]]).loss == close(-math.log(logistic(1)) - math.log(1 - logistic(1)))
