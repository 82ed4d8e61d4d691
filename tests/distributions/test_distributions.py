"""SpikeSlab and its divergences: through the shipped checks, against Monte Carlo, and at the edges."""

import math
import warnings
from itertools import pairwise

import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.distributions import Bernoulli, Gumbel, Independent, Normal, kl_divergence

from sparsevae.distributions.gaussian import Point, normal, normal_by_variance, normal_kl
from sparsevae.distributions.kl import divergence, unit_divergence
from sparsevae.distributions.spike_slab import SpikeSlab, bernoulli_kl, logit, spike_slab_kl
from sparsevae.sampling.gradients import AlwaysOn, ScaledSigmoid, StraightThroughConcrete
from sparsevae.testing import check_distribution

INF = math.inf


def tensors(*rows: list[float]) -> list[Tensor]:
    return [torch.tensor(row, dtype=torch.float64) for row in rows]


# -- one table of distributions through the shipped checks -----------------------------------------------------------

SPIKE_SLABS = {
    # name: (logits, loc, scale), (the same of a prior)
    "plain": (
        ([-1.0, 0.0, 2.0], [0.5, 0.0, -2.0], [1.0, 0.3, 2.0]),
        ([-2.2, 0.0, 1.0], [0.0, 0.0, 0.0], [1.0, 1.0, 1.0]),
    ),
    "sparse": (([-3.0, -4.0], [1.0, -1.0], [0.5, 1.0]), ([-4.6, -4.6], [0.0, 0.0], [1.0, 1.0])),
    "nearly always on": (([6.0, 5.0], [0.3, 3.0], [1.0, 0.1]), ([3.0, 4.0], [0.0, 0.0], [1.0, 1.0])),
    "never off": (([INF, INF], [0.3, -1.0], [1.0, 0.5]), ([INF, INF], [0.0, 0.0], [1.0, 2.0])),
    "never off, prior may be": (([INF, INF], [0.3, -1.0], [1.0, 0.5]), ([1.0, 0.0], [0.0, 0.0], [1.0, 2.0])),
    "never on": (([-INF, -INF], [0.3, -1.0], [1.0, 0.5]), ([1.0, -2.0], [0.0, 0.0], [1.0, 2.0])),
    "tiny and huge slabs": (
        ([0.0, 1.0, -1.0], [0.0, 7.0, 0.0], [1e-4, 1e-4, 1e3]),
        ([0.0, 0.0, 0.0], [0.0, 7.0, 0.0], [1e-4, 1e-3, 1e3]),
    ),
    "far slabs": (([0.5, -0.5], [100.0, -1e3], [1.0, 0.1]), ([0.0, 0.0], [90.0, -1e3], [2.0, 0.2])),
}


@pytest.mark.parametrize("name", SPIKE_SLABS)
def test_spike_slab_agrees_with_itself(name: str) -> None:
    q, p = SPIKE_SLABS[name]
    check_distribution(SpikeSlab, tensors(*q), other=tensors(*p), atoms=(0.0,), reach=tuple(tensors(*q)[1:]))


@pytest.mark.parametrize("gate", [ScaledSigmoid(20.0), StraightThroughConcrete(1.0), AlwaysOn()])
def test_gates_leave_shapes_and_densities_alone(gate: torch.nn.Module) -> None:
    q, p = SPIKE_SLABS["plain"]
    check_distribution(lambda *a: SpikeSlab(*a, gate), tensors(*q), other=tensors(*p), atoms=(0.0,))


def test_normal_agrees_with_itself() -> None:
    q, p = tensors([0.0, 3.0, -50.0], [1.0, 1e-3, 40.0]), tensors([0.1, 3.0, 0.0], [1.0, 2e-3, 50.0])
    check_distribution(normal, q, other=p)


