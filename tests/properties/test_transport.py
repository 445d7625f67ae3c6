"""The facts of docs/theory.md, Useful facts, on random problems, for numpy and torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from warmpot.transport import Solution, Status, certify, partial_path, round_to_feasible, solve_partial

Maker = Callable[[Any], Any]
SIDE = st.integers(1, 12)


@st.composite
def problems(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Cost (many ties, any scale and shift), weights (with zeros) and a feasible mass."""
    n, m = draw(SIDE), draw(SIDE)
    entries = st.integers(0, 8).map(float) | st.floats(0, 1)
    cost = draw(hnp.arrays(float, (n, m), elements=entries))
    scale = draw(st.sampled_from([1.0, 1e12, 1e-12, 7.0]))
    cost = cost * scale + draw(st.sampled_from([0.0, 1.0])) * scale
    weights = st.integers(0, 4).map(float) | st.floats(0.01, 2)
    a = draw(hnp.arrays(float, n, elements=weights))
    b = draw(hnp.arrays(float, m, elements=weights))
    assume(a.sum() > 0 and b.sum() > 0)
    share = draw(st.sampled_from([1.0, 1e-6, 0.5]) | st.floats(0.01, 1.0))
    return cost, a, b, share * min(a.sum(), b.sum())


@st.composite
def forbidding(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """A problem with forbidden pairs and a mass up to the very most that the others can move."""
    n, m = draw(st.integers(1, 7)), draw(st.integers(1, 7))
    cost = draw(hnp.arrays(float, (n, m), elements=st.integers(0, 8).map(float) | st.just(np.inf)))
    a = draw(hnp.arrays(float, n, elements=st.integers(0, 3).map(float)))
    b = draw(hnp.arrays(float, m, elements=st.integers(0, 3).map(float)))
    assume(a.sum() > 0 and b.sum() > 0)
    movable = partial_path(cost, a, b).masses[-1]
    assume(movable > 0)
    return cost, a, b, movable * draw(st.sampled_from([1.0, 1.0 + 5e-10, 1 - 1e-6, 0.999, 0.5]))


EPS = st.sampled_from([None, 1e-5, 1e-3, 0.05, 1.0, 100.0])


def solved(cost: Any, a: Any, b: Any, mass: float, eps: float | None) -> Solution[Any]:
    """Solve with eps relative to the cost range."""
    finite = np.asarray(cost)[np.isfinite(np.asarray(cost))]
    return solve_partial(cost, a, b, mass=mass, eps=None if eps is None else eps * (np.ptp(finite) or 1.0))


@given(problem=problems(), eps=EPS)
@settings(max_examples=300)
def test_feasible_finite_and_certified(problem: Any, eps: float | None) -> None:
    cost, a, b, mass = problem
    solution = solved(*problem, eps)
    plan, span = solution.plan, float(np.ptp(cost)) or 1.0
    assert np.isfinite(plan).all()
    assert (plan >= 0).all()
    assert (plan.sum(axis=1) <= a * (1 + 1e-12)).all()
    assert (plan.sum(axis=0) <= b * (1 + 1e-12)).all()
    assert plan.sum() == pytest.approx(mass, rel=1e-12)
    assert solution.residuals.worst <= 1e-12
    numbers = [solution.value, solution.objective, solution.dual_value, solution.gap, solution.slope]
    assert np.isfinite([*numbers, *solution.potentials.u, *solution.potentials.v]).all()
    assert (solution.potentials.u >= 0).all()
    assert (solution.potentials.v >= 0).all()
    scale = abs(cost).max() * mass
    assert 0 <= solution.gap <= 1e-9 * abs(solution.objective) + 2e-8 * mass * span + 1e-13 * scale
    np.testing.assert_allclose(solution.p, plan.sum(axis=1))
    np.testing.assert_allclose(solution.q, plan.sum(axis=0))


@given(problem=forbidding(), eps=st.sampled_from([None, 1e-4, 0.01, 0.1, 1.0]))
@settings(max_examples=300)
def test_forbidden_pairs_up_to_the_movable_mass(problem: Any, eps: float | None) -> None:
    cost, a, b, mass = problem
    span = float(np.ptp(cost[np.isfinite(cost)])) or 1.0
    s = solve_partial(cost, a, b, mass=mass, eps=None if eps is None else eps * span, throw=False)
    assert (s.plan >= 0).all()
    assert (s.plan[np.isinf(cost)] == 0).all()
    assert (s.p <= a * (1 + 1e-12)).all()
    assert (s.q <= b * (1 + 1e-12)).all()
    assert s.p.sum() == pytest.approx(mass, rel=1e-9)
    assert s.residuals.worst <= 1e-12
    # close to the movable mass the entropic solver may stall; it must say so
    path = partial_path(cost, a, b)
    assert s.status.ok or (eps is not None and s.status is Status.STALLED)
    if s.status.ok:
        assert s.gap <= 2e-7 * mass * span + 1e-9 * abs(s.objective)
    if eps is None:
        assert s.value == pytest.approx(np.interp(mass, path.masses, path.values), rel=1e-8, abs=1e-9)


@given(problem=problems())
@settings(max_examples=150)
def test_exact_dual_is_feasible_and_tight(problem: Any) -> None:
    cost, a, b, mass = problem
    s = solved(*problem, None)
    size = abs(cost).max() or 1.0
    assert (s.slope - s.potentials.u[:, None] - s.potentials.v <= cost + 1e-12 * size).all()
    dual = mass * s.slope - a @ s.potentials.u - b @ s.potentials.v
    assert dual == pytest.approx(s.value, rel=1e-9, abs=1e-11 * size * mass)


@given(problem=problems())
@settings(max_examples=60)
def test_equal_in_every_library(make: Maker, problem: Any) -> None:
    cost, a, b, mass = problem
    assume(cost.max() < 1e6)
    mine, wa, wb = make(cost), make(a), make(b)
    mass = 0.7 * float(min(wa.sum(), wb.sum()))
    for eps in (None, 0.1):
        s = solved(mine, wa, wb, mass, eps)
        reference = solved(np.asarray(mine, float), np.asarray(wa, float), np.asarray(wb, float), mass, eps)
        assert type(s.plan) is type(mine)
        assert s.plan.dtype == mine.dtype == s.p.dtype == s.potentials.u.dtype
        rtol = 1e-9 if "64" in str(mine.dtype) else 1e-5
        assert float(s.value) == pytest.approx(reference.value, rel=rtol, abs=rtol * cost.max() * mass)


@given(problem=problems(), eps=st.sampled_from([None, 0.05]), shift=st.floats(-3, 3), scale=st.floats(0.1, 50))
@settings(max_examples=80)
def test_shift_scale_and_permutation(make: Maker, problem: Any, eps: float | None, shift: float, scale: float) -> None:
    cost, a, b, mass = problem
    cost = cost / (abs(cost).max() or 1.0)
    e = None if eps is None else eps * (np.ptp(cost) or 1.0)
    mine, wa, wb = make(cost), make(a), make(b)
    mass = 0.8 * float(min(wa.sum(), wb.sum()))
    base = solve_partial(mine, wa, wb, mass=mass, eps=e)
    tol = {"rel": 1e-7, "abs": 1e-7 * mass} if "64" in str(mine.dtype) else {"rel": 1e-4, "abs": 1e-4 * mass}
    shifted = solve_partial(mine + shift, wa, wb, mass=mass, eps=e)
    assert float(shifted.value) == pytest.approx(float(base.value) + shift * mass, **tol)
    scaled = solve_partial(mine * scale, wa, wb, mass=mass, eps=None if e is None else e * scale)
    tol = {k: v * max(1.0, scale) for k, v in tol.items()}
    assert float(scaled.value) == pytest.approx(float(base.value) * scale, **tol)
    order = np.random.default_rng(0).permutation(cost.shape[0])
    permuted = solve_partial(mine[order], wa[order], wb, mass=mass, eps=e)
    assert float(permuted.value) == pytest.approx(float(base.value), **tol)
    if eps is not None:  # the entropic minimiser is unique, so the plan permutes too
        np.testing.assert_allclose(permuted.plan, base.plan[order], atol=tol["abs"] * 10)


@given(problem=problems())
@settings(max_examples=100)
def test_path_is_convex_and_equals_the_solver(problem: Any) -> None:
    cost, a, b, mass = problem
    masses, values, slopes = partial_path(cost, a, b)
    size = abs(cost).max() or 1.0
    assert masses[-1] == pytest.approx(min(a.sum(), b.sum()), rel=1e-9)
    assert (np.diff(slopes) > 0).all()
    assert (np.diff(masses) > 0).all()
    s = solved(cost, a, b, mass, None)
    assert s.value == pytest.approx(np.interp(mass, masses, values), rel=1e-9, abs=1e-11 * size * mass)
    # the dual t lies between the slopes on the two sides of the mass
    k = np.searchsorted(masses[1:], mass * (1 - 1e-9))
    after = np.searchsorted(masses[1:], mass * (1 + 1e-9))
    assert s.slope >= slopes[k] - 1e-9 * size
    if after < slopes.size:
        assert s.slope <= slopes[after] + 1e-9 * size


@given(problem=problems())
@settings(max_examples=60)
def test_entropic_value_tends_to_the_exact_one(problem: Any) -> None:
    exact, span = solved(*problem, None), float(np.ptp(problem[0]))
    entropic = solved(*problem, 1e-4)
    assert exact.value - 1e-9 * abs(exact.value) <= entropic.value + 1e-12 * span
    assert entropic.value <= exact.value + problem[3] * (1e-4 * 10 * (span or 1.0)) + 1e-9 * abs(exact.value)


@given(n=SIDE, m=SIDE, mass=st.floats(0.01, 1.0), seed=st.integers(0, 99))
@settings(max_examples=40)
def test_large_eps_gives_the_uniform_plan(make: Maker, n: int, m: int, mass: float, seed: int) -> None:
    cost = np.random.default_rng(seed).random((n, m))
    solution = solve_partial(make(cost), mass=mass, eps=1e9)
    np.testing.assert_allclose(solution.plan, np.full((n, m), mass / (n * m)), rtol=1e-5)


@given(n=SIDE, m=SIDE, seed=st.integers(0, 99))
@settings(max_examples=40)
def test_small_mass_takes_the_cheapest_cell(make: Maker, n: int, m: int, seed: int) -> None:
    cost = make(np.random.default_rng(seed).random((n, m)))
    solution = solve_partial(cost, mass=1e-4)
    expected = np.zeros((n, m))
    expected.flat[int(cost.argmin())] = 1e-4
    np.testing.assert_allclose(solution.plan, expected, rtol=1e-6, atol=1e-12)
    assert solution.slope == pytest.approx(float(cost.min()), rel=1e-6)


@given(
    plan=hnp.arrays(float, st.tuples(SIDE, SIDE), elements=st.floats(0, 1e3)),
    mass=st.floats(0.01, 1.0),
)
@settings(max_examples=100)
def test_rounding_makes_any_plan_feasible(make: Maker, plan: np.ndarray, mass: float) -> None:
    rounded = np.asarray(round_to_feasible(make(plan), None, None, mass), float)
    n, m = plan.shape
    slack = 1e-12 if "64" in str(make(plan).dtype) else 1e-5
    assert (rounded >= 0).all()
    assert (rounded.sum(axis=1) <= (1 + slack) / n).all()
    assert (rounded.sum(axis=0) <= (1 + slack) / m).all()
    assert rounded.sum() == pytest.approx(mass, rel=slack)
    again = np.asarray(round_to_feasible(rounded, None, None, mass))
    np.testing.assert_allclose(again, rounded, rtol=10 * slack, atol=slack)


@given(problem=problems(), eps=st.sampled_from([None, 0.1]))
@settings(max_examples=60)
def test_certificate_equals_the_solvers_own(problem: Any, eps: float | None) -> None:
    cost, a, b, mass = problem
    size = abs(cost).max() or 1.0
    s, exact = solved(*problem, eps), solved(*problem, None)
    full = certify(s.plan, cost, a, b, mass)
    assert full.feasible
    assert full.gap == pytest.approx(s.value - exact.value, rel=1e-6, abs=1e-10 * size * mass)
    cheap = certify(s.plan, cost, a, b, mass, potentials=s.potentials)
    assert cheap.dual_value <= exact.value + 1e-10 * size * mass
