"""What must hold on a CUDA device. Run with `-m gpu` on a machine that has one."""

from __future__ import annotations

import numpy as np
import pytest
import test_feeds as feeds
import torch

import sparsevae as sv
from sparsevae.inputs.ragged import Ragged
from sparsevae.models import REGISTRY
from sparsevae.sampling.gradients import ESTIMATORS
from sparsevae.training.accelerate import Acceleration

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.filterwarnings("ignore::sparsevae.SparsityWarning"),
]


def images(n: int = 3000, d: int = 196) -> np.ndarray:
    rng = np.random.default_rng(0)
    basis = rng.random((12, d)) ** 4
    return np.clip(255 * (rng.random((n, 12)) < 0.2) @ basis, 0, 255).astype(np.uint8)


def weights(est: sv.SparseCoder) -> dict[str, torch.Tensor]:
    return {k: v.cpu() for k, v in est.model_.state_dict().items()}


def assert_same(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> None:
    """To the bit."""
    far = {k: float((found[k] - v).abs().max()) for k, v in wanted.items() if not torch.equal(found[k], v)}
    assert far == {}


def take(patch: pytest.MonkeyPatch, way: str) -> None:
    """Have steps taken eagerly, or by what was captured, whatever stands in the way of that."""
    if way == "eager":
        patch.setattr(Acceleration, "start", lambda self: None)
    else:
        patch.setattr(
            Acceleration, "attempt", lambda self, what, action: (s := self.run.state(), action(), self.run.load(s))
        )


def trained(
    monkeypatch: pytest.MonkeyPatch,
    way: str,
    model: type[sv.SparseCoder] = sv.VSC,
    own: object = None,
    **settings: object,
) -> sv.SparseCoder:
    """A short run, taken eagerly or as a captured graph (with the step compiled first)."""
    with monkeypatch.context() as patch:
        take(patch, way)
        run = {"steps": 120, "batch_size": 100, "verbose": 0, "device": "cuda", "compile": way == "compiled"}
        training = sv.Training(**run | settings)
        side = 28 if own else 14  # the published stacks take 28 x 28 pixels
        return model(40, hidden=(128,), training=training, **(own or {})).fit(images(d=side**2))


@pytest.mark.parametrize("settings", [{}, {"n_samples": 3, "clip_norm": 1.0, "binarise": True, "kl_warmup": 50}])
def test_a_captured_step_equals_an_eager_one_fed_the_same_noise(monkeypatch, settings):
    eager, captured = (weights(trained(monkeypatch, how, **settings)) for how in ("eager", "captured"))
    assert_same(captured, eager)


def test_a_compiled_and_captured_step_stays_close_to_an_eager_one(monkeypatch):
    eager, compiled = (trained(monkeypatch, way, tf32=False) for way in ("eager", "compiled"))
    for term in ("loss", "kl_z"):
        np.testing.assert_allclose(compiled.history_.column(term), eager.history_.column(term), rtol=2e-3)


def test_captured_runs_repeat_bit_for_bit(monkeypatch):
    one, two = (weights(trained(monkeypatch, "captured")) for _ in range(2))
    assert all(torch.equal(one[k], two[k]) for k in one)


@pytest.mark.parametrize("model", REGISTRY.values(), ids=REGISTRY)
def test_every_model_is_captured_and_equals_its_eager_run(monkeypatch, model):
    eager, captured = (weights(trained(monkeypatch, how, model)) for how in ("eager", "captured"))
    assert_same(captured, eager)


def test_layers_that_write_to_their_buffers_are_captured(monkeypatch):
    """torch does not say that a batch norm changes its running statistics."""
    found = []
    for how in ("eager", "captured", "captured"):
        torch.manual_seed(0)
        norm = torch.nn.InstanceNorm1d(8, track_running_stats=True)
        own = torch.nn.Sequential(
            torch.nn.Linear(784, 64), torch.nn.Unflatten(1, (8, 8)), norm, torch.nn.Flatten(), torch.nn.ReLU()
        )
        found.append(weights(trained(monkeypatch, how, own={"encoder": own})))
    eager, one, two = found
    assert any("running_mean" in name for name in eager)
    assert_same(one, eager)
    assert_same(one, two)


@pytest.mark.parametrize("gradient", ESTIMATORS)
def test_every_gradient_through_discrete_draws_is_captured_and_equals_its_eager_run(monkeypatch, gradient):
    """The hooks of the normalised ones and the slopes that grow are part of the graph."""
    own = {"gradient": gradient}
    eager, captured = (weights(trained(monkeypatch, how, sv.DiscreteVAE, own)) for how in ("eager", "captured"))
    assert_same(captured, eager)


@pytest.mark.parametrize("network", ["conv", "asperti"])
def test_convolutions_are_captured_repeat_and_score_alike_in_any_order(monkeypatch, network):
    own, X = {"network": network}, images(600, 784)
    eager, one, two = (trained(monkeypatch, how, own=own) for how in ("eager", "captured", "captured"))
    assert_same(weights(one), weights(eager))
    assert_same(weights(one), weights(two))
    order = np.random.default_rng(1).permutation(len(X))
    assert np.array_equal(one.score_samples(X[order]), one.score_samples(X)[order])
    assert (one.transform(X[order]) != one.transform(X)[order]).nnz == 0


@pytest.mark.parametrize("network", ["conv", "asperti"])
def test_convolutions_compile(monkeypatch, network):
    """Over the first steps, before rounding grows: a gate that flips sends two runs apart for good."""
    short = {"steps": 20, "report_every": 1, "tf32": False}
    eager, compiled = (trained(monkeypatch, way, own={"network": network}, **short) for way in ("eager", "compiled"))
    np.testing.assert_allclose(compiled.history_.column("loss"), eager.history_.column("loss"), rtol=2e-3)


def test_data_too_large_for_the_device_stream_from_the_host(monkeypatch):
    resident = weights(trained(monkeypatch, "captured"))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device=None: (0, 2**37))  # none of it free
    streamed = weights(trained(monkeypatch, "captured"))
    for name, value in resident.items():
        torch.testing.assert_close(streamed[name], value, rtol=0, atol=1e-6, msg=name)


