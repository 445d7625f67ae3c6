"""A whole entropic solve in one call of compiled code, for the common case; `entropic.py` has the others.

Scaling to units of cost range and mass, annealing, rounding and the duality gap: for small problems, each of these
takes longer as a call from Python than its arithmetic does.
"""

from __future__ import annotations

import numpy as np

from warmpot._checks import LARGEST
from warmpot._typing import FloatArray, IntArray
from warmpot.transport._compile import kernel
from warmpot.transport._entropic import CONVERGED, solve_at
from warmpot.transport._kernels import measure, round_plan
from warmpot.transport.entropic import ANNEAL_FACTOR, ANNEAL_FROM, ANNEAL_TOL, EXACT_START, ROUNDING, SLACK

__all__ = ["FACTS", "UNUSUAL", "certified", "solve_many", "solve_whole"]

UNUSUAL = -1
"""Code of a problem that is left to `entropic.py`."""
FACTS = ("mass", "slope", "value", "objective", "dual value", "violation of rows", "of columns", "of the mass")


@kernel
def certified(
    plan: FloatArray,
    cost: FloatArray,
    a: FloatArray,
    b: FloatArray,
    mass: float,
    low: float,
    eps: float,
    tau: float,
    potential: FloatArray,
    total: float,
) -> tuple[float, float, float, float]:
    """Return the slope t, value and objective of a feasible plan, and the dual value of the potentials (over eps).

    `total` is the sum of the plan ``exp(tau - mu_i - nu_j - (C_ij - low) / eps)``.
    """
    value, entropy = measure(plan, cost)
    t = eps * (tau + np.log(mass)) + low
    spent = mass * total
    for i in range(a.size):
        spent += a[i] * potential[i]
    for j in range(b.size):
        spent += b[j] * potential[a.size + j]
    return float(t), value, value + eps * entropy, mass * t - eps * spent


@kernel
def _spread(cost: FloatArray) -> tuple[float, float]:
    """Smallest cost and range; a range of NaN where a number is not finite, or too large."""
    low, high = cost[0, 0], cost[0, 0]
    for i in range(cost.shape[0]):
        for j in range(cost.shape[1]):
            if not -LARGEST <= cost[i, j] <= LARGEST:
                return low, np.nan
            low, high = min(low, cost[i, j]), max(high, cost[i, j])
    return low, high - low


@kernel
def _annealed(
    cost: FloatArray,
    low: float,
    span: float,
    limit: FloatArray,
    room: float,
    eps: float,
    tol: float,
    max_iter: int,
    plan: FloatArray,
    potential: FloatArray,
) -> tuple[float, int, int]:
    """Solve with the schedule of `entropic.schedule`; returns tau, code and count."""
    stages, factor = 0, 1.0
    while eps * factor * ANNEAL_FROM * ANNEAL_FACTOR < 1.0:
        factor, stages = factor * ANNEAL_FACTOR, stages + 1
    coarse = max(tol, min(ANNEAL_TOL, 0.1 * room))
    tau, code, count = 0.0, CONVERGED, 0
    for k in range(limit.size):
        potential[k] = 0.0
    for stage in range(stages, -1, -1):
        limit_tol, left = coarse if stage else tol, max(1, max_iter - count)
        tau, code, used = solve_at(cost, low, span, limit, eps * factor, tau, potential, limit_tol, left, plan)
        count += used
        if stage:
            factor, tau = factor / ANNEAL_FACTOR, tau * ANNEAL_FACTOR
            for k in range(limit.size):
                potential[k] *= ANNEAL_FACTOR
    return tau, code, count


@kernel
def solve_whole(
    cost: FloatArray,
    a: FloatArray,
    b: FloatArray,
    mass: float,
    eps: float,
    tol: float,
    max_iter: int,
    plan: FloatArray,
    potential: FloatArray,
    sums: FloatArray,
    facts: FloatArray,
) -> tuple[int, int]:
    """Solve one problem; plan, potentials, sums and facts (see `FACTS`) are set. Returns code and count.

    The code is `UNUSUAL` for numbers that are not finite or not positive where they must be, forbidden pairs, a mass
    that cannot be moved, or an eps that is small compared with the range of the costs, and for a problem that does not
    converge: nothing is promised of the arrays then.
    """
    n, m = cost.shape
    low, span = _spread(cost)
    if not (span > 0.0 and EXACT_START * span <= eps <= span / EXACT_START):
        return UNUSUAL, 0
    limit, total_a, total_b = np.empty(n + m), 0.0, 0.0
    for k in range(n + m):
        weight = a[k] if k < n else b[k - n]
        if not 0.0 < weight < LARGEST:
            return UNUSUAL, 0
        limit[k] = weight
        total_a, total_b = (total_a + weight, total_b) if k < n else (total_a, total_b + weight)
    movable = min(total_a, total_b)
    if not 1.0 / LARGEST < mass <= movable * (1.0 + 1e-9) or max(total_a, total_b) >= LARGEST:
        return UNUSUAL, 0
    mass = mass if mass <= movable * (1.0 - 1e-13) else movable
    room_a, room_b = total_a / mass - 1.0, total_b / mass - 1.0
    room = min(room_a if room_a > 1e-12 else 1.0, room_b if room_b > 1e-12 else 1.0)
    for k in range(n + m):
        limit[k] /= mass
    last_tol = max(tol, 1e-15 * span / eps)
    tau, code, count = _annealed(cost, low, span, limit, room, eps / span, last_tol, max_iter, plan, potential)
    if code != CONVERGED:
        return UNUSUAL, count
    total = 0.0
    for i in range(n):
        for j in range(m):
            total += plan[i, j]
            plan[i, j] *= mass
    round_plan(plan, a, b, mass, code == CONVERGED)  # a constant would be compiled as a case of its own
    t, value, objective, dual = certified(plan, cost, a, b, mass, low, eps, tau, potential, total)
    if objective - dual > SLACK * last_tol * mass * (span + eps) + ROUNDING * mass * (abs(low) + span + eps):
        return UNUSUAL, count
    facts[0], facts[1], facts[2], facts[3], facts[4] = mass, t, value, objective, dual
    _describe(plan, a, b, mass, sums, facts)
    for k in range(n + m):
        potential[k] *= eps
    return code, count


@kernel
def _describe(plan: FloatArray, a: FloatArray, b: FloatArray, mass: float, sums: FloatArray, facts: FloatArray) -> None:
    """Set the row and column sums, and the violations of rows, columns and mass."""
    n, m = plan.shape
    q = sums[n:]
    rows = cols = total = 0.0
    for j in range(m):
        q[j] = 0.0
    for i in range(n):
        row = 0.0
        for j in range(m):
            row += plan[i, j]
            q[j] += plan[i, j]
        sums[i] = row
        rows, total = max(rows, row - a[i]), total + row
    for j in range(m):
        cols = max(cols, q[j] - b[j])
    facts[5], facts[6], facts[7] = rows / mass, cols / mass, abs(total - mass) / mass


@kernel
def solve_many(
    costs: FloatArray,
    a: FloatArray,
    b: FloatArray,
    mass: float,
    eps: float,
    tol: float,
    max_iter: int,
    plans: FloatArray,
    potentials: FloatArray,
    sums: FloatArray,
    facts: FloatArray,
    codes: IntArray,
) -> None:
    """`solve_whole` for problems of one shape, one after the other."""
    for k in range(costs.shape[0]):
        codes[k, 0], codes[k, 1] = solve_whole(
            costs[k], a[k], b[k], mass, eps, tol, max_iter, plans[k], potentials[k], sums[k], facts[k]
        )
