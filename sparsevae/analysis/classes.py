r"""Codes compared by class: sparsity, gates, words and a linear probe.

After Prokhorov, Li, Shareghi and Collier, "Hierarchical sparse variational autoencoder for text encoding", figures 3
and 4, appendices D.4 and E. Codes Z are (n, J), of n rows in C classes.

- Sparsity: Av.Hoyer of rows and Agg.Hoyer of their average code. If the two are equal, all rows have the same zeros.
  Both are measured on hard draws and on means: for units with gates on slab means and on gated means P(on) mu, for
  HSVAE with one draw of gamma.
- Gates: :math:`\gamma_c = \frac{1}{n_c} \sum_{i \in c} P(\text{off} \mid x_i)`, (C, J), and the distance of its rows.
- Words, if X is texts: the KL between the word distributions of every pair of classes.
- Probe: test accuracy of a multinomial logistic regression on the codes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from sparsevae import metrics
from sparsevae.analysis.audit import check_coder
from sparsevae.checks import POSITIVE, check_seed
from sparsevae.estimator.coder import SparseCoder
from sparsevae.estimator.samples import draws as draws_of
from sparsevae.estimator.samples import means as means_of
from sparsevae.inputs.texts import Texts
from sparsevae.metrics.arrays import labels, matrix
from sparsevae.tables.printed import Result, json_value

RARE = 0.05  # appendix D.4: this share of units, those on least often, is left out of average codes
OWN_UNITS = 3  # most units in the table's column of units that a class uses more than the others
Array = np.ndarray[Any, Any]


class Separation(NamedTuple):
    """Distance of the means of two classes: per unit, and relative to the distance of two rows of one class."""

    distance: float
    relative: float


def separation(values: Any, y: Any) -> Separation:
    r"""Distance of class means against the spread within classes; `values` (n, J), y (n,).

    With :math:`g_c` the mean of the n_c rows of class c, and w the pooled variance within classes, summed over units,

    .. math::
        w = \frac{1}{n - C} \sum_i \lVert v_i - g_{y_i} \rVert^2, \qquad
        b = \operatorname{mean}_{a < c} \lVert g_a - g_c \rVert^2 - w \left(\tfrac{1}{n_a} + \tfrac{1}{n_c}\right).

    The last term is the expected contribution of chance, so b is 0 on average if classes do not differ.
    `distance` is :math:`\sqrt{b / J}`, in the units of the values. `relative` is :math:`\sqrt{b / 2w}`: 2w is the mean
    squared distance of two rows of one class. It is 0 if all classes have the same mean, and 1 if class means differ as
    much as two rows of one class. Read both: if the rows of a class hardly differ, `relative` is large even for a
    negligible `distance`.

    >>> found = separation([[0.0, 1.0], [0.2, 1.0], [1.0, 1.0], [1.2, 1.0]], ["a", "a", "b", "b"])  # w .02, b .98
    >>> round(found.distance, 6), round(found.relative, 6)
    (0.7, 4.949747)
    """
    v = matrix(values, "values")
    v = v - v[0]  # constant units are then exactly 0, without rounding errors
    y, number = _checked(y, len(v), "y")
    which = np.unique(y, return_inverse=True)[1]
    means = np.array([v[which == c].mean(0) for c in range(len(number))])
    within = float(np.square(v - means[which]).sum()) / (len(v) - len(number))
    a, c = np.triu_indices(len(number), 1)
    apart = np.square(means[a] - means[c]).sum(1) - within * (1 / number[a] + 1 / number[c])
    between = max(0.0, float(apart.mean()))
    limit = float(np.inf if between else 0.0)  # for equal rows within every class
    relative = float(np.sqrt(between / (2 * within))) if within else limit
    return Separation(float(np.sqrt(between / v.shape[1])), relative)


@dataclass(frozen=True, eq=False)
class ClassSparsity:
    """Hoyer's sparsity of one kind of code, over all rows and by class, (C,); the mean over draws.

    `average` is Av.Hoyer. Agg.Hoyer has two forms: `aggregate` uses the mean of absolute values, `printed` the signed
    mean, as in the paper (figure 3). By class the printed form leaves out the units that are on least often, the same
    units for all classes (appendix D.4). `class_printed` is None if that would leave out every unit, as it does if all
    are on equally often.
    """

    average: float
    aggregate: float
    printed: float
    class_average: Array
    class_aggregate: Array
    class_printed: Array | None

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and lists, for JSON: NaN and infinity become None."""
        return dict(json_value(self))


