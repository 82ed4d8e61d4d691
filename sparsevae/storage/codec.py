"""Plain values to strict JSON and back, and what is refused before it is read."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
from safetensors import SafetensorError

from sparsevae.exceptions import StorageError

PathLike = str | os.PathLike[str]
_MAX_DEPTH = 50  # far below the recursion limit: what could be saved can be loaded
MAX_HEADER = 2**26  # bytes of JSON; it takes ten times as much as values, and safetensors reads no more than 1e8
_MAX_LISTS = 2**20  # lists and dicts in it; an empty one takes 64 bytes and is written in 2
_STRINGS = re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)  # of JSON; each character is looked at once
_FLOATS = {repr(value): value for value in (math.nan, math.inf, -math.inf)}
DAMAGE = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RuntimeError, AssertionError)


@contextlib.contextmanager
def reading(source: PathLike, expected: str) -> Iterator[None]:
    """Any error that stored values cause here becomes a StorageError that names their file."""
    try:
        yield
    except StorageError:
        raise
    except (*DAMAGE, SafetensorError) as error:
        raise damaged(source, expected, line_of(error)) from error


def line_of(error: Exception) -> str:
    """What an error says, in one line of bounded length."""
    text = " ".join(str(error)[:1000].split())
    return f"{text[:300]} ..." if len(text) > 300 else text or type(error).__name__


def parse(text: bytes, source: PathLike) -> Any:
    """The values that `encode` was given, from their JSON in a file; a StorageError where it holds none."""
    with reading(source, "JSON"):
        return decode(loads(text, source))


def loads(text: bytes, source: PathLike) -> Any:
    """JSON that was looked at before it is made into values."""
    with reading(source, "JSON"):
        check_json(plain := text.decode(), source)
        return json.loads(plain)


def check_json(text: str, source: PathLike, size: int | None = None) -> None:
    """Refuse what would take much memory, or is nested so deep that a reader would run out of stack."""
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
    """The error for what nobody saved like this."""
    advice = "restore it from a copy, or save it again"
    return StorageError(f"{source} is incomplete or was changed: expected {expected}, got {came}; {advice}")


def encode(value: Any, where: str, depth: int = 0) -> Any:
    """Plain values to strict JSON. Only the exact types: a subclass would not come back as what it was."""
    kind = type(value)
    if depth > _MAX_DEPTH:
        raise TypeError(f"{where}: nested more than {_MAX_DEPTH} deep, or within itself; flatten it")
    if kind is float and not math.isfinite(value):
        return {"$float": repr(value)}
    if value is None or kind in (str, int, float, bool):
        return value
    if kind is list:
        return [encode(item, f"{where}[{i}]", depth + 1) for i, item in enumerate(value)]
    if kind is dict:
        if wrong := [key for key in value if type(key) is not str]:
            raise TypeError(f"{where}: expected str keys, got {wrong[0]!r}; convert it with str()")
        escaped = {key: "$" + key if key.startswith("$") else key for key in value}
        return {escaped[key]: encode(item, f"{where}.{key}", depth + 1) for key, item in value.items()}
    came, advice = f"{kind.__module__}.{kind.__qualname__}", "list() for tuples, .item() for numpy scalars"
    raise TypeError(f"{where}: expected str, int, float, bool, None, list or dict, got {came}; use {advice}")


def decode(value: Any) -> Any:
    """What `encode` was given, from its JSON."""
    if isinstance(value, list):
        return [decode(item) for item in value]
    if isinstance(value, dict) and value.keys() == {"$float"}:
        return _FLOATS[value["$float"]]
    if isinstance(value, dict):
        return {key.removeprefix("$"): decode(item) for key, item in value.items()}
    return value
