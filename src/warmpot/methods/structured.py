"""Structured prediction of the target: pseudo-labels from its clusters, for several sets of possible classes.

The classifier of the full engine labels target samples one by one, so a shift can put all samples of a class onto
another class. Clusters of the target that start at the means of the source classes move with the shift. After SPL (Wang
and Breckon, AAAI 2020). Deviations: Fisher's discriminant in place of the supervised locality-preserving projection;
sharper probabilities; k-means on the sphere; at least one sample of each predicted class counts; no last pass with all
target samples; and an average over sets of the classes that are likely there, since their number is uncertain.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from warmpot._typing import FloatArray, IntArray
from warmpot.weights import ClassPresence
from warmpot.weights.axes import indicators
from warmpot.weights.presence import axes_of_scatter, unit_rows

__all__ = ["structured_probabilities"]

SIZES = (0.8, 1.0, 1.2, 1.5)
"""Sizes of the sets of most probable classes, over the expected number of classes."""
STEPS = 10
"""A tenth of the target counts in the second discriminant, nine tenths in the last."""
CLUSTER_STEPS = 20
SHARPNESS = 20.0
"""Of class probabilities ``exp(-sharpness * distance)`` on the unit sphere."""


def structured_probabilities(xs: FloatArray, labels: IntArray, xt: FloatArray, presence: ClassPresence) -> FloatArray:
    """Return class probabilities of the target samples, averaged over sets of the most probable classes.

    Parameters
    ----------
    xs, xt : (n_s, d) and (n_t, d) arrays
        Features of both domains, rows about as long as each other.
    labels : (n_s,) array of int
        Class codes of the source samples.
    presence : ClassPresence
        Which classes are likely there.

    Returns
    -------
    (n_t, C) array
        Rows sum to 1.
    """
    number = len(presence.probability)
    order = np.argsort(-presence.probability, kind="stable")[: max(np.count_nonzero(presence.probability), 1)]
    sizes = [int(np.clip(round(size * presence.expected_number), 1, len(order))) for size in SIZES]
    x = np.concatenate([xs, xt]).astype(np.float64)
    total = np.zeros((len(xt), number))
    for size in set(sizes):
        classes = np.sort(order[:size])
        used = np.flatnonzero(np.isin(labels, classes))
        rows = np.concatenate([used, len(xs) + np.arange(len(xt))])
        codes = np.searchsorted(classes, labels[used])
        total[:, classes] += sizes.count(size) * _labelled_in_steps(x[rows], indicators(codes, size))
    return total / len(sizes)


def _labelled_in_steps(x: FloatArray, one_hot: csr_array) -> FloatArray:
    """Return class probabilities of the rows of x that follow the source, whose classes `one_hot` gives.

    In every step the discriminant is fitted to the source and to the target samples labelled so far, and the target is
    labelled by the larger of the probabilities from source means and from clusters; the most certain of each class
    count in the next step.
    """
    x = x - x.mean(axis=0)
    n, classes = one_hot.shape
    chosen, scatter = np.zeros(len(x) - n), _Scatter(x[:n], one_hot, x[n:])
    labelled = csr_array((len(x) - n, classes))
    for step in range(1, STEPS + 1):
        axes = scatter.axes(chosen, labelled)
        projected = unit_rows(x @ axes)
        source, target = projected[:n], projected[n:]
        means = unit_rows(one_hot.T @ source / np.maximum(one_hot.sum(axis=0), 1)[:, None])
        scores = np.maximum(_near(target, means), _near(target, _clusters(target, means)))
        predicted = scores.argmax(axis=1)
        chosen = _most_certain(scores.max(axis=1), predicted, step / STEPS)
        labelled = indicators(predicted, classes)
    probabilities: FloatArray = scores / scores.sum(axis=1, keepdims=True)
    return probabilities


class _Scatter:
    """The discriminant of the source and of some target samples, without the products of those that stay.

    The products of all samples would take most of the time; from step to step few samples are added or dropped.
    """

    def __init__(self, xs: FloatArray, one_hot: csr_array, xt: FloatArray) -> None:
        self.xt, self.total, self.chosen = xt, xs.T @ xs, np.zeros(len(xt))
        self.sums, self.sizes = one_hot.T @ xs, one_hot.sum(axis=0)

    def axes(self, chosen: FloatArray, labelled: csr_array) -> FloatArray:
        """Return the axes when the `chosen` target samples (0 or 1) count with their labels (one-hot)."""
        for sign in (1.0, -1.0):
            rows = self.xt[sign * (chosen - self.chosen) > 0]
            self.total += sign * (rows.T @ rows)
        self.chosen = chosen
        sizes, sums = self.sizes + labelled.T @ chosen, self.sums + labelled.T @ (self.xt * chosen[:, None])
        weight, whole = sizes.sum(), sums.sum(axis=0)
        return axes_of_scatter(
            self.total - np.outer(whole, whole) / weight, sums - np.outer(sizes, whole / weight), sizes
        )


def _near(x: FloatArray, centres: FloatArray) -> FloatArray:
    """Class probabilities from the distances to centres; rows have length 1."""
    scores: FloatArray = -2 * x @ centres.T  # in place from here on: with many classes these arrays are large
    scores += 2
    np.sqrt(np.maximum(scores, 0, out=scores), out=scores)
    scores *= -SHARPNESS
    scores -= scores.max(axis=1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=1, keepdims=True)
    return scores


def _clusters(x: FloatArray, centres: FloatArray) -> FloatArray:
    """Spherical k-means from given centres; a cluster that loses all samples keeps its centre."""
    for _ in range(CLUSTER_STEPS):
        nearest = indicators((x @ centres.T).argmax(axis=1), len(centres))
        moved = np.where(nearest.sum(axis=0)[:, None] > 0, unit_rows(nearest.T @ x), centres)
        if np.array_equal(moved, centres):
            break
        centres = moved
    return centres


def _most_certain(certainty: FloatArray, predicted: IntArray, share: float) -> FloatArray:
    """Mark this share of the samples of each predicted class, at least one, the most certain first."""
    order = np.lexsort((-certainty, predicted))
    counts = np.bincount(predicted)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order)) - (np.cumsum(counts) - counts)[predicted[order]]
    chosen: FloatArray = (rank < np.maximum(share * counts, 1)[predicted]).astype(float)
    return chosen
