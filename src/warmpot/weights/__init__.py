"""How much each source sample counts, and which source classes are in the target."""

from warmpot._deprecation import moved_names
from warmpot.weights.calibration import calibration_temperature, needs_review, relative_entropy
from warmpot.weights.formulas import (
    capped_weights,
    chi2_ball_weights,
    class_means,
    class_share_weights,
    class_shares,
    effective_share,
    estimate_alpha,
    estimate_beta,
    estimate_present_classes,
    normalized,
    plan_weights,
    predicted_shares,
    uniform_weights,
)
from warmpot.weights.presence import ClassPresence, estimate_presence
from warmpot.weights.verdict import Verdict, verdict_of

__all__ = [
    "ClassPresence",
    "Verdict",
    "calibration_temperature",
    "capped_weights",
    "chi2_ball_weights",
    "class_means",
    "class_share_weights",
    "class_shares",
    "effective_share",
    "estimate_alpha",
    "estimate_beta",
    "estimate_presence",
    "estimate_present_classes",
    "needs_review",
    "normalized",
    "plan_weights",
    "predicted_shares",
    "relative_entropy",
    "uniform_weights",
    "verdict_of",
]

__getattr__ = moved_names(
    __name__,
    {
        "believed_alpha": "warmpot.weights:estimate_alpha",
        "believed_beta": "warmpot.weights:estimate_beta",
        "believed_classes": "warmpot.weights:estimate_present_classes",
    },
)
