"""Constructor fields that several models share: a model mixes in those that mean something for it."""

from __future__ import annotations

from dataclasses import field
from typing import Annotated, Any

from torch import nn

from sparsevae.checks import check_number
from sparsevae.inputs.texts import Text
from sparsevae.likelihoods.choose import HELP, LIKELIHOODS, users_of
from sparsevae.parameters import check_choice, check_course, check_weight, parameters
from sparsevae.sampling.gradients import GATES, SLOPE, Estimator, build_estimator, scheduled
from sparsevae.schedules import Linear, Schedule


@parameters
class Units:
    """The size of the code."""

    n_components: Annotated[int, "Number of latent units J."] = field(default=64, kw_only=False)

    def check(self) -> None:
        super().check()  # type: ignore[misc]
        check_number("n_components", self.n_components, "an integer above 0", lambda n: n > 0, whole=True)


@parameters
class ObservedData:
    """p(x|z): its network and its family."""

    decoder: Annotated[nn.Module | None, "Your own network, (B, J) -> (B, any width); a linear head is added."] = None
    likelihood: Annotated[str, HELP] = "auto"
    variance_floor: Annotated[float, f"Least variance of {users_of('variance_floor')}, in scaled units."] = 0.03
    variance: Annotated[float, f"Variance of {users_of('variance')}, in scaled units."] = 0.1

    def check(self) -> None:
        super().check()  # type: ignore[misc]
        check_choice("likelihood", self.likelihood, LIKELIHOODS)
        for name in ("variance_floor", "variance"):
            check_number(
                name, getattr(self, name), "a number above 0 (1e-3 to 1e-1 suits scaled data)", lambda v: v > 0
            )


@parameters
class FromTexts:
    """X may be texts."""

    text: Annotated[Text | None, "How texts are read; None means Text()."] = None


@parameters
class Gates:
    """A spike-and-slab code: how a gradient passes its gates in training, and the weight of its KL."""

    gate: Annotated[
        str | None,
        "How gradients pass the gates: sigmoid (VSC's paper), or an estimator of `gradients`: "
        "straight-through-concrete, rloo and more. None: sigmoid, for texts straight-through-concrete.",
    ] = None
    sharpness: Annotated[tuple[float, float], "Sharpness of the sigmoid gate, first and last."] = (50.0, 200.0)
    temperature: Annotated[float, "Temperature of the concrete gates."] = 0.5
    kl_z: Annotated[float | None, "Weight of the KL of z in training; None: 1, for texts .05. Scores have 1."] = None

    def check(self) -> None:
        super().check()  # type: ignore[misc]
        if self.gate is not None:
            check_choice("gate", self.gate, GATES)
        if not (isinstance(self.sharpness, (tuple, list)) and len(self.sharpness) == 2):
            raise ValueError(f"sharpness must be two numbers above 0, first and last; got {self.sharpness!r}.")
        for sharpness in self.sharpness:
            check_number("sharpness", sharpness, "two numbers above 0, first and last", lambda c: c > 0)
        check_number("temperature", self.temperature, "a number above 0", lambda t: t > 0)
        check_weight("kl_z", self.kl_z)


def gate_of(est: Any) -> tuple[Estimator, dict[str, Schedule]]:
    """The gradient estimator of a model with `Gates`, and the schedules of its settings."""
    kind = GATES[est.value("gate")]
    settings = {"sharpness": Linear(*est.sharpness), "temperature": est.temperature, "slope": SLOPE}
    return build_estimator(kind, settings), scheduled(kind, settings)


@parameters
class Choices:
    """A discrete code: settings of the estimators that pass gradients through its draws."""

    slope: Annotated[
        float | Schedule, "By what gradient='slope-annealed' multiplies the logits: a number or a schedule."
    ] = SLOPE
    samples: Annotated[int, "Draws of an item that gradient='rloo' compares."] = 4

    def check(self) -> None:
        super().check()  # type: ignore[misc]
        check_course("slope", self.slope, "a number above 0", lambda v: v > 0)
        check_number("samples", self.samples, "an integer above 1", lambda n: n > 1, whole=True)
