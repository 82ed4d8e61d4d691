"""Sentences per second and peak memory of HSVAE: our loop, and a hand-written peer loop of the same model.

On CUDA the model has its paper's size (states of 512, 20,000 words, 32 units, batch 512, bfloat16), and is compared
with the paper's own time too: 165 s per epoch of 140,000 sentences on a TITAN RTX. On a CPU it is small. The memory of
each is measured in a run of its own; then they are timed side by side as in `speed`. Every round of ours has a seed,
and so widths of batches, of its own.

- ours: `sv.HSVAE(...).fit(texts)`. Batches of one width each, no wider than their longest sentence needs; logits
  a chunk of positions at a time.
- peer: plain PyTorch. Every batch is padded to 60 words and EOS, and the logits of all positions are in memory.

Sentences are DBpedia's where $SPARSEVAE_DATA has them, else synthetic ones of the same lengths.
"""

from __future__ import annotations

import gc
import os
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

import sparsevae as sv
from benchmarks import peers
from benchmarks.peers import Clock, HandHSVAE
from benchmarks.report import verdict, write_table
from benchmarks.speed import Contender, Ours, Stepper, Times, precision, quiet, race
from sparsevae.sampling.draw import Draw
from sparsevae.sampling.noise import Fresh
from sparsevae.text.vocabulary import Vocabulary
from sparsevae.threads import threads

PUBLISHED = 140_000 / 165  # sentences a second
MAX_WORDS = 60
GATES = {"alpha": 30.0, "beta": 30.0, "spike_scale": 0.0, "kl_z": 1.0, "kl_gamma": 1.0, "temperature": 0.5}
PEER = "peer: padded, all logits"


class Size(NamedTuple):
    """Of a model and its batches."""

    hidden: int
    words: int
    embedding: int
    units: int
    batch: int


PAPER = Size(hidden=512, words=20_000, embedding=256, units=32, batch=512)
SMALL = Size(hidden=128, words=5_000, embedding=64, units=16, batch=64)
TINY = Size(hidden=16, words=200, embedding=8, units=4, batch=16)


def sentences(n: int, words: int) -> tuple[list[str], str]:
    """Up to n texts of at most 60 words: DBpedia's where $SPARSEVAE_DATA has them, else synthetic ones.

    Synthetic lengths are log-normal, as DBpedia's nearly are, words follow Zipf's law: P(rank r) in proportion to 1/r.
    """
    root = os.environ.get("SPARSEVAE_DATA")
    if root and (Path(root) / "dbpedia").is_dir():
        texts = sv.data.load("dbpedia").X[:n]
        return [" ".join(str(text).split()[:MAX_WORDS]) for text in texts], "DBpedia"
    rng = np.random.default_rng(0)
    lengths = np.exp(rng.normal(3.76, 0.55, n)).round().astype(int).clip(1, MAX_WORDS)
    mass = 1 / np.arange(1, words)
    drawn = rng.choice(words - 1, lengths.sum(), p=mass / mass.sum())
    return [" ".join(f"w{i}" for i in text) for text in np.split(drawn, lengths.cumsum()[:-1])], "synthetic sentences"


def estimator(size: Size, vocabulary: Vocabulary) -> sv.HSVAE:
    """Ours, of that size; every setting that the peer repeats is given."""
    text = sv.Text(vocabulary=vocabulary, max_length=MAX_WORDS, embedding=size.embedding)
    return sv.HSVAE(size.units, hidden=(size.hidden,), gate="straight-through-concrete", text=text, **GATES)


def hand_model(size: Size, vocabulary: Vocabulary) -> HandHSVAE:
    """The peer, of that size."""
    return HandHSVAE(len(vocabulary), size.embedding, size.hidden, size.units, GATES["alpha"], GATES["beta"])


def padded(texts: list[str], vocabulary: Vocabulary) -> Tensor:
    """(n, 61): the words of every text, EOS, padding."""
    found = vocabulary.encode(texts, max_length=MAX_WORDS)
    return torch.from_numpy(found.take(np.arange(len(texts)), MAX_WORDS + 1))


class _Heard(Fresh):
    """Fresh noise that remembers what it gave last."""

    def normal(self, like: Tensor) -> Tensor:
        self.eps = super().normal(like)
        return self.eps

    def uniform(self, like: Tensor) -> Tensor:
        self.u = super().uniform(like)
        return self.u


def same_model(texts: list[str], size: Size, vocabulary: Vocabulary, device: torch.device) -> float:
    """Assert that ours and the peer have one loss on the same weights, sentences and draws; how far they are apart."""
    settings = sv.Training(steps=1, batch_size=size.batch, device=str(device), verbose=0, tf32=False)
    with quiet():
        est = estimator(size, vocabulary).set_params(training=settings).fit(texts[: 2 * size.batch])
    peer = hand_model(size, vocabulary).to(device)
    rows = padded(texts[: size.batch], vocabulary).to(device)
    noise = _Heard(torch.Generator(device).manual_seed(0))
    with torch.no_grad(), precision("highest"):
        for mine, theirs in zip(est.model_.parameters(), peer.parameters(), strict=True):
            theirs.copy_(mine)
        trace = est.model_(rows, Draw(noise, hard=False))
        ours, _ = est.fitted_.objective.to(device)(trace)
        theirs = peer.loss(rows, noise.eps, noise.u, gamma=trace.latents["gamma"].value)
    difference = abs(ours.item() - theirs.item()) / abs(ours.item())
    if difference > 1e-4:
        raise AssertionError(f"not the same model: losses differ by {difference:.1e}")
    return difference


