"""``warmpot bench``: train a grid of methods, tasks and seeds, and make tables of it."""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from warmpot.cli._bench_compare import compare
from warmpot.cli._data_files import nested_changes
from warmpot.cli._grid_flags import AT_A_TIME, GPUS, RAY_ADDRESS
from warmpot.cli._shared import complain, facts_grid, messages, one_line, quoted, show
from warmpot.errors import InputError

if TYPE_CHECKING:
    from rich.table import Table as Sheet

    from warmpot.bench import Grid, Record
    from warmpot.bench.run import Plan

__all__ = ["bench"]

RUN = "run"
MOST_LINES = 20
"""Lines shown; all are in the tables."""


class _RunByDefault(TyperGroup):
    """A first word that names no verb is a grid."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        words = args if args and args[0] in self.commands else [RUN, *args]
        return super().parse_args(ctx, words)


bench = typer.Typer(
    cls=_RunByDefault, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None,
    help="Train a grid of methods, tasks and seeds, and make tables of it.",
)  # fmt: skip


@bench.command(RUN)
def run(
    grid: Annotated[
        str | None, typer.Argument(metavar="GRID", help="A grid of the package, or a YAML file. [default: list them]")
    ] = None,
    data: Annotated[Path, typer.Option("--data", "-d", help="Folder that the grid's paths start from.")] = Path("data"),
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder; a bench in it is continued. [default: bench-GRID]"),
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="Seeds 0, 1, ... of this number. [default: the grid's]")] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="Cells whose data set, task or row contains TEXT; repeat it for more."),
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting of all rows.")
    ] = None,
    reuse: Annotated[
        list[Path] | None,
        typer.Option(metavar="DIR", help="Folder of another bench: the same trainings are taken over from it."),
    ] = None,
    workers: AT_A_TIME = None,
    ray_address: RAY_ADDRESS = None,
    gpus: GPUS = 0.0,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the cells and about how long they take; train nothing.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")] = False,
) -> None:
    """Train every cell of GRID that the folder lacks, then write tables and a page.

    A cell is one training: a row on a task with a seed. Finished cells are kept in results.jsonl as they come, and the
    same command goes on after a stop. A cell that fails is told with its error, the rest goes on, and the exit code is
    1. Target labels reach the accuracies only. Each cell has one thread, so results do not depend on the workers.

    `warmpot bench compare A B` shows what changed between two folders, `warmpot bench tables DIR` writes the tables and
    the page anew.
    """
    if grid is None:
        _list()
        return
    from warmpot.bench.run import plan, run_grid
    from warmpot.bench.summary import alike

    found = _grid(grid, seeds, nested_changes(settings or [], {}))
    folder, texts, others = out or Path(f"bench-{Path(grid).stem}"), only or [], reuse or []
    todo = plan(found, folder, only=texts, reuse=others, data=data)
    if dry_run:
        _tell(found, todo, folder, workers or 1)
        return
    start = time.time()
    with messages(not quiet):
        if not quiet:
            complain(f"{found.title}: {_counts(todo)} -> {folder}", "dim")
        try:
            records = run_grid(
                found, data=data, out=folder, only=texts, reuse=others, workers=workers, ray_address=ray_address,
                gpus=gpus, progress_bar=False if quiet else None, on_failure=_complainer(),
            )  # fmt: skip
        except KeyboardInterrupt:
            complain(f"interrupted; finished cells are kept, the same command goes on in {quoted(folder)}", "yellow")
            raise typer.Exit(130) from None
        wrote = _write(folder)
    failed = [record for record in records if not record.done]
    if not quiet:
        _show(folder, wrote, [record for record in records if record.done], time.time() - start)
    if failed:
        for group in alike(failed):
            if len(group) > 1:
                told = f"{len(group)} cells of data set {group[0].dataset}: {one_line(group[0].error)}"
                complain(f"failed: {told}", "red")
        complain(f"{len(failed)} of {len(records)} cells failed; the same command tries them again", "bold red")
        raise typer.Exit(1)


@bench.command(no_args_is_help=True)
def tables(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder that `warmpot bench` wrote.")],
) -> None:
    """Write the tables and the page of a bench anew, from what is finished."""
    with messages(True):
        wrote = _write(folder)
    show(f"Wrote {folder}: {', '.join(wrote)}")


bench.command(no_args_is_help=True)(compare)


def _list() -> None:
    from warmpot.bench.grid import grid_titles

    show(facts_grid((name, title) for name, title in grid_titles().items()))
    show("", "Run one: warmpot bench NAME --data DIR --out DIR; or a YAML file of your own. --dry-run tells how long.")


def _grid(name: str, seeds: int | None, changes: dict[str, Any]) -> Grid:
    """Read the grid, with what the flags change in it."""
    from warmpot._checks import check_count
    from warmpot._settings import merged
    from warmpot.bench import load_grid

    found = load_grid(name)
    if seeds is not None:
        check_count("--seeds", seeds)
        found = dataclasses.replace(found, seeds=tuple(range(seeds)))
    if set(changes) & {"seed", "choose"}:
        remedy = "Use --seeds; rules are in the grid's file."
        raise InputError("--set", got="seed or choose", allowed="a setting of the rows", remedy=remedy)
    return dataclasses.replace(found, changes=merged(found.changes, changes))


def _counts(todo: Plan) -> str:
    shared = len(todo.left) - len(todo.trainings)
    taken = f", {shared} of them finished elsewhere or trained by another row" if shared else ""
    cells = f"{len(todo.cells)} cell" + "s" * (len(todo.cells) != 1)
    return f"{cells}, {len(todo.done)} done, {len(todo.left)} left{taken}"


def _for_all_seeds(number: int) -> str:
    return f"{number} of the cells stand{'s' * (number == 1)} for all seeds, as nothing is drawn"


def _tell(grid: Grid, todo: Plan, folder: Path, workers: int) -> None:
    """Print what a run would do."""
    from warmpot._progress import format_duration
    from warmpot.bench.run import ROUGH_SAMPLES

    show(grid.title, _counts_sheet(grid, todo))
    seconds = todo.estimate.total(todo.trainings, workers)
    about = "unknown: nothing like it was finished yet" if seconds is None else format_duration(seconds)
    many = f"{workers} at a time" if workers > 1 else "one at a time"
    if seconds is None:
        note = ""
    elif seconds and todo.estimate.rough(todo.trainings):
        note = f"roughly, {many}, of {ROUGH_SAMPLES} samples"
    else:
        note = f"about, {many}"
    stand = sum(cell.any_seed for cell in todo.cells) if len(grid.seeds) > 1 else 0
    show(facts_grid([("folder", str(folder)), ("cells", _counts(todo)), ("time left", about, note)]))
    if stand:
        show(f"{_for_all_seeds(stand)}.")


def _counts_sheet(grid: Grid, todo: Plan) -> Sheet:
    """Cells done and to be, by row and data set."""
    from rich.table import Table as Sheet
    from rich.text import Text

    sheet = Sheet(box=None, pad_edge=False)
    sheet.add_column("row")
    names = [entry.name for entry in grid.data if any(cell.data.name == entry.name for cell in todo.cells)]
    for name in names:
        sheet.add_column(name, justify="right")
    sheet.add_column("seconds a cell", justify="right")
    everything, done = (Counter((cell.row.name, cell.data.name) for cell in cells) for cells in (todo.cells, todo.done))
    for row in grid.rows:
        cells = [cell for cell in todo.cells if cell.row.name == row.name]
        if cells:
            each = todo.estimate.total(cells, 1)
            counts = [f"{done[row.name, name]} of {everything[row.name, name]}" for name in names]
            sign = "~" if todo.estimate.rough(cells) else ""
            sheet.add_row(Text(row.name), *counts, "?" if each is None else f"{sign}{each / len(cells):.0f}")
    return sheet


def _complainer() -> Callable[[Record], None]:
    """Return what tells of a failed cell; the same error on the same data set is counted in the end, not told again."""
    told: set[tuple[str, str]] = set()

    def complain_of(record: Record) -> None:
        if (record.dataset, record.error) in told:
            return
        told.add((record.dataset, record.error))
        point = "".join(f", {name.split('.')[-1]} {value:g}" for name, value in record.point.items())
        name = f"{record.dataset}, {record.task}, {record.row}{point}, seed {record.seed}"
        complain(f"failed: {name}: {one_line(record.error)}", "red")

    return complain_of


def _write(folder: Path) -> list[str]:
    """Write tables and the page; return their names."""
    from warmpot.bench.tables import write_tables
    from warmpot.report.bench import write_bench_page

    return [path.name for path in (*write_tables(folder), write_bench_page(folder))]


def _show(folder: Path, wrote: list[str], done: list[Record], seconds: float) -> None:
    """Print the means and where the rest is."""
    from rich.table import Table as Sheet
    from rich.text import Text

    from warmpot._progress import format_duration
    from warmpot.bench.summary import summarise

    summary = summarise(folder)
    sheet = Sheet(box=None, pad_edge=False, title="Accuracy in per cent, mean (std) over seeds", title_justify="left")
    sheet.add_column("row")
    names = [name for name in summary.datasets if any(record.dataset == name for record in summary.records)]
    for name in names:
        sheet.add_column(f"{name}, last", justify="right")
    for rule in summary.rules:
        sheet.add_column(f"all, {rule}", justify="right")
    for line in summary.lines[:MOST_LINES]:
        cells = [summary.mean(line, "last", name).text for name in names]
        sheet.add_row(Text(line.label), *cells, *(summary.mean(line, rule).text for rule in summary.rules))
    show(sheet)
    if len(summary.lines) > MOST_LINES:
        show(f"and {len(summary.lines) - MOST_LINES} more")
    if summary.left_out:
        show(summary.left_out)
    stand = sum(record.any_seed for record in done) if len(summary.seeds) > 1 else 0
    once = _for_all_seeds(stand) if stand else ""
    show("", facts_grid([("cells", f"{len(done)} done", once), ("time", format_duration(seconds))]))
    show(f"Wrote {folder}: {', '.join(['results.jsonl', *wrote])}")
