"""Long reproductions in pieces: each job is a function call with plain arguments and a plain result.

A result is written to a file as soon as it is there, so a killed reproduction continues where it was.
"""

from __future__ import annotations

import argparse
import ast
import functools
import hashlib
import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch

import sparsevae as sv
from sparsevae.storage.atomic import write_file

__all__ = ["VSC_AS_PUBLISHED", "finished", "options", "recall", "run", "run_stack"]

Job = dict[str, Any]

VSC_AS_PUBLISHED: dict[str, Any] = {"skip": False, "start": "random", "gate": "sigmoid"}
"""VSC as in the paper: no linear paths, random weights, the scaled sigmoid. The library's defaults are others."""


def options(about: str | None) -> argparse.ArgumentParser:
    """What every reproduction in pieces asks for; `args.state` is None for out/state."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--state", type=Path, default=None, help="where finished trainings are kept (out/state)")
    parser.add_argument("--device", default="auto")
    return parser


def _defined(node: ast.stmt) -> list[str]:
    """Names that a statement of a module defines."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return [node.name]
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return [(alias.asname or alias.name).split(".")[0] for alias in node.names]
    if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):  # its targets, not the names of a comprehension
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return [n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)]
    return [name for part in ast.iter_child_nodes(node) if isinstance(part, ast.stmt) for name in _defined(part)]


def _docstring(node: ast.AST) -> ast.stmt | None:
    found = node.body[0] if isinstance(node, (ast.FunctionDef, ast.ClassDef)) else None
    return found if isinstance(found, ast.Expr) and isinstance(found.value, ast.Constant) else None


def code(function: Callable[..., Any]) -> str:
    """The lines of a function and of all that it uses of the reproductions: what its result depends on.

    Tables, figures and docstrings may change without a run going stale. The library's own code is not in it: a result
    names the `library` that made it.
    """
    return _lines(Path(function.__code__.co_filename), [function.__name__])


def _lines(script: Path, names: list[str] | None = None) -> str:
    """What defines the names in a script, or all of it, without docstrings, and what that imports of its neighbours."""
    text = script.read_text()
    body, lines = ast.parse(text).body, text.splitlines()
    used, seen = set[ast.stmt](), set[str]()
    todo = [name for node in body for name in _defined(node)] if names is None else names[:]
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            for node in (node for node in body if name in _defined(node)):
                used.add(node)
                todo += [n.id for n in ast.walk(node) if isinstance(n, ast.Name)]

    def numbers(node: ast.stmt) -> set[int]:
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
        return set(range(first, (node.end_lineno or first) + 1))

    kept = {n for node in used for n in numbers(node)}
    kept -= {n for node in used for part in ast.walk(node) if (doc := _docstring(part)) for n in numbers(doc)}
    found = [lines[n - 1] for n in sorted(kept)]
    for node in (node for node in body if node in used and isinstance(node, ast.ImportFrom)):
        asked = [alias.name for alias in node.names if (alias.asname or alias.name) in seen]
        package, _, module = (node.module or "").partition(".")
        if package == __package__:
            parts = [(module, asked)] if module else [(name, None) for name in asked]
            found += [_lines(script.parent / f"{name}.py", own) for name, own in parts]
    return "\n".join(found)


@functools.cache
def library() -> str:
    """A digest of the library's source, to find which results come from the same one."""
    root = Path(sv.__file__).parent
    texts = [f"{p.relative_to(root)}\n{p.read_text()}" for p in sorted(root.rglob("*.py"))]
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:12]


def _path(folder: Path, function: Callable[..., Any], job: Job) -> Path:
    source = Path(function.__code__.co_filename).stem
    text = code(function) + json.dumps([sv.__version__, job], sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    return folder / f"{source}-{function.__name__}-{digest}.json"


def _name(device: str) -> str:
    """What ran the job, in words."""
    chosen = sv.Training(device=device).torch_device() if device in ("auto", "cpu", "cuda") else None
    return torch.cuda.get_device_name(chosen) if chosen is not None and chosen.type == "cuda" else device


def finished(function: Callable[..., Any], jobs: Iterable[Job], folder: Path) -> list[Job]:
    """Those of the jobs that need not be run."""
    return [job for job in jobs if _path(folder, function, job).exists()]


def recall(report: Path, folder: Path) -> None:
    """Put the runs of an earlier report into the folder: those whose job is still the same are not run again.

    A run that does not name its job is left out.
    """
    for result in (r for r in json.loads(report.read_text())["runs"] if "job" in r):
        write_file(folder / f"{result['job']}.json", json.dumps(result).encode())


def run(
    function: Callable[..., dict[str, Any]], jobs: Iterable[Job], folder: Path, *, device: str = "auto"
) -> list[dict[str, Any]]:
    """Results of function(**job, device=device), in the order of the jobs; each is job and result in one dictionary.

    A job is known by its arguments, the `code` that it runs in its script and the library's version, not by where it
    ran: what is already in the folder is not run again.
    """
    results = []
    for job in jobs:
        path = _path(folder, function, job)
        if not path.exists():
            began = time.perf_counter()
            result = {**job, **function(**job, device=device)}
            result |= {"device": _name(device), "torch": torch.__version__, "library": library()}
            result |= {"seconds": round(time.perf_counter() - began, 1), "job": path.stem}
            write_file(path, json.dumps(result).encode())
            print(f"{path.stem}: {result['seconds']} s", flush=True)
        results.append(json.loads(path.read_text()))
    return results


def run_stack(function: Callable[..., dict[str, Any]], job: Job, folder: Path, *, device: str) -> list[dict[str, Any]]:
    """The `runs` of one job that trains several models as one, each with the machine and the torch that made it."""
    (found,) = run(function, [job], folder, device=device)
    made = {k: found[k] for k in ("device", "torch", "library") if k in found}
    return [{**r, **made} for r in found["runs"]]