class Broken(SpikeSlab):
    """A spike-and-slab with one thing wrong at a time: the checks must notice."""

    fault = ""

    def expand(self, batch_shape: torch.Size, _instance: object = None) -> "Broken":
        shape = torch.Size(batch_shape) + self.event_shape
        return type(self)(self.logits.expand(shape), self.loc.expand(shape), self.scale.expand(shape))

    def log_prob(self, value: Tensor) -> Tensor:
        out = super().log_prob(value)
        return out + 0.01 if self.fault == "total probability" else out

    @property
    def mean(self) -> Tensor:
        return super().mean + (0.02 if self.fault == "`mean`" else 0.0)

    @property
    def variance(self) -> Tensor:
        return super().variance * (1.05 if self.fault == "`variance`" else 1.0)

    def entropy(self) -> Tensor:
        out = super().entropy()
        return {"`entropy`": out + 0.05, "entropy is not finite": out + (self.loc - self.loc).sqrt().sum(-1)}.get(
            self.fault, out
        )

    def rsample(self, *shape: torch.Size) -> Tensor:
        out = super().rsample(*shape)
        return out[None] if self.fault == "rsample" else out


@pytest.mark.parametrize(
    "fault", ["total probability", "`mean`", "`variance`", "`entropy`", "rsample", "entropy is not finite"]
)
def test_the_checks_notice_a_fault(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from sparsevae.distributions import kl as distributions

    monkeypatch.setitem(distributions._RULES, (Broken, Broken), distributions._RULES[SpikeSlab, SpikeSlab])
    monkeypatch.setattr(Broken, "fault", "")
    arguments = tensors([-1.0, 1.0], [0.5, -1.0], [1.0, 0.5])
    check_distribution(Broken, arguments, atoms=(0.0,))
    monkeypatch.setattr(Broken, "fault", fault)
    with pytest.raises(AssertionError, match=fault):
        check_distribution(Broken, arguments, atoms=(0.0,))


def test_the_checks_notice_a_wrong_divergence(monkeypatch: pytest.MonkeyPatch) -> None:
    from sparsevae.distributions import kl as distributions

    def printed(q: SpikeSlab, p: SpikeSlab) -> Tensor:  # erratum 1: sigma where sigma^2 belongs
        slab = (p.scale / q.scale).log() + (q.scale + (q.loc - p.loc).square()) / (2 * p.scale) - 0.5
        return q.p_on * slab + bernoulli_kl(q.logits, p.logits)

    wrong = distributions._RULES[SpikeSlab, SpikeSlab]._replace(kl=printed)
    monkeypatch.setitem(distributions._RULES, (SpikeSlab, SpikeSlab), wrong)
    q, p = SPIKE_SLABS["plain"]
    with pytest.raises(AssertionError, match=r"closed-form KL|KL\(q \|\| q\)"):
        check_distribution(SpikeSlab, tensors(*q), other=tensors(*p), atoms=(0.0,))


def test_the_checks_leave_the_random_state_alone() -> None:
    before = torch.get_rng_state()
    check_distribution(SpikeSlab, tensors([0.0], [0.0], [1.0]), atoms=(0.0,), n_samples=1000)
    assert torch.equal(torch.get_rng_state(), before)


# -- the divergence of hard cases against Monte Carlo ----------------------------------------------------------------

NEAR_0, NEAR_1 = logit(1e-6), -logit(1e-6)
P_ON = {"1e-6": NEAR_0, ".01": logit(0.01), ".5": 0.0, "1-1e-6": NEAR_1}
SLABS = {  # loc and scale of q, loc and scale of p
    "standard": (0.3, 0.5, 0.0, 1.0),
    "tiny posterior": (0.0, 1e-4, 0.0, 1.0),
    "huge posterior": (0.0, 1e3, 0.0, 1.0),
    "both tiny": (1e-4, 1e-4, 0.0, 2e-4),
    "both huge": (500.0, 1e3, 0.0, 2e3),
    "far": (50.0, 1.0, 0.0, 1.0),
    "far and tiny": (-20.0, 1e-4, 0.0, 1.0),
    "huge prior": (0.0, 1.0, 0.0, 1e3),
}


@pytest.mark.parametrize("alpha", P_ON)
@pytest.mark.parametrize("p_on", P_ON)
@pytest.mark.parametrize("slab", SLABS)
def test_kl_is_the_mean_log_density_ratio(slab: str, p_on: str, alpha: str) -> None:
    """KL(q||p) = E_q[log q - log p] with densities on the mixed measure, by Monte Carlo from scipy and numpy alone.

    Gates are drawn evenly and weighted back to q (w = q(gate)/.5), so that p_on = 1e-6 is seen as often as 1 - 1e-6:
    both halves of the sum then have small errors of their own, and a wrong factor in either would show.
    """
    loc_q, scale_q, loc_p, scale_p = SLABS[slab]
    a, b = P_ON[p_on], P_ON[alpha]
    rng = np.random.default_rng(0)
    n = 20_000
    z = scipy.stats.norm.rvs(loc_q, scale_q, n, random_state=rng)
    slab_ratio = scipy.stats.norm.logpdf(z, loc_q, scale_q) - scipy.stats.norm.logpdf(z, loc_p, scale_p)
    on = rng.random(n) < 0.5

    def log_p(x: float) -> float:  # log sigmoid(x), not by way of torch
        return -np.logaddexp(0, -x)

    ratio = np.where(on, log_p(a) - log_p(b) + slab_ratio, log_p(-a) - log_p(-b))
    weight = np.where(on, 2 * np.exp(log_p(a)), 2 * np.exp(log_p(-a)))
    terms = weight * ratio

    q = SpikeSlab(*tensors([a], [loc_q], [scale_q]))
    p = SpikeSlab(*tensors([b], [loc_p], [scale_p]))
    got = float(divergence(q, p))
    assert abs(got - terms.mean()) <= 4 * terms.std() / n**0.5 + 1e-9 * abs(got)
    assert got >= 0
    assert float(kl_divergence(q, p)) == got
    # The same with gates summed out exactly, which leaves the slab's error alone: a sharper test of the gate's part.
    exact_gates = math.exp(log_p(a)) * (log_p(a) - log_p(b) + slab_ratio) + math.exp(log_p(-a)) * (
        log_p(-a) - log_p(-b)
    )
    assert abs(got - exact_gates.mean()) <= 4 * exact_gates.std() / n**0.5 + 1e-9 * abs(got)
    # And float32, the training dtype, keeps five digits of it.
    single = divergence(
        *(SpikeSlab(d.logits.float(), d.loc.float(), d.scale.float()) for d in (q, p)),
    )
    assert float(single) == pytest.approx(got, rel=1e-5, abs=2e-7)


def test_the_printed_gaussian_kl_is_wrong() -> None:
    """Erratum 1 (UAI equation 9 prints sigma for sigma^2) and two values of each form."""

    def printed(m1: float, s1: float, m2: float, s2: float) -> float:
        return math.log(s2 / s1) + (s1 + (m1 - m2) ** 2) / (2 * s2) - 0.5

    for case, right, wrong in (((1, 0.3, -0.2, 0.7), 1.90852, 1.59016), ((0, 1, 0, 2), 0.31815, 0.44315)):
        ours = float(normal_kl(*(torch.tensor(float(v), dtype=torch.float64) for v in case)))
        assert ours == pytest.approx(right, abs=5e-6)
        assert printed(*case) == pytest.approx(wrong, abs=5e-6)
        m1, s1, m2, s2 = case
        z = np.linspace(m1 - 12 * s1, m1 + 12 * s1, 200_001)
        q, p = scipy.stats.norm(m1, s1), scipy.stats.norm(m2, s2)
        assert ours == pytest.approx(np.trapezoid(q.pdf(z) * (q.logpdf(z) - p.logpdf(z)), z), abs=1e-9)
    assert printed(0, 2, 0, 1) == pytest.approx(-0.193, abs=5e-4)  # a "divergence" below zero


# -- densities, moments and draws ------------------------------------------------------------------------------------


def test_log_prob_by_hand() -> None:
    """p_on = .25, slab N(1, 2^2): log .75 at zero; log .25 - log 2 - log sqrt(2 pi) - 1/8 at z = 2."""
    d = SpikeSlab(torch.full((1,), logit(0.25)), torch.ones(1), torch.full((1,), 2.0))
    got = d.log_prob(torch.tensor([[0.0], [-0.0], [2.0]]))
    slab = math.log(0.25) - math.log(2) - 0.5 * math.log(2 * math.pi) - 0.125
    assert got.tolist() == pytest.approx([math.log(0.75), math.log(0.75), slab], abs=1e-6)


def test_moments_and_mode_by_hand() -> None:
    """p_on = .25, loc 2, scale 3: mean .5; variance .25 (9 + .75 * 4) = 3; mode 0. At p_on = .75 the mode is 2."""
    d = SpikeSlab(*tensors([logit(0.25), logit(0.75)], [2.0, 2.0], [3.0, 3.0]))
    assert d.mean.tolist() == pytest.approx([0.5, 1.5])
    assert d.variance.tolist() == pytest.approx([3.0, 0.75 * (9 + 0.25 * 4)])
    assert d.mode.tolist() == [0.0, 2.0]
    edge = SpikeSlab(torch.tensor([-1e-3, 0.0, 1e-3]), torch.ones(3), torch.ones(3))
    assert edge.mode.tolist() == [0.0, 0.0, 1.0]  # off at p_on = 1/2 exactly
    assert d.p_on.tolist() == pytest.approx([0.25, 0.75])
    assert d.stddev.tolist() == pytest.approx([3**0.5, 7.5**0.5])


def test_variance_keeps_its_digits_where_the_gate_is_nearly_always_on() -> None:
    """1 - p_on must not be taken from p_on in float32: here it is 1e-6, times loc^2 = 1e6."""
    d = SpikeSlab(torch.full((1,), NEAR_1), torch.full((1,), 1e3), torch.full((1,), 1e-3))
    assert float(d.variance) == pytest.approx(1.000001, rel=1e-5)


def test_hard_draws_have_exact_zeros_and_no_others() -> None:
    d = SpikeSlab(torch.tensor([-2.0, 0.0, INF, -INF]), torch.zeros(4), torch.ones(4))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        z = d.sample(torch.Size([20_000]))
    on = (z != 0).double().mean(0)
    assert on[2] == 1
    assert on[3] == 0
    for rate, p in zip(on[:2], d.p_on[:2], strict=True):
        assert scipy.stats.binomtest(round(float(rate) * 20_000), 20_000, float(p)).pvalue > 1e-4
    assert not z.requires_grad


def test_a_slab_that_lands_on_zero_is_not_mistaken_for_the_spike() -> None:
    """loc + scale * eps rounds to exactly 0 once in 1e8 draws; the log-ratio of a never-off unit must stay finite."""
    q, p = SpikeSlab(*tensors([INF], [1.0], [1.0])), SpikeSlab(*tensors([INF], [0.0], [1.0]))
    for dtype in (torch.float32, torch.float64):
        one = [SpikeSlab(d.logits.to(dtype), d.loc.to(dtype), d.scale.to(dtype)) for d in (q, p)]
        z = one[0].draw(torch.tensor([-1.0], dtype=dtype), torch.tensor([0.5], dtype=dtype), hard=True)
        assert float(z) != 0
        assert float(one[1].log_prob(z) - one[0].log_prob(z)) == pytest.approx(0.5)  # (eps^2 - z^2)/2 at eps = -1


def test_rsample_has_gradients_in_all_three_parameters() -> None:
    arguments = [t.requires_grad_() for t in tensors([-1.0, 1.0], [0.5, -1.0], [1.0, 0.5])]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for gate in (None, ScaledSigmoid(10.0), StraightThroughConcrete(1.0)):
            SpikeSlab(*arguments, gate).rsample(torch.Size([100])).sum().backward()
            assert all(bool((a.grad != 0).all()) for a in arguments)


def test_broadcasting_of_parameters() -> None:
    d = SpikeSlab(torch.zeros(1), torch.zeros(2, 1, 3), torch.ones(4, 1))
    assert (d.batch_shape, d.event_shape) == ((2, 4), (3,))
    assert d.entropy().shape == (2, 4)


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="scale"):
        SpikeSlab(torch.zeros(2), torch.zeros(2), torch.tensor([1.0, 0.0]), validate_args=True)
    with pytest.raises(ValueError, match="logits"):
        SpikeSlab(torch.full((2,), math.nan), torch.zeros(2), torch.ones(2), validate_args=True)
    for bad in (0.0, -0.1, 1.1, math.nan):
        with pytest.raises(ValueError, match=r"probability in \(0, 1\]"):
            logit(bad)


