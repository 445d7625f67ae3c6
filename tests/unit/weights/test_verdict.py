"""The verdict on a run: from two numbers in its log."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import warmpot
from warmpot.weights import Verdict, verdict_of
from warmpot.weights.verdict import CLUSTERS_GAIN, CONSENSUS

STATES = ("not supported", "doubtful", "supported")


@given(st.floats(0, 1), st.floats(-1, 1), st.floats(0, 1), st.floats(0, 1))
def test_more_consensus_or_clearer_clusters_never_make_it_worse(
    consensus: float, gain: float, more: float, clearer: float
) -> None:
    rank = STATES.index(Verdict.of(consensus, gain).state)
    assert STATES.index(Verdict.of(min(consensus + more, 1.0), gain + clearer).state) >= rank


def test_clusters_that_differ_by_rounding_are_the_same() -> None:
    assert Verdict.of(0.99, -1e-17).state == "supported"
    assert "94%" in Verdict.of(0.9496, 0.1).reason  # and not the 95 % from which it is supported


def test_it_belongs_to_one_iterate() -> None:
    line = {CONSENSUS: 0.99, CLUSTERS_GAIN: 0.1}
    history: list[dict[str, Any]] = [{"step": 0}, {"step": 3, **line}, {"step": 4, "bound": 0.5}]
    found = verdict_of(history, 3)
    assert found is not None
    assert found.state == "supported"
    assert verdict_of(history, 4) is None  # the bound was minimised from there
    assert verdict_of([{"step": 3, CONSENSUS: 0.9}], 3) is None


def domains(shift: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    centres = 4 * rng.normal(size=(5, 8))
    ys, yt = np.repeat(np.arange(5), 30), np.repeat([0, 1], 30)
    return centres[ys] + rng.normal(size=(150, 8)), ys, centres[yt] + rng.normal(size=(60, 8)) + shift


def test_a_run_has_it_live_and_from_its_folder(tmp_path: Any) -> None:
    xs, ys, xt = domains(0.5)
    result = warmpot.fit((xs, ys), xt, out=tmp_path / "run", progress_bar=False)
    verdict = result.verdict
    assert verdict is not None
    assert verdict.state == "supported"
    assert verdict.clusters_gain == pytest.approx(0.0, abs=1e-9)  # nothing had to be changed
    assert warmpot.load(tmp_path / "run").verdict == verdict == result.run.verdict
    page = result.report().read_text(encoding="utf-8")
    assert verdict.reason in page


@pytest.mark.parametrize("seed", range(3))
def test_classes_that_overlap_are_doubtful(seed: int) -> None:
    rng = np.random.default_rng(seed)
    centres, ys, yt = 0.6 * rng.normal(size=(5, 8)), np.repeat(np.arange(5), 30), np.repeat([0, 1], 30)
    xs, xt = centres[ys] + rng.normal(size=(150, 8)), centres[yt] + rng.normal(size=(60, 8))
    verdict = warmpot.fit((xs, ys), xt + 0.5 * rng.normal(size=(5, 8))[yt], progress_bar=False).verdict
    assert verdict is not None
    assert verdict.state != "supported"


def test_there_is_none_without_hypotheses() -> None:
    xs, ys, xt = domains(0.5)
    assert warmpot.fit((xs, ys), xt, preset="source-only", progress_bar=False).verdict is None
