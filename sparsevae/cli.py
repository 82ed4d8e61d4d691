"""The command line: fit, encode, evaluate, report, audit, second-stage, sample, data, demo.

The flags of `fit` are read from the constructors, so a new model in the registry has its own without a line here.
Results go to standard output (one JSON object with `--json`), everything else to standard error. Exit codes: 0;
1 for a mistake of the user's, 2 for a wrong flag or command, each told in one line; 130 and 143 after Ctrl-C and
SIGTERM.
Heavy modules are imported by the command that needs them.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import io
import json
import logging
import math
import os
import shlex
import sys
import types
import typing
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

if TYPE_CHECKING:
    from sparsevae.data import Dataset
    from sparsevae.estimator import SparseCoder
    from sparsevae.parameters import Parameter
    from sparsevae.supervised import LabelledCoder

__all__ = ["main"]


_UsageError: Any = typer.BadParameter.__base__  # typer's own or click's, by typer's version
_LOG = logging.getLogger("sparsevae")


def main(args: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. Exceptions that are no mistake of the user's pass through."""
    words = list(sys.argv[1:] if args is None else args)
    debug = "--debug" in words
    command = typer.main.get_command(app)
    with warnings.catch_warnings(), _log_shown():
        warnings.showwarning = _show_warning
        try:
            code = command([w for w in words if w != "--debug"], prog_name="sparsevae", standalone_mode=False)
        except SystemExit as stop:
            return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        except _UsageError as error:
            _say(f"error: {_usage(error)}")
            return 2
        except Exception as error:
            if debug or not _is_mistake(error):
                raise
            _say(f"error: {_mistake(error)}")
            return 1
    return code or 0


def _usage(error: Any) -> str:
    """A wrong flag or command in one line, with the command whose help tells the right ones."""
    text = " ".join(error.format_message().split()).rstrip(".")
    where = "sparsevae" if error.ctx is None else error.ctx.command_path
    return f"{text[:1].lower()}{text[1:]}; see '{where} -h'"


def _mistake(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror.lower()}"
    return " ".join(str(error).split()) or type(error).__name__


def _is_mistake(error: Exception) -> bool:
    if isinstance(error, (ValueError, TypeError, OSError)):
        return True
    from sparsevae.training import DivergenceError

    return isinstance(error, DivergenceError)


def _show_warning(message: Warning | str, *where: Any, **more: Any) -> None:
    _say(f"warning: {message}")


def _say(line: str) -> None:
    print(f"sparsevae: {line}", file=sys.stderr, flush=True)


