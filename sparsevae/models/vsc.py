"""Variational Sparse Coding with a fixed spike-and-slab prior (Tonolini, Jensen and Murray-Smith, ICLR version)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, Any, ClassVar

from torch import Generator

from sparsevae.checks import POSITIVE, In, OneOf
from sparsevae.estimator.assemble import Build, DataSpec, assemble
from sparsevae.estimator.coder import SparseCoder
from sparsevae.estimator.fields import FromTexts, Gates, ObservedData, gate_of, prior_share
from sparsevae.latent.objective import Objective, nll
from sparsevae.latent.posteriors import LogNormalPosterior, SlabPosterior, SpikeSlabPosterior
from sparsevae.latent.priors import FixedLogNormal, FixedSpikeSlab, Patterns
from sparsevae.parameters import parameters

DEFAULTS_OF_GATES: dict[str, dict[str, Any]] = {
    "numbers": {"kl_z": 1.0, "gate": "sigmoid"},
    "texts": {"kl_z": 0.05, "gate": "straight-through-concrete"},
}
SLABS: dict[str, tuple[type[SpikeSlabPosterior], type[FixedSpikeSlab]]] = {
    "normal": (SpikeSlabPosterior, FixedSpikeSlab),
    "log-normal": (LogNormalPosterior, FixedLogNormal),
}
"""Posterior and prior by the name of the slab."""


@parameters
class VSC(Gates, ObservedData, FromTexts, SparseCoder):
    r"""Variational Sparse Coding: most units of a code are exactly zero.

    .. math:: \mathcal L = -E_{q} \log p(x|z)
       + \sum_j \left[ p_j KL(\mathcal N(\mu_j, \sigma_j^2) \,\|\, \mathcal N(0, 1)) + KL_B(p_j; \alpha) \right]

    with posterior :math:`q = p_j \mathcal N(\mu_j, \sigma_j^2) + (1 - p_j)\delta_0` (the paper's gamma is p_on).
    Gate logits are unconstrained, not the paper's -ReLU(-v), whose gradient vanishes (erratum 3). The paper's VSC is
    VSC(n, alpha=..., skip=False, start="random", gate="sigmoid"); VSC(n, alpha=1, skip=False) is the VAE.

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

    # For texts gates start open: they would close for good before their slabs carry information.
    defaults_by_kind: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "numbers": {"kl_z": 1.0, "gate": "straight-through-concrete", "skip": True, "start": "rows"},
        "texts": {**DEFAULTS_OF_GATES["texts"], "n_components": 64, "alpha": 0.4},
    }

    n_components: Annotated[
        int | None, POSITIVE, "Number of latent units J; None: one per 20 rows, 12 to 256; texts: 64."
    ] = field(default=None, kw_only=False)
    alpha: Annotated[
        float | None, In(0, 1, "(]"), "Prior probability of on; None: such that 6 units are expected on; texts: .4."
    ] = None
    patterns: Annotated[
        int, In(0), "Learn a prior of so many patterns, which units are on together; 0: units are independent."
    ] = 0
    slab: Annotated[
        str, OneOf(*SLABS), "Distribution of a unit that is on: N(0, 1), or log-normal, for codes without negatives."
    ] = "normal"

    def rules(self) -> None:
        if self.slab != "normal" and (self.alpha == 1 or self.patterns):
            raise ValueError(
                f"slab={self.slab!r} is for alpha below 1 and patterns=0; got alpha={self.alpha!r} and "
                f"patterns={self.patterns!r}."
            )

        if self.alpha == 1 and (self.patterns or self.target_active is not None):
            raise ValueError(
                "alpha=1 leaves all units on: patterns and target_active need alpha below 1; got "
                f"patterns={self.patterns!r} and target_active={self.target_active!r}."
            )
        if self.patterns:
            self.refuse_free_bits()

    def defaults_for(self, kind: str, n_rows: int) -> dict[str, Any]:
        found = super().defaults_for(kind, n_rows)
        n = found.setdefault("n_components", min(256, max(12, n_rows // 20)))
        n = n if self.n_components is None else int(self.n_components)
        found.setdefault("alpha", prior_share(self, n, min(0.5, 6 / n)))
        return found

    def build(self, data: DataSpec, weights: Generator | None) -> Build:
        n, patterns = int(self.value("n_components")), int(self.patterns)
        alpha = self.value("alpha")
        gate, schedules = gate_of(self)
        dense = alpha == 1
        family, fixed = SLABS[self.slab]
        posterior = SlabPosterior() if dense else family(gate)
        prior = Patterns(n, patterns, alpha) if patterns else fixed(n, alpha)
        model = assemble(self, data, posterior, prior, weights)
        objective = Objective(nll, self.kl_term(), weights={"kl_z": float(self.value("kl_z"))})
        return Build(model, objective, {} if dense else schedules)
