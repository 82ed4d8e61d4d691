"""SDLGM that counts: how often each of K things is there (Xu, Onoro Rubio, Serra and Niepert, section IV-C)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar

import numpy as np
import scipy.sparse
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted
from torch import Generator, Tensor
from torch.distributions import Distribution

from sparsevae.checks import POSITIVE, In
from sparsevae.estimator.assemble import Build, DataSpec, assemble
from sparsevae.estimator.coder import SparseCoder
from sparsevae.estimator.supervised import LabelUnits, require
from sparsevae.inputs.base import Array
from sparsevae.inputs.labels import check_names, plain
from sparsevae.latent.capped_code import CappedCode
from sparsevae.latent.objective import Objective, kl, nll
from sparsevae.latent.posteriors import StripsPosterior
from sparsevae.latent.supervised import Discriminative
from sparsevae.models.sdlgm import KL, Alpha, GateHidden, SharedLayers, check_code, gated_encoder
from sparsevae.networks.architectures import Sizes, image_of
from sparsevae.networks.strips import Strips
from sparsevae.parameters import parameters


def _itself(q: Distribution, z: Tensor) -> Distribution:
    """The distribution of y is that of the code."""
    return q


def _strips(est: SDLGMCounter, sizes: Sizes, weights: Generator | None) -> Strips:
    """One encoder that looks at every strip."""
    height, width, channels = image_of(sizes)
    columns = int(est.columns or 1)
    if width % columns:
        raise ValueError(f"columns={columns} strips do not fill an image of width {width}: it must divide that.")
    strip = (height, width // columns, channels)
    own = sizes._replace(features=math.prod(strip), image_shape=strip, raw_z=sizes.raw_z // columns)
    return Strips(gated_encoder(est, own, weights), (height, width, channels), columns)


@parameters
class SDLGMCounter(RegressorMixin, LabelUnits, SparseCoder):
    r"""Counts of K things in a row: the code is the vector of counts, of which `cap` are the most in all.

    .. math:: \mathcal L = -\log \mathrm{Multinomial}(y; L_0, \lambda\pi(x)) + w_{KL}\, KL(q(z|x) \,\|\, p(z))

    SDLGM's law of a code is exactly multinomial (erratum 14), so the likelihood of counts y is exact too; the paper
    prints none. With `columns` the image is cut into so many vertical strips, one net looks at each, and what it sees
    is averaged: the strips' counts are Poisson-multinomial, the multinomial has their means. `predict` gives expected
    counts, which make the least squared error, `predict_counts` whole ones: the code itself, which `transform` gives as
    a CSR matrix.

    y is (n, K) of whole numbers, dense or CSR; rows of zeros are fine. Of one thing it may be (n,), and so are
    predictions then. A row of more than `cap` things in all has no probability, and is refused.

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

    target: ClassVar[str] = "counts"

    cap: Annotated[int | None, POSITIVE, "L0: most things in all; None: `columns`, or most of a training row."] = None
    columns: Annotated[int | None, POSITIVE, "Vertical strips of the image, each with one thing at most."] = None
    kl_weight: Annotated[float, In(0), "Weight of the KL to the prior."] = 0.0
    alpha: Alpha = 0.5
    kl: KL = "tight"
    gate_hidden: GateHidden = (64,)
    shared_layers: SharedLayers = 0

    attributes: ClassVar[Mapping[str, tuple[str, str]]] = {
        "label_names_": ("list of str", "the names of y's columns"),
        "cap_": ("int", "`cap`, or `columns`, or the largest total of a training row"),
        "single_": ("bool", "whether y was (n,): predictions have its shape"),
        "mean_": ("ndarray (L,)", "the mean counts of the training rows: what a constant prediction would be"),
    }
    learned: ClassVar[tuple[str, ...]] = (*LabelUnits.learned, "single_", "cap_", "mean_")

    def rules(self) -> None:
        self.refuse_free_bits()
        if self.training_settings().binarise:
            raise ValueError("training.binarise would make counts 0 or 1: binarise X beforehand.")
        check_code(self, "straight-through")

    def build(self, data: DataSpec, weights: Generator | None) -> Build:
        code = CappedCode(self.n_labels_, self.cap_, alpha=self.alpha, kl=self.kl, gradient="straight-through")
        posterior = code.posterior()
        if self.columns:
            posterior = StripsPosterior(posterior.size, posterior.draw)
        kind = partial(Discriminative, targets=_itself, exact=True)
        encoder = _strips if self.columns else gated_encoder
        model = assemble(self, data, posterior, code.prior(), weights, kind, encoder=encoder)
        return Build(model, Objective(nll, kl, weights={"kl_z": float(self.kl_weight)}))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.positive_only = True
        return tags

    # -- counts -------------------------------------------------------------------------------------------------

    def read_targets(self, y: Any, *, label_names: Any = None, classes: Any = None) -> Any:
        require(self, y)
        y, names = plain(y)
        if y.ndim not in (1, 2) or 0 in y.shape:
            raise ValueError(
                f"y must be (rows, things), the counts of each thing, or (rows,), of one; got shape {y.shape}."
            )
        sparse = bool(scipy.sparse.issparse(y))
        Y: Any = y.tocsr() if sparse else y.reshape(len(y), -1)
        values = Y.data if sparse else Y
        if Y.dtype.kind not in "biuf" or (values < 0).any() or (values != np.floor(values)).any():
            raise ValueError("y must hold counts: whole numbers, 0 or above.")
        if not hasattr(self, "fitted_"):
            self.n_labels_, self.single_ = Y.shape[1], y.ndim == 1
            self.label_names_ = check_names(names if label_names is None else label_names, Y.shape[1])
            self.mean_: Array = np.asarray(Y.mean(0), dtype=np.float64).ravel()
        if Y.shape[1] != self.n_labels_:
            raise ValueError(f"this model counts {self.n_labels_} things; got y of shape {y.shape}.")
        return Y

    def before_fit(self, X: Any, Y: Any, *, tune: bool) -> None:
        most = max(1, int(Y.sum(1).max()))
        if not hasattr(self, "fitted_"):
            self.cap_ = int(self.cap or self.columns or most)
        if most > self.cap_:
            raise ValueError(
                f"with cap={self.cap_} a row holds at most {self.cap_} things in all, and y has rows of {most}: raise "
                "cap (and columns)."
            )
        if self.columns and self.cap_ != int(self.columns):
            raise ValueError(f"each of columns={self.columns} strips holds one thing: leave cap out, or make it equal.")

    def predict(self, X: Any) -> Array:
        """Expected counts, (n, K): L0 lambda pi; (n,) where y was."""
        return self._like_y(self._ask(X, lambda q: q.mean).astype(np.float64))  # as regressors give them

    def predict_counts(self, X: Any) -> Array:
        """Whole counts, (n, K): the likeliest; with `columns`, of what each strip most likely shows; (n,) where y was.

        They are the code, so `transform(X)` holds the same numbers, in float32, sparse and (n, K).
        """
        return self._like_y(self._ask(X, lambda q: q.mode).astype(np.int64))

    def _ask(self, X: Any, question: Callable[[Any], Tensor]) -> Array:
        check_is_fitted(self)
        return self.fitted_.ask(self.fitted_.rows(X), question)

    def _like_y(self, counts: Array) -> Array:
        return counts[:, 0] if self.single_ else counts

    def evaluate(self, X: Any, y: Any = None, *, caps: Sequence[int] = (), n_samples: int = 10) -> dict[str, Any]:
        """Mean squared error beside that of a constant prediction; how many counts, and whole rows, are right."""
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
