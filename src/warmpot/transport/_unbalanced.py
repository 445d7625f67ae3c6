"""Numba kernels of the unbalanced solver; `unbalanced.py` tells the story.

Everything here is in units of eps: ``c = M / eps - log r`` (r the reference of the regulariser), ``lam = tau / eps``,
and the potentials phi, psi give the plan ``P_ij = exp(phi_i + psi_j - c_ij)`` and the row and column sums that the
penalties ask for, ``a_i exp(-phi_i / lam)`` and ``b_j exp(-psi_j / lam)``. At the optimum both are the plan's own.
"""
# numba's decorators are untyped; what they decorate is typed all the same
# mypy: disallow-untyped-decorators=False

from __future__ import annotations

import numpy as np
from numba import njit

from warmpot._typing import FloatArray

__all__ = ["CONVERGED", "OUT_OF_ITERATIONS", "STALLED", "solve_at", "total_divergence"]

FASTMATH = {"reassoc", "contract", "nsz"}  # sums may be reordered; inf and NaN keep their meaning
CONVERGED, OUT_OF_ITERATIONS, STALLED = 0, 1, 2

SWEEPS = 12  # multiplicative sweeps between two exact evaluations of the plan
LOG_LIMIT = 50.0  # longest move of a potential that the multiplicative form may make
LOG_MIN, LOG_MAX = -690.0, 600.0  # exp stays clear of denormal numbers and, summed and scaled, of overflow
NEGLIGIBLE = -40.0  # exp of this is lost beside 1
TINY = 1e-290
NOTHING = 1e-250  # share of the objective that a plan lost to underflow may be wrong by
NEWTON_MOVES = (100.0, 10.0, 1.0)  # longest Newton step in any potential; each where the one before did not help
LEAST_RISE = 1e-3  # of what its slope promises, by which a Newton step has to raise the dual
NEWTON_SWEEPS = 3.0  # a Newton step costs about this many sweeps per row of the smaller side
STALL_ROUNDS = 60  # rounds without 10 % progress before giving up


@njit(cache=True, nogil=True)
def _divergence(x: float, log_x: float, log_y: float) -> float:
    """Return ``x log(x / y) - x + y >= 0`` without cancellation where x is close to y."""
    if x <= 0.0:
        return float(np.exp(min(log_y, LOG_MAX)))
    d = np.expm1(min(log_y - log_x, 1.0))  # y / x - 1
    if abs(d) < 1e-3:
        return float(x * d * d * (0.5 - d * (1 / 3 - d * (0.25 - d * (0.2 - d / 6)))))
    return float(x * (log_x - log_y) - x + np.exp(min(log_y, LOG_MAX)))  # y / x may be out of range


@njit(cache=True, nogil=True)
def total_divergence(x: FloatArray, y: FloatArray) -> float:
    """``KL(x | y)`` of two vectors; infinite where x > 0 = y."""
    total = 0.0
    for i in range(x.size):
        if x[i] > 0.0 and y[i] <= 0.0:
            return np.inf
        if y[i] > 0.0:
            total += _divergence(x[i], np.log(x[i]) if x[i] > 0.0 else 0.0, np.log(y[i]))
    return total


@njit(cache=True, nogil=True)
def _misfit(p: FloatArray, log_a: FloatArray, phi: FloatArray, lam: float) -> tuple[float, float]:
    """``lam KL(p | a exp(-phi / lam))``, the side's share of the gap, and ``p phi + lam KL(p | a)``, its objective."""
    gap = inner = penalty = 0.0
    for i in range(p.size):
        log_p = np.log(p[i]) if p[i] > 0.0 else 0.0
        gap += _divergence(p[i], log_p, log_a[i] - phi[i] / lam)
        penalty += _divergence(p[i], log_p, log_a[i])
        inner += p[i] * phi[i]
    return lam * gap, inner + lam * penalty


