"""Parameters of constructors: one table of fields with their types, ranges and help texts.

`@parameters` converts annotated class fields to a keyword-only constructor that stores its arguments verbatim, as
scikit-learn requires: `alpha: Annotated[float | None, In(0, 1, "(]"), "one sentence of help"] = None`. The Parameters
section of the docstring, the checks of values, the flags of the command line and the stored configuration are all
generated from these fields.
"""

from __future__ import annotations

import builtins
import collections.abc
import dataclasses
import textwrap
import types
import typing
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple, TypeVar, dataclass_transform

import numpy as np

from sparsevae.checks import POSITIVE, In, Note, OneOf, shown
from sparsevae.schedules import SCHEDULES, Schedule

T = TypeVar("T")
Rule = In | OneOf | Note

_MOST_ENTRIES = 1_000  # of a tuple of any length


class Parameter(NamedTuple):
    """One constructor argument."""

    name: str
    type: Any
    default: Any
    help: str
    rules: tuple[Rule, ...] = ()

    @property
    def limits(self) -> str:
        """Its range and choices for the help of the command line, such as "in [0, 1); cv"."""
        return "; ".join(filter(None, (str(rule) for rule in self.rules if not isinstance(rule, Note))))


@dataclass_transform(kw_only_default=True, field_specifiers=(dataclasses.field,))
def parameters(cls: type[T]) -> type[T]:
    """Generate the constructor of a class, and the sections `{parameters}` and `{attributes}` of its docstring.

    The help texts are in the docstring; the signature has types and defaults only.
    """
    cls = dataclasses.dataclass(kw_only=True, eq=False, repr=False)(cls)
    arguments = documented(cls)
    cls.__init__.__annotations__ = {p.name: p.type for p in arguments} | {"return": None}
    given = ((p.name, f"{spelled(p.type, p.rules)}, default={p.default!r}", p.help) for p in arguments)
    learned = ((name, f"{kind}, {text}", "") for name, (kind, text) in _attributes(cls).items())
    for title, entries in {"Parameters": given, "Attributes": learned}.items():
        lines = [title, "    ----------"]
        for name, kind, text in entries:
            lines += [f"    {name} : {kind}"]
            lines += [8 * " " + line for line in textwrap.wrap(text, 112, break_on_hyphens=False)]
        cls.__doc__ = (cls.__doc__ or "").replace(f"{{{title.lower()}}}", "\n".join(lines))
    for name in [name for name in vars(cls) if name.startswith("set_") and name.endswith("_request")]:
        setattr(cls, name, _Brief(vars(cls)[name], name.removeprefix("set_").removesuffix("_request")))
    return cls


def _attributes(cls: type) -> dict[str, tuple[str, str]]:
    """The learned attributes in the tables `attributes` of a class and its bases: name -> type, sentence."""
    found: dict[str, tuple[str, str]] = {}
    for base in reversed(cls.__mro__):
        found |= vars(base).get("attributes", {})
    return found


class _Brief:
    """A method of scikit-learn for metadata routing, with a docstring of one line in place of thirty."""

    def __init__(self, made: Any, method: str) -> None:
        self.made, self.method = made, method

    def __get__(self, instance: Any, owner: Any) -> Any:
        found = self.made.__get__(instance, owner)
        found.__doc__ = f"Set the metadata that a meta-estimator passes to `{self.method}` (scikit-learn's routing)."
        return found


def spelled(kind: Any, rules: Sequence[Rule] = (), *, full: bool = False) -> str:
    """The description of a type and its range in a docstring, or the longer one of a message if `full`.

    >>> spelled(float | None, [In(0, 1, "(]")]), spelled(tuple[int, ...], [POSITIVE]), spelled(str, [OneOf("a", "b")])
    ('float in (0, 1] or None', 'tuple of int > 0', "'a' or 'b'")
    >>> spelled(float | Schedule | None, [In(0)], full=True)
    'a number, 0 or above, a schedule of such numbers, or None'
    """
    kinds, ranges, words = _members(kind), _ranges(rules), []
    choices = [repr(choice) for rule in rules if isinstance(rule, OneOf) for choice in rule.choices]
    numbers = int in kinds or float in kinds
    if numbers:
        words.append(ranges[0].spelled(whole=float not in kinds, full=full))
    for member in kinds:
        parts, article = typing.get_args(member), "a " if full else ""
        match typing.get_origin(member) or member:
            case builtins.int | builtins.float | types.NoneType:
                pass
            case builtins.str:
                words += [] if choices else [f"{article}str"]
            case builtins.bool:
                words += ["True", "False"] if full else ["bool"]
            case builtins.tuple if ... in parts:
                words.append(f"{article}tuple of {spelled(parts[0], ranges)}")
            case builtins.tuple:
                places = (spelled(part, [ranges[i % len(ranges)]]) for i, part in enumerate(parts))
                words.append(f"{article}tuple ({', '.join(places)})")
            case builtins.dict:
                words.append(f"{article}dict of {spelled(parts[1])}")
            case collections.abc.Callable:
                words.append(f"a schedule{' of such numbers' * numbers}" if full else "Schedule")
            case origin:
                words.append(f"{article}{origin.__name__}")
    words += choices + ["None"] * (types.NoneType in kinds)
    last = ", or " if full and any("," in word for word in words[:-1]) else " or "
    found = last.join(filter(None, (", ".join(words[:-1]), words[-1])))
    return " ".join([found, *(f"({rule.text})" for rule in rules if full and isinstance(rule, Note))])


