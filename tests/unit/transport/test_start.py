"""Starting from the dual variables of a similar problem: the same answers, in fewer rounds, from any start."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warmpot.errors import InputError
from warmpot.transport import Duals, Solution, solve_partial, solve_partial_blocks
from warmpot.transport.columns import MatrixCost


def similar_costs(n: int, m: int) -> tuple[MatrixCost, MatrixCost]:
    """Costs, and others that are similar."""
    rng = np.random.default_rng(0)
    cost = rng.uniform(size=(n, m))
    return MatrixCost(cost), MatrixCost(cost + 0.1 * rng.uniform(size=(n, m)))


def duals(solution: Solution) -> Duals:
    return Duals(*solution.potentials, solution.slope)


@pytest.mark.parametrize("mass", [0.3, 0.9, 1.0])
def test_same_answer_in_fewer_rounds(mass: float) -> None:
    cost, similar = similar_costs(400, 150)
    start = duals(solve_partial_blocks(cost, beta=0.4, mass=0.7))
    cold, warm = (solve_partial_blocks(similar, beta=0.4, mass=mass, start=s) for s in (None, start))
    np.testing.assert_allclose(warm.plan.toarray(), cold.plan.toarray(), atol=1e-12)
    assert warm.status.ok
    assert warm.n_iter <= cold.n_iter
    # one pass for the columns, one for the proof
    assert solve_partial_blocks(cost, beta=0.4, mass=0.7, start=start).n_iter == 2


@given(st.integers(0, 2**32 - 1), st.floats(1e-3, 1.0), st.floats(0.0, 1e3))
def test_any_start_ends_in_a_certified_plan(seed: int, mass: float, size: float) -> None:
    rng = np.random.default_rng(seed)
    cost = rng.uniform(size=rng.integers(1, 12, size=2))
    cost[rng.uniform(size=cost.shape) < 0.2] = 0.5  # ties
    n, m = cost.shape
    start = Duals(size * rng.normal(size=n), size * rng.normal(size=m), size * float(rng.normal()))
    warm = solve_partial_blocks(MatrixCost(cost), beta=1.0, mass=mass, start=start)
    assert warm.value == pytest.approx(solve_partial(cost, mass=mass).value, abs=1e-9)
    assert warm.residuals.worst <= 1e-12
    assert warm.gap <= 1e-9


def test_forbidden_pairs() -> None:
    cost, similar = similar_costs(60, 30)
    for matrix in (cost.cost, similar.cost):
        matrix[np.random.default_rng(1).uniform(size=matrix.shape) < 0.7] = np.inf
    start = duals(solve_partial_blocks(cost, beta=0.5, mass=0.6))
    warm, cold = (solve_partial_blocks(similar, beta=0.5, mass=0.7, start=s) for s in (start, None))
    np.testing.assert_allclose(warm.plan.toarray(), cold.plan.toarray(), atol=1e-12)


def test_samples_without_capacity_are_left_out() -> None:
    cost, similar = similar_costs(90, 40)
    start = duals(solve_partial_blocks(cost, beta=0.5, mass=0.8))
    a = np.where(np.arange(90) < 60, 2.0 / 90, 0.0)
    warm, cold = (solve_partial_blocks(similar, a=a, mass=0.8, start=s) for s in (start, None))
    np.testing.assert_allclose(warm.plan.toarray(), cold.plan.toarray(), atol=1e-12)


@pytest.mark.parametrize(("n", "value"), [(3, 0.0), (90, np.nan)])
def test_a_start_of_other_samples_is_refused(n: int, value: float) -> None:
    start = Duals(np.zeros(n), np.full(40, value), 0.0)
    with pytest.raises(InputError, match="start"):
        solve_partial_blocks(similar_costs(90, 40)[0], beta=1.0, mass=0.5, start=start)