@njit(cache=True, fastmath=FASTMATH, nogil=True)
def _log_sum(log_a: FloatArray, phi: FloatArray, lam: float) -> float:
    top = -np.inf
    for i in range(phi.size):
        top = max(top, log_a[i] - phi[i] / lam)
    total = 0.0
    for i in range(phi.size):
        total += np.exp(log_a[i] - phi[i] / lam - top)
    return float(top + np.log(total))


@njit(cache=True, nogil=True)
def _shift(log_a: FloatArray, log_b: FloatArray, lam: float, phi: FloatArray, psi: FloatArray) -> None:
    """Maximise the dual over (phi + t, psi - t), which leaves the plan alone: the slowest mode of the sweeps."""
    t = 0.5 * lam * (_log_sum(log_a, phi, lam) - _log_sum(log_b, psi, lam))
    phi += t
    psi -= t


@njit(cache=True, fastmath=FASTMATH, nogil=True)
def _log_sweep(
    c: FloatArray,
    log_a: FloatArray,
    log_b: FloatArray,
    lam: float,
    phi: FloatArray,
    psi: FloatArray,
    top: FloatArray,
    total: FloatArray,
) -> float:
    """Maximise the dual over phi, then psi, in logarithms; returns the longest move."""
    n, m = c.shape
    share, move = lam / (1.0 + lam), 0.0
    for j in range(m):
        top[j], total[j] = -np.inf, 0.0
    for i in range(n):
        high, row = -np.inf, 0.0
        for j in range(m):
            high = max(high, psi[j] - c[i, j])
        for j in range(m):
            log = psi[j] - c[i, j] - high
            if log > NEGLIGIBLE:
                row += np.exp(log)
        new = share * (log_a[i] - high - np.log(row))
        move = max(move, abs(new - phi[i]))
        phi[i] = new
        for j in range(m):
            top[j] = max(top[j], new - c[i, j])
    for i in range(n):
        for j in range(m):
            log = phi[i] - c[i, j] - top[j]
            if log > NEGLIGIBLE:
                total[j] += np.exp(log)
    for j in range(m):
        new = share * (log_b[j] - top[j] - np.log(total[j]))
        move = max(move, abs(new - psi[j]))
        psi[j] = new
    return move


@njit(cache=True, fastmath=FASTMATH, nogil=True)
def _plan(c: FloatArray, phi: FloatArray, psi: FloatArray, plan: FloatArray, p: FloatArray, q: FloatArray) -> None:
    """Set the plan of the potentials and its row and column sums."""
    n, m = c.shape
    for j in range(m):
        q[j] = 0.0
    for i in range(n):
        row = 0.0
        for j in range(m):
            log = min(phi[i] + psi[j] - c[i, j], LOG_MAX)
            value = np.exp(log) if log > LOG_MIN else 0.0
            plan[i, j] = value
            row += value
            q[j] += value
        p[i] = row


@njit(cache=True, nogil=True)
def _evaluate(
    c: FloatArray,
    log_a: FloatArray,
    log_b: FloatArray,
    lam: float,
    phi: FloatArray,
    psi: FloatArray,
    plan: FloatArray,
    p: FloatArray,
    q: FloatArray,
) -> tuple[float, float]:
    """Set plan, p, q; returns the duality gap and the magnitude it is measured against."""
    _plan(c, phi, psi, plan, p, q)
    gap_p, value_p = _misfit(p, log_a, phi, lam)
    gap_q, value_q = _misfit(q, log_b, psi, lam)
    mass, value = p.sum(), abs(value_p + value_q)
    return gap_p + gap_q, max(min(value + mass, (1.0 + 2.0 * lam) * mass), NOTHING * value)


