"""Partial optimal transport: problem -> solution, with a certificate."""

from __future__ import annotations

from warmpot.transport.certify import Certificate, certify, round_to_feasible
from warmpot.transport.columns import BlockCost, Duals
from warmpot.transport.large import solve_partial_blocks, solve_partial_points
from warmpot.transport.problem import BatchSolution, Potentials, Residuals, Solution, Status
from warmpot.transport.solve import PartialPath, StepPlan, partial_path, solve_partial, solve_partial_batch, step_plan
from warmpot.transport.unbalanced import UnbalancedSolution, solve_unbalanced

__all__ = [
    "BatchSolution",
    "BlockCost",
    "Certificate",
    "Duals",
    "PartialPath",
    "Potentials",
    "Residuals",
    "Solution",
    "Status",
    "StepPlan",
    "UnbalancedSolution",
    "certify",
    "partial_path",
    "round_to_feasible",
    "solve_partial",
    "solve_partial_batch",
    "solve_partial_blocks",
    "solve_partial_points",
    "solve_unbalanced",
    "step_plan",
]
