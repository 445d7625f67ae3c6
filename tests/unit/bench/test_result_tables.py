"""Summaries, comparisons of rows, tables and files of a grid, and the comparison of two folders."""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from warmpot._tables import escape_latex
from warmpot.bench import Grid, Record, append
from warmpot.bench.folder_comparison import compare_folders
from warmpot.bench.grid import GRID
from warmpot.bench.paper_comparison import compare_with_paper, paper_by_task, systems
from warmpot.bench.result_tables import PAPER, all_tables, as_latex, as_markdown, table_sections, write_tables
from warmpot.bench.significance import best_variant, compare_variants, rank_variants, verdict, wilcoxon
from warmpot.bench.summary import Summary, Variant, best_indices
from warmpot.cli._bench_compare import compare as command
from warmpot.errors import InputError

RULES = ("last", "neighbours", "oracle")
ODD = [
    "a|b",
    "a & b",
    "50%",
    "x_y",
    "back\\slash",
    "two\nlines",
    "<script>alert(1)</script>",
    "[0]",
    "$x$",
    "~^{}#",
    "*s*",
]


def grid(**changes: Any) -> Grid:
    """Two data sets, three tasks, three rows, three seeds."""
    found = {
        "title": "Some methods",
        "setting": "frozen features",
        "reported": "office-home",
        "data": [
            {"name": "Office-Home", "features": "x/{domain}.npz", "tasks": ["Art -> Product", "Art -> Real World"]},
            {"name": "other", "features": "y/{domain}.npz", "tasks": ["s -> t"], "setting": "16 x 16 pixels"},
        ],
        "rows": [
            {"name": "source-only", "preset": "source-only-frozen", "reported": "ResNet-50"},
            {"name": "warmpot", "preset": "frozen", "reported": "WARMPOT"},
            {"name": "ours", "preset": "full"},
        ],
        "seeds": 3,
        "choose": ["neighbours"],
        "baseline": "source-only",
    }
    return Grid.load({**found, **changes})


def record(row: str, place: tuple[str, str], seed: int, accuracy: float, **more: Any) -> Record:
    """An accuracy in per cent; the rules differ by a point each."""
    found = {rule: accuracy / 100 + k / 100 for k, rule in enumerate(RULES)}
    plain = {"key": f"{row}{place}{seed}", "steps": dict.fromkeys(RULES, 10), "outlier_weight": 0.25, "seconds": 2.0}
    more = {"accuracy": found, "versions": {"warmpot": "1.0"}, **plain, **more}
    return Record(dataset=place[0], task=place[1], row=row, seed=seed, **more)


def records(asked: Grid, base: dict[str, float] | None = None, seeds: Iterable[int] = range(3)) -> list[Record]:
    """Every cell: a row's number, plus the place's, plus the seed's."""
    base = base or {"source-only": 60.0, "warmpot": 70.0, "ours": 75.0}
    places = [(data.name, task) for data in asked.data for task in data.tasks]
    return [
        record(row.name, place, seed, base[row.name] + k + seed)
        for row in asked.rows for k, place in enumerate(places) for seed in seeds
    ]  # fmt: skip


def stored(folder: Path, asked: Grid, found: Iterable[Record]) -> Path:
    folder.mkdir()
    (folder / GRID).write_text(asked.dump(), encoding="utf-8")
    for each in found:
        append(folder, each)
    return folder


def sheet(summary: Summary, name: str) -> list[list[str]]:
    """Texts of a table, bold between stars, the head first."""
    found = next(each for each in all_tables(summary) if each.name == name)
    rows = [[f"*{entry.text}*" if entry.bold else entry.text for entry in row] for row in found.rows]
    return [[column.name for column in found.columns], *rows]


# the summary


def test_means_and_spreads() -> None:
    asked = grid()
    found = Summary(asked, records(asked))
    line = Variant("warmpot")
    task = found.score(line, ("Office-Home", "Art -> Real World"), "last")
    assert task.mean == pytest.approx(72.0)
    assert task.std == pytest.approx(1.0)  # 71, 72, 73: sample standard deviation
    assert task.text == "72.0 (1.0)"
    assert found.mean(line, "oracle", "Office-Home").text == "73.5 (1.0)"
    assert found.mean(line, "neighbours").mean == pytest.approx(73.0)
    assert found.n_done == found.n_trainings == 27
    assert found.missing == found.failed == ()
    assert found.count_below(line, Variant("ours"), "last") == (3, 3)