@pytest.mark.parametrize(
    "shapes",
    [
        ((4, 3), (4, 3), (4, 3)),
        ((4, 3), (2, 4, 3), (2, 4, 3)),  # data shared by two members
        ((4, 3), (3,), (3,)),  # a prior
        ((3,), (4, 3), (1,)),
        ((5, 2, 4, 3), (2, 1, 3), (4, 1)),
    ],
)
def test_the_gaussian_density_and_its_gradient_are_torch_s(shapes: tuple[tuple[int, ...], ...]) -> None:
    """Ours is written by hand; broadcasting in every direction included."""
    generator = torch.Generator().manual_seed(0)
    value, loc, raw = (torch.randn(s, generator=generator, dtype=torch.float64) for s in shapes)
    arguments = [t.requires_grad_() for t in (value, loc, raw.exp())]
    ours = normal(arguments[1], arguments[2]).log_prob(arguments[0])
    theirs = Independent(Normal(arguments[1], arguments[2]), 1).log_prob(arguments[0])
    assert torch.allclose(ours, theirs, rtol=1e-12)
    weight = torch.randn(ours.shape, generator=generator, dtype=torch.float64)
    for a, b in zip(
        torch.autograd.grad((ours * weight).sum(), arguments),
        torch.autograd.grad((theirs * weight).sum(), arguments),
        strict=True,
    ):
        assert torch.allclose(a, b, rtol=1e-10)


