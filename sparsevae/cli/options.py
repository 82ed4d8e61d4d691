"""Flags and arguments that several commands share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from sparsevae.cli.messages import hush
from sparsevae.cli.values import once, parse


def taking(kind: Any, metavar: str = "INT", least: int | None = None) -> dict[str, Any]:
    """Arguments of typer.Option for a flag of this type: its spelling in help, and its parser."""

    def read(given: Any) -> Any:
        if not isinstance(given, str):  # a default
            return given
        try:
            value = parse(given, kind)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None
        if least is not None and value < least:
            raise typer.BadParameter(f"expected an integer, {least} or above, got {given!r}")
        return value

    return {"parser": read, "metavar": metavar}


def _read_path(given: Any) -> Any:
    """A path; an empty one is an error: from an unset shell variable, it would mean the working directory."""
    if isinstance(given, str) and (not given or "\0" in given):
        raise typer.BadParameter(f"expected a path, got {given!r}")
    return Path(given) if isinstance(given, str) else given


def out_option(metavar: str, text: str) -> Any:
    """The option --out."""
    return typer.Option("--out", "-o", metavar=metavar, help=text, parser=_read_path)


def image_shape_option(text: str) -> Any:
    """The option --image-shape."""
    return typer.Option(**taking(tuple[int, ...], "H,W[,3]"), help=text)


def _check_pairs(given: list[str] | None) -> list[str] | None:
    try:
        once((name, value) for name, _, value in (pair.partition("=") for pair in given or ()))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    return given


class Part(StrEnum):
    """The part of a data set."""

    TRAIN = "train"
    TEST = "test"


def _read_part(given: Any) -> Any:
    if given is not None and given not in list(Part):
        raise typer.BadParameter(f"expected {' or '.join(Part)}, got {given!r}")
    return None if given is None else Part(given)


Folder = Annotated[
    Path,
    typer.Argument(metavar="DIR", help="The output folder of fit, or any saved model.", parser=_read_path),
]
Data = Annotated[
    str,
    typer.Option(
        "--data",
        "-d",
        metavar="D",
        help="A data set (`sparsevae data list`) or a file: .npy, .npz, .csv, .parquet; .txt with one text per line.",
    ),
]
DataOptions = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=VALUE",
        callback=_check_pairs,
        help="An option of the data set (`sparsevae data info D`); column=NAME if a fitted model reads a table of "
        "texts; repeatable.",
    ),
]
PART: dict[str, Any] = {"parser": _read_part, "metavar": "train|test"}
INT = taking(int)
Split = Annotated[
    Part | None, typer.Option(help="Part of the data set; by default test if it has one, else train.", **PART)
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.", callback=hush)]
Json = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")]
