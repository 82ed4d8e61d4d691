"""Claim: whichever file operation fails, and however, what is on the disk is the old or the new, whole.

A shim (`faults/failing.c`, loaded before the system's library) lets the k-th operation under a folder fail: the process
is killed there, the disk is full from there on, one operation has an input/output error, a write is short.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
KINDS = "kill,full,broken,short"
REASONS = {"full": "no space left on device", "broken": "input/output error"}

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the shim is for Linux: LD_PRELOAD and /proc"),
    pytest.mark.skipif(COMPILER is None, reason="no C compiler to build the shim with"),
]


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("shim") / "failing.so"
    flags = ["-shared", "-fPIC", "-Wall", "-Werror", "-o", str(built)]
    subprocess.run([str(COMPILER), *flags, str(HERE / "faults" / "failing.c"), "-ldl"], check=True)
    return built


def outcomes(shim: Path, root: Path, *jobs: str) -> Iterator[list[dict[str, Any]]]:
    """Those of one job and one kind of fault, by k; the last one is of a k beyond all operations."""
    environment = os.environ | {"LD_PRELOAD": str(shim), "PYTHONPATH": str(HERE.parents[1]), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(HERE / "faults" / "jobs.py"), str(root.resolve()), KINDS, *jobs]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    for _, found in groupby(map(json.loads, done.stdout.splitlines()), lambda o: (o["job"], o["kind"])):
        yield list(found)


def check(o: dict[str, Any], whole: dict[str, Any]) -> None:
    """Old or new; exit codes and errors say which, as far as they can; and the next save is as if nothing had been."""
    if o["kind"] == "kill":
        assert o["status"] == -signal.SIGKILL
    elif o["status"] == 0:
        assert o["found"] == 1
    else:
        assert o["status"] == 1
        assert o["told"].count("\n") == 1
        assert "/work/" in o["told"]
        assert REASONS[o["kind"]] in o["told"].lower()  # a short write is completed, no error
        begun = any(name.endswith("checkpoint.safetensors") for name in o["left"])
        assert ("--resume" in o["told"]) == begun
        assert not any(name.endswith(".tmp") for name in o["left"])
    if o["job"] == "first model" and o["found"] != 1:
        assert o["found"].startswith("expected a ")  # no model, and no half one
    else:
        assert o["found"] in (0, 1)
    assert (o["again"], o["told again"], o["found again"]) == (0, "", 1)
    assert o["left again"] == whole["left"]


def sweep(shim: Path, root: Path, *jobs: str) -> int:
    fired = 0
    for found in outcomes(shim, root, *jobs):
        *failed, whole = found
        assert (whole["status"], whole["found"], whole["fired"]) == (0, 1, False)
        for o in failed:
            assert o["fired"]
            try:
                check(o, whole)
            except AssertionError as error:
                raise AssertionError(json.dumps(o, indent=1)) from error
        fired += len(failed)
    return fired


def test_a_checkpoint_is_old_or_new_wherever_a_file_operation_fails(shim: Path, tmp_path: Path) -> None:
    assert sweep(shim, tmp_path, "checkpoint") >= 4 * 5


@pytest.mark.slow
def test_models_and_files_are_old_or_new_wherever_a_file_operation_fails(shim: Path, tmp_path: Path) -> None:
    assert sweep(shim, tmp_path, "model", "first model", "file") >= 4 * (12 + 9 + 5)


@pytest.mark.slow
@pytest.mark.parametrize(("job", "least"), [("fit", 30), ("encode", 5), ("report", 5)])
def test_commands_leave_the_old_or_the_new_or_a_run_that_goes_on(
    job: str, least: int, shim: Path, tmp_path: Path
) -> None:
    """A run that goes on ends with the same bytes."""
    assert sweep(shim, tmp_path, job) >= 4 * least
