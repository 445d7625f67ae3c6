"""Validators by transport between the domains: the candidate's own plan, one in common units, the bound."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from warmpot._checks import check_fraction
from warmpot.bounds.lipschitz import Lipschitz, head_lipschitz
from warmpot.bounds.theorems import BoundProblem
from warmpot.select.candidate import Candidate, Validator

__all__ = ["Bound", "PlanValue", "TransportValue"]


@dataclass(frozen=True)
class PlanValue(Validator):
    """Minus the cost per unit of mass of the candidate's own last plan.

    In units of its own cost and for its own alpha: roughly comparable between the rounds of one run, but not between
    runs with different eta or alpha.
    """

    name: ClassVar[str] = "plan"
    summary: ClassVar[str] = "cost of the candidate's own plan; within one run only"
    needs: ClassVar[frozenset[str]] = frozenset({"transport"})
    across_runs: ClassVar[bool] = False

    def _score(self, candidate: Candidate) -> float:
        assert candidate.transport is not None
        return -candidate.transport


@dataclass(frozen=True)
class _JointBoundValidator(Validator):
    alpha: float = 0.8
    beta: float = 0.35

    def __post_init__(self) -> None:
        check_fraction("alpha", self.alpha)
        check_fraction("beta", self.beta)

    def _problem(self, candidate: Candidate, gamma: Lipschitz | float, loss: str) -> BoundProblem:
        return BoundProblem(
            "joint", candidate.source_features, candidate.source_labels, candidate.target_features,
            candidate.source_proba, candidate.target_proba, gamma=gamma, loss=loss,
        )  # fmt: skip


@dataclass(frozen=True)
class TransportValue(_JointBoundValidator):
    """Minus the partial transport value per unit of mass, in units common to all candidates.

    A new plan is solved exactly, with one cost for all candidates,

        C_ij = ||f_i - f~_j|| / r + 1 - softmax(w(x~_j))[y_i],      r^2 = mean_ik ||f_i - f_k||^2,

    so neither the scale of the features nor the candidate's own eta, alpha and beta matter. Features that collapse to a
    point shrink r as much as the distances. Both terms are about 1 for a random pair.

    Not from a paper; the cost is that of Theorem 3.3 with the total-variation loss and ``1 / r`` instead of
    the Lipschitz constant.

    Parameters
    ----------
    alpha, beta : float
        In (0, 1], the same for all candidates: transported mass, and estimated share of the source that is useful.
    """

    name: ClassVar[str] = "transport"
    summary: ClassVar[str] = "transport cost of features and labels from source to target, in common units"

    def _score(self, candidate: Candidate) -> float:
        spread = math.sqrt(2.0 * float(candidate.source_features.var(axis=0).sum()))
        gamma = 1.0 / spread if spread > 0 else 0.0
        problem = self._problem(candidate, gamma, "tv")
        plan, _ = problem.planned(self.alpha, self.beta, plan="paper")
        terms = problem.transport_terms(plan, *problem.coefficients(self.alpha, "paper"))
        return -sum(term.value for term in terms if term.value is not None)


@dataclass(frozen=True)
class Bound(_JointBoundValidator):
    """Minus the part of the joint bound (Theorem 3.3) that can be computed without target labels.

    The ideal term is left out; it differs between candidates too, so the best score is not the best guarantee.

    Deviations: none; the tightest feasible plan, and the Lipschitz constant of the candidate's own linear head.

    Parameters
    ----------
    alpha, beta : float
        In (0, 1], the same for all candidates: the bound holds for any.
    """

    name: ClassVar[str] = "bound"
    summary: ClassVar[str] = "the computable part of the joint bound (Theorem 3.3)"
    needs: ClassVar[frozenset[str]] = frozenset({"head"})

    def _score(self, candidate: Candidate) -> float:
        assert candidate.head is not None
        gamma = head_lipschitz(candidate.head[0], "euclidean")
        return -self._problem(candidate, gamma, "euclidean").report(self.alpha, self.beta).total
