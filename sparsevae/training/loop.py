"""The one training loop.

Every `report_every` steps it checks that a traced step equals an eager one (else it rolls back and takes eager steps),
and that the sums are finite and the model is not ruined (else it rolls back and halves the rate). Then it reports the
terms, validates, and decides whether to stop and whether to write a checkpoint.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Mapping
from contextlib import closing, nullcontext
from typing import Any, cast

import torch
from torch import Tensor, nn

from sparsevae.exceptions import at_once
from sparsevae.inputs.batch import Examples
from sparsevae.inputs.rows import Rows
from sparsevae.latent.model import LatentModel
from sparsevae.latent.objective import Objective
from sparsevae.sampling.noise import mix
from sparsevae.schedules import Linear, Schedule
from sparsevae.storage.checkpoint import RunFolder, State
from sparsevae.storage.codec import reading
from sparsevae.threads import cuda_arithmetic, threads
from sparsevae.training.accelerate import Acceleration
from sparsevae.training.health import roll_back, warn_about_overfitting, warn_about_sparsity, warn_about_validation
from sparsevae.training.history import History
from sparsevae.training.modes import evaluating
from sparsevae.training.progress import Progress
from sparsevae.training.settings import Training
from sparsevae.training.signals import stop_signals
from sparsevae.training.step import Run

Watch = Callable[[Mapping[str, Any]], None]
"""A function that is called with each report, a row of the history."""


def split(n_rows: int, training: Training, device: torch.device) -> tuple[Tensor, Tensor]:
    """Positions of the training and of the validation rows, at random by the seed, each sorted."""
    shuffle = torch.randperm(n_rows, generator=torch.Generator().manual_seed(mix(training.seed, 3)))
    n_held_out = training.held_out(n_rows)
    return shuffle[n_held_out:].sort().values.to(device), shuffle[:n_held_out].sort().values.to(device)


def fit(
    model: LatentModel,
    objective: Objective,
    rows: Rows,
    training: Training,
    *,
    targets: Rows | None = None,
    schedules: Mapping[str, Schedule] | None = None,
    prepare: nn.Module | None = None,
    label: str = "fit",
    signature: dict[str, Any] | None = None,
    moments: Mapping[str, Tensor] | None = None,
    history: History | None = None,
    watch: Watch | None = None,
) -> tuple[History, dict[str, Tensor]]:
    """Train `model` in place on `rows` and, if given, their `targets`.

    Parameters
    ----------
    model, objective
        What to train and what to minimise, both on the device of the rows.
    rows, targets : Rows
        The data. `prepare` (scaling) is applied to x of every batch.
    training : Training
        Settings, already validated.
    schedules : {knob: Schedule}
        Schedules of the model; `training.schedules` and `training.kl_warmup` override them.
    label : str
        Name of the run in progress lines.
    signature : dict
        Identifies the run in its folder; resuming a run with another signature is an error.
    moments : {name: Tensor}
        Moments of the optimiser to start from, as an earlier call returned them.
    history : History
        Filled during the run, so that the caller has reports and number of steps also after an interruption.
    watch : callable
        Called with every report while the model is in evaluation mode; it must not change the model.

    Returns
    -------
    history, moments
        The reports, and the optimiser's moments for a later call; zeros if the best weights were restored.

    Raises
    ------
    DivergenceError
        If numbers are not finite, or the model is ruined, again after several retries at smaller rates.
    BlockingIOError
        If another run uses the run folder; raised before the first step.
    KeyboardInterrupt, SystemExit
        After SIGINT or SIGTERM, with the checkpoint written and the model as of the last step.
    """
    training = training.stopping(rows.shape[0])
    device = rows.device
    items, held_out = split(rows.shape[0], training, device)
    training = training.resolved(len(items))
    total = training.total_steps(len(items))
    plan = {**(schedules or {}), **_warmups(objective, training), **(training.schedules or {})}
    whole = {**(signature or {}), **_weights(model)}
    folder = RunFolder(training.folder, whole) if training.folder else None
    history = History() if history is None else history
    scaled = whole.get("scale") == "auto"
    with (
        folder.open(training.resume) if folder else nullcontext() as found,
        threads(found[0].meta["threads"] if found else None),
        cuda_arithmetic(device, tf32=training.tf32),
        torch.enable_grad(),
        stop_signals() as stop,
        closing(Progress(label, total, training.verbose)) as progress,
    ):
        run = Run(model, objective, Examples(rows, targets), items, training, plan, prepare or nn.Identity(), total)
        if moments:
            for name, value in run.optimiser.state():
                value.copy_(moments[name])
        if found:
            with reading(cast(RunFolder, folder).checkpoint, "the state of this run"):
                for state in found[1], found[0]:  # the roll-back point must fit the model as well
                    run.load(state)
                if run.best and _shapes(run.best) != _shapes(run.model.state_dict()):
                    raise ValueError("the best weights of another model")
            history.extend(found[2])
        began = run.step
        good = found[1] if found else run.state()
        try:
            acceleration = Acceleration(run, progress.note)
            if run.step < total and not run.stopped:
                acceleration.start()
            _loop(run, acceleration, good, held_out, folder, history, progress, stop, watch, scaled=scaled)
        finally:
            history.steps = run.step
            if run.step == began:  # a finished run that is resumed: as its last step left them
                run.set_knobs(max(0, run.step - 1), but=run.lasting)
        usage = None if stop or not history else run.usage()
    if stop:
        where = f" Saved in {folder.path}; continue with resume=True (--resume)." if folder else ""
        progress.note(f"stopped by a signal at step {run.step} of {total}.{where}")
        raise KeyboardInterrupt if stop[0] == signal.SIGINT else SystemExit(128 + stop[0])
    if len(run.watched) > 1:  # one row has no variance over rows
        warn_about_sparsity(history, model, whole, usage)
    if len(held_out):
        warn_about_overfitting(run, held_out)
    return history, {name: value.detach().cpu().clone() for name, value in run.optimiser.state()}


def _weights(model: nn.Module) -> dict[str, str]:
    """The shape of every tensor of the model, and whether it is frozen, by name; frozen weights have no moments."""
    found: dict[str, str] = {}
    for name, value in model.state_dict(keep_vars=True).items():
        frozen = isinstance(value, nn.Parameter) and not value.requires_grad
        found[f"weights {name}"] = f"{list(value.shape)}{' frozen' if frozen else ''}"
    return found


def _shapes(tensors: Mapping[str, Tensor]) -> dict[str, torch.Size]:
    return {name: value.shape for name, value in tensors.items()}


def _warmups(objective: Objective, training: Training) -> dict[str, Schedule]:
    """Schedules of `kl_warmup`: every weight but those of the likelihoods rises from 0 to its value."""
    found: dict[str, Schedule] = {}
    for name in objective.knobs if training.kl_warmup else ():
        if not name.startswith("nll_"):
            weight: Any = getattr(objective, name).detach().clone()  # members have one each
            found[name] = Linear(0.0, weight if weight.dim() else float(weight), end=training.kl_warmup)
    return found


def _loop(
    run: Run,
    acceleration: Acceleration,
    good: State,
    held_out: Tensor,
    folder: RunFolder | None,
    history: History,
    progress: Progress,
    stop: list[int],
    watch: Watch | None,
    *,
    scaled: bool,
) -> None:
    training, total = run.training, run.total
    every = training.report_every or max(10, min(total // 100, 1000))
    saved, warned = run.step, False
    while run.step < total and not run.stopped and not stop:
        run.advance()
        if run.step % every and run.step != total:
            continue
        if not acceleration.verify():
            run.load(good)
            continue
        if (term := run.broken()) or run.ruined():
            good = roll_back(run, good, term, progress, scaled)
            continue
        run.retries = 0  # a good report resets the retries
        row: dict[str, Any] = {"step": run.step, "epoch": run.step * run.size / len(run.items)}
        row |= run.read_sums() | run.activity()
        if len(held_out):
            row["validation_loss"] = run.validate(held_out)
            if not (warned or math.isfinite(row["validation_loss"])):
                warn_about_validation(run, held_out, scaled)
                warned = True
        row |= run.control(row)
        if training.early_stopping:
            _keep_best(run, row["validation_loss"])
        history.append(row)
        if folder:
            folder.append(row)
        if watch:
            with evaluating(run.model), at_once():
                watch(row)
        progress.update(run.step, {k: v for k, v in row.items() if k not in ("step", "epoch")})
        if training.early_stopping and run.waited >= cast(int, training.patience):
            progress.note(f"stopped at step {run.step}: no better validation loss for {run.waited} reports.")
            run.stopped = True
        good = run.state()
        ended = run.stopped or run.step == total
        if folder and (ended or run.step - saved >= training.checkpoint_every):
            folder.save(good, good)
            saved = run.step
    if stop and (not acceleration.verify() or run.broken() or run.ruined()):
        run.load(good)
    if stop and folder and run.step < total:
        folder.save(run.state(), good)
    if run.best and not stop:
        run.model.load_state_dict(run.best)
        run.optimiser.forget()  # its moments belong to the weights of the last step, not to these


def _keep_best(run: Run, loss: float) -> None:
    """Copy the weights if the validation loss is the lowest so far, else count the report; ignore non-finite losses."""
    if not math.isfinite(loss):
        return
    if run.improves(loss):
        run.best_loss = loss
        run.best_terms = run.validated
        run.waited = 0
        run.best = {k: v.detach().clone() for k, v in run.model.state_dict().items()}
    else:
        run.waited += 1
