"""Single facts about `solve_unbalanced`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from warmpot.errors import InputError, NotConvergedError
from warmpot.transport import Status, solve_unbalanced

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("cost", [-0.3, 0.0, 0.5, 10.0, 25.0])
@pytest.mark.parametrize("regularizer", ["entropy", "kl"])
def test_one_pair_by_hand(cost: float, regularizer: str) -> None:
    """M + eps log(P / r) + tau log(P / a) + tau log(P / b) = 0."""
    a, b, tau, eps = 2.0, 0.7, 0.06, 0.01
    reference = a * b if regularizer == "kl" else 1.0
    log_plan = (eps * np.log(reference) + tau * np.log(a * b) - cost) / (eps + 2 * tau)
    solution = solve_unbalanced(
        np.array([[cost]]), a=np.array([a]), b=np.array([b]), tau=tau, eps=eps, regularizer=regularizer, tol=1e-15
    )
    assert solution.plan[0, 0] == pytest.approx(np.exp(log_plan), rel=1e-6)
    assert solution.potentials.u[0] == pytest.approx(-tau * (log_plan - np.log(a)), rel=1e-6)
    assert solution.value == pytest.approx(cost * np.exp(log_plan), rel=1e-6)


def test_a_small_tau_leaves_the_kernel() -> None:
    cost = RNG.random((6, 9)) * 3
    plain = solve_unbalanced(cost, tau=1e-9, eps=0.5).plan
    np.testing.assert_allclose(plain, np.exp(-cost / 0.5), rtol=1e-6)
    relative = solve_unbalanced(cost, tau=1e-9, eps=0.5, regularizer="kl").plan
    np.testing.assert_allclose(relative, np.exp(-cost / 0.5) / 54, rtol=1e-6)


def test_regularizers_move_different_masses() -> None:
    """With the entropy the reference is 1, not 1 / (n m): more mass moves at JUMBOT's constants."""
    cost = 0.75 * RNG.random((65, 65))
    entropy = solve_unbalanced(cost, tau=0.06, eps=0.01)
    relative = solve_unbalanced(cost, tau=0.06, eps=0.01, regularizer="kl")
    assert entropy.p.sum() > 1.1 * relative.p.sum()


def test_totals_may_differ() -> None:
    """A large tau then gives every row and column the geometric mean of the totals: KL(p | a) + KL(q | b) is least."""
    solution = solve_unbalanced(RNG.random((3, 4)), a=np.full(3, 1.0), b=np.full(4, 3.0), tau=1e6, eps=0.1)
    assert solution.p.sum() == pytest.approx(6.0, rel=1e-4)


@pytest.mark.parametrize(
    ("tau", "eps"), [(1e6, 0.01), (1e3, 1e-3), (100.0, 1e-5), (1e8, 1e8), (1e-8, 1e-6), (1.0, 1e8)]
)
@pytest.mark.parametrize("regularizer", ["entropy", "kl"])
def test_hard_settings_are_solved(tau: float, eps: float, regularizer: str) -> None:
    cost = np.random.default_rng(5).random((40, 30)) * 10
    assert solve_unbalanced(cost, tau=tau, eps=eps, regularizer=regularizer).status is Status.OPTIMAL


@pytest.mark.parametrize("size", [1e8, 1e9])
def test_huge_costs_move_nothing(size: float) -> None:
    cost = size * (1 + RNG.random((4, 5)))
    solution = solve_unbalanced(cost, tau=0.06, eps=0.01)
    assert not solution.plan.any()
    assert solution.objective == pytest.approx(2 * 0.06)
    assert solution.gap == 0
    assert np.isfinite(solution.potentials.u).all()


@pytest.mark.parametrize("size", [1e18, 1e30, 1e150])
def test_costs_that_float64_cannot_resolve_at_this_eps_are_refused(size: float) -> None:
    with pytest.raises(InputError, match="1e-12 of the costs"):
        solve_unbalanced(np.full((1, 2), size), tau=1.0, eps=1.0, throw=False)


def test_weights_far_below_the_rest_have_a_finite_dual_value() -> None:
    """exp(-f / tau) is beyond float64 where the weight is tiny; their product is not."""
    cost, a = np.full((3, 2), 1e-8), np.array([5e-324, 1e-149, 1e-45])
    for regularizer in ("entropy", "kl"):
        solution = solve_unbalanced(cost, a=a, tau=0.001, eps=0.1, regularizer=regularizer)
        assert solution.dual_value == pytest.approx(solution.objective, rel=1e-6)