def test_the_spread_over_tasks_is_that_of_whole_seeds() -> None:
    asked = grid()
    opposite = [(0, 60.0, 70.0), (1, 62.0, 68.0), (2, 70.0, 60.0)]  # their means are 65 for every seed
    a, b = ("Office-Home", "Art -> Product"), ("Office-Home", "Art -> Real World")
    cells = [
        record("ours", place, seed, value) for seed, *two in opposite for place, value in zip((a, b), two, strict=True)
    ]
    assert Summary(asked, cells).mean(Variant("ours"), "last", "Office-Home").text == "65.0 (0.0)"
    fewer = Summary(asked, cells[:-1])  # seed 2 lacks a task: it has no mean
    assert fewer.mean(Variant("ours"), "last", "Office-Home").text == "65.0 (0.0), 2 of 3 seeds"
    assert fewer.mean(Variant("warmpot"), "last").text == "-"
    assert fewer.mean(Variant("ours"), "last").text == "65.0 (0.0), 2 of 3 seeds"  # nobody has the third task
    assert fewer.excluded_note == "Over 2 of 3 tasks: 'other' not finished for any row."
    assert fewer.score(Variant("ours"), b, "last").text == "69.0 (1.4), 2 of 3 seeds"


def test_one_run_stands_for_every_seed() -> None:
    asked = grid()
    places = [("Office-Home", "Art -> Product"), ("Office-Home", "Art -> Real World")]
    cells = [record("ours", places[0], 0, 80.0, any_seed=True)]
    found = Summary(asked, cells)
    assert found.score(Variant("ours"), places[0], "last").text == "80.0"  # no spread, no missing seed
    assert found.n_trainings == 25
    drawn = [record("ours", places[1], seed, 60.0 + 2 * seed) for seed in range(3)]
    mixed = Summary(asked, [*cells, *drawn]).mean(Variant("ours"), "last", "Office-Home")
    assert mixed.values == pytest.approx({0: 70.0, 1: 71.0, 2: 72.0})
    assert mixed.text == "71.0 (1.0)"


def test_failed_missing_and_foreign_records_are_reported() -> None:
    asked = grid()
    cells = records(asked)
    broken = Record(dataset="other", task="s -> t", row="ours", seed=1, status="failed", error="out of memory | <b>")
    foreign = record("of another grid", ("other", "s -> t"), 0, 50.0)
    kept = [r for r in cells if not (r.row == "ours" and r.dataset == "other" and r.seed >= 1)]
    found = Summary(asked, [*kept, broken, foreign])
    assert found.foreign_records == 1
    assert [(m.variant.row, m.task, m.untrained, m.failed) for m in found.missing] == [
        ("ours", ("other", "s -> t"), (2,), (1,))
    ]
    text = as_markdown(found)
    assert "Setting: frozen features. other: 16 x 16 pixels." in text
    assert "Failed trainings: 1" in text
    assert "out of memory \\| &lt;b&gt;" in text
    assert "Not trained yet: 1 of 27" in text
    assert "1 records of other grids" in text
    assert "77.0, 1 of 3 seeds" in text
    assert "Ranked by fewer seeds than requested: ours." in text
    assert best_indices([81.24, 81.16, None]) == {0, 1}


def failed(row: str, place: tuple[str, str], seed: int, error: str = "boom") -> Record:
    return Record(dataset=place[0], task=place[1], row=row, seed=seed, status="failed", error=error)


