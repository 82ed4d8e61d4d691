"""The number of units a model needs: grow the code until some units are inactive (Asperti's method)."""

from __future__ import annotations

import os
import warnings
from typing import Any, NamedTuple

from sklearn.base import clone

from sparsevae.analysis.audit import audit, check_separate
from sparsevae.analysis.audit_result import Audit
from sparsevae.checks import POSITIVE, In, a_type
from sparsevae.estimator.coder import SparseCoder
from sparsevae.exceptions import SparsityWarning
from sparsevae.parameters import check_value
from sparsevae.training.history import History


class SuggestedSize(NamedTuple):
    """The suggested number of units, the audit it is computed from, and one row per size that was fitted."""

    size: int
    audit: Audit
    table: History


def suggest_size(
    est: SparseCoder | type[SparseCoder],
    X: Any,
    *,
    start: int = 8,
    factor: float = 2.0,
    most: int = 1024,
    gain_rows: int | None = 1000,
) -> SuggestedSize:
    """Fit codes of growing size until some units are inactive; the suggested size follows from the active ones.

    Each size is a complete fit with the estimator's settings; if these name a run folder, the run of J units is in its
    sub-folder `units-J`. `audit.verdict` is "too small" if no unit is inactive at the largest size, and also names a
    collapsed or undecided code.

    Parameters
    ----------
    est : SparseCoder or its class
        The model to fit; its n_components is not used.
    X : array, DataFrame, CSR matrix, tensor or path
        Training rows.
    start, factor, most : int, float, int
        The first size, its growth, and the largest size.
    gain_rows : int or None
        As in `audit`.

    Examples
    --------
    >>> import numpy as np, sparsevae as sv
    >>> from sparsevae.analysis.sizing import suggest_size
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(500, 2)) @ rng.normal(size=(2, 10))  # two sources in ten columns
    >>> est = sv.VAE(hidden=(32,), training=sv.Training(steps=600, verbose=0))
    >>> 2 <= suggest_size(est, X, start=1).size <= 4
    True
    """
    POSITIVE.check("start", start, whole=True)
    POSITIVE.check("most", most, whole=True)
    In(1, None, "()").check("factor", factor)
    if start > most:
        raise ValueError(f"start must not exceed most, got {start} and {most}.")
    check_value("gain_rows", gain_rows, int | None, [POSITIVE])
    recipe: Any = est() if isinstance(est, type) and issubclass(est, SparseCoder) else est
    if not isinstance(recipe, SparseCoder):
        raise TypeError(f"suggest_size needs an estimator of sparsevae or its class, such as VAE; got {a_type(est)}.")
    clone(recipe).set_params(n_components=int(start)).check()
    largest = clone(recipe).set_params(n_components=int(most)).prepare(X).model_  # a cap may bind there first
    check_separate(f"suggest_size of up to {most} units", largest.posterior, largest.prior, int(most))
    folder = recipe.training_settings().folder
    table, size = History(), int(start)
    while True:
        fitted = clone(recipe).set_params(n_components=size)
        if folder is not None:  # one folder per run
            fitted.set_params(training__folder=os.path.join(folder, f"units-{size}"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SparsityWarning)  # if all units are active, a larger code is fitted next
            fitted.fit(X)
        found = audit(fitted, X, gain_rows=gain_rows)
        table.append({"n_components": size, "n_active": found.n_active, "verdict": found.verdict})
        if found.inactive_share or size >= most:
            return SuggestedSize(min(found.suggested_size, int(most)), found, table)
        size = min(int(most), max(size + 1, round(size * factor)))
