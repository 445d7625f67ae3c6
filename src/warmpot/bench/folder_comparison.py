"""Comparing the results in two folders: changes by row and by task, and trainings that only one of them has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from warmpot.bench.grid import Cell, read_grid
from warmpot.bench.significance import TOLERANCE, Wilcoxon, holm, wilcoxon
from warmpot.bench.store import LAST, RESULTS, Record, read_store
from warmpot.bench.summary import TaskKey, Variant, task_of, variant_of
from warmpot.errors import InputError

__all__ = ["FolderComparison", "RowChange", "TaskChange", "compare_folders"]

VariantTask = tuple[Variant, TaskKey]
Runs = Mapping[int | None, Record]
"""Records by seed; None is the key of a run whose result holds for every seed."""


@dataclass(frozen=True)
class TaskChange:
    """The change of a variant on a task: mean accuracies in per cent over the `cells` that both results have.

    `spread` is the standard deviation over seeds, the larger one of the two results; None for one seed, and for results
    that do not depend on the seed.
    """

    variant: Variant
    task: TaskKey
    before: float
    after: float
    spread: float | None
    cells: int

    @property
    def difference(self) -> float:
        """Change in points of accuracy."""
        return self.after - self.before

    @property
    def changed(self) -> bool:
        """Whether it changed by more than its spread; without a spread, whether it changed at all."""
        return abs(self.difference) > max(self.spread or 0.0, TOLERANCE)


@dataclass(frozen=True)
class RowChange:
    """The change of a variant: mean accuracies in per cent over all tasks that both results have.

    The test is over tasks, since seeds of a task are not independent. `pvalue` is corrected for the number of variants
    (Holm).
    """

    variant: Variant
    before: float
    after: float
    test: Wilcoxon
    pvalue: float

    @property
    def difference(self) -> float:
        """Change in points of accuracy."""
        return self.after - self.before


@dataclass(frozen=True)
class FolderComparison:
    """The differences between two results, in the iterates of one rule.

    Attributes
    ----------
    only_before, only_after : tuple of str
        Names of trainings that only one of them has finished.
    broken : tuple of str
        Names of trainings that failed in the second result and were finished in the first.
    other_settings, differing : int, mapping of str to tuple of str
        Number of compared trainings with other settings or data; what differs in these, according to the grids and to
        the content of the files, and the variants concerned.
    versions : mapping of str to (str, str)
        Packages with different versions.
    settings : (str, str) or None
        How the data of the two were made, if that differs.
    """

    rule: str
    rows: tuple[RowChange, ...]
    tasks: tuple[TaskChange, ...]
    only_before: tuple[str, ...]
    only_after: tuple[str, ...]
    broken: tuple[str, ...]
    other_settings: int
    differing: Mapping[str, tuple[str, ...]]
    versions: Mapping[str, tuple[str, str]]
    settings: tuple[str, str] | None

    @property
    def cells(self) -> int:
        """Number of compared trainings."""
        return sum(task.cells for task in self.tasks)

    @property
    def worse(self) -> tuple[TaskChange, ...]:
        """Tasks that fell by more than their spread, the largest loss first."""
        worse = (task for task in self.tasks if task.changed and task.difference < 0)
        return tuple(sorted(worse, key=lambda task: task.difference))

    def dropped(self, points: float) -> tuple[RowChange, ...]:
        """Return the variants whose mean fell by more than this."""
        return tuple(row for row in self.rows if row.difference < -points - TOLERANCE)


def compare_folders(before: Path | str, after: Path | str, rule: str = LAST) -> FolderComparison:
    """Compare the results in two folders that ``warmpot bench`` wrote.

    Trainings of the same data set, task, row, point and seed are compared; the grids may differ. A training whose
    result holds for every seed is compared with every seed of the other result.
    """
    old, new = _read(before), _read(after)
    cells = _group(old), _group(new)
    tasks: list[TaskChange] = []
    matched: tuple[set[int], set[int]] = set(), set()
    differing: list[tuple[Record, Record]] = []
    for key in (key for key in cells[0] if key in cells[1]):
        pairs = _pairs(cells[0][key], cells[1][key], rule)
        if not pairs:
            continue
        values = np.array([[100.0 * record.accuracy[rule] for record in pair] for pair in pairs])
        spread = float(values.std(axis=0, ddof=1).max()) if len(pairs) > 1 else None
        old_mean, new_mean = values.mean(axis=0).tolist()
        tasks.append(TaskChange(*key, old_mean, new_mean, spread, len(pairs)))
        for side in (0, 1):
            matched[side].update(id(pair[side]) for pair in pairs)
        differing += [(one, other) for one, other in pairs if one.key != other.key or _other_files(one, other)]
    if not tasks:
        raise _no_common_training(before, after, rule, old, new)
    only_before, only_after = (
        tuple(_name(record) for record in records if record.done and id(record) not in known)
        for records, known in zip((old, new), matched, strict=True)
    )
    broken = []
    for record in (record for record in new if not record.done):
        runs = cells[0].get((variant_of(record), task_of(record)), {})
        if runs and (record.any_seed or None in runs or record.seed in runs):
            broken.append(_name(record))
    a, b = (", ".join(dict.fromkeys(r.setting for r in records if r.setting)) for records in (old, new))
    return FolderComparison(
        rule, _rows(tasks), tuple(tasks), only_before, only_after, tuple(broken), len(differing),
        _differences(before, after, differing), _versions(old, new), (a, b) if a != b else None,
    )  # fmt: skip


def _other_files(one: Record, other: Record) -> bool:
    return bool(one.content and other.content) and one.content != other.content


def _differences(
    before: Path | str, after: Path | str, pairs: Sequence[tuple[Record, Record]]
) -> dict[str, tuple[str, ...]]:
    """Return what differs between trainings, with the variants concerned."""
    cells = (_cells(before), _cells(after)) if pairs else ({}, {})
    differences: dict[str, dict[str, None]] = {}
    for pair in pairs:
        names = ["content of the files"] if _other_files(*pair) else []
        if pair[0].key != pair[1].key:
            old, new = (known.get(record.key) for known, record in zip(cells, pair, strict=True))
            names += _changed(old, new) if old is not None and new is not None else ["settings or data"]
        for name in names:
            differences.setdefault(name, {})[variant_of(pair[0]).label] = None
    return {name: tuple(variants) for name, variants in differences.items()}


def _cells(folder: Path | str) -> dict[str, Cell]:
    try:
        return {cell.key: cell for cell in read_grid(folder).cells()}
    except InputError:  # no grid, or an unknown preset: the settings cannot be compared
        return {}


def _changed(old: Cell, new: Cell) -> list[str]:
    a, b = (dict(_flat(cell.identity)) for cell in (old, new))
    return [
        f"{name.removeprefix('config.')} {a.get(name, '-')} -> {b.get(name, '-')}"
        for name in dict.fromkeys([*a, *b]) if a.get(name) != b.get(name) and name != "config.seed"
    ]  # fmt: skip


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _read(folder: Path | str) -> list[Record]:
    records = read_store(folder)
    if not records:
        remedy = "Give a folder that `warmpot bench` wrote."
        raise InputError(str(folder), got=f"no {RESULTS} with records", allowed="results of a bench", remedy=remedy)
    return records


def _group(records: Iterable[Record]) -> dict[VariantTask, dict[int | None, Record]]:
    groups: dict[VariantTask, dict[int | None, Record]] = {}
    for record in records:
        if record.done:
            runs = groups.setdefault((variant_of(record), task_of(record)), {})
            runs[None if record.any_seed else record.seed] = record
    return groups


def _pairs(old: Runs, new: Runs, rule: str) -> list[tuple[Record, Record]]:
    """Pair records by seed; one that holds for every seed is paired with all of the other side."""
    if None in old or None in new:
        pairs = [(old.get(None, each), new.get(None, each)) for each in (new if None in old else old).values()]
    else:
        pairs = [(old[seed], new[seed]) for seed in old if seed in new]
    return [(a, b) for a, b in pairs if rule in a.accuracy and rule in b.accuracy]


def _rows(tasks: Sequence[TaskChange]) -> tuple[RowChange, ...]:
    by_variant: dict[Variant, list[TaskChange]] = {}
    for task in tasks:
        by_variant.setdefault(task.variant, []).append(task)
    tests = {variant: wilcoxon([task.difference for task in own]) for variant, own in by_variant.items()}
    corrected = holm([test.pvalue for test in tests.values()])
    return tuple(
        RowChange(
            variant, float(np.mean([task.before for task in own])), float(np.mean([task.after for task in own])),
            tests[variant], pvalue,
        )
        for (variant, own), pvalue in zip(by_variant.items(), corrected, strict=True)
    )  # fmt: skip


def _name(record: Record) -> str:
    seed = "" if record.any_seed else f", seed {record.seed}"
    return f"{record.dataset}, {record.task}, {variant_of(record).label}{seed}"


def _versions(old: Sequence[Record], new: Sequence[Record]) -> dict[str, tuple[str, str]]:
    different = {}
    for name in dict.fromkeys(name for record in (*old, *new) for name in record.versions):
        versions = [{record.versions[name] for record in each if name in record.versions} for each in (old, new)]
        if versions[0] != versions[1]:
            a, b = (", ".join(sorted(each)) or "-" for each in versions)
            different[name] = a, b
    return different


def _no_common_training(
    before: Path | str, after: Path | str, rule: str, old: Sequence[Record], new: Sequence[Record]
) -> InputError:
    rules = [dict.fromkeys(name for record in records for name in record.accuracy) for records in (old, new)]
    common = [name for name in rules[0] if name in rules[1]]
    if rule not in common:
        allowed, remedy = ", ".join(common) or "none, no rule is in both", "Choose one that both results have."
        return InputError("rule", got=repr(rule), allowed=allowed, remedy=remedy)
    allowed, remedy = "the same data set, task, row, point and seed in both", "Compare results of the same grid."
    return InputError(f"{before} and {after}", got="no training in common", allowed=allowed, remedy=remedy)
