"""SDLGM with labels: sets of labels from discrete codes (Xu, Onoro Rubio, Serra and Niepert, section III-C)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted
from torch import Generator, Tensor, nn
from torch.nn.functional import logsigmoid

from sparsevae.checks import POSITIVE, In, OneOf
from sparsevae.distributions.family import Family
from sparsevae.estimator.assemble import Build, DataSpec, assemble
from sparsevae.estimator.coder import SparseCoder
from sparsevae.estimator.fields import ObservedData
from sparsevae.estimator.splits import MultiLabelKFold
from sparsevae.estimator.supervised import Classifies, LabelUnits
from sparsevae.inputs.base import Array
from sparsevae.latent.capped_code import CappedCode
from sparsevae.latent.concatenated import ConcatenatedNetworks, ConcatenatedPosterior, ConcatenatedPrior
from sparsevae.latent.objective import Objective, kl, nll
from sparsevae.latent.supervised import Discriminative, Generative, parts_of
from sparsevae.likelihoods.labels import LABEL_LIKELIHOODS, log_odds
from sparsevae.metrics.thresholds import best_threshold
from sparsevae.models.sdlgm import KL, Alpha, GateHidden, Gradient, SharedLayers, check_code, gated_encoder
from sparsevae.networks.architectures import Sizes
from sparsevae.parameters import parameters
from sparsevae.schedules import Schedule

RELAXED = ("paper", "concrete")  # gradients whose training draws lie between 0 and 1


def encoders(est: Any, sizes: Sizes, weights: Generator | None, *, widths: Sequence[int]) -> nn.Module:
    """An encoder for each part of a code, one beside the other."""
    return ConcatenatedNetworks([gated_encoder(est, sizes._replace(raw_z=width), weights) for width in widths])


@parameters
class SDLGMClassifier(Classifies, LabelUnits, ObservedData, SparseCoder):
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

    attributes: ClassVar[Mapping[str, tuple[str, str]]] = {
        "cap_, max_labels_, threshold_": ("int, int, float", "as given, or what None and 'cv' came to"),
    }
    learned: ClassVar[tuple[str, ...]] = (
        *LabelUnits.learned,
        *("classes_", "single_", "sparse_", "cap_", "max_labels_", "threshold_"),
    )

    def rules(self) -> None:
        gradient = self._codes(1, 1)[0].estimator
        if self.label_likelihood == "relaxed" and (gradient not in RELAXED or self.features != "counts"):
            raise ValueError(
                "label_likelihood='relaxed' learns from draws between 0 and 1: it needs features='counts' and "
                f"gradient={' or '.join(map(repr, RELAXED))}; got features={self.features!r} and "
                f"gradient={self.gradient!r}. A hard draw would pass no gradient from y."
            )
        self.refuse_free_bits()
        asked = CappedCode(1, 1, features=self.features, gradient=self.gradient).estimator
        check_code(self, "paper" if self.label_likelihood == "relaxed" and self.gradient == "auto" else asked)

    @property
    def decodes(self) -> bool:
        return self.variant != "dis"

    def in_force(self) -> dict[str, Any]:
        return super().in_force() | {"gradient": self._codes(self.n_labels_, self.cap_)[0].estimator}

    def _codes(self, n_labels: int, cap: int) -> list[CappedCode]:
        """The labels as a code, and for variant="con" the free features."""
        relaxed = self.label_likelihood == "relaxed"
        gradient = "paper" if self.gradient == "auto" and relaxed else self.gradient
        if not (self.decodes or relaxed):
            gradient = "straight-through"  # nothing is drawn, so no item needs several rows
        own = {name: getattr(self, name) for name in ("features", "alpha", "kl", "tau", "tau_z")}
        sizes = [(n_labels, cap), (int(self.free_features), int(self.free_cap))][: 1 + (self.variant == "con")]
        return [CappedCode(n, cap, gradient=gradient, **own) for n, cap in sizes]

    def build(self, data: DataSpec, weights: Generator | None) -> Build:
        codes = self._codes(self.n_labels_, self.cap_)
        posteriors, priors = [code.posterior() for code in codes], [code.prior() for code in codes]
        posterior: Family = posteriors[0]
        prior, encoder = priors[0], gated_encoder
        if len(codes) > 1:
            widths = [q.width(code.n) for q, code in zip(posteriors, codes, strict=True)]
            posterior, prior = ConcatenatedPosterior(posteriors, [code.n for code in codes]), ConcatenatedPrior(priors)
            encoder = partial(encoders, widths=widths)
        targets = LABEL_LIKELIHOODS[self.label_likelihood]
        kind = partial(
            Generative if self.decodes else Discriminative, targets=targets, exact=self.label_likelihood != "relaxed"
        )
        model = assemble(self, data, posterior, prior, weights, kind, encoder=encoder)
        own = {"nll_x": float(self.x_weight)} if self.decodes else {}
        own |= {k: float(self.kl_weight) for k in ("kl_z", "kl_free")[: len(codes)]}
        return Build(model, Objective(nll, kl, weights=own), codes[0].schedules())

    # -- labels -------------------------------------------------------------------------------------------------

    def before_fit(self, X: Any, Y: Any, *, tune: bool) -> None:
        counts = np.asarray(Y.sum(1)).ravel()
        most = max(1, int(counts.max()))
        if not hasattr(self, "fitted_"):
            self.cap_ = most if self.cap is None else int(self.cap)
            self.max_labels_ = most if self.max_labels is None else int(self.max_labels)
            self.threshold_ = 0.5 if isinstance(self.threshold, str) else float(self.threshold)
        if self.label_likelihood == "set" and most > self.cap_:
            raise ValueError(
                f"label_likelihood='set' with cap={self.cap_} gives sets of more labels no probability, and "
                f"{int((counts > self.cap_).sum())} rows have up to {most}: raise cap, or use 'marginals'."
            )
        folds = min(int(self.folds), X.shape[0] // 4)
        if tune and folds > 1 and self.threshold == "cv" and not self.single_:
            self.threshold_ = self._cross_validated(X, Y, folds)

    def _cross_validated(self, X: Any, Y: Any, folds: int) -> float:
        """The threshold with the best micro-F1 on rows that their model has not seen."""
        P = np.zeros(Y.shape)
        quiet = {"training__verbose": 0, "training__folder": None, "training__resume": False}
        for train, held_out in MultiLabelKFold(folds, seed=self.training_settings().seed).split(X, Y):
            twin = clone(self).set_params(threshold=0.5, cap=self.cap_, max_labels=self.max_labels_, **quiet)
            P[held_out] = twin.fit(X[train], Y[train]).predict_proba(X[held_out])
        return best_threshold(Y.toarray() if self.sparse_ else Y, P, self.max_labels_)

    def _odds(self, X: Any, answer: Callable[[Tensor], Tensor]) -> Array:
        """A function of the log odds of every label, of rows of X."""
        check_is_fitted(self)
        return self.fitted_.ask(self.fitted_.rows(X), lambda q: answer(log_odds(parts_of(q)[0])))

    def predict_proba(self, X: Any) -> Array:
        """P(label) of every row, (n, L); with one class per row, the classes' probabilities, which sum to 1."""
        check_is_fitted(self)
        if self.single_:
            return self._odds(X, lambda odds: torch.softmax(logsigmoid(odds), -1))
        return self._odds(X, torch.sigmoid)

    def predict(self, X: Any) -> Any:
        """Labels (n, L), 0/1, CSR where y was; or classes (n,)."""
        return self._from_probabilities(self.predict_proba(X), self.threshold_, self.max_labels_)

    def predict_count(self, X: Any) -> Array:
        """The expected number of labels of every row, (n,): the sum of P(label)."""
        return self._odds(X, lambda odds: torch.sigmoid(odds).sum(-1))

    def evaluate(self, X: Any, y: Any = None, *, caps: Sequence[int] = (), n_samples: int = 10) -> dict[str, Any]:
        """The numbers to judge predictions of y by; without y those of a coder, for gen and con."""
        if y is None:
            return super().evaluate(X, caps=caps, n_samples=n_samples)
        P, Y = self.predict(X), self._targets(self.fitted_.rows(X), y, {})
        return {**self._judge(P, Y), "threshold": self.threshold_}
