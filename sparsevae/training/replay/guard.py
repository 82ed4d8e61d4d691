"""What a step changes beside its loss and gradients: repeated operations come without the Python that made them.

A `Guard` compares the values that the modules of a step have: their own attributes and those of their classes, and the
variables that their methods and terms name, of the module or function around them. Values are compared in the form that
pickle gives them, however deeply nested, and tensors and generators are no part of that form. What has no such form (a
lock, an open file) is compared by identity.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from io import BytesIO
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, ModuleType, NoneType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from sparsevae.training.torch_internals import REGISTERED

ALONE = threading.RLock()
"""For what reads or changes what all modules of the process share: one thread at a time."""
_DATA = (int, float, complex, str, bytes, list, dict, set, tuple)  # what is compared outside of the modules themselves
_SIMPLE = {NoneType, bool, *_DATA[:5]}
_BY_NAME = (type, FunctionType, BuiltinFunctionType, ModuleType)
_PROTOCOL = 4  # of pickle: 5 refers to the memory of arrays
_LONGEST = 60  # characters of a value in a message


class _Place(NamedTuple):
    """Where values are kept by name. If `registered`, tensors are compared by identity, else not at all."""

    label: str
    read: Callable[[], dict[str, Any]]
    write: Callable[[str, Any], object]
    remove: Callable[[str], object]
    registered: bool = False


class _Value(pickle.Pickler):
    """A value as it is now: `form` is what it is compared by, `kept` are objects in it that the form only numbers."""

    def __init__(self, value: Any, known: set[int], registered: bool) -> None:
        super().__init__(file := BytesIO(), _PROTOCOL)
        self.value, self.kept = value, list[Any]()
        self._known, self._registered, self._numbers = known, registered, dict[int, int]()
        self.dump(value)
        self.form = file.getvalue()

    def persistent_id(self, value: Any) -> tuple[int, int] | None:
        if type(value) in _SIMPLE:
            return None
        apart = isinstance(value, (Tensor, torch.Generator))
        if not (apart or isinstance(value, _BY_NAME) or id(value) in self._known or not _reducible(value)):
            return None
        if id(value) not in self._numbers:
            self._numbers[id(value)] = len(self.kept)
            self.kept.append(value)
        return self._numbers[id(value)], 0 if apart and not self._registered else id(value)

    def same(self, other: _Value) -> bool:
        """Whether it is the very same object, of the same form and with the same tensors in it."""
        alike = self.value is other.value and self.form == other.form and len(self.kept) == len(other.kept)
        return alike and all(a is b for a, b in zip(self.kept, other.kept, strict=True))

    def restored(self) -> Any:
        """The value as it was: lists, dicts and sets are the same objects with their contents put back."""
        reader = pickle.Unpickler(BytesIO(self.form))
        reader.persistent_load = lambda pid: self.kept[pid[0]]  # type: ignore[method-assign]
        value, copy = self.value, reader.load()
        if isinstance(value, list):
            value[:] = copy
        elif isinstance(value, (dict, set)):
            value.clear()
            value.update(copy)
        else:
            return copy
        return value


def _reducible(value: Any) -> bool:
    with suppress(Exception):  # whatever a class of the user's own raises
        value.__reduce_ex__(_PROTOCOL)
        return True
    return False


class Guard:
    """Watches the modules of a step: the parts and all modules in them."""

    def __init__(self, parts: Mapping[str, nn.Module]) -> None:
        modules = {
            f"{part}.{path}".rstrip("."): m for part, whole in parts.items() for path, m in whole.named_modules()
        }
        self._known = {id(m) for m in modules.values()}
        self._places = [*_of_modules(modules), *_of_functions(modules.values())]
        self._tensors: dict[str, Tensor | torch.Generator] = {}

    def _values(self) -> dict[tuple[int, str], _Value]:
        return {
            (i, name): _Value(value, self._known, place.registered)
            for i, place in enumerate(self._places)
            for name, value in place.read().items()
        }

    @contextmanager
    def watch(self) -> Iterator[list[str]]:
        """A list that names what was changed within, once this ends; all of it is then undone.

        Undone is what modules and the variables above have or refer to, and torch's global random state. What Python
        keeps elsewhere stays as the step left it.
        """
        with ALONE:
            before, changed = self._values(), list[str]()
            self._tensors = {
                f"{self._places[i].label}.{name}" + f"[{number}]" * bool(number): kept
                for (i, name), value in before.items()
                for number, kept in enumerate(value.kept)
                if isinstance(kept, (Tensor, torch.Generator))
            }
            with self.preserve_tensors():
                try:
                    yield changed
                finally:
                    changed += self._undo(before)

    @contextmanager
    def preserve_tensors(self) -> Iterator[dict[str, Tensor]]:
        """New contents of the tensors that were written to within, once this ends; the old ones are then put back.

        The tensors are those that modules had when they were last watched; torch's global random state is another.
        """
        before = {
            name: t.get_state() if isinstance(t, torch.Generator) else t.detach().clone()
            for name, t in self._tensors.items()
        }
        written = dict[str, Tensor]()
        with torch.random.fork_rng(devices=[]):
            try:
                yield written
            finally:
                for name, tensor in self._tensors.items():
                    if isinstance(tensor, torch.Generator):
                        tensor.set_state(before[name])
                    elif not torch.equal(tensor, before[name]):
                        written[name] = tensor.detach().clone()
                        tensor.detach().copy_(before[name])

    def _undo(self, before: dict[tuple[int, str], _Value]) -> Iterator[str]:
        """Write the values of before back; yields a description of each that was another."""
        now = self._values()
        for i, name in before | now:
            place, old, new = self._places[i], before.get((i, name)), now.get((i, name))
            is_, was = "nothing" if new is None else _shown(new.value), "nothing"
            if old is None:
                place.remove(name)
            elif new is None or not new.same(old):
                place.write(name, value := old.restored())
                was = _shown(value)
            if old is None or new is None or new.form != old.form:
                yield f"{place.label}.{name} (from {was} to {is_})"


def _shown(value: Any) -> str:
    text = repr(value) if isinstance(value, _DATA) else f"a {type(value).__name__}"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."


def _of_modules(modules: Mapping[str, nn.Module]) -> Iterator[_Place]:
    """Attributes of modules, and of their classes."""
    for path, m in modules.items():
        own = vars(m)

        def attributes(own: dict[str, Any] = own) -> dict[str, Any]:
            return {name: value for name, value in own.items() if name not in REGISTERED}

        def registered(own: dict[str, Any] = own) -> dict[str, Any]:
            return {name: value for kind in REGISTERED for name, value in own.get(kind, {}).items()}

        yield _Place(path, attributes, own.__setitem__, own.pop)
        yield _Place(path, registered, partial(setattr, m), partial(delattr, m), True)
    for c in _classes(modules.values()):

        def data(c: type = c) -> dict[str, Any]:
            return _data(vars(c))

        yield _Place(c.__qualname__, data, partial(setattr, c), partial(delattr, c))


def _of_functions(modules: Iterable[nn.Module]) -> Iterator[_Place]:
    """Variables that methods and terms of modules name, of their file and of a function around them."""
    values = [v for owner in (*_classes(modules), *modules) for v in vars(owner).values()]
    functions = {f: None for v in values for f in (v if type(v) is tuple else [v]) if isinstance(f, FunctionType)}
    spaces = dict[int, tuple[dict[str, Any], set[str]]]()
    for function in functions:
        space = function.__globals__
        spaces.setdefault(id(space), (space, set()))[1].update(_names(function.__code__))
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            read, write = partial(_contents, name, cell), partial(_fill, cell)
            yield _Place(function.__qualname__, read, write, write)
    for space, names in spaces.values():

        def named(space: dict[str, Any] = space, names: set[str] = names) -> dict[str, Any]:
            return _data({name: space[name] for name in names if name in space})

        yield _Place(str(space.get("__name__")), named, space.__setitem__, space.pop)


def _classes(modules: Iterable[nn.Module]) -> list[type]:
    return list({c: None for m in modules for c in type(m).__mro__ if c is not object})


def _contents(name: str, cell: CellType) -> dict[str, Any]:
    with suppress(ValueError):  # a variable without a value
        return _data({name: cell.cell_contents})
    return {}


def _fill(cell: CellType, _: str, value: Any = None) -> None:
    cell.cell_contents = value


def _data(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if isinstance(value, _DATA) and not name.startswith("__")}


def _names(code: CodeType) -> Iterator[str]:
    """Names that code and the functions within it use."""
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names(inner)
