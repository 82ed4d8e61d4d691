"""Process-wide settings of torch: number of threads, default dtype, deterministic and TensorFloat-32 arithmetic."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from joblib import cpu_count

_DTYPE = torch.float32  # of networks and their results


@contextmanager
def threads(count: int | None = None) -> Iterator[int]:
    """Run torch with `count` threads, then restore the old number.

    None means the old number, but at most the CPUs that this process may use (by its affinity, the quota of its
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
    """Compute without gradients, within the CPU quota, in full precision, with reproducible bits."""
    with ordinary(), threads(), cuda_arithmetic(device, tf32=False), torch.no_grad():
        yield


@contextmanager
def ordinary() -> Iterator[None]:
    """Use float32 as default dtype and enable gradients, then restore the settings of the caller."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(_DTYPE)
    try:
        with torch.inference_mode(False), torch.enable_grad():
            yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def cuda_arithmetic(device: torch.device, *, tf32: bool) -> Iterator[None]:
    """On CUDA: deterministic convolutions, and TensorFloat-32 if `tf32`. On a CPU: nothing.

    These settings are process-wide; two CPU fits in threads would overwrite each other's.
    """
    if device.type != "cuda":
        yield
        return
    cudnn = torch.backends.cudnn
    before = torch.get_float32_matmul_precision(), cudnn.deterministic, cudnn.allow_tf32
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    cudnn.deterministic = True
    cudnn.allow_tf32 = tf32
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        cudnn.deterministic, cudnn.allow_tf32 = before[1:]
