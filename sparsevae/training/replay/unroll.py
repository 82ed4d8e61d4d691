"""A graph of tensor operations as one Python function, with as little as possible between two of them.

A small model's step is a hundred operations of a few microseconds, so what Python does around them counts. Here every
operation is torch's own entry point, called by a line of its own; what is the same at every call (constants, and views
of tensors that stay where they are) was made beforehand; and a result is let go after its last use.
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

_ROOM = 2**20  # bytes of a constant that is kept


def unrolled(graph: Graph, static: Sequence[Tensor]) -> Callable[..., list[Tensor | None]]:
    """batch -> the outputs of a graph whose inputs are `static`, tensors that are only ever written to in place, and
    the tensors of a batch."""
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    holders, batch = inputs[: len(static)], inputs[len(static) :]
    (output,) = (node for node in graph.nodes if node.op == "output")
    made = _beforehand(graph, dict(zip(holders, static, strict=True)))
    names, lines, last = _Names(made), list[str](), _last_uses(graph)
    names.called |= {node: f"x{i}" for i, node in enumerate(batch)}
    for node in graph.nodes:
        if node.op != "call_function" or node in made:
            continue
        args = [*map(names.of, node.args), *(f"{key}={names.of(value)}" for key, value in node.kwargs.items())]
        called = names.add(entry(node.target))
        own = names.called[node] = f"v{len(lines)}"
        over = [names.called[n] for n in last.get(node, ()) if n not in batch and n not in made]
        lines.append(f"    {own} = {called}({', '.join(args)})" + "".join(f"; {name} = None" for name in over))
    head = f"def function({', '.join(names.called[node] for node in batch)}):"
    text = "\n".join([head, *lines, f"    return {names.of(output.args[0])}"])
    exec(compile(text, "<a training step>", "exec"), names.meaning)
    function: Callable[..., list[Tensor | None]] = names.meaning.pop("function")  # so that neither holds the other
    return function


class _Names:
    """What the lines of a function call their values, and what those names mean outside of it."""

    def __init__(self, made: Mapping[Node, Any]) -> None:
        self.made = made
        self.called: dict[Node, str] = {}
        self.meaning: dict[str, Any] = {}

    def add(self, value: Any) -> str:
        name = f"c{len(self.meaning)}"
        self.meaning[name] = value
        return name

    def of(self, arg: Any) -> str:
        """An argument as it is written."""
        if isinstance(arg, (list, tuple)):
            return f"[{', '.join(map(self.of, arg))}]"
        if not isinstance(arg, Node):
            return self.add(arg)
        if arg not in self.called:
            self.called[arg] = self.add(self.made[arg])
        return self.called[arg]


_VIEWS = {"aten::_unsafe_view", "aten::unsafe_split", "aten::unsafe_split_with_sizes"}  # their schemas do not say so


def looks(node: Node) -> bool:
    """Whether it only looks at a tensor, or at a list of them, in another way."""
    declared = schema(node.target)
    if declared is None:
        return node.target is operator.getitem
    return declared.name in _VIEWS or (not declared.is_mutable and aliases(declared))


def aliases(declared: Any) -> bool:
    """Whether a result shares memory with an argument, by what an operation declares."""
    return any(result.alias_info is not None for result in declared.returns)


def constant(node: Node) -> Tensor:
    """The tensor that a node of its graph's module stands for."""
    tensor: Tensor = operator.attrgetter(str(node.target))(node.graph.owning_module)
    return tensor


_LEARN = {f"aten::{name}_batch_norm" for name in ("native", "cudnn", "miopen")}  # nor these, where they train
_STATISTICS = ("running_mean", "running_var")


def written_by(node: Node) -> list[Node]:
    """The arguments that it changes in place."""
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
    """Whether it gives the same for the same, and nobody gets its result or a view of it, or writes there."""
    if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
        return False
    if any(other.op == "output" or written_by(other) for other in (node, *node.users)):
        return False
    return all(_is_safe(user) for user in node.users if looks(user))


def _beforehand(graph: Graph, static: dict[Node, Tensor]) -> dict[Node, Any]:
    """What is the same at every call, by node: the static inputs, views of them, and all that comes of constants."""
    made: dict[Node, Any] = dict(static)
    constant_nodes = set[Node]()
    for node in graph.nodes:
        if node.op == "get_attr":  # a tensor that Python made of numbers
            made[node] = constant(node)
            constant_nodes.add(node)
        if node.op != "call_function" or not _is_safe(node):
            continue
        if all(n in constant_nodes for n in node.all_input_nodes) and (looks(node) or _size(node) <= _ROOM):
            constant_nodes.add(node)
        elif not (looks(node) and all(n in made for n in node.all_input_nodes)):
            continue
        with torch.no_grad():
            args, kwargs = (map_arg(part, made.__getitem__) for part in (node.args, node.kwargs))
            made[node] = node.target(*args, **kwargs)
    return made


def _size(node: Node) -> int:
    """Bytes of its result; of a list, which hardly anything but views gives, none."""
    result = node.meta.get("val")
    return result.numel() * result.element_size() if isinstance(result, Tensor) else 0


def _last_uses(graph: Graph) -> dict[Node, list[Node]]:
    """By node, the results that nobody needs after it."""
    seen, last = set[Node](), dict[Node, list[Node]]()
    for node in reversed(list(graph.nodes)):
        for before in node.all_input_nodes:
            if before not in seen:
                seen.add(before)
                last.setdefault(node, []).append(before)
    return last
