"""Terms and weights, on models small enough to follow by hand."""

import math

import pytest
import torch
from torch import Tensor

from sparsevae.distributions.gaussian import normal
from sparsevae.distributions.spike_slab import SpikeSlab, logit
from sparsevae.latent.bounds import bounds, log_weights
from sparsevae.latent.model import LatentModel, Observed, Site, Trace
from sparsevae.latent.objective import Objective, free_bits, kl, nll
from sparsevae.latent.posteriors import GaussianPosterior, SpikeSlabPosterior
from sparsevae.latent.priors import FixedSpikeSlab, Prior, StandardNormal
from sparsevae.likelihoods.gaussian import FixedGaussianData
from sparsevae.networks.dense import Linear
from sparsevae.sampling.draw import Draw
from sparsevae.sampling.gradients import ScaledSigmoid, StraightThroughConcrete
from sparsevae.sampling.noise import Fresh
from sparsevae.training.knobs import knobs

LOG_2PI = 1.8378770664093453


class Given:
    """Noise by hand: the same number everywhere."""

    def __init__(self, eps: float, u: float = 0.5) -> None:
        self.eps, self.u = eps, u

    def normal(self, like: Tensor) -> Tensor:
        return torch.full_like(like, self.eps)

    def uniform(self, like: Tensor) -> Tensor:
        return torch.full_like(like, self.u)


def linear(weight: list[list[float]], bias: list[float]) -> Linear:
    layer = Linear(len(weight[0]), len(weight))
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(weight))
        layer.bias.copy_(torch.tensor(bias))
    return layer.requires_grad_(False)


HALF = 2 * math.log(0.5 - 1e-4)  # the log-variance whose scale, floor included, is 1/2
DECODER = ([[1.0], [-1.0]], [0.0, 0.0])
X = torch.tensor([[1.0, 2.0]])


def tiny_vae() -> LatentModel:
    """x = (1, 2), one unit: loc = x_1 = 1, scale = 1/2; the decoder's mean is (z, -z), its variance 1."""
    encoder = linear([[1.0, 0.0], [0.0, 0.0]], [0.0, HALF])
    return LatentModel(encoder, GaussianPosterior(), linear(*DECODER), FixedGaussianData(1.0), StandardNormal(1))


def tiny_vsc(gate: torch.nn.Module, alpha: float = 0.5) -> LatentModel:
    """The same with a gate, p_on = 3/4 against a prior of 1/2."""
    encoder = linear([[1.0, 0.0], [0.0, 0.0], [0.0, 0.0]], [0.0, HALF, math.log(3)])
    prior: Prior = FixedSpikeSlab(1, alpha)
    return LatentModel(encoder, SpikeSlabPosterior(gate), linear(*DECODER), FixedGaussianData(1.0), prior)


# By hand: KL(N(1, 1/4) || N(0, 1)) = log 2 + (1/4 + 1)/2 - 1/2 = .693147 + .125.
KL_SLAB = math.log(2) + 0.125


def test_tiny_vae_by_hand() -> None:
    """eps = 1: z = 1.5, nll = (.5^2 + 3.5^2)/2 + log 2 pi = 6.25 + 1.837877; loss = nll + 2 kl."""
    trace = tiny_vae()(X, Draw(Given(1.0), hard=True))
    assert float(trace.latents["z"].value) == pytest.approx(1.5)
    loss, terms = Objective(nll, kl, weights={"kl_z": 2.0})(trace)
    assert {k: float(v) for k, v in terms.items()} == pytest.approx(
        {"nll_x": 6.25 + LOG_2PI, "kl_z": KL_SLAB}, abs=1e-5
    )
    assert float(loss) == pytest.approx(6.25 + LOG_2PI + 2 * KL_SLAB, abs=1e-5)
    # log p(x|z) + log p(z) - log q(z|x), where log p(z) = -(1.5^2 + log 2 pi)/2 and log q = -(1 + log 2 pi)/2 + log 2
    by_hand = -(6.25 + LOG_2PI) - 1.125 + 0.5 - math.log(2)
    assert float(log_weights(trace)) == pytest.approx(by_hand, abs=1e-5)


# KL_B(3/4; 1/2) = 3/4 log 3/2 + 1/4 log 1/2
KL_GATE = 0.75 * math.log(1.5) + 0.25 * math.log(0.5)


