"""How well labels of the target are supported, without target labels: evidence that adaptation has not touched.

Classes of the target may have moved, but not as far as the classes of the source are apart, and samples of a class lie
together. Both are measured on the features as they are given, so that labels by different classifiers can be compared:
what an adapted classifier says of its own features is that it is right.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from warmpot._typing import FloatArray, IntArray
from warmpot.weights.axes import indicators, principal_axes
from warmpot.weights.presence import discriminant_axes

__all__ = ["Evidence", "LabelEvidence"]

SOURCE_AXES, TARGET_AXES = 16, 32
"""Discriminant axes of the source, and principal axes of the target."""
STILL = 0.05
"""Squared moves, relative to the distances between source classes, that are as good as none."""


class Evidence(NamedTuple):
    """For labels of the target; more is better.

    Attributes
    ----------
    move : float
        Minus the logarithm of the mean squared distance between the classes' means in target and source, in units of
        that of a source class from the mean of all.
    clusters : float
        Log-likelihood per sample and dimension of round clusters of one size, one per class, with Schwarz's penalty.
    """

    move: float
    clusters: float


class LabelEvidence:
    """The evidence for labels of one target, from source features (n_s, d), class codes, and target features (n_t, d).

    Examples
    --------
    >>> x = np.array([[0.0, 0.1], [0.1, 0.0], [4.0, 4.1], [4.1, 4.0]])
    >>> evidence = LabelEvidence(x, np.array([0, 0, 1, 1]), x + 0.5, 2)
    >>> right, wrong = (evidence.of(np.array(labels)) for labels in ([0, 0, 1, 1], [1, 1, 0, 0]))
    >>> right.move > wrong.move, right.clusters == wrong.clusters
    (True, True)
    """

    def __init__(self, xs: FloatArray, labels: IntArray, xt: FloatArray, n_classes: int) -> None:
        xs = xs.astype(np.float64)
        xt = xt.astype(np.float64)
        one_hot, sizes = indicators(labels, n_classes), np.bincount(labels, minlength=n_classes)
        self._n_classes, present = n_classes, sizes > 0
        axes = discriminant_axes(xs, one_hot, np.ones(len(xs)))[:, :SOURCE_AXES]
        self._target = xt @ axes
        self._means = one_hot.T @ (xs @ axes) / np.maximum(sizes, 1)[:, None]
        apart = self._means[present] - self._means[present].mean(axis=0)
        self._apart = max(float(np.square(apart).sum(axis=1).mean()), 1e-300)
        centred = xt - xt.mean(axis=0)
        self._clusters = centred @ principal_axes(centred, min(TARGET_AXES, xt.shape[1]))[1]

    def of(self, labels: IntArray) -> Evidence:
        """Return the evidence for class codes of the target samples."""
        n, counts = len(labels), np.bincount(labels, minlength=self._n_classes)
        groups, used = indicators(labels, self._n_classes).T, np.flatnonzero(counts)
        means = groups @ self._target / np.maximum(counts, 1)[:, None]
        shares = counts[used] / n
        moved = float(shares @ np.square(means[used] - self._means[used]).sum(axis=1)) / self._apart
        return Evidence(-float(np.log(moved + STILL)), self._likelihood(labels, groups, counts, shares))

    def _likelihood(self, labels: IntArray, groups: Any, counts: IntArray, shares: FloatArray) -> float:
        x = self._clusters
        n, d = x.shape
        means = groups @ x / np.maximum(counts, 1)[:, None]
        variance = max(float(np.square(x - means[labels]).sum()) / (n * d), 1e-300)
        unknowns = len(shares) * (d + 1)
        return float(-0.5 * np.log(variance) + shares @ np.log(shares) / d - 0.5 * np.log(n) * unknowns / (n * d))
