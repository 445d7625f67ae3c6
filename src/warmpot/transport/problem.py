"""The partial transport problem, checked once and brought to float64.

    PW_mass(a, b) = min <C, P>   subject to   P >= 0,  P 1 <= a,  P' 1 <= b,  sum(P) = mass

(the paper's partial Wasserstein problem). Every certificate here is a feasible point of its linear dual

    max  mass * t - <a, u> - <b, v>   subject to   u, v >= 0  and  t - u_i - v_j <= C_ij,

where t is the slope of the value in the mass.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from warmpot._checks import check_cost, check_mass, check_weights
from warmpot._interop import kind_of
from warmpot._typing import BoolArray, FloatArray
from warmpot.errors import InfeasibleError
from warmpot.transport.solution import Residuals
from warmpot.transport.status import Status

__all__ = ["Answer", "PartialProblem", "check_masses", "infeasible", "residuals_of"]


class Answer(NamedTuple):
    """What a solver returns: a float64 plan, dual variables, the objective, its proven lower bound, the mass.

    The mass is that of the problem, or what forbidden pairs leave of it where the two differ by rounding.
    """

    plan: FloatArray
    u: FloatArray
    v: FloatArray
    t: float
    objective: float
    dual_value: float
    status: Status
    n_iter: int
    mass: float


@dataclass(frozen=True)
class PartialProblem:
    """A feasible problem in float64; `cost` may hold ``+inf`` for forbidden pairs.

    Attributes
    ----------
    cost : (n_s, n_t) array
    a, b : (n_s,) and (n_t,) arrays
        Capacities of rows and columns.
    mass : float
        Mass to move, set to the feasible maximum where it differed from it by rounding only.
    forbidden : bool
        Whether any cost is ``+inf``.
    """

    cost: FloatArray
    a: FloatArray
    b: FloatArray
    mass: float
    forbidden: bool

    @classmethod
    def checked(cls, cost: object, a: object | None, b: object | None, mass: object) -> PartialProblem:
        """Check the arguments of a solver; see `warmpot._checks` for what is refused."""
        c = check_cost("cost", cost)
        return cls(c, *check_masses(a, b, mass, c.shape), bool(c.max() == np.inf))

    @property
    def live(self) -> tuple[BoolArray, BoolArray] | None:
        """Masks of rows and columns with positive weight, or None when all have it."""
        rows, cols = self.a > 0, self.b > 0
        return None if rows.all() and cols.all() else (rows, cols)

    def restrict(self, rows: BoolArray, cols: BoolArray) -> PartialProblem:
        """Keep only the given rows and columns."""
        cost = np.ascontiguousarray(self.cost[np.ix_(rows, cols)])
        return PartialProblem(cost, self.a[rows], self.b[cols], self.mass, bool(cost.max() == np.inf))

    def extend(self, answer: Answer, rows: BoolArray, cols: BoolArray) -> Answer:
        """Undo `restrict`: rows and columns without weight move nothing and get the smallest feasible potential."""
        plan, u, v = np.zeros(self.cost.shape), np.zeros(self.a.size), np.zeros(self.b.size)
        plan[np.ix_(rows, cols)], u[rows], v[cols] = answer.plan, answer.u, answer.v
        v[~cols] = np.maximum(0.0, (answer.t - u[:, None] - self.cost[:, ~cols])[rows].max(axis=0, initial=0.0))
        u[~rows] = np.maximum(0.0, (answer.t - v - self.cost[~rows]).max(axis=1, initial=0.0))
        return answer._replace(plan=plan, u=u, v=v)


def infeasible(mass: float, movable: float) -> InfeasibleError:
    """Return the error for forbidden pairs that leave too little mass to move."""
    allowed = f"0 < mass <= {movable!r}, all that the pairs of finite cost can move"
    remedy = "Lower the mass or allow more pairs (fewer +inf costs)."
    return InfeasibleError("mass", got=repr(mass), allowed=allowed, remedy=remedy, mass=mass, movable=movable)


def check_masses(
    a: object | None, b: object | None, mass: object, shape: tuple[int, ...]
) -> tuple[FloatArray, FloatArray, float]:
    """Check both weights and the mass, setting the mass to the maximum where it exceeds it by rounding only."""
    wa, wb = check_weights("a", a, shape[0]), check_weights("b", b, shape[1])
    coarsest = max((kind_of(w).resolution for w in (a, b) if w is not None), default=0.0)
    rtol = min(max(1e-9, 8 * coarsest), 1e-2)
    return wa, wb, check_mass(mass, float(min(wa.sum(), wb.sum())), rtol)


def residuals_of(p: FloatArray, q: FloatArray, a: FloatArray, b: FloatArray, mass: float) -> Residuals:
    """Constraint violations of a plan with row sums `p` and column sums `q`, relative to `mass`."""
    return Residuals(
        rows=max(0.0, float((p - a).max())) / mass,
        cols=max(0.0, float((q - b).max())) / mass,
        mass=abs(float(p.sum()) - mass) / mass,
    )
