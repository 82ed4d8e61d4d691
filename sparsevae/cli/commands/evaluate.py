"""`sparsevae evaluate`: scores of a model on a data set, with the meaning of each number."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from sparsevae.cli.options import Data, DataOptions, Folder, Json, Split, taking
from sparsevae.cli.printing import print_json, print_table
from sparsevae.cli.sources import as_labelled, labels, load_model, rows
from sparsevae.messages import show


def evaluate(
    folder: Folder,
    data: Data,
    caps: Annotated[
        Any,
        typer.Option(**taking(tuple[int, ...], "K,..."), help="Also the error with at most K non-zeros per row."),
    ] = None,
    importance: Annotated[
        int | None,
        typer.Option(**taking(int, "K"), help="Also the tighter importance bound with K samples per row (slow)."),
    ] = None,
    split: Split = None,
    data_option: DataOptions = None,
    as_json: Json = False,
) -> None:
    """Score, sparsity, reconstruction error, cost of caps."""
    from sparsevae.analysis.scores import cost_of_caps, numbers
    from sparsevae.estimator.evaluation import standard_error
    from sparsevae.latent.pareto import heavy_tails

    limits: tuple[int, ...] = caps or ()
    est = load_model(folder)
    X, part, found = rows(est, data, split, data_option)
    result: dict[str, Any] = {"model": type(est).__name__, "data": data, "split": part}
    if labelled := as_labelled(est):
        if limits or importance is not None:
            name = type(est).__name__
            raise ValueError(f"--caps and --importance measure codes of X, and {name} predicts labels: leave them out.")
        result |= labelled.evaluate(X, labels(labelled, data, found, part)[0])
    else:
        if importance is not None:  # first, since K may be out of range
            b = est.importance_bound(X, n_samples=importance)
            result["importance"] = {
                "samples": importance,
                "bound": float(b.bound.mean()),
                "standard_error": standard_error(b.bound),
                "effective_samples": float(b.effective_samples.mean()),
                "heavy_tails": heavy_tails(b.pareto_k, b.effective_samples, importance),
            }
        result |= est.evaluate(X, caps=limits)
    if as_json:
        return print_json(result)
    show(f"{result['model']} on {data} ({part})\n")
    print_table((), [number[1:] for number in numbers(result)])
    if limits:
        show()
        print_table(*cost_of_caps(result))