class _Shown(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        _say(record.getMessage())


@contextmanager
def _log_shown() -> Iterator[None]:
    """Show what the library has to say; --quiet silences it."""
    handler, level = _Shown(), _LOG.level
    _LOG.addHandler(handler)
    _LOG.setLevel(logging.INFO)
    try:
        yield
    finally:
        _LOG.removeHandler(handler)
        _LOG.setLevel(level)


def _hush(quiet: bool) -> bool:
    if quiet:
        _LOG.setLevel(logging.ERROR)
    return quiet


# -- flags from constructors ------------------------------------------------------------------------------------

_COVERED = ("training", "folder", "verbose")  # spelled as Training's own flags, --out and --quiet
_SPELLED = {int: "INT", float: "FLOAT", str: "TEXT"}  # in the order in which a union's members are tried


def _members(kind: Any) -> list[Any]:
    """The types that a union allows, numbers first and words last, which anything is; of any other, itself."""
    if typing.get_origin(kind) not in (typing.Union, types.UnionType):
        return [kind]
    parts = typing.get_args(kind)
    plain = [k for k in _SPELLED if k in parts]
    return [*(k for k in plain if k is not str), *(k for k in parts if k not in plain), *(k for k in plain if k is str)]


def _spelling(kind: Any) -> str:
    """How a value of this type is written in a flag, as help shows it; empty for one that cannot be written.

    >>> _spelling(int | float | None), _spelling(tuple[int, ...]), _spelling(object)
    ('INT|FLOAT', 'INT,...', '')
    >>> from sparsevae.schedules import Schedule
    >>> _spelling(float | Schedule)
    'FLOAT|NAME:VALUE:...'
    """
    if typing.get_origin(kind) is Callable:  # a schedule
        return "NAME:VALUE:..."
    if typing.get_origin(kind) is tuple:
        return ",".join("..." if k is Ellipsis else _spelling(k) for k in typing.get_args(kind))
    if (members := _members(kind)) != [kind]:
        return "|".join(filter(None, map(_spelling, members)))
    return _SPELLED.get(kind, "")


def _parse(text: str, kind: Any) -> Any:
    """A flag's text as a value of a constructor's type: numbers, words, lists with commas, "none" where it may be.

    >>> _parse("400,200", tuple[int, ...]), _parse("none", int | None), _parse("0.2", int | float)
    ((400, 200), None, 0.2)
    """
    if typing.get_origin(kind) is Callable:
        return _course(text)
    parts = typing.get_args(kind)
    if typing.get_origin(kind) is tuple:
        words = [w.strip() for w in text.split(",")] if text else []
        kinds = parts[:1] * len(words) if parts[-1] is Ellipsis else parts
        if len(words) == len(kinds):
            with suppress(ValueError):
                return tuple(map(_parse, words, kinds))
    elif types.NoneType in parts and text.lower() == "none":
        return None
    else:
        for member in filter(_spelling, _members(kind)):
            with suppress(ValueError):
                return member(text) if member in _SPELLED else _parse(text, member)
    raise ValueError(f"expected {_spelling(kind)}, got {text!r}")


def _schedule(text: str) -> tuple[str, Any]:
    """A knob and its course.

    >>> _schedule("kl_z=linear:0:1:0:0.2")
    ('kl_z', Linear(start=0.0, stop=1.0, begin=0, end=0.2))
    """
    knob, _, course = text.partition("=")
    return knob, _course(course)


def _course(text: str) -> Any:
    """A schedule, from its name and its arguments."""
    from sparsevae import schedules
    from sparsevae.data.suggest import unknown

    known = {name.lower(): getattr(schedules, name) for name in schedules.__all__ if name != "Schedule"}
    word, *words = text.lower().split(":")
    if word not in known:
        raise ValueError(unknown("schedule", word, known))
    hints = typing.get_type_hints(known[word])
    try:
        return known[word](*(_parse(w, kind) for w, kind in zip(words, hints.values(), strict=False)))
    except TypeError:  # an argument is missing
        raise ValueError(f"{word} takes {':'.join(hints)}, got {text!r}") from None


def _written(default: Any) -> str:
    """A default as a user would write it.

    >>> from sparsevae.schedules import Linear
    >>> _written((1, 2)), _written(Linear(1.0, 5.0)), _written(0.5)
    ('1,2', 'linear:1.0:5.0:0:1.0', '0.5')
    """
    if isinstance(default, tuple):
        return ",".join(map(str, default))
    if dataclasses.is_dataclass(default):
        fields = (getattr(default, f.name) for f in dataclasses.fields(default))
        return ":".join(map(str, (type(default).__name__.lower(), *fields)))
    return str(default)


def _is_switch(p: Parameter) -> bool:
    return bool in _members(p.type)


def _is_table(p: Parameter) -> bool:
    return any(typing.get_origin(k) is dict for k in _members(p.type))


def _flag(p: Parameter) -> str:
    """The flag of a parameter; a table's is given once for each entry, so it is in the singular."""
    return "--" + (p.name.removesuffix("s") if _is_table(p) else p.name).replace("_", "-")


def _option(p: Parameter, panel: str) -> inspect.Parameter | None:
    """Typer's view of a constructor argument: a switch, or a text whose default is written as a user would."""
    flag, text, default = _flag(p), p.help, p.default
    metavar: str | None = _spelling(p.type)
    kind: Any = str | None
    if _is_switch(p):
        flag, kind, metavar = f"{flag}/--no-{flag[2:]}", bool | None, None
    elif _is_table(p):
        kind, metavar = list[str] | None, "KNOB=NAME:VALUE:..."
        text += " Here one at a time: kl_z=cyclical:0:1, kl_z=linear:START:STOP:BEGIN:END."
    elif not metavar:
        return None
    elif default is not None:
        default = _written(default)
    option = typer.Option(flag, help=text, metavar=metavar, rich_help_panel=panel)
    return inspect.Parameter(
        p.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option]
    )


def _value(p: Parameter, given: Any) -> Any:
    """A constructor argument from what typer read."""
    try:
        if _is_table(p):
            return dict(map(_schedule, given)) if given else None
        return _parse(given, p.type) if isinstance(given, str) else given
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=f"'{_flag(p)}'") from None


def _reader(kind: Any, least: int | None = None) -> Callable[[Any], Any]:
    """What reads a flag of this type for typer: our own words where it is wrong."""

    def read(given: Any) -> Any:
        if not isinstance(given, str):  # a default
            return given
        try:
            value = _parse(given, kind)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None
        if least is not None and value < least:
            raise typer.BadParameter(f"expected an integer, {least} or above, got {given!r}")
        return value

    return read


def _read_part(given: Any) -> Any:
    if given is not None and given not in list(Part):
        raise typer.BadParameter(f"expected {' or '.join(Part)}, got {given!r}")
    return None if given is None else Part(given)


# -- what commands share ----------------------------------------------------------------------------------------


class Part(StrEnum):
    """The part of a data set."""

    TRAIN = "train"
    TEST = "test"


