"""Results of a grid by variant, task and rule: scores over seeds, failures, missing cells, columns of tables."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from pathlib import Path

import numpy as np

from warmpot._tables import ResultTable, TableCell, TableColumn
from warmpot.bench.grid import Grid, read_grid
from warmpot.bench.store import KNOWN_CLASSES, LAST, ORACLE, Record, read_store
from warmpot.errors import listing

__all__ = ["Score", "Summary", "TaskKey", "Variant", "describe_rule", "group_failures", "load_summary"]

TaskKey = tuple[str, str]
"""Data set and task."""
ABSENT = "-"
PARTIAL = "-: not trained yet, or failed. A mean over tasks uses the seeds that have results for all of them."
PLAIN = ("seconds", "share_auc", "presence_auc", "presence_brier", "lost_classes")
"""Quantities that are not converted to per cent."""
Columns = list[tuple[TableColumn, Sequence[TableCell]]]
"""Heads and cells of a table, before they become rows."""


@dataclass(frozen=True)
class Variant:
    """A row of the grid at a point of the varied settings: one line of a table.

    `known_classes`: its trainings whose source has only the classes of the target, an oracle.
    """

    row: str
    point: tuple[tuple[str, float], ...] = ()
    known_classes: bool = False

    @property
    def label(self) -> str:
        """Its name in a table.

        Examples
        --------
        >>> Variant("frozen", (("params.alpha", 0.5), ("params.beta", 0.35))).label
        'frozen, alpha 0.5, beta 0.35'
        """
        point = (f"{name.split('.')[-1]} {value:g}" for name, value in self.point)
        return ", ".join([self.row, *point, *[KNOWN_CLASSES] * self.known_classes])


@dataclass(frozen=True)
class Score:
    """A number for every seed that has a result, of the `requested` seeds; in per cent, except `PLAIN` quantities.

    A `constant` score does not depend on the seed: there is one run, and no standard deviation.
    """

    values: Mapping[int, float]
    requested: int
    constant: bool = False

    @property
    def mean(self) -> float | None:
        """Mean over seeds; None without any."""
        return float(np.mean(list(self.values.values()))) if self.values else None

    @property
    def std(self) -> float | None:
        """Sample standard deviation over seeds; None for fewer than two, and for constant scores."""
        if self.constant or len(self.values) < 2:
            return None
        return float(np.std(list(self.values.values()), ddof=1))

    @property
    def text(self) -> str:
        """Mean (std), and the number of seeds if some are missing.

        Examples
        --------
        >>> Score({0: 80.0, 1: 82.0}, requested=3).text
        '81.0 (1.4), 2 of 3 seeds'
        """
        if self.mean is None:
            return ABSENT
        spread = "" if self.std is None else f" ({self.std:.1f})"
        few = "" if len(self.values) == self.requested else f", {len(self.values)} of {self.requested} seeds"
        return f"{self.mean:.1f}{spread}{few}"


@dataclass(frozen=True)
class Missing:
    """A variant on a task without all results: seeds not trained yet, and seeds that failed."""

    variant: Variant
    task: TaskKey
    untrained: tuple[int, ...]
    failed: tuple[int, ...]


class Summary:
    """Records in the order of their grid.

    Attributes
    ----------
    variants, trained_variants : tuple of Variant
        Those that are compared; and these together with the oracles with known classes, which are shown next to
        them and never compared.
    datasets : mapping of str to tuple of str
        Tasks of each data set.
    rules : tuple of str
        "last", the label-free ones, and "oracle".
    foreign_records : int
        Number of records of other grids in the same file, which are ignored.
    """

    def __init__(self, grid: Grid, records: Iterable[Record]) -> None:
        self.grid, self.seeds = grid, tuple(grid.seeds)
        points = [tuple(sorted(point.items())) for point in grid.points()]
        self.variants = tuple(Variant(row.name, point) for row in grid.rows for point in points)
        self.trained_variants = self.variants + tuple(
            replace(v, known_classes=True) for v in self.variants if grid.known_classes
        )
        self.datasets: dict[str, tuple[str, ...]] = {data.name: tuple(data.tasks) for data in grid.data}
        self.tasks: tuple[TaskKey, ...] = tuple((name, task) for name, tasks in self.datasets.items() for task in tasks)
        self.rules = (LAST, *grid.choose, ORACLE)
        variants, tasks, records = set(self.trained_variants), set(self.tasks), tuple(records)
        self.records = tuple(
            r for r in records
            if variant_of(r) in variants and task_of(r) in tasks and (r.any_seed or r.seed in self.seeds)
        )  # fmt: skip
        self.foreign_records = len(records) - len(self.records)
        self.failed = tuple(r for r in self.records if not r.done)
        self._any_seed = {(variant_of(r), task_of(r)): r for r in self.records if r.any_seed}
        self._by_seed = {(variant_of(r), task_of(r), r.seed): r for r in self.records if not r.any_seed}

    def ranked(self) -> Summary:
        """Return the same results with the variants by their mean at the last iterate, the best first.

        Those without a mean come last. The points of a grid that varies settings keep their order.
        """
        if self.grid.vary:
            return self
        means = {variant: self.mean(variant, LAST).mean for variant in self.variants}
        other = copy.copy(self)
        other.variants = tuple(sorted(means, key=lambda variant: (means[variant] is None, -(means[variant] or 0.0))))
        return other

    def record(self, variant: Variant, task: TaskKey, seed: int) -> Record | None:
        """Return the record of a training, done or failed; one that holds for any seed is that of every seed."""
        return self._any_seed.get((variant, task)) or self._by_seed.get((variant, task, seed))

    def score_over(self, variant: Variant, tasks: Sequence[TaskKey], quantity: str) -> Score:
        """Return the mean over tasks by seed, for the seeds with results for all of them.

        A quantity is a rule, for the accuracy of the iterate that it selects, or "outlier_weight", "outlier_samples" or
        one of `PLAIN`.
        """
        values = {}
        for seed in self.seeds:
            results = [_value(self.record(variant, task, seed), quantity) for task in tasks]
            numbers = [value for value in results if value is not None]
            if results and len(numbers) == len(results):
                values[seed] = float(np.mean(numbers))
        constant = bool(values) and all((variant, task) in self._any_seed for task in tasks)
        return Score(values, len(self.seeds), constant)

    def score(self, variant: Variant, task: TaskKey, quantity: str) -> Score:
        """Return the score of one task, as `score_over`."""
        return self.score_over(variant, [task], quantity)

    def mean(self, variant: Variant, quantity: str, dataset: str | None = None) -> Score:
        """Return the mean over the finished tasks of a data set, or over all finished tasks."""
        return self.score_over(variant, [task for task in self.finished_tasks if dataset in (None, task[0])], quantity)

    def known_classes_gap(self, variant: Variant, tasks: Sequence[TaskKey]) -> Score:
        """Return the points that knowing the classes gains, in the last iterate, for the seeds that have both."""
        own, oracle = (self.score_over(replace(variant, known_classes=known), tasks, LAST) for known in (False, True))
        values = {seed: oracle.values[seed] - value for seed, value in own.values.items() if seed in oracle.values}
        return Score(values, len(self.seeds), own.constant and oracle.constant)

    @cached_property
    def finished_tasks(self) -> tuple[TaskKey, ...]:
        """Tasks with a finished training of some compared variant; all tasks before the first training.

        Means over tasks and ranks use these, since a task that failed for every variant compares nothing. A variant
        without a result for one of these has no mean.
        """
        finished = {task_of(record) for record in self.records if record.done and not record.known_classes}
        return tuple(task for task in self.tasks if task in finished) or self.tasks

    def task_count(self, dataset: str | None = None) -> str:
        """Return the number of tasks in the means, of a data set or of all; "2 of 3" if some are left out."""
        both = self.finished_tasks, self.tasks
        finished, every = (sum(dataset in (None, name) for name, _ in tasks) for tasks in both)
        return f"{finished}" if finished == every else f"{finished} of {every}"

    @cached_property
    def excluded_note(self) -> str:
        """Which tasks are left out of the means, and why; "" if there are none."""
        absent = [task for task in self.tasks if task not in self.finished_tasks]
        failures = {(variant_of(record), task_of(record)) for record in self.failed}
        failed = [task for task in absent if all((variant, task) in failures for variant in self.variants)]
        reasons = {
            "failed for every row": failed,
            "not finished for any row": [task for task in absent if task not in failed],
        }
        parts = [f"{listing(self._short_names(tasks), most=3)} {reason}" for reason, tasks in reasons.items() if tasks]
        return f"Over {self.task_count()} tasks: {'; '.join(parts)}." if parts else ""

    def _short_names(self, tasks: Sequence[TaskKey]) -> list[str]:
        """Name tasks; only the data set if all of its tasks are among them."""
        whole = {name for name, own in self.datasets.items() if all((name, task) in tasks for task in own)}
        return list(dict.fromkeys(name if name in whole else f"{name}, {task}" for name, task in tasks))

    def count_below(self, variant: Variant, other: Variant, rule: str) -> tuple[int, int]:
        """Count the tasks with a mean over seeds below that of another variant, and the tasks that both have."""
        means = [(self.score(variant, task, rule).mean, self.score(other, task, rule).mean) for task in self.tasks]
        both = [(a, b) for a, b in means if a is not None and b is not None]
        return sum(a < b - 1e-9 for a, b in both), len(both)  # equal means may differ by rounding errors

    @cached_property
    def baseline(self) -> Variant | None:
        """The variant that the others are compared with."""
        return next((v for v in self.variants if self.grid.baseline and v.row == self.grid.baseline), None)

    @cached_property
    def missing(self) -> tuple[Missing, ...]:
        """Variants and tasks without results for all seeds."""
        missing = []
        for variant, task in product(self.trained_variants, self.tasks):
            records = {seed: self.record(variant, task, seed) for seed in self.seeds}
            untrained = tuple(seed for seed, record in records.items() if record is None)
            failed = tuple(seed for seed, record in records.items() if record is not None and not record.done)
            missing += [Missing(variant, task, untrained, failed)] if untrained or failed else []
        return tuple(missing)

    @property
    def n_done(self) -> int:
        """Number of finished trainings."""
        return len(self.records) - len(self.failed)

    @property
    def n_any_seed(self) -> int:
        """Number of trainings whose result holds for several seeds."""
        return sum(record.any_seed for record in self.records) if len(self.seeds) > 1 else 0

    @property
    def n_trainings(self) -> int:
        """Number of trainings of the grid; all seeds count until a record shows that the seed does not matter."""
        pairs = product(self.trained_variants, self.tasks)
        return sum(1 if pair in self._any_seed else len(self.seeds) for pair in pairs)


def load_summary(folder: Path | str) -> Summary:
    """Read the results of a folder that ``warmpot bench`` wrote."""
    return Summary(read_grid(folder), read_store(folder))


def group_failures(failed: Iterable[Record]) -> list[tuple[Record, ...]]:
    """Group failed trainings with the same error on the same data set."""
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in failed:
        groups.setdefault((record.dataset, record.error), []).append(record)
    return [tuple(records) for records in groups.values()]


def describe_rule(rule: str) -> str:
    """Describe the iterate that a rule selects."""
    texts = {LAST: "last iterate", ORACLE: "best iterate by target labels (oracle)"}
    return texts.get(rule, f"iterate chosen by {rule}, without target labels")


def format_points(difference: float) -> str:
    """Write a difference of accuracies with its sign; zero has a plus.

    Examples
    --------
    >>> format_points(1.26), format_points(-0.04)
    ('+1.3', '+0.0')
    """
    return f"{round(difference, 1) + 0.0:+.1f}"


def best_indices(means: Sequence[float | None]) -> set[int]:
    """Return the indices of the highest mean, including those that are printed the same.

    Examples
    --------
    >>> sorted(best_indices([81.24, None, 81.16, 80.0]))
    [0, 2]
    """
    printed = {k: round(mean, 1) for k, mean in enumerate(means) if mean is not None}
    return {k for k, mean in printed.items() if mean == max(printed.values())}


def variant_of(record: Record) -> Variant:
    """Return the variant that a record belongs to."""
    return Variant(
        record.row, tuple(sorted((name, float(value)) for name, value in record.point.items())), record.known_classes
    )


def task_of(record: Record) -> TaskKey:
    """Return data set and task of a record."""
    return record.dataset, record.task


def _value(record: Record | None, quantity: str) -> float | None:
    if record is None or not record.done:
        return None
    if quantity in PLAIN:
        value = getattr(record, quantity)
        return None if value is None else float(value)
    share = getattr(record, quantity) if quantity.startswith("outlier_") else record.accuracy.get(quantity)
    return None if share is None else 100.0 * share


def text_column(name: str, texts: Iterable[str]) -> tuple[TableColumn, list[TableCell]]:
    """Make a left-aligned column of texts."""
    return TableColumn(name, numeric=False), [TableCell(text) for text in texts]


def score_cells(scores: Sequence[Score]) -> list[TableCell]:
    """Make cells of scores; the best are bold if there are at least two to compare."""
    means = [score.mean for score in scores]
    best = best_indices(means) if sum(mean is not None for mean in means) > 1 else set()
    return [TableCell(score.text, k in best, score.mean) for k, score in enumerate(scores)]


def mean_cell(summary: Summary, variant: Variant, quantity: str, digits: int = 1) -> TableCell:
    """Make a cell of the mean over the tasks with results, even if some are missing."""
    tasks = [task for task in summary.tasks if summary.score(variant, task, quantity).mean is not None]
    mean = summary.score_over(variant, tasks, quantity).mean if tasks else None
    few = "" if len(tasks) == len(summary.finished_tasks) else f", {len(tasks)} of {len(summary.finished_tasks)} tasks"
    return TableCell(ABSENT if mean is None else f"{mean:.{digits}f}{few}", value=mean)


def join_columns(name: str, title: str, columns: Columns, notes: Iterable[str] = ()) -> ResultTable:
    """Make a table of columns; a note explains the dash where there is one."""
    rows = list(zip(*(cells for _, cells in columns), strict=True))
    dash = [PARTIAL] if any(cell.text == ABSENT for row in rows for cell in row) else []
    return ResultTable([head for head, _ in columns], rows, title, name, [*notes, *dash])
