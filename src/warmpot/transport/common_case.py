"""Ordinary entropic problems, solved in one call of compiled code.

Ordinary are plain arrays of finite numbers, positive weights, a mass that can be moved and an eps that is not small
compared with the range of the costs. All else, errors included, is left to the checks and the solvers of `solve`.
"""

from __future__ import annotations

import sys
from concurrent.futures import Executor
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from warmpot._interop import Kind, is_torch, kind_of, to_numpy
from warmpot._typing import FloatArray
from warmpot.transport.certify import in_callers_kind
from warmpot.transport.problem import PartialProblem, Potentials, Residuals, Solution, Status, writable

__all__ = ["solve_common", "solve_common_batch", "solve_common_plan"]

PARTS = 4  # into which a batch is cut, per core: problems differ in time


class _Solved(NamedTuple):
    """What the compiled solver returns, in float64."""

    cost: FloatArray
    plan: FloatArray
    potential: FloatArray
    sums: FloatArray
    facts: list[float]
    n_iter: int

    def wrapped(self, cost: Any, kind: Kind) -> Solution[Any]:
        """Return the solution in the library, dtype and device of the caller's cost."""
        mass, slope, value, objective, dual_value, *residuals = self.facts
        (n, _), plan = self.plan.shape, kind.wrap_plan(self.plan, mass)
        paid: tuple[Any, Any] = value, objective
        if kind.device is not None:
            paid = in_callers_kind(cost, plan, self.plan, self.cost, objective, kind)
        return Solution(
            plan=plan,
            p=kind.wrap(self.sums[:n]),
            q=kind.wrap(self.sums[n:]),
            value=paid[0],
            objective=paid[1],
            dual_value=min(dual_value, objective),  # they may cross by rounding
            gap=max(0.0, objective - dual_value),
            status=Status.OPTIMAL,
            n_iter=self.n_iter,
            potentials=Potentials(kind.wrap(self.potential[:n]), kind.wrap(self.potential[n:])),
            slope=slope,
            residuals=Residuals(*residuals),
        )


def solve_common(
    cost: Any, a: Any, b: Any, beta: Any, mass: Any, eps: float, tol: float, max_iter: int
) -> Solution[Any] | None:
    """Solve an ordinary problem; None for others. The arguments are those of `solve_partial`."""
    solved = _solve(cost, a, b, beta, mass, eps, tol, max_iter)
    return None if solved is None else solved.wrapped(cost, kind_of(cost))


def solve_common_plan(cost: Any, a: Any, mass: Any, eps: float, tol: float, max_iter: int) -> Any:
    """Return the plan of an ordinary problem without the rest of its solution; None for others."""
    solved = _solve(cost, a, None, None, mass, eps, tol, max_iter)
    return None if solved is None else kind_of(cost).wrap_plan(solved.plan, solved.facts[0])


def _solve(cost: Any, a: Any, b: Any, beta: Any, mass: Any, eps: float, tol: float, max_iter: int) -> _Solved | None:
    values = _plain_cost(cost)
    if values is None or type(mass) not in (float, int, np.float64):
        return None
    n, m = values.shape
    if beta is None:
        wa = _plain_weights(a, n)
    else:
        wa = np.full(n, 1.0 / (beta * n)) if a is None and type(beta) in (float, int) and 0 < beta <= 1 else None
    wb = _plain_weights(b, m)
    if wa is None or wb is None:
        return None
    from warmpot.transport._entropic_whole import FACTS, UNUSUAL, solve_whole

    plan, potential, sums, facts = np.empty((n, m)), np.empty(n + m), np.empty(n + m), np.empty(len(FACTS))
    code, count = solve_whole(values, wa, wb, float(mass), eps, tol, max_iter, plan, potential, sums, facts)
    return None if code == UNUSUAL else _Solved(values, plan, potential, sums, facts.tolist(), count)


def _plain_cost(cost: Any) -> FloatArray | None:
    """Return a matrix of floats on the CPU as float64; None for everything else."""
    if is_torch(cost):
        usable = cost.device.type == "cpu" and cost.is_floating_point() and cost.layout == sys.modules["torch"].strided
    else:
        usable = type(cost) is np.ndarray and cost.dtype.char in "df"
    return writable(to_numpy(cost)) if usable and cost.ndim == 2 and min(cost.shape) > 0 else None


def _plain_weights(weights: Any, n: int) -> FloatArray | None:
    """Return weights that are an array of float64 (None: uniform); None for everything else."""
    if weights is None:
        return np.full(n, 1.0 / n)
    plain = type(weights) is np.ndarray and weights.dtype == np.float64 and weights.shape == (n,)
    return writable(to_numpy(weights)) if plain else None


def solve_common_batch(
    problems: list[PartialProblem], values: FloatArray, eps: float, tol: float, max_iter: int, costs: Any, kind: Kind,
    pool: Executor, cores: int,
) -> dict[int, Solution[Any]]:  # fmt: skip
    """Solve the ordinary ones of checked problems of one shape, by number, in threads without the interpreter lock."""
    from warmpot.transport._entropic_whole import FACTS, UNUSUAL, solve_many

    size, n, m = values.shape
    values, mass = writable(values), problems[0].mass
    a, b = np.stack([problem.a for problem in problems]), np.stack([problem.b for problem in problems])
    plans, potentials, sums = np.empty(values.shape), np.empty((size, n + m)), np.empty((size, n + m))
    facts, codes = np.empty((size, len(FACTS))), np.empty((size, 2), np.int64)

    def solve_part(part: slice) -> None:
        inputs = values[part], a[part], b[part], mass, eps, tol, max_iter
        solve_many(*inputs, plans[part], potentials[part], sums[part], facts[part], codes[part])

    ends = np.linspace(0, size, min(PARTS * cores, size) + 1).astype(int).tolist()
    list(pool.map(solve_part, [slice(*pair) for pair in pairwise(ends)]))
    solved = {}
    for k in np.flatnonzero(codes[:, 0] != UNUSUAL).tolist():
        parts = values[k], plans[k], potentials[k], sums[k], facts[k].tolist(), int(codes[k, 1])
        solved[k] = _Solved(*parts).wrapped(costs[k], kind)
    return solved
