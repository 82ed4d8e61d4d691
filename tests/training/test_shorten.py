"""A shorter list of operations: it has fewer of them, and every bit of its results stays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx import Graph, GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from sparsevae.models import known
from sparsevae.training.replay import trace as tracing
from sparsevae.training.replay.shorten import shorten
from tests.training.test_trace import traced, trained  # noqa: F401  a fixture is used by its name

pytestmark = pytest.mark.filterwarnings("ignore::sparsevae.SparsityWarning")


def operations(graph: Graph) -> list[str]:
    return [node.target.__name__ for node in graph.nodes if node.op == "call_function"]


def shortened(f: Callable[..., list[Any]], *inputs: Tensor) -> GraphModule:
    module = make_fx(f, tracing_mode="fake")(*inputs)
    shorten(module.graph)
    module.recompile()
    return module


SHORTER: dict[str, tuple[Callable[..., list[Any]], list[str]]] = {
    "what was computed before": (
        lambda w, x: [(x * 2).exp() + (x * 2).exp()],
        ["mul.Tensor", "exp.default", "add.Tensor"],
    ),
    "a transpose of a transpose": (
        lambda w, x: [x.outer(x).t().t().exp()],
        ["view.default", "mul.Tensor", "exp.default"],
    ),
    "an alias": (lambda w, x: [x.detach().exp()], ["exp.default"]),
}


@pytest.mark.parametrize("name", SHORTER)
def test_left_out_is(name: str) -> None:
    f, wanted = SHORTER[name]
    w, x = torch.rand(3), torch.randn(3)
    module = shortened(f, w, x)
    assert operations(module.graph) == wanted
    assert all(map(torch.equal, module(w, x), f(w, x)))


KEPT: dict[str, Callable[..., list[Any]]] = {
    "a result that the caller gets twice": lambda w, x: [x * 2, x * 2],
    "a result that the caller gets through a view": lambda w, x: [(x * 2).view(-1), (x * 2).view(3, 1)],
    "the batch as a result": lambda w, x: [x * 1.0, (x - 0.0).exp()],
    "an input that is written to in between": lambda w, x: [(w * 2) + w.add_(1) + (w * 2)],
    "an input that is written to through a view": lambda w, x: [(w * 2) + w[1:].add_(1).sum() + (w * 2)],
    "two results of which one is written to": lambda w, x: [(x * 2).add_(1) + x * 2],
    "a shape": lambda w, x: [(x.sum() - torch.tensor([0.0, 0.0, 0.0])).exp()],
    "a type": lambda w, x: [(x.bool() * torch.tensor(1.0)).exp()],
    "minus nothing of another sign": lambda w, x: [(x * 0.0 - torch.tensor([-0.0] * 3)).exp(), 1 / (x * 0.0 - -0.0)],
    "random numbers": lambda w, x: [torch.rand(3) - torch.rand(3) + x],
}


@pytest.mark.parametrize("name", KEPT)
def test_what_matters_stays(name: str) -> None:
    f = KEPT[name]
    w, x = torch.tensor([-1.0, 0.0, 1.0]), torch.tensor([-2.0, 0.0, 3.0])
    module = shortened(f, w, x)
    for _ in range(2):
        torch.manual_seed(0)
        wanted = f(w.clone(), x.clone())
        torch.manual_seed(0)
        own = x.clone()
        found = module(w.clone(), own)
        for a, b in zip(wanted, found, strict=True):
            assert a.dtype == b.dtype
            assert a.shape == b.shape
            assert torch.equal(a, b)
            assert torch.equal(a.signbit(), b.signbit())
        assert len({t.untyped_storage().data_ptr() for t in (*found, own)}) == 1 + len(found)


def norm(x: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    return torch.nn.functional.batch_norm(x, mean, variance, training=True)


LEARNING: dict[str, Callable[..., list[Any]]] = {
    "used twice": lambda mean, variance, x: [norm(x, mean, variance) + 2 * norm(x, mean, variance)],
    "used for nothing else": lambda mean, variance, x: [x * 2, norm(x, mean, variance)][:1],
    "read later": lambda mean, variance, x: [mean * 2 + norm(x, mean, variance) + mean * 2],
}


@pytest.mark.parametrize("name", LEARNING)
def test_running_statistics_are_written_though_torch_s_schema_does_not_say_so(name: str) -> None:
    f, x = LEARNING[name], torch.randn(5, 3)
    module = shortened(f, torch.zeros(3), torch.ones(3), x)
    own, wanted = [torch.zeros(3), torch.ones(3)], [torch.zeros(3), torch.ones(3)]
    for _ in range(2):
        assert torch.equal(module(*own, x)[0], f(*wanted, x)[0])
        assert all(map(torch.equal, own, wanted))


def returned(node: Any, output: Any) -> bool:
    """True for a result, or what is only reshaped to one: two weights never share the tensor of their gradient."""
    users = list(node.users)
    return output in users or (len(users) == 1 and "view" in str(users[0].target) and returned(users[0], output))


@pytest.mark.parametrize("model", known().values(), ids=known())
def test_no_model_s_step_computes_anything_twice(
    model: Any,
    traced: Any,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole: list[list[str]] = []
    monkeypatch.setattr(tracing, "shorten", lambda graph: (whole.append(operations(graph)), shorten(graph))[1])
    made = traced(True)
    trained(model, steps=1)
    graph = made[0].module.graph
    (output,) = graph.find_nodes(op="output")
    asked = [
        (node.target, node.args, tuple(node.kwargs.items()))
        for node in graph.nodes
        if node.op == "call_function" and not returned(node, output)
    ]
    twice = [str(a) for a, times in Counter(map(repr, asked)).items() if times > 1]
    assert twice == []
    assert len(operations(graph)) < len(whole[0])
