"""Rows of a summary against each other: paired tests, ranks, groups that cannot be told apart."""

from __future__ import annotations

from dataclasses import dataclass

from warmpot.bench.stats import (
    Friedman,
    Wilcoxon,
    average_ranks,
    cliques,
    critical_difference,
    friedman,
    holm,
    wilcoxon,
)
from warmpot.bench.summary import Line, Place, Summary

__all__ = ["LEVEL", "Contrast", "Ranking", "best_line", "contrasts", "ranking", "verdict"]

LEVEL = 0.05
"""Of the tests: p-values below it are no chance."""


@dataclass(frozen=True)
class Contrast:
    """A line against another, in points of accuracy.

    Attributes
    ----------
    line, other : Line
    pairs, tasks : Wilcoxon
        Over (task, seed) pairs; and over tasks, of whose seeds the mean is taken. Seeds of a task share its data, so
        they are no independent observations: the first test is too sure of itself, the second is the cautious one.
    pairs_holm, tasks_holm : float
        Their p-values, corrected for the number of lines that were compared.
    """

    line: Line
    other: Line
    pairs: Wilcoxon
    tasks: Wilcoxon
    pairs_holm: float
    tasks_holm: float


@dataclass(frozen=True)
class Ranking:
    """Mean ranks over tasks, the best first.

    Attributes
    ----------
    lines : tuple of Line
        Those that have all tasks.
    ranks : tuple of float
    tasks : int
    friedman : Friedman or None
        Test that all are alike; None for two lines.
    difference : float
        Nemenyi's critical difference of mean ranks at the level 0.05.
    groups : tuple of tuple of int
        Places, in `lines`, of those that lie within it.
    left_out : tuple of Line
        Those that lack a task.
    """

    lines: tuple[Line, ...]
    ranks: tuple[float, ...]
    tasks: int
    friedman: Friedman | None
    difference: float
    groups: tuple[tuple[int, ...], ...]
    left_out: tuple[Line, ...]


def verdict(test: Wilcoxon, pvalue: float) -> str:
    """Say "better", "worse" or "mixed"; "" when chance may explain the differences.

    The signed ranks forget how deep a fall is, and the mean forgets how often there is one: what they do not agree on
    is mixed.

    Examples
    --------
    >>> found = wilcoxon([*range(1, 12), -90])
    >>> found.better, found.difference, verdict(found, found.pvalue)
    (11, -2.0, 'mixed')
    """
    if pvalue >= LEVEL:
        return ""
    if test.difference > 0 and test.better > test.worse:
        return "better"
    return "worse" if test.difference < 0 and test.worse > test.better else "mixed"


def best_line(summary: Summary, rule: str) -> Line | None:
    """Line of the highest mean over the tasks that some line has; None when no line has them all."""
    means = {line: mean for line in summary.lines if (mean := summary.mean(line, rule).mean) is not None}
    return max(means, key=lambda line: means[line]) if means else None


def contrasts(summary: Summary, rule: str, other: Line) -> list[Contrast]:
    """Compare every line with one of them, by a rule; those that share no task with it are not there."""
    found = []
    for line in summary.lines:
        pairs: list[float] = []
        tasks: list[float] = []
        for place in summary.places:
            differences = _differences(summary, rule, line, other, place)
            pairs += differences
            tasks += [sum(differences) / len(differences)] if differences else []
        if tasks and line != other:
            found.append((line, wilcoxon(pairs), wilcoxon(tasks)))
    corrected = (holm([test.pvalue for _, test, _ in found]), holm([test.pvalue for *_, test in found]))
    return [
        Contrast(line, other, by_pair, by_task, *both)
        for (line, by_pair, by_task), *both in zip(found, *corrected, strict=True)
    ]


def _differences(summary: Summary, rule: str, line: Line, other: Line, place: Place) -> list[float]:
    """Pairs of a task, by seed; one pair where the seed changes neither."""
    mine, theirs = summary.task(line, place, rule), summary.task(other, place, rule)
    found = [mine.values[seed] - theirs.values[seed] for seed in mine.values if seed in theirs.values]
    return found[:1] if mine.constant and theirs.constant else found


def ranking(summary: Summary, rule: str) -> Ranking | None:
    """Rank the lines over tasks by their means over seeds; None for fewer than two lines or tasks."""
    means = {line: [summary.task(line, place, rule).mean for place in summary.present] for line in summary.lines}
    whole = {line: values for line, values in means.items() if None not in values}
    if len(whole) < 2 or len(summary.present) < 2:
        return None
    table = [[float(value) for value in values if value is not None] for values in whole.values()]
    ranks = average_ranks(table)
    order = sorted(range(len(ranks)), key=lambda k: ranks[k])
    lines, sorted_ranks = [list(whole)[k] for k in order], [float(ranks[k]) for k in order]
    difference = critical_difference(len(lines), len(summary.present))
    return Ranking(
        tuple(lines), tuple(sorted_ranks), len(summary.present), friedman(table), difference,
        tuple(cliques(sorted_ranks, difference)), tuple(line for line in summary.lines if line not in whole),
    )  # fmt: skip
