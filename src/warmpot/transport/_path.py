"""Numba kernel of `path`: successive shortest paths on a dense bipartite network."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from warmpot._typing import FloatArray, IntArray

__all__ = ["augment_to", "shortest_paths"]

EMPTY = 1e-15
"""Capacities and flows below this share of the total are rounding, and count as 0."""


@njit(cache=True, nogil=True)
def _best_free_row(cost: FloatArray, room: FloatArray, j: int) -> int:
    best, lowest = -1, np.inf
    for i in range(cost.shape[0]):
        if room[i] > 0.0 and cost[i, j] < lowest:
            best, lowest = i, cost[i, j]
    return best


@njit(cache=True, nogil=True)
def _search(
    cost: FloatArray,
    senders: NDArray[np.int32],
    degree: IntArray,
    room_b: FloatArray,
    best: IntArray,
    t: float,
    row_at: FloatArray,
    col_at: FloatArray,
    row_from: IntArray,
    col_from: IntArray,
) -> tuple[int, float]:
    """Dijkstra over reduced costs from all rows with room to the nearest column with room; (-1, inf) if none.

    Potentials are relative to the sink: that of a row with room is -t, those of other nodes are `row_at` and
    `col_at`, which are updated at the end. `row_from` and `col_from` are the nodes before; `col_from` is -1 for a
    column entered from its best row with room.
    """
    n, m = cost.shape
    distance = np.empty(m)
    for j in range(m):
        distance[j] = cost[best[j], j] - t - col_at[j] if best[j] >= 0 else np.inf
        col_from[j] = -1
    done, row_distance = np.zeros(m, np.bool_), np.full(n, np.inf)
    end, length = -1, np.inf
    while True:
        j, nearest = -1, length
        for k in range(m):
            if not done[k] and distance[k] < nearest:
                j, nearest = k, distance[k]
        if j < 0:
            break
        done[j] = True
        if room_b[j] > 0.0:
            if nearest + col_at[j] < length:
                end, length = j, nearest + col_at[j]
            continue
        for d in range(degree[j]):
            i = senders[j, d]
            if row_at[i] < np.inf and row_distance[i] == np.inf:
                row_distance[i], row_from[i] = nearest, j
                base = nearest + row_at[i]
                for k in range(m):
                    through = base + cost[i, k] - col_at[k]
                    if through < distance[k] and not done[k]:  # rounding must not reopen a column
                        distance[k], col_from[k] = through, i
    if end >= 0:
        for j in range(m):
            if done[j] and distance[j] < length:
                col_at[j] += distance[j] - length
        for i in range(n):
            if row_distance[i] < length:
                row_at[i] += row_distance[i] - length
    return end, length


@njit(cache=True, nogil=True)
def _shift(flow: FloatArray, senders: NDArray[np.int32], degree: IntArray, j: int, i: int, amount: float) -> None:
    """Change the flow from row i to column j, keeping the list of rows that send to each column."""
    before = flow[j, i]
    flow[j, i] = before + amount if before + amount >= EMPTY else 0.0
    if before == 0.0 and flow[j, i] > 0.0:
        senders[j, degree[j]] = i
        degree[j] += 1
    elif before > 0.0 and flow[j, i] == 0.0:
        degree[j] -= 1
        for d in range(degree[j]):
            if senders[j, d] == i:
                senders[j, d] = senders[j, degree[j]]
                break


@njit(cache=True, nogil=True)
def _augment(
    flow: FloatArray,
    senders: NDArray[np.int32],
    degree: IntArray,
    room_a: FloatArray,
    room_b: FloatArray,
    best: IntArray,
    end: int,
    row_from: IntArray,
    col_from: IntArray,
) -> tuple[float, int]:
    """Send as much as fits along the path that ends in column `end`; returns the amount and the row it starts from."""
    amount, j = room_b[end], end
    while col_from[j] >= 0:
        i = col_from[j]
        j = row_from[i]
        amount = min(amount, flow[j, i])
    start = best[j]
    amount = min(amount, room_a[start])
    room_b[end] -= amount
    if room_b[end] < EMPTY:
        room_b[end] = 0.0
    j = end
    while col_from[j] >= 0:
        i = col_from[j]
        _shift(flow, senders, degree, j, i, amount)
        j = row_from[i]
        _shift(flow, senders, degree, j, i, -amount)
    _shift(flow, senders, degree, j, start, amount)
    room_a[start] -= amount
    if room_a[start] < EMPTY:
        room_a[start] = 0.0
    return amount, start


@njit(cache=True, nogil=True)
def shortest_paths(cost: FloatArray, a: FloatArray, b: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the amounts and lengths of all augmenting paths, for costs in [0, 1] (or inf) and masses of order 1."""
    n, m = cost.shape
    room_a, room_b, flow = a.copy(), b.copy(), np.zeros((m, n))
    senders, degree = np.empty((m, n), np.int32), np.zeros(m, np.int64)
    # inf marks a row with room: its potential is -t, which changes with every step, so it is not stored
    row_at, col_at = np.full(n, np.inf), np.zeros(m)
    row_from, col_from, best = np.empty(n, np.int64), np.empty(m, np.int64), np.empty(m, np.int64)
    for j in range(m):
        best[j] = _best_free_row(cost, room_a, j)
    amounts, lengths, t = [0.0][:0], [0.0][:0], 0.0
    while True:
        end, length = _search(cost, senders, degree, room_b, best, t, row_at, col_at, row_from, col_from)
        if end < 0:
            break
        t += length
        amount, start = _augment(flow, senders, degree, room_a, room_b, best, end, row_from, col_from)
        if room_a[start] == 0.0:
            row_at[start] = -t
            for j in range(m):
                if best[j] == start:
                    best[j] = _best_free_row(cost, room_a, j)
        amounts.append(amount)
        lengths.append(t)
    return np.array(amounts), np.array(lengths)


@njit(cache=True, nogil=True)
def augment_to(cost: FloatArray, plan: FloatArray, a: FloatArray, b: FloatArray) -> FloatArray:
    """Raise a plan with p <= a, q <= b and mass below 1 to mass 1, over pairs of cost 0 (others inf), by small changes.

    Each path changes the plan by no more than the mass it adds. Stops early where no path is left.
    """
    n, m = cost.shape
    flow = plan.T.copy()
    senders, degree = np.empty((m, n), np.int32), np.zeros(m, np.int64)
    for j in range(m):
        for i in range(n):
            if flow[j, i] > 0.0:
                senders[j, degree[j]] = i
                degree[j] += 1
    room_a, room_b = np.maximum(0.0, a - plan.sum(axis=1)), np.maximum(0.0, b - plan.sum(axis=0))
    row_at, col_at = np.where(room_a > EMPTY, np.inf, 0.0), np.zeros(m)
    row_from, col_from, best = np.empty(n, np.int64), np.empty(m, np.int64), np.empty(m, np.int64)
    room_a[room_a <= EMPTY] = 0.0
    room_b[room_b <= EMPTY] = 0.0
    missing = 1.0 - plan.sum()
    while missing > EMPTY:
        for j in range(m):
            best[j] = _best_free_row(cost, room_a, j)
        end, _ = _search(cost, senders, degree, room_b, best, 0.0, row_at, col_at, row_from, col_from)
        if end < 0:
            break
        room_b[end] = min(room_b[end], missing)
        amount, start = _augment(flow, senders, degree, room_a, room_b, best, end, row_from, col_from)
        missing -= amount
        if room_a[start] == 0.0:
            row_at[start] = 0.0
    return flow.T.copy()
