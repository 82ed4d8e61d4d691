"""How the machine computes: CPU threads within the quota, arithmetic that can be repeated, torch's own defaults."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

_DTYPE = torch.float32  # of networks and all that they compute


def _read(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []


def cpu_quota(root: Path = Path("/sys/fs/cgroup")) -> int:
    """Whole CPUs this process may use: the smaller of its affinity and its cgroup quota (v2, then v1)."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    v2 = _read(root / "cpu.max")
    v1 = _read(root / "cpu/cpu.cfs_quota_us") + _read(root / "cpu/cpu.cfs_period_us")
    for quota in (v2, v1):
        if len(quota) == 2 and quota[0].isdigit() and int(quota[0]) > 0:
            available = min(available, max(1, math.ceil(int(quota[0]) / int(quota[1]))))
            break
    return available


@contextmanager
def threads(count: int | None = None) -> Iterator[int]:
    """Run torch with `count` threads, or at most the quota when None; the caller's setting comes back after.

    More threads than cores make torch many times slower.
    """
    before = torch.get_num_threads()
    now = count or min(before, cpu_quota())
    if now != before:
        torch.set_num_threads(now)
    try:
        yield now
    finally:
        if now != before:
            torch.set_num_threads(before)


@contextmanager
def inference(device: torch.device) -> Iterator[None]:
    """Compute without gradients, within the CPU quota, in full precision, with the same bits every time."""
    with ordinary(), threads(), cuda_arithmetic(device, tf32=False), torch.no_grad():
        yield


@contextmanager
def ordinary() -> Iterator[None]:
    """Networks are float32 and learn by gradients, whatever a caller has set for all of torch (and gets back)."""
    before = torch.get_default_dtype()
    if before != _DTYPE:
        torch.set_default_dtype(_DTYPE)
    try:
        with torch.inference_mode(False), torch.enable_grad():
            yield
    finally:
        if before != _DTYPE:
            torch.set_default_dtype(before)


@contextmanager
def cuda_arithmetic(device: torch.device, *, tf32: bool) -> Iterator[None]:
    """On CUDA: convolutions by algorithms that give the same bits every time, TensorFloat-32 as asked.

    These are process-wide settings, so a CPU run leaves them alone: two fits in threads would undo each other's.
    """
    if device.type != "cuda":
        yield
        return
    cudnn = torch.backends.cudnn
    before = torch.get_float32_matmul_precision(), cudnn.deterministic, cudnn.allow_tf32
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    cudnn.deterministic, cudnn.allow_tf32 = True, tf32
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        cudnn.deterministic, cudnn.allow_tf32 = before[1:]
