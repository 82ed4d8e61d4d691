"""Checkpoints: the complete state of a run, so that a resumed run ends with the same bytes.

A checkpoint is one atomic file in the run folder: weights, optimiser, running sums, best weights, the last good state
for roll-backs, values and states of controllers, and the position in the run. Noise and data order are functions of
(seed, step), so there is no other random state than the step. `history.jsonl` is beside it, one strict JSON object per
line (inf and nan in the form of `codec`). It is synced to disk before each checkpoint, and on resume it is truncated to
the checkpoint, which has a digest of each line up to its step: a changed line is an error, lost lines are a warning.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sparsevae.exceptions import StorageError, warn_caller
from sparsevae.storage.atomic import naming, read_file, write_file
from sparsevae.storage.codec import decode, encode, parse, reading
from sparsevae.storage.lock import locked
from sparsevae.storage.record import part_of
from sparsevae.storage.state import load_state, save_state

_NAMED = 12  # differences to another run that an error lists
_MAX_HISTORY = 2**28  # bytes
_DIGEST = 8  # bytes per line of the history
_NONE = torch.zeros(0, dtype=torch.uint8)


class State(NamedTuple):
    """A point in a run: tensors by name, and plain numbers (step, rate factor, patience, ...)."""

    tensors: dict[str, Tensor]
    meta: dict[str, Any]


class RunFolder:
    """The folder of one run, `checkpoint.safetensors` and `history.jsonl`; only one run may use it at a time.

    `signature` identifies the run (constructor and data); a checkpoint with another signature is refused.
    """

    def __init__(self, path: str | os.PathLike[str], signature: dict[str, Any]) -> None:
        self.path = Path(path)
        self.signature = signature
        self.checkpoint = self.path / "checkpoint.safetensors"
        self.history = self.path / "history.jsonl"
        self._digests = b""  # of the lines of the history, concatenated

    @contextmanager
    def open(self, resume: bool) -> Iterator[tuple[State, State, list[dict[str, Any]]] | None]:
        """Lock the folder during a run: the saved (state, roll-back state, history), or None for a new run."""
        os.makedirs(os.path.realpath(self.path), exist_ok=True)  # a link to a missing folder creates the folder
        with locked(self.path):
            yield self._found(resume)

    def _found(self, resume: bool) -> tuple[State, State, list[dict[str, Any]]] | None:
        if not resume and (self.checkpoint.exists() or self.history.exists()):
            raise FileExistsError(
                f"{self.path} already holds a run. Continue it with resume=True (--resume), or choose another folder."
            )
        if not self.checkpoint.exists():  # a new run, or one that ended before its first checkpoint
            try:
                self.history.unlink(missing_ok=True)
            except OSError as error:
                raise StorageError(f"{self.history} belongs to no run, and cannot be removed: {error}") from error
            return None
        tensors, meta = load_state(self.checkpoint)
        with reading(self.checkpoint, "the state of a run"):
            saved = dict(meta["signature"])
            state = _state(tensors, "now", meta)
            good = _state(tensors, "good", meta) if meta["good"] else state
            digests = tensors["history"].numpy().tobytes()
        self._same_run(saved)
        rows, lines = self._read_history(state.meta["step"], digests)
        last, reported = rows[-1]["step"] if rows else 0, state.meta["reported"]
        if last < reported:
            warn_caller(
                f"{self.history} lacks the reports from after step {last} to step {reported}. They are lost; the run "
                f"itself is complete, and continues from step {state.meta['step']}."
            )
        write_file(self.history, b"".join(line + b"\n" for line in lines))
        return state, good, rows

    def _same_run(self, saved: dict[str, Any]) -> None:
        mine = decode(encode(self.signature, "signature"))  # like the saved one, so that equal settings are equal
        changed = [k for k in sorted(saved.keys() | mine.keys()) if saved.get(k) != mine.get(k)]
        if changed:
            named = [f"{k}: {_short(saved.get(k))} then, {_short(mine.get(k))} now" for k in changed[:_NAMED]]
            detail = "; ".join([*named, "..."] if len(changed) > _NAMED else named)
            raise ValueError(
                f"{self.path} holds a different run ({detail}). Resume with the same settings and data, or choose "
                "another folder."
            )

    def _read_history(self, step: int, digests: bytes) -> tuple[list[dict[str, Any]], list[bytes]]:
        """The reports up to a step, and their lines, after a comparison with the checkpoint's digests."""
        rows: list[dict[str, Any]] = []
        lines = read_file(self.history, _MAX_HISTORY).split(b"\n") if self.history.exists() else []
        for line in lines:
            try:
                row = parse(line, self.history)
            except StorageError:  # an incomplete line of a killed run; it is later than the checkpoint
                break
            if not _is_report(row) or row["step"] > step:
                break
            rows.append(row)
        kept = lines[: len(rows)]
        self._digests = b"".join(map(_digest, kept))
        for at in range(0, len(self._digests), _DIGEST):
            if self._digests[at : at + _DIGEST] != digests[at : at + _DIGEST]:
                raise StorageError(
                    f"line {at // _DIGEST + 1} of {self.history} was changed: the checkpoint has another digest of it. "
                    "Restore the file from a copy, or delete it: the run itself is complete, and continues without "
                    "its earlier reports."
                )
        return rows, kept

    def append(self, row: dict[str, Any]) -> None:
        """Write a report to the history."""
        line = json.dumps(encode(row, "a report"), allow_nan=False).encode()
        with resumable(self.path), naming(self.history), self.history.open("ab") as file:
            file.write(line + b"\n")
        self._digests += _digest(line)

    def save(self, state: State, good: State) -> None:
        """Write the checkpoint, after the history is synced; the roll-back state is stored only if it differs."""
        with resumable(self.path), naming(self.history), self.history.open("ab") as file:
            os.fsync(file.fileno())
        same = good.meta["step"] == state.meta["step"]
        tensors = {f"now.{k}": v for k, v in state.tensors.items()}
        if not same:
            tensors |= {f"good.{k}": v for k, v in good.tensors.items()}
        tensors["history"] = torch.frombuffer(bytearray(self._digests), dtype=torch.uint8) if self._digests else _NONE
        meta = {"signature": self.signature, "now": state.meta, "good": None if same else good.meta}
        with resumable(self.path):
            save_state(self.checkpoint, tensors, meta)


