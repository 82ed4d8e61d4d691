"""Flags from constructors: the typer option of an argument, and the argument from the text that typer read."""

from __future__ import annotations

import inspect
import typing
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sparsevae.cli.values import members_of, once, parse, schedule, spelling, written

if TYPE_CHECKING:
    from sparsevae.parameters import Parameter


def option_of(p: Parameter, panel: str) -> inspect.Parameter | None:
    """The typer option of a constructor argument: a switch, or a text; None for a type without a text form."""
    flag, text, default = _flag(p), p.help, p.default
    metavar: str | None = spelling(p.type)
    kind: Any = str | None
    if p.limits and not _is_switch(p):
        text += f" ({p.limits})"
    if _is_switch(p):
        flag, kind, metavar = f"{flag}/--no-{flag[2:]}", bool | None, None
        default = default if isinstance(default, bool) else None
    elif _is_table(p):
        kind, metavar = list[str] | None, "KNOB=NAME:VALUE:..."
        text += " One entry per flag: kl_z=cyclical:0:1, kl_z=linear:START:STOP:BEGIN:END."
    elif not metavar:
        return None
    elif default is not None:
        default = written(default)
    option = typer.Option(flag, help=text, metavar=metavar, rich_help_panel=panel)
    return inspect.Parameter(
        p.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option]
    )


def value_of(p: Parameter, given: Any) -> Any:
    """A constructor argument from the text that typer read."""
    try:
        if _is_table(p):
            return once(map(schedule, given)) if given else None
        if given is None and _is_switch(p):
            return p.default
        return parse(given, p.type) if isinstance(given, str) else given
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=f"'{_flag(p)}'") from None


def _flag(p: Parameter) -> str:
    """The flag of a parameter; that of a dict is given once per entry, so its name is in the singular."""
    return "--" + (p.name.removesuffix("s") if _is_table(p) else p.name).replace("_", "-")


def _is_switch(p: Parameter) -> bool:
    return bool in members_of(p.type)


def _is_table(p: Parameter) -> bool:
    return any(typing.get_origin(k) is dict for k in members_of(p.type))
