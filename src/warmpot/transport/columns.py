"""Column generation: the exact plan from a small, growing set of arcs.

Only pairs that could carry mass are given to the network simplex. A round solves the problem on the arcs it
has, then *prices* all pairs with its potentials: a pair of negative reduced cost ``C_ij + u_i + v_j - t``
would lower the value, so the most negative ones of each row and column are added. When none is left the
potentials are feasible for all pairs, which proves the plan optimal: the last pricing pass is the certificate.

The first pass is the same scan with zero potentials and no threshold: it finds nearest neighbours.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
from scipy.sparse import csr_array

from warmpot._progress import ProgressCallback
from warmpot._typing import FloatArray, IntArray
from warmpot.transport.certify import trim_sparse
from warmpot.transport.network import Flow, solve_arcs

__all__ = ["BlockCost", "Generated", "generate"]

ZERO = 1e-12
"""Reduced costs above minus this share of the largest cost count as non-negative: float64 noise of the costs."""
MAX_ROUNDS = 100


class BlockCost(Protocol):
    """A cost matrix that is computed a block of rows at a time.

    Any object with these two members is a block cost: nothing has to be inherited.
    """

    @property
    def shape(self) -> tuple[int, int]:
        """Number of source samples and of target samples."""
        ...

    def block(self, rows: IntArray) -> FloatArray:
        """Return the costs of some source samples, by number, to all target samples: float64, C-ordered.

        ``+inf`` marks a forbidden pair. The result may be a view: it is only read.
        """
        ...


class Generated(NamedTuple):
    """Optimal plan over all pairs, with dual variables feasible for all pairs, and an upper bound of the value."""

    plan: csr_array
    value: float
    at_most: float
    u: FloatArray
    v: FloatArray
    t: float
    slack: float
    span: float
    finished: bool
    rounds: int


class _Arcs:
    """The arcs so far, sorted by row and column, without repeats."""

    def __init__(self, n_cols: int) -> None:
        self.n_cols = n_cols
        self.key: IntArray = np.empty(0, np.int64)
        self.cost: FloatArray = np.empty(0)

    def add(self, rows: IntArray, cols: IntArray, cost: FloatArray) -> int:
        """Add arcs; returns how many were new."""
        before = self.key.size
        key = np.concatenate([self.key, rows * self.n_cols + cols])
        self.key, first = np.unique(key, return_index=True)
        self.cost = np.concatenate([self.cost, cost])[first]
        return self.key.size - before

    def solve(self, a: FloatArray, b: FloatArray, mass: float, slack_cost: float, max_iter: int) -> Flow:
        """Solve on these arcs; all rows without an arc share one node, which keeps the network small."""
        rows, cols = np.divmod(self.key, self.n_cols)
        used, compact = np.unique(rows, return_inverse=True)
        rest = a.sum() - a[used].sum() if used.size < a.size else 0.0
        supply = np.append(a[used], rest) if rest > 0 else a[used]
        flow = solve_arcs(compact, cols, self.cost, supply, b, mass, slack_cost=slack_cost, max_iter=max_iter)
        plan = flow.plan.tocoo()
        u = np.zeros(a.size)
        u[used] = flow.u[: used.size]
        full = csr_array((plan.data, (used[plan.row], plan.col)), shape=(a.size, b.size))
        return flow._replace(plan=full, u=u)

    def value(self, plan: csr_array) -> float:
        """Linear cost of a plan over these arcs."""
        entries = plan.tocoo()
        return float(
            entries.data
            @ self.cost[np.searchsorted(self.key, entries.row.astype(np.int64) * self.n_cols + entries.col)]
        )


class _Scanner:
    """Prices pairs block by block, skipping rows that provably hold no attractive pair."""

    def __init__(self, cost: BlockCost, block_rows: int, report: ProgressCallback) -> None:
        self.cost, self.block_rows, self.report = cost, block_rows, report
        self.row_min = np.full(cost.shape[0], -np.inf)  # lower bound of min_j C_ij + v_j
        self.v = np.zeros(cost.shape[1])
        self.lowest, self.largest = np.inf, -np.inf  # of the finite costs

    @property
    def span(self) -> float:
        """Range of the finite costs, 1 if they are all equal or none is finite."""
        return self.largest - self.lowest if self.largest > self.lowest else 1.0

    def scan(
        self, u: FloatArray, v: FloatArray, t: float, threshold: float, keep: tuple[int, int], title: str
    ) -> tuple[IntArray, IntArray, FloatArray]:
        """Return the `keep` most attractive pairs per row and per column with reduced cost below `threshold`."""
        from warmpot.transport._scan import scan_block

        self.row_min += (v - self.v).min()
        self.v = v
        todo = np.flatnonzero(self.row_min + u - t < min(threshold, 0.0)) if np.isfinite(threshold) else None
        if todo is None:
            todo = np.arange(self.cost.shape[0])
        by_col = _lists(self.cost.shape[1], keep[1], threshold)
        candidates = []
        for start in range(0, todo.size, self.block_rows):
            rows = todo[start : start + self.block_rows]
            by_row = _lists(rows.size, keep[0], threshold)
            block = self.cost.block(rows)
            low, high = scan_block(block, rows, u, v, t, by_row, by_col, self.row_min)
            self.lowest, self.largest = min(self.lowest, low), max(self.largest, high)
            hit = by_row[1] >= 0
            candidates.append((np.broadcast_to(rows[:, None], hit.shape)[hit], by_row[1][hit], by_row[2][hit]))
            self.report(min(1.0, (start + self.block_rows) / todo.size), title)
        hit = by_col[1] >= 0
        columns = np.broadcast_to(np.arange(hit.shape[0])[:, None], hit.shape)
        candidates.append((by_col[1][hit], columns[hit], by_col[2][hit]))
        rows, cols, cost = (np.concatenate(part) for part in zip(*candidates, strict=True))
        return rows, cols, cost


def _lists(count: int, keep: int, threshold: float) -> tuple[FloatArray, IntArray, FloatArray]:
    return np.full((count, keep), threshold), np.full((count, keep), -1, np.int64), np.empty((count, keep))


def generate(
    cost: BlockCost,
    a: FloatArray,
    b: FloatArray,
    mass: float,
    *,
    block_rows: int,
    detour: int,
    max_iter: int,
    report: ProgressCallback,
) -> Generated:
    """Solve the exact partial problem for positive `a`, `b` over a cost known by blocks.

    Parameters
    ----------
    cost : BlockCost
        The costs; ``+inf`` entries are never used as arcs.
    a, b : arrays
        Positive capacities.
    mass : float
        Mass to move.
    block_rows : int
        Rows priced at a time.
    detour : int
        How many times the cost range the slack route costs; see `solve_arcs`.
    max_iter : int
        Limit on simplex pivots, each round.
    report : ProgressCallback
        Called with the share of each pass that is done.

    Returns
    -------
    Generated
        ``slack > 0`` means that the finite pairs cannot carry the mass.
    """
    scanner, arcs = _Scanner(cost, block_rows, report), _Arcs(cost.shape[1])
    # A column draws on b/a rows at least; a few times as many neighbours rarely leave it short.
    neighbours = min(max(16, 8 * int(np.ceil(min(b.max() / a.mean(), a.size / 8)))), a.size)
    # Rows need arcs of their own only if most of them must be used.
    by_row = min(4, b.size) if mass > a.sum() / 2 else 0
    keep = (by_row, neighbours)
    u, v, t, threshold = np.zeros(a.size), np.zeros(b.size), 0.0, np.inf
    for rounds in range(1, MAX_ROUNDS + 1):
        new = arcs.add(*scanner.scan(u, v, t, threshold, keep, f"pricing, round {rounds}"))
        if new == 0 and rounds > 1:
            break
        span = scanner.span
        cheapest = scanner.lowest if scanner.lowest < np.inf else 0.0  # all pairs may be forbidden
        flow = arcs.solve(a, b, mass, cheapest + detour * span, max_iter)
        u, v, t = flow.u, flow.v, flow.t
        threshold, keep = -ZERO * span, (by_row, neighbours if flow.slack > 0 else min(8, a.size))
    # Remaining rounding below zero is subtracted from t: then (u, v, t) is feasible for every pair, rigorously.
    t = min(t, float((scanner.row_min + (v - scanner.v).min() + u).min()))
    plan, missing = trim_sparse(flow.plan, a, b, mass)
    value = arcs.value(plan)
    # Mass that an unfinished simplex has not placed could be placed at the largest cost.
    at_most = value + (missing * scanner.largest if missing > 1e-12 * mass else 0.0)
    return Generated(plan, value, at_most, u, v, t, flow.slack, span, flow.finished and new == 0, rounds)