@contextmanager
def resumable(folder: Path) -> Iterator[None]:
    """Add to an OSError of writing that the run can be resumed, if the folder has a checkpoint."""
    try:
        yield
    except OSError as error:
        if error.errno is None or not (folder / "checkpoint.safetensors").exists():
            raise
        advice = f"{folder} holds the run as of its last checkpoint: continue it with resume=True (--resume)"
        raise OSError(error.errno, f"{error.strerror}; {advice}", error.filename) from error


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]} ..."


def _count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**62


def _is_control(value: Any) -> bool:
    """True for [value of a knob, state of its controller]."""
    return isinstance(value, list) and len(value) == 2 and isinstance(value[0], float)


_META: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("step", "reported", "retries", "waited"), _count),
    "rate_factor": lambda v: isinstance(v, float) and 0 < v <= 1,
    "best_loss": lambda v: v is None or isinstance(v, float),
    "stopped": lambda v: isinstance(v, bool),
    "controls": lambda v: v is None or (isinstance(v, dict) and all(map(_is_control, v.values()))),
    "threads": lambda v: _count(v) and 0 < v <= 4096,
}
"""The values of a state beside its tensors -> True for a legal value."""


def _state(tensors: dict[str, Tensor], name: str, meta: dict[str, Any]) -> State:
    if wrong := [f"{k}={meta[name].get(k)!r}" for k, legal in _META.items() if not legal(meta[name].get(k))]:
        raise ValueError(f"a state with {', '.join(wrong)}")
    return State(part_of(tensors, f"{name}."), meta[name])


def _digest(line: bytes) -> bytes:
    return hashlib.blake2b(line, digest_size=_DIGEST).digest()


def _is_report(row: Any) -> bool:
    """True if a line of the history is a report: a dict with a step and an epoch."""
    return isinstance(row, dict) and type(row.get("step")) is int and isinstance(row.get("epoch"), Real)
