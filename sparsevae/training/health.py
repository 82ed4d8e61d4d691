"""Problems of a run: roll back at a smaller rate, raise an error, or warn with advice."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from sparsevae.exceptions import DivergenceError, SparsityWarning, warn_caller
from sparsevae.latent.model import LatentModel
from sparsevae.latent.start import can_start
from sparsevae.metrics.usage import Usage
from sparsevae.storage.checkpoint import State
from sparsevae.training.history import History
from sparsevae.training.progress import Progress
from sparsevae.training.remedies import SHORTEST, Case, remedies, written
from sparsevae.training.step import Run

_RETRIES = 5
_EMPTY, _FULL, _DEAD = 0.1, 2 / 3, 0.5
"""Above these there is a warning: share of empty rows, non-zeros per unit, share of dead units."""


def warn_about_validation(run: Run, held_out: Tensor, scaled: bool) -> None:
    term, bad = run.nonfinite_rows(held_out)
    auto = "" if scaled else "scale='auto', "
    where = f" on {len(bad):,} of {len(held_out):,} held-out rows (row {bad[0]:,} of X, counted from 0)" if bad else ""
    warn_caller(
        f"the validation loss is not finite at step {run.step}: {term!r} is inf or nan{where}. Such a report does not "
        "count for patience, and is never the best. What helps: to correct or leave out such rows, "
        f"{auto}or a larger variance_floor.",
        RuntimeWarning,
    )


def roll_back(run: Run, good: State, term: str | None, progress: Progress, scaled: bool) -> State:
    """Return to the last good state at half the rate, or raise DivergenceError after the last retry.

    `term` is the name of a term that was not finite; None means that all terms are finite and the model is ruined.
    """
    auto = "" if scaled else "scale='auto', "
    advice = f"What helps: {auto}a smaller learning_rate, clip_norm=1.0, or a larger variance_floor."
    retries = run.retries + 1
    factor = run.rate_factor / 2
    last = run.step
    reached = float(run.reconstruction().max())
    run.load(good)
    if retries > _RETRIES and term is None:
        raise DivergenceError(
            f"training diverged: by step {last} -log p(x|z) had grown to {reached:.4g} on rows where it was "
            f"{float(run.untrained.max()):.4g} before the first step, and again after {_RETRIES} retries at ever "
            f"smaller rates. Those rows' {_span(run.reference().x)}. {advice}"
        )
    if retries > _RETRIES:
        while run.step < last and (found := run.broken()) in (None, "weights"):
            run.advance()  # repeat the same steps and check each: which one breaks, and in which term?
        term = found or term
        bad = max(run.step - 1, good.meta["step"])
        run.load(good)  # leave the user finite weights
        x = run.prepared(run.rows.take(run.order(bad))).x
        raise DivergenceError(
            f"training diverged: the term {term!r} was not finite at step {bad}, and again after {_RETRIES} "
            f"retries at ever smaller rates (last {2 * factor * run.rate_schedule(bad, run.total):.2g}). That "
            f"batch's {_span(x)}. {advice}"
        )
    problem = f"-log p(x|z) had grown to {reached:.3g}" if term is None else f"{term} was not finite"
    progress.note(f"{problem} by step {last}; back to step {run.step} at half the rate.")
    run.retries = retries
    run.rate_factor = factor
    return good._replace(meta={**good.meta, "retries": retries, "rate_factor": factor})


def _span(x: Tensor) -> str:
    return f"inputs, as the network sees them, range from {float(x.min()):.4g} to {float(x.max()):.4g}"


def warn_about_sparsity(
    history: History, model: LatentModel, settings: Mapping[str, Any], usage: Usage | None = None
) -> None:
    """Warn if codes are empty, nearly collapsed or full, or badly used, with remedies computed from the settings.

    `usage` is that of a code with gates. Codes without noise have no scale, so their variance does not show whether a
    unit is used; `audit` does.
    """
    if not history or model.labelled:
        return
    last = history[-1]
    n, step = model.n_components, last.get("step", math.inf)
    active = last["active_units"]
    case: Case = "empty"
    if last["nonzeros"] == 0:
        found = "every code is zero: no unit is more likely on than off for any row"
    elif active == 0:
        found = f"none of {n} units differs between rows: the code has collapsed"
    elif active < 0.05 * n:
        found = f"only {active:g} of {n} units differ between rows: the code has nearly collapsed"
    elif active == n and last["nonzeros"] > 0.75 * n and model.posterior.density:
        # if rows have few units on, it is good that all units are used; without noise no unit is ever pruned
        found = f"all {n} units are active: the code may be too small{' to be sparse' * ('alpha' in settings)}"
        case = "full"
    elif usage and (judged := judge(usage, n, step)):
        case, found = judged
    else:
        return
    own = {k: v for k, v in settings.items() if k not in ("variance", "variance_floor")} | model.likelihood.describe()
    used = usage.used + usage.always_on if usage else n
    begin = {} if case == "full" else _beginning(model, settings)
    lots = remedies({"n_components": n} | own, step, case=case, used=used, begin=begin)
    warn_caller(f"{found}. {written(lots)}", SparsityWarning)


def judge(usage: Usage, n: int, step: float) -> tuple[Case, str] | None:
    """What is worst about the usage of n units after so many steps, and a clause on all that is found.

    After a short run only that codes are not sparse: gates have not settled.
    """
    found: list[tuple[Case, str]] = []
    if usage.nonzeros > _FULL * n:
        found.append(("full", f"rows have {usage.nonzeros:.3g} of {n} units on: the code is not sparse"))
    if step >= SHORTEST and usage.pruned:
        found.insert(0, ("always on", usage.words))
    elif step >= SHORTEST:
        if usage.empty > _EMPTY:
            found.append(("empty", f"the code of {usage.empty:.0%} of rows is empty"))
        if usage.dead > _DEAD * n:
            found.append(("dead", usage.words))
    return (found[0][0], "; ".join(clause for _, clause in found)) if found else None


def _beginning(model: LatentModel, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with which the dictionary would begin at the data, if it did not and can."""
    startable = model.posterior.startable and model.likelihood.startable
    if not startable or any(settings.get(k, "None") != "None" for k in ("encoder", "decoder")) or "texts" in settings:
        return {}
    skip = {} if can_start(model) else {"skip": True}
    return skip | ({"start": "'rows'"} if settings.get("start") in (None, "random") else {})
