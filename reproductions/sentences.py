"""HSVAE's settings on sentences, which its reproductions share: embedding 256, GRUs of 512, constant Adam rate 8e-4."""

from __future__ import annotations

from typing import Any

import sparsevae as sv

__all__ = ["EMBEDDING", "GATES", "STATES", "training"]

STATES, EMBEDDING = 512, 256
GATES: dict[str, Any] = {"spike_scale": 0.05, "kl_z": 0.01, "kl_gamma": 0.01}  # HSVAE's spike and weights of its KLs


def training(steps: int, batch_size: int, seed: int, device: str, **more: Any) -> sv.Training:
    """A run as published; half precision where the machine has it."""
    return sv.Training(
        steps=steps,
        batch_size=batch_size,
        learning_rate=8e-4,
        decay="constant",
        seed=seed,
        device=device,
        bf16=True,
        compile=False,
        verbose=0,
        **more,
    )
