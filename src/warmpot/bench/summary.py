"""What the records of a grid say: means and spreads over seeds, by row, task and rule; what failed, what is missing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from warmpot.bench.grid import Grid, read_grid
from warmpot.bench.store import LAST, ORACLE, Record, read_store
from warmpot.errors import listing

__all__ = [
    "ABSENT",
    "Line",
    "Missing",
    "Place",
    "Score",
    "Summary",
    "alike",
    "best",
    "line_of",
    "points",
    "rule_words",
    "summarise",
]

Place = tuple[str, str]
"""Data set and task."""
ABSENT = "-"
Point = tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Line:
    """A line of a table: a row of the grid, at a point of what the grid varies."""

    row: str
    point: Point = ()

    @property
    def label(self) -> str:
        """Name it in a table.

        Examples
        --------
        >>> Line("frozen", (("params.alpha", 0.5), ("params.beta", 0.35))).label
        'frozen, alpha 0.5, beta 0.35'
        """
        return ", ".join([self.row, *(f"{name.split('.')[-1]} {value:g}" for name, value in self.point)])


@dataclass(frozen=True)
class Score:
    """A number for every seed that has one.

    Attributes
    ----------
    values : mapping of int to float
        In per cent, but seconds.
    asked : int
        Seeds that the grid has.
    constant : bool
        Whether the seed changes nothing: there is one run, and no spread.
    """

    values: Mapping[int, float]
    asked: int
    constant: bool = False

    @property
    def mean(self) -> float | None:
        """Over seeds; None without any."""
        return float(np.mean(list(self.values.values()))) if self.values else None

    @property
    def std(self) -> float | None:
        """Sample standard deviation over seeds; None for fewer than two, and where the seed changes nothing."""
        if self.constant or len(self.values) < 2:
            return None
        return float(np.std(list(self.values.values()), ddof=1))

    @property
    def text(self) -> str:
        """Mean (std), and how many seeds it is of when some are missing.

        Examples
        --------
        >>> Score({0: 80.0, 1: 82.0}, asked=3).text
        '81.0 (1.4), 2 of 3 seeds'
        """
        if self.mean is None:
            return ABSENT
        spread = "" if self.std is None else f" ({self.std:.1f})"
        few = "" if len(self.values) == self.asked else f", {len(self.values)} of {self.asked} seeds"
        return f"{self.mean:.1f}{spread}{few}"


@dataclass(frozen=True)
class Missing:
    """A place of the tables whose trainings are not all there: those never finished, and those that failed."""

    line: Line
    place: Place
    open: tuple[int, ...]
    failed: tuple[int, ...]


class Summary:
    """Records in the order of their grid; those of other grids in the same store are counted in `others`.

    Parameters
    ----------
    grid : Grid
    records : iterable of Record

    Attributes
    ----------
    lines : tuple of Line
    datasets : mapping of str to tuple of str
        Tasks of each data set.
    places : tuple of Place
    rules : tuple of str
        "last", the label-free ones, "oracle": never mixed.
    failed : tuple of Record
    others : int
    """

    def __init__(self, grid: Grid, records: Iterable[Record]) -> None:
        self.grid, self.seeds = grid, tuple(grid.seeds)
        points = [tuple(sorted(point.items())) for point in grid.points()]
        self.lines = tuple(Line(row.name, point) for row in grid.rows for point in points)
        self.datasets: dict[str, tuple[str, ...]] = {data.name: tuple(data.tasks) for data in grid.data}
        self.places: tuple[Place, ...] = tuple((name, task) for name, tasks in self.datasets.items() for task in tasks)
        self.rules = (LAST, *grid.choose, ORACLE)
        lines, places, records = set(self.lines), set(self.places), tuple(records)
        self.records = tuple(
            r for r in records
            if line_of(r) in lines and (r.dataset, r.task) in places and (r.any_seed or r.seed in self.seeds)
        )  # fmt: skip
        self.others = len(records) - len(self.records)
        self.failed = tuple(r for r in self.records if not r.done)
        self._any = {(line_of(r), (r.dataset, r.task)): r for r in self.records if r.any_seed}
        self._one = {(line_of(r), (r.dataset, r.task), r.seed): r for r in self.records if not r.any_seed}

    def record(self, line: Line, place: Place, seed: int) -> Record | None:
        """Return what a training came to, done or failed; one that no seed changes stands for every seed."""
        return self._any.get((line, place)) or self._one.get((line, place, seed))

    def score(self, line: Line, places: Sequence[Place], what: str) -> Score:
        """Return the mean over places by seed, of the seeds that have all of them.

        Parameters
        ----------
        line : Line
        places : sequence of Place
            One task, or all of a data set, or all.
        what : str
            A rule: the accuracy of the iterate that it takes; or "outlier_weight", "outlier_samples", "seconds".
        """
        values = {}
        for seed in self.seeds:
            found = [_value(self.record(line, place, seed), what) for place in places]
            numbers = [value for value in found if value is not None]
            if found and len(numbers) == len(found):
                values[seed] = float(np.mean(numbers))
        constant = bool(values) and all((line, place) in self._any for place in places)
        return Score(values, len(self.seeds), constant)

    def task(self, line: Line, place: Place, rule: str) -> Score:
        """Score of one task."""
        return self.score(line, [place], rule)

    def mean(self, line: Line, rule: str, dataset: str | None = None) -> Score:
        """Score over the tasks of a data set, or over all tasks, as far as they are `present`."""
        return self.score(line, [place for place in self.present if dataset in (None, place[0])], rule)

    @cached_property
    def present(self) -> tuple[Place, ...]:
        """Tasks that some line has finished; all of them before anything is.

        Means over tasks and ranks are of these: a task that failed for every line tells none from another. A line that
        lacks one of these has no mean.
        """
        there = {(record.dataset, record.task) for record in self.records if record.done}
        return tuple(place for place in self.places if place in there) or self.places

    def over(self, dataset: str | None = None) -> str:
        """Count the tasks that a mean is over, and all when these are more."""
        counts = [sum(dataset in (None, name) for name, _ in places) for places in (self.present, self.places)]
        return f"{counts[0]}" if counts[0] == counts[1] else f"{counts[0]} of {counts[1]}"

    @cached_property
    def left_out(self) -> str:
        """Say which tasks no mean is over, and why; "" when there are none."""
        absent = [place for place in self.places if place not in self.present]
        lost = {(line_of(record), (record.dataset, record.task)) for record in self.failed}
        failed = [place for place in absent if all((line, place) in lost for line in self.lines)]
        reasons = (
            ("failed for every row", failed),
            ("not finished for any row", [place for place in absent if place not in failed]),
        )
        told = [f"{listing(self._short(places), most=3)} {words}" for words, places in reasons if places]
        return f"Over {self.over()} tasks: {'; '.join(told)}." if told else ""

    def _short(self, places: Sequence[Place]) -> list[str]:
        """Name tasks; a data set all of whose tasks are there by its name."""
        whole = {name for name, tasks in self.datasets.items() if all((name, task) in places for task in tasks)}
        return list(dict.fromkeys(name if name in whole else f"{name}, {task}" for name, task in places))

    def below(self, line: Line, other: Line, rule: str) -> tuple[int, int]:
        """Count the tasks whose mean over seeds is below another line's, and those that both lines have."""
        pairs = [(self.task(line, place, rule).mean, self.task(other, place, rule).mean) for place in self.places]
        both = [(a, b) for a, b in pairs if a is not None and b is not None]
        return sum(a < b - 1e-9 for a, b in both), len(both)

    @cached_property
    def baseline(self) -> Line | None:
        """Line that the others are compared with."""
        return next((line for line in self.lines if self.grid.baseline and line.row == self.grid.baseline), None)

    @cached_property
    def missing(self) -> tuple[Missing, ...]:
        """Where numbers are not there, or of fewer seeds than asked."""
        found = []
        for line in self.lines:
            for place in self.places:
                records = {seed: self.record(line, place, seed) for seed in self.seeds}
                absent = tuple(seed for seed, record in records.items() if record is None)
                failed = tuple(seed for seed, record in records.items() if record is not None and not record.done)
                if absent or failed:
                    found.append(Missing(line, place, absent, failed))
        return tuple(found)

    @property
    def done(self) -> int:
        """Trainings that are finished."""
        return len(self.records) - len(self.failed)

    @property
    def for_all_seeds(self) -> int:
        """Trainings that stand for all of several seeds."""
        return sum(record.any_seed for record in self.records) if len(self.seeds) > 1 else 0

    @property
    def asked(self) -> int:
        """Trainings of the whole grid; where it is not known yet that a seed changes nothing, all seeds count."""
        pairs = [(line, place) for line in self.lines for place in self.places]
        return sum(1 if pair in self._any else len(self.seeds) for pair in pairs)


