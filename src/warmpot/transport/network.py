"""Partial transport over a list of arcs, on POT's sparse network simplex.

The partial problem becomes a balanced one by two *reservoirs*: what a row does not send goes to a column
reservoir, what a column does not receive comes from a row reservoir, both free of charge, and no arc joins the
two, so exactly `mass` crosses the given arcs. A *slack* route from every row to every column at a price above
any real route keeps the network feasible whatever arcs are given; its flow is the mass that the arcs could
not carry.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from warmpot._typing import FloatArray, IntArray

__all__ = ["Flow", "solve_arcs"]

FINISHED = 1
"""Return code of POT's simplex at an optimum."""
BALANCED = 1e-13
"""A reservoir below this share of the mass is rounding and is left out."""


class Flow(NamedTuple):
    """Optimal flow over the arcs and the dual variables that prove it (for these arcs)."""

    plan: csr_array
    u: FloatArray
    v: FloatArray
    t: float
    slack: float
    finished: bool


def solve_arcs(
    rows: IntArray,
    cols: IntArray,
    cost: FloatArray,
    a: FloatArray,
    b: FloatArray,
    mass: float,
    *,
    slack_cost: float,
    max_iter: int,
) -> Flow:
    """Move `mass` from capacities `a` to capacities `b` over the arcs ``rows[k] -> cols[k]`` at least cost.

    Parameters
    ----------
    rows, cols, cost : (k,) arrays
        The arcs, without repeats, and their finite costs.
    a, b : arrays
        Positive capacities.
    mass : float
        At most ``min(sum(a), sum(b))``.
    slack_cost : float
        Cost of the slack route. Above the largest cost it goes unused where every pair is allowed; with forbidden
        pairs it must exceed the detour over all rows or columns.
    max_iter : int
        Limit on simplex pivots.
    """
    from ot.lp.emd_wrap import emd_c_sparse

    n, m = a.size, b.size
    shift = float(cost.min()) if cost.size else 0.0
    scale = float(cost.max() - shift) if cost.size and cost.max() > shift else 1.0
    # No row or column can use more than the mass: capping there (with room, so that the cap never binds and the
    # dual variables stay true) keeps the rounding of the reservoirs from exceeding a small mass.
    a, b = np.minimum(a / mass, 2.0), np.minimum(b / mass, 2.0)
    spare_a, spare_b = a.sum() - 1.0, b.sum() - 1.0
    # Nodes n and m are the slack; n + 1 and m + 1 the reservoirs, present only if they hold anything.
    every_row, every_col = np.arange(n), np.arange(m)
    tails: list[Any] = [rows, every_row, np.full(m, n), [n]]
    heads: list[Any] = [cols, np.full(n, m), every_col, [m]]
    price: list[Any] = [(cost - shift) / scale, np.full(n + m, (slack_cost - shift) / scale / 2), [0.0]]
    supply: list[Any] = [a, [1.0]]
    demand: list[Any] = [b, [1.0]]
    if spare_a > BALANCED:
        tails, heads, price = [*tails, every_row], [*heads, np.full(n, m + 1)], [*price, np.zeros(n)]
        demand.append([spare_a])
    if spare_b > BALANCED:
        tails, heads, price = [*tails, np.full(m, n + 1)], [*heads, every_col], [*price, np.zeros(m)]
        supply.append([spare_b])
    out, into = np.concatenate(supply), np.concatenate(demand)
    # The simplex itself rather than ot.emd around it, which warns (not safe in threads) where we report a status.
    tail, head, amount, _, alpha, beta, code = emd_c_sparse(
        out,
        into * (out.sum() / into.sum()),
        np.concatenate(tails).astype(np.uint64),
        np.concatenate(heads).astype(np.uint64),
        np.concatenate(price).astype(np.float64),
        max_iter,
    )
    tail, head, amount = tail.astype(np.int64), head.astype(np.int64), amount * mass
    real = (tail < n) & (head < m)
    # Dual variables in the form of `problem`: the reservoirs' potentials are the zero of u and v.
    ground_a = beta[m + 1] if spare_a > BALANCED else -alpha[:n].max()
    ground_b = alpha[n + 1] if spare_b > BALANCED else -beta[:m].max()
    return Flow(
        plan=csr_array((amount[real], (tail[real], head[real])), shape=(n, m)),
        u=np.maximum(0.0, -(alpha[:n] + ground_a)) * scale,
        v=np.maximum(0.0, -(beta[:m] + ground_b)) * scale,
        t=float(-(ground_a + ground_b)) * scale + shift,
        slack=float(amount[(tail < n) & (head == m)].sum()),
        finished=code == FINISHED,
    )
