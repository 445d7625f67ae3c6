"""The partial transport problem, checked once and brought to float64, and its solution.

    PW_mass(a, b) = min <C, P>   subject to   P >= 0,  P 1 <= a,  P' 1 <= b,  sum(P) = mass

(the paper's partial Wasserstein problem). Every certificate here is a feasible point of its linear dual

    max  mass * t - <a, u> - <b, v>   subject to   u, v >= 0  and  t - u_i - v_j <= C_ij,

where t is the slope of the value in the mass.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import Enum
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from warmpot._checks import check_cost, check_fraction, check_mass, check_weights
from warmpot._interop import kind_of
from warmpot._typing import Array, BoolArray, FloatArray
from warmpot.errors import InfeasibleError, InputError, NotConvergedError

__all__ = [
    "Answer",
    "BatchSolution",
    "CertifiedPlan",
    "PartialProblem",
    "Potentials",
    "Residuals",
    "Solution",
    "Status",
    "check_masses",
    "infeasible",
    "proven_bound",
    "residuals_of",
    "source_capacities",
    "writable",
]

ROUNDING = 4 * float(np.finfo(np.float64).eps)  # of sums such as a plan's cost, relative to the sum of magnitudes

PlanT = TypeVar("PlanT")
PlanSelf = TypeVar("PlanSelf", bound="CertifiedPlan[Any]")


class Status(Enum):
    """Outcome of a solve; the value is the remedy, ready to be shown to a user.

    Examples
    --------
    >>> Status.OPTIMAL.ok, Status.MAX_ITER.ok
    (True, False)
    >>> print(Status.STALLED.remedy)
    float64 can go no further at this eps: raise eps, loosen tol, or pass eps=None for the exact solver.
    """

    OPTIMAL = "optimal: gap and residuals are within the tolerance."
    MAX_ITER = "max_iter was reached before tol: raise max_iter, loosen tol, or raise eps."
    STALLED = "float64 can go no further at this eps: raise eps, loosen tol, or pass eps=None for the exact solver."
    ROUNDING = "rounding of the costs leaves a gap above tol: loosen tol, or bring the costs closer to one scale."

    @property
    def ok(self) -> bool:
        """Whether the solution meets its tolerance."""
        return self is Status.OPTIMAL

    @property
    def remedy(self) -> str:
        """What a user can do."""
        return str(self.value)


class Potentials(NamedTuple):
    """Dual variables of the row and column constraints, both >= 0, in units of the cost."""

    u: Any
    v: Any


class Residuals(NamedTuple):
    """Largest violation of each constraint, relative to the mass; all 0 for a feasible plan."""

    rows: float
    cols: float
    mass: float

    @property
    def worst(self) -> float:
        """The largest of the three."""
        return max(self)


@dataclass(frozen=True, repr=False)
class CertifiedPlan(Generic[PlanT]):
    """What every solver returns: a plan and what is proven about it; see `Solution` and `UnbalancedSolution`."""

    plan: PlanT
    p: Any
    q: Any
    value: Any
    objective: Any
    dual_value: float
    gap: float
    status: Status
    n_iter: int
    potentials: Potentials

    def __repr__(self) -> str:
        n, m = self.plan.shape  # type: ignore[attr-defined]
        value = self.value.detach() if hasattr(self.value, "detach") else self.value
        return (
            f"{type(self).__name__}({n} x {m}, {self.status.name}, value={float(value):.6g}, "
            f"{self._summary()}, n_iter={self.n_iter})"
        )

    def _summary(self) -> str:
        raise NotImplementedError

    def or_raise(self: PlanSelf) -> PlanSelf:
        """Return self, or raise `NotConvergedError` when the status is not OPTIMAL."""
        if not self.status.ok:
            message = f"{self.status.remedy} Reached: gap {self.gap:.3g} after {self.n_iter} iterations."
            raise NotConvergedError(message, solution=self)
        return self


@dataclass(frozen=True, repr=False)
class Solution(CertifiedPlan[PlanT]):
    """A partial transport plan with its certificate.

    Attributes
    ----------
    plan : array or scipy.sparse.csr_array, shape (n_s, n_t)
        How much of each source sample goes to each target sample.
    p, q : arrays, shapes (n_s,) and (n_t,)
        Row and column sums of the plan: the weights of source and target samples.
    value : float or 0-d tensor
        Linear cost ``<C, plan>``. With a torch cost that requires grad it is differentiable: its gradient is the
        plan (envelope theorem; the plan itself is detached).
    objective : float or 0-d tensor
        What the solver minimised: `value` for the exact problem, ``value + eps * sum P (log P - 1)`` for the
        entropic one. Its gradient in the cost is the plan in both cases.
    dual_value : float
        A proven lower bound of the minimal objective.
    gap : float
        ``objective - dual_value >= 0``; for the exact problem it includes the rounding of both.
    status : Status
        How the solve ended; ``status.remedy`` is what to do about it.
    n_iter : int
        Iterations (entropic: sweeps and Newton steps; exact: pricing rounds).
    potentials : Potentials
        Dual variables u, v >= 0 of the rows and columns.
    slope : float
        The dual variable t of the mass: d objective / d mass (one element of the subdifferential at a kink).
    residuals : Residuals
        Constraint violations of `plan` as computed in float64.
    """

    slope: float
    residuals: Residuals

    def _summary(self) -> str:
        return f"gap={self.gap:.2g}, slope={self.slope:.6g}"


@dataclass(frozen=True)
class BatchSolution:
    """Solutions of a batch; every array has a leading batch axis, indexing gives one `Solution`.

    Attributes are those of `Solution`; `dual_value`, `gap`, `slope` are float64 arrays, `residuals`, `status` and
    `n_iter` tuples with one entry per problem.
    """

    plan: Any
    p: Any
    q: Any
    value: Any
    objective: Any
    dual_value: FloatArray
    gap: FloatArray
    status: tuple[Status, ...]
    n_iter: tuple[int, ...]
    potentials: Potentials
    slope: FloatArray
    residuals: tuple[Residuals, ...]

    def __len__(self) -> int:
        return len(self.status)

    def __getitem__(self, k: int) -> Solution[Array]:
        parts = {each.name: getattr(self, each.name)[k] for each in fields(self) if each.name != "potentials"}
        parts |= {name: float(parts[name]) for name in ("dual_value", "gap", "slope")}
        return Solution(**parts, potentials=Potentials(self.potentials.u[k], self.potentials.v[k]))


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
    """A feasible problem in float64: costs, capacities of rows and columns, mass to move.

    The mass was set to the feasible maximum where it differed from it by rounding only; `forbidden` is whether any
    cost is ``+inf``.
    """

    cost: FloatArray
    a: FloatArray
    b: FloatArray
    mass: float
    forbidden: bool

    @classmethod
    def checked(
        cls, cost: object, a: object | None, b: object | None, mass: object, beta: float | None = None
    ) -> PartialProblem:
        """Check the arguments of a solver; see `warmpot._checks` for what is refused."""
        c = writable(check_cost("cost", cost))
        a = a if beta is None else source_capacities(a, beta, c.shape[0])
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


def writable(x: FloatArray) -> FloatArray:
    """Return `x`, or a copy if it may not be written to: for such arrays the kernels would be compiled once more."""
    return x if x.flags.writeable else x.copy()


def proven_bound(mass: float, t: float, a: FloatArray, u: FloatArray, b: FloatArray, v: FloatArray) -> float:
    """Return ``mass * t - <a, u> - <b, v>`` less what rounding may have added to it, or taken off the plan's cost."""
    value, rows, cols = mass * t, float(a @ u), float(b @ v)
    return value - rows - cols - ROUNDING * (abs(value) + rows + cols)