def test_a_gaussian_by_its_variance_is_the_same_gaussian() -> None:
    """Its root is taken late, and anew for everyone who asks: without gradients or with them."""
    loc, deviation, value = (torch.randn(4, 3, generator=torch.Generator().manual_seed(k)).double() for k in range(3))
    variance = deviation.square().requires_grad_()
    ours, theirs = normal_by_variance(loc, variance), normal(loc, variance.sqrt())
    other = normal(torch.zeros(3).double(), torch.ones(3).double())
    assert torch.allclose(ours.log_prob(value), theirs.log_prob(value), rtol=1e-12)
    assert torch.allclose(divergence(ours, other), divergence(theirs, other), rtol=1e-12)
    assert torch.allclose(divergence(other, ours), divergence(other, theirs), rtol=1e-12)
    for name in ("mean", "variance", "stddev"):
        assert torch.allclose(getattr(ours, name), getattr(theirs, name), rtol=1e-12)
    assert torch.allclose(ours.entropy(), theirs.entropy())
    wide = ours.expand((5, 4))
    assert wide.batch_shape == (5, 4)
    assert torch.allclose(wide.log_prob(value), ours.log_prob(value).expand(5, 4))
    ours.sample()  # without a gradient
    (slope,) = torch.autograd.grad(ours.rsample().sum(), variance)
    assert bool((slope != 0).all())


