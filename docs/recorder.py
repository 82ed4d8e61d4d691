"""Which files the work goes through. From the repository's root

    python -m docs.recorder

fits a VSC to an array of 200 x 6. For a fit of three steps, one training step and one `transform` it prints how many
files of the package run, and how many calls lead from one file into another (returns are not counted). `--files` adds
every such pair of files with its number of calls. The same work is done once before it is recorded, so that imports do
not count. Another version of the package: PYTHONPATH=ITS_FOLDER python docs/recorder.py
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import numpy as np

import sparsevae as sv
from sparsevae.training.step import Run

PACKAGE = Path(sv.__file__).parent


class Record(NamedTuple):
    """Files of the package that ran, and calls from one into another, each with their number."""

    files: set[str]
    calls: Counter[tuple[str, str]]


def file_of(frame: FrameType | None) -> str | None:
    """The package's file that a frame runs; for a frame elsewhere (torch's, scikit-learn's) the one that called it."""
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(PACKAGE):
            return path.relative_to(PACKAGE).as_posix()
        frame = frame.f_back
    return None


def recorded(work: Callable[[], Any]) -> Record:
    """What a call without arguments goes through."""
    found = Record(set(), Counter())

    def look(frame: FrameType, event: str, argument: Any) -> None:
        if event != "call" or not Path(frame.f_code.co_filename).is_relative_to(PACKAGE):
            return
        here, before = file_of(frame), file_of(frame.f_back)
        assert here is not None
        found.files.add(here)
        if before not in (here, None):
            found.calls[str(before), here] += 1

    sys.setprofile(look)
    try:
        work()
    finally:
        sys.setprofile(None)
    return found


def records() -> dict[str, Record]:
    """The three records, by what was done."""
    X = np.random.default_rng(0).normal(size=(200, 6)).astype(np.float32)
    est = sv.VSC(4, hidden=(8,), training=sv.Training(steps=3, device="cpu", verbose=0))
    steps: list[Record] = []
    advance = Run.advance
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sv.SparsityWarning)  # three steps make no sparse code
        Run.advance = lambda run: steps.append(recorded(lambda: advance(run)))  # type: ignore[method-assign]
        try:
            est.fit(X).transform(X)
        finally:
            Run.advance = advance  # type: ignore[method-assign]
        fit = recorded(lambda: est.fit(X))
    return {
        "a fit of three steps": fit,
        "one training step": steps[-1],
        "one `transform`": recorded(lambda: est.transform(X)),
    }


def main() -> None:
    for name, record in records().items():
        print(f"| {name} | {len(record.files)} | {record.calls.total()} |")
        for (before, here), n in record.calls.most_common() if "--files" in sys.argv[1:] else ():
            print(f"    {n:4} {before} -> {here}")


if __name__ == "__main__":
    main()
