"""Numba kernels over dense plans: rounding to feasible, and measuring."""

from __future__ import annotations

import numpy as np
from numba import njit

from warmpot._typing import FloatArray

__all__ = ["measure", "round_plan"]

FASTMATH = {"reassoc", "contract", "nsz"}


@njit(cache=True, fastmath=FASTMATH, nogil=True)
def round_plan(plan: FloatArray, a: FloatArray, b: FloatArray, mass: float, fill: bool) -> float:
    """Scale rows, columns and the whole down to their limits, in place; returns the mass then missing.

    With `fill` that mass is spread over the room left in rows and columns, in proportion to both.
    """
    n, m = plan.shape
    p, q = np.empty(n), np.zeros(m)
    for i in range(n):
        row = plan[i].sum()
        scale = a[i] / row if row > a[i] else 1.0
        for j in range(m):
            plan[i, j] *= scale
            q[j] += plan[i, j]
    room_b = np.maximum(0.0, b - q)
    for j in range(m):
        q[j] = b[j] / q[j] if q[j] > b[j] else 1.0
    for i in range(n):
        for j in range(m):
            plan[i, j] *= q[j]
        p[i] = plan[i].sum()
    total = p.sum()
    if total > mass:
        scale = mass / total
        for i in range(n):
            for j in range(m):
                plan[i, j] *= scale
        return 0.0
    missing = float(mass - total)
    room_a = np.maximum(0.0, a - p)
    scale = room_a.sum() * room_b.sum()
    if fill and missing > 0.0 and scale > 0.0:  # else full to the last bit: what is missing is rounding
        room_a *= missing / scale
        for i in range(n):
            if room_a[i] > 0.0:
                for j in range(m):
                    plan[i, j] += room_a[i] * room_b[j]
    return missing


@njit(cache=True, fastmath=FASTMATH, nogil=True)
def measure(plan: FloatArray, cost: FloatArray) -> tuple[float, float]:
    """Return ``<C, P>`` and ``sum P (log P - 1)``, both free of 0 * inf."""
    value = entropy = 0.0
    for i in range(plan.shape[0]):
        for j in range(plan.shape[1]):
            mass = plan[i, j]
            if mass > 0.0:
                value += mass * cost[i, j]
                entropy += mass * (np.log(mass) - 1.0)
    return value, entropy
