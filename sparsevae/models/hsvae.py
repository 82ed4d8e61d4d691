"""HSVAE: the probability that a unit is off is a latent variable too (Prokhorov, Li, Shareghi and Collier)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import torch
from torch import Generator, Tensor

from sparsevae.checks import POSITIVE, In, Note, OneOf
from sparsevae.estimator.assemble import Build, DataSpec, assemble
from sparsevae.estimator.coder import SparseCoder
from sparsevae.estimator.fields import FromTexts, Gates, ObservedData, Units, gate_of
from sparsevae.inputs.base import Array
from sparsevae.inputs.batch import Batch, blocks
from sparsevae.latent.model import LatentModel, Observed, Site, Trace
from sparsevae.latent.objective import Objective, nll
from sparsevae.latent.posteriors import HierarchicalPosterior
from sparsevae.latent.priors import BetaGates
from sparsevae.parameters import parameters
from sparsevae.sampling.draw import Draw
from sparsevae.sampling.gradients import GATES


class Hierarchical(LatentModel):
    """x -> q(gamma|x) -> gamma -> q(z|gamma, x) -> z -> p(x|z). The draw of gamma is its logit, (*members, B, J).

    `encode` is q(z|x) with gamma averaged out: codes are its modes. Bounds use the trace, with both latents.
    """

    posterior: HierarchicalPosterior
    prior: BetaGates

    def trace(self, batch: Batch, raw: Tensor, draw: Draw, copies: int = 1) -> Trace:
        x, raw = batch.copies(copies).x, blocks(raw, copies)
        q_gamma, p_gamma = self.posterior.gates(raw), self.prior.gates()
        gamma = draw(q_gamma) if draw.hard else self.share(draw(q_gamma))
        q, p = self.posterior.given(raw, gamma), self.prior.given(gamma)
        z = draw(q)
        latents = {"gamma": Site(q_gamma, p_gamma, gamma), "z": Site(q, p, z)}
        return Trace(latents, {"x": Observed(self.decode(self.shown(z, draw)), x)}, draw.hard)

    def share(self, gamma: Tensor) -> Tensor:
        """Draws of gamma, (..., R, J), in blocks (shared, R / shared) of the same items: all take the first block's."""
        shared, rows = self.posterior.shared, gamma.shape[-2]
        if rows % shared:
            raise ValueError(
                f"{shared} rows of each item share one gamma, got {rows} rows in all: repeat the batch, "
                f"x.repeat({shared}, 1), as the training loop does."
            )
        return torch.cat([gamma[..., : rows // shared, :]] * shared, -2)


_GATES = OneOf(*(name for name in GATES if "slope" not in GATES[name].knobs))
_STEEP = Note("for 'slope-annealed' use VSC: here gamma alone determines P(on), without a slope")
_ZERO, _SPIKE = OneOf(0), In(1e-3, 1, "[)")  # between 0 and 1e-3 training diverges


@parameters
class HSVAE(Gates, Units, ObservedData, FromTexts, SparseCoder):
    r"""Hierarchical sparse VAE: spike-and-slab codes whose gate probabilities are Beta distributed.

    .. math:: \mathcal L = -E_q \log p(x|z)
       + \psi\, E_{q(\gamma|x)} KL(q(z|\gamma, x) \,\|\, p(z|\gamma)) + \lambda\, KL(q(\gamma|x) \,\|\, p(\gamma)),

    .. math:: \gamma_j \sim \mathrm{Beta}(a_j(x), b_j(x)) \,\|\, \mathrm{Beta}(\alpha, \beta), \quad
       z_j \mid \gamma_j \sim \gamma_j\,\delta_0 + (1 - \gamma_j)\,\mathcal N(\mu_j(x), \sigma_j(x)^2)
       \,\|\, \gamma_j\,\delta_0 + (1 - \gamma_j)\,\mathcal N(0, 1)

    The paper's gamma is P(unit off) = 1 - p_on. Codes are p_on mu where its size is above .1, or mu where p_on > 1/2
    (code="mode"), else exactly zero. The paper's recipe is alpha=30, beta=10, spike_scale=0.05, kl_z=0.01,
    kl_gamma=0.01, skip=False, start="random", code="mode": its objective is no bound (errata 19 to 21).

    {parameters}

    {attributes}

    References
    ----------
    Prokhorov et al., "Hierarchical sparse variational autoencoder for text encoding", 2020 (equations 2 to 10).

    Examples
    --------
    >>> import sparsevae as sv
    >>> X = sv.data.load("digits").X
    >>> sv.HSVAE(32, kl_gamma=0.1, training=sv.Training(steps=300, verbose=0)).fit_transform(X).format
    'csr'
    """

    # For texts the weights are small, or the decoder ignores the code; and gates start open, or they close for good
    # before their slabs carry information: a closed gate adds no noise.
    defaults_by_kind: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "numbers": {
            **{"beta": 0.5, "kl_z": 1.0, "kl_gamma": 1.0, "gate": "straight-through-concrete"},
            **{"skip": True, "start": "rows", "code": "thresholded"},
        },
        "texts": {"beta": 1.2, "kl_z": 0.05, "kl_gamma": 0.03, "gate": "straight-through-concrete"},
    }

    alpha: Annotated[float, POSITIVE, "Prior concentration of off: P(off) = alpha / (alpha + beta) in the mean."] = 1.5
    beta: Annotated[
        float | None,
        POSITIVE,
        "Prior concentration of on; large alpha + beta: narrow. None: .5, for texts 1.2.",
    ] = None
    gate: Annotated[str | None, _GATES, _STEEP, "Gradient estimator of gates; None: straight-through-concrete."] = None
    spike_scale: Annotated[float, _ZERO, _SPIKE, "Standard deviation of an off unit; .05 in the paper."] = 0.0
    kl_z: Annotated[float | None, In(0), "Weight of the KL of z (psi); None: 1, for texts .05."] = None
    kl_gamma: Annotated[float | None, In(0), "Weight of the KL of gamma (lambda); None: 1, for texts .03."] = None
    n_gamma: Annotated[int, POSITIVE, "N: draws of gamma per item in training (equation 10)."] = 1
    n_z: Annotated[int, POSITIVE, "M: draws of z for each gamma in training."] = 1

    def build(self, data: DataSpec, weights: Generator | None) -> Build:
        n, spike = int(self.n_components), float(self.spike_scale)
        gate, schedules = gate_of(self)
        posterior = HierarchicalPosterior(gate, spike, int(self.n_gamma), int(self.n_z))
        prior = BetaGates(n, float(self.alpha), float(self.value("beta")), spike)
        model = assemble(self, data, posterior, prior, weights, Hierarchical)
        own = {name: float(self.value(name)) for name in ("kl_gamma", "kl_z")}
        return Build(model, Objective(nll, self.kl_term(), weights=own), schedules)

    def gates(self, X: Any) -> Array:
        """E[1 - gamma] = P(unit on), of every row and unit, (n, J)."""
        return self._from_posterior(X, lambda q: q.p_on)
