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
    words = [str(folder / "s.npz"), str(folder / "t.npz"), "--preset", "source-only", "--quiet", "--no-report"]
    assert invoke("fit", *words, "--out", str(folder / "run")).exit_code == 0
    assert invoke("fit", *words, "--out", str(folder / "held"), "--holdout", "0.3").exit_code == 0
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
    # the classifier was fitted to these samples, so that no interval is about new ones
    assert all(one["about"].startswith("these target samples") for one in found["intervals"])
    assert "warning" not in result.output


def test_samples_to_label_and_back(run: Path, tmp_path: Path) -> None:
    result = invoke("evaluate", str(run), "--number", "15")
    assert result.exit_code == 0, result.output
    rows = rows_of(run / "to_label.csv")
    assert [row["stratum"] for row in rows].count("less certain, 5 drawn") == 5
    assert len(rows) == 15
    empty = invoke("evaluate", str(run), str(run / "to_label.csv"))
    assert empty.exit_code == 2
    assert "rows without a label" in empty.output
    write(tmp_path / "done.csv", [{**row, "label": str(int(row["row"]) // 30)} for row in rows])
    result = invoke("evaluate", str(run), str(tmp_path / "done.csv"))
    assert result.exit_code == 0, result.output
    found = json.loads((run / "evaluation.json").read_text())
    assert [one["method"] for one in found["intervals"]] == ["prediction-powered"]
    done = rows_of(tmp_path / "done.csv")
    for wrong in (done[1:], [*done, done[0]]):
        write(tmp_path / "wrong.csv", wrong)
        result = invoke("evaluate", str(run), str(tmp_path / "wrong.csv"))
        assert result.exit_code == 2
        assert "drawn" in result.output


def test_a_stratum_of_which_all_rows_were_deleted_may_be_all_wrong(run: Path, tmp_path: Path) -> None:
    for number, lowest in ((15, 0.3), (1, 0.0)):
        assert invoke("evaluate", str(run), "--number", str(number), "--quiet").exit_code == 0
        rows = [row for row in rows_of(run / "to_label.csv") if row["stratum"].startswith("more certain")]
        write(tmp_path / "done.csv", [{**row, "label": row["prediction"]} for row in rows])
        result = invoke("evaluate", str(run), str(tmp_path / "done.csv"))
        assert result.exit_code == 0, result.output
        (one,) = json.loads((run / "evaluation.json").read_text())["intervals"]
        assert lowest <= one["low"] <= 2 / 3
        assert (one["high"], one["estimate"]) == pytest.approx((1.0, 5 / 6))


def test_samples_drawn_for_another_run_are_refused(run: Path, tmp_path: Path) -> None:
    """They are a random part of the strata of that run; of this run's, some are more likely than others."""
    other = tmp_path / "other"
    shutil.copytree(run, other)
    rows = rows_of(run / "predictions.csv")
    write(other / "predictions.csv", [{**row, "confidence": str(k / len(rows))} for k, row in enumerate(rows)])
    assert invoke("evaluate", str(run), "--number", "15", "--quiet").exit_code == 0
    drawn = rows_of(run / "to_label.csv")
    write(tmp_path / "done.csv", [{**row, "label": row["prediction"]} for row in drawn])
    assert invoke("evaluate", str(run), str(tmp_path / "done.csv")).exit_code == 0
    refused = invoke("evaluate", str(other), str(tmp_path / "done.csv"))
    assert refused.exit_code == 2
    assert "in the strata of another run" in refused.output


def test_held_out_samples_are_about_new_ones(run: Path, tmp_path: Path) -> None:
    held = run.parent / "held"
    apart, kept = ([row["row"] for row in rows_of(held / f"{name}.csv")] for name in ("holdout", "predictions"))
    for rows, about, samples in (
        (apart[:12], ["new target samples", "these held-out samples", "these held-out samples"], 18),
        (kept[:12], ["these target samples, as if drawn with replacement", *["these target samples"] * 2], 42),
    ):
        write(tmp_path / "labels.csv", [{"row": k, "label": str(int(k) // 30)} for k in rows])
        result = invoke("evaluate", str(held), str(tmp_path / "labels.csv"))
        assert result.exit_code == 0, result.output
        found = json.loads((held / "evaluation.json").read_text())
        assert (found["samples"], [one["about"] for one in found["intervals"]]) == (samples, about)
        own = {
            row["row"]: row["prediction"]
            for name in ("holdout", "predictions")
            for row in rows_of(held / f"{name}.csv")
        }
        correct = [own[k] == str(int(k) // 30) for k in rows]
        assert found["intervals"][0]["estimate"] == pytest.approx(np.mean(correct))
    write(tmp_path / "labels.csv", [{"row": k, "label": "0"} for k in (apart[0], kept[0])])
    result = invoke("evaluate", str(held), str(tmp_path / "labels.csv"))
    assert (result.exit_code, "samples of both" in result.output) == (2, True), result.output


def test_labels_of_unknown_classes_are_named_and_count_as_wrong(run: Path, tmp_path: Path) -> None:
    own = [row["prediction"] for row in rows_of(run / "predictions.csv")]
    given = [*own[:8], "zebra", "Okapi"]
    write(tmp_path / "labels.csv", [{"row": str(k), "label": name} for k, name in enumerate(given)])
    result = invoke("evaluate", str(run), str(tmp_path / "labels.csv"))
    assert result.exit_code == 0, result.output
    assert "classes the run lacks: 'Okapi', 'zebra'" in result.output
    assert json.loads((run / "evaluation.json").read_text())["intervals"][0]["estimate"] == 0.8
    quiet = invoke("evaluate", str(run), str(tmp_path / "labels.csv"), "--quiet")
    assert (quiet.exit_code, quiet.output) == (0, "")


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
