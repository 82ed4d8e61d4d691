"""The models by name: what the command line offers and what a stored folder may name. `sparsevae.models` fills it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparsevae.estimator.coder import SparseCoder

REGISTRY: dict[str, type[SparseCoder]] = {}
"""Every model that learns from X alone."""

SUPERVISED: dict[str, type[SparseCoder]] = {}
"""Every model that learns from X and y."""


def known() -> dict[str, type[SparseCoder]]:
    """Both."""
    return {**REGISTRY, **SUPERVISED}