@dataclass(frozen=True, eq=False)
class Classes(Result):
    """The result of `classes`. It prints as a table.

    Attributes
    ----------
    name : str
        The estimator's class.
    rows, draws : int
        Number of rows, and of draws per row.
    classes, counts : (C,)
        Labels in rising order, and the number of rows of each.
    sparsity : dict of ClassSparsity
        Keys: "draws"; and "slab" and "gated" (means) for units with gates and sizes, "mean" for all others.
    gates : (C, J) or None
        gamma_class, the mean P(off) of every unit (appendix E); None for dense codes.
    separation : Separation or None
        Distance of the gates of two classes; None for dense codes.
    words : (C,) or None
        Number of words per class; None unless X is texts.
    word_kl : (C, C) or None
        KL(words of row's class || words of column's class), nats, add-1 smoothed (figure 4(b)).
    accuracy, accuracy_one_draw, majority : float
        Test accuracy of a probe on the mean of the draws, on one draw, and of predicting the commonest class.
    """

    name: str
    rows: int
    draws: int
    classes: Array
    counts: Array
    sparsity: dict[str, ClassSparsity]
    gates: Array | None
    separation: Separation | None
    words: Array | None
    word_kl: Array | None
    accuracy: float
    accuracy_one_draw: float
    majority: float

    def own_units(self, c: int) -> list[tuple[int, float]]:
        """Units whose P(on) is higher in class number c than in the others, with the difference, in falling order."""
        if self.gates is None:
            return []
        more = np.delete(self.gates, c, 0).mean(0) - self.gates[c]  # of P(on)
        return [(int(j), float(more[j])) for j in np.argsort(-more, kind="stable") if more[j] > 0]

    def table(self, of: str = "draws") -> tuple[list[str], list[list[str]]]:
        """Header and lines of text: one for all rows, then one per class; `of` is a key of `sparsity`."""
        if of not in self.sparsity:
            raise ValueError(f"of must be one of {', '.join(self.sparsity)}; got {of!r}.")
        found, n = self.sparsity[of], len(self.classes)
        printed = [np.nan] * n if found.class_printed is None else found.class_printed
        columns = {
            "class": ["all", *(str(c) for c in self.classes)],
            "rows": [str(self.rows), *(str(k) for k in self.counts)],
            "Av.Hoyer": [f"{v:.3f}" for v in (found.average, *found.class_average)],
            "Agg.Hoyer": [f"{v:.3f}" for v in (found.aggregate, *found.class_aggregate)],
            "printed": [f"{found.printed:.3f}", *("-" if np.isnan(v) else f"{v:.3f}" for v in printed)],
        }
        if self.gates is not None:
            own = [", ".join(f"{j} +{more:.2f}" for j, more in self.own_units(c)[:OWN_UNITS]) for c in range(n)]
            columns["P(off)"] = [f"{v:.3f}" for v in (self.gates.mean(), *self.gates.mean(1))]
            columns["on more than elsewhere"] = ["", *own]
        return list(columns), [list(line) for line in zip(*columns.values(), strict=True)]

    @property
    def legend(self) -> str:
        """The text below the table: gates, words and the probe."""
        lines = [f"{self.name}: Hoyer of {self.draws} draws per row; printed: of the signed mean, as in the paper."]
        lines += [
            f"{'means' if kind == 'mean' else f'{kind} means'}: "
            f"Av.Hoyer {s.average:.3f}, Agg.Hoyer {s.aggregate:.3f}, printed {s.printed:.3f}"
            for kind, s in self.sparsity.items()
            if kind != "draws"
        ]
        if self.separation is not None:
            apart, relative = self.separation
            beside = f"{relative:.2f} of the distance of two rows of one class"
            lines.append(f"gates of two classes differ by {apart:.3f} per unit, {beside}")
        if self.word_kl is not None:
            each = self.word_kl[~np.eye(len(self.classes), dtype=bool)]
            lines.append(f"words of two classes: KL {each.mean():.3f} nats ({each.min():.3f} to {each.max():.3f})")
        lines.append(
            f"probe: {self.accuracy:.3f} on the mean of {self.draws} draws, {self.accuracy_one_draw:.3f} on one; "
            f"majority class: {self.majority:.3f}"
        )
        return "\n".join(lines)


