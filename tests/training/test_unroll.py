"""A graph as one function: the same results, from what its inputs hold now, and nothing kept that is not needed."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from sparsevae.training.replay.unroll import _beforehand, unrolled


def both(f: Callable[..., list[Any]], static: list[Tensor], x: Tensor) -> tuple[Any, Callable[[Tensor], Any]]:
    module = make_fx(f, tracing_mode="fake")(*static, x)
    return module, unrolled(module.graph, static)


def split_and_scale(w: Tensor, b: Tensor, x: Tensor) -> list[Any]:
    left, right = (x @ w.t() + b).chunk(2, -1)
    half = torch.ones(()).div(2).expand(len(x), 1)
    return [torch.cat([left * half, torch.clamp(right, min=-1.0)], 1), None, left.sum([0], keepdim=True)]


def test_it_is_the_graph_and_follows_its_static_inputs() -> None:
    static, x = [torch.randn(4, 3), torch.randn(4)], torch.randn(5, 3)
    module, function = both(split_and_scale, static, x)
    for _ in range(2):
        wanted, found = module(*static, x), function(x)
        assert found[1] is None
        assert torch.equal(found[0], wanted[0])
        assert torch.equal(found[2], wanted[2])
        static[0].add_(1)  # seen by the view that was made beforehand
        x = torch.randn(5, 3)


def test_numbers_that_python_made_a_tensor_of_are_constants_too() -> None:
    module, function = both(lambda w, x: [torch.tensor([1.0, 2.0]) * x + w], [torch.ones(2)], torch.rand(2))
    assert any(node.op == "get_attr" for node in module.graph.nodes)
    x = torch.rand(2)
    assert torch.equal(function(x)[0], module(torch.ones(2), x)[0])


def test_constants_and_views_of_static_inputs_are_made_once() -> None:
    static, x = [torch.randn(4, 3), torch.randn(4)], torch.randn(5, 3)
    module, _ = both(split_and_scale, static, x)
    holders = [node for node in module.graph.nodes if node.op == "placeholder"][:-1]
    made = {node.name for node in _beforehand(module.graph, dict(zip(holders, static, strict=True)))}
    assert made >= {"t", "ones", "div", "expand"}
    assert not made & {"mm", "add", "mul", "cat", "clamp"}


def test_large_constants_are_not_kept() -> None:
    module, _ = both(lambda w, x: [torch.ones(600, 600) * x, torch.ones(3) * x], [torch.ones(())], torch.rand(()))
    (holder, _) = (node for node in module.graph.nodes if node.op == "placeholder")
    assert {node.name for node in _beforehand(module.graph, {holder: torch.ones(())})} == {holder.name, "ones_1"}


WRITTEN: dict[str, Callable[..., list[Any]]] = {
    "an output": lambda w, x: [torch.zeros(3), x + w],  # got by the caller, who may write there
    "an output through a list": lambda w, x: [torch.ones(2, 3).unbind()[0], x],
    "an output through reshape": lambda w, x: [torch.ones(2, 1).expand(2, 3).reshape(6), x + w],
    "an output through chunks": lambda w, x: [torch.unsafe_chunk(torch.ones(4), 2)[0], x + w],
    "a view as output": lambda w, x: [w.view(-1), w.exp() + x],
    "in place": lambda w, x: [torch.zeros(3).add_(x), x + w],
    "in place through a view": lambda w, x: [torch.zeros(4)[1:].add_(x), x + w],
    "in place through reshape": lambda w, x: [torch.ones(3).expand(2, 3).reshape(6).add_(1) + x.sum(), x + w],
}


@pytest.mark.parametrize("f", WRITTEN.values(), ids=WRITTEN)
def test_what_someone_writes_to_is_made_anew(f: Callable[..., list[Any]]) -> None:
    w, x = torch.rand(3), torch.rand(3)
    module, function = both(f, [w], x)
    for _ in range(3):
        wanted, found = module(w.clone(), x), function(x)
        assert all(map(torch.equal, found, wanted))
        if found[0].data_ptr() != w.data_ptr():
            found[0].fill_(7)


def test_a_static_input_is_read_when_it_is_used() -> None:
    """A view may be made beforehand; what is computed of it may not."""
    w = torch.rand(2, 3)
    _, function = both(lambda w, x: [w.t().exp() + x], [w], torch.zeros(()))
    w.zero_()
    assert torch.equal(function(torch.zeros(()))[0], torch.ones(3, 2))


def test_results_are_let_go_and_nothing_holds_the_inputs() -> None:
    w = torch.rand(1000)
    alive: list[int] = []
    kept: list[weakref.ref[Tensor]] = []

    def watch(mode: Any, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = function(*args, **(kwargs or {}))
        kept.append(weakref.ref(out))
        alive.append(sum(ref() is not None for ref in kept))
        return out

    x = torch.rand(1000)
    _, function = both(lambda w, x: [x.exp().sin().cos().exp().sin().cos() + w], [w], x)
    mode = type("Watch", (torch.utils._python_dispatch.TorchDispatchMode,), {"__torch_dispatch__": watch})
    with mode():
        function(x)
    assert len(alive) == 7
    assert max(alive) <= 2  # a result and what it is made of
    gone = weakref.ref(w)
    gc.disable()
    try:
        del w, function
        assert gone() is None
    finally:
        gc.enable()
