"""The accuracy on the target from a few labels, with intervals that hold for every sample size.

None of the intervals relies on a normal approximation. With N target samples, of which n are labelled:

- *Clopper-Pearson*: for new samples of the same target, from n labels drawn at random. Exact, uses the labels alone.
- *betting*: for the N samples at hand, from n of them drawn at random without replacement
  (`warmpot.bounds.intervals.mean_upper_bound`, with the remaining mean in place of the mean; Waudby-Smith and Ramdas,
  2020). It shrinks to a point as n reaches N.
- *prediction-powered* (Angelopoulos and others, 2023): ``accuracy = mean confidence of all N + mean of (correct -
  confidence)``. Only the second mean is unknown, and it varies less than the accuracy if the confidences are good; if
  they are not, the interval is wider but still holds.

Labels need not be drawn evenly. `draw_to_label` draws sample k with the probability ``pi_k``, half evenly and half in
proportion to ``sqrt(c (1 - c))`` for its confidence c, which is the standard deviation of being correct (Neyman's
allocation); ``(correct - confidence) / (N pi_k)`` then has the right mean, and at most 2 in size. For such labels only
the prediction-powered interval holds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.stats import beta

from warmpot._checks import check_count, check_fraction
from warmpot._typing import BoolArray, FloatArray, IntArray
from warmpot.bounds.intervals import mean_upper_bound
from warmpot.errors import InputError

__all__ = ["AccuracyInterval", "Draw", "accuracy_intervals", "draw_to_label"]

EVENLY = 0.5
"""Share of the draws that are even: no sample counts more than ``1 / EVENLY`` times."""


class AccuracyInterval(NamedTuple):
    """An interval that contains the accuracy with probability ``1 - delta``; `about` says which accuracy."""

    method: str
    estimate: float
    low: float
    high: float
    about: str


class Draw(NamedTuple):
    """Target samples to label: how often each was drawn, with which probability; in the order of the samples."""

    rows: IntArray
    times: IntArray
    probability: FloatArray


def draw_to_label(confidence: FloatArray, number: int, seed: int = 0) -> Draw:
    """Draw target samples to label, with replacement, so that the prediction-powered interval is short.

    Parameters
    ----------
    confidence : (N,) array
        Probability of the predicted class, for all target samples.
    number : int
        Draws. A sample that is drawn twice needs one label.
    seed : int
    """
    c = _confidences(confidence)
    spread = np.sqrt(c * (1.0 - c)) + 1e-9
    probability = EVENLY / c.size + (1.0 - EVENLY) * spread / spread.sum()
    drawn = np.random.default_rng(seed).choice(c.size, check_count("number", number), p=probability / probability.sum())
    rows, times = np.unique(drawn, return_counts=True)
    return Draw(rows, times, probability[rows])


def accuracy_intervals(
    confidence: FloatArray,
    rows: IntArray,
    correct: BoolArray,
    *,
    delta: float = 0.05,
    times: IntArray | None = None,
    probability: FloatArray | None = None,
) -> list[AccuracyInterval]:
    """Estimate the accuracy from labelled target samples.

    Parameters
    ----------
    confidence : (N,) array
        Of all target samples.
    rows, correct : (n,) arrays
        Which of them are labelled, and whether their predictions are correct.
    delta : float
        Probability with which each interval may fail.
    times, probability : (n,) arrays, optional
        Of `draw_to_label`. Without them the labelled samples are a random part of all, each as likely as any other.

    Examples
    --------
    >>> found = accuracy_intervals(np.full(200, 0.9), np.arange(20), np.arange(20) < 18)
    >>> [(one.method, round(one.low, 2), round(one.high, 2)) for one in found]
    [('Clopper-Pearson', 0.68, 0.99), ('betting', 0.69, 0.98), ('prediction-powered', 0.66, 1.0)]
    """
    c, delta = _confidences(confidence), check_fraction("delta", delta)
    rows, right = np.asarray(rows, np.int64), np.asarray(correct, np.float64)
    if not rows.size or rows.size != right.size or rows.min() < 0 or rows.max() >= c.size:
        got, remedy = f"{rows.size} labels", "Label at least one target sample."
        raise InputError("labels", got=got, allowed=f"labels of some of {c.size} samples", remedy=remedy)
    order = np.random.default_rng(0).permutation(rows.size)  # whatever the order of the file, it tells nothing
    rows, right = rows[order], right[order]
    mean = float(c.mean())
    if times is not None and probability is not None:
        often, pi = np.asarray(times)[order], np.asarray(probability, np.float64)[order]
        terms = np.repeat((right - c[rows]) / (c.size * pi), often)
        largest = 1.0 / EVENLY
        terms = terms[np.random.default_rng(1).permutation(terms.size)]
        return [_interval("prediction-powered", terms, largest, mean, delta, None)]
    if len(np.unique(rows)) < rows.size:
        got, remedy = "a sample twice", "Label a sample once, or give the columns of to_label.csv."
        raise InputError("labels", got=got, allowed="different samples", remedy=remedy)
    n, k = rows.size, float(right.sum())
    low = float(beta.ppf(delta / 2, k, n - k + 1)) if k > 0 else 0.0
    high = float(beta.ppf(1 - delta / 2, k + 1, n - k)) if k < n else 1.0
    return [
        AccuracyInterval("Clopper-Pearson", k / n, low, high, "new target samples"),
        _interval("betting", right, 0.0, 0.0, delta, c.size),
        _interval("prediction-powered", right - c[rows], 1.0, mean, delta, c.size),
    ]


def _interval(
    method: str, terms: FloatArray, size: float, offset: float, delta: float, population: int | None
) -> AccuracyInterval:
    """Return the interval of ``offset`` plus a mean of terms, in [-size, size]; in [0, 1] if that is 0."""
    scale, shift = (2.0 * size, size) if size else (1.0, 0.0)
    unit = np.clip((terms + shift) / scale, 0.0, 1.0)
    high = mean_upper_bound(unit, delta / 2, population)
    low = 1.0 - mean_upper_bound(1.0 - unit, delta / 2, population)
    middle, low, high = (min(max(offset + scale * end - shift, 0.0), 1.0) for end in (float(unit.mean()), low, high))
    return AccuracyInterval(method, middle, low, high, "these target samples")


def _confidences(confidence: FloatArray) -> FloatArray:
    c = np.asarray(confidence, np.float64)
    if c.ndim != 1 or not c.size or not ((c >= 0) & (c <= 1)).all():
        got, remedy = f"shape {c.shape}", "Pass the probability of the predicted class of every target sample."
        raise InputError("confidence", got=got, allowed="numbers in [0, 1]", remedy=remedy)
    return c
