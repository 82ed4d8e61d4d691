"""Variational Sparse Coding with a learned prior (Tonolini, Jensen and Murray-Smith, UAI version)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from torch import Generator, nn

from sparsevae.checks import POSITIVE, In, Note, OneOf
from sparsevae.estimator.assemble import Build, DataSpec, assemble
from sparsevae.estimator.coder import SparseCoder
from sparsevae.estimator.fields import Gates, ObservedData, Units, gate_of
from sparsevae.latent.objective import Objective, nll
from sparsevae.latent.posteriors import WarmSpikeSlabPosterior
from sparsevae.latent.pseudo_inputs import SELECTIONS, PseudoInputs
from sparsevae.latent.terms import AggregateSparsity
from sparsevae.models.vsc import DEFAULTS_OF_GATES
from sparsevae.networks.convolutions import BatchNorm
from sparsevae.parameters import parameters
from sparsevae.schedules import KeepMean, Linear


@parameters
class PseudoVSC(Gates, Units, ObservedData, SparseCoder):
    r"""VSC with a learned prior: a mixture of the codes of a few pseudo-inputs, with weights w(x) per row.

    .. math:: \mathcal L = -E_{q} \log p(x|z) + \sum_u w_u(x) KL(q(z|x) \,\|\, q(z|x_u))
       + KL(w(x) \,\|\, \rho) + J\, KL_B(\bar\gamma_u; \alpha)

    The last term keeps the pseudo-inputs' codes sparse. The slab warm-up (the papers' lambda) replaces slabs by noise
    N(0, 1) until `slab_warmup[0]`, so that gates are learned first, and interpolates until `slab_warmup[1]`. On
    Fashion-MNIST, one seed, the default was 2.8 nats better than (.2, .3); the authors' later settings, about (.4, .4)
    and (.45, .5), were not run. Samples and bounds use the mixture of all pseudo-inputs (erratum 32).
    selection="softmax" is ours; "paper" (with a KL that starts at weight 0) and "authors" (as in their code) have no
    KL(w || rho). By the bound, "authors" was as good as ours there (one seed); "paper" left every unit on. The authors
    also restart their optimiser when the learning rate drops: training=Training(decay="step", restart_optimizer=True).

    {parameters}

    {attributes}

    References
    ----------
    Tonolini, Jensen, Murray-Smith, "Variational sparse coding", UAI 2019.

    Examples
    --------
    >>> import sparsevae as sv
    >>> X = sv.data.load("digits").X
    >>> est = sv.PseudoVSC(32, pseudo_inputs=5, training=sv.Training(steps=100, kl_warmup=0.9, verbose=0)).fit(X)
    >>> est.model_.prior.inputs.shape, round(float(est.model_.prior.rho.sum()), 3)
    (torch.Size([5, 64]), 1.0)
    """

    attributes: ClassVar[Mapping[str, tuple[str, str]]] = {
        "model_.prior.inputs": ("Tensor (U, D)", "the pseudo-inputs"),
        "model_.prior.rho": ("Tensor (U,)", "their mixture weights"),
    }
    defaults_by_kind: ClassVar[Mapping[str, Mapping[str, Any]]] = {"numbers": DEFAULTS_OF_GATES["numbers"]}

    alpha: Annotated[
        float, In(0, 1, "()"), Note("with alpha = 1 use VAE"), "Mean P(on) that the aggregate-sparsity term aims at."
    ] = 0.1
    pseudo_inputs: Annotated[int, POSITIVE, "Number U of learned pseudo-inputs."] = 20
    selection: Annotated[str, OneOf(*SELECTIONS), "How w(x) is computed; softmax is ours."] = "softmax"
    sparsity: Annotated[float, In(0), "Weight of the aggregate-sparsity term."] = 1.0
    slab_warmup: Annotated[
        tuple[float, float], In(0, 1), "Shares of the run where the slab warm-up begins and ends."
    ] = (0.0, 0.02)

    def rules(self) -> None:
        if self.slab_warmup[0] > self.slab_warmup[1]:
            raise ValueError(f"slab_warmup must begin before it ends; got {self.slab_warmup!r}.")

    def build(self, data: DataSpec, weights: Generator | None) -> Build:
        n, d, inputs = int(self.n_components), data.input.width, int(self.pseudo_inputs)
        gate, schedules = gate_of(self)
        prior = PseudoInputs(n, d, inputs, SELECTIONS[self.selection](d, inputs))
        model = assemble(self, data, WarmSpikeSlabPosterior(gate), prior, weights)
        if any(isinstance(m, (BatchNorm, nn.modules.batchnorm._BatchNorm)) for m in model.encoder.modules()):
            raise ValueError(
                "PseudoVSC's encoder must not normalise over a batch: it would treat rows and pseudo-inputs as two "
                "kinds of data. Use network='dense' or 'conv', or an encoder without BatchNorm."
            )
        own = {"kl_z": float(self.value("kl_z")), "sparsity": float(self.sparsity)}
        objective = Objective(nll, self.kl_term(), AggregateSparsity(float(self.alpha)), weights=own)
        begin, end = (float(s) for s in self.slab_warmup)
        plan = schedules | {"slab_warmup": Linear(0.0, 1.0, begin=begin, end=end)}
        if self.target_active is not None:  # the KL keeps codes near the pseudo-inputs', and these near alpha
            first = {"first": float(self.alpha), "lowest": 1e-4, "highest": 0.9}
            plan["alpha"] = KeepMean("nonzeros", float(self.target_active), **first, proportional=-1.0, integral=-0.2)
        return Build(model, objective, plan)
