"""SDLGM with labels: sets of labels from discrete codes (Xu, Onoro Rubio, Serra and Niepert, section III-C)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from torch import Generator, Tensor
from torch.nn.functional import logsigmoid

from sparsevae.checks import POSITIVE, In, OneOf
from sparsevae.estimator.assemble import Build, DataSpec, assemble
from sparsevae.estimator.coder import SparseCoder
from sparsevae.estimator.fields import ObservedData
from sparsevae.estimator.supervised import LabelUnits, Thresholds
from sparsevae.inputs.base import Array
from sparsevae.latent.capped_code import CappedCode
from sparsevae.latent.objective import Objective, kl, nll
from sparsevae.latent.supervised import Discriminative, Generative, parts_of
from sparsevae.likelihoods.labels import LABEL_LIKELIHOODS, log_odds
from sparsevae.models.capped import Capped, Gradient, check_code, parts_of_model
from sparsevae.parameters import parameters
from sparsevae.schedules import Schedule


@parameters
class SDLGMClassifier(Thresholds, LabelUnits, Capped, ObservedData, SparseCoder):
    r"""Multi-label classifier: the code is a set of labels, of which at most `cap` are on.

    .. math:: \mathcal L = -\log p(y | q(z|x)) + w_{KL}\, KL(q(z|x) \,\|\, p(z)) \; [\,- w_x\, E_q \log p(x|z)\,]

    The encoder alone predicts. Of counts (`cap` draws, on with probability lambda(x), of features pi(x)) P(label) is
    exactly 1 - (1 - lambda pi_k)^L0. y is (n, L) of 0 and 1, dense or CSR, or (n,), one class per row.

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
    cap: Annotated[int | None, POSITIVE, "L0: labels (distinct) or draws (counts) in p(y|z); None: of a row."] = None
    features: Annotated[
        str, OneOf("distinct", "counts"), "distinct (at most `cap` labels) or counts (the paper's multinomial)."
    ] = "distinct"
    label_likelihood: Annotated[
        str, OneOf(*LABEL_LIKELIHOODS), "p(y|z): marginals (independent labels), set (all labels jointly) or relaxed."
    ] = "marginals"
    kl_weight: Annotated[float, In(0), "Weight of the KL to the prior."] = 0.01
    x_weight: Annotated[float, In(0), "Weight of -log p(x|z) beside that of y; for gen and con."] = 0.1
    free_features: Annotated[int, POSITIVE, "Features of the code that are no labels; for con."] = 20
    free_cap: Annotated[int, POSITIVE, "The cap of the free features; for con."] = 5
    gradient: Gradient = "auto"
    tau: Annotated[float | Schedule, POSITIVE, "Temperature of gates, where gradients are relaxed."] = 0.5
    tau_z: Annotated[float | Schedule, POSITIVE, "Temperature of features, for features='counts'."] = 0.5

    attributes: ClassVar[Mapping[str, tuple[str, str]]] = {"cap_": ("int", "`cap`, or most labels of a training row")}
    learned: ClassVar[tuple[str, ...]] = (*Thresholds.learned, "cap_")

    def rules(self) -> None:
        asked = self._asked_code(1, 1)
        if self.label_likelihood == "relaxed" and (not asked.relaxed or self.features != "counts"):
            raise ValueError(
                "label_likelihood='relaxed' learns from draws between 0 and 1: it needs features='counts' and "
                f"gradient='paper' or 'concrete'; got features={self.features!r} and "
                f"gradient={self.gradient!r}. A hard draw would pass no gradient from y."
            )
        self.refuse_free_bits()
        check_code(self, asked)

    @property
    def decodes(self) -> bool:
        return self.variant != "dis"

    def _asked_code(self, n_labels: int, cap: int) -> CappedCode:
        """The labels as a code, with the gradient that the constructor asks for."""
        own = {name: getattr(self, name) for name in ("features", "alpha", "kl", "tau", "tau_z")}
        gradient = "paper" if (self.gradient, self.label_likelihood) == ("auto", "relaxed") else self.gradient
        return CappedCode(n_labels, cap, gradient=gradient, **own)

    def _codes(self) -> list[CappedCode]:
        """The labels as a code, and for variant="con" the free features."""
        labels = self._asked_code(self.n_labels_, self.cap_)
        if not self.decodes and self.label_likelihood != "relaxed":
            labels = replace(labels, gradient="straight-through")  # nothing is drawn, so no item needs several rows
        free = replace(labels, n=int(self.free_features), cap=int(self.free_cap))
        return [labels, free] if self.variant == "con" else [labels]

    def build(self, data: DataSpec, weights: Generator | None) -> Build:
        codes = self._codes()
        posterior, prior, encoder = parts_of_model(codes)
        targets, exact = LABEL_LIKELIHOODS[self.label_likelihood], self.label_likelihood != "relaxed"
        model_class = partial(Generative if self.decodes else Discriminative, targets=targets, exact=exact)
        model = assemble(self, data, posterior, prior, weights, model_class, encoder=encoder)
        own = {"nll_x": float(self.x_weight)} if self.decodes else {}
        own |= {k: float(self.kl_weight) for k in ("kl_z", "kl_free")[: len(codes)]}
        return Build(model, Objective(nll, kl, weights=own), codes[0].schedules())

    def in_force(self) -> dict[str, Any]:
        return super().in_force() | {"gradient": self._codes()[0].estimator}

    def before_fit(self, X: Any, Y: Any, *, tune: bool) -> None:
        counts = np.asarray(Y.sum(1)).ravel()
        most = max(1, int(counts.max()))
        if not hasattr(self, "fitted_"):
            self.cap_ = most if self.cap is None else int(self.cap)
        if self.label_likelihood == "set" and most > self.cap_:
            raise ValueError(
                f"label_likelihood='set' with cap={self.cap_} gives sets of more labels no probability, and "
                f"{int((counts > self.cap_).sum())} rows have up to {most}: raise cap, or use 'marginals'."
            )
        self.choose_threshold(X, Y, most, tune=tune, cap=self.cap_)

    def predict_proba(self, X: Any) -> Array:
        """P(label) of every row, (n, L); with one class per row, the probabilities of the classes, which sum to 1."""

        def probabilities(q: Any) -> Tensor:
            odds = log_odds(parts_of(q)[0])
            return torch.softmax(logsigmoid(odds), -1) if self.single_ else torch.sigmoid(odds)

        return self._from_posterior(X, probabilities)

    def predict_count(self, X: Any) -> Array:
        """The expected number of labels of every row, (n,): the sum of P(label)."""
        return self._from_posterior(X, lambda q: torch.sigmoid(log_odds(parts_of(q)[0])).sum(-1))

    def evaluate(self, X: Any, y: Any = None, *, caps: Sequence[int] = (), n_samples: int = 10) -> dict[str, Any]:
        """F1 scores and more of the predictions of y; without y the numbers of `SparseCoder`, for gen and con."""
        if y is None:
            return super().evaluate(X, caps=caps, n_samples=n_samples)
        return {**self._accuracy(X, y), "threshold": self.threshold_}
