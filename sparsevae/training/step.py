"""One training step, and the state that it reads and updates.

A step is a pure function of (weights, batch, noise, knobs) on static buffers, so it can run eagerly, traced, compiled,
or as one captured CUDA graph, with the same numbers. Batch order and noise are functions of (seed, step).

A buffer has one shape. If rows come in several widths, each width has a `Feed` with its own batch and graph, and a
`FeedSchedule` chooses the feed of each step.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from sparsevae.exceptions import unknown
from sparsevae.inputs.batch import Batch, Examples
from sparsevae.inputs.rows import BLOCK, floats
from sparsevae.latent.codes import active, code_of
from sparsevae.latent.model import LatentModel
from sparsevae.latent.objective import Objective, nll
from sparsevae.metrics.usage import Usage, usage_of
from sparsevae.sampling.draw import Draw
from sparsevae.sampling.gradients import points
from sparsevae.sampling.noise import Noise, PerRow, Tape, mix, row_keys
from sparsevae.schedules import Controller, Schedule, steps_at
from sparsevae.storage.checkpoint import State
from sparsevae.training.feeds import Feed, FeedSchedule, Order, some_items
from sparsevae.training.knobs import knobs, lasting
from sparsevae.training.modes import evaluating, precision
from sparsevae.training.optimisers import OPTIMISERS, Gradients, clip_gradients
from sparsevae.training.settings import Training

REFERENCE_ROWS, RUIN_FACTOR = 128, 10.0
"""A model is ruined when -log p(x|z) of REFERENCE_ROWS rows exceeds its untrained value by a RUIN_FACTOR of it."""
USAGE_ROWS = 4096
"""A code is judged at the end of a run on this many rows."""
_POSITION = ("step", "reported", "rate_factor", "retries", "waited", "stopped")  # numbers that a state contains


class Run:
    """The state of a run: static buffers, one step, and all that a checkpoint contains."""

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
        self.model, self.objective, self.prepare = model, objective, prepare
        self.rows, self.items = rows, items
        self.training, self.total = training, total
        self.parts = {"model": model, "objective": objective, "prepare": prepare}  # all modules that a step calls
        self.rows_an_item = int(training.n_samples) * points(model)[0]
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        for p in self.parameters:
            p.grad = None  # a user's own network may come with gradients
        self.rate = torch.tensor(float(cast(float, training.learning_rate)), device=rows.device)
        self.optimiser = OPTIMISERS[training.optimizer](self.parameters, self.rate)
        batch = int(cast(int, training.batch_size))  # no longer None: settings are resolved
        found = rows.parts(items, min(batch, len(items)))
        if len(found) > 1 and self._compares_rows():
            found = [(rows, items)]
        self.size = min(batch, *(len(own) for _, own in found))  # rows per batch, the same in all feeds
        self.feeds = [Feed(part, Order(own, self.size, training.seed, k)) for k, (part, own) in enumerate(found)]
        self.plan = FeedSchedule([len(own) for _, own in found], total, training.seed)
        self.schedules = dict(schedules)
        self.rate_schedule = training.rates()
        self.knobs, self.lasting = knobs(model, objective), lasting(model)
        if missing := set(self.schedules) - set(self.knobs):
            raise ValueError(f"schedules drive unknown knobs {sorted(missing)}; this model has {sorted(self.knobs)}.")
        self.step = 0  # steps taken
        self.reported = 0  # steps taken at the last report
        self.rate_factor = 1.0
        self.retries = 0
        self.best: dict[str, Tensor] = {}
        self.best_loss = math.inf
        self.best_terms: dict[str, Tensor] = {}  # means over the held-out rows, (*members,): those of `best`
        self.validated: dict[str, Tensor] = {}  # of the last call of `validate`
        self.waited = 0
        self.stopped = False  # True if patience ended the run
        self._written: dict[str, float] = {}
        self.controllers = {k: s for k, s in self.schedules.items() if isinstance(s, Controller)}
        self.controls = {k: (float(c(0, total)), c.start()) for k, c in self.controllers.items()}  # (value, state)
        for feed in self.feeds:
            feed.differentiate, feed.run = partial(self.differentiate, feed), partial(self.take, feed)
        self._prime()
        self.watched = some_items(items, BLOCK, training.seed)  # the rows that `activity` is measured on
        self.reference_rows = some_items(self.feeds[0].order.items, REFERENCE_ROWS, training.seed)  # narrowest width
        self.reference_tape = Tape(mix(training.seed, 11), rows.device)
        self.reconstruction()  # the first pass records the noise
        self.reference_tape.refill(0)
        self.untrained = self.reconstruction()
        for name, controller in self.controllers.items():
            known = [*self.names, *self.activity(), *["validation_loss"] * bool(training.validation_fraction)]
            if controller.measure not in known:
                problem = unknown("measure", controller.measure, known)
                raise ValueError(f"schedules cannot drive {name!r} by {controller!r}: {problem}.")

    def _compares_rows(self) -> bool:
        """True if a term has one value per batch: batches must then mix all widths, as the data do."""
        with torch.no_grad(), evaluating(self.model):
            batch = self.prepared(self.rows.take(self.items[:2])).copies(self.rows_an_item)
            trace = self.model(batch, Draw(Tape(0, self.rows.device), hard=False))
            return any(term.shape[-1] == 1 for term in self.objective.measure(trace).values())

    # -- one step ---------------------------------------------------------------------------------------------

    def order(self, step: int) -> Tensor:
        """Positions of the rows in the batch of a step, (B,)."""
        feed, turn = self.plan(step)
        return self.feeds[feed].order(turn)

    def prepared(self, batch: Batch) -> Batch:
        """The batch with x scaled to the units of the networks."""
        return batch._replace(x=self.prepare(batch.x))

    def _binarised(self, batch: Batch, noise: Noise) -> Batch:
        """The batch with x drawn as Bernoulli(x) if `training.binarise`, else unchanged."""
        x = batch.x
        return batch._replace(x=(x > noise.uniform(x)).to(x.dtype)) if self.training.binarise else batch

    def _measure(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """Forward pass on an unscaled batch: the loss and all terms, each (*members,)."""
        batch = self._binarised(self.prepared(batch.map(floats)), self.tape).copies(self.rows_an_item)
        loss, terms = self.objective(self.model(batch, Draw(self.tape, hard=False)))
        return loss, terms

    def loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The loss, (*members,), and the loss and all terms without gradients, (1 + terms, *members)."""
        loss, terms = self._measure(batch)
        return loss, torch.stack([v.detach() for v in (loss, *terms.values())])

    def forward(self, feed: Feed) -> tuple[Tensor, Tensor]:
        """`loss` of the batch that a feed has loaded; `Acceleration` may replace it by a compiled function."""
        return self.loss(feed.read())

    def differentiate(self, feed: Feed) -> tuple[Tensor, Gradients]:
        """The terms, and one gradient per weight, computed eagerly."""
        with precision(self.rows.device, bf16=self.training.bf16):
            loss, terms = self.forward(feed)
        loss.backward(self.ones)
        gradients = [p.grad for p in self.parameters]
        for p in self.parameters:
            p.grad = None
        return terms, gradients

    def take(self, feed: Feed) -> None:
        """Take one step on the batch that a feed has loaded."""
        terms, gradients = feed.differentiate()
        if self.training.clip_norm is not None:
            clip_gradients(gradients, float(self.training.clip_norm), self.ones.shape)
        self.optimiser.step(gradients)
        self.sums.add_(terms)  # a value that is not finite makes all later sums so: one check covers all steps

    def _prime(self) -> None:
        """Record the noise tape, which all feeds share, and the names of the terms."""
        needed: dict[tuple[tuple[int, ...], ...], Feed] = {}  # shapes of the noise -> a feed that needs them
        for feed in self.feeds:
            self.tape = Tape(mix(self.training.seed, 2), self.rows.device)
            casts = precision(self.rows.device, bf16=self.training.bf16)
            with torch.no_grad(), evaluating(self.model), casts:
                loss, terms = self._measure(feed.read())
            needed[tuple(tuple(noise.shape) for noise in (*self.tape.normals, *self.tape.uniforms))] = feed
        if len(needed) > 1:
            shapes = " and ".join(f"{noise} for rows of {f.batch.x.shape[-1]}" for noise, f in needed.items())
            raise ValueError(
                f"noise must have one shape in all steps; this model (or training.binarise) needs {shapes}. Noise "
                "for every column needs rows of one width: give one width alone."
            )
        self.names = ["loss", *terms]
        self.sums = torch.zeros(len(self.names), *loss.shape, device=self.rows.device)
        self.ones = torch.ones_like(loss)

    def set_knobs(self, step: int, but: Collection[str] = (), *, controlled: bool = True) -> None:
        """Write the values of all schedules except those of `but` into their buffers, and the learning rate.

        Unless `controlled`, knobs of controllers get their first values, so that losses of all reports are comparable.
        """
        for name, schedule in self.schedules.items():
            if name not in but:
                now = controlled and name in self.controls
                value = self.controls[name][0] if now else schedule(step, self.total)
                self._write(name, self.knobs[name], value)
        self._write("learning_rate", [self.rate], self.rate_factor * self.rate_schedule(step, self.total))

    def control(self, measured: Mapping[str, float]) -> dict[str, float]:
        """Update all controllers by a report; returns the values used before it, as `knob_<name>`."""
        before = {f"knob_{name}": value for name, (value, _) in self.controls.items()}
        for name, controller in self.controllers.items():
            self.controls[name] = controller.update(self.controls[name][1], measured, self.step, self.total)
        return before

    def _write(self, name: str, buffers: list[Tensor], value: float | Tensor) -> None:
        if isinstance(value, Tensor):  # one value per member
            for buffer in buffers:
                buffer.copy_(value)
        elif self._written.get(name) != value:
            self._written[name] = value
            for buffer in buffers:
                buffer.fill_(value)

    def advance(self) -> None:
        """Load knobs, rows and noise of the next step, then take it."""
        if self.training.restart_optimizer and 0 < self.step == math.ceil(steps_at(self.training.decay_at, self.total)):
            self.optimiser.forget()
        self.set_knobs(self.step)
        number, turn = self.plan(self.step)
        feed = self.feeds[number]
        feed.load(turn)
        self.tape.refill(self.step)
        feed.run()
        self.step += 1

    # -- state ------------------------------------------------------------------------------------------------

    def _named(self) -> Iterator[tuple[str, Tensor]]:
        for name, value in self.model.state_dict().items():
            yield f"model.{name}", value
        yield from self.optimiser.state()
        yield "sums", self.sums

    def state(self) -> State:
        """A copy of everything that later steps depend on."""
        tensors = {k: v.detach().clone() for k, v in self._named()}
        tensors |= {f"best.{k}": v for k, v in self.best.items()}
        tensors |= {f"best_terms.{k}": v for k, v in self.best_terms.items()}
        meta: dict[str, Any] = {name: getattr(self, name) for name in _POSITION}
        meta["best_loss"] = None if math.isinf(self.best_loss) else self.best_loss
        meta["controls"] = {name: list(control) for name, control in self.controls.items()}
        meta["threads"] = torch.get_num_threads()
        return State(tensors, meta)

    def load(self, state: State) -> None:
        """Restore a state in place, so that captured graphs stay valid."""
        with torch.no_grad():
            for name, value in self._named():
                value.copy_(state.tensors[name])
        self.best, self.best_terms = (
            {k.removeprefix(at): v.to(self.rows.device) for k, v in state.tensors.items() if k.startswith(at)}
            for at in ("best.", "best_terms.")
        )
        meta = state.meta
        for name in _POSITION:
            setattr(self, name, meta[name])
        self.best_loss = math.inf if meta["best_loss"] is None else meta["best_loss"]
        self.controls = {name: (float(value), state) for name, (value, state) in meta.get("controls", {}).items()}
        self._written = {}  # knobs that belong to the model were restored with the weights

    def broken(self) -> str | None:
        """The name of a term (or "weights") that was not finite since the last report, None if all were."""
        weights = torch.stack([torch.linalg.vector_norm(p.detach()) for p in self.parameters]).sum()
        sums = self.sums.reshape(len(self.names), -1).sum(-1)
        finite = torch.isfinite(torch.cat([sums, weights[None]])).tolist()
        bad = [name for name, ok in zip([*self.names, "weights"], finite, strict=True) if not ok]
        return next((name for name in bad if name != "loss"), "loss") if bad else None

    def reference(self) -> Batch:
        """Some training rows, the same at every call, scaled."""
        return self.prepared(self.feeds[0].rows.take(self.reference_rows))

    def reconstruction(self) -> Tensor:
        """-log p(x|z) of the reference rows with the same noise at every call, (*members,)."""
        self.reference_tape.rewind()
        with torch.no_grad(), evaluating(self.model):
            trace = self.model(self.reference(), Draw(self.reference_tape, hard=True))
            total: Tensor = torch.stack([term.mean(-1) for term in nll(trace).values()]).sum(0)
            return total

    def ruined(self) -> bool:
        """True if -log p(x|z) of the reference rows is far worse than before training, though the loss is finite.

        No schedule, no weight of a term and no outlier in a batch causes this: even a collapsed code is decoded to the
        mean of the data.
        """
        limit = self.untrained + RUIN_FACTOR * (1 + self.untrained.abs())
        return not bool((self.reconstruction() <= limit).all())

    # -- numbers ----------------------------------------------------------------------------------------------

    def read_sums(self) -> dict[str, float]:
        """Means of the terms over the steps since the last report, and over members; resets the sums."""
        means = (self.sums / max(1, self.step - self.reported)).reshape(len(self.names), -1).mean(-1).tolist()
        self.sums.zero_()
        self.reported = self.step
        return dict(zip(self.names, means, strict=True))

    def validate(self, items: Tensor) -> float:
        """The objective on validation rows: hard draws, the same noise at every call, schedules at their last values.

        Knobs that belong to the model keep the values of the last step, with which the model may be kept as the best.
        """
        self.validated = self.means(items)
        return self.weighed(self.validated, controlled=False)

    def means(self, items: Tensor) -> dict[str, Tensor]:
        """The mean of every term over rows, (*members,), as `validate` evaluates them."""
        found = self._evaluated(items)
        return {
            name: torch.stack([terms[name].mean(-1) * len(part) for part, terms in found]).sum(0) / len(items)
            for name in found[0][1]
        }

    def weighed(self, terms: Mapping[str, Tensor], *, controlled: bool) -> float:
        """The objective of the means of its terms, with the weights that `validate` uses."""
        self.set_knobs(self.total, but=self.lasting, controlled=controlled)
        found = float(self.objective.weigh(terms).mean())
        self.set_knobs(self.step, but=self.lasting)
        return found

    def losses(self, items: Tensor) -> Tensor:
        """The objective of every row, (n,), with the weights in force."""
        found = self._evaluated(items)
        self.set_knobs(self.total, but=self.lasting)
        each = [self.objective.weigh(terms) for _, terms in found]
        self.set_knobs(self.step, but=self.lasting)
        rows = [loss.expand(*loss.shape[:-1], len(part)) for loss, (part, _) in zip(each, found, strict=True)]
        return torch.cat(rows, -1).reshape(-1, len(items)).mean(0)

    def improves(self, loss: float) -> bool:
        """True if the model is better on the held-out rows than the best so far, with the weights in force.

        A controller changes weights from report to report. So it is the terms of the best that are kept, and both are
        weighed by today's weights: else the best would be the report at which the weight was smallest.
        """
        if not (self.controllers and self.best_terms):
            return loss < self.best_loss
        return self.weighed(self.validated, controlled=True) < self.weighed(self.best_terms, controlled=True)

    def nonfinite_rows(self, items: Tensor) -> tuple[str, list[int]]:
        """A term of the validation loss that is not finite, and on which rows; ("loss", []) if no single row is."""
        found: dict[str, list[int]] = {}
        for part, terms in self._evaluated(items):
            for name, term in terms.items():
                bad = ~term.isfinite().reshape(-1, term.shape[-1]).all(0)
                found.setdefault(name, []).extend(part[bad.expand(len(part))].tolist())
        return next(((name, rows) for name, rows in found.items() if rows), ("loss", []))

    def _evaluated(self, items: Tensor) -> list[tuple[Tensor, dict[str, Tensor]]]:
        """Blocks of validation rows with all terms, (*members, block).

        If a term compares rows, all blocks have one size: the last one is filled up with training rows, whose own terms
        are left out.
        """
        compares_rows = self.objective.compares_rows
        size = min(BLOCK, len(self.items)) if compares_rows else BLOCK
        found = []
        self.set_knobs(self.total, but=self.lasting, controlled=False)
        with torch.no_grad(), evaluating(self.model):
            for part in items.split(size):
                n, block = len(part), part
                if compares_rows:
                    block = torch.cat([part, some_items(self.items, size - n, self.training.seed)])
                batch = self.prepared(self.rows.take(block))
                noise = PerRow(row_keys(batch.columns()), self.training.seed)
                trace = self.model(self._binarised(batch, noise), Draw(noise, hard=True))
                found.append((part, {k: term[..., :n] for k, term in self.objective.measure(trace).items()}))
        self.set_knobs(self.step, but=self.lasting)
        return found

    def activity(self) -> dict[str, float]:
        """Active units, used units and mean non-zeros per row, on some training rows; for controllers the mean p_on.

        A unit at its prior is not active; neither is a unit that is never on, although its KL may be large. Units are
        used by the code (`metrics.code_usage`); a code without gates has no such number.
        """
        with torch.no_grad(), evaluating(self.model):
            q = self._encoded(self.watched)
            used = active(q.mean.var(-2, correction=0), noisy=self.model.posterior.density)
            counts = used.sum(-1), (code_of(self.model, q, self.model.cap) != 0).sum(-1)
            units, nonzeros = torch.stack([c.float().mean() for c in counts]).tolist()
            gates = {"p_on": float(q.p_on.mean())} if self.controllers and hasattr(q, "p_on") else {}
            usage = _usage(self.model, [q], len(self.watched))
            in_code = {"used": usage.used} if usage else {}
            return {"active_units": units, "nonzeros": nonzeros} | in_code | gates

    def usage(self) -> Usage | None:
        """Usage of the code on at most `USAGE_ROWS` training rows, a mean over members; None without gates."""
        items = some_items(self.items, USAGE_ROWS, self.training.seed)
        with torch.no_grad(), evaluating(self.model):
            return _usage(self.model, (self._encoded(part) for part in items.split(BLOCK)), len(items))

    def _encoded(self, items: Tensor) -> Any:
        """q(z|x) of some rows."""
        return self.model.encode(self.prepared(self.rows.take(items)).x)


def _usage(model: LatentModel, codes: Iterable[Any], n: int) -> Usage | None:
    """Mean over members of the usage of the codes of q(z|x), (*members, B, J), of n rows in blocks.

    None if there are no gates, or none is ever off.
    """
    on, empty, gated = torch.zeros(()), torch.zeros(()), False
    for q in codes:
        if not hasattr(q, "p_on"):
            return None
        gated = gated or bool((q.p_on < 1).any())
        code = code_of(model, q, model.cap) != 0
        on = on + code.double().sum(-2).cpu()
        empty = empty + (~code.any(-1)).double().sum(-1).cpu()
    if not gated:
        return None
    members = zip((on / n).reshape(-1, on.shape[-1]).numpy(), (empty / n).flatten().tolist(), strict=True)
    return Usage(*np.mean([usage_of(*member) for member in members], 0).tolist())
