"""Operations that do not wait for one another, side by side on a GPU.

A small model's step is some hundred kernels of a microsecond or two, and a captured graph runs them one after another,
each on a tenth of the processor. Yet nobody waits for half of them: the loss itself, the KL while x is decoded, the
gradients of weights while the gradient of z is on its way. Here a list of operations is dealt out to a few lanes (CUDA
streams), the longest way to the end first, and a captured graph keeps no more order than they need. The kernels are the
same, and so is every bit.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg

from sparsevae.unrolled import constant, looks, written_by

__all__ = ["LANES", "ROOM", "InLanes", "Placed", "arrange", "constants", "room", "together"]

LANES = 4
ROOM = 2**30  # bytes of results that may all be kept until the step is over
_PRODUCT, _SWITCH = 3.0, 0.5  # what a matrix product takes, and to wait for another lane; other operations take 1
_PRODUCTS = ("mm", "bmm", "addmm", "baddbmm", "convolution")


class Placed(NamedTuple):
    """An operation, its lane, and the operations on other lanes that it waits for."""

    node: Node
    lane: int
    waits: tuple[Node, ...]


def _takes(node: Node) -> float:
    if looks(node):
        return 0.0
    name = getattr(node.target, "__name__", "").partition(".")[0]
    return _PRODUCT if name.startswith(_PRODUCTS) else 1.0


def _needs(nodes: Sequence[Node]) -> dict[Node, list[Node]]:
    """The operations that must be over before each, in the order of the list.

    What changes a tensor in place waits for all before it, and all after it wait for it.
    """
    known, needs, before = set(nodes), dict[Node, list[Node]](), list[Node]()
    last: Node | None = None
    for node in nodes:
        wanted = dict.fromkeys(before if written_by(node) else (n for n in node.all_input_nodes if n in known))
        if last is not None:
            wanted[last] = None
        needs[node] = list(wanted)
        before.append(node)
        last = node if written_by(node) else last
    return needs


def arrange(graph: Graph, lanes: int = LANES) -> list[Placed]:
    """Every operation of a graph in the order in which to start them, each with its lane.

    Of those that may start, the one with the longest way to the end goes first, to the lane where it can start first. A
    view is made at once, and who uses it waits for what it looks at.
    """
    nodes = [node for node in graph.nodes if node.op == "call_function"]
    needs, users, place = _needs(nodes), {node: list[Node]() for node in nodes}, {n: i for i, n in enumerate(nodes)}
    for node, before in needs.items():
        for other in before:
            users[other].append(node)
    way = dict[Node, float]()
    for node in reversed(nodes):
        way[node] = _takes(node) + max((way[user] for user in users[node]), default=0.0)
    left = {node: len(before) for node, before in needs.items()}
    ready = [(-way[node], place[node], node) for node in nodes if not left[node]]
    heapq.heapify(ready)
    free, over, lane_of, order = [0.0] * lanes, dict[Node, float](), dict[Node, int](), list[Placed]()
    done, known = [[0] * lanes for _ in range(lanes)], dict[Node, list[int]]()  # how many of each lane are over by then
    behind = dict[Node, list[Node]]()  # the operations that made what a node is or looks at
    while ready:
        *_, node = heapq.heappop(ready)
        waits = list(dict.fromkeys(other for n in needs[node] for other in behind[n]))

        def start(lane: int, waits: list[Node] = waits) -> float:
            return max(free[lane], *(over[n] + _SWITCH * (lane_of[n] != lane) for n in waits), 0.0)

        if looks(node):
            behind[node] = waits
            order.append(Placed(node, 0, ()))
        else:
            lane = min(range(lanes), key=start)
            free[lane] = over[node] = start(lane) + _takes(node)
            lane_of[node], behind[node] = lane, [node]
            told = list[Node]()
            for other in reversed(waits):  # a later one has often waited for an earlier one
                if done[lane][lane_of[other]] < known[other][lane_of[other]]:
                    told.append(other)
                    done[lane] = list(map(max, done[lane], known[other]))
            done[lane][lane] += 1
            known[node] = list(done[lane])
            order.append(Placed(node, lane, tuple(told)))
        for user in users[node]:
            left[user] -= 1
            if not left[user]:
                heapq.heappush(ready, (-way[user], place[user], user))
    return order


def room(graph: Graph) -> int:
    """Bytes of all results of a graph's operations, views not counted."""
    total = 0
    for node in graph.nodes:
        found = node.meta.get("val")
        if node.op == "call_function" and not looks(node):
            tensors = [t for t in (found if isinstance(found, (list, tuple)) else [found]) if isinstance(t, Tensor)]
            total += sum(t.numel() * t.element_size() for t in tensors)
    return total


def _spread(device: torch.device, side: Sequence[torch.cuda.Stream]) -> list[torch.cuda.Stream]:
    """The caller's stream and those beside it, which go on from where it is."""
    main = torch.cuda.current_stream(device)
    for stream in side:
        stream.wait_stream(main)
    return [main, *side]


def together(tasks: Iterable[Callable[[], object]], side: Sequence[torch.cuda.Stream], device: torch.device) -> None:
    """Every task on a lane of its own, in turn; the caller's stream goes on when all are done."""
    lanes = _spread(device, side)
    for i, task in enumerate(tasks):
        with torch.cuda.stream(lanes[i % len(lanes)]):
            task()
    for stream in side:
        lanes[0].wait_stream(stream)


class InLanes:
    """A list of operations, run in lanes. It is a function of the same inputs, for a graph to capture.

    All results are kept until the last operation was started, so that no memory is used twice: lanes know nothing of
    one another's. When the caller's stream goes on, every lane is done.
    """

    def __init__(self, module: GraphModule, device: torch.device, lanes: int = LANES) -> None:
        self.device, self.order = device, arrange(module.graph, lanes)
        self.side = [torch.cuda.Stream(device) for _ in range(lanes - 1)]
        self.inputs = [node for node in module.graph.nodes if node.op == "placeholder"]
        (self.output,) = (node.args[0] for node in module.graph.nodes if node.op == "output")
        self.told = {node for placed in self.order for node in placed.waits}
        self.constants = constants(module.graph)

    def __call__(self, *inputs: Tensor) -> Any:
        found: dict[Node, Any] = {**self.constants, **dict(zip(self.inputs, inputs, strict=True))}
        lanes, events = _spread(self.device, self.side), dict[Node, torch.cuda.Event]()
        for node, lane, waits in self.order:
            with torch.cuda.stream(lanes[lane]):
                for other in waits:
                    lanes[lane].wait_event(events[other])
                found[node] = _take(node, found)
                if node in self.told:
                    events[node] = lanes[lane].record_event()
        for stream in self.side:
            lanes[0].wait_stream(stream)
        return map_arg(self.output, found.__getitem__)


def constants(graph: Graph) -> dict[Node, Any]:
    """The tensors of the graph's own module, by node."""
    return {node: constant(node) for node in graph.nodes if node.op == "get_attr"}


def _take(node: Node, found: dict[Node, Any]) -> Any:
    args, kwargs = map_arg(node.args, found.__getitem__), map_arg(node.kwargs, found.__getitem__)
    return node.target(*args, **kwargs)  # type: ignore[operator]
