"""`sparsevae second-stage`: a model of a saved model's codes."""

from __future__ import annotations

import shlex
from typing import Annotated, Any

import typer

from sparsevae.cli.groups import stopped
from sparsevae.cli.messages import note
from sparsevae.cli.options import INT, PART, Data, DataOptions, Folder, Json, Part, Quiet
from sparsevae.cli.printing import print_json
from sparsevae.cli.sources import CODES_OF, SECOND_STAGE, load_model, rows
from sparsevae.messages import show


def second_stage(
    folder: Folder,
    data: Data,
    n_components: Annotated[
        int | None, typer.Option(**INT, help="Width of the second stage; by default the model's, at most 16.")
    ] = None,
    steps: Annotated[int | None, typer.Option(**INT, help="Gradient steps; 10,000 when not given.")] = None,
    seed: Annotated[int | None, typer.Option(**INT, help="Fixes the run; by default the model's.")] = None,
    split: Annotated[Part, typer.Option(help="Part of the data set.", **PART)] = Part.TRAIN,
    data_option: DataOptions = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Fit a model of a saved model's codes, to sample from.

    `sample --second-stage` draws from it.

    It is a model of its own, saved as DIR/second-stage in place of an earlier one. The model stays as it is.
    """
    from sparsevae.analysis.second_stage import second_stage, settings
    from sparsevae.storage.atomic import write_file
    from sparsevae.storage.folder import check_folder, weights_name

    est, place = load_model(folder), folder / SECOND_STAGE
    own = str(weights_name(folder))
    check_folder(place)
    asked: dict[str, Any] = {"steps": steps, "verbose": int(not quiet)} | ({} if seed is None else {"seed": seed})
    training = settings(est, **asked)
    training.validate()
    X, _ = rows(est, data, split, data_option)
    try:
        stage = second_stage(est, X, n_components=n_components, training=training)
    except (KeyboardInterrupt, SystemExit) as stop:
        note(f"interrupted; {folder} is as it was.")
        raise stopped(stop) from None
    stage.save(place)
    write_file(place / CODES_OF, own.encode())
    name, last = type(est).__name__, {k: v for k, v in stage.history_[-1].items() if k not in ("step", "epoch")}
    if as_json:
        about = {"model": name, "out": str(place), "rows": X.shape[0], "units": stage.n_features_in_}
        return print_json({**about, "likelihood": stage.likelihood_, "steps": stage.n_steps_, "final": last})
    show(f"second stage of {name} on {X.shape[0]:,} codes ({stage.likelihood_}), {stage.n_steps_:,} steps")
    show("  ".join(f"{k} {v:.4g}" for k, v in last.items()))
    show(f"saved in {place}; next: {shlex.join(['sparsevae', 'sample', str(folder), '--second-stage'])}")
