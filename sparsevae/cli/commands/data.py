"""`sparsevae data`: the named data sets."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

import typer

from sparsevae.cli.options import Json
from sparsevae.cli.printing import print_json, print_table
from sparsevae.messages import show


def data_list(as_json: Json = False) -> None:
    """List the named data sets, and whether they are on this machine."""
    from sparsevae.data import info, names

    found = [info(name) for name in names()]
    if as_json:
        return print_json({"data": [dataclasses.asdict(i) for i in found]})
    header = "name", "train", "test", "features", "where"
    print_table(header, [(i.name, *_counts(i), f"{i.features:,}", _where(i)) for i in found])


def data_info(name: Annotated[str, typer.Argument(metavar="NAME")], as_json: Json = False) -> None:
    """Describe a named data set, its source and its options."""
    from sparsevae.data import info

    i = info(name)
    if as_json:
        return print_json(dataclasses.asdict(i))
    show(f"{i.about}\n")
    options = ", ".join(f"{k}={v!r}" for k, v in i.options.items()) or "none"
    rows = "{} train, {} test".format(*_counts(i))
    print_table((), [("rows", rows), ("features", f"{i.features:,}"), ("source", i.source), ("options", options)])


def _where(i: Any) -> str:
    return "here" if i.available else "by hand" if i.by_hand else "to fetch"


def _counts(i: Any) -> tuple[str, str]:
    """Numbers of training and test rows; "up to" for sets of which a local copy may have a part only."""
    most = "up to " if i.at_most else ""
    return f"{most}{i.rows:,}", f"{most}{i.rows_test:,}"
