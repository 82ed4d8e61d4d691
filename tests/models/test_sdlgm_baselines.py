"""Claim: the protocol of the linear baselines gives the published numbers; the real files are needed for that."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from reproductions import sdlgm_baselines
from reproductions.sdlgm_baselines import METRICS, PROTOTYPE, PUBLISHED, TOLERANCES

REAL = Path(os.environ.get("SPARSEVAE_DATA", "nowhere")) / "emotions"


def test_folds_are_contiguous_and_the_last_is_the_smallest() -> None:
    blocks = sdlgm_baselines.folds(391)
    assert [len(rows) for rows in blocks] == [79, 79, 79, 79, 75]
    assert [row for rows in blocks for row in rows] == list(range(391))


def test_the_table_sets_numbers_beside_their_sources_and_the_verdict_counts_them() -> None:
    results = [
        {"name": name, "loss": loss, "tolerance": t}
        | {m: {"test": PROTOTYPE[name, loss][place] + 0.05} for place, m in enumerate(METRICS)}
        for name, loss in PUBLISHED
        for t in TOLERANCES.values()
    ]
    rows = sdlgm_baselines.table(results)
    assert len(rows) == 18
    assert (rows[0]["metric"], rows[0]["published"], rows[0]["early"]) == ("micro", 45.78, pytest.approx(45.77))
    found = sdlgm_baselines.verdict(rows)
    assert found["worst_distance_from_prototype"]["met"]
    assert found["published_to_two_decimals"] == {"early": 0, "late": 0, "of": 12}
    rows[3]["early"] += 0.1
    assert not sdlgm_baselines.verdict(rows)["worst_distance_from_prototype"]["met"]


@pytest.mark.skipif(not REAL.is_dir(), reason="needs $SPARSEVAE_DATA/emotions")
def test_softmax_on_emotions_has_the_published_numbers() -> None:
    found = sdlgm_baselines.baseline("emotions", "softmax", TOLERANCES["early"])
    for place, metric in enumerate(METRICS):
        assert found[metric]["test"] == pytest.approx(PUBLISHED["emotions", "softmax"][place], abs=0.005)
        assert (found[metric]["regularisation"], found[metric]["threshold"]) == (0.1, 1.0)
        low, high = found[metric]["interval_95"]
        assert low < found[metric]["test"] < high
    assert found["rows"] == [391, 202]
