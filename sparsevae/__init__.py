"""sparsevae: sparse, interpretable codes from deep generative models.

>>> import sparsevae as sv
>>> est = sv.VSC(n_components=64, alpha=0.1)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from sparsevae import data, metrics
    from sparsevae.auditing import Audit, audit
    from sparsevae.by_class import Classes, classes
    from sparsevae.capped import Capped
    from sparsevae.collapse import noise_experiment
    from sparsevae.counts import Counts
    from sparsevae.distributions import SpikeSlab
    from sparsevae.estimator import SparseCoder
    from sparsevae.history import History
    from sparsevae.loading import load
    from sparsevae.models import (
        HSVAE,
        MAT,
        SDLGM,
        VAE,
        VSC,
        BetaTCVAE,
        BetaVAE,
        CapacityVAE,
        CodeClassifier,
        DiscreteVAE,
        PseudoVSC,
        SDLGMClassifier,
        SDLGMCounter,
    )
    from sparsevae.pruning import prune
    from sparsevae.rates import RateDistortion, rate_distortion
    from sparsevae.schedules import Constant, Cosine, Cyclical, Exponential, Linear, Step
    from sparsevae.settings import Training
    from sparsevae.sizing import SuggestedSize, suggest_size
    from sparsevae.splits import MultiLabelKFold, stratified_folds, stratified_split
    from sparsevae.storage import StorageError
    from sparsevae.text import Vocabulary
    from sparsevae.texts import Text
    from sparsevae.training import DivergenceError, SparsityWarning
    from sparsevae.traversals import activation_matrix, edits, interpolate, traverse
    from sparsevae.two_stage import second_stage
    from sparsevae.unit_words import TopWords, top_texts, top_words

_WHERE = {
    "data": "sparsevae.data",
    "Capped": "sparsevae.capped",
    "Counts": "sparsevae.counts",
    "SpikeSlab": "sparsevae.distributions",
    "SparseCoder": "sparsevae.estimator",
    "load": "sparsevae.loading",
    "Constant": "sparsevae.schedules",
    "Cosine": "sparsevae.schedules",
    "Cyclical": "sparsevae.schedules",
    "Exponential": "sparsevae.schedules",
    "Linear": "sparsevae.schedules",
    "Step": "sparsevae.schedules",
    "StorageError": "sparsevae.storage",
    "Text": "sparsevae.texts",
    "Vocabulary": "sparsevae.text",
    "DivergenceError": "sparsevae.training",
    "History": "sparsevae.history",
    "SparsityWarning": "sparsevae.training",
    "Training": "sparsevae.settings",
    "Audit": "sparsevae.auditing",
    "audit": "sparsevae.auditing",
    "prune": "sparsevae.pruning",
    "SuggestedSize": "sparsevae.sizing",
    "suggest_size": "sparsevae.sizing",
    "noise_experiment": "sparsevae.collapse",
    "second_stage": "sparsevae.two_stage",
    "traverse": "sparsevae.traversals",
    "interpolate": "sparsevae.traversals",
    "edits": "sparsevae.traversals",
    "activation_matrix": "sparsevae.traversals",
    "MultiLabelKFold": "sparsevae.splits",
    "stratified_folds": "sparsevae.splits",
    "stratified_split": "sparsevae.splits",
    "RateDistortion": "sparsevae.rates",
    "rate_distortion": "sparsevae.rates",
    "Classes": "sparsevae.by_class",
    "classes": "sparsevae.by_class",
    "TopWords": "sparsevae.unit_words",
    "top_texts": "sparsevae.unit_words",
    "top_words": "sparsevae.unit_words",
    "metrics": "sparsevae.metrics",
}

__all__ = [
    "HSVAE",
    "MAT",
    "SDLGM",
    "VAE",
    "VSC",
    "Audit",
    "BetaTCVAE",
    "BetaVAE",
    "CapacityVAE",
    "Capped",
    "Classes",
    "CodeClassifier",
    "Constant",
    "Cosine",
    "Counts",
    "Cyclical",
    "DiscreteVAE",
    "DivergenceError",
    "Exponential",
    "History",
    "Linear",
    "MultiLabelKFold",
    "PseudoVSC",
    "RateDistortion",
    "SDLGMClassifier",
    "SDLGMCounter",
    "SparseCoder",
    "SparsityWarning",
    "SpikeSlab",
    "Step",
    "StorageError",
    "SuggestedSize",
    "Text",
    "TopWords",
    "Training",
    "Vocabulary",
    "activation_matrix",
    "audit",
    "classes",
    "data",
    "edits",
    "interpolate",
    "load",
    "metrics",
    "noise_experiment",
    "prune",
    "rate_distortion",
    "second_stage",
    "stratified_folds",
    "stratified_split",
    "suggest_size",
    "top_texts",
    "top_words",
    "traverse",
]


def __getattr__(name: str) -> Any:
    """Public names are imported when first used, so `import sparsevae` stays light; models come from the registry."""
    if name in _WHERE:
        module = importlib.import_module(_WHERE[name])
        return module if name in ("data", "metrics") else getattr(module, name)
    if name[:1].isupper() and name in (known := importlib.import_module("sparsevae.models").known()):
        return known[name]
    raise AttributeError(f"module 'sparsevae' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