@pytest.mark.parametrize(
    ("gate", "hard", "u", "z"),
    [
        (ScaledSigmoid(50.0), True, 0.3, 1.5),  # u > 1 - p_on = .25: on
        (ScaledSigmoid(50.0), True, 0.2, 0.0),
        (ScaledSigmoid(50.0), False, 0.3, 1.5 / (1 + math.exp(-2.5))),  # sigmoid(50 (.3 - .25)) of the slab
        (ScaledSigmoid(50.0), False, 0.2, 1.5 / (1 + math.exp(2.5))),
        (StraightThroughConcrete(0.5), False, 0.3, 1.5),
        (StraightThroughConcrete(0.5), False, 0.2, 0.0),
    ],
)
def test_tiny_vsc_by_hand(gate: torch.nn.Module, hard: bool, u: float, z: float) -> None:
    """nll = ((1 - z)^2 + (2 + z)^2)/2 + log 2 pi whatever the draw; kl = 3/4 KL_slab + KL_B, the draw aside."""
    trace = tiny_vsc(gate)(X, Draw(Given(1.0, u), hard=hard))
    loss, terms = Objective(nll, kl, weights={"kl_z": 0.5})(trace)
    assert trace.hard is hard
    assert float(trace.latents["z"].value) == pytest.approx(z, rel=1e-4)
    assert float(terms["nll_x"]) == pytest.approx(((1 - z) ** 2 + (2 + z) ** 2) / 2 + LOG_2PI, rel=1e-4)
    assert float(terms["kl_z"]) == pytest.approx(0.75 * KL_SLAB + KL_GATE, abs=1e-5)
    assert float(loss) == pytest.approx(float(terms["nll_x"] + 0.5 * terms["kl_z"]), rel=1e-6)
    if hard:
        # on: log 1/2 - log 3/4 + (log p(z) - log q(z)) of the slab; off: log 1/2 - log 1/4
        latent = math.log(0.5 / 0.75) - 1.125 + 0.5 - math.log(2) if z else math.log(2)
        assert float(log_weights(trace)) == pytest.approx(-float(terms["nll_x"]) + latent, abs=1e-5)
    else:
        with pytest.raises(ValueError, match="hard"):
            log_weights(trace)


def test_tiny_numbers() -> None:
    """The numbers themselves, so that the formulas above are not taken on trust."""
    assert pytest.approx(0.8181472, abs=1e-7) == KL_SLAB
    assert pytest.approx(0.1308120, abs=1e-7) == KL_GATE
    trace = tiny_vsc(ScaledSigmoid(50.0))(X, Draw(Given(1.0, 0.3), hard=False))
    assert float(kl(trace)["kl_z"]) == pytest.approx(0.7444224, abs=1e-5)
    assert float(nll(trace)["nll_x"]) == pytest.approx(7.6456758, abs=1e-3)


# -- the objective ---------------------------------------------------------------------------------------------------


def two_sites() -> Trace:
    """Two latent and two observed sites on three rows."""
    standard = normal(torch.zeros(2), torch.ones(2))
    q = normal(torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]]), torch.ones(3, 2))
    s = SpikeSlab(torch.zeros(3, 1), torch.zeros(3, 1), torch.ones(3, 1))
    sites = {
        "z": Site(q, standard, q.mean),
        "s": Site(s, SpikeSlab(torch.full((1,), logit(0.25)), torch.zeros(1), torch.ones(1)), torch.ones(3, 1)),
    }
    one = normal(torch.zeros(3, 1), torch.ones(3, 1))
    return Trace(sites, {"x": Observed(one, torch.ones(3, 1)), "y": Observed(one, torch.zeros(3, 1))}, True)


def test_every_site_gives_a_term_of_its_own_name() -> None:
    """KL of z: 0, 1/2 and 2 a row; of s: log(1/2) - (log 1/4 + log 3/4)/2 = .1438410."""
    trace = two_sites()
    assert kl(trace)["kl_z"].tolist() == pytest.approx([0.0, 0.5, 2.0])
    assert kl(trace)["kl_s"].tolist() == pytest.approx([0.1438410] * 3)
    assert nll(trace)["nll_x"].tolist() == pytest.approx([0.5 + LOG_2PI / 2] * 3)
    loss, terms = Objective(nll, kl, weights={"kl_s": 10.0, "nll_y": 0.0})(trace)
    assert set(terms) == {"nll_x", "nll_y", "kl_z", "kl_s"}
    assert float(loss) == pytest.approx(0.5 + LOG_2PI / 2 + 2.5 / 3 + 1.438410, abs=1e-5)
    assert float(log_weights(trace)[1]) == pytest.approx(  # z = loc, so that log p - log q = -KL; s = 1 both alike
        -(0.5 + LOG_2PI) - 0.5 + math.log(0.25) - math.log(0.5), abs=1e-5
    )