def _members(kind: Any) -> tuple[Any, ...]:
    return typing.get_args(kind) if typing.get_origin(kind) in (typing.Union, types.UnionType) else (kind,)


def _ranges(rules: Sequence[Rule]) -> list[In]:
    """The intervals among the rules: the first is for a number, entry i of a tuple has interval i modulo their number.

    Without an interval every number is legal.
    """
    return [rule for rule in rules if isinstance(rule, In)] or [In()]


@cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls, include_extras=True)


def documented(cls: type) -> list[Parameter]:
    """The arguments of the constructor, in order, those of base classes first."""
    found, hints = [], _hints(cls)
    for f in sorted(dataclasses.fields(cls), key=lambda f: f.kw_only is True):  # positional ones first
        plain, *rules, text = typing.get_args(hints[f.name])
        found.append(Parameter(f.name, plain, f.default, text, tuple(rules)))
    return found


def check_parameters(table: Any, prefix: str = "") -> None:
    """Refuse field values that are not of the type and in the range of their annotation."""
    for p in documented(type(table)):
        check_value(prefix + p.name, getattr(table, p.name), p.type, p.rules)


def check_value(name: str, value: Any, kind: Any, rules: Sequence[Rule] = ()) -> None:
    """Refuse a value that is not of a type and in its range; the message describes both.

    A schedule of numbers must be in the range at every step, for every length of the run.
    """
    kinds, ranges = _members(kind), _ranges(rules)
    chosen = [rule for rule in rules if isinstance(rule, OneOf)]
    if any(value in rule for rule in chosen) or any(
        _is(value, member) for member in kinds if not (member is str and chosen)
    ):
        return
    expected = spelled(kind, rules, full=True)
    for parts in (typing.get_args(member) for member in kinds if typing.get_origin(member) is tuple):
        if isinstance(value, (tuple, list)) and (... in parts or len(parts) == len(value)):
            if len(value) > _MOST_ENTRIES:
                raise ValueError(f"{name} must have at most {_MOST_ENTRIES:,} entries, got {len(value):,}.")
            for i, entry in enumerate(value):
                check_value(f"{name}[{i}]", entry, parts[0], [ranges[i % len(ranges)]])
            return
    if Schedule in kinds and type(value) in SCHEDULES.values():
        return _check_course(name, value, ranges[0])
    if int in kinds or float in kinds:
        return ranges[0].check(name, value, expected, whole=float not in kinds)
    raise ValueError(f"{name} must be {expected}, got {shown(value)}.")


def _is(value: Any, kind: Any) -> bool:
    """True for a value of a type without a range; False for numbers, tuples and schedules, checked separately."""
    origin = typing.get_origin(kind) or kind
    if origin in (int, float, tuple, collections.abc.Callable):
        return False
    instances: dict[Any, Any] = {bool: (bool, np.bool_), dict: Mapping}
    return isinstance(value, instances.get(origin, origin))


def _check_course(name: str, course: Any, legal: In) -> None:
    """Refuse a schedule with values outside of the range, or whose arguments are not numbers."""
    expected = f"{legal.spelled(full=True)} all along"
    try:
        ends = course.ends()
    except (TypeError, ArithmeticError):
        raise ValueError(f"{name} must be {expected}, got {shown(course)}.") from None
    for reached in ends:
        legal.check(name, reached, expected, context=f"{shown(course)}, which comes to ")


def check_caps(caps: Any) -> None:
    """Refuse what is not a sequence of integers above 0."""
    if not (isinstance(caps, Collection) and np.iterable(caps)):  # array(3) is a Collection too
        raise ValueError(f"caps must be a sequence of integers, such as (1, 2, 5, 10), or (5,); got {caps!r}.")
    for cap in caps:
        POSITIVE.check("a cap", cap, whole=True)


def check_units(units: Any, n: int) -> np.ndarray[Any, Any]:
    """The indices of units of a code of n units, in the given order, from integers or from a mask of n booleans."""
    try:
        which = np.asarray(units if hasattr(units, "__array__") or isinstance(units, str) else list(units))
    except (TypeError, ValueError):  # no sequence at all, or a ragged one
        which = np.zeros(())
    if which.dtype == np.bool_ and which.shape == (n,):
        return np.flatnonzero(which)
    if which.shape == (0,):
        return np.zeros(0, np.int64)  # an empty list is an array of floats
    if which.ndim != 1 or which.dtype.kind not in "iu" or which.min() < 0 or which.max() >= n:
        raise ValueError(
            f"units must be a list of integers from 0 to {n - 1}, or a mask of {n} booleans; got {units!r}."
        )
    return which.astype(np.int64)
