"""Parameters: a constructor is a table, and everything else reads it.

`@parameters` turns annotated class fields into a keyword-only constructor that stores its arguments verbatim, as
scikit-learn asks: `alpha: Annotated[float, "one sentence of help"] = 0.1`. The docstring's Parameters section, the
command line's flags and the stored configuration all come from these fields.
"""

from __future__ import annotations

import builtins
import collections.abc
import dataclasses
import textwrap
import types
import typing
from collections.abc import Callable, Collection
from typing import Any, NamedTuple, TypeVar, dataclass_transform

import numpy as np

from sparsevae.checks import check_number, shown
from sparsevae.schedules import SCHEDULES

T = TypeVar("T")

_MOST_LAYERS = 1_000


class Parameter(NamedTuple):
    """One constructor argument."""

    name: str
    type: Any
    default: Any
    help: str


@dataclass_transform(kw_only_default=True, field_specifiers=(dataclasses.field,))
def parameters(cls: type[T]) -> type[T]:
    """Give the class its constructor, and its docstring a Parameters section (in place of `{parameters}`).

    What is said of an argument stands in the docstring; the signature has types and defaults, as help and editors show
    them.
    """
    cls = dataclasses.dataclass(kw_only=True, eq=False, repr=False)(cls)
    arguments = documented(cls)
    cls.__init__.__annotations__ = {p.name: p.type for p in arguments} | {"return": None}
    if cls.__doc__ and "{parameters}" in cls.__doc__:
        lines = ["Parameters", "    ----------"]
        for p in arguments:
            lines += [f"    {p.name} : {in_words(p.type)}, default={p.default!r}"]
            lines += [8 * " " + line for line in textwrap.wrap(p.help, 112, break_on_hyphens=False)]
        cls.__doc__ = cls.__doc__.replace("{parameters}", "\n".join(lines))
    for name in [name for name in vars(cls) if name.startswith("set_") and name.endswith("_request")]:
        setattr(cls, name, _Brief(vars(cls)[name], name.removeprefix("set_").removesuffix("_request")))
    return cls


class _Brief:
    """A method that scikit-learn made for metadata routing, without the thirty lines that it says of each."""

    def __init__(self, made: Any, method: str) -> None:
        self.made, self.method = made, method

    def __get__(self, instance: Any, owner: Any) -> Any:
        found = self.made.__get__(instance, owner)
        found.__doc__ = f"What a meta-estimator passes on to `{self.method}`: scikit-learn's metadata routing."
        return found


def in_words(kind: Any) -> str:
    """A type as a docstring spells it.

    >>> in_words(float | None), in_words(tuple[int, ...]), in_words(tuple[float, float]), in_words(dict[str, int])
    ('float or None', 'tuple of int', 'tuple (float, float)', 'dict')
    """
    parts = typing.get_args(kind)
    match typing.get_origin(kind):
        case typing.Union | types.UnionType:
            return " or ".join(map(in_words, parts))
        case builtins.tuple:
            return f"tuple of {in_words(parts[0])}" if ... in parts else f"tuple ({', '.join(map(in_words, parts))})"
        case collections.abc.Callable:
            return "Schedule"
        case origin:
            return "None" if kind is types.NoneType else str((origin or kind).__name__)


def documented(cls: type) -> list[Parameter]:
    """The constructor's arguments, in order, those of base classes first."""
    hints = typing.get_type_hints(cls, include_extras=True)
    found = []
    for f in dataclasses.fields(cls):
        plain, text = typing.get_args(hints[f.name])
        found.append(Parameter(f.name, plain, f.default, text))
    return found


def check_course(name: str, value: Any, expected: str, legal: Callable[[Any], bool], *, also: str = "") -> None:
    """Refuse what is neither a `legal` number nor a schedule that never leaves them, whatever a run's length.

    `expected` says in words which numbers are legal, `also` what else the caller takes.
    """
    if type(value) not in SCHEDULES.values():
        words = (expected, "a schedule of such numbers", *([also] if also else []))
        check_number(name, value, f"{', '.join(words[:-1])} or {words[-1]}", legal)
        return
    try:
        ends = value.ends()
    except (TypeError, ArithmeticError):  # of what is no number, or is none that can be computed with
        raise ValueError(f"{name} must be {expected} all along, got {shown(value)}.") from None
    for reached in ends:
        check_number(name, reached, f"{expected} all along", legal, context=f"{shown(value)}, which comes to ")


def check_choice(name: str, value: Any, choices: Collection[str]) -> None:
    """Refuse what is not one of the names."""
    if not (isinstance(value, str) and value in choices):
        raise ValueError(f"{name} must be one of {', '.join(choices)}; got {value!r}.")


def check_weight(name: str, value: Any) -> None:
    """Refuse what is no weight of a term; None leaves it to the kind of data."""
    if value is not None:
        check_number(name, value, "a number, 0 or above, or None", lambda w: w >= 0)


def check_flag(name: str, value: Any) -> None:
    """Refuse what is neither True nor False."""
    if np.ndim(value) or value not in (True, False):
        raise ValueError(f"{name} must be True or False, got {value!r}.")


def check_caps(caps: Any) -> None:
    """Refuse what is no sequence of numbers of units."""
    if not (isinstance(caps, Collection) and np.iterable(caps)):  # array(3) is a Collection too
        raise ValueError(f"caps must be a sequence of integers, such as (1, 2, 5, 10), or (5,); got {caps!r}.")
    for cap in caps:
        check_number("a cap", cap, "an integer above 0", lambda c: c > 0, whole=True)


def check_sizes(name: str, sizes: Any, *, empty: bool = False) -> None:
    """Refuse what is no tuple of layer sizes."""
    if not (isinstance(sizes, (tuple, list)) and (empty or len(sizes))):
        raise ValueError(f"{name} must be a tuple of layer sizes, such as (400,); got {sizes!r}.")
    if len(sizes) > _MOST_LAYERS:
        raise ValueError(f"{name} must be the sizes of {_MOST_LAYERS:,} layers at most; got {len(sizes):,}.")
    for size in sizes:
        check_number(name, size, "layer sizes above 0, such as (400,)", lambda n: n > 0, whole=True)


def check_units(units: Any, n: int) -> np.ndarray[Any, Any]:
    """The numbers of some of a code's n units, in the order given: from integers, or from a mask of n booleans."""
    try:
        which = np.asarray(units if hasattr(units, "__array__") or isinstance(units, str) else list(units))
    except (TypeError, ValueError):  # no sequence at all, or a ragged one
        which = np.zeros(())
    if which.dtype == np.bool_ and which.shape == (n,):
        return np.flatnonzero(which)
    if which.shape == (0,):
        return np.zeros(0, np.int64)  # a list of nothing has no type of its own
    if which.ndim != 1 or which.dtype.kind not in "iu" or which.min() < 0 or which.max() >= n:
        raise ValueError(
            f"units must be a list of integers from 0 to {n - 1}, or a mask of {n} booleans; got {units!r}."
        )
    return which.astype(np.int64)