def test_a_task_that_failed_for_every_row_does_not_empty_the_means() -> None:
    asked, bad = grid(), ("other", "s -> t")
    kept = [r for r in records(asked) if r.dataset != "other"]
    lost = [failed(row.name, bad, seed) for row in asked.rows for seed in range(3)]
    found = Summary(asked, [*kept, *lost])
    assert found.excluded_note == "Over 2 of 3 tasks: 'other' failed for every row."
    assert best_variant(found, "last") == Variant("ours")
    head, *rows = sheet(found, "overview-last")
    assert head == ["row", "Office-Home (2)", "other (0 of 1)", "all tasks (2 of 3)"]
    assert [row[2:] for row in rows] == [["-", "61.5 (1.0)"], ["-", "71.5 (1.0)"], ["-", "*76.5 (1.0)*"]]
    assert rank_variants(found, "last").tasks == 2  # type: ignore[union-attr]
    text = as_markdown(found)
    assert "mean over 2 of 3 tasks" in text
    assert "Over 2 of 3 tasks: 'other' failed for every row." in text
    # nine trainings with one error are one line
    assert sheet(found, "failed")[1:] == [
        ["source-only; warmpot; ours", "other, s -> t", "0; 1; 2", "9", "boom"]
    ]  # fmt: skip
    one = Summary(asked, [*kept, record("warmpot", bad, 0, 50.0), *lost[:3], *lost[6:]])  # now others lack it
    assert one.excluded_note == ""
    assert best_variant(one, "last") == Variant("warmpot")
    assert one.mean(Variant("ours"), "last").text == "-"


@pytest.mark.parametrize(
    ("differences", "said"),
    [
        ([1.0 + k for k in range(8)], "better"),
        ([-1.0 - k for k in range(8)], "worse"),
        ([1.0 + k / 10 for k in range(11)] + [-40.0], "mixed"),
        ([-1.0 - k / 10 for k in range(11)] + [40.0], "mixed"),
        ([1.0 + k for k in range(5)], ""),
        ([1.0, -1.0] * 6, ""),
    ],
)
def test_a_row_is_better_only_when_the_mean_and_most_tasks_agree(differences: list[float], said: str) -> None:
    found = wilcoxon(differences)
    assert verdict(found, found.pvalue) == said
    assert found.too_few == (len(differences) < 6)


def test_points_of_a_grid_are_lines_of_their_own() -> None:
    asked = grid(
        rows=[{"name": "warmpot", "preset": "frozen"}], vary={"params.alpha": [0.2, 0.8]}, baseline="", reported=""
    )
    place = ("other", "s -> t")
    cells = [record("warmpot", place, 0, 50 + 10 * alpha, point={"params.alpha": alpha}) for alpha in (0.2, 0.8)]
    found = Summary(asked, cells)
    assert [line.label for line in found.variants] == ["warmpot, alpha 0.2", "warmpot, alpha 0.8"]
    assert [found.score(line, place, "last").mean for line in found.variants] == pytest.approx([52.0, 58.0])
    assert PAPER not in table_sections(found)


# rows against each other


def test_pairs_over_seeds_and_over_tasks() -> None:
    asked = grid()
    found = Summary(asked, records(asked))
    against = {c.variant.row: c for c in compare_variants(found, "last", Variant("source-only"))}
    assert set(against) == {"warmpot", "ours"}
    assert (against["ours"].pairs.pairs, against["ours"].tasks.pairs) == (9, 3)
    assert against["ours"].pairs.difference == pytest.approx(15.0)
    assert against["ours"].tasks.pvalue == pytest.approx(0.25)  # 2 of the 8 patterns of three signs
    assert against["ours"].tasks_holm == pytest.approx(0.5)
    assert best_variant(found, "last") == Variant("ours")
    ranks = rank_variants(found, "last")
    assert ranks is not None
    assert [line.row for line in ranks.variants] == ["ours", "warmpot", "source-only"]
    assert ranks.ranks == (1.0, 2.0, 3.0)


def test_runs_that_no_seed_changes_are_one_pair() -> None:
    asked = grid()
    place = ("other", "s -> t")
    same = [record("ours", place, 0, 80.0, any_seed=True), record("source-only", place, 0, 70.0, any_seed=True)]
    drawn = [record("warmpot", place, seed, 75.0) for seed in range(3)]
    found = {
        c.variant.row: c.pairs.pairs
        for c in compare_variants(Summary(asked, same + drawn), "last", Variant("source-only"))
    }
    assert found == {"ours": 1, "warmpot": 3}
    assert rank_variants(Summary(asked, same + drawn), "last") is None  # tasks are missing


def test_a_row_that_lacks_a_task_is_left_out_of_the_ranks() -> None:
    asked = grid()
    cells = [r for r in records(asked) if not (r.row == "ours" and r.dataset == "other")]
    found = rank_variants(Summary(asked, cells), "last")
    assert found is not None
    assert found.excluded == (Variant("ours"),)
    assert found.friedman is None  # of two
    assert "Not ranked, since results of a task are missing: ours." in as_markdown(Summary(asked, cells))
    costs = {row[0]: row[-2:] for row in sheet(Summary(asked, cells), "rules")}
    assert costs["ours"] == ["25.0, 2 of 3 tasks", "2.0, 2 of 3 tasks"]
    assert costs["warmpot"] == ["25.0", "2.0"]


