"""Whether a run's adaptation is supported: a verdict without target labels, from what the training logged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

__all__ = ["CLUSTERS_GAIN", "CONSENSUS", "DOUBTFUL", "NOT_SUPPORTED", "SUPPORTED", "Verdict", "verdict_of"]

SUPPORTED, DOUBTFUL, NOT_SUPPORTED = "supported", "doubtful", "not supported"

CONSENSUS, CLUSTERS_GAIN = "consensus", "clusters_gain"
"""Names in the log, in the line of the round that decides between hypotheses."""
AGREED = 0.95
"""Consensus from which on adaptation is supported."""
ROUNDING = 1e-9
"""Clusters that differ by less are the same ones, maybe of other classes."""


class Verdict(NamedTuple):
    """Whether adaptation is supported by the data; nothing in it needs target labels.

    Attributes
    ----------
    state : "supported", "doubtful" or "not supported"
        How often each state was right is in docs/report.md.
    reason : str
        Why, in one sentence.
    consensus : float
        Share of the predictions that the other hypotheses about the number of classes confirm, each with its weight.
    clusters_gain : float
        How much clearer the clusters of the target are when samples are grouped by their predictions than when they
        are grouped by the predictions without adaptation (`warmpot.weights.evidence.Evidence.clusters`).

    Examples
    --------
    >>> Verdict.of(0.99, 0.1).state, Verdict.of(0.7, 0.1).state, Verdict.of(0.99, -0.1).state
    ('supported', 'doubtful', 'not supported')
    """

    state: str
    reason: str
    consensus: float
    clusters_gain: float

    @classmethod
    def of(cls, consensus: float, clusters_gain: float) -> Verdict:
        """Decide from the two numbers."""
        # rounded down: a number below the threshold never reads like the threshold
        confirmed = f"{np.floor(100 * consensus):.0f}% of the predictions hold for other numbers of classes"
        if clusters_gain < -ROUNDING:
            reason = "without adaptation, predictions group the target into clearer clusters"
            return cls(NOT_SUPPORTED, reason, consensus, clusters_gain)
        if consensus >= AGREED:
            return cls(SUPPORTED, confirmed, consensus, clusters_gain)
        return cls(DOUBTFUL, f"only {confirmed}", consensus, clusters_gain)


def verdict_of(history: Sequence[Mapping[str, Any]], step: int) -> Verdict | None:
    """Return the verdict on the iterate `step` of a run with this log; None if it was not decided there."""
    for line in history:
        if line.get("step") == step and line.get(CONSENSUS) is not None and line.get(CLUSTERS_GAIN) is not None:
            return Verdict.of(float(line[CONSENSUS]), float(line[CLUSTERS_GAIN]))
    return None
