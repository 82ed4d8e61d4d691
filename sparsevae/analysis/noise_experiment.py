"""An experiment on the collapse of a unit: add noise to it until its gain falls below its KL (Asperti, figure 14).

The decoder gets z_j + noise * N(0, 1) instead of z_j, while q(z|x) and its KL keep their definition. Under
training the means grow, which raises the KL, until the gain falls below the KL; then the unit collapses. Without the
noise it can become active again.
"""

from __future__ import annotations

import copy
import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution

from sparsevae.analysis.audit import audit, check_coder
from sparsevae.analysis.measure import measure_fitted
from sparsevae.checks import POSITIVE, In
from sparsevae.distributions.gaussian import normal
from sparsevae.estimator.coder import SparseCoder
from sparsevae.exceptions import SparsityWarning
from sparsevae.inputs.batch import Batch
from sparsevae.latent.codes import ACTIVE_VARIANCE
from sparsevae.latent.model import LatentModel, Observed, Site, Trace
from sparsevae.latent.posteriors import GaussianPosterior
from sparsevae.parameters import check_value
from sparsevae.sampling.draw import Draw
from sparsevae.sampling.noise import PerRow, mix, row_keys
from sparsevae.training.history import History


class _Degraded(LatentModel):
    """The same networks with noise between z and the decoder; q(z_j|x) of frozen units is the prior for every x."""

    noise: Tensor
    frozen: Tensor

    def __init__(self, model: LatentModel, frozen: Tensor) -> None:
        super().__init__(model.encoder, model.posterior, model.decoder, model.likelihood, model.prior)
        self.register_buffer("frozen", frozen, persistent=False)
        self.register_buffer("noise", torch.zeros(len(frozen), device=frozen.device), persistent=False)

    def posterior_from(self, raw: Tensor, copies: int = 1) -> Distribution:
        q: Any = super().posterior_from(raw, copies)  # independent Gaussians
        own = q.base_dist
        return normal(torch.where(self.frozen, 0.0, own.loc), torch.where(self.frozen, 1.0, own.scale))

    def degrade(self, q: Distribution, draw: Draw) -> tuple[Tensor, Tensor]:
        """z (B, J), and z with the noise, the input of the decoder."""
        z = draw(q)
        return z, z + self.noise * draw.noise.normal(z)

    def trace(self, batch: Batch, raw: Tensor, draw: Draw, copies: int = 1) -> Trace:
        x, q = batch.copies(copies).x, self.posterior_from(raw, copies)
        z, degraded = self.degrade(q, draw)
        site = Site(q, self.prior(x, self.encode), z)
        return Trace({"z": site}, {"x": Observed(self.decode(degraded), x)}, draw.hard)


def noise_experiment(
    est: SparseCoder,
    X: Any,
    unit: int | None = None,
    *,
    start: float = 0.5,
    factor: float = 1.5,
    most: int = 20,
    epochs: int = 1,
    hold: int = 20,
    revive: int = 20,
    gain_rows: int | None = 1000,
) -> History:
    """Add growing noise to one unit until it collapses, then train without the noise. `est` is not changed.

    Units that are inactive at the start are frozen at their prior: otherwise training could replace the unit by one of
    them.

    Parameters
    ----------
    est : SparseCoder
        A fitted model with a Gaussian code.
    X : array
        Training rows.
    unit : int, optional
        The unit to degrade. Default: the active unit with the smallest KL.
    start, factor : float
        First standard deviation of the noise, and the factor of its growth from one stage to the next.
    most : int
        Most stages with growing noise; it stops growing when the gain is below the KL.
    epochs : int
        Passes over X per stage.
    hold, revive : int
        Most stages with the last noise, until the unit's var_mean is below .01; and most stages without noise, until
        var_mean is above .01 and the gain above the KL.
    gain_rows : int or None
        As in `audit`.

    Returns
    -------
    History
        One row per stage: phase ("before", "degrade", "hold", "revive"), noise, gain, kl, var_mean, mean_variance.
    """
    check_coder("noise_experiment", est)
    POSITIVE.check("start", start)
    In(1, None, "()").check("factor", factor)
    for name, count in {"most": most, "epochs": epochs, "hold": hold, "revive": revive}.items():
        POSITIVE.check(name, count, whole=True)
    check_value("gain_rows", gain_rows, int | None, [POSITIVE])
    n = est.fitted_.n_units
    if unit is not None:
        In(0, n - 1).check("unit", unit, f"an integer, a unit from 0 to {n - 1}", whole=True)
    if type(est.model_) is not LatentModel:
        raise TypeError(
            f"noise_experiment needs the generative process of a plain VAE; {type(est).__name__} has its own: use VAE."
        )
    if not isinstance(est.model_.posterior, GaussianPosterior):
        raise TypeError(f"noise_experiment needs a Gaussian code, such as a VAE's; {type(est).__name__} has another.")
    found = audit(est, X, gain_rows=gain_rows)
    if not found.n_active:
        raise ValueError(f"there is no active unit to degrade. {found.words}")
    if unit is None:
        unit = int(np.where(found.active, found.kl, np.inf).argmin())
    if not found.active[unit]:
        raise ValueError(f"unit {unit} is inactive already; active are {np.flatnonzero(found.active).tolist()}.")
    copied = copy.deepcopy(est).set_params(training__verbose=0)
    model = _Degraded(copied.model_, torch.from_numpy(~found.active).to(est.fitted_.device))
    copied.fitted_.model = model.eval()
    table = History()

    def degraded(q: Distribution, x: Tensor) -> Tensor:
        return model.degrade(q, Draw(PerRow(row_keys(x), mix(7)), hard=True))[1]

    def stage(phase: str, noise: float, passes: int) -> tuple[float, float, float]:
        """Train with the noise, and append a row to the table; returns gain, KL and var_mean of the unit."""
        model.noise[unit] = noise
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SparsityWarning)
            for _ in range(passes):
                copied.partial_fit(X)
        found = measure_fitted(copied, X, draw=degraded, gain_rows=gain_rows, units=[unit])
        row = {k: float(getattr(found, k)[unit]) for k in ("gain", "kl", "var_mean", "mean_variance")}
        table.append({"phase": phase, "noise": noise, **row})
        return row["gain"], row["kl"], row["var_mean"]

    stage("before", 0.0, 0)
    noise = start
    for _ in range(most):
        gain, kl, spread = stage("degrade", noise, epochs)
        if gain < kl:
            break
        noise *= factor
    else:
        return table  # the gain never fell below the KL
    for _ in range(hold):
        if spread < ACTIVE_VARIANCE:
            break
        _, _, spread = stage("hold", noise, epochs)
    for _ in range(revive):
        gain, kl, spread = stage("revive", 0.0, epochs)
        if spread > ACTIVE_VARIANCE and gain > kl:
            break
    return table
