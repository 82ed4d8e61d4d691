"""Distributions that torch lacks, and their KL divergences.

>>> import torch
>>> from sparsevae.distributions import SpikeSlab, divergence
>>> q = SpikeSlab(torch.zeros(1, 2), torch.ones(1, 2), torch.ones(1, 2))
>>> divergence(q, SpikeSlab(torch.zeros(2), torch.zeros(2), torch.ones(2)))  # p_on / 2 per unit
tensor([0.5000])
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparsevae.distributions.capped import Capped
    from sparsevae.distributions.counts import Counts
    from sparsevae.distributions.kl import divergence, pair
    from sparsevae.distributions.spike_slab import SpikeSlab

_WHERE = {"Capped": "capped", "Counts": "counts", "SpikeSlab": "spike_slab", "divergence": "kl", "pair": "kl"}

__all__ = ["Capped", "Counts", "SpikeSlab", "divergence", "pair"]


def __getattr__(name: str) -> Any:
    """Public names are imported when first used."""
    if name in _WHERE:
        return getattr(importlib.import_module(f"sparsevae.distributions.{_WHERE[name]}"), name)
    raise AttributeError(f"module 'sparsevae.distributions' has no attribute {name!r}")
