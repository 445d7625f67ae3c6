"""Independent oracles of the unbalanced solver: POT and a general-purpose optimiser."""

from __future__ import annotations

import numpy as np
import ot
import pytest
from scipy.optimize import minimize

from warmpot.transport import solve_unbalanced


def instance(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    n, m = rng.integers(2, 12, 2)
    return rng.random((n, m)) * 2, rng.random(n) + 0.1, rng.random(m) + 0.1


@pytest.mark.filterwarnings("ignore:If reg_type = entropy")
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("regularizer", ["entropy", "kl"])
@pytest.mark.parametrize(("tau", "eps"), [(0.06, 0.05), (1.0, 0.1), (5.0, 1.0)])
@pytest.mark.parametrize("method", ["sinkhorn", "sinkhorn_stabilized"])
def test_equals_pot(seed: int, regularizer: str, tau: float, eps: float, method: str) -> None:
    cost, a, b = instance(seed)
    expected = ot.unbalanced.sinkhorn_unbalanced(
        a, b, cost, eps, tau, method=method, reg_type=regularizer, numItermax=20_000, stopThr=1e-14
    )
    solution = solve_unbalanced(cost, a=a, b=b, tau=tau, eps=eps, regularizer=regularizer, tol=1e-15)
    np.testing.assert_allclose(solution.plan, expected, rtol=1e-6, atol=1e-9 * expected.sum())


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("regularizer", ["entropy", "kl"])
def test_equals_a_general_optimiser(seed: int, regularizer: str) -> None:
    """L-BFGS on the primal, over the logarithm of the plan."""
    cost, a, b = instance(seed)
    tau, eps = 0.4, 0.2
    reference = np.outer(a, b)

    def kl(x: np.ndarray, y: np.ndarray) -> float:
        return float((x * np.log(x / y) - x + y).sum())

    def objective(z: np.ndarray) -> tuple[float, np.ndarray]:
        plan = np.exp(z.reshape(cost.shape))
        p, q = plan.sum(1), plan.sum(0)
        if regularizer == "kl":
            smooth, slope = kl(plan, reference), np.log(plan / reference)
        else:
            smooth, slope = float((plan * (np.log(plan) - 1)).sum()), np.log(plan)
        value = float((plan * cost).sum()) + eps * smooth + tau * (kl(p, a) + kl(q, b))
        gradient = cost + eps * slope + tau * (np.log(p / a)[:, None] + np.log(q / b))
        return value, (plan * gradient).ravel()

    options = {"maxiter": 20_000, "maxfun": 50_000, "ftol": 1e-16, "gtol": 1e-12}
    found = minimize(objective, np.log(reference).ravel(), jac=True, method="L-BFGS-B", options=options)
    solution = solve_unbalanced(cost, a=a, b=b, tau=tau, eps=eps, regularizer=regularizer)
    assert solution.objective == pytest.approx(found.fun, rel=1e-8)
    np.testing.assert_allclose(solution.plan, np.exp(found.x).reshape(cost.shape), atol=1e-4 * solution.plan.sum())


def test_a_confident_target_where_the_kernel_underflows() -> None:
    """JUMBOT's constants, a column of costs near 10: exp(-10 / 0.01) is 0, yet the plan is not."""
    rng = np.random.default_rng(0)
    cost = 0.75 * rng.random((6, 5))
    cost[:, 2] = 10 + 0.1 * rng.random(6)
    cost[4] = 8.0
    solution = solve_unbalanced(cost, tau=0.06, eps=0.01, tol=1e-15)
    kernel = np.exp(-cost / 0.01)
    assert not kernel[:, 2].any()
    assert (solution.plan[:, 2] > 0).all()

    def negative_dual(z: np.ndarray) -> tuple[float, np.ndarray]:
        f, g = z[:6], z[6:]
        plan = np.exp((f[:, None] + g - cost) / 0.01)
        want_p, want_q = np.exp(-f / 0.06) / 6, np.exp(-g / 0.06) / 5
        value = 0.06 * (want_p.sum() + want_q.sum()) + 0.01 * plan.sum()
        return value, np.concatenate([plan.sum(1) - want_p, plan.sum(0) - want_q])

    found = minimize(negative_dual, np.zeros(11), jac=True, method="L-BFGS-B", options={"gtol": 1e-14, "ftol": 1e-16})
    assert solution.dual_value == pytest.approx(2 * 0.06 - found.fun, rel=1e-9)
    assert solution.objective == pytest.approx(solution.dual_value, rel=1e-12)


@pytest.mark.parametrize("regularizer", ["entropy", "kl"])
def test_a_large_tau_is_balanced_transport(regularizer: str) -> None:
    rng = np.random.default_rng(1)
    cost, a, b = rng.random((7, 5)), rng.dirichlet(np.ones(7)), rng.dirichlet(np.ones(5))
    solution = solve_unbalanced(cost, a=a, b=b, tau=1e8, eps=0.02, regularizer=regularizer, tol=1e-13)
    expected = ot.sinkhorn(a, b, cost, 0.02, method="sinkhorn_log", numItermax=100_000, stopThr=1e-13)
    np.testing.assert_allclose(solution.p, a, rtol=1e-6)
    np.testing.assert_allclose(solution.q, b, rtol=1e-6)
    np.testing.assert_allclose(solution.plan, expected, atol=1e-7)