def test_a_gate_that_is_nearly_certain_still_feels_its_kl() -> None:
    """p (1 - p) is not 0 in float32 where p is rounded to 1: a slab may cost as much as 1 - p is small."""
    for logits in (-40.0, -18.0, 18.0, 40.0):
        slopes = []
        for dtype in (torch.float32, torch.float64):
            a, *others = torch.tensor([logits, 10.0, 0.5, -2.0, 0.0, 1e-3], dtype=dtype)
            a = a.detach().requires_grad_()
            slopes.append(float(torch.autograd.grad(spike_slab_kl(a, *others), a)[0]))
        assert slopes[0] == pytest.approx(slopes[1], rel=1e-4)


@pytest.mark.parametrize("shapes", [((4, 3), (4, 3)), ((4, 3), (3,)), ((2, 4, 3), (2, 1, 3)), ((3,), (4, 1))])
def test_the_gradient_of_the_gates_kl_is_torch_s(shapes: tuple[tuple[int, ...], ...]) -> None:
    generator = torch.Generator().manual_seed(0)
    a, b = ((3 * torch.randn(s, generator=generator, dtype=torch.float64)).requires_grad_() for s in shapes)
    # torch's own does not broadcast
    wide = torch.broadcast_tensors(a, b)
    theirs = kl_divergence(Bernoulli(logits=wide[0]), Bernoulli(logits=wide[1]))
    ours = bernoulli_kl(a, b)
    assert torch.allclose(ours, theirs, rtol=1e-9, atol=1e-12)
    weight = torch.randn(ours.shape, generator=generator, dtype=torch.float64)
    for x, y in zip(
        torch.autograd.grad((ours * weight).sum(), (a, b)),
        torch.autograd.grad((theirs * weight).sum(), (a, b)),
        strict=True,
    ):
        assert torch.allclose(x, y, rtol=1e-7, atol=1e-10)


