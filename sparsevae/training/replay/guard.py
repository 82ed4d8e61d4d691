"""What one step changes besides its loss and gradients.

A step that is repeated from a list of tensor operations runs no Python. `Guard` compares the attributes of the modules
before and after a step, restores them, and restores the contents of their tensors.
"""

from __future__ import annotations

import dis
import pickle
import reprlib
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from io import BytesIO
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor, nn

from sparsevae.training.torch_internals import REGISTERED

ALONE = threading.RLock()
"""Acquired while code reads or changes state that all modules of the process share: one thread at a time."""
_ASSIGN = "STORE_GLOBAL"
_PLAIN = {type(None), bool, int, float, str, list, dict, set, tuple}  # always picklable


class _Form(pickle.Pickler):
    """The pickled form of a value as it is now.

    Known objects (modules, registered tensors) and what cannot be pickled (a lock, a function, a class) are compared by
    identity. Other tensors and generators are not compared.
    """

    def __init__(self, value: Any, known: set[int]) -> None:
        super().__init__(file := BytesIO(), protocol=4)  # protocol 5 would refer to the memory of arrays
        self.value = value
        self.objects: list[Any] = []
        self._known = known
        self.dump(value)
        self.form = file.getvalue()

    def persistent_id(self, value: Any) -> tuple[int, int] | None:
        known, tensor = id(value) in self._known, isinstance(value, (Tensor, torch.Generator))
        if not (known or tensor) and (type(value) in _PLAIN or _reducible(value)):
            return None
        self.objects.append(value)
        return len(self.objects) - 1, 0 if tensor and not known else id(value)

    def same(self, other: _Form) -> bool:
        """True if the forms are equal and all objects in them, tensors too, are identical."""
        pairs = zip(self.objects, other.objects, strict=False)
        return self.form == other.form and all(a is b for a, b in pairs)

    def copy(self) -> Any:
        """A copy of the value as it was; objects compared by identity are not copied."""
        reader = pickle.Unpickler(BytesIO(self.form))
        reader.persistent_load = lambda pid: self.objects[pid[0]]  # type: ignore[method-assign]
        return reader.load()


def _reducible(value: Any) -> bool:
    with suppress(Exception):  # a user's class may raise anything
        return not isinstance(value, MethodType) and bool(value.__reduce_ex__(4))
    return False


class Guard:
    """Compares and restores the attributes and tensors of modules.

    Parameters
    ----------
    parts : {name: module}
        All modules that a step calls; their submodules are included.
    """

    def __init__(self, parts: Mapping[str, nn.Module]) -> None:
        modules = {
            f"{part}.{path}".rstrip("."): m for part, whole in parts.items() for path, m in whole.named_modules()
        }
        registered = [(path, vars(m)[kind]) for path, m in modules.items() for kind in REGISTERED]
        self._places = [*((path, vars(m)) for path, m in modules.items()), *registered]
        self._known = {id(names) for _, names in self._places} | {id(m) for m in modules.values()}
        self._known |= {id(value) for _, names in registered for value in names.values()}
        self._tensors: dict[str, Tensor | torch.Generator] = {}
        classes = {c for m in modules.values() for c in type(m).__mro__}
        methods = [f for c in classes for f in vars(c).values() if isinstance(f, FunctionType)]
        self.globals = sorted({f"{f.__module__}.{name}" for f in methods for name in _assigned_globals(f)})
        """Global variables that a method of a module assigns. `watch` does not restore them."""

    def _forms(self) -> dict[tuple[int, str], _Form]:
        return {
            (i, name): _Form(value, self._known)
            for i, (_, names) in enumerate(self._places)
            for name, value in names.items()
        }

    @contextmanager
    def watch(self) -> Iterator[list[str]]:
        """Yield a list; at the end of the block it describes all changed attributes, which are then restored.

        Changed attributes are replaced by copies of their old values. Contents of tensors and torch's global random
        state are restored too.
        """
        with ALONE:
            before, changed = self._forms(), list[str]()
            # one copy of all attributes, so that objects which two of them share stay shared
            everything = _Form({key: form.value for key, form in before.items()}, self._known)
            self._tensors = {
                f"{self._places[i][0]}.{name}" + f"[{number}]" * bool(number): value
                for (i, name), form in before.items()
                for number, value in enumerate(form.objects)
                if isinstance(value, (Tensor, torch.Generator))
            }
            with self.preserve_tensors():
                try:
                    yield changed
                finally:
                    changed += self._restore(before, everything)

    def _restore(self, before: dict[tuple[int, str], _Form], everything: _Form) -> Iterator[str]:
        now = self._forms()
        changed = [key for key in before | now if not (key in before and key in now and now[key].same(before[key]))]
        old = everything.copy() if changed else {}
        for key in changed:
            path, names = self._places[key[0]]
            name = key[1]
            if key in before:
                names[name] = old[key]
            else:
                del names[name]
            if key not in before or key not in now or now[key].form != before[key].form:
                was = reprlib.repr(old[key]) if key in before else "nothing"
                is_ = reprlib.repr(now[key].value) if key in now else "nothing"
                yield f"{path}.{name} (from {was} to {is_})"

    @contextmanager
    def preserve_tensors(self) -> Iterator[dict[str, Tensor]]:
        """Yield a dict; at the end of the block it has the contents of all tensors that changed, which are restored.

        These are the tensors that the modules had at the last `watch`. Generators and torch's global random state are
        restored too.
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


def _assigned_globals(function: FunctionType) -> Iterator[str]:
    if dis.opmap[_ASSIGN] in function.__code__.co_code:  # few functions: `get_instructions` is slow
        yield from (i.argval for i in dis.get_instructions(function) if i.opname == _ASSIGN)
