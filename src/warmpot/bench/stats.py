"""Is one row better than another? Paired tests, ranks, and which rows cannot be told apart.

References
----------
J. Demsar. Statistical comparisons of classifiers over multiple data sets. JMLR 7, 2006.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["Friedman", "Wilcoxon", "average_ranks", "cliques", "critical_difference", "friedman", "holm", "wilcoxon"]

MOST_EXACT = 60
"""Pairs up to which every pattern of signs is counted."""
FEWEST = 6
"""Pairs below which no two-sided p can be under 0.05, whatever they are."""
SAME = 1e-9
"""Accuracies that differ by less are equal: means of the same numbers in another order."""


@dataclass(frozen=True)
class Wilcoxon:
    """Signed-rank test of paired differences.

    Attributes
    ----------
    pairs, better, worse : int
        Differences, and how many of them are above and below 0.
    difference : float
        Their mean.
    pvalue : float
        Two-sided; 1 without any difference.
    exact : bool
        Whether all patterns of signs were counted.
    """

    pairs: int
    better: int
    worse: int
    difference: float
    pvalue: float
    exact: bool

    @property
    def too_few(self) -> bool:
        """Whether there are too few pairs for anything to be found."""
        return self.pairs < FEWEST


@dataclass(frozen=True)
class Friedman:
    """Friedman's test that all rows are alike: its statistic, corrected for ties, and p-value."""

    statistic: float
    pvalue: float


def wilcoxon(differences: ArrayLike) -> Wilcoxon:
    """Test whether paired differences are symmetric about 0 (Wilcoxon's signed ranks, two-sided).

    Zeros are treated as Pratt does: ranked with the others, then left out. Dropping them beforehand, Wilcoxon's own
    way, forgets that two rows were equal there and makes the rest look stronger; accuracies on a few hundred samples,
    and runs that a seed does not change, are equal often. Splitting them between the signs has the same p-value here,
    since it adds a constant. Ties share their mean rank. Up to 60 pairs the p-value is exact also with ties and zeros:
    the share of all patterns of signs whose rank sum is as far from the middle.
    """
    values = np.asarray(differences, dtype=np.float64).ravel()
    values = np.where(np.abs(values) < SAME, 0.0, values)
    found = {
        "pairs": values.size,
        "better": int((values > 0).sum()),
        "worse": int((values < 0).sum()),
        "difference": float(values.mean()) if values.size else 0.0,
    }
    if not values.any():
        return Wilcoxon(**found, pvalue=1.0, exact=True)  # type: ignore[arg-type]
    from scipy import stats

    if values.size > MOST_EXACT:
        pvalue = float(stats.wilcoxon(values, zero_method="pratt", method="asymptotic").pvalue)
        return Wilcoxon(**found, pvalue=pvalue, exact=False)  # type: ignore[arg-type]
    # twice the ranks are whole numbers; nearly equal sizes are ties
    ranks = np.rint(2 * stats.rankdata(np.round(np.abs(values), 9)))[values != 0].astype(np.int64)
    pvalue = _exact(ranks, int(ranks[values[values != 0] > 0].sum()))
    return Wilcoxon(**found, pvalue=pvalue, exact=True)  # type: ignore[arg-type]


def _exact(ranks: NDArray[np.int64], above: int) -> float:
    """Count the patterns of signs by the sum of the ranks above 0, one rank after another."""
    total = int(ranks.sum())
    shares = np.zeros(total + 1)
    shares[0] = 1.0
    for rank in ranks:
        shares[rank:] = 0.5 * (shares[rank:] + shares[: total + 1 - rank])
        shares[:rank] *= 0.5
    far = np.abs(2 * np.arange(total + 1) - total) >= abs(2 * above - total)
    return min(1.0, float(shares[far].sum()))


def holm(pvalues: Sequence[float]) -> list[float]:
    """Correct p-values for their number (Holm): those below a level hold together with that error.

    Examples
    --------
    >>> [round(p, 3) for p in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(pvalues)), key=lambda k: pvalues[k])
    found, largest = [0.0] * len(pvalues), 0.0
    for place, k in enumerate(order):
        largest = max(largest, min(1.0, (len(pvalues) - place) * pvalues[k]))
        found[k] = largest
    return found


def average_ranks(values: ArrayLike) -> NDArray[np.float64]:
    """Rank rows within every task, the highest first, ties shared; return the mean rank of each row.

    Parameters
    ----------
    values : array (n_rows, n_tasks)

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
    """Test whether the rows of a table (n_rows, n_tasks) are all alike; None below 3 rows or 2 tasks."""
    from scipy import stats

    table = np.round(np.asarray(values, dtype=np.float64), 9)
    if table.shape[0] < 3 or table.shape[1] < 2:
        return None
    if (table == table[0]).all():  # nothing to rank
        return Friedman(0.0, 1.0)
    found = stats.friedmanchisquare(*table)
    return Friedman(float(found.statistic), float(found.pvalue))


@cache
def critical_difference(rows: int, tasks: int, level: float = 0.05) -> float:
    """Return the difference of mean ranks below which two rows cannot be told apart (Nemenyi).

    Examples
    --------
    >>> round(critical_difference(4, 14), 2)
    1.25
    """
    from scipy import stats

    quantile = float(stats.studentized_range.ppf(1.0 - level, rows, np.inf)) / np.sqrt(2.0)
    return float(quantile * np.sqrt(rows * (rows + 1) / (6.0 * tasks)))


def cliques(ranks: Sequence[float], difference: float) -> list[tuple[int, ...]]:
    """Return the largest groups of two or more rows whose ranks lie within a difference, the best group first.

    Examples
    --------
    >>> cliques([3.0, 1.0, 1.5, 2.2], 1.0)
    [(1, 2), (2, 3), (3, 0)]
    """
    order = sorted(range(len(ranks)), key=lambda k: ranks[k])
    groups: list[tuple[int, ...]] = []
    for place, first in enumerate(order):
        group = tuple(k for k in order[place:] if ranks[k] - ranks[first] <= difference)
        if len(group) > 1 and not (groups and groups[-1][-1] == group[-1]):  # within the one before
            groups.append(group)
    return groups
