"""Models by name, for the command line and for stored folders; filled by `sparsevae.models`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparsevae.estimator.coder import SparseCoder

REGISTRY: dict[str, type[SparseCoder]] = {}
"""Models that learn from X alone."""

SUPERVISED: dict[str, type[SparseCoder]] = {}
"""Models that learn from X and y."""


def known() -> dict[str, type[SparseCoder]]:
    """All models by name."""
    return {**REGISTRY, **SUPERVISED}
