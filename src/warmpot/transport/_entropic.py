"""Numba kernels of the entropic solver; `entropic.py` explains the algorithm.

Everything here is dimensionless: costs are divided by their range, masses by the mass to move, and the plan is

    P_ij = exp(tau - mu_i - nu_j - C_ij / eps) = s * x_i * K_ij * y_j,

where K holds the potentials *absorbed* so far and s, x, y the change since then. The bounds mu, nu >= 0 read
``x <= x_cap`` and ``y <= y_cap``. What rows and columns have in common is one vector, first the n rows, then the m
columns: `limit` (a, b), `potential` (mu, nu as absorbed), `now` (mu, nu with the change since), `scale` (x, y), `cap`,
and `sums` (p, q) of the plan.

Loops are written out: expressions over whole arrays take several times as long to compile.
"""

from __future__ import annotations

import math

import numpy as np

from warmpot._typing import FloatArray, IntArray
from warmpot.transport._compile import part
from warmpot.transport._elementary import exp_of, larger, log_of, smaller
from warmpot.transport._lapack import set_to_minus_gram, solve_linear
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
BOUND, FREE, FREED, HELD, FINAL = 0, 1, 2, 3, 4
"""A potential in a Newton step: stays 0, free to move, free again, held at 0 by the step, for the second time."""
TINY = 1e-300
VECTORS = 12
"""Number of vectors that `solve_at` and its caller need; a Newton step needs two matrices as well."""
LARGEST_DRIFT, SMALLEST = math.exp(LOG_LIMIT), math.exp(LOG_MIN)


@part
def _absorb(cost: FloatArray, low: float, eps: float, tau: float, potential: FloatArray, gibbs: FloatArray) -> float:
    """Set ``K_ij = exp(tau - mu_i - nu_j - (C_ij - low) / eps)``; returns the sum."""
    n, m = cost.shape
    per, total = 1.0 / eps, 0.0
    for i in range(n):
        base = tau - potential[i]
        for j in range(m):
            log = base - potential[n + j] - (cost[i, j] - low) * per
            entry = exp_of(smaller(larger(log, LOG_MIN - 1.0), LOG_MAX))
            entry = entry if entry > SMALLEST else 0.0
            gibbs[i, j] = entry
            total += entry
    return total


@part
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


@part
def _add_up(
    gibbs: FloatArray, scale: FloatArray, s: float, moves: FloatArray, sums: FloatArray, right: FloatArray
) -> float:
    """Set the sums of the plan ``P = s x K y`` times a number for each row and column; returns the total of the rows.

    Sums of rows are weighted with the numbers of the columns, ``P_ij moves_j``, and those of columns with the numbers
    of the rows: ones give the row and column sums, and moves of the potentials how much less those become. `right` is
    scratch.
    """
    n, m = gibbs.shape
    q, total = sums[n:], 0.0
    for j in range(m):
        right[j], q[j] = scale[n + j] * moves[n + j], 0.0
    for i in range(n):
        row, left = 0.0, s * scale[i] * moves[i]
        for j in range(m):
            row += gibbs[i, j] * right[j]
            q[j] += gibbs[i, j] * left
        sums[i] = s * scale[i] * row
        total += sums[i]
    for j in range(m):
        q[j] *= scale[n + j]
    return total


@part
def _violation(
    limit: FloatArray, sums: FloatArray, total: float, now: FloatArray, scale: FloatArray, s: float, cap: FloatArray
) -> tuple[float, float, float]:
    """Return the violations of the optimality conditions, in mass and in cost over eps, and the dual over eps less tau.

    The conditions: a constraint is met with equality or has potential 0.
    """
    mass, cost, dual = abs(total - 1.0), 0.0, np.log(s) - total
    for k in range(limit.size):
        dual -= limit[k] * now[k]
        miss = abs(sums[k] - limit[k]) if sums[k] > limit[k] or scale[k] < cap[k] else 0.0
        mass += miss
        cost += miss * now[k]
    return mass, cost, dual


