"""Weights from a critic's scores: the least mean score over a set of weights (Appendix H).

A critic that separates source from target is high where the source is unlike the target. Weights of small mean score
make the source resemble the target; the set of allowed weights keeps them from concentrating on too few samples.
ARPM and AR take a chi-squared ball, WARMPOT a cap.
"""

from __future__ import annotations

from bisect import bisect_left

import numpy as np

from warmpot._checks import check_fraction, check_nonnegative
from warmpot._interop import to_numpy
from warmpot._typing import FloatArray
from warmpot.errors import InputError

__all__ = ["capped_weights", "chi2_ball_weights"]


def chi2_ball_weights(scores: object, rho: float = 5.0) -> FloatArray:
    r"""Weights of the least mean score in a chi-squared ball around equal weights: ARPM's and AR's.

    .. math:: \min_w \sum_i w_i d_i \quad\text{s.t.}\quad w \ge 0,\; \textstyle\sum_i w_i = 1,\;
              \sum_i (w_i - 1/n)^2 \le \rho / n

    Parameters
    ----------
    scores : (n,) array or tensor
        Critic's score ``d`` of every source sample; small is target-like. Only their order and the ratios of their
        differences matter: ``s * d + t`` with s > 0 gives the same weights.
    rho : float
        Size of the ball; 0 gives equal weights. At least ``n / (1 + rho)`` samples have a weight.

    Returns
    -------
    (n,) array
        They sum to 1. Samples of equal score weigh the same. Where the ball does not bind, the samples of least score
        share all the weight equally.

    Notes
    -----
    The optimum is ``w = (tau - d)_+ / sum (tau - d)_+``, tau such that the ball binds, ``sum w^2 = (1 + rho) / n``.
    That sum falls as tau rises, so the k samples below tau are found by bisection over the sorted scores. Given them
    the condition is a quadratic in tau: with their mean m and variance v, ``w_i = (1 + (m - d_i) sqrt(c / v)) / k``
    where ``c = (1 + rho) k / n - 1``.

    Examples
    --------
    >>> chi2_ball_weights([0.0, 1.0, 2.0, 9.0], rho=0.5).round(4)
    array([0.4777, 0.3333, 0.189 , 0.    ])
    >>> chi2_ball_weights([0.0, 0.0, 2.0, 9.0], rho=5.0)
    array([0.5, 0.5, 0. , 0. ])
    """
    x, rho = _above_least(_checked(scores)), check_nonnegative("rho", rho)
    n, ranked = len(x), np.sort(x)
    ties = int(np.searchsorted(ranked, 0.0, side="right"))
    if ties == n or rho == 0:
        return np.full(n, 1.0 / n)
    if n <= ties * (1 + rho):
        return np.where(x == 0, 1.0 / ties, 0.0)

    def beyond(rank: int) -> bool:
        """Whether tau is at most the score of this rank: weights that end there are inside the ball."""
        w = 1 - ranked[:rank] / ranked[rank]
        return bool(n * (w @ w) <= (1 + rho) * w.sum() ** 2)

    # The score after the minimisers is below tau: weight on the minimisers alone is outside of the ball.
    top = ranked[bisect_left(range(n), True, lo=ties + 1, key=beyond) - 1]
    k = int(np.searchsorted(ranked, top, side="right"))
    z = ranked[:k] / top  # scores beyond tau, however far off, cost no precision
    slope = np.sqrt(max(k - n + k * rho, 0.0) / n) / z.std()  # 1 + rho would lose a small rho
    w = np.zeros(n)
    inside = x <= top
    w[inside] = np.maximum(1 + slope * (z.mean() - x[inside] / top), 0.0) / k
    return w


def capped_weights(scores: object, beta: float) -> FloatArray:
    r"""Weights of the least mean score under a cap: WARMPOT's set of weights (Appendix H, alpha = 1).

    .. math:: \min_p \sum_i p_i d_i \quad\text{s.t.}\quad \textstyle\sum_i p_i = 1,\; 0 \le p_i \le 1 / (\beta n)

    Parameters
    ----------
    scores : (n,) array or tensor
        Critic's score of every source sample; small is target-like. Only their order matters.
    beta : float
        Fraction of the source that is expected to be useful, in (0, 1]: the ``beta * n`` samples of least score have
        the full weight ``1 / (beta n)``, the next one what is left of 1.

    Returns
    -------
    (n,) array
        They sum to 1. Samples of equal score weigh the same: those at the threshold share what is left.

    Examples
    --------
    >>> capped_weights([3.0, 0.0, 1.0, 2.0], beta=0.625)
    array([0. , 0.4, 0.4, 0.2])
    >>> capped_weights([1.0, 0.0, 1.0, 2.0], beta=0.5)
    array([0.25, 0.5 , 0.25, 0.  ])
    """
    d, beta = _checked(scores), check_fraction("beta", beta)
    n = len(d)
    full = max(beta * n, 1.0)  # a cap above 1 does not bind
    rank = int(np.ceil(full)) - 1
    threshold = np.partition(d, rank)[rank]
    below, ties = d < threshold, d == threshold
    share = (1 - below.sum() / full) / ties.sum()
    return np.where(below, 1 / full, np.where(ties, np.clip(share, 0.0, 1 / full), 0.0))


def _above_least(d: FloatArray) -> FloatArray:
    """Scores less the least of them, or half of that where float64 cannot hold it."""
    with np.errstate(over="ignore"):
        x: FloatArray = d - d.min()
    return x if np.isfinite(x.max()) else np.asarray(d / 2 - d.min() / 2)


def _checked(scores: object) -> FloatArray:
    """Return a non-empty, finite 1-d float64 array."""
    allowed = "a non-empty 1-d array of finite numbers"
    try:
        d = to_numpy(scores)
    except (TypeError, ValueError, OverflowError) as error:
        got, remedy = f"{type(scores).__name__} ({error})", "Pass one score per source sample."
        raise InputError("scores", got=got, allowed=allowed, remedy=remedy) from error
    if d.ndim != 1 or d.size == 0:
        remedy = "Pass one score per source sample."
        raise InputError("scores", got=f"shape {d.shape}", allowed=allowed, remedy=remedy)
    if not np.isfinite(d).all():
        got = f"{int((~np.isfinite(d)).sum())} non-finite entries"
        remedy = "The critic has diverged: lower its learning rate, or rescale the features."
        raise InputError("scores", got=got, allowed=allowed, remedy=remedy)
    return d
