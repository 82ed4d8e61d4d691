"""Another torch: what is missing or differs there is named in one line, and the run goes on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import sparsevae as sv
from sparsevae.training import accelerate, torch_internals
from sparsevae.training.replay import trace
from sparsevae.training.replay.trace import Graph

pytestmark = pytest.mark.filterwarnings("ignore::sparsevae.SparsityWarning")

X = np.random.default_rng(0).random((40, 6)).astype(np.float32)


@pytest.fixture(autouse=True)
def anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of any length may be traced."""
    monkeypatch.setattr(accelerate, "LONG", 1)


def trained(**settings: Any) -> Any:
    run = {"steps": 12, "batch_size": 20, "report_every": 4, "verbose": 1, "device": "cpu"} | settings
    return sv.VSC(3, hidden=(5,), training=sv.Training(**run)).fit(X)


def same(a: Any, b: Any) -> bool:
    return all(torch.equal(p, q) for p, q in zip(a.model_.parameters(), b.model_.parameters(), strict=True))


NAMES = ["torch.fx.experimental.proxy_tensor.make_fx", "torch.nn.modules.module._has_any_global_hook"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("version", [None, "2.99.0a1+cpu"])
def test_a_missing_name_means_eager_steps_and_one_line(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], name: str, version: str | None
) -> None:
    eager = trained(compile=False)
    capfd.readouterr()
    monkeypatch.delattr(name)
    if version:
        monkeypatch.setattr(torch, "__version__", version)
    other = trained()
    (line,) = [line for line in capfd.readouterr().err.splitlines() if "going on" in line]
    assert "tracing the step failed (" in line
    assert name.rpartition(".")[2] in line
    assert line.endswith(f"{'; torch 2.99.0a1+cpu, tried with 2.11 to 2.13' * bool(version)}); going on without.")
    assert same(eager, other)


@pytest.mark.parametrize("version", ["2.10.1", "2.14.0", "3.0"])
def test_another_version_that_has_it_all_is_traced_all_the_same(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], version: str
) -> None:
    eager, made = trained(compile=False), []
    monkeypatch.setattr(torch, "__version__", version)
    monkeypatch.setattr(accelerate, "Graph", lambda *args: made.append(graph := Graph(*args)) or graph)
    assert same(eager, trained())
    assert len(made) == 1
    assert "going on" not in capfd.readouterr().err
    assert torch_internals.untried() == f"torch {version}, tried with 2.11 to 2.13"


def test_versions_that_were_tried() -> None:
    assert torch_internals.untried() == ""


def test_operations_that_differ_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A recorder that leaves a factor out: the first comparison with an eager step shows it."""
    eager, record = trained(compile=False), torch_internals.record

    def halved(function: Any, *inputs: Any) -> Any:
        return record(lambda *given: [t if t is None else t / 2 for t in function(*given)], *inputs)

    monkeypatch.setattr(trace, "record", halved)
    with pytest.warns(RuntimeWarning, match="cannot be traced: when traced it differs: the term 'loss' is"):
        other = trained(verbose=0)
    assert same(eager, other)


@pytest.mark.parametrize("version", [None, "2.99.0a1+cpu"])
def test_without_the_kernel_adam_takes_the_same_steps(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], version: str | None
) -> None:
    fused = trained()
    capfd.readouterr()
    monkeypatch.delattr(torch, "_fused_adam_")
    if version:
        monkeypatch.setattr(torch, "__version__", version)
    plain = trained()
    found = "; torch 2.99.0a1+cpu, tried with 2.11 to 2.13" * bool(version)
    assert f"torch._fused_adam_ is missing{found}; going on without." in capfd.readouterr().err
    for p, q in zip(fused.model_.parameters(), plain.model_.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-4, atol=1e-5)
