"""Variational Sparse Coding with a fixed spike-and-slab prior (Tonolini, Jensen and Murray-Smith, ICLR version)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from sparsevae.checks import POSITIVE, In, OneOf
from sparsevae.distributions.family import Family
from sparsevae.estimator.coder import SparseCoder
from sparsevae.latent.posteriors import SlabPosterior, SpikeSlabPosterior
from sparsevae.latent.priors import FixedSpikeSlab, Prior
from sparsevae.parameters import parameters
from sparsevae.sampling.gradients import GATES, SLOPE, Estimator, build_estimator, scheduled
from sparsevae.schedules import Linear, Schedule


@parameters
class GatedCoder(SparseCoder):
    """What models with gates of a spike-and-slab share: how a gradient passes them in training."""

    defaults_by_kind: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "numbers": {"kl_z": 1.0, "gate": "sigmoid"},
        "texts": {"kl_z": 0.05, "gate": "straight-through-concrete"},
    }

    gate: Annotated[
        str | None, OneOf(*GATES), "How gradients pass the gates; None: sigmoid, for texts straight-through-concrete."
    ] = None
    sharpness: Annotated[tuple[float, float], POSITIVE, "Of the sigmoid gate, first and last."] = (50.0, 200.0)
    temperature: Annotated[float, POSITIVE, "Temperature of the concrete gates."] = 0.5
    kl_z: Annotated[float | None, In(0), "Weight of the KL of z in training; None: 1, for texts .05."] = None

    def weights(self) -> dict[str, float]:
        return {"kl_z": float(self._value("kl_z"))}

    def _gate(self) -> Estimator:
        return build_estimator(GATES[self._value("gate")], self._gate_settings())

    def _gate_settings(self) -> dict[str, float | Schedule]:
        return {"sharpness": Linear(*self.sharpness), "temperature": self.temperature, "slope": SLOPE}

    def schedules(self) -> dict[str, Schedule]:
        return scheduled(GATES[self._value("gate")], self._gate_settings())


@parameters
class VSC(GatedCoder):
    r"""Variational Sparse Coding: most units of a code are exactly zero.

    .. math:: \mathcal L = -E_{q} \log p(x|z)
       + \sum_j \left[ p_j KL(\mathcal N(\mu_j, \sigma_j^2) \,\|\, \mathcal N(0, 1)) + KL_B(p_j; \alpha) \right]

    with posterior :math:`q = p_j \mathcal N(\mu_j, \sigma_j^2) + (1 - p_j)\delta_0` (the paper's gamma is p_on).
    Gate logits are free, not the paper's -ReLU(-v), whose gradient dies (erratum 3). alpha = 1 is the VAE.

    {parameters}

    {attributes}

    References
    ----------
    Tonolini, Jensen, Murray-Smith, "Variational sparse coding", 2018 (equations 3 to 10).

    Examples
    --------
    >>> import sparsevae as sv
    >>> X = sv.data.load("digits").X
    >>> est = sv.VSC(32, alpha=0.1, training=sv.Training(steps=100, kl_warmup=0.9, verbose=0)).fit(X)
    >>> Z = est.transform(X, max_active=5)
    >>> Z.format, bool(Z.count_nonzero(axis=1).max() <= 5)
    ('csr', True)
    """

    # Of texts a gate must not rest shut: it would shut for good before its slab has learned to tell anything.
    defaults_by_kind: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "numbers": {**GatedCoder.defaults_by_kind["numbers"], "alpha": 0.1},
        "texts": {**GatedCoder.defaults_by_kind["texts"], "alpha": 0.4},
    }

    alpha: Annotated[float | None, In(0, 1, "(]"), "Prior probability of on; None: .1, for texts .4."] = None

    def posterior(self) -> Family:
        if self._value("alpha") == 1:
            return SlabPosterior()
        return SpikeSlabPosterior(self._gate())

    def prior(self) -> Prior:
        return FixedSpikeSlab(int(self.n_components), self._value("alpha"))

    def schedules(self) -> dict[str, Schedule]:
        return {} if self._value("alpha") == 1 else super().schedules()
