"""The one training loop.

Every `report_every` steps it looks up: is a traced step still an eager one (else it rolls back and takes eager steps),
are the sums finite and the model not ruined (else it rolls back and halves the rate), what do the terms read, is it
time to validate, to stop, to save.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Mapping
from contextlib import nullcontext
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
from sparsevae.training.health import roll_back, warn_about_sparsity, warn_about_validation
from sparsevae.training.history import History
from sparsevae.training.modes import evaluating
from sparsevae.training.progress import Progress
from sparsevae.training.settings import Training
from sparsevae.training.signals import stop_signals
from sparsevae.training.step import Run

Watch = Callable[[Mapping[str, Any]], None]
"""What is called with a report, a row of the history."""


def split(n_rows: int, training: Training, device: torch.device) -> tuple[Tensor, Tensor]:
    """Training and validation rows, at random by the seed."""
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
    """Train `model` in place on `rows`, with their `targets` where there are any: the only training loop here.

    Parameters
    ----------
    model, objective
        What to train and what to minimise, both already on the rows' device.
    rows : Rows
        The data; `prepare` (scaling) is applied to every batch, of whichever width where rows have several (`Ragged`).
    training : Training
        Settings. Validated by the caller.
    schedules : {knob: Schedule}
        The recipe's own schedules; `training.schedules` and `training.kl_warmup` come on top.
    signature : dict
        What run this is, for the run folder.
    moments : {name: Tensor}
        Adam's moments to start from, as an earlier call returned them.
    history : History
        Filled as the run goes on, so that the caller has it, and how many steps it took, also after an interruption.
    watch : callable
        Called with every report, in evaluation mode: to look at the model on the way, not to change it.

    Returns
    -------
    history, moments
        The reports, and the optimiser's moments for a later call: zeros, a fresh start, where patience has put the best
        weights back.

    Raises
    ------
    DivergenceError
        When non-finite numbers return at ever smaller rates.
    BlockingIOError
        When another run is using the run folder; before the first step.
    KeyboardInterrupt, SystemExit
        After SIGINT or SIGTERM, with the checkpoint written and the model as of the last step.
    """
    training = training.resolved()
    device = rows.device
    items, held_out = split(rows.shape[0], training, device)
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
    ):
        progress = Progress(label, total, training.verbose)
        try:
            run = Run(model, objective, Examples(rows, targets), items, training, plan, prepare or nn.Identity(), total)
            if moments:
                run.load_moments(moments)
            if found:
                with reading(cast(RunFolder, folder).checkpoint, "the state of this run"):
                    for state in found[1], found[0]:  # the one to roll back to must fit as well
                        run.load(state)
                    if run.best and _shapes(run.best) != _shapes(run.model.state_dict()):
                        raise ValueError("the best weights of another model")
                history.extend(found[2])
            good = found[1] if found else run.state()
            try:
                acceleration = Acceleration(run, progress.note)
                if run.step < total and not run.stopped:
                    acceleration.start()
                _loop(run, acceleration, good, held_out, folder, history, progress, stop, watch, scaled=scaled)
            finally:
                history.steps = run.step
        finally:
            progress.close()
    if stop:
        where = f" Saved in {folder.path}; continue with resume=True (--resume)." if folder else ""
        progress.note(f"stopped by a signal at step {run.step} of {total}.{where}")
        raise KeyboardInterrupt if stop[0] == signal.SIGINT else SystemExit(128 + stop[0])
    if len(run.watched) > 1:  # one row differs from no other
        warn_about_sparsity(history, model, whole)
    return history, run.moments()


def _weights(model: nn.Module) -> dict[str, str]:
    """Every tensor of the model by name: its size, and whether it stays as it is. Moments are of those that do not."""
    found: dict[str, str] = {}
    for name, value in model.state_dict(keep_vars=True).items():
        frozen = isinstance(value, nn.Parameter) and not value.requires_grad
        found[f"weights {name}"] = f"{list(value.shape)}{' frozen' if frozen else ''}"
    return found


def _shapes(tensors: Mapping[str, Tensor]) -> dict[str, torch.Size]:
    return {name: value.shape for name, value in tensors.items()}


def _warmups(objective: Objective, training: Training) -> dict[str, Schedule]:
    if not training.kl_warmup:
        return {}
    names = [k for k in objective.knobs if not k.startswith("nll_")]
    return {k: Linear(0.0, _plain(getattr(objective, k)), end=training.kl_warmup) for k in names}


def _plain(weight: Tensor) -> Any:
    """A number, or for a stack of models its members' numbers."""
    return weight.detach().clone() if weight.dim() else float(weight)


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
        run.retries = 0  # retries count what fails again and again, not what a long run meets now and then
        row: dict[str, Any] = {"step": run.step, "epoch": run.step * run.size / len(run.items)}
        row |= run.read_sums() | run.activity()
        if len(held_out):
            row["validation_loss"] = run.validate(held_out)
            if not (warned or math.isfinite(row["validation_loss"])):
                warn_about_validation(run, held_out, scaled)
                warned = True
        row |= run.control(row)
        if training.patience is not None:
            _keep_best(run, row["validation_loss"])
        history.append(row)
        if folder:
            folder.append(row)
        if watch:
            with evaluating(run.model), at_once():
                watch(row)
        progress.update(run.step, {k: v for k, v in row.items() if k not in ("step", "epoch")})
        good = run.state()
        if training.patience is not None and run.waited >= training.patience:
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
        run.optimiser.forget()  # its moments are of the last step, and no longer of these weights


def _keep_best(run: Run, loss: float) -> None:
    """A loss that is not finite tells nothing: it is neither better nor one more report of waiting."""
    if not math.isfinite(loss):
        return
    if loss < run.best_loss:
        run.best_loss, run.waited = loss, 0
        run.best = {k: v.detach().clone() for k, v in run.model.state_dict().items()}
    else:
        run.waited += 1
