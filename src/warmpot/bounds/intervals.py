"""Upper confidence bounds of the mean of independent draws from [0, 1]."""

from __future__ import annotations

import math

import numpy as np

from warmpot._checks import check_choice
from warmpot._typing import FloatArray

__all__ = ["INTERVALS", "mean_upper_bound", "upper_bound_of_mean"]

INTERVALS = ("betting", "bernstein", "hoeffding")
BETS = 12  # fixed bets that `mean_upper_bound` averages over


def upper_bound_of_mean(values: FloatArray, delta: float, interval: str = "betting") -> float:
    """Return what the expectation of n independent draws from [0, 1] exceeds with probability at most `delta`.

    - ``"hoeffding"``: mean + ``sqrt(log(1/delta) / 2n)``.
    - ``"bernstein"``: mean + ``sqrt(2 V log(2/delta) / n) + 7 log(2/delta) / (3 (n - 1))`` with the variance V of the
      sample (Maurer and Pontil, 2009, Theorem 4).
    - ``"betting"`` (default): `mean_upper_bound`, which is rarely wider than the better of the two.

    Which one must not depend on the values: taking the least of several costs a union bound.

    Examples
    --------
    >>> values = np.tile([0.1, 0.3], 50)
    >>> [round(upper_bound_of_mean(values, 0.05, name), 3) for name in ("betting", "bernstein", "hoeffding")]
    [0.247, 0.314, 0.322]
    """
    check_choice("interval", interval, INTERVALS)
    mean, n = float(values.mean()) if values.size else 1.0, values.size
    if interval == "betting":
        return mean_upper_bound(values, delta) if n else 1.0
    if interval == "hoeffding":
        return min(1.0, mean + math.sqrt(math.log(1.0 / delta) / (2.0 * n))) if n else 1.0
    if n < 2:
        return 1.0
    log = math.log(2.0 / delta)
    return min(1.0, mean + math.sqrt(2.0 * float(values.var(ddof=1)) * log / n) + 7.0 * log / (3.0 * (n - 1)))


def mean_upper_bound(values: FloatArray, delta: float) -> float:
    """Upper confidence bound on the mean of independent draws of a variable in [0, 1].

    By betting (Waudby-Smith and Ramdas, 2024): for the true mean mu and every fixed theta in [0, 1), the product of
    ``1 + theta (mu - x_k) / (1 - mu)`` is non-negative and has expectation 1, and so has the average of such products
    over a fixed grid of theta. By Markov's inequality it reaches 1/delta with probability at most delta. It grows
    with mu, so the means it refutes form an interval that ends at 1. The grid adapts to the variance: draws of a
    bound have little variance, and there this is about a quarter of the width of Hoeffding's, of Maurer and Pontil's
    and of the inverted Bernoulli divergence. It may fail with probability `delta`.

    Examples
    --------
    >>> 0.5 < mean_upper_bound(np.full(100, 0.5), 0.01) < 0.54
    True
    """
    low, high = float(values.mean()), 1.0
    bets = np.geomspace(0.5 / values.size, 1.0 - 1e-3, BETS)[:, None]
    for _ in range(40):
        middle = 0.5 * (low + high)
        if not low < middle < high:
            break
        wealth = np.log1p(bets * ((middle - values) / (1.0 - middle))).sum(axis=1)
        if np.logaddexp.reduce(wealth) - np.log(BETS) < -np.log(delta):
            low = middle
        else:
            high = middle
    return high
