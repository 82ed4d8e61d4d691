"""SDLGM with labels: sets of labels from discrete codes (Xu, Onoro Rubio, Serra and Niepert, section III-C)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

import numpy as np
import scipy.sparse
import torch
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted
from torch import nn
from torch.nn.functional import logsigmoid

from sparsevae.checks import POSITIVE, In, OneOf
from sparsevae.estimator.splits import MultiLabelKFold
from sparsevae.estimator.supervised import Classifies, LabelUnitCoder
from sparsevae.estimator.thresholds import best_threshold, cut
from sparsevae.inputs.base import Array
from sparsevae.latent.concatenated import ConcatenatedNetworks, ConcatenatedPosterior, ConcatenatedPrior
from sparsevae.latent.model import LatentModel
from sparsevae.latent.supervised import Discriminative, Generative
from sparsevae.likelihoods.labels import LABEL_LIKELIHOODS, log_odds
from sparsevae.models.sdlgm import KL, SDLGM, Alpha, GateHidden, Gradient, SharedLayers
from sparsevae.parameters import parameters
from sparsevae.schedules import Schedule

RELAXED = ("paper", "concrete")  # gradients whose training draws lie between 0 and 1


@parameters
class SDLGMClassifier(Classifies, LabelUnitCoder):
    r"""Multi-label classifier: the code is a set of labels, of which at most `cap` are on.

    .. math:: \mathcal L = -\log p(y | q(z|x)) + w_{KL}\, KL(q(z|x) \,\|\, p(z)) \; [\,- w_x\, E_q \log p(x|z)\,]

    The encoder alone predicts. Counts are `cap` draws, on with probability lambda(x), of features pi(x). The likelihood
    of y, which the paper does not print, is exact: P(label) of counts is 1 - (1 - lambda pi_k)^L0. "relaxed" takes
    min(1, z) of a relaxed draw. y is (n, L) of 0 and 1, dense or CSR, or (n,), one class per row.

    {parameters}

    {attributes}

    References
    ----------
    Xu, Onoro Rubio, Serra, Niepert, "Learning sparsity of representations with discrete latent variables", III-C.

    Examples
    --------
    >>> import numpy as np, sparsevae as sv
    >>> X, training = np.random.default_rng(0).normal(size=(300, 6)), sv.Training(steps=100, learning_rate=1e-2)
    >>> est = sv.SDLGMClassifier(hidden=(32,), training=training).fit(X[:200], X[:200, :4] > 0.7)
    >>> est.predict(X).shape, bool((est.predict(X[200:]) == (X[200:, :4] > 0.7)).mean() > 0.9)
    ((300, 4), True)
    """

    variant: Annotated[
        str, OneOf("dis", "gen", "con"), "dis (y from x), gen (the labels also explain x) or con (with free features)."
    ] = "dis"
    cap: Annotated[
        int | None,
        POSITIVE,
        "L0: most labels (distinct) or draws (counts) in p(y|z), not predictions. None: of a row.",
    ] = None
    features: Annotated[
        str, OneOf("distinct", "counts"), "distinct (at most `cap` labels) or counts (the paper's multinomial)."
    ] = "distinct"
    label_likelihood: Annotated[
        str, OneOf(*LABEL_LIKELIHOODS), "Of y: marginals (each label for itself), set (all at once), relaxed."
    ] = "marginals"
    kl_weight: Annotated[float, In(0), "Weight of the KL to the prior."] = 0.01
    x_weight: Annotated[float, In(0), "Weight of -log p(x|z) beside that of y; for gen and con."] = 0.1
    free_features: Annotated[int, POSITIVE, "Features of the code that are no labels; for con."] = 20
    free_cap: Annotated[int, POSITIVE, "The cap of the free features; for con."] = 5
    max_labels: Annotated[int | None, POSITIVE, "Most labels of a prediction; None: most of a training row."] = None
    threshold: Annotated[
        float | str, In(0, 1, "[)"), OneOf("cv"), "P(label) that predicts it. 'cv': best micro-F1 (.5 below 8 rows)."
    ] = "cv"
    folds: Annotated[int, In(2), "Folds of threshold='cv', each one more fit: 1/2 predicts too few labels."] = 5
    alpha: Alpha = 0.5
    kl: KL = "tight"
    gradient: Gradient = "auto"
    tau: Annotated[float | Schedule, POSITIVE, "Temperature of gates, where gradients are relaxed."] = 0.5
    tau_z: Annotated[float | Schedule, POSITIVE, "That of features, for features='counts'."] = 0.5
    gate_hidden: GateHidden = (64,)
    shared_layers: SharedLayers = 0

    text: ClassVar[None] = None  # type: ignore[misc]  # thresholds are tuned on rows of numbers: a field no longer
    attributes: ClassVar[Mapping[str, tuple[str, str]]] = {
        "cap_, max_labels_, threshold_": ("int, int, float", "as given, or what None and 'cv' came to"),
    }
    learned: ClassVar[tuple[str, ...]] = (
        *LabelUnitCoder.learned,
        *("classes_", "single_", "sparse_", "cap_", "max_labels_", "threshold_"),
    )

    def check(self) -> None:
        super().check()
        if self.label_likelihood == "relaxed" and (self._gradient() not in RELAXED or self.features != "counts"):
            raise ValueError(
                "label_likelihood='relaxed' learns from draws between 0 and 1: it needs features='counts' and "
                f"gradient={' or '.join(map(repr, RELAXED))}; got features={self.features!r} and "
                f"gradient={self.gradient!r}. A hard draw would pass no gradient from y."
            )
        self.refuse_free_bits()
        self._recipe(1, self.cap or 1, self._gradient()).check()

    # -- the recipe: each part of the code is an SDLGM's ---------------------------------------------------------

    def _generates(self) -> bool:
        return self.variant != "dis"

    def _drawn(self) -> bool:
        """Whether any term asks for a draw: the exact laws of y do not."""
        return self._generates() or self.label_likelihood == "relaxed"

    def _gradient(self) -> str:
        """How gradients pass the draws: "auto" is SDLGM's own choice, and its relaxation where y is read off a draw."""
        return "paper" if self.gradient == "auto" and self.label_likelihood == "relaxed" else self.gradient

    def in_force(self) -> dict[str, Any]:
        return super().in_force() | {"gradient": self._recipes()[0]._gradient()}

    def weights(self) -> dict[str, float]:
        weights = {"kl_z": float(self.kl_weight)}
        if self.variant == "con":
            weights["kl_free"] = float(self.kl_weight)
        return {"nll_x": float(self.x_weight), **weights} if self._generates() else weights

    def _recipe(self, n: int, cap: int, gradient: str) -> SDLGM:
        """The part of n features of which at most `cap` are on."""
        same = ("hidden", "network", "image_shape", "encoder", "training", "features", "alpha", "kl", "tau", "tau_z")
        own = {name: getattr(self, name) for name in (*same, "gate_hidden", "shared_layers")}
        return SDLGM(n, cap=cap, gradient=gradient, **own)

    def _recipes(self) -> list[SDLGM]:
        sizes = [(self.n_labels_, self.cap_)]
        if self.variant == "con":
            sizes.append((int(self.free_features), int(self.free_cap)))
        # Some gradients ask for several rows of an item: not where nothing is drawn.
        return [self._recipe(n, cap, self._gradient() if self._drawn() else "straight-through") for n, cap in sizes]

    def schedules(self) -> dict[str, Schedule]:
        return self._recipe(1, 1, self._gradient()).schedules() if self._drawn() else {}

    def _build(self, n_features: int, weights: torch.Generator) -> LatentModel:
        parts = self._recipes()
        likelihood = self._likelihood(weights)
        n, posteriors = [part.n_components for part in parts], [part.posterior() for part in parts]
        raw_x = likelihood.width(n_features)
        sizes = [self._sizes(n_features, q.width(m), sum(n), raw_x) for q, m in zip(posteriors, n, strict=True)]
        encoders = [p._network("encoder", self.encoder, s, weights) for p, s in zip(parts, sizes, strict=True)]
        priors = [part.prior() for part in parts]
        decoder: nn.Module = nn.Identity()
        if self._generates():
            decoder = parts[0]._network("decoder", self.decoder, sizes[0], weights)
        alone = len(parts) == 1
        return (Generative if self._generates() else Discriminative)(
            encoders[0] if alone else ConcatenatedNetworks(encoders),
            posteriors[0] if alone else ConcatenatedPosterior(posteriors, n),
            decoder,
            likelihood,
            priors[0] if alone else ConcatenatedPrior(priors),
            LABEL_LIKELIHOODS[self.label_likelihood],
            exact=self.label_likelihood != "relaxed",
        )

    # -- labels -------------------------------------------------------------------------------------------------

    def _accept(self, Y: Any) -> None:
        counts = np.asarray(Y.sum(1)).ravel()
        most = max(1, int(counts.max()))
        if not hasattr(self, "model_"):
            self.cap_ = most if self.cap is None else int(self.cap)
            self.max_labels_ = most if self.max_labels is None else int(self.max_labels)
            self.threshold_ = 0.5 if isinstance(self.threshold, str) else float(self.threshold)
        if self.label_likelihood == "set" and most > self.cap_:
            raise ValueError(
                f"label_likelihood='set' with cap={self.cap_} gives sets of more labels no probability, and "
                f"{int((counts > self.cap_).sum())} rows have up to {most}: raise cap, or use 'marginals'."
            )

    def _tune(self, X: Any, Y: Any) -> None:
        folds = min(int(self.folds), X.shape[0] // 4)
        if self.single_ or self.threshold != "cv" or folds < 2:
            return
        P = np.zeros(Y.shape)
        quiet = {"training__verbose": 0, "training__folder": None, "training__resume": False}
        for train, held_out in MultiLabelKFold(folds, seed=self._training().seed).split(X, Y):
            twin = clone(self).set_params(threshold=0.5, cap=self.cap_, max_labels=self.max_labels_, **quiet)
            P[held_out] = twin.fit(X[train], Y[train]).predict_proba(X[held_out])
        self.threshold_ = best_threshold(Y.toarray() if self.sparse_ else Y, P, self.max_labels_)

    def predict_proba(self, X: Any) -> Array:
        """P(label) of every row, (n, L); with one class a row, the classes' probabilities, which sum to 1."""
        check_is_fitted(self)
        if self.single_:
            return self._ask(X, lambda q: torch.softmax(logsigmoid(log_odds(q)), -1))
        return self._ask(X, lambda q: torch.sigmoid(log_odds(q)))

    def predict(self, X: Any) -> Any:
        """Labels (n, L), 0/1, CSR where y was; or classes (n,)."""
        P = self.predict_proba(X)
        if self.single_:
            return self.classes_[P.argmax(1)]
        labels = cut(P, self.threshold_, self.max_labels_)
        return scipy.sparse.csr_array(labels) if self.sparse_ else labels

    def predict_count(self, X: Any) -> Array:
        """The expected number of labels of every row, (n,): the sum of P(label)."""
        return self._ask(X, lambda q: torch.sigmoid(log_odds(q)).sum(-1))

    def evaluate(self, X: Any, y: Any = None, *, caps: Sequence[int] = (), n_samples: int = 10) -> dict[str, Any]:
        """The numbers to judge predictions of y by; without y those of a coder, for gen and con."""
        if y is None:
            return super().evaluate(X, caps=caps, n_samples=n_samples)
        P, Y = self.predict(X), self._targets(self._read(X, reset=False), y)
        return {**self._judge(P, Y), "threshold": self.threshold_}
