"""One training step, and all that it reads and moves.

A step is a pure function of (weights, batch, noise, knobs) on static buffers, so it can run eagerly, traced, compiled,
or as one captured CUDA graph, with the same numbers. Batch order and noise are functions of (seed, step).

Buffers have one shape. Where rows come in several widths, each width has a `Feed` of its own, with its own batch and
its own graph, and a `FeedSchedule` says which of them serves a step.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from numbers import Integral
from typing import cast

import torch
from torch import Tensor, nn

from sparsevae.exceptions import unknown
from sparsevae.inputs.batch import Batch, Examples
from sparsevae.inputs.rows import BLOCK, floats
from sparsevae.latent.codes import active
from sparsevae.latent.model import LatentModel, Trace
from sparsevae.latent.objective import Objective, nll
from sparsevae.sampling.draw import Draw
from sparsevae.sampling.gradients import points
from sparsevae.sampling.noise import Noise, PerRow, Tape, mix, row_keys
from sparsevae.schedules import Controller, Schedule
from sparsevae.storage.checkpoint import State
from sparsevae.training.feeds import Feed, FeedSchedule, Order, some_items
from sparsevae.training.knobs import knobs, lasting
from sparsevae.training.modes import evaluating, precision
from sparsevae.training.optimisers import OPTIMISERS, Gradients, clip_gradients
from sparsevae.training.settings import Training

REFERENCE_ROWS, RUIN_FACTOR = 128, 10.0
"""A model is ruined when -log p(x|z) of these many rows is so many times worse than before training."""


class Run:
    """The moving parts of a run: static buffers, one step, and the state that a checkpoint holds."""

    def __init__(
        self,
        model: LatentModel,
        objective: Objective,
        rows: Examples,
        items: Tensor,
        training: Training,
        schedules: Mapping[str, Schedule],
        prepare: nn.Module,
        total: int,
    ) -> None:
        self.model, self.objective, self.rows, self.items, self.training = model, objective, rows, items, training
        self.prepare, self.total = prepare, total
        self.parts = {"model": model, "objective": objective, "prepare": prepare}  # all that a step calls
        self.rows_an_item = int(training.n_samples) * points(model)[0]
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        for p in self.parameters:
            p.grad = None  # a user's own network may bring some
        self.rate = torch.tensor(float(cast(float, training.learning_rate)), device=rows.device)
        self.optimiser = OPTIMISERS[training.optimizer](self.parameters, self.rate)
        batch = int(cast(int, training.batch_size))  # settled by now
        found = rows.parts(items, min(batch, len(items)))
        if len(found) > 1 and self._compares_rows():
            found = [(rows, items)]
        self.size = min(batch, *(len(own) for _, own in found))  # of every batch of every feed
        self.feeds = [Feed(part, Order(own, self.size, training.seed, k)) for k, (part, own) in enumerate(found)]
        self.plan = FeedSchedule([len(own) for _, own in found], total, training.seed)
        self.schedules = dict(schedules)
        self.rate_schedule = training.rates()
        self.knobs, self.lasting = knobs(model, objective), lasting(model)
        if missing := set(self.schedules) - set(self.knobs):
            raise ValueError(f"schedules drive unknown knobs {sorted(missing)}; this model has {sorted(self.knobs)}.")
        for name, schedule in self.schedules.items():
            try:
                finite = all(bool(torch.as_tensor(schedule(t, total)).isfinite().all()) for t in (0, total // 2, total))
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
        self.controllers = {k: s for k, s in self.schedules.items() if isinstance(s, Controller)}
        self.controls = {k: (float(c(0, total)), c.start()) for k, c in self.controllers.items()}  # value and state
        for feed in self.feeds:
            feed.differentiate, feed.run = partial(self.differentiate, feed), partial(self.take, feed)
        self._prime()
        self.watched = some_items(items, BLOCK, training.seed)  # the rows that live numbers are of
        self.reference_rows = some_items(self.feeds[0].order.items, REFERENCE_ROWS, training.seed)  # of the narrowest
        self.reference_tape = Tape(mix(training.seed, 11), rows.device)
        self.reconstruction()  # which records what noise it takes
        self.reference_tape.refill(0)
        self.untrained = self.reconstruction()

        for name, controller in self.controllers.items():
            known = [*self.names, *self.activity(), *["validation_loss"] * bool(training.validation_fraction)]
            if controller.measure not in known:
                problem = unknown("measure", controller.measure, known)
                raise ValueError(f"schedules cannot drive {name!r} by {controller!r}: {problem}.")

    def _compares_rows(self) -> bool:
        """Whether a term belongs to a batch as a whole: its batches must be like the data, not all of one width."""
        with torch.no_grad(), evaluating(self.model):
            batch = self.prepared(self.rows.take(self.items[:2])).copies(self.rows_an_item)
            trace = self.model(batch, Draw(Tape(0, self.rows.device), hard=False))
            return any(term.shape[-1] == 1 for term in self.objective.measure(trace).values())

    # -- one step ---------------------------------------------------------------------------------------------

    def order(self, step: int) -> Tensor:
        """Positions of the rows that a step sees, (B,)."""
        feed, turn = self.plan(step)
        return self.feeds[feed].order(turn)

    def prepared(self, batch: Batch) -> Batch:
        """A batch with x in the networks' units."""
        return batch._replace(x=self.prepare(batch.x))

    def _binarised(self, batch: Batch, noise: Noise) -> Batch:
        """With each value of x drawn as Bernoulli(value), where the settings ask for that."""
        x = batch.x
        return batch._replace(x=(x > noise.uniform(x)).to(x.dtype)) if self.training.binarise else batch

    def _measure(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """Forward pass on a batch as it was read: the loss and every term, (*members,)."""
        batch = self._binarised(self.prepared(batch.map(floats)), self.tape).copies(self.rows_an_item)
        loss, terms = self.objective(self.model(batch, Draw(self.tape, hard=False)))
        return loss, terms

    def loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The loss, (*members,), and with it every term, (1 + terms, *members), without a gradient."""
        loss, terms = self._measure(batch)
        return loss, torch.stack([v.detach() for v in (loss, *terms.values())])

    def forward(self, feed: Feed) -> tuple[Tensor, Tensor]:
        """The same of the batch that a feed has loaded; a compiler may have another function take its place."""
        return self.loss(feed.read())

    def _precision(self) -> AbstractContextManager[object]:
        return precision(self.rows.device, bf16=self.training.bf16)

    def differentiate(self, feed: Feed) -> tuple[Tensor, Gradients]:
        """The terms and a gradient for each weight, eagerly."""
        with self._precision():
            loss, terms = self.forward(feed)
        loss.backward(self.ones)
        gradients = [p.grad for p in self.parameters]
        for p in self.parameters:
            p.grad = None
        return terms, gradients

    def take(self, feed: Feed) -> None:
        """One step on the batch that a feed has loaded, with the terms and gradients that its own way gives."""
        terms, gradients = feed.differentiate()
        if self.training.clip_norm is not None:
            clip_gradients(gradients, float(self.training.clip_norm), self.ones.shape)
        self.optimiser.step(gradients)
        self.sums.add_(terms)  # what is not finite stays so: one look at the sums tells of every step

    def _prime(self) -> None:
        """Record the noise tape, which all feeds share, and learn the terms' names."""
        asked: dict[tuple[tuple[int, ...], ...], Feed] = {}  # shapes of the noise: who asks for them
        for feed in self.feeds:
            self.tape = Tape(mix(self.training.seed, 2), self.rows.device)
            with torch.no_grad(), evaluating(self.model), self._precision():
                loss, terms = self._measure(feed.read())
            asked[tuple(tuple(noise.shape) for noise in (*self.tape.normals, *self.tape.uniforms))] = feed
        if len(asked) > 1:
            shapes = " and ".join(f"{noise} for rows of {f.batch.x.shape[-1]}" for noise, f in asked.items())
            raise ValueError(
                f"noise must have one shape in all steps; this model (or training.binarise) asks for {shapes}. Noise "
                "for every column needs rows of one width: give one width alone."
            )
        self.names = ["loss", *terms]
        self.sums = torch.zeros(len(self.names), *loss.shape, device=self.rows.device)
        self.ones = torch.ones_like(loss)

    def set_knobs(self, step: int, but: Collection[str] = ()) -> None:
        """Write every scheduled value but those named into its buffer, where it has changed."""
        for name, schedule in self.schedules.items():
            if name not in but:
                value = self.controls[name][0] if name in self.controls else schedule(step, self.total)
                self._write(name, self.knobs[name], value)
        self._write("learning_rate", [self.rate], self.rate_factor * self.rate_schedule(step, self.total))

    def control(self, measured: Mapping[str, float]) -> dict[str, float]:
        """Let controllers look at a report. The values that were in force until then, by `knob_<name>`."""
        before = {f"knob_{name}": value for name, (value, _) in self.controls.items()}
        for name, controller in self.controllers.items():
            self.controls[name] = controller.update(self.controls[name][1], measured, self.step, self.total)
        return before

    def _write(self, name: str, buffers: list[Tensor], value: float | Tensor) -> None:
        if isinstance(value, Tensor):  # one for each member
            for buffer in buffers:
                buffer.copy_(value)
        elif self._written.get(name) != value:
            self._written[name] = value
            for buffer in buffers:
                buffer.fill_(value)

    def advance(self) -> None:
        """Load the step's rows, noise and knobs, then take it."""
        training, step = self.training, self.step
        if training.restart_optimizer and self._drops(step):
            self.optimiser.forget()
        self.set_knobs(step)
        number, turn = self.plan(step)
        feed = self.feeds[number]
        feed.load(turn)
        self.tape.refill(step)
        feed.run()
        self.step += 1

    def _drops(self, step: int) -> bool:
        at = self.training.decay_at
        return step > 0 and step == math.ceil(at if isinstance(at, Integral) else at * self.total)

    # -- state ------------------------------------------------------------------------------------------------

    def moments(self) -> dict[str, Tensor]:
        return {k: v.detach().cpu().clone() for k, v in self.optimiser.state()}

    def load_moments(self, moments: Mapping[str, Tensor]) -> None:
        for name, value in self.optimiser.state():
            value.copy_(moments[name])

    def _named(self) -> Iterator[tuple[str, Tensor]]:
        for name, value in self.model.state_dict().items():
            yield f"model.{name}", value
        yield from self.optimiser.state()
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
            "controls": {name: list(control) for name, control in self.controls.items()},
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
        self.controls = {name: (float(value), state) for name, (value, state) in meta.get("controls", {}).items()}
        self._written = {}  # lasting knobs have come back with the weights

    def broken(self) -> str | None:
        """A term that was not finite since the last report (or "weights"), None when all is well."""
        weights = torch.stack([torch.linalg.vector_norm(p.detach()) for p in self.parameters]).sum()
        sums = self.sums.reshape(len(self.names), -1).sum(-1)
        finite = torch.isfinite(torch.cat([sums, weights[None]])).tolist()
        bad = [name for name, ok in zip([*self.names, "weights"], finite, strict=True) if not ok]
        return next((name for name in bad if name != "loss"), "loss") if bad else None

    def reference(self) -> Batch:
        """A few training rows, always the same ones, as the model sees them."""
        return self.prepared(self.feeds[0].rows.take(self.reference_rows))

    def reconstruction(self) -> Tensor:
        """-log p(x|z) of a few training rows, always the same ones with the same noise, (*members,)."""
        self.reference_tape.rewind()
        with torch.no_grad(), evaluating(self.model):
            trace = self.model(self.reference(), Draw(self.reference_tape, hard=True))
            total: Tensor = torch.stack([term.mean(-1) for term in nll(trace).values()]).sum(0)
            return total

    def ruined(self) -> bool:
        """Whether a finite loss hides a model far worse than an untrained one, on the very same rows.

        Nothing that a schedule or a weight does to the loss leads there, and no outlier that one batch has and
        another has not: even a code that has collapsed is decoded to the mean of the data.
        """
        limit = self.untrained + RUIN_FACTOR * (1 + self.untrained.abs())
        return not bool((self.reconstruction() <= limit).all())

    # -- numbers ----------------------------------------------------------------------------------------------

    def read_sums(self) -> dict[str, float]:
        """Means of the terms since the last report (over members too, where there are several)."""
        means = (self.sums / max(1, self.step - self.reported)).reshape(len(self.names), -1).mean(-1).tolist()
        self.sums.zero_()
        self.reported = self.step
        return dict(zip(self.names, means, strict=True))

    def validate(self, items: Tensor) -> float:
        """The objective on held-out rows: hard draws, the same noise every time, schedules at their ends.

        Knobs that are part of the model stay as the last step had them: so it is judged, and kept if it is the best.
        """
        total = 0.0
        with self._judging():
            for part, terms in self._judged(items):
                loss = self.objective.weigh({name: term.mean(-1) for name, term in terms.items()})
                total += float(loss.mean()) * len(part)
        return total / len(items)

    def nonfinite_rows(self, items: Tensor) -> tuple[str, list[int]]:
        """Which term of the validation loss is not finite, and on which rows ("loss" and none: they are too many)."""
        found: dict[str, list[int]] = {}
        with self._judging():
            for part, terms in self._judged(items):
                for name, term in terms.items():
                    bad = ~term.isfinite().reshape(-1, term.shape[-1]).all(0)
                    found.setdefault(name, []).extend(part[bad.expand(len(part))].tolist())
        return next(((name, rows) for name, rows in found.items() if rows), ("loss", []))

    @contextmanager
    def _judging(self) -> Iterator[None]:
        self.set_knobs(self.total, but=self.lasting)
        with torch.no_grad(), evaluating(self.model):
            yield
        self.set_knobs(self.step, but=self.lasting)

    def _judged(self, items: Tensor) -> Iterator[tuple[Tensor, dict[str, Tensor]]]:
        """Held-out rows in blocks, and every term of each block.

        Where rows are compared, every one meets as many others, whatever the number of held-out rows: the last block is
        filled up with training rows, whose own terms do not count.
        """
        size = min(BLOCK, len(self.items)) if self.objective.compares_rows else BLOCK
        for part in items.split(size):
            n, block = len(part), part
            if self.objective.compares_rows:
                block = torch.cat([part, some_items(self.items, size - n, self.training.seed)])
            yield part, {name: term[..., :n] for name, term in self.objective.measure(self._trace_items(block)).items()}

    def _trace_items(self, items: Tensor) -> Trace:
        batch = self.prepared(self.rows.take(items))
        noise = PerRow(row_keys(batch.columns()), self.training.seed)
        trace: Trace = self.model(self._binarised(batch, noise), Draw(noise, hard=True))
        return trace

    def activity(self) -> dict[str, float]:
        """Active units and mean non-zeros per row of the code, on a few training rows; for controllers the mean p_on.

        A unit that idles at its prior is not `active`, nor is one that is shut for good, though its KL may not be
        small.
        """
        with torch.no_grad(), evaluating(self.model):
            q = self.model.encode(self.prepared(self.rows.take(self.watched)).x)
            used = active(q.mean.var(-2, correction=0), noisy=self.model.posterior.density)
            counts = used.sum(-1), (q.mode != 0).sum(-1)
            units, nonzeros = torch.stack([c.float().mean() for c in counts]).tolist()
            gates = {"p_on": float(q.p_on.mean())} if self.controllers and hasattr(q, "p_on") else {}
            return {"active_units": units, "nonzeros": nonzeros} | gates
