"""Numba kernels of the entropic solver; `entropic.py` explains the algorithm.

Everything here is dimensionless: costs are divided by their range, masses by the mass to move, and the plan is

    P_ij = exp(tau - mu_i - nu_j - C_ij / eps) = s * x_i * K_ij * y_j,

where K holds the potentials *absorbed* so far and s, x, y the change since then. The bounds mu, nu >= 0 read
``x <= x_cap`` and ``y <= y_cap``. What rows and columns have in common is one vector, first the n rows, then the m
columns: `limit` (a, b), `potential` (mu, nu), `scale` (x, y), `cap`, and `sums` (p, q) of the plan.

Loops are written out: expressions over whole arrays take several times as long to compile.
"""

from __future__ import annotations

import numpy as np

from warmpot._typing import BoolArray, FloatArray, IntArray
from warmpot.transport._compile import kernel
from warmpot.transport.entropic import (
    LOG_LIMIT,
    LOG_MAX,
    LOG_MIN,
    LONGEST_MOVE,
    NEWTON_MOVE,
    SINGULAR_MOVE,
    STALL_CHECKS,
    SWEEPS,
)

__all__ = ["CONVERGED", "OUT_OF_ITERATIONS", "STALLED", "solve_at"]

CONVERGED, OUT_OF_ITERATIONS, STALLED = 0, 1, 2


@kernel
def _absorb(cost: FloatArray, low: float, eps: float, tau: float, potential: FloatArray, gibbs: FloatArray) -> float:
    """Set ``K_ij = exp(tau - mu_i - nu_j - (C_ij - low) / eps)``; returns the sum."""
    n, m = cost.shape
    total = 0.0
    for i in range(n):
        base = tau - potential[i]
        for j in range(m):
            log = min(base - potential[n + j] - (cost[i, j] - low) / eps, LOG_MAX)
            value = np.exp(log) if log > LOG_MIN else 0.0
            gibbs[i, j] = value
            total += value
    return total


@kernel
def _sweep(
    gibbs: FloatArray, limit: FloatArray, scale: FloatArray, s: float, cap: FloatArray, work: FloatArray
) -> float:
    """Maximise the dual over x, then y, then s, in one pass over K; returns the new s.

    ``x <- min(cap, a / (s K y))``, ``y <- min(cap, b / (s K' x))``, ``s <- 1 / (x' K y)``. The row of K that gives
    x_i is still in cache when ``K' x`` collects it.
    """
    n, m = gibbs.shape
    y = scale[n:]
    for j in range(m):
        work[j] = 0.0
    for i in range(n):
        row = 0.0
        for j in range(m):
            row += gibbs[i, j] * y[j]
        row *= s
        x_i = cap[i]
        if row * x_i > limit[i]:
            x_i = limit[i] / row
        scale[i] = x_i
        for j in range(m):
            work[j] += x_i * gibbs[i, j]
    total = 0.0
    for j in range(m):
        y_j = cap[n + j]
        column = s * work[j]
        if column * y_j > limit[n + j]:
            y_j = limit[n + j] / column
        y[j] = y_j
        total += y_j * work[j]
    return 1.0 / total if total > 0.0 else s


@kernel
def _add_up(gibbs: FloatArray, scale: FloatArray, s: float, sums: FloatArray) -> float:
    """Set the row and column sums of ``s x K y``; returns the total."""
    n, m = gibbs.shape
    y, q = scale[n:], sums[n:]
    total = 0.0
    for j in range(m):
        q[j] = 0.0
    for i in range(n):
        row = 0.0
        factor = s * scale[i]
        for j in range(m):
            value = factor * gibbs[i, j] * y[j]
            row += value
            q[j] += value
        sums[i] = row
        total += row
    return total


