"""The exact solver: a linear program on POT's network simplex, small problems whole, large ones by columns."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from warmpot._typing import FloatArray, IntArray
from warmpot.transport.certify import linear_cost, lower_bound
from warmpot.transport.columns import generate
from warmpot.transport.network import solve_arcs
from warmpot.transport.problem import Answer, PartialProblem, infeasible
from warmpot.transport.status import Status

__all__ = ["MAX_PIVOTS", "max_flow", "optimality", "snap_to_movable", "solve_exact", "to_feasible"]

MAX_PIVOTS = 10**9
ALL_ARCS = 10_000
"""Up to this many pairs every pair is an arc from the start; above, column generation is faster."""
BLOCK_ROWS = 512


class _Matrix:
    """A cost matrix as a `BlockCost`."""

    def __init__(self, cost: FloatArray) -> None:
        self.cost, self.shape = cost, (cost.shape[0], cost.shape[1])

    def block(self, rows: IntArray) -> FloatArray:
        if rows[-1] - rows[0] + 1 == rows.size:  # consecutive: a view is enough
            return self.cost[rows[0] : rows[-1] + 1]
        return self.cost[rows]


def solve_exact(problem: PartialProblem, *, tol: float = 1e-9, max_iter: int = MAX_PIVOTS) -> Answer:
    """Solve ``min <C, P>`` exactly.

    Parameters
    ----------
    problem : PartialProblem
        May hold forbidden pairs and zero weights.
    tol : float
        Gap, relative to the value, up to which the answer counts as optimal.
    max_iter : int
        Limit on simplex pivots (of each pricing round).
    """
    live = problem.live
    if live is not None:
        return problem.extend(solve_exact(problem.restrict(*live), tol=tol, max_iter=max_iter), *live)
    problem = snap_to_movable(problem)
    cost, a, b, mass = problem.cost, problem.a, problem.b, problem.mass
    detour = min(cost.shape) + 2 if problem.forbidden else 2
    if cost.size <= ALL_ARCS:
        rows, cols = np.nonzero(cost < np.inf)
        arc_cost = cost[rows, cols]
        span = float(np.ptp(arc_cost)) or 1.0
        slack_cost = float(arc_cost.min()) + detour * span
        plan, _, v, _, _, finished = solve_arcs(
            rows, cols, arc_cost, a, b, mass, slack_cost=slack_cost, max_iter=max_iter
        )
        rounds = 1
    else:
        plan, _, _, _, v, _, _, span, finished, rounds = generate(
            _Matrix(cost), a, b, mass, block_rows=BLOCK_ROWS, detour=detour, max_iter=max_iter, report=_silent
        )
    feasible = to_feasible(problem, plan.toarray())
    dual_value, u, t = lower_bound(problem, v)
    value = linear_cost(feasible, cost)
    status = optimality(value, dual_value, tol, mass * span, finished)
    return Answer(feasible, u, v, t, value, dual_value, status, rounds, mass)


def optimality(value: float, dual_value: float, tol: float, scale: float, finished: bool) -> Status:
    """Status of an exact solve: the gap must be within `tol` of the value, or rounding of costs of size `scale`."""
    if not finished:
        return Status.MAX_ITER
    return Status.OPTIMAL if value - dual_value <= tol * abs(value) + 1e-11 * scale else Status.ROUNDING


def max_flow(problem: PartialProblem) -> FloatArray:
    """Return a plan that moves as much mass as pairs of finite cost can carry."""
    rows, cols = np.nonzero(problem.cost < np.inf)
    limit = float(min(problem.a.sum(), problem.b.sum()))
    free = np.zeros(rows.size)
    flow = solve_arcs(rows, cols, free, problem.a, problem.b, limit, slack_cost=2.0, max_iter=MAX_PIVOTS)
    dense: FloatArray = flow.plan.toarray()
    return dense


def snap_to_movable(problem: PartialProblem) -> PartialProblem:
    """Compare the mass with what pairs of finite cost can move: snap it there up to rounding, raise beyond."""
    if not problem.forbidden:
        return problem
    movable = float(max_flow(problem).sum())
    if problem.mass > movable * (1 + 1e-9):
        raise infeasible(problem.mass, movable)
    return replace(problem, mass=min(problem.mass, movable))


def to_feasible(problem: PartialProblem, plan: FloatArray) -> FloatArray:
    """Round `plan`, which is overwritten; around forbidden pairs the missing mass goes along augmenting paths."""
    from warmpot.transport._path import augment_to
    from warmpot.transport._round import round_plan

    missing = round_plan(plan, problem.a, problem.b, problem.mass, not problem.forbidden)
    if problem.forbidden and missing > 1e-14 * problem.mass:
        allowed = np.where(problem.cost < np.inf, 0.0, np.inf)
        plan = augment_to(allowed, plan / problem.mass, problem.a / problem.mass, problem.b / problem.mass)
        plan *= problem.mass
    return plan


def _silent(share: float, text: str) -> None:
    """Report nothing."""
