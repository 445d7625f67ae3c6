"""Running a grid: which cells are left, how long they take, and training them here, in local processes or on Ray."""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from warmpot._checks import check_count
from warmpot._files import LOCK, is_unused, locked, make_folder, write_text
from warmpot._jobs import Done, Failed, Job, Runner, runner
from warmpot._progress import format_duration, progress
from warmpot.bench.grid import GRID, Cell, Grid, read_grid
from warmpot.bench.grid_data import GridData
from warmpot.bench.store import FAILED, Record, append, read_store
from warmpot.errors import InputError

__all__ = ["Schedule", "TimeEstimate", "list_cells", "make_schedule", "read_reused", "run_grid"]

logger = logging.getLogger(__name__)

MUTABLE = ("title", "setting", "reported", "figure", "baseline", "seconds")
"""Parts of a grid that change no training: a folder may be continued with other ones."""
EXTENDABLE = ("seeds", "choose", "known_classes")
"""Parts that a folder may be continued with more of."""


class TimeEstimate:
    """Seconds of a training, from finished cells of the same row and data set, else row, else engine, else from hints.

    The grid's file gives the hints, by row or engine; `steps` are the training steps by row that they refer to, where
    these differ from the steps of the cells.
    """

    def __init__(
        self, cells: Iterable[Cell], hints: Mapping[str, float], steps: Mapping[str, int] | None = None
    ) -> None:
        self._engines = {cell.row.name: cell.config.engine for cell in cells}
        self._hints, self._steps = hints, steps or {}
        self._measured: dict[tuple[str, ...], list[float]] = {}

    def add(self, record: Record) -> None:
        """Take a finished cell into account."""
        if record.done:
            engine = self._engines.get(record.row, "")
            for group in ((record.row, record.dataset), (record.row,), ("", "", engine)):
                self._measured.setdefault(group, []).append(record.seconds)

    def seconds(self, cell: Cell) -> float | None:
        """Return the approximate seconds of a cell; None if unknown."""
        row, engine = cell.row.name, cell.config.engine
        for group in ((row, cell.data.name), (row,), ("", "", engine)):
            if group in self._measured:
                return fmean(self._measured[group])
        hint = self._hints.get(row, self._hints.get(engine))
        if hint is None or engine == "full":
            return hint
        return hint * cell.config.minibatch.steps / self._steps.get(row, cell.config.minibatch.steps)

    def total(self, cells: Sequence[Cell], workers: int) -> float | None:
        """Return the approximate seconds of all cells, `workers` at a time; None if none of them is known."""
        known = [seconds for cell in cells if (seconds := self.seconds(cell)) is not None]
        if not known:
            return None if cells else 0.0
        return (sum(known) + fmean(known) * (len(cells) - len(known))) / min(workers, len(cells))


@dataclass(frozen=True)
class Schedule:
    """What a run of a grid will do: its requested `cells`, those `done` with a record in the folder, and `remaining`.

    `stored` are all records of the folder, `finished` the usable trainings by key, also of reused folders.
    """

    cells: list[Cell]
    stored: list[Record]
    finished: dict[str, Record]
    done: list[Cell]
    remaining: list[Cell]
    estimate: TimeEstimate

    @property
    def trainings(self) -> dict[str, Cell]:
        """Cells to train, by key: cells of several rows may be the same training."""
        first: dict[str, Cell] = {}
        for cell in self.remaining:
            if cell.key not in self.finished:
                first.setdefault(cell.key, cell)
        return first


def list_cells(grid: Grid, only: Sequence[str]) -> list[Cell]:
    """List the requested cells; an error if there are none."""
    cells = grid.cells(only)
    if not cells:
        got, allowed = ", ".join(only), "texts that occur together in some cell"
        raise InputError("--only", got=got, allowed=allowed, remedy="Leave one out.")
    return cells


def read_reused(folders: Iterable[Path | str]) -> list[Record]:
    """Read the records of other folders that `warmpot bench` wrote."""
    records = []
    for folder in folders:
        read_grid(folder)  # raises for a folder without a grid
        records += read_store(folder)
    return records


