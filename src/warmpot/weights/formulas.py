"""Formulas for source weights: how much each source sample counts.

Read off a transport plan (WARMPOT), from the classes that the target is predicted to have (BA3US), or as the least
mean score of a critic over a set of weights (Appendix H). Such a critic is high where the source is unlike the target:
weights of small mean score make the source resemble the target, and the set of allowed weights keeps them from
concentrating on too few samples. ARPM and AR take a chi-squared ball, WARMPOT a cap.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

import numpy as np

from warmpot._checks import check_count, check_fraction, check_matrix, check_nonnegative
from warmpot._interop import to_numpy
from warmpot._typing import FloatArray, IntArray
from warmpot.errors import InputError

__all__ = [
    "capped_weights",
    "chi2_ball_weights",
    "class_codes",
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

SMALLEST_ALPHA = 0.01
SMALLEST_BETA = 0.05
PRESENT = 0.25  # a class counts as present from this fraction of an equal share of the target
DELTA = 1e-5  # what the authors' code adds to a sum of weights before it divides by it


def uniform_weights(n: int) -> FloatArray:
    """Return `n` weights ``1 / n``.

    Examples
    --------
    >>> uniform_weights(4)
    array([0.25, 0.25, 0.25, 0.25])
    """
    return np.full(check_count("n", n), 1.0 / n)


def plan_weights(plan: Any) -> Any:
    """Row sums ``p = P 1`` of a plan: the weight of every source sample (Eqs. (6) and (11)).

    They are in ``[0, 1 / (beta n_s)]`` and sum to alpha. The plan may be an array, a tensor or a sparse array.

    Examples
    --------
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
    >>> effective_share(np.array([1.0, 1.0, 0.0, 0.0]))
    0.5
    """
    total = float(weights.sum())
    return total * total / (len(weights) * float((weights * weights).sum())) if total > 0 else 0.0


def predicted_shares(outputs: Any) -> FloatArray:
    """Share of the target samples predicted as each class.

    Parameters
    ----------
    outputs : (n_t, C) array or tensor
        Scores; the largest in a row is the prediction.

    Examples
    --------
    >>> predicted_shares(np.array([[2.0, 1.0, 0.0], [3.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 5.0]]))
    array([0.5, 0. , 0.5])
    """
    best = np.asarray(outputs.argmax(1).cpu() if hasattr(outputs, "cpu") else outputs.argmax(1))
    return np.bincount(best, minlength=outputs.shape[1]) / len(best)


def estimate_beta(outputs: Any, labels: Any) -> float:
    """Return the useful share of the source if the target is as predicted, ``1 / sum_c pi_t(c)^2 / pi_s(c)``.

    It is the `effective_share` of source samples weighted by ``pi_t(y) / pi_s(y)``, and k / C when k of C equal classes
    occur. The squares are counted over pairs of different samples, which is unbiased in batches too. Classes without a
    source sample are left out: no plan can match them.

    Parameters
    ----------
    outputs : (n_t, C) array or tensor
        Scores of the target samples; the largest in a row is the prediction.
    labels : (n_s,) array or tensor
        Class codes of the source samples.

    Examples
    --------
    >>> estimate_beta(np.eye(4)[[0, 0, 0, 1, 1, 1]], np.arange(4))  # 6 of 15 pairs agree; with many samples: 0.5
    0.625
    """
    source = np.bincount(np.asarray(labels), minlength=outputs.shape[1])
    target = predicted_shares(outputs) * len(outputs) * (source > 0)
    pairs = target.sum() * (target.sum() - 1)
    twice = float((target * (target - 1) / np.maximum(source, 1)).sum()) * source.sum()
    return float(np.clip(pairs / twice, SMALLEST_BETA, 1.0)) if twice > 0 else 1.0


def estimate_alpha(probabilities: Any, labels: Any, beta: float, presence: FloatArray | None = None) -> float:
    """Return the share of the target that can be matched correctly: ``sum_c min(kappa_c, pi_s(c) / beta)``.

    ``kappa_c`` is the share of the target predicted as c, every sample counted with its probability: what the
    classifier expects to get right. ``pi_s(c) / beta`` is the most that the source samples of class c can supply; a
    plan of more mass must match across classes.

    Parameters
    ----------
    probabilities : (n_t, C) array
        Class probabilities of the target samples.
    labels, beta
        As in `estimate_beta`, and its result or another.
    presence : (C,) array, optional
        Factors of the capacities ``pi_s(c) / beta``, such as the probabilities of the classes (`estimate_presence`).

    Examples
    --------
    >>> estimate_alpha(np.array([[0.8, 0.2], [0.6, 0.4]]), np.array([0, 0, 1]), beta=1.0)  # 2/3 could be supplied
    0.6666666666666666
    """
    n, classes = probabilities.shape
    expected = np.bincount(probabilities.argmax(1), probabilities.max(1), minlength=classes) / n
    source = np.bincount(np.asarray(labels), minlength=classes) / len(labels)
    supply = source / beta if presence is None else presence * source / beta
    return float(np.clip(np.minimum(expected, supply).sum(), SMALLEST_ALPHA, 1.0))


def estimate_present_classes(shares: FloatArray) -> dict[int, float]:
    """Return the classes that probably occur, with their shares, the largest first; stray predictions are left out.

    Examples
    --------
    >>> estimate_present_classes(np.array([0.3, 0.65, 0.05, 0.0]))
    {1: 0.65, 0: 0.3}
    """
    order = np.argsort(-shares, kind="stable")
    return {int(k): float(shares[k]) for k in order if shares[k] >= PRESENT / len(shares)}


def class_means(weights: FloatArray, labels: Any, n_classes: int) -> FloatArray:
    """Give every sample the mean weight of its class.

    Examples
    --------
    >>> class_means(np.array([1.0, 3.0, 5.0]), np.array([0, 0, 1]), 2)
    array([2., 2., 5.])
    """
    labels = np.asarray(labels)
    totals = np.bincount(labels, weights, minlength=n_classes)
    means: FloatArray = (totals / np.maximum(np.bincount(labels, minlength=n_classes), 1))[labels]
    return means


def class_shares(outputs: Any, *, hard: bool, labels: Any = None) -> FloatArray:
    """Share of the target in each class, as predicted; the shares sum to 1.

    Parameters
    ----------
    outputs : (n_t, C) array or tensor
        Logits of the target samples.
    hard : bool
        True counts predictions (`predicted_shares`, as the WARMPOT paper prints BA3US in its Section 5.3). False is
        the mean softmax probability (the official code of BA3US).
    labels : (n_s,) array or tensor of int, optional
        Class codes of the source samples, in [0, C). Where none of them is of a class with a share, all shares are
        ``1 / C``: the predictions contain no usable information.

    Examples
    --------
    >>> logits = np.log([[0.6, 0.3, 0.1], [0.8, 0.1, 0.1]])
    >>> class_shares(logits, hard=True)
    array([1., 0., 0.])
    >>> class_shares(logits, hard=False).round(3)
    array([0.7, 0.2, 0.1])
    """
    logits = check_matrix("outputs", outputs)
    if hard:
        shares = predicted_shares(logits)
    else:
        with np.errstate(over="ignore"):  # a gap beyond float64 becomes -inf, probability 0
            odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        shares = (odds / odds.sum(axis=1, keepdims=True)).mean(axis=0)
        shares = np.asarray(shares / shares.sum())
    if labels is not None and not shares[class_codes(labels, len(shares))].any():
        return np.full(len(shares), 1.0 / len(shares))
    return shares


def class_share_weights(outputs: Any, labels: Any, *, hard: bool) -> FloatArray:
    """Weight of every source sample by BA3US: the share of the target in its class, ``c[y_i]`` (Section 5.3).

    The shares are not divided by the source prior: of two classes with the same share the one of more source samples
    weighs more in sum. The weights sum to 1 over classes, not over samples. Where all of them would be 0 (no source
    sample of a class that was predicted) all are ``1 / C``: equal weights.

    Parameters
    ----------
    outputs, hard
        As in `class_shares`.
    labels : (n_s,) array or tensor of int
        Class codes of the source samples, in [0, C).

    Examples
    --------
    >>> class_share_weights(np.eye(3)[[0, 0, 0, 2]], np.array([0, 0, 1, 2]), hard=True)
    array([0.75, 0.75, 0.  , 0.25])
    """
    shares = class_shares(outputs, hard=hard, labels=labels)
    weights: FloatArray = shares[class_codes(labels, len(shares))]
    return weights


def class_codes(labels: Any, n_classes: int) -> IntArray:
    """Return checked class codes of samples, in ``[0, n_classes)``."""
    codes = np.asarray(labels.cpu() if hasattr(labels, "cpu") else labels)
    allowed = f"a non-empty 1-d array of whole numbers in [0, {n_classes})"
    remedy = "Pass class codes that count the columns of the outputs."
    if codes.ndim != 1 or codes.size == 0 or codes.dtype.kind not in "iu":
        got = f"shape {codes.shape} of {codes.dtype}"
    elif codes.min() < 0 or codes.max() >= n_classes:
        got = f"codes from {codes.min()} to {codes.max()}"
    else:
        return codes
    raise InputError("labels", got=got, allowed=allowed, remedy=remedy)


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
        Of sum 1, the same for equal scores. Where the ball does not bind, the samples of least score share all equally.

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
    """Return the scores less the least of them, or half of that where float64 cannot hold it."""
    with np.errstate(over="ignore"):
        x: FloatArray = d - d.min()
    return x if np.isfinite(x.max()) else np.asarray(d / 2 - d.min() / 2)


def _checked(scores: object) -> FloatArray:
    allowed, remedy = "a non-empty 1-d array of finite numbers", "Pass one score per source sample."
    try:
        d = to_numpy(scores)
    except (TypeError, ValueError, OverflowError) as error:
        got = f"{type(scores).__name__} ({error})"
        raise InputError("scores", got=got, allowed=allowed, remedy=remedy) from error
    if d.ndim != 1 or d.size == 0:
        raise InputError("scores", got=f"shape {d.shape}", allowed=allowed, remedy=remedy)
    if not np.isfinite(d).all():
        got = f"{int((~np.isfinite(d)).sum())} non-finite entries"
        remedy = "The critic has diverged: lower its learning rate, or rescale the features."
        raise InputError("scores", got=got, allowed=allowed, remedy=remedy)
    return d
