"""How much each source sample counts."""

from __future__ import annotations

from warmpot.weights.class_level import (
    believed_alpha,
    believed_beta,
    believed_classes,
    class_means,
    class_share_weights,
    class_shares,
    predicted_shares,
)
from warmpot.weights.critic import capped_weights, chi2_ball_weights
from warmpot.weights.plan import effective_share, normalized, plan_weights
from warmpot.weights.uniform import uniform_weights

__all__ = [
    "believed_alpha",
    "believed_beta",
    "believed_classes",
    "capped_weights",
    "chi2_ball_weights",
    "class_means",
    "class_share_weights",
    "class_shares",
    "effective_share",
    "normalized",
    "plan_weights",
    "predicted_shares",
    "uniform_weights",
]
