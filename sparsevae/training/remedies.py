"""Remedies for a code that is empty, full or badly used: new values of settings, computed from the values in use.

First all unusual settings are corrected together (fewer than 1,000 steps, a KL without warm-up, a weight or a prior far
from its default); only later remedies go beyond the defaults. So a remedy does not overshoot. Where units are dead or
some rows empty, a dictionary that begins at the data comes first: it has more units in use, whatever the settings.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Literal

Case = Literal["empty", "full", "dead", "always on"]
SHORTEST, _WARMUP = 1000, 0.5
_TRAINING = ("steps", "epochs", "kl_warmup", "schedules")  # parameters of Training, not of the model
_TYPICAL = {"kl_z": 1.0, "kl_gamma": 1.0, "beta": 4.0, "kl_weight": 1.0}  # weights of KLs, for rows of numbers
_FLOORS = {"variance_floor": 0.03, "variance": 0.1}
_TEXTS = {"kl_z": 0.05, "kl_gamma": 0.03, "beta": 0.1, "kl_weight": 0.1}


def remedies(
    settings: Mapping[str, Any], step: float, *, case: Case, used: float = 0, begin: Mapping[str, Any] | None = None
) -> list[dict[str, Any]]:
    """Sets of changed settings, in order, at most four: for a code that is empty or collapsed, full, or badly used.

    `begin` are the settings with which the dictionary begins at the data, if it did not; `used` is the number of units
    in use, where others are dead.

    >>> remedies({"alpha": 1e-4, "kl_z": 1.0, "kl_warmup": 0}, 10_000, case="empty")
    [{'alpha': 0.1, 'kl_warmup': 0.5}, {'alpha': 0.3}]
    >>> remedies({"alpha": 0.9, "kl_z": 1.0, "kl_warmup": 0.5, "n_components": 8}, 10_000, case="full")
    [{'alpha': 0.3}, {'n_components': 16}]
    >>> remedies({"alpha": 0.1, "kl_z": 1.0, "gate": "sigmoid", "n_components": 64}, 10_000, case="dead", used=12)
    [{'gate': "'straight-through-concrete'", 'alpha': 0.033}, {'kl_z': 0.5}, {'n_components': 14}]
    """
    known = {k: v for k, v in settings.items() if isinstance(v, (int, float)) and not isinstance(v, bool)}
    texts = "texts" in settings
    dialled = "target_active" in known  # weights of KLs are found in training
    if case in ("dead", "always on"):
        lots = [*_livelier(known, settings.get("gate"), used, dead=case == "dead")]
    else:
        lots = [*_fuller_or_sparser(settings, known, texts, step, empty=case == "empty")]
    free = [{k: v for k, v in lot.items() if not (dialled and k.startswith(("kl_", "schedules")))} for lot in lots]
    return [lot for lot in (dict(begin or {}), *free) if lot]


def _fuller_or_sparser(
    settings: Mapping[str, Any], known: Mapping[str, Any], texts: bool, step: float, *, empty: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    """First what corrects all unusual settings together, then one setting beyond its default."""
    first, then = _fuller(known, texts) if empty else _sparser(known, texts)
    exact_zeros = settings.get("likelihood") == "spike-slab"  # needs scale="none"
    if empty and not texts and not exact_zeros and settings.get("scale", "auto") != "auto":
        first["scale"] = "'auto'"
    if step < SHORTEST:
        epochs = known.get("epochs")
        first |= {"epochs": math.ceil(epochs * SHORTEST / max(step, 1))} if epochs else {"steps": SHORTEST}
    shuts = texts and "alpha" in settings  # with texts, gates close when the KL returns
    if not known.get("kl_warmup") and not shuts and (empty or set(first) - {"n_components", "steps", "epochs"}):
        first["kl_warmup"] = _WARMUP
    return first, then


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


def _livelier(s: Mapping[str, Any], gate: Any, used: float, *, dead: bool) -> Iterator[dict[str, Any]]:
    """A sharper choice of units, and fewer per row; where units are `dead` also a cheaper code, or fewer units."""
    slabs = gate is not None and "kl_gamma" not in s  # not HSVAE, whose alpha is a concentration
    first = {"gate": "'straight-through-concrete'"} if gate == "sigmoid" else {}
    yield first | ({"alpha": _short(max(s["alpha"] / 3, 0.02))} if slabs and s.get("alpha", 0) > 0.02 else {})
    if dead:
        name = "kl_gamma" if "kl_gamma" in s else "kl_z"
        yield {name: _short(s[name] / 2)} if s.get(name) else {}
        yield {"n_components": math.ceil(9 / 8 * max(used, 1))}


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
