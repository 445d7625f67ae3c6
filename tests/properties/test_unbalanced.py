"""What must hold for every unbalanced problem."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.special import xlogy

from warmpot.transport import Status, UnbalancedSolution, solve_unbalanced

REGULARIZERS = st.sampled_from(["entropy", "kl"])
TOL = 1e-9


@st.composite
def problems(draw: st.DrawFn) -> dict[str, Any]:
    """Costs with ties, of any scale, weights with zeros and forbidden pairs."""
    n, m = draw(st.integers(1, 9)), draw(st.integers(1, 9))
    entries = st.integers(0, 8).map(float) | st.floats(0, 1) | st.just(np.inf)
    scale = draw(st.sampled_from([1.0, 7.0, 1e8, 1e-8]))
    cost = draw(hnp.arrays(float, (n, m), elements=entries)) * scale
    weights = st.integers(0, 4).map(float) | st.floats(0.01, 2)
    a, b = draw(hnp.arrays(float, n, elements=weights)), draw(hnp.arrays(float, m, elements=weights))
    assume(a.sum() > 0 and b.sum() > 0)
    eps = scale * draw(st.sampled_from([1e-3, 1e-2, 0.1, 1.0, 50.0]))
    tau = scale * draw(st.sampled_from([1e-4, 0.06, 1.0, 30.0, 1e4]))
    return {"cost": cost, "a": a, "b": b, "tau": tau, "eps": eps, "regularizer": draw(REGULARIZERS)}


def kl(x: np.ndarray, y: np.ndarray) -> float:
    x, y = x[y > 0], y[y > 0]
    return float((xlogy(x, x / y) - x + y).sum())


def primal(plan: np.ndarray, problem: dict[str, Any]) -> tuple[float, float]:
    """The objective, and the sum of the magnitudes of its parts."""
    cost, a, b = problem["cost"], problem["a"], problem["b"]
    entropy = (
        float((xlogy(plan, plan) - plan).sum()) if problem["regularizer"] == "entropy" else kl(plan, np.outer(a, b))
    )
    used = plan > 0
    parts = [plan[used] @ cost[used], problem["eps"] * entropy]
    parts += [problem["tau"] * kl(plan.sum(1), a), problem["tau"] * kl(plan.sum(0), b)]
    return sum(parts), sum(map(abs, parts)) + problem["eps"] * plan.sum() + problem["tau"] * (a.sum() + b.sum())


def dual(solution: UnbalancedSolution, problem: dict[str, Any]) -> float:
    a, b, tau, eps = (problem[k] for k in ("a", "b", "tau", "eps"))
    rows, cols = a > 0, b > 0
    f, g, a, b = solution.potentials.u[rows], solution.potentials.v[cols], a[rows], b[cols]
    reference = np.outer(a, b) if problem["regularizer"] == "kl" else np.ones((a.size, b.size))
    with np.errstate(invalid="ignore"):
        exponent = (f[:, None] + g - problem["cost"][np.ix_(rows, cols)]) / eps
    exponent[np.isnan(exponent)] = -np.inf  # a row or column all of whose pairs are forbidden
    plan = reference * np.exp(exponent)
    value = -tau * (a @ np.expm1(-f / tau) + b @ np.expm1(-g / tau)) - eps * plan.sum()
    return float(value + (eps * reference.sum() if problem["regularizer"] == "kl" else 0.0))


@given(problem=problems())
@settings(max_examples=300, deadline=None)
def test_solved_finite_and_certified(problem: Any) -> None:
    solution = solve_unbalanced(**problem, tol=TOL, throw=False)
    # Far above, the iterations may run out, which is reported.
    assume(solution.status.ok or problem["tau"] / problem["eps"] < 1e4 or np.isfinite(problem["cost"]).all())
    plan = solution.plan
    assert solution.status is Status.OPTIMAL
    assert np.isfinite(plan).all()
    assert plan.min() >= 0
    assert not plan[np.isinf(problem["cost"])].any()
    assert not np.isnan(solution.potentials.u).any()
    assert not np.isnan(solution.potentials.v).any()
    objective, scale = primal(plan, problem)
    assert solution.objective == pytest.approx(objective, abs=1e-11 * scale)
    assert solution.dual_value == pytest.approx(dual(solution, problem), abs=1e-11 * scale)
    assert solution.objective - solution.dual_value == pytest.approx(solution.gap, abs=1e-11 * scale)
    assert 0 <= solution.gap <= TOL * scale
    gain = (problem["eps"] + 2 * problem["tau"]) * plan.sum()
    assert solution.gap <= TOL * gain + 1e-200 * scale


def test_forbidden_pairs_with_heavy_marginals_are_solved() -> None:
    """Newton steps that halved the gap and others that raised the dual undid each other, for ever."""
    no = np.inf
    cost = np.array([[no, no, 0, no, no, 0, 0], [0, 0, no, no, 3, 0, 0], [0, no, 0, no, 0, 0, no]])
    solve_unbalanced(cost, a=[1, 1, 0.125], b=[0, 0, 0, 0, 2, 1, 2], tau=30.0, eps=1e-3, regularizer="entropy")


@given(problem=problems(), data=st.data())
@settings(max_examples=60, deadline=None)
def test_no_other_plan_is_better(problem: Any, data: st.DataObject) -> None:
    solution = solve_unbalanced(**problem)
    factors = data.draw(hnp.arrays(float, problem["cost"].shape, elements=st.integers(0, 8).map(lambda k: k / 4)))
    other, scale = primal(solution.plan * factors, problem)
    assert solution.dual_value <= other + 1e-11 * scale


def tolerance(plan: Any) -> float:
    """Relative to the mass, unless that is near the smallest float, where logarithms lose the digits."""
    return 1e-5 * max(float(plan.sum()), 1e-200)


@given(problem=problems())
@settings(max_examples=60, deadline=None)
def test_transposition(problem: Any) -> None:
    one = solve_unbalanced(**problem, tol=1e-14, throw=False)
    turned = problem | {"cost": problem["cost"].T, "a": problem["b"], "b": problem["a"]}
    other = solve_unbalanced(**turned, tol=1e-14, throw=False)
    np.testing.assert_allclose(one.plan, other.plan.T, rtol=0, atol=tolerance(one.plan))
    assert one.objective == pytest.approx(other.objective, abs=1e-11 * primal(one.plan, problem)[1])


@given(problem=problems(), data=st.data())
@settings(max_examples=60, deadline=None)
def test_permutation(problem: Any, data: st.DataObject) -> None:
    n, m = problem["cost"].shape
    rows, cols = data.draw(st.permutations(range(n))), data.draw(st.permutations(range(m)))
    one = solve_unbalanced(**problem, tol=1e-14, throw=False)
    moved = problem | {"cost": problem["cost"][rows][:, cols], "a": problem["a"][rows], "b": problem["b"][cols]}
    other = solve_unbalanced(**moved, tol=1e-14, throw=False)
    np.testing.assert_allclose(one.plan[rows][:, cols], other.plan, rtol=0, atol=tolerance(one.plan))
