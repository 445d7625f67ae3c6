"""Validators that read a transport plan between the source and the target."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from warmpot._checks import check_fraction
from warmpot.bounds.lipschitz import Lipschitz, head_lipschitz
from warmpot.bounds.report import BoundReport
from warmpot.bounds.theorems import joint_bound
from warmpot.select.base import Validator
from warmpot.select.evidence import Evidence

__all__ = ["Bound", "PlanValue", "TransportValue"]


@dataclass(frozen=True)
class PlanValue(Validator):
    """Minus the cost per unit of mass of the candidate's own last plan.

    In units of its own cost and at its own alpha: roughly comparable between the rounds of one run, not between runs
    whose eta or alpha differ.
    """

    name: ClassVar[str] = "plan"
    summary: ClassVar[str] = "cost of the candidate's own plan; within one run only"
    needs: ClassVar[frozenset[str]] = frozenset({"transport"})
    across_runs: ClassVar[bool] = False

    def _score(self, evidence: Evidence) -> float:
        assert evidence.transport is not None
        return -evidence.transport


@dataclass(frozen=True)
class TransportValue(Validator):
    """Minus the partial transport value per unit of mass, in units common to all candidates.

    The plan is solved anew, exactly, with one cost for all candidates,

        C_ij = ||f_i - f~_j|| / r + 1 - softmax(w(x~_j))[y_i],      r^2 = mean_ik ||f_i - f_k||^2,

    so neither the scale of the features nor the candidate's own eta, alpha and beta matter. Features that collapse to a
    point shrink r as much as the distances. Both parts are about 1 for a pair at random.

    Deviations: no paper's validator; the cost is that of Theorem 3.3 with the total-variation loss and ``1 / r`` in the
    place of the Lipschitz constant.

    Parameters
    ----------
    alpha, beta : float
        In (0, 1]: mass moved, and share of the source believed to matter. The same for all candidates.
    """

    alpha: float = 0.8
    beta: float = 0.35

    name: ClassVar[str] = "transport"
    summary: ClassVar[str] = "how cheaply features and labels of the source reach the target, in common units"

    def __post_init__(self) -> None:
        check_fraction("alpha", self.alpha)
        check_fraction("beta", self.beta)

    def _score(self, evidence: Evidence) -> float:
        spread = math.sqrt(2.0 * float(evidence.source_features.var(axis=0).sum()))
        gamma = 1.0 / spread if spread > 0 else 0.0
        found = _joint(evidence, gamma, self.alpha, self.beta, plan="paper", loss="tv")
        return -sum(term.value for term in found.terms if term.name.startswith("transport") and term.value is not None)


@dataclass(frozen=True)
class Bound(Validator):
    """Minus the part of the joint bound (Theorem 3.3) that can be computed without target labels.

    The ideal term is left out; it differs between candidates too, so the best score is not the best guarantee.

    Deviations: none; the tightest feasible plan, and the Lipschitz constant of the candidate's own linear head.

    Parameters
    ----------
    alpha, beta : float
        In (0, 1], the same for all candidates: the bound holds for any.
    """

    alpha: float = 0.8
    beta: float = 0.35

    name: ClassVar[str] = "bound"
    summary: ClassVar[str] = "the computable part of the joint bound (Theorem 3.3)"
    needs: ClassVar[frozenset[str]] = frozenset({"head"})

    def __post_init__(self) -> None:
        check_fraction("alpha", self.alpha)
        check_fraction("beta", self.beta)

    def _score(self, evidence: Evidence) -> float:
        assert evidence.head is not None
        gamma = head_lipschitz(evidence.head[0], "euclidean")
        return -_joint(evidence, gamma, self.alpha, self.beta, plan="tightest", loss="euclidean").total


def _joint(
    evidence: Evidence, gamma: Lipschitz | float, alpha: float, beta: float, *, plan: str, loss: str
) -> BoundReport:
    source, target, labels = evidence.source_features, evidence.target_features, evidence.source_labels
    return joint_bound(
        source, labels, target, evidence.source_proba, evidence.target_proba,
        gamma=gamma, alpha=alpha, beta=beta, plan=plan, loss=loss,
    )  # fmt: skip
