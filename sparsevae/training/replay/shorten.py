"""Removes aliases and common sub-expressions from a graph of tensor operations; its results keep every bit.

Autograd leaves aliases and transposes of transposes, and two parts of a model may compute the same value.
"""

from __future__ import annotations

import torch
from torch.fx import Graph, Node

from sparsevae.training.replay.unroll import aliases, is_view, written_by
from sparsevae.training.torch_internals import schema

aten = torch.ops.aten


def shorten(graph: Graph) -> None:
    """Remove aliases and common sub-expressions.

    A result that is written to, or returned, is not merged with an equal one: it needs its own memory.
    """
    (output,) = graph.find_nodes(op="output")
    written = {_base(n) for node in graph.nodes for n in written_by(node)}
    given = {_base(node) for node in output.all_input_nodes}
    seen = dict[str, Node]()
    for node in [n for n in graph.nodes if n.op == "call_function"]:
        other = _alias(node)
        unchanged = not any(_base(n) in written for n in (node, *node.all_input_nodes))
        if other is None and unchanged and _base(node) not in given:
            other = _before(node, seen)
        if other is not None:
            node.replace_all_uses_with(other)
    graph.eliminate_dead_code(lambda node: node.is_impure() or bool(written_by(node)))


def _base(node: Node) -> Node:
    """The node that allocated the memory of a result."""
    while is_view(node) or _gives_back(node):
        node = node.all_input_nodes[0] if is_view(node) else written_by(node)[0]
    return node


def _gives_back(node: Node) -> bool:
    """True if the result is the argument that the node writes to."""
    declared = schema(node.target)
    return declared is not None and declared.is_mutable and aliases(declared)


def _alias(node: Node) -> Node | None:
    """The value that a detach, or a transpose of a transpose, returns unchanged; else None."""
    if node.target == aten.detach.default:
        return node.all_input_nodes[0]
    if node.target == aten.t.default and (before := node.all_input_nodes[0]).target == aten.t.default:
        return before.all_input_nodes[0]
    return None


def _before(node: Node, seen: dict[str, Node]) -> Node | None:
    """An earlier node with the same operation and arguments, if there is one."""
    if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
        return None
    key = repr((node.target, node.args, node.kwargs))
    return None if seen.setdefault(key, node) is node else seen[key]
