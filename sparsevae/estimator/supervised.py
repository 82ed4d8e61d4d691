"""Models with labels: y is one more observed site, and nothing else is new.

The encoder sees x alone. A batch without y is a batch too: its trace observes x only, which is what scores and codes
need.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import scipy.sparse
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from sparsevae.inputs.base import Array
from sparsevae.inputs.labels import Labels, read_labels
from sparsevae.metrics.multilabel import cardinality, macro_f1, micro_f1
from sparsevae.metrics.thresholds import cut
from sparsevae.training.loop import Watch
from sparsevae.training.settings import Training

if TYPE_CHECKING:
    from sparsevae.estimator.coder import SparseCoder as _Coder
else:
    _Coder = object


class FromLabels(_Coder):
    """Mixed in before `SparseCoder`: a model that learns from X and y. Learned too: `n_labels_`, `label_names_`.

    The model says how y is read (`read_targets`). `learned` names what it learns beside its networks: plain values and
    arrays.
    """

    target: ClassVar[str] = "y"  # what of a data set is learned from: its y, or this part of its truth
    learned: ClassVar[tuple[str, ...]] = ("n_labels_", "label_names_")
    n_labels_: int
    label_names_: list[str]

    @classmethod
    def default_training(cls) -> Training:
        """Stops early: small sets of labelled rows are soon learned by heart."""
        return Training(validation_fraction=0.1, patience=5)

    def evaluate(self, X: Any, y: Any = None, *, caps: Sequence[int] = (), n_samples: int = 10) -> dict[str, Any]:
        """The numbers to judge predictions of y by; without y those of a coder, for models with a p(x|z)."""
        return super().evaluate(X, caps=caps, n_samples=n_samples)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    def fit(self, X: Any, y: Any = None, *, watch: Watch | None = None, label_names: Any = None) -> Self:
        """Learn from X, as every coder takes it, and its targets y, (n, L), dense or CSR, or (n,).

        `label_names` are those of y's columns; by default a DataFrame's own.
        """
        return self._learn(X, y, watch, label_names=label_names)

    def partial_fit(self, X: Any, y: Any = None, classes: Any = None, *, label_names: Any = None) -> Self:
        """One more pass over new rows, as every coder's; the first call settles what the labels are.

        With y (n,) the first call needs `classes`, unless all of them occur in it. Nothing is tuned.
        """
        return self._pass_over(X, y, classes=classes, label_names=label_names)


def require(est: Any, y: Any) -> None:
    """Refuse a missing y."""
    if y is None:
        raise ValueError(f"{type(est).__name__} requires y to be passed, but the target y is None.")


# -- units that are labels, labels that are classes -------------------------------------------------------------------


class LabelUnits(FromLabels):
    """A model whose units are labels: y says how many there are, so it has no n_components."""

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Names of a code's columns: the labels, then free0, free1, ... where the code has free features."""
        check_is_fitted(self)
        free = self._n_features_out - self.n_labels_
        return np.array([*self.label_names_, *(f"free{j}" for j in range(free))], dtype=object)


class Classifies(ClassifierMixin):
    """What models share whose y is labels: one class per row, (n,), or any number of L, (n, L).

    Learned: `classes_`; `single_`, whether y is one class per row; `sparse_`, whether it is CSR.
    """

    attributes: ClassVar[Mapping[str, tuple[str, str]]] = {
        "classes_, label_names_": (
            "ndarray (L,), list of str",
            "the classes of y, or numbers of columns; their names",
        ),
    }
    classes_: Array
    single_: bool
    sparse_: bool
    n_labels_: int
    label_names_: list[str]

    def read_targets(self, y: Any, *, label_names: Any = None, classes: Any = None) -> Any:
        require(self, y)
        known = None
        if hasattr(self, "fitted_"):
            known = Labels(self.classes_, self.single_, self.sparse_, self.label_names_)
        found, Y = read_labels(y, known, label_names, classes)
        self.classes_, self.single_, self.sparse_, self.label_names_ = found
        self.n_labels_ = len(found.classes)
        return Y

    def _from_probabilities(self, P: Array, threshold: float, most: int) -> Any:
        """Labels (n, L), 0/1, CSR where y was; or the likeliest classes, (n,)."""
        if self.single_:
            return self.classes_[P.argmax(1)]
        labels = cut(P, threshold, most)
        return scipy.sparse.csr_array(labels) if self.sparse_ else labels

    def _judge(self, P: Any, Y: Any) -> dict[str, Any]:
        """Predictions, as `predict` gives them, beside targets that were read, (n, L)."""
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
