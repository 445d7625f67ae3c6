"""Running a grid: cells without a result are trained here, in local processes or on Ray, and stored as they finish."""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from warmpot._checks import check_count
from warmpot._files import atomic_write
from warmpot._jobs import Done, Failed, Job, Runner, runner
from warmpot._progress import format_duration, progress
from warmpot.bench.grid import GRID, Cell, Grid, read_grid
from warmpot.bench.grid_data import GridData
from warmpot.bench.schedule import Schedule, list_cells, make_schedule, read_reused
from warmpot.bench.store import FAILED, Record, append, read_store
from warmpot.errors import InputError

__all__ = ["prepare_folder", "run_grid"]

logger = logging.getLogger(__name__)

MUTABLE = ("title", "setting", "reported", "figure", "baseline", "seconds")
"""Parts of a grid that change no training: a folder may be continued with other ones."""
LOCK = ".lock"


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
        Train on Ray; see `warmpot._jobs.runner`. Only this process writes.
    gpus : float
        GPUs that Ray gives to a cell.
    progress_bar : bool, optional
        Default: a bar on a terminal, log lines at INFO elsewhere.
    on_start : callable, optional
        Called with the schedule before the first training.
    on_failure : callable, optional
        Called with the record of a cell that failed; default: a warning in the log.
    """
    out, reader = Path(out), GridData(data)
    if workers is not None:
        check_count("workers", workers)
    cells, reused = list_cells(grid, only), read_reused(reuse)  # errors in these before anything is written
    _make_folder(out)
    try:
        with FileLock(out / LOCK, timeout=0):
            prepare_folder(grid, out)
            schedule = make_schedule(grid, cells, read_store(out), reused, reader)
            if on_start is not None:
                on_start(schedule)
            _check(schedule.trainings.values(), reader if ray_address is None else None)
            results = _Results(out, schedule)
            if schedule.trainings:
                with runner(_train, reader, workers=workers, ray_address=ray_address, gpus=gpus) as run:
                    _train_all(run, schedule, results, progress_bar, on_failure or _warn)
    except Timeout:
        got, remedy = "a folder that another run writes to", "Wait for that run, or give another folder."
        raise InputError(str(out), got=got, allowed="a folder without a running bench", remedy=remedy) from None
    return [results.records[cell.coordinates] for cell in cells]


def _train(data: GridData, cell: Cell) -> Record:
    from warmpot.bench.training import train_cell

    return train_cell(data, cell)


def _make_folder(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        remedy = "Choose a folder that you may write to."
        raise InputError(str(out), got=error.strerror, allowed="a folder", remedy=remedy) from error


def prepare_folder(grid: Grid, out: Path) -> None:
    """Write the grid into a new folder, or check that an old one has the same grid; seeds and rules may be added."""
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
        grid = dataclasses.replace(grid, seeds=tuple(sorted({*before.seeds, *grid.seeds})))
    elif any(entry.name != LOCK for entry in out.iterdir()):
        got, allowed = "a folder with other files", "a new or empty folder, or one that `warmpot bench` wrote"
        raise InputError(str(out), got=got, allowed=allowed, remedy="Give a new folder.")
    with atomic_write(out / GRID) as draft:
        draft.write_text(grid.dump(), encoding="utf-8")


def _fixed_parts(grid: Grid) -> dict[str, Any]:
    """Return the parts that a folder cannot change, except seeds and rules; settings of data sets are only text."""
    mapping = {name: part for name, part in grid.to_mapping().items() if name not in (*MUTABLE, "seeds", "choose")}
    return mapping | {"data": [{**entry, "setting": ""} for entry in mapping["data"]]}


def _check(cells: Iterable[Cell], data: GridData | None) -> None:
    """Raise once for what would fail in every cell."""
    for cell in cells:
        if (processes := cell.config.minibatch.hardware.processes) > 1:
            remedy = "Train several cells at a time: --workers, or --ray-address with --gpus 1."
            raise InputError("minibatch.hardware", got=f"{processes} processes", allowed="one per cell", remedy=remedy)
        missing = [path for path in data.paths(cell.data, cell.task) if not path.exists()] if data else []
        if missing:
            remedy = "Give the folder of the data with --data, or leave its cells out with --only."
            what = f"data of {cell.data.name}"
            raise InputError(what, got=f"no {missing[0]}", allowed="a file or folder", remedy=remedy)


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
    waiting = dict(trainings)

    def left() -> str:
        seconds = schedule.estimate.total(list(waiting.values()), run.workers)
        return f", about {format_duration(seconds)} left" if seconds else ""

    with progress("bench", logger, bar) as report:
        report(done / total, f"cell {done + 1} of {total}{left()}")
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
            report(done / total, f"{done} of {total} cells{left()}")


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
