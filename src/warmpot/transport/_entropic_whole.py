"""Whole entropic solves in one call of compiled code, for the common case; `entropic.py` has the others.

Scaling to units of cost range and mass, annealing, rounding and the duality gap: for small problems, each of these
takes longer as a call from Python than its arithmetic does.
"""

from __future__ import annotations

import numpy as np

from warmpot._checks import LARGEST
from warmpot._typing import FloatArray, IntArray
from warmpot.transport._compile import kernel, part
from warmpot.transport._elementary import larger, smaller
from warmpot.transport._entropic import CONVERGED, VECTORS, solve_at
from warmpot.transport._kernels import measured
from warmpot.transport.entropic import ANNEAL_FACTOR, ANNEAL_FROM, ANNEAL_TOL, EXACT_START, ROUNDING, SLACK

__all__ = ["FACTS", "UNUSUAL", "solve_many"]

UNUSUAL = -1
"""Number of iterations of a problem that is left to `entropic.py`."""
NEGLIGIBLE = 1e-14  # share of the mass that rounding may take: 1e-12 is what is promised
FACTS = ("mass", "slope", "value", "objective", "dual value", "violation of rows", "of columns", "of the mass")


@part
def _units(cost: FloatArray, eps: float, lowest: FloatArray, highest: FloatArray) -> tuple[float, float]:
    """Return the smallest cost and the range; 0 for costs that are not finite or a range that is far from eps."""
    n, m = cost.shape
    total = 0.0
    for j in range(m):
        lowest[j], highest[j] = np.inf, -np.inf
    for i in range(n):
        for j in range(m):  # by column: a minimum over a row is not vectorised
            value = cost[i, j]
            lowest[j], highest[j] = smaller(lowest[j], value), larger(highest[j], value)
            total += value
    low, high = np.inf, -np.inf
    for j in range(m):
        low, high = smaller(low, lowest[j]), larger(high, highest[j])
    usual = low >= -LARGEST and high <= LARGEST and total == total  # not NaN
    return low, high - low if usual and EXACT_START * (high - low) <= eps <= (high - low) / EXACT_START else 0.0


@part
def _limits(a: FloatArray, b: FloatArray, mass: float, limit: FloatArray) -> tuple[float, float]:
    """Set the limits over the mass; returns the mass and the spare capacity (see `entropic.spare`).

    The mass is 0 if it cannot be moved, or for numbers that are not finite or not positive where they must be.
    """
    n, usual, total_a, total_b = a.size, True, 0.0, 0.0
    for i in range(n):
        total_a += a[i]
        usual &= 0.0 < a[i] < LARGEST
    for j in range(b.size):
        total_b += b[j]
        usual &= 0.0 < b[j] < LARGEST
    movable = smaller(total_a, total_b)
    usual &= 1.0 / LARGEST < mass <= movable * (1.0 + 1e-9) and larger(total_a, total_b) < LARGEST
    mass = movable if usual and mass > movable * (1.0 - 1e-13) else mass
    for i in range(n):
        limit[i] = a[i] / mass
    for j in range(b.size):
        limit[n + j] = b[j] / mass
    room_a, room_b = total_a / mass - 1.0, total_b / mass - 1.0
    room = smaller(room_a if room_a > 1e-12 else 1.0, room_b if room_b > 1e-12 else 1.0)
    return mass if usual else 0.0, room


@part
def _scale_down(
    plan: FloatArray, cost: FloatArray, limit: FloatArray, scale: FloatArray, s: float, before: FloatArray,
    sums: FloatArray,
) -> tuple[float, float]:  # fmt: skip
    """Turn K into the plan ``s x K y`` with rows and columns scaled down to their limits, and set its sums.

    `before` are the sums of ``s x K y``, in units of the mass as the limits. Returns linear cost and total.
    """
    n, m = plan.shape
    q, value, total = sums[n:], 0.0, 0.0
    for k in range(n + m):
        scale[k] *= limit[k] / before[k] if before[k] > limit[k] else 1.0
        sums[k] = 0.0
    for i in range(n):
        row, left = 0.0, s * scale[i]
        for j in range(m):
            entry = left * plan[i, j] * scale[n + j]
            plan[i, j] = entry
            row += entry
            q[j] += entry
            value += entry * cost[i, j]
        sums[i] = row
        total += row
    return value, total


@part
def _fill(plan: FloatArray, limit: FloatArray, mass: float, missing: float, sums: FloatArray, room: FloatArray) -> None:
    """Spread missing mass over the room left in rows and columns, in proportion to both; updates the sums."""
    n, m = plan.shape
    spare_a = spare_b = 0.0
    for k in range(n + m):
        room[k] = larger(0.0, limit[k] * mass - sums[k])
        spare_a, spare_b = (spare_a + room[k], spare_b) if k < n else (spare_a, spare_b + room[k])
    if spare_a > 0.0 and spare_b > 0.0:  # else full to the last bit: rounding is missing
        for k in range(n + m):
            room[k] /= spare_a if k < n else spare_b  # not both by one factor: their product may be out of range
            sums[k] += missing * room[k]
        for i in range(n):
            for j in range(m):
                plan[i, j] += missing * room[i] * room[n + j]


