"""The numbers of the paper's tables, and ours next to them: run here or only reported, and never ranked together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

from warmpot._settings import suggestion
from warmpot._tables import ResultTable, TableCell, TableColumn
from warmpot._yaml import parse_yaml
from warmpot.bench.summary import (
    ABSENT,
    Columns,
    Score,
    Summary,
    TaskKey,
    Variant,
    best_indices,
    join_columns,
    score_cells,
    text_column,
    variant_of,
)
from warmpot.errors import InputError

__all__ = ["compare_with_paper", "paper", "paper_by_task", "reported_table", "reported_tables", "systems"]

UNTRAINED, NOT_IN_GRID, REPORTED_ONLY = "not trained yet", "not in this grid", "reported only"
CHOSEN = {"oracle": "best by target labels", "entropy": "least target entropy", "last": "last", "unknown": "not known"}
"""The iterate that a printed number belongs to, in words."""


@dataclass(frozen=True)
class ReportedNumber:
    """A printed accuracy in per cent; with a std over seeds, the authors ran the system themselves."""

    accuracy: float
    std: float | None = None

    def __str__(self) -> str:
        return f"{self.accuracy:.1f}" + ("" if self.std is None else f" ({self.std:.1f})")


@dataclass(frozen=True)
class ReportedTable:
    """One table of the paper.

    It compares systems (kind "methods"), or weights under WARMPOT's alignment ("weights"). `setting` is how the numbers
    were made, `seeds` the number of seeds of the rows that the authors ran. `domains` are the names that a letter
    abbreviates in `tasks`, which are as printed, such as "A->C". `numbers` are by system and task; a table of one task
    has no `averages`. `note` names inconsistencies of the printed numbers.
    """

    name: str
    title: str
    kind: str
    dataset: str
    setting: str
    seeds: int
    domains: Mapping[str, tuple[str, ...]]
    tasks: tuple[str, ...]
    numbers: Mapping[str, Mapping[str, ReportedNumber]]
    averages: Mapping[str, ReportedNumber]
    note: str = ""

    def same_dataset(self, name: str) -> bool:
        """Whether a data set of a grid is that of this table; only letters and digits are compared, in any case."""
        return _plain(name) == _plain(self.dataset)

    def task_of(self, task: str) -> str | None:
        """Return the printed name of a grid's task such as "Art -> RealWorld"; None if the table does not have it.

        Examples
        --------
        >>> reported_table("office-home").task_of("Art -> RealWorld")
        'A->R'
        """
        letters = {_plain(name): letter for letter, names in self.domains.items() for name in (letter, *names)}
        printed = "->".join(letters.get(_plain(side), "?") for side in task.split("->"))
        return printed if printed in self.tasks else None

    def over(self, system: str, tasks: tuple[str, ...]) -> ReportedNumber | None:
        """Return the number of a system over tasks: the printed average for all tasks, otherwise the mean of the tasks.

        None if one of the tasks is not printed. A computed mean has no std, since the numbers by seed are not printed.
        """
        numbers = self.numbers.get(system, {})
        if not tasks or not set(tasks) <= set(numbers):
            return None
        if len(tasks) == 1:
            return numbers[tasks[0]]
        if set(tasks) == set(self.tasks) and system in self.averages:
            return self.averages[system]
        return ReportedNumber(sum(numbers[task].accuracy for task in tasks) / len(tasks))


@dataclass(frozen=True)
class System:
    """One of the 28 systems of the paper's two tables of methods.

    `chosen` is a key of `CHOSEN`: the iterate that its number belongs to, according to its authors' code. Without
    `presets` that run it, it is reported only, and `why` is the reason. `interpretation`: its code could not be read.
    `numbers` are by table, over all of its tasks.
    """

    name: str
    cited: str
    chosen: str
    presets: tuple[str, ...] = ()
    why: str = ""
    note: str = ""
    interpretation: bool = False
    numbers: Mapping[str, ReportedNumber] = field(default_factory=dict)

    @property
    def chosen_words(self) -> str:
        """The iterate that its number belongs to, in words."""
        return CHOSEN[self.chosen]


def _plain(text: str) -> str:
    return "".join(letter for letter in text.casefold() if letter.isalnum())


@cache
def _file() -> Any:
    return parse_yaml(resources.files("warmpot.bench").joinpath("reported.yaml").read_text(encoding="utf-8"))


def paper() -> str:
    """Return the citation of the paper."""
    return str(_file()["paper"])


@cache
def reported_tables() -> Mapping[str, ReportedTable]:
    """Return the paper's tables by name."""
    return {name: _table(name, dict(entry)) for name, entry in _file()["tables"].items()}