@kernel
def _residual(
    limit: FloatArray, sums: FloatArray, total: float, scale: FloatArray, cap: FloatArray, potential: FloatArray
) -> tuple[float, float]:
    """Optimality violation in mass and in cost over eps: a constraint is met with equality or has potential 0."""
    mass, cost = abs(total - 1.0), 0.0
    for k in range(limit.size):
        if sums[k] > limit[k] or scale[k] < cap[k]:
            miss = abs(sums[k] - limit[k])
            mass += miss
            cost += miss * max(0.0, potential[k] - np.log(scale[k]))
    return mass, cost


@kernel
def _dual(limit: FloatArray, potential: FloatArray, scale: FloatArray, s: float) -> float:
    """Dual objective in units of eps, without tau and the sum of the plan."""
    value = np.log(s)
    for k in range(limit.size):
        value -= limit[k] * (potential[k] - np.log(scale[k]))
    return float(value)


@kernel
def _newton_system(
    gibbs: FloatArray,
    scale: FloatArray,
    s: float,
    sums: FloatArray,
    total: float,
    small: IntArray,
    large: IntArray,
    g0: float,
    g: FloatArray,
    move: FloatArray,
) -> float:
    """Solve for the moves of free potentials (`small` and `large`: those of the two sides); returns that of tau.

    The system has rows ``[total, -d_s', -d_l'; -d_s, diag(d_s), B; -d_l, B', diag(d_l)]``, d the sums and B the plan
    between free rows and columns. Its larger diagonal block is eliminated.
    """
    n = gibbs.shape[0]
    coupling, scaled = np.empty((small.size, large.size)), np.empty((small.size, large.size))
    matrix, right = np.empty((small.size + 1, small.size + 1)), np.empty(small.size + 1)
    corner, g_corner = total * (1.0 + 1e-14), g0
    for r in range(large.size):
        corner -= max(sums[large[r]], 1e-300)
        g_corner += g[large[r]]
    matrix[0, 0], right[0] = corner, g_corner
    for k in range(small.size):
        row, moved, one = 0.0, 0.0, small[k]
        for r in range(large.size):
            other = large[r]
            value = s * scale[one] * scale[other]
            value *= gibbs[one, other - n] if one < n else gibbs[other, one - n]
            coupling[k, r] = value
            scaled[k, r] = value / max(sums[other], 1e-300)
            row += value
            moved += scaled[k, r] * g[other]
        matrix[k + 1, 0] = matrix[0, k + 1] = row - max(sums[one], 1e-300)
        right[k + 1] = g[one] - moved
    gram = np.dot(scaled, coupling.T)
    for k in range(small.size):
        for r in range(small.size):
            matrix[k + 1, r + 1] = -gram[k, r]
        # a ridge: potentials may be free to shift together
        matrix[k + 1, k + 1] += max(sums[small[k]], 1e-300) * (1.0 + 1e-14)
    step = np.linalg.solve(matrix, right)
    for k in range(small.size):
        move[small[k]] = step[k + 1]
    for r in range(large.size):
        moved = 0.0
        for k in range(small.size):
            moved += step[k + 1] * coupling[k, r]
        move[large[r]] = (g[large[r]] - moved) / max(sums[large[r]], 1e-300) + step[0]
    return float(step[0])


@kernel
def _coupled(gibbs: FloatArray, scale: FloatArray, s: float, moves: FloatArray, which: BoolArray, k: int) -> float:
    """Change of the k-th sum by the moves, so chosen, of the other side."""
    n, m = gibbs.shape
    total = 0.0
    if k < n:
        for j in range(m):
            if which[n + j]:
                total += gibbs[k, j] * scale[n + j] * moves[n + j]
    else:
        for i in range(n):
            if which[i]:
                total += gibbs[i, k - n] * scale[i] * moves[i]
    return float(s * scale[k] * total)


