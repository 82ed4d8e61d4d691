"""SDLGM: discrete codes with a hard cap on active features (Xu, Onoro Rubio, Serra and Niepert)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn
from torch.distributions import Distribution

from sparsevae.checks import POSITIVE, In, Note, OneOf
from sparsevae.distributions.discrete_draws import CappedDraw, CountsDraw, GatedConcrete, Temperature
from sparsevae.distributions.family import Family
from sparsevae.inputs.base import Array
from sparsevae.latent import packing
from sparsevae.latent.posteriors import CappedPosterior, CountsPosterior, DiscretePosterior
from sparsevae.latent.priors import FixedCapped, FixedCounts, Prior
from sparsevae.models.discrete_vae import DiscreteCoder
from sparsevae.networks.architectures import Sizes, chosen
from sparsevae.networks.dense import Branched, initialise
from sparsevae.parameters import check_value, parameters
from sparsevae.sampling.gradients import ESTIMATORS
from sparsevae.schedules import Schedule

Alpha = Annotated[float, In(0, 1, "()"), "Prior share of the cap in use; for counts P(gate on): lambda_0."]
KL = Annotated[str, OneOf("tight", "paper"), "For features='counts', tight (KL of the code itself) or paper (larger)."]
Gradient = Annotated[str, OneOf("auto", "paper", *ESTIMATORS), "How gradients pass the draws; paper: relaxed counts."]
GateHidden = Annotated[tuple[int, ...], POSITIVE, "For features='counts', dense: hidden layers for P(gate on)."]
SharedLayers = Annotated[int, In(0), "For features='counts', dense: layers of the encoder for P(gate on) too."]
_BOUNDS = In(0, 1, "()", double=True), In(1, None, "()", double=True)


class Presence(nn.Module):
    """A decoder's first step: whether a feature is there, not how often."""

    def forward(self, z: Tensor) -> Tensor:
        return z.clamp_max(1)