@part
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
    work: FloatArray,
    integers: IntArray,
) -> float:
    """Solve for the moves of free potentials (`small` and `large`: those of the two sides); returns that of tau.

    The system has rows ``[diag(d_l), B', -d_l; B, diag(d_s), -d_s; -d_l', -d_s', total]``, d the sums and B the plan
    between free rows and columns. Its larger diagonal block is eliminated. Infinite if the rest is singular.
    """
    n, last = gibbs.shape[0], small.size
    step, root, spill, coupling, matrix = work[0], work[1], work[2], work[3:], work[3 + last :]
    corner, g_corner = total * (1.0 + 1e-14), g0
    for r in range(large.size):
        diagonal = larger(sums[large[r]], TINY)
        root[r], spill[r] = np.sqrt(diagonal), 0.0
        corner -= diagonal
        g_corner += g[large[r]]
    for k in range(last):
        row, moved, one = 0.0, 0.0, small[k]
        for r in range(large.size):
            other = large[r]
            value = gibbs[one, other - n] if one < n else gibbs[other, one - n]
            value *= s * scale[one] * scale[other]
            row += value
            value /= root[r]
            coupling[k, r] = value
            moved += value * g[other] / root[r]
        matrix[k, last] = matrix[last, k] = row - larger(sums[one], TINY)
        step[k] = g[one] - moved
    matrix[last, last], step[last] = corner, g_corner
    set_to_minus_gram(coupling, last, large.size, matrix, integers[2])
    for k in range(last):
        for r in range(k):
            matrix[k, r] = matrix[r, k]
        # a ridge: potentials may be free to shift together
        matrix[k, k] += larger(sums[small[k]], TINY) * (1.0 + 1e-14)
    if not solve_linear(matrix, step, last + 1, integers[2], integers[3]):
        return np.inf
    for k in range(last):
        move[small[k]] = step[k]
        for r in range(large.size):
            spill[r] += step[k] * coupling[k, r]
    for r in range(large.size):
        move[large[r]] = (g[large[r]] / root[r] - spill[r]) / root[r] + step[last]
    return float(step[last])


@part
def _newton_direction(
    gibbs: FloatArray,
    limit: FloatArray,
    scale: FloatArray,
    s: float,
    cap: FloatArray,
    now: FloatArray,
    sums: FloatArray,
    total: float,
    move: FloatArray,
    work: FloatArray,
    integers: IntArray,
) -> float:
    """Set the Newton direction of the dual under mu, nu >= 0; returns that of tau.

    A potential that the step would make negative goes to zero instead, and the rest is solved again: without that,
    a degenerate problem (mass = a whole number of columns) stops every step at a bound. A very long step comes from
    potentials that are free to shift together; then only the first to arrive is held, which ties the others down.
    """
    n, size = gibbs.shape[0], limit.size
    state, order, g, less, spare = integers[0], integers[1], work[0], work[1], work[2]
    for k in range(size):
        state[k] = FREE if scale[k] < cap[k] or sums[k] > limit[k] else BOUND
        move[k] = less[k] = 0.0
    d_tau, any_held = 0.0, False
    for _ in range(12):
        if any_held:
            for k in range(size):
                move[k] = move[k] if state[k] >= HELD else 0.0
            _add_up(gibbs, scale, s, move, less, spare)
        g0, n_rows, n_free = 1.0 - total, 0, 0
        for k in range(size):
            g[k] = sums[k] - limit[k] - less[k]
            g0 += sums[k] * move[k]
            if state[k] == FREE or state[k] == FREED:
                order[n_free] = k
                n_rows, n_free = n_rows + (k < n), n_free + 1
        rows, cols = order[:n_rows], order[n_rows:n_free]
        small, large = (rows, cols) if n_rows <= n_free - n_rows else (cols, rows)
        d_tau = _newton_system(gibbs, scale, s, sums, total, small, large, g0, g, move, work[2:], integers)
        if not d_tau < np.inf:
            break
        released = False
        if any_held:
            _add_up(gibbs, scale, s, move, less, spare)
            for k in range(size):  # held too early: its constraint would be broken by the step
                predicted = sums[k] * (1.0 + d_tau - move[k]) - less[k]
                if state[k] == HELD and predicted > limit[k] * (1.0 + 1e-9):
                    state[k], released = FREED, True
        if released:
            continue
        nearest, longest = np.inf, 0.0
        for k in range(size):
            longest = larger(longest, abs(move[k]))
            if now[k] + move[k] < 0.0 and (state[k] == FREE or state[k] == FREED):
                nearest = smaller(nearest, now[k] / -move[k])
        if nearest == np.inf:
            break
        for k in range(size):
            crossing = now[k] + move[k] < 0.0 and (state[k] == FREE or state[k] == FREED)
            if crossing and (longest <= SINGULAR_MOVE or now[k] / -move[k] <= nearest):
                state[k], any_held, move[k] = HELD if state[k] == FREE else FINAL, True, -now[k]
    return d_tau


@part
def _newton_pays(n: int, m: int, scale: FloatArray, cap: FloatArray, rate: float, residual: float, tol: float) -> bool:
    """Compare the work of the sweeps still to come, at their present rate, with that of a few Newton steps."""
    if rate == 0.0:  # not known yet: wait, unless the problem is tiny
        return n * m < 20_000
    free_rows = free_cols = 0
    for k in range(n + m):
        if scale[k] < cap[k]:
            free_rows, free_cols = free_rows + (k < n), free_cols + (k >= n)
    sweeps = np.log(tol / residual) / np.log(rate) if rate < 0.9999 else 1e5
    small, large = (free_rows, free_cols) if free_rows < free_cols else (free_cols, free_rows)
    return bool(sweeps * n * m > 0.8 * small * small * (large + small) + 8.0 * n * m)


