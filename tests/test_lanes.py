"""Operations dealt out to lanes: each once, none before what it needs, and the results are those of the list."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

import sparsevae as sv
from sparsevae.lanes import Placed, _needs, _take, _takes, arrange, constants, room
from sparsevae.models import known
from sparsevae.tracing import Graph
from sparsevae.unrolled import looks
from tests.test_tracing import traced, trained  # noqa: F401  a fixture is used by its name

pytestmark = pytest.mark.filterwarnings("ignore::sparsevae.SparsityWarning")


def assert_in_order(module: GraphModule, order: list[Placed]) -> None:
    """Everything that an operation needs is over when it starts: its lane, or one it waits for, was there before."""
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
