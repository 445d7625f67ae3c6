"""Numba kernels: rounding plans, pricing pairs (column generation), shortest paths on a dense bipartite network."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from warmpot._typing import FloatArray, IntArray
from warmpot.transport._compile import allocating_part, kernel, part
from warmpot.transport._elementary import log_of

__all__ = [
    "augment_to",
    "cost_range",
    "distances_from_products",
    "lower_bounds_from_products",
    "measure",
    "measured",
    "round_plan",
    "row_minima",
    "scan_block",
    "shortest_paths",
    "smallest_entries",
]

CANCELLATION = 1e-6
"""Squared distances below this share of the squared norms are computed again, by differences."""
EMPTY = 1e-15
"""Capacities and flows below this share of the total are rounding, and count as 0."""


@kernel
def round_plan(plan: FloatArray, a: FloatArray, b: FloatArray, mass: float, fill: bool) -> float:
    """Scale rows, columns and the whole down to their limits, in place; returns the mass then missing.

    With `fill` that mass is spread over the room left in rows and columns, in proportion to both.
    """
    n, m = plan.shape
    room_a, room_b, scale = np.empty(n), np.empty(m), np.empty(m)
    for j in range(m):
        scale[j] = 0.0
    for i in range(n):
        row = 0.0
        for j in range(m):
            row += plan[i, j]
        factor = a[i] / row if row > a[i] else 1.0
        for j in range(m):
            plan[i, j] *= factor
            scale[j] += plan[i, j]
    total = spare_a = spare_b = 0.0
    for j in range(m):
        room_b[j] = max(0.0, b[j] - scale[j])
        spare_b += room_b[j]
        scale[j] = b[j] / scale[j] if scale[j] > b[j] else 1.0
    for i in range(n):
        row = 0.0
        for j in range(m):
            plan[i, j] *= scale[j]
            row += plan[i, j]
        room_a[i] = max(0.0, a[i] - row)
        spare_a += room_a[i]
        total += row
    if total > mass:
        factor = mass / total
        for i in range(n):
            for j in range(m):
                plan[i, j] *= factor
        return 0.0
    missing = mass - total
    if fill and missing > 0.0 and spare_a > 0.0 and spare_b > 0.0:  # else full to the last bit: rounding is missing
        for j in range(m):
            room_b[j] /= spare_b
        for i in range(n):
            if room_a[i] > 0.0:
                share = room_a[i] * (missing / spare_a)  # not both by one factor: their product may be out of range
                for j in range(m):
                    plan[i, j] += share * room_b[j]
    return missing


@part
def measured(plan: FloatArray, cost: FloatArray) -> tuple[float, float]:
    """Return ``<C, P>`` and ``sum P (log P - 1)``, both free of 0 * inf."""
    value = entropy = 0.0
    for i in range(plan.shape[0]):
        for j in range(plan.shape[1]):
            mass = plan[i, j]
            value += mass * cost[i, j] if mass > 0.0 else 0.0
            entropy += mass * (log_of(mass) - 1.0)
    return value, entropy


@kernel
def measure(plan: FloatArray, cost: FloatArray) -> tuple[float, float]:
    """Return what `measured` returns, to Python."""
    value, entropy = measured(plan, cost)
    return value, entropy


@part
def _insert(value: float, index: int, cost: float, values: FloatArray, indices: IntArray, costs: FloatArray) -> None:
    """Put an entry into a sorted list of fixed length, dropping the largest."""
    k = values.size - 1
    while k > 0 and values[k - 1] > value:
        values[k], indices[k], costs[k] = values[k - 1], indices[k - 1], costs[k - 1]
        k -= 1
    values[k], indices[k], costs[k] = value, index, cost


@kernel
def cost_range(block: FloatArray) -> tuple[float, float]:
    """Return the smallest and the largest finite entry."""
    smallest, largest = np.inf, -np.inf
    for r in range(block.shape[0]):
        for j in range(block.shape[1]):
            smallest = min(smallest, block[r, j])
            largest = max(largest, block[r, j] if block[r, j] < np.inf else -np.inf)
    return smallest, largest


@kernel
def row_minima(block: NDArray[np.float32], rows: IntArray, v: FloatArray, row_min: FloatArray) -> None:
    """Enter ``min_j C_ij + v_j`` for the rows of a block."""
    for r in range(block.shape[0]):
        lowest = np.inf
        for j in range(block.shape[1]):
            lowest = min(lowest, block[r, j] + v[j])
        row_min[rows[r]] = lowest


@kernel
def scan_block(
    block: FloatArray,
    rows: IntArray,
    u: FloatArray,
    v: FloatArray,
    t: float,
    threshold: float,
    by_row: tuple[FloatArray, IntArray, FloatArray],
    by_col: tuple[FloatArray, IntArray, FloatArray],
    col_worst: FloatArray,
    row_min: FloatArray,
) -> None:
    """Enter the pairs of a block into the lists of smallest reduced costs ``C_ij + u_i + v_j - t``.

    `by_row` and `by_col` are (values, indices, costs) with one sorted list per row of the block and one per column;
    values are initialised with the `threshold` that an entry must stay below. `col_worst` are the last values of the
    columns' lists, side by side in memory. ``row_min[i]`` becomes ``min_j C_ij + v_j``.
    """
    row_values, row_index, row_cost = by_row
    col_values, col_index, col_cost = by_col
    keep_rows, keep_cols = row_values.shape[1], col_values.shape[1]
    for r in range(block.shape[0]):
        i = rows[r]
        base = u[i] - t
        lowest = np.inf
        for j in range(block.shape[1]):  # a loop of its own: the compiler turns it into vector instructions
            lowest = min(lowest, block[r, j] + v[j])
        row_min[i] = lowest
        if lowest + base >= threshold:
            continue
        row_worst = row_values[r, keep_rows - 1] if keep_rows else -np.inf
        for j in range(block.shape[1]):
            cost = block[r, j]
            reduced = cost + v[j] + base
            if reduced < row_worst:
                _insert(reduced, j, cost, row_values[r], row_index[r], row_cost[r])
                row_worst = row_values[r, keep_rows - 1]
            if reduced < col_worst[j]:
                _insert(reduced, i, cost, col_values[j], col_index[j], col_cost[j])
                col_worst[j] = col_values[j, keep_cols - 1]


@kernel
def smallest_entries(block: FloatArray, index: IntArray) -> None:
    """Enter the columns of the smallest entries of each row, the smallest first; where they are equal, the first."""
    keep = index.shape[1]
    values, costs = np.empty(keep), np.empty(keep)
    for r in range(block.shape[0] if keep else 0):
        for k in range(keep):
            values[k] = np.inf
            index[r, k] = k
        worst = np.inf
        for j in range(block.shape[1]):
            if block[r, j] < worst:
                _insert(block[r, j], j, 0.0, values, index[r], costs)
                worst = values[keep - 1]


@kernel
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


@kernel
def lower_bounds_from_products(
    products: NDArray[np.float32], x_square: NDArray[np.float32], y_square: NDArray[np.float32], error: float,
    scale: float,
) -> None:  # fmt: skip
    """Turn inner products in float32 into `scale` times lower bounds of the distances.

    `error` bounds the rounding of a squared distance, as a share of the squared norms.
    """
    share, factor = np.float32(1.0 - error), np.float32(scale)
    for i in range(products.shape[0]):
        for j in range(products.shape[1]):
            square = share * (x_square[i] + y_square[j]) - np.float32(2.0) * products[i, j]
            products[i, j] = factor * np.sqrt(max(square, np.float32(0.0)))


@part
def _best_free_row(cost: FloatArray, room: FloatArray, j: int) -> int:
    best, lowest = -1, np.inf
    for i in range(cost.shape[0]):
        if room[i] > 0.0 and cost[i, j] < lowest:
            best, lowest = i, cost[i, j]
    return best


@allocating_part
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
    done, row_distance = np.zeros(m, np.bool_), np.empty(n)
    for i in range(n):
        row_distance[i] = np.inf
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


@part
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


@part
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


@kernel
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


@kernel
def augment_to(cost: FloatArray, flow: FloatArray, room_a: FloatArray, room_b: FloatArray, missing: float) -> None:
    """Add mass that is missing to a plan (its transpose: `flow`) over pairs of cost 0 (others inf), by small changes.

    Masses are of order 1; `room_a` and `room_b` are the free capacities, 0 where negligible. Each path changes the plan
    by no more than the mass it adds. Stops early where no path is left.
    """
    n, m = cost.shape
    senders, degree = np.empty((m, n), np.int32), np.empty(m, np.int64)
    row_at, col_at = np.empty(n), np.empty(m)
    row_from, col_from, best = np.empty(n, np.int64), np.empty(m, np.int64), np.empty(m, np.int64)
    for i in range(n):
        row_at[i] = np.inf if room_a[i] > 0.0 else 0.0
    for j in range(m):
        col_at[j], degree[j] = 0.0, 0
        for i in range(n):
            if flow[j, i] > 0.0:
                senders[j, degree[j]] = i
                degree[j] += 1
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
