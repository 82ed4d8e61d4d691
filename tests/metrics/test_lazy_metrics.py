"""Metrics import numpy alone: scikit-learn, scipy and torch come when a metric needs them."""

import subprocess
import sys
from pathlib import Path

import pytest

from sparsevae import metrics

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("heavy", ["sklearn", "scipy", "torch", "matplotlib"])
def test_importing_the_metrics_loads_nothing_heavy(heavy):
    code = f"import sys, sparsevae.metrics as m; m.average_hoyer([[1.0, 0.0]]); sys.exit({heavy!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_every_public_name_is_there():
    assert [name for name in metrics.__all__ if not hasattr(metrics, name)] == []