def infeasible(mass: float, movable: float) -> InfeasibleError:
    """Return the error for forbidden pairs that leave too little mass to move."""
    allowed = f"0 < mass <= {movable!r}, all that the pairs of finite cost can move"
    remedy = "Lower the mass or allow more pairs (fewer +inf costs)."
    return InfeasibleError("mass", got=repr(mass), allowed=allowed, remedy=remedy, mass=mass, movable=movable)


def check_masses(
    a: object | None, b: object | None, mass: object, shape: tuple[int, ...]
) -> tuple[FloatArray, FloatArray, float]:
    """Check both weights and the mass, setting the mass to the maximum where it exceeds it by rounding only."""
    wa, wb = writable(check_weights("a", a, shape[0])), writable(check_weights("b", b, shape[1]))
    coarsest = max((kind_of(w).resolution for w in (a, b) if w is not None), default=0.0)
    rtol = min(max(1e-9, 8 * coarsest), 1e-2)
    return wa, wb, check_mass(mass, float(min(wa.sum(), wb.sum())), rtol)


def source_capacities(a: Any, beta: float | None, n: int) -> Any:
    """Return the capacities of `n` source samples: `a`, or ``1 / (beta n)`` each; one of the two must be given."""
    if a is not None and beta is None:
        return a
    if a is not None:
        remedy = "Pass beta for equal capacities, or a for your own."
        raise InputError("beta", got=f"{beta} and a", allowed="one of beta and a", remedy=remedy)
    remedy = "It is the fraction of the source that is expected to be useful: pass a number in (0, 1]."
    return np.full(n, 1.0 / (check_fraction("beta", beta, remedy) * n))


def residuals_of(p: FloatArray, q: FloatArray, a: FloatArray, b: FloatArray, mass: float) -> Residuals:
    """Constraint violations of a plan with row sums `p` and column sums `q`, relative to `mass`."""
    return Residuals(
        rows=max(0.0, float((p - a).max())) / mass,
        cols=max(0.0, float((q - b).max())) / mass,
        mass=abs(float(p.sum()) - mass) / mass,
    )
