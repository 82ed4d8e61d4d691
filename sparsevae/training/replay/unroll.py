"""A graph of tensor operations as one Python function, with little overhead between operations.

A step of a small model has a hundred operations of a few microseconds, so the Python between them matters. The function
has one line per operation, which calls torch's own entry point; values that are the same at every call (constants, and
views of tensors that stay in place) are computed once; and each result is released after its last use.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from sparsevae.training.torch_internals import entry, schema

_LARGEST = 2**20  # bytes of a constant that is computed only once


def unrolled(graph: Graph, static: Sequence[Tensor]) -> Callable[..., list[Tensor | None]]:
    """A function: the tensors of a batch -> the outputs of the graph.

    The first inputs of the graph are `static`, tensors that change only in place; the others are the batch.
    """
    inputs = graph.find_nodes(op="placeholder")
    holders, batch = inputs[: len(static)], inputs[len(static) :]
    (output,) = graph.find_nodes(op="output")
    made = _beforehand(graph, dict(zip(holders, static, strict=True)))
    names = _Names(made)
    names.update({node: f"x{i}" for i, node in enumerate(batch)})
    lines = [f"def function({', '.join(names.values())}):"]
    last = _last_uses(graph)
    for node in graph.nodes:
        if node.op != "call_function" or node in made:
            continue
        args = [*map(names.written, node.args), *(f"{key}={names.written(v)}" for key, v in node.kwargs.items())]
        called = names.constant(entry(node.target))
        own = names[node] = f"v{len(lines)}"
        lines.append(f"    {own} = {called}({', '.join(args)})")
        lines += [f"    {names[n]} = None" for n in last.get(node, ()) if n not in batch and n not in made]
    lines.append(f"    return {names.written(output.args[0])}")
    exec(compile("\n".join(lines), "<a training step>", "exec"), names.space)
    function: Callable[..., list[Tensor | None]] = names.space.pop("function")  # no reference cycle
    return function


class _Names(dict[Node, str]):
    """The names of nodes in the lines of a function, and `space`, the constants that the function refers to."""

    def __init__(self, made: Mapping[Node, Any]) -> None:
        self.made = made
        self.space: dict[str, Any] = {}

    def __missing__(self, node: Node) -> str:
        return self.setdefault(node, self.constant(self.made[node]))

    def constant(self, value: Any) -> str:
        name = f"c{len(self.space)}"
        self.space[name] = value
        return name

    def written(self, arg: Any) -> str:
        """An argument as it is written in a line."""
        if isinstance(arg, (list, tuple)):
            return f"[{', '.join(map(self.written, arg))}]"
        return self[arg] if isinstance(arg, Node) else self.constant(arg)


_VIEWS = {
    "aten::_unsafe_view",
    "aten::unsafe_split",
    "aten::unsafe_split_with_sizes",
}  # not declared as views


def is_view(node: Node) -> bool:
    """True if the result is a view of the argument, or an item of a list."""
    declared = schema(node.target)
    if declared is None:
        return node.target is operator.getitem
    return declared.name in _VIEWS or (not declared.is_mutable and aliases(declared))


def aliases(declared: Any) -> bool:
    """True if, by the schema, a result shares memory with an argument."""
    return any(result.alias_info is not None for result in declared.returns)


_LEARN = {f"aten::{name}_batch_norm" for name in ("native", "cudnn", "miopen")}  # update their statistics, undeclared
_STATISTICS = ("running_mean", "running_var")


def written_by(node: Node) -> list[Node]:
    """The arguments that a node changes in place."""
    declared, found = schema(node.target), list[Node]()
    if declared is None:
        return found
    given = dict(zip((argument.name for argument in declared.arguments), node.args, strict=False)) | node.kwargs
    learns = declared.name in _LEARN and given["training"]
    for argument in declared.arguments:
        written = argument.alias_info is not None and argument.alias_info.is_write
        if written or (learns and argument.name in _STATISTICS):
            map_arg(given.get(argument.name), found.append)
    return found


def _is_safe(node: Node) -> bool:
    """True if the result depends on the arguments alone, and it and its views are neither output nor written to."""
    if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
        return False
    if any(other.op == "output" or written_by(other) for other in (node, *node.users)):
        return False
    return all(_is_safe(user) for user in node.users if is_view(user))


def _beforehand(graph: Graph, static: dict[Node, Tensor]) -> dict[Node, Any]:
    """Values that are the same at every call, by node: static inputs, their views, and what constants alone give."""
    made: dict[Node, Any] = dict(static)
    constant_nodes = set[Node]()
    for node in graph.nodes:
        if node.op == "get_attr":  # a tensor made from Python numbers
            made[node] = operator.attrgetter(str(node.target))(graph.owning_module)
            constant_nodes.add(node)
        if node.op != "call_function" or not _is_safe(node):
            continue
        if all(n in constant_nodes for n in node.all_input_nodes) and (is_view(node) or _size(node) <= _LARGEST):
            constant_nodes.add(node)
        elif not (is_view(node) and all(n in made for n in node.all_input_nodes)):
            continue
        with torch.no_grad():
            args, kwargs = (map_arg(part, made.__getitem__) for part in (node.args, node.kwargs))
            made[node] = node.target(*args, **kwargs)
    return made


def _size(node: Node) -> int:
    """Bytes of the result; 0 for a list, which few operations but views return."""
    result = node.meta.get("val")
    return result.numel() * result.element_size() if isinstance(result, Tensor) else 0


def _last_uses(graph: Graph) -> dict[Node, list[Node]]:
    """By node, the results that it uses last."""
    last_user = {before: node for node in graph.nodes for before in node.all_input_nodes}
    found: dict[Node, list[Node]] = {}
    for before, node in last_user.items():
        found.setdefault(node, []).append(before)
    return found
