"""A traced step: the same numbers as an eager one, for every model, from one list of operations."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import MethodType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import sparsevae as sv
from reproductions.stack import fit_together
from sparsevae.inputs.rows import Host
from sparsevae.latent.objective import Objective, kl, nll
from sparsevae.models import SUPERVISED, known
from sparsevae.sampling.gradients import ESTIMATORS
from sparsevae.sampling.noise import Tape
from sparsevae.training import accelerate
from sparsevae.training.accelerate import Acceleration
from sparsevae.training.loop import fit
from sparsevae.training.replay.trace import Graph, repeatable

pytestmark = pytest.mark.filterwarnings("ignore::sparsevae.SparsityWarning")


def images(n: int = 300, d: int = 64) -> Any:
    rng = np.random.default_rng(0)
    return np.clip(255 * (rng.random((n, 6)) < 0.3) @ rng.random((6, d)) ** 4, 0, 255).astype(np.uint8)


def labels(model: Any, n: int = 300) -> Any:
    """What a supervised model learns: sets of labels, classes or counts."""
    rng = np.random.default_rng(1)
    return (rng.random((n, 4)) < 0.3).astype(int) if model is sv.SDLGMClassifier else rng.integers(3, size=n)


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], list[Any]]:
    """Have runs of any length traced, or none; returns the graphs that are made. A trace that fails is an error."""
    made: list[Any] = []

    class Kept(Graph):
        calls = 0

        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            made.append(self)

        def __call__(self, *batch: Tensor) -> Any:
            self.calls += 1
            return super().__call__(*batch)

    def choose(way: bool) -> list[Any]:
        made.clear()
        monkeypatch.setattr(accelerate, "LONG", 1 if way else 10**9)
        return made

    monkeypatch.setattr(accelerate, "Graph", Kept)
    attempt = Acceleration.attempt

    def strict(self: Acceleration, what: str, action: Any) -> bool:
        self.note = pytest.fail
        return attempt(self, what, action)

    monkeypatch.setattr(Acceleration, "attempt", strict)
    return choose


def trained(model: Any = sv.VSC, n: int = 300, n_features: int = 64, own: Any = None, **settings: Any) -> Any:
    run = {"steps": 12, "batch_size": 50, "report_every": 4, "verbose": 0, "device": "cpu"} | settings
    est = model(**{"hidden": (16,), "training": sv.Training(**run)} | (own or {}))
    if "n_components" in est.get_params():
        est.set_params(n_components=8)
    X = images(n, n_features)
    return est.fit(X, labels(model, n)) if model in SUPERVISED.values() else est.fit(X)


def assert_traced_equals_eager(traced: Callable[[bool], list[Any]], **run: Any) -> None:
    assert not traced(False)
    eager = trained(**run)
    made = traced(True)
    other = trained(**run)
    assert made
    assert all(graph.calls == 12 for graph in made)  # one, or one a fold
    wanted, found = eager.model_.state_dict(), other.model_.state_dict()
    assert wanted.keys() == found.keys()
    for name in wanted:
        assert torch.equal(wanted[name], found[name]), name
    assert list(eager.history_) == list(other.history_)


@pytest.mark.parametrize("model", known().values(), ids=known())
def test_every_model_is_traced_and_equals_its_eager_run_bit_for_bit(traced: Any, model: Any) -> None:
    assert_traced_equals_eager(traced, model=model)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("model", known().values(), ids=known())
def test_every_model_s_graph_compiles_and_stays_close_to_its_eager_run(traced: Any, model: Any) -> None:
    """Over the first steps, before rounding grows: a gate that flips sends two runs apart for good."""
    made = traced(False)
    eager, compiled = (trained(model, steps=6, report_every=1, compile=way) for way in (False, True))
    assert made
    assert all(graph._call != graph.module.forward for graph in made)
    assert compiled.history_.column("loss") == pytest.approx(eager.history_.column("loss"), rel=2e-3)


@pytest.mark.parametrize("gradient", ESTIMATORS)
def test_so_does_every_gradient_through_discrete_draws(traced: Any, gradient: str) -> None:
    """Hooks that divide a gradient and slopes that grow are part of the list."""
    assert_traced_equals_eager(traced, model=sv.DiscreteVAE, own={"gradient": gradient})


@pytest.mark.parametrize(
    "settings",
    [
        {"n_samples": 3, "clip_norm": 1.0, "binarise": True, "kl_warmup": 8},
        {"optimizer": "momentum", "learning_rate": 1e-3, "free_bits": 0.1},
    ],
    ids=["noise and schedules", "momentum"],
)
def test_so_does_every_setting(traced: Any, settings: dict[str, Any]) -> None:
    own = {"likelihood": "bernoulli"} if "binarise" in settings else {}
    assert_traced_equals_eager(traced, own=own, **settings)


@pytest.mark.parametrize("network", ["conv", "asperti"])
def test_so_do_convolutions(traced: Any, network: str) -> None:
    own = {"network": network, "hidden": None}
    assert_traced_equals_eager(traced, model=sv.VAE, n=40, n_features=784, own=own, batch_size=8)


def strided() -> nn.Module:
    layer = nn.Linear(64, 16)
    layer.weight = nn.Parameter(torch.randn(64, 16).mul(0.1).t())
    return layer


def used_twice() -> nn.Module:
    layer, norm = nn.Linear(16, 16), nn.BatchNorm1d(16, affine=False)
    return nn.Sequential(nn.Linear(64, 16), norm, nn.ReLU(), layer, norm, nn.ReLU(), layer)


def tied() -> nn.Module:
    first, second = nn.Linear(16, 16), nn.Linear(16, 16)
    second.weight = first.weight
    return nn.Sequential(nn.Linear(64, 16), nn.ReLU(), first, nn.ReLU(), second)


def frozen() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 16).requires_grad_(False), nn.ReLU())


LAYERS: dict[str, Callable[[], nn.Module]] = {
    "statistics of batches": lambda: nn.Sequential(nn.Linear(64, 16), nn.BatchNorm1d(16), nn.ReLU()),
    "weights in another order of memory": strided,
    "layers used twice": used_twice,
    "tied weights": tied,
    "frozen weights": frozen,
    "parametrised weights": lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(64, 16)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_so_do_layers_of_torch_s_own(traced: Any, name: str) -> None:
    """They may write into their buffers, share what they have, and keep it as they like."""
    torch.manual_seed(0)
    assert_traced_equals_eager(traced, own={"encoder": LAYERS[name]()})


STACKS: dict[str, Callable[..., Any]] = {
    "VSC": lambda i, t: sv.VSC(8, hidden=(16,), alpha=(0.1, 0.3)[i], training=t),
    "PseudoVSC": lambda i, t: sv.PseudoVSC(8, hidden=(16,), alpha=(0.1, 0.3)[i], pseudo_inputs=4, training=t),
}


@pytest.mark.parametrize("make", STACKS.values(), ids=STACKS)
def test_so_do_models_that_train_as_one(traced: Any, make: Callable[..., Any]) -> None:
    found = []
    for way in (False, True):
        made = traced(way)
        settings = {"steps": 12, "batch_size": 50, "verbose": 0, "device": "cpu", "clip_norm": 1.0}
        members = [make(i, sv.Training(**settings, seed=i)) for i in range(2)]
        fit_together(members, images())
        assert len(made) == way
        found.append([v for m in members for v in m.model_.state_dict().values()])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


class Own(nn.Linear):
    """A user's own class, whose `__module__` a parametrisation hides."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).tanh() if self.training else super().forward(x)


