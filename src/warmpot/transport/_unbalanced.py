"""Numba kernels of the unbalanced solver; `unbalanced.py` explains the algorithm.

Everything here is in units of eps: ``c = M / eps - log r`` (r the reference of the regulariser), ``lam = tau / eps``,
and the potentials phi, psi give the plan ``P_ij = exp(phi_i + psi_j - c_ij)`` and the row and column sums that the
penalties ask for, ``a_i exp(-phi_i / lam)`` and ``b_j exp(-psi_j / lam)``. At the optimum both are the plan's own.

Loops are written out: expressions over whole arrays take several times as long to compile.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from warmpot._typing import FloatArray
from warmpot.transport._compile import allocating_part, kernel, part
from warmpot.transport._lapack import set_to_minus_gram, solve_linear

__all__ = ["CONVERGED", "OUT_OF_ITERATIONS", "STALLED", "Problem", "kl_divergence", "solve_at"]

CONVERGED, OUT_OF_ITERATIONS, STALLED = 0, 1, 2

SWEEPS = 12  # multiplicative sweeps between two exact evaluations of the plan
LOG_LIMIT = 50.0  # longest move of a potential that the multiplicative form may make
LOG_MIN, LOG_MAX = -690.0, 600.0  # exp is neither denormal nor, summed and scaled, infinite
NEGLIGIBLE = -40.0  # 1 + exp(this) is 1 in float64
TINY = 1e-290
NOTHING = 1e-250  # share of the objective that a plan lost to underflow may be wrong by
NEWTON_MOVES = (100.0, 10.0, 1.0)  # longest Newton step in any potential; each is tried where the one before failed
FLAT = 1e-10  # of the objective: a smaller change of the dual may be rounding
LEAST_RISE = 1e-3  # a Newton step has to raise the dual by this share of what its slope promises
NEWTON_SWEEPS = 3.0  # a Newton step costs about this many sweeps per row of the smaller side
STALL_ROUNDS = 60  # rounds without 10 % progress before giving up


class Problem(NamedTuple):
    """Cost, logarithms of both marginals and tau, in units of eps; arrays for the plan and its row and column sums."""

    c: FloatArray
    log_a: FloatArray
    log_b: FloatArray
    lam: float
    plan: FloatArray
    p: FloatArray
    q: FloatArray


@part
def _divergence(x: float, log_x: float, log_y: float) -> float:
    """Return ``x log(x / y) - x + y >= 0`` without cancellation where x is close to y."""
    if x <= 0.0:
        return float(np.exp(min(log_y, LOG_MAX)))
    d = np.expm1(min(log_y - log_x, 1.0))  # y / x - 1
    if abs(d) < 1e-3:
        return float(x * d * d * (0.5 - d * (1 / 3 - d * (0.25 - d * (0.2 - d / 6)))))
    return float(x * (log_x - log_y) - x + np.exp(min(log_y, LOG_MAX)))  # y / x may be out of range


@kernel
def kl_divergence(x: FloatArray, y: FloatArray) -> float:
    """Return ``sum x log(x / y) - x + y`` with 0 log 0 = 0; infinite where x > 0 = y."""
    total = 0.0
    for i in range(x.size):
        if x[i] > 0.0 and y[i] <= 0.0:
            return np.inf
        if y[i] > 0.0:
            total += _divergence(x[i], np.log(x[i]) if x[i] > 0.0 else 0.0, np.log(y[i]))
    return total


@part
def _misfit(p: FloatArray, log_a: FloatArray, phi: FloatArray, lam: float) -> tuple[float, float]:
    """``lam KL(p | a exp(-phi / lam))``, the side's share of the gap, and ``p phi + lam KL(p | a)``, its objective."""
    gap = inner = penalty = 0.0
    for i in range(p.size):
        log_p = np.log(p[i]) if p[i] > 0.0 else 0.0
        gap += _divergence(p[i], log_p, log_a[i] - phi[i] / lam)
        penalty += _divergence(p[i], log_p, log_a[i])
        inner += p[i] * phi[i]
    return lam * gap, inner + lam * penalty


@part
def _log_sum(log_a: FloatArray, phi: FloatArray, lam: float) -> float:
    top = -np.inf
    for i in range(phi.size):
        top = max(top, log_a[i] - phi[i] / lam)
    total = 0.0
    for i in range(phi.size):
        total += np.exp(log_a[i] - phi[i] / lam - top)
    return float(top + np.log(total))


@part
def _shift(problem: Problem, phi: FloatArray, psi: FloatArray) -> None:
    """Maximise the dual over (phi + t, psi - t), which leaves the plan unchanged: the slowest mode of the sweeps."""
    lam = problem.lam
    t = 0.5 * lam * (_log_sum(problem.log_a, phi, lam) - _log_sum(problem.log_b, psi, lam))
    for i in range(phi.size):
        phi[i] += t
    for j in range(psi.size):
        psi[j] -= t


