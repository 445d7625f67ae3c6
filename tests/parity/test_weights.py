"""Independent oracles for weights from scores: general convex solvers, linear programming, a root-find, transport."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import brentq, linprog, minimize

from warmpot.transport import solve_partial
from warmpot.weights import capped_weights, chi2_ball_weights, plan_weights


def by_slsqp(d: np.ndarray, rho: float) -> np.ndarray:
    """Solve for n * w from equal weights, without a word about the form of the optimum."""
    n = len(d)
    found = minimize(
        lambda w: w @ d / n,
        np.ones(n),
        jac=lambda w: d / n,
        bounds=[(0, None)] * n,
        constraints=[
            {"type": "eq", "fun": lambda w: w.sum() / n - 1, "jac": lambda w: np.full(n, 1 / n)},
            {"type": "ineq", "fun": lambda w: rho - ((w - 1) ** 2).mean(), "jac": lambda w: -2 * (w - 1) / n},
        ],
        options={"ftol": 1e-15, "maxiter": 1000},
    )
    assert found.status in (0, 8), found.message  # 8: no descent left in float64
    return np.asarray(found.x / n)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("rho", [0.01, 0.3, 1.0, 5.0])
def test_ball_equals_a_convex_solver(seed: int, rho: float) -> None:
    rng = np.random.default_rng(seed)
    d = rng.normal(size=rng.integers(8, 30))
    if seed % 2:
        d = np.abs(d).round(1)  # ties and a pile at the bottom
    np.testing.assert_allclose(chi2_ball_weights(d, rho), by_slsqp(d, rho), rtol=0, atol=1e-9)


@pytest.mark.parametrize("rho", [1e-4, 0.7, 5.0, 300.0])
@pytest.mark.parametrize("kind", ["normal", "heavy", "binary"])
def test_ball_equals_a_root_find_for_many_samples(kind: str, rho: float) -> None:
    rng = np.random.default_rng(3)
    d = {"normal": rng.normal(size=50_000), "heavy": rng.standard_cauchy(50_000), "binary": rng.random(50_000) < 0.999}
    x, n = d[kind].astype(float), 50_000

    def excess(tau: float) -> float:
        v = np.maximum(tau - x, 0)
        return n * float(v @ v) / float(v.sum()) ** 2 - 1 - rho

    low = float(x.min())
    tau = brentq(excess, low + 1e-9 * np.ptp(x), low + 1e4 * np.ptp(x), xtol=1e-300, rtol=1e-15, maxiter=1000)
    v = np.maximum(tau - x, 0)
    np.testing.assert_allclose(chi2_ball_weights(x, rho) * n, v / v.sum() * n, rtol=0, atol=1e-8)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("beta", [1.0, 0.6, 1 / 3, 0.1, 0.01])
def test_cap_equals_linear_programming(seed: int, beta: float) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 40))
    tied = seed % 2 == 1
    d = rng.integers(0, 4, n).astype(float) if tied else rng.normal(size=n)
    found = linprog(d, A_eq=np.ones((1, n)), b_eq=[1.0], bounds=(0, 1 / (beta * n)))
    assert found.success
    w = capped_weights(d, beta)
    assert w @ d == pytest.approx(found.fun, abs=1e-9)
    assert w.sum() == pytest.approx(1, abs=1e-12)
    assert w.min() >= 0
    assert w.max() <= 1 / (beta * n)
    if not tied:
        np.testing.assert_allclose(w, found.x, rtol=0, atol=1e-9)


@pytest.mark.parametrize("beta", [1.0, 0.7, 0.35, 0.02])
def test_cap_equals_a_plan_to_a_single_target(beta: float) -> None:
    n = 41
    d = np.random.default_rng(0).random(n)
    plan = solve_partial(d[:, None], np.full(n, 1 / (beta * n)), np.ones(1), mass=1.0).plan
    np.testing.assert_allclose(capped_weights(d, beta), plan_weights(plan), rtol=0, atol=1e-12)
