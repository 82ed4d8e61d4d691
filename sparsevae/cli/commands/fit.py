"""`sparsevae fit`: a sub-command for each model of the registry, with the flags of its constructor."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sparsevae.cli.flags import option_of, value_of
from sparsevae.cli.groups import STYLE, Command, Group, stopped
from sparsevae.cli.messages import note
from sparsevae.cli.options import PART, Data, DataOptions, Json, Part, Quiet, out_option
from sparsevae.cli.places import check_place, nothing_left
from sparsevae.cli.printing import print_fitted
from sparsevae.cli.sources import as_labelled, dataset, labels, part_of

if TYPE_CHECKING:
    from sparsevae.estimator.coder import SparseCoder

_COVERED = ("training", "folder", "verbose")  # replaced by the flags of Training, --out and --quiet


class Models(Group):
    """One sub-command per model in the registry, built on demand: `sparsevae --help` imports no model."""

    def list_commands(self, ctx: Any) -> list[str]:
        from sparsevae.models import known

        return list(known())

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        from sparsevae.exceptions import unknown
        from sparsevae.models import known

        found = {name.lower(): cls for name, cls in known().items()}.get(cmd_name.lower().replace("-", ""))
        if found is None:
            raise ValueError(unknown("model", cmd_name, known()))
        return _fit_command(found)


def _fit_command(cls: type[SparseCoder]) -> Any:
    """The sub-command of one model."""
    from sparsevae.inputs.texts import Text
    from sparsevae.parameters import documented
    from sparsevae.training.settings import Training

    own, settings = ({p.name: p for p in documented(c) if p.name not in _COVERED} for c in (cls, Training))
    defaults = cls.default_training()
    settings = {name: p._replace(default=getattr(defaults, name)) for name, p in settings.items()}
    words = [p._replace(name=f"text_{p.name}") for p in documented(Text) if "text" in own]
    texts = {p.name: p for p in words}

    def fit(
        *,
        data: Data,
        out: Annotated[Path, out_option("DIR", "Folder for the model and its run.")],
        split: Annotated[Part, typer.Option(help="Part of the data set.", **PART)] = Part.TRAIN,
        data_option: DataOptions = None,
        quiet: Quiet = False,
        as_json: Json = False,
        **flags: Any,
    ) -> None:
        tables = (own, settings, texts)
        choices, rest, own_texts = ({k: value_of(p, flags[k]) for k, p in t.items() if k in flags} for t in tables)
        if changed := {k.removeprefix("text_"): v for k, v in own_texts.items() if v != texts[k].default}:
            choices["text"] = Text(**changed)
        est = cls(**choices, training=Training(**rest, folder=str(out), verbose=int(not quiet)))
        _fit(est, out, data, split, data_option, quiet, as_json)

    shared = [p for p in inspect.signature(fit, eval_str=True).parameters.values() if p.kind is p.KEYWORD_ONLY]
    panels = {"Model": own, "Texts": texts, "Training": settings}
    options = [option_of(p, panel) for panel, table in panels.items() for p in table.values()]
    vars(fit)["__signature__"] = inspect.Signature([*shared, *filter(None, options)])
    alone = typer.Typer(add_completion=False, **STYLE)
    alone.command(cls.__name__, cls=Command, help=(cls.__doc__ or "").splitlines()[0])(fit)
    return typer.main.get_command(alone)


def _check_texts(est: SparseCoder, data: str, X: Any) -> None:
    """Raise a ValueError for flags of texts without an effect: if --data has numbers, or no columns."""
    from sparsevae.inputs.kind import holds_texts

    if est.text_settings().column is not None and Path(data).suffix.lower() not in (".csv", ".parquet"):
        raise ValueError(f"--text-column is a column of a .csv or .parquet, and {data} has none; leave it out.")
    if getattr(est, "text", None) is not None and not holds_texts(X, None):
        raise ValueError(f"--text-... flags are for texts, and {data} holds numbers; leave them out.")


def _fit(
    est: SparseCoder, out: Path, data: str, split: Part, options: list[str] | None, quiet: bool, as_json: bool
) -> None:
    """Fit and save a model, and print the result."""
    from sparsevae.storage.checkpoint import resumable
    from sparsevae.storage.folder import check_folder

    resume = est.get_params()["training__resume"]
    finished, begun = ((out / name).exists() for name in ("model.json", "checkpoint.safetensors"))
    if begun and not resume:
        if finished:
            raise FileExistsError(f"{out} holds a finished run and its model: choose another folder.")
        raise FileExistsError(f"{out} holds an unfinished run: continue it with --resume, or choose another folder.")
    if finished and not begun:
        raise FileExistsError(f"{out} holds a model without a run to continue: choose another folder.")
    check_folder(out)
    check_place(out)
    est.check()
    found, part = dataset(data, split, options, est.text_settings().column)
    X = part_of(found, part)
    _check_texts(est, data, X)
    labelled = as_labelled(est)
    try:
        with nothing_left(out):
            if labelled:
                y, names = labels(labelled, data, found, part)
                labelled.fit(X, y, label_names=names)
            else:
                est.fit(X)
    except (KeyboardInterrupt, SystemExit) as stop:
        if not (out / "checkpoint.safetensors").exists():
            note("interrupted before anything was saved.")
        elif quiet:  # otherwise the training loop has written this
            note(f"interrupted; saved in {out}: continue with the same command and --resume.")
        raise stopped(stop) from None
    with resumable(out):
        est.save(out)
    about = {"model": type(est).__name__, "out": str(out), "rows": X.shape[0], **est.input_.about()}
    what = f"{labelled.n_labels_} labels" if labelled else est.likelihood_
    size = " ".join(f"{count:,} {noun}" for noun, count in est.input_.about().items())
    chosen = [word for option in options or () for word in ("--data-option", option)]
    summary = f"{type(est).__name__} of {X.shape[0]:,} rows x {size} ({what})"
    print_fitted(est, about, summary, ["evaluate", str(out), "--data", data, *chosen], as_json)
