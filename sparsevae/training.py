"""The one training loop.

A step is a pure function of (weights, batch, noise, knobs) on static buffers, so it can run eagerly, compiled, or
as one captured CUDA graph, with the same numbers. Batch order and noise are functions of (seed, step). Every
`report_every` steps the loop looks up: are the sums finite (else it rolls back and halves the rate), what do the
terms read, is it time to validate, to stop, to save.
"""

from __future__ import annotations

import math
import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from numbers import Integral
from typing import Annotated, Any

import torch
from sklearn.base import BaseEstimator
from torch import Tensor, nn

from sparsevae.checkpoint import RunFolder, State
from sparsevae.draw import Draw, PerRow, Tape, mix, row_keys
from sparsevae.model import LatentModel
from sparsevae.objectives import Objective
from sparsevae.parameters import check_choice, check_number, parameters
from sparsevae.progress import Progress
from sparsevae.rows import Rows
from sparsevae.schedules import Constant, Cosine, Linear, Schedule, Step
from sparsevae.threads import threads

__all__ = ["DivergenceError", "History", "SparsityWarning", "Training", "fit"]

ACTIVE_VARIANCE = 0.01  # a unit is active when the mean of q(z|x) varies by more than this over the rows
_RETRIES = 5
_BLOCK = 512
_DECAYS: dict[str, Callable[[Training], Schedule]] = {
    "constant": lambda t: Constant(t.learning_rate),
    "cosine": lambda t: Cosine(t.learning_rate, 0.0),
    "step": lambda t: Step(t.learning_rate, t.learning_rate * t.decay_factor, t.decay_at),
}


class DivergenceError(RuntimeError):
    """Training met non-finite numbers again and again, at ever smaller rates."""


class SparsityWarning(UserWarning):
    """Hardly any unit, or every unit, carries information."""


