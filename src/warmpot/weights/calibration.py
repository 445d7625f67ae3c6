"""Confidence without labels: a temperature from how far two classifiers agree, and a score for unknown samples."""

from __future__ import annotations

import numpy as np

from warmpot._typing import BoolArray, FloatArray, IntArray

__all__ = ["ACCEPT", "calibration_temperature", "needs_review", "relative_entropy"]

ACCEPT = 0.8
"""Confidence, times the probability of the class, below which a prediction should be reviewed (docs/report.md)."""
MOST_NUMBERS = 10_000_000
"""Logits that the temperature is computed from; of more, every so many rows."""
HOTTEST = 100.0
BISECTIONS = 30
"""To 1e-7."""


def calibration_temperature(logits: FloatArray, agreement: float) -> float:
    """Return the temperature at which the mean confidence is ``mean confidence * sqrt(agreement)``; at least 1.

    Two classifiers of accuracy r that err independently agree on about r^2 of the samples, so the root of their
    agreement estimates r. Both estimates, this one and the confidence, are too high where classifiers share errors;
    their product was the best of the rules compared (docs/report.md, Calibration).

    Parameters
    ----------
    logits : (n, C) array
        Of the target samples.
    agreement : float
        Share of the samples for which another classifier predicts the same class, in [0, 1].

    Examples
    --------
    >>> logits = np.array([[2.0, 0.0], [0.0, 3.0]])
    >>> calibration_temperature(logits, 1.0)
    1.0
    >>> round(calibration_temperature(logits, 0.81), 2)
    1.58
    """
    logits = np.asarray(logits, np.float64)[:: max(logits.size // MOST_NUMBERS, 1)]
    logits = logits - logits.max(axis=1, keepdims=True)

    def confidence(temperature: float) -> float:
        return float((1 / np.exp(logits / temperature).sum(axis=1)).mean())

    wanted = confidence(1.0) * float(np.sqrt(agreement))
    if confidence(1.0) <= wanted:
        return 1.0
    if confidence(HOTTEST) >= wanted:  # with few classes, no confidence is that low
        return HOTTEST
    low, high = 1.0, HOTTEST
    for _ in range(BISECTIONS):  # scipy.optimize is slow to import
        middle = (low + high) / 2
        low, high = (middle, high) if confidence(middle) > wanted else (low, middle)
    return (low + high) / 2


def needs_review(confidence: FloatArray, predicted: IntArray, presence: FloatArray | None = None) -> BoolArray:
    """Tell which predictions to review: confidence times probability of the class is below `ACCEPT`, or unknown.

    Parameters
    ----------
    confidence, predicted : (n,) arrays
        Probability of the predicted class, as if all classes were in the target, and its code.
    presence : (C,) array, optional
        Probability of each class to be in the target: a classifier can be certain of a class that is not there, and
        all samples that it puts there are wrong together.

    Examples
    --------
    >>> needs_review(np.array([0.7, 0.99, 0.99]), np.array([0, 0, 1]), np.array([0.99, 0.6])).tolist()
    [True, False, True]
    """
    right = confidence if presence is None else confidence * presence[predicted]
    flags: BoolArray = ~(right >= ACCEPT)
    return flags


def relative_entropy(logits: FloatArray) -> FloatArray:
    """Return the entropy of class probabilities over that of equal ones, per row: 0 certain, 1 nothing known.

    Examples
    --------
    >>> relative_entropy(np.array([[0.0, 0.0], [50.0, 0.0]])).round(3)
    array([1., 0.])
    """
    logits = np.asarray(logits, np.float64)
    logs = logits - logits.max(axis=1, keepdims=True)
    logs = logs - np.log(np.exp(logs).sum(axis=1, keepdims=True))
    entropy: FloatArray = -(np.exp(logs) * logs).sum(axis=1) / np.log(max(logits.shape[1], 2))
    return np.clip(entropy, 0.0, 1.0)
