"""Numba kernels of the entropic solver; `entropic.py` explains the algorithm.

Everything here is dimensionless: costs are divided by their range, masses by the mass to move, and the plan is

    P_ij = exp(tau - mu_i - nu_j - C_ij / eps) = s * x_i * K_ij * y_j,

where K holds the potentials *absorbed* so far and s, x, y the change since then. The bounds mu, nu >= 0 read
``x <= x_cap`` and ``y <= y_cap``.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from warmpot._typing import FloatArray, IntArray
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

FASTMATH = {"reassoc", "contract", "nsz"}  # sums may be reordered; inf and NaN keep their meaning
CONVERGED, OUT_OF_ITERATIONS, STALLED = 0, 1, 2


@njit(cache=True, fastmath=FASTMATH, nogil=True)
def _absorb(cost: FloatArray, eps: float, tau: float, mu: FloatArray, nu: FloatArray, kernel: FloatArray) -> float:
    """Set ``K_ij = exp(tau - mu_i - nu_j - C_ij / eps)``; returns the sum."""
    inverse = 1.0 / eps
    total = 0.0
    for i in range(cost.shape[0]):
        base = tau - mu[i]
        for j in range(cost.shape[1]):
            log = min(base - nu[j] - cost[i, j] * inverse, LOG_MAX)
            value = np.exp(log) if log > LOG_MIN else 0.0
            kernel[i, j] = value
            total += value
    return total


@njit(cache=True, fastmath=FASTMATH, nogil=True)
def _sweep(
    kernel: FloatArray,
    a: FloatArray,
    b: FloatArray,
    x: FloatArray,
    y: FloatArray,
    s: float,
    x_cap: FloatArray,
    y_cap: FloatArray,
    work: FloatArray,
) -> float:
    """Maximise the dual over x, then y, then s, in one pass over K; returns the new s.

    ``x <- min(cap, a / (s K y))``, ``y <- min(cap, b / (s K' x))``, ``s <- 1 / (x' K y)``. The row of K that gives
    x_i is still in cache when ``K' x`` collects it.
    """
    n, m = kernel.shape
    for j in range(m):
        work[j] = 0.0
    for i in range(n):
        row = 0.0
        for j in range(m):
            row += kernel[i, j] * y[j]
        row *= s
        x_i = x_cap[i]
        if row * x_i > a[i]:
            x_i = a[i] / row
        x[i] = x_i
        for j in range(m):
            work[j] += x_i * kernel[i, j]
    total = 0.0
    for j in range(m):
        y_j = y_cap[j]
        column = s * work[j]
        if column * y_j > b[j]:
            y_j = b[j] / column
        y[j] = y_j
        total += y_j * work[j]
    return 1.0 / total if total > 0.0 else s


@njit(cache=True, fastmath=FASTMATH, nogil=True)
def _marginals(kernel: FloatArray, x: FloatArray, y: FloatArray, s: float, p: FloatArray, q: FloatArray) -> None:
    """Set p and q to the row and column sums of ``s x K y``."""
    for j in range(y.size):
        q[j] = 0.0
    for i in range(x.size):
        row = 0.0
        scale = s * x[i]
        for j in range(y.size):
            value = scale * kernel[i, j] * y[j]
            row += value
            q[j] += value
        p[i] = row


@njit(cache=True, nogil=True)
def _residual(
    a: FloatArray, p: FloatArray, x: FloatArray, cap: FloatArray, mu: FloatArray, eps: float
) -> tuple[float, float]:
    """Optimality violation of one side, in mass and in cost: a constraint is met with equality or has potential 0."""
    mass = cost = 0.0
    for i in range(a.size):
        miss = abs(p[i] - a[i])
        if p[i] > a[i] or x[i] < cap[i]:
            mass += miss
            cost += miss * max(0.0, mu[i] - np.log(x[i])) * eps
    return mass, cost


@njit(cache=True, nogil=True)
def _dual(
    a: FloatArray, b: FloatArray, mu: FloatArray, nu: FloatArray, tau: float, x: FloatArray, y: FloatArray, s: float
) -> float:
    """Dual objective in units of eps, without the sum of the plan."""
    value = float(tau + np.log(s))
    for i in range(a.size):
        value -= a[i] * (mu[i] - np.log(x[i]))
    for j in range(b.size):
        value -= b[j] * (nu[j] - np.log(y[j]))
    return value


@njit(cache=True, nogil=True)
def _reduced_solve(
    coupling: FloatArray,
    d_small: FloatArray,
    d_large: FloatArray,
    total: float,
    g0: float,
    g_s: FloatArray,
    g_l: FloatArray,
) -> tuple[float, FloatArray, FloatArray]:
    """Solve the Newton system with its larger diagonal block eliminated.

    The system has rows ``[total, -d_s', -d_l'; -d_s, diag(d_s), B; -d_l, B', diag(d_l)]``, B the coupling.
    """
    small, large = coupling.shape
    scaled, matrix, right = np.empty_like(coupling), np.empty((small + 1, small + 1)), np.empty(small + 1)
    corner, g_corner = total * (1.0 + 1e-14), g0
    for j in range(large):
        corner -= d_large[j]
        g_corner += g_l[j]
    for k in range(small):
        row, moved = 0.0, 0.0
        for j in range(large):
            scaled[k, j] = coupling[k, j] / d_large[j]
            row += coupling[k, j]
            moved += scaled[k, j] * g_l[j]
        matrix[k + 1, 0] = matrix[0, k + 1] = row - d_small[k]
        right[k + 1] = g_s[k] - moved
    matrix[0, 0], right[0] = corner, g_corner
    gram = np.dot(scaled, coupling.T)
    for k in range(small):
        for other in range(small):
            matrix[k + 1, other + 1] = -gram[k, other]
        matrix[k + 1, k + 1] += d_small[k] * (1.0 + 1e-14)  # a ridge: potentials may be free to shift together
    step = np.linalg.solve(matrix, right)
    d_l = np.empty(large)
    for j in range(large):
        moved = 0.0
        for k in range(small):
            moved += step[k + 1] * coupling[k, j]
        d_l[j] = (g_l[j] - moved) / d_large[j] + step[0]
    return step[0], step[1:], d_l


@njit(cache=True, nogil=True)
def _submatrix(
    kernel: FloatArray, x: FloatArray, y: FloatArray, s: float, rows: IntArray, cols: IntArray
) -> FloatArray:
    plan = np.empty((rows.size, cols.size))
    for k in range(rows.size):
        scale = s * x[rows[k]]
        for j in range(cols.size):
            plan[k, j] = scale * kernel[rows[k], cols[j]] * y[cols[j]]
    return plan


@njit(cache=True, nogil=True)
def _predicted(
    kernel: FloatArray,
    x: FloatArray,
    y: FloatArray,
    s: float,
    p: FloatArray,
    q: FloatArray,
    d_tau: float,
    move: FloatArray,
    k: int,
) -> float:
    """Row sum (k < n) or column sum that the linear model predicts after a step."""
    n, m = kernel.shape
    if k < n:
        total = p[k] * (1.0 + d_tau - move[k])
        for j in range(m):
            total -= s * x[k] * kernel[k, j] * y[j] * move[n + j]
        return float(total)
    total = q[k - n] * (1.0 + d_tau - move[k])
    for i in range(n):
        total -= s * x[i] * kernel[i, k - n] * y[k - n] * move[i]
    return float(total)


@njit(cache=True, nogil=True)
def _newton_direction(
    kernel: FloatArray,
    a: FloatArray,
    b: FloatArray,
    x: FloatArray,
    y: FloatArray,
    s: float,
    x_cap: FloatArray,
    y_cap: FloatArray,
    p: FloatArray,
    q: FloatArray,
) -> tuple[float, FloatArray, FloatArray]:
    """Newton direction (d_tau, d_mu, d_nu) of the dual under mu, nu >= 0.

    A potential that the step would make negative goes to zero instead, and the rest is solved again: without that,
    a degenerate problem (mass = a whole number of columns) stops every step at a bound. A very long step comes from
    potentials that are free to shift together; then only the first to arrive is held, which ties the others down.
    """
    n = a.size
    free = np.append((x < x_cap) | (p > a), (y < y_cap) | (q > b))
    weight, short = np.append(p, q), np.append(p - a, q - b)
    room = np.log(np.append(x_cap, y_cap) / np.append(x, y))
    move = np.zeros(free.size)
    limit = np.append(a, b)
    held_once, free_again = np.zeros(free.size, np.bool_), np.zeros(free.size, np.bool_)
    d_tau = 0.0
    for _ in range(12):
        rows, cols = np.flatnonzero(free[:n]), np.flatnonzero(free[n:])
        held_rows = np.flatnonzero(~free[:n] & (move[:n] != 0.0))
        held_cols = np.flatnonzero(~free[n:] & (move[n:] != 0.0))
        g0 = 1.0 - p.sum() + p[held_rows] @ move[held_rows] + q[held_cols] @ move[n + held_cols]
        g_rows = short[rows] - _submatrix(kernel, x, y, s, rows, held_cols) @ move[n + held_cols]
        g_cols = short[n + cols] - move[held_rows] @ _submatrix(kernel, x, y, s, held_rows, cols)
        plan = _submatrix(kernel, x, y, s, rows, cols)
        w_rows, w_cols = np.maximum(weight[rows], 1e-300), np.maximum(weight[n + cols], 1e-300)
        if rows.size <= cols.size:
            d_tau, d_rows, d_cols = _reduced_solve(plan, w_rows, w_cols, p.sum(), g0, g_rows, g_cols)
        else:
            d_tau, d_cols, d_rows = _reduced_solve(plan.T.copy(), w_cols, w_rows, p.sum(), g0, g_cols, g_rows)
        move[rows], move[n + cols] = d_rows, d_cols
        released = False
        for k in np.flatnonzero(held_once & ~free):  # held too early: its constraint would be broken by the step
            if not free_again[k] and _predicted(kernel, x, y, s, p, q, d_tau, move, int(k)) > limit[k] * (1.0 + 1e-9):
                free[k] = free_again[k] = released = True
        if released:
            continue
        crossing = np.flatnonzero(free & (room + move < 0.0))
        if crossing.size == 0:
            break
        if np.abs(move).max() > SINGULAR_MOVE:
            reach = room[crossing] / -move[crossing]
            crossing = crossing[reach <= reach.min()]
        for k in crossing:
            free[k] = False
            held_once[k] = True
            move[k] = -room[k]
    return d_tau, move[:n], move[n:]


@njit(cache=True, nogil=True)
def _newton_pays(n: int, m: int, free_rows: int, free_cols: int, residual: float, before: float, tol: float) -> bool:
    """Compare the work of the sweeps still to come, at their present rate, with that of a few Newton steps."""
    if before == np.inf:  # the rate is not known yet: wait, unless the problem is tiny
        return n * m < 20_000
    rate = (residual / before) ** (1.0 / SWEEPS)
    sweeps = np.log(tol / residual) / np.log(rate) if rate < 0.9999 else 1e5
    small, large = min(free_rows, free_cols), max(free_rows, free_cols)
    newton = 0.2 * small * small * (large + small) + 8.0 * n * m
    return sweeps * n * m > 4.0 * newton


@njit(cache=True, nogil=True)
def _drift(x: FloatArray, y: FloatArray, s: float) -> float:
    return float(max(abs(np.log(s)), np.abs(np.log(x)).max(), np.abs(np.log(y)).max()))


@njit(cache=True, nogil=True)
def _newton_step(
    kernel: FloatArray,
    a: FloatArray,
    b: FloatArray,
    mu: FloatArray,
    nu: FloatArray,
    x: FloatArray,
    y: FloatArray,
    s: float,
    x_cap: FloatArray,
    y_cap: FloatArray,
    p: FloatArray,
    q: FloatArray,
    residual: float,
) -> float:
    """Take a damped Newton step that raises the dual or halves the residual; returns the new s, 0 if none did."""
    d_tau, d_mu, d_nu = _newton_direction(kernel, a, b, x, y, s, x_cap, y_cap, p, q)
    longest = max(abs(d_tau), np.abs(d_mu).max(), np.abs(d_nu).max())
    if not longest < np.inf:
        return 0.0
    before = _dual(a, b, mu, nu, 0.0, x, y, s) - p.sum()
    longest = max(longest, 1e-300)
    step = min(1.0, LONGEST_MOVE / longest)
    p_new, q_new = np.empty_like(p), np.empty_like(q)
    for _ in range(6):
        x_new = np.minimum(x_cap, x * np.exp(-step * d_mu))
        y_new = np.minimum(y_cap, y * np.exp(-step * d_nu))
        s_new = float(s * np.exp(step * d_tau))
        _marginals(kernel, x_new, y_new, s_new, p_new, q_new)
        rows, _ = _residual(a, p_new, x_new, x_cap, mu, 1.0)
        cols, _ = _residual(b, q_new, y_new, y_cap, nu, 1.0)
        after = _dual(a, b, mu, nu, 0.0, x_new, y_new, s_new) - p_new.sum()
        halved = rows + cols + abs(p_new.sum() - 1.0) < 0.5 * residual
        if halved or after > before + 1e-13 * abs(before):
            x[:], y[:] = x_new, y_new
            return s_new
        step = min(0.25 * step, NEWTON_MOVE / longest)
    return 0.0


@njit(cache=True, nogil=True)
def solve_at(
    cost: FloatArray,
    a: FloatArray,
    b: FloatArray,
    eps: float,
    tau: float,
    mu: FloatArray,
    nu: FloatArray,
    tol: float,
    max_iter: int,
    kernel: FloatArray,
) -> tuple[float, int, int]:
    """Solve at one eps from the given potentials, which are updated; K becomes the plan. Returns tau, code, count."""
    n, m = cost.shape
    x, y, p, q, work = np.ones(n), np.ones(m), np.empty(n), np.empty(m), np.empty(m)
    count, idle, best, before, residual, code = 0, 0, np.inf, np.inf, np.inf, OUT_OF_ITERATIONS
    while code == OUT_OF_ITERATIONS and count < max_iter:
        total = _absorb(cost, eps, tau, mu, nu, kernel)
        s = 1.0 / total if total > 0.0 else 1.0
        x[:], y[:] = 1.0, 1.0
        x_cap, y_cap = np.exp(np.minimum(mu, LOG_MAX)), np.exp(np.minimum(nu, LOG_MAX))
        while count < max_iter:
            for _ in range(SWEEPS):
                s = _sweep(kernel, a, b, x, y, s, x_cap, y_cap, work)
            count += SWEEPS
            _marginals(kernel, x, y, s, p, q)
            rows, rows_gap = _residual(a, p, x, x_cap, mu, eps)
            cols, cols_gap = _residual(b, q, y, y_cap, nu, eps)
            before, residual = residual, rows + cols + abs(p.sum() - 1.0)
            if residual <= tol and rows_gap + cols_gap <= tol:
                code = CONVERGED
                break
            best, idle = (residual, 0) if residual < 0.9 * best else (best, idle + 1)
            if idle > STALL_CHECKS:
                code = STALLED
                break
            free_rows, free_cols = (x < x_cap).sum(), (y < y_cap).sum()
            if _newton_pays(n, m, free_rows, free_cols, residual, before, 0.1 * tol):
                stepped = _newton_step(kernel, a, b, mu, nu, x, y, s, x_cap, y_cap, p, q, residual)
                count += 1
                s = stepped if stepped > 0.0 else s
            if _drift(x, y, s) > LOG_LIMIT:
                break
        tau += np.log(s)
        mu[:] = np.maximum(0.0, mu - np.log(x))
        nu[:] = np.maximum(0.0, nu - np.log(y))
    for i in range(n):
        for j in range(m):
            kernel[i, j] *= s * x[i] * y[j]
    return tau, code, count
