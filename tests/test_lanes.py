"""Operations dealt out to lanes: each once, none before what it needs, and the results are those of the list."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_leaves

import sparsevae as sv
from sparsevae.lanes import Placed, _needs, _take, _takes, arrange, constants, room
from sparsevae.models import known
from sparsevae.tracing import Graph
from sparsevae.unrolled import looks
from tests.test_tracing import traced, trained, used_twice  # noqa: F401  a fixture is used by its name

pytestmark = pytest.mark.filterwarnings("ignore::sparsevae.SparsityWarning")


def assert_in_order(module: GraphModule, order: list[Placed]) -> dict[Any, set[Any]]:
    """Everything that an operation needs is over when it starts: its lane, or one it waits for, was there before.

    Returns what is surely over when each operation is.
    """
    nodes = [node for node in module.graph.nodes if node.op == "call_function"]
    assert sorted(p.node.name for p in order) == sorted(node.name for node in nodes)
    needs, before, lane_end = _needs(nodes), dict[Any, set[Any]](), dict[int, set[Any]]()
    for node, lane, waits in order:
        assert all(n in before for n in needs[node])  # started, at least
        if looks(node):
            before[node] = {node}.union(*(before[n] for n in needs[node]))
            continue
        over = set(lane_end.get(lane, ())).union(*(before[n] for n in waits))
        for n in needs[node]:
            assert {m for m in before[n] if not looks(m)} <= over, f"{node} starts before {n} is over"
        lane_end[lane] = before[node] = over | {node}
    return before


def assert_no_race(module: GraphModule, order: list[Placed], inputs: list[Tensor]) -> int:
    """Whoever writes to memory, and everyone else who touches it, wait for one another; returns how many write.

    Who writes is seen, whatever torch says of it: memory is compared before and after every operation.
    """
    before, found = assert_in_order(module, order), dict[Any, Any](constants(module.graph))
    touched: dict[int, list[tuple[Any, bool]]] = {}
    holders = module.graph.find_nodes(op="placeholder")
    found |= {node: t.clone() for node, t in zip(holders, inputs, strict=True)}
    for node in (n for n in module.graph.nodes if n.op == "call_function"):
        read = [t for n in node.all_input_nodes for t in tree_leaves(found[n]) if isinstance(t, Tensor)]
        kept = [t.clone() for t in read]
        found[node] = _take(node, found)
        if not looks(node):
            for t, old in zip(read, kept, strict=True):
                touched.setdefault(t.untyped_storage()._cdata, []).append((node, not torch.equal(t, old)))
    writers = set()
    for those in touched.values():
        for i, (first, one_writes) in enumerate(those):
            for second, other_writes in those[i + 1 :]:
                if first is not second and (one_writes or other_writes):
                    assert first in before[second], f"{second} starts before {first} is over"
            if one_writes:
                writers.add(first)
    return len(writers)


def result(order: list[Placed], module: GraphModule, inputs: list[Tensor]) -> list[Tensor]:
    holders = (node for node in module.graph.nodes if node.op == "placeholder")
    found: dict[Any, Any] = {**constants(module.graph), **dict(zip(holders, inputs, strict=True))}
    for placed in order:
        found[placed.node] = _take(placed.node, found)
    (output,) = (node for node in module.graph.nodes if node.op == "output")
    return [found[node] for node in output.args[0] if node is not None]


@pytest.mark.parametrize("model", known().values(), ids=known())
def test_a_step_in_lanes_is_the_step(model: Any, traced: Any) -> None:  # noqa: F811
    made = traced(True)
    trained(model)
    graph: Graph = made[0]
    order = arrange(graph.module.graph)
    assert_in_order(graph.module, order)
    x = torch.rand(50, graph.module.graph.find_nodes(op="placeholder")[-1].meta["val"].shape[1])
    inputs = [*graph.static, x.to(graph.module.graph.find_nodes(op="placeholder")[-1].meta["val"].dtype)]
    with torch.no_grad():
        wanted = [t for t in graph.module(*inputs) if t is not None]
        assert all(map(torch.equal, wanted, result(order, graph.module, inputs)))


def instances() -> nn.Module:
    return nn.Sequential(
        nn.Linear(64, 16), nn.Unflatten(1, (4, 4)), nn.InstanceNorm1d(4, track_running_stats=True), nn.Flatten()
    )


@pytest.mark.parametrize(
    ("layer", "writers"),
    [(used_twice, 4), (instances, 3), (lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(64, 16)), 1)],
    ids=["batch norm used twice", "instance norm", "spectral norm"],
)
def test_layers_that_write_to_their_buffers_are_waited_for(
    layer: Callable[[], nn.Module],
    writers: int,
    traced: Any,  # noqa: F811
) -> None:
    made = traced(True)
    torch.manual_seed(0)
    trained(own={"encoder": layer()})
    graph: Graph = made[0]
    batch = torch.randint(256, (50, 64), dtype=torch.uint8)
    assert assert_no_race(graph.module, arrange(graph.module.graph), [*graph.static, batch]) >= writers


def test_lanes_shorten_the_way(traced: Any) -> None:  # noqa: F811
    made = traced(True)
    trained(sv.VSC)
    order = arrange(made[0].module.graph)
    work = sum(_takes(p.node) for p in order)
    lanes = {p.lane for p in order}
    assert len(lanes) > 1
    assert sum(_takes(p.node) for p in order if p.lane == 0) < 0.8 * work


def test_what_is_changed_in_place_is_not_read_too_early_or_too_late() -> None:
    def f(x: Tensor) -> list[Tensor]:
        y = x + 1
        early = y * 2
        y.mul_(3)
        return [early, y * 2, y.exp()]

    module = make_fx(f)(torch.ones(3))
    order = arrange(module.graph, 3)
    assert_in_order(module, order)
    names = [p.node.name for p in order]
    assert names.index("mul") < names.index("mul_")


def test_results_are_counted_and_views_are_not() -> None:
    module = make_fx(lambda x: [(x.t() @ x).exp().view(-1)], tracing_mode="fake")(torch.ones(4, 3))
    assert room(module.graph) == 2 * 9 * 4