@kernel
def _numbers(free: BoolArray, n: int) -> tuple[IntArray, IntArray]:
    """Numbers of the free rows and of the free columns."""
    rows, cols, n_rows, n_cols = np.empty(n, np.int64), np.empty(free.size - n, np.int64), 0, 0
    for k in range(free.size):
        if free[k] and k < n:
            rows[n_rows] = k
            n_rows += 1
        elif free[k]:
            cols[n_cols] = k
            n_cols += 1
    return rows[:n_rows], cols[:n_cols]


@kernel
def _newton_direction(
    gibbs: FloatArray,
    limit: FloatArray,
    scale: FloatArray,
    s: float,
    cap: FloatArray,
    sums: FloatArray,
    total: float,
    move: FloatArray,
) -> float:
    """Set the Newton direction of the dual under mu, nu >= 0; returns that of tau.

    A potential that the step would make negative goes to zero instead, and the rest is solved again: without that,
    a degenerate problem (mass = a whole number of columns) stops every step at a bound. A very long step comes from
    potentials that are free to shift together; then only the first to arrive is held, which ties the others down.
    """
    n, size = gibbs.shape[0], limit.size
    free, held, everyone = np.empty(size, np.bool_), np.zeros(size, np.bool_), np.ones(size, np.bool_)
    times_held, room, g = np.zeros(size, np.int64), np.empty(size), np.empty(size)
    for k in range(size):
        free[k] = scale[k] < cap[k] or sums[k] > limit[k]
        room[k], move[k] = np.log(cap[k] / scale[k]), 0.0
    d_tau, any_held = 0.0, False
    for _ in range(12):
        g0 = 1.0 - total
        for k in range(size):
            g[k] = sums[k] - limit[k]
            if held[k]:
                g0 += sums[k] * move[k]
            elif free[k] and any_held:
                g[k] -= _coupled(gibbs, scale, s, move, held, k)
        rows, cols = _numbers(free, n)
        if rows.size <= cols.size:
            d_tau = _newton_system(gibbs, scale, s, sums, total, rows, cols, g0, g, move)
        else:
            d_tau = _newton_system(gibbs, scale, s, sums, total, cols, rows, g0, g, move)
        released = False
        for k in range(size):  # held too early: its constraint would be broken by the step
            if held[k] and times_held[k] == 1:
                predicted = sums[k] * (1.0 + d_tau - move[k]) - _coupled(gibbs, scale, s, move, everyone, k)
                if predicted > limit[k] * (1.0 + 1e-9):
                    held[k], free[k], released = False, True, True
        if released:
            continue
        nearest, longest, crossing = np.inf, 0.0, False
        for k in range(size):
            longest = max(longest, abs(move[k]))
            if free[k] and room[k] + move[k] < 0.0:
                crossing, nearest = True, min(nearest, room[k] / -move[k])
        if not crossing:
            break
        for k in range(size):
            if free[k] and room[k] + move[k] < 0.0 and (longest <= SINGULAR_MOVE or room[k] / -move[k] <= nearest):
                free[k], held[k], any_held = False, True, True
                times_held[k] += 1
                move[k] = -room[k]
    return d_tau


@kernel
def _newton_pays(
    n: int, m: int, scale: FloatArray, cap: FloatArray, residual: float, before: float, tol: float
) -> bool:
    """Compare the work of the sweeps still to come, at their present rate, with that of a few Newton steps."""
    if before == np.inf:  # the rate is not known yet: wait, unless the problem is tiny
        return n * m < 20_000
    free_rows = free_cols = 0
    for k in range(n + m):
        if scale[k] < cap[k]:
            free_rows, free_cols = free_rows + (k < n), free_cols + (k >= n)
    rate = (residual / before) ** (1.0 / SWEEPS)
    sweeps = np.log(tol / residual) / np.log(rate) if rate < 0.9999 else 1e5
    small, large = min(free_rows, free_cols), max(free_rows, free_cols)
    newton = 0.2 * small * small * (large + small) + 8.0 * n * m
    return bool(sweeps * n * m > 4.0 * newton)