# tables


def test_all_systems_are_rows_and_the_papers_numbers_are_ranked_apart() -> None:
    asked = grid()
    summary = Summary(asked, records(asked))
    head, *rows = sheet(summary, "paper")
    assert {row[0] for row in rows} == {*systems(), "(not in the paper)"}
    assert len(rows) == 29
    by_name = {row[0]: dict(zip(head, row, strict=True)) for row in rows}
    ours = by_name["WARMPOT"]
    assert (ours["here"], ours["last (2)"], ours["oracle (2)"]) == ("warmpot", "71.5 (1.0)", "73.5 (1.0)")
    assert ours["same 2 tasks"] == f"{(83.0 + 89.5) / 2:.1f}"
    assert (ours["Office-Home (12)"], ours["ImageNet-Caltech (1)"]) == ("77.6 (0.7)", "84.8 (0.1)")
    assert by_name["(not in the paper)"]["last (2)"] == "*76.5 (1.0)*"  # best of ours, though below the paper's
    assert by_name["ARPM+our-weights"]["Office-Home (12)"] == "*82.0 (0.4)*"
    assert {name: row["here"] for name, row in by_name.items() if name in ("ResNet-50", "CLA", "MPOT")} == {
        "ResNet-50": "source-only", "CLA": "reported only", "MPOT": "not in this grid",
    }  # fmt: skip
    found = compare_with_paper(summary)
    assert found is not None
    assert [c.group for c in found.columns if c.name == "last (2)"] == ["ours: frozen features"]
    assert any("no code found" in note and "STCPDA" in note for note in found.notes)
    tasks = paper_by_task(summary)
    assert tasks is not None
    assert [column.name for column in tasks.columns][1:3] == ["A->P", "A->R"]


def test_a_system_with_two_rows_is_ranked_once() -> None:
    rows = [{"name": f"reading {k}", "preset": "frozen", "reported": "ARPM+our-weights"} for k in "AB"]
    asked = grid(rows=rows, baseline="")
    head, *lines = sheet(Summary(asked, []), "paper")
    found = [dict(zip(head, line, strict=True)) for line in lines if line[0] == "ARPM+our-weights"]
    assert [row["here"] for row in found] == [f"reading {k} (interpretation, not trained yet)" for k in "AB"]
    assert [row["Office-Home (12)"] for row in found] == ["*82.0 (0.4)*", ""]
    assert {row["last (2)"] for row in found} == {"-"}


def test_weights_have_their_own_table_and_a_grid_elsewhere_says_so() -> None:
    rows = [{"name": "uniform", "preset": "frozen", "reported": "MPOT weights"}, {"name": "mine", "preset": "frozen"}]
    elsewhere = [{"name": "mine", "source": "a.npz", "target": "b.npz"}]
    asked = grid(rows=rows, baseline="", reported="office-home-ablation", data=elsewhere)
    found = compare_with_paper(Summary(asked, []))
    assert found is not None
    assert [row[0].text for row in found.rows] == [
        "MPOT weights", "BA3US weights", "ARPM weights", "WARMPOT", "(not in the paper)"
    ]  # fmt: skip
    assert found.notes[0] == "This grid has none of the tasks of that table."


def test_bold_is_the_best_of_a_column_and_ties_are_all_bold() -> None:
    asked = grid()
    base = {"source-only": 60.0, "warmpot": 75.04, "ours": 75.0}
    rows = sheet(Summary(asked, records(asked, base)), "overview-last")
    assert [row[-1] for row in rows[1:]] == ["62.0 (1.0)", "*77.0 (1.0)*", "*77.0 (1.0)*"]
    assert {each.name for each in all_tables(Summary(asked, records(asked)))} >= {f"overview-{rule}" for rule in RULES}


