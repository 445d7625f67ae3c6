"""The paper's numbers beside ours: every one of its systems, run here or reported only; never ranked together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from warmpot.bench.reported import ReportedNumber, ReportedTable, paper, reported_table, reported_tables, systems
from warmpot.bench.sheet import Column, Columns, Entry, Sheet, assembled, plain, ranked
from warmpot.bench.summary import ABSENT, Line, Place, Score, Summary, best, line_of

__all__ = ["paper_by_task", "paper_comparison"]

OPEN, OTHER, ONLY = "not trained yet", "not in this grid", "reported only"


def paper_comparison(summary: Summary) -> Sheet | None:
    """Put our mean over the tasks that the paper has as well beside its numbers; None without a table to compare with.

    All systems of the paper's tables of that kind are rows, then the rows of the grid that it lacks.
    """
    if not summary.grid.reported:
        return None
    table = reported_table(summary.grid.reported)
    places = _common(summary, table)
    rows = _rows(summary, _names(_family(table)))
    columns: Columns = [
        (Column("system", number=False), plain(name or "(not in the paper)" for name, _ in rows)),
        (Column("here", number=False), plain(_here(summary, name, line) for name, line in rows)),
    ]
    columns += _ours(summary, places, [line for _, line in rows])
    columns += _theirs(table, places, [name for name, _ in rows])
    return assembled("paper", f"{table.title}: ours and the paper's", columns, _notes(table, places))


def paper_by_task(summary: Summary) -> Sheet | None:
    """Return the paper's numbers of the tasks that the grid has, or of all when it has none."""
    table = reported_table(summary.grid.reported) if summary.grid.reported else None
    if table is None or len(table.tasks) < 2:
        return None
    tasks = tuple(_common(summary, table)) or table.tasks
    names = list(table.numbers)
    columns: Columns = [(Column("system", number=False), plain(names))]
    columns += [(Column(task), _printed([table.numbers[name][task] for name in names])) for task in tasks]
    average = f"printed average ({len(table.tasks)})"
    columns.append((Column(average), _printed([table.averages.get(name) for name in names])))
    title = f"{table.title}: the paper's numbers, task by task"
    return assembled("paper-by-task", title, columns, [f"Setting: {table.setting}. The paper: {paper()}"])


def _common(summary: Summary, table: ReportedTable) -> dict[str, Place]:
    """Tasks of the grid that the paper's table has, by their printed names."""
    ours = [(table.task_of(task), (data, task)) for data, task in summary.places if table.same_dataset(data)]
    return {printed: place for printed, place in ours if printed is not None}


def _family(table: ReportedTable) -> list[ReportedTable]:
    return [other for other in reported_tables().values() if other.kind == table.kind]


def _names(tables: Sequence[ReportedTable]) -> list[str]:
    return list(dict.fromkeys(name for table in tables for name in table.numbers))


def _rows(summary: Summary, names: Sequence[str]) -> list[tuple[str, Line | None]]:
    """Pair every system with our lines for it; then our lines that are no system of the paper."""
    stands_for = {row.name: row.reported for row in summary.grid.rows}
    lines: dict[str, list[Line]] = {}
    for line in summary.lines:
        lines.setdefault(stands_for[line.row], []).append(line)
    rows: list[tuple[str, Line | None]] = [(name, line) for name in names for line in lines.pop(name, [None])]
    return rows + [("", line) for others in lines.values() for line in others]


def _ours(summary: Summary, places: Mapping[str, Place], lines: Sequence[Line | None]) -> Columns:
    if not places:
        return []
    group = f"ours: {_setting(summary, places)}"
    found: Columns = []
    for rule in summary.rules:
        scores = [summary.score(line, list(places.values()), rule) if line else Score({}, 0) for line in lines]
        cells = [cell if line else Entry("") for cell, line in zip(ranked(scores), lines, strict=True)]
        found.append((Column(f"{rule} ({len(places)})", group), cells))
    return found


def _theirs(table: ReportedTable, places: Mapping[str, Place], names: Sequence[str]) -> Columns:
    group, tasks = _theirs_words(table), tuple(places)
    found: Columns = []
    once = [name not in names[:k] for k, name in enumerate(names)]  # a system with two rows of ours is ranked once
    if places and set(tasks) != set(table.tasks):
        numbers = [table.over(name, tasks) if first else None for name, first in zip(names, once, strict=True)]
        found.append((Column(f"same {len(tasks)} tasks", group), _printed(numbers, "")))
    for other in _family(table):
        numbers = [other.over(name, other.tasks) if first else None for name, first in zip(names, once, strict=True)]
        found.append((Column(f"{other.dataset} ({len(other.tasks)})", group), _printed(numbers, "")))
    if table.kind == "methods":
        known = systems()
        words = [known[name].chosen_words if name and first else "" for name, first in zip(names, once, strict=True)]
        found.append((Column("iterate", group, number=False), plain(words)))
    return found


def _printed(numbers: Sequence[ReportedNumber | None], absent: str = ABSENT) -> list[Entry]:
    """Make a column of printed numbers; the best of them are bold."""
    means = [number.accuracy if number else None for number in numbers]
    top = best(means) if any(mean is not None for mean in means) else set()
    return [Entry(_text(number) if number else absent, k in top, means[k]) for k, number in enumerate(numbers)]


def _text(number: ReportedNumber) -> str:
    return f"{number.accuracy:.1f}" + ("" if number.std is None else f" ({number.std:.1f})")


def _here(summary: Summary, name: str, line: Line | None) -> str:
    """Name our row, or say why there is none."""
    if line is not None:
        done = any(line_of(record) == line for record in summary.records if record.done)
        return line.label if done else f"{line.label} ({OPEN})"
    system = systems().get(name)
    return OTHER if system is None or system.presets else ONLY


def _setting(summary: Summary, places: Mapping[str, Place]) -> str:
    names = {data for data, _ in places.values()}
    found = [data.setting or summary.grid.setting for data in summary.grid.data if data.name in names]
    return ", ".join(dict.fromkeys(found)) or "setting not named"


def _theirs_words(table: ReportedTable) -> str:
    return f"the paper: {table.setting}"


def _notes(table: ReportedTable, places: Mapping[str, Place]) -> list[str]:
    notes = [
        "Ours and the paper's are made in different settings and never ranked together: bold is the best of a column.",
        "A number of the paper with a std is of its authors' own runs; one without was copied by them from elsewhere.",
    ]
    if not places:
        notes.insert(0, "This grid has none of the tasks of that table.")
    elif set(places) != set(table.tasks):
        notes.append(f"The same tasks: {', '.join(places)}. The mean over them is ours, of the printed numbers.")
    notes += [table.note] if table.note else []
    if table.kind == "methods":
        reasons: dict[str, list[str]] = {}
        for system in systems().values():
            if system.why:
                reasons.setdefault(system.why, []).append(system.name)
        told = "; ".join(f"{', '.join(names)} ({why})" for why, names in reasons.items())
        notes.append(f"Reported only: {told}.")
        notes += [f"{system.name}: {system.note}" for system in systems().values() if system.note]
    return [*notes, f"The paper: {paper()}"]
