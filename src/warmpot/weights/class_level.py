"""Class shares of the target estimated from predictions, and weights of source samples by class."""

from __future__ import annotations

from typing import Any

import numpy as np

from warmpot._checks import check_matrix
from warmpot._typing import FloatArray, IntArray
from warmpot.errors import InputError

__all__ = [
    "SMALLEST_BETA",
    "class_means",
    "class_share_weights",
    "class_shares",
    "estimate_alpha",
    "estimate_beta",
    "estimate_present_classes",
    "predicted_shares",
]

SMALLEST_ALPHA = 0.01
SMALLEST_BETA = 0.05
PRESENT = 0.25
"""A class counts as present from this fraction of an equal share of the target."""


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


def estimate_alpha(probabilities: Any, labels: Any, beta: float) -> float:
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

    Examples
    --------
    >>> estimate_alpha(np.array([[0.8, 0.2], [0.6, 0.4]]), np.array([0, 0, 1]), beta=1.0)  # 2/3 could be supplied
    0.6666666666666666
    """
    n, classes = probabilities.shape
    expected = np.bincount(probabilities.argmax(1), probabilities.max(1), minlength=classes) / n
    source = np.bincount(np.asarray(labels), minlength=classes) / len(labels)
    return float(np.clip(np.minimum(expected, source / beta).sum(), SMALLEST_ALPHA, 1.0))


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
    if labels is not None and not shares[_codes(labels, len(shares))].any():
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
    weights: FloatArray = shares[_codes(labels, len(shares))]
    return weights


def _codes(labels: Any, n_classes: int) -> IntArray:
    codes = np.asarray(labels.cpu() if hasattr(labels, "cpu") else labels)
    allowed = f"a non-empty 1-d array of whole numbers in [0, {n_classes})"
    remedy = "Pass class codes that count the columns of the outputs."
    if codes.ndim != 1 or codes.size == 0 or codes.dtype.kind not in "iu":
        got = f"shape {codes.shape} of {codes.dtype}"
        raise InputError("labels", got=got, allowed=allowed, remedy=remedy)
    if codes.min() < 0 or codes.max() >= n_classes:
        got = f"codes from {codes.min()} to {codes.max()}"
        raise InputError("labels", got=got, allowed=allowed, remedy=remedy)
    return codes