def patched() -> nn.Module:
    layer = nn.Linear(64, 16)
    layer.forward = MethodType(lambda own, x: nn.functional.linear(x, own.weight), layer)  # type: ignore[method-assign]
    return layer


OWN: dict[str, Callable[[], nn.Module]] = {
    "a class": lambda: Own(64, 16),
    "a class, parametrised": lambda: nn.utils.parametrizations.weight_norm(Own(64, 16)),
    "a forward": patched,
}


@pytest.mark.parametrize("name", OWN)
def test_so_do_layers_of_a_user_s_own(traced: Any, name: str) -> None:
    torch.manual_seed(0)
    assert_traced_equals_eager(traced, own={"encoder": OWN[name]()})


def hooked(kind: str) -> nn.Module:
    layer = nn.Linear(64, 16)
    getattr(layer, f"register_{kind}_hook")(lambda *_: None)
    return layer


@pytest.fixture(scope="module")
def plain() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sv.SparsityWarning)
        return trained().model_


@pytest.mark.filterwarnings("ignore:Full backward hook")
@pytest.mark.parametrize("kind", ["forward_pre", "forward", "full_backward"])
def test_layers_with_hooks_are_not_traced(traced: Any, kind: str, plain: Any) -> None:
    made = traced(True)
    est = trained(own={"encoder": hooked(kind)})
    assert not made
    assert not repeatable([est.model_])
    assert repeatable([plain])


def test_with_a_hook_for_all_modules_nothing_is_traced(traced: Any) -> None:
    made = traced(True)
    handle = nn.modules.module.register_module_forward_hook(lambda *_: None)
    try:
        trained()
    finally:
        handle.remove()
    assert not made


@pytest.mark.parametrize("kind", ["register_hook", "register_post_accumulate_grad_hook"])
def test_weights_with_hooks_are_not_traced(kind: str) -> None:
    layer = nn.Linear(3, 2)
    assert repeatable([layer])
    getattr(layer.weight, kind)(lambda *_: None)
    assert not repeatable([layer])


