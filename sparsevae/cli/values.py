"""Values in flags: how help spells a type, how a text becomes a value, how a default is written."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

_SPELLED = {int: "INT", float: "FLOAT", str: "TEXT"}  # in the order in which a union's members are tried


def members_of(kind: Any) -> list[Any]:
    """The members of a union, numbers first and str last, since every text is a str; any other type alone."""
    if typing.get_origin(kind) not in (typing.Union, types.UnionType):
        return [kind]
    parts = typing.get_args(kind)
    plain = [k for k in _SPELLED if k in parts]
    return [*(k for k in plain if k is not str), *(k for k in parts if k not in plain), *(k for k in plain if k is str)]


def spelling(kind: Any) -> str:
    """The metavar of a flag of this type; empty for a type without a text form.

    >>> spelling(int | float | None), spelling(tuple[int, ...]), spelling(object)
    ('INT|FLOAT', 'INT,...', '')
    >>> from sparsevae.schedules import Schedule
    >>> spelling(float | Schedule)
    'FLOAT|NAME:VALUE:...'
    """
    if typing.get_origin(kind) is Callable:  # a schedule
        return "NAME:VALUE:..."
    if typing.get_origin(kind) is tuple:
        return ",".join("..." if k is Ellipsis else spelling(k) for k in typing.get_args(kind))
    if (members := members_of(kind)) != [kind]:
        return "|".join(filter(None, map(spelling, members)))
    return _SPELLED.get(kind, "")


def parse(text: str, kind: Any) -> Any:
    """A flag's text as a value of a constructor's type: numbers, strings, lists with commas, "none" if None is allowed.

    >>> parse("400,200", tuple[int, ...]), parse("none", int | None), parse("0.2", int | float)
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
                return tuple(map(parse, words, kinds))
    elif types.NoneType in parts and text.lower() == "none":
        return None
    else:
        for member in filter(spelling, members_of(kind)):
            with suppress(ValueError):
                return member(text) if member in _SPELLED else parse(text, member)
    raise ValueError(f"expected {spelling(kind)}, got {text!r}")


def schedule(text: str) -> tuple[str, Any]:
    """The name of a knob and its schedule.

    >>> schedule("kl_z=linear:0:1:0:0.2")
    ('kl_z', Linear(start=0.0, stop=1.0, begin=0, end=0.2))
    """
    knob, _, course = text.partition("=")
    return knob, _course(course)


def once(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Names and values of a repeatable flag as a dict; a ValueError if a name is given twice.

    >>> once([("n", "3"), ("n", "4")])
    Traceback (most recent call last):
    ValueError: expected one value for 'n', got '3' and '4'
    """
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"expected one value for {name!r}, got {found[name]!r} and {value!r}")
        found[name] = value
    return found


def _course(text: str) -> Any:
    """A schedule from its name and its arguments, separated by colons."""
    from sparsevae.exceptions import unknown
    from sparsevae.schedules import SCHEDULES

    known = {name.lower(): schedule for name, schedule in SCHEDULES.items()}
    word, *words = text.lower().split(":")
    if word not in known:
        raise ValueError(unknown("schedule", word, known))
    hints = typing.get_type_hints(known[word])
    try:
        if len(words) > len(hints):
            raise TypeError
        return known[word](*(parse(w, kind) for w, kind in zip(words, hints.values(), strict=False)))
    except TypeError:  # an argument is missing, or one too many
        raise ValueError(f"{word} takes {':'.join(hints)}, got {text!r}") from None


def written(default: Any) -> str:
    """A default in the form in which a flag is given.

    >>> from sparsevae.schedules import Linear
    >>> written((1, 2)), written(Linear(1.0, 5.0)), written(0.5)
    ('1,2', 'linear:1.0:5.0:0:1.0', '0.5')
    """
    if isinstance(default, tuple):
        return ",".join(map(str, default))
    if dataclasses.is_dataclass(default):
        fields = (getattr(default, f.name) for f in dataclasses.fields(default))
        return ":".join(map(str, (type(default).__name__.lower(), *fields)))
    return str(default)
