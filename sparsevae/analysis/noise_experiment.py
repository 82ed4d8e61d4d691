"""Why a unit dies, as an experiment: add noise to it until it costs more than it brings (Asperti, figure 14).

The decoder hears z_j + noise * N(0, 1) instead of z_j, while q(z|x) and its KL stay as they are. The network answers
with larger means, which cost KL, until the gain falls below the KL; then the unit collapses. Without the noise it can
come back.
"""

from __future__ import annotations

import copy
import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution

from sparsevae.analysis.audit import audit, check_coder, check_gain_rows
from sparsevae.analysis.measure import measure
from sparsevae.checks import check_number
from sparsevae.distributions.gaussian import normal
from sparsevae.estimator.coder import SparseCoder
from sparsevae.exceptions import SparsityWarning
from sparsevae.inputs.batch import Batch
from sparsevae.latent.codes import ACTIVE_VARIANCE
from sparsevae.latent.model import LatentModel, Observed, Site, Trace
from sparsevae.latent.posteriors import GaussianPosterior
from sparsevae.sampling.draw import Draw
from sparsevae.sampling.noise import PerRow, mix, row_keys
from sparsevae.threads import inference
from sparsevae.training.history import History


class _Degraded(LatentModel):
    """The same networks; the decoder hears z with noise, and frozen units stay at their prior whatever x is."""

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
        """z, and what the decoder hears of it."""
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
    """Degrade one unit step by step until it collapses, then let it recover. `est` is left alone.

    Units that are inactive already are frozen at their prior, or the network would wake one of them up instead.

    Parameters
    ----------
    est : SparseCoder
        A fitted model with a Gaussian code.
    X : array
        Training rows.
    unit : int, optional
        The unit to degrade; the active one with the smallest KL when left out.
    start, factor : float
        First noise (standard deviation), and its growth from one stage to the next.
    most : int
        Stages at the longest; noise stops growing where the gain falls below the KL.
    epochs : int
        Passes over X in every stage.
    hold, revive : int
        Stages at the longest with the last noise, until the unit's var_mean is below .01, and without noise, until it
        is above .01 and its gain above its KL again.
    gain_rows : int or None
        As in `audit`.

    Returns
    -------
    History
        One row a stage: phase ("before", "degrade", "hold", "revive"), noise, gain, kl, var_mean, mean_variance.
    """
    check_coder("noise_experiment", est)
    check_number("start", start, "a number above 0", lambda v: v > 0)
    check_number("factor", factor, "a number above 1", lambda v: v > 1)
    for name, count in {"most": most, "epochs": epochs, "hold": hold, "revive": revive}.items():
        check_number(name, count, "an integer above 0", lambda v: v > 0, whole=True)
    check_gain_rows(gain_rows)
    n = est.fitted_.n_units
    if unit is not None:
        check_number("unit", unit, f"an integer, a unit from 0 to {n - 1}", lambda j: 0 <= j < n, whole=True)
    if type(est.model_) is not LatentModel:
        raise TypeError(f"noise_experiment tells a plain VAE's story; {type(est).__name__} has one of its own.")
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

    def stage(phase: str, noise: float, passes: int) -> tuple[float, float, float]:
        model.noise[unit] = noise
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SparsityWarning)
            for _ in range(passes):
                copied.partial_fit(X)
        row = _look(copied, model, X, unit, gain_rows)
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
        return table  # it never paid to give the unit up
    for _ in range(hold):
        if spread < ACTIVE_VARIANCE:
            break
        _, _, spread = stage("hold", noise, epochs)
    for _ in range(revive):
        gain, kl, spread = stage("revive", 0.0, epochs)
        if spread > ACTIVE_VARIANCE and gain > kl:
            break
    return table


def _look(est: SparseCoder, model: _Degraded, X: Any, unit: int, gain_rows: int | None) -> dict[str, float]:
    def draw(q: Distribution, x: Tensor) -> Tensor:
        return model.degrade(q, Draw(PerRow(row_keys(x), mix(7)), hard=True))[1]

    with inference(est.fitted_.device):
        found = measure(
            lambda rows: est.fitted_.blocks(rows).pairs(),
            est.fitted_.rows(X),
            model.encode,
            model.decode,
            lambda x, q: model.prior(x, model.encode),
            draw=draw,
            gain_rows=gain_rows,
            units=[unit],
        )
    return {k: float(getattr(found, k)[unit]) for k in ("gain", "kl", "var_mean", "mean_variance")}