def test_one_huge_cost_among_small_ones() -> None:
    cost = RNG.random((5, 5))
    cost[1, 2] = 1e8
    huge = solve_unbalanced(cost, tau=0.06, eps=0.01, tol=1e-14)
    cost[1, 2] = np.inf
    forbidden = solve_unbalanced(cost, tau=0.06, eps=0.01, tol=1e-14)
    assert huge.plan[1, 2] == 0
    np.testing.assert_allclose(huge.plan, forbidden.plan, rtol=1e-6)


def test_rows_that_cannot_move() -> None:
    cost = RNG.random((4, 3))
    cost[1] = np.inf
    solution = solve_unbalanced(cost, a=np.array([0.5, 0.3, 0.0, 0.2]), tau=0.5, eps=0.1)
    assert not solution.plan[1:3].any()
    assert solution.potentials.u[1] == np.inf
    assert solution.potentials.u[2] == -np.inf
    small = solve_unbalanced(cost[[0, 3]], a=np.array([0.5, 0.2]), tau=0.5, eps=0.1)
    np.testing.assert_allclose(solution.plan[[0, 3]], small.plan, rtol=1e-12)
    assert solution.objective == pytest.approx(small.objective + 0.5 * 0.3)  # tau a_1 for what stays behind


def test_nothing_can_move() -> None:
    solution = solve_unbalanced(np.full((2, 3), np.inf), tau=2.0, eps=0.1, regularizer="kl")
    assert not solution.plan.any()
    assert solution.objective == pytest.approx(2 * 2.0 + 0.1)
    assert solution.dual_value == pytest.approx(solution.objective)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_torch_comes_back_and_the_gradient_is_the_plan(dtype: torch.dtype) -> None:
    cost = torch.rand(6, 4, dtype=dtype, generator=torch.Generator().manual_seed(0)).requires_grad_()
    solution = solve_unbalanced(cost, tau=0.5, eps=0.1)
    assert solution.plan.dtype is solution.p.dtype is solution.potentials.u.dtype is solution.value.dtype is dtype
    assert not solution.plan.requires_grad
    for paid in (solution.value, solution.objective):
        (gradient,) = torch.autograd.grad(paid, cost, retain_graph=True)
        torch.testing.assert_close(gradient, solution.plan)
    expected = solve_unbalanced(cost.detach().double().numpy(), tau=0.5, eps=0.1)
    assert float(solution.objective.detach()) == pytest.approx(expected.objective, rel=1e-6)
    assert repr(solution).startswith("UnbalancedSolution(6 x 4, OPTIMAL")


def test_the_objective_is_differentiated_by_the_plan() -> None:
    """Envelope theorem, against finite differences."""
    cost, step = RNG.random((4, 3)), 1e-5
    plan = solve_unbalanced(cost, tau=0.5, eps=0.1, tol=1e-15).plan
    ends = []
    for sign in (1, -1):
        moved = cost.copy()
        moved[2, 1] += sign * step
        ends.append(solve_unbalanced(moved, tau=0.5, eps=0.1, tol=1e-15).objective)
    assert (ends[0] - ends[1]) / (2 * step) == pytest.approx(plan[2, 1], rel=1e-5)


def test_numpy_float32_comes_back() -> None:
    solution = solve_unbalanced(RNG.random((3, 3)).astype(np.float32), tau=1.0, eps=0.1)
    assert solution.plan.dtype == solution.q.dtype == np.float32


def test_out_of_iterations() -> None:
    cost = RNG.random((20, 20))
    with pytest.raises(NotConvergedError, match="max_iter") as caught:
        solve_unbalanced(cost, tau=100.0, eps=1e-3, max_iter=3)
    assert caught.value.solution.status is Status.MAX_ITER
    solution = solve_unbalanced(cost, tau=100.0, eps=1e-3, max_iter=3, throw=False)
    assert solution.gap > 0
    assert np.isfinite(solution.plan).all()


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("tau", {"tau": 0.0}),
        ("tau", {"tau": np.inf}),
        ("tau", {"tau": 1e14}),
        ("eps", {"eps": -1.0}),
        ("eps", {"eps": 1e-14}),
        ("tol", {"tol": 0.0}),
        ("max_iter", {"max_iter": 0}),
        ("divergence", {"divergence": "l2"}),
        ("regularizer", {"regularizer": "l2"}),
        ("cost", {"cost": np.array([[np.nan]])}),
        ("cost", {"cost": np.array([[-1e6, 0.0]])}),  # a mass of exp(1e6)
        ("cost", {"cost": np.zeros((0, 2))}),
        ("a", {"a": np.ones(7)}),
        ("b", {"b": -np.ones(3)}),
    ],
)
def test_bad_input_is_named(name: str, change: dict[str, Any]) -> None:
    arguments = {"cost": RNG.random((2, 3)), "tau": 1.0, "eps": 0.1} | change
    with pytest.raises(InputError, match=f"^{name}: "):
        solve_unbalanced(arguments.pop("cost"), **arguments)
