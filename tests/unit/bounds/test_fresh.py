"""Fresh target samples, plan labels, parts of the target and levels: closed forms, and agreement with the theorems."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from warmpot.bounds import (
    BoundProblem,
    fresh_bounds,
    group_bounds,
    head_lipschitz,
    plan_label_bound,
    sample_bounds,
    upper_bound_of_mean,
    with_labels,
    with_plan_labels,
)
from warmpot.bounds.fresh import SampleBounds, check_unseen, coverage_groups
from warmpot.bounds.levels import LEVELS, at_level
from warmpot.errors import InputError


def softmax(z: np.ndarray) -> np.ndarray:
    z = np.exp(z - z.max(axis=1, keepdims=True))
    return z / z.sum(axis=1, keepdims=True)


WEIGHT = 0.6 * np.array([[2.0, 0.0], [-1.0, 2.0], [-1.0, -2.0]])


def task(seed: int = 0, n: int = 60, m: int = 40) -> dict[str, Any]:
    """Three classes, of which the target lacks one; parts A and B of the target."""
    rng = np.random.default_rng(seed)
    means = np.array([[2.0, 0.0], [-1.0, 2.0], [-1.0, -2.0]])
    ys, yt = rng.integers(0, 3, n), rng.integers(0, 2, 2 * m)
    xs, xt = (means[y] + 0.15 * rng.normal(size=(len(y), 2)) for y in (ys, yt))
    return {"xs": xs, "ys": ys, "xt": xt[:m], "yt": yt[:m], "xb": xt[m:], "yb": yt[m:]}


def problem(data: dict[str, Any], loss: str = "euclidean") -> BoundProblem:
    proba = (softmax(data[name] @ WEIGHT.T) for name in ("xs", "xt"))
    gamma = head_lipschitz(WEIGHT, loss)
    return BoundProblem("joint", data["xs"], data["ys"], data["xt"], *proba, gamma=gamma, loss=loss)


@pytest.mark.parametrize("interval", ["betting", "bernstein", "hoeffding"])
def test_both_forms_are_means_over_the_fresh_samples(interval: str) -> None:
    data = task()
    proba = softmax(data["xb"] @ WEIGHT.T)
    found = fresh_bounds(problem(data), data["xb"], proba, beta=0.5, delta=0.1, interval=interval)
    for report, values in ((found.joint, found.samples.joint), (found.labels, found.samples.labels)):
        assert values.min() >= 0
        assert values.max() <= 1 + 1e-9
        assert report.total == pytest.approx(upper_bound_of_mean(np.clip(values, 0, 1), 0.1, interval))
        assert report.total - (report["confidence"].value or 0.0) == pytest.approx(values.mean())
        assert report.confidence == 0.9
        assert report.verdict == "undecided"
        assert not report.needs_fixed_features
    assert found.joint.theorem.startswith("Theorem 3.3")
    assert found.labels.theorem.startswith("Plan labels")
    full = with_labels(found.joint, data["xs"], data["ys"], data["xb"], found.problem.source_proba, proba, data["yb"])
    labels = with_plan_labels(found.labels, found.problem, found.label_plan, data["yb"])
    for one in (full, labels):
        assert one.target_loss is not None
        assert one.total_with_labels is not None
        assert one.target_loss <= one.total_with_labels
    assert labels.ideal == 0  # far clusters: every match is right


def test_a_sample_alone_decides_its_match() -> None:
    """The value of a fresh sample does not depend on the other fresh samples: that makes them independent."""
    data = task()
    seen = problem(data)
    proba = softmax(data["xb"] @ WEIGHT.T)
    whole = fresh_bounds(seen, data["xb"], proba, beta=0.5).samples
    for k in (0, 7, 13):
        one = fresh_bounds(seen, data["xb"][[k]], proba[[k]], beta=0.5).samples
        assert (one.joint[0], one.labels[0]) == pytest.approx((whole.joint[k], whole.labels[k]), abs=1e-9)


def test_samples_that_fit_nowhere_cost_one() -> None:
    data = task()
    far = np.concatenate([data["xb"], np.full((10, 2), 99.0)])
    found = fresh_bounds(problem(data), far, softmax(far @ WEIGHT.T), beta=0.5)
    np.testing.assert_array_equal(found.samples.joint[-10:], 1.0)
    assert found.joint.alpha < 1
    assert found.labels.alpha == 1
    hopeless = fresh_bounds(problem(data), far[-10:], softmax(far[-10:] @ WEIGHT.T))
    assert (hopeless.joint.total, hopeless.joint.verdict) == (1.0, "vacuous")
    assert hopeless.labels.total < 1
    proba, gamma = softmax(data["xs"] @ WEIGHT.T), head_lipschitz(WEIGHT, "tv")
    other = BoundProblem("features", data["xs"], data["ys"], data["xt"], proba, gamma=gamma, loss="tv")
    with pytest.raises(InputError, match="joint"):
        fresh_bounds(other, far, far)


def test_samples_that_were_seen_are_refused() -> None:
    """Also in another order, and computed in other batches: then the last bits differ."""
    data = task(m=120)
    seen, noise = problem(data), np.random.default_rng(1)
    for number in (120, 20):
        x = np.concatenate([data["xt"][:number], data["xb"][number:]])
        x = noise.permutation(x) * (1 + 1e-6 * noise.uniform(-1, 1, size=(120, 2)))
        with pytest.raises(InputError, match=f"{number} of 120 samples"):
            fresh_bounds(seen, x, softmax(x @ WEIGHT.T))
        assert fresh_bounds(seen, x, softmax(x @ WEIGHT.T), unseen=True).joint.total < 1
    unsplit = problem({**data, "xt": np.concatenate([data["xt"], data["xb"]])})
    with pytest.raises(InputError, match="120 of 120"):  # its prices would depend on the fresh samples
        fresh_bounds(unsplit, data["xb"], softmax(data["xb"] @ WEIGHT.T))


def test_samples_of_a_population_that_repeats_itself_are_not_copies() -> None:
    """Draws from few points coincide; the reports say so. The same samples once more are too many."""
    rng, values = np.random.default_rng(0), np.array(list(np.ndindex(5, 5, 5)), float)
    refused = 0
    for _ in range(300):
        seen, fresh = (values[rng.integers(0, 125, n)] for n in (60, 40))
        try:
            copies = check_unseen("x", seen, fresh)
            every = np.concatenate([seen, fresh])
            assert copies == sum((every == row).all(axis=1).sum() > 1 for row in fresh)
        except InputError:
            refused += 1
    assert refused <= 6
    with pytest.raises(InputError, match="60 of 60"):
        check_unseen("x", seen, seen[::-1])
    data = task()
    for more, number in ((data["xt"][:1], 1), (data["xb"], 80)):  # one that was seen; each fresh one twice
        x = np.concatenate([data["xb"], more])
        found = fresh_bounds(problem(data), x, softmax(x @ WEIGHT.T))
        for report in (found.joint, found.labels):
            assert f"{number} of {len(x)} fresh samples equal" in report.notes[-1]


@pytest.mark.parametrize("alpha", [0.7, 1.0])
def test_plan_labels_of_a_plan(alpha: float) -> None:
    """L <= <label cost, P> + M + (1 - alpha), by the definition; parts of it sum to the whole."""
    data = task(3)
    data["yt"][:5] = 1 - data["yt"][:5]
    seen = problem(data, "tv")
    report = seen.report(alpha, 0.5, form="sharp")
    plan, _ = seen.planned(alpha, 0.5, form="sharp")
    bound = with_plan_labels(plan_label_bound(seen, plan, report), seen, plan, data["yt"])
    dense = plan.toarray()
    proba = softmax(data["xt"] @ WEIGHT.T)
    cost = (dense * (1 - proba[:, data["ys"]].T)).sum()
    across = (dense * (data["ys"][:, None] != data["yt"])).sum()
    assert bound["transport, labels"].value == pytest.approx(cost)
    assert bound["M"].value == pytest.approx(across)
    assert bound["target left out"].value == pytest.approx(1 - alpha)
    assert bound.target_loss == pytest.approx((1 - proba[np.arange(40), data["yt"]]).mean())
    assert bound.target_loss <= (bound.total_with_labels or 0.0) + 1e-12
    parts = sample_bounds(seen, plan)
    assert parts.joint.mean() == pytest.approx(report.total)
    assert parts.labels.mean() == pytest.approx(bound.total)
    assert parts.matched.mean() == pytest.approx(alpha)
    classes = {str(k): proba.argmax(axis=1) == k for k in range(3)}
    rows = group_bounds(parts, classes)
    assert sum(row.n * row.joint for row in rows if row.n) / 40 == pytest.approx(report.total)
    wider = group_bounds(parts, classes, delta=0.1)
    assert all(w.joint >= r.joint - 1e-9 for w, r in zip(wider, rows, strict=True))


def test_parts_share_delta() -> None:
    """All parts hold together with probability 1 - delta: each has an equal share of it, in Hoeffding's closed form."""
    values = np.linspace(0.1, 0.5, 90)
    parts = {str(k): np.arange(90) % 3 == k for k in range(3)}
    rows = group_bounds(SampleBounds(values, values / 2, np.ones(90)), parts, 0.1, "hoeffding")
    for row, mask in zip(rows, parts.values(), strict=True):
        above = math.sqrt(math.log(3 / 0.1) / (2 * 30))
        assert (row.joint, row.labels) == pytest.approx((values[mask].mean() + above, values[mask].mean() / 2 + above))


