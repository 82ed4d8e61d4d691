"""Gates, the tape and per-row noise: the right distributions, and no dependence on anything but what they say."""

import math
from itertools import combinations

import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sparsevae.distributions.gaussian import Point, normal
from sparsevae.distributions.mixtures import TwoNormals
from sparsevae.distributions.spike_slab import SpikeSlab, logit
from sparsevae.latent.bounds import SPREAD
from sparsevae.latent.objective import Objective, kl, nll
from sparsevae.sampling.choices import BITS, switch
from sparsevae.sampling.draw import Draw
from sparsevae.sampling.gradients import GATES, AlwaysOn, Estimator, ScaledSigmoid, StraightThroughConcrete
from sparsevae.sampling.noise import Fresh, PerRow, Tape, mix, row_keys
from sparsevae.training.knobs import knobs

# An even grid of uniforms, in double precision: expectations over u without Monte Carlo error.
GRID = (torch.arange(400_000, dtype=torch.float64) + 0.5) / 400_000


def random_state() -> tuple[Tensor, str]:
    return torch.get_rng_state(), str(np.random.get_state())  # noqa: NPY002 (the user's own state is the point)


KNOBBED = [name for name, gate in GATES.items() if gate.knobs]

# -- gates -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("p_on", [0.001, 0.1, 0.5, 0.9, 0.999])
@pytest.mark.parametrize(
    "gate", [ScaledSigmoid(10.0), ScaledSigmoid(200.0), StraightThroughConcrete(0.1), StraightThroughConcrete(5.0)]
)
def test_a_gate_is_above_one_half_with_probability_p_on(gate: torch.nn.Module, p_on: float) -> None:
    logits = torch.full_like(GRID, logit(p_on))
    weight = gate(BITS, logits, GRID)
    assert float((weight > 0.5).double().mean()) == pytest.approx(p_on, abs=2e-6)
    assert torch.equal(weight > 0.5, switch(logits, GRID))
    assert 0 <= float(weight.min()) <= float(weight.max()) <= 1


@pytest.mark.parametrize("c", [10.0, 50.0, 100.0, 200.0])
@pytest.mark.parametrize("p_on", [1e-9, 0.03, 0.5, 0.97, 1 - 1e-9])
def test_mean_of_the_scaled_sigmoid_is_not_p_on(c: float, p_on: float) -> None:
    """E[w] = (softplus(c p) - softplus(c (p - 1)))/c, the integral over u; log(2)/c at p = 0 (erratum 4)."""
    mean = float(ScaledSigmoid(c)(BITS, torch.full_like(GRID, logit(p_on)), GRID).mean())
    closed = (np.logaddexp(0, c * p_on) - np.logaddexp(0, c * (p_on - 1))) / c
    assert mean == pytest.approx(closed, abs=1e-6)
    if p_on < 1e-6:
        assert mean == pytest.approx(math.log(2) / c, abs=1e-5)  # up to softplus(-c)/c


def test_the_leak_of_the_paper_s_gate() -> None:
    """w > .01 where u > 1 - log(99)/c: at p_on = 0 and c = 50, 9 % of the draws."""
    weight = ScaledSigmoid(50.0)(BITS, torch.full_like(GRID, -math.inf), GRID)
    assert float((weight > 0.01).double().mean()) == pytest.approx(0.0919, abs=1e-3)


