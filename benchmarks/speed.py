"""Milliseconds per training step: our loop, a hand-written peer loop of the same model, and pythae's trainer.

The model is VSC 784-400-200-400-784 with a Gaussian likelihood of learned variance. Before every block of 100 steps of
a contender the peer loop takes one, so that noise of the machine affects both alike: a ratio is between two neighbours,
and what counts is the median of all ratios. A block is the whole loop, after a warm-up.

- ours: `sv.VSC(...).fit(X)` on uint8 rows, with schedules, checks for non-finite numbers, roll-back copies and a
  report (active units, non-zeros) every 100 steps: the beginning of a default run of 10,000 steps. A schedule reads the
  clock; set-up (statistics of the data, tracing, compiling, capturing) is shown apart.
- peer: plain PyTorch on float32 rows, with none of that except reading the loss every 100 steps.
- the matrix products of a step alone: what no loop of this model can be faster than, on this machine.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

import sparsevae as sv
from benchmarks import peers
from benchmarks.peers import BLOCK, FLOOR, Clock, HandVSC
from benchmarks.report import verdict, write_table
from sparsevae.sampling.draw import Draw
from sparsevae.threads import threads

HIDDEN, UNITS, ALPHA = 400, 200, 0.1
DEFAULT = 10_000  # steps of a run, of which the clock sees the first
PRODUCTS = "matrix products alone"
WORKERS = "peer: DataLoader, 2 workers, Adam"
PYTHAE = "pythae's VAE (no gates, no variance)"
VAE = "our VAE of pythae's shapes"


def images(n: int) -> tuple[np.ndarray[Any, Any], str]:
    """(n, 784) uint8: MNIST where $SPARSEVAE_DATA has it, else synthetic images, so that nothing is downloaded."""
    root = os.environ.get("SPARSEVAE_DATA")
    if root and (Path(root) / "mnist").is_dir():
        return np.asarray(sv.data.load("mnist").X)[:n], "MNIST"
    rng = np.random.default_rng(0)
    bumps = rng.standard_normal((32, 784)).astype(np.float32)
    X = np.empty((n, 784), np.uint8)
    for part in np.array_split(np.arange(n), max(1, n // 5000)):
        codes = rng.standard_normal((len(part), 32)).astype(np.float32) * (rng.random((len(part), 32)) < 0.2)
        X[part] = np.clip(128 * (codes @ bumps), 0, 255)
    return X, "synthetic images"


@contextlib.contextmanager
def precision(name: str) -> Iterator[None]:
    """Matrix products of float32 as torch names them: "high" is TF32 on CUDA, and makes no difference on a CPU."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(name)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