# -- alpha = 1 exactly -----------------------------------------------------------------------------------------------


def test_never_off_forms_no_log_of_zero() -> None:
    """KL to alpha = 1 is the slab's alone, and neither it nor its gradient meets log(1 - alpha) or 0 * inf."""
    assert logit(1) == logit(1.0) == INF
    loc, scale = (t.requires_grad_() for t in tensors([0.5, -2.0], [0.3, 2.0]))
    inf = torch.full((2,), INF, dtype=torch.float64)
    q, p = SpikeSlab(inf, loc, scale), SpikeSlab(inf, *tensors([0.0, 0.0], [1.0, 1.0]))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Anomaly Detection has been enabled")
        anomaly = torch.autograd.detect_anomaly(check_nan=True)
    with anomaly:
        value = unit_divergence(q, p)
        (
            value.sum() + q.entropy() + q.log_prob(torch.ones(2)) + q.draw(*tensors([1.0, 1.0], [0.5, 0.5]), True).sum()
        ).backward()
    wanted = kl_divergence(Normal(loc, scale), Normal(torch.zeros(2), torch.ones(2)))
    assert torch.allclose(value, wanted, atol=1e-12)
    assert torch.isfinite(loc.grad).all()
    assert torch.isfinite(scale.grad).all()
    assert torch.allclose(q.entropy(), Independent(Normal(loc, scale), 1).entropy())
    assert torch.equal(q.mean, loc)
    assert torch.allclose(q.variance, scale.square())
    assert torch.equal(q.mode, loc)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("a", [0.0, 15.0, 89.0, 104.0, 200.0, 800.0, 1e4, INF])
def test_no_divergence_from_a_certain_gate_is_nan(a: float, dtype: torch.dtype) -> None:
    """KL to a prior that is never off is +inf where q may be off, and 0 where its P(off) has left the dtype."""
    gate = torch.tensor([a], dtype=dtype, requires_grad=True)
    certain = torch.tensor([INF], dtype=dtype)
    may_be_off = float(torch.sigmoid(-gate.detach())) > 0
    for sign in (1, -1):
        value = bernoulli_kl(sign * gate, sign * certain)
        assert float(value.detach()) == pytest.approx(INF if may_be_off else 0.0, abs=1e-30)
        if not may_be_off and a < INF:
            assert float(torch.autograd.grad(value.sum(), gate)[0]) == pytest.approx(0, abs=1e-30)


def test_p_on_and_alpha_to_one_converge_to_the_normal() -> None:
    loc, scale, zero, one = tensors([0.5, -2.0], [0.3, 2.0], [0.0, 0.0], [1.0, 1.0])
    wanted = divergence(normal(loc, scale), normal(zero, one))
    gaps = []
    for k in (1, 2, 4, 6, 8):
        a = torch.full((2,), logit(1 - 10.0**-k), dtype=torch.float64)
        gaps.append(float((divergence(SpikeSlab(a, loc, scale), SpikeSlab(a, zero, one)) - wanted).abs()))
    assert all(b < a / 5 for a, b in pairwise(gaps))
    assert gaps[-1] < 1e-7