@parameters
class Training(BaseEstimator):
    """How a model is trained: length, batches, rates, schedules, stopping, machine, files.

    {parameters}
    """

    steps: Annotated[int | None, "Gradient steps; 10,000 when neither steps nor epochs is given."] = None
    epochs: Annotated[float | None, "Length of the run as passes over the data, instead of steps."] = None
    batch_size: Annotated[int, "Rows in a minibatch (all rows where there are fewer)."] = 128
    learning_rate: Annotated[float, "Adam's rate at the start."] = 2e-3
    decay: Annotated[str, "Course of the rate: constant, cosine (to 0), or step (times decay_factor at decay_at)."] = (
        "cosine"
    )
    decay_at: Annotated[
        int | float, "Where decay='step' drops the rate: a step (int) or a share of the run (float)."
    ] = 0.5
    decay_factor: Annotated[float, "What decay='step' multiplies the rate by."] = 0.1
    restart_optimizer: Annotated[bool, "Forget Adam's moments where the rate drops, as the VSC authors do."] = False
    n_samples: Annotated[int, "Draws of z per item and step."] = 1
    clip_norm: Annotated[float | None, "Largest gradient norm, for each member; None leaves gradients alone."] = None
    kl_warmup: Annotated[
        int | float, "Ramp KL weights up from 0 until this step (int) or share of the run (float)."
    ] = 0
    free_bits: Annotated[float, "Nats of KL that each unit may use free of charge."] = 0.0
    schedules: Annotated[dict[str, Schedule] | None, "More knobs to drive, by name: {'kl_z': Cyclical(0, 1)}."] = None
    binarise: Annotated[bool, "Draw each pixel anew as Bernoulli(value) at every step (dynamic binarisation)."] = False
    validation_fraction: Annotated[float, "Share of the rows kept aside to watch the loss on."] = 0.0
    patience: Annotated[int | None, "Stop after this many reports without a better validation loss; keep the best."] = (
        None
    )
    seed: Annotated[int, "Fixes weights, batches and noise; the global random state is never touched."] = 0
    device: Annotated[str, "auto, cpu, cuda or cuda:N."] = "auto"
    compile: Annotated[bool | None, "Compile the step; None compiles runs of 20,000 steps and more on CUDA."] = None
    tf32: Annotated[bool, "Let CUDA matrix products of the training step use TensorFloat-32."] = True
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
        numbers("seed", "an integer", lambda v: True, whole=True)
        position = "a step (an integer, 0 or above) or a share of the run (a float in [0, 1])"
        numbers("decay_at kl_warmup", position, lambda v: v >= 0 and (isinstance(v, Integral) or v <= 1))
        if not isinstance(self.verbose, bool):
            numbers("verbose", "an integer, 0 or above", lambda v: v >= 0, whole=True)
        for name in ("restart_optimizer", "binarise", "tf32", "resume", "compile"):
            if getattr(self, name) not in (True, False, getattr(type(self), name)):
                raise ValueError(f"training.{name} must be True or False, got {getattr(self, name)!r}.")
        for name, kind in (("device", str), ("folder", (str, os.PathLike, type(None)))):
            if not isinstance(getattr(self, name), kind):
                raise ValueError(f"training.{name} must be a string, got {getattr(self, name)!r}.")
        plan = {} if self.schedules is None else self.schedules
        if not (isinstance(plan, Mapping) and all(callable(s) for s in plan.values())):
            raise ValueError(f"training.schedules must be like {{'kl_z': Cyclical(0, 1)}}, got {self.schedules!r}.")
        check_choice("training.decay", self.decay, _DECAYS)
        if self.steps is not None and self.epochs is not None:
            raise ValueError("give training.steps or training.epochs, not both.")
        if self.restart_optimizer and self.decay != "step":
            raise ValueError("training.restart_optimizer goes with decay='step': there is no drop to restart at.")
        if self.patience is not None and not self.validation_fraction:
            raise ValueError("training.patience watches a validation loss: set validation_fraction, say to 0.1.")
        if self.resume and self.folder is None:
            raise ValueError("training.resume needs training.folder, the run folder to continue.")

    def total_steps(self, n_rows: int) -> int:
        if self.epochs is not None:
            return max(1, math.ceil(self.epochs * n_rows / min(self.batch_size, n_rows)))
        return int(self.steps) if self.steps is not None else 10_000

    def torch_device(self) -> torch.device:
        auto = "cuda" if torch.cuda.is_available() else "cpu"
        try:
            device = torch.device(auto if self.device == "auto" else self.device)
            torch.empty(0, device=device)
        except (RuntimeError, AssertionError) as error:
            raise ValueError(f"training.device={self.device!r} is not usable here: {error}") from None
        if device.type not in ("cpu", "cuda"):
            raise ValueError(f"training.device must be auto, cpu, cuda or cuda:N, got {self.device!r}.")
        return device


class History(list[dict[str, Any]]):
    """One row per report: step, epoch, loss, every term, active units, non-zeros. A table when printed."""

    def column(self, name: str) -> list[Any]:
        """The values of one column, None where a row lacks it."""
        return [row.get(name) for row in self]

    def names(self) -> list[str]:
        """Every column, in the order of first appearance."""
        return list(dict.fromkeys(k for row in self for k in row))

    def columns(self) -> list[list[Any]]:
        """The table column by column, each headed by its name: a plain form that keeps their order."""
        return [[name, *self.column(name)] for name in self.names()]

    @classmethod
    def from_columns(cls, columns: list[list[Any]]) -> History:
        """The inverse of `columns`."""
        names = [c[0] for c in columns]
        rows = zip(*(c[1:] for c in columns), strict=True)
        return cls({k: v for k, v in zip(names, row, strict=True) if v is not None} for row in rows)

    def __str__(self) -> str:
        names = self.names()
        cells = [names] + [[_cell(row.get(k)) for k in names] for row in self]
        widths = [max(len(line[i]) for line in cells) for i in range(len(names))]
        return "\n".join("  ".join(c.rjust(w) for c, w in zip(line, widths, strict=True)) for line in cells)


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.4f}" if isinstance(value, float) else str(value)


