"""`warmpot bench` as a user sees it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from warmpot.bench import grid_names, read_store, runner
from warmpot.cli import app

FAST = {"full": {"rounds": 1, "iterations": 2, "width": 4}, "minibatch": {"steps": 2, "source_batch": 8}}
GRID = {
    "title": "A <b>small</b> grid",
    "data": [{"name": "blobs", "source": "s.npz", "target": "t.npz"}],
    "rows": [
        {"name": "none", "preset": "source-only"},
        {"name": "wild [x]", "preset": "source-only-frozen", "set": {"minibatch.optimizer.lr": 1e30}},
    ],
    "seeds": 2,
    "choose": ["neighbours"],
    "baseline": "none",
    "set": FAST,
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for name, y in (("s", np.repeat(np.arange(3), 8)), ("t", np.repeat([0, 1], 6))):
        np.savez(tmp_path / f"{name}.npz", X=3.0 * np.eye(3)[y] + rng.normal(size=(len(y), 3)), y=y)
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(GRID))
    return tmp_path


def run(*words: object) -> Any:
    return CliRunner().invoke(app, ["bench", *map(str, words)])


def test_alone_it_lists_the_grids() -> None:
    answer = run()
    assert answer.exit_code == 0
    assert all(name in answer.stdout for name in grid_names())
    words = run("--help")
    assert words.exit_code == 0
    assert "--dry-run" in words.stdout
    assert "warmpot bench compare A B" in " ".join(words.stdout.split())
    assert "--fail-below" in run("compare", "--help").stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["comparison-featurs"], "Did you mean 'comparison-features'?"),
        (["nowhere.yaml"], "No such file"),
        (["ablation-features", "--only", "nowhere"], "Give a part of one of these."),
        (["ablation-features", "--seeds", "0"], "--seeds"),
        (["ablation-features", "--set", "seed=3"], "Use --seeds"),
        (["ablation-features", "--set", "minibatch.stepz=3"], "stepz"),
        (["ablation-features", "--data", "nowhere", "--out", "OUT"], "--data"),
        (["ablation-features", "--jobs", "0", "--data", "nowhere", "--out", "OUT"], "--jobs"),
        (["ablation-features", "--reuse", "nowhere", "--out", "OUT"], "the folder of a bench"),
        (["tables", "nowhere"], "No such file"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_one_line(words: list[str], said: str, tmp_path: Path) -> None:
    answer = run(*(str(tmp_path / "out") if word == "OUT" else word for word in words))
    assert answer.exit_code == 2, answer.output
    assert said in answer.stderr
    assert answer.stderr.count("\n") <= 2
    assert "Traceback" not in answer.output


def test_a_dry_run_counts_and_estimates_and_writes_nothing(folder: Path) -> None:
    answer = run(
        "comparison-features", "--dry-run", "--only", "Office-31", "--only", "warmpot", "--out", folder / "out"
    )
    assert answer.exit_code == 0, answer.output
    assert re.search(r"^warmpot +0 of 18 +22$", answer.stdout, flags=re.MULTILINE)
    assert re.search(r"^warmpot, full +0 of 6 +8$", answer.stdout, flags=re.MULTILINE)
    assert "mpot-frozen" not in answer.stdout
    one, two = (
        run("comparison-features", "--dry-run", "--jobs", number, "--out", folder / "out").stdout for number in (1, 2)
    )
    assert "1275 cells, 0 done, 1275 left" in one
    hours = [float(re.search(r"time left +([\d.]+) h", text)[1]) for text in (one, two)]  # type: ignore[index]
    assert hours[0] == pytest.approx(2 * hours[1], abs=0.2)
    rough = run(folder / "small.yaml", "--dry-run", "--out", folder / "out").stdout
    assert re.search(r"time left +unknown +no similar cell is finished", rough)
    assert "3 cells, 0 done, 3 left" in rough
    assert "1 of the cells holds for all seeds" in rough
    assert not (folder / "out").exists()


def test_a_dry_run_of_images_says_that_it_does_not_know(tmp_path: Path) -> None:
    data = [{"name": "pictures", "images": "office-home", "tasks": ["Art -> Product"]}]
    (tmp_path / "grid.yaml").write_text(yaml.safe_dump({"title": "x", "data": data, "rows": GRID["rows"][:1]}))
    printed = run(tmp_path / "grid.yaml", "--dry-run", "--set", "engine=minibatch").stdout
    assert re.search(r"time left +unknown +no similar cell is finished yet *$", printed, flags=re.MULTILINE), printed
    assert "all seeds" not in printed


def test_the_oracle_that_knows_the_classes_is_asked_for(folder: Path) -> None:
    words = [folder / "small.yaml", "--data", folder, "--out", folder / "out", "--only", "none", "--known-classes"]
    assert "2 cells, 0 done, 2 left" in run(*words, "--dry-run").stdout
    answer = run(*words)
    assert answer.exit_code == 0, answer.output
    head = answer.stdout.split("none")[0]
    assert all(word in head.split() for word in ("known", "classes", "gap,"))  # a narrow terminal breaks the head
    assert [record.known_classes for record in read_store(folder / "out")] == [False, True]
    assert "oracle: known classes" in (folder / "out" / "tables.md").read_text()


def test_a_failed_cell_is_reported_and_the_rest_is_written(folder: Path) -> None:
    words = [folder / "small.yaml", "--data", folder, "--out", folder / "out"]
    first = run(*words)
    assert first.exit_code == 1, first.output
    failures = [line for line in first.stderr.splitlines() if line.startswith("failed: ")]
    assert len(failures) == 2  # a seed each
    assert failures[0].startswith("failed: blobs, s -> t, wild [x], seed 0: DivergedError: ")
    assert "2 of 3 cells failed; the same command tries them again" in first.stderr
    assert re.search(r"^none +\d+\.\d", first.stdout, flags=re.MULTILINE)
    for name in ("results.jsonl", "results.csv", "tables.md", "tables.tex", "report.html", "grid.yaml"):
        assert (folder / "out" / name).stat().st_size > 0
        assert name in first.stdout or name == "grid.yaml"
    assert "<b>small</b>" not in (folder / "out" / "report.html").read_text()
    printed = run(*words, "--dry-run").stdout
    assert "3 cells, 1 done, 2 left" in printed
    good = [*words, "--only", "none"]
    again = run(*good)
    assert again.exit_code == 0, again.output
    assert "1 cell, 1 done, 0 left" in again.stderr
    assert len((folder / "out" / "results.jsonl").read_text().splitlines()) == 3
    quiet = run(*good, "--quiet")
    assert (quiet.exit_code, quiet.output) == (0, "")
    (folder / "out" / "tables.md").unlink()
    tables = run("tables", folder / "out")
    assert tables.exit_code == 0, tables.output
    assert (folder / "out" / "tables.md").exists()
    assert run("compare", folder / "out", folder / "out").exit_code == 0
    other = run(*good, "--set", "full.rounds=2")
    assert other.exit_code == 2
    assert "another grid: other set" in other.stderr


def test_the_same_error_is_reported_once_and_counted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(data: Any, cell: Any) -> Any:
        raise ValueError("no [bold] file")

    monkeypatch.setattr(runner, "_train", broken)
    answer = run(folder / "small.yaml", "--data", folder, "--out", folder / "out")
    shown = [line for line in answer.stderr.splitlines() if "no [bold] file" in line]
    assert shown == [
        "failed: blobs, s -> t, none, seed 0: ValueError: no [bold] file",
        "failed: 3 cells of data set blobs: ValueError: no [bold] file",
    ]
    page = (folder / "out" / "report.html").read_text()
    assert page.count("3 trainings of blobs with the same error") == 1
    assert "3 of 3 cells failed" in answer.stderr


def test_ctrl_c_keeps_what_is_finished(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original, calls = runner._train, list[int]()

    def interrupted(data: Any, cell: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return original(data, cell)

    monkeypatch.setattr(runner, "_train", interrupted)
    words = [folder / "small.yaml", "--data", folder, "--out", folder / "out", "--only", "none"]
    words += ["--set", "engine=minibatch", "--set", "minibatch.network.width=4"]
    first = run(*words)
    assert first.exit_code == 130, first.output
    assert f"finished cells are stored, the same command continues in {folder / 'out'}" in first.stderr
    assert [record.seed for record in read_store(folder / "out")] == [0]
    again = run(*words, "--quiet")
    assert again.exit_code == 0, again.output
    assert [record.seed for record in read_store(folder / "out")] == [0, 1]
    assert len(calls) == 3


def test_paths_start_at_the_grids_file_and_results_are_in_runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir(folder / "elsewhere")
    words = ["../small.yaml", "--only", "none", "--seeds", "1"]
    assert run(*words, "--quiet").exit_code == 0
    assert len(read_store(Path("runs/small-bench"))) == 1
    Path("runs/small-bench").rename("bench-small")  # the default of earlier versions is continued, if it has results
    assert "1 done, 0 left" in run(*words).stderr
    assert not Path("runs/small-bench").exists()


def test_grids_are_listed_by_name() -> None:
    assert run("list").stdout == run().stdout
