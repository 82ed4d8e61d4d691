"""Likelihoods by name: every class of this folder that has one. "auto" depends on the data."""

from __future__ import annotations

import importlib
import pkgutil

import sparsevae.likelihoods
from sparsevae.inputs.scaling import divisor
from sparsevae.inputs.stats import Stats
from sparsevae.likelihoods.base import REGISTRY
from sparsevae.likelihoods.bernoulli import BernoulliData
from sparsevae.likelihoods.gaussian import GaussianData

for _module in pkgutil.iter_modules(sparsevae.likelihoods.__path__, "sparsevae.likelihoods."):
    importlib.import_module(_module.name)

_OF_NUMBERS = {name: cls for name, cls in REGISTRY.items() if cls.kind == "numbers"}

LIKELIHOODS: tuple[str, ...] = ("auto", *_OF_NUMBERS)
"""The likelihoods a constructor may name."""

HELP = f"{', '.join(f'{n} ({c.note})' if c.note else n for n, c in _OF_NUMBERS.items())} or auto."
"""The list in the help text of `likelihood`."""


def users_of(setting: str) -> str:
    """The likelihoods that take a setting, for a help text.

    >>> users_of("variance_floor")
    "likelihood='gaussian', 'column-gaussian' or 'spike-slab'"
    """
    *most, last = (repr(n) for n, c in _OF_NUMBERS.items() if setting in c.settings)
    return "likelihood=" + (f"{', '.join(most)} or {last}" if most else last)


def choose(name: str, data: Stats, scale: str, *, binarise: bool) -> str:
    """The name of the likelihood for these data: "auto" is bernoulli if scaled values are 0 and 1, else gaussian."""
    if name != "auto":
        return name
    one = divisor(scale, data) or 0.0  # None: scaling moves zeros, but not if all values are 0
    binary = bool(data.levels) and data.levels <= {0.0, one} and scale != "unit-norm"
    return BernoulliData.name if binary or binarise else GaussianData.name
