"""Comparing the rows of a grid: paired tests, ranks, and groups without a significant difference."""

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
from warmpot.bench.summary import Summary, TaskKey, Variant

__all__ = ["LEVEL", "Ranking", "VariantComparison", "best_variant", "compare_variants", "rank_variants", "verdict"]

LEVEL = 0.05
"""Significance level of the tests."""


@dataclass(frozen=True)
class VariantComparison:
    """A variant compared with another one, in points of accuracy.

    Attributes
    ----------
    variant, other : Variant
    pairs : Wilcoxon
        Test over (task, seed) pairs. Seeds of a task share its data and are not independent, so that this test is too
        optimistic.
    tasks : Wilcoxon
        Test over tasks, with the mean over seeds: the conservative one.
    pairs_holm, tasks_holm : float
        Their p-values, corrected for the number of comparisons.
    """

    variant: Variant
    other: Variant
    pairs: Wilcoxon
    tasks: Wilcoxon
    pairs_holm: float
    tasks_holm: float


@dataclass(frozen=True)
class Ranking:
    """Mean ranks over tasks, the best first.

    Attributes
    ----------
    variants : tuple of Variant
        Those with results for all tasks.
    ranks : tuple of float
    tasks : int
        Number of tasks.
    friedman : Friedman or None
        Test of the hypothesis that all perform equally; None for two variants.
    difference : float
        Nemenyi's critical difference of mean ranks at the level 0.05.
    groups : tuple of tuple of int
        Indices of variants whose ranks differ by no more than that.
    excluded : tuple of Variant
        Those without results for some task.
    """

    variants: tuple[Variant, ...]
    ranks: tuple[float, ...]
    tasks: int
    friedman: Friedman | None
    difference: float
    groups: tuple[tuple[int, ...], ...]
    excluded: tuple[Variant, ...]


def verdict(test: Wilcoxon, pvalue: float) -> str:
    """Return "better", "worse" or "mixed"; "" if the difference is not significant.

    Signed ranks ignore how large a loss is, and the mean ignores how often there is one. If they disagree, the verdict
    is "mixed".

    Examples
    --------
    >>> test = wilcoxon([*range(1, 12), -90])
    >>> test.better, test.difference, verdict(test, test.pvalue)
    (11, -2.0, 'mixed')
    """
    if pvalue >= LEVEL:
        return ""
    if test.difference > 0 and test.better > test.worse:
        return "better"
    return "worse" if test.difference < 0 and test.worse > test.better else "mixed"


def best_variant(summary: Summary, rule: str) -> Variant | None:
    """Return the variant of the highest mean; None if none has results for all finished tasks."""
    means = {variant: mean for variant in summary.variants if (mean := summary.mean(variant, rule).mean) is not None}
    return max(means, key=lambda variant: means[variant]) if means else None


def compare_variants(summary: Summary, rule: str, other: Variant) -> list[VariantComparison]:
    """Compare every variant with `other`, by a rule; those without a common task are left out."""
    tests = []
    for variant in summary.variants:
        pairs: list[float] = []
        tasks: list[float] = []
        for task in summary.tasks:
            differences = _differences(summary, rule, variant, other, task)
            pairs += differences
            tasks += [sum(differences) / len(differences)] if differences else []
        if tasks and variant != other:
            tests.append((variant, wilcoxon(pairs), wilcoxon(tasks)))
    corrected = (holm([test.pvalue for _, test, _ in tests]), holm([test.pvalue for *_, test in tests]))
    return [
        VariantComparison(variant, other, pairs, tasks, *pvalues)
        for (variant, pairs, tasks), *pvalues in zip(tests, *corrected, strict=True)
    ]


def _differences(summary: Summary, rule: str, variant: Variant, other: Variant, task: TaskKey) -> list[float]:
    """Differences on a task by seed; only one if neither depends on the seed."""
    scores, others = summary.score(variant, task, rule), summary.score(other, task, rule)
    differences = [value - others.values[seed] for seed, value in scores.values.items() if seed in others.values]
    return differences[:1] if scores.constant and others.constant else differences


def rank_variants(summary: Summary, rule: str) -> Ranking | None:
    """Rank the variants over tasks by their means over seeds; None for fewer than two variants or tasks."""
    tasks = summary.finished_tasks
    means = {variant: [summary.score(variant, task, rule).mean for task in tasks] for variant in summary.variants}
    complete = {
        variant: [float(value) for value in values if value is not None]
        for variant, values in means.items() if None not in values
    }  # fmt: skip
    if len(complete) < 2 or len(tasks) < 2:
        return None
    ranks = dict(zip(complete, average_ranks(list(complete.values())).tolist(), strict=True))
    variants = sorted(complete, key=lambda variant: ranks[variant])
    sorted_ranks = [ranks[variant] for variant in variants]
    difference = critical_difference(len(variants), len(tasks))
    return Ranking(
        tuple(variants), tuple(sorted_ranks), len(tasks), friedman(list(complete.values())), difference,
        tuple(cliques(sorted_ranks, difference)), tuple(v for v in summary.variants if v not in complete),
    )  # fmt: skip