def summarise(folder: Path | str) -> Summary:
    """Read the grid and the records of a folder that ``warmpot bench`` wrote."""
    return Summary(read_grid(folder), read_store(folder))


def alike(failed: Iterable[Record]) -> list[tuple[Record, ...]]:
    """Put failed trainings together that have the same error on the same data set."""
    found: dict[tuple[str, str], list[Record]] = {}
    for record in failed:
        found.setdefault((record.dataset, record.error), []).append(record)
    return [tuple(records) for records in found.values()]


def rule_words(rule: str) -> str:
    """Say which iterate a rule takes.

    Examples
    --------
    >>> rule_words("oracle")
    'best iterate by target labels (oracle)'
    """
    words = {LAST: "last iterate", ORACLE: "best iterate by target labels (oracle)"}
    return words.get(rule, f"iterate chosen by {rule}, without target labels")


def points(difference: float) -> str:
    """Write a difference of accuracies with its sign; none has no minus.

    Examples
    --------
    >>> points(1.26), points(-0.04)
    ('+1.3', '+0.0')
    """
    return f"{round(difference, 1) + 0.0:+.1f}"


def best(means: Sequence[float | None]) -> set[int]:
    """Places of the highest mean, as printed: all of those that read the same.

    Examples
    --------
    >>> sorted(best([81.24, None, 81.16, 80.0]))
    [0, 2]
    """
    printed = {k: round(mean, 1) for k, mean in enumerate(means) if mean is not None}
    return {k for k, mean in printed.items() if mean == max(printed.values())}


def line_of(record: Record) -> Line:
    """Return the line that a record belongs to."""
    return Line(record.row, tuple(sorted((name, float(value)) for name, value in record.point.items())))


def _value(record: Record | None, what: str) -> float | None:
    if record is None or not record.done:
        return None
    if what == "seconds":
        return record.seconds
    found = getattr(record, what) if what in ("outlier_weight", "outlier_samples") else record.accuracy.get(what)
    return None if found is None else 100.0 * found
