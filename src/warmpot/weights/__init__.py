"""Formulas for source weights: how much each source sample counts."""

from __future__ import annotations

from warmpot._deprecation import moved_names
from warmpot.weights.class_level import (
    class_means,
    class_share_weights,
    class_shares,
    estimate_alpha,
    estimate_beta,
    estimate_present_classes,
    predicted_shares,
)
from warmpot.weights.critic import capped_weights, chi2_ball_weights
from warmpot.weights.plan import effective_share, normalized, plan_weights
from warmpot.weights.uniform import uniform_weights

__all__ = [
    "capped_weights",
    "chi2_ball_weights",
    "class_means",
    "class_share_weights",
    "class_shares",
    "effective_share",
    "estimate_alpha",
    "estimate_beta",
    "estimate_present_classes",
    "normalized",
    "plan_weights",
    "predicted_shares",
    "uniform_weights",
]

__getattr__ = moved_names(
    __name__,
    {
        "believed_alpha": "warmpot.weights:estimate_alpha",
        "believed_beta": "warmpot.weights:estimate_beta",
        "believed_classes": "warmpot.weights:estimate_present_classes",
    },
)
