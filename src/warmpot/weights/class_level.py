"""What predictions on the target say about its classes, and weights of source samples by class."""

from __future__ import annotations

from typing import Any

import numpy as np

from warmpot._typing import FloatArray

__all__ = ["SMALLEST_BETA", "believed_beta", "believed_classes", "class_means", "predicted_shares"]

SMALLEST_BETA = 0.05
PRESENT = 0.25
"""A class is believed present from this part of an equal share of the target on."""


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


def believed_beta(shares: FloatArray) -> float:
    """Share of the classes that the target seems to hold: the perplexity of the shares over their number.

    Examples
    --------
    >>> believed_beta(np.array([0.5, 0.5, 0.0, 0.0]))
    0.5
    """
    used = shares[shares > 0]
    perplexity = np.exp(-(used * np.log(used)).sum())
    return float(np.clip(perplexity / len(shares), SMALLEST_BETA, 1.0))


def believed_classes(shares: FloatArray) -> dict[int, float]:
    """Classes believed to occur, by code, with their shares, the largest first; stray predictions are left out.

    Examples
    --------
    >>> believed_classes(np.array([0.3, 0.65, 0.05, 0.0]))
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