class Order:
    """Which rows make up the batch of a step: every row once an epoch, in an order fixed by (seed, epoch).

    A batch may straddle two epochs, so that all batches have one size.
    """

    def __init__(self, items: Tensor, batch_size: int, seed: int) -> None:
        self.items, self.size, self.seed = items, min(int(batch_size), len(items)), seed
        self._epochs: dict[int, Tensor] = {}

    def _epoch(self, epoch: int) -> Tensor:
        if epoch not in self._epochs:
            generator = torch.Generator(self.items.device).manual_seed(mix(self.seed, epoch, 1))
            shuffle = torch.randperm(len(self.items), generator=generator, device=self.items.device)
            self._epochs = {k: v for k, v in self._epochs.items() if k == epoch - 1}
            self._epochs[epoch] = self.items[shuffle]
        return self._epochs[epoch]

    def __call__(self, step: int) -> Tensor:
        epoch, first = divmod(step * self.size, len(self.items))
        head = self._epoch(epoch)[first : first + self.size]
        if len(head) == self.size:
            return head
        return torch.cat([head, self._epoch(epoch + 1)[: self.size - len(head)]])


def knobs(model: nn.Module, objective: Objective) -> dict[str, Tensor]:
    """Every buffer a schedule may drive, by name: term weights, and what the model's parts declare."""
    found: dict[str, Tensor] = {}
    for module in (*objective.modules(), *model.modules()):
        for name in getattr(module, "knobs", ()):
            found[name] = getattr(module, name)
    return found


def clip_gradients(parameters: list[nn.Parameter], largest: float, members: torch.Size) -> None:
    """Scale each member's whole gradient down to norm `largest` at most; members are leading dimensions."""
    n = len(members)
    gradients = [p.grad for p in parameters if p.grad is not None]
    squares = torch.stack([g.square().reshape(*members, -1).sum(-1) for g in gradients]).sum(0)
    factor = (largest / (squares.sqrt() + 1e-12)).clamp(max=1.0)
    for g in gradients:
        g.mul_(factor.view(members + (1,) * (g.dim() - n)))


