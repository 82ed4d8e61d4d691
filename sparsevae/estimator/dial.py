"""The dial of a sparse model: `target_active`, the mean number of non-zeros of a code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from sparsevae.checks import POSITIVE
from sparsevae.estimator.assemble import Build
from sparsevae.exceptions import SparsityWarning, warn_caller
from sparsevae.parameters import parameters
from sparsevae.schedules import KeepMean

if TYPE_CHECKING:
    from sparsevae.estimator.coder import SparseCoder

_EXPECTED = 1.3  # non-zeros that the prior expects per non-zero of the code: gates that are rarely on are not in it
_TOLERANCE = 0.1  # a mean further than this share from the target is told


@parameters
class Dial:
    """Field of models with sparse codes."""

    target_active: Annotated[
        float | None, POSITIVE, "Mean non-zeros of a code; weights of KLs are found for it in training. None: as found."
    ] = None


def prior_share(est: Any, n: int, usual: float) -> float:
    """P(on) of the prior: for a target such that the prior expects somewhat more units on; else the usual value."""
    target: float | None = est.target_active
    return usual if target is None else min(0.5, _EXPECTED * float(target) / n)


def dialled(est: SparseCoder, made: Build) -> Build:
    """The build with a controller of its KL weights that keeps the target; without a target the build itself.

    Of the knobs that change how many units are on (noise variance, alpha, KL weight) the KL weight is the one that
    every sparse model has, and it reaches every target: for Gaussians of one variance it is that variance, up to a
    factor of the loss, and alpha alone moves counts by its logarithm only. A model may bring a controller of its own.
    """
    target = getattr(est, "target_active", None)
    if target is None:
        return made
    training = est.training_settings()
    if training.kl_warmup or any(name.startswith("kl_") for name in training.schedules or ()):
        raise ValueError("target_active finds the KL weights itself: leave out training.kl_warmup and their schedules.")
    n = made.model.n_components
    if not target < n:
        raise ValueError(f"target_active must be below n_components, {n}; got {target!r}.")
    if any(isinstance(s, KeepMean) and s.measure == "nonzeros" for s in made.schedules.values()):
        return made  # by a knob of the model's own
    weights = {k: float(getattr(made.objective, k)) for k in made.objective.knobs if k.startswith("kl_")}
    dial = {
        k: KeepMean("nonzeros", float(target), first=v, lowest=v / 300, highest=300 * v)
        for k, v in weights.items()
        if v
    }
    if not dial:
        raise ValueError("target_active needs a KL with a weight above 0 in the objective.")
    return made._replace(schedules={**made.schedules, **dial})


def check_target(est: SparseCoder) -> None:
    """Warn if the codes' mean non-zeros at the last report are far from the target."""
    target, history = getattr(est, "target_active", None), est.fitted_.history
    if target is None or not history:
        return
    found = history[-1]["nonzeros"]
    if abs(found - target) > _TOLERANCE * target:
        warn_caller(
            f"target_active={target:g}: codes have {found:.3g} non-zeros in the mean. Try more training.steps, more "
            "n_components, or for more non-zeros a smaller variance or variance_floor.",
            SparsityWarning,
        )
