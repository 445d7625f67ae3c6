"""Two results of a bench against each other: what changed, by row and by task, and what only one of them has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from warmpot.bench.grid import Cell, read_grid
from warmpot.bench.stats import SAME, Wilcoxon, holm, wilcoxon
from warmpot.bench.store import LAST, RESULTS, Record, read_store
from warmpot.bench.summary import Line, Place, line_of
from warmpot.errors import InputError

__all__ = ["Comparison", "RowChange", "TaskChange", "compare"]

Spot = tuple[Line, Place]
Runs = Mapping[int | None, Record]
"""By seed; None: one run for every seed."""


@dataclass(frozen=True)
class TaskChange:
    """A line on a task, over the seeds that both results have.

    Attributes
    ----------
    line, place
    before, after : float
        Mean accuracy in per cent.
    spread : float or None
        Of the accuracies over seeds, the larger standard deviation of the two results; None for one seed, and where the
        seed changes nothing.
    cells : int
        Trainings that were compared.
    """

    line: Line
    place: Place
    before: float
    after: float
    spread: float | None
    cells: int

    @property
    def difference(self) -> float:
        """Points gained."""
        return self.after - self.before

    @property
    def beyond(self) -> bool:
        """Whether it changed by more than its spread; without one, whether it changed."""
        return abs(self.difference) > max(self.spread or 0.0, SAME)

    @property
    def worse(self) -> bool:
        """Whether it fell by more than its spread."""
        return self.beyond and self.difference < 0


@dataclass(frozen=True)
class RowChange:
    """A line, over all the tasks that both results have of it.

    Attributes
    ----------
    line : Line
    before, after : float
        Mean over tasks, in per cent.
    test : Wilcoxon
        Over tasks: seeds of a task are no independent observations.
    pvalue : float
        Of the test, corrected for the number of lines (Holm).
    """

    line: Line
    before: float
    after: float
    test: Wilcoxon
    pvalue: float

    @property
    def difference(self) -> float:
        """Points gained."""
        return self.after - self.before


@dataclass(frozen=True)
class Comparison:
    """What changed from one result to another.

    Attributes
    ----------
    rule : str
        Whose iterates are compared.
    rows : tuple of RowChange
    tasks : tuple of TaskChange
    only_before, only_after : tuple of str
        Trainings that only one of them has finished, by name.
    broken : tuple of str
        Those that failed in the second and were finished in the first.
    other_settings : int
        Compared trainings whose settings or data are not the same: their keys or files differ.
    differing : mapping of str to tuple of str
        What differs in these, as far as the grids tell, and the lines where it does.
    versions : mapping of str to (str, str)
        Packages whose versions differ.
    settings : (str, str) or None
        How the two were made, when that differs.
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
        """Trainings that were compared."""
        return sum(task.cells for task in self.tasks)

    @property
    def worse(self) -> tuple[TaskChange, ...]:
        """Tasks that fell by more than their spread, the deepest first."""
        return tuple(sorted((task for task in self.tasks if task.worse), key=lambda task: task.difference))

    def dropped(self, points: float) -> tuple[RowChange, ...]:
        """Lines whose mean fell by more than so many points."""
        return tuple(row for row in self.rows if row.difference < -points - SAME)


def compare(before: Path | str, after: Path | str, rule: str = LAST) -> Comparison:
    """Compare the results in two folders of ``warmpot bench``.

    What has the same data set, task, row, point and seed is compared; the grids may differ. A training that no seed
    changes is compared with every seed of the other result.
    """
    old, new = _read(before), _read(after)
    cells = _by_spot(old), _by_spot(new)
    tasks: list[TaskChange] = []
    matched: tuple[set[int], set[int]] = set(), set()
    others: list[tuple[Record, Record]] = []
    for spot in (spot for spot in cells[0] if spot in cells[1]):
        pairs = _pairs(cells[0][spot], cells[1][spot], rule)
        if not pairs:
            continue
        values = np.array([(100.0 * a.accuracy[rule], 100.0 * b.accuracy[rule]) for a, b in pairs])
        spread = float(values.std(axis=0, ddof=1).max()) if len(pairs) > 1 else None
        a, b = values.mean(axis=0).tolist()
        tasks.append(TaskChange(*spot, a, b, spread, len(pairs)))
        for side in (0, 1):
            matched[side].update(id(pair[side]) for pair in pairs)
        others += [(one, other) for one, other in pairs if one.key != other.key or _other_files(one, other)]
    if not tasks:
        raise _nothing(before, after, rule, old, new)
    broken = tuple(
        _name(record) for record in new if not record.done and _finished(cells[0].get(_spot(record), {}), record)
    )
    return Comparison(
        rule, _rows(tasks), tuple(tasks), _alone(old, matched[0]), _alone(new, matched[1]),
        broken, len(others), _differing(before, after, others),
        _versions(old, new), _settings(old, new),
    )  # fmt: skip


def _other_files(one: Record, other: Record) -> bool:
    return bool(one.content and other.content) and one.content != other.content


