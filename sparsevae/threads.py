"""How the machine computes: CPU threads within the quota, arithmetic that can be repeated, torch's own defaults."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from joblib import cpu_count

_DTYPE = torch.float32  # of networks and all that they compute


@contextmanager
def threads(count: int | None = None) -> Iterator[int]:
    """Run torch with `count` threads; the caller's setting comes back after.

    None is the caller's setting, but no more than the CPUs that this process may use (its affinity, the quota of its
    container, LOKY_MAX_CPU_COUNT): more threads than cores make torch many times slower.
    """
    before = torch.get_num_threads()
    now = count or min(before, cpu_count())
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
