"""The capacity VAE: the KL is kept near a given number of nats (Burgess et al., 2018)."""

from __future__ import annotations

from numbers import Integral
from typing import Annotated

from torch import Generator

from sparsevae.checks import In, Position
from sparsevae.estimator.assemble import Build, DataSpec, assemble
from sparsevae.estimator.coder import SparseCoder
from sparsevae.estimator.fields import FromTexts, ObservedData, Units
from sparsevae.latent.objective import Objective, nll
from sparsevae.latent.posteriors import GaussianPosterior
from sparsevae.latent.priors import StandardNormal
from sparsevae.latent.terms import Capacity
from sparsevae.parameters import parameters
from sparsevae.schedules import Linear


@parameters
class CapacityVAE(Units, ObservedData, FromTexts, SparseCoder):
    r"""VAE with a penalty on the distance of its KL from a capacity C.

    .. math:: \mathcal L = -E_{q} \log p(x|z) + \gamma\, | \overline{KL}(q(z|x) \,\|\, \mathcal N(0, 1)) - C |

    with the mean KL of the batch inside the bars. C = 0 is a beta-VAE with beta = gamma. C is the knob `capacity`, for
    schedules such as {'capacity': Linear(0, 25)}; the distance from it, in the history too, is `capacity_gap`.

    {parameters}

    {attributes}

    References
    ----------
    Burgess et al., "Understanding disentangling in beta-VAE", 2018. HSVAE's dense baseline has C = 0, 5, 10 or 15.

    Examples
    --------
    >>> import sparsevae as sv
    >>> X = sv.data.load("digits").X
    >>> est = sv.CapacityVAE(8, capacity=5.0, training=sv.Training(steps=100, learning_rate=1e-2, verbose=0)).fit(X)
    >>> round(est.history_.column("kl_z")[-1])
    5
    """

    capacity: Annotated[float, In(0), "C, in nats: the target of the mean KL of a batch."] = 10.0
    ramp: Annotated[int | float, Position(), "Where C, from 0, reaches its value; 0: C is constant."] = 0
    gamma: Annotated[float, In(0), "Weight of the distance from C."] = 10.0

    def rules(self) -> None:
        self.refuse_free_bits()

    def check_run(self, steps: int) -> None:
        if isinstance(self.ramp, Integral) and self.ramp > steps:
            raise ValueError(
                f"ramp must be within the run's {steps} steps, or C is never reached; got {self.ramp!r}. A share of "
                "the run, such as 0.5, fits runs of any length."
            )

    def build(self, data: DataSpec, weights: Generator | None) -> Build:
        model = assemble(self, data, GaussianPosterior(), StandardNormal(int(self.n_components)), weights)
        objective = Objective(nll, Capacity(self.capacity), weights={"kl_z": 0.0, "capacity_gap": float(self.gamma)})
        ramp = {"capacity": Linear(0.0, float(self.capacity), end=self.ramp)} if self.ramp else {}
        return Build(model, objective, ramp)