def test_an_unknown_weight_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"unknown terms \['kl_w'\]; this model has \['kl_s', 'kl_z', 'nll_x', 'nll_y'\]"
    ):
        Objective(nll, kl, weights={"kl_w": 1.0, "kl_z": 1.0})(two_sites())


def test_weights_are_knobs_and_no_part_of_the_state() -> None:
    objective = Objective(nll, kl, weights={"kl_z": 1.0})
    assert objective.state_dict() == {}
    before, terms = objective(two_sites())
    (weight,) = knobs(torch.nn.Identity(), objective)["kl_z"]
    weight.fill_(0.0)
    after, same = objective(two_sites())
    assert float(before - after) == pytest.approx(float(terms["kl_z"]))
    assert float(same["kl_z"]) == float(terms["kl_z"])  # terms are measured unweighted


def test_a_weight_moves_the_loss_and_never_a_bound() -> None:
    """Bounds see the model alone: no weight can reach them."""
    model = tiny_vsc(ScaledSigmoid(50.0))
    trace = model(X, Draw(Given(1.0, 0.3), hard=True))
    before = bounds(model, X, 5).elbo
    losses = [float(Objective(nll, kl, weights={"kl_z": beta})(trace)[0]) for beta in (0.0, 1.0, 4.0)]
    assert losses[2] - losses[0] == pytest.approx(4 * (0.75 * KL_SLAB + KL_GATE), abs=1e-4)
    assert torch.equal(bounds(model, X, 5).elbo, before)
    # with unit weight the loss is minus the ELBO in the mean over draws
    many = model(X.repeat(4000, 1), Draw(Fresh(torch.Generator().manual_seed(0)), hard=True))
    loss, _ = Objective(nll, kl)(many)
    weights = log_weights(many)
    assert float(loss) == pytest.approx(-float(weights.mean()), abs=4 * float(weights.std()) / 4000**0.5)


# -- free bits -------------------------------------------------------------------------------------------------------


def test_free_bits_by_hand() -> None:
    """Batch means of unit KLs are (1/6, 2/3) for z and .1438410 for s; each counts at least its floor."""
    for floor, z, s in (
        (0.1, 1 / 6 + 2 / 3, 0.1438410),
        (0.3, 0.3 + 2 / 3, 0.3),
        (1.0, 2.0, 1.0),
        (0.0, 2.5 / 3, 0.1438410),
    ):
        _, terms = Objective(nll, free_bits(floor))(two_sites())
        assert float(terms["kl_z"]) == pytest.approx(z, abs=1e-6)
        assert float(terms["kl_s"]) == pytest.approx(s, abs=1e-6)


def test_free_bits_remove_the_pressure_below_the_floor() -> None:
    loc = torch.tensor([[0.1, 2.0], [0.1, 1.0]], requires_grad=True)
    q, p = normal(loc, torch.ones(2, 2)), normal(torch.zeros(2), torch.ones(2))
    trace = Trace({"z": Site(q, p, loc)}, {}, True)
    free_bits(0.5)(trace)["kl_z"].sum().backward()
    assert loc.grad[:, 0].tolist() == [0.0, 0.0]
    assert loc.grad[:, 1].tolist() == pytest.approx([1.0, 0.5])  # loc/B: the gradient of the mean KL


def test_a_trace_of_repeated_rows_is_an_average_over_draws() -> None:
    """n_samples draws are repeated rows: the loss is the mean over all of them."""
    model = tiny_vae()

    class TwoDraws(Given):
        def normal(self, like: Tensor) -> Tensor:
            return torch.tensor([[1.0], [-1.0]])

    both, _ = Objective(nll, kl)(model(X.repeat(2, 1), Draw(TwoDraws(0.0), hard=False)))
    each = [float(Objective(nll, kl)(model(X, Draw(Given(eps), hard=False)))[0]) for eps in (1.0, -1.0)]
    assert float(both) == pytest.approx(sum(each) / 2, rel=1e-6)
