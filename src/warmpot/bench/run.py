"""A grid run: cells that the store lacks are trained, here, in local processes or on Ray, and kept as they come."""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from filelock import FileLock, Timeout

from warmpot._checks import check_count
from warmpot._files import atomic_write
from warmpot._jobs import Done, Job, Runner, runner
from warmpot._progress import format_duration, progress
from warmpot.bench.data import content, places
from warmpot.bench.grid import GRID, Cell, Grid, read_grid
from warmpot.bench.store import FAILED, Record, append, read_store
from warmpot.errors import InputError

__all__ = [
    "Estimate",
    "Plan",
    "plan",
    "prepare_folder",
    "run_grid",
]

logger = logging.getLogger(__name__)

FREE = ("title", "setting", "reported", "figure", "baseline", "seconds")
"""Parts of a grid that change no training: a folder may get other ones."""
LOCK = ".lock"
ROUGH_STEPS, ROUGH_SAMPLES = 1500, 3000
ROUGH = {"source-only": 25, "mpot": 60, "jumbot": 24, "ba3us": 35, "pwan": 60, "ar": 46, "arpm": 38, "warmpot": 22}
"""Seconds of so many mini-batch steps, on features of so many samples, on one thread of the machine of the docs."""
ROUGH_FULL = {"source-only": 3, "warmpot": 13}
"""The same of the full engine, at its default rounds."""
ROUGH_OTHER = 35


class Estimate:
    """How long cells take: as those of the same row and data set did, else of the row, else of the engine, else hints.

    When nothing is known of any cell, `total` falls back on what others took on the machine of the docs, which `rough`
    tells.

    Parameters
    ----------
    cells : iterable of Cell
        Of the grid: they say which engine a row has.
    hints : mapping of str to float
        Seconds by row or engine.
    steps : mapping of str to int
        Training steps by row that the hints are for.
    """

    def __init__(self, cells: Iterable[Cell], hints: Mapping[str, float], steps: Mapping[str, int]) -> None:
        self._engines = {cell.row.name: cell.config.engine for cell in cells}
        self._hints, self._steps = hints, steps
        self._seen: dict[tuple[str, ...], list[float]] = {}

    def learn(self, record: Record) -> None:
        """Take a finished cell into account."""
        if record.done:
            for kind in ((record.row, record.dataset), (record.row,), ("", "", self._engines.get(record.row, ""))):
                self._seen.setdefault(kind, []).append(record.seconds)

    def seconds(self, cell: Cell) -> float | None:
        """Return about how long it takes; None when nothing is known."""
        row, engine = cell.row.name, cell.config.engine
        for kind in ((row, cell.data.name), (row,), ("", "", engine)):
            if kind in self._seen:
                return fmean(self._seen[kind])
        hint = self._hints.get(row, self._hints.get(engine))
        if hint is None or engine == "full":
            return hint
        return hint * cell.config.minibatch.steps / self._steps.get(row, cell.config.minibatch.steps)

    def total(self, cells: Sequence[Cell], workers: int) -> float | None:
        """Return about how long all of them take, so many at a time; None when not even a rough number is known."""
        about = _rough_seconds if self.rough(cells) else self.seconds
        known = [seconds for cell in cells if (seconds := about(cell)) is not None]
        if not known:
            return 0.0 if not cells else None
        all_of_them = sum(known) + fmean(known) * (len(cells) - len(known))
        return all_of_them / min(workers, len(cells))

    def rough(self, cells: Sequence[Cell]) -> bool:
        """Tell whether nothing is known of any of the cells."""
        return all(self.seconds(cell) is None for cell in cells)


def _rough_seconds(cell: Cell) -> float | None:
    """Return what such a cell took elsewhere; None for images, which depend on the machine altogether."""
    config = cell.config
    if config.images is not None:
        return None
    if config.engine == "full":
        return float(ROUGH_FULL.get(config.method, ROUGH_FULL["warmpot"]))
    return ROUGH.get(config.method, ROUGH_OTHER) * config.minibatch.steps / ROUGH_STEPS


@dataclass(frozen=True)
class Plan:
    """What a run of a grid will do.

    Attributes
    ----------
    cells : list of Cell
        Those asked for.
    found : dict of str to Record
        Finished trainings by key, of this folder and of those to be reused.
    done, left : list of Cell
        Cells that the folder has finished records of, and all others.
    estimate : Estimate
    """

    cells: list[Cell]
    found: dict[str, Record]
    done: list[Cell]
    left: list[Cell]
    estimate: Estimate

    @property
    def trainings(self) -> list[Cell]:
        """What must be trained: one cell of every key that nothing finished has."""
        first: dict[str, Cell] = {}
        for cell in self.left:
            if cell.key not in self.found:
                first.setdefault(cell.key, cell)
        return list(first.values())


