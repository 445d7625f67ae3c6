"""What a run of a grid will do: finished cells, cells to train, and an estimate of the time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from warmpot.bench.grid import Cell, Grid, read_grid
from warmpot.bench.grid_data import GridData
from warmpot.bench.store import Record, read_store
from warmpot.errors import InputError

__all__ = ["Schedule", "TimeEstimate", "list_cells", "make_schedule", "read_reused"]


class TimeEstimate:
    """Seconds of a training, from finished cells of the same row and data set, else row, else engine, else from hints.

    Parameters
    ----------
    cells : iterable of Cell
        Cells of the grid; they give the engine of each row.
    hints : mapping of str to float
        Seconds by row or engine, from the grid's file.
    steps : mapping of str to int
        Training steps by row that the hints refer to, where they differ from those of the cells.
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
    """What a run of a grid will do.

    Attributes
    ----------
    cells : list of Cell
        Requested cells.
    stored : list of Record
        All records of the folder.
    finished : dict of str to Record
        Finished trainings by key, of this folder and of reused ones.
    done, remaining : list of Cell
        Cells whose finished record is in the folder, and all others.
    estimate : TimeEstimate
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
    """Compare the requested cells with the finished records; nothing is read or written but the files of the data.

    Parameters
    ----------
    grid : Grid
    cells : list of Cell
        Requested cells of the grid.
    stored : list of Record
        Records of the output folder.
    reused : sequence of Record
        Records of other folders; those of the same training are copied.
    data : GridData, optional
        Records of files with other content count as not finished.
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
    return {row.name: load_config(row.preset, changes=row.changes).minibatch.steps for row in grid.rows}
