"""The exact solver for cost matrices: small problems on POT's dense network simplex, large ones by columns."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from warmpot._checks import LARGEST
from warmpot._typing import FloatArray
from warmpot.transport.certify import linear_cost, lower_bound
from warmpot.transport.columns import FINISHED, ColumnGeneration, MatrixCost, solve_arcs
from warmpot.transport.problem import Answer, PartialProblem, Status, infeasible

__all__ = [
    "ALL_ARCS",
    "MAX_PIVOTS",
    "columns_of",
    "movable_mass",
    "optimality",
    "snap_to_movable",
    "solve_dense",
    "solve_exact",
    "to_feasible",
]

MAX_PIVOTS = 10**9
ALL_ARCS = 40_000  # up to this many pairs every pair is an arc from the start; above, column generation is faster
BLOCK_ROWS = 512


class _DenseFlow(NamedTuple):
    """Flow between rows and columns, the reservoirs last, over the mass; v, the mass, the range of the costs."""

    flow: FloatArray
    v: FloatArray
    mass: float
    span: float
    finished: bool


def solve_dense(cost: FloatArray, a: FloatArray, b: FloatArray, mass: float, max_iter: int) -> _DenseFlow | None:
    """Move `mass` over all pairs; None unless costs are finite, weights positive, and the mass can be moved.

    For small problems: a matrix with the reservoirs as a row and a column is set up faster than a list of arcs.
    """
    from warmpot.transport._exact_small import set_network
    from warmpot.transport._simplex import emd_c

    n, m = cost.shape
    low, high = float(cost.min()), float(cost.max())
    if not -LARGEST <= low <= high <= LARGEST:
        return None
    span = high - low or 1.0
    supply, demand, start, price = np.empty(n + 1), np.empty(m + 1), np.empty(m + 1), np.empty((n + 1, m + 1))
    mass = set_network(cost, low, span, a, b, mass, supply, demand, price, start)
    if mass == 0.0:
        return None
    flow, _, alpha, beta, code = emd_c(supply, demand, price, max_iter, 1)
    beta = beta[:m] + start[:m]
    v = -beta - (alpha[n] + start[m]) if supply[n] > 0.0 else beta.max() - beta
    # A column that gets something from the reservoir has room: exactly 0, as rounding counts where room is far above
    # the mass.
    v = np.where((flow[n, :m] > 0.0) | (v <= 0.0), 0.0, v * span)
    return _DenseFlow(flow, v, mass, span, code == FINISHED)


def solve_exact(problem: PartialProblem, *, tol: float = 1e-9, max_iter: int = MAX_PIVOTS) -> Answer:
    """Solve ``min <C, P>``; `tol` is relative to the value, `max_iter` limits the pivots (of each pricing round)."""
    live = problem.live
    if live is not None:
        return problem.extend(solve_exact(problem.restrict(*live), tol=tol, max_iter=max_iter), *live)
    problem = snap_to_movable(problem)
    cost, a, b, mass = problem.cost, problem.a, problem.b, problem.mass
    detour = min(cost.shape) + 2 if problem.forbidden else 2
    rounds = 1
    dense = solve_dense(cost, a, b, mass, max_iter) if cost.size <= ALL_ARCS else None
    if dense is not None:
        plan, v, span, finished = dense.flow[: a.size, : b.size] * mass, dense.v, dense.span, dense.finished
    elif cost.size <= ALL_ARCS:
        rows, cols = np.nonzero(cost < np.inf)
        arcs = (rows, cols, cost[rows, cols])
        low = float(arcs[2].min())
        span = float(np.ptp(arcs[2])) or max(1.0, abs(low))
        flow = solve_arcs(arcs, a, b, mass, low + detour * span, max_iter)
        plan, v, finished = flow.plan.toarray(), flow.v, flow.finished
    else:
        result = columns_of(cost, a, b, mass).solve(mass, tol=tol, detour=detour, max_iter=max_iter)
        plan, v, span, finished, rounds = result.plan.toarray(), result.v, result.span, result.finished, result.rounds
    feasible = to_feasible(problem, plan)
    dual_value, u, t = lower_bound(problem, v)
    value = linear_cost(feasible, cost)
    status = optimality(value, dual_value, tol, mass * span, finished)
    return Answer(feasible, u, v, t, value, dual_value, status, rounds, mass)


def columns_of(cost: FloatArray, a: FloatArray, b: FloatArray, mass: float) -> ColumnGeneration:
    """Return the solver by columns for masses up to `mass`; it reports no progress."""

    def silent(share: float, text: str, expected: float = 0.0) -> None:
        pass

    by_row = mass > a.sum() / 2
    return ColumnGeneration(MatrixCost(cost), a, b, block_rows=BLOCK_ROWS, report=silent, by_row=by_row)


def optimality(value: float, dual_value: float, tol: float, scale: float, finished: bool) -> Status:
    """Status of an exact solve: the gap must be within `tol` of the value, or rounding of costs of size `scale`."""
    if not finished:
        return Status.MAX_ITER
    return Status.OPTIMAL if value - dual_value <= tol * abs(value) + 1e-11 * scale else Status.ROUNDING


def snap_to_movable(problem: PartialProblem) -> PartialProblem:
    """Compare the mass with what pairs of finite cost can move: snap it there up to rounding, raise beyond."""
    if not problem.forbidden:
        return problem
    movable = movable_mass(problem.cost, problem.a, problem.b)
    if problem.mass > movable * (1 + 1e-9):
        raise infeasible(problem.mass, movable)
    return replace(problem, mass=min(problem.mass, movable))


def movable_mass(cost: FloatArray, a: FloatArray, b: FloatArray) -> float:
    """Return the largest mass that pairs of finite cost can move."""
    rows, cols = np.nonzero(cost < np.inf)
    arcs, limit = (rows, cols, np.zeros(rows.size)), float(min(a.sum(), b.sum()))
    most = solve_arcs(arcs, a, b, limit, slack_cost=2.0, max_iter=MAX_PIVOTS)
    return float(most.plan.data.sum())


def to_feasible(problem: PartialProblem, plan: FloatArray) -> FloatArray:
    """Round `plan`, which is overwritten; around forbidden pairs the missing mass goes along augmenting paths."""
    from warmpot.transport._kernels import EMPTY, augment_to, round_plan

    mass = problem.mass
    missing = round_plan(plan, problem.a, problem.b, mass, not problem.forbidden)
    if problem.forbidden and missing > 1e-14 * mass:
        allowed, flow = np.where(problem.cost < np.inf, 0.0, np.inf), np.ascontiguousarray(plan.T / mass)
        rooms = problem.a / mass - flow.sum(axis=0), problem.b / mass - flow.sum(axis=1)
        augment_to(allowed, flow, *(np.where(room > EMPTY, room, 0.0) for room in rooms), 1.0 - float(flow.sum()))
        plan = np.ascontiguousarray(flow.T) * mass
    return plan
