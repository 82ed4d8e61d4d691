"""Knobs: the buffers that schedules write to."""

from __future__ import annotations

from torch import Tensor, nn

from sparsevae.latent.objective import Objective


def knobs(model: nn.Module, objective: Objective) -> dict[str, list[Tensor]]:
    """All buffers that schedules may write to, by name: weights of terms, and the `knobs` of the model's modules.

    Modules that declare the same name, as two concatenated posteriors do, share one schedule.
    """
    found: dict[str, list[Tensor]] = {}
    for module in (*objective.modules(), *model.modules()):
        for name in getattr(module, "knobs", ()):
            found.setdefault(name, []).append(getattr(module, name))
    return found


def lasting(model: nn.Module) -> set[str]:
    """Names of the knobs that are in the state dict of the model, such as the slope of a gate."""
    return {name for m in model.modules() for name in getattr(m, "knobs", ()) if name in m.state_dict()}


def passing(model: nn.Module) -> dict[str, Tensor]:
    """The knobs of the model's modules that are in no state dict, such as the sharpness of a gate."""
    kept = lasting(model)
    return {k: getattr(m, k) for m in model.modules() for k in getattr(m, "knobs", ()) if k not in kept}