@njit(cache=True, fastmath=FASTMATH, nogil=True)
def _sweeps(
    plan: FloatArray, log_a: FloatArray, log_b: FloatArray, lam: float, phi: FloatArray, psi: FloatArray, count: int
) -> int:
    """Maximise the dual over phi, then psi, `count` times on ``x_i P_ij y_j``; returns the sweeps made.

    Rows and columns whose mass float64 cannot hold stay where they are; so does everything once a move gets long.
    """
    n, m = plan.shape
    share, least, most = lam / (1.0 + lam), np.exp(-LOG_LIMIT), np.exp(LOG_LIMIT)
    x, y, work = np.ones(n), np.ones(m), np.empty(m)
    want_p, want_q = np.empty(n), np.empty(m)
    for i in range(n):
        want_p[i] = np.exp(min(log_a[i] - phi[i] / lam, LOG_MAX))
    for j in range(m):
        want_q[j] = np.exp(min(log_b[j] - psi[j] / lam, LOG_MAX))
    made = 0
    near = True
    while near and made < count:
        made += 1
        for j in range(m):
            work[j] = 0.0
        for i in range(n):
            row = 0.0
            for j in range(m):
                row += plan[i, j] * y[j]
            if row > TINY and want_p[i] > TINY:
                x[i] = min(max((want_p[i] / row) ** share, least), most)
                near = near and least < x[i] < most
            x_i = x[i]
            for j in range(m):
                work[j] += x_i * plan[i, j]
        for j in range(m):
            if work[j] > TINY and want_q[j] > TINY:
                y[j] = min(max((want_q[j] / work[j]) ** share, least), most)
                near = near and least < y[j] < most
    for i in range(n):
        phi[i] += np.log(x[i])
    for j in range(m):
        psi[j] += np.log(y[j])
    return made


@njit(cache=True, nogil=True)
def _scaling(
    p: FloatArray, log_a: FloatArray, phi: FloatArray, lam: float, root: FloatArray, gradient: FloatArray
) -> None:
    """Inverse root of the Hessian's diagonal (0 where it cannot be told from 0) and the scaled gradient of the dual."""
    for i in range(p.size):
        want = np.exp(min(log_a[i] - phi[i] / lam, LOG_MAX))
        diagonal = p[i] + want / lam
        root[i] = 1.0 / np.sqrt(diagonal) if TINY < diagonal < 1.0 / TINY else 0.0
        gradient[i] = root[i] * (want - p[i])


@njit(cache=True, nogil=True)
def _newton(
    plan: FloatArray,
    p: FloatArray,
    q: FloatArray,
    log_a: FloatArray,
    log_b: FloatArray,
    lam: float,
    phi: FloatArray,
    psi: FloatArray,
) -> tuple[FloatArray, FloatArray, float]:
    """Newton direction of the dual and its slope; the larger block is eliminated, the Hessian has unit diagonal."""
    n, m = plan.shape
    r, s, g, h = np.empty(n), np.empty(m), np.empty(n), np.empty(m)
    _scaling(p, log_a, phi, lam, r, g)
    _scaling(q, log_b, psi, lam, s, h)
    scaled = np.empty((n, m))
    for i in range(n):
        for j in range(m):
            scaled[i, j] = r[i] * plan[i, j] * s[j]
    if n > m:
        scaled, g, h = np.ascontiguousarray(scaled.T), h, g
    matrix = -np.dot(scaled, scaled.T)
    for k in range(matrix.shape[0]):
        matrix[k, k] += 1.0 + 1e-14  # a ridge: the potentials are almost free to shift against each other
    small = np.linalg.solve(matrix, g - np.dot(scaled, h))
    large = h - np.dot(scaled.T, small)
    slope = float(np.dot(g, small) + np.dot(h, large))
    if n > m:
        small, large = large, small
    return r * small, s * large, slope


@njit(cache=True, nogil=True)
def _dual(log_a: FloatArray, log_b: FloatArray, lam: float, phi: FloatArray, psi: FloatArray, mass: float) -> float:
    total = 0.0
    for i in range(phi.size):
        total -= np.exp(log_a[i]) * np.expm1(min(-phi[i] / lam, LOG_MAX))
    for j in range(psi.size):
        total -= np.exp(log_b[j]) * np.expm1(min(-psi[j] / lam, LOG_MAX))
    return float(lam * total - mass)