class _Fixed:
    """Noise that was drawn beforehand."""

    def __init__(self, eps: Tensor, u: Tensor) -> None:
        self.eps, self.u = eps, u

    def normal(self, like: Tensor) -> Tensor:
        return self.eps

    def uniform(self, like: Tensor) -> Tensor:
        return self.u


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """These runs are too short to be sparse."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sv.SparsityWarning)
        yield


def vsc(**more: Any) -> sv.VSC:
    """Ours, as the peer has it."""
    own = {"alpha": ALPHA, "likelihood": "gaussian", "variance_floor": FLOOR}
    own |= {"skip": False, "start": "random", "gate": "sigmoid"}
    return sv.VSC(UNITS, hidden=(HIDDEN,), **own, **more)


def same_model(X: np.ndarray[Any, Any], batch: int, device: torch.device) -> float:
    """Assert that ours and the peer have one loss and one gradient on the same weights, rows and noise.

    Returns the relative difference of the losses.
    """
    settings = sv.Training(steps=20, batch_size=batch, device=str(device), verbose=0, tf32=False)
    with quiet():
        est = vsc(training=settings).fit(X[: 10 * batch])
    gate: Any = est.model_.posterior.gate
    peer = HandVSC(X.shape[1], HIDDEN, UNITS, ALPHA, float(gate.sharpness)).to(device)
    own = list(est.model_.parameters())
    with torch.no_grad():
        for mine, theirs in zip(own, peer.parameters(), strict=True):
            theirs.copy_(mine)
    rows = torch.tensor(X[:batch], device=device).float()
    eps, u = torch.randn(batch, UNITS, device=device), torch.rand(batch, UNITS, device=device)
    with precision("highest"):
        ours, _ = est.fitted_.objective.to(device)(est.model_(est.scaling_(rows), Draw(_Fixed(eps, u), hard=False)))
        theirs = peer.loss(rows / 255, eps, u)
        both = torch.autograd.grad(ours, own), torch.autograd.grad(theirs, list(peer.parameters()))
    apart = max(float((a - b).norm() / a.norm()) for a, b in zip(*both, strict=True))
    difference = abs(ours.item() - theirs.item()) / abs(ours.item())
    if difference > 1e-4 or apart > 1e-3:
        raise AssertionError(f"not the same model: losses differ by {difference:.1e}, gradients by {apart:.1e}")
    return difference


class _Enough(Exception):  # noqa: N818  no error: the clock has seen all it wanted
    pass


class Ours:
    """One run of our loop through `fit`, up to the clock's last step; also notes how long all outside the window took.

    With `reseed` every run has a seed of its own, and with it an order of batches.
    """

    def __init__(self, est: sv.SparseCoder, X: Any, *, reseed: bool = False, **training: Any) -> None:
        self.est, self.X, self.reseed, self.training = est, X, reseed, training
        self.setup: list[float] = []

    def __call__(self, batch: int, clock: Clock) -> None:
        def tick(step: int, total: int) -> float:
            clock(step)
            if step == clock.last:
                raise _Enough
            return 1.0

        class Timed(type(self.est)):  # type: ignore[misc]
            def build(self, data: Any, weights: Any) -> Any:
                made = super().build(data, weights)
                return made._replace(schedules={**made.schedules, "kl_z": tick})

        settings = sv.Training(
            steps=DEFAULT,
            batch_size=batch,
            device=str(clock.device),
            seed=len(self.setup) if self.reseed else 0,
            verbose=0,
            **self.training,
        )
        start = time.perf_counter()
        with contextlib.suppress(_Enough):
            Timed(**self.est.get_params(deep=False) | {"training": settings}).fit(self.X)
        self.setup.append(clock.warm - start)


Contender = Callable[[int, Clock], None]
Stepper = Callable[[int], Iterator[None]]


class Times(NamedTuple):
    """Milliseconds a step in every block of a contender, and in the peer's block before it."""

    own: list[float]
    peer: list[float]

    @property
    def ratios(self) -> list[float]:
        return [b / a for a, b in zip(self.own, self.peer, strict=True)]


def contenders(X: np.ndarray[Any, Any], device: torch.device) -> tuple[Stepper, dict[str, Contender]]:
    """The peer loop, and everyone who is compared with it."""
    floats = torch.tensor(X).float() / 255
    resident = floats.to(device)

    def model() -> HandVSC:
        return HandVSC(X.shape[1], HIDDEN, UNITS, ALPHA).to(device)

    def loader(workers: int) -> Stepper:
        return lambda batch: peers.hand_steps(
            model(), peers.loader_batches(floats, batch, workers, device), fused=False
        )

    def by_steps(steps: Stepper) -> Contender:
        return lambda batch, clock: peers.loop(steps(batch), clock)

    found: dict[str, Contender] = {
        "ours": Ours(vsc(), X),
        "ours, compiled": Ours(vsc(), X, compile=True),
        WORKERS: by_steps(loader(2)),
        "peer: data on device, fused Adam": by_steps(
            lambda batch: peers.hand_steps(model(), peers.resident_batches(resident, batch), fused=True)
        ),
        PRODUCTS: by_steps(lambda batch: peers.products(model(), batch)),
    }
    if device.type == "cpu" and peers.has_pythae():
        found[PYTHAE] = lambda batch, clock: peers.pythae_loop(floats, HIDDEN, UNITS, batch, clock)
        found[VAE] = Ours(sv.VAE(UNITS, hidden=(HIDDEN,), likelihood="fixed-gaussian"), X)
    return loader(0), found


def race(
    peer: Stepper,
    field: dict[str, Contender],
    batch: int,
    rounds: int,
    warmup: int,
    steps: int,
    device: torch.device,
) -> dict[str, Times]:
    """Every contender in turn, round after round, each of its blocks next to one of the peer's."""
    times = {name: Times([], []) for name in field}
    beside = peer(batch)
    peers.loop(beside, Clock(0, warmup, device))
    for i in range(rounds):
        names = list(field)
        for name in names[i % len(names) :] + names[: i % len(names)]:  # everyone starts a round in turn
            before: list[float] = []

            def rest(before: list[float] = before) -> None:
                clock = Clock(0, min(BLOCK, steps), device)
                with torch.enable_grad():
                    peers.loop(beside, clock)
                before += clock.blocks

            clock = Clock(warmup, warmup + steps, device, rest)
            with quiet():
                field[name](batch, clock)
            times[name].own.extend(1e3 * seconds for seconds in clock.blocks)
            times[name].peer.extend(1e3 * seconds for seconds in before)
    return times