# -- pairs -----------------------------------------------------------------------------------------------------------


def test_an_illegal_pair_lists_the_legal_partners() -> None:
    gaussian, spike = normal(torch.zeros(2), torch.ones(2)), SpikeSlab(torch.zeros(2), torch.zeros(2), torch.ones(2))
    gumbel = Independent(Gumbel(torch.zeros(2), torch.ones(2)), 1)
    with pytest.raises(
        TypeError,
        match=r"KL\(Normal \|\| SpikeSlab\).*Normal posterior: Normal, TwoNormals\..*SpikeSlab \|\| SpikeSlab",
    ):
        divergence(gaussian, spike)
    with pytest.raises(
        TypeError, match=r"KL\(SpikeSlab \|\| Normal\).*SpikeSlab posterior: PatternSpikeSlab, Selected, SpikeSlab\."
    ):
        divergence(spike, gaussian)
    with pytest.raises(TypeError, match=r"KL\(Point \|\| SpikeSlab\).*Point posterior: Normal\."):
        divergence(Point(torch.zeros(2)), spike)
    with pytest.raises(TypeError, match="Gumbel posterior: none"):  # although torch itself has a number for it
        divergence(gumbel, gumbel)
    with pytest.raises(TypeError, match="Bernoulli"):
        unit_divergence(Independent(Bernoulli(torch.ones(2) / 2), 1), gaussian)


# -- properties ------------------------------------------------------------------------------------------------------

LOGITS = st.floats(-30, 30)
LOCS = st.floats(-100, 100)
LOG_SCALES = st.floats(-9, 7)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(LOGITS, LOCS, LOG_SCALES, LOGITS, LOCS, LOG_SCALES)
def test_divergence_is_never_negative(a: float, m: float, s: float, b: float, m2: float, s2: float) -> None:
    q = SpikeSlab(*tensors([a], [m], [math.exp(s)]))
    p = SpikeSlab(*tensors([b], [m2], [math.exp(s2)]))
    value = float(divergence(q, p))
    assert value >= -1e-12
    assert math.isfinite(value)
    assert float(divergence(q, q)) == 0
    gates = kl_divergence(Bernoulli(logits=q.logits), Bernoulli(logits=p.logits))
    slabs = kl_divergence(Normal(q.loc, q.scale), Normal(p.loc, p.scale))
    assert value == pytest.approx(float(gates + q.p_on * slabs), rel=1e-9, abs=1e-9)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(LOGITS, LOGITS)
def test_bernoulli_kl_in_single_precision(a: float, b: float) -> None:
    exact = float(bernoulli_kl(*tensors([a], [b])))
    assert float(bernoulli_kl(torch.tensor([a]), torch.tensor([b]))) == pytest.approx(exact, rel=2e-5, abs=3e-6)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_hand_written_gradients_survive_the_compiler() -> None:
    """With work in place inside the function, torch 2.11 compiled the divergence to a wrong gradient."""

    def divergence_of(raw: torch.Tensor) -> torch.Tensor:
        loc, log_scale, logits = raw.chunk(3, -1)
        q = SpikeSlab(logits, loc, log_scale.exp(), validate_args=False)
        p = SpikeSlab(torch.full((8,), -2.2), torch.zeros(8), torch.ones(8), validate_args=False)
        return divergence(q, p).mean()

    def density(raw: torch.Tensor) -> torch.Tensor:
        loc, log_scale = raw.chunk(2, -1)
        return normal(loc, log_scale.exp()).log_prob(torch.ones(12)).mean()

    for function in (divergence_of, density):
        raw = torch.randn(5, 24, generator=torch.Generator().manual_seed(0)).requires_grad_()
        (eager,) = torch.autograd.grad(function(raw), raw)
        (compiled,) = torch.autograd.grad(torch.compile(function)(raw), raw)
        torch.testing.assert_close(compiled, eager, rtol=1e-4, atol=1e-6)
