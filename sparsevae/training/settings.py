"""`Training`, the settings of a run: length, batches, rates, schedules, stopping, device, files."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Annotated, Any, cast

import torch
from sklearn.base import BaseEstimator

from sparsevae.checks import POSITIVE, In, Note, OneOf, Position, Seed
from sparsevae.parameters import check_parameters, check_value, parameters
from sparsevae.schedules import Constant, Cosine, Schedule, Step
from sparsevae.training.optimisers import OPTIMISERS

_DECAYS: dict[str, Callable[[Training, float], Schedule]] = {
    "constant": lambda t, rate: Constant(rate),
    "cosine": lambda t, rate: Cosine(rate, 0.0),
    "step": lambda t, rate: Step(rate, rate * t.decay_factor, t.decay_at),
}
_WHOLE_RUN = {"steps", "restart_optimizer", "kl_warmup", "schedules", "validation_fraction", "patience"}
_STORED = Note("Constant, Cosine, Cyclical, Exponential, Linear or Step; functions cannot be stored")
_KNOB = "such as {'kl_z': Cyclical(0, 1)} or {'kl_z': KeepMean('p_on', .1)}"
_KNOBS = {
    **dict.fromkeys(("temperature", "tau", "tau_z", "slope", "sharpness"), POSITIVE),
    "slab_warmup": In(0, 1),
    "alpha": In(0, 1, "()"),
}


@parameters
class Training(BaseEstimator):
    """Settings of a training run: length, batches, rates, schedules, stopping, device, files.

    {parameters}
    """

    steps: Annotated[
        int | None, POSITIVE, "Gradient steps; without steps and epochs 10,000, for texts 6 passes and at least 1,000."
    ] = None
    epochs: Annotated[float | None, POSITIVE, "Passes over the data, instead of steps."] = None
    batch_size: Annotated[int | None, POSITIVE, "Rows per minibatch, at most; None: 128, for texts 32."] = None
    optimizer: Annotated[
        str, OneOf(*OPTIMISERS), "adam, or momentum (SGD with momentum .9), which needs other rates."
    ] = "adam"
    learning_rate: Annotated[float | None, POSITIVE, "The rate at the start; None: 2e-3, for texts 1e-2."] = None
    decay: Annotated[
        str, OneOf(*_DECAYS), "Schedule of the rate: constant, cosine (to 0), or step (times decay_factor at decay_at)."
    ] = "cosine"
    decay_at: Annotated[int | float, Position(), "Where in the run decay='step' lowers the rate."] = 0.5
    decay_factor: Annotated[float, POSITIVE, "Factor of the rate at the drop of decay='step'."] = 0.1
    restart_optimizer: Annotated[bool, "Reset the moments when the rate drops, as the VSC authors do."] = False
    n_samples: Annotated[int, POSITIVE, "Draws of z per item and step."] = 1
    clip_norm: Annotated[float | None, POSITIVE, "Largest gradient norm; None: no clipping."] = None
    kl_warmup: Annotated[
        int | float, Position(), "End of the warm-up, in which the weights of all terms but the likelihood grow from 0."
    ] = 0
    free_bits: Annotated[float, In(0), "Nats of KL per unit that are not penalised."] = 0.0
    schedules: Annotated[dict[str, Schedule] | None, Note(_KNOB), f"Schedules of more knobs by name, {_KNOB}."] = None
    binarise: Annotated[bool, "Draw each pixel anew as Bernoulli(value) at every step (dynamic binarisation)."] = False
    validation_fraction: Annotated[float, In(0, 1, "[)"), "Share of the rows held out for a validation loss."] = 0.0
    patience: Annotated[
        int | None, POSITIVE, "Stop after this many reports without a better validation loss; keep the best."
    ] = None
    seed: Annotated[int, Seed(), "Determines weights, batches and noise; the global random state does not change."] = 0
    device: Annotated[str, Note("auto, cpu, cuda or cuda:N"), "auto, cpu, cuda or cuda:N."] = "auto"
    compile: Annotated[
        bool | None,
        "Compile the training step. None: on CUDA, in runs of 20,000 steps or more; on a CPU the step is traced in "
        "runs of 3,000 or more, with the same numbers. False: neither.",
    ] = None
    tf32: Annotated[bool, "Use TensorFloat-32 for CUDA matrix products of training steps."] = True
    bf16: Annotated[bool, "Use bfloat16 for matrix products on CUDA (autocast); no effect on a CPU."] = False
    report_every: Annotated[
        int | None,
        POSITIVE,
        "Steps between reports, which are also roll-back points; None: 100 per run, at most 1,000 steps apart.",
    ] = None
    folder: Annotated[
        str | os.PathLike[str] | None, Note("a path"), "Run folder for checkpoints and history.jsonl; None: no files."
    ] = None
    checkpoint_every: Annotated[int, POSITIVE, "Minimum number of steps between checkpoints."] = 1000
    resume: Annotated[bool, "Continue the run in the folder, if there is one."] = False
    verbose: Annotated[int | bool, In(0), "0 is silent; 1 shows progress on standard error."] = 1

    def validate(self) -> None:
        """Raise ValueError for settings that cannot work, before training starts."""
        check_parameters(self, "training.")
        for name, course in (self.schedules or {}).items():
            where = f"training.schedules[{name!r}]"
            check_value(where, course, Schedule, [_KNOBS.get(name, In(0)), _STORED])  # others are weights of terms
        if self.steps is not None and self.epochs is not None:
            raise ValueError("give training.steps or training.epochs, not both.")
        if self.restart_optimizer and self.decay != "step":
            raise ValueError(f"training.restart_optimizer needs decay='step', got {self.decay!r}.")
        if self.patience is not None and not self.validation_fraction:
            raise ValueError("training.patience needs a validation loss: set validation_fraction, for example to 0.1.")
        if self.resume and self.folder is None:
            raise ValueError("training.resume needs training.folder, the run folder to continue.")

    def resolved(self, *, steps: int = 10_000, batch_size: int = 128, learning_rate: float = 2e-3) -> Training:
        """A copy in which None is replaced by the values given here; their defaults are those for numeric data."""
        own: dict[str, Any] = self.get_params(deep=False)
        defaults: dict[str, Any] = {"batch_size": batch_size, "learning_rate": learning_rate}
        if self.epochs is None:
            defaults["steps"] = steps
        return Training(**(own | {k: v for k, v in defaults.items() if own[k] is None}))

    def total_steps(self, n_rows: int) -> int:
        """The number of steps of a run on n_rows rows, by resolved settings."""
        if self.epochs is not None:
            return max(1, math.ceil(self.epochs * n_rows / min(cast(int, self.batch_size), n_rows)))
        return int(cast(int, self.steps))

    def held_out(self, n_rows: int) -> int:
        """The number of validation rows: at least one if validation_fraction > 0, never all."""
        share = self.validation_fraction
        return min(max(1, round(share * n_rows)), n_rows - 1) if share else 0

    def rates(self) -> Schedule:
        """The schedule of the learning rate, by resolved settings."""
        return _DECAYS[self.decay](self, cast(float, self.learning_rate))

    def portable(self) -> Training:
        """A copy without folder, resume and verbose: what is stored with a model."""
        return Training(**self.get_params(deep=False) | {"folder": None, "resume": False, "verbose": 1})

    def torch_device(self) -> torch.device:
        if str(self.device).partition(":")[0] not in ("auto", "cpu", "cuda"):
            raise ValueError(f"training.device must be auto, cpu, cuda or cuda:N, got {self.device!r}.")
        auto = "cuda" if torch.cuda.is_available() else "cpu"
        try:
            device = torch.device(auto if self.device == "auto" else self.device)
            torch.empty(0, device=device)
        except (RuntimeError, AssertionError) as error:
            raise ValueError(f"training.device={self.device!r} is not usable here: {error}") from None
        return device

    def once_more(self, seed: int) -> Training:
        """The settings of one more epoch: at the initial rate, without settings that refer to a whole run."""
        own = {k: v for k, v in self.get_params().items() if k not in _WHOLE_RUN}
        own |= {"folder": None, "resume": False}
        return Training(**own | {"epochs": 1, "decay": "constant", "compile": False, "seed": seed})