def run(device: torch.device, *, quick: bool, batches: list[int], rounds: int) -> dict[str, Any]:
    """The race, as a table with verdicts; returns all of it for the JSON file."""
    rounds, warmup, steps = (1, 5, 20) if quick else (rounds, 50, 600)
    X, source = images(2_000 if quick else 60_000)
    result: dict[str, Any] = {"data": f"{source}, {X.shape[0]} x {X.shape[1]}", "rounds": rounds, "steps": steps}
    with threads() as count, precision("high"):  # what our loop sets
        result["threads"] = count
        result["loss_difference"] = same_model(X, 100, device)
        print(f"Speed: VSC 784-{HIDDEN}-{UNITS}-{HIDDEN}-784, Gaussian with learned variance, on {result['data']}")
        print(f"{rounds} rounds of {steps} steps, {count} torch threads; ours keeps uint8 rows and ")
        print("scales them on the fly, peers hold float32. Loss of ours and peer on the same weights, rows and ")
        print(f"noise: equal to {result['loss_difference']:.0e} relative.")
        for batch in batches:
            peer, field = contenders(X, device)
            times = race(peer, field, batch, rounds, warmup, steps, device)
            result[f"batch {batch}"] = judge(field, times, batch, device)
    return result


def judge(field: dict[str, Contender], times: dict[str, Times], batch: int, device: torch.device) -> Any:
    """Print medians, ratios to the peer loop, and what became of the targets.

    The peer is the better of the two DataLoader loops: where two workers are faster than none, ratios are to those.
    """
    shift = max(1.0, statistics.median(times[WORKERS].ratios))
    rows, out = [], {}
    for name, (own, peer) in times.items():
        r = [ratio / shift for ratio in times[name].ratios]
        median = statistics.median(r)
        out[name] = {"ms": own, "peer_ms": peer, "median_ms": statistics.median(own), "times_peer": median, "ratios": r}
        contender = field[name]
        if isinstance(contender, Ours):
            out[name]["setup_s"] = contender.setup
        setup = f"{contender.setup[0]:.1f}" if isinstance(contender, Ours) else ""
        low, high = np.quantile(r, [0.1, 0.9])
        rows.append([name, f"{statistics.median(own):.2f}", f"{median:.2f}", f"{low:.2f} to {high:.2f}", setup])
    write_table(
        f"batch {batch}, {device.type}",
        ["contender", "ms a step", "times the peer", "8 of 10 ratios", "first set-up, s"],
        rows,
    )
    milliseconds = statistics.median(ms for t in times.values() for ms in t.peer) / shift
    workers = 2 if shift > 1 else 0
    print(f"The peer is the DataLoader loop with {workers} workers and Adam: {milliseconds:.2f} ms per step.")
    print(
        f"With no work but its matrix products a loop would be {out[PRODUCTS]['times_peer']:.2f} times as fast as it."
    )
    cpu = device.type == "cpu"
    verdicts = [verdict("ours, times the peer loop", 1.2 if cpu else 10.0, out["ours"]["times_peer"])]
    compiled = out["ours, compiled"]["times_peer"]
    verdicts.append(verdict("ours compiled, times the peer loop", 1.5 if cpu else 10.0, compiled))
    if PYTHAE in times:
        theirs = out[PYTHAE]["times_peer"]
        what = "our VSC, times pythae's VAE (which does 2/3 of the arithmetic)"
        verdicts.append(verdict(what, 1.0, out["ours"]["times_peer"] / theirs))
        verdicts.append(verdict("our VAE, times pythae's VAE (like for like)", 1.0, out[VAE]["times_peer"] / theirs))
    elif cpu:
        print("pythae is not installed here, so it was not measured (pip install pythae==0.1.2).")
    return {"contenders": out, "peer_workers": workers, "peer_ms": milliseconds, "verdicts": verdicts}
