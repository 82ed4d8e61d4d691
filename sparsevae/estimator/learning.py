"""The steps of `fit`: choose data-dependent settings, build the model, run the training loop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from sparsevae.checks import check_room
from sparsevae.estimator.assemble import Build, Room, likelihood_for
from sparsevae.estimator.fitted import Fitted
from sparsevae.exceptions import SparsityWarning, delay_warnings, warn_caller
from sparsevae.inputs import scaling as scalings
from sparsevae.inputs.base import Input
from sparsevae.inputs.kind import as_list, kind_of
from sparsevae.inputs.rows import Rows, place, some_rows
from sparsevae.inputs.stats import Stats, fingerprint
from sparsevae.latent.priors import Prior
from sparsevae.latent.start import ROWS, can_start
from sparsevae.likelihoods.choose import choose
from sparsevae.sampling.gradients import points
from sparsevae.sampling.noise import mix
from sparsevae.schedules import Constant, Controller, KeepMean, Schedule
from sparsevae.storage.codec import decode, encode
from sparsevae.threads import inference, ordinary
from sparsevae.training.history import History
from sparsevae.training.knobs import lasting
from sparsevae.training.loop import Watch, fit, split
from sparsevae.training.settings import Training

if TYPE_CHECKING:
    from sparsevae.estimator.coder import SparseCoder


def first_look(est: SparseCoder, X: Any) -> tuple[Input, Any]:
    """The kind of data of X, and its checked rows; refuses constructor arguments that do not apply to this kind."""
    X = as_list(X)
    found = kind_of(X, est.text)
    settings = est.get_params(deep=False) | {"training.binarise": est.training_settings().binarise}
    found.check_settings(type(est).__name__, settings)
    return found, found.read(est, X, reset=True)


def hidden_of(est: SparseCoder, kind: Input) -> tuple[int, ...]:
    """Sizes of the encoder's hidden layers."""
    return kind.hidden if est.hidden is None else tuple(int(h) for h in est.hidden)


def training_for(data: Input, training: Training, n_rows: int) -> Training:
    """Training settings for n_rows rows, held-out ones included, with the values that None and "auto" stand for."""
    stopping = training.stopping(n_rows, auto=data.stops_early)
    own = n_rows - stopping.held_out(n_rows)
    return stopping.resolved(own, **data.training_defaults(own, training.batch_size))


def choose_likelihood(est: SparseCoder, X: Any) -> None:
    """Choose likelihood and scaling by the training rows; refuse rows outside of the likelihood's support."""
    data = est.fitted_.input.stats(X)
    if data is None:
        return
    binarise = est.training_settings().binarise
    est.fitted_.input.likelihood_name = choose(est.likelihood, data, est.scale, binarise=binarise)
    likelihood = likelihood_for(est)
    legal = likelihood.scalings
    scale = legal[0] if est.scale == "auto" else est.scale
    if scale not in legal:
        names = " or ".join(map(repr, dict.fromkeys(("auto", *legal))))
        raise ValueError(f"with likelihood={likelihood.name!r} scale must be {names}; got {est.scale!r}.")
    least = likelihood.least_variance if est.has_bound else 0.0
    est.fitted_.input.prepare = scalings.choose(scale, data, least)
    check_support(est, data)


def check_support(est: SparseCoder, data: Stats | None) -> None:
    """Refuse data outside of the likelihood's support, before training starts."""
    if data is None:
        return
    likelihood, scaling = likelihood_for(est), est.fitted_.input.prepare
    span = scaling.span(data)
    problem = likelihood.refuses(span)
    if problem:
        after = "" if scaling.name == "none" else f" after scale={est.scale!r}"
        if est.training_settings().binarise:
            advice = "Rescale X to [0, 1], or leave training.binarise False"
        else:
            advice = "Use likelihood='gaussian'" if likelihood.whole else "Rescale X, or use likelihood='gaussian'"
        raise ValueError(f"{problem}{after}. {advice}.")
    if est.training_settings().binarise and likelihood.support != (0.0, 1.0):
        raise ValueError(
            f"training.binarise needs likelihood='bernoulli' and values in [0, 1], got likelihood={likelihood.name!r} "
            f"and {span.low:g} to {span.high:g}. Use likelihood='bernoulli', or leave binarise False."
        )
    if likelihood.atom and scaling.name != "none":
        raise ValueError(
            f"likelihood={likelihood.name!r} is about exact zeros, which scale={est.scale!r} does not keep for "
            "these data. Use scale='none'."
        )


