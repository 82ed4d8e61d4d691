"""Remedies for an empty or a full code: new values of settings, computed from the values in use.

First all unusual settings are corrected together (fewer than 1,000 steps, a KL without warm-up, a weight or a prior far
from its default); only the second remedy goes beyond the defaults. So a remedy does not overshoot.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

_STEPS, _WARMUP = 1000, 0.5
_TRAINING = ("steps", "epochs", "kl_warmup", "schedules")  # parameters of Training, not of the model
_TYPICAL = {"kl_z": 1.0, "kl_gamma": 1.0, "beta": 4.0, "kl_weight": 1.0}  # weights of KLs, for rows of numbers
_FLOORS = {"variance_floor": 0.03, "variance": 0.1}
_TEXTS = {"kl_z": 0.05, "kl_gamma": 0.03, "beta": 0.1, "kl_weight": 0.1}


def remedies(settings: Mapping[str, Any], step: int, *, empty: bool) -> list[dict[str, Any]]:
    """At most two sets of changed settings, for a code that is `empty` or collapsed, or else full.

    >>> remedies({"alpha": 1e-4, "kl_z": 1.0, "kl_warmup": 0}, 10_000, empty=True)
    [{'alpha': 0.1, 'kl_warmup': 0.5}, {'alpha': 0.3}]
    >>> remedies({"alpha": 0.9, "kl_z": 1.0, "kl_warmup": 0.5, "n_components": 8}, 10_000, empty=False)
    [{'alpha': 0.3}, {'n_components': 16}]
    """
    known = {k: v for k, v in settings.items() if isinstance(v, (int, float)) and not isinstance(v, bool)}
    texts = "texts" in settings
    first, then = _fuller(known, texts) if empty else _sparser(known, texts)
    exact_zeros = settings.get("likelihood") == "spike-slab"  # needs scale="none"
    if empty and not texts and not exact_zeros and settings.get("scale", "auto") != "auto":
        first["scale"] = "'auto'"
    if step < _STEPS:
        epochs = known.get("epochs")
        first |= {"epochs": math.ceil(epochs * _STEPS / max(step, 1))} if epochs else {"steps": _STEPS}
    shuts = texts and "alpha" in settings  # with texts, gates close when the KL returns
    if not known.get("kl_warmup") and not shuts and (empty or set(first) - {"n_components", "steps", "epochs"}):
        first["kl_warmup"] = _WARMUP
    return [lot for lot in (first, then) if lot]


def _fuller(s: Mapping[str, Any], texts: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    weights = {k: v for k, v in (_TEXTS if texts else _TYPICAL).items() if k in s}
    first, then = {}, {}
    if "kl_gamma" in s:  # HSVAE: its alpha and beta are concentrations
        del weights["beta"]
        if (firm := s["alpha"] + s["beta"]) > 2 * (1.5 if texts else 1):
            first = {k: _short(2 * s[k] / firm) for k in ("alpha", "beta")}
        then = {"kl_gamma": _short(min(s["kl_gamma"], weights["kl_gamma"]) / 10)}
    elif "capacity" in s:
        first = {"capacity": max(1.0, 2 * s["capacity"])}
    elif "alpha" in s:
        least = 0.4 if texts else 0.1 if s.get("kl_z") is not None else 0.5
        alpha = max(least, s["alpha"]) if s["alpha"] <= 0.5 else 0.5
        first = {"alpha": alpha} if alpha != s["alpha"] else {}
        then = {"alpha": _short(min(0.5, 3 * alpha))} if alpha < 0.5 and not texts else {}
    first |= {k: typical for k, typical in (weights | _FLOORS).items() if s.get(k, 0) > typical}
    if not then and weights:
        name = next(iter(weights))
        then = {name: _short(min(s[name], weights[name]) / (10 if name == "kl_weight" else 4))}
    floor = next((name for name in _FLOORS if name in s), None)
    if not then and floor and ("alpha" in s or "capacity" in s):  # with a large variance a code gains little
        then = {floor: _short(min(s[floor], _FLOORS[floor]) / 10)}
    return first, then or {"schedules": "{'kl_z': sv.Constant(0.25)}"}


def _sparser(s: Mapping[str, Any], texts: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    weights = {k: v for k, v in (_TEXTS if texts else _TYPICAL).items() if k in s}
    first: dict[str, Any] = {}
    if "kl_gamma" in s:
        del weights["beta"]
        if s["alpha"] < s["beta"]:
            first = {"alpha": 1.5, "beta": 0.5}
    elif s.get("capacity"):
        first = {"capacity": _short(s["capacity"] / 4)}
    elif "alpha" in s and s["alpha"] > 0.1:
        first = {"alpha": _short(s["alpha"] / 3)}
    first |= {k: typical for k, typical in weights.items() if s[k] < typical}
    larger = {"n_components": 2 * int(s["n_components"])} if "n_components" in s else {}
    return (first, larger) if first else (larger, {})


def _short(value: float) -> float:
    return float(f"{value:.2g}")


def written(lots: list[dict[str, Any]]) -> str:
    """Remedies as a sentence.

    >>> written([{"alpha": 0.1, "kl_warmup": 0.5}, {"alpha": 0.3}])
    'Try alpha=0.1 and training.kl_warmup=0.5; if that does not help, alpha=0.3.'
    """
    words = []
    for lot in lots:
        *most, last = (f"{'training.' if k in _TRAINING else ''}{k}={value}" for k, value in lot.items())
        words.append(f"{', '.join(most)} and {last}" if most else last)
    return f"Try {'; if that does not help, '.join(words)}." if words else ""