def test_thresholds_of_the_certain_samples_come_from_the_samples_seen() -> None:
    seen, fresh = np.linspace(0, 1, 101), np.array([0.2, 0.55, 0.75, 0.9])
    found = coverage_groups(seen, fresh)
    assert list(found) == ["most certain 30%", "most certain 50%", "most certain 70%", "all"]
    assert [int(mask.sum()) for mask in found.values()] == [2, 3, 3, 4]


def test_the_ladder_falls_and_every_level_is_a_bound() -> None:
    data = task(1)
    data["yt"][:6] = 1 - data["yt"][:6]
    proba_s, proba_t = (softmax(data[name] @ WEIGHT.T) for name in ("xs", "xt"))
    totals = []
    for level in LEVELS:
        source, target, gamma = at_level(level, data["xs"], data["xt"], proba_s, proba_t, WEIGHT)
        at = BoundProblem("joint", source, data["ys"], target, proba_s, proba_t, gamma=gamma, loss="euclidean")
        report = with_labels(
            at.report(1.0, 0.5, form="sharp"), source, data["ys"], target, proba_s, proba_t, data["yt"]
        )
        assert report.target_loss <= report.total_refined + 1e-9  # type: ignore[operator]
        totals.append(report.total)
    assert totals[0] > totals[1] > totals[2]


