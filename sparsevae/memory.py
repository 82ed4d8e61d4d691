"""What there is of memory, and sizes that are refused before memory is asked for.

An allocator's error names no parameter, and what it just about grants a kernel may take back by killing the process.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparsevae.numeric import shown

if TYPE_CHECKING:
    import torch

__all__ = ["check_room", "memory"]

_UNITS = ("bytes", "kB", "MB", "GB", "TB", "PB", "EB")


def memory(device: torch.device | None = None, root: Path = Path("/sys/fs/cgroup")) -> float:
    """Bytes of memory that a device has in all; of the machine no more than its cgroup grants (v2, then v1)."""
    if device is not None and device.type == "cuda":
        import torch

        return float(torch.cuda.mem_get_info(device)[1])
    try:
        found = float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):  # not every system says
        return math.inf
    for limit in (root / "memory.max", root / "memory/memory.limit_in_bytes"):
        try:
            return min(found, float(limit.read_text()))
        except (OSError, ValueError):  # not there, or "max"
            continue
    return found


def check_room(numbers: float, sizes: Mapping[str, Any], what: str, device: torch.device | None = None) -> None:
    """Refuse what needs more than all memory, `numbers` of float32 at least; `sizes` say what makes it so large.

    >>> check_room(4e18, {"n": 10**18}, "samples")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    ValueError: n=1000000000000000000 would take 16.0 EB of memory or more for samples; there are ...
    """
    there = memory(device)
    if 4 * numbers > there:
        named = ", ".join(f"{name}={shown(value)}" for name, value in sizes.items())
        raise ValueError(
            f"{named} would take {_amount(4 * numbers)} of memory or more for {what}; there are {_amount(there)}. "
            "Make what is largest smaller."
        )


def _amount(size: float) -> str:
    unit = min(len(_UNITS) - 1, int(math.log10(max(size, 1)) // 3))
    return f"{size / 1000**unit:.1f} {_UNITS[unit]}"
