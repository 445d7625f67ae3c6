"""What a solver returns."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Generic, NamedTuple, TypeVar

from warmpot._typing import Array, FloatArray
from warmpot.errors import NotConvergedError
from warmpot.transport.status import Status

__all__ = ["BatchSolution", "CertifiedPlan", "Potentials", "Residuals", "Solution"]

PlanT = TypeVar("PlanT")
PlanSelf = TypeVar("PlanSelf", bound="CertifiedPlan[Any]")


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
        ``objective - dual_value >= 0``.
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
