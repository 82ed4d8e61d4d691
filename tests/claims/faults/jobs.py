"""A process under the shim of `failing.c`: it imports once, and forks a child for every fault.

    LD_PRELOAD=failing.so python jobs.py FOLDER KIND,... JOB ...

For each job, each kind of fault and each k it lays out the old state and lets a child do the work with its k-th
operation failing, until none fails. For each it prints a line of JSON: what became of the child, what it said, what is
on the disk then, and what after the same work once more without a fault.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sparsevae.exceptions import StorageError
from sparsevae.storage import folder as storage
from sparsevae.storage.atomic import write_file
from sparsevae.storage.state import load_state, save_state

SHIM = ctypes.CDLL(None)
SHIM.faults_seen.restype = ctypes.c_long
KINDS = {"kill": 1, "full": 2, "broken": 3, "short": 4}


def version(v: int) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    return {"a": torch.full((5000,), float(v)), "b": torch.tensor(v)}, {"v": v}


def version_of(load: Callable[[], Any]) -> int | str:
    """Which version is there, whole, or why none is."""
    try:
        tensors, meta = load()
    except StorageError as error:
        return str(error)
    assert all(torch.equal(tensors[k], version(meta["v"])[0][k]) for k in ("a", "b"))
    return int(meta["v"])


def names(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


class Saving:
    """A model folder, first or over an old one; a checkpoint; any file."""

    def __init__(self, name: str) -> None:
        self.name = name

    def before(self, folder: Path) -> None:
        if self.name != "first model":
            self.write(folder, 0)

    def work(self, folder: Path) -> int:
        self.write(folder, 1)
        return 0

    def write(self, folder: Path, v: int) -> None:
        if self.name.endswith("model"):
            storage.save_folder(folder / "model", *version(v))
        elif self.name == "checkpoint":
            save_state(folder / "checkpoint", *version(v))
        else:
            write_file(folder / "file", bytes([v]) * 20_000)

    def found(self, folder: Path) -> Any:
        if self.name.endswith("model"):
            return version_of(lambda: storage.load_folder(folder / "model"))
        if self.name == "checkpoint":
            return version_of(lambda: load_state(folder / "checkpoint"))
        data = (folder / "file").read_bytes()
        return data[0] if data in (bytes(20_000), bytes([1]) * 20_000) else "neither"


class Command:
    """The command line, which leaves a whole file, or a run that can be continued, and in the end a model."""

    def __init__(self, name: str, root: Path) -> None:
        import warnings

        import sparsevae as sv
        from sparsevae import cli
        from sparsevae.report import page as report

        warnings.simplefilter("ignore", sv.SparsityWarning)
        self.name, self.main, self.once = name, cli.main, 0
        self.model, data = root / "fitted", root / "X.npy"
        report._pictures = lambda est, view: iter(())  # type: ignore[assignment]
        np.save(data, np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32))
        flags = "--n-components 3 --hidden 4 --steps 20 --report-every 10 --checkpoint-every 10 --device cpu"
        fit = ["fit", "VAE", "-d", str(data), *flags.split(), "-q", "--resume", "-o"]
        with contextlib.redirect_stdout(None):
            assert cli.main([*fit, str(self.model)]) == 0
        self.words = {
            "fit": [*fit, "{}/new/model"],
            "encode": ["encode", str(self.model), "-d", str(data), "-o", "{}/codes.npz"],
            "report": ["report", str(self.model), "-d", str(data), "-o", "{}/page.html"],
        }[name]
        self.whole: Any = None
        self.before(folder := root / "whole")
        with contextlib.redirect_stdout(None):
            assert self.work(folder) == 0
        self.whole = self.content(folder)
        shutil.rmtree(folder)

    def before(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        if self.name != "fit":
            (folder / Path(self.words[-1]).name).write_bytes(b"old")

    def work(self, folder: Path) -> int:
        return int(self.main([w.format(folder) for w in self.words]))

    def content(self, folder: Path) -> dict[str, bytes]:
        return {name: (folder / name).read_bytes() for name in names(folder)}

    def found(self, folder: Path) -> Any:
        """1 for the bytes that a whole run leaves; 0 for what was there before, of a run for a checkpoint or less."""
        came = {k: v for k, v in self.content(folder).items() if not Path(k).name.startswith(".")}
        if came == self.whole:
            return 1
        if self.name != "fit":
            return 0 if list(came.values()) == [b"old"] else "neither"
        checkpoint = folder / "new" / "model" / "checkpoint.safetensors"
        if checkpoint.exists():
            load_state(checkpoint)
        return "neither" if (checkpoint.parent / "model.json").exists() else 0


def child(work: Callable[[], int], reported: Path) -> int:
    """The exit status of a fork that does the work; what it says is in `told`."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    code = 70
    try:
        with open(reported, "w") as file, contextlib.redirect_stderr(file), contextlib.redirect_stdout(None):
            try:
                code = work()
            except (OSError, StorageError) as error:
                name = getattr(error, "filename", None)
                print(f"{type(error).__name__}: {name}: {error}", file=file)
                code = 1
            except BaseException:
                traceback.print_exc(file=file)
    finally:
        os._exit(code)


def outcomes(job: Any, kind: str, root: Path) -> Iterator[dict[str, Any]]:
    reported, count = root / "told", root / "count"
    for k in range(1, 1000):
        folder = root / "work"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        job.before(folder)

        def work(folder: Path = folder, k: int = k) -> int:
            SHIM.faults_arm(str(folder).encode(), k, KINDS[kind])
            try:
                return int(job.work(folder))
            finally:
                count.write_text(str(SHIM.faults_seen()))

        count.write_text("")
        status = child(work, reported)
        seen = count.read_text()  # nothing, of a child that was killed
        result = {
            "k": k,
            "status": status,
            "told": reported.read_text(),
            "found": job.found(folder),
            "left": names(folder),
        }
        again = child(lambda folder=folder: int(job.work(folder)), reported)  # type: ignore[misc]
        result |= {"again": again, "told again": reported.read_text(), "found again": job.found(folder)}
        result |= {"left again": names(folder), "fired": not seen or int(seen) >= k}
        yield result
        if not result["fired"]:
            return


def main() -> None:
    root, kinds, *wanted = sys.argv[1:]
    for name in wanted:
        job = Command(name, Path(root)) if name in ("fit", "encode", "report") else Saving(name)
        for kind in kinds.split(","):
            for result in outcomes(job, kind, Path(root)):
                print(json.dumps({"job": name, "kind": kind} | result), flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
