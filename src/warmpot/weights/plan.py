"""Weights read off a transport plan: WARMPOT's (Eqs. (6) and (11))."""

from __future__ import annotations

from typing import Any

__all__ = ["effective_share", "normalized", "plan_weights"]

DELTA = 1e-5
"""What the authors' code adds to a sum of weights before it divides by it."""


def plan_weights(plan: Any) -> Any:
    """Row sums ``p = P 1`` of a plan: the weight of every source sample (Eqs. (6) and (11)).

    Parameters
    ----------
    plan : (n_s, n_t) array, tensor or sparse array

    Returns
    -------
    (n_s,) array or tensor
        Entries in ``[0, 1 / (beta n_s)]`` that sum to alpha.

    Examples
    --------
    >>> import numpy as np
    >>> plan_weights(np.array([[0.25, 0.25], [0.0, 0.0]]))
    array([0.5, 0. ])
    """
    return plan.sum(axis=1)


def normalized(weights: Any, delta: float = DELTA) -> Any:
    """Weights over their sum, ``w / (sum w + delta)``, as the authors' code uses them in the source loss."""
    return weights / (weights.sum() + delta)


def effective_share(weights: Any) -> float:
    """Share of the samples that carry the weight: ``(sum w)^2 / (n sum w^2)``, 1 for equal weights.

    Examples
    --------
    >>> import numpy as np
    >>> effective_share(np.array([1.0, 1.0, 0.0, 0.0]))
    0.5
    """
    total = float(weights.sum())
    return total * total / (len(weights) * float((weights * weights).sum())) if total > 0 else 0.0