def make_schedule(
    grid: Grid, cells: list[Cell], stored: list[Record], reused: Sequence[Record] = (), data: GridData | None = None
) -> Schedule:
    """Compare the requested cells with the records of the output folder and of reused ones.

    With `data`, records of files with other content count as not finished. Nothing else is read, and nothing written.
    """
    by_coordinates = {record.coordinates: record for record in stored}
    by_key = {cell.key: cell for cell in cells}
    usable = [record for record in (*reused, *stored) if record.done and record.key in by_key]
    finished = {record.key: record for record in usable if _same_content(record, by_key[record.key], data)}
    done: list[Cell] = []
    remaining: list[Cell] = []
    for cell in cells:
        record = by_coordinates.get(cell.coordinates)
        current = record is not None and record.done and record.key == cell.key and _same_content(record, cell, data)
        (done if current else remaining).append(cell)
    estimate = TimeEstimate(cells, grid.seconds, _hint_steps(grid))
    for record in (*reused, *stored):
        estimate.add(record)
    return Schedule(cells, stored, finished, done, remaining, estimate)


def _same_content(record: Record, cell: Cell, data: GridData | None) -> bool:
    """Whether the files of a record have the content of the files of a cell; True if either is unknown."""
    content = data.content(cell.data, cell.task) if data is not None and record.content else ""
    return not content or content == record.content


def _hint_steps(grid: Grid) -> dict[str, int]:
    """Return the steps of every row without the settings of all rows, which ``--set`` may have changed."""
    from warmpot.train import load_config

    if not grid.seconds or "minibatch" not in grid.changes:
        return {}
    presets = {row.name: row.recipe(images=any(entry.images for entry in grid.data)) for row in grid.rows}
    return {row.name: load_config(presets[row.name], changes=row.changes).minibatch.steps for row in grid.rows}


def run_grid(
    grid: Grid,
    *,
    data: Path | str,
    out: Path | str,
    only: Sequence[str] = (),
    reuse: Sequence[Path | str] = (),
    workers: int | None = None,
    ray_address: str | None = None,
    gpus: float = 0.0,
    progress_bar: bool | None = None,
    on_start: Callable[[Schedule], None] | None = None,
    on_failure: Callable[[Record], None] | None = None,
) -> list[Record]:
    """Train the cells without a result, and return the records of all requested cells.

    A cell that fails is recorded with its error, and the others continue; the same call tries it again. Every cell is
    trained with one thread, so that no result depends on the number of workers.

    Parameters
    ----------
    grid : Grid
    data : path
        Folder that the paths in the grid start from; with Ray, the same on all nodes.
    out : path
        Output folder; one with the same grid is continued.
    only : sequence of str
        As in `Grid.cells`.
    reuse : sequence of paths
        Other folders that `warmpot bench` wrote: results of the same trainings are copied.
    workers : int, optional
        Cells trained at a time, in processes; default: one, in this process, or with Ray as many as it has CPUs for.
    ray_address : str, optional
        Train on Ray, as in `warmpot.select.sweep`. Only this process writes.
    gpus : float
        GPUs that Ray gives to a cell.
    progress_bar : bool, optional
        Default: a bar on a terminal, log lines at INFO elsewhere.
    on_start, on_failure : callable, optional
        Called with the schedule before the first training, and with the record of a cell that failed (default: a
        warning in the log).
    """
    out, reader = Path(out), GridData(data)
    if workers is not None:
        check_count("workers", workers)
    cells, reused = list_cells(grid, only), read_reused(reuse)  # errors in these before anything is written
    if not (out / GRID).exists() and not is_unused(out):  # before the lock, which is a file
        got, allowed = "a folder with other files", "a new or empty folder, or one that `warmpot bench` wrote"
        raise InputError(str(out), got=got, allowed=allowed, remedy="Give a new folder.")
    with locked(make_folder(out) / LOCK, wait=False):
        _prepare_folder(grid, out)
        schedule = make_schedule(grid, cells, read_store(out), reused, reader)
        if on_start is not None:
            on_start(schedule)
        _check(schedule.trainings.values(), reader if ray_address is None else None)
        results = _Results(out, schedule)
        if schedule.trainings:
            with runner(_train, reader, workers=workers, ray_address=ray_address, gpus=gpus) as run:
                _train_all(run, schedule, results, progress_bar, on_failure or _warn)
    return [results.records[cell.coordinates] for cell in cells]


def _train(data: GridData, cell: Cell) -> Record:
    from warmpot.bench.training import train_cell

    return train_cell(data, cell)


def _prepare_folder(grid: Grid, out: Path) -> None:
    """Write the grid into a new folder, or check that an old one has the same grid, or less of `EXTENDABLE`."""
    if (out / GRID).exists():
        before = read_grid(out)
        old, new = _fixed_parts(before), _fixed_parts(grid)
        changed = [name for name in new if new[name] != old[name]]
        if not set(before.choose) <= set(grid.choose):
            changed.append("choose")
        if changed:
            got, allowed = f"another grid: other {', '.join(changed)}", "the same grid, to continue it"
            remedy = "Give a new folder with --out; --reuse copies the results of cells that both have."
            raise InputError(str(out), got=got, allowed=allowed, remedy=remedy)
        seeds = tuple(sorted({*before.seeds, *grid.seeds}))
        grid = dataclasses.replace(grid, seeds=seeds, known_classes=before.known_classes or grid.known_classes)
    write_text(out / GRID, grid.dump())


