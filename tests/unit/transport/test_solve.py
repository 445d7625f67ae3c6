"""Single facts about `solve_partial` and `solve_partial_batch`."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

from warmpot.errors import InfeasibleError, InputError, NotConvergedError
from warmpot.transport import (
    Status,
    partial_path,
    round_to_feasible,
    solve_partial,
    solve_partial_batch,
    solve_partial_points,
    solve_unbalanced,
    step_plan,
)
from warmpot.transport.entropic_torch import solve_entropic_torch
from warmpot.transport.problem import PartialProblem
from warmpot.transport.solve import _solve

RNG = np.random.default_rng(0)
EPS_LADDER = [1e-5, 1e-4, 1e-2, 1.0, 1e4]


# --- mass at and above its maximum -------------------------------------------------------------


@pytest.mark.parametrize("eps", [None, 0.1])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_mass_is_snapped_to_the_maximum(eps: float | None, dtype: type) -> None:
    n = 13
    b = np.full(n, 1 / n, dtype)  # sums to 1 only up to rounding
    solution = solve_partial(RNG.random((n, n)), None, b, mass=1.0 + 1e-12, eps=eps)
    assert solution.status is Status.OPTIMAL
    assert solution.plan.sum() == pytest.approx(min(1.0, float(b.astype(float).sum())), rel=1e-12)


def test_potentials_of_columns_far_above_the_mass_are_exactly_zero() -> None:
    cost = np.zeros((3, 8))
    cost[:, 0] = 1.0, 1e-13, 2.0
    solution = solve_partial(cost, np.ones(3), np.ones(8), mass=3e-6)  # times a capacity, their rounding would be a gap
    assert solution.gap == solution.value == 0.0


@pytest.mark.parametrize("mass", [1e-6, 1e-4, 1e-2])
@pytest.mark.parametrize("seed", range(5))
def test_costs_of_many_sizes_and_a_small_mass_have_a_tight_bound(seed: int, mass: float) -> None:
    cost = 10 ** np.random.default_rng(seed).uniform(-6, 0, (20, 25))
    solution = solve_partial(cost, mass=mass)
    assert solution.gap <= 1e-12 * solution.value


def test_full_mass_fills_every_column() -> None:
    n = 49
    solution = solve_partial(RNG.random((n, n)), np.full(n, 1 / (0.35 * n)), mass=1.0)
    np.testing.assert_allclose(solution.q, 1 / n, rtol=1e-12)


# --- extremes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
@pytest.mark.parametrize("eps", [None, *EPS_LADDER])
@pytest.mark.parametrize("mass", [1e-8, 0.5, 0.8, 1.0 - 1e-9, 1.0])
@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (9, 1), (20, 15)])
def test_extremes_are_feasible_and_quiet(scale: float, eps: float | None, mass: float, shape: tuple[int, int]) -> None:
    cost = np.random.default_rng(1).random(shape) * scale
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        s = solve_partial(cost, mass=mass, eps=None if eps is None else eps * scale)
    assert s.residuals.worst <= 1e-12
    assert np.isfinite(s.plan).all()
    assert s.gap <= 1e-8 * scale * mass + 1e-9 * abs(s.objective)


@pytest.mark.parametrize("eps", [None, *EPS_LADDER])
def test_constant_cost(eps: float | None) -> None:
    s = solve_partial(np.full((4, 6), 3.0), mass=0.6, eps=eps)
    assert s.value == pytest.approx(1.8)
    assert s.residuals.worst <= 1e-12


@pytest.mark.parametrize("eps", [None, *EPS_LADDER[1:]])
def test_forbidden_pairs_carry_nothing(eps: float | None) -> None:
    rng = np.random.default_rng(5)
    cost = rng.random((8, 8))
    cost[rng.random((8, 8)) < 0.6] = np.inf
    most = partial_path(cost).masses[-1]
    for mass in (0.5 * most, 0.95 * most):
        s = solve_partial(cost, mass=mass, eps=eps)
        assert (s.plan[np.isinf(cost)] == 0).all()
        assert s.residuals.worst <= 1e-12
        assert np.isfinite([s.value, s.objective, s.dual_value, s.gap]).all()
    exact = solve_partial(cost, mass=most)
    assert exact.value == pytest.approx(partial_path(cost).values[-1])
    assert exact.gap <= 1e-9 * exact.value


def test_newton_frees_what_it_held_too_early() -> None:
    # a column held at potential 0 whose constraint the step would break: sweeps then crawled to a stall, gap 0.024
    cost = np.array(
        [
            [4, 0, 0, 0, np.inf, 3, 4],
            [np.inf, 0, 0, 0, 0, np.inf, 3],
            [np.inf, 0, 0, np.inf, np.inf, np.inf, 1],
            [1, 0, np.inf, np.inf, np.inf, 0, 2],
            [4, 7, 0, np.inf, 2, np.inf, np.inf],
            [np.inf, 0, 0, np.inf, np.inf, 0, np.inf],
        ]
    )
    a, b = np.array([2.0, 2, 2, 2, 3, 1]), np.array([3.0, 1, 1, 1, 1, 2, 3])
    s = solve_partial(cost, a, b, mass=11.988, eps=0.07)
    assert s.n_iter < 300
    assert s.gap < 1e-6


def test_forbidden_pairs_at_dataset_scale() -> None:
    rng = np.random.default_rng(2)
    cost = rng.random((150, 140))
    cost[rng.random(cost.shape) < 0.97] = np.inf
    path = partial_path(cost)
    for mass in (path.masses[-1], 0.7 * path.masses[-1]):
        s = solve_partial(cost, mass=mass)
        assert s.value == pytest.approx(np.interp(mass, path.masses, path.values), rel=1e-9)


def test_degenerate_mass_converges_at_small_eps() -> None:
    # mass = exactly 52 of 65 columns: Newton steps used to stop at a bound forever
    cost = np.random.default_rng(0).random((65, 65))
    s = solve_partial(cost, np.full(65, 1 / (0.35 * 65)), mass=0.8, eps=1e-4)
    assert s.status is Status.OPTIMAL
    assert s.n_iter < 5000


def test_nearly_full_mass_converges_at_small_eps() -> None:
    # both rows are full but for 1e-5 of their mass: their potentials have thousands of eps to shift
    s = solve_partial(np.array([[0.0], [1.0]]), np.ones(2), np.full(1, 2.0), mass=1.99998, eps=1e-5)
    assert s.status is Status.OPTIMAL
    np.testing.assert_allclose(s.p, [1.0, 0.99998], rtol=1e-9)
    square = solve_partial(np.array([[0.0, 0.0], [0.0, 1.0]]), np.ones(2), np.ones(2), mass=1.99998, eps=1e-5)
    assert square.status is Status.OPTIMAL


def test_entropic_reports_its_iterations_and_stops_early_when_easy() -> None:
    cost = RNG.random((30, 30))
    easy, hard = solve_partial(cost, mass=0.5, eps=10.0), solve_partial(cost, mass=0.5, eps=1e-3)
    assert 0 < easy.n_iter < hard.n_iter < 2000


# --- status ------------------------------------------------------------------------------------


@pytest.mark.parametrize("eps", [None, 1e-3])
def test_too_few_iterations_raise_or_report(eps: float | None) -> None:
    cost = RNG.random((100, 90))
    with pytest.raises(NotConvergedError, match="max_iter") as caught:
        solve_partial(cost, mass=0.9, eps=eps, max_iter=4)
    solution = caught.value.solution
    assert solution.status is Status.MAX_ITER
    assert "raise max_iter" in solution.status.remedy
    reported = solve_partial(cost, mass=0.9, eps=eps, max_iter=4, throw=False)
    assert reported.status is Status.MAX_ITER
    assert reported.gap > 1e-6
    assert reported.residuals.worst <= 1e-12  # rounded all the same
    assert "MAX_ITER" in repr(reported)


# --- gradients ---------------------------------------------------------------------------------


@pytest.mark.parametrize("eps", [None, 0.05, 1.0])
def test_gradient_of_the_objective_is_the_plan(eps: float | None) -> None:
    rng = np.random.default_rng(4)
    cost = torch.tensor(rng.random((7, 5)), requires_grad=True)
    s = solve_partial(cost, mass=0.6, eps=eps)
    assert not s.plan.requires_grad
    (gradient,) = torch.autograd.grad(s.objective, cost)
    np.testing.assert_allclose(gradient, s.plan)
    h = 1e-5
    for i, j in [(0, 0), (3, 2), (6, 4)]:
        bump = np.zeros((7, 5))
        bump[i, j] = h
        up = solve_partial(cost.detach().numpy() + bump, mass=0.6, eps=eps, tol=1e-12).objective
        down = solve_partial(cost.detach().numpy() - bump, mass=0.6, eps=eps, tol=1e-12).objective
        assert (up - down) / (2 * h) == pytest.approx(float(gradient[i, j]), abs=1e-6)


def test_gradient_of_the_value_is_the_plan_despite_forbidden_pairs() -> None:
    cost = torch.rand(6, 6, dtype=torch.float64)
    cost[0, :3] = torch.inf
    cost.requires_grad_()
    s = solve_partial(cost, mass=0.5)
    s.value.backward()
    np.testing.assert_allclose(cost.grad, s.plan)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int64])
def test_dtypes_come_back(dtype: torch.dtype) -> None:
    cost = (torch.rand(6, 5) * 10).to(dtype)
    s = solve_partial(cost, mass=0.5)
    expected = torch.float64 if dtype is torch.int64 else dtype
    assert s.plan.dtype == s.p.dtype == s.value.dtype == s.potentials.v.dtype == expected


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_results_that_the_dtype_cannot_hold_are_refused_with_its_limits(dtype: torch.dtype) -> None:
    limits = torch.finfo(dtype)
    cost, weights = (torch.tensor([[0.5, 1.0], [1.0, 0.5]]) * limits.max).to(dtype), np.full(2, 4.0)
    for eps in (None, 1e3 * limits.max):
        with pytest.raises(InputError, match=f"{dtype} for results up to") as caught:
            solve_partial(cost, weights, weights, mass=8.0, eps=eps)
        assert caught.value.allowed == f"numbers up to {limits.max:g} in that dtype"
    with pytest.raises(InputError, match="for results up to"):
        solve_unbalanced(cost, a=weights, b=weights, tau=1e3 * limits.max, eps=1e2 * limits.max)
    with pytest.raises(InputError, match=r"for a plan of mass .* after rounding"):
        solve_partial(cost, mass=1e-3 * limits.smallest_normal * limits.eps)
    with pytest.raises(InputError, match=r"for a plan of mass .* after rounding"):
        round_to_feasible(cost * 0, None, None, 1e-3 * limits.smallest_normal * limits.eps)
    fits = solve_partial(cost, mass=1.0)
    assert float(fits.value) == pytest.approx(limits.max / 2, rel=0.02)
    assert torch.isfinite(fits.potentials.u).all()


@pytest.mark.parametrize("cost", [np.array([[0.0, 1e-310]]), np.array([[0.0, 1e-140], [1e-150, 0.0]])])
@pytest.mark.parametrize("eps", [1e-3, 1e100, 1e150])
def test_eps_far_above_the_costs(cost: np.ndarray, eps: float) -> None:
    for scale in (1.0, 1e88, 1e-88):
        a, b = (np.full(k, scale / k) for k in cost.shape)
        s = solve_partial(cost, a, b, mass=0.7 * scale, eps=eps)
        np.testing.assert_allclose(s.plan, np.full(cost.shape, 0.7 * scale / cost.size))
        assert np.isfinite([s.objective, s.dual_value, s.gap, s.slope, *s.potentials.u, *s.potentials.v]).all()


# --- batches -----------------------------------------------------------------------------------


@pytest.mark.parametrize("eps", [None, 0.01, 0.3])
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_batch_equals_the_loop(eps: float | None, library: str) -> None:
    costs = np.random.default_rng(8).random((5, 20, 12))
    a = np.random.default_rng(9).random((5, 20)) + 0.1
    given = torch.tensor(costs) if library == "torch" else costs
    batch = solve_partial_batch(given, a, mass=0.8, eps=eps)
    assert len(batch) == 5
    for k in range(5):
        one = solve_partial(given[k], a[k], mass=0.8, eps=eps)
        np.testing.assert_allclose(batch.plan[k], one.plan, atol=1e-9)
        assert float(batch.value[k]) == pytest.approx(float(one.value), rel=1e-9)
        assert batch[k].gap == batch.gap[k] == one.gap
        assert batch[k].status is Status.OPTIMAL


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_a_batch_may_mix_problems_of_the_compiled_path_with_others(library: str) -> None:
    costs = np.random.default_rng(8).random((4, 6, 5))
    costs[1, 0, :2], costs[3] = np.inf, 2.0  # forbidden pairs; all costs equal
    given = torch.tensor(costs) if library == "torch" else costs
    batch = solve_partial_batch(given, mass=0.5, eps=0.05)
    for k in range(4):
        one = solve_partial(costs[k], mass=0.5, eps=0.05)
        np.testing.assert_allclose(batch.plan[k], one.plan, atol=1e-12)
        assert float(batch.objective[k]) == pytest.approx(one.objective, rel=1e-12)
        assert (batch[k].gap, batch[k].residuals, batch[k].n_iter) == (one.gap, one.residuals, one.n_iter)


@pytest.mark.parametrize("name", ["value", "objective"])
def test_the_plans_are_the_gradients_of_a_batch(name: str) -> None:
    costs = torch.tensor(np.random.default_rng(8).random((3, 6, 5)), requires_grad=True)
    batch = solve_partial_batch(costs, mass=0.5, eps=0.1)
    (getattr(batch, name) * torch.tensor([1.0, 2.0, 3.0])).sum().backward()
    assert costs.grad is not None
    np.testing.assert_allclose(costs.grad, batch.plan * torch.tensor([1.0, 2.0, 3.0])[:, None, None], rtol=1e-12)


@pytest.mark.parametrize("shape", [(20, 12), (12, 20), (1, 7), (65, 65)])
@pytest.mark.parametrize("eps", [1e-4, 0.01, 0.3, 50.0])
@pytest.mark.parametrize("mass", [0.05, 0.77, 1.0])
def test_device_solver_equals_the_cpu_solver(shape: tuple[int, int], eps: float, mass: float) -> None:
    rng = np.random.default_rng(3)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    a = np.full(shape[0], 1 / (0.35 * shape[0]))
    a[: shape[0] // 4] = 0
    problems = [PartialProblem.checked(rng.random(shape) * s, a, None, mass) for s in (1.0, 30.0, 0.0)]
    answers = solve_entropic_torch(problems, eps, tol=1e-9, max_iter=100_000, device=device)
    for problem, answer in zip(problems, answers, strict=True):
        reference = _solve(problem, eps, 1e-9, 100_000)
        assert answer.status is Status.OPTIMAL
        assert answer.objective == pytest.approx(reference.objective, rel=1e-9, abs=1e-9)
        if mass < 1.0:  # at the maximum t is not unique
            assert answer.t == pytest.approx(reference.t, rel=1e-6, abs=1e-6)
        np.testing.assert_allclose(answer.plan, reference.plan, atol=1e-8)
        assert answer.objective - answer.dual_value <= 1e-7


def test_device_solver_sees_what_the_cpu_solver_sees() -> None:
    cost = np.array([[1.0, 2.0], [np.inf, np.inf]])
    settings = {"eps": 0.1, "tol": 1e-9, "max_iter": 1000, "device": "cpu"}
    with pytest.raises(InfeasibleError) as caught:
        solve_entropic_torch([PartialProblem.checked(cost, None, None, 0.9)], **settings)
    assert caught.value.movable == pytest.approx(0.5)
    problem = PartialProblem.checked(cost, None, None, 0.5 * (1 + 5e-10))  # snapped
    answer, reference = solve_entropic_torch([problem], **settings)[0], _solve(problem, 0.1, 1e-9, 1000)
    np.testing.assert_allclose(answer.plan, reference.plan, atol=1e-9)
    with pytest.raises(InputError, match="eps"):
        solve_entropic_torch([problem], **{**settings, "eps": 1e-13})


def test_exact_batch_leaves_warnings_alone() -> None:
    before = list(warnings.filters)
    for _ in range(5):
        solve_partial_batch(RNG.random((16, 12, 12)), mass=0.8)
    assert list(warnings.filters) == before


@pytest.mark.parametrize("share", [1e-3, 1e-5, 1e-7])
@pytest.mark.parametrize("eps", [1e-2, 1e-4, 1e-5])
def test_nearly_full_mass_converges(share: float, eps: float) -> None:
    # at small eps the plan falls apart into pairs whose potentials drift freely; annealing alone got lost there
    for seed in range(5):
        s = solve_partial(np.random.default_rng(seed).random((20, 20)), mass=1 - share, eps=eps)
        assert s.gap <= 1e-7
        assert s.n_iter < 10_000


def test_printing_a_differentiable_solution_is_quiet() -> None:
    assert "OPTIMAL" in repr(solve_partial(torch.rand(3, 3, requires_grad=True), mass=0.5))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine")
def test_cuda_stays_on_the_device() -> None:
    cost = torch.rand(3, 30, 20, device="cuda")
    batch = solve_partial_batch(cost, mass=0.5, eps=0.1)
    assert batch.plan.device == cost.device


@pytest.mark.parametrize("eps", [None, 0.1])
def test_beta_gives_every_row_the_same_capacity(eps: float | None) -> None:
    xs, xt = RNG.random((12, 2)), RNG.random((7, 2))
    cost = np.linalg.norm(xs[:, None] - xt, axis=2)
    solution = solve_partial(cost, beta=0.4, mass=0.8, eps=eps)
    np.testing.assert_array_equal(
        solution.plan, solve_partial(cost, np.full(12, 1 / (0.4 * 12)), mass=0.8, eps=eps).plan
    )
    np.testing.assert_array_equal(solve_partial_batch(cost[None], beta=0.4, mass=0.8, eps=eps)[0].plan, solution.plan)
    if eps is None:
        points = solve_partial_points(xs, xt, beta=0.4, mass=0.8)
        assert solution.value == pytest.approx(points.value, rel=1e-12)
        path = partial_path(cost, beta=0.4)
        assert np.interp(0.8, path.masses, path.values) == pytest.approx(solution.value, rel=1e-9)


def test_beta_and_capacities_exclude_each_other() -> None:
    for solve in (solve_partial, lambda cost, a, **kind: partial_path(cost, a, beta=kind["beta"])):
        with pytest.raises(InputError, match=r"beta: got 0\.5 and a; allowed: one of beta and a"):
            solve(np.eye(2), np.ones(2), beta=0.5, mass=0.5)
    with pytest.raises(InputError, match=r"beta: got 1\.5"):
        solve_partial(np.eye(2), beta=1.5, mass=0.5)


@pytest.mark.parametrize("eps", [7.0, 0.5, None])
def test_the_plan_of_a_step_is_that_of_the_solution(eps: float | None) -> None:
    cost = torch.rand(20, 15, dtype=torch.float32, generator=torch.Generator().manual_seed(0)) * 10
    a = np.full(20, 0.1)
    step, whole = step_plan(cost, a, mass=0.8, eps=eps), solve_partial(cost, a, mass=0.8, eps=eps)
    assert step.status is whole.status
    assert step.plan.dtype == torch.float32
    assert torch.equal(step.plan, whole.plan)


@pytest.mark.parametrize("eps", [None, 0.3])
@pytest.mark.parametrize("mass", [0.3, 1.0, 1])
def test_ordinary_problems_have_the_answer_of_the_general_solver(mass: float, eps: float | None) -> None:
    cost = np.random.default_rng(0).random((30, 20)) * 10 - 2
    whole = solve_partial(cost, beta=0.4, mass=mass, eps=eps)
    listed = solve_partial(cost.tolist(), beta=0.4, mass=mass, eps=eps)  # not a plain array: checked one by one
    assert np.allclose(whole.plan, listed.plan, atol=1e-9)
    assert np.allclose(whole.potentials.v, listed.potentials.v, atol=1e-6)
    for name in ("value", "objective", "dual_value", "slope"):
        assert getattr(whole, name) == pytest.approx(getattr(listed, name), abs=1e-7)
    assert np.array_equal(whole.p, whole.plan.sum(axis=1)) or np.allclose(whole.p, whole.plan.sum(axis=1), rtol=1e-14)
    assert whole.residuals.worst < 1e-14
    assert 0 <= whole.gap < 1e-6


def test_arrays_that_may_not_be_written_to_use_the_same_kernels() -> None:
    from warmpot.transport import _entropic_whole, _exact_small

    kernels = (_entropic_whole.solve_many, _exact_small.set_network, _exact_small.set_plan)
    cost, a = np.random.default_rng(0).random((8, 6)), np.full(8, 0.2)
    for eps in (None, 0.3, 1e-4):
        solve_partial(cost, a, mass=0.5, eps=eps)
    before = [len(f.signatures) for f in kernels]
    cost.flags.writeable = a.flags.writeable = False
    for eps in (None, 0.3, 1e-4):
        solve_partial(cost, a, mass=0.5, eps=eps)
    assert [len(f.signatures) for f in kernels] == before


def test_potentials_prove_the_dual_value_where_weights_are_tiny() -> None:
    """The kernel of a row of tiny weight was 0, so that its constraint seemed to hold for any potential."""
    cost, a, eps = np.array([[0.915], [0.0955], [0.0792]]), np.array([1.0, 1.03e-25, 5.97e-79]), 0.01436
    solution = solve_partial(cost, a, mass=0.5, eps=eps)
    u, v = solution.potentials
    spent = eps * np.exp((solution.slope - u[:, None] - v - cost) / eps).sum()
    assert 0.5 * solution.slope - a @ u - v.sum() - spent == pytest.approx(solution.dual_value, rel=1e-9)