@njit(cache=True, nogil=True)
def _newton_step(
    c: FloatArray,
    log_a: FloatArray,
    log_b: FloatArray,
    lam: float,
    phi: FloatArray,
    psi: FloatArray,
    plan: FloatArray,
    p: FloatArray,
    q: FloatArray,
    gap: float,
    work: FloatArray,
) -> tuple[bool, float, float]:
    """Newton step and a sweep, kept if they halve the gap or raise the dual; returns whether, the gap, its measure.

    The sweep mends what a long step breaks. Close to the optimum the dual is flat to rounding and the gap decides.
    """
    d_phi, d_psi, slope = _newton(plan, p, q, log_a, log_b, lam, phi, psi)
    longest = max(np.abs(d_phi).max(), np.abs(d_psi).max())
    dual = _dual(log_a, log_b, lam, phi, psi, p.sum())
    for limit in NEWTON_MOVES:
        step = min(1.0, limit / longest) if longest > 0.0 else 1.0
        new_phi, new_psi = phi + step * d_phi, psi + step * d_psi
        _log_sweep(c, log_a, log_b, lam, new_phi, new_psi, work[0], work[1])
        _shift(log_a, log_b, lam, new_phi, new_psi)
        new_gap, scale = _evaluate(c, log_a, log_b, lam, new_phi, new_psi, plan, p, q)
        rise = _dual(log_a, log_b, lam, new_phi, new_psi, p.sum()) - dual
        if new_gap < 0.5 * gap or rise > LEAST_RISE * step * slope > 0.0:
            phi[:], psi[:] = new_phi, new_psi
            return True, new_gap, scale
        if step == 1.0 and longest < NEWTON_MOVES[-1]:
            break
    new_gap, scale = _evaluate(c, log_a, log_b, lam, phi, psi, plan, p, q)
    return False, new_gap, scale


@njit(cache=True, nogil=True)
def solve_at(
    c: FloatArray,
    log_a: FloatArray,
    log_b: FloatArray,
    lam: float,
    phi: FloatArray,
    psi: FloatArray,
    tol: float,
    max_iter: int,
    plan: FloatArray,
) -> tuple[int, int, float]:
    """Maximise the dual from phi, psi, which are overwritten; returns a code, the iterations and the gap.

    Sweeps in logarithms come first and whenever a move is long; then rounds of multiplicative sweeps. Newton steps
    are tried where the rate of the sweeps predicts that they cost less.
    """
    n, m = c.shape
    p, q, work = np.empty(n), np.empty(m), np.empty((2, m))
    price = NEWTON_SWEEPS * min(n, m)
    quiet, best, last, count = 0, np.inf, np.inf, 0
    while True:
        used = 0
        move = np.inf
        while move > LOG_LIMIT and (used == 0 or count < max_iter):
            move = _log_sweep(c, log_a, log_b, lam, phi, psi, work[0], work[1])
            _shift(log_a, log_b, lam, phi, psi)
            used, count = used + 1, count + 1
        gap, scale = _evaluate(c, log_a, log_b, lam, phi, psi, plan, p, q)
        if gap > tol * scale and count < max_iter:
            made = _sweeps(plan, log_a, log_b, lam, phi, psi, min(SWEEPS, max_iter - count))
            _shift(log_a, log_b, lam, phi, psi)
            used, count, last = made, count + made, gap
            gap, scale = _evaluate(c, log_a, log_b, lam, phi, psi, plan, p, q)
        rate = np.log(last / gap) / used if 0.0 < gap < last < np.inf else 0.0
        better = True
        while better and gap > tol * scale and count < max_iter and np.log(gap / (tol * scale)) > rate * price:
            better, gap, scale = _newton_step(c, log_a, log_b, lam, phi, psi, plan, p, q, gap, work)
            count += 1
        if gap <= tol * scale:
            return CONVERGED, count, gap
        quiet = 0 if gap < 0.9 * best else quiet + 1
        best = min(best, gap)
        if count >= max_iter or quiet > STALL_ROUNDS:
            return (OUT_OF_ITERATIONS if count >= max_iter else STALLED), count, gap
