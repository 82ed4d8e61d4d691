"""What `fit` does: choose by the data what was left open, build the model, run the training loop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from sparsevae.checks import check_room
from sparsevae.estimator.assemble import Build, Room, likelihood_for
from sparsevae.estimator.fitted import Fitted
from sparsevae.exceptions import delay_warnings
from sparsevae.inputs import scaling as scalings
from sparsevae.inputs.base import Input
from sparsevae.inputs.kind import as_list, kind_of
from sparsevae.inputs.rows import BLOCK, Rows, place
from sparsevae.inputs.stats import Stats, fingerprint
from sparsevae.latent.priors import Prior
from sparsevae.likelihoods.choose import choose
from sparsevae.sampling.gradients import points
from sparsevae.sampling.noise import mix
from sparsevae.schedules import Constant, Controller, Schedule
from sparsevae.storage.codec import decode, encode
from sparsevae.threads import inference, ordinary
from sparsevae.training.history import History
from sparsevae.training.knobs import lasting
from sparsevae.training.loop import Watch, fit
from sparsevae.training.settings import Training

if TYPE_CHECKING:
    from sparsevae.estimator.coder import SparseCoder


def check_settings(est: SparseCoder, data: Input) -> None:
    """Refuse constructor arguments that have no meaning for this kind of data."""
    settings = est.get_params(deep=False) | {"training.binarise": est.training_settings().binarise}
    data.check_settings(type(est).__name__, settings)


def first_look(est: SparseCoder, X: Any) -> tuple[Input, Any]:
    """What X is, and its rows, checked."""
    X = as_list(X)
    found = kind_of(X, getattr(est, "text", None))
    check_settings(est, found)
    return found, found.read(est, X, reset=True)


def hidden_of(est: SparseCoder, kind: Input) -> tuple[int, ...]:
    """Sizes of the encoder's hidden layers."""
    return kind.hidden if est.hidden is None else tuple(int(h) for h in est.hidden)


def training_for(data: Input, training: Training, n_rows: int) -> Training:
    """Training settings for a run on so many rows, where they were left open: length, batches, rate."""
    return training.resolved(**data.training_defaults(n_rows, training.batch_size))


def choose_likelihood(est: SparseCoder, X: Any) -> None:
    """Choose likelihood and scaling by the rows that training will see; refuse rows that cannot be described."""
    data = est.fitted_.input.stats(X)
    if data is None:
        return
    asked, binarise = getattr(est, "likelihood", "auto"), est.training_settings().binarise
    est.fitted_.input.likelihood_name = choose(asked, data, est.scale, binarise=binarise)
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
    """Refuse data that the likelihood cannot describe, before training starts."""
    if data is None:
        return
    likelihood, scaling = likelihood_for(est), est.fitted_.input.prepare
    span = scaling.span(data)
    problem = likelihood.refuses(span)
    if problem is None and est.training_settings().binarise and likelihood.support != (0.0, 1.0):
        expected = "likelihood='bernoulli' and values in [0, 1]"
        problem = f"training.binarise needs {expected}, got {span.low:g} to {span.high:g}"
    if problem:
        raise ValueError(f"{problem} after scale={est.scale!r}. Rescale X, or use likelihood='gaussian'.")
    if likelihood.atom and scaling.name != "none":
        raise ValueError(
            f"likelihood={likelihood.name!r} is about exact zeros, which scale={est.scale!r} does not keep for "
            "these data. Use scale='none'."
        )


@ordinary()
def build(est: SparseCoder, kind: Input, X: Any, Y: Any = None) -> Build:
    """Choose what the data decide (scaling, likelihood, defaults), and build the model for these rows, untrained."""
    asked = est.training_settings()
    n_rows = X.shape[0] - asked.held_out(X.shape[0])
    training = training_for(kind, asked, n_rows)
    est.check_run(training.total_steps(n_rows))
    defaults = dict(est.defaults_by_kind.get(kind.kind, {}))
    est.fitted_ = fitted = Fitted(est, kind, training, hidden_of(est, kind), defaults, n_rows=n_rows)
    try:
        choose_likelihood(est, X)
        tables = [place(table, torch.device("cpu"), resident=False) for table in (X, Y) if table is not None]
        fitted.fingerprint = fingerprint(*tables)
        device = training.torch_device()
        with Room(est, fitted.data, device):
            made = est.build(fitted.data, torch.Generator().manual_seed(mix(training.seed, 0)))
    except BaseException:
        del est.fitted_
        raise
    fitted.model, fitted.built = made.model, plain(est)
    fitted.to(device)
    rows = tables[0]
    some = torch.randperm(rows.shape[0], generator=torch.Generator().manual_seed(mix(training.seed, 7)))[:BLOCK]
    made.start(fitted.model, kind.prepare(rows.take(some).to(device)))
    return made


def train_on(est: SparseCoder, X: Any, Y: Any, made: Build, watch: Watch | None) -> None:
    """The run of `fit`."""
    _train(est, X, Y, est.fitted_.training, made, made.schedules, None, watch)


