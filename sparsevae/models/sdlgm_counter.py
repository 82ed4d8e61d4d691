"""SDLGM that counts: how often each of K things is there (Xu, Onoro Rubio, Serra and Niepert, section IV-C)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar

import numpy as np
from torch import Generator, Tensor
from torch.distributions import Distribution

from sparsevae.checks import POSITIVE, In
from sparsevae.estimator.assemble import Build, DataSpec, assemble
from sparsevae.estimator.coder import SparseCoder
from sparsevae.estimator.supervised import CountTargets
from sparsevae.inputs.base import Array
from sparsevae.latent.capped_code import CappedCode
from sparsevae.latent.objective import Objective, kl, nll
from sparsevae.latent.posteriors import StripsPosterior
from sparsevae.latent.supervised import Discriminative
from sparsevae.models.capped import Capped, check_code, gated_encoder
from sparsevae.networks.architectures import Sizes, image_of
from sparsevae.networks.strips import Strips
from sparsevae.parameters import parameters


def _counts(q: Distribution, z: Tensor) -> Distribution:
    """The distribution of y is that of the code."""
    return q


def _strips(est: SDLGMCounter, sizes: Sizes, weights: Generator | None) -> Strips:
    """One encoder, applied to each of the vertical strips."""
    height, width, channels = image_of(sizes)
    columns = int(est.columns or 1)
    if width % columns:
        raise ValueError(f"columns={columns} strips do not fill an image of width {width}: columns must divide it.")
    strip = (height, width // columns, channels)
    own = sizes._replace(features=math.prod(strip), image_shape=strip, raw_z=sizes.raw_z // columns)
    return Strips(gated_encoder(est, own, weights), (height, width, channels), columns)


@parameters
class SDLGMCounter(CountTargets, Capped, SparseCoder):
    r"""Counts of K things per row: the code is the vector of counts, and their sum is at most `cap`.

    .. math:: \mathcal L = -\log \mathrm{Multinomial}(y; L_0, \lambda\pi(x)) + w_{KL}\, KL(q(z|x) \,\|\, p(z))

    The code is exactly multinomial (erratum 14), so the likelihood of counts y is exact too; the paper prints none.
    With `columns` the image is cut into vertical strips, one network encodes each, and the multinomial has the mean of
    their probabilities. y is (n, K) of whole numbers, dense or CSR, or (n,) for K = 1. A row with a total above `cap`
    has probability 0, and is refused.

    {parameters}

    {attributes}

    References
    ----------
    Xu, Onoro Rubio, Serra, Niepert, "Learning sparsity of representations with discrete latent variables" (SDLGM),
    section IV-C and table III.

    Examples
    --------
    >>> import sparsevae as sv
    >>> d = sv.data.load("digit-canvas", n=400, n_test=100, columns=2, source="digits")
    >>> training = sv.Training(steps=400, learning_rate=5e-3, verbose=0)
    >>> est = sv.SDLGMCounter(columns=2, image_shape=(8, 16), hidden=(64,), training=training)
    >>> est.fit(d.X, d.truth["counts"]).evaluate(d.X_test, d.truth_test["counts"])["mse"] < 0.06
    True
    """

    cap: Annotated[int | None, POSITIVE, "L0: largest total of a row; None: `columns`, or as in training rows."] = None
    columns: Annotated[int | None, POSITIVE, "Vertical strips of the image, each with one thing at most."] = None
    kl_weight: Annotated[float, In(0), "Weight of the KL to the prior."] = 0.0

    attributes: ClassVar[Mapping[str, tuple[str, str]]] = {
        "cap_": ("int", "`cap`, or `columns`, or the largest total of a training row"),
    }
    learned: ClassVar[tuple[str, ...]] = (*CountTargets.learned, "cap_")

    def rules(self) -> None:
        self.refuse_free_bits()
        if self.training_settings().binarise:
            raise ValueError("training.binarise would make counts 0 or 1: binarise X beforehand.")
        check_code(self, self._code(1, 1))

    def _code(self, n: int, cap: int) -> CappedCode:
        return CappedCode(n, cap, alpha=self.alpha, kl=self.kl, gradient="straight-through")

    def build(self, data: DataSpec, weights: Generator | None) -> Build:
        code = self._code(self.n_labels_, self.cap_)
        posterior = code.posterior()
        if self.columns:
            posterior = StripsPosterior(posterior.size, posterior.draw)
        encoder = _strips if self.columns else gated_encoder
        model_class = partial(Discriminative, targets=_counts, exact=True)
        model = assemble(self, data, posterior, code.prior(), weights, model_class, encoder=encoder)
        return Build(model, Objective(nll, kl, weights={"kl_z": float(self.kl_weight)}))

    def before_fit(self, X: Any, Y: Any, *, tune: bool) -> None:
        most = max(1, int(Y.sum(1).max()))
        if not hasattr(self, "fitted_"):
            self.cap_ = int(self.cap or self.columns or most)
        if most > self.cap_:
            raise ValueError(
                f"with cap={self.cap_} a row has at most {self.cap_} things in all, and y has rows of {most}: raise "
                "cap (and columns)."
            )
        if self.columns and self.cap_ != int(self.columns):
            raise ValueError(f"each of columns={self.columns} strips has one thing: leave cap out, or make it equal.")

    def predict(self, X: Any) -> Array:
        """Expected counts, (n, K): L0 lambda pi; (n,) where y was."""
        return self._like_y(self._from_posterior(X, lambda q: q.mean).astype(np.float64))  # as regressors give them

    def predict_counts(self, X: Any) -> Array:
        """The codes, (n, K), or (n,) where y was: most probable counts, with `columns` sums of strips' modes."""
        return self._like_y(self._from_posterior(X, lambda q: q.mode).astype(np.int64))

    def _like_y(self, counts: Array) -> Array:
        return counts[:, 0] if self.single_ else counts

    def evaluate(self, X: Any, y: Any = None, *, caps: Sequence[int] = (), n_samples: int = 10) -> dict[str, Any]:
        """Mean squared error, and that of a constant prediction; shares of counts and of whole rows that are right."""
        Y = self._targets(self.fitted_.rows(X), y, {})
        Y = Y.toarray() if hasattr(Y, "toarray") else Y
        expected, whole = (found.reshape(Y.shape) for found in (self.predict(X), self.predict_counts(X)))
        right = whole == Y
        return {
            "rows": len(Y),
            "mse": float(np.mean((expected - Y) ** 2)),
            "constant_mse": float(np.mean((self.mean_ - Y) ** 2)),
            "counts_right": float(right.mean()),
            "rows_right": float(right.all(1).mean()),
        }