def test_codes_and_scores_do_not_depend_on_order_or_batching(monkeypatch):
    est, X = trained(monkeypatch, "captured"), images()
    order = np.random.default_rng(1).permutation(len(X))
    Z, scores = est.transform(X), est.score_samples(X)
    assert (est.transform(X[order]) != Z[order]).nnz == 0
    assert np.array_equal(est.score_samples(X[order]), scores[order])
    rows = [est.transform(X[i : i + 1]) for i in range(200)]
    assert all((row != Z[i]).nnz == 0 for i, row in enumerate(rows))
    assert np.array_equal(np.concatenate([est.score_samples(X[i : i + 1]) for i in range(50)]), scores[:50])


def test_a_model_trained_on_a_gpu_loads_on_a_cpu(monkeypatch, tmp_path):
    est, X = trained(monkeypatch, "captured"), images()
    est.save(tmp_path / "model")
    loaded = sv.load(tmp_path / "model")
    assert loaded.model_.prior.loc.device.type == "cpu"
    # Matrix products of the two devices differ in the last bits, which may flip a gate that sits at 1/2.
    agree = (loaded.transform(X) != 0).toarray() == (est.transform(X) != 0).toarray()
    assert agree.mean() > 0.999


def test_resuming_on_a_gpu_continues_the_run(monkeypatch, tmp_path):
    whole = weights(trained(monkeypatch, "captured"))
    from sparsevae.storage import checkpoint

    save, saved = checkpoint.RunFolder.save, []

    def stop_after_one(self, state, good):
        save(self, state, good)
        saved.append(state.meta["step"])
        if len(saved) == 1:
            raise RuntimeError("killed")

    monkeypatch.setattr(checkpoint.RunFolder, "save", stop_after_one)
    files = {"folder": str(tmp_path / "run"), "checkpoint_every": 50}
    with pytest.raises(RuntimeError, match="killed"):
        trained(monkeypatch, "captured", **files)
    resumed = weights(trained(monkeypatch, "captured", resume=True, **files))
    for name, value in whole.items():
        torch.testing.assert_close(resumed[name], value, rtol=0, atol=1e-6, msg=name)