def _fixed_parts(grid: Grid) -> dict[str, Any]:
    """Return the parts that a folder cannot change; settings of data sets and names in the paper are only text."""
    mapping = {name: part for name, part in grid.to_mapping().items() if name not in (*MUTABLE, *EXTENDABLE)}
    texts = {"data": "setting", "rows": "reported"}
    return mapping | {name: [{**entry, text: ""} for entry in mapping[name]] for name, text in texts.items()}


def _check(cells: Iterable[Cell], data: GridData | None) -> None:
    """Raise once for what would fail in every cell."""
    for cell in cells:
        if (processes := cell.config.minibatch.hardware.processes) > 1:
            remedy = "Train several cells at a time: --jobs, or --ray-address with --gpus 1."
            raise InputError("minibatch.hardware", got=f"{processes} processes", allowed="one per cell", remedy=remedy)
        for path in data.paths(cell.data, cell.task) if data else ():
            if not path.exists():
                what, got = f"data of {cell.data.name}", f"no {path}"
                remedy = "Give the folder of the data with --data, or leave its cells out with --only."
                raise InputError(what, got=got, allowed="a file or folder", remedy=remedy)


class _Results:
    """The records of a folder, in memory and on disk; trainings that are finished elsewhere are copied first."""

    def __init__(self, out: Path, schedule: Schedule) -> None:
        self._out = out
        self.records = {record.coordinates: record for record in schedule.stored}
        self._cells: dict[str, list[Cell]] = {}
        for cell in schedule.remaining:
            self._cells.setdefault(cell.key, []).append(cell)
        for key in self._cells:
            if key in schedule.finished:
                self.add(schedule.finished[key])

    def add(self, record: Record) -> int:
        """Store the result of a training for every remaining cell that is this training; return their number."""
        cells = self._cells[record.key]
        for cell in cells:
            own = dataclasses.replace(record, **cell.record_fields)
            append(self._out, own)
            self.records[own.coordinates] = own
        return len(cells)


def _train_all(
    run: Runner, schedule: Schedule, results: _Results, bar: bool | None, on_failure: Callable[[Record], None]
) -> None:
    trainings, total = schedule.trainings, len(schedule.cells)
    done = total - sum(cell.key in trainings for cell in schedule.remaining)
    waiting, before, trained, share = dict(trainings), done / total, 0.0, 0.0
    with progress("bench", logger, bar) as report:
        expected = schedule.estimate.total(list(waiting.values()), run.workers) or 0.0
        report(before, f"cell {done + 1} of {total}", expected)
        for outcome in run(Job(key, (cell,)) for key, cell in trainings.items()):
            cell = waiting.pop(outcome.key)
            record = _finished_record(cell, outcome)
            if record.done:
                schedule.estimate.add(record)
                accuracies = ", ".join(f"{100 * value:.1f} {rule}" for rule, value in record.accuracy.items())
                logger.info("%s: %s, %s", cell.name, accuracies, format_duration(record.seconds))
            else:
                on_failure(record)
            done += results.add(record)
            # By estimated seconds of one thread, since rows differ; a new estimate never takes the bar back.
            trained += record.seconds
            ahead = schedule.estimate.total(list(waiting.values()), 1) or 0.0
            known = trained > 0 and (ahead > 0 or not waiting)
            share = max(share, trained / (trained + ahead) if known else 1 - len(waiting) / len(trainings))
            report(before + (1 - before) * share, f"{done} of {total} cells")


def _finished_record(cell: Cell, outcome: Done | Failed) -> Record:
    """Return the record of an outcome; one with a NaN or infinite result is a failure, since JSON has neither."""
    from warmpot.bench.training import make_record

    if isinstance(outcome, Failed):
        return make_record(cell, status=FAILED, error=" ".join(str(outcome).split()), trace=outcome.trace)
    record: Record = outcome.value
    numbers = {**record.accuracy, **record.scores, **record.per_class, "outlier weight": record.outlier_weight}
    invalid = [name for name, value in numbers.items() if value is not None and not math.isfinite(value)]
    return make_record(cell, status=FAILED, error=f"not a finite number: {', '.join(invalid)}") if invalid else record


def _warn(record: Record) -> None:
    message = "%s failed; the other cells continue, and the same call tries it again. %s"
    logger.warning(message, record.name, record.error)