def test_open_set() -> None:
    """Target samples of an unknown class: alpha below their complement leaves them out, at the price of their share.

    The unknown class is one more corner of the simplex, on which no head puts anything: every theorem holds as it is.
    """
    data = task(2)
    shared = data["ys"] < 2  # the source has no class that the target lacks
    xs, ys = data["xs"][shared], data["ys"][shared]
    unknown = np.random.default_rng(0).normal([9.0, 9.0], size=(10, 2))
    xt, yt = np.concatenate([data["xt"], unknown]), np.concatenate([data["yt"], np.full(10, 3)])
    proba = [softmax(np.column_stack([x @ WEIGHT.T, np.full(len(x), -np.inf)])) for x in (xs, xt)]
    seen = BoundProblem("joint", xs, ys, xt, *proba, gamma=head_lipschitz(WEIGHT, "tv"), loss="tv")
    bounds = {}
    for alpha in (0.8, 1.0):
        report = seen.report(alpha, 1.0, form="sharp")
        bounds[alpha] = with_labels(report, xs, ys, xt, *proba, target_labels=yt, iterations=0)
        assert bounds[alpha].target_loss <= bounds[alpha].total_refined + 1e-9  # type: ignore[operator]
    left_out = bounds[0.8].q
    assert left_out is not None
    assert np.abs(left_out[-10:]).max() < 1e-12  # exactly the samples of the unknown class
    assert (bounds[0.8].target_loss or 0.0) >= 0.2
    assert bounds[0.8].total < 1 < bounds[1.0].total
    assert seen.best_alpha(1.0) == pytest.approx(0.8, abs=0.05)


