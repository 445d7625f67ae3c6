"""The paper's numbers next to ours: all of its systems, run here or only reported, and never ranked together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from warmpot._tables import ResultTable, TableCell, TableColumn
from warmpot.bench.reported import ReportedNumber, ReportedTable, paper, reported_table, reported_tables, systems
from warmpot.bench.summary import ABSENT, Score, Summary, TaskKey, Variant, best_indices, variant_of
from warmpot.bench.table_columns import Columns, join_columns, score_cells, text_column

__all__ = ["compare_with_paper", "paper_by_task"]

UNTRAINED, NOT_IN_GRID, REPORTED_ONLY = "not trained yet", "not in this grid", "reported only"


def compare_with_paper(summary: Summary) -> ResultTable | None:
    """Return our means over the tasks of the paper next to its numbers; None if the grid names no table of the paper.

    The rows are all systems of the paper's tables of that kind, then the rows of the grid that the paper does not have.
    """
    if not summary.grid.reported:
        return None
    table = reported_table(summary.grid.reported)
    tasks = _common(summary, table)
    rows = _rows(summary, _names(_family(table)))
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


def _names(tables: Sequence[ReportedTable]) -> list[str]:
    return list(dict.fromkeys(name for table in tables for name in table.numbers))


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
    return [TableCell(_text(number) if number else absent, k in best, means[k]) for k, number in enumerate(numbers)]


def _text(number: ReportedNumber) -> str:
    return f"{number.accuracy:.1f}" + ("" if number.std is None else f" ({number.std:.1f})")


def _here(summary: Summary, name: str, variant: Variant | None) -> str:
    """Name our row, or explain why there is none."""
    if variant is not None:
        done = any(variant_of(record) == variant for record in summary.records if record.done)
        return variant.label if done else f"{variant.label} ({UNTRAINED})"
    system = systems().get(name)
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
