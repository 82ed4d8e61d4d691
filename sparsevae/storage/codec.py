"""Conversion of values to strict JSON and back, for models, checkpoints and histories, with bounds on their size."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import re
import reprlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from safetensors import SafetensorError

from sparsevae.exceptions import StorageError
from sparsevae.schedules import SCHEDULES
from sparsevae.text.vocabulary import Vocabulary

PathLike = str | os.PathLike[str]
_MAX_DEPTH = 50  # far below the recursion limit: every value that is saved can be loaded
MAX_HEADER = 2**26  # bytes of JSON; its values take ten times as much memory, and safetensors reads at most 1e8
_MAX_LISTS = 2**20  # lists and dicts in the JSON; an empty one is 2 bytes of JSON and 64 bytes of memory
_STRINGS = re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)  # of JSON; linear in the length of the text
_MAX_ARRAY = 2**28  # bytes of an array
_ARRAYS = "biufUO"  # numpy's kinds of arrays: numbers, strings, objects that are either
_SCALARS = (str, int, float, type(None))
_OBJECTS: dict[str, Any] = {**SCHEDULES, "Vocabulary": Vocabulary}
_FLOATS = {repr(value): value for value in (math.nan, math.inf, -math.inf)}
DAMAGE = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RuntimeError, AssertionError)


@contextlib.contextmanager
def reading(source: PathLike, expected: str) -> Iterator[None]:
    """Convert errors that damaged values cause into a StorageError that names the file."""
    try:
        yield
    except StorageError:
        raise
    except (*DAMAGE, SafetensorError) as error:
        raise damaged(source, expected, line_of(error)) from error


def line_of(error: Exception) -> str:
    """The message of an error on one line of at most 300 characters."""
    text = " ".join(str(error)[:1000].split())
    return f"{text[:300]} ..." if len(text) > 300 else text or type(error).__name__


def parse(text: bytes, source: PathLike) -> Any:
    """Decode the JSON of a file, the inverse of `encode`; a StorageError if it is not JSON."""
    with reading(source, "JSON"):
        return decode(loads(text, source))


def loads(text: bytes, source: PathLike) -> Any:
    """Parse the JSON of a file after `check_json`."""
    with reading(source, "JSON"):
        check_json(plain := text.decode(), source)
        return json.loads(plain)


def check_json(text: str, source: PathLike, size: int | None = None) -> None:
    """Refuse JSON that takes much memory, or whose nesting exceeds the recursion limit of a parser."""
    marks = np.frombuffer(_STRINGS.sub("", text).encode("ascii", "replace"), np.uint8)
    opens = (marks == ord("[")) | (marks == ord("{"))
    closes = (marks == ord("]")) | (marks == ord("}"))
    depth = int(np.cumsum(opens.astype(np.int32) - closes).max(initial=0))
    for most, came, what in (
        (MAX_HEADER, len(text) if size is None else size, "bytes"),
        (_MAX_LISTS, int(opens.sum()), "lists and dicts"),
        (_MAX_DEPTH + 5, depth, "levels of nesting"),
    ):
        if came > most:
            advice = "store long lists as tensors" if source == "meta" else "restore it from a copy, or save it again"
            raise StorageError(f"{source} takes over {most:,} {what} as JSON; {advice}")


def damaged(source: PathLike, expected: str, came: str) -> StorageError:
    """The error for a file whose content differs from any that is saved."""
    advice = "restore it from a copy, or save it again"
    return StorageError(f"{source} is incomplete or was changed: expected {expected}, got {came}; {advice}")


def encode(value: Any, where: str, depth: int = 0) -> Any:
    """Convert a value to strict JSON; a TypeError names the place of a value of another type.

    str, int, float, bool, None, lists and dicts with str keys are JSON themselves; numpy scalars become numbers and
    paths strings. Others become a dict of one key that begins with "$": nan and inf, tuples, 1-d arrays, schedules and
    vocabularies. A key of a user's dict that begins with "$" gets a second "$".
    """
    if depth > _MAX_DEPTH:
        raise TypeError(f"{where}: nested more than {_MAX_DEPTH} deep, or within itself; flatten it")
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        value = value.item()
    kind = type(value)
    if kind is float and not math.isfinite(value):
        return {"$float": repr(value)}
    if value is None or kind in (str, int, float, bool):
        return value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if kind in (list, tuple):
        items = [encode(item, f"{where}[{i}]", depth + 1) for i, item in enumerate(value)]
        return items if kind is list else {"$tuple": items}
    if isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind in _ARRAYS:
        items = value.tolist()
        if all(isinstance(item, _SCALARS) for item in items):
            return {"$array": {"dtype": value.dtype.str, "values": encode(items, where, depth + 1)}}
    if isinstance(value, Mapping):
        if wrong := [key for key in value if type(key) is not str]:
            raise TypeError(f"{where}: expected str keys, got {wrong[0]!r}; convert it with str()")
        escaped = {key: "$" + key if key.startswith("$") else key for key in value}
        return {escaped[key]: encode(item, f"{where}.{key}", depth + 1) for key, item in value.items()}
    if _OBJECTS.get(kind.__name__) is kind:
        own = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.init}
        return {f"${kind.__name__}": encode(own, where, depth + 1)}
    raise TypeError(
        f"{where} holds a {kind.__name__}, which cannot be stored without running code; use numbers, strings, lists, "
        f"tuples, dicts, 1-d arrays or one of the schedules {', '.join(SCHEDULES)}."
    )


def decode(plain: Any) -> Any:
    """The inverse of `encode`; it creates objects of the classes in a fixed table only."""
    if isinstance(plain, list):
        return [decode(item) for item in plain]
    if not isinstance(plain, dict):
        return plain
    if len(plain) == 1 and (tag := next(iter(plain))).startswith("$") and not tag.startswith("$$"):
        return _decode_tagged(tag[1:], plain[tag])
    return {key.removeprefix("$"): decode(item) for key, item in plain.items()}


def _decode_tagged(name: str, content: Any) -> Any:
    match name:
        case "float":
            return _FLOATS[content]
        case "tuple":
            return tuple(decode(item) for item in content)
        case "array":
            return array_of(content["values"], content["dtype"])
    if name not in _OBJECTS:
        raise ValueError(f"a {name[:50]!r}, which this version cannot read; a later one may")
    return _OBJECTS[name](**decode(content))


def array_of(values: Any, dtype: Any) -> Any:
    """A stored array, (n,), of numbers or strings, after a check of its size: a dtype can have any item size."""
    kind, items = np.dtype(str(dtype)), decode(values)
    single = isinstance(items, list) and all(isinstance(item, _SCALARS) for item in items)
    if kind.kind not in _ARRAYS or not single or not 0 < kind.itemsize <= _MAX_ARRAY // max(1, len(items)):
        raise ValueError(f"an array of type {dtype!r} with values {reprlib.repr(items)}")
    return np.array(items, dtype=kind)
