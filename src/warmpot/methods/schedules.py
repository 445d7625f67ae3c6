"""Numbers that change with the training."""

from __future__ import annotations

import math

__all__ = ["ramped", "reversal_strength"]


def ramped(start: float, end: float, progress: float, length: float) -> float:
    """Grow linearly from `start` to `end` over the share `length` of the training; never above `end`.

    Examples
    --------
    >>> [ramped(0.0, 0.8, progress, 0.5) for progress in (0.0, 0.25, 0.5, 1.0)]
    [0.0, 0.4, 0.8, 0.8]
    """
    if progress >= length:
        return end  # exactly, whatever the sum below would round to
    start = min(start, end)
    return min(start + (end - start) * progress / length, end)


def reversal_strength(progress: float, slope: float = 10.0) -> float:
    """Strength of gradient reversal after a share of the training, ``2 / (1 + exp(-slope progress)) - 1``.

    Examples
    --------
    >>> reversal_strength(0.0), round(reversal_strength(1.0), 4)
    (0.0, 0.9999)
    """
    return math.tanh(slope * progress / 2.0)