@kernel
def _newton_step(
    gibbs: FloatArray,
    limit: FloatArray,
    potential: FloatArray,
    scale: FloatArray,
    s: float,
    cap: FloatArray,
    sums: FloatArray,
    total: float,
    residual: float,
) -> float:
    """Take a damped Newton step that raises the dual or halves the residual; returns the new s, 0 if none did."""
    size = limit.size
    move, new, new_sums = np.empty(size), np.empty(size), np.empty(size)
    d_tau = _newton_direction(gibbs, limit, scale, s, cap, sums, total, move)
    longest = abs(d_tau)
    for k in range(size):
        if not abs(move[k]) < np.inf:
            return 0.0
        longest = max(longest, abs(move[k]))
    if not longest < np.inf:
        return 0.0
    before = _dual(limit, potential, scale, s) - total
    longest = max(longest, 1e-300)
    step = min(1.0, LONGEST_MOVE / longest)
    for _ in range(6):
        for k in range(size):
            new[k] = min(cap[k], scale[k] * np.exp(-step * move[k]))
        s_new = s * np.exp(step * d_tau)
        new_total = _add_up(gibbs, new, s_new, new_sums)
        mass, _ = _residual(limit, new_sums, new_total, new, cap, potential)
        after = _dual(limit, potential, new, s_new) - new_total
        if mass < 0.5 * residual or after > before + 1e-13 * abs(before):
            for k in range(size):
                scale[k] = new[k]
            return float(s_new)
        step = min(0.25 * step, NEWTON_MOVE / longest)
    return 0.0


@kernel
def solve_at(
    cost: FloatArray,
    low: float,
    span: float,
    limit: FloatArray,
    eps: float,
    tau: float,
    potential: FloatArray,
    tol: float,
    max_iter: int,
    gibbs: FloatArray,
) -> tuple[float, int, int]:
    """Solve at one eps from the given potentials, which are updated; K becomes the plan. Returns tau, code, count.

    The cost is ``(cost - low) / span``: it is not stored.
    """
    n, m = cost.shape
    scale, cap, sums, work = np.empty(n + m), np.empty(n + m), np.empty(n + m), np.empty(m)
    count, idle, best, before, residual, code = 0, 0, np.inf, np.inf, np.inf, OUT_OF_ITERATIONS
    s = 1.0
    while code == OUT_OF_ITERATIONS and count < max_iter:
        total = _absorb(cost, low, eps * span, tau, potential, gibbs)
        s = 1.0 / total if total > 0.0 else 1.0
        for k in range(n + m):
            scale[k], cap[k] = 1.0, np.exp(min(potential[k], LOG_MAX))
        while count < max_iter:
            for _ in range(SWEEPS):
                s = _sweep(gibbs, limit, scale, s, cap, work)
            count += SWEEPS
            total = _add_up(gibbs, scale, s, sums)
            before = residual
            residual, gap = _residual(limit, sums, total, scale, cap, potential)
            if residual <= tol and gap * eps <= tol:
                code = CONVERGED
                break
            best, idle = (residual, 0) if residual < 0.9 * best else (best, idle + 1)
            if idle > STALL_CHECKS:
                code = STALLED
                break
            if _newton_pays(n, m, scale, cap, residual, before, 0.1 * tol):
                stepped = _newton_step(gibbs, limit, potential, scale, s, cap, sums, total, residual)
                count += 1
                s = stepped if stepped > 0.0 else s
            drift = abs(np.log(s))
            for k in range(n + m):
                drift = max(drift, abs(np.log(scale[k])))
            if drift > LOG_LIMIT:
                break
        tau += np.log(s)
        for k in range(n + m):
            potential[k] = max(0.0, potential[k] - np.log(scale[k]))
    for i in range(n):
        for j in range(m):
            gibbs[i, j] *= s * scale[i] * scale[n + j]
    return tau, code, count
