"""Statistical tests."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as peer

from warmpot.bench.significance import average_ranks, cliques, critical_difference, friedman, holm, wilcoxon

numbers = st.integers(-40, 40).map(lambda k: k / 8)  # many ties and zeros


def brute_force(differences: list[float]) -> float:
    """Try all signs of the ranked sizes; zeros are ranked and then left out."""
    ranks = peer.rankdata(np.abs(differences))
    ranks = [(rank, value > 0) for rank, value in zip(ranks, differences, strict=True) if value]
    found = sum(rank for rank, above in ranks if above)
    middle = sum(rank for rank, _ in ranks) / 2
    sums = [
        sum(rank for (rank, _), sign in zip(ranks, signs, strict=True) if sign)
        for signs in itertools.product((0, 1), repeat=len(ranks))
    ]
    return float(np.mean([abs(each - middle) >= abs(found - middle) - 1e-9 for each in sums]))


@settings(max_examples=40)
@given(st.lists(numbers, min_size=1, max_size=9))
def test_wilcoxon_counts_all_patterns_of_signs(differences: list[float]) -> None:
    found = wilcoxon(differences)
    assert found.exact
    assert found.pvalue == pytest.approx(brute_force(differences) if any(differences) else 1.0, abs=1e-12)
    assert (found.better, found.worse) == (sum(d > 0 for d in differences), sum(d < 0 for d in differences))


def test_wilcoxon_agrees_with_scipy() -> None:
    rng = np.random.default_rng(0)
    few, many = rng.normal(0.3, 1.0, 40), np.round(rng.normal(0.1, 1.0, 90), 1)
    assert wilcoxon(few).pvalue == pytest.approx(peer.wilcoxon(few, method="exact").pvalue)
    large = wilcoxon(many)
    assert not large.exact
    assert large.pvalue == peer.wilcoxon(many, zero_method="pratt", method="asymptotic").pvalue
    assert wilcoxon([]).pvalue == wilcoxon([0.0] * 5).pvalue == wilcoxon([1e-14, -1e-13]).pvalue == 1.0


def test_exact_and_asymptotic_p_values_meet() -> None:
    values = np.random.default_rng(1).normal(0.25, 1.0, 60)
    assert wilcoxon(values).exact
    assert wilcoxon(values).pvalue == pytest.approx(peer.wilcoxon(values, method="asymptotic").pvalue, abs=0.003)


@settings(max_examples=40)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_is_the_step_down_of_bonferroni(pvalues: list[float]) -> None:
    found = holm(pvalues)
    for p, corrected in zip(pvalues, found, strict=True):
        assert p <= corrected <= min(1.0, len(pvalues) * p) + 1e-12
    for level in (0.01, 0.05, 0.2):  # reject the smallest ones until the first that is not below its share
        rejected = 0
        for place, p in enumerate(sorted(pvalues)):
            if p > level / (len(pvalues) - place):
                break
            rejected += 1
        assert sum(p <= level + 1e-12 for p in found) >= rejected
        assert sum(p < level - 1e-12 for p in found) <= rejected


tables = st.tuples(st.integers(3, 5), st.integers(2, 6)).flatmap(
    lambda shape: st.lists(
        st.lists(st.integers(0, 8).map(lambda k: 50 + k / 2), min_size=shape[1], max_size=shape[1]),
        min_size=shape[0],
        max_size=shape[0],
    )
)


@settings(max_examples=40)
@given(tables, st.randoms(use_true_random=False))
def test_ranks_do_not_depend_on_order_or_on_how_hard_a_task_is(values: list[list[float]], random: Any) -> None:
    table = np.array(values)
    order = list(range(table.shape[1]))
    random.shuffle(order)
    harder = table[:, order] + np.arange(len(order))  # every row of a task gains the same
    assert average_ranks(harder).tolist() == pytest.approx(average_ranks(table).tolist())
    assert average_ranks(table).sum() == pytest.approx(table.shape[0] * (table.shape[0] + 1) / 2)
    a, b = friedman(table), friedman(harder)
    assert a is not None
    assert b is not None
    assert (a.statistic, a.pvalue) == pytest.approx((b.statistic, b.pvalue))
    assert 0.0 <= a.pvalue <= 1.0


def test_friedman_by_its_formula() -> None:
    rng = np.random.default_rng(0)
    table = rng.permuted(np.tile(np.arange(4.0)[:, None], 14), axis=0)  # no ties
    ranks, (k, n) = average_ranks(table), table.shape
    by_hand = 12 * n / (k * (k + 1)) * (np.sum(ranks**2) - k * (k + 1) ** 2 / 4)
    found = friedman(table)
    assert found is not None
    assert found.statistic == pytest.approx(by_hand)
    assert found.pvalue == pytest.approx(peer.chi2.sf(by_hand, k - 1))
    alike = friedman(np.ones((3, 4)))
    assert alike is not None
    assert alike.pvalue == 1.0
    assert friedman([[1.0, 2.0], [2.0, 3.0]]) is None


@pytest.mark.parametrize(
    ("rows", "q"),
    [(2, 1.960), (3, 2.343), (4, 2.569), (5, 2.728), (6, 2.850), (7, 2.949), (8, 3.031), (9, 3.102), (10, 3.164)],
)
def test_critical_difference_has_the_constants_of_the_textbook(rows: int, q: float) -> None:
    """Demsar 2006, Table 5a; and his example of 4 classifiers on 14 data sets has 1.25."""
    assert critical_difference(rows, 20) == pytest.approx(q * np.sqrt(rows * (rows + 1) / (6 * 20)), abs=0.0012)
    assert critical_difference(4, 14) == pytest.approx(1.25, abs=0.005)


@settings(max_examples=40)
@given(
    st.lists(st.integers(2, 20).map(lambda k: k / 2), min_size=2, max_size=8), st.integers(0, 12).map(lambda k: k / 2)
)
def test_cliques_are_the_largest_groups_within_the_difference(ranks: list[float], difference: float) -> None:
    found = cliques(ranks, difference)
    together = {(a, b) for group in found for a in group for b in group}
    for a, b in itertools.combinations(range(len(ranks)), 2):
        assert ((a, b) in together) == (abs(ranks[a] - ranks[b]) <= difference)
    assert not any(set(a) < set(b) for a in found for b in found)