@part
def _damped(
    gibbs: FloatArray,
    limit: FloatArray,
    scale: FloatArray,
    s: float,
    cap: FloatArray,
    now: FloatArray,
    d_tau: float,
    move: FloatArray,
    residual: float,
    dual: float,
    sums: FloatArray,
    ones: FloatArray,
    work: FloatArray,
) -> tuple[float, float, float, float, float]:
    """Take as much of a step as raises the dual or halves the residual, if any does.

    Sets the sums and returns s, the total and what `_violation` returns. Where no step was taken, s and the residual
    are as they were, and the rest is of no use.
    """
    size = limit.size
    new, after, spare, longest = work[0], work[1], work[2], larger(abs(d_tau), TINY)
    for k in range(size):
        longest = larger(longest, abs(move[k])) if abs(move[k]) < np.inf else np.inf
    if not longest < np.inf:
        return s, 0.0, residual, np.inf, dual
    step = smaller(1.0, LONGEST_MOVE / longest)
    for _ in range(6):
        for k in range(size):
            after[k] = larger(0.0, now[k] + step * move[k])
            new[k] = smaller(cap[k], scale[k] * exp_of(-step * move[k])) if after[k] > 0.0 else cap[k]
        s_new = s * np.exp(step * d_tau)
        total = _add_up(gibbs, new, s_new, ones, sums, spare)
        mass, gap, higher = _violation(limit, sums, total, after, new, s_new, cap)
        if mass < 0.5 * residual or higher > dual + 1e-13 * abs(dual):
            for k in range(size):
                scale[k], now[k] = new[k], after[k]
            return s_new, total, mass, gap, higher
        step = smaller(0.25 * step, NEWTON_MOVE / longest)
    return s, 0.0, residual, np.inf, dual


@part
def _growth(scale: FloatArray, s: float) -> float:
    """Return the largest factor by which rows, columns or the whole plan have grown since potentials were absorbed."""
    growth = s
    for k in range(scale.size):
        growth = larger(growth, scale[k])
    return growth


@part
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
    scale: FloatArray,
    sums: FloatArray,
    work: FloatArray,
    integers: IntArray,
) -> tuple[float, float, float, int, int]:
    """Solve at one eps from the given potentials, which are updated; returns tau, s, total, code, count.

    The cost is ``(cost - low) / span``: it is not stored. The plan is ``s x K y``; sums and total are its own if it has
    converged. `work` and `integers` are scratch.
    """
    n, m = cost.shape
    cap, now, ones, move, spare = work[0], work[1], work[2], work[3], work[4:]
    count, idle, best, rate, code = 0, 0, np.inf, 0.0, OUT_OF_ITERATIONS
    residual, gap, dual, total = np.inf, np.inf, -np.inf, 0.0
    s, sweeps = 1.0, SWEEPS
    while code == OUT_OF_ITERATIONS and count < max_iter:
        total = _absorb(cost, low, eps * span, tau, potential, gibbs)
        s = 1.0 / total if total > 0.0 else 1.0
        for k in range(n + m):
            scale[k], ones[k], cap[k] = 1.0, 1.0, exp_of(smaller(potential[k], LOG_MAX))
        while count < max_iter:
            if sweeps > 0:
                before = residual
                for _ in range(sweeps):
                    s = _sweep(gibbs, limit, scale, s, cap, move)
                count += sweeps
                for k in range(n + m):
                    now[k] = larger(0.0, potential[k] - log_of(scale[k])) if scale[k] < cap[k] else 0.0
                total = _add_up(gibbs, scale, s, ones, sums, move)
                residual, gap, dual = _violation(limit, sums, total, now, scale, s, cap)
                rate = (residual / before) ** (1.0 / sweeps)
            if residual <= tol and gap * eps <= tol:
                # a row of K that is 0 as its potential was too large seems to need none: absorb that, and see
                code = CONVERGED if _growth(scale, s) <= LARGEST_DRIFT else OUT_OF_ITERATIONS
                sweeps = SWEEPS
                break
            best, idle = (residual, 0) if residual < 0.9 * best else (best, idle + 1)
            if idle > STALL_CHECKS:
                code = STALLED
                break
            if sweeps == 0 or _newton_pays(n, m, scale, cap, rate, residual, 0.1 * tol):
                before = residual
                d_tau = _newton_direction(gibbs, limit, scale, s, cap, now, sums, total, move, spare, integers)
                s, total, residual, gap, dual = _damped(
                    gibbs, limit, scale, s, cap, now, d_tau, move, before, dual, sums, ones, spare
                )
                # after a good step the next one; else sweeps, enough to see their rate from here
                count, sweeps = count + 1, 0 if residual < 0.1 * before else SWEEPS // 2
            else:
                sweeps = SWEEPS
            drift = larger(s, 1.0 / s)
            for k in range(n + m):
                drift = larger(drift, larger(scale[k], 1.0 / scale[k]))
            if drift > LARGEST_DRIFT:
                sweeps = sweeps if sweeps > 0 else 1  # the dual is another one after absorbing
                break
        tau += np.log(s)
        for k in range(n + m):
            potential[k] = now[k]
    return tau, s, total, code, count
