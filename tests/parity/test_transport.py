"""Independent oracles: POT, scipy's linear programming, brute force."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import ot
import pytest
from scipy.optimize import linprog
from scipy.spatial.distance import cdist

from warmpot.transport import partial_path, solve_partial, solve_partial_points


def lp_value(cost: np.ndarray, a: np.ndarray, b: np.ndarray, mass: float) -> float:
    n, m = cost.shape
    rows = np.kron(np.eye(n), np.ones(m))
    cols = np.kron(np.ones(n), np.eye(m))
    found = linprog(
        cost.ravel(), A_ub=np.vstack([rows, cols]), b_ub=np.concatenate([a, b]), A_eq=np.ones((1, n * m)), b_eq=[mass]
    )
    assert found.success
    return float(found.fun)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("share", [0.05, 0.5, 0.999, 1.0])
def test_exact_equals_linear_programming(seed: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    n, m = rng.integers(1, 25, 2)
    cost, a, b = rng.random((n, m)) * 10, rng.random(n) + 0.1, rng.random(m) + 0.1
    mass = share * min(a.sum(), b.sum())
    assert solve_partial(cost, a, b, mass=mass).value == pytest.approx(
        lp_value(cost, a, b, mass * (1 - 1e-13)), rel=1e-8
    )


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("n", [40, 300])  # whole network; column generation
def test_exact_equals_pot(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    cost = cdist(rng.normal(size=(n, 5)), rng.normal(size=(n - 7, 5)) + 0.5)
    a, b = np.full(n, 1 / (0.35 * n)), np.full(n - 7, 1 / (n - 7))
    expected = ot.partial.partial_wasserstein2(a, b, cost, m=0.8)
    solution = solve_partial(cost, a, mass=0.8)
    assert solution.value == pytest.approx(expected, rel=1e-9)
    assert solution.gap <= 1e-9 * solution.value


@pytest.mark.parametrize("n", [7, 200, 220])
def test_full_mass_is_ordinary_transport(n: int) -> None:
    rng = np.random.default_rng(n)
    cost = rng.random((n, n))
    assert solve_partial(cost, mass=1.0).value == pytest.approx(ot.emd2([], [], cost), rel=1e-9)


def test_exact_equals_brute_force_matching() -> None:
    cost = np.random.default_rng(0).random((5, 5))
    for k in range(1, 6):  # mass k/5 with equal weights: the best matching of k pairs
        best = min(
            sum(cost[r, c] for r, c in zip(rows, cols, strict=True))
            for rows in permutations(range(5), k)
            for cols in permutations(range(5), k)
            if rows == tuple(sorted(rows))
        )
        assert solve_partial(cost, mass=k / 5).value == pytest.approx(best / 5)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("eps", [0.05, 0.5, 5.0])
def test_entropic_equals_pot(seed: int, eps: float) -> None:
    rng = np.random.default_rng(seed)
    n, m = 20, 15
    cost, a, b = rng.random((n, m)), np.full(n, 1 / (0.5 * n)), np.full(m, 1 / m)
    expected = ot.partial.entropic_partial_wasserstein(a, b, cost, eps, m=0.7, numItermax=100_000)
    solution = solve_partial(cost, a, mass=0.7, eps=eps, tol=1e-11)
    np.testing.assert_allclose(solution.plan, expected, atol=1e-8)


@pytest.mark.parametrize("n_s", [30, 700])
@pytest.mark.parametrize(("beta", "mass"), [(0.35, 0.8), (1.0, 1.0), (0.5, 1.0), (1.0, 0.1), (1.0, 0.97)])
def test_points_equal_the_dense_solver(n_s: int, beta: float, mass: float) -> None:
    rng = np.random.default_rng(n_s)
    xs, xt = rng.normal(size=(n_s, 8)), rng.normal(size=(n_s // 2, 8)) + 0.3
    dense = solve_partial(cdist(xs, xt), np.full(n_s, 1 / (beta * n_s)), mass=mass)
    points = solve_partial_points(xs, xt, beta=beta, mass=mass, max_memory=1e-3)
    assert points.value == pytest.approx(dense.value, rel=1e-9)
    assert points.gap <= 1e-9 * points.value
    assert points.residuals.worst <= 1e-12
    assert points.plan.multiply(cdist(xs, xt)).sum() == pytest.approx(dense.value, rel=1e-9)


def test_path_equals_linear_programming() -> None:
    rng = np.random.default_rng(3)
    cost, a, b = rng.random((9, 6)), rng.random(9) + 0.2, rng.random(6) + 0.2
    path = partial_path(cost, a, b)
    for share in np.linspace(0.05, 1, 20):
        mass = share * path.masses[-1]
        expected = lp_value(cost, a, b, mass * (1 - 1e-13))
        assert np.interp(mass, path.masses, path.values) == pytest.approx(expected, rel=1e-8)