def test_straight_through_is_hard_forward_and_relaxed_backward() -> None:
    u = torch.rand(500, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    logits = torch.tensor([-2.0, 0.0, 1.5], dtype=torch.float64).requires_grad_()
    gate = StraightThroughConcrete(0.7)
    weight = gate(BITS, logits.expand(500, 3), u)
    assert set(weight.detach().unique().tolist()) == {0.0, 1.0}
    (got,) = torch.autograd.grad(weight.sum(), logits)
    soft = torch.sigmoid((logits + torch.log(u / (1 - u))) / 0.7)
    (wanted,) = torch.autograd.grad(soft.sum(), logits)
    assert torch.allclose(got, wanted, rtol=1e-6)  # the temperature is a float32 buffer
    assert bool((got > 0).all())


def test_scaled_sigmoid_gradient() -> None:
    u = torch.rand(20, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    logits = torch.tensor([-2.0, 0.0, 1.5], dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(lambda a: ScaledSigmoid(20.0)(BITS, a.expand(20, 3), u), logits)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.floats(-14, 14), st.floats(2.0**-20, 1 - 2.0**-20), st.floats(10, 200), st.floats(0.1, 5))
def test_hard_and_relaxed_see_the_same_zeros(a: float, u: float, sharpness: float, temperature: float) -> None:
    logits, noise = torch.tensor([[a]], dtype=torch.float64), torch.tensor([[u]], dtype=torch.float64)
    on = bool(switch(logits, noise))
    for gate in (ScaledSigmoid(sharpness), StraightThroughConcrete(temperature)):
        assert (float(gate(BITS, logits, noise)) > 0.5) == on
    q = SpikeSlab(logits, torch.ones(1, 1), torch.ones(1, 1), StraightThroughConcrete(temperature))
    eps = torch.full((1, 1), 0.25, dtype=torch.float64)
    assert float(q.draw(eps, noise, hard=True)) == float(q.draw(eps, noise, hard=False)) == (1.25 if on else 0.0)


def test_certain_gates() -> None:
    """Infinite logits, and noise at both ends of what a source can give."""
    u = torch.tensor([[2.0**-25], [0.5], [1 - 2.0**-24]])
    for a, on in ((math.inf, True), (-math.inf, False)):
        logits = torch.full((3, 1), a)
        assert switch(logits, u).tolist() == [[on]] * 3
        assert StraightThroughConcrete()(BITS, logits, u).tolist() == [[float(on)]] * 3
        assert torch.isfinite(ScaledSigmoid()(BITS, logits, u)).all()
    assert AlwaysOn()(BITS, torch.full((3, 1), math.inf), u).tolist() == [[1.0]] * 3


@pytest.mark.parametrize("name", KNOBBED)
def test_knobs_drive_gates(name: str) -> None:
    gate, other = GATES[name](1.0), GATES[name](3.0)
    (knob,) = gate.knobs
    u = torch.tensor([[0.3, 0.6]])
    logits = torch.tensor([[0.5, -0.2]]).requires_grad_()

    def gradient(gate: Estimator) -> torch.Tensor:
        return torch.autograd.grad(gate(BITS, gate.distribution_logits(logits), u).sum(), logits)[0]

    before = gradient(gate)
    (buffer,) = knobs(gate, Objective(nll, kl))[knob]
    buffer.fill_(3.0)
    after, wanted = gradient(gate), gradient(other)
    assert torch.equal(after, wanted)
    assert not torch.allclose(before, after)


@pytest.mark.parametrize("members", [(3,), (2, 3)])
@pytest.mark.parametrize("name", KNOBBED)
def test_one_knob_value_per_member(name: str, members: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(0)
    values = 1 + torch.rand(*members, generator=generator)
    gate = GATES[name](1.0)
    setattr(gate, gate.knobs[0], values)
    u = torch.rand(*members, 4, 5, generator=generator)
    logits = torch.randn(*members, 4, 5, generator=generator).requires_grad_()
    weight = gate(BITS, gate.distribution_logits(logits), u)
    (gradient,) = torch.autograd.grad(weight.sum(), logits)
    for m in np.ndindex(*members):
        alone = GATES[name](float(values[m]))
        one = logits[m].detach().requires_grad_()
        own = alone(BITS, alone.distribution_logits(one), u[m])
        assert torch.allclose(own, weight[m])
        assert torch.allclose(torch.autograd.grad(own.sum(), one)[0], gradient[m])


# -- draws -----------------------------------------------------------------------------------------------------------


def test_draws_are_functions_of_their_noise() -> None:
    class Fixed:
        def normal(self, like: Tensor) -> Tensor:
            return torch.full_like(like, 2.0)

        def uniform(self, like: Tensor) -> Tensor:
            return torch.full_like(like, 0.3)

    q = SpikeSlab(
        torch.tensor([[logit(0.75), logit(0.6)]]), torch.ones(1, 2), torch.full((1, 2), 0.5), ScaledSigmoid(10.0)
    )
    assert Draw(Fixed(), hard=True)(q).tolist() == [[2.0, 0.0]]  # on where u > 1 - p_on
    relaxed = [2 / (1 + math.exp(-10 * (0.3 - 0.25))), 2 / (1 + math.exp(-10 * (0.3 - 0.4)))]
    assert Draw(Fixed(), hard=False)(q)[0].tolist() == pytest.approx(relaxed, rel=1e-6)
    assert Draw(Fixed(), hard=True)(normal(torch.ones(1, 2), torch.full((1, 2), 0.5))).tolist() == [[2.0, 2.0]]
    pixels = torch.distributions.Independent(torch.distributions.Bernoulli(logits=q.logits), 1)
    assert Draw(Fixed(), hard=True)(pixels).tolist() == [[1.0, 0.0]]
    laplace = torch.distributions.Laplace(torch.ones(1, 2), torch.full((1, 2), 0.5))
    assert Draw(Fixed(), hard=True)(laplace)[0].tolist() == pytest.approx([1 + 0.5 * math.log(0.6)] * 2)  # F(x) = .3
    assert Draw(Fixed(), hard=False)(Point(torch.tensor([[3.0]]))).tolist() == [[3.0]]
    two = TwoNormals(torch.tensor([0.8, 0.2]), 0.05, 2)  # narrow where u < off
    assert Draw(Fixed(), hard=False)(two).tolist() == pytest.approx([0.1, 2.0])
    with pytest.raises(TypeError, match=r"no draw is defined for a Cauchy; use one of: .*Laplace.*Normal"):
        Draw(Fixed(), hard=True)(torch.distributions.Cauchy(torch.zeros(1), torch.ones(1)))


def test_laplace_draws_follow_their_distribution_and_stay_finite() -> None:
    q = torch.distributions.Laplace(torch.full((50_000,), 2.0), torch.full((50_000,), 0.1))
    x = Draw(Fresh(torch.Generator().manual_seed(0)), hard=True)(q)
    assert scipy.stats.kstest(x.double().numpy(), scipy.stats.laplace(2, 0.1).cdf).pvalue > 1e-3
    assert float(x.double().var()) == pytest.approx(0.02, rel=0.05)

    class Ends:
        """The least and the greatest number that a source of uniforms may give."""

        def uniform(self, like: Tensor) -> Tensor:
            return torch.tensor([2.0**-25, 1 - 2.0**-24])

    ends = Draw(Ends(), hard=True)(torch.distributions.Laplace(torch.zeros(2), torch.ones(2)))
    assert bool(torch.isfinite(ends).all())
    assert ends.sign().tolist() == [-1.0, 1.0]


def test_no_source_touches_the_global_random_state() -> None:
    before = random_state()
    like = torch.zeros(5, 4)
    tape = Tape(3, torch.device("cpu"))
    for source in (Fresh(torch.Generator().manual_seed(0)), tape, PerRow(torch.arange(5), 0)):
        source.normal(like), source.uniform(like)
    tape.refill(1)
    after = random_state()
    assert torch.equal(before[0], after[0])
    assert before[1] == after[1]


def test_noise_carries_no_gradient_and_its_dtype() -> None:
    like = torch.zeros(5, 4, dtype=torch.float64, requires_grad=True)
    for source in (Fresh(torch.Generator().manual_seed(0)), Tape(0, torch.device("cpu")), PerRow(torch.arange(5), 0)):
        for noise in (source.normal(like), source.uniform(like)):
            assert noise.dtype == torch.float64
            assert noise.shape == like.shape
            assert not noise.requires_grad


# -- the tape --------------------------------------------------------------------------------------------------------


def recorded(seed: int) -> Tape:
    tape = Tape(seed, torch.device("cpu"))
    for shape in ((7, 3), (5,)):
        tape.normal(torch.zeros(shape)), tape.uniform(torch.zeros(shape))
    return tape


def replay(tape: Tape, step: int) -> list[Tensor]:
    tape.refill(step)
    out = []
    for shape in ((7, 3), (5,)):
        out += [tape.normal(torch.zeros(shape)).clone(), tape.uniform(torch.zeros(shape)).clone()]
    return out


def test_refill_is_a_function_of_seed_and_step() -> None:
    one, two = recorded(4), recorded(4)
    replay(one, 0), replay(one, 1)  # a history of its own must not matter
    for step in (12, 3, 12):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(step)  # nor must the global state
            wanted = replay(two, step)
        assert all(torch.equal(a, b) for a, b in zip(replay(one, step), wanted, strict=True))
    base = replay(one, 3)
    for other in (replay(one, 4), replay(recorded(5), 3)):
        assert not any(torch.equal(a, b) for a, b in zip(base, other, strict=True))


def test_the_tape_hands_out_the_same_buffers_in_order() -> None:
    """Static buffers are what a captured graph reads: a refill writes into them, it does not replace them."""
    tape = recorded(0)
    places = [b.data_ptr() for b in (*tape.normals, *tape.uniforms)]
    for step in range(3):
        replay(tape, step)
    assert [b.data_ptr() for b in (*tape.normals, *tape.uniforms)] == places
    assert [tuple(b.shape) for b in tape.normals] == [(7, 3), (5,)]


def test_tape_noise_has_the_right_distribution() -> None:
    tape = Tape(1, torch.device("cpu"))
    tape.normal(torch.zeros(100, 10)), tape.uniform(torch.zeros(100, 10))
    normals, uniforms = [], []
    for step in range(20):
        tape.refill(step)
        normals.append(tape.normals[0].flatten().clone())
        uniforms.append(tape.uniforms[0].flatten().clone())
    assert_distribution(torch.cat(normals), torch.cat(uniforms))
    assert_uncorrelated(torch.stack(normals))
    assert 0 < float(torch.cat(uniforms).min()) < float(torch.cat(uniforms).max()) < 1


WORDS = st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=3)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(WORDS, WORDS)
def test_mix_spreads_and_fits_a_generator(words: list[int], others: list[int]) -> None:
    seed = mix(*words)
    assert 0 <= seed < 2**63
    torch.Generator().manual_seed(seed)
    assert mix(*words, 0) != seed
    assert (mix(*others) == seed) == (words == others)
    assert mix(*(w - 2**64 for w in words)) == seed  # integers count modulo 2^64


def test_mix_has_no_near_collisions_on_small_seeds_and_steps() -> None:
    seeds = [mix(a, b) for a in range(60) for b in range(60)]
    assert len(set(seeds)) == 3600
    bits = np.array([[s >> k & 1 for k in range(63)] for s in seeds])
    assert abs(bits.mean(0) - 0.5).max() < 5 * 0.5 / 60  # every bit is on half of the time


def test_mix_takes_numpy_integers() -> None:
    assert mix(np.int64(-3), np.uint8(2)) == mix(-3, 2)


# -- per-row noise ---------------------------------------------------------------------------------------------------


def assert_distribution(normals: Tensor, uniforms: Tensor) -> None:
    assert scipy.stats.kstest(normals.double().numpy().ravel(), "norm").pvalue > 1e-3
    assert scipy.stats.kstest(uniforms.double().numpy().ravel(), "uniform").pvalue > 1e-3


def assert_uncorrelated(rows: Tensor) -> None:
    """No pair of rows of (k, n) correlates, whether by rank or in size, beyond what n allows."""
    n = rows.shape[1]
    for a, b in combinations(rows.double().numpy(), 2):
        for f in (lambda v: v, np.abs):
            assert abs(np.corrcoef(f(a), f(b))[0, 1]) < 5 / n**0.5


def noise(keys: Tensor, seed: int, units: int) -> tuple[Tensor, Tensor]:
    source, like = PerRow(keys, seed), torch.zeros(len(keys), units)
    return source.normal(like), source.uniform(like)


def test_per_row_noise_has_the_right_distribution() -> None:
    """Standard normal and uniform over rows, units, samples and seeds, each on its own; sequential keys included."""
    x = torch.randn(2000, 3, generator=torch.Generator().manual_seed(0))
    for keys in (row_keys(x), torch.arange(2000), torch.arange(2000) << 40):
        normals, uniforms = noise(keys, 0, 20)
        assert_distribution(normals, uniforms)
        assert_distribution(normals[:, 0], uniforms[:, 0])
        assert_uncorrelated(normals.T[:6])  # between units
        assert_uncorrelated(uniforms.T[:6])
        assert_uncorrelated(torch.stack([normals[:, 0], normals[:, 0].roll(1), normals[:, 0].roll(2)]))  # between rows
        assert_uncorrelated(torch.stack([normals[:, 0], uniforms[:, 0], uniforms[:, 1]]))
    one_row, one_row_u = noise(row_keys(x)[:1], 0, 20_000)
    assert_distribution(one_row, one_row_u)


def test_per_row_noise_is_independent_between_seeds_samples_and_sites() -> None:
    x = torch.randn(3000, 3, generator=torch.Generator().manual_seed(0))
    keys = row_keys(x)
    assert_uncorrelated(torch.stack([noise(keys, seed, 1)[0][:, 0] for seed in (0, 1, 2, 2**31, 2**62)]))
    ODD = torch.tensor(SPREAD)
    samples = torch.stack([noise(keys + k * ODD, 0, 1)[0][:, 0] for k in range(1, 6)])
    assert_uncorrelated(samples)
    assert_distribution(samples, torch.stack([noise(keys + k * ODD, 0, 1)[1][:, 0] for k in range(1, 6)]))
    source, like = PerRow(keys, 0), torch.zeros(3000, 1)
    assert_uncorrelated(torch.stack([source.normal(like)[:, 0] for _ in range(4)]))


def test_nearly_equal_rows_get_unrelated_noise() -> None:
    """Rows that differ by one pixel, or by one bit, or hold the same values in another order."""
    base = torch.zeros(1, 784)
    one_pixel = torch.eye(784)
    keys = row_keys(torch.cat([base, one_pixel, 2 * one_pixel, torch.nextafter(one_pixel, torch.ones(1) * 2)[:700]]))
    assert len(keys.unique()) == len(keys)
    normals, uniforms = noise(keys, 0, 5)
    assert_distribution(normals, uniforms)
    assert_uncorrelated(normals.T)
    first, second = noise(keys[1:785], 0, 1)[0][:, 0], noise(keys[785:1569], 0, 1)[0][:, 0]
    assert_uncorrelated(torch.stack([first, second]))
    pair = torch.tensor([[1.0, 2.0], [2.0, 1.0]])
    assert row_keys(pair)[0] != row_keys(pair)[1]


def test_a_row_key_depends_on_nothing_but_the_row() -> None:
    x = torch.randn(50, 6, generator=torch.Generator().manual_seed(0))
    x[::3, 2] = 0.0
    keys = row_keys(x)
    assert torch.equal(row_keys(torch.where(x == 0, -0.0, x)), keys)  # -0.0 is 0.0
    assert torch.equal(row_keys(x.flip(0)).flip(0), keys)
    assert torch.equal(torch.cat([row_keys(part) for part in x.split(7)]), keys)
    assert torch.equal(row_keys(x.T.contiguous().T), keys)  # whatever the memory layout
    assert torch.equal(row_keys(x.double()), keys)
    assert torch.equal(row_keys(x.reshape(5, 10, 6)).flatten(), keys)
    assert len(keys.unique()) == 50
    assert not torch.equal(row_keys(torch.cat([x, torch.zeros(50, 1)], 1)), keys)  # one more column, even of zeros


def test_per_row_noise_is_the_same_wherever_the_row_stands() -> None:
    keys = row_keys(torch.randn(53, 6, generator=torch.Generator().manual_seed(0)))
    normals, uniforms = noise(keys, 7, 11)
    order = torch.randperm(53, generator=torch.Generator().manual_seed(1))
    for got, wanted in zip(noise(keys[order], 7, 11), (normals, uniforms), strict=True):
        assert torch.equal(got, wanted[order])
    for i in range(0, 53, 5):
        for got, wanted in zip(noise(keys[i : i + 5], 7, 11), (normals, uniforms), strict=True):
            assert torch.equal(got, wanted[i : i + 5])
    assert torch.equal(noise(keys, 7, 4)[0], normals[:, :4])  # and does not depend on how many units follow


def test_uniform_noise_stays_inside_the_open_interval() -> None:
    source = PerRow(torch.arange(200_000), 0)
    uniforms = source.uniform(torch.zeros(200_000, 4))
    assert 0 < float(uniforms.min()) < 1e-4
    assert 1 - 1e-4 < float(uniforms.max()) < 1
    assert torch.isfinite(source.normal(torch.zeros(200_000, 4))).all()


@pytest.mark.parametrize("p_on", [0.001, 0.02, 0.5, 0.98])
def test_hard_draws_are_on_with_probability_p_on(p_on: float) -> None:
    q = SpikeSlab(torch.full((20_000, 5), logit(p_on)), torch.zeros(20_000, 5), torch.ones(20_000, 5))
    z = Draw(PerRow(torch.arange(20_000), 0), hard=True)(q)
    assert scipy.stats.binomtest(int((z != 0).sum()), 100_000, p_on).pvalue > 1e-3
    assert scipy.stats.kstest(z[z != 0].double().numpy(), "norm").pvalue > 1e-3
