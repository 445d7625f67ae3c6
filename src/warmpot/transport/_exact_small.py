"""Kernels of small exact problems: the network that POT's dense simplex is given, and the plan from its flow.

Each of these takes longer as calls of numpy than its arithmetic does.
"""

from __future__ import annotations

import numpy as np

from warmpot._checks import LARGEST
from warmpot._typing import FloatArray
from warmpot.transport._compile import kernel
from warmpot.transport.columns import BALANCED

__all__ = ["set_network", "set_plan"]

BISECTIONS = 20  # to a millionth of the cost range: it only needs to be a good start


@kernel
def set_network(
    cost: FloatArray, low: float, span: float, a: FloatArray, b: FloatArray, mass: float, supply: FloatArray,
    demand: FloatArray, price: FloatArray, start: FloatArray,
) -> float:  # fmt: skip
    """Set the balanced problem with the reservoirs (see `columns`) as last row and column; returns the mass to move.

    It is 0 for weights that are not positive and a mass that cannot be moved. Supplies and demands are over the mass,
    none for a reservoir without content. Prices are in units of the cost range, less potentials: `start`, those of the
    columns and of the row reservoir. That leaves the best plans as they are, and the simplex ends in half of the time
    for 65 x 65. They are the best potentials if rows had no limit: each column then pays its lowest price, up to the
    price t at which the columns together have the mass.
    """
    n, m = cost.shape
    supply[n] = demand[m] = total_a = total_b = 0.0
    positive = True
    for i in range(n):
        total_a += a[i]
        positive &= a[i] > 0.0
    for j in range(m):
        total_b += b[j]
        start[j] = 1.0
        positive &= b[j] > 0.0
    movable = total_a if total_a < total_b else total_b
    if not (positive and total_a + total_b < LARGEST and 1.0 / LARGEST < mass <= movable * (1.0 + 1e-9)):
        return 0.0
    mass = mass if mass <= movable * (1.0 - 1e-13) else movable
    spare_a = spare_b = -1.0
    for i in range(n):
        supply[i] = a[i] / mass if a[i] < 2.0 * mass else 2.0  # as in `solve_arcs`
        spare_a += supply[i]
        for j in range(m):
            price[i, j] = (cost[i, j] - low) / span
            start[j] = start[j] if start[j] < price[i, j] else price[i, j]
        price[i, m] = 0.0
    for j in range(m):
        demand[j] = b[j] / mass if b[j] < 2.0 * mass else 2.0
        spare_b += demand[j]
    supply[n], demand[m] = spare_b if spare_b > BALANCED else 0.0, spare_a if spare_a > BALANCED else 0.0
    t, below = 1.0, 0.0
    for _ in range(BISECTIONS):
        middle, sent = 0.5 * (below + t), 0.0
        for j in range(m):
            sent += demand[j] if start[j] <= middle else 0.0
        below, t = (below, middle) if sent >= 1.0 else (middle, t)
    reached = 0.0
    for j in range(m):  # a price of a column: with another one, the slope of the value would be off by as much
        reached = start[j] if reached < start[j] <= t else reached
    t = reached
    balance = (1.0 + spare_a + supply[n]) / (1.0 + spare_b + demand[m])
    for j in range(m):
        demand[j] *= balance
        start[j] = start[j] if start[j] < t else t
        price[n, j] = t - start[j]
    demand[m] *= balance
    start[m], price[n, m] = -t, t + 4.0  # above the two real routes that this one would replace
    for i in range(n):
        for j in range(m):
            price[i, j] -= start[j]
    return mass


@kernel
def set_plan(
    flow: FloatArray, cost: FloatArray, mass: float, v: FloatArray, plan: FloatArray, sums: FloatArray,
    lowest: FloatArray,
) -> float:  # fmt: skip
    """Set the plan, its row and column sums, and ``lowest_i = min_j C_ij + v_j``; returns the linear cost."""
    n, m = cost.shape
    q, value = sums[n:], 0.0
    for j in range(m):
        q[j] = 0.0
    for i in range(n):
        row, least = 0.0, np.inf
        for j in range(m):
            plan[i, j] = flow[i, j] * mass
            row += plan[i, j]
            q[j] += plan[i, j]
            value += plan[i, j] * cost[i, j]
        for j in range(m):
            paid = cost[i, j] + v[j]
            least = least if least < paid else paid
        sums[i], lowest[i] = row, least
    return value
