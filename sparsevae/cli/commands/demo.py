"""`sparsevae demo`: train on built-in data and write a page of pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sparsevae.cli.options import INT, Json, out_option
from sparsevae.cli.printing import print_result


def demo(
    out: Annotated[Path, out_option("DIR", "Folder for the page.")] = Path("demo"),
    seed: Annotated[int, typer.Option(**INT, help="Fixes the run.")] = 0,
    as_json: Json = False,
) -> None:
    """Train on built-in data and write a page of pictures."""
    from sparsevae.report.demo import run

    left = run(out, seed)
    paths = {"out": str(left.page), "picture": str(left.picture), "model": str(left.model)}
    print_result({**paths, **left.numbers}, left.page, as_json)