def classes(
    est: SparseCoder,
    X: Any,
    y: Any,
    *,
    X_test: Any = None,
    y_test: Any = None,
    draws: int = 5,
    seed: int = 0,
) -> Classes:
    """Compare the classes y of rows X by the codes of a fitted estimator and, if X is texts, by their words.

    Parameters
    ----------
    est : SparseCoder
        A fitted estimator of this library.
    X, y : rows and their labels, (n,)
        At least two classes, of at least two rows each. Everything is measured on X; the probe is fitted on one half
        of each class and scored on the other. Equal rows have equal draws: drop duplicates, since a row in both halves
        would raise the accuracy.
    X_test, y_test : optional
        If given, the probe is fitted on all of X, and everything is measured on X_test.
    draws : int
        Hard draws of q(z|x) per row: sparsity is averaged over them, and the probe takes their mean.
    seed : int
        Seed of the draws and of the split into halves.

    Examples
    --------
    >>> import sparsevae as sv
    >>> from sparsevae.analysis.classes import classes
    >>> digits = sv.data.load("digits")
    >>> training = sv.Training(steps=200, kl_warmup=0.9, verbose=0)
    >>> est = sv.VSC(32, hidden=(64,), alpha=0.2, training=training).fit(digits.X)
    >>> found = classes(est, digits.X_test, digits.y_test)
    >>> found.gates.shape, found.accuracy > found.majority
    ((10, 32), True)
    """
    check_coder("classes", est)
    POSITIVE.check("draws", draws, whole=True)
    if (X_test is None) != (y_test is None):
        raise TypeError("X_test and y_test go together: give both, or neither.")
    check_seed("seed", seed)
    if not hasattr(est, "draw_codes"):
        raise TypeError(f"classes compares draws of a code, and {type(est).__name__} has none: use VAE, VSC or HSVAE.")
    X = est.fitted_.rows(X)
    Z = draws_of(est, X, int(draws), seed)  # (draws, n, J)
    if X_test is None:
        y, number = _checked(y, Z.shape[1], "y")
        learn, test = _halves(y, seed)
        codes, y_learn, drawn, y_drawn = Z[:, learn], y[learn], Z[:, test], y[test]
    else:
        codes, y_learn = Z, labels(y, Z.shape[1], "y")
        X = est.fitted_.rows(X_test)
        Z = drawn = draws_of(est, X, int(draws), seed)
        y, number = _checked(y_test, Z.shape[1], "y_test")
        y_drawn = y
    kinds = {"draws": Z, **{kind: mean[None] for kind, mean in means_of(est, X, seed).items()}}
    off, words = _off(est, X), _words(est, X)
    return Classes(
        name=type(est).__name__,
        rows=Z.shape[1],
        draws=int(draws),
        classes=np.unique(y),
        counts=number,
        sparsity={kind: _sparsity(each, y) for kind, each in kinds.items()},
        gates=None if off is None else metrics.class_gates(off, y),
        separation=None if off is None else separation(off, y),
        words=None if words is None else np.array([words[y == c].sum() for c in np.unique(y)]),
        word_kl=None if words is None else metrics.class_word_divergence(words, y),
        accuracy=metrics.linear_probe(codes.mean(0), y_learn, drawn.mean(0), y_drawn),
        accuracy_one_draw=metrics.linear_probe(codes[0], y_learn, drawn[0], y_drawn),
        majority=majority_accuracy(y_learn, y_drawn),
    )


def majority_accuracy(y_learn: Array, y: Array) -> float:
    """Share of the labels y that equal the commonest of y_learn."""
    values, counts = np.unique(y_learn, return_counts=True)
    return float((y == values[counts.argmax()]).mean())


def _checked(y: Any, n: int, name: str) -> tuple[Array, Array]:
    """Labels (n,) and the number of rows per class, (C,); refuses fewer than two classes or two rows per class."""
    y = labels(y, n, name)
    found, number = np.unique(y, return_counts=True)
    if len(found) < 2 or number.min() < 2:
        few = f"class {found[number.argmin()]!s} has {number.min()}" if len(found) > 1 else f"all are {found[0]!s}"
        raise ValueError(f"{name} must have two classes at least, of two rows each at least; {few}. Drop such rows.")
    return y, number


def _halves(y: Array, seed: int) -> tuple[Array, Array]:
    """Positions of the two halves of the rows: each class is split in random order."""
    order = np.random.default_rng(seed).permutation(len(y))
    order = order[np.argsort(np.unique(y, return_inverse=True)[1][order], kind="stable")]
    rank = np.concatenate([np.arange(k) for k in np.unique(y, return_counts=True)[1]])  # within its class
    return np.sort(order[rank % 2 == 0]), np.sort(order[rank % 2 == 1])


def _sparsity(draws: Array, y: Array) -> ClassSparsity:
    """Hoyer's sparsity of codes (draws, n, J), averaged over draws."""
    each = [metrics.class_hoyer(Z, y) for Z in draws]
    printed = [found for Z in draws if (found := _printed(Z, y)) is not None]
    whole = metrics.CodeHoyer(*np.mean([metrics.code_hoyer(Z) for Z in draws], axis=0).tolist())
    return ClassSparsity(
        *whole,
        np.mean([found.average for found in each], axis=0),
        np.mean([found.aggregate for found in each], axis=0),
        np.mean(printed, axis=0) if len(printed) == len(draws) else None,
    )


def _printed(Z: Array, y: Array) -> Array | None:
    """Figure 3(b); None if all units are on equally often."""
    try:
        return metrics.class_hoyer(Z, y, absolute=False, rare=RARE).aggregate
    except ValueError:  # the only possible cause: the codes were checked before
        return None


def _off(est: SparseCoder, X: Any) -> Array | None:
    """P(off) of checked rows, (n, J): E[gamma] for HSVAE, 1 - p_on for other gates; None for dense codes."""

    def off(q: Any) -> Tensor:
        p_on: Tensor = q.p_on if hasattr(q, "p_on") else q.mean[:, :0]
        return (1 - p_on.double()).clamp(0, 1)

    found = est.fitted_.ask(X, off)
    return found if found.shape[1] else None


def _words(est: SparseCoder, X: Any) -> Any:
    """Word counts of checked rows, (n, V), CSR; None unless X is texts."""
    if not isinstance(est.input_, Texts):
        return None
    return metrics.word_counts(X, len(est.input_.vocabulary))
