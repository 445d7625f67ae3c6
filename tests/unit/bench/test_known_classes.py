"""Trainings that know the classes of the target, and scores of presence: cells, records, tables."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score
from typer.testing import CliRunner

from warmpot.bench import Grid, Record, append, read_grid, read_store, runner
from warmpot.bench.folder_comparison import compare_folders
from warmpot.bench.grid import GRID
from warmpot.bench.grid_data import GridData
from warmpot.bench.presence import presence_scores
from warmpot.bench.result_tables import all_tables, as_latex, as_markdown, write_tables
from warmpot.bench.runner import run_grid
from warmpot.bench.significance import best_variant, rank_variants
from warmpot.bench.store import KNOWN_CLASSES, RESULTS
from warmpot.bench.summary import Summary, Variant
from warmpot.cli import app
from warmpot.data import Truth, as_table, make_task
from warmpot.errors import InputError
from warmpot.report.grid_page import write_grid_page
from warmpot.select.oracle import keep_target_classes
from warmpot.weights import ClassPresence

SMALL = {
    "minibatch": {"steps": 4, "checkpoint_every": 2, "source_batch": 8, "target_batch": 8, "network": {"width": 4}},
    "full": {"rounds": 2, "iterations": 3, "width": 4},
}
ROWS = [{"name": "plan", "preset": "frozen"}, {"name": "all pairs", "preset": "full"}]
NAMES = np.array(["ant", "bee", "cow", "dog"])
PRESENT = [1, 3]  # not the first codes: they have to be changed


def make(**changes: Any) -> Grid:
    data = [{"name": "blobs", "source": "s.npz", "target": "t.npz"}]
    base = {"title": "tiny", "data": data, "rows": ROWS, "seeds": 1, "choose": ["neighbours"], "set": SMALL}
    return Grid.load({**base, **changes})


@pytest.fixture
def blobs(tmp_path: Path) -> Path:
    """Two of four classes in the target; in the folder `few`, the source has only these."""
    rng = np.random.default_rng(0)
    centres = 2 * rng.normal(size=(4, 6))
    ys, yt = rng.permutation(np.repeat(np.arange(4), 10)), np.repeat(PRESENT, 12)
    xs, xt = (centres[y] + rng.normal(size=(len(y), 6)) for y in (ys, yt))
    shared = np.isin(ys, PRESENT)
    for folder, rows in (("all", shared | True), ("few", shared)):
        (tmp_path / folder).mkdir()
        np.savez(tmp_path / folder / "s.npz", X=xs[rows], y=NAMES[ys[rows]])
        np.savez(tmp_path / folder / "t.npz", X=xt, y=NAMES[yt])
    return tmp_path


# the restricted task


def test_the_source_keeps_the_classes_of_the_target() -> None:
    source = as_table(np.arange(12.0).reshape(6, 2), ["a", "b", "c", "a", "b", "c"])
    source = dataclasses.replace(source, names=tuple("uvwxyz"))
    target = as_table(np.zeros((4, 2)), ["c", "a", "c", "a"])
    task, truth = make_task(source, target)
    assert truth is not None
    unknown = Truth(np.array([2, -1, 2, 0]), truth.classes)
    few, codes = keep_target_classes(task, unknown)
    assert few.classes == codes.classes == ("a", "c")
    assert np.asarray(few.xs[:]).tolist() == [[0.0, 1.0], [4.0, 5.0], [6.0, 7.0], [10.0, 11.0]]
    assert few.ys.tolist() == [0, 1, 0, 1]
    assert few.source_names == ("u", "w", "x", "z")
    assert codes.yt.tolist() == [1, -1, 1, 0]
    assert few.xt is task.xt
    assert codes.accuracy(np.array([1, 1, 0, 0])) == 0.5
    assert task.n_classes == 3  # unchanged
    with pytest.raises(InputError, match="two or more"):
        keep_target_classes(task, Truth(np.array([1, 1, -1, 1]), truth.classes))


# cells and keys


def test_known_class_cells_are_trainings_of_their_own() -> None:
    plain, both = make().cells(), make(known_classes=True).cells()
    assert [cell.key for cell in both if not cell.known_classes] == [cell.key for cell in plain]
    assert [cell.known_classes for cell in both] == [False, True, False, True]
    assert len({cell.key for cell in both}) == len({cell.coordinates for cell in both}) == 4
    assert "known_classes" not in plain[0].identity  # records of older versions keep their key
    assert [KNOWN_CLASSES in cell.name for cell in both] == [cell.known_classes for cell in both]
    assert Grid.load(make(known_classes=True).to_mapping()) == make(known_classes=True) != make()
    with pytest.raises(InputError, match="known_classes"):
        make(known_classes="perhaps")


def test_known_class_trainings_are_those_of_a_restricted_source(blobs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained, original = list[str](), runner._train

    def counted(data: GridData, cell: Any) -> Record:
        trained.append(cell.name)
        return original(data, cell)

    monkeypatch.setattr(runner, "_train", counted)
    out = blobs / "out"
    run_grid(make(), data=blobs / "all", out=out)
    trained.clear()
    records = run_grid(make(known_classes=True), data=blobs / "all", out=out)  # a folder may be continued with it
    assert trained == [
        f"blobs, s -> t, plan, {KNOWN_CLASSES}, seed 0",
        f"blobs, s -> t, all pairs, {KNOWN_CLASSES}, seed any",
    ]
    assert read_grid(out).known_classes
    assert [record.known_classes for record in records] == [False, True, False, True]
    assert len(read_store(out)) == 4
    by_hand = run_grid(make(), data=blobs / "few", out=blobs / "few-out")
    for oracle, restricted in zip(records[1::2], by_hand, strict=True):
        assert oracle.done, oracle.error
        assert oracle.accuracy == restricted.accuracy
        assert oracle.per_class == restricted.per_class
        assert oracle.scores == restricted.scores
        assert (oracle.outlier_samples, oracle.share_auc) == (0.0, None)
        assert oracle.key != restricted.key
    for record in records[::2]:
        assert record.outlier_samples == 0.5
        assert record.share_auc is not None
    trained.clear()
    run_grid(make(known_classes=True), data=blobs / "all", out=out)
    run_grid(make(), data=blobs / "all", out=out)
    assert trained == []
    assert read_grid(out).known_classes  # its records are not forgotten


# scores of presence


def test_scores_of_presence() -> None:
    truth = Truth(np.array([0] * 10 + [1] * 20 + [-1]), ("a", "b", "c", "d"))
    predicted = np.array([0] * 1 + [2] * 9 + [3] * 19 + [1] + [0])  # recall of a: 10 %, of b: 5 %
    scores = presence_scores(np.eye(4)[predicted], truth)
    shares, present = np.bincount(predicted) / 31, np.array([1, 1, 0, 0])
    wins = [float(shares[i] > shares[j]) + 0.5 * float(shares[i] == shares[j]) for i in (0, 1) for j in (2, 3)]
    assert scores == {
        "share_auc": pytest.approx(np.mean(wins)), "presence_auc": None, "presence_brier": None, "lost_classes": 1,
    }  # fmt: skip
    estimate = SimpleNamespace(probability=np.array([0.9, 0.4, 0.5, 0.0]))
    more = presence_scores(np.eye(4)[predicted], truth, estimate)
    assert more["presence_auc"] == roc_auc_score(present, estimate.probability) == 0.75
    assert more["presence_brier"] == pytest.approx((0.1**2 + 0.6**2 + 0.5**2) / 4)
    for yt in ([0, 1], [-1, -1]):  # all classes, or none
        nothing = presence_scores(
            np.eye(2), Truth(np.array(yt), ("a", "b")), SimpleNamespace(probability=[0.5, 1 + 1e-15])
        )
        assert (nothing["share_auc"], nothing["presence_auc"]) == (None, None)
        assert nothing["presence_brier"] == pytest.approx(0.125 if yt[0] == 0 else 0.625)
        assert json.loads(json.dumps(nothing)) == nothing


def test_an_estimate_of_the_run_reaches_its_record(blobs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from warmpot.bench import training

    original = training.fit

    def with_presence(*args: Any, **settings: Any) -> Any:
        fitted = original(*args, **settings)
        probability = np.array([0.0, 1.0, 0.0, 1.0])
        return dataclasses.replace(fitted, presence=ClassPresence(probability, probability / 2, {}))

    monkeypatch.setattr(training, "fit", with_presence)
    (record,) = run_grid(make(rows=ROWS[1:]), data=blobs / "all", out=blobs / "out")
    assert record.done, record.error
    assert (record.presence_auc, record.presence_brier) == (1.0, 0.0)
    assert record.lost_classes == sum(value < 0.1 for value in record.per_class.values())


def test_records_without_the_fields_are_read(tmp_path: Path) -> None:
    old = {"key": "k", "dataset": "d", "task": "t", "row": "r", "accuracy": {"last": 0.5}}
    (tmp_path / RESULTS).write_text(json.dumps(old) + "\n")
    (record,) = read_store(tmp_path)
    assert (record.known_classes, record.share_auc, record.lost_classes) == (False, None, None)
    append(tmp_path, dataclasses.replace(record, known_classes=True))
    assert [each.known_classes for each in read_store(tmp_path)] == [False, True]


# tables


TASKS = ("a -> b", "b -> a")


def summary(known_classes: bool = True, **fields: Any) -> Summary:
    """Row plan: 70 and 72, with known classes 80 and 81; row all pairs: 75 and 75, 76 for the first task only."""
    data = [{"name": "blobs", "features": "{domain}.npz", "tasks": list(TASKS)}]
    grid = make(data=data, known_classes=known_classes, baseline="plan", choose=[])
    accuracies = {("plan", False): (70, 72), ("plan", True): (80, 81), ("all pairs", False): (75, 75),
                  ("all pairs", True): (76,)}  # fmt: skip
    records = [
        Record("k", "blobs", task, row, accuracy={"last": value / 100, "oracle": value / 100}, known_classes=oracle,
               **({} if oracle else fields))
        for (row, oracle), values in accuracies.items() for task, value in zip(TASKS, values, strict=False)
    ]  # fmt: skip
    return Summary(grid, records)


def texts(found: Summary, name: str) -> dict[str, list[str]]:
    """Texts of a table by column."""
    table = next(table for table in all_tables(found) if table.name == name)
    columns = zip(*(row for row in table.cells), strict=True)
    return {head.name: [cell.text for cell in cells] for head, cells in zip(table.columns, columns, strict=True)}


def test_the_oracle_and_its_gap_are_next_to_the_row() -> None:
    found = summary()
    rules = texts(found, "rules")
    assert rules["last"] == ["71.0", "75.0"]
    assert rules[KNOWN_CLASSES] == ["80.5", "-"]
    assert rules["gap, points"] == ["+9.5", "-"]
    by_task = texts(found, "known-classes-blobs")
    assert (by_task[TASKS[0]], by_task[TASKS[1]]) == (["+10.0", "+1.0"], ["+9.0", "-"])
    assert by_task["mean (2)"] == ["+9.5", "-"]
    assert texts(found, "missing")["row"] == [f"all pairs, {KNOWN_CLASSES}"]
    assert (found.n_done, found.n_trainings) == (7, 8)
    for text in (as_markdown(found), as_latex(found)):
        assert KNOWN_CLASSES in text
        assert "+9.5" in text
    without = summary(known_classes=False)
    assert KNOWN_CLASSES not in as_markdown(without)
    assert without.foreign_records == 3


def test_the_oracle_is_never_compared() -> None:
    found = summary()
    assert best_variant(found, "last") == Variant("all pairs")  # though the oracle of plan is better
    ranking = rank_variants(found, "last")
    assert ranking is None or set(ranking.variants) == {Variant("plan"), Variant("all pairs")}
    only = Summary(found.grid, [record for record in found.records if record.known_classes])
    assert only.mean(Variant("plan"), "last").mean is None
    assert best_variant(only, "last") is None
    first = Summary(found.grid, [record for record in found.records if record.known_classes or record.task == TASKS[0]])
    assert first.finished_tasks == (("blobs", TASKS[0]),)  # an oracle does not make a task count
    assert first.mean(Variant("plan"), "last").mean == pytest.approx(70.0)


def test_a_small_table_of_presence(tmp_path: Path) -> None:
    assert "presence" not in {table.name for table in all_tables(summary())}  # older records
    few = texts(summary(share_auc=0.75, lost_classes=2), "presence")
    assert few == {"row": ["plan", "all pairs"], "share AUC": ["0.750"] * 2, "lost classes": ["2.0"] * 2}
    found = summary(share_auc=0.75, presence_auc=0.9, presence_brier=0.125, lost_classes=0)
    assert texts(found, "presence")["Brier"] == ["0.125", "0.125"]
    mixed = [dataclasses.replace(r, presence_auc=None) if r.row == "plan" else r for r in found.records]
    table = next(table for table in all_tables(Summary(found.grid, mixed)) if table.name == "presence")
    assert [row[2].text for row in table.cells] == ["-", "0.900"]
    assert not any("not trained" in note for note in table.notes)
    (tmp_path / GRID).write_text(found.grid.dump(), encoding="utf-8")
    page = write_grid_page(tmp_path, files=False, summary=found).read_text(encoding="utf-8")
    assert "Which classes are there" in page
    assert "presence AUC" in page
    assert KNOWN_CLASSES in page
    head, *lines = write_tables(tmp_path, found)[0].read_text(encoding="utf-8").splitlines()
    assert {"known_classes", "share_auc", "presence_auc", "presence_brier", "lost_classes"} <= set(head.split(","))
    assert len(lines) == 14


def test_the_page_of_a_grid_is_written_where_it_is_asked_for(tmp_path: Path) -> None:
    found = summary()
    (tmp_path / GRID).write_text(found.grid.dump(), encoding="utf-8")
    for record in found.records:
        append(tmp_path, record)
    out = tmp_path / "new" / "page.html"
    result = CliRunner().invoke(app, ["report", str(tmp_path), "--out", str(out), "--no-figures"])
    assert result.exit_code == 0, result.output
    assert out.is_file()
    assert not (tmp_path / "report.html").exists()
    before = (tmp_path / RESULTS).read_bytes()
    assert CliRunner().invoke(app, ["report", str(tmp_path), "--out", str(tmp_path / RESULTS)]).exit_code == 2
    assert (tmp_path / RESULTS).read_bytes() == before


def test_two_folders_compare_oracles_with_oracles(tmp_path: Path) -> None:
    found = summary()
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / GRID).write_text(found.grid.dump(), encoding="utf-8")
        for record in found.records:
            append(tmp_path / name, record)
    rows = {row.variant.label: row.difference for row in compare_folders(tmp_path / "one", tmp_path / "two").rows}
    assert rows == {"plan": 0.0, f"plan, {KNOWN_CLASSES}": 0.0, "all pairs": 0.0, f"all pairs, {KNOWN_CLASSES}": 0.0}


def test_an_oracle_of_an_older_version_stays_an_oracle() -> None:
    fields = {"key": "k", "dataset": "d", "task": "t", "row": "r", "preset": "full", "seed": 0}
    for told in (False, True):
        assert Record.from_dict({**fields, "told": told}).known_classes is told
