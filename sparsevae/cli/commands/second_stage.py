"""`sparsevae second-stage`: fit a VAE to the codes of a saved model."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from sparsevae.cli.groups import stopped
from sparsevae.cli.messages import note
from sparsevae.cli.options import INT, PART, Data, DataOptions, Folder, Json, Part, Quiet
from sparsevae.cli.printing import print_fitted
from sparsevae.cli.sources import CODES_OF, SECOND_STAGE, load_model, rows


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
    """Fit a VAE to the codes of a saved model, to sample from.

    `sample --second-stage` draws codes from it.

    It is saved as DIR/second-stage and replaces an earlier one. The saved model is not changed.
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
    X, _, _ = rows(est, data, split, data_option)
    try:
        stage = second_stage(est, X, n_components=n_components, training=training)
    except (KeyboardInterrupt, SystemExit) as stop:
        note(f"interrupted; {folder} is unchanged.")
        raise stopped(stop) from None
    stage.save(place)
    write_file(place / CODES_OF, own.encode())
    about = {"model": type(est).__name__, "out": str(place), "rows": X.shape[0], "units": stage.n_features_in_}
    summary = f"second stage of {type(est).__name__} on {X.shape[0]:,} codes ({stage.likelihood_})"
    print_fitted(stage, about, summary, ["sample", str(folder), "--second-stage"], as_json)
