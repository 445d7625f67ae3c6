"""How much each source sample counts."""

from __future__ import annotations

from warmpot.weights.plan import effective_share, normalized, plan_weights
from warmpot.weights.uniform import uniform_weights

__all__ = ["effective_share", "normalized", "plan_weights", "uniform_weights"]
