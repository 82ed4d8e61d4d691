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

__all__ = ["amount", "check_room", "free_memory", "memory"]

_UNITS = ("kB", "MB", "GB", "TB", "PB", "EB")
_MOST = 1e24  # bytes, of which nobody needs the number
_CGROUP = Path("/sys/fs/cgroup")


def memory(device: torch.device | None = None, cgroup: Path = _CGROUP) -> float:
    """Bytes of memory that a device has in all; of the machine no more than its cgroup grants."""
    if device is not None and device.type == "cuda":
        import torch

        return float(torch.cuda.mem_get_info(device)[1])
    try:
        found = float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):  # not every system says
        return math.inf
    return min(found, *(granted for granted, _ in _groups(cgroup)))


def free_memory(proc: Path = Path("/proc/meminfo"), cgroup: Path = _CGROUP) -> float:
    """Bytes that could still be taken: what the machine has left, or its cgroup; infinite where nobody knows."""
    left = [1024 * int(line.split()[1]) for line in _lines(proc) if line.startswith("MemAvailable:")]
    return min(math.inf, *left, *(max(0.0, granted - taken) for granted, taken in _groups(cgroup)))


def _groups(cgroup: Path) -> list[tuple[float, float]]:
    """What the cgroup grants and what is taken of it (v2, then v1); endless and nothing where it grants all."""
    v1 = cgroup / "memory"
    found = [(math.inf, 0.0)]
    for folder, limit, used in (
        (cgroup, "memory.max", "memory.current"),
        (v1, "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        most, now = ("".join(_lines(folder / name)) for name in (limit, used))
        if most.isdigit():
            files = sum(int(x.split()[1]) for x in _lines(folder / "memory.stat") if x.startswith("inactive_file "))
            taken = max(0, int(now) - files) if now.isdigit() else 0  # pages of files are given up when asked for
            found.append((float(most), float(taken)))
    return found


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


def check_room(numbers: float, sizes: Mapping[str, Any], what: str, device: torch.device | None = None) -> None:
    """Refuse what needs more than all memory, `numbers` of float32 at least; `sizes` say what makes it so large.

    >>> check_room(4e18, {"n": 10**18}, "samples")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    ValueError: n=1000000000000000000 would take 16 EB of memory or more for samples; there are ...
    """
    there = memory(device)
    if 4 * numbers > there:
        named = ", ".join(f"{name}={shown(value)}" for name, value in sizes.items())
        raise ValueError(
            f"{named} would take {amount(4 * numbers)} of memory or more for {what}; there are {amount(there)}: "
            "ask for less."
        )


def amount(size: float) -> str:
    """A number of bytes in words.

    >>> amount(700), amount(5_300_000), amount(8e21), amount(10**400)
    ('700 bytes', '5.3 MB', '8,000 EB', 'over 1,000,000 EB')
    """
    if size > _MOST:
        return f"over {amount(_MOST)}"
    if size < 1000:
        return f"{size:.0f} bytes"
    unit = min(len(_UNITS), int(math.log10(size) // 3))
    number = size / 1000**unit
    return f"{number:.3g} {_UNITS[unit - 1]}" if number < 1000 else f"{number:,.0f} {_UNITS[unit - 1]}"
