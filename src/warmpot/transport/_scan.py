"""Numba kernels of column generation: find the most attractive pairs in a block of costs."""

from __future__ import annotations

import numpy as np
from numba import njit

from warmpot._typing import FloatArray, IntArray

__all__ = ["distances_from_products", "scan_block"]

FASTMATH = {"reassoc", "contract", "nsz"}  # sums may be reordered; inf and NaN keep their meaning
CANCELLATION = 1e-6
"""Squared distances below this share of the squared norms are computed again, by differences."""


@njit(cache=True, fastmath=FASTMATH, nogil=True)
def _insert(value: float, index: int, cost: float, values: FloatArray, indices: IntArray, costs: FloatArray) -> None:
    """Put an entry into a sorted list of fixed length, dropping the largest."""
    k = values.size - 1
    while k > 0 and values[k - 1] > value:
        values[k], indices[k], costs[k] = values[k - 1], indices[k - 1], costs[k - 1]
        k -= 1
    values[k], indices[k], costs[k] = value, index, cost


@njit(cache=True, fastmath=FASTMATH, nogil=True)
def scan_block(
    block: FloatArray,
    rows: IntArray,
    u: FloatArray,
    v: FloatArray,
    t: float,
    by_row: tuple[FloatArray, IntArray, FloatArray],
    by_col: tuple[FloatArray, IntArray, FloatArray],
    row_min: FloatArray,
) -> tuple[float, float]:
    """Enter the pairs of a block into the lists of smallest reduced costs ``C_ij + u_i + v_j - t``.

    `by_row` and `by_col` are (values, indices, costs) with one sorted list per row of the block and one per column;
    values are initialised with the threshold that an entry must stay below. ``row_min[i]`` becomes
    ``min_j C_ij + v_j``. Returns the smallest and the largest finite cost.
    """
    row_values, row_index, row_cost = by_row
    col_values, col_index, col_cost = by_col
    keep_rows, keep_cols = row_values.shape[1], col_values.shape[1]
    smallest, largest = np.inf, -np.inf
    for r in range(block.shape[0]):
        i = rows[r]
        base = u[i] - t
        lowest = np.inf
        row_worst = row_values[r, keep_rows - 1] if keep_rows else -np.inf
        for j in range(block.shape[1]):
            cost = block[r, j]
            smallest = min(smallest, cost)
            if largest < cost < np.inf:
                largest = cost
            priced = cost + v[j]
            lowest = min(lowest, priced)
            reduced = priced + base
            if reduced < row_worst:
                _insert(reduced, j, cost, row_values[r], row_index[r], row_cost[r])
                row_worst = row_values[r, keep_rows - 1]
            if reduced < col_values[j, keep_cols - 1]:
                _insert(reduced, i, cost, col_values[j], col_index[j], col_cost[j])
        row_min[i] = lowest
    return smallest, largest


@njit(cache=True, fastmath=FASTMATH, nogil=True)
def distances_from_products(
    products: FloatArray, x: FloatArray, y: FloatArray, x_square: FloatArray, y_square: FloatArray, scale: float
) -> None:
    """Turn inner products ``x y'`` into `scale` times the distances, without cancellation between close points."""
    for i in range(products.shape[0]):
        for j in range(products.shape[1]):
            products[i, j] = x_square[i] + y_square[j] - 2.0 * products[i, j]
        for j in range(products.shape[1]):
            if products[i, j] < CANCELLATION * (x_square[i] + y_square[j]):
                total = 0.0
                for k in range(x.shape[1]):
                    total += (x[i, k] - y[j, k]) ** 2
                products[i, j] = total
        for j in range(products.shape[1]):
            products[i, j] = scale * np.sqrt(products[i, j])
