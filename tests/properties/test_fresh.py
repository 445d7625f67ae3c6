"""Certificates for new samples: do they hold as often as they say? 3,000 simulations each, and a binomial test."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy.stats import binomtest

from warmpot.bounds import BoundProblem, fresh_bounds, group_bounds
from warmpot.bounds.fresh import SampleBounds
from warmpot.bounds.intervals import BETS, INTERVALS, mean_upper_bound, upper_bound_of_mean
from warmpot.bounds.losses import LOSSES
from warmpot.select.few_labels import accuracy_intervals, draw_to_label, less_certain

RUNS, DELTA = 3000, 0.1
SUPPORT = 40


def holds(fails: int, delta: float = DELTA, runs: int = RUNS) -> bool:
    """Whether so many failures are likely enough if each has a probability of at most delta."""
    return bool(binomtest(fails, runs, delta, alternative="greater").pvalue > 1e-4)


def softmax(z: np.ndarray) -> np.ndarray:
    z = np.exp(z - z.max(axis=-1, keepdims=True))
    return z / z.sum(axis=-1, keepdims=True)


class World(NamedTuple):
    """A target population of 40 points, a classifier, and what the matching rule says of each point."""

    shares: np.ndarray
    bounds: SampleBounds
    loss: float
    ideal: float
    mismatch: float
    predicted: np.ndarray


@cache
def world(loss: str) -> World:
    rng = np.random.default_rng(3)
    means = np.array([[1.2, 0.0], [-0.6, 1.0], [-0.6, -1.0]])
    heads = np.stack([1.2 * means, 1.1 * means + 0.1, np.zeros((3, 2))])  # the learnt one first
    ys = np.repeat([0, 1, 2], 20)
    xs = means[ys] + 0.1 * rng.normal(size=(60, 2))
    y = rng.integers(0, 2, SUPPORT)  # the target lacks class 2
    x = means[y] + 0.1 + 0.25 * rng.normal(size=(SUPPORT, 2))
    y[:4] = 1 - y[:4]  # some are of the other class than they seem
    shares = rng.dirichlet(np.full(SUPPORT, 2.0))
    proba_s, proba = (softmax(np.einsum("kcd,nd->knc", heads, points)) for points in (xs, x))
    metric, gaps = LOSSES[loss], np.linalg.norm(np.concatenate([xs, x])[:, None] - np.concatenate([xs, x]), axis=2)
    every = np.concatenate([proba_s, proba], axis=1)
    gamma = max(float((metric.between(g[:, None], g[None]) / (gaps + np.eye(len(gaps)))).max()) for g in every)
    seen = rng.choice(SUPPORT, 30, p=shares)  # part A
    problem = BoundProblem("joint", xs, ys, x[seen], proba_s[0], proba[0][seen], gamma=gamma, loss=loss)
    found = fresh_bounds(problem, x, proba[0], beta=0.5)
    # the population's ideal term, over the three heads: min (S + T) - min S
    rule = _rule(problem, x, proba[0])
    matched = rule >= 0
    of_source = np.stack([metric.of_labels(g, ys) for g in proba_s])[:, rule]
    of_target = np.stack([metric.of_labels(g, y) for g in proba])
    S, T = (of_source * matched) @ shares, (of_target * matched) @ shares
    unlike = ys[found.label_plan.tocsc().indices] != y
    return World(shares, found.samples, float(of_target[0] @ shares), float((S + T).min() - S.min()),
                 float(unlike @ shares), proba[0].argmax(axis=1))  # fmt: skip


def _rule(problem: BoundProblem, x: np.ndarray, proba: np.ndarray) -> np.ndarray:
    """Return the match of each point by the definition, -1 for none."""
    metric, far = problem.loss, np.linalg.norm(problem.source[:, None] - x, axis=2)
    cost = problem.source_losses[:, None] + problem.lipschitz.value * far + metric.of_pairs(problem.labels, proba)
    cost += problem.prices(0.5)[:, None]
    return np.where(cost.min(axis=0) <= 1, cost.argmin(axis=0), -1)


def refuted(values: np.ndarray, mean: np.ndarray, delta: float) -> np.ndarray:
    """Whether `mean_upper_bound` is below the true mean, for many samples at once: the wealth there is 1/delta."""
    bets = np.geomspace(0.5 / values.shape[-1], 1.0 - 1e-3, BETS)[:, None, None]
    wealth = np.log1p(bets * ((mean - values) / (1.0 - mean))).sum(axis=2)
    below: np.ndarray = np.logaddexp.reduce(wealth, axis=0) - np.log(BETS) >= -np.log(delta)
    return below


def failures(values: np.ndarray, mean: float, interval: str, delta: float = DELTA) -> int:
    """Count the samples, one per row, whose interval does not contain the mean."""
    if interval == "betting":
        fails = refuted(values, np.full((1, 1), mean), delta)
        for k in range(0, len(values), 100):  # the library itself
            assert (mean_upper_bound(values[k], delta) < mean) == bool(fails[k])
        return int(fails.sum())
    return sum(upper_bound_of_mean(row, delta, interval) < mean for row in values)


@pytest.mark.parametrize("loss", ["tv", "euclidean"])
def test_inequalities_hold_for_the_population(loss: str) -> None:
    """Without chance: the mean of both functions, plus the unknown terms, is above the loss."""
    one = world(loss)
    assert one.loss <= one.bounds.joint @ one.shares + one.ideal + 1e-12
    assert one.loss <= one.bounds.labels @ one.shares + one.mismatch + 1e-12
    assert 0 < one.mismatch < 0.3
    assert one.bounds.joint @ one.shares < 1
    # neither would hold without its unknown term, in a world with enough wrong labels
    assert one.bounds.labels @ one.shares < one.loss


@pytest.mark.parametrize("interval", INTERVALS)
@pytest.mark.parametrize("form", ["joint", "labels"])
def test_certificates_hold_as_often_as_they_say(form: str, interval: str) -> None:
    one, m = world("euclidean"), 50
    z = np.clip(getattr(one.bounds, form), 0, 1)
    draws = np.random.default_rng(7).choice(SUPPORT, (RUNS, m), p=one.shares)
    assert holds(failures(z[draws], float(z @ one.shares), interval))
    # the simulation can tell: the mean alone fails half of the time, and a third of Hoeffding's width too often
    means, mean = z[draws].mean(axis=1), float(z @ one.shares)
    assert not holds(int((means < mean).sum()))
    assert not holds(int((means + 0.5 * z.std() / np.sqrt(m) < mean).sum()))


@pytest.mark.parametrize("form", ["joint", "labels"])
def test_all_parts_hold_at_once(form: str) -> None:
    """Classes and confidence parts: failures of any of them, together, are at most delta."""
    one, rng, fails = world("euclidean"), np.random.default_rng(1), 0
    groups = [one.predicted == k for k in np.unique(one.predicted)] + [one.bounds.joint < np.median(one.bounds.joint)]
    z = np.clip(getattr(one.bounds, form), 0, 1)
    truths = [float(z[g] @ one.shares[g] / one.shares[g].sum()) for g in groups]
    for number in range(RUNS):
        drawn = rng.choice(SUPPORT, 60, p=one.shares)
        parts = [z[drawn][g[drawn]] for g in groups]
        missed = [
            len(part) > 0 and bool(refuted(part[None], np.full((1, 1), truth), DELTA / len(groups))[0])
            for part, truth in zip(parts, truths, strict=True)
        ]
        fails += any(missed)
        if number % 100 == 0 or any(missed):  # the library itself
            picked = SampleBounds(*(part[drawn] for part in one.bounds))
            rows = group_bounds(picked, {str(k): g[drawn] for k, g in enumerate(groups)}, DELTA)
            assert [getattr(row, form) < truth for row, truth in zip(rows, truths, strict=True)] == missed
    assert holds(fails)


# --- a few labels ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("good", [True, False])
@pytest.mark.parametrize("evenly", [True, False])
def test_intervals_from_a_few_labels_hold(good: bool, evenly: bool) -> None:
    """The target at hand, labels drawn without replacement; confidences that tell right from wrong, or do not."""
    rng, size, n = np.random.default_rng(5), 90, 24
    confidence = rng.permutation(np.linspace(0.4, 1, size))
    correct = rng.random(size) < (confidence if good else 0.7)
    truth, unsure = float(correct.mean()), less_certain(confidence)
    parts = [np.flatnonzero(unsure == k) for k in (True, False)]
    seen: dict[tuple[int, ...], list[Any]] = {}
    fails = {"Clopper-Pearson": 0, "exact": 0, "prediction-powered": 0}
    for _ in range(RUNS):
        if evenly:
            rows = rng.permutation(size)[:n]
            drawn = [rows[unsure[rows]], rows[~unsure[rows]]]
        else:
            drawn = [rng.permutation(part)[:k] for part, k in zip(parts, (8, 16), strict=True)]
        key = tuple(int(x) for d in drawn for x in (len(d), correct[d].sum()))
        if key not in seen:  # the intervals depend on nothing else
            rows = np.concatenate(drawn)
            seen[key] = accuracy_intervals(confidence, rows, correct[rows], delta=DELTA, evenly=evenly)
        for one in seen[key]:
            fails[one.method] += not one.low <= truth <= one.high
    assert all(map(holds, fails.values())), fails
    assert {one.method for one in next(iter(seen.values()))} == set(fails if evenly else ["prediction-powered"])


@pytest.mark.parametrize("evenly", [True, False])
@pytest.mark.parametrize("labelled", [True, False])
def test_a_stratum_without_labels_may_be_right_or_wrong(labelled: bool, evenly: bool) -> None:
    """One third less certain; all labels are of one stratum, all of its predictions are correct, the others wrong."""
    confidence = np.linspace(0.4, 1, 300)
    own = np.flatnonzero(less_certain(confidence) == labelled)
    found = accuracy_intervals(confidence, own[::5], np.ones(len(own[::5]), bool), evenly=evenly)[-1]
    assert found.low <= len(own) / 300
    assert found.high == 1
    # within the labelled stratum it is the interval of that stratum alone
    alone = accuracy_intervals(np.full(len(own), 0.5), np.arange(len(own))[::5], np.ones(len(own[::5]), bool))[1]
    assert found.low == pytest.approx(alone.low * len(own) / 300)


def test_draws_to_label_are_even_within_the_strata() -> None:
    confidence, counts = np.linspace(0, 1, 30), np.zeros(30)
    for seed in range(RUNS // 3):
        rows = draw_to_label(confidence, 9, seed)
        assert less_certain(confidence)[rows].sum() == 3
        counts[rows] += 1
    assert binomtest(int(counts.max()), RUNS // 3, 0.3).pvalue > 1e-5
    assert binomtest(int(counts.min()), RUNS // 3, 0.3).pvalue > 1e-5


@pytest.mark.parametrize("share", [0.6, 0.95])
def test_clopper_pearson_holds_for_new_samples(share: float) -> None:
    right, n = np.random.default_rng(2).binomial(40, share, RUNS), 40
    ends = {
        int(k): accuracy_intervals(np.full(500, 0.5), np.arange(n), np.arange(n) < k, delta=DELTA, held_out=True)[0]
        for k in np.unique(right)
    }
    assert holds(sum(not ends[int(k)].low <= share <= ends[int(k)].high for k in right))


def test_many_samples_take_no_time_and_all_labels_leave_no_doubt() -> None:
    many = accuracy_intervals(np.linspace(0.5, 1, 60_000), np.arange(0, 60_000, 300), np.arange(200) > 2)
    assert abs(many[1].low - many[0].low) < 0.01
    rows = np.arange(40)
    for one in accuracy_intervals(np.linspace(0.5, 1, 40), rows, rows > 7)[1:]:
        assert (one.low, one.high) == pytest.approx((0.8, 0.8))
