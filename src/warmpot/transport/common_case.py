"""Ordinary problems, solved with few calls from Python: entropic ones, and small exact ones.

Ordinary are plain arrays of finite numbers, positive weights, a mass that can be moved and an eps that is not small
compared with the range of the costs. All else, errors included, is left to the checks and the solvers of `solve`.
"""

from __future__ import annotations

import os
import sys
from itertools import pairwise
from threading import Thread
from typing import Any, NamedTuple

import numpy as np

from warmpot._checks import LARGEST
from warmpot._interop import Kind, is_torch, kind_of, to_numpy
from warmpot._typing import FloatArray, IntArray
from warmpot.transport.certify import FEASIBLE, bound_from, in_callers_kind
from warmpot.transport.exact import ALL_ARCS, optimality, solve_dense
from warmpot.transport.problem import BatchSolution, Potentials, Residuals, Solution, Status, residuals_of, writable

__all__ = ["solve_common", "solve_common_batch", "solve_common_exact", "solve_common_plan"]

PARTS = 4  # into which a batch is cut, per core: problems differ in time


class _Inputs(NamedTuple):
    """Costs and weights of rows and of columns, with a leading axis for the problems, and the mass; in float64."""

    costs: FloatArray
    a: FloatArray
    b: FloatArray
    mass: float


class _Solved(NamedTuple):
    """What the compiled solver returns for problems of one shape, in float64."""

    costs: FloatArray
    plans: FloatArray
    potentials: FloatArray
    sums: FloatArray
    facts: FloatArray
    counts: IntArray


def solve_common(
    cost: Any, a: Any, b: Any, beta: Any, mass: Any, eps: float, tol: float, max_iter: int
) -> Solution[Any] | None:
    """Solve an ordinary problem; None for others. The arguments are those of `solve_partial`."""
    solved = _solve_one(cost, a, b, beta, mass, eps, tol, max_iter)
    if solved is None:
        return None
    n = solved.costs.shape[1]
    facts, sums, potential = solved.facts[0].tolist(), solved.sums[0], solved.potentials[0]
    potentials = Potentials(potential[:n], potential[n:])
    return _solution(cost, solved.costs[0], solved.plans[0], sums, potentials, facts, int(solved.counts[0]))


def solve_common_exact(
    cost: Any, a: Any, b: Any, beta: Any, mass: Any, tol: float, max_iter: int
) -> Solution[Any] | None:
    """Solve an ordinary exact problem that is small; None for others. The arguments are those of `solve_partial`."""
    from warmpot.transport._exact_small import set_plan

    inputs = _plain_inputs(_plain_cost(cost), a, b, beta, mass)
    if inputs is None or inputs.costs.size > ALL_ARCS:
        return None
    values, wa, wb = inputs.costs[0], inputs.a[0], inputs.b[0]
    dense = solve_dense(values, wa, wb, inputs.mass, max_iter)
    if dense is None or not dense.finished:
        return None
    n, moved, v = wa.size, dense.mass, dense.v
    plan, sums, lowest = np.empty(values.shape), np.empty(n + wb.size), np.empty(n)
    value = set_plan(dense.flow, values, moved, v, plan, sums, lowest)
    residuals = residuals_of(sums[:n], sums[n:], wa, wb, moved)
    dual_value, u, t = bound_from(lowest, wa, wb, moved, v)
    if residuals.worst > FEASIBLE or not optimality(value, dual_value, tol, moved * dense.span, True).ok:
        return None
    facts = [moved, t, value, value, dual_value, *residuals]
    return _solution(cost, values, plan, sums, Potentials(u, v), facts, 1)


def _solution(
    cost: Any, values: FloatArray, plan: FloatArray, sums: FloatArray, potentials: Potentials, facts: list[float],
    n_iter: int,
) -> Solution[Any]:  # fmt: skip
    """Return the solution of a problem in the kind of its cost; the rest is in float64, for the facts see `FACTS`."""
    kind, n = kind_of(cost), plan.shape[0]
    moved, slope, value, objective, dual_value, *residuals = facts
    result, paid = kind.wrap_plan(plan, moved), (value, objective)
    if kind.device is not None:
        paid = in_callers_kind(cost, result, plan, values, objective, kind)
    return Solution(
        plan=result,
        p=kind.wrap(sums[:n]),
        q=kind.wrap(sums[n:]),
        value=paid[0],
        objective=paid[1],
        dual_value=min(dual_value, objective),  # they may cross by rounding
        gap=max(0.0, objective - dual_value),
        status=Status.OPTIMAL,
        n_iter=n_iter,
        potentials=Potentials(kind.wrap(potentials.u), kind.wrap(potentials.v)),
        slope=slope,
        residuals=Residuals(*residuals),
    )


def solve_common_plan(cost: Any, a: Any, mass: Any, eps: float, tol: float, max_iter: int) -> Any:
    """Return the plan of an ordinary problem without the rest of its solution; None for others."""
    solved = _solve_one(cost, a, None, None, mass, eps, tol, max_iter)
    return None if solved is None else kind_of(cost).wrap_plan(solved.plans[0], float(solved.facts[0, 0]))


def _solve_one(
    cost: Any, a: Any, b: Any, beta: Any, mass: Any, eps: float, tol: float, max_iter: int
) -> _Solved | None:
    """Solve an ordinary problem, as a batch of one; None for others."""
    from warmpot.transport._entropic_whole import UNUSUAL

    solved = _solve(_plain_cost(cost), a, b, beta, mass, eps, tol, max_iter)
    return None if solved is None or solved.counts[0] == UNUSUAL else solved


