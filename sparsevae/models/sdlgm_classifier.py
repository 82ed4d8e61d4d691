"""SDLGM with labels: sets of labels from discrete codes (Xu, Onoro Rubio, Serra and Niepert, section III-C)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted
from torch import Generator, Tensor, nn
from torch.nn.functional import logsigmoid

from sparsevae.checks import check_number
from sparsevae.distributions.family import Family
from sparsevae.estimator.assemble import Build, DataSpec, assemble
from sparsevae.estimator.coder import SparseCoder
from sparsevae.estimator.fields import ObservedData
from sparsevae.estimator.splits import MultiLabelKFold
from sparsevae.estimator.supervised import Classifies, LabelUnits
from sparsevae.estimator.thresholds import best_threshold
from sparsevae.inputs.base import Array
from sparsevae.latent.capped_code import CappedCode
from sparsevae.latent.concatenated import ConcatenatedNetworks, ConcatenatedPosterior, ConcatenatedPrior
from sparsevae.latent.objective import Objective, kl, nll
from sparsevae.latent.supervised import Discriminative, Generative, parts_of
from sparsevae.likelihoods.labels import LABEL_LIKELIHOODS, log_odds
from sparsevae.models.sdlgm import check_code, gated_encoder
from sparsevae.networks.architectures import Sizes
from sparsevae.parameters import check_choice, parameters
from sparsevae.schedules import Schedule

RELAXED = ("paper", "concrete")  # gradients whose training draws lie between 0 and 1
VARIANTS = ("dis", "gen", "con")


def encoders(est: Any, sizes: Sizes, weights: Generator | None, *, widths: Sequence[int]) -> nn.Module:
    """An encoder for each part of a code, one beside the other."""
    return ConcatenatedNetworks([gated_encoder(est, sizes._replace(raw_z=width), weights) for width in widths])


@parameters
class SDLGMClassifier(Classifies, LabelUnits, ObservedData, SparseCoder):
    r"""Multi-label classifier: the code is a set of labels, of which at most `cap` are on.

    .. math:: \mathcal L = -\log p(y | q(z|x)) + w_{KL}\, KL(q(z|x) \,\|\, p(z)) \; [\,- w_x\, E_q \log p(x|z)\,]

    variant="dis" learns y from x. "gen" also lets the code, which is the label vector, explain x. "con" adds
    `free_features`, which explain what labels do not. The encoder alone predicts.

    features="distinct" (ours) has a gate per label, at most `cap` of them on. "counts" is the paper's: `cap` draws, on
    with probability lambda(x), of features pi(x). The paper prints no likelihood of y. Here it is exact: "marginals",
    each label by itself, for counts 1 - (1 - lambda pi_k)^L0; or "set". "relaxed" takes min(1, z) of a relaxed draw.

    y is (n, L) of 0 and 1, dense or CSR, or (n,), one class per row; then the likeliest class is predicted. Training
    stops early, on a tenth of the rows, and `folds` more fits tune the threshold: 1/2 predicts too few.

    {parameters}

    Attributes
    ----------
    classes_, label_names_, cap_, max_labels_, threshold_
        The classes of y, or the numbers of its columns; their names; what None and "cv" came to. More as in `VAE`.

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

    variant: Annotated[str, "dis (y from x), gen (the labels also explain x) or con (with free features)."] = "dis"
    cap: Annotated[
        int | None,
        "L0: most labels at once (distinct), draws (counts), in the law; None: most of a row. Predictions ignore it.",
    ] = None
    features: Annotated[str, "distinct (at most `cap` labels) or counts (the paper's multinomial)."] = "distinct"
    label_likelihood: Annotated[str, "marginals (each label for itself), set (all at once), relaxed."] = "marginals"
    kl_weight: Annotated[float, "Weight of the KL to the prior."] = 0.01
    x_weight: Annotated[float, "Weight of -log p(x|z) beside that of y; for gen and con."] = 0.1
    free_features: Annotated[int, "Features of the code that are no labels; for con."] = 20
    free_cap: Annotated[int, "The cap of the free features; for con."] = 5
    max_labels: Annotated[int | None, "Most labels of a prediction; None: as many as a training row had."] = None
    threshold: Annotated[
        float | str, "P(label) above which it is predicted, or 'cv': the best by micro-F1 (.5 below 8 rows)."
    ] = "cv"
    folds: Annotated[int, "Folds of threshold='cv': so many more fits."] = 5
    alpha: Annotated[float, "Prior share of the cap in use, in (0, 1); for counts P(gate on): lambda_0."] = 0.5
    kl: Annotated[str, "KL of counts: tight (of the code itself) or paper (larger)."] = "tight"
    gradient: Annotated[str, "How gradients pass the draws that explain x: as in SDLGM."] = "auto"
    tau: Annotated[float | Schedule, "Temperature of gates, where gradients are relaxed."] = 0.5
    tau_z: Annotated[float | Schedule, "For features='counts', that of features, where gradients are relaxed."] = 0.5
    gate_hidden: Annotated[tuple[int, ...], "Hidden layers of the net that gives P(gate on); for counts, dense."] = (
        64,
    )
    shared_layers: Annotated[int, "For features='counts', hidden layers of the encoder that the gate net shares."] = 0

    learned: ClassVar[tuple[str, ...]] = (
        *LabelUnits.learned,
        *("classes_", "single_", "sparse_", "cap_", "max_labels_", "threshold_"),
    )

    def check(self) -> None:
        super().check()
        check_choice("variant", self.variant, VARIANTS)
        check_choice("label_likelihood", self.label_likelihood, LABEL_LIKELIHOODS)
        for name in ("kl_weight", "x_weight"):
            check_number(name, getattr(self, name), "a number, 0 or above", lambda w: w >= 0)
        for name in ("free_features", "free_cap", "cap", "max_labels"):
            if getattr(self, name) is not None or name.startswith("free"):
                check_number(name, getattr(self, name), "an integer above 0", lambda n: n > 0, whole=True)
        check_number("folds", self.folds, "an integer above 1", lambda k: k > 1, whole=True)
        if not isinstance(self.threshold, str) or self.threshold != "cv":
            check_number("threshold", self.threshold, "a number in [0, 1), or 'cv'", lambda t: 0 <= t < 1)
        for name in ("tau", "tau_z"):
            if isinstance(getattr(self, name), str):
                raise ValueError(f"{name} must be a number above 0 or a schedule, got {getattr(self, name)!r}.")
        if self.label_likelihood == "relaxed" and (
            self._codes(1, 1)[0].estimator not in RELAXED or self.features != "counts"
        ):
            raise ValueError(
                "label_likelihood='relaxed' learns from draws between 0 and 1: it needs features='counts' and "
                f"gradient={' or '.join(map(repr, RELAXED))}; got features={self.features!r} and "
                f"gradient={self.gradient!r}. A hard draw would pass no gradient from y."
            )
        self.refuse_free_bits()
        check_code(self, self._codes(1, 1)[0].estimator)

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