def _table(name: str, entry: dict[str, Any]) -> ReportedTable:
    rows, tasks = entry.pop("systems"), tuple(entry.pop("tasks"))
    numbers = {
        system: {
            task: ReportedNumber(float(accuracy), None if std is None else float(std))
            for task, accuracy, std in zip(tasks, row["accuracy"], row.get("std", [None] * len(tasks)), strict=True)
        }
        for system, row in rows.items()
    }
    averages = {
        system: ReportedNumber(float(row["average"]), row.get("average_std"))
        for system, row in rows.items()
        if "average" in row
    }
    entry["domains"] = {letter: tuple(names) for letter, names in entry["domains"].items()}
    return ReportedTable(name=name, tasks=tasks, numbers=numbers, averages=averages, **entry)


def reported_table(name: str) -> ReportedTable:
    """Return one of the paper's tables."""
    known = reported_tables()
    if name not in known:
        raise InputError("reported", got=repr(name), allowed=", ".join(known), remedy=suggestion(name, known))
    return known[name]


@cache
def systems() -> Mapping[str, System]:
    """Return the 28 systems of the tables of methods, in the order of the file."""
    tables = [table for table in reported_tables().values() if table.kind == "methods"]
    known = {}
    for name, entry in _file()["systems"].items():
        numbers = {table.name: number for table in tables if (number := table.over(name, table.tasks))}
        fields = {**entry, "presets": tuple(entry.get("presets", ()))}
        known[name] = System(name=name, numbers=numbers, **fields)
    return known


def compare_with_paper(summary: Summary) -> ResultTable | None:
    """Return our means over the tasks of the paper next to its numbers; None if the grid names no table of the paper.

    The rows are all systems of the paper's tables of that kind, then the rows of the grid that the paper does not have.
    """
    if not summary.grid.reported:
        return None
    table = reported_table(summary.grid.reported)
    tasks = _common(summary, table)
    systems_of_kind = dict.fromkeys(name for each in _family(table) for name in each.numbers)
    rows = _rows(summary, list(systems_of_kind))
    columns: Columns = [
        text_column("system", (name or "(not in the paper)" for name, _ in rows)),
        text_column("here", (_here(summary, name, variant) for name, variant in rows)),
    ]
    columns += _ours(summary, tasks, [variant for _, variant in rows])
    columns += _theirs(table, list(tasks), [name for name, _ in rows])
    return join_columns("paper", f"{table.title}: ours and the paper's", columns, _notes(table, tasks))


def paper_by_task(summary: Summary) -> ResultTable | None:
    """Return the paper's numbers for the tasks of the grid, or for all tasks if the grid has none of them."""
    table = reported_table(summary.grid.reported) if summary.grid.reported else None
    if table is None or len(table.tasks) < 2:
        return None
    tasks = tuple(_common(summary, table)) or table.tasks
    names = list(table.numbers)
    columns: Columns = [text_column("system", names)]
    columns += [(TableColumn(task), _printed([table.numbers[name][task] for name in names])) for task in tasks]
    average = f"printed average ({len(table.tasks)})"
    columns.append((TableColumn(average), _printed([table.averages.get(name) for name in names])))
    title = f"{table.title}: the paper's numbers, task by task"
    return join_columns("paper-by-task", title, columns, [f"Setting: {table.setting}. The paper: {paper()}"])


def _common(summary: Summary, table: ReportedTable) -> dict[str, TaskKey]:
    """Tasks of the grid that the paper's table has, by their printed names."""
    ours = [(table.task_of(task), (data, task)) for data, task in summary.tasks if table.same_dataset(data)]
    return {printed: task for printed, task in ours if printed is not None}


def _family(table: ReportedTable) -> list[ReportedTable]:
    return [other for other in reported_tables().values() if other.kind == table.kind]


