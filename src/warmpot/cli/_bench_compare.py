"""``warmpot bench compare``: what changed between two results of a bench."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from warmpot.cli._shared import complain, facts_grid, show
from warmpot.errors import InputError, listing

if TYPE_CHECKING:
    from rich.table import Table as Grid

    from warmpot.bench.compare import Comparison, RowChange

__all__ = ["compare"]

MOST_SETTINGS = 8
MOST_TASKS = 15
"""Tasks shown; --all shows the others."""


def compare(
    before: Annotated[Path, typer.Argument(metavar="A", help="Folder of a bench.")],
    after: Annotated[Path, typer.Argument(metavar="B", help="Folder of a later one; its grid may be another.")],
    rule: Annotated[
        str, typer.Option(help="Whose iterates: last, oracle, or a label-free rule that both results have.")
    ] = "last",
    fail_below: Annotated[
        float | None,
        typer.Option(
            metavar="POINTS",
            help="Exit with 1 when the mean of a row fell by more, or a training of A failed in B. "
            "Those that B does not have are a warning only.",
        ),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Show every task, not only those that changed.")] = False,
) -> None:
    """Show what changed from A to B, where both have the same data set, task, row, point and seed."""
    from warmpot.bench.compare import compare as run

    if fail_below is not None and not 0 <= fail_below <= 100:
        remedy = "Give the points that a row may lose, such as 0.5."
        raise InputError("--fail-below", got=fail_below, allowed="0 to 100", remedy=remedy)
    found = run(before, after, rule)
    show(facts_grid(_facts(found, before, after)), "", _rows(found))
    tasks = _tasks(found, every)
    if tasks.row_count:
        show("", tasks)
    for what, names in ((f"Only in {before}", found.only_before), (f"Only in {after}", found.only_after)):
        if names:
            show("", f"{what}: {_trainings(len(names))}: {listing(names, most=3)}")
    if found.broken:
        complain(f"failed in {after}, finished in {before}: {listing(found.broken, most=3)}", "red")
    if fail_below is not None:
        _judge(found, fail_below, before, after)


def _trainings(number: int) -> str:
    return f"{number} training" + "s" * (number != 1)


def _judge(found: Comparison, points: float, before: Path, after: Path) -> None:
    unseen = len(set(found.only_before) - set(found.broken))
    if unseen:  # another grid is nothing bad, but nobody shall think that these were looked at
        told = f"warning: {_trainings(unseen)} of {before} not finished in {after}: the comparison is without them"
        complain(told, "yellow")
    dropped = found.dropped(points)
    for row in dropped:
        complain(f"{row.line.label} fell by {-row.difference:.1f} points, more than {points:g}", "red")
    if dropped or found.broken:
        raise typer.Exit(1)
    show(f"No row fell by more than {points:g} points.")


def _facts(found: Comparison, before: Path, after: Path) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [
        ("A", str(before)),
        ("B", str(after)),
        ("compared", _trainings(found.cells), f"rule {found.rule}"),
        ("worse", f"{len(found.worse)} of {len(found.tasks)}", "rows on a task, by more than the spread over seeds"),
    ]
    if found.other_settings:
        told = "trainings differ in settings or data"
        rows.append(("other settings", f"{found.other_settings} of {found.cells}", told))
        for name, lines in list(found.differing.items())[:MOST_SETTINGS]:
            every = len(lines) == len(found.rows) > 1
            rows.append(("", name, "all rows" if every else listing(lines, most=3)))
        if len(found.differing) > MOST_SETTINGS:
            rows.append(("", f"and {len(found.differing) - MOST_SETTINGS} more"))
    if found.settings:
        rows.append(("made", " / ".join(text or "-" for text in found.settings), "A / B"))
    return rows + [(name, f"{a} -> {b}", "version") for name, (a, b) in found.versions.items()]


def _grid(*names: str) -> Grid:
    from rich.table import Table as Grid

    grid = Grid(box=None, pad_edge=False)
    for name in names:
        grid.add_column(name, justify="left" if name in ("row", "task", "") else "right")
    return grid


def _rows(found: Comparison) -> Grid:
    from rich.text import Text

    from warmpot.bench.summary import points

    grid = _grid("row", "A", "B", "points", "tasks better / worse", "p", "")
    for row in sorted(found.rows, key=lambda row: row.difference):
        sides = f"{row.test.better} / {row.test.worse} of {row.test.pairs}"
        grid.add_row(Text(row.line.label), f"{row.before:.1f}", f"{row.after:.1f}", points(row.difference), sides,
                     "-" if row.test.too_few else f"{row.pvalue:.3f}", _words(row))  # fmt: skip
    grid.caption = "mean over the common tasks; p: Wilcoxon over tasks, corrected for the rows (Holm)"
    grid.caption_justify = "left"
    return grid


def _words(row: RowChange) -> str:
    from warmpot.bench.contrasts import verdict

    if not row.test.better and not row.test.worse:
        return "the same"
    return "too few tasks to test" if row.test.too_few else verdict(row.test, row.pvalue)


def _tasks(found: Comparison, every: bool) -> Grid:
    from rich.text import Text

    from warmpot.bench.summary import points

    grid = _grid("task", "row", "A", "B", "points", "spread")
    changed = sorted((task for task in found.tasks if every or task.beyond), key=lambda task: task.difference)
    for task in changed if every else changed[:MOST_TASKS]:
        spread = "-" if task.spread is None else f"{task.spread:.1f}"
        grid.add_row(Text(", ".join(task.place)), Text(task.line.label), f"{task.before:.1f}", f"{task.after:.1f}",
                     points(task.difference), spread)  # fmt: skip
    if not every and len(changed) > MOST_TASKS:
        grid.add_row(f"and {len(changed) - MOST_TASKS} more")
    if not every:
        grid.title, grid.title_justify = "Changed by more than the spread over seeds, the worst first", "left"
    return grid
