"""How much each source sample counts."""

from __future__ import annotations

from warmpot.weights.class_level import believed_alpha, believed_beta, believed_classes, class_means, predicted_shares
from warmpot.weights.plan import effective_share, normalized, plan_weights
from warmpot.weights.uniform import uniform_weights

__all__ = [
    "believed_alpha",
    "believed_beta",
    "believed_classes",
    "class_means",
    "effective_share",
    "normalized",
    "plan_weights",
    "predicted_shares",
    "uniform_weights",
]
