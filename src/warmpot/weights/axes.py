"""Principal axes of samples: exact from the smaller side of the data, randomised where both sides are large."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.sparse import csr_array

from warmpot._typing import FloatArray, IntArray

__all__ = ["indicators", "matrix_side", "principal_axes", "smallest_of_rows", "with_signs", "without_order"]

MODERATE = 2048
"""Up to this many columns the axes come from the covariance, whatever the number of samples: it costs seconds."""
PART = 2**16
"""Rows that are multiplied at a time."""
LARGE = 5000
"""With more columns and more samples, products of the data with a few vectors cost less than either matrix."""


def matrix_side(n: int, d: int) -> int | None:
    """Return the size of the matrix that the axes of (n, d) samples come from: d or n; None: from neither."""
    if min(n, d) > LARGE:
        return None
    return n if d > MODERATE and n < d else d


def principal_axes(x: FloatArray, count: int) -> tuple[FloatArray, FloatArray]:
    """Return the sums of squares along the leading principal axes, and the axes as columns, the largest first.

    From the covariance (d x d), or from the products between samples (n x n) where these are fewer than columns; both
    are exact. With more than 5,000 of each, scikit-learn's randomised SVD with a fixed seed: the leading axes are
    accurate, the last of many with about the same variance are not. Axes without variance may be columns of zeros.

    Parameters
    ----------
    x : (n, d) array
        Centred samples, float32 or float64; all work is done in that.
    count : int
        Number of axes, at most d.

    Examples
    --------
    >>> principal_axes(np.array([[3.0, 0.0], [-3.0, 0.0], [0.0, 1.0], [0.0, -1.0]]), 1)
    (array([18.]), array([[1.], [0.]]))
    """
    n, d = x.shape
    side = matrix_side(n, d)
    if side is None:
        from sklearn.utils.extmath import randomized_svd

        _, singular, rows = randomized_svd(x, min(count, n), random_state=0)
        squares, axes = singular * singular, rows.T
    elif side < d:
        squares, vectors = _leading(x @ x.T, min(count, n))
        squares[squares <= n * np.finfo(x.dtype).eps * squares[0]] = 0.0  # rounding: their axes would be noise
        axes = x.T @ (vectors / np.sqrt(np.where(squares > 0, squares, np.inf)))
    else:
        squares, axes = _leading(x.T @ x, count)
    missing = count - len(squares)
    if missing:
        squares, axes = np.pad(squares, (0, missing)), np.pad(axes, ((0, 0), (0, missing)))
    return squares, with_signs(axes)


def _leading(matrix: FloatArray, count: int) -> tuple[FloatArray, FloatArray]:
    """Leading eigenvalues and eigenvectors of a symmetric matrix, which is overwritten; the largest first."""
    n = len(matrix)
    values, vectors = eigh(matrix, subset_by_index=[n - count, n - 1], overwrite_a=True)
    return values[::-1].copy(), vectors[:, ::-1]


def with_signs(axes: FloatArray) -> FloatArray:
    """Give eigenvectors, in place, signs of their own: the library's choice of them must not decide a result."""
    largest = [int(np.abs(axis).argmax()) for axis in axes.T]  # one at a time: a copy of all may be large
    axes *= np.where(axes[largest, np.arange(axes.shape[1])] < 0, -1.0, 1.0)
    # numpy calls a single column contiguous even if its stride is negative, which torch does not take
    return axes.copy() if min(axes.strides) < 0 else np.ascontiguousarray(axes)


def without_order(x: NDArray[Any], labels: NDArray[Any] | None = None) -> IntArray:
    """Return the rows in an order that depends on what they contain, not on where they are.

    Random draws of rows in this order are of the same samples, however the data are shuffled. Rows are sorted by label,
    if given, and by the products of a fixed vector with their columns, brought to [0, 1]: a large column, such as times
    since 1970, would leave nothing of the others.

    Examples
    --------
    >>> x = np.array([[1.0, 2.0], [0.0, 1.0], [5.0, 5.0]])
    >>> bool((x[without_order(x)] == x[::-1][without_order(x[::-1])]).all())
    True
    """
    if not len(x):
        return np.zeros(0, np.int64)
    low, high = (extreme.astype(np.float64) for extreme in (x.min(axis=0), x.max(axis=0)))
    vector = np.random.default_rng(0).standard_normal(x.shape[1]) / np.maximum(high - low, 1e-300)
    # in parts: in double precision a whole copy may be too large
    key = np.concatenate([(x[start : start + PART] - low) @ vector for start in range(0, len(x), PART)])
    return np.argsort(key, kind="stable") if labels is None else np.lexsort((key, labels))


def indicators(labels: IntArray, n_classes: int) -> csr_array:
    """Return the one-hot labels (n, C), sparse: with thousands of classes almost all of a dense one are zeros.

    Examples
    --------
    >>> indicators(np.array([1, 0, 1]), 2).T @ np.array([10.0, 20.0, 30.0])
    array([20., 40.])
    """
    n = len(labels)
    return csr_array((np.ones(n), labels, np.arange(n + 1)), shape=(n, n_classes))


def smallest_of_rows(x: FloatArray, k: int) -> FloatArray:
    """Return the k-th smallest entry of each row, as a column.

    It is at most the k-th smallest of the minima of groups of entries, so that only entries up to that one are sorted:
    half of the time of `numpy.partition`.

    Examples
    --------
    >>> smallest_of_rows(np.array([[5.0, 3.0, 4.0], [1.0, 1.0, 0.0]]), 2)
    array([[4.],
           [1.]])
    """
    n = x.shape[1]
    if (folds := min(n // (4 * k), 8)) > 1:
        width = n // folds
        minima = x[:, :width].copy()
        for start in range(width, folds * width, width):
            np.minimum(minima, x[:, start : start + width], out=minima)
        small = x <= np.partition(minima, k - 1, axis=1)[:, k - 1 : k]
        counts = np.count_nonzero(small, axis=1)
        few = np.full((len(x), int(counts.max())), np.inf, x.dtype)
        few[np.arange(few.shape[1]) < counts[:, None]] = x[small]
        x = few
    kth: FloatArray = np.partition(x, k - 1, axis=1)[:, k - 1 : k]
    return kth
