"""Parts of torch that are not its public interface, and what is done where one of them is missing.

They were tried with torch 2.11 to 2.13. What is missing in another version is an error here, of which `Acceleration`
writes one line before it takes eager steps. What behaves otherwise there shows when a traced step is compared with an
eager one. `fused_adam` has the public operations to fall back on.
"""

from __future__ import annotations

REGISTERED = ("_parameters", "_buffers", "_modules")
"""Attributes of a module that have its tensors and modules by name."""