def weigh(contender: Contender, batch: int, clock: Clock) -> float:
    """Peak memory of a contender that runs alone, in GiB."""
    gc.collect()
    before = _forget_peak(clock.device)
    with quiet():
        contender(batch, clock)
    return (_peak(clock.device) - before) / 2**30


def _forget_peak(device: torch.device) -> float:
    """Where the next peak is counted from, in bytes: on CUDA 0, else what the process holds already."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
        return 0.0
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:  # not Linux: the peak of a process is not to be had for a part of its life
        return float("nan")
    return _status("VmRSS")


def _peak(device: torch.device) -> float:
    """The most bytes since: of CUDA's what was reserved, graphs' own pools included; else of the whole process."""
    return float(torch.cuda.max_memory_reserved(device)) if device.type == "cuda" else _status("VmHWM")


def _status(name: str) -> float:
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return float("nan")
    return next(1024.0 * int(line.split()[1]) for line in lines if line.startswith(name))


def run(device: torch.device, *, quick: bool) -> dict[str, Any]:
    """The race, as a table with verdicts; returns all of it for the JSON file."""
    cuda = device.type == "cuda"
    size = TINY if quick else PAPER if cuda else SMALL
    rounds, warmup, steps = (1, 2, 4) if quick else (3, 50, 200) if cuda else (3, 3, 20)
    texts, source = sentences(20 * size.batch if quick else 38_500 if cuda else 5_000, size.words)
    vocabulary = Vocabulary.fit(texts, tokenizer="space", size=size.words)
    result: dict[str, Any] = {"data": f"{source}, {len(texts)}", "rounds": rounds, "steps": steps, **size._asdict()}
    with threads() as count, precision("high"):
        result["threads"] = count
        result["loss_difference"] = same_model(texts, size, vocabulary, device)
        print(f"Text: HSVAE, states of {size.hidden}, {len(vocabulary)} words, {size.units} units, on {result['data']}")
        print(f"{rounds} rounds of {steps} steps, {count} torch threads. Loss of ours and peer on equal ")
        print(f"weights, sentences and draws: equal to {result['loss_difference']:.0e} relative.")
        peer, ours = contenders(texts, size, vocabulary, device)
        both: dict[str, Contender] = {"ours": ours, PEER: lambda batch, clock: peers.loop(peer(batch), clock)}
        peaks = {k: weigh(c, size.batch, Clock(warmup, warmup + steps, device)) for k, c in both.items()}
        times = race(peer, {"ours": ours}, size.batch, rounds, warmup, steps, device)["ours"]
    return result | judge(peaks, times, size, device, smoke=quick)


def contenders(texts: list[str], size: Size, vocabulary: Vocabulary, device: torch.device) -> tuple[Stepper, Ours]:
    """The peer loop, and ours."""
    rows = padded(texts, vocabulary).to(device)

    def peer(batch: int) -> Iterator[None]:
        return peers.hand_steps(
            hand_model(size, vocabulary).to(device), peers.resident_batches(rows, batch), fused=True
        )

    return peer, Ours(estimator(size, vocabulary), texts, reseed=True, bf16=device.type == "cuda", compile=False)


def judge(
    peaks: dict[str, float], times: Times, size: Size, device: torch.device, *, smoke: bool = False
) -> dict[str, Any]:
    """Print medians, ratios to the peer block by block, memory, and what became of the targets."""
    rows, out = [], {}
    for name, ms, ratios in (("ours", times.own, times.ratios), (PEER, times.peer, [1.0] * len(times.peer))):
        rate = 1e3 * size.batch / statistics.median(ms)
        out[name] = {
            "ms": ms,
            "sentences_per_s": rate,
            "times_peer": statistics.median(ratios),
            "ratios": ratios,
            "peak_gib": peaks[name],
        }
        span = f"{min(ratios):.2f} to {max(ratios):.2f}"
        rows.append([name, f"{rate:.0f}", f"{statistics.median(ratios):.2f}", span, f"{peaks[name]:.2f}"])
    head = ["contender", "sentences a second", "times the peer", "ratios", "peak memory, GiB"]
    write_table(f"batch {size.batch}, {device.type}", head, rows)
    if smoke:
        print("  A smoke run: no target applies.")
        return {"contenders": out}
    if device.type == "cpu":
        return {"contenders": out, "verdicts": [verdict("ours, times the peer loop", 1.0, out["ours"]["times_peer"])]}
    published = out["ours"]["sentences_per_s"] / PUBLISHED
    return {
        "contenders": out,
        "verdicts": [
            verdict("ours, times the published sentences a second (848, TITAN RTX)", 40.0, published),
            verdict("peak memory of ours", 8.0, peaks["ours"], at_most=True, unit=" GiB"),
        ],
    }
