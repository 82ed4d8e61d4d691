"""Results on standard output: one JSON object, a table, or the result of a training."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sparsevae.messages import show

if TYPE_CHECKING:
    from sparsevae.estimator.coder import SparseCoder


def print_json(result: Mapping[str, Any]) -> None:
    from sparsevae.tables.printed import json_value

    show(json.dumps(json_value(result), allow_nan=False))


def print_result(result: Mapping[str, Any], text: object, as_json: bool) -> None:
    """Print a result as one JSON object, or as a text."""
    if as_json:
        print_json(result)
    else:
        show(text)


def print_table(header: Sequence[str], lines: Sequence[Sequence[str]]) -> None:
    from sparsevae.tables.printed import aligned

    show(aligned(header, lines))


def print_fitted(est: SparseCoder, about: Mapping[str, Any], summary: str, hint: Sequence[str], as_json: bool) -> None:
    """Print the last report of a training, the path of the model and a command for the next step."""
    last = {k: v for k, v in (est.history_[-1] if est.history_ else {}).items() if k not in ("step", "epoch")}
    result = {**about, "likelihood": est.likelihood_, "steps": est.n_steps_, "final": last}
    lines = [
        f"{summary}, {est.n_steps_:,} steps",
        "  ".join(f"{k} {v:.4g}" for k, v in last.items()),
        f"saved in {about['out']}; next: {shlex.join(['sparsevae', *hint])}",
    ]
    print_result(result, "\n".join(lines), as_json)
