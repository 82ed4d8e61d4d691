"""Claims about batches of one width each: rows in parts, a plan of feeds, and a run that only padding tells apart."""

from __future__ import annotations

import math
from collections import Counter
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import sparsevae as sv
from sparsevae.inputs.batch import Batch, Examples
from sparsevae.inputs.ragged import Ragged
from sparsevae.inputs.rows import Host, Rows, parts, place
from sparsevae.inputs.stats import fingerprint
from sparsevae.latent.model import LatentModel, Observed, Site, Trace
from sparsevae.latent.objective import Objective, kl, nll
from sparsevae.latent.posteriors import GaussianPosterior
from sparsevae.latent.priors import StandardNormal
from sparsevae.likelihoods.tokens import TokenData
from sparsevae.networks.dense import initialise
from sparsevae.networks.recurrent import Embedding, Projection, Reader, Writer
from sparsevae.sampling.draw import Draw
from sparsevae.text.ids import EOS, PAD
from sparsevae.text.widths import choose_widths
from sparsevae.training.accelerate import Acceleration
from sparsevae.training.feeds import Feed, FeedSchedule, Order
from sparsevae.training.loop import fit
from sparsevae.training.modes import precision
from sparsevae.training.step import Run
from tests.distributions.test_tokens import check_sentences

pytestmark = pytest.mark.filterwarnings("ignore::sparsevae.exceptions.SparsityWarning")
CPU = torch.device("cpu")
WORDS, WIDTHS = 9, (4, 8, 16)


