"""The plans of bounds: their costs, and the checks of a plan that the user gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_array, issparse

from warmpot._checks import check_matrix
from warmpot._interop import kind_of
from warmpot._typing import FloatArray, IntArray
from warmpot.bounds.report import PlanRecord
from warmpot.errors import InputError
from warmpot.transport import Solution, round_to_feasible
from warmpot.transport.certify import FEASIBLE
from warmpot.transport.problem import residuals_of

if TYPE_CHECKING:
    from warmpot.bounds.theorems import BoundProblem

__all__ = ["PlanCost", "WithUnitRow", "check_given"]


class PlanCost:
    """Cost of the plan as a block cost: C, or ``k C + l_i`` for the tightest plan."""

    def __init__(self, problem: BoundProblem, tightest: bool, factor: int) -> None:
        self.problem, self.tightest, self.factor, self.shape = problem, tightest, factor, problem.shape

    def block(self, rows: IntArray) -> FloatArray:
        problem = self.problem
        block = problem.costs.distances(rows)
        block *= problem.lipschitz.value
        if problem.kind == "joint":
            block += problem.label_block(rows)
        if self.tightest:
            block *= self.factor
            block += problem.source_losses[rows, None]
        return block


class WithUnitRow:
    """A block cost with one more source sample, of cost 1 to every target sample."""

    def __init__(self, cost: PlanCost) -> None:
        self.cost, self.shape = cost, (cost.shape[0] + 1, cost.shape[1])

    def block(self, rows: IntArray) -> FloatArray:
        block = np.ones((rows.size, self.shape[1]))
        real = rows < self.cost.shape[0]
        block[real] = self.cost.block(rows[real])
        return block


def check_given(plan: Any, a: FloatArray, b: FloatArray, alpha: float) -> tuple[csr_array, PlanRecord]:
    """Check that a plan is feasible; one that is so only to its own coarse dtype is repaired in float64."""
    matrix = plan.plan if isinstance(plan, Solution) else plan
    resolution = kind_of(matrix.data if issparse(matrix) else matrix).resolution
    shape = (a.size, b.size)
    given = matrix.shape if issparse(matrix) else np.shape(getattr(matrix, "detach", lambda: matrix)())
    if tuple(given) != shape:
        remedy = "Rows are source samples, columns target samples."
        raise InputError("plan", got=f"shape {tuple(given)}", allowed=f"shape {shape}", remedy=remedy)
    dense = check_matrix("plan", matrix.data[None] if issparse(matrix) else matrix)
    rows = csr_array(matrix, dtype=np.float64) if issparse(matrix) else csr_array(dense)
    residuals = residuals_of(rows.sum(axis=1), rows.sum(axis=0), a, b, alpha)
    worst = max(residuals.worst, -float(dense.min()) / alpha)
    if worst > max(FEASIBLE, 64 * resolution):
        allowed = f"a feasible plan of mass {alpha:g}: entries >= 0, rows <= {a[0]:g}, columns <= {b[0]:g}"
        remedy = "An infeasible plan proves nothing: pass it through warmpot.transport.round_to_feasible first."
        raise InputError("plan", got=f"violations up to {worst:.3g}", allowed=allowed, remedy=remedy)
    if worst > FEASIBLE:
        rows.data = np.maximum(rows.data, 0.0)
        rows = round_to_feasible(rows, a, b, alpha)
        residuals = residuals_of(rows.sum(axis=1), rows.sum(axis=0), a, b, alpha)
    return rows, PlanRecord("given", "GIVEN", None, residuals.worst)