@ordinary()
def build(est: SparseCoder, kind: Input, X: Any, Y: Any = None) -> Build:
    """Choose data-dependent settings (scaling, likelihood, defaults) and build the untrained model."""
    asked = est.training_settings()
    training = training_for(kind, asked, X.shape[0])
    n_rows = X.shape[0] - training.held_out(X.shape[0])
    est.check_run(training.total_steps(n_rows))
    defaults = est.defaults_for(kind.kind, n_rows)
    est.fitted_ = fitted = Fitted(est, kind, training, hidden_of(est, kind), defaults, n_rows=n_rows)
    try:
        choose_likelihood(est, X)
        tables = [place(table, torch.device("cpu"), resident=False) for table in (X, Y) if table is not None]
        fitted.fingerprint = fingerprint(*tables)
        device = training.torch_device()
        with Room(est, fitted.data, device):
            made = dialled(est, est.build(fitted.data, torch.Generator().manual_seed(mix(training.seed, 0))))
        fitted.model, fitted.built = made.model, plain(est)
        fitted.to(device)
        shuffle = torch.Generator().manual_seed(mix(training.seed, 7))
        own, _ = split(X.shape[0], training, torch.device("cpu"))
        some = own[torch.randperm(len(own), generator=shuffle)[: some_rows(max(ROWS, 2 * fitted.n_units), kind.width)]]
        if est.start not in (None, "random") and not can_start(fitted.model):
            raise ValueError(
                f"start={est.start!r} needs gates that can close, and linear paths in encoder and decoder: use "
                "skip=True, networks of the library, alpha below 1, and a Gaussian, Laplace or Bernoulli p(x|z)."
            )
        made.start(fitted.model, kind.prepare(tables[0].take(some).to(device)), est.value("start"), shuffle)
    except BaseException:
        del est.fitted_
        raise
    return made


def dialled(est: SparseCoder, made: Build) -> Build:
    """The build with a controller of its KL weights that keeps the target; without a target the build itself.

    Of the knobs that change how many units are on (noise variance, alpha, KL weight) the KL weight is the one that
    every sparse model has, and it reaches every target: for Gaussians of one variance it is that variance, up to a
    factor of the loss, and alpha alone moves counts by its logarithm only. A model may bring a controller of its own.
    """
    target = getattr(est, "target_active", None)
    if target is None:
        return made
    training = est.training_settings()
    if training.kl_warmup or any(name.startswith("kl_") for name in training.schedules or ()):
        raise ValueError("target_active finds the KL weights itself: leave out training.kl_warmup and their schedules.")
    n = made.model.n_components
    if not target < n:
        raise ValueError(f"target_active must be below n_components, {n}; got {target!r}.")
    if est.max_active is not None and not target < est.max_active:
        raise ValueError(f"target_active must be below max_active={est.max_active}, got {target!r}.")
    if any(isinstance(s, KeepMean) and s.measure == "nonzeros" for s in made.schedules.values()):
        return made  # by a knob of the model's own
    weights = {k: float(getattr(made.objective, k)) for k in made.objective.knobs if k.startswith("kl_")}
    dial = {
        k: KeepMean("nonzeros", float(target), first=v, lowest=v / 300, highest=300 * v)
        for k, v in weights.items()
        if v
    }
    if not dial:
        raise ValueError("target_active needs a KL with a weight above 0 in the objective.")
    return made._replace(schedules={**made.schedules, **dial})


def check_target(est: SparseCoder) -> None:
    """Warn if the codes' mean non-zeros at the last report are far from the target."""
    target, history = getattr(est, "target_active", None), est.fitted_.history
    if target is None or not history:
        return
    found = history[-1]["nonzeros"]
    if abs(found - target) > 0.1 * target:
        warn_caller(
            f"target_active={target:g}: codes have {found:.3g} non-zeros in the mean. Try more training.steps, more "
            "n_components, or for more non-zeros a smaller variance or variance_floor.",
            SparsityWarning,
        )


def pass_over(est: SparseCoder, X: Any, Y: Any) -> None:
    """One more pass over new rows, for `partial_fit` of a fitted model."""
    fitted = est.fitted_
    check_unchanged(est)
    check_support(est, fitted.input.stats(X))
    settings = est.training_settings()
    again = training_for(fitted.input, settings.once_more(mix(settings.seed, fitted.n_steps)), X.shape[0])
    n_rows = max(fitted.n_rows, X.shape[0] - again.held_out(X.shape[0]))
    # for its objective and schedules; the networks are those of the fit
    made = dialled(est, est.build(fitted.data._replace(n_rows=n_rows), None))
    plan = {**made.schedules, **(settings.schedules or {})}
    kept = lasting(fitted.model) if fitted.n_steps else ()
    ends = {name: Constant(_end(fitted.history, name, course)) for name, course in plan.items() if name not in kept}
    train(est, X, Y, made._replace(schedules=ends), again, fitted.moments, n_rows=n_rows)


def _end(history: History, name: str, course: Schedule) -> float:
    """The last value of a knob: of a schedule for any length of run, of a controller in the history."""
    if isinstance(course, Controller):
        used = [row[f"knob_{name}"] for row in history if f"knob_{name}" in row]
        return float(used[-1] if used else course(0, 1))
    return course(1 << 62, 1 << 62)


