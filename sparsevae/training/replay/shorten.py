"""A list of tensor operations without aliases and without what was computed before; every bit of its results stays.

Autograd leaves aliases and transposes of transposes, and two parts of a model may compute the same thing.
"""

from __future__ import annotations

import torch
from torch.fx import Graph, Node

from sparsevae.training.replay.unroll import aliases, looks, written_by
from sparsevae.training.torch_internals import schema

aten = torch.ops.aten


def shorten(graph: Graph) -> None:
    """Leave out aliases, and what was computed before.

    A result that somebody writes to, or that the caller gets, is made anew all the same: its memory is its own.
    """
    (output,) = graph.find_nodes(op="output")
    written, given = _written(graph), {_base(node) for node in output.all_input_nodes}
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
    """The node that made the memory a result lies in."""
    while looks(node) or _gives_back(node):
        node = node.all_input_nodes[0] if looks(node) else written_by(node)[0]
    return node


def _gives_back(node: Node) -> bool:
    """Whether its result is what it has written to."""
    declared = schema(node.target)
    return declared is not None and declared.is_mutable and aliases(declared)


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


def _before(node: Node, seen: dict[str, Node]) -> Node | None:
    """The node that computed the same, if there is one."""
    if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
        return None
    key = repr((node.target, node.args, node.kwargs))
    return None if seen.setdefault(key, node) is node else seen[key]
