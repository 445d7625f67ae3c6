"""`warmpot sweep` as a user sees it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from warmpot.cli import app

FEW = ["--set", "full.rounds=2", "--set", "full.iterations=4", "--set", "full.width=8"]


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    rng = np.random.default_rng(0)
    centres = 3 * rng.normal(size=(4, 6))
    ys, yt = np.repeat(np.arange(4), 12), np.repeat([0, 1], 15)
    np.savez(tmp_path / "s.npz", X=centres[ys] + rng.normal(size=(48, 6)), y=ys)
    np.savez(tmp_path / "t.npz", X=centres[yt] + rng.normal(size=(30, 6)) + 0.3, y=yt)
    return str(tmp_path / "s.npz"), str(tmp_path / "t.npz")


def run(*words: str) -> Any:
    return CliRunner().invoke(app, ["sweep", *words])


def test_a_sweep_writes_the_winner_and_goes_on(files: tuple[str, str], tmp_path: Path) -> None:
    space = tmp_path / "space.yaml"
    space.write_text("preset: full\nparams.alpha: [0.5, 0.9]\n")
    words = [*files, "--out", str(tmp_path / "out"), "--space", str(space), *FEW]
    first = run(*words)
    assert first.exit_code == 0, first.output
    assert "without target labels" in first.output
    assert "evaluation only" in first.output
    lines = [json.loads(line) for line in (tmp_path / "out" / "trials.jsonl").read_text().splitlines()]
    assert [line["preset"] for line in lines] == ["source-only", "full", "full"]
    assert not {"accuracy", "truth"} & set(lines[0])
    assert (tmp_path / "out" / "best" / "model.safetensors").exists()
    before = (tmp_path / "out" / "trials.jsonl").read_bytes()
    again = run(*words)
    assert again.exit_code == 0, again.output
    assert (tmp_path / "out" / "trials.jsonl").read_bytes() == before


def test_target_labels_change_nothing_but_the_line_that_says_so(files: tuple[str, str], tmp_path: Path) -> None:
    source, target = files
    with np.load(target) as stored:
        found = dict(stored)
    np.savez(tmp_path / "plain.npz", X=found["X"])
    np.savez(tmp_path / "wrong.npz", X=found["X"], y=found["y"][::-1])
    scores = []
    for number, file in enumerate((target, str(tmp_path / "plain.npz"), str(tmp_path / "wrong.npz"))):
        out = tmp_path / f"out{number}"
        assert run(source, file, "--out", str(out), "--quiet", *FEW).exit_code == 0
        lines = [json.loads(line) for line in (out / "trials.jsonl").read_text().splitlines()]
        scores.append([(line["point"], line["score"]) for line in lines])
    assert scores[0] == scores[1] == scores[2]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--validator", "entropie"], "entropy"),
        (["--validator", "oracle"], "validator"),
        (["--space", "missing.yaml"], "missing.yaml"),
        (["--set", "full.round=3"], "rounds"),
        (["--workers", "0"], "workers"),
    ],
)
def test_mistakes_are_told_in_a_line(files: tuple[str, str], tmp_path: Path, words: list[str], message: str) -> None:
    result = run(*files, "--out", str(tmp_path / "out"), *words)
    assert result.exit_code == 2
    assert message in result.output
    assert not (tmp_path / "out" / "trials.jsonl").exists()