@pytest.mark.parametrize("way", [False, True], ids=["eager", "traced"])
def test_gradients_come_from_the_run_alone_and_are_not_left_behind(traced: Any, way: bool) -> None:
    found = []
    for number in (None, 1.0):
        traced(way)
        torch.manual_seed(0)
        own = nn.Linear(64, 16)
        own.weight.grad = None if number is None else torch.full_like(own.weight, number)
        found.append(trained(own={"encoder": own}).model_)
    assert all(torch.equal(a, b) for a, b in zip(*(m.parameters() for m in found), strict=True))
    assert all(p.grad is None for m in found for p in m.parameters())


def test_so_do_a_user_s_own_term_and_scaling(traced: Any) -> None:
    class Halved(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x / 2

    def own(trace: Any) -> dict[str, Tensor]:
        return {"own": trace.latents["z"].value.square().sum(-1)}

    found, rows = [], Host(images().astype(np.float32) / 255, torch.device("cpu"))
    for way in (False, True):
        model = copy.deepcopy(trained(compile=False).model_)
        made = traced(way)
        settings = sv.Training(steps=12, batch_size=50, verbose=0, device="cpu")
        fit(model, Objective(nll, kl, own), rows, settings, prepare=Halved())
        assert [graph.calls for graph in made] == [12] * way
        found.append(model.state_dict())
    assert all(torch.equal(found[0][k], found[1][k]) for k in found[0])


def test_runs_that_are_not_to_be_compiled_are_not_traced(traced: Any) -> None:
    made = traced(True)
    trained(compile=False)
    assert not made


def test_recurrent_nets_are_not_traced(traced: Any) -> None:
    """Their graphs would have some twenty operations a position."""
    made = traced(True)
    text = sv.VAE(4, hidden=(8,), text=sv.Text(), training=sv.Training(steps=3, verbose=0, device="cpu"))
    text.fit([f"word{i % 7} and word{i % 5}" for i in range(60)])
    assert not made
    assert not repeatable([text.model_])
    assert not repeatable([nn.GRUCell(3, 2)])


def test_short_runs_are_not_worth_it(traced: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = traced(True)
    monkeypatch.setattr(accelerate, "LONG", 13)
    trained()
    assert not made
    trained(steps=13)
    assert len(made) == 1


def test_a_resumed_run_goes_on_as_it_began(traced: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """However few steps are left: what counts is how long the run is."""
    made = traced(True)
    monkeypatch.setattr(accelerate, "LONG", 12)
    whole = trained()

    def stop(row: Any) -> None:
        if row["step"] == 8:
            raise RuntimeError("the power is gone")

    run = {"folder": str(tmp_path), "checkpoint_every": 4}
    est = sv.VSC(8, hidden=(16,), training=sv.Training(steps=12, batch_size=50, report_every=4, verbose=0, **run))
    with pytest.raises(RuntimeError, match="the power is gone"):
        est.fit(images(), watch=stop)
    est.set_params(training__resume=True).fit(images())
    assert [graph.calls for graph in made] == [12, 8, 8]
    assert all(torch.equal(a, b) for a, b in zip(whole.model_.parameters(), est.model_.parameters(), strict=True))


def test_fits_in_threads_leave_the_process_as_it_was(traced: Any) -> None:
    """Who traces changes what modules do when they are called: one at a time, and it is put back."""
    made, before = traced(True), (nn.Module.__call__, nn.Module.__getattr__, list(warnings.filters))
    with ThreadPoolExecutor(3) as pool:
        fits = list(pool.map(lambda _: trained(), range(6)))
    assert len(made) == 6
    assert (nn.Module.__call__, nn.Module.__getattr__, list(warnings.filters)) == before
    for other in fits[1:]:
        same = zip(fits[0].model_.parameters(), other.model_.parameters(), strict=True)
        assert all(torch.equal(a, b) for a, b in same)


def noise() -> Tape:
    return Tape(0, torch.device("cpu"))


def test_gradients_have_memory_of_their_own() -> None:
    """Two weights that are added have one gradient, and a mean has one number in many places: neither is left so."""
    pair = nn.ParameterList([torch.ones(3), torch.zeros(3), torch.ones(3)])

    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        loss = ((pair[0] + pair[1]) * x).sum() + pair[2].sum()
        return loss, loss.detach()

    graph = Graph(function, [pair], list(pair), noise(), torch.zeros(3))
    x = torch.tensor([1.0, 2.0, 3.0])
    terms, (a, b, c) = graph(x)
    assert terms.item() == 9.0
    assert torch.equal(a, x)
    assert torch.equal(b, x)
    assert torch.equal(c, torch.ones(3))
    assert c.is_contiguous()
    assert len({t.untyped_storage().data_ptr() for t in (a, b, c, x)}) == 4


class Given(torch.autograd.Function):
    """(p x) summed, whose gradient by p is x itself and no copy."""

    @staticmethod
    def forward(ctx: Any, p: Tensor, x: Tensor) -> Tensor:
        ctx.x = x
        return (p * x).sum()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return ctx.x, None


def test_a_gradient_is_no_part_of_the_batch() -> None:
    weight, x = nn.ParameterList([torch.ones(3)]), torch.tensor([1.0, 2.0, 3.0])

    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        loss: Tensor = Given.apply(weight[0], x)  # type: ignore[no-untyped-call]
        return loss, loss.detach()

    _, (gradient,) = Graph(function, [weight], list(weight), noise(), torch.zeros(3))(x)
    assert torch.equal(gradient, x)
    assert gradient.data_ptr() != x.data_ptr()


def test_a_gradient_lies_in_memory_as_its_weight_does() -> None:
    """Fused optimisers go through both from one end to the other."""
    weight = nn.ParameterList([torch.randn(3, 2).t()])
    graph = Graph(lambda x: ((weight[0] @ x).sum(), x.sum()), [weight], list(weight), noise(), torch.zeros(3))
    _, (gradient,) = graph(torch.arange(3.0))
    assert gradient.stride() == weight[0].stride() == (1, 2)
    assert torch.equal(gradient, torch.arange(3.0).expand(2, 3))


def test_a_weight_that_is_not_used_has_no_gradient() -> None:
    pair = nn.ParameterList([torch.ones(3), torch.zeros(3)])
    graph = Graph(lambda x: ((pair[0] * x).sum(), x.sum()), [pair], list(pair), noise(), torch.zeros(3))
    assert graph(torch.ones(3))[1][1] is None


def test_what_a_step_reads_is_read_anew_at_every_step() -> None:
    weight, knob, tape = nn.ParameterList([torch.ones(2)]), nn.BatchNorm1d(2), noise()
    tape.normal(torch.zeros(2))
    tape.rewind()

    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        loss = (weight[0] * x * knob.running_mean + tape.normal(x)).sum()
        return loss, loss.detach()

    graph = Graph(function, [weight, knob], list(weight), tape, torch.zeros(2))
    assert graph(torch.ones(2))[0].item() == 0
    knob.running_mean.fill_(3.0)
    tape.normals[0].fill_(0.5)
    with torch.no_grad():
        weight[0].fill_(2.0)
    terms, gradients = graph(torch.ones(2))
    assert terms.item() == 2 * (2 * 3 + 0.5)
    assert torch.equal(gradients[0], torch.full((2,), 3.0))


def test_a_tensor_from_elsewhere_is_an_error() -> None:
    """It would be read once and never again."""
    weight, hidden = nn.ParameterList([torch.ones(2)]), torch.ones(2)
    with pytest.raises(Exception, match="convert all Tensors to FakeTensors"):
        Graph(lambda x: ((weight[0] * hidden * x).sum(), x.sum()), [weight], list(weight), noise(), torch.zeros(2))
    with pytest.raises(ValueError, match="weights must be parameters of the parts"):
        Graph(lambda x: (x.sum(), x.sum()), [weight], [nn.Parameter(hidden)], noise(), torch.zeros(2))


@pytest.mark.parametrize(
    ("error", "shown"),
    [(RuntimeError("no paper\nto write on"), "RuntimeError: no paper"), (AssertionError(), "AssertionError")],
)
def test_a_trace_that_fails_is_said_and_done_without(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], error: Exception, shown: str
) -> None:
    def no_trace(*args: Any) -> None:
        raise error

    eager = trained()
    monkeypatch.setattr(accelerate, "LONG", 1)
    monkeypatch.setattr(accelerate, "Graph", no_trace)
    est = trained(verbose=1)
    assert f"tracing the step failed ({shown}); going on without." in capfd.readouterr().err
    assert all(torch.equal(a, b) for a, b in zip(eager.model_.parameters(), est.model_.parameters(), strict=True))


def test_a_layer_that_defies_tracing_is_left_as_it_was(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A mean over all batches so far divides by a number that Python reads from a tensor."""
    found = []
    for long in (10**9, 1):
        monkeypatch.setattr(accelerate, "LONG", long)
        torch.manual_seed(0)
        own = nn.Sequential(nn.Linear(64, 16), nn.BatchNorm1d(16, momentum=None))
        found.append(trained(own={"encoder": own}, verbose=1).model_.state_dict())
    assert "tracing the step failed (" in capfd.readouterr().err
    assert all(torch.equal(found[0][k], found[1][k]) for k in found[0])