def _differing(
    before: Path | str, after: Path | str, pairs: Sequence[tuple[Record, Record]]
) -> dict[str, tuple[str, ...]]:
    """Name what differs between trainings, and the lines where it does."""
    cells = (_cells(before), _cells(after)) if pairs else ({}, {})
    found: dict[str, dict[str, None]] = {}
    for pair in pairs:
        names = ["content of the files"] if _other_files(*pair) else []
        if pair[0].key != pair[1].key:
            old, new = (known.get(record.key) for known, record in zip(cells, pair, strict=True))
            names += _changed(old, new) if old is not None and new is not None else ["settings or data"]
        for name in names:
            found.setdefault(name, {})[line_of(pair[0]).label] = None
    return {name: tuple(lines) for name, lines in found.items()}


def _cells(folder: Path | str) -> dict[str, Cell]:
    try:
        return {cell.key: cell for cell in read_grid(folder).cells()}
    except InputError:  # no grid, or a preset that is gone: the lines are named without the settings
        return {}


def _changed(old: Cell, new: Cell) -> list[str]:
    a, b = (dict(_flat(cell.told)) for cell in (old, new))
    a, b = ({name: value for name, value in one.items() if name != "config.seed"} for one in (a, b))
    return [
        f"{name.removeprefix('config.')} {a.get(name, '-')} -> {b.get(name, '-')}"
        for name in dict.fromkeys([*a, *b]) if a.get(name) != b.get(name)
    ]  # fmt: skip


def _flat(found: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in found.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _read(folder: Path | str) -> list[Record]:
    records = read_store(folder)
    if not records:
        remedy = "Name a folder that `warmpot bench` wrote."
        raise InputError(str(folder), got=f"no {RESULTS} with records", allowed="results of a bench", remedy=remedy)
    return records


def _spot(record: Record) -> Spot:
    return line_of(record), (record.dataset, record.task)


def _by_spot(records: Iterable[Record]) -> dict[Spot, dict[int | None, Record]]:
    found: dict[Spot, dict[int | None, Record]] = {}
    for record in records:
        if record.done:
            found.setdefault(_spot(record), {})[None if record.any_seed else record.seed] = record
    return found


def _pairs(old: Runs, new: Runs, rule: str) -> list[tuple[Record, Record]]:
    """Pair by seed; a run for every seed is paired with each of the other's."""
    if None in old or None in new:
        found = [(old.get(None, each), new.get(None, each)) for each in (new if None in old else old).values()]
    else:
        found = [(old[seed], new[seed]) for seed in old if seed in new]
    return [(a, b) for a, b in found if rule in a.accuracy and rule in b.accuracy]


def _finished(runs: Runs, record: Record) -> bool:
    """Tell whether the training of a record is among some."""
    return bool(runs) and (record.any_seed or None in runs or record.seed in runs)


def _rows(tasks: Sequence[TaskChange]) -> tuple[RowChange, ...]:
    lines: dict[Line, list[TaskChange]] = {}
    for task in tasks:
        lines.setdefault(task.line, []).append(task)
    tests = {line: wilcoxon([task.difference for task in changes]) for line, changes in lines.items()}
    corrected = holm([test.pvalue for test in tests.values()])
    return tuple(
        RowChange(line, float(np.mean([task.before for task in changes])),
                  float(np.mean([task.after for task in changes])), tests[line], pvalue)
        for (line, changes), pvalue in zip(lines.items(), corrected, strict=True)
    )  # fmt: skip


def _name(record: Record) -> str:
    seed = "" if record.any_seed else f", seed {record.seed}"
    return f"{record.dataset}, {record.task}, {line_of(record).label}{seed}"


def _alone(records: Iterable[Record], matched: set[int]) -> tuple[str, ...]:
    return tuple(_name(record) for record in records if record.done and id(record) not in matched)


def _told(records: Iterable[Record], package: str) -> str:
    return ", ".join(sorted({record.versions[package] for record in records if package in record.versions})) or "-"


def _versions(old: Sequence[Record], new: Sequence[Record]) -> dict[str, tuple[str, str]]:
    names = dict.fromkeys(name for record in (*old, *new) for name in record.versions)
    found = {name: (_told(old, name), _told(new, name)) for name in names}
    return {name: pair for name, pair in found.items() if pair[0] != pair[1]}


def _settings(old: Sequence[Record], new: Sequence[Record]) -> tuple[str, str] | None:
    a, b = (", ".join(dict.fromkeys(record.setting for record in records if record.setting)) for records in (old, new))
    return (a, b) if a != b else None


def _nothing(
    before: Path | str, after: Path | str, rule: str, old: Sequence[Record], new: Sequence[Record]
) -> InputError:
    rules = [dict.fromkeys(name for record in records for name in record.accuracy) for records in (old, new)]
    common = [name for name in rules[0] if name in rules[1]]
    if rule not in common:
        allowed, remedy = ", ".join(common) or "none, no rule is in both", "Choose one that both results have."
        return InputError("rule", got=repr(rule), allowed=allowed, remedy=remedy)
    allowed, remedy = "the same data set, task, row, point and seed in both", "Compare results of the same grid."
    return InputError(f"{before} and {after}", got="no training in common", allowed=allowed, remedy=remedy)