@pytest.fixture(scope="module")
def odd() -> Summary:
    """Names that mean something in Markdown, HTML or LaTeX."""
    asked = grid(
        title="<script> & 100%", setting="a_b | c", rows=[{"name": name, "preset": "frozen"} for name in ODD],
        baseline=ODD[0], data=[{"name": "d|e&f_%", "features": "y/{domain}.npz", "tasks": ["s|1 -> t&2", "a -> <b>"]}],
    )  # fmt: skip
    cells = records(asked, {name: 50.0 + k for k, name in enumerate(ODD)}, seeds=[0])
    broken = Record(dataset="d|e&f_%", task="a -> <b>", row=ODD[1], seed=1, status="failed", error="{\\bad} | <i>\nx")
    return Summary(asked, [*cells, broken])


def test_markdown_shows_every_name_as_it_is(odd: Summary) -> None:
    text = as_markdown(odd)
    assert "<" not in text
    head = None
    for line in text.splitlines():
        if not line.startswith("|"):
            head = None
            continue
        bars = len(re.findall(r"(?<!\\)\|", line))
        head = head or bars
        assert bars == head, line
    assert r"a\|b" in text
    assert "two lines" in text


def test_latex_has_the_same_number_of_cells_in_every_line(odd: Summary) -> None:
    text = as_latex(odd)
    tabulars = re.findall(r"\\begin\{tabular\}\{([lr]+)\}\n(.*?)\\end\{tabular\}", text, re.DOTALL)
    assert len(tabulars) == len(all_tables(odd)) == text.count(r"\begin{table*}") == text.count(r"\end{table*}")
    for form, body in tabulars:
        lines = [line for line in body.splitlines() if line.endswith(r"\\")]
        assert lines
        for line in lines:
            cells = 1 + len(re.findall(r"(?<!\\)&", line))
            wide = sum(int(width) - 1 for width in re.findall(r"\\multicolumn\{(\d+)\}", line))
            assert cells + wide == len(form), line
            assert not line.startswith(("[", "*"))  # an argument of the line break above
    outside = [line for line in text.splitlines() if not line.startswith("%")]
    plain = re.sub(r"\\[\\{}%&#$_]", "", "\n".join(outside))
    depth = 0
    for letter in plain:
        depth += (letter == "{") - (letter == "}")
        assert depth >= 0
    assert depth == 0
    assert plain.count("$") % 2 == 0
    assert not re.search(r"[%#~^]", plain.replace("#1", ""))
    assert text.count(r"\toprule") == text.count(r"\bottomrule") == len(tabulars)


@given(st.text(max_size=20))
def test_latex_leaves_no_letter_that_means_something(text: str) -> None:
    words = escape_latex(text).replace(r"$\to$", "")
    for known in (r"\textbackslash{}", r"\textasciitilde{}", r"\textasciicircum{}", r"\textless{}", r"\textgreater{}",
                  r"\textbar{}"):  # fmt: skip
        words = words.replace(known, "")
    assert not re.search(r"[\\{}$&#_%~^\n]", re.sub(r"\\[{}$&#_%]", "", words))


def test_files_are_written(tmp_path: Path) -> None:
    import pyarrow.parquet

    asked = grid()
    broken = Record(key="k", dataset="other", task="s -> t", row="ours", seed=2, status="failed", error='boom, "x"\ny')
    kept = [r for r in records(asked) if not (r.row == "ours" and r.dataset == "other" and r.seed == 2)]
    folder = stored(tmp_path / "out", asked, [*kept, broken])
    paths = write_tables(folder)
    assert [path.name for path in paths] == ["results.csv", "tables.md", "tables.tex", "results.parquet"]
    with open(folder / "results.csv", newline="", encoding="utf-8") as stream:
        lines = list(csv.DictReader(stream))
    assert len(lines) == 26 * 3 + 1
    first = lines[0]
    assert (first["row"], first["task"], first["seed"], first["rule"]) == ("source-only", "Art -> Product", "0", "last")
    assert float(first["accuracy"]) == pytest.approx(0.6)
    assert (first["step"], first["outlier_weight"], first["status"], first["version"]) == ("10", "0.25", "done", "1.0")
    failed = [line for line in lines if line["status"] == "failed"]
    assert [(line["rule"], line["accuracy"], line["error"]) for line in failed] == [("", "", 'boom, "x"\ny')]
    table = pyarrow.parquet.read_table(folder / "results.parquet").to_pylist()
    assert len(table) == len(lines)
    assert table[0]["accuracy"] == pytest.approx(0.6)
    assert table[-1]["accuracy"] is None
    assert write_tables(folder) == paths  # again, over the old ones