@part
def _finish(
    plan: FloatArray, cost: FloatArray, a: FloatArray, b: FloatArray, mass: float, low: float, eps: float, tau: float,
    potential: FloatArray, limit: FloatArray, scale: FloatArray, s: float, total: float, before: FloatArray,
    sums: FloatArray, facts: FloatArray,
) -> None:  # fmt: skip
    """Turn K into a feasible plan, and set its sums and facts; see `_scale_down` for the arguments."""
    n, shrink = a.size, 1.0 / larger(total, 1.0)
    value, moved = _scale_down(plan, cost, limit, scale, s * mass * shrink, before, sums)
    t, spent = eps * (tau + np.log(mass)) + low, mass * total
    objective = moved * (t - eps + eps * np.log(shrink))
    for k in range(limit.size):
        spent += mass * limit[k] * potential[k]
        down = np.log(limit[k] / before[k]) if before[k] > limit[k] else 0.0
        objective -= eps * sums[k] * (potential[k] - down)  # the logarithms of the plan, summed up
    missing = mass - moved
    if missing > NEGLIGIBLE * mass:
        _fill(plan, limit, mass, missing, sums, before)
        value, entropy = measured(plan, cost)
        objective = value + eps * entropy
    rows = cols = now = 0.0
    for i in range(n):
        rows, now = larger(rows, sums[i] - a[i]), now + sums[i]
    for j in range(b.size):
        cols = larger(cols, sums[n + j] - b[j])
    facts[0], facts[1], facts[2], facts[3], facts[4] = mass, t, value, objective, mass * t - eps * spent
    facts[5], facts[6], facts[7] = rows / mass, cols / mass, abs(now - mass) / mass


@kernel
def solve_many(
    costs: FloatArray,
    a: FloatArray,
    b: FloatArray,
    mass: float,
    eps: float,
    tol: float,
    max_iter: int,
    low: float,
    span: float,
    anneal: bool,
    plans: FloatArray,
    potentials: FloatArray,
    sums: FloatArray,
    facts: FloatArray,
    counts: IntArray,
) -> None:
    """Solve problems of one shape; sets plans, potentials, sums, facts (see `FACTS`) and numbers of iterations.

    The number is `UNUSUAL` where a problem is not ordinary (see `_units` and `_limits`) or does not converge: nothing
    is promised of its results then. Stages of annealing are those of `entropic.schedule`.

    With a `span` the problems are solved in the units given, whatever they are, and not rounded: plans have a mass of
    about 1, potentials are over eps, and the first two facts are tau and how the solve ended. Without `anneal` they
    start from the tau and the potentials passed.
    """
    _, n, m = costs.shape
    small, ordinary = n if n < m else m, span == 0.0
    vectors, integers = np.empty((VECTORS + 2 * small + 1, n + m)), np.empty((4, n + m + 2), np.intc)
    limit, scale, before, work = vectors[0], vectors[1], vectors[2], vectors[3:]
    for p in range(costs.shape[0]):
        cost, plan, potential, fact, counts[p] = costs[p], plans[p], potentials[p], facts[p], UNUSUAL
        moved, room = _limits(a[p], b[p], mass, limit)
        if ordinary:
            low, span = _units(cost, eps, scale, before)
            if moved == 0.0 or span == 0.0:
                continue
        factor, tau, s, total, code, count = 1.0, fact[0], 1.0, 1.0, CONVERGED, 0
        if anneal:
            tau = 0.0
            for k in range(n + m):
                potential[k] = 0.0
            while eps / span * factor * ANNEAL_FROM * ANNEAL_FACTOR < 1.0:
                factor *= ANNEAL_FACTOR
        last_tol = larger(tol, 1e-15 * span / eps)
        while factor >= 1.0:
            limit_tol = last_tol if factor == 1.0 else larger(last_tol, smaller(ANNEAL_TOL, 0.1 * room))
            left = max_iter - count if max_iter > count else 1  # at least one round of sweeps, so that there is a plan
            tau, s, total, code, used = solve_at(
                cost, low, span, limit, eps / span * factor, tau, potential, limit_tol, left, plan, scale, before,
                work, integers,
            )  # fmt: skip
            count, factor = count + used, factor / ANNEAL_FACTOR
            if factor >= 1.0:
                tau *= ANNEAL_FACTOR
                for k in range(n + m):
                    potential[k] *= ANNEAL_FACTOR
        if not ordinary:
            for i in range(n):
                for j in range(m):
                    plan[i, j] *= s * scale[i] * scale[n + j]
            fact[0], fact[1], counts[p] = tau, code, count
            continue
        if code != CONVERGED:
            continue
        _finish(plan, cost, a[p], b[p], moved, low, eps, tau, potential, limit, scale, s, total, before, sums[p], fact)
        rounding = ROUNDING * moved * (abs(low) + span + eps)
        if fact[3] - fact[4] <= SLACK * last_tol * moved * (span + eps) + rounding:
            counts[p] = count
        for k in range(n + m):
            potential[k] *= eps
