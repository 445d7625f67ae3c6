"""The bounds of the paper as numbers, term by term."""

from __future__ import annotations

from warmpot.bounds.fresh import FreshBounds, fresh_bounds, group_bounds, plan_label_bound, sample_bounds
from warmpot.bounds.intervals import upper_bound_of_mean
from warmpot.bounds.lipschitz import Lipschitz, head_lipschitz, module_lipschitz
from warmpot.bounds.oracle import with_labels, with_plan_labels
from warmpot.bounds.pac_bayes import pac_bayes_bound, pac_bayes_penalty
from warmpot.bounds.random_features import random_feature_bound
from warmpot.bounds.report import BoundReport, BoundSearch, PlanRecord, Term
from warmpot.bounds.theorems import BoundProblem, feature_bound, joint_bound, tightest_bound

__all__ = [
    "BoundProblem",
    "BoundReport",
    "BoundSearch",
    "FreshBounds",
    "Lipschitz",
    "PlanRecord",
    "Term",
    "feature_bound",
    "fresh_bounds",
    "group_bounds",
    "head_lipschitz",
    "joint_bound",
    "module_lipschitz",
    "pac_bayes_bound",
    "pac_bayes_penalty",
    "plan_label_bound",
    "random_feature_bound",
    "sample_bounds",
    "tightest_bound",
    "upper_bound_of_mean",
    "with_labels",
    "with_plan_labels",
]
