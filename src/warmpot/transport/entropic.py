"""The entropic solver.

    min <C, P> + eps * sum P (log P - 1)   subject to the constraints of `problem`

has the minimiser ``P_ij = exp((t - u_i - v_j - C_ij) / eps)`` with u, v >= 0. Its dual is smooth and concave,

    D(t, u, v) = mass * t - <a, u> - <b, v> - eps * sum_ij P_ij,

and is maximised in two ways that suit each other: *sweeps*, exact maximisation over u, then v, then t (two
matrix-vector products; the iterates of the usual Dykstra scheme), and *Newton steps* over the constraints that
are saturated, taken where the rate of the sweeps predicts that they cost less. When eps is small against the
cost range the problem is first solved at larger eps (annealing). The solve stops when the violations of the
optimality conditions, in mass and in cost, are below `tol`; the plan is then rounded to a feasible one, and its
true gap to D is reported.
"""

from __future__ import annotations

import numpy as np

from warmpot._typing import FloatArray
from warmpot.errors import InputError, explain
from warmpot.transport.exact import max_flow, to_feasible
from warmpot.transport.problem import Answer, PartialProblem, infeasible
from warmpot.transport.status import Status

__all__ = ["DEFAULT_MAX_ITER", "conclude", "schedule", "solve_entropic", "spare"]

DEFAULT_MAX_ITER = 100_000
SMALLEST_EPS = 1e-12  # of the cost range; below, float64 cannot tell the problem from the exact one
ANNEAL_FACTOR = 4.0
ANNEAL_FROM = 10.0  # the first eps is at most the cost range over this
ANNEAL_TOL = 1e-4  # tolerance of all but the last eps

STATUSES = (Status.OPTIMAL, Status.MAX_ITER, Status.STALLED)


def schedule(eps: float, tol: float, room: float = 1.0) -> tuple[FloatArray, FloatArray]:
    """Falling values of eps (in units of the cost range) that end at `eps`, and a tolerance for each.

    On the way down a coarse tolerance will do, but not coarser than the spare capacity `room` (relative to the
    mass): which constraints bind would stay open, and the potentials drift further with each eps.
    At the end float64 cannot meet a tolerance below the rounding of ``C / eps``, so it is raised to that.

    Examples
    --------
    >>> schedule(0.5, 1e-9)
    (array([0.5]), array([1.e-09]))
    >>> schedule(0.001, 1e-9)[0]
    array([0.064, 0.016, 0.004, 0.001])
    """
    values = [eps]
    while values[-1] * ANNEAL_FROM * ANNEAL_FACTOR < 1.0:
        values.append(values[-1] * ANNEAL_FACTOR)
    coarse = min(ANNEAL_TOL, 0.1 * room)
    tols = np.full(len(values), max(tol, coarse))
    tols[-1] = max(tol, 1e-15 / eps)
    return np.array(values[::-1]), tols


def solve_entropic(problem: PartialProblem, eps: float, *, tol: float, max_iter: int) -> Answer:
    """Solve the entropic problem on the CPU.

    Parameters
    ----------
    problem : PartialProblem
        May hold forbidden pairs and zero weights.
    eps : float
        Regularisation, in units of the cost.
    tol : float
        Violation of the optimality conditions, relative to the mass and (for the gap) to mass times cost range.
    max_iter : int
        Limit on sweeps and Newton steps, over all annealing stages.
    """
    live = problem.live
    if live is not None:
        return problem.extend(solve_entropic(problem.restrict(*live), eps, tol=tol, max_iter=max_iter), *live)
    if problem.forbidden and problem.mass > (movable := float(max_flow(problem).sum())) * (1 + 1e-9):
        raise infeasible(problem.mass, movable)
    mass, low = problem.mass, float(problem.cost.min())
    high = float(problem.cost[problem.cost < np.inf].max() if problem.forbidden else problem.cost.max())
    span = high - low if high > low else eps
    if eps < SMALLEST_EPS * span:
        allowed = f"eps >= {SMALLEST_EPS * span:.3g}, 1e-12 of the cost range, or None"
        raise InputError(explain("eps", got=eps, allowed=allowed, remedy="Pass eps=None for the exact solver."))
    unit_cost = problem.cost - low
    unit_cost /= span
    a, b = problem.a / mass, problem.b / mass
    plan, mu, nu, tau, code, count = _anneal(unit_cost, a, b, *schedule(eps / span, tol, spare(problem)), max_iter)
    return conclude(problem, plan, mu, nu, tau, eps, low, STATUSES[code], count)


def _anneal(
    cost: FloatArray, a: FloatArray, b: FloatArray, eps: FloatArray, tol: FloatArray, max_iter: int
) -> tuple[FloatArray, FloatArray, FloatArray, float, int, int]:
    """Solve at a falling sequence of eps, each from the potentials of the last.

    Returns the plan (not yet feasible), mu, nu, tau at the last eps, the outcome there and the iterations of all.
    """
    from warmpot.transport._entropic import solve_at

    mu, nu, tau, plan = np.zeros(a.size), np.zeros(b.size), 0.0, np.empty_like(cost)
    count, code, last = 0, 0, float(eps[0])
    for now, limit in zip(eps.tolist(), tol.tolist(), strict=True):
        mu *= last / now
        nu *= last / now
        left = max(1, max_iter - count)  # a stage makes one round of sweeps at least, so that there is a plan
        tau, code, used = solve_at(cost, a, b, now, tau * last / now, mu, nu, limit, left, plan)
        count, last = count + used, now
    return plan, mu, nu, tau, code, count


def spare(problem: PartialProblem) -> float:
    """Smallest capacity that some side has to spare, relative to the mass; 1 if no side has any."""
    excess = (float(problem.a.sum()) / problem.mass - 1.0, float(problem.b.sum()) / problem.mass - 1.0)
    return min((e for e in excess if e > 1e-12), default=1.0)


def conclude(
    problem: PartialProblem,
    plan: FloatArray,
    mu: FloatArray,
    nu: FloatArray,
    tau: float,
    eps: float,
    low: float,
    status: Status,
    count: int,
) -> Answer:
    """Bring a dimensionless result back to the units of the problem, round it and measure its true gap.

    `plan` has mass about 1, may be slightly infeasible and is overwritten; mu, nu, tau are its potentials over eps,
    for the cost less `low`.
    """
    from warmpot.transport._round import measure

    mass, total = problem.mass, float(plan.sum())
    plan *= mass
    plan = to_feasible(problem, plan)
    value, entropy = measure(plan, problem.cost)
    t = eps * (tau + np.log(mass)) + low
    dual = mass * t - eps * (problem.a @ mu + problem.b @ nu + mass * total)
    return Answer(plan, eps * mu, eps * nu, t, value + eps * entropy, dual, status, count)
