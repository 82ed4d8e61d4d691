"""The classes of all commands and groups of commands: plain help, and errors that name their command."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from sparsevae.messages import note

UsageError: Any = typer.BadParameter.__base__  # typer's own or click's, depending on the version of typer

# Plain help: rich's panels cut off long flags on a narrow terminal.
STYLE: dict[str, Any] = {"rich_markup_mode": None, "context_settings": {"help_option_names": ["-h", "--help"]}}


class Command(TyperCommand):
    """A command whose help lists flags under their panels, and whose errors name it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        with _known(ctx):
            return super().parse_args(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        panels: dict[str, list[tuple[str, str]]] = {}
        for p in self.get_params(ctx):
            if line := p.get_help_record(ctx):
                panel = "Arguments" if p.param_type_name == "argument" else "Options"
                panels.setdefault(getattr(p, "rich_help_panel", None) or panel, []).append(line)
        for panel, lines in panels.items():
            with formatter.section(panel):
                formatter.write_dl(lines)


class Group(TyperGroup):
    """Commands under one name; without a command it prints its help."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args:
            note(ctx.get_help())
            raise typer.Exit(2)
        with _known(ctx):
            return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if self.get_command(ctx, args[0]) is None:
            from sparsevae.exceptions import unknown

            raise UsageError(unknown("command", args[0], self.list_commands(ctx)), ctx)
        return super().resolve_command(ctx, args)


def stopped(stop: BaseException) -> typer.Exit:
    """The exception that ends a command stopped by Ctrl-C (KeyboardInterrupt) or SIGTERM (SystemExit)."""
    return typer.Exit(130 if isinstance(stop, KeyboardInterrupt) else 143)


@contextmanager
def _known(ctx: Any) -> Iterator[None]:
    """Add the command to errors of its parser that lack one."""
    try:
        yield
    except UsageError as error:
        error.ctx = error.ctx or ctx
        raise
