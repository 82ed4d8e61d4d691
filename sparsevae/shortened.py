"""A list of tensor operations without those that it can do without; every bit of its results stays.

Autograd leaves aliases and transposes of transposes, two parts of a model compute the same thing, and values that stay
what they are turn out to be nothing: a standard prior has mean 0 and scale 1, images have no shift.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node

from sparsevae.unrolled import constant, looks, written_by

__all__ = ["fix", "shorten"]

aten = torch.ops.aten


def fix(module: GraphModule, values: Mapping[int, Tensor]) -> None:
    """Make constants of some inputs, given by their places; one that the graph writes to is left as it is."""
    graph = module.graph
    holders, written = graph.find_nodes(op="placeholder"), _written(graph)
    first = next(node for node in graph.nodes if node.op != "placeholder")
    for place, value in values.items():
        holder = holders[place]
        if holder.users and holder not in written:
            module.register_buffer(name := f"fixed_{place}", value, persistent=False)
            with graph.inserting_before(first):
                stays = graph.get_attr(name)
            stays.meta = dict(holder.meta)
            holder.replace_all_uses_with(stays)


def shorten(graph: Graph) -> None:
    """Leave out what changes nothing, and what was computed before.

    A result that somebody writes to, or that the caller gets, is made anew all the same: its memory is its own.
    """
    (output,) = graph.find_nodes(op="output")
    written, given = _written(graph), {_base(node) for node in output.all_input_nodes}
    seen = dict[str, Node]()
    for node in [n for n in graph.nodes if n.op == "call_function"]:
        other = _alias(node)
        still = not any(_base(n) in written for n in (node, *node.all_input_nodes))
        if other is None and still and _base(node) not in given:
            other = _unchanged(node) or _before(node, seen)
        if other is not None:
            node.replace_all_uses_with(other)
    graph.eliminate_dead_code(lambda node: node.is_impure() or bool(written_by(node)))


def _base(node: Node) -> Node:
    """The node that made the memory a result lies in."""
    while looks(node) or _gives_back(node):
        node = node.all_input_nodes[0] if looks(node) else written_by(node)[0]
    return node


def _gives_back(node: Node) -> bool:
    """Whether its result is what it has written to."""
    schema = getattr(node.target, "_schema", None)
    return schema is not None and schema.is_mutable and any(r.alias_info is not None for r in schema.returns)


def _written(graph: Graph) -> set[Node]:
    """The nodes whose memory is written to by others."""
    return {_base(n) for node in graph.nodes for n in written_by(node)}


def _alias(node: Node) -> Node | None:
    """What a node that is there for autograd alone looks at."""
    if node.target == aten.detach.default:
        return node.all_input_nodes[0]
    if node.target == aten.t.default and (before := node.all_input_nodes[0]).target == aten.t.default:
        return before.all_input_nodes[0]
    return None


def _is_all(value: Any, number: float) -> bool:
    """Whether it is that number (and 0 without a sign), everywhere."""
    if isinstance(value, Node):
        if value.op != "get_attr":
            return False
        value = constant(value)
    if isinstance(value, Tensor):
        return bool((value == number).all()) and not bool(value.signbit().any())
    return isinstance(value, (int, float)) and value == number and math.copysign(1.0, value) > 0


_NEUTRAL = {
    aten.mul.Tensor: 1,
    aten.mul.Scalar: 1,
    aten.div.Tensor: 1,
    aten.div.Scalar: 1,
    aten.sub.Tensor: 0,
    aten.sub.Scalar: 0,
}


def _unchanged(node: Node) -> Node | None:
    """The first argument, where the second does nothing to it.

    The result must lie in memory as it does: kernels round the ends of a row otherwise than its middle.
    """
    first, *rest = node.args
    if node.target not in _NEUTRAL or len(rest) != 1 or node.kwargs or not isinstance(first, Node):
        return None
    a, b = first.meta["val"], node.meta["val"]
    alike = (a.shape, a.stride(), a.dtype) == (b.shape, b.stride(), b.dtype)
    return first if alike and _is_all(rest[0], _NEUTRAL[node.target]) else None


def _before(node: Node, seen: dict[str, Node]) -> Node | None:
    """The node that computed the same, if there is one."""
    if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
        return None
    key = repr((node.target, node.args, node.kwargs))
    return None if seen.setdefault(key, node) is node else seen[key]