def plan(
    grid: Grid,
    out: Path | str,
    *,
    only: Sequence[str] = (),
    reuse: Sequence[Path | str] = (),
    data: Path | str | None = None,
) -> Plan:
    """Look what a folder has, and what is left; nothing is written.

    Parameters
    ----------
    grid : Grid
    out : path
        Folder of the bench; it need not be there.
    only : sequence of str
        As in `Grid.cells`.
    reuse : sequence of paths
        Folders of other benches, whose cells of the same training are taken over.
    data : path, optional
        Folder of the data: what was trained on files that hold something else counts for nothing.
    """
    cells = grid.cells(only)
    if not cells:
        got, allowed = ", ".join(only), "texts that some cell has all of"
        raise InputError("--only", got=got, allowed=allowed, remedy="Leave one out.")
    own = read_store(out)
    here = {record.place: record for record in own}
    others = [record for folder in reuse for record in _other(folder)]
    asked = {cell.key: cell for cell in cells}
    finished = [record for record in (*others, *own) if record.done and record.key in asked]
    found = {record.key: record for record in finished if _same_data(record, asked[record.key], data)}
    done = [
        cell for cell in cells
        if (kept := here.get(cell.place)) and kept.done and kept.key == cell.key and _same_data(kept, cell, data)
    ]  # fmt: skip
    estimate = Estimate(cells, grid.seconds, _steps(grid) if grid.seconds else {})
    for record in (*others, *own):
        estimate.learn(record)
    kept_places = {cell.place for cell in done}
    return Plan(cells, found, done, [cell for cell in cells if cell.place not in kept_places], estimate)


def _same_data(record: Record, cell: Cell, data: Path | str | None) -> bool:
    """Tell whether a record is of the files that a cell has now, as far as is known."""
    now = content(cell.data, cell.task, Path(data)) if data is not None and record.content else ""
    return not now or now == record.content


def _other(folder: Path | str) -> list[Record]:
    read_grid(folder)  # says what is wrong with a folder that is none
    return read_store(folder)


def _steps(grid: Grid) -> dict[str, int]:
    """Count the steps of every row as the grid's file has them, which the hints are for."""
    from warmpot.train import load_config

    return {row.name: load_config(row.preset, changes=row.changes).minibatch.steps for row in grid.rows}


def prepare_folder(grid: Grid, out: Path) -> None:
    """Write the grid into a new folder, or check that an old one holds the same; seeds and rules may be more."""
    asked = grid.to_mapping()
    if (out / GRID).exists():
        before = read_grid(out)
        old = before.to_mapping()
        more = set(before.choose) <= set(grid.choose)
        other = [name for name in asked if name not in (*FREE, "seeds", "choose") and asked[name] != old[name]]
        if other or not more:
            got = "another grid: other " + ", ".join([*other, *([] if more else ["choose"])])
            remedy = "Name a new folder with --out; --reuse takes over the cells that both have."
            raise InputError(str(out), got=got, allowed="the same grid, to go on with", remedy=remedy)
        seeds = tuple(sorted({*before.seeds, *grid.seeds}))
        grid = dataclasses.replace(grid, seeds=seeds)
    elif out.exists() and (not out.is_dir() or any(entry.name != LOCK for entry in out.iterdir())):
        got, remedy = "something that is there already", "Name a new folder."
        raise InputError(str(out), got=got, allowed="a new or empty folder, or a bench", remedy=remedy)
    with atomic_write(out / GRID) as draft:
        draft.write_text(grid.dump(), encoding="utf-8")


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
    on_failure: Callable[[Record], None] | None = None,
) -> list[Record]:
    """Train what the folder lacks, and return the records of all cells that were asked for.

    A cell that fails is recorded with its error, and the others go on; the same call tries it again. Every cell is
    trained with one thread, so that no result depends on the number of workers.

    Parameters
    ----------
    grid : Grid
    data : path
        Folder that the paths in the grid start from; with Ray, the same on all nodes.
    out : path
        Folder; one with the same grid in it is continued.
    only, reuse
        As in `plan`.
    workers : int, optional
        Cells trained at a time, in processes; default: one, here, or with Ray as many as it has CPUs for.
    ray_address : str, optional
        Train on Ray; see `warmpot._jobs.runner`. Only this process writes.
    gpus : float
        GPUs that Ray gives to a cell.
    progress_bar : bool, optional
        Default: a bar on a terminal, log lines at INFO elsewhere.
    on_failure : callable, optional
        Called with the record of a cell that failed; default: a warning in the log.
    """
    out = Path(out)
    if workers is not None:
        check_count("workers", workers)
    plan(grid, out, only=only, reuse=reuse, data=data)  # refuses what is wrong before anything is written
    _make(out)
    try:
        with FileLock(out / LOCK, timeout=0):
            prepare_folder(grid, out)
            todo = plan(grid, out, only=only, reuse=reuse, data=data)
            _check(todo.trainings, Path(data) if ray_address is None else None)
            _take_over(out, todo)
            if todo.trainings:
                with runner(_run, str(data), workers=workers, ray_address=ray_address, gpus=gpus) as run:
                    _train(run, todo, out, progress_bar, on_failure or _warn)
    except Timeout:
        got, remedy = "a bench that is running", "Wait for it, or name another folder."
        raise InputError(str(out), got=got, allowed="a folder that nobody writes to", remedy=remedy) from None
    asked = {cell.place for cell in todo.cells}
    return [record for record in read_store(out) if record.place in asked]