def _solve(
    costs: FloatArray | None, a: Any, b: Any, beta: Any, mass: Any, eps: float, tol: float, max_iter: int
) -> _Solved | None:
    """Solve the ordinary ones of a batch, in threads without the interpreter lock; None if none can be."""
    from warmpot.transport._entropic_whole import FACTS, solve_many

    inputs = _plain_inputs(costs, a, b, beta, mass)
    if inputs is None:
        return None
    costs, rows, cols, mass = inputs
    size, n, m = costs.shape
    solved = _Solved(
        costs, np.empty(costs.shape), np.empty((size, n + m)), np.empty((size, n + m)), np.empty((size, len(FACTS))),
        np.empty(size, np.int64),
    )  # fmt: skip
    settings = mass, eps, tol, max_iter, 0.0, 0.0, True
    cores = 1 if size == 1 else min(size, os.cpu_count() or 1)
    if cores == 1:
        solve_many(costs, rows, cols, *settings, *solved[1:])
        return solved

    ends = np.linspace(0, size, min(PARTS * cores, size) + 1).astype(int).tolist()
    parts = iter([slice(*pair) for pair in pairwise(ends)])

    def solve_parts() -> None:
        for part in parts:
            solve_many(costs[part], rows[part], cols[part], *settings, *(each[part] for each in solved[1:]))

    others = [Thread(target=solve_parts) for _ in range(cores - 1)]
    for thread in others:
        thread.start()
    solve_parts()  # here too: to wake a thread that waits for the others takes longer than a problem
    for thread in others:
        thread.join()
    return solved


def _plain_inputs(costs: FloatArray | None, a: Any, b: Any, beta: Any, mass: Any) -> _Inputs | None:
    """Return what the compiled solvers take; None if it is not plain arrays and numbers."""
    if costs is None or type(mass) not in (float, int, np.float64) or not 0 < mass < LARGEST:
        return None
    size, n, m = costs.shape
    if beta is not None:
        if a is not None or type(beta) not in (float, int) or not 0 < beta <= 1:
            return None
        a = np.full(n, 1.0 / (beta * n))
    rows, cols = _plain_weights(a, size, n), _plain_weights(b, size, m)
    return None if rows is None or cols is None else _Inputs(costs, rows, cols, float(mass))


def _plain_cost(cost: Any) -> FloatArray | None:
    """Return a matrix of floats on the CPU as a batch of one in float64; None for everything else."""
    if is_torch(cost):
        usable = cost.device.type == "cpu" and cost.is_floating_point() and cost.layout == sys.modules["torch"].strided
    else:
        usable = type(cost) is np.ndarray and cost.dtype.char in "df"
    return writable(to_numpy(cost))[None] if usable and cost.ndim == 2 and min(cost.shape) > 0 else None


def _plain_weights(weights: Any, size: int, n: int) -> FloatArray | None:
    """Return one row per problem of weights that are an array of float64 (None: uniform); None for everything else."""
    if weights is None:
        return np.full((size, n), 1.0 / n)
    if type(weights) is not np.ndarray or weights.dtype != np.float64 or weights.shape not in ((n,), (size, n)):
        return None
    rows = weights if weights.ndim == 2 else weights[None] if size == 1 else np.tile(weights, (size, 1))
    return writable(to_numpy(rows))


def solve_common_batch(
    costs: Any, values: FloatArray, a: Any, b: Any, beta: Any, mass: Any, eps: float, tol: float, max_iter: int,
    kind: Kind,
) -> tuple[IntArray, BatchSolution] | None:  # fmt: skip
    """Solve the ordinary ones of a batch; returns their numbers and solutions, None if there are none.

    `values` are the costs in float64, checked; the other arguments are those of `solve_partial_batch`.
    """
    from warmpot.transport._entropic_whole import UNUSUAL

    solved = _solve(writable(values), a, b, beta, mass, eps, tol, max_iter)
    if solved is None or (solved.counts == UNUSUAL).all():
        return None
    numbers = np.flatnonzero(solved.counts != UNUSUAL).astype(np.int64)
    if len(numbers) < len(values):
        arrays: Any = (each[numbers] for each in solved)
        solved = _Solved(*arrays)
    n, facts = values.shape[1], solved.facts
    plan, objective = kind.wrap_plan(solved.plans, float(facts[:, 0].sum())), facts[:, 3]
    paid: tuple[Any, Any] = facts[:, 2], objective
    if kind.device is not None:
        paid = in_callers_kind(costs[numbers], plan, solved.plans, solved.costs, objective, kind)
    return numbers, BatchSolution(
        plan=plan,
        p=kind.wrap(solved.sums[:, :n]),
        q=kind.wrap(solved.sums[:, n:]),
        value=paid[0],
        objective=paid[1],
        dual_value=np.minimum(facts[:, 4], objective),
        gap=np.maximum(0.0, objective - facts[:, 4]),
        status=(Status.OPTIMAL,) * len(numbers),
        n_iter=tuple(solved.counts.tolist()),
        potentials=Potentials(kind.wrap(solved.potentials[:, :n]), kind.wrap(solved.potentials[:, n:])),
        slope=facts[:, 1],
        residuals=tuple(Residuals(*row) for row in facts[:, 5:].tolist()),
    )
