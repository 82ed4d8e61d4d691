"""SDLGM that counts: how often each of K things is there (Xu, Onoro Rubio, Serra and Niepert, section IV-C)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, cast

import numpy as np
import scipy.sparse
import torch
from sklearn.base import RegressorMixin
from torch import Tensor, nn
from torch.distributions import Distribution

from sparsevae.checks import POSITIVE, In
from sparsevae.distributions.counts import Counts
from sparsevae.distributions.kl import divergence, pair
from sparsevae.estimator.supervised import LabelUnitCoder
from sparsevae.inputs.base import Array
from sparsevae.inputs.labels import check_names, plain
from sparsevae.latent.model import LatentModel
from sparsevae.latent.posteriors import CountsPosterior
from sparsevae.latent.supervised import Discriminative
from sparsevae.models.sdlgm import KL, SDLGM, Alpha, GateHidden, SharedLayers
from sparsevae.networks.architectures import Sizes, image_of
from sparsevae.parameters import parameters


class Strips(nn.Module):
    """The same net on each of C vertical strips of an image: what each shows, (B, H W channels) -> (B, C (K + 1))."""

    def __init__(self, net: nn.Module, image: tuple[int, int, int], columns: int) -> None:
        super().__init__()
        height, width, channels = image
        self.net, self.columns = net, columns
        self.layout = (height, columns, width // columns, channels)

    def categories(self, x: Tensor) -> Tensor:
        """log p_ck, (B, H W C) -> (B, columns, K + 1), with nothing in the last place."""
        strips = x.unflatten(-1, self.layout).movedim(-3, -4).flatten(-3)
        raw = self.net(strips.flatten(0, 1))
        log_p: Tensor = Counts(raw[..., -1:], raw[..., :-1], 1).categories().unflatten(0, (-1, self.columns))
        return log_p

    def forward(self, x: Tensor) -> Tensor:
        return self.categories(x).flatten(-2)


class StripCounts(Counts):
    r"""Counts of what C strips show. Strip c shows thing k with probability :math:`p_{ck}`, or nothing.

    The count of k is a sum of independent zeros and ones with mean :math:`\sum_c p_{ck}`; the counts together are
    Poisson-multinomial. Here they are described by the multinomial of C draws from the average strip,
    :math:`\bar p_k = \frac1C \sum_c p_{ck}`, which has the same means. The code is made of what the average forgets: it
    counts what each strip most likely shows.

    Parameters
    ----------
    log_p : Tensor (..., C, K + 1)
        log p_ck, with nothing in the last place.
    draw : callable
        As in `Counts`.
    """

    def __init__(self, log_p: Tensor, draw: nn.Module) -> None:
        self.log_p = log_p
        average = torch.logsumexp(log_p, -2) - math.log(log_p.shape[-2])
        features, off = average[..., :-1], average[..., -1:]
        super().__init__(torch.logsumexp(features, -1, keepdim=True) - off, features, log_p.shape[-2], draw)

    @property
    def mode(self) -> Tensor:
        """How often each thing is what a strip most likely shows, (..., K)."""
        things = torch.arange(self.event_shape[0], device=self.log_p.device)
        seen = self.log_p.argmax(-1, keepdim=True)  # (..., C, 1); K is nothing
        return (seen == things).sum(-2).to(self.log_p.dtype)


@pair(StripCounts, Counts, per_unit=False)
def _strips(q: StripCounts, p: Counts) -> Tensor:
    """That of the multinomial, (..., B)."""
    return divergence(Counts(q.gate, q.features, q.cap), p)


class StripsPosterior(CountsPosterior):
    """raw = log p_ck, strip after strip -> StripCounts; `size` strips, one thing in each at most."""

    def width(self, n: int) -> int:
        return self.size * super().width(n)

    def forward(self, raw: Tensor) -> Distribution:
        return StripCounts(raw.unflatten(-1, (self.size, -1)), self.draw)


def _itself(q: Distribution, z: Tensor) -> Distribution:
    """The law of y is that of the code."""
    return q


@parameters
class SDLGMCounter(RegressorMixin, LabelUnitCoder):
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

    likelihood: ClassVar[str] = "auto"  # type: ignore[misc]  # there is no p(x|z): fields no longer
    variance_floor: ClassVar[float] = 1.0  # type: ignore[misc]
    variance: ClassVar[float] = 1.0  # type: ignore[misc]
    decoder: ClassVar[None] = None  # type: ignore[misc]
    text: ClassVar[None] = None  # type: ignore[misc]
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
    learned: ClassVar[tuple[str, ...]] = (*LabelUnitCoder.learned, "single_", "cap_", "mean_")

    def check(self) -> None:
        super().check()
        self.refuse_free_bits()
        if self._training().binarise:
            raise ValueError("training.binarise would make counts 0 or 1: binarise X beforehand.")
        self._recipe(1, 1).check()

    def weights(self) -> dict[str, float]:
        return {"kl_z": float(self.kl_weight)}

    def _recipe(self, n: int, cap: int) -> SDLGM:
        """The SDLGM whose code the counts are."""
        networks = ("hidden", "network", "image_shape", "encoder", "gate_hidden", "shared_layers")
        same = {name: getattr(self, name) for name in (*networks, "alpha", "kl", "training")}
        return SDLGM(n, cap=cap, gradient="straight-through", **same)

    def _build(self, n_features: int, weights: torch.Generator) -> LatentModel:
        recipe, n = self._recipe(self.n_labels_, self.cap_), self.n_labels_
        posterior = cast(CountsPosterior, recipe.posterior())
        sizes = self._sizes(n_features, posterior.width(n), n, 0)
        if self.columns:
            encoder: nn.Module = self._strips(recipe, sizes, weights)
            posterior = StripsPosterior(posterior.size, posterior.draw)
        else:
            encoder = recipe._network("encoder", self.encoder, sizes, weights)
        parts = encoder, posterior, nn.Identity(), self._likelihood(weights), recipe.prior()
        return Discriminative(*parts, _itself, exact=True)

    def _strips(self, recipe: SDLGM, sizes: Sizes, weights: torch.Generator) -> Strips:
        height, width, channels = image_of(sizes)
        columns = int(self.columns or 1)
        if width % columns:
            raise ValueError(f"columns={columns} strips do not fill an image of width {width}: it must divide that.")
        strip = (height, width // columns, channels)
        net = recipe._network(
            "encoder", self.encoder, sizes._replace(features=math.prod(strip), image_shape=strip), weights
        )
        return Strips(net, (height, width, channels), columns)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.positive_only = True
        return tags

    # -- counts -------------------------------------------------------------------------------------------------

    def _read_targets(self, y: Any, label_names: Any, classes: Any) -> Any:
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
        if not hasattr(self, "model_"):
            self.n_labels_, self.single_ = Y.shape[1], y.ndim == 1
            self.label_names_ = check_names(names if label_names is None else label_names, Y.shape[1])
            self.mean_: Array = np.asarray(Y.mean(0), dtype=np.float64).ravel()
        if Y.shape[1] != self.n_labels_:
            raise ValueError(f"this model counts {self.n_labels_} things; got y of shape {y.shape}.")
        return Y

    def _accept(self, Y: Any) -> None:
        most = max(1, int(Y.sum(1).max()))
        if not hasattr(self, "model_"):
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

    def _like_y(self, counts: Array) -> Array:
        return counts[:, 0] if self.single_ else counts

    def evaluate(self, X: Any, y: Any = None, *, caps: Sequence[int] = (), n_samples: int = 10) -> dict[str, Any]:
        """Mean squared error beside that of a constant prediction; how many counts, and whole rows, are right."""
        Y = self._targets(self._read(X, reset=False), y)
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
