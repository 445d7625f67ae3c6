"""Solve one problem, a batch of problems, or one for all masses at once, given as cost matrices."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from warmpot._checks import check_cost, check_count, check_positive, check_weights
from warmpot._interop import Kind, is_torch, kind_of
from warmpot._typing import Array, FloatArray
from warmpot.errors import InputError
from warmpot.transport.certify import in_callers_kind
from warmpot.transport.common_case import solve_common, solve_common_batch, solve_common_exact, solve_common_plan
from warmpot.transport.entropic import DEFAULT_MAX_ITER, solve_entropic
from warmpot.transport.exact import MAX_PIVOTS, solve_exact
from warmpot.transport.path import approximate_path
from warmpot.transport.problem import (
    Answer,
    BatchSolution,
    PartialProblem,
    Potentials,
    Solution,
    Status,
    residuals_of,
    source_capacities,
)

__all__ = ["PartialPath", "StepPlan", "partial_path", "solve_partial", "solve_partial_batch", "step_plan"]

STEP_TOL = 1e-9


def solve_partial(
    cost: Array,
    a: Array | None = None,
    b: Array | None = None,
    *,
    beta: float | None = None,
    mass: float,
    eps: float | None = None,
    tol: float = 1e-9,
    max_iter: int | None = None,
    throw: bool = True,
) -> Solution[Any]:
    r"""Move `mass` from rows to columns at least cost.

    .. math:: \min_P \langle C, P \rangle + \varepsilon \sum_{ij} P_{ij} (\log P_{ij} - 1)
              \quad\text{s.t.}\quad P \ge 0,\; P 1 \le a,\; P^\top 1 \le b,\; \textstyle\sum P = \text{mass}

    Parameters
    ----------
    cost : (n_s, n_t) array or tensor
        ``+inf`` marks a forbidden pair.
    a, b : (n_s,) and (n_t,) arrays, optional
        Capacities of rows and columns; uniform with total 1 by default.
    beta : float, optional
        In (0, 1], instead of `a`: the fraction of the source that is expected to be useful. Each source sample has
        capacity ``1 / (beta * n_s)``, as in partial domain adaptation.
    mass : float
        In (0, min(sum(a), sum(b))]; an excess by rounding is snapped to the maximum.
    eps : float, optional
        Entropic regularisation in units of the cost. None solves the linear program exactly.
    tol : float
        Exact: gap relative to the value. Entropic: violation of the optimality conditions relative to the mass
        and, for the gap, to mass times cost range (never below what float64 can resolve at this eps).
    max_iter : int, optional
        Exact: simplex pivots per round (default 10**9). Entropic: sweeps and Newton steps (default 100,000).
    throw : bool
        Raise `NotConvergedError` unless the status is OPTIMAL; False returns the best plan with its status. Bad
        input and infeasible problems always raise.

    Returns
    -------
    Solution
        In the library, dtype and device of `cost`; all work is done in float64. The plan is feasible to 1e-12
        before it is cast.

    Examples
    --------
    Two source and two target samples; half of the mass is moved, at no cost:

    >>> import numpy as np
    >>> cost = np.array([[0.0, 3.0], [5.0, 1.0]])
    >>> solution = solve_partial(cost, mass=0.5)
    >>> solution.plan
    array([[0.5, 0. ],
           [0. , 0. ]])
    >>> solution
    Solution(2 x 2, OPTIMAL, value=0, gap=0, slope=0, n_iter=1)
    """
    eps, tol, max_iter = _settings(eps, tol, max_iter)
    if eps is None:
        common = solve_common_exact(cost, a, b, beta, mass, tol, max_iter)
    else:
        common = solve_common(cost, a, b, beta, mass, eps, tol, max_iter)
    if common is not None:
        return common
    problem = PartialProblem.checked(cost, a, b, mass, beta)
    kind = kind_of(cost)
    if eps is not None and kind.on_accelerator:
        options: dict[str, Any] = {"beta": beta, "mass": mass, "eps": eps, "tol": tol, "max_iter": max_iter}
        return solve_partial_batch(cost[None], a, b, throw=throw, **options)[0]
    solution = _to_solution(problem, _solve(problem, eps, tol, max_iter), cost, kind)
    return solution.or_raise() if throw else solution


def solve_partial_batch(
    costs: Array,
    a: Array | None = None,
    b: Array | None = None,
    *,
    beta: float | None = None,
    mass: float,
    eps: float | None = None,
    tol: float = 1e-9,
    max_iter: int | None = None,
    throw: bool = True,
) -> BatchSolution:
    """Solve `solve_partial` for every matrix of a batch.

    On the CPU the problems run on all cores; entropic problems on another torch device are solved there, all at
    once. The arguments are those of `solve_partial`.

    Parameters
    ----------
    costs : (batch, n_s, n_t) array or tensor
    a, b : (n_s,) and (n_t,), or (batch, n_s) and (batch, n_t) arrays, optional
        Capacities, shared or one row per problem.

    Examples
    --------
    >>> import numpy as np
    >>> batch = solve_partial_batch(np.stack([np.eye(2), 1 - np.eye(2)]), mass=1.0)
    >>> batch.value
    array([0., 0.])
    >>> len(batch), batch[0].status.name
    (2, 'OPTIMAL')
    """
    eps, tol, max_iter = _settings(eps, tol, max_iter)
    values, kind = check_cost("costs", costs, ndim=3), kind_of(costs)
    size = values.shape[0]
    rows, cols = _per_problem("a", a, size), _per_problem("b", b, size)
    solved: dict[int, Solution[Any]] = {}
    if eps is not None and not kind.on_accelerator:
        common = solve_common_batch(costs, values, a, b, beta, mass, eps, tol, max_iter, kind)
        if common is not None:
            numbers, solutions = common
            if len(numbers) == size:
                return solutions
            solved = {int(k): solutions[position] for position, k in enumerate(numbers)}
    rest = [k for k in range(size) if k not in solved]
    if eps is not None and kind.on_accelerator:
        from warmpot.transport.entropic_torch import solve_entropic_torch

        problems = [PartialProblem.checked(values[k], rows[k], cols[k], mass, beta) for k in rest]
        answers = solve_entropic_torch(problems, eps, tol=tol, max_iter=max_iter, device=kind.device)
        for k, problem, answer in zip(rest, problems, answers, strict=True):
            solved[k] = _to_solution(problem, answer, costs[k], kind)
    else:
        options: dict[str, Any] = {"beta": beta, "mass": mass, "eps": eps, "tol": tol, "max_iter": max_iter}
        with ThreadPoolExecutor(min(size, os.cpu_count() or 1)) as pool:
            singly = pool.map(lambda k: solve_partial(costs[k], rows[k], cols[k], throw=False, **options), rest)
            solved |= zip(rest, singly, strict=True)
    if throw:
        for k in range(size):
            solved[k].or_raise()
    return _stack([solved[k] for k in range(size)], kind)


class StepPlan(NamedTuple):
    """The plan of a mini-batch, in the library and dtype of its cost, and how the solve ended."""

    plan: Any
    status: Status


def step_plan(cost: Array, a: Array | None = None, *, mass: float, eps: float | None) -> StepPlan:
    """Return the plan of a step of training: that of ``solve_partial(..., throw=False)`` without the rest.

    No certificate, sums and potentials are brought to the library and dtype of the cost.
    """
    if eps is not None:
        eps = check_positive("eps", eps)
        plan = solve_common_plan(cost, a, mass, eps, STEP_TOL, DEFAULT_MAX_ITER)
        if plan is not None:
            return StepPlan(plan, Status.OPTIMAL)
    solution = solve_partial(cost, a, mass=mass, eps=eps, tol=STEP_TOL, throw=False)
    return StepPlan(solution.plan, solution.status)


class PartialPath(NamedTuple):
    """The curve: `values` at `masses` (both from 0), and the `slopes` of the segments between them.

    Masses and slopes rise strictly; ``masses[-1]`` is the largest mass that can be moved.
    """

    masses: FloatArray
    values: FloatArray
    slopes: FloatArray


def partial_path(
    cost: Array, a: Array | None = None, b: Array | None = None, *, beta: float | None = None, tol: float | None = None
) -> PartialPath:
    """Compute the optimal value for every mass at once: a convex curve.

    Exactly, by successive shortest paths: starting from nothing moved, each step sends mass along the cheapest route
    that still has room (from a row with capacity left, over pairs, possibly undoing flow, to a column with capacity
    left). The flow stays optimal for the mass moved so far, and the length of the route is the slope of the curve
    there.

    Parameters
    ----------
    cost : (n_s, n_t) array or tensor
        ``+inf`` for forbidden pairs.
    a, b : arrays, optional
        Capacities; uniform with total 1 by default.
    beta : float, optional
        As for `solve_partial`.
    tol : float, optional
        Largest error of a value, relative to the largest value on the curve. Above 0 the curve is that through optimal
        values at some masses, which are chosen until the error is proven (`warmpot.transport.path`); that is much
        faster for thousands of samples. Default: the exact curve.

    Returns
    -------
    PartialPath
        numpy float64 arrays (the curve is for choosing a mass, not for back-propagation). With `tol`, values are never
        below the optimal ones.

    Examples
    --------
    >>> import numpy as np
    >>> path = partial_path(np.array([[0.0, 3.0], [5.0, 1.0]]))
    >>> path.masses, path.values, path.slopes
    (array([0. , 0.5, 1. ]), array([0. , 0. , 0.5]), array([0., 1.]))
    """
    from warmpot.transport._kernels import shortest_paths

    c = check_cost("cost", cost)
    a = a if beta is None else source_capacities(a, beta, c.shape[0])
    wa, wb = check_weights("a", a, c.shape[0]), check_weights("b", b, c.shape[1])
    rows, cols = np.flatnonzero(wa > 0), np.flatnonzero(wb > 0)
    live = np.ascontiguousarray(c[np.ix_(rows, cols)])
    finite = live[live < np.inf]
    if finite.size == 0:
        return PartialPath(np.zeros(1), np.zeros(1), np.empty(0))
    low = float(finite.min())
    span = float(finite.max()) - low or 1.0
    if tol is not None:
        return PartialPath(*approximate_path(live, wa[rows], wb[cols], check_positive("tol", tol, maximum=0.1)))
    total = float(min(wa.sum(), wb.sum()))
    steps, lengths = shortest_paths((live - low) / span, wa[rows] / total, wb[cols] / total)
    monotone: FloatArray = np.maximum.accumulate(lengths)
    slopes = monotone * span + low
    # lengths of a run differ by rounding only, or by less than the rounding of the costs
    first = np.flatnonzero(np.append(True, (np.diff(monotone) > 1e-13) & (np.diff(slopes) > 0)))
    amounts, slopes = np.add.reduceat(steps, first) * total, slopes[first]
    masses, values = np.cumsum(amounts), np.cumsum(amounts * slopes)
    longer = np.diff(masses, prepend=0.0) > 0  # else a step is below the rounding of the mass: part of the next one
    return PartialPath(np.append(0.0, masses[longer]), np.append(0.0, values[longer]), slopes[longer])


def _settings(eps: float | None, tol: float, max_iter: int | None) -> tuple[float | None, float, int]:
    if eps is not None:
        eps = check_positive("eps", eps, remedy="Pass a positive regularisation, or None for the exact solver.")
    tol = check_positive("tol", tol, maximum=0.1)
    if max_iter is None:
        return eps, tol, MAX_PIVOTS if eps is None else DEFAULT_MAX_ITER
    return eps, tol, check_count("max_iter", max_iter)


def _solve(problem: PartialProblem, eps: float | None, tol: float, max_iter: int) -> Answer:
    if eps is None:
        return solve_exact(problem, tol=tol, max_iter=max_iter)
    return solve_entropic(problem, eps, tol=tol, max_iter=max_iter)


def _per_problem(name: str, weights: Any, size: int) -> list[Any]:
    """Return the weights of each problem: a row each, or the same for all where they have no leading batch axis."""
    try:
        rows = weights if weights is None or is_torch(weights) else np.asarray(weights)
    except ValueError:  # left to the checks
        rows = None
    if rows is None or rows.ndim != 2:
        return [weights] * size
    weights = rows
    if len(weights) != size:
        allowed = f"one row for all, or one for each of the {size} problems"
        got, remedy = f"{len(weights)} rows", "Match the leading axis of the costs."
        raise InputError(name, got=got, allowed=allowed, remedy=remedy)
    return [weights[k] for k in range(size)]


def _to_solution(problem: PartialProblem, answer: Answer, cost: Any, kind: Kind) -> Solution[Any]:
    p, q = answer.plan.sum(axis=1), answer.plan.sum(axis=0)
    plan = kind.wrap_plan(answer.plan, answer.mass)
    value, objective = in_callers_kind(cost, plan, answer.plan, problem.cost, answer.objective, kind)
    return Solution(
        plan=plan,
        p=kind.wrap(p),
        q=kind.wrap(q),
        value=value,
        objective=objective,
        dual_value=min(answer.dual_value, answer.objective),  # they may cross by rounding
        gap=max(0.0, answer.objective - answer.dual_value),
        status=answer.status,
        n_iter=answer.n_iter,
        potentials=Potentials(kind.wrap(answer.u), kind.wrap(answer.v)),
        slope=answer.t,
        residuals=residuals_of(p, q, problem.a, problem.b, answer.mass),
    )


def _stack(solutions: list[Solution[Any]], kind: Kind) -> BatchSolution:
    def join(parts: Sequence[Any]) -> Any:
        if kind.device is None:
            return np.stack(parts)
        import torch

        return torch.stack(list(parts))

    def each(name: str) -> list[Any]:
        return [getattr(solution, name) for solution in solutions]

    parts: dict[str, Any] = {name: join(each(name)) for name in ("plan", "p", "q", "value", "objective")}
    parts |= {name: np.array(each(name)) for name in ("dual_value", "gap", "slope")}
    parts |= {name: tuple(each(name)) for name in ("status", "n_iter", "residuals")}
    u, v = zip(*each("potentials"), strict=True)
    return BatchSolution(**parts, potentials=Potentials(join(u), join(v)))
