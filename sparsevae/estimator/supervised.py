"""Models with labels: y is one more observed site, and nothing else is new.

The encoder sees x alone. A batch without y is a batch too: its trace observes x only, which is what scores and codes
need.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

import numpy as np
import torch
from sklearn.base import ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_consistent_length, check_is_fitted
from torch import Tensor
from torch.distributions import Distribution

from sparsevae.estimator.coder import SparseCoder
from sparsevae.inputs.base import Array
from sparsevae.inputs.labels import Labels, read_labels
from sparsevae.inputs.rows import place
from sparsevae.inputs.stats import fingerprint
from sparsevae.latent.objective import Objective, kl, nll
from sparsevae.latent.supervised import parts_of
from sparsevae.metrics.multilabel import cardinality, macro_f1, micro_f1
from sparsevae.parameters import parameters
from sparsevae.training.loop import Watch
from sparsevae.training.settings import Training


def _describes_x(est: LabelledCoder) -> bool:
    return est._generates()


@parameters
class LabelledCoder(SparseCoder):
    """A coder that learns from X and y. Learned: `n_labels_`, `label_names_`, and all that `SparseCoder` learns.

    A subclass says how y is read (`_read_targets`) and builds the story (`_build`).
    """

    training: Annotated[
        Training | None, "Training settings; None means Training(validation_fraction=0.1, patience=5)."
    ] = None
    target: ClassVar[str] = "y"  # what of a data set is learned from: its y, or this part of its truth

    @classmethod
    def default_training(cls) -> Training:
        """Stops early: small sets of labelled rows are soon learned by heart."""
        return Training(validation_fraction=0.1, patience=5)

    def _generates(self) -> bool:
        return False

    def evaluate(self, X: Any, y: Any = None, *, caps: Sequence[int] = (), n_samples: int = 10) -> dict[str, Any]:
        """The numbers to judge predictions of y by; without y those of a coder, for models with a p(x|z)."""
        return super().evaluate(X, caps=caps, n_samples=n_samples)

    def _read_targets(self, y: Any, label_names: Any, classes: Any) -> Any:
        """Check y, learn what it is like where there is no model yet, and give it as numbers, (n, L)."""
        raise NotImplementedError

    def _accept(self, Y: Any) -> None:
        """Settle what training needs to know of its targets, or refuse them."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    # -- fit ----------------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, *, watch: Watch | None = None, label_names: Any = None) -> Self:
        """Learn from X, as every coder takes it, and its targets y, (n, L), dense or CSR, or (n,).

        `label_names` are those of y's columns; by default a DataFrame's own.
        """
        self.check()
        if hasattr(self, "model_"):
            del self.model_  # should X or y be refused, no old model goes with half-new settings
        X = self._read(X, reset=True)
        Y = self._targets(X, y, label_names)
        self._accept(Y)
        self._tune(X, Y)
        self._begin(X, Y)
        self._train(X, self.training_, self.schedules(), None, Y, watch)
        return self

    def partial_fit(self, X: Any, y: Any = None, classes: Any = None, *, label_names: Any = None) -> Self:
        """One more pass over new rows, as every coder's; the first call settles what the labels are.

        With y (n,) the first call needs `classes`, unless all of them occur in it. Nothing is tuned.
        """
        self.check()
        fresh = not hasattr(self, "model_")
        X = self._read(X, reset=fresh)
        Y = self._targets(X, y, label_names, classes)
        self._accept(Y)
        if fresh:
            self._begin(X, Y)
        else:
            self._check_support(X)
        self._train(X, *self._once_more(X.shape[0]), getattr(self, "_moments", None), Y)
        return self

    def _targets(self, X: Any, y: Any, label_names: Any = None, classes: Any = None) -> Any:
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None.")
        Y = self._read_targets(y, label_names, classes)
        check_consistent_length(X, Y)
        return Y

    def _tune(self, X: Any, Y: Any) -> None:
        """Settle what cross-validation has to settle, before the model itself is trained."""

    def _begin(self, X: Any, Y: Any) -> None:
        self._start(X)
        cpu = torch.device("cpu")
        self.fingerprint_ = fingerprint(place(X, cpu, resident=False), place(Y, cpu, resident=False))

    def objective(self) -> Objective:
        return Objective(nll, kl, weights=self.weights())

    # -- what the model says ------------------------------------------------------------------------------------

    def _answers(self, X: Any, question: Callable[[Distribution], Tensor]) -> Array:
        """A question to the label part of q(z|x) of rows that were read; (n, ...)."""
        return super()._answers(X, lambda q: question(parts_of(q)[0]))

    @available_if(_describes_x)
    def inverse_transform(self, Z: Any) -> Any:
        """The mean of p(x|z) for every code, in X's own units; for models with a p(x|z)."""
        return super().inverse_transform(Z)

    @available_if(_describes_x)
    def score_samples(self, X: Any, *, n_samples: int = 10) -> Array:
        """Per item, nats: the bound on log p(x), as every coder's; for models with a p(x|z)."""
        return super().score_samples(X, n_samples=n_samples)

    importance_bound = available_if(_describes_x)(SparseCoder.importance_bound)
    relaxed_objective = available_if(_describes_x)(SparseCoder.relaxed_objective)
    sample = available_if(_describes_x)(SparseCoder.sample)
    sample_like = available_if(_describes_x)(SparseCoder.sample_like)
    draw_codes = available_if(_describes_x)(SparseCoder.draw_codes)
    generate = available_if(_describes_x)(SparseCoder.generate)
    reconstruct = available_if(_describes_x)(SparseCoder.reconstruct)
    score_meaning = available_if(_describes_x)(SparseCoder.score_meaning)

    # -- save ---------------------------------------------------------------------------------------------------

    learned: ClassVar[tuple[str, ...]] = ("n_labels_", "label_names_")  # beside the model: plain values and arrays

    def _stored(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        tensors, meta = super()._stored()
        labels: dict[str, Any] = {}
        for name in self.learned:
            value = getattr(self, name)
            array = isinstance(value, np.ndarray)
            labels[name] = {"values": value.tolist(), "dtype": value.dtype.str} if array else value
        return tensors, {**meta, "labels": labels}

    def _restore(self, path: str | Path, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> Self:
        for name in self.learned:
            value = meta["labels"][name]
            array = isinstance(value, dict)
            setattr(self, name, _array(value["values"], value["dtype"]) if array else value)
        for name in filter(_LEARNED.__contains__, self.learned):
            expected, legal = _LEARNED[name]
            if not legal(getattr(self, name), self.n_labels_):
                raise ValueError(f"{name} must be {expected}, got {reprlib.repr(getattr(self, name))}")
        return super()._restore(path, tensors, meta)


def _is_count(value: Any, n: int) -> bool:
    return type(value) is int and 0 < value < 2**31


def _array(values: Any, dtype: str) -> Array:
    """A stored array, of numbers or words; a type may ask for as much memory for each as it likes."""
    kind = np.dtype(dtype)
    if kind.kind not in "biufUSO" or kind.itemsize * len(values) > _MOST_BYTES:
        raise ValueError(f"an array of {len(values)} values of type {dtype!r}")
    return np.array(values, dtype=kind)


_MOST_BYTES = 2**28
_COUNT, _FLAG = ("an integer above 0", _is_count), ("true or false", lambda v, n: isinstance(v, bool))
_LEARNED: dict[str, tuple[str, Callable[[Any, int], bool]]] = {
    **dict.fromkeys(("n_labels_", "cap_", "max_labels_"), _COUNT),
    **dict.fromkeys(("single_", "sparse_"), _FLAG),
    "label_names_": ("a name per label", lambda v, n: isinstance(v, list) and len(v) == n and {*map(type, v)} == {str}),
    "classes_": ("a class per label", lambda v, n: isinstance(v, np.ndarray) and v.shape == (n,)),
    "mean_": ("a number per label", lambda v, n: isinstance(v, np.ndarray) and v.shape == (n,) and v.dtype.kind == "f"),
    "threshold_": ("a number in [0, 1)", lambda v, n: isinstance(v, (int, float)) and 0 <= v < 1),
}
"""What labelled coders learn beside the model: in words, and whether a stored value is such a thing for n labels."""


@parameters
class LabelUnitCoder(LabelledCoder):
    """A coder whose units are labels: what `n_components` is elsewhere y says, so there is no such argument."""

    n_components: ClassVar[int] = 1  # type: ignore[misc]  # a field no longer

    def _sparse(self) -> bool:
        return True

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Names of a code's columns: the labels, then free0, free1, ... where the code has free features."""
        check_is_fitted(self)
        free = self._n_features_out - self.n_labels_
        return np.array([*self.label_names_, *(f"free{j}" for j in range(free))], dtype=object)


class Classifies(ClassifierMixin):
    """What labelled coders share whose y is labels: one class a row, (n,), or any number of L, (n, L).

    Learned: `classes_`; `single_`, whether y is one class a row; `sparse_`, whether it is CSR.
    """

    attributes: ClassVar[Mapping[str, tuple[str, str]]] = {
        "classes_, label_names_": (
            "ndarray (L,), list of str",
            "the classes of y, or numbers of columns; their names",
        ),
    }
    n_labels_: int
    label_names_: list[str]

    def _read_targets(self, y: Any, label_names: Any, classes: Any) -> Any:
        known = None
        if hasattr(self, "model_"):
            known = Labels(self.classes_, self.single_, self.sparse_, self.label_names_)
        found, Y = read_labels(y, known, label_names, classes)
        self.classes_: Array = found.classes
        self.single_: bool = found.single
        self.sparse_: bool = found.sparse
        self.label_names_ = found.names
        self.n_labels_ = len(found.classes)
        return Y

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
