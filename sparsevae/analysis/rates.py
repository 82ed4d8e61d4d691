r"""Rate and distortion: reconstruction error and probe accuracy against bits per row, beside quantised PCA.

For every cap c the rows are encoded with at most c units on and the codes are stored in bits. The stored codes are
decoded and given to a probe:

- codes of counts cost as many bits per row as `pack` takes, without loss;
- codes of real values cost :math:`c\,(\lceil\log_2(K + 1)\rceil + v)`: which unit, and its value in v bits. Values are
  rounded to the middle of one of 2^v equal cells between the unit's least and greatest value.

PCA gets the same budget of bits, for m components of b bits with m b at most the budget. Its cells lie within t
standard deviations of a component's mean. The b from 1 to 16, with m = floor(budget / b) or all components if that is
fewer, and for each component the t of `SPANS`, minimise the training error; the directions are orthonormal, so that
error is a sum over components.

One half of the rows fits the ranges, PCA and the probe; the other half is measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse

from sparsevae.analysis.classes import majority_accuracy
from sparsevae.checks import In, a_type, check_seed
from sparsevae.inputs.texts import Texts
from sparsevae.latent.concatenated import ConcatenatedPosterior
from sparsevae.latent.packing import bits_per_row
from sparsevae.latent.posteriors import DiscretePosterior, OneHotPosterior
from sparsevae.metrics import linear_probe
from sparsevae.metrics.arrays import labels, plain
from sparsevae.parameters import check_caps
from sparsevae.tables.printed import Result

SPANS = (1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 6.0)  # for a Gaussian 1.6 is optimal for one bit, 3.9 for eight
MOST_VALUE_BITS = 16
CAPS = (1, 2, 5, 10, 20)
Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class RateDistortion(Result):
    """The result of `rate_distortion`: one number per cap, (C,), in the order of rising caps. It prints as a table.

    Attributes
    ----------
    name : str
        The estimator's class.
    rows, n_features, n_components : int
        Number of rows measured, of values per row and of units per code.
    value_bits : int or None
        Bits per value; None for codes of counts.
    caps, bits : (C,)
        The most units on in a row, and bits per row.
    nonzeros : (C,)
        Mean number of units that are on in a row.
    mse : (C,)
        Mean squared error per value, in X's units.
    probe : (C,) or None
        Test accuracy of a linear probe on the codes; None without labels.
    pca_components, pca_value_bits, pca_mse, pca_probe : (C,)
        PCA at no more bits: its components, bits per component, error and probe accuracy.
    mean_mse, majority : float
        Results without any bits: the error of the training rows' mean, and the accuracy of their commonest label (None
        without labels).
    """

    name: str
    rows: int
    n_features: int
    n_components: int
    value_bits: int | None
    caps: Array
    bits: Array
    nonzeros: Array
    mse: Array
    probe: Array | None
    pca_components: Array
    pca_value_bits: Array
    pca_mse: Array
    pca_probe: Array | None
    mean_mse: float
    majority: float | None

    @property
    def pca_bits(self) -> Array:
        """Bits per row of PCA: at most `bits`."""
        total: Array = self.pca_components * self.pca_value_bits
        return total

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Header and lines of text, one line per cap."""
        pca = zip(self.pca_components, self.pca_value_bits, strict=True)
        columns = {
            "cap": [str(c) for c in self.caps],
            "bits": [str(b) for b in self.bits],
            "on": [f"{v:.1f}" for v in self.nonzeros],
            "mse": [f"{v:.4g}" for v in self.mse],
            "PCA": [f"{m} x {b}" for m, b in pca],
            "PCA bits": [str(b) for b in self.pca_bits],
            "PCA mse": [f"{v:.4g}" for v in self.pca_mse],
        }
        if self.probe is not None and self.pca_probe is not None:
            columns |= {"probe": [f"{v:.3f}" for v in self.probe], "PCA probe": [f"{v:.3f}" for v in self.pca_probe]}
        return list(columns), [list(line) for line in zip(*columns.values(), strict=True)]

    @property
    def legend(self) -> str:
        """The text below the table: how codes were stored in bits, and the results without any bits."""
        kind = "counts, packed" if self.value_bits is None else f"index and value, the value in {self.value_bits} bits"
        lines = [
            f"{self.name}: codes of {self.n_components} units ({kind}); PCA: components x bits of each",
            f"{self.rows} rows of {self.n_features} values, {32 * self.n_features} bits each as float32; "
            f"their mean instead of a code: mse {self.mean_mse:.4g}",
        ]
        return "\n".join(lines) + ("" if self.majority is None else f", majority class: {self.majority:.3f}")

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> RateDistortion:
        """The inverse of `to_dict`, also after a conversion to JSON and back."""
        own: dict[str, Any] = {k: np.asarray(v) if isinstance(v, list) else v for k, v in plain.items()}
        return cls(**own)