def plain(est: SparseCoder) -> dict[str, Any]:
    """The constructor arguments as plain values, as they are stored; without `training`, which may change."""
    apart = ("encoder", "decoder", "training", "text")
    return {
        "constructor": {f.name: encode(getattr(est, f.name), f.name) for f in fields(est) if f.name not in apart},
        "own_networks": [k for k in ("encoder", "decoder") if getattr(est, k) is not None],
        "text": None if est.text is None else encode(est.text.get_params(deep=False), "text"),
    }


def check_unchanged(est: SparseCoder) -> None:
    """Refuse if constructor arguments differ from those that the model was built with."""
    old, new = (_in_words(plain) for plain in (est.fitted_.built, plain(est)))
    changed = [k for k in old if new[k] != old[k]]
    if changed:
        was, is_ = (", ".join(f"{k}={words[k]}" for k in changed) for words in (old, new))
        raise ValueError(
            f"this {type(est).__name__} was fitted with {was}, and is now set to {is_}: set that back, or call "
            "fit for a new model."
        )


def _in_words(plain: Mapping[str, Any]) -> dict[str, str]:
    """Stored constructor arguments, as a user would write them."""
    own = {k: "a network of your own" if k in plain["own_networks"] else "None" for k in ("encoder", "decoder")}
    return {k: repr(decode(v)) for k, v in plain["constructor"].items()} | {**own, "text": repr(plain["text"])}


@delay_warnings()
@ordinary()
def train(
    est: SparseCoder,
    X: Any,
    Y: Any,
    made: Build,
    settings: Training,
    moments: dict[str, Tensor] | None = None,
    watch: Watch | None = None,
    n_rows: int | None = None,
) -> None:
    """Run the training loop on checked rows and targets; the history is extended by its reports.

    `n_rows` replaces the number of training rows that the model was built for.
    """
    fitted = est.fitted_
    history = History()
    try:
        rows = fitted.input.lay_out(X, fitted.device)
        targets = None if Y is None else place(Y, rows.device, resident=True)
        _check_step(est, settings, rows)
        fitted.model.cap = None if est.max_active is None else int(est.max_active)
        fitted.n_rows = n_rows or fitted.n_rows
        history, fitted.moments = fit(
            fitted.model.train(),
            made.objective.to(rows.device),
            rows,
            settings,
            schedules=made.schedules,
            targets=targets,
            prepare=fitted.input.prepare,
            label=type(est).__name__,
            signature=signature(est),
            moments=moments,
            history=history,
            watch=watch,
        )
    except Exception:
        if not (history or fitted.n_steps):  # refused or diverged before the first report
            del est.fitted_
        raise
    finally:
        fitted.model.eval()
        fitted.history.extend_with(history, fitted.n_steps)
        fitted.n_steps += history.steps
    after_training(est, X)
    check_target(est)


def after_training(est: SparseCoder, rows: Any) -> None:
    """Measure the units' gain; pass the training rows to a prior that has an `after_training` of its own."""
    est.fitted_.measure(rows)
    prior = est.fitted_.model.prior
    if prior is not None and type(prior).after_training is not Prior.after_training:
        with inference(est.fitted_.device):
            for x, n, _ in est.fitted_.blocks(rows):
                prior.after_training(x[:n])


def _check_step(est: SparseCoder, settings: Training, rows: Rows) -> None:
    """Refuse a step whose rows, with all draws per row, need more than all memory."""
    model = est.fitted_.model
    batch = min(cast(int, settings.batch_size), rows.shape[0])
    copies = int(settings.n_samples) * points(model)[0]
    n = model.n_components
    largest = model.posterior.largest(n)  # a count is a sum of as many draws
    numbers = batch * copies * (rows.shape[1] + (n if largest is None else max(n, int(largest.max()))))
    given = est.get_params(deep=False)
    draws = {k: given[k] for k in ("n_gamma", "n_z", "samples", "cap") if given.get(k)}
    sizes = {"training.batch_size": batch, "training.n_samples": settings.n_samples, **draws}
    check_room(numbers, sizes, "the rows of a training step", est.fitted_.device)


def signature(est: SparseCoder) -> dict[str, Any]:
    """What determines a run: class, constructor, seed and data; not where it writes or what it prints."""
    fitted = est.fitted_
    settings = fitted.training.get_params()
    for free in ("folder", "resume", "verbose", "checkpoint_every"):
        del settings[free]
    return {
        "model": type(est).__name__,
        **fitted.resolved(),
        "hidden": list(fitted.hidden),
        "encoder": str(est.encoder),
        "decoder": str(est.decoder),
        **settings,
        "data": fitted.fingerprint,
        **fitted.input.signature(),
    }
