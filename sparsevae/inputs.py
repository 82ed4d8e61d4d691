"""What X is: how it is read, laid out, described and given back. Here rows of numbers; `texts` has texts.

An estimator asks its `Input` whatever depends on the kind of data, so that nothing else has to know of kinds.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping, MappingView, Sequence, Set
from numbers import Number
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import scipy.sparse
import torch
from sklearn.utils.validation import check_array, validate_data
from torch import Tensor, nn

from sparsevae import families
from sparsevae import scaling as scalings
from sparsevae.advice import advise
from sparsevae.draw import Draw
from sparsevae.metrics.arrays import filled, sound
from sparsevae.model import LatentModel
from sparsevae.recurrent import Embedding
from sparsevae.rows import Rows, Stats, canonical, from_tensor, place, stats
from sparsevae.settings import Training
from sparsevae.step import BLOCK
from sparsevae.text import columns_named, encode, is_table, text_columns
from sparsevae.threads import threads

if TYPE_CHECKING:
    from sparsevae.learner import Learner

__all__ = ["Arrays", "Input", "read_codes"]

Array = np.ndarray[Any, Any]
_REACH = 1e33  # deviations from the training data, or a code's values; a few layers later that is still a float32


class Input:
    """One kind of data, as a fitted estimator knows it.

    Attributes
    ----------
    width : int
        Columns of a row that was read.
    law : str
        The likelihood's name.
    prepare : nn.Module
        From rows that were read to what the networks see.
    column : str or None
        The column of a table that holds X, where it is but one.
    kind : str
        Its name in the `usual` of a model.
    hidden : tuple of int
        What hidden=None means.
    """

    width: int
    law: str
    prepare: nn.Module
    column: str | None = None
    kind: ClassVar[str]
    hidden: ClassVar[tuple[int, ...]]

    def settle(self, training: Training, n_rows: int) -> Training:
        """Settings for a run on so many rows, where they were left open: length, batches, rate."""
        return training.settled()

    def about(self) -> dict[str, int]:
        """How large a row is, in words."""
        raise NotImplementedError

    def read(self, est: Learner, X: Any, *, reset: bool) -> Any:
        """Whatever the user has -> checked rows, (n, width); `reset` learns what they are like."""
        raise NotImplementedError

    def alone(self, x: Any) -> Any:
        """One row, such as X[0], as rows that can be read."""
        raise NotImplementedError

    def start(self, est: Learner, X: Any) -> None:
        """Settle, by the rows that training will see, what is left to settle; refuse those that cannot be learned."""
        raise NotImplementedError

    def check(self, est: Learner, X: Any) -> None:
        """Refuse more rows for a model that is there, where its likelihood does not describe them."""
        raise NotImplementedError

    def likelihood(self, est: Learner) -> families.Likelihood:
        """The family of p(x|z)."""
        raise NotImplementedError

    def embedding(self) -> Embedding | None:
        """A vector for every word, for networks of texts."""
        return None

    def together(self, device: torch.device, draws: int = 1) -> int:
        """Rows that are encoded at once, or scored with so many draws of each.

        Always so many, however few there are: matrix products round differently for other shapes.
        """
        return BLOCK

    def lay_out(self, X: Any, device: torch.device) -> Rows:
        """Rows as training takes them."""
        return place(X, device, resident=True)

    def arrange(self, X: Any) -> tuple[list[Any], Array | None]:
        """Rows in groups that are best encoded together, and the order that takes all of them back to X's."""
        return [X], None

    def log_det(self, likelihood: families.Likelihood) -> float:
        """What a score in the networks' units lacks to one in X's own."""
        return 0.0

    def meaning(self, likelihood: families.Likelihood, blocks: Iterable[Tensor]) -> str:
        """What a score is, as `SparseCoder.score_meaning` says it."""
        return "bound"

    def tell(self, model: LatentModel, z: Tensor, n: int, draw: Draw | None = None) -> Any:
        """The first n codes of z (B, J) in X's own form: the likeliest x, or one drawn from p(x|z)."""
        raise NotImplementedError

    def join(self, told: Sequence[Any]) -> Any:
        """What `tell` gave, one after the other; of nothing, no rows."""
        raise NotImplementedError

    def costs(self, model: LatentModel, x: Tensor, codes: Sequence[Tensor]) -> Tensor:
        """What codes (all units, then fewer) keep of rows x, in numbers to be summed: (numbers, B)."""
        raise NotImplementedError

    def verdict(self, costs: Array, rows: int, score: float, nll: float, caps: Sequence[int]) -> dict[str, Any]:
        """What to say of all rows, from the sums of `costs` and the means of score and -log p(x|z) over draws."""
        raise NotImplementedError

    def in_force(self) -> dict[str, Any]:
        """Settings of the estimator as they are for these data, where they belong to the kind of data."""
        raise NotImplementedError

    def signature(self) -> dict[str, Any]:
        """What a run is a function of, as far as the data settled it."""
        raise NotImplementedError

    def stored(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors and plain values to store."""
        raise NotImplementedError

    def check_restored(self) -> None:
        """Refuse stored numbers that no data can have settled."""


class Arrays(Input):
    """Rows of numbers, scaled, under a likelihood that fits them. Learned: `scaling`."""

    kind: ClassVar[str] = "numbers"
    hidden: ClassVar[tuple[int, ...]] = (400,)
    scaling: scalings.Scaling

    @property
    def prepare(self) -> nn.Module:  # type: ignore[override]
        return self.scaling

    def about(self) -> dict[str, int]:
        return {"features": self.width}

    # -- reading ------------------------------------------------------------------------------------------------

    def read(self, est: Learner, X: Any, *, reset: bool) -> Any:
        """A 2-d array (maybe a memory map) or CSR matrix, in its own dtype."""
        if reset and est.network == "gru":
            raise ValueError(
                "network='gru' reads texts, and X holds none: use network='auto', 'dense' or 'conv', or pass a list "
                "of str."
            )
        from sparsevae.data import Table, read_array

        names = None
        if isinstance(X, (str, Path)):
            X = read_array(X)
        if isinstance(X, Table):
            X, names = X.X, X.columns
        _check_rows(X)
        X = _as_array(X, "X")
        X = _numbers(est, X, reset) if names is None else _named_numbers(est, X, names, reset)
        values: Any = getattr(X, "data", X) if scipy.sparse.issparse(X) else X
        low, high = float(values.min(initial=0)), float(values.max(initial=0))
        _check_finite(type(est).__name__, low, high)
        if reset:
            self.width = X.shape[1]
        else:
            self._check_reach(X, low, high)
            self._check_units(est, X.dtype, high)
        return X

    def _check_reach(self, X: Any, low: float, high: float) -> None:
        """Refuse values so far from those of training that the networks would overflow: codes would be NaN."""
        if not isinstance(self.scaling, scalings.Affine):
            return
        largest = max(-low, high, float(self.scaling.shift.abs().max()))
        if 2 * largest / float(self.scaling.scale.min()) <= _REACH:
            return
        shift, scale = (v.double().cpu().numpy() for v in (self.scaling.shift, self.scaling.scale))
        ends: Any = (X.min(axis=0), X.max(axis=0))  # by column: what is far for one of them may be near for another
        ends = [np.float32(np.ravel(e.toarray()) if hasattr(e, "toarray") else e).astype(np.float64) for e in ends]
        far = np.maximum(*(np.abs(end - shift) / scale for end in ends))
        if far.max() > _REACH:
            j = int(far.argmax())
            raise ValueError(
                f"column {j} of X lies up to {far[j]:.1e} times its scale ({scale[j]:.3g}) from what the model was "
                "fitted on: too far for the networks' float32. Is it a mark for missing values, or in other units?"
            )

    def _check_units(self, est: Learner, dtype: Any, high: float) -> None:
        """Warn of 8-bit values that are to be divided by 255 twice, or not at all."""
        if not isinstance(self.scaling, scalings.Affine) or not (0 < high <= 1 or (dtype == np.uint8 and high > 127)):
            return
        shift, scale = self.scaling.shift, self.scaling.scale
        unit = bool(((shift >= 0) & (shift <= 1) & (scale <= 1)).all())
        unit &= self.law == "bernoulli" or est.scale != "none"  # which does not tell how large rows were
        if high <= 1 and bool((scale == 255).all()):
            advise(
                f"this model was fitted on 8-bit values, 0 to 255, and now sees at most {high:g}: were the new rows "
                "scaled already, or binarised to 0 and 1? It divides by 255 itself."
            )
        elif high > 1 and unit:
            advise(
                f"this model was fitted on values of about 0 to 1 and now sees 8-bit ones up to {high:g}: divide them "
                "by 255, as the training rows were."
            )

    def alone(self, x: Any) -> Any:
        if getattr(x, "ndim", 2) != 1:
            return x
        return x[None] if isinstance(x, (Tensor, np.ma.MaskedArray)) else np.asarray(x)[None]

    # -- scaling and likelihood ---------------------------------------------------------------------------------

    def start(self, est: Learner, X: Any) -> None:
        _check_resolution(X)
        with threads(1):  # sums depend on how many threads share them, and a resumed run must find the same scaling
            data = _stats(X)
        self.scaling = scalings.choose(est.scale, data, X.dtype)
        self.law = est.likelihood
        if self.law == "auto":
            levels = self._levels(data)
            binary = bool(levels) and levels <= {0.0, 1.0}
            self.law = "bernoulli" if binary or est._training().binarise else "gaussian"
        if self.law == "gaussian" and est._generates():  # what varies less than its variance's floor would go unseen
            self.scaling = scalings.choose(est.scale, data, X.dtype, least=est.variance_floor)
        self._check_support(est, data)

    def check(self, est: Learner, X: Any) -> None:
        self._check_support(est, _stats(X))

    def _levels(self, data: Stats) -> set[float]:
        """The one or two values that the data have, after a scaling that leaves zero at zero; else nothing."""
        span = torch.tensor(sorted(data.levels), dtype=torch.float64)
        if not len(span) or not isinstance(self.scaling, scalings.Affine) or self.scaling.shift.any():
            return set()
        shift, scale = self.scaling.shift.double(), self.scaling.scale.double()
        return set(((span[:, None] - shift) / scale).unique().tolist())

    def _check_support(self, est: Learner, data: Stats) -> None:
        """A likelihood that cannot describe the data is refused before training starts."""
        likelihood, low, high = self.likelihood(est), data.low, data.high
        if isinstance(self.scaling, scalings.Affine):
            ends = self.scaling(torch.tensor([[low], [high]], device=self.scaling.shift.device))
            low, high = float(ends.min()), float(ends.max())
        else:
            reach = math.sqrt(self.width)  # of one value in a normalised row
            low, high = -reach if low < 0 else 0.0, reach
        problem = likelihood.check(low, high)
        if problem is None and est._training().binarise and (self.law != "bernoulli" or low < 0 or high > 1):
            problem = f"training.binarise needs likelihood='bernoulli' and values in [0, 1], got {low:g} to {high:g}"
        if problem:
            raise ValueError(f"{problem} after scale={est.scale!r}. Rescale X, or use likelihood='gaussian'.")
        if likelihood.atom and not self._leaves_alone():
            raise ValueError(
                f"likelihood={self.law!r} is about exact zeros, which scale={est.scale!r} does not keep for "
                "these data. Use scale='none'."
            )

    def _leaves_alone(self) -> bool:
        """Whether scaling is the identity."""
        own = self.scaling
        return isinstance(own, scalings.Affine) and not own.shift.any() and bool((own.scale == 1).all())

    def likelihood(self, est: Learner) -> families.Likelihood:
        return families.likelihood(self.law, variance_floor=est.variance_floor, variance=est.variance)

    # -- scores and samples -------------------------------------------------------------------------------------

    def log_det(self, likelihood: families.Likelihood) -> float:
        return 0.0 if likelihood.discrete else self.scaling.log_det

    def meaning(self, likelihood: families.Likelihood, blocks: Iterable[Tensor]) -> str:
        if not self.scaling.reversible:
            return "normalised-row density"
        if likelihood.discrete and not all(bool(((x == 0) | (x == 1)).all()) for x in blocks):
            return "cross-entropy"
        return "bound"

    def tell(self, model: LatentModel, z: Tensor, n: int, draw: Draw | None = None) -> Any:
        p = model.decode(z)
        return self.scaling.inverse(p.mean if draw is None else draw(p))[:n].cpu().numpy()

    def join(self, told: Sequence[Any]) -> Any:
        return np.concatenate([np.zeros((0, self.width), np.float32), *told])

    def costs(self, model: LatentModel, x: Tensor, codes: Sequence[Tensor]) -> Tensor:
        """The squared error of every code's reconstruction, in X's own units."""
        target = self.scaling.inverse(x)
        errors = [self.scaling.inverse(model.decode(code).mean) - target for code in codes]
        return torch.stack([e.double().square().sum(-1) for e in errors])

    def verdict(self, costs: Array, rows: int, score: float, nll: float, caps: Sequence[int]) -> dict[str, Any]:
        mse, *capped = (costs / (rows * self.width)).tolist()
        return {"mse": mse, "caps": {int(cap): error for cap, error in zip(caps, capped, strict=True)}}

    # -- save ---------------------------------------------------------------------------------------------------

    def in_force(self) -> dict[str, Any]:
        return {"scale": self.scaling.name}

    def signature(self) -> dict[str, Any]:
        return {"scaling": [type(self.scaling).__name__, self.scaling.log_det]}

    def stored(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        plain = {"n_features_in": int(self.width), "likelihood": self.law, "scaling": type(self.scaling).__name__}
        return {f"scaling.{k}": v for k, v in self.scaling.state_dict().items()}, plain

    def check_restored(self) -> None:
        if isinstance(self.scaling, scalings.Affine):
            shift, scale = self.scaling.shift, self.scaling.scale
            if not (bool(shift.isfinite().all()) and bool((scale.isfinite() & (scale > 0)).all())):
                raise ValueError("a scaling's numbers must be finite, its scales above 0")

    @classmethod
    def restored(cls, meta: Mapping[str, Any]) -> Arrays:
        """What was stored, but for the scaling's numbers."""
        found, n = cls(), int(meta["n_features_in"])
        affine = scalings.Affine(torch.zeros(n), torch.ones(n))
        found.scaling = affine if meta["scaling"] == "Affine" else scalings.UnitNorm(n)
        found.width, found.law = n, meta["likelihood"]
        return found


def _check_rows(X: Any) -> None:
    """Refuse what shows neither columns nor words, or has no order: it is no more texts than rows of numbers."""
    shape = getattr(X, "shape", None)
    if shape == (0,) or (isinstance(X, (list, tuple)) and not X):
        found = "is empty: 0 samples"
    elif shape is None and isinstance(X, (Mapping, Set, MappingView)):  # a DOK matrix is a dict that has rows
        found = f"is a {type(X).__name__}, which has no rows"
    elif is_table(X) and not X.shape[1]:
        found = f"is a {type(X).__name__} without columns, of shape {X.shape}"
    else:
        return
    raise ValueError(f"X {found}. Pass rows of numbers, (n, features), or a list of texts.")


def _numbers(est: Learner, X: Any, reset: bool) -> Any:
    """X as scikit-learn checks it, if it holds numbers; of a DataFrame that does not, which columns are to blame."""
    least = 2 if reset else 1
    try:
        found = validate_data(
            est, X, reset=reset, accept_sparse="csr", ensure_min_samples=least, ensure_all_finite=False
        )
        _check_kind(found, "X")
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


def _check_kind(values: Any, name: str) -> None:
    """Refuse dates, which numpy would count, and other values that are no numbers."""
    if values.dtype.kind not in "biuf":
        raise ValueError(f"{name} must hold numbers, got values of type {values.dtype}; convert them.")


def _odd_item(X: Any) -> str:
    """The first item of an array or list of objects that is no number, and what to do about it; nothing of others."""
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


def _named_numbers(est: Learner, X: Any, names: Sequence[str], reset: bool) -> Any:
    """The same for an array whose columns have names in the file it comes from: they count as a DataFrame's would."""
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
        warnings.filterwarnings("ignore", "X does not have valid feature names")  # it has, and they were checked
        found = _numbers(est, X, reset)
    if reset:
        est.feature_names_in_ = np.asarray(names, dtype=object)
    elif known is None:
        advise(f"X has feature names, but {type(est).__name__} was fitted without feature names")
    return found


def _as_array(X: Any, name: str) -> Any:
    """X or codes before their numbers are checked: tensors as arrays, masked entries as NaN, sparse matrices as CSR.

    No entry of a sparse matrix is out of range, and none is there twice: two of them may add up to infinity.
    """
    X = filled(from_tensor(X, name) if isinstance(X, Tensor) else X)
    return canonical(sound(X, name)) if scipy.sparse.issparse(X) else X


def read_codes(Z: Any, n_components: int) -> Any:
    """Codes as users have them -> a float32 array or CSR matrix (n, n_components), checked as rows of X are."""
    try:
        with np.errstate(over="ignore"):  # beyond float32 is infinite, and refused
            Z = check_array(_as_array(Z, "Z"), accept_sparse="csr", dtype=None, ensure_all_finite=False, input_name="Z")
            if Z.dtype != object:  # objects may be numbers
                _check_kind(Z, "Z")
            Z = check_array(Z, accept_sparse="csr", dtype=np.float32, input_name="Z")
    except (TypeError, OverflowError, ValueError) as error:
        if "damaged" in str(error):
            raise
        what = str(error).partition("\n")[0].partition(" array instead:")[0]  # scikit-learn shows the values, too
        raise ValueError(f"Z must hold codes, finite numbers of shape (n, {n_components}): {what}") from error
    if Z.shape[1] != n_components:
        raise ValueError(f"codes have {n_components} columns, one per unit; got {Z.shape[1]}.")
    values: Any = getattr(Z, "data", Z) if scipy.sparse.issparse(Z) else Z
    if (largest := float(np.abs(values).max(initial=0))) > _REACH:
        raise ValueError(f"Z has values up to {largest:.1e}: too far from any code for the networks' float32.")
    return Z


def _no_numbers(X: Any) -> list[str]:
    """The columns of a DataFrame that are not of numbers, with their types."""
    if not is_table(X):
        return []
    kinds = zip(X.columns, X.dtypes, strict=True)
    return [f"{name} ({kind})" for name, kind in kinds if getattr(kind, "kind", "O") not in "biuf"]


def _stats(X: Any) -> Stats:
    return stats(place(X, torch.device("cpu"), resident=False))


def _check_finite(model: str, low: float, high: float) -> None:
    """No NaN, no infinity, nothing beyond float32, by the data's extremes."""
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
    """Refuse columns that vary by less than float32 resolves at their size, such as time stamps in seconds."""
    if scipy.sparse.issparse(X) or X.dtype.itemsize <= 4:
        return
    low, high = X.min(axis=0), X.max(axis=0)
    lost = np.flatnonzero((high > low) & (high - low < 1e-5 * np.maximum(np.abs(low), np.abs(high))))
    if len(lost):
        j = int(lost[0])
        raise ValueError(
            f"column {j} of X runs from {low[j]:.10g} to {high[j]:.10g}: too little for its size to survive float32. "
            "Subtract an offset first, for instance with sklearn.preprocessing.StandardScaler in a Pipeline."
        )
