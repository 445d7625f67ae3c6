"""Round any plan to a feasible one, and prove how good any plan is."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import coo_array, csr_array, issparse

from warmpot._checks import LARGEST, check_features, check_matrix, check_nonnegative_matrix, check_same_shape
from warmpot._interop import Kind, is_torch, kind_of, to_numpy
from warmpot._typing import Array, FloatArray
from warmpot.errors import InputError
from warmpot.transport.problem import PartialProblem, Potentials, Residuals, check_masses, proven_bound, residuals_of

__all__ = [
    "FEASIBLE",
    "Certificate",
    "bound_from",
    "certify",
    "in_callers_kind",
    "linear_cost",
    "lower_bound",
    "round_sparse",
    "round_to_feasible",
    "trim_sparse",
]

FEASIBLE = 1e-12  # largest relative violation of a plan that counts as feasible


class Certificate(NamedTuple):
    """What can be proven about a plan.

    Attributes
    ----------
    feasible : bool
        Whether all constraints hold to 1e-12 of the mass (coarser for coarser dtypes). The gap of an infeasible
        plan proves nothing.
    value : float
        Linear cost of the plan; ``inf`` if it uses a forbidden pair.
    dual_value : float
        Proven lower bound of the optimal value.
    gap : float
        ``value - dual_value``: the plan is at most this far from optimal.
    residuals : Residuals
        Constraint violations relative to the mass.
    potentials : Potentials
        The dual-feasible u, v behind `dual_value`.
    slope : float
        The dual variable t behind it.
    """

    feasible: bool
    value: float
    dual_value: float
    gap: float
    residuals: Residuals
    potentials: Potentials
    slope: float


def lower_bound(problem: PartialProblem, v: FloatArray) -> tuple[float, FloatArray, float]:
    """Prove a lower bound of the optimal value from column potentials ``v >= 0`` alone; returns it, u and t."""
    return bound_from((problem.cost + v).min(axis=1), problem.a, problem.b, problem.mass, v)


def bound_from(
    lowest: FloatArray, a: FloatArray, b: FloatArray, mass: float, v: FloatArray
) -> tuple[float, FloatArray, float]:
    """Prove a lower bound of the optimal value from ``v >= 0`` and ``lowest_i = min_j C_ij + v_j``.

    For fixed v the best row potentials are ``u_i = max(0, t - lowest_i)``, and the best t is the quantile of `lowest`
    that collects the mass; so any v, from any solver, gives a valid bound. Returns it, u and t.
    """
    order = lowest.argsort()
    filled = int(a[order].cumsum().searchsorted(mass * (1 - FEASIBLE)))
    t = float(lowest[order[min(filled, order.size - 1)]])
    if t == np.inf:  # forbidden pairs do not allow this mass; the bound holds for any t
        t = float(lowest.max(where=lowest < np.inf, initial=lowest.min()))
        t = t if t < np.inf else 0.0
    u = np.maximum(0.0, t - lowest)
    return proven_bound(mass, t, a, u, b, v), u, t


def certify(
    plan: Any, cost: Array, a: object | None, b: object | None, mass: float, *, potentials: Potentials | None = None
) -> Certificate:
    """Prove how far any plan is from feasible and from optimal.

    Parameters
    ----------
    plan : (n_s, n_t) array, tensor or scipy sparse matrix
        Non-negative.
    cost : (n_s, n_t) array or tensor
        ``+inf`` for forbidden pairs.
    a, b : arrays or None
        Capacities; None means uniform with total 1.
    mass : float
        Mass the plan should move.
    potentials : Potentials, optional
        Dual variables of a solve of this problem (any eps): the bound then costs one pass over the cost. Without
        them the exact problem is solved, and the gap is the true suboptimality.

    Examples
    --------
    >>> cost = np.array([[0.0, 1.0], [1.0, 0.0]])
    >>> certify(np.full((2, 2), 0.25), cost, None, None, 1.0).gap
    0.5
    """
    problem = PartialProblem.checked(cost, a, b, mass)
    if issparse(plan):
        check_same_shape("plan", plan.shape, problem.cost.shape)  # first: the dense form of another may need all memory
        plan = plan.toarray()
    values = check_nonnegative_matrix("plan", plan, problem.cost.shape)
    resolution = kind_of(plan).resolution
    residuals = residuals_of(values.sum(axis=1), values.sum(axis=0), problem.a, problem.b, problem.mass)
    if potentials is None:
        from warmpot.transport.exact import solve_exact

        potentials = Potentials(*solve_exact(problem)[1:3])
    v = _check_potential(potentials, problem.b.size)
    dual_value, u, t = lower_bound(problem, v)
    value = linear_cost(values, problem.cost)
    feasible = bool(residuals.worst <= max(FEASIBLE, 64 * resolution) and value < np.inf)
    return Certificate(feasible, value, dual_value, value - dual_value, residuals, Potentials(u, v), t)


def _check_potential(potentials: Potentials, n_cols: int) -> FloatArray:
    """Return column potentials as they can be used in `lower_bound`: finite and non-negative."""
    try:
        v = check_matrix("potentials.v", np.atleast_2d(to_numpy(potentials.v)), width=n_cols)
    except (AttributeError, TypeError, ValueError) as error:
        remedy = "Pass the potentials of a Solution of this problem, or leave them out."
        got, allowed = f"{type(potentials).__name__} ({error})", f"Potentials with {n_cols} finite v"
        raise InputError("potentials", got=got, allowed=allowed, remedy=remedy) from error
    check_features("potentials.v", v, LARGEST)
    positive: FloatArray = np.maximum(0.0, v[0])
    return positive


def linear_cost(plan: FloatArray, cost: FloatArray) -> float:
    """``<cost, plan>`` where a forbidden pair costs nothing unless it is used."""
    total = float(np.vdot(plan, cost))
    if np.isfinite(total):
        return total
    used = plan > 0
    return float(plan[used] @ cost[used])


def in_callers_kind(
    cost: Any, result: Any, plan: FloatArray, values: FloatArray, objective: Any, kind: Kind
) -> tuple[Any, Any]:
    """Return linear cost and objective in the caller's library, as `cost` and the plan `result` are.

    `plan` and `values` are plan and cost in float64. A torch cost stays in the graph: value and objective have the
    plan as their gradient. For a torch batch of costs, plans and objectives, one number per problem.
    """
    if not is_torch(cost):
        return linear_cost(plan, values), objective
    paid = (result.double() * cost.double().masked_fill(result == 0, 0.0)).sum(dim=(-2, -1))  # keeps 0 * inf out
    amount = paid.detach().cpu().numpy()
    kind.check_range(np.append(amount, objective))
    return paid.to(kind.dtype), (paid + paid.new_tensor(objective - amount)).to(kind.dtype)


def round_to_feasible(plan: Any, a: object | None, b: object | None, mass: float) -> Any:
    """Turn any non-negative matrix into a feasible plan close to it.

    Rows, columns and the whole are scaled down to their limits; the mass then missing is spread over the capacity
    that is left (dense plans: in proportion to the room; sparse plans: over at most n_s + n_t pairs). The change
    is of the order of the plan's violations. Forbidden pairs are ignored.

    Parameters
    ----------
    plan : (n_s, n_t) array, tensor or scipy sparse matrix
        Non-negative.
    a, b : arrays or None
        Capacities; None means uniform with total 1.
    mass : float
        Mass the plan must move.

    Returns
    -------
    plan of the same library, dtype and device (``csr_array`` for sparse input)

    Examples
    --------
    >>> round_to_feasible(np.array([[0.9, 0.0], [0.0, 0.3]]), None, None, 1.0)
    array([[0.5, 0. ],
           [0. , 0.5]])
    """
    from warmpot.transport._kernels import round_plan

    if issparse(plan):
        return _round_sparse(csr_array(plan), a, b, mass)
    values = check_nonnegative_matrix("plan", plan)
    wa, wb, mass = check_masses(a, b, mass, values.shape)
    rounded = values.copy()
    round_plan(rounded, wa, wb, mass, True)
    return kind_of(plan).wrap_plan(rounded, mass)


def trim_sparse(plan: csr_array, a: FloatArray, b: FloatArray, mass: float) -> tuple[csr_array, float]:
    """Scale rows, columns and the whole of a sparse plan down to their limits; returns it and the mass it lacks."""
    plan = plan.copy()
    rows = np.repeat(np.arange(a.size), np.diff(plan.indptr))
    for index, limit in ((rows, a), (plan.indices, b)):
        sums = np.bincount(index, plan.data, limit.size).astype(float)  # integers where nothing is stored
        plan.data *= np.divide(limit, sums, out=np.ones_like(sums), where=sums > limit)[index]
    total = float(plan.data.sum())
    if total > mass:
        plan.data *= mass / total
    return plan, max(0.0, mass - total)


def _round_sparse(plan: csr_array, a: object | None, b: object | None, mass: float) -> csr_array:
    wa, wb, mass = check_masses(a, b, mass, plan.shape)
    plan.sum_duplicates()
    if plan.nnz:
        check_nonnegative_matrix("plan", plan.data[None])
    return round_sparse(plan.astype(np.float64), wa, wb, mass)


def round_sparse(plan: csr_array, a: FloatArray, b: FloatArray, mass: float) -> csr_array:
    """Turn a sparse plan into a feasible one, see `round_to_feasible`; arguments in float64, and checked."""
    plan, missing = trim_sparse(plan, a, b, mass)
    room_a, room_b = np.maximum(0.0, a - plan.sum(axis=1)), np.maximum(0.0, b - plan.sum(axis=0))
    if missing <= 0 or not (room_a.any() and room_b.any()):
        return plan
    return csr_array(plan + _north_west(room_a, room_b, missing))


def _north_west(a: FloatArray, b: FloatArray, mass: float) -> coo_array:
    """Couple `mass` of `a` with `mass` of `b`, each in proportion, along the monotone staircase."""
    ends_a, ends_b = np.cumsum(a) * (mass / a.sum()), np.cumsum(b) * (mass / b.sum())
    cuts = np.union1d(ends_a, ends_b)
    size = np.diff(cuts, prepend=0.0)
    middle = cuts - size / 2
    rows = np.minimum(np.searchsorted(ends_a, middle), a.size - 1)
    cols = np.minimum(np.searchsorted(ends_b, middle), b.size - 1)
    return coo_array((size, (rows, cols)), shape=(a.size, b.size))