def _rows(summary: Summary, names: Sequence[str]) -> list[tuple[str, Variant | None]]:
    """Pair every system with our variants of it; then list our variants that the paper does not have."""
    reported = {row.name: row.reported for row in summary.grid.rows}
    variants: dict[str, list[Variant | None]] = {}
    for variant in summary.variants:
        variants.setdefault(reported[variant.row], []).append(variant)
    rows = [(name, variant) for name in names for variant in variants.pop(name, [None])]
    return rows + [("", variant) for others in variants.values() for variant in others]


def _ours(summary: Summary, tasks: Mapping[str, TaskKey], variants: Sequence[Variant | None]) -> Columns:
    if not tasks:
        return []
    group = f"ours: {_setting(summary, tasks)}"
    columns: Columns = []
    for rule in summary.rules:
        scores = [summary.score_over(v, list(tasks.values()), rule) if v else Score({}, 0) for v in variants]
        cells = [cell if v else TableCell("") for cell, v in zip(score_cells(scores), variants, strict=True)]
        columns.append((TableColumn(f"{rule} ({len(tasks)})", group), cells))
    return columns


def _theirs(table: ReportedTable, tasks: Sequence[str], names: Sequence[str]) -> Columns:
    group = f"the paper: {table.setting}"
    columns: Columns = []
    # the numbers of a system with two rows of ours are shown and ranked once
    systems_once = [name if name not in names[:k] else "" for k, name in enumerate(names)]
    if tasks and set(tasks) != set(table.tasks):
        numbers = [table.over(name, tuple(tasks)) for name in systems_once]
        columns.append((TableColumn(f"same {len(tasks)} tasks", group), _printed(numbers, "")))
    for other in _family(table):
        numbers = [other.over(name, other.tasks) for name in systems_once]
        columns.append((TableColumn(f"{other.dataset} ({len(other.tasks)})", group), _printed(numbers, "")))
    if table.kind == "methods":
        known = systems()
        iterates = [TableCell(known[name].chosen_words if name else "") for name in systems_once]
        columns.append((TableColumn("iterate", group, numeric=False), iterates))
    return columns


def _printed(numbers: Sequence[ReportedNumber | None], absent: str = ABSENT) -> list[TableCell]:
    """Make cells of printed numbers; the best are bold."""
    means = [number.accuracy if number else None for number in numbers]
    best = best_indices(means) if any(mean is not None for mean in means) else set()
    return [TableCell(str(number) if number else absent, k in best, means[k]) for k, number in enumerate(numbers)]


def _here(summary: Summary, name: str, variant: Variant | None) -> str:
    """Name our row, or explain why there is none."""
    system = systems().get(name)
    if variant is not None:
        done = any(variant_of(record) == variant for record in summary.records if record.done)
        remarks = ["interpretation"] * (system is not None and system.interpretation) + [UNTRAINED] * (not done)
        return f"{variant.label} ({', '.join(remarks)})" if remarks else variant.label
    return NOT_IN_GRID if system is None or system.presets else REPORTED_ONLY


def _setting(summary: Summary, tasks: Mapping[str, TaskKey]) -> str:
    names = {data for data, _ in tasks.values()}
    settings = [data.setting or summary.grid.setting for data in summary.grid.data if data.name in names]
    return ", ".join(dict.fromkeys(settings)) or "unknown setting"


def _notes(table: ReportedTable, tasks: Mapping[str, TaskKey]) -> list[str]:
    notes = [
        "Our numbers and the paper's come from different settings and are never ranked together: bold is the best of a "
        "column.",
        "Numbers of the paper with a std are from its authors' own runs; those without were copied from other papers.",
    ]
    if not tasks:
        notes.insert(0, "This grid has none of the tasks of that table.")
    elif set(tasks) != set(table.tasks):
        notes.append(f"The same tasks: {', '.join(tasks)}. We averaged the printed numbers over them.")
    notes += [table.note] if table.note else []
    if table.kind == "methods":
        reasons: dict[str, list[str]] = {}
        for system in systems().values():
            if system.why:
                reasons.setdefault(system.why, []).append(system.name)
        listed = "; ".join(f"{', '.join(names)} ({why})" for why, names in reasons.items())
        notes.append(f"Reported only: {listed}.")
        notes += [f"{system.name}: {system.note}" for system in systems().values() if system.note]
    return [*notes, f"The paper: {paper()}"]
