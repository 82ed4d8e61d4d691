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
    from sparsevae.analysis.audit import audit
    from sparsevae.analysis.audit_result import Audit
    from sparsevae.analysis.classes import Classes, classes
    from sparsevae.analysis.noise_experiment import noise_experiment
    from sparsevae.analysis.pruning import prune
    from sparsevae.analysis.rates import RateDistortion, rate_distortion
    from sparsevae.analysis.second_stage import second_stage
    from sparsevae.analysis.sizing import SuggestedSize, suggest_size
    from sparsevae.analysis.traversals import activation_matrix, edits, interpolate, traverse
    from sparsevae.analysis.unit_words import TopWords, top_texts, top_words
    from sparsevae.distributions.capped import Capped
    from sparsevae.distributions.counts import Counts
    from sparsevae.distributions.spike_slab import SpikeSlab
    from sparsevae.estimator.coder import SparseCoder
    from sparsevae.estimator.splits import MultiLabelKFold, stratified_folds, stratified_split
    from sparsevae.exceptions import DivergenceError, OverfittingWarning, SparsityWarning, StorageError
    from sparsevae.inputs.texts import Text
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
        load,
    )
    from sparsevae.schedules import Constant, Cosine, Cyclical, Exponential, KeepMean, Linear, Step
    from sparsevae.text.vocabulary import Vocabulary
    from sparsevae.training.history import History
    from sparsevae.training.settings import Training

_WHERE = {
    "sparsevae.analysis.audit": "Audit audit",
    "sparsevae.analysis.classes": "Classes classes",
    "sparsevae.analysis.noise_experiment": "noise_experiment",
    "sparsevae.analysis.pruning": "prune",
    "sparsevae.analysis.rates": "RateDistortion rate_distortion",
    "sparsevae.analysis.second_stage": "second_stage",
    "sparsevae.analysis.sizing": "SuggestedSize suggest_size",
    "sparsevae.analysis.traversals": "activation_matrix edits interpolate traverse",
    "sparsevae.analysis.unit_words": "TopWords top_texts top_words",
    "sparsevae.distributions.capped": "Capped",
    "sparsevae.distributions.counts": "Counts",
    "sparsevae.distributions.spike_slab": "SpikeSlab",
    "sparsevae.estimator.coder": "SparseCoder",
    "sparsevae.estimator.splits": "MultiLabelKFold stratified_folds stratified_split",
    "sparsevae.exceptions": "DivergenceError OverfittingWarning SparsityWarning StorageError",
    "sparsevae.inputs.texts": "Text",
    "sparsevae.models": "load",
    "sparsevae.schedules": "Constant Cosine Cyclical Exponential KeepMean Linear Step",
    "sparsevae.text.vocabulary": "Vocabulary",
    "sparsevae.training.history": "History",
    "sparsevae.training.settings": "Training",
}
_PUBLIC = {name: module for module, names in _WHERE.items() for name in names.split()}

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
    "KeepMean",
    "Linear",
    "MultiLabelKFold",
    "OverfittingWarning",
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
    if name in ("data", "metrics"):
        return importlib.import_module(f"sparsevae.{name}")
    if name in _PUBLIC:
        return getattr(importlib.import_module(_PUBLIC[name]), name)
    if name[:1].isupper() and name in (known := importlib.import_module("sparsevae.models").known()):
        return known[name]
    raise AttributeError(f"module 'sparsevae' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
