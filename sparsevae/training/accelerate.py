"""Faster ways to run the same step: repeated from a trace on a CPU, compiled, or captured as a CUDA graph.

All of them repeat tensor operations without the Python around them. So one eager step is taken first to find out what
else a step changes, and a traced step is compared with an eager one before the first step and at every report.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress

import torch
from torch import Tensor

from sparsevae.exceptions import warn_caller
from sparsevae.inputs.batch import Batch
from sparsevae.training.feeds import Feed
from sparsevae.training.optimisers import Gradients
from sparsevae.training.replay.guard import Guard
from sparsevae.training.replay.trace import OPTIONS, Graph, repeatable
from sparsevae.training.step import Run
from sparsevae.training.torch_internals import FUSED_ADAM, untried

LONG = 3_000  # steps from which a run on a CPU is traced: tracing takes .1 to .3 seconds, the first time 1 more


class UnrepeatableError(Exception):
    """Repeating the operations of a step would not give what the step gives."""


class Acceleration:
    """Chooses how the feeds of a run compute their steps.

    Parameters
    ----------
    run : Run
    note : callable
        Prints one line.
    """

    def __init__(self, run: Run, note: Callable[[str], None]) -> None:
        self.run, self.note = run, note
        self.graphs: list[Graph] = []  # one per feed if steps are repeated from a trace, else empty
        self._last: Gradients = ()

    @functools.cached_property
    def guard(self) -> Guard:
        return Guard(self.run.parts)

    def start(self) -> None:
        """Compile, trace or capture the step where the run is long enough; if that fails, print one line."""
        run, wanted = self.run, self.run.training.compile
        if run.training.optimizer == "adam" and not hasattr(torch, FUSED_ADAM):
            self.note(f"{_with_version(f'torch.{FUSED_ADAM} is missing')}; going on without.")
        cuda = run.rows.device.type == "cuda"
        worth = wanted is None and run.total - run.step >= 20_000 and cuda
        compiled = (wanted or worth) and self.attempt("compiling", self._compile)
        if cuda:
            self.attempt("capturing a CUDA graph of", self._capture)
        elif not compiled and wanted is not False and run.total >= LONG:
            self.attempt("tracing", self._trace)

    def attempt(self, what: str, action: Callable[[], object]) -> bool:
        """True if `action` succeeded. It changes at most how feeds compute their steps; if it fails, nothing."""
        run = self.run
        before = run.state()
        eager = run.forward, [(feed.differentiate, feed.run) for feed in run.feeds]
        try:
            action()
        except Exception as error:  # a compiler or driver may raise anything: eager steps always work
            run.forward = eager[0]  # type: ignore[method-assign]
            for feed, ways in zip(run.feeds, eager[1], strict=True):
                feed.differentiate, feed.run = ways
            if isinstance(error, UnrepeatableError):
                self._warn(f"the step cannot be traced: {error}. The run goes on")
            else:
                problem = ": ".join([type(error).__name__, *str(error).splitlines()[:1]])
                self.note(f"{what} the step failed ({_with_version(problem)}); going on without.")
            return False
        finally:
            run.load(before)
        return True

    def _warn(self, found: str) -> None:
        way_out = "Training(compile=False) takes eager steps from the start, without this warning."
        warn_caller(f"{found} with eager steps. {way_out}", RuntimeWarning)

    # -- comparison with an eager step ------------------------------------------------------------------------

    def verify(self) -> bool:
        """True if a traced step gives what an eager one gives, or no step is traced; else warn and go on eagerly.

        After False, steps since the last call may be wrong: the caller returns to the state at that call.
        """
        run = self.run
        pairs = zip(run.feeds, self.graphs, strict=False)  # no graphs: nothing to compare
        found = next((found for feed, graph in pairs for found in self._differences(feed, graph)), None)
        if found:
            self.graphs = []
            for feed in run.feeds:
                feed.differentiate = functools.partial(run.differentiate, feed)
            self._warn(
                f"by step {run.step} the traced step differs: {found}. The run goes back to its last report, and on"
            )
        return not found

    def _refuse_changes(self) -> None:
        """Raise UnrepeatableError if a step assigns global variables or changes attributes of its modules."""
        if self.guard.globals:
            raise UnrepeatableError(
                f"a method of a module assigns {' and '.join(self.guard.globals)}, and a traced step runs no Python"
            )
        for feed in self.run.feeds:
            with self.guard.watch() as changed:
                self._eager(feed)
            if changed:
                raise UnrepeatableError(f"a step changes {' and '.join(changed)}, and a traced step runs no Python")

    def _eager(self, feed: Feed) -> tuple[Tensor, Gradients]:
        tape = self.run.tape
        with tape.substituted(tape.normals, tape.uniforms):  # reads the recorded noise from its beginning
            return self.run.differentiate(feed)

    def _differences(self, feed: Feed, graph: Graph) -> Iterator[str]:
        """Compare an eager and a traced step: yields the terms, gradients and written tensors that differ."""
        with self.guard.preserve_tensors() as wanted:
            terms, gradients = self._eager(feed)
        with self.guard.preserve_tensors() as found:
            traced_terms, traced_gradients = graph.repeat(*feed.read().present().values())
        for name, a, b in zip(self.run.names, terms, traced_terms, strict=True):
            if not _equal(a, b):
                yield f"the term {name!r} is {a.mean():.6g} eagerly and {b.mean():.6g} traced"
        names = {id(p): name for name, p in self.run.model.named_parameters()}
        for p, a, b in zip(self.run.parameters, gradients, traced_gradients, strict=True):
            if not _equal(a, b):
                yield f"the gradient of {names[id(p)]}"
        for name in wanted | found:
            if not _equal(wanted.get(name), found.get(name)):
                yield f"what it writes to {name}"

    # -- the ways to run a step -------------------------------------------------------------------------------

    def _trace(self, *, compiled: bool = False) -> bool:
        """Repeat steps from a list of their operations; False if the modules have hooks or recurrent nets."""
        run, graphs = self.run, list[Graph]()
        if not repeatable(run.parts.values()):
            return False
        self._refuse_changes()
        for feed in run.feeds:
            batch = feed.read().present()

            def loss(*tensors: Tensor, names: tuple[str, ...] = tuple(batch)) -> tuple[Tensor, Tensor]:
                return run.loss(Batch(**dict(zip(names, tensors, strict=True))))

            with self.guard.watch():  # tracing runs the Python of the modules with tensors that have no data
                graph = Graph(loss, run.parts.values(), run.parameters, run.tape, *batch.values())
            if different := next(self._differences(feed, graph), None):
                raise UnrepeatableError(f"when traced it differs: {different}")
            if compiled:
                graph.compile(*batch.values())
            graphs.append(graph)
        self.graphs = graphs
        for feed, graph in zip(run.feeds, graphs, strict=True):
            feed.differentiate = functools.partial(self._repeat, feed, graph)
        return True

    def _repeat(self, feed: Feed, graph: Graph) -> tuple[Tensor, Gradients]:
        terms, gradients = graph(*feed.read().present().values())
        # The previous gradients are released here, not before: memory that all cores have just read is slow to write
        # to, and allocating it again at once cost 3 to 5 % of a step of VSC 784-400-200-400-784.
        self._last = gradients
        return terms, gradients

    def _compile(self) -> None:
        """Compile both passes together where they can be traced, else the forward pass, and with it the backward."""
        run = self.run
        if run.rows.device.type == "cpu":
            with suppress(Exception):  # torch.compile traces in its own way, and its error is the one to report
                if self._trace(compiled=True):
                    return
        with warnings.catch_warnings():  # torch's own deprecations, raised while it imports its compiler
            warnings.simplefilter("ignore")
            # static shapes: each width is compiled separately, as CUDA graphs need
            run.forward = torch.compile(  # type: ignore[method-assign]
                run.forward, dynamic=False, options=OPTIONS
            )
            self._warm_up(1)

    def _capture(self) -> None:
        run = self.run
        self._refuse_changes()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self._warm_up(3)
        torch.cuda.current_stream().wait_stream(stream)
        # One graph per width, in one memory pool: a step leaves nothing there that another graph reads.
        pool = torch.cuda.graph_pool_handle()
        for feed in run.feeds:
            graph = torch.cuda.CUDAGraph()
            run.tape.refill(0)
            with torch.cuda.graph(graph, pool=pool):
                run.take(feed)
            feed.run = graph.replay

    def _warm_up(self, steps: int) -> None:
        for feed in self.run.feeds:
            for _ in range(steps):
                self.run.tape.refill(0)
                self.run.take(feed)


def _with_version(problem: str) -> str:
    return "; ".join(filter(None, (problem, untried())))


def _equal(a: Tensor | None, b: Tensor | None) -> bool:
    """True if both are None, or all values are equal; NaN equals NaN."""
    if a is None or b is None:
        return a is b
    return a.shape == b.shape and torch.allclose(a, b, rtol=0, atol=0, equal_nan=True)
