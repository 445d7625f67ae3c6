"""Statistical tests for comparing the rows of a grid: paired tests, ranks, groups without a significant difference.

References
----------
J. Demsar. Statistical comparisons of classifiers over multiple data sets. JMLR 7, 2006.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from warmpot.bench.summary import Summary, TaskKey, Variant

__all__ = ["LEVEL", "Ranking", "VariantComparison", "best_variant", "compare_variants", "rank_variants", "verdict"]

LEVEL = 0.05
"""Significance level of the tests."""
MAX_EXACT = 60
"""Number of pairs up to which the p-value is exact; beyond, the normal approximation agrees to 0.003."""
MIN_PAIRS = 6
"""With fewer pairs no two-sided p-value is below 0.05: the smallest of n pairs is 2^(1 - n)."""
TOLERANCE = 1e-9
"""Accuracies that differ by less are equal: they are means of the same numbers in another order."""


@dataclass(frozen=True)
class Wilcoxon:
    """Signed-rank test of paired differences: how many there are, how many are positive and negative, and their mean.

    The p-value is two-sided; 1 if all differences are 0.
    """

    pairs: int
    better: int
    worse: int
    difference: float
    pvalue: float
    exact: bool

    @property
    def too_few(self) -> bool:
        """Whether there are too few pairs for a significant result."""
        return self.pairs < MIN_PAIRS


class Friedman(NamedTuple):
    """Friedman's test of equal performance: its statistic, corrected for ties, and p-value."""

    statistic: float
    pvalue: float


def wilcoxon(differences: ArrayLike) -> Wilcoxon:
    """Test whether paired differences are symmetric about 0 (Wilcoxon's signed ranks, two-sided).

    Zeros are treated as by Pratt: ranked with the others, then left out. Dropping them first, as by Wilcoxon, ignores
    that two rows were equal there and makes the remaining differences look stronger; accuracies on a few hundred
    samples are often equal. Ties share their mean rank.

    Up to 60 pairs the p-value is exact, also with ties and zeros: the share of all sign patterns whose rank sum is at
    least as far from the centre. ``scipy.stats.wilcoxon`` has exact p-values for distinct non-zero differences only, or
    enumerates all 2^n patterns.
    """
    values = np.asarray(differences, dtype=np.float64).ravel()
    values = np.where(np.abs(values) < TOLERANCE, 0.0, values)
    exact = values.size <= MAX_EXACT
    return Wilcoxon(
        pairs=values.size,
        better=int((values > 0).sum()),
        worse=int((values < 0).sum()),
        difference=float(values.mean()) if values.size else 0.0,
        pvalue=_wilcoxon_pvalue(values, exact) if values.any() else 1.0,
        exact=exact or not values.any(),
    )


def _wilcoxon_pvalue(values: NDArray[np.float64], exact: bool) -> float:
    from scipy import stats

    if not exact:
        return float(stats.wilcoxon(values, zero_method="pratt", method="asymptotic").pvalue)
    # doubled ranks are integers, since ties have half ranks; sizes that differ by rounding errors are ties
    ranks = np.rint(2 * stats.rankdata(np.round(np.abs(values), 9)))[values != 0].astype(np.int64)
    positive, total = int(ranks[values[values != 0] > 0].sum()), int(ranks.sum())
    probability = np.zeros(total + 1)  # of each sum of positive ranks; each rank is positive with probability 1/2
    probability[0] = 1.0
    for rank in ranks:
        probability[rank:] = 0.5 * (probability[rank:] + probability[: total + 1 - rank])
        probability[:rank] *= 0.5
    extreme = np.abs(2 * np.arange(total + 1) - total) >= abs(2 * positive - total)
    return min(1.0, float(probability[extreme].sum()))


def holm(pvalues: Sequence[float]) -> list[float]:
    """Correct p-values for multiple comparisons by Holm's step-down method, in the given order.

    Examples
    --------
    >>> [round(p, 3) for p in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(pvalues)), key=lambda k: pvalues[k])
    corrected, largest = [0.0] * len(pvalues), 0.0
    for rank, k in enumerate(order):
        largest = max(largest, min(1.0, (len(pvalues) - rank) * pvalues[k]))
        corrected[k] = largest
    return corrected


def average_ranks(values: ArrayLike) -> NDArray[np.float64]:
    """Rank the rows of a table (n_rows, n_tasks) within every task, 1 for the highest; return their mean ranks.

    Ties share their mean rank.

    Examples
    --------
    >>> average_ranks([[0.9, 0.8], [0.9, 0.7], [0.5, 0.6]]).tolist()
    [1.25, 1.75, 3.0]
    """
    from scipy import stats

    table = np.round(np.asarray(values, dtype=np.float64), 9)
    ranks: NDArray[np.float64] = stats.rankdata(-table, axis=0).mean(axis=1)
    return ranks


def friedman(values: ArrayLike) -> Friedman | None:
    """Test whether the rows of a table (n_rows, n_tasks) perform equally; None below 3 rows or 2 tasks."""
    from scipy import stats

    table = np.round(np.asarray(values, dtype=np.float64), 9)
    if table.shape[0] < 3 or table.shape[1] < 2:
        return None
    if (table == table[0]).all():  # scipy would divide by 0
        return Friedman(0.0, 1.0)
    result = stats.friedmanchisquare(*table)
    return Friedman(float(result.statistic), float(result.pvalue))


@cache
def critical_difference(rows: int, tasks: int, level: float = 0.05) -> float:
    """Return the difference of mean ranks above which two rows differ significantly (Nemenyi).

    Examples
    --------
    >>> round(critical_difference(4, 14), 2)
    1.25
    """
    from scipy import stats

    quantile = float(stats.studentized_range.ppf(1.0 - level, rows, np.inf)) / np.sqrt(2.0)
    return float(quantile * np.sqrt(rows * (rows + 1) / (6.0 * tasks)))


def cliques(ranks: Sequence[float], difference: float) -> list[tuple[int, ...]]:
    """Return the maximal groups of two or more rows whose ranks lie within a difference, the best group first.

    Examples
    --------
    >>> cliques([3.0, 1.0, 1.5, 2.2], 1.0)
    [(1, 2), (2, 3), (3, 0)]
    """
    order = sorted(range(len(ranks)), key=lambda k: ranks[k])
    groups: list[tuple[int, ...]] = []
    for start, first in enumerate(order):
        group = tuple(k for k in order[start:] if ranks[k] - ranks[first] <= difference)
        if len(group) > 1 and not (groups and groups[-1][-1] == group[-1]):  # not contained in the previous group
            groups.append(group)
    return groups


@dataclass(frozen=True)
class VariantComparison:
    """A variant compared with another one, in points of accuracy.

    The test over (task, seed) `pairs` is too optimistic, since seeds of a task share its data and are not independent;
    the one over `tasks`, with the mean over seeds, is conservative. `pairs_holm` and `tasks_holm` are their p-values,
    corrected for the number of comparisons.
    """

    variant: Variant
    other: Variant
    pairs: Wilcoxon
    tasks: Wilcoxon
    pairs_holm: float
    tasks_holm: float


@dataclass(frozen=True)
class Ranking:
    """Mean ranks over tasks, the best first, of the variants with results for all tasks; the others are `excluded`.

    `difference` is Nemenyi's critical difference of mean ranks at the level 0.05, `groups` are indices of variants
    whose ranks differ by no more than that. There is no Friedman test of two variants.
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
