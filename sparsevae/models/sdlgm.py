"""SDLGM: discrete codes with a hard cap on active features (Xu, Onoro Rubio, Serra and Niepert)."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

from sklearn.utils.validation import check_is_fitted
from torch import Generator

from sparsevae.checks import POSITIVE, In, OneOf
from sparsevae.distributions.discrete_draws import Temperature
from sparsevae.estimator.assemble import Build, DataSpec, assemble, decoder_of
from sparsevae.estimator.coder import SparseCoder
from sparsevae.estimator.fields import Choices, FromTexts, ObservedData, SparseCodes, Units, prior_share
from sparsevae.inputs.texts import Texts
from sparsevae.latent import packing
from sparsevae.latent.capped_code import CappedCode
from sparsevae.latent.objective import Objective, kl, nll
from sparsevae.models.capped import Capped, Gradient, check_code, parts_of_model, presence_decoder
from sparsevae.parameters import parameters
from sparsevae.schedules import Schedule

_BOUNDS = In(0, 1, "()", double=True), In(1, None, "()", double=True)


@parameters
class SDLGM(Choices, Capped, SparseCodes, Units, ObservedData, FromTexts, SparseCoder):
    r"""A discrete code with at most `cap` active features.

    .. math:: \mathcal L = -E_q \log p(x|z) + KL(q(z|x) \,\|\, p(z)), \quad z = \sum_{l \le L_0} \omega_l e_{c_l}

    features="counts" is the paper's code: cap gates, each on with probability lambda(x), times one-hot features; their
    sum is multinomial, with exact density and KL (erratum 14). kl="paper" counts the features of gates that are off
    too. features="distinct" is ours: gates of which at most `cap` are on. gradient="paper" relaxes both, and with
    tau="learned" and tau_bounds=None it is the paper's, whose temperatures diverge. Scores use hard draws.

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
    >>> Z = sv.SDLGM(32, cap=5, features="distinct", training=training).fit_transform(X)
    >>> bool(Z.sum(1).max() <= 5), set(Z.data.tolist())
    (True, {1.0})
    """

    cap: Annotated[int, POSITIVE, "L0: the most features that a code may have."] = 10
    features: Annotated[
        str, OneOf("counts", "distinct"), "counts (the paper's multinomial) or distinct (at most `cap` different ones)."
    ] = "counts"
    gradient: Gradient = "auto"
    tau: Annotated[
        float | str | Schedule, POSITIVE, OneOf("learned"), "Temperature of gates; distinct: of concrete gradients too."
    ] = 0.5
    tau_z: Annotated[
        float | str | Schedule, POSITIVE, OneOf("learned"), "For features='counts', temperature of features, as tau."
    ] = 0.5
    tau_bounds: Annotated[
        tuple[float, float] | None, *_BOUNDS, "Bounds of learned temperatures; None: no bounds, and they diverge."
    ] = (0.1, 2.0)
    learned_prior: Annotated[bool, OneOf(0, 1), "Learn the prior of each feature; it starts from alpha."] = False
    binary: Annotated[bool, OneOf(0, 1), "Give the decoder which features are present, not how often."] = False

    def rules(self) -> None:
        code = self._code()
        check_code(self, code)
        if self.target_active is not None and not self.target_active < self.cap:
            raise ValueError(f"target_active must be below cap={self.cap}, got {self.target_active!r}.")
        self.refuse_free_bits()
        for name in ("tau", "tau_z"):
            if getattr(self, name) == "learned" and code.estimator != "paper":
                raise ValueError(
                    f"{name} must be a number above 0, a schedule, or 'learned' with gradient='paper'; got 'learned' "
                    f"with gradient={self.gradient!r}."
                )

    def _code(self) -> CappedCode:
        own = {f.name: getattr(self, f.name) for f in dataclasses.fields(CappedCode) if f.name != "n"}
        own |= {
            "cap": int(self.cap),
            "binary": bool(self.binary),
            "alpha": prior_share(self, int(self.cap), self.alpha),
        }
        return CappedCode(int(self.n_components), **own)

    def in_force(self) -> dict[str, Any]:
        return super().in_force() | {"gradient": self._code().estimator}

    def build(self, data: DataSpec, weights: Generator | None) -> Build:
        if self.binary and isinstance(data.input, Texts):
            raise ValueError("binary=True is for rows of numbers, and X holds texts: leave it False.")
        code = self._code()
        posterior, prior, encoder = parts_of_model([code])
        decoder = presence_decoder if self.binary else decoder_of
        model = assemble(self, data, posterior, prior, weights, encoder=encoder, decoder=decoder)
        return Build(model, Objective(nll, kl, weights={"kl_z": 1.0}), code.schedules())

    @property
    def temperatures_(self) -> dict[str, float]:
        """The current tau and tau_z of gradient='paper'; learned ones change in training."""
        both = (m for m in self.model_.posterior.modules() if isinstance(m, Temperature))
        return {t.name: float(t().detach()) for t in both}

    def pack(self, Z: Any) -> bytes:
        """Codes as bytes: at most cap * ceil(log2(n_components + 1)) bits per row, and a short header."""
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
        """cap and n_components of the fitted model, even if the constructor's have been set anew since."""
        check_is_fitted(self)
        return self.model_.posterior.size, self.fitted_.n_units
