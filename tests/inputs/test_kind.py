"""Claim: what X is is looked at once, and rows of numbers run no function that is about texts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import sparsevae as sv
from sparsevae.inputs.arrays import Arrays
from sparsevae.inputs.kind import kind_of
from sparsevae.inputs.texts import Text, Texts

ROOT = Path(__file__).parents[2]

RECORDED = """
import json, sys
import numpy as np, pandas as pd, scipy.sparse as sp
import sparsevae as sv
rng = np.random.default_rng(0)
numbers, sentences = rng.normal(size=(20, 4)), ["a red cat", "the dog sleeps"] * 10
X = {"array": numbers, "CSR": sp.csr_matrix(numbers), "table": pd.DataFrame(numbers), "texts": sentences}[sys.argv[1]]
est = sv.VSC(2, hidden=(4,), training=sv.Training(steps=3, verbose=0))
seen = set()

def record(frame, event, argument):
    name = frame.f_code.co_filename.replace("\\\\", "/")
    if event == "call" and ("/sparsevae/text/" in name or name.endswith("/inputs/texts.py")):
        seen.add(frame.f_code.co_qualname)

sys.setprofile(record)
est.fit(X).transform(X), est.score(X), est.evaluate(X), est.sample(2), est.partial_fit(X)
sys.setprofile(None)
print(json.dumps(sorted(seen)))
"""


def recorded(form: str) -> list[str]:
    """Functions of the texts modules that run between a fit and a second one, in a process of its own."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", RECORDED, form]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT, check=True)
    found: list[str] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("form", ["array", "CSR", "table"])
def test_rows_of_numbers_run_no_function_of_texts(form: str) -> None:
    assert recorded(form) == []


def test_the_recorder_sees_those_functions_where_rows_are_texts() -> None:
    assert {"Texts.read", "Vocabulary.encode", "read_texts"} <= set(recorded("texts"))


@pytest.mark.parametrize(
    ("X", "column", "kind"),
    [
        (np.zeros((3, 2)), None, Arrays),
        (sp.csr_matrix((3, 2)), None, Arrays),
        ([[1.0, 2.0]], None, Arrays),
        ("rows.csv", None, Arrays),
        ("rows.csv", "said", Texts),
        ("lines.txt", None, Texts),
        (["one text"], None, Texts),
    ],
)
def test_one_look_says_what_rows_are(X: Any, column: str | None, kind: type) -> None:
    """Settings of texts name a column; without a column, None and the default settings are the same."""
    for text in (Text(column=column), *([None] if column is None else [])):
        found = kind_of(X, text)
        assert type(found) is kind
        assert found.column == (column if kind is Texts else None)


def test_a_fitted_model_of_numbers_refuses_texts_before_it_reads_them() -> None:
    est = sv.VAE(2, hidden=(4,), training=sv.Training(steps=1, verbose=0)).fit(np.eye(6))
    with pytest.raises(ValueError, match="X must hold numbers, as it did when this VAE was fitted; got texts"):
        est.transform(["a text"])