def _run(data: str, cell: Cell) -> Record:
    from warmpot.bench.cell import run_cell

    return run_cell(data, cell)


def _make(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        remedy = "Choose a place you may write to."
        raise InputError(str(out), got=error.strerror, allowed="a folder", remedy=remedy) from error


def _check(cells: Iterable[Cell], data: Path | None) -> None:
    """Refuse once what would fail in cell after cell."""
    for cell in cells:
        if (number := cell.config.minibatch.hardware.processes) > 1:
            got, remedy = (
                f"{number} processes",
                "Train several cells at a time: --workers, or --ray-address with --gpus 1.",
            )
            raise InputError("minibatch.hardware", got=got, allowed="one a cell", remedy=remedy)
        if data is not None and (
            missing := [place for place in places(cell.data, cell.task, data) if not place.exists()]
        ):
            remedy = "Name the folder of the data with --data, or leave its cells out with --only."
            what = f"data of {cell.data.name}"
            raise InputError(what, got=f"no {missing[0]}", allowed="a file or folder", remedy=remedy)


def _placed(record: Record, cell: Cell) -> Record:
    """Return the record of a training at its place in this grid."""
    return dataclasses.replace(
        record, dataset=cell.data.name, task=cell.task, row=cell.row.name, preset=cell.config.preset, seed=cell.seed,
        any_seed=cell.any_seed, point=dict(cell.point), setting=cell.setting,
    )  # fmt: skip


def _take_over(out: Path, todo: Plan) -> None:
    for cell in todo.left:
        if cell.key in todo.found:
            append(out, _placed(todo.found[cell.key], cell))


def _train(run: Runner, todo: Plan, out: Path, bar: bool | None, on_failure: Callable[[Record], None]) -> None:
    """Run the cells and keep every outcome as it comes, at each of its places."""
    from warmpot.bench.cell import record_of

    trainings = {cell.key: cell for cell in todo.trainings}
    waiting, total = dict(trainings), len(todo.cells)
    done = total - sum(cell.key in trainings for cell in todo.left)
    with progress("bench", logger, bar) as report:
        report(done / total, f"cell {done + 1} of {total}{_left(todo.estimate, waiting, run.workers)}")
        for outcome in run(Job(key, (cell,)) for key, cell in trainings.items()):
            cell = waiting.pop(outcome.key)
            if isinstance(outcome, Done):
                record: Record = _finite(cell, outcome.value)
            else:
                text = " ".join(str(outcome).split())
                record = record_of(cell, status=FAILED, error=text, trace=outcome.trace)
            if record.done:
                todo.estimate.learn(record)
                logger.info("%s: %s", cell.name, _told(record))
            else:
                on_failure(record)
            for place in todo.left:
                if place.key == cell.key:
                    append(out, _placed(record, place))
                    done += 1
            report(done / total, f"{done} of {total} cells{_left(todo.estimate, waiting, run.workers)}")


def _finite(cell: Cell, record: Record) -> Record:
    """Return a record, or a failed one in its place when something in it is no number: the store holds numbers only."""
    from warmpot.bench.cell import record_of

    told = {**record.accuracy, **record.scores, **record.per_class, "outlier weight": record.outlier_weight}
    odd = [name for name, value in told.items() if value is not None and not math.isfinite(value)]
    return record_of(cell, status=FAILED, error=f"not a number: {', '.join(odd)}") if odd else record


def _left(estimate: Estimate, waiting: Mapping[str, Cell], workers: int) -> str:
    cells = list(waiting.values())
    seconds = estimate.total(cells, workers)
    return f", {'roughly' if estimate.rough(cells) else 'about'} {format_duration(seconds)} left" if seconds else ""


def _told(record: Record) -> str:
    numbers = ", ".join(f"{100 * value:.1f} {name}" for name, value in record.accuracy.items())
    return f"{numbers}, {format_duration(record.seconds)}"


def _warn(record: Record) -> None:
    name = f"{record.dataset}, {record.task}, {record.row}, seed {record.seed}"
    logger.warning("%s failed, and the rest goes on; the same call tries it again. %s", name, record.error)
