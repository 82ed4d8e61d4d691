"""Mixins of models that learn from labels: y is one more observed variable of the trace.

The encoder reads x alone. The trace of a batch without y observes x only: codes and scores need no more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

import numpy as np
import scipy.sparse
from sklearn.base import ClassifierMixin, RegressorMixin, clone
from sklearn.utils.validation import check_is_fitted

from sparsevae.checks import POSITIVE, In, OneOf
from sparsevae.estimator.splits import MultiLabelKFold
from sparsevae.inputs.base import Array
from sparsevae.inputs.kind import as_list
from sparsevae.inputs.labels import Labels, check_names, read_counts, read_labels
from sparsevae.metrics.multilabel import cardinality, macro_f1, micro_f1
from sparsevae.metrics.thresholds import best_threshold, cut
from sparsevae.parameters import parameters
from sparsevae.training.loop import Watch
from sparsevae.training.settings import Training

if TYPE_CHECKING:
    from sparsevae.estimator.coder import SparseCoder as _Coder
else:
    _Coder = object


class FromLabels(_Coder):
    """Mixed in before `SparseCoder`: a model that learns from X and y, which its `read_targets` reads.

    `learned` names the attributes that are stored beside the networks: plain values and arrays.
    """

    target: ClassVar[str] = "y"  # where a data set has the targets: its y, or this key of its truth
    learned: ClassVar[tuple[str, ...]] = ("n_labels_", "label_names_")
    n_labels_: int
    label_names_: list[str]

    @classmethod
    def default_training(cls) -> Training:
        """Early stopping by default: small labelled data sets are soon overfitted."""
        return Training(validation_fraction=0.1, patience=5)

    def evaluate(self, X: Any, y: Any = None, *, caps: Sequence[int] = (), n_samples: int = 10) -> dict[str, Any]:
        """Scores of the predictions of y; without y the numbers of `SparseCoder`, for models with a p(x|z)."""
        return super().evaluate(X, caps=caps, n_samples=n_samples)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    def fit(self, X: Any, y: Any = None, *, watch: Watch | None = None, label_names: Any = None) -> Self:
        """Learn from X, in any form that `SparseCoder.fit` takes, and targets y, (n, L), dense or CSR, or (n,).

        `label_names` are the names of y's columns; by default those of a DataFrame.
        """
        return self._learn(X, y, watch, label_names=label_names)

    def partial_fit(self, X: Any, y: Any = None, classes: Any = None, *, label_names: Any = None) -> Self:
        """One more pass over new rows, as in `SparseCoder.partial_fit`; the first call fixes the labels.

        If y is (n,), the first call needs `classes`, unless all of them occur in y. No threshold is tuned.
        """
        return self._pass_over(X, y, classes=classes, label_names=label_names)

    def _targets(self, X: Any, y: Any, about_y: dict[str, Any]) -> Any:
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None.")
        return super()._targets(X, y, about_y)


class LabelUnits(FromLabels):
    """A model whose units are labels: y fixes their number, so there is no n_components."""

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Names of a code's columns: the labels, then free0, free1, ... where the code has free features."""
        check_is_fitted(self)
        free = self._n_features_out - self.n_labels_
        return np.array([*self.label_names_, *(f"free{j}" for j in range(free))], dtype=object)


class CountTargets(RegressorMixin, LabelUnits):
    """A model whose y is counts of K things per row, (n, K), or (n,) for K = 1."""

    target: ClassVar[str] = "counts"
    attributes: ClassVar[Mapping[str, tuple[str, str]]] = {
        "label_names_": ("list of str", "the names of y's columns"),
        "single_": ("bool", "True if y is (n,): predictions have its shape"),
        "mean_": ("ndarray (K,)", "the mean counts of the training rows: the best constant prediction"),
    }
    learned: ClassVar[tuple[str, ...]] = (*LabelUnits.learned, "single_", "mean_")
    single_: bool
    mean_: Array

    def read_targets(self, y: Any, *, label_names: Any = None, classes: Any = None) -> Any:
        Y, names, single = read_counts(y)
        if not hasattr(self, "fitted_"):
            self.n_labels_, self.single_ = Y.shape[1], single
            self.label_names_ = check_names(names if label_names is None else label_names, Y.shape[1])
            self.mean_ = np.asarray(Y.mean(0), dtype=np.float64).ravel()
        if Y.shape[1] != self.n_labels_:
            raise ValueError(f"this model counts {self.n_labels_} things per row; got y of shape {Y.shape}.")
        return Y

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.positive_only = True
        return tags


