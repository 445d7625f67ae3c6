"""Whole entropic solves in one call of compiled code, for the common case; `entropic.py` has the others.

Scaling to units of cost range and mass, annealing, rounding and the duality gap: for small problems, each of these
takes longer as a call from Python than its arithmetic does.
"""

from __future__ import annotations

import numpy as np

from warmpot._checks import LARGEST
from warmpot._typing import FloatArray, IntArray
from warmpot.transport._compile import kernel, part
from warmpot.transport._entropic import CONVERGED, solve_at
from warmpot.transport._kernels import measure, round_plan
from warmpot.transport.entropic import ANNEAL_FACTOR, ANNEAL_FROM, ANNEAL_TOL, EXACT_START, ROUNDING, SLACK

__all__ = ["FACTS", "UNUSUAL", "certified", "solve_many"]

UNUSUAL = -1
"""Number of iterations of a problem that is left to `entropic.py`."""
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


@part
def _prepared(
    cost: FloatArray, a: FloatArray, b: FloatArray, mass: float, eps: float, limit: FloatArray
) -> tuple[float, float, float, float]:
    """Return smallest cost, range, mass and spare capacity (see `entropic.spare`), and set the limits over the mass.

    The mass is 0 for numbers that are not finite or not positive where they must be, forbidden pairs, a mass that
    cannot be moved, or an eps that is small compared with the range of the costs.
    """
    n, m = cost.shape
    lowest, highest, bad = limit[n:], np.empty(m), 0
    for j in range(m):
        lowest[j], highest[j] = np.inf, -np.inf
    for i in range(n):
        for j in range(m):  # by column: a minimum over a row is not vectorised
            lowest[j], highest[j] = min(lowest[j], cost[i, j]), max(highest[j], cost[i, j])
            bad += not -LARGEST <= cost[i, j] <= LARGEST
    low, high = np.inf, -np.inf
    for j in range(m):
        low, high = min(low, lowest[j]), max(high, highest[j])
    span, total_a, total_b = high - low, 0.0, 0.0
    for k in range(n + m):
        limit[k] = a[k] if k < n else b[k - n]
        bad += not 0.0 < limit[k] < LARGEST
        total_a, total_b = (total_a + limit[k], total_b) if k < n else (total_a, total_b + limit[k])
    movable = min(total_a, total_b)
    if bad or not (span > 0.0 and EXACT_START * span <= eps <= span / EXACT_START):
        return low, span, 0.0, 0.0
    if not 1.0 / LARGEST < mass <= movable * (1.0 + 1e-9) or max(total_a, total_b) >= LARGEST:
        return low, span, 0.0, 0.0
    mass = mass if mass <= movable * (1.0 - 1e-13) else movable
    room_a, room_b = total_a / mass - 1.0, total_b / mass - 1.0
    for k in range(n + m):
        limit[k] /= mass
    return low, span, mass, min(room_a if room_a > 1e-12 else 1.0, room_b if room_b > 1e-12 else 1.0)


@part
def _described(
    plan: FloatArray, a: FloatArray, b: FloatArray, mass: float, sums: FloatArray, facts: FloatArray
) -> None:
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
    counts: IntArray,
) -> None:
    """Solve problems of one shape; sets plans, potentials, sums, facts (see `FACTS`) and numbers of iterations.

    The number is `UNUSUAL` where a problem is not ordinary (see `_prepared`) or does not converge: nothing is promised
    of its results then. Stages of annealing are those of `entropic.schedule`.
    """
    _, n, m = costs.shape
    limit = np.empty(n + m)
    for p in range(costs.shape[0]):
        cost, plan, potential, counts[p] = costs[p], plans[p], potentials[p], UNUSUAL
        low, span, moved, room = _prepared(cost, a[p], b[p], mass, eps, limit)
        if moved == 0.0:
            continue
        factor, tau, code, count, last_tol = 1.0, 0.0, CONVERGED, 0, max(tol, 1e-15 * span / eps)
        while eps / span * factor * ANNEAL_FROM * ANNEAL_FACTOR < 1.0:
            factor *= ANNEAL_FACTOR
        for k in range(n + m):
            potential[k] = 0.0
        while factor >= 1.0:
            limit_tol = last_tol if factor == 1.0 else max(last_tol, min(ANNEAL_TOL, 0.1 * room))
            left = max(1, max_iter - count)
            tau, code, used = solve_at(
                cost, low, span, limit, eps / span * factor, tau, potential, limit_tol, left, plan
            )
            count, factor = count + used, factor / ANNEAL_FACTOR
            if factor >= 1.0:
                tau *= ANNEAL_FACTOR
                for k in range(n + m):
                    potential[k] *= ANNEAL_FACTOR
        if code != CONVERGED:
            continue
        total = 0.0
        for i in range(n):
            for j in range(m):
                total += plan[i, j]
                plan[i, j] *= moved
        round_plan(plan, a[p], b[p], moved, code == CONVERGED)  # a constant would be compiled as a case of its own
        t, value, objective, dual = certified(plan, cost, a[p], b[p], moved, low, eps, tau, potential, total)
        rounding = ROUNDING * moved * (abs(low) + span + eps)
        if objective - dual > SLACK * last_tol * moved * (span + eps) + rounding:
            continue
        fact = facts[p]
        fact[0], fact[1], fact[2], fact[3], fact[4], counts[p] = moved, t, value, objective, dual, count
        _described(plan, a[p], b[p], moved, sums[p], fact)
        for k in range(n + m):
            potential[k] *= eps
