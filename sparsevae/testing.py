"""Conformance checks, shipped so that you can run them on distributions and models of your own.

`check_distribution` checks that a distribution over units is consistent: its density integrates to one, its draws have
its moments, and its entropy and divergences are those of its density. `check_model` checks the conventions that the
library relies on: shapes, randomness from `Draw` alone, hard draws that follow the posterior, and bounds that refuse
relaxed draws. Both raise AssertionError with what was expected.

>>> import torch
>>> from sparsevae.distributions.spike_slab import SpikeSlab
>>> check_distribution(SpikeSlab, (torch.tensor([-1.0, 2.0]), torch.tensor([0.5, 0.0]), torch.ones(2)), atoms=(0.0,))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

import torch
from torch import Tensor
from torch.distributions import Distribution

from sparsevae.distributions.kl import closed_form, divergence, unit_divergence
from sparsevae.distributions.spike_slab import SpikeSlab
from sparsevae.latent.bounds import bounds, log_weights
from sparsevae.latent.model import LatentModel, Trace
from sparsevae.latent.objective import kl, nll
from sparsevae.sampling.draw import Draw
from sparsevae.sampling.noise import PerRow, row_keys
from sparsevae.threads import threads

Make = Callable[..., Distribution]
_SIGMAS = 5.0  # standard errors: a correct claim fails once in two million


def _close(got: Tensor, wanted: Tensor, tolerance: Tensor | float, claim: str) -> None:
    """Check |got - wanted| <= tolerance for all elements; NaN fails, equal infinities pass."""
    assert got.shape == wanted.shape, f"{claim}: shape {tuple(got.shape)}, expected {tuple(wanted.shape)}"
    off = torch.where(got == wanted, 0.0, (got - wanted).abs())
    assert bool((off <= tolerance).all()), (
        f"{claim}: got {got.detach().tolist()}, expected {wanted.detach().tolist()} "
        f"within {torch.as_tensor(tolerance).detach().tolist()}"
    )


def _shape(got: Tensor, wanted: Sequence[int], claim: str) -> None:
    assert tuple(got.shape) == tuple(wanted), f"{claim} has shape {tuple(got.shape)}, expected {tuple(wanted)}"


def _finite(value: Tensor, claim: str) -> None:
    assert bool(torch.isfinite(value).all()), f"{claim} is not finite"


def _within_errors(draws: Tensor, wanted: Tensor, claim: str) -> None:
    """Check that the mean of draws (n, ...) is `wanted`, within five standard errors and rounding."""
    error = draws.std(0) / len(draws) ** 0.5
    _close(draws.mean(0), wanted, _SIGMAS * error + 1e-9 * (1 + wanted.abs()), f"{claim} ({len(draws)} draws)")


@threads(1)  # many small operations
def check_distribution(
    make: Make,
    parameters: Sequence[Tensor],
    *,
    other: Sequence[Tensor] | Distribution | None = None,
    atoms: Sequence[float] = (),
    reach: tuple[Tensor, Tensor] | None = None,
    n_samples: int = 100_000,
    seed: int = 0,
) -> None:
    """Check that a distribution with independent units is consistent, in float64.

    Claims: log_prob integrates to 1 (atoms summed, the rest by quadrature); means and variances of draws are `mean` and
    `variance`; `entropy` is -E log_prob; the closed-form divergence to `other` is E[log q - log p], is never negative,
    and is 0 from q to itself; gradients of all these pass gradcheck; all work with zero, one and two leading
    dimensions, and after `expand`.

    Parameters
    ----------
    make : callable
        make(*parameters) -> Distribution with event_shape (J,).
    parameters : tensors (J,)
        Gradients in infinite ones are not checked.
    other : tensors (J,) or Distribution, optional
        The p of KL(q || p): a distribution, or parameters for `make`. Without it only KL(q || q) is checked.
    atoms : floats
        Points of positive probability, where log_prob is a log-probability: 0 for a spike.
    reach : (centre, spread), tensors (J,), optional
        The quadrature covers centre +- 12 spreads, which must contain the continuous part. Default: mean and standard
        deviation of the draws off the atoms.
    n_samples, seed : int
        Draws for the statistical claims, which allow five standard errors. The global random state does not change.
    """
    parameters = [p.detach().double() for p in parameters]
    q = make(*parameters)
    (J,) = q.event_shape
    assert q.batch_shape == (), f"parameters of shape (J,) must give batch_shape (), got {tuple(q.batch_shape)}"
    p, others = None, None
    if isinstance(other, Distribution):
        p = other
    elif other is not None:
        others = [t.detach().double() for t in other]
        p = make(*others)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        draws = q.sample(torch.Size([n_samples]))
        _check_shapes(make, parameters, p)
    _shape(draws, (n_samples, J), f"sample(({n_samples},))")
    _finite(draws, "a draw")
    _check_normalised(make, parameters, draws, atoms, reach)
    _within_errors(draws, q.mean, "the mean of draws is `mean`")
    _within_errors((draws - q.mean).square(), q.variance, "the variance of draws is `variance`")
    log_q = q.log_prob(draws)
    _finite(log_q, "log_prob of the distribution's own draws")
    if (entropy := _entropy(q)) is not None:
        _within_errors(-log_q, entropy, "`entropy` is -E log_prob")
    _close(divergence(q, q), torch.zeros((), dtype=torch.float64), 1e-12, "KL(q || q) is 0")
    claims: dict[str, Callable[[Distribution], Tensor]] = {
        "mean": lambda d: d.mean,
        "variance": lambda d: d.variance,
        "log_prob": lambda d: d.log_prob(draws[:3]),
    }
    if entropy is not None:
        claims["entropy"] = lambda d: d.entropy()
    if p is not None:
        _within_errors(log_q - p.log_prob(draws), divergence(q, p), "the closed-form KL is E_q[log q - log p]")
        assert bool((unit_divergence(q, p) >= -1e-12).all()), "a KL is negative"
        claims["KL(q || p) in q"] = lambda d: unit_divergence(d, p)
    for name, claim in claims.items():
        _check_gradient(name, lambda *v, f=claim: f(make(*v)), parameters)
    if others is not None:
        _check_gradient("KL(q || p) in p", lambda *v: unit_divergence(q, make(*v)), others)
    smooth = draws[:3][~torch.isin(draws[:3], torch.tensor(atoms, dtype=torch.float64)).any(-1)]
    _check_gradient("log_prob in the value", q.log_prob, [smooth])


def _entropy(q: Distribution) -> Tensor | None:
    try:
        return q.entropy()
    except NotImplementedError:
        return None


def _check_normalised(
    make: Make,
    parameters: Sequence[Tensor],
    draws: Tensor,
    atoms: Sequence[float],
    reach: tuple[Tensor, Tensor] | None,
) -> None:
    for j in range(draws.shape[-1]):
        unit = make(*(p[j : j + 1] for p in parameters))
        at = torch.tensor(atoms, dtype=torch.float64)
        mass = sum((unit.log_prob(a[None]).exp() for a in at), torch.zeros((), dtype=torch.float64))
        smooth = draws[:, j][~torch.isin(draws[:, j], at)]
        if reach is not None:
            centre, spread = reach[0].double()[j], reach[1].double()[j]
        elif len(smooth) >= 100:
            centre, spread = smooth.mean(), smooth.std()
        else:
            assert not len(smooth), f"unit {j}: too few draws off the atoms for a quadrature; give `reach`"
            _close(mass, torch.ones_like(mass), 1e-9, f"the probability of unit {j}'s atoms")
            continue
        # An even number of points, so that none is an atom at the centre; points on other atoms are moved.
        grid = centre + spread * torch.linspace(-12, 12, 40_000, dtype=torch.float64)
        grid = torch.where(torch.isin(grid, at), grid + 1e-9 * spread, grid)
        total = mass + torch.trapezoid(unit.log_prob(grid[:, None]).exp(), grid)
        _close(total, torch.ones_like(total), 1e-6, f"the total probability of unit {j}")


def _check_shapes(make: Make, parameters: Sequence[Tensor], p: Distribution | None) -> None:
    q = make(*parameters)
    (J,) = q.event_shape
    for lead in ((), (3,), (2, 3)):
        grown = make(*(t.expand(*lead, J).clone() for t in parameters))
        for d, how in ((grown, "parameters with leading dimensions"), (q.expand(torch.Size(lead)), "expand")):
            where = f"{lead} ({how}): "
            assert d.batch_shape == lead, f"{where}batch_shape is {tuple(d.batch_shape)}"
            assert d.event_shape == (J,), f"{where}event_shape is {tuple(d.event_shape)}"
            z = d.sample()
            _shape(z, (*lead, J), f"{where}sample()")
            _shape(d.sample(torch.Size([4])), (4, *lead, J), f"{where}sample((4,))")
            if d.has_rsample:
                _shape(d.rsample(), (*lead, J), f"{where}rsample()")
                _shape(d.rsample(torch.Size([4])), (4, *lead, J), f"{where}rsample((4,))")
            for name in ("mean", "variance", "mode"):
                value: Tensor = getattr(d, name)
                _close(value, getattr(q, name).expand(*lead, J), 1e-12, f"{where}{name}")
            same = q.log_prob(z)  # q without leading dimensions broadcasts against z
            _close(d.log_prob(z), same, 1e-9 * (1 + same.abs()), f"{where}log_prob")
            if (entropy := _entropy(q)) is not None:
                _close(d.entropy(), entropy.expand(lead), 1e-9 * (1 + entropy.abs()), f"{where}entropy")
            if p is not None:
                one = divergence(q, p)
                _close(divergence(d, p), one.expand(lead), 1e-9 * (1 + one.abs()), f"{where}divergence")
                _shape(unit_divergence(d, p), (*lead, J), f"{where}unit_divergence")


def _check_gradient(name: str, function: Callable[..., Tensor], arguments: Sequence[Tensor]) -> None:
    """Check that gradients in all finite arguments are finite and equal to finite differences."""
    free = [i for i, t in enumerate(arguments) if t.numel() and bool(torch.isfinite(t).all())]
    if not free:
        return
    # Values range from 1e-4 to 1e3 and need steps in proportion, but gradcheck has one step for all. So it varies
    # factors of the arguments.
    units = [torch.where(arguments[i] == 0, 1.0, arguments[i].abs()) for i in free]
    multiples = [(arguments[i] / unit).requires_grad_() for i, unit in zip(free, units, strict=True)]

    def of_multiples(*values: Tensor) -> Tensor:
        full = list(arguments)
        for i, value, unit in zip(free, values, units, strict=True):
            full[i] = value * unit
        return function(*full)

    value = of_multiples(*multiples)
    gradients = torch.autograd.grad(value.sum(), multiples, allow_unused=True)
    finite = all(g is None or bool(torch.isfinite(g).all()) for g in gradients)
    assert finite, f"a gradient of {name} is not finite: {gradients}"
    size = float(value.detach().abs().max().clamp_min(1.0))
    try:
        torch.autograd.gradcheck(of_multiples, multiples, eps=1e-6, atol=1e-5 * size, rtol=1e-4)
    except RuntimeError as error:  # the base class of gradcheck's error
        raise AssertionError(f"a gradient of {name} differs from finite differences: {error}") from None


def check_model(model: LatentModel, x: Tensor, *, members: tuple[int, ...] = (), seed: int = 0) -> None:
    """Check that a model follows the library's conventions on a batch x (B, D) with B >= 2.

    Claims: shapes are (*members, B, ...); a trace has an observed site, and `trace.hard` is the `hard` of its draws;
    terms are finite and one number per item; the same noise gives the same trace, and the global random state is
    neither read nor changed; gradients reach every parameter through a relaxed trace; a bound refuses that trace; hard
    draws of a spike-and-slab are exactly zero where the gate is off; rows do not depend on other rows; ELBO <=
    importance bound, and both do not depend on the order of the rows.

    Parameters
    ----------
    model : LatentModel
        In evaluation mode if it has layers such as BatchNorm or Dropout.
    x : Tensor (B, D)
        Scaled rows, all different.
    members : tuple of int
        Leading member dimensions of the model's weights.
    seed : int
        Seed of all draws.
    """
    n = len(x)
    assert x.dim() == 2, f"x must be a batch (B, D), got {tuple(x.shape)}"
    assert n >= 2, f"x must have at least two rows, got {n}"
    keys = row_keys(x)
    assert len(keys.unique()) == n, "the rows of x must be different"
    before = torch.get_rng_state()

    def drawn(hard: bool, rows: Tensor = x, k: Tensor = keys, again: int = 0) -> Trace:
        trace = model(rows, Draw(PerRow(k, seed + again), hard=hard))
        assert isinstance(trace, Trace), f"forward must return a Trace, got {type(trace).__name__}"
        return trace

    soft, hard = drawn(False), drawn(True)
    for trace, kind in ((soft, False), (hard, True)):
        assert trace.hard is kind, f"a trace drawn with hard={kind} has trace.hard={trace.hard}"
        assert trace.latents, "a trace needs a latent site"
        assert trace.observed, "a trace needs an observed site"
        for name, site in trace.latents.items():
            _shape(site.value, (*members, n, *site.q.event_shape), f"the draw of {name!r}")
            assert site.q.batch_shape == (*members, n), f"q of {name!r} has batch_shape {tuple(site.q.batch_shape)}"
            assert site.p is not None, f"check_model needs a prior for each latent variable: {name} has none"
            assert site.p.event_shape == site.q.event_shape, f"q and p of {name!r} differ in event_shape"
            _finite(site.value, f"the draw of {name!r}")
        for name, (d, value, _) in trace.observed.items():
            assert d.batch_shape == (*members, n), f"p of {name!r} has batch_shape {tuple(d.batch_shape)}"
            assert d.event_shape == value.shape[-1:], f"p of {name!r} has event_shape {tuple(d.event_shape)}"
        for name, term in {**nll(trace), **kl(trace)}.items():
            _shape(term, (*members, n), f"the term {name}")
            _finite(term, f"the term {name}")
        for (name, term), site in zip(kl(trace).items(), trace.latents.values(), strict=True):
            if closed_form(site.q, site.p):  # a one-sample estimate may be negative
                assert bool((term >= -1e-4).all()), f"the term {name} is negative: {float(term.min())}"

    with torch.no_grad():
        _check_draws([drawn(True, again=i) for i in range(20)])
    for name, site in drawn(True).latents.items():
        assert torch.equal(site.value, hard.latents[name].value), f"the same noise gave two draws of {name!r}"
    with suppress(ValueError):
        log_weights(soft)
        raise AssertionError("log_weights accepted a relaxed trace, which is no sample of the posterior")
    _check_gradient_flow(model, soft)

    order = torch.arange(n - 1, -1, -1, device=x.device)
    back, b = bounds(model, x[order], 3, seed=seed), bounds(model, x, 3, seed=seed)
    for name, value in b._asdict().items():
        _shape(value, (*members, n), f"bounds().{name}")
        if name != "pareto_k":  # three draws have no tail
            _finite(value, f"bounds().{name}")
    for got, wanted, name in ((back.elbo, b.elbo, "ELBO"), (back.importance, b.importance, "importance bound")):
        _close(got[..., order], wanted, 1e-3 * (1 + wanted.abs()), f"the {name} of rows in another order")
    assert bool((b.elbo <= b.importance + 1e-6 * (1 + b.elbo.abs())).all()), "an ELBO exceeds its importance bound"
    assert bool(((b.effective_samples > 1 - 1e-6) & (b.effective_samples < 3 + 1e-6)).all()), "1 <= ESS <= K"
    with torch.no_grad():
        alone = log_weights(drawn(True, x[:1], keys[:1]))
        together = log_weights(hard)[..., :1]
    _close(alone, together, 1e-3 * (1 + together.abs()), "the log-weight of a row, alone and among others")
    assert torch.equal(torch.get_rng_state(), before), "the model used the global random state; draw through `Draw`"


def _check_draws(traces: Sequence[Trace]) -> None:
    """Check that hard draws of spike-and-slab sites are on as often as p_on implies, and exactly 0 if off."""
    for name in (k for k, s in traces[0].latents.items() if isinstance(s.q, SpikeSlab)):
        count = expected = variance = 0.0
        for trace in traces:
            q, value = trace.latents[name].q, trace.latents[name].value
            assert isinstance(q, SpikeSlab), f"{name!r}: the kind of posterior changed between two passes"
            on, p = value != 0, q.p_on.detach()
            assert not bool((~on & (p == 1)).any()), f"{name!r}: a unit with p_on = 1 was drawn off"
            assert not bool((on & (p == 0)).any()), f"{name!r}: a unit with p_on = 0 was drawn on"
            count += float(on.sum())
            expected += float(p.sum())
            variance += float((p * (1 - p)).sum())
        assert abs(count - expected) <= _SIGMAS * variance**0.5 + 1, (
            f"{name!r}: {len(traces)} hard draws have {count:g} non-zeros, their p_on add up to {expected:.1f} "
            f"+- {variance**0.5:.1f}; off units must be exactly 0"
        )


def _check_gradient_flow(model: LatentModel, soft: Trace) -> None:
    named = {k: p for k, p in model.named_parameters() if p.requires_grad}
    if not named:
        return
    loss = torch.stack([t.sum() for t in {**nll(soft), **kl(soft)}.values()]).sum()
    gradients = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
    for name, gradient in zip(named, gradients, strict=True):
        assert gradient is not None, f"no gradient reaches the parameter {name}"
        _finite(gradient, f"the gradient of {name}")