def rate_distortion(
    est: Any,
    X: Any,
    y: npt.ArrayLike | None = None,
    caps: Sequence[int] | None = None,
    *,
    value_bits: int = 8,
    seed: int = 0,
) -> RateDistortion:
    """Reconstruction error and, with labels, accuracy of a linear probe against bits per row; beside PCA at equal bits.

    Parameters
    ----------
    est : fitted estimator
        Any object with `transform(X, max_active=...)` and `inverse_transform(Z)`, such as VSC. It is not fitted here:
        for a fair comparison X should be rows that it was not fitted on.
    X : (n, D) array, DataFrame, CSR matrix or tensor
        One half fits PCA, ranges and probe; the other half is measured.
    y : (n,) labels, optional
        For the probe.
    caps : sequence of int, optional
        The most units on in a row; the bits of a row are those of that many units, on or not. If the counts of some
        row sum to more than the cap, the bits are those of the largest sum. A cap must be at most the number of units
        that a code can have on: the model's own cap, or its number of units. Default: those of 1, 2, 5, 10 and 20.
    value_bits : int
        Bits per value, for codes of real values.
    seed : int
        Seed of the split into halves.

    Examples
    --------
    >>> import sparsevae as sv
    >>> from sparsevae.analysis.rates import rate_distortion
    >>> digits = sv.data.load("digits")
    >>> training = sv.Training(steps=200, kl_warmup=0.9, verbose=0)
    >>> est = sv.VSC(32, hidden=(64,), alpha=0.2, training=training).fit(digits.X[:900])
    >>> found = rate_distortion(est, digits.X[900:], caps=(1, 4), value_bits=6)
    >>> found.bits.tolist()  # 6 bits for one of 32 units or none, 6 for its value
    [12, 48]
    >>> bool(found.mse[1] < found.mse[0])
    True
    """
    _check(est, caps, value_bits, seed)
    rows = plain(X, "X")
    rows = rows.tocsr() if hasattr(rows, "tocsr") else rows
    if len(rows.shape) != 2 or rows.shape[0] < 4:
        raise ValueError(f"X must be rows of numbers, (n, D), four at least; got shape {tuple(rows.shape)}.")
    n, D = rows.shape
    classes = None if y is None else labels(y, n, "y")
    order = np.random.default_rng(seed).permutation(n)
    halves = np.sort(order[: n // 2]), np.sort(order[n // 2 :])
    given = [X.iloc[half] if hasattr(X, "iloc") else rows[half] for half in halves]  # with the names of columns
    train, test = (_dense(rows[half]) for half in halves)
    readable = None if classes is None else [classes[half] for half in halves]

    K = int(est.transform(given[0][:1], max_active=1).shape[1])
    caps = _within(caps, est, K)
    codes = {c: [_codes(est, part, c) for part in given] for c in caps}
    whole = all(bool(((Z.data >= 0) & (Z.data == np.floor(Z.data))).all()) for pair in codes.values() for Z in pair)
    if not whole:
        codes = {c: _quantised(pair[0], pair[1], value_bits) for c, pair in codes.items()}
    bits = [_count_bits(pair, c) if whole else c * (K.bit_length() + value_bits) for c, pair in codes.items()]
    pca = _PCA.fit(train, max(bits), seed)
    plans = [pca.plan(budget) for budget in bits]
    scores = [[pca.scores(part, plan) for part in (train, test)] for plan in plans]

    def probe(pairs: Sequence[Sequence[Any]]) -> Array | None:
        if readable is None:
            return None
        return np.array([linear_probe(pair[0], readable[0], pair[1], readable[1]) for pair in pairs])

    return RateDistortion(
        name=type(est).__name__,
        rows=len(test),
        n_features=D,
        n_components=K,
        value_bits=None if whole else value_bits,
        caps=np.array(caps),
        bits=np.array(bits),
        nonzeros=np.array([pair[1].nnz / len(test) for pair in codes.values()]),
        mse=np.array([_mse(test, est.inverse_transform(pair[1])) for pair in codes.values()]),
        probe=probe(list(codes.values())),
        pca_components=np.array([plan.components for plan in plans]),
        pca_value_bits=np.array([plan.bits for plan in plans]),
        pca_mse=np.array([_mse(test, pca.decode(pair[1])) for pair in scores]),
        pca_probe=probe(scores),
        mean_mse=_mse(test, train.mean(0)),
        majority=None if readable is None else majority_accuracy(*readable),
    )


def _check(est: Any, caps: Sequence[int] | None, value_bits: int, seed: int) -> None:
    if isinstance(est, type) or not (hasattr(est, "transform") and hasattr(est, "inverse_transform")):
        raise TypeError(
            f"rate_distortion needs a fitted estimator with transform and inverse_transform; got {a_type(est)}."
        )
    if isinstance(getattr(est, "input_", None), Texts):
        raise ValueError(
            "rate_distortion measures errors of numbers, and this model was fitted on texts: evaluate(X, caps=...) "
            "has the nats per text at each cap."
        )
    if not getattr(getattr(est, "scaling_", None), "reversible", True):
        raise ValueError(
            "this model ignores the length of a row (scale='unit-norm'), so it has no error in X's units. Normalise "
            "the rows first and fit with scale='none'."
        )
    if caps is not None:
        check_caps(caps)
        if not len(caps):
            raise ValueError("caps must hold at least one number of units, such as (1, 2, 5, 10); got none.")
    In(1, MOST_VALUE_BITS).check("value_bits", value_bits, f"an integer from 1 to {MOST_VALUE_BITS}", whole=True)
    check_seed("seed", seed, least=0)


def _within(caps: Sequence[int] | None, est: Any, K: int) -> list[int]:
    """The caps in rising order; an error for one that no code reaches: it would cost bits and change no code."""
    most = _most_on(getattr(getattr(est, "model_", None), "posterior", None), K)
    if caps is None:
        return [c for c in CAPS if c <= most]
    if high := sorted({int(c) for c in caps if c > most}):
        raise ValueError(
            f"caps must be at most {most}, as many units as a code of this {type(est).__name__} can have on; got "
            f"{', '.join(map(str, high))}. Use caps up to {most}, or fit a model whose codes may have more."
        )
    return sorted({int(c) for c in caps})


def _most_on(posterior: Any, K: int) -> int:
    """The most units that a code of K units can have on: all, unless the posterior limits them."""
    if isinstance(posterior, ConcatenatedPosterior):
        return sum(_most_on(part, n) for part, n in zip(posterior.families, posterior.sizes, strict=True))
    if isinstance(posterior, OneHotPosterior):
        return K // posterior.size  # one in each group
    return min(K, posterior.size) if isinstance(posterior, DiscretePosterior) else K


def _codes(est: Any, X: Any, cap: int) -> Any:
    """Codes (n, K) of rows with at most `cap` units on, CSR."""
    Z: Any = scipy.sparse.csr_matrix(est.transform(X, max_active=cap))
    Z.eliminate_zeros()
    if (most := int(Z.getnnz(1).max())) > cap:
        raise ValueError(f"transform(X, max_active={cap}) must leave at most {cap} units on; a row has {most}.")
    return Z


def _count_bits(codes: Sequence[Any], cap: int) -> int:
    """Bits per row of counts, as many as `pack` takes."""
    Z = scipy.sparse.vstack(codes)
    return bits_per_row(Z.shape[1], max(cap, int(Z.sum(1).max())), binary=bool(Z.max() <= 1))


def _quantised(train: Any, test: Any, bits: int) -> list[Any]:
    """Both halves with values quantised to so many bits; each unit's range is that of its training values.

    A unit that is off in all training rows has the range of all units together.
    """
    K = train.shape[1]
    low, high = np.full(K, np.inf), np.full(K, -np.inf)
    np.minimum.at(low, train.indices, train.data)
    np.maximum.at(high, train.indices, train.data)
    unused = ~np.isfinite(low)
    low[unused], high[unused] = train.data.min(initial=0), train.data.max(initial=0)
    out = []
    for Z in (train, test):
        values = _quantise(Z.data.astype(np.float64), low[Z.indices], high[Z.indices], bits)
        out.append(scipy.sparse.csr_matrix((values.astype(np.float32), Z.indices, Z.indptr), Z.shape))
    return out


def _quantise(x: Array, low: Array, high: Array, bits: int) -> Array:
    """The middle of x's cell, of 2^bits equal cells between low and high; x outside belongs to the outermost cell.

    If low and high are equal, the result is that value.
    """
    step = (high - low) / 2**bits
    cell = np.floor((x - low) / np.where(step > 0, step, 1.0)).clip(0, 2**bits - 1)
    middle: Array = low + (cell + 0.5) * step
    return middle


class _Plan(NamedTuple):
    """Number of components m, bits per component, and the half-width of each component's range, (m,)."""

    components: int
    bits: int
    reach: Array


class _PCA(NamedTuple):
    """Principal components of the training rows, (m, D), and for each number of bits b from 1 their ranges and errors.

    reach[b - 1] is (m,), the best half-width of every component's range; error[b - 1] is (m + 1,), the summed squared
    error per training row with the first k components in b bits, without the others.
    """

    mean: Array
    directions: Array
    reach: list[Array]
    error: list[Array]

    @classmethod
    def fit(cls, X: Array, budget: int, seed: int) -> _PCA:
        from sklearn.decomposition import PCA

        found = PCA(min(budget, *X.shape), random_state=seed).fit(X)
        own = cls(found.mean_, found.components_, [], [])
        scores = (X - own.mean) @ own.directions.T
        variance = np.square(scores).mean(0)  # (m,)
        spans = np.sqrt(variance) * np.array(SPANS)[:, None]  # (spans, m)
        left = np.square(X - own.mean).sum(1).mean() - variance.sum()
        for bits in range(1, MOST_VALUE_BITS + 1):
            errors = np.stack([np.square(scores - _quantise(scores, -span, span, bits)).mean(0) for span in spans])
            best = errors.argmin(0)
            own.reach.append(np.take_along_axis(spans, best[None], 0)[0])
            saved = variance - np.take_along_axis(errors, best[None], 0)[0]
            own.error.append(left + variance.sum() - np.concatenate([[0.0], np.cumsum(saved)]))
        return own

    def plan(self, budget: int) -> _Plan:
        """The b, and with it m, with the least training error within the budget of bits."""
        most = len(self.directions)
        tried = {b: min(budget // b, most) for b in range(1, min(budget, MOST_VALUE_BITS) + 1)}
        bits = min(tried, key=lambda b: float(self.error[b - 1][tried[b]]))
        return _Plan(tried[bits], bits, self.reach[bits - 1][: tried[bits]])

    def scores(self, X: Array, plan: _Plan) -> Array:
        """Quantised scores of rows, (n, m)."""
        return _quantise((X - self.mean) @ self.directions[: plan.components].T, -plan.reach, plan.reach, plan.bits)

    def decode(self, scores: Array) -> Array:
        rows: Array = self.mean + scores @ self.directions[: scores.shape[1]]
        return rows


def _dense(rows: Any) -> Array:
    return np.asarray(rows.toarray() if hasattr(rows, "toarray") else rows, dtype=np.float64)


def _mse(rows: Array, decoded: Any) -> float:
    return float(np.square(rows - np.asarray(decoded, dtype=np.float64)).mean())