# Rows of several widths, and bfloat16.


def written(monkeypatch: pytest.MonkeyPatch, way: str, **settings: object) -> tuple[dict[str, torch.Tensor], list]:
    """Weights and losses of a short run on sentences of three widths."""
    with monkeypatch.context() as patch:
        take(patch, way)
        rows = feeds.ragged(device=torch.device("cuda"))
        run = {"steps": 60, "compile": way == "compiled", "tf32": False}
        model, history = feeds.trained(rows, model=feeds.model_class().cuda(), **run | settings)
        return {k: v.cpu() for k, v in model.state_dict().items()}, [row["loss"] for row in history]


@pytest.mark.parametrize("resident", [True, False])
def test_captured_steps_of_several_widths_equal_eager_ones(monkeypatch, resident):
    if not resident:
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device=None: (0, 2**37))  # none of it free
    assert feeds.ragged(device=torch.device("cuda")).static == resident
    (eager, losses), (captured, found) = (written(monkeypatch, way) for way in ("eager", "captured"))
    assert_same(captured, eager)
    np.testing.assert_allclose(found, losses, rtol=1e-5)


def test_compiled_and_captured_steps_of_several_widths_stay_close_to_eager_ones(monkeypatch):
    (_, eager), (_, compiled) = (written(monkeypatch, way) for way in ("eager", "compiled"))
    np.testing.assert_allclose(compiled, eager, rtol=2e-3)


def test_rows_of_several_widths_are_resident_in_the_smallest_type(monkeypatch):
    X, device = feeds.X.astype(np.int64), torch.device("cuda")
    for top, dtype in ((0, torch.int16), (2**15 - 1, torch.int16), (2**15, torch.int32), (2**24 - 1, torch.int32)):
        X[0, 0] = max(top, 2)
        rows = Ragged(X, feeds.LENGTHS, feeds.WIDTHS, device)
        assert rows.data.dtype == dtype
        for part, items in rows.parts(torch.arange(150, device=device), 16):
            assert part.data.untyped_storage().data_ptr() == rows.data.untyped_storage().data_ptr()
            assert np.array_equal(part.take(items).cpu().numpy(), X[items.cpu().numpy(), : part.shape[1]])


@pytest.mark.parametrize("way", ["eager", "captured"])
def test_bf16_rounds_products_and_hardly_moves_the_losses(monkeypatch, way):
    (_, plain), (rounded, losses) = (written(monkeypatch, way, bf16=bf16) for bf16 in (False, True))
    np.testing.assert_allclose(losses, plain, rtol=0.02)
    assert losses != plain
    assert {v.dtype for v in rounded.values()} == {torch.float32}


def test_a_captured_bf16_step_equals_an_eager_one(monkeypatch):
    """A cast of the weights that the graph kept would be of the first step's."""
    (eager, _), (captured, _) = (written(monkeypatch, way, bf16=True) for way in ("eager", "captured"))
    for name, value in eager.items():
        torch.testing.assert_close(captured[name], value, rtol=0, atol=1e-4, msg=name)


def test_bf16_serves_dense_models_too(monkeypatch):
    own = {"likelihood": "bernoulli"}
    plain, rounded = (trained(monkeypatch, "captured", sv.VAE, own=own, bf16=bf16) for bf16 in (False, True))
    np.testing.assert_allclose(rounded.history_.column("loss"), plain.history_.column("loss"), rtol=0.02)
    assert {v.dtype for v in weights(rounded).values()} == {torch.float32}
