"""The page of a bench, as a file."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape
from pathlib import Path

import pytest

from warmpot.errors import InputError
from warmpot.report.bench import write_bench_page

Maker = Callable[..., Path]


def words(page: Path) -> str:
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", page.read_text(encoding="utf-8").partition("<main")[2])).split())


def test_the_answer_comes_first(make_bench: Maker, tmp_path: Path) -> None:
    page = write_bench_page(make_bench(tmp_path / "bench", holes=False))
    said = words(page)
    assert said.index("The answer") < said.index("plan is best: ") < said.index("All rows")
    assert "points over source-only" in said
    assert "trainings finished 60 of 60" in said
    assert "Every training of the grid is finished" in said
    assert "What is missing" not in said
    names = {"tasks-1", "tasks-2", "gains", "ranks", "choices", "outliers", "time"}
    assert {file.name for file in (tmp_path / "bench" / "figures").iterdir()} == {
        f"{name}.{kind}" for name in names for kind in ("png", "svg")
    }


def test_what_failed_and_what_is_missing_is_told(make_bench: Maker, tmp_path: Path) -> None:
    folder = make_bench(tmp_path / "bench", rows=("a", "b", "c"))
    said = words(write_bench_page(folder, files=False))
    assert "1 training failed." in said
    assert "Still to be trained: 1 of 45." in said
    assert "b, Office-Home, Art → Product, seed 2: DivergedError: b" in said


def test_sensitivity_is_curves_and_a_map(make_bench: Maker, tmp_path: Path) -> None:
    page = write_bench_page(
        make_bench(tmp_path / "bench", rows=("ours",), figure="sensitivity", holes=False), files=False
    )
    found = set(re.findall(r'id="figure-([a-z]+)', page.read_text(encoding="utf-8")))
    assert found == {"curve", "map"}
    assert "ours, alpha 0.4 is best" in words(page)


def test_the_paper_is_quoted_beside_the_histogram_of_its_task(make_bench: Maker, tmp_path: Path) -> None:
    page = write_bench_page(
        make_bench(tmp_path / "bench", rows=("ours",), figure="histogram", holes=False), files=False
    )
    captions = re.findall(r"<figcaption>(.*?)</figcaption>", page.read_text(encoding="utf-8"))
    quoted = [caption for caption in captions if "6.04 %" in caption]
    assert len(quoted) == 1
    assert "Product → Art" in quoted[0]


def test_an_empty_bench_has_a_page(make_bench: Maker, tmp_path: Path) -> None:
    folder = make_bench(tmp_path / "bench")
    (folder / "results.jsonl").unlink()
    assert "No row has all of its tasks yet" in words(write_bench_page(folder, files=False))


def test_many_rows_are_drawn_and_those_that_stand_out_are_named(make_bench: Maker, tmp_path: Path) -> None:
    page = write_bench_page(
        make_bench(tmp_path / "bench", rows=tuple(f"row {k}" for k in range(9)), holes=False), files=False
    )
    assert ">others</text>" in page.read_text(encoding="utf-8")


def test_a_folder_without_a_bench_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no grid\.yaml"):
        write_bench_page(tmp_path)
