"""`warmpot evaluate` as a user sees it."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from warmpot.cli import app


def invoke(*words: str) -> Any:
    return CliRunner().invoke(app, list(words))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("evaluate")
    rng = np.random.default_rng(0)
    centres = 3 * rng.normal(size=(4, 6))
    ys, yt = np.repeat(np.arange(4), 12), np.repeat([0, 1], 30)
    np.savez(folder / "s.npz", X=centres[ys] + rng.normal(size=(48, 6)), y=ys)
    np.savez(folder / "t.npz", X=centres[yt] + rng.normal(size=(60, 6)))
    words = [str(folder / "s.npz"), str(folder / "t.npz"), "--out", str(folder / "run"), "--preset", "source-only"]
    assert invoke("fit", *words, "--quiet", "--no-report").exit_code == 0
    return folder / "run"


def rows_of(file: Path) -> list[dict[str, str]]:
    with open(file, newline="") as stream:
        return list(csv.DictReader(stream))


def write(file: Path, rows: list[dict[str, str]]) -> None:
    with open(file, "w", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def test_a_random_part_of_the_target(run: Path, tmp_path: Path) -> None:
    rows = np.random.default_rng(0).permutation(60)[:20]
    write(tmp_path / "labels.csv", [{"row": str(k), "label": str(k // 30)} for k in rows])
    result = invoke("evaluate", str(run), str(tmp_path / "labels.csv"))
    assert result.exit_code == 0, result.output
    found = json.loads((run / "evaluation.json").read_text())
    assert (found["labels"], found["samples"]) == (20, 60)
    assert [one["method"] for one in found["intervals"]] == ["Clopper-Pearson", "exact", "prediction-powered"]
    truth = np.mean([int(row["prediction"]) == k // 30 for k, row in enumerate(rows_of(run / "predictions.csv"))])
    assert all(one["low"] <= truth <= one["high"] for one in found["intervals"])


def test_samples_to_label_and_back(run: Path, tmp_path: Path) -> None:
    result = invoke("evaluate", str(run), "--number", "15")
    assert result.exit_code == 0, result.output
    rows = rows_of(run / "to_label.csv")
    assert [row["stratum"] for row in rows].count("less certain") == 5
    assert len(rows) == 15
    empty = invoke("evaluate", str(run), str(run / "to_label.csv"))
    assert empty.exit_code == 2
    assert "rows without a label" in empty.output
    write(tmp_path / "done.csv", [{**row, "label": str(int(row["row"]) // 30)} for row in rows])
    result = invoke("evaluate", str(run), str(tmp_path / "done.csv"))
    assert result.exit_code == 0, result.output
    found = json.loads((run / "evaluation.json").read_text())
    assert [one["method"] for one in found["intervals"]] == ["prediction-powered"]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"row": "99", "label": "0"}], "row 99"),
        ([{"row": "1", "label": ""}], "no label"),
        ([{"sample": "1", "label": "0"}], "columns row"),
        ([{"row": "1", "label": "0"}, {"row": "1", "label": "0"}], "one label each"),
    ],
)
def test_mistakes(run: Path, tmp_path: Path, rows: list[dict[str, str]], message: str) -> None:
    write(tmp_path / "labels.csv", rows)
    result = invoke("evaluate", str(run), str(tmp_path / "labels.csv"))
    assert result.exit_code == 2
    assert message in result.output


def test_the_columns_can_be_named(run: Path, tmp_path: Path) -> None:
    named = tmp_path / "named"
    shutil.copytree(run, named)
    rows = rows_of(run / "predictions.csv")
    write(named / "predictions.csv", [{"name": f"n{k}", **row} for k, row in enumerate(rows)])
    write(tmp_path / "labels.csv", [{"my id": f"n{k}", "kind": "0"} for k in range(10)])
    flags = ["--label", "kind", "--id", "my id"]
    result = invoke("evaluate", str(named), str(tmp_path / "labels.csv"), *flags)
    assert result.exit_code == 0, result.output
    assert json.loads((named / "evaluation.json").read_text())["labels"] == 10
    for folder, words, message in (
        (named, flags[2:], "allowed: columns my id and label"),
        (named, flags[:2], "allowed: columns row (or name) and kind"),
        (run, flags, "got a run without ids"),
    ):
        result = invoke("evaluate", str(folder), str(tmp_path / "labels.csv"), *words)
        assert (result.exit_code, message in result.output) == (2, True), result.output