@allocating_part
def _log_sweep(problem: Problem, phi: FloatArray, psi: FloatArray) -> float:
    """Maximise the dual over phi, then psi, in logarithms; returns the longest move."""
    c, log_a, log_b, lam = problem.c, problem.log_a, problem.log_b, problem.lam
    n, m = c.shape
    top, total = np.empty(m), np.empty(m)
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


@part
def _set_plan(problem: Problem, phi: FloatArray, psi: FloatArray) -> None:
    c, plan, p, q = problem.c, problem.plan, problem.p, problem.q
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


@part
def _evaluate(problem: Problem, phi: FloatArray, psi: FloatArray) -> tuple[float, float]:
    """Set plan, p and q; returns the duality gap and the magnitude it is compared with."""
    _set_plan(problem, phi, psi)
    gap_p, value_p = _misfit(problem.p, problem.log_a, phi, problem.lam)
    gap_q, value_q = _misfit(problem.q, problem.log_b, psi, problem.lam)
    mass, value = 0.0, abs(value_p + value_q)
    for i in range(problem.p.size):
        mass += problem.p[i]
    return gap_p + gap_q, max(min(value + mass, (1.0 + 2.0 * problem.lam) * mass), NOTHING * value)


@allocating_part
def _wanted(log_a: FloatArray, phi: FloatArray, lam: float) -> FloatArray:
    """Return the sums ``a exp(-phi / lam)`` that the penalty asks for."""
    wanted = np.empty(phi.size)
    for i in range(phi.size):
        wanted[i] = np.exp(min(log_a[i] - phi[i] / lam, LOG_MAX))
    return wanted


@allocating_part
def _sweeps(problem: Problem, phi: FloatArray, psi: FloatArray, count: int) -> int:
    """Maximise the dual over phi, then psi, `count` times on ``x_i P_ij y_j``; returns how many sweeps were made.

    Rows and columns whose mass float64 cannot hold stay where they are; the sweeps end once a move gets long.
    """
    plan, lam = problem.plan, problem.lam
    n, m = plan.shape
    share, least, most = lam / (1.0 + lam), np.exp(-LOG_LIMIT), np.exp(LOG_LIMIT)
    x, y, work = np.empty(n), np.empty(m), np.empty(m)
    for i in range(n):
        x[i] = 1.0
    for j in range(m):
        y[j] = 1.0
    want_p, want_q = _wanted(problem.log_a, phi, lam), _wanted(problem.log_b, psi, lam)
    done = 0
    near = True
    while near and done < count:
        done += 1
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
    return done


@allocating_part
def _scaling(p: FloatArray, log_a: FloatArray, phi: FloatArray, lam: float, root: FloatArray) -> FloatArray:
    """Set the inverse root of the Hessian's diagonal (0 where that is as good as 0); returns the scaled gradient."""
    gradient: FloatArray = _wanted(log_a, phi, lam)
    for i in range(p.size):
        diagonal = p[i] + gradient[i] / lam
        root[i] = 1.0 / np.sqrt(diagonal) if TINY < diagonal < 1.0 / TINY else 0.0
        gradient[i] = root[i] * (gradient[i] - p[i])
    return gradient


@allocating_part
def _newton_direction(
    problem: Problem, phi: FloatArray, psi: FloatArray, d_phi: FloatArray, d_psi: FloatArray
) -> float:
    """Set the Newton direction of the dual; returns its slope.

    The larger block is eliminated, the Hessian has unit diagonal. The direction is 0 if the rest is singular.
    """
    plan = problem.plan
    n, m = plan.shape
    g = _scaling(problem.p, problem.log_a, phi, problem.lam, d_phi)
    h = _scaling(problem.q, problem.log_b, psi, problem.lam, d_psi)
    scaled, matrix = np.empty((min(n, m), max(n, m))), np.empty((min(n, m), min(n, m)))
    for k in range(scaled.shape[0]):
        for r in range(scaled.shape[1]):
            scaled[k, r] = d_phi[r] * plan[r, k] * d_psi[k] if n > m else d_phi[k] * plan[k, r] * d_psi[r]
    of_small, of_large = (h, g) if n > m else (g, h)
    small, large, slope = np.empty(min(n, m)), np.empty(max(n, m)), 0.0
    sizes = np.empty(4, np.intc)
    set_to_minus_gram(scaled, small.size, large.size, matrix, sizes)
    for k in range(small.size):
        small[k] = of_small[k]
        for r in range(large.size):
            small[k] -= scaled[k, r] * of_large[r]
        for r in range(k):
            matrix[k, r] = matrix[r, k]
        matrix[k, k] += 1.0 + 1e-14  # a ridge: the potentials are almost free to shift against each other
    solved = solve_linear(matrix, small, small.size, sizes, np.empty(small.size, np.intc))
    for r in range(large.size):
        large[r] = of_large[r]
    for k in range(small.size):
        slope += of_small[k] * small[k]
        for r in range(large.size):
            large[r] -= scaled[k, r] * small[k]
    for r in range(large.size):
        slope += of_large[r] * large[r]
    of_rows, of_columns = (large, small) if n > m else (small, large)
    for i in range(n):
        d_phi[i] *= of_rows[i] if solved else 0.0
    for j in range(m):
        d_psi[j] *= of_columns[j] if solved else 0.0
    return slope if solved else 0.0


