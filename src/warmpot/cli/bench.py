"""``warmpot bench``: train a grid of methods, tasks and seeds, and write its tables."""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from warmpot._run_files import STORE
from warmpot.cli import _flags
from warmpot.cli._bench_compare import compare
from warmpot.cli._command import Command
from warmpot.cli._data_files import nested_changes
from warmpot.cli._interrupt import on_interrupt
from warmpot.cli._shared import complain, default_out, facts_grid, messages, one_line, quoted, show
from warmpot.errors import InputError

if TYPE_CHECKING:
    from warmpot._tables import ResultTable
    from warmpot.bench import Grid, Record
    from warmpot.bench.runner import Schedule
    from warmpot.bench.summary import Summary

__all__ = ["bench"]

RUN = "run"
PATHS = "Folder that the paths in GRID start from. [default: the folder of its file; data for a grid of the package]"
DATA = Annotated[Path | None, typer.Option("--data", "-d", metavar="DIR", help=PATHS)]
FOLDER = "Output folder; an unfinished grid in it is continued. [default: runs/GRID-bench]"
MAX_ROWS = 20
"""Rows printed; the tables have all."""


class _RunByDefault(TyperGroup):
    """Runs a grid if the first argument is not the name of a command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        words = args if args and args[0] in self.commands else [RUN, *args]
        return super().parse_args(ctx, words)


bench = typer.Typer(
    cls=_RunByDefault, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None,
    help="Train a grid of methods, tasks and seeds, and write its tables.",
)  # fmt: skip


@bench.command(RUN, cls=Command)
def run(
    grid: Annotated[
        str | None, typer.Argument(metavar="GRID", help="A grid of the package, or a YAML file. [default: list them]")
    ] = None,
    data: DATA = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="DIR", help=FOLDER)] = None,
    seeds: Annotated[int | None, typer.Option(help="Number of seeds: 0, 1, ... [default: those of the grid]")] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="Only cells whose data set, task or row contains TEXT; can be repeated."),
    ] = None,
    known_classes: Annotated[
        bool,
        typer.Option(
            "--known-classes", help="Also train every cell on the source classes that the target has (an oracle)."
        ),
    ] = False,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting of all rows.")
    ] = None,
    reuse: Annotated[
        list[Path] | None,
        typer.Option(metavar="DIR", help="Output folder of another grid: results of the same trainings are copied."),
    ] = None,
    jobs: _flags.JOBS = None,
    ray_address: _flags.RAY_ADDRESS = None,
    gpus: _flags.GPUS = 0.0,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the cells and an estimate of the time; train nothing.")
    ] = False,
    quiet: _flags.QUIET = False,
) -> None:
    """Train every cell of GRID without a result, then write tables and a page.

    A cell is one training: a row on a task with a seed. Each result is added to results.jsonl as soon as it is
    finished; after an interruption the same command continues. A cell that fails is reported with its error, the others
    continue, and the exit code is 1. Target labels are used for evaluation only, except in the oracle of
    --known-classes. Each cell uses one thread, so that results do not depend on --jobs.

    `warmpot bench list` lists the grids of the package, `warmpot bench compare A B` shows what changed between two
    folders, `warmpot bench tables DIR` writes the tables and the page again.
    """
    if grid is None:
        list_grids()
        return
    from warmpot._checks import check_count

    if jobs is not None:
        check_count("--jobs", jobs)
    changed = _read_grid(grid, seeds, known_classes, nested_changes(settings or [], {}))
    data, folder, texts, others = data or _data_folder(grid), out or _out_folder(grid), only or [], reuse or []
    if dry_run:
        _show_schedule(changed, folder, data, texts, others, jobs or 1)
        return
    on_interrupt(lambda: f"finished cells are stored, the same command continues in {quoted(folder)}")
    _train(
        changed,
        folder,
        not quiet,
        data=data,
        only=texts,
        reuse=others,
        workers=jobs,
        ray_address=ray_address,
        gpus=gpus,
    )


def _train(grid: Grid, folder: Path, verbose: bool, **options: Any) -> None:
    """Train the cells without a result, write tables and page, and print the means; exit with 1 if a cell failed."""
    from warmpot.bench.runner import run_grid
    from warmpot.bench.summary import load_summary

    start, reported = time.time(), set[tuple[str, str]]()

    def on_start(schedule: Schedule) -> None:
        if verbose:
            complain(f"{grid.title}: {_counts(schedule)} -> {folder}", "dim")

    def on_failure(record: Record) -> None:
        if (record.dataset, record.error) not in reported:  # the same error on the same data set only once
            reported.add((record.dataset, record.error))
            complain(f"failed: {record.name}: {one_line(record.error)}", "red")

    with messages(verbose):
        bar = None if verbose else False
        records = run_grid(grid, out=folder, progress_bar=bar, on_start=on_start, on_failure=on_failure, **options)
        summary = load_summary(folder)
        files = _write(folder, summary)
    failed = [record for record in records if not record.done]
    if verbose:
        _show_results(summary, [record for record in records if record.done], time.time() - start)
        show(f"Wrote {folder}: {', '.join(['results.jsonl', *files])}")
    if failed:
        _show_failures(failed, len(records))
        raise typer.Exit(1)


def _show_failures(failed: list[Record], total: int) -> None:
    from warmpot.bench.summary import group_failures

    for group in group_failures(failed):
        if len(group) > 1:
            text = f"{len(group)} cells of data set {group[0].dataset}: {one_line(group[0].error)}"
            complain(f"failed: {text}", "red")
    complain(f"{len(failed)} of {total} cells failed; the same command tries them again", "bold red")


@bench.command(cls=Command, no_args_is_help=True)
def tables(folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder that `warmpot bench` wrote.")]) -> None:
    """Write the tables and the page of a folder again, from the finished cells."""
    from warmpot.bench.summary import load_summary

    with messages(True):
        files = _write(folder, load_summary(folder))
    show(f"Wrote {folder}: {', '.join(files)}")


bench.command(cls=Command, no_args_is_help=True)(compare)


@bench.command("list", cls=Command)
def list_grids() -> None:
    """List the grids of the package."""
    from warmpot.bench import grid_names, load_grid

    show(facts_grid((name, load_grid(name).title) for name in grid_names()))
    text = "Run one: warmpot bench NAME --data DIR. NAME can also be a YAML file."
    show("", f"{text} --dry-run estimates the time.")


def _data_folder(grid: str) -> Path:
    """Return where the paths of a grid start: at its own file, which a grid of the package does not have."""
    return Path(grid).parent if Path(grid).is_file() else Path("data")


def _out_folder(grid: str) -> Path:
    """Return the default folder, or that of an earlier version if it holds results, which can take days."""
    earlier = Path(f"bench-{Path(grid).stem}")
    return earlier if (earlier / STORE).is_file() else default_out(Path(grid), "bench", continues=True)


def _read_grid(name: str, seeds: int | None, known_classes: bool, changes: dict[str, Any]) -> Grid:
    """Read the grid and apply the flags to it."""
    from warmpot._checks import check_count
    from warmpot._settings import merged
    from warmpot.bench import load_grid

    grid = load_grid(name)
    if seeds is not None:
        check_count("--seeds", seeds)
        grid = dataclasses.replace(grid, seeds=tuple(range(seeds)))
    if set(changes) & {"seed", "choose"}:
        remedy = "Use --seeds; rules are in the grid's file."
        raise InputError("--set", got="seed or choose", allowed="a setting of the rows", remedy=remedy)
    return dataclasses.replace(
        grid, known_classes=grid.known_classes or known_classes, changes=merged(grid.changes, changes)
    )


def _counts(schedule: Schedule) -> str:
    shared = len(schedule.remaining) - len(schedule.trainings)
    copied = f", {shared} of them finished elsewhere or the same training as another row" if shared else ""
    cells = f"{len(schedule.cells)} cell" + "s" * (len(schedule.cells) != 1)
    return f"{cells}, {len(schedule.done)} done, {len(schedule.remaining)} left{copied}"


def _any_seed_note(any_seed: Iterable[bool], seeds: Sequence[int]) -> str:
    number = sum(any_seed) if len(seeds) > 1 else 0
    verb = "holds" if number == 1 else "hold"
    return f"{number} of the cells {verb} for all seeds, since nothing is drawn" if number else ""


def _show_schedule(
    grid: Grid, folder: Path, data: Path, only: Sequence[str], reuse: Sequence[Path], workers: int
) -> None:
    """Print what a run would do."""
    from warmpot._progress import format_duration
    from warmpot._tables import to_rich
    from warmpot.bench.grid_data import GridData
    from warmpot.bench.runner import list_cells, make_schedule, read_reused
    from warmpot.bench.store import read_store

    cells = list_cells(grid, only)
    schedule = make_schedule(grid, cells, read_store(folder), read_reused(reuse), GridData(data))
    show(grid.title, to_rich(_schedule_table(grid, schedule)))
    seconds = schedule.estimate.total(list(schedule.trainings.values()), workers)
    if seconds is None:
        left, note = "unknown", "no similar cell is finished yet"
    else:
        left, note = format_duration(seconds), f"about, {f'{workers} at a time' if workers > 1 else 'one at a time'}"
    show(facts_grid([("folder", str(folder)), ("cells", _counts(schedule)), ("time left", left, note)]))
    if note := _any_seed_note((cell.any_seed for cell in cells), grid.seeds):
        show(f"{note}.")


def _schedule_table(grid: Grid, schedule: Schedule) -> ResultTable:
    """Count finished and requested cells by row and data set."""
    from warmpot._tables import ResultTable, TableColumn

    total, done = (
        Counter((cell.row.name, cell.data.name) for cell in cells) for cells in (schedule.cells, schedule.done)
    )
    names = [entry.name for entry in grid.data if any(name == entry.name for _, name in total)]
    columns = [TableColumn("row", numeric=False), *map(TableColumn, names), TableColumn("seconds per cell")]
    rows = []
    for row in grid.rows:
        cells = [cell for cell in schedule.cells if cell.row.name == row.name]
        if cells:
            seconds = schedule.estimate.total(cells, 1)
            counts = [f"{done[row.name, name]} of {total[row.name, name]}" for name in names]
            rows.append([row.name, *counts, "?" if seconds is None else f"{seconds / len(cells):.0f}"])
    return ResultTable(columns, rows)


def _write(folder: Path, summary: Summary) -> list[str]:
    """Write tables and the page; return the names of the files."""
    from warmpot.bench.result_tables import write_tables
    from warmpot.report.grid_page import write_grid_page

    return [path.name for path in (*write_tables(folder, summary), write_grid_page(folder, summary=summary))]


def _show_results(summary: Summary, done: list[Record], seconds: float) -> None:
    """Print the means."""
    from warmpot._progress import format_duration
    from warmpot._tables import ResultTable, TableColumn, TableValue, to_rich
    from warmpot.bench.oracle_tables import known_classes_columns

    summary = summary.ranked()
    names = [name for name in summary.datasets if any(record.dataset == name for record in summary.records)]
    heads = [*(f"{name}, last" for name in names), *(f"all, {rule}" for rule in summary.rules)]
    rows: list[list[TableValue]] = []
    for variant in summary.variants[:MAX_ROWS]:
        scores = [summary.mean(variant, "last", name) for name in names]
        scores += [summary.mean(variant, rule) for rule in summary.rules]
        rows.append([variant.label, *(score.text for score in scores)])
    columns = [TableColumn("row", numeric=False), *map(TableColumn, heads)]
    for column, cells in known_classes_columns(summary):
        columns.append(column)
        rows = [[*row, cell] for row, cell in zip(rows, cells, strict=False)]  # rows beyond MAX_ROWS are not printed
    show(to_rich(ResultTable(columns, rows, "Accuracy in per cent, mean (std) over seeds")))
    if len(summary.variants) > MAX_ROWS:
        show(f"and {len(summary.variants) - MAX_ROWS} more")
    if summary.excluded_note:
        show(summary.excluded_note)
    note = _any_seed_note((record.any_seed for record in done), summary.seeds)
    show("", facts_grid([("cells", f"{len(done)} done", note), ("time", format_duration(seconds))]))