Folder = Annotated[Path, typer.Argument(metavar="DIR", help="A folder that fit has filled, or any saved model.")]
Data = Annotated[
    str,
    typer.Option(
        "--data",
        "-d",
        metavar="D",
        help="A data set (`sparsevae data list`) or a file: .npy, .npz, .csv, .parquet; .txt, one text a line.",
    ),
]
DataOptions = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=VALUE",
        help="An option of the data set (`sparsevae data info D`); where a fitted model reads a table of texts, "
        "column=NAME; repeatable.",
    ),
]
_PART: dict[str, Any] = {"parser": _read_part, "metavar": "train|test"}
_INT: dict[str, Any] = {"parser": _reader(int), "metavar": "INT"}
Split = Annotated[
    Part | None, typer.Option(help="Part of the data set; by default test if it has one, else train.", **_PART)
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.", callback=_hush)]
Json = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")]


def _dataset(
    data: str, split: Part | None, options: Iterable[str] | None, column: str | None = None, *, texts: bool = False
) -> tuple[Dataset, Part]:
    """The data set that --data names, and the part that --split means.

    `column` holds the texts of a table; `texts` says that there must be some, since the model was fitted on them.
    """
    from sparsevae.data import load, names
    from sparsevae.texts import is_text_file

    text_file = is_text_file(data, column, expected=texts)
    if text_file:
        found = _texts(data, _column(data, options or (), fitted=texts) or column)
    else:
        found = load(data, **_chosen(data, options or ()))
    if data in names():
        found = dataclasses.replace(found, columns=None)  # always the same; those of files may differ
    if not found.X.shape[0]:
        raise ValueError(f"{data} is empty: expected rows of numbers, or a text a line.")
    if split is Part.TEST and found.X_test is None:
        raise ValueError(f"{data} has no test part; leave --split out.")
    return found, Part.TRAIN if split is Part.TRAIN or found.X_test is None else Part.TEST


def _chosen(data: str, options: Iterable[str]) -> dict[str, Any]:
    """What --data-option says, as values of the types that the data set wants.

    >>> _chosen("tiles", ["n=40", "overlap=True"]), _chosen("two.npz", ["key=1"])
    ({'n': 40, 'overlap': True}, {'key': '1'})
    """
    from sparsevae.data.catalogue import fits, kinds

    known, chosen = kinds(data), {}
    for option in options:
        name, equals, text = option.partition("=")
        if not equals:
            raise typer.BadParameter(f"expected NAME=VALUE, got {option!r}", param_hint="'--data-option'")
        chosen[name] = text
        with suppress(ValueError, SyntaxError):  # a word stays a word
            value = ast.literal_eval(text)
            chosen[name] = value if fits(value, known.get(name, object)) or not fits(text, known[name]) else text
    return chosen


def _column(data: str, options: Iterable[str], *, fitted: bool) -> str | None:
    """The one option of texts: the column of a table, where that is not the fitted model's own."""
    column = None
    for option in options:
        name, _, column = option.partition("=")
        if Path(data).suffix.lower() == ".txt":
            problem = "a .txt has none"
        elif not fitted:
            problem = "--text-column names the column of texts"
        elif name != "column" or not column:
            problem = "a table of texts takes column=NAME"
        else:
            continue
        raise typer.BadParameter(f"{problem}, got {option!r}", param_hint="'--data-option'")
    return column


def _texts(data: str, column: str | None) -> Dataset:
    """The texts of a file."""
    import numpy as np

    from sparsevae.data import Dataset
    from sparsevae.texts import texts_of

    return Dataset(data, X=np.array(texts_of(Path(data), column), dtype=object))


def _named(est: SparseCoder, data: str, split: Part | None, options: Iterable[str] | None) -> tuple[Dataset, Part]:
    """`_dataset` as a fitted model reads it."""
    from sparsevae.texts import Texts

    return _dataset(data, split, options, est.input_.column, texts=isinstance(est.input_, Texts))


def _rows(est: SparseCoder, data: str, split: Part | None, options: Iterable[str] | None) -> tuple[Any, str]:
    """The rows that --data and --split name, and which part they are."""
    found, part = _named(est, data, split, options)
    return _of(found, part), part.value


def _of(found: Dataset, part: Part) -> Any:
    """One part of a data set, with the names of its columns where they count."""
    from sparsevae.data import Table

    X: Any = found.X if part is Part.TRAIN else found.X_test
    return X if found.columns is None else Table(X, found.columns)


def _labelled(est: SparseCoder) -> LabelledCoder | None:
    """The model, where it learns from labels."""
    from sparsevae.supervised import LabelledCoder

    return est if isinstance(est, LabelledCoder) else None


def _labels(est: LabelledCoder, data: str, found: Dataset, part: Part) -> tuple[Any, list[str] | None]:
    """What a model learns from beside the rows, and the names of its labels where they have any."""
    import numpy as np

    y, truth = (found.y, found.truth) if part is Part.TRAIN else (found.y_test, found.truth_test)
    y = y if est.target == "y" else truth.get(est.target)
    if y is None:
        raise ValueError(f"{type(est).__name__} learns from {est.target}, and {data} ({part.value}) has none.")
    names = found.label_names if est.target == "y" else None
    if names is None or y.ndim == 2:
        return y, None if names is None else list(names)
    return y, [names[int(c)] for c in np.unique(y)]


def _load(folder: Path) -> SparseCoder:
    from sparsevae.loading import load

    est: SparseCoder = load(folder)
    return est


def _write(path: Path, write: Callable[[Any], object]) -> None:
    """All of the file or nothing of it: made in memory, then put in its place in one move."""
    from sparsevae.storage import write_file

    buffer = io.BytesIO()
    write(buffer)
    write_file(path, buffer.getvalue())


def _ending(path: Path, *known: str) -> str:
    """The ending of a file to write; refuses, before any work, one that could not be written."""
    if path.suffix.lower() not in known:
        raise ValueError(f"--out {path}: expected a name that ends in {' or '.join(known)}.")
    if path.exists() and not path.is_file():
        came = "a folder" if path.is_dir() else "no regular file"
        raise ValueError(f"--out {path}: expected a file to write, found {came}; choose another name.")
    _check_place(Path(os.path.realpath(path)).parent)
    return path.suffix.lower()


def _check_place(folder: Path) -> None:
    """Refuse a folder that can be neither made nor written to."""
    there = next(p for p in (folder, *folder.absolute().parents) if p.exists())
    if not there.is_dir():
        raise ValueError(f"--out: {there} is no folder; choose another place.")
    if not os.access(there, os.W_OK):
        raise ValueError(f"--out: {there} may not be written to; choose another place.")


@contextmanager
def _nothing_left(path: Path) -> Iterator[None]:
    """Where this fails, folders that it made and left empty go."""
    made = [p for p in (path, *path.parents) if not p.exists()]
    try:
        yield
    except BaseException:
        with suppress(OSError):  # it is not empty, or was never made
            for p in made:
                p.rmdir()
        raise


def _print_json(result: Mapping[str, Any]) -> None:
    print(json.dumps(_strict(result), allow_nan=False))


def _strict(value: Any) -> Any:
    """What JSON has no word for, infinity and NaN, is null."""
    if isinstance(value, Mapping):
        return {k: _strict(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_strict(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _print_table(rows: Iterable[Sequence[str]], *header: str, right: str = "") -> None:
    """A table on standard output; columns named in `right` are numbers, and stand to the right."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD if header else None, show_header=bool(header), show_edge=False, pad_edge=False)
    for name in header:
        table.add_column(name, justify="right" if name in right.split() else "left")
    for row in rows:
        table.add_row(*row)
    Console(highlight=False, markup=False).print(table)


# -- fit --------------------------------------------------------------------------------------------------------

# Plain help: panels cut long flags off on a narrow terminal.
_STYLE: dict[str, Any] = {"rich_markup_mode": None, "context_settings": {"help_option_names": ["-h", "--help"]}}


class Command(TyperCommand):
    """A command whose help lists flags under the panels that they name, and whose errors know it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        with _known(ctx):
            return super().parse_args(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        panels: dict[str, list[tuple[str, str]]] = {}
        for p in self.get_params(ctx):
            if line := p.get_help_record(ctx):
                usual = "Arguments" if p.param_type_name == "argument" else "Options"
                panels.setdefault(getattr(p, "rich_help_panel", None) or usual, []).append(line)
        for panel, lines in panels.items():
            with formatter.section(panel):
                formatter.write_dl(lines)


class Group(TyperGroup):
    """Commands under one name: alone it shows help."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args:
            print(ctx.get_help(), file=sys.stderr)
            raise typer.Exit(2)
        with _known(ctx):
            return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if self.get_command(ctx, args[0]) is None:
            from sparsevae.data.suggest import unknown

            raise _UsageError(unknown("command", args[0], self.list_commands(ctx)), ctx)
        return super().resolve_command(ctx, args)


@contextmanager
def _known(ctx: Any) -> Iterator[None]:
    """Errors of a parser that do not say which command they are about learn it here."""
    try:
        yield
    except _UsageError as error:
        error.ctx = error.ctx or ctx
        raise


class Models(Group):
    """One sub-command for each model in the registry, built when asked for: `sparsevae --help` loads no model."""

    def list_commands(self, ctx: Any) -> list[str]:
        from sparsevae.models import known

        return list(known())

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        from sparsevae.data.suggest import unknown
        from sparsevae.models import known

        found = {name.lower(): cls for name, cls in known().items()}.get(cmd_name.lower().replace("-", ""))
        if found is None:
            raise ValueError(unknown("model", cmd_name, known()))
        return _fit_command(found)


def _fit_command(cls: type[SparseCoder]) -> Any:
    """The sub-command of one model."""
    from sparsevae.parameters import documented
    from sparsevae.settings import Training
    from sparsevae.texts import Text

    own, settings = ({p.name: p for p in documented(c) if p.name not in _COVERED} for c in (cls, Training))
    usual = cls.default_training()
    settings = {name: p._replace(default=getattr(usual, name)) for name, p in settings.items()}
    words = [p._replace(name=f"text_{p.name}") for p in documented(Text) if "text" in own]
    texts = {p.name: p for p in words}

    def fit(
        *,
        data: Data,
        out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Folder for the model and its run.")],
        split: Annotated[Part, typer.Option(help="Part of the data set.", **_PART)] = Part.TRAIN,
        data_option: DataOptions = None,
        quiet: Quiet = False,
        as_json: Json = False,
        **flags: Any,
    ) -> None:
        tables = (own, settings, texts)
        choices, rest, said = ({k: _value(p, flags[k]) for k, p in t.items() if k in flags} for t in tables)
        if changed := {k.removeprefix("text_"): v for k, v in said.items() if v != texts[k].default}:
            choices["text"] = Text(**changed)
        est = cls(**choices, training=Training(**rest, folder=str(out), verbose=int(not quiet)))
        _fit(est, out, data, split, data_option, quiet, as_json)

    shared = [p for p in inspect.signature(fit, eval_str=True).parameters.values() if p.kind is p.KEYWORD_ONLY]
    panels = {"Model": own, "Texts": texts, "Training": settings}
    options = [_option(p, panel) for panel, table in panels.items() for p in table.values()]
    vars(fit)["__signature__"] = inspect.Signature([*shared, *filter(None, options)])
    alone = typer.Typer(add_completion=False, **_STYLE)
    alone.command(cls.__name__, cls=Command, help=(cls.__doc__ or "").splitlines()[0])(fit)
    return typer.main.get_command(alone)


def _fit(
    est: SparseCoder, out: Path, data: str, split: Part, options: list[str] | None, quiet: bool, as_json: bool
) -> None:
    from sparsevae.storage import check_folder

    resume = est.get_params()["training__resume"]
    finished, begun = ((out / name).exists() for name in ("model.json", "checkpoint.safetensors"))
    if begun and not resume:
        state = "a finished run" if finished else "an unfinished run"
        raise FileExistsError(f"{out} holds {state}: continue it with --resume, or choose another folder.")
    if finished and not begun:
        raise FileExistsError(f"{out} holds a model without a run to continue: choose another folder.")
    check_folder(out)
    _check_place(out)
    est.check()
    found, part = _dataset(data, split, options, est._text().column)
    X = _of(found, part)
    labelled = _labelled(est)
    try:
        with _nothing_left(out):
            if labelled:
                y, names = _labels(labelled, data, found, part)
                labelled.fit(X, y, label_names=names)
            else:
                est.fit(X)
    except (KeyboardInterrupt, SystemExit) as stop:
        if not (out / "checkpoint.safetensors").exists():
            _say("interrupted before anything was saved.")
        elif quiet:  # else the training loop has said it
            _say(f"interrupted; saved in {out}: continue with the same command and --resume.")
        raise typer.Exit(130 if isinstance(stop, KeyboardInterrupt) else 143) from None
    est.save(out)
    final = est.history_[-1] if est.history_ else {}
    name, last = type(est).__name__, {k: v for k, v in final.items() if k not in ("step", "epoch")}
    if as_json:
        about = {"model": name, "out": str(out), "rows": X.shape[0], **est.input_.about()}
        return _print_json({**about, "likelihood": est.likelihood_, "steps": est.n_steps_, "final": last})
    what = f"{labelled.n_labels_} labels" if labelled else est.likelihood_
    size = " ".join(f"{count:,} {noun}" for noun, count in est.input_.about().items())
    print(f"{name} of {X.shape[0]:,} rows x {size} ({what}), {est.n_steps_:,} steps")
    print("  ".join(f"{k} {v:.4g}" for k, v in last.items()))
    chosen = [word for option in options or () for word in ("--data-option", option)]
    print(f"saved in {out}; next: {shlex.join(['sparsevae', 'evaluate', str(out), '--data', data, *chosen])}")


# -- the commands -----------------------------------------------------------------------------------------------


class Commands(Group):
    """The commands, in the order in which one needs them."""

    def list_commands(self, ctx: Any) -> list[str]:
        return ["fit", "encode", "evaluate", "report", "audit", "second-stage", "sample", "data", "demo"]


app = typer.Typer(cls=Commands, add_completion=False, **_STYLE)
app.add_typer(
    typer.Typer(cls=Models, subcommand_metavar="MODEL [OPTIONS]", **_STYLE),
    name="fit",
    help="Train a model and save it.",
    epilog="Each model has flags of its own: sparsevae fit VSC --help",
)
data_app = typer.Typer(cls=Group, **_STYLE)
app.add_typer(data_app, name="data", help="The data sets that have a name.")


def _version(wanted: bool) -> None:
    if wanted:
        from sparsevae import __version__

        print(f"sparsevae {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error; goes anywhere.")] = False,
) -> None:
    """Sparse, interpretable codes from deep generative models."""


@app.command(cls=Command)
def encode(
    folder: Folder,
    data: Data,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="codes.npz or codes.parquet.")],
    max_active: Annotated[
        int | None,
        typer.Option(metavar="K", parser=_reader(int), help="Keep at most K non-zeros a row, the most probable ones."),
    ] = None,
    split: Split = None,
    data_option: DataOptions = None,
    as_json: Json = False,
) -> None:
    """Write the code of every row.

    Sparse codes: .npz is a CSR matrix for scipy.sparse.load_npz; .parquet has the columns row, indices (the units
    that are on) and values, one line a row, as vector databases take sparse vectors.

    Dense codes: .npz holds one array, codes; .parquet has one column for each unit.
    """
    from scipy.sparse import issparse, save_npz

    ending = _ending(out, ".npz", ".parquet")
    est = _load(folder)
    X, part = _rows(est, data, split, data_option)
    codes = est.transform(X, max_active=max_active)
    sparse = bool(issparse(codes))
    if ending == ".parquet":
        from pyarrow import parquet

        table = _lists(codes) if sparse else _columns(codes, est.get_feature_names_out())
        _write(out, lambda file: parquet.write_table(table, file))
    elif sparse:
        _write(out, lambda file: save_npz(file, codes))
    else:
        import numpy as np

        _write(out, lambda file: np.savez(file, codes=codes))
    n, units = codes.shape
    nonzeros = int((codes != 0).sum()) / n
    if as_json:
        about = {"out": str(out), "sparse": sparse, "split": part}
        return _print_json({**about, "rows": n, "units": units, "nonzeros": nonzeros})
    print(f"{out}: {n:,} rows ({part}) x {units:,} units, {nonzeros:.4g} non-zeros a row")


def _lists(codes: Any) -> Any:
    """A CSR matrix as an Arrow table of each row's units and their values."""
    import pyarrow as pa

    ends = pa.array(codes.indptr, pa.int64())
    indices, values = (pa.LargeListArray.from_arrays(ends, v) for v in (codes.indices, codes.data))
    return pa.table({"row": range(codes.shape[0]), "indices": indices, "values": values})


def _columns(codes: Any, names: Iterable[str]) -> Any:
    """An array as an Arrow table with a column for each unit."""
    import pyarrow as pa

    return pa.table(dict(zip(names, codes.T, strict=True)))


@app.command(cls=Command)
def evaluate(
    folder: Folder,
    data: Data,
    caps: Annotated[
        Any,
        typer.Option(
            metavar="K,...",
            parser=_reader(tuple[int, ...]),
            help="Also the error with at most K non-zeros a row.",
        ),
    ] = None,
    importance: Annotated[
        int | None,
        typer.Option(metavar="K", parser=_reader(int), help="Also the tighter bound of K samples an item (slow)."),
    ] = None,
    split: Split = None,
    data_option: DataOptions = None,
    as_json: Json = False,
) -> None:
    """Score, sparsity, reconstruction error, cost of caps."""
    limits: tuple[int, ...] = caps or ()
    est = _load(folder)
    if labelled := _labelled(est):
        if limits or importance is not None:
            raise ValueError(f"--caps and --importance judge codes of X; {type(est).__name__} is judged by its labels.")
        return _evaluate_labels(labelled, data, *_dataset(data, split, data_option), as_json)
    X, part = _rows(est, data, split, data_option)
    result: dict[str, Any] = {"model": type(est).__name__, "data": data, "split": part}
    if importance is not None:  # first, since it may be refused
        b = est.importance_bound(X, n_samples=importance)
        result["importance"] = {
            "samples": importance,
            "bound": float(b.bound.mean()),
            "standard_error": float(b.bound.std() / math.sqrt(len(b.bound))),
            "effective_samples": float(b.effective_samples.mean()),
        }
    result |= est.evaluate(X, caps=limits)
    if as_json:
        return _print_json(result)
    print(f"{result['model']} on {data} ({part}), {result['rows']:,} rows\n")
    _print_table(_report(result))
    if limits:
        print()
        loss = "mse" if "mse" in result else "nll_code"
        free = result[loss]
        costs = {cap: (error, error / free - 1 if free else 0.0) for cap, error in result["caps"].items()}
        lines = [(str(cap), f"{error:.6g}", f"{cost:+.1%}") for cap, (error, cost) in costs.items()]
        _print_table([*lines, ("no cap", f"{free:.6g}", "")], "at most", loss, "cost", right=f"{loss} cost")


def _evaluate_labels(est: LabelledCoder, data: str, found: Dataset, part: Part, as_json: bool) -> None:
    y, _ = _labels(est, data, found, part)
    result = est.evaluate(_of(found, part), y)
    name = type(est).__name__
    if as_json:
        return _print_json({"model": name, "data": data, "split": part.value, **result})
    print(f"{name} on {data} ({part.value}), {result['rows']:,} rows\n")
    _print_table([(k.replace("_", " "), f"{v:.4g}") for k, v in result.items() if k != "rows"])


_OWN_UNITS = "in the units of the data"
_MEANINGS = {
    "bound": "a lower bound on log p(x)",
    "cross-entropy": "a cross-entropy of grey values, no bound",
    "normalised-row density": "a density of normalised rows, no bound",
    "joint density at the code": "log p(x, z) at the code, no bound: the codes have no noise",
}


def _report(r: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Evaluated numbers as lines of (name, value, what it is)."""
    meaning = _MEANINGS.get(r["score_meaning"], r["score_meaning"])
    lines = [("score", f"{r['score']:.2f} ± {r['score_standard_error']:.2f}", f"nats; {meaning}")]
    if b := r.get("importance"):
        note = f"nats; {b['samples']} samples, {b['effective_samples']:.3g} effective"
        lines.append(("importance bound", f"{b['bound']:.2f} ± {b['standard_error']:.2f}", note))
    elif "importance_bound" in r:
        note = f"nats; 1,000 hard samples, on {r['importance_rows']:,} rows"
        lines.append(("importance bound", f"{r['importance_bound']:.2f}", note))
    if "relaxed_objective" in r:
        note = "nats; with the draws of training: no bound"
        lines.append(("relaxed objective", f"{r['relaxed_objective']:.2f}", note))
    lines += [(k.replace("_", " "), f"{r[k]:g}", "in scaled units") for k in ("variance_floor", "variance") if k in r]
    drawn = f"{r['nonzeros_drawn']:.4g} when drawn, {r['nonzeros_expected']:.4g} expected"
    return [
        *lines,
        ("KL", f"{r['kl']:.2f}", "nats"),
        ("active units", str(r["active_units"]), f"of {r['n_components']}"),
        ("non-zeros a row", f"{r['nonzeros_mode']:.4g}", drawn),
        *_hoyer(r),
        *_reconstruction(r),
    ]


def _hoyer(r: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """How sparse codes are by Hoyer's measure, where that is told."""
    names = {
        "draws": "one draw a row",
        "slab": "means of units that are on",
        "gated": "P(on) times them",
        "mean": "means of codes",
    }
    return [
        (f"Hoyer of {kind}", f"{h['average']:.3f}", f"{names[kind]}; {h['aggregate']:.3f} of their mean size")
        for kind, h in r.get("hoyer", {}).items()
    ]


def _reconstruction(r: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """What is left of rows, or of texts, after their code."""
    if "mse" in r:
        normalised = r["score_meaning"] == "normalised-row density"
        return [("mse", f"{r['mse']:.6g}", f"per value {'of normalised rows' if normalised else _OWN_UNITS}")]
    return [
        ("words a text", f"{r['words']:.4g}", f"its end counted; {r['unknown']:.1%} unknown"),
        ("nll", f"{r['nll']:.2f}", f"nats a text given a draw of its code, {r['nll_code']:.2f} given the code"),
        ("perplexity", f"{r['perplexity']:.4g}", f"a word, by the score; {r['perplexity_reconstruction']:.4g} by nll"),
    ]


@app.command(cls=Command)
def report(
    folder: Folder,
    data: Data,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="The page to write.")] = Path("report.html"),
    title: Annotated[str | None, typer.Option(help="Heading of the page.")] = None,
    split: Split = None,
    data_option: DataOptions = None,
    as_json: Json = False,
) -> None:
    """Write a page about a model: numbers and pictures; of texts also texts told again and the words of units."""
    from sparsevae.report import report

    _ending(out, ".html")
    est = _load(folder)
    if _labelled(est):
        raise ValueError(f"a report judges codes of X; {type(est).__name__} is judged by its labels: use evaluate.")
    found, part = _named(est, data, split, data_option)
    X = _of(found, part)
    y = found.y if part is Part.TRAIN else found.y_test
    labels: Any = None if y is None or y.ndim != 1 else y
    if labels is not None and found.label_names is not None:
        labels = [found.label_names[int(c)] for c in labels]
    page = report(est, X, out, image_shape=_shape_of(est, found), labels=labels, title=title)
    if as_json:
        about = {"model": type(est).__name__, "data": data, "split": part.value}
        return _print_json({**about, "out": str(page), "rows": X.shape[0], "bytes": page.stat().st_size})
    print(page)


def _shape_of(est: SparseCoder, found: Dataset) -> tuple[int, ...] | None:
    """How a page draws rows: as the model says, or else as the data set does."""
    from sparsevae.texts import Texts

    return None if isinstance(est.input_, Texts) or est.image_shape is not None else found.image_shape


@app.command(cls=Command)
def audit(
    folder: Folder,
    data: Data,
    gain_rows: Annotated[
        int, typer.Option(metavar="N", parser=_reader(int, 1), help="Rows to measure reconstruction gains on.")
    ] = 2000,
    split: Split = None,
    data_option: DataOptions = None,
    as_json: Json = False,
) -> None:
    """Which units are used, what each brings and costs, and whether the code has the right size."""
    from sparsevae.auditing import audit

    est = _load(folder)
    X, part = _rows(est, data, split, data_option)
    found = audit(est, X, gain_rows=gain_rows)
    name = type(est).__name__
    if as_json:
        return _print_json({"model": name, "data": data, "split": part, **found.to_dict()})
    print(f"{name} on {data} ({part}), {found.rows:,} rows; KL and gain in nats, gain on {found.gain_rows:,} rows\n")
    header, lines = found.table()
    _print_table(lines, *header, right="unit var(mu) mean(s2) sum KL gain p_on on")
    print(f"\n{found.legend}\n{found.words}")


@app.command("second-stage", cls=Command)
def second_stage(
    folder: Folder,
    data: Data,
    n_components: Annotated[
        int | None, typer.Option(**_INT, help="Width of the second stage; by default the model's, at most 16.")
    ] = None,
    steps: Annotated[int | None, typer.Option(**_INT, help="Gradient steps; 10,000 when not given.")] = None,
    seed: Annotated[int | None, typer.Option(**_INT, help="Fixes the run; by default the model's.")] = None,
    split: Annotated[Part, typer.Option(help="Part of the data set.", **_PART)] = Part.TRAIN,
    data_option: DataOptions = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Fit a model of a saved model's codes, for `sample --second-stage`.

    It is saved with the model, in the same folder, and takes the place of an earlier one. The model stays as it is.
    """
    from sparsevae.two_stage import second_stage, settings

    est = _load(folder)
    asked: dict[str, Any] = {"steps": steps, "verbose": int(not quiet)} | ({} if seed is None else {"seed": seed})
    training = settings(est, **asked)
    training.validate()
    X, _ = _rows(est, data, split, data_option)
    try:
        stage = second_stage(est, X, n_components=n_components, training=training)
    except (KeyboardInterrupt, SystemExit) as stop:
        _say(f"interrupted; {folder} is as it was.")
        raise typer.Exit(130 if isinstance(stop, KeyboardInterrupt) else 143) from None
    est.save(folder)
    name, last = type(est).__name__, {k: v for k, v in stage.history_[-1].items() if k not in ("step", "epoch")}
    if as_json:
        about = {"model": name, "out": str(folder), "rows": X.shape[0], "units": stage.n_features_in_}
        return _print_json({**about, "likelihood": stage.likelihood_, "steps": stage.n_steps_, "final": last})
    print(f"second stage of {name} on {X.shape[0]:,} codes ({stage.likelihood_}), {stage.n_steps_:,} steps")
    print("  ".join(f"{k} {v:.4g}" for k, v in last.items()))
    print(f"saved in {folder}; next: {shlex.join(['sparsevae', 'sample', str(folder), '--second-stage'])}")


@app.command(cls=Command)
def sample(
    folder: Folder,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="samples.npy, a .png for images; samples.txt for texts."),
    ] = None,
    n: Annotated[int, typer.Option("-n", metavar="N", parser=_reader(int, 1), help="How many.")] = 16,
    seed: Annotated[int, typer.Option(**_INT, help="The same seed gives the same samples.")] = 0,
    noise: Annotated[bool, typer.Option("--noise", help="Draw x from p(x|z) instead of taking its mean.")] = False,
    second_stage: Annotated[
        bool, typer.Option("--second-stage", help="Draw codes from the second stage (see `sparsevae second-stage`).")
    ] = False,
    image_shape: Annotated[
        Any,
        typer.Option(
            metavar="H,W[,3]",
            parser=_reader(tuple[int, ...]),
            help="Size of an image in a .png; by default the model's, else a grey square.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Draw new rows: z from the prior, x from the decoder."""
    import numpy as np

    from sparsevae.texts import Texts

    est = _load(folder)
    written = isinstance(est.input_, Texts)
    out = Path("samples.txt" if written else "samples.npy") if out is None else out
    ending = _ending(out, ".txt") if written else _ending(out, ".npy", ".png")
    rows = est.sample(n, seed=seed, noise=noise, second_stage=second_stage)
    if written:
        _write(out, lambda file: file.write("".join(f"{text}\n" for text in rows).encode()))
    elif ending == ".npy":
        _write(out, lambda file: np.save(file, rows))
    else:
        from matplotlib.image import imsave

        sheet = _sheet(rows, _picture_shape(est, image_shape))
        _write(out, lambda file: imsave(file, sheet, format="png"))
    name = type(est).__name__
    if as_json:
        return _print_json({"model": name, "out": str(out), "shape": list(np.shape(rows)), "seed": seed})
    print(f"{out}: {n} samples of {name}")


def _picture_shape(est: SparseCoder, given: tuple[int, ...] | None) -> tuple[int, ...]:
    """(H, W) or (H, W, 3): as given, as the model has it, or a grey square."""
    from sparsevae.plots import picture_shape

    if shape := picture_shape(est, given):
        return shape
    side = math.isqrt(est.n_features_in_)
    if est.image_shape is not None or side * side != est.n_features_in_:
        what = f"images of shape {est.image_shape}" if est.image_shape else f"rows of {est.n_features_in_} values"
        raise ValueError(f"{what} have no picture of their own: give --image-shape H,W or H,W,3, or a .npy.")
    return side, side


def _sheet(rows: Any, shape: tuple[int, ...]) -> Any:
    """Images side by side, as many down as across, lines between them, small ones enlarged to 64 pixels; (H, W, 3)."""
    import numpy as np

    n = len(rows)
    across = math.ceil(math.sqrt(n))
    down = math.ceil(n / across)
    low, high = np.percentile(rows, (1, 99))  # one wild sample does not grey out the others
    cells = np.zeros((down * across, *shape[:2], 3))
    cells[:n] = ((rows - low) / (high - low or 1)).clip(0, 1).reshape(n, *shape[:2], -1)
    zoom = max(1, 64 // max(shape[:2]))
    cells = cells.repeat(zoom, axis=1).repeat(zoom, axis=2)
    cells = np.pad(cells, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=1)
    grid = cells.reshape(down, across, *cells.shape[1:]).swapaxes(1, 2)
    return grid.reshape(down * cells.shape[1], across * cells.shape[2], 3)


@data_app.command("list", cls=Command)
def data_list(as_json: Json = False) -> None:
    """All of them, and whether they are on this machine."""
    from sparsevae.data import info, names

    found = [info(name) for name in names()]
    if as_json:
        return _print_json({"data": [dataclasses.asdict(i) for i in found]})
    _print_table(
        [(i.name, *_counts(i), f"{i.features:,}", _where(i)) for i in found],
        *("name", "train", "test", "features", "where"),
        right="train test features",
    )


def _where(i: Any) -> str:
    return "here" if i.available else "by hand" if i.by_hand else "to fetch"


def _counts(i: Any) -> tuple[str, str]:
    """Rows of both parts in words: a copy of a part of a set has fewer than the set."""
    most = "up to " if i.at_most else ""
    return f"{most}{i.rows:,}", f"{most}{i.rows_test:,}"


@data_app.command("info", cls=Command)
def data_info(name: Annotated[str, typer.Argument(metavar="NAME")], as_json: Json = False) -> None:
    """What one of them is, where it comes from, its options."""
    from sparsevae.data import info

    i = info(name)
    if as_json:
        return _print_json(dataclasses.asdict(i))
    lines = [("about", i.about), ("rows", "{} train, {} test".format(*_counts(i))), ("features", f"{i.features:,}")]
    options = "\n".join(f"{k}={v!r}" for k, v in i.options.items()) or "none"
    _print_table([*lines, ("source", i.source), ("options", options)])


@app.command(cls=Command)
def demo(
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Folder for the page.")] = Path("demo"),
    seed: Annotated[int, typer.Option(**_INT, help="Fixes the run.")] = 0,
    as_json: Json = False,
) -> None:
    """Train on embedded data, leave a page of pictures."""
    from importlib import import_module

    left = import_module("sparsevae.demo").run(out, seed)
    if as_json:
        paths = {"out": str(left.page), "picture": str(left.picture), "model": str(left.model)}
        return _print_json({**paths, **left.numbers})
    print(left.page)