# --- continuous labels ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["features", "joint"])
@pytest.mark.parametrize("form", ["paper", "mixed", "sharp"])
def test_bounds_of_regression(kind: str, form: str) -> None:
    """Continuous labels, min(1, |y - y'|): the bounds hold with a regressor as the ideal head, on random instances."""
    rng = np.random.default_rng([kind == "joint", len(form)])
    for _ in range(25):
        n, m, d = rng.integers(3, 8), rng.integers(2, 6), rng.integers(1, 3)
        xs, xt = rng.normal(size=(n, d)), rng.normal(size=(m, d)) + rng.normal(size=d) * rng.choice([0, 1])
        w, best = rng.normal(size=d) * rng.choice([0.2, 1.0]), rng.normal(size=d)
        noise = rng.choice([0.0, 0.3])
        ys, yt = (x @ best + noise * rng.normal(size=len(x)) for x in (xs, xt))
        gamma = max(np.linalg.norm(w), np.linalg.norm(best))
        values = [(x @ w + 0.1)[:, None] for x in (xs, xt)]
        at = BoundProblem(kind, xs, ys, xt, *values, gamma=gamma, loss="absolute")
        alpha, beta = float(rng.choice([1.0, 0.6])), float(rng.choice([1.0, 0.5]))
        report = at.report(alpha, beta, form=form)
        full = with_labels(report, xs, ys, xt, *values, target_labels=yt)
        truth = np.minimum(1, np.abs(xt @ w + 0.1 - yt)).mean()
        assert full.target_loss == pytest.approx(truth)
        assert truth <= (full.total_refined or 0.0) + 1e-9
        assert truth <= (full.total_with_labels or 0.0) + 1e-9


def test_constant_of_a_regressor_and_what_it_has_not() -> None:
    assert head_lipschitz(np.array([[3.0, 4.0]]), "absolute").value == 5.0
    with pytest.raises(InputError, match="numbers"):
        BoundProblem("joint", np.zeros((2, 1)), np.zeros(3), np.zeros((2, 1)), np.zeros(2), np.zeros(2),
                     gamma=1.0, loss="absolute")  # fmt: skip
    from warmpot.bounds import pac_bayes_bound

    with pytest.raises(InputError, match="PAC-Bayes"):
        pac_bayes_bound(np.zeros((2, 1)), np.zeros(2), np.zeros((2, 1)), np.ones((1, 1)), loss="absolute")


def test_intervals_in_closed_form() -> None:
    values = np.tile([0.1, 0.3], 50)
    assert upper_bound_of_mean(values, 0.05, "hoeffding") == pytest.approx(0.2 + math.sqrt(math.log(20) / 200))
    log = math.log(40)
    bernstein = 0.2 + math.sqrt(2 * values.var(ddof=1) * log / 100) + 7 * log / (3 * 99)
    assert upper_bound_of_mean(values, 0.05, "bernstein") == pytest.approx(bernstein)
    assert [upper_bound_of_mean(np.empty(0), 0.05, name) for name in ("betting", "bernstein", "hoeffding")] == [1.0] * 3
