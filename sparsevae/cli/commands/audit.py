"""`sparsevae audit`: a table of a model's units."""

from __future__ import annotations

from typing import Annotated

import typer

from sparsevae.cli.options import Data, DataOptions, Folder, Json, Split, taking
from sparsevae.cli.printing import print_result
from sparsevae.cli.sources import load_model, rows


def audit(
    folder: Folder,
    data: Data,
    gain_rows: Annotated[
        int, typer.Option(**taking(int, "N", 1), help="Rows to measure reconstruction gains on.")
    ] = 2000,
    split: Split = None,
    data_option: DataOptions = None,
    as_json: Json = False,
) -> None:
    """Gain, KL and activity of every unit.

    The last lines are a verdict on the size of the code.
    """
    from sparsevae.analysis.audit import audit

    est = load_model(folder)
    X, part, _ = rows(est, data, split, data_option)
    found = audit(est, X, gain_rows=gain_rows)
    name = type(est).__name__
    result = {"model": name, "data": data, "split": part, **found.to_dict()}
    head = f"{name} on {data} ({part}), {found.rows:,} rows; KL and gain in nats, gain on {found.gain_rows:,} rows"
    print_result(result, f"{head}\n\n{found}", as_json)
