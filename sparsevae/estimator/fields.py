"""Mixins of constructor fields that several models share."""

from __future__ import annotations

from dataclasses import field
from typing import Annotated, Any

from torch import nn

from sparsevae.checks import POSITIVE, In, Note, OneOf
from sparsevae.inputs.texts import Text
from sparsevae.latent.codes import KINDS
from sparsevae.latent.start import STARTS
from sparsevae.likelihoods.choose import LIKELIHOODS, users_of
from sparsevae.parameters import parameters
from sparsevae.sampling.gradients import GATES, SLOPE, Estimator, build_estimator, scheduled
from sparsevae.schedules import Linear, Schedule

NETWORK = Note("of torch.nn")
_SCALED = Note("1e-3 to 1e-1 suits scaled data")


@parameters
class Units:
    """The size of the code."""

    n_components: Annotated[int, POSITIVE, "Number of latent units J."] = field(default=64, kw_only=False)


@parameters
class ObservedData:
    """Fields of p(x|z)."""

    decoder: Annotated[nn.Module | None, NETWORK, "Your network, (B, J) -> (B, width); a linear head is added."] = None
    decoder_hidden: Annotated[
        tuple[int, ...] | None,
        POSITIVE,
        "Sizes of the decoder's layers, from the code on; (): linear, a dictionary. None: `hidden`, reversed.",
    ] = None
    skip: Annotated[
        bool | None,
        OneOf(0, 1),
        "A linear path beside each deep network. None: True for VSC and HSVAE on numbers, else False.",
    ] = None
    likelihood: Annotated[
        str, OneOf(*LIKELIHOODS), "p(x|z). auto: bernoulli for 0/1 data, else gaussian, which learns its variance."
    ] = "auto"
    variance_floor: Annotated[
        float, POSITIVE, _SCALED, f"Least variance of {users_of('variance_floor')}, in scaled units."
    ] = 0.03
    variance: Annotated[float, POSITIVE, _SCALED, f"Variance of {users_of('variance')}, in scaled units."] = 0.1


@parameters
class FromTexts:
    """Field of models that can be fitted on texts."""

    text: Annotated[Text | None, "How texts are read; None means Text()."] = None


@parameters
class SparseCodes:
    """Fields of models whose codes have exact zeros."""

    target_active: Annotated[
        float | None,
        POSITIVE,
        "Mean non-zeros of a code; training finds the weights of KLs for it (PseudoVSC: alpha). None: no target.",
    ] = None
    max_active: Annotated[
        int | None, POSITIVE, "Most non-zeros of a code; scores are those of the whole posterior. None: no limit."
    ] = None


@parameters
class Gates(SparseCodes):
    """Fields of a spike-and-slab code: where its gates begin, how gradients pass them, and the weight of its KL."""

    start: Annotated[
        str | None,
        OneOf(*STARTS),
        "Linear paths begin as matched filters of the decoder or of the data. None: VSC, HSVAE: rows; else random.",
    ] = None
    gate: Annotated[
        str | None, OneOf(*GATES), "Gradient estimator of gates; None: straight-through-concrete, PseudoVSC: sigmoid."
    ] = None
    sharpness: Annotated[
        tuple[float, float], POSITIVE, "Sharpness of the sigmoid gate at the first and the last step."
    ] = (50.0, 200.0)
    temperature: Annotated[float, POSITIVE, "Temperature of the concrete gates."] = 0.5
    code: Annotated[
        str | None,
        OneOf(*KINDS),
        "What transform returns (see there). None: thresholded for HSVAE on numbers, else mode.",
    ] = None
    kl_z: Annotated[float | None, In(0), "Weight of the KL of z in training; None: 1, for texts .05."] = None


def gate_of(est: Any) -> tuple[Estimator, dict[str, Schedule]]:
    """The gradient estimator of a model with `Gates`, and the schedules of its settings."""
    kind = GATES[est.value("gate")]
    settings = {"sharpness": Linear(*est.sharpness), "temperature": est.temperature, "slope": SLOPE}
    return build_estimator(kind, settings), scheduled(kind, settings)


@parameters
class Choices:
    """Fields of a discrete code: settings of the gradient estimators of its draws."""

    slope: Annotated[float | Schedule, POSITIVE, "Factor of the logits, for gradient='slope-annealed'."] = SLOPE
    samples: Annotated[int, In(2), "Draws per item that gradient='rloo' compares."] = 4


_EXPECTED = 1.3  # units that the prior expects on per non-zero of a code, which has no gates of P(on) below 1/2


def prior_share(est: Any, n: int, otherwise: float) -> float:
    """P(on) of the prior of n units: with a target such that it expects somewhat more units on than that."""
    target: float | None = est.target_active
    return otherwise if target is None else min(0.5, _EXPECTED * float(target) / n)
