"""The numbers of the paper's tables, and which of its systems can be run here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

import yaml

from warmpot._settings import suggestion
from warmpot.errors import InputError

__all__ = ["ReportedNumber", "ReportedTable", "System", "paper", "reported_table", "reported_tables", "systems"]

CHOSEN = {
    "oracle": "best by target labels",
    "entropy": "least target entropy",
    "last": "last",
    "unknown": "not known",
}
"""The iterate that a printed number belongs to, in words."""


@dataclass(frozen=True)
class ReportedNumber:
    """A printed accuracy.

    Attributes
    ----------
    accuracy : float
        In per cent.
    std : float or None
        Over seeds, where printed: the authors ran the system themselves.
    """

    accuracy: float
    std: float | None = None


@dataclass(frozen=True)
class ReportedTable:
    """One table of the paper.

    Attributes
    ----------
    name, title : str
    kind : {"methods", "weights"}
        Whether it compares systems, or weights under WARMPOT's alignment.
    dataset, setting : str
        Data set, and how the numbers were made.
    seeds : int
        Number of seeds of the rows that the authors ran.
    domains : mapping of str to tuple of str
        Names of the domain that a letter abbreviates.
    tasks : tuple of str
        As printed, such as "A->C".
    numbers : mapping of str to mapping of str to ReportedNumber
        By system and task.
    averages : mapping of str to ReportedNumber
        Printed averages; empty for a table of one task.
    note : str
        Inconsistencies of the printed numbers.
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

    Attributes
    ----------
    name, cited : str
        Name as printed, and its reference.
    chosen : {"oracle", "entropy", "last", "unknown"}
        The iterate that its number belongs to, according to its authors' code.
    presets : tuple of str
        Presets that run it; empty: reported only.
    why : str
        Why it is only reported.
    note : str
    numbers : mapping of str to ReportedNumber
        By table, over all of its tasks.
    """

    name: str
    cited: str
    chosen: str
    presets: tuple[str, ...] = ()
    why: str = ""
    note: str = ""
    numbers: Mapping[str, ReportedNumber] = field(default_factory=dict)

    @property
    def chosen_words(self) -> str:
        """The iterate that its number belongs to, in words."""
        return CHOSEN[self.chosen]


def _plain(text: str) -> str:
    return "".join(letter for letter in text.casefold() if letter.isalnum())


@cache
def _file() -> Mapping[str, Any]:
    text = resources.files("warmpot.bench").joinpath("reported.yaml").read_text(encoding="utf-8")
    content: Mapping[str, Any] = yaml.safe_load(text)
    return content


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
    domains = {letter: tuple(names) for letter, names in entry.pop("domains").items()}
    return ReportedTable(name=name, tasks=tasks, numbers=numbers, averages=averages, domains=domains, **entry)


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
    return {name: _system(name, dict(entry), tables) for name, entry in _file()["systems"].items()}


def _system(name: str, entry: dict[str, Any], tables: Sequence[ReportedTable]) -> System:
    numbers = {table.name: number for table in tables if (number := table.over(name, table.tasks))}
    return System(name=name, presets=tuple(entry.pop("presets", ())), numbers=numbers, **entry)
