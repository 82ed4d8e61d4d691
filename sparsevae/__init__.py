"""sparsevae: sparse, interpretable codes from deep generative models.

>>> import sparsevae as sv
>>> est = sv.VSC(n_components=64, alpha=0.1)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from sparsevae import data
    from sparsevae.distributions import SpikeSlab
    from sparsevae.estimator import SparseCoder, load
    from sparsevae.history import History
    from sparsevae.models import VAE, VSC, BetaVAE
    from sparsevae.schedules import Constant, Cosine, Cyclical, Linear, Step
    from sparsevae.settings import Training
    from sparsevae.storage import StorageError
    from sparsevae.training import DivergenceError, SparsityWarning

_WHERE = {
    "data": "sparsevae.data",
    "SpikeSlab": "sparsevae.distributions",
    "SparseCoder": "sparsevae.estimator",
    "load": "sparsevae.estimator",
    "Constant": "sparsevae.schedules",
    "Cosine": "sparsevae.schedules",
    "Cyclical": "sparsevae.schedules",
    "Linear": "sparsevae.schedules",
    "Step": "sparsevae.schedules",
    "StorageError": "sparsevae.storage",
    "DivergenceError": "sparsevae.training",
    "History": "sparsevae.history",
    "SparsityWarning": "sparsevae.training",
    "Training": "sparsevae.settings",
}

__all__ = [
    "VAE",
    "VSC",
    "BetaVAE",
    "Constant",
    "Cosine",
    "Cyclical",
    "DivergenceError",
    "History",
    "Linear",
    "SparseCoder",
    "SparsityWarning",
    "SpikeSlab",
    "Step",
    "StorageError",
    "Training",
    "data",
    "load",
]


def __getattr__(name: str) -> Any:
    """Public names are imported when first used, so `import sparsevae` stays light; models come from the registry."""
    if name in _WHERE:
        module = importlib.import_module(_WHERE[name])
        return module if name == "data" else getattr(module, name)
    if name[:1].isupper() and name in (registry := importlib.import_module("sparsevae.models").REGISTRY):
        return registry[name]
    raise AttributeError(f"module 'sparsevae' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