class Run:
    """The moving parts of a run: static buffers, one step, and the state that a checkpoint holds."""

    def __init__(
        self,
        model: LatentModel,
        objective: Objective,
        rows: Rows,
        items: Tensor,
        training: Training,
        schedules: Mapping[str, Schedule],
        prepare: nn.Module,
        total: int,
    ) -> None:
        self.model, self.objective, self.rows, self.training = model, objective, rows, training
        self.prepare, self.total = prepare, total
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.rate = torch.tensor(training.learning_rate, device=rows.device)
        cuda = rows.device.type == "cuda"
        self.adam = torch.optim.Adam(self.parameters, lr=self.rate, fused=True, capturable=cuda)
        self.order = Order(items, training.batch_size, training.seed)
        self.tape = Tape(mix(training.seed, 2), rows.device)
        self.index = self.order(0).clone()
        self.batch = rows.take(self.index)
        self.schedules = dict(schedules)
        self.rate_schedule = _DECAYS[training.decay](training)
        self.knobs = knobs(model, objective)
        if unknown := set(self.schedules) - set(self.knobs):
            raise ValueError(f"schedules drive unknown knobs {sorted(unknown)}; this model has {sorted(self.knobs)}.")
        for name, schedule in self.schedules.items():
            try:
                finite = all(math.isfinite(schedule(step, total)) for step in (0, total // 2, total))
                problem = None if finite else "it gives values that are not finite."
            except (ValueError, TypeError) as error:
                problem = str(error)
            if problem:
                raise ValueError(f"schedules cannot drive {name!r} by {schedule!r}: {problem}")
        self.step = self.reported = 0  # steps taken, and taken when the sums were last read
        self.rate_factor = 1.0
        self.retries = 0
        self.best: dict[str, Tensor] = {}
        self.best_loss = math.inf
        self.waited = 0
        self.stopped = False  # by patience, before the last step
        self._written: dict[str, float] = {}
        self._prime()
        self._run: Callable[[], None] = self._eager

    # -- one step ---------------------------------------------------------------------------------------------

    def _measure(self) -> tuple[Tensor, dict[str, Tensor]]:
        """Forward pass on the static buffers: the loss and every term, (*members,)."""
        x = self.prepare(self.rows.take(self.index) if self.rows.static else self.batch)
        if self.training.binarise:
            x = (x > self.tape.uniform(x)).to(x.dtype)
        if self.training.n_samples > 1:
            x = x.repeat(self.training.n_samples, 1)
        loss, terms = self.objective(self.model(x, Draw(self.tape, hard=False)))
        return loss, terms

    def _loss(self) -> tuple[Tensor, Tensor]:
        """The loss, (*members,), and with it every term, (1 + terms, *members), without a gradient."""
        loss, terms = self._measure()
        return loss, torch.stack([v.detach() for v in (loss, *terms.values())])

    def _eager(self) -> None:
        for p in self.parameters:
            p.grad = None
        loss, terms = self._loss()
        loss.sum().backward()
        if self.training.clip_norm is not None:
            clip_gradients(self.parameters, float(self.training.clip_norm), loss.shape)
        self.adam.step()
        self.sums.add_(terms)  # what is not finite stays so: one look at the sums tells of every step

    def _prime(self) -> None:
        """Record the noise tape, learn the terms' names, and create Adam's state without moving a weight."""
        with torch.no_grad(), _evaluating(self.model):
            loss, terms = self._measure()
        self.names = ["loss", *terms]
        self.sums = torch.zeros(len(self.names), *loss.shape, device=self.rows.device)
        for p in self.parameters:
            p.grad = torch.zeros_like(p)
        self.rate.zero_()
        self.adam.step()
        self.forget_moments()

    def forget_moments(self) -> None:
        for moments in self.adam.state.values():
            for value in moments.values():
                value.zero_()

    def set_knobs(self, step: int) -> None:
        """Write every scheduled value into its buffer, where it has changed."""
        for name, schedule in self.schedules.items():
            self._write(name, self.knobs[name], schedule(step, self.total))
        self._write("learning_rate", self.rate, self.rate_factor * self.rate_schedule(step, self.total))

    def _write(self, name: str, buffer: Tensor, value: float) -> None:
        if self._written.get(name) != value:
            self._written[name] = value
            buffer.fill_(value)

    def advance(self) -> None:
        """Load the step's rows, noise and knobs, then take it."""
        training, step = self.training, self.step
        if training.restart_optimizer and self._drops(step):
            self.forget_moments()
        self.set_knobs(step)
        index = self.order(step)
        if self.rows.static:
            self.index.copy_(index)
        else:
            self.batch.copy_(self.rows.take(index))
        self.tape.refill(step)
        self._run()
        self.step += 1

    def _drops(self, step: int) -> bool:
        at = self.training.decay_at
        return step > 0 and step == math.ceil(at if isinstance(at, Integral) else at * self.total)

    # -- faster ways to take the same step --------------------------------------------------------------------

    def accelerate(self, say: Callable[[str], None]) -> None:
        """Compile and capture the step where that pays; on failure say so once and stay with the slower way."""
        cuda = self.rows.device.type == "cuda"
        wanted = self.training.compile
        if wanted or (wanted is None and cuda and self.total - self.step >= 20_000):
            self._attempt("compiling", self._compile, say)
        if cuda:
            self._attempt("capturing a CUDA graph of", self._capture, say)

    def _attempt(self, what: str, action: Callable[[], None], say: Callable[[str], None]) -> None:
        before = self.state()
        plain = self._loss, self._run
        try:
            action()
        except Exception as error:  # whatever a compiler or driver throws: the eager step always works
            self._loss, self._run = plain  # type: ignore[method-assign]
            say(f"{what} the step failed ({type(error).__name__}: {str(error).splitlines()[0]}); going on without.")
        self.load(before)

    def _compile(self) -> None:
        with warnings.catch_warnings():  # torch's own deprecations, raised while it imports its compiler
            warnings.simplefilter("ignore")
            self._loss = torch.compile(self._loss)  # type: ignore[method-assign]
            self.tape.refill(0)
            self._eager()

    def _capture(self) -> None:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                self.tape.refill(0)
                self._eager()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        self.tape.refill(0)
        with torch.cuda.graph(graph):
            self._eager()
        self._run = graph.replay

    # -- state ------------------------------------------------------------------------------------------------

    def _moments(self) -> Iterator[tuple[str, Tensor]]:
        for i, p in enumerate(self.parameters):
            for key, value in self.adam.state[p].items():
                yield f"adam.{i}.{key}", value

    def moments(self) -> dict[str, Tensor]:
        return {k: v.detach().cpu().clone() for k, v in self._moments()}

    def load_moments(self, moments: Mapping[str, Tensor]) -> None:
        for name, value in self._moments():
            value.copy_(moments[name])

    def _named(self) -> Iterator[tuple[str, Tensor]]:
        for name, value in self.model.state_dict().items():
            yield f"model.{name}", value
        yield from self._moments()
        yield "sums", self.sums

    def state(self) -> State:
        """A copy of all that the rest of the run depends on."""
        tensors = {k: v.detach().clone() for k, v in self._named()}
        tensors |= {f"best.{k}": v for k, v in self.best.items()}
        meta = {
            "step": self.step,
            "reported": self.reported,
            "rate_factor": self.rate_factor,
            "retries": self.retries,
            "best_loss": None if math.isinf(self.best_loss) else self.best_loss,
            "waited": self.waited,
            "stopped": self.stopped,
            "threads": torch.get_num_threads(),
        }
        return State(tensors, meta)

    def load(self, state: State) -> None:
        """Go back (or on) to a state, in place, so that captured graphs stay valid."""
        with torch.no_grad():
            for name, value in self._named():
                value.copy_(state.tensors[name])
        best = {k.removeprefix("best."): v for k, v in state.tensors.items() if k.startswith("best.")}
        self.best = {k: v.to(self.rows.device) for k, v in best.items()}
        meta = state.meta
        self.step, self.reported = meta["step"], meta["reported"]
        self.rate_factor, self.retries = meta["rate_factor"], meta["retries"]
        self.best_loss = math.inf if meta["best_loss"] is None else meta["best_loss"]
        self.waited, self.stopped = meta["waited"], meta["stopped"]

    def broken(self) -> str | None:
        """A term that was not finite since the last report (or "weights"), None when all is well."""
        weights = torch.stack(torch._foreach_norm(tuple(self.parameters))).sum()
        sums = self.sums.reshape(len(self.names), -1).sum(-1)
        finite = torch.isfinite(torch.cat([sums, weights[None]])).tolist()
        bad = [name for name, ok in zip([*self.names, "weights"], finite, strict=True) if not ok]
        return next((name for name in bad if name != "loss"), "loss") if bad else None

    # -- numbers ----------------------------------------------------------------------------------------------

    def read_sums(self) -> dict[str, float]:
        """Means of the terms since the last report (over members too, where there are several)."""
        means = (self.sums / max(1, self.step - self.reported)).reshape(len(self.names), -1).mean(-1).tolist()
        self.sums.zero_()
        self.reported = self.step
        return dict(zip(self.names, means, strict=True))

    def final_weights(self) -> dict[str, float]:
        ends = {k: s(self.total, self.total) for k, s in self.schedules.items()}
        return {k: ends.get(k, float(getattr(self.objective, k).mean())) for k in self.objective.knobs}

    def validate(self, items: Tensor) -> float:
        """The objective on held-out rows: hard draws, the same noise every time, final weights."""
        weights = self.final_weights()
        total = 0.0
        with torch.no_grad(), _evaluating(self.model):
            for part in items.split(_BLOCK):
                x = self.prepare(self.rows.take(part))
                noise = PerRow(row_keys(x), self.training.seed)
                if self.training.binarise:
                    x = (x > noise.uniform(x)).to(x.dtype)
                terms = self.objective.measure(self.model(x, Draw(noise, hard=True)))
                loss = sum(weights.get(k, 1.0) * float(v.mean()) for k, v in terms.items())
                total += loss * len(part)
        return total / len(items)

    def activity(self, items: Tensor) -> dict[str, float]:
        """Active units and mean non-zeros a row of the code, on a few training rows.

        A unit is active when the variance over rows of the mean of q(z|x) exceeds .01 (Burda et al., 2016): a unit
        that idles at its prior is not, nor is one that is shut for good, though its KL may not be small.
        """
        with torch.no_grad(), _evaluating(self.model):
            x = self.prepare(self.rows.take(items))
            q = self.model.encode(x)
            counts = (q.mean.var(-2, correction=0) > ACTIVE_VARIANCE).sum(-1), (q.mode != 0).sum(-1)
            active, nonzeros = torch.stack([c.float().mean() for c in counts]).tolist()
            return {"active_units": active, "nonzeros": nonzeros}


@contextmanager
def _stop_signals() -> Iterator[list[int]]:
    """Collect SIGINT and SIGTERM instead of dying of them; only the main thread can. A second one is not held back."""
    caught: list[int] = []
    before: dict[int, Any] = {}

    def restore() -> None:
        while before:
            signal.signal(*before.popitem())

    def catch(number: int, frame: object) -> None:
        caught.append(number)
        restore()

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            before[number] = signal.signal(number, catch)
    try:
        yield caught
    finally:
        restore()


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Let a user's own BatchNorm or Dropout look without learning."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


@contextmanager
def _matmul_precision(tf32: bool, device: torch.device) -> Iterator[None]:
    if device.type != "cuda":  # a process-wide setting: two fits in threads would undo each other's
        yield
        return
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def split(n_rows: int, fraction: float, seed: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Training and validation rows, at random by the seed; at least one of each when a fraction is asked for."""
    shuffle = torch.randperm(n_rows, generator=torch.Generator().manual_seed(mix(seed, 3)))
    held = min(max(1, round(fraction * n_rows)), n_rows - 1) if fraction else 0
    return shuffle[held:].sort().values.to(device), shuffle[:held].sort().values.to(device)


def fit(
    model: LatentModel,
    objective: Objective,
    rows: Rows,
    training: Training,
    *,
    schedules: Mapping[str, Schedule] | None = None,
    prepare: nn.Module | None = None,
    label: str = "fit",
    signature: dict[str, Any] | None = None,
    moments: Mapping[str, Tensor] | None = None,
    history: History | None = None,
) -> tuple[History, dict[str, Tensor]]:
    """Train `model` in place on `rows`: the only training loop in the library.

    Parameters
    ----------
    model, objective
        What to train and what to minimise, both already on the rows' device.
    rows : Rows
        The data; `prepare` (scaling) is applied to every batch.
    training : Training
        Settings. Validated by the caller.
    schedules : {knob: Schedule}
        The recipe's own schedules; `training.schedules` and `training.kl_warmup` come on top.
    signature : dict
        What run this is, for the run folder.
    moments : {name: Tensor}
        Adam's moments to start from, as an earlier call returned them.
    history : History
        Filled as the run goes on, so that the caller has it also after an interruption.

    Returns
    -------
    history, moments
        The reports, and Adam's moments for a later call.

    Raises
    ------
    DivergenceError
        When non-finite numbers return at ever smaller rates.
    KeyboardInterrupt, SystemExit
        After SIGINT or SIGTERM, with the checkpoint written and the model as of the last step.
    """
    device = rows.device
    items, held_out = split(rows.shape[0], training.validation_fraction, training.seed, device)
    total = training.total_steps(len(items))
    plan = {**(schedules or {}), **_warmups(objective, training), **(training.schedules or {})}
    folder = RunFolder(training.folder, signature or {}) if training.folder else None
    found = folder.open(training.resume) if folder else None
    history = History() if history is None else history
    history.extend(found[2] if found else [])
    progress = Progress(label, total, training.verbose)
    count = found[0].meta["threads"] if found else None
    with threads(count), _matmul_precision(training.tf32, device), torch.enable_grad(), _stop_signals() as stop:
        try:
            run = Run(model, objective, rows, items, training, plan, prepare or nn.Identity(), total)
            if moments:
                run.load_moments(moments)
            if found:
                run.load(found[0])
            good = found[1] if found else run.state()
            if run.step < total and not run.stopped:
                run.accelerate(progress.say)
            _loop(run, good, held_out, folder, history, progress, stop)
        finally:
            progress.close()
    if stop:
        where = f" Saved in {folder.path}; continue with resume=True (--resume)." if folder else ""
        progress.say(f"stopped by a signal at step {run.step} of {total}.{where}")
        raise KeyboardInterrupt if stop[0] == signal.SIGINT else SystemExit(128 + stop[0])
    _warn_about_sparsity(history, model)
    return history, run.moments()


def _warmups(objective: Objective, training: Training) -> dict[str, Schedule]:
    if not training.kl_warmup:
        return {}
    names = [k for k in objective.knobs if k.startswith("kl_")]
    return {k: Linear(0.0, float(getattr(objective, k)), end=training.kl_warmup) for k in names}


def _loop(
    run: Run,
    good: State,
    held_out: Tensor,
    folder: RunFolder | None,
    history: History,
    progress: Progress,
    stop: list[int],
) -> None:
    training, total = run.training, run.total
    every = training.report_every or max(10, min(total // 100, 1000))
    watched = run.order.items[:_BLOCK]
    while run.step < total and not run.stopped and not stop:
        run.advance()
        if run.step % every and run.step != total:
            continue
        if term := run.broken():
            good = _roll_back(run, good, term, progress)
            continue
        run.retries = 0  # retries count what fails again and again, not what a long run meets now and then
        row: dict[str, Any] = {"step": run.step, "epoch": run.step * run.order.size / len(run.order.items)}
        row |= run.read_sums() | run.activity(watched)
        if len(held_out):
            row["validation_loss"] = run.validate(held_out)
        if training.patience is not None:
            _keep_best(run, row["validation_loss"])
        history.append(row)
        if folder:
            folder.append(row)
        progress.update(run.step, {k: v for k, v in row.items() if k not in ("step", "epoch")})
        good = run.state()
        if training.patience is not None and run.waited >= training.patience:
            progress.say(f"stopped at step {run.step}: no better validation loss for {run.waited} reports.")
            run.stopped = True
            good = run.state()
        ended = run.stopped or run.step == total
        if folder and (ended or run.step % training.checkpoint_every < every):
            folder.save(good, good)
    if stop and run.broken():
        run.load(good)
    if stop and folder and run.step < total:
        folder.save(run.state(), good)
    if run.best and not stop:
        run.model.load_state_dict(run.best)


def _keep_best(run: Run, loss: float) -> None:
    if loss < run.best_loss:
        run.best_loss, run.waited = loss, 0
        run.best = {k: v.detach().clone() for k, v in run.model.state_dict().items()}
    else:
        run.waited += 1


def _roll_back(run: Run, good: State, term: str, progress: Progress) -> State:
    """Return to the last good state at half the rate, or give up with a reason."""
    retries, factor, last = run.retries + 1, run.rate_factor / 2, run.step
    run.load(good)
    if retries > _RETRIES:
        while run.step < last and (found := run.broken()) in (None, "weights"):
            run.advance()  # the same steps once more, looking after each: which one breaks, and in which term?
        term, bad = found or term, max(run.step - 1, good.meta["step"])
        run.load(good)  # what the user is left with is finite
        x = run.prepare(run.rows.take(run.order(bad)))
        raise DivergenceError(
            f"training diverged: the term {term!r} was not finite at step {bad}, and again after {_RETRIES} "
            f"retries at ever smaller rates (last {2 * factor * run.rate_schedule(bad, run.total):.2g}). That "
            f"batch's inputs, as the network sees them, span {float(x.min()):.4g} to {float(x.max()):.4g}. What "
            "helps: scale='auto', a smaller learning_rate, clip_norm=1.0, or a larger variance_floor."
        )
    progress.say(f"{term} was not finite by step {last}; back to step {run.step} at half the rate.")
    run.retries, run.rate_factor = retries, factor
    return good._replace(meta={**good.meta, "retries": retries, "rate_factor": factor})


def _warn_about_sparsity(history: History, model: LatentModel) -> None:
    if not history:
        return
    active, n = history[-1]["active_units"], model.prior.loc.shape[-1]
    if history[-1]["nonzeros"] == 0:
        warnings.warn(
            "every code is zero: no unit is more likely on than off for any row. Try kl_warmup=0.5, more steps, a "
            "larger alpha, or a variance_floor well below the variance of the scaled data.",
            SparsityWarning,
            stacklevel=5,  # the user's call of fit
        )
    elif active < 0.05 * n:
        warnings.warn(
            f"only {active:g} of {n} units differ between rows: the code has nearly collapsed. Try "
            "kl_warmup=0.2, free_bits=0.05, a smaller beta, more steps, or data with scale='auto'.",
            SparsityWarning,
            stacklevel=5,  # the user's call of fit
        )
    elif active == n:
        warnings.warn(
            f"all {n} units are active: the code may be too small to be sparse. Try a larger n_components or a "
            "smaller alpha (a larger beta for a VAE).",
            SparsityWarning,
            stacklevel=5,  # the user's call of fit
        )