def pass_over(est: SparseCoder, X: Any, Y: Any) -> None:
    """One more pass, over new rows: the run of `partial_fit` of a model that is there."""
    fitted = est.fitted_
    check_unchanged(est)
    check_support(est, fitted.input.stats(X))
    settings = est.training_settings()
    again = training_for(fitted.input, settings.once_more(mix(settings.seed, fitted.n_steps)), X.shape[0])
    fitted.n_rows = max(fitted.n_rows, X.shape[0] - again.held_out(X.shape[0]))
    made = est.build(fitted.data, None)  # for its objective and schedules: the networks are there
    plan = {**made.schedules, **(settings.schedules or {})}
    kept = lasting(fitted.model) if fitted.n_steps else ()
    ends: dict[str, Schedule] = {
        k: s if isinstance(s, Controller) else Constant(s(1 << 62, 1 << 62)) for k, s in plan.items() if k not in kept
    }
    _train(est, X, Y, again, made, ends, fitted.moments, None)


def plain(est: SparseCoder) -> dict[str, Any]:
    """The constructor in plain values, as it is stored; without `training`, which may change from run to run."""
    apart = ("encoder", "decoder", "training", "text")
    text = getattr(est, "text", None)
    return {
        "constructor": {f.name: encode(getattr(est, f.name), f.name) for f in fields(est) if f.name not in apart},
        "own_networks": [k for k in ("encoder", "decoder") if getattr(est, k, None) is not None],
        "text": None if text is None else encode(text.get_params(deep=False), "text"),
    }


def check_unchanged(est: SparseCoder) -> None:
    """Refuse to go on with a model whose constructor has come to say something else."""
    old, new = (_in_words(plain) for plain in (est.fitted_.built, plain(est)))
    changed = [k for k in old if new[k] != old[k]]
    if changed:
        was, is_ = (", ".join(f"{k}={words[k]}" for k in changed) for words in (old, new))
        raise ValueError(
            f"this {type(est).__name__} was fitted with {was}, and is now set to {is_}: set that back, or call "
            "fit for a new model."
        )


def _in_words(plain: Mapping[str, Any]) -> dict[str, str]:
    """A stored constructor as a user would write it."""
    own = {k: "a network of your own" if k in plain["own_networks"] else "None" for k in ("encoder", "decoder")}
    return {k: repr(decode(v)) for k, v in plain["constructor"].items()} | {**own, "text": repr(plain["text"])}


@delay_warnings()
@ordinary()
def _train(
    est: SparseCoder,
    X: Any,
    Y: Any,
    settings: Training,
    made: Build,
    schedules: Mapping[str, Schedule],
    moments: dict[str, Tensor] | None,
    watch: Watch | None,
) -> None:
    fitted = est.fitted_
    rows = fitted.input.lay_out(X, fitted.device)
    targets = None if Y is None else place(Y, rows.device, resident=True)
    _check_step(est, settings, rows)
    model = fitted.model.train()
    history = History()
    try:
        history, fitted.moments = fit(
            model,
            made.objective.to(rows.device),
            rows,
            settings,
            schedules=schedules,
            targets=targets,
            prepare=fitted.input.prepare,
            label=type(est).__name__,
            signature=signature(est),
            moments=moments,
            history=history,
            watch=watch,
        )
    except Exception:
        if not (history or fitted.n_steps):  # refused or diverged before its first report: there is no model
            del est.fitted_
        raise
    finally:
        model.eval()
        fitted.history.extend_with(history, fitted.n_steps)
        fitted.n_steps += history.steps
    after_training(est, X)


def after_training(est: SparseCoder, rows: Any) -> None:
    """Let a prior that learns look at the training rows once more."""
    prior = est.fitted_.model.prior
    if prior is not None and type(prior).after_training is not Prior.after_training:
        with inference(est.fitted_.device):
            for x, n, _ in est.fitted_.blocks(rows):
                prior.after_training(x[:n])


def _check_step(est: SparseCoder, settings: Training, rows: Rows) -> None:
    """Refuse a step whose rows, with every draw of each, take more than all memory."""
    model = est.fitted_.model
    batch = min(cast(int, settings.batch_size), rows.shape[0])
    copies = int(settings.n_samples) * points(model)[0]
    n = model.n_components
    largest = model.posterior.largest(n)  # a count is a sum of as many draws
    numbers = batch * copies * (rows.shape[1] + (n if largest is None else max(n, int(largest.max()))))
    draws = {k: getattr(est, k) for k in ("n_gamma", "n_z", "samples", "cap") if getattr(est, k, None)}
    sizes = {"training.batch_size": batch, "training.n_samples": settings.n_samples, **draws}
    check_room(numbers, sizes, "the rows of a training step", est.fitted_.device)


def signature(est: SparseCoder) -> dict[str, Any]:
    """What a run is a function of: class, constructor, seed and data; not where it writes or what it prints."""
    fitted = est.fitted_
    settings = fitted.training.get_params()
    for free in ("folder", "resume", "verbose", "checkpoint_every"):
        del settings[free]
    own = {k: str(getattr(est, k, None)) for k in ("encoder", "decoder")}
    return {
        "model": type(est).__name__,
        **fitted.resolved(),
        "hidden": list(fitted.hidden),
        **own,
        **settings,
        "data": fitted.fingerprint,
        **fitted.input.signature(),
    }
