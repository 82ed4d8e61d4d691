"""Knobs: the buffers that schedules drive."""

from __future__ import annotations

from torch import Tensor, nn

from sparsevae.latent.objective import Objective


def knobs(model: nn.Module, objective: Objective) -> dict[str, list[Tensor]]:
    """Every buffer a schedule may drive, by name: term weights, and what the model's parts declare.

    Parts of one kind, such as the two of a code side by side, have a buffer each, and one schedule drives them all.
    """
    found: dict[str, list[Tensor]] = {}
    for module in (*objective.modules(), *model.modules()):
        for name in getattr(module, "knobs", ()):
            found.setdefault(name, []).append(getattr(module, name))
    return found


def lasting(model: nn.Module) -> set[str]:
    """Names of the knobs that are part of the model and are saved with it, such as the slope of its law."""
    return {name for m in model.modules() for name in getattr(m, "knobs", ()) if name in m.state_dict()}
