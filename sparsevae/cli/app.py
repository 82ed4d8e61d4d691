"""All commands in one app."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from sparsevae.cli.commands.audit import audit
from sparsevae.cli.commands.data import data_info, data_list
from sparsevae.cli.commands.demo import demo
from sparsevae.cli.commands.encode import encode
from sparsevae.cli.commands.evaluate import evaluate
from sparsevae.cli.commands.fit import Models
from sparsevae.cli.commands.report import report
from sparsevae.cli.commands.sample import sample
from sparsevae.cli.commands.second_stage import second_stage
from sparsevae.cli.groups import STYLE, Command, Group, stopped
from sparsevae.cli.messages import note
from sparsevae.messages import show


class Commands(Group):
    """The commands, in the order of a typical use."""

    def list_commands(self, ctx: Any) -> list[str]:
        return ["fit", "encode", "evaluate", "report", "audit", "second-stage", "sample", "data", "demo"]

    def invoke(self, ctx: Any) -> Any:
        """Run a command; report Ctrl-C and SIGTERM that it does not handle (typer would end without a message)."""
        try:
            return super().invoke(ctx)
        except (KeyboardInterrupt, SystemExit) as stop:
            note("interrupted.")
            raise stopped(stop) from None


app = typer.Typer(cls=Commands, add_completion=False, **STYLE)
app.add_typer(
    typer.Typer(cls=Models, subcommand_metavar="MODEL [OPTIONS]", **STYLE),
    name="fit",
    help="Train a model and save it.",
    epilog="Each model has its own flags: sparsevae fit VSC --help",
)
for command in (encode, evaluate, report, audit, second_stage, sample, demo):
    app.command(cls=Command)(command)
data_app = typer.Typer(cls=Group, **STYLE)
data_app.command("list", cls=Command)(data_list)
data_app.command("info", cls=Command)(data_info)
app.add_typer(data_app, name="data", help="List and describe the named data sets.")


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
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error; allowed anywhere.")] = False,
) -> None:
    """Sparse, interpretable codes from deep generative models."""
