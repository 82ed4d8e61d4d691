"""Faster ways to take the same step: repeated from a trace on a CPU, compiled, captured as a CUDA graph.

All of them repeat tensor operations and leave out the Python around them. So a step is taken eagerly once to see what
else it changes, and what a trace gives is compared with an eager step, before the first step and at every report.
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
from sparsevae.training.torch_internals import untried

LONG = 3_000  # steps, from which on a run on a CPU is traced: that takes .1 to .3 seconds, and the first time 1 more


class UnrepeatableError(Exception):
    """A step that is not the same when its operations are repeated."""


class Acceleration:
    """How the feeds of a run take their steps.

    Parameters
    ----------
    run : Run
    note : callable
        Shows one line.
    """

    def __init__(self, run: Run, note: Callable[[str], None]) -> None:
        self.run, self.note = run, note
        self.graphs: list[Graph] = []  # one for each feed, if steps are repeated from a trace
        self._last: Gradients = ()

    @functools.cached_property
    def guard(self) -> Guard:
        return Guard(self.run.parts)

    def start(self) -> None:
        """Compile, trace and capture the step where that pays; where one fails, say so once and do without."""
        run, wanted = self.run, self.run.training.compile
        if lacks := run.optimiser.lacks:
            self.note(f"{'; '.join(filter(None, (f'{lacks} is not there or differs', untried())))}; going on without.")
        cuda = run.rows.device.type == "cuda"
        worth = wanted is None and run.total - run.step >= 20_000 and cuda
        compiled = (wanted or worth) and self.attempt("compiling", self._compile)
        if cuda:
            self.attempt("capturing a CUDA graph of", self._capture)
        elif not compiled and wanted is not False and run.total >= LONG:
            self.attempt("tracing", self._trace)

    def attempt(self, what: str, action: Callable[[], object]) -> bool:
        """Whether it went well; the run is then as it was, but for how its feeds take their steps."""
        run = self.run
        before, problem = run.state(), ""
        plain = run.forward, [(feed.differentiate, feed.run) for feed in run.feeds]
        try:
            action()
        except Exception as error:  # whatever a compiler or driver throws: the eager step always works
            run.forward = plain[0]  # type: ignore[method-assign]
            for feed, ways in zip(run.feeds, plain[1], strict=True):
                feed.differentiate, feed.run = ways
            problem = ": ".join([type(error).__name__, *str(error).splitlines()[:1]])
            problem = "; ".join(filter(None, (problem, untried())))
            if isinstance(error, UnrepeatableError):
                self._warn(f"the step cannot be traced: {error}. The run goes on")
            else:
                self.note(f"{what} the step failed ({problem}); going on without.")
        run.load(before)
        return not problem

    def _warn(self, found: str) -> None:
        way_out = "Training(compile=False) takes eager steps from the start, without this warning."
        warn_caller(f"{found} with eager steps. {way_out}", RuntimeWarning)

    # -- that it is the same step -----------------------------------------------------------------------------

    def verify(self) -> bool:
        """Whether a traced step still gives what an eager one gives; if not, warn and take eager steps from now on.

        Steps since the last call may then be wrong, and the caller goes back to that point.
        """
        run, pairs = self.run, zip(self.run.feeds, self.graphs, strict=False)  # no graphs: nothing to compare
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
        """Refuse a step that changes more than tensors."""
        for feed in self.run.feeds:
            with self.guard.watch() as changed:
                self._eager(feed)
            if changed:
                raise UnrepeatableError(
                    f"a step changes {' and '.join(changed)}, and one that is traced runs no Python"
                )

    def _eager(self, feed: Feed) -> tuple[Tensor, Gradients]:
        tape = self.run.tape
        with tape.substituted(tape.normals, tape.uniforms):  # from the first on
            return self.run.differentiate(feed)

    def _differences(self, feed: Feed, graph: Graph) -> Iterator[str]:
        """What is not the same after an eager step and a traced one: terms, gradients, tensors that were written to."""
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

    # -- the ways ---------------------------------------------------------------------------------------------

    def _trace(self, *, compiled: bool = False) -> bool:
        """Repeat steps from a list of their operations; False if hooks or recurrent nets are against it."""
        run, graphs = self.run, list[Graph]()
        if not repeatable(run.parts.values()):
            return False
        self._refuse_changes()
        for feed in run.feeds:
            batch = feed.read().present()

            def loss(*tensors: Tensor, names: tuple[str, ...] = tuple(batch)) -> tuple[Tensor, Tensor]:
                return run.loss(Batch(**dict(zip(names, tensors, strict=True))))

            with self.guard.watch():  # the Python of a module is run, with tensors that have no data
                graphs.append(Graph(loss, run.parts.values(), run.parameters, run.tape, *batch.values()))
            if different := next(self._differences(feed, graphs[-1]), None):
                raise UnrepeatableError(f"when traced it differs: {different}")
            if compiled:
                graphs[-1].compile(*batch.values())
        self.graphs = graphs
        for feed, graph in zip(run.feeds, graphs, strict=True):
            feed.differentiate = functools.partial(self._repeat, feed, graph)
        return True

    def _repeat(self, feed: Feed, graph: Graph) -> tuple[Tensor, Gradients]:
        terms, gradients = graph(*feed.read().present().values())
        # The last ones are let go now, not before: memory that all cores have just read is slow to write to, and
        # taken anew at once it cost 3 to 5 % of a step of VSC 784-400-200-400-784.
        self._last = gradients
        return terms, gradients

    def _compile(self) -> None:
        """Both passes in one piece where they can be traced, else the forward pass with a backward pass beside it."""
        run = self.run
        if run.rows.device.type == "cpu":
            with suppress(Exception):  # torch.compile looks at Python itself, and its error is the one to report
                if self._trace(compiled=True):
                    return
        with warnings.catch_warnings():  # torch's own deprecations, raised while it imports its compiler
            warnings.simplefilter("ignore")
            # each width is compiled for itself, which is what a graph needs
            run.forward = torch.compile(  # type: ignore[method-assign]
                run.forward, dynamic=False, options=OPTIONS
            )
            for feed in run.feeds:
                run.tape.refill(0)
                run.take(feed)

    def _capture(self) -> None:
        run = self.run
        self._refuse_changes()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for feed in run.feeds:
                for _ in range(3):
                    run.tape.refill(0)
                    run.take(feed)
        torch.cuda.current_stream().wait_stream(stream)
        # One graph a width, in one pool of memory: a step leaves nothing there that another one reads.
        pool = torch.cuda.graph_pool_handle()
        for feed in run.feeds:
            graph = torch.cuda.CUDAGraph()
            run.tape.refill(0)
            with torch.cuda.graph(graph, pool=pool):
                run.take(feed)
            feed.run = graph.replay


def _equal(a: Tensor | None, b: Tensor | None) -> bool:
    """Whether all numbers are the same, NaN included; of no tensor, whether both are none."""
    if a is None or b is None:
        return a is b
    return a.shape == b.shape and bool(torch.equal(a, b) or ((a == b) | (a.isnan() & b.isnan())).all())
