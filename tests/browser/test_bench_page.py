"""The page of a bench, as a file."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape
from pathlib import Path

import pytest

from warmpot.bench import Grid, Record, append
from warmpot.errors import InputError
from warmpot.report.grid_page import write_grid_page

Maker = Callable[..., Path]


def words(page: Path) -> str:
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", page.read_text(encoding="utf-8").partition("<main")[2])).split())


def test_the_answer_comes_first(make_bench: Maker, tmp_path: Path) -> None:
    page = write_grid_page(make_bench(tmp_path / "bench", holes=False))
    said = words(page)
    assert said.index("Result") < said.index("plan has the highest mean: ") < said.index("All rows")
    assert "There is no clear winner." in said  # with five tasks no test can be significant
    assert "highest mean, no clear winner" in said
    table = said.partition("Comparison of the rules")[2]
    places = [table.index(f" {row} ") for row in ("plan", "class-level", "uniform")]
    assert places == sorted(places)  # the best first; the grid has them in the other order
    assert "points over source-only" in said
    assert "trainings finished 60 of 60" in said
    assert "Every training of the grid is finished" in said
    assert "Failed and missing trainings" not in said
    names = {"tasks-1", "tasks-2", "gains", "ranks", "choices", "outliers", "time"}
    assert {file.name for file in (tmp_path / "bench" / "figures").iterdir()} == {
        f"{name}.{kind}" for name in names for kind in ("png", "svg")
    }


def test_what_failed_and_what_is_missing_is_reported(make_bench: Maker, tmp_path: Path) -> None:
    folder = make_bench(tmp_path / "bench", rows=("a", "b", "c"))
    said = words(write_grid_page(folder, files=False))
    assert "1 training failed." in said
    assert "Not trained yet: 1 of 45." in said
    assert "b, Office-Home, Art → Product, seed 2" in said
    assert "seed 2: DivergedError" not in said  # the error is in the table and in the fold, not in its title
    assert "finished 2026-01-01 00:00 UTC" in said
    assert "+00:00" not in said.partition("How to reproduce it")[2].partition("The grid")[0]


def test_sensitivity_is_curves_and_a_map(make_bench: Maker, tmp_path: Path) -> None:
    page = write_grid_page(
        make_bench(tmp_path / "bench", rows=("ours",), figure="sensitivity", holes=False), files=False
    )
    found = set(re.findall(r'id="figure-([a-z]+)', page.read_text(encoding="utf-8")))
    assert found == {"curve", "map"}
    assert "ours, alpha 0.4 is best" in words(page)


def test_the_paper_is_quoted_beside_the_histogram_of_its_task(make_bench: Maker, tmp_path: Path) -> None:
    page = write_grid_page(make_bench(tmp_path / "bench", rows=("ours",), figure="histogram", holes=False), files=False)
    captions = re.findall(r"<figcaption>(.*?)</figcaption>", page.read_text(encoding="utf-8"))
    quoted = [caption for caption in captions if "6.04%" in caption]
    assert len(quoted) == 1
    assert "Product → Art" in quoted[0]


def bench(folder: Path, means: dict[str, list[float]]) -> Path:
    """Write a bench with these accuracies in per cent by row, a task each; those of data set `bad` failed."""
    folder.mkdir()
    tasks = [f"s{k} -> t" for k in range(max(map(len, means.values())))]
    data = [{"name": "good", "features": "{domain}.npz", "tasks": tasks}]
    data.append({"name": "bad", "features": "b/{domain}.npz", "tasks": ["x -> y"]})
    rows = [{"name": name, "preset": "full"} for name in means]
    grid = Grid.load({"title": "t", "data": data, "rows": rows, "seeds": 1, "baseline": next(iter(means)),
                      "figure": "histogram"})  # fmt: skip
    (folder / "grid.yaml").write_text(grid.dump(), encoding="utf-8")
    for row, values in means.items():
        append(folder, Record(dataset="bad", task="x -> y", row=row, status="failed", error="no file"))
        for task, value in zip(tasks, values, strict=False):
            counts = {"shared": [1] * 50, "outlier": [1] * 50}
            known = {"dataset": "good", "task": task, "row": row, "accuracy": {"last": value / 100, "oracle": 0.99}}
            append(folder, Record(**known, histogram=counts, any_seed=True))  # type: ignore[arg-type]
    return folder


def answer(page: Path) -> str:
    return words(page).partition("Result")[2].partition("trainings finished")[0]


def test_a_row_is_beaten_only_on_average_and_on_most_tasks(tmp_path: Path) -> None:
    base = [50.0 + k for k in range(12)]
    often = [
        value + 1 + k / 10 for k, value in enumerate(base)
    ]  # a little better on all but one, where it is far below
    often[-1] -= 40
    said = answer(write_grid_page(bench(tmp_path / "mixed", {"often": often, "steady": base}), files=False))
    assert "There is no clear winner. steady has the highest mean" in said
    assert "significantly better than" not in said
    assert "points, mixed: better on 1 task, worse on 11." in said
    assert "Compared with often it is mixed: better on 1 task, worse on 11." in said
    assert "which is significant" not in said
    low = [value - 5 - k / 10 for k, value in enumerate(base)]
    clear = bench(tmp_path / "clear", {"low": low, "short": base[:3], "steady": base})
    said = answer(write_grid_page(clear, files=False))
    assert "steady is best" in said
    assert "points, which is significant." in said
    assert "It is significantly better than every other row." in said
    assert "Not compared, since results of some tasks are missing: short." in said


def test_a_data_set_that_failed_for_every_row_leaves_an_answer(tmp_path: Path) -> None:
    page = write_grid_page(bench(tmp_path / "bench", {"a": [50.0], "b": [60.0]}), files=False)
    said = words(page)
    assert (
        "b has the highest mean: 60.0% on average over 1 of 2 tasks. Over 1 of 2 tasks: 'bad' failed for every row."
        in said
    )
    assert "too few tasks to test" in said
    assert "2 trainings of bad with the same error" in said
    assert "No training is finished on bad: there is nothing to draw." in said
    found = re.findall(r'id="figure-([a-z0-9-]+)"', page.read_text(encoding="utf-8"))
    assert [name for name in found if name.startswith("tasks")] == ["tasks-1"]
    captions = " ".join(re.findall(r"<figcaption>(.*?)</figcaption>", page.read_text(encoding="utf-8")))
    assert "source weights over the largest weight, in 50 bins; one training." in captions  # beta of full is auto
    assert "cap" not in captions


def test_an_empty_bench_has_a_page(make_bench: Maker, tmp_path: Path) -> None:
    folder = make_bench(tmp_path / "bench")
    (folder / "results.jsonl").unlink()
    assert "No row has results for all tasks yet" in words(write_grid_page(folder, files=False))


def test_many_rows_are_drawn_and_those_that_stand_out_are_named(make_bench: Maker, tmp_path: Path) -> None:
    page = write_grid_page(
        make_bench(tmp_path / "bench", rows=tuple(f"row {k}" for k in range(9)), holes=False), files=False
    )
    assert ">others</text>" in page.read_text(encoding="utf-8")


def test_a_folder_without_a_bench_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no grid\.yaml"):
        write_grid_page(tmp_path)
