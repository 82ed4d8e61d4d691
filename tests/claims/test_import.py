"""Claim: `import sparsevae` is light. The test is a list of modules that must not be loaded, not seconds."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAVY = ["pandas", "pyarrow", "matplotlib", "torch._dynamo", "typer"]
FIT = """
import tempfile, warnings, numpy as np
warnings.simplefilter("ignore", sparsevae.SparsityWarning)
X = np.eye(8)
est = sparsevae.VSC(2, hidden=(4,), training=sparsevae.Training(steps=2, verbose=0)).fit(X)
est.transform(X), est.score(X), est.save(folder := tempfile.mkdtemp()), sparsevae.load(folder)
"""


def run(code: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


STAGES = {"package": "", "estimator": "sparsevae.VSC, sparsevae.load, sparsevae.Training", "fit": FIT}


@pytest.fixture(scope="module")
def loaded() -> dict[str, list[str]]:
    """What one process has loaded after each stage."""
    # scikit-learn imports pandas wherever it is installed, and pandas pyarrow: here it is not installed
    program = """
import json, sys
sys.modules["pandas"] = None
import sparsevae
"""
    for code in STAGES.values():
        program += f"{code}\nprint(json.dumps([m for m in {HEAVY!r} if sys.modules.get(m) is not None]))\n"
    return dict(zip(STAGES, map(json.loads, run(program).splitlines()), strict=True))


@pytest.mark.parametrize("stage", STAGES)
def test_what_is_not_needed_is_not_loaded(stage: str, loaded: dict[str, list[str]]) -> None:
    assert loaded[stage] == []


def test_importing_the_package_alone_loads_neither_torch_nor_scikit_learn() -> None:
    run("import sparsevae, sys; assert sparsevae.__version__; assert not {'torch', 'sklearn'} & set(sys.modules)")


def test_every_public_name_resolves_and_a_wrong_one_is_named() -> None:
    import sparsevae as sv

    assert {name for name in sv.__all__ if getattr(sv, name, None) is None} == set()
    assert set(sv.__all__) <= set(dir(sv))
    with pytest.raises(AttributeError, match="no attribute 'VCS'"):
        _ = sv.VCS


def test_public_names_have_types_and_every_model_is_one() -> None:
    """What `__getattr__` finds on demand is also listed, where readers, editors and type checkers look."""
    import sparsevae as sv
    from sparsevae.models import known

    assert set(known()) <= set(sv.__all__)
    tree = ast.parse((ROOT / "sparsevae/__init__.py").read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    typed = [alias.name for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert sorted(typed) == sorted(sv.__all__)
