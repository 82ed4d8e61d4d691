"""Arrays: rows of numbers."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping, MappingView, Sequence, Set
from numbers import Number
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import scipy.sparse
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data
from torch import Tensor
from torch.distributions import Distribution

from sparsevae.exceptions import warn_caller
from sparsevae.inputs import scaling as scalings
from sparsevae.inputs.base import Array, Input, Pairs
from sparsevae.inputs.rows import canonical, from_tensor, place
from sparsevae.inputs.stats import Moments, Stats, stats
from sparsevae.metrics.arrays import filled, sound
from sparsevae.tables.columns import columns_named, encode, is_table, text_columns
from sparsevae.threads import threads

REACH = 1e33  # largest scaled value, or value of a code: it does not overflow in the next layers


class Arrays(Input):
    """Rows of numbers, scaled. Learned: `scaling`, `likelihood_name`."""

    kind: ClassVar[str] = "numbers"
    hidden: ClassVar[tuple[int, ...]] = (400,)

    def about(self) -> dict[str, int]:
        return {"features": self.width}

    def check_settings(self, model: str, settings: Mapping[str, Any]) -> None:
        if settings.get("network") == "gru":
            raise ValueError(
                "network='gru' is for texts, and X is numbers: use network='auto', 'dense' or 'conv', or pass a list "
                "of str."
            )

    def stats(self, X: Any) -> Stats:
        with threads(1):  # sums depend on the number of threads, and a resumed run needs the same scaling
            return stats(place(X, torch.device("cpu"), resident=False), X.dtype)

    # -- reading ------------------------------------------------------------------------------------------------

    def read(self, est: BaseEstimator, X: Any, *, reset: bool) -> Any:
        """A 2-d array (maybe a memory map) or CSR matrix, in its own dtype."""
        from sparsevae.data import Table, read_array

        names = None
        if isinstance(X, (str, Path)):
            X = read_array(X)
        if isinstance(X, Table):
            X, names = X.X, X.columns
        _check_rows(X)
        X = as_array(X, "X")
        X = _numbers(est, X, reset) if names is None else _named_numbers(est, X, names, reset)
        values: Any = getattr(X, "data", X) if scipy.sparse.issparse(X) else X
        low, high = float(values.min(initial=0)), float(values.max(initial=0))
        _check_finite(type(est).__name__, low, high)
        if reset:
            self.width = X.shape[1]
            _check_resolution(X)
        else:
            self._check_reach(X, low, high)
            self._check_units(getattr(est, "scale", "auto"), X.dtype, high)
        return X

    def _check_reach(self, X: Any, low: float, high: float) -> None:
        """Refuse values so far from the training data that the networks overflow and codes are NaN."""
        if not isinstance(self.scaling, scalings.Affine):
            return
        largest = max(-low, high, float(self.scaling.shift.abs().max()))
        if 2 * largest / float(self.scaling.scale.min()) <= REACH:
            return
        shift, scale = (v.double().cpu().numpy() for v in (self.scaling.shift, self.scaling.scale))
        ends: Any = (X.min(axis=0), X.max(axis=0))  # by column: scales differ
        ends = [np.float32(np.ravel(e.toarray()) if hasattr(e, "toarray") else e).astype(np.float64) for e in ends]
        far = np.maximum(*(np.abs(end - shift) / scale for end in ends))
        if far.max() > REACH:
            j = int(far.argmax())
            raise ValueError(
                f"column {j} of X lies up to {far[j]:.1e} times its scale ({scale[j]:.3g}) from what the model was "
                "fitted on: too far for the networks' float32. Are these marks of missing values, or other units?"
            )

    def _check_units(self, scale_name: str, dtype: Any, high: float) -> None:
        """Warn if 8-bit values seem to be divided by 255 twice, or not at all."""
        if not isinstance(self.scaling, scalings.Affine) or not (0 < high <= 1 or (dtype == np.uint8 and high > 127)):
            return
        shift, scale = self.scaling.shift, self.scaling.scale
        unit = bool(((shift >= 0) & (shift <= 1) & (scale <= 1)).all())
        unit &= self.likelihood_name == "bernoulli" or scale_name != "none"  # 'none' fits any values
        if high <= 1 and bool((scale == 255).all()):
            warn_caller(
                f"this model was fitted on 8-bit values, 0 to 255, and X has at most {high:g}: are the new rows "
                "scaled already, or binarised to 0 and 1? The model divides by 255 itself."
            )
        elif high > 1 and unit:
            warn_caller(
                f"this model was fitted on values of about 0 to 1, and X has 8-bit ones up to {high:g}: divide them "
                "by 255, as the training rows were."
            )

    def as_rows(self, x: Any) -> Any:
        if getattr(x, "ndim", 2) != 1:
            return x
        return x[None] if isinstance(x, (Tensor, np.ma.MaskedArray)) else np.asarray(x)[None]

    # -- decoded rows -------------------------------------------------------------------------------------------

    def to_user(self, values: Tensor) -> Array:
        found: Array = self.scaling.inverse(values).cpu().numpy()
        return found

    def concatenate(self, parts: Sequence[Array]) -> Array:
        return np.concatenate([np.zeros((0, self.width), np.float32), *parts])

    def errors(self, x: Tensor, decoded: Iterable[Distribution]) -> Tensor:
        """Squared errors of every reconstruction in X's units, (codes, B)."""
        target = self.scaling.inverse(x)
        errors = [self.scaling.inverse(p.mean) - target for p in decoded]
        return torch.stack([e.double().square().sum(-1) for e in errors])

    def summarise(
        self, errors: Array, rows: int, blocks: Pairs, score: float, nll: float, caps: Sequence[int]
    ) -> dict[str, Any]:
        mse, *capped = (errors / (rows * self.width)).tolist()
        moments = Moments(self.width, torch.device("cpu"))
        for x, n in blocks:
            moments.add(self.scaling.inverse(x[:n]).double().cpu())
        mean_mse = float(moments.square.mean()) / rows
        r2 = {"r2": 1 - mse / mean_mse} if mean_mse else {}  # rows that are all equal have none
        by_cap = {int(cap): error for cap, error in zip(caps, capped, strict=True)}
        return {"mse": mse, "mean_mse": mean_mse, **r2, "caps": by_cap}

    # -- save ---------------------------------------------------------------------------------------------------

    def in_force(self) -> dict[str, Any]:
        return {"scale": self.scaling.name}

    def signature(self) -> dict[str, Any]:
        return {"scaling": [type(self.scaling).__name__, self.scaling.log_det]}

    def stored(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        plain = {
            "n_features": int(self.width),
            "likelihood": self.likelihood_name,
            "scaling": type(self.scaling).__name__,
        }
        return {f"scaling.{k}": v for k, v in self.scaling.state_dict().items()}, plain

    def check_restored(self) -> None:
        if isinstance(self.scaling, scalings.Affine):
            shift, scale = self.scaling.shift, self.scaling.scale
            if not (bool(shift.isfinite().all()) and bool((scale.isfinite() & (scale > 0)).all())):
                raise ValueError("a scaling's numbers must be finite, its scales above 0")

    @classmethod
    def restored(cls, meta: Mapping[str, Any]) -> Arrays:
        """An Arrays from stored values; the numbers of the scaling are loaded later."""
        found, n = cls(), int(meta["n_features"])
        affine = scalings.Affine(torch.zeros(n), torch.ones(n))
        found.prepare = affine if meta["scaling"] == "Affine" else scalings.UnitNorm(n)
        found.width, found.likelihood_name = n, meta["likelihood"]
        return found


def _check_rows(X: Any) -> None:
    """Refuse an empty X, and dicts and sets, which have no rows."""
    shape = getattr(X, "shape", None)
    if shape == (0,) or (isinstance(X, (list, tuple)) and not X):
        found = "is empty: 0 samples"
    elif shape is None and isinstance(X, (Mapping, Set, MappingView)):  # a DOK matrix is a dict with a shape
        found = f"is a {type(X).__name__}, which has no rows"
    elif is_table(X) and not X.shape[1]:
        found = f"is a {type(X).__name__} without columns, of shape {X.shape}"
    else:
        return
    raise ValueError(f"X {found}. Pass rows of numbers, (n, features), or a list of texts.")


def _numbers(est: BaseEstimator, X: Any, reset: bool) -> Any:
    """X, (n, D), checked by scikit-learn; the error names the columns or items that are no numbers."""
    least = 2 if reset else 1
    try:
        found = validate_data(
            est, X, reset=reset, accept_sparse="csr", ensure_min_samples=least, ensure_all_finite=False
        )
        check_kind(found, "X")
    except (ValueError, TypeError) as error:
        if words := text_columns(X):
            raise ValueError(f"X must hold numbers; {encode(words)}.") from error
        if strange := _no_numbers(X):
            raise ValueError(f"X must hold numbers; convert or leave out {columns_named(strange)}.") from error
        if odd := _odd_item(X):
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(f"X must hold numbers, and {odd} ({error}).") from error
        raise
    return found


def check_kind(values: Any, name: str) -> None:
    """Refuse dates, which numpy converts to numbers, and other values that are no numbers."""
    if values.dtype.kind not in "biuf":
        raise ValueError(f"{name} must hold numbers, got values of type {values.dtype}; convert them.")


def _odd_item(X: Any) -> str:
    """The first item of a list or array of objects that is no number, with advice; "" if there is none."""
    if not isinstance(X, (list, tuple)) and getattr(getattr(X, "dtype", None), "kind", "") != "O":
        return ""
    try:
        items = np.array(X, dtype=object)
    except ValueError:  # rows whose first axes agree
        return "its rows differ in shape"
    if items.ndim == 1 and len({np.shape(item) for item in items if isinstance(item, (list, tuple, np.ndarray))}) > 1:
        return "its rows differ in length"
    for at, item in np.ndenumerate(items):
        where = ", ".join(f"{axis} {k}" for axis, k in zip(("row", "column"), at, strict=False))
        found = f"{where} holds a value of type {type(item).__name__}"
        if isinstance(item, Mapping):
            return f"{found}: make columns of its entries, with sklearn.feature_extraction.DictVectorizer"
        if len(at) == 2 and not isinstance(item, (str, bytes, Number, type(None))):
            return f"{found}: every row needs one number for every column"
    return ""


def _named_numbers(est: BaseEstimator, X: Any, names: Sequence[str], reset: bool) -> Any:
    """As `_numbers`, for an array whose columns have names in its file: they are treated as those of a DataFrame."""
    known = None if reset else getattr(est, "feature_names_in_", None)
    if known is not None and list(known) != list(names):
        ours, theirs = set(known), set(names)
        strange, missing = ([repr(n) for n in a if n not in b] for a, b in ((names, ours), (known, theirs)))
        what = "; ".join(f"{what} {', '.join(n[:5])}" for what, n in (("new", strange), ("missing", missing)) if n)
        raise ValueError(
            f"the columns of X are not those of fit, in that order ({what or 'the order differs'}): "
            f"{type(est).__name__} expects {', '.join(known[:8])}{', ...' if len(known) > 8 else ''}."
        )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X does not have valid feature names")  # its names were checked above
        found = _numbers(est, X, reset)
    if reset:
        est.feature_names_in_ = np.asarray(names, dtype=object)
    elif known is None:
        warn_caller(f"X has feature names, but {type(est).__name__} was fitted without feature names")
    return found


def as_array(X: Any, name: str) -> Any:
    """X or codes, before values are checked: tensors as arrays, masked entries as NaN, sparse matrices as CSR.

    Duplicate entries of a sparse matrix are added up first, since their sum may overflow.
    """
    X = filled(from_tensor(X, name) if isinstance(X, Tensor) else X)
    return canonical(sound(X, name)) if scipy.sparse.issparse(X) else X


def _no_numbers(X: Any) -> list[str]:
    """The columns of a DataFrame that are no numbers, with their types."""
    if not is_table(X):
        return []
    kinds = zip(X.columns, X.dtypes, strict=True)
    return [f"{name} ({kind})" for name, kind in kinds if getattr(kind, "kind", "O") not in "biuf"]


def _check_finite(model: str, low: float, high: float) -> None:
    """Refuse NaN, infinity and values beyond float32, by the extremes of the data."""
    if math.isnan(low) or math.isnan(high):
        raise ValueError(
            f"Input X contains NaN. {model} does not accept missing values: drop those rows or columns, or fill them "
            "in, for instance with sklearn.impute.SimpleImputer."
        )
    largest, limit = max(-low, high), float(np.finfo(np.float32).max)
    if largest > limit:
        what = "infinity" if math.isinf(largest) else f"{largest:.3g}"
        raise ValueError(f"Input X contains {what}; values must lie within {limit:.3g} (float32). Rescale X.")


def _check_resolution(X: Any) -> None:
    """Refuse columns whose range is below the float32 resolution at their size, such as time stamps in seconds."""
    if scipy.sparse.issparse(X) or X.dtype.itemsize <= 4:
        return
    low, high = X.min(axis=0), X.max(axis=0)
    lost = np.flatnonzero((high > low) & (high - low < 1e-5 * np.maximum(np.abs(low), np.abs(high))))
    if len(lost):
        j = int(lost[0])
        raise ValueError(
            f"column {j} of X runs from {low[j]:.10g} to {high[j]:.10g}: float32 cannot resolve this range. "
            "Subtract an offset first, for instance with sklearn.preprocessing.StandardScaler in a Pipeline."
        )
