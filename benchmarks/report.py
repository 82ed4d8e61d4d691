"""Plain tables and plain verdicts."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch


def write_table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """The first column to the left, the others to the right."""
    widths = [max(len(line[i]) for line in (head, *rows)) for i in range(len(head))]
    print(f"\n{title}")
    for line in (head, ["-" * w for w in widths], *rows):
        cells = [c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(line, widths, strict=True))]
        print("  " + "  ".join(cells).rstrip())
    sys.stdout.flush()


def verdict(what: str, target: float, measured: float, *, at_most: bool = False, unit: str = "") -> dict[str, Any]:
    """Print and return one comparison with a target."""
    met = measured <= target if at_most else measured >= target
    sign, word = "<=" if at_most else ">=", "met" if met else "missed"
    print(f"  target {what}: {sign} {target:g}{unit}; measured {measured:.{3 if measured < 10 else 1}f}{unit}: {word}")
    return {"what": what, "target": target, "at_most": at_most, "measured": measured, "verdict": word}


def _processor() -> str:
    """The processor's model where the system reports it, else its architecture."""
    with suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return platform.processor() or platform.machine()


def machine(device: torch.device) -> dict[str, Any]:
    """Where the numbers come from."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else _processor()
    return {
        "device": str(device),
        "name": name,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "load_average": load,
    }
