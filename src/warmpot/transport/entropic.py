"""The entropic solver.

    min <C, P> + eps * sum P (log P - 1)   subject to the constraints of `problem`

has the minimiser ``P_ij = exp((t - u_i - v_j - C_ij) / eps)`` with u, v >= 0. Its dual is smooth and concave,

    D(t, u, v) = mass * t - <a, u> - <b, v> - eps * sum_ij P_ij,

and is maximised in two complementary ways: *sweeps*, exact maximisation over u, then v, then t (two
matrix-vector products; the iterates of the usual Dykstra scheme), and *Newton steps* over the constraints that
are saturated, taken where the rate of the sweeps predicts that they cost less. When eps is small compared with the
cost range they need a good start: the potentials of a larger eps (annealing), or, for very small eps, those of the
exact problem; where one fails the other is tried. The solve stops when the violations of the optimality conditions, in
mass and in cost, are below `tol`; the plan is then rounded to a feasible one, and its true gap to D decides the
status.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from warmpot._checks import LARGEST
from warmpot._typing import FloatArray
from warmpot.errors import InputError
from warmpot.transport.exact import snap_to_movable, solve_exact, to_feasible
from warmpot.transport.problem import Answer, PartialProblem, Status

__all__ = ["DEFAULT_MAX_ITER", "conclude", "schedule", "solve_entropic", "spare", "units"]

DEFAULT_MAX_ITER = 100_000
SMALLEST_EPS = 1e-12  # of the cost range; below, float64 cannot distinguish the problem from the exact one
ANNEAL_FACTOR = 4.0
ANNEAL_FROM = 10.0  # the first eps is at most the cost range over this
ANNEAL_TOL = 1e-4  # tolerance of all but the last eps
SLACK, ROUNDING = 100.0, 1e-13  # of a gap: factor of the tolerance, and share of the costs that is rounding
EXACT_START = 1e-3  # below this share of the cost range, start from the exact potentials

# of the solver in its numba form (`_entropic`) and its torch form (`entropic_torch`)
SWEEPS = 4  # between two evaluations of the residual
LOG_LIMIT = 100.0  # potentials are absorbed into the kernel when the change since has drifted beyond exp(+-this)
LOG_MIN, LOG_MAX = -690.0, 690.0  # between these, exp is neither denormal nor infinite
LONGEST_MOVE = 500.0  # Newton step in any potential, in units of eps: some must move far as they can shift together
NEWTON_MOVE = 10.0  # longest second attempt, where the first did not help
SINGULAR_MOVE = 1e3  # a full Newton step longer than this means that the system is singular
STALL_CHECKS = 60  # evaluations without 10 % progress before giving up

STATUSES = (Status.OPTIMAL, Status.MAX_ITER, Status.STALLED)


class _Units(NamedTuple):
    """A feasible problem (mass snapped to what can be moved) and the units its cost is measured in."""

    problem: PartialProblem
    low: float
    span: float

    @property
    def cost(self) -> FloatArray:
        """The cost in units of its range, from 0."""
        cost: FloatArray = self.problem.cost - self.low
        cost /= self.span
        return cost


def units(problem: PartialProblem, eps: float) -> _Units:
    """Check that the pairs of finite cost can carry the mass and that float64 can resolve eps."""
    problem = snap_to_movable(problem)
    finite = problem.cost[problem.cost < np.inf] if problem.forbidden else problem.cost
    low = float(finite.min())
    span = float(finite.max()) - low
    span = span if span > eps / LARGEST else eps  # the range of the costs, unless there is none to speak of
    if eps < SMALLEST_EPS * span:
        allowed = f"eps >= {SMALLEST_EPS * span:.3g}, 1e-12 of the cost range, or None"
        raise InputError("eps", got=eps, allowed=allowed, remedy="Pass eps=None for the exact solver.")
    return _Units(problem, low, span)


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
    """Solve the entropic problem on the CPU; `max_iter` limits sweeps and Newton steps over all annealing stages.

    `tol` is the violation of the optimality conditions, relative to the mass and (in cost) to mass times cost range.
    """
    live = problem.live
    if live is not None:
        return problem.extend(solve_entropic(problem.restrict(*live), eps, tol=tol, max_iter=max_iter), *live)
    unit = units(problem, eps)
    relative = eps / unit.span
    starts = [_from_exact, _from_above] if relative < EXACT_START else [_from_above, _from_exact]
    best = starts[0](unit, relative, tol, max_iter)
    if best.status is Status.STALLED and relative < 0.1:
        other = starts[1](unit, relative, tol, max_iter)
        if other.status.ok or other.objective - other.dual_value < best.objective - best.dual_value:
            best = other
    # The potentials may still drift where the plan no longer changes: the gap decides.
    if best.status is Status.STALLED and best.objective - best.dual_value <= tol * unit.problem.mass * unit.span:
        best = best._replace(status=Status.OPTIMAL)
    return best


def _from_above(unit: _Units, eps: float, tol: float, max_iter: int) -> Answer:
    """Anneal from a large eps, each stage from the potentials of the last."""
    return _solve_in(unit, eps, np.empty(sum(unit.problem.cost.shape)), 0.0, tol, max_iter, True)


def _from_exact(unit: _Units, eps: float, tol: float, max_iter: int) -> Answer:
    """Start at the potentials of the exact problem, the limit of small eps."""
    exact, scale = solve_exact(unit.problem), eps * unit.span
    potential = np.append(exact.u, exact.v) / scale
    return _solve_in(unit, eps, potential, (exact.t - unit.low) / scale, tol, max_iter, False)


def _solve_in(
    unit: _Units, eps: float, potential: FloatArray, tau: float, tol: float, max_iter: int, anneal: bool
) -> Answer:
    """Solve in the units given, from the potentials and tau given unless annealing; potentials are overwritten."""
    from warmpot.transport._entropic_whole import FACTS, solve_many

    problem, low, span = unit
    cost, a, b, mass = problem.cost, problem.a, problem.b, problem.mass
    plan, sums, facts = np.empty(cost.shape), np.empty(potential.size), np.full(len(FACTS), tau)
    count = np.empty(1, np.int64)
    solve_many(
        cost[None], a[None], b[None], mass, eps * span, tol, max_iter, low, span, anneal, plan[None], potential[None],
        sums[None], facts[None], count,
    )  # fmt: skip
    tau, code, last_tol = float(facts[0]), int(facts[1]), max(tol, 1e-15 / eps)
    return conclude(unit, plan, potential, tau, eps * span, last_tol, STATUSES[code], int(count[0]))


def spare(problem: PartialProblem) -> float:
    """Smallest capacity that some side has to spare, relative to the mass; 1 if no side has any."""
    excess = (float(problem.a.sum()) / problem.mass - 1.0, float(problem.b.sum()) / problem.mass - 1.0)
    return min((e for e in excess if e > 1e-12), default=1.0)


def conclude(
    unit: _Units,
    plan: FloatArray,
    potential: FloatArray,
    tau: float,
    eps: float,
    tol: float,
    status: Status,
    count: int,
) -> Answer:
    """Convert a dimensionless result to the units of the problem, round it and set the status by its true gap.

    `plan` has mass about 1, may be slightly infeasible and is overwritten; tau and the potentials (first of the rows,
    then of the columns) are those over eps, for the cost less `unit.low`.
    """
    from warmpot.transport._kernels import measure

    problem, low, span = unit
    mass, total = problem.mass, float(plan.sum())
    plan *= mass
    plan = to_feasible(problem, plan)
    value, entropy = measure(plan, problem.cost)
    u, v = np.split(eps * potential, [problem.a.size])
    t = eps * (tau + math.log(mass)) + low
    objective, dual = value + eps * entropy, mass * (t - eps * total) - float(problem.a @ u) - float(problem.b @ v)
    gap, rounding = objective - dual, ROUNDING * mass * (abs(low) + span + eps)
    if status is Status.OPTIMAL and gap > SLACK * tol * mass * (span + eps) + rounding:
        status = Status.STALLED
    elif status is Status.STALLED and gap <= tol * mass * eps + rounding:
        status = Status.OPTIMAL
    return Answer(plan, u, v, t, objective, dual, status, count, mass)