class Classifies(ClassifierMixin, FromLabels):
    """A model whose y is one class per row, (n,), or any number of L labels per row, (n, L).

    Learned: `classes_`; `single_`, True for one class per row; `sparse_`, True if y is CSR.
    """

    attributes: ClassVar[Mapping[str, tuple[str, str]]] = {
        "classes_, label_names_": (
            "ndarray (L,), list of str",
            "the classes of y, or numbers of columns; their names",
        ),
    }
    learned: ClassVar[tuple[str, ...]] = (*FromLabels.learned, "classes_", "single_", "sparse_")
    classes_: Array
    single_: bool
    sparse_: bool
    threshold_: float = 0.5  # least P(label) to predict it
    max_labels_: int | None = None  # most labels of a prediction; None: all

    def read_targets(self, y: Any, *, label_names: Any = None, classes: Any = None) -> Any:
        known = None
        if hasattr(self, "fitted_"):
            known = Labels(self.classes_, self.single_, self.sparse_, self.label_names_)
        found, Y = read_labels(y, known, label_names, classes)
        self.classes_, self.single_, self.sparse_, self.label_names_ = found
        self.n_labels_ = len(found.classes)
        return Y

    def predict_proba(self, X: Any) -> Array:
        """P(label) of every row, (n, L); with one class per row, rows sum to 1."""
        raise NotImplementedError

    def predict(self, X: Any) -> Any:
        """Labels (n, L), 0/1, CSR where y was; or the most probable classes, (n,)."""
        P = self.predict_proba(X)
        if self.single_:
            return self.classes_[P.argmax(1)]
        labels = cut(P, self.threshold_, self.max_labels_ or self.n_labels_)
        return scipy.sparse.csr_array(labels) if self.sparse_ else labels

    def _accuracy(self, X: Any, y: Any) -> dict[str, Any]:
        """Scores of the predictions for X beside y: F1, the share of rows that are exact, labels per row."""
        X = as_list(X)
        P = self.predict(X)
        Y = self._targets(self.fitted_.rows(X), y, {})
        if self.single_:
            P = (P[:, None] == self.classes_).astype(np.uint8)
        P, Y = (np.asarray(A.toarray() if hasattr(A, "toarray") else A) for A in (P, Y))
        return {
            "rows": len(Y),
            "micro_f1": micro_f1(Y, P),
            "macro_f1_mean": macro_f1(Y, P),
            "macro_f1_harmonic": macro_f1(Y, P, definition="harmonic"),
            "exact": float((P == Y).all(1).mean()),
            "labels_true": cardinality(Y),
            "labels_predicted": cardinality(P),
        }

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags


@parameters
class Thresholds(Classifies):
    """A classifier that predicts the labels whose probability exceeds a threshold, which cross-validation can choose.

    Learned: `threshold_`, `max_labels_`.
    """

    max_labels: Annotated[int | None, POSITIVE, "Most labels of a prediction; None: most of a training row."] = None
    threshold: Annotated[
        float | str, In(0, 1, "[)"), OneOf("cv"), "Least P(label) to predict it. 'cv': best micro-F1 (.5 below 8 rows)."
    ] = "cv"
    folds: Annotated[int, In(2), "Folds of threshold='cv', one more fit each."] = 5

    attributes: ClassVar[Mapping[str, tuple[str, str]]] = {
        "max_labels_, threshold_": ("int, float", "as given, or the values of None and 'cv' for these data"),
    }
    learned: ClassVar[tuple[str, ...]] = (*Classifies.learned, "max_labels_", "threshold_")

    def choose_threshold(self, X: Any, Y: Any, most: int, *, tune: bool, **fixed: Any) -> None:
        """Set `threshold_` and `max_labels_` for rows of at most `most` labels; clones are fitted with `fixed`."""
        if not hasattr(self, "fitted_"):
            self.max_labels_ = most if self.max_labels is None else int(self.max_labels)
            self.threshold_ = 0.5 if isinstance(self.threshold, str) else float(self.threshold)
        folds = min(int(self.folds), X.shape[0] // 4)
        if not tune or folds < 2 or self.threshold != "cv" or self.single_:
            return
        P = np.zeros(Y.shape)
        quiet = {"training__verbose": 0, "training__folder": None, "training__resume": False}
        for train, held_out in MultiLabelKFold(folds, seed=self.training_settings().seed).split(X, Y):
            twin = clone(self).set_params(threshold=0.5, max_labels=self.max_labels_, **fixed, **quiet)
            P[held_out] = twin.fit(X[train], Y[train]).predict_proba(X[held_out])
        self.threshold_ = best_threshold(Y.toarray() if self.sparse_ else Y, P, self.max_labels_ or self.n_labels_)