def test_an_error_that_names_a_file_in_no_utf8_is_written(tmp_path: Path) -> None:
    name = b"/data/\xff.npz".decode("utf-8", "surrogateescape")
    broken = Record(key="k", dataset="other", task="s -> t", row="ours", status="failed", error=f"no {name}")
    folder = stored(tmp_path / "out", grid(), [broken])
    assert len(write_tables(folder)) == 4
    assert "no /data/?.npz" in (folder / "results.csv").read_text(encoding="utf-8")


def test_varied_settings_are_columns(tmp_path: Path) -> None:
    asked = grid(
        rows=[{"name": "warmpot", "preset": "frozen"}], vary={"params.alpha": [0.2, 0.8]}, baseline="", reported=""
    )
    cells = [record("warmpot", ("other", "s -> t"), 0, 50.0, point={"params.alpha": alpha}) for alpha in (0.2, 0.8)]
    folder = stored(tmp_path / "out", asked, cells)
    write_tables(folder)
    with open(folder / "results.csv", newline="", encoding="utf-8") as stream:
        assert {line["params.alpha"] for line in csv.DictReader(stream)} == {"0.2", "0.8"}


def test_without_results_and_without_pyarrow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    folder = stored(tmp_path / "out", grid(), [])
    with caplog.at_level("INFO", logger="warmpot"):
        paths = write_tables(folder)
    assert [path.name for path in paths] == ["results.csv", "tables.md", "tables.tex"]
    assert "pip install 'warmpot[parquet]'" in caplog.text
    assert (folder / "results.csv").read_text().startswith("key,dataset,task,row,")
    assert "0 of 27 trainings are done" in (folder / "tables.md").read_text()


# two results


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Path]:
    """The second: warmpot 3 points lower on one task, another version, other seeds, a failure, a new row."""
    asked = grid()
    old = stored(tmp_path / "old", asked, records(asked))
    later = []
    for r in records(asked, seeds=(1, 2, 3)):
        lower = r.row == "warmpot" and r.dataset == "other"
        value = 100 * r.accuracy["last"] - (3.0 if lower else 0.0)
        key = "changed" if lower else r.key
        later.append(record(r.row, (r.dataset, r.task), r.seed, value, versions={"warmpot": "2.0"}, key=key))
    later = [r for r in later if not (r.row == "ours" and r.dataset == "other" and r.seed == 1)]
    later.append(Record(dataset="other", task="s -> t", row="ours", seed=1, status="failed", error="boom"))
    more = grid(rows=[*asked.to_mapping()["rows"], {"name": "new", "preset": "frozen"}])
    later.append(record("new", ("other", "s -> t"), 1, 90.0))
    return old, stored(tmp_path / "new", more, later)


def test_compare_matches_cells(two: tuple[Path, Path]) -> None:
    found = compare_folders(*two)
    assert found.cells == 2 * 9 - 1
    assert found.other_settings == 2
    assert found.differing == {"settings or data": ("warmpot",)}  # of a key that no grid has
    assert found.versions == {"warmpot": ("1.0", "1.0, 2.0")}
    assert found.settings is None
    rows = {row.variant.row: row for row in found.rows}
    assert rows["warmpot"].difference == pytest.approx(-1.0)  # 3 points on one of three tasks
    assert rows["source-only"].difference == pytest.approx(0.0)
    assert [(t.variant.row, t.task, t.cells) for t in found.worse] == [("warmpot", ("other", "s -> t"), 2)]
    assert found.worse[0].spread == pytest.approx(np.sqrt(0.5))  # of two numbers, one apart
    assert len(found.only_before) == 10  # seed 0, and the training that broke
    assert "other, s -> t, new, seed 1" in found.only_after
    assert found.broken == ("other, s -> t, ours, seed 1",)
    assert found.dropped(1.5) == ()
    assert [row.variant.row for row in found.dropped(0.5)] == ["warmpot"]


def test_a_run_for_every_seed_is_compared_with_each(tmp_path: Path) -> None:
    asked, place = grid(), ("other", "s -> t")
    old = stored(tmp_path / "a", asked, [record("ours", place, 0, 80.0, any_seed=True)])
    new = stored(tmp_path / "b", asked, [record("ours", place, seed, 80.0 + seed) for seed in range(3)])
    found = compare_folders(old, new)
    assert (found.cells, found.rows[0].after, found.only_before, found.only_after) == (3, pytest.approx(81.0), (), ())
    assert compare_folders(old, old).tasks[0].spread is None
    assert not compare_folders(old, old).tasks[0].changed


