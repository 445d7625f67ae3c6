"""The coordinates in which the full engine works: square roots, principal axes, groups of large classes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor
from torch.nn import functional

from warmpot._typing import FloatArray, IntArray
from warmpot.weights.axes import indicators, principal_axes, without_order

__all__ = ["centre_and_axes", "for_sums", "group_counts", "k_means", "split_classes", "variance_follows_mean"]

GROUP, MOST_GROUPS = 50, 10
"""Samples per group of a class that is split, and groups per class at most."""
SQUARABLE = 1e15
"""Sums of squares of larger numbers may exceed float32."""
MOST_STEPS = 300
"""Of k-means; it ends after some 10."""


def centre_and_axes(domains: Sequence[Tensor], width: int) -> tuple[Tensor, Tensor]:
    """Mean and leading principal axes of the samples of all domains together."""
    x = np.concatenate([samples.numpy() for samples in domains])
    centre = x.mean(axis=0, dtype=np.float64)
    x = for_sums(x, many=x.shape[1] > width) - centre.astype(x.dtype)
    return torch.from_numpy(centre).float(), torch.from_numpy(principal_axes(x, width)[1]).float()


def for_sums(x: FloatArray, *, many: bool) -> FloatArray:
    """Return samples of many columns in float32, others in float64: sums of squares are computed in that.

    Of many columns, axes with a millionth of the largest variance are noise that the discriminant shrinks to nothing:
    float32 halves the time. Of few, all axes are kept.
    """
    single = many and max(x.max(), -x.min()) < SQUARABLE
    return x.astype(np.float32 if single else np.float64, copy=False)


def variance_follows_mean(x: Tensor, groups: Tensor) -> bool:
    """Tell whether the variance of a column within a class (`groups`, one-hot) is about proportional to its mean.

    Then a square root stabilises it. The slope between the logarithms is about 1.4 for features after a ReLU. Where it
    is nearer to 0 than to 1, there is nothing to stabilise: the variance of bounded values, such as pixels, falls again
    when the mean is large. The smaller half of the means, where both fall together, is left out.
    """
    if (x < 0).any():
        return False
    x, classes = functional.normalize(x.double(), dim=1), csr_array(groups.numpy().T, dtype=np.float64)
    sizes = np.maximum(classes.sum(axis=1), 1)[:, None]
    means, squares = (torch.from_numpy(classes @ part.numpy() / sizes) for part in (x, x.square()))
    variances = squares - means.square()
    varies = variances > 1e-12 * means.square()
    if varies.sum() < 4:
        return False
    varies &= means > means[varies].median()
    if varies.sum() < 2:  # all means are the same
        return False
    spread = torch.cov(torch.stack([means[varies], variances[varies]]).log())
    return bool(spread[0, 1] > 0.5 * spread[0, 0])


def group_counts(labels: IntArray, n_classes: int) -> IntArray:
    """Return the number of groups that each class is split into: one per 50 samples, at least 1 and at most 10."""
    return np.clip(np.bincount(labels, minlength=n_classes) // GROUP, 1, MOST_GROUPS)


def split_classes(x: FloatArray, labels: IntArray, n_classes: int) -> IntArray:
    """Split large classes into groups of similar samples, by k-means; return the number of the group of each sample.

    A discriminant of C classes has C - 1 axes, few for ten digits in 256 columns. Groups of a class in place of the
    class give more (mixture discriminant analysis). The groups of class c are numbered before those of class c + 1.
    """
    counts = group_counts(labels, n_classes)
    groups = (np.cumsum(counts) - counts)[labels]
    order = without_order(x, labels)
    for c in np.flatnonzero(counts > 1):
        rows = order[labels[order] == c]
        groups[rows] += k_means(x[rows], int(counts[c]))
    return groups


def k_means(x: FloatArray, count: int) -> IntArray:
    """Return the cluster of each sample by k-means, from greedy k-means++ centres until no sample changes its cluster.

    The draws are those of scikit-learn's ``KMeans(count, n_init=1, random_state=0)``, and so are the clusters; but
    scikit-learn takes a second to import. A cluster that loses all samples keeps its centre.
    """
    x = x - x.mean(axis=0)
    centres, nearest = x[_spread_rows(x, count)], np.full(len(x), -1)
    for _ in range(MOST_STEPS):
        distances = (centres * centres).sum(axis=1) - 2 * (x @ centres.T)  # squares, up to a constant per sample
        previous, nearest = nearest, distances.argmin(axis=1)
        if np.array_equal(nearest, previous):
            break
        sizes = np.bincount(nearest, minlength=count)[:, None]
        means = indicators(nearest, count).T @ x / np.maximum(sizes, 1)
        centres = np.where(sizes > 0, means, centres).astype(x.dtype)
    return nearest


def _spread_rows(x: FloatArray, count: int) -> list[int]:
    """Draw samples that are far from each other: each is the best of a few, drawn by their squared distances."""
    rng, n, squares = np.random.RandomState(0), len(x), (x * x).sum(axis=1)
    rows: list[int] = []
    drawn, nearest = rng.choice(n, 1, p=np.full(n, 1 / n)), np.full(n, np.inf)
    while True:
        distances = np.maximum(squares[drawn, None] + squares - 2 * (x[drawn] @ x.T), 0)
        nearer = np.minimum(nearest, distances)
        best = int(nearer.sum(axis=1).argmin())
        nearest = nearer[best]
        rows.append(int(drawn[best]))
        if len(rows) == count:
            return rows
        levels = rng.uniform(size=2 + int(np.log(count))) * nearest.sum()
        drawn = np.minimum(np.searchsorted(nearest.cumsum(), levels), n - 1)