@parameters
class SDLGM(DiscreteCoder):
    r"""A discrete code with at most `cap` active features.

    .. math:: \mathcal L = -E_q \log p(x|z) + KL(q(z|x) \,\|\, p(z)), \quad z = \sum_{l \le L_0} \omega_l e_{c_l}

    features="counts" is the paper's: L0 = cap gates, each on with probability lambda(x), times L0 one-hot features
    with probabilities pi(x). Their sum is exactly multinomial, so law, KL and mode are exact (erratum 14). The KL is
    that of the counts, L0 [KL_B(lambda; alpha) + lambda KL(pi || 1/K)]; kl="paper" is the published one, which also
    charges for features whose gate is off. features="distinct" is ours: n_components gates of which at most `cap` are
    on, so `cap` different features, with exact normaliser, KL, draws and mode. gradient="paper" relaxes gates and
    features, and its training objective is no bound; with tau="learned" and tau_bounds=None it is the paper's, whose
    temperatures run away. Scores are always of hard draws.

    {parameters}

    {attributes}

    References
    ----------
    Xu, Onoro Rubio, Serra, Niepert, "Learning sparsity of representations with discrete latent variables", eq. 8-17.

    Examples
    --------
    >>> import sparsevae as sv
    >>> X = sv.data.load("digits").X
    >>> training = sv.Training(steps=100, batch_size=32, learning_rate=5e-3, verbose=0)
    >>> est = sv.SDLGM(32, cap=5, features="distinct", training=training).fit(X)
    >>> Z = est.transform(X)
    >>> bool(Z.sum(1).max() <= 5), set(Z.data.tolist())
    (True, {1.0})
    >>> (est.unpack(est.pack(Z)) != Z).nnz
    0
    """

    cap: Annotated[int, POSITIVE, "L0: the most features that a code may have."] = 10
    features: Annotated[
        str, OneOf("counts", "distinct"), "counts (the paper's multinomial) or distinct (at most `cap` different ones)."
    ] = "counts"
    alpha: Alpha = 0.5
    kl: KL = "tight"
    gradient: Gradient = "auto"
    tau: Annotated[
        float | str | Schedule, POSITIVE, OneOf("learned"), "Temperature of gates; distinct: of concrete gradients too."
    ] = 0.5
    tau_z: Annotated[
        float | str | Schedule, POSITIVE, OneOf("learned"), "For features='counts', temperature of features, as tau."
    ] = 0.5
    tau_bounds: Annotated[
        tuple[float, float] | None, *_BOUNDS, "Bounds of learned temperatures; None lets them run away."
    ] = (0.1, 2.0)
    gate_hidden: GateHidden = (64,)
    shared_layers: SharedLayers = 0
    learned_prior: Annotated[bool, OneOf(0, 1), "Learn the prior of each feature; it starts from alpha."] = False
    binary: Annotated[bool, OneOf(0, 1), "Show the decoder which features are there, not how often."] = False

    def check(self) -> None:
        super().check()
        layers = 1 if self.hidden is None else len(self.hidden)
        check_value("shared_layers", self.shared_layers, int, [In(0, layers), Note("of the encoder's hidden layers")])
        if self.shared_layers and (self.network not in ("auto", "dense") or self.encoder is not None):
            raise ValueError("shared_layers is for network='dense': other encoders share all of theirs with the gate.")
        for name in ("tau", "tau_z"):
            if getattr(self, name) == "learned" and self._gradient() != "paper":
                raise ValueError(
                    f"{name} must be a number above 0, a schedule, or 'learned' with gradient='paper'; got 'learned' "
                    f"with gradient={self.gradient!r}."
                )
        able = [name for name, kind in ESTIMATORS.items() if "capped" in kind.kinds]
        if self.features == "distinct" and self._gradient() not in able:
            raise ValueError(
                f"gradient={self.gradient!r} cannot keep the cap of features='distinct'; use auto, {', '.join(able)}, "
                "or features='counts'."
            )

    def _gradient(self) -> str:
        if self.gradient != "auto":
            return self.gradient
        return "straight-through-concrete" if self.features == "counts" else "rloo"

    def in_force(self) -> dict[str, Any]:
        return super().in_force() | {"gradient": self._gradient()}

    def _temperature(self) -> float | str | Schedule:
        return self.tau if self.features == "distinct" else self.tau_z

    def _first(self, name: str) -> float | None:
        """The first value of a temperature; None where it is learned."""
        value = getattr(self, name)
        if isinstance(value, str):
            return None
        return float(value(0, 1) if callable(value) else value)

    def posterior(self) -> Family:
        if self.features == "distinct":
            return CappedPosterior(int(self.cap), CappedDraw(self._estimator()))
        if self._gradient() == "paper":
            bounds = None if self.tau_bounds is None else (float(self.tau_bounds[0]), float(self.tau_bounds[1]))
            return CountsPosterior(int(self.cap), GatedConcrete(self._first("tau"), self._first("tau_z"), bounds))
        return CountsPosterior(int(self.cap), CountsDraw(self._estimator()))

    def prior(self) -> Prior:
        n, cap, alpha = int(self.n_components), int(self.cap), float(self.alpha)
        if self.features == "distinct":
            return FixedCapped(n, cap, alpha, learned=bool(self.learned_prior))
        kl: Literal["tight", "paper"] = "paper" if self.kl == "paper" else "tight"
        return FixedCounts(n, cap, alpha, kl, learned=bool(self.learned_prior))

    def schedules(self) -> dict[str, Schedule]:
        if self._gradient() != "paper":
            return super().schedules()
        return {k: v for k, v in (("tau", self.tau), ("tau_z", self.tau_z)) if callable(v)}

    def _network(self, name: str, own: nn.Module | None, sizes: Sizes, weights: torch.Generator) -> nn.Module:
        dense = own is None and chosen(self.network, texts=sizes.words is not None) == "dense"
        if name == "decoder" or not dense or self.features == "distinct":
            network = super()._network(name, own, sizes, weights)
            if self.binary and sizes.words is not None:
                raise ValueError("binary=True is for rows of numbers, and X holds texts: leave it False.")
            return nn.Sequential(Presence(), network) if name == "decoder" and self.binary else network
        gate = tuple(int(h) for h in self.gate_hidden)
        branched = Branched(sizes.features, sizes.hidden, sizes.raw_z - 1, gate, int(self.shared_layers), sizes.members)
        initialise(branched, weights)
        return branched

    def _code(self, q: Distribution, max_active: int | None) -> Tensor:
        z = super()._code(q, max_active)
        return z.clamp_max(1) if self.binary else z

    def _largest(self) -> Array | None:
        found = super()._largest()
        return found.clip(max=1) if found is not None and self.binary else found

    @property
    def temperatures_(self) -> dict[str, float]:
        """tau and tau_z of gradient='paper' as they are now; learned ones move."""
        both = (m for m in self.model_.posterior.modules() if isinstance(m, Temperature))
        return {t.name: float(t().detach()) for t in both}

    def pack(self, Z: Any) -> bytes:
        """Codes as bytes: at most cap * ceil(log2(n_components + 1)) bits a row, and a short header."""
        cap, n = self._size()
        remedy = "Codes from this model's transform never do; sparsevae.latent.packing.pack(Z, cap) takes any cap."
        return packing.pack(Z, cap, n, remedy=remedy)

    def unpack(self, data: bytes, rows: slice | None = None) -> Any:
        """The codes that `pack` wrote, or some rows of them, as a CSR matrix."""
        header, (cap, n) = packing.read_header(data), self._size()
        if (header.n_components, header.cap) != (n, cap):
            raise ValueError(
                f"these bytes hold codes of {header.n_components} features with cap {header.cap}; this model has "
                f"{n} with cap {cap}."
            )
        return packing.unpack(data, rows)

    def _size(self) -> tuple[int, int]:
        """cap and features as fitted, whatever the constructor has been told since."""
        check_is_fitted(self)
        posterior = self.model_.posterior
        assert isinstance(posterior, DiscretePosterior)
        return posterior.size, self._n_features_out
