"""Unbalanced entropic transport: the marginals are penalised, not constrained (docs/which-solver.md, Unbalanced).

    min <M, P> + eps * R(P) + tau * KL(P 1 | a) + tau * KL(P' 1 | b)

has the minimiser ``P_ij = r_ij exp((f_i + g_j - M_ij) / eps)``, r = 1 or a b', and the concave dual

    D(f, g) = tau * sum a (1 - exp(-f / tau)) + tau * sum b (1 - exp(-g / tau)) - eps * sum P   (+ eps * sum r).

(Chizat, Peyre, Schmitzer, Vialard 2018, section 3.) For the plan P of any potentials the duality gap has a closed
form that needs no subtraction of large numbers (Fenchel-Young, term by term):

    gap = tau * KL(P 1 | a exp(-f / tau)) + tau * KL(P' 1 | b exp(-g / tau)).

It decides when to stop. D is maximised by Sinkhorn sweeps (each contracts by ``(tau / (tau + eps))**2``), by the exact
step along (f + t, g - t), which removes their slowest mode (Sejourne, Vialard, Peyre 2022), and, where tau is large
compared with eps and the sweeps are slow all the same, by Newton steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from warmpot._checks import check_choice, check_cost, check_count, check_positive, check_weights
from warmpot._interop import kind_of
from warmpot._typing import Array, FloatArray
from warmpot.errors import InputError
from warmpot.transport.certify import in_callers_kind
from warmpot.transport.problem import CertifiedPlan, Potentials, Status

__all__ = ["UnbalancedSolution", "solve_unbalanced"]

DEFAULT_MAX_ITER = 100_000
SMALLEST_EPS = 1e-12  # of the cost range: below, float64 cannot resolve M / eps
LARGEST_RATIO = 1e12  # of tau and eps, either way
LARGEST_LOG_MASS = 500.0
LARGEST_LOG = 690.0  # of the objective
ANNEAL_FACTOR = 4.0
ANNEAL_COST = 40.0  # start at a larger eps only where the cost range is more than this many eps ...
ANNEAL_TAU = 16.0  # ... and tau more than this many: below, the penalty alone makes the sweeps contract
ANNEAL_TOL = 1e-4  # tolerance of all but the last eps

STATUSES = (Status.OPTIMAL, Status.MAX_ITER, Status.ROUNDING)


@dataclass(frozen=True, repr=False)
class UnbalancedSolution(CertifiedPlan[Any]):
    """A plan of the unbalanced problem with its certificate.

    The attributes are those of `Solution` without `slope` and `residuals`: there is no prescribed mass and no
    constraint. The gap is computed from its closed form, exact where ``objective - dual_value`` would be all rounding.
    The potentials are f and g (as u and v), of any sign; ``-inf`` for a weight of 0, ``+inf`` where all pairs are
    forbidden.
    """

    def _summary(self) -> str:
        return f"mass={float(self.p.sum()):.6g}, gap={self.gap:.2g}"


class _Problem(NamedTuple):
    cost: FloatArray
    a: FloatArray
    b: FloatArray
    tau: float
    eps: float
    relative: bool  # whether R is relative to a b'


class _Answer(NamedTuple):
    plan: FloatArray
    f: FloatArray
    g: FloatArray
    gap: float
    status: Status
    n_iter: int


def solve_unbalanced(
    cost: Array,
    *,
    a: Array | None = None,
    b: Array | None = None,
    tau: float,
    eps: float,
    divergence: str = "kl",
    regularizer: str = "entropy",
    tol: float = 1e-9,
    max_iter: int = DEFAULT_MAX_ITER,
    throw: bool = True,
) -> UnbalancedSolution:
    r"""Move mass at least cost, with marginals that are penalised instead of prescribed.

    .. math:: \min_{P \ge 0} \langle M, P \rangle + \varepsilon R(P)
              + \tau\, \mathrm{KL}(P 1 \mid a) + \tau\, \mathrm{KL}(P^\top 1 \mid b),
              \quad \mathrm{KL}(x \mid y) = \sum x \log(x / y) - x + y

    Parameters
    ----------
    cost : (n_s, n_t) array or tensor
        ``+inf`` marks a forbidden pair.
    a, b : (n_s,) and (n_t,) arrays, optional
        The marginals; uniform with total 1 by default. The totals may differ.
    tau : float
        Weight of both penalties, in units of the cost.
    eps : float
        Regularisation, in units of the cost.
    divergence : {"kl"}
        Penalty of the marginals.
    regularizer : {"entropy", "kl"}
        ``"entropy"``: :math:`R = \sum P (\log P - 1)`, the setting of JUMBOT (Fatras et al. 2021) and the default of
        POT before 0.9.5. ``"kl"``: :math:`R = \mathrm{KL}(P \mid a b^\top)`, the default of POT since. The two move
        different masses.
    tol : float
        Duality gap relative to ``(eps + 2 tau) * mass``, which is what the optimal plan gains over moving nothing, or
        to ``|objective| + eps * mass`` (without the constant of R) where that is less. The plan is then within about
        ``sqrt(tol)`` of its mass.
    max_iter : int
        Limit on sweeps and Newton steps.
    throw : bool
        Raise `NotConvergedError` unless the status is OPTIMAL; False returns the last plan. Bad input always raises.

    Returns
    -------
    UnbalancedSolution
        In the library, dtype and device of `cost`; all work is done in float64 on the CPU.

    Examples
    --------
    The second target sample is far from everything, so nothing is sent there:

    >>> import numpy as np
    >>> solution = solve_unbalanced(np.array([[0.0, 9.0], [0.1, 9.0]]), tau=1.0, eps=0.1)
    >>> solution.q.round(3)
    array([0.726, 0.   ])
    >>> solution.status.name
    'OPTIMAL'
    """
    check_choice("divergence", divergence, ("kl",))
    relative = check_choice("regularizer", regularizer, ("entropy", "kl")) == "kl"
    tau, eps, tol = check_positive("tau", tau), check_positive("eps", eps), check_positive("tol", tol, maximum=0.1)
    max_iter = check_count("max_iter", max_iter)
    values = check_cost("cost", cost)
    weights = check_weights("a", a, values.shape[0]), check_weights("b", b, values.shape[1])
    problem = _Problem(values, *weights, tau, eps, relative)
    answer, kind = _solve(problem, tol, max_iter), kind_of(cost)
    total, dual = _objective_and_dual(problem, answer)
    plan = kind.wrap(answer.plan)
    value, objective = in_callers_kind(cost, plan, answer.plan, values, total, kind)
    solution = UnbalancedSolution(
        plan=plan,
        p=kind.wrap(answer.plan.sum(axis=1)),
        q=kind.wrap(answer.plan.sum(axis=0)),
        value=value,
        objective=objective,
        dual_value=min(dual, total),  # they may cross by rounding
        gap=answer.gap,
        status=answer.status,
        n_iter=answer.n_iter,
        potentials=Potentials(kind.wrap(answer.f), kind.wrap(answer.g)),
    )
    return solution.or_raise() if throw else solution


def _solve(problem: _Problem, tol: float, max_iter: int) -> _Answer:
    """Solve on the rows and columns that can carry mass; the others have a plan of 0 in closed form."""
    a, b = problem.a, problem.b
    allowed = (problem.cost < np.inf) & (a > 0)[:, None] & (b > 0)
    rows, cols = allowed.any(axis=1), allowed.any(axis=0)
    if rows.all() and cols.all():
        return _anneal(problem, tol, max_iter)
    plan = np.zeros(problem.cost.shape)
    f, g = np.where(a > 0, np.inf, -np.inf), np.where(b > 0, np.inf, -np.inf)
    if not rows.any():
        return _Answer(plan, f, g, 0.0, Status.OPTIMAL, 0)
    live = np.ix_(rows, cols)
    answer = _anneal(problem._replace(cost=problem.cost[live], a=a[rows], b=b[cols]), tol, max_iter)
    plan[live], f[rows], g[cols] = answer.plan, answer.f, answer.g
    return answer._replace(plan=plan, f=f, g=g)


def _anneal(problem: _Problem, tol: float, max_iter: int) -> _Answer:
    """Solve at a falling sequence of eps, each from the potentials of the last."""
    from warmpot.transport import _unbalanced as kernels

    cost, a, b, tau, eps, relative = problem
    log_a, log_b = np.log(a), np.log(b)
    room = np.empty(cost.shape), np.empty(a.size), np.empty(b.size)
    f, g, code, count, gap = np.zeros(0), np.zeros(0), 0, 0, 0.0
    for now in _stages(problem):
        c = cost / now
        if relative:
            c -= log_a[:, None] + log_b
        if not f.size:
            level = now * _best_level(c, a, b, tau / now)
            f, g = np.full(a.size, level), np.full(b.size, level)
        phi, psi = f / now, g / now
        scaled = kernels.Problem(c, log_a, log_b, tau / now, *room)
        limit = tol if now == eps else max(tol, ANNEAL_TOL)
        code, used, gap = kernels.solve_at(scaled, phi, psi, limit, max(1, max_iter - count))
        count += used
        f, g = now * phi, now * psi
    return _Answer(room[0], f, g, eps * gap, STATUSES[code], count)


def _stages(problem: _Problem) -> list[float]:
    """Return the values of eps to solve at; refuse problems that float64 cannot hold."""
    cost, a, b, tau, eps, relative = problem
    finite = cost[cost < np.inf]
    low, span = float(finite.min()), float(np.ptp(finite))
    reach = max(span, abs(low), abs(low + span))
    if eps < SMALLEST_EPS * reach:
        allowed = f"eps >= {SMALLEST_EPS * reach:.3g}, 1e-12 of the costs"
        raise InputError("eps", got=eps, allowed=allowed, remedy="Raise eps or rescale the costs.")
    if not eps / LARGEST_RATIO <= tau <= eps * LARGEST_RATIO:
        allowed = f"between 1e-12 and 1e12 times eps = {eps:g}"
        raise InputError("tau", got=tau, allowed=allowed, remedy="Bring tau and eps closer together.")
    # No multiple of the optimal plan is better than itself: with Jensen's inequality that bounds its mass.
    totals = float(np.log(a.sum()) + np.log(b.sum()))
    log_reference = totals if relative else float(np.log(cost.size))
    log_mass = (-low + eps * log_reference + tau * totals) / (eps + 2 * tau)
    most = min(LARGEST_LOG_MASS, LARGEST_LOG - _log_at_least_1(eps + 2 * tau))  # so that the objective is finite
    if log_mass > most:
        got = f"costs down to {low:g}, for which the mass of the plan may reach exp({log_mass:.3g})"
        allowed = f"a mass up to exp({most:.3g})"
        raise InputError("cost", got=got, allowed=allowed, remedy="Add a constant to the costs, or raise tau.")
    stages = [eps]
    while stages[-1] * ANNEAL_FACTOR * ANNEAL_COST < span and stages[-1] * ANNEAL_FACTOR * ANNEAL_TAU < tau:
        stages.append(stages[-1] * ANNEAL_FACTOR)
    return stages[::-1]


def _best_level(c: FloatArray, a: FloatArray, b: FloatArray, lam: float) -> float:
    """Return the best constant potential, in units of eps: it gives the first plan about the right mass."""
    top = float((-c).max())
    log_total = top + float(np.log(np.exp(-c - top).sum()))
    return (float(np.log(0.5 * (a.sum() + b.sum()))) - log_total) / (2.0 + 1.0 / lam)


def _objective_and_dual(problem: _Problem, answer: _Answer) -> tuple[float, float]:
    from warmpot.transport._kernels import measure
    from warmpot.transport._unbalanced import kl_divergence as kl

    cost, a, b, tau, eps, relative = problem
    p, q = answer.plan.sum(axis=1), answer.plan.sum(axis=0)
    value, entropy = measure(answer.plan, cost)
    constant = 0.0
    if relative:
        entropy = kl(answer.plan.ravel(), np.outer(a, b).ravel())
        constant = eps * float(a.sum()) * float(b.sum())
    objective = value + eps * entropy + tau * (kl(p, a) + kl(q, b))
    penalties = _conjugate(a, answer.f, tau) + _conjugate(b, answer.g, tau)
    return objective, -tau * penalties - eps * float(p.sum()) + constant


def _conjugate(weights: FloatArray, potentials: FloatArray, tau: float) -> float:
    """Return ``sum a (exp(-f / tau) - 1)``; where a weight is 0 its potential is -inf and the term 0."""
    a, exponent = weights[weights > 0], -potentials[weights > 0] / tau
    # As the weight may be tiny where the exponential is huge, both are multiplied in logarithms. The most that they
    # can be at an optimum is limited by `_stages`.
    large = np.exp(np.minimum(np.log(a) + exponent, LARGEST_LOG - _log_at_least_1(tau))) - a
    return float(np.where(exponent > 1.0, large, a * np.expm1(np.minimum(exponent, 1.0))).sum())


def _log_at_least_1(x: float) -> float:
    return float(np.log(max(x, 1.0)))