def sentences(n: int = 150, width: int = 16, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Word numbers (n, width), EOS and padding, and the length of each row; most are short."""
    rng = np.random.default_rng(seed)
    lengths = np.minimum(1 + rng.geometric(0.2, n), width)
    X = rng.integers(EOS + 1, WORDS, (n, width))
    X[np.arange(n), lengths - 1] = EOS
    X[np.arange(width) >= lengths[:, None]] = PAD
    check_sentences(torch.from_numpy(X), WORDS)
    return X, lengths


X, LENGTHS = sentences()


def ragged(widths: tuple[int, ...] = WIDTHS, cls: type[Ragged] = Ragged, device: torch.device = CPU) -> Ragged:
    return cls(X, LENGTHS, widths, device)


class Wide(Ragged):
    """The same parts, with all their padding."""

    def parts(self, items: Tensor, least: int) -> list[tuple[Rows, Tensor]]:
        return [(self, own) for _, own in super().parts(items, least)]


class TwoSites(LatentModel):
    """A sentence is read into z, and written again by one who hears z beside every word."""

    def trace(self, batch: Batch, raw: Tensor, draw: Draw, copies: int = 1) -> Trace:
        x, q = batch.copies(copies).x, self.posterior_from(raw, copies)
        z = draw(q)
        written = self.likelihood(self.decoder(z, x))
        return Trace({"z": Site(q, self.prior(x, self.encode), z)}, {"x": Observed(written, x)}, draw.hard)


class Noisy(TwoSites):
    """Has noise for every column."""

    def trace(self, batch: Batch, raw: Tensor, draw: Draw, copies: int = 1) -> Trace:
        noisy = batch.map(lambda x: (x + (draw.noise.uniform(x) < 0)).float())
        return super().trace(noisy, raw, draw, copies)


def model_class(cls: type[TwoSites] = TwoSites, units: int = 3, hidden: int = 8) -> TwoSites:
    words, head, projection = Embedding(WORDS, 5), Projection(hidden, 2 * units), Projection(hidden, WORDS)
    reader = nn.Sequential(Reader(words, hidden), head)
    model = cls(reader, GaussianPosterior(), Writer(words, units, hidden), TokenData(projection), StandardNormal(units))
    initialise(model, torch.Generator().manual_seed(0))
    return model


def objective() -> Objective:
    return Objective(nll, kl, weights={"kl_z": 0.5})


def training(**changes: Any) -> sv.Training:
    chosen = {"steps": 40, "batch_size": 16, "learning_rate": 1e-2, "report_every": 5, "device": "cpu", "verbose": 0}
    return sv.Training(**chosen | changes)


def trained(rows: Rows, *, model: TwoSites | None = None, **changes: Any) -> tuple[TwoSites, list[dict[str, Any]]]:
    model = model_class() if model is None else model
    history, _ = fit(model, objective().to(rows.device), rows, training(**changes))
    return model, list(history)


def run_of(rows: Rows, *, model: TwoSites | None = None, total: int = 40, **changes: Any) -> Run:
    items = torch.arange(rows.shape[0])
    model = model_class() if model is None else model
    return Run(model, objective(), Examples(rows), items, training(**changes), {}, nn.Identity(), total)


def same(a: nn.Module, b: nn.Module) -> bool:
    return all(torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters(), strict=True))


# Rows in parts.


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.uint16, np.int32, np.int64, np.uint64])
def test_ragged_rows_are_the_rows_they_are_made_of(dtype: Any) -> None:
    rows, index = Ragged(X.astype(dtype), LENGTHS, WIDTHS, CPU), torch.tensor([3, 149, 3, 0])
    assert rows.shape == X.shape
    assert rows.take(index).dtype == torch.float32
    assert np.array_equal(rows.take(index).numpy(), X[index])
    assert fingerprint(rows) == fingerprint(place(X, CPU, resident=False))
    assert not rows.static  # read from host memory


@settings(max_examples=150, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 30), min_size=1, max_size=60),
    cuts=st.sets(st.integers(1, 29), max_size=4),
    least=st.integers(1, 20),
    held_out=st.integers(0, 20),
)
def test_every_item_is_in_one_part_that_holds_it_and_can_fill_a_batch(
    lengths: list[int], cuts: set[int], least: int, held_out: int
) -> None:
    n, widths = len(lengths), (*sorted(cuts), 30)
    items = torch.arange(min(held_out, n - 1), n)
    wanted = np.where(np.arange(32) < np.array(lengths)[:, None], np.arange(1, 33), 0)
    found = Ragged(wanted, lengths, widths, CPU).parts(items, min(least, len(items)))
    assert sorted(torch.cat([own for _, own in found]).tolist()) == items.tolist()
    assert len(found) == 1 or min(len(own) for _, own in found) >= least
    assert [rows.shape[1] for rows, _ in found] == sorted({rows.shape[1] for rows, _ in found})
    for rows, own in found:
        width, mine = rows.shape[1], own.tolist()
        longest = max(lengths[i] for i in mine)
        assert width == min(w for w in widths if w >= longest)
        assert mine == sorted(mine)  # in the order they came in
        assert np.array_equal(rows.take(own).numpy(), wanted[mine, :width])
        assert (wanted[mine, width:] == 0).all()  # padding alone is cut


def test_groups_that_are_too_small_move_on_to_the_next_width() -> None:
    lengths = [2] * 3 + [5] * 10 + [9] * 20
    found = Ragged(np.ones((33, 9), int), lengths, (2, 5, 9), CPU).parts(torch.arange(33), 8)
    assert [(rows.shape[1], len(own)) for rows, own in found] == [(5, 13), (9, 20)]


def test_one_very_long_row_makes_one_batch_of_others_wide_and_no_more() -> None:
    lengths = np.array([*([4] * 40), *range(5, 45), 1000])
    rows = Ragged(np.ones((81, 1000), int), lengths, (4, 44, 1000), CPU)
    narrow, middle, wide = rows.parts(torch.arange(81), 16)
    assert [r.shape[1] for r, _ in (narrow, middle, wide)] == [4, 44, 1000]
    assert len(wide[1]) == 16
    assert sorted(lengths[wide[1]].tolist()) == [*range(30, 45), 1000]  # the longest of the others
    assert len(middle[1]) == 25
    # Had the middle too few left to fill a batch, all of it would go.
    assert [len(own) for _, own in rows.parts(torch.arange(81), 25)] == [40, 41]


def test_a_part_is_a_view_and_not_a_copy() -> None:
    rows = ragged()
    for part, _ in rows.parts(torch.arange(150), 16):
        assert isinstance(part, Ragged)
        assert np.shares_memory(part.data, rows.data)


def test_all_other_rows_are_one_part() -> None:
    rows, items = Host(X, CPU), torch.arange(7)
    [(found, own)] = parts(rows, items, 3)
    assert found is rows
    assert own is items


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"X": X.astype(float)}, "X must be integers of shape"),
        ({"X": X[0]}, "X must be integers of shape"),
        ({"X": X[:0]}, "X must be integers of shape"),
        ({"X": X - 1}, "X must lie in 0..16777215, which float32 holds exactly; got -1 to 7"),
        ({"X": X + 2**24}, "X must lie in 0..16777215"),
        ({"lengths": LENGTHS[1:]}, "lengths must be 150 integers, one per row"),
        ({"lengths": LENGTHS * 1.5}, "lengths must be 150 integers"),
        ({"lengths": LENGTHS - LENGTHS.min()}, r"lengths must lie in 1..16; got 0 to"),
        ({"lengths": LENGTHS + 1}, r"lengths must lie in 1..16; got 3 to 17"),
        ({"widths": ()}, "widths must rise to 16 or more"),
        ({"widths": (8, 4, 16)}, "widths must rise to 16 or more"),
        ({"widths": (0, 16)}, "widths must rise to 16 or more"),
        ({"widths": (4, 15)}, r"the longest row; got \(4, 15\)"),
    ],
)
def test_rows_that_cannot_be_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Ragged(**{"X": X, "lengths": LENGTHS, "widths": WIDTHS, "device": CPU} | changes)


# The plan.


@settings(max_examples=100, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 1000), min_size=1, max_size=6),
    total=st.integers(1, 300),
    seed=st.integers(-(2**40), 2**40),
)
def test_every_feed_has_its_share_of_the_steps(sizes: list[int], total: int, seed: int) -> None:
    plan = FeedSchedule(sizes, total, seed)
    served = [plan(t) for t in range(total)]
    for k, size in enumerate(sizes):
        turns = [turn for feed, turn in served if feed == k]
        assert turns == list(range(len(turns)))  # each of its steps once, in order
        assert abs(len(turns) - total * size / sum(sizes)) < 1
    again = FeedSchedule(sizes, total, seed)  # a resumed run
    assert [again(t) for t in range(total)] == served


def test_the_largest_remainders_are_rounded_up() -> None:
    shares = Counter(FeedSchedule([46, 33, 21], 10, 0)(t)[0] for t in range(10))  # 4.6, 3.3 and 2.1
    assert shares == {0: 5, 1: 3, 2: 2}


def test_the_order_of_feeds_is_random_and_the_seed_s_own() -> None:
    orders = [[FeedSchedule([50, 50], 100, seed)(t)[0] for t in range(100)] for seed in range(3)]
    assert len({tuple(order) for order in orders}) == 3
    for order in orders:
        changes = sum(a != b for a, b in pairwise(order))
        assert abs(changes - 50) < 4 * 5  # as of a fair coin


def test_feeds_of_one_size_have_orders_of_their_own() -> None:
    items = torch.arange(50)
    orders = {tuple(Order(items, 50, 0, number)(t).tolist()) for number in range(3) for t in range(3)}
    assert len(orders) == 9


# A run.


def test_one_feed_is_the_run_as_it_was_without_feeds() -> None:
    run = run_of(ragged((16,)))
    order = Order(torch.arange(150), 16, 0)
    assert [run.plan(t) for t in range(40)] == [(0, t) for t in range(40)]
    assert all(torch.equal(run.order(t), order(t)) for t in range(40))
    (one, history), (host, expected) = trained(ragged((16,)), steps=20), trained(Host(X, CPU), steps=20)
    assert history == expected
    assert same(one, host)


def test_rows_of_one_part_are_served_equally_often_and_those_of_two_nearly() -> None:
    total, size = 60, 16
    run = run_of(ragged(), total=total)
    assert len(run.feeds) == 3
    assert run.size == size
    seen = torch.cat([run.order(t) for t in range(total)]).bincount(minlength=150)
    served = Counter(run.plan(t)[0] for t in range(total))
    for k, feed in enumerate(run.feeds):
        n, mean = len(feed.order.items), served[k] * size / len(feed.order.items)
        assert set(seen[feed.order.items].tolist()) <= {math.floor(mean), math.ceil(mean)}
        assert abs(mean - total * size / 150) < size / n  # shares are whole steps


def test_a_batch_has_the_width_of_its_feed() -> None:
    run = run_of(ragged())
    widths = set()
    for t in range(40):
        number, turn = run.plan(t)
        feed = run.feeds[number]
        feed.load(turn)
        x, rows = feed.read().x, X[run.order(t)]
        width = x.shape[1]
        widths.add(width)
        assert np.array_equal(x.numpy(), rows[:, :width])
        assert (rows[:, width:] == PAD).all()
    assert widths == set(WIDTHS)


def test_a_batch_is_never_larger_than_the_rows_there_are() -> None:
    run = run_of(ragged(), batch_size=1000)
    assert run.size == 150
    assert [feed.batch.x.shape for feed in run.feeds] == [(150, 16)]


def test_padding_never_changes_the_loss_nor_what_is_learned() -> None:
    """The same batches with and without most of their padding, in float64: only the rounding of sums differs."""
    found = {}
    for name, cls in (("narrow", Ragged), ("wide", Wide)):
        found[name] = trained(ragged(cls=cls), model=model_class().double(), steps=30)
    narrow, wide = found["narrow"], found["wide"]
    for a, b in zip(narrow[1], wide[1], strict=True):
        assert a == pytest.approx(b, rel=1e-6)  # histories are kept in float32
    for p, q in zip(narrow[0].parameters(), wide[0].parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=0, atol=1e-11)
    start = model_class().double()
    assert all(not torch.equal(p, q) for p, q in zip(start.parameters(), wide[0].parameters(), strict=True))


def test_the_validation_loss_does_not_depend_on_widths() -> None:
    items = torch.arange(0, 150, 3)
    losses = {run_of(ragged(widths)).validate(items) for widths in (WIDTHS, (16,), choose_widths(LENGTHS, 2))}
    assert len(losses) == 1


def test_the_epoch_counts_rows_of_all_widths() -> None:
    _, history = trained(ragged(), validation_fraction=0.2, steps=30)
    assert [row["epoch"] for row in history] == [row["step"] * 16 / 120 for row in history]


class KilledError(Exception):
    pass


@pytest.mark.parametrize("kills", [(3,), (17,), (6, 10, 19)])
def test_a_killed_run_of_several_widths_resumes_bit_by_bit(
    kills: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = {"steps": 20, "checkpoint_every": 5, "validation_fraction": 0.2, "patience": 9, "clip_norm": 5.0}
    whole, history = trained(ragged(), folder=str(tmp_path / "whole"), **chosen)
    advance, parted = Run.advance, {"folder": str(tmp_path / "parts"), "resume": True, **chosen}
    for kill in kills:

        def die(self: Run, kill: int = kill) -> None:
            if self.step == kill:
                raise KilledError
            advance(self)

        with monkeypatch.context() as patch:
            patch.setattr(Run, "advance", die)
            with pytest.raises(KilledError):
                trained(ragged(), **parted)
    resumed, found = trained(ragged(), **parted)
    assert same(resumed, whole)
    assert found == history
    files = [(tmp_path / name / "checkpoint.safetensors").read_bytes() for name in ("whole", "parts")]
    assert files[0] == files[1]


@pytest.mark.parametrize(("cls", "changes"), [(Noisy, {}), (TwoSites, {"binarise": True})])
def test_noise_for_every_column_needs_one_width(cls: type[TwoSites], changes: dict[str, Any]) -> None:
    message = r"noise must have one shape.*\(16, 4\).* for rows of 4 and .*\(16, 8\).* for rows of 8 .*one width alone"
    with pytest.raises(ValueError, match=message):
        run_of(ragged(), model=model_class(cls), **changes)
    assert len(run_of(ragged((16,)), model=model_class(cls), **changes).feeds) == 1


def test_a_divergence_is_found_and_told_of_in_any_feed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of the middle width break: the report names a step that this feed serves."""
    run, measure = run_of(ragged()), Objective.measure

    def broken(self: Objective, trace: Trace) -> dict[str, Tensor]:
        terms = measure(self, trace)
        bad = float("nan") if not trace.hard and trace.observed["x"][1].shape[-1] == 8 else 1.0
        return {k: v * bad for k, v in terms.items()}

    monkeypatch.setattr(Objective, "measure", broken)
    with pytest.raises(sv.DivergenceError, match=r"'nll_x' was not finite at step \d+,") as caught:
        trained(ragged())
    bad = int(str(caught.value).split("at step ")[1].split(",")[0])
    assert run.feeds[run.plan(bad)[0]].batch.x.shape[1] == 8


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_compiled_run_of_several_widths_stays_close_to_an_eager_one(capfd: pytest.CaptureFixture[str]) -> None:
    (_, eager), (_, compiled) = (trained(ragged(), compile=way, verbose=1) for way in (False, True))
    assert "failed" not in capfd.readouterr().err
    assert [row["loss"] for row in compiled] == pytest.approx([row["loss"] for row in eager], rel=1e-3)


class Graph:
    """What a CUDA graph does, without CUDA: it remembers which step was taken while it was captured."""

    def __init__(self) -> None:
        self.replays = 0
        self.pool: object = None

    def replay(self) -> None:
        self.replays += 1


def test_every_width_has_a_graph_of_its_own_in_one_pool_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in for CUDA: what is captured, and which graph serves which step."""
    graphs: list[Graph] = []
    captured: list[int] = []
    inside: list[Graph] = []

    class capture:  # noqa: N801  it stands for torch.cuda.graph
        def __init__(self, graph: Graph, pool: object = None) -> None:
            graph.pool = pool
            graphs.append(graph)

        def __enter__(self) -> None:
            inside.append(graphs[-1])

        def __exit__(self, *error: object) -> None:
            inside.clear()

    stream = SimpleNamespace(wait_stream=lambda other: None)
    fakes = {"Stream": lambda: stream, "current_stream": lambda: stream, "stream": lambda s: nullcontext()}
    fakes |= {"CUDAGraph": Graph, "graph": capture, "graph_pool_handle": object}
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    eager = Run.take

    def watched(self: Run, feed: Feed) -> None:
        if inside:
            captured.append(feed.batch.x.shape[1])
        eager(self, feed)

    monkeypatch.setattr(Run, "take", watched)
    run = run_of(ragged())
    acceleration = Acceleration(run, pytest.fail)
    acceleration.attempt("capturing", acceleration._capture)
    assert captured == list(WIDTHS)
    assert len(graphs) == 3
    assert len({id(graph.pool) for graph in graphs}) == 1
    assert graphs[0].pool is not None
    assert run.step == 0
    assert same(run.model, model_class())  # warm-up and capture leave no trace
    for _ in range(40):
        run.advance()
    assert [graph.replays for graph in graphs] == [sum(run.plan(t)[0] == k for t in range(40)) for k in range(3)]


def test_where_one_graph_fails_every_width_goes_on_without(monkeypatch: pytest.MonkeyPatch) -> None:
    run, shown = run_of(ragged(), total=20), []

    def half() -> None:
        run.feeds[0].run = pytest.fail
        raise RuntimeError("out of memory\nat once")

    Acceleration(run, shown.append).attempt("capturing a CUDA graph of", half)
    assert shown == ["capturing a CUDA graph of the step failed (RuntimeError: out of memory); going on without."]
    for _ in range(20):
        run.advance()
    (model, _) = trained(ragged(), decay="cosine", steps=20)
    assert same(run.model, model)


# bfloat16.


def test_bf16_is_autocast_on_cuda_alone_and_keeps_no_casts(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(torch, "autocast", lambda *args, **kwargs: asked.append((args, kwargs)) or nullcontext())
    for device in ("cpu", "cuda"):
        for bf16 in (False, True):
            with precision(torch.device(device), bf16=bf16):
                pass
    assert asked == [(("cuda", torch.bfloat16), {"cache_enabled": False})]


def test_in_bfloat16_weights_moments_and_sums_stay_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the CPU's autocast, in the place of CUDA's: products are rounded, and the losses hardly feel it."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(200, 3)) @ rng.normal(size=(3, 10))

    def fitted(**changes: Any) -> tuple[Any, list[str]]:
        kinds: list[str] = []
        forward = nn.functional.linear

        def watched(*args: Any) -> Tensor:
            out = forward(*args)
            kinds.append(str(out.dtype))
            return out

        with monkeypatch.context() as patch:
            patch.setattr(nn.functional, "linear", watched)
            est = sv.VAE(4, hidden=(12,), training=training(**changes)).fit(rows)
        return est, kinds

    plain, _ = fitted()
    asked: list[bool] = []

    def on_the_cpu(device: torch.device, *, bf16: bool) -> Any:
        asked.append(bf16)
        return torch.autocast("cpu", torch.bfloat16, cache_enabled=False)

    monkeypatch.setattr("sparsevae.training.step.precision", on_the_cpu)
    rounded, kinds = fitted(bf16=True, validation_fraction=0.1)
    assert set(asked) == {True}
    assert set(kinds) == {"torch.bfloat16", "torch.float32"}  # steps, and what looks at the model between them
    rounded, _ = fitted(bf16=True)
    assert {p.dtype for p in rounded.model_.parameters()} == {torch.float32}
    assert {v.dtype for k, v in rounded.fitted_.moments.items() if "count" not in k} == {torch.float32}
    assert rounded.history_.column("loss") == pytest.approx(plain.history_.column("loss"), rel=0.02)
    assert rounded.history_.column("loss") != plain.history_.column("loss")


def test_bf16_is_part_of_what_a_run_is(tmp_path: Path) -> None:
    chosen = {"steps": 10, "folder": str(tmp_path / "run"), "report_every": 5}
    data = np.random.default_rng(0).normal(size=(50, 4))
    sv.VAE(2, hidden=(4,), training=training(**chosen)).fit(data)
    again = sv.VAE(2, hidden=(4,), training=training(**chosen, resume=True, bf16=True))
    with pytest.raises(ValueError, match=r"holds a different run .*bf16: False then, True now"):
        again.fit(data)