def test_nothing_in_common_is_an_error(tmp_path: Path, two: tuple[Path, Path]) -> None:
    other = stored(tmp_path / "c", grid(), [record("ours", ("other", "s -> t"), 7, 80.0)])
    with pytest.raises(InputError, match="no training in common"):
        compare_folders(two[0], other)
    with pytest.raises(InputError, match="rule: got 'snd'; allowed: last, neighbours, oracle"):
        compare_folders(*two, "snd")
    with pytest.raises(InputError, match=r"no results\.jsonl with records"):
        compare_folders(two[0], tmp_path / "nowhere")


def test_the_command_fails_when_a_row_fell(two: tuple[Path, Path], tmp_path: Path) -> None:
    app = typer.Typer()
    app.command()(command)
    a, b = map(str, two)
    run = CliRunner().invoke
    plain = run(app, [a, b])
    assert plain.exit_code == 0
    assert "-1.0" in plain.output
    assert "1.0 -> 1.0, 2.0" in plain.output
    assert f"Only in {b}" in plain.output
    assert "failed in" in plain.output
    assert "too few tasks to test" in plain.output
    assert "1.000" not in plain.output
    fell = run(app, [a, b, "--fail-below", "0.5"])
    assert fell.exit_code == 1
    assert "warmpot fell by 1.0 points, more than 0.5" in fell.output
    assert f"warning: 9 trainings of {a} not finished in {b}" in fell.output  # seed 0; that which broke is apart
    same = run(app, [a, a, "--fail-below", "0"])
    assert same.exit_code == 0
    assert "warning" not in same.output
    assert "the same" in same.output
    assert run(app, [a, b, "--fail-below", "5"]).exit_code == 1  # a training broke
    assert run(app, [b, a, "--fail-below", "5", "--all", "--rule", "oracle"]).exit_code == 0
    assert isinstance(run(app, [a, b, "--fail-below", "-1"]).exception, InputError)


def test_compare_names_the_settings_that_differ(tmp_path: Path) -> None:
    folders = []
    for name, rounds, content in (("old", 2, "aa"), ("new", 3, "bb")):
        asked = grid(set={"full": {"rounds": rounds}})
        found = [
            record(cell.row.name, (cell.data.name, cell.task), cell.seed, 80.0, key=cell.key, any_seed=cell.any_seed,
                   content=content if cell.row.name == "warmpot" else "")
            for cell in asked.cells()
        ]  # fmt: skip
        folders.append(stored(tmp_path / name, asked, found))
    found = compare_folders(*folders)
    assert found.differing == {"content of the files": ("warmpot",), "full.rounds 2 -> 3": ("ours",)}
    assert found.other_settings == 3 * 3 + 3
    app = typer.Typer()
    app.command()(command)
    known_classes = " ".join(CliRunner().invoke(app, [str(folder) for folder in folders]).output.split())
    assert "other settings 12 of 21 trainings differ in settings or data" in known_classes
    assert "full.rounds 2 -> 3 'ours'" in known_classes


def test_one_deep_fall_against_many_small_gains_is_not_called_worse(tmp_path: Path) -> None:
    tasks = [f"s{k} -> t" for k in range(12)]
    asked = grid(data=[{"name": "many", "features": "x/{domain}.npz", "tasks": tasks}], reported="")
    gains = [1.0 + k / 10 for k in range(11)] + [-40.0]
    old, new = (
        stored(tmp_path / name, asked, [record("ours", ("many", task), 0, 50.0 + by * gain)
                                        for task, gain in zip(tasks, gains, strict=True)])
        for name, by in (("old", 0), ("new", 1))
    )  # fmt: skip
    (row,) = compare_folders(old, new).rows
    assert row.pvalue < 0.05
    assert (row.difference < 0, row.test.better) == (True, 11)
    app = typer.Typer()
    app.command()(command)
    line = next(line for line in CliRunner().invoke(app, [str(old), str(new)]).output.splitlines() if "11 / 1" in line)
    assert line.split()[-1] == "mixed"
