"""``warmpot bench compare``: what changed between two output folders."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from warmpot.cli._shared import complain, facts_grid, show
from warmpot.errors import InputError, listing

if TYPE_CHECKING:
    from warmpot._tables import ResultTable
    from warmpot.bench.folder_comparison import FolderComparison

__all__ = ["compare"]

MAX_SETTINGS = 8
MAX_TASKS = 15
"""Tasks shown without --all."""


def compare(
    before: Annotated[Path, typer.Argument(metavar="A", help="Folder that `warmpot bench` wrote.")],
    after: Annotated[Path, typer.Argument(metavar="B", help="Folder of a later run; its grid may differ.")],
    rule: Annotated[
        str, typer.Option(help="Rule whose iterates are compared: last, oracle, or a label-free rule of both results.")
    ] = "last",
    fail_below: Annotated[
        float | None,
        typer.Option(
            metavar="POINTS",
            help="Exit with 1 if the mean of a row fell by more than this, or a training of A failed in B. "
            "Trainings that B does not have cause a warning.",
        ),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Show every task, not only those that changed.")] = False,
) -> None:
    """Show what changed from A to B, for the same data set, task, row, point and seed."""
    from warmpot._tables import to_rich
    from warmpot.bench.folder_comparison import compare_folders

    if fail_below is not None and not 0 <= fail_below <= 100:
        remedy = "Give the points that a row may lose, such as 0.5."
        raise InputError("--fail-below", got=fail_below, allowed="0 to 100", remedy=remedy)
    comparison = compare_folders(before, after, rule)
    show(facts_grid(_facts(comparison, before, after)), "", to_rich(_row_table(comparison)))
    tasks = _task_table(comparison, every)
    if tasks.rows:
        show("", to_rich(tasks))
    for folder, names in ((before, comparison.only_before), (after, comparison.only_after)):
        if names:
            show("", f"Only in {folder}: {_trainings(len(names))}: {listing(names, most=3)}")
    if comparison.broken:
        complain(f"failed in {after}, finished in {before}: {listing(comparison.broken, most=3)}", "red")
    if fail_below is not None:
        _check_losses(comparison, fail_below, before, after)


def _trainings(number: int) -> str:
    return f"{number} training" + "s" * (number != 1)


def _check_losses(comparison: FolderComparison, points: float, before: Path, after: Path) -> None:
    missing = len(set(comparison.only_before) - set(comparison.broken))
    if missing:  # not an error, since the grids may differ, but the check does not cover these
        text = f"warning: {_trainings(missing)} of {before} not finished in {after}: they are not compared"
        complain(text, "yellow")
    dropped = comparison.dropped(points)
    for row in dropped:
        complain(f"{row.variant.label} fell by {-row.difference:.1f} points, more than {points:g}", "red")
    if dropped or comparison.broken:
        raise typer.Exit(1)
    show(f"No row fell by more than {points:g} points.")


def _facts(comparison: FolderComparison, before: Path, after: Path) -> list[tuple[str, ...]]:
    worse = f"{len(comparison.worse)} of {len(comparison.tasks)}"
    rows: list[tuple[str, ...]] = [
        ("A", str(before)),
        ("B", str(after)),
        ("compared", _trainings(comparison.cells), f"rule {comparison.rule}"),
        ("worse", worse, "rows on a task, by more than the standard deviation over seeds"),
    ]
    if comparison.other_settings:
        count = f"{comparison.other_settings} of {comparison.cells}"
        rows.append(("other settings", count, "trainings differ in settings or data"))
        for name, variants in list(comparison.differing.items())[:MAX_SETTINGS]:
            every = len(variants) == len(comparison.rows) > 1
            rows.append(("", name, "all rows" if every else listing(variants, most=3)))
        if len(comparison.differing) > MAX_SETTINGS:
            rows.append(("", f"and {len(comparison.differing) - MAX_SETTINGS} more"))
    if comparison.settings:
        rows.append(("setting", " / ".join(text or "-" for text in comparison.settings), "A / B"))
    return rows + [(name, f"{a} -> {b}", "version") for name, (a, b) in comparison.versions.items()]


def _row_table(comparison: FolderComparison) -> ResultTable:
    from warmpot._tables import ResultTable, TableColumn
    from warmpot.bench.significance import verdict
    from warmpot.bench.summary import format_points

    names = ("A", "B", "points", "tasks better / worse", "p")
    columns = [TableColumn("row", numeric=False), *map(TableColumn, names), TableColumn("", numeric=False)]
    rows = []
    for row in sorted(comparison.rows, key=lambda row: row.difference):
        counts = f"{row.test.better} / {row.test.worse} of {row.test.pairs}"
        pvalue = "-" if row.test.too_few else f"{row.pvalue:.3f}"
        means = [f"{row.before:.1f}", f"{row.after:.1f}", format_points(row.difference)]
        remark = "too few tasks to test" if row.test.too_few else verdict(row.test, row.pvalue)
        if not row.test.better and not row.test.worse:
            remark = "the same"
        rows.append([row.variant.label, *means, counts, pvalue, remark])
    note = "mean over the common tasks; p: Wilcoxon test over tasks, corrected for the number of rows (Holm)"
    return ResultTable(columns, rows, notes=[note])


def _task_table(comparison: FolderComparison, every: bool) -> ResultTable:
    from warmpot._tables import ResultTable, TableColumn
    from warmpot.bench.summary import format_points

    names = ("task", "row", "A", "B", "points", "std")
    columns = [TableColumn(name, numeric=name not in ("task", "row")) for name in names]
    changed = sorted((task for task in comparison.tasks if every or task.changed), key=lambda task: task.difference)
    rows = []
    for task in changed if every else changed[:MAX_TASKS]:
        spread = "-" if task.spread is None else f"{task.spread:.1f}"
        numbers = [f"{task.before:.1f}", f"{task.after:.1f}", format_points(task.difference), spread]
        rows.append([", ".join(task.task), task.variant.label, *numbers])
    if not every and len(changed) > MAX_TASKS:
        rows.append([f"and {len(changed) - MAX_TASKS} more", *[""] * (len(columns) - 1)])
    title = "" if every else "Changed by more than the standard deviation over seeds, the largest loss first"
    return ResultTable(columns, rows, title)
