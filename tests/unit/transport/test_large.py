"""Whole data sets by blocks: points, user costs, progress; float32 points are not copied."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from scipy.spatial.distance import cdist

from warmpot import _progress
from warmpot.errors import InfeasibleError, InputError
from warmpot.transport import Status, columns, large, solve_partial, solve_partial_points
from warmpot.transport.columns import ColumnGeneration
from warmpot.transport.large import FIRST_PASSES, EuclideanBlocks, _announcing

RNG = np.random.default_rng(0)


def test_points_accept_any_cost_on_blocks() -> None:
    rng = np.random.default_rng(6)
    xs, labels = rng.normal(size=(90, 4)), rng.integers(0, 3, 90)
    xt, loss = rng.normal(size=(40, 4)), rng.random((40, 3))

    def joint(s: np.ndarray, t: np.ndarray) -> np.ndarray:
        return 0.5 * cdist(s[:, :4], t[:, :4]) + 7 * t[:, 4:].T[s[:, 4].astype(int)]

    source, target = np.column_stack([xs, labels]), np.column_stack([xt, loss])
    points = solve_partial_points(source, target, beta=0.35, mass=0.8, cost=joint, max_memory=1e-5)
    dense = solve_partial(joint(source, target), np.full(90, 1 / (0.35 * 90)), mass=0.8)
    assert points.value == pytest.approx(dense.value, rel=1e-9)
    assert sp.issparse(points.plan)


@pytest.mark.parametrize("level", [0.0, 3.5e29, -3.5e29])
def test_equal_costs_of_any_size(level: float) -> None:
    x, equal = RNG.random((20, 2)), lambda s, t: np.full((len(s), len(t)), level)
    solution = solve_partial_points(x[:8], x, beta=0.35, mass=0.8, cost=equal)
    assert solution.value == pytest.approx(0.8 * level)
    cost = np.full((8, 20), level)
    cost[0, 0] = np.inf
    assert solve_partial(cost, mass=0.8).value == pytest.approx(0.8 * level)


def test_points_resolve_coincident_samples() -> None:
    # |x|^2 + |y|^2 - 2xy loses half of the digits where two samples coincide
    rng = np.random.default_rng(7)
    xs = rng.normal(size=(300, 16)) * 1e3 + 1e4
    xt = xs[:100]
    s = solve_partial_points(xs, xt, beta=1.0 / 3, mass=1.0)
    assert s.value == 0.0
    np.testing.assert_allclose(s.p[:100], 1 / 100)


@pytest.mark.parametrize("scale", [1e-140, 1e140])
def test_points_of_any_scale(scale: float) -> None:
    rng = np.random.default_rng(10)
    xs, xt = rng.normal(size=(40, 3)), rng.normal(size=(30, 3))
    unit = solve_partial_points(xs, xt, beta=0.5, mass=0.8).value
    assert solve_partial_points(xs * scale, xt * scale, beta=0.5, mass=0.8).value == pytest.approx(unit * scale)


def test_points_leave_out_samples_without_weight() -> None:
    rng = np.random.default_rng(11)
    xs, xt = rng.normal(size=(30, 3)), rng.normal(size=(20, 3))
    a, b = rng.random(30), rng.random(20)
    a[:5], b[:4] = 0, 0
    s = solve_partial_points(xs, xt, a=a, b=b, mass=3.0)
    assert s.value == pytest.approx(solve_partial(cdist(xs, xt), a, b, mass=3.0).value, rel=1e-9)
    assert s.p[:5].sum() == s.q[:4].sum() == 0


def test_points_with_torch_come_back_in_torch() -> None:
    torch.manual_seed(0)  # cdist in float32 rounds differently by block: with some seeds the gap is above tol
    xs, xt = torch.rand(50, 3), torch.rand(20, 3)
    s = solve_partial_points(xs, xt, beta=0.5, mass=0.9)
    assert s.p.dtype == torch.float32
    called = solve_partial_points(xs, xt, beta=0.5, mass=0.9, cost=torch.cdist)
    assert called.value == pytest.approx(s.value, rel=1e-5)


def test_points_unfinished_say_so() -> None:
    rng = np.random.default_rng(0)
    xs, xt = rng.random((80, 2)), rng.random((50, 2))
    s = solve_partial_points(xs, xt, beta=1, mass=0.9, max_iter=3, throw=False)
    assert s.status is Status.MAX_ITER
    assert s.residuals.worst <= 1e-12
    assert s.value == pytest.approx((s.plan.toarray() * cdist(xs, xt)).sum(), rel=1e-12)
    assert s.objective == s.value
    assert s.gap > 0


@pytest.mark.parametrize("max_iter", [1, 3, 20])
def test_few_pivots_around_forbidden_pairs_give_a_feasible_plan(max_iter: int) -> None:
    """Only the diagonal and its neighbours are allowed: the full mass leaves no choice but the diagonal."""
    cost = np.full((40, 40), np.inf)
    for k in (0, 1):
        np.fill_diagonal(cost[:, k:], float(k))

    def band(rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
        return cost[np.ix_(rows, cols)]

    x = np.arange(40)
    s = solve_partial_points(x, x, beta=1, mass=1.0, cost=band, max_iter=max_iter, throw=False)
    np.testing.assert_allclose(s.plan.toarray(), np.eye(40) / 40)
    with pytest.raises(InfeasibleError):  # the mass is refused because of the pairs, not because of the pivots
        solve_partial_points(x, x[1:], beta=1, mass=1.0, cost=lambda r, c: band(r, c * 0), max_iter=max_iter)


def test_points_log_progress_off_a_terminal(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("warmpot._progress.LINE_EVERY_SECONDS", -1.0)
    with caplog.at_level(logging.INFO, "warmpot"):
        solve_partial_points(np.random.rand(50, 2), np.random.rand(20, 2), beta=1, mass=0.5, max_memory=1e-6)  # noqa: NPY002
    assert any("exact plan: 100% pricing, round 1" in line for line in caplog.messages)


def test_a_long_solve_logs_the_expected_time_once_blocks_are_measured(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The first block may load compiled code, and the second one may have to wait: 1 s per block.
    seconds = iter([100.0, 101.9, 103.0])
    monkeypatch.setattr("warmpot.transport.large.time.monotonic", lambda: next(seconds))
    report = _announcing(lambda *_: None, (200_000, 20_000))
    with caplog.at_level(logging.INFO, "warmpot"):
        for share in (0.01, 0.011, 0.04, 0.05):
            report(share, "")
    pass_seconds = 3.0 / 0.03
    expected = _progress.format_duration(FIRST_PASSES * pass_seconds)
    assert caplog.messages == [f"exact plan: 200,000 x 20,000 pairs, about {expected}"]


def test_short_solves_do_not_log_an_expected_time(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "warmpot"):
        solve_partial_points(np.eye(30), np.eye(30), beta=1, mass=0.5, max_memory=1e-6)
    assert not caplog.messages


# --- a plan that is close enough ---------------------------------------------------------------


def test_a_larger_tolerance_ends_earlier_with_the_error_proven() -> None:
    rng = np.random.default_rng(1)
    xs, xt = rng.normal(size=(900, 12)), rng.normal(size=(300, 12)) * 0.8 + 0.5
    exact = solve_partial_points(xs, xt, beta=0.4, mass=1.0)
    close = solve_partial_points(xs, xt, beta=0.4, mass=1.0, tol=0.05)
    assert close.status is Status.OPTIMAL
    assert close.n_iter < exact.n_iter
    assert close.value <= exact.value + close.gap
    assert close.gap <= 0.05 * close.value
    assert close.plan.sum() == pytest.approx(1.0, rel=1e-12)
    assert close.potentials is not None
    cost = np.linalg.norm(xs[:, None] - xt[None], axis=2)
    assert (cost + close.potentials.u[:, None] + close.potentials.v - close.slope).min() > -1e-9


# --- any plan ----------------------------------------------------------------------------------


def test_points_in_float32_are_not_copied_and_give_what_float64_gives() -> None:
    rng = np.random.default_rng(0)
    xs, xt = rng.normal(size=(300, 5)).astype(np.float32), rng.normal(size=(120, 5)).astype(np.float32) + 1
    given = xs.copy()
    coarse = solve_partial_points(xs, xt, beta=0.4, mass=0.7)
    fine = solve_partial_points(xs.astype(np.float64), xt.astype(np.float64), beta=0.4, mass=0.7)
    assert coarse.value == pytest.approx(fine.value, rel=1e-13)
    assert np.asarray(coarse.p).dtype == np.float32
    assert np.array_equal(xs, given)
    assert EuclideanBlocks(xs, xt).xs is xs


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_points_in_float32_are_checked(bad: float) -> None:
    xs, xt = np.ones((4, 2), np.float32), np.ones((3, 2), np.float32)
    with pytest.raises(InputError, match="columns"):
        solve_partial_points(xs, np.ones((3, 3), np.float32), beta=0.5, mass=0.5)
    xs[1, 0] = bad
    with pytest.raises(InputError, match="xs"):
        solve_partial_points(xs, xt, beta=0.5, mass=0.5)


@pytest.mark.parametrize("offset", [0.0, 1e3])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_bounds_in_float32_are_below_the_distances_and_close(
    monkeypatch: pytest.MonkeyPatch, offset: float, dtype: type
) -> None:
    monkeypatch.setattr(large, "MANY", 1)
    rng = np.random.default_rng(5)
    xs, xt = (10 * rng.normal(size=(n, 40)).astype(dtype) + offset for n in (70, 30))
    xs[:5] = xt[:5]  # distance 0
    blocks, distances = EuclideanBlocks(xs, xt), cdist(xs.astype(float), xt.astype(float))
    bounds = blocks.rough_block(np.arange(70))
    assert bounds is not None
    assert bounds.dtype == np.float32
    assert (bounds <= distances).all()
    far = distances > 1
    assert (distances - bounds)[far].max() <= 1e-4 * distances.max()
    rows, cols = np.arange(70), np.arange(70) % 30
    np.testing.assert_allclose(blocks.pairs(rows, cols), distances[rows, cols], atol=1e-9)


def test_a_plan_found_through_bounds_in_float32_is_the_exact_one(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(8)
    xs, xt = rng.normal(size=(600, 8)).astype(np.float32), rng.normal(size=(90, 8)).astype(np.float32) + 0.5
    for mass in (0.3, 1.0):
        exact = solve_partial_points(xs, xt, beta=0.4, mass=mass)
        with monkeypatch.context() as patched:
            patched.setattr(large, "MANY", 1)
            rough = solve_partial_points(xs, xt, beta=0.4, mass=mass)
        assert rough.status is Status.OPTIMAL
        assert rough.gap <= 1e-9
        assert rough.value == pytest.approx(exact.value, rel=1e-12)
        np.testing.assert_allclose(rough.plan.toarray(), exact.plan.toarray(), atol=1e-12)


def test_mass_that_is_lost_to_rounding_is_no_reason_for_detours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums over ten thousand rows round by more than 1e-12; another solve with costs of long detours is less exact."""
    detours, solve, trim = [], ColumnGeneration.solve, columns.trim_sparse

    def recorded(self: ColumnGeneration, mass: float, *, detour: int, **settings: Any) -> Any:
        detours.append(detour)
        return solve(self, mass, detour=detour, **settings)

    monkeypatch.setattr(ColumnGeneration, "solve", recorded)
    monkeypatch.setattr(columns, "trim_sparse", lambda *args: (trim(*args)[0], 2e-12))
    rng = np.random.default_rng(0)
    solution = solve_partial_points(rng.random((40, 3)), rng.random((30, 3)), beta=0.5, mass=0.5)
    assert solution.status is Status.OPTIMAL
    assert detours == [2]