@part
def _dual(problem: Problem, phi: FloatArray, psi: FloatArray) -> float:
    total = 0.0
    for i in range(phi.size):
        total -= np.exp(problem.log_a[i]) * np.expm1(min(-phi[i] / problem.lam, LOG_MAX))
    for j in range(psi.size):
        total -= np.exp(problem.log_b[j]) * np.expm1(min(-psi[j] / problem.lam, LOG_MAX))
    total *= problem.lam
    for i in range(problem.p.size):
        total -= problem.p[i]
    return float(total)


@allocating_part
def _newton_step(problem: Problem, phi: FloatArray, psi: FloatArray, gap: float) -> tuple[bool, float, float]:
    """Newton step and a sweep, accepted if they raise the dual; returns whether, the gap, its scale.

    The sweep repairs what a long step breaks. Close to the optimum the dual is flat to rounding: there the gap decides.
    """
    n, m = problem.plan.shape
    d_phi, d_psi, new_phi, new_psi = np.empty(n), np.empty(m), np.empty(n), np.empty(m)
    slope = _newton_direction(problem, phi, psi, d_phi, d_psi)
    longest, dual = 0.0, _dual(problem, phi, psi)
    for i in range(n):
        longest = max(longest, abs(d_phi[i]))
    for j in range(m):
        longest = max(longest, abs(d_psi[j]))
    for limit in NEWTON_MOVES:
        step = min(1.0, limit / longest) if longest > 0.0 else 1.0
        for i in range(n):
            new_phi[i] = phi[i] + step * d_phi[i]
        for j in range(m):
            new_psi[j] = psi[j] + step * d_psi[j]
        _log_sweep(problem, new_phi, new_psi)
        _shift(problem, new_phi, new_psi)
        new_gap, scale = _evaluate(problem, new_phi, new_psi)
        rise = _dual(problem, new_phi, new_psi) - dual
        flat = rise > -FLAT * scale  # else steps that halve the gap and steps that raise the dual may form a cycle
        if (new_gap < 0.5 * gap and flat) or rise > LEAST_RISE * step * slope > 0.0:
            for i in range(n):
                phi[i] = new_phi[i]
            for j in range(m):
                psi[j] = new_psi[j]
            return True, new_gap, scale
        if step == 1.0 and longest < NEWTON_MOVES[-1]:
            break
    new_gap, scale = _evaluate(problem, phi, psi)
    return False, new_gap, scale


@kernel
def solve_at(problem: Problem, phi: FloatArray, psi: FloatArray, tol: float, max_iter: int) -> tuple[int, int, float]:
    """Maximise the dual from phi, psi, which are overwritten; returns a code, the iterations and the gap.

    Sweeps in logarithms come first and whenever a move is long; then rounds of multiplicative sweeps. Newton steps
    are tried where the rate of the sweeps predicts that they cost less.
    """
    price = NEWTON_SWEEPS * min(problem.c.shape)
    quiet, best, last, count = 0, np.inf, np.inf, 0
    while True:
        used = 0
        move = np.inf
        while move > LOG_LIMIT and (used == 0 or count < max_iter):
            move = _log_sweep(problem, phi, psi)
            _shift(problem, phi, psi)
            used, count = used + 1, count + 1
        gap, scale = _evaluate(problem, phi, psi)
        if gap > tol * scale and count < max_iter:
            used = _sweeps(problem, phi, psi, min(SWEEPS, max_iter - count))
            _shift(problem, phi, psi)
            count, last = count + used, gap
            gap, scale = _evaluate(problem, phi, psi)
        rate = np.log(last / gap) / used if 0.0 < gap < last < np.inf else 0.0
        better = True
        while better and gap > tol * scale and count < max_iter and np.log(gap / (tol * scale)) > rate * price:
            better, gap, scale = _newton_step(problem, phi, psi, gap)
            count += 1
        if gap <= tol * scale:
            return CONVERGED, count, gap
        quiet = 0 if gap < 0.9 * best else quiet + 1
        best = min(best, gap)
        if count >= max_iter or quiet > STALL_ROUNDS:
            return (OUT_OF_ITERATIONS if count >= max_iter else STALLED), count, gap
