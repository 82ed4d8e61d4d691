"""SDLGM: discrete codes with a hard cap on active features (Xu, Onoro Rubio, Serra and Niepert)."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

from sklearn.utils.validation import check_is_fitted
from torch import Generator, Tensor, nn

from sparsevae.checks import POSITIVE, In, Note, OneOf
from sparsevae.distributions.discrete_draws import Temperature
from sparsevae.estimator.assemble import Build, DataSpec, assemble, decoder_of, encoder_of
from sparsevae.estimator.coder import SparseCoder
from sparsevae.estimator.fields import Choices, FromTexts, ObservedData, Units
from sparsevae.inputs.texts import Texts
from sparsevae.latent import packing
from sparsevae.latent.capped_code import CappedCode
from sparsevae.latent.objective import Objective, kl, nll
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


def presence_decoder(est: Any, sizes: Sizes, weights: Generator | None) -> nn.Module:
    """The decoder that sees which features are there."""
    return nn.Sequential(Presence(), decoder_of(est, sizes, weights))


def gated_encoder(est: Any, sizes: Sizes, weights: Generator | None) -> nn.Module:
    """The encoder, for features="counts" in dense networks with a net of its own for P(gate on)."""
    dense = est.encoder is None and chosen(est.network, texts=sizes.words is not None) == "dense"
    if not dense or getattr(est, "features", "counts") == "distinct":
        return encoder_of(est, sizes, weights)
    gate = tuple(int(h) for h in est.gate_hidden)
    branched = Branched(sizes.features, sizes.hidden, sizes.raw_z - 1, gate, int(est.shared_layers), sizes.members)
    initialise(branched, weights)
    return branched


def check_code(est: Any, gradient: str) -> None:
    """Refuse settings of a code, of whichever model has them, that do not go together."""
    layers = 1 if est.hidden is None else len(est.hidden)
    check_value("shared_layers", est.shared_layers, int, [In(0, layers), Note("of the encoder's hidden layers")])
    if est.shared_layers and (est.network not in ("auto", "dense") or est.encoder is not None):
        raise ValueError("shared_layers is for network='dense': other encoders share all of theirs with the gate.")
    able = [name for name, kind in ESTIMATORS.items() if "capped" in kind.kinds]
    if getattr(est, "features", "counts") == "distinct" and gradient not in able:
        raise ValueError(
            f"gradient={est.gradient!r} cannot keep the cap of features='distinct'; use auto, {', '.join(able)}, or "
            "features='counts'."
        )


@parameters
class SDLGM(Choices, Units, ObservedData, FromTexts, SparseCoder):
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

    def rules(self) -> None:
        check_code(self, self._code().estimator)
        self.refuse_free_bits()
        for name in ("tau", "tau_z"):
            if getattr(self, name) == "learned" and self._code().estimator != "paper":
                raise ValueError(
                    f"{name} must be a number above 0, a schedule, or 'learned' with gradient='paper'; got 'learned' "
                    f"with gradient={self.gradient!r}."
                )

    def _code(self) -> CappedCode:
        own = {f.name: getattr(self, f.name) for f in dataclasses.fields(CappedCode) if f.name != "n"}
        return CappedCode(int(self.n_components), **own | {"cap": int(self.cap), "binary": bool(self.binary)})

    def in_force(self) -> dict[str, Any]:
        return super().in_force() | {"gradient": self._code().estimator}

    def build(self, data: DataSpec, weights: Generator | None) -> Build:
        code = self._code()
        if self.binary and isinstance(data.input, Texts):
            raise ValueError("binary=True is for rows of numbers, and X holds texts: leave it False.")
        decoder = presence_decoder if self.binary else decoder_of
        parts = code.posterior(), code.prior()
        model = assemble(self, data, *parts, weights, encoder=gated_encoder, decoder=decoder)
        return Build(model, Objective(nll, kl, weights={"kl_z": 1.0}), code.schedules())

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
        return self.model_.posterior.size, self.fitted_.n_units
