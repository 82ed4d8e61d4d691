"""All commands in one app."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from sparsevae.messages import show

from .audit import audit
from .data import data_info, data_list
from .demo import demo
from .encode import encode
from .evaluate import evaluate
from .fit import Models
from .groups import STYLE, Command, Group, stopped
from .messages import say
from .report import report
from .sample import sample
from .second_stage import second_stage


class Commands(Group):
    """The commands, in the order in which one needs them."""

    def list_commands(self, ctx: Any) -> list[str]:
        return ["fit", "encode", "evaluate", "report", "audit", "second-stage", "sample", "data", "demo"]

    def invoke(self, ctx: Any) -> Any:
        """Run a command; Ctrl-C and SIGTERM that it does not answer itself are told (typer ends without a word)."""
        try:
            return super().invoke(ctx)
        except (KeyboardInterrupt, SystemExit) as stop:
            say("interrupted.")
            raise stopped(stop) from None


app = typer.Typer(cls=Commands, add_completion=False, **STYLE)
app.add_typer(
    typer.Typer(cls=Models, subcommand_metavar="MODEL [OPTIONS]", **STYLE),
    name="fit",
    help="Train a model and save it.",
    epilog="Each model has flags of its own: sparsevae fit VSC --help",
)
for command in (encode, evaluate, report, audit, second_stage, sample, demo):
    app.command(cls=Command)(command)

data_app = typer.Typer(cls=Group, **STYLE)
data_app.command("list", cls=Command)(data_list)
data_app.command("info", cls=Command)(data_info)
app.add_typer(data_app, name="data", help="The data sets that have a name.")


def _version(wanted: bool) -> None:
    if wanted:
        from sparsevae import __version__

        show(f"sparsevae {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error; goes anywhere.")] = False,
) -> None:
    """Sparse, interpretable codes from deep generative models."""
