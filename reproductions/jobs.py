"""Many small trainings side by side: each job is a function call with plain arguments and a plain result.

A result is kept in a file as soon as it is there, so a killed reproduction goes on where it was.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import multiprocessing
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

__all__ = ["run"]

Job = dict[str, Any]


def _key(module: str, name: str, job: Job) -> str:
    text = json.dumps([module, name, job], sort_keys=True)
    return f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def _call(module: str, name: str, job: Job, device: str, threads: int) -> dict[str, Any]:
    import torch

    if threads:
        torch.set_num_threads(threads)
    began = time.perf_counter()
    result: dict[str, Any] = getattr(importlib.import_module(module), name)(**job, device=device)
    return {**job, **result, "device": device, "seconds": round(time.perf_counter() - began, 1)}


def run(
    function: Callable[..., dict[str, Any]],
    jobs: Iterable[Job],
    folder: Path,
    *,
    workers: int = 1,
    device: str = "auto",
) -> list[dict[str, Any]]:
    """Results of function(**job, device=device), in the order of the jobs; each is job and result in one dictionary.

    With several workers every job has a process and one thread of its own. A job is known by its arguments, not by
    where it ran.
    """
    jobs = list(jobs)
    folder.mkdir(parents=True, exist_ok=True)
    module = function.__module__
    if module == "__main__":
        module = f"reproductions.{Path(function.__code__.co_filename).stem}"
    paths = [folder / f"{_key(module, function.__name__, job)}.json" for job in jobs]
    missing = [(job, path) for job, path in zip(jobs, paths, strict=True) if not path.exists()]

    def keep(path: Path, result: dict[str, Any]) -> None:
        part = path.with_suffix(".part")
        part.write_text(json.dumps(result))
        part.replace(path)
        print(json.dumps({k: v for k, v in result.items() if not isinstance(v, (list, dict))}), flush=True)

    if workers <= 1:
        for job, path in missing:
            keep(path, _call(module, function.__name__, job, device, 0))
    else:
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(workers, mp_context=context) as pool:
            futures = {pool.submit(_call, module, function.__name__, job, device, 1): path for job, path in missing}
            for future in as_completed(futures):
                keep(futures[future], future.result())
    return [json.loads(path.read_text()) for path in paths]
