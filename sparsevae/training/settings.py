"""How a model is trained, as a set of parameters: length, batches, rates, schedules, stopping, machine, files."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from numbers import Integral
from typing import Annotated, Any, cast

import numpy as np
import torch
from sklearn.base import BaseEstimator

from sparsevae.checks import check_number, check_seed
from sparsevae.parameters import check_choice, check_course, parameters
from sparsevae.schedules import Constant, Cosine, Schedule, Step
from sparsevae.training.optimisers import OPTIMISERS

_DECAYS: dict[str, Callable[[Training, float], Schedule]] = {
    "constant": lambda t, rate: Constant(rate),
    "cosine": lambda t, rate: Cosine(rate, 0.0),
    "step": lambda t, rate: Step(rate, rate * t.decay_factor, t.decay_at),
}
_ABOVE_0: tuple[str, Callable[[Any], bool]] = ("a number above 0", lambda v: v > 0)
_COURSES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    **dict.fromkeys(("temperature", "tau", "tau_z", "slope", "sharpness"), _ABOVE_0),
    "slab_warmup": ("a number in [0, 1]", lambda v: 0 <= v <= 1),
}


@parameters
class Training(BaseEstimator):
    """How a model is trained: length, batches, rates, schedules, stopping, machine, files.

    {parameters}
    """

    steps: Annotated[
        int | None,
        "Gradient steps; when neither steps nor epochs is given 10,000, for texts six passes and at least 1,000.",
    ] = None
    epochs: Annotated[float | None, "Length of the run as passes over the data, instead of steps."] = None
    batch_size: Annotated[
        int | None, "Rows in a minibatch (all rows where there are fewer); None: 128, for texts 32."
    ] = None
    optimizer: Annotated[str, "adam, or momentum (.9), which wants other rates."] = "adam"
    learning_rate: Annotated[float | None, "The optimiser's rate at the start; None: 2e-3, for texts 1e-2."] = None
    decay: Annotated[str, "Course of the rate: constant, cosine (to 0), or step (times decay_factor at decay_at)."] = (
        "cosine"
    )
    decay_at: Annotated[
        int | float, "Where decay='step' drops the rate: a step (int) or a share of the run (float)."
    ] = 0.5
    decay_factor: Annotated[float, "What decay='step' multiplies the rate by."] = 0.1
    restart_optimizer: Annotated[bool, "Forget the moments where the rate drops, as the VSC authors do."] = False
    n_samples: Annotated[int, "Draws of z per item and step."] = 1
    clip_norm: Annotated[float | None, "Largest gradient norm, for each member; None leaves gradients alone."] = None
    kl_warmup: Annotated[
        int | float,
        "Ramp the weights of the KL and other terms on codes up from 0 until this step or share.",
    ] = 0
    free_bits: Annotated[float, "Nats of KL that each unit may use free of charge."] = 0.0
    schedules: Annotated[
        dict[str, Schedule] | None,
        "More knobs to drive, by name: {'kl_z': Cyclical(0, 1)}; by reports' numbers: {'kl_z': KeepMean('p_on', .1)}.",
    ] = None
    binarise: Annotated[bool, "Draw each pixel anew as Bernoulli(value) at every step (dynamic binarisation)."] = False
    validation_fraction: Annotated[float, "Share of the rows kept aside to watch the loss on."] = 0.0
    patience: Annotated[int | None, "Stop after this many reports without a better validation loss; keep the best."] = (
        None
    )
    seed: Annotated[int, "Fixes weights, batches and noise; the global random state is never touched."] = 0
    device: Annotated[str, "auto, cpu, cuda or cuda:N."] = "auto"
    compile: Annotated[
        bool | None,
        "Compile the step. None: on CUDA in runs of 20,000 steps and more; on a CPU runs of 3,000 and more have theirs "
        "traced, with the same numbers. False: neither.",
    ] = None
    tf32: Annotated[bool, "Let CUDA matrix products of the training step use TensorFloat-32."] = True
    bf16: Annotated[
        bool, "Let matrix products of the training step run in bfloat16 on CUDA (autocast); no effect on a CPU."
    ] = False
    report_every: Annotated[
        int | None, "Steps between reports, checks and roll-back points; None: 100 a run, at most 1,000 steps apart."
    ] = None
    folder: Annotated[str | None, "Run folder for checkpoints and history.jsonl; None writes no file."] = None
    checkpoint_every: Annotated[
        int, "Least steps between checkpoints in the run folder; they are written at reports."
    ] = 1000
    resume: Annotated[bool, "Continue the run that the folder holds, if it holds one."] = False
    verbose: Annotated[int, "0 is silent; 1 shows progress on standard error."] = 1

    def validate(self) -> None:
        """Refuse settings that cannot work, before anything starts."""

        def numbers(names: str, expected: str, legal: Callable[[Any], bool], *, whole: bool = False) -> None:
            for name in names.split():
                value = getattr(self, name)
                if not (value is None and getattr(type(self), name) is None):
                    check_number(f"training.{name}", value, expected, legal, whole=whole)

        counts = "steps batch_size n_samples patience report_every checkpoint_every"
        numbers(counts, "an integer above 0", lambda v: v > 0, whole=True)
        numbers("epochs learning_rate decay_factor clip_norm", "a number above 0", lambda v: v > 0)
        numbers("free_bits", "a number, 0 or above", lambda v: v >= 0)
        numbers("validation_fraction", "in [0, 1)", lambda v: 0 <= v < 1)
        check_seed("training.seed", self.seed)
        position = "a step (an integer, 0 or above) or a share of the run (a float in [0, 1])"
        numbers("decay_at kl_warmup", position, lambda v: v >= 0 and (isinstance(v, Integral) or v <= 1))
        if not isinstance(self.verbose, bool):
            numbers("verbose", "an integer, 0 or above", lambda v: v >= 0, whole=True)
        for name in ("restart_optimizer", "binarise", "tf32", "bf16", "resume", "compile"):
            value = getattr(self, name)
            if not (isinstance(value, (bool, np.bool_)) or (value is None and getattr(type(self), name) is None)):
                raise ValueError(f"training.{name} must be True or False, got {getattr(self, name)!r}.")
        for name, kind in (("device", str), ("folder", (str, os.PathLike, type(None)))):
            if not isinstance(getattr(self, name), kind):
                raise ValueError(f"training.{name} must be a string, got {getattr(self, name)!r}.")
        plan = {} if self.schedules is None else self.schedules
        if not (isinstance(plan, Mapping) and all(callable(s) for s in plan.values())):
            raise ValueError(f"training.schedules must be like {{'kl_z': Cyclical(0, 1)}}, got {self.schedules!r}.")
        for name, course in plan.items():
            expected, legal = _COURSES.get(name, ("a number, 0 or above", lambda w: w >= 0))  # others are weights
            if not hasattr(course, "ends"):  # a function of the user's own
                raise ValueError(
                    f"training.schedules[{name!r}] holds a {type(course).__name__}, which cannot be stored without "
                    "running code; use one of the schedules Constant, Linear, Cosine, Exponential, Step, Cyclical."
                )
            check_course(f"training.schedules[{name!r}]", course, expected, legal)
        check_choice("training.decay", self.decay, _DECAYS)
        check_choice("training.optimizer", self.optimizer, OPTIMISERS)
        if self.steps is not None and self.epochs is not None:
            raise ValueError("give training.steps or training.epochs, not both.")
        if self.restart_optimizer and self.decay != "step":
            raise ValueError("training.restart_optimizer goes with decay='step': there is no drop to restart at.")
        if self.patience is not None and not self.validation_fraction:
            raise ValueError("training.patience watches a validation loss: set validation_fraction, say to 0.1.")
        if self.resume and self.folder is None:
            raise ValueError("training.resume needs training.folder, the run folder to continue.")

    def resolved(self, *, steps: int = 10_000, batch_size: int = 128, learning_rate: float = 2e-3) -> Training:
        """A copy where what was left open has a value: the ones given here, by default those for rows of numbers."""
        own: dict[str, Any] = self.get_params(deep=False)
        defaults: dict[str, Any] = {"batch_size": batch_size, "learning_rate": learning_rate}
        if self.epochs is None:
            defaults["steps"] = steps
        return Training(**(own | {k: v for k, v in defaults.items() if own[k] is None}))

    def total_steps(self, n_rows: int) -> int:
        """How many steps a run on so many rows has, by settled settings."""
        if self.epochs is not None:
            return max(1, math.ceil(self.epochs * n_rows / min(cast(int, self.batch_size), n_rows)))
        return int(cast(int, self.steps))

    def held_out(self, n_rows: int) -> int:
        """How many rows validation keeps aside: at least one where a fraction is asked for, never all."""
        share = self.validation_fraction
        return min(max(1, round(share * n_rows)), n_rows - 1) if share else 0

    def rates(self) -> Schedule:
        """The course of the learning rate, by settled settings."""
        return _DECAYS[self.decay](self, cast(float, self.learning_rate))

    def portable(self) -> Training:
        """A copy without where and how loudly a run went: all that a model's folder holds of it, and may say of it."""
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
        """The settings of one more pass over the data: at the initial rate, without what spans a whole run."""
        return Training(
            **self.get_params()
            | {
                "steps": None,
                "epochs": 1,
                "decay": "constant",
                "restart_optimizer": False,
                "kl_warmup": 0,
                "schedules": None,
                "validation_fraction": 0.0,
                "patience": None,
                "folder": None,
                "resume": False,
                "compile": False,
                "seed": seed,
            }
        )
